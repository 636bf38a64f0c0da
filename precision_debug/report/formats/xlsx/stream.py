"""Rows of cells as worksheet XML, written straight to the sheet's stream.

xlsxwriter's own calls cost 4 microseconds a cell, which is 10 s for 50,000 rows; this costs a tenth. It leans on
five of its internals: ``fh``, ``dim_rowmax``, ``previous_row`` and ``_write_single_row`` of a sheet, ``_get_xf_index``
of a format. So xlsxwriter is held below 4 in pyproject.toml, and a test asks for these names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from ....records import Row, Status
from ...column import Column
from ...widths import text_width
from .formats import ALARM, MARK, QUIET, Formats, band, chip
from .text import fit, xml

__all__ = ["letters", "stream_rows"]

_Cell = Callable[[Row, int], str]
_EXACT = 2**53
"""Whole numbers beyond it do not fit a double, which is all that Excel has; they are written as text."""

_WRAPPED = ("name", "reason")
_LINE, _MOST_LINES = 14, 12
"""Points of a line of text, and how many lines a row has at most."""

_BROKEN = 1.2
"""How much more room a text takes than its characters do: long names do not fill the lines that they are broken at."""

_KEPT = 500
"""Texts of one column that are kept ready: operator and data types, statuses and reasons come again and again."""


def stream_rows(
    sheet: Any, formats: Formats, layout: tuple[Column, ...], coloured: int, rows: Iterable[Row], widths: Sequence[int],
    marked: Container[str] = (),
) -> int:  # fmt: skip
    """Write the rows below line 1 and return the number of the last line. The first ``coloured`` columns show status.

    marked: names of the tensors whose rows stand out, as a culprit's does.
    widths: of the columns, in characters; what is longer in one of ``_WRAPPED`` goes on in a second line.
    The sheet must be of a constant_memory workbook, hold at most its first line, and be the last one added.
    """
    cells = {
        (status, apart): _cells(formats, layout, coloured, status, apart)
        for status in Status for apart in (False, True)
    }  # fmt: skip
    height = _heights(layout, widths)
    sheet._write_single_row(1)
    write = sheet.fh.write
    line = 1
    for line, row in enumerate(rows, 2):
        made = "".join([cell(row, line) for cell in cells[row.status, row.name in marked]])
        write(f'<row r="{line}"{height(row)}>{made}</row>')
    sheet.dim_rowmax = max(sheet.dim_rowmax, line - 1)
    sheet.previous_row = line
    return line


def _heights(layout: tuple[Column, ...], widths: Sequence[int]) -> Callable[[Row], str]:
    """A row's attributes: its height where a name or a reason needs more than one line."""
    wrapped = [
        (column.get, max(8, int(1.1 * width) - 2)) for column, width in zip(layout, widths, strict=True)
        if column.key in _WRAPPED
    ]  # fmt: skip

    def height(row: Row) -> str:
        lines = 1
        for get, room in wrapped:
            text = get(row)
            if text and len(text) * 2 > room:  # Chinese takes two places a character
                wide = text_width(text)
                lines = max(lines, math.ceil(_BROKEN * wide / room) if wide > room else 1)
        return f' ht="{_LINE * min(lines, _MOST_LINES)}" customHeight="1"' if lines > 1 else ""

    return height


def letters(column: int) -> str:
    """Excel's name of a column, counted from 0."""
    name = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        name = chr(65 + rest) + name
    return name


def _cells(
    formats: Formats, layout: tuple[Column, ...], coloured: int, status: Status, marked: bool
) -> list[_Cell]:
    return [_cell(formats, column, number, status, number < coloured, marked) for number, column in enumerate(layout)]


def _cell(
    formats: Formats, column: Column, number: int, status: Status, coloured: bool, marked: bool
) -> _Cell:
    fill = (chip(status) if column.key == "status" else band(status)) if coloured else {}
    if marked and number < 2:  # as the page marks it: bold, behind a red bar
        fill = {**fill, **MARK, **({"left": 5, "left_color": ALARM} if number == 0 else {})}
    start = f'<c r="{letters(number)}'

    def opening(style: str, **more: Any) -> str:
        align: dict[str, Any] = {"indent": 1} if style == "text" and "align" not in more else {}
        if column.key in _WRAPPED:
            align["text_wrap"] = True
        return f'" s="{formats.get(style, **{**align, **fill, **more})._get_xf_index()}"'

    blank = f"{opening('')}/>" if fill else ""
    if column.kind in _TEXTS:
        return _text(column.get, start, opening("text"), blank, _TEXTS[column.kind])
    broken = opening("text", align="right", bold=True, font_color=ALARM)
    if column.key == "sqnr_db":  # inf: no error
        broken = opening("text", align="right")
    if column.kind == "int":
        usual, zero = opening("int"), opening("int")
        if column.style == "alarm":
            usual, zero = opening("int", bold=True, font_color=ALARM), opening("int", font_color=QUIET)
        return _integer(column.get, start, (zero, usual, broken), blank)
    style = column.style or column.kind
    usual, extreme = opening(style), opening("extreme") if style == "value" else ""
    return _number(column.get, start, (usual, extreme, broken), blank)


def _text(
    get: Callable[[Row], Any], start: str, opening: str, blank: str, convert: Callable[[Any], str] | None
) -> _Cell:
    known: dict[str, str] = {}

    def cell(row: Row, line: int) -> str:
        value = get(row)
        if value is None or value == "":
            return f"{start}{line}{blank}" if blank else ""
        value = value if convert is None else convert(value)
        made = known.get(value)
        if made is None:
            text = xml(fit(value))
            space = ' xml:space="preserve"' if text[0].isspace() or text[-1].isspace() or "\n" in text else ""
            made = f'{opening} t="inlineStr"><is><t{space}>{text}</t></is></c>'
            if len(known) < _KEPT:
                known[value] = made
        return f"{start}{line}{made}"

    return cell


def _integer(get: Callable[[Row], Any], start: str, openings: tuple[str, str, str], blank: str) -> _Cell:
    zero, other, text = openings

    def cell(row: Row, line: int) -> str:
        value = get(row)
        if value is None:
            return f"{start}{line}{blank}" if blank else ""
        value = int(value)
        if -_EXACT <= value <= _EXACT:
            return f"{start}{line}{other if value else zero}><v>{value}</v></c>"
        return f'{start}{line}{text} t="inlineStr"><is><t>{value}</t></is></c>'

    return cell


def _number(get: Callable[[Row], Any], start: str, openings: tuple[str, str, str], blank: str) -> _Cell:
    usual, extreme, text = openings

    def cell(row: Row, line: int) -> str:
        value = get(row)
        if value is None:
            return f"{start}{line}{blank}" if blank else ""
        value = float(value)
        if not math.isfinite(value):
            return f'{start}{line}{text} t="inlineStr"><is><t>{value}</t></is></c>'
        opening = extreme if extreme and value and not 1e-3 <= abs(value) < 1e6 else usual
        return f"{start}{line}{opening}><v>{value!r}</v></c>"

    return cell


_TEXTS: dict[str, Callable[[Any], str] | None] = {
    "text": None,
    "index": lambda value: str(list(value)),
    "flag": lambda value: "yes" if value else "no",
}
