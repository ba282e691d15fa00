"""The audit log: what operators did and what was decided, in lines that cannot be changed or removed unnoticed."""

import datetime
import json
import os
import pathlib
import signal
import stat
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.gateway import Gateway, run_cli
from support.servers import Postgres, Redis
from support.upstream import Upstream, answers, resets
from support.waiting import Background, poll_until

TRACES = ["0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"]


def traced(number):
    return [("traceparent", f"00-{TRACES[number]}-b7ad6b7169203331-01")]


def age_of(time_text):
    """In seconds."""
    then = datetime.datetime.fromisoformat(time_text.replace("Z", "+00:00"))
    return (datetime.datetime.now(datetime.timezone.utc) - then).total_seconds()


def lines_of(*files):
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


class AuditLogTest(GatewayTest):
    store = "journal"
    routes = [{"path": "/charges/*", "audit": "decisions"}, {"path": "/cards/*", "audit": "decisions", "redact": True},
              {"path": "/quiet/*"}, {"path": "/held/*", "policy": "classic", "audit": "decisions", "on_unknown": "hold"}]
    settings = {"gateway_name": "eu-1"}

    def setUp(self):
        super().setUp()
        self.log = self.gateway.folder / "data" / "audit.log"

    def cli(self, *arguments):
        return run_cli("audit", *arguments, "--admin", self.gateway.admin_text)

    def verify(self):
        return run_cli("audit", "verify", "--config", str(self.gateway.config_file))

    def api(self, query=""):
        return self.gateway.admin.get("/api/audit" + query).json()

    def test_the_log_proves_that_an_operation_was_executed_once(self):
        self.upstream.will(answers(201, b"charged"))
        self.post("/charges/1", body=b"ten", headers=traced(0))
        self.post("/charges/1", body=b"ten", headers=traced(1))
        self.post("/charges/1", body=b"ten")
        self.post("/charges/1", body=b"twenty")
        shown = self.cli("show", "--key", self.key, "--principal", "Bearer alice", "--method", "POST",
                         "--path", "/charges/1", "--json")
        lines = json.loads(shown.stdout)["lines"]
        self.assertEqual([(line["event"], line["decision"], line["status"]) for line in lines],
                         [("claimed", "execute", None), ("completed", None, 201), ("replayed", "replay", 201),
                          ("replayed", "replay", 201), ("refused", "mismatch", 422)], shown)
        claimed, completed, replayed = lines[:3]
        self.assertEqual(len({(line["id"], line["fence"], line["key"], line["route"]) for line in lines}), 1)
        self.assertEqual((claimed["key"], claimed["route"], claimed["gateway"]), (self.key, "/charges/*", "eu-1"))
        self.assertEqual((claimed["trace"], replayed["trace"], replayed["first_trace"]), (TRACES[0], TRACES[1], TRACES[0]))
        text = self.cli("show", "--key", self.key).stdout
        self.assertRegex(text, "executed once; claimed at .*, answered 201 at .*; the answer given again 2 times, from "
                               ".*; 1 refused as a different request")
        self.assertIn("no line", self.cli("show", "--key", self.key, "--until", "2020-01-01").stdout)
        self.assertIn("no line", self.cli("show", "--key", "never-sent").stdout)
        # Of an account alone it knows nothing, and says so.
        refused = self.gateway.admin.request("POST", "/api/audit/find", body=b'{"principal":"Bearer alice"}',
                                             headers=[("Content-Type", "application/json")])
        self.assertEqual(refused.status, 400, refused)
        self.assertIn("key is missing", refused.json()["error"])

    def test_a_route_that_did_not_ask_for_it_leaves_no_line(self):
        self.post("/quiet/1")
        self.assertIn("no line", self.cli("show", "--key", self.key).stdout)

    def test_a_redacted_key_is_found_and_not_written(self):
        self.post("/cards/1")
        shown = json.loads(self.cli("show", "--key", self.key, "--json").stdout)["lines"]
        self.assertEqual([line["event"] for line in shown], ["claimed", "completed"])
        self.assertTrue(shown[0]["key"].startswith("redacted:"), shown)
        self.assertNotIn(self.key, self.log.read_text())

    def test_operators_actions_are_there_with_their_reason(self):
        self.upstream.will(resets())
        self.post("/held/1")
        record = self.gateway.records(key=self.key)[0]
        done = run_cli("keys", "release", record["id"], "--reason", "the bank says no", "--yes", "--admin",
                       self.gateway.admin_text)
        self.assertEqual(done.returncode, 0, done)
        page = self.api(f"?record={record['id']}")
        self.assertEqual([line["event"] for line in page["lines"]], ["action", "refused", "held", "claimed"])
        action = page["lines"][0]
        self.assertEqual((action["action"], action["result"], action["reason"]), ("release", "done", "the bank says no"))
        self.assertIn("operator", action["who"])
        self.assertEqual(page["from"], "log")
        self.gateway.signal(signal.SIGHUP)
        self.gateway.wait_for_log("event=config_reloaded")
        self.assertEqual(self.api("?limit=1")["lines"][0]["action"], "config_reload")

    def test_pages_go_back_to_the_first_line(self):
        for _ in range(3):
            self.post("/charges/pages", key=fresh_key())
        numbers, query = [], "?events=all&limit=2"
        while query:
            page = self.api(query)
            numbers += [line["n"] for line in page["lines"]]
            self.assertEqual((page["looked"], page["back_to"]), (len(page["lines"]), page["lines"][-1]["at"]))
            query = page["next"] and f"?events=all&limit=2&before={page['next']}"
        self.assertEqual(numbers, list(range(len(numbers), 0, -1)))
        for wrong in ("?limit=x", "?before=0", "?record=12", "?since=yesterday"):
            self.assertEqual(self.gateway.admin.get("/api/audit" + wrong).status, 400, wrong)

    def test_a_rotated_log_stays_one_chain_and_verifies_beside_the_gateway(self):
        self.post("/charges/1")
        self.api()
        self.assertEqual(stat.S_IMODE(self.log.stat().st_mode), 0o600)
        moved = self.log.with_name("audit.log.1")
        self.log.rename(moved)
        self.gateway.signal(signal.SIGUSR1)
        poll_until(self.log.exists, "the new file")
        self.post("/charges/1")
        self.api()
        self.assertEqual(lines_of(self.log)[0]["event"], "continued")
        verified = self.verify()
        self.assertEqual((verified.returncode, verified.stderr), (0, ""), verified)
        self.assertRegex(verified.stdout, "^whole: [0-9]+ lines in 2 files, 1 to [0-9]+")


class SummaryTest(unittest.TestCase):
    """What `audit show` concludes from the lines of a key: how often the API may have executed."""

    lease_seconds = 2

    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.gateway = Gateway(self.upstream.url, [
            {"path": "/held/*", "policy": "classic", "audit": "decisions", "on_unknown": "hold"},
            {"path": "/*", "policy": "classic", "audit": "decisions", "on_unknown": "abandon",
             "lease": f"{self.lease_seconds}s"}], store="journal")
        self.addCleanup(self.gateway.remove)
        self.gateway.start()
        self.key = fresh_key()

    def post(self, target="/charges", key=None, account="alice"):
        return self.gateway.client(account).post(target, key=key or self.key, body=b"ten")

    def act(self, action, *arguments):
        record = self.gateway.records(key=self.key)[0]["id"]
        done = run_cli("keys", action, record, "--reason", "asked the bank", "--yes", *arguments, "--admin",
                       self.gateway.admin_text)
        self.assertEqual(done.returncode, 0, done)
        return record

    def show(self, *arguments):
        shown = run_cli("audit", "show", *(arguments or ("--key", self.key)), "--admin", self.gateway.admin_text)
        self.assertEqual(shown.returncode, 0, shown)
        return shown.stdout

    def assert_summary(self, words):
        summary = self.show().strip().splitlines()[-1]
        self.assertRegex(summary, "^record [0-9a-f]{12}: " + words.replace("TIME", r"\d{4}-\d\d-\d\dT\S+Z") + "$")

    def test_a_claim_that_sent_nothing_did_not_execute(self):
        self.upstream.stop()
        self.assertEqual(self.post().status, 503)
        self.assert_summary("not executed; claimed at TIME, released at TIME: the request was not sent; 1 refused otherwise")
        self.assertEqual(self.post().status, 503)
        self.upstream.start()
        self.assertEqual(self.post().status, 201)
        self.assert_summary("executed once; claimed and released 2 times, from TIME to TIME: the request was not sent; claimed "
                            "anew at TIME, answered 201 at TIME; 2 refused otherwise")

    def test_an_answer_that_is_not_kept_may_be_an_execution(self):
        self.upstream.will(answers(429, b"slow down"))
        self.assertEqual(self.post().status, 429)
        self.assertEqual(self.post().status, 201)
        self.assert_summary("executed up to 2 times; claimed at TIME, released at TIME: the answer 429 is not kept; claimed "
                            "anew at TIME, answered 201 at TIME")

    def test_a_held_call_has_an_unknown_outcome_until_it_is_answered_by_hand(self):
        self.upstream.will(resets())
        self.post("/held/1")
        self.assert_summary("executed at most once; claimed at TIME, held at TIME; its outcome is unknown; 1 refused "
                            "otherwise")
        self.act("complete", "--status", "201", "--body", "{}")
        self.assertEqual(self.post("/held/1").status, 201)
        self.assert_summary("executed at most once; claimed at TIME, held at TIME; answered by hand at TIME, by .*; the answer "
                            "given again once, at TIME; 1 refused otherwise")

    def test_a_release_by_hand_lets_it_execute_anew(self):
        self.upstream.will(resets())
        self.post("/held/1")
        self.act("release")
        self.assert_summary("executed at most once; claimed at TIME, held at TIME; released by hand at TIME, by .*; 1 refused "
                            "otherwise")
        self.post("/held/1")
        self.assert_summary("executed up to 2 times; claimed at TIME, held at TIME; released by hand at TIME, by .*; claimed "
                            "anew at TIME, answered 201 at TIME; 1 refused otherwise")

    def test_a_takeover_is_called_so_and_nothing_else_is(self):
        self.upstream.will(resets())
        self.post()
        self.assert_summary("executed at most once; claimed at TIME, abandoned at TIME; its outcome is unknown; 1 refused "
                            "otherwise")
        self.gateway.wait_until_leases_end(self.lease_seconds, key=self.key)
        self.assertEqual(self.post().status, 201)
        self.assert_summary("executed up to 2 times; claimed at TIME, abandoned at TIME; taken over at TIME, answered 201 at "
                            "TIME; 1 refused otherwise")

    def test_the_lines_of_a_key_include_what_operators_did_with_it(self):
        self.post(key="another")
        self.upstream.will(resets())
        self.post("/held/1")
        record = self.act("release")
        log = self.gateway.folder / "data" / "audit.log"
        acted_at = next(line["time"] for line in lines_of(log) if line.get("action") == "release")
        self.assertIn("release (done)", self.show("--key", self.key))
        self.assertNotIn("release (done)", self.show("--key", "another"))
        # Also where the lines that have the key are outside of the time that is asked for.
        self.assertIn("release (done)", self.show("--key", self.key, "--since", acted_at))
        self.assertIn("release (done)", self.show("--key", self.key, "--principal", "Bearer alice", "--method", "POST",
                                                  "--path", "/held/1"))
        self.assertIn("release (done)", self.show("--record", record[:12]))
        self.gateway.stop()
        log = ("--log", str(log))
        for which in (("--key", self.key), ("--key", self.key, "--since", acted_at), ("--record", record[:12])):
            shown = run_cli("audit", "show", *which, *log)
            self.assertIn("release (done)", shown.stdout, shown)
        self.assertNotIn("release (done)", run_cli("audit", "show", "--key", "another", *log).stdout)
        for wrong in (record[:11], record + "0", record[:12].upper() + "G"):
            self.assertEqual(run_cli("audit", "show", "--record", wrong, *log).returncode, 2, wrong)

    def test_a_list_of_records_is_checked(self):
        for records in ("x", ["x"], [1], ["0" * 64] * 1001):
            body = json.dumps({"key": "k", "records": records}).encode()
            answer = self.gateway.admin.request("POST", "/api/audit/find", body=body,
                                                headers=[("Content-Type", "application/json")])
            self.assertEqual(answer.status, 400, records)


class TamperedLogTest(unittest.TestCase):
    """A gateway of its own for each test, since each spoils its log."""

    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.gateway = Gateway(self.upstream.url, [{"path": "/*", "audit": "decisions", "on_unknown": "hold"}],
                               store="journal")
        self.addCleanup(self.gateway.remove)
        self.gateway.start()
        self.log = self.gateway.folder / "data" / "audit.log"

    def work(self, count=3):
        for _ in range(count):
            self.gateway.client().post("/charges", key=fresh_key())

    def verify(self):
        return run_cli("audit", "verify", "--config", str(self.gateway.config_file))

    def change(self, change):
        rows = self.log.read_text().splitlines(keepends=True)
        change(rows)
        self.log.write_text("".join(rows))

    def assert_broken(self, words):
        verified = self.verify()
        self.assertEqual(verified.returncode, 1, verified)
        self.assertRegex(verified.stdout, words)
        self.assertIn("NOT WHOLE", verified.stdout)

    def test_what_was_removed_or_changed_is_named_by_its_line(self):
        self.work()
        self.gateway.stop()
        whole = self.log.read_text()
        self.assertEqual(self.verify().returncode, 0)
        self.change(lambda rows: rows.pop(3))
        self.assert_broken(r"audit\.log:4: line 4 is missing")
        self.log.write_text(whole)
        self.change(lambda rows: rows.__setitem__(2, rows[2].replace("201", "500")))
        self.assert_broken(r"audit\.log:4: line 4 does not follow from line 3")
        self.log.write_text(whole)
        self.change(lambda rows: rows.__delitem__(slice(-2, None)))
        self.assert_broken(r"lines 7 to 8 are missing at the end: the store has seen line 8")
        # The next start says so too, and goes on.
        self.gateway.start()
        self.assertIn("event=audit_chain_broken", self.gateway.log)
        self.gateway.stop()
        self.assert_broken("the gateway found at its start, .*: the store has seen line 8 and the log ends with line 6")

    def test_a_crash_is_no_tampering(self):
        self.work()
        head = self.gateway.folder / "data" / "audit-heads"
        poll_until(lambda: len(lines_of(self.log)) >= 7 and " 7 " in head.read_text(), "the head of the seventh line")
        self.work(1)
        poll_until(lambda: len(lines_of(self.log)) >= 9, "the lines of the last request")
        self.gateway.kill()
        with self.log.open("a") as log:
            log.write('{"n":10,"prev":"0')
        verified = self.verify()
        self.assertEqual(verified.returncode, 0, verified)
        self.assertIn("the last line is not whole", verified.stdout)
        self.gateway.start()
        self.work(1)
        self.gateway.stop()
        verified = self.verify()
        self.assertEqual(verified.returncode, 0, verified)
        self.assertIn("started again after a crash", verified.stdout)
        self.assertIn("18 bytes were torn", verified.stdout)
        self.assertNotIn("audit_chain_broken", self.gateway.log)

    def test_a_forged_line_at_the_end_is_not_taken_for_a_torn_one(self):
        self.work()
        self.gateway.stop()
        whole = self.log.read_text()
        for forged in ('{"n":9,"prev":"00","time":"2026-01-02T03:04:05.678Z","event":"action","record":"00"}', '{"n":9'):
            self.log.write_text(whole + forged + "\n")
            self.assert_broken(r"audit\.log:9: is not a line of an audit log, and no line behind it says that it was torn")
            verified = run_cli("audit", "verify", "--config", str(self.gateway.config_file), "--json")
            self.assertEqual((verified.returncode, json.loads(verified.stdout)["whole"]), (1, False))
        # The next start does not pass it off as torn by a crash.
        self.gateway.start()
        self.assertIn("event=audit_chain_broken", self.gateway.log)
        self.gateway.stop()
        self.assert_broken("behind line 8 stands one that is not a line of an audit log")

    def test_a_last_line_without_its_newline_is_left_out(self):
        self.work()
        self.gateway.stop()
        rows = self.log.read_text().splitlines()
        self.log.write_text("\n".join(rows))
        shown = run_cli("audit", "show", "--log", str(self.log), "--json")
        self.assertEqual(len(json.loads(shown.stdout)["lines"]), len(rows) - 1)
        self.assertRegex(shown.stderr, r"left out: the last line of .*audit\.log: it is being written, or a crash")
        self.log.write_text("\n".join(rows) + "\n")
        shown = run_cli("audit", "show", "--log", str(self.log), "--json")
        self.assertEqual((len(json.loads(shown.stdout)["lines"]), shown.stderr), (len(rows), ""))

    def release_what_is_held(self):
        """A key whose first owner got no answer, released by an operator; its id."""
        self.upstream.will(resets())
        self.gateway.client().post("/charges", key="held", body=b"ten")
        record = self.gateway.records()[0]["id"]
        answer = self.gateway.admin.request(
            "POST", f"/api/keys/{record}/release", body=json.dumps({"reason": "not charged"}).encode(),
            headers=[("Content-Type", "application/json")])
        self.assertEqual(answer.status, 200, answer)
        return record

    def test_an_action_is_in_the_file_when_it_is_answered(self):
        record = self.release_what_is_held()
        self.gateway.kill()
        actions = [line for line in lines_of(self.log) if line.get("action") == "release"]
        self.assertEqual([(line["record"], line["result"], line["reason"], line["peer"]) for line in actions],
                         [(record, "done", "not charged", "127.0.0.1")])

    def test_the_page_of_a_key_shows_what_its_earlier_owner_did(self):
        record = self.release_what_is_held()
        self.gateway.client().post("/charges", key="held", body=b"ten")
        timeline = self.gateway.admin.get(f"/api/keys/{record}").json()["timeline"]
        claimed = [each for each in timeline if each["event"] == "claimed"]
        received = [each for each in timeline if each["event"] == "received"]
        self.assertEqual(len(claimed), 1, timeline)
        self.assertEqual(claimed[0]["gateway"], received[0]["gateway"])
        self.assertLess(claimed[0]["fence"], received[0]["fence"])
        self.assertIn("by the audit log", claimed[0]["text"])

    def test_the_page_of_a_key_that_was_held_still_says_so_after_the_decision(self):
        self.upstream.will(resets())
        self.gateway.client().post("/charges", key="held", body=b"ten")
        record = self.gateway.records()[0]["id"]

        def held():
            timeline = self.gateway.admin.get(f"/api/keys/{record}").json()["timeline"]
            return [each for each in timeline if each["event"] == "held"]

        self.assertEqual(len(held()), 1)
        answer = self.gateway.admin.request(
            "POST", f"/api/keys/{record}/complete", headers=[("Content-Type", "application/json")],
            body=json.dumps({"reason": "charged", "confirm": record[:8], "status": 201, "body": "by hand"}).encode())
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(["by the audit log" in each["text"] for each in held()], [True])

    def test_the_retries_of_a_key_are_known_after_a_restart(self):
        for body in (b"ten", b"ten", b"ten", b"twenty"):
            self.gateway.client().post("/charges", key="restarted", body=body)

        def life():
            shown = self.gateway.admin.get(f"/api/keys/{self.gateway.records()[0]['id']}").json()
            self.assertEqual((shown["audit"], shown["audit_back_to"]), ("log", None))
            return {each["event"]: each for each in shown["timeline"]}

        before = life()
        self.assertEqual((before["replayed"]["count"], before["mismatch"]["count"]), (2, 1))
        self.gateway.stop()
        self.gateway.start()
        after = life()
        self.assertEqual((after["replayed"]["count"], after["mismatch"]["count"]), (2, 1))
        self.assertIn("by the audit log", after["replayed"]["text"])

    def test_a_large_log_is_rotated(self):
        self.gateway.stop()
        self.gateway.settings["audit_log_size"] = "2KiB"
        self.gateway.start()
        for _ in range(4):
            self.work(3)
            self.gateway.admin.get("/api/audit")  # writes what is gathered
        self.gateway.stop()
        rotated = sorted(self.log.parent.glob("audit.log.*"))
        self.assertGreater(len(rotated), 2)
        verified = self.verify()
        self.assertEqual(verified.returncode, 0, verified)
        os.remove(rotated[0])
        verified = self.verify()
        self.assertEqual(verified.returncode, 1, "no line says that the gateway deleted it")
        self.assertIn("no line says that the gateway deleted them", verified.stdout)
        first = lines_of(rotated[1])[0]["n"]
        archived = run_cli("audit", "verify", "--config", str(self.gateway.config_file), "--from", str(first))
        self.assertEqual(archived.returncode, 0, archived)
        self.assertIn("files with older lines are not here", archived.stdout)
        os.remove(rotated[2])
        self.assert_broken("are missing|is missing")


    def test_old_files_are_deleted_by_the_setting_and_the_chain_says_so(self):
        self.gateway.stop()
        self.gateway.settings["audit_log_size"] = "2KiB"
        self.gateway.start()
        for _ in range(4):
            self.work(3)
            self.gateway.admin.get("/api/audit")
        self.gateway.stop()
        before = sorted(self.log.parent.glob("audit.log.*"))
        newest = lines_of(self.log)[0]["time"]
        poll_until(lambda: age_of(newest) > 1, "every line to be older than a second")
        self.gateway.settings["audit_log_keep"] = "1s"
        self.gateway.start()
        removed = next(line for line in lines_of(self.log) if line["event"] == "removed")
        self.assertEqual((removed["files"], removed["first"]), (len(before), 1))
        self.assertFalse(any(file.exists() for file in before))
        verified = self.verify()
        self.assertEqual(verified.returncode, 0, verified)
        self.assertRegex(verified.stdout, rf'begins with line {removed["last"] + 1}: the gateway deleted lines up to '
                                          rf'{removed["last"]} at .*, by audit_log_keep = "1s"')
        # The way back ends where the log begins now.
        oldest = self.gateway.admin.get("/api/audit?events=all&limit=1000").json()["lines"][-1]
        self.assertEqual(oldest["n"], removed["last"] + 1)


class CommandLineTest(unittest.TestCase):
    """What is done to a store without a gateway stands in the log of the next one."""

    def setUp(self):
        # A restored store would make a token of its own.
        self.gateway = Gateway("http://127.0.0.1:9", [{"path": "/*"}], store="journal", admin_token="0123456789abcdef")
        self.addCleanup(self.gateway.remove)
        self.gateway.start()

    def actions(self, gateway):
        return {line["action"]: line for line in gateway.admin.get("/api/audit").json()["lines"]}

    def wait_for(self, action, gateway):
        return poll_until(lambda: self.actions(gateway).get(action), f"the line of {action}")

    def test_an_accepted_loss_is_a_line(self):
        accept = ("store", "accept-loss", "--store", self.gateway.store, "--yes", "--reason", "asked the bank")
        self.assertEqual(run_cli(*accept).returncode, 0)
        line = self.wait_for("accept_loss", self.gateway)
        self.assertRegex(line["who"], r"^command line \(.+@.+\)$")
        self.assertRegex(line["result"], "^done at 20..-")
        self.assertEqual(line["reason"], "asked the bank")
        self.gateway.stop()
        self.assertEqual(run_cli(*accept).returncode, 0)
        verified = run_cli("audit", "verify", "--config", str(self.gateway.config_file))
        self.assertEqual(verified.returncode, 0, verified)
        self.assertRegex(verified.stdout, "accept_loss by command line .* is in no log yet")
        self.gateway.start()
        poll_until(lambda: len([line for line in self.gateway.admin.get("/api/audit").json()["lines"]
                                if line["action"] == "accept_loss"]) == 2, "the second line")
        self.assertNotIn("in no log yet", run_cli("audit", "verify", "--config", str(self.gateway.config_file)).stdout)

    def test_a_restored_store_says_so_itself(self):
        backup, restored = self.gateway.folder / "backup", self.gateway.folder / "restored"
        self.gateway.stop()
        made = run_cli("store", "backup", "--store", self.gateway.store, str(backup))
        self.assertEqual(made.returncode, 0, made)
        back = run_cli("store", "restore", str(backup), str(restored), "--reason", "the disk died")
        self.assertEqual(back.returncode, 0, back)
        self.gateway.settings["store"] = f"journal:{restored}"
        self.gateway.start()
        self.assertEqual(self.wait_for("restore_store", self.gateway)["reason"], "the disk died")


@unittest.skipIf("ONCEKEY_MACHINE_FAULTS" not in os.environ, "ONCEKEY_MACHINE_FAULTS names no library to preload")
class StalledDiskTest(unittest.TestCase):
    """The disk of the audit log does not answer. An action waits for its line; nothing else waits."""

    def test_probes_and_requests_are_answered_meanwhile(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        environment = {"LD_PRELOAD": os.environ["ONCEKEY_MACHINE_FAULTS"], "ASAN_OPTIONS": "verify_asan_link_order=0"}
        gateway = Gateway(upstream.url, [{"path": "/*", "policy": "classic", "audit": "decisions", "on_unknown": "hold"}],
                          store="journal", environment=environment)
        self.addCleanup(gateway.remove)
        stalled = gateway.folder / "stalled"
        environment["ONCEKEY_STALL_AUDIT"] = str(stalled)
        gateway.start()
        upstream.will(resets())
        gateway.client().post(key="held")
        record = gateway.records()[0]
        stalled.touch()
        body = json.dumps({"reason": "not charged"}).encode()
        action = Background(lambda: gateway.admin.request("POST", f"/api/keys/{record['id']}/release", body=body,
                                                          headers=[("Content-Type", "application/json")]))
        # The store has done it; only the answer waits.
        poll_until(lambda: not gateway.records(), "the release")
        listing = Background(lambda: gateway.admin.get("/api/audit"))
        for _ in range(3):
            self.assertEqual(gateway.admin.get("/livez").status, 200)
            self.assertEqual(gateway.admin.get("/readyz").status, 200)
            self.assertEqual(gateway.admin.get("/api/overview").status, 200)
            self.assertEqual(gateway.client().post(key=fresh_key()).status, 201)
        self.assertFalse(action.finished)
        self.assertFalse(listing.finished)
        stalled.unlink()
        self.assertEqual(action.result().status, 200)
        # Perhaps asked for before the action's line was handed over, but not after its answer.
        self.assertEqual(listing.result().status, 200)
        self.assertEqual(gateway.admin.get("/api/audit").json()["lines"][0]["action"], "release")


class AuditPlaceTest(unittest.TestCase):
    def test_it_is_off_for_a_store_in_memory_and_where_switched_off(self):
        for settings in ({"store": "memory:"}, {"store": "journal", "audit_log": "off"}):
            with Gateway("http://127.0.0.1:9", [{"path": "/*"}], **settings) as gateway:
                self.assertEqual(list(gateway.folder.rglob("audit*")), [])
                # What operators did since the start is known all the same.
                self.assertEqual(json.loads(gateway.admin.get("/api/audit").body)["from"], "memory")

    def test_a_path_that_cannot_be_written_refuses_the_start(self):
        gateway = Gateway("http://127.0.0.1:9", [{"path": "/*"}], store="journal")
        self.addCleanup(gateway.remove)
        (gateway.folder / "file").write_text("")
        gateway.settings["audit_log"] = str(gateway.folder / "file" / "audit.log")
        self.assertEqual(gateway.start_expecting_refusal(), 1)
        self.assertIn("audit_log: ", gateway.log)


class SharedStores:
    commands = {"accept_loss": ("accept-loss", "--yes")}

    def test_each_gateway_has_a_chain_and_the_store_keeps_both_heads(self):
        server = self.make().start()
        self.addCleanup(server.remove)
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        gateways = []
        for name in ("eu-1", "eu-2"):
            gateway = Gateway(upstream.url, [{"path": "/*", "audit": "decisions"}], store=server.url, gateway_name=name)
            self.addCleanup(gateway.remove)
            gateways.append(gateway.start())
        key = fresh_key()
        for gateway in gateways:
            gateway.client().post("/charges", key=key)
        for gateway in gateways:
            gateway.stop()
        # What commands did without them is in the log of the first that starts.
        for action, words in self.commands.items():
            done = run_cli("store", *words, "--store", server.url, "--reason", f"a drill of {action}")
            self.assertEqual(done.returncode, 0, done)
        gateways[0].start()
        found = poll_until(lambda: len(lines := gateways[0].admin.get("/api/audit").json()["lines"]) == len(self.commands)
                           and lines, "the lines")
        self.assertEqual({line["action"]: line["reason"] for line in found},
                         {action: f"a drill of {action}" for action in self.commands})
        gateways[0].stop()
        again = ["opened", *["action"] * len(self.commands), "closed"]
        for gateway, events in zip(gateways, (["opened", "claimed", "completed", "closed", *again],
                                              ["opened", "replayed", "closed"])):
            files = list((gateway.folder / "state" / "oncekey").glob("audit-eu-*.log"))
            self.assertEqual(len(files), 1)
            self.assertEqual([line["event"] for line in lines_of(files[0])], events)
            verify = ("audit", "verify", "--config", str(gateway.config_file))
            state = {"XDG_STATE_HOME": str(gateway.folder / "state")}
            self.assertEqual(run_cli(*verify, environment=state).returncode, 0)
            files[0].write_text("".join(files[0].read_text().splitlines(keepends=True)[:-1]))
            verified = run_cli(*verify, environment=state)
            self.assertEqual(verified.returncode, 1, verified)
            self.assertIn("missing at the end", verified.stdout)


class AuditOnPostgresTest(SharedStores, unittest.TestCase):
    make = Postgres
    commands = {**SharedStores.commands, "migrate_store": ("migrate",)}


class AuditOnRedisTest(SharedStores, unittest.TestCase):
    make = Redis


if __name__ == "__main__":
    unittest.main()
