"""Columns of a report with several builds of the target."""

from __future__ import annotations

import math
from typing import Any

from ..records import Row
from .column import Column, column
from .values import Get

__all__ = ["REPEATED"]


def _repeated(name: str) -> Get:
    def get(row: Row) -> Any:
        return None if row.repeated is None else getattr(row.repeated, name)

    return get


def _ratio(row: Row) -> float | None:
    """How many times larger the error is than the distance between builds; None where a number is missing."""
    error = row.relative_l2
    if row.repeated is None or error is None:
        return None
    return error / float(row.repeated.rel_l2) if row.repeated.rel_l2 else math.inf if error else None


REPEATED: tuple[Column, ...] = (
    column(
        ("repeat_rel_l2", "Repeat Rel L2", "多次构建差异"), "float:error", 12, _repeated("rel_l2"),
        ("Largest relative L2 distance of a further build of the target (--repeat) from the first one.",
         "目标的各次构建（--repeat）与首次构建之间最大的相对 L2 差异。"),
    ),
    column(
        ("repeat_max_abs", "Repeat Max Abs", "多次构建最大差"), "float:error", 12, _repeated("max_abs"),
        ("Largest absolute difference between a further build and the first one.", "各次构建与首次之间的最大绝对差。"),
    ),
    column(
        ("error_over_repeat", "Error / Repeat", "误差与构建差异之比"), "float:ratio", 12, _ratio,
        ("Rel L2 over Repeat Rel L2. Well above 1: the arithmetic causes the error; about 1 or less: it is chance.",
         "误差与多次构建差异之比。远大于 1：由算术引起；约为 1 或更小：属于偶然。"),
    ),
    column(
        ("repeat_first", "Differs First", "差异起点"), "flag", 10, _repeated("first"),
        ("yes: it differs between builds, and none of its inputs does.",
         "yes：各次构建之间有差异，而其来源都没有差异。"),
    ),
)  # fmt: skip
"""Columns of a report with several builds."""
