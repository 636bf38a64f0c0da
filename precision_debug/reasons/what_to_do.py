"""What a reader can do about a reason, in Chinese: the English sentence of ``Wording.do`` to its counterpart."""

from __future__ import annotations

from collections.abc import Mapping

from .causes import DO_ABOUT_CAUSES

__all__ = ["WHAT_TO_DO"]

_REPLACE = "请使用可替换张量的运行模式（CPU 上的 ONNX Runtime、动态图 PyTorch）。"

WHAT_TO_DO: Mapping[str, str] = {
    "Say with --metric_drop how much worse it may get; search --metric finds what to keep so that it does not.":
        "请用 --metric_drop 说明允许变差多少；search --metric 可找出应保留的算子，使其不变差。",
    "Judge what is made of these decisions: scores that near are decided by rounding, on any machine.":
        "请评判由这些判定得到的结果：如此接近的分数在任何机器上都由舍入决定。",
    "See the row of these decisions.": "见这些判定所在的行。",
    "Sort it, or set sorted=1, where something reads the order.": "若有算子读取其次序，请先排序，或设 sorted=1。",
    "Check the metric, its labels and the inputs.": "请检查指标、其标签与输入。",
    "Look at the outputs, which keep their layout: an engine may lay out inner tensors as it likes.":
        "请看各输出（其布局不变）：引擎可自行安排内部张量的布局。",
    "Use --atol if integers that far apart are the same to you.": "若相差如此的整数对您没有区别，请使用 --atol。",
    "Calibrate on more inputs, all of them like those in use, and use others to judge.":
        "用更多与实际使用相近的输入校准，并用另外的输入判断。",
    "Leave these operators out: more inputs to calibrate on do not help.":
        "请将这些算子排除在外：用更多输入校准无济于事。",
    "Compare on such inputs (--inputs): the calibration is not what they lack.":
        "请在此类输入上比较（--inputs）：它们所缺的并非校准。",
    "Compare on such inputs (--inputs), and let others calibrate.":
        "请在此类输入上比较（--inputs），并用另外的输入校准。",
    "Give them an output, or a scale, of their own: split the Concat that packs them, or keep it.":
        "给它们单独的输出或单独的比例：拆开把它们拼在一起的 Concat，或保留该 Concat。",
    "Export the model to ONNX.": "为此将模型导出为 ONNX。",
    "Use --second_opinion.": "加上 --second_opinion。",
    "Install onnx or openvino.": "安装 onnx 或 openvino。",
    "Nothing to do if that is 0.": "若为 0，无需处理。",
    "As above.": "同上。",
    "Repeat the command, which goes on, with more --runs or --seconds.":
        "加大 --runs 或 --seconds，重复该命令即从中断处继续。",
    "Run them where they can run, and compare.": "在能运行之处运行并对比。",
    "Find what draws numbers, or keeps something from one run for the next; --run_once leaves this out.":
        "找出使用随机数或在两次运行之间保留状态之处；--run_once 则不做此检查。",
    "See why the second run fails; --run_once leaves it out.": "查明第二次运行为何失败；--run_once 则不做第二次运行。",
    "Leave --run_once out.": "去掉 --run_once。",
    "Export the model again, and check the tool that changed it since.": "重新导出模型，并检查此后修改过它的工具。",
    "Use an --rtol below 1.": "使用小于 1 的 --rtol。",
    "Use an input on which the model gives other numbers.": "请换一个使模型给出其他数值的输入。",
    "Use inputs like those in use.": "请使用与实际使用相近的输入。",
    "Let the function judge every output by its name, or all at once with true or false.":
        "请让该函数按名字判断每个输出，或以 true 或 false 一次判断全部。",
    "Leave --without_outputs out.": "去掉 --without_outputs。",
    "Declare it as an output of the target's file too, or take it out of the baseline's.":
        "在目标文件中也将其声明为输出，或从基线的输出中去掉。",
    "Give both the same type, or judge them by a function of yours with --compare.":
        "使两侧类型相同，或用 --compare 以您的函数判断。",
    "Compare runs whose final outputs are known.": "比较已知最终输出的运行。",
    "Look at that operator's inputs; where such values are right, use --allow_non_finite.":
        "检查该算子的输入；若这些值本应如此，请用 --allow_non_finite。",
    "Check what is fed; where such values are right, use --allow_non_finite.":
        "检查输入；若这些值本应如此，请用 --allow_non_finite。",
    "Give the inputs of all of them, or choose one with --sample N.": "给出全部迭代的输入，或用 --sample N 选择一次。",
    "Give the operators a seed, or compare what lies before them.": "为这些算子设定种子，或比较其之前的张量。",
    "Write it with --precision_golden write.": "用 --precision_golden write 写出。",
    "See what changed since it was written.": "查看此后的变化。",
    "See the rows of these tensors.": "查看这些张量的行。",
    "Correct the names: a threshold that no tensor falls under judges nothing.":
        "更正名字：没有张量符合的阈值不判定任何内容。",
    "Check requires_grad, and that the backward pass runs before the optimiser's step.":
        "检查 requires_grad，以及反向传播是否在优化器更新之前运行。",
    "Log more steps (training(every=N)).": "请保存更多的步（training(every=N)）。",
    "Copy the files of every rank into one folder.": "将每个 rank 的文件放在同一目录。",
    "Leave --fail_fast out.": "去掉 --fail_fast。",
    "See why it ended.": "查看结束的原因。",
    **DO_ABOUT_CAUSES,
    "See the part after the colon.": "照冒号后的部分所说。",
    "Request it alone with --mark, or compare in the mode ort_fp32, which keeps the model's layouts.":
        "用 --mark 单独取它，或与布局和模型一致的 ort_fp32 比较。",
    "Build it with profiling verbosity DETAILED.": "以 profiling verbosity DETAILED 构建。",
    "Check the input, the weights and the model before the precision.": "先检查输入、权重与模型，再看精度。",
    "Use another mode, or a larger model or batch.": "换一个模式，或用更大的模型或 batch。",
    "Compare its inputs and outputs.": "比较它的输入与输出。",
    "Compare the modes of eager PyTorch: torch_fp32, torch_fp16, torch_bf16, ….":
        "比较动态图 PyTorch 的模式：torch_fp32、torch_fp16、torch_bf16 等。",
    "Compare with the float model that the file was converted from: --baseline_model.":
        "与生成该文件的浮点模型比较：--baseline_model。",
    "Dump it too; `precision_debug dumps` lists what was left over.":
        "一并导出该张量；`precision_debug dumps` 会列出剩余部分。",
    "If that is wrong, use --atol and --rtol.": "若不是，请给出 --atol 与 --rtol。",
    "Put a tensors.json beside them.": "在旁边放一个 tensors.json。",
    "`precision_debug dumps DIR --model_file M` lists the pairs.":
        "`precision_debug dumps DIR --model_file M` 会列出配对。",
    "`precision_debug dumps` says why for each.": "`precision_debug dumps` 会逐一说明原因。",
    "Nothing: converters do this (NHWC for NCHW).": "无需处理：转换器会如此（NHWC 代替 NCHW）。",
    "Compare with a model that has not been converted or quantised.": "与未经转换或量化的模型比较。",
    "Compare with ort_fp32 instead of onnx_ref.": "改与 ort_fp32 比较，而不是 onnx_ref。",
    "Compare with the model itself as the baseline.": "以模型本身为基线进行比较。",
    "Compile it with the same INFERENCE_PRECISION_HINT.": "以相同的 INFERENCE_PRECISION_HINT 编译。",
    "Run onnxruntime.quantization.shape_inference.quant_pre_process on the file first, or deploy the model that"
    " --save_model writes.":
        "先对文件运行 onnxruntime.quantization.shape_inference.quant_pre_process，或部署 --save_model 写出的模型。",
    "Deploy the model that --save_model writes.": "部署 --save_model 写出的模型。",
    "Exclude fewer nodes.": "少排除一些节点。",
    "Export it with a later opset.": "以更高的 opset 导出。",
    "Export it with that opset.": "以该 opset 导出。",
    "Export the model again, or compare with the checkpoint that it was exported from.":
        "重新导出模型，或与导出它的检查点比较。",
    "Use --explain full.": "加上 --explain full。",
    "If the fusion must not change, use --fused_only or mark fewer tensors.":
        "若必须保持融合，请加 --fused_only 或少标记张量。",
    "Use --held_out.": "加上 --held_out。",
    "Use --input_shapes.": "加上 --input_shapes。",
    "Use --min_shapes, --opt_shapes and --max_shapes.": "给出 --min_shapes、--opt_shapes 和 --max_shapes。",
    "Use --option tf32=True to see it.": "用 --option tf32=True 观察它。",
    "Use --option training=1.": "加上 --option training=1。",
    "Use --option use_tf32=0.": "加上 --option use_tf32=0。",
    "If layers do not obey, use --precision_constraints obey.": "层未遵守时，加上 --precision_constraints obey。",
    "If this is wrong, use --rename TARGET=BASELINE.": "若配对有误，用 --rename 目标名=基线名。",
    "Use --val_range NAME:LOW,HIGH, or real --inputs.": "用 --val_range 名称:下限,上限，或给真实的 --inputs。",
    "Use a --baseline to compare.": "给出 --baseline 以便比较。",
    "Use a smaller --atol.": "用更小的 --atol。",
    "Use an --atol below the RMS of the tensor.": "用小于该张量均方根的 --atol。",
    "Use an input for which it is not empty.": "给出能填充它的输入。",
    "Use an input that takes the branch.": "给出会走该分支的输入。",
    "Use an input without them.": "给出不含它们的输入。",
    "Provide it with --inputs.": "用 --inputs 给出。",
    "Provide more inputs to calibrate on.": "给出更多校准输入。",
    "Add an input that enters it.": "请加入会进入该分支的输入。",
    "Use real --inputs.": "给真实的 --inputs。",
    "Use the --atol that the sentence suggests.": "用该句中给出的 --atol。",
    "Use the ONNX file instead of the engine.": "给出 ONNX 文件，而不是引擎。",
    "Swap the inputs.": "交换输入的顺序。",
    "Use the module itself instead of the exported program.": "给出模块本身，而不是导出的程序。",
    "Pass the types that ONNX Runtime infers to your converter.": "把 ONNX Runtime 推断的类型交给转换器。",
    "Install onnxruntime 1.24 or later.": "安装 onnxruntime 1.24 或更高版本。",
    "Keep fewer nodes.": "少保留一些节点。",
    "Keep the operators that read them in float32, or scale the weights.":
        "将读取它们的算子保留为 float32，或缩放权重。",
    "Keep those layers in FP32, or use BF16.": "将这些层保留为 FP32，或使用 BF16。",
    "Remove --fail_fast.": "去掉 --fail_fast。",
    "Remove --option tf32.": "去掉 --option tf32。",
    "Remove --val_range.": "去掉 --val_range。",
    "Remove it.": "去掉它。",
    "Remove the marks to compare every tensor.": "去掉标记即可比较全部张量。",
    "Check dynamic dimensions, layouts and the export before the precision.":
        "先检查动态维度、布局与导出方式，再看精度。",
    "See its neighbours, or try another TensorRT version.": "检查相邻的层，或换一个 TensorRT 版本。",
    "See its outputs.": "看它的输出。",
    "Check the log for the reason, or lower --option"
    " min_subgraph_size.": "在日志中找原因；减小 --option min_subgraph_size。",
    "Start with the operator named first: later ones may only be its consequences.":
        "先看最先指出的算子：其后的可能只是由它引起。",
    "See the row of that node.": "看该节点所在的行。",
    "Check the labels that the map is made with.": "请检查构造该映射所用的标签。",
    "Check the row's Error Growth: above 1, the operator itself lost the precision.":
        "看该行的误差放大倍数：大于 1 说明该算子自身损失了精度。",
    "See the tensors around it.": "看它周围的张量。",
    "See the tensors computed from it.": "看由它得出的张量。",
    "See the outputs of the loop or branch.": "看循环或分支的输出。",
    "Look for overflow, and check divisions, square roots, logarithms and exponentials.":
        "查找溢出，并检查除法、开方、对数与指数。",
    "Use --option marked_builds=N: each further build shows one more tensor of every part.":
        "给出 --option marked_builds=N：每多构建一次，每个部分多显示一个张量。",
    "Mark few tensors, or use trt_fp16.": "少标记张量，或使用 trt_fp16。",
    "Mark fewer tensors (--marks_between, --mark), or cache the engine to deploy: --option use_static=True --option"
    " cache_dir=DIR.": "少标记张量（--marks_between、--mark），或保留部署用的引擎：--option use_static=True"
        " --option cache_dir=DIR。",
    "Also name the operators that read them: a layer writes the type that its readers compute in.":
        "把读取它们的层也写上：层按读取者的计算类型输出。",
    "Nothing to do if it was fused; otherwise: Pair it with --rename if its name differs on the other side.":
        "若已被融合则无需处理；否则若另一侧名字不同，用 --rename 配对。",
    "Nothing to do; to see them, compare with a run of the same engine.":
        "无需处理：与同一引擎的另一次运行比较即可看到它们。",
    "Nothing to do: its values are compared in another row, or there is nothing to compare.":
        "无需处理：其数值在另一行比较，或没有可比较的内容。",
    "Nothing to do: there is nothing to compare.": "无需处理：没有可比较的内容。",
    "Nothing to do: keep_modules asks for it.": "无需处理：由 keep_modules 要求。",
    "Nothing to do: keep_original asks for it.": "无需处理：由 keep_original 要求。",
    "Nothing to do: these weights are what the folder stands for.": "无需处理：这些权重就是该目录所代表的数值。",
    "Run the engine itself for the rest: vllm_bf16.": "其余部分请用引擎本身运行：vllm_bf16。",
    "Pair it with --rename if its name differs on the other side.": "若另一侧名字不同，用 --rename 配对。",
    "Rely on the final outputs.": "以最终输出为准。",
    "Pair names with --rename.": "用 --rename 配对名字。",
    "Pair tensors with --rename where values cannot tell them apart.": "数值无法区分时，用 --rename 配对张量。",
    "Pair them with --rename.": "用 --rename 配对。",
    "For speed, raise --memory_budget.": "增大 --memory_budget 以加快速度。",
    "Raise --option mark_builds to look for more.": "增大 --option mark_builds 以查找更多。",
    "Raise --option mark_builds.": "增大 --option mark_builds。",
    "Read the engine's message.": "阅读引擎给出的信息。",
    "Read the reasons of the rows, and pair names with --rename.": "阅读各行的原因；用 --rename 配对名字。",
    "Record another one with --sample NUMBER.": "用 --sample 编号 录制另一个。",
    "Record the run again without marks.": "去掉标记后重新录制。",
    "Remove the cache.": "删除缓存。",
    "Remove the search's folder to compare again.": "删除搜索的文件夹后重新比较。",
    "Remove the table to calibrate again.": "删除校准表后重新校准。",
    "Report this as a bug.": "请作为缺陷报告。",
    "Run another one alone with --sample NUMBER.": "用 --sample 编号 单独运行另一个。",
    "Compare them without --record, or choose one with --sample N.": "不加 --record 比较，或用 --sample N 选定一个。",
    "Exclude it from quantisation (nodes_to_exclude), or deploy the model that --save_model writes.":
        "将其排除在量化之外（nodes_to_exclude），或部署 --save_model 写出的模型。",
    "Fix the shapes in deployment too: model.reshape, or ovc --input.":
        "部署时也固定形状：model.reshape 或 ovc --input。",
    "Give them other names before you quantise, or deploy the model that --save_model writes.":
        "请在量化前为它们另取名称，或部署 --save_model 写出的模型。",
    "Give each of them a bias of its own before you quantise, or deploy the model that --save_model writes.":
        "量化前给每个算子各自的偏置，或部署 --save_model 写出的模型。",
    "Give more inputs: part of them calibrates, and the rest judges.": "请给出更多输入：一部分用于校准，其余用于判断。",
    "Judge what is not masked, or build the encoder with enable_nested_tensor=False.":
        "只判断未被掩码的部分，或用 enable_nested_tensor=False 构建编码器。",
    "Make it again from the model that is here, or give the model that it was made from.":
        "用此处的模型重新生成，或给出当初所用的模型。",
    "Raise --option fetch_bytes.": "增大 --option fetch_bytes。",
    "Run the comparison again.": "重新运行比较。",
    "Save them in a form that can be read, or move them out of the folder.": "保存为可读的格式，或将其移出该文件夹。",
    "Use --step backward or --step optimiser.": "使用 --step backward 或 --step optimiser。",
    "Scale the input down.": "缩小输入。",
    "Check how the run ended.": "查看运行是怎样结束的。",
    "Check how the run ended; the rows finished before that are in the report.":
        "查看运行是怎样结束的；此前完成的部分在报告里。",
    "See the run's notes and the Real Precision column; another mode or device may really run in that precision.":
        "查看运行说明与实际精度一列；换一个模式或设备也许真正以该精度运行。",
    "Regenerate the file with a tool that does not do this, or fix the constant.":
        "用不会如此的工具重新生成文件，或修正该常量。",
    "Keep the operators that read it in FP32 or BF16, or use a smaller constant (for example, -65504 for a mask).":
        "将其读取者保留为 FP32 或 BF16，或用更小的常量（例如掩码用 -65504）。",
    "Quantise the model again, with a larger range if it clips.": "重新量化模型，在截断处用更大的范围。",
    "Give both the scale and the zero point that its values were quantised with.": "两处使用同一 scale 与零点。",
    "Exclude it from quantisation (in ONNX Runtime nodes_to_exclude, or QDQKeepRemovableActivations).":
        "将其排除在量化之外（ONNX Runtime 中为 nodes_to_exclude 或 QDQKeepRemovableActivations）。",
    "Quantise the model again, with per-tensor weights or a larger scale there.":
        "重新量化模型，该处用逐张量权重或更大的 scale。",
    "Report it to the developers of the tool that wrote the second file, and use the first file.":
        "向写出第二个文件的工具的开发者报告，并使用第一个文件。",
    "Use --option observe=marks.": "使用 --option observe=marks。",
    "Use ov_opt_fp32 to see it in float32, or set INFERENCE_PRECISION_HINT where the model is deployed.":
        "用 ov_opt_fp32 查看 float32 的结果，或在部署处设置 INFERENCE_PRECISION_HINT。",
    "Use precision_debug.watch(config).": "使用 precision_debug.watch(config)。",
    "Use precision_debug.watch, or the command line.": "使用 precision_debug.watch 或命令行。",
    "Use run modes whose tensors can be replaced (ONNX Runtime on the CPU, eager PyTorch).": _REPLACE,
    "Use the mode ort_fp16_sim, or a GPU.": "使用 ort_fp16_sim 模式，或使用 GPU。",
    "Use trt_fp32 to forbid TF32.": "使用 trt_fp32 以禁用 TF32。",
    "Nothing to do if it is deployed like this. To judge module.to(), write a factory FILE.py:FUNCTION.":
        "若即如此部署，无需处理。要评估 module.to()，请编写工厂函数 FILE.py:FUNCTION。",
    "If it is deployed with from_pretrained, use the folder that save_pretrained writes.":
        "若由 from_pretrained 部署，请给出 save_pretrained 所写的文件夹。",
    "Use --run_mode torch_compile to judge the compiled model.":
        "给出 --run_mode torch_compile 以评估编译后的模型。",
    "Check the condition before these lines: it reads a type, or a value that rounding changes.":
        "查看这些行之前的条件：它读取了类型，或会因舍入而改变的值。",
    "Write the report to a separate folder.": "把报告写到单独的文件夹。",
    "Compare what the two branches compute: the compiled model is another one.":
        "比较两个分支的计算：编译后的模型与原模型不同。",
    "Call .eval() in the factory, or use --option training=1 to run it as it is.":
        "在工厂函数中调用 .eval()，或使用 --option training=1 按原样运行。",
    "Check requires_grad, and whether a detach() or no_grad() lies between the parameter and the loss.":
        "检查 requires_grad，以及参数与损失之间是否有 detach() 或 no_grad()。",
    "Compare both files by a run: --model_file M2 --baseline_model M.":
        "实际运行以比较两个文件：--model_file M2 --baseline_model M。",
    "Compare by a run.":
        "请实际运行来比较。",
    "Find where the NaN or Inf first appears, or use a smaller --option loss_scale.":
        "查明 NaN 或 Inf 最先出现之处，或使用更小的 --option loss_scale。",
    "Name files and modules plainly in the script, and start no other program from it.":
        "在脚本中直接写明文件与模块的名称，且不要由它启动其他程序。",
    "Name the original first.":
        "请把原始文件写在前面。",
    "To run one in {type} all the same, use --layer_precisions NODE:TYPE.":
        "若仍要以 {type} 运行其中某个算子，请使用 --layer_precisions NODE:TYPE。",
    "Use --tf32 0 to forbid TF32.":
        "使用 --tf32 0 以禁用 TF32。",
    "Use inputs of numbers: no range can be taken of these.":
        "请使用由数值构成的输入：无法由这些输入得出取值范围。",
}  # fmt: skip
