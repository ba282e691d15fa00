"""Requests that the API turns away (401, a status that is not kept) leave nothing in the store: an anonymous caller who
invents a credential and a key for each cannot fill it."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest
from support.upstream import answers, numbers_its_answers
from support.waiting import Background

REQUESTS = 6000 if os.environ.get("ONCEKEY_SLOW_TESTS") else 1500
ROUND = 1500
CONNECTIONS = 6
LONG_PATH = "/charges/" + "x" * 900


class ReleasedClaims(GatewayTest):
    store = "journal"

    def send_away(self, count):
        """So many requests of callers and keys that nobody has seen before; each is answered 401."""
        per_connection = count // CONNECTIONS

        def send(name):
            with self.client.connect() as connection:
                for number in range(per_connection):
                    answer = self.client.request(
                        "POST", LONG_PATH, connection=connection, key=f"{name}-{number}" + "k" * 200, body=b"{}",
                        authorization=False, headers=[("Authorization", f"Bearer nobody-{name}-{number}")])
                    self.assertEqual(answer.status, 401)

        for sender in [Background(lambda name=self.key + str(index): send(name)) for index in range(CONNECTIONS)]:
            sender.result(240)

    def records(self):
        return self.gateway.metric("oncekey_store_records")

    def test_they_leave_no_record_and_keep_no_other_client_out(self):
        kept = self.post(key="a-victim-0001")
        self.upstream.always(answers(401, b"no"))
        self.send_away(REQUESTS)
        self.assert_executed(1 + REQUESTS)
        self.assertEqual(len(self.gateway.admin.get("/api/keys?limit=1000").json()["keys"]), 1)
        # The number is an estimate of RocksDB's.
        self.assertLess(self.records(), 100)
        self.upstream.always(numbers_its_answers())
        self.assert_replay_of(kept, self.post(key="a-victim-0001"))
        self.assert_first(self.post())

    def test_the_store_does_not_grow_with_them(self):
        self.upstream.always(answers(401, b"no"))
        self.send_away(ROUND)
        self.restart()  # what is in memory goes to files, as it does in time
        after_some = self.gateway.metric("oncekey_store_bytes")
        self.send_away(ROUND)
        self.restart()
        grown = self.gateway.metric("oncekey_store_bytes") - after_some
        self.assertLess(grown / ROUND, 150, "bytes a request that was turned away")

    def restart(self):
        self.gateway.stop()
        self.gateway.start()
        type(self).client = self.gateway.client()


if __name__ == "__main__":
    unittest.main()
