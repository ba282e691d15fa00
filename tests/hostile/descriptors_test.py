"""Connections by the hundred: the gateway lives, its store lives, and other clients are served (A1)."""

import os
import pathlib
import re
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import fresh_key
from support.client import Client
from support.gateway import Gateway, run_cli
from support.upstream import Upstream
from support.waiting import poll_until

CLASSIC = [{"path": "/*", "policy": "classic"}]
ATTACKER, VICTIM = "127.0.0.2", "127.0.0.3"
# Few enough that the attack is quick, and more than the gateway needs for itself.
DESCRIPTORS = 900
# As in the review, in `make test-slow`.
ATTACK = 1100 if os.environ.get("ONCEKEY_SLOW_TESTS") else 700


def limited(gateway, descriptors):
    """The process may have so many descriptors, hard and soft, from before its start."""
    gateway.preexec = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    return gateway


def open_connections(address, count, data=b""):
    opened = []
    for _ in range(count):
        try:
            connection = socket.create_connection(address, timeout=5, source_address=(ATTACKER, 0))
            if data:
                connection.sendall(data)
            opened.append(connection)
        except OSError:
            break
    return opened


class DescriptorTest(unittest.TestCase):
    def start(self, **settings):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        gateway = limited(Gateway(upstream.url, CLASSIC, store="journal", **settings), DESCRIPTORS)
        self.addCleanup(gateway.remove)
        gateway.start()
        self.upstream, self.gateway = upstream, gateway
        return gateway

    def fds(self):
        return len(os.listdir(f"/proc/{self.gateway.pid}/fd"))

    def test_limits_that_do_not_fit_are_lowered_with_a_line_that_says_so(self):
        gateway = self.start()
        line = gateway.wait_for_log("event=limits_lowered")
        self.assertIn("max_connections=\"4096 -> ", line)
        self.assertIn("ulimit -n", line)

    def test_idle_connections_of_each_upstream_are_counted(self):
        def calls_allowed(upstreams):
            routes = [{"path": f"/{number}", "upstream": f"http://127.0.0.1:{9 + number}"}
                      for number in range(upstreams)]
            with limited(Gateway("http://127.0.0.1:9", routes), DESCRIPTORS) as gateway:
                lowered = gateway.wait_for_log("event=limits_lowered")
            return int(re.search(r'max_upstream_connections="1024 -> (\d+)"', lowered).group(1))

        # A call and an idle connection to the one; a call and an idle connection to each of the three.
        self.assertEqual(calls_allowed(1) // 2, calls_allowed(3))

    def test_too_few_descriptors_refuse_the_start(self):
        gateway = limited(Gateway("http://127.0.0.1:9", CLASSIC, store="journal"), 300)
        self.addCleanup(gateway.remove)
        self.assertEqual(gateway.start_expecting_refusal(), 1)
        self.assertIn("limit of file descriptors is 300", gateway.log)

    def test_the_soft_limit_is_raised_to_the_hard_one(self):
        gateway = Gateway("http://127.0.0.1:9", CLASSIC)
        gateway.preexec = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2048))
        self.addCleanup(gateway.remove)
        gateway.start()
        limits = pathlib.Path(f"/proc/{gateway.pid}/limits").read_text()
        self.assertRegex(limits, r"Max open files\s+2048\s+2048")

    def test_idle_connections_of_one_address_leave_room_for_others_and_for_the_store(self):
        gateway = self.start()
        victim = gateway.client("victim", source=VICTIM)
        opened = open_connections(gateway.address, ATTACK, b"P")
        self.addCleanup(lambda: [connection.close() for connection in opened])
        self.assertLess(self.fds(), DESCRIPTORS - 64)
        # New work of others, durable: the store still opens its files.
        for _ in range(20):
            self.assertEqual(victim.post(key=fresh_key()).status, 201)
        self.assertTrue(gateway.running)
        self.assertIn("event=connections_refused", gateway.log)

    def test_connections_beyond_the_limit_are_told_so_and_closed_at_once(self):
        gateway = self.start(limits={"max_connections": 40, "max_connections_per_address": 40})
        held = open_connections(gateway.address, 40)
        self.addCleanup(lambda: [connection.close() for connection in held])
        client = gateway.client(source=ATTACKER)
        poll_until(lambda: gateway.metric("oncekey_connections") >= 40, "40 connections to be open")
        response, closed = client.exchange(client.request_bytes("GET", "/x"), "GET")
        self.assertEqual(response.status, 503)
        self.assertEqual(response.header("Retry-After"), "1")
        before = self.fds()
        more = open_connections(gateway.address, 200)
        self.addCleanup(lambda: [connection.close() for connection in more])
        self.assertLessEqual(self.fds(), before + 4)

    def test_who_says_nothing_to_the_admin_listener_keeps_no_probe_out(self):
        gateway = self.start()
        before = self.fds()
        for said in (b"", b"GET /livez HTTP/1.1\r\nHost: 127"):
            held = open_connections(gateway.admin_address, 300, said)
            self.addCleanup(lambda opened=held: [connection.close() for connection in opened])
            for source in (ATTACKER, VICTIM):
                probe = Client(gateway.admin_address, gateway.admin_token, host=gateway.admin_text, source=source)
                self.assertEqual(probe.get("/livez").status, 200)
            self.assertEqual(run_cli("health", "--live", "--admin", gateway.admin_text).returncode, 0)
            # No more of them are open than there are places for one address.
            poll_until(lambda: self.fds() < before + 64 + 16, "those that gave way to be closed")

    def test_silent_tls_connections_count_before_their_handshake(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "1",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                       check=True, capture_output=True)
        gateway = self.start(tls_cert=folder / "cert.pem", tls_key=folder / "key.pem",
                             limits={"max_connections": 40, "max_connections_per_address": 20})
        silent = open_connections(gateway.address, 300)
        self.addCleanup(lambda: [connection.close() for connection in silent])
        context = ssl.create_default_context(cafile=folder / "cert.pem")
        victim = Client(gateway.address, "victim", tls_context=context, source=VICTIM)
        self.assertEqual(victim.post(key=fresh_key()).status, 201)
        poll_until(lambda: self.fds() < 200, "the surplus to be closed")


if __name__ == "__main__":
    unittest.main()
