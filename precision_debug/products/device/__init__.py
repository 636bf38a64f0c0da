"""Device: the comparison of tensors in a card's memory, by kernels of our own and the CUDA driver alone."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DOORS"]

DOORS: Mapping[str, Mapping[str, str]] = {
    "comparers": {"cuda": f"{__name__}.comparer", "torch": f"{__name__}.torch_tensors"},
}
