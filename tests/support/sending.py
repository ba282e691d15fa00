"""Runs of `oncekey send`, each in a folder of its own, against a server that a test scripts."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from support.gateway import SANITIZER_REPORTS, binary
from support.upstream import Upstream
from support.waiting import PATIENCE_SECONDS

SUCCEEDED, REFUSED, USAGE, GAVE_UP, LOCAL_FAULT = range(5)


class Run:
    """One process. `finish` waits for its end; `kill` and `kill_after` are kill -9."""

    def __init__(self, arguments, folder, stdin=None, environment=None):
        self._process = subprocess.Popen([binary(), "send", *arguments], cwd=folder, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         env={**os.environ, **(environment or {})})
        self._stdin = stdin or b""
        self.code = None
        self.out = b""
        self.err = ""

    def finish(self):
        self.out, err = self._process.communicate(self._stdin, timeout=3 * PATIENCE_SECONDS)
        self.code = self._process.returncode
        self.err = err.decode()
        found = SANITIZER_REPORTS.search(self.err)
        if found:
            raise AssertionError(f"a sanitizer found something: {found.group(0)}\n{self.err}")
        return self

    def kill(self):
        self._process.kill()
        self._process.communicate()

    def kill_after(self, seconds):
        """Or not at all, if it has ended by then."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def __repr__(self):
        return f"exit code {self.code}\n{self.out!r}\n{self.err}"


class SendTest(unittest.TestCase):
    """One server for all tests of a class, one folder (and one journal, "keys") for each test."""

    @classmethod
    def setUpClass(cls):
        cls.server = Upstream().start()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.server.reset()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-send-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    # Verbs.

    def start(self, *arguments, method="POST", url=None, target="/charges", stdin=None, environment=None):
        return Run([method, url or self.server.url + target, *arguments], self.folder, stdin, environment)

    def send(self, *arguments, **options):
        return self.start(*arguments, **options).finish()

    def start_journaled(self, *arguments, **options):
        return self.start("--journal", "keys", *arguments, **options)

    def send_journaled(self, *arguments, **options):
        return self.start_journaled(*arguments, **options).finish()

    # Expectations.

    def keys(self):
        """The keys that arrived, in order."""
        return [request.key for request in self.server.received]

    def assert_one_key(self, count):
        self.assertEqual(len(self.keys()), count, self.keys())
        self.assertEqual(len(set(self.keys())), 1, self.keys())

    def assert_ended(self, run, code):
        self.assertEqual(run.code, code, run)
