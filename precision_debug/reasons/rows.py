"""Why a row of the table has its status."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["ROWS"]

_SHAPES = "Check dynamic dimensions, layouts and the export before the precision."
_NUMBERS = "Check the row's Error Growth: above 1, the operator itself lost the precision."
_SPECIAL = "Look for overflow, and check divisions, square roots, logarithms and exponentials."
_OWN = "Check the input, the weights and the model before the precision."
_PAIR = "Pair it with --rename if its name differs on the other side."
_HOME = "Nothing to do: its values are compared in another row, or there is nothing to compare."
_CRASH = "Check how the run ended; the rows finished before that are in the report."
_DECIDED = "Judge what is made of these decisions: scores that near are decided by rounding, on any machine."

ROWS: Mapping[str, Wording] = {
    # the verdict
    "shape": Wording("shape", "形状不同", _SHAPES),
    "map_keys": Wording(
        "the keys differ: {baseline} in the baseline alone, {target} in the target alone",
        "键不同：仅基线有 {baseline}，仅目标有 {target}", "Check the labels that the map is made with.",
    ),
    "turned": Wording(
        "its axes have another order in the target, which calls it otherwise", "目标中该张量名称不同，且轴的次序不同",
        "Look at the outputs, which keep their layout: an engine may lay out inner tensors as it likes.",
    ),
    "other_cut": Wording(
        "the work is cut differently there: no part of it is this sample's own",
        "该处的切分不同：没有单独属于此样本的部分",
        _HOME, whole=True,
    ),
    "cut_otherwise": Wording(
        "other cut: {base} here and {target} there, and every output agrees",
        "切分不同：此处为 {base}，对侧为 {target}，而所有输出一致",
        _HOME, whole=True,
    ),
    "types": Wording("types: {base} against {target}", "类型不同：{base} 与 {target}", _SHAPES),
    "elements": Wording("{count} of {all} {all:element|elements}", "{all} 个元素中有 {count} 个", _NUMBERS),
    "elements_and": Wording(
        "{count} of {all} {all:element|elements}, {special}", "{all} 个元素中有 {count} 个，{special}", _NUMBERS
    ),
    "on_both": Wording("{what} on both sides", "两侧都有 {what}", _OWN),
    "in_baseline": Wording("{what} in the baseline", "基线中有 {what}", _OWN),
    "in_target": Wording("{what} in the target", "目标中有 {what}", _SPECIAL),
    "count_in_baseline": Wording("{count} {what} in the baseline", "基线中有 {count} 个 {what}", _OWN),
    "count_in_target": Wording("{count} {what} in the target", "目标中有 {count} 个 {what}", _SPECIAL),
    "non_finite": Wording("{found}", "{found}", _SPECIAL),
    "not_computed": Wording("{statistic} was not computed", "未计算 {statistic}", "Report this as a bug."),
    "statistic": Wording(
        "{name} abs {abs:.3g} > {atol:g} and {name} rel {rel:.3g} > {rtol:g}",
        "{name}：绝对误差 {abs:.3g} > {atol:g}，且相对误差 {rel:.3g} > {rtol:g}", _NUMBERS,
    ),
    "empty": Wording("0 elements on both sides", "两侧都没有元素", "Use an input for which it is not empty."),
    "hidden": Wording(
        "passes only because atol {atol:g} exceeds its RMS {rms:.3g}; its Rel L2 is {error:.3g}",
        "仅因 atol {atol:g} 而通过，该值大于其均方根 {rms:.3g}，相对 L2 误差为 {error:.3g}",
        "Use an --atol below the RMS of the tensor.",
    ),
    "hidden_rtol": Wording(
        "passes only because rtol {rtol:g} would let zeros pass for it; its Rel L2 is {error:.3g}",
        "仅因 rtol {rtol:g} 而通过，而全为零的结果也会通过，相对 L2 误差为 {error:.3g}", "Use an --rtol below 1.",
    ),
    "beyond": Wording(
        "Rel L2 {error:.3g} exceeds {allowed:.3g}, the error expected of this arithmetic",
        "相对 L2 误差 {error:.3g} 超过该运算允许损失的 {allowed:.3g}", _NUMBERS,
    ),
    "whole": Wording(
        "integers that are not equal: off by up to {most}", "整数不相等：最多相差 {most}",
        "Use --atol if integers that far apart are the same to you.",
    ),
    "slices_lost": Wording(
        "{count:slice|slices} {slices} of axis {axis} ({count} of {all}) {count:is|are} lost: off by {part:.0%} of"
        " {count:its|their} own size; {count:it reaches|they reach}"
        " {peak:.3g} beside values up to {largest:.3g}",
        "第 {axis} 轴的切片 {slices}（{all} 个中的 {count} 个）已丢失：误差为其自身大小的 {part:.0%}；"
        "其最大值为 {peak:.3g}，而同一输出的最大值为 {largest:.3g}",
        "Give them an output, or a scale, of their own: split the Concat that packs them, or keep it.",
    ),
    "slices_on_steps": Wording(
        "{count:slice|slices} {slices} of axis {axis} ({count} of {all}) {count:is|are} lost: at up to {peak:.4g} the"
        " target knows only multiples of {step:.3g}, and {count:it varies|they vary} by {spread:.3g}",
        "第 {axis} 轴的切片 {slices}（{all} 个中的 {count} 个）已丢失："
        "在最大 {peak:.4g} 处目标只能表示 {step:.3g} 的倍数，而其自身仅变化 {spread:.3g}",
        "Keep what makes them in a wider type, or give the difference from their mean, and add the mean afterwards.",
    ),
    "whole_on_steps": Wording(
        "all {elements} numbers are lost: at up to {peak:.4g} the target knows only multiples of {step:.3g}, and they"
        " vary by {spread:.3g}",
        "全部 {elements} 个数已丢失：在最大 {peak:.4g} 处目标只能表示 {step:.3g} 的倍数，而其自身仅变化 {spread:.3g}",
        "Keep what makes them in a wider type, or give the difference from their mean, and add the mean afterwards.",
    ),
    "decisions_turned": Wording(
        "{count} of {all} decisions turned; rounding turns about {predicted:.3g}",
        "{all} 个判定中有 {count} 个翻转；舍入约翻转 {predicted:.3g} 个", _DECIDED,
    ),
    "decisions_turned_apart": Wording(
        "{count} of {all} decisions turned, where the scores are {margin:.3g} apart at most; rounding turns about"
        " {predicted:.3g}",
        "{all} 个判定中有 {count} 个翻转，这些位置的分数至多相差 {margin:.3g}；舍入约翻转 {predicted:.3g} 个", _DECIDED,
    ),
    "behind_decisions": Wording(
        "it differs by the decisions of {name} that turned, and by no more", "仅因 {name} 的判定翻转而不同",
        "See the row of these decisions.",
    ),
    "order_undefined": Wording(
        "the same ones in another order: sorted=0 leaves its order undefined",
        "元素相同而次序不同：sorted=0 时其次序未定义", "Sort it, or set sorted=1, where something reads the order.",
    ),
    "behind_order": Wording(
        "it differs by the order of {name}, which is undefined, and by no more", "仅因 {name} 的次序（未定义）而不同",
        "See the row of these decisions.",
    ),
    # no partner
    "gone": Wording(
        "the target's graph has no such tensor", "目标图中没有该张量",
        "Nothing to do if it was fused; otherwise: " + _PAIR,
    ),
    "step_left_out": Wording(
        "GradScaler skipped the optimiser's step in the target", "目标侧的 GradScaler 跳过了优化器这一步",
        "Find where the NaN or Inf first appears, or use a smaller --option loss_scale.",
    ),
    "step_no_gradient": Wording(
        "the target's parameter has no gradient: it requires none, or the loss does not depend on it",
        "目标侧的该参数没有梯度：它不要求梯度，或损失不依赖于它",
        "Check requires_grad, and whether a detach() or no_grad() lies between the parameter and the loss.",
    ),
    "fused_into": Wording(
        "fused into {operator} node {node}", "已融合进 {operator} 节点 {node}", "See the row of that node."
    ),
    "no_such_name": Wording("the baseline has no tensor of this name", "基线中没有同名张量", _PAIR),
    "target_does": Wording(
        "the target computes {part} with other"
        " operators", "目标用其他算子完成 {part}", "See its outputs.", whole=True
    ),
    "baseline_does": Wording(
        "the baseline computes {part} with other"
        " operators", "基线用其他算子完成 {part}", "See its outputs.", whole=True
    ),
    "baseline_stems": Wording(
        "the baseline's tensor of this name is a different one", "基线中的同名张量来源不同", _PAIR
    ),
    "target_stems": Wording(
        "the target's tensor of this name is a different one", "目标中的同名张量来源不同", _PAIR
    ),
    "baseline_made_by": Wording(
        "the baseline's tensor of this name is produced by {there}, this one by {here}",
        "基线中的同名张量由 {there} 产生，而它由 {here} 产生", _PAIR,
    ),
    "target_made_by": Wording(
        "the target's tensor of this name is produced by {there}, this one by {here}",
        "目标中的同名张量由 {there} 产生，而它由 {here} 产生", _PAIR,
    ),
    "taken": Wording(
        "its baseline tensor is compared with {rival}", "对应的基线张量已与 {rival} 比较", _HOME, whole=True
    ),
    "not_kept": Wording("its baseline tensor was not kept", "未保留对应的基线张量", "Report this as a bug."),
    "too_plain": Wording(
        "it has too few distinct values to tell it from others", "不同取值太少，无法与其他张量区分", _PAIR
    ),
    "name_shape": Wording(
        "its name matches {name}, but its shape {own} is no layout of {shape}",
        "其名称对应 {name}，但其形状 {own} 不是 {shape} 的任何布局", _PAIR,
    ),
    "several": Wording("equally good candidates: {names}", "有同样匹配的多个候选：{names}", _PAIR),
    "several_more": Wording("equally good candidates: {names} …", "有同样匹配的多个候选：{names} 等", _PAIR),
    # not seen
    "of_baseline": Wording("baseline: {why}", "基线：{why}", "See the part after the colon."),
    "of_target": Wording("target: {why}", "目标：{why}", "See the part after the colon."),
    "ended": Wording("the run ended before this tensor", "运行在到达该张量之前结束", _CRASH),
    "ended_first": Wording("the run ended before it was compared", "运行在比较该张量之前结束", _CRASH),
    "not_on_both": Wording(
        "both graphs have it, but it was not seen on both sides", "两侧的图中都有，但并非两侧都观测到",
        "Report this as a bug.",
    ),
    "not_called": Wording(
        "the target's hook was not called for it", "目标没有为它调用 hook", "Report this as a bug."
    ),
    "not_in_dump": Wording(
        "the dump does not contain"
        " it", "导出中没有该张量", "Dump it too; `precision_debug dumps` lists what was left over."
    ),
    "not_recorded": Wording("it was not recorded", "没有录制该张量", "Record the run again without marks."),
    # who introduced the error was not measured
    "not_alone": Wording(
        "its operators cannot be run alone here", "此处无法单独运行其算子",
        "Use run modes whose tensors can be replaced (ONNX Runtime on the CPU, eager PyTorch).",
    ),
    "takes_long": Wording(
        "running each operator alone would take about {minutes:.0f} minutes; --explain full does so anyway",
        "单独运行每个算子约需 {minutes:.0f} 分钟；可用 --explain full 执行", "Use --explain full.",
    ),
    "ended_at_the_cap": Wording(
        "it took more than {minutes:.0f} minutes and was stopped; --explain full has no such limit",
        "耗时超过 {minutes:.0f} 分钟，已中止；--explain full 无此上限", "Use --explain full.",
    ),
    "not_tried": Wording(
        "{tried} {tried:operator was|operators were} tried alone and do not explain it; the {left} not tried may"
        " do so together; --explain"
        " full tries them all",
        "已单独尝试 {tried} 个算子，均不足以解释；另有 {left} 个未尝试，其合计可能解释；--explain full 会全部尝试",
        "Use --explain full.",
    ),
    "no_numbers_there": Wording(
        "no numbers were compared at the output `{name}`", "输出 `{name}` 处没有比较数值", _SHAPES,
    ),
    "failed": Wording("{detail}", "{detail}", "Read the engine's message."),
}  # fmt: skip
