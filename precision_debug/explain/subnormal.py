"""What lies between the smallest number of a narrow type and its smallest normal one, where it has fewer digits: a
constant or a result there is not 0, and off all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .units import bits_of, normal_of, smallest_of

__all__ = ["below_the_range", "lost_digits", "rounded_off"]

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


def rounded_off(constants: Mapping[str, Array], narrow: str, error: float | None) -> Evidence:
    """A constant most of which lies below the normal numbers of a type, and whose rounding there makes an error; {}
    where there is none. error: relative L2, of what is computed from them. Evidence as of ``weight_underflow``."""
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


def lost_digits(exact: Array, wrong: Array, narrow: str) -> Array:
    """Which results are below the normal numbers of a type, and off by far more than their rounding there would be:
    by much of their size, or by some of it and no more than a step of that range."""
    size, off = np.abs(exact), np.abs(wrong - exact)
    stepped = (off > _SOME * 2.0 ** -bits_of(narrow) * size) & (off <= smallest_of(narrow))
    return np.asarray((exact != 0) & (size < normal_of(narrow)) & ((off > _COARSE * size) | stepped))


def below_the_range(lost: Array, wrong: Array, narrow: str) -> Evidence:
    """Evidence of ``underflow``. lost: what ``lost_digits`` found, which makes the error."""
    gone = lost & (wrong == 0)
    if gone.sum() >= _MOST * lost.sum():
        return {"lost": int(gone.sum()), "share": float(gone.mean()), "smallest": smallest_of(narrow)}
    return {"digits": int(lost.sum()), "share": float(lost.mean()), "smallest": normal_of(narrow)}
