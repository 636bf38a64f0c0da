"""What the stock float16 converter does to nodes that stay in float32, and what is mended of it.

onnxruntime.transformers.float16 writes a cast to float16 and one back between two nodes that stay in float32, so that
nothing is won by naming both; it clamps and rounds constants that such a node shares with others; and it defines the
cast of a tensor once for each reader that stays. onnxconverter-common 1.16 leaves the edge alone, but makes models of
convolutions with a bias that do not load; ModelOpt 0.47 fails on Loop, and wants five more packages.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from precision_debug.onnx.graph import initializers_of, list_outer_reads, reorder

from ..keep import Blocked
from .narrowing import constant_tensor

__all__ = ["cut_round_trips", "separate_constants"]

_FLOAT, _FLOAT16 = 1, 10
_COPY = ":kept"


def separate_constants(proto: Any, blocked: Blocked) -> tuple[str, ...]:
    """Give the main graph's nodes that stay in float32 constants of their own, where they share some with others.

    Returns the names of Constant nodes that only such nodes read: they have to stay in float32 too.
    """
    graph = proto.graph
    kept: set[str] = set()
    others = {item.name for item in graph.output}
    for node in graph.node:
        (kept if blocked.covers(node) else others).update(node.input)
        (kept if blocked.covers(node) else others).update(list_outer_reads(node))
    copied = set()
    for tensor in list(graph.initializer):
        if tensor.data_type == _FLOAT and tensor.name in kept & others:
            copy = graph.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = tensor.name + _COPY
            copied.add(tensor.name)
    stay = []
    for node in list(graph.node):
        held = constant_tensor(node)
        if held is None or held.data_type != _FLOAT or node.output[0] not in kept:
            continue
        if node.output[0] in others:
            copied.add(node.output[0])
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.name, copy.output[0] = node.name + _COPY, node.output[0] + _COPY
            stay.append(copy.name)
        else:
            stay.append(node.name)
    for node in graph.node:
        if blocked.covers(node):
            for place, name in enumerate(node.input):
                if name in copied:
                    node.input[place] = name + _COPY
    if copied:
        reorder(graph, {name: place for place, node in enumerate(graph.node) for name in node.output if name})
    return tuple(stay)


def cut_round_trips(proto: Any, before: Collection[str]) -> int:
    """Let nodes that stay in float32 read each other's results, the model's inputs and write its outputs in float32.

    before: names of the model's nodes before its conversion; only casts that came with it are cut. Returns how many
    values no longer go through float16.
    """
    graph = proto.graph
    written = [node for node in graph.node if node.op_type == "Cast" and node.name not in before]
    to = {id(node): next(item.i for item in node.attribute if item.name == "to") for node in written}
    narrow = {node.output[0]: node.input[0] for node in written if to[id(node)] == _FLOAT16}
    outputs = {item.name for item in graph.output}
    graph_inputs = {item.name for item in graph.input} | initializers_of(graph)
    again: dict[str, str] = {}  # a value that was float16 between: what it really is
    ends: dict[str, str] = {}  # what a node that stays gives, to the output of the model that it is
    for node in written:
        source = narrow.get(node.input[0])
        if to[id(node)] != _FLOAT or source is None:
            continue
        name = node.output[0]
        if name not in outputs:
            again[name] = source
        elif source not in graph_inputs and source not in ends:
            ends[source] = name
    cut = len(again) + len(ends)
    drop = set(ends.values())
    nodes = []
    seen: set[str] = set()
    for node in graph.node:
        mine = node.op_type == "Cast" and node.name not in before
        if mine and (node.output[0] in drop or node.output[0] in again or node.output[0] in seen):
            continue  # "seen": a cast that was written once for each of its readers
        if mine:
            seen.add(node.output[0])
        for place, name in enumerate(node.input):
            source = again.get(name, name)
            node.input[place] = ends.get(source, source)
        for place, name in enumerate(node.output):
            node.output[place] = ends.get(name, name)
        nodes.append(node)
    nodes = _read(nodes, outputs, before)
    del graph.node[:]
    graph.node.extend(nodes)
    made = {name for node in nodes for name in node.output}
    infos = [item for item in graph.value_info if item.name in made and item.name not in outputs]
    del graph.value_info[:]
    graph.value_info.extend(infos)
    reorder(graph, {})
    return cut


def _read(nodes: list[Any], outputs: Collection[str], before: Collection[str]) -> list[Any]:
    """Without the casts of the conversion that nobody reads any more."""
    while True:
        read = {name for node in nodes for name in (*node.input, *list_outer_reads(node))} | set(outputs)
        left = [
            node for node in nodes
            if node.op_type != "Cast" or node.name in before or read.intersection(node.output)
        ]  # fmt: skip
        if len(left) == len(nodes):
            return nodes
        nodes = left
