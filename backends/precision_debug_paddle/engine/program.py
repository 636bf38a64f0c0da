"""What the backend needs to know of a model's program, the same for both formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import InputMeta, TensorMeta

from ..reasons import say

__all__ = ["NESTED", "REWRITTEN", "Program", "Value", "dims", "in_order"]

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
        """Names of the persistable variables."""

    def with_fetches(self, names: Sequence[str], path: Path) -> Path:
        """Write a copy in which these values are predictor outputs too; returns ``path``.

        A legacy predictor hands them out under their own names, a PIR one under ``naming.fetch_name``.
        """


def dims(shape: Sequence[int]) -> tuple[int | str, ...]:
    """Paddle's shape with -1 for a dynamic dimension, as the core writes it."""
    return tuple(dim if dim >= 0 else f"dim{place}" for place, dim in enumerate(shape))


def in_order(metas: Sequence[TensorMeta], place: Mapping[str, int]) -> list[TensorMeta]:
    """A listing whose values of bodies stand in the order of the run: one iteration after the other.

    place: of each value of a body, by name, where the run came upon it; the others stay where they are.
    """
    own = iter(sorted((meta for meta in metas if meta.name in place), key=lambda meta: place[meta.name]))
    return [next(own) if meta.name in place else meta for meta in metas]
