"""One tensor's numbers on its own device; the numbers are those of ``precision_debug.metrics.describe``."""

from __future__ import annotations

import math
from typing import Any

import torch

from precision_debug import metrics
from precision_debug.arrays import as_array
from precision_debug.metrics import finish
from precision_debug.metrics.totals import Side
from precision_debug.records import TensorStats

from .device_compare import _SAFE, _fits, _named, _shell, _side, _side_numbers

__all__ = ["Described", "start_describing"]

_PIECE = 1 << 24


def start_describing(tensor: Any) -> Described:
    """Queue the numbers of a tensor on its device, without a wait; on the host at once where the device cannot.

    The tensor must keep its values until ``finish``.
    """
    tensor = tensor.detach()
    if tensor.numel() == 0 or tensor.is_complex() or not (tensor.is_cuda or _fits(tensor, tensor)):
        return Described(tensor, found=metrics.describe(as_array(tensor)))
    if not _fits(tensor, tensor):
        return Described(tensor)
    answer = _launched(tensor.contiguous().view(-1))
    if not tensor.is_cuda:
        return Described(tensor, answer=answer)
    host = answer.to("cpu", non_blocking=True)
    return Described(tensor, answer=host, copied=torch.cuda.current_stream(tensor.device).record_event())


class Described:
    """Numbers that are under way; it keeps the tensor, because float64 may have to do it again."""

    def __init__(
        self, tensor: Any, *, answer: Any = None, copied: Any = None, found: TensorStats | None = None
    ) -> None:
        self._tensor, self._answer, self._copied, self._found = tensor, answer, copied, found

    @property
    def ready(self) -> bool:
        """Whether ``finish`` need not wait for the device."""
        return self._copied is None or bool(self._copied.query())

    def finish(self) -> TensorStats:
        """The numbers; waits for the device."""
        if self._found is not None:
            return self._found
        if self._copied is not None:
            self._copied.synchronize()
        flat = self._tensor.contiguous().view(-1)
        side = _read(self._answer) if self._answer is not None else None
        if side is None and self._answer is not None:
            side = _of_finite(flat)
        if side is None:
            side = _by_torch(flat)
        self._found = finish.stats(_shell(self._tensor.dtype, tuple(self._tensor.shape)), side, 0)
        return self._found


def _launched(flat: Any) -> Any:
    from .device_kernel import FIELDS, reduced

    row = torch.empty(len(FIELDS), dtype=torch.float64, device=flat.device)
    reduced(flat, flat, 1.0, 0.0, False, row)
    return row


def _read(answer: Any) -> Side | None:
    """None where the kernel's float32 does not hold the sums."""
    from .device_kernel import FIELDS

    column = dict(zip(FIELDS, answer.tolist(), strict=True))
    peak = max(column["base_max"], -column["base_min"])
    held = math.isfinite(column["base_sum"]) and math.isfinite(column["base_squares"])
    return _side(column, "base") if held and peak < _SAFE and not 0 < peak < 1 / _SAFE else None


def _of_finite(flat: Any) -> Side | None:
    """The kernel's numbers with 0 in place of what is not finite, and the extremes without it."""
    finite = torch.isfinite(flat)
    row = _launched(torch.where(finite, flat, 0.0))
    low = torch.where(finite, flat, math.inf).amin()
    high = torch.where(finite, flat, -math.inf).amax()
    more = torch.stack([v.double() for v in (torch.isnan(flat).sum(), torch.isinf(flat).sum(), low, high)])
    numbers = torch.cat([row, more]).cpu()
    side = _read(numbers[:-4])
    if side is not None:
        nan, inf, side.min, side.max = numbers[-4:].tolist()
        side.nan, side.inf = int(nan), int(inf)
    return side


def _by_torch(flat: Any) -> Side:
    side = Side()
    for first in range(0, flat.numel(), _PIECE):
        numbers = torch.stack(_side_numbers(flat[first : first + _PIECE].double())).tolist()
        side.add(Side(**_named(numbers)))
    return side
