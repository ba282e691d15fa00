"""An older copy of the store, an emptied one, and a clock that is ahead: nothing is executed twice for it."""

import os
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.client import Client
from support.gateway import Gateway, run_cli
from support.upstream import Upstream
from support.waiting import poll_until

CLASSIC = [{"path": "/*", "policy": "classic"}]


class StoreTest(unittest.TestCase):
    environment = {}

    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.gateway = Gateway(self.upstream.url, CLASSIC, store="journal", environment=dict(self.environment))
        self.addCleanup(self.gateway.remove)
        self.data = self.gateway.folder / "data"

    def post(self, key):
        return self.gateway.client().post(key=key)


class OlderCopyTest(StoreTest):
    def lose_a_payment(self):
        """`old` is in the copy that is put back, `new` only in what was lost."""
        copy = self.gateway.folder / "copy"
        self.gateway.start()
        self.assertEqual(self.post("old").status, 201)
        self.gateway.stop()
        shutil.copytree(self.data, copy)
        self.gateway.start()
        self.assertEqual(self.post("new").status, 201)
        self.gateway.stop()
        shutil.rmtree(self.data)
        shutil.copytree(copy, self.data)

    def assert_waits(self):
        refused = self.post("new")
        self.assertEqual(refused.status, 503)
        self.assertTrue(refused.has("Retry-After"))
        self.assertEqual(self.upstream.executions(), self.executed, "nothing was executed again")

    def test_claims_wait_and_everything_else_goes_on(self):
        self.lose_a_payment()
        self.executed = self.upstream.executions()
        self.gateway.start()
        self.assert_waits()
        self.assertIn("older copy", self.gateway.wait_for_log("event=memory_lost"))
        self.assertTrue(self.post("old").replayed, "what it remembers it replays")
        self.assertEqual(self.gateway.client().post("/unkeyed").status, 201)
        self.executed += 1

        anyone = Client(self.gateway.admin_address, host=self.gateway.admin_text)
        word = anyone.get("/readyz", authorization=False)
        self.assertEqual((word.status, word.json()), (503, {"status": "not ready", "reason": "store"}))
        self.assertIn("accept-loss", self.gateway.admin.get("/readyz").json()["reason"])

        self.gateway.stop()
        self.gateway.start()
        self.assert_waits()

    def test_an_operator_accepts_the_loss_while_the_gateway_runs(self):
        self.lose_a_payment()
        self.executed = self.upstream.executions()
        self.gateway.start()
        self.assert_waits()
        accepted = run_cli("store", "accept-loss", "--store", self.gateway.store, "--yes")
        self.assertEqual(accepted.returncode, 0, accepted.stderr)
        self.assertIn("gateways accept claims again\n", accepted.stdout)
        self.assertEqual(self.gateway.admin.get("/readyz").status, 200)
        self.assertEqual(self.post("new").status, 201)
        self.gateway.stop()
        self.gateway.start()
        self.assertTrue(self.post("new").replayed)

    def test_an_operator_accepts_the_loss_while_the_gateway_is_stopped(self):
        self.lose_a_payment()
        self.executed = self.upstream.executions()
        self.gateway.start()
        self.assert_waits()
        self.gateway.stop()
        accepted = run_cli("store", "accept-loss", "--store", self.gateway.store, "--yes")
        self.assertIn("at its next start", accepted.stdout)
        self.gateway.start()
        self.assertEqual(self.post("new").status, 201)

    def test_an_emptied_folder_is_noticed_too(self):
        self.gateway.start()
        self.assertEqual(self.post("new").status, 201)
        self.gateway.stop()
        shutil.rmtree(self.data)
        self.executed = self.upstream.executions()
        self.gateway.start()
        self.assert_waits()

    def test_a_kill_is_no_loss(self):
        self.gateway.start()
        for round_number in range(3):
            for number in range(20):
                self.assertEqual(self.post(f"k-{round_number}-{number}").status, 201)
            self.gateway.kill()
            self.gateway.start()
            self.assertTrue(self.post(f"k-{round_number}-19").replayed)
        self.assertNotIn("memory_lost", self.gateway.log)

    def test_the_witness_is_written_while_the_gateway_runs(self):
        self.gateway.start()
        witness = self.gateway.folder / "data.witness"
        before = witness.read_text()
        self.post("k")
        poll_until(lambda: witness.read_text() != before, "the witness to follow")

    def test_a_missing_witness_is_said_and_made_again(self):
        self.gateway.start()
        self.post("k")
        self.gateway.stop()
        (self.gateway.folder / "data.witness").unlink()
        self.gateway.start()
        self.gateway.wait_for_log("event=witness_missing")
        self.assertTrue(self.post("k").replayed)
        self.assertTrue((self.gateway.folder / "data.witness").exists())


@unittest.skipUnless("ONCEKEY_MACHINE_FAULTS" in os.environ, "ONCEKEY_MACHINE_FAULTS names no library to preload")
class ClockAheadTest(StoreTest):
    """A machine that starts with its clock a day ahead, before the time service has spoken."""

    def boot(self, number, ahead_seconds, synchronised):
        boot_id = self.gateway.folder / "boot_id"
        boot_id.write_text(f"boot-{number}\n")
        self.gateway._environment.update({
            "LD_PRELOAD": os.environ["ONCEKEY_MACHINE_FAULTS"], "ASAN_OPTIONS": "verify_asan_link_order=0",
            "ONCEKEY_BOOT_ID": str(boot_id), "ONCEKEY_WALL_AHEAD_SECONDS": str(ahead_seconds),
            "ONCEKEY_SYNCHRONISED": str(int(synchronised))})
        self.gateway.start()

    def test_a_clock_that_is_ahead_for_one_start_forgets_nothing(self):
        self.boot(1, 0, True)
        self.assertEqual(self.post("payment").status, 201)
        self.gateway.stop()
        self.boot(2, 25 * 3600, False)
        self.assertTrue(self.post("payment").replayed)
        self.gateway.stop()
        self.boot(3, 0, True)
        self.assertTrue(self.post("payment").replayed)
        self.assertEqual(self.upstream.executions(), 1)

    def test_a_machine_that_was_off_for_longer_than_the_retention_has_forgotten(self):
        self.boot(1, 0, True)
        self.assertEqual(self.post("payment").status, 201)
        self.gateway.stop()
        self.boot(2, 25 * 3600, True)
        self.assertFalse(self.post("payment").replayed)
        self.assertEqual(self.upstream.executions(), 2)


if __name__ == "__main__":
    unittest.main()
