"""What TensorRT says while it builds and runs: kept for errors, and read for what it says of FP16 weights."""

from __future__ import annotations

import collections
import logging
import re
import time
from dataclasses import dataclass
from typing import Any

from precision_debug.reasons import Reason

from ..reasons import say

__all__ = ["Messages", "RegionTimes", "WeightIssue", "make_logger", "read_progress"]


# What the builder says of the Myelin regions that it times, at its most verbose level (TensorRT 8.6).
#
# It times a region once for each combination of types at its edges, and takes the fastest.

_COMBINATION = re.compile(r"Autotuning format combination: (.+?) -> (.+?) \*{3}")
_RUNNER = re.compile(r"Timing Runner: (?P<layer>.+) \((?P<kind>\w+)\[0x[0-9a-f]+\]\)")
_TIME = re.compile(r"\bTime: ([0-9.e+-]+)$")
_TYPE = re.compile(r"\b(Float|Half|BFloat16|Int8|FP8|Int32|Int64|Bool)\(")
_NAMES = {"Float": "FP32", "Half": "FP16", "BFloat16": "BF16", "Int8": "INT8", "FP8": "FP8"}


class RegionTimes:
    """Reads the builder's messages in their order. ``found``: region to types at its edges to the best time in ms."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}
        self._types = ""
        self._region = ""

    def take(self, text: str) -> None:
        """One message of any severity."""
        if "Time: " in text:
            time = _TIME.search(text.rstrip())
            if time and self._region and self._types:
                times = self.found.setdefault(self._region, {})
                times[self._types] = min(float(time[1]), times.get(self._types, float("inf")))
        elif "Timing Runner: " in text:
            runner = _RUNNER.search(text)
            self._region = runner["layer"] if runner and runner["kind"] == "Myelin" else ""
        elif "Autotuning format combination" in text:
            combination = _COMBINATION.search(text)
            self._region = ""
            self._types = _edges(combination[1], combination[2]) if combination else ""


def _edges(reads: str, writes: str) -> str:
    """In the words of ``inspector.describe_edge_types``."""
    sides = (("reads", reads), ("writes", writes))
    parts = [(verb, sorted({_NAMES.get(name, name.upper()) for name in _TYPE.findall(text)})) for verb, text in sides]
    return ", ".join(f"{verb} {' and '.join(types)}" for verb, types in parts if types)


_ISSUE = re.compile(r"(\d+) weights are affected by this issue: (.+)")
_AFFECTED = re.compile(r"List of affected weights: (.+)", re.DOTALL)
_DISOBEYED = (
    re.compile(r"No implementation of layer (?P<layer>.+?) obeys the requested constraints"),
    re.compile(r"(?:[Ll]ayer )?(?P<layer>\S.*?): ?a non-conforming implementation was chosen"),
)
_KEPT = 400
"""Messages of a build, the last ones: a builder may write thousands, and what it failed of is among the last."""

_TIMING = re.compile(r"Timing Runner: (.+) \(\S+\)$")
_OFTEN = 1.0  # seconds between two lines of which layer is timed

# TensorRT keeps a logger's address beyond builder and runtime: a timing cache logs its own end through it
_loggers: list[Any] = []


@dataclass(frozen=True, kw_only=True)
class WeightIssue:
    """One line of the builder on weights: what happened, to how many of them, and which (its own names)."""

    what: str
    count: int
    weights: tuple[str, ...] = ()


class Messages:
    """The messages of one session, the last ones of each severity.

    cache_refused: TensorRT said that it does not use the timing cache that it was given; 8.6 says so where it cannot
    read Myelin's part, and uses the rest (a build took a third of the time, with the same tactics). disobeyed: layers
    (of the engine, so fused ones too) whose constraints the builder says it did not follow, and why. regions: what it
    timed. quoted: errors are not printed, since whoever set it says them.
    """

    def __init__(self) -> None:
        self.errors: collections.deque[str] = collections.deque(maxlen=_KEPT)
        self.warnings: collections.deque[str] = collections.deque(maxlen=_KEPT)
        self._issues: dict[str, WeightIssue] = {}
        self._open = ""
        self.disobeyed: dict[str, str] = {}
        self.cache_refused = self.quoted = False
        self.regions = RegionTimes()

    def take(self, severity: str, text: str) -> None:
        """severity: TensorRT's name of it."""
        if severity in {"ERROR", "INTERNAL_ERROR"}:
            self.errors.append(text)
            if "timing cache will not be used" in text:
                self.cache_refused = True
        elif severity == "WARNING":
            self.warnings.append(text)
        if severity == "VERBOSE":
            self.regions.take(text)
        if "affected" in text:
            self._read_weights(text)
        elif "conforming implementation" in text:
            self._read_constraints(text)

    def fresh_errors(self) -> list[str]:
        """Return the errors since this was asked last."""
        found = list(self.errors)
        self.errors.clear()
        return found

    @property
    def weight_issues(self) -> tuple[WeightIssue, ...]:
        """What the builder said of weights, each issue once with its largest count."""
        return tuple(self._issues.values())

    def _read_constraints(self, text: str) -> None:
        for pattern in _DISOBEYED:
            found = pattern.search(text)
            if found:
                why = "no kernel does it" if pattern is _DISOBEYED[0] else "another kernel was faster"
                self.disobeyed[found["layer"].strip()] = why
                return

    def _read_weights(self, text: str) -> None:
        issue = _ISSUE.search(text)
        if issue:
            what, count = issue[2].strip(), int(issue[1])
            self._open = what
            known = self._issues.get(what)
            if known is None or count > known.count:
                self._issues[what] = WeightIssue(what=what, count=count, weights=known.weights if known else ())
            return
        names = _AFFECTED.search(text)
        if names and self._open in self._issues:
            known = self._issues[self._open]
            found = tuple(dict.fromkeys(name.strip() for name in names[1].split(",") if name.strip()))
            if len(found) > len(known.weights):
                self._issues[self._open] = WeightIssue(what=known.what, count=known.count, weights=found)


def make_logger(trt: Any, messages: Messages) -> Any:
    """Return a TensorRT logger that fills ``messages``; warnings, errors and now and then the layer that is timed it
    hands to Python's logger "precision_debug.tensorrt", which the tool's own processes print.

    It lives as long as the process, and listens at the most verbose level: only there does the builder name the
    weights that it had to change.
    """
    log = logging.getLogger("precision_debug.tensorrt")
    last_written = 0.0

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            name = str(severity).rpartition(".")[2]
            messages.take(name, msg)
            if name == "WARNING" or (name in {"ERROR", "INTERNAL_ERROR"} and not messages.quoted):
                log.log(logging.WARNING if name == "WARNING" else logging.ERROR, "[TensorRT] %s: %s", name, msg)
            elif name == "VERBOSE" and "Timing Runner: " in msg:
                nonlocal last_written
                if time.monotonic() - last_written > _OFTEN:
                    last_written = time.monotonic()
                    log.debug("[TensorRT] %s: %s", name, msg)

    _loggers.append(Logger())
    return _loggers[-1]


def read_progress(line: str) -> Reason | None:
    """See ``protocols.ProgressReader``: of the lines that the logger prints."""
    found = _TIMING.search(line) if line.startswith("[TensorRT]") else None
    return say("heard_timing", layer=found[1]) if found else None
