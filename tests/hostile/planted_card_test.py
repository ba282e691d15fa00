"""A card number in every part of requests and answers: it is found nowhere in the log, at any level, nor in the metrics."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support import hooks
from support.cases import fresh_key
from support.gateway import Gateway, free_port
from support.messages import Malformed
from support.upstream import Upstream, answers, never_answers, resets, sends, stops_short

CARD = "4242424242424242"
SPELLINGS = (CARD, "4242-4242-4242-4242", "NDI0MjQyNDI0MjQyNDI0Mg")  # as it is, with dashes, in base64


class PlantedCardTest(unittest.TestCase):
    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)

    def gateway_of(self, url, **settings):
        routes = [{"path": "/charges/*", "lease": "1s", "upstream_timeout": "500ms", "retention": "1h"},
                  {"path": "/held/*", "policy": "stripe-v1", "lease": "1s", "upstream_timeout": "500ms"},
                  {"path": "/probed/*", "on_abandoned": "probe", "probe": "GET /p?k={key}", "lease": "1s",
                   "upstream_timeout": "500ms"},
                  {"path": "/observed/*", "mode": "observe"},
                  {"path": "/async/*", "respond_async": True},
                  {"path": "/limited/*", "rate": "1/h", "burst": 1},
                  {"path": "/strict/*", "key": "required", "policy": "ietf", "strict": True},
                  {"path": "/cookie/*", "scope": "cookie:sid"}]
        gateway = Gateway(url, routes, store="journal", log_level="debug", access_log="access.log",
                          cors_origins=["https://app.example"], upstream_timeout="500ms",
                          webhook=[hooks.hook("stripe", url + "/events")], **settings)
        self.addCleanup(gateway.remove)
        return gateway.start()

    @staticmethod
    def planted(client, target, key=None, method="POST", headers=()):
        """One request with the number in body, fields, path, query and, with a key, in that."""
        try:
            return client.request(method, f"{target}/{CARD}?card={CARD}&b={SPELLINGS[2]}", key=key,
                                  body=f'{{"card":"{CARD}","number":{CARD}}}'.encode(),
                                  headers=[("X-Card", CARD), ("Cookie", f"sid={CARD}"), ("Origin", f"https://{CARD}.x"),
                                           ("Referer", f"http://x/{CARD}"), *headers])
        except (Malformed, ConnectionError):
            return None

    def assert_found_nowhere(self, gateway):
        metrics = gateway.admin.get("/metrics").body.decode()
        published = gateway.client().get("/.well-known/idempotency").body.decode()
        gateway.stop()
        requests = (gateway.folder / "access.log").read_text()
        self.assertIn("event=request", requests)
        for place, text in (("log", gateway.log), ("metrics", metrics), ("published", published),
                            ("access log", requests)):
            for spelling in SPELLINGS:
                lines = [line for line in text.splitlines() if spelling in line]
                self.assertEqual(lines, [], f"the card number is in the {place}")

    def test_with_an_upstream_that_fails_in_every_way(self):
        gateway = self.gateway_of(self.upstream.url)
        client = gateway.client(CARD)
        answer = [("Content-Type", f"text/{CARD}"), ("X-Card", CARD)]
        behaviours = (answers(201, CARD.encode(), answer, reason=CARD), answers(500, CARD.encode(), answer),
                      resets(), stops_short(sent=CARD.encode()), never_answers(),
                      sends(f"HTTP/1.1 201 OK\r\nX-{CARD} : x\r\nX-{CARD}\x00: {CARD}\r\n\r\n".encode()),
                      sends(f"{CARD} nonsense {CARD}\r\n\r\n".encode()),
                      sends(f"HTTP/1.1 200 OK\r\nContent-Length: {CARD}x\r\n\r\n{CARD}".encode()),
                      sends(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{CARD}\r\n".encode()))
        for target in ("/charges", "/held", "/probed", "/observed", "/async", "/elsewhere"):
            for behaviour in behaviours:
                for key in (f"{fresh_key()}-{CARD}", None):
                    self.upstream.reset()
                    self.upstream.will(behaviour, behaviour)
                    self.planted(client, target, key)
                    if key:  # the retry meets whatever is left: a replay, a mismatch, a claim, a hold
                        self.planted(client, target, key)
                        self.planted(client, target, key, headers=[("X-Other", "1"), ("Prefer", "respond-async")])
                        client.post(f"{target}/{CARD}?card={CARD}&b={SPELLINGS[2]}", key=key, body=b'{"other":1}')
        self.assert_found_nowhere(gateway)

    def test_with_requests_that_are_refused(self):
        gateway = self.gateway_of(self.upstream.url, limits={"max_header_bytes": 4096})
        client = gateway.client(CARD)
        for target in ("/charges", "/strict", "/limited", "/cookie", "//charges", "/charges%2F", "/charges/..", "/\xff"):
            for key in (f"k-{CARD}", f'"{CARD}', CARD * 20, "", None):
                self.planted(client, target, key)
            self.planted(client, target, "a", headers=[("Idempotency-Key", CARD)])
            self.planted(client, target, CARD, headers=[("Connection", f"Idempotency-Key, X-Card, {CARD}")])
            self.planted(client, target, CARD, headers=[("Authorization", f"Basic {SPELLINGS[2]}=")])
            self.planted(client, target, CARD, headers=[("X-Long", CARD * 300)])
            self.planted(client, target, CARD, headers=[("Expect", CARD)])
            self.planted(client, target, CARD, method=f"M{CARD}")
            self.planted(client, target, CARD, method="post")
        for raw in (f"{CARD}\r\n\r\n", f"POST /{CARD}\r\n\r\n", f"GET /{CARD} HTTP/9.9\r\nHost: {CARD}\r\n\r\n",
                    f"POST /charges/{CARD} HTTP/1.1\r\nHost: a\r\n {CARD}: x\r\n\r\n",
                    f"POST /charges/{CARD} HTTP/1.1\r\nHost: {CARD}/\r\nContent-Length: {CARD}{CARD}\r\n\r\n",
                    f"POST /charges/{CARD} HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {CARD}\r\nAuthorization: b\r\n"
                    f"Transfer-Encoding: chunked\r\n\r\nx{CARD}\r\n{CARD}"):
            try:
                client.exchange(raw.encode())
            except (Malformed, ConnectionError):
                pass
        body, fields = hooks.stripe(f"evt_{CARD}", f'{{"id":"evt_{CARD}"}}'.encode())
        client.post("/hooks/stripe", body=body, headers=fields, authorization=False)
        client.post("/hooks/stripe", body=body + b" ", headers=fields, authorization=False)
        client.get(f"/.well-known/oncekey/operations/{CARD}")
        gateway.admin.get(f"/api/keys/{CARD}")
        self.assert_found_nowhere(gateway)

    def test_with_an_upstream_that_cannot_be_reached(self):
        gateway = self.gateway_of(f"http://127.0.0.1:{free_port()}")
        client = gateway.client(CARD)
        for target in ("/charges", "/held", "/observed", "/async", "/elsewhere"):
            for key in (f"{fresh_key()}-{CARD}", None):
                self.planted(client, target, key)
                self.planted(client, target, key, headers=[("Prefer", "respond-async")])
                self.planted(client, target, key, method=f"M{CARD}")
        self.assertIn("upstream_failed", gateway.log)
        self.assert_found_nowhere(gateway)


class LogRateTest(unittest.TestCase):
    def test_failed_requests_do_not_fill_the_log(self):
        with Gateway(f"http://127.0.0.1:{free_port()}", [{"path": "/charges"}], upstream_breaker=0) as gateway:
            for number in range(300):
                self.assertEqual(gateway.client().get(f"/secret-{number}").status, 503)
            lines = [line for line in gateway.log.splitlines() if "upstream_failed" in line]
            self.assertLess(len(lines), 300)
            self.assertIn("route=-", lines[0])
            self.assertNotIn("secret", gateway.log)


if __name__ == "__main__":
    unittest.main()
