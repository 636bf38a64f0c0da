"""The summary as a sheet: the verdict large, then one block a section, labels in English and Chinese."""

from __future__ import annotations

from typing import Any

from ....reasons import Text
from ...model import Report
from ...sections import Cell, Section
from ...summary import Summary
from ...words import measure_text_width
from .formats import INK, TONES, Formats, fit_cell_text
from .table import ROW_LIMIT, locate

__all__ = ["write_summary"]

_WIDTHS = (2, 42, 24, 18, 17, 18, 15, 16, 16, 2)
_FIRST, _LAST = 1, 8
_BANNERS = {"good": "#12805C", "bad": "#B42318", "warn": "#B7791F"}
_SIZE = 10
_LINE_HEIGHT = 14.0
_TALLEST = 400.0
"""Points: Excel's rows end at 409."""
_RULE = {"bottom": 1, "bottom_color": "#E3E6EA"}
_LINK = "#1F5FA8"
_LINKED = 200
"""Characters of a path up to which it is a link: Excel takes 255 of them, escaped."""


def write_summary(book: Any, formats: Formats, report: Report, content: Summary, sheets: int) -> Any:
    """Write the sheet and return it. sheets: how many the table takes."""
    sheet = book.add_worksheet("Summary")
    sheet.hide_gridlines(2)
    for number, width in enumerate(_WIDTHS):
        sheet.set_column(number, number, width)
    linked = {cell.row for section in content.sections for line in section.lines for cell in line}
    places = {row.index: place for place, row in enumerate(report.rows) if row.index in linked}
    page = _Page(sheet, formats, places)
    page.verdict(report, content)
    if sheets > 1:
        page.remark(
            Text(
                f"{len(report.rows):,} rows are more than one sheet holds ({ROW_LIMIT:,}): the table goes on over"
                f" {sheets} sheets.",
                f"共 {len(report.rows):,} 行，超过单个工作表的上限（{ROW_LIMIT:,}），表格分为 {sheets} 个工作表。",
            )
        )
    for section in content.sections:
        page.section(section)
    sheet.set_landscape()
    sheet.set_paper(9)
    sheet.fit_to_pages(1, 0)
    sheet.set_footer("&L&F&C&A&R&P / &N")
    return sheet


class _Page:
    """Writes downwards, as constant_memory asks."""

    def __init__(self, sheet: Any, formats: Formats, places: dict[int, int]) -> None:
        self._sheet = sheet
        self._formats = formats
        self._places = places
        self._line = 1

    def verdict(self, report: Report, content: Summary) -> None:
        banner = {"bg_color": _BANNERS[content.tone], "font_color": "#FFFFFF", "indent": 1}
        first, *more = content.lead
        self._paragraph(first, font_size=15, bold=True, **banner)
        self._sheet.set_row(self._line, 24)
        headline = f"{content.headline.en.upper()}    {content.headline.zh}"
        self._across(headline, font_size=13, bold=True, **banner)
        self._sheet.set_row(self._line, 18)
        target, baseline = report.target, report.baseline
        names = f"{report.spec.model.path or target.model}    {target.mode} vs. {baseline.mode}"
        self._across(names.strip(), font_size=11, **banner)
        for text, row in content.links:
            self._put(0, 1, str(text), {"font_color": _LINK, "underline": 1, "indent": 1, "bg_color": "#F6F7F9"}, row)
            self._line += 1
        for text in (*more, *content.details):
            self._paragraph(text, font_size=11, indent=1, bg_color="#F6F7F9")
        self._line += 1

    def remark(self, text: Text) -> None:
        self._paragraph(text, indent=1, bg_color="#FCE7B2")
        self._line += 1

    def section(self, section: Section) -> None:
        self._sheet.set_row(self._line, 20)
        self._across(
            str(section.title),
            bold=True,
            font_size=12,
            indent=1,
            font_color="#1D3557",
            bottom=2,
            bottom_color="#1D3557",
        )
        for number, title in enumerate(section.head):
            right = any(len(line) > number and line[number].right for line in section.lines)
            style = {
                "bold": True,
                "font_color": "#5B6470",
                "bg_color": "#F6F7F9",
                "align": "right" if right else "left",
                "indent": 1,
            }
            self._put(number, len(section.head), f"{title.en}\n{title.zh}" if title.en != title.zh else title.en,
                      {**style, "text_wrap": True, **_RULE})  # fmt: skip
        if section.head:
            self._sheet.set_row(self._line, 2 * _LINE_HEIGHT + 2)
            self._line += 1
        for line in section.lines:
            self._cells(line, headed=bool(section.head))
        self._line += 1

    def _cells(self, line: tuple[Cell, ...], *, headed: bool) -> None:
        height = 1
        styled: list[tuple[str, dict[str, Any], Cell]] = []
        for number, cell in enumerate(line):
            label = not headed and number == 0
            text = str(cell.text) if label or headed else _stack_languages(cell.text)
            if cell.tone not in ("code", "paste"):
                text = _without_backticks(text)
            if cell.row is not None:
                text = self._tail(number, len(line), text)
            height = max(height, self._height(number, len(line), text))
            style: dict[str, Any] = {
                "text_wrap": True,
                "align": "right" if cell.right else "left",
                "indent": 1,
                **_RULE,
            }
            style |= TONES.get(cell.tone, {})
            if label:
                style |= {"font_color": "#5B6470"}
            if cell.row is not None or cell.file:
                style |= {"font_color": _LINK, "underline": 1}
            styled.append((text, style, cell))
        top = {"valign": "top"} if height > 1 else {}
        for number, (text, style, cell) in enumerate(styled):
            self._put(number, len(line), text, {**style, **top}, cell.row, cell.file)
        self._sheet.set_row(self._line, min(_TALLEST, _LINE_HEIGHT * height + 2))
        self._line += 1

    def _put(
        self, number: int, count: int, text: str, style: dict[str, Any], row: int | None = None, file: str = ""
    ) -> None:  # fmt: skip
        """One cell of a line; the last one reaches to the right edge."""
        column = _FIRST + number
        made = self._formats.get(**style)
        text = fit_cell_text(text)
        if number == count - 1 and column < _LAST:
            self._sheet.merge_range(self._line, column, self._line, _LAST, "", made)
        if row is not None and row in self._places:
            title, line = locate(self._places[row])
            self._sheet.write_url(self._line, column, f"internal:'{title}'!B{line}", made, text)
        elif file and len(file) < _LINKED:
            self._sheet.write_url(self._line, column, f"external:{file}", made, text)
        else:
            self._sheet.write_string(self._line, column, text, made)

    def _tail(self, number: int, count: int, name: str) -> str:
        """Return the end of a name that has no room, which tells one layer's tensors apart: LibreOffice breaks no
        link."""
        column = _FIRST + number
        room = int(sum(_WIDTHS[column : _LAST + 1] if number == count - 1 else _WIDTHS[column : column + 1]) * 0.9)
        return name if len(name) <= room else f"…{name[1 - room :]}"

    def _height(self, number: int, count: int, text: str, size: float = _SIZE, bold: bool = False) -> int:
        """Return lines that a text takes in its cell; programs break a little earlier or later, and names do not
        break."""
        column = _FIRST + number
        width = sum(_WIDTHS[column : _LAST + 1]) if number == count - 1 else _WIDTHS[column]
        room = max(4, int(width * 1.05 * _SIZE / size * (0.9 if bold else 1.0)) - 2)
        return sum(_count_lines(part, room) for part in text.split("\n"))

    def _paragraph(self, text: Text, **style: Any) -> None:
        stacked = _without_backticks(_stack_languages(text))
        size = style.get("font_size", _SIZE)
        lines = self._height(0, 1, stacked, size, style.get("bold", False))
        self._sheet.set_row(self._line, min(_TALLEST, (size * 1.36 + 1) * lines + 8))
        self._across(stacked, text_wrap=True, **style)

    def _across(self, text: str, **style: Any) -> None:
        made = self._formats.get(**{"font_color": INK, **style})
        self._sheet.merge_range(self._line, _FIRST, self._line, _LAST, "", made)
        self._sheet.write_string(
            self._line, _FIRST, fit_cell_text(text), made
        )  # merge_range would make a formula of "=1+1"
        self._line += 1


def _count_lines(text: str, room: int) -> int:
    """Return how many lines words take; a word that is longer than a line is broken."""
    lines, left = 1, room
    for word in text.split(" "):
        width = measure_text_width(word)
        if width > left and left < room:
            lines, left = lines + 1, room
        extra, rest = divmod(max(0, width - left), room) if width > left else (0, 0)
        if width > left:
            lines, left = lines + 1 + extra, room - rest
        else:
            left -= width
        left -= 1
    return lines


def _without_backticks(text: str) -> str:
    """Without the backticks that mark names where a page sets them in another type: a cell has one type."""
    return text.replace("`", "")


def _stack_languages(text: Text) -> str:
    return text.en if text.en == text.zh else f"{text.en}\n{text.zh}"
