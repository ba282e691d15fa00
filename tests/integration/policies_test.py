"""What the four policies look like on the wire: statuses, bodies and headers that clients depend on."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.upstream import answers, resets

PATHS = {"classic": "/classic/x", "ietf": "/ietf/x", "stripe-v1": "/v1/x", "stripe-v2": "/v2/x"}


class PoliciesTest(GatewayTest):
    routes = [
        {"path": "/strict/*", "policy": "ietf", "strict": True},
        {"path": "/ietf/*", "policy": "ietf"},
        {"path": "/v1/*", "policy": "stripe-v1"},
        {"path": "/v2/*", "policy": "stripe-v2"},
        {"path": "/teapot/*", "policy": "classic", "mismatch": 418, "in_progress": 423, "kept": "200-299,500",
         "methods": ["PUT"], "identity": "key"},
        {"path": "/*", "policy": "classic"},
    ]

    def while_running(self, target, call):
        """What `call` returns while the first request is still at the upstream."""
        gate = self.hold_at_upstream(answers(201, b"{}"))
        running = self.post_in_background(target)
        gate.wait_for_arrival()
        try:
            return call()
        finally:
            gate.open()
            running.result()


class ProblemPoliciesTest(PoliciesTest):
    def test_classic_and_ietf_mismatch_is_a_422_problem_that_says_what_to_do(self):
        for target in (PATHS["classic"], PATHS["ietf"]):
            with self.subTest(target=target):
                key = fresh_key()
                self.post(target, key=key)
                problem = self.assert_problem(self.post(target, key=key, body=b"other"), 422, "mismatch")
                self.assertIn("key", problem["detail"].lower())

    def test_classic_and_ietf_in_progress_is_a_409_problem_with_retry_after(self):
        for target in (PATHS["classic"], PATHS["ietf"]):
            with self.subTest(target=target):
                self.key = fresh_key()
                refused = self.while_running(target, lambda target=target: self.post(target))
                self.assert_problem(refused, 409, "in_progress")
                self.assert_retry_after(refused)

    def test_ietf_uses_the_drafts_titles(self):
        target = PATHS["ietf"]
        missing = self.client.post(target)
        self.assertEqual(self.assert_problem(missing, 400, "key_missing")["title"], "Idempotency-Key is missing")
        self.post(target)
        mismatch = self.post(target, body=b"other")
        self.assertEqual(self.assert_problem(mismatch, 422, "mismatch")["title"], "Idempotency-Key is already used")
        self.key = fresh_key()
        running = self.while_running(target, lambda: self.post(target))
        self.assertEqual(running.json()["title"], "A request is outstanding for this Idempotency-Key")

    def test_ietf_errors_link_to_the_published_policy(self):
        link = self.client.post(PATHS["ietf"]).header("Link")
        self.assertIn("/.well-known/idempotency", link)
        self.assertIn('rel="describedby"', link)

    def test_ietf_takes_a_structured_string_and_unescapes_it(self):
        target = PATHS["ietf"]
        first = self.post(target, key=f'"{self.key}"')
        self.assert_replay_of(first, self.post(target, key=f'"{self.key}";v=1'))
        self.assert_replay_of(first, self.post(target, key=self.key))
        tricky = self.post(target, key=f'"{self.key} \\"a\\" \\\\b"')
        self.assert_first(tricky)
        for broken in ('"open', '"bad\\escape"', '"a" "b"', '""', '"tab\t"'):
            with self.subTest(key=broken):
                self.assert_problem(self.post(target, key=broken), 400, "key_invalid")

    def test_strict_ietf_refuses_a_bare_key(self):
        self.assert_problem(self.post("/strict/x", key=self.key), 400, "key_invalid")
        self.assert_first(self.post("/strict/x", key=f'"{self.key}"'))

    def test_ietf_counts_the_path_as_part_of_the_request_not_of_the_identity(self):
        self.post("/ietf/a")
        self.assert_problem(self.post("/ietf/b"), 422, "mismatch")

    def test_every_cell_of_a_policy_can_be_set_by_a_route(self):
        def put(body=b"{}", path="/teapot/a"):
            return self.client.request("PUT", path, key=self.key, body=body)

        self.upstream.will(answers(500, b"kept"))
        first = put()
        self.assert_replay_of(first, put())
        self.assertEqual(put(body=b"other").status, 418)
        self.assertEqual(put(path="/teapot/b").status, 418)
        self.assert_first(self.client.post("/teapot/a", key=self.key))

    def test_the_policies_are_published(self):
        response = self.client.get("/.well-known/idempotency")
        self.assertEqual(response.status, 200)
        self.assertIn("json", response.header("Content-Type"))
        text = response.body.decode()
        for word in ("Idempotency-Key", "structured-string", "24h", "30d"):
            self.assertIn(word, text)
        for hidden in ("/ietf/*", "Authorization"):
            self.assertNotIn(hidden, text)
        self.assertEqual(self.upstream.received, [])
        response.json()


class StripePoliciesTest(PoliciesTest):
    def assert_stripe_error(self, response, status, kind, code=None):
        self.assertEqual(response.status, status, response)
        self.assertTrue(response.header("Content-Type").startswith("application/json"))
        error = response.json()["error"]
        self.assertEqual(error["type"], kind)
        self.assertEqual(error.get("code"), code)
        return error

    def test_mismatch_is_400_idempotency_error_in_stripes_words(self):
        for policy in ("stripe-v1", "stripe-v2"):
            with self.subTest(policy=policy):
                key = fresh_key()
                self.post(PATHS[policy], key=key)
                refused = self.post(PATHS[policy], key=key, body=b'{"amount":1}')
                error = self.assert_stripe_error(refused, 400, "idempotency_error")
                self.assertEqual(
                    error["message"],
                    "Keys for idempotent requests can only be used with the same parameters they were first used with. "
                    f"Try using a key other than '{key}' if you meant to execute a different request.")

    def test_in_progress_is_409_key_in_use_and_may_be_retried(self):
        for policy in ("stripe-v1", "stripe-v2"):
            with self.subTest(policy=policy):
                self.key = fresh_key()
                refused = self.while_running(PATHS[policy], lambda policy=policy: self.post(PATHS[policy]))
                error = self.assert_stripe_error(refused, 409, "invalid_request_error", "idempotency_key_in_use")
                self.assertIn(self.key, error["message"])
                self.assertEqual(refused.header("Stripe-Should-Retry"), "true")

    def test_a_first_answer_and_its_replay_carry_stripes_headers(self):
        first = self.post(PATHS["stripe-v1"])
        self.assertEqual(first.header("Idempotency-Key"), self.key)
        self.assertTrue(first.header("Request-Id").startswith("req_"))
        self.assertEqual(first.header("Original-Request"), first.header("Request-Id"))
        again = self.post(PATHS["stripe-v1"])
        self.assert_replay_of(first, again)
        self.assertEqual(again.header("Original-Request"), first.header("Request-Id"))
        self.assertNotEqual(again.header("Request-Id"), first.header("Request-Id"))
        self.assertEqual(again.header("Stripe-Should-Retry"), "false")

    def test_an_upstreams_own_request_id_is_kept_as_the_original(self):
        self.upstream.will(answers(200, b"{}", [("Request-Id", "req_upstream")]))
        self.post(PATHS["stripe-v1"])
        again = self.post(PATHS["stripe-v1"])
        self.assertEqual(again.header("Original-Request"), "req_upstream")
        self.assertNotEqual(again.header("Request-Id"), "req_upstream")

    def test_v1_keeps_and_replays_a_500_and_says_not_to_retry(self):
        self.upstream.will(answers(500, b'{"error":{}}'))
        first = self.post(PATHS["stripe-v1"])
        self.assertEqual((first.status, first.header("Stripe-Should-Retry")), (500, "false"))
        self.assert_replay_of(first, self.post(PATHS["stripe-v1"]))
        self.assert_executed(1)

    def test_v1_keeps_all_but_401_409_429_and_what_asks_to_be_retried(self):
        should_retry = [("Stripe-Should-Retry", "true")]
        for status, headers, kept in ((400, [], True), (402, [], True), (404, [], True), (503, [], True),
                                      (401, [], False), (409, [], False), (429, [], False),
                                      (500, should_retry, False), (400, should_retry, False)):
            with self.subTest(status=status, headers=headers):
                key = fresh_key()
                self.upstream.will(answers(status, b"{}", headers))
                self.post(PATHS["stripe-v1"], key=key)
                self.assertEqual(self.post(PATHS["stripe-v1"], key=key).replayed, kept)

    def test_v2_keeps_success_and_executes_failures_again(self):
        for status, kept in ((200, True), (201, True), (302, True), (400, False), (404, False), (500, False)):
            with self.subTest(status=status):
                key = fresh_key()
                self.upstream.will(answers(status, b"{}"))
                self.post(PATHS["stripe-v2"], key=key)
                self.assertEqual(self.post(PATHS["stripe-v2"], key=key).replayed, kept)

    def test_v2_covers_delete_and_v1_does_not(self):
        for policy, executed in (("stripe-v2", 1), ("stripe-v1", 2)):
            with self.subTest(policy=policy):
                self.upstream.reset()
                key = fresh_key()
                for _ in range(2):
                    self.client.request("DELETE", PATHS[policy], key=key)
                self.assert_executed(executed)

    def test_parameters_compare_canonically_in_forms_and_json(self):
        form = [("Content-Type", "application/x-www-form-urlencoded")]
        first = self.post(PATHS["stripe-v1"], body=b"amount=100&currency=usd", headers=form)
        self.assert_replay_of(first, self.post(PATHS["stripe-v1"], body=b"currency=usd&amount=100", headers=form))
        key = fresh_key()
        first = self.post(PATHS["stripe-v2"], key=key, body=b'{"a":1,"b":2}')
        self.assert_replay_of(first, self.post(PATHS["stripe-v2"], key=key, body=b'{"b":2,"a":1}'))

    def test_v1_refuses_the_key_on_another_endpoint_and_v2_takes_it_as_another_operation(self):
        self.post("/v1/charges")
        self.assert_stripe_error(self.post("/v1/refunds"), 400, "idempotency_error")
        key = fresh_key()
        self.assert_first(self.post("/v2/charges", key=key))
        self.assert_first(self.post("/v2/refunds", key=key))

    def test_quotes_are_part_of_a_raw_key(self):
        self.assert_first(self.post(PATHS["stripe-v1"], key=self.key))
        self.assert_first(self.post(PATHS["stripe-v1"], key=f'"{self.key}"'))

    def test_connected_accounts_are_scopes_of_their_own(self):
        self.assert_first(self.post(PATHS["stripe-v1"]))
        self.assert_first(self.post(PATHS["stripe-v1"], headers=[("Stripe-Account", "acct_1")]))

    def test_v1_holds_an_unknown_outcome_and_v2_leaves_it_to_the_lease(self):
        self.upstream.will(resets())
        self.assertEqual(self.post(PATHS["stripe-v1"]).status, 502)
        held = self.post(PATHS["stripe-v1"])
        self.assertEqual(held.status, 409)
        self.assertNotEqual(held.header("Stripe-Should-Retry"), "true")
        key = fresh_key()
        self.upstream.will(resets())
        self.assertEqual(self.post(PATHS["stripe-v2"], key=key).status, 502)
        left_to_the_lease = self.post(PATHS["stripe-v2"], key=key)
        self.assert_stripe_error(left_to_the_lease, 409, "invalid_request_error", "idempotency_key_in_use")
        self.assert_executed(2)


if __name__ == "__main__":
    unittest.main()
