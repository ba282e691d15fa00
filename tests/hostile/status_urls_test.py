"""Status URLs: they show what the same request would be answered with, and nothing of other hosts and routes."""

import base64
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest
from support.client import Client
from support.upstream import answers
from support.waiting import poll_until

ASYNC = [("Prefer", "respond-async")]


class StatusUrlTest(GatewayTest):
    routes = [{"path": "/reports", "policy": "stripe-v1", "respond_async": True},
              {"path": "/v1/*", "policy": "stripe-v1"}]

    def client_at(self, host):
        return Client(self.gateway.address, "shared-credential", host=host)

    def test_another_virtual_host_sees_nothing(self):
        self.upstream.will(answers(201, b"of tenant a"))
        accepted = self.client_at("tenant-a.example").post("/reports", key=self.key, headers=ASYNC)
        url = accepted.header("Location")
        of_a = poll_until(lambda: (lambda found: found if found.status == 201 else None)(
            self.client_at("tenant-a.example").get(url)), "the answer")
        self.assertEqual(of_a.body, b"of tenant a")
        self.assertEqual(self.client_at("tenant-b.example").get(url).status, 404)

    def test_a_record_of_another_route_is_not_shown(self):
        self.upstream.will(answers(201, b"made up for one status URL"))
        client = self.client_at("api.test")
        url = client.post("/reports", key=self.key, headers=ASYNC).header("Location")
        other = self.key + "-v1"
        self.upstream.will(answers(201, b"a charge"))
        self.assertEqual(client.post("/v1/charges", key=other).status, 201)
        # Under this policy the path is no part of the record's name: only the route tells the two apart.
        crafted = self.url_of("POST", "/reports", other)
        self.assertEqual(self.url_of("POST", "/reports", self.key), url)
        self.assertEqual(client.get(crafted).status, 404)

    @staticmethod
    def url_of(method, path, key):
        name = base64.urlsafe_b64encode(f"{method} {path} {key}".encode()).decode().rstrip("=")
        return "/.well-known/oncekey/operations/" + name


if __name__ == "__main__":
    unittest.main()
