"""Pairs a model with a file that was exported from it, by names, values and graph neighbours, and says what is wrong."""

from __future__ import annotations

from .agreement import agree
from .outputs import pair_outputs
from .walk import Found, walk

__all__ = ["Found", "agree", "pair_outputs", "walk"]
