"""Paddle 3's TensorRT for PIR programs: the paddle.tensorrt package. Written by its source; not run on hardware.

It has no marks and no inspector: only what leaves a subgraph can be seen, so every value is fetched, and the fusion is
not the one that ships. The converter runs the program once to learn its shapes; it is given the feeds themselves.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import BackendUnavailable, UsageError
from precision_debug.numbers.number_types import NUMBER_TYPES
from precision_debug.protocols import Feeds, Session
from precision_debug.reasons.ways import NO_WAY
from precision_debug.records import SessionSpec

from .. import modes
from ..failures import our_errors
from ..make import make_config
from ..model import Model
from ..modes import Recipe
from ..reasons import say
from ..settings import setting
from . import tf32
from .fetched_session import FetchSession
from .pir_program import name_fetches
from .predictor import Runner

__all__ = ["open_pir"]



def open_pir(
    spec: SessionSpec, model: Model, recipe: Recipe, feeds: Sequence[Feeds], folder: Path, versions: Mapping[str, str]
) -> Session:
    """Return a session in which every value of the program leaves its TensorRT engine. Raises our errors."""
    if not feeds:
        raise UsageError("an engine is built for given inputs, and there are none", where=model.path)
    if setting(spec.options, "fused_only"):
        raise UsageError(
            "paddle.tensorrt has no inspector, so the fused layers of a PIR model are not known", where="--fused_only",
            hint="leave it out, or export the model with Paddle 2.6 (.pdmodel)",
        )  # fmt: skip
    if recipe.precision == "int8":
        raise BackendUnavailable(
            "paddle.tensorrt does not calibrate", where=model.path, hint="use trt_int8 on a legacy program (.pdmodel)"
        )
    try:
        converter = importlib.import_module("paddle.tensorrt")
    except ImportError as error:
        raise BackendUnavailable(
            "the paddle.tensorrt package is not in this wheel", where=model.path,
            hint="install paddlepaddle-gpu 3 and tensorrt",
        ) from error  # fmt: skip

    def start(program: Path, _: str) -> Runner:
        target = program.with_name(f"{program.stem}_trt")
        with our_errors(model.path, mode=spec.mode):
            beside = program.with_suffix(".pdiparams")
            if not beside.exists():
                beside.symlink_to(model.params.resolve())
            converter.convert(str(program.with_suffix("")), _config(converter, spec, recipe, feeds, target))
            name_fetches(target.with_suffix(".json"), program)  # Paddle saves it with names of its own
            config = make_config(
                modes.recipe("gpu_opt"), target.with_suffix(".json"), target.with_suffix(".pdiparams"), spec.options,
                device="gpu",
            )  # fmt: skip
        return Runner(config, where=model.path, mode=spec.mode)

    about = tf32.tensorrt_note(recipe, spec.options)
    session = FetchSession(
        model, start, unfused=True, view=NO_WAY, folder=folder, versions=versions,
        notes=(
            *((about,) if about else ()),
            say("paddle_tensorrt"),
        ),
        limit=setting(spec.options, "fetch_bytes"),
    )  # fmt: skip
    session.plan(feeds[0])
    return session


def _config(converter: Any, spec: SessionSpec, recipe: Recipe, feeds: Sequence[Feeds], target: Path) -> Any:
    options = spec.options
    names = list(feeds[0])
    return converter.TensorRTConfig(
        inputs=[_input(converter, options, name, feeds) for name in names],
        min_subgraph_size=setting(options, "min_subgraph_size"),
        save_model_dir=str(target),
        disable_ops=_operators(setting(options, "disable_tensorrt_ops")) or None,
        precision_mode=converter.PrecisionMode[NUMBER_TYPES[recipe.precision].short],
        ops_run_float=_operators(setting(options, "disable_mixed_precision_ops")) or None,
        disable_passes=list(setting(options, "delete_pass")),
        workspace_size=setting(options, "workspace"),
    )


def _operators(types: Sequence[str]) -> list[str]:
    """Return types as Paddle 3 names them, with their dialect."""
    return [name if "." in name else f"pd_op.{name}" for name in types]


def _input(converter: Any, options: Mapping[str, Any], name: str, feeds: Sequence[Feeds]) -> Any:
    low, best, high = (setting(options, key) for key in ("min_shapes", "opt_shapes", "max_shapes"))
    if low and best and high:
        return converter.Input(
            min_input_shape=low[name], optim_input_shape=best[name], max_input_shape=high[name], name=name,
            input_data_type=str(np.asarray(feeds[0][name]).dtype),
        )  # fmt: skip
    return converter.Input(warmup_data=tuple(np.asarray(item[name]) for item in feeds), name=name)
