"""The base of test classes: one upstream and one gateway serve all tests of a class."""

import itertools
import unittest

from support.gateway import Gateway
from support.upstream import Upstream, held

_numbers = itertools.count(1)


def fresh_key(prefix="key"):
    """A key no other test uses: the tests of a class share a store."""
    return f"{prefix}-{next(_numbers):04d}-0000"


class GatewayTest(unittest.TestCase):
    """Subclasses say `routes` (a list of [[route]] tables) and `settings` (everything else of the configuration)."""

    routes = [{"path": "/*", "policy": "classic"}]
    settings = {}
    store = "memory:"

    @classmethod
    def setUpClass(cls):
        cls.upstream = Upstream().start()
        cls.addClassCleanup(cls.upstream.stop)
        cls.gateway = Gateway(cls.upstream_url(), cls.routes, store=cls.store, **cls.settings)
        cls.addClassCleanup(cls.gateway.remove)
        cls.gateway.start()
        cls.client = cls.gateway.client()

    @classmethod
    def upstream_url(cls):
        return cls.upstream.url

    def setUp(self):
        self.upstream.reset()
        self.key = fresh_key()

    # Verbs.

    def post(self, target="/charges", **options):
        """As alice, with the test's own key unless told otherwise."""
        options.setdefault("key", self.key)
        return self.client.post(target, **options)

    def post_in_background(self, target="/charges", **options):
        options.setdefault("key", self.key)
        return self.client.post_in_background(target, **options)

    def hold_at_upstream(self, then):
        """The next request is held at the upstream until the returned gate is opened."""
        gate = self.upstream.gate()
        self.upstream.will(held(gate, then))
        return gate

    # Expectations.

    def assert_executed(self, count):
        self.assertEqual(self.upstream.executions(), count, "executions at the upstream")

    def assert_replay_of(self, first, again):
        self.assertTrue(again.replayed, again)
        self.assertEqual((again.status, again.body), (first.status, first.body))

    def assert_first(self, response, status=201):
        self.assertEqual(response.status, status, response)
        self.assertFalse(response.has("Idempotent-Replayed"), response)

    def assert_problem(self, response, status, code):
        """The gateway's own error in problem+json, of the stable type that ends in `code`."""
        self.assertEqual(response.status, status, response)
        self.assertEqual(response.header("Content-Type"), "application/problem+json")
        problem = response.json()
        self.assertEqual(problem["status"], status)
        self.assertTrue(problem["type"].endswith(":" + code), problem)
        self.assertTrue(problem["title"] and problem["detail"], problem)
        return problem

    def assert_retry_after(self, response):
        value = response.header("Retry-After")
        self.assertIsNotNone(value, response)
        self.assertTrue(value.isdigit() and int(value) >= 1, value)
