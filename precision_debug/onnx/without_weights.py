"""Model files read without their weights: these are found in the file's bytes, and can be read where they lie.

Large tensors are skipped by their length, never decoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .graph import iterate_external_tensors, iterate_graphs, read_external_location
from .model import Model, load_model, map_file, name_every_node, parse_model, read_model
from .wire import BYTES, encode_number, encode_text, iterate_fields, join_message

__all__ = ["cut", "list_external_locations", "list_random_operators", "read_declared_outputs", "read_light"]

_ITSELF = "\0"
"""What no file is called."""

_SMALL = 1024
"""Bytes of a weight up to which it stays in the graph."""


def read_light(path: str) -> Model:
    """Return the model of a file; its large weights are external data, namely parts of that very file.

    A model that has external weights already keeps its other ones in the graph. Raises ModelError.
    """
    data = map_file(Path(path))
    file = Path(os.path.realpath(path))  # not a link: external data behind one is refused
    try:
        light = cut(data, larger=_SMALL, location=file.name)
    except ValueError:
        return read_model(path)
    proto = parse_model(light, path)
    if {read_external_location(tensor) for tensor in iterate_external_tensors(proto.graph)} != {file.name}:
        return read_model(path)
    return Model(proto=name_every_node(proto, path), folder=file.parent, path=path)


def list_external_locations(path: Path) -> frozenset[str]:
    """Return the files that a model names for its external weights, as it names them. Raises ModelError."""
    try:
        graph = parse_model(cut(map_file(path), larger=_SMALL, location=_ITSELF), str(path)).graph
    except ValueError:
        graph = load_model(path).graph
    return frozenset(map(read_external_location, iterate_external_tensors(graph))) - {_ITSELF, ""}


def read_declared_outputs(path: str) -> tuple[str, ...]:
    """Return the final outputs that a file declares, in order; () where it is of no such form. Raises ModelError."""
    data = map_file(Path(path))
    try:
        graphs = [
            (start, end) for tag, kind, _, start, end in iterate_fields(data, 0, len(data)) if (tag, kind) == _AS_GRAPH
        ]
        infos = [
            (start, end) for graph in graphs
            for tag, kind, _, start, end in iterate_fields(data, *graph) if (tag, kind) == _AS_OUTPUT
        ]  # fmt: skip
        names = [
            bytes(data[start:end]).decode() for info in infos
            for tag, kind, _, start, end in iterate_fields(data, *info) if (tag, kind) == _AS_NAME
        ]  # fmt: skip
    except ValueError:
        return ()
    return tuple(names)


def list_random_operators(path: str, *, seeded: bool = False) -> tuple[str, ...]:
    """Return the operators that draw random numbers and have no seed, as "TYPE NAME", those of bodies among them.

    seeded: those that have one.

    Raises PrecisionDebugError.
    """
    graph = read_light(path).proto.graph
    return tuple(
        f"{node.op_type} {node.name}"
        for one in iterate_graphs(graph)
        for node in one.node
        if node.op_type in _DRAWS and seeded == any(attribute.name == "seed" for attribute in node.attribute)
    )


_DRAWS = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
})  # fmt: skip
_AS_GRAPH, _AS_OUTPUT, _AS_NAME = (7, BYTES), (12, BYTES), (1, BYTES)
"""A model's graph, a graph's output, and the name of one, by number and wire type:
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto"""

_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 7, 5, 9, 13, 14


def cut(data: memoryview, *, larger: int, location: str) -> bytes:
    """Return the bytes of a ModelProto without its large weights.

    Those of the main graph of more than ``larger`` bytes become references to where they lie in ``data`` itself, a file
    of the name ``location``. Raises ValueError where it is of no such form.
    """
    light: list[bytes | memoryview] = []
    for tag, kind, begin, start, end in iterate_fields(data, 0, len(data)):
        if tag == _GRAPH and kind == BYTES:
            graph = b"".join(_cut_graph(data, start, end, larger, location))
            light.append(join_message([encode_text(_GRAPH, graph)]))
        else:
            light.append(data[begin:end])
    return b"".join(light)


def _cut_graph(data: memoryview, begin: int, end: int, larger: int, location: str) -> Iterator[bytes | memoryview]:
    kept = begin
    for tag, kind, at, start, stop in iterate_fields(data, begin, end):
        if tag != _INITIALIZER or kind != BYTES or stop - start <= larger:
            continue
        tensor = _cut_tensor(data, start, stop, larger, location)
        if tensor is not None:
            yield data[kept:at]
            yield join_message([encode_text(_INITIALIZER, tensor)])
            kept = stop
    yield data[kept:end]


def _cut_tensor(data: memoryview, begin: int, end: int, larger: int, location: str) -> bytes | None:
    """Return a TensorProto without its weights; None where they are small or lie outside already."""
    fields = list(iterate_fields(data, begin, end))
    raw = [field for field in fields if field[0] == _RAW_DATA and field[1] == BYTES]
    if len(raw) != 1 or any(field[0] in {_EXTERNAL_DATA, _DATA_LOCATION} for field in fields):
        return None
    *_, start, stop = raw[0]
    if stop - start <= larger:
        return None
    light = [bytes(data[at:until]) for tag, _, at, _, until in fields if tag != _RAW_DATA]
    for key, value in (("location", location), ("offset", str(start)), ("length", str(stop - start))):
        light.append(
            join_message([encode_text(_EXTERNAL_DATA, join_message([encode_text(1, key), encode_text(2, value)]))])
        )
    return b"".join((*light, join_message([encode_number(_DATA_LOCATION, 1)])))
