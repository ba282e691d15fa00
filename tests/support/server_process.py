"""A server of somebody else's as a process of a test: on a port of the loopback, its data in a temporary folder."""

import concurrent.futures
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile

from support.gateway import free_port
from support.waiting import GaveUpWaiting, poll_until

# Postgres and PgBouncer refuse to run as root, so a test run by root lends them this user of Debian's packages.
UNPRIVILEGED = "postgres"
# Until a server answers or has ended: recovery of a crashed one on a busy disk is the longest.
START_SECONDS = 30.0
# A port that was free when it was looked for may be taken when the server binds it.
START_ATTEMPTS = 3

# A server's data is kept in memory where there is room: making and removing a thousand files for each Postgres is a tenth
# of the processor time of all tests. `make test-slow` has it on the disk.
MEMORY_FOLDER = pathlib.Path("/dev/shm")
MEMORY_FOLDER_BYTES_MIN = 4 << 30

# The kernel sends the signal of a parent's death when the *thread* ends that started the child; this one lives as long
# as the process.
_starter = concurrent.futures.ThreadPoolExecutor(1, "servers")


class ServerFailed(AssertionError):
    pass


def spawn(command, *, death_signal="KILL", unprivileged=False, **options):
    """A child that gets the signal when this process dies."""
    wrapper = ["setpriv", "--pdeathsig", death_signal]
    if unprivileged and os.geteuid() == 0:
        wrapper += ["--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED, "--init-groups"]
    return _starter.submit(subprocess.Popen, [*wrapper, "--", *map(str, command)], **options).result()


def run_unprivileged(command):
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    done = subprocess.run(list(map(str, command)), user=user, capture_output=True, text=True, cwd="/", check=False)
    if done.returncode != 0:
        raise ServerFailed(f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def give_to_unprivileged(path):
    if os.geteuid() == 0:
        user = pwd.getpwnam(UNPRIVILEGED)
        for each in [path, *path.rglob("*")] if path.is_dir() else [path]:
            os.chown(each, user.pw_uid, user.pw_gid, follow_symlinks=False)


def data_folder(name):
    """A new folder for a server's data."""
    fits = (not os.environ.get("ONCEKEY_SLOW_TESTS") and MEMORY_FOLDER.is_dir() and os.access(MEMORY_FOLDER, os.W_OK) and
            shutil.disk_usage(MEMORY_FOLDER).free >= MEMORY_FOLDER_BYTES_MIN)
    return pathlib.Path(tempfile.mkdtemp(prefix=f"oncekey-{name}-", dir=MEMORY_FOLDER if fits else None))


class Server:
    """One process and its folder. Subclasses say how it is started, asked whether it is there, and stopped."""

    death_signal = "KILL"
    unprivileged = False

    def __init__(self, name):
        self.folder = data_folder(name)
        self.name = name
        self.port = None
        self._served = False  # on that port, which it then keeps
        self._process = None

    def command(self):
        raise NotImplementedError

    def answers(self):
        """Whether it serves."""
        raise NotImplementedError

    def end_kindly(self):
        self.signal(signal.SIGTERM)

    # Life.

    def start(self):
        self.spawn()
        self.wait_until_it_answers()
        return self

    def spawn(self):
        """Starts it without waiting for it."""
        if self.port is None:
            self.port = self.choose_port()
        if self.unprivileged:
            give_to_unprivileged(self.folder)
        with open(self.log_file, "ab") as log:
            self._process = spawn(self.command(), death_signal=self.death_signal, unprivileged=self.unprivileged,
                                  cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_until_it_answers(self):
        for attempt in range(START_ATTEMPTS):
            try:
                if poll_until(lambda: self._process.poll() is not None or self.answers(), f"{self.name} to answer",
                              START_SECONDS) and self.running:
                    self._served = True
                    return
            except GaveUpWaiting:
                self.kill()
                raise ServerFailed(f"{self.name} does not answer:\n{self.log_tail()}") from None
            if attempt + 1 < START_ATTEMPTS and "ddress already in use" in self.log_tail():
                if not self._served:
                    self.port = None
                self.spawn()
        raise ServerFailed(f"{self.name} ended with {self._process.returncode} at its start:\n{self.log_tail()}")

    def choose_port(self):
        return free_port()

    @property
    def log_file(self):
        return self.folder / "log"

    def log_tail(self):
        return self.log_file.read_text(errors="replace")[-3000:] if self.log_file.exists() else ""

    @property
    def running(self):
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self):
        return self._process.pid

    def signal(self, number):
        if self.running:
            os.kill(self._process.pid, number)

    def stop(self):
        """A proper end."""
        if self.running:
            self.signal(signal.SIGCONT)
            self.end_kindly()
            try:
                self._process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self):
        """kill -9."""
        if self.running:
            self.signal(signal.SIGKILL)
            self._process.wait(START_SECONDS)

    def restart(self):
        self.stop()
        self.start()

    def pause(self):
        """It holds its connections and answers nothing."""
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def has_unread_bytes(self):
        """Whether a client has sent something that it has not read: while it is paused, a call that waits for it."""
        established, port = "01", f":{self.port:04X}"
        rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return any(row[1].endswith(port) and row[3] == established and not row[4].endswith(":00000000")
                   for row in rows)

    def remove(self):
        try:
            self.resume()
            self.kill()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *_):
        self.remove()


def copy_folder(source, target):
    """With owners and rights, and quickly: `cp` copies without going through this process."""
    subprocess.run(["cp", "-a", "--", str(source), str(target)], check=True)
