"""Read any array as flat blocks: what its type holds, as float64, or as text that is equal or not."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = [
    "BLOCK",
    "Array",
    "BlockPair",
    "FlatReader",
    "count_unequal",
    "dtype_name",
    "is_numeric",
    "iterate_blocks",
    "make_flat_reader",
    "may_overflow",
    "measure_norm",
    "widen",
    "widen_pair",
    "with_both_parts",
]  # fmt: skip


# What a dtype holds: numbers, wide integers, complex numbers or text, and the name that reports show for it.

Array = np.ndarray[Any, Any]


@functools.lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return numpy's or ml_dtypes' name; "str" for text of any storage (object, U, S or StringDType)."""
    return "str" if is_text(dtype) else dtype.name


def is_text(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "OUST"


def is_numeric(dtype: np.dtype[Any]) -> bool:
    """bool, integers, floats and complex numbers, those of ml_dtypes (bfloat16, float8_*, int4, ...) included."""
    return dtype.kind in "biufc" or dtype.type.__module__.startswith("ml_dtypes")


def is_wide_integer(dtype: np.dtype[Any]) -> bool:
    """int64 and uint64: float64 does not hold all of their values."""
    return dtype.kind in "iu" and dtype.itemsize == 8


def to_plain_integers(array: Array) -> Array:
    """int8 or uint8 of ml_dtypes' narrower integers (int4, uint2), which numpy takes for no integers; anything else
    as it is."""
    if array.dtype.kind in "biufc" or not array.dtype.name.startswith(("int", "uint")):
        return array
    return array.astype(np.uint8 if array.dtype.name.startswith("uint") else np.int8)


def may_overflow(dtype: np.dtype[Any]) -> bool:
    """Return whether squares of this type's values can leave the range of float64."""
    return dtype.kind in "fc" and dtype.itemsize // (2 if dtype.kind == "c" else 1) >= 8


def with_both_parts(array: Array) -> Array:
    """complex64 of ml_dtypes' complex numbers, which keep their imaginary part in no conversion to a real type; every
    value is kept. Anything else as it is."""
    if array.dtype.isbuiltin == 1:  # none of ml_dtypes'; a type's name takes longer to make than to look at
        return array
    return array.astype(np.complex64) if array.dtype.name in ("complex32", "bcomplex32") else array


# Any array as flat blocks in C order, without ever copying the whole of it.

BLOCK = 32768
"""Elements that the numpy path handles at once: a handful of float64 temporaries of this size stay in the caches."""

FlatReader = Callable[[int, int], Array]
"""(start, stop) to the elements [start, stop) in C order: contiguous, 1-D, native byte order; a view if possible."""


def make_flat_reader(array: Array) -> FlatReader:
    """Readers copy only what is asked of them, and only where strides, byte order or alignment make it necessary."""
    native = array.dtype.isnative or array.dtype.kind not in "iufc"
    dtype = array.dtype if native else array.dtype.newbyteorder("=")
    if native and array.flags.c_contiguous and array.flags.aligned:
        flat = array.reshape(-1)
        return lambda start, stop: flat[start:stop]

    def read(start: int, stop: int) -> Array:
        out = np.empty(stop - start, dtype=dtype)
        _gather(out, array, start, stop)
        return out

    return read


def _gather(out: Array, array: Array, start: int, stop: int) -> None:
    if start >= stop:
        return
    if array.ndim == 0:
        out[0] = array[()]
        return
    if array.ndim == 1:
        out[...] = array[start:stop]
        return
    inner = math.prod(array.shape[1:])
    first, last = start // inner, (stop - 1) // inner
    if first == last:
        _gather(out, array[first], start - first * inner, stop - first * inner)
        return
    head, tail = -start % inner, stop % inner
    if head:
        _gather(out[:head], array[first], inner - head, inner)
    rows = array[-(-start // inner) : stop // inner]
    out[head : out.size - tail].reshape(rows.shape)[...] = rows
    if tail:
        _gather(out[out.size - tail :], array[stop // inner], 0, tail)


def iterate_blocks(*arrays: Array) -> Iterator[tuple[int, list[Array]]]:
    """Yield where a block begins, and its elements of each of several arrays of one size: of weights of a gigabyte no
    copy is made."""
    readers = [make_flat_reader(array) for array in arrays]
    for first in range(0, arrays[0].size, BLOCK):
        last = min(first + BLOCK, arrays[0].size)
        yield first, [reader(first, last) for reader in readers]


def measure_norm(array: Array, less: Array | None = None) -> float:
    """Return the Euclidean norm of an array, or of how far it is from another one."""
    total = 0.0
    for _, blocks in iterate_blocks(array) if less is None else iterate_blocks(array, less):
        block = (blocks[0] if less is None else blocks[0] - blocks[1]).astype(np.float64, copy=False)
        total += float(np.einsum("i,i", block, block))  # a product of BLAS wakes its threads for each block
    return math.sqrt(total)


# Tensors that are not numbers: text and the like, compared by equality alone.

def count_unequal(base: Array, target: Array) -> tuple[int, int] | None:
    """Return how many elements differ and the flat index of the first one (-1: none); None where the types do not
    compare.

    Bytes are read as UTF-8, so that a bytes array can equal a str one.
    """
    if not (is_text(base.dtype) and is_text(target.dtype)) and base.dtype != target.dtype:
        return None if base.size else (0, -1)
    left, right = make_flat_reader(base), make_flat_reader(target)
    count, at = 0, -1
    for first in range(0, base.size, BLOCK):
        last = min(first + BLOCK, base.size)
        differ = _differ(left(first, last), right(first, last))
        found = int(np.count_nonzero(differ))
        if found and at < 0:
            at = first + int(np.argmax(differ))
        count += found
    return count, at


def _differ(base: Array, target: Array) -> Array:
    if base.dtype.kind == target.dtype.kind and base.dtype.kind not in "OS":
        return np.asarray(base != target)
    pairs = zip(base.tolist(), target.tolist(), strict=True)
    return np.fromiter(
        (_to_comparable_text(b) != _to_comparable_text(t) for b, t in pairs), dtype=bool, count=base.size
    )


def _to_comparable_text(value: object) -> object:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


# Blocks of any numeric type as float64, and the difference of two of them.
#
# float16, float32, bfloat16, float8_*, int4, bool and integers of up to 32 bits become float64 without loss. int64 and
# uint64 are rounded to 53 bits where they stand alone, but their differences are taken before the rounding. longdouble
# is rounded to float64 first. A complex number whose magnitude float64 does not hold counts as infinite.

_LARGEST_BELOW_2_64 = float(2**64 - 2**11)
"""The largest float64 that a uint64 holds: its neighbours there are 2^11 apart."""


class BlockPair:
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
    def of_one(cls, values: Array) -> BlockPair:
        """Return a block that is the same on both sides."""
        return cls(values, values, np.where(np.isnan(values), np.nan, 0.0))

    def within(self, bound: Array | float) -> Array:
        """Return diff <= bound, where bound is float64; of wide integers with their exact difference."""
        result: Array = self.diff <= bound
        if self._exact is not None:
            floor = np.minimum(np.floor(bound), _LARGEST_BELOW_2_64).astype(np.uint64)
            result = np.where(np.asarray(bound) > _LARGEST_BELOW_2_64, result, self._exact <= floor)
        return result


def widen(block: Array) -> Array:
    """float64 values of a block; the magnitudes of complex ones (NaN where a part is NaN)."""
    if block.dtype.kind == "c":
        values = _magnitude_of(block.astype(np.complex128, copy=False))
        values[np.isnan(block)] = np.nan
        return values
    return block.astype(np.float64, copy=False)


def widen_pair(base: Array, target: Array) -> BlockPair:
    """Return both blocks widened, with their difference."""
    b, t = widen(base), widen(target)
    if base.dtype.kind == "c" or target.dtype.kind == "c":
        return _make_complex_pair(base, target, b, t)
    wide_base, wide_target = is_wide_integer(base.dtype), is_wide_integer(target.dtype)
    if wide_base or wide_target:
        base, target = to_plain_integers(base), to_plain_integers(target)
        if base.dtype.kind in "biu" and target.dtype.kind in "biu":
            exact, diff = _subtract_integers(base, target)
            return BlockPair(b, t, diff, exact=exact)
        diff = _split_difference(base, t) if wide_base else _split_difference(target, b)
    else:
        diff = t - b
    np.abs(diff, out=diff)
    _zero_same_infinities(diff, b, t)
    return BlockPair(b, t, diff)


def _zero_same_infinities(diff: Array, base: Array, target: Array) -> None:
    if np.isnan(diff).any():
        diff[np.isinf(base) & (base == target)] = 0.0


def _make_complex_pair(base: Array, target: Array, b: Array, t: Array) -> BlockPair:
    base, target = base.astype(np.complex128, copy=False), target.astype(np.complex128, copy=False)
    diff = _magnitude_of(target - base)
    infinite = np.isinf(b) | np.isinf(t)
    diff[infinite] = np.where(base == target, 0.0, np.inf)[infinite]
    diff[np.isnan(b) | np.isnan(t)] = np.nan
    return BlockPair(b, t, diff, turn=(np.conj(base / b) * (target / t)).real)


def _magnitude_of(values: Array) -> Array:
    """|x| of complex128, by the C library's hypot.

    np.abs of complex numbers takes a road of its own on each processor, up to one step off: |b| and |t - b| are then
    not rounded alike, and an error just above the tolerance passes on one machine and fails on another.
    """
    result: Array = np.hypot(values.real, values.imag)
    return result


def _split_difference(integers: Array, floats: Array) -> Array:
    """Return floats - integers; beyond 2^53 the integer is subtracted in two exact halves, so that near values stay
    exact."""
    rounded = integers.astype(np.float64)
    diff: Array = floats - rounded
    far = np.abs(rounded) >= 2.0**53
    if far.any():
        chosen = integers[far]
        low = (chosen & chosen.dtype.type(0xFFFFFFFF)).astype(np.float64)
        high = (chosen >> chosen.dtype.type(32)).astype(np.float64) * 2.0**32
        diff[far] = (floats[far] - high) - low
    return diff


def _subtract_integers(base: Array, target: Array) -> tuple[Array, Array]:
    """|t - b| as uint64 (saturated where it needs 65 bits) and as float64."""
    if np.uint64 in (base.dtype, target.dtype):
        b, b_negative = _split_sign_and_magnitude(base)
        t, t_negative = _split_sign_and_magnitude(target)
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


def _split_sign_and_magnitude(block: Array) -> tuple[Array, Any]:
    if block.dtype.kind in "bu":
        return block.astype(np.uint64, copy=False), np.zeros(block.size, dtype=bool)
    signed = block.astype(np.int64, copy=False)
    bits = signed.view(np.uint64)
    return np.where(signed < 0, ~bits + np.uint64(1), bits), signed < 0
