"""The same thing in English and Chinese: what every sentence, title and help text of this project is.

Where a sentence has a code, its two templates stand in a catalogue (``Wording``) and become a ``Text`` where they are
shown. Both languages travel together because both are shown together: workbooks and pages hold them side by side.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Text", "same"]


class Text(NamedTuple):
    """English and Chinese of the same thing; names, numbers and paths are the same in both."""

    en: str
    zh: str

    def __str__(self) -> str:
        return self.en if self.en == self.zh else f"{self.en} / {self.zh}"

    def of(self, language: str) -> str:
        """In "en" or "zh"."""
        return self.zh if language == "zh" else self.en


def same(text: str) -> Text:
    """Something that needs no translation."""
    return Text(text, text)
