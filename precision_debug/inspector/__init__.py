"""What TensorRT's engine inspector says of a built engine: its layers, their real precision, and what was fused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import lazy_exports

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
    from .layer import (
        EngineLayer,
        EngineTensor,
        edge_types,
        fused_outputs,
        has_body,
        is_opaque,
        producers,
        ran_instead,
        real_precision,
        strip_subgraph_suffix,
    )
    from .read import parse_inspector, read_inspector
    from .tactics import read_tactics, suspects

__getattr__ = lazy_exports(
    __name__,
    {
        "diff": "EngineDiff diff_engines",
        "layer": (
            "EngineLayer EngineTensor edge_types fused_outputs has_body is_opaque producers ran_instead "
            "real_precision strip_subgraph_suffix"
        ),
        "read": "parse_inspector read_inspector",
        "tactics": "read_tactics suspects",
    },
)
