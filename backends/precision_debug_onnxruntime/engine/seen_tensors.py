"""What one run has shown: gives the tensors of a loop their iteration, and says at the end what became of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from precision_debug.onnx.graph import Scope
from precision_debug.records import TensorMeta

from ..reasons import say
from .tensor_list import Entry

__all__ = ["Shown", "wanted"]


def wanted(entry: Entry, names: Collection[str] | None) -> bool:
    """Return whether a tensor is asked for, in any iteration."""
    if names is None or entry.meta.name in names:
        return True
    return entry.looped and any(name.rpartition("@")[0] == entry.meta.name for name in names)


class Shown:
    """Counts iterations. names: what is asked for, with or without an iteration; None: everything."""

    def __init__(self, entries: Sequence[Entry], names: Collection[str] | None) -> None:
        self._entries = entries
        self._names = None if names is None else frozenset(names)
        self._turns: dict[Any, int] = {}
        self._order: list[TensorMeta] = []
        self._seen: dict[str, list[TensorMeta]] = {}
        self._scope_of = {entry.meta.name: entry.value.scope.key for entry in entries}

    def enter(self, loop: Any) -> None:
        """A Loop or Scan node begins; loop is the key of its body."""
        self._turns[loop] = -1

    def iterate(self, loop: Any) -> None:
        """The body begins once more."""
        self._turns[loop] = self._turns.get(loop, -1) + 1

    def instance(self, entry: Entry) -> TensorMeta | None:
        """Return the tensor as this iteration calls it, "name@iteration"; None where it was not asked for."""
        meta = self._in_turn(entry) if entry.looped else entry.meta
        if self._names is not None and not {entry.meta.name, meta.name} & self._names:
            return None
        self._seen.setdefault(entry.meta.name, []).append(meta)
        self._order.append(meta)
        return meta

    def _suffix(self, scope: Any, back: int = 0) -> str:
        turns = [self._turns[scope[:d]] for d in range(1, len(scope) + 1) if scope[:d] in self._turns]
        if not turns:
            return ""
        turns[-1] -= back
        return "@" + ".".join(map(str, turns))

    def _in_turn(self, entry: Entry) -> TensorMeta:
        scope, suffix = entry.value.scope.key, self._suffix(entry.value.scope.key)
        origin = entry.meta.origin + suffix if entry.meta.origin else ""
        if self._turns.get(scope, 0) > 0:
            named = (self._named(name, int(carried)) for name, carried in entry.later)
        else:
            named = (self._named(name) for name in entry.meta.inputs)
        meta = object.__new__(TensorMeta)  # dataclasses.replace takes longer than all else here
        vars(meta).update(
            vars(entry.meta), name=entry.meta.name + suffix, origin=origin, inputs=tuple(dict.fromkeys(named))
        )
        return meta

    def _named(self, name: str, back: int = 0) -> str:
        return name + self._suffix(self._scope_of.get(name, ()), back)

    def listed(self) -> Iterator[TensorMeta]:
        """Yield every tensor in the order in which it was shown; one for each iteration, or why the hook was not
        called.

        What was not shown keeps its place among its neighbours, for a loop after what was shown of it.
        """
        blocks: dict[Any, list[Entry]] = {}
        for entry in self._entries:
            blocks.setdefault(_outermost_loop(entry) or entry.value.key, []).append(entry)
        order = {meta.name: place for place, meta in enumerate(self._order)}
        for block in blocks.values():
            found = [meta for entry in block for meta in self._seen.get(entry.meta.name, ())]
            yield from sorted(found, key=lambda meta: order[meta.name])
            for entry in block:
                if entry.meta.name not in self._seen:
                    missed = not entry.meta.unseen and not entry.view.at_end
                    yield dataclasses.replace(entry.meta, unseen=say("not_entered")) if missed else entry.meta


def _outermost_loop(entry: Entry) -> Any:
    scope: Scope | None = entry.value.scope
    found = None
    while scope is not None:
        if scope.loops:
            found = scope.key
        scope = scope.parent
    return found
