"""Installs the binary and the libraries into a folder and builds programs against them, by find_package and by
pkg-config.

    build_outside.py BUILD_FOLDER COMPILER [FLAG...]

COMPILER is the one that the libraries were built with, and the flags are those of its sanitizers.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = {
    "client": "gave_up after 1\nundecided\n",
    "phases": "200\n200\nruns 1\n",
    "workers": "200 hello you first\n200 hello you replayed\njob hello [1]\n",
    "both": "undecided\n",
}
# The client is for programs without a database.
NOT_THE_CLIENTS = ("libpq", "libsqlite", "libhiredis")
# The gateway's own headers.
NOT_INSTALLED = ("store.h",)


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, timeout=300, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def check_program(program, name, folder):
    (folder / "outside.db").unlink(missing_ok=True)
    printed = run(program, folder / "outside.db")
    if printed != EXPECTED[name]:
        sys.exit(f"{program} printed\n{printed}")
    if name == "client":
        needed = run("readelf", "--dynamic", program)
        found = [library for library in NOT_THE_CLIENTS if library in needed]
        if found:
            sys.exit(f"a program with the client alone loads {found}:\n{needed}")


def check_compile_line(build, prefix, flags):
    """Nothing of the libraries we use is in it."""
    for command in json.loads((build / "compile_commands.json").read_text()):
        words = command["command"].split()
        ours = {"-isystem", f"{prefix}/include", f"-I{prefix}/include", *flags}
        foreign = [word for word in words if word.startswith(("-D", "-I", "-isystem", "-W", "-f")) and word not in ours]
        if foreign:
            sys.exit(f"the user's compile line has {foreign}: {command['command']}")


def by_find_package(prefix, folder, compiler, flags, components, programs, *settings):
    build = folder / "build" / "-".join(programs)
    run("cmake", "-S", HERE, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}",
        f"-DCMAKE_CXX_FLAGS={' '.join(flags)}",
        f"-DONCEKEY_COMPONENTS={';'.join(components)}", f"-DPROGRAMS={';'.join(programs)}", *settings,
        "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache" if ccache() else "-DUNUSED=", "--log-level=ERROR")
    run("cmake", "--build", build, "--parallel", "2")
    check_compile_line(build, prefix, flags)
    for name in programs:
        check_program(build / name, name, folder)


def ccache():
    return any((pathlib.Path(place) / "ccache").exists() for place in os.environ.get("PATH", "").split(":"))


def asked_of_pkg_config(prefix, name):
    """(flags for compiling, flags for linking)"""
    places = {**os.environ, "PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}
    compiling = run("pkg-config", "--cflags", f"oncekey-{name}", env=places).split()
    if len(compiling) != 1 or not compiling[0].startswith("-I"):
        sys.exit(f"pkg-config --cflags oncekey-{name} says {compiling}")
    return compiling, run("pkg-config", "--libs", f"oncekey-{name}", env=places).split()


def by_pkg_config(prefix, folder, compiler, flags, name):
    compiling, linking = asked_of_pkg_config(prefix, name)
    program = folder / f"{name}_by_pkg_config"
    run(compiler, "-std=c++20", *flags, *compiling, HERE / f"{name}.cc", "-o", program, *linking)
    check_program(program, name, folder)


def check_installed_library(prefix):
    headers = {header.name for header in (prefix / "include/oncekey").iterdir()}
    for header in NOT_INSTALLED:
        if header in headers:
            sys.exit(f"the gateway's own {header} is installed")
    archives = sorted((prefix / "lib").glob("*.a"))
    if [archive.name for archive in archives] != [f"liboncekey_{name}.a"
                                                  for name in ("client", "common", "phases", "workers")]:
        sys.exit(f"installed are {archives}")
    for archive in archives:
        # Every user's link would optimise the whole library again.
        if ".gnu.lto_" in run("readelf", "--section-headers", "--wide", archive):
            sys.exit(f"{archive} holds objects for link-time optimisation")


def check_installed_gateway(build, folder):
    prefix = folder / "gateway"
    run("cmake", "--install", build, "--prefix", prefix, "--component", "gateway")
    run(prefix / "bin/oncekey", "--version")
    documents = prefix / "share/doc/oncekey"
    for document in ("README.md", "docs/CONFIG.md", "docs/DEPLOYING.md", "examples/oncekey.toml"):
        if not (documents / document).is_file():
            sys.exit(f"{document} is not installed")
    run(prefix / "bin/oncekey", "check", documents / "examples/oncekey.toml")


def main(build, compiler, *flags):
    with tempfile.TemporaryDirectory(prefix="oncekey-outside-") as name:
        folder = pathlib.Path(name)
        prefix = folder / "installed"
        check_installed_gateway(build, folder)
        run("cmake", "--install", build, "--prefix", prefix, "--component", "library")
        check_installed_library(prefix)
        # The client alone, on a machine without the databases' packages.
        by_find_package(prefix, folder, compiler, flags, ["client"], ["client"], "-DCMAKE_DISABLE_FIND_PACKAGE_PostgreSQL=TRUE",
                        "-DCMAKE_DISABLE_FIND_PACKAGE_SQLite3=TRUE")
        by_find_package(prefix, folder, compiler, flags, ["client", "phases", "workers"], ["phases", "both"])
        by_pkg_config(prefix, folder, compiler, flags, "workers")
        _, clients = asked_of_pkg_config(prefix, "client")
        if {"-lpq", "-lsqlite3", "-lhiredis"} & set(clients):
            sys.exit(f"pkg-config --libs oncekey-client says {clients}")
    print("outside projects build by find_package and by pkg-config")


if __name__ == "__main__":
    main(*sys.argv[1:])
