"""Numbers of one tensor and of a pair of tensors; no verdict."""

from __future__ import annotations

from .measure import compare, describe

__all__ = ["compare", "describe"]
