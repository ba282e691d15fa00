"""Long-running work: 202 and a status URL at once, the answer later, and nobody else's."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.gateway import Gateway
from support.upstream import Upstream, answers, held, resets
from support.waiting import poll_until

ASYNC = [("Prefer", "respond-async")]
LEASE_SECONDS = 1
PREFIX = "/.well-known/oncekey/operations/"


class AsyncTest(GatewayTest):
    def post_async(self, target="/orders", **options):
        return self.post(target, headers=[*ASYNC, *options.pop("headers", [])], **options)

    def assert_accepted(self, response):
        """The status URL."""
        self.assertEqual(response.status, 202, response)
        self.assertEqual(response.header("Preference-Applied"), "respond-async")
        self.assertEqual(response.json()["status"], "in_progress")
        self.assert_retry_after(response)
        url = response.header("Location")
        self.assertTrue(url.startswith(PREFIX), url)
        return url

    def fetch(self, url, client=None):
        return (client or self.client).get(url)

    def final(self, url):
        """What is there once it is no longer pending."""
        return poll_until(lambda: [reply for reply in [self.fetch(url)] if reply.status != 202 or reply.replayed],
                          "the final answer")[0]


class LongRunningTest(AsyncTest):
    routes = [
        {"path": "/orders*", "policy": "classic", "respond_async": True},
        {"path": "/long/*", "policy": "classic", "respond_async": True, "max_stored_body": 100},
        {"path": "/stripe/*", "policy": "stripe-v1", "respond_async": True},
        {"path": "/narrow/*", "policy": "classic", "respond_async": True, "max_in_flight": 1},
        {"path": "/*", "policy": "classic"},
    ]

    def test_the_answer_is_promised_at_once_and_fetched_later(self):
        gate = self.hold_at_upstream(answers(201, b'{"order":7}', [("Content-Type", "application/json"), ("X-A", "b")]))
        url = self.assert_accepted(self.post_async())
        gate.wait_for_arrival()
        pending = self.fetch(url)
        self.assertEqual(pending.status, 202)
        self.assertEqual(pending.json(), {"status": "in_progress", "location": url})
        self.assert_retry_after(pending)
        gate.open()
        answer = self.final(url)
        self.assertEqual((answer.status, answer.body), (201, b'{"order":7}'))
        self.assertTrue(answer.replayed)
        self.assertEqual((answer.header("X-A"), answer.header("Idempotency-Key")), ("b", self.key))
        self.assert_executed(1)

    def test_one_key_always_has_the_same_url(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        url = self.assert_accepted(self.post_async("/orders?expand=1"))
        self.assertEqual(self.assert_accepted(self.post_async("/orders?expand=1")), url)
        gate.open()
        self.final(url)
        self.assertEqual(self.assert_accepted(self.post_async("/orders?expand=1")), url)
        another = self.assert_accepted(self.post_async(key=fresh_key()))
        self.assertNotEqual(another, url)
        self.final(another)  # it has left the upstream to the next test
        self.assertEqual(self.upstream.executions(self.key), 1)

    def test_a_retry_without_the_preference_is_a_retry_like_any_other(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        url = self.assert_accepted(self.post_async())
        self.assert_problem(self.post("/orders"), 409, "in_progress")
        gate.open()
        self.final(url)
        self.assertEqual(self.post("/orders").body, b"done")
        self.assert_executed(1)

    def test_an_operation_begun_without_the_preference_can_be_asked_for_with_it(self):
        first = self.post("/orders")
        answer = self.final(self.assert_accepted(self.post_async()))
        self.assertEqual(answer.body, first.body)
        self.assert_executed(1)

    def test_another_body_under_the_key_is_a_mismatch(self):
        url = self.assert_accepted(self.post_async())
        self.final(url)
        self.assert_problem(self.post_async(body=b"other"), 422, "mismatch")

    def test_nobody_else_finds_anything_under_the_url(self):
        url = self.assert_accepted(self.post_async())
        self.final(url)
        mine, theirs = self.fetch(url), self.fetch(url, self.gateway.client("mallory"))
        self.assertEqual(mine.status, 201)
        self.assert_problem(theirs, 404, "operation_unknown")
        unknown = self.fetch(url[:-8] + "AAAAAAAA", self.gateway.client("mallory"))
        self.assertEqual(unknown.status, 404)
        self.assert_problem(self.client.get(url, authorization=False), 404, "operation_unknown")

    def test_what_is_no_status_url_is_not_found_and_not_forwarded(self):
        for target in (PREFIX, PREFIX + "x", PREFIX + "%00", PREFIX + "UE9TVCAvIGs", PREFIX + "AAAA/BBBB"):
            self.assertEqual(self.fetch(target).status, 404, target)
        self.assertEqual(self.client.post(PREFIX + "x").status, 405)
        self.assert_executed(0)

    def test_head_tells_the_same_without_the_body(self):
        url = self.assert_accepted(self.post_async())
        answer = self.final(url)
        head = self.client.request("HEAD", url)
        self.assertEqual((head.status, head.body), (answer.status, b""))

    def test_the_operation_does_not_need_its_client(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        with self.client.connect() as connection:
            url = self.assert_accepted(self.client.post("/orders", key=self.key, headers=ASYNC, connection=connection))
        gate.wait_for_arrival()
        gate.open()
        self.assertEqual(self.final(url).body, b"done")

    def test_the_upstream_is_not_asked_to_answer_later_in_its_turn(self):
        self.final(self.assert_accepted(self.post_async(headers=[("Prefer", "return=minimal")])))
        self.assertEqual(self.upstream.last.all("Prefer"), ["return=minimal"])
        self.key = fresh_key()
        self.final(self.assert_accepted(self.post_async(body=b"the body")))
        self.assertEqual(self.upstream.last.all("Prefer"), [])
        self.assertEqual(self.upstream.last.body, b"the body")
        self.assertEqual(self.upstream.last.key, self.key)

    def test_an_answer_that_is_not_kept_leaves_nothing_to_fetch_and_a_retry_executes(self):
        self.upstream.will(answers(500, b"broken"))
        url = self.assert_accepted(self.post_async())
        self.assert_problem(self.final(url), 404, "operation_unknown")
        self.assertEqual(self.assert_accepted(self.post_async()), url)
        self.assertEqual(self.final(url).status, 201)
        self.assertEqual(self.upstream.executions(self.key), 2)

    def test_an_answer_too_long_to_keep_is_said_to_be_so(self):
        self.upstream.will(answers(201, b"x" * 1000))
        url = self.assert_accepted(self.post_async("/long/x"))
        self.assert_problem(self.final(url), 409, "answer_not_kept")
        self.assert_executed(1)

    def test_an_unknown_outcome_is_held_and_told_in_the_policys_format(self):
        self.upstream.will(resets())
        url = self.assert_accepted(self.post_async("/stripe/x"))
        answer = self.final(url)
        self.assertEqual(answer.status, 409, answer)
        self.assertEqual(answer.json()["error"]["code"], "idempotency_outcome_unknown")

    def test_stripes_headers_are_there(self):
        accepted = self.post_async("/stripe/x")
        self.assertTrue(accepted.has("Request-Id"), accepted)
        answer = self.final(self.assert_accepted(accepted))
        self.assertTrue(answer.has("Request-Id") and answer.has("Original-Request"), answer)

    def test_the_preference_is_ignored_where_the_route_does_not_allow_it_or_there_is_no_key(self):
        self.assert_first(self.post_async("/charges"))
        self.assertEqual(self.upstream.last.all("Prefer"), ["respond-async"])
        self.assert_first(self.client.post("/orders", headers=ASYNC))

    def test_an_operation_without_its_client_still_takes_its_accounts_place(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        client = self.gateway.client(fresh_key("account"))
        self.assert_accepted(client.post("/narrow/x", key=self.key, headers=ASYNC))
        gate.wait_for_arrival()
        self.assert_problem(client.post("/narrow/x", key=fresh_key()), 429, "too_many_in_flight")
        gate.open()
        poll_until(lambda: client.post("/narrow/x", key=fresh_key()).status == 201, "the place")


class EndsTest(unittest.TestCase):
    """What becomes of operations without a client when the gateway ends, well or not."""

    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.key = fresh_key()

    def start(self, **route):
        gateway = Gateway(self.upstream.url, [{"path": "/*", "policy": "classic", "respond_async": True,
                                               "lease": f"{LEASE_SECONDS}s", **route}], store="journal")
        self.addCleanup(gateway.remove)
        return gateway.start()

    def begin(self, gateway):
        gate = self.upstream.gate()
        self.upstream.will(held(gate, answers(201, b"done")))
        accepted = gateway.client().post("/orders", key=self.key, headers=ASYNC)
        self.assertEqual(accepted.status, 202, accepted)
        gate.wait_for_arrival()
        return gate, accepted.header("Location")

    def test_a_drain_waits_for_them(self):
        gateway = self.start()
        gate, url = self.begin(gateway)
        gateway.signal(15)
        gateway.wait_for_log("event=draining")
        self.assertTrue(gateway.running)
        gate.open()
        self.assertEqual(gateway.wait(), 0)
        gateway.start()
        answer = gateway.client().get(url)
        self.assertEqual((answer.status, answer.body), (201, b"done"))
        self.assertEqual(self.upstream.executions(self.key), 1)

    def test_a_kill_leaves_an_abandoned_claim_and_the_retry_takes_it_over(self):
        gateway = self.start()
        gate, url = self.begin(gateway)
        gateway.kill()
        gate.open()
        gateway.start()
        self.assertIn(gateway.client().get(url).status, (202, 409))
        gateway.wait_until_leases_end(LEASE_SECONDS, key=self.key)
        abandoned = gateway.client().get(url)
        self.assertEqual(abandoned.status, 409, abandoned)
        self.assertTrue(abandoned.json()["type"].endswith(":abandoned"), abandoned)
        self.assertEqual(gateway.client().post("/orders", key=self.key, headers=ASYNC).header("Location"), url)
        answer = poll_until(lambda: [reply for reply in [gateway.client().get(url)] if reply.replayed], "the answer")[0]
        self.assertEqual(answer.status, 201)
        fences = self.upstream.fences(self.key)
        self.assertEqual(len(fences), 2)
        self.assertGreater(fences[1], fences[0])

    def test_a_kill_where_nothing_is_executed_twice_is_held(self):
        gateway = self.start(on_abandoned="hold")
        gate, url = self.begin(gateway)
        gateway.kill()
        gate.open()
        gateway.start()
        gateway.wait_until_leases_end(LEASE_SECONDS, key=self.key)
        retried = gateway.client().post("/orders", key=self.key, headers=ASYNC)
        self.assertEqual(retried.status, 409, retried)
        held_answer = gateway.client().get(url)
        self.assertTrue(held_answer.json()["type"].endswith(":indeterminate"), held_answer)
        self.assertEqual(self.upstream.executions(self.key), 1)


if __name__ == "__main__":
    unittest.main()
