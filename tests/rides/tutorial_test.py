"""docs/TUTORIAL.md, done for real: its commands in a shell, their output compared; its excerpts found in the example."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from rides_processes import binary
from support.gateway import PROJECT, SANITIZER_REPORTS, free_port
from support.waiting import poll_until
from tutorial import TUTORIAL, excerpts, matches, steps

MARK = "oncekey-tutorial-mark"
# The tutorial's ports, by the command that listens there.
PORTS = {"api": "5004", "processor": "5005", "mailer": "5006"}


class Shell:
    """One bash for all commands, as the reader has one terminal."""

    def __init__(self, folder, path):
        self.process = subprocess.Popen(["bash", "--norc"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                        env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"})

    def run(self, command):
        self.process.stdin.write(f"{command}\necho; echo {MARK}\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.rstrip("\n") == MARK:
                return lines[:-1]  # the empty line before the mark is ours
            lines.append(line.rstrip("\r\n"))
        raise AssertionError(f"the shell ended during: {command}")

    def end(self):
        """With everything that was started in it and is still in its session."""
        self.process.stdin.write("kill $(jobs -p) 2>/dev/null; wait\nexit\n")
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()
        self.process.stdout.close()


def listens(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", int(port))) == 0


class TutorialTest(unittest.TestCase):
    def test_the_matcher_knows_gaps(self):
        self.assertTrue(matches(["a … c", "…", "z"], ["a b c", "x", "y", "z"]))
        self.assertTrue(matches(["a", "…"], ["a"]))
        self.assertFalse(matches(["a … c"], ["a b d"]))
        self.assertFalse(matches(["a"], ["a", "b"]))

    def test_excerpts_stand_in_the_example_word_for_word(self):
        found = excerpts(TUTORIAL.read_text())
        self.assertGreater(len(found), 3)
        for file, code in found:
            with self.subTest(file=file, begins=code.splitlines()[0]):
                self.assertIn(code, (PROJECT / file).read_text())

    @unittest.skipUnless(os.path.exists(binary()) and "ONCEKEY_TUTORIAL_PAYOUT" in os.environ, "not built")
    def test_the_commands_do_what_the_tutorial_shows(self):
        folder = tempfile.mkdtemp(prefix="oncekey-tutorial-")
        self.addCleanup(shutil.rmtree, folder, True)
        path = pathlib.Path(folder) / "bin"
        path.mkdir()
        (path / "rides").symlink_to(binary())
        (path / "payout").symlink_to(os.environ["ONCEKEY_TUTORIAL_PAYOUT"])
        ports = {command: str(free_port()) for command in PORTS}
        shell = Shell(folder, path)
        self.addCleanup(shell.end)
        for command, expected in steps(TUTORIAL.read_text()):
            if command.startswith(("make ", "export PATH=")):
                continue
            with self.subTest(command=command):
                lines = shell.run(self.on_free_ports(command, ports))
                self.wait_for_service(command, ports)
                # What bash says about jobs that were killed is not in everybody's terminal at the same place.
                lines = [line for line in lines if not re.match(r"bash: line \d+: +\d+ Killed", line)]
                self.assertTrue(matches(self.stripped(expected), self.stripped(lines)),
                                "printed:\n" + "\n".join(lines))
        for log in pathlib.Path(folder).rglob("*.log"):
            self.assertIsNone(SANITIZER_REPORTS.search(log.read_text()), log.read_text())

    @staticmethod
    def stripped(lines):
        """Without empty lines, which blocks use for air."""
        return [line for line in lines if line.strip()]

    @staticmethod
    def on_free_ports(command, ports):
        more = {name: f" --port {port}" for name, port in ports.items()}
        more["api"] += f" --processor http://127.0.0.1:{ports['processor']}"
        more["completer"] = f" --processor http://127.0.0.1:{ports['processor']}"
        more["enqueuer"] = f" --mailer http://127.0.0.1:{ports['mailer']}"
        for name, port in PORTS.items():
            command = command.replace(f"127.0.0.1:{port}", f"127.0.0.1:{ports[name]}")
        for name, flags in more.items():
            if command.startswith(f"rides {name} "):
                return command.replace(f"rides {name}", f"rides {name}{flags}", 1)
        return command

    @staticmethod
    def wait_for_service(command, ports):
        """A reader types the next command later than this test does."""
        for name in PORTS:
            if command.startswith(f"rides {name}"):
                poll_until(lambda port=ports[name]: listens(port), f"rides {name} to listen")


if __name__ == "__main__":
    unittest.main()
