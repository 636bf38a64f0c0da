"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_HOME = "Nothing to do: its values are compared in another row, or there is nothing to compare."
_INSIDE = "See the outputs of the loop or branch."
_MARKED = "If the fusion must not change, use --fused_only or mark fewer tensors."
_READERS = "See the tensors computed from it."

REASONS = Catalogue("paddle", {
    # a model that cannot be read
    "no_program": Wording(
        "is not a Paddle program, or is cut off ({error})", "不是 Paddle 程序，或文件不完整（{error}）"
    ),
    "no_model": Wording(
        "holds no Paddle model (inference.json, *.pdmodel)", "其中没有 Paddle 模型（inference.json、*.pdmodel）"
    ),
    "several_models": Wording("holds several models ({names})", "其中有多个模型（{names}）"),
    "factory_returns": Wording(
        "a factory returns a paddle.nn.Layer, (layer, example_inputs), or these with a loss, and an optimiser, for a"
        " step",
        "工厂函数返回 paddle.nn.Layer、（layer，示例输入），训练步还需损失与优化器",
    ),
    # why a tensor is not seen
    "not_entered": Wording(
        "in a branch or loop body that this run did not enter", "位于本次运行未进入的分支或循环体内",
        "Use an input that takes the branch.", whole=True,
    ),
    "fused": Wording(
        "it cannot be fetched without changing the fusion around it", "取出它会改变周围的融合", _HOME, whole=True
    ),
    "changed": Wording(
        "the passes changed the numbers around it, and it was fused away or cannot be fetched",
        "优化 pass 改变了其周围的数值，它已被融合或无法取出", _HOME, whole=True,
    ),
    "untried": Wording(
        "the search for marks ended before reaching it (raise --option mark_builds)",
        "标记搜索在它之前结束（可增大 --option mark_builds）", "Raise --option mark_builds.",
    ),
    "nested": Wording(
        "it lies inside a control-flow block, where it cannot be fetched", "位于控制流块内，无法取出", _INSIDE
    ),
    "recording_changes": Wording(
        "it lies inside a control-flow block, and recording it there changes the computation",
        "位于控制流块内，而在其中录制它会改变程序的计算", _INSIDE,
    ),
    "body_unknown": Wording(
        "it lies inside a control-flow block, and what Paddle's hook shows there does not match the program",
        "位于控制流块内，而 Paddle 的 hook 在其中显示的内容与程序不符", _INSIDE,
    ),
    "body_too_large": Wording(
        "it lies inside a control-flow block, and what is computed there in all iterations takes over {limit}"
        " {limit:byte|bytes},"
        " which --option fetch_bytes allows",
        "位于控制流块内，而其中各次迭代的计算结果合计超过 --option fetch_bytes 所允许的 {limit} 字节",
        "Raise --option fetch_bytes.",
    ),
    "body_other_kernels": Wording(
        "it lies inside a control-flow block, where this mode runs different operators from FP32",
        "位于控制流块内，此模式在其中运行的算子与 FP32 不同", _INSIDE,
    ),
    "body_layout": Wording(
        "it lies inside a control-flow block, where the hook shows it in the engine's own layout",
        "位于控制流块内，hook 以引擎自身的布局显示它", _INSIDE,
    ),
    "in_a_body": Wording(
        "it lies inside a control-flow block, which Paddle's hook does not enter",
        "位于控制流块内，Paddle 的 hook 不进入", _INSIDE,
    ),
    "method": Wording(
        "it is produced outside of Paddle's operators (by numpy, say)",
        "不由 Paddle 的算子生成（例如由 numpy 得出）", _READERS,
    ),
    "rewritten": Wording(
        "a later operator overwrites it, so it cannot be fetched", "后面的算子会覆盖它，无法取出", _READERS
    ),
    "overwritten": Wording(
        "an in-place operator overwrote it before it could be fetched", "取出之前已被原地算子覆盖",
        _READERS,
    ),
    # of a run
    "tf32_left_on": Wording(
        "TF32 was left on (TensorRT's default): layers of trt_fp32 may run in TF32 (Real Precision says which).",
        "TF32 保持开启（TensorRT 默认）：trt_fp32 的层可能以其运行（见 Real Precision）。", "Remove --option tf32.",
    ),
    "tf32_off": Wording(
        "TF32 was switched off ({variable}=0); deployed engines have it on by default: --option tf32=True.",
        "TF32 已关闭（{variable}=0）；部署的引擎默认开启：--option tf32=True。", "Use --option tf32=True to see it.",
    ),
    "tf32_was_off": Wording(
        "{variable}=0 was set, so FP32 layers did not run in TF32.", "已设置 {variable}=0，FP32 层没有以 TF32 运行。"
    ),
    "tf32_off_own": Wording(
        "TF32 was switched off in Paddle's own kernels (--option tf32=True leaves it on).",
        "Paddle 自身 kernel 中的 TF32 已关闭（--option tf32=True 可保持开启）。",
    ),
    "marked": Wording("marked", "带标记的"),
    "unmarked": Wording("unmarked", "不带标记的"),
    "marked_loud": Wording("MARKED", "带标记的"),
    "unmarked_loud": Wording("UNMARKED", "不带标记的"),
    "and_untold": Wording(
        "{kinds}; for {count} more TensorRT does not say", "{kinds}；另有 {count} 层 TensorRT 未说明"
    ),
    "no_layer_told": Wording(
        "TensorRT does not report the precision of any layer of the {which} engine.",
        "TensorRT 未说明{which}引擎中任何一层的精度。",
    ),
    "none_known": Wording(
        "No layer of the {which} engine is known to have run in {wanted}: {kinds} (regions that TensorRT"
        " compiles as a"
        " whole).",
        "{which}引擎中没有已知以 {wanted} 运行的层：{kinds}（TensorRT 整体编译的区域）。",
    ),
    "none_ran": Wording(
        "NO LAYER OF THE {which} ENGINE RAN IN {wanted}, which {mode} asks for: TensorRT found other kernels faster"
        " ({kinds}). The differences are not caused by {wanted}.",
        "{which}引擎中没有任何一层以 {mode} 要求的 {wanted} 运行：TensorRT 认为其他 kernel 更快（{kinds}）。"
        "差异并非由 {wanted} 引起。", "Use another mode, or a larger model or batch.",
    ),
    "ran_in_tf32": Wording(
        "Of the {which} engine's layers, {count} RAN IN TF32 (10 bits of mantissa), not in FP32: {kinds}.",
        "{which}引擎中有 {count} 层以 TF32（尾数 10 位）而非 FP32 运行：{kinds}。", "Remove --option tf32.",
    ),
    "ran_in": Wording("The {which} engine's layers ran in: {kinds}.", "{which}引擎各层的实际精度：{kinds}。"),
    "other_precision": Wording(
        "{count} {count:tensor was|tensors were} computed in a different precision than in the engine without"
        " marks (columns Real"
        " Precision and Precision There).",
        "{count} 个张量以与不带标记的引擎不同的精度计算（见 Real Precision 和 Precision There 列）。", _MARKED,
    ),
    "calibrated": Wording(
        "TensorRT calibrated int8 on {count} sample set(s) (build {build}).",
        "TensorRT 以 {count} 组样本校准 int8（第 {build} 次构建）。",
    ),
    "scales_cached": Wording(
        "The int8 scales of build {build} come from a table in the cache folder, not from the inputs.",
        "第 {build} 次构建的 int8 缩放系数来自缓存目录中的表，而非输入。", "Remove the table to calibrate again.",
    ),
    "no_table": Wording(
        "Paddle wrote no calibration table in build {build}, so nothing was quantised by calibration.",
        "Paddle 在第 {build} 次构建中没有写出校准表，因此没有任何部分经校准量化。",
    ),
    "shapes_alone": Wording(
        "The engine was built only for the shapes of the inputs (--min_shapes … sets a range).",
        "引擎只针对输入的形状构建（--min_shapes 等可设定范围）。", "Use --min_shapes, --opt_shapes and --max_shapes.",
    ),
    "no_ranges": Wording(
        "The CPU could not run the model to collect shape ranges ({detail}).", "CPU 无法运行该模型以收集形状范围"
        "（{detail}）。",
        "Use --min_shapes, --opt_shapes and --max_shapes.",
    ),
    "not_built_for_ranges": Wording(
        "TensorRT could not build for the collected shape ranges ({detail}).",
        "TensorRT 无法针对收集到的形状范围构建（{detail}）。", "Use --min_shapes, --opt_shapes and --max_shapes.",
    ),
    "ranges_collected": Wording(
        "The shape range of every tensor was collected on the CPU, on {count} sample set(s); the engine is"
        " built for it.",
        "每个张量的形状范围在 CPU 上以 {count} 组样本收集；引擎据此构建。",
    ),
    "ranges_collected_given": Wording(
        "The shape range of every tensor was collected on the CPU, on {count} sample set(s) and on the"
        " smallest, usual"
        " and largest shape given; the engine is built for it.",
        "每个张量的形状范围在 CPU 上以 {count} 组样本以及给定的最小、常用和最大形状收集；引擎据此构建。",
    ),
    # while it is waited for
    "collecting": Wording(
        "collecting the shape range of every tensor on the CPU ({count:sample set|sample sets}: {count})",
        "在 CPU 上收集每个张量的形状范围（样本组数：{count}）",
    ),
    "building_unmarked": Wording(
        "building engine {build}, the one to deploy, from {count} {count:operator|operators}",
        "TensorRT 正在构建第 {build} 个引擎（部署用），共 {count} 个算子",
    ),
    "building_marked": Wording(
        "building engine {build} with {marks} {marks:mark|marks}",
        "TensorRT 正在构建第 {build} 个引擎，标记 {marks} 个张量",
    ),
    "heard_pass": Wording("Paddle's pass {name}", "Paddle 的 pass {name}"),
    "heard_subgraph": Wording("a subgraph of {count} {count:operator|operators}", "{count} 个算子的子图"),
    "heard_preparing": Wording("Paddle is handing over a subgraph", "Paddle 正在移交子图"),
    "heard_again": Wording(
        "a shape was outside the range, so Paddle is rebuilding the engine", "形状超出范围，Paddle 正在重新构建引擎"
    ),
    "heard_loading": Wording("loading kernels", "kernel 已加载"),
    "heard_outputs": Wording("an engine with {count} {count:output|outputs}", "引擎输出数：{count}"),
    "heard_timing": Wording("timing kernels for {layer}", "正在为 {layer} 测试 kernel"),
    "heard_done": Wording(
        "a subgraph's engine is ready after {seconds:.0f} s", "子图引擎已就绪，耗时 {seconds:.0f} 秒"
    ),
    "built": Wording(
        "TensorRT built {count} {count:engine|engines} in {seconds:.1f} s: {parts:;}.",
        "TensorRT 构建了 {count} 个引擎，共 {seconds:.1f} 秒：{parts:;}。",
        "Mark fewer tensors (--marks_between, --mark), or cache the engine to deploy: --option use_static=True"
        " --option cache_dir=DIR.",
    ),
    "built_unmarked": Wording("the one to deploy {seconds:.1f} s", "部署用引擎 {seconds:.1f} 秒"),
    "built_marked": Wording("with {count} {count:mark|marks} {seconds:.1f} s", "标记 {count} 个张量 {seconds:.1f} 秒"),
    "outputs_differ": Wording(
        "The outputs of the engine with marks and of the one to deploy differ by at most {gap:.3g}, relative to the"
        " largest value.",
        "带标记的引擎与部署用引擎的输出最多相差 {gap:.3g}（相对于最大值）。", _MARKED,
    ),
    "no_inspector_file": Wording(
        "TensorRT's inspector wrote no file; layers, real precision and tactics are not shown.",
        "TensorRT 的 inspector 没有写出文件；不显示层、实际精度和 tactic。",
    ),
    "marks_unknown": Wording(
        "Whether the marks changed the fusion is unknown, because the inspector wrote no file.",
        "inspector 没有写出文件，标记是否改变了融合无从得知。",
    ),
    "only_fused_marked": Wording("Only fused layers were marked; {diff}.", "只标记了融合层；{diff}。"),
    "tensors_marked": Wording("{count} {count:tensor was|tensors were} marked; {diff}.",
    "标记了 {count} 个张量；{diff}。"),
    "marks_added": Wording(
        "Marking {count} {count:tensor|tensors} added {more} {more:layer|layers} to the engine (from {before}"
        " {before:layer|layers} to {after}), so its fusion"
        " differs from the deployed one (--fused_only marks only what the fused engine still computes).",
        "标记 {count} 个张量使引擎增加 {more} 层（由 {before} 层变为 {after} 层），因此其融合与部署的不同"
        "（--fused_only 只标记融合引擎仍会计算的张量）。", _MARKED,
    ),
    "no_subgraph": Wording(
        "TensorRT took over no subgraph: Paddle ran every operator itself.", "TensorRT 没有接管任何子图：全部算子由"
        " Paddle 运行。",
        "Check the log for the reason, or lower --option min_subgraph_size.",
    ),
    "all_in_tensorrt": Wording(
        "TensorRT ran every operator; apart from that, {problem}.", "全部算子由 TensorRT 运行；除此之外，{problem}。"
    ),
    "shapes_outside": Wording(
        "TensorRT ran every operator except those that compute shapes ({types}), which Paddle ran itself: {problem};"
        " if TensorRT's rows fail, check these first.",
        "除计算形状的算子（{types}）由 Paddle 自身运行外，全部由 TensorRT 运行：{problem}；若 TensorRT 的结果不符，"
        "请先查看这些算子的行。",
    ),
    "paddle_tensorrt": Wording(
        "TensorRT through paddle.tensorrt, implemented from its source and not run on hardware by this project: every"
        " tensor is fetched, so the fusion differs from the deployed one.",
        "经由 paddle.tensorrt 的 TensorRT，按其源码编写，本项目未在硬件上运行：每个张量都被取出，因此融合与部署"
        "的不同。",
    ),
    "baseline_on_gpu": Wording(
        "The baseline ran on the GPU ({card}), unfused, in FP32.", "基线在 GPU（{card}）上以 FP32 不融合运行。"
    ),
    "baseline_on_cpu": Wording(
        "The baseline ran on the CPU, unfused, in FP32, because there is no GPU that this Paddle can use.",
        "基线在 CPU 上以 FP32 不融合运行，因为没有此 Paddle 可用的 GPU。",
    ),
    "baseline_on_cpu_since": Wording(
        "The baseline ran on the CPU, unfused, in FP32: {problem}.", "基线在 CPU 上以 FP32 不融合运行：{problem}。"
    ),
    "no_activations": Wording(
        "{count} running statistics, folded constants and empty tensors are not activations and are left out.",
        "{count} 个滑动统计量、折叠常量和空张量不是激活，已略去。",
    ),
    "refilled": Wording(
        "{count} {count:tensor|tensors} before a folded batch norm {count:keeps its name but holds|keep their"
        " names but hold} other values now, and"
        " {count:is|are} left out.",
        "batch norm 已折叠进权重，其前的 {count} 个张量虽同名但内容已变，已略去。",
    ),
    "in_bodies": Wording(
        "{count} {count:tensor lies|tensors lie} in bodies of loops or branches that this run did not enter, or"
        " cannot be shown.",
        "{count} 个张量位于本次运行未进入的循环或分支体内，或无法显示。",
    ),
    "still_there": Wording(
        "{count} of {all} {all:tensor|tensors} of the program are still there and can be seen.",
        "程序的 {all} 个张量中有 {count} 个仍然存在并可观测。",
    ),
    "records_left_out": Wording(
        "{count} running statistics and shape records are left out", "未列出 {count} 项运行统计与形状记录"
    ),
    "passes_did_nothing": Wording(
        "Paddle's passes changed no operator, and the tensors have the types {types}",
        "Paddle 的 pass 没有改变任何算子，其张量类型为 {types}",
    ),
    "evaluation": Wording(
        "the layer was put into evaluation mode; the option training=1 leaves it as the factory made it",
        "网络已置于评估模式；选项 training=1 可保持工厂函数所给的状态", "Use --option training=1.",
    ),
    "dynamic_shown": Wording(
        "Operators called by Paddle's Python code, arithmetic of tensors (x + y), PyLayers and sublayers are shown;"
        " what is computed outside of them (by numpy, say) shows in what reads it.",
        "显示 Paddle 的 Python 所调用的算子、张量运算（x + y）、PyLayer 与子层；在其之外得出的结果（例如由 numpy）"
        "体现在读取它的算子中。",
    ),
    "step_shown": Wording(
        "Of the backward pass, each gradient that an operator's backward returns is shown, and what a PyLayer's calls;"
        " not what Paddle computes inside an operator, and of one that takes a list (concat) only what reaches its"
        " inputs. An optimiser's operator is a row for each tensor that it writes.",
        "反向中显示每个算子的反向所返回的梯度，以及 PyLayer 的 backward 所调用的算子；不显示 Paddle 在算子内部的计算，"
        "接收列表的算子（concat）只显示到达其各输入的梯度。优化器的算子按其写入的张量各占一行。",
    ),
    "step_scaler": Wording(
        "the loss's scale is applied by GradScaler's own operator, because Paddle switches GradScaler off on a CPU",
        "损失缩放由 GradScaler 自身所用的算子完成，因为 Paddle 在 CPU 上会关闭 GradScaler",
    ),
    "sparse_gradient": Wording(
        "it is a sparse gradient; the whole gradient is among the outputs", "它是稀疏梯度；完整梯度见输出"
    ),
    "as_hook_saw": Wording(
        "{count} of {all} fetched {all:value|values} {count:equals|equal}, element for element, what Paddle's"
        " own hook saw; for {unknown} the"
        " hook shows nothing to compare with (padded layouts, operators that it skips).",
        "取出的 {all} 个值中有 {count} 个与 Paddle 自身 hook 所见逐元素相同；其余 {unknown} 个 hook 没有可比的内容"
        "（填充布局，或被其跳过的算子）。",
    ),
    "not_written": Wording(
        "{count} {count:tensor|tensors} that no operator writes {count:was|were} left out.",
        "{count} 个没有算子写入的张量已略去。"
    ),
    "fetchable": Wording(
        "{count} of {all} {all:tensor|tensors} can be fetched without changing the fused program ({more} more"
        " cannot; {builds}"
        " {builds:predictor was|predictors were} built to find out).",
        "{all} 个张量中有 {count} 个可在不改变融合的情况下取出（另有 {more} 个不能，为此构建了 {builds} 个"
        " predictor）。",
        "Raise --option mark_builds to look for more.",
    ),
    "building_predictor": Wording(
        "predictor {build} of at most {most}, with {marks} {marks:tensor|tensors} fetched, to find out which can"
        " be seen",
        "第 {build} 个 predictor（至多 {most} 个），取出 {marks} 个张量，以确定哪些可见",
    ),
    "bfloat16_list": Wording(
        "add --option 'bfloat16_ops={types}', which was run here: {low} of {of} {of:kernel|kernels} in bfloat16;"
        " it opens in"
        " {seconds:.0f} s at most, with up to {builds} predictors; or export the model with Paddle 3 (.json)",
        "请加上 --option 'bfloat16_ops={types}'，已在此运行：{of} 个 kernel 中有 {low} 个为 bfloat16；打开它最多需"
        " {seconds:.0f} 秒（至多 {builds} 个 predictor）；或用 Paddle 3 重新导出模型（.json）",
    ),
    "no_bfloat16_list": Wording(
        "lists for --option bfloat16_ops were tried, and none runs here; export the model with Paddle 3 (.json), or"
        " compare onednn_fp32",
        "已试过若干 --option bfloat16_ops 列表，均无法在此运行；请用 Paddle 3 重新导出模型（.json），"
        "或对比 onednn_fp32",
    ),
    "shown_rounded": Wording(
        "{count} of them are written in FP32 when fetched and in bfloat16 otherwise, with bit-identical outputs; they"
        " are shown rounded to bfloat16, as in the deployed program.",
        "其中 {count} 个在取出时以 FP32 写出，否则为 bfloat16，输出逐位相同；此处按部署的程序舍入到 bfloat16 显示。",
    ),
    # what a search gives away
    # what a run mode needs
    "needs": Wording("needs {what}", "需要{what}"),
    "needs_onednn": Wording(
        "a paddlepaddle built with oneDNN (the official x86 CPU wheel is)",
        "带 oneDNN 的 paddlepaddle（官方 x86 CPU 安装包即是）",
    ),
    "needs_avx512": Wording(
        "a CPU with AVX-512 (better: avx512_bf16 or amx_bf16), which bfloat16 in oneDNN requires",
        "带 AVX-512 的 CPU（最好有 avx512_bf16 或 amx_bf16），oneDNN 的 bfloat16 要求如此",
    ),
    "needs_avx2": Wording("a CPU with AVX2, which int8 in oneDNN requires", "带 AVX2 的 CPU，oneDNN 的 int8 要求如此"),
    "needs_gpu_wheel": Wording(
        "a paddlepaddle-gpu wheel (this is the CPU wheel), see {address}",
        " paddlepaddle-gpu 安装包（当前为 CPU 版），见 {address}",
    ),
    "needs_gpu_wheel_with_tensorrt": Wording(
        "a paddlepaddle-gpu wheel with TensorRT (this is the CPU wheel), see {address}",
        "带 TensorRT 的 paddlepaddle-gpu 安装包（当前为 CPU 版），见 {address}",
    ),
    "needs_gpu": Wording(
        "an NVIDIA GPU that CUDA can see (check nvidia-smi and CUDA_VISIBLE_DEVICES)",
        "CUDA 可见的 NVIDIA GPU（请检查 nvidia-smi 与 CUDA_VISIBLE_DEVICES）",
    ),
    "needs_another_gpu": Wording("another GPU or wheel: {problem}", "另一块 GPU 或另一安装包：{problem}"),
    "no_code_for_card": Wording(
        "paddlepaddle-gpu {version} has no code for this card ({card}, compute capability {capability}): its kernels"
        " silently do nothing",
        "paddlepaddle-gpu {version} 没有此显卡（{card}，计算能力 {capability}）的代码：其 kernel 什么也不做，也不报错",
    ),
    "needs_tensorrt": Wording(
        "a paddlepaddle-gpu wheel with TensorRT (this one was built without), and TensorRT's libraries",
        "带 TensorRT 的 paddlepaddle-gpu 安装包（当前安装包不带），以及 TensorRT 的库",
    ),
    "needs_tensorrt_9": Wording(
        "TensorRT 9 or later for bfloat16 (this Paddle was built with {version})",
        "bfloat16 需要的 TensorRT 9 及以上（此 Paddle 以 {version} 构建）",
    ),
    "bfloat16_ops_of_pir": Wording(
        "Paddle's passes over a PIR program (.json) ignore which operators may run in bfloat16",
        "Paddle 对 PIR 程序（.json）的 pass 不理会哪些算子可以以 bfloat16 运行",
    ),
    "export_legacy": Wording(
        "use --option keep_operators, which keeps single operators of a PIR program",
        "请改用 --option keep_operators，它可保留 PIR 程序中的单个算子",
    ),
    "keep_of_legacy": Wording("a legacy program (.pdmodel) keeps operators by"
                              " type", "旧格式程序（.pdmodel）按算子类型保留"),
    "use_bfloat16_ops": Wording("use --option bfloat16_ops", "请使用 --option bfloat16_ops"),
    "handed_pir": Wording(
        "the program rewritten so that the kept operators stay in float32, with its parameters beside it",
        "改写后的程序：保留的算子以 float32 运行，参数文件在旁边",
    ),
    "handed_config": Wording(
        "Paddle's Config",
        "Paddle 的 Config",
    ),
    "handed_pasted": Wording(
        "the same, to paste; the line above is what was run",
        "同上，可直接粘贴：实际运行的是上一行",
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
