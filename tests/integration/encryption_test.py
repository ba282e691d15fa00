"""Encryption at rest and redaction: a planted card number is in no file of any store, and a wrong key refuses the start."""

import pathlib
import signal
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support import hooks
from support.cases import fresh_key
from support.gateway import Gateway, run_cli
from support.servers import Postgres, Redis
from support.upstream import Upstream, answers
from support.waiting import poll_until

CARD = "4242424242424242"
# As it is, and as hexadecimal digits and base64 would show it.
SPELLINGS = [CARD.encode(), CARD.encode().hex().encode(), b"NDI0MjQyNDI0MjQyNDI0Mg"]
KEYS = {number: f"{number} {byte * 32}" for number, byte in ((1, "a1"), (2, "b2"), (3, "c3"))}


class Embedded:
    """Beside the gateway's other files."""

    url = "journal"

    def remove(self):
        pass

    def folders(self, gateway):
        return [gateway.folder]


class OfServer:
    def __init__(self, server):
        self.server = server.start()

    @property
    def url(self):
        return self.server.url

    def remove(self):
        self.server.remove()

    def folders(self, gateway):
        self.write_everything()
        return [self.server.folder, gateway.folder]


class OfRedis(OfServer):
    def __init__(self):
        super().__init__(Redis())

    def write_everything(self):
        self.server.ask("SAVE")  # a dump beside the append-only file


class OfPostgres(OfServer):
    def __init__(self):
        super().__init__(Postgres())

    def write_everything(self):
        self.server.sql("CHECKPOINT")


class EncryptionCase:
    """What every store does."""

    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.receiver = Upstream().start()  # of events
        self.addCleanup(self.receiver.stop)
        self.store = self.store_type()
        self.addCleanup(self.store.remove)
        self.gateway = self.made()

    def made(self, *numbers, routes=None, **settings):
        """A gateway with these keys, the first of which seals; with none it does not encrypt."""
        gateway = Gateway(self.upstream.url, routes or [{"path": "/charges/*"}], store=self.store.url,
                          webhook=[hooks.hook("stripe", self.receiver.url + "/events")], **settings)
        self.addCleanup(gateway.remove)
        if numbers:
            gateway.settings["encryption_key_file"] = str(gateway.folder / "keys")
            self.give_keys(gateway, *numbers)
        return gateway

    @staticmethod
    def give_keys(gateway, *numbers):
        file = gateway.folder / "keys"
        file.write_text("".join(KEYS[number] + "\n" for number in numbers))
        file.chmod(0o600)

    def again(self, gateway, *numbers):
        """The same store, with a gateway that has these keys."""
        gateway.stop()
        gateway.settings.pop("encryption_key_file", None)
        if numbers:
            gateway.settings["encryption_key_file"] = str(gateway.folder / "keys")
            self.give_keys(gateway, *numbers)
        return gateway

    def refusal(self, gateway):
        self.assertNotEqual(gateway.start_expecting_refusal(), 0, gateway.log)
        return gateway.log

    def plant(self, gateway, key=None):
        """The number in key, path, answer and event; returns the client's first answer."""
        self.upstream.will(answers(201, f'{{"card":"{CARD}"}}'.encode(),
                                   [("X-Card", CARD), ("Location", f"/charges/{CARD}")]))
        first = self.post(gateway, key)
        self.assertEqual(first.status, 201)
        body, fields = hooks.stripe(f"evt_{CARD}_{fresh_key()}")
        self.assertEqual(gateway.client().post(f"/hooks/stripe?card={CARD}", body=body, headers=fields,
                                               authorization=False).status, 200)
        return first

    @staticmethod
    def post(gateway, key=None):
        return gateway.client().post(f"/charges/{CARD}", key=key or f"key-{CARD}", body=f"card={CARD}".encode(),
                                     headers=[("X-Card", CARD)])

    def files_with_the_card(self, gateway):
        found = set()
        for folder in self.store.folders(gateway):
            for file in folder.rglob("*"):
                if file.is_file() and any(spelling in file.read_bytes() for spelling in SPELLINGS):
                    found.add(file.name)
        return found

    def test_the_card_is_in_no_file(self):
        gateway = self.made(1).start()
        first = self.plant(gateway)
        again = self.post(gateway)
        self.assertTrue(again.replayed)
        self.assertEqual((again.body, again.all("X-Card")), (first.body, [CARD]))
        self.receiver.wait_for_executions(1)
        self.assertIn(CARD.encode(), self.receiver.last.body)
        self.assertTrue(self.receiver.last.key.startswith(f"evt_{CARD}"))
        self.assertEqual(self.files_with_the_card(gateway), set())
        # People who may see it do.
        shown = gateway.admin.get("/api/keys").json()["keys"][0]
        self.assertEqual((shown["key"], shown["target"]), (f"key-{CARD}", f"/charges/{CARD}"))
        found = gateway.admin.post("/api/keys/find", body=f'{{"key":"key-{CARD}"}}'.encode()).json()["keys"]
        self.assertEqual([each["key"] for each in found], [f"key-{CARD}"])
        whole = gateway.admin.get(f"/api/keys/{shown['id']}?body=1").json()
        self.assertIn(CARD, whole["response"]["body"])
        gateway.stop()
        self.assertEqual(self.files_with_the_card(gateway), set())
        # After a restart too.
        gateway.start()
        self.assertEqual(self.post(gateway).body, first.body)
        self.assertEqual(self.upstream.executions(f"key-{CARD}"), 1)

    def test_without_encryption_it_is(self):
        """Or the test above proves nothing."""
        gateway = self.gateway.start()
        self.plant(gateway)
        self.assertNotEqual(self.files_with_the_card(gateway), set())

    def test_a_wrong_key_or_none_refuses_the_start(self):
        gateway = self.made(1).start()
        first = self.plant(gateway)
        self.assertIn("encrypted with key 1: set encryption_key_file", self.refusal(self.again(gateway)))
        self.assertIn("encrypted with key 1, and encryption_key_file holds 2", self.refusal(self.again(gateway, 2)))
        self.again(gateway, 1)
        (gateway.folder / "keys").write_text(KEYS[2].replace("2 ", "1 ", 1))
        self.assertIn("is not the key 1 that the store is encrypted with", self.refusal(gateway))
        self.again(gateway, 1).start()
        self.assertEqual(self.post(gateway).body, first.body)

    def test_keys_are_rotated_while_the_gateway_runs(self):
        gateway = self.made(1).start()
        old, young = fresh_key(), fresh_key()
        first = self.plant(gateway, old)
        self.give_keys(gateway, 2, 1)
        gateway.signal(signal.SIGHUP)
        gateway.wait_for_log("event=config_reloaded")
        second = self.plant(gateway, young)
        for key, answer in ((old, first), (young, second)):
            self.assertEqual(self.post(gateway, key).body, answer.body)
        # The key that seals must stay.
        self.give_keys(gateway, 3)
        gateway.signal(signal.SIGHUP)
        self.assertIn("key 2 has sealed until now", gateway.wait_for_log("event=config_reload_refused"))
        self.wait_until_the_secret_is_sealed_with(2, gateway)
        # Without the first key its answers are not replayed, and nothing is executed again.
        self.again(gateway, 2).start()
        self.assertEqual(self.post(gateway, old).status, 503)
        self.assertEqual(self.post(gateway, young).body, second.body)
        self.assertEqual(self.upstream.executions(old), 1)

    def wait_until_the_secret_is_sealed_with(self, number, gateway):
        """A gateway that does not have the key says which one it needs."""
        stranger = Gateway(self.upstream.url, store=gateway.store)
        self.addCleanup(stranger.remove)
        poll_until(lambda: f"encrypted with key {number}:" in self.refusal(stranger), "the secret to be sealed anew")

    def test_a_store_is_encrypted_later(self):
        gateway = self.gateway.start()
        before = fresh_key()
        first = self.plant(gateway, before)
        self.again(gateway, 1).start()
        self.assertEqual(self.post(gateway, before).body, first.body)
        after = self.plant(gateway)
        self.assertEqual(self.post(gateway).body, after.body)
        self.assertIn("encrypted with key 1", self.refusal(self.again(gateway)))

    def test_a_refused_start_does_not_seal_the_secret(self):
        gateway = self.gateway.start()
        first = self.plant(gateway)
        self.again(gateway, 1)
        no_audit_log = gateway.folder / "notes.txt"
        no_audit_log.write_text("bread, milk\n")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = "127.0.0.1:%d" % taken.getsockname()[1]
            for changed, reason in (({"scope": "header:X-Tenant"}, "keys in the store would be forgotten"),
                                    ({"listen": port}, "another process has this port"),
                                    ({"admin": port}, "another process has this port"),
                                    ({"audit_log": str(no_audit_log)}, "is not an audit log")):
                before = dict(gateway.settings)
                gateway.settings.update(changed)
                self.assertIn(reason, self.refusal(gateway))
                gateway.settings = before
        self.again(gateway).start()
        self.assertEqual(self.post(gateway).body, first.body)

    def test_a_start_seals_the_secret_before_it_serves(self):
        """A crash right after the first line that says so leaves nothing that only the old configuration could read."""
        gateway = self.gateway.start()
        first = self.plant(gateway)
        self.again(gateway, 1).start()
        gateway.kill()
        self.assertIn("encrypted with key 1", self.refusal(self.again(gateway)))
        self.again(gateway, 1).start()
        self.assertEqual(self.post(gateway).body, first.body)

    def test_redaction_keeps_key_and_path_out_of_the_files_without_encryption(self):
        gateway = self.made(routes=[{"path": "/charges/*", "redact": True}], log_level="debug",
                            access_log="access.log").start()
        first = self.post(gateway)
        self.assertEqual(first.status, 201)
        self.assertTrue(self.post(gateway).replayed)
        self.assertEqual(self.files_with_the_card(gateway), set())
        shown = gateway.admin.get("/api/keys").json()["keys"][0]
        self.assertRegex(shown["key"], "^redacted:[0-9a-f]{16}$")
        self.assertRegex(shown["target"], "^redacted:[0-9a-f]{16}$")
        found = gateway.admin.post("/api/keys/find", body=f'{{"key":"key-{CARD}"}}'.encode()).json()["keys"]
        self.assertEqual([each["id"] for each in found], [shown["id"]])
        self.assertNotIn(CARD, gateway.log)


class EncryptedEmbeddedStore(EncryptionCase, unittest.TestCase):
    store_type = Embedded

    def wait_until_the_secret_is_sealed_with(self, number, gateway):
        """It is when the reload has been told of."""
        digits = (gateway.folder / "data" / "secret").read_text()
        self.assertEqual(bytes.fromhex(digits)[32:36], number.to_bytes(4, "little"))

    def test_a_crash_on_either_side_of_sealing_the_secret_forgets_nothing(self):
        gateway = self.gateway.start()
        first = self.plant(gateway)
        gateway.stop()
        secret = gateway.folder / "data" / "secret"
        in_clear = secret.read_bytes()
        self.again(gateway, 1).start()
        gateway.kill()
        # Behind it: the secret is sealed, and no record is yet.
        self.assertNotEqual(secret.read_bytes(), in_clear)
        gateway.start()
        self.assertEqual(self.post(gateway).body, first.body)
        young = fresh_key()
        second = self.plant(gateway, young)
        gateway.kill()
        # Before it, and as if records had been sealed already: the next start with the key seals it.
        secret.write_bytes(in_clear)
        gateway.start()
        self.assertNotEqual(secret.read_bytes(), in_clear)
        for key, answer in ((None, first), (young, second)):
            self.assertEqual(self.post(gateway, key).body, answer.body)

    def test_doctor_and_check_know_the_key_file(self):
        gateway = self.made(1).start()
        self.plant(gateway)
        gateway.stop()
        seen = run_cli("doctor", "--config", str(gateway.config_file))
        self.assertRegex(seen.stdout, r"ok +encryption +key 1 seals; the file holds 1\n")
        self.give_keys(gateway, 2)
        seen = run_cli("doctor", "--config", str(gateway.config_file))
        self.assertRegex(seen.stdout, r"problem +encryption +the store is encrypted with key 1, and")
        (gateway.folder / "keys").chmod(0o640)
        checked = run_cli("check", str(gateway.config_file))
        self.assertEqual(checked.returncode, 1)
        self.assertIn("keys can be read by other users (mode 0640): run chmod 600", checked.stdout + checked.stderr)
        (gateway.folder / "keys").unlink()
        self.assertIn("openssl rand -hex 32", self.refusal(gateway))


class EncryptedRedis(EncryptionCase, unittest.TestCase):
    store_type = OfRedis


class EncryptedPostgres(EncryptionCase, unittest.TestCase):
    store_type = OfPostgres


if __name__ == "__main__":
    unittest.main()
