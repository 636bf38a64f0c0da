"""One torch tensor's numbers on its own device; the numbers are those of ``precision_debug.numbers.describe``."""

from __future__ import annotations

from typing import Any

import torch

from ... import numbers
from ...records import TensorStats
from .. import finish
from ..arrays import as_array
from ..totals import SideTotals
from . import device
from .compare import _make_shell, to_device_array
from .plain import PIECE, measure_side, name_side_numbers

__all__ = ["Described", "start_describing"]


def start_describing(tensor: Any) -> Described:
    """Queue the numbers of a tensor on its device, without a wait; on the host at once where the device cannot.

    Where ``keeps`` of the result is true, the tensor must keep its values until ``finish``.
    """
    tensor = tensor.detach()
    if tensor.numel() == 0 or tensor.is_complex() or not tensor.is_cuda:
        return Described(tensor, found=numbers.describe(as_array(tensor)))
    array = to_device_array(tensor)
    if array is None:
        return Described(tensor)
    return Described(
        tensor, queued=device.start_describing(array, torch.cuda.current_stream(tensor.device).cuda_stream)
    )


class Described:
    """Numbers that are under way. keeps: whether ``finish`` may read the tensor again."""

    def __init__(
        self, tensor: Any, *, queued: device.DeviceComparison | None = None, found: TensorStats | None = None
    ) -> None:
        self._queued, self._found = queued, found
        self.keeps = queued.keeps if queued is not None else found is None
        self._tensor = tensor if self.keeps else None

    @property
    def ready(self) -> bool:
        """Whether ``finish`` need not wait for the device."""
        return self._queued is None or self._queued.ready

    def finish(self) -> TensorStats:
        """Return the numbers; waits for the device."""
        if self._found is None:
            self._found = self._queued.finish().base if self._queued is not None else _describe_by_torch(self._tensor)
            self._tensor = self._queued = None
        return self._found


def _describe_by_torch(tensor: Any) -> TensorStats:
    flat = tensor.contiguous().view(-1)
    side = SideTotals()
    for first in range(0, flat.numel(), PIECE):
        numbers = torch.stack(measure_side(flat[first : first + PIECE].double())).tolist()
        side.add(SideTotals(**name_side_numbers(numbers)))
    return finish.finish_stats(_make_shell(tensor.dtype, tuple(tensor.shape)), side, 0)
