"""Operators of a quantised file in float32: with their weights dequantised, between a DEQUANTIZE and a QUANTIZE. Those
of a file in half precision likewise.

All of them make the float model that the file stands for: what it would compute if nothing but its weights had been
rounded. Some of them make a file that mixes both, which every LiteRT runs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..naming import dtype_of, operator_type
from .flat import Flat, scale_of
from .graph import BODIES, STATES

__all__ = ["QUANTISED", "Widened", "widen_operators"]

QUANTISED = "/quantised"
"""Behind the name of what a widened operator makes, where others read it as the file has it."""

_REAL = "/dequantised"
_CODES = frozenset({"int8", "uint8", "int16"})
_STEPS = frozenset({"int8", "uint8", "int16", "int32", "int64", "int4", "uint4", "int2"})
_HALVES = frozenset({"float16", "bfloat16"})
_BETWEEN = frozenset({"QUANTIZE", "DEQUANTIZE", "CAST"})


@dataclass(frozen=True, kw_only=True)
class Widened:
    """flat: the changed model. wide: how many operators compute in float32 and did not. left: types of operators that
    were to and cannot. own: names of tensors that the file did not have."""

    flat: Flat
    wide: int
    left: tuple[str, ...]
    own: frozenset[str]


def widen_operators(flat: Flat, places: Collection[int] | None = None) -> Widened:
    """places: of the operators, in the file's order; None: all, and the model's inputs and outputs with them.

    ``flat`` itself is changed.
    """
    work = _Work(flat=flat, all=places is None)
    main = flat.main
    chosen = range(len(main.operators)) if places is None else places
    able = {place for place in chosen if work.able(main.operators[place])}
    asked = {place for place in chosen if work.quantised(main.operators[place])}
    left = sorted({work.kind(main.operators[place]) for place in asked - able})
    if not asked & able:
        return Widened(flat=flat, wide=0, left=tuple(left), own=frozenset())
    work.run(able)
    return Widened(flat=flat, wide=len(asked & able), left=tuple(left), own=frozenset(work.own))


@dataclass(kw_only=True)
class _Work:
    """real: tensor to its float form. ops: the new list of operators. own: names of new tensors."""

    flat: Flat
    all: bool
    real: dict[int, int] = field(default_factory=dict)
    ops: list[Any] = field(default_factory=list)
    own: set[str] = field(default_factory=set)

    def kind(self, op: Any) -> str:
        return operator_type(self.flat.model.operatorCodes[op.opcodeIndex])

    def tensor(self, index: int) -> Any:
        return self.flat.main.tensors[index]

    def is_code(self, index: int) -> bool:
        """Return whether a tensor is less than float32: whole numbers with a scale, or halves."""
        tensor = self.tensor(index)
        kind = dtype_of(tensor.type)
        return kind in _HALVES or (kind in _STEPS and scale_of(tensor) is not None)

    def quantised(self, op: Any) -> bool:
        """Return whether anything of it is; not where it only widens a constant."""
        reads = [int(one) for one in _to_list(op.inputs) if int(one) >= 0]
        if self.kind(op) == "DEQUANTIZE" and dtype_of(self.tensor(reads[0]).type) in _HALVES:
            return not self.flat.is_constant(self.tensor(reads[0])) and self.tensor(reads[0]).sparsity is None
        return any(self.is_code(one) for one in [*reads, *map(int, _to_list(op.outputs))] if one >= 0)

    def able(self, op: Any) -> bool:
        """Return whether it can compute in float32: no subgraph, no state, and every quantised constant can be
        undone."""
        if self.kind(op) in BODIES | STATES or _to_list(op.intermediates) or not self.quantised(op):
            return False
        for index in (int(one) for one in _to_list(op.inputs) if int(one) >= 0):
            tensor = self.tensor(index)
            if tensor.isVariable:
                return False
            if not self.is_code(index):
                if dtype_of(tensor.type) in {"int4", "uint4", "int2"}:
                    return False  # quantised by blocks
                continue
            if self.flat.is_constant(tensor):
                if self.flat.real(tensor) is None:
                    return False
            elif dtype_of(tensor.type) not in _CODES | _HALVES:
                return False
        return self.kind(op) != "DENSIFY"

    def run(self, able: Collection[int]) -> None:
        main = self.flat.main
        readers: dict[int, set[int]] = {}
        for place, op in enumerate(main.operators):
            for one in _to_list(op.inputs):
                readers.setdefault(int(one), set()).add(place)
        if self.all:
            for place, index in enumerate(main.inputs):
                if self.is_code(index) and not readers.get(index, set()) - set(able):
                    main.inputs[place] = self._float_of(index, renamed=True)
        for place, op in enumerate(main.operators):
            if place not in able:
                self.ops.append(op)
                continue
            op.inputs = [self._read(int(one)) for one in _to_list(op.inputs)]
            makes = [int(one) for one in _to_list(op.outputs)]
            codes = [index for index in makes if index >= 0 and self.is_code(index)]
            reads_after = [self._float_of(one, renamed=True) if one in codes else one for one in makes]
            op.outputs = reads_after
            if self.kind(op) in _BETWEEN and all(self._is_float(one) for one in [*op.inputs, *op.outputs]):
                self._times_one(op)
            self.ops.append(op)
            for index in codes:
                outer = index in main.outputs
                if outer and self.all:
                    main.outputs = [self.real[index] if one == index else one for one in main.outputs]
                if readers.get(index, set()) - set(able) or (outer and not self.all):
                    kind = "CAST" if dtype_of(self.tensor(index).type) in _HALVES else "QUANTIZE"
                    self._insert(kind, self.real[index], index)
        if not self.all:  # an output goes by its name, whatever comes before it
            for index in main.outputs:
                if index in self.real and self.tensor(index).name.endswith(QUANTISED.encode()):
                    mine, other = self.tensor(index), self.tensor(self.real[index])
                    plain = other.name
                    mine.name, other.name = plain, plain + _REAL.encode()
                    self.own = {one for one in self.own if one != plain.decode() + QUANTISED} | {other.name.decode()}
        main.operators = self.ops
        self._signatures()

    def _read(self, index: int) -> int:
        """Return the float form of what a widened operator reads."""
        if index < 0 or not self.is_code(index):
            return index
        if index not in self.real:
            tensor = self.tensor(index)
            if self.flat.is_constant(tensor):
                self.real[index] = self._new(tensor, tensor.name + b"", self.flat.real(tensor))
            else:
                self._float_of(index, renamed=False)
                kind = "CAST" if dtype_of(tensor.type) in _HALVES else "DEQUANTIZE"
                self._insert(kind, index, self.real[index])
        return self.real[index]

    def _is_float(self, index: int) -> bool:
        return dtype_of(self.tensor(index).type) == "float32"

    def _float_of(self, index: int, *, renamed: bool) -> int:
        """Return a new float tensor in a quantised one's place. renamed: it takes the name."""
        if index not in self.real:
            tensor = self.tensor(index)
            name = tensor.name
            if renamed:
                tensor.name = name + QUANTISED.encode()
                self.own.add(tensor.name.decode())
            else:
                name += _REAL.encode()
                self.own.add(name.decode())
            self.real[index] = self._new(tensor, name, None)
        return self.real[index]

    def _new(self, like: Any, name: bytes, value: Any) -> int:
        from ai_edge_litert import schema_py_generated as schema

        found = schema.TensorT()
        found.shape, found.shapeSignature, found.hasRank = like.shape, like.shapeSignature, like.hasRank
        found.type, found.name, found.isVariable = schema.TensorType.FLOAT32, name, False
        found.buffer = 0
        if value is not None:
            found.buffer = self._buffer(value)
        self.flat.main.tensors.append(found)
        return len(self.flat.main.tensors) - 1

    def _buffer(self, value: Any) -> int:
        from ai_edge_litert import schema_py_generated as schema

        buffer = schema.BufferT()
        buffer.data = np.ascontiguousarray(value, np.float32).reshape(-1).view(np.uint8)
        self.flat.model.buffers.append(buffer)
        return len(self.flat.model.buffers) - 1

    def _code(self, name: str) -> int:
        """Return the index of an operator code, which is added where the file lacks it."""
        from ai_edge_litert import schema_py_generated as schema

        codes = self.flat.model.operatorCodes
        for place, code in enumerate(codes):
            if operator_type(code) == name:
                return place
        made = schema.OperatorCodeT()
        made.builtinCode = getattr(schema.BuiltinOperator, name)
        made.deprecatedBuiltinCode = min(made.builtinCode, 127)
        made.version = 2 if name == "DEQUANTIZE" else 1
        codes.append(made)
        return len(codes) - 1

    def _insert(self, kind: str, source: int, target: int) -> None:
        from ai_edge_litert import schema_py_generated as schema

        op = schema.OperatorT()
        op.opcodeIndex, op.inputs, op.outputs = self._code(kind), [source], [target]
        options = {"QUANTIZE": "QuantizeOptions", "DEQUANTIZE": "DequantizeOptions", "CAST": "CastOptions"}[kind]
        op.builtinOptionsType = getattr(schema.BuiltinOptions, options)
        op.builtinOptions = getattr(schema, f"{options}T")()
        if kind == "CAST":
            op.builtinOptions.inDataType, op.builtinOptions.outDataType = (
                self.tensor(one).type for one in (source, target)
            )
        self.ops.append(op)

    def _times_one(self, op: Any) -> None:
        """A QUANTIZE or DEQUANTIZE between float tensors only hands its value on: x * 1, which is exact."""
        from ai_edge_litert import schema_py_generated as schema

        one = schema.TensorT()
        one.shape, one.type, one.name = np.zeros(0, np.int32), schema.TensorType.FLOAT32, b"one"
        one.buffer, one.hasRank = self._buffer(np.ones((), np.float32)), True
        self.flat.main.tensors.append(one)
        op.opcodeIndex, op.inputs = self._code("MUL"), [op.inputs[0], len(self.flat.main.tensors) - 1]
        op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.MulOptions, schema.MulOptionsT()

    def _signatures(self) -> None:
        """They name tensors by number."""
        ends = {*self.flat.main.inputs, *self.flat.main.outputs}
        for signature in self.flat.model.signatureDefs or ():
            for end in [*(signature.inputs or ()), *(signature.outputs or ())]:
                if not signature.subgraphIndex and end.tensorIndex not in ends:
                    end.tensorIndex = self.real.get(int(end.tensorIndex), end.tensorIndex)


def _to_list(found: Any) -> list[Any]:
    return [] if found is None else list(found)
