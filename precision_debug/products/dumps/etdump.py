"""ExecuTorch's ETDump: what each operator of a run wrote, without ExecuTorch.

An .etdump (or .etdp) is a FlatBuffer of events (executorch/devtools/etdump/etdump_schema_flatcc.fbs), whose tensors
point into a second file, the debug buffer. An ETRecord beside it, a zip of JSON, says which node of the exported graph
each instruction came from: its debug_handle_map leads from the instruction to handles, which the nodes of the edge
program carry with the path of their module. Without one a tensor is called by its instruction.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RecordingError
from ...feeds.dtypes import from_plain

__all__ = ["ENDINGS", "find_etdump", "read_etdump"]

Array = np.ndarray[Any, Any]

ENDINGS = (".etdump", ".etdp")
_NONE = -1
# executorch/devtools/etdump/scalar_type.fbs
_TYPES = {
    0: ("uint8", 1), 1: ("int8", 1), 2: ("int16", 2), 3: ("int32", 4), 4: ("int64", 8), 5: ("float16", 2),
    6: ("float32", 4), 7: ("float64", 8), 11: ("bool", 1), 12: ("int8", 1), 13: ("uint8", 1), 14: ("int32", 4),
    15: ("bfloat16", 2), 23: ("float8_e5m2", 1), 24: ("float8_e4m3fn", 1), 27: ("uint16", 2), 28: ("uint32", 4),
}  # fmt: skip
_PLAIN = {"bfloat16": "uint16", "float8_e5m2": "uint8", "float8_e4m3fn": "uint8"}
_TENSOR, _TENSOR_LIST = 5, 6  # of enum ValueType


@dataclass(frozen=True, kw_only=True)
class _Logged:
    """instruction: of the program. offset: into the debug buffer, in bytes. strides: in elements."""

    instruction: int
    kind: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def find_etdump(path: Path) -> Path | None:
    """Return the dump that a path names, or that a folder holds, with its debug buffer beside it; None: there is
    none."""
    if path.is_file():
        return path if path.suffix.lower() in ENDINGS else None
    return next((one for one in sorted(path.iterdir()) if one.suffix.lower() in ENDINGS), None) \
        if path.is_dir() else None  # fmt: skip


def read_etdump(path: Path) -> Iterator[tuple[str, Array, tuple[int, ...] | None]]:
    """Yield each tensor of the first run that has any: its name, and what it held. Raises RecordingError."""
    logged = _read_logged(path)
    if not logged:
        raise RecordingError(
            "its run kept no tensors: load the program with a debug buffer (enable_etdump=True, debug_buffer_size=…)",
            where=str(path),
        )  # fmt: skip
    buffer, record = _read_companions(path)
    known = _read_names(record) if record is not None else {}
    times: Counter[str] = Counter()
    seen: set[tuple[tuple[int, ...], bytes]] = set()
    for number, several in _group_by_instruction(logged):
        name = known.get(number, f"{number:03d}") if number != _NONE else "output"
        for place, one in enumerate(several, start=1):
            value = _read_value(one, buffer, path)
            content = tuple(value.shape), value.tobytes()
            # a delegate logs what it reads before what it writes, and the program its outputs once more at the end
            if content in seen and (place < len(several) or number == _NONE):
                continue
            seen.add(content)
            times[name] += 1
            yield name if times[name] == 1 else f"{name}#{times[name]}", value, tuple(value.shape)


def _group_by_instruction(logged: Sequence[_Logged]) -> Iterator[tuple[int, list[_Logged]]]:
    """Yield what each instruction logged, empty tensors left out; -1 for what comes after the last one."""
    last, ended = _NONE, False
    for number, group in itertools.groupby(logged, key=lambda one: one.instruction):
        ended = ended or number < last
        last = max(last, number)
        several = [one for one in group if math.prod(one.sizes)]
        if several:
            yield _NONE if ended else number, several


def _read_companions(path: Path) -> tuple[bytes, Path | None]:
    """Return the debug buffer's bytes, and the ETRecord where there is one: those of its own stem first."""
    others = [one for one in path.parent.iterdir() if one.is_file() and one.suffix.lower() not in ENDINGS]
    others.sort(key=lambda one: (one.stem != path.stem, one.name))
    records = [one for one in others if _is_record(one)]
    buffers = [
        one for one in others if one not in records
        and (one.suffix.lower() in (".dbg", ".debug") or "debug" in one.stem or one.suffix.lower() == ".bin")
    ]  # fmt: skip
    if not buffers:
        raise RecordingError(
            f"its debug buffer is not beside it: {path.stem}.dbg or debug_output.bin, which holds the values",
            where=str(path),
        )  # fmt: skip
    return buffers[0].read_bytes(), records[0] if records else None


def _is_record(path: Path) -> bool:
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.startswith("ETRECORD") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def _read_names(path: Path) -> Mapping[int, str]:
    """Instruction to the module that its last node is of, and the node's name."""
    try:
        with zipfile.ZipFile(path) as archive:
            (handles,) = list(json.loads(archive.read("debug_handle_map")).values())[:1]
            program = next(
                name for name in archive.namelist()
                if re.fullmatch(r"edge_dialect_exported_program/\w+", name)
                and not name.endswith(("_state_dict", "_constants", "_example_inputs"))
            )  # fmt: skip
            nodes = json.loads(archive.read(program))["graph_module"]["graph"]["nodes"]
        by_handle = {}
        for node in nodes:
            told = node["metadata"]
            stack = str(told.get("nn_module_stack", "")).rpartition(";")[2].split(",")
            module = stack[1] if len(stack) == 3 else ""
            by_handle[int(told.get("debug_handle", _NONE))] = f"{module}/{node['name']}" if module else node["name"]
        last = {int(number): (ones if isinstance(ones, list) else [ones])[-1] for number, ones in handles.items()}
    except (KeyError, TypeError, ValueError, StopIteration, zipfile.BadZipFile, OSError):
        return {}
    return {number: by_handle[handle] for number, handle in last.items() if handle in by_handle}


def _read_value(one: _Logged, buffer: bytes, path: Path) -> Array:
    kind, size = _TYPES.get(one.kind, ("", 0))
    if not kind:
        raise RecordingError(f"instruction {one.instruction}: its scalar type {one.kind} is not known", where=str(path))
    count = 1 + sum((length - 1) * stride for length, stride in zip(one.sizes, one.strides, strict=True))
    if one.offset < 0 or count < 1 or one.offset + count * size > len(buffer):
        what = f"instruction {one.instruction}: its values lie outside of the debug buffer"
        raise RecordingError(what, where=str(path))
    flat = np.frombuffer(buffer, _PLAIN.get(kind, kind), count, one.offset)
    steps = tuple(stride * size for stride in one.strides)
    value = np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat, one.sizes, steps, writeable=False))
    return from_plain(value, kind) if kind in _PLAIN else value


# FlatBuffers (https://flatbuffers.dev/internals): a table begins with the offset back to its vtable, which holds the
# place of each field, 0 where it is left out; vectors, strings and tables are reached by offsets from where they stand.
class _Table:
    def __init__(self, content: bytes, place: int) -> None:
        self.content, self.place = content, place
        self._fields = place - _read_number("<i", content, place)
        self._length = _read_number("<H", content, self._fields)

    def _field(self, number: int) -> int:
        place = 4 + 2 * number
        held = _read_number("<H", self.content, self._fields + place) if place + 2 <= self._length else 0
        return self.place + held if held else 0

    def number(self, field: int, form: str, otherwise: int = 0) -> int:
        place = self._field(field)
        return int(_read_number(form, self.content, place)) if place else otherwise

    def table(self, field: int) -> _Table | None:
        place = self._field(field)
        return _Table(self.content, place + _read_number("<I", self.content, place)) if place else None

    def numbers(self, field: int) -> tuple[int, ...]:
        place, length = self._vector(field)
        return struct.unpack_from(f"<{length}q", self.content, place) if length else ()

    def tables(self, field: int) -> Iterator[_Table]:
        place, length = self._vector(field)
        for number in range(length):
            here = place + 4 * number
            yield _Table(self.content, here + _read_number("<I", self.content, here))

    def _vector(self, field: int) -> tuple[int, int]:
        place = self._field(field)
        if not place:
            return 0, 0
        place += _read_number("<I", self.content, place)
        length = _read_number("<I", self.content, place)
        if place + 4 + length > len(self.content):
            raise IndexError("a vector ends behind the file")
        return place + 4, length


def _read_number(form: str, content: bytes, place: int) -> int:
    if place < 0:
        raise IndexError("an offset leads out of the file")
    found: int = struct.unpack_from(form, content, place)[0]
    return found


def _read_logged(path: Path) -> list[_Logged]:
    try:
        return _find_first_run(path.read_bytes())
    except (struct.error, IndexError, OverflowError, RecursionError, OSError) as error:
        raise RecordingError(f"is no ETDump that can be read ({error})", where=str(path)) from error


def _find_first_run(content: bytes) -> list[_Logged]:
    """Return what the first run logged that logged anything."""
    start = 4 if content[8:12] == b"ED00" else 0  # some writers put the size in front
    if content[start + 4 : start + 8] != b"ED00":
        raise IndexError("its identifier is not ED00")
    root = _Table(content[start:], _read_number("<I", content, start))
    for run in root.tables(1):
        found = [one for event in run.tables(3) for one in _read_event(event)]
        if found:
            return found
    return []


def _read_event(event: _Table) -> Iterator[_Logged]:
    debug = event.table(2)
    entry = debug.table(2) if debug is not None else None
    if debug is None or entry is None:
        return
    kind = entry.number(0, "<b")
    several = entry.table(2)
    single = entry.table(1)
    tensors = [single] if kind == _TENSOR and single is not None else []
    if kind == _TENSOR_LIST and several is not None:
        tensors = list(several.tables(0))
    for one in tensors:
        yield _Logged(
            instruction=debug.number(1, "<i", _NONE), kind=one.number(0, "<b"),
            sizes=one.numbers(1), strides=one.numbers(2), offset=one.number(3, "<q"),
        )  # fmt: skip
