"""What is read of a report by what the report itself asks: its doubts, its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..inspector import EngineLayer
from ..records import Row, RunSpec, Side

__all__ = ["Judged"]


class Judged(Protocol):
    """A ``model.Report``, which asks these modules and so is not imported by them."""

    @property
    def rows(self) -> tuple[Row, ...]: ...

    @property
    def spec(self) -> RunSpec: ...

    @property
    def baseline(self) -> Side: ...

    @property
    def target(self) -> Side: ...

    @property
    def layers(self) -> tuple[EngineLayer, ...]: ...

    @property
    def failure(self) -> str: ...

    @property
    def compared(self) -> tuple[Row, ...]: ...

    @property
    def outputs(self) -> tuple[Row, ...]: ...

    @property
    def checks(self) -> Mapping[str, float]: ...

    @property
    def verdict(self) -> str: ...
