"""Which of TensorRT's two ways to a precision is taken, and what it cannot give.

Weakly typed: flags say which precisions TensorRT may choose from, and constraints narrow the choice (up to 10).
Strongly typed: the types in the model are the precisions, so casts are written into it first (9.1 and later; the only
way from 11 on).
"""

from __future__ import annotations

from dataclasses import dataclass

from precision_debug.errors import BackendUnavailable, UsageError
from precision_debug.reasons import Reason

from ..engine.options import Options
from ..engine.versions import Api
from ..model import EngineFile, OnnxModel, Script, Source
from ..modes import Recipe
from ..reasons import say

__all__ = ["Road", "choose_road"]


@dataclass(frozen=True, kw_only=True)
class Road:
    """strong: strongly typed. notes: what the reader of the report must know of it."""

    strong: bool
    notes: tuple[Reason, ...] = ()


def choose_road(api: Api, recipe: Recipe, options: Options, source: Source) -> Road:
    """Raises UsageError or BackendUnavailable where the road cannot give what was asked; nothing is built before."""
    if isinstance(source, EngineFile):
        _check_engine(options, source)
        return Road(strong=False)
    if options.typing == "weak" and not api.weakly_typed:
        raise BackendUnavailable(
            f"{api.title} {api.version} builds strongly typed networks only", where="typing=weak", hint="leave it out"
        )
    if options.typing == "strong" and not api.strongly_typed:
        raise BackendUnavailable(
            f"{api.title} {api.version} has no strongly typed networks (9.1 and later have)", where="typing=strong",
            hint="leave it out",
        )  # fmt: skip
    strong = options.typing == "strong" or not api.weakly_typed
    missing = [name for name in recipe.precisions if not api.can_hold(name)]
    if missing and recipe.mode.name != "trt_best":
        raise BackendUnavailable(
            f"{api.title} {api.version} cannot compute in {missing[0]}", where=recipe.mode.name,
            hint="it needs 9.1 or later",
        )  # fmt: skip
    _check_replay(api, options)
    if options.timing_cache and not api.times_kernels:
        raise BackendUnavailable(
            f"{api.title} times no kernels when it builds", where="--timing_cache", hint="leave it out"
        )
    _check_fp8(recipe, source)
    if strong:
        _check_strong(recipe, options, source)
    else:
        _check_weak(recipe, options)
    return Road(strong=strong, notes=tuple(_notes(recipe, options, missing, strong, source)))


def _notes(recipe: Recipe, options: Options, missing: list[str], strong: bool, source: Source) -> list[Reason]:
    notes = []
    if (recipe.tf32 if options.tf32 is None else options.tf32) and recipe.precisions:
        notes.append(say("may_tf32"))
    if missing:
        notes.append(say("best_without", types=missing))
    if strong and isinstance(source, Script):
        notes.append(say("script_types"))
    elif strong:
        notes.append(say("strongly_typed"))
    return notes


def _check_engine(options: Options, source: EngineFile) -> None:
    refused = {
        "--layer_precisions": options.asks_for_layers, "--network_script": bool(options.network_script),
        "--load_tactics": bool(options.load_tactics), "--save_tactics": bool(options.save_tactics),
        "--save_engine": bool(options.save_engine), "--precision_constraints": options.precision_constraints != "none",
        "--typing": bool(options.typing), "--tf32": options.tf32 is not None,
        "--workspace": options.workspace is not None,
        "--optimization_level": options.optimization_level is not None,
        "--tactic_sources": options.tactic_sources is not None, "--timing_cache": bool(options.timing_cache),
        "--min_shapes": bool(options.shapes),
    }  # fmt: skip
    for name, wanted in refused.items():
        if wanted:
            raise UsageError(
                "is for a build, and this engine is built", where=name, hint=f"give the model of {source.path}"
            )


def _check_replay(api: Api, options: Options) -> None:
    for name, path in (("--save_tactics", options.save_tactics), ("--load_tactics", options.load_tactics)):
        if path and not api.replays_tactics:
            raise BackendUnavailable(
                f"{api.title} {api.version} lets no program choose tactics", where=name, hint="use --timing_cache FILE"
            )


def _check_fp8(recipe: Recipe, source: Source) -> None:
    if recipe.precisions != ("FP8",) or not isinstance(source, OnnxModel):
        return
    if not source.op_types & {"QuantizeLinear", "DequantizeLinear"}:
        raise UsageError(
            "FP8 needs a model with FP8 QuantizeLinear and DequantizeLinear nodes, and this one has none",
            where=source.path, hint="quantise it first, e.g. with NVIDIA's Model Optimizer",
        )  # fmt: skip


def _check_strong(recipe: Recipe, options: Options, source: Source) -> None:
    if recipe.mode.name == "trt_best":
        raise UsageError(
            "in a strongly typed network TensorRT does not choose precisions", where="trt_best",
            hint="name one: trt_fp16, trt_bf16, trt_int8",
        )  # fmt: skip
    if options.asks_for_layers and options.precision_constraints != "obey":
        raise UsageError(
            f"'{options.precision_constraints}' is not possible in a strongly typed network: every type is obeyed",
            where="--precision_constraints", hint="use obey, or TensorRT 10 or earlier with --option typing=weak",
        )  # fmt: skip
    if options.asks_for_layers and isinstance(source, Script):
        raise UsageError(
            "a script's network that is strongly typed takes no layer precisions", where="--layer_precisions",
            hint="set the types in the script with add_cast",
        )  # fmt: skip
    if options.layer_output_types:
        raise UsageError(
            "in a strongly typed network an output has the type of its layer", where="--layer_output_types",
            hint="use --layer_precisions",
        )  # fmt: skip
    bad = [kind for kind in options.layer_precisions.values() if kind not in {"FP32", "FP16", "BF16"}]
    if bad:
        raise UsageError(
            f"casts cannot put a layer into {bad[0]}",
            where="--layer_precisions",
            hint="use float32, float16 or bfloat16",
        )


def _check_weak(recipe: Recipe, options: Options) -> None:
    allowed = {"FP32", "INT32", *recipe.precisions}
    wanted = {**options.layer_precisions, **options.layer_output_types}
    for name, kind in wanted.items():
        if kind not in allowed:
            raise UsageError(
                f"layer '{name}' in {kind}: {recipe.mode.name} does not let TensorRT use it",
                where="--layer_precisions",
                hint=f"use --run_mode trt_{kind.lower()} and name the layers that shall stay in float32",
            )  # fmt: skip
