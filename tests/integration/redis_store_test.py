"""What is Redis' own: memory that may run out or be evicted, scripts that may be flushed, and how often it syncs."""

import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.backends import RedisBackend
from support.cases import fresh_key
from support.gateway import Gateway, free_port, run_cli, toml
from support.servers import Redis
from support.shared_cases import ROUTES, SharedStoreTest
from support.upstream import answers
from support.waiting import poll_until

EVICTING = ("allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random",
            "volatile-ttl")


class RedisTest(SharedStoreTest):
    backend_type = RedisBackend

    def tearDown(self):
        for name, value in (("maxmemory", 0), ("maxmemory-policy", "noeviction"), ("appendfsync", "always")):
            self.backend.server.configure(name, value)

    def refusal(self, **settings):
        """The log of a gateway that will not start."""
        gateway = Gateway(self.upstream.url, ROUTES, **settings)
        self.addCleanup(gateway.remove)
        self.assertNotEqual(gateway.start_expecting_refusal(), 0, gateway.log)
        return gateway.log

    def test_a_reload_that_waits_for_a_hanging_server_holds_no_operator_up(self):
        with Redis() as redis, Gateway(self.upstream.url, ROUTES, store=redis.url) as gateway:
            new = {"path": "/*", "policy": "classic", "methods": ["PUT"]}
            gateway.config_file.write_text(toml({**gateway.settings, "route": [*ROUTES, new]}))
            redis.pause()
            try:
                gateway.signal(signal.SIGHUP)
                self.assertEqual(gateway.admin.get("/livez").status, 200)
                self.assertNotIn("event=config_reload", gateway.log)
            finally:
                redis.resume()
            gateway.wait_for_log("event=config_reload")

    def test_signals_for_the_log_and_the_configuration_do_not_end_a_start(self):
        with Redis() as redis:
            gateway = Gateway(self.upstream.url, ROUTES, store=redis.url)
            self.addCleanup(gateway.remove)
            redis.pause()
            try:
                gateway.start_without_waiting()

                def ignores_hangups():
                    status = pathlib.Path(f"/proc/{gateway.pid}/status").read_text()
                    return int(status.partition("SigIgn:")[2].split()[0], 16) & 1 << signal.SIGHUP - 1

                poll_until(ignores_hangups, "the start to have begun")
                gateway.signal(signal.SIGHUP)
                gateway.signal(signal.SIGUSR1)
            finally:
                redis.resume()
            gateway.wait_for_log("event=listening")

    # Memory.

    def test_a_server_that_evicts_is_refused(self):
        for policy in EVICTING:
            with self.subTest(policy=policy):
                self.backend.server.configure("maxmemory-policy", policy)
                log = self.refusal(store=self.backend.url)
                self.assertIn(policy, log)
                self.assertIn("noeviction", log)

    def test_a_server_that_begins_to_evict_is_noticed(self):
        first = self.post(self.here)
        self.assert_replay_of(first, self.post(self.here))
        self.backend.server.configure("maxmemory-policy", "allkeys-lru")
        self.assertIn("allkeys-lru", self.wait_until_not_ready(self.here))
        refused = fresh_key()
        self.assert_store_unavailable(self.post(self.here, key=refused))
        self.assertEqual(self.upstream.executions(refused), 0)
        self.backend.server.configure("maxmemory-policy", "noeviction")
        self.wait_until_ready(self.here)
        self.assert_first(self.post(self.here, key=refused))

    def test_what_was_evicted_is_lost_memory_also_when_the_policy_is_right_again(self):
        with Redis() as redis, Gateway(self.upstream.url, ROUTES, store=redis.url) as gateway:
            self.assert_first(self.post(gateway))
            redis.configure("maxmemory-policy", "volatile-ttl")
            redis.configure("maxmemory", 1)
            poll_until(lambda: int(redis.info("stats")["evicted_keys"]) > 0, "the record to be evicted")
            redis.configure("maxmemory", 0)
            redis.configure("maxmemory-policy", "noeviction")
            poll_until(lambda: "has evicted" in self.wait_until_not_ready(gateway), "the loss to be reported")
            refused = fresh_key()
            self.assert_store_unavailable(self.post(gateway, key=refused))
            self.assertEqual(run_cli("store", "accept-loss", "--store", redis.url, "--yes").returncode, 0)
            self.wait_until_ready(gateway)
            self.assert_first(self.post(gateway, key=refused))

    def test_a_full_server_executes_nothing_and_recovers(self):
        self.backend.server.configure("maxmemory", 1)
        self.assert_store_unavailable(self.post(self.here))
        self.assert_executed(0)
        self.backend.server.configure("maxmemory", 0)
        self.assert_first(self.post_until_settled(self.here, "/charges"))
        self.assert_executed(1)

    def test_an_answer_that_comes_while_the_server_is_full_is_kept(self):
        gate = self.hold_at_upstream(answers(201, b"made"))
        running = self.post_in_background(self.here)
        gate.wait_for_arrival()
        self.backend.server.configure("maxmemory", 1)
        refused = self.refusals()
        gate.open()
        poll_until(lambda: self.refusals() > refused, "the answer to be refused")
        self.backend.server.configure("maxmemory", 0)
        answer = running.result()
        self.assert_first(answer)
        self.assert_replay_of(answer, self.post(self.there))
        self.assert_executed(1)

    def refusals(self):
        """How many commands or calls of a script the server has had no memory for."""
        found = self.backend.server.info("errorstats").get("errorstat_OOM", "count=0")
        return int(found.removeprefix("count="))

    # Durability.

    def test_a_server_that_syncs_once_a_second_is_less_than_power(self):
        self.backend.server.configure("appendfsync", "everysec")
        log = self.refusal(store=self.backend.url, require_durability="power")
        self.assertIn("durability", log)
        self.assertIn("appendfsync", log)
        with Gateway(self.upstream.url, ROUTES, store=self.backend.url) as gateway:
            # Not even "process": while a sync runs, it answers before it has written.
            self.assertEqual(gateway.admin.get("/readyz").json()["durability"], "none")
            self.assertEqual(gateway.metric("oncekey_store_durability"), 0)

    def test_a_server_that_keeps_no_file_is_durable_in_no_way(self):
        with Redis(appendonly="no") as redis:
            self.assertIn("durability", self.refusal(store=redis.url, require_durability="process"))
            with Gateway(self.upstream.url, ROUTES, store=redis.url) as gateway:
                self.assertEqual(gateway.admin.get("/readyz").json()["durability"], "none")

    def test_a_level_that_falls_later_is_noticed(self):
        with Gateway(self.upstream.url, ROUTES, store=self.backend.url, require_durability="power") as gateway:
            self.backend.server.configure("appendfsync", "no")
            self.assertIn("durability", self.wait_until_not_ready(gateway))
            self.assert_store_unavailable(self.post(gateway))
            self.assert_executed(0)
            self.backend.server.configure("appendfsync", "always")
            self.wait_until_ready(gateway)
            self.assert_first(self.post(gateway))

    # A replica cannot be claimed on.

    def test_a_replica_is_refused(self):
        with Redis(replicaof=f"127.0.0.1 {self.backend.server.port}") as replica:
            poll_until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica to follow")
            self.assertIn("replica", self.refusal(store=replica.url))

    # Scripts.

    def test_flushed_scripts_are_loaded_again(self):
        first = self.post(self.here)
        self.backend.server.ask("SCRIPT", "FLUSH")
        self.assert_replay_of(first, self.post(self.there))
        self.backend.server.ask("SCRIPT", "FLUSH")
        self.assert_first(self.post(self.here, key=fresh_key()))

    def test_scripts_flushed_under_load_change_nothing(self):
        def trouble(crowd):
            for _ in range(40):
                crowd.wait_for_answers(4)
                self.backend.server.ask("SCRIPT", "FLUSH")

        self.under_load(trouble)

    # Logins and namespaces.

    def test_passwords_are_used_and_never_shown(self):
        with Redis(requirepass="right-secret") as redis:
            self.assertIn("password", self.refusal(store=redis.url))
            log = self.refusal(store=f"redis://:wrong-secret@127.0.0.1:{redis.port}/0")
            self.assertNotIn("wrong-secret", log)
            with Gateway(self.upstream.url, ROUTES, store=f"redis://:right-secret@127.0.0.1:{redis.port}/0") as gateway:
                self.assert_first(self.post(gateway))
                self.assertNotIn("right-secret", gateway.log)

    def test_an_acl_user_logs_in(self):
        self.backend.server.ask("ACL", "SETUSER", "oncekey", "on", ">right-secret", "~*", "&*", "+@all")
        url = f"redis://oncekey:right-secret@127.0.0.1:{self.backend.server.port}/0"
        with Gateway(self.upstream.url, ROUTES, store=url) as gateway:
            first = self.post(gateway)
            self.assert_first(first)
            self.assert_replay_of(first, self.post(self.here))

    def test_databases_and_prefixes_are_stores_of_their_own(self):
        port = self.backend.server.port
        for url in (f"redis://127.0.0.1:{port}/3", f"redis://127.0.0.1:{port}/0?prefix=other"):
            with self.subTest(url=url), Gateway(self.upstream.url, ROUTES, store=url) as gateway:
                key = fresh_key()
                self.assert_first(self.post(self.here, key=key))
                self.assert_first(self.post(gateway, key=key))

    # TLS.

    def test_a_certificate_is_trusted_for_its_name_and_for_no_other(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="oncekey-redis-tls-"))
        self.addCleanup(shutil.rmtree, folder)
        certificate, key = folder / "redis.crt", folder / "redis.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", key, "-out", certificate], check=True, capture_output=True)
        port = free_port()
        with Redis(tls_port=port, tls_cert_file=certificate, tls_key_file=key, tls_ca_cert_file=certificate,
                   tls_auth_clients="no"):
            with Gateway(self.upstream.url, ROUTES,
                         store=f"rediss://localhost:{port}/0?tls_ca={certificate}") as gateway:
                self.assert_first(self.post(gateway))
            log = self.refusal(store=f"rediss://127.0.0.1:{port}/0?tls_ca={certificate}")
            self.assertIn("certificate is for another name than 127.0.0.1", log)
            self.assertIn("not trusted", self.refusal(store=f"rediss://localhost:{port}/0"))

    # Restored backups.

    def test_a_restored_backup_is_noticed(self):
        with Redis() as redis:
            here = Gateway(self.upstream.url, ROUTES, store=redis.url)
            there = Gateway(self.upstream.url, ROUTES, store=redis.url)
            for gateway in (here, there):
                self.addCleanup(gateway.remove)
                gateway.start()
            self.assert_first(self.post(here))
            redis.stop()
            redis.save()
            redis.start()
            self.wait_until_ready(here)
            forgotten = fresh_key("forgotten")
            self.post_until_settled(here, "/charges", key=forgotten)
            self.wait_for_ticks(redis)
            redis.kill()
            redis.restore()
            redis.start()
            self.assert_store_unavailable(self.post(there, key=forgotten))
            self.assertEqual(self.upstream.executions(forgotten), 1)
            poll_until(lambda: "accept-loss" in self.wait_until_not_ready(there), "the loss to be reported")
            self.assertEqual(run_cli("store", "accept-loss", "--store", redis.url, "--yes").returncode, 0)
            self.wait_until_ready(there)
            self.assertTrue(self.post(there).replayed, "what was in the backup is still known")

    def test_an_older_copy_under_a_connection_that_stays_is_noticed_by_the_first_claim(self):
        with Redis() as redis, Redis() as copy:
            here = Gateway(self.upstream.url, ROUTES, store=redis.url)
            there = Gateway(self.upstream.url, ROUTES, store=redis.url)
            for gateway in (here, there):
                self.addCleanup(gateway.remove)
                gateway.start()
            for server in (redis, copy):
                server.configure("repl-diskless-sync-delay", 0)
            self.assert_first(self.post(here))
            self.follow(copy, redis)
            forgotten = fresh_key("forgotten")
            self.assert_first(self.post(here, key=forgotten))
            self.wait_for_ticks(redis)
            self.follow(redis, copy)
            self.assert_store_unavailable(self.post(there, key=forgotten))
            self.assertEqual(self.upstream.executions(forgotten), 1)
            self.assertIn("accept-loss", self.wait_until_not_ready(there))

    def follow(self, server, primary):
        """Gives a server what the other one has."""
        server.ask("REPLICAOF", "127.0.0.1", primary.port)
        poll_until(lambda: server.info("replication").get("master_link_status") == "up", "the copy to be whole")
        server.ask("REPLICAOF", "NO", "ONE")


if __name__ == "__main__":
    unittest.main()
