"""What lies inside fused layers, seen in a further run in which it is not fused: when that shows the engine's numbers.

The further run computes otherwise, so that what it shows is the engine's only where both give the same around it:
in front, in whatever both show and a tensor is computed from, and behind it, in what both show and is computed from it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

__all__ = ["SAME", "Around", "Values", "describe_surroundings", "find_differing"]

K = TypeVar("K", bound=Hashable)

SAME = 1e-6
"""Relative L2 error up to which two runs gave the same: another order of sums in float32."""

_HELD = 1 << 29
"""Bytes of what the plain engine shows that are held to be compared; beyond, nothing more is opened."""


_BLOCK = 1 << 16
"""Elements that are compared at a time."""


@dataclass(kw_only=True)
class Values(Generic[K]):
    """Copies of what a run shows; each comes once."""

    found: dict[K, Any] = field(default_factory=dict)
    bytes_held: int = 0

    def receive(self, key: K, memory: Any) -> None:
        """Keep a copy."""
        array = np.asarray(memory)
        self.bytes_held += array.nbytes
        if self.bytes_held <= _HELD:
            self.found[key] = array.copy()

    @property
    def whole(self) -> bool:
        """Whether there was room for all."""
        return self.bytes_held <= _HELD


@dataclass(frozen=True, kw_only=True)
class Around(Generic[K]):
    """The nearest tensors that the plain engine shows: those that a tensor is computed from, and from it."""

    front: frozenset[K]
    behind: frozenset[K]

    @property
    def both(self) -> frozenset[K]:
        return self.front | self.behind


def describe_surroundings(
    reads: Mapping[K, Collection[K]], inner: Collection[K], shown: Collection[K]
) -> dict[K, Around[K]]:  # fmt: skip
    """Return what is shown around inner tensors. reads: of every tensor, in execution order, what it is computed
    from."""
    front: dict[K, frozenset[K]] = {}
    behind: dict[K, set[K]] = {}
    for key, read in reads.items():
        front[key] = frozenset().union(*({one} if one in shown else front.get(one, frozenset()) for one in read))
    for key, read in reversed(list(reads.items())):
        found = {key} if key in shown else behind.get(key, set())
        for one in read:
            behind.setdefault(one, set()).update(found)
    return {key: Around(front=front.get(key, frozenset()), behind=frozenset(behind.get(key, ()))) for key in inner}


def find_differing(plain: Mapping[K, Any], there: Mapping[K, Any]) -> set[K]:
    """Return which of the tensors that both runs show came out differently; the second lacks what was fed."""
    return {key for key, value in there.items() if key in plain and not _is_same(plain[key], value)}


def _is_same(first: Any, second: Any) -> bool:
    if first.shape != second.shape:
        return False
    if first.dtype == second.dtype and np.array_equal(first, second):
        return True
    if first.dtype.kind != "f" or second.dtype.kind != "f":
        return bool(np.array_equal(first, second))
    allowed = SAME**2 * sum(_square(one[np.isfinite(one)]) for one, _ in _in_blocks(first, second))
    apart = 0.0
    for one, other in _in_blocks(first, second):
        finite = np.isfinite(one)
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            return False
        apart += _square(one[finite] - other[finite])
        if not apart <= allowed:  # most that differ do so at once
            return False
    return True


def _in_blocks(first: Any, second: Any) -> Iterator[tuple[Any, Any]]:
    """Yield both in float64, piece by piece: a large activation would take seconds as a whole."""
    one, other = (np.reshape(array, -1) for array in (first, second))
    for start in range(0, one.size, _BLOCK):
        yield one[start : start + _BLOCK].astype(np.float64), other[start : start + _BLOCK].astype(np.float64)


def _square(values: Any) -> float:
    return float(np.dot(values, values))
