"""Which operators of a typed ONNX model compute in what: what a strongly typed network is bound to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from precision_debug.onnx.graph import iterate_graphs

from .casts import float_tensors, is_silent_node

__all__ = ["count_types", "find_integer_nodes", "list_types", "operator_types"]

_PRODUCTS = frozenset(["Conv", "ConvTranspose", "Gemm", "MatMul"])
_WITHIN = "FP32 (reads and writes {})"
_ORDER = ("FP32", *map(_WITHIN.format, ("INT8", "FP8")), "BF16", "FP16", "INT8", "FP8")
_FLOAT8 = 17


def operator_types(proto: Any, written: Mapping[str, str]) -> dict[str, str]:
    """Node to "FP32", "FP16", "BF16", "INT8" or "FP8"; "FP32 (reads and writes INT8)" of what is no product and may be
    computed either way, as a Softmax between DequantizeLinear and QuantizeLinear.

    written: what casts were written for, by node; where there are none, FP32 tensors tell.
    """
    floats = float_tensors(proto) if not written else frozenset()
    quantised = find_integer_nodes(proto)
    found = dict(written)  # of bodies too
    for node in proto.graph.node:
        if is_silent_node(node):
            continue
        kind = quantised.get(node.name) or written.get(node.name, "")
        if not kind and not floats.isdisjoint((*node.input, *node.output)):
            kind = "FP32"
        if kind:
            found[node.name] = kind
    return found


def find_integer_nodes(proto: Any) -> dict[str, str]:
    """Return nodes whose precision QDQ decides, and not the types around them: a product of two dequantised tensors and
    what alone reads its result, "INT8" or "FP8"; and another operator that reads a dequantised tensor (see
    ``operator_types``). Of all but the products, only a QuantizeLinear reads the result."""
    makers = {name: node for node in proto.graph.node for name in node.output if name}
    held = {item.name: item.data_type for item in proto.graph.initializer}
    reads = [(name, node.op_type) for node in proto.graph.node for name in node.input if name]
    readers = Counter(name for name, _ in reads)
    plain = {name for name, kind in reads if kind != "QuantizeLinear"} | {item.name for item in proto.graph.output}
    found: dict[str, str] = {}
    for node in proto.graph.node:
        product = node.op_type in _PRODUCTS
        sources = [makers.get(name) for name in node.input[: 2 if product else 1]]
        if is_silent_node(node) or None in sources or not sources:
            continue
        dequantised = [one for one in sources if one is not None and one.op_type == "DequantizeLinear"]
        if len(dequantised) == len(sources) and (product or plain.isdisjoint(node.output)):
            zero = dequantised[0].input[2] if len(dequantised[0].input) > 2 else ""
            kind = "FP8" if held.get(zero) == _FLOAT8 else "INT8"
            found[node.name] = kind if product else _WITHIN.format(kind)
        elif not product and readers[node.input[0]] == 1 and plain.isdisjoint(node.output):
            before = sources[0].name if sources[0] is not None else ""
            if before in found:
                found[node.name] = found[before]
    return found


def count_types(types: Mapping[str, str]) -> list[str]:
    """Return "305 FP16", "6 FP32": the most first."""
    return [f"{count} {kind}" for kind, count in Counter(types.values()).most_common()]


def list_types(proto: Any, types: Mapping[str, str]) -> list[str]:
    """Return a line for each type: how many operators, and how many of which; those that are fewer than the rest by
    name."""
    nodes = [node for graph in iterate_graphs(proto.graph) for node in graph.node if node.name in types]
    lines = []
    for kind in sorted(set(types.values()), key=_ORDER.index):
        own = [node for node in nodes if types[node.name] == kind]
        kinds = ", ".join(f"{count} {name}" for name, count in Counter(node.op_type for node in own).most_common())
        names = f": {', '.join(node.name for node in own)}" if len(own) <= _NAMED and len(own) < len(nodes) else ""
        lines.append(f"{kind}: {len(own)} operator{'s' * (len(own) != 1)} ({kinds}){names}")
    return lines


_NAMED = 40
"""Operators of one type up to which each is named."""
