"""Reads model files, and what a model wants to be fed with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import InputError
from precision_debug.protocols import Feeds
from precision_debug.records import InputMeta

from .engine.flat import Flat
from .engine.graph import Graph

__all__ = ["checked_feeds", "read_inputs", "read_model"]


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




def checked_feeds(feeds: Feeds, inputs: Sequence[InputMeta], where: str) -> Mapping[str, Any]:
    """The feeds as contiguous arrays, in the order of the inputs. Raises InputError."""
    names = [meta.name for meta in inputs]
    for name in feeds:
        if name not in names:
            raise InputError(f"the model has no input {name}", where=where, hint=f"it has {', '.join(names)}")
    found = {}
    for meta in inputs:
        if meta.name not in feeds:
            raise InputError(f"no value for the input {meta.name}", where=where, hint="give it with --inputs")
        array = np.asarray(feeds[meta.name])
        kind = "str" if array.dtype.kind in "OUST" else array.dtype.name
        if kind != meta.dtype:
            raise InputError(f"input {meta.name} is {kind}", where=where, hint=f"it takes {meta.dtype}")
        shape = meta.shape
        if shape is not None and (
            len(shape) != array.ndim
            or any(isinstance(dim, int) and dim != size for dim, size in zip(shape, array.shape, strict=False))
        ):
            text = ", ".join(map(str, shape))
            raise InputError(f"input {meta.name} is {list(array.shape)}", where=where, hint=f"it takes [{text}]")
        found[meta.name] = np.ascontiguousarray(array).reshape(array.shape)
    return found
