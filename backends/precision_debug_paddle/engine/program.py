"""What the backend needs to know of a model's program, the same for both formats."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from precision_debug.errors import InputError
from precision_debug.protocols import Feeds
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import InputMeta, TensorMeta

from ..reasons import say

__all__ = ["NESTED", "REWRITTEN", "Program", "Value", "dims", "is_lod", "lod_names", "lod_of", "order_bodies"]


# Sequences of unequal lengths in one tensor, as legacy programs take them: rows, and their offsets.
#
# Paddle calls these offsets LoD. They come as an input of their own, ``NAME.lod``: [0, 2, 5] says that rows 0 and 1 are
# the first sequence, rows 2 to 4 the second. Of sequences of sequences the levels are ``NAME.lod.0``, ``NAME.lod.1``,
# ….

def lod_names(name: str, levels: int) -> list[str]:
    """Return the inputs that hold the offsets of a tensor with so many levels."""
    return [f"{name}.lod"] if levels == 1 else [f"{name}.lod.{level}" for level in range(levels)]


def is_lod(key: str, inputs: Collection[str]) -> bool:
    """Return whether a feed holds offsets of one of the inputs."""
    before, dot, level = key.rpartition(".lod")
    return bool(dot) and before in inputs and (not level or level[1:].isdigit())


def lod_of(name: str, feeds: Feeds, rows: int, where: str) -> list[list[int]]:
    """Return the offsets of a tensor of so many rows, level by level; [] where none are given. Raises InputError."""
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


NESTED = say("nested")
REWRITTEN = say("rewritten")


@dataclass(frozen=True, kw_only=True)
class Value:
    """One activation of the unoptimised program.

    name: Paddle's own in a legacy program, ours in PIR (see ``naming``); unique and the same in every run.
    output: the name under which a predictor hands it out where it is a model output, else "".
    variable: Paddle's name of it, where several operators write to it in turn; "" where ``name`` is that.
    hidden: why it cannot be fetched; "" where it can.
    """

    name: str
    op_type: str
    node: str = ""
    dtype: str = ""
    shape: tuple[int | str, ...] | None = None
    inputs: tuple[str, ...] = ()
    output: str = ""
    variable: str = ""
    hidden: Reason = NOTHING


class Program(Protocol):
    """A program as it lies on disk; reading and editing it needs no Paddle."""

    @property
    def pir(self) -> bool:
        """Whether it is a 3.x PIR program."""

    @property
    def inputs(self) -> Sequence[InputMeta]:
        """What a caller feeds."""

    @property
    def values(self) -> Sequence[Value]:
        """The activations, in execution order: no parameters, nothing that follows from them alone, no statistics."""

    @property
    def statistics(self) -> int:
        """How many running statistics and shape records were left out of ``values``."""

    def parameters(self) -> frozenset[str]:
        """Return names of the persistable variables."""

    def with_fetches(self, names: Sequence[str], path: Path) -> Path:
        """Write a copy in which these values are predictor outputs too; returns ``path``.

        A legacy predictor hands them out under their own names, a PIR one under ``naming.fetch_name``.
        """


def dims(shape: Sequence[int]) -> tuple[int | str, ...]:
    """Paddle's shape with -1 for a dynamic dimension, as the core writes it."""
    return tuple(dim if dim >= 0 else f"dim{place}" for place, dim in enumerate(shape))


def order_bodies(metas: Sequence[TensorMeta], place: Mapping[str, int]) -> list[TensorMeta]:
    """Return a listing whose values of bodies stand in the order of the run: one iteration after the other.

    place: of each value of a body, by name, where the run came upon it; the others stay where they are.
    """
    own = iter(sorted((meta for meta in metas if meta.name in place), key=lambda meta: place[meta.name]))
    return [next(own) if meta.name in place else meta for meta in metas]
