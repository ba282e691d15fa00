"""The API behind the gateway, as a test wants it: it counts, it remembers every byte, and it misbehaves on command.

A test scripts it with behaviours, one a request, in order; what comes after the script gets the default answer:

    upstream.will(answers(201, b'{"id":"ch_1"}'), resets())

A behaviour is a function of the exchange: it looks at `exchange.request` and sends what it likes. It runs when the
request has arrived whole, or, when marked by `at_head`, as soon as its head has.
"""

import socket
import ssl
import struct
import threading

from support.messages import LAST_CHUNK, Malformed, Message, Wire, chunk, parse_fields, render_head, split_head
from support.waiting import PATIENCE_SECONDS, Changing, GaveUpWaiting

DEFAULT_STATUS = 201


class ReceivedRequest(Message):
    def __init__(self, raw_head):
        start_line, field_lines = split_head(raw_head)
        super().__init__(raw_head, parse_fields(field_lines))
        self.method, self.target, self.version = start_line.decode("latin-1").split(" ")
        self.complete = False  # the body has arrived whole
        self.malformed = None  # why it never will

    @property
    def key(self):
        """The key the gateway forwarded; quotes are not part of it."""
        value = self.header("Idempotency-Key")
        return value.strip('"') if value is not None else None

    @property
    def fence(self):
        return int(self.header("Oncekey-Fence"))


class Exchange:
    """One request and the socket its answer goes to."""

    def __init__(self, upstream, wire, request, number):
        self.upstream = upstream
        self.wire = wire
        self.request = request
        self.number = number  # of this request among all, from 1
        self.keep_alive = True

    def send(self, data):
        self.wire.socket.sendall(data)

    def close(self):
        self.keep_alive = False

    def reset(self):
        """Closes with a reset instead of a proper end."""
        self.keep_alive = False
        self.wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def wait_for_peer_to_close(self):
        self.keep_alive = False
        try:
            while self.wire.socket.recv(65536):
                pass
        except OSError:
            pass


class Gate:
    """Holds a request at the upstream until the test lets it go."""

    def __init__(self):
        self._state = Changing()
        self._arrived = 0
        self._open = False

    def pass_through(self):
        with self._state:
            self._arrived += 1
        self._state.wait_until(lambda: self._open, "the test to open the gate", 3 * PATIENCE_SECONDS)

    def wait_for_arrival(self, count=1):
        self._state.wait_until(lambda: self._arrived >= count, f"request {count} at the upstream's gate")

    def open(self):
        with self._state:
            self._open = True


# Behaviours.


def answers(status=DEFAULT_STATUS, body=b'{"ok":true}', headers=(), *, chunked=False, until_close=False, close=False,
            reason="Made By Upstream", trailers=(), content_length=True):
    """A complete answer. `until_close` sends no length and closes at the end; `close` announces the end."""
    body = body.encode() if isinstance(body, str) else body

    def behave(exchange):
        fields = list(headers)
        bodiless = status in (204, 304) or exchange.request.method == "HEAD"
        if chunked:
            fields.append(("Transfer-Encoding", "chunked"))
        elif until_close:
            exchange.close()
        elif content_length and status not in (204, 304):
            fields.append(("Content-Length", str(len(body))))
        if close:
            fields.append(("Connection", "close"))
            exchange.close()
        message = render_head(f"HTTP/1.1 {status} {reason}", fields)
        if not bodiless and chunked:
            message += b"".join(chunk(body[at:at + 1000]) for at in range(0, len(body), 1000)) + b"0\r\n"
            message += b"".join(f"{name}: {value}\r\n".encode() for name, value in trailers) + b"\r\n"
        elif not bodiless:
            message += body
        exchange.send(message)

    return behave


def numbers_its_answers(status=DEFAULT_STATUS):
    """Every execution answers differently, so that a second one cannot hide."""

    def behave(exchange):
        answers(status, f'{{"execution":{exchange.number}}}', [("Content-Type", "application/json")])(exchange)

    return behave


def sends(raw, *, close=True):
    """Exactly these bytes."""

    def behave(exchange):
        exchange.send(raw)
        if close:
            exchange.close()

    return behave


def first(interim, then):
    """An interim response such as 103 in front of the answer."""

    def behave(exchange):
        exchange.send(interim)
        then(exchange)

    return behave


def held(gate, then):
    def behave(exchange):
        gate.pass_through()
        then(exchange)

    return behave


def at_head(behaviour):
    """Marks a behaviour to run before the body has arrived."""
    behaviour.at_head = True
    return behaviour


def resets():
    return lambda exchange: exchange.reset()


def hangs_up():
    return lambda exchange: exchange.close()


def never_answers():
    return lambda exchange: exchange.wait_for_peer_to_close()


def stops_short(declared=100, sent=b"only this much"):
    """A length that is never reached."""
    return sends(render_head("HTTP/1.1 201 Created", [("Content-Length", str(declared))]) + sent)


def streams(gate, pieces, status=200):
    """The first piece at once, the rest when the gate opens."""

    def behave(exchange):
        exchange.send(render_head(f"HTTP/1.1 {status} OK", [("Transfer-Encoding", "chunked")]) + chunk(pieces[0]))
        gate.pass_through()
        exchange.send(b"".join(chunk(piece) for piece in pieces[1:]) + LAST_CHUNK)

    return behave


class Upstream:
    """Listens on a free port of the loopback from `start` to `stop`; `reset` makes it new for the next test."""

    def __init__(self, tls_context=None, port=0):
        self._tls_context = tls_context
        self.port = port
        self._state = Changing()
        self._listener = None
        self._sockets = set()
        self._gates = []
        self._numbered = 0
        self.connections = 0
        self.reset()

    @property
    def url(self):
        scheme = "https" if self._tls_context else "http"
        host = "localhost" if self._tls_context else "127.0.0.1"
        return f"{scheme}://{host}:{self.port}"

    def start(self):
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self):
        """No longer reachable; open connections end. `start` listens on the same port again."""
        self.reset()
        if self._listener:
            # Wakes the accepting thread, which a plain close does not.
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._state:
            sockets = list(self._sockets)
        for sock in sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def reset(self):
        with self._state:
            for gate in self._gates:
                gate.open()
            self._gates = []
            self.received = []
            self._script = []
            self._default = numbers_its_answers()

    # Scripting.

    def will(self, *behaviours):
        with self._state:
            self._script.extend(behaviours)

    def always(self, behaviour):
        with self._state:
            self._default = behaviour

    def gate(self):
        gate = Gate()
        with self._state:
            self._gates.append(gate)
        return gate

    # Asking.

    def executions(self, key=None):
        """How many requests arrived whole, in all or under one key."""
        with self._state:
            return sum(1 for request in self.received if request.complete and (key is None or request.key == key))

    def fences(self, key):
        with self._state:
            return [request.fence for request in self.received if request.complete and request.key == key]

    @property
    def last(self):
        with self._state:
            if not self.received:
                raise AssertionError("nothing reached the upstream")
            return self.received[-1]

    def wait_for(self, predicate, what):
        self._state.wait_until(predicate, what)

    def wait_for_executions(self, count, key=None):
        self.wait_for(lambda: sum(1 for request in list(self.received)
                                  if request.complete and (key is None or request.key == key)) >= count,
                      f"{count} executions")

    # The server.

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        try:
            sock.settimeout(3 * PATIENCE_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls_context:
                sock = self._tls_context.wrap_socket(sock, server_side=True)
            with self._state:
                self._sockets.add(sock)
                self.connections += 1
            wire = Wire(sock)
            while self._serve_one(wire):
                pass
        except (OSError, ssl.SSLError, Malformed, GaveUpWaiting):
            pass  # what a peer does to this server is the test's business, and it looks at `received`
        finally:
            with self._state:
                self._sockets.discard(sock)
            sock.close()

    def _serve_one(self, wire):
        head = wire.take_until(b"\r\n\r\n")
        if head is None:
            return False
        request = ReceivedRequest(head)
        with self._state:
            self.received.append(request)
            self._numbered += 1
            behaviour = self._script.pop(0) if self._script else self._default
            exchange = Exchange(self, wire, request, self._numbered)
        early = getattr(behaviour, "at_head", False)
        if early:
            behaviour(exchange)
        self._read_body(wire, request)
        if not early:
            behaviour(exchange)
        return exchange.keep_alive and (request.header("Connection") or "").lower() != "close"

    def _read_body(self, wire, request):
        try:
            if request.has("Transfer-Encoding"):
                pieces = wire.pieces_of_chunks(request.trailers)
            else:
                pieces = wire.pieces_of_length(int(request.header("Content-Length") or 0))
            for piece in pieces:
                with self._state:
                    request.body += piece
        except Malformed as error:
            with self._state:
                request.malformed = str(error)
            raise
        with self._state:
            request.complete = True
