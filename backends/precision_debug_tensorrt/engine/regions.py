"""Myelin regions of TensorRT 8: many operators compiled as a whole, of which the inspector tells the edges only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from precision_debug.inspector import EngineLayer, edge_types, is_opaque
from precision_debug.reasons import Reason
from precision_debug.records import TensorMeta

from ..naming import LayerIndex
from ..reasons import say

__all__ = ["region_notes"]

_FLOAT = 4


def region_notes(
    layers: Sequence[EngineLayer], tensors: Sequence[TensorMeta], times: Mapping[str, Mapping[str, float]],
    plan: int, proto: Any,
) -> list[Reason]:  # fmt: skip
    """What can be known of the engine's regions. times: see RegionTimes. plan: bytes. proto: None without a model."""
    regions = [layer for layer in layers if is_opaque(layer)]
    if not regions:
        return []
    index = LayerIndex(layers, {meta.name: meta.inputs for meta in tensors})
    lines = []
    for layer in regions[:8]:
        inside = sum(index.find(meta.name, meta.node) is layer for meta in tensors if meta.op_type != "Input")
        lines.append(say("region", name=layer.name, count=inside, types=edge_types(layer)))
        tried = times.get(layer.name, {})
        if len(tried) > 1:
            times_of = [say("milliseconds", time=milli, types=types) for types, milli in sorted(tried.items())]
            lines.append(say("region_timed", times=times_of))
    if len(regions) > 8:
        lines.append(say("regions_more", count=len(regions) - 8))
    if plan and proto is not None:
        weights = sum(_bytes(item) for item in proto.graph.initializer if item.data_type == 1)
        lines.append(say("engine_bytes", plan=plan, weights=weights))
    return lines


def _bytes(item: Any) -> int:
    size = _FLOAT
    for dim in item.dims:
        size *= dim
    return size
