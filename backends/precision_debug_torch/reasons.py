"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_NOTHING = "Nothing: there is nothing to compare."
_PLAIN = "Compare the modes of eager PyTorch: torch_fp32, torch_fp16, torch_bf16 and their like."

REASONS = Catalogue("torch", {
    # why a tensor is not seen
    "uninitialised": Wording("holds uninitialised memory", "内容是未初始化的内存", _NOTHING, whole=True),
    "bookkeeping": Wording("is the kernel's own bookkeeping", "内核自用的数据", _NOTHING, whole=True),
    "no_tensor": Wording("returns no tensor", "不返回张量", _NOTHING, whole=True),
    "in_pieces": Wording(
        "compiled in pieces, because its Python asks for values ({detail})",
        "因其 Python 代码需要取值而分段编译（{detail}）", _PLAIN,
    ),
    "other_operators": Wording(
        "a traced run has other operators ({traced}) than a plain one ({plain})",
        "跟踪运行的算子（{traced} 个）与普通运行（{plain} 个）不同", _PLAIN,
    ),
    "no_operator": Wording(
        "has no operator of its own in the compiled graph", "在编译后的图中没有对应的独立算子", _NOTHING, whole=True
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
