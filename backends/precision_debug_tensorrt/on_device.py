"""Whether the engine's tensors are compared in the GPU's memory, where torch is there to do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .engine.device_memory import find_device

if TYPE_CHECKING:
    from precision_debug.numbers.cuda.comparer import CudaComparer

__all__ = ["engine_comparer"]


def engine_comparer() -> CudaComparer | None:
    """What compares; None without a GPU that torch can use."""
    try:
        from precision_debug.numbers.cuda.comparer import CudaComparer

        device = find_device()
    except Exception:
        return None
    return CudaComparer() if device.shows_tensors else None
