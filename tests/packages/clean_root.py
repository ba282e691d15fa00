"""Debian roots without anything of ours, and processes in them.

The first root is made by debootstrap from the mirror and through the proxy that apt uses on this machine, and kept in
build/roots; each test works in a copy. Processes see their own /proc and process numbers, and the machine's loopback
network: an upstream outside can be called from inside.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from support.waiting import PATIENCE_SECONDS

PROJECT = pathlib.Path(__file__).resolve().parents[2]
RELEASE = "bookworm"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/", "DEBIAN_FRONTEND": "noninteractive"}


def why_not():
    """Why roots cannot be used here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root, for debootstrap and chroot"
    for tool in ("debootstrap", "unshare", "dpkg-deb"):
        if shutil.which(tool) is None:
            return f"needs {tool}: scripts/setup test-slow"
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False).returncode != 0:
        return "needs leave to make mount and process namespaces"
    return ""


def apt_mirror():
    lines = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    for line in lines:
        uri, _, codename = line.partition(" ")
        if codename == RELEASE:
            return uri
    raise AssertionError(f"apt has no repository of {RELEASE} on this machine:\n" + "\n".join(lines))


def apt_proxy():
    shown = subprocess.run(["apt-config", "dump", "--format", "%v", "Acquire::http::Proxy"], capture_output=True, text=True,
                           check=True).stdout.strip()
    return {"http_proxy": shown} if shown else {}


def pristine_root():
    root = PROJECT / "build" / "roots" / RELEASE
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        unfinished = root.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        done = subprocess.run(["debootstrap", "--variant=minbase", RELEASE, str(unfinished), apt_mirror()],
                              env={**os.environ, **apt_proxy()}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode != 0:
            raise AssertionError(f"debootstrap failed:\n{done.stdout}")
        unfinished.rename(root)
    return root


class Root:
    """A folder that processes see as the whole file system. Used with `with`, which removes it."""

    def __init__(self):
        self._above = tempfile.TemporaryDirectory(prefix="oncekey-root-")
        self.path = pathlib.Path(self._above.name) / "root"
        self._started = []

    @classmethod
    def debian(cls):
        root = cls()
        subprocess.run(["cp", "--archive", "--reflink=auto", pristine_root(), root.path], check=True)
        return root

    @classmethod
    def of_the_image(cls, tarball):
        """What packaging/docker/Dockerfile makes the whole file system of its image."""
        root = cls()
        subprocess.run([PROJECT / "packaging" / "docker" / "image_root", tarball, root.path], check=True)
        (root.path / "proc").mkdir()
        return root

    @classmethod
    def with_the_c_library_alone(cls):
        """No shell, no packages: what the binary's ELF header and libc.so.6 ask for, and the folders of the kernel."""
        root = cls()
        debian = pristine_root()
        root.path.mkdir()
        for folder in ("proc", "tmp", "data", "lib64", "lib", "etc"):
            (root.path / folder).mkdir()
        for name in ("libc.so.6", "libm.so.6", "ld-linux-*.so.*"):
            found = next((debian / "usr" / "lib").rglob(name))
            for folder in ("lib", "lib64"):
                shutil.copy(found, root.path / folder / found.name)
        return root

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._started:
            self.kill(process)
        self._above.cleanup()

    def command(self, words, user):
        """The command line that runs `words` inside."""
        return ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={self.path / 'proc'}",
                "chroot", f"--userspec={user}:{user}", str(self.path), *words]

    def run(self, *words, user="root", check=True):
        done = subprocess.run(self.command(words, user), capture_output=True, text=True, timeout=300, check=False,
                              env={**ENVIRONMENT, **apt_proxy()})
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def start(self, *words, user="root"):
        process = subprocess.Popen(self.command(words, user), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self._started.append(process)
        return process

    @staticmethod
    def kill(process):
        """At once, as SIGKILL does it. A process that has changed its user does not hear of its parent's end: it is killed
        itself, and with it all of its namespace."""
        if process.poll() is None:
            for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            process.wait(PATIENCE_SECONDS)

    def files(self):
        """Every path below the root, without those of the kernel."""
        return {path.relative_to(self.path).as_posix() for path in self.path.rglob("*")
                if path.relative_to(self.path).parts[0] not in ("proc", "sys", "dev")}
