"""The operators ``Tap`` and ``DeviceTap``: show a tensor to a Python function while ONNX Runtime holds it.

It has one input and no output, so hanging it on a tensor changes neither the graph's outputs nor the edge. With
``ExecutionOrder.PRIORITY_BASED`` nodes run in the order of the graph, so a tap runs right after its producer. Each
session routes by numbers of its own, so sessions in several threads do not meet.

Where tap.c is compiled, the tensor is ONNX Runtime's own memory, which lives as long as the call; where it is not,
onnxruntime-extensions hands over a copy of it, and knows fewer types: there nothing can be written to a tensor, and
``Put`` stands between it and its readers, which get what Python returns; slower, and the same. ``DeviceTap`` is CUDA's
provider's: it gives the address in the device's memory, and the stream that the tensor is made on.
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

from .light_imports import import_extensions

__all__ = [
    "DOMAIN", "borrows_memory", "connect", "disconnect", "exchanges", "library", "put_of", "register", "types",
]  # fmt: skip

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

_FLOAT = 1
_PUTS = {
    1: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 11: "double",
    12: "uint32", 13: "uint64",
}  # fmt: skip
"""Element types that onnxruntime-extensions takes from Python, in its own words."""

_VIA_FLOAT = frozenset({10, 16})
"""float16 and bfloat16, which it does not hand over: they are cast to float32, which holds each of their numbers."""

_lock = threading.Lock()
_numbers = itertools.count()
_receivers: dict[int, Callable[[int, Any], Any]] = {}
_on_a_card: set[int] = set()
_registered: list[Any] = []


def borrows_memory() -> bool:
    """Return whether a tensor is ONNX Runtime's own memory, and gone after the call."""
    return _load_own_tap() is not None


def types() -> frozenset[int]:
    """ONNX element types that a tap can show as they are; others must be cast before."""
    return _BYTES if borrows_memory() else _EXTENSIONS


def exchanges() -> bool:
    """Return whether a run can go on with other values: where memory is not borrowed, through ``Put``."""
    if borrows_memory():
        return True
    try:
        return bool(import_extensions())
    except ImportError:
        return False


def put_of(elem: int) -> tuple[str, int]:
    """Return the operator that exchanges a tensor of an ONNX element type, and the type that it takes; ("", 0) for
    none."""
    if elem in _VIA_FLOAT:
        return f"Put{_FLOAT}", _FLOAT
    return (f"Put{elem}", elem) if elem in _PUTS else ("", 0)


def library() -> str:
    """Return the path of the library that has the operator. Raises ImportError where there is none."""
    return str(LIBRARY) if borrows_memory() else str(import_extensions().get_library_path())


def register() -> None:
    """Make ``Tap`` known to the process; once, whoever calls first."""
    with _lock:
        if _registered or borrows_memory():
            return
        found = import_extensions()
        kinds = found.PyCustomOpDef
        attributes = {"session": kinds.dt_int64, "place": kinds.dt_int64}
        declare = found.onnx_op(op_type=f"{DOMAIN}::Tap", inputs=[kinds.undefined], outputs=[], attrs=attributes)
        _registered.append(declare(_dispatch))
        for elem, word in _PUTS.items():
            kind = getattr(kinds, f"dt_{word}")
            declare = found.onnx_op(op_type=f"{DOMAIN}::Put{elem}", inputs=[kind], outputs=[kind], attrs=attributes)
            _registered.append(declare(_exchange))


def connect(receive: Callable[[int, Any], Any], *, on_a_card: bool = False) -> int:
    """Return a session number for taps, whose place and tensor ``receive`` gets from now on; what it returns goes on in
    place of the tensor, where the tap is a ``Put``, and None lets it go on itself.

    It must not raise: an exception on this way is lost, or ends the process. on_a_card: tensors of the session may lie
    in a GPU's memory.
    """
    with _lock:
        number = next(_numbers)
    _receivers[number] = receive
    if on_a_card:
        _on_a_card.add(number)
    return number


def disconnect(number: int) -> None:
    """Forget a session; a tap of it that still runs does nothing."""
    _receivers.pop(number, None)
    _on_a_card.discard(number)


def _dispatch(tensor: Any, session: int = -1, place: int = -1) -> tuple[()]:
    receive = _receivers.get(session)
    if receive is not None:
        receive(place, tensor)
    return ()


def _exchange(tensor: Any, session: int = -1, place: int = -1) -> Any:
    receive = _receivers.get(session)
    new = None if receive is None else receive(place, tensor)
    return tensor if new is None else new


@functools.cache
def _load_own_tap() -> Any:
    """tap.c as it was compiled, and the function that it tells; None where onnxruntime-extensions has to do."""
    found, _ = (None, "") if os.environ.get(VARIABLE) == "extensions" else load(LIBRARY, SOURCES)
    if found is None:
        return None
    kind = ctypes.CFUNCTYPE(
        None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32,
        ctypes.POINTER(ctypes.c_int64), ctypes.c_int64,
    )  # fmt: skip
    callback = kind(_receive)
    found.pd_receive(callback)
    return found, callback


def _receive(session: int, place: int, data: int | None, elem: int, rank: int, shape: Any, stream: int) -> None:
    receive = _receivers.get(session)
    if receive is None:
        return
    if rank < 0:
        receive(place, None)
        return
    sizes = tuple(shape[axis] for axis in range(rank))
    if session in _on_a_card:
        receive(place, _find_memory(data, elem, sizes, stream))
    else:
        receive(place, _to_array(data, elem, sizes))


def _find_memory(data: int | None, elem: int, shape: tuple[int, ...], stream: int) -> Any:
    """Return the memory at ``data``, of a device or of the host; None where that cannot be told.

    The driver is asked, not the kind of the tap: of what a body (If, Loop, Scan) takes from outside, ONNX Runtime gives
    a tap of the host the device's address, and a tap of the device the host's. What the host asked for it gets, as a
    copy.
    """
    import numpy as np

    from precision_debug.numbers.cuda import DeviceArray, find_device_of_pointer, open_device

    empty = not data or not math.prod(shape)
    try:
        where = None if empty else find_device_of_pointer(data or 0)
    except Exception:  # no driver: then nothing lies on a card
        return _to_array(data, elem, shape) if stream == _HOST else None
    try:
        if where is not None:
            found = DeviceArray(where, data or 0, shape, np.dtype(numpy_dtype(elem)), stream=max(stream, 0))
            if stream != _HOST:
                return found
            where.synchronise_all()  # nobody says on which stream it is made
            copied = found.numpy()
            copied.flags.writeable = False
            return copied
        if stream != _HOST:
            if empty:
                return DeviceArray(open_device(0), data or 0, shape, np.dtype(numpy_dtype(elem)), stream=stream)
            open_device(0).synchronise_all()
        return _to_array(data, elem, shape)
    except Exception:
        return None


def _to_array(data: int | None, elem: int, shape: tuple[int, ...]) -> Any:
    """Return the memory at ``data`` as a read-only numpy array."""
    import numpy as np

    dtype = np.dtype(numpy_dtype(elem))
    size = math.prod(shape)
    if not data or not size:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(data)
    array = np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
    array.flags.writeable = False
    return array
