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


def find_place(exact: Array, wrong: Array, left: float) -> dict[str, Any]:
    """Return the indices outside of which two arrays of one shape agree, where these are half of the elements or fewer,
    and the number that one of both has at all of them; or else between which bounds the exact one's numbers lie that
    come out otherwise. {} where the difference is everywhere, or is no number.

    left: the part of the error (of its L2 norm) that what agrees may have together, which is what rounding makes.

    The indices are the smallest box that holds all that differs, as ``[1, 6:9, :]``; or else whole slices of several
    axes, as the rows and columns at an image's edge.
    """
    error = np.abs(wrong - exact)
    if not np.isfinite(error).all() or not error.any() or left >= HALF:
        return {}
    differs = _find_differing(error, left)
    for chosen in (_find_box(differs), _find_slices(differs)):
        inside = np.zeros(error.shape, bool)
        for box in chosen:
            inside[np.ix_(*box)] = True
        if 0 < inside.sum() <= HALF * error.size and not (differs & ~inside).any():
            break
    else:
        many = {"differing": int(differs.sum()), "elements": differs.size}
        return _find_filled(exact, wrong, differs, many) or _find_range(exact, differs, many)
    place = ", ".join(write_box(box, error.shape) for box in chosen)
    told = {"place": place, "differing": int(differs.sum()), "elements": error.size}
    return _find_filled(exact, wrong, inside, told) or told


def _find_filled(exact: Array, wrong: Array, there: Array, told: dict[str, Any]) -> dict[str, Any]:
    """Return what is told of a place with the number that one of both has in all of it; {} where both have several."""
    for key, values in (("base_there", exact[there]), ("target_there", wrong[there])):
        if values.size > 1 and (values == values[0]).all():
            return {**told, key: f"{values[0]:.4g}", "place": told.get("place", say("some_places"))}
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


def _find_differing(error: Array, left: float) -> Array:
    """Return which elements differ: all but the smallest errors, as many as make no more than what may be left."""
    squares = (error / error.max()) ** 2
    in_order = np.sort(squares, axis=None)
    sums = np.cumsum(in_order)
    agreeing = int(np.searchsorted(sums, left**2 * sums[-1], side="right"))
    return squares > in_order[agreeing - 1] if agreeing else np.ones(error.shape, bool)


def _find_box(differs: Array) -> list[list[Array]]:
    """Return, as one box, the indices of each axis at which anything differs."""
    return [[np.flatnonzero(_collapse(differs, axis).any(axis=1)) for axis in range(differs.ndim)]]


def _find_slices(differs: Array) -> list[list[Array]]:
    """Return one box for each axis of which there are slices that differ in most of their elements."""
    every = [np.arange(size) for size in differs.shape]
    found = []
    for axis in range(differs.ndim):
        most = np.flatnonzero(_collapse(differs, axis).mean(axis=1) > HALF)
        if 0 < len(most) < differs.shape[axis]:
            found.append([*every[:axis], most, *every[axis + 1 :]])
    return found


def _collapse(values: Array, axis: int) -> Array:
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


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
