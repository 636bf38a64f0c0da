"""Nodes of the model that stay in FP32: which layers of TensorRT's network each became, and what is set on those.

The parser names a layer after its node only where it likes to. LayerNormalization of opset 17 became, in 8.6,
``(Unnamed Layer* 558) [Normalization]`` behind two unnamed shuffles, so that norms which were kept by name stayed in
FP16. What it always keeps is the names of the tensors that nodes give: from them a node's layers are found, back to the
tensors that are the model's own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from precision_debug.errors import BackendError, MarkError
from precision_debug.inspector import EngineLayer, find_real_precision, is_opaque
from precision_debug.onnx.graph import iterate_graphs, iterate_values
from precision_debug.reasons import suggest_nearest

from ..naming import LayerIndex
from .network import LayerFacts, read_layers
from .types import type_name
from .versions import Api

__all__ = ["find_precisions", "is_silent", "keep", "map_nodes_to_layers", "prefer_precisions"]


FLOATING = frozenset({"FLOAT", "HALF", "BF16", "FP8"})

_SILENT = frozenset(
    ["CONSTANT", "SHAPE", "QUANTIZE", "DEQUANTIZE", "CAST", "IDENTITY", "ASSERTION", "TRIP_LIMIT", "RECURRENCE"]
) | {"ITERATOR", "LOOP_OUTPUT", "CONDITION", "CONDITIONAL_INPUT", "CONDITIONAL_OUTPUT"}

_NODE = re.compile(r"\[ONNX Layer: ([^\]|]*?)(?: \||\])")
"""What a parser notes in a layer's metadata; behind a bar stand the bodies that the node is in."""


_HINT = "name nodes of the model; `precision_debug marks` lists them"


def is_silent(layer: Any) -> bool:
    """Return whether it computes no floating-point values: constants, shapes, QDQ, casts, entries and exits of loops
    and branches, and what gives integers or truth values. """
    if str(layer.type).rpartition(".")[2] in _SILENT:
        return True
    outputs = (layer.get_output(place) for place in range(layer.num_outputs))
    return not any(type_name(output.dtype) in FLOATING for output in outputs if output is not None)


def map_nodes_to_layers(graph: Any, network: Any) -> dict[str, tuple[int, ...]]:
    """For each named node of an ONNX graph and its bodies, the places of the layers that the parser made of it.

    The layers of its name, those whose metadata names it, and those that its outputs come from, as far back as tensors
    have no name of the model's: shuffles that fit a shape, constants, casts.
    """
    layers = read_layers(network)
    noted = [_NODE.findall(str(getattr(network.get_layer(i), "metadata", "") or "")) for i in range(len(layers))]
    own = {value.name for value in iterate_values(graph)}
    for one in iterate_graphs(graph):
        own |= {item.name for item in (*one.input, *one.initializer)}
    made = {output.name: place for place, layer in enumerate(layers) for output in layer.outputs}
    named: dict[str, list[int]] = {}
    for place, layer in enumerate(layers):
        for name in {layer.name, *noted[place]}:
            named.setdefault(name, []).append(place)
    nodes = [node for one in iterate_graphs(graph) for node in one.node if node.name]
    return {node.name: _find_layers(node, named, noted, made, layers, own) for node in nodes}


def _find_layers(
    node: Any, named: Mapping[str, Sequence[int]], noted: Sequence[Sequence[str]], made: Mapping[str, int],
    layers: Sequence[LayerFacts], own: Collection[str],
) -> tuple[int, ...]:  # fmt: skip
    found: set[int] = set()
    waiting = [*named.get(node.name, ()), *(made[name] for name in node.output if name in made)]
    while waiting:
        place = waiting.pop()
        if place in found or (noted[place] and node.name not in noted[place]):
            continue  # seen, or another node's
        found.add(place)
        waiting += [made[name] for name in layers[place].inputs if name not in own and name in made]
    return tuple(sorted(found))


def keep(api: Api, network: Any, nodes: Sequence[str], graph: Any | None) -> dict[str, str]:
    """Keep nodes of the model in FP32: each layer that they became and that computes, and what it gives.

    graph: the model's; None of a script's network, whose layers are named themselves. Gives the node of each layer that
    is kept. Raises MarkError for a name that the model has not, and where nothing that computes is named; BackendError
    where a node that computes became no layer.
    """
    layers = [network.get_layer(place) for place in range(network.num_layers)]
    places = map_nodes_to_layers(graph, network) if graph is not None else {}
    for place, layer in enumerate(layers):
        places.setdefault(layer.name, (place,))
    unknown = [name for name in nodes if name not in places]
    if unknown:
        raise MarkError(
            f"none of these nodes became a layer that computes: {', '.join(unknown[:6])}", where="--keep_layers",
            hint=suggest_nearest(unknown[0], list(places)) or _HINT,
        )  # fmt: skip
    lost = [name for name in nodes if not places[name]]
    if lost and graph is not None and (lost := _list_computing(lost, graph)):
        raise BackendError(
            f"these kept nodes were found in no layer of TensorRT's network: {', '.join(lost[:6])}",
            where="--keep_layers", hint="this is an error of precision_debug's; leave them out meanwhile",
        )  # fmt: skip
    owners: dict[str, str] = {}
    for node in nodes:
        for layer in (layers[place] for place in places[node]):
            if not is_silent(layer):
                _set_fp32(api, layer)
                owners.setdefault(layer.name, node)
    if nodes and not owners:
        raise MarkError(
            f"none of these nodes became a layer that computes: {', '.join(nodes[:6])}", where="--keep_layers",
            hint=_HINT,
        )  # fmt: skip
    return owners


def _set_fp32(api: Api, layer: Any) -> None:
    if not layer.precision_is_set:
        layer.precision = api.data_type("FP32")
    for index in range(layer.num_outputs):
        output = layer.get_output(index)
        if output is not None and type_name(output.dtype) in FLOATING and not layer.output_type_is_set(index):
            layer.set_output_type(index, api.data_type("FP32"))


_NO_LAYER = frozenset({"Constant", "ConstantOfShape", "Identity", "Dropout", "Cast", "Reshape", "Flatten", "Expand"})
"""What a parser may make no layer of: it computes nothing."""


def _list_computing(names: Iterable[str], graph: Any) -> list[str]:
    wanted = set(names)
    nodes = [node for one in iterate_graphs(graph) for node in one.node if node.name in wanted]
    return [str(node.name) for node in nodes if node.op_type not in _NO_LAYER]


# Makes a rebuilt engine compute as the real one does: its precisions layer by layer, and its tactics.
#
# Marking tensors changes what is fastest. Left alone, TensorRT 8.6 rebuilt a small FP16 engine wholly in FP32, so that
# its table showed no error at all. Precisions of the real engine are therefore preferred in the rebuilt one; TF32
# cannot be asked for layer by layer. A region tells of the types at its edges alone: left to choose them anew, TensorRT
# 8.6 rebuilt a region in FP32 as one that reads FP16, and compiled it in each type to choose by time.

_ASKED = {"FP16": "FP16", "BF16": "BF16", "FP32": "FP32", "TF32": "FP32", "INT8": "INT8"}
_MULTIPLIES = frozenset({"CONVOLUTION", "DECONVOLUTION", "FULLY_CONNECTED", "MATRIX_MULTIPLY"})


def find_precisions(
    network: Sequence[LayerFacts], engine: Sequence[EngineLayer], *, binding: bool = False
) -> dict[str, str]:  # fmt: skip
    """Layer of the network to the precision that the engine gave it, where the engine tells one.

    INT8 only where values are multiplied, since the engine does not quantise what is fused behind that on its way; and
    not with QDQ, which says it itself. Of a region, the type that it reads and writes, where that is one; an engine
    that is regions of one type gives it to all layers, as a region does not name what is inside it. binding: they will
    be obeyed and not only preferred: then of no region, inside which layers may run in another type than at its edges.
    """
    explicit = any(layer.type in {"QUANTIZE", "DEQUANTIZE"} for layer in network)
    index = LayerIndex(engine)
    busy = [layer for layer in engine if not layer.is_reformat]
    whole = _find_edge_type(busy) if all(map(is_opaque, busy)) and not binding else ""
    found = {}
    for layer in network:
        names = [output.name for output in layer.outputs] or [""]
        there = index.find(names[0], layer.name)
        if there is None or is_opaque(there):
            precision = whole if there is None or binding else _find_edge_type([there])
        else:
            precision = _ASKED.get(find_real_precision(there)[0], "")
        if precision and (precision != "INT8" or (layer.type in _MULTIPLIES and not explicit)):
            found[layer.name] = precision
    return found


def _find_edge_type(regions: Sequence[EngineLayer]) -> str:
    """Return the floating-point type that regions read and write; "" where they do not tell, or there are several."""
    types = {tensor.dtype for region in regions for tensor in (*region.inputs, *region.outputs)}
    floats = types & {"FP32", "FP16", "BF16"}
    return floats.pop() if len(floats) == 1 else ""


def prefer_precisions(api: Api, network: Any, config: Any, precisions: Mapping[str, str]) -> int:
    """Prefer these precisions for layers that nobody asked something of; how many they are."""
    count = 0
    for place in range(network.num_layers):
        layer = network.get_layer(place)
        wanted = precisions.get(layer.name, "")
        if wanted and not layer.precision_is_set and not is_silent(layer):
            layer.precision = api.data_type(wanted)
            count += 1
    flags = api.trt.BuilderFlag
    if count and not config.get_flag(flags.OBEY_PRECISION_CONSTRAINTS):
        config.set_flag(flags.PREFER_PRECISION_CONSTRAINTS)
    return count
