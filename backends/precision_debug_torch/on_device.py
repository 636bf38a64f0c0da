"""Compares torch tensors where they are, for the core's hooks: work is queued, results are read once they are there.

Most comparisons need nothing of their tensors once the kernels are queued, because the device works in order. Some must
be done again in float64, so that tensors are held until their result was read: up to HOLD bytes, and never across an
operator that writes into a tensor (``settle``).
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from precision_debug import numbers, registry
from precision_debug.numbers.arrays import as_array
from precision_debug.numbers.number_types import NUMBER_TYPES
from precision_debug.protocols import Started, TorchComparison
from precision_debug.records import Comparison, TensorStats, Tolerance

__all__ = ["DeviceComparer", "DeviceStore", "bring_together", "choose_device", "move_to_device"]

_FLOAT16 = NUMBER_TYPES["float16"]

HOLD = 3 << 29
"""Bytes of tensors whose results are under way."""

DEEP = 256
"""Results under way."""


class DeviceStore:
    """The few tensors whose partner comes in another order, as copies on their own device."""

    spilled_bytes = 0

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}
        self.largest = 0

    def put(self, key: str, tensor: Any) -> None:
        self._held[key] = tensor.clone()
        self.largest = max(self.largest, len(self._held))

    def get(self, key: str) -> Any:
        return self._held.get(key)

    def drop(self, key: str) -> None:
        self._held.pop(key, None)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._held))

    def close(self) -> None:
        self._held.clear()


class _Waiting:
    """A result that is under way, and whom to tell. ``result`` is there once it was told."""

    __slots__ = ("__weakref__", "finish", "ready", "result", "size", "then")

    def __init__(self, finish: Callable[[], Any], ready: Callable[[], bool], size: int, then: Callable[[Any], None]):
        self.finish, self.ready, self.size, self.then = finish, ready, size, then
        self.result: Any = None


class DeviceComparer:
    """A Comparer of torch tensors (see protocols), and of arrays of a baseline that waited in the host's memory.

    hold: bytes of tensors that may wait for their results. totals: give Measured, whose totals can be merged.
    keeps_pairs: no operator writes into a tensor before its results were read (see above).
    """

    keeps_pairs = True
    totals = False

    def __init__(self, *, hold: int = HOLD) -> None:
        self._product: TorchComparison = registry.import_from_door("comparers", "torch")
        self._hold = hold
        self._lock = threading.RLock()
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._held = 0
        self._known: Any = weakref.WeakKeyDictionary()

    def take(self, tensor: Any, name: str) -> Any:
        """Return a torch tensor as it is; anything else as an array."""
        return tensor if isinstance(tensor, torch.Tensor) else as_array(tensor, name=name)

    def dtype(self, value: Any) -> str:
        """Return torch's name of the type, which is numpy's."""
        return str(value.dtype).removeprefix("torch.")

    def compare(self, base: Any, target: Any, tolerance: Tolerance, then: Callable[[Comparison], None]) -> None:
        """Queue a comparison; one of the same elements in another shape is not done again."""
        shapes = tuple(base.shape), tuple(target.shape)
        if isinstance(base, np.ndarray):
            there = move_to_device(base, target.device) if isinstance(target, torch.Tensor) else None
            if there is None:
                on_host = numbers.measure if self.totals else numbers.compare
                self._at_once(lambda: on_host(base, as_array(target), tolerance), then)
                return
            base = there
        marks = describe_elements(base), describe_elements(target)
        with self._lock:
            known = self._of(marks)
            if known is not None and shapes[0] == shapes[1]:
                self._add(_Waiting(lambda: _reshape_comparison(known.result, *shapes), _always, 0, then))
                return
            base, target = bring_together(base, target)
            self._make_room(base, target)
            started: Any = (
                self._product.start_on_device(base, target, tolerance, totals=self.totals)
                if shapes[0] == shapes[1]
                else _Apart(base, self._product.start_describing(base), self._product.start_describing(target))
            )
            waiting = _Waiting(started.finish, lambda: started.ready, base.nbytes + target.nbytes, then)
            if shapes[0] == shapes[1]:
                self._remember(marks, waiting)
            self._add(waiting)

    def describe(self, value: Any, then: Callable[[TensorStats], None]) -> None:
        """Queue one tensor's numbers."""
        shape = tuple(value.shape)
        if isinstance(value, np.ndarray):
            self._at_once(lambda: numbers.describe(value), then)
            return
        with self._lock:
            marks = describe_elements(value), None
            known = self._of(marks)
            if known is not None:
                self._add(_Waiting(lambda: dataclasses.replace(known.result, shape=shape), _always, 0, then))
                return
            self._make_room(value)
            started = self._product.start_describing(value)
            waiting = _Waiting(started.finish, lambda: started.ready, value.nbytes, then)
            self._remember(marks, waiting)
            self._add(waiting)

    def settle(self) -> None:
        """Read every result that is under way."""
        with self._lock:
            while self._waiting:
                self._tell()

    def _at_once(self, numbers: Callable[[], Any], then: Callable[[Any], None]) -> None:
        found = numbers()
        with self._lock:
            self._add(_Waiting(lambda: found, _always, 0, then))

    def _add(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        self._held += waiting.size
        while self._waiting and (self._held > self._hold or len(self._waiting) > DEEP or self._waiting[0].ready()):
            self._tell()

    def _tell(self) -> None:
        waiting = self._waiting.popleft()
        self._held -= waiting.size
        waiting.result = waiting.finish()
        del waiting.finish, waiting.ready  # they hold the tensors
        then = waiting.then
        del waiting.then  # it holds them too, and a result may be remembered for long
        then(waiting.result)

    def _make_room(self, *tensors: Any) -> None:
        """Contiguous copies of large tensors take memory themselves."""
        if sum(0 if tensor.is_contiguous() else tensor.nbytes for tensor in tensors) > self._hold:
            self.settle()

    def _of(self, marks: tuple[Any, Any]) -> _Waiting | None:
        first, second = marks
        if first is None or first not in self._known:
            return None
        other, waiting = self._known[first]
        same = other is None if second is None else other is not None and other() is second
        return waiting if same else None

    def _remember(self, marks: tuple[Any, Any], waiting: _Waiting) -> None:
        first, second = marks
        if first is not None:
            self._known[first] = None if second is None else weakref.ref(second), waiting


class _Apart:
    """Both sides by themselves, where their shapes differ."""

    def __init__(self, base: Any, ours: Started, theirs: Started) -> None:
        self._base, self._sides = base, (ours, theirs)

    @property
    def ready(self) -> bool:
        return all(side.ready for side in self._sides)

    def finish(self) -> Comparison:
        ours, theirs = (side.finish() for side in self._sides)
        big = self._base.abs() if self._base.dtype != torch.bool else self._base
        small = (big > 0) & (big < _FLOAT16.smallest_normal)
        return Comparison(
            base=ours, target=theirs, shapes_match=False, fp16_overflow=int((big > _FLOAT16.largest).sum()),
            fp16_subnormal=int(small.sum()),
        )  # fmt: skip


class Elements:
    """Stands for certain elements in a certain order; tensors that hold the same ones share it."""

    __slots__ = ("__weakref__",)


def describe_elements(tensor: Any) -> Elements | None:
    """Return what a trace said of a tensor that it shows."""
    return getattr(tensor, "elements_held", None)


def choose_device(base: Any, target: Any) -> Any:
    """Return the device where a pair is compared: a GPU before the CPU, then that of the larger tensor."""
    return max((base, target), key=lambda tensor: (tensor.device.type != "cpu", tensor.nbytes)).device


def bring_together(base: Any, target: Any) -> tuple[Any, Any]:
    """Return both on one device."""
    if base.device == target.device:
        return base, target
    there = choose_device(base, target)
    return base.to(there, non_blocking=True), target.to(there, non_blocking=True)


def move_to_device(array: np.ndarray[Any, Any], device: Any) -> Any:
    """Return an array's copy on a device; None where torch has no such type."""
    own = np.array(array, order="C")
    try:
        if own.dtype.name == "bfloat16":
            return torch.from_numpy(own.view(np.uint16)).view(torch.bfloat16).to(device)
        if own.dtype.name.startswith("float8"):
            return torch.from_numpy(own.view(np.uint8)).view(getattr(torch, own.dtype.name)).to(device)
        return torch.from_numpy(own).to(device)
    except (TypeError, AttributeError):
        return None


def _always() -> bool:
    return True


def _reshape_comparison(known: Comparison, base: tuple[int, ...], target: tuple[int, ...]) -> Comparison:
    """Return the numbers of the same elements in another shape."""
    before = known.base.shape

    def index(at: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if at is None:
            return None
        place = int(np.ravel_multi_index(at, before)) if before else 0
        return tuple(int(i) for i in np.unravel_index(place, base)) if base else ()

    return dataclasses.replace(
        known,
        base=dataclasses.replace(known.base, shape=base),
        target=dataclasses.replace(known.target, shape=target),
        first_mismatch=index(known.first_mismatch),
        max_abs_index=index(known.max_abs_index),
        max_rel_index=index(known.max_rel_index),
    )
