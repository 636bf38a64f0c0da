"""Where the kernels leave their numbers: memory of the host that the device writes to."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ...numbers.cuda import Device, Event, Pinned

__all__ = ["Answer", "give_back", "take_answer"]

_SLAB = 1 << 20
"""Bytes that are taken at once: pinned memory is slow to get."""

_free: dict[tuple[int, int, int, bool], list[Answer]] = {}
_lock = threading.Lock()


class Answer:
    """One row of numbers, and behind it what comes with it: the errors, or a histogram of some.

    extra: float32 or float64 where it holds errors, else int32 as float32.
    """

    __slots__ = ("errors", "event", "extra", "key", "pointer", "row")

    def __init__(self, memory: Pinned, at: int, width: int, key: tuple[int, int, int, bool], event: Event) -> None:
        _, size, itemsize, self.errors = self.key = key
        self.pointer = memory.pointer + at
        self.row: np.ndarray[Any, Any] = memory.bytes[at : at + 8 * width].view(np.float64)
        kind = np.float64 if itemsize == 8 else np.float32
        self.extra: np.ndarray[Any, Any] = memory.bytes[at + 8 * width : at + 8 * width + size * itemsize].view(kind)
        self.event = event

    def wait(self) -> None:
        """Until it is written. Raises BackendError where a kernel failed."""
        self.event.wait()

    @property
    def ready(self) -> bool:
        return self.event.ready


def take_answer(device: Device, width: int, size: int, itemsize: int, errors: bool) -> Answer:
    """Return an answer with so many extra numbers; more where errors are kept, so that few sizes are in use."""
    size = max(4096, 1 << (size - 1).bit_length()) if errors else size
    key = device.ordinal, size, itemsize, errors
    with _lock:
        kept = _free.setdefault(key, [])
        if not kept:
            whole = -(-(8 * width + size * itemsize) // 64) * 64
            many = max(1, _SLAB // whole)
            memory = device.pinned(whole * many)
            kept += [Answer(memory, whole * number, width, key, device.event()) for number in range(many)]
        return kept.pop()


def give_back(answer: Answer) -> None:
    """Keep an answer whose numbers were read, and into which nothing is written any more."""
    with _lock:
        _free[answer.key].append(answer)
