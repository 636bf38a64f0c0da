"""How wide a text is, where its lines end, and how wide a column must be."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from ..records import Row
from .column import Column

__all__ = ["fitted_width", "text_width", "wrapped"]

_SAMPLE = 2000
_WIDE = "\u2e80-\u2fff\u3040-\u9fff\uf900-\ufaff"
_OPEN, _CLOSE = "（「《“", "，。；：、）」》”！？"
_WORD = f"[^\\s{_WIDE}{_OPEN}{_CLOSE}]+"
_UNIT = re.compile(f"[{_OPEN}]*(?:[{_WIDE}]|{_WORD})[{_CLOSE}]*|[{_OPEN}{_CLOSE}]+|\\s+")
"""A word, a space, or one Chinese character, with the marks that do not begin or end a line without it."""


def text_width(text: str) -> int:
    """Places that a text takes: Chinese characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most so many places, broken at spaces and between Chinese characters; longer words inside."""
    lines, line = [], ""
    for unit in _UNIT.findall(text):
        if text_width(line) + text_width(unit) <= width:
            line += unit
            continue
        if line.strip():
            lines.append(line.rstrip())
        line = unit.lstrip()
        while text_width(line) > width:
            cut = next(place for place in range(len(line), 0, -1) if text_width(line[:place]) <= max(2, width))
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def fitted_width(column: Column, rows: Sequence[Row], least: int) -> int:
    """In characters, at least ``least``: of text what a sample of the rows needs, but no more than the column's own."""
    if column.kind not in ("text", "index"):
        return max(least, column.width)
    sample = rows[:: max(1, len(rows) // _SAMPLE)]
    longest = max((text_width(str(value)) for row in sample if (value := column.get(row))), default=0)
    return max(least, min(column.width, longest + 3))
