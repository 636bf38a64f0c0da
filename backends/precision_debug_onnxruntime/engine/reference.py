"""The mode onnx_ref: onnx.reference, node by node, in float64 wherever an operator's reference takes it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from precision_debug.errors import BackendError, ModelError, PrecisionDebugError
from precision_debug.inspector import EngineLayer
from precision_debug.numbers.arrays import as_array
from precision_debug.onnx.file_operators import FileOperators
from precision_debug.onnx.graph import initializers_of, iterate_subgraphs, read_attribute
from precision_debug.onnx.model import Model, read_model
from precision_debug.onnx.real_numbers import RealNumbers
from precision_debug.protocols import Feeds, Hook, Replace, Replacer, Session
from precision_debug.reasons import Plain, Reason, list_some
from precision_debug.reasons.ways import way
from precision_debug.records import Doubt, Operator, SessionSpec, TensorMeta

from ..reasons import say
from .ort_values import check_feeds
from .reference_fallback import Borrowed, OneByOne
from .reference_subgraphs import (
    evaluator_class,
    inner_evaluators,
    inner_of,
    is_float,
    last_uses,
    run_loop,
    single,
    wide,
)
from .runtime import our_errors
from .seen_tensors import Shown
from .source_list import inferred_types, list_of_source

__all__ = ["open_reference"]

_LOOPS = frozenset({"Loop", "Scan"})
_TO_FLOAT = (1, 11)
_NONE = "onnxruntime.no_opinion"


@contextlib.contextmanager
def _refusals(path: str) -> Iterator[None]:
    """What onnx.reference has no code for, which it says by several classes, is a model that it refuses."""
    with our_errors(path):
        try:
            yield
        except (RuntimeError, NotImplementedError) as error:
            if isinstance(error, NotImplementedError) or "not implemented" in str(error):
                what = f"onnx.reference does not run it: {error}"
                raise ModelError(what, where=path, hint="another run mode may run it") from error
            raise


def open_reference(spec: SessionSpec, change: Callable[[Model], Model]) -> Session:
    """Open a model for onnx.reference, as ``change`` leaves it: operators that onnx.reference lacks run in ONNX
    Runtime, whose kernels may saturate. Raises ModelError or BackendError."""
    return _ReferenceSession(change(read_model(spec.model.model_file)), spec.cores)


class _ReferenceSession:
    doubts: Sequence[Doubt] = ()
    layers: Sequence[EngineLayer] = ()
    alone = arithmetic = ""
    replaces = True

    def __init__(self, model: Model, cores: int) -> None:
        import onnx

        self._path = model.path
        proto = onnx.ModelProto()
        proto.CopyFrom(model.proto)
        with _refusals(model.path):
            onnx.load_external_data_for_model(proto, str(model.folder))
            self._evaluator: Any = evaluator_class(self._execute)(proto)
        types = inferred_types(proto)
        self._shapes = {name: shape for name, (_, shape) in types.items() if shape is not None}
        self._real = RealNumbers.of(model, running=True)
        self._entries = [
            dataclasses.replace(entry, meta=dataclasses.replace(entry.meta, view=way("dequantised")))
            if entry.value.scope.key == () and entry.value.name in self._real else entry
            for entry in list_of_source(proto, types, floats="float64")
        ]  # fmt: skip
        self._by_key = {entry.value.key: entry for entry in self._entries}
        self.tensors: Sequence[TensorMeta] = tuple(entry.meta for entry in self._entries)
        self._scopes = {id(inner): key for key, inner in inner_evaluators(self._evaluator)}
        self._outputs = [item.name for item in proto.graph.output]
        self._defaults = initializers_of(proto.graph)
        self._inputs = [item.name for item in proto.graph.input]
        self.versions: Mapping[str, str] = {"onnx": onnx.__version__}
        self._alone = OneByOne(model, cores)
        self._without: dict[str, str] = {}
        for key, inner in inner_evaluators(self._evaluator):
            for node in inner.rt_nodes_:
                if isinstance(node, Borrowed):
                    self._has_none(node, node.why, key)
        self._narrow, self._loops = dict[str, str](), set[Any]()
        self._shown = Shown((), None)
        self._hook: Replace | None = None
        self._raised: BaseException | None = None
        self._replacing = False
        self._source = FileOperators(model)

    @property
    def replacer(self) -> Replacer:
        return self

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer: it holds float64, and so whatever it is given, but for what is quantised."""
        entry = next((one for one in self._entries if one.meta.name == name and one.value.name in self._real), None)
        return None if entry is None else self._real.held(entry.value.name, value, entry.meta.dtype)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        return self._source.operator_of(name) or self._source.operator_of(name.rpartition("@")[0])

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer."""
        self._replacing = True
        try:
            return self.run(feeds, replace, names)
        finally:
            self._replacing = False

    @property
    def notes(self) -> Sequence[Reason]:
        text = say("by_reference")
        if self._narrow:
            text = say("by_reference_but", count=len(self._narrow), nodes=_some(self._narrow))
        if not self._without:
            return (text,)
        return text, say("without_opinion", count=len(self._without), nodes=_some(self._without))

    def _has_none(self, node: Any, why: Reason, key: Any) -> None:
        """Say of a node's outputs that onnx.reference has no opinion on them."""
        self._without.setdefault(node.onnx_node.name, node.op_type)
        for place, entry in enumerate(self._entries):
            if entry.value.scope.key == key and entry.value.name in node.output and not entry.meta.unseen:
                meta = dataclasses.replace(entry.meta, unseen=say("no_opinion", why=why))
                self._entries[place] = self._by_key[entry.value.key] = dataclasses.replace(entry, meta=meta)
        self.tensors = tuple(entry.meta for entry in self._entries)

    def _borrow(self, node: Any, inputs: Sequence[Any], key: Any, why: Reason) -> list[Any]:
        """ONNX Runtime's outputs of a node. Raises PrecisionDebugError where it fails too."""
        self._has_none(node, why, key)
        with _refusals(self._path):
            found = self._alone.run(node.onnx_node, inputs, key)
        return [wide(value) for value in found]

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if self._evaluator is None:
            raise BackendError("this session is closed", where=self._path)
        required = [name for name in self._inputs if name not in self._defaults]
        checked = check_feeds(feeds, self._inputs, required)
        self._shown, self._hook, self._raised = Shown(self._entries, names), hook, None
        try:
            found = self._evaluator.run(None, {name: wide(value) for name, value in checked.items()})
        finally:
            self._hook = None
        if hook is not None and names is None:
            self.tensors = tuple(self._shown.listed())
        return {
            name: as_array(value, name=name) if isinstance(value, list) else value
            for name, value in zip(self._outputs, found, strict=True)
        }

    def close(self) -> None:
        self._evaluator = None

    def _show(self, scope: Any, name: str, value: Any) -> Any:
        """Tell the hook of a value; returns what its readers are given."""
        entry = self._by_key.get((scope, name))
        if self._hook is None or entry is None or not (hasattr(value, "dtype") or isinstance(value, list)):
            return value
        if entry.meta.unseen and entry.meta.unseen.code != _NONE:
            return value
        meta = self._shown.instance(entry)
        if meta is None or meta.unseen:
            return value
        real = scope == () and name in self._real
        try:
            new = self._hook(meta.op_type, meta.name, self._real.shown(name, value) if real else as_array(value))
        except BaseException as error:
            self._raised = error
            raise
        if not self._replacing or new is None or getattr(new, "shape", None) != getattr(value, "shape", ()):
            return value
        return self._real.codes(name, new, value) if real else new.astype(value.dtype)

    def _execute(self, evaluator: Any, feeds: Mapping[str, Any], attributes: Any) -> list[Any]:
        """Run the nodes of one graph; ``evaluator`` is that of the main graph or of one inside it."""
        key = self._scopes.get(id(evaluator), ())
        if key in self._loops:
            self._shown.iterate(key)
        results: dict[str, Any] = {"": None, **evaluator.rt_inits_, **feeds}
        if not key:
            for entry in self._entries:
                if entry.value.node is None and entry.value.name in results:
                    results[entry.value.name] = self._show((), entry.value.name, results[entry.value.name])
        last = last_uses(evaluator)
        for place, node in enumerate(evaluator.rt_nodes_):
            outputs = self._node(node, [results[name] for name in node.input], results, attributes, key)
            self._real = self._real.after(node.op_type, node.output, outputs)
            for name, value in zip(node.output, outputs, strict=False):
                results[name] = self._show(key, name, value) if name else value
            for name in last.get(place, ()):
                results.pop(name, None)
        missing = [name for name in evaluator.output_names if name not in results]
        if missing:
            raise BackendError(f"onnx.reference did not compute {missing[0]}", where=self._path)
        return [results[name] for name in evaluator.output_names]

    def _node(
        self, node: Any, inputs: list[Any], results: Mapping[str, Any], attributes: Any, key: Any
    ) -> Sequence[Any]:
        if isinstance(node, Borrowed):
            return self._borrow(node, inputs, key, node.why)
        if node.op_type in _LOOPS:
            for inner, _ in inner_of(node, key):
                self._loops.add(inner)
                self._shown.enter(inner)
        if node.op_type == "Cast" and read_attribute(node.onnx_node, "to") in _TO_FLOAT and is_float(inputs[0]):
            return [wide(inputs[0])]
        if node.op_type == "Loop" and node.domain == "":
            return run_loop(node, inputs, results, attributes)
        import numpy as np

        extra: dict[str, Any] = {"context": results} if node.need_context() else {}
        if node.has_linked_attribute and attributes:
            extra["linked_attributes"] = attributes
        widened = [wide(value) for value in inputs]
        try:
            with np.errstate(all="ignore"):
                outputs = node.run(*widened, **extra)
            narrow = any(is_float(value, "float64") for value in widened) and any(
                is_float(value, "float32") for value in outputs
            )
        except Exception as refused:
            if self._raised is not None:
                raise self._raised from None
            if isinstance(refused, PrecisionDebugError) or any(iterate_subgraphs(node.onnx_node)):
                raise self._failed(node, refused) from refused
            if not any(is_float(value, "float64") for value in widened):
                return self._instead(node, inputs, key, refused)
            try:
                with np.errstate(all="ignore"):
                    outputs = node.run(*(single(value) for value in inputs), **extra)
            except Exception as error:
                if self._raised is not None:
                    raise self._raised from None
                return self._instead(node, inputs, key, error)
            narrow = True
        if not self._fits(node, outputs):
            return self._borrow(node, inputs, key, say("reference_shape"))
        if narrow:
            self._narrow.setdefault(node.onnx_node.name, node.op_type)
        return [wide(value) if is_float(value, "float32") else value for value in outputs]

    def _instead(self, node: Any, inputs: Sequence[Any], key: Any, error: Exception) -> list[Any]:
        """ONNX Runtime's outputs of a node in which onnx.reference fails. Raises its error where neither can do it."""
        failed = self._failed(node, error)
        try:
            return self._borrow(node, inputs, key, say("reference_fails"))
        except PrecisionDebugError:
            raise failed from error

    def _fits(self, node: Any, outputs: Sequence[Any]) -> bool:
        """Return whether the outputs have the shapes that onnx infers, as far as it does."""
        return all(
            len(value.shape) == len(shape)
            and all(size in (mine, -1) or isinstance(size, str) for mine, size in zip(value.shape, shape, strict=True))
            for name, value in zip(node.output, outputs, strict=False)
            if hasattr(value, "shape") and (shape := self._shapes.get(name)) is not None
        )

    def _failed(self, node: Any, error: Exception) -> PrecisionDebugError:
        if isinstance(error, PrecisionDebugError):
            return error
        what = f"onnx.reference failed in node {node.onnx_node.name} ({node.op_type}): {type(error).__name__}: {error}"
        return BackendError(what, where=self._path)


def _some(nodes: Mapping[str, str]) -> Plain:
    return list_some([f"{name} ({op})" for name, op in nodes.items()])
