"""A summary of sentences alone, as workbooks of sweeps and of differences open on it: the first one in a banner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....reasons import Text
from ...widths import text_width
from .formats import INK, Formats
from .text import fit

__all__ = ["on_paper", "write_sentences"]

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
        height = sum(-(-text_width(part) // room) for part in whole.split("\n"))
        sheet.set_row(line, min(400.0, (size * 1.4 + 1) * height + 8))
        sheet.merge_range(line, 1, line, _ACROSS, "", made)
        sheet.write_string(line, 1, fit(whole), made)
    on_paper(sheet, 9)
    return len(sentences) + 1


def on_paper(sheet: Any, size: int) -> None:
    """Landscape, one page wide, with names and page numbers below. size: as Excel counts papers, 9 is A4."""
    sheet.set_landscape()
    sheet.set_paper(size)
    sheet.fit_to_pages(1, 0)
    sheet.set_footer("&L&F&C&A&R&P / &N")
