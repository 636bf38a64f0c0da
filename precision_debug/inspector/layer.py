"""One layer of a built engine, as its inspector tells of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EngineLayer", "EngineTensor"]


@dataclass(frozen=True, kw_only=True)
class EngineTensor:
    """One input or output of a layer. shape: -1 where dynamic; None where not said.

    dtype: FP32, FP16, BF16, FP8, INT8, INT32, INT64, BOOL, …; "" where the engine does not say ("N/A due to dynamic
    shapes": give the inspector an execution context with its shapes set). format: the inspector's words.
    """

    name: str
    shape: tuple[int, ...] | None = None
    format: str = ""
    dtype: str = ""


@dataclass(frozen=True, kw_only=True)
class EngineLayer:
    """One layer of a built engine.

    onnx_nodes: the nodes fused into it; nodes_cut: the inspector cut that list off. weights_type: as EngineTensor's
    dtype. origin: why TensorRT made the layer ("REFORMAT", "QDQ", …). is_reformat: it only copies a tensor into
    another format or type. tactic_value: TensorRT's number of the tactic, which layers without a name have too.
    """

    name: str
    layer_type: str
    inputs: tuple[EngineTensor, ...] = ()
    outputs: tuple[EngineTensor, ...] = ()
    weights_type: str = ""
    tactic_name: str = ""
    onnx_nodes: tuple[str, ...] = ()
    nodes_cut: bool = False
    origin: str = ""
    is_reformat: bool = False
    tactic_value: str = ""
