"""Marked tensors in groups that fit the memory budget, in execution order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["group"]


def group(names: Sequence[str], size: Callable[[str], int], budget: int | None) -> list[tuple[str, ...]]:
    """Consecutive groups whose sizes add up to at most ``budget`` bytes; a tensor above it stands alone.

    size: bytes of a tensor; 0 where unknown. budget: None for no limit.
    """
    groups: list[list[str]] = []
    held = 0
    for name in names:
        wanted = size(name)
        if not groups or (budget is not None and held + wanted > budget):
            groups.append([])
            held = 0
        groups[-1].append(name)
        held += wanted
    return [tuple(part) for part in groups]
