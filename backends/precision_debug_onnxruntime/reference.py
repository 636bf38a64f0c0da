"""The mode onnx_ref: onnx.reference, node by node, in float64 wherever an operator's reference takes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from precision_debug.errors import BackendError, InputError
from precision_debug.protocols import Feeds, Hook, Session
from precision_debug.records import SessionSpec, TensorMeta

from .graph import Value, attribute, initializers_of, labels, outer_reads, values
from .model import Model, read_model, tensor_shape
from .runtime import our_errors
from .types import dtype_name

__all__ = ["open_reference"]

_NOT_REACHED = "in a branch or loop body that this run did not enter"
_LOOPS = frozenset({"Loop", "Scan"})
_TO_FLOAT = (1, 11)


def open_reference(spec: SessionSpec) -> Session:
    """Open a model for onnx.reference. Raises ModelError or BackendError."""
    return _ReferenceSession(read_model(spec.model.model_file))


class _ReferenceSession:
    def __init__(self, model: Model) -> None:
        import onnx

        self._path = model.path
        proto = onnx.ModelProto()
        proto.CopyFrom(model.proto)
        with our_errors(model.path):
            onnx.load_external_data_for_model(proto, str(model.folder))
            self._evaluator: Any = _evaluator_class(self)(proto)
        self._metas = _list(proto)
        self._tensors: tuple[TensorMeta, ...] = tuple(self._metas.values())
        self._scopes = {id(inner): key for key, inner in _inner_evaluators(self._evaluator, ())}
        self._outputs = [item.name for item in proto.graph.output]
        self._inputs = [item.name for item in proto.graph.input]
        self._defaults = initializers_of(proto.graph)
        self.versions: Mapping[str, str] = {"onnx": onnx.__version__}
        self._narrow: dict[str, str] = {}
        self._turns: dict[Any, int] = {}
        self._show: Callable[[Any, str, Any], None] = _ignore

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        return self._tensors

    @property
    def notes(self) -> Sequence[str]:
        text = "computed by onnx.reference in float64"
        if not self._narrow:
            return (text,)
        nodes = ", ".join(f"{name} ({op})" for name, op in list(self._narrow.items())[:3])
        more = f" and {len(self._narrow) - 3} more" if len(self._narrow) > 3 else ""
        return (f"{text}, but for {len(self._narrow)} nodes that only take float32: {nodes}{more}",)

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if self._evaluator is None:
            raise BackendError("this session is closed", where=self._path)
        for name in feeds:
            if name not in self._inputs:
                raise InputError(f"the model has no input {name}", where=name, hint=f"it has {', '.join(self._inputs)}")
        missing = [name for name in self._inputs if name not in feeds and name not in self._defaults]
        if missing:
            raise InputError(f"no value for the input {missing[0]}", where=missing[0], hint="give it with --inputs")
        shown: dict[str, list[TensorMeta]] = {}

        def show(scope: Any, name: str, value: Any) -> None:
            meta = self._metas.get((scope, name))
            if hook is None or meta is None or meta.unseen or not hasattr(value, "dtype"):
                return
            named = self._instance(meta, scope)
            if names is not None and not {meta.name, named.name} & set(names):
                return
            shown.setdefault(meta.name, []).append(named)
            hook(named.op_type, named.name, value)

        self._show = show
        self._turns.clear()
        try:
            found = self._evaluator.run(None, {name: _wide(value) for name, value in feeds.items()})
        finally:
            self._show = _ignore
        if hook is not None and names is None:
            self._tensors = tuple(
                item for meta in self._metas.values() for item in shown.get(meta.name) or [_unreached(meta)]
            )
        return dict(zip(self._outputs, found, strict=True))

    def close(self) -> None:
        self._evaluator = None

    def execute(self, evaluator: Any, feeds: Mapping[str, Any], attributes: Any) -> list[Any]:
        """Run the nodes of one graph; ``evaluator`` is that of the main graph or of one inside it."""
        key = self._scopes.get(id(evaluator), ())
        if key and key in self._turns:
            self._turns[key] += 1
        results: dict[str, Any] = {"": None, **evaluator.rt_inits_, **feeds}
        if not key:
            for name in feeds:
                self._show((), name, feeds[name])
        last = _last_uses(evaluator)
        for place, node in enumerate(evaluator.rt_nodes_):
            if node.op_type in _LOOPS:
                for inner, _ in _inner_evaluators_of(node, key):
                    self._turns[inner] = -1
            outputs = self._node(node, [results[name] for name in node.input], results, attributes)
            for name, value in zip(node.output, outputs, strict=False):
                results[name] = value
                if name:
                    self._show(key, name, value)
            for name in last.get(place, ()):
                results.pop(name, None)
        missing = [name for name in evaluator.output_names if name not in results]
        if missing:
            raise BackendError(f"onnx.reference did not compute {missing[0]}", where=self._path)
        return [results[name] for name in evaluator.output_names]

    def _node(self, node: Any, inputs: list[Any], results: Mapping[str, Any], attributes: Any) -> Sequence[Any]:
        if node.op_type == "Cast" and attribute(node.onnx_node, "to") in _TO_FLOAT and _is_float(inputs[0]):
            return [_wide(inputs[0])]
        extra: dict[str, Any] = {"context": results} if node.need_context() else {}
        if node.has_linked_attribute and attributes:
            extra["linked_attributes"] = attributes
        wide = [_wide(value) for value in inputs]
        try:
            outputs = node.run(*wide, **extra)
            narrow = any(_is_wide(value) for value in wide) and any(_is_single(value) for value in outputs)
        except Exception as refused:
            if isinstance(refused, BackendError) or not any(_is_wide(value) for value in wide):
                raise self._failed(node, refused) from refused
            try:
                outputs = node.run(*(_single(value) for value in inputs), **extra)
            except Exception as error:
                raise self._failed(node, error) from error
            narrow = True
        if narrow:
            self._narrow.setdefault(node.onnx_node.name, node.op_type)
        return [_wide(value) if _is_single(value) else value for value in outputs]

    def _failed(self, node: Any, error: Exception) -> BaseException:
        from precision_debug.errors import PrecisionDebugError

        if isinstance(error, PrecisionDebugError):
            return error
        return BackendError(
            f"onnx.reference failed in node {node.onnx_node.name} ({node.op_type}): {type(error).__name__}: {error}",
            where=self._path,
        )

    def _instance(self, meta: TensorMeta, scope: Any) -> TensorMeta:
        turns = [self._turns[scope[:depth]] for depth in range(1, len(scope) + 1) if scope[:depth] in self._turns]
        return dataclasses.replace(meta, name=f"{meta.name}@{'.'.join(map(str, turns))}") if turns else meta


def _ignore(_scope: Any, _name: str, _value: Any) -> None:
    return None


def _unreached(meta: TensorMeta) -> TensorMeta:
    return meta if meta.unseen else dataclasses.replace(meta, unseen=_NOT_REACHED)


def _evaluator_class(session: _ReferenceSession) -> Any:
    """onnx.reference makes evaluators for inner graphs from the outer one's class, so this one runs those too."""
    from onnx import FunctionProto
    from onnx.reference import ReferenceEvaluator

    class Evaluator(ReferenceEvaluator):  # type: ignore[misc]
        def run(self, output_names: Any, feed_inputs: Any, attributes: Any = None, **more: Any) -> Any:
            if isinstance(self.proto_, FunctionProto):
                return super().run(output_names, feed_inputs, attributes, **more)
            return session.execute(self, feed_inputs, attributes)

    return Evaluator


def _inner_evaluators(evaluator: Any, key: Any) -> list[tuple[Any, Any]]:
    found = [(key, evaluator)]
    for node in evaluator.rt_nodes_:
        for inner, value in _inner_evaluators_of(node, key):
            found += _inner_evaluators(value, inner)
    return found


def _inner_evaluators_of(node: Any, key: Any) -> list[tuple[Any, Any]]:
    if not hasattr(node, "onnx_node"):
        return []
    step = next((name for name in node.output if name), node.onnx_node.name)
    return [
        ((*key, (step, item.name)), getattr(node, item.name))
        for item in node.onnx_node.attribute
        if item.HasField("g")
    ]


def _list(proto: Any) -> dict[Any, TensorMeta]:
    found = [value for value in values(proto.graph) if value.node is None or value.node.op_type != "Constant"]
    label, types = labels(found), _types(proto)
    outputs = {item.name for item in proto.graph.output}
    metas = {}
    for value in found:
        elem, shape = types.get(value.name, (0, None))
        dtype = dtype_name(elem) if elem else ""
        metas[value.key] = TensorMeta(
            name=label[value.key],
            op_type="Input" if value.node is None else value.node.op_type,
            node="" if value.node is None else value.node.name,
            dtype="float64" if dtype in {"float32", "float16", "bfloat16"} else dtype,
            shape=shape,
            inputs=_reads(value, label),
            is_output=not value.scope.key and value.name in outputs,
            unseen="" if elem or value.name not in types else "not a tensor",
        )
    return metas


def _reads(value: Value, label: Mapping[Any, str]) -> tuple[str, ...]:
    if value.node is None:
        return ()
    read: dict[str, None] = {}
    for name in (*value.node.input, *outer_reads(value.node)):
        key = value.scope.key
        found = next((label[key[:d], name] for d in range(len(key), -1, -1) if (key[:d], name) in label), "")
        if found:
            read.setdefault(found)
    return tuple(read)


def _types(proto: Any) -> dict[str, tuple[int, tuple[int | str, ...] | None]]:
    """Element type (0: not a tensor) and shape of what onnx can infer."""
    import onnx

    light = onnx.ModelProto()
    light.CopyFrom(proto)
    try:
        inferred = onnx.shape_inference.infer_shapes(light)
    except Exception:
        inferred = light
    graph = inferred.graph
    return {
        item.name: (item.type.tensor_type.elem_type, tensor_shape(item.type.tensor_type))
        for item in (*graph.input, *graph.value_info, *graph.output)
        if item.type.WhichOneof("value")
    }


def _last_uses(evaluator: Any) -> dict[int, list[str]]:
    last: dict[str, int] = {}
    for place, node in enumerate(evaluator.rt_nodes_):
        for name in (*node.input, *node.output, *outer_reads(node.onnx_node)):
            last[name] = place
    kept = {"", *evaluator.output_names}
    found: dict[int, list[str]] = {}
    for name, place in last.items():
        if name not in kept:
            found.setdefault(place, []).append(name)
    return found


def _is_float(value: Any) -> bool:
    return hasattr(value, "dtype") and (value.dtype.kind == "f" or value.dtype.name == "bfloat16")


def _is_wide(value: Any) -> bool:
    return hasattr(value, "dtype") and value.dtype.name == "float64"


def _is_single(value: Any) -> bool:
    return hasattr(value, "dtype") and value.dtype.name == "float32"


def _wide(value: Any) -> Any:
    return value.astype("float64") if _is_float(value) and not _is_wide(value) else value


def _single(value: Any) -> Any:
    return value.astype("float32") if _is_wide(value) else value
