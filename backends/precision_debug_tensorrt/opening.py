"""Opens a model: reads it, chooses the road, builds the real engine, and asks its inspector."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, BackendUnavailable, ModelError, UsageError
from precision_debug.reasons import Reason
from precision_debug.records import InputMeta, SessionSpec
from precision_debug.settings import get_passed

from .engine.constraints import Asked
from .engine.device_memory import find_device
from .engine.execution import Runner, engine_inputs, engine_outputs
from .engine.kept import find_precisions
from .engine.messages import Messages, make_logger
from .engine.network import make_network
from .engine.options import Options, read_options
from .engine.session_facts import gather
from .engine.strongly_typed import save_typed
from .engine.timing_cache import TimingCache
from .engine.types import dtype_name
from .engine.versions import Api, load_api
from .failures import add_suspect
from .make import (
    LOOKED_AT,
    Built,
    Maker,
    build_typed,
    choose_road,
    drop_size_names,
    load_engine,
    make_typed_source,
)  # fmt: skip
from .model import EngineFile, OnnxModel, Source, read_source
from .modes import Recipe
from .reasons import say
from .session import TensorRTSession

__all__ = ["open_session", "read_inputs"]


def open_session(
    spec: SessionSpec, recipe: Recipe, feeds: Sequence[Mapping[str, Any]], *, on_device: bool = False
) -> TensorRTSession:
    """Build or load the engine. on_device: the hook takes tensors of the device.

    Raises UsageError, ModelError, MarkError, BackendUnavailable or BackendError.
    """
    options = dataclasses.replace(read_options(spec.options), on_device=on_device)
    api = load_api(recipe.edition)
    source = read_source(spec.model)
    road = choose_road(api, recipe, options, source)
    device = find_device()
    messages, logger = _start(api, options)
    arrays = [{name: np.asarray(value) for name, value in feed.items()} for feed in feeds]
    notes: list[Reason] = []
    if isinstance(source, OnnxModel):
        given, source = source, drop_size_names(source, arrays)
        notes += [say("size_names_dropped")] if source is not given else []
    asked: tuple[Asked, ...] = ()
    maker: Maker | None = None
    if options.save_model and not (road.strong and isinstance(source, OnnxModel)):
        raise UsageError(
            "only a strongly typed engine is built from a changed model", where="--save_model",
            hint="--save_engine keeps the engine; --typing strong writes the precisions into the model",
        )  # fmt: skip
    if isinstance(source, EngineFile):
        built = load_engine(api, logger, messages, source)
    else:
        timing = TimingCache(options.timing_cache, anew=bool(get_passed(spec.options, "anew")))
        notes += [say("timing_read", bytes=timing.loaded)] if timing.loaded else []
        alike = options.fused_only and api.replays_tactics
        marks = (not api.debug_tensors or options.observe == "marks") and not alike
        if marks and (level := options.optimization_level or 0) > LOOKED_AT:
            notes.append(say("looked_at_level", level=LOOKED_AT, asked=level))
        make = functools.partial(
            Maker, api=api, logger=logger, messages=messages, recipe=recipe, options=options, road=road,
            device=device, feeds=arrays, timing=timing,
        )  # fmt: skip
        if road.strong and isinstance(source, OnnxModel):
            maker, built, source, written, asked = _build_typed(make, source, spec.work_dir)
            notes += written
        else:
            maker = make(source=source)
            built = maker.build()
        notes += [say("timing_refused", path=options.timing_cache)] if messages.cache_refused else []
    text, layers = _inspect_engine(api, built, device, messages, source, arrays[0])
    if maker is not None and recipe.precisions:
        maker.like = find_precisions(built.layers, layers, binding=options.precision_constraints == "obey")
    facts = gather(
        api=api, device=device, messages=messages, source=source, recipe=recipe, options=options, road=road,
        built=built, inspector=text, layers=layers, inputs=engine_inputs(api, built.engine),
        outputs=engine_outputs(api, built.engine), samples=len(arrays), extra_notes=notes, asked=asked,
    )  # fmt: skip
    return TensorRTSession(facts=facts, built=built, maker=maker)


def _build_typed(
    make: Callable[..., Maker], untyped: OnnxModel, work_dir: str
) -> tuple[Maker, Built, OnnxModel, list[Reason], tuple[Asked, ...]]:
    """Of a strongly typed network the model itself brings the precisions: it is written with them, and built, until the
    builder takes it. make: a Maker of a source. See ``build_typed`` for what comes back."""
    folder = Path(work_dir or tempfile.mkdtemp(prefix="precision_debug-"))
    first = make(source=untyped)

    def typed(kept: Sequence[str]) -> tuple[OnnxModel, list[Reason], tuple[Asked, ...]]:
        return make_typed_source(
            first.api, first.logger, first.messages, untyped, first.recipe, first.options, first.feeds, folder,
            refused_by_builder=kept,
        )  # fmt: skip

    def made(source: OnnxModel) -> tuple[Maker, Built]:
        one = make(source=source)
        return one, one.build()

    (maker, built), source, notes, asked = build_typed(typed, made)
    if first.options.save_model:
        save_typed(source.model, first.options.save_model)
    return maker, built, source, notes, asked


def read_inputs(spec: SessionSpec, recipe: Recipe) -> tuple[InputMeta, ...]:
    """Return the model's inputs; an engine is loaded for them, a script's network is made. Raises ModelError."""
    source = read_source(spec.model)
    if isinstance(source, OnnxModel):
        return source.inputs
    api, options = load_api(recipe.edition), read_options(spec.options)
    find_device()  # without a GPU, TensorRT 8's runtime ends the process
    messages, logger = _start(api, options)
    if isinstance(source, EngineFile):
        engine = load_engine(api, logger, messages, source).engine
        return tuple(
            InputMeta(
                name=name, dtype=dtype_name(engine.get_tensor_dtype(name)), shape=_dims(engine.get_tensor_shape(name))
            )
            for name in engine_inputs(api, engine)
        )
    made = make_network(api, logger, messages, source, strong=_is_strongly_typed(api, options))
    tensors = (made.network.get_input(place) for place in range(made.network.num_inputs))
    return tuple(InputMeta(name=t.name, dtype=dtype_name(t.dtype), shape=_dims(t.shape)) for t in tensors)


def _is_strongly_typed(api: Api, options: Options) -> bool:
    return options.typing == "strong" or not api.weakly_typed


def _dims(shape: Any) -> tuple[int | str, ...]:
    return tuple(int(dim) if dim >= 0 else f"dim{place}" for place, dim in enumerate(shape))


def _start(api: Api, options: Options) -> tuple[Messages, Any]:
    messages = Messages()
    logger = make_logger(api.trt, messages)
    for library in options.plugins:
        try:
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ModelError(
                f"the plugin library cannot be loaded: {error}", where=library, hint="check --plugins"
            ) from error
    if not api.trt.init_libnvinfer_plugins(logger, ""):
        raise BackendUnavailable("TensorRT's own plugins cannot be registered", where="libnvinfer_plugin")
    return messages, logger


def _inspect_engine(
    api: Api, built: Built, device: Any, messages: Messages, source: Source, feeds: Mapping[str, Any]
) -> tuple[str, Any]:
    try:
        runner = Runner(api, built, device, messages, source.path)
    except BackendError as error:
        raise add_suspect(error, source) from error
    try:
        runner.set_inputs(feeds)
        return runner.inspect()
    finally:
        runner.close()
