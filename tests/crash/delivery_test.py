"""Kills the gateway with SIGKILL, and the receiving API, while webhooks come in and are delivered.

    delivery_test.py [--store journal|postgres|redis|cluster|memory] [--rounds N] [--expect-violations]

Senders repeat every event until it is acknowledged, as real ones do. What must hold, whatever was killed when:

  nothing lost    every event that was acknowledged reaches the receiver
  once in effect  every delivery of an event carries the same key and body, so that the receiver handles it once
  one at a time   an event is never at the receiver twice at the same moment
  in order        events of one order (order_by) come for the first time in the order they were sent
"""

import argparse
import collections
import json
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support import hooks
from support.backends import ClusterBackend, PostgresBackend, RedisBackend
from support.gateway import Gateway
from support.upstream import Upstream, answers
from support.waiting import GaveUpWaiting, poll_until

BACKENDS = {"postgres": PostgresBackend, "redis": RedisBackend, "cluster": ClusterBackend}
SENDERS = 4
TIMEOUT_SECONDS = 2
ORDERS = 3  # of each sender


class Receiver(Upstream):
    """Handles an event once, takes a moment for each, and notices two deliveries of one event at the same time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.bodies = collections.defaultdict(set)
        self.present = collections.Counter()
        self.together = set()
        self.firsts = []  # keys, as they came for the first time
        super().__init__()

    def reset(self):
        super().reset()
        self.always(self.handle)

    def handle(self, exchange):
        request = exchange.request
        with self.lock:
            if request.key not in self.present:
                self.firsts.append(request.key)
            self.present[request.key] += 1
            if self.present[request.key] > 1:
                self.together.add(request.key)
        time.sleep(random.uniform(0, 0.05))
        with self.lock:
            self.bodies[request.key].add(bytes(request.body))
            self.present[request.key] -= 1
        answers(200)(exchange)


def out_of_order(firsts):
    """The keys that came before one that was sent earlier, to the same order."""
    newest, late = {}, set()
    for key in firsts:
        sender, number = (int(part) for part in key.removeprefix("evt_").split("_"))
        order = sender, number % ORDERS
        if number < newest.get(order, -1):
            late.add(key)
        newest[order] = max(number, newest.get(order, -1))
    return late


class Sender(threading.Thread):
    """Sends events one after another, each until somebody has said that it is written down."""

    def __init__(self, number, gateway, stop):
        super().__init__(daemon=True)
        self.number, self.gateway, self.stop = number, gateway, stop
        self.acknowledged = []

    def run(self):
        count = 0
        while not self.stop.is_set():
            event = f"evt_{self.number}_{count}"
            body = json.dumps({"order": f"{self.number}_{count % ORDERS}", "event": event}).encode()
            count += 1
            while not self.stop.is_set():
                if self.send(event, body) == 200:
                    self.acknowledged.append(event)
                    break
                time.sleep(0.02)

    def send(self, event, body):
        signed, headers = hooks.github(event, body)
        try:
            return self.gateway.client().post("/hooks/github", body=signed, headers=headers, authorization=False).status
        except Exception:  # whatever a killed gateway leaves of a connection: not an acknowledgement
            return 0


def run(store, rounds):
    backend = BACKENDS[store]().start() if store in BACKENDS else None
    receiver = Receiver().start()
    table = hooks.hook("github", f"{receiver.url}/events", timeout=f"{TIMEOUT_SECONDS}s", concurrency=8,
                       order_by="/order")
    gateway = Gateway(receiver.url, webhook=[table], store=backend.url if backend else
                      "memory:" if store == "memory" else "journal")
    stop = threading.Event()
    senders = []
    try:
        gateway.start()
        senders = [Sender(number, gateway, stop) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        for number in range(rounds):
            time.sleep(random.uniform(0.3, 1.2))
            if number % 3 == 2:
                receiver.stop()
                time.sleep(random.uniform(0.1, 0.5))
                receiver.start()
            else:
                gateway.kill()
                gateway.start()
        stop.set()
        for sender in senders:
            sender.join()
        acknowledged = {event for sender in senders for event in sender.acknowledged}

        def missing():
            with receiver.lock:
                return acknowledged - {key for key, bodies in receiver.bodies.items() if bodies}

        def undelivered():
            return [job for state in ("waiting", "taken")
                    for job in gateway.admin.get(f"/api/jobs?state={state}&limit=1").json()["jobs"]]

        left = None
        while len(missing()) != left and undelivered():  # a queue that gets shorter is not lost
            left = len(missing())
            try:
                # A lease of a killed gateway is over after twice the time-out at most. What the gateway still knows of
                # may come; what it has delivered, the receiver has noted by then.
                poll_until(lambda: not missing() or not undelivered(), "every event", seconds=10 * TIMEOUT_SECONDS + 10,
                           pause=0.1)
            except GaveUpWaiting:
                pass
        lost = missing()
        with receiver.lock:
            altered = {key for key, bodies in receiver.bodies.items() if len(bodies) > 1}
            deliveries = sum(1 for request in receiver.received if request.complete)
            together = set(receiver.together)
            late = out_of_order(receiver.firsts)
        print(f"{store}: {rounds} kills, {len(acknowledged)} events acknowledged, {deliveries} deliveries since the last "
              f"reset, {len(lost)} lost, {len(altered)} altered, {len(together)} twice at a time, {len(late)} out of order")
        return len(lost) + len(altered) + len(together) + len(late), len(acknowledged)
    finally:
        stop.set()
        gateway.kill()
        receiver.stop()
        gateway.remove()
        if backend:
            backend.remove()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="journal")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--expect-violations", action="store_true")
    options = parser.parse_args()
    violations, acknowledged = run(options.store, options.rounds)
    if acknowledged < SENDERS:
        sys.exit("too few events came through to prove anything")
    if bool(violations) != options.expect_violations:
        sys.exit("events were lost, altered or doubled" if violations else "a store that forgets was not noticed")


if __name__ == "__main__":
    main()
