"""What the reader of a report must know of a run: how it came about, and what was chosen for it."""

from __future__ import annotations

from collections.abc import Mapping

from .reason import Wording

__all__ = ["NOTES", "STAGES"]

_RANGE = "Use --val_range NAME:LOW,HIGH, or real --inputs."
_ALL = "Remove the marks to compare every tensor."
_EXPORT = "Export the model again, or compare with the checkpoint that it was exported from."
_ORDER = "See the row that the sentence names first, and the culprits."

NOTES: Mapping[str, Wording] = {
    "beside_float64": Wording(
        "the outputs of {target} are off from those of {baseline} by {apart:.4g} (Rel L2); against the same model in"
        " float64, {baseline} is off by {exact_base:.4g} and {target} by {exact_target:.4g}",
        "{target} 与 {baseline} 的输出相差 {apart:.4g}（相对 L2）；与同一模型的 float64 相比，{baseline} 相差"
        " {exact_base:.4g}，{target} 相差 {exact_target:.4g}",
    ),
    # of a training step
    "step_forward": Wording(
        "only the forward pass was compared: --step backward also compares the gradients, --step optimiser the update",
        "只对比了前向：--step backward 会同时对比梯度，--step optimiser 还会对比参数更新",
        "Use --step backward or --step optimiser.",
    ),
    "step_phases": Wording(
        "a training step up to its {phase} phase, with the module in its own training mode",
        "训练步，运行到 {phase} 阶段，模块保持其训练模式",
    ),
    "step_autocast": Wording("autocast covers forward and loss, not backward", "autocast 覆盖前向与损失，不含反向"),
    "step_memory": Wording(
        "running a step up to its {phase} phase: gradients, updates and the optimiser's states, where there are any,"
        " take about {size} on each side, beside the model and what backward keeps of forward",
        "运行训练步（到 {phase} 阶段）：除模型与反向所需的前向张量外，梯度、更新量与优化器状态在每一侧约占 {size}",
    ),
    "step_scale": Wording(
        "the loss is multiplied by {scale} on both sides, as GradScaler does, and with it every row of the backward"
        " pass; the outputs `gradient/…` are unscaled",
        "两侧的损失都如 GradScaler 那样乘以 {scale}，反向各行也随之放大；输出 `gradient/…` 已还原",
    ),
    "step_skipped": Wording(
        "GradScaler found NaN or Inf in a gradient and skipped the optimiser's step: nothing was updated",
        "GradScaler 在梯度中发现 NaN 或 Inf，跳过了优化器这一步：参数没有更新",
        "Find where the NaN or Inf first appears, or use a smaller --option loss_scale.",
    ),
    # another tool's tensors
    "dump_paired": Wording(
        "{path}{layout}: {count} of its {all} {all:tensor|tensors} {count:was|were} paired with the model's;"
        " {missing} of the model's tensors"
        " are not in it.",
        "{path}{layout}：其 {all} 个张量中有 {count} 个与模型的张量配对；模型有 {missing} 个张量不在其中。",
        "`precision_debug dumps DIR --model_file M` lists the pairs.",
    ),
    "dump_left": Wording(
        "{count} of the dump's tensors do not belong to the model: {some}.",
        "导出中有 {count} 个张量不是模型的张量：{some}。", "`precision_debug dumps` says why for each.",
    ),
    "dump_skipped": Wording(
        "{count} of the dump's files were not read, for example {file}: {why}.",
        "导出中有 {count} 个文件未读取，其中 {file}：{why}。", "Put a tensors.json beside them.",
    ),
    "dump_precision": Wording(
        "The dump's values fit {precision}, which is taken as the precision the tool computed in.",
        "导出的数值是 {precision} 的取值：据此视为该工具的计算精度。", "If that is wrong, use --atol and --rtol.",
    ),
    # what else was asked, or was not
    "same_kernels": Wording(
        "Both sides run the same engine's kernels for {types}, so an error that both share is not seen here."
        " --second_opinion checks other implementations.",
        "两侧运行同一引擎的 {types} 内核，两侧共有的错误在此看不出。--second_opinion 会用其他实现核对。",
        "Use --second_opinion.",
    ),
    "second_opinion": Wording(
        "Second opinion: {count} operator {count:type|types} ({types}) {count:was|were} recomputed by {by}; in"
        " {wrong} of them only the"
        " baseline's engine disagrees.",
        "第二意见：{count} 种算子（{types}）由 {by} 重新计算；其中 {wrong} 种只有基线引擎的结果不同。",
        "Nothing to do if that is 0.",
    ),
    "opinions_differ": Wording(
        "Second opinion: {op} `{name}` is {error:.4g} apart (Rel L2) in {own} and {others}, on the same inputs; no"
        " third implementation agrees with either, so nobody is accused.",
        "第二意见：{op} `{name}` 在 {own} 与 {others} 中以相同输入相差 {error:.4g}（相对 L2）；没有第三种实现与其中之一"
        "一致，因此未作归咎。",
    ),
    "sum_may_overflow": Wording(
        "{op} `{name}` may overflow inside if the target sums in float16: the magnitudes of its {terms} terms add up"
        " to {most:.4g}, and their rounding to at most {lost:.2g} of that.",
        "若目标以 float16 累加，{op} `{name}` 内部可能上溢：其 {terms} 项的绝对值之和为 {most:.4g}，舍入误差至多为其"
        " {lost:.2g}。", "Keep the operator in FP32, or scale its inputs down first.",
    ),
    "decisions_not_looked_at": Wording(
        "Whether decisions that went otherwise (a top-k, an argmax, a threshold) explain the outputs was not looked at:"
        " {detail}. The outputs are judged as numbers.",
        "未能查看各输出的差异是否由不同的判定（top-k、argmax、阈值）造成：{detail}。各输出按数值评判。",
        "Compare with another baseline, or give a tolerance.",
    ),
    "by_threads": Wording(
        "What `{name}` is depends on the number of threads: with {there} in place of {here} it is off by {error:.4g}"
        " (Rel L2), and no output moves.",
        "`{name}` 的结果取决于线程数：以 {there} 个线程代替 {here} 个时相差 {error:.4g}（相对 L2），各输出不变。",
    ),
    "by_threads_to_output": Wording(
        "What `{name}` is depends on the number of threads: with {there} in place of {here} it is off by {error:.4g}"
        " (Rel L2), and the output `{at}` by {moved:.4g}.",
        "`{name}` 的结果取决于线程数：以 {there} 个线程代替 {here} 个时相差 {error:.4g}（相对 L2），输出 `{at}` 相差"
        " {moved:.4g}。",
        "Compare with as many threads as it is deployed with.",
    ),
    "variant_batch": Wording(
        "One sample alone against the same sample as the first of a batch of {count}; of each tensor its own part is"
        " compared.",
        "同一样本单独运行，与其作为 {count} 个样本的批次之首运行对比；每个张量只比较属于它的部分。",
    ),
    "variant_padded": Wording(
        "One sample of length {length} alone against the same with {more} zeros behind it (masks: {masks}); of each"
        " tensor its own part is compared.",
        "长度为 {length} 的同一样本，与其后补 {more} 个零（掩码：{masks}）对比；每个张量只比较属于它的部分。",
    ),
    "no_mask": Wording("none", "无"),
    "no_second_opinion": Wording(
        "No second opinion: other engines can only run operators of .onnx files.",
        "没有第二意见：只有 .onnx 文件的算子能由其他引擎运行。", "Export the model to ONNX.",
    ),
    "no_other_engine": Wording(
        "No second opinion: no other implementation runs here.", "没有第二意见：此处没有其他可运行的实现。",
        "Install onnx or openvino.",
    ),
    # what is in the table
    "hooks_only": Wording(
        "Both sides were observed by hooks in a script; the report does not know which tensors are the model's"
        " outputs.",
        "两侧均由脚本中的 hook 观测；报告不知道哪些是模型输出。", "Use precision_debug.watch, or the command line.",
    ),
    "norms_folded": Wording(
        "{count} batch norms of the baseline are no longer batch norms in the target ({some}): if one was folded into"
        " the preceding convolution, that convolution's tensor has the same name but other values."
        " precision_debug.watch(config) leaves such tensors out.",
        "基线的 {count} 个 batch norm 在目标中不再是 batch norm（{some}）：若已折叠进前一个卷积的权重，该卷积的张量"
        "虽同名却已不同。precision_debug.watch(config) 会略去这些张量。", "Use precision_debug.watch(config).",
    ),
    "not_marked": Wording(
        "{count} of {all} baseline {all:tensor|tensors} {count:was|were} not marked and are not in the table.",
        "基线 {all} 个张量中有 {count} 个未被标记，不在表中。", _ALL,
    ),
    "not_marked_nor": Wording(
        "{count} of {all} baseline {all:tensor|tensors} {count:was|were} not marked and are not in the table,"
        " nor are {alone} that only the"
        " target has.",
        "基线 {all} 个张量中有 {count} 个未被标记，不在表中；仅目标有的 {alone} 个也不在表中。", _ALL,
    ),
    "only_target_left_out": Wording(
        "{alone} {alone:tensor|tensors} that only the target has {alone:is|are} not in the table: marks name the"
        " baseline's.",
        "仅目标有的 {alone} 个张量不在表中：标记针对的是基线的张量。", _ALL,
    ),
    "own_steps": Wording(
        "{count} {count:tensor is|tensors are} not in the table: the target's engine produced them inside"
        " operators of the model"
        " ({some}), whose results are in the table.",
        "{count} 个张量不在表中：它们由目标引擎在模型算子内部产生（{some}），这些算子的结果在表中。",
        "Nothing to do; to see them, compare with a run of the same engine.",
    ),
    "other_name": Wording(
        "{name} has this name because the usual one is taken by another file.",
        "{name} 使用此名，是因为惯用的名字已属于别的文件。", "Write the report to a separate folder.",
    ),
    "fail_fast": Wording(
        "Stopped at {name}, the first tensor that failed (--fail_fast): later tensors were not compared.",
        "在首个未通过的张量 {name} 处停止（--fail_fast），其后的张量没有比较。", "Remove --fail_fast.",
    ),
    "fail_fast_sample": Wording(
        "Stopped after sample {sample}, the first one that failed (--fail_fast).",
        "在首个未通过的样本 {sample} 之后停止（--fail_fast）。", "Remove --fail_fast.",
    ),
    "validated_alone": Wording(
        "A single run was validated, without a baseline: a row fails if it has a NaN or an infinity.",
        "只检查了一次运行，没有与任何基线比较：含 NaN 或无穷的行即为未通过。", "Use a --baseline to compare.",
    ),
    "samples": Wording(
        "{count} {count:sample was|samples were} compared: each row covers one tensor over all of them. Worst by"
        " its outputs: {worst};"
        " --sample NUMBER runs one alone.",
        "共比较 {count} 个样本：每行为一个张量在全部样本上的结果。按输出最差的样本：{worst}；"
        "--sample 编号 可单独运行。",
    ),
    "saved_of_sample": Wording(
        "--save_tensors kept the tensors of sample {sample}, the worst one.",
        "--save_tensors 保存的是误差最大的样本 {sample} 的张量。",
        "Run another one alone with --sample NUMBER.",
    ),
    "one_recorded": Wording(
        "Of {count} {count:sample|samples}, only the first was recorded.", "共给出 {count} 个样本；仅录制第一个。",
        "Record another one with --sample NUMBER.",
    ),
    "choices_flip": Wording(
        "{op} `{name}` chooses otherwise in {count} of {places} {places:place|places}.",
        "{op} `{name}` 的 {places} 个选择中有 {count} 个与基线不同。",
    ),
    "choices_flip_apart": Wording(
        "{op} `{name}` chooses otherwise in {count} of {places} {places:place|places}: its scores there are"
        " {margin:.3g} apart at"
        " most in the baseline, and off by up to {off:.3g} in the target.",
        "{op} `{name}` 的 {places} 个选择中有 {count} 个与基线不同：这些选择的分数在基线中至多相差 {margin:.3g}，"
        "而在目标中偏差可达 {off:.3g}。",
    ),
    "calibrated_here": Wording(
        "The target was calibrated on what it is judged on, off by {here:.3g} there (Rel L2); on {count} other"
        " {count:input|inputs} by up to {there:.3g}.",
        "目标以所判断的输入校准，其相对 L2 误差为 {here:.3g}；在另外 {count} 个输入上最大为 {there:.3g}。",
    ),
    "part_calibrates": Wording(
        "{count} {count:sample|samples} calibrated the target, and {judged} {judged:other|others} judged it"
        " (--calibration_samples).",
        "目标用 {count} 个样本校准，由另外 {judged} 个样本判断（--calibration_samples）。",
    ),
    "others_calibrate": Wording(
        "{count} {count:sample|samples} calibrated other modes of this sweep, and {judged} {judged:other|others} judged"
        " every mode (--calibration_samples).",
        "本次对比中有其他模式用 {count} 个样本校准，所有模式都由另外 {judged} 个样本判断（--calibration_samples）。",
    ),
    "calibrated_on_all": Wording(
        "All that is judged calibrates then; a part of it did before, and the rest judged. So the calibration is short"
        " of inputs: use more, all of them like those in use, and others to judge.",
        "此时所判断的全部输入都用于校准；此前只有一部分用于校准，其余用于判断。因此缺少的是校准输入：请使用更多与实际"
        "使用相同的输入，并用其他输入判断。",
    ),
    "batch_calibrates": Wording(
        "The first half of the batch calibrated the target; all of it judged it.",
        "目标用该批次的前一半校准，用整个批次判断。",
    ),
    "samples_calibrate": Wording(
        "The first {count} of {all} {all:sample|samples} {count:is|are} used for calibration if the run mode needs it.",
        "{all} 个样本中前 {count} 个用于校准（若运行模式需要）。",
    ),
    "output_padding": Wording(
        "{name} has {count} more along axis {axis} in the {of_target:target|baseline}: padding, as in a constant there."
        " The rest of it was compared.",
        "{name} 在{of_target:目标|基线}中沿轴 {axis} 多出 {count} 个：来自常量中的填充。其余部分已对比。", wider=True,
    ),
    "padding_is_largest": Wording(
        "At {largest} of {places} {places:place|places} the largest number of {name} along axis {axis} is in that"
        " padding.",
        "{name} 在 {places} 处中有 {largest} 处沿轴 {axis} 的最大值位于该填充中。",
        "Leave the padding out before the largest number is chosen, or give it a bias with which it never is.",
        wider=True,
    ),
    "apart": Wording(
        "The two runs ran one after the other, because they cannot run side by side: {why}.",
        "两次运行先后进行，因为无法并行：{why}。",
    ),
    "spilled": Wording(
        "{megabytes:.0f} MB of baseline tensors exceeded --memory_budget and waited on disk.",
        "基线张量中有 {megabytes:.0f} MB 超出 --memory_budget，暂存于磁盘。", "For speed, raise --memory_budget.",
    ),
    "moved_to_the_host": Wording(
        "{megabytes:.0f} MB of baseline tensors exceeded half of the card's free memory and waited in host memory.",
        "基线张量中有 {megabytes:.0f} MB 超出显卡空闲显存的一半，暂存于主机内存。",
    ),
    "no_top1": Wording(
        "--top1 or --top_k: the sides share no float output of shape [N, classes], so there is no agreement to show.",
        "--top1 或 --top_k：两侧没有共同的 [N, classes] 形状的浮点输出，因此无法给出一致率。", "Remove it.",
    ),
    # of this machine
    "no_device_product": Wording(
        "This installation does not include the comparison on a device: its tensors are copied to the host's memory"
        " and compared there, which is slower.",
        "此安装不包含在设备上的比较：设备上的张量会复制到主机内存中再比较，速度较慢。",
        "Install all of precision_debug.",
    ),
    "c_kernel": Wording(
        "C kernel, {instructions}, {count} {count:thread|threads}", "C 内核，{instructions}，{count} 个线程"
    ),
    "numpy_blocks": Wording("numpy blocks: {why}", "numpy 分块：{why}"),
    # of a search
    "search_wrote_nothing": Wording(
        "{path} was not written: there is no verified set.", "未写入 {path}：没有经验证的集合可交付。"
    ),
    "only_outputs": Wording(
        "Only outputs were compared on the engine, because showing other tensors would need more builds; the"
        " simulation shows which operators cause the error.",
        "在引擎上只比较了输出，因为观测其他张量需另建引擎；由模拟指出是哪些算子。",
    ),
    "held_out_used": Wording(
        "{count} initially unseen {count:input|inputs} showed the search what an earlier set missed: the answer"
        " is checked on them"
        " too, but they no longer count as unseen",
        "最初未见过的 {count} 组输入已告诉搜索先前的集合漏了什么：答案也在其上验证，但不再算作未见过的输入",
    ),
    "not_held_out": Wording(
        "Not checked on other inputs, because there are none: provide more with --inputs or --held_out.",
        "没有其他输入可供验证：请用 --inputs 或 --held_out 给出更多输入。", "Use --held_out.",
    ),
    "not_gone_on_from": Wording(
        "What was found here is used by this search alone: what its programs read cannot be known ({why}).",
        "此处的结果只供本次搜索使用：无法得知其程序读取了什么（{why}）。",
        "Name files and modules plainly in the script, and start no other program from it.",
    ),
    "comparison_known": Wording(
        "The comparison was reused from an earlier search of the same model on the same inputs.",
        "对比结果取自此前对同一模型、同一输入的搜索。", "Remove the search's folder to compare again.",
    ),
    "whole_did_not_run": Wording(
        "With everything kept it did not run ({why}), so what the precision costs altogether is not known.",
        "全部保留时未能运行（{why}），因此无法得知精度造成的总误差。",
    ),
    "simulation_blind": Wording(
        "{mode} already passes with nothing kept, so it says nothing about this engine.",
        "{mode} 不保留任何算子也满足要求，因此无法说明该引擎的情况。",
    ),
    "simulation_unlike": Wording(
        "With nothing kept, {mode} is off by {simulated:.3g} (Rel L2) and the engine by {real:.3g}: the simulation"
        " does not represent this engine, so the search ran on the engine itself. Most likely few of its layers run in"
        " the mode's type.",
        "不保留任何算子时，{mode} 的误差为 {simulated:.3g}（Rel L2），引擎为 {real:.3g}：前者不能代表该引擎，"
        "因此直接在引擎上搜索。很可能引擎中只有少数层以该模式的类型运行。",
    ),
}  # fmt: skip

STAGES: Mapping[str, Wording] = {
    # two engines
    "layers_to": Wording("{before} {before:layer|layers} to {after}", "{before} 层变为 {after} 层"),
    "layers_to_copies": Wording(
        "{layers}, format copies {before} to {after}", "{layers}，格式复制由 {before} 个变为 {after} 个"
    ),
    "lost": Wording("{count} lost", "失去 {count}"),
    "lost_first": Wording("{count} lost (first: {name})", "失去 {count}（首个：{name}）"),
    "fusion_kept": Wording(
        "fusion kept: {layers}; {changed} of {common} common {common:layer|layers} {changed:runs|run} another tactic",
        "融合保持：{layers}；{common} 个共有层中有 {changed} 个采用了别的 tactic",
    ),
    "fusion_changed": Wording(
        "fusion changed: {layers}; {kept} kept, {lost}, {added} added; {changed} of {common} common"
        " {common:layer|layers} {changed:runs|run}"
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
        "pairing both graphs and looking for errors in the export", "配对两侧的图，并查找导出中的错误"
    ),
    "stage_repeating": Wording(
        "building and running the target: {number} of {count}", "构建并运行目标：第 {number} 次，共 {count} 次"
    ),
    "stage_explaining": Wording("explaining: running operators individually", "归因：逐个运行算子"),
    "stage_second_opinion": Wording("getting a second opinion on each operator", "对每个算子询问第二意见"),
    "stage_trying_fixes": Wording("trying fixes on the engine", "在引擎上尝试修复"),
    "stage_trying_set": Wording(
        "trying fixes on the engine: set {number} of at most {most}, {passed:.0f} of at most {seconds:.0f} s",
        "在引擎上尝试修复：第 {number} 组（至多 {most} 组），已用 {passed:.0f} 秒（至多 {seconds:.0f} 秒）",
    ),
    "stage_writing": Wording("writing the report", "正在写入报告"),
    "stage_explaining_worst": Wording("explaining sample {sample}, the worst", "归因：误差最大的样本 {sample}"),
    "stage_set": Wording(
        "set {number}: {count} of {all} kept ({names}) in {mode}",
        "第 {number} 组：{mode} 中保留 {all} 个中的 {count} 个（{names}）",
    ),
    "stage_for": Wording("{stage}, {what}", "{stage}，{what}"),
    "set_held_out": Wording("on {count} other {count:input|inputs}", "用其他 {count} 组输入验证"),
    "set_rough": Wording("calibrated once for all sets", "所有组共用一次校准"),
    "set_learnt": Wording("with inputs that the set before it missed", "加入上一组未能通过的输入"),
    "set_for_trade": Wording("for the table of error against number kept", "用于保留数量与误差的对照表"),
    "stage_comparing": Wording("{mode}: comparing", "{mode}：对比中"),
    "stage_timing": Wording("{mode}: timing", "{mode}：测速中"),
    "stage_handing_over": Wording("writing: {title}", "移交：{title}"),
}  # fmt: skip
