"""Two gateways on one store, on each kind of shared store: what they agree on, and what happens when it fails."""

import json
import os
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.backends import ClusterBackend, PgBouncerBackend, PostgresBackend, RedisBackend
from support.cases import fresh_key
from support.gateway import Gateway, run_cli
from support.shared_cases import SharedStoreTest
from support.upstream import answers, held, resets
from support.waiting import PATIENCE_SECONDS, GaveUpWaiting, poll_until

BINARY = bytes(range(256)) * 3
# A refusal by an open breaker needs no answer of the store: far less than the store's time-outs.
AT_ONCE_SECONDS = 1.5


class TwoGateways:
    """One store, and both gateways well."""

    def test_a_storm_on_both_executes_once(self):
        def one(gateway):
            return lambda: self.post(gateway)

        replies = self.together([one(gateway) for gateway in (self.here, self.there) * 16])
        self.assert_executed(1)
        firsts = [reply for reply in replies if reply.status == 201 and not reply.replayed]
        others = [reply for reply in replies if reply not in firsts]
        self.assertEqual(len(firsts), 1, replies)
        for reply in others:
            if reply.status != 409:
                self.assert_replay_of(firsts[0], reply)

    def test_storms_on_many_keys_execute_each_once(self):
        keys = [fresh_key("storm") for _ in range(12)]
        replies = self.together([
            (lambda key=key, gateway=gateway: (key, self.post(gateway, key=key)))
            for key in keys for gateway in (self.here, self.there) * 3])
        for key in keys:
            self.assertEqual(self.upstream.executions(key), 1)
            bodies = {reply.body for its, reply in replies if its == key and reply.status == 201}
            self.assertEqual(len(bodies), 1, bodies)

    def test_operators_of_each_see_both(self):
        names = {gateway.admin.get("/api/overview").json()["gateway"] for gateway in (self.here, self.there)}
        for gateway in (self.here, self.there):
            poll_until(lambda gateway=gateway: names <= {
                each["name"] for each in gateway.admin.get("/api/overview").json()["gateways"]
                if each["state"] == "ready"}, "both gateways to be seen")

    def test_each_replays_the_others_answer(self):
        for first, second in ((self.here, self.there), (self.there, self.here)):
            self.key = fresh_key()
            self.upstream.will(answers(201, BINARY, [("Content-Type", "image/x"), ("X-Made", "a"), ("X-Made", "b")]))
            made = self.post(first)
            self.assert_first(made)
            again = self.post(second)
            self.assert_replay_of(made, again)
            self.assertEqual(again.body, BINARY)
            self.assertEqual(again.all("X-Made"), ["a", "b"])
            self.assert_executed(1)

    def test_a_large_answer_is_the_same_elsewhere(self):
        body = BINARY * 700
        self.upstream.will(answers(200, body))
        self.post(self.here)
        again = self.post(self.there)
        self.assertTrue(again.replayed)
        self.assertEqual(again.body, body)

    def test_another_body_is_a_mismatch_elsewhere(self):
        self.post(self.here)
        self.assertEqual(self.post(self.there, body=b"other").status, 422)
        self.assert_executed(1)

    def test_what_runs_here_is_in_progress_there(self):
        gate = self.hold_at_upstream(answers(201, b"made"))
        running = self.post_in_background(self.here)
        gate.wait_for_arrival()
        refused = self.post(self.there)
        self.assertEqual(refused.status, 409)
        self.assertLessEqual(int(refused.header("Retry-After")), 10, "by the age of the claim, not by its lease of 30 s")
        gate.open()
        self.assert_replay_of(running.result(), self.post(self.there))
        self.assert_executed(1)

    def test_who_waits_there_is_woken_by_the_answer_here(self):
        gate = self.hold_at_upstream(answers(201, b"made"))
        running = self.post_in_background(self.here, "/wait/x")
        gate.wait_for_arrival()
        waiting = [self.post_in_background(self.there, "/wait/x") for _ in range(3)]
        poll_until(lambda: self.there.metric("oncekey_waiters") >= 3, "three to wait")
        gate.open()
        first = running.result()
        for one in waiting:
            self.assert_replay_of(first, one.result())
        self.assert_executed(1)

    def test_who_waits_there_executes_when_it_turns_out_not_to_have_happened_here(self):
        gate = self.hold_at_upstream(answers(429, b"not now"))  # a rate limit frees the key
        running = self.post_in_background(self.here, "/wait/x")
        gate.wait_for_arrival()
        waiting = self.post_in_background(self.there, "/wait/x")
        poll_until(lambda: self.there.metric("oncekey_waiters") >= 1, "one to wait")
        self.upstream.will(answers(201, b"made"))
        gate.open()
        self.assertEqual(running.result().status, 429)
        self.assertEqual(waiting.result().body, b"made")

    def test_a_key_that_expires_again_and_again_is_executed_once_each_time(self):
        """Every one and a half seconds it is new, and at some of these moments the store begins another bucket of records."""
        arrived, sent = [], {}

        def execute(exchange):
            arrived.append(time.monotonic())
            answers(201, str(len(arrived)))(exchange)

        self.upstream.always(execute)
        until = time.monotonic() + 5

        def hammer(gateway):
            while time.monotonic() < until or len(arrived) < 3:
                now = time.monotonic()
                answer = self.post(gateway, "/expiring/x")
                self.assertIn(answer.status, (201, 409))
                if answer.status == 201 and not answer.replayed:
                    sent[int(answer.body)] = now

        self.together([(lambda gateway=gateway: hammer(gateway)) for gateway in (self.here, self.there) * 15])
        self.assertEqual(sorted(sent), list(range(1, len(arrived) + 1)))
        # A record is made after its request was sent, and the next one, which is made when it has expired, before the
        # next request arrives.
        gaps = [arrived[number] - sent[number] for number in range(1, len(arrived))]
        self.assertGreater(min(gaps), 1.4, gaps)

    def test_an_operator_settles_here_what_was_held_there(self):
        self.upstream.will(resets())
        self.post(self.there, "/hold/x")

        listed = run_cli("keys", "list", "--json", "--state", "indeterminate", "--admin", self.here.admin_text)
        records = json.loads(listed.stdout)
        records = records if isinstance(records, list) else records["keys"]
        record = next(record for record in records if record["key"] == self.key)
        done = run_cli("keys", "release", record["id"], "--reason", "ticket 42", "--yes", "--admin",
                       self.here.admin_text)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_first(self.post(self.there, "/hold/x"))

    def test_what_waits_is_counted_everywhere_and_found_by_key_and_account(self):
        self.upstream.will(resets())
        self.post(self.there, "/hold/x")
        self.assertGreaterEqual(self.wait_until_counted(), 1)
        listed = json.loads(run_cli("keys", "list", "--json", "--admin", self.here.admin_text).stdout)
        self.assertIn(self.key, [key["key"] for key in listed["keys"] if key["waits_for"] == "operator"])
        self.assertEqual(listed["keys"][0]["waits_for"], "operator", "those that wait come first")
        done = run_cli("keys", "release", "--key", self.key, "--principal", "Bearer alice", "--reason", "ticket 42",
                       "--yes", "--admin", self.here.admin_text)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.wait_until_counted()

    def wait_until_counted(self):
        """Until both gateways count the indeterminate keys that there are; tests before this one may have left some."""
        listed = json.loads(run_cli("keys", "list", "--json", "--state", "indeterminate", "--admin",
                                    self.here.admin_text).stdout)
        there_are = len(listed["keys"])
        # A gateway looks again after twenty times as long as its last look took, which on a busy machine is seconds.
        for gateway in (self.here, self.there):
            poll_until(lambda gateway=gateway: gateway.metric("oncekey_keys", state="indeterminate") == there_are,
                       f"{there_are} keys to be counted", seconds=4 * PATIENCE_SECONDS)
        return there_are


class Deaths:
    """One of the two dies or sleeps; the other goes on. Each test has a gateway of its own to lose."""

    def setUp(self):
        super().setUp()
        self.doomed = Gateway(self.upstream.url, self.routes, store=self.store_url())
        self.addCleanup(self.doomed.remove)
        self.doomed.start()

    def test_a_killed_gateways_key_is_taken_over(self):
        gate = self.hold_at_upstream(answers(201, b"lost"))
        self.post_in_background(self.doomed, "/brief/x")
        gate.wait_for_arrival()
        self.doomed.kill()
        self.upstream.always(answers(201, b"made"))
        settled = self.post_until_settled(self.here, "/brief/x")
        self.assertEqual(settled.body, b"made")
        self.assert_executed(2)
        fences = self.upstream.fences(self.key)
        self.assertLess(fences[0], fences[1])
        self.assert_replay_of(settled, self.post(self.there, "/brief/x"))

    def test_a_killed_gateways_key_is_held_where_the_policy_says_so(self):
        gate = self.hold_at_upstream(answers(201, b"lost"))
        self.post_in_background(self.doomed, "/hold/x")
        gate.wait_for_arrival()
        self.doomed.kill()
        poll_until(lambda: b"idempotency_outcome_unknown" in self.post(self.here, "/hold/x").body, "it to be held",
                   pause=0.1)
        self.assertIn(b"idempotency_outcome_unknown", self.post(self.there, "/hold/x").body)
        self.assert_executed(1)

    def test_a_gateway_that_slept_over_its_lease_gives_the_answer_that_was_given(self):
        gate = self.upstream.gate()
        self.upstream.will(held(gate, answers(201, b"too late")))
        sleeping = self.post_in_background(self.doomed, "/brief/x")
        gate.wait_for_arrival()
        self.doomed.pause()
        try:
            self.upstream.always(answers(201, b"made"))
            given = self.post_until_settled(self.here, "/brief/x")
            self.assertEqual(given.body, b"made")
            gate.open()
        finally:
            self.doomed.resume()
        late = sleeping.result()
        self.assertNotIn(b"too late", late.body)
        if late.status < 300:
            self.assert_replay_of(given, late)
        for gateway in (self.here, self.there, self.doomed):
            self.assert_replay_of(given, self.post(gateway, "/brief/x"))
        self.assert_executed(2)

    def test_a_gateway_that_slept_over_its_lease_may_settle_what_was_only_held(self):
        gate = self.upstream.gate()
        self.upstream.will(held(gate, answers(201, b"made")))
        sleeping = self.post_in_background(self.doomed, "/hold/x")
        gate.wait_for_arrival()
        self.doomed.pause()
        try:
            poll_until(lambda: b"idempotency_outcome_unknown" in self.post(self.here, "/hold/x").body, "it to be held",
                       pause=0.1)
            gate.open()
        finally:
            self.doomed.resume()
        late = sleeping.result()
        again = self.post(self.here, "/hold/x")
        self.assert_executed(1)
        if late.status == 201:
            self.assertEqual(late.body, b"made")
            self.assert_replay_of(late, again)
        else:
            self.assertIn(b"idempotency_outcome_unknown", again.body)


class Outages:
    """The store's server goes and comes back; the gateways stay."""

    def test_while_it_is_gone_nothing_is_executed_and_then_all_goes_on(self):
        first = self.post(self.here)
        self.backend.crash()
        try:
            lost = fresh_key("outage")
            for gateway in (self.here, self.there):
                self.assert_store_unavailable(self.post(gateway, key=lost))
                self.wait_until_not_ready(gateway)
            self.assertEqual(self.upstream.executions(lost), 0)
        finally:
            self.backend.start_again()
        for gateway in (self.here, self.there):
            self.wait_until_ready(gateway)
            # A cluster is ready with its first server; that of the key may be back a little later.
            self.assert_replay_of(first, self.post_until_settled(gateway, "/charges"))
        self.assert_executed(1)
        self.assert_first(self.post_until_settled(self.here, "/charges", key=lost))
        self.assertEqual(self.upstream.executions(lost), 1)

    def test_an_answer_that_comes_while_it_is_gone_is_written_when_it_is_back(self):
        gate = self.hold_at_upstream(answers(201, b"made"))
        running = self.post_in_background(self.here)
        gate.wait_for_arrival()
        self.backend.crash()
        gate.open()
        self.backend.start_again()
        answer = running.result()
        self.wait_until_ready(self.there)
        if answer.status == 201:
            self.assertEqual(answer.body, b"made")
            self.assert_replay_of(answer, self.post(self.there))
        self.assert_executed(1)

    def test_who_waits_over_an_outage_still_gets_the_answer(self):
        gate = self.hold_at_upstream(answers(201, b"made"))
        running = self.post_in_background(self.here, "/wait/x")
        gate.wait_for_arrival()
        waiting = self.post_in_background(self.there, "/wait/x")

        def one_waits():
            # After the outage of another test the key's own server may be back last: then it is asked again.
            nonlocal waiting
            if waiting.finished and waiting.result().status == 503:
                waiting = self.post_in_background(self.there, "/wait/x")
            return self.there.metric("oncekey_waiters") >= 1

        poll_until(one_waits, "one to wait")
        self.backend.end_connections()
        for gateway in (self.here, self.there):
            self.wait_until_ready(gateway)
        gate.open()
        first = running.result()
        self.assert_first(first)
        answer = waiting.result()
        if answer.status == 201:
            self.assert_replay_of(first, answer)
        else:
            self.assert_store_unavailable(answer)
        self.assert_executed(1)

    def test_connections_ended_under_load_change_nothing(self):
        def trouble(crowd):
            for _ in range(25):
                crowd.wait_for_answers(4)
                self.backend.end_connections()

        self.under_load(trouble)


class LostAnswers:
    """Connections cut between a call and its answer. Everything goes through the proxy."""

    through_proxy = True

    def test_a_claim_whose_answer_is_lost_is_owned(self):
        self.backend.proxy.lose_answer(self.key.encode(), self.backend.answered)
        before = self.backend.proxy.fired
        answer = self.post(self.here)
        self.assertEqual(self.backend.proxy.fired, before + 1, "the answer of the claim was to be lost")
        self.assert_first(answer)
        self.assert_executed(1)
        self.assert_replay_of(answer, self.post(self.there))

    def test_a_claim_that_is_lost_on_its_way_is_made_again(self):
        self.backend.proxy.lose_request(self.key.encode())
        before = self.backend.proxy.fired
        answer = self.post(self.here)
        self.assertEqual(self.backend.proxy.fired, before + 1)
        self.assert_first(answer)
        self.assert_executed(1)

    def test_a_completion_whose_answer_is_lost_is_done(self):
        self.lose_the_completion(lambda marker: self.backend.proxy.lose_answer(marker, self.backend.answered))

    def test_a_completion_that_is_lost_on_its_way_is_made_again(self):
        self.lose_the_completion(self.backend.proxy.lose_request)

    def lose_the_completion(self, lose):
        marker = f"answer-to-{self.key}".encode()
        lose(marker)
        before = self.backend.proxy.fired
        self.upstream.will(answers(201, marker))
        answer = self.post(self.here)
        self.assertEqual(self.backend.proxy.fired, before + 1)
        self.assert_first(answer)
        self.assertEqual(answer.body, marker)
        self.assert_replay_of(answer, self.post(self.there))
        self.assert_executed(1)

    def test_several_lost_in_a_row_end_in_one_execution(self):
        for _ in range(3):
            self.backend.proxy.lose_answer(self.key.encode(), self.backend.answered)
        self.assert_first(self.post_until_settled(self.here, "/charges"))
        self.assert_executed(1)


class StalledStore:
    """A store that takes bytes and says nothing."""

    through_proxy = True
    url_settings = "call_timeout=1s"

    def tearDown(self):
        self.backend.proxy.go_on()

    def test_replays_from_the_cache_are_not_stalled_and_claims_are_soon_refused(self):
        first = self.post(self.here)
        self.backend.proxy.stall()
        claims = [self.post_in_background(self.here, key=fresh_key("stalled")) for _ in range(8)]
        self.assert_replay_of(first, self.post(self.here))  # the store has not given it
        for claim in claims:
            self.assert_store_unavailable(claim.result())
        self.wait_until_not_ready(self.here)
        self.assert_refused_at_once(lambda: fresh_key("stalled"))
        self.assert_replay_of(first, self.post(self.here))
        self.assertEqual(self.upstream.executions(), 1)
        self.backend.proxy.go_on()
        self.wait_until_ready(self.here)
        self.key = fresh_key()
        self.assert_first(self.post_until_settled(self.here, "/charges"))

    def test_what_is_refused_to_connect_is_refused_at_once(self):
        self.backend.proxy.refuse()
        try:
            for _ in range(6):
                self.assert_store_unavailable(self.post(self.here))
            self.assert_refused_at_once(lambda: self.key)
        finally:
            self.backend.proxy.allow()
        self.wait_until_ready(self.here)
        self.assert_first(self.post_until_settled(self.here, "/charges"))
        self.assert_executed(1)

    def assert_refused_at_once(self, key):
        def refused_at_once():
            try:
                return self.post_in_background(self.here, key=key()).result(AT_ONCE_SECONDS)
            except GaveUpWaiting:
                return None  # let through to see whether the store is back, or the machine is busy

        self.assert_store_unavailable(poll_until(refused_at_once, "a refusal at once"))

    def test_a_slow_store_is_only_slow(self):
        self.backend.proxy.delay(0.1)
        try:
            self.assert_first(self.post(self.here))
        finally:
            self.backend.proxy.delay(0)
        self.assertTrue(self.post(self.there).replayed)


class LostMemory:
    """The store forgets, and nobody executes again for it until an operator has said so."""

    def test_a_store_that_forgot_is_noticed_before_anything_is_executed_again(self):
        self.backend.remember()
        self.wait_until_ready(self.here)
        self.wait_until_ready(self.there)
        self.post(self.here)
        self.wait_for_ticks(self.backend)
        self.backend.forget()
        # Not in the cache of the other gateway: only the store could have known of it.
        self.assert_store_unavailable(self.post(self.there))
        for gateway in (self.here, self.there):
            reason = self.wait_until_not_ready(gateway)
            poll_until(lambda gateway=gateway: "accept-loss" in self.wait_until_not_ready(gateway),
                       f"the gateway to say what to do, not {reason!r}")
            self.assert_store_unavailable(self.post(gateway, key=fresh_key("after")))
        self.assert_executed(1)
        self.a_gateway_started_now_refuses_too()

        accepted = run_cli("store", "accept-loss", "--store", self.backend.url, "--yes")
        self.assertEqual(accepted.returncode, 0, accepted.stderr)
        for gateway in (self.here, self.there):
            self.wait_until_ready(gateway)
        self.key = fresh_key("accepted")
        first = self.post(self.here)
        self.assert_first(first)
        self.assert_replay_of(first, self.post(self.there))
        self.post(self.here)

    def a_gateway_started_now_refuses_too(self):
        late = Gateway(self.upstream.url, self.routes, store=self.store_url())
        self.addCleanup(late.remove)
        late.start()
        self.assert_store_unavailable(self.post(late, key=fresh_key("late")))
        self.assertIn("accept-loss", self.wait_until_not_ready(late))
        late.stop()

    def test_the_loss_is_not_accepted_without_a_yes(self):
        refused = run_cli("store", "accept-loss", "--store", self.backend.url, stdin="")
        self.assertNotEqual(refused.returncode, 0)


class Examination:
    """What the store can promise is found out and told."""

    def test_durability_is_in_the_log_in_readyz_and_a_metric(self):
        self.assertIn("durability=power", self.here.wait_for_log("event=listening"))
        self.assertEqual(self.here.admin.get("/readyz").json()["durability"], "power")
        self.assertEqual(self.here.metric("oncekey_store_durability"), 2)

    def test_what_is_required_and_given_starts(self):
        with Gateway(self.upstream.url, self.routes, store=self.store_url(), require_durability="power") as gateway:
            self.assert_first(self.post(gateway))

    def test_rules_that_would_forget_keys_are_refused_and_the_store_can_be_examined(self):
        gateway = Gateway(self.upstream.url, self.routes, store=self.store_url(), scope="header:X-Tenant")
        self.addCleanup(gateway.remove)
        self.assertEqual(gateway.start_expecting_refusal(), 1)
        self.assertIn("route /brief/* (PATCH,POST): scope was header:authorization and is header:x-tenant", gateway.log)
        examined = run_cli("doctor", "--upstream", self.upstream.url, "--store", self.store_url(), "--listen",
                           "127.0.0.1:0", "--admin", "127.0.0.1:0")
        self.assertRegex(examined.stdout, "(?m)^ok +store .* can be reached$")

    def test_a_store_that_is_not_there_is_refused_with_its_address_and_without_its_password(self):
        scheme, _, rest = self.store_url().partition("://")
        address = rest.rpartition("@")[2].partition("/")[0].partition(",")[0]
        host = address.partition(":")[0]
        gateway = Gateway(self.upstream.url, self.routes, store=f"{scheme}://somebody:secret@{host}:1/0")
        self.addCleanup(gateway.remove)
        self.assertNotEqual(gateway.start_expecting_refusal(), 0)
        self.assertIn(f"{host}:1", gateway.log)
        self.assertNotIn("secret", gateway.log)


def on_each_store(*cases):
    """A class for each store and each of the cases: OnRedisTwoGateways and so on."""
    for backend, word in ((PostgresBackend, "Postgres"), (RedisBackend, "Redis"), (ClusterBackend, "Cluster")):
        for case in cases:
            name = f"On{word}{case.__name__}"
            globals()[name] = type(name, (case, SharedStoreTest),
                                   {"backend_type": backend, "__module__": __name__, "__doc__": case.__doc__})


on_each_store(TwoGateways, Deaths, Outages, LostAnswers, StalledStore, LostMemory, Examination)


class ThroughPgBouncerTwoGateways(TwoGateways, SharedStoreTest):
    backend_type = PgBouncerBackend


class ThroughPgBouncerDeaths(Deaths, SharedStoreTest):
    backend_type = PgBouncerBackend


@unittest.skipUnless(os.environ.get("ONCEKEY_SLOW_TESTS"), "the bouncer takes its time to find its server again")
class ThroughPgBouncerOutages(Outages, SharedStoreTest):
    backend_type = PgBouncerBackend


if __name__ == "__main__":
    unittest.main()
