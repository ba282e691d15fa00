"""WebSocket handshakes, without the frames: to the gateway what follows a handshake is bytes."""

import base64
import hashlib

from support.messages import render_head

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = base64.b64encode(hashlib.sha1((KEY + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()

ASKS = [("Connection", "keep-alive, Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", KEY), ("Sec-WebSocket-Protocol", "chat")]


def switches(then, early=b"", upgrade="websocket", connection="Upgrade"):
    """A behaviour of an upstream that answers 101, with `early` in the same write, and goes on with `then`."""

    def behave(exchange):
        exchange.close()
        fields = [("Connection", connection), ("Upgrade", upgrade), ("Sec-WebSocket-Accept", ACCEPT),
                  ("Sec-WebSocket-Protocol", "chat")]
        exchange.send(render_head("HTTP/1.1 101 Switching Protocols", fields) + early)
        then(exchange)

    return behave


def echo(exchange):
    while True:
        piece = exchange.wire.take_some(65536)
        if not piece:
            return
        exchange.send(piece)


def answer_after_the_end(exchange):
    """Reads to the end of what comes, then says how much it was."""
    exchange.send(str(sum(len(piece) for piece in exchange.wire.pieces_until_close())).encode())


def open_websocket(client, target="/ws", more=b"", headers=()):
    """A connection on which the handshake has succeeded, and the answer to it. `more` follows in the same write."""
    connection = client.connect()
    connection.send(client.request_bytes("GET", target, headers=ASKS + list(headers)) + more)
    return connection, connection.read_head("GET")
