"""Which of a model's operators an engine takes: `precision_debug inspect capability M`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..records import SessionSpec
from .tensors import Feeds

__all__ = ["Refused", "Survey", "Surveyor"]


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
