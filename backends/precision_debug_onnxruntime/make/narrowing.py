"""What a narrower type does to a model's weights: initializers and Constant nodes, of graphs at any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from precision_debug.numbers.number_types import NUMBER_TYPES
from precision_debug.onnx.graph import iterate_graphs
from precision_debug.reasons import Plain, Reason, list_some

__all__ = ["Trouble", "as_float16", "constant_tensor", "constants_of", "count_trouble", "trouble_notes"]

_FLOAT = 1
_SHOWN = 3


Says = Callable[[int, Plain], Reason]
"""Of how many weights, and which."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What is said of weights beyond a type, below its smallest number, and among its subnormals."""

    beyond: Says
    below: Says
    subnormal: Says


def constant_tensor(node: Any) -> Any:
    """Return the tensor of a Constant node; None where it has none, or the node is another."""
    if node.op_type != "Constant" or node.domain not in {"", "ai.onnx"}:
        return None
    return next((item.t for item in node.attribute if item.name == "value" and item.HasField("t")), None)


def constants_of(proto: Any, elem: int = _FLOAT) -> Iterator[tuple[str, Any]]:
    """Yield the name and array of each constant of an ONNX element type. External data must have been loaded."""
    from onnx import numpy_helper

    for graph in iterate_graphs(proto.graph):
        for tensor in graph.initializer:
            if tensor.data_type == elem:
                yield tensor.name, numpy_helper.to_array(tensor)
        for node in graph.node:
            held = constant_tensor(node)
            if held is not None and held.data_type == elem:
                yield node.output[0], numpy_helper.to_array(held)


_BLOCK = 1 << 16
"""Elements that stay in the caches while they are looked at several times."""


def count_trouble(array: Any, to: str) -> tuple[int, int, int]:
    """Return how many of an array's float32 numbers are beyond a type, below its smallest number, and in its
    subnormals."""
    narrow = NUMBER_TYPES[to]
    flat = np.asarray(array).reshape(-1)
    beyond = below = subnormal = 0
    for start in range(0, flat.size, _BLOCK):
        size = np.abs(flat[start : start + _BLOCK])
        beyond += int(np.count_nonzero((size > narrow.largest) & np.isfinite(size)))
        small = size[size < narrow.smallest_normal]
        if small.size:
            below += int(np.count_nonzero((small > 0) & (small < narrow.smallest)))
            subnormal += int(np.count_nonzero(small >= narrow.smallest))
    return beyond, below, subnormal


def as_float16(array: Any, least: float = 5.96e-08, most: float = 65504.0) -> Any:
    """Return what onnxruntime.transformers.float16.convert_np_to_float16 gives, bit for bit, in a tenth of the time.

    Positive numbers below ``least`` become it, finite ones beyond ``most`` become that, and negative ones alike.
    """
    array = np.asarray(array)
    flat, found = array.reshape(-1), np.empty(array.size, np.float16)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        size = np.abs(block)
        beyond, below = (size > most) & (size < np.inf), (size > 0) & (size < least)
        if beyond.any():
            block = np.where(beyond, np.copysign(np.asarray(most, block.dtype), block), block)
        if below.any():
            block = np.where(below, np.copysign(np.asarray(least, block.dtype), block), block)
        found[start : start + _BLOCK] = block
    return found.reshape(array.shape)


def trouble_notes(found: Mapping[str, tuple[int, int, int]], does: Trouble) -> tuple[Reason, ...]:
    """One note for each kind of trouble. found: by the name of the weight."""
    notes = []
    for place, says in enumerate((does.beyond, does.below, does.subnormal)):
        counts = {name: counted[place] for name, counted in found.items() if counted[place]}
        if counts:
            worst = sorted(counts, key=lambda name: -counts[name])
            notes.append(says(sum(counts.values()), list_some([f"{name} ({counts[name]})" for name in worst], _SHOWN)))
    return tuple(notes)
