"""The gateway as a process: started on free ports with a configuration, watched through its log, always stopped."""

import contextlib
import datetime
import itertools
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

from support.client import Client
from support.waiting import PATIENCE_SECONDS, Changing, GaveUpWaiting, poll_until

PROJECT = pathlib.Path(__file__).resolve().parents[2]

# What a sanitizer prints when it found something; any of it fails the test that stops the gateway.
SANITIZER_REPORTS = re.compile(r"(ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:).*")


def binary():
    return os.environ.get("ONCEKEY_BINARY", str(PROJECT / "build" / "release" / "oncekey"))


# Below those the kernel takes for outgoing connections, of which tests make thousands. A process is given each of them
# once, and processes that run beside each other begin at different ones.
FIRST_PORT, PORTS = 10_000, 10_000
_next_port = itertools.count(os.getpid() * 101)
_reserved_ports = []


def free_port(*others):
    """A port that no process uses, nor those that far above it. Until this process ends no other one is given it: a
    server that is to listen there may start late, or stop for a while."""
    for _ in range(PORTS):
        port = FIRST_PORT + next(_next_port) % PORTS
        with contextlib.ExitStack() as tried:
            try:
                reserved = tried.enter_context(socket.socket(socket.AF_UNIX))
                reserved.bind(f"\0oncekey-test-port-{port}")
                for above in (0, *others):
                    tried.enter_context(socket.socket()).bind(("127.0.0.1", port + above))
            except OSError:
                continue
            _reserved_ports.append(reserved.dup())
            return port
    raise DidNotStart("there is no free port")


def toml_value(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def toml(settings):
    """Plain values first, then tables, then lists of tables: the order TOML wants."""
    plain, tables = [], []
    for name, value in settings.items():
        if isinstance(value, dict):
            tables.append(f"\n[{name}]\n" + toml(value))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            tables.extend(f"\n[[{name}]]\n" + toml(item) for item in value)
        else:
            plain.append(f"{name} = {toml_value(value)}\n")
    return "".join(plain + tables)


# The gateways of this process by the address of their admin listener: whoever has started one is its operator.
_operated = {}


def _seconds(time_text):
    return datetime.datetime.fromisoformat(time_text.replace("Z", "+00:00")).timestamp()


def run_cli(*arguments, seconds=PATIENCE_SECONDS, stdin=None, environment=None, cwd=None):
    """One run of the command line to its end. For a gateway of this process (--admin) it has the token."""
    variables = {**os.environ, "XDG_STATE_HOME": "/proc/nowhere"}
    if "--admin" in arguments:
        gateway = _operated.get(arguments[arguments.index("--admin") + 1])
        if gateway is not None and gateway.admin_token:
            variables["ONCEKEY_ADMIN_TOKEN"] = gateway.admin_token
    return subprocess.run([binary(), *arguments], capture_output=True, text=True, timeout=seconds, input=stdin,
                          check=False, env={**variables, **(environment or {})}, cwd=cwd)


class DidNotStart(AssertionError):
    pass


class Gateway:
    """One gateway and its folder. The same object may be started again after `stop` or `kill`: the store stays."""

    def __init__(self, upstream_url, routes=None, *, store="memory:", environment=None, flags=None, user=None,
                 **settings):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-test-"))
        self._user = user  # a number; needs root
        if user is not None:
            os.chown(self.folder, user, -1)
        self.store = f"journal:{self.folder / 'data'}" if store == "journal" else store
        self._flags = flags
        self._environment = environment or {}
        self._process = None
        self._state = Changing()
        self.admin_tls = None  # what to trust where the admin listener speaks TLS
        self._lines = []
        self._reader = None
        # Two threads, so that requests meet also on a machine where one is the default.
        self.settings = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "upstream": upstream_url,
                         "store": self.store, "threads": 2, **settings}
        if routes is not None:
            self.settings["route"] = routes
        self.config_file = self.folder / "oncekey.toml"
        self.extra_flags = []  # beside --config
        self.preexec = None  # runs in the new process, before the gateway does

    # Life.

    def start(self):
        self._spawn()
        line = self._wait_for_listening()
        self.address = self._address_in(line, "address")
        self.admin_address = self._address_in(line, "admin")
        _operated[self.admin_text] = self
        self.outbox_address = self._address_in(line, "outbox")
        return self

    def start_without_waiting(self):
        """For a gateway that logs too little to say where it listens."""
        self._spawn()
        _operated[self.settings["admin"]] = self

    def start_expecting_refusal(self):
        """Starts it and waits for it to end by itself; returns the exit code."""
        self._spawn()
        code = self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return code

    def _spawn(self):
        if self._flags is not None:
            command = [binary(), "serve", *self._flags]
        else:
            self.config_file.write_text(toml(self.settings))
            if self._user is not None:
                os.chown(self.config_file, self._user, -1)
            command = [binary(), "serve", "--config", str(self.config_file), *self.extra_flags]
        with self._state:
            self._lines = []
        how = {}
        if self._user is not None:
            # By its descriptor: another user may not reach the folder that the binary was built in.
            opened = os.open(command[0], os.O_RDONLY)
            how = {"executable": f"/proc/self/fd/{opened}", "pass_fds": [opened], "user": self._user,
                   "group": self._user, "extra_groups": []}
        self._process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                         env={**os.environ, "XDG_STATE_HOME": str(self.folder / "state"),
                                              **self._environment}, preexec_fn=self.preexec, **how)
        if how:
            os.close(opened)
        self._reader = threading.Thread(target=self._read_log, args=(self._process.stderr,), daemon=True)
        self._reader.start()

    def _read_log(self, stream):
        with stream:
            for line in stream:
                with self._state:
                    self._lines.append(line.decode("utf-8", "replace").rstrip("\n"))
        with self._state:
            self._lines.append("")  # wakes whoever waits for a line that will not come

    def _wait_for_listening(self):
        def listening_or_ended():
            return self._listening_line() or self._process.poll() is not None

        try:
            self._state.wait_until(listening_or_ended, "the gateway to listen")
        except GaveUpWaiting:
            self.kill()
            raise
        line = self._listening_line()
        if line is None:
            self._reader.join(PATIENCE_SECONDS)
            raise DidNotStart(f"the gateway ended with {self._process.returncode} instead of listening:\n{self.log}")
        return line

    def _listening_line(self):
        return self._find("event=listening") or self._find('"event":"listening"')

    @staticmethod
    def _address_in(line, name):
        """Of a log line in either format; None if it is off."""
        found = re.search(rf"\b{name}\"?[=:]\"?([^\s\"]+):(\d+)", line)
        return (found.group(1), int(found.group(2))) if found else None

    def signal(self, number):
        self._process.send_signal(number)

    def wait(self):
        """The exit code, once it has ended."""
        code = self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return code

    @property
    def pid(self):
        return self._process.pid

    @property
    def running(self):
        return self._process is not None and self._process.poll() is None

    def stop(self):
        """Drains and ends; fails if it did not end well or a sanitizer found something."""
        if self.running:
            self.signal(signal.SIGTERM)
            try:
                code = self.wait()
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"SIGTERM did not end the gateway:\n{self.log}") from None
            if code != 0:
                raise AssertionError(f"the gateway ended with {code} after SIGTERM:\n{self.log}")
        self.check_sanitizers()

    def kill(self):
        if self.running:
            self._process.kill()
            self.wait()

    def pause(self):
        """Returns when every thread has stopped."""
        self.signal(signal.SIGSTOP)
        threads = pathlib.Path(f"/proc/{self._process.pid}/task")
        poll_until(lambda: all(self._has_stopped(thread) for thread in threads.iterdir()), "the gateway to stop")

    @staticmethod
    def _has_stopped(thread):
        # The state stands behind the name, which is in brackets and may hold anything.
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"

    def resume(self):
        self.signal(signal.SIGCONT)

    def remove(self):
        """Ends it in any case and removes its folder."""
        try:
            self.stop()
        finally:
            self.kill()
            for admin in [admin for admin, gateway in _operated.items() if gateway is self]:
                del _operated[admin]
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.remove()

    # Looking at it.

    @property
    def log(self):
        with self._state:
            return "\n".join(self._lines)

    def _find(self, text):
        return next((line for line in list(self._lines) if text in line), None)

    def wait_for_log(self, text):
        self._state.wait_until(lambda: self._find(text), f"{text!r} in the log")
        return self._find(text)

    def accepts_connections(self):
        try:
            socket.create_connection(self.address, timeout=PATIENCE_SECONDS).close()
        except (ConnectionRefusedError, ConnectionResetError):  # reset: it was in the queue of a listener that closes
            return False
        return True

    def check_sanitizers(self):
        found = SANITIZER_REPORTS.search(self.log)
        if found:
            raise AssertionError(f"a sanitizer found something: {found.group(0)}\n{self.log}")

    def client(self, account="alice", source=None):
        return Client(self.address, account, source=source)

    @property
    def admin_token(self):
        """The operators' token: that of the settings, or the one the gateway has made. None before it has."""
        if "admin_token" in self.settings:
            return self.settings["admin_token"]
        for place in ("data", "oncekey-data", "state/oncekey"):
            with contextlib.suppress(FileNotFoundError):
                return (self.folder / place / "admin-token").read_text().strip()
        return None

    @property
    def admin(self):
        """An operator."""
        return Client(self.admin_address, self.admin_token, host=self.admin_text, tls_context=self.admin_tls)

    @property
    def admin_text(self):
        return f"{self.admin_address[0]}:{self.admin_address[1]}"

    def records(self, *, key=None, below="/"):
        """What the store has under a key, or of requests below a path, of all accounts."""
        return [record for record in self.admin.get("/api/keys?limit=1000").json()["keys"]
                if key in (None, record["key"]) and record["target"].startswith(below)]

    def wait_until_leases_end(self, lease_seconds, **which):
        """Waits for the end of the leases that these records have now. Then each of them is abandoned, or settled, or
        its owner, who lives, has renewed the lease since."""
        for record in self.records(**which):
            if record["state"] == "in_progress" and not record["abandoned"]:
                renewed = _seconds(record["lease_until"]) + lease_seconds
                self._wait_for_record(record, "its lease to end", lambda now, renewed=renewed: (
                    now["state"] != "in_progress" or now["abandoned"] or _seconds(now["lease_until"]) >= renewed))

    def wait_until_expired(self, **which):
        for record in self.records(**which):
            self._wait_for_record(record, "its retention to end", lambda now: False)

    def _wait_for_record(self, record, what, holds):
        """Until that holds of it, or it is gone."""

        def gone_or_holds():
            answer = self.admin.get(f"/api/keys/{record['id']}")
            return answer.status == 404 or holds(answer.json())

        poll_until(gone_or_holds, f"{what}: {record}", pause=0.1)

    def metric(self, name, **labels):
        """The sum of all samples of that name whose labels include these."""
        total = 0.0
        for line in self.admin.get("/metrics").body.decode().splitlines():
            sample = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)(?: \d+)?", line)
            if sample and sample.group(1) == name:
                found = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample.group(2) or ""))
                if all(found.get(label) == value for label, value in labels.items()):
                    total += float(sample.group(3))
        return total
