"""From a run mode and a model to the session that shows its tensors."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from precision_debug.errors import BackendUnavailable, ModelError, PrecisionDebugError, UsageError
from precision_debug.feeds.training_step import choose_loss_scale, tell_memory
from precision_debug.protocols import Feeds, Session
from precision_debug.reasons import Reason, suggest_nearest
from precision_debug.reasons.ways import NO_WAY, Way, way
from precision_debug.records import SessionSpec
from precision_debug.settings import get_passed
from precision_debug.settings.setting import FORWARD

from . import modes
from .engine import capability, tf32
from .engine.bfloat16 import build_and_count, estimate_opening_seconds, find_first_running
from .engine.fetchable import Trace
from .engine.fetched_session import FetchSession, most_builds
from .engine.pir_bodies import PirBodies
from .engine.pir_program import PirProgram, read_pir
from .engine.predictor import Runner
from .engine.recorded import Bodies, make_survival_trial
from .make import make_config
from .model import Model
from .modes import Recipe
from .reasons import say
from .session import HookSession
from .settings import setting

if TYPE_CHECKING:
    from precision_debug.feeds.training_step import StepParts

    from .engine.dynamic_model import Layer
    from .engine.training.step import Step

__all__ = ["IN_PLACE", "device_of", "open_layer", "open_session"]

_TIMED = 3
"""Predictors of a search for what can be fetched from which the time of all is told."""

IN_PLACE = "inplace_pass"  # the kernels compute the same bits into memory of their own


def open_session(spec: SessionSpec, model: Model, recipe: Recipe, feeds: Sequence[Feeds], folder: Path) -> Session:
    """folder: an existing one for what is written. Raises our errors."""
    if model.program.pir and recipe.onednn and setting(spec.options, "bfloat16_ops"):
        raise UsageError(say("bfloat16_ops_of_pir"), where="--option bfloat16_ops", hint=say("export_legacy"))
    if recipe.onednn and (kept := setting(spec.options, "keep_operators")):
        model = with_kept(model, kept, folder)
    device, notes = device_of(recipe)
    versions = capability.versions(gpu=device == "gpu", tensorrt=recipe.tensorrt)
    if recipe.tensorrt:
        from .engine.tensorrt_session import open_tensorrt

        return open_tensorrt(spec, model, recipe, feeds, folder, versions)
    if device == "gpu" and recipe.precision == "float32" and (said := tf32.turn_off_tf32(spec.options)):
        notes = (*notes, said)
    if not model.program.pir and not recipe.onednn:
        return _open_hooked(spec, model, recipe, feeds, folder, device, versions, notes)
    return _open_fetched(spec, model, recipe, feeds, folder, device, versions, notes)


def _open_hooked(
    spec: SessionSpec, model: Model, recipe: Recipe, feeds: Sequence[Feeds], folder: Path, device: str,
    versions: Mapping[str, str], notes: Sequence[Reason],
) -> Session:  # fmt: skip
    """Return a legacy program outside oneDNN: Paddle's own hook shows its tensors as they are."""

    def start(program: Path) -> Runner:
        config = make_config(recipe, program, model.params, spec.options, device=device)
        return Runner(config, where=model.path, mode=spec.mode)

    session = HookSession(
        model, start(model.file), versions=versions, notes=notes, wants=_wants(recipe), on_cpu=device == "cpu",
        bodies=Bodies.of(model.program, folder, start, _make_trial(spec, model, recipe)),
    )  # fmt: skip
    if feeds:
        session.probe(feeds[0])
    return session


def _open_fetched(
    spec: SessionSpec, model: Model, recipe: Recipe, feeds: Sequence[Feeds], folder: Path, device: str,
    versions: Mapping[str, str], notes: Sequence[Reason],
) -> Session:  # fmt: skip
    """Any other program: its tensors are fetched, as the hook would show them in oneDNN's layouts, or without names."""
    in_bfloat16: list[tuple[int, int] | None] = []

    def start(program: Path, what: str) -> Runner:
        chosen = recipe
        if what == "unfused":
            chosen = modes.recipe("gpu_fp32" if device == "gpu" else "cpu_fp32")
        elif what == "float32" and recipe.precision != "float32":
            chosen = modes.recipe("onednn_fp32" if recipe.onednn else "gpu_opt")
        config = make_config(chosen, program, model.params, spec.options, device=device)
        if program != model.file:
            # in an edited program: what is fetched would be overwritten, where a layout conversion lies between
            config.delete_pass(IN_PLACE)
        if model.program.pir and chosen.onednn and chosen.precision == "bfloat16" and not in_bfloat16:
            config.switch_ir_debug(True)
            runner, found = build_and_count(lambda: Runner(config, where=model.path, mode=spec.mode), folder)
            in_bfloat16.append(found)
            return runner
        return Runner(config, where=model.path, mode=spec.mode)

    fetched = FetchSession(
        model, start, unfused=not recipe.optimise, view=_view(recipe), folder=folder, versions=versions, notes=notes,
        builds=setting(spec.options, "mark_builds"),
        limit=setting(spec.options, "fetch_bytes"),
        check=_make_quantised_check(model) if recipe.precision == "int8" else None,
        quantised=recipe.precision == "int8",
        wants=_wants(recipe), plain=device == "cpu" and not recipe.onednn,
        bodies=Bodies.of(model.program, folder, lambda program: start(program, ""), _make_trial(spec, model, recipe))
        or PirBodies.of(
            model.program, lambda what: start(model.file, what), changed=recipe.optimise,
            narrow=recipe.precision != "float32", limit=setting(spec.options, "fetch_bytes"),
        ),
        placed=in_bfloat16,
    )  # fmt: skip
    if feeds:
        try:
            fetched.plan_when_asked(feeds[0])
        except BackendUnavailable as error:
            if model.program.pir or recipe.precision != "bfloat16":
                raise
            hint = _offer_types(error, spec, model, recipe, feeds[0], device, folder)
            raise BackendUnavailable(error.what, where=error.where, hint=hint) from error
    return fetched


def _offer_types(
    error: BackendUnavailable, spec: SessionSpec, model: Model, recipe: Recipe, feeds: Feeds, device: str, folder: Path
) -> Reason:
    """Return what to type where oneDNN cannot run a legacy program in bfloat16: a list that was run, with what it
    costs."""

    def start(types: Sequence[str]) -> Runner:
        config = make_config(recipe, model.file, model.params, {**spec.options, "bfloat16_ops": types}, device=device)
        return Runner(config, where=model.path, mode=spec.mode)

    kinds = [value.op_type for value in model.program.values]
    found = find_first_running(kinds, next((kind for kind in kinds if f" {kind} " in error.what), ""), start, feeds)
    if found is None:
        return say("no_bfloat16_list")
    builds = most_builds(len(kinds), setting(spec.options, "mark_builds"))
    options = {**spec.options, "bfloat16_ops": found.types, "mark_builds": min(builds, _TIMED)}
    tried = dataclasses.replace(spec, options=options)
    try:
        seconds = estimate_opening_seconds(lambda: open_session(tried, model, recipe, [feeds], folder), builds)
    except PrecisionDebugError:  # it runs, and cannot be looked into: it is no way on
        return say("no_bfloat16_list")
    types = json.dumps(found.types, separators=(",", ":"))
    return say("bfloat16_list", types=types, low=found.low, of=found.of, builds=builds, seconds=seconds)


def with_kept(model: Model, names: Sequence[str], folder: Path) -> Model:
    """Return the model with the operators of these values out of BF16. Raises UsageError."""
    if not isinstance(model.program, PirProgram):
        raise UsageError(say("keep_of_legacy"), where="--option keep_operators", hint=say("use_bfloat16_ops"))
    try:
        file = model.program.with_kept(names, folder / "kept.json")
    except KeyError as error:
        known = [value.name for value in model.program.values]
        hint = suggest_nearest(str(error.args[0]), known)
        raise UsageError(f"the model has no value {error}", where="--option keep_operators", hint=hint) from error
    return dataclasses.replace(model, file=file, program=read_pir(file))


def open_layer(spec: SessionSpec, recipe: Recipe, feeds: Sequence[Feeds]) -> Session:
    """Return a dynamic-graph model. Raises our errors."""
    from .engine.dynamic_model import read_layer
    from .engine.dynamic_session import DygraphSession

    card = capability.gpu()
    device = "gpu" if recipe.device == "gpu" or (card is not None and card.works) else "cpu"
    layer = read_layer(spec.model.model_file, seed=int(get_passed(spec.options, "seed")))
    versions = capability.versions(gpu=device == "gpu", tensorrt=False)
    return DygraphSession(
        layer, recipe, versions=versions, feeds=feeds[0] if feeds else None, device=device,
        step=_make_step_maker(spec, recipe, layer) if setting(spec.options, "step") != FORWARD else None,
        training=setting(spec.options, "training"), seed=int(get_passed(spec.options, "seed")),
    )  # fmt: skip


def _make_step_maker(spec: SessionSpec, recipe: Recipe, layer: Layer) -> Callable[[StepParts], Step]:
    """Return what makes the training step that a command asks for, of the layer as the mode runs it."""
    from .engine.training.step import Step

    until, options = setting(spec.options, "step"), spec.options
    tell_memory(until, sum(one.size * one.element_size() for one in layer.module.parameters() if not one.stop_gradient))
    return lambda parts: Step(
        parts=parts, until=until, scale=choose_loss_scale(options, setting(options, "loss_scale"), *modes.SCALED),
        clip=setting(options, "clip_norm"), seed=int(get_passed(options, "seed")), path=layer.path,
        master=recipe.precision if recipe.amp == "O2" else "",
    )  # fmt: skip


def device_of(recipe: Recipe) -> tuple[str, tuple[Reason, ...]]:
    """Where a mode runs, "cpu" or "gpu", and what is to be said of that."""
    if recipe.device != "best":
        return recipe.device, ()
    card = capability.gpu()
    if card is not None and card.works:
        return "gpu", (say("baseline_on_gpu", card=card.name),)
    if card is None:
        return "cpu", (say("baseline_on_cpu"),)
    return "cpu", (say("baseline_on_cpu_since", problem=card.problem),)


def _make_trial(spec: SessionSpec, model: Model, recipe: Recipe) -> Callable[[Path, Feeds], bool] | None:
    """Passes meet operators that no model has in that place; without passes nothing can go wrong."""
    return make_survival_trial(spec.mode, model.params, spec.options) if recipe.optimise else None


def _wants(recipe: Recipe) -> str:
    """Return the type without which a mode did not do what it is for; of int8 see ``_make_quantised_check``."""
    return recipe.precision if recipe.precision in ("float16", "bfloat16") else ""


def _view(recipe: Recipe) -> Way:
    """Return how a fetched value is made of the engine's own."""
    if not recipe.onednn:
        return way("cast") if recipe.precision != "float32" else NO_WAY
    return way("unblocked") if recipe.precision == "float32" else way("dequantised, unblocked")


def _make_quantised_check(model: Model) -> Callable[[Trace], None]:
    def check(trace: Trace) -> None:
        if not trace.types & {"int8", "uint8"}:
            raise ModelError(
                "no operator ran in int8, as the model brings no quantisation scales", where=model.path,
                hint="quantise it first (PaddleSlim's PTQ or QAT), or compare onednn_bf16",
            )  # fmt: skip

    return check
