"""Choose which columns a report has, in order: the same for every writer, and as a pandas DataFrame."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..claims import JudgedReport
from ..errors import OutputError
from ..observe.sample_columns import ITERATIONS, SAMPLES, WORST_AT, WORST_ITERATION, WORST_SAMPLES
from ..reasons import Text
from ..reasons.ways import explain_way
from ..records import Row, Status, Tolerance
from .columns import COLUMNS as _KNOWN
from .columns import REPEATED, Column, make_column
from .values import Get, get_extra, get_metric
from .words import explain_reason

if TYPE_CHECKING:
    import pandas

__all__ = [
    "BAND",
    "COLUMNS",
    "DECIDING",
    "PADDLE",
    "TWO_LANGUAGES",
    "Column",
    "describe_tolerance",
    "list_columns",
    "list_columns_for_people",
    "name_statistic",
    "to_pandas",
]  # fmt: skip


# The tolerance rule in words.

_STATISTICS = {"max": "最大值", "mean": "平均值", "median": "中位数"}


def name_statistic(tolerance: Tolerance) -> Text:
    """Return the name of the statistic that is judged, where it is not every element."""
    stat = tolerance.check_error_stat
    if stat == "quantile":
        return Text(f"{tolerance.quantile:g} quantile", f"{tolerance.quantile:g} 分位数")
    return Text(stat, _STATISTICS.get(stat, stat))


def describe_tolerance(tolerance: Tolerance) -> tuple[Text, ...]:
    """Return which elements count as mismatched, when a tensor passes, and what NaN does."""
    atol, rtol = f"{tolerance.atol:g}", f"{tolerance.rtol:g}"
    rule = {
        "isclose": f"|target - base| <= {atol} + {rtol} * |base|",
        "either": f"|target - base| <= {atol}  or  |target - base| <= {rtol} * |base|",
    }.get(tolerance.rule, f"{tolerance.rule}, atol {atol}, rtol {rtol}")
    element = Text(f"An element is within tolerance where {rule}.", f"元素在容差内的条件：{rule}。")
    if not tolerance.given:
        tensor = Text(
            "No tolerance was given: a tensor passes if its relative L2 error is within what the target's arithmetic"
            " costs.",
            "未给出容差：张量的相对 L2 误差不超过目标运算必然带来的损失即为通过。",
        )
    elif tolerance.check_error_stat == "elemwise":
        tensor = Text("A tensor passes if every element does.", "所有元素都在容差内，张量才算通过。")
    else:
        stat = name_statistic(tolerance)
        tensor = Text(
            f"A tensor passes when the {stat.en} of its absolute error is at most {atol}, or the {stat.en} of its"
            f" relative error at most {rtol}.",
            f"当绝对误差的{stat.zh}不超过 {atol}，或相对误差的{stat.zh}不超过 {rtol} 时，张量通过。",
        )
    nan = (
        Text("NaN in the same place on both sides counts as equal.", "两侧同一位置均为 NaN 视为相等。")
        if tolerance.equal_nan
        else Text("NaN never counts as equal.", "NaN 一律视为不相等。")
    )
    return element, tensor, nan


# Which columns a report has, in order: the same for every writer.

PADDLE = 8
"""How many columns, from the left, are those of Paddle's demo."""

DECIDING = (
    "relative_l2", "introduced_rel_l2", "inherited_rel_l2", "rounding_units", "error_growth", "sqnr_db",
)  # fmt: skip
"""Keys of the columns by which people judge: they follow Paddle's and the status, as far as there are such."""


def _order_columns(known: tuple[Column, ...]) -> tuple[Column, ...]:
    judged = {column.key: column for column in known if column.key in ("status", *DECIDING, "reason")}
    front = [judged[key] for key in ("status", *DECIDING, "reason") if key in judged]
    return (*known[:PADDLE], *front, *(column for column in known[PADDLE:] if column.key not in judged))


COLUMNS = _order_columns(_KNOWN)
"""The fixed columns, in their order."""

BAND = next(number for number, column in enumerate(COLUMNS, 1) if column.key == "reason")
"""How many columns, from the left, are printed, and carry the colour of a row's status."""

TWO_LANGUAGES = ("paired_by", "view")
"""Keys of columns whose texts a file keeps in English, and people read in their own language."""

_REASON = 78
"""Width of a reason: one line for nearly all of them."""


def list_columns(report: JudgedReport) -> tuple[Column, ...]:
    """Return the columns of one report: the fixed ones, the judged statistic where one is, and every key of
    ``Row.extra``."""
    tolerance = report.spec.tolerance
    judged = () if tolerance.check_error_stat == "elemwise" else _make_statistic_columns(name_statistic(tolerance))
    repeated = REPEATED if any(row.repeated is not None for row in report.rows) else ()
    return (*COLUMNS, *judged, *repeated, *_make_extra_columns(report.rows))


def list_columns_for_people(report: JudgedReport, language: str, names: Mapping[Status, Text]) -> tuple[Column, ...]:
    """Return the same, with each row's reason, and how it was paired, in one language ("en" or "zh"), and with what
    people call the statuses."""

    def reason(row: Row) -> str:
        return explain_reason(row.reason).of(language)

    def status(row: Row) -> str:
        return names[row.status].of(language)

    def say_way(get: Get) -> Get:
        return lambda row: explain_way(get(row)).of(language)

    changed: dict[str, dict[str, Any]] = {"reason": {"get": reason, "width": _REASON}, "status": {"get": status}}
    changed |= {column.key: {"get": say_way(column.get)} for column in COLUMNS if column.key in TWO_LANGUAGES}
    return tuple(dataclasses.replace(column, **changed.get(column.key, {})) for column in list_columns(report))


def _make_statistic_columns(stat: Text) -> tuple[Column, ...]:
    return (
        make_column(
            ("stat_abs", f"Judged Abs ({stat.en})", f"判定用绝对误差 ({stat.zh})"),
            "float:error", 14, get_metric("stat_abs"),
            (
                f"The {stat.en} of the absolute error, which --check_error_stat judges by.",
                f"绝对误差的{stat.zh}，由 --check_error_stat 用于判定。",
            ),
        ),
        make_column(
            ("stat_rel", f"Judged Rel ({stat.en})", f"判定用相对误差 ({stat.zh})"),
            "float:error", 14, get_metric("stat_rel"),
            (
                f"The {stat.en} of the relative error, which --check_error_stat judges by.",
                f"相对误差的{stat.zh}，由 --check_error_stat 用于判定。",
            ),
        ),
    )  # fmt: skip


def _make_extra_columns(rows: Iterable[Row]) -> tuple[Column, ...]:
    keys = dict.fromkeys(key for row in rows for key in row.extra)
    about = ("Given by the backend.", "由后端提供。")
    return tuple(
        _SAMPLES.get(key) or make_column((f"extra.{key}", key, key), "text", 44, get_extra(key), about) for key in keys
    )


_SAMPLES = {
    key: make_column((f"extra.{key}", key, title), "text", width, get_extra(key), said)
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


# The table as a pandas DataFrame.

_DTYPES = {
    "int": "Int64",
    "float": "float64",
    "share": "float64",
    "flag": "boolean",
    "text": "object",
    "index": "object",
}


def to_pandas(report: JudgedReport) -> pandas.DataFrame:
    """One line a row, one column a column of the table, named by ``Column.key``.

    Integers are Int64 and flags boolean (both nullable), numbers float64 (None becomes NaN), index columns hold tuples.
    ``attrs`` has the titles under "titles", the verdict under "verdict" and the reason of an early end under "failure".
    Raises OutputError where pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise OutputError("pandas is not installed", hint="pip install 'precision_debug[pandas]'") from error
    layout = list_columns(report)
    series: dict[str, Any] = {
        column.key: pd.Series([column.get(row) for row in report.rows], dtype=_DTYPES[column.kind]) for column in layout
    }
    frame: pandas.DataFrame = pd.DataFrame(series, columns=[column.key for column in layout])
    frame.attrs = {
        "titles": {column.key: column.title for column in layout},
        "verdict": str(report.verdict),
        "failure": report.failure,
    }
    return frame
