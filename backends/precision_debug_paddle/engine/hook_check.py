"""What Paddle's own hook saw of a run, to check what was fetched against it.

A fetched value is read after the run, so an operator that works in place may have written over it by then; the hook
saw it before. Layouts differ between the two, so the comparison is one of all elements without their order.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import naming

__all__ = ["Witness", "digest"]

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def digest(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Number of elements, and a sum over all of them that does not depend on their order; bfloat16 as float32."""
    values = np.asarray(array)
    if values.dtype.name == "bfloat16":
        values = values.astype(np.float32)
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype.kind not in "fiub":
        return flat.size, hash(flat.tobytes())
    wide = flat.astype(np.float64) if flat.dtype.kind == "f" else flat.astype(np.int64)
    bits = wide.view(np.uint64) * _MIX
    bits ^= bits >> _SHIFT
    return flat.size, int((bits * _MIX).sum(dtype=np.uint64))


class Witness:
    """Everything that the hook saw in one run."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[int, int]] = {}
        self._kept: set[tuple[int, int]] = set()
        self._in_place: set[tuple[int, int]] = set()
        self._count: collections.Counter[tuple[int, int]] = collections.Counter()

    def count(self, value: tuple[int, int]) -> int:
        """Return how many operators, but for those that only carry, wrote something with this digest."""
        return self._count[value]

    def saw(self, op_type: str, name: str, array: np.ndarray[Any, Any]) -> None:
        if naming.carries(op_type):
            return
        value = digest(array)
        self._named[name] = value
        self._count[value] += 1
        (self._in_place if naming.works_in_place(op_type) else self._kept).add(value)

    def overwritten(self, fetched: Mapping[str, np.ndarray[Any, Any]]) -> tuple[frozenset[str], int]:
        """Of what was fetched, by the predictor's name: what is another tensor than the operator wrote, and how many
        could not be checked, as the hook saw nothing that they could be (padded layouts, operators that it passes
        over).
        """
        wrong: set[str] = set()
        unknown = 0
        for name, array in fetched.items():
            value = digest(array)
            if value == self._named.get(name) or value in self._kept:
                continue
            if value in self._in_place:
                wrong.add(name)
            else:
                unknown += 1
        return frozenset(wrong), unknown
