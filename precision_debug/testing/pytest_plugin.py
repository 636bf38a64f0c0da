"""pytest: ``assert_precision`` compares two run modes of a model and fails with the culprit's name.

A test asks for the fixture of that name; nothing else of this plugin does anything. Thresholds may stand in the
project's pyproject.toml or a YAML file (see ``Thresholds``); a stored report ("golden") makes only regressions fail.
In a step of GitHub Actions each report is added to the step's summary.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..report.model import Report

__all__ = ["assert_precision", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--precision_golden write`` stores the reports that later runs are held against."""
    group = parser.getgroup("precision_debug")
    group.addoption(
        "--precision_golden", choices=["check", "write"], default="check",
        help="write: save new golden reports; check (the default): fail if a tensor got worse than in them, or one is"
        " missing",
    )  # fmt: skip
    group.addoption(
        "--precision_thresholds",
        metavar="FILE",
        default="",
        help="thresholds of assert_precision, a .yaml or .toml file",
    )
    group.addoption(
        "--precision_reports", metavar="DIR", default="", help="keep every report of assert_precision there, as .html"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Takes this package out of what pytest rewrites: a plugin's whole distribution, though nothing here asserts.

    pytest parses what it rewrites, our threads import late, and two that parse at once end in CPython 3.11's
    "SystemError: AST constructor recursion depth mismatch" (https://github.com/python/cpython/issues/106905).
    """
    hook = getattr(config.pluginmanager, "rewrite_hook", None)
    marked: Any
    for marked in (getattr(hook, "_must_rewrite", set()), getattr(hook, "_marked_for_rewrite_cache", {})):
        for name in [name for name in marked if name.partition(".")[0].startswith("precision_debug")]:
            marked.discard(name) if isinstance(marked, set) else marked.pop(name)


_LONGEST = 160
"""Bytes of a report's name; a file system takes 255, with all that is put behind it."""


@pytest.fixture
def assert_precision(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Report]:
    """Return a function with ``precision_debug.compare``'s arguments; fails the test unless the verdict is good.

    Further: ``golden=PATH`` (a .json report: only what got worse than in it fails, and so does one that is not there;
    it is written with --precision_golden write) and ``thresholds`` (a mapping as in pyproject.toml, or the path of
    a .yaml or .toml file). Returns the report. The verdict, the culprits and the worst error become properties of the
    test in JUnit's XML.
    """
    calls: list[None] = []

    def assert_precision(
        model: Any, *, run_mode: str, golden: str | Path = "", thresholds: Any = None, **arguments: Any
    ) -> Report:
        from ..api import compare
        from ..errors import PrecisionDebugError
        from ..report.formats import md
        from ..report.formats.json import load
        from .thresholds import Thresholds, add_test_claims, describe_complaint

        chosen = request.config.getoption("--precision_thresholds") if thresholds is None else thresholds
        try:
            if isinstance(chosen, (str, Path)) and chosen:
                wanted = Thresholds.of_file(Path(chosen))
            else:
                wanted = Thresholds.of(chosen) if chosen else Thresholds.of_project(request.config.rootpath)
            plain = compare(model, run_mode=run_mode, **arguments)
        except PrecisionDebugError as error:
            if error.exit_status != 2:
                raise
            __tracebackhide__ = True  # its line says what to do, and no line of ours is a reader's business
            raise error.with_traceback(None) from None
        stored = Path(golden) if golden else None
        if stored is not None and request.config.getoption("--precision_golden") == "write":
            plain.save(stored)  # which it is no worse than
        missing = str(stored) if stored is not None and not stored.exists() else ""
        before = load(stored) if stored is not None and not missing else None
        report = add_test_claims(plain, wanted, before, must_match=thresholds is not None, missing=missing)
        for name, value in _list_properties(
            report
        ).items():  # pytest's own record_property warns where JUnit's family is 2
            request.node.user_properties.append((f"precision_debug.{name}", value))
        calls.append(None)
        kept = _keep(report, request, tmp_path, len(calls))
        if md.step_summary_file() is not None:
            md.append(report, title=request.node.name)
        problem = describe_complaint(report, before)
        if problem:
            if said := md.make_annotation(report, title=request.node.name):
                sys.stdout.write(f"\n{said}\n")  # pytest prints what a failed test has written, line by line
            pytest.fail(f"{problem}\nreport: {kept}", pytrace=False)
        return report

    return assert_precision


def _keep(report: Report, request: pytest.FixtureRequest, tmp_path: Path, call: int) -> Path:
    """Save a test's report under the test's name, in --precision_reports or the test's own folder; return its path."""
    folder = request.config.getoption("--precision_reports")
    name = f"{_name_of_test(request.node.nodeid) if folder else 'precision'}{f'.{call}' if call > 1 else ''}.html"
    return report.save((Path(folder) if folder else tmp_path) / name)


def _name_of_test(test: str) -> str:
    """Return a test's id as a file name that no other test has: FILE.TEST, with a digest where that does not say it
    all."""
    path = test.replace("::", ".").replace("/", ".")
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in path)
    if plain == path and len(plain.encode()) <= _LONGEST:
        return plain
    return f"{plain.encode()[:_LONGEST].decode(errors='ignore')}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"


def _list_properties(report: Report) -> dict[str, object]:
    from ..report.blame import named_culprits

    errors = [row.relative_l2 for row in report.outputs if row.relative_l2 is not None]
    return {
        "verdict": str(report.verdict),
        "culprits": ", ".join(culprit.name for culprit in named_culprits(report)),
        "output_rel_l2": max(errors, default=None),
    }
