"""The recorded step of several ranks, which one process runs one after the other, each from what it started with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["RankStart", "own_tensors", "prefix_of"]


@dataclass(frozen=True, kw_only=True)
class RankStart:
    """own: by full name the buffers, and those parameters that are not the same on all ranks. order, named: names of
    the batch's positional and keyword arguments."""

    own: Mapping[str, Any]
    order: tuple[str, ...]
    named: tuple[str, ...]

    def begin(self, rank: int, module: Any, feeds: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Give the module this rank's tensors; returns what its forward is called with. feeds: of all ranks."""
        for path, part in module.named_modules():
            for held in (part._parameters, part._buffers):
                for key in held:
                    full = f"{path}.{key}" if path else key
                    if full in self.own:
                        held[key] = self.own[full]
        before = prefix_of(rank)
        return [feeds[before + name] for name in self.order], {name: feeds[before + name] for name in self.named}


def prefix_of(rank: int) -> str:
    """Return what names of a rank's tensors begin with."""
    return f"rank{rank}/"


def own_tensors(ranks: Mapping[int, RankStart], *, parameters: bool) -> Iterator[tuple[int, str, Any]]:
    """(rank, name, tensor) of what each rank has for itself: parameters, or buffers."""
    for rank, start in ranks.items():
        for name, tensor in start.own.items():
            if isinstance(tensor, torch.nn.Parameter) == parameters:
                yield rank, name, tensor
