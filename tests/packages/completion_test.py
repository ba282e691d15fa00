"""The completions of bash, zsh and fish offer every subcommand and option that the binary has, and the manual pages tell of
them and of every setting.

The shells themselves run their scripts. zsh and fish are left out where they are not installed, unless
ONCEKEY_SLOW_TESTS=1 says that they must be (scripts/setup test-slow).
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(PROJECT / "packaging"))

import man_pages  # noqa: E402
import words_test  # noqa: E402

SLOW = os.environ.get("ONCEKEY_SLOW_TESTS") == "1"


def binary():
    return os.environ["ONCEKEY_BINARY"]


def needs(shell):
    return unittest.skipUnless(SLOW or shutil.which(shell), f"NOT TESTED: {shell} is not installed")


def commands():
    """Every command with its own options and subcommands: [(("keys", "list"), ["--state", ...], [])]."""
    lines = [line.split() for line in words_test.command_line()]
    found = []
    for line in lines:
        path = tuple(word for word in line[1:] if not word.startswith("--"))
        options = [word for word in line[1:] if word.startswith("--")]
        depth = len(path) + 1
        below = [other[depth] for other in lines
                 if len(other) > depth and tuple(other[1:depth]) == path and not other[depth].startswith("--")
                 and len([word for word in other[1:] if not word.startswith("--")]) == depth]
        found.append((path, options, sorted(set(below))))
    return found


class Completions(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.commands = commands()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.scripts = {}
        for shell in ("bash", "zsh", "fish"):
            script = pathlib.Path(folder.name) / f"oncekey.{shell}"
            with script.open("w") as out:
                subprocess.run([binary(), "completion", shell], stdout=out, check=True, timeout=60)
            cls.scripts[shell] = script

    def offered(self, shell, questions):
        """What is offered after each of these lines: one run of the shell for all."""
        run = getattr(self, "ask_" + shell)
        done = run(self.scripts[shell], questions)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        answers = done.stdout.split("==\n")[1:]
        self.assertEqual(len(answers), len(questions))
        return [answer.split("\n")[:-1] for answer in answers]

    @staticmethod
    def ask_bash(script, questions):
        lines = [f"source {script}"]
        for words in questions:
            quoted = " ".join(f"'{word}'" for word in words)
            lines.append(f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMPREPLY=(); _oncekey; echo ==; "
                         '((${#COMPREPLY[@]})) && printf "%s\\n" "${COMPREPLY[@]}"')
        return subprocess.run(["bash", "--norc", "-c", "\n".join(lines) + "\ntrue"], capture_output=True, text=True, check=False)

    @staticmethod
    def ask_zsh(script, questions):
        # The functions of zsh's completion system, saying what they were asked to offer.
        lines = ["_files() { print -- FILES }", "_message() { }", "compadd() { print -l -- ${(P)2} }",
                 "_describe() { local name=${@[-1]}; print -l -- ${${(P)name}%%:*} }", f"source {script}"]
        for words in questions:
            quoted = " ".join(f"'{word}'" for word in words)
            lines.append(f"words=({quoted}); CURRENT={len(words)}; PREFIX='{words[-1]}'; print '=='; _oncekey")
        return subprocess.run(["zsh", "-f", "-c", "\n".join(lines) + "\ntrue"], capture_output=True, text=True, check=False)

    @staticmethod
    def ask_fish(script, questions):
        lines = [f"source {script}"]
        for words in questions:
            lines.append(f"echo ==; complete -C '{' '.join(words)}' | string replace -r '\\t.*' ''")
        return subprocess.run(["fish", "--no-config", "-c", "\n".join(lines)], capture_output=True, text=True, check=False)

    def check_everything_is_offered(self, shell):
        self.assertGreater(len(self.commands), 20)
        asked = [["oncekey", *path, "--"] for path, _, _ in self.commands]
        for (path, options, _), offered in zip(self.commands, self.offered(shell, asked)):
            for option in options:
                self.assertIn(option, offered, f"oncekey {' '.join(path)}")
        with_subcommands = [(path, below) for path, _, below in self.commands if below]
        asked = [["oncekey", *path, ""] for path, _ in with_subcommands]
        for (path, below), offered in zip(with_subcommands, self.offered(shell, asked)):
            self.assertLessEqual(set(below), set(offered), f"oncekey {' '.join(path)}")

    def check_values(self, shell):
        policy, state, inherited, level = self.offered(shell, [
            ["oncekey", "serve", "--policy", ""], ["oncekey", "keys", "list", "--state", "wait"],
            ["oncekey", "keys", "list", "--tok"], ["oncekey", "serve", "--listen", "x", "--log-level", ""]])
        self.assertIn("stripe-v1", policy)
        self.assertIn("waiting", state)
        self.assertIn("--token-file", inherited)
        self.assertIn("warning", level)

    def test_bash_offers_everything(self):
        self.check_everything_is_offered("bash")
        self.check_values("bash")

    def test_bash_offers_only_what_continues_the_word(self):
        (offered,) = self.offered("bash", [["oncekey", "serve", "--upstream-"]])
        self.assertEqual(set(offered), {"--upstream-timeout", "--upstream-ca"})

    def test_bash_offers_files_where_a_file_is_taken_and_nothing_for_an_address(self):
        file, address, argument, joined = self.offered("bash", [
            ["oncekey", "serve", "--config", "/etc/passw"], ["oncekey", "serve", "--listen", ""],
            ["oncekey", "check", "/etc/passw"], ["oncekey", "serve", "--policy", "=", "cl"]])
        self.assertIn("/etc/passwd", file)
        self.assertEqual(address, [])
        self.assertIn("/etc/passwd", argument)
        self.assertEqual(joined, ["classic"])

    @needs("zsh")
    def test_zsh_offers_everything(self):
        self.check_everything_is_offered("zsh")
        self.check_values("zsh")

    @needs("fish")
    def test_fish_offers_everything(self):
        self.check_everything_is_offered("fish")
        self.check_values("fish")

    def test_another_shell_is_refused_by_name(self):
        done = subprocess.run([binary(), "completion", "tcsh"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (2, 'oncekey completion: there is no completion for "tcsh": expected bash, zsh or fish\n'))


def as_read(page):
    """The text of a page without its markup."""
    text = page.replace("\\-", "-").replace("\\e", "\\")
    return re.sub(r"\\f[BIR]", "", text)


class ManualPages(unittest.TestCase):
    def test_every_command_begins_a_paragraph_of_the_list(self):
        page = man_pages.command_page(binary())
        listed = page.partition("\n.SH COMMANDS\n")[2].partition("\n.SH ")[0]
        tagged = re.findall(r"^\.TP\n\.B (\S+)$", listed, flags=re.MULTILINE)
        known = {path[0] for path, _, _ in commands() if path}
        self.assertEqual(len(re.findall(r"^\.B ", listed, flags=re.MULTILINE)), len(tagged))
        self.assertLessEqual(set(tagged), known | {"help", "version"})

    def test_every_command_and_option_is_told(self):
        page = as_read(man_pages.command_page(binary()))
        for path, options, _ in commands():
            if path[:1] == ("version",):
                continue
            if path:
                self.assertRegex(page, rf"\b{re.escape(path[0])}\b")
            if options:
                heading = f".SS {' '.join(['oncekey', *path])}\n"
                self.assertIn(heading, page)
                section = page.split(heading)[1].split(".SS ")[0].split(".SH ")[0]
                for option in options:
                    self.assertIn(option, section, f"{path}")

    def test_a_name_that_fills_its_column_is_cut_from_its_meaning(self):
        sections = man_pages.sections_of_help("Options:\n  --config FILE               a file\n"
                                              "  --upstream-timeout DURATION the longest call\n"
                                              "  --accept-what-was-changed-then TEXT:{a,b} REQUIRED\n"
                                              "                              start although\n")
        self.assertEqual(sections["Options"], [["--config FILE", "a file"], ["--upstream-timeout DURATION", "the longest call"],
                                               ["--accept-what-was-changed-then TEXT:{a,b}", "start although"]])

    def test_every_setting_is_told(self):
        page = man_pages.configuration_page()
        entries = set(re.findall(r"^\.TP\n\\fB([a-z_.]+)\\fR$", page, flags=re.MULTILINE))
        self.assertLessEqual(set(words_test.settings()), entries)

    @needs("man")
    def test_groff_reads_them_without_a_warning(self):
        for page in (man_pages.command_page(binary()), man_pages.configuration_page()):
            done = subprocess.run(["man", "--warnings", "--local-file", "-"], input=page, capture_output=True, text=True,
                                  check=False, env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
