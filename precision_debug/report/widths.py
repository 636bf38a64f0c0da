"""How wide a column must be."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from ..records import Row
from .column import Column

__all__ = ["fitted_width", "text_width"]

_SAMPLE = 2000


def text_width(text: str) -> int:
    """Places that a text takes: Chinese characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def fitted_width(column: Column, rows: Sequence[Row], least: int) -> int:
    """In characters, at least ``least``: of text what a sample of the rows needs, but no more than the column's own."""
    if column.kind not in ("text", "index"):
        return max(least, column.width)
    sample = rows[:: max(1, len(rows) // _SAMPLE)]
    longest = max((text_width(str(value)) for row in sample if (value := column.get(row))), default=0)
    return max(least, min(column.width, longest + 3))
