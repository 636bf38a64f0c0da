"""Cell formats by what they are for, made once a workbook."""

from __future__ import annotations

from typing import Any

__all__ = ["FILLS", "Formats"]

FILLS = {"fail": "#FBE3E1", "fused away": "#ECECEC", "unmatched": "#FFF1CC", "not compared": "#FFF1CC"}

_FONT = {"font_name": "Calibri", "font_size": 10}
_NUMBERS = {
    "error": "[=0]0;0.00E+00", "small": "0.00E+00", "value": "0.0000", "share": "0.00%", "int": "#,##0", "db": "0.0",
    "ratio": "0.00",
}  # fmt: skip


class Formats:
    """Formats of one workbook. ``get`` caches: Excel allows 65,490 of them, and making one is slow."""

    def __init__(self, book: Any) -> None:
        self._book = book
        self._made: dict[Any, Any] = {}

    def get(self, number: str = "", fill: str = "", **more: Any) -> Any:
        """number: a key of the number formats or ""; fill: a colour or ""; more: xlsxwriter's format properties."""
        key = (number, fill, tuple(sorted(more.items())))
        if key not in self._made:
            properties = {**_FONT, "valign": "vcenter", **more}
            if number:
                properties["num_format"] = _NUMBERS[number]
            if fill:
                properties |= {"bg_color": fill, "border": 1, "border_color": "#D9D9D9"}
            self._made[key] = self._book.add_format(properties)
        return self._made[key]
