"""The main subgraph of a file: every tensor that is computed from an input, in execution order."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from precision_debug.records import Operator

from ..naming import dtype_of, operator_type
from .flat import WHOLE, Flat, scale_of

__all__ = ["BODIES", "READS", "STATES", "Graph", "Value", "holds_state", "read_graph"]

BODIES = frozenset({"IF", "WHILE", "CALL", "CALL_ONCE", "STABLEHLO_WHILE", "STABLEHLO_COMPOSITE"})
"""They run other subgraphs of the file."""

READS = "READ_VARIABLE"
STATES = frozenset({"VAR_HANDLE", READS, "ASSIGN_VARIABLE"})
"""They name, read and write a variable, which a streaming model carries from one run to the next."""

_NO_VALUES = frozenset({"resource", "variant"})


@dataclass(frozen=True, kw_only=True)
class Value:
    """A tensor that is computed, or fed.

    index: LiteRT's number of it. place: of the operator that makes it; -1 of an input. dtype: that the engine holds.
    reads: the tensors that its operator reads, constants left out, and of a variable what was written to it before;
    constants: those, by their numbers.
    """

    index: int
    name: str
    place: int
    op_type: str
    dtype: str
    shape: tuple[int | str, ...] | None
    reads: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()

    @property
    def hidden(self) -> bool:
        """Whether LiteRT has no array of it."""
        return self.dtype in _NO_VALUES


@dataclass(frozen=True, kw_only=True)
class Graph:
    """values: by number, in execution order, inputs first; what depends on constants alone is left out.

    outputs: the model's, name to number, in its order. fixed: the operators that make constants, by their outputs.
    """

    flat: Flat
    values: Mapping[int, Value]
    outputs: Mapping[str, int]
    fixed: Mapping[int, int]

    @functools.cached_property
    def named(self) -> Mapping[str, Value]:
        return {value.name: value for value in self.values.values()}

    @functools.cached_property
    def made(self) -> Mapping[int, Sequence[Value]]:
        """What each operator makes, by its place, in execution order."""
        found: dict[int, list[Value]] = {}
        for value in self.values.values():
            if value.place >= 0:
                found.setdefault(value.place, []).append(value)
        return found

    @property
    def runs_alone(self) -> bool:
        """Whether each operator can run alone: none has subgraphs, or a state that the graph does not show."""
        hidden = any(value.hidden and value.op_type not in STATES for value in self.values.values())
        bodies = any(value.op_type in BODIES for value in self.values.values())
        return not (hidden or bodies or any(one.isVariable for one in self.flat.main.tensors))

    @property
    def in_whole_steps(self) -> bool:
        """Whether operators multiply in INT8: quantised tensors, or quantised weights of kernels that quantise what
        they read as it comes (which LiteRT calls hybrid)."""
        tensors = self.flat.main.tensors
        return any(
            dtype_of(tensors[index].type) in {"int8", "uint8"} and scale_of(tensors[index]) is not None
            for value in self.values.values() for index in (value.index, *value.constants)
        )  # fmt: skip

    def operator(self, value: Value) -> Operator:
        """With its options as plain values, and its constants in real numbers."""
        op, tensors = self.flat.main.operators[value.place], self.flat.main.tensors
        constants, narrowed, stored = {}, {}, {}
        read_on = self._find_scale_of_sums(value)
        for index in value.constants:
            tensor = tensors[self._stored_as(index)]
            array = self.flat.real(tensor)
            array = self.flat.array(tensor) if array is None else array
            if array is None:
                continue
            name = tensors[index].name.decode()
            if tensor is not tensors[index] and scale_of(tensor) is None:
                narrowed[name] = dtype_of(tensor.type)
            if (held := self.flat.held(tensor, read_on)) is not None:
                stored[name] = held
            constants[name] = array
        return Operator(
            op_type=value.op_type, attributes=_list_plain_options(op.builtinOptions), parameters=constants,
            narrowed=narrowed, stored=stored,
        )  # fmt: skip

    def _find_scale_of_sums(self, value: Value) -> Any:
        """Return the scale of what an operator of integers adds up, that of its input times that of its weight, one or
        one for each channel; None where it has none."""
        tensors = self.flat.main.tensors
        read, held = (
            [scale for one in several if dtype_of(tensors[one].type) in WHOLE and (scale := scale_of(tensors[one]))]
            for several in (value.reads, value.constants)
        )  # fmt: skip
        return read[0][0] * held[0][0] if len(read) == len(held) == 1 and read[0][2] is None else None

    def _stored_as(self, index: int) -> int:
        """Return the constant, in float16 or in integers that have a scale, that one is dequantised from; itself
        elsewhere."""
        main, place = self.flat.main, self.fixed.get(index)
        read = _indices(main.operators[place].inputs) if place is not None else []
        held = main.tensors[read[0]] if len(read) == 1 else None
        narrow = held is not None and (dtype_of(held.type) == "float16" or scale_of(held) is not None)
        return read[0] if narrow else index


def read_graph(flat: Flat) -> Graph:
    """List a file's tensors."""
    main, codes = flat.main, flat.model.operatorCodes
    constant = {index for index, tensor in enumerate(main.tensors) if flat.is_constant(tensor)}
    fixed: dict[int, int] = {}
    variables: dict[int, str] = {}
    values: dict[int, Value] = {}

    def value(index: int, place: int, kind: str, reads: Sequence[int] = ()) -> Value:
        tensor = main.tensors[index]
        return Value(
            index=index, name=tensor.name.decode(), place=place, op_type=kind, dtype=dtype_of(tensor.type),
            shape=_shape(tensor), reads=tuple(dict.fromkeys(one for one in reads if one in values)),
            constants=tuple(one for one in reads if one not in values),
        )  # fmt: skip

    for index in main.inputs:
        values[index] = value(index, -1, "Input")
    written: dict[str, int] = {}  # what each variable holds, by its name, since a run began
    for place, op in enumerate(main.operators):
        kind = operator_type(codes[op.opcodeIndex])
        reads = _indices(op.inputs)
        makes = _indices(op.outputs)
        if kind == "ASSIGN_VARIABLE":
            written[variables[reads[0]]] = reads[1]
        elif kind == "VAR_HANDLE":
            variables[makes[0]] = str(op.builtinOptions.sharedName)
        elif kind == READS and variables[reads[0]] in written:
            reads = [written[variables[reads[0]]]]
        if reads and all(one in constant for one in reads) and kind not in BODIES:
            constant.update(makes)
            fixed.update(dict.fromkeys(makes, place))
            continue
        for index in makes:
            values[index] = value(index, place, kind, reads)
    outputs = {main.tensors[index].name.decode(): index for index in main.outputs}
    for index in outputs.values():  # a constant, or an input
        if index not in values:
            values[index] = value(index, fixed.get(index, -1), "Constant")
    return Graph(flat=flat, values=values, outputs=outputs, fixed=fixed)


def holds_state(flat: Flat) -> bool:
    """Tell whether a file has variables that outlive a run."""
    used = {operator_type(code) for code in flat.model.operatorCodes}
    return READS in used or "ASSIGN_VARIABLE" in used


def _indices(listed: Any) -> list[int]:
    return [] if listed is None else [int(one) for one in listed if int(one) >= 0]


def _shape(tensor: Any) -> tuple[int | str, ...] | None:
    if tensor.shape is None:
        return () if tensor.hasRank else None
    shape = tensor.shapeSignature if tensor.shapeSignature is not None else tensor.shape
    if len(shape) != len(tensor.shape):
        shape = tensor.shape
    return tuple(int(size) if size >= 0 else f"dim{place}" for place, size in enumerate(shape))


def _list_plain_options(options: Any) -> Mapping[str, Any]:
    """Numbers, truth values and texts among an operator's options."""
    if options is None:
        return {}
    found: dict[str, Any] = {}
    for name, one in vars(options).items():
        if isinstance(one, (bool, int, float, str)):
            found[name] = one
        elif isinstance(one, bytes):
            found[name] = one.decode("utf-8", "replace")
        elif one is not None and hasattr(one, "tolist"):
            found[name] = tuple(one.tolist())
    return found
