"""Choices that rounding flips: which operator chose otherwise, in how many places, and how far its scores were apart.

A top-k, an argmax, a sort or a threshold makes whole numbers of floats: a rounding error that is nothing to any of them
makes it take another expert or another branch, whose numbers have nothing to do with those of the first. What is told
of it is measured: the scores of both sides, in the places where the choices differ.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.arrays import as_array
from ..numbers.widen import widen
from ..reasons import Reason, say
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation
from .criteria import FAR
from .operator_facts import acting_type
from .subject import Subject

__all__ = ["choice_between", "with_choices"]

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]

_LARGEST = 1 << 24
"""Elements of scores up to which they are looked at: 128 MiB as float64."""


def with_choices(explanation: Explanation, subject: Subject) -> tuple[Explanation, tuple[Reason, ...]]:
    """The explanation, whose culprits that flip a choice say so, and what else to say: where none does and the error is
    of rounding, the first choice that differs. Takes a run of both sides for each such operator."""
    flipped = _flipped(subject)
    if not flipped or explanation.state not in ("culprits", "diffuse"):
        return explanation, ()
    measured: dict[str, Evidence] = {}

    def told(name: str) -> Evidence:
        if name not in measured:
            measured[name] = _measured(subject, name)
        return measured[name]

    culprits = []
    for culprit in explanation.culprits:
        decides = _decides(subject, culprit, flipped) if _rounds(subject, culprit) else ""
        evidence = told(decides) if decides else {}
        culprits.append(
            dataclasses.replace(culprit, cause="flips", evidence=evidence, amplifier=decides) if evidence else culprit
        )
    notes: tuple[Reason, ...] = ()
    rounding = all(CAUSES[one.cause].unproven or CAUSES[one.cause].enlarged for one in culprits[:1])
    if rounding and not any(one.cause == "flips" for one in culprits):
        before = subject.ancestors(explanation.at) | {explanation.at}
        first = next((name for name in flipped if name in before), "")
        notes = (_note(told(first)),) if first else ()
    return dataclasses.replace(explanation, culprits=tuple(culprits)), notes


def _rounds(subject: Subject, culprit: Culprit) -> bool:
    """Whether nothing better is known of a culprit than that it rounds as others do."""
    ordinary = culprit.introduced is not None and not subject.far(culprit.introduced, culprit.units, FAR)
    return ordinary and CAUSES[culprit.cause].unproven


def _note(evidence: Evidence) -> Reason:
    name, op, count, places = (evidence[key] for key in ("amplifier", "amplifier_type", "count", "elements"))
    if "margin" in evidence:
        margin, off = evidence["margin"], evidence["off"]
        return say("choices_flip_apart", op=op, name=name, count=count, places=places, margin=margin, off=off)
    return say("choices_flip", op=op, name=name, count=count, places=places)


def _flipped(subject: Subject) -> list[str]:
    """Tensors of whole numbers or booleans, made of floats, in which the sides differ; in execution order."""
    found = []
    for name, row in subject.row_of.items():
        differs = row.comparison is not None and not _is_float(subject, name) and row.comparison.mismatched
        if differs and any(_is_float(subject, source) for source in subject.sources(name)):
            found.append(name)
    return sorted(found, key=lambda name: subject.order.get(name, 0))


def _is_float(subject: Subject, name: str) -> bool:
    row = subject.row_of[name]
    held = row.comparison.base.dtype if row.comparison is not None else ""
    return "float" in held or "complex" in held or subject.whole_steps(name)


def _decides(subject: Subject, culprit: Culprit, flipped: Sequence[str]) -> str:
    """The choice behind a culprit by way of which its error became large; "" where it did so by itself. Of several, the
    first: what is counted of choices, and read as a place, flips because they did."""
    after = subject.descendants(culprit.name)
    seen: set[str] = set()
    found: set[str] = set()
    waiting = [name for name in (culprit.amplifier, culprit.fails_first) if name in subject.row_of]
    while waiting:
        name = waiting.pop(0)
        if name in flipped and name in after:
            found.add(name)
        elif name not in seen:
            waiting += [source for source in subject.sources(name) if not _is_float(subject, source)]
        seen.add(name)
    return next((name for name in flipped if name in found), "")


def _measured(subject: Subject, name: str) -> Evidence:
    """What differs there, and of which scores; as much as can be read of both sides."""
    row = subject.row_of[name]
    assert row.comparison is not None
    evidence: Evidence = {
        "amplifier": name, "amplifier_type": acting_type(subject, name), "count": row.comparison.mismatched,
        "elements": row.comparison.base.elements,
    }  # fmt: skip
    scores = [source for source in subject.sources(name) if _is_float(subject, source)]
    sizes = [subject.row_of[one].comparison for one in scores]
    if not scores or any(one is None or one.base.elements > _LARGEST for one in sizes):
        return evidence
    wanted = {one: subject.row_of[one].target_name or one for one in (name, *scores)}
    try:
        base = _values(subject.baseline, subject.feeds, {one: one for one in wanted})
        target = _values(subject.target, subject.feeds_of_target, {there: one for one, there in wanted.items()})
    except PrecisionDebugError:
        return evidence
    if not wanted.keys() <= base.keys() & target.keys():
        return evidence
    return {**evidence, **choice_between([base[one] for one in scores], [target[one] for one in scores],
                                         base[name], target[name])}  # fmt: skip


def _values(session: Any, feeds: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Array]:
    """Tensors of one more run, under other names."""
    found: dict[str, Array] = {}

    def hook(_op: str, name: str, tensor: Any, /) -> None:
        if name in names and names[name] not in found:
            found[names[name]] = np.array(as_array(tensor, name=name))

    session.run(feeds, hook, frozenset(names))
    return found


def choice_between(base: Sequence[Array], target: Sequence[Array], chose: Array, chose_there: Array) -> Evidence:
    """How often two sides chose otherwise, of how many choices, how far the baseline's scores were apart there at most,
    and how far the target's are off there; without what cannot be told of these arrays.

    base, target: the scores, and what they are compared with where that is not constant. chose, chose_there: indices
    into the scores along one axis, what a threshold or a rounding makes of each, or the boxes that are left: of which
    the two sides may have another number.
    """
    if len(base) > 1 and _are_boxes(base[1], chose) and _are_boxes(base[1], chose_there):
        return _of_boxes(base[1], target[1], chose, chose_there)
    if chose.shape != chose_there.shape or any(b.shape != t.shape for b, t in zip(base, target, strict=True)):
        return {}
    first, there = widen(base[0]), widen(target[0])
    axis = _axis(first, chose)
    if axis is not None:
        return _of_indices(first, there, chose, chose_there, axis)
    flips = chose != chose_there
    fitting = [(widen(b), widen(t)) for b, t in zip(base, target, strict=True)]
    try:
        pairs = [(np.broadcast_to(b, flips.shape)[flips], np.broadcast_to(t, flips.shape)[flips]) for b, t in fitting]
    except ValueError:
        return {}
    off = max(_most(np.abs(t - b)) for b, t in pairs)
    margin = _apart(*pairs) if len(pairs) == 2 and chose.dtype.kind == "b" else math.inf
    found = {"count": int(flips.sum()), "elements": int(flips.size)}
    if not math.isfinite(off):
        return found
    return {**found, "off": off} if not math.isfinite(margin) else {**found, "off": off, "margin": margin}


def _are_boxes(scores: Array, chose: Array) -> bool:
    """Whether these are rows of batch, class and box, as NonMaxSuppression has them, of such scores."""
    fits = chose.dtype.kind in "iu" and chose.ndim == 2 and chose.shape[1] == 3 == scores.ndim
    return fits and bool((chose >= 0).all() and (chose < np.array(scores.shape)).all())


def _of_boxes(scores: Array, there: Array, chose: Array, chose_there: Array) -> Evidence:
    """Boxes that one side alone has; where both have the same ones, those that others have overtaken."""
    mine, theirs = ([tuple(row) for row in one.tolist()] for one in (chose, chose_there))
    alone = {*mine} ^ {*theirs}
    count = max(len({*mine} - {*theirs}), len({*theirs} - {*mine}))
    moved = alone or {one for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1] for one in pair}
    if not alone:
        places = {one: place for place, one in enumerate(theirs)}
        count = len(mine) - _in_order([places[one] for one in mine])
    found: Evidence = {"count": count, "elements": int(scores.size)}
    if scores.shape != there.shape or not moved:
        return found
    at = tuple(np.array(sorted(moved)).T)
    off = _most(np.abs(widen(there)[at] - widen(scores)[at]))
    return {**found, "off": off} if math.isfinite(off) else found


def _in_order(places: Sequence[int]) -> int:
    """How many of these stand in ascending order at most, if the others are left out."""
    ends: list[int] = []
    for place in places:
        at = bisect.bisect_left(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)


def _apart(one: tuple[Array, Array], other: tuple[Array, Array]) -> float:
    """How far two numbers are apart at most; where the baseline's are equal, as a maximum and itself are, the target's:
    that is by how much another one has overtaken it."""
    gap, there = np.abs(one[0] - other[0]), np.abs(one[1] - other[1])
    return _most(np.where(gap == 0, there, gap))


def _axis(scores: Array, chose: Array) -> int | None:
    """Along which axis of the scores these are indices; None where they are none."""
    if chose.dtype.kind not in "iu" or not chose.size or not scores.ndim:
        return None
    found: list[int] = []
    if chose.ndim == scores.ndim:
        apart = [axis for axis in range(scores.ndim) if scores.shape[axis] != chose.shape[axis]]
        found = apart if len(apart) == 1 else [scores.ndim - 1] if not apart else []
    elif chose.ndim == scores.ndim - 1:
        whole = scores.shape
        found = [axis for axis in range(scores.ndim) if chose.shape == (*whole[:axis], *whole[axis + 1 :])]
    if not found:
        return None
    axis = found[-1]
    if chose.min() < 0 or chose.max() >= scores.shape[axis]:
        return None
    if chose.shape == scores.shape:  # of as many as there are, an order: each once
        ordered = np.sort(np.moveaxis(chose, axis, -1), -1)
        if not (ordered == np.arange(scores.shape[axis])).all():
            return None
    return axis


def _of_indices(scores: Array, there: Array, chose: Array, chose_there: Array, axis: int) -> Evidence:
    if chose_there.min() < 0 or chose_there.max() >= scores.shape[axis]:
        return {}
    if chose.ndim < scores.ndim:
        chose, chose_there = np.expand_dims(chose, axis), np.expand_dims(chose_there, axis)
    lines = [np.moveaxis(one, axis, -1).reshape(-1, one.shape[axis]) for one in (scores, there, chose, chose_there)]
    own, other, mine, theirs = lines
    taken, taken_there = np.zeros(own.shape, bool), np.zeros(own.shape, bool)
    np.put_along_axis(taken, mine.astype(np.int64), True, -1)
    np.put_along_axis(taken_there, theirs.astype(np.int64), True, -1)
    lost, won = taken & ~taken_there, taken_there & ~taken
    flipped = lost.any(-1)
    if flipped.any():
        apart = np.where(lost, own, -np.inf)[flipped].max(-1) - np.where(won, own, np.inf)[flipped].min(-1)
        at = lost | won
        margin = _most(np.abs(apart))
    else:  # the same ones in another order
        flipped = (mine != theirs).any(-1)
        gaps = np.take_along_axis(own, mine.astype(np.int64), -1) - np.take_along_axis(own, theirs.astype(np.int64), -1)
        at = np.zeros(own.shape, bool)
        np.put_along_axis(at, mine.astype(np.int64), mine != theirs, -1)
        margin = _most(np.abs(gaps))
    found = {"count": int(flipped.sum()), "elements": len(own)}
    off = _most(np.abs(other - own)[at])
    return {**found, "off": off, "margin": margin} if math.isfinite(off + margin) else found


def _most(values: Array) -> float:
    """inf where there are none, or one is NaN."""
    return float(values.max()) if values.size and not np.isnan(values).any() else math.inf
