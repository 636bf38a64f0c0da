"""One model in one run mode: lists its tensors, shows them to a hook while they live, returns the outputs."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_debug.errors import BackendError, InputError
from precision_debug.protocols import Feeds, Hook
from precision_debug.records import TensorMeta

from . import taps
from .listing import Entry
from .model import Model
from .runtime import Runtime, our_errors
from .tapped import Tap, insert_taps

__all__ = ["OrtSession"]

_NOT_REACHED = "in a branch or loop body that this run did not enter"


class OrtSession:
    """See protocols.Session. Holds one ONNX Runtime session at a time, made for the tensors that the last run showed."""

    def __init__(
        self, *, model: Model, entries: Sequence[Entry], runtime: Runtime, notes: Sequence[str], versions: Mapping[str, str]
    ) -> None:
        self._model, self._runtime = model, runtime
        self._entries = tuple(entries)
        self._tensors: tuple[TensorMeta, ...] = tuple(entry.meta for entry in entries)
        self.notes: Sequence[str] = tuple(notes)
        self.versions: Mapping[str, str] = dict(versions)
        self._busy = threading.Lock()
        self._open: _Opened | None = None
        self._closed = False

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        return self._tensors

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if not self._busy.acquire(blocking=False):
            raise BackendError("this session is running already", where=self._model.path, hint="open another session")
        try:
            if self._closed:
                raise BackendError("this session is closed", where=self._model.path)
            return self._run(feeds, hook, names)
        finally:
            self._busy.release()

    def close(self) -> None:
        with self._busy:
            self._closed = True
            self._drop()

    def _drop(self) -> None:
        if self._open is not None:
            taps.disconnect(self._open.number)
            self._open = None

    def _run(self, feeds: Feeds, hook: Hook | None, names: Collection[str] | None) -> Mapping[str, Any]:
        opened = self._opened(hook is not None, names)
        names_of_outputs = [item.name for item in opened.ort.get_outputs()]
        run = _Run(hook=hook, names=names, opened=opened)
        opened.current.append(run)
        try:
            with our_errors(self._model.path):
                values = opened.ort.run(None, _accepted(opened.ort, feeds), run.options)
        except Exception:
            if run.error is not None:
                raise run.error from None
            raise
        finally:
            opened.current.clear()
        if run.error is not None:
            raise run.error
        outputs = dict(zip(names_of_outputs, values, strict=True))
        self._show_at_end(outputs, hook, names)
        if hook is not None and names is None:
            self._tensors = tuple(meta for entry in self._entries for meta in run.listed(entry))
        return outputs

    def _show_at_end(self, outputs: Mapping[str, Any], hook: Hook | None, names: Collection[str] | None) -> None:
        for entry in self._entries:
            if hook is not None and entry.view.at_end and not entry.meta.unseen and _wanted(entry, names):
                hook(entry.meta.op_type, entry.meta.name, outputs[entry.value.name])

    def _opened(self, hooked: bool, names: Collection[str] | None) -> _Opened:
        chosen = [
            entry for entry in self._entries
            if hooked and not entry.meta.unseen and not entry.view.at_end and _wanted(entry, names)
        ]  # fmt: skip
        key = frozenset(entry.meta.name for entry in chosen)
        if self._open is not None and self._open.key == key:
            return self._open
        self._drop()
        taps.register()
        current: list[_Run] = []
        number = taps.connect(lambda place, tensor: current[0].receive(place, tensor) if current else None)
        graph = insert_taps(self._model, chosen, number)
        session = self._runtime.open(graph.model, taps=True)
        self._open = _Opened(key=key, number=number, ort=session, taps=graph.taps, current=current)
        return self._open


@dataclass(frozen=True, kw_only=True)
class _Opened:
    """An ONNX Runtime session with taps on the tensors of ``key``, and the run that they report to."""

    key: frozenset[str]
    number: int
    ort: Any
    taps: tuple[Tap, ...]
    current: list[_Run]


@dataclass(kw_only=True)
class _Run:
    """What one run has seen so far. Counts iterations, and keeps the first exception of the hook."""

    hook: Hook | None
    names: Collection[str] | None
    opened: _Opened
    error: BaseException | None = None
    options: Any = None
    iteration: dict[Any, int] = field(default_factory=dict)
    seen: dict[str, list[TensorMeta]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import onnxruntime as ort

        self.options = ort.RunOptions()

    def receive(self, place: int, tensor: Any) -> None:
        """Never raises: what the hook raises is kept, and ends the run."""
        if self.error is not None:
            return
        try:
            self._receive(self.opened.taps[place], tensor)
        except BaseException as error:
            self.error = error
            self.options.terminate = True

    def _receive(self, tap: Tap, tensor: Any) -> None:
        if tap.event:
            self.iteration[tap.loop] = -1 if tap.event == "enter" else self.iteration.get(tap.loop, -1) + 1
            return
        if tap.entry is None or self.hook is None:
            return
        meta = self._instance(tap.entry)
        if meta is None:
            return
        finish = tap.entry.view.finish
        self.hook(meta.op_type, meta.name, tensor if finish is None else finish(tensor))

    def _instance(self, entry: Entry) -> TensorMeta | None:
        """The tensor as this iteration calls it; None where it was not asked for."""
        meta = entry.meta
        if entry.looped:
            scope = entry.value.scope.key
            turns = [self.iteration[scope[:d]] for d in range(1, len(scope) + 1) if scope[:d] in self.iteration]
            suffix = "@" + ".".join(map(str, turns))
            meta = dataclasses.replace(
                meta, name=meta.name + suffix, origin=meta.origin + suffix if meta.origin else "",
                inputs=tuple(self._input(name, scope, suffix) for name in meta.inputs),
            )  # fmt: skip
            if self.names is not None and not {entry.meta.name, meta.name} & set(self.names):
                return None
        self.seen.setdefault(entry.meta.name, []).append(meta)
        return meta

    def _input(self, name: str, scope: Any, suffix: str) -> str:
        for tap in self.opened.taps:
            if tap.entry is not None and tap.entry.meta.name == name:
                return name + suffix if tap.entry.value.scope.key == scope else name
        return name

    def listed(self, entry: Entry) -> list[TensorMeta]:
        """The entry as it turned out: one for each iteration, or why the hook was not called."""
        found = self.seen.get(entry.meta.name)
        if found:
            return found
        if entry.meta.unseen or entry.view.at_end:
            return [entry.meta]
        return [dataclasses.replace(entry.meta, unseen=_NOT_REACHED)]


def _wanted(entry: Entry, names: Collection[str] | None) -> bool:
    if names is None or entry.meta.name in names:
        return True
    return entry.looped and any(name.rpartition("@")[0] == entry.meta.name for name in names)


def _accepted(session: Any, feeds: Feeds) -> dict[str, Any]:
    """The feeds in the form that ONNX Runtime takes; raises InputError for one that is missing or unknown."""
    import numpy as np

    known = {item.name: item for item in (*session.get_inputs(), *session.get_overridable_initializers())}
    for name in feeds:
        if name not in known:
            raise InputError(f"the model has no input {name}", where=name, hint=f"it has {', '.join(known)}")
    missing = [item.name for item in session.get_inputs() if item.name not in feeds and "optional" not in item.type]
    if missing:
        raise InputError(f"no value for the input {missing[0]}", where=missing[0], hint="give it with --inputs")
    return {name: _fed(value, np) for name, value in feeds.items()}


def _fed(value: Any, np: Any) -> Any:
    if value is None or isinstance(value, (list, dict)):
        return value
    array = np.asarray(value)
    return array


_Receive = Callable[[int, Any], None]
