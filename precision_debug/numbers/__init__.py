"""Numbers of one tensor and of a pair of tensors; no verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import make_lazy_exports

__all__ = ["compare", "describe", "describe_kernel", "measure"]

if TYPE_CHECKING:
    from .measuring import compare, describe, measure
    from .native import describe_kernel

__getattr__ = make_lazy_exports(__name__, {"measuring": "compare describe measure", "native": "describe_kernel"})
