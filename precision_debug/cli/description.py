"""What a model or engine file holds, as lines to read: the same for every format that a backend tells of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from ..protocols.description import Description
from ..records import InputMeta

__all__ = ["lines_of"]

_LONG = 120


def lines_of(path: str, description: Description, parts: Collection[str] = ()) -> Iterator[str]:
    """One line a thing; parts: as ``onnx.description.PARTS``."""
    yield f"{path}: {description.format}"
    yield from description.facts
    for word, metas in (("input ", description.inputs), ("output", description.outputs)):
        for meta in metas:
            yield f"{word}  {meta.name}  {_type(meta)}"
    counts = Counter(layer.op_type for layer in description.layers)
    yield f"{counts.total()} operators: " + ", ".join(f"{count} {name}" for name, count in counts.most_common())
    precisions = Counter(layer.precision for layer in description.layers if layer.precision)
    if precisions:
        found = ", ".join(f"{count} {name}" for name, count in precisions.most_common())
        yield f"real precision: {found}, {counts.total() - precisions.total()} not known"
    weights = None if description.weights is None else list(description.weights)
    if weights is not None:
        types = ", ".join(f"{n} {name}" for name, n in Counter(one.dtype for one in weights).most_common())
        yield f"{len(weights)} weights: {types}"
    if "layers" in parts or "attributes" in parts:
        for layer in description.layers:
            before = "  " * layer.depth
            precision = f"{layer.precision:5s} " if precisions else ""
            names = f"{', '.join(layer.inputs) or 'nothing'} -> {', '.join(layer.outputs) or 'nothing'}"
            yield f"{before}{layer.op_type:18s} {precision}{layer.name}: {names}"
            for detail in layer.details:
                yield f"{before}    {detail}"
            for name, value in layer.attributes.items() if "attributes" in parts else ():
                yield f"{before}    {name} = {value if len(value) <= _LONG else value[:_LONG] + '…'}"
    if "weights" in parts:
        if weights is None:
            yield "weights: not available in this format"
        for one in weights or ():
            span = "" if one.low is None or one.high is None else f"  {one.low:.6g} to {one.high:.6g}"
            broken = f", {one.non_finite} not finite" if one.non_finite else ""
            yield f"{one.name}  {one.dtype} [{', '.join(map(str, one.shape))}]{span}{broken}"


def _type(meta: InputMeta) -> str:
    dims = "shape unknown" if meta.shape is None else f"[{', '.join(map(str, meta.shape))}]"
    return f"{meta.dtype or 'type unknown'} {dims}"
