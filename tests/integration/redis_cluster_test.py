"""What is a cluster's own: primaries that fail over, slots that move, nodes that join."""

import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.backends import ClusterBackend
from support.cases import fresh_key
from support.gateway import Gateway, run_cli
from support.servers import RedisCluster
from support.shared_cases import ROUTES, SharedStoreTest
from support.waiting import poll_until


class UnproxiedCluster(ClusterBackend):
    def __init__(self):
        self.server = RedisCluster()


class ClusterTest(SharedStoreTest):
    backend_type = UnproxiedCluster

    @property
    def cluster(self):
        return self.backend.server

    def test_slots_moved_under_load_change_nothing(self):
        def trouble(_):
            source, target = self.cluster.primaries()[:2]
            self.cluster.move_slots(source, target, self.cluster.slots_of(source)[:60], pause_seconds=0.01)
            slots = self.cluster.slots_of(target)[:60]
            self.cluster.move_slots(target, source, slots)

        self.under_load(trouble)

    def test_a_slot_on_its_way_is_asked_for_where_it_is(self):
        """The records are at the target already, and the source still owns the slot."""
        first, source, target, name, slot = self.record_on_its_way()
        source.ask("MIGRATE", "127.0.0.1", target.port, name, 0, 5000)
        # Half of the slot here and half there: Redis answers TRYAGAIN, and nobody executes meanwhile.
        answer = self.post(self.there)
        self.assertTrue(answer.replayed or answer.status == 503, answer)
        for rest in source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000):
            source.ask("MIGRATE", "127.0.0.1", target.port, rest, 0, 5000)
        self.assert_replay_of(first, self.post_until_settled(self.there, "/charges"))
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        with Gateway(self.upstream.url, ROUTES, store=self.store_url()) as gateway:
            self.assert_replay_of(first, self.post(gateway))
        self.assert_executed(1)

    def record_on_its_way(self):
        """A completed record whose slot is about to move: the answer, both nodes, its name in Redis, and the slot."""
        before = self.names_of_records()
        first = self.post(self.here)
        (name, source), = [(name, node) for name, node in self.names_of_records().items() if name not in before]
        target = next(node for node in self.cluster.primaries() if node is not source)
        slot = source.ask("CLUSTER", "KEYSLOT", name)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        return first, source, target, name, slot

    def names_of_records(self):
        """Every key there is, with the primary that has it."""
        return {name: node for node in self.cluster.primaries() for name in node.ask("KEYS", "*")}

    def test_a_node_that_joins_under_load_is_used(self):
        def trouble(_):
            joined = self.cluster.add_primary()
            for source in [node for node in self.cluster.primaries() if node is not joined]:
                self.cluster.move_slots(source, joined, self.cluster.slots_of(source)[:30])
            self.moved = self.cluster.slots_of(joined)

        self.under_load(trouble)
        self.assertEqual(len(self.moved), 90)

    def test_a_switch_of_primaries_under_load_loses_nothing(self):
        self.under_load(lambda _: self.cluster.switch_over(self.cluster.primaries()[0]))

    def test_scripts_flushed_everywhere_are_loaded_again(self):
        first = self.post(self.here)
        self.cluster.on_all("SCRIPT", "FLUSH")
        self.assert_replay_of(first, self.post(self.there))
        for _ in range(6):
            self.assert_first(self.post(self.here, key=fresh_key()))

    def test_one_emptied_primary_is_lost_memory(self):
        with RedisCluster() as cluster:
            gateways = [Gateway(self.upstream.url, ROUTES, store=cluster.url) for _ in range(2)]
            for gateway in gateways:
                self.addCleanup(gateway.remove)
                gateway.start()
            keys = [fresh_key("emptied") for _ in range(12)]
            for key in keys:
                self.assert_first(self.post(gateways[0], key=key))
            self.wait_for_ticks(cluster)
            cluster.primaries()[1].ask("FLUSHALL")
            for key in keys:
                self.post(gateways[1], key=key)
            for key in keys:
                self.assertEqual(self.upstream.executions(key), 1)
            poll_until(lambda: "accept-loss" in self.wait_until_not_ready(gateways[1]), "the loss to be reported")
            self.assertEqual(run_cli("store", "accept-loss", "--store", cluster.url, "--yes").returncode, 0)
            for gateway in gateways:
                self.wait_until_ready(gateway)

    def test_a_replica_that_lagged_behind_and_took_over_executes_nothing(self):
        with RedisCluster() as cluster:
            gateways = [Gateway(self.upstream.url, ROUTES, store=cluster.url) for _ in range(2)]
            for gateway in gateways:
                self.addCleanup(gateway.remove)
                gateway.start()
            primary = cluster.primaries()[0]
            replica = cluster.replicas_of(primary)[0]
            replica.configure("masterauth", "wrong")  # it can no longer follow
            primary.ask("CLIENT", "KILL", "TYPE", "replica")
            keys = [fresh_key("behind") for _ in range(48)]
            for key in keys:
                self.assert_first(self.post(gateways[0], key=key))
            self.wait_for_ticks(cluster)
            replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
            # All at once: they wait for the new primary to be connected, and that is when the loss is noticed.
            for waiting in [self.post_in_background(gateways[1], key=key) for key in keys]:
                waiting.result()
            self.assertEqual([key for key in keys if self.upstream.executions(key) > 1], [])
            self.assertIn("accept-loss", self.wait_until_not_ready(gateways[1]))

    def test_a_server_that_evicts_is_refused_wherever_it_is(self):
        node = self.cluster.primaries()[1]
        node.configure("maxmemory-policy", "allkeys-lru")
        try:
            gateway = Gateway(self.upstream.url, ROUTES, store=self.store_url())
            self.addCleanup(gateway.remove)
            self.assertNotEqual(gateway.start_expecting_refusal(), 0)
            self.assertIn("allkeys-lru", gateway.log)
            self.wait_until_not_ready(self.here)
        finally:
            node.configure("maxmemory-policy", "noeviction")
        self.wait_until_ready(self.here)


class FailoverTest(SharedStoreTest):
    """A primary is killed under load. With `wait=1` a write counts when its replica has it, so nothing is lost."""

    backend_type = UnproxiedCluster
    url_settings = "wait=1"

    def test_a_killed_primary_is_replaced_and_nothing_that_counted_is_lost(self):
        killed = []

        def trouble(crowd):
            crowd.wait_for_answers(20)
            primary = self.backend.server.primaries()[0]
            killed.append(time.monotonic())
            self.backend.server.fail_over(primary)
            # Its own replica comes back, or no write of these slots counts any more.
            primary.start()
            self.backend.server.wait_until_ok()
            crowd.wait_for_answers(20)

        # An owner whose store is away for longer than its lease may be taken over.
        self.under_load(trouble, deaths=killed)

    def test_without_enough_replicas_nothing_is_executed(self):
        cluster = self.backend.server
        replicas = [node for node in cluster.nodes if not node.is_primary]
        first = self.post(self.here)
        for node in replicas:
            node.kill()
        try:
            self.assert_store_unavailable(self.post(self.here, key=fresh_key()))
            self.assert_replay_of(first, self.post(self.here))
        finally:
            for node in replicas:
                node.start()
            cluster.wait_until_ok()
        self.wait_until_ready(self.here)
        self.assert_first(self.post_until_settled(self.here, "/charges", key=fresh_key()))


class ClusterWithoutReplicas(ClusterBackend):
    def __init__(self):
        # No replica takes over. With a time-out of a second and a half the nodes of a busy machine take a second primary
        # for dead too, and the third one, which then sees no majority, refuses its keys.
        self.server = RedisCluster(replicas=0, cluster_require_full_coverage="no", cluster_node_timeout=15000)


class DeadPrimaryTest(SharedStoreTest):
    """A primary dies and no replica takes its place: its own keys are refused, and no others."""

    backend_type = ClusterWithoutReplicas
    # A call that waits for a dead server would wait for longer than the test's client does.
    url_settings = "call_timeout=60s"

    def test_a_dead_primary_stops_its_own_keys_alone(self):
        # The first one has what the whole store shares.
        for number in (0, 1):
            with self.subTest(primary=number):
                dead = self.backend.server.nodes[number]
                before = set(dead.ask("KEYS", "*"))
                dead.kill()
                keys = [fresh_key("dead") for _ in range(60)]
                answers = {key: self.post(self.here, key=key) for key in keys}
                refused = [key for key in keys if answers[key].status == 503]
                self.assertTrue(0 < len(refused) < len(keys), f"{len(refused)} of {len(keys)} keys were refused")
                for key in keys:
                    if key in refused:
                        self.assert_store_unavailable(answers[key])
                    else:
                        self.assert_first(answers[key])
                        self.assert_replay_of(answers[key], self.post(self.there, key=key))
                self.assertEqual(self.here.admin.get("/readyz").status, 200)
                dead.start()
                self.backend.server.wait_until_ok()
                for key in refused:
                    self.assert_first(self.post_until_settled(self.there, "/charges", key=key))
                    self.assertEqual(self.upstream.executions(key), 1)
                self.assertEqual(len(set(dead.ask("KEYS", "*")) - before), len(refused),
                                 "all keys of the dead primary were refused, and no others")

    def test_a_gateway_starts_while_a_primary_is_dead(self):
        dead = self.backend.server.nodes[2]
        dead.kill()
        try:
            with Gateway(self.upstream.url, ROUTES, store=self.store_url()) as gateway:
                answers = [self.post(gateway, key=fresh_key("without")).status for _ in range(60)]
                self.assertEqual(set(answers), {201, 503})
        finally:
            dead.start()
            self.backend.server.wait_until_ok()


if __name__ == "__main__":
    unittest.main()
