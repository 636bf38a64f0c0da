"""CI fails where a promised test did not run: python tests/promised.py OUTCOMES...   (what pytest --outcomes wrote)

promised.txt names tests and modules, one a line. Each test of them must have passed in one of the runs at least, and
there must be one; a skip is not a pass. A test that declares hardware which this machine lacks (the mark ``hardware``)
breaks no promise, and is counted. The tests that ran are printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from outcomes import read

__all__ = ["LIST", "broken", "main", "promised"]

LIST = Path(__file__).with_name("promised.txt")


def promised() -> list[str]:
    """Ids of tests (all their parameters where none are given) and modules."""
    lines = (line.partition("#")[0].strip() for line in LIST.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def broken(names: Iterable[str], runs: Iterable[Mapping[str, str]]) -> tuple[list[str], list[str]]:
    """What ran of the names, one line each, and why a promise is broken."""
    merged: dict[str, set[str]] = {}
    for run in runs:
        for test, outcome in run.items():
            merged.setdefault(test, set()).add(outcome)
    ran, wrong = [], []
    for name in names:
        under = (f"{name}::", f"{name}[")
        of_it = {test: found for test, found in merged.items() if test == name or test.startswith(under)}
        passed = [test for test, found in of_it.items() if "passed" in found]
        absent = [test for test, found in of_it.items() if {"no hardware"} <= found <= {"no hardware", "skipped"}]
        # a module that skipped as a whole in one run and ran in another has its tests' lines from the other
        lost = [
            test for test in of_it
            if test not in passed and test not in absent and not ((passed or absent) and test.endswith(".py"))
        ]  # fmt: skip
        wrong += [f"{test}: {' and '.join(sorted(of_it[test]))}" for test in lost]
        if not of_it:
            wrong.append(f"{name}: is in no run")
        ran.append(f"{name}: {len(passed)} passed" + (f", {len(absent)} without its hardware" if absent else ""))
    return ran, wrong


def main(paths: list[str]) -> int:
    """0 where every promise is kept."""
    ran, wrong = broken(promised(), [read(Path(path)) for path in paths])
    print("promised tests that ran:", *ran, sep="\n  ")
    if wrong:
        print("promised tests that did not pass in any run:", *wrong, sep="\n  ", file=sys.stderr)
    return 1 if wrong or not ran else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
