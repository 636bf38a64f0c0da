"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_HOME = "Nothing: its numbers are compared in another row, or there is nothing to compare."
_ASK = "Ask for it alone with --mark, or compare with the mode ort_fp32, whose layouts are the model's own."
_REFERENCE = "Compare with ort_fp32 in place of onnx_ref."

REASONS = Catalogue("onnxruntime", {
    # why a tensor is not seen
    "not_entered": Wording(
        "in a branch or loop body that this run did not enter", "位于本次运行未进入的分支或循环体内",
        "Give an input with which the branch is taken.", whole=True,
    ),
    "repeats": Wording("inside a branch or loop it repeats {name}", "在分支或循环内重复 {name}", _HOME, whole=True),
    "same_as": Wording("holds the same numbers as {name}", "与 {name} 数值相同", _HOME, whole=True),
    "constant": Wording("a constant of the model in another form", "模型常量的另一种形式", _HOME, whole=True),
    "feed": Wording(
        "the feed itself; it is compared after its rounding", "即输入本身；舍入之后再比较", _HOME, whole=True
    ),
    "dropped": Wording(
        "ONNX Runtime leaves it out when it loads the model: it changes nothing, or nothing reads it",
        "ONNX Runtime 加载模型时将其省去：它不改变数值，或没有算子读取它", _HOME, whole=True,
    ),
    "strings": Wording(
        "a string tensor: only the model's outputs of this type are shown", "字符串张量：仅显示模型输出", _HOME,
        whole=True,
    ),
    "no_tensor": Wording("not a tensor", "不是张量", _HOME, whole=True),
    "kind": Wording("a {kind}, not a tensor", "类型为 {kind}，不是张量", _HOME, whole=True),
    "no_type": Wording("ONNX Runtime did not tell its type", "ONNX Runtime 未给出其类型", _ASK),
    "layout": Wording(
        "the optimiser changed its layout in a way that is not known", "优化器以未知方式改变了其布局", _ASK
    ),
    "no_cast": Wording("{dtype} has no cast in ONNX Runtime", "ONNX Runtime 不能转换 {dtype}", _ASK),
    "blocks": Wording(
        "in NCHWc blocks, and how many of its channels are real is not known",
        "为 NCHWc 分块布局，实际通道数未知", _ASK,
    ),
    "no_opinion": Wording(
        "no second opinion for this operator: {why}", "该算子没有第二意见：{why}", _REFERENCE
    ),
    "reference_lacks": Wording("onnx.reference does not have it", "onnx.reference 没有实现它", _REFERENCE),
    "reference_fails": Wording("onnx.reference fails in it", "onnx.reference 在其中失败", _REFERENCE),
    "reference_wrong": Wording(
        "onnx.reference's own is wrong in this case", "onnx.reference 在此情形下的实现有误", _REFERENCE
    ),
    "reference_ignores": Wording(
        "onnx.reference ignores its {names}", "onnx.reference 忽略了它的 {names}", _REFERENCE
    ),
    "reference_shape": Wording(
        "its shape in onnx.reference is not what onnx infers", "onnx.reference 给出的形状与 onnx 推断的不符",
        _REFERENCE,
    ),
    "random": Wording("its numbers are random", "其数值是随机的", _REFERENCE),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
