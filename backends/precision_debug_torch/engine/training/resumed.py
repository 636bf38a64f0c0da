"""A model at a step that ``precision_debug.training`` kept: its parameters, its batch, and its optimiser's state."""

from __future__ import annotations

import copy
import glob
import pickle
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from precision_debug.errors import InputError, ModelError

from ...model import Model, from_module
from .rank_starts import RankStart, prefix_of

__all__ = ["resume_at_step"]

_OF_RANK = re.compile(r"step_(\d+)_rank(\d+)\.pt")


def resume_at_step(model: Model, asked: str) -> Model:
    """Return the model of a factory as it was when that step began; the factory's own loss and optimiser go on.

    asked: a file of one step; or what names the files of one step's ranks: a folder, a pattern, or what they begin
    with ("run/step_000007").
    Raises InputError where there is none, or it is damaged, and ModelError where it is of another model.
    """
    files = _files(asked)
    kept = {rank: _read(path) for rank, path in files.items()}
    for rank in reversed(files):  # the first rank's parameters are the model's
        try:
            model.module.load_state_dict(kept[rank]["model"])
        except RuntimeError as error:
            what = str(error).partition("\n")[0]
            hint = "give the run's own factory"
            raise ModelError(f"the step is of another model: {what}", where=str(files[rank]), hint=hint) from error
    _require_finite(model.module, asked)
    model.module.train()
    batches = {
        rank: from_module(model.module, _batch(one, str(files[rank])), path=model.path) for rank, one in kept.items()
    }
    first = next(iter(files))
    fresh = replace(
        batches[first], loss=model.loss, optimiser=_with_state(model.optimiser, kept[first]["optimiser"])
    )
    if len(files) == 1:
        return fresh
    arguments = {
        prefix_of(rank) + name: value for rank, batch in batches.items() for name, value in batch.arguments.items()
    }
    return replace(fresh, arguments=arguments, order=(), required=(), ranks=_read_starts(model.module, kept, batches))


def _require_finite(module: Any, asked: str) -> None:
    """Raises InputError where an earlier step has spoilt the parameters: nobody in this one is to blame for it."""
    gone = [name for name, one in module.named_parameters() if not bool(torch.isfinite(one).all())]
    if gone:
        named = ", ".join(gone[:3]) + (", …" if len(gone) > 3 else "")
        what = f"the step begins with parameters that are NaN or Inf already ({named})"
        raise InputError(what, where=asked, hint="record an earlier step: training(…, steps=[…])")


def _read_starts(module: Any, kept: Mapping[int, Any], batches: Mapping[int, Model]) -> dict[int, RankStart]:
    """module: with the first rank's parameters."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    apart = [
        name for name, one in parameters.items()
        if any(name in held["model"] and not torch.equal(held["model"][name], one.detach()) for held in kept.values())
    ]  # fmt: skip
    found = {}
    for rank, held in kept.items():
        own: dict[str, Any] = {
            name: held["model"].get(name, buffer).clone()
            for name, buffer in module.named_buffers(remove_duplicate=False)
        }
        made: dict[int, Any] = {}  # tied ones stay tied
        for name in apart:
            one = parameters[name]
            if id(one) not in made:
                made[id(one)] = torch.nn.Parameter(held["model"][name].clone(), one.requires_grad)
            own[name] = made[id(one)]
        order = batches[rank].order
        named = tuple(name for name in batches[rank].arguments if name not in order)
        found[rank] = RankStart(own=own, order=order, named=named)
    return found


def _files(asked: str) -> dict[int, Path]:
    """By rank; of a step that had no ranks, or of one of them alone, one file. Raises InputError."""
    path = Path(asked)
    if path.is_file():
        return {0: path}
    if path.is_dir():
        listed = sorted(path.glob("step_*.pt"))
    else:
        found = glob.glob(f"{glob.escape(asked)}_rank*.pt") or glob.glob(asked)
        listed = sorted(Path(one) for one in found)
    of_ranks = {one: named for one in listed if (named := _OF_RANK.fullmatch(one.name)) is not None}
    if not listed:
        raise InputError("no such file", where=asked, hint="training(record=…, steps=[…]) writes step_<number>.pt")
    steps = {int(named[1]) for named in of_ranks.values()}
    if len(steps) == 1 and len({named[2] for named in of_ranks.values()}) == len(of_ranks) == len(listed):
        return dict(sorted((int(named[2]), one) for one, named in of_ranks.items()))
    if len(listed) == 1:
        return {0: listed[0]}
    names = ", ".join(one.name for one in listed[:3]) + (", …" if len(listed) > 3 else "")
    hint = f"name the step: from_step={listed[0].parent / listed[0].stem.partition('_rank')[0]}"
    raise InputError(f"names files of several steps ({names})", where=asked, hint=hint)


def _batch(kept: Mapping[str, Any], path: str) -> Any:
    """Return what the model was called with. Raises InputError."""
    if kept["args"] and kept["kwargs"]:
        hint = "call the model with one kind of them"
        raise InputError("its batch has positional and named arguments", where=path, hint=hint)
    return kept["kwargs"] if kept["kwargs"] and not kept["args"] else kept["args"]


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, OSError) as error:
        what = str(error).partition("\n")[0][:200]
        raise InputError(f"is not a recorded step ({what})", where=str(path), hint="record the run again") from error
    wanted = {"step", "model", "optimiser", "args", "kwargs"}
    if not isinstance(kept, dict) or not wanted <= kept.keys():
        raise InputError("is not a recorded step", where=str(path), hint="training(record=…, steps=[…]) writes one")
    return kept


def _with_state(optimiser: Any, state: Any) -> Any:
    """Return what makes the factory's optimiser of parameters, with the state that it had."""
    if optimiser is None:
        return None
    if isinstance(optimiser, torch.optim.Optimizer):
        optimiser.load_state_dict(state)
        return optimiser

    def made(parameters: Any) -> Any:
        fresh = optimiser(parameters)
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():  # no operators of the step
            fresh.load_state_dict(copy.deepcopy(state))  # which it would keep, and write into
        return fresh

    return made
