"""Say how much an arithmetic must lose: one rounding, what roundings may add up to, subnormal numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..numbers.number_types import NUMBER_TYPES, find_promise, is_narrow, number_type
from ..reasons.causes import CAUSES
from ..records import Explanation, Row, TensorStats

__all__ = [
    "BEYOND",
    "FEW_STEPS",
    "INT4",
    "INT8",
    "INT16",
    "INTEGERS",
    "LEAST",
    "LOOK",
    "LOOK_LEAST",
    "MOST",
    "NARROW",
    "allowed_error",
    "bits_of",
    "bound_of",
    "bound_of_many",
    "describe_underflow",
    "error_worth_failing",
    "find_lost_digits",
    "find_rounded_off",
    "held_type",
    "is_mended",
    "is_of_few_bits",
    "is_suspicious",
    "largest_of",
    "model_unit",
    "normal_of",
    "smallest_of",
    "steps_of",
    "unit_of",
]  # fmt: skip


# How much an arithmetic must lose: the error of rounding once to the type in which a tensor is held.

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
    """Return largest relative error of rounding once; for integers half a step of the tensor's own range, over its RMS.

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
    """Return bits of a floating-point type's significand, the hidden one included; 0 of any other."""
    held = number_type(held_as)
    return held.bits if held is not None else 0


def is_of_few_bits(held_as: str) -> bool:
    """Return whether a type is a float of fewer bits than float32."""
    return 0 < bits_of(held_as) < _FLOAT32_BITS


def largest_of(held_as: str) -> float:
    """Return the largest finite number of a floating-point type; inf of any other."""
    held = number_type(held_as)
    return held.largest if held is not None and held.bits else math.inf


def smallest_of(held_as: str) -> float:
    """Return the smallest positive number of a narrow type; 0 where it has none that matters."""
    held = number_type(held_as)
    return held.smallest if held is not None and held.bits < _FLOAT32_BITS else 0.0


def normal_of(held_as: str) -> float:
    """Return the smallest number of a narrow type that has all of its digits; 0 where there is none that matters."""
    held = number_type(held_as)
    return held.smallest_normal if held is not None and held.bits < _FLOAT32_BITS else 0.0


def model_unit(units: Iterable[float]) -> float:
    """Return the typical unit of a model's narrow tensors: the median of those that are not float32 or float64."""
    narrow = sorted(unit for unit in units if unit > 2.0**-20)
    if narrow:
        return narrow[len(narrow) // 2]
    return max((unit for unit in units), default=2.0**-24)


def is_mended(cause: str, precision: str) -> bool:
    """Return whether a culprit of that cause is one that higher precision mends, in a run mode that has a lower one.

    precision: what the mode promises (see ``numbers.number_types``).
    """
    known = CAUSES.get(cause)
    return is_narrow(precision) and (known is None or known.mended)


def held_type(row: Row, dtype: str) -> str:
    """Return the type in which the target holds a row's tensor. dtype: what the session said of it."""
    if row.view.startswith("rounded to "):
        return row.view.removeprefix("rounded to ").split()[0]
    return dtype or (row.comparison.target.dtype if row.comparison is not None else "")


# What an error may be where the user gave no tolerance: what the target's arithmetic must lose, and no more.
#
# Calibrated on clean and planted models (tests/planted, and real ones that PyPI's wheels ship).

BEYOND = 24.0
"""Units of rounding up to which a tensor's error is what rounding everywhere makes of a healthy model. The healthy
models of tests/planted/fourth_*.py, 10 to 60 layers deep, reach 8.5 (RESULTS.md)."""

LOOK = 3.0
"""Units of rounding from which on somebody is looked for, and from which on what one operator makes fails a run. The
faults of tests/planted begin here, where its healthy models reach 5: the size alone cannot decide."""

LOOK_TIMES = 1.5
"""Times the error that rounding everywhere predicts from which on somebody is looked for. Healthy models of
tests/planted reach 2.5 and faults begin at 0.4, so that this only saves the search where there is nothing to find."""

LOOK_LEAST = 1e-5
"""Relative L2 error up to which nobody is looked for, whatever the type: sums of float32 in another order."""

TIMES = 8.0
"""Times the error that rounding everywhere predicts of this very model: an engine may round more often. Healthy models
of 10 to 60 layers reached 1.8 (RESULTS.md, fourth batch), those of tests/planted 2.5."""

MOST = 0.1
"""Relative L2 error beyond which no answer passes by default, whatever the arithmetic."""

LEAST = 1e-4
"""Relative L2 error that is of no account whatever the type: sums of float32 in another order differ by less."""


def allowed_error(unit: float, expected: float | None) -> float:
    """Return the relative L2 error up to which a tensor is as expected.

    unit: the model's typical unit of rounding. expected: what rounding everywhere predicts; None: not known.
    """
    return max(LEAST, min(MOST, max(BEYOND * unit, TIMES * (expected or 0.0))))


def is_suspicious(error: float, unit: float, expected: float | None) -> bool:
    """Return whether it is to be asked who made an error: far below what is allowed, where the answer may be nobody.

    Healthy models of tests/planted reach 5 units and 2.5 times the prediction, faults begin at 3 units, or at 0.4 times
    the prediction where rounding goes through the same amplifier. So neither number decides: what one operator makes of
    it does, which is measured (see ``culprits``). What is less than one rounding is nobody's, unless no answer passes
    with it, as in four bits.
    """
    if error > MOST:  # no answer passes with it, however few bits
        return True
    if error <= max(LOOK_LEAST, unit):
        return False
    return error > LOOK * unit or (bool(expected) and error > LOOK_TIMES * (expected or 0.0))


def error_worth_failing(unit: float) -> float:
    """Return the relative L2 error from which on what a culprit makes fails a run: below it, it is named and the run
    passes."""
    return max(LEAST, min(MOST, LOOK * unit))


def bound_of(explanation: Explanation | None, precision: str) -> float:
    """The bound of a run without a tolerance, wherever one is asked for: what its explanation measured, and before
    there is one what the precision that the run mode promises must lose.

    precision: see RunMode.
    """
    known = explanation.allowed if explanation is not None else None
    return float(known) if known is not None else _usual_error_of(precision)


def bound_of_many(explanation: Explanation | None) -> float | None:
    """Return the bound of the same run where no single operator makes most of the error; None where that was not
    measured, or of a training step, each of whose gradients has a bound of its own."""
    if explanation is None or explanation.unit is None or explanation.of_step:
        return None
    return allowed_error(float(explanation.unit), None if explanation.expected is None else float(explanation.expected))


def _usual_error_of(precision: str) -> float:
    arithmetic = find_promise(precision).computes
    of_integers = {"int8": INT8, "int4": INT4}
    return allowed_error(of_integers.get(arithmetic) or unit_of(arithmetic, None), None)


# What lies between the smallest number of a narrow type and its smallest normal one, where it has fewer digits: a
# constant or a result there is not 0, and off all the same.

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]

_COARSE = 0.05
"""Of a number's size, what rounding it is off by where it has few digits left."""

_SOME = 8.0
"""Units of rounding that are more than a rounding of a normal number."""

_MOST = 0.5
"""Share of what is looked at from which on it is most of it."""

_PART = 0.5
"""Of the error of what is computed from a constant, the constant's own error from which on it is the reason: errors of
independent terms add up like the terms."""


def find_rounded_off(constants: Mapping[str, Array], narrow: str, error: float | None) -> Evidence:
    """Return a constant most of which lies below the normal numbers of a type, and whose rounding there makes an error;
    {} where there is none. error: relative L2, of what is computed from them. Evidence as of ``weight_underflow``."""
    normal = normal_of(narrow)
    for weight, values in constants.items() if normal and error else ():
        sizes = np.abs(values[values != 0]).astype(np.float64)
        if not sizes.size or float(np.median(sizes)) >= normal:
            continue
        step = smallest_of(narrow)
        low = sizes[sizes < normal]
        off = float(np.linalg.norm(np.round(low / step) * step - low) / np.linalg.norm(sizes))
        if off >= _PART * (error or 0.0):
            return {"weight": weight, "value": float(np.median(sizes)), "smallest": normal, "off": off}
    return {}


def find_lost_digits(exact: Array, wrong: Array, narrow: str) -> Array:
    """Return which results are below the normal numbers of a type, and off by far more than their rounding there would
    be: by much of their size, or by some of it and no more than a step of that range."""
    size, off = np.abs(exact), np.abs(wrong - exact)
    stepped = (off > _SOME * 2.0 ** -bits_of(narrow) * size) & (off <= smallest_of(narrow))
    return np.asarray((exact != 0) & (size < normal_of(narrow)) & ((off > _COARSE * size) | stepped))


def describe_underflow(lost: Array, wrong: Array, narrow: str) -> Evidence:
    """Return evidence of ``underflow``. lost: what ``find_lost_digits`` found, which makes the error."""
    gone = lost & (wrong == 0)
    if gone.sum() >= _MOST * lost.sum():
        return {"lost": int(gone.sum()), "share": float(gone.mean()), "smallest": smallest_of(narrow)}
    return {"digits": int(lost.sum()), "share": float(lost.mean()), "smallest": normal_of(narrow)}
