"""Cell formats by what they are for, made once a workbook."""

from __future__ import annotations

from typing import Any

from ....records import Status
from ...summary import STATUS_TONE

__all__ = ["ALARM", "INK", "MARK", "QUIET", "TONES", "Formats", "band", "chip"]

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


def band(status: Status) -> dict[str, Any]:
    """The light fill of a row's first columns; empty where it passed."""
    fill = _BANDS.get(status)
    return {} if fill is None else {"bg_color": fill, "border": 1, "border_color": _LINE}


def chip(status: Status) -> dict[str, Any]:
    """The strong fill of the Status cell."""
    return {**TONES[STATUS_TONE[status]], "bold": True, "border": 1, "border_color": _LINE}
