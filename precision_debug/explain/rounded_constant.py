"""Whether what an operator loses is the rounding of a constant that it reads, and not of its result."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..numbers.narrowing import narrow_type as dtype_of
from ..numbers.narrowing import rounded
from .operator_facts import constants_of
from .subject import Subject
from .units import smallest_of

__all__ = ["rounded_constant"]

Array = np.ndarray[Any, Any]

_PART = 0.3
"""Share of the squared error that a constant's rounding makes from which on it is named: of a product that is rounded
too, it is a half."""


def rounded_constant(subject: Subject, name: str, exact: Array | None, wrong: Array | None) -> dict[str, Any]:
    """The constant, and by how much rounding it to the target's type is off; {} where it does not explain the error.

    Of a product the constant's relative error is the result's, of a sum its absolute one: what it would make is taken
    from what is measured, and a good part of the squared error has to go with it.
    """
    held = subject.narrow_type
    if exact is None or wrong is None or not smallest_of(held) or exact.shape != wrong.shape:
        return {}
    with np.errstate(all="ignore"):
        exact = np.asarray(exact).astype(np.float64)
        error = np.asarray(wrong).astype(np.float64) - exact
        whole = float(np.sum(np.square(error)))
        if not whole or not np.isfinite(whole):
            return {}
        for weight, values in constants_of(subject, name).items():
            value = values.astype(np.float32)
            there = rounded(value, dtype_of(held)).astype(np.float64)
            if not np.isfinite(value).all() or np.array_equal(there, value) or not _fits(value, exact):
                continue
            ratio = np.where(value != 0, there / np.where(value != 0, value, 1) - 1, 0.0)
            made = (exact * ratio, -exact * ratio, there - value, value - there)
            left = min(float(np.sum(np.square(error - one))) for one in made)
            if left < (1 - _PART) * whole:
                off = float(np.linalg.norm(there - value) / np.linalg.norm(value))
                return {"weight": weight, "held": held, "off": off}
    return {}


def _fits(value: Array, exact: Array) -> bool:
    """Whether a constant stands beside each element of a result; of a matrix product it does not."""
    try:
        return bool(np.broadcast_shapes(value.shape, exact.shape) == exact.shape)
    except ValueError:
        return False
