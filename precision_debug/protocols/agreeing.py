"""Settings with which an engine computes as its baseline does: what a backend may know, so that each can be tried.

They are for engines that compute in the model's own types, and where no higher precision is to be had: an optimising
compiler rounds in other places than the same framework without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..records import SessionSpec, TensorMeta

__all__ = ["Agreeing", "Agreement"]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """One thing to try.

    name: as a reader is told of it. settings: in their declared types; they go over the spec's own. text: the same as
    lines for a user's program. cause: what an error that goes with it came of, a code of ``reasons.causes``, and that
    cause's own evidence; "": nothing is known to be the cause. modules: parts that it leaves out; () where it is of the
    whole engine.
    """

    name: str
    settings: Mapping[str, Any]
    text: str
    cause: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()


class Agreeing(Protocol):
    """A backend that knows such settings; by its capability."""

    def agreements(
        self, spec: SessionSpec, tensors: Sequence[TensorMeta], culprits: Sequence[Sequence[str]]
    ) -> Sequence[Agreement]:
        """Return what to try, what gives up least first; () for a mode without any.

        tensors: the baseline's. culprits: of each operator or stretch of them that an error is put down to, the tensors
        that it makes."""
