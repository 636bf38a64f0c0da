"""Protobuf's wire format: a message as a list of its fields, and back.

Read without protobuf itself, and without decoding what is skipped. Fields that are not touched are written back byte
for byte. Format: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = [
    "BYTES",
    "VARINT",
    "Field",
    "encode_number",
    "encode_text",
    "encode_varint",
    "find_field",
    "iterate_fields",
    "join_message",
    "parse",
]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The wire types."""

_FIXED = {FIXED64: 8, FIXED32: 4}


@dataclass(frozen=True)
class Field:
    """tag: the field's number. value: an int (varint and fixed), or the bytes of a string or message."""

    tag: int
    value: int | bytes
    kind: int

    @property
    def data(self) -> bytes:
        """The bytes of a string or message. Raises ValueError where it is a number."""
        if not isinstance(self.value, bytes):
            raise ValueError(f"field {self.tag} is a number")
        return self.value

    @property
    def integer(self) -> int:
        """The number, negative ones as such. Raises ValueError where it is bytes."""
        if not isinstance(self.value, int):
            raise ValueError(f"field {self.tag} is bytes")
        return self.value - (1 << 64) if self.value >= 1 << 63 else self.value


def iterate_fields(data: bytes | memoryview, begin: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield number, wire type, begin, and begin and end of the value, of each field between two places of a message.

    Raises ValueError where that is none.
    """
    at = begin
    while at < end:
        begin = at
        key, at = _decode_varint(data, at, end)
        kind, start = key & 7, at
        if kind == BYTES:
            length, start = _decode_varint(data, at, end)
            at = start + length
        elif kind == VARINT:
            _, at = _decode_varint(data, at, end)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if at > end:
            raise ValueError("cut off")
        yield key >> 3, kind, begin, start, at


def parse(data: bytes) -> list[Field]:
    """Return the fields of a message. Raises ValueError where it is none."""
    return [_make_field(data, *place) for place in iterate_fields(data, 0, len(data))]


def _make_field(data: bytes, tag: int, kind: int, _begin: int, start: int, end: int) -> Field:
    if kind == VARINT:
        return Field(tag, _decode_varint(data, start, end)[0], kind)
    return Field(tag, data[start:end] if kind == BYTES else int.from_bytes(data[start:end], "little"), kind)


def _decode_varint(data: bytes | memoryview, place: int, end: int) -> tuple[int, int]:
    """Return a variable-length integer, and where it ends."""
    result = shift = 0
    while place < end and shift < 64:
        byte = data[place]
        place += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, place
        shift += 7
    raise ValueError("cut off")


def find_field(fields: Iterable[Field], tag: int) -> Field | None:
    """Return the first field with a number; None where there is none."""
    return next((field for field in fields if field.tag == tag), None)


def join_message(fields: Iterable[Field]) -> bytes:
    """Join fields to a message; the inverse of ``parse``."""
    out = bytearray()
    for field in fields:
        out += encode_varint(field.tag << 3 | field.kind)
        if isinstance(field.value, bytes):
            out += encode_varint(len(field.value)) + field.value
        elif field.kind == VARINT:
            out += encode_varint(field.value)
        else:
            out += struct.pack("<Q" if field.kind == FIXED64 else "<I", field.value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """Encode a number from 0 up as a variable-length integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_text(tag: int, value: str | bytes) -> Field:
    """Encode a string or message field."""
    return Field(tag, value.encode() if isinstance(value, str) else value, BYTES)


def encode_number(tag: int, value: int) -> Field:
    """Encode a varint field of a number from 0 up."""
    return Field(tag, value, VARINT)
