"""Whether the engine's tensors are compared in the GPU's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .engine.device_memory import find_device

if TYPE_CHECKING:
    from precision_debug.numbers.cuda.comparer import CudaComparer

__all__ = ["make_engine_comparer"]


def make_engine_comparer() -> CudaComparer | None:
    """Return what compares; None without a GPU that the core's kernels run on."""
    from precision_debug.errors import BackendUnavailable

    try:
        device = find_device()
    except BackendUnavailable:
        return None
    if not device.shows_tensors:
        return None
    from precision_debug.numbers.cuda.comparer import CudaComparer

    return CudaComparer()
