"""Why an operator lost the precision: in a few words, and with its evidence."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["CAUSES", "WHY"]

CAUSES: Mapping[str, Wording] = {
    "cause_inputs_differ": Wording(
        "the two sides were given different inputs",
        "两侧的输入不同",
        "Give both sides the same inputs, in the same types.",
    ),
    "cause_random": Wording(
        "another result each time",
        "每次运行结果不同",
        "Compare with the randomness switched off: evaluation mode, a fixed seed, no dropout.",
    ),
    "cause_not_obeyed": Wording(
        "a precision that was asked for was not obeyed",
        "未遵守所要求的精度",
        "Give --precision_constraints obey, or cast in the model itself.",
    ),
    "cause_tf32": Wording(
        "TF32 in place of FP32",
        "以 TF32 代替 FP32",
        "Switch TF32 off for these operators, or accept about three digits.",
    ),
    "cause_files_differ": Wording(
        "the two models are not the same here",
        "两个模型在此处不同",
        "Compare the two files at this operator: they are not the same model.",
    ),
    "cause_overflow": Wording("overflow", "上溢", "Keep the operator in FP32 or BF16, or scale its inputs down."),
    "cause_weight_overflow": Wording(
        "a constant overflows", "常量上溢", "Keep the readers of the constant in FP32 or BF16, or scale it."
    ),
    "cause_range_inside": Wording(
        "overflow inside the operator", "算子内部上溢", "Keep the operator in FP32, or scale its inputs before it."
    ),
    "cause_underflow": Wording("underflow", "下溢", "Keep the operator in FP32 or BF16, or scale its inputs up."),
    "cause_weight_underflow": Wording(
        "a constant underflows", "常量下溢", "Use a larger epsilon, or keep its reader in FP32."
    ),
    "cause_saturation": Wording(
        "saturation", "饱和截断", "Calibrate on inputs that reach these values, or with another method."
    ),
    "cause_outlier_channel": Wording(
        "an outlier channel", "离群通道", "Quantise per channel, or smooth the outlier into the weights."
    ),
    "cause_mask_range": Wording(
        "a mask sets the range",
        "掩码决定量化范围",
        "Keep what reads the mask in higher precision, or use a smaller mask.",
    ),
    "cause_cancellation": Wording("cancellation", "相消", "Keep the operator and the one that subtracts in FP32."),
    "cause_amplified": Wording(
        "ordinary rounding, amplified", "普通舍入误差被放大", "Keep the operator and the one that amplifies in FP32."
    ),
    "cause_long_reduction": Wording("a long sum in a narrow type", "窄类型长求和", "Let the sum accumulate in FP32."),
    "cause_drift": Wording(
        "rounding to one side in each iteration",
        "每次迭代的舍入都偏向同一侧",
        "Keep the state of the loop in FP32, or use larger steps.",
    ),
    "cause_born": Wording(
        "NaN or Inf is born here",
        "此处产生 NaN 或 Inf",
        "Look at division, square root, logarithm and exponential there.",
    ),
    "cause_flips": Wording(
        "decisions flip", "判定翻转", "Look at what is decided there; keep what computes it in FP32."
    ),
    "cause_other_arithmetic": Wording(
        "the target computes something else", "目标的计算不同", "Compare what both sides compute there."
    ),
    "cause_faulty_pass": Wording(
        "a pass of the engine computes something else",
        "引擎的某个 pass 改变了计算",
        "Switch the pass off, as the pasted line does, and report it to the engine's developers.",
    ),
    "cause_pass_rounding": Wording(
        "a pass of the engine rounds elsewhere, and this model makes that large",
        "引擎的某个 pass 改变了舍入位置，而该模型将其放大",
        "Switch the pass off, as the pasted line does, where that matters.",
    ),
    "cause_coarse": Wording("too coarse in this type", "该类型精度不足", "Keep the operator in higher precision."),
}
"""Every cause that explain.causes knows, in a few words."""

WHY: Mapping[str, Wording] = {
    "why_inputs_differ": Wording(
        "{base_dtype} of {base_range} in the baseline, {target_dtype} of {target_range} in the target, off by {error}",
        "基线为 {base_dtype}（{base_range}），目标为 {target_dtype}（{target_range}），相差 {error}",
    ),
    "why_random": Wording(
        "two runs of one side on the same inputs differ by {between} (Rel L2) there, as much as the two sides",
        "同一侧以相同输入运行两次，此处相差 {between}（相对 L2），与两侧之差相当",
    ),
    "why_not_obeyed": Wording(
        "{asked} was asked for layer {layer}, and the engine ran it in {real}",
        "对层 {layer} 要求 {asked}，而引擎以 {real} 运行",
    ),
    "why_tf32": Wording(
        "its error is that of operands rounded to TF32's 11 bits ({units} of such a rounding), not of FP32's 24;"
        " operators of this kind: {count}",
        "其误差相当于操作数舍入到 TF32 的 11 位（该舍入的 {units}），而非 FP32 的 24 位；此类算子共 {count} 个",
    ),
    "why_overflow": Wording(
        "overflow, its results reach {largest} where the type ends at {limit} ({count} elements)",
        "上溢，结果达到 {largest}，而该类型最大为 {limit}（{count} 个元素）",
    ),
    "why_weight_overflow": Wording(
        "its constant {weight} reaches {largest} where the type ends at {limit}",
        "其常量 {weight} 达到 {largest}，而该类型最大为 {limit}",
    ),
    "why_range_inside": Wording(
        "overflow inside the operator: inputs up to {largest}, squared, summed or in an exponent, pass {limit}",
        "算子内部上溢：输入达到 {largest}，平方、求和或取指数后超过 {limit}",
    ),
    "why_underflow": Wording(
        "underflow, {lost} results below the type's smallest became 0 ({share} of the tensor)",
        "下溢，{lost} 个结果小于该类型最小值而变为 0（占张量的 {share}）",
    ),
    "why_weight_underflow": Wording(
        "its constant {weight} (an epsilon?) is below what the type can hold, and became 0",
        "其常量 {weight}（epsilon？）小于该类型可表示的最小值，变为 0",
    ),
    "why_saturation": Wording(
        "saturation, {share} of its results are cut off at {limit} where they reach {largest}",
        "饱和，{share} 的结果被截断在 {limit}，而实际达到 {largest}",
    ),
    "why_outlier_channel": Wording(
        "one channel ({channel}) is {ratio} x larger than the others and takes the quantised range from them",
        "通道 {channel} 比其他通道大 {ratio} 倍，占去了量化范围",
    ),
    "why_mask_range": Wording(
        "a mask of {largest} sets the quantised range, and every real score becomes 0",
        "掩码值 {largest} 决定了量化范围，所有真实得分变为 0",
    ),
    "why_cancellation": Wording(
        "cancellation: {amplifier_type} `{amplifier}` subtracts nearly equal numbers (size {input_size}, result"
        " {output_size}), which makes this operator's rounding {factor} x larger",
        "相消：{amplifier_type} `{amplifier}` 对近似相等的数相减（输入量级 {input_size}，结果 {output_size}），"
        "将本算子的舍入误差放大 {factor} 倍",
    ),
    "why_amplified": Wording(
        "ordinary rounding, which {amplifier_type} `{amplifier}` makes {factor} x larger",
        "普通舍入误差，被 {amplifier_type} `{amplifier}` 放大 {factor} 倍",
    ),
    "why_long_reduction": Wording("it sums up to {depth} terms in a narrow type", "以窄类型对多达 {depth} 项求和"),
    "why_drift": Wording(
        "in {depth} iterations its rounding is off to one side, as the loop's own state has it, which together makes"
        " {share} of the squared error",
        "在 {depth} 次迭代中，其舍入因循环自身的状态而总偏向同一侧，合计占平方误差的 {share}",
    ),
    "a_constant": Wording("constant", "常量"),
    "an_operator": Wording("operator", "算子"),
    "an_attribute": Wording("attribute", "属性"),
    "an_input": Wording("what is read by", "所读取的张量："),
    "why_faulty_pass": Wording(
        "the engine's {passes} makes {instead} of {replaced} and computes something else: the outputs are off by"
        " {before} (Rel L2) with it, and by {after} without it ({runs} builds, of {of} passes)",
        "引擎的 {passes} 将 {replaced} 变为 {instead}，改变了计算：启用时输出相差 {before}（相对 L2），关闭后为 {after}"
        "（{of} 个 pass 中二分，构建 {runs} 次）",
    ),
    "why_pass_rounding": Wording(
        "the engine's {passes} makes {instead} of {replaced}, which rounds elsewhere, and this model makes rounding"
        " large: the outputs are off by {before} (Rel L2) with it, and by {after} without it ({runs} builds, of {of}"
        " passes)",
        "引擎的 {passes} 将 {replaced} 变为 {instead}，舍入位置不同，而该模型会放大舍入误差：启用时输出相差 {before}"
        "（相对 L2），关闭后为 {after}（{of} 个 pass 中二分，构建 {runs} 次）",
    ),
    "why_born": Wording("{what} from finite inputs ({count} elements)", "由有限输入产生 {what}（{count} 个元素）"),
    "why_flips": Wording(
        "{count} of {elements} decisions differ on the same inputs", "相同输入下 {elements} 个判定中有 {count} 个不同"
    ),
    "why_files_differ": Wording(
        "{what} {name} is {base} in the baseline's and {target} in the target's",
        "{what} {name} 在基线中为 {base}，在目标中为 {target}",
    ),
}
"""The same with what was measured, where there is more to say; the names are those of Culprit.evidence."""
