"""What every viewer is told of a tensor: its errors as numbers, and the colour of the worst of them."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....records import Row, Status
from ....report.blame import named_culprits
from ....report.model import Report
from ....report.values import is_newly_broken

__all__ = ["Mark", "choose_colour", "iterate_marks"]

_FINE, _LOST = -7.0, 0.0
"""Decimal logarithms of the relative errors that are as green and as red as a colour gets."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One compared tensor.

    error: relative L2, inf where only one side is finite or the shapes differ. figures: what else there is to say, by a
    stable name, as text."""

    row: Row
    error: float
    figures: Mapping[str, str]


def iterate_marks(report: Report) -> Iterator[Mark]:
    """Of every compared row, in table order."""
    blamed = {culprit.name: culprit for culprit in named_culprits(report)}
    for row in report.rows:
        numbers = row.comparison
        if numbers is None:
            continue
        error = row.relative_l2
        broken = is_newly_broken(row) or not numbers.shapes_match
        figures = {
            "status": str(row.status),
            "rel_l2": _format_figure(error),
            "max_abs": _format_figure(numbers.max_abs),
        }
        if row.introduced is not None:
            figures["introduced"] = _format_figure(row.introduced.rel_l2)
            figures["units"] = _format_figure(row.introduced.units)
        figures["growth"] = _format_figure(row.error_growth)
        for key, count in (("target_nan", numbers.target.nan), ("target_inf", numbers.target.inf)):
            figures[key] = str(count) if count else ""
        if row.name in blamed:
            figures["culprit"] = blamed[row.name].cause
        if error is None:
            error = math.inf if row.status is Status.FAIL else 0.0
        yield Mark(row=row, error=math.inf if broken else error, figures={k: v for k, v in figures.items() if v})


def choose_colour(error: float) -> str:
    """#rrggbb: green for what rounding makes, over yellow to red, by the logarithm of a relative error."""
    where = (math.log10(error) - _FINE) / (_LOST - _FINE) if 0 < error < math.inf else float(error > 0)
    red, green, blue = colorsys.hls_to_rgb((1 - min(1.0, max(0.0, where))) / 3, 0.75, 0.75)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def _format_figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
