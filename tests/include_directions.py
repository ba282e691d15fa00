"""Proves the include directions of docs/ARCHITECTURE.md: from the edges inwards, never back.

    include_directions.py [ROOT]     checks the tree; prints FILE:LINE for every include that goes the wrong way
    include_directions.py --self-test    plants wrong includes and sees that each is found

Tests that stand beside the code are left out: a test may build its subject from anything.
"""

import pathlib
import re
import sys
import tempfile
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[1]

# The public headers that know nothing of stores and policies: all that base and http may see.
PLAIN_PUBLIC = {"oncekey/headers.h", "oncekey/result.h", "oncekey/check.h", "oncekey/time.h"}

# Which rooms a room may include from, besides itself. A room is a folder of src; each store is a room of its own and
# sees of `store` what all stores share.
MAY_SEE = {
    "base": set(),
    "core": {"base"},
    "store": {"base", "core"},
    "store/common": {"base", "core"},
    "store/memory": {"base", "core", "store/common"},
    "store/rocksdb": {"base", "core", "store/common"},
    "store/postgres": {"base", "core", "store/common"},
    "store/redis": {"base", "core", "net", "redis", "store/common"},
    "inbox": {"base", "core"},
    "phases": {"base", "core"},
    "workers": {"base", "core", "phases", "redis"},
    "config": {"base", "core", "inbox"},
    "net": {"base"},
    "redis": {"base", "net"},
    "http": {"base", "net"},
    "client": {"base", "core", "net", "http"},
    "gateway": {"base", "core", "config", "net", "http", "inbox"},
    "delivery": {"base", "core", "config", "net", "http", "client", "inbox", "gateway"},
    "admin": {"base", "core", "config", "net", "http", "gateway"},
    "cli": {"base", "core", "config", "net", "http", "client", "gateway", "admin", "delivery", "store", "store/memory", "store/rocksdb", "workers"},
}
SEES_ONLY_PLAIN_PUBLIC = {"base", "net", "redis", "http"}

# The one file outside cli that names concrete stores.
NAMES_STORES = {
    "store/open_store.cc": {"redis", "store/common", "store/memory", "store/rocksdb", "store/postgres", "store/redis"},
}

# Foreign libraries stay in the rooms that wrap them.
LIBRARIES = {
    "rocksdb/": {"store/rocksdb"},
    "libpq": {"store/postgres", "phases"},
    "sqlite3": {"phases"},
    "hiredis/": {"redis"},
    "toml++/": {"config"},
    "CLI/": {"cli"},
    "spdlog/": {"base"},
    "openssl/": {"base", "net", "http", "workers"},
    "boost/asio": {"net", "http", "client", "gateway", "delivery", "admin", "cli"},
    "boost/beast": {"http", "admin", "cli"},
    "prometheus/": {"gateway", "delivery", "admin"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    """The room of a path below src: the longest known folder name it begins with."""
    parts = path.split("/")
    for length in (2, 1):
        room = "/".join(parts[:length])
        if len(parts) > length and room in MAY_SEE:
            return room
    return None


def fault_of(file, quote, included):
    """Why this file (a path below src) may not include that, or None."""
    room = room_of(file)
    if room is None:
        return "the folder is no room of this script; add it to MAY_SEE"
    for prefix, rooms in LIBRARIES.items():
        if included.startswith(prefix):
            return None if room in rooms else f"{prefix}… belongs to {', '.join(sorted(rooms))}"
    if included.startswith("oncekey/"):
        if room in SEES_ONLY_PLAIN_PUBLIC and included not in PLAIN_PUBLIC:
            return f"{room} sees only {', '.join(sorted(PLAIN_PUBLIC))} of the public headers"
        return None
    if quote == "<":
        return None
    other = room_of(included)
    if other is None:
        return "not the path of a header below src"
    allowed = MAY_SEE[room] | {room} | NAMES_STORES.get(file, set())
    return None if other in allowed else f"{room} may not see {other}"


def public_fault_of(quote, included):
    if quote == '"':
        return "a public header includes only public and standard headers, in angle brackets"
    if any(included.startswith(prefix) for prefix in LIBRARIES):
        return "no foreign library in a public header"
    return None


def includes_of(file):
    for number, line in enumerate(file.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def faults_in(root):
    faults = []
    for file in sorted((root / "src").rglob("*")):
        if file.suffix not in (".h", ".cc") or file.name.endswith("_test.cc") or file.name.endswith("_test.h"):
            continue
        path = file.relative_to(root / "src").as_posix()
        for number, quote, included in includes_of(file):
            fault = fault_of(path, quote, included)
            if fault:
                faults.append(f"src/{path}:{number}: {included}: {fault}")
    for file in sorted((root / "include").rglob("*.h")):
        for number, quote, included in includes_of(file):
            fault = public_fault_of(quote, included)
            if fault:
                faults.append(f"{file.relative_to(root).as_posix()}:{number}: {included}: {fault}")
    return faults


class SelfTest(unittest.TestCase):
    def faults_of(self, path, include):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True)
            (pathlib.Path(folder) / "include").mkdir(exist_ok=True)
            (pathlib.Path(folder) / "src").mkdir(exist_ok=True)
            file.write_text(f"// first line\n#include {include}\n")
            return faults_in(pathlib.Path(folder))

    def test_wrong_includes_are_found_with_file_and_line(self):
        for path, include in (
                ("src/base/log.cc", '"core/decide.h"'),
                ("src/base/log.cc", "<oncekey/store.h>"),
                ("src/core/decide.cc", '"store/open_store.h"'),
                ("src/core/decide.cc", '"http/server.h"'),
                ("src/core/decide.cc", "<boost/asio.hpp>"),
                ("src/store/memory/memory_store.cc", '"http/message.h"'),
                ("src/store/memory/memory_store.cc", '"store/rocksdb/rocksdb_store.h"'),
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
                ("src/store/rocksdb/rocksdb_store.cc", "<rocksdb/db.h>"),
                ("src/gateway/gateway.cc", '"http/server.h"'),
                ("src/admin/admin.cc", '"gateway/gateway.h"'),
                ("src/cli/serve.cc", '"store/open_store.h"'),
                ("src/http/server_test.cc", '"core/decide.h"'),
                ("include/oncekey/store.h", "<oncekey/record.h>"),
        ):
            with self.subTest(path=path, include=include):
                self.assertEqual(self.faults_of(path, include), [])


def main():
    if sys.argv[1:] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    faults = faults_in(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT)
    print("\n".join(faults) if faults else "all includes go one way")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
