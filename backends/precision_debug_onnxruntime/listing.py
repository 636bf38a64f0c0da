"""Every tensor of the running graph in execution order: what the session says of it, and how it is seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from precision_debug.records import TensorMeta

from .graph import Value, initializers_of, labels, outer_reads, scopes, values
from .naming import Holding
from .types import Types
from .views import View, view_of

__all__ = ["Entry", "Sizes", "list_tensors"]

Sizes = Callable[[str], tuple[int | str, ...] | None]
"""Shape of a source tensor by name; None where it is not known."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One tensor: its value in the running graph, what the report knows of it, and how to see it."""

    value: Value
    meta: TensorMeta
    view: View

    @property
    def looped(self) -> bool:
        """Whether it has a value for each iteration of a loop."""
        return self.value.scope.looped


def list_tensors(
    running: Any, types: Types, holdings: Mapping[tuple[Any, str], Holding], names: Mapping[str, str], sizes: Sizes
) -> list[Entry]:
    """names: source tensor to the name that the baseline's session calls it by, where that is another."""
    found = [*values(running), *_constant_outputs(running)]
    label = labels(found)
    by_key = {value.key: value for value in found}
    outputs = {item.name for item in running.output}
    entries = []
    for value in found:
        holding = holdings[value.key]
        info = types.of(value.scope.key, value.name)
        maker = value if holding.same_as else by_key.get((value.scope.key, holding.root), value)
        maker = value if maker.node is None else maker
        entry = _entry(value, maker, info, holding, label, holdings, names, sizes)
        is_output = not value.scope.key and value.name in outputs
        entries.append(dataclasses.replace(entry, meta=dataclasses.replace(entry.meta, is_output=is_output)))
    return entries


def _entry(
    value: Value, maker: Value, info: Any, holding: Holding, label: Mapping[Any, str], holdings: Mapping[Any, Holding],
    names: Mapping[str, str], sizes: Sizes,
) -> Entry:  # fmt: skip
    own = label[value.key]
    shape = sizes(holding.origin) if holding.origin and (holding.form.blocked or holding.form.perm != ()) else None
    channels = shape[1] if shape is not None and len(shape) > 1 and isinstance(shape[1], int) else None
    view = view_of(info, holding.form, channels, shape)
    if holding.same_as:
        view = View(unseen=f"holds the same numbers as {label.get((value.scope.key, holding.same_as), holding.same_as)}")
    elif holding.constant and value.node is not None:
        view = View(unseen="a constant of the model in another form")
    elif holding.before and value.node is None:
        view = View(unseen="the feed itself; it is compared after its rounding")
    origin = names.get(holding.origin, holding.origin)
    meta = TensorMeta(
        name=own,
        op_type=_op_type(maker),
        node=maker.node.name if maker.node is not None else "",
        dtype=info.dtype,
        shape=shape if holding.form.blocked else info.shape,
        inputs=_inputs(maker, own, label, holdings),
        origin="" if origin == own else origin,
        view=view.label or holding.before,
        unseen="" if view.at_end and not value.scope.key and _is_output(value) else view.unseen,
    )
    return Entry(value=value, meta=meta, view=view)


def _op_type(value: Value) -> str:
    if value.node is not None:
        return str(value.node.op_type)
    return "Constant" if value.name in initializers_of(value.scope.graph) else "Input"


def _is_output(value: Value) -> bool:
    return any(item.name == value.name for item in value.scope.graph.output)


def _inputs(
    value: Value, own: str, label: Mapping[Any, str], holdings: Mapping[Any, Holding]
) -> tuple[str, ...]:
    """Labels of the activations that the operator reads; a value that only repeats another stands for that one."""
    if value.node is None:
        return ()
    read: dict[str, None] = {}
    for name in (*value.node.input, *outer_reads(value.node)):
        key = value.scope.key
        depth = next((d for d in range(len(key), -1, -1) if (key[:d], name) in label), None)
        if not name or depth is None:
            continue
        holding = holdings[key[:depth], name]
        if holding.constant:
            continue
        read.setdefault(label[key[:depth], holding.same_as or name])
    return tuple(name for name in read if name != own)


def _constant_outputs(running: Any) -> list[Value]:
    """Outputs of the model that are constants of it: no operator makes them."""
    constants = initializers_of(running)
    main = next(scopes(running))
    return [Value(name=item.name, scope=main) for item in running.output if item.name in constants]
