"""Tensors in the host's memory, as explanations handle them: numpy, and the core's compiled passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import numbers
from ..numbers import narrowing
from ..numbers.arrays import as_array
from ..observe.store import Store
from ..records import Comparison

__all__ = ["HostWorkbench"]

Array = np.ndarray[Any, Any]


_BLOCK = 1 << 15
"""Elements that are handled at once, so that what is between two passes stays in the processor's cache."""


def _find_range(*arrays: Array) -> tuple[float, float]:
    """Return where the numbers of arrays begin and end; NaN where one of them has none."""
    if not all(one.size for one in arrays):
        return math.nan, math.nan
    with np.errstate(all="ignore"):
        low = min(float(np.fmin.reduce(one, axis=None)) for one in arrays)
        return low, max(float(np.fmax.reduce(one, axis=None)) for one in arrays)


def _cut_to_range(array: Array, limits: tuple[float, float]) -> Array:
    """Return an array, cut off at these limits."""
    if any(map(math.isnan, limits)):
        return array
    with np.errstate(all="ignore"):
        return np.clip(array, *limits).astype(array.dtype, copy=False)


def _add_error(value: Array, exact: Array, wrong: Array, limits: tuple[float, float]) -> Array:
    """See HostWorkbench.with_error."""
    with np.errstate(all="ignore"):
        error = wrong.astype(value.dtype) - exact.astype(value.dtype)
        added = _cut_to_range(value + np.where(np.isfinite(exact), error, 0), limits)
        lost = ~np.isfinite(wrong) & np.isfinite(exact)
        for end in (0.0, *limits):  # that a sigmoid has reached, say
            lost |= (wrong == end) & (exact != end) & (np.abs(value - end) / 4 <= np.abs(exact - end))
    lost |= value == exact  # of a mask at the end of float32, what is added and taken away again leaves 0
    if lost.any():
        with np.errstate(over="ignore"):
            added = np.where(lost, wrong.astype(value.dtype), added)
    return added


class HostWorkbench:
    """See protocols.Workbench."""

    on_device = False
    rate = 400e6

    def host(self, value: Any) -> Array:
        """Return the array as it is."""
        return np.asarray(value)

    def returned(self, outputs: Mapping[str, Any], name: str) -> Array:
        """Return the array."""
        return np.asarray(outputs[name])

    def kept(self, value: Any) -> Any:
        """Return a copy."""
        return np.array(value)

    def is_float(self, value: Any) -> bool:
        """Return whether it holds floats, narrow ones included."""
        return value.dtype.kind == "f" or value.dtype.name in {"bfloat16", "float8_e4m3fn", "float8_e5m2"}

    def lasting(self, value: Any) -> Any:
        """As it is."""
        return value

    def compare(self, base: Any, target: Any) -> Comparison:
        """Without quantiles, which take longer than everything else."""
        return numbers.compare(base, target, quantiles=False)

    def start(self, base: Any, target: Any, then: Callable[[Comparison], None]) -> None:
        """At once."""
        then(self.compare(base, target))

    def settle(self) -> None:
        """Nothing is under way."""

    def squares(self, base: Any, target: Any, bound: float) -> tuple[float, float, int]:
        """See protocols.Workbench."""
        with np.errstate(all="ignore"):
            b, t = np.asarray(base).astype(np.float64), np.asarray(target).astype(np.float64)
            fair = np.isfinite(b) & np.isfinite(t) & (np.abs(b) <= bound)
            error, size = float(np.sum(np.square((t - b)[fair]))), float(np.sum(np.square(b[fair])))
        return error, size, int(fair.sum())

    def unmoved(self, wanted: Any, got: Any) -> float | None:
        """See protocols.Workbench."""
        wanted, got = as_array(wanted), as_array(got)
        if wanted.shape != got.shape or not np.isfinite(got).all():
            return None
        moved = wanted != 0
        return float(np.mean(got[moved] == 0)) if moved.any() else None

    def shaken(self, value: Any, noise: Array, unit: float, start: int, step: float | None) -> Any:
        """See narrowing.shaken; None where the array holds no floats. Steps end where the array's own numbers do, as a
        quantiser's grid does."""
        array = np.asarray(value)
        if not self.is_float(array):
            return None
        made = narrowing.shake_values(array, noise, unit, start=start, step=step)
        return made if step is None else _cut_to_range(made, _find_range(array))

    def with_error(self, value: Any, exact: Any, wrong: Any) -> Any:
        """Return the value with what ``wrong`` is off from ``exact``; None where the three do not fit together.

        What is not finite in ``wrong`` alone is so in the result, what vanished in it is 0, and what came to the end of
        all numbers in it is there, also of a value that is not quite the one that was measured. No number lies beyond
        all of ``value`` and ``wrong``: a square that is less than its error would become negative, and NaN in the root
        behind it. Of integers, only what this operator itself decided otherwise is taken.
        """
        if value.shape != exact.shape:
            return None
        if not self.is_float(value):
            if self.is_float(wrong):
                return None
            return np.where(wrong != exact, wrong, value).astype(value.dtype)
        if value.dtype.kind != "f":  # of ml_dtypes
            added = self.with_error(value.astype(np.float32), exact, wrong)
            return added.astype(value.dtype)
        if wrong.shape != value.shape:
            return None
        limits = _find_range(value, wrong)
        made = np.empty(value.shape, value.dtype)
        values, exacts, wrongs = (np.ascontiguousarray(one).reshape(-1) for one in (value, exact, wrong))
        for start in range(0, made.size, _BLOCK):  # of 74 MB, nine passes took longer than the model's run
            part = slice(start, start + _BLOCK)
            made.reshape(-1)[part] = _add_error(values[part], exacts[part], wrongs[part], limits)
        return made

    def waiting(self, folder: Path, budget: int) -> Store:
        """See ``store``."""
        return self.store(folder, budget)

    def store(self, folder: Path, budget: int) -> Store:
        """Return what comes over the budget waits on disk."""
        return Store(folder=folder, memory_budget=budget)
