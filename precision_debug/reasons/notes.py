"""What the reader of a report must know of a run: how it came about, and what was chosen for it."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["NOTES", "STAGES"]

_RANGE = "Give --val_range NAME:LOW,HIGH, or real --inputs."
_ALL = "Leave marks out to compare every tensor."
_EXPORT = "Export the model again, or compare with the checkpoint that it was made of."
_ORDER = "Look at the row that the sentence names first; see also the culprits."

NOTES: Mapping[str, Wording] = {
    # another tool's tensors
    "dump_paired": Wording(
        "{path}: {count} of its {all} tensors are paired with the model's; {missing} of the model's are not in it"
        " (written by: {layout}).",
        "{path}：其 {all} 个张量中有 {count} 个与模型的张量配对；模型有 {missing} 个张量不在其中"
        "（写入工具：{layout}）。",
        "`precision_debug dumps DIR --model_file M` lists the pairs.",
    ),
    "dump_left": Wording(
        "{count} of the dump's tensors are none of the model's: {some}.",
        "导出中有 {count} 个张量不是模型的张量：{some}。", "`precision_debug dumps` says why of each.",
    ),
    "dump_skipped": Wording(
        "{count} of the dump's files were not read, {file} among them: {why}.",
        "导出中有 {count} 个文件未读取，其中 {file}：{why}。", "Give a tensors.json beside them.",
    ),
    "dump_precision": Wording(
        "The dump's values are those of {precision}: that is taken for what the tool computed in.",
        "导出的数值是 {precision} 的取值：据此视为该工具的计算精度。", "Give --atol and --rtol where it is not.",
    ),
    # what else was asked, or was not
    "same_kernels": Wording(
        "Both sides run the same engine's kernels of {types}: what these compute wrongly alike is not seen here."
        " --second_opinion asks other implementations.",
        "两侧运行同一引擎的 {types} 内核：它们同样算错之处在此看不出。--second_opinion 会询问其他实现。",
        "Give --second_opinion.",
    ),
    "second_opinion": Wording(
        "Second opinion: {count} operator types ({types}) were computed once more by {by}; the baseline's engine is"
        " alone with its result in {wrong}.",
        "第二意见：{count} 种算子（{types}）由 {by} 再算一次；基线引擎的结果有 {wrong} 处与众不同。",
        "Nothing, where that is 0.",
    ),
    "sum_may_overflow": Wording(
        "{op} `{name}` may overflow inside where the target sums in float16: the sizes of its {terms} terms add up to"
        " {most:.4g}, and their rounding to {lost:.2g} of that at most.",
        "若目标以 float16 累加，{op} `{name}` 内部可能上溢：其 {terms} 项的绝对值之和为 {most:.4g}，舍入误差至多为其"
        " {lost:.2g}。", "Keep the operator in FP32, or scale its inputs down first.",
    ),
    "no_second_opinion": Wording(
        "No second opinion: only operators of .onnx files are run by other engines.",
        "没有第二意见：只有 .onnx 文件的算子能由其他引擎运行。", "Export the model to ONNX for it.",
    ),
    "no_other_engine": Wording(
        "No second opinion: no other implementation runs here.", "没有第二意见：此处没有其他可运行的实现。",
        "Install onnx or openvino.",
    ),
    # what is in the table
    "hooks_only": Wording(
        "Both sides were shown by hooks in a script; the model's outputs are not known to the report.",
        "两侧均由脚本中的 hook 观测；报告不知道哪些是模型输出。", "Use precision_debug.watch, or the command line.",
    ),
    "norms_folded": Wording(
        "{count} batch norms of the baseline are not batch norms of the target ({some}): where they were folded into"
        " the weights of the convolution before, that one's tensor is another one under its old name."
        " precision_debug.watch(config) leaves such tensors out.",
        "基线的 {count} 个 batch norm 在目标中不再是 batch norm（{some}）：若已折叠进前一个卷积的权重，该卷积的张量"
        "虽同名却已不同。precision_debug.watch(config) 会略去这些张量。", "Use precision_debug.watch(config).",
    ),
    "not_marked": Wording(
        "{count} of {all} baseline tensors were not marked and are not in the table.",
        "基线 {all} 个张量中有 {count} 个未被标记，不在表中。", _ALL,
    ),
    "not_marked_nor": Wording(
        "{count} of {all} baseline tensors were not marked and are not in the table, nor are {alone} that only the"
        " target has.",
        "基线 {all} 个张量中有 {count} 个未被标记，不在表中；仅目标有的 {alone} 个也不在表中。", _ALL,
    ),
    "only_target_left_out": Wording(
        "{alone} tensors that only the target has are not in the table: marks name the baseline's.",
        "仅目标有的 {alone} 个张量不在表中：标记针对的是基线的张量。", _ALL,
    ),
    "own_steps": Wording(
        "{count} tensors are not in the table: the target's engine made them inside operators of the model ({some}),"
        " whose results are.",
        "{count} 个张量不在表中：它们由目标引擎在模型算子内部产生（{some}），这些算子的结果在表中。",
        "Nothing: compare with a run of the same engine to see them.",
    ),
    "other_name": Wording(
        "{name} has this name because the usual one belongs to something else.",
        "{name} 使用此名，是因为惯用的名字已属于别的文件。", "Write the report into a folder of its own.",
    ),
    "fail_fast": Wording(
        "Stopped at {name}, the first tensor that failed (--fail_fast): what comes after it was not compared.",
        "在首个未通过的张量 {name} 处停止（--fail_fast），其后的张量没有比较。", "Leave --fail_fast out.",
    ),
    "fail_fast_sample": Wording(
        "Stopped after sample {sample}, the first one that failed (--fail_fast).",
        "在首个未通过的样本 {sample} 之后停止（--fail_fast）。", "Leave --fail_fast out.",
    ),
    "validated_alone": Wording(
        "One run was validated, and compared with nothing: a row fails where it has a NaN or an infinity.",
        "只检查了一次运行，没有与任何基线比较：含 NaN 或无穷的行即为未通过。", "Give a --baseline to compare.",
    ),
    "samples": Wording(
        "{count} samples were compared: each row is one tensor over all of them. Worst by its outputs: {worst}; "
        "--sample NUMBER runs one alone.",
        "共比较 {count} 个样本：每行为一个张量在全部样本上的结果。按输出最差的样本：{worst}；"
        "--sample 编号 可单独运行。",
    ),
    "saved_of_sample": Wording(
        "The tensors that --save_tensors kept are those of sample {sample}, the worst.",
        "--save_tensors 保存的是误差最大的样本 {sample} 的张量。",
        "Run another one alone with --sample NUMBER.",
    ),
    "one_recorded": Wording(
        "{count} samples were given; the first one is recorded.", "共给出 {count} 个样本；仅录制第一个。",
        "Record another one with --sample NUMBER.",
    ),
    "samples_calibrate": Wording(
        "The first {count} of {all} samples calibrate, where the run mode needs that.",
        "{all} 个样本中前 {count} 个用于校准（若运行模式需要）。",
    ),
    "apart": Wording(
        "The two runs went one after the other, since they cannot be side by side: {why}.",
        "两次运行先后进行，因为无法并行：{why}。",
    ),
    "spilled": Wording(
        "{megabytes:.0f} MB of baseline tensors waited on disk, beyond --memory_budget.",
        "基线张量中有 {megabytes:.0f} MB 超出 --memory_budget，暂存于磁盘。", "Raise --memory_budget for speed.",
    ),
    "moved_to_the_host": Wording(
        "{megabytes:.0f} MB of baseline tensors waited in the host's memory, beyond half of what was free on the card.",
        "基线张量中有 {megabytes:.0f} MB 超出显卡空闲显存的一半，暂存于主机内存。",
    ),
    "no_top1": Wording(
        "--top1 or --top_k: no float output of shape [N, classes] that both sides have, so there is no agreement to"
        " show.",
        "--top1 或 --top_k：两侧没有共同的 [N, classes] 形状的浮点输出，因此无法给出一致率。", "Leave it out.",
    ),
    # of this machine
    "c_kernel": Wording(
        "C kernel, {instructions}, {count} {count:thread|threads}", "C 内核，{instructions}，{count} 个线程"
    ),
    "numpy_blocks": Wording("numpy blocks: {why}", "numpy 分块：{why}"),
    # of a search
    "search_wrote_nothing": Wording(
        "{path} was not written: there is no verified set to hand over.", "未写入 {path}：没有经验证的集合可交付。"
    ),
    "only_outputs": Wording(
        "Only outputs were compared on the engine, since showing others builds further engines; the simulation shows"
        " which operators did it.",
        "在引擎上只比较了输出，因为观测其他张量需另建引擎；由模拟指出是哪些算子。",
    ),
    "held_out_used": Wording(
        "{count} inputs that the search did not see at first have told it what an earlier set missed: the answer is"
        " checked on them too, and they are not counted as unseen",
        "最初未见过的 {count} 组输入已告诉搜索先前的集合漏了什么：答案也在其上验证，但不再算作未见过的输入",
    ),
    "not_held_out": Wording(
        "Not checked on other inputs, as there are none: give more with --inputs, or with --held_out.",
        "没有其他输入可供验证：请用 --inputs 或 --held_out 给出更多输入。", "Give --held_out.",
    ),
    "comparison_known": Wording(
        "The comparison was taken from an earlier search of the same model on the same inputs.",
        "对比结果取自此前对同一模型、同一输入的搜索。", "Remove the search's folder to compare anew.",
    ),
    "simulation_blind": Wording(
        "{mode} holds with nothing kept, so that it tells nothing of this engine.",
        "{mode} 不保留任何算子也满足要求，因此无法说明该引擎的情况。",
    ),
    "simulation_unlike": Wording(
        "With nothing kept {mode} is off by {simulated:.3g} (Rel L2) and the engine by {real:.3g}: it is no picture of "
        "this engine, which was asked itself. Most likely few of its layers run in the mode's type.",
        "不保留任何算子时，{mode} 的误差为 {simulated:.3g}（Rel L2），引擎为 {real:.3g}：前者不能代表该引擎，"
        "因此直接在引擎上搜索。很可能引擎中只有少数层以该模式的类型运行。",
    ),
}  # fmt: skip

STAGES: Mapping[str, Wording] = {
    # two engines
    "layers_to": Wording("{before} layers to {after}", "{before} 层变为 {after} 层"),
    "layers_to_copies": Wording(
        "{layers}, format copies {before} to {after}", "{layers}，格式复制由 {before} 个变为 {after} 个"
    ),
    "lost": Wording("{count} lost", "失去 {count}"),
    "lost_first": Wording("{count} lost (first: {name})", "失去 {count}（首个：{name}）"),
    "fusion_kept": Wording(
        "fusion kept: {layers}; {changed} of {common} common layers run another tactic",
        "融合保持：{layers}；{common} 个共有层中有 {changed} 个采用了别的 tactic",
    ),
    "fusion_changed": Wording(
        "fusion changed: {layers}; {kept} kept, {lost}, {added} added; {changed} of {common} common layers run"
        " another"
        " tactic",
        "融合改变：{layers}；保留 {kept}，{lost}，新增 {added}；{common} 个共有层中有 {changed} 个采用了别的 tactic",
    ),
    "and_more": Wording("{names} and {count} more", "{names} 等，另有 {count} 个"),
    "baseline": Wording("baseline", "基线"),
    "target": Wording("target", "目标"),
    "stage_opening": Wording("opening the {side}: {mode}", "打开{side}：{mode}"),
    "stage_running": Wording("running the {side}: {mode}", "运行{side}：{mode}"),
    "stages_together": Wording("{first}, and at the same time {second}", "{first}，同时{second}"),
    "stage_within": Wording("{side}: {what}", "{side}：{what}"),
    "stage_pairing": Wording(
        "pairing both graphs, and looking for what the export has wrong", "配对两侧的图，并查找导出中的错误"
    ),
    "stage_repeating": Wording(
        "building and running the target: {number} of {count}", "构建并运行目标：第 {number} 次，共 {count} 次"
    ),
    "stage_explaining": Wording("explaining: each operator alone", "归因：逐个运行算子"),
    "stage_second_opinion": Wording("asking for a second opinion on each operator", "对每个算子询问第二意见"),
    "stage_trying_fixes": Wording("trying what mends it on the engine", "在引擎上尝试修复"),
    "stage_writing": Wording("writing the report", "正在写入报告"),
    "stage_explaining_worst": Wording("explaining sample {sample}, the worst", "归因：误差最大的样本 {sample}"),
    "stage_set": Wording(
        "set {number}: {count} of {all} kept ({names}) in {mode}",
        "第 {number} 组：{mode} 中保留 {all} 个中的 {count} 个（{names}）",
    ),
    "stage_for": Wording("{stage}, {what}", "{stage}，{what}"),
    "set_held_out": Wording("on {count} other inputs", "用其他 {count} 组输入验证"),
    "set_joined": Wording("with what saves casts", "连同可减少转换的算子"),
    "set_for_trade": Wording("for the table of what each number brings", "用于保留数量与误差的对照表"),
    "stage_attributing": Wording(
        "following the error backwards through the operators", "沿算子反向追踪误差"
    ),
    "stage_comparing": Wording("{mode}: comparing", "{mode}：对比中"),
    "stage_timing": Wording("{mode}: timing", "{mode}：测速中"),
    "stage_handing_over": Wording("handing over: {title}", "移交：{title}"),
}  # fmt: skip
