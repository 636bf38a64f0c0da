"""Which GPU each of several processes gets, so that every card is used before one is shared.

A process sees its cards alone (CUDA_VISIBLE_DEVICES), whichever backend it runs: "cuda:0" is then its own first one.
Actors of a Ray cluster are given theirs by Ray.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["VISIBLE", "cards", "shares"]

VISIBLE = "CUDA_VISIBLE_DEVICES"


def cards() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them. Never raises."""
    named = os.environ.get(VISIBLE)
    if named is not None:
        return tuple(one.strip() for one in named.split(",") if one.strip())
    return tuple(map(str, range(_count())))


@functools.cache
def _count() -> int:
    """By the driver, which needs no framework; 0 where there is none."""
    found = ctypes.c_int()
    try:
        library = ctypes.CDLL("libcuda.so.1")
        if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(found)):
            return 0
    except (OSError, AttributeError):
        return 0
    return found.value


def shares(options: Mapping[str, Any], found: Sequence[str]) -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES may be in a process of a command: one entry for each that has cards of its own.

    options: the command's. One that names "cuda:1" beside "cuda:0" takes two cards. Empty where there are too few to
    share them out, or where a backend numbers its cards itself.
    """
    named = [str(value) for key, value in options.items() if key.rpartition(".")[2] == "device"]
    numbers = [int(one.partition(":")[2] or 0) for one in named if one.partition(":")[2].isdigit() or one == "cuda"]
    if any(one.isdigit() and int(one) for one in named):  # Paddle's
        return ()
    each = max(numbers, default=0) + 1
    groups = [found[first : first + each] for first in range(0, len(found) - each + 1, each)]
    return tuple(",".join(group) for group in groups) if len(groups) > 1 else ()
