"""The language that the terminal is spoken to in."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Sequence

from ..errors import PrecisionDebugError
from ..reasons import Text
from ..settings.options import LANG, LANGUAGES

__all__ = ["LANGUAGES", "Help", "add_language", "error_line", "language_of", "requested_language"]


class Help(str):
    """A text of a parser's: argparse wants a str, the English one, and loses whatever else comes with it."""

    __slots__ = ("text",)
    text: Text

    def __new__(cls, en: str, zh: str) -> Help:
        self = super().__new__(cls, en)
        self.text = Text(en, zh)
        return self


def add_language(group: argparse._ActionsContainer) -> None:
    """Add the option --lang."""
    group.add_argument(LANG.option, choices=LANG.choices, default=LANG.default, help=Help(LANG.help, LANG.zh))


def requested_language(arguments: Sequence[str]) -> str:
    """Return what --lang asks for, whatever becomes of the other words; "" where it asks for nothing that there is."""
    typed = [text.removeprefix("--lang=") for text in arguments if text.startswith("--lang=")]
    typed += [value for name, value in itertools.pairwise(arguments) if name == "--lang"]
    return next((value for value in typed if value in LANGUAGES), "")


def language_of(asked: str = "") -> str:
    """Return what was asked for, else that of the locale: LC_ALL, LC_MESSAGES or LANG, the first that is set."""
    if asked:
        return asked
    locale = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def error_line(error: PrecisionDebugError, asked: str = "") -> str:
    """Return an error's one line in the language that is asked for, as far as its parts are known in it."""
    if language_of(asked) != "zh":
        return str(error)
    from ..report.failure import sentence_of
    from ..report.words import word

    return word(sentence_of(error), "zh")
