"""Rocket Rides as processes of a test: the API, its workers, the processor and the mailer, and a judge of their counts."""

import collections
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from judge import violations_of
from support.client import Client
from support.gateway import PROJECT, SANITIZER_REPORTS
from support.servers import Postgres, spawn
from support.waiting import PATIENCE_SECONDS, poll_until

# Long tests are for `make test-slow`: many more kills of the same kinds.
LONG = os.environ.get("ONCEKEY_SLOW_TESTS", "") not in ("", "0")
BOOKING = b'{"origin":{"lat":37.77,"lon":-122.42},"target":{"lat":48.85,"lon":2.35}}'
# Ahead of every lease and grace time of these tests, and far from a day: workers that look at such a clock need not wait.
LATER = "600"
WORKER_SECONDS = "60"


def binary():
    return os.environ.get("ONCEKEY_RIDES", str(PROJECT / "build" / "release" / "rides"))


class Process:
    """One `rides` process. What it prints is kept."""

    def __init__(self, folder, *arguments):
        self.command = arguments[0]
        self.output = tempfile.NamedTemporaryFile(dir=folder, prefix=f"{self.command}-", delete=False)
        self.process = spawn([binary(), *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=self.output,
                             stderr=self.output)

    @property
    def printed(self):
        return pathlib.Path(self.output.name).read_text(errors="replace")

    @property
    def running(self):
        return self.process.poll() is None

    def listening(self):
        """Waits for its address."""
        def found():
            if not self.running:
                raise AssertionError(f"rides {self.command} ended with {self.process.returncode}:\n{self.printed}")
            return re.search(r"listening on http://(127\.0\.0\.1):(\d+)", self.printed)

        host, port = poll_until(found, f"rides {self.command} to listen").groups()
        self.address = (host, int(port))
        self.url = f"http://{host}:{port}"
        return self

    def wait(self, seconds=PATIENCE_SECONDS):
        code = self.process.wait(seconds)
        self.check_sanitizers()
        return code

    def kill(self):
        if self.running:
            self.process.kill()
            self.process.wait(PATIENCE_SECONDS)
        self.check_sanitizers()

    def stop(self):
        """A proper end."""
        if self.running:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE_SECONDS)
            if self.process.returncode != 0:
                raise AssertionError(f"rides {self.command} ended with {self.process.returncode}:\n{self.printed}")
        self.check_sanitizers()

    def paused(self):
        """Whether it has been stopped by a signal."""
        state = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return self.running and state == "T"

    def wake(self):
        self.process.send_signal(signal.SIGCONT)

    def remove(self):
        if self.running:
            self.process.kill()
            self.process.wait(PATIENCE_SECONDS)
        self.output.close()

    def check_sanitizers(self):
        found = SANITIZER_REPORTS.search(self.printed)
        if found:
            raise AssertionError(f"a sanitizer found something in rides {self.command}:\n{self.printed}")


class RidesTest(unittest.TestCase):
    """Every test has a database, a processor and a mailer of its own. Subclasses say which kind of database."""

    kind = None
    postgres = None
    numbers = iter(range(1, 1_000_000))

    @classmethod
    def setUpClass(cls):
        if cls.kind is None:
            raise unittest.SkipTest("a base class")
        if cls.kind == "postgres":
            cls.postgres = Postgres()
            cls.addClassCleanup(cls.postgres.remove)
            cls.postgres.start()
            cls.addClassCleanup(cls.postgres.stop_immediately)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="oncekey-rides-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.processes = []
        self.addCleanup(self.remove_processes)
        self.database = self.fresh_database()
        self.processor = self.mailer = None

    def fresh_database(self):
        number = next(self.numbers)
        if self.kind == "sqlite":
            return f"sqlite:{self.folder}/rides{number}.db"
        return self.postgres.create_database(f"rides{number}")

    def remove_processes(self):
        for process in self.processes:
            process.remove()

    # Verbs.

    def start(self, *arguments):
        process = Process(self.folder, *arguments)
        self.processes.append(process)
        return process

    def start_processor(self, *arguments):
        self.processor = self.start("processor", "--port", "0", *arguments).listening()

    def start_mailer(self, *arguments):
        self.mailer = self.start("mailer", "--port", "0", "--database", f"sqlite:{self.folder}/mail.db",
                                 *arguments).listening()

    def start_api(self, *arguments):
        return self.start("api", "--port", "0", "--database", self.database, "--processor", self.processor.url,
                          *arguments).listening()

    def start_completer(self, *arguments):
        return self.start("completer", "--database", self.database, "--processor", self.processor.url, "--backoff",
                          "0.2", "--until-done", WORKER_SECONDS, *arguments)

    def start_enqueuer(self, *arguments):
        return self.start("enqueuer", "--database", self.database, "--mailer", self.mailer.url, "--backoff", "0.1",
                          "--backoff-max", "0.5", "--until-done", WORKER_SECONDS, *arguments)

    def finish(self, worker):
        code = worker.wait(float(WORKER_SECONDS) + PATIENCE_SECONDS)
        self.assertEqual(code, 0, f"{worker.command}:\n{worker.printed}")
        return worker.printed

    def complete_and_deliver(self):
        """Afterwards nothing is unfinished and every job is delivered."""
        self.finish(self.start_completer("--clock-ahead", LATER))
        self.finish(self.start_enqueuer("--clock-ahead", LATER))

    def book(self, api, key, *, user="amy", body=BOOKING):
        return Client(api.address, user).post("/rides", key=key, body=body)

    def get(self, process, target, user="amy"):
        return Client(process.address, user).get(target).json()

    def charges_by_ride(self):
        return collections.Counter(charge["ride"] for charge in self.get(self.processor, "/charges")["charges"])

    def receipts_by_ride(self):
        return collections.Counter(receipt["ride"] for receipt in self.get(self.mailer, "/receipts")["receipts"])

    # Expectations.

    def assert_once(self, answers):
        """`answers` are all final answers that any client ever got: key -> [(status, body)]."""
        charges = self.get(self.processor, "/charges")["charges"]
        receipts = [receipt["ride"] for receipt in self.get(self.mailer, "/receipts")["receipts"]]
        self.assertEqual(violations_of(answers, charges, receipts), [])


def on_every_database(case):
    """Makes two classes of one: CASEOnSqlite and CASEOnPostgres."""
    module = sys.modules[case.__module__]
    for kind in ("sqlite", "postgres"):
        name = f"{case.__name__}On{kind.capitalize()}"
        made = type(name, (case,), {"kind": kind, "__module__": case.__module__})
        setattr(module, name, made)
    return case
