"""The table: one sheet, and as many more as Excel's row limit asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....records import Row
from ...column import Column
from ...layout import BAND
from ...widths import fitted_width, text_width
from .formats import Formats
from .stream import letters, stream_rows
from .text import fit

__all__ = ["ROW_LIMIT", "TITLE", "locate", "write_table"]

TITLE = "Precision"
ROW_LIMIT = 1_048_575
"""Rows of one sheet, below its header."""

_PADDLE = 8
_LEFT = ("text", "index", "flag")


def write_table(book: Any, formats: Formats, layout: tuple[Column, ...], rows: Sequence[Row]) -> int:
    """Write all rows and return how many sheets they took."""
    starts = range(0, max(1, len(rows)), ROW_LIMIT)
    for number, start in enumerate(starts):
        _sheet(book, formats, layout, rows[start : start + ROW_LIMIT], _title(number))
    return len(starts)


def locate(place: int) -> tuple[str, int]:
    """Sheet title and line (from 1) of the row at a place (from 0)."""
    return _title(place // ROW_LIMIT), place % ROW_LIMIT + 2


def _title(number: int) -> str:
    return f"{TITLE} {number + 1}" if number else TITLE


def _sheet(book: Any, formats: Formats, layout: tuple[Column, ...], rows: Sequence[Row], title: str) -> None:
    sheet = book.add_worksheet(title)
    sheet.set_row(0, 33)
    for number, column in enumerate(layout):
        colour = "#1D3557" if number < _PADDLE else "#3D5A80" if not column.key.startswith("extra.") else "#4F6D57"
        header = formats.get(
            bold=True, font_color="#FFFFFF", bg_color=colour, text_wrap=True, border=1, border_color="#FFFFFF",
            **({"align": "left", "indent": 1} if column.kind in _LEFT else {"align": "center"}),
        )  # fmt: skip
        sheet.write_string(0, number, fit(column.title), header)
        sheet.write_comment(0, number, *_note(column))
        least = max(map(len, column.title.split()), default=0) + 4
        sheet.set_column(number, number, fitted_width(column, rows, least))
    last = stream_rows(sheet, formats, layout, BAND, rows)
    sheet.freeze_panes(1, 2)
    sheet.autofilter(0, 0, last - 1, len(layout) - 1)
    sheet.ignore_errors({"number_stored_as_text": f"A1:{letters(len(layout) - 1)}{last}"})
    sheet.set_landscape()
    sheet.set_paper(9)
    sheet.repeat_rows(0)
    sheet.print_area(0, 0, last - 1, BAND - 1)
    sheet.fit_to_pages(1, 0)
    sheet.set_footer("&L&F&C&A&R&P / &N")


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
