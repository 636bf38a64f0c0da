"""Who did it, in words: one sentence a culprit, in both languages, and the section that stands on top of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..explain import is_narrow
from ..records import Culprit, Row
from .figures import count, figure, percent
from .model import Report
from .section import Cell, Section, plain
from .words import Text, same

__all__ = ["CAUSES", "blame", "culprits", "expectation", "sentence_of"]

_SHOWN = 5

CAUSES: Mapping[str, Text] = {
    "inputs_differ": Text("the two sides were given different inputs", "两侧的输入不同"),
    "random": Text("another result each time", "每次运行结果不同"),
    "not_obeyed": Text("a precision that was asked for was not obeyed", "未遵守所要求的精度"),
    "tf32": Text("TF32 in place of FP32", "以 TF32 代替 FP32"),
    "files_differ": Text("the two models are not the same here", "两个模型在此处不同"),
    "overflow": Text("overflow", "上溢"),
    "weight_overflow": Text("a constant overflows", "常量上溢"),
    "range_inside": Text("overflow inside the operator", "算子内部上溢"),
    "underflow": Text("underflow", "下溢"),
    "weight_underflow": Text("a constant underflows", "常量下溢"),
    "saturation": Text("saturation", "饱和截断"),
    "outlier_channel": Text("an outlier channel", "离群通道"),
    "mask_range": Text("a mask sets the range", "掩码决定量化范围"),
    "cancellation": Text("cancellation", "相消"),
    "amplified": Text("ordinary rounding, amplified", "普通舍入误差被放大"),
    "long_reduction": Text("a long sum in a narrow type", "窄类型长求和"),
    "born": Text("NaN or Inf is born here", "此处产生 NaN 或 Inf"),
    "flips": Text("decisions flip", "判定翻转"),
    "other_arithmetic": Text("the target computes something else", "目标的计算不同"),
    "coarse": Text("too coarse in this type", "该类型精度不足"),
}
"""Every cause that explain.causes knows, in a few words."""

_CONFIDENCE = {
    "isolated": Text("measured on the engine, alone, on the baseline's inputs", "在引擎上以基线输入单独运行测得"),
    "replayed": Text(
        "measured by replaying the baseline's operator on the target's inputs", "以目标输入重放基线算子测得"
    ),
    "simulated": Text("measured in a simulation", "在模拟中测得"),
    "compared": Text("by comparing what both sides were given", "通过比较两侧所得到的输入得出"),
    "ranked": Text("only ranked by its error", "仅按误差排序得出"),
}


def culprits(report: Report) -> tuple[Culprit, ...]:
    """The culprits that were named, worst first."""
    return report.explanation.culprits if report.explanation is not None else ()


def sentence_of(culprit: Culprit, target_mode: str) -> Text:
    """Who, why, and what to keep in higher precision, where the target has a lower one."""
    what = "+".join(culprit.op_types[-4:])
    why = _why(culprit)
    keep = " and ".join(f"`{name}`" for name in culprit.keep)
    kept = "、".join(f"`{name}`" for name in culprit.keep)
    if culprit.cause == "files_differ":
        return Text(
            f"{what} `{culprit.name}` differs between the two models: {why.en}.",
            f"两个模型的 {what} `{culprit.name}` 不同：{why.zh}。",
        )
    if culprit.cause == "inputs_differ":
        return Text(
            f"Input `{culprit.name}` is not the same on both sides: {why.en}. Nothing behind it says anything.",
            f"两侧的输入 `{culprit.name}` 不同：{why.zh}。其后的一切误差均无意义。",
        )
    if culprit.cause in _ADVICE:
        advice = _ADVICE[culprit.cause]
        return Text(
            f"{what} `{culprit.name}` did it: {why.en}. {advice.en}", f"{what} `{culprit.name}`：{why.zh}。{advice.zh}"
        )
    if not is_narrow(target_mode):
        return Text(
            f"{what} `{culprit.name}` lost it: {why.en}. The target computes in FP32 too: compare what both sides"
            " compute there.",
            f"精度损失于 {what} `{culprit.name}`：{why.zh}。目标同样以 FP32 计算：请对照两侧在此处的运算。",
        )
    return Text(
        f"{what} `{culprit.name}` lost it: {why.en}. Keep {keep} in FP32, with what reads it.",
        f"精度损失于 {what} `{culprit.name}`：{why.zh}。请将 {kept} 及其读取者保留为 FP32。",
    )


_ADVICE: Mapping[str, Text] = {
    "random": Text(
        "Give it a fixed seed or a fixed order, or leave what follows from it out of the comparison.",
        "请固定随机种子或求和顺序，或不比较由它得出的张量。",
    ),
    "not_obeyed": Text(
        "Ask for the types of its outputs too, and of what reads it, and build again with obey.",
        "请同时指定其输出及读取者的类型，并以 obey 重新构建。",
    ),
    "tf32": Text(
        "Switch TF32 off where FP32 is meant (trt_fp32; use_tf32=0; torch.backends.cuda.matmul.allow_tf32 = False;"
        " NVIDIA_TF32_OVERRIDE=0).",
        "若需 FP32，请关闭 TF32（trt_fp32；use_tf32=0；torch.backends.cuda.matmul.allow_tf32 = False；"
        "NVIDIA_TF32_OVERRIDE=0）。",
    ),
}


def expectation(report: Report) -> list[Text]:
    """Where no tolerance was given: how far the worst output is off, beside what rounding everywhere predicts."""
    explained = report.explanation
    if report.spec.tolerance.given or explained is None or explained.actual is None or explained.allowed is None:
        return []
    english = f"No tolerance was given: {explained.at} is off by {figure(explained.actual)} (Rel L2)"
    chinese = f"未给出容差：{explained.at} 的相对 L2 误差为 {figure(explained.actual)}"
    if explained.expected:
        times = figure(round(explained.actual / explained.expected, 2))
        english += f", {times} x what rounding everywhere predicts"
        chinese += f"，是处处舍入所预测误差的 {times} 倍"
    return [
        Text(
            f"{english}; up to {figure(explained.allowed)} is as expected of {report.target.mode}.",
            f"{chinese}；{report.target.mode} 在 {figure(explained.allowed)} 以内均属预期。",
        )
    ]


def blame(report: Report) -> Section:
    """The culprits, or why there are none."""
    title = Text("Who did it, and why", "损失精度的算子及原因")
    explanation = report.explanation
    if explanation is None:
        return Section(key="culprits", title=title)
    lines: list[tuple[Cell, ...]] = []
    rows = {row.name: row for row in report.rows}
    for place, culprit in enumerate(explanation.culprits[:_SHOWN], 1):
        row = rows.get(culprit.name)
        label = Cell(text=same(f"{place}. {_short(culprit.name)}"), row=_index(row))
        lines.append((label, plain(sentence_of(culprit, report.target.mode))))
        lines.append((plain(same("")), plain(_evidence(culprit))))
    more = len(explanation.culprits) - _SHOWN
    if more > 0:
        lines.append((plain(same("")), plain(Text(f"… and {count(more)} more", f"……另有 {count(more)} 个"))))
    if not lines and (text := _none(report)) is not None:
        lines.append((plain(text),))
    return Section(key="culprits", title=title, lines=tuple(lines))


def _short(name: str, most: int = 32) -> str:
    """The end of a long name, which tells one layer's tensors apart."""
    return name if len(name) <= most else f"…{name[-most:]}"


def _index(row: Row | None) -> int | None:
    return None if row is None else row.index


def _none(report: Report) -> Text | None:
    explanation = report.explanation
    assert explanation is not None
    if explanation.state == "diffuse":
        most = max(explanation.budget.values(), default=0.0)
        return Text(
            "Diffuse: no single culprit. The error is made of many operators' rounding"
            + (f"; the largest share of one of them is {percent(most)}." if explanation.budget else "."),
            "误差分散，无单一算子可归因：由众多算子的舍入误差累积而成"
            + (f"，单个算子的最大占比为 {percent(most)}。" if explanation.budget else "。"),
        )
    if explanation.state == "unknown":
        return Text(
            f"Who introduced the error was not measured: {explanation.reason}.",
            f"未能测定误差由哪个算子引入：{explanation.reason}。",
        )
    if not report.compared:
        return None
    return Text(
        "No operator stands out: nothing is beyond what rounding to the target's type must lose.",
        "没有突出的算子：误差均未超过目标类型舍入所必然带来的损失。",
    )


def _evidence(culprit: Culprit) -> Text:
    english, chinese = [], []
    if culprit.introduced is not None:
        units = "" if culprit.units is None else f" ({figure(culprit.units)} x rounding once)"
        mal = "" if culprit.units is None else f"（单次舍入的 {figure(culprit.units)} 倍）"
        english.append(f"introduced error {figure(culprit.introduced)}{units}")
        chinese.append(f"自身引入误差 {figure(culprit.introduced)}{mal}")
    if culprit.share is not None and culprit.at:
        english.append(f"alone it explains {percent(culprit.share)} of the squared error at {culprit.at}")
        chinese.append(f"单独即可解释 {culprit.at} 处平方误差的 {percent(culprit.share)}")
    if culprit.fails_first and culprit.fails_first != culprit.name:
        english.append(f"first out of bounds because of it: {culprit.fails_first}")
        chinese.append(f"因其首先超限的张量：{culprit.fails_first}")
    sure = _CONFIDENCE.get(culprit.confidence, same(culprit.confidence))
    english.append(sure.en)
    chinese.append(sure.zh)
    return Text("; ".join(english), "；".join(chinese))


def _why(culprit: Culprit) -> Text:
    told = {key: _shown(value) for key, value in culprit.evidence.items()}
    maker = _WHY.get(culprit.cause)
    if maker is None:
        return CAUSES.get(culprit.cause, same(culprit.cause))
    try:
        return Text(maker.en.format_map(told), maker.zh.format_map(told))
    except KeyError:
        return CAUSES[culprit.cause]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return percent(value) if 0 < value <= 1 else figure(value)
    return count(value) if isinstance(value, int) else str(value)


_WHY: Mapping[str, Text] = {
    "inputs_differ": Text(
        "{base_dtype} of {base_range} in the baseline, {target_dtype} of {target_range} in the target, off by {error}",
        "基线为 {base_dtype}（{base_range}），目标为 {target_dtype}（{target_range}），相差 {error}",
    ),
    "random": Text(
        "two runs of one side on the same inputs differ by {between} (Rel L2) there, as much as the two sides",
        "同一侧以相同输入运行两次，此处相差 {between}（相对 L2），与两侧之差相当",
    ),
    "not_obeyed": Text(
        "{asked} was asked for layer {layer}, and the engine ran it in {real}",
        "对层 {layer} 要求 {asked}，而引擎以 {real} 运行",
    ),
    "tf32": Text(
        "its error is that of operands rounded to TF32's 11 bits ({units} of such a rounding), not of FP32's 24;"
        " operators of this kind: {count}",
        "其误差相当于操作数舍入到 TF32 的 11 位（该舍入的 {units}），而非 FP32 的 24 位；此类算子共 {count} 个",
    ),
    "overflow": Text(
        "overflow, its results reach {largest} where the type ends at {limit} ({count} elements)",
        "上溢，结果达到 {largest}，而该类型最大为 {limit}（{count} 个元素）",
    ),
    "weight_overflow": Text(
        "its constant {weight} reaches {largest} where the type ends at {limit}",
        "其常量 {weight} 达到 {largest}，而该类型最大为 {limit}",
    ),
    "range_inside": Text(
        "overflow inside the operator: inputs up to {largest}, squared, summed or in an exponent, pass {limit}",
        "算子内部上溢：输入达到 {largest}，平方、求和或取指数后超过 {limit}",
    ),
    "underflow": Text(
        "underflow, {lost} results below the type's smallest became 0 ({share} of the tensor)",
        "下溢，{lost} 个结果小于该类型最小值而变为 0（占张量的 {share}）",
    ),
    "weight_underflow": Text(
        "its constant {weight} (an epsilon?) is below what the type can hold, and became 0",
        "其常量 {weight}（epsilon？）小于该类型可表示的最小值，变为 0",
    ),
    "saturation": Text(
        "saturation, {share} of its results are cut off at {limit} where they reach {largest}",
        "饱和，{share} 的结果被截断在 {limit}，而实际达到 {largest}",
    ),
    "outlier_channel": Text(
        "one channel ({channel}) is {ratio} x larger than the others and takes the quantised range from them",
        "通道 {channel} 比其他通道大 {ratio} 倍，占去了量化范围",
    ),
    "mask_range": Text(
        "a mask of {largest} sets the quantised range, and every real score becomes 0",
        "掩码值 {largest} 决定了量化范围，所有真实得分变为 0",
    ),
    "cancellation": Text(
        "cancellation: {amplifier_type} `{amplifier}` subtracts nearly equal numbers (size {input_size}, result"
        " {output_size}), which makes this operator's rounding {factor} x larger",
        "相消：{amplifier_type} `{amplifier}` 对近似相等的数相减（输入量级 {input_size}，结果 {output_size}），"
        "将本算子的舍入误差放大 {factor} 倍",
    ),
    "amplified": Text(
        "ordinary rounding, which {amplifier_type} `{amplifier}` makes {factor} x larger",
        "普通舍入误差，被 {amplifier_type} `{amplifier}` 放大 {factor} 倍",
    ),
    "long_reduction": Text(
        "it sums up to {depth} terms in a narrow type", "以窄类型对多达 {depth} 项求和",
    ),
    "born": Text("{what} from finite inputs ({count} elements)", "由有限输入产生 {what}（{count} 个元素）"),
    "flips": Text(
        "{count} of {elements} decisions differ on the same inputs", "相同输入下 {elements} 个判定中有 {count} 个不同"
    ),
    "files_differ": Text(
        "{what} {name} is {base} in the baseline's and {target} in the target's",
        "{what} {name} 在基线中为 {base}，在目标中为 {target}",
    ),
}  # fmt: skip
