"""The table of a sweep: one line a mode and batch size, each number with its ratio to the baseline's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....report.words import explain_reason
from .result import Mode, Speed, Sweep

__all__ = ["BASELINE", "REFUSED", "Cell", "Head", "Line", "format_cell", "list_heads", "list_lines", "list_scores"]

BASELINE, REFUSED = "baseline", "refused"
"""What stands as the verdict of the baseline's own row, and of a mode that did not run."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """A column. kind: "text", "number", "share", "ms", "bytes" or "ratio"."""

    key: str
    title: str
    title_zh: str
    kind: str = "number"


Cell = Any
Line = dict[str, Cell]
"""By a column's key; absent or None: empty."""

_SPEEDS: tuple[tuple[str, str, str, str, Callable[[Speed], float]], ...] = (
    ("median", "Median (ms)", "中位延迟 (ms)", "ms", lambda speed: speed.median),
    ("p99", "p99 (ms)", "p99 延迟 (ms)", "ms", lambda speed: speed.p99),
    ("throughput", "Samples/s", "吞吐 (样本/秒)", "number", lambda speed: speed.throughput),
    ("size", "Size", "大小", "bytes", lambda speed: float(speed.size)),
    ("build", "Build (s)", "构建 (秒)", "number", lambda speed: speed.build),
)


def list_heads(sweep: Sweep) -> tuple[Head, ...]:
    """Return the columns; scores are those that some mode has."""
    names = dict.fromkeys(name for mode in sweep.modes for name in list_scores(mode))
    return (
        Head(key="mode", title="Run Mode", title_zh="运行模式", kind="text"),
        Head(key="verdict", title="Verdict", title_zh="结论", kind="text"),
        Head(key="rel_l2", title="Rel L2", title_zh="相对 L2 误差"),
        *(
            [Head(key="apart", title="Builds Apart", title_zh="多次构建差异")]
            if any(mode.apart is not None for mode in sweep.modes)
            else []
        ),
        Head(key="culprit", title="Culprit", title_zh="元凶", kind="text"),
        *(
            column
            for name in names
            for column in (
                Head(key=f"score {name}", title=name, title_zh=explain_reason(name).zh),
                Head(key=f"score {name} ratio", title="ratio", title_zh="比值", kind="ratio"),
            )
        ),
        Head(key="batch", title="Batch", title_zh="批大小"),
        *(
            column
            for key, title, title_zh, kind, _ in _SPEEDS
            for column in (
                Head(key=key, title=title, title_zh=title_zh, kind=kind),
                Head(key=f"{key} ratio", title="ratio", title_zh="比值", kind="ratio"),
            )
        ),
        Head(key="spread", title="Spread (ms)", title_zh="延迟范围 (ms)", kind="text"),
        Head(key="mean_rel", title="Mean Rel Error", title_zh="平均相对误差"),
        Head(key="share", title="Share > 1%", title_zh="误差>1% 比例", kind="share"),
        Head(key="worst", title="Worst Tensor", title_zh="最差张量", kind="text"),
        Head(key="against", title="Against", title_zh="对比对象", kind="text"),
        Head(key="reason", title="Why Not", title_zh="未运行原因", kind="text"),
    )


def list_lines(sweep: Sweep) -> list[Line]:
    """One line a mode and batch size; a mode without times has one all the same."""
    return [line for mode in sweep.modes for line in _lines_of_mode(sweep, mode)]


def list_scores(mode: Mode) -> dict[str, float]:
    """By what they measure: the target's, or the baseline's own in its row, and what is of both."""
    other = ", target" if mode.verdict == BASELINE else ", baseline"
    found = {name: value for name, value in mode.scores.items() if not name.endswith(other)}
    return {name.removesuffix(", target").removesuffix(", baseline"): value for name, value in found.items()}


def _lines_of_mode(sweep: Sweep, mode: Mode) -> list[Line]:
    first = sweep.first
    line: Line = {
        "mode": mode.name, "verdict": mode.verdict or (REFUSED if mode.refused else ""), "mean_rel": mode.mean_rel,
        "share": mode.share_over_1pct, "rel_l2": mode.rel_l2, "apart": mode.apart, "worst": mode.worst,
        "culprit": f"{mode.culprit} ({mode.cause})" if mode.culprit else mode.cause,
        "against": mode.against, "reason": mode.refused,
    }  # fmt: skip
    theirs = list_scores(first) if first is not None else {}
    for name, value in list_scores(mode).items():
        line[f"score {name}"] = value
        line[f"score {name} ratio"] = _ratio_of(value, theirs.get(name))
    found = [_add_times(line, speed, first) for speed in mode.speeds]
    for batch, why in mode.failed.items():
        found.append({**line, "batch": int(batch) or None, "reason": why})
    return found or [line]


def _add_times(line: Line, speed: Speed, first: Mode | None) -> Line:
    other = next((one for one in first.speeds if one.batch == speed.batch), None) if first is not None else None
    found: Line = {**line, "batch": speed.batch}
    if speed.low < speed.high:
        found["spread"] = f"{1e3 * speed.low:.3g} to {1e3 * speed.high:.3g}"
    for key, _, _, _, get in _SPEEDS:
        if number := get(speed):
            found[key] = number
            found[f"{key} ratio"] = _ratio_of(number, None if other is None else get(other))
    return found


def _ratio_of(value: float, base: float | None) -> float | None:
    return None if not base or not math.isfinite(base) else value / base


def format_cell(head: Head, value: Cell) -> str:
    """Return a cell as text."""
    if value is None or value == "":
        return ""
    if head.kind == "text":
        return str(value)
    if head.kind == "share":
        return f"{100 * value:.2f}%"
    if head.kind == "ratio":
        return f"{value:.3g}x"
    if head.kind == "ms":
        return f"{1e3 * value:.3g}"
    if head.kind == "bytes":
        return next(f"{value / unit:.3g} {name}" for unit, name in _UNITS if value >= unit or unit == 1)
    return f"{value:.3g}" if isinstance(value, float) and not value.is_integer() else f"{value:g}"


_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
