"""The operators' console in a real browser, against the real gateway.

The files are asked for with the strict client. The page is driven by console.mjs, in one Chromium for all cases: this
file starts the gateway, an API and a receiver behind it, brings keys and messages into every state that an operator can
meet, and runs it. The packages that drive the browser come from the npm registry, in the versions of package-lock.json,
into a folder of the build. Pictures of every page go there too.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support import hooks
from support.certificates import Certificates
from support.client import Client
from support.gateway import PROJECT, Gateway, binary
from support.upstream import Upstream, answers, never_answers, resets
from support.waiting import poll_until

FILES = PROJECT / "src" / "admin" / "console"
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".svg": "image/svg+xml", ".LICENSE": "text/plain; charset=utf-8"}
LEASE_SECONDS = 2
READ_TOKEN = "only-for-reading-0123456789"
EVIL = "<img src=x onerror=document.title='owned'>"
EVIL_KEY = EVIL.replace(" ", "/")  # a key has no spaces
KEYS_COMPLETED = 60  # more than one page
REFUSED_ACTIONS = 150  # the audit trail has more than one page, and room on the first for what the cases do
ORDERS = 12  # dead letters for runs over many of them


def charge(exchange):
    """The API: some paths have a fate of their own."""
    request = exchange.request
    if "lost" in request.target:
        return resets()(exchange)
    if "slow" in request.target:
        exchange.wire.socket.settimeout(None)
        return never_answers()(exchange)
    body = json.dumps({"id": "ch_1", "note": EVIL}, separators=(",", ":"))
    return answers(201, body, [("Content-Type", "application/json"), ("Set-Cookie", "session=secret-cookie"), ("X-Evil", EVIL)],
                   reason="Created")(exchange)


class ConsoleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = Upstream().start()
        cls.addClassCleanup(cls.api.stop)
        cls.api.always(charge)
        cls.receiver = Upstream().start()
        cls.addClassCleanup(cls.receiver.stop)
        cls.receiver.always(answers(410, "<script>gone()</script>", reason="Gone"))
        routes = [{"path": "/held/*", "on_unknown": "hold", "on_abandoned": "hold"},
                  {"path": "/waits/*", "on_unknown": "abandon", "on_abandoned": "hold", "lease": f"{LEASE_SECONDS}s"},
                  {"path": "/lost/*", "policy": "classic", "lease": f"{LEASE_SECONDS}s"},
                  {"path": "/alike/*", "policy": "classic", "key_from": ["fingerprint"], "window": "30m"},
                  {"path": "/*", "policy": "classic"}]
        webhooks = [hooks.hook("stripe", f"{cls.receiver.url}/events"), hooks.hook("github", f"{cls.receiver.url}/pushes"),
                    hooks.hook("shopify", f"{cls.receiver.url}/orders"),
                    hooks.hook("standard", f"{cls.receiver.url}/evil")]
        cls.gateway = Gateway(cls.api.url, routes, webhook=webhooks, gateway_name="eu-1", upstream_timeout="10m",
                              admin_read_token=READ_TOKEN)
        cls.addClassCleanup(cls.gateway.remove)
        cls.gateway.settings["audit_log"] = str(cls.gateway.folder / "audit.log")
        cls.gateway.start()

    # The files.

    def get(self, target, **options):
        return self.gateway.admin.get(target, authorization=False, **options)

    def test_the_root_leads_to_the_page(self):
        for target in ("/", "/console"):
            answer = self.get(target)
            self.assertEqual((answer.status, answer.header("Location")), (302, "/console/"))
        self.assertEqual(self.get("/console/").body, (FILES / "index.html").read_bytes())

    def test_every_file_is_served_as_it_is_without_a_token(self):
        files = [path for path in FILES.rglob("*") if path.is_file()]
        self.assertGreater(len(files), 10)
        for path in files:
            answer = self.get(f"/console/{path.relative_to(FILES)}")
            self.assertEqual(answer.status, 200, path)
            self.assertEqual(answer.body, path.read_bytes(), path)
            self.assertEqual(answer.header("Content-Type"), TYPES[path.suffix], path)
            again = self.get(f"/console/{path.relative_to(FILES)}", headers=[("If-None-Match", answer.header("ETag"))])
            self.assertEqual((again.status, again.body), (304, b""), path)
        for target in ("/console/none.js", "/console/../admin.cc", "/console/vendor", "/console/%2e%2e/index.html"):
            self.assertEqual(self.get(target).status, 404, target)

    def test_the_page_may_load_from_its_own_listener_alone(self):
        answer = self.get("/console/")
        rules = dict(rule.strip().split(" ", 1) for rule in answer.header("Content-Security-Policy").split(";"))
        self.assertEqual(rules["default-src"], "'none'")
        self.assertEqual(rules["frame-ancestors"], "'none'")
        for kind in ("script-src", "style-src", "connect-src", "img-src"):
            self.assertEqual(rules[kind], "'self'")
        self.assertEqual(answer.all("X-Content-Type-Options"), ["nosniff"])
        self.assertEqual(answer.all("Referrer-Policy"), ["no-referrer"])
        markup = answer.body.decode()
        self.assertNotIn("style=", markup)
        self.assertNotIn("<script>", markup)

    def test_another_host_name_gets_no_page(self):
        stranger = Client(self.gateway.admin_address, host="evil.example")
        self.assertEqual(stranger.get("/console/", authorization=False).status, 403)

    # The page.

    def test_the_page_in_a_browser(self):
        folder = self.packages()
        world = self.world()
        shots = folder / "screenshots"
        shutil.rmtree(shots, ignore_errors=True)
        shots.mkdir()
        world["shots"] = str(shots)
        done = subprocess.run(["node", "console.mjs"], cwd=folder, env={**os.environ, "ONCEKEY_WORLD": json.dumps(world)},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("# fail 0", done.stdout)

    @staticmethod
    def packages():
        folder = pathlib.Path(os.environ.get("ONCEKEY_CONSOLE_PACKAGES", HERE))
        if folder != HERE:
            folder.mkdir(parents=True, exist_ok=True)
            for path in [*HERE.glob("*.json"), *HERE.glob("*.mjs")]:
                shutil.copy(path, folder / path.name)
        if not all((folder / "node_modules" / package).exists() for package in ("playwright-core", "axe-core")):
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"], cwd=folder,
                           check=True, timeout=300, stdout=subprocess.DEVNULL)
        return folder

    def world(self):
        """Keys and messages in every state, and what the browser must know of them."""
        client = self.gateway.client()
        keys = {}

        def post(name, target, key=None, body=b'{"amount":2000}'):
            keys[name] = {"key": key or f"{name}-0001", "target": target}
            return client.post(target, key=keys[name]["key"], body=body,
                               headers=[("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")])

        for number in range(KEYS_COMPLETED):
            client.post("/charges", key=f"bulk-{number:04d}")
        post("evil", "/charges", key=EVIL_KEY)
        client.post("/alike/1")
        post("done", "/charges")
        for _ in range(3):
            post("done", "/charges")
        self.assertEqual(post("done", "/charges", body=b'{"amount":9999}').status, 422)
        for name in ("held", "complete", "release", "released", "twice", "over"):
            post(name, f"/held/lost-{name}")
        post("waits", "/waits/lost")
        post("abandoned", "/lost/1")
        post("rerun", "/lost/2")
        post("taken_over", "/lost/3")
        post("hold", "/lost/4")
        # Its client has hung up, which does not end the call.
        keys["running"] = {"key": "running-0001", "target": "/slow"}
        with client.connect() as connection:
            connection.send(client.request_bytes("POST", "/slow", key="running-0001", body=b'{"amount":2000}'))
            self.api.wait_for_executions(1, key="running-0001")
        self.addCleanup(self.api.stop)  # the gateway would wait for the call
        for provider, name, count in (("stripe", "evt_stripe", 4), ("github", "evt_github", 2), ("shopify", "order", ORDERS)):
            for number in range(count):
                body, headers = getattr(hooks, provider)(f"{name}_{number}")
                self.assertEqual(client.post(f"/hooks/{provider}", body=body, headers=headers, authorization=False).status, 200)
        poll_until(lambda: len(self.gateway.admin.get("/api/jobs?state=dead").json()["jobs"]) == 6 + ORDERS, "dead letters")
        job = next(each["id"] for each in self.gateway.admin.get("/api/jobs?state=dead").json()["jobs"]
                   if each["key"] == "evt_stripe_1")
        self.receiver.always(answers(200))
        body, headers = hooks.standard(EVIL_KEY, json.dumps({"note": EVIL}).encode())
        self.assertEqual(client.post("/hooks/standard", body=body, headers=[*headers, ("X-Evil", EVIL)],
                                     authorization=False).status, 200)
        poll_until(lambda: len(self.gateway.admin.get("/api/jobs?state=delivered").json()["jobs"]) == 1, "the delivery")
        self.gateway.wait_until_leases_end(LEASE_SECONDS, below="/lost")
        self.gateway.wait_until_leases_end(LEASE_SECONDS, below="/waits")
        # The retry finds the lease over, and takes over.
        self.api.always(answers(201))
        self.assertEqual(client.post("/lost/3", key=keys["taken_over"]["key"], body=b'{"amount":2000}').status, 201)
        # An operator frees a key that may have been executed; the retry is a first request.
        released = next(record["id"] for record in self.gateway.records() if record["key"] == keys["released"]["key"])
        self.assertEqual(self.act(released, "release", "the API has no trace of it").status, 200)
        self.assertEqual(post("released", "/held/lost-released").status, 201)
        self.api.always(charge)
        ids = {record["key"]: record["id"] for record in self.gateway.records()}
        for _ in range(REFUSED_ACTIONS):
            self.assertEqual(self.act(ids["bulk-0000"], "release", "it has its answer").status, 409)
        keys["busy"] = {"key": "bulk-0000", "target": "/charges"}
        return {"admin": f"http://{self.gateway.admin_text}", "gateway": "http://{}:{}".format(*self.gateway.address),
                "admin_address": self.gateway.admin_text, "token": self.gateway.admin_token, "read_token": READ_TOKEN,
                "binary": binary(), "evil": EVIL, "orders": ORDERS, "job": job, "secure": self.secure_world(),
                "keys": {name: {**known, "id": ids[known["key"]]} for name, known in keys.items()}}

    def act(self, record, action, reason):
        return self.gateway.admin.request("POST", f"/api/keys/{record}/{action}",
                                          body=json.dumps({"reason": reason}).encode(),
                                          headers=[("Content-Type", "application/json")])

    def secure_world(self):
        """A gateway whose operators have client certificates, with a key to act on."""
        gateway = Gateway(self.api.url, [{"path": "/*", "on_unknown": "hold"}])
        self.addCleanup(gateway.remove)
        certificates = Certificates(gateway.folder)
        gateway.settings.update(certificates.admin_settings(["O=Shop,CN=alice"]))
        people = {"alice": "/CN=alice/O=Shop", "bob": "/CN=bob"}
        for name, subject in people.items():
            certificates.issue(name, subject)
        gateway.admin_tls = certificates.context()
        gateway.start()
        gateway.client().post("/lost-1", key="by-certificate-1")
        files = {name: {kind: certificates.file(f"{name}.{kind}") for kind in ("crt", "key")} for name in people}
        return {"admin": f"https://{gateway.admin_text}", "people": files, "key": gateway.records()[0]["id"]}


if __name__ == "__main__":
    unittest.main()
