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

    def pause_with_calls_in_flight(self, path):
        """The answers of the owners and those of the retries that waited for the process to go on, by key."""
        keys = [fresh_key("paused") for _ in range(KEYS)]
        gate = self.upstream.gate()
        self.upstream.always(held(gate, numbers_its_answers()))
        owners = {key: self.client.post_in_background(path, key=key) for key in keys}
        self.upstream.wait_for_executions(KEYS)
        self.gateway.pause()
        retries = {key: [] for key in keys}
        connections = []
        for key in keys * RETRIES:
            connection = self.client.connect()
            connection.send(self.client.request_bytes("POST", path, key=key, body=b'{"amount":100}'))
            connections.append((key, connection))
        time.sleep(PAUSE_SECONDS)
        self.gateway.resume()
        if not path.startswith("/wait/"):
            for key, connection in connections:
                retries[key].append(connection.read_response())
        gate.open()
        if path.startswith("/wait/"):
            for key, connection in connections:
                retries[key].append(connection.read_response())
        for _, connection in connections:
            connection.socket.close()
        return {key: owner.result() for key, owner in owners.items()}, retries

    def assert_executed_once_each(self, answers):
        executed = {key: self.upstream.executions(key) for key in answers}
        self.assertEqual(set(executed.values()), {1}, executed)
        self.assertEqual({answer.status for answer in answers.values()}, {201}, "the owners' answers")
        self.assertNotIn("event=takeover", self.gateway.log)
        self.assertNotIn("event=lease_lost", self.gateway.log)
        for key, first in answers.items():
            again = self.client.post(self.path, key=key)
            self.assertTrue(again.replayed, again)
            self.assertEqual(again.body, first.body)

    def test_retries_find_the_owner_at_work(self):
        self.path = "/charges"
        answers, retries = self.pause_with_calls_in_flight(self.path)
        self.assertEqual({answer.status for of_key in retries.values() for answer in of_key}, {409})
        self.assert_executed_once_each(answers)

    def test_retries_that_may_wait_get_the_owners_answer(self):
        self.path = "/wait/charges"
        answers, retries = self.pause_with_calls_in_flight(self.path)
        for key, of_key in retries.items():
            for answer in of_key:
                self.assertTrue(answer.replayed, answer)
                self.assertEqual(answer.body, answers[key].body)
        self.assert_executed_once_each(answers)

    def test_retries_do_not_hold_what_an_owner_works_on(self):
        self.path = "/hold/charges"
        answers, retries = self.pause_with_calls_in_flight(self.path)
        for of_key in retries.values():
            for answer in of_key:
                self.assertEqual(answer.json()["error"]["code"], "idempotency_key_in_use", answer)
        self.assert_executed_once_each(answers)
        self.assertNotIn("event=held", self.gateway.log)


class OnMemory(PausedProcess, unittest.TestCase):
    store = "memory:"


class OnRocksdb(PausedProcess, unittest.TestCase):
    store = "rocksdb"


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
