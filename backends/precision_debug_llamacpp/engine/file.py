"""GGUF files: what is in one, its weights as numbers, and the same model in float32.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: a head of key-value pairs, then a name, shape, type and
offset of each tensor, then their data. Read here, since a damaged file ends the process that llama.cpp reads it in.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

__all__ = ["PLAIN", "GgufFile", "Weight", "map_data", "read_file", "read_numbers", "write_widened"]

PLAIN = {0: np.dtype(np.float32), 1: np.dtype(np.float16), 30: np.dtype(ml_dtypes.bfloat16)}
"""ggml's types whose numbers stand one by one, F32, F16 and BF16; all others are made of blocks."""

_VALUES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_MOST = 1 << 32
"""Bytes of text, or elements of a list, that no head has: the file is damaged."""

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")

Decode = Callable[[int, Any, int], Any]
"""(ggml's type, the blocks as uint8, how many numbers) to these in float32."""


@dataclass(frozen=True, kw_only=True)
class Weight:
    """shape: in numpy's order. kind: ggml's number of its type. file, start: where its data begin."""

    name: str
    shape: tuple[int, ...]
    kind: int
    file: str
    start: int

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, kw_only=True)
class GgufFile:
    """path: its first file, where there are several. values: the head's; lists are left out. head: their bytes."""

    path: str
    version: int
    values: Mapping[str, Any]
    weights: Mapping[str, Weight]
    head: bytes
    pairs: int
    alignment: int

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    @property
    def vocabulary(self) -> int:
        """How many tokens it knows: the rows of what it looks them up in. Raises ValueError."""
        table = self.weights.get("token_embd.weight")
        if table is None or len(table.shape) != 2:
            raise ValueError("no tensor token_embd.weight: not a language model")
        return table.shape[0]


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def take(self, count: int) -> bytes:
        if count > _MOST or len(data := self.file.read(count)) != count:
            raise ValueError("the file ends early")
        return data

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self) -> str:
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """None of a list, which is passed over."""
        if kind == _TEXT:
            return self.text()
        if kind != _LIST:
            if kind not in _VALUES:
                raise ValueError(f"a value of the unknown type {kind}")
            return self.number(_VALUES[kind])
        inner, count = self.number("I"), self.number("Q")
        if count > _MOST:
            raise ValueError("the file ends early")
        if inner in _VALUES:
            self.take(count * struct.calcsize("<" + _VALUES[inner]))
        else:
            for _ in range(count):
                self.value(inner)
        return None


def read_file(path: str) -> GgufFile:
    """Of a model in several files (-00001-of-00003.gguf) all of them. Raises OSError or ValueError."""
    first = _read_one(path)
    part = _PART.search(path)
    if part is None:
        return first
    weights = dict(first.weights)
    for number in range(1, int(part[2]) + 1):
        if number != int(part[1]):
            weights.update(_read_one(f"{path[: part.start()]}-{number:05d}-of-{part[2]}.gguf").weights)
    return GgufFile(**{**vars(first), "weights": weights})


def _read_one(path: str) -> GgufFile:
    with Path(path).open("rb") as file:
        reader = _Reader(file)
        if reader.take(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version = reader.number("I")
        if version not in (2, 3):
            raise ValueError(f"version {version} of the format, which is not known here")
        count, pairs = reader.number("Q"), reader.number("Q")
        begin, values = file.tell(), {}
        for _ in range(pairs):
            key = reader.text()
            values[key] = reader.value(reader.number("I"))
        end = file.tell()
        listed = []
        for _ in range(count):
            name, rank = reader.text(), reader.number("I")
            if rank > 4:
                raise ValueError(f"{name} has {rank} dimensions")
            shape = tuple(reader.number("Q") for _ in range(rank))[::-1]
            listed.append((name, shape, reader.number("I"), reader.number("Q")))
        alignment = int(values.get("general.alignment") or 32)
        start = -(-file.tell() // alignment) * alignment
        file.seek(begin)
        head = file.read(end - begin)
    weights = {name: Weight(name=name, shape=shape, kind=kind, file=path, start=start + offset)
               for name, shape, kind, offset in listed}  # fmt: skip
    return GgufFile(path=path, version=version, values=values, weights=weights, head=head, pairs=pairs,
                    alignment=alignment)  # fmt: skip


def map_data(weight: Weight, size: int) -> Any:
    """Return a weight's data, so many bytes: the file's pages, which take no memory of their own, read-only. Raises
    OSError or ValueError."""
    if Path(weight.file).stat().st_size < weight.start + size:
        raise ValueError(f"the data of {weight.name} end early")
    return np.memmap(weight.file, np.uint8, "r", weight.start, (size,)) if size else np.empty(0, np.uint8)


def read_numbers(weight: Weight, size: int, decode: Decode) -> Any:
    """Return a weight in float32, which is exact of each type; of F32 the file's own pages, read-only. size: bytes of
    its data. Raises OSError or ValueError."""
    data = map_data(weight, size)
    if weight.kind in PLAIN:
        return data.view(np.ndarray).view(PLAIN[weight.kind]).astype(np.float32, copy=False).reshape(weight.shape)
    return decode(weight.kind, data, weight.elements).reshape(weight.shape)


def write_widened(
    model: GgufFile, path: Path, wide: Collection[str], size: Callable[[Weight], int],
    numbers: Callable[[Weight], Any], values: Mapping[str, Any] = MappingProxyType({}),
) -> None:  # fmt: skip
    """The same model in one file, these weights in float32 and the others as they are. Raises OSError or ValueError.

    size: bytes of a weight's data. numbers: a weight in float32. values: the head's, in place of its own; None of a key
    that is left out.
    """
    infos, offset = [], 0
    for weight in model.weights.values():
        name, shape, kind = weight.name.encode(), weight.shape[::-1], 0 if weight.name in wide else weight.kind
        infos.append(struct.pack(f"<Q{len(name)}sI{len(shape)}QIQ", len(name), name, len(shape), *shape, kind, offset))
        taken = 4 * weight.elements if weight.name in wide else size(weight)
        offset += -(-taken // model.alignment) * model.alignment
    head, pairs = _with_values(_as_one_file(model.head), model.pairs, values)
    with path.open("xb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", model.version, len(model.weights), pairs) + head)
        file.write(b"".join(infos))
        for weight in model.weights.values():
            file.write(bytes(-file.tell() % model.alignment))
            if weight.name in wide:
                file.write(np.ascontiguousarray(numbers(weight), np.float32).data)
            else:
                file.write(map_data(weight, size(weight)).data)
        file.write(bytes(-file.tell() % model.alignment))


def _with_values(head: bytes, pairs: int, values: Mapping[str, Any]) -> tuple[bytes, int]:
    """Return the head with other values, each in the type that it has there, and how many pairs it holds; None: left
    out."""
    reader = _Reader(io.BytesIO(head))
    kept, waiting = list[bytes](), dict(values)
    for _ in range(pairs):
        begin = reader.file.tell()
        key, kind = reader.text(), reader.number("I")
        reader.value(kind)
        pair = head[begin : reader.file.tell()]
        if key in waiting:
            value = waiting.pop(key)
            pair = b"" if value is None else _encode_pair(key, kind, value)
        kept.append(pair)
    kept += [_encode_pair(key, _kind_of(value), value) for key, value in waiting.items() if value is not None]
    kept = [pair for pair in kept if pair]
    return b"".join(kept), len(kept)


def _encode_pair(key: str, kind: int, value: Any) -> bytes:
    name = key.encode()
    front = struct.pack("<Q", len(name)) + name + struct.pack("<I", kind)
    if kind == _TEXT:
        text = str(value).encode()
        return front + struct.pack("<Q", len(text)) + text
    if kind not in _VALUES:
        raise ValueError(f"the value of {key} is a list")
    return front + struct.pack("<" + _VALUES[kind], value)


def _kind_of(value: Any) -> int:
    """Return the type in which llama.cpp asks for such a value, where the head had none: uint32, float32, bool,
    text."""
    return _TEXT if isinstance(value, str) else 7 if isinstance(value, bool) else 4 if isinstance(value, int) else 6


def _as_one_file(head: bytes) -> bytes:
    """Return the head without saying that further files follow: how many of them is set to 0, and nothing moves."""
    key = b"split.count"
    place = head.find(struct.pack("<Q", len(key)) + key)
    if place < 0:
        return head
    behind = place + 8 + len(key)
    (kind,) = struct.unpack_from("<I", head, behind)
    size = struct.calcsize("<" + _VALUES[kind])
    return head[: behind + 4] + bytes(size) + head[behind + 4 + size :]
