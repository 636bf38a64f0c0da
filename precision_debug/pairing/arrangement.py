"""One tensor in two layouts: channels last for channels first, a batch axis that is missing, or no shape at all.

An arrangement says how a tensor's numbers, in their order, become another's: reshape, then turn the axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Arrangement", "arrange", "list_arrangements", "put_back"]

Array = np.ndarray[Any, Any]
Shape = Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """shape: what the numbers are reshaped to; axes: how that is turned then, () for not at all."""

    shape: tuple[int, ...]
    axes: tuple[int, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the order of the numbers is the same."""
        return not self.axes

    @property
    def result(self) -> tuple[int, ...]:
        """The shape that comes of it."""
        return tuple(self.shape[axis] for axis in self.axes) if self.axes else self.shape


def arrange(array: Any, how: Arrangement) -> Array:
    """Return a tensor in the layout of its partner."""
    shaped = np.asarray(array).reshape(how.shape)
    return np.ascontiguousarray(shaped.transpose(how.axes)) if how.axes else shaped


def put_back(array: Any, how: Arrangement, shape: Shape) -> Array:
    """Undo an arrangement: return the tensor in this shape."""
    value = np.asarray(array)
    if how.axes:
        value = np.ascontiguousarray(value.transpose(np.argsort(how.axes)))
    return value.reshape(tuple(shape))


def list_arrangements(found: Shape | None, wanted: Shape) -> list[Arrangement]:
    """Return how a tensor of one shape may be the other one, as it is first. found: None of numbers without a shape.

    Channels are the second axis or the last. Axes of size 1 may be missing or added.
    """
    wanted = tuple(wanted)
    tight = None if found is None else _without_unit_axes(found)
    listed: dict[Arrangement, None] = {}
    if tight is None or tight == _without_unit_axes(wanted):
        listed[Arrangement(shape=wanted)] = None
    if len(wanted) >= 3:
        places = tuple(range(len(wanted)))
        for axes in _list_channel_turns(places):
            other = tuple(wanted[int(axis)] for axis in np.argsort(axes))
            if _moves_nothing(other, axes):
                continue
            if tight is None or tight == _without_unit_axes(other):
                listed[Arrangement(shape=other, axes=axes)] = None
    return list(listed)


def _list_channel_turns(places: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Axes by which channels come from the last place to the second, or to the first where no batch is, and back."""
    last_to_second = (0, places[-1], *places[1:-1])
    second_to_last = (0, *places[2:], 1)
    found = [last_to_second, second_to_last]
    if len(places) == 3:
        found += [(2, 0, 1), (1, 2, 0)]
    return list(dict.fromkeys(found))


def _moves_nothing(shape: Shape, axes: Shape) -> bool:
    """Return whether only axes of size 1 change their place: the numbers stay in their order."""
    wide = [axis for axis in axes if shape[axis] != 1]
    return wide == sorted(wide)


def _without_unit_axes(shape: Shape) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)

