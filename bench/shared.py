"""Shared stores beside what people write by hand on the same server, and how their cost grows.

Every figure is a pair: a durable claim and a durable completion with a response of about 300 bytes. CPU time is counted
on both sides: of the client's processes, and of the server's. Round trips are as the store counts them: a request that
carried many calls is one.

The peer has as many connections as one gateway has calls in flight, each with one call under way, and none of them waits
for another: what a program with a pool of connections does. Peer and store have a server each, so that neither pays for
the vacuum or the rehashing that the other left behind, and take turns, so that a slow moment of the machine meets both.
"""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

from support.postgres_servers import POSTGRES_BINARIES
from support.servers import Postgres, Redis

CONNECTIONS = 64
GATEWAYS = (1, 2, 4)
TEN_MILLION = 10_000_000
# Numbers of keys of different measurements are this far apart.
APART = 1_000_000_000

USUAL_TABLE = """
CREATE TABLE usual (key text PRIMARY KEY, state text NOT NULL, fingerprint bytea NOT NULL,
                    locked_until timestamptz NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
                    status int, headers text, body bytea)
"""
USUAL_PAIR = """
\\set n random(1, 9000000000000000000)
INSERT INTO usual (key, state, fingerprint, locked_until)
  VALUES ('key-' || :n, 'in_progress', decode(md5(:n::text), 'hex'), now() + interval '60 s') ON CONFLICT DO NOTHING;
UPDATE usual SET state = 'completed', status = 201, headers = 'Content-Type: application/json',
  body = decode(repeat('7b22616d6f756e74223a313039397d', 20), 'hex') WHERE key = 'key-' || :n;
"""


def cpu_ticks(pid, reaped):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15] if reaped else fields[11:13]))


def server_cpu_seconds(server):
    """Of the server and, for Postgres, of its backends, also of those that have ended."""
    ticks = cpu_ticks(server.pid, reaped=True)
    for pid in server.backends() if isinstance(server, Postgres) else []:
        try:
            ticks += cpu_ticks(pid, reaped=False)
        except OSError:
            pass  # ended, and counted with its parent
    return ticks / os.sysconf("SC_CLK_TCK")


def children_cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Figures:
    def __init__(self, label, pairs, seconds, client_cpu, server_cpu, round_trips):
        self.label = label
        self.rate = pairs / seconds
        self.client_us = client_cpu / pairs * 1e6
        self.server_us = server_cpu / pairs * 1e6
        self.round_trips = round_trips / pairs

    def show(self, beside=None):
        ratio = f"   {self.rate / beside.rate:5.2f} times" if beside else ""
        print(f"  {self.label:44} {self.rate:8.0f} pairs/s   CPU a pair: client {self.client_us:6.1f} us, "
              f"server {self.server_us:6.1f} us   {self.round_trips:6.3f} round trips{ratio}", flush=True)
        return self


def in_turns(measures, turns):
    """Runs all of them in turn, so many times; of each the run with the median rate."""
    runs = [[measure() for measure in measures] for _ in range(turns)]
    return [sorted(of_one, key=lambda figures: figures.rate)[turns // 2] for of_one in zip(*runs)]


def processes_of(args, server, label, commands):
    """Runs them beside each other and adds up what they report."""
    server_before = server_cpu_seconds(server)
    running = [subprocess.Popen([f"{args.build}/shared_bench", *command], stdout=subprocess.PIPE, text=True)
               for command in commands]
    reports = []
    for process in running:
        out, _ = process.communicate(timeout=600)
        if process.returncode != 0:
            sys.exit(f"bench: shared_bench ended with {process.returncode}")
        reports.append(json.loads(out))
    return Figures(label, sum(report["pairs"] for report in reports), max(report["seconds"] for report in reports),
                   sum(report["cpu_us"] for report in reports) / 1e6, server_cpu_seconds(server) - server_before,
                   sum(report["round_trips"] for report in reports))


class Keys:
    """Every measurement has numbers of its own: its keys are new."""

    def __init__(self):
        self._next = 0

    def fresh(self):
        self._next += APART
        return str(self._next)


def gateways(args, server, url, keys, count, label=None):
    commands = [["--store", url, "--in-flight", str(CONNECTIONS), "--seconds", str(args.seconds), "--first",
                 keys.fresh()] for _ in range(count)]
    return processes_of(args, server, label or f"oncekey, {count} gateway{'s' if count > 1 else ''}", commands)


def pgbench(args, server, folder):
    script = folder / "usual.sql"
    script.write_text(USUAL_PAIR)
    server_before, client_before = server_cpu_seconds(server), children_cpu_seconds()
    out = subprocess.run([POSTGRES_BINARIES / "pgbench", "-n", "-M", "prepared", "-c", str(CONNECTIONS), "-j", "2", "-T",
                          str(args.seconds), "-f", script, server.url], capture_output=True, text=True, check=True).stdout
    pairs = int(re.search(r"transactions actually processed: (\d+)", out).group(1))
    rate = float(re.search(r"tps = ([\d.]+)", out).group(1))
    return Figures("INSERT ON CONFLICT, then UPDATE (pgbench)", pairs, pairs / rate,
                   children_cpu_seconds() - client_before, server_cpu_seconds(server) - server_before, 2 * pairs)


def through_http(args, folder, url, first_beside_nginx):
    """CPU time of a first request of the gateway divided by nginx's."""
    rows = first_beside_nginx(args, folder, url)
    nginx, ours = rows["nginx"], rows["gateway"]
    ratio = ours["us_per_request"] / nginx["us_per_request"]
    print(f"  a first request through HTTP: {ours['us_per_request']:.1f} us CPU of the gateway, {ratio:.2f} x nginx "
          f"({nginx['us_per_request']:.1f} us); {ours['machine_us']:.1f} us of the machine, "
          f"{ours['per_second']:.0f} requests/s", flush=True)
    return ratio


def beside_peer(args, server, peer):
    """One, two and four gateways on the server, in turns with the peer."""
    keys = Keys()
    ours = [lambda count=count: gateways(args, server, server.url, keys, count) for count in GATEWAYS]
    usual, *stores = in_turns([peer, *ours], args.turns)
    usual.show()
    rates = [figures.show(usual).rate for figures in stores]
    return {"usual": usual.rate, "one": rates[0],
            **{f"gateways_{count}": rate for count, rate in zip(GATEWAYS[1:], rates[1:])}}, keys


def bench_postgres(args, folder, first_beside_nginx):
    print(f"\nshared, Postgres: synchronous_commit on, {CONNECTIONS} connections of pgbench, {CONNECTIONS} calls in "
          f"flight of each gateway", flush=True)
    settings = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
    with Postgres(**settings) as server, Postgres(**settings) as by_hand:
        by_hand.sql(USUAL_TABLE)
        results, keys = beside_peer(args, server, lambda: pgbench(args, by_hand, folder))
        results["first_ratio"] = through_http(args, folder, server.url, first_beside_nginx)
        if args.ten_million:
            results["ten_million"] = ten_million(args, server, keys)
        return results


def ten_million(args, server, keys):
    """Ten million completed records beside those of the measurements, in the partition these write to.

    Measured right after a checkpoint, when every page is logged whole at its first change: the worst moment there is.
    """
    before = server.sql("SELECT count(*) FROM oncekey.record")
    columns = server.sql("SELECT string_agg(column_name, ', ' ORDER BY ordinal_position) FROM "
                         "information_schema.columns WHERE table_schema = 'oncekey' AND table_name = 'record' "
                         "AND column_name <> 'id'")
    server.sql(f"""
        SET synchronous_commit = off;
        INSERT INTO oncekey.record (id, {columns})
          SELECT sha256(n::text::bytea), {columns}
          FROM (SELECT * FROM oncekey.record WHERE state = 2 ORDER BY bucket DESC LIMIT 1) AS one,
               generate_series(1, {TEN_MILLION}) AS n""")
    for statement in ("VACUUM ANALYZE oncekey.record", "CHECKPOINT"):
        server.sql(statement)
    size = server.sql("SELECT pg_size_pretty(sum(pg_total_relation_size(relid))) FROM pg_partition_tree('oncekey.record')")
    print(f"  ({before} records before, {TEN_MILLION} more now: {size} in all)")
    label = "oncekey, 1 gateway, ten million keys more"
    return in_turns([lambda: gateways(args, server, server.url, keys, 1, label)], args.turns)[0].show().rate


def bench_redis(args, folder, first_beside_nginx):
    print(f"\nshared, Redis: appendfsync always, {CONNECTIONS} connections by hand, {CONNECTIONS} calls in flight of "
          f"each gateway", flush=True)
    with Redis() as server, Redis() as by_hand:
        usual = ["--usual-redis", f"127.0.0.1:{by_hand.port}", "--in-flight", str(CONNECTIONS), "--seconds",
                 str(args.seconds)]
        results, _ = beside_peer(args, server, lambda: processes_of(args, by_hand, "SET NX, then SET, no pipelining",
                                                                    [usual]))
        results["first_ratio"] = through_http(args, folder, server.url, first_beside_nginx)
        return results


def bench(args, folder, first_beside_nginx):
    """`first_beside_nginx` measures first requests on a store through HTTP; bench/run has it."""
    stores = {"postgres": bench_postgres, "redis": bench_redis}
    return {name: stores[name](args, folder, first_beside_nginx) for name in args.stores.split(",")}
