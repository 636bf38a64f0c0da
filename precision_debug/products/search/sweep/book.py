"""A sweep as a workbook: the table first, for programs; it opens on the sentence and the plot."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ....report.formats.xlsx.formats import TONES, Formats, escape_caption, fit_cell_text, set_up_paper, write_sentences
from ....report.words import measure_text_width
from .result import Sweep
from .sentences import cell_text, list_sentences, tone_of
from .table import Head, Line, list_heads, list_lines

__all__ = ["write_book"]

_STYLES = {"share": "0.00%", "ratio": '0.00"x"', "number": "0.####", "ms": "0.000", "bytes": "#,##0", "text": "@"}
_ERRORS = ("mean_rel", "rel_l2", "apart")
_TONED = {"as expected": "good", "within tolerance": "good", "out of tolerance": "bad", "refused": "muted"}
_WIDE, _MOST = 15, 44


def write_book(sweep: Sweep, path: Path) -> None:
    """Numbers as numbers; columns that hold nothing are left out."""
    import xlsxwriter

    book = xlsxwriter.Workbook(str(path), {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False})
    try:
        formats = Formats(book)
        found = list_lines(sweep)
        columns = [head for head in list_heads(sweep) if any(line.get(head.key) not in (None, "") for line in found)]
        _write_table(book.add_worksheet("Sweep"), formats, sweep, columns, found)
        summary = book.add_worksheet("Summary")
        summary.activate()
        _add_chart(book, summary, 1 + write_sentences(summary, formats, list_sentences(sweep), tone_of(sweep)), found)
    finally:
        book.close()


def _write_table(sheet: Any, formats: Formats, sweep: Sweep, columns: list[Head], found: list[Line]) -> None:
    for place, head in enumerate(columns):
        look = formats.get(
            bold=True, font_color="#FFFFFF", bg_color="#1D3557", text_wrap=True, border=1, border_color="#FFFFFF",
            align="left" if head.kind == "text" else "center", indent=int(head.kind == "text"),
        )  # fmt: skip
        sheet.write_string(0, place, fit_cell_text(_title_of(head)), look)
        texts = [str(cell_text(head, line, sweep.mode(line["mode"]))) for line in found] if head.kind == "text" else []
        widest = max(map(measure_text_width, (*head.title.split(), head.title_zh, *texts)), default=0) + 4
        sheet.set_column(place, place, max(9, min(_MOST if head.kind == "text" else _WIDE, widest)))
        for number, line in enumerate(found, 1):
            _put(sheet, formats, number, place, head, line, sweep)
    sheet.set_row(0, 48)
    sheet.freeze_panes(1, 1)
    sheet.autofilter(0, 0, max(1, len(found)), len(columns) - 1)
    set_up_paper(sheet, 8)
    sheet.repeat_rows(0)


def _put(sheet: Any, formats: Formats, number: int, place: int, head: Head, line: Line, sweep: Sweep) -> None:
    value = line.get(head.key)
    if value is None or value == "":
        return
    if head.kind == "text":
        toned = TONES.get(_TONED.get(value, ""), {}) if head.key == "verdict" else {}
        look = {"indent": 1, "text_wrap": True, **toned}
        text_ = cell_text(head, line, sweep.mode(line["mode"]))
        text = value if head.key == "reason" or text_.en == text_.zh else f"{text_.en} / {text_.zh}"
        sheet.write_string(number, place, fit_cell_text(str(text)), formats.get("text", **look))
    elif math.isfinite(value):
        form = "0.00E+00" if head.key in _ERRORS else _STYLES[head.kind]
        sheet.write_number(number, place, value * (1e3 if head.kind == "ms" else 1), formats.get(num_format=form))
    else:
        sheet.write_string(number, place, str(value), formats.get("text", align="right", bold=True))


def _title_of(head: Head) -> str:
    return head.title if head.title == head.title_zh else f"{head.title}\n{head.title_zh}"


def _add_chart(book: Any, sheet: Any, at: int, found: list[Line]) -> None:
    drawn = [line for line in found if line.get("median") and line.get("rel_l2") is not None]
    if not drawn:
        return
    errors = [line["rel_l2"] for line in drawn if line["rel_l2"] and math.isfinite(line["rel_l2"])]
    edge = 10.0 ** math.floor(math.log10(min(errors))) / 10 if errors else 1e-9
    most = max(10.0 ** math.ceil(math.log10(max(errors))) if errors else 1.0, 100 * edge)
    wild = any(not math.isfinite(line["rel_l2"]) for line in drawn)
    times = [1e3 * line["median"] for line in drawn]
    chart = book.add_chart({"type": "scatter"})
    data = book.add_worksheet("ChartData")
    data.hide()
    for number, line in enumerate(drawn):
        exact = not line["rel_l2"]  # has no place on a logarithm: it lies on the lower edge, and its name says so
        lost = not math.isfinite(line["rel_l2"])  # NaN or Inf: between the last gridline of a number and the axis' end
        height = most * math.sqrt(10) if lost else line["rel_l2"] or edge
        data.write_row(number, 0, [1e3 * line["median"], height])
        chart.add_series(
            {
                "name": escape_caption(f"{line['mode']} ({'NaN, Inf' if lost else 0})"
                if lost or exact else line["mode"]),
                "categories": ["ChartData", number, 0, number, 0], "values": ["ChartData", number, 1, number, 1],
                "marker": {"type": "circle", "size": 9, "fill": {"color": _COLOURS.get(line["verdict"], "#0A7D5A")}},
                "data_labels": {"series_name": True, "value": False, "position": "right"},
            }
        )  # fmt: skip
    chart.set_title({
        "name": "Error against latency / 误差与延迟", "name_font": {"size": 12, "color": "#1D3557"}, "overlay": False,
    })  # fmt: skip
    grid = {"visible": True, "line": {"color": "#E3E6EA", "width": 0.75}}
    low = 10.0 ** math.floor(math.log10(min(times)))
    chart.set_x_axis({
        "name": "median latency (ms) / 中位延迟（毫秒）", "log_base": 10, "min": low,
        "max": 10.0 ** math.ceil(math.log10(max(times) * 1.3)), "crossing": low,
        "major_gridlines": grid, "num_format": "General",
    })  # fmt: skip
    chart.set_y_axis({
        "name": "Rel L2 of the worst output / 最差输出的相对 L2 误差", "log_base": 10, "min": edge, "crossing": edge,
        **({"max": 10 * most} if wild else {}), "num_format": "0E+00", "major_gridlines": grid,
    })  # fmt: skip
    chart.set_legend({"none": True})
    chart.show_hidden_data()
    chart.set_size({"width": 1000, "height": 480})
    sheet.insert_chart(at, 1, chart)


_COLOURS = {"out of tolerance": "#D92D20", "inconclusive": "#E08A00", "partial": "#E08A00", "baseline": "#7B8794"}
