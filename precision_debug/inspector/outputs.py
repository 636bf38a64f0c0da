"""Which tensors of an engine can be paired with the model's, and which layer made each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .layer import EngineLayer

__all__ = ["fused_outputs", "producers", "strip_subgraph_suffix"]

_SUBGRAPH = re.compile(r"(.+)_subgraph_(\d+)", re.DOTALL)
_INTERNAL = re.compile(
    r"Reformatted (?:Input|Output) Tensor \d+ to .*"  # a copy in another format
    r"|\(Unnamed Layer\* \d+\) \[.*"  # a layer that the parser added without a name
    r"|.* \(Output: .*\)_output(?:_\d+)?"  # the same, by Paddle
    r"|__my(?:e|ln?)_?.*",  # inside Myelin
    re.DOTALL,
)


def fused_outputs(layers: Sequence[EngineLayer]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tensor names of the model that the engine still produces, in execution order, and the names left out.

    Left out are copies in another format, constants and what TensorRT made up itself. Names are the engine's own;
    ``strip_subgraph_suffix`` gives Paddle's.
    """
    made_by = producers(layers)
    helpers = {f"{layer.name}_out_tensor" for layer in layers}
    kept: dict[str, None] = {}
    left_out: dict[str, None] = {}
    for layer in layers:
        for tensor in layer.outputs:
            constant = made_by[tensor.name].layer_type == "Constant"
            internal = constant or tensor.name in helpers or _INTERNAL.fullmatch(tensor.name)
            (left_out if internal else kept)[tensor.name] = None
    return tuple(kept), tuple(left_out)


def producers(layers: Sequence[EngineLayer]) -> dict[str, EngineLayer]:
    """Each tensor that the engine writes, and the layer that computed it; copies count for the layer they copy from."""
    found: dict[str, EngineLayer] = {}
    for layer in layers:
        source = found.get(layer.inputs[0].name, layer) if layer.is_reformat and layer.inputs else layer
        for tensor in layer.outputs:
            found.setdefault(tensor.name, source)
    return found


def strip_subgraph_suffix(name: str) -> tuple[str, int | None]:
    """Split a tensor's name into Paddle's own name and the number that its TensorRT subgraph added.

    "relu_0.tmp_0_subgraph_17" is ("relu_0.tmp_0", 17); (name, None) where it has no such suffix.
    """
    found = _SUBGRAPH.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, None)
