"""What is Postgres' own: its settings, its schema, and a server that only follows another."""

import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.cases import fresh_key
from support.gateway import Gateway, run_cli
from support.postgres_servers import POSTGRES_BINARIES
from support.servers import PgBouncer, Postgres
from support.shared_cases import ROUTES, SharedStoreTest
from support.backends import PostgresBackend
from support.waiting import Background, poll_until


class PostgresTest(SharedStoreTest):
    backend_type = PostgresBackend

    def refusal(self, **settings):
        """The log of a gateway that will not start."""
        gateway = Gateway(self.upstream.url, ROUTES, **settings)
        self.addCleanup(gateway.remove)
        self.assertNotEqual(gateway.start_expecting_refusal(), 0, gateway.log)
        return gateway.log

    # Durability.

    def test_synchronous_commit_off_for_a_database_is_less_than_power(self):
        url = self.backend.server.create_database("hasty")
        self.backend.server.sql("ALTER DATABASE hasty SET synchronous_commit = off", "postgres")
        self.assertIn("durability", self.refusal(store=url, require_durability="power"))
        with Gateway(self.upstream.url, ROUTES, store=url) as gateway:
            self.assertNotEqual(gateway.admin.get("/readyz").json()["durability"], "power")
            self.assertLess(gateway.metric("oncekey_store_durability"), 2)
            self.assert_first(self.post(gateway))

    def test_a_level_that_falls_later_is_noticed(self):
        url = self.backend.server.create_database("falling")
        with Gateway(self.upstream.url, ROUTES, store=url, require_durability="power") as gateway:
            self.assert_first(self.post(gateway))
            self.backend.server.sql("ALTER DATABASE falling SET synchronous_commit = off", "postgres")
            self.backend.server.terminate_sessions("falling")
            self.assertIn("durability", self.wait_until_not_ready(gateway))
            refused = fresh_key()
            self.assert_store_unavailable(self.post(gateway, key=refused))
            self.assertEqual(self.upstream.executions(refused), 0)

    # The schema.

    def test_migrating_twice_is_migrating_once(self):
        url = self.backend.server.create_database("twice")
        for _ in range(2):
            done = run_cli("store", "migrate", "--store", url)
            self.assertEqual(done.returncode, 0, done.stderr)
        with Gateway(self.upstream.url, ROUTES, store=url) as gateway:
            self.assert_first(self.post(gateway))

    def test_many_that_start_at_once_migrate_once(self):
        url = self.backend.server.create_database("at_once")
        gateways = [Gateway(self.upstream.url, ROUTES, store=url) for _ in range(3)]
        for gateway in gateways:
            self.addCleanup(gateway.remove)
        migrations = [Background(lambda: run_cli("store", "migrate", "--store", url)) for _ in range(3)]
        starts = [Background(gateway.start) for gateway in gateways]
        for one in migrations:
            done = one.result()
            self.assertEqual(done.returncode, 0, done.stderr)
        for one in starts:
            one.result()
        # One secret, one set of records: they answer for each other.
        first = self.post(gateways[0])
        self.assert_first(first)
        for gateway in gateways[1:]:
            self.assert_replay_of(first, self.post(gateway))
        self.assert_executed(1)

    def test_a_start_whose_commits_wait_for_a_standby_says_what_it_waits_for(self):
        with Postgres() as server:
            server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            server.sql("SELECT pg_reload_conf()")
            gateway = Gateway(self.upstream.url, ROUTES, store=server.url)
            self.addCleanup(gateway.remove)
            start = Background(gateway.start)
            poll_until(lambda: "event=migrating" in gateway.log, "a word about the migration")
            self.assertNotIn("event=listening", gateway.log)
            server.sql("ALTER SYSTEM RESET synchronous_standby_names")
            server.sql("SELECT pg_reload_conf()")
            start.result()
            self.assert_first(self.post(gateway))

    # A database that has forgotten.

    def test_a_dump_that_is_read_back_under_a_gateway_executes_nothing_again(self):
        url = self.backend.server.create_database("read_back")
        with Gateway(self.upstream.url, ROUTES, store=url) as gateway:
            self.assert_first(self.post(gateway, key=fresh_key()))
            dump = subprocess.run([POSTGRES_BINARIES / "pg_dump", "-n", "oncekey", "-d", url], capture_output=True,
                                  text=True, check=True).stdout
            self.assert_first(self.post(gateway, "/brief/forgotten"))
            ticks = int(self.backend.server.sql("SELECT tick FROM oncekey.meta", "read_back"))
            poll_until(lambda: int(self.backend.server.sql("SELECT tick FROM oncekey.meta", "read_back")) > ticks + 1,
                       "the marker to count on")
            with Gateway(self.upstream.url, ROUTES, store=url) as other:  # whose memory has no answers
                # In one transaction, so that no connection is lost and no call fails.
                subprocess.run([POSTGRES_BINARIES / "psql", "-Xq1", "-v", "ON_ERROR_STOP=1", "-d", url], check=True,
                               input="DROP SCHEMA oncekey CASCADE;\n" + dump, capture_output=True, text=True)
                self.assert_store_unavailable(self.post(other, "/brief/forgotten"))
                self.assert_executed(1)
                self.assertIn("lost its memory", self.wait_until_not_ready(other))

    def test_an_emptied_database_is_refused_by_those_that_start_later_until_the_loss_is_accepted(self):
        url = self.backend.server.create_database("emptied")
        with Gateway(self.upstream.url, ROUTES, store=url) as gateway:
            self.assert_first(self.post(gateway))
            self.backend.server.sql("DROP SCHEMA oncekey CASCADE", "emptied")
            self.wait_until_not_ready(gateway)
        with Gateway(self.upstream.url, ROUTES, store=url) as later:
            self.assert_store_unavailable(self.post(later))
            self.assert_executed(1)
            accepted = run_cli("store", "accept-loss", "--store", url, "--yes")
            self.assertEqual(accepted.returncode, 0, accepted.stderr)
            self.wait_until_ready(later)
            self.assert_first(self.post(later))

    # Who may be connected to.

    def test_a_server_in_recovery_is_refused(self):
        with Postgres() as primary:
            with Gateway(self.upstream.url, ROUTES, store=primary.url) as gateway:
                self.assert_first(self.post(gateway))
            primary.stop()
            (primary.data / "standby.signal").touch()
            primary.start()
            self.assertEqual(primary.sql("SELECT pg_is_in_recovery()"), "t")
            self.assertIn("recovery", self.refusal(store=primary.url))

    def test_a_server_that_becomes_a_standby_is_noticed(self):
        with Postgres() as server, Gateway(self.upstream.url, ROUTES, store=server.url) as gateway:
            self.assert_first(self.post(gateway))
            server.stop()
            (server.data / "standby.signal").touch()
            server.start()
            refused = fresh_key()
            self.assert_store_unavailable(self.post(gateway, key=refused))
            self.assertEqual(self.upstream.executions(refused), 0)
            self.wait_until_not_ready(gateway)
            server.sql("SELECT pg_promote()")
            poll_until(lambda: server.sql("SELECT pg_is_in_recovery()") == "f", "the promotion")
            self.wait_until_ready(gateway)
            self.assertTrue(self.post(gateway).replayed)

    def test_a_wrong_password_is_refused_and_not_shown(self):
        with Postgres() as server:
            server.sql("ALTER USER postgres PASSWORD 'right-secret'")
            (server.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
            server.restart()
            log = self.refusal(store=server.url.replace("postgres@", "postgres:wrong-secret@"))
            self.assertIn("password", log)
            self.assertNotIn("wrong-secret", log)
            right = server.url.replace("postgres@", "postgres:right-secret@")
            with Gateway(self.upstream.url, ROUTES, store=right) as gateway:
                self.assert_first(self.post(gateway))
                self.assertNotIn("right-secret", gateway.log)

    def test_a_password_file_is_read_as_libpq_users_expect(self):
        with Postgres() as server:
            server.sql("ALTER USER postgres PASSWORD 'right-secret'")
            (server.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
            server.restart()
            gateway = Gateway(self.upstream.url, ROUTES, store=server.url,
                              environment={"PGPASSFILE": str(server.folder / "pgpass")})
            self.addCleanup(gateway.remove)
            (server.folder / "pgpass").write_text(f"127.0.0.1:{server.port}:*:postgres:right-secret\n")
            (server.folder / "pgpass").chmod(0o600)
            gateway.start()
            self.assert_first(self.post(gateway))

    # PgBouncer.

    def test_a_bouncer_with_fewer_connections_than_the_gateway_wants_is_enough(self):
        url_name = "narrow"
        self.backend.server.create_database(url_name)
        with PgBouncer(self.backend.server, default_pool_size=1) as bouncer:
            with Gateway(self.upstream.url, ROUTES, store=bouncer.url_of(url_name)) as gateway:
                keys = [fresh_key("narrow") for _ in range(20)]
                replies = self.together([(lambda key=key: self.post(gateway, key=key)) for key in keys])
                self.assertEqual({reply.status for reply in replies}, {201})

    def test_a_bouncer_that_is_restarted_is_found_again(self):
        self.backend.server.create_database("bounced")
        with PgBouncer(self.backend.server) as bouncer:
            with Gateway(self.upstream.url, ROUTES, store=bouncer.url_of("bounced")) as gateway:
                first = self.post(gateway)
                bouncer.kill()
                self.assert_store_unavailable(self.post(gateway, key=fresh_key()))
                bouncer.start()
                self.wait_until_ready(gateway)
                self.assert_replay_of(first, self.post(gateway))


if __name__ == "__main__":
    unittest.main()
