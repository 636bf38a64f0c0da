"""One tensor's numbers on its own device; the numbers are those of ``precision_debug.numbers.describe``."""

from __future__ import annotations

import math
from typing import Any

import torch

from ... import numbers
from ...records import TensorStats, Tolerance
from .. import finish
from ..arrays import as_array
from ..totals import Side
from .answer import Answer, give_back
from .compare import _SAFE, _fits, _launched, _shell, _side
from .plain import named, side_numbers

__all__ = ["Described", "start_describing"]

_ANY = Tolerance(atol=1.0, rtol=0.0)
_PIECE = 1 << 24


def start_describing(tensor: Any) -> Described:
    """Queue the numbers of a tensor on its device, without a wait; on the host at once where the device cannot.

    The tensor must keep its values until ``finish``.
    """
    tensor = tensor.detach()
    if tensor.numel() == 0 or tensor.is_complex() or not (tensor.is_cuda or _fits(tensor, tensor)):
        return Described(tensor, found=numbers.describe(as_array(tensor)))
    return Described(tensor, answer=_launched(tensor, tensor, _ANY) if _fits(tensor, tensor) else None)


class Described:
    """Numbers that are under way; it keeps the tensor, because float64 may have to do it again."""

    def __init__(self, tensor: Any, *, answer: Answer | None = None, found: TensorStats | None = None) -> None:
        self._tensor, self._answer, self._found = tensor, answer, found

    def __del__(self) -> None:
        if self._answer is not None:  # the device may still write to it
            self._answer.wait()

    @property
    def ready(self) -> bool:
        """Whether ``finish`` need not wait for the device."""
        return self._answer is None or self._answer.ready

    def finish(self) -> TensorStats:
        """The numbers; waits for the device."""
        if self._found is not None:
            return self._found
        answer, self._answer = self._answer, None
        flat = self._tensor.contiguous().view(-1)
        side = _read(answer) if answer is not None else None
        if side is None and answer is not None:
            side = _of_finite(flat)
        if side is None:
            side = _by_torch(flat)
        self._found = finish.stats(_shell(self._tensor.dtype, tuple(self._tensor.shape)), side, 0)
        return self._found


def _read(answer: Answer) -> Side | None:
    """None where the kernel's float32 does not hold the sums."""
    from .kernel import FIELDS

    answer.wait()
    column = dict(zip(FIELDS, answer.values.tolist(), strict=True))
    give_back(answer)
    peak = max(column["base_max"], -column["base_min"])
    held = math.isfinite(column["base_sum"]) and math.isfinite(column["base_squares"])
    return _side(column, "base") if held and peak < _SAFE and not 0 < peak < 1 / _SAFE else None


def _of_finite(flat: Any) -> Side | None:
    """The kernel's numbers with 0 in place of what is not finite, and the extremes without it."""
    finite = torch.isfinite(flat)
    clean = torch.where(finite, flat, 0.0)
    answer = _launched(clean, clean, _ANY)
    low = torch.where(finite, flat, math.inf).amin()
    high = torch.where(finite, flat, -math.inf).amax()
    more = torch.stack([v.double() for v in (torch.isnan(flat).sum(), torch.isinf(flat).sum(), low, high)]).tolist()
    side = _read(answer)
    if side is not None:
        side.nan, side.inf, side.min, side.max = int(more[0]), int(more[1]), more[2], more[3]
    return side


def _by_torch(flat: Any) -> Side:
    side = Side()
    for first in range(0, flat.numel(), _PIECE):
        numbers = torch.stack(side_numbers(flat[first : first + _PIECE].double())).tolist()
        side.add(Side(**named(numbers)))
    return side
