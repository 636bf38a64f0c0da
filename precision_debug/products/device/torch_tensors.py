"""Compares two torch tensors on their own device; the numbers are those of ``precision_debug.numbers.compare``.

On CUDA by the ``kernels``, to the accuracy that is stated there. Elsewhere, and where the kernels do not run,
by torch's own operators in float64, piece by piece; quantiles are then exact below 65536 elements, and above read from
the same histogram as the host's, of 262144 elements in runs of 32. Other types are compared in the host's memory.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np
import torch

from ... import numbers
from ...errors import BackendError
from ...numbers import finish, histogram
from ...numbers.arrays import as_array
from ...numbers.cuda import DeviceArray
from ...numbers.cuda import open_device as device_of
from ...numbers.measuring import EXACT_BELOW, attach_totals
from ...numbers.totals import SideTotals, Totals
from ...records import Comparison, TensorStats, Tolerance
from . import kernels
from .plain import PIECE, compute_further_metrics, measure_by_torch, measure_side, name_side_numbers
from .ptx import load_kernel_code

__all__ = [
    "Described",
    "StartedComparison",
    "compare_on_device",
    "start_describing",
    "start_on_device",
    "to_device_array",
]  # fmt: skip


def compare_on_device(base: Any, target: Any, tolerance: Tolerance | None = None, *, kernel: bool = True) -> Comparison:
    """Compare two torch tensors of one device. kernel: False keeps to torch.

    Raises UsageError where the tolerance is not one.
    """
    return start_on_device(base, target, tolerance, kernel=kernel).finish()


def start_on_device(
    base: Any, target: Any, tolerance: Tolerance | None = None, *, kernel: bool = True, totals: bool = False
) -> StartedComparison:
    """Queue a comparison on the device, without a wait. Where only the host can do it, it is done here.

    totals: the result is a Measured, whose totals can be merged. Where ``keeps`` of the result is true, the tensors
    must keep their values until ``finish``. Raises UsageError where the tolerance is not one.
    """
    tolerance = tolerance or Tolerance(given=False)
    base, target = base.detach(), target.detach()
    if kernel and base.shape == target.shape and base.device == target.device and base.numel():
        ours = to_device_array(base)
        theirs = ours if base is target else to_device_array(target)
        if ours is not None and theirs is not None:
            stream = torch.cuda.current_stream(base.device).cuda_stream
            further = functools.partial(compute_further_metrics, base, target)
            queued = kernels.start(ours, theirs, tolerance, stream, totals=totals, further=further)
            return StartedComparison(base, target, tolerance, queued=queued)
    on_host = numbers.measure if totals else numbers.compare
    floats = base.dtype.is_floating_point and target.dtype.is_floating_point
    narrow = min(base.element_size(), target.element_size()) < 2
    foreign = base.shape != target.shape or base.numel() == 0 or not floats or narrow or base.device != target.device
    if foreign or tolerance.check_error_stat != "elemwise":  # such a statistic decides the verdict: exact, and rare
        return StartedComparison(base, target, tolerance, found=on_host(as_array(base), as_array(target), tolerance))
    numbers.compare(np.zeros(0), np.zeros(0), tolerance)
    return StartedComparison(base, target, tolerance, totals=totals)


class StartedComparison:
    """A comparison that is under way. keeps: whether ``finish`` may read the tensors again."""

    def __init__(
        self, base: Any, target: Any, tolerance: Tolerance, *, queued: kernels.DeviceComparison | None = None,
        found: Comparison | None = None, totals: bool = False,
    ) -> None:  # fmt: skip
        self._queued, self._found, self._tolerance, self._totals = queued, found, tolerance, totals
        self.keeps = queued.keeps if queued is not None else found is None
        self._tensors = (base, target) if self.keeps else None

    @property
    def ready(self) -> bool:
        """Whether ``finish`` need not wait for the device."""
        return self._queued is None or self._queued.ready

    def finish(self) -> Comparison:
        """Return the numbers; waits for the device."""
        if self._found is None:
            self._found = self._queued.finish() if self._queued is not None else self._by_torch()
            self._tensors = self._queued = None
        return self._found

    def _by_torch(self) -> Comparison:
        assert self._tensors is not None
        base, target = self._tensors
        flat = base.contiguous().view(-1), target.contiguous().view(-1)
        totals = measure_by_torch(*flat, self._tolerance)
        if finish.choose_scales(totals) != totals.scales:  # float64's own sums overflow
            on_host = numbers.measure if self._totals else numbers.compare
            return on_host(as_array(base), as_array(target), self._tolerance)
        at = _find_quantiles(*flat, totals)
        same = totals.pairs.max_abs == 0 and base.dtype == target.dtype
        totals.identical = same and _hold_same_bits(*flat)
        shells = _make_shell(base.dtype, tuple(base.shape)), _make_shell(target.dtype, tuple(target.shape))
        found = finish.finish_comparison(*shells, totals, self._tolerance, quantiles=at, statistic=(None, None))
        if not self._totals:
            return found
        if base.numel() < EXACT_BELOW:
            errors = _sort_errors(*flat)
            totals.pairs.diffs = [errors[: int(torch.isfinite(errors).sum())].cpu().numpy()]
        return attach_totals(found, totals)


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
        tensor, queued=kernels.start_describing(array, torch.cuda.current_stream(tensor.device).cuda_stream)
    )


class Described:
    """Numbers that are under way. keeps: whether ``finish`` may read the tensor again."""

    def __init__(
        self, tensor: Any, *, queued: kernels.DeviceComparison | None = None, found: TensorStats | None = None
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
        found = torch.stack(measure_side(flat[first : first + PIECE].double())).tolist()
        side.add(SideTotals(**name_side_numbers(found)))
    return finish.finish_stats(_make_shell(tensor.dtype, tuple(tensor.shape)), side, 0)


def to_device_array(tensor: Any) -> DeviceArray | None:
    """Return a torch tensor's memory, or a contiguous copy's, as the kernels take it; None where they do not."""
    if not tensor.is_cuda or tensor.is_sparse or not _runs(tensor.device):
        return None
    dtype = _numpy_dtype_of(tensor.dtype)
    if dtype is None:
        return None
    flat = tensor.contiguous()
    where = device_of(tensor.device.index or 0)
    return DeviceArray(where, flat.data_ptr(), tuple(tensor.shape), dtype, flat)


@functools.cache
def _runs(where: torch.device) -> bool:
    try:
        why = kernels.explain_unavailable()
        if not why:
            device_of(where.index or 0).function("exact", load_kernel_code)
    except BackendError as error:
        why = str(error)
    if why:
        warning = f"the kernels do not run on {where}, torch's own operators do their work: {why}"
        warnings.warn(warning, RuntimeWarning, stacklevel=2)
    return not why


@functools.lru_cache(maxsize=64)
def _numpy_dtype_of(dtype: torch.dtype) -> np.dtype[Any] | None:
    """Return numpy's type of whole bytes; None for complex numbers and what numpy has not."""
    if dtype.is_complex or torch.empty((), dtype=dtype).is_quantized:
        return None
    try:
        found: np.dtype[Any] = as_array(torch.zeros((), dtype=dtype)).dtype
    except Exception:
        return None
    return found


@functools.lru_cache(maxsize=256)
def _make_shell(dtype: torch.dtype, shape: tuple[int, ...]) -> Any:
    """Return a numpy array of the tensor's type and shape that takes no memory."""
    return np.broadcast_to(as_array(torch.zeros((), dtype=dtype)), shape)


def _hold_same_bits(base: Any, target: Any) -> bool:
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[base.element_size()]
    return bool(torch.equal(base.view(whole), target.view(whole)))


def _sort_errors(base: Any, target: Any) -> Any:
    """Errors of all elements, or of every n-th run, ascending, in float64; those that are not finite are at the end."""
    size = base.numel()
    if size >= kernels.RUNS * kernels.RUN:
        start = torch.arange(kernels.RUNS, device=base.device) * (size // kernels.RUNS)
        at = (start[:, None] + torch.arange(kernels.RUN, device=base.device)).view(-1)
        base, target = base[at], target[at]
    diff = (target.double() - base.double()).abs()
    finite = torch.isfinite(base) & torch.isfinite(target)
    return torch.where(finite, diff, math.inf).sort().values


def _find_quantiles(base: Any, target: Any, totals: Totals) -> list[float] | None:
    """Of a large tensor None: what its sample has goes into the totals' histogram."""
    if totals.pairs.finite == 0:
        return None
    errors = _sort_errors(base, target)
    errors = errors[: int(torch.isfinite(errors).sum())].cpu().numpy()
    if not errors.size:
        return [math.nan] * len(finish.QUANTILES)
    if base.numel() >= EXACT_BELOW:
        totals.pairs.histogram = histogram.count_buckets(errors)
        return None
    return [float(value) for value in np.quantile(errors, finish.QUANTILES)]
