"""`oncekey store verify|stats|backup|restore`: what they say of sound and damaged stores, that a backup is of one
moment while requests go on, and that a restored store executes nothing before an operator has accepted what it has
forgotten."""

import json
import os
import pathlib
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.backends import PostgresBackend, RedisBackend
from support.cases import fresh_key
from support.client import Client
from support.gateway import Gateway, binary, free_port, run_cli
from support.load import Load
from support.redis_servers import RedisConnection
from support.upstream import Upstream, answers
from support.waiting import poll_until

LARGE = b"x" * 400_000  # has a file of its own


class StoreToolsTest(unittest.TestCase):
    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)

    def gateway(self, **settings):
        gateway = Gateway(self.upstream.url, store=settings.pop("store", "journal"), **settings)
        self.addCleanup(gateway.remove)
        return gateway

    def store(self, *words, code=0, **how):
        done = run_cli("store", *map(str, words), seconds=60, **how)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def verify(self, folder, code=0):
        return json.loads(self.store("verify", "--store", f"journal:{folder}", "--json", code=code).stdout)


class Verifying(StoreToolsTest):
    """One store with records that are young and old, small and large; each test damages a copy."""

    @classmethod
    def setUpClass(cls):
        cls.template = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-test-")) / "data"
        upstream = Upstream().start()
        gateway = Gateway(upstream.url, store="journal")
        try:
            # What a start finds in the log it sorts into files.
            for _ in range(2):
                gateway.start()
                for _ in range(20):
                    gateway.client().post(key=fresh_key())
                upstream.will(answers(200, LARGE))
                gateway.client().post(key=fresh_key())
                gateway.stop()
            gateway.start()
            poll_until(lambda: gateway.metric("oncekey_store_buckets") > 0, "the log to be sorted into files")
            for _ in range(20):
                gateway.client().post(key=fresh_key())
            gateway.stop()
            shutil.copytree(gateway.folder / "data", cls.template)
        finally:
            gateway.remove()
            upstream.stop()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.template.parent)

    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        shutil.copytree(self.template, self.data)

    def overwrite(self, path, at, data):
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(data)

    def assert_found(self, what):
        report = self.verify(self.data, code=1)
        self.assertFalse(report["sound"])
        self.assertTrue(any(what in problem["what"] for problem in report["problems"]), report["problems"])
        self.assertTrue(all(problem["next"] for problem in report["problems"]))

    def test_a_sound_store_is_read_to_its_end_and_left_as_it_was(self):
        before = {path: path.stat().st_mtime_ns for path in self.data.rglob("*")}
        report = self.verify(self.data)
        self.assertTrue(report["sound"])
        self.assertEqual((report["records"], report["completed"], report["body_files"]), (62, 62, 2))
        self.assertEqual({path: path.stat().st_mtime_ns for path in self.data.rglob("*")}, before)
        text = self.store("verify", "--store", f"journal:{self.data}").stdout
        self.assertIn("sound; 62 records", text)

    def test_a_flipped_bit_in_the_log(self):
        newest = max(self.data.glob("log/*.segment"), key=lambda path: path.stat().st_mtime_ns)
        live = next(path for path in sorted(self.data.glob("log/*.segment")) if self._flips_live_byte(path))
        self.assertTrue(newest.exists() and live.exists())
        self.assert_found("damaged")

    def _flips_live_byte(self, segment):
        """In the first batch; False if that is not of the log any more."""
        as_it_was = segment.read_bytes()[:4096]
        self.overwrite(segment, 100, bytes([as_it_was[100] ^ 1]))
        if not self.verify_is_sound():
            return True
        self.overwrite(segment, 0, as_it_was)
        return False

    def verify_is_sound(self):
        return run_cli("store", "verify", "--store", f"journal:{self.data}").returncode == 0

    def test_a_flipped_bit_in_every_sorted_file(self):
        for path in sorted(self.data.glob("*.sst")):
            with self.subTest(path.name):
                at = path.stat().st_size // 3
                byte = path.read_bytes()[at]
                self.overwrite(path, at, bytes([byte ^ 1]))
                self.assert_found("")
                self.overwrite(path, at, bytes([byte]))
        self.assertTrue(self.verify(self.data)["sound"])

    def test_a_missing_sorted_file(self):
        max(self.data.glob("*.sst"), key=lambda path: path.stat().st_size).unlink()
        self.assert_found("")

    def test_a_missing_or_damaged_body(self):
        one, other = sorted(self.data.glob("bodies/r-*"))
        one.unlink()
        self.overwrite(other, 1000, b"?")
        report = self.verify(self.data, code=1)
        self.assertEqual(len(report["problems"]), 2)
        self.assertIn("cannot be read", " ".join(problem["what"] for problem in report["problems"]))
        self.assertIn("checksum", " ".join(problem["what"] for problem in report["problems"]))

    def test_a_missing_or_foreign_secret(self):
        (self.data / "secret").unlink()
        self.assert_found("secret is missing")
        (self.data / "secret").write_text("00" * 32 + "\n")
        self.assert_found("secret of another store")

    def test_damaged_meta_data_and_missing_segments(self):
        meta = (self.data / "meta").read_bytes()
        self.overwrite(self.data / "meta", 7, (9).to_bytes(4, "little"))
        self.assert_found("meta data fails its checksum")
        (self.data / "meta").write_bytes(meta)
        for segment in self.data.glob("log/*.segment"):
            segment.unlink()
        self.assert_found("segments of the log are missing")

    def test_what_is_no_store_is_not_damaged(self):
        refused = self.store("verify", "--store", f"journal:{self.folder / 'nowhere'}", code=2)
        self.assertIn("there is no store at", refused.stderr)
        self.assertFalse((self.folder / "nowhere").exists())
        self.assertIn("nothing to look at", self.store("verify", "--store", "memory:", code=2).stderr)


class BackingUp(StoreToolsTest):
    def assert_private(self, folder):
        for path in (folder, *folder.rglob("*")):
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o700 if path.is_dir() else 0o600, path)

    def serve(self, folder):
        """A gateway on that store."""
        gateway = self.gateway(store=f"journal:{folder}")
        return gateway.start()

    def test_of_a_running_gateway_under_load_it_is_whole_and_of_one_moment(self):
        gateway = self.gateway(admin=f"127.0.0.1:{free_port()}").start()
        self.upstream.will(answers(200, LARGE))
        large = gateway.client().post(key="large")
        with Load(gateway.address) as load:
            load.wait_for(100)
            before = list(load.keys)
            made = json.loads(self.store("backup", self.folder / "copy", "--store", gateway.store, "--admin",
                                         gateway.admin_text, "--json").stdout)
            load.wait_for(100)
        self.assertEqual(load.errors, [])
        after = load.keys[len(before):]
        self.assertIn("event=backup_made", gateway.log)
        self.assertFalse((self.folder / "copy.partial").exists())
        self.assertFalse((gateway.folder / "data" / "snapshot").exists())
        self.assert_private(self.folder / "copy")
        self.assertFalse((self.folder / "copy" / "admin-token").exists())
        report = self.verify(self.folder / "copy")
        self.assertEqual(report["newest_sequence"], made["sequence"])
        self.assertGreaterEqual(report["records"], len(set(before)) + 1)

        gateway.stop()
        told = self.store("restore", self.folder / "copy", f"journal:{self.folder / 'back'}").stdout
        self.assertIn(made["made"], told)
        self.assertIn(f"oncekey store accept-loss --store journal:{self.folder / 'back'}", told)
        restored = self.serve(self.folder / "back")
        client = Client(restored.address, "load")
        self.assertTrue(restored.client().post(key="large").replayed)
        self.assertEqual(restored.client().post(key="large").body, large.body)
        for key in random.Random(7).sample(before, 20):
            self.assertTrue(client.post(key=key, body="{}").replayed, key)
        # What it may have forgotten is not executed again: neither what came after the backup, nor anything else.
        executed = self.upstream.executions()
        for key in (after[-1], fresh_key()):
            refused = client.post(key=key, body="{}")
            self.assertEqual(refused.status, 503)
        self.assertEqual(self.upstream.executions(), executed)
        self.assertIn(f"it is a backup made at {made['made']}", restored.log)
        restored.stop()
        restored.start()  # it still knows
        self.assertEqual(client_of(restored).post(key=fresh_key()).status, 503)
        self.store("accept-loss", "--store", restored.store, "--yes")
        self.assertEqual(client_of(restored).post(key=fresh_key()).status, 201)
        restored.stop()
        restored.start()
        self.assertEqual(client_of(restored).post(key=fresh_key()).status, 201)
        self.assertFalse((self.folder / "back" / "backup").exists())

    def test_fences_go_on_above_those_that_were_given_after_the_backup(self):
        gateway = self.gateway().start()
        gateway.client().post(key="first")
        gateway.stop()
        self.store("backup", self.folder / "copy", "--store", gateway.store)
        gateway.start()
        gateway.client().post(key="second")
        gateway.stop()
        self.store("restore", self.folder / "copy", self.folder / "back")
        self.store("accept-loss", "--store", f"journal:{self.folder / 'back'}", "--yes")
        restored = self.serve(self.folder / "back")
        restored.client().post(key="third")
        self.assertGreater(self.upstream.fences("third")[0], self.upstream.fences("second")[0])

    def test_a_copy_of_a_backup_that_was_put_back_by_hand_is_noticed_too(self):
        gateway = self.gateway().start()
        gateway.client().post(key="known")
        gateway.stop()
        self.store("backup", self.folder / "copy", "--store", gateway.store)
        shutil.copytree(self.folder / "copy", self.folder / "by-hand")
        restored = self.serve(self.folder / "by-hand")
        self.assertTrue(restored.client().post(key="known").replayed)
        self.assertEqual(restored.client().post(key=fresh_key()).status, 503)

    def backed_up(self, name="copy"):
        """A gateway that is stopped, and a backup of its store with one answered key."""
        gateway = self.gateway().start()
        gateway.client().post(key="known")
        gateway.stop()
        self.store("backup", self.folder / name, "--store", gateway.store)
        return gateway

    def assert_sound(self, folder):
        report = self.verify(folder)
        self.assertTrue(report["sound"], report["problems"])
        return report

    def accept_loss(self, folder):
        return self.store("accept-loss", "--store", f"journal:{folder}", "--yes").stdout

    def test_a_restored_store_is_sound_however_often_it_was_opened(self):
        self.backed_up()
        back = self.folder / "back"
        self.store("restore", self.folder / "copy", back)
        self.assert_sound(back)
        restored = self.serve(back)
        self.assertEqual(restored.client().post(key=fresh_key()).status, 503)
        restored.stop()
        self.assertIn("has lost its memory and refuses claims", " ".join(self.assert_sound(back)["notes"]))
        self.accept_loss(back)
        self.assert_sound(back)
        restored.start()
        self.assertEqual(restored.client().post(key=fresh_key()).status, 201)
        restored.stop()
        self.assert_sound(back)

    def test_a_backup_with_actions_for_the_audit_log_is_restored_to_a_sound_store(self):
        self.backed_up("first")
        self.store("restore", self.folder / "first", self.folder / "once")
        self.accept_loss(self.folder / "once")
        self.serve(self.folder / "once").stop()
        self.store("backup", self.folder / "copy", "--store", f"journal:{self.folder / 'once'}")
        self.assertTrue((self.folder / "copy" / "audit-pending").exists())
        back = self.folder / "back"
        self.store("restore", self.folder / "copy", back)
        self.assertIn("restore_store", (back / "audit-pending").read_text())
        self.assert_sound(back)
        self.accept_loss(back)
        self.assert_sound(back)
        # A restored store that was not opened is a backup itself.
        self.store("restore", back, self.folder / "again")
        self.assert_sound(self.folder / "again")
        # One that was put back by hand has the backup's own list.
        shutil.copytree(self.folder / "copy", self.folder / "by-hand")
        self.accept_loss(self.folder / "by-hand")
        self.assert_sound(self.folder / "by-hand")

    def test_damage_below_what_a_start_reads_is_found_until_the_store_is_opened(self):
        self.backed_up()
        self.store("restore", self.folder / "copy", self.folder / "back")
        for folder in (self.folder / "copy", self.folder / "back"):
            segment = max(folder.glob("log/*.segment"))
            with open(segment, "r+b") as file:  # behind the end of the log
                file.seek(segment.stat().st_size - 1)
                file.write(b"!")
            problems = self.verify(folder, code=1)["problems"]
            self.assertEqual([problem["what"] for problem in problems],
                             [f"{segment} does not have the content that was backed up"])

    def test_a_loss_that_is_accepted_is_shown_as_accepted_before_the_next_start(self):
        self.backed_up()
        back = self.folder / "back"
        self.store("restore", self.folder / "copy", back)
        restored = self.serve(back)
        restored.stop()
        self.assertIn("at its next start", self.accept_loss(back))
        told = self.store("verify", "--store", f"journal:{back}").stdout
        self.assertIn("note: an operator has accepted that the store has lost its memory: it accepts claims again at its "
                      "next start", told)
        self.assertNotIn("refuses claims", told)
        self.assertIn("will be accepted at the next start", self.store("stats", "--store", f"journal:{back}").stdout)
        restored.start()
        restored.stop()
        self.assertNotIn("note:", self.store("verify", "--store", f"journal:{back}").stdout)

    def test_a_loss_is_accepted_for_the_store_of_a_configuration(self):
        gateway = self.backed_up()
        shutil.rmtree(gateway.folder / "data")
        self.store("restore", self.folder / "copy", gateway.folder / "data")
        self.store("accept-loss", "--config", gateway.config_file, "--yes")
        gateway.start()
        self.assertEqual(gateway.client().post(key=fresh_key()).status, 201)
        gateway.stop()
        # Not for the one that a gateway without a configuration would use.
        for command in (("accept-loss", "--yes"), ("migrate",)):
            refused = self.store(*command, code=2, cwd=gateway.folder)
            self.assertIn("give --store or --config", refused.stderr)

    def test_nothing_is_overwritten_and_nothing_half_is_left(self):
        gateway = self.gateway().start()
        gateway.client().post(key="known")
        taken = self.folder / "taken"
        taken.mkdir()
        refused = self.store("backup", taken, "--store", gateway.store, "--admin", gateway.admin_text, code=1)
        self.assertIn("exists already", refused.stderr)
        self.assertIn("absolute path", json.loads(gateway.admin.post(
            "/api/store/backup", body=json.dumps({"to": "here", "reason": "test"})).body)["error"])
        gateway.stop()
        self.store("backup", self.folder / "copy", "--store", gateway.store)
        self.assertIn("exists already", self.store("restore", self.folder / "copy", taken, code=2).stderr)
        body = max((self.folder / "copy").glob("log/*.segment"))
        with open(body, "r+b") as file:
            file.seek(body.stat().st_size - 1)
            file.write(b"!")
        refused = self.store("restore", self.folder / "copy", self.folder / "back", code=1)
        self.assertIn("does not have the content that was backed up", refused.stderr)
        self.assertEqual([path.name for path in self.folder.glob("back*")], [])
        (self.folder / "copy" / "backup").unlink()
        refused = self.store("restore", self.folder / "copy", self.folder / "back", code=2)
        self.assertIn("is not a whole backup", refused.stderr)

    def test_a_gateway_that_stops_gives_the_backup_up_without_a_trace(self):
        gateway = self.gateway().start()
        gateway.client().post(key="known")
        begun = gateway.admin.post("/api/store/backup",
                                   body=json.dumps({"to": str(self.folder / "copy"), "reason": "test"}))
        self.assertEqual(begun.status, 202)
        gateway.stop()
        self.assertEqual([path.name for path in self.folder.glob("copy.partial")], [])
        if (self.folder / "copy").exists():  # it was quicker
            self.assertTrue(self.verify(self.folder / "copy")["sound"])

    def test_a_store_in_use_is_not_verified_and_shows_its_numbers(self):
        gateway = self.gateway().start()
        gateway.client().post(key="known")
        refused = self.store("verify", "--store", gateway.store, code=3)
        self.assertIn(f"is in use by process {gateway.pid}", refused.stderr)
        self.assertIn("oncekey store backup DEST", refused.stderr)
        live = json.loads(self.store("stats", "--store", gateway.store, "--admin", gateway.admin_text, "--json").stdout)
        self.assertEqual((live["records"], live["durability"], live["takes_claims"]), (1, "power", True))
        # The token is in the folder of the store that was named.
        told = subprocess.run([binary(), "store", "stats", "--store", gateway.store, "--admin", gateway.admin_text],
                              capture_output=True, text=True, check=True, cwd=self.folder,
                              env={name: value for name, value in os.environ.items() if name != "ONCEKEY_ADMIN_TOKEN"})
        self.assertIn("claims           are taken", told.stdout)
        gateway.stop()
        offline = json.loads(self.store("stats", "--store", gateway.store, "--json").stdout)
        self.assertEqual((offline["records"], offline["id"]), (1, live["id"]))
        self.assertGreaterEqual(offline["newest_sequence"], live["newest_sequence"])
        self.assertIn("newest write", self.store("stats", "--store", gateway.store).stdout)


def client_of(gateway):
    return gateway.client()


class SharedStores(StoreToolsTest):
    def test_their_servers_back_them_up(self):
        for url, tool in (("postgres://127.0.0.1:1/x", "pg_basebackup"), ("redis://127.0.0.1:1", "BGREWRITEAOF")):
            for command in (("backup", self.folder / "copy", "--store", url), ("restore", self.folder / "copy", url)):
                refused = self.store(*command, code=2)
                self.assertIn(tool, refused.stderr)
                self.assertIn("accept-loss", refused.stderr)
        self.assertIn("nothing to back up", self.store("backup", "x", "--store", "memory:", code=2).stderr)

    def check_shared(self, backend):
        backend.start()
        self.addCleanup(backend.remove)
        self.assertIn("there is no store", self.store("verify", "--store", backend.url, code=2).stderr)
        gateway = self.gateway(store=backend.url).start()
        gateway.client().post(key="known")
        report = json.loads(self.store("verify", "--store", backend.url, "--json").stdout)
        self.assertEqual((report["sound"], report["records"]), (True, 1))
        live = json.loads(self.store("stats", "--store", backend.url, "--admin", gateway.admin_text, "--json").stdout)
        self.assertTrue(live["takes_claims"])
        gateway.stop()
        return gateway

    def assert_refused(self, gateway, url, says):
        self.assertEqual(gateway.start_expecting_refusal(), 1)
        self.assertIn(says, gateway.log)
        report = json.loads(self.store("verify", "--store", url, "--json", code=1).stdout)
        self.assertIn(says, report["problems"][0]["what"])

    def test_postgres(self):
        backend = PostgresBackend()
        gateway = self.check_shared(backend)
        backend.server.sql("INSERT INTO oncekey.migration (number, name, compatible_from) VALUES (99, 'later', 99)")
        self.assert_refused(gateway, backend.url, "the schema oncekey in Postgres was migrated to number 99 by a newer oncekey, "
                            "and this version knows numbers up to 1: run that version, or one that knows number 99")

    def test_redis(self):
        backend = RedisBackend()
        gateway = self.check_shared(backend)
        with RedisConnection(backend.server.port) as redis:
            meta = next(key for key in redis.ask("KEYS", "*") if redis.ask("TYPE", key) == "hash"
                        and redis.ask("HEXISTS", key, "generation") and redis.ask("HEXISTS", key, "format"))
            redis.ask("HSET", meta, "format", "99")
        self.assert_refused(gateway, backend.url, "the store in Redis has format 99, and this version of oncekey reads formats up to")


if __name__ == "__main__":
    unittest.main()
