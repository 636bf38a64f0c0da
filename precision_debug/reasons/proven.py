"""What a file proves by itself, or two files of each other: see ``onnx.provable``."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["PROVEN"]

_AGAIN = "Regenerate the file with a tool that does not do this, or fix the constant."
_EXPORT = "Export the model again, and check the tool that changed it since."
_REPORT = "Report it to the developers of the tool that wrote the second file, and use the first file."
_QUANTISE = "Quantise the model again, with a larger range if it clips."
_QUANTISE_ALIKE = "Give both the scale and the zero point that its values were quantised with."

PROVEN: Mapping[str, Wording] = {
    "proven_nan": Wording(
        "The file proves it: constant `{name}` holds NaN ({count} {count:element|elements}).",
        "文件即可证明：常量 `{name}` 含 NaN（{count} 个元素）。", _AGAIN,
    ),
    "proven_unmade": Wording(
        "The file proves it: `{reader}` reads `{name}`, which nothing in the file makes or feeds.",
        "文件即可证明：`{reader}` 读取 `{name}`，而文件中没有任何部分产生或输入它。", _EXPORT,
    ),
    "proven_unmade_output": Wording(
        "The file proves it: nothing makes the output `{name}`.", "文件即可证明：没有任何部分产生输出 `{name}`。",
        _EXPORT,
    ),
    "proven_made_twice": Wording(
        "The file proves it: `{name}` is made {count} {count:time|times}, so that it is not known which is read.",
        "文件即可证明：`{name}` 被产生 {count} 次，无法得知读取的是哪一个。", _EXPORT,
    ),
    "proven_declared_twice": Wording(
        "The file proves it: `{name}` is declared {count} {count:time|times} among its inputs, outputs or opsets.",
        "文件即可证明：输入、输出或算子集中 `{name}` 被声明 {count} 次。", _EXPORT,
    ),
    "proven_no_operator": Wording(
        "The file proves it: {count} {count:operator is|operators are} none of {domain} in opset {version}: {names}.",
        "文件即可证明：{domain} 的算子集 {version} 中没有以下 {count} 个算子：{names}。", _EXPORT,
    ),
    "proven_refused": Wording(
        "The file proves it: ONNX's own checker refuses it: {why}", "文件即可证明：ONNX 自带的检查器拒绝该文件：{why}",
        _EXPORT,
    ),
    "standard_newer": Wording(
        "The file is of version {version} of {domain}, and the onnx package here knows {known} at most, so that whether"
        " its operators are right was not checked.",
        "文件使用 {domain} 的版本 {version}，而此处的 onnx 包最高只认识 {known}，因此未检查其算子是否正确。",
        "Install a newer onnx package, or check the version that the file states.",
    ),
    "standard_unchecked": Wording(
        "not checked by the standard, being of other domains: {count} {count:operator|operators}: {names}",
        "属于其他域、未按标准检查的 {count} 个算子：{names}",
    ),
    "standard_unnamed": Wording(
        "of its form ONNX's checker refuses: {count} {count:graph has|graphs have} no name",
        "ONNX 检查器不接受其形式：{count} 个图没有名字",
    ),
    "standard_unordered": Wording(
        "of its form ONNX's checker refuses: operators do not stand in the order that they run in ({count}"
        " {count:graph|graphs})",
        "ONNX 检查器不接受其形式：{count} 个图中的算子未按执行顺序排列",
    ),
    "standard_no_shape": Wording(
        "of its form ONNX's checker refuses: no shape is declared for {count} of its inputs and outputs: {names}",
        "ONNX 检查器不接受其形式：有 {count} 个输入或输出未声明形状：{names}",
    ),
    "proven_circle": Wording(
        "The file proves it: {count} {count:operator waits|operators wait} for results that depend on {count:its|their}"
        " own: {names}.",
        "文件即可证明：{count} 个算子等待依赖于自身的结果：{names}。", _EXPORT,
    ),
    "nothing_to_look_at": Wording(
        "There is no operator in {file}, so nothing of it was looked at.", "{file} 中没有算子，因此没有可查看的内容。",
        _EXPORT,
    ),
    "proven_scale": Wording(
        "The file proves it: {op} `{name}` has the scale {scale:g}, but a scale must be positive.",
        "文件即可证明：{op} `{name}` 的 scale 为 {scale:g}，而 scale 应为正数。", _QUANTISE,
    ),
    "proven_scale_apart": Wording(
        "The file proves it: `{name}` is quantised with the scale {made:.4g} and the zero point {made_zero}, but {op}"
        " `{by}` reads it with the scale {read:.4g} and the zero point {read_zero}.",
        "文件即可证明：`{name}` 以 scale {made:.4g}、零点 {made_zero} 量化，而 {op} `{by}` 以 scale {read:.4g}、零点"
        " {read_zero} 读取它。", _QUANTISE_ALIKE,
    ),
    "proven_zero_point": Wording(
        "The file proves it: DequantizeLinear `{name}` has a zero point of type {zero} for a constant of type {held}.",
        "文件即可证明：DequantizeLinear `{name}` 的零点类型为 {zero}，而其常量类型为 {held}。", _QUANTISE,
    ),
    "proven_bias_zero_point": Wording(
        "The file proves it: the int32 constant behind `{name}` has the zero point {zero}, but integer kernels assume"
        " 0.",
        "文件即可证明：`{name}` 的 int32 常量零点为 {zero}，而整数内核按 0 计算。", _QUANTISE,
    ),
    "proven_bias_clipped": Wording(
        "The file proves it: {op} `{name}` has an int32 bias `{bias}` that reaches 2^31-1 ({count}"
        " {count:element|elements}), so it was clipped: scale_x times scale_w is too small for it.",
        "文件即可证明：{op} `{name}` 的 int32 偏置 `{bias}` 有 {count} 个元素到达 2^31-1，已被截断：scale_x×scale_w"
        " 过小。", "Quantise the model again, with per-tensor weights or a larger scale there.",
    ),
    "proven_bias_scale": Wording(
        "The file proves it: {op} `{name}` reads the bias `{bias}` with the scale {scale:.4g}, but integer kernels"
        " assume scale_x times scale_w, {wanted:.4g}.",
        "文件即可证明：{op} `{name}` 的偏置 `{bias}` 的 scale 为 {scale:.4g}，而整数内核按 scale_x×scale_w ="
        " {wanted:.4g} 计算。", _QUANTISE,
    ),
    "proven_bias_shared": Wording(
        "The file proves it: `{first}` and `{second}` share the int32 bias `{bias}`, but their scale_x times scale_w"
        " differ.",
        "文件即可证明：`{first}` 与 `{second}` 共用 int32 偏置 `{bias}`，而二者的 scale_x×scale_w 不同。", _QUANTISE,
    ),
    "proven_weight_clipped": Wording(
        "The file proves it: constant `{name}` reaches {value:.4g}, but its QuantizeLinear clips at {low:.4g} and"
        " {high:.4g}.",
        "文件即可证明：常量 `{name}` 达到 {value:.4g}，而其 QuantizeLinear 截断在 {low:.4g} 与 {high:.4g}。", _QUANTISE,
    ),
    "proven_variance": Wording(
        "The file proves it: BatchNormalization `{name}` has the variance {variance:.4g}, whose square root is NaN.",
        "文件即可证明：BatchNormalization `{name}` 的方差为 {variance:.4g}，开方得 NaN。", _AGAIN,
    ),
    "proven_clip": Wording(
        "The file proves it: Clip `{name}` has the minimum {low:.4g} above its maximum {high:.4g}; engines disagree on"
        " the result.",
        "文件即可证明：Clip `{name}` 的最小值 {low:.4g} 大于最大值 {high:.4g}；各引擎对此结果不一。", _AGAIN,
    ),
    "proven_overflow": Wording(
        "The file proves it: constant `{name}`, read by {by}, reaches {value:.4g}, above {to}'s maximum of {limit:g}"
        " ({count} {count:element|elements}).",
        "文件即可证明：{by} 所读的常量 `{name}` 达到 {value:.4g}，而 {to} 最大为 {limit:g}（{count} 个元素）。",
        "Keep the operators that read it in FP32 or BF16, or use a smaller constant (for example, -65504 for a mask).",
    ),
    "proven_underflow": Wording(
        "The file proves it: constant `{name}`, read by {by}, is {value:.4g}, but the smallest value of {to} is"
        " {least:.3g}.",
        "文件即可证明：{by} 所读的常量 `{name}` 为 {value:.4g}，而 {to} 的最小值为 {least:.3g}。",
        "Use a larger epsilon, or keep the operator that reads it in FP32.",
    ),
    "proven_int64": Wording(
        "The file proves it: constant `{name}`, read by {by}, holds {value}, but the target has only 32 bits.",
        "文件即可证明：{by} 所读的常量 `{name}` 含 {value}，而目标只有 32 位。", _AGAIN,
    ),
    "proven_attribute": Wording(
        "The files prove it: {op} `{name}` has {what} {base} in the first and {target} in the second.",
        "两个文件即可证明：{op} `{name}` 的 {what} 在第一个中为 {base}，在第二个中为 {target}。", _REPORT,
    ),
    "proven_kind": Wording(
        "The files prove it: `{name}` is made by {base} in the first and by {target} in the second.",
        "两个文件即可证明：`{name}` 在第一个中由 {base} 产生，在第二个中由 {target} 产生。", _REPORT,
    ),
    "proven_reads": Wording(
        "The files prove it: {op} `{name}` reads {base} in the first where it reads {target} in the second.",
        "两个文件即可证明：{op} `{name}` 在第一个中读取 {base} 之处，在第二个中读取 {target}。", _REPORT,
    ),
    "proven_ends": Wording(
        "The files prove it: its {what}s are {base} in the first and {target} in the second.",
        "两个文件即可证明：图的 {what} 在第一个中为 {base}，在第二个中为 {target}。", _REPORT,
    ),
    "proven_other_order": Wording(
        "Only the other order fits: the first file seems to be made from the second. Name the original first.",
        "只有相反的顺序才相符：第一个文件似乎由第二个生成。请先写原始文件。", "Name the original first.",
    ),
    "unproven_first": Wording(
        "Nothing is proven of {count} {count:operator|operators} of the first file, which {count:has|have} no"
        " counterpart in the second: {names}.",
        "第一个文件中有 {count} 个算子在第二个中没有对应，未得到任何证明：{names}。",
        "Compare both files by a run: --model_file M2 --baseline_model M.",
    ),
    "unproven_second": Wording(
        "Nothing is proven of {count} {count:operator|operators} of the second file, which {count:has|have} no"
        " counterpart in the first: {names}.",
        "第二个文件中有 {count} 个算子在第一个中没有对应，未得到任何证明：{names}。",
        "Compare both files by a run: --model_file M2 --baseline_model M.",
    ),
    "unproven_graphs": Wording(
        "Nothing is proven of {count} {count:branch or body|branches or bodies} that only one file has: {names}.",
        "有 {count} 个分支或循环体只存在于其中一个文件，未得到任何证明：{names}。",
        "Compare both files by a run: --model_file M2 --baseline_model M.",
    ),
    "unread_constants": Wording(
        "{count} {count:constant was|constants were} not looked at, being too large or of no type of numbers: {names}.",
        "有 {count} 个常量因过大或不是数值类型而未被查看：{names}。", "Compare by a run.",
    ),
    "looked_at": Wording(
        "looked at: {constants} {constants:constant|constants} and {operators} {operators:operator|operators} in"
        " {graphs} {graphs:graph|graphs}",
        "已查看：{graphs} 个图中的 {constants} 个常量与 {operators} 个算子",
    ),
    "proven_pad_in_pool": Wording(
        "The files prove it: a Pad before {op} `{name}` became pads of the {op} itself, which do not count as values:"
        " the border is computed differently.",
        "两个文件即可证明：{op} `{name}` 之前的 Pad 变成了 {op} 自身的 pads，而后者不是数值：边界结果不同。",
        _REPORT,
    ),
    "proven_constant": Wording(
        "The files prove it: {op} `{name}` reads a different constant in the second (`{constant}`, off by {off:.3g} Rel"
        " L2).",
        "两个文件即可证明：{op} `{name}` 在第二个中读取不同的常量（`{constant}`，相对 L2 误差 {off:.3g}）。", _REPORT,
    ),
    "proven_folded_weight": Wording(
        "The files prove it: {op} `{name}` of the second does not have the weight that folding BatchNormalization"
        " `{norm}` gives (`{constant}`, off by {off:.3g} Rel L2).",
        "两个文件即可证明：第二个的 {op} `{name}` 的权重不是折叠 BatchNormalization `{norm}` 所得（`{constant}`，"
        "相对 L2 误差 {off:.3g}）。", _REPORT,
    ),
    "proven_folded_bias": Wording(
        "The files prove it: {op} `{name}` of the second does not have the bias that folding BatchNormalization"
        " `{norm}` gives (`{constant}`, off by {off:.3g} Rel L2).",
        "两个文件即可证明：第二个的 {op} `{name}` 的偏置不是折叠 BatchNormalization `{norm}` 所得（`{constant}`，"
        "相对 L2 误差 {off:.3g}）。", _REPORT,
    ),
    "proven_removed": Wording(
        "The files prove it: {op} `{name}` is not in the second, and nothing there does what it did: {why}.",
        "两个文件即可证明：第二个中没有 {op} `{name}`，也没有其他算子替代它：{why}。",
        "Exclude it from quantisation (in ONNX Runtime nodes_to_exclude, or QDQKeepRemovableActivations).",
    ),
    "read_in_a_body": Wording(
        "the body of an If, Loop or Scan reads its result or its input, which are not quantised there",
        "If、Loop 或 Scan 的子图读取它的结果或输入，而在子图中这些张量未被量化",
    ),
    "bounds_without_zero": Wording(
        "its bounds do not include zero, as a quantiser's range does, or are known only when it runs",
        "其上下界不包含零，而量化范围总包含零；或上下界在运行时才能确定",
    ),
    "range_beyond_bounds": Wording(
        "the quantiser would let pass {least:.4g} to {most:.4g}", "量化器会放行 {least:.4g} 到 {most:.4g} 的值"
    ),
    "proven_more": Wording("… and {count} more of this kind.", "……同类另有 {count} 处。", "As above."),
}
