"""The tensors that a session lists: what can be shown, under each of its names, and what would change the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from precision_debug.reasons import NOTHING, Reason
from precision_debug.reasons.ways import NO_WAY, way
from precision_debug.records import UNFUSED, Grid, TensorMeta

from ..reasons import say
from .graph import Graph, Key, Value
from .layers import Layer

__all__ = ["Entry", "add_unfused", "list_tensors"]

_STEPS = frozenset({"int8", "uint8", "int4", "uint4"})
_FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A listed tensor and what it is of. hidden: of one that is to be seen unfused, why it is not, if it is listed
    then."""

    meta: TensorMeta
    value: Value
    hidden: Reason = NOTHING


def list_tensors(
    graph: Graph, layers: Sequence[Layer], order: Sequence[Key], *, dropped: Collection[Key] = (),
    folded: Collection[Key] = (), fused: bool = True, tells: bool = True,
) -> list[Entry]:  # fmt: skip
    """Return inputs first, then in the order in which the taps come.

    order: what is shown. dropped: what survives and is not shown since that would disturb. folded: what turned out to
    be no computation. fused: the engine fuses; what is neither shown nor dropped is inside a layer, and not listed.
    tells: a tensor has its layer's columns.
    """
    home = {op: layer for layer in layers for op in layer.ops}
    shown = dict.fromkeys(order)
    outputs = {key: [name for name, own in graph.outputs.items() if own == key] for key in graph.outputs.values()}
    hidden = [*dropped, *folded, *(value.key for value in graph.inside() if fused)]
    late = [key for key in outputs if key not in shown and key not in hidden]
    inputs = [value.key for value in graph.values.values() if value.op_type == "Input"]
    places = {key: (number, 0) for number, key in enumerate(graph.values)}
    listed = list(dict.fromkeys((*inputs, *_merge_keys([*shown, *late], hidden, places))))
    known = {key: graph.values[key].name for key in listed}
    inside, rounds = _find_inner_values(graph, set(listed))
    entries = []
    for key in listed:
        value = graph.values[key]
        layer = home.get(key[0])
        unseen = NOTHING
        if key not in outputs:
            if key in set(dropped):
                unseen = say("disturbs")
            elif key in set(folded):
                unseen = say("constant")
            elif value.scope and fused:
                kind = graph.values.get((value.scope[0], 0))
                unseen = say("inside", kind=kind.op_type if kind else "operator", name=value.scope[0])
        names = dict.fromkeys((*value.names, *outputs.get(key, ())))
        origin = _find_quantised_source(graph, value, known)
        grid = _find_grid(value) if value.op_type == "FakeQuantize" else _find_grid_of_integers(value.op)
        grids = {origin: grid} if origin else rounds.get(key, {})
        for name in names:
            own = name == value.name
            entries.append(
                Entry(
                    value=value,
                    meta=TensorMeta(
                        name=name, op_type=value.op_type, node=key[0] if value.op_type != "Input" else "",
                        dtype=_held_type(value, layer), shape=value.shape, own=value.own and not origin, origin=origin,
                        view=way("dequantised") if _held_type(value, layer) in _STEPS else NO_WAY,
                        inputs=_reads(graph, value, known) if own else (value.name,), unseen=unseen,
                        is_output=name in graph.outputs, absorbs=inside.get(key, ()) if own else (),
                        rounds=tuple(rounds.get(key, ())) if own else (),
                        grids={
                            source: one for source, one in ((name, grid), *(grids.items() if own else ())) if one
                        },
                        extra=dict(layer.columns) if layer is not None and tells else {},
                    ),
                )
            )  # fmt: skip
    return entries


def add_unfused(graph: Graph, layers: Sequence[Layer], entries: Sequence[Entry], inner: Collection[Key]) -> list[Entry]:
    """Return the entries with those of inner tensors, which further runs are to show, at the end."""
    home = {op: layer for layer in layers for op in layer.ops}
    there = [entry for entry in entries if entry.value.key in inner]
    known = {entry.value.key: entry.value.name for entry in entries} | {key: graph.values[key].name for key in inner}
    found = [entry for entry in entries if entry.value.key not in inner]
    for entry in there:
        meta = dataclasses.replace(entry.meta, unseen=NOTHING, view=UNFUSED, dtype=entry.value.dtype)
        found.append(Entry(value=entry.value, meta=meta, hidden=entry.meta.unseen))
    listed = {entry.value.key for entry in there}
    for value in (graph.values[key] for key in inner if key not in listed):
        columns = home[value.key[0]].columns if value.key[0] in home else {}
        for name in value.names:
            reads = _reads(graph, value, known) if name == value.name else (value.name,)
            meta = TensorMeta(
                name=name, op_type=value.op_type, node=value.key[0], dtype=value.dtype, shape=value.shape, view=UNFUSED,
                inputs=reads, own=value.own, extra=dict(columns),
            )  # fmt: skip
            found.append(Entry(value=value, meta=meta))
    return found


def _held_type(value: Value, layer: Layer | None) -> str:
    """Return the type in which the engine holds it; the model's own for all but floats."""
    if value.dtype not in _FLOATS or layer is None:
        return value.dtype
    held = layer.held(value.key[1])
    return held if held in _FLOATS or held in _STEPS else value.dtype


def _find_quantised_source(graph: Graph, value: Value, known: Collection[Key]) -> str:
    """Return the source tensor that a FakeQuantize of the quantiser's holds, where that one is not listed itself."""
    if value.op_type != "FakeQuantize" or not value.own or not value.reads:
        return ""
    source = graph.values[value.reads[0]]
    return source.name if source.key not in known and not source.own else ""


def _merge_keys(first: Sequence[Key], second: Sequence[Key], places: Mapping[Key, tuple[int, int]]) -> list[Key]:
    """Return the first in its own order, each of the second before the first one that comes after it in the model."""
    waiting = sorted(dict.fromkeys(second), key=lambda key: places[key])
    found: list[Key] = []
    for key in first:
        while waiting and places[waiting[0]] < places[key]:
            found.append(waiting.pop(0))
        found.append(key)
    return [*found, *waiting]


def _reads(graph: Graph, value: Value, known: Mapping[Key, str]) -> tuple[str, ...]:
    """Return the nearest listed tensors upstream."""
    found: dict[str, None] = {}
    waiting, done = list(value.reads), set()
    while waiting:
        key = waiting.pop(0)
        if key in known:
            found[known[key]] = None
        elif key not in done and key in graph.values:
            done.add(key)
            waiting.extend(graph.values[key].reads)
    return tuple(found)


def _find_inner_values(
    graph: Graph, listed: Collection[Key]
) -> tuple[Mapping[Key, tuple[str, ...]], Mapping[Key, Mapping[str, Grid | None]]]:
    """Return what is not listed, by the first listed tensor that is computed from it; and of what the quantiser rounds
    there, which source tensors, and the grid of each."""
    found: dict[Key, list[str]] = {}
    rounds: dict[Key, dict[str, Grid | None]] = {}
    taken: set[Key] = set()
    for key in (key for key in graph.values if key in listed):
        waiting = list(graph.values[key].reads)
        while waiting:
            current = waiting.pop()
            if current in listed or current in taken or current not in graph.values:
                continue
            taken.add(current)
            value = graph.values[current]
            if not value.own:
                found.setdefault(key, []).extend(value.names)
            elif value.op_type == "FakeQuantize" and value.reads and not graph.values[value.reads[0]].own:
                rounds.setdefault(key, {})[graph.values[value.reads[0]].name] = _find_grid(value)
            waiting.extend(value.reads)
    return {key: tuple(names) for key, names in found.items()}, rounds


def _find_grid_of_integers(op: Any) -> Grid | None:
    """Return the grid of what turns a file's 8-bit integers into numbers: (integers - zero point) * scale."""
    held = {"Subtract": 0.0, "Multiply": 1.0}
    for kind in ("Multiply", "Subtract"):
        if op is not None and op.get_type_name() == kind:
            op, constant = (source.get_node() for source in op.input_values())
            constant = constant.input_value(0).get_node() if constant.get_type_name() == "Convert" else constant
            if constant.get_type_name() != "Constant" or constant.data.size != 1:
                return None
            held[kind] = float(constant.data.reshape(-1)[0])
    if op is None or op.get_type_name() != "Convert":
        return None
    ends = {"u8": (0, 255), "i8": (-128, 127)}.get(op.get_input_element_type(0).to_string())
    if ends is None:
        return None
    low, high = ((end - held["Subtract"]) * held["Multiply"] for end in ends)
    return low, high, 256


def _find_grid(value: Value) -> Grid | None:
    """Return a FakeQuantize's grid, None where it has one for each channel, or gives back another one than it reads."""
    ends = [source.get_node() for source in value.op.input_values()[1:]]
    if any(end.get_type_name() != "Constant" or end.data.size != 1 for end in ends):
        return None
    low, high, low_out, high_out = (float(end.data.reshape(-1)[0]) for end in ends)
    return (low, high, int(value.op.get_attributes()["levels"])) if (low, high) == (low_out, high_out) else None
