"""The core's own catalogue."""

from __future__ import annotations

from .causes import WORDINGS
from .doubts import DOUBTS
from .exports import EXPORTS
from .failures import FAILURES
from .fixes import FIXES
from .inputs import INPUTS
from .mistakes import MISTAKES
from .notes import NOTES, STAGES
from .proven import PROVEN
from .reason import Catalogue
from .rows import ROWS

__all__ = ["CORE"]

CORE = Catalogue(
    "",
    {**ROWS, **INPUTS, **EXPORTS, **NOTES, **STAGES, **DOUBTS, **FIXES, **FAILURES, **MISTAKES, **WORDINGS, **PROVEN},
)
"""Every reason that the core gives."""
