"""The packages in a clean Debian: they install, start, survive a kill and an upgrade, and purge without a trace. The
tarball's binary runs where there is nothing but the C library.

ONCEKEY_PACKAGES is the folder that `make package` has filled. Ends with 77 where roots cannot be made, and says why.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import clean_root  # noqa: E402
from support.client import Client  # noqa: E402
from support.gateway import free_port  # noqa: E402
from support.upstream import Upstream  # noqa: E402
from support.waiting import PATIENCE_SECONDS  # noqa: E402

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = pathlib.Path(os.environ.get("ONCEKEY_PACKAGES", PROJECT / "build" / "packages"))
HIGHER_VERSION = "999.1"

# What dpkg, apt and adduser leave behind after any package.
LEFT_BY_TOOLS = re.compile(r"(var/lib/(dpkg|apt|systemd)|var/cache|var/log|etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|"
                           r"etc/\.pwd\.lock$|etc/ld\.so\.cache$|run/adduser$)")


def only_file(pattern):
    found = sorted(PACKAGES.glob(pattern))
    if len(found) != 1:
        raise AssertionError(f"expected one {pattern} in {PACKAGES}, found {len(found)}: run `make package`")
    return found[0]


def read_to_the_end(stream):
    with stream:
        for _ in stream:
            pass


def listening_address(process):
    """Of a gateway that has begun to listen; its log is read on until it ends."""
    seen = []
    for line in process.stderr:
        seen.append(line)
        if found := re.search(r"event=listening .*?address=([\d.]+):(\d+)", line):
            threading.Thread(target=read_to_the_end, args=(process.stderr,), daemon=True).start()
            return found[1], int(found[2])
    process.stderr.close()
    raise AssertionError("the gateway ended instead of listening:\n" + "".join(seen))


def system_calls(word):
    """Those of a group of systemd's, or the one that is named."""
    if not word.startswith("@"):
        return {word}
    shown = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True).stdout
    words = [line.strip() for line in shown.splitlines()[1:]]
    return set().union(*(system_calls(word) for word in words if word and not word.startswith("#")))


def files_for_monitoring(share):
    """What Prometheus and Grafana read of a package: its files below share/oncekey, by name."""
    return {path.relative_to(share).as_posix(): path.read_text() for path in share.rglob("*") if path.is_file()}


FOR_MONITORING = {name: (PROJECT / "packaging" / name).read_text() for name in ("prometheus/alerts.yml", "grafana/oncekey.json")}


class DebianPackage(unittest.TestCase):
    def setUp(self):
        self.package = only_file("oncekey_*.deb")
        self.root = clean_root.Root.debian()
        self.addCleanup(self.root.__exit__)
        self.upstream = Upstream().start()
        self.addCleanup(self.upstream.stop)

    def install(self, package):
        shutil.copy(package, self.root.path / "tmp" / "oncekey.deb")
        self.root.run("apt-get", "install", "--yes", "--no-install-recommends", "/tmp/oncekey.deb")
        (self.root.path / "tmp" / "oncekey.deb").unlink()

    def higher_version(self):
        """The same binary in a package of a higher version."""
        folder = tempfile.TemporaryDirectory(prefix="oncekey-higher-")
        self.addCleanup(folder.cleanup)
        with tempfile.TemporaryDirectory() as unpacked:
            subprocess.run(["dpkg-deb", "--raw-extract", self.package, unpacked], check=True)
            control = pathlib.Path(unpacked) / "DEBIAN" / "control"
            control.write_text(re.sub(r"^Version: .*", f"Version: {HIGHER_VERSION}", control.read_text(), flags=re.MULTILINE))
            made = pathlib.Path(folder.name) / "oncekey.deb"
            subprocess.run(["dpkg-deb", "--root-owner-group", "--build", unpacked, made], check=True, capture_output=True)
        return made

    def configure(self):
        """As an operator does it: by changing the file that was installed."""
        file = self.root.path / "etc" / "oncekey" / "oncekey.toml"
        text = file.read_text()
        for name, value in (("listen", "127.0.0.1:0"), ("admin", f"127.0.0.1:{free_port()}"), ("upstream", self.upstream.url)):
            text = re.sub(rf"^{name} = .*", f'{name} = "{value}"', text, flags=re.MULTILINE)
        file.write_text(text)

    def start(self):
        process = self.root.start("/usr/bin/oncekey", "serve", "--config", "/etc/oncekey/oncekey.toml", user="oncekey")
        return process, Client(listening_address(process))

    def assertOwned(self, path, owner, mode):
        shown = self.root.run("stat", "--format=%U:%G %a", path).stdout.strip()
        self.assertEqual(shown, f"{owner} {mode}")

    def enabled_units(self):
        return sorted(path.name for path in (self.root.path / "etc" / "systemd" / "system").glob("*.wants/oncekey*"))

    def installed_version(self):
        return self.root.run("dpkg-query", "--show", "--showformat=${Version}", "oncekey").stdout

    def test_installs_answers_survives_a_kill_and_an_upgrade_and_purges_without_a_trace(self):
        before = self.root.files()
        self.install(self.package)
        self.assertRegex(self.root.run("oncekey", "--version").stdout, r"^oncekey \d")
        self.assertOwned("/etc/oncekey", "root:oncekey", "750")
        self.assertOwned("/var/lib/oncekey", "oncekey:oncekey", "700")
        self.root.run("oncekey", "check", "/etc/oncekey/oncekey.toml", user="oncekey")
        self.assertEqual(files_for_monitoring(self.root.path / "usr" / "share" / "oncekey"), FOR_MONITORING)

        # It does not know yet which API to protect.
        self.assertEqual(self.enabled_units(), [])
        wants = self.root.path / "etc" / "systemd" / "system" / "multi-user.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / "oncekey.service").symlink_to("/lib/systemd/system/oncekey.service")  # systemctl enable

        self.configure()
        process, client = self.start()
        self.assertEqual(self.root.run("oncekey", "health", "--config", "/etc/oncekey/oncekey.toml").stdout, "ready\n")
        first = client.post(key="order-1")
        self.assertFalse(first.replayed)
        self.root.kill(process)

        self.install(self.higher_version())
        self.assertEqual(self.installed_version(), HIGHER_VERSION)
        self.assertEqual(self.enabled_units(), ["oncekey.service"])
        self.assertIn(self.upstream.url, (self.root.path / "etc" / "oncekey" / "oncekey.toml").read_text())
        process, client = self.start()
        again = client.post(key="order-1")
        self.assertTrue(again.replayed)
        self.assertEqual(again.body, first.body)
        self.assertEqual(self.upstream.executions("order-1"), 1)
        self.root.kill(process)

        # Installed once more over itself, it keeps the records too.
        self.root.run("apt-get", "remove", "--yes", "oncekey")
        self.assertTrue((self.root.path / "var" / "lib" / "oncekey" / "store").is_dir())
        self.assertTrue((self.root.path / "etc" / "oncekey" / "oncekey.toml").exists())
        self.root.run("dpkg", "--purge", "oncekey")
        left = {path for path in self.root.files() - before if not LEFT_BY_TOOLS.match(path)}
        self.assertEqual(left, set())
        self.assertEqual([path for path in self.root.files() if "oncekey" in path], [])

    def test_needs_nothing_that_a_minimal_debian_lacks(self):
        self.install(self.package)
        linked = self.root.run("ldd", "/usr/bin/oncekey").stdout
        libraries = {line.split()[0].rsplit("/", 1)[-1] for line in linked.splitlines()}
        self.assertLessEqual(libraries, {"linux-vdso.so.1", "libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})


class Tarball(unittest.TestCase):
    def serve_a_request_and_its_retry(self, root, binary, store, user):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        admin = f"127.0.0.1:{free_port()}"
        process = root.start(binary, "serve", "--listen", "127.0.0.1:0", "--admin", admin, "--upstream", upstream.url, "--store",
                             store, user=user)
        client = Client(listening_address(process))
        first, again = client.post(key="order-1"), client.post(key="order-1")
        self.assertEqual((first.replayed, again.replayed), (False, True))
        self.assertEqual(upstream.executions("order-1"), 1)
        for question, answer in ((["health"], "ready\n"), (["health", "--live"], "alive\n")):
            self.assertEqual(root.run(binary, *question, "--admin", admin, user=user).stdout, answer)
        root.kill(process)
        self.assertEqual(root.run(binary, "health", "--admin", admin, user=user, check=False).returncode, 3)

    def test_the_binary_serves_where_there_is_nothing_but_the_c_library(self):
        with clean_root.Root.with_the_c_library_alone() as root:
            subprocess.run(["tar", "--extract", "--file", only_file("oncekey-*.tar.gz"), "--directory", root.path,
                            "--strip-components=1"], check=True)
            self.serve_a_request_and_its_retry(root, "/bin/oncekey", "journal:/data/store", "0")

    def test_the_binary_serves_in_the_file_system_of_the_image_as_its_user(self):
        with clean_root.Root.of_the_image(only_file("oncekey-*.tar.gz")) as root:
            self.serve_a_request_and_its_retry(root, "/usr/bin/oncekey", "journal:/var/lib/oncekey/store", "10001")

    def test_holds_what_a_package_holds(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["tar", "--extract", "--file", only_file("oncekey-*.tar.gz"), "--directory", folder,
                            "--strip-components=1"], check=True)
            below = {path.relative_to(folder).as_posix() for path in pathlib.Path(folder).rglob("*")}
            self.assertEqual(files_for_monitoring(pathlib.Path(folder) / "share" / "oncekey"), FOR_MONITORING)
        for wanted in ("bin/oncekey", "etc/oncekey/oncekey.toml", "lib/systemd/system/oncekey.service",
                       "share/man/man1/oncekey.1", "share/man/man5/oncekey.toml.5", "share/doc/oncekey/LICENSE",
                       "share/doc/oncekey/THIRD_PARTY_NOTICES", "share/bash-completion/completions/oncekey",
                       "share/zsh/site-functions/_oncekey", "share/fish/vendor_completions.d/oncekey.fish"):
            self.assertIn(wanted, below)


class Checkers(unittest.TestCase):
    def test_lintian_finds_nothing(self):
        done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", only_file("oncekey_*.deb")],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_the_gateway_tells_systemd_that_it_is_ready_as_the_unit_promises(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            subprocess.run(["dpkg-deb", "--extract", only_file("oncekey_*.deb"), folder], check=True)
            unit = (pathlib.Path(folder) / "lib/systemd/system/oncekey.service").read_text()
            self.assertIn("\nType=notify\n", unit)
            manager.bind(f"{folder}/notify")
            manager.settimeout(PATIENCE_SECONDS)
            process = subprocess.Popen([f"{folder}/usr/bin/oncekey", "serve", "--listen", "127.0.0.1:0", "--admin",
                                        f"127.0.0.1:{free_port()}", "--store", "memory:", "--upstream", upstream.url],
                                       stderr=subprocess.PIPE, text=True, env={**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"})
            try:
                client = Client(listening_address(process))
                while "READY=1" not in manager.recv(4096).decode().splitlines():
                    pass
                self.assertEqual(client.post(key="a").status, client.post(key="a").status)
            finally:
                process.kill()
                process.wait(PATIENCE_SECONDS)

    def test_the_gateway_makes_no_system_call_that_its_unit_forbids(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["dpkg-deb", "--extract", only_file("oncekey_*.deb"), folder], check=True)
            binary, trace = f"{folder}/usr/bin/oncekey", pathlib.Path(folder) / "trace"
            admin = f"127.0.0.1:{free_port()}"
            process = subprocess.Popen(["strace", "--follow-forks", "--quiet=all", f"--output={trace}", binary, "serve",
                                        "--listen", "127.0.0.1:0", "--admin", admin, "--store", f"journal:{folder}/state/store",
                                        "--upstream", upstream.url.replace("127.0.0.1", "localhost")],
                                       stderr=subprocess.PIPE, text=True)
            client = Client(listening_address(process))
            for key in ("a", "b"):
                client.post(key=key)
                client.post(key=key)
            for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGTERM)
            self.assertEqual(process.wait(PATIENCE_SECONDS), 0)
            made = {found[1] for line in trace.read_text().splitlines()
                    if (found := re.match(r"\d+\s+(?:<\.\.\. )?(\w+)[( ]", line))}
            unit = (pathlib.Path(folder) / "lib/systemd/system/oncekey.service").read_text()
        allowed = set()
        for line in re.findall(r"^SystemCallFilter=(.*)", unit, flags=re.MULTILINE):
            calls = set().union(*(system_calls(word) for word in line.lstrip("~").split()))
            allowed = allowed - calls if line.startswith("~") else allowed | calls
        self.assertGreater(len(made), 40)
        self.assertEqual(made - allowed, set())

    def test_systemd_reads_the_units_and_finds_the_service_shut_off(self):
        with tempfile.TemporaryDirectory() as root:
            subprocess.run(["dpkg-deb", "--extract", only_file("oncekey_*.deb"), root], check=True)
            units = sorted(pathlib.Path(root).rglob("*.service")) + sorted(pathlib.Path(root).rglob("*.socket"))
            # The programs that the units start have to be where they say.
            for program in ("bin/kill",):
                (pathlib.Path(root) / program).parent.mkdir(parents=True, exist_ok=True)
                (pathlib.Path(root) / program).touch(stat.S_IRWXU)
            done = subprocess.run(["systemd-analyze", "verify", f"--root={root}", "--man=no", "--recursive-errors=no",
                                   *(unit.name for unit in units)], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            # 100 is all exposed; a service without any hardening has 96.
            done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", f"--root={root}",
                                   "oncekey.service"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    if reason := clean_root.why_not():
        print(f"NOT TESTED: {reason}")
        sys.exit(77)
    unittest.main()
