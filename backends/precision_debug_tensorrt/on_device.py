"""Whether the engine's tensors are compared in the GPU's memory."""

from __future__ import annotations

from precision_debug import registry
from precision_debug.errors import BackendUnavailable
from precision_debug.protocols import Comparer, CudaComparison
from precision_debug.reasons import Reason

from .engine.device_memory import find_device

__all__ = ["make_engine_comparer"]


def make_engine_comparer() -> Comparer | Reason | None:
    """Return what compares; None without a GPU that the kernels run on, and a reason where no product has them."""
    try:
        device = find_device()
    except BackendUnavailable:
        return None
    if not device.shows_tensors:
        return registry.explain_host_only("cuda")
    product: CudaComparison = registry.import_from_door("comparers", "cuda")
    return product.CudaComparer()
