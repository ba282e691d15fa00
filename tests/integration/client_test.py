"""The client's promises over real sockets: one key for an operation whatever dies, and an end to every retry."""

import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.gateway import PROJECT, Gateway
from support.sending import GAVE_UP, LOCAL_FAULT, REFUSED, SUCCEEDED, SendTest
from support.upstream import answers, held, never_answers, numbers_its_answers, resets
from support.waiting import PATIENCE_SECONDS

DOCUMENT = PROJECT / "docs" / "CLIENT.md"
STRIPE_IN_USE = b'{"error":{"type":"invalid_request_error","code":"idempotency_key_in_use","message":"..."}}'
STRIPE_MISMATCH = b'{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only..."}}'
IETF_OUTSTANDING = b'{"title":"A request is outstanding for this Idempotency-Key"}'
IETF_USED = b'{"title":"Idempotency-Key is already used"}'


class ServersTest(SendTest):
    def test_a_stripe_like_server(self):
        self.server.will(answers(409, STRIPE_IN_USE), answers(500, b"", [("Stripe-Should-Retry", "true")]))
        self.assert_ended(self.send("-d", "amount=1"), SUCCEEDED)
        self.assert_one_key(3)

    def test_a_stripe_like_server_that_says_that_trying_again_changes_nothing(self):
        self.server.will(answers(500, b"kept", [("Stripe-Should-Retry", "false")]))
        run = self.send()
        self.assert_ended(run, REFUSED)
        self.assertEqual(run.out, b"kept")
        self.assertIn("may have been done", run.err)

    def test_mismatches_are_final_whatever_their_status(self):
        for answer in (answers(400, STRIPE_MISMATCH), answers(409, STRIPE_MISMATCH), answers(422, IETF_USED),
                       answers(409, IETF_USED), answers(409, b'{"type":"urn:oncekey:problem:mismatch"}')):
            self.server.reset()
            self.server.will(answer)
            run = self.send()
            self.assert_ended(run, REFUSED)
            self.assertIn("another request", run.err)
            self.assert_one_key(1)

    def test_a_server_of_the_ietf_draft(self):
        self.server.will(answers(409, IETF_OUTSTANDING))
        self.assert_ended(self.send("--quote-key"), SUCCEEDED)
        self.assertTrue(all(request.header("Idempotency-Key").startswith('"') for request in self.server.received))
        self.assert_one_key(2)

    def test_a_classic_server_that_asks_for_patience(self):
        self.server.will(answers(429, b"", [("Retry-After", "1")]))
        run = self.send()
        self.assert_ended(run, SUCCEEDED)
        self.assertRegex(run.err, r"again in (1\d\d\dms|1s)\n")

    def test_a_kept_connection_is_used_again_only_while_it_is_open(self):
        before = self.server.connections
        self.server.will(answers(503), answers(503, close=True))
        self.assert_ended(self.send(), SUCCEEDED)
        self.assert_one_key(3)
        self.assertEqual(self.server.connections - before, 2)


class JournalTest(SendTest):
    def test_kill_9_between_sending_and_the_answer_keeps_the_key(self):
        gate = self.server.gate()
        self.server.will(held(gate, answers()))
        run = self.start_journaled("-d", "amount=1")
        gate.wait_for_arrival()
        run.kill()
        gate.open()
        self.assert_ended(self.send_journaled("-d", "amount=1"), SUCCEEDED)
        self.assert_one_key(2)
        # The operation has no name and is over: the same request is a new one.
        self.assert_ended(self.send_journaled("-d", "amount=1"), SUCCEEDED)
        self.assertEqual(len(set(self.keys())), 2)

    def test_kill_9_at_any_moment_costs_no_second_operation(self):
        # The first waits end before anything is sent, the last ones in the middle of the retries.
        for milliseconds in (0, 20, 50, 90, 140, 200, 300, 450, 700):
            name = f"killed after {milliseconds}"
            self.server.reset()
            self.server.always(answers(503))
            self.start_journaled("-d", "amount=1", "--operation", name).kill_after(milliseconds / 1000)
            self.server.always(numbers_its_answers())
            self.assert_ended(self.send_journaled("-d", "amount=1", "--operation", name), SUCCEEDED)
            self.assertEqual(len(set(self.keys())), 1, (milliseconds, self.keys()))

    def test_a_name_that_has_ended_sends_the_same_key_until_asked_for_another(self):
        order = ["-d", "amount=1", "--operation", "order 17"]
        self.assert_ended(self.send_journaled(*order), SUCCEEDED)
        run = self.send_journaled(*order)
        self.assert_ended(run, SUCCEEDED)
        self.assertIn("had its answer at", run.err)
        self.assertIn("--again", run.err)
        self.assertEqual(self.send_journaled(*order, "--quiet").err, "")
        self.assert_one_key(3)
        self.assert_ended(self.send_journaled(*order, "--again"), SUCCEEDED)
        self.assertEqual(len(set(self.keys())), 2)

    def test_a_run_after_a_refusal_that_gave_up_is_not_done_under_a_new_key(self):
        order = ["-d", "amount=1", "--operation", "order 20"]
        self.server.will(answers(401))
        self.assert_ended(self.send_journaled(*order), REFUSED)
        self.server.will(resets())
        run = self.send_journaled(*order, "--max-attempts", "1")
        self.assert_ended(run, GAVE_UP)
        self.assertNotIn("--again", run.err)
        run = self.send_journaled(*order, "--again")
        self.assert_ended(run, SUCCEEDED)
        self.assertNotIn("--again", run.err)
        self.assert_one_key(3)

    def test_another_request_under_a_name_that_has_ended_is_refused(self):
        self.assert_ended(self.send_journaled("-d", "amount=1", "--operation", "a"), SUCCEEDED)
        run = self.send_journaled("-d", "amount=2", "--operation", "a")
        self.assert_ended(run, LOCAL_FAULT)
        self.assertIn("ended with 201", run.err)
        self.assertIn("--again", run.err)
        self.assertEqual(len(self.server.received), 1)

    def test_a_torn_journal_is_mended(self):
        self.server.will(resets())
        self.assert_ended(self.send_journaled("--operation", "a", "--max-attempts", "1"), GAVE_UP)
        journal = self.folder / "keys"
        journal.write_bytes(journal.read_bytes() + b"0123456789abcdef begin torn")
        self.assert_ended(self.send_journaled("--operation", "b"), SUCCEEDED)
        self.assert_ended(self.send_journaled("--operation", "a"), SUCCEEDED)
        keys = self.keys()
        self.assertEqual(keys[0], keys[2])
        self.assertNotEqual(keys[0], keys[1])

    def test_a_damaged_journal_stops_everything(self):
        self.server.will(resets())
        self.send_journaled("--operation", "a", "--max-attempts", "1")
        self.send_journaled("--operation", "b")
        journal = self.folder / "keys"
        content = bytearray(journal.read_bytes())
        content[content.index(b"begin")] ^= 1
        journal.write_bytes(content)
        count = len(self.server.received)
        run = self.send_journaled("--operation", "c")
        self.assert_ended(run, LOCAL_FAULT)
        self.assertIn("damaged", run.err)
        self.assertEqual(len(self.server.received), count)

    def test_another_request_under_the_same_name_is_refused(self):
        self.server.will(resets())
        self.assert_ended(self.send_journaled("-d", "amount=1", "--operation", "a", "--max-attempts", "1"), GAVE_UP)
        run = self.send_journaled("-d", "amount=2", "--operation", "a")
        self.assert_ended(run, LOCAL_FAULT)
        self.assertIn("another method, URL or body", run.err)
        self.assertIn("--forget", run.err)
        self.assertEqual(len(self.server.received), 1)
        self.assert_ended(self.send_journaled("-d", "amount=2", "--operation", "a", "--forget"), SUCCEEDED)
        self.assertEqual(len(set(self.keys())), 2)

    def test_an_expired_token_does_not_cost_the_key(self):
        self.server.will(resets(), answers(401))
        self.send_journaled("--operation", "a", "--max-attempts", "1")
        run = self.send_journaled("--operation", "a")
        self.assert_ended(run, REFUSED)
        self.assertIn("goes on under the same key", run.err)
        self.assert_ended(self.send_journaled("--operation", "a", "-H", "Authorization: Bearer new"), SUCCEEDED)
        self.assert_one_key(3)

    def test_the_key_is_let_go_only_when_the_answer_is_written(self):
        self.assert_ended(self.send_journaled("-o", "/dev/full"), LOCAL_FAULT)
        self.assert_ended(self.send_journaled("-o", "answer"), SUCCEEDED)
        self.assert_one_key(2)

    def test_two_runs_of_one_operation_at_once_use_one_key(self):
        gate = self.server.gate()
        self.server.will(held(gate, answers()), answers(409, STRIPE_IN_USE))
        runs = [self.start_journaled("--operation", "a")]
        gate.wait_for_arrival()
        runs.append(self.start_journaled("--operation", "a"))
        self.server.wait_for_executions(2)
        gate.open()
        for run in runs:
            self.assert_ended(run.finish(), SUCCEEDED)
        self.assertEqual(len(set(self.keys())), 1, self.keys())

    def test_the_journal_is_its_owners_alone(self):
        self.send_journaled()
        self.assertEqual((self.folder / "keys").stat().st_mode & 0o777, 0o600)

    def test_runs_that_share_a_journal_share_a_retry_budget(self):
        self.server.always(answers(503))
        runs = [self.send_journaled("--operation", str(i), "--retry-budget", "2", "--max-attempts", "2", "--deadline",
                                    "20s") for i in range(4)]
        for run in runs:
            self.assert_ended(run, GAVE_UP)
        self.assertIn("budget", runs[-1].err)
        # Four tries, the two retries of the reserve, and perhaps one that time has brought back.
        self.assertLessEqual(len(self.server.received), 7)


class KillTest(SendTest):
    """A supervisor that runs a command again until it has its exit code, and kills at any moment."""

    def killed_at_exit(self, *arguments):
        return self.send_journaled(*arguments, environment={"LD_PRELOAD": os.environ["ONCEKEY_MACHINE_FAULTS"],
                                                            "ONCEKEY_KILL_AT_EXIT": "1",
                                                            "ASAN_OPTIONS": "verify_asan_link_order=0"})

    @unittest.skipIf("ONCEKEY_MACHINE_FAULTS" not in os.environ, "ONCEKEY_MACHINE_FAULTS names no library to preload")
    def test_a_kill_between_the_answer_and_the_exit_code(self):
        for status in (201, 402):
            self.server.reset()
            self.server.always(answers(status, b"final"))
            order = ["-d", "amount=1", "--operation", f"ends with {status}"]
            run = self.killed_at_exit(*order)
            self.assertEqual((run.code, run.out), (-signal.SIGKILL, b"final"), run)
            self.send_journaled(*order)
            self.assert_one_key(2)

    def test_kills_at_random_moments(self):
        orders = 60 if "ONCEKEY_SLOW_TESTS" in os.environ else 4
        self.server.always(numbers_its_answers())
        seed = random.randrange(1 << 32)
        moments = random.Random(seed)
        # How long a run takes that is not killed: the moments are spread over all of it, and a little more.
        begun = time.monotonic()
        self.assert_ended(self.send_journaled("-d", "order=none", "--operation", "none"), SUCCEEDED)
        whole = (time.monotonic() - begun) * 1.2
        for order in range(orders):
            arguments = ["-d", f"order={order}", "--operation", f"order {order}"]
            for _ in range(3):
                self.start_journaled(*arguments).kill_after(moments.uniform(0, whole))
            self.assert_ended(self.send_journaled(*arguments), SUCCEEDED)
            keys = {request.key for request in self.server.received if request.body == f"order={order}".encode()}
            self.assertEqual(len(keys), 1, f"seed {seed}, order {order}: {keys}")


@unittest.skipIf("ONCEKEY_MACHINE_FAULTS" not in os.environ, "ONCEKEY_MACHINE_FAULTS names no library to preload")
class FailedSyncTest(SendTest):
    """The library fails every sync of a file whose name ends in .log, once the file it is told exists."""

    def send_with_a_bad_disk(self):
        (self.folder / "fail").touch()
        return self.send("--journal", "keys.log", "-d", "amount=1",
                         environment={"LD_PRELOAD": os.environ["ONCEKEY_MACHINE_FAULTS"],
                                      "ONCEKEY_FAIL_SYNC": str(self.folder / "fail"),
                                      "ASAN_OPTIONS": "verify_asan_link_order=0"})

    def test_nothing_is_sent_before_the_key_is_durable(self):
        run = self.send_with_a_bad_disk()
        self.assert_ended(run, LOCAL_FAULT)
        self.assertIn("syncing the journal", run.err)
        self.assertEqual(self.server.received, [])


class SnippetsTest(SendTest):
    """The snippets for other languages in docs/CLIENT.md do what they say."""

    def snippet(self, language):
        blocks = re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
        return next(block for block in blocks if "once(" in block)

    def check(self, once):
        """`once(key)` sends a POST and returns the status of the answer."""
        self.server.will(answers(503), answers(201))
        self.assertEqual(once("order-17"), 201)
        self.assert_one_key(2)
        self.assertEqual(self.keys()[0], "order-17")
        self.server.will(answers(402))
        self.assertEqual(once("order-18"), 402)

    def test_python(self):
        names = {}
        exec(self.snippet("python"), names)
        self.check(lambda key: names["once"](self.server.url + "/charges", key, b"{}", "token")[0])

    @unittest.skipIf(shutil.which("node") is None, "there is no node here")
    def test_node(self):
        program = self.snippet("js") + (
            "const TOKEN = 'token';\n"
            "once(process.argv[2], process.argv[3], {}).then(response => console.log(response.status));\n")
        (self.folder / "once.mjs").write_text(program)

        def once(key):
            done = subprocess.run(["node", self.folder / "once.mjs", self.server.url + "/charges", key],
                                  capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return int(done.stdout)
        self.check(once)


class GatewayTest(SendTest):
    """Against Oncekey itself, under each of its policies."""

    def gateway(self, policy, **settings):
        gateway = Gateway(self.server.url, [{"path": "/*", "policy": policy, **settings}])
        self.addCleanup(gateway.remove)
        gateway.start()
        return f"http://{gateway.address[0]}:{gateway.address[1]}/charges"

    def test_a_killed_run_gets_the_first_answer_the_second_time(self):
        for policy in ("classic", "ietf", "stripe-v1", "stripe-v2"):
            with self.subTest(policy=policy):
                self.server.reset()
                url = self.gateway(policy)
                gate = self.server.gate()
                self.server.will(held(gate, answers(201, b'{"id":"ch_1"}')))
                arguments = ["-H", "Authorization: Bearer t", "-d", "amount=1", "--operation", policy]
                run = self.start_journaled(*arguments, url=url)
                gate.wait_for_arrival()
                run.kill()
                again = self.start_journaled(*arguments, url=url)
                gate.open()
                again.finish()
                self.assert_ended(again, SUCCEEDED)
                self.assertEqual(again.out, b'{"id":"ch_1"}')
                self.assertEqual(self.server.executions(), 1)

    def test_another_request_under_a_used_key_is_final(self):
        for policy in ("classic", "ietf", "stripe-v1", "stripe-v2"):
            with self.subTest(policy=policy):
                url = self.gateway(policy)
                arguments = ["-H", "Authorization: Bearer t", "--key", "order-17-of-" + policy]
                self.assert_ended(self.send("-d", "amount=1", *arguments, url=url), SUCCEEDED)
                run = self.send("-d", "amount=2", *arguments, url=url)
                self.assert_ended(run, REFUSED)
                self.assertIn("another request", run.err)

    def test_an_outcome_that_nobody_knows_is_final_and_keeps_the_key(self):
        url = self.gateway("stripe-v1", upstream_timeout="300ms")
        self.server.will(never_answers())
        run = self.send_journaled("-H", "Authorization: Bearer t", "-d", "amount=1", url=url)
        self.assert_ended(run, REFUSED)
        self.assertIn("unknown", run.err)
        self.assertIn("goes on under the same key", run.err)
        self.assertEqual(self.server.executions(), 1)


if __name__ == "__main__":
    unittest.main()
