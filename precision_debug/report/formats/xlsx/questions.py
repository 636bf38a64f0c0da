"""Which charts a workbook has beside the error along execution order: one a question that the report can answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....reasons import Text
from ...model import Report
from ...values import shares_of_broken
from .text import caption, fit

__all__ = ["Question", "questions_of", "write_bars"]

_DATA = "ChartBars"
_MOST = 12
_RED, _BLUE = "#D92D20", "#2563A8"
_NAME = 46
_FAR = 100
"""Times the shortest bar from which on the longest one needs a logarithmic axis."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """title: the question. axis: what the bars' length is. bars: name and length, the longest first.

    log: the lengths lie on a logarithmic axis. marked: names whose bars are red.
    """

    title: Text
    axis: Text
    bars: tuple[tuple[str, float], ...]
    log: bool = False
    percent: bool = False
    marked: frozenset[str] = frozenset()


def questions_of(report: Report) -> Iterator[Question]:
    """Those with at least one bar."""
    explanation = report.explanation
    blamed = frozenset(culprit.name for culprit in explanation.culprits) if explanation is not None else frozenset()
    if explanation is not None and explanation.budget:
        shares = sorted(explanation.budget.items(), key=lambda pair: -pair[1])[:_MOST]
        broken = shares_of_broken(explanation)
        what = Text("NaN and Inf", "NaN 和 Inf ") if broken else Text("squared error", "平方误差")
        yield Question(
            title=Text(f"Whose error reaches {explanation.at}?", f"{explanation.at} 处的误差来自哪些算子？"),
            axis=Text(f"Share of the {what.en} that it explains alone", f"单独可解释的{what.zh}比例"),
            bars=tuple(shares), percent=True, marked=blamed,
        )  # fmt: skip
    by_name: dict[str, float] = {}  # a tensor may have a row of its own in the target, of the same name
    for row in report.rows:
        if row.introduced is not None and row.introduced.units and math.isfinite(row.introduced.units):
            by_name[row.name] = max(by_name.get(row.name, 0.0), row.introduced.units)
    units = sorted(by_name.items(), key=lambda pair: -pair[1])
    if units:
        yield Question(
            title=Text("Which operators add the most error themselves?", "哪些算子自身引入的误差最大？"),
            axis=Text("Introduced error over the error of rounding once", "引入误差与单次舍入误差之比"),
            bars=tuple(units[:_MOST]), marked=blamed, log=units[0][1] > _FAR * units[: _MOST][-1][1],
        )  # fmt: skip
    points = [] if report.fix is None else [point for point in report.fix.trade if point.error]
    if len(points) > 1:
        yield Question(
            title=Text("What does each number of kept operators bring?", "保留不同数量的算子能把误差降到多少？"),
            axis=Text("Rel L2 that is left", "剩余的相对 L2 误差"),
            bars=tuple((f"{point.kept} kept / 保留 {point.kept}", point.error or 0.0) for point in points), log=True,
        )  # fmt: skip


def write_bars(book: Any, questions: list[Question]) -> list[Any]:
    """The charts of the questions, with their data on a hidden sheet; nothing where there are none."""
    if not questions:
        return []
    sheet = book.add_worksheet(_DATA)
    sheet.hide()
    charts, line = [], 0
    for question in questions:
        first = line
        for label, (_, length) in zip(_labels(question), question.bars, strict=True):
            sheet.write_string(line, 0, fit(label))
            sheet.write_number(line, 1, length)
            line += 1
        charts.append(_chart(book, question, first, line - 1))
    return charts


def _labels(question: Question) -> list[str]:
    """On a logarithm the numbers stand with the names: labels of what is below 1 would lie over them."""
    if not question.log:
        return [_short(name) for name, _ in question.bars]
    return [f"{_short(name)}   {length:.3g}" for name, length in question.bars]


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"…{name[1 - _NAME :]}"


def _chart(book: Any, question: Question, first: int, last: int) -> Any:
    chart = book.add_chart({"type": "bar"})
    colour = _BLUE
    points = [{"fill": {"color": _RED if name in question.marked else colour}} for name, _ in question.bars]
    form, exact = ("0%", "0.0%") if question.percent else ("0E+00", "0.00E+00") if question.log else ("0.0", "0.00")
    chart.add_series({
        "name": str(question.axis),
        "categories": [_DATA, first, 0, last, 0], "values": [_DATA, first, 1, last, 1],
        "categories_data": [fit(label) for label in _labels(question)],
        "values_data": [length for _, length in question.bars],
        "points": points, "gap": 40,
        **({} if question.log else {"data_labels": {"value": True, "num_format": exact}}),
    })  # fmt: skip
    grid = {"visible": True, "line": {"color": "#E3E6EA", "width": 0.75}}
    title = caption(str(question.title))
    chart.set_title({"name": title, "name_font": {"size": 12, "color": "#1D3557"}, "overlay": False})
    chart.set_y_axis({"reverse": True, "num_font": {"size": 9}, "major_gridlines": {"visible": False}})
    scale: dict[str, Any] = {"name": str(question.axis), "num_format": form, "major_gridlines": grid}
    if question.log:
        low = min(length for _, length in question.bars)
        low = 10.0 ** math.floor(math.log10(low) - 0.5)
        scale |= {"log_base": 10, "min": low, "crossing": low}
    else:
        scale |= {"min": 0, "max": 1} if question.percent else {"min": 0}
    chart.set_x_axis({**scale, "name_font": {"size": 9}, "label_position": "high"})
    chart.set_legend({"none": True})
    chart.show_hidden_data()
    chart.set_size({"width": 1180, "height": 130 + 26 * len(question.bars)})
    return chart
