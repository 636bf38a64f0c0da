"""What may look at a pair of tensors right after it was compared."""

from __future__ import annotations

from typing import Any, Protocol

from ..records import Row

__all__ = ["PairObserver"]


class PairObserver(Protocol):
    """An observer that is shown every pair of a run, in the order in which the results come."""

    def look(self, row: Row, base: Any, target: Any, /) -> None:
        """A finished row and its two tensors, in the host's memory or on a device; both may be overwritten later."""
