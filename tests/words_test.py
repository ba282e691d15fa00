"""One word for one thing (docs/GLOSSARY.md) in every name that users and operators meet: the subcommands and options of
the command line, the settings, the metrics with their labels, and the events of the log.

tests/golden/words.golden lists them all, to be read from top to bottom; ONCEKEY_WRITE_GOLDEN=1 writes the list anew. No
name may hold a second word for a thing of the glossary. The texts themselves (help, errors) are not looked at.

The command line is asked of the binary, the settings are those of docs/CONFIG.md (src/config/config_test.cc compares
them with the code), metrics and events are found in the sources.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[1]
GOLDEN = PROJECT / "tests" / "golden" / "words.golden"

# A thing of the glossary, and the words that would be a second name of it.
SECOND_WORDS = {
    "account": "customer tenant user",
    "answer": "reply replies response responses",
    "claim": "acquire",
    "destination": "endpoint endpoints line lines recipient",
    "fence": "epoch",
    "fingerprint": "digest checksum",
    "indeterminate": "stuck undecided unknown",
    "job": "message messages event events delivery deliveries task tasks",
    "key": "idempotency",
    "lease": "lock locks ttl",
    "mismatch": "conflict conflicts",
    "operator": "administrator",
    "release": "forget unlock",
    "replay": "replayed repeat",
    "retention": "expiry lifetime",
    "upstream": "backend backends origin",
}

# Names that hold such a word and mean something else by it.
ALLOWED = {
    "command --forget": "takes an entry out of the client's journal; nothing is released at the gateway",
    "command --key-lifetime": "how long the client goes on using a key of its journal; the gateway's retention is another time",
    "setting on_unknown": "what to do when the outcome of a call is unknown; making the key indeterminate is one choice",
    "setting otlp_endpoint": "OpenTelemetry's own word for where a collector listens",
    "event claim_unknown": "the store's answer to a claim was lost: about the call, not about a key's state",
}

# Names of the delivery room that still call a job a message or a delivery, and a destination an endpoint.
TO_BE_RENAMED = set()

METRIC = re.compile(r'"(oncekey_[a-z_]+)"')
LABEL = re.compile(r'\{\s*"([a-z_]+)",')
LABELS = re.compile(r"(?:\bAdd\(|\bLabels \w+)(\{\{.*?\}\})", re.DOTALL)
LOGGED = re.compile(r"""(?:\.|->)(?:
    (?:info|warning|error|always)\(\s*"(?P<event>\w+)" |
    (?:seldom|write)\(\s*[^,"]+,\s*"(?P<level_first>\w+)")""", re.VERBOSE)
SETTING = re.compile(r"^\| `([a-z_.]+)` \|", re.MULTILINE)


def sources():
    for file in sorted((PROJECT / "src").rglob("*.*")):
        if file.suffix in (".h", ".cc") and not file.stem.endswith("_test"):
            yield file.read_text()


def metrics_and_labels():
    metrics, labels = set(), set()
    for text in sources():
        if "prometheus::" in text:
            metrics.update(METRIC.findall(text))
            for added in LABELS.findall(text):
                labels.update(LABEL.findall(added))
    return sorted(metrics), sorted(labels)


def events():
    return sorted({match["event"] or match["level_first"] for text in sources() for match in LOGGED.finditer(text)})


def settings():
    return sorted(set(SETTING.findall((PROJECT / "docs" / "CONFIG.md").read_text())))


def help_of(words):
    binary = os.environ["ONCEKEY_BINARY"]
    return subprocess.run([binary, *words, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout


def options_and_subcommands(text):
    """What one --help lists: the names of its options, and those of its subcommands."""
    options, subcommands, section = [], [], ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            section = line.rstrip(":")
        entry = re.match(r"  (?:-\w,)?(--)?([a-z][a-z-]*)(?: |$)", line)
        if entry and section == "Options":
            options.append("--" + entry[2])
        elif entry and section == "Subcommands":
            subcommands.append(entry[2])
    return [option for option in options if option != "--help"], subcommands


def command_line():
    """Every command of the binary, each with its options behind it."""
    lines, level = [], [()]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        while level:
            deeper = []
            for words, text in zip(level, pool.map(help_of, level)):
                options, subcommands = options_and_subcommands(text)
                lines.append(" ".join(["oncekey", *words, *options]))
                deeper += [(*words, name) for name in subcommands if name != "help"]
            level = deeper
    return sorted(lines)


def collected():
    metrics, labels = metrics_and_labels()
    return {"command": command_line(), "setting": settings(), "metric": metrics, "label": labels, "event": events()}


def written(names):
    parts = ["Every name that users and operators meet. tests/words_test.py compares, and refuses a second word for a thing\n"
             "of docs/GLOSSARY.md; ONCEKEY_WRITE_GOLDEN=1 writes the list anew.\n"]
    for kind, lines in names.items():
        parts.append(f"\n## {kind}s\n" + "".join(line + "\n" for line in lines))
    return "".join(parts)


def second_words_in(names):
    """Every name with a second word for a thing of the glossary: {"kind name": "word: say thing"}."""
    thing_of = {word: thing for thing, words in SECOND_WORDS.items() for word in words.split()}
    found = {}
    for kind, lines in names.items():
        for line in lines:
            for name in line.split():
                for word in re.split(r"[^a-z]+", name):
                    if word in thing_of:
                        found[f"{kind} {name}"] = f'"{word}": say "{thing_of[word]}"'
    return found


class Words(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.names = collected()

    def test_the_names_are_those_of_the_golden_list(self):
        text = written(self.names)
        if os.environ.get("ONCEKEY_WRITE_GOLDEN") == "1":
            GOLDEN.write_text(text)
        self.assertEqual(text, GOLDEN.read_text())

    def test_no_name_holds_a_second_word_for_a_thing_of_the_glossary(self):
        found = second_words_in(self.names)
        for name in set(ALLOWED) | TO_BE_RENAMED:
            self.assertIn(name, found, f"{name} needs no exception any more: take it from this test")
            del found[name]
        self.assertEqual(found, {})

    def test_every_thing_is_a_word_of_the_glossary(self):
        glossary = (PROJECT / "docs" / "GLOSSARY.md").read_text()
        for thing in SECOND_WORDS:
            self.assertRegex(glossary, rf"\*\*{thing}\*\*|`{thing}`")


class SelfTest(unittest.TestCase):
    def test_a_planted_second_word_is_found_in_every_kind_of_name(self):
        planted = {"command": ["oncekey keys --response"], "setting": ["limits.max_responses"],
                   "metric": ["oncekey_replies_total"], "label": ["backend"], "event": ["delivery_dead"]}
        self.assertEqual(set(second_words_in(planted)), {
            "command --response", "setting limits.max_responses", "metric oncekey_replies_total", "label backend",
            "event delivery_dead"})

    def test_parts_of_longer_words_are_not_taken_for_words(self):
        self.assertEqual(second_words_in({"setting": ["respond_async", "max_header_lines_of_replication"]}).keys(),
                         {"setting max_header_lines_of_replication"})

    def test_help_is_read(self):
        options, subcommands = options_and_subcommands(
            "What it does\nUsage: oncekey x [OPTIONS]\n\nOptions:\n  -h,--help          Print this\n"
            "  --config FILE      a file\n                     --not-an-option of a second line\n"
            "\nSubcommands:\n  list               list keys\n")
        self.assertEqual((options, subcommands), (["--config"], ["list"]))

    def test_events_are_found_in_every_form_of_a_call(self):
        text = ('log.info("one"); shared_.log.always(\n      "two", {}); log->seldom(LogLevel::warning, "three", x, {});'
                'log_.write(failed ? LogLevel::error : LogLevel::info, "four", {}); log.info(event);')
        self.assertEqual([match["event"] or match["level_first"] for match in LOGGED.finditer(text)],
                         ["one", "two", "three", "four"])


if __name__ == "__main__":
    unittest.main()
