"""Whether what CUDA's provider makes is compared in the GPU's memory, by the core's kernels and the driver alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from precision_debug.records import SessionSpec

from .engine import taps
from .modes import recipe

if TYPE_CHECKING:
    from precision_debug.numbers.cuda.comparer import CudaComparer, CudaStore

__all__ = ["make_device_comparer", "make_device_store"]


def make_device_comparer(spec: SessionSpec) -> CudaComparer | None:
    """Return what compares; None where the mode is not CUDA's, without compiled taps, or where the kernels do not
    run."""
    if recipe(spec.mode).engine != "cuda" or not taps.borrows_memory():
        return None
    from precision_debug.numbers.cuda.comparer import CudaComparer
    from precision_debug.numbers.cuda.driver import explain_unavailable

    return None if explain_unavailable() else CudaComparer()


def make_device_store(spec: SessionSpec) -> CudaStore | None:
    """Return what keeps the baseline's tensors, where they are on the device too."""
    if recipe(spec.mode).engine != "cuda":
        return None
    from precision_debug.numbers.cuda.comparer import CudaStore

    return CudaStore()
