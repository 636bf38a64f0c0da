"""The error along execution order, ready to be drawn on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..records import Row, Status
from .model import Report

__all__ = ["Curve", "Point", "curve"]

_SMALLEST = 1e-12
"""The lower edge lies no lower: errors below it mean nothing, and would flatten everything else."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One row. relative_l2 and max_abs lie within the curve's low and high; None where there is no finite number.

    introduced: relative L2 error that the operator itself added, None where that was not measured. failed: out of
    tolerance. broken: an error that is not finite, or shapes that differ; drawn apart, above every number. exact: no
    error at all.
    """

    index: int
    name: str
    op_type: str
    relative_l2: float | None
    max_abs: float | None
    failed: bool
    broken: bool
    introduced: float | None = None
    exact: bool = False


@dataclass(frozen=True, kw_only=True)
class Curve:
    """points: in execution order. low, high: powers of ten that enclose them. thinned: how many rows one stands for."""

    points: tuple[Point, ...]
    low: float
    high: float
    thinned: int = 1

    @property
    def top(self) -> float:
        """The axis' end: a decade above ``high`` where something is broken."""
        return 10 * self.high if any(point.broken for point in self.points) else self.high

    @property
    def edge(self) -> float:
        """Where what is broken is drawn: between the last gridline of a number and the axis' end."""
        return self.high * math.sqrt(10)


def curve(report: Report, limit: int = 5000) -> Curve:
    """The compared rows as points, at most about ``limit``.

    More rows are thinned in equal stretches, of which the rows stay that hold a maximum (of the relative L2 error, of
    the max absolute error, of what the operator introduced, of either among those out of tolerance) or that are broken
    first.
    """
    rows = [row for row in report.rows if row.comparison is not None]
    values = [
        error for row in rows for error in (*_errors(row), _own(row)) if error is not None and 0 < error < math.inf
    ]
    low = 10.0 ** math.floor(math.log10(max(_SMALLEST, min(values, default=1e-6))))
    high = max(100 * low, 10.0 ** min(300, math.ceil(math.log10(max(values, default=1.0)))))
    stretch = math.ceil(5 * len(rows) / limit) if len(rows) > limit else 1
    points: list[Point] = []
    for start in range(0, len(rows), stretch):
        part = [_point(row, low, high) for row in rows[start : start + stretch]]
        points += part if stretch == 1 else _tops(part)
    return Curve(points=tuple(points), low=low, high=high, thinned=stretch)


def _errors(row: Row) -> tuple[float | None, float | None]:
    return row.relative_l2, None if row.comparison is None else row.comparison.max_abs


def _own(row: Row) -> float | None:
    return None if row.introduced is None else row.introduced.rel_l2


def _point(row: Row, low: float, high: float) -> Point:
    errors = _errors(row)
    failed = row.status is Status.FAIL
    wild = any(error is not None and not math.isfinite(error) for error in errors)
    silent = failed and not any(errors)
    differs = row.comparison is not None and not row.comparison.shapes_match
    drawn = [
        min(max(error, low), high) if error is not None and math.isfinite(error) else None
        for error in (*errors, _own(row))
    ]
    broken = wild or silent or differs
    return Point(
        index=row.index, name=row.name, op_type=row.op_type, relative_l2=None if broken else drawn[0],
        max_abs=drawn[1], failed=failed, broken=broken, introduced=drawn[2], exact=not broken and errors[0] == 0,
    )  # fmt: skip


def _tops(points: Sequence[Point]) -> list[Point]:
    failed = [point for point in points if point.failed] or points
    tops = (
        max(points, key=lambda point: point.relative_l2 or 0.0),
        max(points, key=lambda point: point.max_abs or 0.0),
        max(failed, key=lambda point: point.relative_l2 or 0.0),
        max(points, key=lambda point: point.introduced or 0.0),
        next((point for point in points if point.broken), points[0]),
    )
    kept = {point.index for point in tops}
    return [point for point in points if point.index in kept]
