"""Whether both sides were given the same inputs: where they were not, nothing else says anything."""

from __future__ import annotations

import math

import numpy as np

from ..records import Culprit, Row
from .subject import Subject
from .units import held_type, unit_of

__all__ = ["inputs_differ"]

_FAR = 8.0
"""Units of rounding beyond which an input is another one, and not the same in a narrower type."""


def inputs_differ(subject: Subject) -> tuple[Culprit, ...]:
    """One for each input that the two sides do not share, in order; a cast that only rounds is no difference."""
    found = []
    for row in sorted(subject.row_of.values(), key=lambda row: subject.order.get(row.name, 0)):
        error = _difference(subject, row) if row.op_type == "Input" else None
        numbers = row.comparison
        if error is None or numbers is None:
            continue
        found.append(
            Culprit(
                name=row.name,
                node=row.node,
                op_types=(row.op_type,),
                cause="inputs_differ",
                evidence={
                    "error": error, "base_dtype": numbers.base.dtype, "target_dtype": numbers.target.dtype,
                    "base_range": _range(numbers.base.min, numbers.base.max),
                    "target_range": _range(numbers.target.min, numbers.target.max),
                },
                confidence="compared",
                fails_first=row.name,
                keep=(row.name,),
            )
        )  # fmt: skip
    return tuple(found)


def _difference(subject: Subject, row: Row) -> float | None:
    """Relative L2, or of integers the share of differing elements; None where they are the same, or rounded."""
    numbers = row.comparison
    if numbers is None or numbers.identical or not numbers.base.elements:
        return None
    meta = subject.targets.get(row.target_name)
    held_as = held_type(row, meta.dtype if meta is not None else "")
    if meta is not None and meta.op_type != "Input" and _same_feed(subject, row):
        return None  # what the target's own operator makes of it is an error like any other
    if numbers.base.rms is None or "float" not in numbers.base.dtype:
        share = (numbers.mismatched or 0) / numbers.base.elements
        return share if share > 0 and numbers.base.rms is not None else None
    error = row.relative_l2
    if error is None or numbers.target.nan + numbers.target.inf > numbers.base.nan + numbers.base.inf:
        return None  # an overflow has a cause of its own
    unit = max(unit_of(held_as, numbers.base), subject.typical_unit)
    rounds = error <= _FAR * unit or _only_rounded(subject, row, held_as)
    return None if rounds else error


def _same_feed(subject: Subject, row: Row) -> bool:
    """Whether the target was fed what the baseline's tensor held."""
    feed = subject.feeds_of_target.get(row.name)
    if feed is None or row.comparison is None:
        return False
    array, base = np.asarray(feed), row.comparison.base
    if array.dtype.kind != "f" or not array.size or array.shape != base.shape or not np.isfinite(array).all():
        return False
    own = (float(array.min()), float(array.max()), float(np.mean(array, dtype=np.float64)))
    return all(
        theirs is not None and math.isclose(mine, theirs, rel_tol=1e-6, abs_tol=1e-6 * (base.rms or 0.0))
        for mine, theirs in zip(own, (base.min, base.max, base.mean), strict=True)
    )


def _only_rounded(subject: Subject, row: Row, held_as: str) -> bool:
    """Whether the difference is no more than what the narrower type makes of these very values, tiny ones above all."""
    numbers, held = row.comparison, subject.held(row.target_name, subject.feeds.get(row.name))
    feed = subject.feeds.get(row.name)
    if held_as in {"int8", "uint8"}:
        return True  # its range has a cause of its own
    if held is None or feed is None or numbers is None or numbers.rmse is None:
        return False
    with np.errstate(all="ignore"):
        off = np.asarray(held, np.float64) - np.asarray(feed, np.float64)
    return numbers.rmse <= 2 * math.sqrt(float(np.mean(np.square(off[np.isfinite(off)])))) if off.size else False


def _range(low: float | None, high: float | None) -> str:
    return "no number" if low is None or high is None else f"{low:.4g} to {high:.4g}"
