"""``training``: follows a training loop that is the user's own, and keeps numbers of its gradients, and whole steps."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .. import registry
from ..errors import OutputError, UsageError

__all__ = ["training"]


def training(
    model: Any, optimizer: Any, *, record: str | os.PathLike[str], every: int = 100, steps: Collection[int] = (),
    scaler: Any = None,
) -> AbstractContextManager[Any]:  # fmt: skip
    """Follow a training loop inside a ``with`` statement.

    model, optimizer, scaler: those of the loop (torch's, or Paddle's dynamic graph's, of which the statistics are kept
    and neither steps nor ranks); nothing of them is changed, and hooks are taken away in the end. record: a folder,
    which gets ``statistics.jsonl``: norm, zeros, and update of each parameter at every ``every``th optimiser step, from
    0. steps: of these steps all that starts one is kept too (parameters, buffers, the optimiser's state, the batch,
    random states), as ``step_<number>.pt``, so that ``--option from_step=FILE`` runs it again.
    Where torch.distributed runs, call it on every rank with the same folder (DDP, FSDP2, or a reduction of your own): a
    rank writes ``statistics_rank<rank>.jsonl``, with each gradient before and after the reduction, and
    ``step_<number>_rank<rank>.pt``; ``--option from_step=FOLDER/step_<number>`` runs it again on every rank.
    Raises UsageError where the objects are of no framework that can, and OutputError.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        what = f"every={every!r} is not a number of steps"
        raise UsageError(what, where="training()", hint="give a whole number from 1 up")
    folder = Path(record)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot be made: {error.strerror}", where=str(folder)) from error
    for backend in registry.backends():
        follower = backend.capabilities.follower
        found = follower.follow(model, optimizer, scaler, str(folder), every, steps) if follower is not None else None
        if found is not None:
            return found
    kinds = f"{type(model).__name__} and {type(optimizer).__name__}"
    hint = "give a module of torch or paddle and its optimiser"
    raise UsageError(f"no backend follows {kinds}", where="training()", hint=hint)
