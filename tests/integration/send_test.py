"""`oncekey send` as a command: what goes out, what comes back, and what its exit code says."""

import json
import os
import pathlib
import ssl
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.gateway import free_port
from support.sending import GAVE_UP, LOCAL_FAULT, REFUSED, SUCCEEDED, USAGE, SendTest
from support.upstream import Upstream, answers, first, never_answers, resets, stops_short

UUID4 = r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"


class RequestTest(SendTest):
    def test_the_answer_goes_to_standard_output_and_nothing_else_does(self):
        self.server.will(answers(201, b'{"id":"ch_1"}'))
        run = self.send("-d", "amount=1")
        self.assert_ended(run, SUCCEEDED)
        self.assertEqual(run.out, b'{"id":"ch_1"}')
        self.assertEqual(run.err, "")

    def test_the_request_is_what_was_asked_for(self):
        self.send("-H", "Authorization: Bearer t", "-H", "X-Empty:", "-d", "amount=1", target="/v1/charges?expand=x")
        request = self.server.last
        self.assertEqual((request.method, request.target), ("POST", "/v1/charges?expand=x"))
        self.assertEqual(request.body, b"amount=1")
        self.assertEqual(request.header("Authorization"), "Bearer t")
        self.assertEqual(request.header("X-Empty"), "")
        self.assertEqual(request.header("Host"), f"127.0.0.1:{self.server.port}")
        self.assertEqual(request.header("Content-Type"), "application/x-www-form-urlencoded")
        self.assertRegex(request.key, UUID4)

    def test_json_says_that_it_is(self):
        self.send("--json", '{"amount":1}')
        self.assertEqual(self.server.last.header("Content-Type"), "application/json")
        self.send("--json", "x", "-H", "content-type: application/problem+json")
        self.assertEqual(self.server.last.all("Content-Type"), ["application/problem+json"])

    def test_bodies_come_from_files_and_standard_input_byte_for_byte(self):
        data = bytes(range(256)) * 5000
        (self.folder / "body").write_bytes(data)
        self.assert_ended(self.send("-d", "@body"), SUCCEEDED)
        self.assertEqual(self.server.last.body, data)
        self.assert_ended(self.send("-d", "@-", stdin=data), SUCCEEDED)
        self.assertEqual(self.server.last.body, data)

    def test_headers_come_from_a_file_too(self):
        (self.folder / "secret").write_text("Authorization: Bearer hidden\nX-Two: 2\r\n\n")
        self.send("-H", "@secret")
        self.assertEqual(self.server.last.header("Authorization"), "Bearer hidden")
        self.assertEqual(self.server.last.header("X-Two"), "2")

    def test_the_key_may_be_given_quoted_and_renamed(self):
        self.send("--key", "order-17")
        self.assertEqual(self.server.last.header("Idempotency-Key"), "order-17")
        self.send("--key", "order-17", "--quote-key")
        self.assertEqual(self.server.last.header("Idempotency-Key"), '"order-17"')
        self.send("--key", "order-17", "--key-header", "PayPal-Request-Id")
        self.assertEqual(self.server.last.header("PayPal-Request-Id"), "order-17")
        self.assertFalse(self.server.last.has("Idempotency-Key"))

    def test_a_request_that_changes_nothing_has_no_key(self):
        self.assert_ended(self.send(method="GET"), SUCCEEDED)
        self.assertFalse(self.server.last.has("Idempotency-Key"))
        self.assertFalse(self.server.last.has("Content-Length"))

    def test_a_method_in_small_letters_is_meant_in_capitals(self):
        self.assert_ended(self.send(method="post"), SUCCEEDED)
        self.assertEqual(self.server.last.method, "POST")
        self.assertRegex(self.server.last.key, UUID4)
        self.assert_ended(self.send(method="get"), SUCCEEDED)
        self.assertFalse(self.server.last.has("Idempotency-Key"))

    def test_a_post_without_a_body_says_so(self):
        self.send()
        self.assertEqual(self.server.last.header("Content-Length"), "0")


class AnswerTest(SendTest):
    def test_include_shows_status_and_headers(self):
        self.server.will(answers(201, b"x", [("X-Thing", "1")], reason="Created"))
        run = self.send("-i")
        self.assertTrue(run.out.startswith(b"HTTP/1.1 201 Created\r\nX-Thing: 1\r\n"), run)
        self.assertTrue(run.out.endswith(b"\r\n\r\nx"), run)

    def test_output_goes_to_a_file(self):
        data = bytes(range(256)) * 4000
        self.server.will(answers(200, data, chunked=True))
        run = self.send("-o", "answer")
        self.assert_ended(run, SUCCEEDED)
        self.assertEqual(run.out, b"")
        self.assertEqual((self.folder / "answer").read_bytes(), data)

    def test_a_refusal_is_printed_too_and_ends_in_1(self):
        self.server.will(answers(402, b'{"error":"declined"}', reason="Payment Required"))
        run = self.send()
        self.assert_ended(run, REFUSED)
        self.assertEqual(run.out, b'{"error":"declined"}')
        self.assertIn("refused: 402 Payment Required", run.err)

    def test_interim_answers_are_passed_over(self):
        self.server.will(first(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", answers(200, b"final")))
        self.assertEqual(self.send().out, b"final")

    def test_retries_are_told_on_standard_error_unless_quiet(self):
        self.server.will(resets())
        run = self.send()
        self.assert_ended(run, SUCCEEDED)
        self.assertRegex(run.err, r"^oncekey send: try 1: .*; again in \d+m?s\n$")
        self.server.will(resets())
        self.assertEqual(self.send("--quiet").err, "")

    def test_an_answer_that_stops_short_is_no_answer(self):
        self.server.will(stops_short())
        run = self.send()
        self.assert_ended(run, SUCCEEDED)
        self.assertNotIn(b"only this much", run.out)
        self.assert_one_key(2)

    def test_giving_up_ends_in_3_and_says_how_to_go_on(self):
        self.server.always(answers(503))
        run = self.send("--max-attempts", "2")
        self.assert_ended(run, GAVE_UP)
        self.assertEqual(run.out, b"")
        self.assertIn("gave up: 503", run.err)
        self.assertIn(f"--key {self.keys()[0]}", run.err)
        self.assert_one_key(2)

    def test_giving_up_shows_what_the_last_answer_said(self):
        self.server.always(answers(500, b'{"error":"out of cheese"}'))
        run = self.send("--max-attempts", "1")
        self.assert_ended(run, GAVE_UP)
        self.assertEqual(run.out, b"")
        self.assertIn('{"error":"out of cheese"}', run.err)
        self.server.always(answers(500, b"x" * 5000))
        run = self.send("--max-attempts", "1")
        self.assertIn("(the first 4096 of 5000 bytes)", run.err)

    def test_a_report_in_json_has_everything(self):
        self.server.will(answers(201, b'{"id":1}', [("X-Thing", "1")]))
        report = json.loads(self.send("--report-json", "--key", "k").out)
        self.assertEqual((report["ending"], report["status"], report["body"]), ("succeeded", 201, '{"id":1}'))
        self.assertEqual((report["key"], report["attempts"], report["key_kept"]), ("k", 1, False))
        self.assertIn(["X-Thing", "1"], report["headers"])
        self.server.will(answers(201, b"\xff\x00"))
        self.assertEqual(json.loads(self.send("--report-json").out)["body_base64"], "/wA=")
        self.server.always(answers(503, b"later"))
        run = self.send("--report-json", "--max-attempts", "1")
        self.assert_ended(run, GAVE_UP)
        report = json.loads(run.out)
        self.assertEqual((report["ending"], report["body"], report["key_kept"]), ("gave_up", "later", True))

    @unittest.skipIf("ONCEKEY_MACHINE_FAULTS" not in os.environ, "ONCEKEY_MACHINE_FAULTS names no library to preload")
    def test_a_name_that_does_not_exist_is_not_tried_again(self):
        run = self.send(url="http://api.test/x", environment={"LD_PRELOAD": os.environ["ONCEKEY_MACHINE_FAULTS"],
                                                              "ONCEKEY_NO_SUCH_NAME": "1",
                                                              "ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.assert_ended(run, GAVE_UP)
        self.assertIn("gave up: the name api.test cannot be resolved: Name or service not known", run.err)
        self.assertNotIn("try 1", run.err)

    def test_nobody_listening_is_tried_again_until_the_deadline(self):
        run = self.send("--deadline", "1200ms", url=f"http://127.0.0.1:{free_port()}/x")
        self.assert_ended(run, GAVE_UP)
        self.assertIn("try 1:", run.err)
        self.assertIn("refused", run.err)

    def test_a_server_that_never_answers_is_given_up_in_time(self):
        self.server.always(never_answers())
        run = self.send("--timeout", "300ms", "--max-attempts", "2")
        self.assert_ended(run, GAVE_UP)
        self.assertIn("timed out", run.err)
        self.assert_one_key(2)


class UsageTest(SendTest):
    def test_wrong_usage_ends_in_2_and_sends_nothing(self):
        for arguments in (["--max-attempts", "0"], ["--deadline", "soon"], ["--timeout", "0s"], ["--key", "a b"],
                          ["-H", "no colon"], ["-H", "Host: other"], ["-H", "Idempotency-Key: k"], ["-d", "@missing"],
                          ["-d", "x", "--json", "y"], ["--operation", "name"], ["--forget"], ["--unknown"],
                          ["--again"], ["--again", "--journal", "keys"],
                          ["--cacert", "missing"]):
            with self.subTest(arguments=arguments):
                run = self.send(*arguments)
                self.assert_ended(run, USAGE)
                self.assertNotEqual(run.err, "")
        self.assert_ended(self.send(url="ftp://example.com/"), USAGE)
        self.assert_ended(self.send(method="PO ST"), USAGE)
        self.assertEqual(self.server.received, [])

    def test_help_lists_the_exit_codes(self):
        run = self.send("--help")
        self.assert_ended(run, SUCCEEDED)
        self.assertIn(b"3 gave up", run.out)

    def test_an_output_that_cannot_be_written_is_a_fault_of_ours(self):
        run = self.send("-o", "no/such/folder")
        self.assert_ended(run, LOCAL_FAULT)
        self.assertIn("nothing was sent", run.err)
        self.assertEqual(self.server.received, [])

    def test_when_the_answer_cannot_be_written_its_key_is_told(self):
        run = self.send("-o", "/dev/full")
        self.assert_ended(run, LOCAL_FAULT)
        self.assertIn(f"--key {self.server.received[0].key}", run.err)


class TlsTest(SendTest):
    """Certificates are made by the openssl command for this run alone."""

    def tls_server(self, name):
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out",
                        certificate, "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"],
                       check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server = Upstream(tls_context=context).start()
        self.addCleanup(server.stop)
        return server

    def test_a_trusted_server_is_spoken_to(self):
        server = self.tls_server("localhost")
        run = self.send("-d", "amount=1", "--cacert", "localhost.crt", url=server.url + "/x")
        self.assert_ended(run, SUCCEEDED)
        self.assertEqual(server.last.body, b"amount=1")

    def test_an_untrusted_server_gets_nothing(self):
        server = self.tls_server("localhost")
        run = self.send("-d", "amount=1", url=server.url + "/x")
        self.assert_ended(run, GAVE_UP)
        self.assertIn("certificate", run.err)
        self.assertNotIn("try 1", run.err)
        self.assertEqual(server.received, [])

    def test_a_server_of_another_name_gets_nothing(self):
        server = self.tls_server("elsewhere")
        run = self.send("-d", "amount=1", "--cacert", "elsewhere.crt", url=server.url + "/x")
        self.assert_ended(run, GAVE_UP)
        self.assertNotIn("try 1", run.err)
        self.assertEqual(server.received, [])


if __name__ == "__main__":
    unittest.main()
