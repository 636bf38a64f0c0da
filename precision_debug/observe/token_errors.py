"""How far each tensor is off at each token, added up while both sides of it live."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.arrays import as_array
from ..records import Row

__all__ = ["TokenErrors", "split_by_token"]

Array = np.ndarray[Any, Any]

_MOST = 1 << 26
"""Elements of a tensor from which on its errors are not told by token: going through it takes seconds."""

_AT_ONCE = 1 << 20
"""Elements that are brought to float64 at a time, half a dozen arrays of them."""


class TokenErrors:
    """Relative L2 errors of each tensor at each token.

    It is shown the pairs of a run over ``rows`` sequences of ``length`` tokens. Tensors that lie on a device are left
    out."""

    def __init__(self, rows: int, length: int) -> None:
        self._rows, self._length = rows, length
        self._errors: dict[str, Array] = {}

    def look(self, row: Row, base: Any, target: Any, /) -> None:
        """See PairObserver."""
        numbers = row.comparison
        if numbers is None or not numbers.shapes_match or "float" not in numbers.base.dtype:
            return
        if not (isinstance(base, np.ndarray) and isinstance(target, np.ndarray)) or base.size > _MOST:
            return
        try:
            ours, theirs = (split_by_token(as_array(one), self._rows, self._length) for one in (base, target))
        except PrecisionDebugError:
            return
        if ours is None or theirs is None or ours.shape != theirs.shape:
            return
        some = max(1, _AT_ONCE // max(1, ours.shape[1]))
        self._errors[row.name] = np.concatenate(
            [_measure_errors(ours[n : n + some], theirs[n : n + some]) for n in range(0, len(ours), some)]
        )

    def found(self, order: tuple[str, ...]) -> tuple[list[str], Array]:
        """Return names in the order given, and their errors [tensors, rows * tokens]."""
        names = [name for name in order if name in self._errors]
        count = self._rows * self._length
        return names, np.array([self._errors[name] for name in names]).reshape(len(names), count)


def _measure_errors(ours: Array, theirs: Array) -> Array:
    """Return the relative L2 error of each line; inf where that is no number."""
    with np.errstate(all="ignore"):
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))  # a mask's infinities, too
        off = np.where(same, 0, theirs - ours)
        size = np.sum(np.square(np.where(np.isfinite(ours), ours, 0)), axis=1)
        squared = np.sum(np.square(off), axis=1)
        found = np.sqrt(np.where(squared > 0, squared / size, 0))
    return np.where(np.isnan(found), math.inf, found)


def split_by_token(array: Array, rows: int, length: int) -> Array | None:
    """As [rows * length, what belongs to a token]; None where the tensor has no axis of tokens that is known for one.

    Shapes are those of language models: [rows, tokens, …], [rows * tokens, …], [rows, heads, tokens, …], and without
    the rows where there is one.
    """
    shape = array.shape
    count = rows * length
    if length < 2 or array.size < count:
        return None
    if shape[:2] == (rows, length) or shape[0] == count:
        return array.reshape(count, -1)
    if len(shape) == 4 and shape[0] == rows and shape[2] == length and shape[1] != length:
        return np.moveaxis(array, 2, 1).reshape(count, -1)
    if rows == 1 and len(shape) == 3 and shape[1] == length and shape[0] != length:  # [heads, tokens, …]
        return np.moveaxis(array, 1, 0).reshape(count, -1)
    return None
