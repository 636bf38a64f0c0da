"""Makes the 8-bit sums of a quantised file exact where this processor's kernel would saturate them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from precision_debug.onnx.graph import iterate_graphs
from precision_debug.onnx.model import Model
from precision_debug.reasons import Reason

from ..engine.remedies import SUMMED, adds_in_16_bits
from ..reasons import say
from .narrowing import constant_tensor

__all__ = ["make_sums_exact"]

_MOST_BYTES = 1 << 30
"""Of the weights that are made unsigned: they lie in the graph itself, which has a limit of 2 GB."""

_MIDDLE = 128


@dataclass(frozen=True, kw_only=True)
class _Read:
    """A weight that a node reads as its input number ``weight``, whose zero point is number ``zero``."""

    node: Any
    weight: int
    zero: int


def make_sums_exact(source: Model) -> tuple[Model, tuple[Reason, ...]]:
    """Return the model with signed 8-bit weights made unsigned, as are their zero points, and a note where there are
    some, or too large ones: unsigned by signed numbers are what the kernel adds in 16 bits. The numbers that they stand
    for stay.

    It is what ONNX Runtime's ``session.x64quantprecision`` does in an optimised graph (its avx2_weight_s8_to_u8), for
    the run without optimisation.
    """
    if not any(True for _ in _reads(source.proto)) or not adds_in_16_bits():
        return source, ()
    copy = type(source.proto)()
    copy.CopyFrom(source.proto)
    held = _held(copy)
    made: dict[str, str] = {}
    size = count = 0
    for read in _reads(copy):
        name = read.node.input[read.weight]
        zero = read.node.input[read.zero] if read.zero < len(read.node.input) else ""
        if not _is_signed(held.get(name)) or (zero and not _is_signed(held.get(zero))):
            continue
        size += int(np.prod(held[name].dims))
        if size > _MOST_BYTES:
            return source, (say("sums_not_exact", gigabytes=_MOST_BYTES / 1e9),)
        for place, old in ((read.weight, name), (read.zero, zero)):
            if old not in made:
                made[old] = _add_unsigned(copy.graph, held.get(old), f"{old or 'no_zero_point'}_unsigned", source)
            read.node.input.extend([""] * (place + 1 - len(read.node.input)))
            read.node.input[place] = made[old]
        count += 1
    _drop_unread(copy, set(made))
    return (dataclasses.replace(source, proto=copy), (say("sums_made_exact", count=count),)) if count else (source, ())


def _reads(proto: Any) -> Iterator[_Read]:
    """Yield what reads an 8-bit weight beside activations that are unsigned, or are quantised to that as it runs."""
    held = _held(proto)
    for graph in iterate_graphs(proto.graph):
        for node in graph.node:
            of_activations, weights = SUMMED.get(node.op_type, (-1, ()))
            zero = node.input[of_activations] if 0 <= of_activations < len(node.input) else ""
            if not _is_signed(held.get(zero)):
                yield from (_Read(node=node, weight=weight, zero=at) for weight, at in weights)


def _held(proto: Any) -> dict[str, Any]:
    """Return initializers and constants by name."""
    found = {tensor.name: tensor for graph in iterate_graphs(proto.graph) for tensor in graph.initializer}
    constants = ((node, constant_tensor(node)) for graph in iterate_graphs(proto.graph) for node in graph.node)
    return found | {node.output[0]: tensor for node, tensor in constants if tensor is not None}


def _is_signed(tensor: Any) -> bool:
    from onnx import TensorProto

    return tensor is not None and tensor.data_type == TensorProto.INT8


def _add_unsigned(graph: Any, tensor: Any, name: str, source: Model) -> str:
    """Add a constant that is 128 more than a tensor, whose absence is 0, and return its name."""
    from onnx import numpy_helper

    signed = np.int8(0) if tensor is None else numpy_helper.to_array(tensor, str(source.folder))
    graph.initializer.append(numpy_helper.from_array((signed.astype(np.int16) + _MIDDLE).astype(np.uint8), name))
    return name


def _drop_unread(proto: Any, names: set[str]) -> None:
    """Take out initializers that were made unsigned and that nothing reads any longer."""
    graphs = list(iterate_graphs(proto.graph))
    read = {name for graph in graphs for node in graph.node for name in node.input}
    read.update(item.name for graph in graphs for item in graph.output)
    for graph in graphs:
        for tensor in [one for one in graph.initializer if one.name in names - read]:
            graph.initializer.remove(tensor)
