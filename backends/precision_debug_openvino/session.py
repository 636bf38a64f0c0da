"""One model in one run mode: lists its tensors, shows them to a hook while the engine runs, returns the outputs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import BackendError
from precision_debug.feeds.check import engine_arrays
from precision_debug.inspector import EngineLayer
from precision_debug.observe.unfused import Values
from precision_debug.onnx.real_numbers import RealNumbers
from precision_debug.protocols import Feeds, Hook, OneRun, Replace, Replacer
from precision_debug.reasons import Reason
from precision_debug.reasons.ways import way
from precision_debug.records import UNFUSED, Doubt, InputMeta, Operator, TensorMeta

from . import isolate
from .engine.graph import Graph, Key
from .engine.layers import BODIES, Layer, engine_layers, precision_counts, precision_name
from .engine.marks import Marked, build_marked, build_undisturbed, find_disturbed, list_surviving
from .engine.opened import Opened, Seen, Switch, open_layers
from .engine.seen_tensors import Shown
from .engine.stored import holds_integers, read_file_scales
from .engine.tensor_list import Entry, list_tensors
from .failures import running, to_one_line
from .make import Built, Maker
from .reasons import say

__all__ = ["OpenVinoSession"]


def _note_precision(
    asked: str, hint: str, layers: Sequence[Layer], keep: Collection[str], given: Collection[str]
) -> tuple[str, list[Reason], Sequence[Doubt]]:  # fmt: skip
    """Return what the precision that was asked for, or left open, came to: the type, notes and doubts.

    given: the user's own properties, of which the engine's choice may be one.
    """
    arithmetic, notes, counts = "", [], precision_counts(layers)
    found = ", ".join(f"{name} {number}" for name, number in counts.most_common())
    if not asked:
        name = precision_name(hint)
        arithmetic = {"BF16": "bfloat16", "FP16": "float16"}.get(name, "float32")
        by_user, by_engine = say("given", precision=name, layers=found), say("chose", precision=name, layers=found)
        notes.append(by_user if "INFERENCE_PRECISION_HINT" in given else by_engine)
    if keep:
        kept = [layer for layer in layers if set(keep) & set(layer.ops)]
        wide = [layer for layer in kept if not {layer.precision, *layer.outputs} & {"bf16", "f16"}]
        left = ", ".join(layer.ops[0] for layer in kept if layer not in wide)
        more = say("kept_not", wide=len(wide), all=len(kept), left=left)
        notes.append(more if left else say("kept", all=len(kept)))
    wanted = precision_name(asked or "f32")
    hidden = any(layer.kind in BODIES for layer in layers)
    if wanted not in {"FP32", ""} and counts and not counts[wanted] and not hidden:
        return arithmetic, notes, (Doubt(code="precision_not_run", values={"precision": wanted, "detail": found}),)
    return arithmetic, notes, ()


def _to_real_numbers(entry: Entry) -> Entry:
    return dataclasses.replace(entry, meta=dataclasses.replace(entry.meta, view=way("dequantised")))


class OpenVinoSession:
    """See protocols.Session. keep: operators that were to stay in float32. tells: its layers are columns of the report.
    by_results: tensors are further results, which come after the run, and cannot be replaced.

    Without fusion there is one compiled model, with a tap in the way of every tensor. With fusion the outputs are
    always the plain model's; tensors come from a second one with taps beside those that survive, and operators are run
    alone in a third one with taps in their way. These two are made when they are asked for: where the taps may be takes
    several compilations to find out, and a session that only gives outputs (of a set that is tried) needs none of them.
    """

    alone = ""

    def __init__(
        self, *, graph: Graph, maker: Maker, inputs: Sequence[InputMeta], fused: bool, versions: Mapping[str, str],
        notes: Sequence[Reason] = (), keep: frozenset[str] = frozenset(), tells: bool = True,
        by_results: bool = False, real: RealNumbers | None = None,
    ) -> None:  # fmt: skip
        self._graph, self._maker, self._inputs, self._fused = graph, maker, inputs, fused
        self._keep, self._tells, self._by_results = keep, tells, by_results
        self._real = real or RealNumbers()
        self._one_run = OneRun(maker.path)
        self._said: dict[Reason, None] = dict.fromkeys(notes)
        self.arithmetic = ""
        self.versions: Mapping[str, str] = dict(versions)
        self.doubts: Sequence[Doubt] = ()
        self._beside, self._through = Switch(), Switch()
        self._alone: Built | None = None
        self._dropped: frozenset[Key] = frozenset()
        self._folded: tuple[Key, ...] = ()
        self._listed = False
        self._entries: Sequence[Entry] = ()
        self._opened: Opened | None = None
        if fused:
            self._open_fused()
        else:
            self._open_unfused()
            self._listing()

    def _open_fused(self) -> None:
        self._plain = self._maker.plain()
        self._layers = self._plain.layers(self._graph.rank)
        hint = str(self._plain.compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
        self.arithmetic, notes, self.doubts = _note_precision(
            self._maker.precision, hint, self._layers, self._keep, self._maker.properties
        )
        self._said |= dict.fromkeys(notes)

    def _listing(self) -> None:
        """Find out what can be shown, once: of an engine that fuses, by compiling it with taps."""
        if self._listed:
            return
        if self._fused:
            self._mark()
        self._list()
        # a narrower float is no way to see what a layer sums up in float32
        wide = self._maker.precision == "f32" or self.arithmetic == "float32"
        if self._fused and wide and self._maker.device == "CPU" and not self._by_results:
            seen = Seen(graph=self._graph, layers=self._layers, entries=self._entries, marked=self._marked)
            self._set(*open_layers(seen, self._maker, self._beside))
        self._listed = True

    def _set(self, entries: Sequence[Entry], opened: Opened | None = None) -> None:
        self._entries, self._opened = entries, opened
        self._tensors = tuple(entry.meta for entry in self._entries)
        self._by_name = {entry.meta.name: entry for entry in self._entries}

    def _mark(self) -> None:
        receive = self._beside.receive

        def make(maker: Maker, some: Collection[Key]) -> Built:
            return maker.results(some) if self._by_results else maker.beside(some, receive)

        try:
            self._marked, self._maker = build_marked(self._graph, self._layers, self._maker, make)
        except BackendError as error:
            if self._by_results:
                raise
            self._by_results = True
            self._note(say("results_instead", why=to_one_line(error.__cause__ or error)))
            self._marked, self._maker = build_marked(self._graph, self._layers, self._maker, make)
        self._dropped = self._marked.dropped
        self._order = self._marked.built.tap_order() if self._marked.built is not None else []

    def _open_unfused(self) -> None:
        computed = (*self._graph.computed(), *(() if self._by_results else self._graph.inside()))
        keys = [value.key for value in computed if value.dtype != "str"]
        if self._by_results:
            self._plain = self._maker.results(keys)
        else:
            self._open_through(keys)
        self._layers = self._plain.layers(self._graph.rank)
        inside = [value.key for value in self._graph.inside() if value.key in self._plain.taps]
        main = self._plain.tap_order()
        self._order = [*main, *inside]
        gone = set(keys) - set(self._order)
        self._folded = tuple(key for key in keys if key in gone and not self._graph.values[key].own)
        self._marked = Marked(built=self._plain, keys=tuple(self._order), dropped=frozenset(), changed=())

    def _open_through(self, keys: Sequence[Key]) -> None:
        """With taps, or else as far as OpenVINO compiles it with them."""
        try:
            self._alone = self._plain = self._maker.through(keys, self._through.receive)
        except BackendError as error:
            why = to_one_line(error.__cause__ or error)
            try:
                self._alone = self._plain = self._maker.through(keys, self._through.receive, floats=True)
                self._note(say("taps_of_floats", why=why))
            except BackendError:
                self._by_results = True
                self._plain = self._maker.results(keys)
                self._note(say("results_instead", why=why))

    def _list(self) -> None:
        entries = self._entries_of(self._order, self._dropped)
        self._set([_to_real_numbers(entry) if entry.value.name in self._real else entry for entry in entries])

    def _entries_of(self, order: Sequence[Key], dropped: Collection[Key]) -> list[Entry]:
        return list_tensors(
            self._graph, self._layers, order, dropped=dropped, folded=self._folded, fused=self._fused,
            tells=self._tells,
        )  # fmt: skip

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        self._listing()
        return self._tensors

    @property
    def notes(self) -> Sequence[Reason]:
        return tuple(self._said)

    @property
    def layers(self) -> Sequence[EngineLayer]:
        """What OpenVINO runs without anything of ours in it."""
        names: dict[str, list[str]] = {}
        there = [entry for entry in self._entries if entry.meta.view != UNFUSED] if self._listed else []
        entries = there if self._listed else self._entries_of(list_surviving(self._graph, self._layers), ())
        for entry in entries:
            names.setdefault(entry.value.key[0], []).append(entry.meta.name)
        floats = {entry.value.key[0] for entry in entries if entry.value.dtype.startswith("float")}
        return engine_layers(self._layers, names, floats)

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        with self._one_run:
            arrays = engine_arrays(feeds, self._inputs, where=self._maker.path)
            if hook is None:
                return self._infer(self._plain, arrays)
            self._listing()
            copies = not getattr(hook, "borrows", False)
            if not self._fused:
                shown = Shown(entries=self._entries, names=names, show=hook, copies=copies, real=self._real)
                outputs = self._shown(self._plain, self._through, shown, arrays)
                shown.finish(outputs)
            else:
                outputs = self._infer(self._plain, arrays)
                inside = None if self._opened is None or not self._opened.wanted(names) else self._opened
                plain: Values[Key] = Values()
                shown = Shown(
                    entries=self._entries, names=names, show=hook, copies=copies, outputs=outputs, real=self._real,
                    also=plain.receive if inside is not None else None,
                )  # fmt: skip
                if self._marked.built is not None:
                    self._compare(outputs, self._shown(self._marked.built, self._beside, shown, arrays))
                else:
                    shown.inputs(arrays)
                if inside is not None:
                    shown.also = None
                    inside.show(shown.receive, plain, arrays, outputs, lambda built: self._infer(built, arrays))
                shown.finish(outputs)
            if names is None:
                self._after(shown)
            return outputs

    def close(self) -> None:
        with self._one_run.closing():
            self._plain = self._alone = None  # type: ignore[assignment]
            self._marked = Marked(built=None, keys=(), dropped=frozenset(), changed=())

    @property
    def replacer(self) -> Replacer | None:
        return self if self.replaces else None

    @property
    def replaces(self) -> bool:
        """See protocols.Replacer."""
        self._listing()
        return not self._by_results

    @functools.cached_property
    def holds_integers(self) -> bool:
        """See protocols.holds_integers."""
        return any(holds_integers(port.get_node()) for value in self._graph.values.values() if value.op is not None
                   for port in value.op.input_values())  # fmt: skip

    @functools.cached_property
    def scales(self) -> Mapping[str, tuple[Any, Any]]:
        """See protocols.find_file_scales."""
        return read_file_scales(self._maker.path)

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        entry = self._entry(name)
        if entry is not None and entry.value.name in self._real:
            return self._real.held(entry.value.name, value, entry.meta.dtype)
        return None if entry is None else isolate.round_as_held(value, entry.meta.dtype)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer; of what is inside a layer too."""
        value = self._graph.named.get(name) or self._graph.named.get(name.rpartition("@")[0])
        return None if value is None or value.op_type == "Input" else self._graph.operator(value)

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer."""
        with self._one_run:
            arrays = engine_arrays(feeds, self._inputs, where=self._maker.path)
            self._listing()
            if self._alone is None:
                self._alone = self._open_alone()
            shown = Shown(entries=self._entries, names=names, show=replace, real=self._real)
            outputs = self._shown(self._alone, self._through, shown, arrays)
            shown.finish(outputs)
            return outputs

    def _open_alone(self) -> Built:
        """Taps in the way change layouts, and with them the order of sums; what is fused, and in which type, stays."""
        def alone(*, floats: bool) -> Marked:
            return build_undisturbed(
                self._graph, self._layers,
                lambda some: self._maker.through(some, self._through.receive, floats=floats), self._order, exact=False,
            )  # fmt: skip

        try:
            found = alone(floats=False)
        except BackendError as error:
            found = alone(floats=True)
            self._note(say("taps_of_floats", why=to_one_line(error.__cause__ or error)))
        if found.built is None:
            raise BackendError("no operator can be run alone", where=self._maker.path)
        if found.changed:
            self._note(say("alone", count=len(found.changed), some=", ".join(found.changed[:3])))
        return found.built

    def _entry(self, name: str) -> Entry | None:
        self._listing()
        return self._by_name.get(name) or self._by_name.get(name.rpartition("@")[0])

    def _infer(self, built: Built, arrays: Mapping[str, Any]) -> dict[str, Any]:
        import openvino

        request = built.request
        with running(self._maker.path, self._maker.mode):
            for place, name in enumerate(meta.name for meta in self._inputs):
                request.set_input_tensor(place, openvino.Tensor(arrays[name]))
            request.infer()
            return {
                name: _copy_array(request.get_output_tensor(place)) for place, name in enumerate(self._graph.outputs)
            }

    def _shown(self, built: Built, switch: Switch, shown: Shown, arrays: Mapping[str, Any]) -> dict[str, Any]:
        fed = shown.inputs(arrays)
        switch.keys, switch.run = built.taps, shown
        try:
            outputs = self._infer(built, fed)
            for place, key in enumerate(built.ends, len(outputs)):
                shown.receive(key, _copy_array(built.request.get_output_tensor(place)))
            return outputs
        finally:
            switch.run = None
            if shown.error is not None:
                raise shown.error

    def _compare(self, plain: Mapping[str, Any], there: Mapping[str, Any]) -> None:
        """Whether the run that showed tensors is the plain one, now that kernels are chosen."""
        differ = [name for name, array in plain.items() if array.tobytes() != there[name].tobytes()]
        if differ:
            self._note(say("other_bits", names=", ".join(differ[:3])))
        if self._marked.changed:
            some = ", ".join(self._marked.changed[:3])
            self._note(say("other_layers", count=len(self._marked.changed), some=some))

    def _after(self, shown: Shown) -> None:
        """The list as it ran, with the layers' kernels and times."""
        self._layers = self._plain.layers(self._graph.rank)
        there = self._marked.built.layers(self._graph.rank) if self._fused and self._marked.built else ()
        changed = find_disturbed(self._layers, there, exact=True) if there else set()
        if changed and not self._marked.changed:
            self._note(say("other_layers", count=len(changed), some=sorted(changed)[0]))
        columns = {op: layer.columns for layer in self._layers for op in layer.ops} if self._tells else {}
        self._tensors = tuple(
            dataclasses.replace(meta, extra=columns.get(meta.node, meta.extra)) for meta in shown.listed()
        )

    def _note(self, reason: Reason) -> None:
        self._said[reason] = None


def _copy_array(tensor: Any) -> np.ndarray[Any, Any]:
    """Return a copy; bfloat16 as float32."""
    kind = tensor.get_element_type().get_type_name()
    if kind == "string":
        return np.array(tensor.str_data)
    if kind == "bf16":
        return (np.array(tensor.data).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.array(tensor.data)
