"""What can be kept: operators (or their types, or modules) with the tensors that lie between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..explain.operators import MOVE, find_reached, plain_type
from ..records import TensorMeta

__all__ = ["NOT_KEPT", "Unit", "Units"]

NOT_KEPT = frozenset({"Input", "Constant", "Output"})
"""Types of what no operator makes."""

_FLOATS = ("float", "bfloat")
_MANY_READERS = 4
"""Of a tensor that more read, its readers have little to do with each other."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What can be kept in higher precision as a whole.

    key: what the backend calls it: a node, an operator type, a module. metas: the tensors that it makes."""

    key: str
    metas: tuple[TensorMeta, ...]
    movers: tuple[str, ...] = ()

    @property
    def op_types(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(meta.op_type for meta in self.metas))

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(meta.node or meta.name for meta in self.metas))

    @property
    def keys(self) -> tuple[str, ...]:
        """Of everything that is kept with it: its own, and those of the movers behind it."""
        return (self.key, *self.movers)


class Units:
    """The units of a baseline's graph, in execution order, and how they hang together.

    An edge is in high precision only if both of its ends are, so that what is kept or dropped together is a tensor's
    producer and its readers: ``around``. What only moves numbers goes with what made them.
    """

    def __init__(
        self, tensors: Sequence[TensorMeta], key_of: Callable[[TensorMeta], str], switches: Sequence[str] = ()
    ) -> None:
        """Group tensors into units by the key that the backend keeps them by.

        tensors: the baseline's, in execution order. key_of: the backend's name of what is kept; "" nothing. switches:
        keys of what is set for a whole engine; they come last, and make no tensor."""
        self.tensors = tensors
        grouped: dict[str, list[TensorMeta]] = {}
        home: dict[str, str] = {}  # tensor to key of its unit
        moved: dict[str, list[str]] = {}
        for meta in tensors:
            key = key_of(meta) if meta.op_type not in NOT_KEPT else ""
            if not key or (meta.dtype and not meta.dtype.startswith(_FLOATS)):
                continue
            mover = plain_type(meta.op_type) in MOVE
            before = next((home[source] for source in meta.inputs if source in home), "") if mover else ""
            if before and before != key and key not in grouped:
                home[meta.name] = before
                grouped[before].append(meta)
                if key not in moved.setdefault(before, []):
                    moved[before].append(key)
                continue
            home[meta.name] = key
            grouped.setdefault(key, []).append(meta)
        self.units: Sequence[Unit] = [
            Unit(key=key, metas=tuple(metas), movers=tuple(one for one in moved.get(key, ()) if one not in grouped))
            for key, metas in grouped.items()
        ]  # a module or a type that begins with a mover, and computes later on, is one by itself
        self.operators = len(self.units)
        self.units = [*self.units, *(Unit(key=key, metas=()) for key in switches)]
        taken = {key for unit in self.units for key in unit.keys}
        silent = {
            key: meta for meta in tensors
            if meta.name not in home and meta.op_type not in NOT_KEPT and (key := key_of(meta)) and key not in taken
        }  # fmt: skip
        self._silent = [Unit(key=key, metas=(meta,)) for key, meta in silent.items()]
        place = {unit.key: number for number, unit in enumerate(self.units)}
        self._of: Mapping[str, int] = {name: place[key] for name, key in home.items()}

    def __len__(self) -> int:
        return len(self.units)

    def of(self, tensor: str) -> int | None:
        """Return the unit that makes a tensor."""
        return self._of.get(tensor)

    def silent(self, tensors: Collection[str]) -> frozenset[int]:
        """Return what reads one of these tensors and makes no floats of it (ArgMax).

        It rounds what it reads all the same. It is none of the units that a search counts: its number is beyond them.
        """
        return frozenset(
            number for number, unit in enumerate(self._silent, len(self.units))
            if any(source in tensors for meta in unit.metas for source in meta.inputs)
        )  # fmt: skip

    @cached_property
    def readers(self) -> Mapping[str, frozenset[int]]:
        """For each tensor, the units that read it."""
        found: dict[str, set[int]] = {}
        for meta in self.tensors:
            unit = self._of.get(meta.name)
            if unit is not None:
                for source in meta.inputs:
                    found.setdefault(source, set()).add(unit)
        return {name: frozenset(units) for name, units in found.items()}

    def around(self, tensor: str) -> frozenset[int]:
        """Return a tensor's producer and all that read it, those behind movers too.

        Of an output that no unit makes, the units that its producer reads: what made its numbers is kept by them.
        """
        own = self._of.get(tensor)
        if own is None and not self.readers.get(tensor):
            return self._above(tensor)
        made = self.units[own].metas if own is not None else ()
        names = [meta.name for meta in made] if len(made) > 1 else [tensor]
        return frozenset(() if own is None else {own}).union(*(self.readers.get(name, ()) for name in names))

    def beside(self, reader: int, makers: Collection[int]) -> frozenset[int]:
        """Return all that read what a unit reads of some makers: it takes one rounding less for each of them."""
        read = {source for meta in self.units[reader].metas for source in meta.inputs if self._of.get(source) in makers}
        return frozenset().union(*(self.readers[name] for name in read if len(self.readers[name]) <= _MANY_READERS))

    def into(self, tensor: str, gone: Collection[str]) -> frozenset[int]:
        """Return the units of tensors that a tensor is made from, back to those that are not gone."""
        reached = find_reached([tensor], self._sources_of, lambda source: source in gone)
        return frozenset(self._of[source] for source in reached if source in gone and source in self._of)

    def _above(self, tensor: str) -> frozenset[int]:
        """Return the nearest units that a tensor is made from."""
        reached = find_reached([tensor], self._sources_of, lambda source: source not in self._of)
        return frozenset(self._of[source] for source in reached if source in self._of)

    def above(self, units: Collection[int]) -> frozenset[int]:
        """These units, and those that make what they read."""
        read = [source for unit in units for meta in self.units[unit].metas for source in meta.inputs]
        found = {source: self._of.get(source) for source in read}
        further = [self._above(source) for source, own in found.items() if own is None]
        return frozenset(units).union((own for own in found.values() if own is not None), *further)

    @cached_property
    def _sources_of(self) -> Callable[[str], Sequence[str]]:
        inputs = {meta.name: meta.inputs for meta in self.tensors}
        return lambda tensor: inputs.get(tensor, ())

    @cached_property
    def neighbours(self) -> Mapping[int, frozenset[int]]:
        """For each unit those that it hands a tensor to or is handed one by."""
        made = ((self._of[name], readers) for name, readers in self.readers.items() if name in self._of)
        return self._join((own, reader) for own, readers in made for reader in readers - {own})

    @cached_property
    def siblings(self) -> Mapping[int, frozenset[int]]:
        """For each unit those that read one of the tensors that it reads."""
        few = (readers for readers in self.readers.values() if len(readers) <= _MANY_READERS)
        return self._join(pair for readers in few for pair in itertools.combinations(readers, 2))

    def _join(self, pairs: Iterable[tuple[int, int]]) -> Mapping[int, frozenset[int]]:
        found: dict[int, set[int]] = {number: set() for number in range(len(self.units) + len(self._silent))}
        for one, other in pairs:
            found[one].add(other)
            found[other].add(one)
        return {number: frozenset(units) for number, units in found.items()}

    def keys(self, kept: Iterable[int], *, movers: bool = True) -> tuple[str, ...]:
        """Return what the backend is to keep, in execution order. movers: with what only moves the numbers of each."""
        every = [*self.units, *self._silent] if self._silent else self.units
        chosen = [every[number] for number in sorted(kept)]
        return tuple(dict.fromkeys(key for unit in chosen for key in (unit.keys if movers else (unit.key,))))
