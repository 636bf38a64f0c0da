"""Lets ONNX Runtime compute one operator that onnx.reference does not have, so that what follows can be computed."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from precision_debug.onnx.model import Model
from precision_debug.onnx.types import elem_of, numpy_dtype
from precision_debug.reasons import Reason

from . import ort_values
from .runtime import Runtime
from .types import TypeInfo, Types

__all__ = ["Borrowed", "OneByOne"]


class Borrowed:
    """A node in the place of onnx.reference's, which has none. why: the reader is told."""

    has_linked_attribute = False

    def __init__(self, node: Any, why: Reason) -> None:
        self.onnx_node, self.why = node, why
        self.op_type, self.domain = node.op_type, node.domain
        self.input: Sequence[str] = node.input
        self.output: Sequence[str] = node.output

    def need_context(self) -> bool:
        """Return whether it reads more of the graph than its inputs."""
        return False


class OneByOne:
    """Runs nodes of a model in ONNX Runtime, each in a session of its own, with the types that they have there."""

    def __init__(self, model: Model, cores: int) -> None:
        """cores: see SessionSpec; some kernels give each thread a scale of its own (DynamicQuantizeLSTM)."""
        self._model, self._sessions = model, dict[int, tuple[Any, list[str], list[int]]]()
        self._cores = cores

    def run(self, node: Any, inputs: Sequence[Any], key: Any) -> list[Any]:
        """Return the outputs of a node, "" included (as None). key: of the node's scope. Raises what ONNX Runtime
        raises."""
        import onnxruntime

        if id(node) not in self._sessions:
            self._sessions[id(node)] = self._opened(node, inputs, key)
        session, names, elems = self._sessions[id(node)]
        present = [value for name, value in zip(node.input, inputs, strict=False) if name]
        feeds = {name: _as(value, elem) for name, value, elem in zip(names, present, elems, strict=True)}
        found = iter(ort_values.run(session, feeds, onnxruntime.RunOptions()))
        return [next(found) if name else None for name in node.output]

    @functools.cached_property
    def _types(self) -> Types:
        from ..make.running_graph import infer_types

        with tempfile.TemporaryDirectory() as folder:
            return infer_types(self._model, Runtime(), Path(folder))

    def _opened(self, node: Any, inputs: Sequence[Any], key: Any) -> tuple[Any, list[str], list[int]]:
        import onnx

        proto = onnx.ModelProto()
        proto.CopyFrom(onnx.ModelProto(ir_version=self._model.proto.ir_version))
        proto.opset_import.extend(self._model.proto.opset_import)
        if node.domain not in {item.domain for item in proto.opset_import}:
            proto.opset_import.append(onnx.helper.make_opsetid(node.domain, 1))
        alone = proto.graph.node.add()
        alone.CopyFrom(node)
        names: list[str] = []
        elems: list[int] = []
        for place, (name, value) in enumerate(zip(node.input, inputs, strict=False)):
            if name:
                elem = _elem(self._types.of(key, name), value)
                names.append(f"in{place}")
                elems.append(elem)
                alone.input[place] = names[-1]
                shape = None if getattr(value, "ndim", None) is None else [None] * value.ndim
                proto.graph.input.append(onnx.helper.make_tensor_value_info(names[-1], elem, shape))
        proto.graph.name = "alone"
        for name in node.output:
            if name:
                proto.graph.output.add().name = name
        model = Model(proto=proto, folder=self._model.folder, path=self._model.path)
        return Runtime(cores=self._cores).open(model), names, elems


def _elem(info: TypeInfo, value: Any) -> int:
    """Return what the model has in this place; where that is not known, the value's own type, in float32 for
    float64."""
    if info.kind == "tensor" and info.elem:
        return info.elem
    name = "float32" if str(value.dtype) == "float64" else str(value.dtype)
    return elem_of(name)


def _as(value: Any, elem: int) -> Any:
    dtype = numpy_dtype(elem)
    return value if dtype is None or value.dtype.kind in "OSU" else value.astype(dtype)
