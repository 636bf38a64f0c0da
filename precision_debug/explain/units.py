"""How much an arithmetic must lose: the error of rounding once to the type in which a tensor is held."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..numbers.number_types import NUMBER_TYPES, number_type
from ..numbers.precisions import is_narrow
from ..reasons.causes import CAUSES
from ..records import Row, TensorStats

__all__ = [
    "FEW_STEPS",
    "INT4",
    "INT8",
    "INT16",
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

_FLOAT32_BITS = NUMBER_TYPES["float32"].bits

NARROW = 2.0**-20
"""A unit of rounding above this is of a narrow type, not of float32."""

INT8 = 0.01
"""Typical unit of rounding to 8-bit integers, where the tensors' own is not known: scales that are computed while it
runs are seen in no tensor, which all hold floats then."""

INT4 = 16 * INT8
"""The same of 4-bit integers."""

INT16 = INT8 / 16
"""The same of 16-bit ones: their steps are 257 times finer, and a scale that an operator fixes (that of a Softmax, for
all of 0 to 1) spends a few of these bits."""

FEW_STEPS = 1 / 18
"""Part of a step's rounding that a tensor may be off which both sides hold as the same integers: 8 of these units are
one step in 5 % of the elements. Engines that quantise a bias of their own differ by one step in 0.1 to 0.3 %; a resize
that ONNX Runtime 1.23 moved before its DequantizeLinear, in 38 %."""

INTEGERS = frozenset(one.name for one in NUMBER_TYPES.values() if 0 < one.steps < 1 << 16)
"""Types of quantised tensors."""


def unit_of(held_as: str, stats: TensorStats | None) -> float:
    """Largest relative error of rounding once; for integers half a step of the tensor's own range, over its RMS.

    held_as: the type in which the target holds the tensor, in numpy's words. 0 where rounding is no question.
    """
    held = number_type(held_as)
    if held is not None and held.bits:
        return held.rounding
    steps = steps_of(held_as)
    if not steps or stats is None or not stats.rms or stats.min is None or stats.max is None:
        return 0.0
    span = max(stats.max, 0.0) - min(stats.min, 0.0)
    return span / steps / 2 / stats.rms


def steps_of(held_as: str) -> int:
    """Steps from the least to the largest integer of a quantised type; 0 of any other."""
    return NUMBER_TYPES[held_as].steps if held_as in INTEGERS else 0


def bits_of(held_as: str) -> int:
    """Bits of a floating-point type's significand, the hidden one included; 0 of any other."""
    held = number_type(held_as)
    return held.bits if held is not None else 0


def largest_of(held_as: str) -> float:
    """The largest finite number of a floating-point type; inf of any other."""
    held = number_type(held_as)
    return held.largest if held is not None and held.bits else math.inf


def smallest_of(held_as: str) -> float:
    """The smallest positive number of a narrow type; 0 where it has none that matters."""
    held = number_type(held_as)
    return held.smallest if held is not None and held.bits < _FLOAT32_BITS else 0.0


def normal_of(held_as: str) -> float:
    """The smallest number of a narrow type that has all of its digits; 0 where there is none that matters."""
    held = number_type(held_as)
    return held.smallest_normal if held is not None and held.bits < _FLOAT32_BITS else 0.0


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
