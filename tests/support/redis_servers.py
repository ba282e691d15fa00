"""Redis and Redis Cluster as processes of a test."""

import shutil
import socket
import time

from support.chaos import ChaosProxy
from support.gateway import free_port
from support.server_process import START_SECONDS, Server, ServerFailed, copy_folder
from support.waiting import poll_until

# The bus of a cluster's node listens this much above its port.
CLUSTER_BUS_OFFSET = 10000
CLUSTER_SLOTS = 16384


class RedisError(Exception):
    """The server answered with an error."""


class RedisConnection:
    """A connection that speaks enough RESP for tests: a command, and its answer as Python values."""

    def __init__(self, port, seconds=10.0):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self._file = self._socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._file.close()
        self._socket.close()

    def ask(self, *words):
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self._socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        return self._read()

    def _read(self):
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"-":
            raise RedisError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self._file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._read() for _ in range(int(rest))]
        raise ServerFailed(f"not RESP: {line!r}")


class Redis(Server):
    """Appends to its file and syncs it with every write, unless told otherwise."""

    def __init__(self, **settings):
        """Names of settings are written with underscores: `maxmemory_policy="noeviction"`."""
        super().__init__("redis")
        self.settings = {"appendonly": "yes", "appendfsync": "always", "save": "", "maxmemory_policy": "noeviction",
                         **settings}

    def command(self):
        settings = {"bind": "127.0.0.1", "port": self.port, "dir": self.folder, "daemonize": "no", **self.settings}
        return ["redis-server", *(word for name, value in settings.items()
                                  for word in (f"--{name.replace('_', '-')}", value))]

    def answers(self):
        try:
            return self.ask("PING") == "PONG"
        except (OSError, RedisError):
            return False

    # Using it.

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def connect(self):
        connection = RedisConnection(self.port)
        if "requirepass" in self.settings:
            connection.ask("AUTH", self.settings["requirepass"])
        return connection

    def ask(self, *words):
        with self.connect() as connection:
            return connection.ask(*words)

    def configure(self, name, value):
        self.ask("CONFIG", "SET", name, value)

    def info(self, section):
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def ticks(self):
        """How often gateways have counted up a marker of their store here."""
        with self.connect() as connection:
            return {self.port: sum(int(connection.ask("HGET", marker, "tick"))
                                   for marker in connection.ask("KEYS", "*:marker"))}

    def kill_clients(self):
        """Every connection but the asking one is closed, whatever it waits for."""
        for kind in ("normal", "pubsub"):
            self.ask("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

    # Backups of the whole folder, taken while it is stopped.

    def save(self, name="saved"):
        assert not self.running
        copy_folder(self.folder / "appendonlydir", self.folder / name)

    def restore(self, name="saved"):
        assert not self.running
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
        copy_folder(self.folder / name, self.folder / "appendonlydir")


class ClusterNode(Redis):
    def __init__(self, **settings):
        super().__init__(cluster_enabled="yes", **{"cluster_node_timeout": 1500, **settings},
                         cluster_replica_validity_factor=0, repl_ping_replica_period=1, repl_diskless_sync_delay=0)

    def choose_port(self):
        return free_port(CLUSTER_BUS_OFFSET)

    def announce(self, port):
        """Clients and replicas are sent to this port: that of a proxy."""
        self.settings.update(cluster_announce_port=port, cluster_announce_bus_port=self.port + CLUSTER_BUS_OFFSET)

    @property
    def announced_port(self):
        return self.settings.get("cluster_announce_port", self.port)

    @property
    def id(self):
        return self.ask("CLUSTER", "MYID").decode()

    @property
    def is_primary(self):
        return self.info("replication")["role"] == "master"

    def cluster_info(self):
        return dict(line.split(":", 1) for line in self.ask("CLUSTER", "INFO").decode().splitlines() if ":" in line)


class RedisCluster:
    """Three primaries, each with a replica; `nodes` has the primaries first. When `proxied`, all that clients say to
    the nodes goes through `proxy`."""

    def __init__(self, primaries=3, replicas=1, proxied=False, **settings):
        self._settings = settings
        self.primaries_at_start = primaries
        self.nodes = [ClusterNode(**settings) for _ in range(primaries * (1 + replicas))]
        self._proxied = proxied
        self.proxy = None

    def start(self):
        for node in self.nodes:
            node.port = node.choose_port()
        if self._proxied:
            self.proxy = ChaosProxy(*(node.port for node in self.nodes)).start()
            for node, port in zip(self.nodes, self.proxy.ports):
                node.announce(port)
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            node.wait_until_it_answers()
        self._join(self.nodes)
        for number, node in enumerate(self.nodes[:self.primaries_at_start]):
            first, last = (CLUSTER_SLOTS * at // self.primaries_at_start for at in (number, number + 1))
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, last - 1)
        primaries = [node.id for node in self.nodes[:self.primaries_at_start]]
        for number, node in enumerate(self.nodes[self.primaries_at_start:]):
            node.ask("CLUSTER", "REPLICATE", primaries[number % len(primaries)])
        self.wait_until_ok()
        return self

    def _join(self, nodes):
        for epoch, node in enumerate(nodes, 1):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for node in nodes[1:]:
            self._meet(node)
        poll_until(lambda: all(int(node.cluster_info()["cluster_known_nodes"]) == len(nodes) for node in nodes),
                   "the nodes to know each other", START_SECONDS)
        # Known is not yet shaken hands with: until then a node's id may still change.
        poll_until(lambda: not any("handshake" in node.ask("CLUSTER", "NODES").decode() for node in nodes),
                   "the nodes' handshakes", START_SECONDS)

    def _meet(self, node):
        node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)

    def wait_until_ok(self, seconds=START_SECONDS):
        """All slots are served, every living node says so, and replicas follow."""

        def ok():
            living = [node for node in self.nodes if node.running]
            try:
                infos = [node.cluster_info() for node in living]
                # A cluster that need not be covered whole says "ok" with slots that it has not heard of yet.
                return all(info["cluster_state"] == "ok" and int(info["cluster_slots_assigned"]) == CLUSTER_SLOTS
                           for info in infos) and all(
                    node.is_primary or node.info("replication")["master_link_status"] == "up" for node in living)
            except (OSError, RedisError):
                return False

        poll_until(ok, "the cluster to be ok", seconds)

    def kill(self):
        """Every node at once."""
        for node in self.nodes:
            node.kill()

    def start_again(self):
        """After `kill`: the nodes know each other from before."""
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            node.wait_until_it_answers()
        self.wait_until_ok()

    def remove(self):
        for node in self.nodes:
            node.remove()
        if self.proxy:
            self.proxy.stop()

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *_):
        self.remove()

    # Using it.

    @property
    def url(self):
        """Names two of the nodes: a client has to find the others itself."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.announced_port}" for node in self.nodes[:2]) + "/"

    def primaries(self):
        return [node for node in self.nodes if node.running and node.is_primary and self.slots_of(node)]

    def replicas_of(self, primary):
        mine = str(primary.announced_port)
        return [node for node in self.nodes if node.running and not node.is_primary
                and node.info("replication")["master_port"] == mine]

    def ticks(self):
        return {port: tick for node in self.primaries() for port, tick in node.ticks().items()}

    def on_primaries(self, *words):
        return [node.ask(*words) for node in self.primaries()]

    def on_all(self, *words):
        return [node.ask(*words) for node in self.nodes if node.running]

    def pause(self):
        for node in self.nodes:
            node.pause()

    def resume(self):
        for node in self.nodes:
            node.resume()

    def slots_of(self, node):
        """The numbers of the slots it serves."""
        line = next(line for line in node.ask("CLUSTER", "NODES").decode().splitlines() if "myself" in line)
        ranges = [part for part in line.split()[8:] if not part.startswith("[")]
        return [slot for part in ranges
                for slot in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)]

    def fail_over(self, primary):
        """Kills it and waits until its replica has taken its place. Returns the new primary."""
        replicas = self.replicas_of(primary)
        assert replicas, "a primary without a replica cannot be failed over"
        primary.kill()
        poll_until(lambda: any(node.is_primary for node in replicas), "a replica to become the primary", START_SECONDS)
        self.wait_until_ok()
        return next(node for node in replicas if node.is_primary)

    def switch_over(self, primary):
        """Its replica takes its place while both live. Returns the new primary."""
        replica = self.replicas_of(primary)[0]

        def asked_and_done():
            # The others may refuse the vote for a while after another failover; an attempt ends after five seconds.
            if time.monotonic() >= asked_and_done.ask_at:
                replica.ask("CLUSTER", "FAILOVER")
                asked_and_done.ask_at = time.monotonic() + 6
            return replica.is_primary

        asked_and_done.ask_at = 0
        poll_until(asked_and_done, "the replica to become the primary", START_SECONDS)
        self.wait_until_ok()
        return replica

    def add_primary(self):
        """A new node joins, without slots yet."""
        node = ClusterNode(**self._settings).start()
        self.nodes.append(node)
        self._meet(node)
        poll_until(lambda: all(int(each.cluster_info()["cluster_known_nodes"]) >= len(self.nodes)
                               for each in self.nodes if each.running), "the new node to be known", START_SECONDS)
        poll_until(lambda: "handshake" not in node.ask("CLUSTER", "NODES").decode(), "the handshakes", START_SECONDS)
        self.wait_until_ok()
        return node

    def move_slots(self, source, target, slots, pause_seconds=0.0):
        """As redis-cli does it: while a slot is on its way its moved keys are at the target, and clients are asked to
        ASK there. `pause_seconds` keeps every slot in that state for a while."""
        source_id, target_id = source.id, target.id
        with source.connect() as giving, target.connect() as taking:
            for slot in slots:
                taking.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
                giving.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
                if pause_seconds:
                    time.sleep(pause_seconds)
                while keys := giving.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
                    giving.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
                taking.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)
                giving.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)
