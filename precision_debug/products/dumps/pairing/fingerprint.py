"""Which tensors of two graphs hold the same values, where names cannot say it.

A fingerprint is the shape and up to 1024 elements at fixed places in C order. Two tensors are alike where the relative
distance of those elements is small. Of two runs in nearly equal arithmetic (both float32), tensors that correspond are
alike to about 1e-6, and others are about 1 apart, so the best partner is far ahead of the second, or there are several
as good: then they are copies of each other, and values cannot decide.

Copies are told apart by the module that both graphs name, where they do; by order only where each graph computes its
copies one from the other, so that no other order is possible; otherwise they are refused. Nothing is paired by place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....explain.operators import find_reached
from ....numbers.blocks import is_numeric
from ....reasons import Reason, say
from ....reasons.ways import Way, way
from ....records import TensorMeta

__all__ = ["Fingerprint", "Match", "Pairing", "pair_by_value", "take"]

SAMPLE = 1024
"""Elements of a tensor that are looked at; all of a smaller one."""
DISTINCT = 8
"""Fewer different values than this in a sample (masks, constants, counters) say too little."""

ALIKE = 0.05
"""Largest relative distance of two tensors that may be the same."""

AHEAD = 10.0
"""How many times farther the second-best partner must be than the best one."""

FLOOR = 1e-6
"""Distances below this are equally good: they are rounding of equal arithmetic."""


Array = np.ndarray[Any, Any]


_BY_VALUE = way("fingerprint")


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """A sample of a tensor's elements, by which it is recognised.

    own: the elements at fixed places of the tensor, float64, not finite ones as 0. distinct: different values in them.
    whole: every element is in it."""

    shape: tuple[int, ...]
    own: Array
    distinct: int
    whole: bool


@dataclass(frozen=True, kw_only=True)
class Match:
    """A target tensor's partner in the baseline.

    confidence: 0 to 1; one minus the relative distance over that of the next-best candidate.
    how: "fingerprint", with what else decided.
    """

    baseline: str
    target: str
    confidence: float
    distance: float
    how: Way = _BY_VALUE


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """matches: by target name. refused: target name to why it was left alone, where there was a candidate."""

    matches: Mapping[str, Match]
    refused: Mapping[str, Reason]


def take(array: Any) -> Fingerprint | None:
    """Return the fingerprint of an array; None of one that is not numeric."""
    array = np.asarray(array)
    if not is_numeric(array.dtype):
        return None
    own = _take_sample(array)
    return Fingerprint(shape=array.shape, own=own, distinct=int(np.unique(own).size), whole=array.size <= SAMPLE)


def pair_by_value(
    baseline: Sequence[tuple[TensorMeta, Fingerprint]],
    target: Sequence[tuple[TensorMeta, Fingerprint]],
    *,
    modules: Mapping[str, str] | None = None,
    views: Callable[[str, tuple[int, ...]], Sequence[Fingerprint]] | None = None,
) -> Pairing:
    """Pair the tensors of two runs on the same input, each baseline tensor at most once.

    Both in execution order. modules: target name to the path of the module that it was exported from. The baseline's
    own modules are read from its names ("path/operator", "path"). views: of a target's name, what it is in each layout
    that has a shape of the baseline's; None: as it is, where that is its shape.
    """
    modules = modules or {}
    pairing = _Pairing([meta for meta, _ in baseline], [meta for meta, _ in target], modules)
    shapes: dict[tuple[int, ...], list[int]] = {}
    for place, (_, print_) in enumerate(baseline):
        shapes.setdefault(print_.shape, []).append(place)
    edges: list[_Edge] = []
    known = {shape: np.stack([baseline[rival][1].own for rival in rivals]) for shape, rivals in shapes.items()}
    for place, (meta, own) in enumerate(target):
        seen = [own] if views is None else [view for shape in shapes for view in views(meta.name, shape)]
        for print_ in seen:
            rivals = shapes.get(print_.shape, [])
            if not rivals:
                continue
            distances = _measure_distances(known[print_.shape], print_.own)
            for rival, distance in zip(rivals, distances, strict=True):
                informed = min(print_.distinct, baseline[rival][1].distinct) >= DISTINCT
                if distance <= ALIKE and not informed:
                    pairing.refuse(meta.name, say("too_plain"))
                elif distance < 1:
                    edges.append(_Edge(rival, place, float(distance)))
    pairing.decide(edges, {p: f for p, (_, f) in enumerate(baseline)})
    return Pairing(matches=pairing.matches, refused=pairing.refused)


@dataclass(frozen=True)
class _Edge:
    base: int
    target: int
    distance: float


class _Pairing:
    def __init__(self, base: list[TensorMeta], target: list[TensorMeta], modules: Mapping[str, str]) -> None:
        self.base, self.target, self.modules = base, target, modules
        self.matches: dict[str, Match] = {}
        self.refused: dict[str, Reason] = {}
        self._base_reach = _Reach(base)
        self._target_reach = _Reach(target)

    def refuse(self, name: str, why: Reason) -> None:
        self.refused.setdefault(name, why)

    def decide(self, edges: Sequence[_Edge], prints: Mapping[int, Fingerprint]) -> None:
        by_base = _find_closest(edges, lambda edge: edge.base)
        by_target = _find_closest(edges, lambda edge: edge.target)
        near = [
            edge for edge in edges
            if edge.distance <= ALIKE
            and edge.distance <= max(by_base[edge.base] * AHEAD, FLOOR)
            and edge.distance <= max(by_target[edge.target] * AHEAD, FLOOR)
        ]  # fmt: skip
        next_best = self._next_best(edges, near)
        for group in _group_components(near):
            self._group(group, next_best, prints)

    def _next_best(self, edges: Sequence[_Edge], near: Sequence[_Edge]) -> dict[int, float]:
        chosen = {(edge.base, edge.target) for edge in near}
        found: dict[int, float] = {}
        for edge in edges:
            if (edge.base, edge.target) not in chosen:
                found[edge.target] = min(found.get(edge.target, 1.0), edge.distance)
        return found

    def _group(self, group: Sequence[_Edge], next_best: Mapping[int, float], prints: Mapping[int, Fingerprint]) -> None:
        bases, targets = sorted({e.base for e in group}), sorted({e.target for e in group})
        if len(bases) == 1 and len(targets) == 1:
            self._match(group[0], next_best, _BY_VALUE)
            return
        ends = [b for b in bases if self.base[b].is_output], [t for t in targets if self.target[t].is_output]
        if len(ends[0]) == len(ends[1]) == 1:
            final = [e for e in group if e.base == ends[0][0] and e.target == ends[1][0]]
            if final:
                self._match(final[0], next_best, way("fingerprint, and both are the model's output"))
                bases = [b for b in bases if b not in ends[0]]
                targets = [t for t in targets if t not in ends[1]]
        for base_part, target_part, how in self._by_module(bases, targets):
            part = [e for e in group if e.base in base_part and e.target in target_part]
            if not part:
                continue
            if len(base_part) == 1 and len(target_part) == 1:
                self._match(part[0], next_best, how)
            else:
                self._in_order(part, base_part, target_part, next_best, prints, how)
        for place in targets:
            if self.target[place].name not in self.matches:
                names = [self.base[rival].name for rival in bases[:4]]
                more = len(bases) > 4
                self.refuse(
                    self.target[place].name, say("several_more", names=names) if more else say("several", names=names)
                )

    def _by_module(self, bases: list[int], targets: list[int]) -> Iterable[tuple[list[int], list[int], Way]]:
        """Return the group in parts of the same module, where every target says its module; otherwise as a whole."""
        if not all(self.target[t].name in self.modules for t in targets):
            return [(bases, targets, _BY_VALUE)]
        wanted = dict.fromkeys(self.modules[self.target[t].name] for t in targets)
        return [
            (
                [b for b in bases if _module_path(self.base[b]) == path],
                [t for t in targets if self.modules[self.target[t].name] == path],
                way("fingerprint and module"),
            )
            for path in wanted
        ]

    def _in_order(
        self, group: Sequence[_Edge], bases: list[int], targets: list[int], next_best: Mapping[int, float],
        prints: Mapping[int, Fingerprint], how: Way,
    ) -> None:  # fmt: skip
        """Copies of which each is computed from the one before: the order is forced in both graphs.

        With as many on both sides, first to first. With one side shorter the same, but only where the baseline's are
        equal bit for bit (views, identities): then every partner has the same numbers.
        """
        if not (self._base_reach.chain(bases) and self._target_reach.chain(targets)):
            return
        if len(bases) != len(targets):
            first = prints[bases[0]].own
            if not all(np.array_equal(first, prints[b].own) for b in bases):
                return
        known = {(e.base, e.target): e for e in group}
        for base, target in zip(bases, targets, strict=False):
            if (base, target) in known:
                forced = way("{how}; among copies by the order that both graphs force", how=how)
                self._match(known[base, target], next_best, forced)

    def _match(self, edge: _Edge, next_best: Mapping[int, float], how: Way) -> None:
        base, target = self.base[edge.base].name, self.target[edge.target].name
        rival = max(next_best.get(edge.target, 1.0), edge.distance, 1e-30)
        self.matches[target] = Match(
            baseline=base, target=target, confidence=max(0.0, 1.0 - edge.distance / rival), distance=edge.distance,
            how=how,
        )  # fmt: skip
        self.refused.pop(target, None)


class _Reach:
    """Which tensors of a graph are computed from which."""

    def __init__(self, metas: Sequence[TensorMeta]) -> None:
        self._metas = metas
        self._place = {meta.name: place for place, meta in enumerate(metas)}

    def chain(self, places: Sequence[int]) -> bool:
        """Return whether each is computed from the one before."""
        return all(self._depends(late, early) for early, late in itertools.pairwise(places))

    def _depends(self, late: int, early: int) -> bool:
        def read(place: int) -> list[int]:
            return [self._place[name] for name in self._metas[place].inputs if name in self._place]

        return early in find_reached([late], read, lambda place: place > early)


def _take_sample(array: Array) -> Array:
    size = array.size
    places = np.arange(size) if size <= SAMPLE else _choose_places(size)
    index = np.unravel_index(places, array.shape) if array.ndim else ((),)
    values = array[index] if array.ndim else array.reshape(1)
    values = np.abs(values) if values.dtype.kind == "c" else values
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
    wide[~np.isfinite(wide)] = 0.0
    return wide


def _choose_places(size: int) -> Array:
    """One place in each of 1024 equal stretches, moved inside it by the golden ratio, so that no stride is favoured."""
    number = np.arange(SAMPLE, dtype=np.float64)
    places: Array = ((number + np.modf(number * 0.6180339887498949)[0]) * (size / SAMPLE)).astype(np.int64)
    return np.minimum(places, size - 1)


def _measure_distances(known: Array, sample: Array) -> Array:
    """Return the relative L2 distances of each row of ``known`` [n, k] from ``sample`` [k]; 2 where a side is zero
    everywhere."""
    apart = np.sqrt(np.square(known - sample).sum(1))
    norms = np.maximum(np.sqrt(np.square(known).sum(1)), np.sqrt(np.square(sample).sum()))
    return np.where(norms > 0, apart / np.where(norms > 0, norms, 1.0), 2.0)


def _find_closest(edges: Iterable[_Edge], key: Callable[[_Edge], int]) -> dict[int, float]:
    found: dict[int, float] = {}
    for edge in edges:
        found[key(edge)] = min(found.get(key(edge), np.inf), edge.distance)
    return found


def _group_components(edges: Sequence[_Edge]) -> list[list[_Edge]]:
    """Return the edges, grouped by what hangs together; the closest edge of each pair only."""
    best: dict[tuple[int, int], _Edge] = {}
    for edge in edges:
        key = edge.base, edge.target
        if key not in best or edge.distance < best[key].distance:
            best[key] = edge
    parent: dict[tuple[str, int], tuple[str, int]] = {}

    def root(node: tuple[str, int]) -> tuple[str, int]:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for base, target in best:
        parent[root(("b", base))] = root(("t", target))
    groups: dict[tuple[str, int], list[_Edge]] = {}
    for edge in best.values():
        groups.setdefault(root(("b", edge.base)), []).append(edge)
    return list(groups.values())


def _module_path(meta: TensorMeta) -> str:
    """Return the path of the module that a baseline tensor was made in, without call numbers."""
    node = meta.extra.get("Part of") or meta.node
    path = node.rpartition("/")[0] if "/" in node or meta.op_type.startswith("aten.") else node
    return path.partition("@")[0]
