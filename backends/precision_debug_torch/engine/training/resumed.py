"""A model at a step that ``precision_debug.training`` kept: its parameters, its batch, and its optimiser's state."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from precision_debug.errors import InputError, ModelError

from ...model import Model, from_module

__all__ = ["at_step"]


def at_step(model: Model, path: str) -> Model:
    """The model of a factory as it was when that step began; the factory's own loss and optimiser go on.

    Raises InputError where the file is none, or is damaged, and ModelError where it is of another model.
    """
    kept = _read(path)
    try:
        model.module.load_state_dict(kept["model"])
    except RuntimeError as error:
        what = str(error).partition("\n")[0]
        hint = "give the run's own factory"
        raise ModelError(f"the step is of another model: {what}", where=path, hint=hint) from error
    model.module.train()
    inputs = kept["kwargs"] if kept["kwargs"] and not kept["args"] else kept["args"]
    if kept["args"] and kept["kwargs"]:
        hint = "call the model with one kind of them"
        raise InputError("its batch has positional and named arguments", where=path, hint=hint)
    fresh = from_module(model.module, inputs, path=model.path)
    return replace(fresh, loss=model.loss, optimiser=_with_state(model.optimiser, kept["optimiser"]))


def _read(path: str) -> dict[str, Any]:
    if not Path(path).is_file():
        raise InputError("no such file", where=path, hint="training(record=…, steps=[…]) writes step_<number>.pt")
    try:
        kept = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, OSError) as error:
        what = str(error).partition("\n")[0][:200]
        raise InputError(f"is not a recorded step ({what})", where=path, hint="record the run again") from error
    wanted = {"step", "model", "optimiser", "args", "kwargs"}
    if not isinstance(kept, dict) or not wanted <= kept.keys():
        raise InputError("is not a recorded step", where=path, hint="training(record=…, steps=[…]) writes one")
    return kept


def _with_state(optimiser: Any, state: Any) -> Any:
    """What makes the factory's optimiser of parameters, with the state that it had."""
    if optimiser is None:
        return None
    if isinstance(optimiser, torch.optim.Optimizer):
        optimiser.load_state_dict(state)
        return optimiser

    def made(parameters: Any) -> Any:
        fresh = optimiser(parameters)
        fresh.load_state_dict(state)
        return fresh

    return made
