"""The verdict on one pair of tensors: the one place that holds the numbers of ``numbers`` against a tolerance.

Apart from measuring, so that numbers of many samples and machines can be merged first and judged once, and so that
fail-fast, the rows and the report cannot decide differently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..reasons import NOTHING, Reason, say
from ..records import Comparison, Row, Status, TensorStats, Tolerance
from .born import CLAMPED, MASK, is_broken, largest_magnitude
from .number_types import QUANTISED
from .slices import WHOLE

__all__ = [
    "HIDDEN",
    "as_expected",
    "decide_status",
    "describe_lost_slices",
    "fail_non_finite",
    "judge_row",
    "lost_slice_arguments",
    "tell_keys",
]

HIDDEN = 1e-2
"""Relative L2 error above which a pass is inconclusive where atol exceeds the RMS of the baseline's tensor.

Such an atol lets zeros pass for the tensor, as an rtol of 1 or more does for any. Below this error (or below an rtol of
less than 1, where that is larger) the tensor is right all the same: rounding leaves about 1e-7 in FP32, 1e-3 in FP16
and less than 1e-2 in BF16, however small the tensor is.
"""


_KEYS = "Keys of the Baseline Alone", "Keys of the Target Alone"
"""What a row of maps with other keys tells in ``extra``."""


def tell_keys(base: Sequence[Any], target: Sequence[Any]) -> dict[str, str]:
    """Return what a row tells of the keys of maps, which one side alone has."""
    alone = [[str(key) for key in one if key not in other] for one, other in ((base, target), (target, base))]
    return {name: ", ".join(keys) or "-" for name, keys in zip(_KEYS, alone, strict=True)}


def judge_row(
    row: Row, tolerance: Tolerance, *, allowed: float | None = None, validate: bool = False, rounded: bool = False,
    turned: Reason = NOTHING,
) -> Row:  # fmt: skip
    """Return the row with its verdict: what hooks, --fail_fast, a search and the report all ask.

    allowed: relative L2 error that decides where the user gave no tolerance (see ``explain.bound_of``); None: not
    known yet. validate: see RunSpec. rounded: whole numbers that are floats, rounded, and are judged as these.
    turned: that decisions which rounding takes otherwise are all that it differs by, so that without a tolerance it
    passes. A row without numbers keeps its status, but for what ``validate`` finds. To judge a judged row again, by
    another bound, gives what the other bound alone gives.
    """
    if row.comparison is not None and row.status in _JUDGED:
        status, reason = decide_status(row.comparison, tolerance)
        if reason.code == "shape" and _may_be_turned(row, row.comparison):
            status, reason = Status.INCONCLUSIVE, say("turned")
        if reason.code == "shape" and _KEYS[0] in row.extra:
            reason = say("map_keys", baseline=row.extra[_KEYS[0]], target=row.extra[_KEYS[1]])
        row = row.replace(status=status, reason=reason)
        if allowed is not None and not tolerance.given:
            row = as_expected(row, allowed, rounded=rounded)
            if turned and row.status is Status.FAIL:
                row = row.replace(status=Status.PASS, reason=turned)
    return fail_non_finite(row) if validate else row


def _may_be_turned(row: Row, numbers: Comparison) -> bool:
    """Return whether a permutation of axes explains that shapes differ: an engine keeps inner tensors as it likes, and
    what it calls otherwise may be such a one. An output has the layout that the model gives it."""
    if row.is_output or row.target_name in ("", row.name):
        return False
    sizes = [sorted(size for size in stats.shape if size != 1) for stats in (numbers.base, numbers.target)]
    return sizes[0] == sizes[1]


_JUDGED = frozenset({Status.PASS, Status.FAIL, Status.INCONCLUSIVE})


def decide_status(comparison: Comparison, tolerance: Tolerance) -> tuple[Status, Reason]:
    """PASS, FAIL or INCONCLUSIVE, and in a few words why it does not pass ("" where it does).

    Whatever the statistic, a pair fails where shapes or types do not compare, where a NaN stands on one side only
    (or on both, unless equal_nan), and where an infinity is not met by the same one.
    A statistic passes where either its absolute or its relative value is within atol or rtol.
    What would pass is INCONCLUSIVE where it has no element, and where it passes whatever it holds: see HIDDEN.
    """
    passes, reason = _passes(comparison, tolerance)
    if not passes:
        return Status.FAIL, reason
    if not comparison.base.elements:
        return Status.INCONCLUSIVE, say("empty")
    if comparison.lost:
        return Status.FAIL, describe_lost_slices(comparison)
    hidden = _explain_empty_pass(comparison, tolerance)
    return (Status.INCONCLUSIVE, hidden) if hidden else (Status.PASS, NOTHING)


def fail_non_finite(row: Row) -> Row:
    """Return the row where every NaN and Inf is out of tolerance, on whichever side it stands and compared or not."""
    if row.status is Status.FAIL or not row.non_finite:
        return row
    return row.replace(status=Status.FAIL, reason=row.non_finite)


def as_expected(row: Row, allowed: float, *, rounded: bool = False) -> Row:
    """Return the row where the user gave no tolerance: it passes where its error is what the arithmetic must lose.

    allowed: relative L2 error up to which it is. What is not a number, and what differs in shape or type, is judged as
    ever; integers must be equal, an id or index that is off by one being another one, but for those that are rounded
    floats, or that stand for other numbers inside a model.
    """
    numbers = row.comparison
    if numbers is None or row.status not in _JUDGED:
        return row
    error = numbers.relative_l2
    if error is None or not numbers.shapes_match or is_broken(numbers):
        return row
    if "float" not in numbers.base.dtype and not rounded and (row.is_output or not QUANTISED.search(row.op_type)):
        apart = numbers.max_abs if row.status is Status.PASS else 0
        return row.replace(status=Status.FAIL, reason=say("whole", most=apart)) if apart else row
    if not numbers.base.elements or numbers.mismatched == 0 == numbers.max_abs:
        return row
    if numbers.lost:
        return row.replace(status=Status.FAIL, reason=describe_lost_slices(numbers))
    if error <= allowed or _is_mask_alone(row, numbers, allowed):
        return row.replace(status=Status.PASS, reason=NOTHING)
    reason = say("beyond", error=error, allowed=allowed)
    return row.replace(status=Status.FAIL, reason=reason)


def describe_lost_slices(numbers: Comparison) -> Reason:
    """Return which slices of an output are lost: a tolerance of the whole would not show it, and decides nothing
    here."""
    told = lost_slice_arguments(numbers)
    if "elements" in told:
        return say(
            "whole_on_steps", elements=told["elements"], step=told["step"], spread=told["spread"], peak=told["peak"],
        )  # fmt: skip
    if told["step"]:
        return say(
            "slices_on_steps", slices=told["slices"], axis=told["axis"], count=told["count"], all=told["all"],
            step=told["step"], spread=told["spread"], peak=told["peak"],
        )  # fmt: skip
    return say(
        "slices_lost", slices=told["slices"], axis=told["axis"], count=told["count"], all=told["all"],
        part=told["part"], peak=told["peak"], largest=told["largest"],
    )  # fmt: skip


def lost_slice_arguments(numbers: Comparison) -> dict[str, Any]:
    """Return what is said of the slices that are lost: which, how many of how many, of which axis, and how large they
    are; of all of an output, how many elements."""
    lost = numbers.lost
    if lost[0].axis == WHOLE:
        one = lost[0]
        figures = {"peak": float(one.peak), "step": float(one.step), "spread": float(one.spread)}
        return {"elements": numbers.base.elements, **figures}
    worst = max(lost, key=lambda one: one.peak)
    stretches = [str(one.first) if one.first == one.last else f"{one.first}-{one.last}" for one in lost]
    return {
        "slices": ", ".join(stretches[:_STRETCHES]) + (", …" if len(stretches) > _STRETCHES else ""),
        "axis": worst.axis, "count": sum(one.last - one.first + 1 for one in lost), "all": worst.of,
        "part": float(worst.error / worst.size) if worst.size else 1.0, "peak": float(worst.peak),
        "largest": float(worst.largest), "step": float(worst.step), "spread": float(worst.spread),
    }  # fmt: skip


_STRETCHES = 4


def _is_mask_alone(row: Row, numbers: Comparison, allowed: float) -> bool:
    """Return whether the error is a mask's ("minus infinity"), which the target holds as the end of its type, and no
    more.

    What an operator added itself, and what it was given, are measured without masks. One that reads nothing and is a
    mask everywhere (``torch.full`` with its type's least number) has nothing else.
    """
    own = row.introduced
    if not row.inputs and (own is None or own.rel_l2 is None):
        base, target = numbers.base, numbers.target
        ends = ((base.max, target.max, -1), (base.min, target.min, 1))
        return any((b or 0.0) * sign > MASK and (t or 0.0) * sign >= CLAMPED for b, t, sign in ends)
    if (
        own is None
        or own.born_nan
        or own.born_inf
        or largest_magnitude(numbers.base) <= MASK
        or largest_magnitude(numbers.target) < CLAMPED
    ):
        return False
    return own.rel_l2 is not None and own.inherited is not None and max(own.rel_l2, own.inherited) <= allowed


def _passes(comparison: Comparison, tolerance: Tolerance) -> tuple[bool, Reason]:
    if not comparison.shapes_match:
        return False, say("shape")
    if comparison.mismatched is None:
        return False, say("types", base=comparison.base.dtype, target=comparison.target.dtype)
    special = _explain_special_values(comparison) if comparison.required_atol == math.inf else NOTHING
    if tolerance.check_error_stat != "elemwise" and comparison.mean_abs is not None:
        return (False, special) if special else _judge_by_statistic(comparison, tolerance)
    if comparison.mismatched == 0:
        return True, NOTHING
    count, every = comparison.mismatched, comparison.base.elements
    if special:
        return False, say("elements_and", count=count, all=every, special=special)
    return False, say("elements", count=count, all=every)


def _explain_empty_pass(comparison: Comparison, tolerance: Tolerance) -> Reason:
    """Return why a pass says nothing, "" where it does: see HIDDEN."""
    error, rms = comparison.relative_l2, comparison.base.rms
    if error is not None and error > HIDDEN and tolerance.rtol >= 1:
        return say("hidden_rtol", rtol=tolerance.rtol, error=error)
    if error is None or rms is None or tolerance.atol <= rms or error <= max(HIDDEN, tolerance.rtol):
        return NOTHING
    if tolerance.check_error_stat != "elemwise" and (comparison.stat_rel or 0.0) <= tolerance.rtol:
        return NOTHING
    return say("hidden", atol=tolerance.atol, rms=rms, error=error)


def _judge_by_statistic(comparison: Comparison, tolerance: Tolerance) -> tuple[bool, Reason]:
    absolute, relative = comparison.stat_abs, comparison.stat_rel
    if absolute is None or relative is None:
        return False, say("not_computed", statistic=tolerance.check_error_stat)
    if absolute <= tolerance.atol or relative <= tolerance.rtol:
        return True, NOTHING
    name = tolerance.check_error_stat
    if name == "quantile":
        name = f"quantile {tolerance.quantile:g}"
    return False, say("statistic", name=name, abs=absolute, atol=tolerance.atol, rel=relative, rtol=tolerance.rtol)


def _explain_special_values(comparison: Comparison) -> Reason:
    for what in ("NaN", "inf"):
        of_base, of_target = _count(comparison.base, what), _count(comparison.target, what)
        if of_base and of_target:
            return say("on_both", what=what)
        if of_base:
            return say("in_baseline", what=what)
        if of_target:
            return say("in_target", what=what)
    return NOTHING


def _count(side: TensorStats, what: str) -> int:
    return side.nan if what == "NaN" else side.inf
