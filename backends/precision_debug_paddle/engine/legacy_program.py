"""A legacy program (.pdmodel): Paddle's ProgramDesc, read and edited without Paddle.

Field numbers are those of paddle/fluid/framework/framework.proto, which no release has changed since 1.0.
"""

from __future__ import annotations

import collections
import functools
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_debug.errors import ModelError
from precision_debug.onnx import wire
from precision_debug.onnx.wire import Field, find_field
from precision_debug.reasons import NOTHING
from precision_debug.reasons import say as core
from precision_debug.records import InputMeta

from ..reasons import say
from .program import NESTED, REWRITTEN, Value, dims, lod_names

__all__ = ["LegacyProgram", "fetch_of", "read_legacy"]

_BLOCKS = 1
_BLOCK_VARS, _BLOCK_OPS = 3, 4
_OP_INPUTS, _OP_OUTPUTS, _OP_TYPE, _OP_ATTRS = 1, 2, 3, 4
_ATTR_NAME, _ATTR_BLOCK = 1, 12
_LOD_TENSOR = 7
# attribute type: the field of its value, whether it is a list, whether it is of 32-bit floats
_ATTR_VALUES = {
    0: (3, False, False), 1: (4, False, True), 2: (5, False, False), 3: (6, True, False), 4: (7, True, True),
    6: (10, False, False), 7: (11, True, False), 9: (13, False, False), 11: (15, True, False),
}  # fmt: skip
_DTYPES = {
    0: "bool", 1: "int16", 2: "int32", 3: "int64", 4: "float16", 5: "float32", 6: "float64", 19: "uint64",
    20: "uint8", 21: "int8", 22: "bfloat16", 23: "complex64", 24: "complex128",
}  # fmt: skip
# outputs that are not activations: running statistics, and what only training reads
_STATISTICS = frozenset({"MeanOut", "VarianceOut", "SavedMean", "SavedVariance", "ReserveSpace", "XShape"})
_OF_NORM = frozenset({"Mean", "Variance"})
_SKIPPED = frozenset({"feed", "fetch"})


@dataclass(frozen=True, kw_only=True)
class _Var:
    dtype: str = ""
    shape: tuple[int | str, ...] | None = None
    persistable: bool = False
    dense: bool = True
    levels: int = 0


@dataclass(frozen=True, kw_only=True)
class _Op:
    type: str
    inputs: tuple[tuple[str, tuple[str, ...]], ...]
    outputs: tuple[tuple[str, tuple[str, ...]], ...]
    block: int = 0  # that it runs, as a loop or a branch does

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for _, names in self.inputs for name in names)


class LegacyProgram:
    """See ``Program``. Values keep Paddle's names; only those of the main block can be fetched.

    A variable that several operators of the main block write, as a loop writes what it carries, holds as many values in
    turn: "name@0", "name@1", …; the last one can be fetched.
    """

    pir = False

    def __init__(self, fields: Sequence[Field], path: str) -> None:
        self._fields = list(fields)
        self._path = path
        self._blocks = [wire.parse(field.data) for field in fields if field.tag == _BLOCKS]
        self._vars = {name: var for block in self._blocks for name, var in _vars(block)}
        self._ops = [[_op(field.data) for field in block if field.tag == _BLOCK_OPS] for block in self._blocks]
        self.statistics = 0
        self._turns: collections.Counter[str] = collections.Counter()
        self._variables: dict[str, str] = {}
        self.values = tuple(self._values())

    @property
    def fields(self) -> Sequence[Field]:
        """Of the whole file."""
        return self._fields

    @property
    def blocks(self) -> Sequence[Sequence[Field]]:
        """The fields of each block; the first one is the main block."""
        return self._blocks

    @property
    def operators(self) -> Sequence[Sequence[_Op]]:
        """Of each block, in order."""
        return self._ops

    def carried(self) -> dict[str, str]:
        """Variables of the main block that a body assigns to, as a loop carries them, to what they are given."""
        own = {name for op in self._ops[0] for _, names in op.outputs for name in names}
        return {
            name: op.reads[0] for ops in self._ops[1:] for op in ops if op.type == "assign" and op.reads
            for _, names in op.outputs for name in names if name in own
        }  # fmt: skip

    def variable(self, name: str) -> _Var:
        """Return what the program declares of a variable."""
        return self._vars.get(name, _Var())

    def variable_of(self, name: str) -> str:
        """Return the variable that a value of the main block lies in."""
        return self._variables.get(name, name)

    def code(self, dtype: str) -> int:
        """Paddle's number of a type."""
        return next((code for code, name in _DTYPES.items() if name == dtype), 5)

    @functools.cached_property
    def inputs(self) -> tuple[InputMeta, ...]:
        names = [name for op in self._ops[0] if op.type == "feed" for _, outs in op.outputs for name in outs]
        tensors = [InputMeta(name=name, dtype=self._vars[name].dtype, shape=self._vars[name].shape) for name in names]
        levels = [level for name in names for level in lod_names(name, self._vars[name].levels)]
        return (*tensors, *(InputMeta(name=name, dtype="int64", shape=("offsets",), optional=True) for name in levels))

    def declared(self, name: str) -> tuple[str, tuple[int | str, ...] | None]:
        """Return the type and shape that the program gives a parameter."""
        found = self.variable(name)
        return found.dtype, found.shape

    def parameters(self) -> frozenset[str]:
        return frozenset(name for name, var in self._vars.items() if var.persistable and var.dense)

    def with_fetches(self, names: Sequence[str], path: Path) -> Path:
        fetched = [name for op in self._ops[0] if op.type == "fetch" for name in op.reads]
        wanted = [self._variables.get(name, name) for name in names]
        extra = [
            wire.encode_text(_BLOCK_OPS, fetch_of(name, len(fetched) + place))
            for place, name in enumerate(name for name in wanted if name not in fetched)
        ]
        block = wire.join_message([*self._blocks[0], *extra])
        done = False
        fields = []
        for field in self._fields:
            if field.tag == _BLOCKS and not done:
                field, done = wire.encode_text(_BLOCKS, block), True  # noqa: PLW2901
            fields.append(field)
        path.write_bytes(wire.join_message(fields))
        return path

    def reading(self) -> Iterator[tuple[str, str, tuple[str, ...], dict[str, Any]]]:
        """For each variable that the main block writes once: its name, the operator's type, the parameters that it
        reads, and its attributes.
        """
        constant = self.parameters()
        for field in (field for field in self._blocks[0] if field.tag == _BLOCK_OPS):
            op = _op(field.data)
            attributes = dict(_attributes(field.data))
            for name in (name for _, names in op.outputs for name in names if name not in constant):
                yield name, op.type, tuple(item for item in op.reads if item in constant), attributes

    def _values(self) -> Iterator[Value]:
        fetched = {name for op in self._ops[0] if op.type == "fetch" for name in op.reads}
        constant = {name for name, var in self._vars.items() if var.persistable}
        writes = collections.Counter(
            name for op in self._ops[0] if op.type not in _SKIPPED for _, names in op.outputs for name in set(names)
        )
        yield from self._walk(0, fetched, constant, writes, {}, set())

    def _walk(
        self, block: int, fetched: Collection[str], constant: set[str], writes: Mapping[str, int],
        now: dict[str, str], seen: set[str],
    ) -> Iterator[Value]:  # fmt: skip
        """Yield values of a block and of those that its operators run, which come before what such an operator gives.

        writes: how many operators of the main block write a variable. now: variable to the name of the value in it.
        """
        for op in self._ops[block]:
            if op.type in _SKIPPED:
                continue
            reads = op.reads
            inputs = tuple(dict.fromkeys(now.get(item, item) for item in reads if item not in constant))
            fixed = not block and bool(reads) and all(name in constant for name in reads)
            if op.block:
                yield from self._walk(op.block, fetched, constant, writes, now, seen)
            for parameter, names in op.outputs:
                for variable in names:
                    var = self._vars.get(variable, _Var())
                    if parameter in _STATISTICS or (parameter in _OF_NORM and "norm" in op.type):
                        self.statistics += 1
                        continue
                    if fixed and not var.persistable and variable not in fetched and writes[variable] == 1:
                        constant.add(variable)
                        continue
                    if var.persistable or not var.dense or (block and (variable in seen or variable in writes)):
                        continue
                    seen.add(variable)
                    several = not block and writes[variable] > 1
                    turn = self._turns[variable]
                    self._turns[variable] += 1
                    name = now[variable] = f"{variable}@{turn}" if several else variable
                    if several:
                        self._variables[name] = variable
                    last = not several or turn == writes[variable] - 1
                    yield Value(
                        name=name,
                        op_type=op.type,
                        dtype=var.dtype,
                        shape=var.shape,
                        inputs=inputs,
                        output=variable if variable in fetched and not block and last else "",
                        variable=variable if several else "",
                        hidden=NESTED if block else NOTHING if last else REWRITTEN,
                    )


def read_legacy(path: Path) -> LegacyProgram:
    """Raises ModelError where the file is not a legacy program."""
    try:
        program = LegacyProgram(wire.parse(path.read_bytes()), str(path))
        program.inputs  # noqa: B018
    except (ValueError, KeyError, IndexError, AttributeError, TypeError, RecursionError) as error:
        raise ModelError(
            say("no_program", error=str(error)), where=str(path), hint=core("export_again")
        ) from error
    if not program.values:
        raise ModelError("the program has no operators", where=str(path), hint="export the model again")
    return program


def _vars(block: Sequence[Field]) -> Iterator[tuple[str, _Var]]:
    for field in block:
        if field.tag != _BLOCK_VARS:
            continue
        var = wire.parse(field.data)
        name, kind, persistable = find_field(var, 1), find_field(var, 2), find_field(var, 3)
        if name is None or kind is None:
            raise ValueError("a variable without a name or type")
        about = wire.parse(kind.data)
        tensor, which = find_field(about, 3), find_field(about, 1)
        dense = which is not None and which.integer == _LOD_TENSOR
        dtype, shape, levels = "", None, find_field(wire.parse(tensor.data), 2) if tensor is not None else None
        if tensor is not None and (described := find_field(wire.parse(tensor.data), 1)) is not None:
            fields = wire.parse(described.data)
            code = find_field(fields, 1)
            dtype = _DTYPES.get(code.integer if code else -1, "")
            shape = dims([item.integer for item in fields if item.tag == 2])
        fixed = bool(persistable.integer) if persistable else False
        deep = levels.integer if levels is not None else 0  # of sequences in sequences (LoD)
        yield name.data.decode(), _Var(dtype=dtype, shape=shape, persistable=fixed, dense=dense, levels=deep)


def _op(data: bytes) -> _Op:
    fields = wire.parse(data)
    kind = find_field(fields, _OP_TYPE)
    if kind is None:
        raise ValueError("an operator without a type")
    return _Op(
        type=kind.data.decode(), inputs=_slots(fields, _OP_INPUTS), outputs=_slots(fields, _OP_OUTPUTS),
        block=_runs(fields),
    )  # fmt: skip


def _attributes(data: bytes) -> Iterator[tuple[str, Any]]:
    """Yield an operator's plain attributes: numbers, texts, and lists of them."""
    for field in wire.parse(data):
        if field.tag != _OP_ATTRS:
            continue
        attribute = wire.parse(field.data)
        name, kind = find_field(attribute, _ATTR_NAME), find_field(attribute, 2)
        where = _ATTR_VALUES.get(kind.integer) if kind is not None else None
        if name is None or where is None:
            continue
        tag, several, single = where
        found = tuple(_number(item, single) for item in attribute if item.tag == tag)
        if found or several:
            yield name.data.decode(), found if several else found[0]


def _number(field: Field, single: bool) -> Any:
    if isinstance(field.value, bytes):
        return field.value.decode(errors="replace")
    return struct.unpack("<f", struct.pack("<I", field.value))[0] if single else field.integer


def _runs(fields: Sequence[Field]) -> int:
    """Return the block that an operator runs (its attribute sub_block); 0: none."""
    for field in fields:
        if field.tag == _OP_ATTRS:
            attribute = wire.parse(field.data)
            name, block = find_field(attribute, _ATTR_NAME), find_field(attribute, _ATTR_BLOCK)
            if name is not None and block is not None and name.data == b"sub_block":
                return block.integer
    return 0


def _slots(fields: Sequence[Field], tag: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for field in fields:
        if field.tag == tag:
            slot = wire.parse(field.data)
            name = find_field(slot, 1)
            arguments = tuple(item.data.decode() for item in slot if item.tag == 2)
            found.append((name.data.decode() if name else "", arguments))
    return tuple(found)


def fetch_of(name: str, column: int) -> bytes:
    """Return an operator that hands a variable out."""

    def slot(parameter: str, argument: str) -> bytes:
        return wire.join_message([wire.encode_text(1, parameter), wire.encode_text(2, argument)])

    attribute = wire.join_message([wire.encode_text(1, "col"), wire.encode_number(2, 0), wire.encode_number(3, column)])
    return wire.join_message(
        [
            wire.encode_text(_OP_INPUTS, slot("X", name)),
            wire.encode_text(_OP_OUTPUTS, slot("Out", "fetch")),
            wire.encode_text(_OP_TYPE, "fetch"),
            wire.encode_text(_OP_ATTRS, attribute),
        ]
    )
