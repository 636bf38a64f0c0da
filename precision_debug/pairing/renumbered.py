"""Tensors of two files that a framework named by their operator and a number: where both do not number alike, what
reads them and their values say which is which.

``multiply_0``, ``mul#3`` and ``/Mul_2_output_0`` count the products of a program: one product more, and each that comes
behind it has the name of another one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..records import TensorMeta

__all__ = ["Numbered", "find_renumbered"]

Array = np.ndarray[Any, Any]

_BY_FAR = 4.0
"""How many times nearer another tensor must be than the one of the same name, or than one that says nothing of it."""
_SAMPLED = 1 << 10
"""Numbers of a tensor by which it is told apart."""
_NAME = re.compile(
    r"(?P<before>.*[^A-Za-z_])?(?P<kind>[A-Za-z][A-Za-z_]*?)(?:[_#.]?\d+)?(?P<behind>@[^@]*[A-Za-z][^@]*|_output_0|:0)?"
)


class Numbered:
    """Which tensors of two files have a name that only counts operators, and may count otherwise in the other file.

    pairs: target name to baseline name, as far as they are known. groups: of each such name, the baseline's and the
    target's tensors.
    """

    def __init__(self, base: Sequence[TensorMeta], target: Sequence[TensorMeta], pairs: Mapping[str, str]) -> None:
        self.base, self.target = {meta.name: meta for meta in base}, {meta.name: meta for meta in target}
        self.pairs = {name: one for name, one in pairs.items() if name in self.target and one in self.base}
        sides = zip((base, target), (set(self.pairs.values()), {*self.pairs}), strict=True)
        ours, theirs = (_group(metas, {name for name in paired if self._is_told(name)}) for metas, paired in sides)
        self.groups = [
            (metas, theirs[kind]) for kind, metas in ours.items()
            if kind in theirs and len(metas) + len(theirs[kind]) > 2 and self._counts_otherwise(metas, theirs[kind])
        ]  # fmt: skip

    def _is_told(self, name: str) -> bool:
        """Return whether more than an equal name made a pair of a tensor."""
        return name not in self.pairs or self.pairs[name] != name

    def _counts_otherwise(self, ours: Sequence[TensorMeta], theirs: Sequence[TensorMeta]) -> bool:
        """Return whether one file has more of them, or one of the same number reads others, or is read by others."""
        if len(ours) != len(theirs) or {meta.name for meta in ours} != {meta.name for meta in theirs}:
            return True
        names = {meta.name for meta in ours}
        mine, other = _list_read(self.base, names), _list_read(self.target, names)
        if any(mine.get(base) and read and mine[base] != read for name, read in other.items()
               if (base := self.pairs.get(name)) is not None):  # fmt: skip
            return True
        known = {meta.name: {self.pairs[one] for one in meta.inputs if one in self.pairs} for meta in theirs}
        return any(known[meta.name] - {*meta.inputs} for meta in ours)

    def follow_readers(self) -> set[tuple[str, str]]:
        """Return (baseline name, target name) of the only output, and of what the same reader reads in the same place,
        from the outputs on back, as far as operators and numbers of inputs are the same."""
        ends = [[meta.name for meta in side.values() if meta.is_output] for side in (self.base, self.target)]
        both = [(base, name) for name, base in self.pairs.items() if self.target[name].is_output]
        known = [(ends[0][0], ends[1][0])] if len(ends[0]) == len(ends[1]) == 1 else both
        found = {*known}
        while known:
            mine, other = known.pop()
            read = self.base[mine].inputs, self.target[other].inputs
            for pair in zip(*read, strict=True) if len(read[0]) == len(read[1]) else ():
                first, second = self.base.get(pair[0]), self.target.get(pair[1])
                if pair not in found and first and second and first.op_type == second.op_type:
                    found.add(pair)
                    known.append(pair)
        return found


def find_renumbered(numbered: Numbered, base: Mapping[str, Array], target: Mapping[str, Array]) -> dict[str, str]:
    """Return target name to baseline name of the tensors whose names mislead: where the same reader reads another one
    in the same place, which is nearer, or where another one is nearer by far. base, target: their values."""
    found: dict[str, str] = {}
    read = numbered.follow_readers()
    for ours, theirs in numbered.groups:
        apart = _measure_apart([meta.name for meta in ours], [meta.name for meta in theirs], base, target)
        order = sorted(apart, key=lambda pair: (pair not in read, apart[pair], pair[0] != pair[1]))
        taken: set[str] = set()
        count = -1
        while count < len(taken):
            count = len(taken)
            for mine, other in order:
                is_free = found.get(mine, mine) == mine  # what has its name is not another one's by now
                named, off = apart.get((mine, mine), np.inf) if is_free else np.inf, apart[mine, other]
                near = off < named if (mine, other) in read else off <= min(named, 1.0) / _BY_FAR
                if mine not in taken and other not in found and (mine == other or near):
                    found[other] = mine
                    taken.add(mine)
    return {other: mine for other, mine in found.items() if other != mine}


def _group(tensors: Sequence[TensorMeta], told: Collection[str]) -> dict[str, list[TensorMeta]]:
    """Return the tensors whose names are their operator and a number, by the name without it. told: all but
    these."""
    found: dict[str, list[TensorMeta]] = {}
    for meta in tensors:
        name = _NAME.fullmatch(meta.name)
        kind = meta.op_type.rpartition(".")[2].lower()
        if name and kind.endswith(name["kind"].lower()) and not meta.unseen and meta.name not in told:
            found.setdefault(f"{name['before'] or ''}{name['kind']}{name['behind'] or ''}", []).append(meta)
    return found


def _list_read(tensors: Mapping[str, TensorMeta], names: Collection[str]) -> dict[str, set[str]]:
    """Return what each tensor's operator reads of these names."""
    return {name: {one for one in meta.inputs if one in names} for name, meta in tensors.items()}


def _measure_apart(
    ours: Sequence[str], theirs: Sequence[str], base: Mapping[str, Array], target: Mapping[str, Array]
) -> dict[tuple[str, str], float]:
    """Return how far apart those of one shape are, of the baseline's size, by some of their numbers."""
    found: dict[tuple[str, str], float] = {}
    for mine in ours:
        others = [name for name in theirs if mine in base and name in target and target[name].shape == base[mine].shape]
        if others:
            value = _sample(base[mine])
            off = np.linalg.norm(np.stack([_sample(target[name]) for name in others]) - value, axis=1)
            size = max(float(np.linalg.norm(value)), 1e-300)
            found.update({(mine, name): float(one) / size for name, one in zip(others, off, strict=True)})
    return found


def _sample(array: Array) -> Array:
    flat = array.reshape(-1)
    some = flat[:: max(1, flat.size // _SAMPLED)].astype(np.float64)
    return np.nan_to_num(some, posinf=0.0, neginf=0.0)
