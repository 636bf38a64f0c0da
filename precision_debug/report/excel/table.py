"""The table: one sheet, and as many more as Excel's row limit asks for."""

from __future__ import annotations

import math
from typing import Any

from ..layout import BAND, Column
from ..model import Report
from .formats import FILLS, Formats

__all__ = ["write_tables"]


def write_tables(book: Any, formats: Formats, layout: tuple[Column, ...], report: Report) -> None:
    sheet = book.add_worksheet("Precision")
    for number, column in enumerate(layout):
        sheet.set_column(number, number, column.width)
        sheet.write_string(0, number, column.title, formats.get(bold=True))
        sheet.write_comment(0, number, f"{column.help}\n{column.title_zh}：{column.help_zh}")
    sheet.freeze_panes(1, 2)
    sheet.autofilter(0, 0, len(report.rows), len(layout) - 1)
    for line, row in enumerate(report.rows, 1):
        fill = FILLS.get(row.status.value, "")
        for number, column in enumerate(layout):
            value = column.get(row)
            style = formats.get(column.style or {"share": "share", "int": "int"}.get(column.kind, ""), fill if number < BAND else "")
            if value is None or value == "":
                if fill and number < BAND:
                    sheet.write_blank(line, number, None, style)
            elif column.kind == "flag":
                sheet.write_string(line, number, "yes" if value else "no", style)
            elif column.kind == "index":
                sheet.write_string(line, number, str(list(value)), style)
            elif column.kind == "text" or not math.isfinite(value):
                sheet.write_string(line, number, str(value), style)
            else:
                sheet.write_number(line, number, value, style)
