"""One run: what a tap hands over goes to the hook in the model's own type, and the first error of the hook is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from precision_debug.onnx.real_numbers import RealNumbers
from precision_debug.reasons.ways import NO_WAY
from precision_debug.records import UNFUSED, TensorMeta

from ..isolate import fit_to_memory, round_as_held
from ..reasons import say
from .graph import Key
from .tensor_list import Entry

__all__ = ["Shown"]

Show = Callable[[str, str, Any], Any]

_WHOLE = frozenset({"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})


@dataclass(kw_only=True)
class Shown:
    """show: the hook, or what replaces; what it returns goes on in place of the tensor. copies: it keeps what it gets.

    outputs: those of the plain run, which are shown in place of what a tap says of them. real: what tensors that are
    quantised in the model itself are shown as. also: is given what a tap hands over, too.
    """

    entries: Sequence[Entry]
    names: Collection[str] | None
    show: Show
    copies: bool = True
    outputs: Mapping[str, Any] = field(default_factory=dict)
    real: RealNumbers = field(default_factory=RealNumbers)
    also: Callable[[Key, Any], object] | None = None
    error: BaseException | None = None
    _order: list[tuple[str, TensorMeta]] = field(default_factory=list)
    _turns: dict[Key, int] = field(default_factory=dict)
    _of: dict[Key, list[Entry]] = field(default_factory=dict)
    _waiting: dict[str, Entry] = field(default_factory=dict)
    _looped: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._waiting = {entry.meta.name: entry for entry in self.entries if not entry.meta.unseen}
        self._looped = frozenset(entry.meta.name for entry in self.entries if entry.value.looped)
        for entry in self._waiting.values():
            self._of.setdefault(entry.value.key, []).append(entry)

    def inputs(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Show what is fed; what is to be fed."""
        fed = dict(arrays)
        for entry in [entry for entry in self._waiting.values() if entry.value.op_type == "Input"]:
            name = entry.value.name
            new = self._one(entry, self.outputs.get(entry.meta.name, arrays[name]))
            if new is not None and (fit := fit_to_memory(new, arrays[name])) is not None:
                fed[name] = np.ascontiguousarray(fit).reshape(fit.shape)  # it makes a vector of a scalar
        return fed

    def receive(self, key: Key, memory: Any) -> Any:
        """Return what a tensor's readers get in place of the engine's own values; None: those. Never raises."""
        if self.error is not None:
            return None
        new: Any = None
        try:
            if self.also is not None:
                self.also(key, memory)
            for entry in self._of.get(key, ()):
                value = self.outputs.get(entry.meta.name)
                if value is None:
                    value = _view_as_type(memory, entry.value.dtype, self.copies)
                shown = self._one(entry, value)
                if shown is not None:  # a tap may hold in float32 what the engine holds in less
                    held = round_as_held(shown, entry.meta.dtype)
                    new = shown if held is None else held
            self._turns[key] = self._turns.get(key, -1) + 1
            return None if new is None else fit_to_memory(new, memory)
        except BaseException as error:
            self.error = error
            return None

    def finish(self, outputs: Mapping[str, Any]) -> None:
        """Raise what the hook raised; show what came as an output only."""
        if self.error is not None:
            raise self.error
        for entry in list(self._waiting.values()):
            if entry.meta.name in outputs:
                self._one(entry, outputs[entry.meta.name])

    def _one(self, entry: Entry, value: Any) -> Any:
        self._waiting.pop(entry.meta.name, None)
        meta = entry.meta
        if entry.value.looped:
            turn = self._turns.get(entry.value.key, -1) + 1
            reads = tuple(f"{name}@{turn}" if name in self._looped else name for name in meta.inputs)
            meta = dataclasses.replace(meta, name=f"{meta.name}@{turn}", inputs=reads)
        self._order.append((entry.meta.name, meta))
        wanted = self.names is None or meta.name in self.names or entry.meta.name in self.names
        if not wanted:
            return None
        shown = self.real.shown(entry.value.name, value)
        new = self.show(meta.op_type, meta.name, shown)
        return new if shown is value or new is None else self.real.codes(entry.value.name, new, value)

    def listed(self) -> Iterator[TensorMeta]:
        """Yield every tensor in the order in which it came; what did not come stays behind its neighbour, and says
        why."""
        last = {name: place for place, (name, _) in enumerate(self._order)}
        after: dict[str, list[TensorMeta]] = {}
        before = ""
        for entry in self.entries:
            if entry.meta.name in last:
                before = entry.meta.name
            elif entry.meta.view != UNFUSED:
                unseen = entry.meta.unseen or say("not_entered")
                after.setdefault(before, []).append(dataclasses.replace(entry.meta, unseen=unseen))
            elif entry.hidden:
                after.setdefault(before, []).append(dataclasses.replace(entry.meta, unseen=entry.hidden, view=NO_WAY))
        yield from after.get("", ())
        for place, (name, meta) in enumerate(self._order):
            yield meta
            if last[name] == place:
                yield from after.get(name, ())


def _view_as_type(memory: np.ndarray[Any, Any], dtype: str, copies: bool) -> np.ndarray[Any, Any]:
    """Return the engine's array in the model's type where that is not a float: it holds int64 as int32, bool as
    uint8."""
    if memory.dtype.kind != "f" and memory.dtype.name != dtype and dtype in _WHOLE:
        return memory.astype(dtype)
    return memory.copy() if copies else memory
