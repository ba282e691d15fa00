"""Several upstreams: each route's requests go to its own, and one that is gone does not trouble the others."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.gateway import Gateway, free_port
from support.upstream import Upstream, answers, never_answers
from support.waiting import poll_until
from support.websockets import echo, open_websocket, switches


class UpstreamsTest(GatewayTest):
    """`upstream` is the one at the top, `orders` that of two routes."""

    @classmethod
    def setUpClass(cls):
        cls.orders = Upstream().start()
        cls.addClassCleanup(cls.orders.stop)
        orders = {"policy": "classic", "upstream": cls.orders.url}
        cls.routes = [{**orders, "path": "/orders/*", "respond_async": True},
                      {**orders, "path": "/probed/*", "on_abandoned": "probe", "probe": "GET /made?key={key}",
                       "lease": "300ms", "upstream_timeout": "300ms"},
                      {**orders, "path": "/asked/*", "reauthorize": "GET /me"},
                      {**orders, "path": "/seen/*", "mode": "observe"},
                      {"path": "/*", "policy": "classic"}]
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.orders.reset()

    def assert_all_at_orders(self, *targets):
        self.assertEqual([request.target for request in self.orders.received], list(targets))
        self.assertEqual(self.upstream.received, [])

    def test_each_route_has_its_upstream(self):
        first = self.post("/orders/1")
        self.assert_replay_of(first, self.post("/orders/1"))
        self.assert_all_at_orders("/orders/1")
        self.assert_first(self.post("/charges"))
        self.assertEqual([request.target for request in self.upstream.received], ["/charges"])
        self.assertEqual(self.orders.executions(), 1)

    def test_what_is_not_protected_goes_there_too(self):
        self.client.get("/orders/1")
        self.client.post("/orders/2")
        self.client.request("DELETE", "/orders/3", key=self.key)
        self.post("/seen/4")
        self.assert_all_at_orders("/orders/1", "/orders/2", "/orders/3", "/seen/4")

    def test_an_answer_for_later_comes_from_there(self):
        accepted = self.post("/orders/1", headers=[("Prefer", "respond-async")])
        self.assertEqual(accepted.status, 202)
        poll_until(lambda: self.client.get(accepted.header("Location")).status == 201, "the answer")
        self.assert_all_at_orders("/orders/1")

    def test_it_is_asked_before_a_replay(self):
        first = self.post("/asked/1")
        self.orders.will(answers(200, b"still alice"))
        self.assert_replay_of(first, self.post("/asked/1"))
        self.assert_all_at_orders("/asked/1", "/me")

    def test_it_is_probed(self):
        self.orders.will(never_answers())
        self.assertEqual(self.post("/probed/1").status, 504)
        self.orders.always(answers(200, b"made"))
        poll_until(lambda: self.post("/probed/1").status == 200, "the probe's answer")
        self.assert_all_at_orders("/probed/1", f"/made?key={self.key}")

    def test_a_websocket_goes_there(self):
        self.orders.will(switches(echo))
        connection, head = open_websocket(self.client, "/orders/ws")
        with connection:
            self.assertEqual(head.status, 101)
            connection.send(b"hi")
            self.assertEqual(connection.read_exactly(2), b"hi")
            self.assertEqual(self.gateway.metric("oncekey_upstream_connections", upstream=self.orders.url), 1)
            self.assertEqual(self.gateway.metric("oncekey_upstream_connections", upstream=self.upstream.url), 0)
        self.assert_all_at_orders("/orders/ws")

    def test_times_are_counted_by_route_and_upstream(self):
        def calls(**labels):
            return self.gateway.metric("oncekey_upstream_seconds_count", **labels)

        before = calls(route="/orders/*", upstream=self.orders.url)
        others = calls(route="/*", upstream=self.upstream.url)
        self.post("/orders/1")
        self.assertEqual(calls(route="/orders/*", upstream=self.orders.url), before + 1)
        self.assertEqual(calls(route="/*", upstream=self.upstream.url), others)


class OneIsGoneTest(unittest.TestCase):
    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)

    def test_its_breaker_opens_and_the_others_go_on(self):
        gone = f"http://127.0.0.1:{free_port()}"
        routes = [{"path": "/gone/*", "upstream": gone}, {"path": "/*"}]
        with Gateway(self.upstream.url, routes, upstream_breaker=2, upstream_breaker_window="60s",
                     upstream_breaker_pause="60s") as gateway:
            client = gateway.client()
            self.assertEqual([client.post("/gone/1", key=fresh_key()).status for _ in range(4)], [503] * 4)
            self.assertEqual(client.get("/gone/1").status, 503)
            self.assertEqual(client.post("/charges", key=fresh_key()).status, 201)
            self.assertEqual(client.get("/charges").status, 201)
            for name, of_gone, of_other in (("oncekey_upstream_breaker_open", 1, 0),
                                            ("oncekey_upstream_breaker_refusals_total", 3, 0)):
                self.assertEqual(gateway.metric(name, upstream=gone), of_gone, name)
                self.assertEqual(gateway.metric(name, upstream=self.upstream.url), of_other, name)
            self.assertIn(f"upstream={gone}", gateway.wait_for_log("event=upstream_left_alone").replace('"', ""))

    def test_without_one_at_the_top_other_paths_are_not_found(self):
        gateway = Gateway(self.upstream.url, [{"path": "/orders/*", "upstream": self.upstream.url}])
        self.addCleanup(gateway.remove)
        del gateway.settings["upstream"]
        client = gateway.start().client()
        self.assertEqual(client.post("/orders/1", key=fresh_key()).status, 201)
        self.assertEqual(client.get("/orders/1").status, 201)
        unknown = client.get("/else")
        self.assertEqual((unknown.status, unknown.header("Content-Type")), (404, "application/problem+json"))
        self.assertIn("no upstream", unknown.json()["detail"])
        self.assertEqual(gateway.metric("oncekey_requests_total", decision="no_upstream"), 1)


if __name__ == "__main__":
    unittest.main()
