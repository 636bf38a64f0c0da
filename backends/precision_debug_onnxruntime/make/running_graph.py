"""The graph that ONNX Runtime really runs, read back from ONNX Runtime, with the types of all its values."""

from __future__ import annotations

import hashlib
import itertools
import mmap
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from precision_debug.errors import PrecisionDebugError
from precision_debug.onnx.graph import (
    External,
    copy_but,
    initializers_of,
    iterate_external_tensors,
    iterate_graphs,
    iterate_subgraphs,
    move_external_data,
    read_external_data,
)
from precision_debug.onnx.model import Model, name_nodes
from precision_debug.onnx.scales import find_named_scales

from ..engine.runtime import Runtime
from ..engine.types import Types, read_types

__all__ = ["dump", "infer_types", "read_unoptimised"]

_AXIS = 13
"""The opset from which QuantizeLinear and DequantizeLinear have an attribute axis."""

_LARGE = 1024
_numbers = itertools.count()


def dump(model: Model, runtime: Runtime, folder: Path, optimise: str, *, inline: bool = False) -> Model:
    """Let ONNX Runtime load the model, and read the graph back that it would run.

    Weights go to a file in ``folder``, or stay in the graph where ``inline`` is set.
    """
    import onnx

    path = folder / f"graph{next(_numbers)}.onnx"
    runtime.open(model, optimise=optimise, dump=path, inline=inline)
    proto = onnx.load(str(path), load_external_data=False)
    _bring_along(proto, model.folder, path.with_name(f"{path.name}.bin"))
    for graph in iterate_graphs(proto.graph):
        name_nodes(graph)
    _drop_newer_attributes(proto)
    _tell_apart(proto.graph, set())
    _drop_orphans(proto, initializers_of(model.proto.graph))
    _keep_scales(proto.graph, model.proto.graph)
    return Model(proto=proto, folder=folder, path=model.path)


def _drop_newer_attributes(proto: Any) -> None:
    """Before opset 13 the quantising operators had no attributes; ONNX Runtime writes "axis", and refuses it then."""
    opset = next((item.version for item in proto.opset_import if item.domain in {"", "ai.onnx"}), _AXIS)
    if opset >= _AXIS:
        return
    for graph in iterate_graphs(proto.graph):
        for node in graph.node:
            if node.op_type in {"QuantizeLinear", "DequantizeLinear"} and node.domain in {"", "ai.onnx"}:
                del node.attribute[:]


def _tell_apart(graph: Any, outer: set[str]) -> None:
    """Give values inside a branch or loop another name than any around it has: ONNX Runtime inserts casts of one name
    in both, and refuses its own graph then."""
    names = {name for node in graph.node for name in node.output if name}
    again = {name: f"{name}_token_{next(_numbers)}" for name in names & outer}
    if again:
        _rename(graph, again)
    known = outer | names | {item.name for item in graph.input} | initializers_of(graph)
    for node in graph.node:
        for _, inner in iterate_subgraphs(node):
            _tell_apart(inner, known)


def _rename(graph: Any, again: Mapping[str, str]) -> None:
    for item in graph.output:
        item.name = again.get(item.name, item.name)
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = again.get(name, name)
        for _, inner in iterate_subgraphs(node):
            _rename(inner, again)


def _bring_along(proto: Any, source: Path, file: Path) -> None:
    """Add weights to a graph's file that old releases of ONNX Runtime (1.20) leave in the source's folder."""
    left = [
        tensor for tensor in iterate_external_tensors(proto.graph) if read_external_data(tensor).location != file.name
    ]
    if not left:
        return
    with file.open("ab") as out:
        for tensor in left:
            place = read_external_data(tensor)
            out.write(bytes(-out.tell() % mmap.ALLOCATIONGRANULARITY))
            begin = out.tell()
            with (source / place.location).open("rb") as weights:
                weights.seek(place.offset)
                out.write(weights.read(place.length or -1))
            move_external_data(tensor, External(location=file.name, offset=begin, length=out.tell() - begin))


def _drop_orphans(proto: Any, defaults: set[str]) -> None:
    """Take out inputs whose default ONNX Runtime folded into something else: nobody feeds them."""
    left = initializers_of(proto.graph)
    kept = [item for item in proto.graph.input if item.name in left or item.name not in defaults]
    if len(kept) < len(proto.graph.input):
        copies = [type(item).FromString(item.SerializeToString()) for item in kept]
        del proto.graph.input[:]
        proto.graph.input.extend(copies)


def _keep_scales(graph: Any, source_graph: Any) -> None:
    """Scales that ONNX Runtime has multiplied with others are still what its quantised constants are multiples of."""
    there = {item.name: item for item in source_graph.initializer}
    names = initializers_of(graph)
    for name, pair in find_named_scales(source_graph).items():
        graph.initializer.extend(there[one] for one in pair if name in names and one not in names)


def read_unoptimised(model: Model, runtime: Runtime, folder: Path) -> Model:
    """Return the graph that runs with every optimisation off; weights stay where they are.

    ONNX Runtime still inlines functions and inserts casts then, which does not depend on the weights: they are left
    out while it does, except where a kernel insists on having them.
    """
    light, weights = _make_light_model(model)
    try:
        graph = dump(light, runtime, folder, "none", inline=True)
    except PrecisionDebugError:
        return dump(model, runtime, folder, "none")
    _restore(graph.proto, weights, model)
    return Model(proto=graph.proto, folder=model.folder, path=model.path)


_TYPES_KEPT = 8
_types: OrderedDict[tuple[str, bytes], Types] = OrderedDict()
_lock = threading.Lock()


def infer_types(model: Model, runtime: Runtime, folder: Path) -> Types:
    """Return the type and shape of every value, subgraphs included, by loading the model without its large weights.

    A search opens one model many times: types that such a load gave are kept, of the last few models of a process.
    """
    light = _make_light_model(model)[0]
    key = _identify(light, runtime)
    with _lock:
        found = None if key is None else _types.pop(key, None)
    if found is None:
        path = folder / f"types{next(_numbers)}.ort"
        try:
            runtime.open(light, dump=path)
        except PrecisionDebugError:
            runtime.open(model, dump=path)
            key = None
        found = read_types(path.read_bytes())
        path.unlink()
    if key is not None:
        with _lock:
            _types[key] = found
            while len(_types) > _TYPES_KEPT:
                _types.popitem(last=False)
    return found


def _identify(light: Model, runtime: Runtime) -> tuple[str, bytes] | None:
    """Return what types depend on; None where a load is to be logged."""
    if runtime.telling:
        return None
    loaded = {name: value for name, value in runtime.settings.items() if name in ("config", "custom_ops_library")}
    folder = light.folder if any(iterate_external_tensors(light.proto.graph)) else None
    where = repr((runtime.providers, runtime.provider_options, sorted(loaded.items()), folder))
    return where, hashlib.sha256(light.proto.SerializeToString()).digest()


def _make_light_model(model: Model) -> tuple[Model, list[Any]]:
    import onnx

    graph = model.proto.graph
    heavy = [item for item in graph.initializer if _is_large(item)]
    names = {item.name for item in heavy}
    proto = copy_but(model.proto, graph="initializer")
    graph_inputs = {item.name for item in graph.input}
    for item in graph.initializer:
        if item.name not in names:
            proto.graph.initializer.append(item)
        elif item.name not in graph_inputs:
            proto.graph.input.append(onnx.helper.make_tensor_value_info(item.name, item.data_type, list(item.dims)))
    return Model(proto=proto, folder=model.folder, path=model.path), heavy


def _is_large(tensor: Any) -> bool:
    return bool(tensor.external_data) or len(tensor.raw_data) > _LARGE or tensor.ByteSize() > 2 * _LARGE


def _restore(proto: Any, weights: list[Any], model: Model) -> None:
    graph_inputs = {item.name for item in model.proto.graph.input}
    names = {item.name for item in weights}
    inputs = [item for item in proto.graph.input if item.name not in names or item.name in graph_inputs]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    proto.graph.initializer.extend(weights)
