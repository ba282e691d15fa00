"""An answer that came but cannot be passed on proves that the request arrived: it is settled by its status, told to the
client with the reason, and never executed again by itself."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest
from support.upstream import answers, resets, sends, stops_short

BODY = b"\r\nContent-Length: 2\r\n\r\n{}"


def with_status(status, fields=b"X-Plain: 1", rest=BODY, version=b"HTTP/1.1"):
    return sends(version + b" " + str(status).encode() + b" Some Reason\r\n" + fields + rest)


MANY_FIELDS = b"\r\n".join(b"X-Field-%d: 1" % number for number in range(300))
LARGE_HEAD = b"X-Large: " + b"x" * 70_000

# What is wrong with the answer, the answer of a given status, and a word of the reason.
DISLIKED = {
    "300 fields": (lambda status: with_status(status, MANY_FIELDS), "256"),
    "a head over max_header_bytes": (lambda status: with_status(status, LARGE_HEAD), "max_header_bytes"),
    "NUL in a value": (lambda status: with_status(status, b"X-Bad: a\0b"), "control character"),
    "CR in a value": (lambda status: with_status(status, b"X-Bad: a\rb"), "malformed"),
    "LF in a value": (lambda status: with_status(status, b"X-Bad: a\nb"), "line feed"),
    "a name with a blank": (lambda status: with_status(status, b"X Bad: a"), "field name"),
    "two framings": (lambda status: with_status(status, b"Content-Length: 2\r\nTransfer-Encoding: chunked",
                                                b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), "Transfer-Encoding"),
    "two lengths": (lambda status: with_status(status, b"Content-Length: 2\r\nContent-Length: 3",
                                               b"\r\n\r\n{}}"), "Content-Length"),
    "chunks in HTTP/1.0": (lambda status: with_status(status, b"Transfer-Encoding: chunked",
                                                      b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"HTTP/1.0"), "HTTP/1.0"),
    "an unknown coding": (lambda status: with_status(status, b"Transfer-Encoding: gzip, chunked",
                                                     b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), "chunked"),
    "lines without CR": (lambda status: sends(b"HTTP/1.1 %d OK\nContent-Length: 2\n\n{}" % status), "line feed"),
    "a chunk size that is none": (lambda status: with_status(status, b"Transfer-Encoding: chunked",
                                                             b"\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"), "chunked"),
}

# Without a status line it cannot be told what happened.
NO_STATUS = {
    "status 600": sends(b"HTTP/1.1 600 Beyond" + BODY),
    "status 99": sends(b"HTTP/1.1 099 Below" + BODY),
    "HTTP/2 in clear": sends(b"HTTP/2 200 OK" + BODY),
    "not HTTP": sends(b"SSH-2.0-OpenSSH_9.2\r\nX: 1" + BODY),
    "101 that nobody asked for": sends(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
}


class Disliked(GatewayTest):
    """Subclasses name the policy and read its errors."""

    __test__ = False
    store = "journal"
    # Longer than the test: what is left to a lease would not be executed again within it, so a retry that executes at
    # once was released.
    settings = {"limits": {"max_header_bytes": 65536}}

    def code_of(self, response):
        raise NotImplementedError

    def test_a_kept_status_is_recorded_as_executed(self):
        for name, (make, reason) in DISLIKED.items():
            with self.subTest(name):
                self.setUp()
                self.upstream.always(make(200))
                first = self.post()
                self.assertEqual((first.status, self.code_of(first)), (502, "answer_unusable"), first.body)
                self.assertIn(reason, first.body.decode())
                self.assertIn("200", first.body.decode())
                self.assertFalse(first.has("Retry-After"), first)
                for _ in range(3):
                    again = self.post()
                    self.assertEqual((again.status, self.code_of(again)), (409, "answer_not_kept"), again.body)
                    self.assertFalse(again.has("Retry-After"), again)
                self.assert_executed(1)

    def test_a_status_that_is_not_kept_frees_the_key(self):
        for name, (make, reason) in DISLIKED.items():
            with self.subTest(name):
                self.setUp()
                self.upstream.will(make(429))
                first = self.post()
                self.assertEqual((first.status, self.code_of(first)), (502, "answer_unusable"), first.body)
                self.assertIn(reason, first.body.decode())
                self.assert_first(self.post())
                self.assert_executed(2)

    def test_without_a_status_line_the_outcome_is_unknown(self):
        for name, behaviour in NO_STATUS.items():
            with self.subTest(name):
                self.setUp()
                self.upstream.always(behaviour)
                first = self.post()
                self.assertEqual((first.status, self.code_of(first)), (502, "answer_unusable"), first.body)
                self.assertFalse(first.has("Retry-After"), first)
                self.assertIn("operator", first.body.decode())
                for _ in range(3):
                    again = self.post()
                    self.assertEqual((again.status, self.code_of(again)), (409, "indeterminate"), again.body)
                self.assert_executed(1)

    def test_another_body_under_the_key_stays_a_mismatch(self):
        self.upstream.always(DISLIKED["300 fields"][0](200))
        self.post()
        self.assertEqual(self.code_of(self.post(body=b'{"amount":7}')), "mismatch")
        self.assert_executed(1)

    def test_an_answer_that_breaks_off_stays_unknown(self):
        for name, behaviour in {"short": stops_short(), "reset": resets()}.items():
            with self.subTest(name):
                self.setUp()
                self.upstream.will(behaviour)
                first = self.post()
                self.assertEqual((first.status, self.code_of(first)), (502, "upstream_unknown"), first.body)
                self.assert_executed(1)

    def test_it_survives_a_restart(self):
        self.upstream.always(DISLIKED["300 fields"][0](200))
        self.post()
        self.gateway.kill()
        self.gateway.start()
        type(self).client = self.gateway.client()
        self.assertEqual(self.code_of(self.post()), "answer_not_kept")
        self.assert_executed(1)


class UnderClassic(Disliked):
    __test__ = True
    routes = [{"path": "/*", "policy": "classic"}]

    def code_of(self, response):
        return response.json()["type"].rsplit(":", 1)[-1]

    def test_a_server_error_frees_the_key(self):
        self.upstream.will(DISLIKED["300 fields"][0](500))
        self.assertEqual(self.post().status, 502)
        self.assert_first(self.post())
        self.assert_executed(2)


class UnderStripe(Disliked):
    __test__ = True
    routes = [{"path": "/*", "policy": "stripe-v1"}]
    CODES = {"idempotency_answer_not_kept": "answer_not_kept", "idempotency_outcome_unknown": "indeterminate"}

    def code_of(self, response):
        error = response.json()["error"]
        if error["type"] == "idempotency_error" and "code" not in error:
            return "mismatch"
        return self.CODES.get(error["code"], error["code"])

    def test_a_server_error_is_executed_once(self):
        self.upstream.always(DISLIKED["300 fields"][0](500))
        first = self.post()
        self.assertEqual((first.status, first.header("Stripe-Should-Retry")), (502, "false"), first)
        self.assertEqual(self.code_of(self.post()), "answer_not_kept")
        self.assert_executed(1)

    def test_a_released_one_asks_for_a_retry(self):
        self.upstream.will(DISLIKED["300 fields"][0](429))
        self.assertEqual(self.post().header("Stripe-Should-Retry"), "true")


def load_tests(loader, _, __):
    """The base class has tests and is none."""
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in (UnderClassic, UnderStripe))


if __name__ == "__main__":
    unittest.main()
