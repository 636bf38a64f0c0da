"""Which inner tensors of two runs are the same work cut differently: chunks, columns of a fused layer, padding.

Decided by what both runs hold, of tensors that have no partner of their shape. Three things have to fit: the shapes,
the operator that makes them (and its name, or what it reads), and the values, which must agree far better in this
place than in any other. Where most of it is proved so, what is left over is known too: a chunk that a fault has made
another one has only the gap that no other chunk fills.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..reasons.ways import Way, way
from ..records import TensorMeta
from .reordered import Order

__all__ = ["Beyond", "Joined", "Listing", "Part", "Recut", "find_padding", "find_recut", "may_be_recut"]

Array = np.ndarray[Any, Any]
Index = tuple[slice | Array, ...]
Cut = tuple[int, int, int]  # from where to where an axis of a length is taken

_NEAR = 0.3
"""Distance of directions up to which a piece is taken for its place in the whole; a fault may lie in it."""
_BY_FAR = 4.0
"""How many times worse every other place must be."""
_ROUNDED = 0.01
"""Relative error up to which nothing better is looked for."""
_SAME = 1e-3
"""Relative error up to which pieces are proved by their names and their values, though others hold the same numbers."""
_PROBES = 16
"""Random sums of a slice that stand for it."""
_MOST = 1 << 22
"""Products of two lengths up to which every place is tried."""
_COUNTER = re.compile(r"[@#]\d+|_\d+(?=/|$)")
"""What calls of one module, and exporters, append to the names of what runs again."""
_VIEWS = frozenset({
    "cast", "clone", "contiguous", "expand", "flatten", "identity", "permute", "reshape", "squeeze", "t", "transpose",
    "unsafe_view", "unsqueeze", "view",
})  # fmt: skip
_NO_WORK = frozenset({"Input", "Constant", "Output", "Parameter", "feed", "data", "Result"})


@dataclass(frozen=True, kw_only=True)
class Joined:
    """Tensors of one side that are shown as one, under the first one's name: concatenated along an axis. sizes: theirs
    there. order: where each place of the whole is then, () for in this order: positions of several samples that are
    rows of one matrix lie apart."""

    sources: tuple[str, ...]
    axis: int
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    order: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What it is shown as."""
        return self.sources[0]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a tensor that is shown as one of its own. where: an index of it; shape: of the part, and of the
    whole."""

    name: str
    source: str
    where: Index
    shape: tuple[int, ...]
    whole: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Beyond:
    """Padding that an output of one side has beyond the other's, by the baseline's name. count: along the axis.
    largest, places: at how many places of how many it holds the largest number along the axis."""

    name: str
    of_target: bool
    axis: int
    count: int
    largest: int
    places: int


@dataclass(frozen=True, kw_only=True)
class Recut:
    """base, target: what is shown otherwise on each side. pairs: target name to (baseline name, how they fit).
    constants: what the target's operators have in another order of channels, and how, by name. beyond: what outputs
    are compared without."""

    base: tuple[Joined | Part, ...] = ()
    target: tuple[Joined | Part, ...] = ()
    pairs: Mapping[str, tuple[str, Way]] = field(default_factory=dict)
    constants: Mapping[str, Mapping[str, Order]] = field(default_factory=dict)
    beyond: tuple[Beyond, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pairs)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """One side: its tensors in execution order, and the values of those that have no partner of their shape. padded:
    where its constants have padding beyond the other side's."""

    tensors: Sequence[TensorMeta]
    values: Mapping[str, Array]
    padded: frozenset[Cut] = frozenset()


def may_be_recut(base: Sequence[TensorMeta], target: Sequence[TensorMeta]) -> bool:
    """Return whether shapes, as far as they are known, allow for any such pair: both are without partners."""
    ours: dict[str, list[TensorMeta]] = {}
    for meta in base:
        ours.setdefault(_kind_of(meta), []).append(meta)
    every = {kind for metas in (base, target) for kind in map(_kind_of, metas)}
    return any(
        _may_fit(one.shape, meta.shape) for meta in target for kind in every if _is_same_kind(kind, _kind_of(meta))
        for one in ours.get(kind, ())
    )  # fmt: skip


def _may_fit(one: Sequence[int | str] | None, other: Sequence[int | str] | None) -> bool:
    if one is None or other is None or not all(isinstance(size, int) for size in (*one, *other)):
        return True
    sizes = [(int(a), int(b)) for a, b in zip(one, other, strict=False)]
    less, more = any(a < b for a, b in sizes), any(a > b for a, b in sizes)
    return len(one) == len(other) and less != more and all(a and b for a, b in sizes)


def find_padding(constants: Iterable[tuple[Array, Array]]) -> tuple[frozenset[Cut], frozenset[Cut]]:
    """Return where constants of the baseline, and of the target, have padding beyond the other's: 0, or one and the
    same row again, at an end of an axis; what both have must be equal. constants: the baseline's and the target's."""
    found: tuple[set[Cut], set[Cut]] = (set(), set())
    for pair in constants:
        for (small, large), padded in zip((pair[::-1], pair), found, strict=True):
            if small.ndim != large.ndim or small.shape == large.shape or large.dtype.kind not in "fV":
                continue
            if any(a > b for a, b in zip(small.shape, large.shape, strict=True)):
                continue
            for where in _list_ends(small.shape, large.shape):
                axis, rest = _take_rest(large, where)
                if axis >= 0 and _is_padding(rest, axis) and np.array_equal(small, large[where], equal_nan=True):
                    padded.update(_find_cuts(where, large.shape))
    return frozenset(found[0]), frozenset(found[1])


def _take_rest(large: Array, where: Index) -> tuple[int, Array]:
    """Return the only axis that an index cuts, and what it leaves out; -1 where it cuts several."""
    axes = [axis for axis, one in enumerate(where) if isinstance(one, slice) and one != slice(0, large.shape[axis])]
    if len(axes) != 1:
        return -1, large
    cut = where[axes[0]]
    assert isinstance(cut, slice)
    return axes[0], np.delete(large, np.arange(cut.start, cut.stop), axes[0])


def _is_padding(rest: Array, axis: int) -> bool:
    """Return whether all along an axis is 0, or one and the same again."""
    if not rest.any():
        return True
    first = rest.take([0], axis)
    return rest.shape[axis] > 1 and bool(np.allclose(rest, first, rtol=_SAME, atol=0.0, equal_nan=True))


def _cut_proven(
    base: _Side, target: _Side, apart: Mapping[str, str]
) -> Iterator[tuple[TensorMeta, _Group, bool, Beyond | None]]:
    """Yield pairs of which one is the larger by padding that its constants have: the smaller one, the larger one, and
    whether that is the baseline's. apart: pairs of other shapes, target name to baseline name."""
    for name, base_name in apart.items():
        for small, large, names, of_target in (
            (base, target, (base_name, name), True), (target, base, (name, base_name), False),
        ):  # fmt: skip
            one, other = small.values.get(names[0]), large.values.get(names[1])
            if one is None or other is None or one.ndim != other.ndim or one.shape == other.shape:
                continue
            if any(a > b for a, b in zip(one.shape, other.shape, strict=True)):
                continue
            for where in _list_ends(one.shape, other.shape):
                axis, rest = _take_rest(other, where)
                cuts = _find_cuts(where, other.shape)
                if axis < 0 or not cuts <= large.padded or not (_is_padding(rest, axis) or rest.shape[axis] == 1):
                    continue
                large.cuts |= cuts
                meta = small.metas[names[0]]
                beyond = _describe_rest(base_name, of_target, axis, rest, other) if meta.is_output else None
                yield meta, _Group(names=(names[1],), axis=-1, places=(), cut=where), not of_target, beyond
                break


def _describe_rest(name: str, of_target: bool, axis: int, rest: Array, large: Array) -> Beyond:
    most = np.nan_to_num(rest, nan=-np.inf).max(axis) >= np.nan_to_num(large, nan=-np.inf).max(axis)
    return Beyond(
        name=name, of_target=of_target, axis=axis, count=rest.shape[axis],
        largest=int(np.count_nonzero(most & (rest.max(axis) > -np.inf))), places=most.size,
    )  # fmt: skip


def find_recut(
    base: Listing, target: Listing, known: Mapping[str, str], apart: Mapping[str, str] | None = None, *,
    guess: bool = True,
) -> Recut:  # fmt: skip
    """Return what is put together, or apart, for both sides to have the same tensors. known: pairs by name, target name
    to baseline name; apart: those of other shapes. guess: whether values may say it, too, and not constants alone."""
    found = Recut()
    here = _Side(base, {base_name: name for name, base_name in known.items()})
    there = _Side(target, known)

    def add(meta: TensorMeta, group: _Group, *, swapped: bool) -> None:
        nonlocal found
        whole, pieces = (there, here) if swapped else (here, there)
        used, shown = _show(meta, group, whole, pieces, swapped=swapped)
        whole.taken.add(meta.name)
        pieces.taken.update(group.names)
        whole.group_of[meta.name] = pieces.group_of[group.names[0]] = meta.name
        pieces.group_of.update(dict.fromkeys(group.names, meta.name))
        if group.is_in_order:
            pieces.layout_of[group.names[0]] = group.axis, tuple(map(len, group.places))
        found = dataclasses.replace(
            found, base=(*found.base, *used[swapped]), target=(*found.target, *used[not swapped]),
            pairs={**found.pairs, **shown},
        )  # fmt: skip

    for meta, cut, swapped, beyond in _cut_proven(here, there, apart or {}):
        add(meta, cut, swapped=swapped)
        found = dataclasses.replace(found, beyond=(*found.beyond, *([beyond] if beyond else ())))
    if not guess:
        return found
    for whole, pieces, swapped, search in (
        (here, there, False, _put_together), (there, here, True, _put_together),
        (here, there, False, _cut_padding), (there, here, True, _cut_padding),
        (here, there, False, _put_together_views), (there, here, True, _put_together_views),
        (here, there, False, _put_together), (there, here, True, _put_together),  # what reads the views
    ):  # fmt: skip
        for meta in list(whole.free()):
            group = search(meta, whole, pieces)
            if group is None:
                continue
            group = _find_better(group, meta, whole, pieces) or group
            add(meta, group, swapped=swapped)
    return found


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Pieces in their order along an axis, and the places of each in the whole; ``cut``: the piece is the larger one,
    and ``places`` are of the whole in it."""

    names: tuple[str, ...]
    axis: int
    places: tuple[Array, ...]
    cut: Index = ()

    @property
    def is_in_order(self) -> bool:
        """Whether the pieces follow each other."""
        places = np.concatenate(self.places) if self.places else np.zeros(0)
        return bool(self.places) and bool((np.diff(places) == 1).all())


class _Side:
    """partner: of tensors that are paired, the other side's name. group_of: what those are part of, or cut into.
    cuts: how padding was cut away. layout_of: axis and sizes of the chunks that one is the first of, or reads."""

    def __init__(self, listing: Listing, partner: Mapping[str, str]) -> None:
        self.metas = {meta.name: meta for meta in listing.tensors}
        self.order = {name: number for number, name in enumerate(self.metas)}
        self.values = listing.values
        self.taken: set[str] = set()
        self.group_of: dict[str, str] = {}
        self.partner = partner
        self.cuts: set[Cut] = set()
        self.padded = listing.padded
        self.others: set[str] = set()  # what computes otherwise, and what reads it
        self.layout_of: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._signs: dict[tuple[str, int], Array] = {}

    def free(self) -> Iterator[TensorMeta]:
        return (
            meta for name, meta in self.metas.items()
            if name in self.values and name not in self.taken and meta.op_type not in _NO_WORK and not meta.is_output
        )  # fmt: skip

    def sign(self, name: str, axis: int) -> Array:
        """[length of the axis, _PROBES]: random sums that stand for each slice, the same for equal slices."""
        if (name, axis) not in self._signs:
            value = np.nan_to_num(self.values[name].astype(np.float64), posinf=0.0, neginf=0.0)
            rows = np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1)
            random = np.random.default_rng(rows.shape[1]).standard_normal((rows.shape[1], _PROBES))
            self._signs[name, axis] = rows @ random
        return self._signs[name, axis]

    def akin(self, one: TensorMeta, other: TensorMeta) -> bool:
        """Return whether one operator was called twice, or two read the same tensors."""
        read = self.read_by(one)
        return _stem_of(one.name) == _stem_of(other.name) or bool(read and read == self.read_by(other))

    def reads_the_same(self, meta: TensorMeta, pieces: Sequence[TensorMeta], other: _Side) -> bool:
        """Return whether what pieces on the other side read is the whole's own input, put together or paired."""
        wanted, names = self.read_by(meta), {name for one in pieces for name in other.read_by(one)}
        return bool(wanted) and {other.group_of.get(name, other.partner.get(name, "")) for name in names} == wanted

    def computes_otherwise(self, meta: TensorMeta, named: TensorMeta) -> bool:
        """Return whether the other side's operator of its name gives another shape of equal tensors, and does not pad,
        or reads what one gave: that is its doing, and none of it is padding."""
        equal = [self.partner.get(name) for name in meta.inputs if name not in self.values] == [*named.inputs]
        if "pad" not in _kind_of(meta) and (equal or not self.others.isdisjoint(meta.inputs)):
            self.others.add(meta.name)
        return meta.name in self.others

    def read_by(self, meta: TensorMeta) -> set[str]:
        """Return what an operator reads, through what only turns and reshapes it; no weights."""
        found = set()
        for name in meta.inputs:
            before = self.metas.get(name)
            while before is not None and len(before.inputs) == 1 and _kind_of(before) in _VIEWS:
                name = before.inputs[0]  # noqa: PLW2901
                before = self.metas.get(name)
            if before is None or before.inputs or _kind_of(before) not in _VIEWS:
                found.add(name)
        return found


def _kind_of(meta: TensorMeta) -> str:
    last = re.split(r"::|[.]", meta.op_type.lower())
    name = next((part for part in reversed(last) if part not in {"default", "int", "tensor", "self", "scalar"}), "")
    return name.strip("_")


def _is_same_kind(one: str, other: str) -> bool:
    """Return whether one operator may have made both; a dump of another tool does not say which did."""
    return one == other or not one or not other


def _stem_of(name: str) -> str:
    return _COUNTER.sub("", name)


def _find_better(group: _Group, meta: TensorMeta, whole: _Side, pieces: _Side) -> _Group | None:
    """Return pieces of whichever operator that are the tensor's numbers, where those of its own operator are not: a
    layer's bias may be added by another one there. None where those found agree, or none agree better."""
    error = _measure_error(group, meta, whole, pieces)
    if group.cut or error <= _ROUNDED:
        return None
    better = _put_together(meta, whole, pieces, list(pieces.free()), by_values=True)
    return better if better and _measure_error(better, meta, whole, pieces) * _BY_FAR < error else None


def _measure_error(group: _Group, meta: TensorMeta, whole: _Side, pieces: _Side) -> float:
    value = whole.values[meta.name]
    if group.cut:
        return 0.0
    found = np.zeros_like(value)
    for name, place in zip(group.names, group.places, strict=True):
        found[(slice(None),) * group.axis + (place,)] = pieces.values[name]
    size = float(np.linalg.norm(value))
    return float(np.linalg.norm(np.nan_to_num(found - value))) / size if size else 0.0


def _put_together_views(meta: TensorMeta, whole: _Side, pieces: _Side) -> _Group | None:
    """Return pieces of a tensor that only shows another one's numbers, whichever operators made them: what is one
    operator there may be two here, and the view is what both have."""
    of_any = list(pieces.free()) if _kind_of(meta) in _VIEWS else [o for o in pieces.free() if _kind_of(o) in _VIEWS]
    return _put_together(meta, whole, pieces, of_any)


def _put_together(
    meta: TensorMeta, whole: _Side, pieces: _Side, of_any: Sequence[TensorMeta] | None = None, *,
    by_values: bool = False,
) -> _Group | None:  # fmt: skip
    shape, kind = whole.values[meta.name].shape, _kind_of(meta)
    of_kind = of_any
    if of_kind is None:
        of_kind = [one for one in pieces.free() if _is_same_kind(_kind_of(one), kind)]
    for axis in range(len(shape)):
        fitting = [one for one in of_kind if _fits_along(axis, pieces.values[one.name].shape, shape)]
        if not fitting:
            continue
        work = _Tiling(meta, axis, whole, pieces, by_values)
        found = work.by_name(fitting) or work.by_place(fitting) or work.by_column(fitting)
        if found is not None:
            return found
    return None if of_any is not None else _follow_chunks(meta, whole, pieces)


def _follow_chunks(meta: TensorMeta, whole: _Side, pieces: _Side) -> _Group | None:
    """Return chunks by the same operator of which each reads one of those that an input of the whole was put together
    of, in their order, whatever else it reads: what a fault has made of that shows here first. None where some have no
    such reader, or several."""
    shape = whole.values[meta.name].shape
    for read in dict.fromkeys((*meta.inputs, *sorted(whole.read_by(meta)))):
        chunks = [name for name, of in pieces.group_of.items() if of == read]
        if not chunks or chunks[0] not in pieces.layout_of:
            continue
        sizes = pieces.layout_of[chunks[0]][1]
        readers = [
            one for chunk in chunks for one in pieces.free()
            if _stem_of(one.name) == _stem_of(meta.name) and _is_same_kind(_kind_of(one), _kind_of(meta))
            and chunk in {*one.inputs, *pieces.read_by(one)}
        ]  # fmt: skip
        for axis in range(len(shape)) if len({one.name for one in readers}) == len(readers) == len(sizes) else ():
            found = [pieces.values[one.name].shape for one in readers]
            if all(_fits_along(axis, one, shape) for one in found) and sizes == tuple(one[axis] for one in found):
                return _Tiling(meta, axis, whole, pieces).group(readers)
    return None


def _fits_along(axis: int, piece: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    rest = piece[:axis] + piece[axis + 1 :] == whole[:axis] + whole[axis + 1 :]
    return len(piece) == len(whole) and rest and 0 < piece[axis] < whole[axis]


@dataclass(frozen=True)
class _Tiling:
    """The pieces of one tensor along one axis."""

    meta: TensorMeta
    axis: int
    whole: _Side
    pieces: _Side
    by_values: bool = False
    """Whether names decide nothing."""

    @property
    def _length(self) -> int:
        return int(self.whole.values[self.meta.name].shape[self.axis])

    def _size(self, one: TensorMeta) -> int:
        return int(self.pieces.values[one.name].shape[self.axis])

    def by_name(self, fitting: Sequence[TensorMeta]) -> _Group | None:
        """The calls of one module, or of one operator of a name, in the order in which they ran."""
        families: dict[str, list[TensorMeta]] = {}
        for one in fitting:
            families.setdefault(_stem_of(one.name), []).append(one)
        own = _stem_of(self.meta.name)
        for stem in sorted(families, key=lambda stem: stem != own):
            family = families[stem]
            if self.by_values and stem == own:
                continue
            if len(family) < 2 or sum(map(self._size, family)) != self._length:
                continue
            starts = np.cumsum([0, *map(self._size, family)])
            sure = sum(
                self._size(one) for one, start in zip(family, starts, strict=False) if self._is_at(one, int(start))
            )
            if 2 * sure >= self._length:
                return self.group(family)
            if (apart := self._lay_out_samples(family)) is not None:
                return apart
            if stem == own and self.whole.reads_the_same(self.meta, family, self.pieces):
                return self._lay_out_as_read(family)
        return None

    def _lay_out_as_read(self, family: Sequence[TensorMeta]) -> _Group | None:
        """Return chunks that lie as those do which they read, all of them, whatever a fault makes of their values; None
        where these lie otherwise, or nobody knows how."""
        layouts = {(self.axis, tuple(map(self._size, family)))}
        for name in self.pieces.read_by(family[0]):
            layouts.add(self.pieces.layout_of.get(name, (-1, ())))
        return self.group(family) if len(layouts) == 1 else None

    def _lay_out_samples(self, family: Sequence[TensorMeta]) -> _Group | None:
        """Return chunks of the positions of several samples, whose rows lie apart in the whole; None where they do not
        fit."""
        sizes = [self._size(one) for one in family]
        rows = self.whole.sign(self.meta.name, self.axis)
        for samples in range(2, math.gcd(*sizes) + 1):
            if any(size % samples for size in sizes):
                continue
            starts = np.cumsum([0, *(size // samples for size in sizes)])
            of_sample = np.arange(samples)[:, None] * starts[-1]
            places = [(of_sample + np.arange(a, b)).ravel() for a, b in itertools.pairwise(starts)]
            near = sum(
                len(place) for one, place in zip(family, places, strict=True)
                if _measure_apart(self.pieces.sign(one.name, self.axis), rows[place]) * _BY_FAR
                <= max(_measure_apart(self.pieces.sign(one.name, self.axis), np.roll(rows[place], 1, 0)), _SAME)
            )  # fmt: skip
            if 2 * near >= self._length:
                return _Group(names=tuple(one.name for one in family), axis=self.axis, places=tuple(places))
        return None

    def by_place(self, fitting: Sequence[TensorMeta]) -> _Group | None:
        """Each piece where its values are the whole's; one that a fault has changed fills the gap that is left."""
        at: dict[int, list[TensorMeta]] = {}
        placed: set[str] = set()
        for one in fitting:
            start = self._place_of(one)
            if start is not None:
                at.setdefault(start, []).append(one)
                placed.add(one.name)
        chosen: list[TensorMeta | None] = []
        start = gap = 0
        while start < self._length:
            there = at.get(start, [])
            if there:
                own = _stem_of(self.meta.name)
                stems = {_stem_of(one.name) for one in chosen if one is not None} or {own}
                one = min(there, key=lambda one: (_stem_of(one.name) not in stems, self.pieces.order[one.name]))
                chosen.append(one)
                start += self._size(one)
                continue
            if gap:
                return None  # of two gaps nobody knows what fills which
            end = min((place for place in at if place > start), default=self._length)
            gap = end - start
            chosen.append(None)
            start = end
        known = [one for one in chosen if one is not None]
        if not known or (gap and 2 * gap > self._length):
            return None
        if gap:
            rest = [one for one in fitting if one.name not in placed and self._size(one) == gap]
            akin = [
                one for one in rest
                if any(self.pieces.akin(one, other) for other in known)
                or self.whole.reads_the_same(self.meta, [one], self.pieces)
            ]  # fmt: skip
            if len(akin) != 1:
                return None
            chosen = [akin[0] if one is None else one for one in chosen]
        full = [one for one in chosen if one is not None]
        return self.group(full) if len(full) > 1 else None

    def by_column(self, fitting: Sequence[TensorMeta]) -> _Group | None:
        """Columns of a fused layer in another order, each the only one of its values."""
        ends = self.axis == len(self.whole.values[self.meta.name].shape) - 1
        if not ends or len(fitting) < 2 or not all(
            self._size(one) * self._length <= _MOST for one in fitting
        ):  # fmt: skip
            return None
        columns = self.whole.sign(self.meta.name, self.axis)
        places: dict[str, Array] = {}
        free = np.ones(self._length, bool)
        for one in fitting:
            own = _match_columns(self.pieces.sign(one.name, self.axis), columns)
            if own is not None and free[own].all():
                places[one.name] = own
                free[own] = False
        rest = [one for one in fitting if one.name not in places and self._size(one) == free.sum()]
        if free.any() and places:
            gap, first = np.flatnonzero(free), next(iter(places.values()))
            akin = [one for one in rest if any(self.pieces.akin(one, self.pieces.metas[name]) for name in places)]
            moved = first + (gap.min() - first.min())
            if len(akin) == 1 and np.array_equal(np.sort(moved), gap):
                places[akin[0].name] = moved
                free[gap] = False
        if free.any() or len(places) < 2:
            return None
        names = tuple(one.name for one in fitting if one.name in places)
        return _Group(names=names, axis=self.axis, places=tuple(places[name] for name in names))

    def group(self, family: Sequence[TensorMeta]) -> _Group:
        starts = np.cumsum([0, *map(self._size, family)])
        return _Group(
            names=tuple(one.name for one in family), axis=self.axis,
            places=tuple(np.arange(a, b) for a, b in itertools.pairwise(starts)),
        )  # fmt: skip

    def _errors(self, one: TensorMeta) -> Array:
        """How far the direction of a piece is from that of each place in the whole: what a fault scales stays there."""
        rows, piece = self.whole.sign(self.meta.name, self.axis), self.pieces.sign(one.name, self.axis)
        places, size = len(rows) - len(piece) + 1, len(piece)
        if len(rows) * size > _MOST:
            return np.array([np.nan])
        products = np.ascontiguousarray(rows @ piece.T)  # of each slice there and here
        step = products.strides[0], products.strides[0] + products.strides[1]
        along = np.lib.stride_tricks.as_strided(products, (places, size), step, writeable=False).sum(axis=1)
        squares = np.concatenate([[0.0], np.cumsum(np.square(rows).sum(axis=1))])
        sizes = np.sqrt(np.maximum((squares[size:] - squares[:-size]) * np.square(piece).sum(), 1e-300))
        return np.asarray(np.sqrt(np.maximum(2 - 2 * along / sizes, 0.0)))

    def _place_of(self, one: TensorMeta) -> int | None:
        errors = self._errors(one)
        best = int(np.argmin(errors))
        others = np.delete(errors, best)
        if not np.isfinite(errors).all() or errors[best] > _NEAR or not len(others):
            return None
        return best if max(errors[best], 1e-7) * _BY_FAR <= others.min() else None

    def _is_at(self, one: TensorMeta, start: int) -> bool:
        errors = self._errors(one)
        if not np.isfinite(errors).all():
            return False
        others = np.delete(errors, start)
        return bool(errors[start] <= _SAME or (errors[start] <= _NEAR and errors[start] * _BY_FAR <= others.min()))


def _match_columns(piece: Array, whole: Array) -> Array | None:
    """Return for each column of a piece the only one of the whole that has its direction; None where that is not
    sure."""
    with np.errstate(all="ignore"):
        here, there = (np.nan_to_num(one / np.linalg.norm(one, axis=1, keepdims=True)) for one in (piece, whole))
    alike = here @ there.T
    best = alike.argmax(axis=1)
    nearest = np.sqrt(np.maximum(2 - 2 * alike[np.arange(len(best)), best], 0.0))
    alike[np.arange(len(best)), best] = -1.0
    others = np.sqrt(np.maximum(2 - 2 * alike.max(axis=1), 0.0))
    sure = (nearest <= _NEAR) & (np.maximum(nearest, 1e-6) * _BY_FAR <= others)
    return best if sure.all() and len(set(best.tolist())) == len(best) else None


def _cut_padding(meta: TensorMeta, whole: _Side, pieces: _Side) -> _Group | None:
    """Return the larger tensor that holds this one at its beginning or its end along each axis; None where none surely
    does, or where there is more of the same operator, which may fill what is left."""
    small, stem = whole.values[meta.name], _stem_of(meta.name)
    again = any(_stem_of(one.name) == stem and one.name != meta.name for one in whole.metas.values())
    named = pieces.metas.get(meta.name)
    if not whole.read_by(meta):  # weights: no padding
        return None
    otherwise = named is not None and whole.computes_otherwise(meta, named)  # asked of each: it goes on to its readers
    if again or otherwise:
        return None
    found: list[tuple[float, bool, str, Index]] = []
    for one in pieces.free():
        if not _is_same_kind(_kind_of(one), _kind_of(meta)):
            continue
        large = pieces.values[one.name]
        if large.ndim != small.ndim or large.shape == small.shape or any(
            a > b for a, b in zip(small.shape, large.shape, strict=True)
        ):  # fmt: skip
            continue
        for where in _list_ends(small.shape, large.shape):
            found.append((_measure_apart(small, large[where]), _stem_of(one.name) != stem, one.name, where))
    if not found:
        return None
    found.sort(key=lambda item: (item[0] > _SAME, item[1], item[0]))
    for error, other_stem, name, where in found:
        large = pieces.values[name]
        ends = _find_cuts(where, large.shape)
        others = [other for other, _, there, index in found if there == name and index != where]
        sure = error <= _NEAR and all(max(error, 1e-7) * _BY_FAR <= other for other in others)
        # what a fault has made another one has the padding of what it was made of
        follows = not other_stem and ends <= pieces.cuts
        if sure or (follows and whole.reads_the_same(meta, [pieces.metas[name]], pieces)):
            pieces.cuts |= ends
            return _Group(names=(name,), axis=-1, places=(), cut=where)
        if error <= _NEAR:
            return None
    return None


def _find_cuts(where: Index, large: tuple[int, ...]) -> set[Cut]:
    """Return from where to where an index takes an axis of a length, of those that it cuts."""
    cuts = [(one.start, one.stop, size) for one, size in zip(where, large, strict=True) if isinstance(one, slice)]
    return {cut for cut in cuts if cut[1] - cut[0] < cut[2]}


def _list_ends(small: tuple[int, ...], large: tuple[int, ...]) -> list[Index]:
    """Return the beginning or the end along each axis that is longer."""
    found: list[Index] = [()]
    for size, most in zip(small, large, strict=True):
        ends = [slice(0, size)] if size == most else [slice(0, size), slice(most - size, most)]
        found = [(*before, end) for before in found for end in ends]
    return found


def _measure_apart(one: Array, other: Array) -> float:
    """Return how far their directions are apart: what a fault scales stays near."""
    first, second = (np.nan_to_num(each.astype(np.float64), posinf=0.0, neginf=0.0).ravel() for each in (one, other))
    sizes = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.sqrt(max(2 - 2 * float(first @ second) / sizes, 0.0))) if sizes else 2.0


def _show(
    meta: TensorMeta, group: _Group, whole: _Side, pieces: _Side, *, swapped: bool
) -> tuple[tuple[tuple[Joined | Part, ...], tuple[Joined | Part, ...]], dict[str, tuple[str, Way]]]:
    """Return what the whole's and the pieces' sides show otherwise, and the pairs. swapped: the whole is the
    target's."""

    def pair(one: str, other: str, how: Way) -> tuple[str, tuple[str, Way]]:
        return (one, (other, how)) if swapped else (other, (one, how))

    shape = whole.values[meta.name].shape
    if group.cut:
        name, large = group.names[0], pieces.values[group.names[0]].shape
        cut = Part(name=name, source=name, where=group.cut, shape=shape, whole=large)
        text = way("without the padding of {shape}", shape=[*large])
        return ((), (cut,)), dict([pair(meta.name, name, text)])
    sizes = tuple(len(place) for place in group.places)
    contiguous = all(place[-1] - place[0] + 1 == len(place) for place in group.places)
    stems = {_stem_of(name) for name in group.names}
    if (contiguous and group.axis < len(shape) - 1) or len(stems) == 1:
        order = () if contiguous else tuple(np.argsort(np.concatenate(group.places)).tolist())
        joined = Joined(sources=group.names, axis=group.axis, sizes=sizes, shape=shape, order=order)
        told = {"count": len(sizes), "axis": group.axis}
        of_each = "{count} chunks along axis {axis}, of each sample"
        text = way("{count} chunks along axis {axis}", **told) if contiguous else way(of_each, **told)
        return ((), (joined,)), dict([pair(meta.name, joined.name, text)])
    parts: list[Part] = []
    pairs: dict[str, tuple[str, Way]] = {}
    for number, (name, place) in enumerate(zip(group.names, group.places, strict=True), 1):
        index = slice(int(place[0]), int(place[-1]) + 1) if contiguous else place
        where: Index = (*(slice(0, size) for size in shape[: group.axis]), index)
        size = pieces.values[name].shape
        free = name not in whole.metas or name == meta.name
        part = Part(name=name if free else f"{meta.name}[part {number}]", source=meta.name, where=where, shape=size,
                    whole=shape)  # fmt: skip
        parts.append(part)
        lies: dict[str, Any] = {"number": number, "count": len(sizes), "name": meta.name, "axis": group.axis}
        ends = {"first": place[0], "last": place[-1]}
        turned = "part {number} of {count} of {name}: axis {axis}, in another order"
        in_order = "part {number} of {count} of {name}: axis {axis}, {first} to {last}"
        text = way(in_order, **lies, **ends) if contiguous else way(turned, **lies)
        pairs.update([pair(part.name, name, text)])
    return ((tuple(parts), ()), pairs)
