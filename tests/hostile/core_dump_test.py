"""The memory of the process, with the bodies and tokens in it, goes into no file and to no other process."""

import os
import pathlib
import re
import resource
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.gateway import Gateway
from support.local_users import NOBODY, as_user, may_open, needs_root
from support.upstream import Upstream

CLASSIC = [{"path": "/*", "policy": "classic"}]


class CoreDumpTest(unittest.TestCase):
    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        # A shell that allows dumps of any size.
        before = resource.getrlimit(resource.RLIMIT_CORE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_CORE, before)
        resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))

    def gateway(self, **options):
        gateway = Gateway(self.upstream.url, CLASSIC, **options)
        self.addCleanup(gateway.remove)
        gateway.start()
        self.assertEqual(gateway.client().post(key="k", body=b"card-4242").status, 201)
        return gateway

    @staticmethod
    def core_limit(gateway):
        limits = pathlib.Path(f"/proc/{gateway.pid}/limits").read_text()
        return re.search(r"Max core file size\s+(\S+)", limits).group(1)

    @staticmethod
    def others_can_read_memory(gateway):
        """Whether another process of the gateway's user can open its memory."""
        return as_user(NOBODY, lambda: may_open(f"/proc/{gateway.pid}/mem"))

    def test_a_crash_leaves_no_core(self):
        gateway = self.gateway()
        self.assertEqual(self.core_limit(gateway), "0")
        gateway.signal(signal.SIGQUIT)
        self.assertEqual(gateway.wait(), -signal.SIGQUIT)
        self.assertEqual([path.name for path in gateway.folder.iterdir() if path.name.startswith("core")], [])

    def test_those_who_want_dumps_get_them_and_are_warned(self):
        gateway = self.gateway(core_dumps=True)
        self.assertNotEqual(self.core_limit(gateway), "0")
        gateway.wait_for_log("a core dump holds the bodies")

    @needs_root()
    def test_other_processes_of_the_same_user_do_not_read_its_memory(self):
        self.assertFalse(self.others_can_read_memory(self.gateway(user=NOBODY)))
        ptrace_scope = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
        if not ptrace_scope.exists() or ptrace_scope.read_text().strip() == "0":
            self.assertTrue(self.others_can_read_memory(self.gateway(user=NOBODY, core_dumps=True)), "the control")

    @needs_root()
    def test_it_still_works_as_an_ordinary_user(self):
        gateway = self.gateway(user=NOBODY, store="journal")
        self.assertTrue(gateway.client().post(key="k", body=b"card-4242").replayed)
        self.assertEqual(os.stat(gateway.folder / "data").st_uid, NOBODY)
        gateway.stop()


if __name__ == "__main__":
    unittest.main()
