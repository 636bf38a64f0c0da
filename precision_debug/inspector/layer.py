"""Keep the layers that an engine's inspector tells: their real precision, and the outputs among them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "EngineLayer",
    "EngineTensor",
    "describe_edge_types",
    "find_real_precision",
    "has_body",
    "is_opaque",
    "list_ran_instead",
    "map_producers",
    "split_fused_outputs",
    "strip_subgraph_suffix",
]  # fmt: skip


# One layer of a built engine, as its inspector tells of it.

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


# Which arithmetic a layer of an engine really uses.
#
# TensorRT does not say it in a field of its own. The name of the tactic (the kernel) does where it has one: in
# ``..._f32f32_tf32f32_f32_...`` the groups are operands, multiplication and accumulator, and output. Read from kernel
# names of TensorRT 8.5 and 8.6 on an H200; the names of int8, bf16 and fp8 kernels follow the same pattern.

_IDLE = frozenset({"NoOp", "Constant", "Shuffle", "Reformat"})

_ATOM = r"(?:e4m3|e5m2|bf16|tf32|f16|f32|f64|i32|[iu]8|[iu]4)"
_OPERANDS = re.compile(rf"(?<![a-z0-9])({_ATOM})(?:{_ATOM})+((?:_{_ATOM}+)*)(?![a-z0-9])")
_OPERAND = {
    "e4m3": "FP8",
    "e5m2": "FP8",
    "bf16": "BF16",
    "tf32": "TF32",
    "f16": "FP16",
    "f32": "FP32",
    "i8": "INT8",
    "u8": "INT8",
}
_FAMILIES = (
    ("TF32", re.compile(r"tf32")),
    ("FP8", re.compile(r"fp8|e4m3|e5m2")),
    ("BF16", re.compile(r"bf16")),
    ("INT8", re.compile(r"int8|imma|(?<![a-z])i\d*(?:cudnn|gemm)")),
    ("FP16", re.compile(r"fp16|hmma|(?<![a-z])h\d*(?:cudnn|gemm)")),
    ("FP32", re.compile(r"fp32|ffma|(?<![a-z])s(?:cudnn|gemm)")),
)
_BODIES = frozenset({"If", "Loop", "TensorIterator"})
_OPAQUE = re.compile(r"myelin|foreignnode", re.IGNORECASE)
_ARITHMETIC = ("FP32", "FP16", "BF16", "FP8", "INT8")
_MULTIPLIES = re.compile(r"gemm|conv|matrix|matmul|mha|correlation", re.IGNORECASE)


def find_real_precision(layer: EngineLayer) -> tuple[str, str]:
    """("TF32" | "FP32" | "FP16" | "BF16" | "FP8" | "INT8", what it was read from), or ("", what is known instead).

    Asked in this order: tactic name, type of the weights, type of the inputs of a layer that multiplies 8-bit values,
    type of the first output. FP32 that was not read from the tactic name may be TF32. A Myelin region of TensorRT 8
    (see ``is_opaque``) is many kernels in one layer, so the types at its edges do not tell what it computes in.
    """
    by_tactic = _precision_of_tactic(layer.tactic_name)
    if by_tactic:
        return by_tactic, "tactic name"
    if is_opaque(layer):
        return "", f"a Myelin region, {describe_edge_types(layer)}"
    if has_body(layer):
        return "", "layers of a body, which the engine does not report"
    if layer.weights_type in _ARITHMETIC:
        return layer.weights_type, "weights type"
    inputs = {tensor.dtype for tensor in layer.inputs if tensor.dtype}
    if _MULTIPLIES.search(layer.layer_type) and len(inputs) == 1 and inputs <= {"INT8", "FP8"}:
        return inputs.pop(), "input type"
    output = next((tensor.dtype for tensor in layer.outputs if tensor.dtype in _ARITHMETIC), "")
    return (output, "output type") if output else ("", "")


def list_ran_instead(layers: Iterable[EngineLayer], wanted: str) -> str | None:
    """Return what an engine's layers ran in where none ran in ``wanted`` ("TF32 (12), FP32 (3)"); "" where one did.

    None where that is not known: no layer multiplies, or of one that does, or of a region that is compiled as a whole,
    only the types at its edges are told.
    """
    busy = [layer for layer in layers if layer.layer_type not in _IDLE and not layer.is_reformat]
    real = {id(layer): find_real_precision(layer) for layer in busy}
    counts = Counter(precision for precision, _ in real.values() if precision)
    if counts[wanted]:
        return ""
    multiply = [layer for layer in busy if layer.weights_type or _MULTIPLIES.search(layer.layer_type)]
    if not multiply or any(is_opaque(layer) or has_body(layer) for layer in busy):
        return None
    if any(real[id(layer)][1] == "output type" for layer in multiply):
        return None
    if not all(real[id(layer)][0] for layer in multiply):
        return None
    return ", ".join(f"{name} ({number})" for name, number in counts.most_common() if number)


def is_opaque(layer: EngineLayer) -> bool:
    """Return whether a layer is a region that TensorRT's compiler Myelin runs as a whole: no kernel of it is named.

    Seen with TensorRT 8.6, which lists "{ForeignNode[first...last]}" without metadata, tactic and weights. TensorRT 10
    lists the region's kernels one by one."""
    return not layer.tactic_name and bool(_OPAQUE.match(layer.layer_type) or layer.name.startswith("{ForeignNode["))


def has_body(layer: EngineLayer) -> bool:
    """Return whether a layer runs a graph of its own, as OpenVINO's If does.

    The type that it is listed with is its condition's."""
    return layer.layer_type in _BODIES


def describe_edge_types(layer: EngineLayer) -> str:
    """Describe the types that a layer reads and writes: "reads FP32, writes FP16"; what is not reported is left out."""
    sides = (("reads", layer.inputs), ("writes", layer.outputs))
    parts = [(verb, " and ".join(sorted({t.dtype for t in tensors if t.dtype}))) for verb, tensors in sides]
    return ", ".join(f"{verb} {types}" for verb, types in parts if types) or "of types that are not reported"


def _precision_of_tactic(name: str) -> str:
    lower = name.lower()
    found = _OPERANDS.search(lower)
    if found:
        operand = _OPERAND.get(found[1], "")
        return "TF32" if operand == "FP32" and "tf32" in found[0] else operand
    return next((precision for precision, pattern in _FAMILIES if pattern.search(lower)), "")


# Which tensors of an engine can be paired with the model's, and which layer made each.

_SUBGRAPH = re.compile(r"(.+)_subgraph_(\d+)", re.DOTALL)
_INTERNAL = re.compile(
    r"Reformatted (?:Input|Output) Tensor \d+ to .*"  # a copy in another format
    r"|\(Unnamed Layer\* \d+\) \[.*"  # a layer that the parser added without a name
    r"|.* \(Output: .*\)_output(?:_\d+)?"  # the same, by Paddle
    r"|__my(?:e|ln?)_?.*",  # inside Myelin
    re.DOTALL,
)


def split_fused_outputs(layers: Sequence[EngineLayer]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tensor names of the model that the engine still produces, in execution order, and the names left out.

    Left out are copies in another format, constants and what TensorRT made up itself. Names are the engine's own;
    ``strip_subgraph_suffix`` gives Paddle's.
    """
    made_by = map_producers(layers)
    helpers = {f"{layer.name}_out_tensor" for layer in layers}
    kept: dict[str, None] = {}
    left_out: dict[str, None] = {}
    for layer in layers:
        for tensor in layer.outputs:
            constant = made_by[tensor.name].layer_type == "Constant"
            internal = constant or tensor.name in helpers or _INTERNAL.fullmatch(tensor.name)
            (left_out if internal else kept)[tensor.name] = None
    return tuple(kept), tuple(left_out)


def map_producers(layers: Sequence[EngineLayer]) -> dict[str, EngineLayer]:
    """Return each tensor that the engine writes, and the layer that computed it; copies count for the layer they copy
    from."""
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
