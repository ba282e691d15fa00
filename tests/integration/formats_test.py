"""What an older version says of what a newer one has written: the number it has found, where, the number it knows, and
what to do. Nothing is changed by that: the newer version goes on with the store."""

import json
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.gateway import Gateway, run_cli
from support.store_formats import STORE_FORMAT, set_log_format, set_meta_format, set_text_format
from support.upstream import Upstream

WHAT_TO_DO = "it was written by a newer oncekey; run that version, or a later one"


def of(number, known=1):
    return f"has format {number}, and this version of oncekey reads formats up to {known}: {WHAT_TO_DO}"


class EmbeddedStore(unittest.TestCase):
    """One store, of which each case gets a copy."""

    @classmethod
    def setUpClass(cls):
        cls.upstream = Upstream().start()
        cls.addClassCleanup(cls.upstream.stop)
        cls.gateway = Gateway(cls.upstream.url, store="journal")
        cls.addClassCleanup(cls.gateway.remove)
        cls.data = cls.gateway.folder / "data"
        cls.gateway.start()
        cls.gateway.client().post(key="known")
        cls.gateway.stop()
        cls.as_it_was = cls.gateway.folder / "as-it-was"
        shutil.copytree(cls.data, cls.as_it_was)

    def setUp(self):
        shutil.rmtree(self.data)
        shutil.copytree(self.as_it_was, self.data)

    def assert_refused_and_left_alone(self, says):
        before = {path: path.read_bytes() for path in self.data.rglob("*") if path.is_file()}
        self.assertEqual(self.gateway.start_expecting_refusal(), 1)
        self.assertIn(says, self.gateway.log)
        # RocksDB writes files of its own when it is opened.
        ours = {path: path.read_bytes() for path in before if path.parent.name == "log" or path.name in (
            "meta", "secret", "identity", "audit-heads", "audit.log")}
        self.assertEqual(ours, {path: before[path] for path in ours})

    def assert_verify_says(self, says):
        done = run_cli("store", "verify", "--store", f"journal:{self.data}", "--json")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        problem, = json.loads(done.stdout)["problems"]
        self.assertIn(says, problem["what"])
        self.assertEqual(problem["next"], "use the version of oncekey that wrote it, or a later one")

    def test_as_it_was_it_is_served(self):
        self.gateway.start()
        self.assertTrue(self.gateway.client().post(key="known").replayed)
        self.gateway.stop()

    def test_the_store_as_a_whole(self):
        set_meta_format(self.data, 99)
        says = f"the store at {self.data} {of(99, STORE_FORMAT)}"
        self.assert_refused_and_left_alone(says)
        self.assert_verify_says(says)
        checked = run_cli("doctor", str(self.gateway.config_file), cwd=self.gateway.folder)
        self.assertIn(says, checked.stdout + checked.stderr)
        refused = run_cli("store", "backup", str(self.gateway.folder / "copy"), "--store", f"journal:{self.data}")
        self.assertEqual(refused.returncode, 1)
        self.assertIn(says, refused.stderr)

    def test_its_log(self):
        set_log_format(self.data, 2)
        self.assert_refused_and_left_alone(f"segment 0 of the journal at byte 0 {of(2)}")
        self.assert_verify_says(f"segment 0 of the journal at byte 0 {of(2)}")

    def test_its_log_with_the_number_it_had(self):
        """The checksums are made as the binary makes them, or the case above proves nothing."""
        set_log_format(self.data, 1)
        set_meta_format(self.data, STORE_FORMAT)
        self.assertEqual({path.name: path.read_bytes() for path in self.data.glob("log/*")},
                         {path.name: path.read_bytes() for path in self.as_it_was.glob("log/*")})
        self.assertEqual((self.data / "meta").read_bytes(), (self.as_it_was / "meta").read_bytes())

    def test_the_rules_that_find_keys(self):
        set_text_format(self.data / "identity", 3)
        says = f"what the store remembers of the identity rules {of(3)}"
        self.assert_refused_and_left_alone(says)
        # Nor does it write its own over them.
        self.gateway.extra_flags = ["--accept-identity-change"]
        self.addCleanup(setattr, self.gateway, "extra_flags", [])
        self.assert_refused_and_left_alone(says)

    def test_the_heads_of_the_audit_log(self):
        set_text_format(self.data / "audit-heads", 2)
        self.assert_refused_and_left_alone(f"what the store keeps for the audit log {of(2)}")
        verified = run_cli("audit", "verify", "--config", str(self.gateway.config_file), cwd=self.gateway.folder)
        self.assertNotEqual(verified.returncode, 0)
        self.assertIn(f"what the store keeps for the audit log {of(2)}", verified.stderr + verified.stdout)

    def test_a_backup(self):
        with tempfile.TemporaryDirectory(prefix="oncekey-test-") as folder:
            copy, back = pathlib.Path(folder) / "copy", pathlib.Path(folder) / "back"
            made = run_cli("store", "backup", str(copy), "--store", f"journal:{self.data}")
            self.assertEqual(made.returncode, 0, made.stderr)
            set_text_format(copy / "backup", 1)  # is as it was
            set_text_format(copy / "backup", 2)
            refused = run_cli("store", "restore", str(copy), str(back))
            self.assertEqual(refused.returncode, 1, refused.stdout)
            self.assertIn(f"{copy}/backup {of(2)}", refused.stderr)
            self.assertEqual(list(pathlib.Path(folder).glob("back*")), [])
            set_text_format(copy / "backup", 1)
            restored = run_cli("store", "restore", str(copy), str(back))
            self.assertEqual(restored.returncode, 0, restored.stderr)


if __name__ == "__main__":
    unittest.main()
