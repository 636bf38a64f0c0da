"""Protocols of single operators in higher precision, and of settings that agree with a baseline."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..reasons import Reason
from ..records import Culprit, SessionSpec, TensorMeta

__all__ = [
    "BETWEEN", "TF32_OFF", "WHOLE", "Agreeing", "Cautions", "Handed", "InRegions", "Keep", "Keeper", "Remedies",
    "Remedy", "is_line", "is_switch", "without",
]  # fmt: skip


# Single operators in higher precision: what a backend may be able to do, so that a search finds which to keep.
#
# ``search`` needs it of the target's backend; every plugin has it in its file keep.py.

_LINE = re.compile(r"[^/\\]+\.py:\d+$")

WHOLE = "(model)"
"""The module that is all of a model: what its own forward computes is kept with everything."""

BETWEEN = "(between)"
"""What a model computes outside of its modules that have weights: it can be kept without them."""


TF32_OFF = "(TF32 off)"
"""The key that forbids FP32 operators to compute in TF32, in all of an engine: it keeps no operator by itself."""

_WITHOUT = "(without "


def without(asked: str) -> str:
    """Return the key that leaves out what the user's own command asks for, in words."""
    return f"{_WITHOUT}{asked})"


def is_switch(key: str) -> bool:
    """Return whether a key changes a setting of the whole engine, and keeps no operator."""
    return key == TF32_OFF or key.startswith(_WITHOUT)


def is_line(key: str) -> bool:
    """Return whether a key stands for what a line of the model's source calls, "model.py:57", and for no module."""
    return bool(_LINE.match(key))


@dataclass(frozen=True, kw_only=True)
class Handed:
    """Something to take away: a file, or text to paste.

    Where model names another file, none of the search's own settings go along but those in options.

    kind: "model", "setting", "config", "command" or "wrapper". mode, model, options: how a user would run it; it is run
    so and compared once more. mode "": it cannot be run here, or is the same as another, and note says which.
    maker, maker_options: the run mode whose session writes the file ``path``; "": it is written already.
    """

    kind: str
    title: str
    path: str = ""
    text: str = ""
    mode: str = ""
    model: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    maker: str = ""
    maker_options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


class Keep(Protocol):
    """What can be kept of one model in one run mode."""

    @property
    def unit(self) -> str:
        """What is kept as a whole: "operator", "operator type" or "module"."""

    @property
    def simulation(self) -> str:
        """A run mode that imitates this one with the same rule of where casts go, and is quicker; "": none."""

    @property
    def saves(self) -> tuple[str, ...]:
        """Settings that name where ``hand_over`` puts a file, in place of its folder.

        The options have them then, whatever the run mode."""

    def key_of(self, meta: TensorMeta) -> str:
        """Return what a tensor of the baseline is kept by: its operator's node, its type, its module; "" it cannot
        be."""

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """Settings, in their declared types, for a session that keeps these; they go over the spec's own."""

    def hand_over(self, keys: Sequence[str], tensors: Sequence[TensorMeta], folder: Path, /) -> Sequence[Handed]:
        """Return what a user takes away. folder: an existing one for files, where they stay. Raises
        PrecisionDebugError."""


@runtime_checkable
class InRegions(Protocol):
    """A Keep of an engine that fuses operators into regions.

    There a precision counts only together with what lies around it, and each set takes a build: sets grow along the
    data then (search.strategy)."""

    @property
    def switches(self) -> tuple[str, ...]:
        """Keys beside those of operators, for which ``is_switch`` holds: the user's own words left out first."""


@runtime_checkable
class Cautions(Protocol):
    """A Keep whose setting another tool takes by the same name and makes something else of."""

    def caution(self, keys: Sequence[str], tensors: Sequence[TensorMeta]) -> Reason:
        """Return what to mind where these keys are handed to it; NOTHING where nothing is. tensors: the baseline's."""


class Keeper(Protocol):
    """A backend that can keep single operators in higher precision."""

    def keep(self, spec: SessionSpec) -> Keep | None:
        """Return what can be kept in a higher precision in this mode, or None. Raises PrecisionDebugError."""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A setting or change that may mend an error in the same run mode, without an operator in higher precision.

    For example another calibration, a scale for each channel, an epsilon that the type can hold; or an option with
    which an engine computes as its baseline does.

    settings: in their declared types; they go over the spec's own. text: the same as lines for a program of the user's.
    name: as a reader is told of it, "": the settings as they are typed. modules: parts that it leaves out of what the
    engine does; () where it is of the whole engine.
    keeps: whether it leaves operators out of the low precision after all, by their type say. wide: whether it leaves
    out all of them, so that it is tried only where no kept set mends it. files: whether it mends what two files do not
    share. cause: what the error came of where it halves that, a code of ``reasons.causes``, and that cause's own
    evidence; "": nothing is proven.
    """

    settings: Mapping[str, Any]
    text: str = ""
    name: str = ""
    modules: tuple[str, ...] = ()
    keeps: bool = False
    wide: bool = False
    files: bool = False
    cause: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)


class Remedies(Protocol):
    """A backend that knows remedies; by its capability.

    Each is run like a set of kept operators, and offered by the same rule."""

    def remedies(self, spec: SessionSpec, culprits: Sequence[Culprit], base: SessionSpec) -> Sequence[Remedy]:
        """Return a few remedies to try for these culprits, what changes least first; () where nothing is known.

        culprits: none for an error of many operators. base: the baseline."""


# Settings with which an engine computes as its baseline does: what a backend may know, so that each can be tried.
#
# They are for engines that compute in the model's own types, and where no higher precision is to be had: an optimising
# compiler rounds in other places than the same framework without it.

class Agreeing(Protocol):
    """A backend that knows such settings; by its capability."""

    def agreements(
        self, spec: SessionSpec, tensors: Sequence[TensorMeta], culprits: Sequence[Sequence[str]]
    ) -> Sequence[Remedy]:
        """Return what to try, what gives up least first; () for a mode without any.

        tensors: the baseline's. culprits: of each operator or stretch of them that an error is put down to, the tensors
        that it makes."""
