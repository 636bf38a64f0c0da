"""INT8 calibration on the user's own inputs (TensorRT up to 10; later versions read QDQ from the model)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import InputError

from .device_memory import Buffer, Device

__all__ = ["CalibrationTable", "make_calibrator", "require_same_shapes"]

Feeds = Mapping[str, np.ndarray[Any, Any]]


class CalibrationTable:
    """What calibration found, kept for the session's later builds."""

    def __init__(self) -> None:
        self.data: bytes | None = None


def require_same_shapes(feeds: Sequence[Feeds]) -> None:
    """Calibration has one profile, so all sample sets must have the same shapes. Raises InputError."""
    first = {name: np.shape(value) for name, value in feeds[0].items()}
    for place, other in enumerate(feeds[1:], start=2):
        for name, value in other.items():
            if np.shape(value) != first[name]:
                raise InputError(
                    f"input '{name}' of sample set {place} has shape {list(np.shape(value))}, the first one has "
                    f"{list(first[name])}", where="INT8 calibration", hint="give sample sets of one shape",
                )  # fmt: skip


def make_calibrator(trt: Any, feeds: Sequence[Feeds], device: Device, table: CalibrationTable) -> Any:
    """Return an entropy calibrator over ``feeds``, whose arrays have the network's own types.

    It keeps its table in ``table`` and takes it from there at the next build, so that a build with more outputs gets
    the same scales. Its ``failure`` is what went wrong inside TensorRT's call, where an exception would be lost.
    """

    class Calibrator(trt.IInt8EntropyCalibrator2):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IInt8EntropyCalibrator2.__init__(self)
            self.failure: Exception | None = None
            self._place = 0
            self._held: list[Buffer] = []

        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, names: Sequence[str], *_: Any) -> list[int] | None:
            if self._place >= len(feeds):
                self._held = []
                return None
            try:
                batch = feeds[self._place]
                self._held = [device.upload(np.ascontiguousarray(batch[name])) for name in names]
            except Exception as error:
                self.failure = error
                return None
            self._place += 1
            return [buffer.pointer for buffer in self._held]

        def read_calibration_cache(self, *_: Any) -> bytes | None:
            return table.data

        def write_calibration_cache(self, cache: Any, *_: Any) -> None:
            table.data = bytes(cache)

    return Calibrator()
