"""Compares two arrays of one CUDA device by the driver alone; the numbers are those of ``numbers.compare``.

Float16, bfloat16 and float32 pairs are scanned in float32. How exact the numbers are then:

- The largest errors, the count of mismatches and the first of them are float64's.
- An element's error is float32's. Sums are within 4e-6 of the sum of magnitudes, because up to 64 elements are added
  up in float32 (usually they are within 1e-7).
- The required tolerances are rounded up by a few 1e-7 of the largest error.
- Whether an element is among those above 1 % is decided by float32's product.
- The cosine distance is within 4e-7 of the norms' difference.

The device reads both once more in float64 where the scan meets a NaN, an infinity, values whose squares leave float32,
or norms more than a factor of 2 apart. It does so at once for every other pair of types, and for memory that is not
aligned to 16 bytes. Nobody needs the tensors again for it. The host works on copies for float64 whose sums overflow,
for 64-bit integers beyond 2^52, and for all other types.

Quantiles are exact below 65536 elements (of errors rounded to float32, unless a type is wider); above, they are read
from the same histogram as the host's (``numbers.histogram``), of 262144 elements in runs of 32, spread over the tensor.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import numbers
from ...errors import BackendError
from ...numbers import finish, histogram, native, numpy_pass, statistic
from ...numbers.blocks import make_flat_reader
from ...numbers.cuda import Device, DeviceArray, open_device
from ...numbers.measuring import EXACT_BELOW, attach_totals, choose_tolerance
from ...numbers.metrics import FURTHER, HELD
from ...numbers.totals import PairTotals, SideTotals, Task, Totals
from ...records import Comparison, Tolerance
from .answer import Answer, give_back, take_answer
from .ptx import load_kernel_code

__all__ = ["FIELDS", "DeviceComparison", "explain_unavailable", "start", "start_describing"]

FIELDS = (
    "base_sum", "target_sum", "base_squares", "target_squares", "sum_abs", "squares", "sum_rel",
    "pair_base_squares", "pair_target_squares", "dot",
    "finite", "mismatched", "special", "overflow", "subnormal", "base_nan", "base_inf", "target_nan", "target_inf",
    "base_negative_inf", "target_negative_inf",
    "unheld", "unequal",
    *(metric.name for metric in HELD),
    "base_min", "target_min", "first_mismatch", "first_infinite",
    "base_max", "target_max", "required_atol", "required_rtol", "max_abs", "max_rel",
    "max_abs_at", "max_rel_at", "exact",
)  # fmt: skip
"""In the order of device.h."""

SCANNED = frozenset({"share_rel_over_1pct"})
"""Metrics of held.h that the scan counts; where that holds others, float64 reads everything."""

BUCKETS = 8192
_WORDS = 16 * BUCKETS + 3
"""Words of the scratch memory: COPIES of the histogram and what lies behind them (device.h)."""
RUNS, RUN = 8192, 32
"""Runs of elements that a histogram samples, and elements of one: 262144, see above."""
_ALIGNED = 16
"""Bytes that the scan reads at once, as a uint4."""
_SCANS, _EXACTS = 16, 8
"""Warps of a scan, and blocks of the float64 kernel, a processor."""
_SETTLING, _EXACTLY = 32, 4
"""Warps of a block that settles, and of one that reads in float64."""

_SORTED = 4096
"""Errors that are sorted faster than selected from."""

_ANY = Tolerance(atol=1.0, rtol=0.0)
_CODES = {
    name: code
    for code, name in enumerate(
        ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
         "uint64", "bool"]
    )
}  # fmt: skip
_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_SCANS_OF = frozenset({"f32_f32", "f16_f16", "bf16_bf16", "f32_f16", "f32_bf16"})
_WIDER = frozenset({"float64", "int32", "uint32", "int64", "uint64"})
"""Types whose differences float32 does not hold."""


@functools.cache
def explain_unavailable() -> str:
    """Return why tensors cannot be compared on a CUDA device here; "" where they can. Never raises."""
    try:
        open_device(0).function("settle", load_kernel_code)
    except Exception as error:
        return " ".join(str(error).split())
    return ""


class _Room:
    """What the kernels of one stream write: it is theirs one after the other."""

    def __init__(self, device: Device, stream: int) -> None:
        rows = device.processors * max(_SCANS, _EXACTS * _EXACTLY)
        self.partial = device.allocate(8 * len(FIELDS) * rows)
        self.scratch = device.allocate(4 * _WORDS)
        device.fill(self.scratch.pointer, _WORDS, stream)


_rooms: dict[tuple[int, int], _Room] = {}
_one_at_a_time = threading.Lock()

_LAYOUT = struct.Struct("=6Qq2d11i4x")
"""The kernels' argument, Job in device.h."""
_argument = ctypes.create_string_buffer(_LAYOUT.size)
_arguments = (ctypes.c_void_p * 1)(ctypes.addressof(_argument))
_ARGUMENTS = ctypes.addressof(_arguments)


def start(
    base: DeviceArray, target: DeviceArray, tolerance: Tolerance | None = None, stream: int = 0, *,
    totals: bool = False, further: Callable[[], Mapping[str, float]] | None = None,
) -> DeviceComparison:  # fmt: skip
    """Queue a comparison on a stream, without a wait. Where only the host can do it, it is done here, from copies.

    totals: the result is a Measured, whose totals can be merged. further: computes the declared metrics that the
    kernels do not hold (metrics.FURTHER), when the others are read; None: the host does, from copies.
    Both arrays may be overwritten by what is queued on
    the stream from now on, unless ``keeps`` of the result says otherwise. Raises UsageError where the tolerance is not
    one, and BackendError where the device fails.
    """
    tolerance = choose_tolerance(tolerance, base.dtype, target.dtype)
    plan = None
    there = base.shape == target.shape and base.size > 0 and base.device is target.device
    if there and tolerance.check_error_stat == "elemwise":  # others decide the verdict: exact, and rare
        rules = tolerance.atol, tolerance.rtol, tolerance.rule, tolerance.equal_nan
        aligned = (base.pointer | target.pointer) % _ALIGNED == 0
        plan = _make_plan(base.device, base.dtype, target.dtype, base.size, aligned, rules)
    return DeviceComparison(base, target, tolerance, stream, plan, totals, further)


def start_describing(array: DeviceArray, stream: int = 0) -> DeviceComparison:
    """Queue one array's numbers: ``finish().base`` has them."""
    return start(array, array, _ANY, stream)


class DeviceComparison:
    """A comparison that is under way. keeps: ``finish`` may read the arrays again, in the host's memory."""

    def __init__(
        self, base: DeviceArray, target: DeviceArray, tolerance: Tolerance, stream: int, plan: _Plan | None,
        totals: bool, further: Callable[[], Mapping[str, float]] | None,
    ) -> None:  # fmt: skip
        self._totals, self._tolerance, self._stream, self._further = totals, tolerance, stream, further
        self._answer: Answer | None = None
        self._found: Comparison | None = None
        self._asks = bool(FURTHER) and base is not target  # of one tensor by itself every metric is 0
        self.keeps = plan is None or plan.keeps or self._asks
        if plan is not None:
            self._answer = _queue(base, target, plan, stream)
        if not self.keeps:
            base = DeviceArray(base.device, 0, base.shape, base.dtype)
            target = DeviceArray(target.device, 0, target.shape, target.dtype)
        self._base, self._target = base, target

    def __del__(self) -> None:
        answer = getattr(self, "_answer", None)
        if answer is not None and not sys.is_finalizing():
            with contextlib.suppress(BackendError):
                answer.wait()  # the device may still write to it
                give_back(answer)

    @property
    def ready(self) -> bool:
        """Whether ``finish`` need not wait for the device."""
        return self._found is not None or (self._answer is not None and self._answer.ready)

    def finish(self) -> Comparison:
        """Return the numbers; waits for the device. Raises BackendError where a kernel failed."""
        if self._found is None:
            self._found = self._read()
            del self._base, self._target
        return self._found

    def _read(self) -> Comparison:
        base, target, tolerance, answer = self._base, self._target, self._tolerance, self._answer
        totals, errors = None, None
        if answer is not None:
            self._answer = None
            answer.wait()
            totals, errors = _read(answer, base, target, tolerance)
            give_back(answer)
        if totals is None or (self.keeps and finish.choose_scales(totals) != totals.scales):
            on_host = numbers.measure if self._totals else numbers.compare
            ours = base.numpy(self._stream)
            return on_host(ours, target.numpy(self._stream), tolerance)
        if self._asks:
            totals.pairs.declared |= self._further() if self._further is not None else self._by_host()
        shells = _make_shell(base.dtype, base.shape), _make_shell(target.dtype, target.shape)
        at = _find_quantiles(totals.pairs, errors)
        found = finish.finish_comparison(*shells, totals, tolerance, quantiles=at, statistic=(None, None))
        if not self._totals:
            return found
        if errors is not None:
            totals.pairs.diffs = [errors]
        return attach_totals(found, totals)

    def _by_host(self) -> Mapping[str, float]:
        """Return what no kernel holds, of copies; everything else is the device's."""
        both = (make_flat_reader(one.numpy(self._stream)) for one in (self._base, self._target))
        base, target = both
        return numpy_pass.compute_further_metrics(
            Task(base=base, target=target, size=self._base.size, tolerance=self._tolerance, keep="nothing", threads=0)
        )


def _find_quantiles(pairs: PairTotals, errors: np.ndarray[Any, Any] | None) -> list[float] | None:
    """Return numpy's, of all finite errors; None: they are read from the histogram, or there is nothing."""
    if errors is None:
        nothing = pairs.finite > 0 and pairs.histogram is not None and not pairs.histogram.any()
        return [math.nan] * len(finish.QUANTILES) if nothing else None  # the sample holds no finite pair
    if not errors.size:
        return None
    kernel = native.load() if errors.size > _SORTED else None
    choose = kernel.select if kernel is not None else _choose_by_sorting
    return statistic.find_quantiles(functools.partial(choose, errors), errors.size, finish.QUANTILES)


def _choose_by_sorting(errors: np.ndarray[Any, Any], ranks: Sequence[int]) -> list[float]:
    ordered = np.sort(errors)
    return [float(ordered[rank]) for rank in ranks]


@functools.lru_cache(maxsize=1024)
def _make_shell(dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a numpy array of the type and shape that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


@dataclass(frozen=True, eq=False)
class _Plan:
    """What pairs of some types and one size have in common: the kernels in their order, each with its blocks and
    threads, and their argument's numbers."""

    kernels: tuple[tuple[int, int, int], ...]
    numbers: tuple[Any, ...]
    extra: int
    itemsize: int
    errors: bool
    keeps: bool


@functools.lru_cache(maxsize=4096)
def _make_plan(
    device: Device, base: np.dtype[Any], target: np.dtype[Any], size: int, aligned: bool,
    rules: tuple[float, float, str, bool],
) -> _Plan | None:  # fmt: skip
    """None where the kernels do not know a type. Raises UsageError where the tolerance is not one."""
    atol, rtol, rule, equal_nan = rules
    numbers.compare(np.zeros(0), np.zeros(0), Tolerance(atol=atol, rtol=rtol, rule=rule, equal_nan=equal_nan))
    kinds = base.name, target.name
    if kinds[0] not in _CODES or kinds[1] not in _CODES:
        return None
    pair = f"{_SHORT.get(kinds[0])}_{_SHORT.get(kinds[1])}"
    scans = aligned and pair in _SCANS_OF and all(metric.name in SCANNED for metric in HELD)
    errors = size < EXACT_BELOW
    wider = errors and not _WIDER.isdisjoint(kinds)
    wide = 8 if max(base.itemsize, target.itemsize) == 2 else 4
    lanes, settling, exactly = device.lanes, device.threads(_SETTLING), device.threads(_EXACTLY)
    inner = _choose_inner_loads(size, lanes * wide, wide, device.processors)
    rows = min(-(-size // (lanes * wide * inner)), device.processors * _SCANS)
    blocks = min(-(-size // (exactly * 4)), device.processors * _EXACTS)
    extra = size if errors else BUCKETS
    last = (
        (device.function("settle", load_kernel_code), 1 + -(-extra // settling), settling),
        (device.function("exact", load_kernel_code), blocks, exactly),
    )
    scan = (device.function(f"scan_{pair}_{rule}", load_kernel_code), rows, lanes) if scans else None
    return _Plan(
        kernels=(scan, *last) if scan else last[::-1],
        numbers=(
            size, atol, rtol, _CODES[kinds[0]], _CODES[kinds[1]], rule == "either", equal_nan, rows,
            blocks * (exactly // lanes), inner, wide, 0 if errors else min(RUNS, size // RUN), wider, not scans,
        ),
        extra=extra, itemsize=8 if wider else 4, errors=errors,
        keeps=not {"float64", "int64", "uint64"}.isdisjoint(kinds),
    )  # fmt: skip


def _queue(base: DeviceArray, target: DeviceArray, plan: _Plan, stream: int) -> Answer:
    """Queue the kernels."""
    device = base.device
    answer = take_answer(device, len(FIELDS), plan.extra, plan.itemsize, plan.errors)
    with _one_at_a_time:
        before = device.enter()
        try:
            room = _rooms.get((device.ordinal, stream))
            if room is None:
                room = _rooms[device.ordinal, stream] = _Room(device, stream)
            _LAYOUT.pack_into(
                _argument, 0, base.pointer, target.pointer, room.partial.pointer, room.scratch.pointer, answer.pointer,
                answer.pointer + 8 * len(FIELDS), *plan.numbers,
            )  # fmt: skip
            for function, blocks, threads in plan.kernels:
                device.launch(function, blocks, threads, stream, _ARGUMENTS)
            answer.event.record(stream)
        except BaseException:
            _rooms.pop((device.ordinal, stream), None)  # what lies in it is not known
            raise
        finally:
            device.leave(before)
    return answer


def _choose_inner_loads(size: int, step: int, wide: int, processors: int) -> int:
    """Loads of a thread before its float32 sums are added up: few where there would be too few chunks."""
    inner = 128 // wide
    while inner > 4 and size < processors * _SCANS * step * inner:
        inner //= 2
    return inner


def _read(
    answer: Answer, base: DeviceArray, target: DeviceArray, tolerance: Tolerance
) -> tuple[Totals | None, np.ndarray[Any, Any] | None]:
    """Make the totals of a pair from the numbers that the kernel wrote, and of a small pair its finite errors. None
    where the host must compute them."""
    column = dict(zip(FIELDS, answer.row.tolist(), strict=True))
    if column["unheld"]:
        return None, None
    size = base.size
    pairs = PairTotals(
        finite=int(column["finite"]), mismatched=int(column["mismatched"]), special=int(column["special"]),
        first_mismatch=int(column["first_mismatch"]) if column["mismatched"] else -1,
        sum_abs=column["sum_abs"], sum_rel=column["sum_rel"], squares=column["squares"],
        base_squares=column["pair_base_squares"], target_squares=column["pair_target_squares"], dot=column["dot"],
        declared={metric.name: column[metric.name] for metric in HELD if metric.is_declared},
        required_atol=column["required_atol"], required_rtol=column["required_rtol"],
    )  # fmt: skip
    if pairs.finite:
        pairs.max_abs, pairs.max_abs_at = column["max_abs"], int(column["max_abs_at"])
        pairs.max_rel, pairs.max_rel_at = column["max_rel"], int(column["max_rel_at"])
    if column["first_infinite"] < size:
        pairs.max_abs = pairs.max_rel = math.inf
        pairs.max_abs_at = pairs.max_rel_at = int(column["first_infinite"])
    if not column["exact"]:
        pairs.required_atol = _round_up(pairs, tolerance)
        pairs.required_rtol = math.inf if pairs.required_rtol > 1e20 else pairs.required_rtol * (1 + 8e-7)
    sides = (
        SideTotals(
            nan=int(column[f"{side}_nan"]), inf=int(column[f"{side}_inf"]),
            negative_inf=int(column[f"{side}_negative_inf"]), min=column[f"{side}_min"],
            max=column[f"{side}_max"], sum=column[f"{side}_sum"], squares=column[f"{side}_squares"],
        )
        for side in ("base", "target")
    )  # fmt: skip
    base_side, target_side = sides
    totals = Totals(
        base=base_side, target=target_side, pairs=pairs, fp16_overflow=int(column["overflow"]),
        fp16_subnormal=int(column["subnormal"]), identical=base.dtype == target.dtype and not column["unequal"],
    )  # fmt: skip
    if answer.errors:
        errors = answer.extra[:size].astype(np.float64)
        return totals, errors if pairs.finite == size else errors[np.isfinite(errors)]
    counts = answer.extra.view(np.int32).copy()
    counts[255 << 5 :] = 0  # of what is not finite
    pairs.histogram = histogram.from_float32(counts)
    return totals, None


def _round_up(pairs: PairTotals, tolerance: Tolerance) -> float:
    """Return what float32 may have rounded off: of "isclose" a part of the largest error, from which it was
    subtracted."""
    atol, largest = pairs.required_atol, pairs.max_abs if pairs.mismatched else 0.0
    if atol <= 0 and largest == 0:
        return 0.0
    return atol * (1 + 2.4e-7) if tolerance.rule == "either" else max(atol, 0.0) + 2.4e-7 * max(largest, atol)
