"""Native charts: the error along execution order on a logarithmic axis, and one for each further question."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ....reasons import Text
from ....records import Row, Status
from ...model import Report
from ...values import are_shares_of_broken
from .formats import Formats, escape_caption, fit_cell_text

__all__ = ["make_curve", "write_charts"]


# The error along execution order, ready to be drawn on a logarithmic axis.

_SMALLEST = 1e-12
"""The lower edge lies no lower: errors below it mean nothing, and would flatten everything else."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One row. relative_l2 and max_abs lie within the curve's low and high; None where there is no finite number.

    introduced: relative L2 error that the operator itself added, None where that was not measured. failed: out of
    tolerance. broken: an error that is not finite, or shapes that differ; drawn apart, above every number. exact: no
    error at all.
    """

    index: int
    name: str
    op_type: str
    relative_l2: float | None
    max_abs: float | None
    failed: bool
    broken: bool
    introduced: float | None = None
    exact: bool = False


@dataclass(frozen=True, kw_only=True)
class Curve:
    """points: in execution order. low, high: powers of ten that enclose them. thinned: how many rows one stands for."""

    points: tuple[Point, ...]
    low: float
    high: float
    thinned: int = 1

    @property
    def top(self) -> float:
        """The axis' end: a decade above ``high`` where something is broken."""
        return 10 * self.high if any(point.broken for point in self.points) else self.high

    @property
    def edge(self) -> float:
        """Where what is broken is drawn: between the last gridline of a number and the axis' end."""
        return self.high * math.sqrt(10)


def make_curve(report: Report, limit: int = 5000) -> Curve:
    """Return the compared rows as points, at most about ``limit``.

    More rows are thinned in equal stretches. Of each stretch the rows stay that hold its largest relative L2 error, max
    absolute error or introduced error (each also among those out of tolerance), and the first broken one.
    """
    rows = [row for row in report.rows if row.comparison is not None]
    values = [
        error
        for row in rows
        for error in (*_errors_of_row(row), _own_error(row))
        if error is not None and 0 < error < math.inf
    ]
    low = 10.0 ** math.floor(math.log10(max(_SMALLEST, min(values, default=1e-6))))
    high = max(100 * low, 10.0 ** min(300, math.ceil(math.log10(max(values, default=1.0)))))
    stretch = math.ceil(5 * len(rows) / limit) if len(rows) > limit else 1
    points: list[Point] = []
    for start in range(0, len(rows), stretch):
        part = [_make_point(row, low, high) for row in rows[start : start + stretch]]
        points += part if stretch == 1 else _find_peaks(part)
    return Curve(points=tuple(points), low=low, high=high, thinned=stretch)


def _errors_of_row(row: Row) -> tuple[float | None, float | None]:
    return row.relative_l2, None if row.comparison is None else row.comparison.max_abs


def _own_error(row: Row) -> float | None:
    return None if row.introduced is None else row.introduced.rel_l2


def _make_point(row: Row, low: float, high: float) -> Point:
    errors = _errors_of_row(row)
    failed = row.status is Status.FAIL
    wild = any(error is not None and not math.isfinite(error) for error in errors)
    silent = failed and not any(errors)
    differs = row.comparison is not None and not row.comparison.shapes_match
    drawn = [
        min(max(error, low), high) if error is not None and math.isfinite(error) else None
        for error in (*errors, _own_error(row))
    ]
    broken = wild or silent or differs
    return Point(
        index=row.index, name=row.name, op_type=row.op_type, relative_l2=None if broken else drawn[0],
        max_abs=drawn[1], failed=failed, broken=broken, introduced=drawn[2], exact=not broken and errors[0] == 0,
    )  # fmt: skip


def _find_peaks(points: Sequence[Point]) -> list[Point]:
    failed = [point for point in points if point.failed] or points
    tops = (
        max(points, key=lambda point: point.relative_l2 or 0.0),
        max(points, key=lambda point: point.max_abs or 0.0),
        max(failed, key=lambda point: point.relative_l2 or 0.0),
        max(points, key=lambda point: point.introduced or 0.0),
        next((point for point in points if point.broken), points[0]),
    )
    kept = {point.index for point in tops}
    return [point for point in points if point.index in kept]


# Which charts a workbook has beside the error along execution order: one a question that the report can answer.

_BARS = "ChartBars"
_MOST = 12
_MARKED, _BAR = "#D92D20", "#2563A8"
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


def iterate_questions(report: Report) -> Iterator[Question]:
    """Yield those with at least one bar."""
    explanation = report.explanation
    blamed = frozenset(culprit.name for culprit in explanation.culprits) if explanation is not None else frozenset()
    if explanation is not None and explanation.budget:
        shares = sorted(explanation.budget.items(), key=lambda pair: -pair[1])[:_MOST]
        broken = are_shares_of_broken(explanation)
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
    """Return the charts of the questions, with their data on a hidden sheet; nothing where there are none."""
    if not questions:
        return []
    sheet = book.add_worksheet(_BARS)
    sheet.hide()
    charts, line = [], 0
    for question in questions:
        first = line
        for label, (_, length) in zip(_label_bars(question), question.bars, strict=True):
            sheet.write_string(line, 0, fit_cell_text(label))
            sheet.write_number(line, 1, length)
            line += 1
        charts.append(_make_bar_chart(book, question, first, line - 1))
    return charts


def _label_bars(question: Question) -> list[str]:
    """On a logarithm the numbers stand with the names: labels of what is below 1 would lie over them."""
    if not question.log:
        return [_shorten_name(name) for name, _ in question.bars]
    return [f"{_shorten_name(name)}   {length:.3g}" for name, length in question.bars]


def _shorten_name(name: str) -> str:
    return name if len(name) <= _NAME else f"…{name[1 - _NAME :]}"


def _make_bar_chart(book: Any, question: Question, first: int, last: int) -> Any:
    chart = book.add_chart({"type": "bar"})
    colour = _BAR
    points = [{"fill": {"color": _MARKED if name in question.marked else colour}} for name, _ in question.bars]
    form, exact = ("0%", "0.0%") if question.percent else ("0E+00", "0.00E+00") if question.log else ("0.0", "0.00")
    chart.add_series({
        "name": str(question.axis),
        "categories": [_BARS, first, 0, last, 0], "values": [_BARS, first, 1, last, 1],
        "categories_data": [fit_cell_text(label) for label in _label_bars(question)],
        "values_data": [length for _, length in question.bars],
        "points": points, "gap": 40,
        **({} if question.log else {"data_labels": {"value": True, "num_format": exact}}),
    })  # fmt: skip
    grid = {"visible": True, "line": {"color": "#E3E6EA", "width": 0.75}}
    title = escape_caption(str(question.title))
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


_DATA = "ChartData"
_ROW = 20
"""Pixels of a row, about."""
_HEAD = ("Order", "Tensor Name", "Rel L2", "Max Atol", "Out of tolerance", "Broken", "Introduced Rel L2")
_LINES = 8
"""The column at which the lines' own numbers begin: without what has no error, which they pass over, and with an empty
cell where a number is not finite, which breaks them."""
_BLUE, _GREY, _RED, _ORANGE = "#2563A8", "#9AA5B1", "#D92D20", "#E08A00"


def write_charts(book: Any, formats: Formats, report: Report) -> None:
    """Sheet "Chart", one below the other, and hidden sheets with their numbers; no sheet where nothing is drawn."""
    drawn = make_curve(report)
    questions = list(iterate_questions(report))
    differs = any(not point.exact or point.introduced for point in drawn.points)
    if not differs and not questions:
        return
    sheet = book.add_worksheet("Chart")
    sheet.hide_gridlines(2)
    sheet.set_column(0, 0, 2)
    title = formats.get(bold=True, font_size=14, font_color="#1D3557")
    small = formats.get(font_color="#5B6470")
    sheet.set_row(0, 24)
    sheet.write_string(0, 1, "Error along execution order / 误差随执行顺序的变化", title)
    line = 1
    for line, text in enumerate(_list_captions(drawn), 1):
        sheet.write_string(line, 1, text, small)
    sheet.set_portrait()
    sheet.set_paper(9)
    sheet.fit_to_pages(1, 0)
    charts = [_make_curve_chart(book, drawn)] if differs else []
    if differs:
        _write_chart_data(book, drawn)
    line += 2
    for chart in (*charts, *write_bars(book, questions)):
        sheet.insert_chart(line, 1, chart)
        line += math.ceil(chart.height / _ROW) + 2


def _list_captions(drawn: Curve) -> list[str]:
    captions = [
        "Red: out of tolerance. Cross above all numbers: NaN, Inf or another shape. The lines leave out errors of 0.",
        "红点：超出容差。最上方的叉：NaN、Inf 或形状不一致。折线不画误差为 0 的张量。",
    ]
    if drawn.thinned > 1:
        captions.append(
            f"Thinned: of every {drawn.thinned} rows those with the largest errors are drawn."
            f" / 已抽稀：每 {drawn.thinned} 行只画误差最大的几行。"
        )
    return captions


def _make_curve_chart(book: Any, drawn: Curve) -> Any:
    points = drawn.points
    chart = book.add_chart({"type": "scatter", "subtype": "straight"})
    failed = [_failed_value(point) for point in points]
    broken = [drawn.edge if point.broken else None for point in points]
    orders = [point.index for point in points]

    def series(name: str, column: int, values: list[float | None], **style: Any) -> None:
        chart.add_series({
            "name": name, **style,
            "categories": [_DATA, 1, 0, len(points), 0], "values": [_DATA, 1, column, len(points), column],
            "categories_data": orders, "values_data": values,
        })  # fmt: skip

    lines = _drop_errorless(points)

    def line(name: str, column: int, values: list[float | None], **style: Any) -> None:
        chart.add_series({
            "name": name, "line": style, "categories": [_DATA, 1, _LINES, len(lines), _LINES],
            "values": [_DATA, 1, _LINES + column, len(lines), _LINES + column],
            "categories_data": [point.index for point in lines], "values_data": values,
        })  # fmt: skip

    if lines:
        line(
            "Max abs / 最大绝对误差", 2, [_finite_value(point, point.max_abs) for point in lines], color=_GREY, width=1
        )
        line("Relative L2 / 相对 L2 误差", 1, [point.relative_l2 for point in lines], color=_BLUE, width=1.75)
    introduced = [point.introduced for point in points]
    if any(value is not None for value in introduced):
        dot = {
            "type": "circle",
            "size": 4 if len(points) < 400 else 2,
            "fill": {"color": _ORANGE},
            "border": {"none": True},
        }
        series("Introduced Rel L2 / 引入误差", 6, introduced, line={"none": True}, marker=dot)
    dots = sum(value is not None for value in failed)
    if dots:
        dot = {"type": "circle", "size": 6 if dots < 200 else 3, "fill": {"color": _RED}, "border": {"none": True}}
        series("Out of tolerance / 超出容差", 4, failed, line={"none": True}, marker=dot)
    if any(value is not None for value in broken):
        cross = {"type": "x", "size": 8, "border": {"color": _RED, "width": 2}}
        series("NaN, Inf or shape / NaN、Inf 或形状", 5, broken, line={"none": True}, marker=cross)
    grid = {"visible": True, "line": {"color": "#E3E6EA", "width": 0.75}}
    chart.set_x_axis({
        "name": "Order / 执行顺序", "min": points[0].index, "max": max(points[-1].index, points[0].index + 1),
        "major_gridlines": {"visible": False}, "line": {"color": _GREY}, "label_position": "low",
    })  # fmt: skip
    chart.set_y_axis({
        "name": "Error / 误差", "log_base": 10, "min": drawn.low, "max": drawn.top, "crossing": drawn.low,
        "num_format": "0E+00", "major_gridlines": grid, "line": {"color": _GREY},
    })  # fmt: skip
    chart.set_legend({"position": "top"})
    chart.show_blanks_as("gap")
    chart.show_hidden_data()
    chart.set_size({"width": 1180, "height": 520})
    return chart


def _drop_errorless(points: Sequence[Point]) -> list[Point]:
    """Without what has no error, mostly shapes and indices: falling to the edge there, a line would hide its course."""
    return [point for point in points if not point.exact]


def _finite_value(point: Point, value: float | None) -> float | None:
    return None if point.broken else value


def _failed_value(point: Point) -> float | None:
    if not point.failed or point.broken:
        return None
    return point.relative_l2 if point.relative_l2 is not None else point.max_abs


def _write_chart_data(book: Any, drawn: Curve) -> None:
    sheet = book.add_worksheet(_DATA)
    sheet.hide()
    for column, name in enumerate(_HEAD):
        sheet.write_string(0, column, name)
    lines = _drop_errorless(drawn.points)
    for line, point in enumerate(drawn.points, 1):
        sheet.write_number(line, 0, point.index)
        sheet.write_string(line, 1, fit_cell_text(point.name))
        at_the_edge = drawn.edge if point.broken else None
        own = (None, None) if point.exact else (point.relative_l2, point.max_abs)
        values = (*own, _failed_value(point), at_the_edge, point.introduced)
        for column, value in enumerate(values, 2):
            if value is not None:
                sheet.write_number(line, column, value)
        if line <= len(lines):
            drawn_line = lines[line - 1]
            sheet.write_number(line, _LINES, drawn_line.index)
            for column, value in enumerate((drawn_line.relative_l2, _finite_value(drawn_line, drawn_line.max_abs)), 1):
                if value is not None:
                    sheet.write_number(line, _LINES + column, value)
