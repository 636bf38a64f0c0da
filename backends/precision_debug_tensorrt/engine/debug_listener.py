"""TensorRT's debug listener (10 and later): called with each debug tensor while the engine runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from .device_memory import Device
from .types import numpy_dtype, type_name
from .versions import Api

__all__ = ["Listener", "address_of", "make_listener"]

Listener = Callable[[str, Any, Exception | None], None]
"""Gets the tensor's name and its array; or None and what went wrong, since nothing may be raised inside TensorRT."""


def make_listener(api: Api, device: Device, receive: Listener, *, on_device: bool = False) -> Any:
    """A listener that copies each tensor to the host, where TensorRT lets its memory go after the call.

    on_device: it is shown where it is instead, and lives during the call only.
    """
    base: Any = api.trt.IDebugListener
    host = api.trt.TensorLocation.HOST

    class DebugListener(base):  # type: ignore[misc]
        def __init__(self) -> None:
            base.__init__(self)

        def process_debug_tensor(
            self, addr: Any, location: Any, kind: Any, shape: Any, name: str, _stream: int
        ) -> bool:
            try:
                dtype = numpy_dtype(kind)
                if dtype is None:
                    receive(name, None, TypeError(f"its type {type_name(kind)} is not read here"))
                    return True
                sizes = tuple(int(dim) for dim in shape)
                array: Any
                if location == host:
                    size = int(np.prod(sizes, dtype=np.int64)) * dtype.itemsize
                    array = np.frombuffer(ctypes.string_at(address_of(addr), size), dtype).reshape(sizes)
                else:
                    read = device.tensor if on_device else device.download
                    array = read(address_of(addr), sizes, dtype)
                receive(name, array, None)
            except Exception as error:
                receive(name, None, error)
            return True

    return DebugListener()


def address_of(pointer: Any) -> int:
    """An address from an integer or from the capsule in which the bindings hand it over."""
    if isinstance(pointer, int):
        return pointer
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get_pointer(pointer, get_name(pointer)) or 0)
