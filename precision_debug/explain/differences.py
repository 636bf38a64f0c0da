"""What is told of a culprit that computes something else: where its results differ, and how they are made of the
baseline's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..records import Culprit
from .criteria import HALF
from .exchanged import find_most_left, make_case
from .introduced import Alone
from .places import find_place
from .relations import find_relation
from .scattered import find_meeting
from .subject import Subject
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
        relation = find_relation(case.exact, case.wrong, inputs, left)
        if relation and "place" in found and found["differing"] <= HALF * found["elements"]:  # else of them all
            relation["relation_there"] = relation.pop("relation")
        found = {**found, **relation}
    return dataclasses.replace(culprit, evidence={**culprit.evidence, **found}) if found else culprit
