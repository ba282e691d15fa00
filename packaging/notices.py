"""Prints the licences and notices of everything that the packages' binary is linked with.

The libraries are those of cmake/static_libraries.cmake; Debian keeps the notices of each beside it. What is kept in this
tree with a licence of its own is found by its LICENSE file.
"""

import pathlib
import subprocess

PROJECT = pathlib.Path(__file__).resolve().parents[1]

DEBIAN_PACKAGES = """
    libssl-dev librocksdb-dev libsnappy-dev liblz4-dev libzstd-dev libbz2-dev zlib1g-dev libjemalloc-dev liburing-dev
    libxxhash-dev libhiredis-dev libpq-dev libsqlite3-dev libfmt-dev libspdlog-dev libcli11-dev
    libtomlplusplus-dev libstdc++-12-dev prometheus-cpp-dev
""".split()

RULE = "=" * 80


def version_of(package):
    shown = subprocess.run(["dpkg-query", "--show", "--showformat", "${Version}", package], capture_output=True, text=True,
                           check=True)
    return shown.stdout


def part(title, text):
    return f"\n{RULE}\n{title}\n{RULE}\n\n{text.rstrip()}\n"


def main():
    print("Third-party notices of the oncekey binary")
    print()
    print("The binary holds code of the libraries below. Oncekey itself is under the Apache License 2.0.")
    print("Where a notice refers to a file in /usr/share/common-licenses, it is the licence of that name.")
    print("Boost 1.81 is used under the Boost Software License 1.0, which asks for no notice with machine code.")
    print("RocksDB and Zstandard are used under Apache-2.0 and BSD-3-Clause, liburing under MIT.")
    for package in DEBIAN_PACKAGES:
        notice = pathlib.Path("/usr/share/doc") / package / "copyright"
        print(part(f"{package} {version_of(package)}", notice.read_text(errors="replace")), end="")
    for folder in ("src", "packaging"):
        for licence in sorted((PROJECT / folder).rglob("LICENSE*")):
            print(part(licence.parent.relative_to(PROJECT).as_posix(), licence.read_text()), end="")


if __name__ == "__main__":
    main()
