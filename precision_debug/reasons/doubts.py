"""Why a report in which nothing is out of tolerance may still prove little."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["DOUBTS"]

_MODE = "See the run's notes and the Real Precision column; another mode or device may really run in that precision."

_METRIC = "Say with --metric_drop how much worse it may get; search --metric finds what to keep so that it does not."

_ON_OTHERS = (
    "The target was calibrated on the very input that it is judged on, and is off by {here} there (Rel L2), but"
    " by up to {there} on {count} other {count:input|inputs}"
)
_ON_OTHERS_ZH = "目标正是以所判断的输入校准的，其误差在那里为 {here}（相对 L2），但在另外 {count} 个输入上达 {there}"

DOUBTS: Mapping[str, Wording] = {
    "metric_beyond": Wording(
        "Your metric `{name}` goes from {baseline} to {target} ({samples} {samples:sample|samples}): by more than the"
        " {bound} that it may get worse.",
        "您的指标 `{name}` 由 {baseline} 变为 {target}（{samples} 个样本），变差超过所允许的 {bound}。", _METRIC,
    ),
    "metric_fell": Wording(
        "Your metric `{name}` goes from {baseline} to {target}: worse by {low} to {high} however the {samples}"
        " {samples:sample is|samples are} drawn, which is no chance.",
        "您的指标 `{name}` 由 {baseline} 变为 {target}：对 {samples} 个样本重采样，均变差 {low} 至 {high}，并非偶然。",
        _METRIC,
    ),
    "metric_fell_alone": Wording(
        "Your metric `{name}` goes from {baseline} to {target} ({samples} {samples:sample|samples}): by more than the"
        " target's arithmetic explains.",
        "您的指标 `{name}` 由 {baseline} 变为 {target}（{samples} 个样本），超出目标运算所能解释的范围。", _METRIC,
    ),
    "metric_no_number": Wording(
        "Your metric `{name}` gives no finite number for the baseline, so whether it gets worse is unknown.",
        "您的指标 `{name}` 对基线不给出有限数值，因此无法判断其是否变差。",
        "Check the metric, its labels and the inputs.",
    ),
    "nothing_seen": Wording("No tensor was seen.", "没有得到任何张量。", "Check how the run ended."),
    "nothing_compared": Wording(
        "No tensor could be compared; the reasons are below.", "没有张量可以比较，原因见下。",
        "Read the reasons of the rows, and pair names with --rename.",
    ),
    "off_on_others": Wording(
        _ON_OTHERS + "; calibrated on these too, by {anew} there.",
        _ON_OTHERS_ZH + "；若也以它们校准，则为 {anew}。",
        "Calibrate on more inputs, all of them like those in use, and use others to judge.",
    ),
    "off_on_others_kept": Wording(
        _ON_OTHERS + "; calibrated on these too, still by {anew}."
        " With {kept} {kept:operator|operators} left out, by {after}: {option}.",
        _ON_OTHERS_ZH + "；即使也以它们校准，仍为 {anew}。将 {kept} 个算子排除在外后为 {after}：{option}。",
        "Leave these operators out: more inputs to calibrate on do not help.",
    ),
    "off_on_others_anyway": Wording(
        _ON_OTHERS + "; calibrated on these too, still by {anew}.",
        _ON_OTHERS_ZH + "；即使也以它们校准，仍为 {anew}。",
        "Compare on such inputs (--inputs): the calibration is not what they lack.",
    ),
    "off_on_others_untried": Wording(
        _ON_OTHERS + ".",
        _ON_OTHERS_ZH + "。",
        "Compare on such inputs (--inputs), and let others calibrate.",
    ),
    "only_calibrated": Wording(
        "The target was calibrated on all that it was judged on, and there was nothing else to run it on.",
        "目标正是以所判断的全部输入校准的，没有其他输入可供运行。",
        "Give more inputs: part of them calibrates, and the rest judges.",
    ),
    "output_not_compared": Wording(
        "Final outputs not compared: {names}.", "未比较的最终输出：{names}。", "Pair them with --rename."
    ),
    "output_not_returned": Wording(
        "Final outputs of the baseline that the target holds inside and does not return: {names}.",
        "基线的最终输出中，目标仅在内部计算而不返回的：{names}。",
        "Declare it as an output of the target's file too, or take it out of the baseline's.",
    ),
    "output_of_other_kind": Wording(
        "The final output {name} is {base} in the baseline and {target} in the target: another type is another output,"
        " however close its numbers are.",
        "最终输出 {name} 在基线中为 {base}，在目标中为 {target}：类型不同即为不同的输出，无论数值多么接近。",
        "Give both the same type, or judge them by a function of yours with --compare.",
    ),
    "output_no_gradient": Wording(
        "{names}: the target's parameter requires no gradient, or the loss does not depend on it, so that was not"
        " compared.",
        "{names}：目标侧的参数不要求梯度，或损失不依赖于它，因此未比较。",
        "Check requires_grad, and whether a detach() or no_grad() lies between the parameter and the loss.",
    ),
    "output_hidden": Wording(
        "The final output {name} {reason}, so whether it is right is unknown. Use a tolerance that fits it, such as"
        " --atol {atol}.",
        "最终输出 {name}：{reason}，因此无法判断是否正确。请给出合适的容差，例如 --atol {atol}。",
        "Use the --atol that the sentence suggests.",
    ),
    "output_empty": Wording(
        "The final output {name} is empty on both sides, so nothing was compared. Use an input for which it is not"
        " empty.",
        "最终输出 {name} 在两侧都没有元素，没有比较任何内容。请换一个能产生结果的输入。", "Use real --inputs.",
    ),
    "outputs_not_judged": Wording(
        "Your function did not judge these final outputs: {names}.", "您的函数未判断这些最终输出：{names}。",
        "Let the function judge every output by its name, or all at once with true or false.",
    ),
    "outputs_tell_nothing": Wording(
        "Every element of every final output is 0, NaN or Inf on both sides, as it would be of many a wrong model.",
        "所有最终输出的每个元素在两侧都是 0、NaN 或 Inf，许多错误的模型也会如此。",
        "Use an input on which the model gives other numbers.",
    ),
    "outputs_below_a_step": Wording(
        "Every probability of {names} is below half a step of its own scale ({step}), so that the target holds 0, as it"
        " would of many a wrong model.",
        "{names} 的所有概率都不到其自身量化步长（{step}）的一半，目标侧因而全为 0，许多错误的模型也会如此。",
        "Use an input on which the model gives larger probabilities.",
    ),
    "inputs_all_zero": Wording(
        "All that was fed is 0, so that no weight that is multiplied by an input was tried: {names}.",
        "所有输入全为 0，与输入相乘的权重均未得到检验：{names}。", "Use inputs like those in use.",
    ),
    "outputs_left_out": Wording(
        "No output was judged: --without_outputs leaves the final outputs out.",
        "没有判定任何输出：--without_outputs 不比较最终输出。", "Leave --without_outputs out.",
    ),
    "no_output_known": Wording(
        "No output was judged: neither side says which of its tensors are final.",
        "没有判定任何输出：两侧都未说明哪些张量是最终输出。", "Compare runs whose final outputs are known.",
    ),
    "output_non_finite": Wording(
        "The final output {name} holds NaN or Inf on both sides ({count} of {elements}"
        " {elements:element|elements}), and {op_type} `{by}` is the first to make them: nothing is proven of those.",
        "最终输出 {name} 在两侧都含有 NaN 或 Inf（{elements} 个元素中的 {count} 个），最先产生它们的是"
        " {op_type} `{by}`：这些元素未得到任何证明。",
        "Look at that operator's inputs; where such values are right, use --allow_non_finite.",
    ),
    "output_non_finite_fed": Wording(
        "Input `{by}` itself holds NaN or Inf, and so does the final output {name} on both sides ({count} of {elements}"
        " {elements:element|elements}): nothing is proven of those.",
        "输入 `{by}` 本身含有 NaN 或 Inf，最终输出 {name} 在两侧也因此含有（{elements} 个元素中的 {count} 个）："
        "这些元素未得到任何证明。",
        "Check what is fed; where such values are right, use --allow_non_finite.",
    ),
    "iterations_unread": Wording(
        "{file} holds {count} {count:iteration|iterations}, and only {read} {read:was|were} compared: nothing is known"
        " of the others.",
        "{file} 含有 {count} 次迭代，只比较了 {read} 次：其余未知。",
        "Give the inputs of all of them, or choose one with --sample N.",
    ),
    "samples_unread": Wording(
        "{count} {count:sample was|samples were} to be compared, and only {read} {read:was|were}: nothing is known of"
        " the others.",
        "应比较 {count} 个样本，只比较了 {read} 个：其余未知。",
        "Compare them without --record, or choose one with --sample N.",
    ),
    "inputs_unknown": Wording(
        "Nothing says what both sides were fed.", "没有记录两侧的输入。", "Run the comparison again."
    ),
    "files_unread": Wording(
        "{count} {count:file|files} of the dump could not be read (the first is {file}: {why}): nothing is known of"
        " what {count:it holds|they hold}.",
        "转储中有 {count} 个文件无法读取（第一个为 {file}：{why}）：其中内容未知。",
        "Save them in a form that can be read, or move them out of the folder.",
    ),
    "model_changed": Wording(
        "{what} was made of {file} as it was {when}, and that file is another one now: nothing is proven of the model"
        " that is here.",
        "{what} 由 {file} 在 {when} 时的内容得到，而该文件现已不同：对此处的模型未证明任何内容。",
        "Make it again from the model that is here, or give the model that it was made from.",
    ),
    "draws_numbers": Wording(
        "{mode} draws random numbers without a seed ({detail}): both runs were seeded alike here, and another run gives"
        " something else.",
        "{mode} 使用未设种子的随机数（{detail}）：此处两侧的种子相同，再次运行会得到不同结果。",
        "Give the operators a seed, or compare what lies before them.",
    ),
    "differs_from_itself": Wording(
        "{mode} does not give the same twice on one input: {name} is {between} apart (Rel L2).",
        "{mode} 对同一输入两次运行的结果不同：{name} 相差 {between}（相对 L2）。",
        "Find what draws numbers, or keeps something from one run for the next; --run_once leaves this out.",
    ),
    "fails_again": Wording(
        "{mode} does not run a second time on one input: {detail}.", "{mode} 无法对同一输入再次运行：{detail}。",
        "See why the second run fails; --run_once leaves it out.",
    ),
    "run_once": Wording(
        "Each side was run only once (--run_once): whether another run gives the same is unknown.",
        "各侧只运行了一次（--run_once）：再次运行的结果是否相同未知。", "Leave --run_once out.", decides=False,
    ),
    "search_unfinished": Wording(
        "No set was verified before the search ended ({sets} {sets:set|sets} run).",
        "搜索结束前没有经验证的集合（运行了 {sets} 个）。",
        "Repeat the command, which goes on, with more --runs or --seconds.",
    ),
    "handed_over_unrun": Wording(
        "None of the {count} {count:artefact|artefacts} could be run here, so whether they hold is unknown.",
        "{count} 项产物均未能在此运行，是否成立未知。", "Run them where they can run, and compare.",
    ),
    "training_no_gradient": Wording(
        "No parameter had a gradient other than 0 in {steps} logged {steps:step|steps}: nothing was learnt, or nothing"
        " of it was logged.",
        "在保存的 {steps} 个步中，没有任何参数有非零的梯度：没有学到任何东西，或没有保存。",
        "Check requires_grad, and that the backward pass runs before the optimiser's step.",
    ),
    "training_few_steps": Wording(
        "{steps} logged {steps:step is|steps are} too few for a band.", "保存的 {steps} 个步不足以得出范围。",
        "Log more steps (training(every=N)).",
    ),
    "training_ranks_missing": Wording(
        "Of {ranks} ranks only {here} {here:is|are} here: the reduction was not checked.",
        "{ranks} 个 rank 中只有 {here} 个的文件：未检查归约。", "Copy the files of every rank into one folder.",
    ),
    "golden_missing": Wording(
        "There is no golden report {file}, so nothing says what would be worse.",
        "没有基准报告 {file}，因此无从判断何为变差。", "Write it with --precision_golden write.",
    ),
    "golden_worse": Wording(
        "Worse than the golden report: {worse}.", "比基准报告差：{worse}。", "See what changed since it was written."
    ),
    "threshold_exceeded": Wording(
        "Beyond the test's thresholds: {over}.", "超出测试的阈值：{over}。", "See the rows of these tensors."
    ),
    "threshold_unmatched": Wording(
        "Nothing falls under the test's thresholds for {names}.", "没有任何内容符合测试的阈值 {names}。",
        "Correct the names: a threshold that no tensor falls under judges nothing.",
    ),
    "stopped_early": Wording(
        "The run stopped at its first failure (--fail_fast): what comes after it was not compared.",
        "运行在首个失败处停止（--fail_fast）：其后未比较。", "Leave --fail_fast out.",
    ),
    "ended_early": Wording("The run ended early: {why}.", "运行提前结束：{why}。", "See why it ended."),
    "nothing_decided": Wording(
        "None of the {compared} compared {compared:tensor|tensors} could be judged by this tolerance.",
        "比较的 {compared} 个张量中没有一个能用该容差判定。", "Use a smaller --atol.",
    ),
    "few_compared": Wording(
        "Only {share} of the expected tensors were compared ({compared}). {lost} of the baseline's tensors have no"
        " partner although the target has at least as many unpaired ones, and {hidden} could not be seen: check the"
        " names on both sides, and pair them with --rename.",
        "应比较的张量只比较了 {share}（{compared} 个）。基线有 {lost} 个张量缺失，而目标至少有同样多的张量没有配对，"
        "另有 {hidden} 个无法取得：请对照两侧的名字，用 --rename 配对。",
        "Pair names with --rename.",
    ),
    "few_seen": Wording(
        "Only {share} of the expected tensors were compared ({compared}): {hidden} could not be seen (their rows say"
        " why), and nothing is known about those.",
        "应比较的张量只比较了 {share}（{compared} 个）：{hidden} 个无法取得，原因见各行；这些张量的情况未知。",
        "Rely on the final outputs.",
    ),
    "few_compared_inside": Wording(
        "Every output was compared, but only {share} of the expected tensors before them ({compared}): {lost} of the"
        " baseline's tensors have no partner although the target has at least as many unpaired ones, and {hidden}"
        " could not be seen. That makes the culprits less certain; --rename pairs names.",
        "所有输出均已比较，但其之前应比较的张量只比较了 {share}（{compared} 个）：基线有 {lost} 个"
        "张量缺失，而目标至少有同样多的张量没有配对，另有 {hidden} 个无法取得。因此误差的归因不那么确定；"
        "可用 --rename 配对名字。",
        "Pair names with --rename.", decides=False,
    ),
    "few_seen_inside": Wording(
        "Every output was compared, but only {share} of the expected tensors before them ({compared}): {hidden} could"
        " not be seen (their rows say why). That makes the culprits less certain.",
        "所有输出均已比较，但其之前应比较的张量只比较了 {share}（{compared} 个）：{hidden} 个无法取得，原因见各行。"
        "因此误差的归因不那么确定。",
        "Rely on the final outputs.", decides=False,
    ),
    "precision_unseen": Wording(
        "{mode} shows no trace of {precision}: the largest Rel L2 of any tensor is {error}, while a single rounding"
        " leaves about {rounding}. Most likely nothing ran in {precision}.",
        "{mode} 没有留下 {precision} 的痕迹：各张量的相对 L2 误差最大为 {error}，而仅一次舍入就约为 {rounding}。"
        "很可能没有任何部分以 {precision} 运行。",
        _MODE,
    ),
    "sum_overflows": Wording(
        "{op} `{name}` may overflow inside: its sum of {terms} terms reaches {total}, above float16's maximum of"
        " 65504, although its result fits; the type in which the target sums is unknown.",
        "{op} `{name}` 内部可能上溢：{terms} 项之和达到 {total}，而 float16 最大为 65504，尽管其结果未超出；"
        "目标以何种类型累加无从得知。", "Keep the operator in FP32, or scale its inputs down first.",
    ),
    "put_in_evaluation": Wording(
        "The factory returns its module in training mode, and it was put into evaluation mode, which changes the"
        " results of {names}.",
        "工厂函数返回的模块处于训练模式，而此处已将其置于评估模式，{names} 的计算因此不同。",
        "Call .eval() in the factory, or use --option training=1 to run it as it is.",
    ),
    "precision_not_run": Wording(
        "Nothing ran in {precision}: {detail}.", "没有任何部分以 {precision} 运行：{detail}。", _MODE
    ),
    "none_of": Wording(
        "none of the operators computes in it", "没有一个算子以它计算", _MODE, decides=False
    ),
    "providers_unknown": Wording(
        "Which nodes {provider} took is unknown: {detail}.", "{provider} 接管了哪些节点无从得知：{detail}。", _MODE
    ),
    "not_fp32": Wording(
        "{mode} is not FP32 here: the model itself contains {detail}.",
        "{mode} 在此并非 FP32：模型自身带有 {detail}。",
        "Compare with a model that has not been converted or quantised.", decides=False,
    ),
}  # fmt: skip
