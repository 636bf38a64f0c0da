"""A model as the training step that a command asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from precision_debug.errors import UsageError
from precision_debug.feeds.training_step import choose_loss_scale, tell_memory
from precision_debug.settings.setting import OPTIMISER

from ...model import Model
from ...modes import Recipe
from ...settings import setting
from .rank_starts import own_tensors
from .step import TrainingStep

__all__ = ["as_step"]


def as_step(model: Model, recipe: Recipe, options: Mapping[str, Any]) -> tuple[Model, Mapping[str, Any]]:
    """Return the model whose forward is a step, and the options with the module's training mode left alone."""
    if model.kind != "eager":
        raise UsageError(
            "an exported program or TorchScript has no training step", where="--step",
            hint="give the factory: FILE.py:FUNCTION that returns (module, inputs, loss, optimiser)",
        )  # fmt: skip
    if recipe.change and recipe.change != "fp8":
        raise UsageError(
            f"{recipe.mode.name} shows no training step", where="--step",
            hint="compare torch_autocast_bf16, torch_autocast_fp16, torch_bf16, torch_fp16 or torch_fp8",
        )  # fmt: skip
    if setting(options, "level") == "module":
        raise UsageError("a training step is seen by its operators", where="--level module", hint="use --level op")
    apart = next((name for _, name, _ in own_tensors(model.ranks, parameters=True)), "")
    if apart and setting(options, "step") == OPTIMISER:
        raise UsageError(
            f"the ranks' parameters differ ({apart}): no mean of their gradients is one step for all of them",
            where="--step optimiser", hint="use --step backward, or from_step=FILE of one rank",
        )  # fmt: skip
    scale = choose_loss_scale(options, setting(options, "loss_scale"), "torch_autocast_fp16")
    step = TrainingStep(
        model.module, until=setting(options, "step"), loss=model.loss, optimiser=model.optimiser, scale=scale,
        clip=setting(options, "clip_norm"), path=model.path, ranks=model.ranks,
    )  # fmt: skip
    held = sum(one.nbytes for one in model.module.parameters() if one.requires_grad)
    tell_memory(step.until, held, ranks=len(model.ranks))
    return replace(model, module=step, loaded=None), {**options, "training": True}
