"""Which tensors of both sides are compared: decided when both are open, and again whenever one lists others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..events import Paired
from ..pairing.align import Alignment, align
from ..protocols import Matches
from .journal import Journal
from .side import OpenSide

__all__ = ["Pairs"]


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """The one place where two lists become pairs: the journal carries them, and the report only looks them up."""

    base: OpenSide
    target: OpenSide
    journal: Journal
    renames: Mapping[str, str]
    matches: Matches | None = None
    two_files: bool = False

    def decide(self) -> Alignment:
        """Of the tensors that both list at the start; from now on again whenever a side lists others.

        Raises MarkError: see ``align``.
        """
        found = self._aligned(self.renames)
        self.base.on_announced = self.target.on_announced = self._again
        return found

    def _again(self) -> None:
        here, there = ({meta.name for meta in side.announced} for side in (self.target, self.base))
        self._aligned({new: old for new, old in self.renames.items() if new in here and old in there})

    def _aligned(self, renames: Mapping[str, str]) -> Alignment:
        found = align(
            self.base.announced, self.target.announced, renames, self.matches, two_files=self.two_files
        )  # fmt: skip
        pairs = {name: (pair.base.name, pair.how) for name, pair in found.pairs.items()}
        self.journal.write(
            Paired(pairs=pairs, rivals=found.rivals, refused=found.refused, missing=found.missing)
        )  # fmt: skip
        return found
