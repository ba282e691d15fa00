"""Connections: keep-alive, pipelining, streaming without buffering, limits, time-outs and TLS."""

import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import GatewayTest, fresh_key
from support.client import Client
from support.gateway import Gateway
from support.messages import LAST_CHUNK, Malformed, chunk, render_head
from support.upstream import Upstream, answers, at_head, held, never_answers, streams
from support.waiting import PATIENCE_SECONDS, poll_until
from support.websockets import echo, open_websocket, switches

CLASSIC = [{"path": "/*", "policy": "classic"}]


class KeepAliveTest(GatewayTest):
    def test_one_connection_serves_many_requests(self):
        with self.client.connect() as connection:
            first = self.post(connection=connection)
            self.assert_replay_of(first, self.post(connection=connection))
            self.assertEqual(self.post(body=b"other", connection=connection).status, 422)
            self.assert_first(self.client.get("/x", connection=connection))

    def test_the_upstreams_connections_are_reused(self):
        before = self.upstream.connections
        with self.client.connect() as connection:
            for _ in range(10):
                self.client.get("/x", connection=connection)
        self.assertLessEqual(self.upstream.connections - before, 3)

    def test_close_is_honoured(self):
        with self.client.connect() as connection:
            response = self.client.get("/x", connection=connection, headers=[("Connection", "close")])
            self.assertEqual(response.header("Connection"), "close")
            self.assertTrue(connection.is_closed())

    def test_pipelined_requests_are_answered_in_order(self):
        self.upstream.always(lambda exchange: answers(200, exchange.request.target)(exchange))
        with self.client.connect() as connection:
            connection.send(b"".join(self.client.request_bytes("GET", f"/{number}") for number in range(5)))
            bodies = [connection.read_response("GET").body for _ in range(5)]
        self.assertEqual(bodies, [b"/0", b"/1", b"/2", b"/3", b"/4"])

    def test_pipelined_posts_of_one_key_execute_once(self):
        with self.client.connect() as connection:
            connection.send(self.client.request_bytes("POST", "/charges", key=self.key, body=b"{}") * 3)
            replies = [connection.read_response() for _ in range(3)]
        self.assert_first(replies[0])
        for reply in replies[1:]:
            self.assert_replay_of(replies[0], reply)
        self.assert_executed(1)

    def test_a_pipelined_request_behind_a_body_starts_where_the_body_ends(self):
        with self.client.connect() as connection:
            chunked = self.client.request_bytes("POST", "/a", headers=[("Transfer-Encoding", "chunked")])
            connection.send(chunked + chunk(b"GET /evil HTTP/1.1\r\n\r\n") + LAST_CHUNK)
            connection.send(self.client.request_bytes("GET", "/b"))
            connection.read_response()
            connection.read_response("GET")
        self.assertEqual([request.target for request in self.upstream.received], ["/a", "/b"])


class StreamingTest(GatewayTest):
    first = b"f" * (64 << 10)  # from here on a body streams; a shorter one is read whole before it is sent on

    def wait_for_first_piece(self):
        self.upstream.wait_for(lambda: any(request.body == self.first for request in self.upstream.received),
                               "the first piece at the upstream")

    def test_the_upstream_sees_the_first_piece_before_the_client_sends_the_second(self):
        with self.client.connect() as connection:
            connection.send(self.client.request_bytes("POST", "/upload", headers=[("Transfer-Encoding", "chunked")]))
            connection.send(chunk(self.first))
            self.wait_for_first_piece()
            connection.send(chunk(b"second") + LAST_CHUNK)
            self.assertEqual(connection.read_response().status, 201)
        self.assertEqual(self.upstream.last.body, self.first + b"second")

    def test_a_body_with_a_length_streams_too_and_keeps_it(self):
        length = str(len(self.first) + 6)
        with self.client.connect() as connection:
            connection.send(self.client.request_bytes("POST", "/upload", headers=[("Content-Length", length)]))
            connection.send(self.first)
            self.wait_for_first_piece()
            connection.send(b"second")
            connection.read_response()
        self.assertEqual(self.upstream.last.header("Content-Length"), length)

    def test_a_short_body_is_whole_before_the_upstream_is_called(self):
        before = self.upstream.connections
        with self.client.connect() as connection:
            connection.send(self.client.request_bytes("POST", "/upload", headers=[("Transfer-Encoding", "chunked")]))
            connection.send(chunk(b"first"))
            self.assertEqual(self.client.get("/other").status, 201)
            self.assertEqual([request.target for request in self.upstream.received], ["/other"])
            connection.send(chunk(b"second") + LAST_CHUNK)
            self.assertEqual(connection.read_response().status, 201)
        self.assertLessEqual(self.upstream.connections - before, 2)
        self.assertEqual(self.upstream.last.body, b"firstsecond")

    def test_the_client_sees_the_first_piece_before_the_upstream_sends_the_second(self):
        gate = self.upstream.gate()
        self.upstream.will(streams(gate, [b"first", b"second"]))
        with self.client.connect() as connection:
            connection.send(self.client.request_bytes("GET", "/download"))
            pieces = connection.read_pieces(connection.read_head("GET"))
            self.assertEqual(next(pieces), b"first")
            gate.open()
            self.assertEqual(b"".join(pieces), b"second")

    def test_a_large_body_passes_both_ways_unharmed(self):
        body = bytes(range(256)) * (40 << 10 >> 2)  # 2.5 MiB: more than any buffer on the way
        self.upstream.always(lambda exchange: answers(200, exchange.request.body)(exchange))
        self.assertEqual(self.client.post("/echo", body=body).body, body)
        self.assertEqual(self.post("/echo", body=body).body, body)

    def test_a_client_that_leaves_in_the_middle_of_its_body_executes_nothing(self):
        for key in (None, self.key):
            with self.client.connect() as connection:
                connection.send(self.client.request_bytes("POST", "/upload", key=key,
                                                          headers=[("Content-Length", "11")]) + b"first")
        self.assert_first(self.client.get("/after"))
        self.assertEqual(self.upstream.executions(self.key), 0)
        self.assertTrue(all(request.complete is (request.target == "/after") for request in self.upstream.received))


class LimitsTest(GatewayTest):
    settings = {
        "limits": {"max_connections": 8, "max_header_bytes": "4KiB"},
        "timeouts": {"request_headers": "500ms", "request_body": "500ms", "idle": "1s"},
    }
    routes = [
        {"path": "/small/*", "policy": "classic", "max_request_body": "1KiB"},
        {"path": "/*", "policy": "classic", "upstream_timeout": "2s"},
    ]

    def setUp(self):
        super().setUp()
        self.wait_until_no_connection_is_left()

    def wait_until_no_connection_is_left(self):
        """One address may have two of the eight: those of the test before would have the next one's shed."""
        poll_until(lambda: self.gateway.metric("oncekey_connections") == 0, "connections to be free again")

    def test_a_head_too_large_is_refused_with_431(self):
        big = self.client.request_bytes("GET", "/x", headers=[("X-Big", "x" * 5000)])
        response, closed = self.client.exchange(big, "GET")
        self.assertEqual(response.status, 431)
        self.assertTrue(closed)
        self.assert_executed(0)

    def test_a_target_too_long_is_refused(self):
        response, _ = self.client.exchange(self.client.request_bytes("GET", "/" + "x" * 9000), "GET")
        self.assertIn(response.status, (414, 431))

    def test_a_keyed_body_too_large_is_refused_with_413(self):
        self.assert_problem(self.post("/small/x", body=b"x" * 2000), 413, "request_too_large")
        self.assert_executed(0)

    def test_a_head_that_does_not_end_is_refused_with_408(self):
        with self.client.connect() as connection:
            connection.send("POST /x HTTP/1.1\r\nHost: a\r\n")
            self.assertEqual(connection.read_response().status, 408)
            self.assertTrue(connection.is_closed())

    def test_a_keyed_body_that_does_not_end_is_refused_with_408_and_nothing_executed(self):
        with self.client.connect() as connection:
            connection.send(self.client.request_bytes("POST", "/x", key=self.key,
                                                      headers=[("Content-Length", "10")]) + b"half")
            self.assertEqual(connection.read_response().status, 408)
        self.assert_executed(0)
        self.assert_first(self.post("/x"))

    def test_an_idle_connection_is_closed_without_a_word(self):
        with self.client.connect() as connection:
            self.client.get("/x", connection=connection)
            self.assertTrue(connection.is_closed())

    def test_an_unkeyed_call_beyond_the_limit_on_calls_is_told_of_the_limit(self):
        with Gateway(self.upstream.url, CLASSIC, limits={"max_upstream_connections": 1}) as gateway:
            gate = self.upstream.gate()
            self.upstream.will(held(gate, answers(200, b"")))
            running = gateway.client().post_in_background("/x")
            gate.wait_for_arrival()
            refused = gateway.client().get("/y")
            self.assertEqual(refused.status, 503)
            self.assertIn("as many calls", refused.json()["detail"])
            gate.open()
            running.result()

    def test_an_unkeyed_call_that_takes_too_long_is_given_up_with_504(self):
        self.upstream.will(never_answers())
        self.assertEqual(self.client.post("/x").status, 504)

    def test_more_connections_than_allowed_are_shed_with_503_and_the_rest_served(self):
        crowd = []
        try:
            shed = None
            for _ in range(20):
                connection = self.client.connect()
                crowd.append(connection)
                try:
                    response = self.client.get("/x", connection=connection)
                except (Malformed, OSError):
                    continue  # closed for idling meanwhile
                if response.status == 503:
                    shed = response
                    break
            self.assertIsNotNone(shed, "nobody was shed")
        finally:
            for connection in crowd:
                connection.socket.close()
        self.wait_until_no_connection_is_left()
        self.assert_first(self.client.get("/x"))


class SlowClient:
    """A connection whose receiver takes next to nothing by itself, so that what is not read stays at the gateway."""

    def __init__(self, address):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.connect(address)

    def read_to_the_end(self, at_once, pause):
        """Everything until the end of the stream, so much at a time."""
        received = b""
        while piece := self.socket.recv(at_once):
            received += piece
            time.sleep(pause)
        return received


class BufferedBytesTest(GatewayTest):
    settings = {"limits": {"max_buffered_bytes": "8MiB"}}
    routes = [{"path": "/*", "policy": "classic", "max_request_body": "1MiB", "max_stored_body": "6MiB"}]
    long_answer = b"x" * 6_000_000  # more than the sockets' buffers take in

    def fill_with_an_unread_replay(self):
        """Has the test's key answered at length, and retries it without reading; returns the first answer."""
        self.upstream.will(answers(201, self.long_answer))
        first = self.post()
        slow = SlowClient(self.gateway.address)
        self.addCleanup(slow.socket.close)
        slow.socket.sendall(self.client.request_bytes("POST", "/charges", key=self.key, body=b'{"amount":100}'))
        self.assertEqual(slow.socket.recv(12, socket.MSG_WAITALL), b"HTTP/1.1 201")
        refused = poll_until(lambda: self.refused_retry(), "a replay to be refused", seconds=10)
        self.assert_problem(refused, 503, "overloaded")
        self.assert_retry_after(refused)
        return first, slow

    def refused_retry(self):
        retry = self.post()
        return retry if retry.status == 503 else None

    def test_a_replay_counts_until_its_client_has_taken_it(self):
        first, slow = self.fill_with_an_unread_replay()
        slow.socket.close()
        again = poll_until(lambda: (lambda retry: retry if retry.status == 201 else None)(self.post()), "room again")
        self.assert_replay_of(first, again)
        self.assert_executed(1)

    def test_a_long_first_answer_without_room_streams_through_and_is_not_executed_again(self):
        _, slow = self.fill_with_an_unread_replay()
        key = fresh_key()
        self.upstream.will(answers(201, self.long_answer))
        self.assertEqual(self.post(key=key).body, self.long_answer)
        self.assert_problem(self.post(key=key), 409, "answer_not_kept")
        short = fresh_key()
        self.assert_replay_of(self.post(key=short), self.post(key=short))
        slow.socket.close()
        self.assert_executed(3)


class SlowReaderTest(GatewayTest):
    settings = {"timeouts": {"write": "2s"}}

    def test_a_client_that_reads_slowly_and_steadily_gets_first_answer_and_replay_whole(self):
        body = b"x" * 8_000_000
        self.upstream.will(answers(201, body))
        for _ in range(2):
            slow = SlowClient(self.gateway.address)
            self.addCleanup(slow.socket.close)
            slow.socket.sendall(self.client.request_bytes("POST", "/charges", key=self.key, body=b"{}",
                                                          headers=[("Connection", "close")]))
            received = slow.read_to_the_end(64 << 10, 0.05)
            self.assertEqual(len(received.partition(b"\r\n\r\n")[2]), len(body))
        self.assert_executed(1)


class EarlyAnswerTest(GatewayTest):
    """The upstream answers without having read the body, as one does that finds it too long."""

    body = b"x" * 7_000_000
    too_large = staticmethod(answers(413, b"too large"))

    def post_and_retry(self):
        first = self.post(body=self.body)
        self.assertEqual((first.status, first.body), (413, b"too large"))
        self.assert_replay_of(first, self.post(body=self.body))
        self.assertEqual(len(self.upstream.received), 1)

    def test_the_answer_of_an_upstream_that_reads_no_further_is_the_outcome(self):
        gate = self.upstream.gate()

        def answers_and_waits(exchange):
            self.too_large(exchange)
            gate.pass_through()
            raise OSError("never reads the rest")

        self.upstream.will(at_head(answers_and_waits))
        self.post_and_retry()

    def test_the_answer_of_an_upstream_that_closes_on_the_rest_is_the_outcome(self):
        def answers_and_closes(exchange):
            self.too_large(exchange)
            raise OSError("closes on what was not read, which resets the connection")

        self.upstream.will(at_head(answers_and_closes))
        self.post_and_retry()

    def test_half_an_answer_before_the_end_is_an_unknown_outcome(self):
        def stops(exchange):
            exchange.send(render_head("HTTP/1.1 413 Too Large", [("Content-Length", "100")]) + b"half")
            raise OSError("closes")

        self.upstream.will(at_head(stops))
        self.assert_problem(self.post(body=self.body), 502, "upstream_unknown")
        self.assert_problem(self.post(body=self.body), 409, "in_progress")

    def test_an_answer_without_a_length_that_ends_in_a_reset_is_an_unknown_outcome(self):
        def stops(exchange):
            exchange.send(render_head("HTTP/1.1 201 Created", []) + b"half")
            raise OSError("closes")

        self.upstream.will(at_head(stops))
        self.assert_problem(self.post(body=self.body), 502, "upstream_unknown")

    def test_a_long_body_arrives_whole_and_its_connection_is_used_again(self):
        self.upstream.always(lambda exchange: answers(200, str(len(exchange.request.body)))(exchange))
        before = self.upstream.connections
        for _ in range(4):
            self.assertEqual(self.post(body=self.body, key=fresh_key()).body, b"7000000")
        self.assertLess(self.upstream.connections - before, 4)


@unittest.skipIf("ONCEKEY_MACHINE_FAULTS" not in os.environ, "ONCEKEY_MACHINE_FAULTS names no library to preload")
class SilentNameServerTest(unittest.TestCase):
    """Looking a name up cannot be interrupted; the library makes it last until the file it is told exists."""

    def test_a_name_that_is_not_resolved_in_time_is_a_call_that_was_not_sent(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        folder = tempfile.TemporaryDirectory(prefix="oncekey-lookup-")
        self.addCleanup(folder.cleanup)
        end = pathlib.Path(folder.name) / "end"
        environment = {"LD_PRELOAD": os.environ["ONCEKEY_MACHINE_FAULTS"], "ONCEKEY_END_LOOKUPS": str(end),
                       "ASAN_OPTIONS": "verify_asan_link_order=0"}
        gateway = Gateway(upstream.url.replace("127.0.0.1", "localhost"), CLASSIC, environment=environment,
                          timeouts={"connect": "300ms"})
        self.addCleanup(gateway.remove)
        gateway.start()
        self.addCleanup(end.touch)
        client = gateway.client()
        refused = client.post(key="k")
        self.assertEqual(refused.status, 503, refused.body)
        gateway.wait_for_log("not resolved in time")
        self.assertEqual(upstream.executions("k"), 0)
        end.touch()
        self.assertEqual(client.post(key="k").status, 201)


class WrongProtocolTest(GatewayTest):
    settings = {"timeouts": {"request_headers": "1h"}}

    def test_tls_on_a_plain_port_is_refused_at_once(self):
        with self.client.connect() as connection:
            with self.assertRaises(ssl.SSLError):
                ssl.create_default_context().wrap_socket(connection.socket, server_hostname="localhost")
        self.assertEqual(self.gateway.metric("oncekey_wrong_protocol_total", sent="tls"), 1)
        self.assertIn("use http://", self.gateway.wait_for_log("event=tls_on_a_plain_port"))


class TlsTest(unittest.TestCase):
    """Certificates are made by the openssl command for this run alone."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-tls-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.make_certificate("good", "localhost")
        cls.make_certificate("other", "localhost")
        cls.make_certificate("else", "else.test")

    @classmethod
    def make_certificate(cls, name, host):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}",
                        "-keyout", cls.file(name, "key"), "-out", cls.file(name, "crt")],
                       check=True, capture_output=True)

    @classmethod
    def file(cls, name, kind):
        return str(cls.folder / f"{name}.{kind}")

    def tls_upstream(self, certificate="good"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file(certificate, "crt"), self.file(certificate, "key"))
        upstream = Upstream(tls_context=context).start()
        self.addCleanup(upstream.stop)
        return upstream

    def test_the_listener_speaks_tls(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with Gateway(upstream.url, CLASSIC, tls_cert=self.file("good", "crt"),
                     tls_key=self.file("good", "key")) as gateway:
            trusting = ssl.create_default_context(cafile=self.file("good", "crt"))
            client = Client(gateway.address, tls_context=trusting)
            first = client.post(key="k-1")
            again = client.post(key="k-1")
            self.assertEqual((first.status, again.body, again.replayed), (201, first.body, True))
            self.assertEqual(upstream.last.header("X-Forwarded-Proto"), "https")
            with self.assertRaises((Malformed, OSError, AssertionError)):
                self.assertNotEqual(Client(gateway.address).post(key="k-2").status, 201)
                raise Malformed("answered in plain, but refused")
            self.assertEqual(upstream.executions(), 1)
            self.assertEqual(client.post(key="k-3").status, 201)

    def test_plain_http_on_a_tls_port_is_told_so(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with Gateway(upstream.url, CLASSIC, tls_cert=self.file("good", "crt"),
                     tls_key=self.file("good", "key")) as gateway:
            refused = gateway.client().get("/x")
            self.assertEqual((refused.status, refused.header("Connection")), (400, "close"))
            self.assertIn("https://", refused.json()["detail"])
            self.assertEqual(gateway.metric("oncekey_wrong_protocol_total", sent="http"), 1)
            gateway.wait_for_log("event=plain_http_on_a_tls_port")
        self.assertEqual(upstream.received, [])

    def test_a_websocket_through_tls_on_both_sides(self):
        upstream = self.tls_upstream()
        with Gateway(upstream.url, CLASSIC, upstream_ca=self.file("good", "crt"), tls_cert=self.file("good", "crt"),
                     tls_key=self.file("good", "key")) as gateway:
            trusting = ssl.create_default_context(cafile=self.file("good", "crt"))
            client = Client(gateway.address, tls_context=trusting)
            upstream.will(switches(echo, early=b"welcome"))
            connection, head = open_websocket(client, more=b"early")
            with connection:
                self.assertEqual(head.status, 101)
                self.assertEqual(connection.read_exactly(12), b"welcomeearly")
                piece = b"0123456789abcdef" * (4 << 10)
                for _ in range(16):  # in turn: a TLS connection of Python is for one thread
                    connection.send(piece)
                    self.assertEqual(connection.read_exactly(len(piece)), piece)
            poll_until(lambda: gateway.metric("oncekey_tunnels") == 0, "the tunnel to end")
            upstream.will(switches(lambda exchange: exchange.send(b"bye")))
            connection, head = open_websocket(client)
            with connection:
                self.assertEqual(connection.read_to_end(), b"bye")
            poll_until(lambda: gateway.metric("oncekey_tunnels") == 0, "the tunnel to end")

    def test_an_https_upstream_whose_certificate_is_trusted_is_used(self):
        upstream = self.tls_upstream()
        with Gateway(upstream.url, CLASSIC, upstream_ca=self.file("good", "crt")) as gateway:
            first = gateway.client().post(key="k-1")
            self.assertEqual((first.status, upstream.executions()), (201, 1))
            self.assertTrue(gateway.client().post(key="k-1").replayed)
            self.assertEqual(gateway.client().get("/x").status, 201)

    def test_an_https_upstream_whose_certificate_is_not_trusted_is_not_used(self):
        upstream = self.tls_upstream()
        with Gateway(upstream.url, CLASSIC, upstream_ca=self.file("other", "crt")) as gateway:
            self.assertIn(gateway.client().post(key="k-1").status, (502, 503))
            self.assertIn(gateway.client().get("/x").status, (502, 503))
            self.assertEqual(upstream.received, [])

    def test_h6_bytes_after_an_answer_over_tls_are_not_another_answer(self):
        real = render_head("HTTP/1.1 200 OK", [("Content-Length", "4")]) + b"real"
        extra = render_head("HTTP/1.1 200 OK", [("Content-Length", "5")]) + b"extra"

        all_sent = threading.Event()

        def in_two_records(exchange):
            exchange.send(real)
            exchange.send(extra)
            all_sent.set()

        upstream = self.tls_upstream()
        with Gateway(upstream.url, CLASSIC, upstream_ca=self.file("good", "crt"), threads=1) as gateway:
            client = gateway.client()
            for turn in range(5):
                all_sent.clear()
                upstream.will(in_two_records, answers(200, b"mine"))
                self.assertEqual(client.post(key=f"alices-{turn}").body, b"real")
                self.assertTrue(all_sent.wait(20))  # nobody can tell bytes that come after the next request from its answer
                self.assertEqual(client.post(key=f"bobs-{turn}").body, b"mine")

    def test_an_early_answer_over_tls_is_the_outcome(self):
        upstream = self.tls_upstream()
        gate = upstream.gate()
        body = b"x" * 7_000_000

        def answers_and_waits(exchange):
            answers(413, b"too large")(exchange)
            gate.pass_through()
            raise OSError("never reads the rest")

        with Gateway(upstream.url, CLASSIC, upstream_ca=self.file("good", "crt")) as gateway:
            client = gateway.client()
            upstream.will(at_head(answers_and_waits))
            self.assertEqual(client.post(key="k-1", body=body).body, b"too large")
            self.assertTrue(client.post(key="k-1", body=body).replayed)
            gate.open()
            for number in range(3):
                self.assertEqual(client.post(key=f"whole-{number}", body=body).status, 201)
                self.assertEqual(len(upstream.last.body), len(body))

    def test_a_certificate_for_another_name_is_not_trusted(self):
        upstream = self.tls_upstream("else")
        with Gateway(upstream.url, CLASSIC, upstream_ca=self.file("else", "crt")) as gateway:
            self.assertIn(gateway.client().post(key="k-1").status, (502, 503))
            self.assertEqual(upstream.received, [])


if __name__ == "__main__":
    unittest.main()
