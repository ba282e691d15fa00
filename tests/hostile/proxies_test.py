"""A proxy in front: its clients are counted instead of it, and one that was not listed still works and is warned of."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.client import Client
from support.messages import render_head
from support.waiting import poll_until

PROXY, UNLISTED = "127.0.0.5", "127.0.0.6"
ATTACKER, VICTIM = "198.51.100.1", "198.51.100.2"
MIB = 1 << 20


class ListedProxyTest(GatewayTest):
    settings = {"trusted_proxies": [PROXY],
                "limits": {"max_connections": 100, "max_connections_per_address": 10, "max_buffered_bytes": 32 * MIB}}

    def open_through_proxy(self, count):
        opened = [Client(self.gateway.address, source=PROXY).connect() for _ in range(count)]
        self.addCleanup(lambda: [connection.socket.close() for connection in opened])
        return opened

    def test_it_is_exempt_from_the_cap_on_connections(self):
        client = Client(self.gateway.address, "victim", source=PROXY)
        for connection in self.open_through_proxy(30):
            response = client.post(key=fresh_key(), connection=connection, headers=[("X-Forwarded-For", VICTIM)])
            self.assertEqual(response.status, 201)

    def test_a_client_behind_it_holds_its_own_share_alone(self):
        for number, connection in enumerate(self.open_through_proxy(6)):
            head = render_head("POST /charges HTTP/1.1", [
                ("Host", "api.test"), ("Authorization", f"Bearer invented-{number}"), ("X-Forwarded-For", ATTACKER),
                ("Idempotency-Key", fresh_key()), ("Content-Length", str(8 * MIB))])
            try:
                connection.send(head + b"x" * (8 * MIB - 100))
            except OSError:
                pass  # beyond its share it is not let in
        poll_until(lambda: self.gateway.metric("oncekey_buffered_bytes") > 8 * MIB, "the attacker to hold memory")
        victim = Client(self.gateway.address, "victim", source=PROXY)
        for _ in range(5):
            response = victim.post(key=fresh_key(), body=b"y" * MIB, headers=[("X-Forwarded-For", VICTIM)])
            self.assertEqual(response.status, 201)


class UnlistedProxyTest(GatewayTest):
    settings = {"limits": {"max_connections": 128}}

    def test_it_works_up_to_its_cap_and_the_log_tells_what_to_do(self):
        proxy = Client(self.gateway.address, "many", source=UNLISTED)
        opened = [proxy.connect() for _ in range(32)]
        self.addCleanup(lambda: [connection.socket.close() for connection in opened])
        for connection in opened:
            self.assertEqual(proxy.post(key=fresh_key(), connection=connection).status, 201)
        line = self.gateway.wait_for_log("event=one_address")
        self.assertIn(UNLISTED, line)
        self.assertIn("trusted_proxies", line)
        response, _ = proxy.exchange(proxy.request_bytes("GET", "/x"), "GET")
        self.assertEqual(response.status, 503)


if __name__ == "__main__":
    unittest.main()
