"""The life of a request, from the first answer to the last replay, as clients and the upstream see it."""

import base64
import json
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.gateway import Gateway, free_port
from support.messages import Malformed
from support.upstream import Upstream, answers, held, never_answers, resets, sends, streams
from support.waiting import PATIENCE_SECONDS, poll_until

LEASE_SECONDS = 1


def jwt(claims, signature="c2ln"):
    def encode(part):
        return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")

    return f"{encode({'alg': 'none'})}.{encode(claims)}.{signature}"


class FirstAndReplayTest(GatewayTest):
    def test_the_first_request_executes_and_the_retry_gets_the_same_answer(self):
        first = self.post()
        self.assert_first(first)
        again = self.post()
        self.assert_replay_of(first, again)
        self.assertEqual(again.header("Idempotency-Key"), self.key)
        self.assert_executed(1)

    def test_the_upstream_sees_the_request_as_sent_with_the_key_and_a_fence(self):
        self.post("/charges?expand=1", body=b'{"amount": 7}')
        request = self.upstream.last
        self.assertEqual((request.method, request.target), ("POST", "/charges?expand=1"))
        self.assertEqual(request.body, b'{"amount": 7}')
        self.assertEqual(request.key, self.key)
        self.assertGreaterEqual(request.fence, 1)
        self.assertEqual(request.header("Authorization"), "Bearer alice")

    def test_a_clients_own_fence_is_not_believed(self):
        self.post(headers=[("Oncekey-Fence", "99")])
        self.assertNotEqual(self.upstream.last.fence, 99)

    def test_a_clients_own_fence_is_not_forwarded_without_a_key_either(self):
        self.client.post("/charges", headers=[("Oncekey-Fence", "99")])
        self.assertEqual(self.upstream.last.all("Oncekey-Fence"), [])

    def test_a_different_body_under_the_same_key_is_refused_and_the_record_unharmed(self):
        first = self.post()
        self.assert_problem(self.post(body=b'{"amount":999}'), 422, "mismatch")
        self.assert_replay_of(first, self.post())
        self.assert_executed(1)

    def test_a_different_query_under_the_same_key_is_a_different_request(self):
        self.post("/charges?a=1")
        self.assert_problem(self.post("/charges?a=2"), 422, "mismatch")

    def test_the_same_key_on_another_path_or_method_is_another_operation_in_classic(self):
        self.assert_first(self.post("/charges"))
        self.assert_first(self.post("/refunds"))
        self.assert_first(self.client.request("PATCH", "/charges", key=self.key, body=b"{}"))
        self.assert_executed(3)

    def test_two_identical_bodies_with_different_keys_are_two_operations(self):
        self.assert_first(self.post(key=fresh_key()))
        self.assert_first(self.post(key=fresh_key()))
        self.assert_executed(2)

    def test_without_a_key_every_request_executes(self):
        self.assert_first(self.client.post("/charges"))
        self.assert_first(self.client.post("/charges"))
        self.assert_executed(2)

    def test_methods_outside_the_policy_ignore_the_key(self):
        for method in ("GET", "DELETE", "PUT"):
            self.assert_first(self.client.request(method, "/charges", key=self.key))
            self.assert_first(self.client.request(method, "/charges", key=self.key))
        self.assert_executed(6)

    def test_binary_bodies_are_replayed_byte_for_byte(self):
        body = bytes(range(256)) * 16
        self.upstream.will(answers(200, body, [("Content-Type", "application/octet-stream")]))
        self.assertEqual(self.post(body=body).body, body)
        self.assertEqual(self.upstream.last.body, body)
        self.assertEqual(self.post(body=body).body, body)

    def test_a_chunked_request_and_one_with_a_length_are_the_same_request(self):
        first = self.post(body=b"hello")
        with self.client.connect() as connection:
            connection.send(self.client.request_bytes("POST", "/charges", key=self.key,
                                                      headers=[("Transfer-Encoding", "chunked")]))
            connection.send(b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")
            self.assert_replay_of(first, connection.read_response())

    def test_an_empty_body_is_a_body_like_any_other(self):
        self.assert_replay_of(self.post(body=b""), self.post(body=b""))
        self.assert_executed(1)

    def test_client_errors_are_kept_and_server_errors_are_not(self):
        for status in (301, 400, 402, 404, 422, 401, 403, 408, 409, 425, 429, 500, 502, 503):
            kept = status in (301, 400, 402, 404, 422)
            with self.subTest(status=status):
                key = fresh_key()
                self.upstream.will(answers(status, b"no"))
                self.assert_first(self.post(key=key), status)
                again = self.post(key=key)
                self.assertEqual(again.replayed, kept)
                self.assertEqual(self.upstream.executions(key), 1 if kept else 2)

    def test_a_malformed_key_is_refused_and_nothing_executed(self):
        for key in ("", '""', "a b", "k" * 256, "kéy"):
            with self.subTest(key=key):
                self.assert_problem(self.post(key=key), 400, "key_invalid")
        self.assert_executed(0)

    def test_255_characters_make_a_key(self):
        self.assert_first(self.post(key=fresh_key().ljust(255, "k")))

    def test_a_quoted_key_is_the_same_as_a_bare_one(self):
        first = self.post(key=self.key)
        self.assert_replay_of(first, self.post(key=f'"{self.key}"'))

    def test_two_key_headers_are_refused_even_when_equal(self):
        for second in (self.key, "other"):
            self.assert_problem(self.post(headers=[("idempotency-key", second)]), 400, "key_repeated")
        self.assert_executed(0)

    def test_an_upstream_that_says_it_did_not_execute_frees_the_key(self):
        self.upstream.will(answers(400, b"busy", [("Oncekey-Outcome", "not-executed")]))
        first = self.post()
        self.assert_first(first, 400)
        self.assertFalse(first.has("Oncekey-Outcome"))
        self.assert_first(self.post(body=b"even another body"))
        fences = self.upstream.fences(self.key)
        self.assertGreater(fences[1], fences[0])


class ConcurrencyTest(GatewayTest):
    routes = [
        {"path": "/wait/*", "policy": "classic", "wait": f"{int(PATIENCE_SECONDS)}s", "max_waiters": 2},
        {"path": "/brief/*", "policy": "classic", "wait": "100ms"},
        {"path": "/*", "policy": "classic"},
    ]

    def test_a_retry_during_the_first_request_is_refused_and_told_when_to_come_back(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        running = self.post_in_background()
        gate.wait_for_arrival()
        refused = self.post()
        self.assert_problem(refused, 409, "in_progress")
        self.assert_retry_after(refused)
        gate.open()
        self.assert_replay_of(running.result(), self.post())
        self.assert_executed(1)

    def test_a_different_body_during_the_first_request_is_a_mismatch_not_in_progress(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        running = self.post_in_background()
        gate.wait_for_arrival()
        self.assert_problem(self.post(body=b"other"), 422, "mismatch")
        gate.open()
        self.assertEqual(running.result().body, b"done")

    def test_of_many_at_once_one_executes(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        herd = [self.post_in_background() for _ in range(16)]
        gate.wait_for_arrival()
        poll_until(lambda: sum(one.finished for one in herd) == 15, "the others to be refused")
        gate.open()
        statuses = sorted(one.result().status for one in herd)
        self.assertEqual(statuses, [201] + [409] * 15)
        self.assert_executed(1)

    def test_waiters_are_woken_by_the_answer(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        running = self.post_in_background("/wait/x")
        gate.wait_for_arrival()
        waiters = [self.post_in_background("/wait/x") for _ in range(2)]
        poll_until(lambda: self.gateway.metric("oncekey_waiters") == 2, "two waiters")
        gate.open()
        first = running.result()
        for waiter in waiters:
            self.assert_replay_of(first, waiter.result())
        self.assert_executed(1)

    def test_more_waiters_than_allowed_are_refused_at_once(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        running = self.post_in_background("/wait/x")
        gate.wait_for_arrival()
        waiters = [self.post_in_background("/wait/x") for _ in range(2)]
        poll_until(lambda: self.gateway.metric("oncekey_waiters") == 2, "two waiters")
        self.assert_problem(self.post("/wait/x"), 409, "in_progress")
        gate.open()
        for waiting in (running, *waiters):
            self.assertEqual(waiting.result().status, 201)

    def test_a_waiter_whose_time_is_up_is_refused(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        running = self.post_in_background("/brief/x")
        gate.wait_for_arrival()
        self.assert_problem(self.post("/brief/x"), 409, "in_progress")
        gate.open()
        running.result()

    def test_waiters_behind_a_released_key_elect_one_of_them_to_execute(self):
        gate = self.upstream.gate()
        self.upstream.will(held(gate, answers(500, b"broken")), answers(201, b"done"))
        running = self.post_in_background("/wait/x")
        gate.wait_for_arrival()
        waiters = [self.post_in_background("/wait/x") for _ in range(2)]
        poll_until(lambda: self.gateway.metric("oncekey_waiters") == 2, "two waiters")
        gate.open()
        self.assert_first(running.result(), 500)
        replies = [waiter.result() for waiter in waiters]
        self.assertEqual([reply.body for reply in replies], [b"done", b"done"])
        self.assertEqual(sorted(reply.replayed for reply in replies), [False, True])
        self.assert_executed(2)


class LeaseTest(GatewayTest):
    lease = f"{LEASE_SECONDS}s"
    routes = [
        {"path": "/hold/*", "policy": "classic", "lease": lease, "on_abandoned": "hold", "upstream_timeout": "60s"},
        {"path": "/unknown-hold/*", "policy": "classic", "on_unknown": "hold"},
        {"path": "/probe/*", "policy": "classic", "lease": lease, "on_abandoned": "probe",
         "probe": "GET /state?key={key}"},
        {"path": "/impatient/*", "policy": "classic", "lease": lease, "upstream_timeout": "300ms"},
        {"path": "/impatient-hold/*", "policy": "classic", "on_unknown": "hold", "upstream_timeout": "300ms"},
        {"path": "/expires/*", "policy": "classic", "lease": lease, "retention": "2s", "upstream_timeout": "1s"},
        {"path": "/*", "policy": "classic", "lease": lease, "upstream_timeout": "60s"},
    ]

    def let_the_lease_run_out(self):
        self.gateway.wait_until_leases_end(LEASE_SECONDS, key=self.key)

    def abandon(self, target):
        """Leaves the test's key claimed, sent, and without an outcome."""
        self.upstream.will(resets())
        self.assert_problem(self.post(target), 502, "upstream_unknown")

    def test_an_abandoned_key_is_taken_over_with_a_higher_fence(self):
        self.abandon("/charges")
        self.assert_problem(self.post(), 409, "in_progress")
        self.let_the_lease_run_out()
        self.assert_problem(self.post(body=b"other"), 422, "mismatch")
        first = self.post()
        self.assert_first(first)
        self.assert_replay_of(first, self.post())
        fences = self.upstream.fences(self.key)
        self.assertEqual(len(fences), 2)
        self.assertGreater(fences[1], fences[0])

    def test_a_takeover_that_is_not_executed_keeps_the_first_request_s_fingerprint(self):
        self.abandon("/charges")
        self.let_the_lease_run_out()
        self.upstream.will(answers(503, b"later"))
        self.assert_first(self.post(), 503)
        self.assert_problem(self.post(body=b"other"), 422, "mismatch")

    def assert_says_that_it_may_have_been_executed(self, problem):
        self.assertIn("may have been executed", problem["detail"])
        self.assertNotIn("Nothing was executed", problem["detail"])

    def test_a_takeover_that_cannot_reach_the_upstream_does_not_say_that_nothing_was_executed(self):
        self.abandon("/charges")
        self.let_the_lease_run_out()
        self.upstream.stop()
        try:
            problem = self.assert_problem(self.post(), 503, "upstream_unreachable")
        finally:
            self.upstream.start()
        self.assert_says_that_it_may_have_been_executed(problem)

    def test_a_probe_without_an_answer_does_not_say_that_nothing_was_executed(self):
        self.abandon("/probe/x")
        self.let_the_lease_run_out()
        self.upstream.will(resets())
        problem = self.assert_problem(self.post("/probe/x"), 503, "upstream_unreachable")
        self.assert_says_that_it_may_have_been_executed(problem)
        self.assertNotIn("No connection", problem["detail"])

    def test_a_held_key_is_not_called_worth_a_retry_by_the_first_answer_either(self):
        self.upstream.will(resets())
        problem = self.assert_problem(self.post("/unknown-hold/x"), 502, "upstream_unknown")
        self.assert_says_that_it_may_have_been_executed(problem)
        self.assertNotIn("again", problem["detail"])
        self.assertIn("operator", problem["detail"])

    def test_an_abandoned_key_is_held_where_the_route_says_so(self):
        self.abandon("/hold/x")
        self.let_the_lease_run_out()
        for _ in range(2):
            problem = self.assert_problem(self.post("/hold/x"), 409, "indeterminate")
            self.assertIn("retry", problem["detail"].lower())
        self.assert_problem(self.post("/hold/x", body=b"other"), 422, "mismatch")
        self.assert_executed(1)

    def test_an_unknown_outcome_is_held_at_once_where_the_route_says_so(self):
        self.abandon("/unknown-hold/x")
        self.assert_problem(self.post("/unknown-hold/x"), 409, "indeterminate")
        self.assert_executed(1)

    def test_an_upstream_that_does_not_answer_in_time_is_an_unknown_outcome(self):
        self.upstream.will(never_answers())
        self.assert_problem(self.post("/impatient-hold/x"), 504, "upstream_timeout")
        self.assert_problem(self.post("/impatient-hold/x"), 409, "indeterminate")
        self.upstream.will(never_answers())
        other = fresh_key()
        self.assert_problem(self.post("/impatient/x", key=other), 504, "upstream_timeout")
        self.assert_problem(self.post("/impatient/x", key=other), 409, "in_progress")
        self.assert_executed(2)

    def test_a_probe_that_finds_the_outcome_makes_it_the_answer(self):
        self.abandon("/probe/x")
        self.let_the_lease_run_out()
        self.upstream.will(answers(200, b'{"state":"charged"}'))
        found = self.post("/probe/x")
        self.assertEqual((found.status, found.body), (200, b'{"state":"charged"}'))
        self.assertEqual((self.upstream.last.method, self.upstream.last.target), ("GET", f"/state?key={self.key}"))
        again = self.post("/probe/x")
        self.assert_replay_of(found, again)
        self.assertEqual(self.upstream.executions(), 2)  # the call and the question

    def test_a_probe_that_finds_nothing_executes(self):
        self.abandon("/probe/x")
        self.let_the_lease_run_out()
        self.upstream.will(answers(404, b""), answers(201, b"done"))
        first = self.post("/probe/x")
        self.assertEqual((first.status, first.body), (201, b"done"))
        self.assert_replay_of(first, self.post("/probe/x"))

    def test_a_probe_that_is_no_help_holds(self):
        self.abandon("/probe/x")
        self.let_the_lease_run_out()
        self.upstream.will(answers(500, b""))
        self.assert_problem(self.post("/probe/x"), 409, "indeterminate")
        self.assert_problem(self.post("/probe/x"), 409, "indeterminate")
        self.assertEqual([request.method for request in self.upstream.received], ["POST", "GET"])

    def test_a_slow_call_keeps_its_lease_and_is_executed_once(self):
        gate = self.hold_at_upstream(answers(201, b"slow"))
        running = self.post_in_background()
        gate.wait_for_arrival()
        for _ in range(2):
            self.let_the_lease_run_out()
            self.assert_problem(self.post(), 409, "in_progress")
        gate.open()
        self.assert_replay_of(running.result(), self.post())
        self.assert_executed(1)

    def test_a_paused_gateway_renews_before_anybody_can_take_over(self):
        gate = self.hold_at_upstream(answers(201, b"first"))
        running = self.post_in_background()
        gate.wait_for_arrival()
        self.gateway.pause()
        try:
            time.sleep(LEASE_SECONDS + 0.5)  # a process that is paused cannot be asked
        finally:
            self.gateway.resume()
        self.upstream.always(answers(201, b"second"))
        racing = self.post()
        gate.open()
        final = {response.body for response in (racing, running.result(), self.post()) if response.status == 201}
        self.assertEqual(len(final), 1, "two clients saw different final answers")
        self.assertLessEqual(self.upstream.executions(), 2)

    def test_an_expired_record_is_a_first_request_again(self):
        first = self.post("/expires/x")
        again = poll_until(lambda: (reply := self.post("/expires/x", body=b"new")).status == 201 and reply,
                           "the expiry")
        self.assert_first(again)
        self.assertNotEqual(first.body, again.body)


class UnreachableUpstreamTest(unittest.TestCase):
    def test_a_key_is_free_again_when_the_upstream_could_not_be_reached(self):
        upstream = Upstream(port=free_port())
        for policy in ("classic", "stripe-v1"):
            with self.subTest(policy=policy), Gateway(upstream.url, [{"path": "/*", "policy": policy}]) as gateway:
                client = gateway.client()
                refused = client.post(key="k-1")
                self.assertEqual(refused.status, 503)
                self.assertGreaterEqual(int(refused.header("Retry-After")), 1)
                self.assertEqual(client.get("/unkeyed").status, 503)
                upstream.start()
                try:
                    first = client.post(key="k-1", body=b"another body, for nothing happened")
                    self.assertEqual((first.status, upstream.executions()), (201, 1))
                finally:
                    upstream.stop()


class LongAnswersTest(GatewayTest):
    routes = [{"path": "/*", "policy": "classic", "max_stored_body": "1KiB"}]

    def test_an_answer_of_exactly_the_limit_is_kept(self):
        self.upstream.will(answers(200, b"x" * 1024))
        self.assert_replay_of(self.post(), self.post())

    def test_a_long_answer_reaches_the_client_before_it_is_complete(self):
        gate = self.upstream.gate()
        self.upstream.will(streams(gate, [b"a" * 4000, b"b" * 10]))
        with self.client.connect() as connection:
            connection.send(self.client.request_bytes("POST", "/x", key=self.key, body=b"{}"))
            response = connection.read_head()
            pieces = connection.read_pieces(response)
            received = b""
            while len(received) < 4000:
                received += next(pieces)
            gate.open()
            received += b"".join(pieces)
        self.assertEqual(received, b"a" * 4000 + b"b" * 10)
        self.assert_problem(self.post("/x", body=b"{}"), 409, "answer_not_kept")
        self.assert_executed(1)

    def test_a_long_answer_cut_short_is_never_executed_again(self):
        self.upstream.will(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b"x" * 5000))
        try:
            self.assertNotEqual(self.post().status, 200)
        except (Malformed, ConnectionResetError):
            pass  # streamed, then cut
        self.assertEqual(self.post().status, 409)
        self.assert_executed(1)


class ModesAndSourcesTest(GatewayTest):
    routes = [
        {"path": "/observe/*", "policy": "classic", "mode": "observe"},
        {"path": "/observe-stripe/*", "policy": "stripe-v1", "mode": "observe"},
        {"path": "/observe-held/*", "policy": "stripe-v1", "mode": "observe"},
        {"path": "/required/*", "policy": "classic", "key": "required"},
        {"path": "/paypal/*", "policy": "classic", "key_from": ["header:PayPal-Request-Id"]},
        {"path": "/square/*", "policy": "classic",
         "key_from": ["header:Idempotency-Key", "body:/meta/idempotency_key"]},
        {"path": "/form/*", "policy": "classic", "key_from": ["form:token"]},
        {"path": "/alike/*", "policy": "classic", "key_from": ["fingerprint"], "window": "2s", "lease": "1s",
         "upstream_timeout": "1s"},
        {"path": "/canonical/*", "policy": "classic", "fingerprint": "canonical", "fingerprint_ignore": ["/sent_at"]},
        {"path": "/jwt/*", "policy": "classic", "scope": "jwt:sub", "jwt_unverified": True},
        {"path": "/cookie/*", "policy": "classic", "scope": "cookie:session"},
        {"path": "/global/*", "policy": "classic", "scope": "global"},
        {"path": "/parts/*", "policy": "classic", "scope": ["header:Authorization", "header:X-Sub-Account?"]},
        {"path": "/tagged/*", "policy": "classic", "fingerprint_headers": ["X-Version"]},
        {"path": "/classic/*", "policy": "classic"},
    ]

    def test_no_route_means_pass_through(self):
        self.assert_first(self.post("/elsewhere"))
        self.assert_first(self.post("/elsewhere"))
        self.assert_executed(2)

    def test_observing_changes_nothing_and_counts_what_would_have_happened(self):
        claims = self.gateway.metric("oncekey_store_seconds_count", call="claim")
        for body in (b"one", b"one", b"two"):
            self.assert_first(self.post("/observe/x", body=body))
            self.wait_until_settled("/observe/*")
        self.assert_executed(3)
        for decision in ("observed_execute", "observed_replay", "observed_mismatch"):
            poll_until(lambda decision=decision: self.gateway.metric(
                "oncekey_requests_total", route="/observe/*", decision=decision) == 1, f"one {decision}")
        self.assertEqual(self.gateway.metric("oncekey_store_seconds_count", call="claim"), claims + 3)

    def wait_until_settled(self, route):
        """Observation settles its record after the answer has gone out."""
        def running():
            keys = self.gateway.admin.get("/api/keys?state=in_progress").json()["keys"]
            return [key for key in keys if key["route"] == route]

        poll_until(lambda: not running(), f"the record under {route} to be settled")

    def observed(self, route, decision):
        return self.gateway.metric("oncekey_requests_total", route=route, decision=decision)

    def test_observing_heeds_what_the_upstream_says_of_a_retry(self):
        for told in (("Stripe-Should-Retry", "true"), ("Oncekey-Outcome", "not-executed")):
            self.upstream.will(answers(500, b"no", [told]))
            self.assertEqual(self.post("/observe-stripe/x").status, 500)
            self.wait_until_settled("/observe-stripe/*")
        self.post("/observe-stripe/x")
        poll_until(lambda: self.observed("/observe-stripe/*", "observed_execute") == 3, "three observed executions")

    def test_observing_holds_an_unknown_outcome_where_the_policy_does(self):
        self.upstream.will(resets())
        self.assertEqual(self.post("/observe-held/x").status, 502)
        self.wait_until_settled("/observe-held/*")
        self.assert_first(self.post("/observe-held/x"))
        poll_until(lambda: self.observed("/observe-held/*", "observed_refusal") == 1, "one observed refusal")

    def test_what_the_upstream_says_to_the_gateway_alone_reaches_no_client(self):
        for target in ("/observe/y", "/elsewhere", "/classic/y"):
            self.upstream.will(answers(200, b"ok", [("Oncekey-Outcome", "not-executed"), ("X-Other", "1")]))
            response = self.post(target)
            self.assertEqual((response.has("Oncekey-Outcome"), response.header("X-Other")), (False, "1"), target)

    def test_a_missing_key_is_refused_where_it_is_required(self):
        self.assert_problem(self.client.post("/required/x"), 400, "key_missing")
        self.assert_first(self.post("/required/x"))

    def test_the_key_may_come_from_another_header(self):
        headers = [("PayPal-Request-Id", self.key)]
        first = self.client.post("/paypal/x", headers=headers)
        self.assert_first(first)
        self.assert_replay_of(first, self.client.post("/paypal/x", headers=headers))
        self.assertEqual(self.upstream.last.header("PayPal-Request-Id"), self.key)
        self.assert_executed(1)

    def test_the_key_may_come_from_the_body(self):
        body = json.dumps({"meta": {"idempotency_key": self.key}, "amount": 1}).encode()
        first = self.client.post("/square/x", body=body)
        self.assert_replay_of(first, self.client.post("/square/x", body=body))
        self.assert_problem(self.client.post("/square/x", body=body.replace(b"1}", b"2}")), 422, "mismatch")
        self.assert_executed(1)

    def test_the_sources_of_a_key_are_tried_in_order(self):
        body = json.dumps({"meta": {"idempotency_key": self.key}}).encode()
        header_key = fresh_key()
        self.assert_first(self.client.post("/square/x", key=header_key, body=body))
        self.assert_first(self.client.post("/square/x", body=body))
        self.assert_executed(2)

    def test_the_key_may_come_from_a_form_field(self):
        form = [("Content-Type", "application/x-www-form-urlencoded")]
        body = f"amount=1&token={self.key}".encode()
        first = self.client.post("/form/x", body=body, headers=form)
        self.assert_replay_of(first, self.client.post("/form/x", body=body, headers=form))
        self.assert_executed(1)

    def test_requests_alike_within_the_window_are_one(self):
        body = self.key.encode()
        first = self.client.post("/alike/x", body=body)
        self.assert_replay_of(first, self.client.post("/alike/x", body=body))
        self.assert_first(self.client.post("/alike/x", body=b"unlike " + body))
        poll_until(lambda: not self.client.post("/alike/x", body=body).replayed, "the window to end")

    def test_the_order_of_members_does_not_count_where_the_fingerprint_is_canonical(self):
        first = self.post("/canonical/x", body=b'{"a":1,"b":[1,2],"sent_at":1}')
        self.assert_replay_of(first, self.post("/canonical/x", body=b'{ "b": [1, 2], "sent_at": 2, "a": 1 }'))
        self.assert_problem(self.post("/canonical/x", body=b'{"a":1,"b":[2,1],"sent_at":1}'), 422, "mismatch")

    def test_two_accounts_do_not_see_each_others_keys(self):
        alices = self.post("/classic/x")
        bobs = self.gateway.client("bob").post("/classic/x", key=self.key)
        self.assert_first(bobs)
        self.assertNotEqual(alices.body, bobs.body)
        other_body = self.gateway.client("carol").post("/classic/x", key=self.key, body=b"other")
        self.assert_first(other_body)
        self.assert_executed(3)

    def test_a_key_without_an_account_is_refused(self):
        self.assert_problem(self.post("/classic/x", authorization=False), 400, "principal_missing")
        self.assert_executed(0)

    def test_a_rotated_token_of_the_same_subject_finds_its_keys(self):
        def post_with(claims, signature="c2ln"):
            return self.post("/jwt/x", authorization=False,
                             headers=[("Authorization", "Bearer " + jwt(claims, signature))])

        first = post_with({"sub": "user-1", "exp": 1})
        self.assert_first(first)
        self.assert_replay_of(first, post_with({"sub": "user-1", "exp": 2}, "bmV3"))
        self.assert_first(post_with({"sub": "user-2", "exp": 1}))
        self.assert_problem(post_with({"exp": 1}), 400, "principal_missing")

    def test_the_account_may_be_a_cookie(self):
        def post_with(cookie):
            return self.post("/cookie/x", authorization=False, headers=[("Cookie", cookie)])

        first = post_with("theme=dark; session=s1")
        self.assert_replay_of(first, post_with("session=s1"))
        self.assert_first(post_with("session=s2"))
        self.assert_problem(post_with("theme=dark"), 400, "principal_missing")

    def test_a_global_scope_is_shared_by_all(self):
        first = self.post("/global/x")
        self.assert_replay_of(first, self.gateway.client("bob").post("/global/x", key=self.key))

    def test_connection_may_not_name_a_header_of_the_scope_or_of_the_fingerprint(self):
        for target, name in (("/parts/x", "X-Sub-Account"), ("/tagged/x", "X-Version")):
            for sent in ([(name, "1")], []):
                response = self.post(target, headers=[*sent, ("Connection", f"keep-alive, {name.lower()}")])
                self.assertIn(name, self.assert_problem(response, 400, "key_in_connection")["detail"])
        self.assert_executed(0)
        self.assert_first(self.post("/parts/x", headers=[("Connection", "x-version")]))

    def test_an_optional_part_of_the_scope_separates_accounts(self):
        first = self.post("/parts/x")
        sub = [("X-Sub-Account", "s1")]
        self.assert_first(self.post("/parts/x", headers=sub))
        self.assert_replay_of(first, self.post("/parts/x"))


class PersistenceTest(GatewayTest):
    store = "journal"
    routes = [{"path": "/*", "policy": "classic", "lease": f"{LEASE_SECONDS}s"}]

    def test_a_restart_keeps_replays_and_mismatches(self):
        first = self.post()
        self.gateway.stop()
        self.gateway.start()
        type(self).client = self.gateway.client()
        self.assert_replay_of(first, self.post())
        self.assert_problem(self.post(body=b"other"), 422, "mismatch")
        self.assert_executed(1)

    def test_a_kill_keeps_what_a_client_has_seen_and_frees_what_was_running_after_its_lease(self):
        seen_key, running_key = fresh_key(), fresh_key()
        seen = self.post(key=seen_key)
        gate = self.hold_at_upstream(answers(201, b"lost"))
        self.post_in_background(key=running_key)
        gate.wait_for_arrival()
        self.gateway.kill()
        self.gateway.start()
        type(self).client = self.gateway.client()
        self.assert_replay_of(seen, self.post(key=seen_key))
        final = poll_until(lambda: (reply := self.post(key=running_key)).status == 201 and reply, "the takeover")
        self.assert_replay_of(final, self.post(key=running_key))
        fences = self.upstream.fences(running_key)
        self.assertEqual(sorted(set(fences)), fences)

    def test_a_second_process_on_the_same_folder_is_refused_and_told_why(self):
        second = Gateway(self.upstream.url, self.routes, store=self.gateway.store)
        self.addCleanup(second.remove)
        self.assertNotEqual(second.start_expecting_refusal(), 0)
        self.assertRegex(second.log.lower(), "in use|another process|already|lock")
        self.assert_first(self.post())


if __name__ == "__main__":
    unittest.main()
