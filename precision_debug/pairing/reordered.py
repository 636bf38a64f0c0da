"""Which tensors and constants of two files are the same in another order of channels, which later layers undo.

Tools that prune, or sort heads, move the rows of one layer and the columns of the next one alike: both files compute
the same, and only what lies between has its channels in another order. The orders are those in which a constant of the
one file is the other's; where they hold is decided by values, which must agree far better so. All that reads such a
tensor has to be in that order as well, to undo it, or not to depend on it: otherwise the order is what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..records import TensorMeta

__all__ = ["Order", "Reordered", "find_order", "find_reordered", "iterate_blocks", "list_orders"]

Array = np.ndarray[Any, Any]
Constants = Mapping[str, Sequence[tuple[str, Array, Array]]]

_BY_FAR = 4.0
"""How many times better values must agree in an order than without it."""
_ROUNDED = 1e-5
"""Relative error that sums in another order leave."""
_LOOKED_UP = 64
"""Elements of a channel by which it is looked up before all of it is compared."""
_SAMPLED = 1 << 14
"""Numbers of an array by which orders are told apart, four of each channel at least."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """places: where each of the baseline's channels, along the axis, stands in the target's."""

    axis: int
    places: tuple[int, ...]

    def put_back(self, array: Array) -> Array:
        """Return the target's array in the baseline's order."""
        return np.ascontiguousarray(array.take(self.places, self.axis))


@dataclass(frozen=True, kw_only=True)
class Reordered:
    """By the target's names. tensors: their orders; constants: those of an operator's constants, by their names."""

    tensors: Mapping[str, Order] = field(default_factory=dict)
    constants: Mapping[str, Mapping[str, Order]] = field(default_factory=dict)


def find_order(base: Array, target: Array) -> tuple[int, Sequence[int]] | None:
    """Return an axis and the order along it in which the target has the baseline's numbers; None where it has others,
    where some of what is moved is equal, or where nothing moved."""
    for axis in range(base.ndim) if base.shape == target.shape and base.size else ():
        mine, theirs = (np.moveaxis(array, axis, 0) for array in (base, target))
        sizes = mine.shape[1:]
        at = np.linspace(0, math.prod(sizes) - 1, min(_LOOKED_UP, math.prod(sizes)), dtype=int)
        some: Any = (slice(None), *np.unravel_index(at, sizes)) if sizes else ()
        places = {part.tobytes(): place for place, part in enumerate(mine[some])}
        if len(places) < len(mine):
            continue
        order = [places.get(part.tobytes(), -1) for part in theirs[some]]
        moves = min(order) >= 0 and order != sorted(order)
        if moves and all(np.array_equal(mine[there], part) for there, part in zip(order, theirs, strict=True)):
            return axis, order
    return None


def list_orders(pairs: Iterable[tuple[Array, Array]]) -> list[tuple[int, ...]]:
    """Return the places (see Order) of what moved in constants of both files, and of whole blocks of it, as heads."""
    found: dict[tuple[int, ...], None] = {}
    for base, target in pairs:
        moved = find_order(base, target) if base.size > 1 else None
        if moved is not None:
            places = np.argsort(moved[1])
            found[tuple(places.tolist())] = None
            found.update(dict.fromkeys(iterate_blocks(places)))
    return list(found)


def iterate_blocks(places: Array) -> Iterator[tuple[int, ...]]:
    """Yield the same order as one of whole blocks, of the smallest blocks first."""
    for size in range(2, len(places) // 2 + 1):
        if len(places) % size == 0:
            blocks = places.reshape(-1, size)
            if not (blocks[:, 0] % size).any() and (blocks == blocks[:, :1] + np.arange(size)).all():
                yield tuple((blocks[:, 0] // size).tolist())


def find_reordered(
    tensors: Sequence[TensorMeta], fed: Collection[str], values: Mapping[str, tuple[Array, Array]],
    constants: Constants, orders: Sequence[tuple[int, ...]],
) -> Reordered:  # fmt: skip
    """Return what of the target is in another of these orders, all of which is undone.

    tensors: the target's. fed: its inputs. values: of both sides, by the target's names; constants: of its
    operators, with their names, of both files."""
    moved = {name: order for name, pair in values.items() if (order := _choose(*pair, orders)) is not None}
    turned = {
        name: {key: order for key, *pair in found if (order := _choose(pair[0], pair[1], orders)) is not None}
        for name, found in constants.items()
    }  # fmt: skip
    follows = set(fed)
    for meta in tensors:
        if meta.op_type == "Input" or not follows.isdisjoint(meta.inputs):
            follows.add(meta.name)
    group = {name: {name} for name in moved}
    wrong = {meta.name for meta in tensors if meta.is_output and meta.name in moved}
    undoing: dict[str, str] = {}
    for meta in tensors:
        read = [name for name in dict.fromkeys(meta.inputs) if name in moved]
        together = [*read, meta.name] if meta.name in moved else read
        if meta.name in moved and meta.name in follows and not read and not turned.get(meta.name):
            wrong.add(meta.name)  # nothing says why
        if not read:
            continue
        whole = set().union(*(group[name] for name in together))
        group.update(dict.fromkeys(whole, whole))
        if meta.name in moved:
            continue
        undoing[meta.name] = read[0]
        ahead = [moved[name].places for name in read if name in follows]
        beside = [moved[name].places for name in read if name not in follows]
        beside += [order.places for order in turned.get(meta.name, {}).values()]
        is_undone = bool(ahead) and all(one in beside or ahead.count(one) > 1 for one in ahead)
        if not is_undone and not (ahead and not beside and _is_as_before(meta.name, read, values, moved)):
            wrong.add(read[0])
    kept = {name: order for name, order in moved.items() if group[name].isdisjoint(wrong)}
    held: dict[str, dict[str, Order]] = {}
    for name, found in turned.items():
        source = undoing.get(name, name)
        if source in kept:
            own = _turn_vectors(constants[name], kept[name]) if name in kept else {}
            held[name] = {**own, **found}
    return Reordered(tensors=kept, constants={name: found for name, found in held.items() if found})


def _choose(base: Array, target: Array, orders: Sequence[tuple[int, ...]]) -> Order | None:
    """Return the order in which an array agrees far better with the baseline's than as it is."""
    if base.shape != target.shape or base.dtype.kind not in "fV" or np.array_equal(base, target):
        return None
    best, least = None, np.inf
    for axis, size in enumerate(base.shape):
        fitting = [one for one in orders if len(one) == size]
        if not axis:  # heads of each sample
            fitting += [_repeat(one, size) for one in orders if len(one) < size and size % len(one) == 0]
        if not fitting:
            continue
        first, second = (_sample(array, axis) for array in (base, target))
        limit = _measure_apart(first, second) / _BY_FAR
        for places in fitting:
            apart = _measure_apart(first, second[list(places)])
            if apart < min(limit, least):
                best, least = Order(axis=axis, places=places), apart
    return best


def _repeat(places: tuple[int, ...], size: int) -> tuple[int, ...]:
    return tuple(start + place for start in range(0, size, len(places)) for place in places)


def _sample(array: Array, axis: int) -> Array:
    """Return some of each channel's numbers: [channels, numbers]."""
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    step = max(1, rows.shape[1] // max(4, _SAMPLED // max(1, len(rows))))
    return np.nan_to_num(rows[:, ::step].astype(np.float64), posinf=0.0, neginf=0.0)


def _measure_apart(one: Array, other: Array) -> float:
    return float(np.linalg.norm(one - other)) / max(float(np.linalg.norm(one)), 1e-300)


def _is_as_before(
    name: str, read: Sequence[str], values: Mapping[str, tuple[Array, Array]], moved: Mapping[str, Order]
) -> bool:
    """Return whether what comes of tensors in another order agrees as well as they do: a mean over all channels."""
    if name not in values or values[name][0].shape != values[name][1].shape:
        return False
    apart = [_measure_apart(values[one][0], moved[one].put_back(values[one][1])) for one in read]
    base, target = (array.astype(np.float64) for array in values[name])
    return _measure_apart(base, target) <= max(_ROUNDED, _BY_FAR * max(apart))


def _turn_vectors(constants: Sequence[tuple[str, Array, Array]], order: Order) -> dict[str, Order]:
    """Return the order of what is one number a channel of the result: a bias that kept its own is then told."""
    size = (len(order.places),)
    return {key: Order(axis=0, places=order.places) for key, _, array in constants if array.shape == size}
