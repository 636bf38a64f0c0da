"""The core's own catalogue."""

from __future__ import annotations

from .doubts import DOUBTS
from .notes import NOTES
from .reason import Catalogue
from .rows import ROWS

__all__ = ["CORE"]

CORE = Catalogue("", {**ROWS, **NOTES, **DOUBTS})
"""Every reason that the core gives."""
