"""A model on a plugin provider, which compiles what it takes: intermediates come from a second, marked session.

A tap of ours would run on the CPU and split what the provider takes as a whole, so tensors are marked as outputs. What
the marks change is measured at the outputs and told; the outputs themselves are always those of the unmarked session.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, BackendUnavailable, UsageError
from precision_debug.inspector import EngineLayer
from precision_debug.numbers.arrays import as_array
from precision_debug.onnx.graph import initializers_of
from precision_debug.onnx.model import Model, read_model
from precision_debug.onnx.real_numbers import RealNumbers
from precision_debug.protocols import Feeds, Hook
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import Doubt, SessionSpec, TensorMeta

from ..reasons import say
from ..settings import setting
from .ort_values import check_feeds
from .plugin_providers import KNOWN, Plugin, devices_of
from .providers import RECORD, Shares, shares_of
from .runtime import our_errors
from .source_list import inferred_types, list_of_source

__all__ = ["PluginSession", "open_plugin"]

def open_plugin(spec: SessionSpec, name: str, feeds: Sequence[Feeds]) -> PluginSession:
    """Open a model on a plugin provider. name: see modes.Recipe.plugin. Raises UsageError, ModelError, BackendError or
    BackendUnavailable.
    """
    chosen = dict(spec.options)
    if name == "any":
        library, provider = setting(chosen, "ep_library"), setting(chosen, "ep_name")
        if not library or not provider:
            raise UsageError(
                say("no_plugin_named"), where=spec.mode,
                hint="--option ep_library=LIB.so --option ep_name=NAMEExecutionProvider",
            )  # fmt: skip
        if not os.path.isfile(library):
            where = f"--option ep_library={library}"
            raise UsageError(say("no_plugin_file"), where=where, hint=say("name_plugin_file"))
        plugin = Plugin(provider=provider, library=os.path.abspath(library))  # else it is sought beside ONNX Runtime
    else:
        plugin = KNOWN[name]
    own = dict(_pair(text) for text in setting(chosen, "ep_options"))
    options = {name: text for name, text in {**plugin.resolved(), **own}.items() if text}  # KEY= takes one away
    return PluginSession(
        model=read_model(spec.model.model_file), plugin=plugin, options=options,
        feeds=feeds[0] if feeds else {}, verbose=setting(chosen, "verbose"),
        threads=setting(chosen, "intra_op_num_threads") or spec.cores,
    )  # fmt: skip


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--option ep_options expects KEY=VALUE,…, got '{text}'")
    return key, value


class PluginSession:
    """See protocols.Session. feeds: the first one fixes the shapes that the model leaves open."""

    layers: Sequence[EngineLayer] = ()
    alone = arithmetic = ""
    replacer = None

    def __init__(
        self, *, model: Model, plugin: Plugin, options: Mapping[str, str], feeds: Feeds, verbose: bool, threads: int
    ) -> None:
        import onnx
        import onnxruntime as ort

        self._path, self._plugin, self._options = model.path, plugin, dict(options)
        self._verbose, self._threads = verbose, threads
        self._devices = devices_of(plugin)
        proto = onnx.ModelProto()
        proto.CopyFrom(model.proto)
        with our_errors(model.path):
            onnx.load_external_data_for_model(proto, str(model.folder))
        fixed = _fix_shapes(proto, feeds)
        self._proto = proto
        self._types = inferred_types(proto)
        self._real = RealNumbers.of(model)
        inside = say("inside_body")
        self.tensors: Sequence[TensorMeta] = tuple(
            entry.meta if not entry.value.scope.key else _unseen(entry.meta, inside)
            for entry in list_of_source(proto, self._types)
        )
        self._inputs = [item.name for item in proto.graph.input]
        self._outputs = [item.name for item in proto.graph.output]
        defaults = initializers_of(proto.graph)
        self._required = [name for name in self._inputs if name not in defaults]
        self._session = self._open(proto, ())
        shares = shares_of(self._session)
        self.doubts: Sequence[Doubt] = ()
        self._notes: list[Reason] = [say("shapes_fixed", names=fixed)] if fixed else []
        if shares is None:
            self.doubts = (Doubt(code="providers_unknown", values={
                "provider": plugin.provider, "detail": say("does_not_tell", version=ort.__version__),
            }),)  # fmt: skip
        else:
            self._demand(shares)
            self._notes.append(shares.note(plugin.provider))
        self._marked: tuple[frozenset[str], Any] | None = None
        self._said_of_marks: list[Reason] = []
        self.versions: Mapping[str, str] = {
            "onnxruntime": ort.__version__, plugin.provider: str(self._devices[0].ep_metadata.get("version", "?")),
            "device": f"{self._devices[0].ep_vendor} {self._devices[0].device.type.name}",
        }  # fmt: skip

    @property
    def notes(self) -> Sequence[Reason]:
        return (*self._notes, *self._said_of_marks)

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if self._session is None:
            raise BackendError("this session is closed", where=self._path)
        checked = check_feeds(feeds, self._inputs, self._required)
        with our_errors(self._path):
            found = map(as_array, self._session.run(self._outputs, checked))
        outputs = dict(zip(self._outputs, found, strict=True))
        if hook is not None:
            self._show(checked, outputs, hook, names)
        return outputs

    def close(self) -> None:
        self._session = self._marked = None

    def _show(
        self, feeds: Mapping[str, Any], outputs: Mapping[str, Any], hook: Hook, names: Collection[str] | None
    ) -> None:
        wanted = [meta for meta in self.tensors if not meta.unseen and (names is None or meta.name in names)]
        marks = [meta.name for meta in wanted if meta.name not in outputs and meta.op_type != "Input"]
        values = dict(feeds)
        if marks:
            session = self._with_marks(marks)
            with our_errors(self._path):
                found = [as_array(value) for value in session.run([*marks, *self._outputs], feeds)]
            values |= dict(zip(marks, found, strict=False))
            again = dict(zip(self._outputs, found[len(marks) :], strict=True))
            self._said_of_marks = [say("marked_beside", count=len(marks), gap=_gap(outputs, again))]
            shares = shares_of(session)
            if shares is not None:
                self._said_of_marks.append(say("marked_shares", shares=shares.note(self._plugin.provider)))
        values |= outputs
        for meta in wanted:
            if meta.name in values:
                hook(meta.op_type, meta.name, self._real.shown(meta.name, values[meta.name]))

    def _with_marks(self, marks: Sequence[str]) -> Any:
        """One that shows all of them is used again, so that a value does not depend on which others are looked at."""
        if self._marked is None or not self._marked[0].issuperset(marks):
            self._marked = None
            self._marked = frozenset(marks), self._open(self._proto, marks)
        return self._marked[1]

    def _open(self, proto: Any, marks: Sequence[str]) -> Any:
        import onnx
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 2 if self._verbose else 4
        options.intra_op_num_threads = self._threads
        options.add_session_config_entry(RECORD, "1")
        with our_errors(self._path):
            options.add_provider_for_devices(self._devices[:1], self._options)
            marked = proto
            if marks:
                marked = onnx.ModelProto()
                marked.CopyFrom(proto)
                for name in marks:
                    elem, shape = self._types[name]
                    marked.graph.output.append(onnx.helper.make_tensor_value_info(name, elem, shape))
            return ort.InferenceSession(marked.SerializeToString(), options)

    def _demand(self, shares: Shares) -> None:
        try:
            shares.demand(self._plugin.provider, self._path)
        except BackendUnavailable as error:
            raise BackendUnavailable(
                f"{error.what}: it may lack their operators or types, or want other options", where=self._path,
                hint="--option ep_options=KEY=VALUE,… ; --option verbose=1 shows what ONNX Runtime logs",
            ) from error  # fmt: skip


def _fix_shapes(proto: Any, feeds: Feeds) -> list[str]:
    """Write the sizes of what is fed into the inputs; names of the inputs whose shapes were open."""
    found = []
    values = initializers_of(proto.graph)
    for item in proto.graph.input:
        kind = item.type.tensor_type
        shape = getattr(feeds.get(item.name), "shape", None)
        if item.name in values or shape is None or len(kind.shape.dim) != len(shape):
            continue
        if any(not dim.HasField("dim_value") for dim in kind.shape.dim):
            found.append(item.name)
        for dim, size in zip(kind.shape.dim, shape, strict=True):
            dim.dim_value = int(size)
    if found:
        del proto.graph.value_info[:]
        for item in proto.graph.output:
            item.type.tensor_type.ClearField("shape")
    return found


def _unseen(meta: TensorMeta, why: Reason) -> TensorMeta:
    return dataclasses.replace(meta, unseen=why if meta.unseen == NOTHING else meta.unseen)


def _gap(real: Mapping[str, Any], marked: Mapping[str, Any]) -> float:
    """Return the largest difference of a float output between the unmarked and the marked session."""
    worst = 0.0
    for name, value in real.items():
        one, two = np.asarray(value), np.asarray(marked[name])
        if one.dtype.kind == "f" and one.size:
            gap = np.abs(one.astype(np.float64) - two.astype(np.float64))
            worst = max(worst, float(np.nanmax(np.where(one == two, 0.0, gap))))
    return worst
