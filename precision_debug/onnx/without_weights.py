"""Finds the weights in a model file's bytes, so that the rest of it can be read without them, and they where they lie.

Large tensors are skipped by their length, never decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

from .wire import BYTES, message, number, places, text

__all__ = ["cut"]

_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 7, 5, 9, 13, 14


def cut(data: memoryview, *, larger: int, location: str) -> bytes:
    """The bytes of a ModelProto in which the main graph's weights of more than ``larger`` bytes are references to
    where they lie in ``data`` itself, a file of the name ``location``. Raises ValueError where it is of no such form.
    """
    light: list[bytes | memoryview] = []
    for tag, kind, begin, start, end in places(data, 0, len(data)):
        if tag == _GRAPH and kind == BYTES:
            graph = b"".join(_graph(data, start, end, larger, location))
            light.append(message([text(_GRAPH, graph)]))
        else:
            light.append(data[begin:end])
    return b"".join(light)


def _graph(data: memoryview, begin: int, end: int, larger: int, location: str) -> Iterator[bytes | memoryview]:
    kept = begin
    for tag, kind, at, start, stop in places(data, begin, end):
        if tag != _INITIALIZER or kind != BYTES or stop - start <= larger:
            continue
        tensor = _tensor(data, start, stop, larger, location)
        if tensor is not None:
            yield data[kept:at]
            yield message([text(_INITIALIZER, tensor)])
            kept = stop
    yield data[kept:end]


def _tensor(data: memoryview, begin: int, end: int, larger: int, location: str) -> bytes | None:
    """A TensorProto without its weights; None where they are small or lie outside already."""
    fields = list(places(data, begin, end))
    raw = [field for field in fields if field[0] == _RAW_DATA and field[1] == BYTES]
    if len(raw) != 1 or any(field[0] in {_EXTERNAL_DATA, _DATA_LOCATION} for field in fields):
        return None
    *_, start, stop = raw[0]
    if stop - start <= larger:
        return None
    light = [bytes(data[at:until]) for tag, _, at, _, until in fields if tag != _RAW_DATA]
    for key, value in (("location", location), ("offset", str(start)), ("length", str(stop - start))):
        light.append(message([text(_EXTERNAL_DATA, message([text(1, key), text(2, value)]))]))
    return b"".join((*light, message([number(_DATA_LOCATION, 1)])))
