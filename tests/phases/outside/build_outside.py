"""Installs the library into a folder and builds a project against it, by find_package and by pkg-config.

    build_outside.py BUILD_FOLDER [SANITIZERS]

SANITIZERS are those the library was built with, as for -fsanitize=.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = "200 hello you first\n200 hello you replayed\njob hello [1]\nclient open 36\n"


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, timeout=300, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def check_output(program, folder):
    printed = run(program, folder / "outside.db")
    if printed != EXPECTED:
        sys.exit(f"{program} printed\n{printed}")


def by_find_package(prefix, folder, flags):
    build = folder / "build"
    run("cmake", "-S", HERE, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_FLAGS={' '.join(flags)}",
        "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache" if ccache() else "-DUNUSED=", "--log-level=ERROR")
    run("cmake", "--build", build)
    check_output(build / "outside", folder)


def ccache():
    return any((pathlib.Path(place) / "ccache").exists() for place in os.environ.get("PATH", "").split(":"))


def by_pkg_config(prefix, folder, flags):
    places = {**os.environ, "PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}
    asked = run("pkg-config", "--cflags", "--libs", "oncekey", env=places).split()
    (folder / "outside.db").unlink(missing_ok=True)
    run("c++", "-std=c++20", *flags, HERE / "main.cc", "-o", folder / "by_pkg_config", *asked)
    check_output(folder / "by_pkg_config", folder)


def main(build, sanitizers=""):
    flags = [f"-fsanitize={sanitizers}"] if sanitizers else []
    with tempfile.TemporaryDirectory(prefix="oncekey-outside-") as name:
        folder = pathlib.Path(name)
        prefix = folder / "installed"
        run("cmake", "--install", build, "--prefix", prefix, "--component", "library")
        by_find_package(prefix, folder, flags)
        by_pkg_config(prefix, folder, flags)
    print("an outside project builds by find_package and by pkg-config")


if __name__ == "__main__":
    main(*sys.argv[1:])
