"""The values inside the loops and branches of a legacy program, recorded by the program itself.

Paddle's hook does not enter such bodies, and a fetch cannot. So a copy of the program writes each value, as it is
computed, to a tensor array of the main block, one entry an iteration; behind the loop the array is joined into one
tensor, which the hook sees. Nothing that was there is changed: each value only has one more reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.onnx import wire
from precision_debug.onnx.wire import Field

from .legacy_program import LegacyProgram
from .program import NESTED

__all__ = ["Recorder", "make_ints", "make_operator", "make_variable", "with_bodies"]

Array = np.ndarray[Any, Any]

_PREFIX = "precision_debug/"
_BLOCKS, _BLOCK_VARS, _BLOCK_OPS = 1, 3, 4
_BOOL, _INT32, _INT64 = 0, 2, 3
_TENSOR, _ARRAY = 7, 13
_INT, _FLOAT, _TEXT, _INTS, _FLAG, _LONGS = 0, 1, 2, 3, 6, 11
_LOOP = "while"


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    """One value of a body. key: what our variables for it are called. loops: it is there once an iteration.

    turn: the variable that counts how often its body ran, from 1.
    """

    name: str
    key: str
    turn: str
    dtype: str
    scalar: bool
    loops: bool


@dataclass(kw_only=True)
class Recorder:
    """What a copy of a program records, and what its hook has shown of it in a run.

    groups: the values of one operator of the main block that runs a body. Between two runs call ``start``.
    """

    groups: Sequence[Sequence[_Recorded]]
    _seen: dict[str, Array] = field(default_factory=dict)

    @property
    def loops(self) -> Mapping[str, bool]:
        """The values that are recorded; True where each has an iteration."""
        return {one.name: one.loops for group in self.groups for one in group}

    def start(self) -> None:
        self._seen.clear()

    def owns(self, variable: str) -> bool:
        """Return whether a variable is the copy's own."""
        return variable.startswith(_PREFIX)

    def take(self, variable: str, array: Array) -> Iterator[tuple[str, str, Array]]:
        """Note one of the copy's own variables; when a body's are complete: (value, its name in this iteration,
        array), in the order of the run.
        """
        self._seen[variable] = np.array(array)
        for group in self.groups:
            wanted = [name for one in group for name in _list_needed(one)]
            if variable in wanted and all(name in self._seen for name in wanted):
                yield from self._of(group)

    def _of(self, group: Sequence[_Recorded]) -> Iterator[tuple[str, str, Array]]:
        parts = {one.name: self._parts(one) for one in group}
        for turn in range(max((len(found) for found in parts.values()), default=0)):
            for one in group:
                if turn < len(parts[one.name]):
                    yield one.name, f"{one.name}@{turn}" if one.loops else one.name, parts[one.name][turn]

    def _parts(self, one: _Recorded) -> list[Array]:
        """The first entry of each array is the one that is there before the body has run."""
        turns = int(self._seen[one.turn].reshape(-1)[0]) - 1
        if turns < 1:
            return []
        flat = self._seen[f"{one.key}/flat"].reshape(-1)[1:]
        rows = np.zeros((turns, 0), np.int64)
        if not one.scalar:
            rows = self._seen[f"{one.key}/shapes"].reshape(-1)[1:].reshape(turns, -1).astype(np.int64)
        ends = np.cumsum(rows.prod(1))
        made = [part.reshape(row) for part, row in zip(np.split(flat, ends[:-1]), rows, strict=True)]
        return [part.astype(bool) for part in made] if one.dtype == "bool" else made


def _list_needed(one: _Recorded) -> list[str]:
    return [one.turn, f"{one.key}/flat", *(() if one.scalar else (f"{one.key}/shapes",))]


def _list_arrays(one: _Recorded) -> list[str]:
    return [f"{one.key}/array", *(() if one.scalar else (f"{one.key}/shape_array",))]


def _add_variables(op: Field, names: Sequence[str]) -> Field:
    """Return an operator that runs a body, with more variables that this reads and writes."""
    fields = []
    for one in wire.parse(op.data):
        if one.tag in (1, 2):
            slot = wire.parse(one.data)
            name = wire.find_field(slot, 1)
            if name is not None and name.data in (b"X", b"Input", b"Out"):
                joined = wire.join_message([*slot, *(wire.encode_text(2, item) for item in names)])
                fields.append(wire.encode_text(one.tag, joined))
                continue
        fields.append(one)
    return wire.encode_text(op.tag, wire.join_message(fields))


def with_bodies(program: LegacyProgram, path: Path) -> Recorder | None:
    """Write a copy that records; None where the program has no bodies."""
    values = {value.name: value for value in program.values if value.hidden == NESTED}
    if not values:
        return None
    edit = _Edit(program, set(values))
    path.write_bytes(edit.write())
    return Recorder(groups=edit.groups)


class _Edit:
    def __init__(self, program: LegacyProgram, names: set[str]) -> None:
        self._program, self._names = program, names
        self._blocks = [list(block) for block in program.blocks]
        self._vars: list[Field] = []
        self.groups: list[list[_Recorded]] = []
        self._count = 0

    def write(self) -> bytes:
        made: list[Field] = []
        for place, block_field in enumerate(self._ops(0)):
            op = self._program.operators[0][place]
            if not op.block:
                made.append(block_field)
                continue
            group: list[_Recorded] = []
            before, after, used = self._body(op.block, group, loops=op.type == _LOOP)
            made += [*before, _add_variables(block_field, used), *after]
            self.groups.append(group)
        others = [one for one in self._blocks[0] if one.tag != _BLOCK_OPS]
        self._blocks[0] = [*others, *self._vars, *made]
        blocks = iter(self._blocks)
        return wire.join_message(
            wire.encode_text(_BLOCKS, wire.join_message(next(blocks))) if one.tag == _BLOCKS else one
            for one in self._program.fields
        )

    def _ops(self, block: int) -> list[Field]:
        return [one for one in self._blocks[block] if one.tag == _BLOCK_OPS]

    def _body(self, block: int, group: list[_Recorded], *, loops: bool) -> tuple[list[Field], list[Field], list[str]]:
        """Edit a body; returns what the main block runs before and after the operator that runs it, and variables of
        the main block that the body reads and writes.
        """
        turn, zero = f"{_PREFIX}turn_{block}", f"{_PREFIX}zero_{block}"
        self._declare(turn, _INT64, [1])
        self._declare(zero, _INT64, [1])
        before = [_make_full(zero, _INT64, 0), _make_full(turn, _INT64, 1)]
        after: list[Field] = []
        used = [turn]
        made: list[Field] = []
        own: list[Field] = []
        for place, one in enumerate(self._ops(block)):
            op = self._program.operators[block][place]
            if op.block:
                inner = self._body(op.block, group, loops=loops or op.type == _LOOP)
                before += inner[0]
                after += inner[1]
                used += inner[2]
                one = _add_variables(one, inner[2])  # noqa: PLW2901
            made.append(one)
            for name in dict.fromkeys(name for _, names in op.outputs for name in names):
                if name in self._names:
                    self._names.discard(name)
                    recorded, starts, writes, joins = self._record(name, turn, zero, own, loops=loops)
                    group.append(recorded)
                    used += _list_arrays(recorded)
                    before += starts
                    made += writes
                    after += joins
        made.append(make_operator("increment", {"X": [turn]}, {"Out": [turn]}, [_float("step", 1.0)]))
        self._blocks[block] = [*(one for one in self._blocks[block] if one.tag != _BLOCK_OPS), *own, *made]
        return before, after, used

    def _record(
        self, name: str, turn: str, zero: str, own: list[Field], *, loops: bool
    ) -> tuple[_Recorded, list[Field], list[Field], list[Field]]:
        """Return the value, and the operators before the body, in it, and behind it. own: the body's variables."""
        var = self._program.variable(name)
        key = f"{_PREFIX}{self._count}"
        self._count += 1
        recorded = _Recorded(name=name, key=key, turn=turn, dtype=var.dtype, scalar=var.shape == (), loops=loops)
        code = self._program.code(var.dtype)
        kept = _INT32 if code == _BOOL else code
        writes: list[Field] = []
        source = name
        if kept != code:
            source = f"{key}/cast"
            own.append(make_variable(source, kept, [-1]))
            kinds = [_int("in_dtype", code), _int("out_dtype", kept)]
            writes.append(make_operator("cast", {"X": [name]}, {"Out": [source]}, kinds))
        own += [make_variable(f"{key}/row", kept, [-1]), make_variable(f"{key}/row_shape", kept, [-1])]
        outs = {"Out": [f"{key}/row"], "XShape": [f"{key}/row_shape"]}
        writes.append(make_operator("reshape2", {"X": [source]}, outs, [make_ints("shape", [-1])]))
        starts, joins = self._array(f"{key}/row", f"{key}/array", f"{key}/flat", kept, zero)
        writes.append(_write(f"{key}/row", turn, f"{key}/array"))
        if not recorded.scalar:
            own.append(make_variable(f"{key}/shape", _INT32, [-1]))
            writes.append(make_operator("shape", {"Input": [name]}, {"Out": [f"{key}/shape"]}, []))
            writes.append(_write(f"{key}/shape", turn, f"{key}/shape_array"))
            more = self._array(f"{key}/shape", f"{key}/shape_array", f"{key}/shapes", _INT32, zero)
            starts, joins = [*starts, *more[0]], [*more[1], *joins]
        return recorded, starts, writes, joins

    def _array(self, row: str, array: str, joined: str, code: int, zero: str) -> tuple[list[Field], list[Field]]:
        """Return a tensor array that is never empty, and the operator that joins it."""
        first = f"{row}/first"
        for name in (first, joined):
            self._declare(name, code, [1 if name == first else -1])
        self._vars.append(make_variable(array, code, [-1], kind=_ARRAY))
        self._declare(f"{array}/index", _INT32, [-1])
        join = make_operator(
            "tensor_array_to_tensor", {"X": [array]}, {"Out": [joined], "OutIndex": [f"{array}/index"]},
            [_int("axis", 0), _flag("use_stack", on=False)],
        )  # fmt: skip
        return [_make_full(first, code, 0), _write(first, zero, array)], [join]

    def _declare(self, name: str, code: int, shape: Sequence[int]) -> None:
        self._vars.append(make_variable(name, code, shape))


def make_variable(name: str, code: int, shape: Sequence[int], *, kind: int = _TENSOR) -> Field:
    """VarDesc: name 1, type 2 (kind 1; dense tensor 3 or tensor array 4, of a description: type 1, dims 2)."""
    described = wire.join_message(
        [wire.encode_number(1, code), *(wire.encode_number(2, dim % (1 << 64)) for dim in shape)]
    )
    tensor = wire.join_message([wire.encode_text(1, described), wire.encode_number(2, 0)])
    about = wire.join_message([wire.encode_number(1, kind), wire.encode_text(3 if kind == _TENSOR else 4, tensor)])
    return wire.encode_text(
        _BLOCK_VARS,
        wire.join_message([wire.encode_text(1, name), wire.encode_text(2, about), wire.encode_number(3, 0)]),
    )


def make_operator(
    kind: str, inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, Sequence[str]], attributes: Sequence[Field]
) -> Field:
    """OpDesc: inputs 1, outputs 2, type 3, attributes 4; a slot: name 1, arguments 2."""

    def slots(tag: int, named: Mapping[str, Sequence[str]]) -> Iterator[Field]:
        for slot, names in named.items():
            yield wire.encode_text(
                tag, wire.join_message([wire.encode_text(1, slot), *(wire.encode_text(2, name) for name in names)])
            )

    fields = [*slots(1, inputs), *slots(2, outputs), wire.encode_text(3, kind), *attributes]
    return wire.encode_text(_BLOCK_OPS, wire.join_message(fields))


def _write(source: str, turn: str, array: str) -> Field:
    return make_operator("write_to_array", {"X": [source], "I": [turn]}, {"Out": [array]}, [])


def _make_full(name: str, code: int, value: int) -> Field:
    attributes = [
        _int("dtype", code), _longs("shape", [1]), _float("value", float(value)), _text("str_value", str(value)),
        _flag("force_cpu", on=code == _INT64),
    ]  # fmt: skip
    return make_operator("fill_constant", {}, {"Out": [name]}, attributes)


def _attribute(name: str, kind: int, *values: Field) -> Field:
    return wire.encode_text(4, wire.join_message([wire.encode_text(1, name), wire.encode_number(2, kind), *values]))


def _int(name: str, value: int) -> Field:
    return _attribute(name, _INT, wire.encode_number(3, value % (1 << 64)))


def _float(name: str, value: float) -> Field:
    return _attribute(name, _FLOAT, Field(4, int(np.float32(value).view(np.uint32)), 5))


def _text(name: str, value: str) -> Field:
    return _attribute(name, _TEXT, wire.encode_text(5, value))


def make_ints(name: str, values: Sequence[int]) -> Field:
    """Return an attribute of whole numbers."""
    return _attribute(name, _INTS, *(wire.encode_number(6, value % (1 << 64)) for value in values))


def _flag(name: str, *, on: bool) -> Field:
    return _attribute(name, _FLAG, wire.encode_number(10, int(on)))


def _longs(name: str, values: Sequence[int]) -> Field:
    return _attribute(name, _LONGS, *(wire.encode_number(15, value) for value in values))
