"""Where in a tensor an operator computes something else, as indices of its axes, and what stands there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..reasons import say
from .criteria import HALF

__all__ = ["find_place", "write_box"]

Array = np.ndarray[Any, Any]

_LISTED = 6
"""Indices of one axis that are written out where they are no range."""

_AGREE = 2
"""Numbers at which alone two arrays agree, at the least: a single one may do so by chance."""


def find_place(exact: Array, wrong: Array, left: float) -> dict[str, Any]:
    """Return the indices outside of which two arrays of one shape agree, where these are half of the elements or fewer,
    or those at which alone they agree, and the number that one of both has wherever they differ; or else between which
    bounds the exact one's numbers lie that come out otherwise. {} where the difference is everywhere, or is no number.

    left: the part of the error (of its L2 norm) that what agrees may have together, which is what rounding makes.

    The indices are the smallest box that holds all of them, as ``[1, 6:9, :]``; or else whole slices of several axes,
    as the rows and columns at an image's edge.
    """
    error = np.asarray(np.abs(wrong - exact), np.float64)
    worst = error.max(initial=0.0)  # NaN where any is
    if not np.isfinite(worst) or not worst or left >= HALF:
        return {}
    differs = _find_differing(np.square(np.divide(error, worst, out=error), out=error), left)
    many = {"differing": int(differs.sum()), "elements": differs.size}
    if (found := _find_indices(differs)) is not None:
        place, inside = found
        return _find_filled(exact, wrong, inside, {**many, "place": place}) or {**many, "place": place}
    if (found := _find_indices(~differs)) is not None:
        place, agreeing = found
        chance = agreeing.sum() < _AGREE or "(" in place  # no range of indices
        if not chance and not (differs & agreeing).any():
            told = {**many, "place": say("all_places_but", places=place)}
            return _find_filled(exact, wrong, differs, told) or told
    share = many["differing"] / differs.size
    where = say("all_places") if share == 1 else say("most_places") if share > HALF else say("some_places")
    return _find_filled(exact, wrong, differs, {**many, "place": where}) or _find_range(exact, differs, many)


def _find_indices(differs: Array) -> tuple[str, Array] | None:
    """Return the indices outside of which nothing is true, written out, and where they are; None where they are more
    than half of the elements, or none."""
    for chosen in (_find_box(differs), _find_slices(differs)):
        inside = np.zeros(differs.shape, bool)
        for box in chosen:
            inside[np.ix_(*box)] = True
        if 0 < inside.sum() <= HALF * differs.size and not (differs & ~inside).any():
            return ", ".join(write_box(box, differs.shape) for box in chosen), inside
    return None


def _find_filled(exact: Array, wrong: Array, there: Array, told: dict[str, Any]) -> dict[str, Any]:
    """Return what is told of a place with the number that one of both has in all of it; {} where both have several."""
    for key, values in (("base_there", exact[there]), ("target_there", wrong[there])):
        if values.size > 1 and (values == values[0]).all():
            return {**told, key: f"{values[0]:.4g}"}
    return {}


def _find_range(exact: Array, differs: Array, told: dict[str, Any]) -> dict[str, Any]:
    """Return what bounds the baseline's results that come out otherwise, where most within these bounds do, and no more
    than half of all results lie there; {} where nothing does."""
    sizes, among = np.abs(exact), exact[differs]
    most, least, size = (float(one) + 0.0 for one in (among.max(), among.min(), np.abs(among).min()))  # no -0
    for within, there in (
        (say("numbers_to", most=most), exact <= most),
        (say("numbers_from", least=least), exact >= least),
        (say("sizes_from", least=size), sizes >= size),
    ):
        if there.sum() <= HALF * there.size and differs.sum() > HALF * there.sum():
            return {**told, "within": within}
    return {}


def _find_differing(squares: Array, left: float) -> Array:
    """Return which elements differ: all but the smallest errors, as many as make no more than what may be left.

    squares: of the errors, float64 from 0 to 1. Only those are sorted among which the last one lies that agrees: nearly
    as large ones, by the first bits of their exponent and digits."""
    sizes = (squares.view(np.int64) >> _DIGITS_DROPPED).ravel()  # in the order of the numbers, as none is negative
    sums = np.cumsum(np.bincount(sizes, squares.ravel()))
    most = left**2 * sums[-1]
    there = int(np.searchsorted(sums, most, side="right"))  # larger ones differ, smaller ones agree
    if there == len(sums):
        return np.zeros(squares.shape, bool)
    among = np.sort(squares.ravel()[sizes == there])
    agreeing = int(np.searchsorted(np.cumsum(among), most - (sums[there - 1] if there else 0.0), side="right"))
    differs = sizes >= there if not agreeing else squares.ravel() > among[agreeing - 1]
    found: Array = differs.reshape(squares.shape)
    return found


_DIGITS_DROPPED = 46
"""Of a float64's 52 bits of digits: 64 sizes for each power of two remain."""


def _find_box(differs: Array) -> list[list[Array]]:
    """Return, as one box, the indices of each axis at which anything differs."""
    return [[np.flatnonzero(differs.any(_others(differs, axis))) for axis in range(differs.ndim)]]


def _find_slices(differs: Array) -> list[list[Array]]:
    """Return one box for each axis of which there are slices that differ in most of their elements."""
    every = [np.arange(size) for size in differs.shape]
    found = []
    for axis in range(differs.ndim):
        most = np.flatnonzero(differs.mean(_others(differs, axis)) > HALF)
        if 0 < len(most) < differs.shape[axis]:
            found.append([*every[:axis], most, *every[axis + 1 :]])
    return found


def _others(values: Array, axis: int) -> tuple[int, ...]:
    return tuple(one for one in range(values.ndim) if one != axis)


def write_box(box: Sequence[Array], shape: Sequence[int]) -> str:
    """Write indices of each axis as one writes them in Python, as ``[1, 6:9, :]``."""
    return f"[{', '.join(_write_indices(one.tolist(), size) for one, size in zip(box, shape, strict=True))}]"


def _write_indices(indices: list[int], size: int) -> str:
    """As Python slices an axis: ":", "3", "6:9", "0:8:2", or "(0, 3, 7)"."""
    first, last = indices[0], indices[-1]
    if len(indices) == size:
        return ":"
    if len(indices) == 1:
        return str(first)
    step = indices[1] - first
    if indices == [*range(first, last + 1, step)] and (step == 1 or len(indices) > 2):
        return f"{first}:{last + 1}" + (f":{step}" if step > 1 else "")
    return f"({', '.join(map(str, indices[:_LISTED]))}{', …' if len(indices) > _LISTED else ''})"
