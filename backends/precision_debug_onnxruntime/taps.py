"""A custom operator that shows a tensor to a Python function while ONNX Runtime holds it.

``Tap`` has one input and no output, so hanging it on a tensor changes neither the graph's outputs nor the edge. With
``ExecutionOrder.PRIORITY_BASED`` nodes run in the order of the graph, so a tap runs right after its producer. It is
registered once for the process; each session routes by numbers of its own, so sessions in several threads do not
meet. onnxruntime-extensions hands over a copy of the tensor, made for this one call.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from .lean import extensions

__all__ = ["DOMAIN", "NATIVE", "connect", "disconnect", "register"]

DOMAIN = "precision_debug.taps"
# element types that onnxruntime-extensions can hand over; others end the process, so they are cast before
NATIVE = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13})

_lock = threading.Lock()
_numbers = itertools.count()
_receivers: dict[int, Callable[[int, Any], None]] = {}
_registered: list[Any] = []


def register() -> None:
    """Make ``Tap`` known to onnxruntime-extensions; once for the process, whoever calls first."""
    library = extensions()
    kinds, onnx_op = library.PyCustomOpDef, library.onnx_op
    with _lock:
        if not _registered:
            attributes = {"session": kinds.dt_int64, "place": kinds.dt_int64}
            declare = onnx_op(op_type=f"{DOMAIN}::Tap", inputs=[kinds.undefined], outputs=[], attrs=attributes)
            _registered.append(declare(_dispatch))


def connect(receive: Callable[[int, Any], None]) -> int:
    """A session number for taps, whose place and tensor ``receive`` gets from now on.

    It must not raise: an exception on this way ends the process.
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
