"""Protocols of what a model or engine file holds, and of which operators an engine takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..reasons import ReasonOrText
from ..records import InputMeta, SessionSpec
from .tensors import Feeds

__all__ = ["DescribedLayer", "DescribedWeight", "Describer", "Description", "Refused", "Survey", "Surveyor"]


# What a model or engine file holds, in words that every backend fills: `precision_debug inspect model FILE`.

@dataclass(frozen=True, kw_only=True)
class DescribedLayer:
    """One operator or layer, in the words of its framework.

    depth: how many bodies of loops and branches it is in. precision: that it really runs in, where the file tells.
    details: further lines (a tactic).
    """

    op_type: str
    name: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    depth: int = 0
    precision: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DescribedWeight:
    """A constant of the model. dtype in numpy's words. low, high: of its finite values; None: they were not read."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    low: float | None = None
    high: float | None = None
    non_finite: int = 0


@dataclass(frozen=True, kw_only=True)
class Description:
    """format: "TensorRT engine", "Paddle PIR program", … with its version. facts: further lines of the summary.

    layers: in execution order. weights: gone through once, where they are asked for; those of an engine are not told.
    """

    format: str
    inputs: Sequence[InputMeta]
    outputs: Sequence[InputMeta]
    layers: Sequence[DescribedLayer]
    facts: Sequence[ReasonOrText] = ()
    weights: Iterable[DescribedWeight] | None = None


class Describer(Protocol):
    """A backend that can say what a file of its own holds, without running it; by its capability."""

    @property
    def described(self) -> Sequence[str]:
        """Endings of the files that it tells of, with the dot, lower case."""

    def describe(self, path: str) -> Description:
        """Raises ModelError where it is none, BackendUnavailable where what reads it is missing here."""


# Which of a model's operators an engine takes: `precision_debug inspect capability M`.

@dataclass(frozen=True, kw_only=True)
class Refused:
    """An operator that the engine does not take, and why, in its own words; "" where it does not say."""

    name: str
    op_type: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Which operators of a model an engine takes, and in what precision.

    engine: who was asked, with its version. taken: how many operators it takes, by type. precisions: where the model's
    own types decide, a line for each: which operators compute in it. builds: of an engine that can be built without a
    card, a line for each chip; failed: whether one of them failed.
    """

    engine: str
    taken: dict[str, int]
    refused: Sequence[Refused] = ()
    precisions: Sequence[str] = ()
    builds: Sequence[str] = ()
    failed: bool = False


class Surveyor(Protocol):
    """A backend whose engine can be asked before anything is built; by its capability."""

    def survey(self, spec: SessionSpec, feeds: Feeds) -> Survey:
        """Survey a model. Raises ModelError, or BackendUnavailable where the engine is missing here.

        feeds: what the model would be fed by default, for engines that want shapes; empty where nothing is known.
        """
