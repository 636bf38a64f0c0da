"""Which rows are drawn while their tensors live: the first ones beyond bounds, and the worst."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.arrays import as_array
from ..numbers.draw_portrait import portrait_of
from ..numbers.portrait import Portrait
from ..records import Comparison, Row, Status

__all__ = ["Portraits"]

_FIRST = 8
_WORST = 8
_MOST = 40
"""Portraits of a run: where errors grow along the model, nearly every row is the worst for a while."""
_CLEARLY = 1.25
"""How many times the smallest error among the worst another one must be to be drawn."""
_ELEMENTS = 1 << 26
"""Elements that all portraits of a run may take together: about a second of numpy's time."""
_READ = 1 << 21
"""Elements of a large tensor that its portrait reads, about."""
_COPIED = 4
"""What an element of a device counts for: it must be copied first, and its engine waits meanwhile."""


class Portraits:
    """Draws tensors as they are compared; those of a device are copied once they are known to be drawn.

    beyond: relative L2 error up to which a tensor is not worth a picture; None: its status tells.
    on_portrait: called with each one.
    A tensor that was among the worst when it came may not be in the end: its portrait is told all the same.
    """

    def __init__(self, beyond: float | None, on_portrait: Callable[[Portrait], None]) -> None:
        self._beyond = beyond
        self._tell = on_portrait
        self._first = _FIRST
        self._worst: list[float] = []
        self._left = _ELEMENTS
        self._most = _MOST

    def look(self, row: Row, base: Any, target: Any, /) -> None:
        """Draw the pair that a row was made of, if it is worth it."""
        numbers = row.comparison
        if numbers is None or not numbers.shapes_match:
            return
        error = _badness(numbers)
        if not (row.status is Status.FAIL if self._beyond is None else error > self._beyond):
            return
        size = min(math.prod(base.shape), _READ)
        size *= 1 if isinstance(base, np.ndarray) and isinstance(target, np.ndarray) else _COPIED
        if size > self._left or not self._is_wanted(error):
            return
        self._left -= size
        self._most -= 1
        try:
            pair = (one if hasattr(one, "reshape") else as_array(one) for one in (base, target))
            portrait = portrait_of(row.name, *pair, read=as_array)
        except PrecisionDebugError:  # no array of numbers
            return
        if portrait is not None:
            self._tell(portrait)

    def _is_wanted(self, error: float) -> bool:
        if self._first:
            self._first -= 1
            return True
        if len(self._worst) < _WORST:
            heapq.heappush(self._worst, error)
            return True
        if self._most <= 0 or error < _CLEARLY * self._worst[0]:
            return False
        heapq.heapreplace(self._worst, error)
        return True


def _badness(numbers: Comparison) -> float:
    """NaN and Inf of the target alone are worst."""
    if numbers.target.nan > numbers.base.nan or numbers.target.inf > numbers.base.inf:
        return math.inf
    return numbers.relative_l2 or 0.0
