"""Compare what two sides chose by scores: how often they differ, and how near these choices were."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..numbers.blocks import widen

__all__ = ["compare_choices", "find_choice_axis", "read_order"]

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]


def compare_choices(
    base: Sequence[Array], target: Sequence[Array], chose: Array, chose_there: Array, *, as_sets: bool = False
) -> Evidence:  # fmt: skip
    """Return how often two sides chose differently, of how many choices, and how near these were. "How near" is the
    largest distance of the baseline's scores there, beside the target's error there; what these arrays do not tell is
    left out.

    base, target: the scores, and what they are compared with where that is not constant. chose, chose_there: indices
    into the scores along one axis, what a threshold or a rounding makes of each, or the boxes that are left: of which
    the two sides may have another number. as_sets: the order of the indices says nothing.
    """
    if len(base) > 1 and _are_boxes(base[1], chose) and _are_boxes(base[1], chose_there):
        return _compare_boxes(base[1], target[1], chose, chose_there)
    if chose.shape != chose_there.shape or any(b.shape != t.shape for b, t in zip(base, target, strict=True)):
        return {}
    first, there = widen(base[0]), widen(target[0])
    axis = find_choice_axis(first, chose)
    if axis is not None:
        return _compare_indices(first, there, chose, chose_there, axis, as_sets)
    flips = chose != chose_there
    fitting = [(widen(b), widen(t)) for b, t in zip(base, target, strict=True)]
    try:
        pairs = [(np.broadcast_to(b, flips.shape)[flips], np.broadcast_to(t, flips.shape)[flips]) for b, t in fitting]
    except ValueError:
        return {}
    off = max(_largest_or_inf(np.abs(t - b)) for b, t in pairs)
    margin = _largest_distance(*pairs) if len(pairs) == 2 and chose.dtype.kind == "b" else math.inf
    found = {"count": int(flips.sum()), "elements": int(flips.size)}
    if not math.isfinite(off):
        return found
    return {**found, "off": off} if not math.isfinite(margin) else {**found, "off": off, "margin": margin}


def _are_boxes(scores: Array, chose: Array) -> bool:
    """Return whether these are rows of batch, class and box, as NonMaxSuppression has them, of such scores."""
    fits = chose.dtype.kind in "iu" and chose.ndim == 2 and chose.shape[1] == 3 == scores.ndim
    return fits and bool((chose >= 0).all() and (chose < np.array(scores.shape)).all())


def _compare_boxes(scores: Array, there: Array, chose: Array, chose_there: Array) -> Evidence:
    """Boxes that one side alone has; where both have the same ones, those that others have overtaken."""
    mine, theirs = ([tuple(row) for row in one.tolist()] for one in (chose, chose_there))
    alone = {*mine} ^ {*theirs}
    count = max(len({*mine} - {*theirs}), len({*theirs} - {*mine}))
    moved = alone or {one for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1] for one in pair}
    if not alone:
        places = {one: place for place, one in enumerate(theirs)}
        count = len(mine) - _count_in_order([places[one] for one in mine])
    found: Evidence = {"count": count, "elements": int(scores.size)}
    if scores.shape != there.shape or not moved:
        return found
    at = tuple(np.array(sorted(moved)).T)
    off = _largest_or_inf(np.abs(widen(there)[at] - widen(scores)[at]))
    return {**found, "off": off} if math.isfinite(off) else found


def _count_in_order(places: Sequence[int]) -> int:
    """Return how many of these stand in ascending order at most, if the others are left out."""
    ends: list[int] = []
    for place in places:
        at = bisect.bisect_left(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)


def _largest_distance(one: tuple[Array, Array], other: tuple[Array, Array]) -> float:
    """Return how far two numbers are apart at most; where the baseline's are equal, as a maximum and itself are, the
    target's: that is by how much another one has overtaken it."""
    gap, there = np.abs(one[0] - other[0]), np.abs(one[1] - other[1])
    return _largest_or_inf(np.where(gap == 0, there, gap))


def find_choice_axis(scores: Array, chose: Array) -> int | None:
    """Return along which axis of the scores these are indices; None where they are none."""
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


_COLUMNS = 16
"""Numbers of what one choice makes that tell it from the others."""


def read_order(scores: Array, chose: Array, made: Array, made_there: Array) -> Array | None:
    """Return choices in the order in which another side has what is made of each (its score, a row that it gathers):
    both sides' rows in ascending order are of the same choices. None where a tensor does not tell.

    chose: indices into the scores along one axis. made, made_there: as these choices make it, and the other side's.
    """
    axis, rank = find_choice_axis(scores, chose), chose.ndim
    if axis is None or rank != scores.ndim or made.shape != made_there.shape or made.shape[:rank] != chose.shape:
        return None
    lines = np.moveaxis(chose, axis, -1)
    orders = []
    for one in (made, made_there):
        rows = np.moveaxis(widen(one).reshape(*chose.shape, -1)[..., :_COLUMNS], axis, rank - 1)
        orders.append(np.lexsort(np.moveaxis(rows, -1, 0)[::-1]))
    found = np.empty_like(lines)
    np.put_along_axis(found, orders[1], np.take_along_axis(lines, orders[0], -1), -1)
    return np.moveaxis(found, -1, axis)


def _compare_indices(
    scores: Array, there: Array, chose: Array, chose_there: Array, axis: int, as_sets: bool
) -> Evidence:  # fmt: skip
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
        margin = _largest_or_inf(np.abs(apart))
    elif as_sets:
        return {"count": 0, "elements": len(own), "off": 0.0, "margin": 0.0}
    else:  # the same ones in another order
        flipped = (mine != theirs).any(-1)
        gaps = np.take_along_axis(own, mine.astype(np.int64), -1) - np.take_along_axis(own, theirs.astype(np.int64), -1)
        at = np.zeros(own.shape, bool)
        np.put_along_axis(at, mine.astype(np.int64), mine != theirs, -1)
        margin = _largest_or_inf(np.abs(gaps))
    found = {"count": int(flipped.sum()), "elements": len(own)}
    off = _largest_or_inf(np.abs(other - own)[at])
    return {**found, "off": off, "margin": margin} if math.isfinite(off + margin) else found


def _largest_or_inf(values: Array) -> float:
    """Return inf where there are none, or one is NaN."""
    return float(values.max()) if values.size and not np.isnan(values).any() else math.inf
