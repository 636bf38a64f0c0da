"""Show a side's tensors as the other side cuts the same work: chunks as one tensor, a fused layer's columns apart,
channels in the other's order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..explain.moved import pair_parameters
from ..numbers.arrays import as_array
from ..pairing.align import Alignment
from ..pairing.recut import Cut, Joined, Listing, Part, Recut, find_padding, find_recut, may_be_recut
from ..pairing.renumbered import Numbered, find_renumbered
from ..pairing.reordered import Order, find_reordered, list_orders
from ..protocols import Feeds, Hook, Replace, Replacer, Session
from ..reasons.ways import way
from ..records import Operator, TensorMeta
from .side import OpenSide

__all__ = ["RecutSession", "recut_sides"]

Array = np.ndarray[Any, Any]

_IN_MEMORY = 1 << 28
"""Bytes of a side's tensors without partners that are held to find out what they are parts of; what comes later stays
without one."""


def recut_sides(base: OpenSide, target: OpenSide, alignment: Alignment, feeds: tuple[Feeds, Feeds]) -> Recut:
    """Return which tensors without partners are the same work cut differently; from then on both sides show them alike.

    Both run once for it, where shapes allow for any such tensor. feeds: the baseline's and the target's."""
    pairs = {name: pair.base.name for name, pair in alignment.pairs.items()}
    found = _find_cuts(base, target, pairs, feeds)
    found = _add_reordered(found, base, target, pairs, feeds)
    found = _add_renumbered(found, base, target, pairs, feeds)
    for side, cuts in ((base, found.base), (target, found.target)):
        if cuts:
            follows = side is target
            side.session = RecutSession(side.session, cuts, found.constants if follows else {}, follows=follows)
            side.announce()
    return found


def _find_cuts(base: OpenSide, target: OpenSide, pairs: Mapping[str, str], feeds: tuple[Feeds, Feeds]) -> Recut:
    ours = [
        _list_alone(base.tensors, target.tensors, {base_name: name for name, base_name in pairs.items()}),
        _list_alone(target.tensors, base.tensors, pairs),
    ]
    if not may_be_recut(*ours):
        return Recut()
    try:
        values = [_hold(side, fed, alone) for side, fed, alone in zip((base, target), feeds, ours, strict=True)]
    except PrecisionDebugError:  # whatever it is, the comparison's own run says it
        return Recut()
    known = {
        name: base_name for name, base_name in pairs.items()
        if not (base_name in values[0] and name in values[1] and values[0][base_name].shape != values[1][name].shape)
    }  # fmt: skip
    same: list[set[str]] = [
        {known[name] for name in values[1] if name in known} & values[0].keys(),
        {name for name in values[1] if known.get(name) in values[0]},
    ]
    apart = {
        name: one for name, one in pairs.items() if name not in known and name in values[1] and one in values[0]
    }
    padded = _find_padding(base, target, apart)
    listings = [
        Listing(
            tensors=side.tensors, values={name: one for name, one in held.items() if name not in paired}, padded=cuts
        )
        for side, held, paired, cuts in zip((base, target), values, same, padded, strict=True)
    ]
    inner = [[meta for meta in alone if not meta.is_output] for alone in ours]
    return find_recut(listings[0], listings[1], known, apart, guess=may_be_recut(*inner))


def _find_padding(
    base: OpenSide, target: OpenSide, apart: Mapping[str, str]
) -> tuple[frozenset[Cut], frozenset[Cut]]:  # fmt: skip
    """Return where constants of both sides have padding beyond the other's. apart: pairs of other shapes."""
    if not apart:
        return frozenset(), frozenset()
    try:
        return find_padding(_iterate_weights(base, target, apart))
    except PrecisionDebugError:  # weights that cannot be read
        return frozenset(), frozenset()


def _add_reordered(
    found: Recut, base: OpenSide, target: OpenSide, pairs: Mapping[str, str], feeds: tuple[Feeds, Feeds]
) -> Recut:
    """Return what is shown otherwise, with what both files have in other orders of channels that cancel."""
    cut = {source for one in (*found.base, *found.target) for source in _sources_of(one)}
    pairs = {name: base_name for name, base_name in pairs.items() if not {name, base_name} & cut}
    try:
        orders = list_orders(_iterate_weights(base, target, pairs))
        if not orders:
            return found
        values = [
            _hold(side, fed, [meta for meta in side.tensors if not meta.unseen and not meta.phase], "fViub",
                  noting=True)
            for side, fed in zip((base, target), feeds, strict=True)
        ]
    except PrecisionDebugError:  # weights that cannot be read; or a run, of which the comparison's own says it
        return found
    both = {
        name: (values[0][one], values[1][name]) for name, one in pairs.items() if one in values[0] and name in values[1]
    }
    constants = {name: [*_iterate_constants(base, target, one, name)] for name, one in pairs.items()}
    moved = find_reordered(target.tensors, feeds[1].keys(), both, constants, orders)
    shown = tuple(
        Part(name=name, source=name, where=(*(slice(None),) * order.axis, np.array(order.places)),
             shape=both[name][1].shape, whole=both[name][1].shape)
        for name, order in moved.tensors.items()
    )  # fmt: skip
    told = {
        name: (pairs[name], way("in another order of channels along axis {axis}", axis=order.axis))
        for name, order in moved.tensors.items()
    }
    return dataclasses.replace(
        found, target=(*found.target, *shown), pairs={**found.pairs, **told}, constants=moved.constants
    )


def _add_renumbered(
    found: Recut, base: OpenSide, target: OpenSide, pairs: Mapping[str, str], feeds: tuple[Feeds, Feeds]
) -> Recut:
    """Return the pairs, with those of tensors that only their operator's number is the name of."""
    cut = {source for one in (*found.base, *found.target) for source in _sources_of(one)}
    sides = [[meta for meta in side.tensors if not meta.phase and meta.name not in cut] for side in (base, target)]
    numbered = Numbered(sides[0], sides[1], pairs)
    if not numbered.groups:
        return found
    try:
        values = [
            _hold(side, fed, [meta for group in numbered.groups for meta in group[place]], "fViub")
            for place, (side, fed) in enumerate(zip((base, target), feeds, strict=True))
        ]
    except PrecisionDebugError:  # whatever it is, the comparison's own run says it
        return found
    told = {
        name: (one, way("graph neighbours, and nearer than what has its name"))
        for name, one in find_renumbered(numbered, *values).items()
    }
    return dataclasses.replace(found, pairs={**told, **found.pairs})


def _sources_of(cut: Joined | Part) -> tuple[str, ...]:
    return cut.sources if isinstance(cut, Joined) else (cut.source,)


def _iterate_weights(base: OpenSide, target: OpenSide, pairs: Mapping[str, str]) -> Iterator[tuple[Array, Array]]:
    """Yield the weights of both files: without a run of a framework whose operators are known after one."""
    keepers = [side.opening.capabilities.weight_keeper for side in (base, target)]
    if keepers[0] is not None and keepers[1] is not None:
        ours, theirs = (k.weights(side.opening.spec) for k, side in zip(keepers, (base, target), strict=True) if k)
        yield from ((np.asarray(ours[name]), np.asarray(theirs[name])) for name in theirs if name in ours)
        return
    for name, base_name in pairs.items():
        yield from ((first, second) for _, first, second in _iterate_constants(base, target, base_name, name))


def _iterate_constants(
    base: OpenSide, target: OpenSide, base_name: str, name: str
) -> Iterator[tuple[str, Array, Array]]:
    """Yield the constants of a pair's operators: the target's name of it, and both."""
    if base.session.replacer is None or target.session.replacer is None:
        return
    ours, theirs = base.session.replacer.operator(base_name), target.session.replacer.operator(name)
    yield from ((key, first, second) for _, key, first, second in pair_parameters(ours, theirs))


def _list_alone(
    metas: Sequence[TensorMeta], others: Sequence[TensorMeta], partner: Mapping[str, str]
) -> list[TensorMeta]:  # fmt: skip
    """Return the tensors of a side that have no partner among the other's, or one that may have another shape; outputs
    only where they have one."""
    shapes = {meta.name: meta.shape for meta in others}
    return [
        meta for meta in metas
        if not meta.unseen and not meta.phase and not (meta.is_output and meta.name not in partner)
        and (meta.name not in partner or shapes.get(partner[meta.name]) != meta.shape or meta.shape is None)
    ]  # fmt: skip


def _hold(
    side: OpenSide, feeds: Feeds, alone: Sequence[TensorMeta], kinds: str = "fV", *, noting: bool = False
) -> dict[str, Array]:
    """Return the values of tensors of a side, which runs once. kinds: of numbers, as NumPy calls them. noting: its
    operators are known from then on."""
    held: dict[str, Array] = {}
    names, room = frozenset(meta.name for meta in alone), [_IN_MEMORY]

    def keep(_op: str, name: str, tensor: Any, /) -> None:
        value = as_array(tensor, name=name) if name in names and name not in held else None
        if value is not None and value.ndim and value.size and value.nbytes <= room[0] and value.dtype.kind in kinds:
            narrow = value.dtype.kind == "V" or (value.dtype.kind == "f" and value.itemsize < 4)
            held[name] = np.array(value, np.float32 if narrow else value.dtype)
            room[0] -= held[name].nbytes

    replacer = side.session.replacer if noting else None
    if replacer is None:
        side.session.run(feeds, keep, names)
    else:
        replacer.run_replacing(feeds, keep, names)
    return held


class RecutSession:
    """See protocols.Session. cuts: what is shown in place of its own tensors. constants: in which order those of its
    operators are shown.

    Of a run with replaced values, what is put in place of a joined tensor is known when its first chunk is there: the
    others are then taken from a plain run, and where they come to be others, what the replacement changes is added.
    One that follows another run's values measures its operators so, for which that is not enough: with chunks it does
    not replace.
    """

    def __init__(
        self, session: Session, cuts: Sequence[Joined | Part],
        constants: Mapping[str, Mapping[str, Order]] | None = None, *, follows: bool = False,
    ) -> None:  # fmt: skip
        self._session, self._follows, self._constants = session, follows, constants or {}
        self._joined = {source: one for one in cuts if isinstance(one, Joined) for source in one.sources}
        self._parts: dict[str, list[Part]] = {}
        for one in cuts:
            if isinstance(one, Part):
                self._parts.setdefault(one.source, []).append(one)
        self._part = {one.name: one for parts in self._parts.values() for one in parts}
        self._shown = {source: [one.name] for source, one in self._joined.items()}
        self._shown.update({source: [one.name for one in parts] for source, parts in self._parts.items()})
        self._plain: tuple[Feeds, dict[str, Array]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)  # what a cut changes nothing of

    def like(self, session: Session) -> RecutSession:
        """Return another session of the same model, shown as this one is."""
        cuts: list[Joined | Part] = [*{one.name: one for one in self._joined.values()}.values(), *self._part.values()]
        return RecutSession(session, cuts, self._constants)

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        found: dict[str, TensorMeta] = {}
        metas = {meta.name: meta for meta in self._session.tensors}
        for name, meta in metas.items():
            inputs = tuple(dict.fromkeys(one for source in meta.inputs for one in self._shown.get(source, [source])))
            if (joined := self._joined.get(name)) is not None:
                every = [source for one in joined.sources for source in metas[one].inputs if one in metas]
                inputs = tuple(dict.fromkeys(shown for one in every for shown in self._shown.get(one, [one])))
                if name == joined.sources[-1]:  # it is whole when the last of them is there
                    first = metas.get(joined.name, meta)
                    found[joined.name] = dataclasses.replace(first, inputs=inputs, shape=joined.shape)
            elif name in self._parts:
                for part in self._parts[name]:
                    found[part.name] = dataclasses.replace(
                        meta, name=part.name, origin="", node=meta.node or name, inputs=inputs, shape=part.shape
                    )
            else:
                found[name] = dataclasses.replace(meta, inputs=inputs) if inputs != meta.inputs else meta
        return tuple(found.values())

    @property
    def replacer(self) -> Replacer | None:
        return None if self._session.replacer is None else self

    @property
    def replaces(self) -> bool:
        """See protocols.Replacer."""
        return self._replacer.replaces and not (self._follows and self._joined)

    @property
    def workbench(self) -> Any:
        """See protocols.Workbench: tensors are cut in the host's memory."""
        return None

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        waiting: dict[str, Array] = {}

        def show(op_type: str, name: str, tensor: Any, /) -> None:
            assert hook is not None
            joined = self._joined.get(name)
            if joined is not None:
                waiting[name] = np.array(as_array(tensor, name=name))
                if name == joined.sources[-1] and waiting.keys() >= set(joined.sources):
                    chunks = [waiting.pop(one) for one in joined.sources]
                    hook(op_type, joined.name, _join(joined, chunks))
            elif name in self._parts:
                whole = as_array(tensor, name=name)
                for part in self._parts[name] if whole.shape == self._parts[name][0].whole else ():
                    if names is None or part.name in names:
                        hook(op_type, part.name, np.ascontiguousarray(whole[part.where]))
            else:
                hook(op_type, name, tensor)

        outputs = self._session.run(feeds, None if hook is None else show, self._own_names(names))
        return {name: _cut_output(self._part.get(name), value) for name, value in outputs.items()}

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer."""
        wanted = None if names is None else frozenset(names)
        known: Callable[[str], Any] | None = getattr(replace, "known", None)
        usual = self._run_plain(feeds, wanted, known)
        put: dict[str, tuple[Array, Array]] = {}

        def change(op_type: str, name: str, tensor: Any) -> Any:
            joined = self._joined.get(name)
            if joined is not None:
                own = as_array(tensor, name=name)
                if name == joined.sources[0]:
                    put.pop(joined.name, None)
                    whole = _join(joined, [own, *(usual[one] for one in joined.sources[1:])])
                    new = replace(op_type, joined.name, whole)
                    if new is not None and np.shape(new) == whole.shape:
                        put[joined.name] = whole, np.asarray(new)
                return None if joined.name not in put else _take_chunk(joined, name, own, *put[joined.name])
            if name not in self._parts:
                return replace(op_type, name, tensor)
            whole = np.array(as_array(tensor, name=name))
            changed = False
            for part in self._parts[name] if whole.shape == self._parts[name][0].whole else ():
                if wanted is not None and part.name not in wanted:
                    continue
                new = replace(op_type, part.name, np.ascontiguousarray(whole[part.where]))
                if new is not None and np.shape(new) == part.shape:
                    whole[part.where] = new
                    changed = True
            return whole if changed else None

        outputs = self._replacer.run_replacing(feeds, change, self._own_names(names))
        return {name: _cut_output(self._part.get(name), value) for name, value in outputs.items()}

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        joined, part = self._joined.get(name), self._part.get(name)
        if joined is not None and np.shape(value) == joined.shape:
            found = [
                self._replacer.held(source, np.ascontiguousarray(chunk))
                for source, chunk in zip(joined.sources, _split(joined, np.asarray(value)), strict=True)
            ]
            return None if any(one is None for one in found) else _join(joined, found)
        if part is not None and np.shape(value) == part.shape:
            whole = np.zeros(part.whole, np.asarray(value).dtype)
            whole[part.where] = value
            held = self._replacer.held(part.source, whole)
            return None if held is None else np.ascontiguousarray(np.asarray(held)[part.where])
        return self._replacer.held(name, value)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        part = self._part.get(name)
        found = self._replacer.operator(name if part is None else part.source)
        orders = self._constants.get(name)
        if found is not None and orders is not None:
            turned = {key: orders[key].put_back(np.asarray(found.parameters[key])) for key in orders}
            return dataclasses.replace(found, parameters={**found.parameters, **turned})
        return found if part is None or found is None or part.shape == part.whole else _cut_weights(found, part)

    @property
    def _replacer(self) -> Replacer:
        assert self._session.replacer is not None
        return self._session.replacer

    def _own_names(self, names: Collection[str] | None) -> Collection[str] | None:
        """Return the session's own names of what is wanted."""
        if names is None:
            return None
        wanted = frozenset(names)
        inside = {source for source, shown in self._shown.items() if not wanted.isdisjoint(shown)}
        return (wanted - self._part.keys() - self._joined.keys()) | inside

    def _run_plain(
        self, feeds: Feeds, names: frozenset[str] | None, known: Callable[[str], Any] | None
    ) -> dict[str, Array]:  # fmt: skip
        """Return the chunks of the joined tensors: of an undisturbed run, or of one with what is known to be put."""
        if not self._joined:
            return {}
        if known is None and self._plain is not None and self._plain[0] is feeds:
            return self._plain[1]
        found: dict[str, Array] = {}

        def keep(_op: str, name: str, tensor: Any, /) -> Any:
            joined = self._joined.get(name)
            shown = self._shown.get(name, [name])
            if joined is not None:
                found[name] = np.array(as_array(tensor, name=name))
            if known is None or (names is not None and names.isdisjoint(shown)):
                return None
            if joined is not None:
                new = known(joined.name)
                fits = new is not None and np.shape(new) == joined.shape
                return _split(joined, np.asarray(new))[joined.sources.index(name)] if fits else None
            if name not in self._parts:
                new = known(name)
                return np.array(new) if new is not None and np.shape(new) == np.shape(tensor) else None
            whole = np.array(as_array(tensor, name=name))
            for part in self._parts[name]:
                new = known(part.name)
                if new is not None and np.shape(new) == part.shape:
                    whole[part.where] = new
            return whole

        if known is None:
            self._session.run(feeds, keep, frozenset(self._joined))
            self._plain = feeds, found
        else:
            self._replacer.run_replacing(feeds, keep, self._own_names(names))
        return found


def _join(joined: Joined, chunks: Sequence[Any]) -> Array:
    whole = np.concatenate(chunks, joined.axis)
    return whole.take(joined.order, joined.axis) if joined.order else whole


def _split(joined: Joined, whole: Array) -> list[Array]:
    if joined.order:
        whole = whole.take(np.argsort(joined.order), joined.axis)
    return np.split(whole, np.cumsum(joined.sizes)[:-1], joined.axis)


def _take_chunk(joined: Joined, name: str, own: Array, usual: Array, new: Array) -> Array:
    """Return what goes in place of a chunk: what was put there, or, where it is not what it usually is, with what that
    changed."""
    number = joined.sources.index(name)
    before, put = (_split(joined, one)[number] for one in (usual, new))
    if np.array_equal(own, before) or own.dtype.kind != "f":
        return np.ascontiguousarray(put)
    with np.errstate(all="ignore"):
        moved = own + (put - before)
    return np.ascontiguousarray(np.where(np.isfinite(moved), moved, put), dtype=own.dtype)


def _cut_output(part: Part | None, value: Any) -> Any:
    """Return what is shown of an output that a part has the name of."""
    if part is None or part.source != part.name or part.shape == part.whole or np.shape(value) != part.whole:
        return value
    return np.ascontiguousarray(as_array(value, name=part.name)[part.where])


def _cut_weights(operator: Operator, part: Part) -> Operator:
    """Return an operator with the rows or columns of its weights that make a part of its result."""
    axis = next((axis for axis, (a, b) in enumerate(zip(part.shape, part.whole, strict=True)) if a != b), 0)
    many, index = part.whole[axis], part.where[axis]
    cut: dict[str, Any] = {}
    for name, value in operator.parameters.items():
        array = np.asarray(value)
        axes = [place for place, size in enumerate(array.shape) if size == many]
        cut[name] = array[(slice(None),) * axes[0] + (index,)] if len(axes) == 1 else value
    return dataclasses.replace(operator, parameters=cut)
