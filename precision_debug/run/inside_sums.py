"""Sums inside one operator: a mean of many numbers may fit a narrow type whose sum on the way does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..explain import Subject
from ..numbers.arrays import as_array
from ..numbers.number_types import NUMBER_TYPES
from ..numbers.precisions import BEHIND_FLOAT32
from ..reasons import Reason, say
from ..records import Doubt, Row

__all__ = ["inside_sums"]

Array = np.ndarray[Any, Any]

_LIMIT = NUMBER_TYPES["float16"].largest
"""The largest float16."""
_LOST = NUMBER_TYPES["float16"].rounding
"""Relative error of rounding to float16 once; adding up n numbers rounds n times at most."""

_SQUARED = frozenset({"ReduceL2", "ReduceSumSquare"})
_ADDED = frozenset({"ReduceSum", "ReduceMean", "ReduceL1", "GlobalAveragePool", "CumSum"}) | _SQUARED
"""What engines sum in the type of its result, where nothing else is known; products accumulate in float32."""

_LARGEST = 1 << 24
"""Elements of a tensor up to which its sums are computed."""


@dataclass(frozen=True, kw_only=True)
class _Sum:
    """row: of the operator's result. source: the tensor that it sums."""

    row: Row
    source: str


def inside_sums(subject: Subject, accumulates: str) -> tuple[list[Reason], list[Doubt]]:
    """Notes on sums that may overflow inside, and doubts where they must: the sum itself is beyond float16.

    accumulates: the type in which the target is known to sum; "" not known. Nothing where the target holds no float16,
    or where a sum is known to be done in float32, and of rows that are not finite already.
    """
    if accumulates not in ("", "float16"):
        return [], []
    suspects = {one.source: one for row in subject.row_of.values() if (one := _suspect(subject, row)) is not None}
    if not suspects:
        return [], []
    notes: list[Reason] = []
    doubts: list[Doubt] = []

    def look(_op_type: str, name: str, tensor: Any, /) -> None:
        suspect = suspects.get(name)
        array = as_array(tensor)
        if suspect is None or array.size > _LARGEST:
            return
        total, most, terms = _sums(subject, suspect, array.astype(np.float64))
        kind, made = suspect.row.op_type, suspect.row.name
        if total > _LIMIT:
            values = {"op": kind, "name": made, "terms": str(terms), "total": f"{total:.4g}"}
            doubts.append(Doubt(code="sum_overflows", values=values))
        elif most > _LIMIT:
            notes.append(say("sum_may_overflow", op=kind, name=made, terms=terms, most=most, lost=terms * _LOST))

    subject.baseline.run(subject.feeds, look, list(suspects))
    return notes, doubts


def _suspect(subject: Subject, row: Row) -> _Sum | None:
    """A sum whose terms are many and large enough, by what is known of its input already."""
    meta, numbers = subject.meta_of.get(row.name), row.comparison
    if meta is None or numbers is None or row.op_type not in _ADDED or subject.held_as.get(row.name) != "float16":
        return None
    if row.view.endswith(BEHIND_FLOAT32) or _ran_in(subject, row) == "FP32":
        return None  # it is kept: what it hands on is rounded, and its sum is not
    source = next((name for name in meta.inputs if name in subject.row_of), "")
    comparison = subject.row_of[source].comparison if source else None
    if comparison is None or numbers.target.nan + numbers.target.inf > numbers.base.nan + numbers.base.inf:
        return None
    largest = max(abs(comparison.base.min or 0.0), abs(comparison.base.max or 0.0))
    term = largest**2 if row.op_type in _SQUARED else largest
    terms = comparison.base.elements / max(1, numbers.base.elements if row.op_type != "CumSum" else 1)
    return _Sum(row=row, source=source) if terms * term > _LIMIT else None


def _ran_in(subject: Subject, row: Row) -> str:
    """The precision in which an engine that tells ran the operator; "" where it does not."""
    running = subject.targets.get(row.target_name)
    return "" if running is None else running.extra.get("Real Precision", "")


def _sums(subject: Subject, suspect: _Sum, array: Array) -> tuple[float, float, int]:
    """The largest sum, the largest sum of sizes, and how many terms each has."""
    kind = suspect.row.op_type
    terms = np.square(array) if kind in _SQUARED else np.abs(array) if kind == "ReduceL1" else array
    axes = _axes(subject, suspect, array.ndim)
    with np.errstate(all="ignore"):
        if kind == "CumSum":
            total, most = (np.abs(np.cumsum(one, axis=axes[0])) for one in (terms, np.abs(terms)))
        else:
            total, most = (np.abs(one.sum(axis=axes)) for one in (terms, np.abs(terms)))
    count = int(np.prod([array.shape[axis] for axis in axes], dtype=np.int64))
    return float(np.max(total, initial=0.0)), float(np.max(most, initial=0.0)), count


def _axes(subject: Subject, suspect: _Sum, ndim: int) -> tuple[int, ...]:
    kind = suspect.row.op_type
    if kind == "GlobalAveragePool":
        return tuple(range(2, ndim))
    operator = subject.operators()[0].operator(suspect.row.name)
    stated: Any = None if operator is None else operator.attributes.get("axes")
    parameters: Mapping[str, Any] = {} if operator is None else operator.parameters
    for value in parameters.values():  # from opset 13 and 18 on the axes are an input
        if stated is None and np.asarray(value).dtype.kind == "i":
            stated = np.asarray(value).reshape(-1).tolist()
    axes = tuple(int(axis) % ndim for axis in stated) if stated else tuple(range(ndim))
    return axes[:1] if kind == "CumSum" else axes
