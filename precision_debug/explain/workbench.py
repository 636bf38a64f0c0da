"""Tensors in the host's memory, as explanations handle them: numpy, and the core's compiled passes."""

from __future__ import annotations

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


def _cut_to_range(array: Array, *others: Array) -> Array:
    """Return an array, cut off where the numbers of others end."""
    if not array.size:
        return array
    with np.errstate(all="ignore"):
        low = min(float(np.fmin.reduce(other, axis=None)) for other in others)
        high = max(float(np.fmax.reduce(other, axis=None)) for other in others)
        return array if np.isnan(low) or np.isnan(high) else np.clip(array, low, high).astype(array.dtype, copy=False)


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
        return made if step is None else _cut_to_range(made, array)

    def with_error(self, value: Any, exact: Any, wrong: Any) -> Any:
        """Return the value with what ``wrong`` is off from ``exact``; None where the three do not fit together.

        What is not finite in ``wrong`` alone is so in the result, and what vanished in it is 0, also of a value that is
        not quite the one that was measured. No number lies beyond all of ``value`` and ``wrong``: a square that is less
        than its error would become negative, and NaN in the root behind it. Of integers, only what this operator itself
        decided otherwise is taken.
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
        with np.errstate(all="ignore"):
            error = wrong.astype(value.dtype) - exact.astype(value.dtype)
            added = _cut_to_range(value + np.where(np.isfinite(exact), error, 0), value, wrong)
        lost = ~np.isfinite(wrong) & np.isfinite(exact)
        lost |= (wrong == 0) & (exact != 0) & (np.abs(value) / 4 <= np.abs(exact))
        lost |= value == exact  # of a mask at the end of float32, what is added and taken away again leaves 0
        if lost.any():
            with np.errstate(over="ignore"):
                added = np.where(lost, wrong.astype(value.dtype), added)
        return np.ascontiguousarray(added, dtype=value.dtype).reshape(added.shape)

    def waiting(self, folder: Path, budget: int) -> Store:
        """See ``store``."""
        return self.store(folder, budget)

    def store(self, folder: Path, budget: int) -> Store:
        """Return what comes over the budget waits on disk."""
        return Store(folder=folder, memory_budget=budget)
