"""pytest options that say what ran, so that CI can be asked: --outcomes writes it, --passed-in leaves out what passed.

One line a test: its outcome (passed, failed, skipped), a tab, its id; a module that skips as a whole is one line.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

__all__ = ["pytest_addoption", "pytest_configure", "read", "without_passed"]

_WORSE = ("passed", "skipped", "failed")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("outcomes")
    # of the environment too: what is in PYTEST_ADDOPTS reaches the pytests that tests start, which do not know it
    usual = os.environ.pop("OUTCOMES", "")
    group.addoption("--outcomes", metavar="FILE", default=usual, help="write what became of each test")
    group.addoption("--passed-in", metavar="FILE", default="", help="leave out what passed in that file")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--outcomes")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Outcomes(Path(path)), "outcomes of this run")


def without_passed(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what passed in the run before; not what looks at whatever is installed (the mark ``installed``)."""
    if not (path := config.getoption("--passed-in")):
        return
    passed = {name for name, outcome in read(Path(path)).items() if outcome == "passed"}
    left_out = [item for item in items if item.nodeid in passed and item.get_closest_marker("installed") is None]
    config.hook.pytest_deselected(items=left_out)
    gone = set(map(id, left_out))
    items[:] = [item for item in items if id(item) not in gone]


def read(path: Path) -> dict[str, str]:
    """Test ids to outcomes."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        outcome, _, name = line.partition("\t")
        found[name] = outcome
    return found


class _Outcomes:
    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self._add(report.nodeid, report.outcome)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._add(report.nodeid, report.outcome)

    def _add(self, name: str, outcome: str) -> None:
        self._found[name] = max(outcome, self._found.get(name, "passed"), key=_WORSE.index)

    def pytest_sessionfinish(self) -> None:
        lines = (f"{outcome}\t{name}\n" for name, outcome in sorted(self._found.items()))
        self._path.write_text("".join(lines), encoding="utf-8", errors="backslashreplace")
