"""A session on somebody's own Config: nothing is set but which program it loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from precision_debug.errors import UsageError
from precision_debug.protocols import Watching
from precision_debug.reasons.ways import NO_WAY, way
from precision_debug.records import ModelFiles

from .. import modes
from ..make import make_config
from ..model import Model, read_model
from ..opening import IN_PLACE
from ..session import HookSession
from . import capability
from .fetchable import Trace
from .fetched_session import FetchSession
from .framework import import_inference
from .pir_bodies import PirBodies
from .predictor import Runner

__all__ = ["make_watching"]

_MODE = "watched"
_NARROW = frozenset({"bfloat16", "float16", "int8", "uint8"})


def make_watching(config: Any, folder: Path) -> Watching | None:
    """None: this is nothing of Paddle's. folder: an existing one for edited programs. Raises our errors."""
    if not type(config).__module__.startswith("paddle"):
        return None
    inference = import_inference()
    if not isinstance(config, inference.Config):
        raise UsageError(
            f"a {type(config).__name__} does not say how it was configured", where="watch",
            hint="give the Config that it was made of: watch(config)",
        )  # fmt: skip
    model = _model_of(config)
    onednn = bool((getattr(config, "onednn_enabled", None) or config.mkldnn_enabled)())
    gpu = bool(config.use_gpu())
    versions = capability.versions(gpu=gpu, tensorrt=False)
    config = inference.Config(config)  # which the caller may change later
    own = inference.Config(config)
    if not model.program.pir and not onednn:
        runner = Runner(own, where=model.path, mode=_MODE)
        hooked = HookSession(model, runner, versions=versions, on_cpu=not gpu)
        outputs = {name: name for name in runner.output_names}
        return Watching(session=hooked, config=config, inputs=tuple(runner.input_names), outputs=outputs)
    return _watching_fetched(model, config, own, folder, versions, onednn=onednn, gpu=gpu)


def _model_of(config: Any) -> Model:
    """Return the model that a Config names. Raises UsageError where its tensors cannot be watched."""
    if config.model_from_memory():
        raise UsageError("the model is in memory", where="watch", hint="give the Config the model's files")
    if config.tensorrt_engine_enabled():
        raise UsageError(
            "an engine of TensorRT is watched by its marks", where="watch", hint="use a trt mode of the command line"
        )
    return read_model(
        ModelFiles(model_file=config.prog_file(), params_file=config.params_file())
        if config.prog_file()
        else ModelFiles(model_dir=config.model_dir())
    )


def _watching_fetched(
    model: Model, config: Any, own: Any, folder: Path, versions: Mapping[str, str], *, onednn: bool, gpu: bool
) -> Watching:
    """Of a PIR program, or under oneDNN: each run is one of edited programs. own: a copy of ``config`` that stays as it
    is."""
    inference = import_inference()
    types: set[str] = set()

    def start(program: Path, what: str) -> Runner:
        device = "gpu" if gpu else "cpu"
        if what == "unfused" or (what == "float32" and types & _NARROW):
            optimised = "onednn_fp32" if onednn else "gpu_opt" if gpu else "cpu_opt"
            recipe = modes.recipe(optimised if what == "float32" else "gpu_fp32" if gpu else "cpu_fp32")
            return Runner(make_config(recipe, program, model.params, {}, device=device), where=model.path, mode=_MODE)
        copy = inference.Config(own)
        copy.set_model(str(program), str(model.params))
        if program != model.file:
            copy.delete_pass(IN_PLACE)
        return Runner(copy, where=model.path, mode=_MODE)

    def look(trace: Trace) -> None:
        types.update(trace.types)

    view = way("unblocked") if onednn else NO_WAY
    runner = start(model.file, "")  # for the predictor's own names alone
    known = {value.output: value.name for value in model.program.values if value.output}
    inputs, outputs = tuple(runner.input_names), {name: known.get(name, name) for name in runner.output_names}
    runner.close()
    session = FetchSession(
        model, start, unfused=False, view=view, folder=folder, versions=versions, check=look,
        plain=not onednn and not gpu,
        bodies=PirBodies.of(
            model.program, lambda what: start(model.file, what), changed=True, narrow=True, limit=1 << 30
        ),
    )  # fmt: skip
    return Watching(session=session, config=config, inputs=inputs, outputs=outputs)
