"""The compiled pass: kernel.c through ctypes, on all cores where a tensor is large.

Every count, extreme and index equals that of ``numpy_pass``; sums differ by their order of addition alone.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..reasons import say
from ..safety.compiled import load as load_library
from . import numpy_pass
from .blocks import Array, FlatReader
from .cores import count_available_cores
from .metrics import FURTHER, HELD
from .totals import BUCKETS, PairTotals, SideTotals, Task, Totals

__all__ = ["Kernel", "describe_kernel", "load"]

VARIABLE = "PRECISION_DEBUG_KERNEL"
LIBRARY = Path(__file__).with_name("_kernel.so")
SOURCES = ("kernel.c", "kernel_core.h", "held.h")

_THREADED_FROM = 1 << 20
"""Elements from which on a comparison is shared by threads."""
_SHARE = 1 << 18
"""Elements that a thread takes at once: a multiple of 8, large beside the cost of a call, small beside a cache miss."""

_CODES = {
    name: code
    for code, name in enumerate(
        ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
    )
}
_TABLE = len(_CODES)


class _Tolerance(ctypes.Structure):
    _fields_ = (
        ("atol", ctypes.c_double),
        ("rtol", ctypes.c_double),
        ("either", ctypes.c_int32),
        ("equal_nan", ctypes.c_int32),
    )


_COUNTS = (
    "base_nan base_inf target_nan target_inf fp16_overflow fp16_subnormal "
    "finite mismatched special identical kept first_mismatch max_abs_at max_rel_at"
)
_NUMBERS = (
    "base_min base_max base_sum base_squares target_min target_max target_sum target_squares "
    "max_abs max_rel sum_abs sum_rel squares pair_base_squares pair_target_squares dot required_atol required_rtol"
)


class _Totals(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in _COUNTS.split()),
        *((name, ctypes.c_double) for name in _NUMBERS.split()),
        *((metric.name, ctypes.c_int64 if metric.share else ctypes.c_double) for metric in HELD),
    )


@dataclass(frozen=True)
class Kernel:
    """A loaded library. ``instructions``: what it uses on this processor."""

    library: Any
    instructions: str

    @staticmethod
    def supports(*dtypes: np.dtype[Any]) -> bool:
        """Return all but 64-bit integers, complex numbers and long doubles."""
        return all(_code_of(dtype) is not None for dtype in dtypes)

    def measure(
        self, task: Task, base_dtype: np.dtype[Any], target_dtype: np.dtype[Any], counts: Array | None = None
    ) -> Totals:
        """Return the same as ``numpy_pass.measure``, of types that ``supports`` names and without scales.

        counts: 2 * BUCKETS of uint32 of the caller's, where errors are kept: their histogram is added to it.
        """
        call = _Call(self.library, task, base_dtype, target_dtype)
        call.counts = counts
        spans = [(first, min(first + _SHARE, task.size)) for first in range(0, task.size, _SHARE)] or [(0, 0)]
        threads = min(task.threads or count_available_cores(), len(spans)) if task.size >= _THREADED_FROM else 1
        parts = call.share(spans, threads - 1)
        totals = parts[0]
        for part in parts[1:]:
            totals.add(part)
        call.collect(totals.pairs)
        if FURTHER and task.target is not task.base:
            totals.pairs.declared |= numpy_pass.compute_further_metrics(task)
        return totals

    def select(self, values: Array, ranks: Sequence[int]) -> list[float]:
        """Return the same as ``select.select``, of values that lie in memory; at most 16 ranks."""
        distinct = np.array(sorted(set(ranks)), dtype=np.int64)
        found, room = np.empty(distinct.size), np.empty(2 * values.size)
        self.library.pd_select(
            values.ctypes.data, values.size, distinct.ctypes.data, distinct.size, found.ctypes.data, room.ctypes.data
        )
        by_rank = dict(zip(distinct.tolist(), found.tolist(), strict=True))
        return [by_rank[rank] for rank in ranks]

    def measure_side(self, read: FlatReader, size: int, dtype: np.dtype[Any], threads: int) -> Totals:
        """Return the same as ``numpy_pass.measure_side``."""
        return self.measure(Task.of_one(read, size, threads), dtype, dtype)


class _Call:
    """One pass: what all of its threads share."""

    def __init__(self, library: Any, task: Task, base_dtype: np.dtype[Any], target_dtype: np.dtype[Any]) -> None:
        self.library, self.task = library, task
        self.types = _code_of(base_dtype), _code_of(target_dtype)
        self.tables = _make_byte_table(base_dtype), _make_byte_table(target_dtype)
        tolerance = task.tolerance
        self.tolerance = _Tolerance(tolerance.atol, tolerance.rtol, tolerance.rule == "either", tolerance.equal_nan)
        self.histograms: list[Array] = []
        self.diffs = np.empty(task.size if task.keep == "errors" else 0)
        self.failure: BaseException | None = None
        self.counts: Array | None = None

    def share(self, spans: list[tuple[int, int]], helpers: int) -> list[Totals]:
        """Return totals of each span; this thread and its helpers take the next one in turn."""
        if len(spans) == 1 and self.task.keep != "histogram":  # a small tensor, where all that follows would show
            return [self.span(*spans[0], self.counts)]
        results: list[Totals] = [Totals()] * len(spans)
        waiting = iter(range(len(spans)))
        turn = threading.Lock()

        def work() -> None:
            try:
                histogram = np.zeros(2 * BUCKETS, dtype=np.uint32) if self.task.keep == "histogram" else None
                while self.failure is None:
                    with turn:
                        index = next(waiting, None)
                    if index is None:
                        break
                    results[index] = self.span(*spans[index], histogram)
                if histogram is not None:
                    self.histograms.append(histogram)
            except BaseException as error:
                self.failure = error

        threads = [threading.Thread(target=work, daemon=True) for _ in range(helpers)]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure
        return results

    def span(self, first: int, last: int, histogram: Array | None) -> Totals:
        base = self.task.base(first, last)
        target = base if self.task.target is self.task.base else self.task.target(first, last)
        found = _Totals()
        self.library.pd_compare(
            base.ctypes.data,
            target.ctypes.data,
            *self.types,
            *(None if table is None else table.ctypes.data for table in self.tables),
            last - first,
            first,
            self.tolerance,
            None if histogram is None else histogram.ctypes.data,
            self.diffs.ctypes.data if self.task.keep == "errors" else None,
            found,
        )
        return _decode_totals(found)

    def collect(self, pairs: PairTotals) -> None:
        if self.task.keep == "errors":
            pairs.diffs = [self.diffs[: pairs.finite]]
        if self.histograms:
            counts = sum(histogram.astype(np.int64) for histogram in self.histograms)
            pairs.histogram = np.asarray(counts).reshape(2, BUCKETS).sum(axis=0)


def _decode_totals(found: _Totals) -> Totals:
    return Totals(
        base=SideTotals(
            nan=found.base_nan,
            inf=found.base_inf,
            min=found.base_min,
            max=found.base_max,
            sum=found.base_sum,
            squares=found.base_squares,
        ),
        target=SideTotals(
            nan=found.target_nan,
            inf=found.target_inf,
            min=found.target_min,
            max=found.target_max,
            sum=found.target_sum,
            squares=found.target_squares,
        ),
        pairs=PairTotals(
            finite=found.finite,
            mismatched=found.mismatched,
            special=found.special,
            first_mismatch=found.first_mismatch,
            max_abs=found.max_abs,
            max_abs_at=found.max_abs_at,
            max_rel=found.max_rel,
            max_rel_at=found.max_rel_at,
            sum_abs=found.sum_abs,
            sum_rel=found.sum_rel,
            squares=found.squares,
            base_squares=found.pair_base_squares,
            target_squares=found.pair_target_squares,
            dot=found.dot,
            required_atol=found.required_atol,
            required_rtol=found.required_rtol,
            declared={metric.name: getattr(found, metric.name) for metric in HELD if metric.is_declared},
        ),
        fp16_overflow=found.fp16_overflow,
        fp16_subnormal=found.fp16_subnormal,
        identical=bool(found.identical),
    )


@functools.lru_cache(maxsize=256)
def _code_of(dtype: np.dtype[Any]) -> int | None:
    code = _CODES.get(dtype.name)
    return _TABLE if code is None and dtype.itemsize == 1 else code


@functools.lru_cache(maxsize=64)
def _make_byte_table(dtype: np.dtype[Any]) -> Array | None:
    """Return the value of each byte, for types of one byte that C does not know."""
    if _code_of(dtype) != _TABLE:
        return None
    every = np.arange(256, dtype=np.uint8)
    with np.errstate(all="ignore"):
        return (every != 0).astype(np.float32) if dtype == np.bool_ else every.view(dtype).astype(np.float32)


def describe_kernel() -> str:
    """One line: which pass runs here, and why."""
    kernel, reason = _open()
    if kernel is None:
        return say("numpy_blocks", why=reason)
    return say("c_kernel", instructions=kernel.instructions, count=count_available_cores())


def load() -> Kernel | None:
    """Return the kernel, or None where numpy has to do; ``describe_kernel`` says why.

    Raises UsageError where PRECISION_DEBUG_KERNEL is set to something else than "numpy".
    """
    return _open()[0]


@functools.lru_cache(maxsize=1)
def _open() -> tuple[Kernel | None, str]:
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "numpy"):
        raise UsageError(f"{VARIABLE} is {wanted!r}", hint='set it to "numpy" or not at all')
    if wanted:
        return None, f"{VARIABLE}={wanted}"
    library, problem = load_library(LIBRARY, SOURCES)
    if library is None:
        return None, f"the C kernel {problem}"
    library.pd_instructions.restype = ctypes.c_char_p
    instructions = library.pd_instructions().decode()
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    library.pd_compare.restype = library.pd_select.restype = None
    library.pd_select.argtypes = [pointer, integer, pointer, ctypes.c_int32, pointer, pointer]
    library.pd_compare.argtypes = [
        *(pointer, pointer, ctypes.c_int32, ctypes.c_int32, pointer, pointer, integer, integer),
        *(ctypes.POINTER(_Tolerance), pointer, pointer, ctypes.POINTER(_Totals)),
    ]
    return Kernel(library, instructions), ""
