"""Any array as flat blocks in C order, without ever copying the whole of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .kinds import Array

__all__ = ["BLOCK", "FlatReader", "flat_reader"]

BLOCK = 32768
"""Elements that the numpy path handles at once: a handful of float64 temporaries of this size stay in the caches."""

FlatReader = Callable[[int, int], Array]
"""(start, stop) to the elements [start, stop) in C order: contiguous, 1-D, native byte order; a view if possible."""


def flat_reader(array: Array) -> FlatReader:
    """Readers copy only what is asked of them, and only where strides, byte order or alignment make it necessary."""
    native = array.dtype.isnative or array.dtype.kind not in "iufc"
    dtype = array.dtype if native else array.dtype.newbyteorder("=")
    if native and array.flags.c_contiguous and array.flags.aligned:
        flat = array.reshape(-1)
        return lambda start, stop: flat[start:stop]

    def read(start: int, stop: int) -> Array:
        out = np.empty(stop - start, dtype=dtype)
        _gather(out, array, start, stop)
        return out

    return read


def _gather(out: Array, array: Array, start: int, stop: int) -> None:
    if start >= stop:
        return
    if array.ndim == 0:
        out[0] = array[()]
        return
    if array.ndim == 1:
        out[...] = array[start:stop]
        return
    inner = math.prod(array.shape[1:])
    first, last = start // inner, (stop - 1) // inner
    if first == last:
        _gather(out, array[first], start - first * inner, stop - first * inner)
        return
    head, tail = -start % inner, stop % inner
    if head:
        _gather(out[:head], array[first], inner - head, inner)
    rows = array[-(-start // inner) : stop // inner]
    out[head : out.size - tail].reshape(rows.shape)[...] = rows
    if tail:
        _gather(out[out.size - tail :], array[stop // inner], 0, tail)
