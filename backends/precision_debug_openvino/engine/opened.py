"""What lies inside fused layers, seen in further runs in which it is not fused.

To show such a tensor changes what OpenVINO fuses. So it is shown in a compiled model of its own, and only where that
model computes the same: whatever the plain engine shows in front of the tensor and behind it (``marks``) comes out the
same there. All are shown at once in a run that is given the plain engine's values wherever that one shows some
(``given``); what is not the same there, in runs of their own: all at once, else one of each stretch between two marks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from precision_debug.errors import BackendError
from precision_debug.observe.unfused import Around, Values, describe_surroundings, find_differing
from precision_debug.records import UNFUSED

from ..make import Built, Given, Maker
from .given import GivenRun, place_taps
from .graph import Graph, Key
from .layers import Layer
from .marks import Marked
from .seen_tensors import Shown
from .tensor_list import Entry, add_unfused

__all__ = ["Opened", "Seen", "Switch", "open_layers"]

_LEAST, _MOST = 4, 12
"""Compiled models, in all."""

_WORK = 5000
"""Tensors of the graph times compiled models, within these bounds."""

_QUANTISES = frozenset({"FakeQuantize", "FakeConvert"})

Infer = Callable[[Built, "Values[Key] | GivenRun"], tuple[Mapping[Key, Any], Mapping[Key, Any]]]
"""Runs a compiled model; what its taps were shown, and the model's outputs, each by its tensor."""


@dataclass(kw_only=True)
class Switch:
    """What taps call, whichever run is under way; at other times (OpenVINO folds constants) nothing happens."""

    keys: tuple[Key, ...] = ()
    run: Shown | Values[Key] | GivenRun | None = None

    def receive(self, number: int, memory: Any) -> Any:
        return None if self.run is None else self.run.receive(self.keys[number], memory)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the plain engine shows."""

    graph: Graph
    layers: Sequence[Layer]
    entries: Sequence[Entry]
    marked: Marked


def open_layers(seen: Seen, maker: Maker, switch: Switch) -> tuple[Sequence[Entry], Opened | None]:
    """Return the entries, with what lies inside fused layers and further runs are to show; and how these are made."""
    there = [entry.value.key for entry in seen.entries if not entry.meta.unseen]
    inner = _list_inner_keys(seen.graph, there, {entry.meta.origin for entry in seen.entries if entry.meta.origin})
    # what would disturb is listed already
    more = sorted(seen.marked.dropped.difference(inner, there), key=lambda key: (seen.graph.rank[key[0]], key))
    inner = (*inner, *more)  # in an order that hashes of names do not decide: what is tried first may decide the rest
    if not inner or seen.marked.built is None:
        return seen.entries, None

    def build(keys: Collection[Key], by_results: bool) -> Built:
        every = frozenset((*seen.marked.keys, *keys))
        return maker.results(every) if by_results else maker.beside(every, switch.receive)

    given = place_taps(seen.graph, seen.layers, seen.marked.keys, inner, maker.ranges.keys())
    entries = add_unfused(seen.graph, seen.layers, seen.entries, inner)
    names = frozenset(entry.meta.name for entry in entries if entry.meta.view == UNFUSED)
    return entries, Opened(
        graph=seen.graph, inner=inner, names=names, build=build, switch=switch, given=given, maker=maker
    )  # fmt: skip


@dataclass(kw_only=True)
class Opened:
    """The compiled models in which inner tensors are shown, found out in the first run.

    inner, names: tensors that the plain engine does not show, and what they are listed as. build: compiles with some of
    them shown beside those that the plain engine shows, by taps that call the switch or, True, as further results.
    given: where the taps of the first one stand. _first: that one, and what it showed the first time.
    """

    graph: Graph
    inner: tuple[Key, ...]
    names: frozenset[str]
    build: Callable[[Collection[Key], bool], Built]
    switch: Switch
    given: Given
    maker: Maker
    _first: tuple[Built, frozenset[Key]] | None = None
    _decided: list[tuple[Built, frozenset[Key]]] | None = None

    def wanted(self, names: Collection[str] | None) -> bool:
        """Return whether any of them is asked for."""
        return names is None or not self.names.isdisjoint(names)

    def show(
        self, receive: Callable[[Key, Any], Any], plain: Values[Key], fed: Mapping[str, Any],
        outputs: Mapping[str, Any], infer: Callable[[Built], Mapping[str, Any]],
    ) -> None:  # fmt: skip
        """Show what further runs of the same input may show.

        plain: what the plain engine's taps were shown. infer: runs a compiled model and returns its outputs."""
        if not plain.whole:
            return
        inputs = {value.key: fed[value.name] for value in self.graph.values.values() if value.op_type == "Input"}
        ends = {key: outputs[name] for name, key in self.graph.outputs.items()}

        def run(built: Built, to: Values[Key] | GivenRun) -> tuple[Mapping[Key, Any], Mapping[Key, Any]]:
            self.switch.keys, self.switch.run = built.taps, to
            try:
                there = infer(built)
            finally:
                self.switch.run = None
            seen = to.seen if isinstance(to, GivenRun) else to
            for place, key in enumerate(built.ends, len(there)):
                seen.found[key] = np.array(built.request.get_output_tensor(place).data)
            return seen.found, {key: there[name] for name, key in self.graph.outputs.items()}

        for key, value in self.shown({**inputs, **plain.found, **ends}, run):
            receive(key, value)

    def shown(self, plain: Mapping[Key, Any], infer: Infer) -> Iterator[tuple[Key, Any]]:
        """Yield inner tensors that are as the plain engine must have them. plain: what that one showed, inputs and
        outputs included."""
        yield from self._show_given(plain, infer)
        if self._decided is None:
            self._decided = []
            yield from self._search(plain, infer)
            return
        around = self._surroundings(plain)
        for built, keys in self._decided:
            values, outputs = infer(built, Values())
            wrong = find_differing(plain, {**values, **outputs})
            yield from ((key, values[key]) for key in values if key in keys and not wrong & around[key].both)

    def _show_given(self, plain: Mapping[Key, Any], infer: Infer) -> Iterator[tuple[Key, Any]]:
        """Yield those that are so in a run that is given what the plain engine shows."""
        there = {key: value for key, value in plain.items() if self.graph.values[key].op_type != "Input"}
        run = GivenRun(given=self.given, plain=there)
        try:
            built = self._first[0] if self._first is not None else self.maker.given(self.given, self.switch.receive)
            _, outputs = infer(built, run)
        except BackendError:
            return
        same = run.find_same(outputs, self._surroundings(plain), self.maker.ranges)
        if self._first is None:
            self._first = built, frozenset(same)
        yield from ((key, run.seen.found[key]) for key in self.inner if key in same & self._first[1])

    def _search(self, plain: Mapping[Key, Any], infer: Infer) -> Iterator[tuple[Key, Any]]:
        """All at once, by taps and as results; then one of each stretch at a time, without those that change something,
        and then without their type of operator; of these every other, as results."""
        around = self._surroundings(plain)
        tapped, shown = ({*self.inner}, frozenset[Key]())
        if self._first is not None:
            tapped, shown = {*self._first[0].taps}, self._first[1]
        every = [key for key in self.inner if around[key].behind and key in tapped and key not in shown]
        waiting = [(every, False, 0), (every, True, 0)]
        left, alone = dict.fromkeys(every), False
        most = _MOST // 2 if shown else _MOST
        for _ in range(max(_LEAST, min(most, _WORK // max(1, len(self.graph.values))))):
            waiting = [one for one in waiting if not left.keys().isdisjoint(one[0])]
            if not waiting and not alone:
                alone = True
                waiting = [(part, False, 0) for part in _split_in_parts(list(left), around)]
            if not waiting:
                return
            wanted, by_results, turn = waiting.pop(0)
            wanted = [key for key in wanted if key in left]
            try:
                built = self.build(wanted, by_results)
                values, outputs = infer(built, Values())
            except BackendError:
                continue
            wrong = find_differing(plain, {**values, **outputs})
            same = {key for key in wanted if key in values and not wrong & around[key].both}
            if same:
                assert self._decided is not None
                self._decided.append((built, frozenset(same)))
                yield from ((key, values[key]) for key in wanted if key in same)
            gone = {key for key in wanted if by_results and key not in values}  # a constant
            left = {key: None for key in left if key not in same and key not in gone}
            if wrong and alone:
                rest = [key for key in wanted if key in left]
                guilty = {key for key in rest if not wrong & around[key].front}
                if turn:
                    kinds = {self._kind(key) for key in guilty}
                    guilty = {key for key in rest if self._kind(key) in kinds}
                there = [key for key in rest if key in guilty]
                innocent = [key for key in rest if key not in guilty]
                waiting = [(innocent, by_results, turn + 1), *waiting]
                waiting += [(there[::2], True, 0), (there[1::2], True, 0)] if not by_results else []

    def _surroundings(self, plain: Collection[Key]) -> Mapping[Key, Around[Key]]:
        reads = {key: value.reads for key, value in self.graph.values.items()}
        return describe_surroundings(reads, self.inner, plain)

    def _kind(self, key: Key) -> str:
        return self.graph.values[key].op_type


def _split_in_parts(keys: Sequence[Key], around: Mapping[Key, Around[Key]]) -> list[list[Key]]:
    """Return them in parts that have one of each stretch at most, the last of each first: a layer ends there."""
    stretches: dict[frozenset[Key], list[Key]] = {}
    for key in keys:
        stretches.setdefault(around[key].both, []).append(key)
    longest = max(map(len, stretches.values()), default=0)
    return [[keys[-place] for keys in stretches.values() if len(keys) >= place] for place in range(1, longest + 1)]


def _list_inner_keys(graph: Graph, listed: Iterable[Key], taken: Set[str]) -> tuple[Key, ...]:
    """Return what is computed inside of layers, but for the quantiser's own. taken: names that others hold."""
    known = set(listed)
    return tuple(
        value.key for value in graph.computed()
        if value.op_type not in _QUANTISES and value.dtype != "str" and value.key not in known
        and not taken & set(value.names)
    )  # fmt: skip
