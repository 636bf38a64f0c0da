"""The verdict on one pair of tensors: the one place that holds the numbers of ``metrics`` against a tolerance."""

from __future__ import annotations

import math

from .records import Comparison, TensorStats, Tolerance

__all__ = ["verdict"]


def verdict(comparison: Comparison, tolerance: Tolerance) -> tuple[bool, str]:
    """Whether the pair passes, and in a few words why it does not ("" where it does).

    Whatever the statistic, a pair fails where shapes or types do not compare, where a NaN stands on one side only
    (or on both, unless equal_nan), and where an infinity is not met by the same one.
    A statistic passes where either its absolute or its relative value is within atol or rtol.
    """
    if not comparison.shapes_match:
        return False, "shape"
    if comparison.mismatched is None:
        return False, f"types: {comparison.base.dtype} against {comparison.target.dtype}"
    special = _special(comparison) if comparison.required_atol == math.inf else ""
    if tolerance.check_error_stat != "elemwise" and comparison.mean_abs is not None:
        return (False, special) if special else _by_statistic(comparison, tolerance)
    if comparison.mismatched == 0:
        return True, ""
    counted = f"{comparison.mismatched} of {comparison.base.elements} elements"
    return False, f"{counted}, {special}" if special else counted


def _by_statistic(comparison: Comparison, tolerance: Tolerance) -> tuple[bool, str]:
    absolute, relative = comparison.stat_abs, comparison.stat_rel
    if absolute is None or relative is None:
        return False, f"{tolerance.check_error_stat} was not computed"
    if absolute <= tolerance.atol or relative <= tolerance.rtol:
        return True, ""
    name = tolerance.check_error_stat
    if name == "quantile":
        name = f"quantile {tolerance.quantile:g}"
    return False, (f"{name} abs {absolute:.3g} > {tolerance.atol:g} and {name} rel {relative:.3g} > {tolerance.rtol:g}")


def _special(comparison: Comparison) -> str:
    for what in ("nan", "inf"):
        sides = [
            name for name, side in (("baseline", comparison.base), ("target", comparison.target)) if _count(side, what)
        ]
        if sides:
            label = "NaN" if what == "nan" else "inf"
            return f"{label} on both sides" if len(sides) == 2 else f"{label} in the {sides[0]}"
    return ""


def _count(side: TensorStats, what: str) -> int:
    return side.nan if what == "nan" else side.inf
