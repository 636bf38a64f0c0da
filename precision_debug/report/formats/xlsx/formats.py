"""Write cells: text that Excel takes, formats by what they are for, and sentences in a banner."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ....reasons import Text
from ....records import Status
from ....safety.untrusted import make_visible
from ...summary import STATUS_TONE
from ...words import measure_text_width

__all__ = [
    "ALARM",
    "CELL_LIMIT",
    "INK",
    "MARK",
    "QUIET",
    "TONES",
    "Formats",
    "escape_caption",
    "escape_xml",
    "fit_cell_text",
    "set_up_paper",
    "status_band",
    "status_chip",
    "write_sentences",
]  # fmt: skip


# Text that Excel takes: no longer than a cell holds, and no character that XML 1.0 cannot.

CELL_LIMIT = 32767
"""UTF-16 units that one cell holds."""

_CUT = " … (cut: {} characters; .json and .csv have them all)"
_SPECIAL = re.compile("[&<>\x00-\x08\x0b-\x1f\ufffe\uffff]|_x[0-9A-Fa-f]{4}_")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def fit_cell_text(text: str) -> str:
    """Make any text fit a cell of a workbook.

    It is shortened with a remark where it is longer than a cell, and what XML cannot hold is made ``visible``. Every
    text that is written into a workbook goes through this."""
    text = make_visible(text, keep="\n\t")
    if len(text) <= CELL_LIMIT // 2:
        return text
    units = text.encode("utf-16-le")
    if len(units) // 2 <= CELL_LIMIT:
        return text
    remark = _CUT.format(len(text))
    return units[: 2 * (CELL_LIMIT - len(remark))].decode("utf-16-le", "ignore") + remark


def escape_caption(text: str) -> str:
    """Return a title or a name in a chart: with no "words!A1" in it, which xlsxwriter takes for a place in the
    workbook."""
    return fit_cell_text(text).replace("!", "! ")


def escape_xml(text: str) -> str:
    """Return the text as content of an element: entities, and _xHHHH_ for what XML cannot hold.

    Source: ECMA-376 part 1, 22.9.2.19 (ST_Xstring).
    """
    return _SPECIAL.sub(_escape_match, text) if _SPECIAL.search(text) else text


def _escape_match(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) > 1:
        return f"_x005F{found}"
    return _ENTITIES.get(found) or f"_x{ord(found):04X}_"


# Cell formats by what they are for, made once a workbook.

INK = "#1F2937"
ALARM = "#B42318"
QUIET = "#B4BBC5"
_LINE = "#D9DCE1"
_FONT = {"font_name": "Calibri", "font_size": 10, "font_color": INK, "valign": "vcenter"}

TONES: dict[str, dict[str, Any]] = {
    "good": {"bg_color": "#D9F2E3", "font_color": "#0B6B3A"},
    "bad": {"bg_color": "#F6C9C4", "font_color": "#8C1D13"},
    "warn": {"bg_color": "#FCE7B2", "font_color": "#7A4D00"},
    "muted": {"bg_color": "#E1E4E8", "font_color": "#4B5563"},
    "code": {"font_name": "Consolas", "font_size": 9},
    "paste": {"font_name": "Consolas", "font_size": 9},
}
"""Format properties of the tones of a summary's cells."""

MARK: dict[str, Any] = {"bold": True, "bg_color": "#F6C9C4", "font_color": ALARM}
"""Format properties of a culprit's operator and name."""

_BANDS = {
    Status.FAIL: "#FCE9E7",
    Status.INCONCLUSIVE: "#FEF5DC",
    Status.FUSED_AWAY: "#F0F1F3",
    Status.UNMATCHED: "#FEF5DC",
    Status.NOT_COMPARED: "#FEF5DC",
}

_NUMBERS = {
    "error": "[=0]0;0.00E+00",
    "value": "0.0000",
    "extreme": "0.00E+00",
    "share": '[=0]0%;[<0.0001]"<0.01%";0.00%',
    "int": "#,##0",
    "db": "0.0",
    "ratio": "[>=1000]0.0E+00;0.00",
    "text": "@",
}


class Formats:
    """Formats of one workbook, each made once: making one is slow, and Excel allows 65,490."""

    def __init__(self, book: Any) -> None:
        self._book = book
        self._made: dict[Any, Any] = {}

    def get(self, number: str = "", **properties: Any) -> Any:
        """number: how a number reads ("error", "value", "share", ...) or "". properties: xlsxwriter's own."""
        key = (number, tuple(sorted(properties.items())))
        if key not in self._made:
            shown = {"num_format": _NUMBERS[number]} if number else {}
            self._made[key] = self._book.add_format({**_FONT, **shown, **properties})
        return self._made[key]


def status_band(status: Status) -> dict[str, Any]:
    """Return the light fill of a row's first columns; empty where it passed."""
    fill = _BANDS.get(status)
    return {} if fill is None else {"bg_color": fill, "border": 1, "border_color": _LINE}


def status_chip(status: Status) -> dict[str, Any]:
    """Return the strong fill of the Status cell."""
    return {**TONES[STATUS_TONE[status]], "bold": True, "border": 1, "border_color": _LINE}


# A summary of sentences alone, as workbooks of sweeps and of differences open on it: the first one in a banner.

_BANNERS = {"good": "#0F6B4C", "bad": "#A3200F", "warn": "#8A5508"}
_ACROSS = 13
"""Columns that a sentence goes over, and the characters that they hold."""
_ROOM = 118


def write_sentences(sheet: Any, formats: Formats, sentences: Sequence[Text], tone: str) -> int:
    """Write them in both languages, from the second line down; returns the first line below them."""
    sheet.hide_gridlines(2)
    sheet.set_column(0, 0, 2)
    for line, text in enumerate(sentences, 1):
        size = 15 if line == 1 else 11
        whole = text.en if text.en == text.zh else f"{text.en}\n{text.zh}"
        look: dict[str, Any] = {"text_wrap": True, "indent": 1, "font_size": size, "font_color": INK}
        if line == 1:
            look |= {"bold": True, "font_color": "#FFFFFF", "bg_color": _BANNERS[tone]}
        made = formats.get(**look)
        room = int(_ROOM * 10 / size)
        height = sum(-(-measure_text_width(part) // room) for part in whole.split("\n"))
        sheet.set_row(line, min(400.0, (size * 1.4 + 1) * height + 8))
        sheet.merge_range(line, 1, line, _ACROSS, "", made)
        sheet.write_string(line, 1, fit_cell_text(whole), made)
    set_up_paper(sheet, 9)
    return len(sentences) + 1


def set_up_paper(sheet: Any, size: int) -> None:
    """Landscape, one page wide, with names and page numbers below. size: as Excel counts papers, 9 is A4."""
    sheet.set_landscape()
    sheet.set_paper(size)
    sheet.fit_to_pages(1, 0)
    sheet.set_footer("&L&F&C&A&R&P / &N")
