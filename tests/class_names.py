"""A class name means one thing in the tree: no name is defined twice at the scope of a namespace, unnamed ones included.

    class_names.py [ROOT]       prints every name that is defined more than once, with FILE:LINE of each definition
    class_names.py --self-test  plants such names and sees that they are found

A reader who has met a name in one room expects the same thing behind it in the next. Looked at are the classes,
structs, enums and aliases of include/ and src/ that begin in the first column, as clang-format leaves them. Those inside
another class (Runner::Impl) and those of tests are left out.
"""

import collections
import pathlib
import re
import sys
import tempfile
import unittest

PROJECT = pathlib.Path(__file__).resolve().parents[1]

# Names that still stand for two things. Empty this list; do not add to it.
STILL_TWICE = set()

DEFINITION = re.compile(r"""^(?:template\s*<[^{};]*>\s*)?(?:
    (?:class|struct|enum\s+class|enum)\s+(?:\[\[\w+\]\]\s*)?(?P<type>\w+)(?:\s+final)?\s*(?::(?!:)[^;{]*)?\{ |
    using\s+(?P<alias>\w+)\s*=)""", re.VERBOSE | re.MULTILINE)


def definitions_in(root):
    """Where each name is defined: {name: ["src/room/file.h:12", ...]}."""
    found = collections.defaultdict(list)
    for folder in ("include", "src"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cc") or file.stem.endswith("_test"):
                continue
            text = file.read_text()
            for match in DEFINITION.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found[match["type"] or match["alias"]].append(f"{file.relative_to(root).as_posix()}:{line}")
    return found


def faults_in(root, still_twice):
    found = definitions_in(root)
    twice = {name: places for name, places in found.items() if len(places) > 1}
    faults = [f"{name} is defined {len(places)} times: {', '.join(places)}; give each thing a name of its own"
              for name, places in sorted(twice.items()) if name not in still_twice]
    return faults + [f"{name} is defined once now: take it from STILL_TWICE in tests/class_names.py"
                     for name in sorted(still_twice) if name not in twice]


class SelfTest(unittest.TestCase):
    def faults_of(self, still_twice=(), **texts):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in texts.items():
                file = root / "src" / name / f"{name}.h"
                file.parent.mkdir(parents=True)
                file.write_text(text)
            return faults_in(root, set(still_twice))

    def test_a_name_that_is_defined_twice_is_found_with_both_places(self):
        for one in ("class Lane {\n};", "struct Lane final : Base<int> {\n};", "enum class Lane { left };",
                    "using Lane = int;", "template <class T>\nclass Lane {\n};"):
            with self.subTest(one=one):
                faults = self.faults_of(http=f"namespace a {{\n{one}\n}}", client="\n\nstruct Lane {\n};")
                self.assertEqual(len(faults), 1, faults)
                self.assertIn("src/client/client.h:3, src/http/http.h:2", faults[0])

    def test_declarations_inner_classes_and_uses_are_no_definitions(self):
        for other in ("class Lane;", "class Road {\n  struct Lane {};\n};", "Lane make();", "struct Lanes {\n};",
                      "enum class Lane;", "struct Road::Lane {\n};", "// class Lane {"):
            with self.subTest(other=other):
                self.assertEqual(self.faults_of(http="class Lane {\n};", client=other), [])

    def test_a_name_of_the_list_that_is_defined_once_must_leave_it(self):
        self.assertEqual(self.faults_of(["Lane"], http="class Lane {\n};", client="class Lane {\n};"), [])
        self.assertEqual(len(self.faults_of(["Lane"], http="class Lane {\n};")), 1)


def main():
    if sys.argv[1:] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    faults = faults_in(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT, STILL_TWICE)
    print("\n".join(faults) if faults else "every class name is defined once")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
