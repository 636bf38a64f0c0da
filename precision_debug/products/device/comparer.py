"""Compares the tensors of any engine where they are in the GPU's memory, for the core's hooks.

A baseline's array is copied to the device when its partner comes, which is as much traffic as the other way round, and
the numbers are then computed at the speed of the device's memory. Every comparison is finished before the call returns:
an engine's buffers, and what a listener shows, are used again right after.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import numbers
from ...numbers.arrays import as_array
from ...numbers.cuda import Device, DeviceArray, Memory
from ...records import Comparison, TensorStats, Tolerance
from .kernels import explain_unavailable, start, start_describing

__all__ = ["CudaComparer", "CudaStore", "explain_unavailable"]

_SHARE = 0.5
"""Of the free memory of the device, what waiting tensors may take."""


class CudaComparer:
    """A Comparer (see protocols) of DeviceArrays, and of arrays. on_device: pairs that were compared on the device.

    totals: give Measured, whose totals can be merged. keeps_pairs: ``then`` is called before ``compare`` returns.
    """

    totals = False
    keeps_pairs = True

    def __init__(self) -> None:
        self.on_device = 0
        self._room: dict[Device, Memory] = {}
        self._lock = threading.Lock()

    def take(self, tensor: Any, name: str) -> Any:
        """Memory of a device as it is, anything else as an array."""
        return tensor if isinstance(tensor, DeviceArray) else as_array(tensor, name=name)

    def dtype(self, value: Any) -> str:
        """Return numpy's name of the type."""
        return str(value.dtype.name)

    def compare(self, base: Any, target: Any, tolerance: Tolerance, then: Callable[[Comparison], None]) -> None:
        """Compare where the target is, and call ``then``."""
        if isinstance(target, DeviceArray) and base.shape == target.shape and base.size:
            with self._lock:
                there = base if isinstance(base, DeviceArray) else self._uploaded(base, target)
                if there.device is not target.device:  # on another card
                    there = self._uploaded(there.numpy(), target)
                _follow(there, target)
                self.on_device += 1
                found = start(there, target, tolerance, target.stream, totals=self.totals).finish()
            then(found)
            return
        on_host = numbers.measure if self.totals else numbers.compare
        then(on_host(as_array(base), as_array(target), tolerance))

    def describe(self, value: Any, then: Callable[[TensorStats], None]) -> None:
        """Call ``then`` with one tensor's numbers."""
        if isinstance(value, DeviceArray) and value.size:
            then(start_describing(value, value.stream).finish().base)
        else:
            then(numbers.describe(as_array(value)))

    def settle(self) -> None:
        """Nothing is under way."""

    def _uploaded(self, array: np.ndarray[Any, Any], like: DeviceArray) -> DeviceArray:
        """Return the array on the target's device, until the next one comes."""
        device, flat = like.device, np.ascontiguousarray(array)
        room = self._room.get(device)
        if room is None or room.size < flat.nbytes:
            self._room.pop(device, None)
            del room
            room = self._room[device] = device.allocate(1 << (flat.nbytes - 1).bit_length())
        device.upload(room.pointer, flat.reshape(-1).view(np.uint8), like.stream)
        return DeviceArray(device, room.pointer, array.shape, array.dtype, room, like.stream)


def _follow(base: DeviceArray, target: DeviceArray) -> None:
    """What is queued on the target's stream from now on waits for what made the baseline's array."""
    if base.stream != target.stream:
        device = base.device
        with device.current():
            made = device.event()
            made.record(base.stream)
            made.hold_up(target.stream)


class CudaStore:
    """The tensors whose partners come in another order, as copies on their device, or in the host's memory beyond a
    share of what is free there. See protocols.BaselineStore; spilled_bytes: of the latter."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._budget: int | None = None
        self.spilled_bytes = 0

    def put(self, key: str, array: Any) -> None:
        if not isinstance(array, DeviceArray):
            kept: Any = np.array(array, copy=True, order="C")
        elif self._fits(array):
            device, memory = array.device, array.device.allocate(array.nbytes)
            device.copy(memory.pointer, array.pointer, array.nbytes, array.stream)
            kept = DeviceArray(device, memory.pointer, array.shape, array.dtype, memory, array.stream)
        else:
            kept = array.numpy(array.stream)
            self.spilled_bytes += kept.nbytes
        with self._lock:
            self._held[key] = kept

    def _fits(self, array: DeviceArray) -> bool:
        if self._budget is None:
            self._budget = int(array.device.memory()[0] * _SHARE)
        held = sum(one.nbytes for one in list(self._held.values()) if isinstance(one, DeviceArray))
        return held + array.nbytes <= self._budget

    def get(self, key: str) -> Any:
        return self._held.get(key)

    def drop(self, key: str) -> None:
        with self._lock:
            self._held.pop(key, None)

    def __iter__(self) -> Any:
        return iter(list(self._held))

    def close(self) -> None:
        with self._lock:
            self._held.clear()
