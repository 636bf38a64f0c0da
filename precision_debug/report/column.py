"""One column of the table."""

from __future__ import annotations

from dataclasses import dataclass

from .values import Get

__all__ = ["Column", "column"]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the table.

    key: stable name for programs. title, help: what people read; the ``_zh`` ones in Chinese.
    kind: what ``get`` yields, or None where there is nothing: "text" str, "int" int, "float" float (may be nan or
    inf), "share" float from 0 to 1, "index" tuple of ints, "flag" bool.
    style: how a number reads best: "error" scientific, "value" as it is, "ratio" and "db" with few digits; "alarm" a
    count that should be 0.
    width: in characters; of text the widest that it may become.
    """

    key: str
    title: str
    title_zh: str
    help: str
    help_zh: str
    kind: str
    width: int
    get: Get
    style: str = ""


def column(names: tuple[str, str, str], kind: str, width: int, get: Get, help: tuple[str, str]) -> Column:
    """names: key, English title, Chinese title. kind: with its style after a colon. help: English, Chinese."""
    key, title, title_zh = names
    kind, _, style = kind.partition(":")
    return Column(
        key=key, title=title, title_zh=title_zh, help=help[0], help_zh=help[1],
        kind=kind, width=width, get=get, style=style,
    )  # fmt: skip
