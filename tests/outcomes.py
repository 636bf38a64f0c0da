"""pytest options that say what ran, so that CI can be asked: --outcomes writes it, --passed-in leaves out what passed.

One line a test: its outcome (passed, failed, skipped, no hardware), a tab, its id; a module that skips as a whole is
one line. A failure's line goes on with a tab and how it begins. What only some machines have, a test declares
(``@pytest.mark.hardware("avx512_bf16")``) and is left out elsewhere: no promise that every machine must keep. What
long.txt names has the mark ``long``, which a plain run leaves out.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

__all__ = [
    "HARDWARE", "LONG", "list_long", "mark_long", "passed_whole", "pytest_addoption", "pytest_configure",
    "pytest_runtest_setup", "read", "without_passed",
]  # fmt: skip

_WORSE = ("passed", "no hardware", "skipped", "failed")
_NEEDS = "needs hardware"


@cache
def _flags_of_the_cpu() -> frozenset[str]:
    path = Path("/proc/cpuinfo")
    return frozenset(path.read_text(encoding="utf-8").split() if path.exists() else ())


@cache
def _adds_exactly() -> bool:
    """Whether ONNX Runtime's 8-bit sums do not saturate here: x86-64 with VNNI, or another processor."""
    try:
        from precision_debug_onnxruntime.engine.remedies import adds_in_16_bits
    except ImportError:
        return True
    return not adds_in_16_bits()


HARDWARE: Mapping[str, Callable[[], bool]] = {
    "avx512_bf16": lambda: "avx512_bf16" in _flags_of_the_cpu(),
    "avx512f": lambda: "avx512f" in _flags_of_the_cpu(),
    "exact_8_bit_sums": _adds_exactly,
    "saturating_8_bit_sums": lambda: not _adds_exactly(),
}
"""All that a test may declare to need, and how to see whether this machine has it."""

_NEEDED = Path(__file__).with_name("hardware.txt")


@cache
def _list_needed() -> Mapping[str, str]:
    """Test ids to what they need, as ``hardware.txt`` has it."""
    lines = (line.split(" ", 1) for line in _NEEDED.read_text(encoding="utf-8").splitlines() if line[:1] != "#")
    return {name: needed for needed, name in lines}


def _list_needs(item: pytest.Item) -> list[str]:
    """Return what a test declares, and what the list has for it."""
    found = [mark.args[0] for mark in item.iter_markers("hardware")]
    return found + ([_list_needed()[item.nodeid]] if item.nodeid in _list_needed() else [])


LONG = Path(__file__).with_name("long.txt")


@cache
def list_long() -> Mapping[str, int]:
    """How ids of long tests begin, to how many of them stay."""
    lines = (line.split(" ", 1) for line in LONG.read_text(encoding="utf-8").splitlines() if line[:1] != "#")
    return {begins: int(stay) for stay, begins in lines}


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Mark what the list names and is not slow, but for the first of each line."""
    begins, seen = tuple(list_long()), Counter[str]()
    for item in items:
        if item.nodeid.startswith(begins) and item.get_closest_marker("slow") is None:
            line = next(one for one in begins if item.nodeid.startswith(one))
            seen[line] += 1
            if seen[line] > list_long()[line]:
                item.add_marker("long")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("outcomes")
    # of the environment too: what is in PYTEST_ADDOPTS reaches the pytests that tests start, which do not know it
    usual = os.environ.pop("OUTCOMES", "")
    group.addoption("--outcomes", metavar="FILE", default=usual, help="write what became of each test")
    group.addoption("--passed-in", metavar="FILE", default="", help="leave out what passed in that file")
    group.addoption("--approve", action="store_true", help="approve reworded sentences: see tests/approval.py")


def pytest_configure(config: pytest.Config) -> None:
    # read already: the pytests that tests start would add it to their own command; workers have yet to read it
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        os.environ.pop("PYTEST_ADDOPTS", None)
    if (path := config.getoption("--outcomes")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Outcomes(Path(path)), "outcomes of this run")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip where the machine lacks what the test declares. Nothing else counts as hardware."""
    for name in _list_needs(item):
        if name not in HARDWARE:
            pytest.fail(f"no hardware is called {name!r}: tests/outcomes.py has {sorted(HARDWARE)}", pytrace=False)
        if not HARDWARE[name]():
            item.user_properties.append((_NEEDS, name))
            pytest.skip(f"needs hardware: {name}")


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
        outcome, name, *_ = line.split("\t")
        found[name] = outcome
    return found


def passed_whole(config: pytest.Config, path: Path) -> bool:
    """Whether all of a file passed in the run before, and none of it looks at what is installed: it need not even be
    imported, and most files import an engine."""
    if not (given := config.getoption("--passed-in")) or path.suffix != ".py":
        return False
    if path.is_relative_to(config.rootpath):
        name = path.relative_to(config.rootpath).as_posix()
        if any(begins.startswith(f"{name}::") for begins in list_long()):  # which that run may have left out
            return False
        return _by_file(Path(given)).get(name) == {"passed"} and "installed" not in path.read_text(encoding="utf-8")
    return False


@cache
def _by_file(path: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, outcome in read(path).items():
        found.setdefault(name.partition("::")[0], set()).add(outcome)
    return found


class _Outcomes:
    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._found: dict[str, str] = {}
        self._begins: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            absent = report.skipped and any(name == _NEEDS for name, _ in report.user_properties)
            self._add(report, "no hardware" if absent else report.outcome)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._add(report, report.outcome)

    def _add(self, report: pytest.TestReport | pytest.CollectReport, outcome: str) -> None:
        name = report.nodeid
        self._found[name] = max(outcome, self._found.get(name, "passed"), key=_WORSE.index)
        if report.failed and name not in self._begins:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = f"{crash.path}:{crash.lineno}: {crash.message}" if crash else report.longreprtext[-500:]
            self._begins[name] = "\t" + " | ".join(filter(None, map(str.strip, text.splitlines()[:4])))[:500]

    def pytest_sessionfinish(self) -> None:
        lines = [f"{outcome}\t{name}{self._begins.get(name, '')}\n" for name, outcome in sorted(self._found.items())]
        self._path.write_text("".join(lines), encoding="utf-8", errors="backslashreplace")
