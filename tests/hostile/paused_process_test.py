"""A process that is paused for longer than its leases (SIGSTOP, a suspended machine) executes nothing twice: its owners
are alive, and it knows so. Clients retry meanwhile, and their retries are in the queue when it goes on."""

import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.backends import PostgresBackend, RedisBackend
from support.cases import fresh_key
from support.gateway import Gateway
from support.upstream import Upstream, held, numbers_its_answers

LEASE = "1s"
PAUSE_SECONDS = 1.6  # what the test is about: longer than the lease
KEYS = 10
RETRIES = 3
PLAIN, WAIT, HOLD = PATHS = ("/charges", "/wait/charges", "/hold/charges")
ROUTES = [{"path": "/hold/*", "policy": "stripe-v1", "lease": LEASE},
          {"path": "/wait/*", "policy": "classic", "lease": LEASE, "wait": "20s"},
          {"path": "/*", "policy": "classic", "lease": LEASE}]


class PausedProcess:
    store = None

    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)
        self.gateway = Gateway(self.upstream.url, ROUTES, store=self.store_url(),
                               threads=3)  # retries and owners are on different ones
        self.addCleanup(self.gateway.remove)
        self.gateway.start()
        self.client = self.gateway.client()

    def store_url(self):
        return self.store

    def pause_with_calls_in_flight(self):
        """By path: the owners' answers by key, and those of the retries that waited for the process to go on."""
        keys = {path: [fresh_key("paused") for _ in range(KEYS)] for path in PATHS}
        gate = self.upstream.gate()
        self.upstream.always(held(gate, numbers_its_answers()))
        owners = {path: {key: self.client.post_in_background(path, key=key) for key in keys[path]} for path in PATHS}
        self.upstream.wait_for_executions(KEYS * len(PATHS))
        self.gateway.pause()
        connections = {path: [] for path in PATHS}
        for path in PATHS:
            for key in keys[path] * RETRIES:
                connection = self.client.connect()
                self.addCleanup(connection.socket.close)
                connection.send(self.client.request_bytes("POST", path, key=key, body=b'{"amount":100}'))
                connections[path].append((key, connection))
        time.sleep(PAUSE_SECONDS)
        self.gateway.resume()
        retries = {}
        for path in sorted(PATHS, key=lambda path: path == WAIT):  # those that wait are answered after the owners
            if path == WAIT:
                gate.open()
            retries[path] = [(key, connection.read_response()) for key, connection in connections[path]]
        return {path: {key: owner.result() for key, owner in owners[path].items()} for path in PATHS}, retries

    def assert_executed_once_each(self, path, answers):
        executed = {key: self.upstream.executions(key) for key in answers}
        self.assertEqual(set(executed.values()), {1}, executed)
        self.assertEqual({answer.status for answer in answers.values()}, {201}, "the owners' answers")
        for key, first in answers.items():
            again = self.client.post(path, key=key)
            self.assertTrue(again.replayed, again)
            self.assertEqual(again.body, first.body)

    def test_nothing_is_executed_twice(self):
        answers, retries = self.pause_with_calls_in_flight()
        with self.subTest("retries find the owner at work"):
            self.assertEqual({answer.status for _, answer in retries[PLAIN]}, {409})
        with self.subTest("retries that may wait get the owner's answer"):
            for key, answer in retries[WAIT]:
                self.assertTrue(answer.replayed, answer)
                self.assertEqual(answer.body, answers[WAIT][key].body)
        with self.subTest("retries do not hold what an owner works on"):
            for _, answer in retries[HOLD]:
                self.assertEqual(answer.json()["error"]["code"], "idempotency_key_in_use", answer)
        for path in PATHS:
            with self.subTest("executed once", path=path):
                self.assert_executed_once_each(path, answers[path])
        for event in ("takeover", "lease_lost", "held"):
            self.assertNotIn(f"event={event}", self.gateway.log)


class OnMemory(PausedProcess, unittest.TestCase):
    store = "memory:"


class OnRocksdb(PausedProcess, unittest.TestCase):
    store = "journal"


class OnAServer(PausedProcess):
    backend_type = None

    @classmethod
    def setUpClass(cls):
        cls.backend = cls.backend_type()
        cls.addClassCleanup(cls.backend.remove)
        cls.backend.start()

    def store_url(self):
        return self.backend.url


class OnRedis(OnAServer, unittest.TestCase):
    backend_type = RedisBackend


class OnPostgres(OnAServer, unittest.TestCase):
    backend_type = PostgresBackend


if __name__ == "__main__":
    unittest.main()
