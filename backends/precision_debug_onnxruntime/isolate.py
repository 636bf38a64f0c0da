"""A model's operators, run one by one on values that the caller chooses."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import ModelError
from precision_debug.onnx.graph import list_outer_reads
from precision_debug.onnx.model import map_file, name_every_node, parse_model
from precision_debug.onnx.types import FLATTENS, with_defaults
from precision_debug.protocols import Operator

from .engine import ort_values

__all__ = ["OrtOperators", "read_operators"]

_SMALL = 64
"""Elements of a constant that is put into the model of one operator: some kernels want shapes, axes and scales so."""


def read_operators(path: str) -> OrtOperators:
    """Raises ModelError."""
    import onnx

    proto = parse_model(map_file(Path(path)), path)
    try:
        onnx.load_external_data_for_model(proto, os.path.dirname(os.path.realpath(path)))
    except Exception as error:
        raise ModelError(f"its weights cannot be read: {type(error).__name__}: {error}", where=path) from error
    return OrtOperators(name_every_node(proto, path))


class OrtOperators:
    """See operators.Operators."""

    def __init__(self, proto: Any) -> None:
        from onnx import numpy_helper

        self._proto = proto
        self._nodes: dict[str, Any] = {}
        self._sessions: dict[Any, Any] = {}
        opsets = {one.domain if one.domain != "ai.onnx" else "": one.version for one in proto.opset_import}
        constants = {item.name: numpy_helper.to_array(item) for item in proto.graph.initializer}
        found = []
        for node in proto.graph.node:
            value = _constant(node)
            if value is not None:
                constants[node.output[0]] = value
                continue
            self._nodes[node.name] = node
            found.append(
                Operator(
                    name=node.name, op_type=node.op_type, inputs=tuple(node.input), outputs=tuple(node.output),
                    attributes=_attributes(node, opsets.get(node.domain, 1)),
                )
            )  # fmt: skip
        self.operators: Sequence[Operator] = tuple(found)
        read = {item.name for item in proto.graph.output}
        for node in reversed(proto.graph.node):
            if read.intersection(node.output):
                read.update((*node.input, *list_outer_reads(node)))
        self.constants: Mapping[str, Any] = {name: value for name, value in constants.items() if name in read}

    def run(
        self, operator: Operator, values: Mapping[str, Any], attributes: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        node = self._nodes[operator.name]
        if any(item.HasField("g") or item.graphs for item in node.attribute):
            return None
        inputs = {name: np.asarray(values[name]) for name in node.input if name}
        fixed = {
            name: value for name, value in inputs.items()
            if value.dtype.isbuiltin == 2 or (name in self.constants and value.size <= _SMALL)  # numpy lacks the type
        }  # fmt: skip
        key = (
            operator.name, repr(sorted((attributes or {}).items())),
            tuple((name, value.dtype.name, value.ndim) for name, value in inputs.items()),
            tuple(value.tobytes() for value in fixed.values()),
        )  # fmt: skip
        try:
            if key not in self._sessions:
                self._sessions[key] = self._session(node, inputs, fixed, attributes or {})
            session = self._sessions[key]
            fed = {name: np.asarray(value, order="C") for name, value in inputs.items() if name not in fixed}
            found = ort_values.run(session, fed, None)
        except Exception:
            return None  # a type or a shape that this operator does not take; the caller has other ways
        return dict(zip((name for name in node.output if name), found, strict=True))

    def _session(self, node: Any, inputs: Mapping[str, Any], fixed: Mapping[str, Any], changed: Any) -> Any:
        import onnx
        import onnxruntime as ort
        from onnx import helper, numpy_helper

        one = onnx.NodeProto()
        one.CopyFrom(node)
        for item in [item for item in one.attribute if item.name in changed]:
            one.attribute.remove(item)
        one.attribute.extend(helper.make_attribute(name, value) for name, value in changed.items() if value is not None)
        graph = helper.make_graph(
            [one], "one",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
                for name, value in inputs.items() if name not in fixed
            ],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
            [numpy_helper.from_array(np.asarray(value, order="C"), name) for name, value in fixed.items()],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=self._proto.opset_import, ir_version=self._proto.ir_version)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # threads cost more than most operators
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _constant(node: Any) -> Any:
    from onnx import numpy_helper

    if node.op_type != "Constant" or not node.attribute:
        return None
    item = node.attribute[0]
    if item.name == "value":
        return numpy_helper.to_array(item.t)
    if item.name in ("value_float", "value_int"):
        return np.asarray(item.f, np.float32) if item.name == "value_float" else np.asarray(item.i, np.int64)
    if item.name in ("value_floats", "value_ints"):
        return np.asarray(item.floats, np.float32) if item.name == "value_floats" else np.asarray(item.ints, np.int64)
    return None


def _attributes(node: Any, opset: int) -> dict[str, Any]:
    """Return a node's plain attributes, with what its operator's own schema says of those that it leaves out."""
    from onnx import helper

    found: dict[str, Any] = {}
    for item in node.attribute:
        if item.HasField("g") or item.graphs or item.HasField("t"):
            continue
        value = helper.get_attribute_value(item)
        if isinstance(value, bytes):
            found[item.name] = value.decode("utf-8", "replace")
        elif isinstance(value, (int, float)):
            found[item.name] = value
        elif isinstance(value, Iterable):
            found[item.name] = tuple(part for part in value if isinstance(part, (int, float)))
    whole = with_defaults(node.op_type, found, domain=node.domain, opset=opset)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in whole.items() if key != FLATTENS}
