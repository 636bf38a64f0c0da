"""Scale and zero point of every quantised value in a graph."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from .graph import read_attribute, split_words

__all__ = ["MOVERS", "QUANTISED", "Scale", "find_broken", "find_named_scales", "find_scales", "read_node_scales"]

_SMALL = 1024
QUANTISED = "_quantized"
"""What onnxruntime.quantization puts behind a constant's name for its integers."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """value = (quantised - zero_point) * scale; both are names of values of the graph, zero_point "" means 0.

    domain, axis, block: of the DequantizeLinear that undoes it; axis None: one scale for the whole tensor.
    value: the scale's own bytes where it is a constant: ONNX Runtime lets equal constants share one name.
    """

    scale: str
    zero_point: str = ""
    domain: str = "com.microsoft"
    axis: int | None = None
    block: int = 0
    value: bytes = b""

    @property
    def code(self) -> str:
        """A code that is equal for equal scales."""
        return self.value.hex() or self.scale


def find_broken(scale: Any) -> Any:
    """Return which of some scales are 0, NaN, Inf, or below the normal numbers of float32, where a quotient overflows:
    no number has a place on such a grid."""
    size = np.abs(np.asarray(scale).astype(np.float64))
    return ~(np.isfinite(size) & (size >= np.finfo(np.float32).tiny))


# operator: (position of the quantised value, of its scale, of its zero point); the output stands last, at -1
_LAYOUT = {
    "QLinearConv": ((0, 1, 2), (-1, 6, 7)),
    "QLinearConvTranspose": ((0, 1, 2), (-1, 6, 7)),
    "QLinearMatMul": ((0, 1, 2), (3, 4, 5), (-1, 6, 7)),
    "QLinearAdd": ((0, 1, 2), (3, 4, 5), (-1, 6, 7)),
    "QLinearMul": ((0, 1, 2), (3, 4, 5), (-1, 6, 7)),
    "QLinearSigmoid": ((0, 1, 2), (-1, 3, 4)),
    "QLinearLeakyRelu": ((0, 1, 2), (-1, 3, 4)),
    "QLinearGlobalAveragePool": ((0, 1, 2), (-1, 3, 4)),
    "QLinearAveragePool": ((0, 1, 2), (-1, 3, 4)),
    "QLinearReduceMean": ((0, 1, 2), (-1, 3, 4)),
    "QLinearSoftmax": ((0, 1, 2), (-1, 3, 4)),
    "QLinearWhere": ((1, 2, 3), (4, 5, 6), (-1, 7, 8)),
    "QGemm": ((0, 1, 2), (-1, 7, 8)),
    "MatMulIntegerToFloat": ((0, 2, 4),),
}
MOVERS = split_words("""
    MaxPool NhwcMaxPool Flatten Reshape Transpose Squeeze Unsqueeze Gather Slice Expand Tile Split Identity Resize
    DepthToSpace SpaceToDepth GatherElements GatherND Pad Concat
""")
"""Operators that only move numbers about, so that the output's scale is the input's."""


def find_scales(graph: Any) -> dict[str, Scale]:
    """Return the scale of each quantised value of a graph, by its name; values that are not quantised are not in it."""
    found: dict[str, Scale] = {}
    for node in graph.node:
        _from_node(node, found)
    for name, (scale, zero) in find_named_scales(graph).items():
        found.setdefault(name, Scale(scale=scale, zero_point=zero))
    for node in graph.node:
        if node.op_type in MOVERS and node.input and node.input[0] in found:
            for output in node.output:
                if output:
                    found.setdefault(output, found[node.input[0]])
    for node in reversed(graph.node):
        if node.op_type in MOVERS and node.input and node.output[0] in found:
            found.setdefault(node.input[0], found[node.output[0]])
    values = _small_constants(graph)
    return {name: dataclasses.replace(scale, value=values.get(scale.scale, b"")) for name, scale in found.items()}


def read_node_scales(node: Any) -> dict[str, Scale]:
    """Return the scales that a node itself has for what it reads and gives, by the tensors' names; a QuantizeLinear's
    by the name of what it reads."""
    if node.op_type == "QuantizeLinear":
        return {node.input[0]: _read_linear_scale(node)}
    found: dict[str, Scale] = {}
    _from_node(node, found)
    return found


def find_named_scales(graph: Any) -> dict[str, tuple[str, str]]:
    """Scale and zero point of the constants that onnxruntime.quantization has quantised as a whole, by its names.

    In a dynamically quantised model an embedding's rows go into integer products as they are: no operator there says
    what they are multiples of.
    """
    there = {tensor.name: tensor for tensor in graph.initializer}
    found = {}
    for name in there:
        stem = name.removesuffix(QUANTISED)
        scale, zero = there.get(f"{stem}_scale"), there.get(f"{stem}_zero_point")
        if stem != name and scale is not None and zero is not None and not (scale.dims and list(scale.dims) != [1]):
            found[name] = scale.name, zero.name
    return found


def _small_constants(graph: Any) -> dict[str, bytes]:
    """Return bytes of the small constants that lie in the graph."""
    from onnx import numpy_helper

    return {
        tensor.name: numpy_helper.to_array(tensor).tobytes()
        for tensor in graph.initializer
        if not tensor.external_data and tensor.ByteSize() < _SMALL
    }


def _from_node(node: Any, found: dict[str, Scale]) -> None:
    if node.op_type == "QuantizeLinear":
        found[node.output[0]] = _read_linear_scale(node)
    elif node.op_type == "DequantizeLinear":
        found.setdefault(node.input[0], _read_linear_scale(node))
    elif node.op_type == "DynamicQuantizeLinear":
        found[node.output[0]] = Scale(scale=node.output[1], zero_point=node.output[2])
    elif node.op_type == "QLinearConcat":
        found[node.output[0]] = Scale(scale=node.input[0], zero_point=node.input[1])
        for place in range(2, len(node.input) - 2, 3):
            found.setdefault(node.input[place], Scale(scale=node.input[place + 1], zero_point=node.input[place + 2]))
    else:
        for value, scale, zero in _LAYOUT.get(node.op_type, ()):
            if scale >= len(node.input) or not node.input[scale]:
                continue
            name = node.output[0] if value == -1 else node.input[value]
            what = Scale(scale=node.input[scale], zero_point=node.input[zero] if zero < len(node.input) else "")
            if value == -1:
                found[name] = what
            elif name:
                found.setdefault(name, what)


def _read_linear_scale(node: Any) -> Scale:
    return Scale(
        scale=node.input[1],
        zero_point=node.input[2] if len(node.input) > 2 else "",
        domain=node.domain,
        axis=read_attribute(node, "axis"),
        block=read_attribute(node, "block_size", 0),
    )
