"""Who loses slices of an output that the whole does not show: the operator that puts unlike quantities in one tensor.

Its error is ordinary for the tensor that it makes, one scale being what it has; so no size of an error names it. What
names it is that its inputs still told what the output no longer tells.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from ..numbers.judge import lost_slice_arguments
from ..numbers.slices import ENOUGH, SPREAD
from ..pairing.packed import iterate_joins_before
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation, Introduced, Row
from .subject import Subject
from .units import bound_of_many

__all__ = ["list_ruined_before", "with_packers"]

_TOLD = 0.5
"""Relative L2 error up to which an input of the operator still tells something."""


_MOST = 0.5
"""Of a lost slice's error, what is left at least where the operator's own error cannot have made it."""


def with_packers(subject: Subject, explanation: Explanation, introduced: Sequence[Introduced]) -> Explanation:
    """Return the explanation with whoever packs what is lost, first; whatever was expected of the whole.

    introduced: what operators added themselves, as far as it was measured."""
    found = tuple(_find_packers(subject, {own.name: own for own in introduced}))
    if not found:
        return explanation
    names = {one.name for one in found}
    # who makes most of what is as expected of the whole is not accused beside them, unless its cause is proven
    usual = (explanation.actual or math.inf) <= (bound_of_many(explanation) or 0.0)
    others = tuple(
        one for one in explanation.culprits
        if one.name not in names and not explanation.passes and not (usual and CAUSES[one.cause].unproven)
    )  # fmt: skip
    return dataclasses.replace(explanation, state="culprits", culprits=(*found, *others), passes=False)


def _find_packers(subject: Subject, introduced: Mapping[str, Introduced]) -> Iterator[Culprit]:
    for row in subject.row_of.values():
        numbers = row.comparison
        if not row.is_output or numbers is None or not numbers.lost:
            continue
        name, cause = _find_packer(subject, row), "stepped" if numbers.lost[0].step else "packed"
        name = _find_stepping(subject, name) if cause == "stepped" else name
        meta = subject.meta_of.get(name)
        if meta is None or any(_is_ruined(subject, source) for source in meta.inputs):
            continue
        own = introduced.get(name)
        if own is not None and own.max_abs is not None and all(own.max_abs < _MOST * one.error for one in numbers.lost):
            continue  # no element of it is so far off by this operator: the error came in
        told = lost_slice_arguments(numbers)
        evidence = {key: value for key, value in told.items() if key in CAUSES[cause].evidence}
        yield Culprit(
            name=name, node=meta.node, op_types=(meta.op_type,), cause=cause, evidence=evidence,
            confidence="ranked", at=row.name, fails_first=row.name, keep=(name,),
        )  # fmt: skip


def list_ruined_before(subject: Subject, row: Row) -> list[str]:
    """Return what whoever packs the lost slices of an output reads, as far as that tells nothing any more itself."""
    meta = subject.meta_of.get(_find_packer(subject, row))
    return [name for name in meta.inputs if _is_ruined(subject, name)] if meta is not None else []


def _find_packer(subject: Subject, row: Row) -> str:
    """Return what joins along an axis of the length that the lost slices are counted in; else the nearest join; else
    what makes the output."""
    numbers = row.comparison
    assert numbers is not None
    joins = list(iterate_joins_before(row.name, subject.meta_of))
    for name in joins:
        there = subject.row_of.get(name)
        shape = there.comparison.base.shape if there is not None and there.comparison is not None else ()
        if numbers.lost[0].of in shape:
            return name
    return joins[0] if joins else row.name


def _is_ruined(subject: Subject, name: str) -> bool:
    row = subject.row_of.get(name)
    error = row.relative_l2 if row is not None else None
    return error is not None and error > _TOLD


def _find_stepping(subject: Subject, name: str) -> str:
    """Return who makes what stands on steps: a tensor's first ancestor whose error is as large as what varies in it."""
    seen: set[str] = set()
    while name not in seen and (meta := subject.meta_of.get(name)) is not None:
        seen.add(name)
        name = next((source for source in meta.inputs if _is_hidden(subject, source)), name)
    return name


def _is_hidden(subject: Subject, name: str) -> bool:
    row = subject.row_of.get(name)
    if row is None or row.comparison is None or row.comparison.rmse is None or row.comparison.base.elements < ENOUGH:
        return False
    base = row.comparison.base
    return row.comparison.rmse >= SPREAD * math.sqrt(max((base.rms or 0.0) ** 2 - (base.mean or 0.0) ** 2, 0.0)) > 0
