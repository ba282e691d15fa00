"""A herd: many clients retry few operations while the upstream is frozen, and then it heals.

    herd_test.py [--clients N] [--keys N] [--freeze SECONDS]

With the gateway in between every operation is executed once, however often it was retried. The same storm without it is
printed beside, and has to fail the same question: a judge that finds nothing wrong there would prove nothing.
"""

import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.gateway import Gateway

# What a client does that was written in a hurry: a time-out, and backoff that soon stops growing.
TIMEOUT_SECONDS = 1.0
BACKOFF_SECONDS = (0.1, 1.0)
PATIENCE_SECONDS = 150.0
# Without the gateway an upstream may not get out of the storm by itself; it has shown enough by then.
BARE_PATIENCE_SECONDS = 10.0
# Of upstream requests per logical operation.
AMPLIFICATION_MAX = 1.1
WORK_SECONDS = 0.002


# The upstream, a process of its own so that it can be stopped in its tracks.


async def read_message(reader):
    """The first line, the fields and the body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    body = await reader.readexactly(int(fields.get("content-length", 0)))
    return head[0], fields, body


def message(first_line, fields, body=b""):
    lines = [first_line, *(f"{name}: {value}" for name, value in fields), f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


async def run_upstream():
    executions = collections.Counter()

    async def serve(reader, writer):
        try:
            while True:
                line, fields, _ = await read_message(reader)
                if line.startswith("GET /counts"):
                    body = json.dumps(executions).encode()
                else:
                    executions[fields.get("idempotency-key", "")] += 1
                    await asyncio.sleep(WORK_SECONDS)
                    body = json.dumps({"execution": sum(executions.values())}).encode()
                writer.write(message("HTTP/1.1 201 Created", [("Content-Type", "application/json")], body))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=16384)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class FreezableUpstream:
    def __enter__(self):
        self._process = subprocess.Popen([sys.executable, __file__, "--upstream"], stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL)
        self.address = ("127.0.0.1", int(self._process.stdout.readline()))
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.address[1]}"

    def freeze(self):
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self._process.pid, signal.SIGCONT)

    async def counts(self):
        _, _, body = await ask(self.address, message("GET /counts HTTP/1.1", [("Host", "x")]))
        return collections.Counter(json.loads(body))


# The clients.


async def ask(address, request):
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request)
        return await read_message(reader)
    finally:
        writer.close()


class Client:
    """Wants one operation done, and asks until it has a final answer."""

    def __init__(self, address, key):
        self.address = address
        self.key = key
        self.tries = 0
        self.answer = None

    async def run(self):
        request = message("POST /orders HTTP/1.1",
                          [("Host", "x"), ("Authorization", "Bearer herd"), ("Idempotency-Key", self.key)], b'{"n":1}')
        pause = BACKOFF_SECONDS[0]
        while self.answer is None:
            self.tries += 1
            try:
                line, _, body = await asyncio.wait_for(ask(self.address, request), TIMEOUT_SECONDS)
                status = int(line.split(" ")[1])
                if status == 201:
                    self.answer = body
                    return
                if status not in (409, 429, 502, 503, 504):
                    raise AssertionError(f"an answer nobody expects: {line} {body!r}")
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                pass
            await asyncio.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, BACKOFF_SECONDS[1])


class Outcome:
    def __init__(self, clients, keys, counts, answered_after):
        self.operations = len(keys)
        self.unanswered = sum(1 for client in clients if client.answer is None)
        self.tries = sum(client.tries for client in clients)
        self.upstream_requests = sum(counts.values())
        self.most_executions = max(counts.values(), default=0)
        self.unexecuted = sum(1 for key in keys if counts[key] == 0)
        answers = collections.defaultdict(set)
        for client in clients:
            answers[client.key].add(client.answer)
        self.most_answers = max(len(different) for different in answers.values())
        self.answered_after = answered_after

    @property
    def amplification(self):
        return self.upstream_requests / self.operations

    def faults(self):
        found = []
        if self.unanswered:
            found.append(f"{self.unanswered} clients have no answer")
        if self.most_executions != 1 or self.unexecuted:
            found.append(f"some key was executed {self.most_executions} times, {self.unexecuted} never")
        if self.amplification > AMPLIFICATION_MAX:
            found.append(f"{self.amplification:.2f} upstream requests per operation")
        if self.most_answers != 1:
            found.append(f"clients of one key have {self.most_answers} different answers")
        return found

    def line(self, name):
        return (f"{name:<16} {self.tries:>8} tries  {self.upstream_requests:>7} upstream requests  "
                f"{self.amplification:>7.2f} per operation  at most {self.most_executions:>3} executions of one key  "
                f"{self.unanswered or 'none':>4} unanswered {self.answered_after:.1f} s after the upstream healed")


async def storm(upstream, address, clients, keys, freeze_seconds, patience_seconds):
    """The clients begin while the upstream is frozen; it heals; all go on until they have their answer."""
    herd = [Client(address, keys[number % len(keys)]) for number in range(clients)]
    before = await upstream.counts()
    upstream.freeze()
    try:
        running = [asyncio.ensure_future(client.run()) for client in herd]
        await asyncio.sleep(freeze_seconds)
    finally:
        upstream.thaw()
    healed = time.monotonic()
    done, late = await asyncio.wait(running, timeout=patience_seconds)
    answered_after = time.monotonic() - healed
    for task in late:
        task.cancel()
    for task in done:
        task.result()
    # What clients have given up is still in the upstream's queue; it gets the time to show.
    counts = await upstream.counts()
    for _ in range(10):
        await asyncio.sleep(0.5)
        earlier, counts = counts, await upstream.counts()
        if counts == earlier:
            break
    counts.subtract(before)
    return Outcome(herd, keys, +counts, answered_after)


async def compare(options):
    with FreezableUpstream() as upstream:
        gateway = Gateway(upstream.url, [{"path": "/*", "policy": "classic", "wait": "500ms"}], store="journal",
                          limits={"max_connections": 16384})
        try:
            gateway.start()
            keys = [f"herd-{number:04d}" for number in range(options.keys)]
            through = await storm(upstream, gateway.address, options.clients, keys, options.freeze,
                                  PATIENCE_SECONDS)
            retries = gateway.metric("oncekey_retries_total")
            storm_keys = gateway.metric("oncekey_storm_keys")
            # Nothing is left over: no waiter, no claim, and a new operation goes straight through.
            fresh = await ask(gateway.address, message("POST /orders HTTP/1.1", [
                ("Host", "x"), ("Authorization", "Bearer herd"), ("Idempotency-Key", "after")]))
            left_over = [name for name in ("oncekey_waiters", "oncekey_in_flight") if gateway.metric(name) != 0]
        finally:
            gateway.remove()
        keys = [f"bare-{number:04d}" for number in range(options.keys)]
        without = await storm(upstream, upstream.address, options.clients, keys, options.freeze,
                              BARE_PATIENCE_SECONDS)

    print(f"{options.clients} clients, {options.keys} operations, upstream frozen for {options.freeze:g} s")
    print(through.line("with Oncekey"))
    print(without.line("without"))
    print(f"the gateway counted {retries:.0f} retries and showed {storm_keys:.0f} keys in a storm")
    faults = through.faults()
    if not fresh[0].startswith("HTTP/1.1 201"):
        faults.append(f"a new operation was answered {fresh[0]}")
    if left_over:
        faults.append(f"left over: {', '.join(left_over)}")
    if not without.faults():
        faults.append("the storm without the gateway did no harm: this storm is too small to prove anything")
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--keys", type=int, default=50)
    parser.add_argument("--freeze", type=float, default=10.0)
    parser.add_argument("--upstream", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else max(soft, 65536), hard))
    if options.upstream:
        asyncio.run(run_upstream())
        return 0
    return asyncio.run(compare(options))


if __name__ == "__main__":
    sys.exit(main())
