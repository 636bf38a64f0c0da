"""Sequences of unequal lengths in one tensor, as legacy programs take them: rows, and their offsets.

Paddle calls these offsets LoD. They come as an input of their own, ``NAME.lod``: [0, 2, 5] says that rows 0 and 1 are
the first sequence, rows 2 to 4 the second. Of sequences of sequences the levels are ``NAME.lod.0``, ``NAME.lod.1``, ….
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from precision_debug.errors import InputError
from precision_debug.protocols import Feeds

__all__ = ["is_lod", "lod_names", "lod_of"]


def lod_names(name: str, levels: int) -> list[str]:
    """The inputs that hold the offsets of a tensor with so many levels."""
    return [f"{name}.lod"] if levels == 1 else [f"{name}.lod.{level}" for level in range(levels)]


def is_lod(key: str, inputs: Collection[str]) -> bool:
    """Whether a feed holds offsets of one of the inputs."""
    before, dot, level = key.rpartition(".lod")
    return bool(dot) and before in inputs and (not level or level[1:].isdigit())


def lod_of(name: str, feeds: Feeds, rows: int, where: str) -> list[list[int]]:
    """The offsets of a tensor of so many rows, level by level; [] where none are given. Raises InputError."""
    keys = [key for key in feeds if is_lod(key, [name])]
    keys.sort(key=lambda key: int(key.rpartition(".lod")[2][1:] or 0))
    found: list[list[int]] = []
    for key in keys:
        offsets = np.asarray(feeds[key]).reshape(-1)
        if offsets.size < 2 or offsets[0] != 0 or bool((np.diff(offsets) < 0).any()):
            raise InputError(
                f"{key} is {offsets.tolist()}", where=where,
                hint="offsets begin with 0 and never fall: [0, 2, 5] are two sequences",
            )  # fmt: skip
        if found and found[-1][-1] != offsets.size - 1:
            raise InputError(
                f"{key} has {offsets.size - 1} sequences, the level above {found[-1][-1]}", where=where,
                hint="each level's last offset is the number of sequences of the next",
            )  # fmt: skip
        found.append([int(one) for one in offsets])
    if found and found[-1][-1] != rows:
        raise InputError(
            f"{keys[-1]} ends at {found[-1][-1]}, and {name} has {rows} rows", where=where,
            hint="the last offset is the number of rows",
        )  # fmt: skip
    return found
