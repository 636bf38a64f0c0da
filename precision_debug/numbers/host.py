"""Numbers of tensors in the host's memory: what the hooks use unless a backend compares where its tensors are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import numbers
from ..records import Comparison, TensorStats, Tolerance
from .arrays import as_array

__all__ = ["HostComparer"]

Array = np.ndarray[Any, Any]


class HostComparer:
    """A Comparer of numpy arrays; every result is there at once.

    keeps_pairs: a pair is still what was compared when its numbers are told.
    threads: how many share a large tensor; 0: one for a core. totals: give Measured, whose totals can be merged.
    """

    keeps_pairs = True

    def __init__(self, threads: int = 0, *, totals: bool = False) -> None:
        self.threads, self.totals = threads, totals

    def take(self, tensor: Any, name: str) -> Array:
        """The tensor as an array, over its own memory where that is possible."""
        return as_array(tensor, name=name)

    def dtype(self, value: Array) -> str:
        """numpy's name of the array's type."""
        return str(value.dtype.name)

    def compare(self, base: Array, target: Array, tolerance: Tolerance, then: Callable[[Comparison], None]) -> None:
        """Compare, and call ``then`` with the numbers."""
        numbers_of = numbers.measure if self.totals else numbers.compare
        then(numbers_of(base, target, tolerance, threads=self.threads))

    def describe(self, value: Array, then: Callable[[TensorStats], None]) -> None:
        """Call ``then`` with one array's numbers."""
        then(numbers.describe(value, threads=self.threads))

    def settle(self) -> None:
        """Nothing is under way."""
