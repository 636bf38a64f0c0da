"""What happens between two tensors that are seen: a region is measured as one, and the baseline has its inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.arrays import as_array
from .introduced import MASK
from .operators import CANCEL, MOVE, plain_type
from .subject import Subject
from .units import largest_of

__all__ = ["NEARLY_EQUAL", "overflows_inside", "subtracts", "subtracts_inside"]

_T = TypeVar("_T")
_SAME = 0.01
"""Relative difference of masks, and what all else comes to beside them."""

NEARLY_EQUAL = 8.0
"""Times that terms are larger than their sum from which on they cancel; of independent terms it is about 1. Set on
tests/planted/paddle_faults.py."""


def subtracts_inside(subject: Subject, name: str, units: float | None) -> dict[str, Any]:
    """Evidence of ``cancellation``, where an operator inside the region of a tensor subtracts nearly equal numbers, in
    the baseline, by more than the region is off; {} where none does. One run of the baseline.

    units: of rounding, the region's own error.
    """
    region = subject.region_of.get(name, ())
    if units is None or not any(plain_type(meta.op_type) in CANCEL and len(meta.inputs) > 1 for meta in region[:-1]):
        return {}
    sizes = _sizes(subject, {one for meta in region for one in (meta.name, *meta.inputs)})
    found: dict[str, Any] = {}
    for meta in region:
        read = [sizes.get(one, 0.0) for one in meta.inputs]
        own, largest = sizes.get(meta.name, 0.0), max(read, default=0.0)
        if len(read) < 2 or not own or plain_type(meta.op_type) not in CANCEL or largest < NEARLY_EQUAL * own:
            continue
        if largest / own > max(units, found.get("factor", 0.0)):
            found = {
                "amplifier": meta.name, "amplifier_type": meta.op_type, "factor": largest / own,
                "input_size": largest, "output_size": own,
            }  # fmt: skip
    return found


def subtracts(subject: Subject, name: str) -> dict[str, Any]:
    """Evidence of ``cancels``, where an operator subtracts nearly equal numbers that are all seen; {} where not."""
    row, types = subject.row_of[name], {plain_type(meta.op_type) for meta in subject.region_of.get(name, ())}
    read = [subject.row_of[one].comparison for one in subject.sources(name) if one in subject.row_of]
    largest = max((numbers.base.rms or 0.0 for numbers in read if numbers is not None), default=0.0)
    own = (row.comparison.base.rms or 0.0) if row.comparison is not None else 0.0
    if len(read) < 2 or not types & CANCEL or not own or largest < NEARLY_EQUAL * own:
        return {}
    return {"factor": largest / own, "input_size": largest, "output_size": own}


def overflows_inside(subject: Subject, name: str) -> dict[str, dict[str, Any]]:
    """Of the operators in the region of a tensor those whose results the target's type cannot hold in the baseline, in
    order, each with the evidence of ``overflow``. One run of the baseline."""
    limit = largest_of(subject.narrow_type)
    region = [meta.name for meta in subject.region_of.get(name, ()) if plain_type(meta.op_type) not in MOVE]
    if limit > MASK or len(region) < 2:
        return {}

    def beyond(value: Any) -> dict[str, Any]:
        finite = value[np.isfinite(value)]
        sizes = np.abs(finite)
        large = sizes > limit
        count = int(np.count_nonzero(large))
        if not count or sizes.max() >= MASK or _masks(finite[large], sizes[~large]):
            return {}
        return {"largest": float(sizes.max()), "limit": limit, "count": count}

    found = _told(subject, set(region), beyond)
    return {one: found[one] for one in region if found.get(one)}


def _masks(large: Any, rest: Any) -> bool:
    """Whether numbers beyond a type are one that says "never" (-1e9), far from all others: no result that grew."""
    same = bool((large < 0).all()) and float(np.ptp(large)) <= _SAME * -float(large.min())
    return same and float(rest.max(initial=0.0)) < _SAME * -float(large.max())


def _sizes(subject: Subject, names: set[str]) -> dict[str, float]:
    """Root mean square of the baseline's tensors with these names; nothing of those that it does not show."""
    return _told(subject, names, lambda value: float(np.sqrt(np.mean(np.square(value.astype(np.float64))))))


def _told(subject: Subject, names: set[str], tell: Callable[[Any], _T]) -> dict[str, _T]:
    """What is told of the baseline's floats with these names; nothing of those that it does not show."""
    told: dict[str, _T] = {}

    def hook(_op: str, name: str, tensor: Any, /) -> None:
        value = as_array(tensor, name=name)
        if name in names and value.dtype.kind == "f" and value.size:
            told[name] = tell(value)

    try:
        subject.baseline.run(subject.feeds, hook, frozenset(names))
    except PrecisionDebugError:
        return {}
    return told
