"""Labels of a report: what a search held its sets to and gives away, scores, and where inputs came from."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["FIXES"]

FIXES: Mapping[str, Wording] = {
    "every_output": Wording("every output", "所有输出"),
    "every_tensor": Wording("every tensor", "所有张量"),
    "limit_check": Wording("`{command}` ends with status 0", "`{command}` 以退出码 0 结束"),
    "limit_share": Wording(
        "{what}: Rel L2 at most {percent:g}% of the error with nothing kept",
        "{what}：相对 L2 误差不超过全部低精度时的 {percent:g}%",
    ),
    "limit_metric_share": Wording(
        "{what}: at most {percent:g}% of its value with nothing kept",
        "{what}：不超过全部低精度时其值的 {percent:g}%",
    ),
    "limit_error": Wording("{what}: error at most {limit:g}", "{what}：误差不超过 {limit:g}"),
    "limit_rel_l2": Wording("{what}: Rel L2 at most {limit:g}", "{what}：相对 L2 误差不超过 {limit:g}"),
    "limit_score": Wording("{what}: at least {limit:g}, on average", "{what}：平均不低于 {limit:g}"),
    "limit_drop": Wording("{what}: worse by at most {limit:.3g}, on average", "{what}：平均变差不超过 {limit:.3g}"),
    "limit_metric": Wording("{what}: it decides", "{what}：由它判定"),
    "limit_tolerance": Wording("{what}: atol {atol:g}, rtol {rtol:g}", "{what}：容差 atol {atol:g}，rtol {rtol:g}"),
    "limit_expected": Wording(
        "{what}: Rel L2 at most {limit:.3g}, the error expected of this arithmetic",
        "{what}：相对 L2 误差不超过该运算允许损失的 {limit:.3g}",
    ),
    "fix_large": Wording(
        "one run with something kept processes {gigabytes:.2g} GB of tensors and weights, too much for a comparison by"
        " default; add --explain full to try it, or use precision_debug search",
        "保留部分算子后运行一次需处理 {gigabytes:.2g} GB 的张量与权重，超出一次对比的默认工作量；"
        "同一命令加上 --explain full 会尝试，precision_debug search 可进一步查找",
    ),
    "fix_no_outputs": Wording(
        "not every output of the target has the same layout and name as the baseline's",
        "目标的输出与基线的布局或名称不完全一致",
    ),
    "fix_failed": Wording("the engine failed with something kept: {detail}", "保留部分算子后引擎运行失败：{detail}"),
    "fix_setting_failed": Wording(
        "the engine failed with every setting that was tried: {detail}", "试用的设置均使引擎运行失败：{detail}"
    ),
    "fix_setting_large": Wording(
        "one run with another setting processes {gigabytes:.2g} GB of tensors, too much for a comparison by default;"
        " add --explain full to try it",
        "换一种设置运行一次需处理 {gigabytes:.2g} GB 的张量，超出一次对比的默认工作量；加上 --explain full 会尝试",
    ),
    "fix_ended": Wording(
        "No fix is known: the run ended while sets of operators were tried on the engine.",
        "尚无可用的修复：运行在引擎上试验算子集合时结束。",
    ),
    "fix_random": Wording(
        "{name} gives a different result in each run, so no run can tell the effect of keeping an operator",
        "{name} 每次运行的结果都不同，因此无法通过运行判断保留算子的作用",
    ),
    "recorded_tensors": Wording("its tensors were recorded: nothing of it runs here", "其张量来自录制，此处不运行"),
    "for_this_tool": Wording("for this tool", "用于本工具"),
    "named_for_this_tool": Wording("{name} for this tool", "用于本工具的 {name}"),
    "score_agreement": Wording("top-{k} agreement", "top-{k} 一致率"),
    "score_accuracy": Wording("top-{k} accuracy", "top-{k} 准确率"),
    "score_baseline": Wording("{what}, baseline", "{what}（基线）"),
    "score_target": Wording("{what}, target", "{what}（目标）"),
    "recording_inputs": Wording("the inputs of recording {recording}", "录制 {recording} 的输入"),
    "from_the_caller": Wording("arrays from the caller", "调用者给出的数组"),
    "seeded_random": Wording("seeded random (seed {seed})", "固定种子的随机数（种子 {seed}）"),
}
