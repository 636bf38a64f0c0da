"""The operator behind which ordinary rounding is fatal: blamed where no single rounding makes most of the error.

Two nearly equal numbers, each of which many operators have rounded, are the example: whose rounding it was is a matter
of chance, and that they are subtracted is not.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.born import finite_l2
from ..numbers.narrowing import narrow_type, rounded
from ..records import Comparison, Culprit
from .bounds import BEYOND, MOST
from .casts import on_the_way
from .criteria import FAR, HALF, STRONG
from .introduced import Alone
from .operator_facts import acting_type, operators_of, types_of
from .operators import CANCEL
from .stretch import how_far_off, run_rounded
from .subject import Subject
from .units import bits_of

__all__ = ["amplifying", "merged_operand"]

_LARGER = 4.0
"""Times that what an operator subtracts is larger than its result from which on the numbers are nearly equal."""


_OF_SPREAD = 0.25
"""Spacing beside the standard deviation of a tensor from which on it is looked at whether numbers become one."""


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
                op_types=tuple(one.op_type for one in operators_of(subject, name)) or (subject.row_of[name].op_type,),
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
        apart, largest = _apart(numbers, numbers.target.dtype)
        if apart >= 1:
            return {"apart": apart, "largest": largest, "source": source, "held_as": numbers.target.dtype}
    return {}


def _apart(numbers: Comparison, dtype: str) -> tuple[float, float]:
    """How far apart the largest numbers of a tensor are in a type, and the largest; 0 where that is not known."""
    largest, bits = max(abs(numbers.base.max or 0.0), abs(numbers.base.min or 0.0)), bits_of(dtype)
    apart = 2.0 ** (math.floor(math.log2(largest)) + 1 - bits) if bits and 0 < largest < math.inf else 0.0
    return apart, largest


def _merges(numbers: Comparison, dtype: str) -> bool:
    """Whether numbers that a tensor has can become one in a type: whole ones, or ones that differ by little."""
    apart, _ = _apart(numbers, dtype)
    base = numbers.base
    spread = math.sqrt(max(0.0, (base.rms or 0.0) ** 2 - (base.mean or 0.0) ** 2))
    return apart >= 1 or apart > _OF_SPREAD * spread


def merged_operand(subject: Subject, alone: Alone, name: str) -> dict[str, Any]:
    """The tensor that the target casts to a narrower type for an operator, and in which numbers become one, where its
    rounding alone, in a run of the baseline, makes most of the error that the operator adds; {} where there is none."""
    own = alone.found[name].rel_l2
    if not own or subject.is_step:
        return {}
    way = [subject.targets[one] for one in on_the_way(subject, name)]
    for source in subject.sources(name):
        there = subject.row_of[source]
        numbers = there.comparison
        cast = next((meta for meta in way if meta.inputs == (there.target_name,)), None)
        if cast is None or numbers is None or numbers.target.dtype == cast.dtype or not _merges(numbers, cast.dtype):
            continue
        counts: list[int] = []

        def narrow(values: Any, counts: list[int] = counts, dtype: str = cast.dtype) -> Any:
            there = rounded(np.ascontiguousarray(values), narrow_type(dtype))
            counts[:] = [int(np.unique(one).size) for one in (values, there)]
            return there

        try:
            exact = run_rounded(subject, name, "", narrow).get(name)
            got = run_rounded(subject, name, source, narrow).get(name)
        except PrecisionDebugError:
            return {}
        if exact is None or got is None or how_far_off(exact, got, flips=False) < HALF * own:
            continue
        if counts and 2 * counts[1] <= counts[0]:
            return {"source": source, "cast": cast.dtype, "before": counts[0], "after": counts[1]}
    return {}
