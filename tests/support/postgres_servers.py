"""Postgres and PgBouncer as processes of a test."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading

from support.server_process import (START_SECONDS, UNPRIVILEGED, Server, ServerFailed, copy_folder,
                                    give_to_unprivileged, run_unprivileged)
from support.waiting import poll_until

POSTGRES_BINARIES = pathlib.Path(os.environ.get("ONCEKEY_POSTGRES_BINARIES", "/usr/lib/postgresql/15/bin"))
# Debian's place for it is not on everybody's path.
PGBOUNCER = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")


def is_ready(port):
    command = [POSTGRES_BINARIES / "pg_isready", "-q", "-U", "postgres", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(command, check=False).returncode == 0


class Postgres(Server):
    """A cluster of databases with fsync and synchronous_commit on, superuser `postgres`, no passwords."""

    # A fast shutdown by the kernel: a killed postmaster would leave its backends for a moment.
    death_signal = "QUIT"
    unprivileged = True
    database = "oncekey"
    _template_lock = threading.Lock()
    _template = None

    def __init__(self, **settings):
        super().__init__("postgres")
        self.data = self.folder / "data"
        self.settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on",
            "synchronous_commit": "on",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "recovery_init_sync_method": "syncfs",  # one call instead of one for each of a thousand files
            "log_line_prefix": "%m [%p] %a ",
            **settings,
        }

    @classmethod
    def template(cls):
        """A data folder fresh from initdb with the database in it. Made once in ONCEKEY_INITDB, an empty folder that
        test processes share, or else once a process: initdb takes a second."""
        with cls._template_lock:
            if cls._template is None and not (shared := os.environ.get("ONCEKEY_INITDB")):
                cls._template = tempfile.TemporaryDirectory(prefix="oncekey-initdb-", ignore_cleanup_errors=True)
            folder = pathlib.Path(cls._template.name if cls._template else shared)
            with open(folder / "lock", "a", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not (folder / "data").exists():
                    give_to_unprivileged(folder)
                    cls._make_template(folder / "half-made")
                    (folder / "half-made").rename(folder / "data")
            return folder / "data"

    @classmethod
    def _make_template(cls, data):
        # Small log files, since each server gets a copy of one.
        run_unprivileged([POSTGRES_BINARIES / "initdb", "--no-sync", "--no-instructions", "--auth=trust",
                          "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--wal-segsize=1", "-D", data])
        single = [POSTGRES_BINARIES / "postgres", "--single", "-F", "-D", data, "postgres"]
        # Nothing is made of template0 here: three hundred files less in each copy.
        statements = (f"CREATE DATABASE {cls.database}\n"
                      "UPDATE pg_database SET datistemplate = false WHERE datname = 'template0'\n"
                      "DROP DATABASE template0\n")
        subprocess.run(single, input=statements, text=True, capture_output=True,
                       user=UNPRIVILEGED if os.geteuid() == 0 else None, cwd="/", check=True)

    def command(self):
        if not self.data.exists():
            give_to_unprivileged(self.folder)
            copy_folder(self.template(), self.data)
        return [POSTGRES_BINARIES / "postgres", "-D", self.data, "-p", self.port,
                *(part for name, value in self.settings.items() for part in ("-c", f"{name}={value}"))]

    def answers(self):
        return is_ready(self.port)

    def end_kindly(self):
        self.signal(signal.SIGINT)  # "fast": sessions are ended, a checkpoint is written

    def stop_immediately(self):
        """As `pg_ctl stop -m immediate`: no checkpoint, the next start recovers from the log."""
        if self.running:
            self.signal(signal.SIGQUIT)
            self._process.wait(START_SECONDS)

    def backends(self):
        """The ids of the postmaster's children."""
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in children.read_text().split()] if children.exists() else []

    def kill(self):
        """kill -9 of the postmaster and of every backend: nobody says goodbye to anybody."""
        if not self.running:
            return
        self.signal(signal.SIGSTOP)  # no new backends while the old ones are counted
        backends = self.backends()
        super().kill()
        for pid in backends:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in backends:
            poll_until(lambda gone=pid: not pathlib.Path(f"/proc/{gone}").exists() or _is_zombie(gone),
                       f"backend {pid} to end")

    crash = kill

    def remove(self):
        try:
            self.resume()
            self.stop_immediately()  # the postmaster takes its backends with it
        finally:
            super().remove()

    def pause(self):
        for pid in [self.pid, *self.backends()]:
            os.kill(pid, signal.SIGSTOP)

    def resume(self):
        for pid in [*self.backends(), self.pid] if self.running else []:
            with contextlib.suppress(ProcessLookupError):  # one whose client is gone ends as soon as it goes on
                os.kill(pid, signal.SIGCONT)

    # Using it.

    def url_of(self, database, port=None):
        return f"postgres://postgres@127.0.0.1:{port or self.port}/{database}"

    @property
    def url(self):
        return self.url_of(self.database)

    def sql(self, text, database=None):
        """What psql prints for it: rows as lines, columns parted by `|`."""
        command = [POSTGRES_BINARIES / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text,
                   "-d", self.url_of(database or self.database)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerFailed(f"{text}: {done.stderr}")
        return done.stdout.strip()

    def create_database(self, name):
        """Returns its URL."""
        self.sql(f'CREATE DATABASE "{name}"', "postgres")
        return self.url_of(name)

    def terminate_sessions(self, database=None):
        """As an administrator would: every session but the asking one ends, whatever it is doing."""
        self.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                 f"AND datname = '{database or self.database}'", "postgres")

    # Backups of the whole folder, taken while it is stopped.

    def save(self, name="saved"):
        assert not self.running
        copy_folder(self.data, self.folder / name)

    def restore(self, name="saved"):
        assert not self.running
        shutil.rmtree(self.data)
        copy_folder(self.folder / name, self.data)


class PgBouncer(Server):
    """In transaction mode before a Postgres that outlives it."""

    unprivileged = True

    def __init__(self, postgres, **settings):
        super().__init__("pgbouncer")
        self.postgres = postgres
        # Left at its fifteen seconds, a bouncer refuses everybody for so long after a server was gone for a moment.
        self.settings = {"pool_mode": "transaction", "max_client_conn": 500, "default_pool_size": 20,
                         "server_login_retry": 1, **settings}

    def command(self):
        settings = {"listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": "", "auth_type": "trust",
                    "auth_file": self.folder / "users", "admin_users": "postgres", **self.settings}
        (self.folder / "users").write_text('"postgres" ""\n')
        (self.folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.postgres.port}\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in settings.items()))
        give_to_unprivileged(self.folder)
        return [PGBOUNCER, self.folder / "pgbouncer.ini"]

    def answers(self):
        return is_ready(self.port)

    def end_kindly(self):
        self.signal(signal.SIGINT)

    def url_of(self, database):
        return self.postgres.url_of(database, self.port)

    @property
    def url(self):
        return self.url_of(self.postgres.database)


def _is_zombie(pid):
    try:
        return ") Z" in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
