"""A TCP proxy before a server that does to connections what networks do, when a test says so.

    with ChaosProxy(server.port) as proxy:
        proxy.lose_answer(b"key-1")   # what carries these bytes reaches the server; its answer does not come back
        ...
        proxy.stall()                 # connections are accepted and bytes taken, and nothing ever comes of it
        proxy.go_on()

It knows no protocol. Whoever wants an answer lost says by which bytes of the client the request is known, and by which
bytes of the server that it has been carried out.
"""

import socket
import struct
import threading
import time

from support.waiting import PATIENCE_SECONDS, Changing

PIECE_BYTES = 65536
# How Postgres says that everything up to the last Sync is done and committed: ReadyForQuery.
POSTGRES_ANSWERED = b"Z\0\0\0\x05"
# Redis answers only what it has carried out, so any byte will do.
REDIS_ANSWERED = b""


class _Rule:
    """Something to do once, to the connection on which the client's bytes contain the marker."""

    def __init__(self, marker, reaches_the_server, answered):
        self.marker = marker
        self.reaches_the_server = reaches_the_server
        self.answered = answered

    def is_in(self, seen):
        return self.marker in seen or self.marker.hex().encode() in seen


class _Link:
    """One client's connection and the one made for it to the server."""

    def __init__(self, client, server):
        self.client = client
        self.server = server
        self.rule = None  # set when its marker passed: the server's bytes are withheld from then on
        self.withheld = b""

    def cut(self):
        """Both ends see a reset, as when a machine in between has forgotten the connection."""
        for sock in (self.client, self.server):
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it, which a close does not
            except OSError:
                pass
            sock.close()


class ChaosProxy:
    """Listens from `start` to `stop`, on a port of the loopback for each port of the server or servers behind it."""

    def __init__(self, *server_ports):
        self._server_ports = server_ports
        self.ports = [0] * len(server_ports)
        self._state = Changing()
        self._listeners = []
        self._links = []
        self._rules = []
        self._fired = 0
        self._stalled = False
        self._delay_seconds = 0.0
        self.connections = 0

    @property
    def port(self):
        return self.ports[0]

    def start(self):
        with self._state:
            self._listeners = [socket.create_server(("127.0.0.1", port), backlog=256) for port in self.ports]
            self.ports = [listener.getsockname()[1] for listener in self._listeners]
            for listener, server_port in zip(self._listeners, self._server_ports):
                threading.Thread(target=self._accept, args=(listener, server_port), daemon=True).start()
        return self

    def stop(self):
        self._close_listeners()
        self.go_on()
        self.cut()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    # What it does.

    def delay(self, seconds):
        """Every piece takes so long on its way, in both directions; 0 ends it."""
        with self._state:
            self._delay_seconds = seconds

    def stall(self):
        """Connections are accepted, bytes are taken, nothing is passed on in either direction."""
        with self._state:
            self._stalled = True

    def go_on(self):
        """Ends a stall: what was taken is passed on."""
        with self._state:
            self._stalled = False

    def cut(self):
        """Every connection is reset."""
        with self._state:
            links, self._links = self._links, []
        for link in links:
            link.cut()

    def refuse(self):
        """Every connection is reset and new ones are refused, as if the server were gone."""
        self._close_listeners()
        self.cut()

    def allow(self):
        """Ends `refuse`."""
        if not self._listeners:
            self.start()

    def lose_request(self, marker):
        """Once: the connection is reset when the client sends the marker, and the server never sees it. Markers are
        found in hexadecimal too, which is how some clients send bytes."""
        self._add(_Rule(marker, False, None))

    def lose_answer(self, marker, answered=b""):
        """Once: what carries the marker reaches the server; the connection is reset when the server has answered with
        something containing `answered`, of which the client sees nothing."""
        self._add(_Rule(marker, True, answered))

    def _add(self, rule):
        with self._state:
            self._rules.append(rule)

    # Looking at it.

    def wait_until_fired(self, count=1):
        """Until so many requests or answers were lost in all."""
        self._state.wait_until(lambda: self._fired >= count, f"{count} losses of the proxy")

    @property
    def fired(self):
        with self._state:
            return self._fired

    @property
    def open_connections(self):
        with self._state:
            return len(self._links)

    # The proxy.

    def _close_listeners(self):
        with self._state:
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts, which a close does not
            listener.close()

    def _accept(self, listener, server_port):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client, server_port), daemon=True).start()

    def _connect(self, client, server_port):
        self._wait_while_stalled()
        try:
            server = socket.create_connection(("127.0.0.1", server_port), timeout=PATIENCE_SECONDS)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, server)
        with self._state:
            self._links.append(link)
            self.connections += 1
        threading.Thread(target=self._pump, args=(link, client, server, self._from_client), daemon=True).start()
        threading.Thread(target=self._pump, args=(link, server, client, self._from_server), daemon=True).start()

    def _pump(self, link, source, target, look_at):
        tail = b""
        try:
            while piece := source.recv(PIECE_BYTES):
                if self._delay_seconds:
                    time.sleep(self._delay_seconds)
                self._wait_while_stalled()
                tail = look_at(link, tail, piece, target)
            target.shutdown(socket.SHUT_WR)
            if source is link.server:
                self._drop(link)
        except OSError:
            self._drop(link)

    def _wait_while_stalled(self):
        if self._stalled:
            self._state.wait_until(lambda: not self._stalled, "the end of a stall", 10 * PATIENCE_SECONDS)

    def _drop(self, link):
        with self._state:
            if link in self._links:
                self._links.remove(link)
        link.cut()

    def _from_client(self, link, tail, piece, target):
        seen = tail + piece
        with self._state:
            rule = next((each for each in self._rules if each.is_in(seen)), None)
            if rule:
                self._rules.remove(rule)
        if rule and not rule.reaches_the_server:
            self._fire(link)
        if rule:
            link.rule = rule
        target.sendall(piece)
        # Long enough for a marker that came in two pieces.
        return seen[-256:]

    def _from_server(self, link, tail, piece, target):
        if link.rule is None:
            target.sendall(piece)
            return b""
        link.withheld += piece
        if link.rule.answered in link.withheld:
            self._fire(link)
        return b""

    def _fire(self, link):
        link.cut()
        with self._state:
            self._fired += 1
        raise ConnectionResetError("cut on command")
