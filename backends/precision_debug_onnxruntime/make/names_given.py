"""Names that ONNX Runtime's quantiser would give a second time.

It calls what it adds by the tensor that it is of ("h" gets h_scale, h_zero_point, h_QuantizeLinear …) and does not look
whether the file has such a name: a weight called h_scale is read as a scale, and a file that was quantised before gets
two nodes of one name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from precision_debug.onnx.graph import iterate_graphs

__all__ = ["give_names_back", "give_other_names"]

_ADDED = re.compile(r"_(?=scales?|zero_point|quant|QuantizeLinear|DequantizeLinear|Reduce|Abs)")
"""Where in a name what the quantiser adds to a tensor's begins."""
_MEANWHILE, _SECOND = "/given", "/again"


def give_other_names(graph: Any) -> dict[str, str]:
    """Call the constants, tensors and nodes otherwise whose names the quantiser would give again; return the names
    that they have meanwhile. Inputs and outputs of the model keep theirs."""
    nodes = [node for each in iterate_graphs(graph) for node in each.node]
    kept = {item.name for item in (*graph.input, *graph.output)}
    tensors = {item.name for each in iterate_graphs(graph) for item in each.initializer}
    tensors |= {name for node in nodes for name in node.output}
    owners = tensors | kept | {node.name for node in nodes}
    names = sorted((owners - kept) - {""})
    others = {
        name: name + _MEANWHILE
        for name in names
        if any(name[: found.start()] in owners for found in _ADDED.finditer(name))
    }
    if others:
        _rename(graph, others)
    return others


def give_names_back(graph: Any, others: Mapping[str, str]) -> list[str]:
    """Give what the quantiser made of a model its own names again; what it added is called otherwise where it has one
    of these, which are returned."""
    if not others:
        return []
    found, twice = dict[str, str](), set[str]()
    for name in _list_names(graph):
        own, meanwhile, rest = name.partition(_MEANWHILE)
        back = own + rest if meanwhile and own in others else name
        if back in others and (rest or back == name):
            twice.add(back)
            back += _SECOND
        if back != name:
            found[name] = back
    _rename(graph, found)
    return sorted(twice)


def _list_names(graph: Any) -> set[str]:
    found = set[str]()
    for each in iterate_graphs(graph):
        found.update(item.name for item in (*each.initializer, *each.value_info))
        for node in each.node:
            found.update((node.name, *node.input, *node.output))
    return found - {""}


def _rename(graph: Any, others: Mapping[str, str]) -> None:
    for each in iterate_graphs(graph):
        for item in (*each.initializer, *each.value_info):
            item.name = others.get(item.name, item.name)
        for node in each.node:
            node.name = others.get(node.name, node.name)
            for at, name in enumerate(node.input):
                node.input[at] = others.get(name, name)
            for at, name in enumerate(node.output):
                node.output[at] = others.get(name, name)
