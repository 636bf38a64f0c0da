"""Text that Excel takes: no longer than a cell holds, and no character that XML 1.0 cannot."""

from __future__ import annotations

import re

from ....safety.visible import visible

__all__ = ["CELL_LIMIT", "caption", "fit", "xml"]

CELL_LIMIT = 32767
"""UTF-16 units that one cell holds."""

_CUT = " … (cut: {} characters; .json and .csv have them all)"
_SPECIAL = re.compile("[&<>\x00-\x08\x0b-\x1f\ufffe\uffff]|_x[0-9A-Fa-f]{4}_")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def fit(text: str) -> str:
    """Make any text fit a cell of a workbook.

    It is shortened with a remark where it is longer than a cell, and what XML cannot hold is made ``visible``. Every
    text that is written into a workbook goes through this."""
    text = visible(text, keep="\n\t")
    if len(text) <= CELL_LIMIT // 2:
        return text
    units = text.encode("utf-16-le")
    if len(units) // 2 <= CELL_LIMIT:
        return text
    remark = _CUT.format(len(text))
    return units[: 2 * (CELL_LIMIT - len(remark))].decode("utf-16-le", "ignore") + remark


def caption(text: str) -> str:
    """A title or a name in a chart: with no "words!A1" in it, which xlsxwriter takes for a place in the workbook."""
    return fit(text).replace("!", "! ")


def xml(text: str) -> str:
    """The text as content of an element: entities, and _xHHHH_ for what XML cannot hold.

    Source: ECMA-376 part 1, 22.9.2.19 (ST_Xstring).
    """
    return _SPECIAL.sub(_escaped, text) if _SPECIAL.search(text) else text


def _escaped(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) > 1:
        return f"_x005F{found}"
    return _ENTITIES.get(found) or f"_x{ord(found):04X}_"
