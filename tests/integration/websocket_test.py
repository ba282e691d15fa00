"""WebSockets: tunnelled both ways after a 101 that names them, refused with a key, bounded in time and number."""

import contextlib
import pathlib
import signal
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest
from support.gateway import Gateway
from support.upstream import Upstream, answers
from support.waiting import Background, poll_until
from support.websockets import ACCEPT, ASKS, KEY, answer_after_the_end, echo, open_websocket, switches

LONG = bytes(range(256)) * (16 << 10)  # 4 MiB: more than all buffers on the way


class WebSocketTest(GatewayTest):
    routes = [{"path": "/paypal/*", "policy": "classic", "key_from": "header:PayPal-Request-Id"},
              {"path": "/reads/*", "policy": "classic", "methods": ["GET", "POST"]},
              {"path": "/alike/*", "policy": "classic", "methods": ["GET"], "key_from": "fingerprint",
               "window": "10m"},
              {"path": "/seen/*", "policy": "classic", "methods": ["GET"], "mode": "observe"},
              {"path": "/strict/*", "policy": "classic", "methods": ["GET"], "key": "required"},
              {"path": "/stripe/*", "policy": "stripe-v1", "methods": ["GET", "POST"]},
              {"path": "/orders/*", "policy": "classic"}]

    def setUp(self):
        super().setUp()
        poll_until(lambda: self.tunnels() == 0, "the tunnels of the test before to end")

    def tunnels(self):
        return self.gateway.metric("oncekey_tunnels")

    @contextlib.contextmanager
    def websocket(self, *arguments, **options):
        connection, head = open_websocket(self.client, *arguments, **options)
        with connection:
            self.assertEqual(head.status, 101, head)
            yield connection

    def test_bytes_are_carried_both_ways_and_counted(self):
        counted = self.gateway.metric("oncekey_requests_total", decision="websocket")
        self.upstream.will(switches(echo))
        with self.websocket() as connection:
            for piece in (b"\x81\x02hi", b"\x00" * 1000, b"GET / HTTP/1.1\r\n\r\n"):
                connection.send(piece)
                self.assertEqual(connection.read_exactly(len(piece)), piece)
            self.assertEqual(self.tunnels(), 1)
            self.assertEqual(self.gateway.metric("oncekey_upstream_connections"), 1)
            self.assertEqual(self.gateway.metric("oncekey_connections"), 1)
        poll_until(lambda: self.tunnels() == 0, "the tunnel to end")
        poll_until(lambda: self.gateway.metric("oncekey_upstream_connections") == 0, "its place to be free")
        self.assertEqual(self.gateway.metric("oncekey_requests_total", decision="websocket"), counted + 1)
        self.assertEqual(len(self.upstream.received), 1)

    def test_both_sides_see_the_handshake(self):
        self.upstream.will(switches(echo))
        connection, head = open_websocket(self.client, headers=[("Cookie", "a=b")])
        connection.socket.close()
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", ACCEPT),
                            ("Sec-WebSocket-Protocol", "chat")):
            self.assertEqual(head.header(name), value)
        self.assertFalse(head.has("Content-Length") or head.has("Transfer-Encoding"), head)
        asked = self.upstream.last
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", KEY),
                            ("Sec-WebSocket-Version", "13"), ("Host", "api.test"), ("Cookie", "a=b"),
                            ("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Host", "api.test"),
                            ("X-Forwarded-Proto", "http")):
            self.assertEqual(asked.header(name), value)

    def test_a_slow_reader_gets_everything(self):
        self.upstream.will(switches(echo))
        with self.websocket() as connection:
            sending = Background(lambda: connection.send(LONG))
            self.assertEqual(connection.read_exactly(len(LONG)), LONG)
            sending.result()

    def test_a_slow_upstream_gets_everything(self):
        gate = self.upstream.gate()

        def reads_late(exchange):
            gate.pass_through()
            echo(exchange)

        self.upstream.will(switches(reads_late))
        with self.websocket() as connection:
            sending = Background(lambda: connection.send(LONG))
            gate.wait_for_arrival()
            gate.open()
            self.assertEqual(connection.read_exactly(len(LONG)), LONG)
            sending.result()

    def test_bytes_that_come_early_are_not_lost_and_are_not_requests(self):
        self.upstream.will(switches(echo, early=b"welcome"))
        smuggled = b"GET /evil HTTP/1.1\r\nHost: api.test\r\n\r\n"
        with self.websocket(more=smuggled) as connection:
            self.assertEqual(connection.read_exactly(7 + len(smuggled)), b"welcome" + smuggled)
        self.assertEqual([request.target for request in self.upstream.received], ["/ws"])

    def test_one_side_may_end_before_the_other(self):
        self.upstream.will(switches(answer_after_the_end))
        with self.websocket() as connection:
            connection.send(b"x" * 100_000)
            connection.end_sending()
            self.assertEqual(connection.read_to_end(), b"100000")
        poll_until(lambda: self.tunnels() == 0, "the tunnel to end")

    def test_the_upstream_learns_that_the_client_is_gone(self):
        ended = threading.Event()

        def waits(exchange):
            exchange.wait_for_peer_to_close()
            ended.set()

        self.upstream.will(switches(waits))
        with self.websocket() as connection:
            connection.send(b"hello")
        self.assertTrue(ended.wait(20))

    def test_the_client_learns_that_the_upstream_is_gone(self):
        self.upstream.will(switches(lambda exchange: exchange.reset()))
        with self.websocket() as connection:
            self.assertTrue(connection.is_closed())
        poll_until(lambda: self.tunnels() == 0, "the tunnel to end")

    def test_an_upstream_that_refuses_is_heard_and_http_goes_on(self):
        self.upstream.will(answers(404, b"no such socket"))
        with self.client.connect() as connection:
            connection.send(self.client.request_bytes("GET", "/ws", headers=ASKS))
            connection.send(self.client.request_bytes("GET", "/next"))
            refused = connection.read_response("GET")
            self.assertEqual((refused.status, refused.body), (404, b"no such socket"))
            self.assertFalse(refused.has("Upgrade"), refused)
            self.assertEqual(connection.read_response("GET").status, 201)
        self.assertEqual([request.target for request in self.upstream.received], ["/ws", "/next"])
        self.assertEqual(self.tunnels(), 0)

    def test_a_101_must_name_websocket(self):
        for upgrade, connection in (("h2c", "Upgrade"), ("websocket, h2c", "Upgrade"), ("websocket", "close")):
            with self.subTest(upgrade=upgrade, connection=connection):
                self.upstream.will(switches(lambda _: None, upgrade=upgrade, connection=connection))
                self.assertEqual(self.client.get("/ws", headers=ASKS).status, 502)

    def test_a_101_that_was_not_asked_for_is_refused(self):
        self.upstream.will(switches(lambda _: None))
        self.assertEqual(self.client.get("/ws").status, 502)

    def test_other_upgrades_are_dropped(self):
        websocket = ("Upgrade", "websocket")
        for method, version, fields in (
                ("GET", "HTTP/1.1", [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"),
                                     ("HTTP2-Settings", "AAMAAABk")]),
                ("GET", "HTTP/1.1", [websocket]),
                ("GET", "HTTP/1.1", [("Connection", "keep-alive"), websocket]),
                ("GET", "HTTP/1.0", [("Connection", "Upgrade"), websocket]),
                ("HEAD", "HTTP/1.1", [("Connection", "Upgrade"), websocket]),
                ("POST", "HTTP/1.1", [("Connection", "Upgrade"), websocket])):
            with self.subTest(method=method, version=version, fields=fields):
                response = self.client.request(method, "/x", headers=fields, version=version)
                self.assertEqual(response.status, 201)
                self.assertFalse(self.upstream.last.has("Upgrade"))
        body = self.client.request("GET", "/x", headers=ASKS, body=b"{}")
        self.assertEqual((body.status, self.upstream.last.has("Upgrade")), (201, False))

    def test_of_several_protocols_websocket_alone_is_asked_for(self):
        self.upstream.will(answers(200, b""))
        self.client.get("/ws", headers=[("Connection", "Upgrade"), ("Upgrade", "h2c, WebSocket")])
        self.assertEqual(self.upstream.last.header("Upgrade"), "websocket")

    def test_with_a_key_it_is_refused_and_nothing_is_sent(self):
        for target, field in (("/ws", "Idempotency-Key"), ("/orders/ws", "Idempotency-Key"),
                              ("/reads/ws", "Idempotency-Key"), ("/paypal/ws", "PayPal-Request-Id")):
            with self.subTest(target=target, field=field):
                refused = self.client.get(target, headers=ASKS + [(field, "k-1")])
                problem = self.assert_problem(refused, 400, "upgrade_with_key")
                self.assertIn("without a key", problem["detail"])
        refused = self.client.get("/stripe/ws", headers=ASKS + [("Idempotency-Key", "k-1")])
        self.assertEqual((refused.status, refused.json()["error"]["code"]), (400, "upgrade_with_key"))
        self.assertEqual(self.upstream.received, [])

    def test_where_a_key_is_required_there_is_no_websocket(self):
        problem = self.assert_problem(self.client.get("/strict/ws", headers=ASKS), 400, "upgrade_with_key")
        self.assertIn("no request without a key", problem["detail"])
        self.assertEqual(self.upstream.received, [])

    def test_where_keys_are_made_of_fingerprints_there_is_no_websocket(self):
        problem = self.assert_problem(self.client.get("/alike/ws", headers=ASKS), 400, "upgrade_with_key")
        self.assertIn("fingerprint", problem["detail"])
        self.assertNotIn("without a key", problem["detail"])
        self.assertEqual(self.upstream.received, [])

    def test_without_a_key_a_protected_route_lets_it_through(self):
        for target, fields in (("/reads/ws", ()), ("/paypal/ws", [("Idempotency-Key", "not this route's")]),
                               ("/seen/ws", [("Idempotency-Key", "only observed")])):
            with self.subTest(target=target):
                self.upstream.will(switches(echo))
                with self.websocket(target, headers=fields) as connection:
                    connection.send(b"hello")
                    self.assertEqual(connection.read_exactly(5), b"hello")


class BoundsTest(unittest.TestCase):
    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)

    def test_a_tunnel_in_which_nothing_moves_is_closed(self):
        ended = threading.Event()

        def waits(exchange):
            exchange.wait_for_peer_to_close()
            ended.set()

        with Gateway(self.upstream.url, timeouts={"tunnel_idle": "150ms"}) as gateway:
            self.upstream.will(switches(waits))
            connection, head = open_websocket(gateway.client())
            with connection:
                self.assertEqual(head.status, 101)
                self.assertTrue(connection.is_closed())
            self.assertTrue(ended.wait(20))
            poll_until(lambda: gateway.metric("oncekey_tunnels") == 0, "the tunnel to end")

    def test_a_drain_closes_tunnels_at_its_end(self):
        with Gateway(self.upstream.url, drain_timeout="200ms") as gateway:
            self.upstream.will(switches(echo))
            connection, head = open_websocket(gateway.client())
            with connection:
                self.assertEqual(head.status, 101)
                gateway.signal(signal.SIGTERM)
                gateway.wait_for_log("event=draining")
                self.assertTrue(connection.is_closed())
            self.assertEqual(gateway.wait(), 0)
            self.assertIn("event=tunnels_closed", gateway.log)

    def test_a_tunnel_holds_its_place_at_the_upstream(self):
        with Gateway(self.upstream.url, limits={"max_upstream_connections": 1}) as gateway:
            client = gateway.client()
            self.upstream.will(switches(echo))
            connection, head = open_websocket(client)
            with connection:
                self.assertEqual(head.status, 101)
                self.assertEqual(client.get("/x").status, 503)
            poll_until(lambda: client.get("/x").status == 201, "the place to be free again")


if __name__ == "__main__":
    unittest.main()
