"""Turns a finished ``Report`` into a file, in the format that the file's suffix names, or the user before a colon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import make_lazy_exports

__all__ = ["InputInfo", "Report", "Side", "Verdict", "list_endings", "make_ready", "write"]

if TYPE_CHECKING:
    from .formats import list_endings, write
    from .model import InputInfo, Report, Side, Verdict
    from .outputs import make_ready

__getattr__ = make_lazy_exports(
    __name__, {
        "formats": "list_endings write",
        "model": "InputInfo Report Side Verdict",
        "outputs": "make_ready",
    }
)
