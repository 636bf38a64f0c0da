"""What the reader of a report must know of a training step, or of one that was not looked at."""

from __future__ import annotations

from collections.abc import Sequence

from precision_debug.feeds.training_step import list_step_notes as of_step
from precision_debug.reasons import Reason, say
from precision_debug.records import TensorMeta

from ...model import Model
from .step import TrainingStep

__all__ = ["step_notes"]


def step_notes(model: Model, metas: Sequence[TensorMeta], *, skipped: bool, autocast: bool) -> list[Reason]:
    """metas: what a run showed. skipped: GradScaler left the optimiser's step out in it."""
    step = model.module
    if not isinstance(step, TrainingStep):
        one_number = any(meta.is_output and meta.shape == () and "float" in meta.dtype for meta in metas)
        learns = model.loss is not None or (model.kind == "eager" and one_number)
        return [say("step_forward")] if learns and any(one.requires_grad for one in step.parameters()) else []
    return of_step(step.until, step.scale, skipped=skipped, autocast=autocast)
