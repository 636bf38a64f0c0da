"""What a graph does with its inputs, as far as it tells how to fill them: images of convolutions, indices of tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from precision_debug.records import InputMeta

__all__ = ["with_uses"]

_SAME_VALUES = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand"})
_WRAPPED = _SAME_VALUES | {"Add", "Mul", "Where"}
_WHOLE = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
_SAME_PLACES = frozenset({
    "Cast", "Identity", "Mul", "Sub", "Add", "Div", "Pad", "BatchNormalization", "QuantizeLinear", "DequantizeLinear",
    "Clip",
})  # fmt: skip
_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool"})
_FARTHEST = 20


def with_uses(metas: Sequence[InputMeta], graph: Any) -> tuple[InputMeta, ...]:
    """Return the inputs with ``limit`` and ``layout`` where the graph itself says them.

    Bodies of loops and branches are left out."""
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    sizes = dict(_iterate_constants(graph))
    return tuple(
        dataclasses.replace(meta, limit=_limit(meta, readers, sizes), layout=_find_layout(meta, readers))
        for meta in metas
    )


def _iterate_constants(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and tensor of each constant."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant" and node.output:
            for attribute in node.attribute:
                if attribute.name == "value":
                    yield node.output[0], attribute.t


def _limit(meta: InputMeta, readers: Mapping[str, list[Any]], constants: Mapping[str, Any]) -> int | None:
    """Return the least number of entries of the tables that the values index."""
    if not (meta.dtype.startswith(("int", "uint")) or _is_cast_to_whole(meta.name, readers)):
        return None
    found = []
    made = {output: node for nodes in readers.values() for node in nodes for output in node.output}
    reached = _list_reached(meta.name, readers, _SAME_VALUES)
    if any(node.op_type == "Less" for name in reached for node in readers.get(name, ())):
        # as TensorFlow counts negative indices from the end
        reached = _list_reached(meta.name, readers, _WRAPPED, anywhere=True)
    for name in reached:
        for node in readers.get(name, ()):
            if node.op_type == "Gather" and len(node.input) > 1 and node.input[1] == name:
                table = constants.get(_find_source(node.input[0], made, constants))
                axis = next((item.i for item in node.attribute if item.name == "axis"), 0)
                if table is not None and -len(table.dims) <= axis < len(table.dims):
                    found.append(int(table.dims[axis]))
    return min((count for count in found if count > 0), default=None)


def _is_cast_to_whole(name: str, readers: Mapping[str, list[Any]]) -> bool:
    """Return whether floats are nothing but whole numbers in another type, as Keras feeds its tables."""
    read = readers.get(name, [])
    return bool(read) and all(
        node.op_type == "Cast" and any(item.name == "to" and item.i in _WHOLE for item in node.attribute)
        for node in read
    )


def _find_source(name: str, made: Mapping[str, Any], constants: Mapping[str, Any]) -> str:
    """Return the constant that a table is, or is cast or dequantised from."""
    for _ in range(_FARTHEST):
        node = made.get(name)
        if name in constants or node is None or node.op_type not in {"Cast", "Identity", "DequantizeLinear"}:
            return name
        name = node.input[0]
    return name


def _find_layout(meta: InputMeta, readers: Mapping[str, list[Any]]) -> str:
    if meta.shape is None or len(meta.shape) not in (4, 5):
        return ""
    middle = "DHW"[5 - len(meta.shape) :]
    first, last = f"NC{middle}", f"N{middle}C"
    for name in _list_reached(meta.name, readers, _SAME_PLACES):
        for node in readers.get(name, ()):
            if node.op_type in _CONVOLUTIONS and node.input[0] == name:
                return first
            if node.op_type == "Transpose":
                order = next((list(item.ints) for item in node.attribute if item.name == "perm"), [])
                if order[:2] == [0, len(meta.shape) - 1]:
                    return last
    return ""


def _list_reached(
    name: str, readers: Mapping[str, list[Any]], through: frozenset[str], *, anywhere: bool = False
) -> list[str]:
    """Return the tensor, and those that hold the same after operators of these types, at most 20.

    anywhere: as any of an operator's inputs, not only as the first.
    """
    found = [name]
    for known in found:
        for node in readers.get(known, ()):
            if node.op_type in through and (anywhere or node.input[0] == known) and len(found) < _FARTHEST:
                found += [output for output in node.output[:1] if output and output not in found]
    return found
