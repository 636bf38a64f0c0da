"""Every tensor of the running graph in execution order: what the session says of it, and how it is seen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from precision_debug.onnx.graph import (
    Value,
    initializers_of,
    iterate_scopes,
    iterate_values,
    label_values,
    list_outer_reads,
    map_carried_inputs,
    read_attribute,
)
from precision_debug.reasons import NOTHING
from precision_debug.records import TensorMeta

from ..naming import Holding
from ..reasons import say
from .model_layout import View, make_view
from .same_tensor import NCHWC, Form
from .types import TypeInfo, Types

__all__ = ["Entry", "Labels", "Sizes", "list_tensors", "list_values", "op_type", "with_dropped"]

Sizes = Callable[[str], tuple[int | str, ...] | None]
"""Shape of a source tensor by name; None where it is not known."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One tensor: its value in the running graph, what the report knows of it, and how to see it.

    later: in a loop's body, the inputs from the second iteration on; True marks an output of the body that comes from
    the iteration before. form: how the running graph holds it. rounds_to: the type that a simulation rounds it to.
    before: what its numbers have yet to go through to be those of the tensor that it holds.
    """

    value: Value
    meta: TensorMeta
    view: View
    later: tuple[tuple[str, bool], ...] = ()
    form: Form | None = None
    rounds_to: str = ""
    before: str = ""

    @property
    def never_written(self) -> bool:
        """A constant's memory is a weight's, also behind operators that only rename or reshape it."""
        return self.value.node is not None and self.meta.op_type in _RENAMES and not any(self.meta.inputs)

    @property
    def looped(self) -> bool:
        """Whether it has a value for each iteration of a loop."""
        return self.value.scope.loop_depth > 0


IN_INT8 = 4
"""``accuracy_level`` of MatMulNBits from which on it rounds what it multiplies to integers of 8 bits, in its blocks."""


def rounds_what_it_reads(node: Any) -> bool:
    """Return whether an operator of float tensors rounds the first of them to integers itself, by the file's own
    word."""
    if node is None or node.domain != "com.microsoft":
        return False
    in_blocks = node.op_type == "MatMulNBits" and (read_attribute(node, "accuracy_level") or 0) >= IN_INT8
    return in_blocks or node.op_type in {"DynamicQuantizeMatMul", "DynamicQuantizeLSTM"}


_RENAMES = frozenset({"Constant", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Dropout", "Cast"})
"""What they give of a constant may lie in the constant's own memory."""

_GIVES_FORMS = frozenset({"QuantizeLinear", "DequantizeLinear"})

_RENAMED = "!moved"
"""Behind the name of a value that ONNX Runtime called as the source model calls another one."""


class Labels:
    """Session names of a graph's values, and what a node reads in these names."""

    def __init__(
        self, found: Sequence[Value], holdings: Mapping[Any, Holding] | None = None, missing: Collection[str] = ()
    ) -> None:
        self.by_key = {
            key: f"{name}{_RENAMED}" if key[-1] in missing else name for key, name in label_values(list(found)).items()
        }
        self.holdings = holdings or {}

    def of(self, key: Any, name: str) -> str:
        """Return the session's name of a value seen from a graph, resolved to the one it repeats; "" for a constant."""
        depth = next((d for d in range(len(key), -1, -1) if (key[:d], name) in self.by_key), None)
        if depth is None:
            return ""
        holding = self.holdings.get((key[:depth], name))
        if holding is None:
            return self.by_key[key[:depth], name]
        if holding.constant:
            return ""
        if holding.repeats:
            return self.of(key[: depth - 1], holding.repeats) if depth else ""
        return self.by_key[key[:depth], holding.same_as or name]

    def inputs(self, value: Value) -> tuple[tuple[str, ...], tuple[tuple[str, bool], ...]]:
        """Return names that the value's operator reads, and those from a loop's second iteration on (see
        Entry.later)."""
        if value.node is None:
            return (), ()
        key, loop = value.scope.key, map_carried_inputs(value.scope)
        first: dict[str, None] = {}
        later: dict[tuple[str, bool], None] = {}
        for name in (*value.node.input, *list_outer_reads(value.node)):
            begins, follows = loop.get(self._formal(key, name), ("", ""))
            found = self.of(key[:-1], begins) if begins else self.of(key, name)
            first.setdefault(found)
            if follows and self.of(key, follows):
                later.setdefault((self.of(key, follows), True))
            else:
                later.setdefault((found, False))
        return tuple(name for name in first if name), tuple(item for item in later if item[0])

    def _formal(self, key: Any, name: str) -> str:
        """Return the graph input that a value is or repeats."""
        holding = self.holdings.get((key, name))
        return holding.repeats if holding is not None and holding.repeats else name


def list_tensors(
    running: Any, types: Types, holdings: Mapping[Any, Holding], repeated: Collection[str], sizes: Sizes,
    missing: Collection[str] = (),
) -> list[Entry]:  # fmt: skip
    """repeated: names that occur in several graphs of the source; the baseline puts the graph's path before them.
    missing: of source tensors that the engine was not given: a value of that name is another, and is called otherwise.
    """
    found = list_values(running)
    names = Labels(found, holdings, missing)
    by_key = {value.key: value for value in found}
    outputs = {item.name for item in running.output}
    entries = []
    for value in found:
        holding = holdings[value.key]
        maker = value if holding.same_as else by_key.get((value.scope.key, holding.root), value)
        info = types.of(value.scope.key, value.name)
        is_output = not value.scope.key and value.name in outputs
        shape = _find_source_shape(holding, sizes)
        view = _make_view(value, holding, info, shape, names, is_output)
        inputs, later = names.inputs(value if maker.node is None else maker)
        own = names.by_key[value.key]
        meta = TensorMeta(
            name=own,
            op_type=op_type(value if maker.node is None else maker),
            node=_node_name(value if maker.node is None else maker),
            given_by=op_type(value) if maker is not value and op_type(value) in _GIVES_FORMS else "",
            dtype=info.dtype,
            shape=shape if holding.form.blocked else info.shape,
            inputs=tuple(name for name in inputs if name != own) or _root_input(maker, own, names),
            origin=_find_origin(value, holding, own, repeated),
            view=view.label or holding.before,
            unseen=NOTHING if view.at_end and is_output else view.unseen,
            is_output=is_output,
            rounds=inputs[:1] if rounds_what_it_reads(maker.node) else (),
        )
        entries.append(Entry(value=value, meta=meta, view=view, later=later, form=holding.form, before=holding.before))
    return entries


def _make_view(value: Value, holding: Holding, info: TypeInfo, shape: Any, names: Labels, is_output: bool) -> View:
    if holding.repeats:
        return View(unseen=say("repeats", name=holding.repeats))
    if holding.same_as and not is_output:
        return View(unseen=say("same_as", name=names.by_key[value.scope.key, holding.same_as]))
    if holding.constant and value.node is not None:
        return View(unseen=say("constant"))
    if holding.before and value.node is None:
        return View(unseen=say("feed"))
    return make_view(info, holding.form, _count_channels(holding, shape), shape)


def _count_channels(holding: Holding, shape: tuple[int | str, ...] | None) -> int | None:
    """Return how many channels a blocked value has: along its own second axis, wherever that is in the source
    tensor."""
    if shape is None or len(shape) < 2 or holding.form.perm is None:
        return None
    found = shape[holding.form.perm[1] if holding.form.perm else 1]
    return found if isinstance(found, int) and found > 0 else None


def _find_source_shape(holding: Holding, sizes: Sizes) -> tuple[int | str, ...] | None:
    special = holding.form.blocked or holding.form.perm != ()
    return sizes(holding.origin) if holding.origin and special else None


def _find_origin(value: Value, holding: Holding, own: str, repeated: Collection[str]) -> str:
    origin = holding.origin
    if origin in repeated:
        origin = f"{value.scope.path}/{origin}".lstrip("/")
    # what was quantised holds its tensor whatever operator it came from: a zero point may have done the rest
    return "" if origin == own and not holding.form.code else origin


def _root_input(maker: Value, own: str, names: Labels) -> tuple[str, ...]:
    """For a form of one of the model's inputs: that input."""
    name = names.by_key[maker.key] if maker.node is None else own
    return () if name == own else (name,)


def op_type(value: Value) -> str:
    """Return the type of the operator that makes a value; "Input" or "Constant" where none does.

    A Conv of ONNX Runtime's in blocks of channels that has an activation in it is FusedConv, as elsewhere.
    """
    if value.node is not None and value.node.domain == NCHWC and read_attribute(value.node, "activation"):
        return f"Fused{value.node.op_type}"
    if value.node is not None:
        return str(value.node.op_type)
    return "Constant" if value.name in initializers_of(value.scope.graph) else "Input"


def _node_name(value: Value) -> str:
    return "" if value.node is None else str(value.node.name)


def with_dropped(entries: list[Entry], source: Any) -> list[Entry]:
    """Return the entries, and after their predecessors those tensors of the source that ONNX Runtime left out."""
    listed = {entry.value.key for entry in entries}
    # a tensor whose float16 ONNX Runtime computes in float32 is there under that one's name, as its origin
    taken = {name for entry in entries for name in (entry.meta.name, entry.meta.origin)}
    found = [value for value in iterate_values(source) if not _is_constant(value)]
    names = label_values(found)
    after: dict[Any, list[Entry]] = {}
    last: Any = None
    for value in found:
        own = names[value.key]
        if value.key in listed:
            last = value.key
        elif own not in taken:
            gone = say("dropped")
            meta = TensorMeta(name=own, op_type=op_type(value), node=_node_name(value), unseen=gone)
            after.setdefault(last, []).append(Entry(value=value, meta=meta, view=View(unseen=gone)))
    return [*after.get(None, ()), *(e for entry in entries for e in (entry, *after.get(entry.value.key, ())))]


def list_values(graph: Any) -> list[Value]:
    """Inputs, outputs of the model that are constants of it, then node outputs in execution order.

    A Constant node is none of them, as a weight is not: ONNX Runtime makes weights of those in the main graph.
    """
    constants = initializers_of(graph)
    main = next(iterate_scopes(graph))
    found = [value for value in iterate_values(graph) if not _is_constant(value)]
    fixed = [Value(name=item.name, scope=main) for item in graph.output if item.name in constants]
    model_inputs = [value for value in found if value.node is None]
    return [*model_inputs, *fixed, *found[len(model_inputs) :]]


def _is_constant(value: Value) -> bool:
    return value.node is not None and value.node.op_type == "Constant"
