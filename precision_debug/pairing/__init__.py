"""Pairs a model with a file exported from it, by names, values and graph neighbours, and says what is wrong in it."""

from __future__ import annotations

from .agreement import agree
from .outputs import pair_outputs
from .walk import Found, walk

__all__ = ["Found", "agree", "pair_outputs", "walk"]
