"""The transcript of README.md, run for real: its commands against a gateway, its output compared line by line."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.gateway import PROJECT, Gateway, free_port
from support.waiting import PATIENCE_SECONDS, poll_until

README = PROJECT / "README.md"

# What differs from run to run; the transcript shows one run.
CHANGING = [
    (re.compile(r"^(date|via|server|request-id|original-request):.*$", re.IGNORECASE), r"\1: …"),
    (re.compile(r"\r$"), ""),
]


def transcript(text):
    """(command, expected output lines) of every `$ ` line of the console blocks; a trailing backslash continues it."""
    steps = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        lines = iter(block.splitlines())
        for line in lines:
            if line.startswith("$ "):
                command = line[2:]
                while command.endswith("\\"):
                    command = command[:-1] + next(lines, "").lstrip("> ")
                steps.append((command, []))
            elif steps:
                steps[-1][1].append(line)
    return steps


def comparable(lines):
    """Without what changes, and without empty lines, which blocks use for air."""
    result = []
    for line in lines:
        for pattern, replacement in CHANGING:
            line = pattern.sub(replacement, line)
        if line.strip():
            result.append(line.rstrip())
    return result


class ReadmeTest(unittest.TestCase):
    def test_the_parser_reads_commands_and_their_output(self):
        text = "x\n```console\n$ one \\\n    two\nout\n\n$ three\n```\n```sh\n$ four\n```\n"
        self.assertEqual(transcript(text), [("one two", ["out", ""]), ("three", [])])

    @unittest.skipUnless("ONCEKEY_PAYMENTS_API" in os.environ, "ONCEKEY_PAYMENTS_API names no sample API")
    def test_the_readme_shows_what_really_happens(self):
        steps = [step for step in transcript(README.read_text()) if not step[0].startswith(("make ", "git ", "cd "))]
        self.assertTrue(steps, "the README has no transcript")
        port = free_port()
        api = subprocess.Popen([os.environ["ONCEKEY_PAYMENTS_API"], "--port", str(port)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(api.wait)
        self.addCleanup(api.kill)
        poll_until(lambda: subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"], capture_output=True,
                                          check=False).returncode == 0, "the sample API to listen")
        with Gateway(f"http://127.0.0.1:{port}", [{"path": "/*", "policy": "classic"}], store="rocksdb") as gateway:
            for command, expected in steps:
                with self.subTest(command=command):
                    self.assertEqual(comparable(self.run_command(command, gateway, port)), comparable(expected))

    def run_command(self, command, gateway, api_port):
        command = command.replace("127.0.0.1:8080", f"127.0.0.1:{gateway.address[1]}")
        command = command.replace("127.0.0.1:8081", gateway.admin_text)
        command = command.replace("127.0.0.1:9090", f"127.0.0.1:{api_port}")
        command = re.sub(r"\bcurl\b", "curl --silent --show-error", command)
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_SECONDS,
                              check=False, cwd=gateway.folder)
        return (done.stdout + done.stderr).splitlines()


if __name__ == "__main__":
    unittest.main()
