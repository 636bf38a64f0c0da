"""Which language the terminal is spoken to in."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from ..errors import PrecisionDebugError

if TYPE_CHECKING:
    from ..report.words import Text  # numpy would come with it, and --help needs none

__all__ = ["LANGUAGES", "add_language", "in_words", "language_of", "told"]

LANGUAGES = ("en", "zh")


def add_language(group: argparse._ActionsContainer) -> None:
    """The option --lang."""
    group.add_argument(
        "--lang", choices=LANGUAGES, default="",
        help="language of what is printed, and of a page as it opens (default: the terminal's, the browser's)",
    )  # fmt: skip


def language_of(asked: str = "") -> str:
    """What was asked for, else that of the locale: LC_ALL, LC_MESSAGES or LANG, the first that is set."""
    if asked:
        return asked
    locale = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def in_words(text: Text, language: str) -> str:
    """The text in one language."""
    return text.zh if language == "zh" else text.en


def told(error: PrecisionDebugError, asked: str = "") -> str:
    """An error's one line in the language that is asked for, as far as its parts are known in it."""
    if language_of(asked) != "zh":
        return str(error)
    from ..report.failure import sentence_of
    from ..report.words import word

    return word(sentence_of(error), "zh")
