"""The columns that a table over many samples, or iterations of a loop, has besides, by title: keys of ``Row.extra``."""

from __future__ import annotations

__all__ = ["ITERATIONS", "SAMPLES", "WORST_AT", "WORST_ITERATION", "WORST_SAMPLES"]

SAMPLES, WORST_SAMPLES, WORST_AT = "Samples", "Worst Samples", "Max Atol Sample"

ITERATIONS, WORST_ITERATION = "Iterations", "Worst Iteration"
"""How many iterations the row is over, or which of how many it is; and the worst of them, with its relative L2 error.
"""
