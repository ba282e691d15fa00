"""The access log, the log as JSON, and the hints for operators."""

import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support import hooks
from support.cases import GatewayTest
from support.gateway import Gateway
from support.upstream import Upstream, answers, resets
from support.waiting import poll_until
from support.websockets import echo, open_websocket, switches

TRACE = "0af7651916cd43dd8448eb211c80319c"


class AccessLogTest(GatewayTest):
    routes = [{"path": "/charges/*"}, {"path": "/cookie/*", "scope": "cookie:sid"}]

    @classmethod
    def setUpClass(cls):
        cls.upstream = Upstream().start()
        cls.addClassCleanup(cls.upstream.stop)
        cls.gateway = Gateway(cls.upstream.url, cls.routes, access_log="access.log", log_format="json",
                              webhook=[hooks.hook("stripe", cls.upstream.url + "/events")])
        cls.addClassCleanup(cls.gateway.remove)
        cls.gateway.start()
        cls.client = cls.gateway.client()
        cls.file = cls.gateway.folder / "access.log"

    def lines(self, text=None):
        """Each is an object on a line of its own."""
        return [json.loads(line) for line in (self.file.read_text() if text is None else text).splitlines()]

    def logged(self, count, **wanted):
        """The lines with these values, once there are as many; they are written within a second."""
        found = []

        def enough():
            found[:] = [line for line in self.lines() if all(line.get(name) == value for name, value in wanted.items())]
            return len(found) >= count

        poll_until(enough, f"{count} lines with {wanted}")
        self.assertEqual(len(found), count, found)
        return found

    def test_one_line_for_each_request_says_what_was_decided(self):
        self.upstream.will(answers(201, b"0123456789"))
        headers = [("traceparent", f"00-{TRACE}-b7ad6b7169203331-01")]
        self.post("/charges/1", body=b"four", headers=headers)
        self.post("/charges/1", body=b"four", headers=headers)
        self.post("/charges/1", body=b"other", headers=headers)
        # A line is written after its answer was: two requests on two threads may change places.
        decided = {line["decision"]: line for line in self.logged(3, trace=TRACE)}
        first, replay, mismatch = decided["execute"], decided["replay"], decided["mismatch"]
        self.assertEqual([first["status"], replay["status"], mismatch["status"]], [201, 201, 422])
        self.assertEqual((first["route"], first["method"], first["event"]), ("/charges/*", "POST", "request"))
        self.assertEqual((first["bytes_in"], first["bytes_out"], replay["bytes_out"]), (4, 10, 10))
        self.assertRegex(first["key"], "^[0-9a-f]{12}$")
        self.assertEqual({first["key"]}, {replay["key"], mismatch["key"]})
        self.assertIn("upstream_ms", first)
        self.assertNotIn("upstream_ms", replay)
        for line in (first, replay, mismatch):
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIsInstance(line["ms"], (int, float))

    def test_requests_without_a_key_without_a_route_and_failed_ones_are_there_too(self):
        self.upstream.will(answers(200), answers(200), resets(), resets())
        self.client.request("POST", "/charges/a", body=b"{}")
        self.client.get("/elsewhere")
        self.client.request("PUT", "/broken", body=b"")
        self.post("/charges/unknown")
        self.assertIn("upstream_ms", self.logged(1, route="/charges/*", decision="pass")[0])
        self.assertEqual(self.logged(1, method="GET", status=200)[0]["route"], "(none)")
        self.logged(1, method="PUT", status=502)
        self.assertEqual(self.logged(1, decision="upstream_unknown")[0]["status"], 502)

    def test_webhooks_are_there_too(self):
        body, fields = hooks.stripe("evt_1", b'{"id":"evt_1"}')
        for _ in range(2):
            self.client.post("/hooks/stripe", body=body, headers=fields, authorization=False)
        self.client.post("/hooks/stripe", body=body + b" ", headers=fields, authorization=False)
        self.logged(1, decision="staged", route="hook /hooks/stripe")
        self.logged(1, decision="duplicate")
        refused = [line for line in self.lines() if line["route"] == "hook /hooks/stripe" and line["status"] == 400]
        self.assertEqual(len(refused), 1)

    def test_a_websocket_is_there_when_it_ends_with_what_it_carried(self):
        self.upstream.will(switches(echo, early=b"welcome"))
        connection, head = open_websocket(self.client, "/socket")
        self.assertEqual(head.status, 101)
        connection.send(b"hello")
        self.assertEqual(connection.read_exactly(12), b"welcomehello")
        connection.socket.close()
        line = self.logged(1, decision="websocket")[0]
        self.assertEqual((line["status"], line["bytes_in"], line["bytes_out"]), (101, 5, 12))

    def test_what_clients_send_leaves_valid_lines_without_it(self):
        before = len(self.lines())
        for raw in (b"POST /charges/\xff\xfe%22%0a\" HTTP/1.1\r\n", b"SECRET\x7f /charges/secret-path HTTP/1.1\r\n",
                    b"SECRET /charges/secret-path?secret HTTP/1.1\r\n"):
            self.client.exchange(raw + b"Host: secret.example\r\nIdempotency-Key: secret-\xff\"\r\n"
                                 b"traceparent: 00-secret\"\r\nAuthorization: Bearer secret\r\nContent-Length: 0\r\n\r\n")
        self.logged(1, method="other")
        self.assertGreater(len(self.lines()), before)
        self.assertNotIn("secret", self.file.read_text().lower())

    def test_the_ordinary_log_is_json_too(self):
        self.client.request("POST", "/cookie/1", key="k", body=b"{}")
        line = json.loads(self.gateway.wait_for_log("principal_missing"))
        self.assertEqual((line["level"], line["route"]), ("warning", "/cookie/*"))
        self.assertIn("scope", line["next"])
        for line in self.gateway.log.splitlines():
            json.loads(line or "{}")

    def test_a_key_on_a_method_that_is_not_protected_is_counted_and_told(self):
        before = self.gateway.metric("oncekey_ignored_keys_total")
        self.client.request("PUT", "/charges/1", key="k", body=b"{}")
        self.client.request("GET", "/charges/1", key="k")
        self.client.request("PUT", "/charges/1", body=b"{}")
        line = json.loads(self.gateway.wait_for_log("key_ignored"))
        self.assertEqual((line["method"], line["route"]), ("PUT", "/charges/*"))
        self.assertEqual(self.gateway.metric("oncekey_ignored_keys_total"), before + 1)

    def test_after_sigusr1_lines_go_into_a_new_file(self):
        old = self.file.with_name("access.log.1")
        self.file.rename(old)
        self.gateway.signal(signal.SIGUSR1)
        poll_until(self.file.exists, "the new file")
        self.client.request("DELETE", "/after", body=b"")
        self.logged(1, method="DELETE")
        self.assertNotIn("DELETE", old.read_text())
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
        # The other tests read all lines.
        self.file.write_text(old.read_text() + self.file.read_text())


class TextTest(unittest.TestCase):
    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)

    def test_text_is_the_default_and_everything_is_written_at_the_end(self):
        gateway = Gateway(self.upstream.url, [{"path": "/*"}], access_log="access.log")
        self.addCleanup(gateway.remove)
        gateway.start()
        for _ in range(2):
            gateway.client().post(key="k-1")
        gateway.stop()
        lines = (gateway.folder / "access.log").read_text().splitlines()
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"^time=\S+Z event=request method=POST route=/\* decision=execute status=201 ms=[0-9.]+ "
                                   r"upstream_ms=[0-9.]+ bytes_in=14 bytes_out=\d+ key=[0-9a-f]{12}$")
        self.assertIn("decision=replay", lines[1])

    def test_without_one_the_signal_does_nothing(self):
        with Gateway(self.upstream.url, [{"path": "/*"}]) as gateway:
            gateway.signal(signal.SIGUSR1)
            self.assertEqual(gateway.client().get("/x").status, 201)
            self.assertEqual(re.findall("event=request", gateway.log), [])

    def test_a_file_that_cannot_be_made_stops_the_start(self):
        gateway = Gateway(self.upstream.url, [{"path": "/*"}], access_log="/nonexistent/access.log")
        self.addCleanup(gateway.remove)
        self.assertEqual(gateway.start_expecting_refusal(), 1)
        self.assertIn("access_log: /nonexistent/access.log: No such file", gateway.log)

    def test_a_fifo_stops_the_start_instead_of_holding_it_up(self):
        with tempfile.TemporaryDirectory(prefix="oncekey-test-") as folder:
            fifo = pathlib.Path(folder) / "fifo"
            os.mkfifo(fifo)
            gateway = Gateway(self.upstream.url, [{"path": "/*"}], access_log=str(fifo))
            self.addCleanup(gateway.remove)
            self.assertEqual(gateway.start_expecting_refusal(), 1)
            self.assertIn("is not a regular file", gateway.log)


if __name__ == "__main__":
    unittest.main()
