"""The providers' own packages as independent oracles: they sign requests and say which they would believe, and the
running gateway must say the same.

The packages come from the npm registry, in the versions of package-lock.json, into a folder of the build.
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support.gateway import Gateway
from support.hooks import kept
from support.upstream import Upstream, answers

SECRETS = {"stripe": "whsec_oracle", "github": "octo secret", "standard": "whsec_" + base64.b64encode(b"k" * 24).decode(),
           "twilio": "12345"}
SECRETS["svix"] = SECRETS["standard"]
PUBLIC_URL = "https://hooks.example.com/hooks/twilio"


class Oracle:
    def __init__(self, script="oracle.mjs"):
        folder = pathlib.Path(os.environ.get("ONCEKEY_ORACLES", HERE))
        if folder != HERE:
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("package.json", "package-lock.json", script):
                shutil.copy(HERE / name, folder / name)
        if not all((folder / "node_modules" / package).exists() for package in ("stripe", "jose")):
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"], cwd=folder,
                           check=True, timeout=300, stdout=subprocess.DEVNULL)
        self.process = subprocess.Popen(["node", script], cwd=folder, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


class OracleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.oracle = Oracle()
        cls.addClassCleanup(cls.oracle.close)
        cls.receiver = Upstream().start()
        cls.addClassCleanup(cls.receiver.stop)
        cls.receiver.always(answers(200))
        hooks = [{"path": f"/hooks/{name}", "provider": name, "secrets": [kept(name, SECRETS[name])],
                  "deliver_to": f"{cls.receiver.url}/events"} for name in ("stripe", "github", "standard", "twilio")]
        hooks[-1]["url"] = PUBLIC_URL
        cls.gateway = Gateway(cls.receiver.url, webhook=hooks)
        cls.addClassCleanup(cls.gateway.remove)
        cls.gateway.start()

    def post(self, provider, headers, body):
        path = "/hooks/standard" if provider == "svix" else f"/hooks/{provider}"
        return self.gateway.client().post(path, body=body.encode(), headers=list(headers.items()),
                                          authorization=False).status

    def both(self, provider, headers, body, secret=None):
        """Whether the package believes the request, and whether the gateway does."""
        package = self.oracle.ask(do="verify", provider=provider, secret=secret or SECRETS[provider], headers=headers,
                                  body=body, url=PUBLIC_URL)["believed"]
        status = self.post(provider, headers, body)
        self.assertIn(status, (200, 400))
        return package, status == 200

    def sign(self, provider, body, *, secret=None, at=None, name="evt"):
        event = f"{name}_{provider}_{time.time_ns()}"
        answer = self.oracle.ask(do="sign", provider=provider, secret=secret or SECRETS[provider], id=event, body=body,
                                 at=int(at or time.time()), url=PUBLIC_URL)
        return answer["headers"]

    def body_of(self, provider):
        if provider == "twilio":
            return "CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212"
        return json.dumps({"id": f"evt_{time.time_ns()}", "object": "event", "text": "na\u00efve \u20ac"})

    def test_what_the_packages_sign_is_believed(self):
        for provider in SECRETS:
            with self.subTest(provider):
                body = self.body_of(provider)
                self.assertEqual(self.both(provider, self.sign(provider, body), body), (True, True))

    def test_altered_requests_are_refused_by_both(self):
        for provider in SECRETS:
            body = self.body_of(provider)
            good = self.sign(provider, body)
            signature = next(name for name in good if "ignature" in name)
            altered = {
                "another body": (good, body.replace("e", "f", 1)),
                "another secret": (self.sign(provider, body, secret={"standard": "whsec_" + base64.b64encode(b"x" * 24).decode(),
                                                                     "svix": "whsec_" + base64.b64encode(b"x" * 24).decode()}
                                             .get(provider, "other")), body),
                "no signature": ({name: value for name, value in good.items() if name != signature}, body),
                "a signature cut short": ({**good, signature: good[signature][:-2]}, body),
                "an empty signature": ({**good, signature: ""}, body),
                "a longer body": (good, body + " "),
            }
            for name, (headers, text) in altered.items():
                with self.subTest(provider=provider, case=name):
                    self.assertEqual(self.both(provider, headers, text), (False, False))

    def test_both_look_at_the_time_in_both_directions(self):
        for provider in ("standard", "svix"):
            for seconds in (-600, 600):
                with self.subTest(provider=provider, seconds=seconds):
                    body = self.body_of(provider)
                    headers = self.sign(provider, body, at=time.time() + seconds)
                    self.assertEqual(self.both(provider, headers, body), (False, False))
        body = self.body_of("stripe")
        self.assertEqual(self.both("stripe", self.sign("stripe", body, at=time.time() - 600), body), (False, False))
        # Stripe's package believes requests from the future; they could be replayed for as long as they are ahead.
        self.assertEqual(self.both("stripe", self.sign("stripe", body, at=time.time() + 600), body), (True, False))

    def test_one_of_several_signatures_is_enough_for_both(self):
        for provider in ("standard", "svix"):
            body = self.body_of(provider)
            headers = self.sign(provider, body)
            name = next(name for name in headers if "ignature" in name)
            other = "v1," + base64.b64encode(b"z" * 32).decode()
            with self.subTest(provider):
                self.assertEqual(self.both(provider, {**headers, name: f"{other} {headers[name]}"}, body), (True, True))

    def test_the_url_is_part_of_what_twilio_signs(self):
        body = self.body_of("twilio")
        headers = self.oracle.ask(do="sign", provider="twilio", secret=SECRETS["twilio"], id="t", body=body,
                                  url="https://elsewhere.example.com/hooks/twilio")["headers"]
        self.assertEqual(self.both("twilio", headers, body), (False, False))


if __name__ == "__main__":
    unittest.main()
