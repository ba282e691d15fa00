"""The forwarding and framing rules of an idempotency gateway, H1 to H28: one heading each, over real sockets."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.messages import LAST_CHUNK, Malformed, chunk, render_head
from support.upstream import answers, first, hangs_up, sends, stops_short
from support.waiting import poll_until


def head(*lines):
    """A head of exactly these lines."""
    return "".join(line + "\r\n" for line in lines) + "\r\n"


CHUNKED_BODY = "5\r\nhello\r\n0\r\n\r\n"


class HttpRulesTest(GatewayTest):
    routes = [
        {"path": "/small/*", "policy": "classic", "max_request_body": "1KiB", "max_stored_body": "1KiB"},
        {"path": "/cookies/*", "policy": "classic", "replay_set_cookie": True},
        {"path": "/*", "policy": "classic"},
    ]

    def assert_refused_and_closed(self, raw, *statuses):
        response, closed = self.client.exchange(raw)
        self.assertIn(response.status, statuses or (400,), response)
        self.assertTrue(closed, f"the connection stays open after {response}")
        self.assertEqual(self.upstream.executions(), 0, "a refused request was forwarded")

    def assert_each_refused(self, requests, *statuses):
        for raw in requests:
            with self.subTest(raw=raw):
                self.assert_refused_and_closed(raw, *statuses)


class SmugglingTest(HttpRulesTest):
    def test_h1_content_length_beside_transfer_encoding_is_refused_and_the_connection_closed(self):
        self.assert_each_refused([
            head("POST /x HTTP/1.1", "Host: a", "Content-Length: 5", "Transfer-Encoding: chunked") + CHUNKED_BODY,
            head("POST /x HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Content-Length: 15") + CHUNKED_BODY,
            head("POST /x HTTP/1.1", "Host: a", "content-length: 0", "TRANSFER-ENCODING: chunked") + CHUNKED_BODY,
        ])

    def test_h1_what_follows_a_refused_request_on_the_connection_is_never_executed(self):
        smuggled = head("POST /smuggled HTTP/1.1", "Host: a", "Content-Length: 0")
        self.assert_refused_and_closed(
            head("POST /x HTTP/1.1", "Host: a", "Content-Length: 4", "Transfer-Encoding: chunked")
            + "0\r\n\r\n" + smuggled)

    def test_h1_transfer_encoding_in_http_1_0_is_refused(self):
        self.assert_refused_and_closed(head("POST /x HTTP/1.0", "Host: a", "Transfer-Encoding: chunked") + CHUNKED_BODY)

    def test_h2_any_transfer_encoding_but_a_single_chunked_is_refused(self):
        self.assert_each_refused([
            head("POST /x HTTP/1.1", "Host: a", f"Transfer-Encoding: {coding}") + CHUNKED_BODY
            for coding in ("gzip", "chunked, gzip", "gzip, chunked", "chunked, chunked", "xchunked", "chunkedx",
                           "chunked;q=1", '"chunked"', "identity", "chunked, identity", "", ",", "\x0bchunked",
                           "chunked\x00", "chun ked")
        ], 400, 501)

    def test_h2_a_coding_that_does_not_end_the_body_is_malformed_and_one_before_chunked_not_implemented(self):
        for coding, status in (("gzip", 400), ("chunked, gzip", 400), ("chunked, chunked", 400),
                               ("gzip, chunked", 501)):
            with self.subTest(coding=coding):
                self.assert_refused_and_closed(
                    head("POST /x HTTP/1.1", "Host: a", f"Transfer-Encoding: {coding}") + CHUNKED_BODY, status)

    def test_h2_two_transfer_encoding_lines_are_refused(self):
        self.assert_refused_and_closed(
            head("POST /x HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked")
            + CHUNKED_BODY)
        self.assert_refused_and_closed(
            head("POST /x HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Transfer-Encoding: x") + CHUNKED_BODY,
            400, 501)

    def test_h3_a_content_length_that_is_no_number_is_refused(self):
        self.assert_each_refused([
            head("POST /x HTTP/1.1", "Host: a", f"Content-Length: {length}") + "hello"
            for length in ("-5", "+5", "5x", "x", "0x5", "", "5 5", "5,", "5;", "1e1", "\x0b5", "18446744073709551621",
                           "99999999999999999999999", "5, 6")
        ])

    def test_h3_two_different_content_lengths_are_refused(self):
        self.assert_each_refused([
            head("POST /x HTTP/1.1", "Host: a", "Content-Length: 5", "Content-Length: 6") + "hello!",
            head("POST /x HTTP/1.1", "Host: a", "Content-Length: 0", "content-length: 5") + "hello",
        ])

    def test_h3_identical_content_lengths_are_reduced_to_one_or_refused(self):
        response, _ = self.client.exchange(
            head("POST /x HTTP/1.1", "Host: a", "Connection: close", "Content-Length: 5, 5") + "hello")
        self.assertIn(response.status, (201, 400))
        if response.status == 201:
            self.assertEqual(self.upstream.last.header("Content-Length"), "5")

    def test_h4_whitespace_around_a_field_name_is_refused(self):
        self.assert_each_refused([
            head("POST /x HTTP/1.1", "Host: a", "Content-Length : 0"),
            head("POST /x HTTP/1.1", "Host: a", "Content-Length\t: 0"),
            head("POST /x HTTP/1.1", "Host: a", "X Y: 0"),
            head("POST /x HTTP/1.1", "Host: a", ": nothing"),
            head("POST /x HTTP/1.1", "Host: a", "no colon at all"),
            head("POST /x HTTP/1.1", " Host: a"),
        ])

    def test_h4_a_folded_line_is_refused(self):
        self.assert_each_refused([
            head("POST /x HTTP/1.1", "Host: a", "X-Long: one", " two"),
            head("POST /x HTTP/1.1", "Host: a", "Transfer-Encoding:", " chunked") + CHUNKED_BODY,
            head("POST /x HTTP/1.1", "Host: a", "X-Long: one", "\ttwo"),
        ])

    def test_h4_a_bare_line_feed_or_carriage_return_is_refused(self):
        self.assert_each_refused([
            "POST /x HTTP/1.1\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: a\nContent-Length: 0\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: a\r\nX: one\rtwo\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: a\r\nX: one\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
        ])

    def test_h4_nul_and_control_bytes_are_refused(self):
        self.assert_each_refused([
            head("POST /x HTTP/1.1", "Host: a", "X: a\x00b"),
            head("POST /x HTTP/1.1", "Host: a", "X: a\x01b"),
            head("POST /x HTTP/1.1", "Host: a", "X: a\x7fb"),
            head("POST /x HTTP/1.1", "Host: a", "X\x00Y: b"),
            head("POST /x\x00y HTTP/1.1", "Host: a"),
            head("PO\x01ST /x HTTP/1.1", "Host: a"),
        ])

    def test_h4_a_start_line_that_is_none_is_refused(self):
        self.assert_each_refused([
            head("POST /x", "Host: a"),
            head("POST  /x HTTP/1.1", "Host: a"),
            head("POST /x y HTTP/1.1", "Host: a"),
            head("POST x HTTP/1.1", "Host: a"),
            head("POST /x HTTP/1.1 ", "Host: a"),
            head("POST /x HTTP/1.x", "Host: a"),
            head("POST /x HTTP/11", "Host: a"),
            head("POST /x http/1.1", "Host: a"),
            head("garbage", "Host: a"),
        ], 400, 505)
        self.assert_each_refused([head("POST /x HTTP/2.0", "Host: a"), head("POST /x HTTP/0.9", "Host: a")], 400, 505)

    def test_h4_one_empty_line_before_a_request_is_ignored(self):
        response, _ = self.client.exchange("\r\n" + head("POST /x HTTP/1.1", "Host: a", "Content-Length: 0"))
        self.assertEqual(response.status, 201)

    def test_h5_a_request_needs_exactly_one_valid_host(self):
        self.assert_each_refused([
            head("POST /x HTTP/1.1", "Content-Length: 0"),
            head("POST /x HTTP/1.1", "Host: a", "Host: a", "Content-Length: 0"),
            head("POST /x HTTP/1.1", "Host: a", "Host: b", "Content-Length: 0"),
            head("POST /x HTTP/1.1", "Host: a b", "Content-Length: 0"),
            head("POST /x HTTP/1.1", "Host: a/b", "Content-Length: 0"),
            head("POST /x HTTP/1.1", "Host: u@a", "Content-Length: 0"),
            head("POST /x HTTP/1.1", "Host: a, b", "Content-Length: 0"),
        ])

    def test_h5_the_host_of_an_absolute_target_wins_and_the_target_goes_on_in_origin_form(self):
        self.client.exchange(head("POST http://other.test/charges?a=1 HTTP/1.1", "Host: api.test", "Content-Length: 0"))
        self.assertEqual(self.upstream.last.target, "/charges?a=1")
        self.assertEqual(self.upstream.last.header("Host"), "other.test")

    def test_h5_the_host_goes_to_the_upstream_unchanged(self):
        self.client.exchange(head("POST /x HTTP/1.1", "Host: Shop.Example:8443", "Content-Length: 0"))
        self.assertEqual(self.upstream.last.header("Host"), "Shop.Example:8443")

    def test_h5_an_http_1_0_request_without_a_host_goes_on_with_the_upstreams(self):
        self.client.exchange(head("POST /x HTTP/1.0", "Content-Length: 0"))
        self.assertEqual(self.upstream.last.header("Host"), f"127.0.0.1:{self.upstream.port}")

    def test_h6_chunk_extensions_are_ignored_and_not_forwarded(self):
        response, _ = self.client.exchange(
            head("POST /x HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n")
        self.assertEqual(response.status, 201)
        self.assertEqual(self.upstream.last.body, b"hello")

    def test_h6_endless_chunk_extensions_are_refused(self):
        endless = "5;" + "a" * 100_000 + "\r\nhello\r\n0\r\n\r\n"
        raw = head("POST /x HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + endless
        try:
            response, _ = self.client.exchange(raw)
            self.assertIn(response.status, (400, 413, 431), response)
        except (Malformed, OSError):
            pass  # closing on such a peer is an answer too
        self.assert_executed(0)

    def test_h6_many_chunk_extensions_are_refused(self):
        many = ("1;" + "a" * 1000 + "\r\nx\r\n") * 20 + "0\r\n\r\n"
        raw = head("POST /x HTTP/1.1", "Host: a", "Authorization: a", "Idempotency-Key: extended",
                   "Transfer-Encoding: chunked") + many
        self.assert_refused_and_closed(raw)

    def test_h6_a_malformed_chunk_never_completes_a_request(self):
        start = head("POST /x HTTP/1.1", "Host: a", "Transfer-Encoding: chunked")
        for body in ("zz\r\nhello\r\n0\r\n\r\n", "5\r\nhello!!\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n",
                     "0x5\r\nhello\r\n0\r\n\r\n", "fffffffffffffffff\r\nhello\r\n0\r\n\r\n", "\r\nhello\r\n0\r\n\r\n",
                     "5\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n"):
            for key_line in ((), ("Idempotency-Key: " + fresh_key(), "Authorization: Bearer alice")):
                with self.subTest(body=body, keyed=bool(key_line)):
                    raw = start[:-2] + "".join(line + "\r\n" for line in key_line) + "\r\n" + body
                    response, closed = self.client.exchange(raw)
                    self.assertIn(response.status, (400, 502), response)
                    self.assertTrue(closed)
                    self.assert_executed(0)

    def test_h6_bytes_after_an_upstream_answer_are_not_another_answer(self):
        real = render_head("HTTP/1.1 200 OK", [("Content-Length", "4")]) + b"real"
        extra = render_head("HTTP/1.1 200 OK", [("Content-Length", "5")]) + b"extra"
        self.upstream.will(sends(real + extra, close=False), answers(200, b"mine"))
        with self.client.connect() as connection:
            self.assertEqual(self.client.get("/one", connection=connection).body, b"real")
            self.assertEqual(self.client.get("/two", connection=connection).body, b"mine")


class UpstreamFramingTest(HttpRulesTest):
    def assert_bad_gateway(self, raw):
        self.upstream.will(sends(raw))
        self.assertEqual(self.client.get("/x").status, 502)

    def test_h3_an_upstream_answer_with_a_bad_length_becomes_502(self):
        for length in ("-1", "x", "5, 6", "+4", "", "99999999999999999999999"):
            with self.subTest(length=length):
                self.assert_bad_gateway(render_head("HTTP/1.1 200 OK", [("Content-Length", length)]) + b"body")

    def test_h3_an_upstream_answer_with_two_different_lengths_becomes_502(self):
        two_lengths = [("Content-Length", "4"), ("Content-Length", "2")]
        self.assert_bad_gateway(render_head("HTTP/1.1 200 OK", two_lengths) + b"body")

    def test_h2_an_upstream_answer_in_an_unknown_coding_becomes_502(self):
        for coding in ("gzip", "gzip, chunked", "chunked, chunked", "xchunked"):
            with self.subTest(coding=coding):
                self.assert_bad_gateway(render_head("HTTP/1.1 200 OK", [("Transfer-Encoding", coding)]) + LAST_CHUNK)

    def test_h1_an_upstream_answer_with_both_framings_is_never_reused_nor_forwarded_so(self):
        both = render_head("HTTP/1.1 200 OK", [("Content-Length", "3"), ("Transfer-Encoding", "chunked")])
        self.upstream.will(sends(both + chunk(b"hello") + LAST_CHUNK, close=False), answers(200, b"mine"))
        response = self.client.get("/x")
        self.assertIn(response.status, (200, 502))
        if response.status == 200:
            self.assertEqual(response.body, b"hello")
        self.assertEqual(self.client.get("/y").body, b"mine")

    def test_garbage_from_the_upstream_becomes_502(self):
        for raw in (b"garbage\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
                    b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 0\r\n\r\n", b"HTTP/2.0 200 OK\r\n\r\n",
                    b"HTTP/1.1 99 Low\r\nContent-Length: 0\r\n\r\n"):
            with self.subTest(raw=raw):
                self.assert_bad_gateway(raw)

    def test_h4_whitespace_before_a_colon_and_folded_lines_of_an_upstream_never_reach_the_client(self):
        for line in (b"X-Odd : 1\r\n", b"X-Odd: 1\r\n 2\r\n"):
            with self.subTest(line=line):
                self.upstream.will(sends(b"HTTP/1.1 200 OK\r\n" + line + b"Content-Length: 0\r\n\r\n"))
                self.assertIn(self.client.get("/x").status, (200, 502))  # the client's parser refuses either form

    def test_a_status_line_that_ends_in_its_status_is_understood(self):
        self.upstream.will(sends(b"HTTP/1.1 201\r\nContent-Length: 2\r\n\r\nok"))
        first_answer = self.post()
        self.assertEqual((first_answer.status, first_answer.body), (201, b"ok"))
        self.assert_replay_of(first_answer, self.post())

    def test_h19_a_keyed_answer_cut_short_is_unknown_and_never_replayed(self):
        without_last_chunk = sends(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"part"))
        for broken in (stops_short(), without_last_chunk):
            key = fresh_key()
            self.upstream.will(broken)
            self.assert_problem(self.post(key=key), 502, "upstream_unknown")
            self.assert_problem(self.post(key=key), 409, "in_progress")
            self.assertEqual(self.upstream.executions(key), 1)

    def test_h19_an_unkeyed_answer_cut_short_reaches_the_client_as_cut_short(self):
        self.upstream.will(stops_short())
        with self.assertRaises((Malformed, ConnectionResetError)):
            response = self.client.get("/x")
            if response.status == 502:
                raise Malformed("refused as a whole, which is as good")

    def test_h19_an_answer_that_ends_with_the_connection_is_complete(self):
        self.upstream.will(answers(200, b"all of it", until_close=True))
        first_answer = self.post()
        self.assertEqual(first_answer.body, b"all of it")
        self.assert_replay_of(first_answer, self.post())
        self.assert_executed(1)


class ForwardingTest(HttpRulesTest):
    def test_h7_a_replay_of_a_chunked_answer_is_framed_anew_and_whole(self):
        body = bytes(range(256)) * 40
        self.upstream.will(answers(200, body, chunked=True))
        first_answer = self.post()
        self.assertEqual(first_answer.body, body)
        again = self.post()
        self.assert_replay_of(first_answer, again)
        self.assertEqual(again.framing, "length")
        self.assert_executed(1)

    def test_h8_connection_and_what_it_names_stay_on_their_hop_towards_the_upstream(self):
        self.client.get("/x", headers=[("Connection", "close, Keep-Alive, TE, X-Hop"), ("Keep-Alive", "5"),
                                       ("TE", "trailers"), ("Proxy-Connection", "keep-alive"), ("X-End", "kept")])
        for name in ("X-Hop", "Keep-Alive", "TE", "Proxy-Connection", "Upgrade"):
            self.assertFalse(self.upstream.last.has(name), name)
        self.assertNotIn("X-Hop", self.upstream.last.header("Connection") or "")
        self.assertEqual(self.upstream.last.header("X-End"), "kept")

    def test_h8_connection_naming_an_end_to_end_field_that_is_there_is_refused(self):
        response = self.client.get("/x", headers=[("Connection", "close, X-Hop"), ("X-Hop", "1")])
        self.assertEqual(response.status, 400)
        self.assertIn("X-Hop", response.json()["detail"])
        self.assert_executed(0)

    def test_h8_connection_and_what_it_names_stay_on_their_hop_towards_the_client_and_out_of_the_record(self):
        self.upstream.will(answers(200, b"x", [("Connection", "X-Hop"), ("X-Hop", "1"), ("Keep-Alive", "timeout=5"),
                                               ("Proxy-Connection", "keep-alive"), ("X-End", "kept")]))
        for response in (self.post(), self.post()):
            for name in ("X-Hop", "Keep-Alive", "Proxy-Connection"):
                self.assertFalse(response.has(name), name)
            self.assertEqual(response.header("X-End"), "kept")
        self.assert_executed(1)

    def test_h8_connection_naming_the_key_header_is_refused(self):
        response = self.post(headers=[("Connection", "keep-alive, idempotency-key")])
        self.assertEqual(response.status, 400)
        self.assert_executed(0)

    def test_h9_via_is_added_behind_those_of_earlier_hops(self):
        self.client.get("/x", headers=[("Via", "1.0 fred")])
        via = ", ".join(self.upstream.last.all("Via"))
        self.assertTrue(via.startswith("1.0 fred, 1.1 "), via)

    def test_h9_a_request_that_came_through_this_gateway_before_is_a_loop_and_not_forwarded(self):
        self.client.get("/x")
        own = self.upstream.last.header("Via")
        self.upstream.reset()
        for key in (None, self.key):
            response = self.client.post("/x", key=key, headers=[("Via", own)])
            self.assertGreaterEqual(response.status, 500)
        self.assertEqual(self.upstream.received, [])

    def test_h10_path_and_query_are_forwarded_byte_for_byte(self):
        for target in ("/a%2Fb//c/./d/../e?x=%20+&y=%zz&&", "/%7euser/%E4?q=a%20b", "/?", "/a;b=c,d'()*!$&=:@",
                       "/x?a=http://b/c?d"):
            with self.subTest(target=target):
                self.client.get(target)
                self.assertEqual(self.upstream.last.target, target)

    def test_h10_unknown_methods_statuses_and_fields_pass(self):
        self.upstream.will(answers(299, b"", [("X-Odd-Case-ID", "1")]))
        response = self.client.request("FROBNICATE", "/x", headers=[("X-wEird", "y")])
        self.assertEqual((response.status, response.header("X-Odd-Case-ID")), (299, "1"))
        self.assertEqual(self.upstream.last.method, "FROBNICATE")
        self.assertIn(("X-wEird", "y"), self.upstream.last.headers)

    def test_h10_lines_of_one_name_keep_their_order_and_cookies_are_not_merged(self):
        self.upstream.will(answers(200, b"", [("Set-Cookie", "a=1"), ("X-Many", "1"),
                                              ("Set-Cookie", "b=2"), ("X-Many", "2")]))
        response = self.client.get("/x", headers=[("X-In", "1"), ("X-In", "2")])
        self.assertEqual(response.all("Set-Cookie"), ["a=1", "b=2"])
        self.assertEqual(", ".join(response.all("X-Many")), "1, 2")
        self.assertEqual(", ".join(self.upstream.last.all("X-In")), "1, 2")

    def test_h11_the_forwarded_fields_say_who_asked_and_a_clients_own_are_replaced(self):
        self.client.get("/x", headers=[("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-Proto", "https"),
                                       ("X-Forwarded-Host", "evil.test")])
        self.assertEqual(self.upstream.last.header("X-Forwarded-For"), "127.0.0.1")
        self.assertEqual(self.upstream.last.header("X-Forwarded-Proto"), "http")
        self.assertEqual(self.upstream.last.header("X-Forwarded-Host"), "api.test")

    def test_h11_forwarded_fields_count_neither_in_the_scope_nor_in_the_fingerprint(self):
        first_answer = self.post(headers=[("X-Forwarded-For", "203.0.113.9")])
        self.assert_replay_of(first_answer, self.post(headers=[("X-Forwarded-For", "203.0.113.10")]))

    def test_h12_a_post_is_never_sent_twice(self):
        with self.client.connect() as connection:
            self.client.post("/warm", connection=connection)  # leaves a pooled connection behind
            for key in (None, self.key):
                self.upstream.reset()
                self.upstream.will(hangs_up())
                self.assertEqual(self.client.post("/x", key=key).status, 502)
                self.assertEqual(len(self.upstream.received), 1)

    def test_h12_a_pooled_connection_the_upstream_has_closed_is_not_used(self):
        self.upstream.will(answers(200, b"one", close=True))
        self.client.get("/x")
        self.assertEqual(self.post().status, 201)
        self.assert_executed(2)


class TrustedProxyTest(GatewayTest):
    settings = {"trusted_proxies": ["127.0.0.1"]}

    def test_h11_a_trusted_proxys_forwarded_fields_are_kept_and_appended_to(self):
        self.client.get("/x", headers=[("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-Proto", "https"),
                                       ("X-Forwarded-Host", "shop.test")])
        self.assertEqual(", ".join(self.upstream.last.all("X-Forwarded-For")), "203.0.113.9, 127.0.0.1")
        self.assertEqual(self.upstream.last.header("X-Forwarded-Proto"), "https")
        self.assertEqual(self.upstream.last.header("X-Forwarded-Host"), "shop.test")


class MessageFormsTest(HttpRulesTest):
    def expecting(self, *extra, version="HTTP/1.1", expectation="100-continue"):
        return head(f"POST /charges {version}", "Host: a", f"Expect: {expectation}", "Content-Length: 5", *extra)

    def test_h13_a_client_expecting_100_gets_it_before_it_sends_the_body(self):
        for extra in ((), ("Authorization: Bearer alice", f"Idempotency-Key: {self.key}")):
            with self.subTest(keyed=bool(extra)), self.client.connect() as connection:
                connection.send(self.expecting(*extra))
                self.assertEqual(connection.read_interim().status, 100)
                connection.send("hello")
                self.assertEqual(connection.read_response().status, 201)
                self.assertEqual(self.upstream.last.body, b"hello")
                self.assertFalse(self.upstream.last.has("Expect"))

    def test_h13_a_refusal_comes_without_waiting_for_the_body(self):
        with self.client.connect() as connection:
            connection.send(self.expecting("Authorization: Bearer alice", "Idempotency-Key: "))
            self.assertEqual(connection.read_response().status, 400)

    def test_h13_other_expectations_are_refused_with_417(self):
        with self.client.connect() as connection:
            connection.send(self.expecting(expectation="miracles") + "hello")
            self.assertEqual(connection.read_response().status, 417)
        self.assert_executed(0)

    def test_h13_an_http_1_0_client_gets_no_100(self):
        with self.client.connect() as connection:
            connection.send(self.expecting(version="HTTP/1.0") + "hello")
            response = connection.read_response()
            self.assertEqual((response.status, response.interim), (201, []))

    def test_h14_interim_responses_reach_the_client_but_not_the_record(self):
        early_hints = render_head("HTTP/1.1 103 Early Hints", [("Link", "</style.css>; rel=preload")])
        self.upstream.will(first(early_hints, answers(200, b"x")), first(early_hints, answers(200, b"y")))
        response = self.client.get("/x")
        self.assertEqual([interim.status for interim in response.interim], [103])
        self.assertEqual(response.interim[0].header("Link"), "</style.css>; rel=preload")
        first_answer = self.post()
        self.assertEqual(first_answer.body, b"y")
        again = self.post()
        self.assert_replay_of(first_answer, again)
        self.assertEqual(again.interim, [])
        self.assertFalse(again.has("Link"))

    def test_h14_an_http_1_0_client_gets_no_interim_response(self):
        self.upstream.will(first(render_head("HTTP/1.1 103 Early Hints", []), answers(200, b"x")))
        response = self.client.get("/x", version="HTTP/1.0")
        self.assertEqual((response.status, response.interim), (200, []))

    def test_h15_connect_is_not_implemented(self):
        with self.client.connect() as connection:
            connection.send(head("CONNECT a:443 HTTP/1.1", "Host: a:443"))
            self.assertEqual(connection.read_response().status, 501)
        self.assertEqual(self.upstream.received, [])

    def test_h15_an_upgrade_is_dropped_and_the_request_forwarded_as_an_ordinary_one(self):
        response = self.client.get("/x", headers=[("Connection", "Upgrade"), ("Upgrade", "h2c")])
        self.assertEqual(response.status, 201)
        self.assertFalse(self.upstream.last.has("Upgrade"))

    def test_h16_an_empty_204_is_kept_and_replayed_without_framing(self):
        self.upstream.will(answers(204))
        first_answer = self.post()
        self.assertEqual((first_answer.status, first_answer.body), (204, b""))
        self.assert_replay_of(first_answer, self.post())
        self.assert_executed(1)

    def test_h16_a_length_on_a_204_is_not_believed(self):
        self.upstream.will(sends(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", close=False),
                           answers(200, b"next"))
        with self.client.connect() as connection:
            self.assertEqual(self.client.get("/x", connection=connection).status, 204)
            self.assertEqual(self.client.get("/x", connection=connection).body, b"next")

    def test_h16_a_205_has_no_content(self):
        for key in (self.key, self.key, None):
            self.upstream.will(answers(205, b"none of this"))
            response = self.client.post("/x", key=key)
            self.assertEqual((response.status, response.body, response.header("Content-Length")), (205, b"", "0"))
            self.upstream.reset()

    def test_h16_the_answer_to_head_keeps_its_length_and_has_no_body(self):
        self.upstream.will(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", close=False),
                           answers(200, b"next"))
        with self.client.connect() as connection:
            response = self.client.request("HEAD", "/x", connection=connection)
            self.assertEqual(response.header("Content-Length"), "1234")
            self.assertEqual(self.client.get("/x", connection=connection).body, b"next")

    def test_h16_a_304_has_no_body(self):
        not_modified = render_head("HTTP/1.1 304 Not Modified", [("ETag", '"a"'), ("Content-Length", "99")])
        self.upstream.will(sends(not_modified, close=False))
        with self.client.connect() as connection:
            response = self.client.get("/x", connection=connection)
            self.assertEqual((response.status, response.header("ETag")), (304, '"a"'))
            self.assertEqual(self.client.get("/x", connection=connection).status, 201)

    def test_h17_an_http_1_0_client_gets_no_chunks_and_an_end(self):
        self.upstream.will(answers(200, b"x" * 3000, chunked=True))
        response, _ = self.client.exchange(head("GET /x HTTP/1.0", "Host: a"), method="GET")
        self.assertIn(response.framing, ("length", "close"))
        self.assertEqual(response.body, b"x" * 3000)

    def test_h17_an_http_1_0_client_may_use_keys(self):
        first_answer = self.post(version="HTTP/1.0")
        self.assert_replay_of(first_answer, self.post(version="HTTP/1.0"))

    def test_h18_trailers_are_dropped_in_both_directions(self):
        self.upstream.will(answers(200, b"body", [("Trailer", "X-Sum")], chunked=True, trailers=[("X-Sum", "1")]))
        response, _ = self.client.exchange(
            head("POST /x HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Trailer: X-In")
            + "5\r\nhello\r\n0\r\nX-In: 1\r\n\r\n")
        self.assertEqual((response.body, response.trailers), (b"body", []))
        self.assertFalse(response.has("X-Sum") or response.has("Trailer"))
        self.assertEqual((self.upstream.last.body, self.upstream.last.trailers), (b"hello", []))
        self.assertFalse(self.upstream.last.has("X-In") or self.upstream.last.has("Trailer"))

    def test_h18_a_framing_field_among_the_trailers_is_dropped_or_refused(self):
        for trailer in ("Content-Length: 3", "Transfer-Encoding: chunked", "Host: evil", "Idempotency-Key: k"):
            with self.subTest(trailer=trailer):
                response, _ = self.client.exchange(
                    head("POST /x HTTP/1.1", "Host: a", "Transfer-Encoding: chunked")
                    + f"5\r\nhello\r\n0\r\n{trailer}\r\n\r\n")
                self.assertIn(response.status, (201, 400))
                if response.status == 201:
                    self.assertEqual((self.upstream.last.body, self.upstream.last.trailers), (b"hello", []))
                    self.assertEqual((self.upstream.last.key, self.upstream.last.header("Host")), (None, "a"))

    def test_h20_a_client_that_half_closes_still_gets_its_answer(self):
        for key in (None, self.key):
            with self.subTest(keyed=key is not None), self.client.connect() as connection:
                gate = self.hold_at_upstream(answers(201, b"done"))
                connection.send(self.client.request_bytes("POST", "/x", key=key, body=b"{}"))
                connection.end_sending()
                gate.wait_for_arrival()
                gate.open()
                self.assertEqual(connection.read_response().body, b"done")

    def test_h20_a_client_that_is_gone_does_not_cancel_the_call_and_finds_the_answer_later(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        with self.client.connect() as connection:
            connection.send(self.client.request_bytes("POST", "/charges", key=self.key, body=b'{"amount":100}'))
            gate.wait_for_arrival()
        gate.open()
        again = poll_until(lambda: (response := self.post()).status == 201 and response, "the replay")
        self.assertTrue(again.replayed)
        self.assertEqual(again.body, b"done")
        self.assert_executed(1)

    def test_h20_a_refusal_reaches_a_client_that_is_still_sending(self):
        with self.client.connect() as connection:
            start = self.client.request_bytes("POST", "/small/x", key=self.key,
                                              headers=[("Content-Length", str(4 << 20))])
            connection.send(start)
            try:
                for _ in range(64):
                    connection.send(b"x" * 65536)
            except OSError:
                pass  # it may close as soon as it has said why
            self.assertEqual(connection.read_response().status, 413)
        self.assert_executed(0)


class ReplayedHeadersTest(HttpRulesTest):
    def replay_of(self, headers, target="/charges"):
        self.upstream.will(answers(201, b"x", headers))
        first_answer = self.post(target)
        again = self.post(target)
        self.assert_replay_of(first_answer, again)
        self.assert_executed(1)
        return again

    def test_h21_all_end_to_end_fields_are_replayed_in_order_with_their_case(self):
        fields = [("X-b", "2"), ("x-A", "1"), ("Content-Type", "Text/Odd; charset=x"), ("X-b", "3"), ("ETag", 'W/"1"')]
        again = self.replay_of(fields)
        self.assertEqual([field for field in again.headers if field in fields], fields)
        self.assertEqual(again.reason, "Made By Upstream")

    def test_h21_proxy_authentication_is_not_stored(self):
        again = self.replay_of([("Proxy-Authenticate", "Basic"), ("Proxy-Authentication-Info", "x")])
        self.assertFalse(again.has("Proxy-Authenticate") or again.has("Proxy-Authentication-Info"))

    def test_h22_every_answer_has_a_date(self):
        self.assertRegex(self.post().header("Date"), r"^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$")
        self.assertTrue(self.post(body=b"other").has("Date"))  # one of the gateway's own

    def test_h22_a_replay_has_a_fresh_date_and_no_age(self):
        old = "Sun, 06 Nov 1994 08:49:37 GMT"
        again = self.replay_of([("Date", old), ("Age", "7")])
        self.assertNotEqual(again.header("Date"), old)
        self.assertFalse(again.has("Age"))

    def test_h23_yesterdays_rate_limits_are_not_replayed(self):
        names = ("RateLimit", "RateLimit-Policy", "RateLimit-Remaining", "X-RateLimit-Remaining", "X-RateLimit-Limit",
                 "Retry-After")
        again = self.replay_of([(name, "77") for name in names])
        for name in names:
            self.assertNotEqual(again.header(name), "77", name)

    def test_h24_cookies_are_dropped_from_replays(self):
        self.assertEqual(self.replay_of([("Set-Cookie", "session=1")]).all("Set-Cookie"), [])

    def test_h24_cookies_are_replayed_where_the_route_says_so(self):
        again = self.replay_of([("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")], "/cookies/x")
        self.assertEqual(again.all("Set-Cookie"), ["a=1", "b=2"])

    def test_h25_keyed_requests_ask_the_upstream_for_identity_encoding(self):
        self.post(headers=[("Accept-Encoding", "gzip, br")])
        self.assertEqual(self.upstream.last.header("Accept-Encoding"), "identity")

    def test_h25_unkeyed_requests_keep_their_accept_encoding(self):
        self.client.get("/x", headers=[("Accept-Encoding", "gzip, br")])
        self.assertEqual(self.upstream.last.header("Accept-Encoding"), "gzip, br")

    def test_h26_a_request_in_progress_gets_a_whole_number_of_seconds_and_no_store(self):
        gate = self.hold_at_upstream(answers(201, b"x"))
        running = self.post_in_background()
        gate.wait_for_arrival()
        refused = self.post()
        gate.open()
        running.result()
        self.assert_problem(refused, 409, "in_progress")
        self.assert_retry_after(refused)
        self.assertIn("no-store", refused.header("Cache-Control"))

    def test_h26_the_gateways_own_errors_are_not_for_caches(self):
        self.post()
        self.assertIn("no-store", self.post(body=b"other").header("Cache-Control"))
        self.assertIn("no-store", self.post(key="").header("Cache-Control"))

    def test_h27_location_and_content_location_are_replayed(self):
        again = self.replay_of([("Location", "/charges/1"), ("Content-Location", "/charges/1?v=1")])
        self.assertEqual((again.header("Location"), again.header("Content-Location")), ("/charges/1", "/charges/1?v=1"))

    def test_h28_a_request_too_large_to_fingerprint_is_refused_and_not_executed(self):
        self.assert_problem(self.post("/small/x", body=b"x" * 1025), 413, "request_too_large")
        with self.client.connect() as connection:
            connection.send(self.client.request_bytes("POST", "/small/x", key=self.key,
                                                      headers=[("Transfer-Encoding", "chunked")]))
            connection.send(chunk(b"x" * 2000) + LAST_CHUNK)
            self.assertEqual(connection.read_response().status, 413)
        self.assert_executed(0)
        self.assertEqual(self.post("/small/x", body=b"x" * 1024).status, 201)

    def test_h28_an_answer_too_long_to_keep_is_streamed_once_and_never_executed_again(self):
        body = b"0123456789" * 500
        for form in ({}, {"chunked": True}, {"until_close": True}):
            with self.subTest(form=form):
                key = fresh_key()
                self.upstream.will(answers(200, body, **form))
                self.assertEqual(self.post("/small/x", key=key).body, body)
                problem = self.assert_problem(self.post("/small/x", key=key), 409, "answer_not_kept")
                self.assertNotIn("0123456789012345", str(problem))
                self.assertEqual(self.upstream.executions(key), 1)


if __name__ == "__main__":
    unittest.main()
