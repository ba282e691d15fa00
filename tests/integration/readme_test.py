"""The transcript of README.md, run for real: its commands against a gateway, its output compared line by line."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.gateway import PROJECT, Gateway, binary, free_port
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


def anchors(text):
    """The names under which a page's headings are linked."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class SetupTest(unittest.TestCase):
    """What each word of scripts/setup installs."""

    def packages(self, *words):
        return set(subprocess.run([PROJECT / "scripts/setup", "--list", *words], capture_output=True, text=True,
                                  check=True).stdout.split())

    def test_building_and_running_needs_neither_servers_nor_linters(self):
        others = {"postgresql-15", "redis-server", "pgbouncer", "nginx-light", "wrk", "clang-format", "clang-tidy",
                  "libgtest-dev", "libgmock-dev", "libbenchmark-dev", "nodejs", "npm"}
        self.assertEqual(self.packages("build") & others, set())
        self.assertIn("g++", self.packages("build"))

    def test_each_word_brings_its_own(self):
        self.assertLessEqual({"postgresql-15", "redis-server", "pgbouncer", "libgtest-dev", "g++"},
                             self.packages("test"))
        self.assertLessEqual({"clang-format", "clang-tidy"}, self.packages("lint"))
        self.assertLessEqual({"nginx-light", "wrk", "libbenchmark-dev"}, self.packages("bench"))

    def test_make_run_builds_the_gateway_and_the_sample_api_and_nothing_else(self):
        commands = subprocess.run(["make", "--dry-run", "run"], cwd=PROJECT, capture_output=True, text=True,
                                  check=True).stdout
        self.assertIn("scripts/setup build\n", commands)
        self.assertIn("scripts/build release -- oncekey_main payments_api\n", commands)

    def test_a_wrong_word_is_refused(self):
        done = subprocess.run([PROJECT / "scripts/setup", "everything"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn('unknown word "everything"', done.stderr)


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
        with Gateway(f"http://127.0.0.1:{port}", [{"path": "/*", "policy": "classic"}], store="journal") as gateway:
            for command, expected in steps:
                with self.subTest(command=command):
                    self.assertEqual(comparable(self.run_command(command, gateway, port)), comparable(expected))

    def test_the_example_configurations_are_accepted(self):
        documents = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
        configurations = {PROJECT / "examples/oncekey.toml": (PROJECT / "examples/oncekey.toml").read_text()}
        for document in documents:
            for number, block in enumerate(re.findall(r"^```toml\n(.*?)^```", document.read_text(), re.M | re.S), 1):
                # Excerpts have no upstream; examples that name certificates and keys need files of the reader's.
                if re.search(r"^upstream\b", block, re.M) and not re.search(r'"(file:|/etc/)', block):
                    configurations[f"{document.name}, example {number}"] = block
        self.assertGreater(len(configurations), 2)
        for name, text in configurations.items():
            with self.subTest(configuration=name), tempfile.TemporaryDirectory(prefix="oncekey-example-") as folder:
                (pathlib.Path(folder) / "oncekey.toml").write_text(text)
                secrets = {word: "postgres://oncekey@db/oncekey" if "STORE" in word else "0123456789abcdef"
                           for word in re.findall(r'"env:(\w+)"', text)}
                done = subprocess.run([binary(), "check", "oncekey.toml"], cwd=folder, capture_output=True, text=True,
                                      timeout=PATIENCE_SECONDS, check=False, env={**os.environ, **secrets})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_links_between_documents_lead_somewhere(self):
        documents = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
        for document in documents:
            for target, anchor in re.findall(r"\]\(([^)#:\s]*)(#[^)]*)?\)", document.read_text()):
                file = document if not target else (document.parent / target).resolve()
                with self.subTest(document=document.name, link=target + anchor):
                    self.assertTrue(file.exists())
                    if anchor and file.suffix == ".md":
                        self.assertIn(anchor[1:], anchors(file.read_text()))

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
