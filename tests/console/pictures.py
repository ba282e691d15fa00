"""Takes the pictures of the console in docs/images: a gateway with some minutes of traffic, keys in every state, dead
letters, a storm. Not a test; run it when a page looks different than in the pictures.

    python3 tests/console/pictures.py [--binary build/release/oncekey] [--minutes 8] [--to docs/images]

Needs what console_test.py needs. With `--all` it takes every page, light, dark and on a phone, to be looked at.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from console_test import ConsoleTest
from support import hooks
from support.gateway import PROJECT, Gateway
from support.upstream import Upstream, answers, never_answers, resets
from support.waiting import poll_until


def charge(exchange):
    request = exchange.request
    if request.key and request.key.startswith("lost"):
        return resets()(exchange)
    if request.key and request.key.startswith("slow"):
        exchange.wire.socket.settimeout(None)
        return never_answers()(exchange)
    time.sleep(min(0.6, random.lognormvariate(-4.2, 0.7)))
    body = json.dumps({"id": f"ch_{random.randrange(10**6):06}", "amount": 2000, "currency": "eur"})
    return answers(201, body, [("Content-Type", "application/json")], reason="Created")(exchange)


class Traffic(threading.Thread):
    """A customer: charges, retries of some, and requests that need no key."""

    def __init__(self, gateway, number, until):
        super().__init__(daemon=True)
        self._client = gateway.client(f"customer-{number}")
        self._until = until
        self._number = number

    def run(self):
        count = 0
        while time.monotonic() < self._until:
            count += 1
            key = f"order-{self._number}-{count:04d}"
            body = b'{"amount":2000,"currency":"eur"}'
            traced = [("traceparent", f"00-{random.getrandbits(128):032x}-{random.getrandbits(64):016x}-01")]
            self._client.post("/v1/charges", key=key, body=body, headers=traced)
            if random.random() < 0.3:
                self._client.post("/v1/charges", key=key, body=body)
            if random.random() < 0.01:
                self._client.post("/v1/charges", key=key, body=b'{"amount":9999}')
            if random.random() < 0.4:
                self._client.request("GET", "/v1/charges")
            time.sleep(random.uniform(0.1, 0.5))


def world(minutes, everything):
    """Starts all of it; returns what pictures.mjs wants to know, and what to stop."""
    api = Upstream().start()
    api.always(charge)
    receiver = Upstream().start()
    receiver.always(answers(410, "gone", reason="Gone"))
    routes = [{"path": "/v1/refunds", "policy": "classic", "lease": "2s"},
              {"path": "/v1/invoices", "policy": "classic", "key_from": ["fingerprint"], "window": "30m", "lease": "2s"},
              {"path": "/v1/*", "policy": "stripe-v1", "on_unknown": "hold"}]
    gateway = Gateway(api.url, routes, store="journal", gateway_name="eu-1", audit="decisions", upstream_timeout="10m",
                      webhook=[hooks.hook("stripe", f"{receiver.url}/events"), hooks.hook("github", f"{receiver.url}/pushes")])
    gateway.start()
    client = gateway.client("customer-1")
    traced = [("traceparent", "00-e6b065faf63eb1dbf5ccf0e1dc67a220-b7ad6b7169203331-01")]
    client.post("/v1/charges", key="lost-91c0", body=b'{"amount":1}', headers=traced)
    client.post("/v1/charges", key="lost-91c0", body=b'{"amount":1}')
    client.post("/v1/charges", key="lost-77a2", body=b'{"amount":1}')
    client.post("/v1/refunds", key="lost-refund", body=b"{}")
    client.post("/v1/invoices", body=b'{"customer":17}')
    for provider, count in (("stripe", 2), ("github", 1)):
        for number in range(count):
            body, headers = getattr(hooks, provider)(f"evt_{number}")
            client.post(f"/hooks/{provider}", body=body, headers=headers, authorization=False)
    until = time.monotonic() + 60 * minutes
    customers = [Traffic(gateway, number, until) for number in range(2, 8)]
    for each in customers:
        each.start()
    for each in customers:
        each.join()
    for _ in range(40):
        client.post("/v1/charges", key="order-storm", body=b'{"amount":2}')
    poll_until(lambda: len(gateway.admin.get("/api/jobs?state=dead").json()["jobs"]) == 3, "dead letters")
    if everything:
        with client.connect() as connection:
            connection.send(client.request_bytes("POST", "/v1/charges", key="slow-1", body=b'{"amount":2}'))
            api.wait_for_executions(1, key="slow-1")
        act = json.dumps({"reason": "ticket 4711: the bank has no trace of it"}).encode()
        lost = next(each["id"] for each in gateway.records() if each["key"] == "lost-refund")
        gateway.admin.request("POST", f"/api/keys/{lost}/hold", body=act, headers=[("Content-Type", "application/json")])
    time.sleep(12)  # two steps of the history
    keys = {}
    for each in gateway.records():
        keys.setdefault(each["key"], each["id"])
    keys["made"] = gateway.admin.get("/api/keys?route=/v1/invoices").json()["keys"][0]["id"]
    jobs = gateway.admin.get("/api/jobs?state=dead").json()["jobs"]
    told = {"admin": f"http://{gateway.admin_text}", "token": gateway.admin_token, "keys": keys, "job": jobs[0]["id"]}
    return told, [gateway.remove, api.stop, receiver.stop]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--binary", default=PROJECT / "build" / "release" / "oncekey", type=pathlib.Path)
    options.add_argument("--minutes", default=8.0, type=float)
    options.add_argument("--to", default=PROJECT / "docs" / "images", type=pathlib.Path)
    options.add_argument("--all", action="store_true")
    given = options.parse_args()
    os.environ["ONCEKEY_BINARY"] = str(given.binary.resolve())
    os.environ.setdefault("ONCEKEY_CONSOLE_PACKAGES", str(PROJECT / "build" / "console"))
    folder = ConsoleTest.packages()
    told, ends = world(given.minutes, given.all)
    given.to.mkdir(parents=True, exist_ok=True)
    told.update(to=str(given.to.resolve()), all=given.all)
    try:
        subprocess.run(["node", "pictures.mjs"], cwd=folder, env={**os.environ, "ONCEKEY_WORLD": json.dumps(told)},
                       check=True, timeout=300)
    finally:
        ends[1]()  # the gateway would wait for the calls
        for end in (ends[0], ends[2]):
            end()


if __name__ == "__main__":
    main()
