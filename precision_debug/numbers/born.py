"""NaN and Inf that stand on one side alone: no number says how wrong they are, so that every error is infinite."""

from __future__ import annotations

import dataclasses
import math

from ..records import Comparison, Introduced, Row, TensorStats
from .metrics import DECLARED

__all__ = [
    "CLAMPED",
    "MASK",
    "compute_finite_l2",
    "compute_finite_rmse",
    "is_broken",
    "largest_magnitude",
    "make_infinite",
    "make_introduced_infinite",
    "may_be_mask",
]  # fmt: skip

MASK = 1e18
"""Beyond this a float32 is not a number but a mask ("minus infinity"), which a narrow type may hold as -inf."""

CLAMPED = 1e4
"""The least that converters to narrow types put in the place of an infinity."""

_TWO_MASKS, _ONE_NUMBER = 0.7, 0.99
"""Least mean square, over the mean and the end beyond MASK: of "minus infinity", and of a large number above."""

_ERRORS = ("max_abs", "max_rel", "mean_abs", "mean_rel", "rmse", "cosine_distance", "required_atol", "required_rtol")
_QUANTILES = (("abs_p50", 0.5), ("abs_p90", 0.9), ("abs_p99", 0.99), ("abs_p999", 0.999))


def is_broken(numbers: Comparison) -> bool:
    """Return whether a NaN or an infinity stands where the other side has not the same.

    A mask is none: minus infinity, or a number beyond MASK, that one side holds as the other end of what is "never".
    """
    more = numbers.base.inf - numbers.target.inf
    if not numbers.apart:
        return False
    if numbers.base.nan != numbers.target.nan or numbers.apart != abs(more):
        return True  # some are NaN, stand elsewhere, or have the other sign
    return not may_be_mask(numbers.base) if more < 0 else largest_magnitude(numbers.target) < CLAMPED


def may_be_mask(side: TensorStats) -> bool:
    """Return whether what is beyond MASK may be one number that says "never", and is no result that grew so large: it
    lies at one end, mostly the lower one, and is nearly all of the mean and of the root mean square.

    Of elements that are M or next to nothing, mean square = mean M; of M and of 2 M, as of two masks, 0.75 mean 2 M at
    least; of numbers that are spread evenly from 0 to M two thirds of it.
    """
    low, high = side.min or 0.0, side.max or 0.0
    if max(-low, high) <= MASK or min(-low, high) > MASK:
        return False
    mean, rms, end = side.mean, side.rms, low if -low > high else high
    if mean is None or rms is None or not math.isfinite(rms) or not math.isfinite(rms * rms):
        return True
    part = rms * rms / (mean * end) if mean else 0.0
    return part >= (_ONE_NUMBER if end > 0 else _TWO_MASKS)


def make_infinite(numbers: Comparison) -> Comparison:
    """Return the same with every error infinite where NaN or Inf stand on one side alone; itself where none do.

    What is left of such a tensor may be without any error: sorted by that, the tensor where an overflow was born would
    be the best of all, and would pass any threshold. Quantiles are infinite from the share of such elements on, which
    enter the shares of metrics.h as elements for which the metric holds.
    """
    if not numbers.shapes_match or numbers.mismatched is None or not is_broken(numbers):
        return numbers
    if numbers.sqnr_db == -math.inf and numbers.rmse == math.inf:
        return numbers  # it is already
    size = numbers.base.elements
    finite = size - max(numbers.base.nan + numbers.base.inf, numbers.target.nan + numbers.target.inf)
    changed: dict[str, object] = dict.fromkeys(_ERRORS, math.inf)
    changed |= {"sqnr_db": -math.inf, "left": (numbers.rmse, numbers.sqnr_db)}
    changed |= {name: math.inf for name, part in _QUANTILES if numbers.apart >= (1 - part) * size}
    more = dict(numbers.more)
    for one in DECLARED:
        known = getattr(numbers, one.name, more.get(one.name)) or 0.0
        held = (known * finite + numbers.apart) / (finite + numbers.apart) if one.share else math.inf
        if hasattr(numbers, one.name):
            changed[one.name] = held
        else:
            more[one.name] = held
    return dataclasses.replace(numbers, **changed, more=more)  # type: ignore[arg-type]


def compute_finite_rmse(numbers: Comparison) -> float:
    """Over the finite pairs, also where NaN or Inf were born."""
    return float((numbers.left[0] if numbers.left else numbers.rmse) or 0.0)


def compute_finite_l2(row: Row) -> float | None:
    """Return relative L2 over the finite pairs, also where NaN or Inf were born; None where nothing was compared."""
    numbers = row.comparison
    if numbers is None or not numbers.left:
        return row.relative_l2
    return dataclasses.replace(numbers, sqnr_db=numbers.left[1]).relative_l2


def make_introduced_infinite(own: Introduced) -> Introduced:
    """Return the same with an infinite error where NaN or Inf were born in the operator."""
    if not own.born_nan and not own.born_inf:
        return own
    return dataclasses.replace(own, rel_l2=math.inf, max_abs=math.inf, units=math.inf)


def largest_magnitude(side: TensorStats) -> float:
    """Return the largest magnitude of its finite elements; 0 where there are none."""
    return max(abs(side.min or 0.0), abs(side.max or 0.0))
