"""Device memory through a library that somebody keeps: torch, cupy or cuda-python, whichever is installed.

Pointers and streams are plain integers here, as TensorRT's Python API takes them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from precision_debug.errors import BackendError, BackendUnavailable

__all__ = ["Buffer", "CudaPython", "Cupy", "Device", "Torch", "find_device"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """Memory on the device, as long as this lives. owner: what frees it."""

    pointer: int
    size: int
    owner: Any


class Device(Protocol):
    """One GPU and one stream."""

    @property
    def library(self) -> str:
        """Name and version of the library behind it."""

    @property
    def name(self) -> str:
        """The GPU's name."""

    @property
    def stream(self) -> int: ...

    def allocate(self, size: int) -> Buffer:
        """size: bytes, at least one is taken. Raises BackendError where memory is short."""

    def upload(self, array: Array) -> Buffer: ...

    def download(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A copy of ``pointer``'s memory in C order, once the stream has finished what it was given."""

    @property
    def shows_tensors(self) -> bool:
        """Whether ``tensor`` gives one."""

    def tensor(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any = None) -> Any:
        """``pointer``'s memory as a torch tensor, not copied, once the stream has finished; None without torch.

        owner: what must live as long as the tensor.
        """

    def synchronise(self) -> None:
        """Wait for the stream. Raises BackendError where a kernel failed."""

    def free_bytes(self) -> int: ...


@functools.cache
def find_device() -> Device:
    """The first library that is installed and sees a GPU. Raises BackendUnavailable."""
    tried = []
    for kind in (Torch, Cupy, CudaPython):
        try:
            return kind()
        except Exception as error:
            tried.append(f"{kind.__name__.lower()}: {error or type(error).__name__}")
    raise BackendUnavailable(
        f"no GPU can be reached ({'; '.join(tried)})",
        hint="an NVIDIA GPU with its driver, and torch, cupy or cuda-python (pip install cuda-python)",
    )


class Torch:
    """Memory of PyTorch's allocator. where: a torch device."""

    def __init__(self, where: str = "cuda") -> None:
        torch: Any = importlib.import_module("torch")
        if where == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("torch sees no GPU")
        self.torch, self.where = torch, where
        self._stream = torch.cuda.Stream() if where == "cuda" else None

    @property
    def library(self) -> str:
        return f"torch {self.torch.__version__}"

    @property
    def name(self) -> str:
        return str(self.torch.cuda.get_device_name()) if self._stream is not None else self.where

    @property
    def stream(self) -> int:
        return int(self._stream.cuda_stream) if self._stream is not None else 0

    def allocate(self, size: int) -> Buffer:
        try:
            owner = self.torch.empty(max(size, 1), dtype=self.torch.uint8, device=self.where)
        except RuntimeError as error:
            raise _short_of(size, str(error)) from error
        return Buffer(pointer=int(owner.data_ptr()), size=size, owner=owner)

    def upload(self, array: Array) -> Buffer:
        buffer = self.allocate(array.nbytes)
        if array.nbytes:
            source = self.torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy())
            buffer.owner.copy_(source)
        return buffer

    def download(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        self.synchronise()
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not size:
            return np.empty(shape, dtype)
        flat: Array = self._bytes(pointer, size).cpu().numpy()
        return (flat if self._stream is not None else flat.copy()).view(dtype).reshape(shape)

    @property
    def shows_tensors(self) -> bool:
        return True

    def tensor(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any = None) -> Any:
        self.synchronise()
        kind = getattr(self.torch, dtype.name, None)
        if kind is None:
            return None
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not size:
            return self.torch.empty(shape, dtype=kind, device=self.where)
        return self._bytes(pointer, size, owner).view(kind).reshape(shape)

    def _bytes(self, pointer: int, size: int, owner: Any = None) -> Any:
        if self._stream is None:
            import ctypes

            memory = (ctypes.c_uint8 * size).from_address(pointer)
            memory.owner = owner  # type: ignore[attr-defined]
            return self.torch.frombuffer(memory, dtype=self.torch.uint8)
        return self.torch.as_tensor(_CudaArray(pointer, size, owner), device=self.where)

    def synchronise(self) -> None:
        if self._stream is not None:
            try:
                self._stream.synchronize()
            except RuntimeError as error:
                raise BackendError(f"the GPU failed: {error}", where="TensorRT") from error

    def free_bytes(self) -> int:
        return int(self.torch.cuda.mem_get_info()[0]) if self._stream is not None else 2**62


class _CudaArray:
    """Foreign device memory for whoever reads ``__cuda_array_interface__`` (version 3), and keeps this object."""

    def __init__(self, pointer: int, size: int, owner: Any = None) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (pointer, False), "version": 3, "strides": None, "stream": None,
        }  # fmt: skip


class Cupy:
    """Memory of CuPy's pool."""

    def __init__(self) -> None:
        cupy: Any = importlib.import_module("cupy")
        if not cupy.cuda.runtime.getDeviceCount():
            raise RuntimeError("cupy sees no GPU")
        self.cupy = cupy
        self._stream = cupy.cuda.Stream()  # waits for the default stream, on which the uploads are

    @property
    def library(self) -> str:
        return f"cupy {self.cupy.__version__}"

    @property
    def name(self) -> str:
        properties = self.cupy.cuda.runtime.getDeviceProperties(self.cupy.cuda.runtime.getDevice())
        name = properties["name"]
        return name.decode() if isinstance(name, bytes) else str(name)

    @property
    def stream(self) -> int:
        return int(self._stream.ptr)

    def allocate(self, size: int) -> Buffer:
        try:
            owner = self.cupy.cuda.alloc(max(size, 1))
        except Exception as error:
            raise _short_of(size, str(error)) from error
        return Buffer(pointer=int(owner.ptr), size=size, owner=owner)

    def upload(self, array: Array) -> Buffer:
        buffer = self.allocate(array.nbytes)
        if array.nbytes:
            flat = np.ascontiguousarray(array)
            buffer.owner.copy_from_host(flat.ctypes.data, flat.nbytes)
        return buffer

    def download(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        self.synchronise()
        result = np.empty(shape, dtype)
        if result.nbytes:
            memory = self.cupy.cuda.UnownedMemory(pointer, result.nbytes, self)
            self.cupy.cuda.MemoryPointer(memory, 0).copy_to_host(result.ctypes.data, result.nbytes)
        return result

    @property
    def shows_tensors(self) -> bool:
        return False

    def tensor(self, *_: Any, **__: Any) -> Any:
        return None

    def synchronise(self) -> None:
        try:
            self._stream.synchronize()
        except Exception as error:
            raise BackendError(f"the GPU failed: {error}", where="TensorRT") from error

    def free_bytes(self) -> int:
        return int(self.cupy.cuda.runtime.memGetInfo()[0])


class CudaPython:
    """NVIDIA's own bindings, cuda-python. cudart: its runtime module, found by itself."""

    def __init__(self, cudart: Any = None) -> None:
        if cudart is None:
            try:
                cudart = importlib.import_module("cuda.bindings.runtime")
            except ImportError:
                cudart = importlib.import_module("cuda.cudart")
        self.cudart = cudart
        if not self._call("cudaGetDeviceCount"):
            raise RuntimeError("no GPU")
        self._device = self._call("cudaGetDevice")
        self._stream = self._call("cudaStreamCreate")

    @property
    def library(self) -> str:
        for name in ("cuda-bindings", "cuda-python"):
            try:
                return f"{name} {importlib.metadata.version(name)}"
            except importlib.metadata.PackageNotFoundError:
                continue
        return "cuda-python"

    @property
    def name(self) -> str:
        name = self._call("cudaGetDeviceProperties", self._device).name
        return name.decode().rstrip("\0") if isinstance(name, bytes) else str(name)

    @property
    def stream(self) -> int:
        return int(self._stream)

    def allocate(self, size: int) -> Buffer:
        try:
            pointer = int(self._call("cudaMalloc", max(size, 1)))
        except BackendError as error:
            raise _short_of(size, error.what) from error
        return Buffer(pointer=pointer, size=size, owner=_Freed(self.cudart, pointer))

    def upload(self, array: Array) -> Buffer:
        buffer = self.allocate(array.nbytes)
        if array.nbytes:
            flat = np.ascontiguousarray(array)
            kind = self.cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
            self._call("cudaMemcpy", buffer.pointer, flat.ctypes.data, flat.nbytes, kind)
        return buffer

    def download(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        self.synchronise()
        result = np.empty(shape, dtype)
        if result.nbytes:
            kind = self.cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
            self._call("cudaMemcpy", result.ctypes.data, pointer, result.nbytes, kind)
        return result

    @property
    def shows_tensors(self) -> bool:
        return False

    def tensor(self, *_: Any, **__: Any) -> Any:
        return None

    def synchronise(self) -> None:
        self._call("cudaStreamSynchronize", self._stream)

    def free_bytes(self) -> int:
        return int(self._call("cudaMemGetInfo")[0])

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *values = getattr(self.cudart, name)(*arguments)
        if int(status):
            text = self.cudart.cudaGetErrorString(status)[1]
            text = text.decode() if isinstance(text, bytes) else str(text)
            raise BackendError(f"{name}: {text}", where="CUDA", hint="nvidia-smi shows what uses the GPU")
        return values[0] if len(values) == 1 else tuple(values)


class _Freed:
    """Frees device memory when it is collected."""

    def __init__(self, cudart: Any, pointer: int) -> None:
        self._cudart, self._pointer = cudart, pointer

    def __del__(self) -> None:
        pointer, self._pointer = getattr(self, "_pointer", 0), 0
        if pointer:
            self._cudart.cudaFree(pointer)


def _short_of(size: int, text: str) -> BackendError:
    return BackendError(
        f"no {size:,} bytes of device memory: {text}", where="CUDA",
        hint="mark fewer tensors, lower --memory_budget, or use a smaller batch",
    )  # fmt: skip
