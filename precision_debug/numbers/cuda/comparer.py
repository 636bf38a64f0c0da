"""Compares the tensors of any engine where they are in the GPU's memory, for the core's hooks.

A baseline's array is copied to the device when its partner comes, which is as much traffic as the other way round, and
the numbers are then computed at the speed of the device's memory. Every comparison is finished before the call returns:
an engine's buffers, and what a listener shows, are used again right after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ... import numbers
from ...records import Comparison, TensorStats, Tolerance
from ..arrays import as_array
from .compare import describe_on_device, start_on_device

__all__ = ["CudaComparer"]


class CudaComparer:
    """A Comparer (see protocols) of torch tensors and arrays. on_device: pairs that were compared on the device.

    totals: give Measured, whose totals can be merged.
    """

    keeps_pairs = True
    totals = False

    def __init__(self) -> None:
        self.on_device = 0

    def take(self, tensor: Any, name: str) -> Any:
        """A torch tensor as it is, anything else as an array."""
        return tensor.detach() if isinstance(tensor, torch.Tensor) else as_array(tensor, name=name)

    def dtype(self, value: Any) -> str:
        """numpy's name of the type, which is torch's too."""
        return value.dtype.name if isinstance(value, np.ndarray) else str(value.dtype).removeprefix("torch.")

    def compare(self, base: Any, target: Any, tolerance: Tolerance, then: Callable[[Comparison], None]) -> None:
        """Compare where the target is, and call ``then``."""
        on_host = numbers.measure if self.totals else numbers.compare
        if isinstance(target, np.ndarray):
            then(on_host(as_array(base), target, tolerance))
            return
        self.on_device += 1
        there = base if isinstance(base, torch.Tensor) else self._uploaded(base, target)
        if there is None:
            then(on_host(as_array(base), as_array(target), tolerance))
            return
        then(start_on_device(there.to(target.device), target, tolerance, totals=self.totals).finish())

    def describe(self, value: Any, then: Callable[[TensorStats], None]) -> None:
        """Call ``then`` with one tensor's numbers."""
        if isinstance(value, np.ndarray):
            then(numbers.describe(value))
        else:
            then(describe_on_device(value))

    def settle(self) -> None:
        """Nothing is under way."""

    def _uploaded(self, array: np.ndarray[Any, Any], like: Any) -> Any:
        """The array on the target's device; None where torch has no such type."""
        flat = np.ascontiguousarray(array)
        try:
            kind = getattr(torch, flat.dtype.name)
            raw = flat.reshape(-1).view(np.uint8)
        except (AttributeError, TypeError):
            self.on_device -= 1
            return None
        if not flat.size:
            return torch.empty(array.shape, dtype=kind, device=like.device)
        if not raw.flags.writeable:
            raw = raw.copy()
        return torch.from_numpy(raw).to(like.device).view(kind).reshape(array.shape)
