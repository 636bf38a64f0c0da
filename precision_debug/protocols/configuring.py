"""What a model's file says beside its weights, and the same model with other values there."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from ..records import ModelFiles, SessionSpec

__all__ = ["ABSENT", "Absent", "Configurer", "Place"]

Place = tuple[str, ...]
"""Where a value stands: the keys on the way to it."""


class Absent(enum.Enum):
    """That a configuration does not have a key, which is not the same as null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class Configurer(Protocol):
    """A backend whose models say in a configuration what their operators compute; by its capability."""

    @property
    def words(self) -> str:
        """Whose names the keys are: configurations in the same words can be held against each other."""

    def configuration(self, spec: SessionSpec) -> Mapping[str, Any]:
        """Return what it says, without names, dates and the like, which no operator reads; {} where it has none."""

    def configured(self, spec: SessionSpec, values: Mapping[Place, Any], folder: Path) -> ModelFiles:
        """Return the same model with other values, ``ABSENT`` where a key is to be left out.

        folder: an existing empty one for what is written. Raises ModelError or OutputError."""
