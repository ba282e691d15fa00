"""Proves the include directions of docs/ARCHITECTURE.md: from the edges inwards, never back.

    include_directions.py [ROOT]         checks the tree and prints FILE:LINE for every include that goes the wrong way,
                                         every grant below that no file uses, and a table of rooms that is out of date
    include_directions.py --write-table  rewrites the table of rooms in docs/ARCHITECTURE.md
    include_directions.py --grants       prints what the files of each room include, as ROOMS would grant it
    include_directions.py --self-test    plants faults and sees that each is found

A new room is one line in ROOMS, one line in cmake/rooms.cmake and a run of --write-table. Tests that stand beside the
code are left out: a test may build its subject from anything.
"""

import pathlib
import re
import sys
import tempfile
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[1]


class Room:
    """A folder of src, or of src/store: what it is for, which rooms it may include from, which foreign libraries."""

    def __init__(self, purpose, sees="", libraries=""):
        self.purpose = purpose
        self.sees = sees.split()
        self.libraries = libraries.split()


# From the inside outwards: a room sees only rooms above it.
ROOMS = {
    "base": Room(
        "checks, durations, crypto and certificates, JSON text, UTF-8, log, files, shares; knows nothing of idempotency",
        libraries="openssl spdlog"),
    "net": Room(
        "the event loop, tasks, timers, sockets with TLS, names; no HTTP, no policy",
        sees="base", libraries="openssl"),
    "redis": Room(
        "the one Redis client: URL, login, TLS, pipelined commands and their replies; blocking for callers without a loop",
        sees="base net", libraries="hiredis"),
    "http": Room(
        "strict messages, server, exchange, upstream pool, forwarding, tunnel; sees neither store nor policy",
        sees="base net", libraries="boost/beast"),
    "core": Room(
        "the rules: key, scope, account, fingerprint, policy, admit, decide, settle, replies, transitions, record codec, "
        "the interface of a store; pure: no I/O, no threads, no clock",
        sees="base"),
    "jobs": Room(
        "the courier, which brings jobs from a source to a carrier: the gateway's and the library's"),
    "signatures": Room(
        "the signatures of webhook providers, one file a provider, as pure functions",
        sees="base core"),
    "config": Room(
        "the TOML file and the flags, checked",
        sees="base core signatures", libraries="toml++"),
    "store/common": Room(
        "what several stores share: the guard around stores on a network, circuit breaker, batching, indexes, the watch "
        "over a store's memory",
        sees="base core"),
    "store/memory": Room(
        "the store without a disk, for trials and tests",
        sees="base core store/common"),
    "store/journal": Room(
        "the embedded store: a log of its own for what is young, RocksDB files for what is old",
        sees="base net core store/common", libraries="rocksdb"),
    "store/postgres": Room(
        "the store in a Postgres database",
        sees="base core store/common", libraries="libpq"),
    "store/redis": Room(
        "the store in a Redis server or cluster",
        sees="base redis core store/common"),
    "store": Room(
        "`open_store`, the one place that maps a URL to a store",
        sees="base redis core store/common store/memory store/journal store/postgres store/redis"),
    "audit": Room(
        "the audit log: its chain of lines, the files, writing, reading and verifying them",
        sees="base"),
    "trace": Room(
        "spans of requests in the JSON of OTLP, and the thread that sends them to a collector",
        sees="base http core"),
    "gateway": Room(
        "the flow of a request; trust in callers, limits, waiters, leases, upstreams and their circuit breakers, metrics",
        sees="base net http core config audit trace", libraries="prometheus"),
    "client": Room(
        "the retrying client and its key journal",
        sees="base http core"),
    "delivery": Room(
        "the inbox for webhooks, the outbox, and the couriers of the jobs that both stage",
        sees="base net http core jobs signatures config gateway", libraries="prometheus"),
    "phases": Room(
        "the library of atomic phases: operations, transactions and staged jobs in the application's own database; "
        "on Postgres by the functions of its schema (`src/phases/schema`)",
        sees="base core", libraries="libpq sqlite3"),
    "workers": Room(
        "the library's completer, enqueuer and reaper, and the sinks that staged jobs go to",
        sees="base redis http core jobs phases"),
    "admin": Room(
        "health, metrics, the JSON API for operators with its roles and sessions, and the console",
        sees="base net http core config audit gateway"),
    "cli": Room(
        "`main` and one file for each subcommand; builds everything and hands it down",
        sees="base net http core config store audit gateway delivery admin", libraries="CLI"),
}

# Foreign libraries, by the beginning of their headers' names. A room that may use one names it in ROOMS.
LIBRARIES = ("boost/asio", "boost/beast", "CLI", "hiredis", "libpq", "openssl", "prometheus", "rocksdb", "spdlog",
             "sqlite3", "toml++")

# These rooms know nothing of stores and policies, and see only these of the public headers.
SEES_ONLY_PLAIN_PUBLIC = ("base", "net", "redis", "http")
PLAIN_PUBLIC = ("oncekey/check.h", "oncekey/headers.h", "oncekey/result.h", "oncekey/time.h")

# Outside the stores' own folders, only these files name concrete stores.
NAMES_STORES = ("store/open_store.cc", "store/store_tools.cc")
STORES = ("store/memory", "store/journal", "store/postgres", "store/redis")

TABLE_BEGINS = "<!-- The table of rooms is written by tests/include_directions.py --write-table. -->"
TABLE_ENDS = "<!-- end of the table of rooms -->"

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    """The room of a path below src: the longest known folder name it begins with."""
    parts = path.split("/")
    for length in (2, 1):
        room = "/".join(parts[:length])
        if len(parts) > length and room in ROOMS:
            return room
    return None


def library_of(included):
    return next((library for library in LIBRARIES if included.startswith(library)), None)


def fault_of(file, quote, included, used):
    """Why this file (a path below src) may not include that, or None. What it may include is added to used."""
    room = room_of(file)
    if room is None:
        return "the folder is no room of this script; add it to ROOMS"
    if quote == "<":
        library = library_of(included)
        if library:
            used.add((room, library))
            if library in ROOMS[room].libraries:
                return None
            return f"{library} belongs to {', '.join(name for name in ROOMS if library in ROOMS[name].libraries)}"
    if included.startswith("oncekey/"):
        if room in SEES_ONLY_PLAIN_PUBLIC and included not in PLAIN_PUBLIC:
            return f"{room} sees only {', '.join(PLAIN_PUBLIC)} of the public headers"
        return None
    if quote == "<":
        return None
    other = room_of(included)
    if other is None:
        return "not the path of a header below src"
    if other == room:
        return None
    used.add((room, other))
    if other in STORES and file not in NAMES_STORES:
        return f"only {' and '.join(NAMES_STORES)} name a concrete store"
    return None if other in ROOMS[room].sees else f"{room} may not see {other}"


def public_fault_of(quote, included):
    if quote == '"':
        return "a public header includes only public and standard headers, in angle brackets"
    if library_of(included):
        return "no foreign library in a public header"
    return None


def includes_of(file):
    for number, line in enumerate(file.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def sources_of(root):
    for file in sorted((root / "src").rglob("*")):
        if file.suffix in (".h", ".cc") and not file.stem.endswith("_test"):
            yield file


def unused_grants(used):
    """Grants of ROOMS that no include line makes use of: (room, what it was granted)."""
    return [(name, granted) for name, room in ROOMS.items() for granted in room.sees + room.libraries
            if (name, granted) not in used]


def order_faults():
    names = list(ROOMS)
    return [f"{name} may see {seen}, which stands after it in ROOMS" for position, name in enumerate(names)
            for seen in ROOMS[name].sees if seen not in names[:position]]


def faults_in(root):
    faults = []
    used = set()
    for file in sources_of(root):
        path = file.relative_to(root / "src").as_posix()
        for number, quote, included in includes_of(file):
            fault = fault_of(path, quote, included, used)
            if fault:
                faults.append(f"src/{path}:{number}: {included}: {fault}")
    for file in sorted((root / "include").rglob("*.h")):
        for number, quote, included in includes_of(file):
            fault = public_fault_of(quote, included)
            if fault:
                faults.append(f"{file.relative_to(root).as_posix()}:{number}: {included}: {fault}")
    return faults, used


def code(names):
    return ", ".join(f"`{name}`" for name in names)


def table():
    """The table of rooms, as docs/ARCHITECTURE.md shows it."""
    rows = ["| room | what it is for | may include | foreign libraries |", "|---|---|---|---|",
            "| `include/oncekey` | what an embedding program includes: client, phases, workers | itself | |"]
    for name, room in ROOMS.items():
        rows.append(f"| `src/{name}` | {room.purpose} | {code(room.sees) or '`include/oncekey`'} | {code(room.libraries)} |")
    return "\n".join(rows)


def with_table(document):
    """The document with the present table between the two marks."""
    before, begins, rest = document.partition(TABLE_BEGINS)
    _, ends, after = rest.partition(TABLE_ENDS)
    if not begins or not ends:
        raise SystemExit(f"docs/ARCHITECTURE.md has no lines {TABLE_BEGINS!r} and {TABLE_ENDS!r}")
    return f"{before}{begins}\n{table()}\n{ends}{after}"


def check(root):
    faults, used = faults_in(root)
    faults += order_faults()
    faults += [f"tests/include_directions.py: {room} may see {granted}, and no file of it does; take it from ROOMS"
               for room, granted in unused_grants(used)]
    document = (root / "docs" / "ARCHITECTURE.md").read_text()
    if with_table(document) != document:
        faults.append("docs/ARCHITECTURE.md: the table of rooms is out of date; run tests/include_directions.py --write-table")
    return faults


def print_grants(root):
    """What each room really includes: where ROOMS differs, one of the two is wrong."""
    used = faults_in(root)[1]
    for name in ROOMS:
        granted = {other for room, other in used if room == name}
        print(f'{name}: sees="{" ".join(room for room in ROOMS if room in granted)}" '
              f'libraries="{" ".join(library for library in LIBRARIES if library in granted)}"')


def write_table(root):
    document = root / "docs" / "ARCHITECTURE.md"
    document.write_text(with_table(document.read_text()))


class SelfTest(unittest.TestCase):
    def faults_of(self, path, include):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True)
            (pathlib.Path(folder) / "include").mkdir(exist_ok=True)
            (pathlib.Path(folder) / "src").mkdir(exist_ok=True)
            file.write_text(f"// first line\n#include {include}\n")
            return faults_in(pathlib.Path(folder))[0]

    def test_wrong_includes_are_found_with_file_and_line(self):
        for path, include in (
                ("src/base/log.cc", '"core/decide.h"'),
                ("src/base/log.cc", "<oncekey/store.h>"),
                ("src/core/decide.cc", '"store/open_store.h"'),
                ("src/core/decide.cc", '"http/server.h"'),
                ("src/core/decide.cc", "<boost/asio.hpp>"),
                ("src/store/memory/memory_store.cc", '"http/message.h"'),
                ("src/store/memory/memory_store.cc", '"store/journal/journal_store.h"'),
                ("src/store/registry.cc", '"store/memory/memory_store.h"'),
                ("src/config/load.cc", '"gateway/gateway.h"'),
                ("src/http/server.cc", '"core/decide.h"'),
                ("src/http/server.cc", "<oncekey/policy.h>"),
                ("src/http/server.cc", "<oncekey/store.h>"),
                ("src/gateway/gateway.cc", '"store/open_store.h"'),
                ("src/gateway/gateway.cc", '"admin/admin.h"'),
                ("src/gateway/gateway.cc", "<rocksdb/db.h>"),
                ("src/admin/admin.cc", '"store/memory/memory_store.h"'),
                ("src/admin/admin.cc", '"cli/main.h"'),
                ("src/attic/old.cc", '"base/log.h"'),
                ("src/core/decide.cc", '"decide.h"'),
                ("include/oncekey/store.h", '"base/log.h"'),
                ("include/oncekey/store.h", "<rocksdb/db.h>"),
        ):
            with self.subTest(path=path, include=include):
                faults = self.faults_of(path, include)
                self.assertEqual(len(faults), 1, faults)
                self.assertTrue(faults[0].startswith(f"{path}:2: "), faults)

    def test_right_includes_pass(self):
        for path, include in (
                ("src/base/log.cc", "<oncekey/result.h>"),
                ("src/core/decide.cc", '"base/crypto.h"'),
                ("src/core/decide.cc", "<oncekey/store.h>"),
                ("src/store/open_store.cc", '"store/memory/memory_store.h"'),
                ("src/store/journal/journal_store.cc", "<rocksdb/db.h>"),
                ("src/gateway/gateway.cc", '"http/server.h"'),
                ("src/admin/admin.cc", '"gateway/gateway.h"'),
                ("src/cli/serve.cc", '"store/open_store.h"'),
                ("src/http/server_test.cc", '"core/decide.h"'),
                ("include/oncekey/store.h", "<oncekey/record.h>"),
        ):
            with self.subTest(path=path, include=include):
                self.assertEqual(self.faults_of(path, include), [])

    def test_a_grant_that_no_file_uses_is_found(self):
        every_grant = {(name, granted) for name, room in ROOMS.items() for granted in room.sees + room.libraries}
        self.assertEqual(unused_grants(every_grant), [])
        self.assertEqual(unused_grants(every_grant - {("cli", "store")}), [("cli", "store")])
        self.assertEqual(unused_grants(every_grant - {("base", "spdlog")}), [("base", "spdlog")])

    def test_an_include_uses_a_grant(self):
        used = set()
        fault_of("core/decide.cc", '"', "base/crypto.h", used)
        fault_of("core/decide.cc", '"', "core/policy.h", used)
        fault_of("base/log.cc", "<", "spdlog/spdlog.h", used)
        self.assertEqual(used, {("core", "base"), ("base", "spdlog")})

    def test_rooms_see_only_rooms_above_them(self):
        self.assertEqual(order_faults(), [])

    def test_the_table_is_written_between_its_marks_and_nowhere_else(self):
        document = f"before\n{TABLE_BEGINS}\n| an old table |\n{TABLE_ENDS}\nafter\n"
        written = with_table(document)
        self.assertTrue(written.startswith(f"before\n{TABLE_BEGINS}\n| room |"), written)
        self.assertTrue(written.endswith(f"|\n{TABLE_ENDS}\nafter\n"), written)
        self.assertNotIn("an old table", written)
        self.assertEqual(with_table(written), written)
        for room in ROOMS:
            self.assertIn(f"| `src/{room}` |", written)


def main():
    if sys.argv[1:] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    if sys.argv[1:] in (["--write-table"], ["--grants"]):
        (write_table if sys.argv[1] == "--write-table" else print_grants)(PROJECT)
        return 0
    faults = check(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT)
    print("\n".join(faults) if faults else "all includes go one way")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
