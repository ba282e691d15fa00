"""A gateway that is replaced while clients use it: from process to process, by a service manager, and one of two on a
shared store after the other. No client sees an error, and nothing is executed twice, whichever gateway is killed, and whenever."""

import collections
import contextlib
import copy
import http.client
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.backends import PostgresBackend, RedisBackend
from support.cases import fresh_key
from support.client import Client
from support.gateway import Gateway, binary, free_port
from support.load import Load
from support.store_formats import STORE_FORMAT, set_meta_format
from support.upstream import Upstream, answers, held
from support.waiting import PATIENCE_SECONDS, Changing, poll_until
from support.websockets import echo, open_websocket, switches


class UpgradeTest(unittest.TestCase):
    def setUp(self):
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)

    def start(self, **settings):
        gateway = Gateway(self.upstream.url, store="journal", listen=f"127.0.0.1:{free_port()}",
                          admin=f"127.0.0.1:{free_port()}", **settings)
        self.addCleanup(gateway.remove)
        return gateway.start()

    def successor(self, gateway, environment=None, **settings):
        """A second process with the same folder and configuration, which is to take over."""
        new = copy.copy(gateway)
        new._state = Changing()
        new._lines = []
        new._process = None
        new._environment = environment or {}
        new.extra_flags = ["--take-over"]
        new.settings = {**gateway.settings, **settings}
        self.addCleanup(new.check_sanitizers)
        self.addCleanup(new.kill)
        return new

    def replace(self, gateway):
        return self.successor(gateway).start()

    def post(self, gateway, key):
        return gateway.client().post(key=key)

    def held_request(self, gateway):
        """One under the key `slow`, which the API has and answers once the gate is open."""
        gate = self.upstream.gate()
        self.upstream.will(held(gate, answers(201, b"slow")))
        slow = gateway.client().post_in_background(key="slow")
        gate.wait_for_arrival()
        return gate, slow

    def assert_executed_once(self, keys):
        executed = collections.Counter(request.key for request in list(self.upstream.received) if request.complete)
        self.assertEqual({key: executed[key] for key in keys if executed[key] != 1}, {})


class FromProcessToProcess(UpgradeTest):
    def test_no_client_notices_that_the_gateway_is_replaced(self):
        gateway = self.start()
        with gateway.client().connect() as idle:
            gateway.client().post(key="before", connection=idle)
            with Load(gateway.address) as load:
                for _ in range(3):
                    load.wait_for(50)
                    old, gateway = gateway, self.replace(gateway)
                    self.assertEqual(old.wait(), 0, old.log)
                    gateway.wait_for_log("event=took_over")
                    # The old one had let go of the store before it said so.
                    self.assertNotIn("event=store_in_use", gateway.log)
                load.wait_for(50)
            self.assertEqual(load.errors, [])
            # A connection that was idle all the time goes on as well.
            again = gateway.client().post(key="before", connection=idle)
            self.assertTrue(again.replayed, again)
        self.assert_executed_once([*load.keys, "before"])

    def test_a_request_under_way_is_answered_and_later_ones_wait_for_the_new_gateway(self):
        gateway = self.start(routes=[{"path": "/*", "policy": "classic", "wait": "15s"}])
        gate, slow = self.held_request(gateway)
        retry = gateway.client().post_in_background(key="slow")
        poll_until(lambda: gateway.metric("oncekey_waiters") == 1, "the retry to wait")
        new = self.successor(gateway)
        new._spawn()
        gateway.wait_for_log("event=draining")
        waiting = gateway.client().post_in_background(key="waiting")
        gate.open()
        self.assertEqual(slow.result().body, b"slow")
        self.assertTrue(retry.result().replayed)
        self.assertEqual(waiting.result().status, 201)
        self.assertEqual(gateway.wait(), 0)
        new._wait_for_listening()
        self.assertTrue(self.post(new, "slow").replayed)
        self.assert_executed_once(["slow", "waiting"])

    def test_every_idle_connection_of_every_listener_is_handed_over_once(self):
        gateway = self.start(outbox=f"127.0.0.1:{free_port()}",
                             destination=[{"name": "billing", "url": f"{self.upstream.url}/billing"}])
        with contextlib.ExitStack() as open_ones:
            connections = [open_ones.enter_context(gateway.client().connect()) for _ in range(3)]
            for number, connection in enumerate(connections):
                gateway.client().post(key=f"before-{number}", connection=connection)
            outbox = http.client.HTTPConnection(*gateway.outbox_address, timeout=PATIENCE_SECONDS)
            open_ones.callback(outbox.close)
            self.assertEqual(self.stage(outbox, "event"), 202)
            kept = outbox.sock
            new = self.replace(gateway)
            self.assertEqual(gateway.wait(), 0, gateway.log)
            self.assertIn(" connections=4", gateway.wait_for_log("event=handed_over"))
            self.assertIn(" connections=4", new.wait_for_log("event=took_over"))
            for number, connection in enumerate(connections):
                for _ in range(2):
                    self.assertTrue(gateway.client().post(key=f"before-{number}", connection=connection).replayed)
            self.assertEqual(self.stage(outbox, "event"), 200)  # known already
            self.assertIs(outbox.sock, kept)

    @staticmethod
    def stage(outbox, key):
        outbox.request("POST", "/outbox", b"{}", {"Oncekey-Destination": "billing", "Idempotency-Key": key})
        with outbox.getresponse() as answer:
            answer.read()
            return answer.status

    def test_a_listener_that_has_another_address_now_is_bound_there(self):
        gateway = self.start()
        new = self.successor(gateway, admin=f"127.0.0.1:{free_port()}").start()
        self.assertEqual(gateway.wait(), 0, gateway.log)
        self.assertEqual(self.post(new, fresh_key()).status, 201)
        self.assertNotEqual(new.admin_text, gateway.admin_text)
        self.assertEqual(new.admin.get("/readyz").status, 200)

    def test_a_request_that_does_not_end_delays_the_new_gateway_by_drain_timeout(self):
        gateway = self.start(drain_timeout="300ms")
        gate, _ = self.held_request(gateway)
        new = self.replace(gateway)
        self.assertEqual(gateway.wait(), 1, gateway.log)
        self.assertIn("drain_timeout passed", gateway.log)
        self.assertEqual(self.post(new, fresh_key()).status, 201)
        self.assertEqual(self.post(new, "slow").status, 409)
        gate.open()
        self.assert_executed_once(["slow"])

    def test_a_websocket_does_not_hold_up_clients_that_wait(self):
        gateway = self.start(drain_timeout="10m")
        self.upstream.will(switches(echo))
        connection, head = open_websocket(gateway.client())
        with connection:
            self.assertEqual(head.status, 101, head)
            self.replace(gateway)
            self.assertEqual(gateway.wait(), 0, gateway.log)
            self.assertEqual(connection.socket.recv(1), b"")

    def test_a_signal_meanwhile_does_not_cut_requests_short(self):
        gateway = self.start()
        gate, slow = self.held_request(gateway)
        new = self.successor(gateway)
        new._spawn()
        gateway.wait_for_log("event=draining")
        gateway.signal(signal.SIGTERM)  # a service manager that has not heard of the handover
        gate.open()
        self.assertEqual(slow.result().body, b"slow")
        self.assertEqual(gateway.wait(), 0, gateway.log)
        new._wait_for_listening()

    def test_with_tls_no_client_notices_it_either(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-test-"))
        self.addCleanup(shutil.rmtree, folder)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2", "-subj", "/CN=x", "-addext", "subjectAltName=DNS:localhost", "-keyout",
                        str(folder / "key"), "-out", str(folder / "cert")], check=True, capture_output=True)
        gateway = self.start(tls_cert=folder / "cert", tls_key=folder / "key", timeouts={"lame_duck": "300ms"})
        context = ssl.create_default_context(cafile=folder / "cert")
        with Load(gateway.address, tls_context=context) as load:
            for _ in range(2):
                load.wait_for(50)
                old, gateway = gateway, self.replace(gateway)
                self.assertEqual(old.wait(), 0, old.log)
            load.wait_for(50)
        self.assertEqual(load.errors, [])
        self.assert_executed_once(load.keys)

    def test_without_a_running_gateway_it_starts_as_usual(self):
        gateway = Gateway(self.upstream.url, store="journal", listen=f"127.0.0.1:{free_port()}")
        self.addCleanup(gateway.remove)
        gateway.extra_flags = ["--take-over"]
        gateway.start()
        self.assertEqual(self.post(gateway, fresh_key()).status, 201)

    def test_a_gateway_that_cannot_start_leaves_the_running_one_alone(self):
        gateway = self.start()
        for what, settings, reason in (
                ("a store that forgets", {"store": "memory:"}, "memory: forgets all keys"),
                ("another store", {"store": f"journal:{gateway.folder / 'other'}"}, "uses another store"),
                ("a missing certificate", {"tls_cert": "/nowhere.pem", "tls_key": "/nowhere.key"}, "nowhere"),
                ("rules that forget keys", {"scope": "header:X-Account"}, "--accept-identity-change")):
            with self.subTest(what):
                new = self.successor(gateway, **settings)
                self.assertNotEqual(new.start_expecting_refusal(), 0)
                self.assertIn(reason, new.log)
                self.assertNotIn("event=draining", gateway.log)
        gateway.config_file.write_text("")  # is not read again
        self.assertEqual(self.post(gateway, fresh_key()).status, 201)

    def test_a_store_format_of_a_later_version_is_refused_before_the_running_gateway_stops(self):
        gateway = self.start()
        set_meta_format(gateway.folder / "data", 99)
        new = self.successor(gateway)
        self.assertNotEqual(new.start_expecting_refusal(), 0)
        self.assertIn(f"has format 99, and this version of oncekey reads formats up to {STORE_FORMAT}", new.log)
        set_meta_format(gateway.folder / "data", STORE_FORMAT)
        self.assertNotIn("event=draining", gateway.log)
        self.assertEqual(self.post(gateway, fresh_key()).status, 201)


class Asked(UpgradeTest):
    """Of what a process says to a gateway that is no successor of its own version."""

    def ask(self, gateway, *words):
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(channel.close)
        channel.settimeout(PATIENCE_SECONDS)
        channel.connect(f"\0oncekey-handover/{os.geteuid()}/{gateway.address[0]}:{gateway.address[1]}")
        for word in words:
            channel.send(word.encode())
        return channel

    def test_only_one_process_takes_over_and_the_other_learns_which(self):
        gateway = self.start()
        first = self.ask(gateway)  # says nothing: it is stopped, or waits for its store
        new = self.successor(gateway)
        self.assertEqual(new.start_expecting_refusal(), 1)
        self.assertIn(f"process {os.getpid()} is taking over from the running gateway already", new.log)
        first.close()
        self.replace(gateway)
        self.assertEqual(gateway.wait(), 0, gateway.log)

    def test_another_version_and_another_store_are_refused(self):
        gateway = self.start()
        for word, reason in (("oncekey-handover 2 abc", "speaks another version of the handover"),
                             ("drain", "speaks another version"), ("oncekey-handover 1 abc", "uses another store")):
            with self.subTest(word):
                answer = self.ask(gateway, word).recv(4096).decode()
                self.assertRegex(answer, f"^refused the running gateway {reason}")
        self.assertNotIn("event=draining", gateway.log)
        self.ask(gateway).close()  # is no reason for a line in the log
        self.assertIn("uses another store", self.ask(gateway, "oncekey-handover 1 abc").recv(4096).decode())
        poll_until(lambda: gateway.log.count("event=handover_refused") == 4, "each refusal to be logged")
        self.assertEqual(self.post(gateway, fresh_key()).status, 201)


@unittest.skipIf("ONCEKEY_MACHINE_FAULTS" not in os.environ, "ONCEKEY_MACHINE_FAULTS names no library to preload")
class KilledInTheMiddle(UpgradeTest):
    """The steps are the messages of src/cli/handover.h."""

    @staticmethod
    def killed(when, message):
        return {"LD_PRELOAD": os.environ["ONCEKEY_MACHINE_FAULTS"], "ASAN_OPTIONS": "verify_asan_link_order=0",
                f"ONCEKEY_KILL_{when}_MESSAGE": message}

    def assert_remembers(self, gateway, key):
        """Of that key, and of a new one."""
        self.assertTrue(self.post(gateway, key).replayed)
        fresh = fresh_key()
        self.assertEqual(self.post(gateway, fresh).status, 201)
        self.assertTrue(self.post(gateway, fresh).replayed)
        self.assert_executed_once([key, fresh])

    def test_the_new_one(self):
        gateway = self.start()
        self.post(gateway, "kept")
        for when, message, starts_anew in (("BEFORE", "oncekey-handover", False), ("AFTER", "oncekey-handover", False),
                                           ("BEFORE", "drain", False), ("AFTER", "drain", True),
                                           ("BEFORE", "ready", True)):
            with self.subTest(f"{when.lower()} {message}"):
                starts = gateway.log.count("event=listening")
                new = self.successor(gateway, environment=self.killed(when, message))
                self.assertEqual(new.start_expecting_refusal(), -signal.SIGKILL)
                if starts_anew:
                    poll_until(lambda: gateway.log.count("event=listening") > starts, "the old one to start anew")
                self.assert_remembers(gateway, "kept")
                self.assertEqual(gateway.log.count("event=listening") > starts, starts_anew)
        self.replace(gateway)
        self.assertEqual(gateway.wait(), 0)

    def test_the_new_one_while_a_connection_waits_for_it(self):
        gateway = self.start()
        gate, slow = self.held_request(gateway)
        new = self.successor(gateway, environment=self.killed("AFTER", "drain"))
        self.assertEqual(new.start_expecting_refusal(), -signal.SIGKILL)
        gateway.wait_for_log("event=draining")
        waiting = gateway.client().post_in_background(key="waiting")
        gate.open()
        self.assertEqual(slow.result().body, b"slow")
        self.assertEqual(waiting.result().status, 201)
        self.assertIn("event=handover_failed", gateway.log)
        self.assert_executed_once(["slow", "waiting"])

    def test_the_old_one(self):
        steps = [("BEFORE", "listener"), ("AFTER", "listener"), ("BEFORE", "granted"), ("AFTER", "granted"),
                 ("BEFORE", "released"), ("AFTER", "released")]
        gateway = self.start(environment=self.killed(*steps[0]))
        self.post(gateway, "kept")
        for step, following in zip(steps, [*steps[1:], None]):
            with self.subTest(" ".join(step)):
                environment = self.killed(*following) if following else None
                new = self.successor(gateway, environment=environment)
                new.start()
                self.assertEqual(gateway.wait(), -signal.SIGKILL)
                gateway = new
                self.assert_remembers(gateway, "kept")

    def test_the_old_one_under_load_executes_nothing_twice(self):
        gateway = self.start(environment=self.killed("AFTER", "released"))
        with Load(gateway.address) as load:
            new = self.replace(gateway)
            self.assertEqual(gateway.wait(), -signal.SIGKILL)
            # Some clients have seen an error: their gateway was killed.
            poll_until(lambda: len(load.keys) > 60, "the load to go on")
        replies = [Client(new.address, "load").post(key=key, body="{}") for key in load.keys[:50]]
        self.assertEqual([reply for reply in replies if not reply.replayed], [])
        self.assert_executed_once(load.keys)


class ServiceManagerStandIn:
    """Holds the listening sockets, and hears what the gateway says of itself."""

    def __init__(self, folder):
        self.sockets = []
        for _ in range(2):
            listening = socket.socket()
            listening.bind(("127.0.0.1", 0))
            listening.listen(128)
            self.sockets.append(listening)
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notices.bind(str(folder / "notify"))
        self.notices.settimeout(PATIENCE_SECONDS)
        self.folder = folder

    def close(self):
        for each in (*self.sockets, self.notices):
            each.close()

    @property
    def address(self):
        return self.sockets[0].getsockname()

    def start(self, config, **environment):
        def pass_sockets():
            passed = [os.dup(listening.fileno()) for listening in self.sockets]
            high = [os.dup2(number, 100 + at, inheritable=True) for at, number in enumerate(passed)]
            for at, number in enumerate(high):
                os.dup2(number, 3 + at, inheritable=True)

        command = f'LISTEN_PID=$$ exec "{binary()}" serve --config "{config}"'
        return subprocess.Popen(["/bin/sh", "-c", command], cwd=self.folder, close_fds=False, preexec_fn=pass_sockets,
                                stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                env={**os.environ, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "gateway:admin",
                                     "NOTIFY_SOCKET": str(self.folder / "notify"), **environment})

    def hears(self, line):
        """Skips what comes before the notice with that line; returns it."""
        while True:
            notice = self.notices.recv(4096).decode().splitlines()
            if line in notice:
                return notice


class ByAServiceManager(UpgradeTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.manager = ServiceManagerStandIn(self.folder)
        self.addCleanup(self.manager.close)
        self.config = self.folder / "oncekey.toml"
        self.config.write_text(f'listen = "127.0.0.1:1"\nadmin = "127.0.0.1:2"\nupstream = "{self.upstream.url}"\n'
                               f'store = "journal:{self.folder}/data"\n[timeouts]\nlame_duck = "300ms"\n')

    def run_gateway(self, **environment):
        process = self.manager.start(self.config, **environment)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        # Or its log would fill the pipe.
        threading.Thread(target=lambda: [None for _ in process.stderr], daemon=True).start()
        return process

    def test_a_restart_on_inherited_sockets_is_not_noticed(self):
        process = self.run_gateway()
        self.manager.hears("READY=1")
        with Load(self.manager.address) as load:
            for _ in range(2):
                load.wait_for(50)
                process.send_signal(signal.SIGTERM)
                self.manager.hears("STOPPING=1")
                self.assertEqual(process.wait(PATIENCE_SECONDS), 0)
                process = self.run_gateway()
                self.manager.hears("READY=1")
            load.wait_for(50)
        self.assertEqual(load.errors, [])
        self.assert_executed_once(load.keys)

    def test_it_hears_of_reloads_and_that_the_loops_turn(self):
        process = self.run_gateway(WATCHDOG_USEC="300000")
        notice = self.manager.hears("READY=1")
        self.assertIn(f"STATUS=serving 127.0.0.1:{self.manager.address[1]}, operators at 127.0.0.1:"
                      f"{self.manager.sockets[1].getsockname()[1]}", notice)
        self.manager.hears("WATCHDOG=1")
        self.manager.hears("WATCHDOG=1")
        process.send_signal(signal.SIGHUP)
        reloading = self.manager.hears("RELOADING=1")
        self.assertTrue(any(line.startswith("MONOTONIC_USEC=") for line in reloading), reloading)
        self.manager.hears("READY=1")

    def test_a_socket_with_an_unknown_name_is_refused(self):
        process = self.manager.start(self.config, LISTEN_FDNAMES="gateway:console")
        _, log = process.communicate(timeout=PATIENCE_SECONDS)
        self.assertEqual(process.returncode, 1)
        self.assertIn(b'LISTEN_FDNAMES: expected gateway, admin or outbox for each socket, got \\"console\\"', log)


class Balancer:
    """In front of two gateways: a new connection goes to one that says it is ready, in turns."""

    def __init__(self, gateways):
        self._gateways = gateways
        self._ready = Changing()
        self._is_ready = [False] * len(gateways)
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = self._listener.getsockname()
        for work in (self._look, self._accept):
            threading.Thread(target=work, daemon=True).start()

    def stop(self):
        self._stop.set()
        self._listener.close()

    def wait_until_ready(self, which):
        self._ready.wait_until(lambda: self._is_ready[which], "a gateway to be ready")

    def _look(self):
        while not self._stop.wait(0.02):
            for at, gateway in enumerate(self._gateways):
                try:
                    ready = Client(gateway.admin_address, host=gateway.admin_text).get(
                        "/readyz", authorization=False).status == 200
                except (OSError, AssertionError, ValueError):
                    ready = False
                with self._ready:
                    self._is_ready[at] = ready

    def _accept(self):
        turn = 0
        while not self._stop.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            turn += 1
            order = [(turn + at) % len(self._gateways) for at in range(len(self._gateways))]
            self._ready.wait_until(lambda: any(self._is_ready), "any gateway to be ready")
            chosen = next(at for at in order if self._is_ready[at])
            try:
                server = socket.create_connection(self._gateways[chosen].address)
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client, server):
        with client, server:
            back = threading.Thread(target=self._pass_on, args=(server, client), daemon=True)
            back.start()
            self._pass_on(client, server)
            back.join()

    @staticmethod
    def _pass_on(one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)


class OneAfterTheOther:
    """Two gateways on a shared store."""

    def test_a_rolling_restart_is_not_noticed(self):
        backend = self.make_backend().start()
        self.addCleanup(backend.remove)
        gateways = []
        for _ in range(2):
            gateway = Gateway(self.upstream.url, store=backend.url, listen=f"127.0.0.1:{free_port()}",
                              admin=f"127.0.0.1:{free_port()}", timeouts={"lame_duck": "500ms"})
            self.addCleanup(gateway.remove)
            gateways.append(gateway.start())
        balancer = Balancer(gateways)
        self.addCleanup(balancer.stop)
        with Load(balancer.address) as load:
            for at, gateway in enumerate(gateways):
                load.wait_for(50)
                gateway.stop()
                gateway.start()
                balancer.wait_until_ready(at)
            load.wait_for(50)
            # And one by the other way: the new process accepts before the old one stops.
            self.replace(gateways[0])
            self.assertEqual(gateways[0].wait(), 0, gateways[0].log)
            load.wait_for(50)
        self.assertEqual(load.errors, [])
        self.assert_executed_once(load.keys)


class OneAfterTheOtherOnRedis(OneAfterTheOther, UpgradeTest):
    make_backend = RedisBackend


class OneAfterTheOtherOnPostgres(OneAfterTheOther, UpgradeTest):
    make_backend = PostgresBackend


if __name__ == "__main__":
    unittest.main()
