"""A tensor that somebody else's run left behind, and what the ranks of a parallel run hold of one, put together.

Tensor-parallel ranks hold parts along an axis, summands, or the same; pipeline ranks hold other layers, whose numbers
may start anew on each. Which of both it is, the model's values decide.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....reasons.ways import NO_WAY, Way, way

__all__ = ["Form", "FoundTensor", "group_by_stage"]

Array = np.ndarray[Any, Any]

_NUMBER = re.compile(r"(?<![0-9A-Za-z])\d+(?![0-9A-Za-z])")
"""Of a layer, in a name."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a found tensor may be as a whole. how: of several ranks' parts, how they were put together; "" of one."""

    value: Array
    shape: tuple[int, ...] | None
    how: Way = NO_WAY


@dataclass(frozen=True, kw_only=True)
class FoundTensor:
    """A tensor of somebody's. value: in real numbers. shape: None where nobody said it, and value is flat.

    parts: what the further ranks of a parallel run hold under the same name; ranks: of value and of each of these, ()
    of a run of one. of: the name in the dump, where this one was taken out of that; part: how, "" of a whole one.
    renumbered: its name has a layer number that was counted on from the ranks before.
    """

    name: str
    value: Array
    shape: tuple[int, ...] | None
    op_type: str = ""
    parts: tuple[Array, ...] = ()
    ranks: tuple[int, ...] = ()
    of: str = ""
    part: Way = NO_WAY
    renumbered: bool = False

    @functools.cached_property
    def forms(self) -> tuple[Form, ...]:
        """As it is; of several ranks whose values differ, joined along each axis, and added up."""
        every = [np.asarray(one) for one in (self.value, *self.parts)]
        alone = Form(value=every[0], shape=self.shape, how=self.part)
        if len(every) == 1 or any(one.ndim != every[0].ndim for one in every):
            return (alone,)
        if all(one.shape == every[0].shape and np.array_equal(one, every[0]) for one in every):
            return (Form(value=every[0], shape=self.shape, how=way("the same on {ranks} ranks", ranks=len(every))),)
        found = []
        for axis in range(every[0].ndim):
            others = {tuple(size for place, size in enumerate(one.shape) if place != axis) for one in every}
            if len(others) == 1:
                value = np.concatenate(every, axis)
                how = way("{ranks} ranks joined along axis {axis}", ranks=len(every), axis=axis)
                found.append(Form(value=value, shape=tuple(value.shape), how=how))
        if len({one.shape for one in every}) == 1 and every[0].dtype.kind == "f":
            value = np.sum([one.astype(np.float64) for one in every], axis=0).astype(np.float32)
            how = way("{ranks} ranks added up", ranks=len(every))
            found.append(Form(value=value, shape=tuple(value.shape), how=how))
        return (*found, alone)


def group_by_stage(
    others: Sequence[FoundTensor], score: Callable[[Sequence[FoundTensor]], int]
) -> Sequence[FoundTensor]:
    """Return the tensors of ranks that share a stage together, those of different stages apart.

    A stage is so many ranks in a row, as many in each; score: how many tensors of the model these are. As few stages as
    tell as much.
    """
    ranks = sorted({rank for one in others for rank in one.ranks})
    if len(ranks) < 2 or not any(len(one.ranks) > 1 for one in others):
        return others
    sizes = [size for size in range(len(ranks), 0, -1) if len(ranks) % size == 0]
    splits = [_split(others, {rank: place // size for place, rank in enumerate(ranks)}) for size in sizes]
    return max(splits, key=lambda split: score([one for one in split if one.ranks]))  # the first of equal ones


def _split(others: Sequence[FoundTensor], stage: dict[int, int]) -> list[FoundTensor]:
    found: list[tuple[int, FoundTensor]] = []
    for one in others:
        every = dict(zip(one.ranks, (one.value, *one.parts), strict=True)) if one.ranks else {}
        stages = sorted({stage[rank] for rank in every})
        if len(stages) < 2:
            found.append((stages[0] if stages else 0, one))
            continue
        for number in stages:
            mine = [rank for rank in every if stage[rank] == number]
            value, *parts = (every[rank] for rank in mine)
            shape = None if one.shape is None else tuple(np.shape(value))
            found.append((number, dataclasses.replace(
                one, value=value, parts=tuple(parts), ranks=tuple(mine), shape=shape, of=one.name
            )))  # fmt: skip
    return _name_across_stages(found)


def _name_across_stages(found: Sequence[tuple[int, FoundTensor]]) -> list[FoundTensor]:
    """Return names that are there on several stages: layers are counted on; others get their rank in front."""
    layers: dict[tuple[str, int], set[int]] = {}
    for stage, one in found:
        if number := _NUMBER.search(one.name):
            layers.setdefault((one.name[: number.start()], stage), set()).add(int(number[0]))
    before: dict[tuple[str, int], int] = {}
    for prefix, stage in sorted(layers):
        earlier = [numbers for (other, place), numbers in layers.items() if other == prefix and place < stage]
        anew = any(layers[prefix, stage] & numbers for numbers in earlier)
        before[prefix, stage] = sum(max(numbers) + 1 for numbers in earlier) if anew else 0
    taken: set[str] = set()
    listed = []
    for stage, one in sorted(found, key=lambda pair: pair[0]):
        name, number = one.name, _NUMBER.search(one.name)
        more = before[name[: number.start()], stage] if number else 0
        if number and more:
            name = f"{name[: number.start()]}{int(number[0]) + more}{name[number.end() :]}"
        if name in taken:
            name = f"rank_{one.ranks[0] if one.ranks else stage}/{one.name}"
        taken.add(name)
        changed = name != one.name
        listed.append(dataclasses.replace(one, name=name, of=one.of or one.name, renumbered=True) if changed else one)
    return listed
