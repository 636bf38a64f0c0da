"""Which operators stay in float32: an attribute of OpenVINO's on them, which its IR keeps.

``DisablePrecisionConversion`` (up to 2026.1 ``precise``) is what OpenVINO itself puts on operators that must not be
converted to FP16; the CPU obeys it for BF16 too. Only its IR reader lets one be set from outside, so the model is
written, marked and read again. A fused layer stays in float32 as a whole.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from precision_debug.errors import UsageError

from .engine.graph import Graph, Key
from .engine.layers import Layer
from .engine.marks import surviving
from .failures import reading

__all__ = ["ATTRIBUTES", "marked_model", "operators_of", "regions", "save_model"]

ATTRIBUTES: Sequence[Mapping[str, str]] = (
    {"name": "DisablePrecisionConversion", "version": "0", "value": "dynamic:f16,bf16"},
    {"name": "precise", "version": "0"},
)
"""As they stand in an IR; a reader passes over the one that it does not know."""


def regions(graph: Graph, layers: Sequence[Layer]) -> Mapping[str, frozenset[str]]:
    """Each operator of the main graph to those that are computed with it, in one layer: itself and what is inside."""
    ends = surviving(graph, layers)
    members: dict[Key, set[str]] = {}
    for key in (value.key for value in graph.computed()):
        if key not in ends:
            continue
        found, waiting = {key[0]}, list(graph.values[key].reads)
        while waiting:
            current = waiting.pop()
            value = graph.values.get(current)
            if value is None or current in ends or current[0] in found or value.op_type in {"Input", "Constant"}:
                continue
            found.add(current[0])
            waiting.extend(value.reads)
        members[key] = found
    region: dict[str, set[str]] = {}
    for found in members.values():
        for name in found:
            region.setdefault(name, set()).update(found)
    return {name: frozenset(found) for name, found in region.items()}


def operators_of(graph: Graph, layers: Sequence[Layer], names: Collection[str]) -> frozenset[str]:
    """The operators to mark so that these operators, or those that make these tensors, stay in float32.

    Raises UsageError for a name that the model does not have.
    """
    region = regions(graph, layers)
    by_tensor = {name: value.key[0] for value in graph.values.values() for name in value.names}
    found: set[str] = set()
    for name in names:
        op = name if name in region else by_tensor.get(name, "")
        if not op:
            near = difflib.get_close_matches(name, [*region, *by_tensor], n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else "give names of operators or of tensors"
            raise UsageError(f"the model has no operator or tensor {name}", where="--option keep_fp32", hint=hint)
        found |= region.get(op, frozenset({op}))
    return frozenset(found)


def marked_model(core: Any, model: Any, ops: Collection[str], folder: str) -> Any:
    """The model with these operators kept in float32, by way of files in ``folder``. Raises ModelError."""
    import openvino

    path = Path(folder, "kept.xml")
    with reading(str(path)):
        openvino.save_model(model, path, compress_to_fp16=False)
        tree = ElementTree.parse(path)
        layers = tree.getroot().find("layers")
        for layer in layers if layers is not None else ():
            if layer.get("name") in ops and layer.get("type") not in {"Const", "Parameter", "Result"}:
                _mark(layer)
        tree.write(path)
        return core.read_model(path)


def save_model(model: Any, path: str) -> None:
    """Write a model as OpenVINO IR, weights as they are and marks with it: ``path`` ends in ".xml"."""
    import openvino

    with reading(path):
        openvino.save_model(model, path, compress_to_fp16=False)


def _mark(layer: ElementTree.Element) -> None:
    info = layer.find("rt_info")
    if info is None:
        info = ElementTree.Element("rt_info")
        layer.insert(1 if layer.find("data") is not None else 0, info)
    for attribute in ATTRIBUTES:
        ElementTree.SubElement(info, "attribute", dict(attribute))
