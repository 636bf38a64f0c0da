"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_INSIDE = "Look at what the loop or branch gives."
_NOTHING = "Nothing: there is nothing to compare."
_REFUSED = "Look at its neighbours, or try another TensorRT."

REASONS = Catalogue("tensorrt", {
    # why a tensor is not seen
    "inside": Wording(
        "inside a loop or branch, where TensorRT lets no output be marked",
        "位于循环或分支内，TensorRT 不允许将其标记为输出", _INSIDE,
    ),
    "inside_loop": Wording(
        "inside a loop, where TensorRT lets no output be marked", "位于循环内，TensorRT 不允许将其标记为输出", _INSIDE
    ),
    "inside_branch": Wording(
        "inside a branch, where TensorRT lets no output be marked", "位于分支内，TensorRT 不允许将其标记为输出",
        _INSIDE,
    ),
    "not_parsed": Wording(
        "TensorRT's parser left no tensor of this name (a constant, or an operator that does nothing)",
        "TensorRT 解析后没有该名称的张量（常量，或不起作用的算子）", _NOTHING, whole=True,
    ),
    "not_built": Wording(
        "TensorRT built no engine with it as an output: {detail}", "将其作为输出时 TensorRT 无法构建引擎：{detail}",
        _REFUSED,
    ),
    "refused": Wording(
        "TensorRT refuses it as an output: {detail}", "TensorRT 拒绝将其作为输出：{detail}", _REFUSED
    ),
    "not_listened": Wording(
        "TensorRT did not call its debug listener for it", "TensorRT 没有为它调用调试监听器",
        "Use --option observe=marks.",
    ),
    "built_engine": Wording(
        "inside a built engine, which shows its outputs only", "位于已构建的引擎内部，引擎只显示其输出",
        "Give the ONNX file in place of the engine.", whole=True,
    ),
    "entry": Wording(
        "made by a {kind} layer, at the entry of a loop or branch", "由循环或分支入口处的 {kind} 层产生", _INSIDE,
        whole=True,
    ),
    "not_run": Wording(
        "made by a {kind} layer, which TensorRT does not run", "由 TensorRT 不执行的 {kind} 层产生", _NOTHING,
        whole=True,
    ),
    "shape_tensor": Wording(
        "a shape tensor: TensorRT computes it on the host", "形状张量：TensorRT 在主机上计算", _NOTHING, whole=True
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
