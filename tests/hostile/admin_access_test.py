"""Who may do what at the admin listener: every page for every kind of caller, sessions, codes, certificates, browsers."""

import json
import pathlib
import re
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.certificates import Certificates
from support.client import Client, Connection
from support.gateway import Gateway, run_cli, toml
from support.upstream import Upstream, resets

CLASSIC = [{"path": "/*", "policy": "classic"}]
ID = "0" * 64
OPERATOR, READER = "operator-0123456789abcdef", "reader-0123456789abcdef"
REASON = {"reason": "test", "confirm": ID[:8]}

# Method, path, body; who may: open, read, act, proof, session; what one who may is answered.
PAGES = [
    ("GET", "/livez", None, "open", 200),
    ("GET", "/readyz", None, "word", 200),
    ("GET", "/metrics", None, "metrics", 200),
    ("GET", "/api/session", None, "read", 200),
    ("GET", "/api/overview", None, "read", 200),
    ("GET", "/api/storms", None, "read", 200),
    ("GET", "/api/actions", None, "read", 200),
    ("GET", "/api/audit", None, "read", 200),
    ("POST", "/api/audit/find", {"key": "k"}, "read", 400),
    ("GET", "/api/keys", None, "read", 200),
    ("POST", "/api/keys/find", {"key": "k"}, "read", 200),
    ("GET", "/api/keys/*", None, "read", 404),
    ("POST", "/api/keys/*/*", REASON, "act", 404),
    ("GET", "/api/jobs", None, "read", 200),
    ("GET", "/api/jobs/runs", None, "read", 200),
    ("GET", "/api/jobs/runs/*", None, "read", 404),
    ("POST", "/api/jobs/runs/*/stop", REASON, "act", 404),
    ("GET", "/api/jobs/*", None, "read", 404),
    ("POST", "/api/jobs/retry", {"filter": {}, "dry_run": True}, "act", 200),
    ("POST", "/api/jobs/drop", {"filter": {}, "dry_run": True}, "act", 200),
    ("POST", "/api/jobs/*/*", REASON, "act", 404),
    ("GET", "/api/store", None, "read", 200),
    ("GET", "/api/store/backup", None, "read", 200),
    ("POST", "/api/store/backup", {"to": "relative", "reason": "test"}, "act", 400),
    ("POST", "/api/login/codes", {}, "proof", 200),
    ("GET", "/nothing", None, "read", 404),
]
STARS = {"/api/keys/*": f"/api/keys/{ID}", "/api/keys/*/*": f"/api/keys/{ID}/release",
         "/api/jobs/*": f"/api/jobs/{ID}", "/api/jobs/*/*": f"/api/jobs/{ID}/retry",
         "/api/jobs/runs/*": "/api/jobs/runs/00000000", "/api/jobs/runs/*/stop": "/api/jobs/runs/00000000/stop"}
# Those that the table above leaves to tests of their own.
APART = {"POST /api/login", "POST /api/logout"}

SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
                    "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"}


class Browser:
    """What a browser sends: its cookies, the origin of its page, and what the page adds."""

    def __init__(self, gateway, tls=None, host=None):
        self.client = Client(gateway.admin_address, None, host=host or gateway.admin_text, tls_context=tls)
        self.scheme = "https" if tls else "http"
        self.cookie = None
        self.csrf = None

    @property
    def origin(self):
        return f"{self.scheme}://{self.client.host}"

    def ask(self, method, path, body=None, *, origin=True, csrf=True, headers=(), connection=None):
        sent = list(headers)
        if self.cookie:
            sent.append(("Cookie", f"other=1; {self.cookie}"))
        if method != "GET" and origin:
            sent.append(("Origin", self.origin if origin is True else origin))
        if self.csrf and csrf:
            sent.append(("X-Oncekey-CSRF", self.csrf if csrf is True else csrf))
        if body is not None:
            sent += [("Content-Type", "application/json"), ("Idempotency-Key", "click-1")]
        data = json.dumps(body).encode() if body is not None else None
        return self.client.request(method, path, body=data, authorization=False, headers=sent, connection=connection)

    def log_in(self, **credential):
        answer = self.ask("POST", "/api/login", credential, csrf=False)
        if answer.status == 200:
            self.cookie = answer.header("Set-Cookie").split(";")[0]
            self.csrf = answer.json()["csrf"]
        return answer


class AccessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.upstream = Upstream().start()
        cls.addClassCleanup(cls.upstream.stop)
        cls.gateway = Gateway(cls.upstream.url, CLASSIC, admin_token=OPERATOR, admin_read_token=READER)
        cls.addClassCleanup(cls.gateway.remove)
        cls.gateway.start()

    def bearer(self, token, method, path, body, *, host=None, headers=(), source=None):
        client = Client(self.gateway.admin_address, token, host=host or self.gateway.admin_text, source=source)
        sent = [("Content-Type", "application/json")] if body is not None else []
        data = json.dumps(body).encode() if body is not None else None
        return client.request(method, path, body=data, headers=[*sent, *headers], authorization=token is not None)

    def logged_in(self, token):
        browser = Browser(self.gateway)
        self.assertEqual(browser.log_in(token=token).status, 200)
        return browser

    def test_every_page_for_every_caller(self):
        operator, reader = self.logged_in(OPERATOR), self.logged_in(READER)
        evil = [("Origin", "http://evil.example")]
        for number, (method, pattern, body, needs, answer) in enumerate(PAGES):
            path = STARS.get(pattern, pattern)
            writes = method == "POST"
            source = f"127.0.0.{number + 10}"  # guessers are slowed down by address
            opened = needs in ("open", "word", "metrics")
            callers = {
                "none": (self.bearer(None, method, path, body), 200 if opened else 401),
                "wrong token": (self.bearer("wrong-wrong-wrong-wrong", method, path, body, source=source),
                                200 if needs == "open" else 401),
                "reader": (self.bearer(READER, method, path, body), 403 if needs == "act" else answer),
                "operator": (self.bearer(OPERATOR, method, path, body), answer),
                "operator, foreign host": (self.bearer(OPERATOR, method, path, body, host="evil.example"),
                                           200 if needs == "open" else 403),
                "none, foreign host": (self.bearer(None, method, path, body, host="evil.example"),
                                       200 if needs in ("open", "word") else 403),
                "operator, foreign origin": (self.bearer(OPERATOR, method, path, body, headers=evil),
                                             200 if needs == "open" else 403),
                "session": (operator.ask(method, path, body), 403 if needs == "proof" else answer),
                "session of a reader": (reader.ask(method, path, body),
                                        403 if needs in ("act", "proof") else answer),
                "session without csrf": (operator.ask(method, path, body, csrf=False), 403 if writes else answer),
                "session with another's csrf": (operator.ask(method, path, body, csrf=reader.csrf),
                                                403 if writes else answer),
                "session without origin": (operator.ask(method, path, body, origin=False), 403 if writes else answer),
                "session, foreign origin": (operator.ask(method, path, body, headers=evil, origin=False),
                                            200 if needs == "open" else 403),
                "session, null origin": (operator.ask(method, path, body, headers=[("Origin", "null")], origin=False),
                                         200 if needs == "open" else 403),
                "session, same site": (operator.ask(method, path, body, headers=[("Sec-Fetch-Site", "same-site")]),
                                       200 if needs == "open" else 403),
            }
            for caller, (got, expected) in callers.items():
                with self.subTest(page=f"{method} {pattern}", caller=caller):
                    self.assertEqual(got.status, expected, got)
                    for name, value in SECURITY_HEADERS.items():
                        self.assertEqual(got.header(name), value, name)
                    self.assertIn("default-src 'none'", got.header("Content-Security-Policy"))
                    self.assertNotIn("unsafe", got.header("Content-Security-Policy"))
                    if got.status >= 400:
                        self.assertTrue(got.json()["error"] and got.json()["code"], got)

    def test_a_dry_run_is_refused_by_every_page_that_acts_on_one_thing(self):
        for method, pattern, body, needs, _ in PAGES:
            if needs != "act":
                continue
            counts = "dry_run" in body
            for dry_run, expected in ((True, 200 if counts else 400), ("yes", 400)):
                with self.subTest(page=pattern, dry_run=dry_run):
                    got = self.bearer(OPERATOR, method, STARS.get(pattern, pattern), {**body, "dry_run": dry_run})
                    self.assertEqual(got.status, expected, got)
                    if expected == 400:
                        self.assertIn("dry_run", got.json()["error"])

    def test_a_click_that_is_sent_again_after_another_login_acts_once(self):
        self.upstream.will(resets())
        routes = [{"path": "/*", "policy": "classic", "on_unknown": "hold"}]
        with Gateway(self.upstream.url, routes, admin_token=OPERATOR) as gateway:
            gateway.client().post("/charges", key="k", body=b"ten")
            record = gateway.records()[0]["id"]
            answers = []
            for _ in range(2):
                browser = Browser(gateway)
                browser.log_in(token=OPERATOR)
                answers.append(browser.ask("POST", f"/api/keys/{record}/release",
                                           {"reason": "not charged", "confirm": record[:8]}))
            self.assertEqual([answer.status for answer in answers], [200, 200], answers)
            self.assertEqual([answer.header("Idempotent-Replayed") for answer in answers], [None, "true"])

    def test_the_table_has_every_page(self):
        available = set(self.bearer(OPERATOR, "GET", "/nothing", None).json()["available"])
        tested = {f"{method} {path}" for method, path, *_ in PAGES} - {"GET /nothing"}
        self.assertEqual(available, tested | APART)

    def test_a_session_ends_with_its_logout(self):
        browser = self.logged_in(OPERATOR)
        self.assertEqual(browser.ask("POST", "/api/logout", {}, csrf=False).status, 403)
        out = browser.ask("POST", "/api/logout", {})
        self.assertEqual(out.status, 200)
        self.assertIn("Max-Age=0", out.header("Set-Cookie"))
        again = browser.ask("GET", "/api/session")
        self.assertEqual((again.status, again.json()["code"]), (401, "wrong_credential"))

    def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(self):
        cookie = Browser(self.gateway).log_in(token=OPERATOR).header("Set-Cookie")
        name, _, rest = cookie.partition("=")
        self.assertEqual(name, f"oncekey_session_{self.gateway.admin_address[1]}")
        self.assertEqual([part.strip() for part in rest.split(";")][1:], ["Path=/", "HttpOnly", "SameSite=Strict"])

    def test_a_cookie_that_came_twice_is_nobody(self):
        browser = self.logged_in(OPERATOR)
        self.assertEqual(browser.ask("GET", "/api/session", headers=[("Cookie", browser.cookie)]).status, 401)

    def test_a_page_of_another_site_cannot_log_a_browser_in(self):
        answer = Browser(self.gateway).ask("POST", "/api/login", {"token": OPERATOR}, origin="http://evil.example")
        self.assertEqual((answer.status, answer.json()["code"]), (403, "foreign_origin"))
        form = Browser(self.gateway).client.request(
            "POST", "/api/login", body=b'{"token":"x"}', authorization=False,
            headers=[("Content-Type", "text/plain")])
        self.assertEqual(form.status, 415)

    def test_a_stranger_cannot_send_much(self):
        answer = Browser(self.gateway).ask("POST", "/api/login", {"token": "x" * 5000}, csrf=False)
        self.assertEqual((answer.status, answer.json()["code"]), (400, "bad_request"))

    def test_a_login_code_is_good_once_and_for_its_role_alone(self):
        for flags, role in (((), "operator"), (("--read-only",), "read")):
            made = run_cli("console", "--admin", self.gateway.admin_text, *flags)
            self.assertEqual(made.returncode, 0, made.stderr)
            link = re.fullmatch(rf"http://{self.gateway.admin_text}/console/#code=([0-9a-f]{{32}})\n", made.stdout)
            self.assertTrue(link, made.stdout)
            browser = Browser(self.gateway)
            logged = browser.log_in(code=link.group(1))
            self.assertEqual((logged.status, logged.json()["role"]), (200, role))
            self.assertEqual(browser.ask("POST", f"/api/keys/{ID}/release", REASON).status,
                             404 if role == "operator" else 403)
            again = Browser(self.gateway).log_in(code=link.group(1))
            self.assertEqual((again.status, again.json()["code"]), (401, "wrong_credential"))
            self.assertNotIn(link.group(1), self.gateway.log)

    def test_a_reader_makes_codes_for_readers(self):
        self.assertEqual(self.bearer(READER, "POST", "/api/login/codes", {"role": "operator"}).status, 403)
        self.assertEqual(self.bearer(READER, "POST", "/api/login/codes", {}).json()["role"], "read")

    def test_wrong_logins_are_refused_slowly_and_logged(self):
        for credential in ({"token": "guess-guess-guess-guess"}, {"code": "0" * 32}):
            with Connection(self.gateway.admin_address, source="127.0.0.9") as line:
                answer = Browser(self.gateway).ask("POST", "/api/login", credential, csrf=False, connection=line)
            self.assertEqual((answer.status, answer.json()["code"]), (401, "wrong_credential"))
        self.gateway.wait_for_log("event=admin_token_refused")
        self.assertEqual(Browser(self.gateway).ask("POST", "/api/login", {}, csrf=False).status, 401)
        self.assertNotIn("guess-guess", self.gateway.log)
        self.assertNotIn(OPERATOR, self.gateway.log)

    def test_bodies_are_for_operators(self):
        answer = self.gateway.client().post(key="body-1")
        self.assertEqual(answer.status, 201)
        record = self.gateway.records(key="body-1")[0]
        path = f"/api/keys/{record['id']}"
        hidden = self.bearer(READER, "GET", path, None).json()["response"]
        self.assertIsNone(hidden["body"])
        self.assertEqual(hidden["body_bytes"], len(answer.body))
        self.assertEqual(self.bearer(READER, "GET", f"{path}?body=1", None).json()["code"], "operators_only")
        shown = self.bearer(OPERATOR, "GET", f"{path}?body=1", None).json()["response"]
        self.assertEqual(shown["body"].encode(), answer.body)

    def test_markup_in_keys_and_headers_stays_text(self):
        markup = "<script>alert(1)</script>'\"><img/src=x>"
        self.assertEqual(self.gateway.client().post(key=markup).status, 201)
        listed = self.bearer(READER, "GET", "/api/keys", None)
        self.assertEqual(listed.header("Content-Type"), "application/json")
        self.assertEqual(listed.header("X-Content-Type-Options"), "nosniff")
        record = next(each for each in listed.json()["keys"] if each["key"] == markup)
        shown = self.bearer(READER, "GET", f"/api/keys/{record['id']}", None)
        self.assertEqual(shown.json()["key"], markup)
        missing = self.bearer(OPERATOR, "GET", "/api/keys/<script>", None)
        self.assertEqual(missing.header("Content-Type"), "application/json")


class CertificateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway("http://127.0.0.1:1", CLASSIC)
        cls.addClassCleanup(cls.gateway.remove)
        cls.certificates = Certificates(cls.gateway.folder)
        cls.gateway.settings.update(cls.certificates.admin_settings(["O=Shop,CN=alice"]))
        cls.certificates.issue("alice", "/CN=alice/O=Shop")
        cls.certificates.issue("bob", "/CN=bob", "subjectAltName=URI:spiffe://shop/bob")
        cls.certificates.issue("mallory", "/CN=x", "subjectAltName=DNS:cn-alice.example")
        cls.gateway.admin_tls = cls.context(None)
        cls.gateway.start()

    @classmethod
    def context(cls, name):
        return cls.certificates.context(name)

    def test_a_certificate_is_a_credential(self):
        for name, role, who in (("alice", "operator", "O=Shop,CN=alice"), ("bob", "read", "spiffe://shop/bob"),
                                ("mallory", "read", "cn-alice.example")):
            with self.subTest(name):
                browser = Browser(self.gateway, tls=self.context(name))
                session = browser.ask("GET", "/api/session").json()
                self.assertEqual((session["role"], session["by"], session["certificate"]), (role, "certificate", who))
                acts = browser.ask("POST", f"/api/keys/{ID}/release", REASON)
                self.assertEqual(acts.status, 404 if role == "operator" else 403)
                evil = browser.ask("POST", f"/api/keys/{ID}/release", REASON, origin="https://evil.example")
                self.assertEqual(evil.json()["code"], "foreign_origin")

    def test_a_session_of_a_certificate_needs_no_token(self):
        browser = Browser(self.gateway, tls=self.context("alice"))
        logged = browser.log_in()
        self.assertEqual(logged.status, 200)
        self.assertTrue(logged.header("Set-Cookie").startswith("__Host-oncekey_session_"))
        self.assertIn("Secure", logged.header("Set-Cookie"))
        self.assertEqual(browser.ask("POST", f"/api/keys/{ID}/release", REASON, csrf=False).json()["code"], "csrf")
        self.assertEqual(browser.ask("POST", f"/api/keys/{ID}/release", REASON).status, 404)
        self.gateway.wait_for_log("(certificate O=Shop,CN=alice)")

    def test_without_a_certificate_the_token_is_asked_for(self):
        self.assertEqual(Browser(self.gateway, tls=self.context(None)).ask("GET", "/api/session").status, 401)
        self.assertEqual(self.gateway.admin.get("/api/keys").status, 200)


class HostNamesTest(unittest.TestCase):
    def test_a_listed_name_is_answered(self):
        with Gateway("http://127.0.0.1:1", CLASSIC, admin_hosts=["ops.example"]) as gateway:
            for host, status in (("ops.example", 200), ("OPS.example:8081", 200), ("localhost:1", 200), ("[::1]", 200),
                                 ("10.0.0.1", 403), ("ops.example.evil.example", 403), ("evil.example", 403)):
                named = Client(gateway.admin_address, gateway.admin_token, host=host)
                self.assertEqual(named.get("/api/keys").status, status, host)

    def test_beyond_loopback_the_listed_names_and_addresses_are_answered(self):
        with Gateway("http://127.0.0.1:1", CLASSIC, admin="0.0.0.0:0", admin_token=OPERATOR,
                     admin_hosts=["ops.example"]) as gateway:
            for host, status in (("ops.example", 200), ("10.0.0.1:81", 200), ("evil.example", 403)):
                named = Client(gateway.admin_address, OPERATOR, host=host)
                self.assertEqual(named.get("/api/keys").status, status, host)


class ReloadTest(unittest.TestCase):
    def test_sessions_of_a_token_end_when_it_is_replaced(self):
        with Gateway("http://127.0.0.1:1", CLASSIC, admin_token=OPERATOR, admin_read_token=READER) as gateway:
            operator, reader = Browser(gateway), Browser(gateway)
            operator.log_in(token=OPERATOR)
            reader.log_in(token=READER)
            gateway.settings["admin_token"] = "another-0123456789abcdef"
            gateway.config_file.write_text(toml(gateway.settings))
            gateway.signal(signal.SIGHUP)
            gateway.wait_for_log("event=config_reloaded")
            self.assertEqual(operator.ask("GET", "/api/session").status, 401)
            self.assertEqual(reader.ask("GET", "/api/session").status, 200)


if __name__ == "__main__":
    unittest.main()
