"""Where ONNX Runtime's optimisers put a QuantizeLinear and a DequantizeLinear that the model does not have.

QDQPropagationTransformer quantises what moves a quantised tensor (a Reshape, a Transpose) once more, so that integer
kernels may take it; where the new pair's type or scale does not fit, values are lost there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from precision_debug.onnx.graph import all_graphs

from .tensor_list import Entry
from .types import Types

__all__ = ["COLUMN", "with_quantised_again"]

COLUMN = "Inserted by ONNX Runtime"


def with_quantised_again(entries: Sequence[Entry], running: Any, given: Any, types: Types) -> list[Entry]:
    """The entries; those that ONNX Runtime quantises though the model does not, with a column that says so.

    running: the graph that it runs. given: the one that it was given, with the quantisers that the mode wrote into it.
    """
    told = _inserted(running, given)
    return [
        dataclasses.replace(entry, meta=dataclasses.replace(
            entry.meta, extra={**entry.meta.extra, COLUMN: _said(entry, told[entry.value.name], types)}
        ))
        if entry.value.name in told else entry
        for entry in entries
    ]  # fmt: skip


def _inserted(running: Any, given: Any) -> Mapping[str, Any]:
    """Outputs of pairs that were not there, and that stand at no tensor which was quantised, each with the pair's
    QuantizeLinear."""
    had = {name for node in _quantisers(given, "QuantizeLinear") for name in (node.input[0], node.output[0])}
    made = {node.output[0]: node for node in _quantisers(running, "QuantizeLinear")}
    found: dict[str, Any] = {}
    for node in _quantisers(running, "DequantizeLinear"):
        quantiser = made.get(node.input[0])
        if quantiser is None or {node.output[0], quantiser.output[0], quantiser.input[0]} & had:
            continue
        found[node.output[0]] = quantiser
    return found


def _quantisers(graph: Any, kind: str) -> list[Any]:
    return [node for one in all_graphs(graph) for node in one.node if node.op_type == kind]


def _said(entry: Entry, quantiser: Any, types: Types) -> str:
    dtype = types.of(entry.value.scope.key, quantiser.output[0]).dtype
    return f"ONNX Runtime quantises this tensor again here ({dtype or 'integers'}, by {quantiser.output[0]})"
