"""Tensors that are not numbers: text and the like, compared by equality alone."""

from __future__ import annotations

import numpy as np

from .blocks import BLOCK, flat_reader
from .kinds import Array, is_text

__all__ = ["unequal"]


def unequal(base: Array, target: Array) -> tuple[int, int] | None:
    """How many elements differ and the flat index of the first one (-1: none); None where the types do not compare.

    Bytes are read as UTF-8, so that a bytes array can equal a str one.
    """
    if not (is_text(base.dtype) and is_text(target.dtype)) and base.dtype != target.dtype:
        return None if base.size else (0, -1)
    left, right = flat_reader(base), flat_reader(target)
    count, at = 0, -1
    for first in range(0, base.size, BLOCK):
        last = min(first + BLOCK, base.size)
        differ = _differ(left(first, last), right(first, last))
        found = int(np.count_nonzero(differ))
        if found and at < 0:
            at = first + int(np.argmax(differ))
        count += found
    return count, at


def _differ(base: Array, target: Array) -> Array:
    if base.dtype.kind == target.dtype.kind and base.dtype.kind not in "OS":
        return np.asarray(base != target)
    pairs = zip(base.tolist(), target.tolist(), strict=True)
    return np.fromiter((_text(b) != _text(t) for b, t in pairs), dtype=bool, count=base.size)


def _text(value: object) -> object:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
