"""Numbers as people read them."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context

__all__ = ["are", "count", "duration", "figure", "many", "percent", "shape", "sufficient", "were"]


def figure(value: float | None) -> str:
    """Four significant digits; "" for None; nan, inf and -inf as those words."""
    if value is None:
        return ""
    return f"{value:.4g}"


def sufficient(value: float) -> str:
    """Two significant digits, rounded up: a tolerance that is still enough."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    return f"{float(Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(value)):g}"


def percent(share: float) -> str:
    """A share from 0 to 1; never 0 % where something is there, never 100 % where something is missing."""
    if 0 < share < 0.0001:
        return "<0.01%"
    if 0.9999 < share < 1:
        return ">99.99%"
    return f"{100 * share:.4g}%"


def count(value: int) -> str:
    """With thousands apart."""
    return f"{value:,}"


def many(value: int, noun: str) -> str:
    """Write a count with its noun: "1 tensor", "1,024 tensors"."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def are(value: int) -> str:
    """Return the verb after a count: "is" after 1, else "are"."""
    return "is" if value == 1 else "are"


def were(value: int) -> str:
    """Return the verb after a count: "was" after 1, else "were"."""
    return "was" if value == 1 else "were"


def shape(value: tuple[int, ...]) -> str:
    """As Paddle's table writes it: [8, 3, 224, 224]."""
    return str(list(value))


def duration(seconds: float | None) -> str:
    """In seconds, or in minutes and seconds."""
    if seconds is None:
        return ""
    if seconds < 0.001:
        return "0 s"
    if seconds < 120 or not math.isfinite(seconds):
        return f"{seconds:.3g} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
