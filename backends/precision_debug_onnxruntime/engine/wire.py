"""Finds the weights in a model file's bytes, so that the rest of it can be read without them, and they where they lie.

A protobuf message is a list of fields, each with its number, its wire type and its length
(https://protobuf.dev/programming-guides/encoding): large tensors are skipped by their length, never decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["cut"]

_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 7, 5, 9, 13, 14
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NO_MODEL = "not a protobuf message of the expected form"


def cut(data: memoryview, *, larger: int, location: str) -> bytes:
    """The bytes of a ModelProto in which the main graph's weights of more than ``larger`` bytes are references to
    where they lie in ``data`` itself, a file of the name ``location``. Raises ValueError where it is of no such form.
    """
    light: list[bytes | memoryview] = []
    for number, kind, begin, start, end in _fields(data, 0, len(data)):
        if number == _GRAPH and kind == _BYTES:
            graph = b"".join(_graph(data, start, end, larger, location))
            light += [_tag(_GRAPH, _BYTES), _varint(len(graph)), graph]
        else:
            light.append(data[begin:end])
    return b"".join(light)


def _graph(data: memoryview, begin: int, end: int, larger: int, location: str) -> Iterator[bytes | memoryview]:
    kept = begin
    for number, kind, at, start, stop in _fields(data, begin, end):
        if number != _INITIALIZER or kind != _BYTES or stop - start <= larger:
            continue
        tensor = _tensor(data, start, stop, larger, location)
        if tensor is not None:
            yield data[kept:at]
            yield _tag(_INITIALIZER, _BYTES) + _varint(len(tensor)) + tensor
            kept = stop
    yield data[kept:end]


def _tensor(data: memoryview, begin: int, end: int, larger: int, location: str) -> bytes | None:
    """A TensorProto without its weights; None where they are small or lie outside already."""
    fields = list(_fields(data, begin, end))
    raw = [field for field in fields if field[0] == _RAW_DATA and field[1] == _BYTES]
    if len(raw) != 1 or any(field[0] in {_EXTERNAL_DATA, _DATA_LOCATION} for field in fields):
        return None
    *_, start, stop = raw[0]
    if stop - start <= larger:
        return None
    light = [bytes(data[at:until]) for number, _, at, _, until in fields if number != _RAW_DATA]
    for key, value in (("location", location), ("offset", str(start)), ("length", str(stop - start))):
        entry = _string(1, key) + _string(2, value)
        light.append(_tag(_EXTERNAL_DATA, _BYTES) + _varint(len(entry)) + entry)
    return b"".join((*light, _tag(_DATA_LOCATION, _VARINT), _varint(1)))


def _fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, wire type, begin, and begin and end of the value, of each field."""
    while at < end:
        begin = at
        tag, at = _read(data, at, end)
        kind = tag & 7
        start = at
        if kind == _BYTES:
            length, start = _read(data, at, end)
            at = start + length
        elif kind == _VARINT:
            _, at = _read(data, at, end)
        elif kind in {_FIXED64, _FIXED32}:
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(_NO_MODEL)
        if at > end:
            raise ValueError(_NO_MODEL)
        yield tag >> 3, kind, begin, start, at


def _read(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A variable-length integer, and where it ends."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(_NO_MODEL)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _string(number: int, text: str) -> bytes:
    data = text.encode()
    return _tag(number, _BYTES) + _varint(len(data)) + data
