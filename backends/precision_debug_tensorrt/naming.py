"""Tensors of the report, and the layer of the real engine that each belongs to.

TensorRT keeps the names of ONNX tensors, so that pairs are exact. What a fused layer swallowed is found by the ONNX
nodes in the layer's metadata, and where an engine has none, by the node names that its own name is made of.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from precision_debug.inspector import EngineLayer, find_real_precision, is_opaque
from precision_debug.onnx.graph import initializers_of, iterate_values, label_values, list_outer_reads
from precision_debug.onnx.types import dtype_name
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import TensorMeta

from .engine.casts import CAST, find_carriers
from .engine.network import LayerFacts
from .reasons import say

__all__ = ["LayerIndex", "columns", "onnx_tensors", "operators", "script_tensors", "without_casts"]

_PARTS = re.compile(r" \+ | \|\| |, |PWN\(|\)+(?=, |$)|\{ForeignNode\[|\]\}$|\.\.\.")


class LayerIndex:
    """Finds the engine's layer of a tensor or of an ONNX node.

    reads: tensor of the model to the tensors that its operator reads. With it, what lies inside a Myelin region is
    found too, of which the engine names only the first and the last operator.
    """

    def __init__(self, layers: Sequence[EngineLayer], reads: Mapping[str, Sequence[str]] | None = None) -> None:
        self.by_tensor: dict[str, EngineLayer] = {}
        self.by_node: dict[str, EngineLayer] = {}
        made: dict[str, EngineLayer] = {}
        for layer in layers:
            source = made.get(layer.inputs[0].name, layer) if layer.is_reformat and layer.inputs else layer
            for tensor in layer.outputs:
                made.setdefault(tensor.name, source)
                self.by_tensor.setdefault(tensor.name, source)
        working = [layer for layer in layers if not layer.is_reformat]
        for layer in sorted(working, key=lambda layer: layer.layer_type == "NoOp"):
            for node in (*layer.onnx_nodes, layer.name, *(part for part in _PARTS.split(layer.name) if part)):
                self.by_node.setdefault(node, layer)
        self.by_region = _map_regions(layers, reads or {})

    def find(self, tensor: str, node: str) -> EngineLayer | None:
        """Return the layer that computes the node, else the one that writes the tensor."""
        by_node = self.by_node.get(node) if node else None
        by_tensor = self.by_tensor.get(tensor)
        if by_tensor is not None and (by_node is None or by_tensor.layer_type != "NoOp"):
            return by_tensor
        return by_node or self.by_region.get(tensor)


def operators(layer: EngineLayer) -> tuple[str, ...]:
    """Return operators that were fused into a layer; read from its name where the engine has no metadata."""
    if layer.onnx_nodes:
        return layer.onnx_nodes
    parts = tuple(part for part in _PARTS.split(layer.name) if part and part != ")")
    return parts if len(parts) > 1 else ()


def _map_regions(layers: Sequence[EngineLayer], reads: Mapping[str, Sequence[str]]) -> dict[str, EngineLayer]:
    """Return tensors between the outputs and the inputs of the Myelin regions."""
    copied: dict[str, str] = {}
    found: dict[str, EngineLayer] = {}
    for layer in layers:
        if layer.is_reformat and layer.inputs:
            copied |= {tensor.name: copied.get(layer.inputs[0].name, layer.inputs[0].name) for tensor in layer.outputs}
        if not is_opaque(layer):
            continue
        ends = {copied.get(tensor.name, tensor.name) for tensor in layer.inputs}
        waiting = [tensor.name for tensor in layer.outputs]
        while waiting:
            name = waiting.pop()
            if name not in ends and name not in found:
                found[name] = layer
                waiting += reads.get(name, ())
    return found


def columns(layer: EngineLayer | None) -> dict[str, str]:
    """Return the report's columns on a tensor's layer."""
    if layer is None:
        return {}
    precision, source = find_real_precision(layer)
    found = {
        "Fused Layer": layer.name,
        "Fused Nodes": ", ".join(operators(layer)) + (", …" if layer.nodes_cut else ""),
        "Real Precision": precision or "not reported",
        "Precision Read From": source or "neither a tactic nor a type is reported",
        "Tactic": layer.tactic_name,
        "Origin": layer.origin,
    }
    return {key: text for key, text in found.items() if text}


def onnx_tensors(graph: Any, network: Mapping[str, str], refused: Mapping[str, Reason]) -> tuple[TensorMeta, ...]:
    """Return the ONNX graph's tensors in execution order.

    network: names of the tensors in TensorRT's network to their dtype. refused: those that cannot be seen, and why.
    """
    listed = without_casts(graph)
    found = [value for value in iterate_values(graph) if value.node is None or not value.node.name.startswith(CAST)]
    label = label_values([dataclasses.replace(value, name=listed.get(value.name, value.name)) for value in found])
    outputs = {item.name for item in graph.output}
    shapes = _list_declared(graph)
    constants = initializers_of(graph)
    metas = []
    for value in found:
        own = listed.get(value.name, value.name)
        node, name = value.node, label[dataclasses.replace(value, name=own).key]
        main = not value.scope.key
        is_output = main and own in outputs
        if node is None or is_output:
            unseen = NOTHING
        elif not main:
            unseen = refused.get(own, say("inside"))
        elif own not in network:
            unseen = say("not_parsed")
        else:
            unseen = refused.get(own, NOTHING)
        reads = [] if node is None else [listed.get(read, read) for read in (*node.input, *list_outer_reads(node))]
        metas.append(
            TensorMeta(
                name=name,
                op_type="Input" if node is None else str(node.op_type),
                node="" if node is None else str(node.name),
                dtype=network.get(own, "") or shapes.get(own, ("", None))[0],
                shape=shapes.get(own, ("", None))[1],
                inputs=tuple(dict.fromkeys(read for read in reads if read and read not in constants and read != name)),
                unseen=unseen,
                is_output=is_output,
            )
        )
    return tuple(metas)


def script_tensors(layers: Sequence[LayerFacts], inputs: Sequence[str], outputs: Sequence[str],
                   refused: Mapping[str, Reason]) -> tuple[TensorMeta, ...]:  # fmt: skip
    """Return the tensors of a network without an ONNX graph behind it, in the order in which its layers were added."""
    ends = set(outputs)
    made_up = {output.name for layer in layers if layer.type == "CONSTANT" for output in layer.outputs}
    metas = [TensorMeta(name=name, op_type="Input", is_output=name in ends) for name in inputs]
    for layer in layers:
        if layer.type == "CONSTANT":
            continue
        for output in layer.outputs:
            metas.append(
                TensorMeta(
                    name=output.name,
                    op_type=layer.type,
                    node=layer.name,
                    dtype=output.dtype,
                    shape=tuple(dim if dim >= 0 else f"dim{place}" for place, dim in enumerate(output.shape)),
                    inputs=tuple(dict.fromkeys(name for name in layer.inputs if name not in made_up)),
                    unseen=refused.get(output.name, NOTHING),
                    is_output=output.name in ends,
                )
            )
    return tuple(metas)


def without_casts(graph: Any) -> dict[str, str]:
    """Return what the casts of ``casts`` made, and the tensor of the model that each stands for."""
    found: dict[str, str] = {}
    for made, source in find_carriers(graph).items():
        if source.startswith(f"{made}_"):  # the model's own name was given back behind the cast
            found[source] = made
        else:
            found[made] = found.get(source, source)
    return found


def _list_declared(graph: Any) -> dict[str, tuple[str, tuple[int | str, ...] | None]]:
    found = {}
    for item in (*graph.input, *graph.value_info, *graph.output):
        tensor = item.type.tensor_type
        shape = (
            tuple(
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"dim{place}"
                for place, dim in enumerate(tensor.shape.dim)
            )
            if tensor.HasField("shape")
            else None
        )
        found[item.name] = (dtype_name(tensor.elem_type), shape)
    return found
