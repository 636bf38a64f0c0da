"""An ONNX graph run node by node, with any set of nodes in float32: what a set gives, without building anything anew.

A tensor is read in float32 only if its producer and its reader are kept; otherwise it is rounded on the edge. A kept
node reads exact weights. For checks by brute force, and for other strategies over one evaluator; the tool's own
searches run sessions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

__all__ = ["Simulation", "relative_error"]

Array = np.ndarray[Any, Any]

_KEPT_INPUTS = {"Resize": (1, 2), "Upsample": (1,), "NonMaxSuppression": (3, 4), "Range": (0, 1, 2)}
_TYPES: Mapping[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}


class Simulation:
    """kind: "fp16" or "bf16". feeds: one set of inputs; the float32 run of them is made at once."""

    def __init__(self, model: onnx.ModelProto, feeds: Mapping[str, Array], kind: str = "fp16") -> None:
        self.model, self.feeds, self.type = model, dict(feeds), _TYPES[kind]
        graph = model.graph
        self.constants: dict[str, Array] = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
        self.nodes = []
        for node in graph.node:
            if node.op_type == "Constant":
                held = next(item for item in node.attribute)
                value = helper.get_attribute_value(held)
                self.constants[node.output[0]] = (
                    numpy_helper.to_array(value) if held.name == "value" else np.array(value)
                )
            else:
                self.nodes.append(node)
        self.outputs = [item.name for item in graph.output]
        self.maker = {name: node.name for node in self.nodes for name in node.output if name}
        self._sessions: dict[str, Any] = {}
        self._rounded: dict[str, Array] = {}
        self.exact = self.run({node.name for node in self.nodes})
        self.runs = 0

    def run(self, kept: Collection[str]) -> dict[str, Array]:
        """The outputs with these nodes in float32."""
        kept = set(kept)
        values: dict[str, Array] = dict(self.feeds)
        low: dict[str, Array] = {}
        self.runs = getattr(self, "runs", 0) + 1
        for node in self.nodes:
            read = [self._read(node, place, name, kept, values, low) for place, name in enumerate(node.input)]
            for name, value in zip(node.output, self.one(node, read), strict=True):
                if name:
                    values[name] = value
        return {name: self._shown(name, values[name], kept) for name in self.outputs}

    def error(self, kept: Collection[str]) -> float:
        """Relative L2 of the worst output; inf where it is not finite."""
        return relative_error(self.run(kept), self.exact)

    def _shown(self, name: str, value: Array, kept: set[str]) -> Array:
        return value if value.dtype != np.float32 or self.maker.get(name, "") in kept else self._round(value)

    def _read(
        self, node: Any, place: int, name: str, kept: set[str], values: Mapping[str, Array], low: dict[str, Array]
    ) -> Any:
        if not name:
            return None
        mine = node.name in kept
        if name in self.constants:
            value = self.constants[name]
            if mine or value.dtype != np.float32 or place in _KEPT_INPUTS.get(node.op_type, ()):
                return value
            if name not in self._rounded:
                self._rounded[name] = self._round(value)
            return self._rounded[name]
        value = values[name]
        if value.dtype != np.float32 or (mine and (name not in self.maker or self.maker[name] in kept)):
            return value
        if name not in low:
            low[name] = self._round(value)
        return low[name]

    def _round(self, value: Array) -> Array:
        with np.errstate(over="ignore"):
            rounded: Array = value.astype(self.type).astype(np.float32)
        return rounded

    def one(self, node: Any, values: list[Any]) -> list[Any]:
        feeds = {name: np.asarray(value) for name, value in zip(node.input, values, strict=True) if name}
        session = self._sessions.get(node.name)
        if session is None:
            inputs = [
                helper.make_tensor_value_info(
                    name,
                    helper.np_dtype_to_tensor_dtype(value.dtype),
                    [f"{place}_{axis}" for axis in range(value.ndim)],
                )
                for place, (name, value) in enumerate(feeds.items())
            ]
            outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
            alone = helper.make_model(
                helper.make_graph([node], "one", inputs, outputs), opset_imports=list(self.model.opset_import),
                ir_version=min(self.model.ir_version, 10),
            )  # fmt: skip
            options = ort.SessionOptions()
            options.intra_op_num_threads = 1
            options.log_severity_level = 4
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            session = self._sessions[node.name] = ort.InferenceSession(
                alone.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        made = iter(session.run(None, feeds))
        return [next(made) if name else None for name in node.output]


def relative_error(got: Mapping[str, Array], exact: Mapping[str, Array]) -> float:
    """Relative L2 of the worst output; inf where it is not finite but the exact one is."""
    worst = 0.0
    for name, base in exact.items():
        there = got[name]
        if base.dtype.kind != "f":
            worst = max(worst, float(np.mean(base != there)))
            continue
        if bool((~np.isfinite(there) & np.isfinite(base)).any()):
            return float("inf")
        fair = np.isfinite(base)
        b, t = base[fair].astype(np.float64), there[fair].astype(np.float64)
        worst = max(worst, float(np.linalg.norm(t - b)) / max(float(np.linalg.norm(b)), 1e-30))
    return worst
