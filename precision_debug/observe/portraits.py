"""Which rows are drawn while their tensors live: the first ones beyond bounds, and the worst."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.arrays import as_array
from ..numbers.draw_portrait import Seen
from ..numbers.told import Portrait
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

_WAITING = 8
"""Portraits that wait to be drawn; each holds up to 6 MB."""


class Portraits:
    """An observer that draws tensors as they are compared; those of a device are copied once they are to be drawn.

    beyond: relative L2 error up to which a tensor is not worth a picture; None: its status tells.
    on_portrait: called with each one, in the order in which they came. Use as a context manager: what is seen is drawn
    in a thread of its own, and all of it at the end.
    A tensor that was among the worst when it came may not be in the end: its portrait is told all the same.
    """

    def __init__(self, beyond: float | None, on_portrait: Callable[[Portrait], None]) -> None:
        self._beyond = beyond
        self._tell = on_portrait
        self._first = _FIRST
        self._worst: list[float] = []
        self._left = _ELEMENTS
        self._most = _MOST
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="portraits")
        self._drawing: deque[Future[None]] = deque()

    def __enter__(self) -> Portraits:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Raises what telling of a portrait has raised, unless something else is raised already."""
        with self._beside:
            while self._drawing:
                drawing = self._drawing.popleft()
                if kind is None:
                    drawing.result()

    def look(self, row: Row, base: Any, target: Any, /) -> None:
        """Draw the pair that a row was made of, if it is worth it."""
        numbers = row.comparison
        if numbers is None or not numbers.shapes_match:
            return
        error = _rank_badness(numbers)
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
            seen = Seen.of(row.name, *pair, read=as_array)
        except PrecisionDebugError:  # no array of numbers
            return
        if seen is not None:
            self._drawing.append(self._beside.submit(self._draw, seen))
            while len(self._drawing) > _WAITING:
                self._drawing.popleft().result()

    def _draw(self, seen: Seen) -> None:
        self._tell(seen.drawn())

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


def _rank_badness(numbers: Comparison) -> float:
    """NaN and Inf of the target alone are worst."""
    if numbers.target.nan > numbers.base.nan or numbers.target.inf > numbers.base.inf:
        return math.inf
    return numbers.relative_l2 or 0.0
