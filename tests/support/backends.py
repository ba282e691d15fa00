"""The three kinds of shared store behind one set of verbs, so that one test asks the same of each.

    url           where gateways find the store
    proxied_url   the same through `proxy`, a ChaosProxy
    crash         its server ends as in a power cut; `start_again` brings it back with what was durable
    end_connections   every session is ended by the server, whatever it is doing
    forget        the store loses records it had: a backup older than them is restored, or somebody empties it
    ticks         how far the marker of each of its servers is counted up, which gateways do about once a second
"""

from support.chaos import POSTGRES_ANSWERED, REDIS_ANSWERED, ChaosProxy
from support.servers import PgBouncer, Postgres, Redis, RedisCluster


class PostgresBackend:
    name = "postgres"
    answered = POSTGRES_ANSWERED

    def __init__(self):
        self.server = Postgres()
        self.proxy = None

    def start(self):
        self.server.start()
        self.proxy = ChaosProxy(self.server.port).start()
        return self

    def remove(self):
        if self.proxy:
            self.proxy.stop()
        self.server.remove()

    @property
    def url(self):
        return self.server.url

    @property
    def proxied_url(self):
        return self.server.url_of(self.server.database, self.proxy.port)

    def crash(self):
        self.server.crash()

    def start_again(self):
        self.server.start()

    def end_connections(self):
        self.server.terminate_sessions()

    def remember(self):
        """Makes the backup that `forget` restores."""
        self.server.stop()
        self.server.save()
        self.server.start()

    def forget(self):
        self.server.stop()
        self.server.restore()
        self.server.start()

    def ticks(self):
        return {"meta": int(self.server.sql("SELECT tick FROM oncekey.meta"))}


class PgBouncerBackend(PostgresBackend):
    """Gateways know only the bouncer; what befalls the server befalls them through it."""

    name = "pgbouncer"

    def __init__(self):
        super().__init__()
        self.bouncer = None

    def start(self):
        super().start()
        self.bouncer = PgBouncer(self.server).start()
        return self

    def remove(self):
        if self.bouncer:
            self.bouncer.remove()
        super().remove()

    @property
    def url(self):
        return self.bouncer.url


class RedisBackend:
    name = "redis"
    answered = REDIS_ANSWERED

    def __init__(self):
        self.server = Redis()
        self.proxy = None

    def start(self):
        self.server.start()
        self.proxy = ChaosProxy(self.server.port).start()
        return self

    def remove(self):
        if self.proxy:
            self.proxy.stop()
        self.server.remove()

    @property
    def url(self):
        return self.server.url

    @property
    def proxied_url(self):
        return f"redis://127.0.0.1:{self.proxy.port}/0"

    def crash(self):
        self.server.kill()

    def start_again(self):
        self.server.start()

    def end_connections(self):
        self.server.kill_clients()

    def remember(self):
        pass

    def forget(self):
        self.server.ask("FLUSHALL")

    def ticks(self):
        return self.server.ticks()


class ClusterBackend:
    name = "cluster"
    answered = REDIS_ANSWERED

    def __init__(self):
        # Everybody comes through the proxy: the nodes tell their clients where the others are.
        self.server = RedisCluster(proxied=True)

    def start(self):
        self.server.start()
        return self

    def remove(self):
        self.server.remove()

    @property
    def proxy(self):
        return self.server.proxy

    @property
    def url(self):
        return self.server.url

    proxied_url = url

    def crash(self):
        self.server.kill()

    def start_again(self):
        self.server.start_again()

    def end_connections(self):
        for node in self.server.primaries():
            node.kill_clients()

    def remember(self):
        pass

    def forget(self):
        self.server.on_primaries("FLUSHALL")

    def ticks(self):
        return self.server.ticks()
