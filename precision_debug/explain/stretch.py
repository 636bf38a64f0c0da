"""Which operator of a stretch: an engine that fuses shows a tensor here and there, and what lies between two of them is
measured as one. The baseline has every tensor in between, and so it can be rounded there, one after the other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.narrowing import narrow_type, rounded
from ..records import Culprit
from .inside_region import overflows_inside
from .introduced import Alone
from .operator_facts import is_quantised, operators_of
from .operators import MOVE, plain_type
from .rounded_inside import few_runs, in_8_bits
from .subject import Subject
from .work import Work

__all__ = ["how_far_off", "run_rounded", "with_stretches"]

_FIRST = 3
"""Culprits whose stretches are looked into."""

_FLOATS = frozenset({"float16", "bfloat16"})
"""Types that round without a scale."""

Narrow = Callable[[Any], Any]
"""An array rounded to the target's type, and back."""

_HALF = 0.5
"""Part of the stretch's error from which on one operator inside is told."""


def with_stretches(
    subject: Subject, alone: Alone, culprits: Sequence[Culprit], work: Work
) -> tuple[Culprit, ...]:  # fmt: skip
    """The culprits, the first of them with the stretch that each is the end of, and who in it makes the error."""
    found = []
    for place, culprit in enumerate(culprits):
        region = subject.region_of.get(culprit.name, ())
        if len(region) > 1 and culprit.name in alone.found:
            inside = tuple(meta.name for meta in operators_of(subject, culprit.name))
            told = _overflowing(subject, culprit) if place < _FIRST else culprit
            inner, part = _author(subject, alone, culprit.name, work) if place < _FIRST else ("", None)
            found.append(dataclasses.replace(told, inside=inside, inner=told.inner or inner, inner_part=part))
        else:
            found.append(culprit)
    return tuple(found)


def _overflowing(subject: Subject, culprit: Culprit) -> Culprit:
    """Of a stretch at whose end NaN or Inf appears: its operators whose results the type cannot hold, as the baseline
    has them. They are kept; the end alone would keep what only reads what is lost by then."""
    if culprit.cause != "born" or not (beyond := overflows_inside(subject, culprit.name)):
        return culprit
    first, evidence = next(iter(beyond.items()))
    keep = tuple(dict.fromkeys((*beyond, *culprit.keep)))
    inner = first if first != culprit.name else ""
    told = {**evidence, "inner": inner} if inner else evidence
    return dataclasses.replace(culprit, cause="overflow", evidence=told, confidence="ranked", keep=keep, inner=inner)


def _author(subject: Subject, alone: Alone, name: str, work: Work) -> tuple[str, float | None]:
    """The tensor inside whose rounding alone makes most of the error of the whole stretch, and how much of it."""
    held = subject.narrow_type
    own = alone.found[name]
    whole = float(own.flips) if own.flips else own.rel_l2
    computing = [meta.name for meta in subject.region_of[name] if plain_type(meta.op_type) not in MOVE]
    narrow: Narrow
    if is_quantised(held):  # the others of a stretch are not rounded, and none without a scale
        narrow, computing = in_8_bits, [one for one in computing if one in subject.rounded_unseen]
    elif held in _FLOATS:
        dtype = narrow_type(held)
        narrow = lambda array: rounded(np.ascontiguousarray(array), dtype)  # noqa: E731
    else:
        return "", None
    if whole is None or not 0 < whole < math.inf or own.born_nan or own.born_inf:
        return "", None
    try:
        exact = run_rounded(subject, name, "", narrow).get(name)
        parts = {}
        for source in computing[-few_runs(subject) :] if exact is not None else ():
            work.go_on()
            got = run_rounded(subject, name, source, narrow).get(name)
            parts[source] = 0.0 if got is None else how_far_off(exact, got, flips=bool(own.flips)) / whole
    except PrecisionDebugError:
        return "", None
    most = max(parts, key=lambda one: parts[one], default="")
    return (most, parts[most]) if most and most != name and parts[most] >= _HALF else ("", None)


def run_rounded(subject: Subject, name: str, rounds: str, narrow: Narrow) -> dict[str, Any]:
    """The end of a stretch, in a run of the baseline in which one tensor inside is rounded."""
    seen: dict[str, Any] = {}

    def replace(_op: str, one: str, value: Any) -> Any:
        array = subject.bench.host(value)
        if one == name:
            seen[name] = np.array(array)
        if one != rounds or array.dtype.kind != "f":
            return None
        return subject.bench.with_error(value, array, narrow(array))

    subject.operators()[0].run_replacing(subject.feeds, subject.showing(replace), {name, rounds} - {""})
    return seen


def how_far_off(exact: Any, got: Any, *, flips: bool) -> float:
    """Elements that differ, or the relative L2 error."""
    if exact.shape != got.shape:
        return 0.0
    if flips:
        return float(np.count_nonzero(exact != got))
    with np.errstate(all="ignore"):
        size = float(np.linalg.norm(exact.astype(np.float64)))
        error = float(np.linalg.norm(got.astype(np.float64) - exact.astype(np.float64)))
    return error / size if size and math.isfinite(error) else 0.0
