"""Reads tables of the FlatBuffers format (https://flatbuffers.dev/internals) by the number of a field.

ONNX Runtime's own generated classes read the same, but importing them costs more than everything that is read here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Table", "root"]

_U8, _U16, _I32, _U32, _I64, _F32 = (struct.Struct(f"<{code}").unpack_from for code in "BHiIqf")


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a buffer. Fields are numbered from 0 in the order of the schema; one that is not there is empty."""

    data: bytes
    place: int

    def _field(self, number: int) -> int:
        """Where a field lies; 0 where it is not there."""
        fields = self.place - int(_I32(self.data, self.place)[0])
        slot = 4 + 2 * number
        if slot >= _U16(self.data, fields)[0]:
            return 0
        offset = int(_U16(self.data, fields + slot)[0])
        return self.place + offset if offset else 0

    def byte(self, number: int) -> int:
        at = self._field(number)
        return int(_U8(self.data, at)[0]) if at else 0

    def int32(self, number: int) -> int:
        at = self._field(number)
        return int(_I32(self.data, at)[0]) if at else 0

    def int64(self, number: int) -> int:
        at = self._field(number)
        return int(_I64(self.data, at)[0]) if at else 0

    def float32(self, number: int) -> float:
        at = self._field(number)
        return float(_F32(self.data, at)[0]) if at else 0.0

    def int64s(self, number: int) -> Iterator[int]:
        return (int(_I64(self.data, at)[0]) for at in self._vector(number, 8))

    def float32s(self, number: int) -> Iterator[float]:
        return (float(_F32(self.data, at)[0]) for at in self._vector(number))

    def text(self, number: int) -> str:
        at = self._field(number)
        return _text(self.data, at) if at else ""

    def table(self, number: int) -> Table | None:
        """Return a table, also one of a union."""
        at = self._field(number)
        return Table(self.data, _follow(self.data, at)) if at else None

    def tables(self, number: int) -> Iterator[Table]:
        return (Table(self.data, _follow(self.data, at)) for at in self._vector(number))

    def texts(self, number: int) -> Iterator[str]:
        return (_text(self.data, at) for at in self._vector(number))

    def _vector(self, number: int, size: int = 4) -> range:
        """Where the references of a vector lie, or its numbers of so many bytes."""
        at = self._field(number)
        if not at:
            return range(0)
        begin = _follow(self.data, at)
        return range(begin + 4, begin + 4 + size * int(_U32(self.data, begin)[0]), size)


def root(data: bytes) -> Table:
    """Return the table that a buffer begins with. Reading what is no such buffer raises struct.error or
    UnicodeDecodeError."""
    return Table(data, _follow(data, 0))


def _follow(data: bytes, at: int) -> int:
    return at + int(_U32(data, at)[0])


def _text(data: bytes, at: int) -> str:
    begin = _follow(data, at)
    return data[begin + 4 : begin + 4 + int(_U32(data, begin)[0])].decode()
