"""How much an arithmetic must lose: the error of rounding once to the type in which a tensor is held."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..numbers.precisions import is_narrow
from ..reasons.causes import CAUSES
from ..records import Row, TensorStats

__all__ = [
    "FEW_STEPS",
    "INT4",
    "INT8",
    "INTEGERS",
    "NARROW",
    "bits_of",
    "held_type",
    "is_mended",
    "largest_of",
    "model_unit",
    "normal_of",
    "smallest_of",
    "steps_of",
    "unit_of",
]

_BITS = {
    "float64": 53, "float32": 24, "tf32": 11, "float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 3,
    "float8_e4m3fnuz": 4, "float8_e5m2fnuz": 3,
}  # fmt: skip
"""Bits of the significand, the hidden one included (IEEE 754; OCP 8-bit formats)."""

_LARGEST = {
    "float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38,
    "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "float8_e4m3fnuz": 240.0, "float8_e5m2fnuz": 57344.0,
}  # fmt: skip

NARROW = 2.0**-20
"""A unit of rounding above this is of a narrow type, not of float32."""

_SMALLEST = {
    "float16": 2.0**-24, "bfloat16": 2.0**-133, "float8_e4m3fn": 2.0**-9, "float8_e5m2": 2.0**-16,
    "float8_e4m3fnuz": 2.0**-10, "float8_e5m2fnuz": 2.0**-17,
}  # fmt: skip
"""The smallest positive numbers, subnormal ones."""

INT8 = 0.01
"""Typical unit of rounding to 8-bit integers, where the tensors' own is not known: scales that are computed while it
runs are seen in no tensor, which all hold floats then."""

INT4 = 16 * INT8
"""The same of 4-bit integers."""

FEW_STEPS = 1 / 18
"""Part of a step's rounding that a tensor may be off which both sides hold as the same integers: 8 of these units are
one step in 5 % of the elements. Engines that quantise a bias of their own differ by one step in 0.1 to 0.3 %; a resize
that ONNX Runtime 1.23 moved before its DequantizeLinear, in 38 %."""

_STEPS = {"int8": 255, "uint8": 255, "int4": 15, "uint4": 15, "int16": 65535, "uint16": 65535}
"""Steps from the least to the largest integer of a type."""

INTEGERS = frozenset(_STEPS)
"""Types of quantised tensors."""


def unit_of(held_as: str, stats: TensorStats | None) -> float:
    """Largest relative error of rounding once; for integers half a step of the tensor's own range, over its RMS.

    held_as: the type in which the target holds the tensor, in numpy's words. 0 where rounding is no question.
    """
    if held_as in _BITS:
        return float(2.0 ** -_BITS[held_as])
    steps = _STEPS.get(held_as)
    if not steps or stats is None or not stats.rms or stats.min is None or stats.max is None:
        return 0.0
    span = max(stats.max, 0.0) - min(stats.min, 0.0)
    return span / steps / 2 / stats.rms


def steps_of(held_as: str) -> int:
    """Steps from the least to the largest integer of a type; 0 of any other."""
    return _STEPS.get(held_as, 0)


def bits_of(held_as: str) -> int:
    """Bits of a floating-point type's significand, the hidden one included; 0 of any other."""
    return _BITS.get(held_as, 0)


def largest_of(held_as: str) -> float:
    """The largest finite number of a floating-point type; inf where it has none, or none that matters."""
    return _LARGEST.get(held_as, math.inf)


def smallest_of(held_as: str) -> float:
    """The smallest positive number of a narrow type; 0 where it has none that matters."""
    return _SMALLEST.get(held_as, 0.0)


def normal_of(held_as: str) -> float:
    """The smallest number of a narrow type that has all of its digits; 0 where there is none that matters."""
    return smallest_of(held_as) * 2.0 ** (_BITS.get(held_as, 1) - 1)


def model_unit(units: Iterable[float]) -> float:
    """The typical unit of a model's narrow tensors: the median of those that are not float32 or float64."""
    narrow = sorted(unit for unit in units if unit > 2.0**-20)
    if narrow:
        return narrow[len(narrow) // 2]
    return max((unit for unit in units), default=2.0**-24)


def is_mended(cause: str, precision: str) -> bool:
    """Whether a culprit of that cause is one that higher precision mends, in a run mode that has a lower one.

    precision: what the mode promises (see ``numbers.precisions``).
    """
    known = CAUSES.get(cause)
    return is_narrow(precision) and (known is None or known.mended)


def held_type(row: Row, dtype: str) -> str:
    """The type in which the target holds a row's tensor. dtype: what the session said of it."""
    if row.view.startswith("rounded to "):
        return row.view.removeprefix("rounded to ").split()[0]
    return dtype or (row.comparison.target.dtype if row.comparison is not None else "")
