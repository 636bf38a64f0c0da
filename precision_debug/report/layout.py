"""Which columns a report has, in order: the same for every writer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ..claims import Judged
from ..observe.sample_columns import ITERATIONS, SAMPLES, WORST_AT, WORST_ITERATION, WORST_SAMPLES
from ..reasons import Text
from ..records import Row, Status
from .catalogue import COLUMNS as _KNOWN
from .column import Column, column
from .repeat_columns import REPEATED
from .tolerance import statistic
from .values import extra, metric
from .words import explained

__all__ = ["BAND", "COLUMNS", "DECIDING", "PADDLE", "Column", "columns", "columns_for_people"]

PADDLE = 8
"""How many columns, from the left, are those of Paddle's demo."""

DECIDING = (
    "relative_l2", "introduced_rel_l2", "inherited_rel_l2", "rounding_units", "error_growth", "sqnr_db",
)  # fmt: skip
"""Keys of the columns by which people judge: they follow Paddle's and the status, as far as there are such."""


def _ordered(known: tuple[Column, ...]) -> tuple[Column, ...]:
    judged = {column.key: column for column in known if column.key in ("status", *DECIDING, "reason")}
    front = [judged[key] for key in ("status", *DECIDING, "reason") if key in judged]
    return (*known[:PADDLE], *front, *(column for column in known[PADDLE:] if column.key not in judged))


COLUMNS = _ordered(_KNOWN)
"""The fixed columns, in their order."""

BAND = next(number for number, column in enumerate(COLUMNS, 1) if column.key == "reason")
"""How many columns, from the left, are printed, and carry the colour of a row's status."""

_REASON = 78
"""Width of a reason: one line for nearly all of them."""


def columns(report: Judged) -> tuple[Column, ...]:
    """The columns of one report: the fixed ones, the judged statistic where one is, and every key of ``Row.extra``."""
    tolerance = report.spec.tolerance
    judged = () if tolerance.check_error_stat == "elemwise" else _stat_columns(statistic(tolerance))
    repeated = REPEATED if any(row.repeated is not None for row in report.rows) else ()
    return (*COLUMNS, *judged, *repeated, *_extra_columns(report.rows))


def columns_for_people(report: Judged, language: str, names: Mapping[Status, Text]) -> tuple[Column, ...]:
    """The same, with each row's reason in one language ("en" or "zh"), and with what people call the statuses."""

    def reason(row: Row) -> str:
        return explained(row.reason).of(language)

    def status(row: Row) -> str:
        return names[row.status].of(language)

    changed: dict[str, dict[str, Any]] = {"reason": {"get": reason, "width": _REASON}, "status": {"get": status}}
    return tuple(dataclasses.replace(column, **changed.get(column.key, {})) for column in columns(report))


def _stat_columns(stat: Text) -> tuple[Column, ...]:
    return (
        column(
            ("stat_abs", f"Judged Abs ({stat.en})", f"判定用绝对误差 ({stat.zh})"),
            "float:error", 14, metric("stat_abs"),
            (
                f"The {stat.en} of the absolute error, which --check_error_stat judges by.",
                f"绝对误差的{stat.zh}，由 --check_error_stat 用于判定。",
            ),
        ),
        column(
            ("stat_rel", f"Judged Rel ({stat.en})", f"判定用相对误差 ({stat.zh})"),
            "float:error", 14, metric("stat_rel"),
            (
                f"The {stat.en} of the relative error, which --check_error_stat judges by.",
                f"相对误差的{stat.zh}，由 --check_error_stat 用于判定。",
            ),
        ),
    )  # fmt: skip


def _extra_columns(rows: Iterable[Row]) -> tuple[Column, ...]:
    keys = dict.fromkeys(key for row in rows for key in row.extra)
    about = ("Given by the backend.", "由后端提供。")
    return tuple(_SAMPLES.get(key) or column((f"extra.{key}", key, key), "text", 44, extra(key), about) for key in keys)


_SAMPLES = {
    key: column((f"extra.{key}", key, title), "text", width, extra(key), said)
    for key, title, width, said in (
        (SAMPLES, "样本数", 10, ("Number of samples that the row covers.", "该行统计的样本数。")),
        (
            WORST_SAMPLES, "最差样本", 44,
            ("The samples in which this tensor is worst, with its relative L2 error there; --sample NUMBER runs one.",
             "该张量误差最大的样本及其相对 L2 误差；--sample 编号 可单独运行。"),
        ),
        (
            ITERATIONS, "迭代次数", 14,
            ("How many iterations of a loop the row is over, or the number of the one that it is of.",
             "该行统计的循环迭代次数，或该行所属的那一次。"),
        ),
        (
            WORST_ITERATION, "最差迭代", 20,
            ("The iteration in which this tensor is worst, with its relative L2 error there; it has its own row.",
             "该张量误差最大的一次迭代及其相对 L2 误差；该次迭代另有一行。"),
        ),
        (WORST_AT, "最大绝对误差样本", 10, ("The sample that has Max Atol.", "最大绝对误差所在的样本。")),
    )
}  # fmt: skip
"""Columns of a table over many samples, or iterations."""
