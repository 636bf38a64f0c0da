"""Reads model files, and what a model wants to be fed with."""

from __future__ import annotations

from collections.abc import Sequence

from precision_debug.records import InputMeta

from .engine.flat import Flat
from .engine.graph import Graph

__all__ = ["read_inputs", "read_model"]


def read_model(path: str) -> Flat:
    """Raises ModelError."""
    return Flat.read(path)


def read_inputs(graph: Graph, *, raw: bool) -> Sequence[InputMeta]:
    """What a model is fed with. raw: quantised inputs as the file's integers, not as real numbers."""
    real = graph.flat.real_numbers()
    return tuple(
        InputMeta(
            name=value.name, dtype="float32" if value.name in real and not raw else value.dtype,
            shape=value.shape,
        )
        for value in graph.values.values() if value.op_type == "Input"
    )  # fmt: skip
