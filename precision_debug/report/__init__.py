"""Turns a finished ``Report`` into a file, in the format that the file's suffix names, or the user before a colon."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .formats import endings, format_of, write
from .model import InputInfo, Report, Side, Verdict

__all__ = ["SUFFIXES", "InputInfo", "Report", "Side", "Verdict", "make_ready", "write"]

if TYPE_CHECKING:
    SUFFIXES: tuple[str, ...]
    """The endings that ``write`` knows, with the dot, lower case."""


def __getattr__(name: str) -> object:
    if name == "SUFFIXES":  # looked for when it is asked for: other wheels may have formats too
        return endings()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def make_ready(paths: Iterable[Path]) -> None:
    """Import in a thread what ``write`` will need for these paths; what goes wrong shows when it is needed."""

    def load() -> None:
        for name in sorted({path.suffix.lower()[1:] for path in paths}):
            with contextlib.suppress(Exception):
                format_of(name)

    threading.Thread(target=load, name="make_ready").start()
