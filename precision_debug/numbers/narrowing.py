"""Numbers as a narrower floating-point type holds them, where an overflow is not to be its own fault.

float32 is rounded to float16 and bfloat16 by rounding.c where it is compiled, many times as fast as numpy and without a
tensor of the narrow type between; bit for bit the same.
"""

from __future__ import annotations

import functools
import math
from ctypes import c_float, c_int64, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from ..safety.compiled import load as load_library
from .native import load

__all__ = ["count_low_bits", "is_rounding", "narrow_type", "narrow_values", "round_values", "shake_values"]

Array = np.ndarray[Any, Any]

_LIBRARY = Path(__file__).with_name("_rounding.so")
_SOURCES = ("rounding.c",)
_AT_ONCE = 1 << 22
"""Elements of one call: a run that is interrupted waits for no more."""


def narrow_values(values: Array, dtype: Any) -> Array:
    """Return floats in a narrower type, to nearest even; finite ones that overflow it stay finite, at its largest.

    dtype: numpy's or ml_dtypes' own.
    """
    from ml_dtypes import finfo

    with np.errstate(over="ignore", invalid="ignore"):
        narrow: Array = values.astype(dtype)
        beyond = ~np.isfinite(narrow)
    if beyond.any() and (lost := beyond & np.isfinite(values)).any():
        largest = finfo(dtype).max
        narrow = np.where(lost, np.where(values < 0, -largest, largest).astype(dtype), narrow)
    return narrow


def round_values(values: Array, dtype: Any, out: Array | None = None) -> Array:
    """``narrow_values`` and back, in the array's own type. out: where to put it, an array of the same shape and
    type."""
    kind = np.dtype(dtype)
    function = _FUNCTIONS.get(kind.name)
    library = _load_library() if function and values.dtype == np.float32 else None
    if library is None or (out is not None and not out.flags.c_contiguous):
        back = narrow_values(values, kind).astype(values.dtype)
        if out is None:
            return back
        out[...] = back
        return out
    source = np.ascontiguousarray(values)
    to = np.empty(values.shape, np.float32) if out is None else out
    call = getattr(library, function or "")
    for first in range(0, source.size, _AT_ONCE):
        offset = 4 * first
        call(source.ctypes.data + offset, to.ctypes.data + offset, min(_AT_ONCE, source.size - first))
    return to


def shake_values(values: Array, noise: Array, unit: float, *, start: int = 0, step: float | None = None) -> Array:
    """Return each float off by its share of the noise times ``unit``: of itself, or of ``step``.

    noise: one-dimensional, float32, used again and again from ``start`` on. A mask's infinity stays what it is, and
    without a step so does what the narrow type holds exactly: see ``count_low_bits``. Values of ml_dtypes' types,
    with which
    numpy does no arithmetic of more bits than their own, are off as their type holds it.
    """
    kind = values.dtype
    low = 0 if step is not None else count_low_bits(unit, _SIGNIFICANT.get(kind.name, 0))
    flat = np.ascontiguousarray(values if kind.kind == "f" else values.astype(np.float32)).reshape(-1)
    library = _load_library() if flat.dtype == np.float32 else None
    made: Array = np.empty_like(flat)
    if library is not None:
        library.pd_shake(
            flat.ctypes.data, made.ctypes.data, flat.size, noise.ctypes.data, noise.size, start, unit, step or 0.0,
            low or 0xFFFFFFFF,
        )
        off: Array = made.reshape(values.shape).astype(kind, copy=False)
        return off
    turned = np.roll(noise, -(start % noise.size)).astype(flat.dtype) * flat.dtype.type(unit)
    with np.errstate(all="ignore"):
        for first in range(0, flat.size, noise.size):
            part = flat[first : first + noise.size]
            off = part + (part if step is None else step) * turned[: part.size]
            moves = np.isfinite(part)
            if low:
                moves &= part.view(f"u{part.itemsize}") & low != 0
            made[first : first + noise.size] = np.where(moves, off, part)
    whole: Array = made.reshape(values.shape).astype(kind, copy=False)
    return whole


def count_low_bits(unit: float, significant: int) -> int:
    """Return the bits of a float that a type with this unit of rounding does not hold; 0 where nearly all are held.

    significant: bits of the float's own significand (24 for float32). A number with none of them is rounded without an
    error: the ones and zeros of a mask, whose noise times -10000 would be that of no real engine.
    """
    more = significant - math.floor(-math.log2(unit)) if unit > 0 else 0
    return (1 << more) - 1 if _MANY <= more < significant else 0


_MANY = 5
"""Bits that a narrow type must lack: among fewer, too many ordinary numbers would have none by chance (1 in 32)."""

_SIGNIFICANT = {"float32": 24, "float64": 53}

_FUNCTIONS = {"float16": "pd_round_half", "bfloat16": "pd_round_brain"}


@functools.lru_cache(maxsize=1)
def _load_library() -> Any:
    """Return the compiled functions; None where numpy has to do."""
    if load() is None:  # it is not wanted, or nothing is compiled here
        return None
    library, _ = load_library(_LIBRARY, _SOURCES)
    if library is None:
        return None
    for name in _FUNCTIONS.values():
        function = getattr(library, name)
        function.restype, function.argtypes = None, [c_void_p, c_void_p, c_int64]
    library.pd_shake.restype = None
    library.pd_shake.argtypes = [c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_int64, c_float, c_float, c_uint32]
    return library


def narrow_type(name: str) -> Any:
    """Return the type of a name, as numpy or ml_dtypes have it ("float16", "bfloat16", "float8_e4m3fn"); None: no
    such."""
    import ml_dtypes

    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        return None


_RAISED = 1.2e-7
"""Size up to which converters to float16 give a number another one: two of its smallest steps."""


def is_rounding(values: Array, others: Array, held: str) -> bool:
    """Return whether each number is the other's rounding to a type; converters may raise what it would make 0."""
    near = round_values(values, narrow_type(held))
    return bool(((near == others) | ((np.abs(values) < _RAISED) & (np.abs(others) <= _RAISED))).all())
