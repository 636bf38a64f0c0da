"""The CUDA driver through ctypes: memory, streams' events and kernels of one device, with nothing else installed.

Every device is used through its primary context, which the CUDA runtime, and so ONNX Runtime, TensorRT and torch, use
too: their pointers and streams are ours. Pointers and streams are plain integers. A backend runs on this memory;
comparing in it is a product's (behind the door "comparers"). Nothing here is imported before a session needs a card.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import BackendError

__all__ = ["Device", "DeviceArray", "Event", "Memory", "Pinned", "find_device_of_pointer", "open_device"]

# the numbers of cuda.h: CU_DEVICE_ATTRIBUTE_…, CU_POINTER_ATTRIBUTE_…, CU_MEMORYTYPE_DEVICE, CU_EVENT_DISABLE_TIMING,
# CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP, CUDA_ERROR_…
_COMPUTE_MAJOR, _COMPUTE_MINOR, _PROCESSORS = 75, 76, 16
_TYPE_OF_POINTER, _ORDINAL_OF_POINTER = 2, 9
_ON_A_DEVICE = 2
_NO_TIMING = 2
_PORTABLE_MAPPED = 3
_INVALID_VALUE, _OUT_OF_MEMORY, _NOT_READY = 1, 2, 600


@functools.cache
def _load_library() -> Any:
    """libcuda, initialised. Raises BackendError."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise BackendError(f"the NVIDIA driver's library {name} does not load ({error})", where="CUDA") from error
    pointer, whole = ctypes.c_void_p, ctypes.c_uint
    library.cuLaunchKernel.argtypes = [pointer, *[whole] * 7, pointer, pointer, pointer]
    for call in ("cuEventRecord", "cuStreamWaitEvent", "cuEventQuery", "cuEventSynchronize", "cuCtxSetCurrent"):
        getattr(library, call).argtypes = [pointer, pointer, whole][
            : {"cuEventRecord": 2, "cuStreamWaitEvent": 3}.get(call, 1)
        ]
    for call in ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2"):
        getattr(library, call).argtypes = [pointer, pointer, ctypes.c_size_t, pointer]
    library.cuMemAlloc_v2.argtypes = [pointer, ctypes.c_size_t]
    library.cuMemFree_v2.argtypes = library.cuStreamSynchronize.argtypes = [pointer]
    library.cuMemsetD32Async.argtypes = [pointer, whole, ctypes.c_size_t, pointer]
    library.cuMemHostAlloc.argtypes = [pointer, ctypes.c_size_t, whole]
    library.cuModuleLoadData.argtypes = [pointer, ctypes.c_char_p]
    library.cuModuleGetFunction.argtypes = [pointer, pointer, ctypes.c_char_p]
    library.cuPointerGetAttribute.argtypes = [pointer, ctypes.c_int, pointer]
    _raise_unless_ok(library, library.cuInit(0), "cuInit")
    return library


def _raise_unless_ok(library: Any, status: int, what: str) -> None:
    if status:
        text = ctypes.c_char_p()
        library.cuGetErrorString(status, ctypes.byref(text))
        said = text.value.decode() if text.value else f"status {status}"
        hint = "mark fewer tensors, or use a smaller batch" if status == _OUT_OF_MEMORY else "nvidia-smi shows the card"
        raise BackendError(f"{what}: {said}", where="CUDA", hint=hint)


_devices: dict[int, Device] = {}
_lock = threading.RLock()


def open_device(ordinal: int = 0) -> Device:
    """Return the device of a number, as CUDA_VISIBLE_DEVICES leaves them. Raises BackendError."""
    with _lock:
        if ordinal not in _devices:
            _devices[ordinal] = Device(ordinal)
        return _devices[ordinal]


def find_device_of_pointer(pointer: int) -> Device | None:
    """Return the device that has a pointer's memory; None where the host has it, pinned or not. Raises BackendError."""
    library, found = _load_library(), ctypes.c_int()
    status = library.cuPointerGetAttribute(ctypes.byref(found), _TYPE_OF_POINTER, pointer)
    if status == _INVALID_VALUE or (not status and found.value != _ON_A_DEVICE):  # CUDA does not know the host's own
        return None
    _raise_unless_ok(library, status, "the pointer")
    _raise_unless_ok(
        library, library.cuPointerGetAttribute(ctypes.byref(found), _ORDINAL_OF_POINTER, pointer), "the pointer"
    )
    return open_device(found.value)


class Device:
    """One GPU. Safe to use from several threads. lanes: of a warp."""

    lanes = 32

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self._library = library = _load_library()
        number, context = ctypes.c_int(), ctypes.c_void_p()
        _raise_unless_ok(library, library.cuDeviceGet(ctypes.byref(number), ordinal), f"device {ordinal}")
        _raise_unless_ok(library, library.cuDevicePrimaryCtxRetain(ctypes.byref(context), number), f"device {ordinal}")
        self._context, self._number = context.value, number.value
        self.processors = self._attribute(_PROCESSORS)
        self.capability = self._attribute(_COMPUTE_MAJOR) * 10 + self._attribute(_COMPUTE_MINOR)
        name = ctypes.create_string_buffer(256)
        _raise_unless_ok(library, library.cuDeviceGetName(name, len(name), number), f"device {ordinal}")
        self.name = name.value.decode()
        self._modules: dict[str, int] = {}
        self._functions: dict[str, int] = {}

    def _attribute(self, which: int) -> int:
        found = ctypes.c_int()
        _raise_unless_ok(
            self._library, self._library.cuDeviceGetAttribute(ctypes.byref(found), which, self._number), "CUDA"
        )
        return found.value

    def enter(self) -> int | None:
        """Make this device's context the calling thread's; returns what ``leave`` takes."""
        before = ctypes.c_void_p()
        self._library.cuCtxGetCurrent(ctypes.byref(before))
        if before.value != self._context:
            self._do("cuCtxSetCurrent", self._context)
        return before.value

    def leave(self, before: int | None) -> None:
        """Give the thread back the context that it had; without one it keeps this."""
        if before is not None and before != self._context:
            self._library.cuCtxSetCurrent(before)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """This device's context is the calling thread's inside."""
        before = self.enter()
        try:
            yield
        finally:
            self.leave(before)

    def threads(self, warps: int) -> int:
        """Threads of a block of so many warps."""
        return self.lanes * warps

    def function(self, name: str, load_code: Callable[[str, int], tuple[str, Iterator[bytes]]]) -> int:
        """Return a kernel, whose text the driver compiles when the first of its module is asked for.

        load_code: of a kernel and a compute capability (90: 9.0) the module that has it, and what the driver may load.
        """
        found = self._functions.get(name)
        if found is None:
            with _lock, self.current():
                module, codes = load_code(name, self.capability)
                if module not in self._modules:
                    self._modules[module] = self._loaded(codes)
                found_there = ctypes.c_void_p()
                self._do("cuModuleGetFunction", ctypes.byref(found_there), self._modules[module], name.encode())
                found = self._functions[name] = found_there.value or 0
        return found

    def _loaded(self, codes: Iterator[bytes]) -> int:
        """Return a module, of the first code that the driver takes."""
        made, status = ctypes.c_void_p(), 0
        for code in codes:
            status = self._library.cuModuleLoadData(ctypes.byref(made), code)
            if not status:
                return made.value or 0
        _raise_unless_ok(self._library, status, "the kernels do not load")
        return 0

    def launch(self, function: int, blocks: int, threads: int, stream: int, arguments: int) -> None:
        """Queue a kernel. The context must be current. arguments: address of the pointers to them."""
        status = self._library.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, None)
        if status:
            _raise_unless_ok(self._library, status, "a kernel's launch")

    def allocate(self, size: int) -> Memory:
        """size: bytes; at least one is taken. Raises BackendError where memory is short."""
        pointer = ctypes.c_void_p()
        with self.current():
            self._do("cuMemAlloc_v2", ctypes.byref(pointer), max(size, 1), what=f"{size:,} bytes of device memory")
        return Memory(self, pointer.value or 0, size)

    def pinned(self, size: int) -> Pinned:
        """Memory of the host that kernels write to."""
        pointer = ctypes.c_void_p()
        with self.current():
            self._do("cuMemHostAlloc", ctypes.byref(pointer), max(size, 1), _PORTABLE_MAPPED)
        return Pinned(pointer.value or 0, size)

    def fill(self, pointer: int, words: int, stream: int) -> None:
        """So many 32-bit words of 0."""
        with self.current():
            self._do("cuMemsetD32Async", pointer, 0, words, stream)

    def upload(self, pointer: int, array: np.ndarray[Any, Any], stream: int) -> None:
        """Copy a contiguous array to the device; the array's memory, unless pinned, is read before this returns."""
        with self.current():
            self._do("cuMemcpyHtoDAsync_v2", pointer, array.ctypes.data, array.nbytes, stream)

    def download(self, pointer: int, into: np.ndarray[Any, Any], stream: int) -> None:
        """Copy into a contiguous array, once the stream has come so far."""
        with self.current():
            self._do("cuMemcpyDtoHAsync_v2", into.ctypes.data, pointer, into.nbytes, stream)
            self._do("cuStreamSynchronize", stream)

    def copy(self, to: int, pointer: int, size: int, stream: int) -> None:
        """Queue a copy inside the device."""
        with self.current():
            self._do("cuMemcpyDtoDAsync_v2", to, pointer, size, stream)

    def synchronise(self, stream: int) -> None:
        """Wait for a stream. Raises BackendError where a kernel failed."""
        with self.current():
            self._do("cuStreamSynchronize", stream)

    def synchronise_all(self) -> None:
        """Wait for everything that anybody queued. Raises BackendError where a kernel failed."""
        with self.current():
            self._do("cuCtxSynchronize")

    def event(self) -> Event:
        """Return an event that no stream has come to yet."""
        found = ctypes.c_void_p()
        with self.current():
            self._do("cuEventCreate", ctypes.byref(found), _NO_TIMING)
        return Event(self, found.value or 0)

    def stream(self) -> int:
        """Return a new stream that does not wait for the default one."""
        found = ctypes.c_void_p()
        with self.current():
            self._do("cuStreamCreate", ctypes.byref(found), 1)
        return found.value or 0

    def memory(self) -> tuple[int, int]:
        """Return bytes that are free, and all."""
        free, whole = ctypes.c_size_t(), ctypes.c_size_t()
        with self.current():
            self._do("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(whole))
        return free.value, whole.value

    def _do(self, call: str, *arguments: Any, what: str = "") -> None:
        status = getattr(self._library, call)(*arguments)
        if status:
            _raise_unless_ok(self._library, status, what or call)


class Event:
    """A place in a stream's work."""

    __slots__ = ("_device", "handle")

    def __init__(self, owner: Device, handle: int) -> None:
        self._device, self.handle = owner, handle

    def record(self, stream: int) -> None:
        """Mark the present end of a stream's queued work with this event. The context must be current."""
        self._device._do("cuEventRecord", self.handle, stream)

    def hold_up(self, stream: int) -> None:
        """Let what is queued on a stream from now on wait for this event; the host does not wait."""
        with self._device.current():
            self._device._do("cuStreamWaitEvent", stream, self.handle, 0)

    def wait(self) -> None:
        """The host waits. Raises BackendError where a kernel failed."""
        before = self._device.enter()
        self._device._do("cuEventSynchronize", self.handle)
        self._device.leave(before)

    @property
    def ready(self) -> bool:
        before = self._device.enter()
        status = self._device._library.cuEventQuery(self.handle)
        self._device.leave(before)
        return bool(status != _NOT_READY)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            with contextlib.suppress(Exception), self._device.current():
                self._device._library.cuEventDestroy_v2(ctypes.c_void_p(self.handle))


class Memory:
    """Memory of a device, as long as this lives. It must not be freed while a stream still uses it."""

    __slots__ = ("device", "pointer", "size")

    def __init__(self, owner: Device, pointer: int, size: int) -> None:
        self.device, self.pointer, self.size = owner, pointer, size

    def __del__(self) -> None:
        if self.pointer and not sys.is_finalizing():
            with contextlib.suppress(Exception), self.device.current():
                self.device._library.cuMemFree_v2(self.pointer)


class Pinned:
    """Host memory that a device writes to. It is kept until the process ends."""

    __slots__ = ("bytes", "pointer")

    def __init__(self, pointer: int, size: int) -> None:
        self.pointer = pointer
        memory: Any = (ctypes.c_char * size).from_address(pointer)
        self.bytes: np.ndarray[Any, Any] = np.frombuffer(memory, np.uint8)


class DeviceArray:
    """An array of a device in C order. owner: what must live as long as this. stream: on which it is made."""

    __slots__ = ("device", "dtype", "owner", "pointer", "shape", "size", "stream")

    def __init__(
        self, device: Device, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any = None,
        stream: int = 0,
    ) -> None:  # fmt: skip
        self.device, self.pointer, self.shape, self.dtype, self.owner = device, pointer, shape, dtype, owner
        self.stream = stream
        self.size = math.prod(shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def numpy(self, stream: int | None = None) -> np.ndarray[Any, Any]:
        """Return a copy in the host's memory, once the stream (None: its own) has come so far."""
        found = np.empty(self.shape, self.dtype)
        if found.nbytes:
            where = self.stream if stream is None else stream
            self.device.download(self.pointer, found.reshape(-1).view(np.uint8), where)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an array of a device is copied")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)
