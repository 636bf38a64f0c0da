"""Whether what CUDA's provider makes is compared in the GPU's memory, by a product's kernels and the driver alone."""

from __future__ import annotations

from precision_debug import registry
from precision_debug.protocols import BaselineStore, Comparer, CudaComparison
from precision_debug.reasons import Reason
from precision_debug.records import SessionSpec

from .engine import taps
from .modes import recipe

__all__ = ["make_device_comparer", "make_device_store"]


def make_device_comparer(spec: SessionSpec) -> Comparer | Reason | None:
    """Return what compares; None where the mode is not CUDA's, without compiled taps, or where the kernels do not
    run, and a reason where no product has them."""
    if recipe(spec.mode).engine != "cuda" or not taps.borrows_memory():
        return None
    if why := registry.explain_host_only("cuda"):
        return why
    product: CudaComparison = registry.import_from_door("comparers", "cuda")
    return None if product.explain_unavailable() else product.CudaComparer()


def make_device_store(spec: SessionSpec) -> BaselineStore | None:
    """Return what keeps the baseline's tensors, where they are on the device too."""
    product: CudaComparison | None = registry.find_behind_door("comparers", "cuda")
    return product.CudaStore() if product is not None and recipe(spec.mode).engine == "cuda" else None
