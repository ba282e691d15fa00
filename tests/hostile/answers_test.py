"""Answers at their edges: HEAD, ends that are told by the connection, interim answers to clients that do not read, and
what anonymous clients may read of the configuration."""

import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest
from support.client import Client
from support.gateway import Gateway
from support.upstream import Upstream, answers, sends
from support.waiting import PATIENCE_SECONDS

CLASSIC = [{"path": "/*"}]


class KeyedHeadTest(GatewayTest):
    routes = [{"path": "/*", "methods": ["HEAD", "POST", "GET"], "respond_async": True}]

    def head(self, target="/file"):
        return self.client.request("HEAD", target, key=self.key)

    def test_a_head_keeps_the_length_that_the_upstream_told(self):
        self.upstream.will(answers(200, b"0123456789", [("X-Kind", "file")]))
        first, again = self.head(), self.head()
        self.assertTrue(again.replayed)
        for response in (first, again):
            self.assertEqual((response.header("Content-Length"), response.body), ("10", b""))
            self.assertEqual(response.all("Content-Length"), ["10"])
        self.assert_executed(1)

    def test_no_length_is_made_up_where_none_was_told(self):
        self.upstream.will(answers(200, b"", content_length=False))
        for response in (self.head(), self.head()):
            self.assertFalse(response.has("Content-Length"), response)

    def test_a_connection_goes_on_behind_a_head(self):
        self.upstream.will(answers(200, b"0123456789"))
        with self.client.connect() as connection:
            for _ in range(3):
                response = self.client.request("HEAD", "/file", key=self.key, connection=connection)
                self.assertEqual(response.header("Content-Length"), "10")
            self.assertEqual(self.client.post("/charges", connection=connection).status, 201)


class FramedAnswersTest(GatewayTest):
    routes = [{"path": "/framed/*", "require_framed_answers": True, "policy": "stripe-v1"}, {"path": "/*"}]

    def test_an_answer_that_ends_with_its_connection_is_unknown_where_the_route_says_so(self):
        for behaviour, status in ((answers(201, b"may be cut", until_close=True), 502), (answers(201, b"whole"), 201),
                                  (answers(201, b"whole", chunked=True), 201)):
            self.setUp()
            self.upstream.will(behaviour)
            self.assertEqual(self.post("/framed/x").status, status)
            self.assertEqual(self.post("/framed/x").status, 409 if status == 502 else 201)
            self.assert_executed(1)

    def test_and_kept_elsewhere(self):
        self.upstream.will(answers(201, b"all of it", until_close=True))
        self.assert_replay_of(self.post(), self.post())


class InterimAnswersTest(unittest.TestCase):
    def test_a_client_that_does_not_read_does_not_keep_the_answer_from_being_recorded(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        hint = b"HTTP/1.1 103 Early Hints\r\nLink: </" + b"a" * 8000 + b">; rel=preload\r\n\r\n"
        upstream.will(sends(hint * 1500 + b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\ndone", close=False))
        with Gateway(upstream.url, [{"path": "/*", "upstream_timeout": f"{int(2 * PATIENCE_SECONDS)}s", "wait": "10s"}],
                     timeouts={"write": f"{int(4 * PATIENCE_SECONDS)}s"}) as gateway:
            sleeper = socket.socket()
            self.addCleanup(sleeper.close)
            sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sleeper.connect(gateway.address)
            client = gateway.client()
            sleeper.sendall(client.request_bytes("POST", "/charges", key="slow", body=b"{}"))
            upstream.wait_for_executions(1)
            again = client.post("/charges", key="slow", body=b"{}")
            self.assertEqual((again.status, again.body, again.replayed), (201, b"done", True))
            self.assertEqual(upstream.executions(), 1)

    def test_one_that_reads_gets_them(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        upstream.will(sends(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 201 Created\r\n"
                            b"Content-Length: 4\r\n\r\ndone", close=False))
        with Gateway(upstream.url, CLASSIC) as gateway:
            response = gateway.client().post("/charges", key="k")
            self.assertEqual([interim.status for interim in response.interim], [103])


class PublishedTest(unittest.TestCase):
    def read(self, **settings):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        routes = [{"path": "/internal/payouts", "scope": ["header:X-Secret-Tenant"]}, {"path": "/v1/*", "policy": "ietf"}]
        with Gateway(upstream.url, routes, **settings) as gateway:
            answer = Client(gateway.address).get("/.well-known/idempotency", authorization=False)
            return answer, upstream.executions()

    def test_anonymous_clients_learn_what_they_need_and_no_more(self):
        answer, forwarded = self.read()
        self.assertEqual((answer.status, forwarded), (200, 0))
        self.assertEqual(answer.json()["policies"][0]["retention_seconds"], 86400)
        for hidden in ("internal", "/v1", "Tenant", "scope"):
            self.assertNotIn(hidden, answer.body.decode())

    def test_everything_or_nothing_may_be_published(self):
        answer, _ = self.read(publish_policies="routes")
        self.assertEqual([route["path"] for route in answer.json()["routes"]], ["/internal/payouts", "/v1/*"])
        answer, forwarded = self.read(publish_policies="none")
        self.assertEqual((answer.status, forwarded), (201, 1))


class TlsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-tls-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-keyout", str(cls.folder / "key"), "-out", str(cls.folder / "crt")],
                       check=True, capture_output=True)
        cls.upstream = Upstream().start()
        cls.addClassCleanup(cls.upstream.stop)
        cls.gateway = Gateway(cls.upstream.url, CLASSIC, tls_cert=str(cls.folder / "crt"), tls_key=str(cls.folder / "key"))
        cls.addClassCleanup(cls.gateway.remove)
        cls.gateway.start()

    def shake_hands(self, version, ciphers):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = context.maximum_version = version
        if ciphers:
            context.set_ciphers(ciphers + ":@SECLEVEL=0")
        with socket.create_connection(self.gateway.address, timeout=PATIENCE_SECONDS) as plain:
            with context.wrap_socket(plain) as secure:
                return secure.cipher()[0]

    def test_only_forward_secrecy_with_authenticated_encryption_is_spoken(self):
        for version, ciphers in ((ssl.TLSVersion.TLSv1_3, None), (ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-AES128-GCM-SHA256"),
                                 (ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-CHACHA20-POLY1305")):
            self.shake_hands(version, ciphers)
        for ciphers in ("AES128-SHA", "AES256-SHA256", "AES128-GCM-SHA256", "ECDHE-RSA-AES128-SHA",
                        "ECDHE-RSA-AES256-SHA384", "DHE-RSA-AES128-GCM-SHA256"):
            with self.subTest(ciphers=ciphers), self.assertRaises((ssl.SSLError, ConnectionError)):
                self.shake_hands(ssl.TLSVersion.TLSv1_2, ciphers)

    def test_older_versions_are_refused(self):
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            with warnings.catch_warnings(), self.assertRaises((ssl.SSLError, ConnectionError)):
                warnings.simplefilter("ignore", DeprecationWarning)
                self.shake_hands(version, "ALL")


if __name__ == "__main__":
    unittest.main()
