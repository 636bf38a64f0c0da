"""The operators ``Tap`` and ``DeviceTap``: show a tensor to a Python function while ONNX Runtime holds it.

It has one input and no output, so hanging it on a tensor changes neither the graph's outputs nor the edge. With
``ExecutionOrder.PRIORITY_BASED`` nodes run in the order of the graph, so a tap runs right after its producer. Each
session routes by numbers of its own, so sessions in several threads do not meet.

Where tap.c is compiled, the tensor is ONNX Runtime's own memory, which lives as long as the call; where it is not,
onnxruntime-extensions hands over a copy of it, and knows fewer types. ``DeviceTap`` is CUDA's provider's: it gives the
address in the device's memory, and the stream that the tensor is made on.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from precision_debug.onnx.types import numpy_dtype
from precision_debug.safety.compiled import load

from .light_imports import extensions

__all__ = ["DOMAIN", "connect", "disconnect", "lent", "library", "register", "types"]

DOMAIN = "precision_debug.taps"
LIBRARY = Path(__file__).parent.parent / "_tap.so"
SOURCES = ("tap.c",)
VARIABLE = "PRECISION_DEBUG_TAPS"
"""In the environment: "extensions" leaves tap.c aside, to be tested or where it makes trouble."""

_HOST = -1
"""In place of a stream: the tensor lies in the host's memory."""

_BYTES = frozenset({*range(1, 8), 9, 10, *range(11, 21)})
"""Element types of whole bytes that numpy or ml_dtypes knows."""

# those that onnxruntime-extensions can hand over; others end the process
_EXTENSIONS = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13})

_lock = threading.Lock()
_numbers = itertools.count()
_receivers: dict[int, Callable[[int, Any], None]] = {}
_registered: list[Any] = []


def lent() -> bool:
    """Whether a tensor is ONNX Runtime's own memory, and gone after the call."""
    return _own() is not None


def types() -> frozenset[int]:
    """ONNX element types that a tap can show as they are; others must be cast before."""
    return _BYTES if lent() else _EXTENSIONS


def library() -> str:
    """Path of the library that has the operator. Raises ImportError where there is none."""
    return str(LIBRARY) if lent() else str(extensions().get_library_path())


def register() -> None:
    """Make ``Tap`` known to the process; once, whoever calls first."""
    with _lock:
        if _registered or lent():
            return
        found = extensions()
        kinds = found.PyCustomOpDef
        attributes = {"session": kinds.dt_int64, "place": kinds.dt_int64}
        declare = found.onnx_op(op_type=f"{DOMAIN}::Tap", inputs=[kinds.undefined], outputs=[], attrs=attributes)
        _registered.append(declare(_dispatch))


def connect(receive: Callable[[int, Any], None]) -> int:
    """A session number for taps, whose place and tensor ``receive`` gets from now on.

    It must not raise: an exception on this way is lost, or ends the process.
    """
    with _lock:
        number = next(_numbers)
    _receivers[number] = receive
    return number


def disconnect(number: int) -> None:
    """Forget a session; a tap of it that still runs does nothing."""
    _receivers.pop(number, None)


def _dispatch(tensor: Any, session: int = -1, place: int = -1) -> tuple[()]:
    receive = _receivers.get(session)
    if receive is not None:
        receive(place, tensor)
    return ()


@functools.cache
def _own() -> Any:
    """tap.c as it was compiled, and the function that it tells; None where onnxruntime-extensions has to do."""
    found, _ = (None, "") if os.environ.get(VARIABLE) == "extensions" else load(LIBRARY, SOURCES)
    if found is None:
        return None
    kind = ctypes.CFUNCTYPE(
        None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32,
        ctypes.POINTER(ctypes.c_int64), ctypes.c_int64,
    )  # fmt: skip
    told = kind(_receive)
    found.pd_receive(told)
    return found, told


def _receive(session: int, place: int, data: int | None, elem: int, rank: int, shape: Any, stream: int) -> None:
    receive = _receivers.get(session)
    if receive is None:
        return
    if rank < 0:
        receive(place, None)
        return
    sizes = tuple(shape[axis] for axis in range(rank))
    receive(place, _array(data, elem, sizes) if stream == _HOST else _on_device(data, elem, sizes, stream))


def _on_device(data: int | None, elem: int, shape: tuple[int, ...], stream: int) -> Any:
    """The memory at ``data`` of a CUDA device; None where that cannot be told."""
    import numpy as np

    from precision_debug.numbers.cuda.device import DeviceArray
    from precision_debug.numbers.cuda.driver import device, device_of_pointer

    try:
        where = device_of_pointer(data) if data and math.prod(shape) else device(0)
        return DeviceArray(where, data or 0, shape, np.dtype(numpy_dtype(elem)), stream=stream)
    except Exception:
        return None


def _array(data: int | None, elem: int, shape: tuple[int, ...]) -> Any:
    """The memory at ``data`` as a read-only numpy array."""
    import numpy as np

    dtype = np.dtype(numpy_dtype(elem))
    size = math.prod(shape)
    if not data or not size:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(data)
    array = np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
    array.flags.writeable = False
    return array
