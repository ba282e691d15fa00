#!/usr/bin/env python3
"""Prints the tests that took longest, of the JUnit reports that ctest wrote."""
import sys
import xml.etree.ElementTree
from pathlib import Path

SHOWN = 10


def main():
    took = []
    for report in map(Path, sys.argv[1:]):
        for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
            took.append((float(case.get("time", 0)), f"{case.get('name')} ({report.stem})"))
    print(f"== the slowest of {len(took)} tests")
    for seconds, name in sorted(took, reverse=True)[:SHOWN]:
        print(f"{seconds:7.1f} s  {name}")


if __name__ == "__main__":
    main()
