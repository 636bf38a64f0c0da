"""An int8 graph whose every rounding has a switch, so that any set of kept nodes is one run of one session.

The ranges, the nodes that are quantised and what a removed Relu or Clip hands on are onnxruntime.quantization's; a
tensor stays in float only where all that touch it are kept. For other strategies over one evaluator, and for what no
search can tell: how many disjoint sets of nodes each bring too much by themselves.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

__all__ = ["Switches", "disjoint"]

Array = np.ndarray[Any, Any]
_TYPES = frozenset({*QDQRegistry, *QLinearOpsRegistry})
_HANDS_ON = frozenset({"Relu", "Clip"})
_NO_WEIGHT = frozenset({"Clip", "Resize"})
_CHANNEL = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1, "Gemm": 1}


class _Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: Mapping[str, Array]) -> None:
        self._left = iter([dict(feeds)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._left, None)


class Switches:
    """A model, quantised on one set of inputs: activations int8, MinMax; weights int8, per tensor or per channel."""

    def __init__(self, path: Path, feeds: Mapping[str, Array], *, per_channel: bool = False) -> None:
        self.feeds = dict(feeds)
        with tempfile.TemporaryDirectory() as folder:
            proto, ranges = _prepared(path, feeds, Path(folder))
        self.nodes = [node.name for node in proto.graph.node]
        self.exact = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, self.feeds)
        self._touched: dict[str, frozenset[str]] = {}
        self._session, self._outputs = self._switched(proto, ranges, per_channel)
        self.known: dict[frozenset[str], float] = {}

    def error(self, kept: Collection[str]) -> float:
        """Relative L2 of the worst output with these nodes in float; names that are no nodes any more count nothing."""
        chosen = frozenset(kept)
        if chosen not in self.known:
            flags = {f"float {name}": np.array(nodes <= chosen) for name, nodes in self._touched.items()}
            got = self._session.run(self._outputs, {**self.feeds, **flags})
            self.known[chosen] = max(
                float(np.linalg.norm(one - base) / np.linalg.norm(base))
                for one, base in zip(got, self.exact, strict=True)
            )
        return self.known[chosen]

    def _switched(self, proto: Any, ranges: Mapping[str, tuple[float, float]], per_channel: bool) -> tuple[Any, Any]:
        graph = proto.graph
        constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
        maker = {name: node for node in graph.node for name in node.output}
        readers: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        outputs = [item.name for item in graph.output]
        handed = {
            node.input[0]: node.output[0] for node in graph.node
            if node.op_type in _HANDS_ON and node.input[0] in maker and len(readers[node.input[0]]) == 1
        }  # fmt: skip
        touched: dict[str, set[str]] = {}
        for node in graph.node:
            for place, name in enumerate((*node.input, *node.output)):
                weight = name in constants and constants[name].dtype == np.float32 and place < 2
                if node.op_type in _TYPES and (name in ranges or (weight and node.op_type not in _NO_WEIGHT)):
                    touched.setdefault(name, set()).add(node.name)
        self._touched = {name: frozenset(nodes) for name, nodes in touched.items()}
        made, held, again = list[Any](), dict[str, Array](constants), dict[str, str]()

        def switch(name: str, rounded: str) -> None:
            made.append(helper.make_node("Where", [f"float {name}", name, rounded], [f"{name} switched"]))
            again[name] = f"{name} switched"

        def rounding(name: str) -> None:
            low, high = (min(0.0, ranges[handed.get(name, name)][0]), max(0.0, ranges[handed.get(name, name)][1]))
            step = (high - low) / 255 or 1.0
            grid = [f"{name} step", f"{name} zero"]
            held[grid[0]] = np.float32(step)
            held[grid[1]] = np.int8(np.clip(round(-128 - low / step), -128, 127))
            made.append(helper.make_node("QuantizeLinear", [name, *grid], [f"{name} q"]))
            made.append(helper.make_node("DequantizeLinear", [f"{name} q", *grid], [f"{name} dq"]))
            switch(name, f"{name} dq")

        for name in [name for name in touched if name in constants]:
            held[f"{name} dq"] = _rounded(constants[name], readers[name][0].op_type, per_channel)
            switch(name, f"{name} dq")
        for item in graph.input:
            if item.name in touched:
                rounding(item.name)
        for node in graph.node:
            node.input[:] = [again.get(name, name) for name in node.input]
            made.append(node)
            for name in node.output:
                if name in touched:
                    rounding(name)
        flags = [helper.make_tensor_value_info(f"float {name}", TensorProto.BOOL, []) for name in touched]
        shown = [again.get(name, name) for name in outputs]
        inputs = [item for item in graph.input if item.name not in constants]
        switched = helper.make_graph(
            made, "switched", [*inputs, *flags], [onnx.ValueInfoProto(name=name) for name in shown],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()],
        )  # fmt: skip
        whole = helper.make_model(switched, opset_imports=list(proto.opset_import), ir_version=proto.ir_version)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.log_severity_level = 4
        return onnxruntime.InferenceSession(
            whole.SerializeToString(), options, providers=["CPUExecutionProvider"]
        ), shown  # fmt: skip


def _prepared(path: Path, feeds: Mapping[str, Array], folder: Path) -> tuple[Any, dict[str, tuple[float, float]]]:
    """The graph with its constants folded, as the quantiser is given it, and its tensors' ranges."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "basic.onnx")
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    calibrator = create_calibrator(
        folder / "basic.onnx", list(_TYPES), augmented_model_path=str(folder / "more.onnx"),
        calibrate_method=CalibrationMethod.MinMax,
    )  # fmt: skip
    calibrator.collect_data(_Feeds(feeds))
    found = {
        name: (float(np.min(data.range_value[0])), float(np.max(data.range_value[1])))
        for name, data in calibrator.compute_data().data.items()
    }
    return copy.deepcopy(onnx.load(folder / "basic.onnx")), found


def _rounded(weight: Array, op_type: str, per_channel: bool) -> Array:
    axes: tuple[int, ...] | None = None
    if per_channel and weight.ndim > 1 and op_type in _CHANNEL:
        axes = tuple(axis for axis in range(weight.ndim) if axis != _CHANNEL[op_type])
    largest = np.abs(weight).max(axis=axes, keepdims=axes is not None)
    step = np.where(largest == 0, 1, largest / 127)
    return np.asarray(np.clip(np.round(weight / step), -127, 127) * step, np.float32).reshape(weight.shape)


def disjoint(switches: Switches, limit: float, tell: Callable[[Sequence[str], float], None]) -> list[list[str]]:
    """Disjoint sets of nodes, each of which brings more than the limit while all else is in float, and none of whose
    nodes can be left out. As many nodes at least have to be kept, unless what else is rounded undoes such an error."""
    every = frozenset(switches.nodes)

    def alone(nodes: Collection[str]) -> float:
        return switches.error(every.difference(nodes))

    found, pool = list[list[str]](), list(switches.nodes)
    while alone(pool) > limit:
        chosen, size = list(pool), max(len(pool) // 2, 1)
        while True:
            place, changed = 0, False
            while place < len(chosen):
                rest = chosen[:place] + chosen[place + size :]
                if rest and alone(rest) > limit:
                    chosen, changed = rest, True
                else:
                    place += size
            if size == 1 and not changed:
                break
            size = max(size // 2, 1)
        found.append(chosen)
        tell(chosen, alone(chosen))
        pool = [name for name in pool if name not in chosen]
    return found
