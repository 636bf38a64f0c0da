"""Device memory through the CUDA driver alone, which is there wherever TensorRT runs.

Pointers and streams are plain integers here, as TensorRT's Python API takes them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from precision_debug import registry
from precision_debug.errors import BackendError, BackendUnavailable

from ..reasons import say

if TYPE_CHECKING:
    from precision_debug.numbers.cuda import Device as Gpu
    from precision_debug.numbers.cuda import DeviceArray
    from precision_debug.protocols import CudaComparison

__all__ = ["Buffer", "Device", "find_device"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """Memory on the device, as long as this lives. owner: what frees it."""

    pointer: int
    size: int
    owner: Any


@functools.cache
def find_device() -> Device:
    """Return the first GPU. Raises BackendUnavailable."""
    from precision_debug.numbers import cuda

    product: CudaComparison | None = registry.find_behind_door("comparers", "cuda")
    try:
        gpu = cuda.open_device(0)
        return Device(gpu, shows_tensors=product is not None and not product.explain_unavailable())
    except BackendError as error:
        raise BackendUnavailable(say("no_gpu", error=str(error)), hint=say("install_gpu")) from error


class Device:
    """One GPU and one stream. shows_tensors: the kernels run on it, so that tensors are compared there."""

    library = "the CUDA driver"

    def __init__(self, gpu: Gpu, *, shows_tensors: bool = False) -> None:
        self._gpu, self.shows_tensors = gpu, shows_tensors
        self.stream: int = gpu.stream()

    @property
    def name(self) -> str:
        """The GPU's name."""
        return self._gpu.name

    @property
    def capability(self) -> str:
        """The GPU's compute capability ("8.9")."""
        return f"{self._gpu.capability // 10}.{self._gpu.capability % 10}"

    def allocate(self, size: int) -> Buffer:
        """size: bytes, at least one is taken. Raises BackendError where memory is short."""
        try:
            owner = self._gpu.allocate(size)
        except BackendError as error:
            raise BackendError(
                f"no {size:,} bytes of device memory: {error.what}", where="CUDA",
                hint="mark fewer tensors, lower --memory_budget, or use a smaller batch",
            ) from error  # fmt: skip
        return Buffer(pointer=owner.pointer, size=size, owner=owner)

    def upload(self, array: Array) -> Buffer:
        """Return a copy of an array in C order, for what is queued on the stream from now on."""
        buffer = self.allocate(array.nbytes)
        if array.nbytes:
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._gpu.upload(buffer.pointer, flat, self.stream)
            self.synchronise()
        return buffer

    def download(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return a copy of ``pointer``'s memory in C order, once the stream has finished what it was given."""
        found = np.empty(shape, dtype)
        if found.nbytes:
            self._gpu.download(pointer, found.reshape(-1).view(np.uint8), self.stream)
        else:
            self.synchronise()
        return found

    def tensor(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any = None) -> DeviceArray:
        """``pointer``'s memory, not copied, as the stream's work so far leaves it.

        owner: what must live as long as the tensor.
        """
        from precision_debug.numbers.cuda import DeviceArray

        return DeviceArray(self._gpu, pointer, shape, dtype, owner, self.stream)

    def synchronise(self) -> None:
        """Wait for the stream. Raises BackendError where a kernel failed."""
        self._gpu.synchronise(self.stream)

    def free_bytes(self) -> int:
        """Return bytes of device memory that nobody has taken."""
        return self._gpu.memory()[0]
