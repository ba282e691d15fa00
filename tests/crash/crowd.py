"""Load whose every answer and every execution is remembered for the oracle.

Keys that begin with `hold` go to /hold, under a policy that never executes twice; those that begin with `again` to
/again, under one that executes again when an owner died.
"""

import hashlib
import random
import threading
import time

from oracle import Answer, Execution
from support.client import Client
from support.messages import Malformed
from support.upstream import Upstream, answers
from support.waiting import poll_until

# How long it may take until the next key finishes once the trouble has stopped: some leases, on a slow machine.
SETTLING_SECONDS = 30.0


class CountingUpstream:
    """Numbers its executions, tells the history of each, and takes a random moment for it."""

    def __init__(self, history, seed, padding_bytes=(0,)):
        """Each answer is longer by one of `padding_bytes`."""
        self._history = history
        self._random = random.Random(seed)
        self._padding_bytes = padding_bytes
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
            padding = self._random.choice(self._padding_bytes)
        self._history.executed(request.key, Execution(time.monotonic(), number, request.fence))
        # Not a wait for anything: work takes time, and kills should fall into it.
        time.sleep(pause)
        padded = request.key + f" {request.key}" * (padding // len(request.key))
        answers(201, f"execution={number} key={padded}")(exchange)

    def stop(self):
        self.upstream.stop()


class Crowd:
    """Threads that use keys the way impatient clients do: new ones, the same again, and old ones to compare."""

    def __init__(self, history, count, seed, run="k"):
        """`run` makes the keys different from those of other crowds on the same store."""
        self._history = history
        self._run = run
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.addresses = []  # the crowd waits while there is none
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

    def wait_for_answers(self, count):
        """Until so many more requests have been answered."""
        enough = self.requests + count
        poll_until(lambda: self.requests >= enough, "the crowd to get answers")

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _work(self, choice):
        while not self._stop.is_set():
            addresses = self.addresses
            if not addresses:
                self._stop.wait(0.01)
                continue
            try:
                self.send(self._pick(choice), choice.choice(addresses))
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
            key = f"{choice.choice(('hold', 'again'))}-{self._run}-{self._made}"
            self.unfinished.append(key)
            return key

    def send(self, key, address):
        self._history.sent(key, time.monotonic())
        path = f"/{key.split('-')[0]}/charge"
        response = Client(address).post(path, key=key, body=f'{{"key":"{key}"}}')
        self.requests += 1
        if response.status == 201:
            self._finish(key, Answer(time.monotonic(), shortened(response.body)))
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
        """Asks for every unfinished key until it is finished or patience ends: none has finished for that long, nor in
        a whole round after that. A trouble that lasts leaves many keys, and one round over them may take longer."""
        finished_at = time.monotonic()
        while self.unfinished:
            began, before = time.monotonic(), len(self.unfinished)
            for number, key in enumerate(list(self.unfinished)):
                self.send(key, self.addresses[number % len(self.addresses)])
            if len(self.unfinished) < before:
                finished_at = time.monotonic()
            elif began - finished_at > SETTLING_SECONDS:
                return
            time.sleep(0.1)

    def ask_again(self):
        """What one gateway has answered, every gateway answers."""
        for key in list(self.finished):
            for address in self.addresses:
                self.send(key, address)


def shortened(body):
    """Enough of it to judge by, so that long histories fit into memory."""
    return body if len(body) < 200 else body[:100] + hashlib.sha256(body).hexdigest().encode()


def is_indeterminate(response):
    """409, but neither Stripe's nor the problem format's word for "at work"."""
    at_work = (b"idempotency_key_in_use", b"in_progress")
    return response.status == 409 and not any(word in response.body for word in at_work)
