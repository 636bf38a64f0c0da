"""Protocols of a report and its coverage, for what the report itself asks: its claims, its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..inspector import EngineLayer
from ..reasons import Reason
from ..records import Explanation, InputInfo, MetricChange, Row, RunSpec, SamplesRead, Side
from .claim import Claim

__all__ = ["Covered", "Judged"]


class Covered(Protocol):
    """A ``report.coverage.Coverage``."""

    @property
    def compared(self) -> int: ...

    @property
    def lost(self) -> int: ...

    @property
    def hidden(self) -> int: ...

    @property
    def share(self) -> float: ...


class Judged(Protocol):
    """A ``report.model.Report``, which asks these modules and so is not imported by them."""

    @property
    def rows(self) -> tuple[Row, ...]: ...

    @property
    def spec(self) -> RunSpec: ...

    @property
    def baseline(self) -> Side: ...

    @property
    def target(self) -> Side: ...

    @property
    def inputs(self) -> tuple[InputInfo, ...]: ...

    @property
    def samples(self) -> SamplesRead | None: ...

    @property
    def layers(self) -> tuple[EngineLayer, ...]: ...

    @property
    def notes(self) -> tuple[Reason, ...]: ...

    @property
    def failure(self) -> str: ...

    @property
    def compared(self) -> tuple[Row, ...]: ...

    @property
    def outputs(self) -> tuple[Row, ...]: ...

    @property
    def first_mismatch(self) -> Row | None: ...

    @property
    def first_non_finite(self) -> Row | None: ...

    @property
    def coverage(self) -> Covered: ...

    @property
    def explanation(self) -> Explanation | None: ...

    @property
    def checks(self) -> Mapping[str, float]: ...

    @property
    def metric(self) -> MetricChange | None: ...

    @property
    def asserted(self) -> tuple[Claim, ...]: ...

    @property
    def claims(self) -> tuple[Claim, ...]: ...

    @property
    def verdict(self) -> str: ...
