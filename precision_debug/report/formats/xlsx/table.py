"""The table: one sheet, and as many more as Excel's row limit asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from ....reasons import Text
from ....records import Row, Status
from ...columns import Column
from ...layout import BAND
from ...words import explain_reason, fit_width, measure_text_width
from .formats import ALARM, MARK, QUIET, Formats, escape_xml, fit_cell_text, status_band, status_chip

__all__ = ["ROW_LIMIT", "column_letters", "locate", "write_table"]


# Rows of cells as worksheet XML, written straight to the sheet's stream.
#
# xlsxwriter's own calls cost 4 microseconds a cell, which is 10 s for 50,000 rows; this costs a tenth. It leans on five
# of its internals: ``fh``, ``dim_rowmax``, ``previous_row`` and ``_write_single_row`` of a sheet, ``_get_xf_index`` of
# a format. So xlsxwriter is held below 4 in pyproject.toml, and a test asks for these names.

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
    cells: dict[tuple[Status, bool], list[_Cell]] = {}  # of what occurs: most reports have two statuses of eight
    height = _make_heights(layout, widths)
    sheet._write_single_row(1)
    write = sheet.fh.write
    line = 1
    for line, row in enumerate(rows, 2):
        kind = row.status, row.name in marked
        if kind not in cells:
            cells[kind] = _make_cells(formats, layout, coloured, *kind)
        made = "".join([cell(row, line) for cell in cells[kind]])
        write(f'<row r="{line}"{height(row)}>{made}</row>')
    sheet.dim_rowmax = max(sheet.dim_rowmax, line - 1)
    sheet.previous_row = line
    return line


def _make_heights(layout: tuple[Column, ...], widths: Sequence[int]) -> Callable[[Row], str]:
    """Return a row's attributes: its height where a name or a reason needs more than one line."""
    wrapped = [
        (column.get, max(8, int(1.1 * width) - 2)) for column, width in zip(layout, widths, strict=True)
        if column.key in _WRAPPED
    ]  # fmt: skip

    def height(row: Row) -> str:
        lines = 1
        for get, room in wrapped:
            text = get(row)
            if text and len(text) * 2 > room:  # Chinese takes two places a character
                wide = measure_text_width(text)
                lines = max(lines, math.ceil(_BROKEN * wide / room) if wide > room else 1)
        return f' ht="{_LINE * min(lines, _MOST_LINES)}" customHeight="1"' if lines > 1 else ""

    return height


def column_letters(column: int) -> str:
    """Excel's name of a column, counted from 0."""
    name = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        name = chr(65 + rest) + name
    return name


def _make_cells(
    formats: Formats, layout: tuple[Column, ...], coloured: int, status: Status, marked: bool
) -> list[_Cell]:
    return [
        _make_cell(formats, column, number, status, number < coloured, marked) for number, column in enumerate(layout)
    ]


def _make_cell(
    formats: Formats, column: Column, number: int, status: Status, coloured: bool, marked: bool
) -> _Cell:
    fill = (status_chip(status) if column.key == "status" else status_band(status)) if coloured else {}
    if marked and number < 2:  # as the page marks it: bold, behind a red bar
        fill = {**fill, **MARK, **({"left": 5, "left_color": ALARM} if number == 0 else {})}
    start = f'<c r="{column_letters(number)}'

    def opening(style: str, **more: Any) -> str:
        align: dict[str, Any] = {"indent": 1} if style == "text" and "align" not in more else {}
        if column.key in _WRAPPED:
            align["text_wrap"] = True
        return f'" s="{formats.get(style, **{**align, **fill, **more})._get_xf_index()}"'

    blank = f"{opening('')}/>" if fill else ""
    if column.kind in _TEXTS:
        return _make_text_cell(column.get, start, opening("text"), blank, _TEXTS[column.kind])
    broken = opening("text", align="right", bold=True, font_color=ALARM)
    if column.key == "sqnr_db":  # inf: no error
        broken = opening("text", align="right")
    if column.kind == "int":
        usual, zero = opening("int"), opening("int")
        if column.style == "alarm":
            usual, zero = opening("int", bold=True, font_color=ALARM), opening("int", font_color=QUIET)
        return _make_integer_cell(column.get, start, (zero, usual, broken), blank)
    style = column.style or column.kind
    usual, extreme = opening(style), opening("extreme") if style == "value" else ""
    return _make_number_cell(column.get, start, (usual, extreme, broken), blank)


def _make_text_cell(
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
            text = escape_xml(fit_cell_text(value))
            space = ' xml:space="preserve"' if text[0].isspace() or text[-1].isspace() or "\n" in text else ""
            made = f'{opening} t="inlineStr"><is><t{space}>{text}</t></is></c>'
            if len(known) < _KEPT:
                known[value] = made
        return f"{start}{line}{made}"

    return cell


def _make_integer_cell(get: Callable[[Row], Any], start: str, openings: tuple[str, str, str], blank: str) -> _Cell:
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


def _make_number_cell(get: Callable[[Row], Any], start: str, openings: tuple[str, str, str], blank: str) -> _Cell:
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
        sheet = book.add_worksheet(_make_title(number))
        _add_comments(sheet, layout, part, culprits, other)  # before the rows: a line that is written takes no more
        _fill(sheet, formats, layout, part, culprits, unit)
    return len(starts)


def _add_comments(
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
        if row.reason and left and (text := explain_reason(row.reason)).en != text.zh:
            left -= 1
            sheet.write_comment(line, at["reason"], fit_cell_text(text.of(other)), {**small, "y_scale": 0.8})


def locate(place: int) -> tuple[str, int]:
    """Sheet title and line (from 1) of the row at a place (from 0)."""
    return _make_title(place // ROW_LIMIT), place % ROW_LIMIT + 2


def _make_title(number: int) -> str:
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
        sheet.write_string(0, number, fit_cell_text(column.title), header)
        sheet.write_comment(0, number, *_note(column))
        least = max(map(len, column.title.split()), default=0) + 4
        widths.append(fit_width(column, rows, least))
        sheet.set_column(number, number, widths[-1])
    last = stream_rows(sheet, formats, layout, BAND, rows, widths, culprits)
    for number, column in enumerate(layout):
        if (scale := _scale(column, unit)) is not None and last > 1:
            sheet.conditional_format(1, number, last - 1, number, scale)
    sheet.freeze_panes(1, 2)
    sheet.autofilter(0, 0, last - 1, len(layout) - 1)
    sheet.ignore_errors({"number_stored_as_text": f"A1:{column_letters(len(layout) - 1)}{last}"})
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
    text = fit_cell_text(f"{column.help}\n\n{column.title_zh}：{column.help_zh}")
    lines = sum(-(-measure_text_width(part) // 46) for part in text.split("\n") if part) + 2
    return text, {
        "width": 300,
        "height": 15 * lines + 8,
        "font_size": 9,
        "color": "#FFFFF0",
        "author": "precision_debug",
    }
