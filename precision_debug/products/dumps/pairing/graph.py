"""One side of a pairing: its tensors with their values, and who computes what from what."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ....explain.operators import find_reached
from ....protocols import Operator, Operators
from ....records import TensorMeta
from .fingerprint import Fingerprint, take
from .likeness import agree

__all__ = ["BaseGraph", "TargetGraph", "Values", "find_nearest_known"]

Array = np.ndarray[Any, Any]
Values = Mapping[str, Array]

_FAR = 96
"""Tensors that a search for neighbours looks at before it gives up."""


class BaseGraph:
    """The model's own run. metas: in execution order. values: by name, for those that were seen."""

    def __init__(self, metas: Sequence[TensorMeta], values: Values) -> None:
        self.metas = {meta.name: meta for meta in metas if meta.name in values}
        self.order = {name: place for place, name in enumerate(self.metas)}
        self.inputs_of = {meta.name: meta.inputs for meta in metas}
        self.values = values
        self.prints: dict[str, Fingerprint] = {}
        self._by_shape: dict[tuple[int, ...], list[str]] = {}
        for name in self.metas:
            print_ = take(values[name])
            if print_ is not None:
                self.prints[name] = print_
                self._by_shape.setdefault(print_.shape, []).append(name)

    def of_shape(self, shape: tuple[int, ...], but: Collection[str]) -> list[str]:
        """Return tensors of a shape, in execution order."""
        return [name for name in self._by_shape.get(shape, ()) if name not in but]

    def equal_to(self, value: Array, but: Collection[str]) -> list[str]:
        """Return tensors that hold a value, up to one operator's rounding."""
        print_ = take(value)
        if print_ is None:
            return []
        rivals = self.of_shape(print_.shape, but)
        near = [name for name in rivals if _are_near(self.prints[name].own, print_.own)]
        return [name for name in near if agree(value, self.values[name])]

    def sources(self, name: str, known: Collection[str]) -> frozenset[str]:
        """Return the nearest tensors of ``known`` from which another is computed."""
        return find_nearest_known(lambda one: self.inputs_of.get(one, ()), name, known)

    def computed_from(self, late: str, early: str) -> bool:
        """Return whether one tensor is computed from another, at whatever distance."""
        limit = self.order.get(early, -1)
        return early in find_reached(
            [late], lambda one: self.inputs_of.get(one, ()), lambda one: self.order.get(one, limit + 1) > limit
        )


class TargetGraph:
    """The file's run. own: values of the run, by name. Operators that read constants only become constants."""

    def __init__(self, operators: Operators, metas: Sequence[TensorMeta], own: Values) -> None:
        self.runner = operators
        self.metas = {meta.name: meta for meta in metas}
        self.own = own
        self.constants: dict[str, Array] = dict(operators.constants)
        self.derived: dict[str, Operator] = {}
        self.operators: list[Operator] = []
        self.producer: dict[str, Operator] = {}
        self.readers: dict[str, list[Operator]] = {}
        self.place: dict[str, int] = {}
        for one in operators.operators:
            read = [name for name in one.inputs if name]
            if read and all(name in self.constants for name in read):
                made = operators.run(one, self.constants)
                if made is not None:
                    self.constants.update(made)
                    self.derived.update(dict.fromkeys(made, one))
                    continue
            self.place[one.name] = len(self.operators)
            self.operators.append(one)
            for name in one.outputs:
                self.producer[name] = one
            for name in dict.fromkeys(read):
                self.readers.setdefault(name, []).append(one)

    def reads(self, one: Operator) -> list[str]:
        """Return the activations that an operator reads."""
        return [name for name in dict.fromkeys(one.inputs) if name and name not in self.constants]

    def sources(self, name: str, known: Collection[str]) -> frozenset[str]:
        """Return the nearest tensors of ``known`` from which another is computed."""
        return find_nearest_known(self._inputs, name, known)

    def _inputs(self, name: str) -> Sequence[str]:
        one = self.producer.get(name)
        return self.reads(one) if one is not None else ()

    def region(self, name: str, known: Collection[str]) -> list[Operator]:
        """Return the operators that compute a tensor from the nearest ``known`` ones, in order."""
        made_of = find_reached([name], lambda one: [read for read in self._inputs(one) if read not in known])
        found = {one.name: one for tensor in (name, *made_of) if (one := self.producer.get(tensor)) is not None}
        return sorted(found.values(), key=lambda one: self.place[one.name])

    def compute(
        self, region: Sequence[Operator], value_of: Callable[[str], Array | None], *, changed: Values | None = None,
        attributes: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> dict[str, Array]:  # fmt: skip
        """Return what some operators give on other values; what cannot be computed is not in it.

        value_of: the value of a tensor that none of them computes. changed: constants in place of the file's own.
        attributes: by operator name, in place of its own.
        """
        made: dict[str, Array] = {}
        changed = changed or {}
        for one in region:
            values: dict[str, Array] = {}
            for name in one.inputs:
                if not name:
                    continue
                value = changed.get(name, made.get(name, self.constants.get(name)))
                if value is None:
                    value = value_of(name)
                if value is not None:
                    values[name] = value
            if all(name in values for name in one.inputs if name):
                made.update(self.runner.run(one, values, (attributes or {}).get(one.name)) or {})
        return made

    def after(self, name: str, most: int) -> Iterator[Operator]:
        """Yield the operators that follow from a tensor, in order, at most so many."""
        waiting: list[tuple[int, Operator]] = []
        known: set[str] = set()

        def add(tensor: str) -> None:
            for one in self.readers.get(tensor, ()):
                if one.name not in known:
                    known.add(one.name)
                    heapq.heappush(waiting, (self.place[one.name], one))

        add(name)
        for _ in range(most):
            if not waiting:
                return
            one = heapq.heappop(waiting)[1]
            yield one
            for tensor in one.outputs:
                add(tensor)


def find_nearest_known(inputs: Callable[[str], Sequence[str]], name: str, known: Collection[str]) -> frozenset[str]:
    """Return the nearest tensors of ``known`` from which another is computed."""
    found: set[str] = set()
    seen, waiting = {name}, [name]
    while waiting and len(seen) < _FAR:
        for one in inputs(waiting.pop(0)):
            if one in known:
                found.add(one)
            elif one not in seen:
                seen.add(one)
                waiting.append(one)
    return frozenset(found)


def _are_near(one: Array, other: Array) -> bool:
    if one.shape != other.shape:
        return False
    norm = max(float(np.linalg.norm(one)), float(np.linalg.norm(other)))
    return float(np.linalg.norm(one - other)) <= 1e-3 * norm
