"""The operator behind which ordinary rounding is fatal: blamed where no single rounding makes most of the error.

Two nearly equal numbers, each of which many operators have rounded, are the example: whose rounding it was is a matter
of chance, and that they are subtracted is not.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from ..numbers.born import finite_l2
from ..records import Culprit
from .bounds import BEYOND, MOST
from .criteria import FAR, STRONG
from .introduced import Alone
from .operator_facts import acting_type, types_of
from .operators import CANCEL
from .subject import Subject
from .units import bits_of

__all__ = ["amplifying"]

_LARGER = 4.0
"""Times that what an operator subtracts is larger than its result from which on the numbers are nearly equal."""


def amplifying(subject: Subject, alone: Alone, outputs: Collection[str]) -> tuple[Culprit, ...]:
    """The first operator, on the way to outputs that are beyond their bounds, that makes an error beyond any bound of
    what is ordinary rounding before it, and of nothing that it adds itself; () where there is none."""
    before: set[str] = set().union(*(subject.ancestors(name) for name in outputs)) if outputs else set()
    for name in sorted(before & subject.row_of.keys(), key=lambda one: subject.order.get(one, 0)):
        own, factor = alone.found.get(name), _factor(subject, name)
        if own is None or subject.far(own.rel_l2, own.units, FAR) or own.flips or factor < STRONG:
            continue
        code, evidence = _told(subject, name, factor)
        meta = subject.meta_of.get(name)
        reached = [one for one in outputs if one in subject.descendants(name)]
        return (
            Culprit(
                name=name,
                node=meta.node if meta is not None else "",
                op_types=tuple(one.op_type for one in subject.region_of.get(name, ()))
                or (subject.row_of[name].op_type,),
                cause=code,
                evidence=evidence,
                confidence="compared",
                introduced=own.rel_l2,
                units=own.units,
                at=max(reached, key=lambda one: finite_l2(subject.row_of[one]) or 0.0, default=""),
                fails_first=name,
                keep=(name, *(one for one in subject.sources(name) if one in subject.row_of)),
            ),
        )
    return ()


def _factor(subject: Subject, name: str) -> float:
    """How many times an error that is beyond any bound is the largest one of what is read, where that is ordinary; 0
    where it is not so."""
    error, sources = finite_l2(subject.row_of[name]) or 0.0, [*subject.sources(name)]
    rows = [subject.row_of[one] for one in sources if one in subject.row_of]
    errors = [finite_l2(row) or 0.0 for row in rows]
    if not math.isfinite(error) or error <= MOST or not any(errors):
        return 0.0
    if any(subject.far(one, subject.error_units(row), BEYOND) for one, row in zip(errors, rows, strict=True)):
        return 0.0
    return error / max(errors)


def _told(subject: Subject, name: str, factor: float) -> tuple[str, dict[str, Any]]:
    row = subject.row_of[name]
    read = [subject.row_of[one].comparison for one in subject.sources(name) if one in subject.row_of]
    largest = max((numbers.base.rms or 0.0 for numbers in read if numbers is not None), default=0.0)
    own = (row.comparison.base.rms or 0.0) if row.comparison is not None else 0.0
    if types_of(subject, name) & CANCEL and largest > _LARGER * own:
        return "cancels", {"factor": factor, "input_size": largest, "output_size": own}
    evidence = {"factor": factor, "input_size": largest, "operator": acting_type(subject, name)}
    return "amplifies", {**evidence, **_steps_between(subject, name)}


def _steps_between(subject: Subject, name: str) -> dict[str, Any]:
    """How far apart the largest numbers that an operator reads can be in the type in which the target computed them,
    where that is as much as whole numbers are apart: positions and times become one there. {} elsewhere."""
    for source in subject.sources(name):
        numbers = subject.row_of[source].comparison if source in subject.row_of else None
        if numbers is None or numbers.base.max is None or numbers.base.min is None:
            continue
        bits, largest = bits_of(numbers.target.dtype), max(abs(numbers.base.max), abs(numbers.base.min))
        apart = 2.0 ** (math.floor(math.log2(largest)) + 1 - bits) if bits and 0 < largest < math.inf else 0.0
        if apart >= 1:
            return {"apart": apart, "largest": largest, "source": source, "held_as": numbers.target.dtype}
    return {}
