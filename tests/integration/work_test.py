"""`oncekey work` and `oncekey schema`: the library's workers beside an application, and its tables."""

import json
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.gateway import binary
from support.upstream import Upstream, answers, held
from support.waiting import PATIENCE_SECONDS, poll_until

DONE, REFUSED, USAGE = range(3)


def oncekey(*arguments):
    return subprocess.run([binary(), *arguments], capture_output=True, text=True, timeout=3 * PATIENCE_SECONDS)


class WorkTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="oncekey-work-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "app.db"
        self.store = f"sqlite:{self.path}"
        self.sink = Upstream().start()
        self.addCleanup(self.sink.stop)
        # The tables as an application's own migrations would make them.
        with sqlite3.connect(self.path) as database:
            database.executescript(oncekey("schema", "print", "sqlite").stdout)

    def stage(self, name, sink="mail"):
        with sqlite3.connect(self.path) as database:
            return database.execute("INSERT INTO oncekey_job (sink, name, args, staged_at, next_attempt_at) "
                                    "VALUES (?, ?, CAST('[1]' AS BLOB), 0, 0)", (sink, name)).lastrowid

    def jobs(self):
        with sqlite3.connect(self.path) as database:
            return [row[0] for row in database.execute("SELECT id FROM oncekey_job ORDER BY id")]

    def test_a_staged_job_is_delivered_with_its_id_as_key_and_then_gone(self):
        job = self.stage("send_receipt")
        self.sink.will(answers(204, b""))
        run = oncekey("work", "--store", self.store, "--sink", f"mail={self.sink.url}/jobs", "--once")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn("delivered=1", run.stderr)
        self.assertEqual(self.sink.last.key, str(job))
        self.assertEqual(self.sink.last.header("Oncekey-Job"), "send_receipt")
        self.assertEqual(self.sink.last.body, b"[1]")
        self.assertEqual(self.jobs(), [])

    def test_once_is_all_there_is_and_not_one_batch(self):
        jobs = 1001  # an enqueuer takes a thousand at a time
        with sqlite3.connect(self.path) as database:
            database.executemany("INSERT INTO oncekey_job (sink, name, args, staged_at, next_attempt_at) "
                                 "VALUES ('mail', 'n', CAST('[]' AS BLOB), 0, 0)", [()] * jobs)
        run = oncekey("work", "--store", self.store, "--sink", f"mail={self.sink.url}/jobs", "--once")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertIn(f"delivered={jobs}", run.stderr)
        self.assertEqual(self.jobs(), [])

    def test_a_refused_job_stays(self):
        job = self.stage("send_receipt")
        self.sink.will(answers(422, b"no"))
        run = oncekey("work", "--store", self.store, "--sink", f"mail={self.sink.url}/jobs", "--once")
        self.assertIn("refused=1", run.stderr)
        self.assertEqual(self.jobs(), [job])

    def test_dead_letters_are_listed_and_restarted(self):
        job = self.stage("send_receipt")
        with sqlite3.connect(self.path) as database:
            database.execute("UPDATE oncekey_job SET state = 'dead', dead_at = 1, last_error = 'it said no'")
        self.assertIn(f"job {job} send_receipt for mail: it said no", oncekey("work", "--store", self.store, "--dead").stdout)
        listed = json.loads(oncekey("jobs", "list", "--store", self.store, "--state", "dead", "--json").stdout)["jobs"]
        self.assertEqual([(each["id"], each["why_dead"]) for each in listed], [(str(job), "it said no")])
        retry = ("jobs", "retry", "--store", self.store, "--reason", "mended", "--yes")
        self.assertEqual(oncekey(*retry, str(job)).returncode, DONE)
        self.assertEqual(oncekey("work", "--store", self.store, "--dead").stdout, "no dead letters\n")
        self.assertEqual(oncekey(*retry, "99").returncode, REFUSED)
        self.assertEqual(oncekey(*retry, "0").returncode, REFUSED)

    def test_a_job_is_shown_and_dropped(self):
        job = self.stage("send_receipt")
        shown = oncekey("jobs", "show", str(job), "--store", self.store)
        self.assertEqual(shown.returncode, DONE, shown.stderr)
        self.assertIn("send_receipt", shown.stdout)
        dropped = oncekey("jobs", "drop", str(job), "--store", self.store, "--reason", "a test", "--yes")
        self.assertEqual(dropped.returncode, DONE, dropped.stderr)
        self.assertIn("event=operator_action action=drop", dropped.stderr)
        self.assertEqual(self.jobs(), [])

    def test_it_works_until_it_is_told_to_end(self):
        working = subprocess.Popen([binary(), "work", "--store", self.store, "--sink", f"mail={self.sink.url}/jobs"],
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(working.stderr.close)
        self.addCleanup(working.kill)
        self.stage("send_receipt")
        poll_until(lambda: self.jobs() == [], "the job's delivery")
        working.send_signal(signal.SIGTERM)
        self.assertEqual(working.wait(PATIENCE_SECONDS), 0, working.stderr.read())

    def test_it_ends_after_the_job_under_way_and_gives_the_others_back(self):
        for _ in range(20):
            self.stage("send_receipt")
        gate = self.sink.gate()
        self.sink.always(held(gate, answers(204, b"")))
        working = subprocess.Popen([binary(), "work", "--store", self.store, "--sink", f"mail={self.sink.url}/jobs"],
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(working.stderr.close)
        self.addCleanup(working.kill)
        gate.wait_for_arrival()
        working.send_signal(signal.SIGTERM)
        for line in working.stderr:
            if "event=draining" in line:
                break
        gate.open()
        said = working.stderr.read()
        self.assertEqual(working.wait(PATIENCE_SECONDS), 0, said)
        self.assertIn("delivered=1", said)
        self.assertEqual(len(self.jobs()), 19)
        with sqlite3.connect(self.path) as database:
            self.assertEqual(database.execute("SELECT sum(claimed_until) FROM oncekey_job").fetchone(), (0,))

    def test_a_sink_that_does_not_answer_holds_up_no_other(self):
        slow = Upstream().start()
        self.addCleanup(slow.stop)
        gate = slow.gate()
        slow.always(held(gate, answers(204, b"")))
        self.stage("first", sink="a")
        working = subprocess.Popen([binary(), "work", "--store", self.store, "--sink", f"a={slow.url}/jobs",
                                    "--sink", f"mail={self.sink.url}/jobs"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(working.stderr.close)
        self.addCleanup(working.kill)
        gate.wait_for_arrival()
        job = self.stage("second")
        poll_until(lambda: job not in self.jobs(), "the delivery to the sink that answers")
        gate.open()
        working.send_signal(signal.SIGTERM)
        said = working.stderr.read()
        self.assertEqual(working.wait(PATIENCE_SECONDS), 0, said)
        self.assertNotIn("failing", said)  # the delivery did not wait until the other was given up

    def test_only_operations_that_are_named_are_resumed_and_an_unknown_one_is_no_attempt(self):
        with sqlite3.connect(self.path) as database:
            insert = ("INSERT INTO oncekey_operation VALUES (?, zeroblob(32), ?, 'p', 1, 0, '', '', '', '', '', '', "
                      "'', '', 0, 7, 0, 0, NULL, '')")
            database.executemany(insert, [(bytes([n]) * 32, name) for n, name in enumerate(("ride", "refund", "other"))])
        token = self.path.with_name("token")
        token.write_text("Bearer t0ken\n")
        refunds = Upstream().start()
        self.addCleanup(refunds.stop)
        refunds.always(answers(404, b""))
        run = oncekey("work", "--store", self.store, "--once", "--resume", f"ride={self.sink.url}/resume",
                      "--resume-authorization", f"ride=file:{token}", "--resume", f"refund={refunds.url}/resume")
        self.assertEqual(run.returncode, REFUSED, run.stderr)
        self.assertRegex(run.stderr, r"completer picked=2 finished=1 .*dead=0 unknown=1")
        self.assertRegex(run.stderr, 'what="resuming refund" why="the application answered 404')
        self.assertEqual(self.sink.last.key, "00" * 32)
        self.assertEqual(self.sink.last.header("Authorization"), "Bearer t0ken")
        with sqlite3.connect(self.path) as database:
            self.assertEqual(database.execute("SELECT operation, attempts FROM oncekey_operation ORDER BY id").fetchall(),
                             [("ride", 1), ("refund", 0), ("other", 0)])

    def test_jobs_that_no_sink_is_there_for_are_told(self):
        self.stage("send_receipt", sink="mial")
        run = oncekey("work", "--store", self.store, "--sink", f"mail={self.sink.url}/jobs", "--once")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertRegex(run.stderr, "left_alone sink=mial jobs=1 ")

    def test_a_schema_of_another_version_is_told(self):
        with sqlite3.connect(self.path) as database:
            database.execute("UPDATE oncekey_meta SET value = '2' WHERE name = 'schema'")
        run = oncekey("work", "--store", self.store, "--once")
        self.assertEqual(run.returncode, REFUSED, run.stderr)
        self.assertIn("the library's tables have schema version 2, and this program works with version 1", run.stderr)

    def test_a_sink_that_is_down_is_told_with_the_reason_and_fails_a_run_once(self):
        self.stage("send_receipt")
        run = oncekey("work", "--store", self.store, "--sink", "mail=http://127.0.0.1:1/", "--once")
        self.assertEqual(run.returncode, REFUSED, run.stderr)
        self.assertRegex(run.stderr, r'failing worker=enqueuer what="sink mail" why=.*Connection refused')

    def test_a_sink_that_works_again_is_told(self):
        self.stage("send_receipt")
        self.sink.will(answers(503, b""))
        working = subprocess.Popen([binary(), "work", "--store", self.store, "--sink", f"mail={self.sink.url}/jobs"],
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(working.stderr.close)
        self.addCleanup(working.kill)
        poll_until(lambda: self.jobs() == [], "the job's delivery")
        working.send_signal(signal.SIGTERM)
        said = working.stderr.read()
        self.assertEqual(working.wait(PATIENCE_SECONDS), 0, said)
        self.assertLess(said.index('what="sink mail" why="answered 503"'), said.index('working_again worker=enqueuer'))

    def test_a_database_that_fails_is_told(self):
        self.stage("send_receipt")
        with sqlite3.connect(self.path) as database:
            database.execute("CREATE TRIGGER no BEFORE UPDATE ON oncekey_job "
                             "BEGIN SELECT RAISE(ABORT, 'no more of this'); END")
        run = oncekey("work", "--store", self.store, "--sink", f"mail={self.sink.url}/jobs", "--once")
        self.assertEqual(run.returncode, REFUSED, run.stderr)
        self.assertRegex(run.stderr, r'failing worker=enqueuer what=database why=.*no more of this')

    def test_a_sink_is_told_who_we_are_by_a_secret_that_is_no_argument(self):
        self.stage("send_receipt")
        secret = self.path.with_name("secret")
        secret.write_text("Bearer t0ken\n")
        run = oncekey("work", "--store", self.store, "--sink", f"mail={self.sink.url}/jobs", "--once",
                      "--sink-authorization", f"mail=file:{secret}")
        self.assertEqual(run.returncode, DONE, run.stderr)
        self.assertEqual(self.sink.last.header("Authorization"), "Bearer t0ken")

    def test_a_list_that_is_not_whole_says_so(self):
        with sqlite3.connect(self.path) as database:
            database.executemany("INSERT INTO oncekey_job (sink, name, args, staged_at, next_attempt_at, state, dead_at,"
                                 " last_error) VALUES ('mail', 'n', '', 0, 0, 'dead', 1, 'no')", [()] * 101)
        run = oncekey("work", "--store", self.store, "--dead")
        self.assertIn("in all there are 0 operations and 101 jobs", run.stdout)

    def test_a_database_that_is_not_there_is_not_made(self):
        typo = self.path.with_name("typo.db")
        for what in (["work", "--dead"], ["jobs", "list"], ["work", "--once"]):
            run = oncekey(*what, "--store", f"sqlite:{typo}")
            self.assertEqual(run.returncode, REFUSED, run.stderr)
            self.assertIn("there is no database", run.stderr)
            self.assertFalse(typo.exists())

    def test_a_restart_says_whether_somebody_looked(self):
        with sqlite3.connect(self.path) as database:
            insert = ("INSERT INTO oncekey_operation VALUES (?, zeroblob(32), 'book', 'p', 1, 0, '', '', '', '', '', '', "
                      "'', '', 0, 7, 0, 0, 1, 'why')")
            database.executemany(insert, [(bytes([n]) * 32,) for n in (1, 2)])
        self.assertEqual(oncekey("work", "--store", self.store, "--restart-operation", "01" * 32).returncode, DONE)
        self.assertEqual(
            oncekey("work", "--store", self.store, "--restart-operation", "02" * 32, "--confirmed-not-executed").returncode, DONE)
        with sqlite3.connect(self.path) as database:
            kept, anew = [row[0] for row in database.execute("SELECT reached_at FROM oncekey_operation ORDER BY id")]
        self.assertEqual(kept, 7)
        self.assertGreater(anew, 7)

    def test_what_cannot_be_understood_is_said(self):
        self.assertEqual(oncekey("schema", "print", "oracle").returncode, USAGE)
        for wrong in (["--sink", "mail"], ["--sidekiq", "mail=queue"], ["--grace", "soon"], ["--restart-operation", "x"],
                      ["--sink", "mail=http://a/", "--sink", "mail=http://b/"],
                      ["--sink", "mail=http://a/", "--stream", "mail=s@redis://b"],
                      ["--sink", "mail=http://a/", "--sink-authorization", "mail=Bearer"],
                      ["--sink-authorization", f"mail=file:{__file__}"],
                      ["--resume", "http://a/resume"], ["--resume", "ride=http://a/", "--resume", "ride=http://b/"],
                      ["--resume", "ride=http://a/", "--resume-authorization", f"refund=file:{__file__}"]):
            run = oncekey("work", "--store", self.store, *wrong)
            self.assertEqual(run.returncode, USAGE, f"{wrong}: {run.stderr}")
            self.assertTrue(run.stderr.startswith("oncekey work: "), run.stderr)


if __name__ == "__main__":
    unittest.main()
