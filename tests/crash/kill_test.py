"""The gateway, killed with -9 at random moments under load and restarted: no promise is broken.

    kill_test.py [--rounds N] [--seed S] [--clients N]    exits 0 when the oracle found nothing
    kill_test.py --store memory: --expect-violations      the same with a store that forgets: the oracle must notice

Half of the keys are under a policy that holds (stripe-v1: at most one execution, ever), half under one that executes
again (classic: one more for every death of an owner). Clients remember every final answer, the upstream every
execution; oracle.py judges both. A seed replays the choices, though not the scheduling of the machine.
"""

import argparse
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from oracle import Answer, Execution, History, violations
from support.client import Client
from support.gateway import Gateway
from support.messages import Malformed
from support.upstream import Upstream, answers

# Short, so that abandoned keys settle within the run; long enough that a busy machine does not miss a renewal.
LEASE = "2s"
# How long keys may take to finish once the kills have stopped: some leases, on a slow machine.
SETTLING_SECONDS = 30.0
ROUTES = [
    {"path": "/hold/*", "policy": "stripe-v1", "lease": LEASE},
    {"path": "/again/*", "policy": "classic", "lease": LEASE},
]


class CountingUpstream:
    """Numbers its executions, tells the history of each, and takes a random moment for it."""

    def __init__(self, history, seed):
        self._history = history
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._number = 0
        self.upstream = Upstream().start()
        self.upstream.always(self._execute)

    def _execute(self, exchange):
        request = exchange.request
        with self._lock:
            self._number += 1
            number = self._number
            pause = self._random.choice((0, 0, 0.002, 0.02, 0.1))
        self._history.executed(request.key, Execution(time.monotonic(), number, request.fence))
        # Not a wait for anything: work takes time, and kills should fall into it.
        time.sleep(pause)
        answers(201, f"execution={number} key={request.key}")(exchange)

    def stop(self):
        self.upstream.stop()


class Clients:
    """Threads that use keys the way impatient clients do: new ones, the same again, and old ones to compare."""

    def __init__(self, history, count, seed):
        self._history = history
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.address = None
        self.unfinished = []
        self.finished = []
        self._made = 0
        self.requests = 0
        self.unexpected = []
        self._threads = [threading.Thread(target=self._work, args=(random.Random(seed * 1000 + number),), daemon=True)
                         for number in range(count)]

    def start(self):
        for thread in self._threads:
            thread.start()

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _work(self, choice):
        while not self._stop.is_set():
            try:
                self.send(self._pick(choice))
            except (OSError, Malformed):
                # Killed under us: the answer is unknown, which is what keys are for.
                self._stop.wait(0.01)

    def _pick(self, choice):
        with self._lock:
            dice = choice.random()
            if dice < 0.4 and self.unfinished:
                return choice.choice(self.unfinished)
            if dice < 0.6 and self.finished:
                return choice.choice(self.finished)
            self._made += 1
            key = f"{choice.choice(('hold', 'again'))}-{self._made}"
            self.unfinished.append(key)
            return key

    def send(self, key):
        self._history.sent(key, time.monotonic())
        path = f"/{key.split('-')[0]}/charge"
        response = Client(self.address).post(path, key=key, body=f'{{"key":"{key}"}}')
        self.requests += 1
        if response.status == 201:
            self._finish(key, Answer(time.monotonic(), response.body))
        elif is_indeterminate(response):
            self._finish(key, Answer(time.monotonic(), b"", indeterminate=True))
        elif response.status not in (409, 502, 503, 504):
            self.unexpected.append(f"{key}: an answer nobody expected: {response}")

    def _finish(self, key, answer):
        self._history.answered(key, answer)
        with self._lock:
            if key in self.unfinished:
                self.unfinished.remove(key)
                self.finished.append(key)

    def settle(self):
        """Asks for every unfinished key until it is finished or patience ends."""
        deadline = time.monotonic() + SETTLING_SECONDS
        while self.unfinished and time.monotonic() < deadline:
            for key in list(self.unfinished):
                self.send(key)
            time.sleep(0.1)

    def ask_again(self):
        for key in list(self.finished):
            self.send(key)


def is_indeterminate(response):
    """409, but neither Stripe's nor the problem format's word for "at work"."""
    at_work = (b"idempotency_key_in_use", b"in_progress")
    return response.status == 409 and not any(word in response.body for word in at_work)


def run(rounds, seed, clients, store):
    choice = random.Random(seed)
    history = History()
    upstream = CountingUpstream(history, seed)
    gateway = Gateway(upstream.upstream.url, ROUTES, store=store)
    crowd = Clients(history, clients, seed)
    try:
        gateway.start()
        crowd.address = gateway.address
        crowd.start()
        for _ in range(rounds):
            time.sleep(choice.uniform(0.05, 1.2))
            gateway.kill()
            history.killed(time.monotonic())
            gateway.check_sanitizers()
            gateway.start()
            crowd.address = gateway.address
        crowd.stop()
        crowd.settle()
        gateway.stop()
        gateway.start()
        crowd.address = gateway.address
        crowd.ask_again()
    finally:
        crowd.stop()
        gateway.remove()
        upstream.stop()
    return history, crowd


def main():
    parser = argparse.ArgumentParser(description="Kills the gateway under load and judges what was seen.")
    parser.add_argument("--rounds", type=int, default=12, help="how many kills (12)")
    parser.add_argument("--seed", type=int, default=None, help="replays the choices of an earlier run")
    parser.add_argument("--clients", type=int, default=6, help="client threads (6)")
    parser.add_argument("--store", default="rocksdb", choices=("rocksdb", "memory:"))
    parser.add_argument("--expect-violations", action="store_true", help="succeed only if the oracle found something")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}: {arguments.rounds} kills, {arguments.clients} clients, {arguments.store}", flush=True)

    history, crowd = run(arguments.rounds, seed, arguments.clients, arguments.store)
    found = crowd.unexpected + [
        violation for key in history.first_sent
        for violation in violations(history, key, may_execute_again=key.startswith("again"))]
    indeterminate = sum(any(answer.indeterminate for answer in answers_) for answers_ in history.answers.values())
    again = sum(len(executions) > 1 for executions in history.executions.values())
    print(f"{crowd.requests} answers, {len(history.first_sent)} keys, {indeterminate} held, "
          f"{again} executed more than once")
    for violation in found[:50]:
        print(f"VIOLATION {violation}")
    print(f"{len(found)} violations")
    if not crowd.finished:
        print("nothing was tested: no key ever finished")
        return 1
    return 0 if bool(found) == arguments.expect_violations else 1


if __name__ == "__main__":
    sys.exit(main())
