"""Takes docs/TUTORIAL.md apart: its commands with their output, its excerpts, its programs.

    tutorial.py program NAME FILE    writes the program of that name to a file, for the build to compile
"""

import pathlib
import re
import sys

TUTORIAL = pathlib.Path(__file__).resolve().parents[2] / "docs" / "TUTORIAL.md"


def blocks(text):
    """(what stands after the three backquotes, the lines between) of every block."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def steps(text):
    """(command, expected output lines) of every `$ ` line of the console blocks."""
    found = []
    for kind, block in blocks(text):
        for line in block.splitlines() if kind == "console" else []:
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def excerpts(text):
    """(file, code) of every block that says where it is from."""
    return [(kind.removeprefix("cpp from "), block) for kind, block in blocks(text) if kind.startswith("cpp from ")]


def program(text, name):
    found = [block for kind, block in blocks(text) if kind == f"cpp program {name}"]
    if len(found) != 1:
        sys.exit(f"the tutorial has {len(found)} programs named {name}")
    return found[0]


def matches(expected, lines):
    """Whether the lines are the expected ones, where `…` stands for any text and alone on a line for any lines."""
    pattern = "".join("(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in lines)) is not None


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "program":
        sys.exit(__doc__)
    pathlib.Path(sys.argv[3]).write_text(program(TUTORIAL.read_text(), sys.argv[2]))
