"""Clients that send and read slowly on purpose: they lose their connection, and other clients lose nothing (A4, A5, A13).

The limits are scaled down; the shares are the defaults. "Slow" is far below limits.min_rate and "fast" far above it, so
that nothing here depends on how quick the machine is.
"""

import os
import pathlib
import socket
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.client import Client
from support.messages import render_head
from support.upstream import answers
from support.waiting import Changing, poll_until

ATTACKER, VICTIM = "127.0.0.2", "127.0.0.3"
MIB = 1 << 20
# So many times as many attackers in `make test-slow`.
MORE = 4 if os.environ.get("ONCEKEY_SLOW_TESTS") else 1


class Dripper:
    """Sends a head and most of a body, then a byte now and then, until it is cut off or stopped."""

    def __init__(self, address, head, body_bytes, sent_at_once, pause=0.3):
        self.socket = socket.create_connection(address, timeout=10, source_address=(ATTACKER, 0))
        self.cut_off = False
        self._stop = threading.Event()
        self._left = body_bytes - sent_at_once
        self._pause = pause
        try:
            self.socket.sendall(head + b"x" * sent_at_once)
        except OSError:
            self.cut_off = True  # beyond its share, it is not even let in
            self._left = 0
        self._thread = threading.Thread(target=self._drip, daemon=True)
        self._thread.start()

    def _drip(self):
        self.socket.settimeout(0.01)
        while self._left > 1 and not self._stop.wait(self._pause):
            try:
                self.socket.send(b"x")
                self._left -= 1
                if self.socket.recv(65536) == b"":
                    break
                break  # an answer before the body is in: it was refused
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            return
        self.cut_off = True

    def stop(self):
        self._stop.set()
        self._thread.join(10)
        self.socket.close()


def head_of(target, length, key=None, account="nobody"):
    fields = [("Host", "api.test"), ("Authorization", f"Bearer {account}"), ("Content-Type", "text/plain"),
              ("Content-Length", str(length))]
    if key:
        fields.append(("Idempotency-Key", key))
    return render_head(f"POST {target} HTTP/1.1", fields)


class SlowTest(GatewayTest):
    routes = [{"path": "/charges", "policy": "classic"}]

    def setUp(self):
        super().setUp()
        self.victim = self.gateway.client("victim", source=VICTIM)
        self.drippers = []
        self.addCleanup(self.stop_all)

    def stop_all(self):
        for dripper in self.drippers:
            dripper.stop()

    def drip(self, *arguments, **options):
        self.drippers.append(Dripper(self.gateway.address, *arguments, **options))

    def assert_all_cut_off(self):
        poll_until(lambda: all(dripper.cut_off for dripper in self.drippers), "every dripping client to be cut off")


class DrippingKeyedBodies(SlowTest):
    settings = {"limits": {"max_buffered_bytes": 32 * MIB}, "timeouts": {"request_body": "2s"}}

    def test_they_hold_their_share_of_memory_alone_and_are_cut_off(self):
        for number in range(6 * MORE):
            self.drip(head_of("/charges", 8 * MIB, key=fresh_key(), account=f"invented-{number}"), 8 * MIB,
                      8 * MIB - 100)
        # The other caller's work goes through while they drip, and a large body of its own too.
        for _ in range(5):
            self.assertEqual(self.victim.post(key=fresh_key()).status, 201)
        self.assertEqual(self.victim.post(key=fresh_key(), body=b"y" * (4 * MIB)).status, 201)
        self.assert_all_cut_off()
        poll_until(lambda: self.gateway.metric("oncekey_buffered_bytes") == 0, "the memory to be free")


class DrippingUploadsWithoutKey(SlowTest):
    settings = {"limits": {"max_upstream_connections": 20, "max_connections": 800, "max_connections_per_address": 400},
                "timeouts": {"request_body": "2s"}}

    def test_they_have_no_place_at_the_upstream(self):
        for _ in range(30 * MORE):
            self.drip(head_of("/files", MIB), MIB, 10)
        for _ in range(5):
            self.assertEqual(self.victim.post(key=fresh_key()).status, 201)
            self.assertEqual(self.victim.post("/files", body=b"small").status, 201)
        self.assertEqual(self.gateway.metric("oncekey_upstream_connections"), 0)
        self.assert_all_cut_off()

    def test_those_that_began_fast_hold_their_share_alone(self):
        for _ in range(30 * MORE):
            self.drip(head_of("/files", MIB), MIB, 100_000)
        for _ in range(5):
            self.assertEqual(self.victim.post(key=fresh_key()).status, 201)
            self.assertEqual(self.victim.post("/files", body=b"small").status, 201)
        self.assert_all_cut_off()


class HalfHeads(SlowTest):
    routes = [{"path": "/charges", "policy": "classic", "max_request_body": "200KiB", "max_stored_body": "200KiB"}]
    settings = {"limits": {"max_buffered_bytes": 2 * MIB, "max_connections": 400, "max_connections_per_address": 300},
                "timeouts": {"request_headers": "60s"}}

    def test_they_count_as_memory(self):
        half = b"POST /charges HTTP/1.1\r\nHost: api.test\r\nX-Long: " + b"a" * 30_000
        opened = []
        self.addCleanup(lambda: [connection.close() for connection in opened])
        for _ in range(150):
            connection = socket.create_connection(self.gateway.address, timeout=10, source_address=(ATTACKER, 0))
            connection.sendall(half)
            opened.append(connection)
        poll_until(lambda: self.gateway.metric("oncekey_buffered_bytes") > 0, "half heads to be counted")
        for _ in range(5):
            self.assertEqual(self.victim.post(key=fresh_key(), body=b"z" * 100_000).status, 201)
        self.assertLessEqual(self.gateway.metric("oncekey_buffered_bytes"), 2 * MIB)


class UnreadReplays(SlowTest):
    settings = {"limits": {"max_buffered_bytes": 36 * MIB}, "timeouts": {"write": "2s"}}

    def test_they_hold_their_share_of_memory_alone_and_are_cut_off(self):
        self.upstream.will(answers(200, b"r" * (8 * MIB)))
        attacker = Client(self.gateway.address, "attacker", source=ATTACKER)
        key = fresh_key()
        self.assertEqual(attacker.post(key=key).status, 200)
        unread = []
        self.addCleanup(lambda: [connection.socket.close() for connection in unread])
        for _ in range(8 * MORE):
            connection = attacker.connect()
            connection.send(attacker.request_bytes("POST", "/charges", key=key, body=b'{"amount":100}'))
            unread.append(connection)
        for _ in range(10):
            self.assertEqual(self.victim.post(key=fresh_key()).status, 201)
        poll_until(lambda: self.gateway.metric("oncekey_buffered_bytes") == 0, "unread answers to be given up")


class AsyncAnswers(SlowTest):
    """Answers that are fetched later count as memory like any other (A6)."""
    routes = [{"path": "/*", "policy": "classic", "respond_async": True}]
    settings = {"limits": {"max_buffered_bytes": 16 * MIB}}

    def test_they_stay_within_the_limit(self):
        gate = self.upstream.gate()
        most = Changing()
        seen = [0.0]

        def large(exchange):
            gate.pass_through()
            answers(200, b"a" * (6 * MIB))(exchange)

        attacker = Client(self.gateway.address, "attacker", source=ATTACKER)
        count = 12
        self.upstream.will(*[large] * count)
        keys = [fresh_key() for _ in range(count)]
        for key in keys:
            self.assertEqual(attacker.post(key=key, headers=[("Prefer", "respond-async")]).status, 202)
        gate.wait_for_arrival(count)
        gate.open()

        def over():
            with most:
                seen[0] = max(seen[0], self.gateway.metric("oncekey_buffered_bytes"))
            return self.gateway.metric("oncekey_detached") == 0

        poll_until(over, "all operations to end")
        # Up to 64 KiB of each answer are held whatever the limit says.
        self.assertLessEqual(seen[0], 16 * MIB + count * (128 << 10))
        self.assertEqual(self.victim.post(key=fresh_key()).status, 201)
        # None of them is executed again: its answer is there, or known not to have been kept.
        for key in keys:
            self.assertIn(attacker.post(key=key).status, (200, 409))
        self.assertEqual(self.upstream.executions(), count + 1)


class RatesByAddress(SlowTest):
    """A caller that invents a credential for each request is still one address (A14)."""
    settings = {"rate": "2/s", "address_rate": "5/s", "address_burst": 10}

    def test_ever_new_accounts_are_limited_by_their_address(self):
        statuses = [Client(self.gateway.address, f"invented-{number}", source=ATTACKER).post(key=fresh_key()).status
                    for number in range(40)]
        self.assertGreater(statuses.count(429), 15)
        self.assertEqual(self.victim.post(key=fresh_key()).status, 201)

    def test_what_matches_no_route_counts_too(self):
        client = Client(self.gateway.address, "x", source="127.0.0.4")
        statuses = [client.get("/unrouted").status for _ in range(40)]
        self.assertGreater(statuses.count(429), 15)


if __name__ == "__main__":
    unittest.main()
