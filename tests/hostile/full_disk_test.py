"""A disk that fills up: claims stop in time, what was begun ends, nothing ends the process, and it recovers (A2).

The store is on a small tmpfs of its own, which needs root. Without it the tests skip, and say so.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import fresh_key
from support.gateway import Gateway
from support.upstream import Upstream, answers, held
from support.waiting import poll_until

MIB = 1 << 20
ATTACKER, VICTIM = "127.0.0.2", "127.0.0.3"
ROUTES = [{"path": "/charges", "policy": "classic"}]


class SmallDisk:
    def __init__(self, bytes_):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-disk-"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={bytes_}", "tmpfs", self.path], check=True)

    def free(self):
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    def fill(self, leave=0):
        """As another program on the machine would."""
        with open(self.path / "filler", "ab") as filler:
            while self.free() > leave:
                try:
                    filler.write(b"\0" * min(MIB, self.free() - leave))
                    filler.flush()
                except OSError:
                    return

    def make_room(self):
        (self.path / "filler").unlink()

    def remove(self):
        subprocess.run(["umount", "-l", self.path], check=False)
        self.path.rmdir()


def can_mount():
    folder = tempfile.mkdtemp()
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=False,
                                 capture_output=True)
        if mounted.returncode == 0:
            subprocess.run(["umount", folder], check=False)
        return mounted.returncode == 0
    finally:
        os.rmdir(folder)


@unittest.skipUnless(can_mount(), "SKIPPED LOUDLY: a small tmpfs cannot be mounted here; run as root")
class FullDiskTest(unittest.TestCase):
    def setUp(self):
        self.disk = SmallDisk(320 * MIB)
        self.addCleanup(self.disk.remove)
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)

    def gateway_on_disk(self, **settings):
        settings.setdefault("limits", {"disk_reserve": "40MiB"})
        self.gateway = Gateway(self.upstream.url, ROUTES, store=f"journal:{self.disk.path / 'data'}", **settings)
        self.addCleanup(self.gateway.remove)
        self.gateway.start()
        self.victim = self.gateway.client("victim", source=VICTIM)
        return self.gateway

    def fill_by_requests(self, client, most=400):
        """Until new keys are refused; returns the refusal."""
        body = os.urandom(MIB)
        self.upstream.always(answers(200, body))
        try:
            for _ in range(most):
                response = client.post(key=fresh_key())
                if response.status != 200:
                    return response
        finally:
            self.upstream.always(answers(201, b'{"ok":true}'))
        self.fail("the store took everything")

    def test_claims_stop_while_replays_and_unkeyed_requests_go_on_and_room_brings_them_back(self):
        gateway = self.gateway_on_disk()
        done = self.victim.post(key="done")
        refused = self.fill_by_requests(gateway.client("attacker", source=ATTACKER))
        self.assertIn(refused.status, (429, 503), refused)
        self.assertTrue(refused.header("Retry-After"))
        self.disk.fill(leave=24 * MIB)  # other programs take what the shares have left
        gateway.wait_for_log("event=store_full")
        refused = self.victim.post(key=fresh_key())
        self.assertEqual(refused.status, 503)
        self.assertTrue(refused.json()["type"].endswith("store_full"), refused)
        replay = self.victim.post(key="done")
        self.assertEqual((replay.status, replay.body, replay.replayed), (done.status, done.body, True))
        self.assertEqual(self.victim.get("/unkeyed").status, 201)
        self.assertTrue(gateway.running)
        self.disk.make_room()
        gateway.wait_for_log("event=store_has_room_again")
        poll_until(lambda: self.victim.post(key=fresh_key()).status == 201, "new keys to be taken again")

    def test_an_answer_under_way_is_kept_or_known_to_have_been_executed(self):
        gateway = self.gateway_on_disk()
        gate = self.upstream.gate()
        self.upstream.will(held(gate, answers(200, os.urandom(6 * MIB))))
        running = self.victim.post_in_background(key="long")
        gate.wait_for_arrival()
        self.disk.fill(leave=20 * MIB)
        gateway.wait_for_log("event=store_full")
        gate.open()
        first = running.result()
        self.assertEqual((first.status, len(first.body)), (200, 6 * MIB))
        again = self.victim.post(key="long")
        self.assertIn(again.status, (200, 409))
        self.assertEqual(self.upstream.executions("long"), 1)

    def test_many_large_answers_at_the_edge_of_the_disk_are_executed_once(self):
        gateway = self.gateway_on_disk(limits={"disk_reserve": "64MiB"})
        self.disk.fill(leave=90 * MIB)
        gate = self.upstream.gate()
        self.upstream.always(held(gate, answers(200, os.urandom(7 * MIB))))
        attacker = gateway.client("attacker", source=ATTACKER)
        victim = self.victim.post_in_background(key="victim")
        gate.wait_for_arrival(1)
        others = [attacker.post_in_background(key=f"other-{number}") for number in range(24)]
        gate.wait_for_arrival(25)
        gate.open()
        self.assertEqual(victim.result().status, 200)
        self.assertEqual({other.result().status for other in others}, {200})
        self.assertTrue(gateway.running)
        # Kept, or known to have been executed: never executed again.
        self.disk.make_room()
        for client, key in [(self.victim, "victim"), *((attacker, f"other-{number}") for number in range(24))]:
            self.assertIn(client.post(key=key).status, (200, 409))
            self.assertEqual(self.upstream.executions(key), 1)

    def test_answers_under_way_on_a_disk_that_others_have_filled_are_known_to_have_been_executed(self):
        gateway = self.gateway_on_disk()
        gate = self.upstream.gate()
        self.upstream.always(held(gate, answers(200, os.urandom(7 * MIB))))
        running = [self.victim.post_in_background(key=f"pay-{number}") for number in range(12)]
        gate.wait_for_arrival(12)
        self.disk.fill()
        gate.open()
        self.assertEqual({call.result().status for call in running}, {200})
        self.assertTrue(gateway.running)
        self.disk.make_room()
        for number in range(12):
            self.assertIn(self.victim.post(key=f"pay-{number}").status, (200, 409))
            self.assertEqual(self.upstream.executions(f"pay-{number}"), 1)

    def test_a_disk_without_a_byte_left_ends_nothing(self):
        gateway = self.gateway_on_disk()
        done = self.victim.post(key="done")
        self.disk.fill()
        gateway.wait_for_log("event=store_full")
        for _ in range(30):
            self.assertEqual(self.victim.post(key=fresh_key()).status, 503)
        self.assertEqual(self.victim.post(key="done").body, done.body)
        self.assertEqual(self.victim.get("/unkeyed").status, 201)
        self.assertTrue(gateway.running)
        self.disk.make_room()
        poll_until(lambda: self.victim.post(key=fresh_key()).status == 201, "new keys to be taken again")

    def test_it_starts_on_a_full_disk(self):
        gateway = self.gateway_on_disk()
        done = self.victim.post(key="done")
        for _ in range(20):
            self.victim.post(key=fresh_key())
        gateway.kill()
        self.disk.fill()
        gateway.start()
        self.assertIn("event=ballast_dropped", gateway.log)
        victim = gateway.client("victim", source=VICTIM)
        self.assertEqual(victim.post(key="done").body, done.body)
        self.assertEqual(victim.get("/unkeyed").status, 201)
        self.disk.fill()
        gateway.wait_for_log("event=store_full")
        self.assertEqual(victim.post(key=fresh_key()).status, 503)
        # Also a second time, when there is nothing left to let go of.
        gateway.kill()
        self.disk.fill()
        gateway.start()
        self.assertIn("event=store_not_opened", gateway.log)
        victim = gateway.client("victim", source=VICTIM)
        self.assertEqual(victim.get("/unkeyed").status, 201)
        self.assertEqual(victim.post(key=fresh_key()).status, 503)
        self.disk.make_room()
        poll_until(lambda: victim.post(key=fresh_key()).status == 201, "new keys to be taken again")
        self.assertEqual(victim.post(key="done").body, done.body)


class StoreSizeTest(unittest.TestCase):
    """limits.max_store_bytes, on any disk."""

    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)

    def test_one_caller_cannot_fill_the_store_for_the_others(self):
        # The files count, and the log is there until what it has is in a table: 32 MiB twice for a moment, which must not
        # fill the store by themselves.
        gateway = Gateway(self.upstream.url, ROUTES, store="journal", limits={"max_store_bytes": "128MiB"})
        self.addCleanup(gateway.remove)
        gateway.start()
        attacker, victim = gateway.client("attacker", source=ATTACKER), gateway.client("victim", source=VICTIM)
        body = os.urandom(MIB)
        self.upstream.always(answers(200, body))
        # A new account each time: it is still one address.
        refused = None
        for number in range(200):
            attacker.account = f"invented-{number}"
            response = attacker.post(key=fresh_key())
            if response.status != 200:
                refused = response
                break
        self.assertIsNotNone(refused, "the store took everything")
        self.assertEqual(refused.status, 429, refused)
        self.assertIn("share", refused.json()["detail"])
        self.upstream.always(answers(201, b'{"ok":true}'))
        for _ in range(20):
            self.assertEqual(victim.post(key=fresh_key()).status, 201)


if __name__ == "__main__":
    unittest.main()
