"""Names as arguments of a reason: the first few of many, and those that a mistyped one may have meant."""

from __future__ import annotations

from collections.abc import Sequence

from ..safety.nearest import nearest
from .core import CORE
from .reason import NOTHING, Plain, Reason

__all__ = ["did_you_mean", "some"]


def some(names: Sequence[str], most: int = 3) -> Plain:
    """List the first names, and count the others: "a, b, c and 5 more"."""
    if len(names) <= most:
        return tuple(names)
    return CORE("and_more", names=names[:most], count=len(names) - most)


def did_you_mean(name: str, names: Sequence[str], count: int = 3) -> Reason:
    """Ask "did you mean 'a' or 'b'?", or return NOTHING where nothing is near."""
    near = nearest(name, names, count)
    return CORE("did_you_mean", names=[repr(other) for other in near]) if near else NOTHING
