"""Torch tensors as explanations handle them, on their own device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from precision_debug import registry
from precision_debug.numbers.arrays import as_array
from precision_debug.numbers.narrowing import count_low_bits
from precision_debug.observe.store import Store
from precision_debug.protocols import TorchComparison
from precision_debug.records import Comparison, Tolerance

from .on_device import DeviceComparer, bring_together, move_to_device

__all__ = ["TorchWorkbench"]

_SUSPECTS = 6 << 30
"""Bytes of suspects' tensors that stay on the device, at most."""


_PIECE = 1 << 24
_ANY = Tolerance()
_SIGNIFICANT = {torch.float32: 24, torch.float64: 53}
"""Bits of the significand of the types that are wider than what they are rounded to."""


class TorchWorkbench:
    """See protocols.Workbench."""

    on_device = True
    rate = 20e9

    def __init__(self) -> None:
        self._noise: dict[Any, Any] = {}
        self._product: TorchComparison = registry.import_from_door("comparers", "torch")
        self._comparer = DeviceComparer()

    def host(self, value: Any) -> Any:
        return as_array(value)

    def returned(self, outputs: Mapping[str, Any], name: str) -> Any:
        there = getattr(outputs, "there", None)
        return outputs[name] if there is None else there(name)

    def kept(self, value: Any) -> Any:
        return value.detach().clone()

    def lasting(self, value: Any) -> Any:
        return value.detach().clone()

    def is_float(self, value: Any) -> bool:
        return bool(value.dtype.is_floating_point)

    def compare(self, base: Any, target: Any) -> Comparison:
        return self._product.compare_on_device(*bring_together(base, target))

    def start(self, base: Any, target: Any, then: Callable[[Comparison], None]) -> None:
        self._comparer.compare(base, target, _ANY, then)

    def settle(self) -> None:
        self._comparer.settle()

    def squares(self, base: Any, target: Any, bound: float) -> tuple[float, float, int]:
        error = size = 0.0
        count = 0
        flat = [one.reshape(-1) for one in bring_together(base, target)]
        for first in range(0, flat[0].numel(), _PIECE):
            b, t = (one[first : first + _PIECE].double() for one in flat)
            fair = b.isfinite() & t.isfinite() & (b.abs() <= bound)
            b, t = torch.where(fair, b, 0.0), torch.where(fair, t, 0.0)
            numbers = torch.stack([(t - b).square().sum(), b.square().sum(), fair.sum().double()]).tolist()
            error, size, count = error + numbers[0], size + numbers[1], count + int(numbers[2])
        return error, size, count

    def unmoved(self, wanted: Any, got: Any) -> float | None:
        if wanted.shape != got.shape:
            return None
        wanted, got = bring_together(wanted, got)
        moving = wanted != 0
        still = moving & (got == 0)
        numbers = torch.stack([moving.sum(), still.sum(), (~got.isfinite()).sum()]).tolist()  # asked for at once
        return None if numbers[2] or not numbers[0] else float(numbers[1] / numbers[0])

    def shaken(self, value: Any, noise: Any, unit: float, start: int, step: float | None) -> Any:
        if not value.dtype.is_floating_point:
            return None
        many = int(noise.size)
        key = value.device, value.dtype, many, float(noise[0])
        known = self._noise.get(key)
        if known is None:
            twice = torch.from_numpy(np.array(noise)).repeat(2)
            known = self._noise[key] = twice.to(value.device, value.dtype)
        begun = start % many
        turned = known[begun : begun + many] * unit
        if step is None:
            turned += 1
        else:
            turned *= step
        flat = value.contiguous().view(-1)
        made = torch.empty_like(flat)
        whole = flat.numel() // many * many
        for one, two, own in (
            (flat[:whole].view(-1, many), made[:whole].view(-1, many), turned),
            (flat[whole:], made[whole:], turned[: flat.numel() - whole]),
        ):
            if one.numel():  # what is not finite stays so: the factors are positive, and the steps finite
                (torch.mul if step is None else torch.add)(one, own, out=two)
        low = 0 if step is not None else count_low_bits(unit, _SIGNIFICANT.get(value.dtype, 0))
        if low:  # what the narrow type holds exactly
            bits = flat.view(torch.int32 if flat.dtype is torch.float32 else torch.int64)
            made = torch.where((bits & low) == 0, flat, made)
        cut = made.numel() and step is not None
        return (_cut_to_range(made, *_find_range(value)) if cut else made).view(value.shape)

    def with_error(self, value: Any, exact: Any, wrong: Any) -> Any:
        if value.shape != exact.shape:
            return None
        exact, wrong = exact.to(value.device), wrong.to(value.device)
        if not value.dtype.is_floating_point:
            fits = value.dtype == wrong.dtype == exact.dtype
            return torch.where(wrong != exact, wrong, value) if fits else None
        exact, wrong = exact.to(value.dtype), wrong.to(value.dtype)
        added = value + torch.where(exact.isfinite(), wrong - exact, torch.zeros_like(exact))
        lost, ends = ~wrong.isfinite() & exact.isfinite(), _find_range(value, wrong) if value.numel() else ()
        added = _cut_to_range(added, *ends) if ends else added
        for end in (0.0, *ends):
            lost |= (wrong == end) & (exact != end) & ((value - end).abs() / 4 <= (exact - end).abs())
        lost |= value == exact  # of a mask at the end of float32, what is added and taken away again leaves 0
        return torch.where(lost, wrong, added)

    def store(self, folder: Path, budget: int) -> _Kept:  # noqa: ARG002
        return _Kept(_SUSPECTS // 2)

    def waiting(self, folder: Path, budget: int) -> _Kept:
        return _Kept(_half_of_free_memory(), Store(folder=folder, memory_budget=budget))


def _find_range(*tensors: Any) -> tuple[Any, Any]:
    """Return where the numbers of tensors begin and end, of which an infinity is one and NaN is none: see
    explain.workbench. Nothing is asked of the device."""
    low = torch.stack([torch.where(one.isnan(), math.inf, one).amin() for one in tensors]).amin()
    return low, torch.stack([torch.where(one.isnan(), -math.inf, one).amax() for one in tensors]).amax()


def _cut_to_range(tensor: Any, low: Any, high: Any) -> Any:
    """Return a tensor, cut off at these limits."""
    nothing = low > high  # all of them are NaN
    return torch.where(nothing, tensor, torch.clamp(tensor, min=low, max=high))


def _half_of_free_memory() -> int | None:
    """Return bytes of the current card: the other half is the runs' own. None where torch sees no card."""
    return int(torch.cuda.mem_get_info()[0]) // 2 if torch.cuda.is_available() else None


class _Kept:
    """Copies on their own device, up to a budget where there is one.

    beyond: where what comes over it is kept instead; None: it is left out.
    """

    def __init__(self, budget: int | None, beyond: Store | None = None) -> None:
        self._held: dict[str, Any] = {}
        self._left = math.inf if budget is None else budget
        self._beyond = beyond
        self._devices: dict[str, Any] = {}

    def put(self, key: str, tensor: Any) -> None:
        if tensor.nbytes <= self._left:
            self._left -= tensor.nbytes
            self._held[key] = tensor.detach().clone()
        elif self._beyond is not None:
            self._beyond.put(key, as_array(tensor, name=key))
            self._devices[key] = tensor.device

    def get(self, key: str) -> Any:
        kept = self._beyond.get(key) if self._beyond is not None else None
        return self._held.get(key) if kept is None else move_to_device(kept, self._devices[key])

    def drop(self, key: str) -> None:
        if self._beyond is not None and self._devices.pop(key, None) is not None:
            self._beyond.drop(key)
        tensor = self._held.pop(key, None)
        self._left += 0 if tensor is None else tensor.nbytes

    def __contains__(self, key: object) -> bool:
        return key in self._held or key in self._devices

    def __iter__(self) -> Iterator[str]:
        return iter([*self._held, *self._devices])

    def close(self) -> None:
        self._held.clear()
        if self._beyond is not None:
            self._beyond.close()
