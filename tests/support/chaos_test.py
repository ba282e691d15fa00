"""The chaos proxy before a server that echoes: each of its tricks does what it says, and passing bytes comes back."""

import pathlib
import socket
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.chaos import ChaosProxy
from support.waiting import PATIENCE_SECONDS, Changing, poll_until


class EchoServer:
    """Answers every piece with the same piece, and remembers all it got."""

    def __init__(self):
        self._state = Changing()
        self.received = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        try:
            while piece := sock.recv(65536):
                with self._state:
                    self.received += piece
                sock.sendall(piece)
        except OSError:
            pass
        sock.close()

    def wait_for(self, text):
        self._state.wait_until(lambda: text in self.received, f"{text!r} at the server")

    def stop(self):
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # stopped before
        self._listener.close()


class ChaosProxyTest(unittest.TestCase):
    def setUp(self):
        self.server = EchoServer()
        self.addCleanup(self.server.stop)
        self.proxy = ChaosProxy(self.server.port).start()
        self.addCleanup(self.proxy.stop)

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.proxy.port), timeout=PATIENCE_SECONDS)
        self.addCleanup(sock.close)
        return sock

    @staticmethod
    def ask(sock, text):
        """The echo of it; nothing when the connection ended first."""
        echo = b""
        try:
            sock.sendall(text)
            while len(echo) < len(text):
                piece = sock.recv(65536)
                if not piece:
                    break
                echo += piece
        except ConnectionError:
            pass
        return echo

    def assert_it_recovers(self):
        self.assertEqual(self.ask(self.connect(), b"again"), b"again")

    def test_bytes_pass_in_both_directions(self):
        sock = self.connect()
        self.assertEqual(self.ask(sock, b"one"), b"one")
        self.assertEqual(self.ask(sock, b"x" * 300000), b"x" * 300000)

    def test_the_end_of_a_stream_is_passed_on(self):
        sock = self.connect()
        self.ask(sock, b"one")
        sock.shutdown(socket.SHUT_WR)
        self.assertEqual(sock.recv(1), b"")
        poll_until(lambda: self.proxy.open_connections == 0, "the link to be gone")

    def test_a_delay_lets_everything_through_in_the_end(self):
        sock = self.connect()
        self.proxy.delay(0.05)
        self.assertEqual(self.ask(sock, b"one"), b"one")

    def test_a_stall_answers_nobody_until_it_ends(self):
        old = self.connect()
        self.assertEqual(self.ask(old, b"one"), b"one")
        self.proxy.stall()
        for sock in (old, self.connect()):
            sock.sendall(b"two")
            sock.settimeout(0.2)
            with self.assertRaises(TimeoutError):
                sock.recv(1)
        self.assertNotIn(b"two", self.server.received)
        self.proxy.go_on()
        old.settimeout(PATIENCE_SECONDS)
        self.assertEqual(old.recv(3), b"two")

    def test_a_cut_resets_every_connection_and_new_ones_work(self):
        socks = [self.connect(), self.connect()]
        for sock in socks:
            self.ask(sock, b"one")
        self.proxy.cut()
        for sock in socks:
            self.assertEqual(self.ask(sock, b"two"), b"")
        self.assert_it_recovers()

    def test_refused_until_allowed_again(self):
        sock = self.connect()
        self.ask(sock, b"one")
        self.proxy.refuse()
        self.assertEqual(self.ask(sock, b"two"), b"")
        with self.assertRaises(ConnectionRefusedError):
            self.connect()
        self.proxy.allow()
        self.assert_it_recovers()

    def test_a_lost_answer_was_carried_out(self):
        self.proxy.lose_answer(b"COMMIT")
        sock = self.connect()
        self.assertEqual(self.ask(sock, b"BEGIN"), b"BEGIN")
        self.assertEqual(self.ask(sock, b"COMMIT"), b"")
        self.server.wait_for(b"COMMIT")
        self.proxy.wait_until_fired()
        self.assertEqual(self.ask(self.connect(), b"COMMIT"), b"COMMIT", "only once")

    def test_an_answer_is_lost_only_when_it_says_that_all_is_done(self):
        self.proxy.lose_answer(b"first", answered=b"done")
        sock = self.connect()
        sock.sendall(b"first")
        self.server.wait_for(b"first")
        self.assertEqual(self.proxy.fired, 0)
        self.assertEqual(self.ask(sock, b"done"), b"")
        self.proxy.wait_until_fired()

    def test_a_lost_request_never_arrives(self):
        self.proxy.lose_request(b"COMMIT")
        sock = self.connect()
        self.assertEqual(self.ask(sock, b"BEGIN"), b"BEGIN")
        self.assertEqual(self.ask(sock, b"COMMIT"), b"")
        self.assertNotIn(b"COMMIT", self.server.received)
        self.assert_it_recovers()

    def test_a_marker_in_two_pieces_is_seen(self):
        self.proxy.lose_answer(b"COMMIT")
        sock = self.connect()
        self.assertEqual(self.ask(sock, b"xxCOM"), b"xxCOM")
        self.assertEqual(self.ask(sock, b"MITyy"), b"")
        self.proxy.wait_until_fired()

    def test_bytes_written_in_hexadecimal_are_known_too(self):
        self.proxy.lose_answer(b"COMMIT")
        self.assertEqual(self.ask(self.connect(), b"COMMIT".hex().encode()), b"")

    def test_several_servers_share_what_is_to_happen(self):
        with ChaosProxy(self.server.port, self.server.port) as both:
            both.lose_answer(b"x")
            first, second = (socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
                             for port in both.ports)
            with first, second:
                self.assertEqual(self.ask(second, b"x"), b"")
                self.assertEqual(self.ask(first, b"x"), b"x")

    def test_a_server_that_is_gone_closes_the_client(self):
        self.server.stop()
        sock = self.connect()
        self.assertEqual(self.ask(sock, b"one"), b"")


if __name__ == "__main__":
    unittest.main()
