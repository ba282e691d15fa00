"""The servers of the tests: they keep what they promised over a crash, and none outlives its test."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.servers import PgBouncer, Postgres, Redis, RedisCluster
from support.waiting import poll_until

WITH_SERVERS = [sys.executable, str(pathlib.Path(__file__).with_name("with_servers.py"))]


class WithServersTest(unittest.TestCase):
    def test_the_command_has_the_urls_and_decides_the_exit_code(self):
        script = 'echo "$ONCEKEY_TEST_POSTGRES|$ONCEKEY_TEST_REDIS"; exit 7'
        done = subprocess.run([*WITH_SERVERS, "postgres", "redis", "--", "sh", "-c", script], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertRegex(done.stdout, r"^postgres://postgres@127.0.0.1:\d+/oncekey\|redis://127.0.0.1:\d+/0\n$")

    def test_an_unknown_server_is_refused(self):
        done = subprocess.run([*WITH_SERVERS, "oracle", "--", "true"], capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)

    def test_nothing_outlives_a_wrapper_that_is_killed(self):
        folder = tempfile.TemporaryDirectory(prefix="oncekey-servers-test-")  # what the killed cannot remove
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        wrapper = subprocess.Popen([*WITH_SERVERS, "postgres", "pgbouncer", "redis", "--", "sh", "-c",
                                    "echo started; exec sleep 600"], stdout=subprocess.PIPE,
                                   env={**os.environ, "TMPDIR": folder.name})
        with wrapper.stdout:
            wrapper.stdout.readline()
            children = pathlib.Path(f"/proc/{wrapper.pid}/task").glob("*/children")
            pids = [int(pid) for file in children for pid in file.read_text().split()]
            self.assertEqual(len(pids), 4)
            wrapper.send_signal(signal.SIGKILL)
            wrapper.wait()
        poll_until(lambda: not any(self.lives(pid) for pid in pids), "the servers to end with their wrapper")

    @staticmethod
    def lives(pid):
        try:
            os.kill(pid, 0)
            return ") Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False


class ServersTest(unittest.TestCase):
    def test_postgres_keeps_what_it_committed(self):
        with Postgres() as postgres:
            postgres.sql("CREATE TABLE kept (n int)")
            postgres.sql("INSERT INTO kept VALUES (1)")
            postgres.crash()
            postgres.start()
            postgres.sql("INSERT INTO kept VALUES (2)")
            postgres.stop_immediately()
            postgres.save()
            postgres.start()
            self.assertEqual(postgres.sql("SELECT n FROM kept ORDER BY n"), "1\n2")
            postgres.sql("INSERT INTO kept VALUES (3)")
            postgres.stop()
            postgres.restore()
            postgres.start()
            self.assertEqual(postgres.sql("SELECT count(*) FROM kept"), "2")

    def test_the_bouncer_leads_to_its_postgres(self):
        with Postgres() as postgres, PgBouncer(postgres) as bouncer:
            out = subprocess.run(["psql", "-XAtqc", "SHOW port", "-d", bouncer.url], capture_output=True, text=True,
                                 check=True).stdout
            self.assertEqual(out.strip(), str(postgres.port))

    def test_redis_keeps_what_it_answered(self):
        with Redis() as redis:
            redis.ask("SET", "kept", "1")
            redis.kill()
            redis.save()
            redis.start()
            self.assertEqual(redis.ask("GET", "kept"), b"1")
            redis.ask("SET", "kept", "2")
            redis.kill()
            redis.restore()
            redis.start()
            self.assertEqual(redis.ask("GET", "kept"), b"1")

    def test_a_cluster_moves_slots_and_fails_over(self):
        with RedisCluster() as cluster:
            source, target = cluster.primaries()[:2]
            cluster.move_slots(source, target, cluster.slots_of(source)[:3])
            self.assertEqual(len(cluster.slots_of(target)), 5464)
            self.assertIn(cluster.fail_over(source), cluster.nodes)
            self.assertEqual(len(cluster.primaries()), 3)


if __name__ == "__main__":
    unittest.main()
