"""The table: one sheet, and as many more as Excel's row limit asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....reasons import Text
from ....records import Row
from ...column import Column
from ...layout import BAND
from ...widths import fitted_width, text_width
from ...words import explained
from .formats import Formats
from .stream import letters, stream_rows
from .text import fit

__all__ = ["ROW_LIMIT", "TITLE", "locate", "write_table"]

TITLE = "Precision"
ROW_LIMIT = 1_048_575
"""Rows of one sheet, below its header."""

_PADDLE = 8
"""Columns of Paddle-Inference-Demo's table, which stay first so that programs that read it go on."""

_COMMENTED = 1000
"""Rows whose reason has a comment: each one is a drawing of its own, which Excel loads with the sheet."""

_LEFT = ("text", "index", "flag")


def write_table(
    book: Any, formats: Formats, layout: tuple[Column, ...], rows: Sequence[Row], culprits: Mapping[str, int], *,
    other: str, unit: float = 2.0**-11,
) -> int:  # fmt: skip
    """Write all rows and return how many sheets they took.

    culprits: numbers of the tensors whose rows are marked. other: the language of the comments. unit: of rounding once,
    where colours begin.
    """
    starts = range(0, max(1, len(rows)), ROW_LIMIT)
    for number, start in enumerate(starts):
        part = rows[start : start + ROW_LIMIT]
        sheet = book.add_worksheet(_title(number))
        _comment(sheet, layout, part, culprits, other)  # before the rows: a line that is written takes no more
        _fill(sheet, formats, layout, part, culprits, unit)
    return len(starts)


def _comment(
    sheet: Any, layout: tuple[Column, ...], rows: Sequence[Row], culprits: Mapping[str, int], other: str
) -> None:
    """A reason's other wording, of the first rows that have one; and which culprit a marked row is."""
    at = {column.key: number for number, column in enumerate(layout)}
    small = {"x_scale": 3, "font_size": 9, "color": "#FFFFF0", "author": "precision_debug"}
    left = _COMMENTED
    for line, row in enumerate(rows, 1):
        if row.name in culprits:
            text = Text(f"culprit {culprits[row.name]}", f"元凶 {culprits[row.name]}")
            sheet.write_comment(line, at["name"], str(text), {**small, "x_scale": 1, "y_scale": 0.4})
        if row.reason and left and (text := explained(row.reason)).en != text.zh:
            left -= 1
            sheet.write_comment(line, at["reason"], fit(text.of(other)), {**small, "y_scale": 0.8})


def locate(place: int) -> tuple[str, int]:
    """Sheet title and line (from 1) of the row at a place (from 0)."""
    return _title(place // ROW_LIMIT), place % ROW_LIMIT + 2


def _title(number: int) -> str:
    return f"{TITLE} {number + 1}" if number else TITLE


def _fill(
    sheet: Any, formats: Formats, layout: tuple[Column, ...], rows: Sequence[Row], culprits: Mapping[str, int],
    unit: float,
) -> None:  # fmt: skip
    sheet.set_row(0, 33)
    widths: list[int] = []
    for number, column in enumerate(layout):
        colour = "#1D3557" if number < _PADDLE else "#3D5A80" if not column.key.startswith("extra.") else "#4F6D57"
        header = formats.get(
            bold=True, font_color="#FFFFFF", bg_color=colour, text_wrap=True, border=1, border_color="#FFFFFF",
            **({"align": "left", "indent": 1} if column.kind in _LEFT else {"align": "center"}),
        )  # fmt: skip
        sheet.write_string(0, number, fit(column.title), header)
        sheet.write_comment(0, number, *_note(column))
        least = max(map(len, column.title.split()), default=0) + 4
        widths.append(fitted_width(column, rows, least))
        sheet.set_column(number, number, widths[-1])
    last = stream_rows(sheet, formats, layout, BAND, rows, widths, culprits)
    for number, column in enumerate(layout):
        if (scale := _scale(column, unit)) is not None and last > 1:
            sheet.conditional_format(1, number, last - 1, number, scale)
    sheet.freeze_panes(1, 2)
    sheet.autofilter(0, 0, last - 1, len(layout) - 1)
    sheet.ignore_errors({"number_stored_as_text": f"A1:{letters(len(layout) - 1)}{last}"})
    sheet.set_landscape()
    sheet.set_paper(8)  # A3: fifteen columns side by side
    sheet.repeat_rows(0)
    sheet.print_area(0, 0, last - 1, BAND - 1)
    sheet.fit_to_pages(1, 0)
    sheet.set_footer("&L&F&C&A&R&P / &N")


def _scale(column: Column, unit: float) -> dict[str, Any] | None:
    """Green, amber and red: what one rounding makes, what many make, and what no rounding makes."""
    ends: tuple[float, float, float] | None = {
        "relative_l2": (unit, min(0.3, 24 * unit), 1.0), "introduced_rel_l2": (unit, min(0.3, 8 * unit), 1.0),
        "inherited_rel_l2": (unit, min(0.3, 24 * unit), 1.0), "rounding_units": (1.0, 8.0, 100.0),
        "error_growth": (1.5, 4.0, 100.0), "sqnr_db": (0.0, 25.0, 60.0),
    }.get(column.key)  # fmt: skip
    if ends is None:
        return None
    colours = ("#DDF3E4", "#FCE9B5", "#F3A79F")
    low, middle, high = colours if column.key != "sqnr_db" else colours[::-1]
    return {
        "type": "3_color_scale", "min_type": "num", "mid_type": "num", "max_type": "num",
        "min_value": ends[0], "mid_value": ends[1], "max_value": ends[2],
        "min_color": low, "mid_color": middle, "max_color": high,
    }  # fmt: skip


def _note(column: Column) -> tuple[str, dict[str, Any]]:
    text = fit(f"{column.help}\n\n{column.title_zh}：{column.help_zh}")
    lines = sum(-(-text_width(part) // 46) for part in text.split("\n") if part) + 2
    return text, {
        "width": 300,
        "height": 15 * lines + 8,
        "font_size": 9,
        "color": "#FFFFF0",
        "author": "precision_debug",
    }
