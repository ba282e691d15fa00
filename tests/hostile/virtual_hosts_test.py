"""One gateway in front of several host names: no name gets the answer of another, and no work is lost or done twice."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest
from support.client import Client
from support.gateway import Gateway
from support.upstream import answers

A, B, C = "tenant-a.example", "tenant-b.example", "tenant-c.example"


def tells_its_host(exchange):
    answers(201, json.dumps({"execution": exchange.number, "host": exchange.request.header("Host")}))(exchange)


class HostTest(GatewayTest):
    routes = [{"path": "/charges"},
              {"path": "/keyless", "key_from": ["header:Idempotency-Key", "fingerprint"], "window": "5m"}]

    def setUp(self):
        super().setUp()
        self.upstream.always(tells_its_host)

    def at(self, host, target="/charges", **options):
        options.setdefault("key", self.key)
        return Client(self.gateway.address, host=host).post(target, **options)


class VirtualHostsTest(HostTest):
    def test_a_key_used_again_under_another_name_is_a_mismatch(self):
        first = self.at(A)
        self.assert_first(first)
        self.assert_problem(self.at(B), 422, "mismatch")
        self.assert_replay_of(first, self.at(A))
        self.assert_executed(1)

    def test_the_name_of_an_absolute_target_counts_and_not_that_of_the_host_field(self):
        first = self.at(A)
        self.assert_problem(self.at(A, f"http://{C}/charges"), 422, "mismatch")
        self.assert_replay_of(first, self.at(B, f"http://{A}/charges"))
        self.assert_executed(1)

    def test_one_name_has_many_spellings(self):
        first = self.at(A)
        for spelling in (A.upper(), f"{A}.", f"{A}:8443", "Tenant-A.example.:80"):
            with self.subTest(host=spelling):
                self.assert_replay_of(first, self.at(spelling))
        self.assert_executed(1)

    def test_a_name_is_compared_while_the_first_request_is_at_work(self):
        gate = self.hold_at_upstream(tells_its_host)
        first = self.post_in_background(headers=[], target="/charges")
        gate.wait_for_arrival()
        self.assert_problem(self.at(B), 422, "mismatch")
        gate.open()
        self.assertEqual(first.result().status, 201)
        self.assert_executed(1)

    def test_requests_without_keys_are_alike_under_one_name_only(self):
        first = self.at(A, "/keyless", key=None)
        self.assert_replay_of(first, self.at(A, "/keyless", key=None))
        second = self.at(B, "/keyless", key=None)
        self.assert_first(second)
        self.assertEqual(second.json()["host"], B)


class HostSettingsTest(HostTest):
    routes = [{"path": "/one-api", "ignore_host": True},
              {"path": "/tenants", "scope": ["header:Authorization", "host"]}]

    def test_one_api_under_several_names(self):
        first = self.at(A, "/one-api")
        self.assert_replay_of(first, self.at(B, "/one-api"))
        self.assert_executed(1)

    def test_tenants_by_name_have_keys_of_their_own(self):
        first, second = self.at(A, "/tenants"), self.at(B, "/tenants")
        self.assert_first(first)
        self.assert_first(second)
        self.assertEqual((first.json()["host"], second.json()["host"]), (A, B))
        self.assert_replay_of(first, self.at(A.upper(), "/tenants"))
        self.assert_executed(2)


class ScopeCheckTest(unittest.TestCase):
    def test_what_contradicts_itself_is_refused_at_start(self):
        for route, word in (({"scope": ["header:Authorization", "host"], "ignore_host": True}, "contradict"),
                            ({"scope": "host"}, "every caller of a host name"),
                            ({"scope": ["header:Authorization", "header:Host"]}, 'write "host"')):
            with self.subTest(route=route):
                gateway = Gateway("http://127.0.0.1:9", [{"path": "/x", **route}])
                self.addCleanup(gateway.remove)
                self.assertNotEqual(gateway.start_expecting_refusal(), 0)
                self.assertIn(word, gateway.log)


if __name__ == "__main__":
    unittest.main()
