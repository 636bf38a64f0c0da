"""What TensorRT's engine inspector says of a built engine: its layers, their real precision, and what was fused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import offered

__all__ = [
    "EngineDiff",
    "EngineLayer",
    "EngineTensor",
    "diff_engines",
    "edge_types",
    "fused_outputs",
    "has_body",
    "is_opaque",
    "parse_inspector",
    "producers",
    "ran_instead",
    "read_inspector",
    "read_tactics",
    "real_precision",
    "strip_subgraph_suffix",
    "suspects",
]

if TYPE_CHECKING:
    from .diff import EngineDiff, diff_engines
    from .layer import EngineLayer, EngineTensor
    from .outputs import fused_outputs, producers, strip_subgraph_suffix
    from .precision import edge_types, has_body, is_opaque, ran_instead, real_precision
    from .read import parse_inspector, read_inspector
    from .tactics import read_tactics, suspects

__getattr__ = offered(
    __name__,
    {
        "diff": "EngineDiff diff_engines",
        "layer": "EngineLayer EngineTensor",
        "outputs": "fused_outputs producers strip_subgraph_suffix",
        "precision": "edge_types has_body is_opaque ran_instead real_precision",
        "read": "parse_inspector read_inspector",
        "tactics": "read_tactics suspects",
    },
)
