"""Text in two languages: many readers of a report read Chinese first."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Text", "same"]


class Text(NamedTuple):
    """English and Chinese of the same thing; names, numbers and paths are the same in both."""

    en: str
    zh: str

    def __str__(self) -> str:
        return self.en if self.en == self.zh else f"{self.en} / {self.zh}"


def same(text: str) -> Text:
    """Something that needs no translation."""
    return Text(text, text)
