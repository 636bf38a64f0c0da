"""What becomes of several numbers that a scatter writes to one place: their sum, the last of them, the largest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..reasons import say
from .operator_facts import parameters_of, types_of
from .undo import Case

__all__ = ["find_meeting"]

Array = np.ndarray[Any, Any]

_MOST = 1 << 20
"""Numbers up to which a scatter is done once more."""


def _last(out: Array, at: Array, values: Array) -> None:
    out[at] = values


def _first(out: Array, at: Array, values: Array) -> None:
    out[at[::-1]] = values[::-1]


def _list_ways() -> dict[str, Callable[[Array, Array, Array], None]]:
    """Return what may be made of numbers that go to one place, by what it is called."""
    return {
        say("their_sum"): np.add.at, say("the_last"): _last, say("the_first"): _first,
        say("the_largest"): np.maximum.at, say("the_smallest"): np.minimum.at, say("their_product"): np.multiply.at,
    }  # fmt: skip


def find_meeting(case: Case, left: float) -> dict[str, Any]:
    """Return what each side makes of numbers that go to one place, where doing both once more gives what they gave; {}
    where an operator scatters nothing, no place is written twice, or no such pair of ways gives it.

    left: the part of its own error that may be left. What it reads has to be seen: where it writes to what is not, that
    is taken for zeros."""
    if not any(word in one for one in types_of(case.subject, case.name) for word in _SCATTER) or not case.own:
        return {}
    read = {**_read_there(case), **parameters_of(case.subject, case.name)}
    read |= {source: given for source in case.subject.sources(case.name) if (given := case.given(source)) is not None}
    if case.exact.size > _MOST or any(one.size > _MOST for one in read.values()):
        return {}
    indices = [one for one in read.values() if one.dtype.kind in "iu" and one.size]
    floats = [one.astype(np.float64) for one in read.values() if one.dtype.kind == "f"]
    starts = [*(one for one in floats if one.shape == case.exact.shape), np.zeros(case.exact.shape)]
    for at in (at for index in indices for at in _list_places(index, case.exact.shape)):
        if len(np.unique(at)) == at.size:
            continue
        for values in (one for one in floats if one.size == at.size):
            for start in (one for one in starts if one is not values):
                made = {way: _scatter(start, at, values, do) for way, do in _list_ways().items()}
                offs = [{way: float(np.linalg.norm(one - side)) for way, one in made.items()}
                        for side in (case.exact, case.wrong)]  # fmt: skip
                (ours, off), (theirs, off_there) = (min(one.items(), key=lambda told: told[1]) for one in offs)
                if ours != theirs and max(off, off_there) <= max(left, 1e-6) * case.own:
                    return {"met": ours, "met_there": theirs}
    return {}


def _read_there(case: Case) -> dict[str, Array]:
    """Return the constants of the target's operator, as a script's own indices are none of its module."""
    target, row = case.subject.operators()[1], case.subject.row_of[case.name]
    there = target.operator(row.target_name) if target is not None else None
    return {key: np.asarray(value) for key, value in there.parameters.items()} if there is not None else {}


_SCATTER = ("catter", "index_add", "index_put", "index_copy", "index_reduce")


def _scatter(start: Array, at: Array, values: Array, do: Callable[[Array, Array, Array], None]) -> Array:
    out: Array = start.reshape(-1).copy()
    do(out, at.reshape(-1), values.reshape(-1))
    written: Array = out.reshape(start.shape)
    return written


def _list_places(index: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    """Yield the places, counted through a tensor, to which indices may write: one for each number along an axis, as
    ScatterElements has them, a row of them for each place, as ScatterND, or whole slices of an axis."""
    flat = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    for axis, size in enumerate(shape):
        inside = bool(((index >= -size) & (index < size)).all())
        along = np.where(index < 0, index + size, index)
        beside = np.delete(index.shape, axis) <= np.delete(shape, axis) if index.ndim == len(shape) else np.array(False)
        if inside and beside.all():
            places: list[Array] = list(np.indices(index.shape, sparse=True))
            places[axis] = along
            yield flat[tuple(places)]
        if inside and index.ndim == 1:
            yield flat.take(along, axis)
    depth = index.shape[-1] if index.ndim > 1 else 0
    sizes = np.array(shape[:depth])
    if 0 < depth <= len(shape) and bool(((index >= -sizes) & (index < sizes)).all()):
        yield flat[tuple(np.moveaxis(np.where(index < 0, index + sizes, index), -1, 0))]
