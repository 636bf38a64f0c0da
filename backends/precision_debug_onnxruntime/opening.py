"""From a model file and a recipe to a session: build the graph that runs, list its tensors, say what is special."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from precision_debug.onnx.graph import iterate_values
from precision_debug.onnx.model import Model, may_threads_read
from precision_debug.protocols import Feeds, Session
from precision_debug.reasons import Reason
from precision_debug.reasons.ways import way
from precision_debug.records import SessionSpec
from precision_debug.report.sections import find_processor

from .engine import taps
from .engine.opened import open_unoptimised
from .engine.rewritten import turned, with_absorbed, with_quantised_again
from .engine.runtime import Runtime
from .engine.source_tensors import Known
from .engine.stock_script import FLOAT8
from .engine.tensor_list import Entry, Sizes, list_tensors, with_dropped
from .keep import Blocked
from .make import Built, build, change_model
from .make.running_graph import infer_types
from .make.saving import save
from .make.simulate import behind_operator, is_internal, is_rounded
from .model import find_run_folder, read_source
from .modes import Recipe
from .naming import Holding, find_holdings
from .reasons import say
from .session import Opening, OrtSession
from .settings import setting

__all__ = ["open_session"]


def open_session(spec: SessionSpec, recipe: Recipe, feeds: Sequence[Feeds], *, on_device: bool = False) -> Session:
    """Open a model by a recipe; feeds calibrate it where it is quantised.

    on_device: the session's hooks take tensors of the device. Temporary files go to ``spec.work_dir``; without one, to
    a folder that goes with the session.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{recipe.mode.name}-", dir=spec.work_dir or None))
    try:
        session = _open_session(spec, recipe, feeds, folder, on_device)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not spec.work_dir:
        weakref.finalize(session, shutil.rmtree, folder, ignore_errors=True)
    return session


def _open_session(
    spec: SessionSpec, recipe: Recipe, feeds: Sequence[Feeds], folder: Path, on_device: bool
) -> OrtSession:  # fmt: skip
    import onnxruntime as ort

    settings = dict(spec.options)
    options = recipe.provider_options(settings)
    runtime = Runtime(providers=recipe.providers, provider_options=options, settings=settings, cores=spec.cores)
    source = read_source(spec.model.model_file, find_run_folder(spec))
    model, notes = change_model(source, recipe, runtime, feeds, folder)
    if wanted := setting(settings, "save_model"):
        save(model, source.proto, Path(wanted))
        notes = (*notes, say("model_saved", path=wanted))
    sizes = functools.cache(lambda: _find_sizes(source, runtime, folder))  # only where layouts are changed
    with ThreadPoolExecutor(1) as beside:  # what does not depend on ONNX Runtime's work is done meanwhile
        knowing = beside.submit(Known.of, source.proto.graph, model.proto.graph)
        if not may_threads_read():
            knowing.result()
        elif recipe.optimise and any(node.op_type == "Conv" for node in model.proto.graph.node):
            beside.submit(sizes)  # convolutions change layouts
        built = build(source, model, recipe, runtime, folder)
        known = knowing.result()
    if recipe.optimise:
        known = dataclasses.replace(known, turned=turned(built.running.proto.graph, built.types, known, sizes))
    entries, holdings = _list(built, known, lambda name: sizes().get(name))
    if recipe.optimise:
        entries = with_absorbed(entries, holdings, known)
        entries = with_quantised_again(entries, built.running.proto.graph, model.proto.graph, built.types)
    if recipe.change == "" and not recipe.optimise:
        entries = with_dropped(entries, source.proto.graph)
    if recipe.mode.simulation:
        blocked = Blocked.of(runtime, source, built.running)
        entries = [_as_rounded(entry, recipe, blocked) for entry in entries if not is_internal(entry.value.name)]

    def open_of(running: Model, some: Sequence[Entry], notes: tuple[Reason, ...], opened: Opening) -> OrtSession:
        return OrtSession(
            model=running, source=source, made=model, entries=some, runtime=runtime, notes=notes, opened=opened,
            versions={"onnxruntime": ort.__version__, "device": find_processor()},
            arithmetic=_find_arithmetic(recipe, settings), on_device=on_device,
        )  # fmt: skip

    def make() -> tuple[list[Entry], Callable[[Sequence[Entry]], Session]]:
        plain = build(source, model, dataclasses.replace(recipe, optimise=False), runtime, folder)
        found, _ = _list(plain, dataclasses.replace(known, turned={}), lambda name: sizes().get(name))
        return found, lambda some: open_of(plain.running, some, (), None)

    # without a change the unoptimised file is the baseline itself
    hides = recipe.optimise and bool(recipe.change) and recipe.engine == "cpu" and not on_device
    notes = (*built.notes, *notes, *_engine_notes(recipe, settings))
    return open_of(
        built.running, entries, notes, functools.partial(open_unoptimised, entries, known, make) if hides else None
    )


def _list(built: Built, known: Known, sizes: Sizes) -> tuple[list[Entry], Mapping[tuple[Any, str], Holding]]:
    graph = built.running.proto.graph
    holdings = find_holdings(graph, built.types, known)
    return list_tensors(graph, built.types, holdings, known.source.repeated, sizes, known.missing), holdings


def _find_arithmetic(recipe: Recipe, settings: Mapping[str, Any]) -> str:
    """Return the type that it computes in, where that is another one than the mode promises."""
    if recipe.change == "int8" and setting(settings, "activation_type") == FLOAT8:
        return "float8_e4m3fn"
    return "tf32" if _is_in_tf32(recipe, settings) else ""


def _is_in_tf32(recipe: Recipe, settings: Mapping[str, Any]) -> bool:
    """Return whether CUDA's provider computes float32 products in TF32, which is its default."""
    return recipe.engine == "cuda" and recipe.change == "" and setting(settings, "use_tf32") is not False


def _engine_notes(recipe: Recipe, settings: Mapping[str, Any]) -> tuple[Reason, ...]:
    if recipe.engine == "cuda":
        kept = setting(settings, "op_block_list") or setting(settings, "node_block_list")
        if recipe.change == "float16" and not kept:
            return ()  # no product is left in float32
        if setting(settings, "use_tf32") is False:
            return (say("tf32_off"),)
        return (say("tf32_on"),)
    if recipe.engine == "tensorrt":
        return (say("shown_ends_subgraph"),)
    return () if taps.borrows_memory() else (say("python_taps"),)


def _as_rounded(entry: Entry, recipe: Recipe, blocked: Blocked) -> Entry:
    """Say of a float32 tensor that its numbers are those of the simulated type."""
    to = recipe.change.removesuffix("_sim")
    if behind_operator(entry.value.node) and entry.meta.dtype == to:  # ORT names its type where the next cast reads it
        entry = dataclasses.replace(entry, meta=dataclasses.replace(entry.meta, dtype="float32"))
    if (
        not is_rounded(entry.value.node, entry.value.scope, blocked)
        or entry.meta.dtype != "float32"
        or entry.meta.view
        or entry.meta.op_type == "Input"
    ):
        return entry
    kept = entry.meta.op_type in blocked.ops or entry.meta.node in blocked.nodes
    view = way("rounded to {type} behind float32", type=to) if (
        kept or blocked.covers_scope(entry.value.scope)
    ) else way("rounded to {type}", type=to)
    return dataclasses.replace(entry, meta=dataclasses.replace(entry.meta, view=view), rounds_to=to)


def _find_sizes(source: Model, runtime: Runtime, folder: Path) -> dict[str, tuple[int | str, ...] | None]:
    """Return shapes of the source model's tensors."""
    types = infer_types(source, runtime, folder)
    known: dict[str, tuple[int | str, ...] | None] = {}
    for value in iterate_values(source.proto.graph):
        known.setdefault(value.name, types.of(value.scope.key, value.name).shape)
    return known
