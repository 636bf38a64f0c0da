"""Relu and Clip that onnxruntime.quantization removes, as if the quantiser behind them always clipped as they do.

It gives what comes before the name of the result. Who reads that in the body of an If, Loop or Scan reads it without
a quantiser, and so without the operator (onnxruntime/quantization/operators/activation.py, QDQRemovableActivation, and
QDQQuantizer.try_replacing_upstream_output, which look at the main graph). A quantiser's range holds zero, whatever a
Clip's bounds are, and where nothing but zeros was seen it has the scale 1 and the zero point 0: of signed integers,
negative numbers pass.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..reasons import Reason, say
from .constants import Constants
from .graph import list_outer_reads, read_attribute
from .model import Model
from .types import numpy_dtype

__all__ = ["Removed", "find_wrongly_removed", "list_not_removable", "map_wrongly_removed"]

_REMOVED = ("Relu", "Clip")
_FOLDED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add")
"""What may give the name of the result in place of what came before it, where that was folded or split."""
_UNKNOWN = (math.nan, math.nan)
_UINT8 = 2
"""TensorProto's number of the type that a quantiser without a zero point, and without ``output_dtype``, gives."""


def list_not_removable(model: Model) -> dict[str, Reason]:
    """Return names of the nodes of a float model that a quantiser's range does not replace, whatever it is, and why."""
    graph, constants = model.proto.graph, Constants(model)
    inside = {name for node in graph.node for name in list_outer_reads(node)}
    readers = Counter(name for node in graph.node for name in node.input)
    found: dict[str, Reason] = {}
    for node in graph.node:
        if node.op_type not in _REMOVED:
            continue
        low, high = _bounds_of(node, constants)
        if node.output[0] in inside or (node.input[0] in inside and readers[node.input[0]] == 1):
            found[node.name] = say("read_in_a_body")
        elif not low <= 0 <= high:
            found[node.name] = say("bounds_without_zero")
    return found


def find_wrongly_removed(before: Model, after: Model) -> dict[str, Reason]:
    """Return the nodes that quantisation removed though nothing does their work, and why, by name.

    They are nodes of the float model that are gone from the quantised one."""
    left, ranges = {node.name for node in after.proto.graph.node}, _find_ranges(after)
    made = {name: node.op_type for node in before.proto.graph.node for name in node.output}
    makes = {name: node.op_type for node in after.proto.graph.node for name in node.output}
    gone = {
        node.name: node for node in before.proto.graph.node
        if node.op_type in _REMOVED and node.name not in left and node.output[0] in ranges
        and makes.get(node.output[0]) in {made.get(node.input[0]), *_FOLDED}
    }  # fmt: skip
    if not gone:
        return {}
    found = {name: why for name, why in list_not_removable(before).items() if name in gone}
    constants = Constants(before)
    for name, node in gone.items():
        low, high = _bounds_of(node, constants)
        least, most, step = ranges[node.output[0]]
        if name not in found and not (least >= low - step and most <= high + step):
            found[name] = say("range_beyond_bounds", least=least, most=most)
    return found


@dataclass(frozen=True, kw_only=True)
class Removed:
    """An operator that a quantiser removed though nothing does its work: its node, and what it clipped to."""

    node: str
    op_type: str
    low: float
    high: float


def map_wrongly_removed(before: Model, after: Model) -> dict[str, Removed]:
    """Return what was removed wrongly (see ``find_wrongly_removed``), by the tensor that it made."""
    gone, constants = find_wrongly_removed(before, after), Constants(before)
    found = {}
    for node in before.proto.graph.node:
        if node.name in gone:
            low, high = _bounds_of(node, constants)
            found[node.output[0]] = Removed(node=node.name, op_type=node.op_type, low=low, high=high)
    return found


def _bounds_of(node: Any, constants: Mapping[str, Any]) -> tuple[float, float]:
    """Return what it clips to; NaN where that is not known before it runs."""
    if node.op_type == "Relu":
        return 0.0, math.inf
    bounds = [float(read_attribute(node, "min", -math.inf)), float(read_attribute(node, "max", math.inf))]
    for place, name in enumerate(node.input[1:3]):
        if name:
            value = constants.get(name)
            if value is None or value.size != 1:
                return _UNKNOWN
            bounds[place] = float(value.reshape(())[()])
    return bounds[0], bounds[1]


def _find_ranges(model: Model) -> dict[str, tuple[float, float, float]]:
    """Of each tensor that is quantised with one scale: the least and the largest number, and the step between two."""
    constants = Constants(model)
    found: dict[str, tuple[float, float, float]] = {}
    for node in model.proto.graph.node:
        if node.op_type != "QuantizeLinear":
            continue
        named = node.input[2] if len(node.input) > 2 else ""
        scale, zero = constants.get(node.input[1]), constants.get(named) if named else None
        if scale is None or scale.size != 1 or (named and zero is None):
            continue
        dtype = zero.dtype if zero is not None else numpy_dtype(int(read_attribute(node, "output_dtype", 0)) or _UINT8)
        ends = _ends(dtype) if dtype is not None else None
        if ends is None:
            continue
        step, point = float(scale.reshape(())), 0.0 if zero is None else float(zero.reshape(()))
        found[node.input[0]] = ((ends[0] - point) * step, (ends[1] - point) * step, step)
    return found


def _ends(dtype: np.dtype[Any]) -> tuple[float, float] | None:
    """Return the least and the largest number of a type, or None of a type that has none.

    Also of integers of 4 bits and of float8, which numpy's ``kind`` does not tell."""
    import ml_dtypes

    for info in (ml_dtypes.iinfo, ml_dtypes.finfo):
        try:
            found = info(dtype)
        except (TypeError, ValueError):
            continue
        return float(found.min), float(found.max)
    return None
