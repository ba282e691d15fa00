"""Clients that open WebSockets and keep them: they never take the places that requests need (P12).

A WebSocket holds its place at the upstream for as long as a byte moves now and then, so that no time-out frees it.
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.upstream import answers
from support.waiting import poll_until
from support.websockets import echo, open_websocket, switches

ATTACKERS = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
VICTIM = "127.0.0.9"
PLACES = 16


def as_asked(exchange):
    (switches(echo) if exchange.request.has("Upgrade") else answers(201))(exchange)


class WebSocketHoarders(GatewayTest):
    routes = [{"path": "/charges", "policy": "classic"}]
    settings = {"limits": {"max_upstream_connections": PLACES}}

    def setUp(self):
        super().setUp()
        self.open = []
        self.upstream.always(as_asked)
        self.addCleanup(self.close_all)

    def close_all(self):
        for connection in self.open:
            connection.socket.close()
        poll_until(lambda: self.gateway.metric("oncekey_upstream_connections") == 0, "the places to be free")

    def hoard(self, source):
        """Opens as many WebSockets as the address is given; returns how many, and the refusal that came then."""
        client = self.gateway.client("attacker", source=source)
        for opened in range(PLACES + 1):
            connection, head = open_websocket(client)
            self.addCleanup(connection.socket.close)
            if head.status != 101:
                return opened, head
            self.open.append(connection)
        self.fail("one address took every place at the upstream")

    def test_they_hold_half_of_the_places_and_each_address_its_share_of_that(self):
        held = [self.hoard(source) for source in ATTACKERS]
        # One address alone has half of the WebSockets' half. Then each has a quarter of it.
        self.assertEqual([opened for opened, _ in held], [4, 2, 2])
        # The address over its share is told so; when all are taken, every address is.
        self.assertEqual([refused.status for _, refused in held], [429, 429, 503])
        for _, refused in held:
            self.assertTrue(refused.has("Retry-After"), refused)
        # A WebSocket is counted once its client has been told of it.
        poll_until(lambda: self.gateway.metric("oncekey_tunnels") == PLACES // 2, "all of them to be counted")
        self.assertEqual(self.hoard(VICTIM)[1].status, 503)

        victim = self.gateway.client("victim", source=VICTIM)
        for _ in range(3):
            self.assertEqual(victim.post(key=fresh_key()).status, 201)
            self.assertEqual(victim.get("/x").status, 201)
        # An attacker's requests go on as well.
        self.assertEqual(self.gateway.client("attacker", source=ATTACKERS[1]).post(key=fresh_key()).status, 201)

    def test_a_place_that_is_given_back_is_there_for_the_next(self):
        self.hoard(ATTACKERS[0])
        self.open.pop().socket.close()
        poll_until(lambda: self.gateway.metric("oncekey_tunnels") == 3, "the tunnel to end")
        # Its place is given back a moment after that.
        self.assertEqual(poll_until(lambda: self.hoard(ATTACKERS[0])[0], "the place to be free"), 1)


if __name__ == "__main__":
    unittest.main()
