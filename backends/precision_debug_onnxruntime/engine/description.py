"""What a model in ONNX Runtime's own format (.ort) holds; it is read without ONNX Runtime, and nothing of it runs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from precision_debug.errors import ModelError
from precision_debug.onnx.types import dtype_name
from precision_debug.protocols import DescribedLayer, DescribedWeight, Description
from precision_debug.records import InputMeta
from precision_debug.safety.untrusted import refuse_special

from .flatbuffer import Table, root
from .types import read_types

__all__ = ["describe"]

# fields of the tables in onnxruntime/core/flatbuffers/schema/ort.fbs, whose numbers never change
_SESSION_VERSION, _SESSION_MODEL = 0, 1
_MODEL_IR, _MODEL_OPSETS, _MODEL_PRODUCER, _MODEL_GRAPH = 0, 1, 2, 7
_OPSET_DOMAIN, _OPSET_VERSION = 0, 1
_GRAPH_INITIALIZERS, _GRAPH_NODES, _GRAPH_INPUTS, _GRAPH_OUTPUTS = 0, 2, 5, 6
_TENSOR_NAME, _TENSOR_DIMS, _TENSOR_TYPE = 0, 2, 3
_NODE_NAME, _NODE_DOMAIN, _NODE_TYPE, _NODE_INPUTS, _NODE_OUTPUTS, _NODE_ATTRIBUTES = 0, 2, 5, 8, 9, 10
_NAME, _KIND, _FLOAT, _INT, _STRING, _GRAPH, _FLOATS, _INTS, _STRINGS = 0, 2, 3, 4, 5, 7, 8, 9, 10
_IDENTIFIER = b"ORTM"


def describe(path: str) -> Description:
    """See ``protocols.Describer``."""
    refuse_special(path, ModelError)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", where=path) from error
    hint = "save it with SessionOptions.optimized_model_filepath='NAME.ort'"
    if data[4:8] != _IDENTIFIER:
        raise ModelError("is not a model in ONNX Runtime's format", where=path, hint=hint)
    try:
        return _description(data)
    except (struct.error, IndexError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"is damaged: {error}", where=path, hint=hint) from error


def _description(data: bytes) -> Description:
    session = root(data)
    model = session.table(_SESSION_MODEL)
    graph = None if model is None else model.table(_MODEL_GRAPH)
    if model is None or graph is None:
        raise struct.error("it has no graph")
    types = read_types(data)

    def meta(name: str) -> InputMeta:
        found = types.of((), name)
        return InputMeta(name=name, dtype=found.dtype, shape=found.shape)

    weights = {weight.text(_TENSOR_NAME) for weight in graph.tables(_GRAPH_INITIALIZERS)}
    opsets = ", ".join(
        f"{one.text(_OPSET_DOMAIN) or 'ai.onnx'} {one.int64(_OPSET_VERSION)}" for one in model.tables(_MODEL_OPSETS)
    )
    return Description(
        format=f"ONNX Runtime's format, version {session.text(_SESSION_VERSION)}, IR {model.int64(_MODEL_IR)}, "
        f"opset {opsets}, {model.text(_MODEL_PRODUCER) or 'unknown producer'}",
        inputs=[meta(name) for name in graph.texts(_GRAPH_INPUTS) if name not in weights],
        outputs=[meta(name) for name in graph.texts(_GRAPH_OUTPUTS)],
        layers=list(_layers(graph, 0)),
        weights=_weights(graph),
    )  # fmt: skip


def _layers(graph: Table, depth: int) -> Iterator[DescribedLayer]:
    for node in graph.tables(_GRAPH_NODES):
        domain = node.text(_NODE_DOMAIN)
        kind = node.text(_NODE_TYPE)
        items = list(node.tables(_NODE_ATTRIBUTES))
        yield DescribedLayer(
            op_type=kind if domain in ("", "ai.onnx") else f"{domain}.{kind}",
            name=node.text(_NODE_NAME), depth=depth,
            inputs=tuple(name or "-" for name in node.texts(_NODE_INPUTS)),
            outputs=tuple(name or "-" for name in node.texts(_NODE_OUTPUTS)),
            attributes={item.text(_NAME): _value(item) for item in items},
        )  # fmt: skip
        for item in items:
            inner = item.table(_GRAPH)
            if inner is not None:
                yield from _layers(inner, depth + 1)


def _value(item: Table) -> str:
    """By AttributeType: 1 float, 2 int, 3 string, 4 tensor, 5 graph, 6 floats, 7 ints, 8 strings."""
    kind = item.int32(_KIND)
    if kind == 1:
        return f"{item.float32(_FLOAT):.8g}"
    if kind == 2:
        return str(item.int64(_INT))
    if kind == 3:
        return item.text(_STRING)
    if kind == 6:
        return str([float(f"{one:.8g}") for one in item.float32s(_FLOATS)])
    if kind == 7:
        return str(list(item.int64s(_INTS)))
    if kind == 8:
        return str(list(item.texts(_STRINGS)))
    return {4: "a tensor", 5: "a graph"}.get(kind, "several tensors or graphs")


def _weights(graph: Table) -> Iterator[DescribedWeight]:
    for weight in graph.tables(_GRAPH_INITIALIZERS):
        yield DescribedWeight(
            name=weight.text(_TENSOR_NAME), dtype=dtype_name(weight.int32(_TENSOR_TYPE)),
            shape=tuple(weight.int64s(_TENSOR_DIMS)),
        )  # fmt: skip
