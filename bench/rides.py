"""The library of atomic phases beside the same work written by hand, and how quickly staged jobs are drained.

A ride is a claim, three phases with a call between two of them, and a stored response: four durable commits by hand. The
payment processor is a function. The cost of the library is how many times longer a ride takes on it.
"""

import json
import subprocess
import sys

from shared import server_cpu_seconds
from support.servers import Postgres

THREADS = (1, 8, 32)
COST_MAX = 1.3
JOBS = 200_000
BATCHES = (1000, 10_000)
DRAIN_TARGET = 50_000


def run(args, *arguments):
    done = subprocess.run([f"{args.build}/rides_bench", *map(str, arguments)], capture_output=True, text=True,
                          timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"bench: rides_bench ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def median(reports, rate):
    return sorted(reports, key=rate)[len(reports) // 2]


def rides_rate(report):
    return report["rides"] / report["seconds"]


def run_rides(args, server, how, threads):
    before = server_cpu_seconds(server)
    report = run(args, "--measure", how, "--database", server.url, "--threads", threads, "--seconds", args.seconds)
    return {**report, "server_us": (server_cpu_seconds(server) - before) * 1e6}


def show(label, report, beside=None):
    cost = f"   cost {rides_rate(beside) / rides_rate(report):5.2f} times" if beside else ""
    print(f"  {label:26} {rides_rate(report):8.0f} rides/s   {report['round_trips'] / report['rides']:6.2f} round trips   "
          f"CPU a ride: client {report['cpu_us'] / report['rides']:6.0f} us, server "
          f"{report['server_us'] / report['rides']:6.0f} us{cost}", flush=True)


def bench_rides(args, server):
    print(f"\nrides: three phases on Postgres, synchronous_commit on (median of {args.turns} turns; target: cost at most "
          f"{COST_MAX})", flush=True)
    results = {}
    for threads in THREADS:
        # In turn, so that a busy moment of the machine meets both.
        reports = {"hand": [], "library": []}
        for _ in range(args.turns):
            for how, found in reports.items():
                found.append(run_rides(args, server, how, threads))
        hand, library = (median(reports[how], rides_rate) for how in ("hand", "library"))
        show(f"by hand, {threads} threads", hand)
        show(f"oncekey, {threads} threads", library, hand)
        results[threads] = {"hand": rides_rate(hand), "library": rides_rate(library),
                            "cost": rides_rate(hand) / rides_rate(library)}
    return results


def bench_drain(args, server, folder):
    print(f"\ndrain: {JOBS} staged jobs to a callback (target: {DRAIN_TARGET} jobs/s on the better database)", flush=True)
    results = {}
    for name, url in (("sqlite", f"sqlite:{folder}/jobs.db"), ("postgres", server.url)):
        for batch in BATCHES:
            reports = [run(args, "--measure", "drain", "--database", url, "--jobs", JOBS, "--batch", batch)
                       for _ in range(args.turns)]
            report = median(reports, lambda found: found["jobs"] / found["seconds"])
            rate = report["jobs"] / report["seconds"]
            print(f"  {name + ', batches of ' + str(batch):26} {rate:8.0f} jobs/s   {rate / DRAIN_TARGET:5.2f} times the target",
                  flush=True)
            results[f"{name}_{batch}"] = rate
    return results


def bench(args, folder):
    with Postgres(shared_buffers="512MB", max_wal_size="4GB") as server:
        return {"rides": bench_rides(args, server), "drain": bench_drain(args, server, folder)}
