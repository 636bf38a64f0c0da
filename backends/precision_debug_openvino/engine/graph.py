"""A model as its importer read it: every tensor that is computed, in execution order, bodies of loops included."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_debug.records import Operator, Stored

from ..naming import dtype_of, name_operators, port_name, shape_of
from .stored import dequantise, read_grid, read_numbers, read_stored

__all__ = ["CODES", "DEQUANTISES", "Graph", "Key", "Value", "key_of", "list_bodies", "read_graph"]

Key = tuple[str, int]
"""A port: its operator's name, which is unique here, and its number."""

_GIVEN = frozenset({"Input", "Constant"})
DEQUANTISES = frozenset({"Convert", "Subtract", "Multiply"})
CODES = frozenset({"int8", "uint8", "int16", "uint16"})
_NO_TENSORS = frozenset({"Constant", "Result"})


@dataclass(frozen=True, kw_only=True)
class Value:
    """A tensor that is computed, or fed.

    names: the source model's, the one that it goes by first. op: OpenVINO's operator, in the model that was read.
    reads: the tensors that its operator reads, constants left out. constants: those, by name. own: the source model
    has no such tensor, OpenVINO made it inside one of its operators. scope: operators (If, Loop) in whose bodies it
    is, outermost first; looped: one of them repeats.
    """

    key: Key
    names: tuple[str, ...]
    op: Any
    op_type: str
    dtype: str
    shape: tuple[int | str, ...] | None
    reads: tuple[Key, ...]
    own: bool = False
    scope: tuple[str, ...] = ()
    looped: bool = False

    @property
    def name(self) -> str:
        return self.names[0]

    def constants(self) -> Mapping[str, Any]:
        """Return what its operator reads of the model's constants, or what others make of constants alone, as numbers
        of a weight in few bits: numpy arrays by name."""
        found: dict[str, Any] = {}
        for port in self.op.inputs():
            source = port.get_source_output().get_node()
            if (held := read_stored(source)) is not None:
                found[str(source.get_friendly_name())] = dequantise(held)
                continue
            found |= _read_constants(source)
        return found

    def stored(self) -> Mapping[str, Stored]:
        """Return those that are held as integers, by the name of what makes numbers of them."""
        sources = [port.get_source_output().get_node() for port in self.op.inputs()]
        found = ((one, read_stored(one)) for one in sources)
        return {
            str(one.get_friendly_name()): dataclasses.replace(held, made_of=_read_constants(one))
            for one, held in found if held is not None
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Graph:
    """values: by key, in execution order, inputs first. outputs: name of each of the model's outputs, in its order, to
    the tensor that it is."""

    values: Mapping[Key, Value]
    outputs: Mapping[str, Key]
    rank: Mapping[str, int] = field(default_factory=dict)

    @functools.cached_property
    def named(self) -> Mapping[str, Value]:
        """By every name."""
        return {name: value for value in self.values.values() for name in value.names}

    def operator(self, value: Value) -> Operator:
        """Return the operator that makes a tensor, as the source model has it: with the weight of a product whose bias
        is an operator of its own here."""
        parts, waiting = [value], list(value.reads)
        while waiting:
            part = self.values[waiting.pop(0)]
            if part.own and part not in parts:
                parts.append(part)
                waiting.extend(part.reads)
        constants = {name: array for part in reversed(parts) for name, array in part.constants().items()}
        stored = {name: held for part in reversed(parts) for name, held in part.stored().items()}
        quantiser = self._find_quantiser(value)
        grid = read_grid(quantiser.op)
        return Operator(
            op_type=value.op_type, attributes=_plain(value.op), parameters=constants, stored=stored,
            scales={self.values[one].name: grid for one in quantiser.reads[:1]} if grid is not None else {},
        )  # fmt: skip

    def _find_quantiser(self, value: Value) -> Value:
        """Return who made the codes of which an operator makes numbers; the operator itself where it makes none of
        such."""
        one, whole = value, value.dtype in CODES
        while one.op_type in DEQUANTISES and len(one.reads) == 1:
            one = self.values[one.reads[0]]
            whole |= one.dtype in CODES
        return one if whole and one.op_type == "FakeQuantize" else value

    def computed(self) -> Iterator[Value]:
        """Everything but inputs and constants, of the main graph."""
        return (value for value in self.values.values() if value.op_type not in _GIVEN and not value.scope)

    def inside(self) -> Iterator[Value]:
        """Return what is computed in bodies of loops and branches."""
        return (value for value in self.values.values() if value.scope)


def key_of(port: Any) -> Key:
    """Return the key of a port."""
    return str(port.get_node().get_friendly_name()), int(port.get_index())


def list_fixed(op: Any) -> list[Any] | None:
    """Return an operator and all that it is made of, in execution order, where that is constants alone; else None."""
    found: dict[str, Any] = {}
    waiting = [op]
    while waiting:
        one = waiting[-1]
        sources = [port.get_source_output().get_node() for port in one.inputs()]
        if not sources and one.get_type_name() != "Constant":
            return None
        missing = [source for source in sources if str(source.get_friendly_name()) not in found]
        if not missing:
            found[str(waiting.pop().get_friendly_name())] = one
        waiting += missing
    return [*found.values()]


def _read_constants(op: Any) -> dict[str, Any]:
    """Return the constants of which an operator is made, by name, where it is made of these alone; else {}."""
    fixed = (one for one in list_fixed(op) or () if one.get_type_name() == "Constant")
    return {str(one.get_friendly_name()): read_numbers(one) for one in fixed}


def list_bodies(op: Any) -> Sequence[Any]:
    """Return the graphs inside an operator: two of an If, one of a loop, none of others."""
    kind = op.get_type_name()
    if kind == "If":
        return [op.get_function(0), op.get_function(1)]
    return [op.get_function()] if kind in {"Loop", "TensorIterator"} else []


def read_graph(model: Any) -> Graph:
    """List a model's tensors; its operators are given names that are unique and stay (see ``naming``)."""
    taken: set[str] = set()
    _name_all(model, taken, "")
    values: dict[Key, Value] = {}
    for port in model.inputs:
        name = port_name(port)
        names = (name, *sorted(set(port.get_names()) - {name}))
        values[key_of(port.get_node().output(0))] = Value(
            key=key_of(port.get_node().output(0)), names=names, op=port.get_node(), op_type="Input",
            dtype=dtype_of(port), shape=shape_of(port), reads=(),
        )  # fmt: skip
    used = {name for value in values.values() for name in value.names}
    _list(model, values, used, (), False)
    outputs = {}
    for result in model.get_results():
        source = result.input_value(0)
        own = str(result.get_friendly_name()).split("/sink_port_")[0]
        known = set(result.output(0).get_names()) or set(source.get_names())
        name = own if own in known else min(known, default="") or port_name(source)
        key = outputs[name] = key_of(source)
        if key not in values:
            values[key] = Value(
                key=key, names=(name,), op=source.get_node(), op_type="Constant", dtype=dtype_of(source),
                shape=shape_of(source), reads=(),
            )  # fmt: skip
    rank = {key[0]: place for place, key in enumerate(values)}
    return Graph(values=values, outputs=outputs, rank=rank)


def _name_all(model: Any, taken: set[str], prefix: str) -> None:
    ops = model.get_ordered_ops()
    name_operators(ops, taken, prefix)
    for op in ops:
        for number, body in enumerate(list_bodies(op)):
            _name_all(body, taken, f"{op.get_friendly_name()}/{('then', 'else')[number]}" if len(list_bodies(op)) > 1
                      else str(op.get_friendly_name()))  # fmt: skip


def _list(model: Any, values: dict[Key, Value], used: set[str], scope: tuple[str, ...], looped: bool) -> None:
    constant: set[str] = set()
    for op in model.get_ordered_ops():
        name, kind = str(op.get_friendly_name()), str(op.get_type_name())
        inner = list_bodies(op)
        sources = [port.get_source_output() for port in op.inputs()]
        if kind == "Constant" or (
            sources and not inner and all(source.get_node().get_friendly_name() in constant for source in sources)
        ):
            constant.add(name)
            continue
        for body in inner:
            _list(body, values, used, (*scope, name), looped or kind != "If")
        if kind in _NO_TENSORS or (kind == "Parameter" and not scope):
            continue
        reads = tuple(dict.fromkeys(key_of(source) for source in sources if key_of(source) in values))
        for port in op.outputs():
            if not port.get_target_inputs() and not port.get_names():
                continue
            own = port_name(port)
            names = tuple(dict.fromkeys((own, *sorted(port.get_names()))))
            fresh = tuple(one for one in names if one not in used) or (f"{name}.{port.get_index()}",)
            used.update(fresh)
            values[key_of(port)] = Value(
                key=key_of(port), names=fresh, op=op, op_type=kind, dtype=dtype_of(port), shape=shape_of(port),
                reads=reads, own=not port.get_names(), scope=scope, looped=looped,
            )  # fmt: skip


def _plain(op: Any) -> dict[str, Any]:
    try:
        attributes = op.get_attributes()
    except Exception:  # some operators' attributes have no Python form
        return {}
    simple = (bool, int, float, str)
    return {
        str(name): value for name, value in attributes.items()
        if isinstance(value, simple) or (isinstance(value, (list, tuple)) and all(isinstance(v, simple) for v in value))
    }  # fmt: skip
