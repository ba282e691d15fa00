"""What pages in browsers need: the gateway's own answers across origins, compressed answers, uploads sent twice."""

import gzip
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.gateway import Gateway, free_port
from support.upstream import answers

PAGE = "https://app.example"
JSON = [("Content-Type", "application/json"), ("ETag", '"v1"')]
TEXT = b'{"items":[' + b",".join(b'{"name":"item %d"}' % n for n in range(500)) + b"]}"


class OriginsTest(GatewayTest):
    routes = [{"path": "/async/*", "respond_async": True}, {"path": "/*", "key": "required", "max_request_body": "1KiB"}]
    settings = {"cors_origins": [PAGE, "http://localhost:3000"]}

    def assert_readable(self, response, origin=PAGE):
        self.assertEqual(response.all("Access-Control-Allow-Origin"), [origin], response)
        self.assertEqual(response.header("Access-Control-Allow-Credentials"), "true")
        self.assertIn("Retry-After", response.header("Access-Control-Expose-Headers"))
        self.assertEqual(response.all("Vary"), ["Origin"])

    def from_page(self, target="/charges", origin=PAGE, **options):
        return self.post(target, headers=[("Origin", origin)], **options)

    def test_the_gateways_own_answers_can_be_read_by_an_allowed_page(self):
        self.assert_readable(self.from_page(key=None))  # 400
        gate = self.hold_at_upstream(answers(201))
        first = self.post_in_background()
        gate.wait_for_arrival()
        self.assert_readable(self.from_page())  # 409
        self.assert_readable(self.from_page(body=b"other", origin="http://localhost:3000"), "http://localhost:3000")
        gate.open()
        first.result()
        self.assert_readable(self.from_page(key=fresh_key(), body=b"x" * 2000))  # 413
        accepted = self.from_page("/async/1", key=fresh_key())
        accepted = self.post("/async/2", key=fresh_key(), headers=[("Origin", PAGE), ("Prefer", "respond-async")])
        self.assertEqual(accepted.status, 202)
        self.assert_readable(accepted)

    def test_a_page_of_another_origin_gets_nothing_and_caches_are_told(self):
        for origin in ("https://evil.example", "https://app.example.evil.example", "null", ""):
            refused = self.from_page(key=None, origin=origin)
            self.assertEqual(refused.status, 400)
            self.assertFalse([name for name, _ in refused.headers if name.lower().startswith("access-control")], refused)
            self.assertEqual(refused.all("Vary"), ["Origin"])
        self.assertEqual(self.post(key=None).all("Vary"), ["Origin"])

    def test_answers_of_the_upstream_and_replays_stay_as_they_are(self):
        self.upstream.will(answers(201, headers=[("Access-Control-Allow-Origin", "*")]), answers(200))
        for response in (self.from_page(), self.from_page()):
            self.assertEqual(response.all("Access-Control-Allow-Origin"), ["*"], response)
            self.assertFalse(response.has("Vary"))
            self.assertFalse(response.has("Access-Control-Expose-Headers"))
        plain = self.client.get("/unkeyed", headers=[("Origin", PAGE)])
        self.assertFalse(plain.has("Access-Control-Allow-Origin") or plain.has("Vary"), plain)

    def test_all_origins_and_an_upstream_that_is_away(self):
        with Gateway(f"http://127.0.0.1:{free_port()}", [{"path": "/*"}], cors_origins=["*"]) as gateway:
            for options in ({}, {"key": "k"}):
                failed = gateway.client().post("/x", headers=[("Origin", PAGE)], **options)
                self.assertEqual((failed.status, failed.header("Access-Control-Allow-Origin")), (503, "*"))
                self.assertFalse(failed.has("Access-Control-Allow-Credentials") or failed.has("Vary"), failed)


class CompressTest(GatewayTest):
    routes = [{"path": "/*", "compress": True, "max_stored_body": "64KiB"}]

    def fetch(self, accept="gzip", **options):
        return self.post(headers=[("Accept-Encoding", accept)] if accept else [], **options)

    def assert_compressed(self, response, body=TEXT):
        self.assertEqual(response.header("Content-Encoding"), "gzip", response)
        self.assertLess(len(response.body), len(body) // 2)
        self.assertEqual(gzip.decompress(response.body), body)
        self.assertEqual(response.all("Vary"), ["Accept-Encoding"])
        self.assertEqual(response.header("ETag"), 'W/"v1"')

    def assert_as_sent(self, response, body=TEXT):
        self.assertFalse(response.has("Content-Encoding"), response)
        self.assertEqual(response.body, body)
        self.assertEqual(response.all("Vary"), ["Accept-Encoding"])

    def test_first_answer_and_replays_as_each_client_accepts_them(self):
        self.upstream.will(answers(201, TEXT, JSON))
        self.assert_compressed(self.fetch("br, gzip;q=0.8"))
        self.assertEqual(self.upstream.last.header("Accept-Encoding"), "identity")
        again = self.fetch("gzip")
        self.assertTrue(again.replayed)
        self.assert_compressed(again)
        for accept in ("identity", "gzip;q=0", "br", None):
            plain = self.fetch(accept)
            self.assertTrue(plain.replayed)
            self.assert_as_sent(plain)
            self.assertEqual(plain.header("ETag"), '"v1"')
        self.assert_executed(1)

    def test_an_answer_that_is_not_kept_is_compressed_too(self):
        self.upstream.will(answers(500, TEXT, JSON))
        self.assert_compressed(self.fetch())

    def test_what_must_not_or_need_not_be_compressed_is_not(self):
        cases = (answers(201, TEXT, [*JSON, ("Cache-Control", "no-transform")]),
                 answers(201, TEXT, [("Content-Type", "image/png")]), answers(201, b"{}", JSON),
                 answers(206, TEXT, JSON))
        for behaviour in cases:
            self.upstream.reset()
            self.upstream.will(behaviour)
            key = fresh_key()
            first, again = self.fetch(key=key), self.fetch(key=key)
            self.assert_as_sent(first, first.body)
            self.assert_as_sent(again, first.body)
        self.upstream.will(answers(201, gzip.compress(TEXT), [*JSON, ("Content-Encoding", "gzip")]))
        self.assertEqual(gzip.decompress(self.fetch(key=fresh_key()).body), TEXT)

    def test_an_answer_too_long_to_keep_and_one_without_a_key_go_as_they_come(self):
        self.upstream.will(answers(200, b"x" * 100_000, JSON), answers(200, TEXT, JSON))
        self.assert_as_sent(self.fetch(), b"x" * 100_000)
        plain = self.fetch(key=None)
        self.assertEqual((plain.body, plain.has("Vary"), plain.has("Content-Encoding")), (TEXT, False, False))
        self.assertEqual(self.upstream.last.header("Accept-Encoding"), "gzip")


class UploadTest(GatewayTest):
    routes = [{"path": "/*", "fingerprint": "canonical", "ignore_host": True, "max_request_body": "100KiB"}]

    def upload(self, *form):
        host, port = self.gateway.address
        command = ["curl", "-s", "-o", "-", "-w", "\n%{http_code} %header{idempotent-replayed}", "-H",
                   "Authorization: Bearer alice", "-H", f"Idempotency-Key: {self.key}", *form,
                   f"http://{host}:{port}/files"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]

    def test_the_same_upload_is_a_retry_although_its_boundary_is_new(self):
        file = self.gateway.folder / "report.bin"
        file.write_bytes(bytes(range(256)) * 100)
        form = ("-F", "note=quarterly; final", "-F", f"file=@{file};type=application/x-thing")
        self.assertEqual(self.upload(*form), "201 ")
        first = self.upstream.last.header("Content-Type")
        self.assertEqual(self.upload(*form), "201 true")
        self.assert_executed(1)
        self.assertTrue(first.startswith("multipart/form-data"))
        file.write_bytes(bytes(range(256)) * 99)
        self.assertEqual(self.upload(*form), "422 ")
        self.assertEqual(self.upload("-F", "note=quarterly; final"), "422 ")
        self.assert_executed(1)

    def test_a_body_over_the_limit_is_refused_in_whole_sentences(self):
        refused = self.post(body=b"x" * 200_000)
        detail = self.assert_problem(refused, 413, "request_too_large")["detail"]
        self.assertTrue(detail.endswith("send a smaller body. At most 102400 bytes are allowed."), detail)
        self.assertIn("max_request_body", self.gateway.wait_for_log("event=request_too_large"))


if __name__ == "__main__":
    unittest.main()
