"""The base of tests of shared stores: a store with its server, one upstream, and two gateways, `self.here` and
`self.there`."""

import pathlib
import sys
import unittest

from support.cases import fresh_key
from support.gateway import Gateway
from support.upstream import Upstream, held
from support.waiting import Background, GaveUpWaiting, poll_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crash"))

from crowd import CountingUpstream, Crowd
from oracle import History, violations_of

# Short enough to wait for in a test, long enough that a sanitizer build on a busy machine does not miss a renewal.
SHORT_LEASE = "2s"
ROUTES = [
    {"path": "/hold/*", "policy": "stripe-v1", "lease": SHORT_LEASE},
    # Only news from the other gateway ends such a wait within a test's patience.
    {"path": "/wait/*", "policy": "classic", "lease": "60s", "wait": "60s"},
    {"path": "/brief/*", "policy": "classic", "lease": SHORT_LEASE},
    {"path": "/expiring/*", "policy": "classic", "lease": "1s", "upstream_timeout": "500ms",
     "retention": "1500ms"},
    {"path": "/*", "policy": "classic", "lease": "30s"},
]
# Leases that do not run out while connections are ended under load: then every key is executed once.
LOAD_ROUTES = [
    {"path": "/hold/*", "policy": "stripe-v1", "lease": "10s"},
    {"path": "/again/*", "policy": "classic", "lease": "10s"},
    *ROUTES[1:],  # the store remembers the routes of the other gateways: keys of theirs are found here too
]


class SharedStoreTest(unittest.TestCase):
    """Subclasses say `backend_type`; `through_proxy` puts the chaos proxy between gateways and store, and
    `url_settings` is what stands behind the question mark of its URL."""

    backend_type = None
    through_proxy = False
    url_settings = ""
    routes = ROUTES
    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.backend = cls.backend_type()
        cls.addClassCleanup(cls.backend.remove)
        cls.backend.start()
        cls.upstream = Upstream().start()
        cls.addClassCleanup(cls.upstream.stop)
        cls.here = cls.start_gateway()
        cls.there = cls.start_gateway()

    @classmethod
    def store_url(cls):
        url = cls.backend.proxied_url if cls.through_proxy else cls.backend.url
        return f"{url}?{cls.url_settings}" if cls.url_settings else url

    @classmethod
    def start_gateway(cls):
        gateway = Gateway(cls.upstream.url, cls.routes, store=cls.store_url(), **cls.settings)
        cls.addClassCleanup(gateway.remove)
        return gateway.start()

    def setUp(self):
        self.upstream.reset()
        self.key = fresh_key(self.id().rsplit(".", 1)[-1][:60])
        for gateway in (self.here, self.there):
            self.assertTrue(gateway.running, f"an earlier test has ended a gateway:\n{gateway.log}")
            self.wait_until_ready(gateway)

    # Verbs.

    def post(self, gateway, target="/charges", **options):
        options.setdefault("key", self.key)
        return gateway.client().post(target, **options)

    def post_in_background(self, gateway, target="/charges", **options):
        options.setdefault("key", self.key)
        return gateway.client().post_in_background(target, **options)

    def hold_at_upstream(self, then):
        gate = self.upstream.gate()
        self.upstream.will(held(gate, then))
        return gate

    def post_until_settled(self, gateway, target, **options):
        """Retries as a client would, while the answer is "at work" or an error on the way."""

        def settled():
            answer = self.post(gateway, target, **options)
            return answer if answer.status < 300 else None

        return poll_until(settled, "a settled answer", pause=0.1)

    @staticmethod
    def wait_until_ready(gateway):
        try:
            poll_until(lambda: gateway.admin.get("/readyz").status == 200, "the gateway to be ready")
        except GaveUpWaiting:
            answer = gateway.admin.get("/readyz").body.decode()
            raise GaveUpWaiting(f"not ready: {answer}\n{gateway.log[-3000:]}") from None

    @staticmethod
    def wait_until_not_ready(gateway):
        """The reason it gives."""

        def reason():
            answer = gateway.admin.get("/readyz")
            return answer.json()["reason"] if answer.status == 503 else None

        return poll_until(reason, "the gateway not to be ready")

    @staticmethod
    def wait_for_ticks(store):
        """Two gateways count each server's marker up about once a second; a backup is older by what they have counted
        since. After four counts both have counted and know of it."""
        before = store.ticks()
        poll_until(lambda: all(tick >= before.get(server, 0) + 4 for server, tick in store.ticks().items()),
                   "the markers to be counted up", pause=0.1)

    def under_load(self, trouble, *, clients=6, deaths=()):
        """Clients use both gateways while `trouble(crowd)` runs; afterwards the oracle has nothing to say.
        With no `deaths` (times at which an owner may have lost its lease) every key is executed at most once."""
        history = History()
        upstream = CountingUpstream(history, seed=1)
        gateways = [Gateway(upstream.upstream.url, LOAD_ROUTES, store=self.store_url()) for _ in range(2)]
        crowd = Crowd(history, clients, seed=1, run=self.key)
        try:
            crowd.addresses = [gateway.start().address for gateway in gateways]
            crowd.start()
            try:
                trouble(crowd)
                # A slow machine gets the time it needs: with few requests hardly anything would be tested.
                poll_until(lambda: len(crowd.finished) > 10, "enough requests")
            finally:
                crowd.stop()
            for time in deaths:
                history.killed(time)
            crowd.settle()
            crowd.ask_again()
        finally:
            upstream.stop()
            for gateway in gateways:
                gateway.remove()
        self.assertEqual(crowd.unexpected + violations_of(history), [])
        return crowd

    # Expectations.

    def assert_executed(self, count):
        self.assertEqual(self.upstream.executions(self.key), count, "executions at the upstream")

    def assert_replay_of(self, first, again):
        self.assertTrue(again.replayed, again)
        self.assertEqual((again.status, again.body), (first.status, first.body))

    def assert_first(self, response, status=201):
        self.assertEqual(response.status, status, response)
        self.assertFalse(response.has("Idempotent-Replayed"), response)

    def assert_store_unavailable(self, response):
        self.assertEqual(response.status, 503, response)
        value = response.header("Retry-After")
        self.assertTrue(value is not None and value.isdigit() and int(value) >= 1, response)

    @staticmethod
    def together(calls):
        """The results of calls made at the same time."""
        running = [Background(call) for call in calls]
        return [one.result() for one in running]
