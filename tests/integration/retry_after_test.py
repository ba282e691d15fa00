"""What a 409 says about when to come back, and whether what it says is true."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.gateway import Gateway, run_cli
from support.sending import SUCCEEDED, Run
from support.upstream import Upstream, answers, held, never_answers, resets
from support.waiting import poll_until

# The end of a lease of 60 s, however slow the machine is, is later than this.
LATEST = 10


class RetryAfterTest(GatewayTest):
    """The lease is the default: 60 s."""

    routes = [{"path": "/async/*", "respond_async": True}, {"path": "/*", "ignore_host": True}]
    store = "journal"

    def assert_soon(self, response):
        self.assertIn(int(response.header("Retry-After")), range(1, LATEST + 1), response)

    def wait_in_seconds(self, response):
        return int(response.header("Retry-After"))

    def key_id(self):
        """Of the record whose key is the test's own."""
        keys = self.gateway.admin.get("/api/keys?limit=1000").json()["keys"]
        return next(key["id"] for key in keys if key["key"] == self.key)

    def test_while_a_call_runs_a_retry_is_told_to_come_back_soon(self):
        gate = self.hold_at_upstream(answers(201))
        first = self.post_in_background()
        gate.wait_for_arrival()
        refused = self.post()
        self.assertIn("still being worked on", self.assert_problem(refused, 409, "in_progress")["detail"])
        self.assert_soon(refused)
        gate.open()
        self.assert_first(first.result())

    def test_a_call_that_ended_without_an_answer_is_not_said_to_be_at_work(self):
        self.upstream.will(resets())
        self.assert_problem(self.post(), 502, "upstream_unknown")
        refused = self.post()
        problem = self.assert_problem(refused, 409, "in_progress")
        self.assertNotIn("worked on", problem["detail"])
        self.assertIn("unknown", problem["detail"])
        self.assertGreater(self.wait_in_seconds(refused), LATEST, "the lease has to end first")
        self.assertIn(f"in {refused.header('Retry-After')} s", problem["detail"])
        done = run_cli("keys", "release", self.key_id(), "--reason", "test", "--yes", "--admin", self.gateway.admin_text)
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("at work", done.stderr)
        self.assertIn("unknown", done.stderr)
        self.assert_executed(1)

    def test_an_operator_is_told_that_an_owner_is_at_work_while_it_is(self):
        gate = self.hold_at_upstream(answers(201))
        first = self.post_in_background()
        gate.wait_for_arrival()
        done = run_cli("keys", "release", self.key_id(), "--reason", "test", "--yes", "--admin", self.gateway.admin_text)
        self.assertIn("still at work", done.stderr)
        gate.open()
        self.assert_first(first.result())

    def test_oncekey_send_has_the_answer_of_a_running_call_with_the_next_try(self):
        gate = self.hold_at_upstream(answers(201, b"done"))
        first = self.post_in_background("/charges", body=b"{}")
        gate.wait_for_arrival()
        host, port = self.gateway.address
        url = f"http://{host}:{port}/charges"
        refused = self.gateway.metric("oncekey_requests_total", decision="in_progress")
        send = Run(["POST", url, "-H", f"Authorization: Bearer {self.client.account}", "--key", self.key,
                    "--json", "{}"], self.gateway.folder)
        poll_until(lambda: self.gateway.metric("oncekey_requests_total", decision="in_progress") > refused,
                   "the 409 that send gets")
        gate.open()
        self.assert_first(first.result())
        send.finish()
        self.assertEqual((send.code, send.out), (SUCCEEDED, b"done"), send)
        for wait in re.findall(r"again in (\d+)ms", send.err):
            self.assertLessEqual(int(wait), (LATEST + 1) * 1000, send)
        self.assert_executed(1)

    def test_an_answer_for_later_says_when_to_ask(self):
        gate = self.hold_at_upstream(answers(201))
        accepted = self.post("/async/1", headers=[("Prefer", "respond-async")])
        self.assertEqual(accepted.status, 202)
        self.assert_soon(accepted)
        gate.wait_for_arrival()
        self.assert_soon(self.client.get(accepted.header("Location")))
        gate.open()


class AfterACrashTest(unittest.TestCase):
    def test_a_claim_of_an_earlier_process_is_known_to_have_no_owner(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        gateway = Gateway(upstream.url, [{"path": "/*"}], store="journal")
        self.addCleanup(gateway.remove)
        gateway.start()
        key = fresh_key()
        upstream.will(never_answers())
        lost = gateway.client().post_in_background(key=key)
        upstream.wait_for_executions(1)
        gateway.kill()
        with self.assertRaises(Exception):
            lost.result()
        gateway.start()
        refused = gateway.client().post(key=key)
        self.assertEqual(refused.status, 409)
        self.assertIn("ended without an answer", refused.json()["detail"])
        self.assertGreater(int(refused.header("Retry-After")), LATEST)
        # A call of this process is at work.
        gate = upstream.gate()
        upstream.will(held(gate, answers(201)))
        running = gateway.client().post_in_background(key="another")
        gate.wait_for_arrival()
        self.assertIn("still being worked on", gateway.client().post(key="another").json()["detail"])
        gate.open()
        self.assertEqual(running.result().status, 201)


if __name__ == "__main__":
    unittest.main()
