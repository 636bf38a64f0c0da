"""What stands in a cell: functions from a row to a value, for the columns of ``layout``."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ..numbers.born import is_broken
from ..records import Comparison, Explanation, Row, TensorStats

__all__ = [
    "Get",
    "are_shares_of_broken",
    "base_side",
    "compute_growth",
    "compute_mismatched_share",
    "count_elements",
    "format_mismatched",
    "get_declared",
    "get_extra",
    "get_introduced",
    "get_metric",
    "get_of_base",
    "get_of_target",
    "get_range_cell",
    "has_numbers",
    "is_newly_broken",
    "paddle_max_abs",
    "paddle_max_rel",
    "paddle_range",
    "target_side",
]

Get = Callable[[Row], Any]


def base_side(row: Row) -> TensorStats | None:
    """Return the baseline's tensor, whether it was compared or not."""
    return row.comparison.base if row.comparison is not None else row.base


def target_side(row: Row) -> TensorStats | None:
    """Return the target's tensor, whether it was compared or not."""
    return row.comparison.target if row.comparison is not None else row.target


def get_metric(name: str) -> Get:
    """Return a field of the comparison."""
    field = attrgetter(name)

    def get(row: Row) -> Any:
        return None if row.comparison is None else field(row.comparison)

    return get


def get_declared(name: str) -> Get:
    """Return a metric that numbers/metrics.h declares."""

    def get(row: Row) -> Any:
        if row.comparison is None:
            return None
        return row.comparison.more.get(name, getattr(row.comparison, name, None))

    return get


def get_introduced(name: str) -> Get:
    """Return a field of what the operator itself added, where it was run alone."""
    field = attrgetter(name)

    def get(row: Row) -> Any:
        return None if row.introduced is None else field(row.introduced)

    return get


def get_of_base(name: str) -> Get:
    """Return a field of the baseline's statistics."""
    field = attrgetter(name)

    def get(row: Row) -> Any:
        side = base_side(row)
        return None if side is None else field(side)

    return get


def get_of_target(name: str) -> Get:
    """Return a field of the target's statistics."""
    field = attrgetter(name)

    def get(row: Row) -> Any:
        side = target_side(row)
        return None if side is None else field(side)

    return get


def paddle_range(row: Row) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Return numpy's (min, max) of the target's and of the baseline's elements.

    NaN and Inf are among them, as Paddle's demo has them; None where a side has no elements or no numbers."""
    return _ends(target_side(row)), _ends(base_side(row))


def _ends(side: TensorStats | None) -> tuple[float, float] | None:
    if side is None or not (side.nan or side.inf or side.min is not None):
        return None
    if side.nan:
        return math.nan, math.nan
    low = -math.inf if side.negative_inf else math.inf if side.min is None else float(side.min)
    high = math.inf if side.inf > side.negative_inf else -math.inf if side.max is None else float(side.max)
    return low, high


def paddle_max_abs(row: Row) -> float | None:
    """np.max(np.abs(target - base)): nan where an element is NaN, or where both sides hold the same infinity."""
    both = row.comparison
    if both is None or (both.max_abs is None and not _has_special_pairs(both)):
        return None
    if both.base.nan or both.target.nan or both.same_inf:
        return math.nan
    return math.inf if _has_special_pairs(both) else both.max_abs


def paddle_max_rel(row: Row) -> float | None:
    """np.max(np.abs(target - base) / (np.abs(base) + 1e-7)): an infinite baseline makes inf / inf, which is nan."""
    both = row.comparison
    if both is None or (both.max_rel is None and not _has_special_pairs(both)):
        return None
    if both.base.nan or both.target.nan or both.base.inf:
        return math.nan
    return math.inf if both.target.inf else both.max_rel


def _has_special_pairs(both: Comparison) -> bool:
    """Return whether pairs were compared, and one of them is not finite."""
    counted = both.base.nan + both.base.inf + both.target.nan + both.target.inf
    return both.shapes_match and both.mismatched is not None and counted > 0


def get_range_cell(place: int) -> Get:
    """Paddle's "target (base)" of the minimum (0) or the maximum (1), each side where it is known."""

    def get(row: Row) -> str:
        target, base = paddle_range(row)
        left = "" if target is None else f"{target[place]:.6g}"
        return left if base is None else f"{left} ({base[place]:.6g})".lstrip()

    return get


def get_extra(key: str) -> Get:
    """Return a backend's own column."""
    return lambda row: row.extra.get(key, "")


def is_newly_broken(row: Row) -> bool:
    """Return whether NaN or Inf stand on one side alone: the row's errors are infinite then."""
    both = row.comparison
    return both is not None and both.shapes_match and is_broken(both)


def has_numbers(row: Row) -> bool:
    """Return whether a row's errors are about anything: the baseline has a number there, not NaN or Inf alone."""
    numbers = row.comparison
    if numbers is None or not numbers.shapes_match:
        return False
    return numbers.base.elements > numbers.base.nan + numbers.base.inf


def compute_growth(row: Row) -> float | None:
    """Return how much the error grew in the operator; None where nothing comes before it."""
    return row.error_growth if row.inputs or row.error_growth != math.inf else None


def format_mismatched(row: Row) -> str:
    """Return the count and share of elements out of tolerance: "12 / 640 (1.88%)"."""
    comparison = row.comparison
    if comparison is None or comparison.mismatched is None:
        return ""
    count, total_ = comparison.mismatched, comparison.base.elements
    if not count or not total_:  # the second only in a file that says so of itself
        return f"{count} / {total_}"
    percent = 100 * count / total_
    return f"{count} / {total_} ({'<0.01' if percent < 0.01 else f'{percent:.3g}'}%)"


def compute_mismatched_share(row: Row) -> float | None:
    """From 0 to 1; 0 for an empty tensor."""
    comparison = row.comparison
    if comparison is None or comparison.mismatched is None:
        return None
    return comparison.mismatched / comparison.base.elements if comparison.base.elements else 0.0


def count_elements(row: Row) -> int | None:
    """Return elements of the tensor, by the baseline where it has it."""
    side = base_side(row) or target_side(row)
    return None if side is None else side.elements


def are_shares_of_broken(explanation: Explanation) -> bool:
    """Return whether the shares at ``explanation.at`` are of the NaN and Inf there, and not of a squared error."""
    return any(culprit.non_finite and culprit.at == explanation.at for culprit in explanation.culprits)
