"""Reads model files, and what a model wants to be fed with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from precision_debug.records import InputMeta

from .engine.flat import Flat
from .engine.graph import Graph

__all__ = ["read_inputs", "read_model"]


def read_model(path: str) -> Flat:
    """Raises ModelError."""
    return Flat.read(path)


def read_inputs(graph: Graph, *, raw: bool) -> Sequence[InputMeta]:
    """Return what a model is fed with. raw: quantised inputs as the file's integers, not as real numbers: else an array
    of the file's own type is them, and every other one real numbers."""
    real = graph.flat.real_numbers()
    found = []
    for value in graph.values.values():
        if value.op_type != "Input":
            continue
        meta = InputMeta(name=value.name, dtype=value.dtype, shape=value.shape)
        if value.name in real and not raw:
            scale, zero, axis = real.by_name[value.name]
            meta = replace(meta, dtype="float32")
            if axis is None:
                whole, step, point = value.dtype, float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])
                meta = replace(meta, codes=whole, scale=step, zero_point=point)
        found.append(meta)
    return tuple(found)
