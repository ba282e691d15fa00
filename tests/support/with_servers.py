"""Runs a command with servers beside it, and ends them with it.

    with_servers.py postgres pgbouncer redis cluster -- command...

The command finds their URLs in ONCEKEY_TEST_POSTGRES, ONCEKEY_TEST_PGBOUNCER, ONCEKEY_TEST_REDIS and
ONCEKEY_TEST_REDIS_CLUSTER. A PgBouncer that was asked for without its Postgres is the Postgres of the command as well.
The exit code is the command's.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.servers import PgBouncer, Postgres, Redis, RedisCluster, spawn

VARIABLES = {
    "postgres": "ONCEKEY_TEST_POSTGRES",
    "pgbouncer": "ONCEKEY_TEST_PGBOUNCER",
    "redis": "ONCEKEY_TEST_REDIS",
    "cluster": "ONCEKEY_TEST_REDIS_CLUSTER",
}


def start(names, stack):
    """The URL of each server by name. They start at the same time, except that PgBouncer needs its Postgres."""

    def start_postgres():
        started = {"postgres": stack.enter_context(Postgres())}
        if "pgbouncer" in names:
            started["pgbouncer"] = stack.enter_context(PgBouncer(started["postgres"]))
        return started

    starters = []
    if "postgres" in names or "pgbouncer" in names:
        starters.append(start_postgres)
    if "redis" in names:
        starters.append(lambda: {"redis": stack.enter_context(Redis())})
    if "cluster" in names:
        starters.append(lambda: {"cluster": stack.enter_context(RedisCluster())})
    with concurrent.futures.ThreadPoolExecutor(max(1, len(starters))) as pool:
        started = [run.result() for run in [pool.submit(starter) for starter in starters]]
    return {name: server for group in started for name, server in group.items()}


def main(arguments):
    if "--" not in arguments:
        print(__doc__, file=sys.stderr)
        return 2
    at = arguments.index("--")
    names, command = arguments[:at], arguments[at + 1:]
    unknown = [name for name in names if name not in VARIABLES]
    if unknown or not command:
        print(__doc__, file=sys.stderr)
        return 2
    # An end from outside unwinds the stack too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        servers = start(names, stack)
        variables = {VARIABLES[name]: servers[name].url for name in names}
        if "pgbouncer" in names:
            variables.setdefault(VARIABLES["postgres"], servers["pgbouncer"].url)
        child = spawn(command, env={**os.environ, **variables})
        try:
            code = child.wait()
        finally:
            child.kill()
        return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
