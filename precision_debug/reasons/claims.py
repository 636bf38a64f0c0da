"""What a pass rests on, in a few words a claim; see ``precision_debug.claims``."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Text, Wording

__all__ = ["CLAIMS", "CLAIM_NAME"]

CLAIMS: Mapping[str, Wording] = {
    "ran_as_asked": Wording(
        "{target} and {baseline} ran as asked", "{target} 与 {baseline} 均按要求运行"
    ),
    "outputs_compared": Wording(
        "{outputs} final {outputs:output|outputs} compared", "已比较 {outputs} 个最终输出"
    ),
    "outputs_compared_function": Wording("the outputs judged by your function", "输出由您的函数判定"),
    "outputs_compared_hooks": Wording(
        "what the hooks were shown, outputs or not", "钩子所见的张量，不分是否为输出"
    ),
    "outputs_finite": Wording("no NaN or Inf that both sides share", "没有两侧共有的 NaN 或 Inf"),
    "outputs_finite_equal_nan": Wording("NaN in the same places is allowed", "允许两侧同一位置的 NaN"),
    "outputs_finite_allowed": Wording(
        "NaN and Inf in the same places are allowed", "允许两侧同一位置的 NaN 与 Inf"
    ),
    "tensors_seen": Wording(
        "{share} of the expected tensors compared ({compared})", "应比较的张量已比较 {share}（{compared} 个）"
    ),
    "all_read": Wording("all that was given was read", "给出的内容均已读取"),
    "all_read_samples": Wording("{read} of {given} samples read", "已读取 {given} 个样本中的 {read} 个"),
    "unchanged_same": Wording("what was stored is of the model that is here", "所存内容与此处的模型相符"),
    "unchanged_unknown": Wording(
        "whether the model of what was stored changed since is unknown", "所存内容对应的模型此后是否改变未知"
    ),
    "unseen_inputs_tried": Wording(
        "{count} {count:input|inputs} that did not calibrate, off by up to {there}",
        "{count} 个未参与校准的输入，误差至多 {there}",
    ),
    "metric": Wording("your metric `{name}`, {baseline} and {target}", "您的指标 `{name}`：{baseline} 与 {target}"),
    "metric_given": Wording(
        "your metric `{name}`, {baseline} and {target}, with at most {bound} lost",
        "您的指标 `{name}`：{baseline} 与 {target}，最多变差 {bound}",
    ),
    "criterion_metric": Wording("your metric, which may lose {bound}", "您的指标，最多变差 {bound}"),
    "criterion_given": Wording("your tolerance, atol {atol}, rtol {rtol}", "您的容差 atol {atol}、rtol {rtol}"),
    "criterion_derived": Wording(
        "a bound of {allowed}, measured for this model", "为该模型测得的界限 {allowed}"
    ),
    "criterion_usual": Wording(
        "the usual bound of {mode}, not measured for this model", "{mode} 的通常界限，未针对该模型测量"
    ),
    "criterion_function": Wording("your function", "您的函数"),
    "criterion_asserted": Wording("the test's thresholds or golden report", "测试的阈值或基准报告"),
}
"""Claims by their code, or by it and the kind that stands in their evidence."""

CLAIM_NAME: Mapping[str, Text] = {
    "metric": Text("Your metric gets no worse", "您的指标没有变差"),
    "ran_as_asked": Text("Both sides ran as asked", "两侧按要求运行"),
    "outputs_compared": Text("Every final output was compared", "每个最终输出都已比较"),
    "outputs_finite": Text("The outputs are numbers", "输出均为有限数值"),
    "tensors_seen": Text("Enough of the tensors was compared", "比较了足够多的张量"),
    "all_read": Text("All that was given was read", "给出的内容均已读取"),
    "unchanged": Text("Both sides are what they were when anything of them was stored", "两侧与存储时一致"),
    "unseen_inputs": Text("Inputs that did not calibrate give no larger error", "未参与校准的输入误差不更大"),
    "criterion": Text("What decides is known", "判定标准已知"),
    "within": Text("Nothing that decides is beyond it", "起决定作用的均未超出"),
    "repeatable": Text("Another run gives the same", "再次运行结果相同"),
    "ended": Text("The run came to its end", "运行完整结束"),
}
"""What each claim says."""
