"""What the operators' console gets from the gateway: the overview, one key's life, actions, and jobs by the dozen."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support import hooks
from support.gateway import Gateway, run_cli
from support.servers import Redis
from support.upstream import Upstream, answers, held, resets
from support.waiting import poll_until

JSON = [("Content-Type", "application/json")]
HOLDS = {"path": "/held/*", "policy": "stripe-v1", "scope": "global"}
CLASSIC = {"path": "/*", "policy": "classic"}


def post(gateway, path, body, key=None, expected=200):
    headers = [*JSON, *([("Idempotency-Key", key)] if key else [])]
    answer = gateway.admin.request("POST", path, body=json.dumps(body).encode(), headers=headers)
    if answer.status != expected:
        raise AssertionError(f"{path}: expected {expected}, got {answer}")
    return answer


class OverviewTest(unittest.TestCase):
    def test_it_has_the_state_and_the_steps_since_the_last_one(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with Gateway(upstream.url, [CLASSIC], store="journal", gateway_name="eu-1") as gateway:
            client = gateway.client()
            for _ in range(3):
                self.assertEqual(client.post(key="k1").status, 201)
            self.assertEqual(client.post(key="k1", body=b'{"amount":9}').status, 422)
            first = gateway.admin.get("/api/overview").json()
            self.assertEqual((first["status"], first["gateway"], first["store"]["kind"]), ("ready", "eu-1", "journal"))
            self.assertEqual(first["store"]["durability"], "power")
            self.assertGreater(first["disk"]["size_bytes"], 0)
            self.assertGreater(first["memory"]["limit_bytes"], first["memory"]["rss_bytes"])
            self.assertEqual(first["routes"], ["/*"])
            self.assertEqual([each["name"] for each in first["gateways"]], ["eu-1"])
            self.assertFalse(first["gateways_shared"])
            columns = first["history"]["columns"]

            def counted():
                total = dict.fromkeys(columns, 0)
                for row in gateway.admin.get("/api/overview").json()["history"]["rows"]:
                    for name, value in zip(columns, row, strict=True):
                        total[name] += value or 0
                return total if total["first"] else None

            total = poll_until(counted, "a step with the requests")
            self.assertEqual((total["first"], total["replay"], total["mismatch"]), (1, 2, 1))
            self.assertGreater(total["upstream_p95_ms"], 0)
            self.assertGreater(total["store_p95_ms"], 0)

            history = gateway.admin.get("/api/overview").json()["history"]
            since = gateway.admin.get(f"/api/overview?since={history['next']}").json()["history"]
            self.assertLessEqual(len(since["rows"]), 1)
            self.assertFalse(since["gap"])
            self.assertTrue(gateway.admin.get("/api/overview?since=17").json()["history"]["gap"])
            self.assertEqual(gateway.admin.get("/api/overview?since=x").status, 400)


class KeyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.upstream = Upstream().start()
        cls.addClassCleanup(cls.upstream.stop)
        cls.gateway = Gateway(cls.upstream.url, [HOLDS, CLASSIC], lease="1s", upstream_timeout="1s", gateway_name="eu-1")
        cls.addClassCleanup(cls.gateway.remove)
        cls.gateway.start()

    def abandoned(self, key):
        """The record of a request whose outcome is unknown, once its lease is over."""
        self.upstream.will(resets())
        self.gateway.client().post(key=key)
        self.gateway.wait_until_leases_end(1, key=key)
        return self.gateway.records(key=key)[0]

    def act(self, record, action, key=None, expected=200, **more):
        body = {"reason": "the test says so", "confirm": record["id"][:8], **more}
        return post(self.gateway, f"/api/keys/{record['id']}/{action}", body, key, expected)

    def show(self, record, query=""):
        return self.gateway.admin.get(f"/api/keys/{record['id']}{query}").json()

    def events(self, record):
        return [each["event"] for each in self.show(record)["timeline"]]

    def test_a_life_has_claim_answer_replays_and_mismatches(self):
        client = self.gateway.client()
        for _ in range(3):
            client.post(key="life-1")
        client.post(key="life-1", body=b"other")
        record = self.gateway.records(key="life-1")[0]
        shown = self.show(record)
        self.assertEqual(self.events(record), ["received", "forwarded", "completed", "replayed", "mismatch", "expires"])
        received, _, _, replayed, mismatch, _ = shown["timeline"]
        self.assertEqual((received["gateway"], received["fence"]), ("eu-1", record["fence"]))
        self.assertEqual((replayed["count"], mismatch["count"]), (2, 1))
        self.assertEqual((shown["activity"]["replays"], shown["activity"]["mismatches"]), (2, 1))
        self.assertEqual(shown["retry"]["same"]["decision"], "replay")
        self.assertEqual(shown["retry"]["other"]["status"], 422)
        self.assertTrue(all(not each["allowed"] for each in shown["actions"]))

    def test_a_key_is_held_and_decided_about_later(self):
        record = self.abandoned("hold-1")
        self.assertEqual(self.show(record)["retry"]["same"]["decision"], "execute")
        self.assertEqual({each["action"] for each in self.show(record)["actions"] if each["allowed"]},
                         {"release", "complete", "rerun", "hold"})
        self.act(record, "hold")
        held = self.show(record)
        self.assertEqual((held["state"], held["waits_for"]), ("indeterminate", "operator"))
        self.assertEqual(held["retry"]["same"]["status"], 409)
        self.assertEqual(self.gateway.client().post(key="hold-1").status, 409, "nothing is executed")
        self.assertEqual(self.upstream.executions("hold-1"), 1)
        self.act(record, "complete", status=202, body="by hand")
        replayed = self.gateway.client().post(key="hold-1")
        self.assertEqual((replayed.status, replayed.body), (202, b"by hand"))
        decided = [each for each in self.show(record)["timeline"] if each["event"] == "operator"]
        self.assertEqual([each["text"] for each in decided], ["hold: done", "complete: done"])
        self.assertEqual({(each["who"], each["reason"]) for each in decided}, {("token operator", "the test says so")})
        self.act(record, "hold", expected=409)

    def test_a_life_has_when_it_was_forwarded_and_renewed(self):
        gate = self.upstream.gate()
        self.upstream.will(held(gate, answers(201)))
        with Gateway(self.upstream.url, [CLASSIC], store="journal", lease="1s", upstream_timeout="1m") as gateway:
            running = gateway.client().post_in_background(key="long-1")
            gate.wait_for_arrival()
            record = gateway.records(key="long-1")[0]
            life = lambda: {each["event"]: each for each in
                            gateway.admin.get(f"/api/keys/{record['id']}").json()["timeline"]}
            self.assertIn("forwarded", life(), "of a call at work")
            poll_until(lambda: "renewed" in life(), "a renewal")
            gate.open()
            running.result()
            answered = life()
            self.assertEqual(list(answered), ["received", "forwarded", "renewed", "completed", "expires"])
            self.assertGreaterEqual(answered["renewed"]["count"], 1)
            self.assertGreater(answered["renewed"]["at"], answered["forwarded"]["at"])
            # From the record: no process remembers it.
            gateway.stop()
            gateway.start()
            self.assertEqual(life(), answered)

    def test_an_abandoned_key_tells_of_its_owners_last_renewal(self):
        gate = self.upstream.gate()
        self.upstream.will(held(gate, answers(201)))
        with Gateway(self.upstream.url, [CLASSIC], store="journal", lease="1s", upstream_timeout="1m") as gateway:
            gateway.client().post_in_background(key="killed-1")
            gate.wait_for_arrival()
            record = gateway.records(key="killed-1")[0]
            shown = lambda: gateway.admin.get(f"/api/keys/{record['id']}").json()
            poll_until(lambda: any(each["event"] == "renewed" for each in shown()["timeline"]), "a renewal")
            gateway.kill()
            gate.open()
            gateway.start()
            poll_until(lambda: shown()["abandoned"], "the end of the lease")
            self.assertEqual([each["event"] for each in shown()["timeline"]],
                             ["received", "renewed", "lease_over", "expires"])

    def test_an_action_on_another_claim_than_the_one_seen_is_refused(self):
        first = self.abandoned("version-1")
        again = self.abandoned("version-1")
        self.assertNotEqual(first["version"], again["version"])
        refused = self.act(first, "release", version=first["version"], expected=409)
        self.assertEqual(refused.json()["code"], "changed")
        self.act(again, "release", version=again["version"])

    def test_a_double_click_acts_once(self):
        record = self.abandoned("click-1")
        first = self.act(record, "release", key="c1")
        again = self.act(record, "release", key="c1")
        self.assertEqual(first.body, again.body)
        self.assertEqual((first.replayed, again.replayed), (False, True))
        self.act(record, "release", key="c2", expected=404)
        self.act(record, "rerun", key="c1", expected=422)
        lines = self.gateway.admin.get("/api/audit?limit=1000").json()["lines"]
        about = [line["result"] for line in lines if line["id"] == record["id"]]
        self.assertEqual(about, ["done"])

    def test_what_operators_did_is_listed_page_by_page(self):
        record = self.abandoned("pages-1")
        for _ in range(5):
            self.act(record, "rerun")
        for query in ("", "&until=2100-01-01"):
            seen, page = [], self.gateway.admin.get(f"/api/audit?limit=2{query}").json()
            while page["next"] is not None:
                self.assertEqual((len(page["lines"]), page["looked"], page["from"]), (2, 2, "memory"))
                self.assertEqual(page["back_to"], page["lines"][-1]["at"])
                seen += page["lines"]
                page = self.gateway.admin.get(f"/api/audit?limit=2{query}&before={page['next']}").json()
            seen += page["lines"]
            self.assertEqual([line["n"] for line in seen], list(range(len(seen), 0, -1)))
            self.assertEqual([line["action"] for line in seen[:5]], ["rerun"] * 5)
        early = self.gateway.admin.get("/api/audit?until=2020-01-02").json()
        self.assertEqual((early["lines"], early["next"], early["back_to"]), ([], None, None))
        self.assertEqual(self.gateway.admin.get("/api/audit?limit=0").status, 400)

    def test_an_action_needs_a_reason_and_the_right_confirmation(self):
        record = self.abandoned("confirm-1")
        path = f"/api/keys/{record['id']}/release"
        self.assertEqual(post(self.gateway, path, {"reason": " "}, expected=400).json()["code"], "bad_request")
        wrong = post(self.gateway, path, {"reason": "x", "confirm": "00000000"}, expected=422)
        self.assertEqual(wrong.json()["code"], "confirm")
        self.assertEqual(self.show(record)["state"], "in_progress")

    def test_the_command_line_holds_too_with_the_words_of_the_api(self):
        record = self.abandoned("cli-1")
        words = {each["action"]: each for each in self.gateway.admin.get("/api/actions").json()["keys"]}
        done = run_cli("keys", "hold", record["id"][:12], "--reason", "wait", "--yes", "--admin", self.gateway.admin_text)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(words["hold"]["meaning"], done.stdout)
        shown = run_cli("keys", "show", record["id"], "--admin", self.gateway.admin_text)
        self.assertIn("by token operator: wait", shown.stdout)

    def test_keys_are_found_by_their_account_alone(self):
        for key in ("of-carol-1", "of-carol-2"):
            self.gateway.client("carol").post(key=key)
        self.gateway.client("dave").post(key="of-dave")
        found = post(self.gateway, "/api/keys/find", {"principal": "Bearer carol"}).json()
        self.assertEqual({each["key"] for each in found["keys"]}, {"of-carol-1", "of-carol-2"})
        self.assertFalse(found["exact"])
        completed = post(self.gateway, "/api/keys/find", {"principal": "Bearer carol", "state": "waiting"}).json()
        self.assertEqual(completed["keys"], [])
        self.assertEqual(self.gateway.admin.get("/api/keys?newer_than=1h&older_than=0s").status, 200)
        self.assertEqual(self.gateway.admin.get("/api/keys?newer_than=0s").json()["keys"], [])


class AccountSearchTest(unittest.TestCase):
    """An account's keys are found by the account alone, also where a record does not hold what its id was made of."""

    ROUTES = [{"path": "/cards/*", "policy": "classic", "redact": True},
              {"path": "/alike/*", "policy": "classic", "key_from": ["fingerprint"], "window": "2m"},
              {"path": "/both/*", "policy": "classic", "key_from": ["fingerprint"], "window": "2m", "redact": True}]

    def find(self, store):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with Gateway(upstream.url, self.ROUTES, store=store, upstream_timeout="1s", lease="1s") as gateway:
            for account in ("carol", "dave"):
                client = gateway.client(account)
                client.post("/cards/4111", key=f"4111-{account}")
                client.post("/alike/1", body=account.encode())
                client.post("/both/1", body=account.encode())
            everything = {each["id"] for each in gateway.records(below="")}
            self.assertEqual(len(everything), 6)
            found = {}
            for account in ("carol", "dave"):
                keys = post(gateway, "/api/keys/find", {"principal": f"Bearer {account}"}).json()["keys"]
                self.assertEqual(sorted(each["route"] for each in keys), ["/alike/*", "/both/*", "/cards/*"])
                found[account] = {each["id"] for each in keys}
            self.assertEqual(found["carol"] | found["dave"], everything)
            self.assertNotIn("account", gateway.admin.get("/api/keys").body.decode(), "operators do not see it")
            with_key = {"principal": "Bearer carol", "key": "4111-carol"}
            self.assertEqual([each["route"] for each in post(gateway, "/api/keys/find", with_key).json()["keys"]],
                             ["/cards/*"])
            self.assertEqual(post(gateway, "/api/keys/find", {**with_key, "principal": "Bearer dave"}).json()["keys"], [])

    def test_in_an_embedded_store(self):
        self.find("journal")

    def test_in_a_shared_store(self):
        with Redis() as server:
            self.find(server.url)


class AttemptsTest(unittest.TestCase):
    """What was tried is part of the job: a restart forgets nothing, and every gateway sees it."""

    def setUp(self):
        self.receiver = Upstream().start()
        self.addCleanup(self.receiver.stop)
        self.webhooks = [hooks.hook("stripe", self.receiver.url + "/events", budget="500ms")]

    def gateway(self, name, store):
        gateway = Gateway("http://127.0.0.1:1", [CLASSIC], store=store, webhook=self.webhooks, gateway_name=name)
        self.addCleanup(gateway.remove)
        return gateway.start()

    def dead_letter(self, gateway):
        self.receiver.always(answers(503, reason="Busy"))
        body, headers = hooks.stripe("evt_1")
        self.assertEqual(gateway.client().request("POST", "/hooks/stripe", body=body, headers=headers).status, 200)
        return poll_until(lambda: gateway.admin.get("/api/jobs?state=dead").json()["jobs"], "the dead letter")[0]

    def attempts(self, gateway, job):
        return gateway.admin.get(f"/api/jobs/{job['id']}").json()["newest_attempts"]

    def test_a_restart_forgets_none(self):
        gateway = self.gateway("eu-1", "journal")
        job = self.dead_letter(gateway)
        before = self.attempts(gateway, job)
        self.assertGreater(len(before), 1)
        self.assertEqual({(each["gateway"], each["status"], each["result"]) for each in before}, {("eu-1", 503, "503 Busy")})
        self.assertEqual([each["attempt"] for each in before], list(range(job["attempts"], 0, -1)))
        gateway.stop()
        gateway.settings["gateway_name"] = "eu-2"
        gateway.start()
        self.assertEqual(self.attempts(gateway, job), before)
        self.receiver.always(answers(200))
        post(gateway, f"/api/jobs/{job['id']}/retry", {"reason": "it is back"})
        poll_until(lambda: gateway.admin.get("/api/jobs?state=delivered").json()["jobs"], "the delivery")
        after = self.attempts(gateway, job)
        self.assertEqual((after[0]["gateway"], after[0]["status"], after[1:]), ("eu-2", 200, before))
        shown = run_cli("jobs", "show", job["id"], "--admin", gateway.admin_text)
        self.assertRegex(shown.stdout, r"(?s)ATTEMPT .*eu-2 +200.*eu-1 +503 Busy")

    def test_a_click_sent_again_after_a_restart_delivers_once(self):
        gateway = self.gateway("eu-1", "journal")
        job = self.dead_letter(gateway)
        self.receiver.always(answers(200))
        click = {"reason": "it is back", "version": job["version"]}
        post(gateway, f"/api/jobs/{job['id']}/retry", click, key="c1")
        poll_until(lambda: gateway.admin.get("/api/jobs?state=delivered").json()["jobs"], "the delivery")
        gateway.stop()
        gateway.start()
        refused = post(gateway, f"/api/jobs/{job['id']}/retry", click, key="c1", expected=409)
        self.assertEqual(refused.json()["code"], "changed")
        self.assertEqual(gateway.admin.get("/api/jobs?state=waiting").json()["jobs"], [])

    def test_another_gateway_on_the_store_sees_them(self):
        server = Redis().start()
        self.addCleanup(server.remove)
        first, second = self.gateway("eu-1", server.url), self.gateway("eu-2", server.url)
        job = self.dead_letter(first)
        seen = self.attempts(second, job)
        self.assertEqual(seen, self.attempts(first, job))
        self.assertEqual(len(seen), job["attempts"])


class UnknownOutcomeTest(unittest.TestCase):
    """The store did not answer: what was asked of it may have happened. The trail says so, and does not say `refused`."""

    JOBS = 3

    def setUp(self):
        self.server = Redis().start()
        self.addCleanup(self.server.remove)
        receiver = Upstream().start()
        self.addCleanup(receiver.stop)
        receiver.always(answers(500))
        webhooks = [hooks.hook("stripe", receiver.url + "/events", budget="100ms")]
        self.gateway = Gateway("http://127.0.0.1:1", [CLASSIC], store=self.server.url, webhook=webhooks)
        self.addCleanup(self.gateway.remove)
        self.gateway.start()
        for number in range(self.JOBS):
            body, headers = hooks.stripe(f"evt_{number}")
            sent = self.gateway.client().request("POST", "/hooks/stripe", body=body, headers=headers)
            self.assertEqual(sent.status, 200)
        poll_until(lambda: len(self.dead()) == self.JOBS, "all jobs to be dead letters")

    def dead(self):
        return self.gateway.admin.get("/api/jobs?state=dead").json()["jobs"]

    def lines(self):
        return self.gateway.admin.get("/api/audit").json()["lines"]

    def test_of_a_run_over_many_jobs(self):
        body = {"filter": {"state": "dead"}, "reason": "they are back", "confirm": self.JOBS}
        run = post(self.gateway, "/api/jobs/retry", body, "run-1", 202).json()
        self.server.kill()
        ended = poll_until(lambda: (now := self.gateway.admin.get(f"/api/jobs/runs/{run['id']}").json())["ended"] and now,
                           "the end of the run")
        self.assertGreater(ended["failed"], 0)
        self.assertTrue(ended["last_fault"])
        results = [line["result"] for line in self.lines() if line["action"] == "retry" and line["id"]]
        self.assertEqual(results.count(f"fault in run {run['id']}"), ended["failed"])
        self.assertEqual(results.count(f"done in run {run['id']}"), ended["done"])
        self.assertIn(f"{ended['failed']} failed", self.lines()[0]["result"])

    def test_of_one_job(self):
        job = self.dead()[0]
        # It can be read, and the write is refused.
        self.server.configure("min-replicas-to-write", 1)
        post(self.gateway, f"/api/jobs/{job['id']}/retry", {"reason": "it is back"}, expected=503)
        line = self.lines()[0]
        self.assertEqual((line["action"], line["id"], line["result"]), ("retry", job["id"], "fault"))


class BulkTest(unittest.TestCase):
    JOBS = 5

    def setUp(self):
        self.receiver = Upstream().start()
        self.addCleanup(self.receiver.stop)
        self.receiver.always(answers(500))
        webhooks = [hooks.hook("stripe", self.receiver.url + "/events", budget="100ms")]
        self.gateway = Gateway("http://127.0.0.1:1", [CLASSIC], webhook=webhooks)
        self.addCleanup(self.gateway.remove)
        self.gateway.start()
        for number in range(self.JOBS):
            body, headers = hooks.stripe(f"evt_{number}")
            sent = self.gateway.client().request("POST", "/hooks/stripe", body=body, headers=headers)
            self.assertEqual(sent.status, 200)
        poll_until(lambda: len(self.jobs("dead")) == self.JOBS, "all jobs to be dead letters")

    def jobs(self, state):
        return self.gateway.admin.get(f"/api/jobs?state={state}").json()["jobs"]

    def run_of(self, action, **body):
        body = {"filter": {"state": "dead"}, "reason": "the receiver is back", **body}
        return post(self.gateway, f"/api/jobs/{action}", body, "bulk-1", 202).json()

    def end_of(self, run):
        def ended():
            now = self.gateway.admin.get(f"/api/jobs/runs/{run['id']}").json()
            return now if now["state"] != "running" else None

        return poll_until(ended, "the run to end")

    def test_a_dry_run_counts_and_a_run_delivers(self):
        dry = post(self.gateway, "/api/jobs/retry", {"filter": {"state": "dead"}, "dry_run": True}).json()
        self.assertEqual((dry["count"], dry["capped"], dry["destinations"][0]["count"]), (self.JOBS, False, self.JOBS))
        self.assertEqual(len(self.jobs("dead")), self.JOBS)
        few = post(self.gateway, "/api/jobs/retry", {"filter": {}, "reason": "x", "confirm": 1}, expected=422).json()
        self.assertEqual((few["code"], few["count"]), ("confirm", self.JOBS))
        self.receiver.always(answers(200))
        run = self.run_of("retry", confirm=dry["count"])
        again = post(self.gateway, "/api/jobs/retry", {"filter": {"state": "dead"}, "reason": "the receiver is back",
                                                       "confirm": dry["count"]}, "bulk-1", 202)
        self.assertEqual((again.json()["id"], again.replayed), (run["id"], True))
        self.assertEqual(self.gateway.admin.get("/api/overview").json()["bulk"]["id"], run["id"])
        post(self.gateway, "/api/jobs/drop", {"filter": {}, "reason": "x", "confirm": 9}, expected=409)
        ended = self.end_of(run)
        self.assertEqual((ended["state"], ended["done"], ended["left_alone"]), ("done", self.JOBS, 0))
        poll_until(lambda: len(self.jobs("delivered")) == self.JOBS, "all of them to be delivered")
        job = self.jobs("delivered")[0]
        shown = self.gateway.admin.get(f"/api/jobs/{job['id']}?body=1").json()
        self.assertEqual([each["status"] for each in shown["newest_attempts"]][0], 200)
        self.assertIn(500, [each["status"] for each in shown["newest_attempts"]])
        self.assertIn("evt_", shown["message"]["body"])
        self.assertEqual(shown["decisions"][0]["reason"], "the receiver is back")

    def test_a_filter_that_is_not_understood_selects_nothing(self):
        for wrong in ({"destinaton": "hook /hooks/nope"}, {"destination": 5}, {"older_than": 30}, {"older_then": "30d"},
                      {"state": None}):
            for more in ({"dry_run": True}, {"reason": "x", "confirm": self.JOBS}):
                refused = post(self.gateway, "/api/jobs/drop", {"filter": wrong, **more}, expected=400).json()
                self.assertIn(f'{next(iter(wrong))}', refused["error"])
        self.assertEqual(len(self.jobs("dead")), self.JOBS)

    def test_what_has_changed_meanwhile_is_left_alone(self):
        newest = self.jobs("dead")[0]  # its turn comes last
        run = self.run_of("retry", confirm=self.JOBS)
        post(self.gateway, f"/api/jobs/{newest['id']}/drop", {"reason": "not this one"})
        ended = self.end_of(run)
        self.assertEqual((ended["state"], ended["done"], ended["left_alone"]), ("done", self.JOBS - 1, 1))
        self.assertEqual(ended["left_alone_why"], [{"why": "it has changed since it was listed", "count": 1}])
        self.assertEqual(self.gateway.admin.get(f"/api/jobs/{newest['id']}").json()["state"], "dropped")

    def test_a_run_can_be_stopped(self):
        run = self.run_of("retry", confirm=self.JOBS)
        post(self.gateway, f"/api/jobs/runs/{run['id']}/stop", {"reason": "enough"})
        ended = self.end_of(run)
        self.assertEqual(ended["state"], "stopped")
        self.assertLess(ended["done"], self.JOBS)
        post(self.gateway, f"/api/jobs/runs/{run['id']}/stop", {"reason": "enough"}, expected=409)

    def test_a_selection_is_dropped_by_its_ids(self):
        ids = [job["id"] for job in self.jobs("dead")[:2]]
        run = post(self.gateway, "/api/jobs/drop", {"ids": [*ids, "0" * 64], "reason": "x", "confirm": 2}, expected=202)
        self.assertEqual(self.end_of(run.json())["done"], 2)
        self.assertEqual({job["id"] for job in self.jobs("dropped")}, set(ids))
        self.assertEqual(len(self.jobs("dead")), self.JOBS - 2)

    def test_a_selection_leaves_alone_what_has_changed_since_it_was_shown(self):
        shown = [{"id": job["id"], "version": job["version"]} for job in self.jobs("dead")[:2]]
        post(self.gateway, f"/api/jobs/{shown[0]['id']}/drop", {"reason": "not this one"})
        trial = post(self.gateway, "/api/jobs/retry", {"ids": shown, "dry_run": True}).json()
        self.assertEqual(trial["count"], 1)
        self.assertEqual(trial["skipped"], [{"why": "it has changed since it was listed", "count": 1}])
        refused = post(self.gateway, "/api/jobs/retry", {"ids": [{"id": shown[0]["id"]}], "dry_run": True}, expected=400)
        self.assertIn('"version"', refused.json()["error"])

    def test_the_command_line_retries_all(self):
        self.receiver.always(answers(200))
        done = run_cli("jobs", "retry", "--all", "--destination", "hook /hooks/stripe", "--reason", "back", "--yes",
                       "--admin", self.gateway.admin_text)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"done: {self.JOBS} of {self.JOBS} jobs", done.stdout)
        none = run_cli("jobs", "retry", "--all", "--destination", "hook /none", "--reason", "back", "--yes", "--admin",
                       self.gateway.admin_text)
        self.assertEqual((none.returncode, none.stdout), (0, "no jobs\n"))


if __name__ == "__main__":
    unittest.main()
