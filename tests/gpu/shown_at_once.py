"""A pytest plugin (-p shown_at_once): seconds and failures appear when they happen, so that a run cut short tells.

TensorRT's kernels for building stay loaded between the tests: that takes seconds for each builder.
"""

from __future__ import annotations

from typing import Any

_kept: list[Any] = []


def keep_kernels() -> None:
    """Hold a builder for as long as the process lives."""
    from precision_debug_tensorrt.engine.messages import Messages, make_logger
    from precision_debug_tensorrt.engine.versions import load_api

    trt = load_api().trt
    _kept.append(trt.Builder(make_logger(trt, Messages())))


def pytest_sessionstart(session: Any) -> None:
    """Load the kernels where there are any."""
    try:
        keep_kernels()
    except Exception as error:
        print(f"no kernels are kept: {error}", flush=True)


def pytest_sessionfinish(session: Any) -> None:
    """Let them go while Python is still whole."""
    _kept.clear()


def pytest_runtest_logreport(report: Any) -> None:
    """Print what a test took, and why it failed."""
    if report.when == "call" or report.failed:
        print(f"  [{report.when} {report.duration:.1f} s]", flush=True)
    if report.failed:
        print(f"\n---- {report.nodeid}\n{report.longreprtext[-2500:]}\n----", flush=True)
