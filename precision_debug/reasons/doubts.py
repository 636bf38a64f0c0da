"""Why a report in which nothing is out of tolerance may still prove little."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["DOUBTS"]

_MODE = "See the notes of the run and the column of real precision; another mode or device may really do it."

DOUBTS: Mapping[str, Wording] = {
    "nothing_seen": Wording("No tensor was seen.", "没有得到任何张量。", "See how the run ended."),
    "nothing_compared": Wording(
        "No tensor could be compared; the reasons are below.", "没有张量可以比较，原因见下。",
        "Read the reasons of the rows; pair names with --rename.",
    ),
    "output_not_compared": Wording(
        "Final outputs not compared: {names}.", "未比较的最终输出：{names}。", "Pair them with --rename."
    ),
    "output_hidden": Wording(
        "The final output {name} {reason}: whether it is right is not known. Give a tolerance that fits it, such as"
        " --atol {atol}.",
        "最终输出 {name}：{reason}，因此无法判断是否正确。请给出合适的容差，例如 --atol {atol}。",
        "Give the --atol that the sentence names.",
    ),
    "output_empty": Wording(
        "The final output {name} has no element on either side: nothing of it was compared. Give an input that fills"
        " it.",
        "最终输出 {name} 在两侧都没有元素，没有比较任何内容。请换一个能产生结果的输入。", "Give real --inputs.",
    ),
    "nothing_decided": Wording(
        "Of {compared} compared tensors not one could be judged by this tolerance.",
        "比较的 {compared} 个张量中没有一个能用该容差判定。", "Give a smaller --atol.",
    ),
    "few_compared": Wording(
        "Only {share} of the tensors to be expected were compared ({compared}). {lost} of the baseline are missing"
        " while the target has at least as many that nothing was paired with, and {hidden} could not be seen: look at"
        " the names of both sides, and pair them with --rename.",
        "应比较的张量只比较了 {share}（{compared} 个）。基线有 {lost} 个张量缺失，而目标至少有同样多的张量没有配对，"
        "另有 {hidden} 个无法取得：请对照两侧的名字，用 --rename 配对。",
        "Pair names with --rename.",
    ),
    "few_seen": Wording(
        "Only {share} of the tensors to be expected were compared ({compared}): {hidden} could not be seen, and their"
        " rows say why; nothing is known of those.",
        "应比较的张量只比较了 {share}（{compared} 个）：{hidden} 个无法取得，原因见各行；这些张量的情况未知。",
        "Go by the final outputs.",
    ),
    "few_compared_inside": Wording(
        "Every output was compared, but only {share} of the tensors to be expected before them ({compared}): {lost} of"
        " the baseline are missing while the target has at least as many that nothing was paired with, and {hidden}"
        " could not be seen. Who made an error is less certain for it; --rename pairs names.",
        "所有输出均已比较，但其之前应比较的张量只比较了 {share}（{compared} 个）：基线有 {lost} 个"
        "张量缺失，而目标至少有同样多的张量没有配对，另有 {hidden} 个无法取得。因此误差的归因不那么确定；"
        "可用 --rename 配对名字。",
        "Pair names with --rename.", decides=False,
    ),
    "few_seen_inside": Wording(
        "Every output was compared, but only {share} of the tensors to be expected before them ({compared}): {hidden}"
        " could not be seen, and their rows say why. Who made an error is less certain for it.",
        "所有输出均已比较，但其之前应比较的张量只比较了 {share}（{compared} 个）：{hidden} 个无法取得，原因见各行。"
        "因此误差的归因不那么确定。",
        "Go by the final outputs.", decides=False,
    ),
    "precision_unseen": Wording(
        "{mode} left no trace of {precision}: the largest Rel L2 of a tensor is {error}, and one rounding alone"
        " leaves"
        " about {rounding}. Most likely nothing ran in {precision}.",
        "{mode} 没有留下 {precision} 的痕迹：各张量的相对 L2 误差最大为 {error}，而仅一次舍入就约为 {rounding}。"
        "很可能没有任何部分以 {precision} 运行。",
        _MODE,
    ),
    "sum_overflows": Wording(
        "{op} `{name}` may overflow inside: its sum of {terms} terms reaches {total}, where float16 ends at 65504,"
        " though its result fits; nobody knows in which type the target sums.",
        "{op} `{name}` 内部可能上溢：{terms} 项之和达到 {total}，而 float16 最大为 65504，尽管其结果未超出；"
        "目标以何种类型累加无从得知。", "Keep the operator in FP32, or scale its inputs down first.",
    ),
    "precision_not_run": Wording(
        "Nothing ran in {precision}: {detail}.", "没有任何部分以 {precision} 运行：{detail}。", _MODE
    ),
    "providers_unknown": Wording(
        "Which nodes {provider} took is not known: {detail}.", "{provider} 接管了哪些节点无从得知：{detail}。", _MODE
    ),
    "not_fp32": Wording(
        "{mode} is not FP32 here: the model itself brings {detail}.",
        "{mode} 在此并非 FP32：模型自身带有 {detail}。",
        "Compare with a model that was not converted or quantised.", decides=False,
    ),
}  # fmt: skip
