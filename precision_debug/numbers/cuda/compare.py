"""Compares two tensors on their own device; the numbers are those of ``precision_debug.numbers.compare``.

Two ways. Triton kernels read float16, bfloat16 and float32 tensors on CUDA: errors are float32's before they are
summed, sums are within 4e-6 of the sum of magnitudes (up to 256 elements are added up in float32, usually to 1e-7), the
largest errors, the count of mismatches and the first of them are float64's, the required tolerances are rounded up by a
few 1e-7, and the share of errors above 1 % and the count of float16's subnormals take a magnitude below 1e-30 for 0.
Where they meet a NaN, an infinity, values whose squares leave float32, or norms more than a factor of 2 apart, and for
float64 tensors, another kernel does the same in float64 (``exact``); without Triton torch does, by pieces.

Quantiles are exact below 65536 elements (of errors in float32 where the kernels ran); above, they are read from the
same histogram as the host's (``numbers.histogram``), of 262144 elements in runs of 32, spread over the whole tensor.
Other types are compared in the host's memory.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np
import torch

from ... import numbers
from ...records import Comparison, TensorStats, Tolerance
from .. import finish, histogram
from ..arrays import as_array
from ..measure import measured
from ..totals import Pairs, Side, Totals
from .answer import Answer, give_back, taken
from .plain import SIDE, by_torch, named, others

__all__ = ["Started", "compare_on_device", "describe_on_device", "start_on_device"]

_EXACT_BELOW = 65536
_RUNS, _RUN = 8192, 32
_FAST = (torch.float16, torch.bfloat16, torch.float32)
_SAFE = 1e17
"""Magnitudes whose squares, and sums of them over a chunk, stay inside float32."""


def compare_on_device(base: Any, target: Any, tolerance: Tolerance | None = None, *, kernel: bool = True) -> Comparison:
    """Compare two torch tensors of one device. kernel: False keeps to torch.

    Raises UsageError where the tolerance is not one.
    """
    return start_on_device(base, target, tolerance, kernel=kernel).finish()


def start_on_device(
    base: Any, target: Any, tolerance: Tolerance | None = None, *, kernel: bool = True, totals: bool = False
) -> Started:
    """Queue a comparison on the device, without a wait. Where only the host can do it, it is done here.

    totals: the result is a Measured, whose totals can be merged.

    The tensors must keep their values until ``finish``. Raises UsageError where the tolerance is not one.
    """
    tolerance = tolerance or Tolerance()
    base, target = base.detach(), target.detach()
    on_host = numbers.measure if totals else numbers.compare
    floats = base.dtype.is_floating_point and target.dtype.is_floating_point
    narrow = min(base.element_size(), target.element_size()) < 2
    foreign = base.shape != target.shape or base.numel() == 0 or not floats or narrow or base.device != target.device
    if foreign or tolerance.check_error_stat != "elemwise":  # such a statistic decides the verdict: exact, and rare
        return Started(base, target, tolerance, found=on_host(as_array(base), as_array(target), tolerance))
    _check(tolerance)
    if not kernel or not _fits(base, target):
        return Started(base, target, tolerance, totals=totals)
    return Started(base, target, tolerance, totals=totals, answer=_launched(base, target, tolerance))


class Started:
    """A comparison that is under way; it keeps both tensors, because float64 may have to do it again."""

    def __init__(
        self, base: Any, target: Any, tolerance: Tolerance, *, answer: Answer | None = None,
        found: Comparison | None = None, totals: bool = False,
    ) -> None:  # fmt: skip
        self._base, self._target, self._tolerance = base, target, tolerance
        self._answer, self._found, self._totals = answer, found, totals

    def __del__(self) -> None:
        if self._answer is not None:  # the device may still write to it
            self._answer.wait()

    @property
    def ready(self) -> bool:
        """Whether ``finish`` need not wait for the device."""
        return self._answer is None or self._answer.ready

    def finish(self) -> Comparison:
        """The numbers; waits for the device."""
        if self._found is not None:
            return self._found
        base, target, tolerance = self._base, self._target, self._tolerance
        shells = _shell(base.dtype, tuple(base.shape)), _shell(target.dtype, tuple(target.shape))
        totals, at = None, None
        if self._answer is not None:
            self._answer.wait()
            totals, at = _read(self._answer, base.numel(), tolerance)
            give_back(self._answer)
            self._answer = None
        if totals is None:
            flat = base.contiguous().view(-1), target.contiguous().view(-1)
            totals = _exactly(*flat, tolerance)
            if finish.rescaled(totals) != totals.scales:  # float64's own sums overflow
                on_host = numbers.measure if self._totals else numbers.compare
                self._found = on_host(as_array(base), as_array(target), tolerance)
                return self._found
            at = _quantiles(*flat, totals)
        declared = totals.pairs.declared
        declared |= others(base.contiguous().view(-1), target.contiguous().view(-1), declared)
        same = totals.pairs.max_abs == 0 and base.dtype == target.dtype
        totals.identical = same and _same_bits(base.contiguous().view(-1), target.contiguous().view(-1))
        found = finish.comparison(*shells, totals, tolerance, quantiles=at, statistic=(None, None))
        if self._totals:
            if base.numel() < _EXACT_BELOW:
                totals.pairs.diffs = [_finite_errors(base, target)]
            found = measured(found, totals)
        self._found = found
        return self._found


@functools.lru_cache(maxsize=64)
def _check(tolerance: Tolerance) -> None:
    """Raise UsageError where the tolerance is not one."""
    numbers.compare(np.zeros(0), np.zeros(0), tolerance)


def describe_on_device(tensor: Any) -> TensorStats:
    """One tensor's numbers, by the same ways and to the same accuracy."""
    return compare_on_device(tensor, tensor).base


def _fits(base: Any, target: Any, types: tuple[Any, ...] = _FAST) -> bool:
    return base.dtype in types and target.dtype in types and (base.is_cuda or _interpreted()) and _has_triton()


@functools.cache
def _has_triton() -> bool:
    try:
        from . import kernel  # noqa: F401
    except ImportError:
        return False
    return True


def _interpreted() -> bool:
    """Whether Triton runs in its interpreter, on CPU tensors: for tests."""
    import os

    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.lru_cache(maxsize=256)
def _shell(dtype: torch.dtype, shape: tuple[int, ...]) -> Any:
    """A numpy array of the tensor's type and shape that takes no memory."""
    return np.broadcast_to(as_array(torch.zeros((), dtype=dtype)), shape)


def _launched(base: Any, target: Any, tolerance: Tolerance) -> Answer:
    """Queue the kernels; what they will leave: FIELDS, and each error or the histogram of a sample's."""
    from .kernel import FIELDS
    from .sample import BUCKETS

    device, either, errors = base.device, tolerance.rule == "either", base.numel() < _EXACT_BELOW
    one, two = base.contiguous().view(-1), target.contiguous().view(-1)
    answer = taken(len(FIELDS), base.numel() if errors else BUCKETS, errors, device)
    _queue(one, two, tolerance, either, answer)
    if answer.copied is not None:
        answer.copied.record(torch.cuda.current_stream(device))
    return answer


_refused: set[Any] = set()
"""Devices on which the scan does not compile or start; with "exact" beside them, on which ``exact`` does not."""


def _queue(one: Any, two: Any, tolerance: Tolerance, either: bool, answer: Answer) -> None:
    from . import scan

    if one.device not in _refused:
        try:
            scan.scanned(one, two, tolerance.atol, tolerance.rtol, either, answer.row, answer.extra)
            return
        except Exception as error:
            if not one.is_cuda:
                raise
            _refused.add(one.device)
            scan.forget()
            told = f"the scan does not run on {one.device}, the slower kernel is used: {error}"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
    _queue_reduced(one, two, tolerance, either, answer)


def _queue_reduced(one: Any, two: Any, tolerance: Tolerance, either: bool, answer: Answer) -> None:
    from .kernel import reduced
    from .sample import BUCKETS, COPIES, sampled

    row = torch.empty(answer.row.shape, dtype=torch.float64, device=one.device)
    reduced(one, two, tolerance.atol, tolerance.rtol, either, row)
    answer.row.copy_(row, non_blocking=True)
    if answer.extra.dtype == torch.float32:
        answer.extra[: one.numel()].copy_((two.float() - one.float()).abs(), non_blocking=True)
    else:
        copies = torch.zeros((COPIES, BUCKETS), dtype=torch.int32, device=one.device)
        counts = torch.empty_like(copies[0])
        sampled(one, two, copies, counts)
        answer.extra.copy_(counts, non_blocking=True)


def _read(answer: Answer, size: int, tolerance: Tolerance) -> tuple[Totals | None, Any]:
    """The totals and the quantiles; None where float32 does not hold them."""
    from .kernel import FIELDS, SUMS

    column = dict(zip(FIELDS, answer.values.tolist(), strict=True))
    largest = column["max_abs"]
    peak = max(column["base_max"], -column["base_min"], column["target_max"], -column["target_min"], largest)
    tiny = 0 < largest < 1 / _SAFE
    if not all(math.isfinite(column[name]) for name in SUMS) or not peak < _SAFE or tiny:
        return None, None
    base_side, target_side = _side(column, "base"), _side(column, "target")
    if not 0.25 * base_side.squares <= target_side.squares <= 4 * base_side.squares:
        return None, None  # the cosine needs the product of both, in float64
    mismatched = int(column["mismatched"])
    pairs = Pairs(
        finite=size,
        mismatched=mismatched,
        first_mismatch=int(column["first_mismatch"]),
        max_abs=largest,
        max_abs_at=int(column["max_abs_at"]),
        max_rel=column["max_rel"],
        max_rel_at=int(column["max_rel_at"]),
        sum_abs=column["sum_abs"],
        sum_rel=column["sum_rel"],
        squares=column["squares"],
        base_squares=base_side.squares,
        target_squares=target_side.squares,
        declared=_fused(column),
        required_atol=_rounded_up(column["required_atol"], largest if mismatched else 0.0, tolerance),
        required_rtol=_unbounded(column["required_rtol"] * (1 + 8e-7)),
    )
    totals = Totals(
        base=base_side, target=target_side, pairs=pairs, fp16_overflow=int(column["overflow"]),
        fp16_subnormal=int(column["subnormal"]),
    )  # fmt: skip
    if size < _EXACT_BELOW:
        return totals, _between(np.sort(answer.extras[:size])[_ranks(size)], size)
    pairs.histogram = histogram.from_float32(answer.extras)
    return totals, None


def _unbounded(rtol: float) -> float:
    """The kernel divides by 1e-30 where the baseline is 0."""
    return math.inf if rtol > 1e20 else rtol


def _rounded_up(atol: float, largest: float, tolerance: Tolerance) -> float:
    """What float32 may have rounded off: of "isclose" a part of the largest error, from which it was subtracted."""
    if atol <= 0 and largest == 0:
        return 0.0
    return atol * (1 + 2.4e-7) if tolerance.rule == "either" else max(atol, 0.0) + 2.4e-7 * max(largest, atol)


def _side(column: dict[str, float], name: str) -> Side:
    return Side(
        min=column[f"{name}_min"], max=column[f"{name}_max"], sum=column[f"{name}_sum"],
        squares=column[f"{name}_squares"],
    )  # fmt: skip


def _exactly(base: Any, target: Any, tolerance: Tolerance) -> Totals:
    """The totals in float64."""
    if _fits(base, target, (*_FAST, torch.float64)) and (base.device, "exact") not in _refused:
        try:
            return _by_kernel(base, target, tolerance)
        except Exception as error:
            if not base.is_cuda:
                raise
            _refused.add((base.device, "exact"))
            told = f"the float64 kernel does not run on {base.device}, torch's own operators do its work: {error}"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
    return by_torch(base, target, tolerance)


def _by_kernel(base: Any, target: Any, tolerance: Tolerance) -> Totals:
    from .exact import read_exactly

    totals = _of_fields(read_exactly(base, target, tolerance), base.numel())
    scales = finish.rescaled(totals)
    if scales != totals.scales:
        totals = _of_fields(read_exactly(base, target, tolerance, scales), base.numel())
        totals.scales = scales
    return totals


def _of_fields(column: dict[str, float], size: int) -> Totals:
    pairs = Pairs(
        finite=int(column["finite"]), mismatched=int(column["mismatched"]), special=int(column["special"]),
        first_mismatch=int(column["first_mismatch"]) if column["mismatched"] else -1, sum_abs=column["sum_abs"],
        sum_rel=column["sum_rel"], squares=column["squares"], base_squares=column["pair_base_squares"],
        target_squares=column["pair_target_squares"], dot=column["dot"], declared=_fused(column),
        required_atol=column["required_atol"], required_rtol=column["required_rtol"],
    )  # fmt: skip
    if pairs.finite:
        pairs.max_abs, pairs.max_abs_at = column["max_abs"], int(column["max_abs_at"])
        pairs.max_rel, pairs.max_rel_at = column["max_rel"], int(column["max_rel_at"])
    if column["first_infinite"] < size:
        pairs.max_abs = pairs.max_rel = math.inf
        pairs.max_abs_at = pairs.max_rel_at = int(column["first_infinite"])
    sides = ({name: column[f"{side}_{name}"] for name in SIDE} for side in ("base", "target"))
    base_side, target_side = (Side(**named(list(side.values()))) for side in sides)
    return Totals(
        base=base_side, target=target_side, pairs=pairs, fp16_overflow=int(column["overflow"]),
        fp16_subnormal=int(column["subnormal"]), identical=False,
    )  # fmt: skip


FUSED = {"share_rel_over_1pct": "over_1pct"}
"""Declared metrics that the kernels count, and the name of the kernels' field."""


def _fused(column: dict[str, float]) -> dict[str, float]:
    return {name: column[field] for name, field in FUSED.items()}


def _same_bits(base: Any, target: Any) -> bool:
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[base.element_size()]
    return bool(torch.equal(base.view(whole), target.view(whole)))


def _sorted_errors(base: Any, target: Any) -> Any:
    """Errors of all elements, or of every n-th run, ascending, in float64; those that are not finite are at the end."""
    size = base.numel()
    if size >= _RUNS * _RUN:
        start = torch.arange(_RUNS, device=base.device) * (size // _RUNS)
        at = (start[:, None] + torch.arange(_RUN, device=base.device)).view(-1)
        base, target = base[at], target[at]
    diff = (target.double() - base.double()).abs()
    finite = torch.isfinite(base) & torch.isfinite(target)
    return torch.where(finite, diff, math.inf).sort().values


def _ranks(count: int) -> list[int]:
    return [rank for q in finish.QUANTILES for rank in _around(count, q)[:2]]


def _around(count: int, q: float) -> tuple[int, int, float]:
    place = q * (count - 1)
    low = int(place)
    return low, min(low + 1, count - 1), place - low


def _between(values: Any, count: int) -> list[float]:
    """numpy's quantiles of ``count`` errors; values: those at ``_ranks``."""
    pairs = zip(finish.QUANTILES, values[::2], values[1::2], strict=True)
    return [float(low) + (float(high) - float(low)) * _around(count, q)[2] for q, low, high in pairs]


def _finite_errors(base: Any, target: Any) -> Any:
    """The errors of the finite pairs, as an array."""
    errors = _sorted_errors(base.contiguous().view(-1), target.contiguous().view(-1))
    return errors[: int(torch.isfinite(errors).sum())].cpu().numpy()


def _quantiles(base: Any, target: Any, totals: Totals) -> list[float] | None:
    """Of a large tensor None: what its sample has goes into the totals' histogram."""
    if totals.pairs.finite == 0:
        return None
    errors = _sorted_errors(base, target)
    count = errors.numel()
    if totals.pairs.finite < base.numel():
        count = int(torch.isfinite(errors).sum())
        if count == 0:
            return [math.nan] * 4
    if base.numel() >= _EXACT_BELOW:
        totals.pairs.histogram = histogram.bucket_counts(errors[:count].cpu().numpy())
        return None
    return _between(errors[_ranks(count)].tolist(), count)
