"""A client that says exactly what a test wants said, and reads answers without forgiving anything."""

import socket

from support.messages import Malformed, Message, Wire, parse_fields, render_head, split_head
from support.waiting import PATIENCE_SECONDS, Background


class Response(Message):
    def __init__(self, raw_head):
        start_line, field_lines = split_head(raw_head)
        super().__init__(raw_head, parse_fields(field_lines))
        version, _, rest = start_line.decode("latin-1").partition(" ")
        status, _, self.reason = rest.partition(" ")
        if version not in ("HTTP/1.1", "HTTP/1.0") or len(status) != 3 or not status.isdigit():
            raise Malformed(f"not a status line: {start_line!r}")
        self.version = version
        self.status = int(status)
        self.framing = None  # none, length, chunked or close
        self.interim = []  # the 1xx responses in front of this one

    @property
    def replayed(self):
        return self.header("Idempotent-Replayed") == "true"

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:300]!r}>"


class Connection:
    """One connection to the gateway; also a context manager."""

    def __init__(self, address, tls_context=None, server_name="localhost", source=None):
        self.socket = socket.create_connection(address, timeout=PATIENCE_SECONDS,
                                               source_address=(source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls_context:
            self.socket = tls_context.wrap_socket(self.socket, server_hostname=server_name)
        self._wire = Wire(self.socket)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def end_sending(self):
        """Half-close: nothing more will come, but the answer is still wanted."""
        self.socket.shutdown(socket.SHUT_WR)

    def read_head(self, method="POST"):
        """The final response without its body, for tests that watch a body arrive."""
        interim = []
        while True:
            head = self._wire.take_until(b"\r\n\r\n")
            if head is None:
                raise Malformed("closed without an answer")
            response = Response(head)
            if response.status >= 200 or response.status == 101:
                break
            if response.has("Content-Length") or response.has("Transfer-Encoding"):
                raise Malformed(f"framing on an interim response: {response}")
            interim.append(response)
        response.interim = interim
        response.framing = self._framing_of(response, method)
        return response

    def read_pieces(self, response):
        if response.framing == "length":
            yield from self._wire.pieces_of_length(int(response.header("Content-Length")))
        elif response.framing == "chunked":
            yield from self._wire.pieces_of_chunks(response.trailers)
        elif response.framing == "close":
            yield from self._wire.pieces_until_close()

    def read_response(self, method="POST"):
        response = self.read_head(method)
        for piece in self.read_pieces(response):
            response.body += piece
        return response

    def read_interim(self):
        """One 1xx response."""
        head = self._wire.take_until(b"\r\n\r\n")
        if head is None:
            raise Malformed("closed without an answer")
        response = Response(head)
        if response.status >= 200:
            raise Malformed(f"expected an interim response, got {response}")
        return response

    def read_exactly(self, count):
        """The next bytes, whatever they are: for a connection that carries no HTTP any more."""
        return b"".join(self._wire.pieces_of_length(count))

    def read_to_end(self):
        return b"".join(self._wire.pieces_until_close())

    def is_closed(self):
        """Waits for the peer's end; False if it sends anything else first."""
        if self._wire.ahead:
            return False
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    @staticmethod
    def _framing_of(response, method):
        length, coding = response.header("Content-Length"), response.header("Transfer-Encoding")
        if length is not None and coding is not None:
            raise Malformed(f"both framings: {response}")
        if length is not None and not length.isdigit():
            raise Malformed(f"a length that is none: {length}")
        if response.status == 204 and (length is not None or coding is not None):
            raise Malformed(f"framing on a 204: {response}")
        if method == "HEAD" or response.status in (204, 304):
            return "none"
        if coding is not None:
            if coding.lower() != "chunked" or response.version == "HTTP/1.0":
                raise Malformed(f"an unknown coding: {response}")
            return "chunked"
        return "length" if length is not None else "close"


class Client:
    """One account at the gateway. Every call is one request on a connection of its own unless it is given one."""

    def __init__(self, address, account="alice", tls_context=None, host="api.test", source=None):
        self.address = address
        self.account = account
        self.tls_context = tls_context
        self.host = host  # what the Host field says
        self.source = source  # the address it connects from, of 127.0.0.0/8

    def connect(self):
        return Connection(self.address, self.tls_context, source=self.source)

    def request_bytes(self, method, target, *, key=None, body=None, headers=(), authorization=True, version="HTTP/1.1"):
        body = body.encode() if isinstance(body, str) else body
        fields = [("Host", self.host)]
        if authorization:
            fields.append(("Authorization", f"Bearer {self.account}"))
        if key is not None:
            fields.append(("Idempotency-Key", key))
        fields.extend(headers)
        if body is not None:
            if not any(name.lower() == "content-type" for name, _ in fields):
                fields.append(("Content-Type", "application/json"))
            fields.append(("Content-Length", str(len(body))))
        return render_head(f"{method} {target} {version}", fields) + (body or b"")

    def request(self, method, target, *, connection=None, **options):
        message = self.request_bytes(method, target, **options)
        if connection is not None:
            connection.send(message)
            return connection.read_response(method)
        with self.connect() as connection:
            connection.send(message)
            return connection.read_response(method)

    def post(self, target="/charges", *, key=None, body=b'{"amount":100}', **options):
        return self.request("POST", target, key=key, body=body, **options)

    def get(self, target, **options):
        return self.request("GET", target, **options)

    def post_in_background(self, target="/charges", **options):
        return Background(lambda: self.post(target, **options))

    def exchange(self, raw, method="POST"):
        """Sends these bytes; returns the answer and whether the gateway closed the connection after it."""
        with self.connect() as connection:
            connection.send(raw)
            response = connection.read_response(method)
            announced = (response.header("Connection") or "").lower() == "close"
            return response, announced and connection.is_closed()
