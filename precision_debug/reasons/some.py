"""The first few of many names, as an argument of a reason."""

from __future__ import annotations

from collections.abc import Sequence

from .core import CORE
from .reason import Plain

__all__ = ["some"]


def some(names: Sequence[str], most: int = 3) -> Plain:
    """ "a, b, c and 5 more"."""
    if len(names) <= most:
        return tuple(names)
    return CORE("and_more", names=names[:most], count=len(names) - most)
