"""What is told of a culprit that computes something else: where its results differ, and how they are made of the
baseline's."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..records import Culprit, Status
from .criteria import FAR, HALF
from .exchanged import find_most_left, make_case
from .introduced import Alone
from .places import find_place
from .relations import find_relation
from .scattered import find_meeting
from .subject import Subject
from .undo import Case
from .units import is_of_few_bits, unit_of
from .work import Work

__all__ = ["with_differences"]

_FIRST = 3
"""Culprits whose results are looked at."""


def with_differences(
    subject: Subject, alone: Alone, culprits: Sequence[Culprit], work: Work
) -> tuple[Culprit, ...]:  # fmt: skip
    """Return the culprits; one of which no more is known than that the target computes something else, with how its
    results are made of the baseline's, or where they differ."""
    first = 0 if work.too_large else _FIRST
    return tuple(_add_difference(subject, alone, one) if at < first else one for at, one in enumerate(culprits))


def _add_difference(subject: Subject, alone: Alone, culprit: Culprit) -> Culprit:
    if culprit.cause != "other_arithmetic" or culprit.evidence.keys() & {"count", "ours", "turned"}:
        return culprit
    if inside := _find_first_inside(subject, culprit.name):
        return dataclasses.replace(culprit, evidence={**culprit.evidence, **inside})
    case = make_case(subject, alone, culprit.name)
    if case is None:
        return culprit
    read = {name: np.asarray(given) for name in subject.sources(case.name) if (given := case.given(name)) is not None}
    inputs = {name: given.astype(np.float64) for name, given in read.items() if given.dtype.kind in "fiub"}
    left = find_most_left(case)
    if met := find_meeting(case, left):
        return dataclasses.replace(culprit, evidence={**culprit.evidence, **met})
    found = find_place(case.exact, case.wrong, left)
    if not found.keys() & {"base_there", "target_there"}:
        relation = find_relation(case.exact, case.wrong, inputs, left, _measure_each_rounding(case))
        if relation and "place" in found and found["differing"] <= HALF * found["elements"]:  # else of them all
            relation["relation_there"] = relation.pop("relation")
        found = {**found, **relation}
    return dataclasses.replace(culprit, evidence={**culprit.evidence, **found}) if found else culprit


def _measure_each_rounding(case: Case) -> float:
    """Return the part of a stretch's error that rounding each of its operators once makes: what one of them does is not
    told of all of them, where those behind it make it something else. Infinite of one operator, or in a wide type."""
    many, found = len(case.subject.region_of.get(case.name, ())), case.alone.found.get(case.name)
    if many < 2 or not is_of_few_bits(case.narrow) or found is None or not found.units:
        return math.inf
    return math.sqrt(many) / found.units


def _find_first_inside(subject: Subject, name: str) -> dict[str, Any]:
    """Return the operator inside a fused region of which the result was seen, too, if only in a further run: all that
    it reads agrees, and what it gives does not, in numbers far beyond rounding or in shape. {} where none is."""
    rows = {row.name: row for row in (*subject.rows, *subject.unfused) if row.comparison is not None}
    for meta in subject.region_of.get(name, ()):
        row, read = rows.get(meta.name), [rows.get(one) for one in meta.inputs]
        if row is None or row.comparison is None or meta.name == name or row.status is not Status.FAIL:
            continue
        if not read or any(one is None or one.status is not Status.PASS for one in read):
            continue
        told = {"owner": meta.name, "owner_type": meta.op_type, "seen": name}
        sides = row.comparison
        if not sides.shapes_match:
            return {**told, "shape": str(list(sides.base.shape)), "shape_there": str(list(sides.target.shape))}
        if (sides.relative_l2 or 0.0) > FAR * unit_of(sides.target.dtype, None):
            return told
    return {}
