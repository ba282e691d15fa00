"""Running it: health, metrics, logs, draining, the operator's commands, and stopping when a sync has failed."""

import json
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.client import Client
from support.gateway import Gateway, free_port, run_cli, toml
from support.messages import Malformed
from support.upstream import Upstream, answers, held, resets
from support.waiting import poll_until

CLASSIC = [{"path": "/*", "policy": "classic"}]


class AdminTest(GatewayTest):
    def test_it_says_that_it_lives_and_is_ready(self):
        self.assertEqual(self.gateway.admin.get("/livez").status, 200)
        self.assertEqual(self.gateway.admin.get("/readyz").status, 200)

    def test_the_health_command_says_so_too_and_needs_no_token(self):
        admin = self.gateway.admin_text
        for flags, word in (((), "ready"), (("--live",), "alive")):
            asked = run_cli("health", *flags, "--admin", admin)
            self.assertEqual((asked.returncode, asked.stdout, asked.stderr), (0, word + "\n", ""))
        asked = run_cli("health", "--config", str(self.gateway.config_file), "--admin", admin)
        self.assertEqual((asked.returncode, asked.stdout), (0, "ready\n"))

    def test_the_health_command_tells_an_absent_gateway_from_another_server(self):
        asked = run_cli("health", "--admin", f"127.0.0.1:{free_port()}")
        self.assertEqual(asked.returncode, 3)
        self.assertIn("cannot reach the gateway's admin listener", asked.stderr)
        asked = run_cli("health", "--admin", self.upstream.url)
        self.assertEqual(asked.returncode, 3)
        self.assertIn("is not an Oncekey admin listener", asked.stderr)
        asked = run_cli("health", "--config", "/no/such/file.toml")
        self.assertEqual(asked.returncode, 2)

    def test_the_admin_paths_are_not_on_the_public_listener(self):
        for path in ("/metrics", "/livez", "/readyz", "/api/keys"):
            self.client.get(path)
            self.assertEqual(self.upstream.last.target, path)

    def test_decisions_are_counted_by_route(self):
        def count(decision):
            return self.gateway.metric("oncekey_requests_total", decision=decision, route="/*")

        before = {decision: count(decision) for decision in ("execute", "replay", "mismatch", "pass")}
        self.post()
        self.post()
        self.post(body=b"other")
        self.client.post("/x")
        for decision, earlier in before.items():
            poll_until(lambda decision=decision, earlier=earlier: count(decision) == earlier + 1,
                       f"{decision} to be counted")

    def test_metrics_are_prometheus_text(self):
        response = self.gateway.admin.get("/metrics")
        self.assertTrue(response.header("Content-Type").startswith("text/plain"))
        self.assertIn("# TYPE oncekey_requests_total counter", response.body.decode())

    def test_in_flight_requests_are_visible(self):
        gate = self.hold_at_upstream(answers())
        running = self.post_in_background()
        gate.wait_for_arrival()
        self.assertGreaterEqual(self.gateway.metric("oncekey_in_flight"), 1)
        gate.open()
        running.result()

    def test_unknown_admin_paths_and_ids_are_404(self):
        self.assertEqual(self.gateway.admin.get("/nothing").status, 404)
        self.assertEqual(self.gateway.admin.get("/api/keys/" + "0" * 64).status, 404)
        self.assertEqual(self.gateway.admin.get("/api/keys/xyz").status // 100, 4)


class LogTest(unittest.TestCase):
    def test_no_secret_is_ever_logged(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with Gateway(upstream.url, CLASSIC, log_level="debug") as gateway:
            client = gateway.client("secret-account-token")
            upstream.will(answers(201, b"secret-answer"), resets(), answers(500, b"x"))
            for key in ("secret-key-1", "secret-key-1", "secret-key-2", "secret-key-3", "secret-key-" + "x" * 300):
                client.post(key=key, body=b"secret-body", headers=[("Cookie", "session=secret-cookie")])
            client.post(key="secret-key-1", body=b"other")
            gateway.stop()
            self.assertNotIn("secret", gateway.log)
            self.assertIn("event=", gateway.log)

    def test_a_loop_is_logged_without_its_query(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with Gateway(upstream.url, CLASSIC) as gateway:
            gateway.client().get("/x")
            gateway.client().get("/y?token=secret", headers=[("Via", upstream.last.header("Via"))])
            self.assertNotIn("secret", gateway.wait_for_log("event=loop"))

    def test_what_an_operator_does_is_logged_however_little_else_is(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        listen, admin = (f"127.0.0.1:{free_port()}" for _ in range(2))
        gateway = Gateway(upstream.url, [{"path": "/*", "policy": "stripe-v1"}], log_level="error", listen=listen,
                          admin=admin)
        self.addCleanup(gateway.remove)
        gateway.start_without_waiting()
        poll_until(lambda: run_cli("keys", "list", "--admin", admin).returncode == 0, "the gateway to listen")
        host, port = listen.split(":")
        upstream.will(resets())
        self.assertEqual(Client((host, int(port))).post(key="k").status, 502)
        held_key = json.loads(run_cli("keys", "list", "--json", "--admin", admin).stdout)
        record = (held_key if isinstance(held_key, list) else held_key["keys"])[0]
        run_cli("keys", "release", record["id"], "--reason", "ticket 42", "--yes", "--admin", admin)
        self.assertIn("ticket 42", gateway.wait_for_log("event=operator_action"))

    def test_what_clients_send_cannot_break_a_log_line(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with Gateway(upstream.url, CLASSIC, log_level="debug") as gateway:
            gateway.client().get("/x%0aevent=forged", headers=[("X", "event=forged")])
            gateway.client().exchange("GET /\x1b[2J event=forged HTTP/1.1\r\nHost: a\r\n\r\n", "GET")
            gateway.stop()
            self.assertNotIn("\x1b", gateway.log)
            for line in gateway.log.splitlines():
                self.assertFalse(line.startswith("event=forged"), line)


class FlagsTest(unittest.TestCase):
    def test_flags_alone_make_a_gateway_with_one_route(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        flags = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", upstream.url, "--store", "memory:",
                 "--policy", "stripe-v1", "--lease", "2s", "--retention", "1h"]
        with Gateway(upstream.url, flags=flags) as gateway:
            first = gateway.client().post("/anything", key="k-1")
            again = gateway.client().post("/anything", key="k-1")
            self.assertEqual((again.replayed, again.body), (True, first.body))
            mismatch = gateway.client().post("/anything", key="k-1", body=b"{}")
            self.assertEqual(mismatch.json()["error"]["type"], "idempotency_error")


class DrainTest(unittest.TestCase):
    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.gateway = Gateway(self.upstream.url, CLASSIC, store="journal")
        self.addCleanup(self.gateway.remove)
        self.gateway.start()
        self.client = self.gateway.client()

    def start_a_request(self):
        gate = self.upstream.gate()
        self.upstream.will(held(gate, answers(201, b"finished")))
        running = self.client.post_in_background(key="k-1")
        gate.wait_for_arrival()
        return gate, running

    def test_sigterm_finishes_what_runs_and_takes_nothing_new(self):
        gate, running = self.start_a_request()
        self.gateway.signal(signal.SIGTERM)
        poll_until(lambda: not self.takes_requests(), "new requests to be refused")
        self.assertTrue(self.gateway.running)
        gate.open()
        self.assertEqual(running.result().body, b"finished")
        # Or its client would send the next request on a connection that is being closed.
        self.assertEqual(running.result().header("Connection"), "close")
        self.assertEqual(self.gateway.wait(), 0)
        self.gateway.start()
        again = self.gateway.client().post(key="k-1")
        self.assertEqual((again.replayed, again.body), (True, b"finished"))
        self.assertEqual(self.upstream.executions("k-1"), 1)

    def takes_requests(self):
        try:
            return self.client.get("/probe").status == 201
        except (OSError, Malformed):
            return False

    def test_a_waiter_sent_away_is_told_that_the_first_request_is_still_at_work(self):
        with Gateway(self.upstream.url, [{"path": "/*", "policy": "classic", "wait": "3s"}]) as gateway:
            client = gateway.client()
            gate = self.upstream.gate()
            self.upstream.will(held(gate, answers(201, b"finished")))
            running = client.post_in_background(key="k-1")
            gate.wait_for_arrival()
            waiting = client.post_in_background(key="k-1")
            poll_until(lambda: gateway.metric("oncekey_waiters") == 1, "the waiter")
            gateway.signal(signal.SIGTERM)
            sent_away = waiting.result()
            gate.open()
            running.result()
            self.assertEqual(gateway.wait(), 0)
        self.assertEqual((sent_away.status, sent_away.json()["title"]), (503, "Shutting down"))
        self.assertIn("still being worked on", sent_away.json()["detail"])
        self.assertNotIn("Nothing was executed", sent_away.json()["detail"])

    def test_a_draining_gateway_is_not_ready(self):
        gate, running = self.start_a_request()
        self.gateway.signal(signal.SIGTERM)

        def not_ready():
            try:
                return self.gateway.admin.get("/readyz").status == 503
            except (OSError, Malformed):
                return True

        poll_until(not_ready, "readyz to say no")
        gate.open()
        running.result()
        self.assertEqual(self.gateway.wait(), 0)

    def test_idle_connections_do_not_hold_up_the_end(self):
        with self.client.connect() as connection:
            self.client.get("/x", connection=connection)
            self.gateway.signal(signal.SIGTERM)
            self.assertEqual(self.gateway.wait(), 0)

    def test_a_client_that_has_just_connected_is_answered(self):
        gate, running = self.start_a_request()
        with self.client.connect() as connection:
            poll_until(lambda: self.gateway.metric("oncekey_connections") == 2, "the connection to be accepted")
            self.gateway.signal(signal.SIGTERM)
            self.gateway.wait_for_log("event=draining")
            self.assertEqual(self.client.get("/x", connection=connection).header("Connection"), "close")
        gate.open()
        running.result()
        self.assertEqual(self.gateway.wait(), 0)

    def test_a_second_signal_ends_it_at_once(self):
        gate, _ = self.start_a_request()
        self.gateway.signal(signal.SIGTERM)
        poll_until(lambda: not self.takes_requests(), "the drain to begin")
        self.gateway.signal(signal.SIGTERM)
        self.gateway.wait()
        self.assertFalse(self.gateway.running)
        gate.open()


class LameDuckTest(unittest.TestCase):
    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)

    def lame_duck(self, time):
        gateway = Gateway(self.upstream.url, CLASSIC, timeouts={"lame_duck": time})
        self.addCleanup(gateway.remove)
        return gateway.start()

    def test_a_lame_duck_serves_and_says_that_it_leaves(self):
        gateway = self.lame_duck("1h")
        client = gateway.client()
        with client.connect() as kept:
            self.assertFalse(client.get("/x", connection=kept).has("Connection"))
            gateway.signal(signal.SIGTERM)
            poll_until(lambda: gateway.admin.get("/readyz").status == 503, "readyz to say no")
            self.assertEqual(gateway.admin.get("/readyz").json()["reason"], "draining")
            asked = run_cli("health", "--admin", gateway.admin_text)
            self.assertEqual((asked.returncode, asked.stdout), (1, "not ready: draining\n"))
            for connection in (kept, None):
                response = client.get("/x", connection=connection)
                self.assertEqual((response.status, response.header("Connection")), (201, "close"))
        first = client.post(key="k-1")
        self.assertEqual((first.status, client.post(key="k-1").replayed), (201, True))
        self.assertNotIn("event=draining", gateway.log)
        gateway.signal(signal.SIGTERM)
        gateway.wait_for_log("event=draining")
        self.assertEqual(gateway.wait(), 0)

    def test_a_lame_duck_drains_when_its_time_is_over(self):
        gateway = self.lame_duck("50ms")
        gateway.signal(signal.SIGTERM)
        gateway.wait_for_log("event=leaving")
        gateway.wait_for_log("event=draining")
        self.assertEqual(gateway.wait(), 0)


class TokenTest(unittest.TestCase):
    def test_a_token_of_the_configuration_guards_everything_but_health(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with Gateway(upstream.url, CLASSIC, admin_token="s3cret-token-of-the-admin") as gateway:
            self.assertEqual(gateway.admin.get("/api/keys", authorization=False).status, 401)
            wrong = [("Authorization", "Bearer wrong")]
            self.assertEqual(gateway.admin.get("/api/keys", authorization=False, headers=wrong).status, 401)
            right = [("Authorization", "Bearer s3cret-token-of-the-admin")]
            self.assertEqual(gateway.admin.get("/api/keys", authorization=False, headers=right).status, 200)
            self.assertEqual(gateway.admin.get("/livez", authorization=False).status, 200)
            self.assertNotIn("s3cret-token-of-the-admin", gateway.log)

    def test_without_a_token_only_loopback_names_are_answered(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with Gateway(upstream.url, CLASSIC) as gateway:
            def status_for(host):
                raw = f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"
                return Client(gateway.admin_address).exchange(raw, "GET")[0].status
            for host in ("127.0.0.1", "127.0.0.1:8081", "localhost:8081", "[::1]:8081"):
                self.assertEqual(status_for(host), 200, host)
            for host in ("127.evil.example", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example"):
                self.assertEqual(status_for(host), 403, host)

    def test_an_admin_listener_off_the_loopback_needs_a_token(self):
        gateway = Gateway("http://127.0.0.1:1", CLASSIC, admin="0.0.0.0:0")
        self.addCleanup(gateway.remove)
        self.assertNotEqual(gateway.start_expecting_refusal(), 0)
        self.assertIn("admin_token", gateway.log)


class OperatorTest(GatewayTest):
    routes = [{"path": "/*", "policy": "stripe-v1"}]
    store = "journal"

    def keys(self, *arguments):
        return run_cli("keys", *arguments, "--admin", self.gateway.admin_text)

    def listed(self, *arguments):
        """The records the command line lists, whatever wraps them."""
        done = self.keys("list", "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        return found if isinstance(found, list) else found["keys"]

    def indeterminate(self):
        """A key whose outcome is unknown; returns its id."""
        self.upstream.will(resets())
        self.assertEqual(self.post().status, 502)
        record = next(record for record in self.listed("--state", "indeterminate") if record["key"] == self.key)
        return record["id"]

    def act(self, action, record_id, *more):
        done = self.keys(action, record_id, "--reason", "ticket 42", "--yes", *more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def assert_audited(self, action):
        line = self.gateway.wait_for_log(f"action={action}")
        self.assertIn("event=operator_action", line)
        self.assertIn("ticket 42", line)

    def test_list_and_show_tell_of_a_key(self):
        self.post()
        record = next(record for record in self.listed("--limit", "1000") if record["key"] == self.key)
        self.assertEqual(record["state"], "completed")
        shown = self.keys("show", record["id"], "--json")
        self.assertEqual(json.loads(shown.stdout)["state"], "completed")
        self.assertIn("completed", self.keys("show", record["id"]).stdout)
        self.assertIn("completed", self.keys("list").stdout)
        self.assertNotIn("Bearer alice", shown.stdout)

    def test_show_tells_which_gateway_made_the_claim_and_in_which_trace(self):
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        traceparent = f"00-{trace}-00f067aa0ba902b7-01"
        self.post(headers=[("traceparent", traceparent)])
        self.assertEqual(self.upstream.last.header("traceparent"), traceparent)
        record = next(record for record in self.listed("--limit", "1000") if record["key"] == self.key)
        shown = json.loads(self.keys("show", record["id"], "--json").stdout)
        self.assertEqual(shown["trace"], trace)
        self.assertRegex(shown["gateway"], "^[0-9a-f]{8}$")
        self.assertIn(trace, self.keys("show", record["id"]).stdout)

    def test_release_frees_a_held_key_for_a_new_first_request(self):
        self.act("release", self.indeterminate())
        self.assert_audited("release")
        self.assert_first(self.post(body=b'{"even":"another"}'))
        fences = self.upstream.fences(self.key)
        self.assertGreater(fences[1], fences[0])

    def test_complete_gives_a_held_key_its_answer(self):
        self.act("complete", self.indeterminate(), "--status", "201", "--content-type", "application/json",
                 "--body", '{"id":"ch_1"}')
        self.assert_audited("complete")
        again = self.post()
        self.assertEqual((again.status, again.body, again.replayed), (201, b'{"id":"ch_1"}', True))
        self.assertEqual(again.header("Content-Type"), "application/json")
        self.assert_executed(1)

    def test_an_answer_that_cannot_have_a_body_is_not_given_one(self):
        record_id = self.indeterminate()
        refused = self.keys("complete", record_id, "--reason", "r", "--yes", "--status", "204", "--body", "x")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("204", refused.stderr)
        direct = self.gateway.admin.post(f"/api/keys/{record_id}/complete",
                                         body=b'{"reason":"r","status":204,"body":"x"}')
        self.assertEqual(direct.status, 400, direct)
        self.act("complete", record_id, "--status", "204")
        self.assertEqual(self.post().status, 204)

    def test_rerun_lets_the_next_retry_execute_with_a_higher_fence(self):
        self.act("rerun", self.indeterminate())
        self.assert_audited("rerun")
        self.assertEqual(self.post(body=b'{"another":1}').status, 400)
        self.assert_first(self.post())
        fences = self.upstream.fences(self.key)
        self.assertEqual(len(fences), 2)
        self.assertGreater(fences[1], fences[0])

    def test_a_completed_key_cannot_be_changed(self):
        self.post()
        record = next(record for record in self.listed("--limit", "1000") if record["key"] == self.key)
        done = self.keys("release", record["id"], "--reason", "ticket 42", "--yes")
        self.assertNotEqual(done.returncode, 0)
        self.assertTrue(self.post().replayed)

    def test_a_key_at_work_cannot_be_changed(self):
        gate = self.hold_at_upstream(answers(201, b"{}"))
        running = self.post_in_background()
        gate.wait_for_arrival()
        record = next(record for record in self.listed("--state", "in_progress") if record["key"] == self.key)
        done = self.keys("release", record["id"], "--reason", "ticket 42", "--yes")
        self.assertNotEqual(done.returncode, 0)
        gate.open()
        self.assertEqual(running.result().status, 201)

    def test_an_action_needs_a_reason(self):
        record_id = self.indeterminate()
        self.assertNotEqual(self.keys("release", record_id, "--yes").returncode, 0)
        self.assertEqual(self.gateway.admin.request("POST", f"/api/keys/{record_id}/release", body=b"{}").status, 400)
        self.assertEqual(self.post().status, 409)

    def test_the_json_api_does_the_same(self):
        record_id = self.indeterminate()
        shown = self.gateway.admin.get(f"/api/keys/{record_id}").json()
        self.assertEqual(shown["state"], "indeterminate")
        done = self.gateway.admin.request("POST", f"/api/keys/{record_id}/complete", body=json.dumps(
            {"status": 202, "content_type": "text/plain", "body": "by hand", "reason": "ticket 42"}))
        self.assertEqual(done.status, 200, done)
        again = self.post()
        self.assertEqual((again.status, again.body, again.replayed), (202, b"by hand", True))

    def test_an_unknown_id_and_a_gateway_that_is_not_there_are_errors(self):
        self.assertNotEqual(self.keys("show", "0" * 64).returncode, 0)
        nobody = run_cli("keys", "list", "--admin", "127.0.0.1:1")
        self.assertNotEqual(nobody.returncode, 0)
        self.assertTrue(nobody.stderr)


    def waiting(self, state):
        return self.gateway.metric("oncekey_keys", state=state)

    def test_a_key_whose_outcome_is_unknown_is_counted_logged_and_listed_first(self):
        before = self.waiting("indeterminate")
        record_id = self.indeterminate()
        self.post(key="done-" + self.key)
        poll_until(lambda: self.waiting("indeterminate") == before + 1, "the key to be counted")
        self.assertIn('next="oncekey keys list --state waiting"', self.gateway.wait_for_log("event=keys_waiting"))
        self.assertEqual(self.listed()[0]["id"], record_id, "newest of those that wait")
        self.assertEqual(self.listed("--state", "waiting")[0]["waits_for"], "operator")
        shown = self.keys("show", record_id).stdout
        self.assertNotIn("settled at", shown)
        self.assertIn("decide: release, complete or rerun", shown)
        self.act("rerun", record_id)
        shown = self.keys("show", record_id).stdout
        self.assertIn("next retry executes", shown)
        self.assertNotIn("abandoned", shown)
        poll_until(lambda: self.waiting("indeterminate") == before, "the key to be counted no longer")

    def test_keys_are_listed_newest_first_page_by_page(self):
        made = [f"{self.key}-{number}" for number in range(5)]
        for key in made:
            self.post(key=key)
            # Keys of one millisecond are in no order.
            answered = time.monotonic()
            poll_until(lambda since=answered: time.monotonic() > since + 0.001, "a millisecond to pass", pause=0)
        seen, after = [], []
        for _ in range(3):
            page = json.loads(self.keys("list", "--json", "--state", "completed", "--limit", "2", *after).stdout)
            seen += [record["key"] for record in page["keys"]]
            after = ["--after", page["next"]]
        self.assertEqual(seen[:5], made[::-1])
        self.assertIn("--after", self.keys("list", "--state", "completed", "--limit", "2").stdout)
        self.assertEqual(self.listed("--older-than", "1h"), [])
        self.assertEqual(self.listed("--route", "/nowhere"), [])
        for cursor in ("nonsense", "others-9223372036854775807-" + "f" * 64, "waiting-9223372036854775807-" + "f" * 64,
                       "others--9223372036854775808-" + "0" * 64, "others--1-" + "0" * 64):
            self.assertEqual(self.gateway.admin.get(f"/api/keys?after={cursor}").status, 400, cursor)

    def test_a_key_is_found_by_its_text_and_its_account(self):
        self.post()
        Client(self.gateway.address, "bob").post(key=self.key)
        by_key = json.loads(self.keys("list", "--json", "--key", self.key).stdout)
        self.assertEqual([len(by_key["keys"]), by_key["exact"]], [2, False])
        found = json.loads(self.find("Bearer alice").stdout)
        self.assertEqual([len(found["keys"]), found["exact"], found["looked"]], [1, True, 1])
        shown = self.keys("show", "--key", self.key, "--principal", "Bearer alice", "--json")
        self.assertEqual(json.loads(shown.stdout)["id"], found["keys"][0]["id"], shown.stderr)
        self.assertEqual(json.loads(self.find("Bearer nobody").stdout)["keys"], [])
        several = self.keys("show", "--key", self.key)
        self.assertEqual(several.returncode, 1)
        self.assertIn("several keys were found", several.stderr)
        self.assertIn("no key was found", self.keys("show", "--key", self.key + "x").stderr)

    def find(self, principal):
        return run_cli("keys", "list", "--json", "--key", self.key, "--principal", "-", "--admin",
                       self.gateway.admin_text, stdin=principal + "\n")

    def test_the_admin_token_does_not_go_to_another_server(self):
        wrong = run_cli("keys", "list", "--admin", "%s:%d" % self.gateway.address,
                        environment={"ONCEKEY_ADMIN_TOKEN": self.gateway.admin_token})
        self.assertEqual(wrong.returncode, 3, wrong.stderr)
        self.assertIn("is not an Oncekey admin listener", wrong.stderr)
        self.assertEqual(self.upstream.last.target, "/livez")
        self.assertIsNone(self.upstream.last.header("Authorization"))

    def test_words_of_the_command_line(self):
        self.assertIn('did you mean list?', self.keys("lst").stderr)
        self.assertIn("not a terminal: add --yes", self.keys("release", "0" * 64, "--reason", "r").stderr)
        self.assertEqual(run_cli("keys", "list", "--admin", "http://" + self.gateway.admin_text, environment={
            "ONCEKEY_ADMIN_TOKEN": self.gateway.admin_token}).returncode, 0)
        self.assertIn("GET /livez", self.gateway.admin.get("/nothing").json()["available"])


class FindingKeysTest(GatewayTest):
    """What an operator finds by a key is everything that fits what was given, and nothing else."""
    routes = [{"path": "/fixed", "policy": "classic"}, {"path": "/orders/*", "policy": "classic"},
              {"path": "/quoted/*", "policy": "ietf", "strict": True}]

    def setUp(self):
        super().setUp()
        self.post("/fixed")
        self.post("/orders/7")
        Client(self.gateway.address, "bob").post("/orders/7", key=self.key)
        Client(self.gateway.address, "bob").post("/orders/8", key=self.key)

    def shown(self, *arguments):
        done = run_cli("keys", "list", "--key", self.key, *arguments, "--admin", self.gateway.admin_text)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def find(self, **given):
        asked = self.gateway.admin.post("/api/keys/find", body=json.dumps({"key": self.key, **given}).encode())
        self.assertEqual(asked.status, 200, asked)
        return asked.json()

    def targets(self, **given):
        return sorted(record["target"] for record in self.find(**given)["keys"])

    def test_records_on_paths_that_were_not_given_are_found_too(self):
        self.assertEqual(self.targets(principal="Bearer alice"), ["/fixed", "/orders/7"])
        self.assertFalse(self.find(principal="Bearer alice")["exact"])
        self.assertEqual(self.targets(principal="Bearer alice", path="/orders/7"), ["/orders/7"])
        # The reader learns how far the look went.
        self.assertRegex(self.shown("--principal", "Bearer alice"), r"\(all keys were searched; .*--path")
        nobody = self.shown("--principal", "Bearer nobody")
        self.assertRegex(nobody, r"\(all keys were searched, and none fits")

    def test_an_account_may_be_given_as_a_header(self):
        self.assertEqual(self.targets(headers=[["Authorization", "Bearer alice"]]), ["/fixed", "/orders/7"])

    def test_a_path_narrows_what_is_found(self):
        self.assertEqual(self.targets(), ["/fixed", "/orders/7", "/orders/7", "/orders/8"])
        self.assertEqual(self.targets(path="/orders/7"), ["/orders/7"] * 2)
        self.assertEqual(self.targets(path="/orders//7/?x=1"), ["/orders/7"] * 2)
        self.assertEqual(self.targets(path="/orders/9"), [])

    def test_a_limit_is_kept_and_what_is_left_out_is_told(self):
        found = self.find(limit=3)
        self.assertEqual([len(found["keys"]), found["more"]], [3, True])
        self.assertIn("more of them fit: --limit", self.shown("--limit", "3"))
        self.assertFalse(self.find(limit=4)["more"])
        for limit in ("0", "10001", "1.5", '"1"'):
            asked = self.gateway.admin.post("/api/keys/find", body=b'{"key":"k","limit":%s}' % limit.encode())
            self.assertEqual(asked.status, 400, limit)

    def test_a_key_is_read_as_its_route_reads_it(self):
        key = fresh_key()
        sent = self.client.post("/quoted/1", headers=[("Idempotency-Key", f'"{key}"')])
        self.assertEqual(sent.status, 201, sent)
        for given in (key, f'"{key}"'):
            for account in ({}, {"principal": "Bearer alice"},
                            {"principal": "Bearer alice", "route": "/quoted/*"}):
                found = self.find(**{**account, "key": given})
                self.assertEqual([record["key"] for record in found["keys"]], [key], (given, account))


class CrashedKeysTest(unittest.TestCase):
    """A key that a crash left behind is seen by no client that gave up."""

    def test_a_key_lost_in_a_crash_is_seen_without_a_retry(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        routes = [{"path": "/hold/*", "policy": "stripe-v1", "lease": "1s"},
                  {"path": "/*", "policy": "classic", "lease": "1s"}]
        with Gateway(upstream.url, routes, store="journal") as gateway:
            gates = []
            for path in ("/hold/x", "/other"):
                gates.append(upstream.gate())
                upstream.will(held(gates[-1], answers()))
                Client(gateway.address).post_in_background(path, key="lost" + path)
                gates[-1].wait_for_arrival()
            gateway.kill()
            for gate in gates:
                gate.open()
            gateway.start()
            poll_until(lambda: gateway.metric("oncekey_keys", state="abandoned") == 2, "both to be counted")
            gateway.stop()
            gateway.start()  # what waits is said at the start: now both leases are over
            gateway.wait_for_log("event=keys_waiting abandoned=2")
            listed = json.loads(run_cli("keys", "list", "--json", "--admin", gateway.admin_text).stdout)["keys"]
            self.assertEqual({(key["target"], key["abandoned"], key["waits_for"]) for key in listed},
                             {("/hold/x", True, "operator"), ("/other", True, "retry")})
            # Classic tells keys apart by method and path, so that the path is needed for an exact look.
            find = ("keys", "list", "--json", "--key", "lost/other", "--principal", "Bearer alice",
                    "--admin", gateway.admin_text)
            exact = json.loads(run_cli(*find, "--path", "/other").stdout)
            self.assertEqual([len(exact["keys"]), exact["exact"]], [1, True])
            look = json.loads(run_cli(*find).stdout)
            self.assertEqual([len(look["keys"]), look["exact"]], [1, False])
            self.assertIn("--path", look["missing"])


class CheckTest(unittest.TestCase):
    def check(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            done = run_cli("check", file.name)
            return done.returncode, (done.stdout + done.stderr).replace(file.name, "FILE")

    def test_a_good_configuration_passes(self):
        code, output = self.check(toml({"upstream": "http://127.0.0.1:9090", "store": "memory:", "route": CLASSIC}))
        self.assertEqual(code, 0, output)

    def test_an_unknown_setting_is_refused_with_file_and_line(self):
        code, output = self.check('upstream = "http://127.0.0.1:9090"\nleese = "60s"\n')
        self.assertNotEqual(code, 0)
        self.assertIn("FILE:2:", output)
        self.assertIn("leese", output)

    def test_a_retention_shorter_than_the_lease_is_refused(self):
        code, output = self.check('upstream = "http://127.0.0.1:9090"\n[[route]]\npath = "/*"\npolicy = "classic"\n'
                                  'lease = "60s"\nretention = "10s"\n')
        self.assertNotEqual(code, 0)
        self.assertIn("retention", output)

    def test_an_unknown_subcommand_is_named(self):
        done = run_cli("nonsense", "--listen", "x")
        self.assertEqual(done.returncode, 2)
        self.assertIn('"nonsense"', done.stderr)

    def test_every_subcommand_has_help(self):
        for command in ([], ["serve"], ["check"], ["keys"], ["keys", "list"], ["keys", "complete"]):
            done = run_cli(*command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertTrue(done.stdout)


@unittest.skipIf("ONCEKEY_MACHINE_FAULTS" not in os.environ, "ONCEKEY_MACHINE_FAULTS names no library to preload")
class FailedSyncTest(unittest.TestCase):
    """The library fails every write of the store's log with EIO once the file it is told exists."""

    environment = {}

    def start(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        folder = tempfile.TemporaryDirectory(prefix="oncekey-sync-")
        self.addCleanup(folder.cleanup)
        self.trigger = pathlib.Path(folder.name) / "fail"
        # A sanitizer's runtime wants to be loaded first; it says so and stops unless told that this order is meant.
        environment = {"LD_PRELOAD": os.environ["ONCEKEY_MACHINE_FAULTS"], "ONCEKEY_FAIL_SYNC": str(self.trigger),
                       "ASAN_OPTIONS": "verify_asan_link_order=0", **self.environment}
        self.gateway = Gateway(self.upstream.url, CLASSIC, store="journal", environment=environment)
        self.addCleanup(self.gateway.remove)
        self.gateway.start()
        self.client = self.gateway.client()
        self.assertEqual(self.client.post(key="before").status, 201)

    def post_and_see_no_success(self, **options):
        try:
            self.assertNotEqual(self.client.post(**options).status // 100, 2, "acknowledged without being durable")
        except (OSError, Malformed):
            pass  # the process ended first: no acknowledgement either

    def assert_ended_with_the_reason(self):
        self.assertNotEqual(self.gateway.wait(), 0)
        self.assertRegex(self.gateway.log.lower(), "sync|input/output")

    def test_a_claim_that_cannot_be_synced_is_not_executed_and_ends_the_process(self):
        self.start()
        self.trigger.touch()
        self.post_and_see_no_success(key="claim")
        self.assert_ended_with_the_reason()
        self.assertEqual(self.upstream.executions("claim"), 0)

    def test_an_answer_that_cannot_be_synced_is_not_acknowledged_and_ends_the_process(self):
        self.start()

        def fails_then_answers(exchange):
            self.trigger.touch()
            answers(201, b"done")(exchange)

        self.upstream.will(fails_then_answers)
        self.post_and_see_no_success(key="answer")
        self.assert_ended_with_the_reason()

    def test_what_was_acknowledged_before_is_there_after_a_restart(self):
        self.start()
        self.trigger.touch()
        self.post_and_see_no_success(key="claim")
        self.gateway.wait()
        self.trigger.unlink()
        self.gateway.start()
        self.assertTrue(self.gateway.client().post(key="before").replayed)
        self.assertEqual(self.gateway.client().post(key="fresh").status, 201)


class FailedSyncOfTheThreadTest(FailedSyncTest):
    """The same where the kernel forbids io_uring."""

    environment = {"ONCEKEY_NO_IO_URING": "1"}


if __name__ == "__main__":
    unittest.main()
