"""Blocks of any numeric type as float64, and the difference of two of them.

float16, float32, bfloat16, float8_*, int4, bool and integers of up to 32 bits become float64 without loss.
int64 and uint64 are rounded to 53 bits where they stand alone, but their differences are taken before the rounding.
longdouble is rounded to float64 first. A complex number whose magnitude float64 does not hold counts as infinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .kinds import Array, is_wide_integer, plain_integers

__all__ = ["Pair", "widen", "widen_pair"]

_LARGEST_BELOW_2_64 = float(2**64 - 2**11)
"""The largest float64 that a uint64 holds: its neighbours there are 2^11 apart."""


class Pair:
    """A block of both sides: 1-D, equally long.

    base, target: float64 values; magnitudes where a side is complex.
    diff: |t - b| in float64; NaN where a side is NaN, 0 where both are the same infinity, inf where only one is.
    turn: cosine of the angle between two complex elements; 1 where none is complex.
    """

    def __init__(self, base: Array, target: Array, diff: Array, exact: Array | None = None, turn: Array | None = None):
        self.base, self.target, self.diff = base, target, diff
        self.magnitude = np.abs(base)
        self.turn = turn
        self._exact = exact

    @classmethod
    def of_one(cls, values: Array) -> Pair:
        """A block that is the same on both sides."""
        return cls(values, values, np.where(np.isnan(values), np.nan, 0.0))

    def within(self, bound: Array | float) -> Array:
        """diff <= bound, where bound is float64; of wide integers with their exact difference."""
        result: Array = self.diff <= bound
        if self._exact is not None:
            floor = np.minimum(np.floor(bound), _LARGEST_BELOW_2_64).astype(np.uint64)
            result = np.where(np.asarray(bound) > _LARGEST_BELOW_2_64, result, self._exact <= floor)
        return result


def widen(block: Array) -> Array:
    """float64 values of a block; the magnitudes of complex ones (NaN where a part is NaN)."""
    if block.dtype.kind == "c":
        values = _magnitude(block.astype(np.complex128, copy=False))
        values[np.isnan(block)] = np.nan
        return values
    return block.astype(np.float64, copy=False)


def widen_pair(base: Array, target: Array) -> Pair:
    """Both blocks widened, with their difference."""
    b, t = widen(base), widen(target)
    if base.dtype.kind == "c" or target.dtype.kind == "c":
        return _complex_pair(base, target, b, t)
    wide_base, wide_target = is_wide_integer(base.dtype), is_wide_integer(target.dtype)
    if wide_base or wide_target:
        base, target = plain_integers(base), plain_integers(target)
        if base.dtype.kind in "biu" and target.dtype.kind in "biu":
            exact, diff = _integer_difference(base, target)
            return Pair(b, t, diff, exact=exact)
        diff = _split_difference(base, t) if wide_base else _split_difference(target, b)
    else:
        diff = t - b
    np.abs(diff, out=diff)
    _same_infinity_is_zero(diff, b, t)
    return Pair(b, t, diff)


def _same_infinity_is_zero(diff: Array, base: Array, target: Array) -> None:
    if np.isnan(diff).any():
        diff[np.isinf(base) & (base == target)] = 0.0


def _complex_pair(base: Array, target: Array, b: Array, t: Array) -> Pair:
    base, target = base.astype(np.complex128, copy=False), target.astype(np.complex128, copy=False)
    diff = _magnitude(target - base)
    infinite = np.isinf(b) | np.isinf(t)
    diff[infinite] = np.where(base == target, 0.0, np.inf)[infinite]
    diff[np.isnan(b) | np.isnan(t)] = np.nan
    return Pair(b, t, diff, turn=(np.conj(base / b) * (target / t)).real)


def _magnitude(values: Array) -> Array:
    """|x| of complex128, by the C library's hypot.

    np.abs of complex numbers takes a road of its own on each processor, up to one step off: |b| and |t - b| are then
    not rounded alike, and an error just above the tolerance passes on one machine and fails on another.
    """
    result: Array = np.hypot(values.real, values.imag)
    return result


def _split_difference(integers: Array, floats: Array) -> Array:
    """floats - integers; beyond 2^53 the integer is subtracted in two exact halves, so that near values stay exact."""
    rounded = integers.astype(np.float64)
    diff: Array = floats - rounded
    far = np.abs(rounded) >= 2.0**53
    if far.any():
        chosen = integers[far]
        low = (chosen & chosen.dtype.type(0xFFFFFFFF)).astype(np.float64)
        high = (chosen >> chosen.dtype.type(32)).astype(np.float64) * 2.0**32
        diff[far] = (floats[far] - high) - low
    return diff


def _integer_difference(base: Array, target: Array) -> tuple[Array, Array]:
    """|t - b| as uint64 (saturated where it needs 65 bits) and as float64."""
    if np.uint64 in (base.dtype, target.dtype):
        b, b_negative = _sign_and_magnitude(base)
        t, t_negative = _sign_and_magnitude(target)
        apart = b_negative != t_negative
        exact = np.where(apart, b + t, np.where(t >= b, t - b, b - t))
        carry = apart & (exact < b)
        diff = exact.astype(np.float64)
        diff[carry] = b[carry].astype(np.float64) + t[carry].astype(np.float64)
        exact[carry] = np.iinfo(np.uint64).max
        return exact, diff
    b, t = base.astype(np.int64, copy=False), target.astype(np.int64, copy=False)
    larger, smaller = np.maximum(b, t).view(np.uint64), np.minimum(b, t).view(np.uint64)
    exact = larger - smaller
    return exact, exact.astype(np.float64)


def _sign_and_magnitude(block: Array) -> tuple[Array, Any]:
    if block.dtype.kind in "bu":
        return block.astype(np.uint64, copy=False), np.zeros(block.size, dtype=bool)
    signed = block.astype(np.int64, copy=False)
    bits = signed.view(np.uint64)
    return np.where(signed < 0, ~bits + np.uint64(1), bits), signed < 0
