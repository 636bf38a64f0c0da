"""Connects the debug listener of a run with whoever wants its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from precision_debug.reasons import Reason

from ..reasons import say
from .execution import Runner

__all__ = ["listen"]


def listen(
    runner: Runner, seen: dict[str, np.ndarray[Any, Any]], notes: list[Reason], *, unfused: bool,
    show: Callable[[str, Any], None] | None = None, on_device: bool = False,
) -> None:  # fmt: skip
    """Let ``runner`` report its debug tensors.

    show: gets each one while it lives, and then only its name is kept in ``seen``; None: the arrays are kept.
    on_device: show gets them where they are.
    notes: told of tensors that could not be read.
    """

    def receive(name: str, array: Any, error: Exception | None) -> None:
        if error is not None:
            notes.append(say("debug_unreadable", name=name, detail=error))
            return
        seen[name] = array if show is None else np.empty(0)
        if show is not None:
            show(name, array)

    runner.listen(receive, unfused=unfused, on_device=on_device and show is not None)
