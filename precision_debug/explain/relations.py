"""How an operator's results are made of the baseline's, where it computes something else: a factor, an order, a cut.

Each relation is tried on the results of the same inputs, and told where it leaves no more than rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..pairing.reordered import find_order
from ..reasons import say
from .places import write_box

__all__ = ["find_relation"]

Array = np.ndarray[Any, Any]

_TOLD = 6
"""Places of an order that are told."""

_ROUNDED = 1e-6
"""Relative difference of two numbers that a copy in another type of float may have."""

_TRIED = 64
"""Parts of an input that are compared whole."""

_FOR_EACH = 2
"""Numbers for each one that is fitted, at the least: to a single one anything fits."""


def find_relation(
    exact: Array, wrong: Array, inputs: Mapping[str, Array], left: float, fitted: float = math.inf
) -> dict[str, Any]:  # fmt: skip
    """Return how one array is made of the other or of what an operator reads, in words, and the part of the error that
    is left so; {} where nothing that was tried leaves as little as ``left``, or where either holds NaN or Inf.

    exact, wrong: float64 of one shape. inputs: by name. fitted: what may be left at most where each place of an axis
    has a number of its own: these come near to much that is something else.
    """
    own = float(np.linalg.norm(wrong - exact))
    if not np.isfinite(own) or not own or exact.size < _FOR_EACH:
        return {}
    with np.errstate(all="ignore"):
        tried = ((left, _list_relations(exact, wrong, inputs)), (min(left, fitted), _list_along_axes(exact, wrong)))
        for most, (word, made) in ((most, one) for most, several in tried for one in several):
            remains = float(np.linalg.norm(wrong - made)) / own
            if remains <= most:
                return {"relation": word, "left": remains}
    return {}


def _list_relations(exact: Array, wrong: Array, inputs: Mapping[str, Array]) -> Iterator[tuple[Any, Array]]:
    """Yield each relation in words, and what it makes; what one number tells comes before what takes several."""
    for name, given in inputs.items():
        if given.shape == exact.shape:
            yield say("what_it_reads", name=name), given
    yield from _list_orders(exact, wrong)
    yield from _list_cuts(exact, wrong)
    factor = _fit(exact, wrong, None)
    yield say("times_the_baseline", factor=float(factor.item())), factor * exact
    more = (wrong - exact).mean()
    yield say("more_than_the_baseline", more=float(more)), exact + more
    for name, given in inputs.items():
        if given.shape == exact.shape:
            share = _fit(given, wrong - exact, None)
            yield say("and_times_an_input", factor=float(share.item()), name=name), exact + share * given
    yield from _list_parts(exact, wrong, inputs)


def _list_along_axes(exact: Array, wrong: Array) -> Iterator[tuple[Any, Array]]:
    """Yield the same with a number for each place of the other axes."""
    for axis in range(exact.ndim):
        if exact.shape[axis] >= _FOR_EACH:
            yield say("more_along_an_axis", axis=axis), exact + (wrong - exact).mean(axis, keepdims=True)
            each = _fit(exact, wrong, (axis,))
            least, most = float(each.min()), float(each.max())
            yield say("times_along_an_axis", axis=axis, least=least, most=most), each * exact


def _fit(given: Array, made: Array, axes: tuple[int, ...] | None) -> Array:
    """Return the factor, for each index of the other axes, with which one array comes nearest to the other (L2)."""
    squares = (given * given).sum(axes, keepdims=True)
    factor: Array = np.where(squares > 0, (given * made).sum(axes, keepdims=True) / squares, 0.0)
    return factor


def _list_orders(exact: Array, wrong: Array) -> Iterator[tuple[Any, Array]]:
    mine, theirs = exact.astype(np.float32), wrong.astype(np.float32)
    if (found := find_order(mine, theirs)) is not None:
        axis, order = found
        shown = ", ".join(map(str, [*order][:_TOLD])) + (", …" if len(order) > _TOLD else "")
        yield say("in_order_along", axis=axis, order=shown), exact.take(order, axis)
    elif np.isclose(mine.sum(dtype=float), theirs.sum(dtype=float)) and np.array_equal(
        np.sort(mine, axis=None), np.sort(theirs, axis=None)
    ):
        yield say("at_other_places"), wrong


def _list_cuts(exact: Array, wrong: Array) -> Iterator[tuple[Any, Array]]:
    low, high = float(wrong.min()), float(wrong.max())
    yield say("raised_to", low=low), np.maximum(exact, low)
    yield say("lowered_to", high=high), np.minimum(exact, high)
    yield say("cut_at", low=low, high=high), np.clip(exact, low, high)
    low, high = float(exact.min()), float(exact.max())
    yield say("not_raised_to", low=low), wrong - (np.maximum(wrong, low) - exact)
    yield say("not_lowered_to", high=high), wrong - (np.minimum(wrong, high) - exact)
    yield say("not_cut_at", low=low, high=high), wrong - (np.clip(wrong, low, high) - exact)


def _list_parts(exact: Array, wrong: Array, inputs: Mapping[str, Array]) -> Iterator[tuple[Any, Array]]:
    """Yield another part of an input along one axis, where the baseline's is a part of it."""
    for name, given in inputs.items():
        if given.ndim != exact.ndim:
            continue
        axes = [axis for axis in range(given.ndim) if given.shape[axis] != exact.shape[axis]]
        if len(axes) != 1 or given.shape[axes[0]] < exact.shape[axes[0]]:
            continue
        ours, theirs = (_find_part(given, values, axes[0]) for values in (exact, wrong))
        if ours is not None and theirs is not None:
            every = [np.arange(size) for size in given.shape]
            base, target = (
                write_box([*every[: axes[0]], at, *every[axes[0] + 1 :]], given.shape) for at in (ours, theirs)
            )
            yield say("another_part_of", name=name, base=base, target=target), given.take(theirs, axes[0])


def _find_part(given: Array, values: Array, axis: int) -> Array | None:
    """Return at which indices of an axis the input has these values, at equal steps; None if nowhere."""
    size, rows = values.shape[axis], np.moveaxis(given, axis, 0)
    firsts, lasts = (
        np.flatnonzero(np.isclose(rows, values.take(end, axis), rtol=_ROUNDED, atol=0).reshape(len(rows), -1).all(1))
        for end in (0, -1)
    )
    for first, last in itertools.islice(itertools.product(firsts, lasts), _TRIED):
        if (last - first) % max(size - 1, 1) == 0:
            at = np.linspace(first, last, size).astype(int)
            if np.allclose(given.take(at, axis), values, rtol=_ROUNDED, atol=0):
                return at
    return None
