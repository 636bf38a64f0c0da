"""What ONNX Runtime's optimiser hides, seen in a run of the same file without it, where both give the same around it.

The file that the mode made (converted, quantised) runs once more, unoptimised. It has every tensor. What the engine's
own graph shows, too, and in the same form, is a mark, and goes on as the engine has it: each stretch between marks is
given the engine's numbers. An inner tensor is shown where the nearest marks behind it come out the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from precision_debug.errors import PrecisionDebugError
from precision_debug.observe.unfused import Around, Values, describe_surroundings, find_differing
from precision_debug.protocols import Feeds, Hook, Replacer, Session
from precision_debug.records import UNFUSED, TensorMeta

from .source_tensors import Known
from .tensor_list import Entry

__all__ = ["Opened", "open_unoptimised"]

_Form = tuple[str, str, str]
"""A source tensor, the scale that its numbers are multiples of, and what they have yet to go through."""


@dataclass(kw_only=True)
class Opened:
    """A session of the unoptimised file. inner: what it is to show, by its names. around: what the engine's own graph
    shows around these, by its names. marks: of that, the names there."""

    session: Session
    marks: Mapping[str, str]
    inner: Mapping[str, TensorMeta]
    around: Mapping[str, Around[str]]
    plain: Values[str] = field(default_factory=Values)
    own: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.own = frozenset(self.marks.values())

    def wanted(self, names: Collection[str] | None) -> Opened | None:
        """Return itself, without numbers of another run, where some of what it is to show is asked for."""
        asked = names is None or any(meta.name in names for meta in self.inner.values())
        self.plain = Values()
        return self if asked else None

    def begin(self, name: str, tensor: Any) -> None:
        """Keep what the engine's own run shows, until ``show`` compares it."""
        if name in self.own:
            self.plain.receive(name, tensor)

    def show(self, feeds: Feeds, hook: Hook, names: Collection[str] | None) -> Sequence[TensorMeta]:
        """Show what is as the engine must have it, and return what was shown. feeds: those of the run before."""
        plain, self.plain = self.plain, Values()
        chosen = [name for name in self.inner if names is None or self.inner[name].name in names]
        if not plain.whole or not chosen:
            return ()
        seen: Values[str] = Values()
        given: dict[str, Any] = {name: plain.found[own] for name, own in self.marks.items() if own in plain.found}
        same: set[str] = set()
        put: set[str] = set()

        def replace(op_type: str, name: str, tensor: Any) -> Any:  # noqa: ARG001
            if name not in given:
                return seen.receive(name, tensor)
            differs = find_differing({name: given[name]}, {name: np.asarray(tensor)})
            (put if differs else same).add(name)
            return given[name] if differs else None

        replacer = self.session.replacer
        try:
            if replacer is not None and replacer.replaces:
                replacer.run_replacing(feeds, replace, [*chosen, *given])
                fed = {name for name in put if _is_held(replacer, name, given[name])}
            else:
                self.session.run(feeds, _Hook(show=replace), [*chosen, *given])
                fed = set()
        except PrecisionDebugError:
            return ()
        if not seen.whole:
            return ()
        shown = []
        for name in chosen:
            around = self.around[name]
            if name in seen.found and around.behind <= same and around.front <= same | fed:
                meta = self.inner[name]
                hook(meta.op_type, meta.name, seen.found[name])
                shown.append(meta)
        return shown


def _is_held(replacer: Replacer, name: str, value: Any) -> bool:
    """Return whether a session that is given a value goes on with that one."""
    held = replacer.held(name, value)
    return held is not None and not find_differing({name: value}, {name: held})


@dataclass(frozen=True, kw_only=True)
class _Hook:
    """A hook that keeps nothing of its own."""

    show: Callable[[str, str, Any], Any]
    borrows: bool = True

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> None:
        self.show(op_type, name, tensor)


def open_unoptimised(
    own: Sequence[Entry], known: Known, make: Callable[[], tuple[Sequence[Entry], Callable[[Sequence[Entry]], Session]]]
) -> Opened | None:
    """Return how to show what the optimiser hides; None where it hides nothing that could be shown.

    own: what the engine's own graph shows. make: lists the tensors of the unoptimised graph, and opens a session of
    some of them.
    """
    held = {_source(entry) for entry in own if not entry.meta.unseen}
    hidden = {name for name in known.source.producer if known.source.tensors.get(name) == (0, 0)} - held
    if not hidden:
        return None
    try:
        entries, start = make()
    except PrecisionDebugError:
        return None
    there = {_form(entry): entry.meta.name for entry in own if _is_plain(entry)}
    marks = {
        entry.meta.name: there[_form(entry)] for entry in entries if _is_plain(entry) and _form(entry) in there
    }  # fmt: skip
    chosen: dict[str, Entry] = {}
    taken = marks.keys() | {entry.meta.name for entry in own}
    for entry in entries:
        source = _source(entry)
        free = source in hidden and _is_plain(entry) and entry.meta.name not in taken
        if free and (source not in chosen or chosen[source].before):
            chosen[source] = entry
    reads = {entry.meta.name: (*entry.meta.inputs, *_read_there(entry)) for entry in entries}
    names = [entry.meta.name for entry in chosen.values()]
    around = {name: one for name, one in describe_surroundings(reads, names, marks).items() if one.behind}
    nearest = describe_surroundings(reads, list(around), {*marks, *around})
    inner = {
        entry.meta.name: dataclasses.replace(
            entry.meta, view=UNFUSED, absorbs=(), inputs=tuple(
                marks.get(name, name) for name in reads if name in nearest[entry.meta.name].front
            ),
        )
        for entry in chosen.values() if entry.meta.name in around
    }  # fmt: skip
    if not inner:
        return None
    near = frozenset().union(*(one.both for one in around.values()))
    marks = {name: own_name for name, own_name in marks.items() if name in near}
    session = start([entry for entry in entries if entry.meta.name in marks or entry.meta.name in inner])
    return Opened(session=session, marks=marks, inner=inner, around=around)


def _source(entry: Entry) -> str:
    return entry.meta.origin or entry.meta.name


def _form(entry: Entry) -> _Form:
    return _source(entry), entry.form.code if entry.form is not None else "", entry.before


def _read_there(entry: Entry) -> Sequence[str]:
    """Return what the node itself reads: what is behind an activation that the quantiser removed is said to be made of
    what the product in front of that reads."""
    return () if entry.value.node is None else tuple(entry.value.node.input)


def _is_plain(entry: Entry) -> bool:
    """Return whether it is an array of the main graph that a tap shows."""
    return not entry.value.scope.key and not entry.meta.unseen and not entry.view.at_end
