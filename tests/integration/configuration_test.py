"""The configuration: check, init, help, the words of the command line, reload on SIGHUP, and what a store remembers."""

import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import fresh_key
from support.gateway import PROJECT, Gateway, binary, free_port, run_cli, toml
from support.local_users import NOBODY, needs_root
from support.store_formats import set_meta_format
from support.upstream import Upstream, answers, held
from support.waiting import poll_until

UPSTREAM = {"upstream": "http://127.0.0.1:9090"}


class FolderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="oncekey-test-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)

    @classmethod
    def make_certificate(cls, name):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-keyout",
                        str(cls.folder / f"{name}.key"), "-out", str(cls.folder / f"{name}.crt")],
                       check=True, capture_output=True)

    @classmethod
    def path(cls, name):
        return str(cls.folder / name)


class CheckTest(FolderTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_certificate("one")
        cls.make_certificate("two")

    def check(self, settings, *flags):
        (self.folder / "check.toml").write_text(toml(settings))
        done = run_cli("check", "check.toml", *flags, cwd=self.folder)
        return done.returncode, (done.stdout + done.stderr).replace(str(self.folder), "FOLDER")

    def assert_refused(self, settings, *lines):
        code, output = self.check({**UPSTREAM, "store": "memory:", **settings})
        self.assertEqual(code, 1, output)
        self.assertEqual(output.splitlines(), list(lines))

    def test_a_certificate_and_its_key_pass(self):
        code, output = self.check({**UPSTREAM, "tls_cert": self.path("one.crt"), "tls_key": self.path("one.key")})
        self.assertEqual(code, 0, output)

    def test_swapped_files_are_noticed(self):
        self.assert_refused(
            {"tls_cert": self.path("one.key"), "tls_key": self.path("one.crt")},
            "check.toml:3: tls_cert FOLDER/one.key: it holds a private key; give a PEM file with the certificate chain",
            "check.toml:4: tls_key FOLDER/one.crt: it holds a certificate; give the PEM private key of the certificate")

    def test_the_key_of_another_certificate_is_noticed(self):
        self.assert_refused(
            {"admin_tls_cert": self.path("one.crt"), "admin_tls_key": self.path("two.key")},
            "check.toml:4: admin_tls_key FOLDER/two.key: it is not the key of the certificate in FOLDER/one.crt, whose "
            "first certificate must be the listener's own")

    def test_a_damaged_certificate_is_noticed(self):
        lines = pathlib.Path(self.path("one.crt")).read_text().splitlines()
        (self.folder / "damaged.crt").write_text("\n".join([lines[0], *lines[2:]]))
        self.assert_refused(
            {"tls_cert": self.path("damaged.crt"), "tls_key": self.path("one.key")},
            "check.toml:3: tls_cert FOLDER/damaged.crt: a certificate in it is damaged; give a PEM file with the "
            "certificate chain")

    def test_a_certificate_that_openssl_refuses_is_noticed(self):
        def openssl(*words):
            subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

        openssl("req", "-x509", "-newkey", "rsa:1024", "-nodes", "-days", "2", "-subj", "/CN=short", "-keyout",
                "short.key", "-out", "short.crt")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=old", "-keyout", "old.key", "-out", "old.csr")
        openssl("x509", "-req", "-sha1", "-days", "2", "-in", "old.csr", "-CA", "one.crt", "-CAkey", "one.key",
                "-CAcreateserial", "-out", "old.crt")
        for name, reason in (("short", "ee key too small; its keys need at least 2048 bits (RSA) or 224 bits (EC)"),
                             ("old", "ca md too weak; let it be signed with SHA-256 or better")):
            settings = {"tls_cert": self.path(f"{name}.crt"), "tls_key": self.path(f"{name}.key")}
            self.assert_refused(settings, f"check.toml:3: tls_cert FOLDER/{name}.crt: OpenSSL refuses it: {reason}")
            self.assertIn(f"{name}.crt: OpenSSL refuses it: {reason}", self.serve_says(settings))

    def serve_says(self, settings):
        gateway = Gateway("http://127.0.0.1:9", **settings)
        self.addCleanup(gateway.remove)
        self.assertEqual(gateway.start_expecting_refusal(), 1)
        return gateway.log

    def test_a_store_behind_a_symbolic_link_to_nothing_is_noticed(self):
        (self.folder / "dangling").symlink_to("nothing-there")
        for store in ("dangling", "dangling/data"):
            code, output = self.check({**UPSTREAM, "store": f"journal:{store}"})
            self.assertEqual((code, output), (1, f"check.toml:2: store journal:{store}: dangling is a symbolic link to "
                                                 "nothing; make what it points to, or remove it\n"))

    def test_an_audit_log_that_is_none_is_noticed(self):
        (self.folder / "notes.txt").write_text("bread, milk\n")
        said = "notes.txt: is not an audit log; move it away, or give another path"
        self.assert_refused({"audit_log": "notes.txt"}, f"check.toml:3: audit_log: {said}")
        self.assertIn(said, run_cli("doctor", "check.toml", cwd=self.folder).stdout)
        self.assertIn(said, self.serve_says({"audit_log": self.path("notes.txt")}))

    def test_one_file_for_both_logs_is_noticed(self):
        (self.folder / "also.log").symlink_to("one.log")
        for other in ("one.log", "./one.log", self.path("one.log"), "also.log"):
            self.assert_refused({"access_log": other, "audit_log": "one.log"},
                                f"check.toml:3: access_log and the audit log are one file, "
                                f"{other.replace(str(self.folder), 'FOLDER')}: its lines would break the audit log's "
                                "chain; give access_log another path")
        gateway = Gateway("http://127.0.0.1:9", access_log="one.log", audit_log="./one.log")
        self.addCleanup(gateway.remove)
        self.assertNotEqual(gateway.start_expecting_refusal(), 0)
        self.assertIn("access_log and the audit log are one file", gateway.log)

    def test_an_access_log_where_nothing_is_kept_is_noticed(self):
        self.assert_refused({"access_log": "/proc/x.log"},
                            "check.toml:3: access_log: /proc/x.log: /proc/ belongs to the kernel and keeps no files; "
                            "name a folder on a disk")
        self.assertIn("/proc/x.log", run_cli("doctor", "check.toml", cwd=self.folder).stdout)

    def test_a_destinations_authority_is_named_as_it_is_called(self):
        destination = {"name": "billing", "url": "https://127.0.0.1:9090/b", "ca": self.path("one.key")}
        self.assert_refused(
            {"outbox": "127.0.0.1:8082", "destination": [destination]},
            "check.toml:8: ca FOLDER/one.key: it holds a private key; give a PEM file of the certificates to trust")
        gateway = Gateway("http://127.0.0.1:9", outbox="127.0.0.1:0",
                          destination=[{**destination, "ca": "/no/such/ca"}])
        self.addCleanup(gateway.remove)
        self.assertEqual(gateway.start_expecting_refusal(), 1)
        self.assertIn('\\"to billing\\": ca /no/such/ca: No such file', gateway.log)

    def test_the_rest_of_a_stores_url_is_read_too(self):
        for url in ("postgres://127.0.0.1/db?connections=many", "redis://127.0.0.1:port/0", "redis://127.0.0.1/0?wat=1"):
            code, output = self.check({**UPSTREAM, "store": url})
            self.assertEqual(code, 1, url)
            self.assertRegex(output, r"\Acheck.toml:2: store: .+\n\Z")

    def test_it_makes_nothing(self):
        code, output = self.check({**UPSTREAM, "store": "journal:./data/deep"})
        self.assertEqual(code, 0, output)
        self.assertFalse((self.folder / "data").exists())

    def test_json_has_every_problem_with_its_line(self):
        code, output = self.check({**UPSTREAM, "tls_cert": "/no/such/chain.pem", "leese": "5s"}, "--json")
        said = json.loads(output)
        self.assertEqual((code, said["ok"], [(one["line"], one["setting"]) for one in said["problems"]]),
                         (1, False, [(2, "tls_cert"), (3, "leese")]))
        code, output = self.check({**UPSTREAM, "store": "memory:"}, "--json")
        said = json.loads(output)
        self.assertEqual((code, said["ok"], said["problems"], len(said["warnings"])), (0, True, [], 1))
        self.assertEqual(said["routes"][0]["scope"], ["header:Authorization"])


class CommandLineTest(FolderTest):
    def test_words_that_are_not_understood_are_answered_as_the_golden_file_says(self):
        cases = (PROJECT / "tests" / "golden" / "command_line.golden").read_text().split("\n\n")[1:]
        for case in cases:
            command, *expected = case.strip().splitlines()
            done = run_cli(*shlex.split(command)[2:], cwd=self.folder)
            with self.subTest(command):
                self.assertIn(done.returncode, (1, 2))
                self.assertEqual(done.stderr.splitlines(), expected)

    def test_help_and_version_are_words_too(self):
        self.assertEqual(run_cli("version").stdout, run_cli("--version").stdout)
        self.assertEqual(run_cli("help", "serve").stdout, run_cli("serve", "--help").stdout)
        self.assertEqual(run_cli("help", "keys", "list").stdout, run_cli("keys", "list", "--help").stdout)
        self.assertIn("doctor", run_cli("help").stdout)
        for words in (["help", "serv"], ["help", "keys", "lst"]):
            run = run_cli(*words)
            self.assertEqual(run.returncode, 2, words)
            self.assertIn("there is no subcommand", run.stderr)
            self.assertIn("did you mean", run.stderr)
            self.assertEqual(run.stdout, "")

    def test_a_fifo_is_neither_a_configuration_nor_a_log(self):
        os.mkfifo(self.folder / "fifo")
        for command in (["check", "fifo"], ["doctor", "fifo"], ["serve", "--config", "fifo"]):
            done = run_cli(*command, cwd=self.folder)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("is not a regular file", done.stdout + done.stderr)
        settings = {**UPSTREAM, "store": "memory:", "access_log": "fifo", "listen": "127.0.0.1:0",
                    "admin": "127.0.0.1:0"}
        (self.folder / "log.toml").write_text(toml(settings))
        done = run_cli("check", "log.toml", cwd=self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not a regular file", done.stdout + done.stderr)
        (self.folder / "log.toml").write_text(toml({**settings, "access_log": "/dev/stdout"}))
        self.assertEqual(run_cli("check", "log.toml", cwd=self.folder).returncode, 0)

    def test_init_writes_a_file_that_passes_the_check_and_overwrites_none(self):
        done = run_cli("init", "first.toml", "--upstream", "http://127.0.0.1:9", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        checked = run_cli("check", "first.toml", cwd=self.folder)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        written = (self.folder / "first.toml").read_text()
        self.assertIn('upstream = "http://127.0.0.1:9"', written)
        again = run_cli("init", "first.toml", cwd=self.folder)
        self.assertEqual(again.returncode, 1)
        self.assertIn("first.toml exists and is left as it is", again.stderr)
        self.assertEqual((self.folder / "first.toml").read_text(), written)

    def test_every_setting_that_init_leaves_out_by_a_comment_is_known(self):
        text = run_cli("init", "-").stdout
        uncommented = "\n".join(line[1:] if line[:1] == "#" and line[1:2] not in (" ", "") else line
                                for line in text.splitlines())
        (self.folder / "all.toml").write_text(uncommented)
        said = run_cli("check", "all.toml", cwd=self.folder, environment={"STRIPE_WEBHOOK_SECRET": "whsec_1"}).stderr
        self.assertNotIn("no such setting", said)
        self.assertNotIn("not valid TOML", said)


class DoctorTest(FolderTest):
    """It tries everything and leaves nothing behind."""

    def doctor(self, settings):
        (self.folder / "doctor.toml").write_text(toml(settings))
        done = run_cli("doctor", "--config", "doctor.toml", "--json", cwd=self.folder)
        said = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0 if said["ok"] else 1)
        return {check["about"]: check for check in said["checks"]}

    def test_a_sound_machine_gets_one_line_for_each_check(self):
        upstream = Upstream().start()
        self.addCleanup(upstream.stop)
        settings = {"upstream": upstream.url, "listen": f"127.0.0.1:{free_port()}", "admin": "127.0.0.1:0",
                    "store": "journal:./data"}
        said = self.doctor(settings)
        for about in ("config", "listen", "store", "admin_token", "upstream", "descriptors", "disk", "file system", "sync",
                      "io_uring", "clock", "memory"):
            self.assertIn(said[about]["status"], ("ok", "warning"), said[about])
        self.assertIn("is free", said["listen"]["text"])
        self.assertIn("will be made at the first start", said["store"]["text"])
        self.assertRegex(said["sync"]["text"], r"a durable write takes [0-9.]+ ms \(median\)")
        self.assertTrue(all(check["next"] for check in said.values() if check["status"] != "ok"))
        self.assertFalse((self.folder / "data").exists())
        self.assertEqual(upstream.executions(), 0)
        text = run_cli("doctor", "doctor.toml", cwd=self.folder)
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        self.assertRegex(text.stdout, r"(?m)^ok +upstream +http://127\.0\.0\.1:\d+ takes connections at")

    def test_a_running_gateway_is_named(self):
        gateway = Gateway("http://127.0.0.1:9", store="journal")
        self.addCleanup(gateway.remove)
        gateway.start()
        settings = {**gateway.settings, "listen": "%s:%d" % gateway.address}
        said = self.doctor(settings)
        self.assertEqual(said["store"]["status"], "warning")
        self.assertIn(f"is open in process {gateway.pid}", said["store"]["text"])
        self.assertEqual(said["listen"]["status"], "warning")
        self.assertEqual(said["upstream"]["status"], "problem")
        self.assertIn("Connection refused", said["upstream"]["text"])
        said = self.doctor({**settings, "scope": "header:X-Tenant"})
        self.assertEqual(said["identity"]["status"], "problem")
        self.assertIn("scope was header:authorization", said["identity"]["text"])

    def test_a_taken_port_and_a_name_that_does_not_exist_are_problems(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            said = self.doctor({"upstream": "http://no-such-host.invalid:1", "store": "memory:",
                                "listen": "127.0.0.1:%d" % taken.getsockname()[1]})
        self.assertEqual(said["listen"]["status"], "problem")
        self.assertIn("another process has this port", said["listen"]["text"])
        self.assertEqual(said["upstream"]["status"], "problem")
        self.assertIn("cannot be resolved", said["upstream"]["text"])

    def test_an_address_that_no_other_process_has_gets_advice_of_its_own(self):
        said = self.doctor({**UPSTREAM, "store": "memory:", "listen": "192.0.2.1:8080"})
        self.assertEqual(said["listen"]["next"], "choose an address that this machine has: `ip address` lists them")

    @needs_root()
    def test_a_low_port_without_the_right_to_it_gets_advice_of_its_own(self):
        lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
        if lowest < 2:
            self.skipTest("every user may have every port here")
        config = self.folder / "low.toml"
        config.write_text(toml({**UPSTREAM, "store": "memory:", "listen": f"127.0.0.1:{lowest - 1}"}))
        self.folder.chmod(0o755)
        opened = os.open(binary(), os.O_RDONLY)
        self.addCleanup(os.close, opened)
        done = subprocess.run([binary(), "doctor", str(config)], executable=f"/proc/self/fd/{opened}", pass_fds=[opened],
                              user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=False)
        self.assertRegex(done.stdout, r"problem +listen +127\.0\.0\.1:\d+: Permission denied")
        self.assertIn("CAP_NET_BIND_SERVICE", done.stdout)
        self.assertNotIn("stop the other process", done.stdout)

    def test_a_certificate_that_is_not_trusted_is_a_problem(self):
        self.make_certificate("upstream")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("upstream.crt"), self.path("upstream.key"))
        upstream = Upstream(tls_context=context).start()
        self.addCleanup(upstream.stop)
        self.assertIn("certificate is not trusted", self.doctor({"upstream": upstream.url})["upstream"]["text"])
        trusted = self.doctor({"upstream": upstream.url, "upstream_ca": self.path("upstream.crt")})
        self.assertEqual(trusted["upstream"]["status"], "ok", trusted["upstream"])

    def test_a_certificate_that_ends_soon_a_later_format_and_a_backup_are_named(self):
        self.make_certificate("soon")
        said = self.doctor({**UPSTREAM, "store": "journal:./made", "tls_cert": self.path("soon.crt"),
                            "tls_key": self.path("soon.key")})
        self.assertEqual(said["tls_cert"]["status"], "warning")
        self.assertRegex(said["tls_cert"]["text"], "expires on .*, in 1 days")
        store = self.folder / "made"
        store.mkdir(mode=0o700)
        (store / "backup").write_text("")
        self.assertIn("is a backup", self.doctor({**UPSTREAM, "store": "journal:./made"})["store"]["text"])
        (store / "meta").write_bytes(b"ONCEKEY" + bytes(60))
        set_meta_format(store, 99)
        said = self.doctor({**UPSTREAM, "store": "journal:./made"})
        self.assertEqual(said["store"]["status"], "problem")
        self.assertIn("has format 99", said["store"]["text"])
        shutil.rmtree(store)

    def test_a_clock_that_is_behind_the_store_is_named(self):
        log = self.folder / "made" / "log"
        log.mkdir(parents=True, mode=0o700)
        (log / "000000.segment").write_bytes(b"")
        self.assertNotEqual(self.doctor({**UPSTREAM, "store": "journal:./made"})["clock"]["status"], "problem")
        os.utime(log / "000000.segment", (time.time() + 3600,) * 2)
        said = self.doctor({**UPSTREAM, "store": "journal:./made"})["clock"]
        self.assertEqual(said["status"], "problem")
        self.assertRegex(said["text"], r"it says 20.*Z, and the store was written at 20.*Z: it is behind")
        shutil.rmtree(self.folder / "made")

    def test_mistakes_of_the_configuration_come_first(self):
        said = self.doctor({**UPSTREAM, "leese": "5s"})
        self.assertEqual(list(said), ["config"])
        self.assertIn("doctor.toml:2: leese: no such setting", said["config"]["text"])


class ReloadTest(FolderTest):
    """One gateway for all of them: each test leaves the configuration as it was."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_certificate("one")
        cls.make_certificate("two")
        cls.upstream = Upstream().start()
        cls.addClassCleanup(cls.upstream.stop)
        (cls.folder / "accounts.toml").write_text('"key-1" = "acme"\n"key-2" = "acme"\n')
        for end in ("crt", "key"):
            (cls.folder / f"admin.{end}").write_text((cls.folder / f"one.{end}").read_text())
        cls.settings = {"scope": "header:X-Tenant", "admin_tls_cert": cls.path("admin.crt"),
                        "admin_tls_key": cls.path("admin.key")}
        cls.routes = [{"path": "/mapped", "scope": "header:X-Api-Key", "accounts": f"file:{cls.path('accounts.toml')}"},
                      {"path": "/*", "policy": "classic"}]
        cls.gateway = Gateway(cls.upstream.url, cls.routes, store="journal", **cls.settings)
        cls.addClassCleanup(cls.gateway.remove)
        cls.gateway.admin_tls = ssl.create_default_context(cafile=cls.path("one.crt"))
        cls.gateway.start()
        cls.client = cls.gateway.client()

    def setUp(self):
        self.upstream.reset()
        self.key = fresh_key()
        self.log_seen = len(self.gateway.log.splitlines())
        self.addCleanup(self.put_back)

    def write(self, routes=None, **settings):
        changed = {**self.gateway.settings, **settings, "route": self.routes if routes is None else routes}
        self.gateway.config_file.write_text(toml({name: value for name, value in changed.items() if value is not None}))

    def reload(self, routes=None, **settings):
        """With these changes; returns what was logged about it. A refusal may have more lines, which come later."""
        if "event=config_reload_refused" in self.told():
            self.put_back()
        self.write(routes, **settings)
        return self.hang_up()

    def put_back(self):
        """The configuration as it was; after that no line about an earlier reload comes any more."""
        self.write()
        self.send_hangup()
        poll_until(lambda: "event=config_reloaded" in self.told(), "the configuration to be as it was")

    def hang_up(self):
        self.send_hangup()
        return poll_until(self.told, "the reload to be told of")

    def send_hangup(self):
        self.log_seen = len(self.gateway.log.splitlines())
        self.gateway.signal(signal.SIGHUP)

    def told(self):
        """The lines about reloads since the last signal."""
        return "\n".join(line for line in self.gateway.log.splitlines()[self.log_seen:]
                         if "event=config_reloaded" in line or "event=config_reload_refused" in line)

    def post(self, target="/charges", **options):
        return self.client.post(target, key=options.pop("key", self.key), headers=[("X-Tenant", "t1")], **options)

    def assert_refused(self, said, *reasons):
        self.assertNotIn("config_reloaded", said)
        for reason in reasons:  # each mistake has its line
            poll_until(lambda reason=reason: reason in self.told(), f"{reason!r} to be said, as this was: {said}")
        self.assertEqual(self.post().status, 201)

    def test_a_route_follows_its_new_rules_and_keeps_its_keys(self):
        self.assertEqual(self.post().status, 201)
        said = self.reload([self.routes[0], {**self.routes[1], "key": "required", "mismatch": 418}])
        self.assertIn('config_reloaded changed="route /*: key, route /*: mismatch"', said)
        self.assertTrue(self.post().replayed)
        self.assertEqual(self.post(body=b"{}").status, 418)
        self.assertEqual(self.client.post("/charges", headers=[("X-Tenant", "t1")]).status, 400)
        self.assertEqual(self.upstream.executions(self.key), 1)

    def test_a_request_under_way_ends_with_what_it_began_with(self):
        gate = self.upstream.gate()
        self.upstream.will(held(gate, answers(500)))
        running = self.client.post_in_background("/charges", key=self.key, headers=[("X-Tenant", "t1")])
        gate.wait_for_arrival()
        self.assertIn("config_reloaded", self.reload([self.routes[0], {**self.routes[1], "kept": "200-599"}]))
        gate.open()
        self.assertEqual(running.result().status, 500)
        self.assertEqual(self.post().status, 201, "a 500 was released, as the rules said when it began")

    def test_a_new_route_has_its_own_counters(self):
        new = {"path": "/new", "policy": "stripe-v1", "scope": "header:X-Tenant", "identity": "operation-key",
               "key_syntax": "visible-ascii", "methods": ["POST"]}
        self.assertIn("config_reloaded", self.reload([self.routes[0], new, self.routes[1]]))
        self.assertEqual(self.post("/new").status, 201)
        self.assertTrue(self.post("/new").replayed)
        self.assertEqual(self.gateway.metric("oncekey_requests_total", route="/new", decision="replay"), 1)
        self.assertGreater(self.gateway.metric("oncekey_config_loaded_timestamp_seconds"), 0)
        self.assertGreater(self.gateway.metric("oncekey_config_reloads_total", result="loaded"), 0)

    def test_mistakes_leave_the_old_configuration_in_force(self):
        before = self.gateway.metric("oncekey_config_reloads_total", result="refused")
        said = self.reload(lease="soon", leese="5s")
        self.assert_refused(said, "lease: \\\"soon\\\" is not a duration", "leese: no such setting")
        self.assertEqual(self.gateway.metric("oncekey_config_reloads_total", result="refused"), before + 1)

    def test_what_would_forget_keys_is_refused(self):
        self.assert_refused(self.reload(scope="header:Authorization"), "keys would be forgotten",
                            "route /* (PATCH,POST): scope was header:x-tenant and is header:authorization")
        for change in ({"identity": "key"}, {"key_from": "header:X-Key"}, {"ignore_host": True},
                       {"key_syntax": "raw"}, {"mode": "observe"}, {"path_case": "ignore"}):
            with self.subTest(change):
                self.assert_refused(self.reload([self.routes[0], {**self.routes[1], **change}]),
                                    "keys would be forgotten")
        self.assert_refused(self.reload(self.routes[:1]), "route /* (PATCH,POST): no route has all of its requests")
        (self.folder / "others.toml").write_text('"key-1" = "other"\n')
        self.assert_refused(self.reload([{**self.routes[0], "accounts": f"file:{self.path('others.toml')}"},
                                         self.routes[1]]), "accounts was file:")
        narrow = {"path": "/charges", "scope": "header:Authorization"}
        self.assert_refused(self.reload([narrow, *self.routes]), "route /charges takes requests of it")

    def test_what_is_only_read_at_start_is_named(self):
        said = self.reload(listen="127.0.0.1:1", limits={"max_connections": 7}, timeouts={"idle": "9s"}, threads=1)
        self.assert_refused(said, "listen has changed and needs a restart", "limits.max_connections has changed",
                            "timeouts.idle has changed", "threads has changed")
        self.assert_refused(self.reload(store="memory:"), "store has changed and needs a restart")
        self.assert_refused(self.reload(upstream="http://127.0.0.1:1"), "upstream has changed and needs a restart")

    def test_accounts_are_read_anew_and_may_not_lose_entries(self):
        accounts = self.folder / "accounts.toml"
        self.assertEqual(self.client.post("/mapped", key=self.key, headers=[("X-Api-Key", "key-1")]).status, 201)
        accounts.write_text('"key-1" = "acme"\n"key-2" = "acme"\n"key-3" = "acme"\n')
        self.assertIn("config_reloaded", self.hang_up())
        self.assertTrue(self.client.post("/mapped", key=self.key, headers=[("X-Api-Key", "key-3")]).replayed)
        self.gateway.wait_for_log("event=accounts_added")
        accounts.write_text('"key-3" = "acme"\n')
        said = self.hang_up()
        accounts.write_text('"key-1" = "acme"\n"key-2" = "acme"\n"key-3" = "acme"\n')
        self.assert_refused(said, "a credential is missing or has another account than before")

    def test_certificates_are_read_anew(self):
        def replace_by(name):
            for end in ("crt", "key"):
                (self.folder / f"admin.{end}").write_text((self.folder / f"{name}.{end}").read_text())
            return self.hang_up()

        def served():
            return ssl.get_server_certificate(self.gateway.admin_address)

        try:
            said = replace_by("two")
            self.assertIn("config_reloaded", said)
            self.assertIn(f"admin_tls_cert {self.path('admin.crt')}", said)
            self.assertEqual(served().strip(), (self.folder / "two.crt").read_text().strip())
            (self.folder / "admin.key").write_text((self.folder / "one.key").read_text())
            self.assertIn("it is not the key of the certificate", self.hang_up())
            self.assertEqual(served().strip(), (self.folder / "two.crt").read_text().strip())
        finally:
            self.assertIn("config_reloaded", replace_by("one"))

    def test_rules_that_cannot_be_remembered_are_not_used(self):
        data = self.gateway.folder / "data"
        note = data / "identity"
        kept = note.read_bytes()
        note.unlink()
        note.mkdir()  # no user can write or read a file there
        try:
            put = {**self.routes[1], "methods": ["POST", "PATCH", "PUT"]}
            self.assert_refused(self.reload([self.routes[0], put]))
            self.assertFalse(self.client.request("PUT", "/charges", key=self.key, headers=[("X-Tenant", "t1")]).replayed)
            self.assertFalse(self.client.request("PUT", "/charges", key=self.key, headers=[("X-Tenant", "t1")]).replayed)
        finally:
            note.rmdir()
            note.write_bytes(kept)

    def test_the_log_level_follows(self):
        self.assertIn("changed=log_level", self.reload(log_level="debug"))
        self.post()
        self.post(body=b"{}")
        self.gateway.wait_for_log("level=debug")


class IdentityMemoryTest(unittest.TestCase):
    def test_a_start_that_would_forget_keys_needs_to_be_accepted(self):
        gateway = Gateway("http://127.0.0.1:9", [{"path": "/*"}], store="journal")
        self.addCleanup(gateway.remove)
        gateway.start()
        gateway.stop()
        note = (gateway.folder / "data" / "identity").read_text()
        self.assertIn("/*\tPATCH,POST\texact\tscope=header:authorization identity=operation-key", note)

        gateway.settings["scope"] = "header:X-Tenant"
        self.assertEqual(gateway.start_expecting_refusal(), 1)
        self.assertIn("route /* (PATCH,POST): scope was header:authorization and is header:x-tenant", gateway.log)
        self.assertIn("--accept-identity-change", gateway.log)

        del gateway.settings["scope"]
        gateway.settings["route"] = [{"path": "/new", "methods": ["PUT"]}, {"path": "/*"}]
        gateway.start()  # a route for what no route had
        gateway.stop()

        gateway.settings["scope"] = "header:X-Tenant"
        gateway.extra_flags = ["--accept-identity-change"]
        gateway.start()
        gateway.wait_for_log("identity_change_accepted")
        gateway.stop()
        gateway.extra_flags = []
        gateway.start()
        self.assertNotIn("identity_change_accepted", gateway.log)

    def test_an_accounts_file_that_has_lost_an_entry_needs_to_be_accepted(self):
        gateway = Gateway("http://127.0.0.1:9", store="journal")
        self.addCleanup(gateway.remove)
        accounts = gateway.folder / "accounts.toml"
        gateway.settings["route"] = [{"path": "/*", "scope": "header:X-Api-Key", "accounts": f"file:{accounts}"}]
        accounts.write_text('"key-1" = "acme"\n')
        gateway.start()
        accounts.write_text('"key-1" = "acme"\n"key-2" = "acme"\n')
        gateway.wait_for_log("event=accounts_added")  # and remembered, without a reload
        gateway.stop()
        accounts.write_text('"key-1" = "acme"\n')
        self.assertEqual(gateway.start_expecting_refusal(), 1)
        self.assertIn("1 credential missing or with another account than before", gateway.log)
        gateway.extra_flags = ["--accept-identity-change"]
        gateway.start()
        gateway.wait_for_log("identity_change_accepted")

    def test_a_start_that_fails_changes_nothing_that_is_remembered(self):
        gateway = Gateway("http://127.0.0.1:9", [{"path": "/*"}], store="journal")
        self.addCleanup(gateway.remove)
        gateway.start()
        gateway.stop()
        note = gateway.folder / "data" / "identity"
        before = note.read_text()
        listen = gateway.settings.get("listen")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            gateway.settings["listen"] = "127.0.0.1:%d" % taken.getsockname()[1]
            gateway.settings["route"] = [{"path": "/*", "methods": ["POST", "PATCH", "PUT"]}]
            self.assertEqual(gateway.start_expecting_refusal(), 1)
        self.assertEqual(note.read_text(), before)
        gateway.settings.update({"listen": listen or "127.0.0.1:0", "route": [{"path": "/*"}]})
        gateway.start()
        gateway.stop()
        gateway.settings["route"] = [{"path": "/*", "methods": ["POST", "PATCH", "PUT"]}]
        note.unlink()
        note.mkdir()
        self.assertEqual(gateway.start_expecting_refusal(), 1)


if __name__ == "__main__":
    unittest.main()
