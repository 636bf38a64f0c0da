"""What the target holds of a constant: the integers of its own file, or of the one that a mode made of the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..protocols import find_stored
from ..records import Operator, Stored
from .subject import Subject, collect_stretch

__all__ = [
    "dequantise", "find_held_constant", "has_one_scale", "list_stored_constants",
    "list_target_operators", "open_stored",
]  # fmt: skip

Array = np.ndarray[Any, Any]


def find_held_constant(subject: Subject, name: str, weight: str, values: Array) -> Array | None:
    """Return the numbers that the target computes with in place of a constant of an operator, where a file tells; None
    where it does not."""
    return _read_held(subject, name, weight, values)[0]


def has_one_scale(subject: Subject, name: str, weight: str, values: Array) -> bool:
    """Return whether a file tells that all of a constant's integers have one scale."""
    return _read_held(subject, name, weight, values)[1] == 1


def _read_held(subject: Subject, name: str, weight: str, values: Array) -> tuple[Array | None, int]:
    """Return a constant as the target holds it, and of how many scales; kept, since it is asked for again."""
    room = subject.told_by_files.setdefault("held", {})
    if weight not in room:
        stored = find_stored(subject.target, weight) if not subject.two_files else None
        if subject.two_files and subject.quantised_file:
            stored = next((held for key, _, held in list_stored_constants(subject, name) if key == weight), None)
        stored = stored or _find_behind(subject, name, values.shape)
        fits = stored is not None and stored.integers.shape == values.shape
        room[weight] = (dequantise(stored), int(np.size(stored.scale))) if stored is not None and fits else (None, 0)
    found: tuple[Array | None, int] = room[weight]
    return found


def _find_behind(subject: Subject, name: str, shape: tuple[int, ...]) -> Stored | None:
    """Return the only constant of a shape that the target's operators up to a tensor hold as integers, by whatever
    name."""
    target, found = subject.operators()[1], list[Stored]()
    waiting = [*collect_stretch(subject.targets, subject.row_of[name].target_name, subject.partner)]
    seen = {*waiting}
    while waiting and target is not None:
        operator = target.operator(waiting.pop())
        if operator is not None:
            found += [held for held in operator.stored.values() if held.integers.shape == shape]
            more = {*operator.reads} - seen - subject.partner.keys()  # what an engine fused away, too
            waiting, seen = [*waiting, *more], seen | more
    return found[0] if len(found) == 1 else None


def list_stored_constants(subject: Subject, name: str) -> Iterator[tuple[str, Array, Stored]]:
    """Yield the baseline's constants of an operator, each with what the target's file holds in its place, where it has
    a file of its own: grids that a mode makes are told by their ranges. Of one file, those that are read on another
    scale than it has for them."""
    baseline, target = subject.operators()
    if target is None:
        return
    for meta in reversed(subject.region_of.get(name, ())):
        mine = baseline.operator(meta.name)
        near = list_target_operators(subject, name) if meta.name == name else (target.operator(meta.name),)
        theirs = next((one for one in near if one is not None and one.stored), None)
        if mine is None or theirs is None:
            continue
        spare = dict(theirs.stored)
        for weight, value in mine.parameters.items():
            values = np.asarray(value)
            key = next((key for key, held in spare.items() if held.integers.shape == values.shape), "")
            if key and values.dtype.kind == "f" and (subject.two_files or spare[key].read_on is not None):
                yield weight, values.astype(np.float64), spare.pop(key)


def list_target_operators(subject: Subject, name: str) -> Iterator[Operator]:
    """Yield the target's operator of a tensor, and those before it, up to what is compared: a file may dequantise the
    result by an operator of its own."""
    target, waiting, seen = subject.operators()[1], [subject.row_of[name].target_name], set[str]()
    while waiting and target is not None and len(seen) < _FEW:
        one = waiting.pop(0)
        if one in seen or (seen and one in subject.partner):
            continue
        seen.add(one)
        found, meta = target.operator(one), subject.targets.get(one)
        if found is not None:
            yield found
        waiting += (found.reads if found is not None else ()) or (meta.inputs if meta is not None else ())


_FEW = 32
"""Operators of the target between two tensors that are compared."""


def open_stored(mine: Operator, theirs: Operator) -> tuple[Operator, Operator]:
    """Return two operators with the constants that a weight comes of in its place, where both files hold it as
    integers: one of these differs, and not the weight."""
    both = {key for key, held in mine.stored.items() if held.made_of and key in theirs.stored}
    sides = []
    for one in (mine, theirs) if both else ():
        opened: dict[str, Any] = {}
        for key, value in one.parameters.items():
            opened |= one.stored[key].made_of if key in both else {key: value}
        sides.append(dataclasses.replace(one, parameters=opened))
    return (sides[0], sides[1]) if both else (mine, theirs)


def dequantise(held: Stored) -> Array:
    """Return the numbers that the integers, or floats of 8 bits, stand for where they are read."""
    whole = held.integers.astype(np.float64) - np.asarray(held.zero_point).astype(np.float64)
    with np.errstate(all="ignore"):  # a scale may be anything
        return np.asarray(whole * np.asarray(held.used, np.float64))
