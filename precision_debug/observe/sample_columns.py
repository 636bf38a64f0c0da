"""The columns that a table over many samples has besides, by title: keys of ``Row.extra``."""

from __future__ import annotations

__all__ = ["SAMPLES", "WORST_AT", "WORST_SAMPLES"]

SAMPLES, WORST_SAMPLES, WORST_AT = "Samples", "Worst Samples", "Max Atol Sample"
