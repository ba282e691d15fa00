"""Guessing at the admin listener: every page with no, a wrong and the right token; guessers wait, operators do not."""

import json
import pathlib
import re
import select
import socket
import ssl
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.client import Client, Connection
from support.gateway import Gateway, run_cli
from support.upstream import Upstream
from support.waiting import PATIENCE_SECONDS

CLASSIC = [{"path": "/*", "policy": "classic"}]
SOME_ID = "0" * 64
WRONG = [("Authorization", "Bearer wrong-wrong-wrong-wrong")]


class ConnectionFrom(Connection):
    """A connection from an address of this machine."""

    def __init__(self, source, address):
        super().__init__(address, source=source)


class MatrixTest(unittest.TestCase):
    # Method and path; then the status without, with a wrong and with the right token, on loopback.
    PAGES = [
        ("GET", "/livez", 200, 200, 200),
        ("GET", "/readyz", 200, 401, 200),
        ("GET", "/metrics", 200, 401, 200),
        ("GET", "/api/keys", 401, 401, 200),
        ("GET", f"/api/keys/{SOME_ID}", 401, 401, 404),
        ("POST", "/api/keys/find", 401, 401, 400),
        ("POST", f"/api/keys/{SOME_ID}/release", 401, 401, 404),
        ("POST", f"/api/keys/{SOME_ID}/complete", 401, 401, 400),
        ("POST", f"/api/keys/{SOME_ID}/rerun", 401, 401, 404),
        ("GET", "/api/jobs", 401, 401, 200),
        ("GET", f"/api/jobs/{SOME_ID}", 401, 401, 404),
        ("POST", f"/api/jobs/{SOME_ID}/retry", 401, 401, 404),
        ("POST", f"/api/jobs/{SOME_ID}/drop", 401, 401, 404),
        ("GET", "/api/storms", 401, 401, 200),
        ("GET", "/nothing", 401, 401, 404),
    ]

    def asks(self, gateway, method, path, **options):
        body = b'{"reason":"test"}' if method == "POST" else None
        return gateway.admin.request(method, path, body=body, **options).status

    def test_on_loopback(self):
        with Gateway("http://127.0.0.1:1", CLASSIC) as gateway:
            for method, path, without, _, right in self.PAGES:
                with self.subTest(path=path):
                    self.assertEqual(self.asks(gateway, method, path, authorization=False), without)
                    self.assertEqual(self.asks(gateway, method, path), right)

    def test_a_wrong_token_is_refused_everywhere(self):
        # From many addresses, so that this test is not itself slowed down.
        with Gateway("http://127.0.0.1:1", CLASSIC) as gateway:
            for number, (method, path, _, wrong, _) in enumerate(self.PAGES):
                with self.subTest(path=path), ConnectionFrom(f"127.0.0.{number + 10}", gateway.admin_address) as line:
                    self.assertEqual(self.asks(gateway, method, path, authorization=False, headers=WRONG,
                                               connection=line), wrong)

    def test_beyond_loopback_only_health_is_open(self):
        with Gateway("http://127.0.0.1:1", CLASSIC, admin="0.0.0.0:0", admin_token="0123456789abcdef") as gateway:
            gateway.wait_for_log("travels in clear")
            for method, path, without, _, right in self.PAGES:
                with self.subTest(path=path):
                    expected = 401 if path == "/metrics" else without
                    self.assertEqual(self.asks(gateway, method, path, authorization=False), expected)
                    self.assertEqual(self.asks(gateway, method, path), right)

    def test_two_credentials_are_refused_whichever_is_right(self):
        with Gateway("http://127.0.0.1:1", CLASSIC) as gateway:
            right = ("Authorization", f"Bearer {gateway.admin_token}")
            for two in ([right, *WRONG], [*WRONG, right], [right, right]):
                for path in ("/api/keys", "/metrics", "/readyz"):
                    self.assertEqual(gateway.admin.get(path, authorization=False, headers=two).status, 400, path)

    def test_names_of_other_sites_get_nothing_with_the_token_either(self):
        with Gateway("http://127.0.0.1:1", CLASSIC) as gateway:
            rebound = Client(gateway.admin_address, gateway.admin_token, host="evil.example")
            for path in ("/metrics", "/api/keys"):
                self.assertEqual(rebound.get(path, authorization=False).status, 403, path)
                self.assertEqual(rebound.get(path).status, 403, path)


class GuessingTest(unittest.TestCase):
    GUESSES = 10  # the last of them waits for five seconds

    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.gateway = Gateway(self.upstream.url, CLASSIC)
        self.addCleanup(self.gateway.remove)
        self.gateway.start()

    def guess(self):
        """Wrong tokens on as many connections of one address; they are on their way when this returns."""
        lines = []
        for _ in range(self.GUESSES):
            line = ConnectionFrom("127.0.0.2", self.gateway.admin_address)
            self.addCleanup(line.socket.close)
            line.send(self.gateway.admin.request_bytes("GET", "/api/keys", authorization=False, headers=WRONG))
            lines.append(line)
        return lines

    def test_operators_are_not_kept_waiting_by_a_guesser(self):
        lines = self.guess()
        for source in ("127.0.0.3", "127.0.0.2"):
            with ConnectionFrom(source, self.gateway.admin_address) as line:
                self.assertEqual(self.gateway.admin.get("/api/keys", connection=line).status, 200, source)
        self.assertEqual(self.gateway.client().post(key="k").status, 201)
        answered = select.select([line.socket for line in lines], [], [], 0)[0]
        self.assertLess(len(answered), len(lines), "the guesser still waits for an answer")
        for line in lines:
            self.assertEqual(line.read_response("GET").status, 401)

    def test_guesses_are_counted_in_few_lines_without_the_token(self):
        for line in self.guess():
            line.read_response("GET")

        def counts():
            return [int(count) for count in
                    re.findall(r"event=admin_token_refused count=(\d+) last_peer=127\.0\.0\.2", self.gateway.log)]

        self.gateway._state.wait_until(lambda: sum(counts()) == self.GUESSES, "all guesses to be logged")
        self.assertLess(len(counts()), self.GUESSES)
        self.assertNotIn("wrong-wrong", self.gateway.log)

    def test_a_guesser_does_not_hold_up_the_end(self):
        self.guess()
        self.gateway.wait_for_log("event=admin_token_refused")
        self.gateway.stop()  # fails if it does not end well


class TlsTest(unittest.TestCase):
    """Certificates are made by the openssl command for this run alone."""

    def setUp(self):
        self.gateway = Gateway("http://127.0.0.1:1", CLASSIC, store="journal")
        self.addCleanup(self.gateway.remove)
        for name in ("admin", "other"):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                            "-nodes", "-days", "2", "-subj", "/CN=oncekey", "-addext", "subjectAltName=IP:127.0.0.1",
                            "-keyout", self.file(name, "key"), "-out", self.file(name, "crt")],
                           check=True, capture_output=True, timeout=PATIENCE_SECONDS)
        self.gateway.settings.update(admin_tls_cert=self.file("admin", "crt"), admin_tls_key=self.file("admin", "key"))
        self.gateway.admin_tls = ssl.create_default_context(cafile=self.file("admin", "crt"))
        self.gateway.admin_tls.check_hostname = False
        self.gateway.start()

    def file(self, name, ending):
        return str(self.gateway.folder / f"{name}.{ending}")

    def list_keys(self, *arguments):
        return run_cli("keys", "list", "--json", *arguments,
                       environment={"ONCEKEY_ADMIN_TOKEN": self.gateway.admin_token})

    def test_operators_are_served_over_tls(self):
        self.assertEqual(self.gateway.admin.get("/api/keys").status, 200)
        url = f"https://{self.gateway.admin_text}"
        listed = self.list_keys("--admin", url, "--admin-ca", self.file("admin", "crt"))
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertEqual(json.loads(listed.stdout)["keys"], [])

    def test_by_the_configuration_a_command_speaks_tls(self):
        config = self.gateway.folder / "for-operators.toml"
        config.write_text(f'admin = "{self.gateway.admin_text}"\nstore = "{self.gateway.store}"\n'
                          f'admin_tls_cert = "{self.file("admin", "crt")}"\n')
        listed = run_cli("keys", "list", "--json", "--config", str(config))
        self.assertEqual(listed.returncode, 0, listed.stderr)

    def test_an_impostor_does_not_get_the_token(self):
        url = f"https://{self.gateway.admin_text}"
        refused = self.list_keys("--admin", url, "--admin-ca", self.file("other", "crt"))
        self.assertEqual(refused.returncode, 3, refused.stdout)
        self.assertIn("certificate", refused.stderr)
        self.assertNotEqual(self.list_keys("--admin", self.gateway.admin_text).returncode, 0, "nor in clear")


if __name__ == "__main__":
    unittest.main()
