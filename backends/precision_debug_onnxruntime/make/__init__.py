"""Makes the graph that runs: conversion, quantisation or simulation, then ONNX Runtime's own optimised graph."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from precision_debug.onnx.graph import iterate_graphs, reorder
from precision_debug.onnx.model import Model
from precision_debug.protocols import Feeds
from precision_debug.reasons import Reason

from ..engine.remedies import raise_constants
from ..engine.tensor_list import rounds_what_it_reads
from ..engine.types import Types
from ..keep import Blocked
from ..reasons import say
from ..settings import setting
from .exact_sums import make_sums_exact
from .float16 import after_conversion, convert, float16_notes, narrow_on_cpu
from .opset import raise_opset
from .running_graph import dump, infer_types, read_unoptimised

if TYPE_CHECKING:
    from ..engine.runtime import Runtime
    from ..modes import Recipe

__all__ = ["Built", "build", "change_model"]

_IN_FLOAT32 = 1
"""``accuracy_level`` of MatMulNBits that multiplies in float32."""

_CASTS_SINCE = {"bfloat16": 13, "float8_e4m3fn": 19, "float8_e5m2": 19}
"""The opset from which on ONNX's Cast knows a type; float16 it always knew."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """running: what ONNX Runtime makes of the graph that it was given, with the types of all its values.

    notes: what the reader of a report must know about how it came about.
    """

    running: Model
    types: Types
    notes: tuple[Reason, ...] = ()


def change_model(
    source: Model, recipe: Recipe, runtime: Runtime, feeds: Sequence[Feeds], folder: Path
) -> tuple[Model, tuple[Reason, ...]]:
    """Return the graph that a run mode gives to ONNX Runtime, converted or quantised, and notes on how it came about.

    What has to be written goes to folder. Raises ModelError or BackendError.
    """
    runtime = _runtime_for_writing(runtime, recipe)
    if recipe.quantises:
        from .quantise import quantise

        return quantise(source, recipe.change, runtime, feeds, folder)
    if recipe.change == "float16":
        return convert(source, runtime, folder)
    if recipe.change.endswith("_sim") and (least := setting(runtime.settings, "raise_constants")):
        copy = type(source.proto)()
        copy.CopyFrom(source.proto)
        raise_constants(copy, least)
        source = dataclasses.replace(source, proto=copy)
    if not recipe.change and not recipe.optimise and recipe.mode.precision == "float32":
        exact, notes = make_sums_exact(source)
        widened, more = _multiply_in_float32(exact)
        return widened, (*notes, *more)
    notes = ()
    if recipe.change.endswith("_sim"):
        source, notes = make_sums_exact(source)  # whose sums are no processor's
    simulated = recipe.change.removesuffix("_sim")
    if simulated != recipe.change and simulated in _CASTS_SINCE:
        raised, more = raise_opset(source, _CASTS_SINCE[simulated], simulated)
        return raised, (*notes, *more)
    return source, notes


def _multiply_in_float32(source: Model) -> tuple[Model, tuple[Reason, ...]]:
    """Return the model with what its file lets multiply in int8 done in float32, and a note where there is some:
    whoever asks for the unfused run in float32 asks what that costs."""
    if not any(map(_may_multiply_in_int8, _nodes(source.proto))):
        return source, ()
    copy = type(source.proto)()
    copy.CopyFrom(source.proto)
    count = 0
    for node in filter(_may_multiply_in_int8, _nodes(copy)):
        next(one for one in node.attribute if one.name == "accuracy_level").i = _IN_FLOAT32
        count += 1
    return dataclasses.replace(source, proto=copy), (say("multiplied_in_float32", count=count),)


def _nodes(proto: Any) -> Iterator[Any]:
    return (node for graph in iterate_graphs(proto.graph) for node in graph.node)


def _may_multiply_in_int8(node: Any) -> bool:
    return node.op_type == "MatMulNBits" and rounds_what_it_reads(node)


def build(source: Model, model: Model, recipe: Recipe, runtime: Runtime, folder: Path) -> Built:
    """Build the graph of a run mode out of what ``change_model`` returned. Raises ModelError or BackendError."""
    runtime = _runtime_for_writing(runtime, recipe)
    notes: tuple[Reason, ...] = ()
    running = _run_as(model, recipe, runtime, folder)
    reorder(running.proto.graph, _number_places(source))
    types = infer_types(running, runtime, folder)
    if recipe.change.endswith("_sim"):
        from .simulate import simulate

        running, notes = simulate(
            running, types, recipe.change.removesuffix("_sim"), folder, Blocked.of(runtime, source, running)
        )
        types = infer_types(running, runtime, folder)
    if not recipe.change and recipe.engine == "cpu":
        notes = narrow_on_cpu(running, types)
    if recipe.change == "float16":
        notes = float16_notes(running, types, recipe.engine == "cpu")
    return Built(running=running, types=types, notes=notes)


def _runtime_for_writing(runtime: Runtime, recipe: Recipe) -> Runtime:
    """Return how sessions are opened whose graphs are written: one with TensorRT's compiled nodes cannot be."""
    if recipe.engine != "tensorrt":
        return runtime
    return dataclasses.replace(runtime, providers=("CPUExecutionProvider",), provider_options=())


def _run_as(model: Model, recipe: Recipe, runtime: Runtime, folder: Path) -> Model:
    with _explain_errors_after(recipe):
        return dump(model, runtime, folder, "all") if recipe.optimise else read_unoptimised(model, runtime, folder)


def _explain_errors_after(recipe: Recipe) -> contextlib.AbstractContextManager[None]:
    if recipe.quantises:
        from .quantise import after_quantisation

        return after_quantisation()
    return after_conversion() if recipe.change == "float16" else contextlib.nullcontext()


def _number_places(source: Model) -> dict[str, int]:
    """Return the place of each node and output in the source model, so that every mode runs in its order."""
    places: dict[str, int] = {}
    for graph in iterate_graphs(source.proto.graph):
        for node in graph.node:
            place = len(places)
            for name in (node.name, *node.output):
                if name:
                    places.setdefault(name, place)
    return places
