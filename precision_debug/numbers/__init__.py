"""Numbers of one tensor and of a pair of tensors; no verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import lazy_exports

__all__ = ["compare", "describe", "kernel_status", "measure"]

if TYPE_CHECKING:
    from .measuring import compare, describe, measure
    from .native import kernel_status

__getattr__ = lazy_exports(__name__, {"measuring": "compare describe measure", "native": "kernel_status"})
