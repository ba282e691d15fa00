"""The gateway, killed with -9 at random moments under load and restarted: no promise is broken.

    kill_test.py [--rounds N] [--seed S] [--clients N]    exits 0 when the oracle found nothing
    kill_test.py --store memory --expect-violations       the same with a store that forgets: the oracle must notice
    kill_test.py --store redis [--kill-store]             two gateways on one store, killed one at a time and together,
                                                          and their store as well

Half of the keys are under a policy that holds (stripe-v1: at most one execution, ever), half under one that executes
again (classic: one more for every death of an owner). Clients remember every final answer, the upstream every
execution; oracle.py judges both. A seed replays the choices, though not the scheduling of the machine.
"""

import argparse
import contextlib
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from crowd import CountingUpstream, Crowd
from oracle import History, violations_of
from support.gateway import Gateway
from support.with_servers import start as start_servers

SHARED_STORES = ("postgres", "redis", "cluster")
# Short, so that abandoned keys settle within the run; long enough that a busy machine does not miss a renewal.
LEASE = "2s"
ROUTES = [
    {"path": "/hold/*", "policy": "stripe-v1", "lease": LEASE},
    {"path": "/again/*", "policy": "classic", "lease": LEASE},
]


class Victims:
    """What is killed: one gateway, or two that share a store, and the store's server where that is wanted."""

    def __init__(self, gateways, servers, history):
        self._gateways = gateways
        self._servers = servers
        self._history = history

    def start(self):
        for gateway in self._gateways:
            gateway.start()
        return self.addresses

    @property
    def addresses(self):
        return [gateway.address for gateway in self._gateways]

    def kill_some(self, choice):
        """Kills and restarts one of them, or all gateways together."""
        victims = choice.choice([[gateway] for gateway in self._gateways] + [self._gateways]
                                + [[server] for server in self._servers])
        for victim in victims:
            victim.kill()
            self._history.killed(time.monotonic())
        for victim in victims:
            if victim in self._gateways:
                victim.check_sanitizers()
            victim.start()

    def stop_and_start(self):
        for gateway in self._gateways:
            gateway.stop()
            gateway.start()
        return self.addresses

    def remove(self):
        for gateway in self._gateways:
            gateway.remove()


def open_store(name, kill_store, stack):
    """The store's URL, how many gateways share it, and the servers to kill."""
    if name not in SHARED_STORES:
        return name if name == "journal" else "memory:", 1, []
    server = start_servers([name], stack)[name]
    return server.url, 2, [server] if kill_store else []


def run(rounds, seed, clients, store, kill_store):
    choice = random.Random(seed)
    history = History()
    upstream = CountingUpstream(history, seed)
    crowd = Crowd(history, clients, seed)
    with contextlib.ExitStack() as stack:
        stack.callback(upstream.stop)
        url, count, servers = open_store(store, kill_store, stack)
        victims = Victims([Gateway(upstream.upstream.url, ROUTES, store=url) for _ in range(count)], servers, history)
        stack.callback(victims.remove)
        crowd.addresses = victims.start()
        crowd.start()
        stack.callback(crowd.stop)
        for _ in range(rounds):
            time.sleep(choice.uniform(0.05, 1.2))
            victims.kill_some(choice)
            crowd.addresses = victims.addresses
        crowd.stop()
        crowd.settle()
        crowd.addresses = victims.stop_and_start()
        crowd.ask_again()
    return history, crowd


def main():
    parser = argparse.ArgumentParser(description="Kills the gateway under load and judges what was seen.")
    parser.add_argument("--rounds", type=int, default=12, help="how many kills (12)")
    parser.add_argument("--seed", type=int, default=None, help="replays the choices of an earlier run")
    parser.add_argument("--clients", type=int, default=6, help="client threads (6)")
    parser.add_argument("--store", default="journal", choices=("journal", "memory", *SHARED_STORES))
    parser.add_argument("--kill-store", action="store_true", help="postgres and redis: kill the server too")
    parser.add_argument("--expect-violations", action="store_true", help="succeed only if the oracle found something")
    arguments = parser.parse_args()
    if arguments.kill_store and arguments.store not in ("postgres", "redis"):
        parser.error("--kill-store is for postgres and redis: a cluster may lose what a replica had not yet got")
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}: {arguments.rounds} kills, {arguments.clients} clients, {arguments.store}", flush=True)

    history, crowd = run(arguments.rounds, seed, arguments.clients, arguments.store, arguments.kill_store)
    found = crowd.unexpected + violations_of(history)
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
