"""Compares the engine's tensors in the GPU's memory, where torch is there to do it; for the core's hooks.

A baseline's array is copied to the device when its partner comes, which is as much traffic as the other way round, and
the numbers are then computed at the speed of the device's memory. Every comparison is finished before the call returns:
the engine's buffers, and what a debug listener shows, are used again right after.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from precision_debug import metrics
from precision_debug.arrays import as_array
from precision_debug.records import Comparison, SessionSpec, TensorStats, Tolerance
from precision_debug.store import Store

from .device import find_device

__all__ = ["EngineComparer", "HostStore", "on_device"]


def on_device(first: SessionSpec, second: SessionSpec) -> tuple[EngineComparer, HostStore] | None:
    """What compares and what keeps the baseline's tensors; None without a GPU that torch can use."""
    try:
        importlib.import_module("torch")
        device = find_device()
    except Exception:
        return None
    if not device.shows_tensors:
        return None
    return EngineComparer(), HostStore(second.options.get("memory_budget"), first.work_dir or None)


class EngineComparer:
    """A Comparer (see protocols) of torch tensors and arrays. on_device: pairs that were compared on the device."""

    def __init__(self) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._ways: Any = importlib.import_module("precision_debug_torch.device_compare")
        self.on_device = 0

    def take(self, tensor: Any, name: str) -> Any:
        """A torch tensor as it is, anything else as an array."""
        return tensor.detach() if isinstance(tensor, self._torch.Tensor) else as_array(tensor, name=name)

    def dtype(self, value: Any) -> str:
        """numpy's name of the type, which is torch's too."""
        return value.dtype.name if isinstance(value, np.ndarray) else str(value.dtype).removeprefix("torch.")

    def compare(self, base: Any, target: Any, tolerance: Tolerance, then: Callable[[Comparison], None]) -> None:
        """Compare where the target is, and call ``then``."""
        if isinstance(target, np.ndarray):
            then(metrics.compare(as_array(base), target, tolerance))
            return
        self.on_device += 1
        there = base if isinstance(base, self._torch.Tensor) else self._uploaded(base, target)
        if there is None:
            then(metrics.compare(as_array(base), as_array(target), tolerance))
            return
        then(self._ways.compare_on_device(there.to(target.device), target, tolerance))

    def describe(self, value: Any, then: Callable[[TensorStats], None]) -> None:
        """Call ``then`` with one tensor's numbers."""
        if isinstance(value, np.ndarray):
            then(metrics.describe(value))
        else:
            then(self._ways.describe_on_device(value))

    def settle(self) -> None:
        """Nothing is under way."""

    def _uploaded(self, array: np.ndarray[Any, Any], like: Any) -> Any:
        """The array on the target's device; None where torch has no such type."""
        flat = np.ascontiguousarray(array)
        try:
            kind = getattr(self._torch, flat.dtype.name)
            raw = flat.reshape(-1).view(np.uint8)
        except (AttributeError, TypeError):
            self.on_device -= 1
            return None
        if not flat.size:
            return self._torch.empty(array.shape, dtype=kind, device=like.device)
        if not raw.flags.writeable:
            raw = raw.copy()
        return self._torch.from_numpy(raw).to(like.device).view(kind).reshape(array.shape)


class HostStore:
    """The core's Store; a tensor of the device is copied to the host's memory, which has a budget and a disk."""

    def __init__(self, memory_budget: int | None, folder: str | None) -> None:
        self._store = Store(memory_budget=memory_budget, folder=folder)

    @property
    def spilled_bytes(self) -> int:
        """Bytes that went to the disk."""
        return self._store.spilled_bytes

    def put(self, key: str, array: Any) -> None:
        """See BaselineStore."""
        self._store.put(key, as_array(array, name=key))

    def get(self, key: str) -> np.ndarray[Any, Any] | None:
        """See BaselineStore."""
        return self._store.get(key)

    def drop(self, key: str) -> None:
        """See BaselineStore."""
        self._store.drop(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._store)

    def close(self) -> None:
        """See BaselineStore."""
        self._store.close()
