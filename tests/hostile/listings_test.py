"""What clients send may be any bytes; what operators read is always UTF-8 and JSON."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest
from support.gateway import run_cli
from support.upstream import answers


class ListingsTest(GatewayTest):
    store = "journal"
    routes = [{"path": "/orders", "key_from": ["header:Idempotency-Key", "body:/key"]}, {"path": "/*"}]

    def cli(self, *arguments):
        done = run_cli(*arguments, "--admin", self.gateway.admin_text)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def test_no_byte_of_a_request_or_an_answer_breaks_a_listing(self):
        # The default route refuses raw bytes in a path, so that some get in by what is allowed: encodings, any answer.
        for number, target in enumerate(("/nope%FF", "/caf%E9", "/%C0%AF", "/plain")):
            self.upstream.will(answers(404, b"no\xff", [("X-Name", "caf\xe9"), ("X-Raw", "\xff\xfe")],
                                       reason="caf\xe9"))
            self.post(target, key=f"{self.key}-{number}")
        self.client.exchange(self.client.request_bytes("POST", "/raw\xff\xfe", key=f"{self.key}-raw", body=b"{}"))
        answer = self.gateway.admin.get("/api/keys")
        listed = json.loads(answer.body.decode("utf-8"))["keys"]
        self.assertGreaterEqual(len(listed), 4)
        for record in listed:
            shown = self.gateway.admin.get(f"/api/keys/{record['id']}")
            json.loads(shown.body.decode("utf-8"))
            self.assertTrue(record["target"].isascii(), record)
            self.cli("keys", "show", record["id"])
            json.loads(self.cli("keys", "show", record["id"], "--json"))
        self.assertIn("/caf%E9", self.cli("keys", "list"))
        self.assertEqual(len(json.loads(self.cli("keys", "list", "--json"))["keys"]), len(listed))
        self.cli("keys", "list", "--state", "completed")
        self.cli("jobs", "list")

    def test_raw_bytes_in_an_unprotected_path_are_nobodys_business(self):
        response = self.client.get("/raw\xff")
        self.assertEqual(response.status, 201)
        json.loads(self.gateway.admin.get("/api/keys").body.decode("utf-8"))

    def test_an_error_of_the_admin_listener_is_json_whatever_was_asked(self):
        for target in ("/api/keys/\xff\xfe", "/api/keys?state=\xff", "/api/\xff"):
            answer = self.gateway.admin.get(target)
            self.assertGreaterEqual(answer.status, 400)
            json.loads(answer.body.decode("utf-8"))


if __name__ == "__main__":
    unittest.main()
