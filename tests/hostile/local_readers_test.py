"""Another user of the machine: reads no stored answer, no secret and no token, and is no operator."""

import os
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.client import Client
from support.gateway import Gateway, run_cli
from support.local_users import NOBODY, needs_root, read_as
from support.upstream import Upstream, answers

CLASSIC = [{"path": "/*", "policy": "classic"}]
CARD = "card-4242-4242-4242-4242"


def modes_below(folder):
    """The modes of the folder and of everything in it, as text."""
    return {path: oct(os.lstat(path).st_mode & 0o7777)
            for path in [folder, *sorted(pathlib.Path(folder).rglob("*"))]}


class FilesTest(unittest.TestCase):
    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.gateway = Gateway(self.upstream.url, CLASSIC, store="journal")
        self.addCleanup(self.gateway.remove)
        # The folder above is everybody's: what protects the store is its own mode.
        os.chmod(self.gateway.folder, 0o755)
        self.data = self.gateway.folder / "data"
        self.witness = self.gateway.folder / "data.witness"

    def pay(self):
        self.upstream.will(answers(201, CARD.encode()))
        self.assertEqual(self.gateway.client("victim").post(key="payment", body=CARD.encode()).status, 201)

    def assert_private(self):
        for path, mode in modes_below(self.data).items():
            self.assertEqual(mode, "0o700" if pathlib.Path(path).is_dir() else "0o600", path)
        self.assertEqual(oct(os.stat(self.witness).st_mode & 0o7777), "0o600")

    def test_everything_in_the_store_is_its_owners_alone(self):
        before = os.umask(0o022)  # the usual one, which the gateway inherits
        self.addCleanup(os.umask, before)
        self.gateway.start()
        self.pay()
        self.assert_private()
        self.gateway.stop()
        self.assert_private()

    def test_a_store_that_was_open_is_closed_at_the_next_start(self):
        self.gateway.start()
        self.pay()
        self.gateway.stop()
        for path in modes_below(self.data):
            os.chmod(path, 0o755 if pathlib.Path(path).is_dir() else 0o644)
        self.gateway.start()
        self.assert_private()

    @needs_root()
    def test_another_user_reads_neither_answers_nor_secret_nor_token(self):
        self.gateway.start()
        self.pay()
        for running in (True, False):
            if not running:
                self.gateway.stop()
            readable, found = read_as(NOBODY, CARD, self.data, self.witness)
            self.assertEqual((readable, found), ([], []))
        self.assertTrue(read_as(0, CARD, self.data)[1], "the answer is there to be read by its owner")

    @needs_root()
    def test_a_store_that_cannot_be_closed_is_refused(self):
        self.gateway.start()
        self.pay()
        self.gateway.stop()
        # root's folder, in which the gateway's user may read and write everything: so may all others.
        for path in modes_below(self.data):
            os.chmod(path, 0o777)
        os.chmod(self.gateway.folder, 0o777)
        other = Gateway(self.upstream.url, CLASSIC, user=NOBODY)
        self.addCleanup(other.remove)
        other.settings["store"] = f"journal:{self.data}"
        self.assertEqual(other.start_expecting_refusal(), 1)
        self.assertIn("can be read by other users of this machine", other.log)
        self.assertIn("chmod -R go=", other.log)


class SecretTest(unittest.TestCase):
    def test_a_store_without_its_secret_is_refused_and_takes_it_back(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        gateway = Gateway(upstream.url, CLASSIC, store="journal")
        self.addCleanup(gateway.remove)
        gateway.start()
        self.assertEqual(gateway.client().post(key="k").status, 201)
        gateway.stop()
        secret = gateway.folder / "data" / "secret"
        shutil.move(secret, gateway.folder / "kept")
        self.assertEqual(gateway.start_expecting_refusal(), 1)
        self.assertIn("put the file back", gateway.log)
        secret.write_text("0" * 64 + "\n")
        self.assertEqual(gateway.start_expecting_refusal(), 1)
        self.assertIn("secret of another store", gateway.log)
        shutil.move(gateway.folder / "kept", secret)
        gateway.start()
        self.assertTrue(gateway.client().post(key="k").replayed)
        self.assertEqual(upstream.executions(), 1)


class OperatorTest(unittest.TestCase):
    """Reaching the loopback listener does not make a local user an operator."""

    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)

    def test_the_api_shows_nothing_to_those_who_cannot_read_the_token(self):
        with Gateway(self.upstream.url, CLASSIC, store="journal") as gateway:
            self.upstream.will(answers(201, CARD.encode()))
            gateway.client("victim").post(key="payment")
            stranger = Client(gateway.admin_address, host=gateway.admin_text)
            record = gateway.admin.get("/api/keys").json()["keys"][0]["id"]
            for path in ("/api/keys", f"/api/keys/{record}", "/api/jobs", "/api/storms"):
                answer = stranger.get(path, authorization=False)
                self.assertEqual(answer.status, 401, path)
                self.assertNotIn(CARD, answer.body.decode())
            acted = stranger.post(f"/api/keys/{record}/rerun", body=b'{"reason":"mine"}', authorization=False)
            self.assertEqual(acted.status, 401)
            self.assertTrue(gateway.client("victim").post(key="payment").replayed)

    def test_the_token_is_logged_by_its_place_and_found_there_without_a_flag(self):
        for store, place in (("journal:./oncekey-data", "oncekey-data/admin-token"),
                             ("memory:", "state/oncekey/admin-token")):
            with self.subTest(store=store), Gateway(self.upstream.url, CLASSIC, store=store) as gateway:
                file = gateway.folder / place
                self.assertEqual(oct(os.stat(file).st_mode & 0o7777), "0o600")
                self.assertIn(place, gateway.wait_for_log("event=admin_token"))
                self.assertNotIn(file.read_text().strip(), gateway.log)
                gateway.client().post(key="k")
                # Only the address is given, since tests do not use the usual one.
                listed = run_cli("keys", "list", "--admin", f"http://{gateway.admin_text}", cwd=gateway.folder,
                                 environment={"XDG_STATE_HOME": str(gateway.folder / "state")})
                self.assertEqual(listed.returncode, 0, listed.stderr)
                self.assertIn("completed", listed.stdout)
                again = gateway.admin_token
                gateway.stop()
                gateway.start()
                self.assertEqual(gateway.admin_token, again, "a restart keeps it")

    def test_by_the_configuration_a_command_finds_address_and_token(self):
        with Gateway(self.upstream.url, CLASSIC, store="journal") as gateway:
            gateway.client().post(key="k")
            config = gateway.folder / "for-operators.toml"
            config.write_text(f'admin = "{gateway.admin_text}"\nstore = "{gateway.store}"\n')
            listed = run_cli("keys", "list", "--config", str(config))
            self.assertEqual(listed.returncode, 0, listed.stderr)
            self.assertIn("completed", listed.stdout)

    def test_a_gateway_that_cannot_keep_a_token_serves_clients_and_no_operator(self):
        with Gateway(self.upstream.url, CLASSIC, environment={"XDG_STATE_HOME": "/proc/nowhere"}) as gateway:
            gateway.wait_for_log("event=admin_token_not_kept")
            self.assertEqual(gateway.client().post(key="k").status, 201)
            stranger = Client(gateway.admin_address, host=gateway.admin_text)
            self.assertEqual(stranger.get("/api/keys", authorization=False).status, 401)
            self.assertEqual(stranger.get("/readyz", authorization=False).status, 200)


if __name__ == "__main__":
    unittest.main()
