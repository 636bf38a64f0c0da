"""Casts to a narrower type that only the target does, between two tensors that are compared: what each of them loses.

Such a cast is no row of both sides, and what it loses is the error of the next operator that is one. A gradient that is
cast to float8 and back again is one: it is flushed to 0 there, cut off, or rounded, and the operator behind it, which
computes in bfloat16, has no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .operators import CASTS, plain_type
from .step_float8 import operands_in_float8
from .subject import Subject
from .units import bits_of, largest_of, smallest_of

__all__ = ["CastLoss", "Casts", "cause_by_cast", "narrow_casts", "on_the_way"]

_MOST_OF_IT = 0.5
"""Share of a cast's squared error from which on what it flushed, or cut off, is the cause."""

_PART = 0.3
"""Error of a cast beside that of the operator behind it, from which on it is put down to the cast."""


@dataclass(frozen=True, kw_only=True)
class CastLoss:
    """What one cast made of what it was given, in a run of the target on the baseline's values.

    name, source: its row of the target, and the one that it reads. lost: elements that became 0; beyond: elements
    above the type's largest number; below_part, beyond_part: share of the squared error in what lies below the type's
    normal numbers, and above its largest. error: relative L2, inf where NaN or Inf came of it. largest: absolute.
    """

    name: str
    source: str
    dtype: str
    elements: int
    lost: int
    beyond: int
    below_part: float
    beyond_part: float
    error: float
    largest: float


class Casts:
    """Measures the casts of a run, as what each reads and gives is shown; names: of both, which must be shown."""

    def __init__(self, subject: Subject) -> None:
        self._source_of = narrow_casts(subject)
        self._types = {name: subject.targets[name].dtype for name in self._source_of}
        self._left: dict[str, int] = {}
        for source in self._source_of.values():
            self._left[source] = self._left.get(source, 0) + 1
        self._given: dict[str, Any] = {}
        self.found: dict[str, CastLoss] = {}
        self.names = frozenset(self._source_of) | frozenset(self._left)

    def see(self, name: str, value: Any) -> None:
        """value: what the run goes on with behind one of ``names``, an array that stays as it is."""
        source = self._source_of.get(name)
        given = self._given.get(source) if source is not None else None
        if source is not None:
            self._left[source] -= 1
            if not self._left[source]:
                self._given.pop(source, None)
        if source is not None and given is not None and given.shape == value.shape:
            self.found[name] = _loss(name, source, self._types[name], given, value)
        if self._left.get(name):
            self._given[name] = value


def narrow_casts(subject: Subject) -> Mapping[str, str]:
    """Casts to a type that is not the target's usual one, by the target's names: what each of them reads."""
    usual = {"float32", "float64", subject.narrow_type}
    operands = operands_in_float8(subject)
    found = {}
    for name, meta in subject.targets.items():
        if meta.dtype in usual or name in subject.partner or len(meta.inputs) != 1 or name in operands:
            continue
        bits, source = bits_of(meta.dtype), subject.targets.get(meta.inputs[0])
        if plain_type(meta.op_type) in CASTS and bits and source is not None and source.dtype != meta.dtype:
            found[name] = source.name
    return found


def _loss(name: str, source: str, dtype: str, given: Any, value: Any) -> CastLoss:
    with np.errstate(all="ignore"):
        exact, cast = np.asarray(given).astype(np.float64), np.asarray(value).astype(np.float64)
        fair, size = np.isfinite(exact), np.abs(exact)
        beyond, lost = fair & (size > largest_of(dtype)), fair & (exact != 0) & (cast == 0)
        below = fair & (size < smallest_of(dtype) * 2.0 ** (bits_of(dtype) - 1))
        broken = bool((fair & ~np.isfinite(cast)).any())
        squared = np.where(fair & np.isfinite(cast), np.square(cast - exact), 0.0)
        total, whole = float(squared.sum()), float(np.square(np.where(fair, exact, 0.0)).sum())
        parts = [float(squared[where].sum()) / total if total else 0.0 for where in (below, beyond)]
    return CastLoss(
        name=name, source=source, dtype=dtype, elements=int(exact.size), lost=int(lost.sum()), beyond=int(beyond.sum()),
        below_part=parts[0], beyond_part=1.0 if broken else parts[1], largest=float(np.max(size[fair], initial=0.0)),
        error=math.inf if broken else math.sqrt(total / whole) if whole else 0.0,
    )  # fmt: skip


def cause_by_cast(
    subject: Subject, casts: Mapping[str, CastLoss], name: str, error: float | None
) -> tuple[str, dict[str, Any]] | None:
    """A cause's code and evidence, where most of an operator's error was made by a cast on the way to it; else None.

    error: relative L2 that the operator introduces; inf where NaN or Inf first appear in it.
    """
    worst = max((casts[one] for one in on_the_way(subject, name) if one in casts), key=_size, default=None)
    if worst is None or not worst.error or error is None or worst.error < _PART * min(error, 1.0):
        return None
    if error == math.inf and worst.error < math.inf and not worst.beyond and not worst.lost:
        return None
    cast = {"cast": worst.dtype, "source": worst.source}
    if worst.beyond and worst.beyond_part > _MOST_OF_IT:
        found = {"largest": worst.largest, "limit": largest_of(worst.dtype), "count": worst.beyond, **cast}
        return "overflow", {**found, "cut": worst.error < math.inf}
    if worst.lost and worst.below_part > _MOST_OF_IT:
        return "underflow", {
            "lost": worst.lost, "share": worst.lost / worst.elements, "smallest": smallest_of(worst.dtype), **cast,
        }  # fmt: skip
    return "coarse", {"error": worst.error, **cast}


def _size(loss: CastLoss) -> float:
    return loss.error


def on_the_way(subject: Subject, name: str) -> list[str]:
    """The target's tensors without a partner from which a compared one is made, up to the next that have one."""
    row = subject.row_of.get(name)
    meta = subject.targets.get(row.target_name) if row is not None else None
    found: dict[str, None] = {}
    waiting = list(meta.inputs) if meta is not None else []
    while waiting:
        one = waiting.pop()
        if one in found or one in subject.partner or one not in subject.targets:
            continue
        found[one] = None
        waiting.extend(subject.targets[one].inputs)
    return [*found]
