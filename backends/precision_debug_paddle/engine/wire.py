"""Protobuf's wire format, as much as a legacy program needs: a message as a list of its fields, and back.

Fields that are not touched are written back byte for byte. Format: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Field", "first", "message", "number", "parse", "text"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


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


def parse(data: bytes) -> list[Field]:
    """The fields of a message. Raises ValueError where it is none."""
    return list(_parse(data))


def _parse(data: bytes) -> Iterator[Field]:
    place, end = 0, len(data)
    while place < end:
        key, place = _varint(data, place)
        tag, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield Field(tag, value, kind)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
            if place + size > end:
                raise ValueError("cut off")
            yield Field(tag, int.from_bytes(data[place : place + size], "little"), kind)
            place += size
        elif kind == _BYTES:
            size, place = _varint(data, place)
            if place + size > end:
                raise ValueError("cut off")
            yield Field(tag, data[place : place + size], kind)
            place += size
        else:
            raise ValueError(f"wire type {kind}")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise ValueError("cut off")
        byte = data[place]
        place += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, place
        shift += 7


def first(fields: Iterable[Field], tag: int) -> Field | None:
    """The first field with a number; None where there is none."""
    return next((field for field in fields if field.tag == tag), None)


def message(fields: Iterable[Field]) -> bytes:
    """The inverse of ``parse``."""
    out = bytearray()
    for field in fields:
        out += _encoded(field.tag << 3 | field.kind)
        if isinstance(field.value, bytes):
            out += _encoded(len(field.value)) + field.value
        elif field.kind == _VARINT:
            out += _encoded(field.value)
        else:
            out += struct.pack("<Q" if field.kind == _FIXED64 else "<I", field.value)
    return bytes(out)


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(tag: int, value: str | bytes) -> Field:
    """A string or message field."""
    return Field(tag, value.encode() if isinstance(value, str) else value, _BYTES)


def number(tag: int, value: int) -> Field:
    """A varint field of a number from 0 up."""
    return Field(tag, value, _VARINT)
