"""A pytest plugin (-p shown_at_once): seconds and failures appear when they happen, so that a run cut short tells."""

from __future__ import annotations

from typing import Any


def pytest_runtest_logreport(report: Any) -> None:
    """Print what a test took, and why it failed."""
    if report.when == "call" or report.failed:
        print(f"  [{report.when} {report.duration:.1f} s]", flush=True)
    if report.failed:
        print(f"\n---- {report.nodeid}\n{report.longreprtext[-2500:]}\n----", flush=True)
