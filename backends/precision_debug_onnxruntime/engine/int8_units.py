"""What an int8 quantiser leaves in float together: the nodes that it quantises, with those that hand on a grid.

A product with or a quotient by one constant number has the rounded values of its input, scaled: its scale is the
input's times that number, so that rounding again changes nothing. Such a node kept alone changes nothing either; it
goes with what made its input, as a normalisation does that is folded into its convolution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_debug.onnx.model import read_model

from .light_imports import import_quantisation

__all__ = ["Int8Units"]

_FOLDED_INTO = ("Conv", "ConvTranspose", "Gemm")


@dataclass(frozen=True, kw_only=True)
class Int8Units:
    """home: node to the node that it is kept with, itself for most; nodes that are never quantised have none of their
    own. names: that node to all that have to be named to the quantiser."""

    home: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str, change: str, only: Sequence[str] = ()) -> Int8Units:
        """Of a model. only: operator types, where the user has named some. Raises ModelError."""
        graph = read_model(path).proto.graph
        types = frozenset(only) or _quantised_types(change)
        numbers = _find_single_numbers(graph)
        maker = {name: node for node in graph.node for name in node.output if name}
        home: dict[str, str] = {}
        names: dict[str, list[str]] = {}
        for node in graph.node:
            source = maker.get(_find_handed_on(node, numbers) if change == "int8" else "")
            folds = node.op_type != "BatchNormalization" or (source is not None and source.op_type in _FOLDED_INTO)
            before = home.get(source.name) if source is not None and folds else None
            quantised = node.op_type in types or _does_become_product(node, change, types)
            if before is not None:
                home[node.name] = before
            elif quantised:
                home[node.name] = node.name
            else:
                continue
            if quantised:
                names.setdefault(home[node.name], []).append(node.name)
        return cls(home=home, names={key: tuple(several) for key, several in names.items()})


def _quantised_types(change: str) -> frozenset[str]:
    if change == "int4":
        return frozenset({"MatMul"})
    registry = import_quantisation().registry

    tables = (
        (registry.IntegerOpsRegistry,) if change == "int8_dynamic" else
        (registry.QLinearOpsRegistry, registry.QDQRegistry)
    )  # fmt: skip
    return frozenset(kind for table in tables for kind in table)


def _does_become_product(node: Any, change: str, types: frozenset[str]) -> bool:
    """Return whether the dynamic quantiser, whose table has no Gemm, makes a MatMul of it first and quantises that."""
    if change != "int8_dynamic" or node.op_type != "Gemm" or "MatMul" not in types:
        return False
    settings = {attribute.name: attribute for attribute in node.attribute}
    scales = [settings[name].f for name in ("alpha", "beta") if name in settings]
    return all(scale == 1.0 for scale in scales) and not ("transA" in settings and settings["transA"].i)


def _find_single_numbers(graph: Any) -> frozenset[str]:
    """Return constants of one element."""
    found = {tensor.name for tensor in graph.initializer if all(size == 1 for size in tensor.dims)}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute:
            held = node.attribute[0]
            if held.name == "value_float" or (held.name == "value" and all(size == 1 for size in held.t.dims)):
                found.update(node.output)
    return frozenset(found)


def _find_handed_on(node: Any, numbers: frozenset[str]) -> str:
    """Return the input whose grid a node's output has; "" where it has its own."""
    if node.op_type in ("BatchNormalization", "Identity", "Dropout"):
        return str(node.input[0])
    if node.op_type not in ("Mul", "Div") or len(node.input) != 2:
        return ""
    first, second = node.input
    if second in numbers:
        return str(first)
    return str(second) if node.op_type == "Mul" and first in numbers else ""
