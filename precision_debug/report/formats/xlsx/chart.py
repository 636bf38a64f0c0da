"""Native charts: the error along execution order on a logarithmic axis, and one for each further question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...curve import Curve, Point, curve
from ...model import Report
from .formats import Formats
from .questions import questions_of, write_bars
from .text import fit

__all__ = ["write_charts"]

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
    drawn = curve(report)
    questions = list(questions_of(report))
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
    for line, text in enumerate(_captions(drawn), 1):
        sheet.write_string(line, 1, text, small)
    sheet.set_portrait()
    sheet.set_paper(9)
    sheet.fit_to_pages(1, 0)
    charts = [_chart(book, drawn)] if differs else []
    if differs:
        _data(book, drawn)
    line += 2
    for chart in (*charts, *write_bars(book, questions)):
        sheet.insert_chart(line, 1, chart)
        line += math.ceil(chart.height / _ROW) + 2


def _captions(drawn: Curve) -> list[str]:
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


def _chart(book: Any, drawn: Curve) -> Any:
    points = drawn.points
    chart = book.add_chart({"type": "scatter", "subtype": "straight"})
    failed = [_failed(point) for point in points]
    broken = [drawn.edge if point.broken else None for point in points]
    orders = [point.index for point in points]

    def series(name: str, column: int, values: list[float | None], **style: Any) -> None:
        chart.add_series({
            "name": name, **style,
            "categories": [_DATA, 1, 0, len(points), 0], "values": [_DATA, 1, column, len(points), column],
            "categories_data": orders, "values_data": values,
        })  # fmt: skip

    lines = _on_lines(points)

    def line(name: str, column: int, values: list[float | None], **style: Any) -> None:
        chart.add_series({
            "name": name, "line": style, "categories": [_DATA, 1, _LINES, len(lines), _LINES],
            "values": [_DATA, 1, _LINES + column, len(lines), _LINES + column],
            "categories_data": [point.index for point in lines], "values_data": values,
        })  # fmt: skip

    if lines:
        line("Max abs / 最大绝对误差", 2, [_finite(point, point.max_abs) for point in lines], color=_GREY, width=1)
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


def _on_lines(points: Sequence[Point]) -> list[Point]:
    """Without what has no error, mostly shapes and indices: falling to the edge there, a line would hide its course."""
    return [point for point in points if not point.exact]


def _finite(point: Point, value: float | None) -> float | None:
    return None if point.broken else value


def _failed(point: Point) -> float | None:
    if not point.failed or point.broken:
        return None
    return point.relative_l2 if point.relative_l2 is not None else point.max_abs


def _data(book: Any, drawn: Curve) -> None:
    sheet = book.add_worksheet(_DATA)
    sheet.hide()
    for column, name in enumerate(_HEAD):
        sheet.write_string(0, column, name)
    lines = _on_lines(drawn.points)
    for line, point in enumerate(drawn.points, 1):
        sheet.write_number(line, 0, point.index)
        sheet.write_string(line, 1, fit(point.name))
        at_the_edge = drawn.edge if point.broken else None
        own = (None, None) if point.exact else (point.relative_l2, point.max_abs)
        values = (*own, _failed(point), at_the_edge, point.introduced)
        for column, value in enumerate(values, 2):
            if value is not None:
                sheet.write_number(line, column, value)
        if line <= len(lines):
            drawn_line = lines[line - 1]
            sheet.write_number(line, _LINES, drawn_line.index)
            for column, value in enumerate((drawn_line.relative_l2, _finite(drawn_line, drawn_line.max_abs)), 1):
                if value is not None:
                    sheet.write_number(line, _LINES + column, value)
