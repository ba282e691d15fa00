"""The servers that shared stores live in, as processes of a test: Postgres, PgBouncer, Redis and Redis Cluster.

Each is Debian's own binary on free ports of the loopback, with its data in a temporary folder:

    with Postgres() as postgres:
        Gateway(upstream.url, store=postgres.url)

A server ends with its test, also when the test dies without a word. It can be stopped in the unkind ways in between and
started again on the same port and folder: what it had made durable is still there.
"""

import shutil

from support.postgres_servers import PGBOUNCER, POSTGRES_BINARIES, PgBouncer, Postgres
from support.redis_servers import Redis, RedisCluster, RedisConnection, RedisError
from support.server_process import ServerFailed, spawn

__all__ = ["PgBouncer", "Postgres", "Redis", "RedisCluster", "RedisConnection", "RedisError", "ServerFailed",
           "available", "spawn"]


def available():
    """Which of the servers this machine has, by the names that with_servers.py knows."""
    found = []
    if (POSTGRES_BINARIES / "postgres").exists():
        found.append("postgres")
        if PGBOUNCER:
            found.append("pgbouncer")
    if shutil.which("redis-server"):
        found += ["redis", "cluster"]
    return found
