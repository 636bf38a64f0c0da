"""Compares two tensors on their own device; the numbers are those of ``precision_debug.metrics.compare``.

Two ways. A Triton kernel reads float16, bfloat16 and float32 tensors on CUDA once: single errors are rounded to
float32 (6e-8 of the error), sums are within 2e-6 of the sum of magnitudes (the
cosine distance within 2e-7 times the relative difference of the norms), counts of mismatches and their first index
are float64's, the required tolerances are rounded up by a few 1e-7. Where it meets a NaN, an infinity, values whose
squares leave float32, or norms more than a factor of 2 apart, and for float64 tensors, torch does the same in float64,
a piece at a time.

Quantiles are exact below 65536 elements; above, they are those of 262144 elements in runs of 32, spread over the whole
tensor (``quantiles_exact`` is False). Other types are compared in the host's memory.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import torch

from precision_debug import metrics
from precision_debug.arrays import as_array
from precision_debug.metrics import finish
from precision_debug.metrics.totals import Pairs, Side, Totals
from precision_debug.records import Comparison, TensorStats, Tolerance

__all__ = ["compare_on_device", "describe_on_device"]

_EXACT_BELOW = 65536
_RUNS, _RUN = 8192, 32
_PIECE = 1 << 24
_FAST = (torch.float16, torch.bfloat16, torch.float32)
_SAFE = 1e17
"""Magnitudes whose squares, and sums of them over a chunk, stay inside float32."""


def compare_on_device(base: Any, target: Any, tolerance: Tolerance | None = None, *, kernel: bool = True) -> Comparison:
    """Compare two torch tensors of one device. kernel: False keeps to torch.

    Raises UsageError where the tolerance is not one.
    """
    tolerance = tolerance or Tolerance()
    base, target = base.detach(), target.detach()
    floats = base.dtype.is_floating_point and target.dtype.is_floating_point
    narrow = min(base.element_size(), target.element_size()) < 2
    if base.shape != target.shape or base.numel() == 0 or not floats or narrow or base.device != target.device:
        return metrics.compare(as_array(base), as_array(target), tolerance)
    flat_base, flat_target = base.contiguous().view(-1), target.contiguous().view(-1)
    if tolerance.check_error_stat != "elemwise":  # decides the verdict: exact, and rare
        return metrics.compare(as_array(base), as_array(target), tolerance)
    metrics.compare(np.zeros(0), np.zeros(0), tolerance)  # raises on a bad tolerance
    totals = None
    sample = None
    if kernel and _fits(flat_base, flat_target):
        totals, sample = _by_kernel(flat_base, flat_target, tolerance)
    if totals is None:
        totals = _by_torch(flat_base, flat_target, tolerance)
    if totals.pairs.max_abs == 0 and base.dtype == target.dtype:
        totals.identical = _same_bits(flat_base, flat_target)
    else:
        totals.identical = False
    at = _quantiles(flat_base, flat_target, totals, sample)
    found = finish.comparison(_shell(base), _shell(target), totals, tolerance, quantiles=at, statistic=(None, None))
    if base.numel() >= _EXACT_BELOW and totals.pairs.finite:
        found = dataclasses.replace(found, quantiles_exact=False)
    return found


def describe_on_device(tensor: Any) -> TensorStats:
    """One tensor's numbers, by the same ways and to the same accuracy."""
    return compare_on_device(tensor, tensor).base


def _fits(base: Any, target: Any) -> bool:
    return base.dtype in _FAST and target.dtype in _FAST and (base.is_cuda or _interpreted()) and _has_triton()


@functools.cache
def _has_triton() -> bool:
    try:
        from . import device_kernel  # noqa: F401
    except ImportError:
        return False
    return True


def _interpreted() -> bool:
    """Whether Triton runs in its interpreter, on CPU tensors: for tests."""
    import os

    return os.environ.get("TRITON_INTERPRET") == "1"


def _shell(tensor: Any) -> Any:
    """A numpy array of the tensor's type and shape that takes no memory."""
    one = as_array(torch.zeros((), dtype=tensor.dtype))
    return np.broadcast_to(one, tuple(tensor.shape))


def _by_kernel(base: Any, target: Any, tolerance: Tolerance) -> tuple[Totals | None, Any]:
    from .device_kernel import FIELDS, SUMS, reduced

    partial = reduced(base, target, tolerance.atol, tolerance.rtol, tolerance.rule == "either")
    sample = _sorted_sample(base, target)
    places = _ranks(sample.numel())
    host = torch.cat([partial.view(-1), sample[places]]).cpu().numpy()  # the only wait for the device
    rows = host[: partial.numel()].reshape(-1, len(FIELDS))
    column = dict(zip(FIELDS, rows.T, strict=True))
    peak = max(column["base_max"].max(), -column["base_min"].min(), column["target_max"].max(),
               -column["target_min"].min(), column["max_abs"].max())  # fmt: skip
    largest = float(column["max_abs"].max())
    tiny = 0 < largest < 1 / _SAFE
    finite = all(np.isfinite(column[name]).all() for name in SUMS)
    if not finite or not peak < _SAFE or tiny:
        return None, None
    size = base.numel()
    base_side = _side(column, "base")
    target_side = _side(column, "target")
    if not 0.25 * base_side.squares <= target_side.squares <= 4 * base_side.squares:
        return None, None  # the cosine needs the product of both, in float64
    worst = int(np.lexsort((column["max_abs_at"], -column["max_abs"]))[0])
    worst_rel = int(np.lexsort((column["max_rel_at"], -column["max_rel"]))[0])
    first = float(column["first_mismatch"].min())
    mismatched = int(column["mismatched"].sum())
    pairs = Pairs(
        finite=size,
        mismatched=mismatched,
        first_mismatch=int(first) if mismatched else -1,
        max_abs=largest,
        max_abs_at=int(column["max_abs_at"][worst]),
        max_rel=float(column["max_rel"][worst_rel]),
        max_rel_at=int(column["max_rel_at"][worst_rel]),
        sum_abs=math.fsum(column["sum_abs"]),
        sum_rel=math.fsum(column["sum_rel"]),
        squares=math.fsum(column["squares"]),
        base_squares=base_side.squares,
        target_squares=target_side.squares,
        over_1pct=int(column["over_1pct"].sum()),
        required_atol=_rounded_up(float(column["required_atol"].max()), largest if mismatched else 0.0, tolerance),
        required_rtol=float(column["required_rtol"].max()) * (1 + 4e-7),
    )
    totals = Totals(
        base=base_side, target=target_side, pairs=pairs, fp16_overflow=int(column["overflow"].sum()),
        fp16_subnormal=int(column["subnormal"].sum()),
    )  # fmt: skip
    return totals, host[partial.numel() :]


def _rounded_up(atol: float, largest: float, tolerance: Tolerance) -> float:
    """What float32 may have rounded off: of "isclose" a part of the largest error, from which it was subtracted."""
    if atol <= 0 and largest == 0:
        return 0.0
    return atol * (1 + 2.4e-7) if tolerance.rule == "either" else max(atol, 0.0) + 2.4e-7 * max(largest, atol)


def _side(column: Any, name: str) -> Side:
    return Side(
        min=float(column[f"{name}_min"].min()),
        max=float(column[f"{name}_max"].max()),
        sum=math.fsum(column[f"{name}_sum"]),
        squares=math.fsum(column[f"{name}_squares"]),
    )


def _by_torch(base: Any, target: Any, tolerance: Tolerance) -> Totals:
    totals = Totals()
    for first in range(0, base.numel(), _PIECE):
        piece = slice(first, first + _PIECE)
        totals.add(_piece(base[piece].double(), target[piece].double(), first, tolerance))
    return totals


def _piece(b: Any, t: Any, first: int, tolerance: Tolerance) -> Totals:
    finite = torch.isfinite(b) & torch.isfinite(t)
    diff = (t - b).abs()
    same_infinity = torch.isinf(b) & (b == t)
    diff = torch.where(same_infinity, 0.0, diff)
    magnitude = b.abs()
    part = tolerance.rtol * magnitude
    either = tolerance.rule == "either"
    passes = (diff <= tolerance.atol) | (diff <= part) if either else diff <= tolerance.atol + part
    special = ~(diff == 0)
    if tolerance.equal_nan:
        special &= ~(torch.isnan(b) & torch.isnan(t))
    mismatched = torch.where(finite, ~passes, special)
    d, m = torch.where(finite, diff, 0.0), torch.where(finite, magnitude, 0.0)
    relative = torch.where(finite, d / (m + 1e-7), 0.0)
    fb, ft = torch.where(finite, b, 0.0), torch.where(finite, t, 0.0)
    part = tolerance.rtol * m
    if either:
        need_a, over = torch.where(d > part, d, 0.0), d
    else:
        need_a, over = torch.where(d > part, d - part, 0.0), d - tolerance.atol
    need_r = torch.where(d > tolerance.atol, over / m, 0.0)
    infinite = ~finite & torch.isinf(diff)
    outside = torch.where(finite, d, -1.0), torch.where(finite, relative, -1.0)
    numbers = torch.stack(
        [
            *_side_numbers(b), *_side_numbers(t),
            *(
                value.double()
                for value in (
                    finite.sum(), mismatched.sum(), (special & ~finite).sum(), mismatched.to(torch.int8).argmax(),
                    outside[0].max(), outside[0].argmax(), outside[1].max(), outside[1].argmax(), d.sum(),
                    relative.sum(), d.square().sum(), fb.square().sum(), ft.square().sum(), (fb * ft).sum(),
                    ((d > 0.01 * m) & finite).sum(), need_a.max(), need_r.max(), infinite.any(),
                    infinite.to(torch.int8).argmax(), (magnitude > 65504).sum(),
                    ((magnitude < 2.0**-14) & (magnitude > 0)).sum(),
                )
            ),
        ]
    ).tolist()  # fmt: skip
    base_side, target_side, rest = Side(**_named(numbers[:6])), Side(**_named(numbers[6:12])), numbers[12:]
    pairs = Pairs(
        finite=int(rest[0]), mismatched=int(rest[1]), special=int(rest[2]),
        first_mismatch=first + int(rest[3]) if rest[1] else -1, sum_abs=rest[8], sum_rel=rest[9], squares=rest[10],
        base_squares=rest[11], target_squares=rest[12], dot=rest[13], over_1pct=int(rest[14]), required_atol=rest[15],
        required_rtol=rest[16],
    )  # fmt: skip
    if rest[0]:
        pairs.max_abs, pairs.max_abs_at = rest[4], first + int(rest[5])
        pairs.max_rel, pairs.max_rel_at = rest[6], first + int(rest[7])
    if rest[17]:
        pairs.max_abs = pairs.max_rel = math.inf
        pairs.max_abs_at = pairs.max_rel_at = first + int(rest[18])
    return Totals(
        base=base_side, target=target_side, pairs=pairs, fp16_overflow=int(rest[19]), fp16_subnormal=int(rest[20]),
        identical=False,
    )  # fmt: skip


def _side_numbers(values: Any) -> list[Any]:
    finite = torch.isfinite(values)
    kept = torch.where(finite, values, 0.0)
    return [
        torch.isnan(values).sum().double(),
        torch.isinf(values).sum().double(),
        torch.where(finite, values, math.inf).min(),
        torch.where(finite, values, -math.inf).max(),
        kept.sum(),
        kept.square().sum(),
    ]


def _named(numbers: list[float]) -> dict[str, Any]:
    found: dict[str, Any] = dict(zip(("nan", "inf", "min", "max", "sum", "squares"), numbers, strict=True))
    return {**found, "nan": int(found["nan"]), "inf": int(found["inf"])}


def _same_bits(base: Any, target: Any) -> bool:
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[base.element_size()]
    return bool(torch.equal(base.view(whole), target.view(whole)))


@functools.lru_cache(maxsize=64)
def _positions(size: int, device: torch.device) -> Any:
    """Flat indices of the sample: one run in each of 8192 equal stretches, its place in it by the golden ratio."""
    stretch = size / _RUNS
    number = torch.arange(_RUNS, dtype=torch.float64, device=device)
    start = (number * stretch + torch.frac(number * 0.6180339887498949) * max(stretch - _RUN, 0)).long()
    return torch.clamp(start[:, None] + torch.arange(_RUN, device=device), max=size - 1).view(-1)


def _sorted_sample(base: Any, target: Any) -> Any:
    """Errors of all elements, or of the sample, ascending, in float64; those that are not finite are at the end."""
    if base.numel() >= _RUNS * _RUN:
        at = _positions(base.numel(), base.device)
        base, target = base[at], target[at]
    narrow = torch.float64 not in (base.dtype, target.dtype) and base.is_cuda and base.numel() >= _EXACT_BELOW
    diff = (target.float() - base.float()).abs() if narrow else (target.double() - base.double()).abs()
    finite = torch.isfinite(base) & torch.isfinite(target)
    return torch.where(finite, diff, math.inf).sort().values.double()


def _ranks(count: int) -> list[int]:
    return [rank for q in finish.QUANTILES for rank in _around(count, q)[:2]]


def _around(count: int, q: float) -> tuple[int, int, float]:
    place = q * (count - 1)
    low = int(place)
    return low, min(low + 1, count - 1), place - low


def _quantiles(base: Any, target: Any, totals: Totals, values: Any) -> list[float] | None:
    """numpy's quantiles of the finite errors; values: those at ``_ranks`` where the kernel's path has them already."""
    if totals.pairs.finite == 0:
        return None
    count = min(base.numel(), _RUNS * _RUN)
    if values is None:
        errors = _sorted_sample(base, target)
        if totals.pairs.finite < base.numel():
            count = int(torch.isfinite(errors).sum())
            if count == 0:
                return [math.nan] * 4
        values = errors[_ranks(count)].tolist()
    found = []
    for number, q in enumerate(finish.QUANTILES):
        low, high = float(values[2 * number]), float(values[2 * number + 1])
        found.append(low + (high - low) * _around(count, q)[2])
    return found
