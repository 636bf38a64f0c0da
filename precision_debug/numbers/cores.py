"""How many cores this process may use. Imports no numpy: a command asks before it starts anything."""

from __future__ import annotations

import os

__all__ = ["count_available_cores", "count_cores_of_each", "count_shared_cores", "take_share"]


def count_available_cores() -> int:
    """Cores that this process may use; as many threads share a large tensor."""
    every = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(every, _share.get("cores", every))


_share: dict[str, int] = {}


def take_share(cores: int) -> None:
    """This process is one of several beside each other, and may use so many cores."""
    _share["cores"] = max(1, cores)


def count_shared_cores() -> int:
    """Return the cores that this process was given for its share; 0: all."""
    return _share.get("cores", 0)


def count_cores_of_each() -> int:
    """Cores for each of two runs side by side, and for what compares while they run: half of them, at least one."""
    return max(1, count_available_cores() // 2)
