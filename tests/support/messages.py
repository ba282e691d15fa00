"""HTTP/1.1 messages as the tests see them: parsed strictly, with nothing repaired and nothing hidden."""

import json


class Malformed(AssertionError):
    """The peer sent something that is not HTTP/1.1. On the client's side this is a bug of the gateway."""


class Message:
    """What requests and responses share: fields in order, with their case, and a body."""

    def __init__(self, raw_head, headers):
        self.raw_head = raw_head
        self.headers = headers
        self.body = b""
        self.trailers = []

    def all(self, name):
        return [value for field, value in self.headers if field.lower() == name.lower()]

    def header(self, name):
        """The only value of that name, or None. Two lines of it are an error: ask for `all` where they are allowed."""
        values = self.all(name)
        if len(values) > 1:
            raise Malformed(f"{len(values)} lines of {name}: {values}")
        return values[0] if values else None

    def has(self, name):
        return bool(self.all(name))

    def json(self):
        return json.loads(self.body)


def parse_fields(lines):
    fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip() or b"\n" in line or b"\r" in line or b"\0" in line:
            raise Malformed(f"not a field line: {line!r}")
        fields.append((name.decode("latin-1"), value.strip(b" \t").decode("latin-1")))
    return fields


def split_head(head):
    """Start line and field lines of a head that ends in an empty line; every line must end in CRLF."""
    if not head.endswith(b"\r\n\r\n"):
        raise Malformed(f"a head without its end: {head!r}")
    lines = head[:-4].split(b"\r\n")
    for line in lines:
        if b"\n" in line or b"\r" in line:
            raise Malformed(f"a bare line break in {line!r}")
    return lines[0], lines[1:]


class Wire:
    """A socket with what was read ahead."""

    def __init__(self, sock):
        self.socket = sock
        self.ahead = b""

    def _fill(self):
        piece = self.socket.recv(65536)
        self.ahead += piece
        return bool(piece)

    def take_until(self, end, limit=1 << 20):
        """Up to and with `end`; None when the peer closed before the first byte."""
        while end not in self.ahead:
            if len(self.ahead) > limit:
                raise Malformed(f"no {end!r} within {limit} bytes")
            if not self._fill():
                if not self.ahead:
                    return None
                raise Malformed(f"closed in the middle of {self.ahead!r}")
        at = self.ahead.index(end) + len(end)
        taken, self.ahead = self.ahead[:at], self.ahead[at:]
        return taken

    def take_some(self, at_most):
        """At least one byte and at most so many; empty at the end of the stream."""
        if not self.ahead:
            self._fill()
        taken, self.ahead = self.ahead[:at_most], self.ahead[at_most:]
        return taken

    def pieces_of_length(self, length):
        while length:
            piece = self.take_some(length)
            if not piece:
                raise Malformed(f"the body ended {length} bytes early")
            length -= len(piece)
            yield piece

    def pieces_of_chunks(self, trailers):
        while True:
            line = self.take_until(b"\r\n")
            if line is None:
                raise Malformed("the body ended between two chunks")
            size = line[:-2].split(b";")[0].strip()
            if not size or any(digit not in b"0123456789abcdefABCDEF" for digit in size):
                raise Malformed(f"not a chunk size: {line!r}")
            length = int(size, 16)
            if length == 0:
                break
            yield from self.pieces_of_length(length)
            if self.take_until(b"\r\n") != b"\r\n":
                raise Malformed("a chunk longer than its size")
        while True:
            line = self.take_until(b"\r\n")
            if line == b"\r\n":
                return
            if line is None:
                raise Malformed("the body ended in its trailers")
            trailers.extend(parse_fields([line[:-2]]))

    def pieces_until_close(self):
        while True:
            piece = self.take_some(65536)
            if not piece:
                return
            yield piece


def render_head(start_line, headers):
    lines = [start_line] + [f"{name}: {value}" for name, value in headers]
    return "".join(line + "\r\n" for line in lines).encode("latin-1") + b"\r\n"


def chunk(data):
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


LAST_CHUNK = b"0\r\n\r\n"
