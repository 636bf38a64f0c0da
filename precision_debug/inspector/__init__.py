"""What TensorRT's engine inspector says of a built engine: its layers, their real precision, and what was fused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import make_lazy_exports

__all__ = [
    "EngineDiff",
    "EngineLayer",
    "EngineTensor",
    "compare_engines",
    "describe_edge_types",
    "find_real_precision",
    "find_suspects",
    "has_body",
    "is_opaque",
    "list_ran_instead",
    "map_producers",
    "parse_inspector",
    "read_inspector",
    "read_tactics",
    "split_fused_outputs",
    "strip_subgraph_suffix",
]

if TYPE_CHECKING:
    from .diff import EngineDiff, compare_engines
    from .layer import (
        EngineLayer,
        EngineTensor,
        describe_edge_types,
        find_real_precision,
        has_body,
        is_opaque,
        list_ran_instead,
        map_producers,
        split_fused_outputs,
        strip_subgraph_suffix,
    )
    from .read import parse_inspector, read_inspector
    from .tactics import find_suspects, read_tactics

__getattr__ = make_lazy_exports(
    __name__,
    {
        "diff": "EngineDiff compare_engines",
        "layer": (
            "EngineLayer EngineTensor describe_edge_types split_fused_outputs has_body is_opaque map_producers"
            " list_ran_instead "
            "find_real_precision strip_subgraph_suffix"
        ),
        "read": "parse_inspector read_inspector",
        "tactics": "read_tactics find_suspects",
    },
)
