"""Numbers of one tensor and of a pair of tensors; no verdict."""

from __future__ import annotations

from .measure import compare, describe, measure
from .native import kernel_status

__all__ = ["compare", "describe", "kernel_status", "measure"]
