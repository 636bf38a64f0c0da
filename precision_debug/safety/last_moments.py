"""What a process that ends at once need not do before: its memory is gone with it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["NOT_AT_EXIT", "leave_to_the_exit"]

NOT_AT_EXIT: set[Callable[..., Any]] = set()
"""Finalizers that only take apart what the process holds: a backend adds its framework's own."""


def leave_to_the_exit() -> None:
    """Keep those from being run by atexit, in a process that ends right behind it."""
    for one in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # typeshed leaves it out
        if (alive := one.peek()) is not None and alive[1] in NOT_AT_EXIT:
            one.atexit = False
