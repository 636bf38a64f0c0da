"""What a reader can do about a reason, in Chinese: the English sentence of ``Wording.do`` to its counterpart."""

from __future__ import annotations

from collections.abc import Mapping

from .causes import DO_ABOUT_CAUSES

__all__ = ["WHAT_TO_DO"]

_REPLACE = "请使用可替换张量的运行模式（CPU 上的 ONNX Runtime、动态图 PyTorch）。"

WHAT_TO_DO: Mapping[str, str] = {
    "Export the model to ONNX for it.": "为此将模型导出为 ONNX。",
    "Give --second_opinion.": "加上 --second_opinion。",
    "Install onnx or openvino.": "安装 onnx 或 openvino。",
    "Nothing, where that is 0.": "若为 0，无需处理。",
    "As above.": "同上。",
    **DO_ABOUT_CAUSES,
    "As the part after the colon says.": "照冒号后的部分所说。",
    "Ask for it alone with --mark, or compare with the mode ort_fp32, whose layouts are the model's own.":
        "用 --mark 单独取它，或与布局和模型一致的 ort_fp32 比较。",
    "Build it with profiling verbosity DETAILED.": "以 profiling verbosity DETAILED 构建。",
    "Check the input, the weights and the model before the precision.": "先检查输入、权重与模型，再看精度。",
    "Choose another mode, or a larger model or batch.": "换一个模式，或用更大的模型或 batch。",
    "Compare its inputs and outputs.": "比较它的输入与输出。",
    "Compare the modes of eager PyTorch: torch_fp32, torch_fp16, torch_bf16 and their like.":
        "比较动态图 PyTorch 的模式：torch_fp32、torch_fp16、torch_bf16 等。",
    "Compare with the float model that the file was made from: --baseline_model.":
        "与生成该文件的浮点模型比较：--baseline_model。",
    "Dump it too; `precision_debug dumps` says what is left over.":
        "一并导出该张量；`precision_debug dumps` 会列出剩余部分。",
    "Give --atol and --rtol where it is not.": "若不是，请给出 --atol 与 --rtol。",
    "Give a tensors.json beside them.": "在旁边放一个 tensors.json。",
    "`precision_debug dumps DIR --model_file M` lists the pairs.":
        "`precision_debug dumps DIR --model_file M` 会列出配对。",
    "`precision_debug dumps` says why of each.": "`precision_debug dumps` 会逐一说明原因。",
    "Nothing: converters do so (NHWC for NCHW).": "无需处理：转换器会如此（NHWC 代替 NCHW）。",
    "Compare with a model that was not converted or quantised.": "与未经转换或量化的模型比较。",
    "Compare with ort_fp32 in place of onnx_ref.": "改与 ort_fp32 比较，而不是 onnx_ref。",
    "Compare with the model itself as the baseline.": "以模型本身为基线进行比较。",
    "Compile it with the same INFERENCE_PRECISION_HINT.": "以相同的 INFERENCE_PRECISION_HINT 编译。",
    "Deploy what --save_model writes.": "部署 --save_model 写出的模型。",
    "Exclude fewer nodes.": "少排除一些节点。",
    "Export it with a later opset.": "以更高的 opset 导出。",
    "Export it with that opset.": "以该 opset 导出。",
    "Export the model again, or compare with the checkpoint that it was made of.":
        "重新导出模型，或与导出它的检查点比较。",
    "Give --explain full.": "加上 --explain full。",
    "Give --fused_only, or mark fewer tensors, where the fusion must stay.":
        "若必须保持融合，请加 --fused_only 或少标记张量。",
    "Give --held_out.": "加上 --held_out。",
    "Give --input_shapes.": "加上 --input_shapes。",
    "Give --min_shapes, --opt_shapes and --max_shapes.": "给出 --min_shapes、--opt_shapes 和 --max_shapes。",
    "Give --option tf32=True to see it.": "用 --option tf32=True 观察它。",
    "Give --option training=1.": "加上 --option training=1。",
    "Give --option use_tf32=0.": "加上 --option use_tf32=0。",
    "Give --precision_constraints obey where layers do not obey.": "层未遵守时，加上 --precision_constraints obey。",
    "Give --rename TARGET=BASELINE where this is wrong.": "若配对有误，用 --rename 目标名=基线名。",
    "Give --val_range NAME:LOW,HIGH, or real --inputs.": "用 --val_range 名称:下限,上限，或给真实的 --inputs。",
    "Give a --baseline to compare.": "给出 --baseline 以便比较。",
    "Give a smaller --atol.": "用更小的 --atol。",
    "Give an --atol below the RMS of the tensor.": "用小于该张量均方根的 --atol。",
    "Give an input that fills it.": "给出能填充它的输入。",
    "Give an input with which the branch is taken.": "给出会走该分支的输入。",
    "Give an input without them.": "给出不含它们的输入。",
    "Give it with --inputs.": "用 --inputs 给出。",
    "Give more inputs to calibrate on.": "给出更多校准输入。",
    "Give real --inputs.": "给真实的 --inputs。",
    "Give the --atol that the sentence names.": "用该句中给出的 --atol。",
    "Give the ONNX file in place of the engine.": "给出 ONNX 文件，而不是引擎。",
    "Give the inputs the other way round.": "交换输入的顺序。",
    "Give the module itself in place of the exported program.": "给出模块本身，而不是导出的程序。",
    "Give your converter the types that ONNX Runtime infers.": "把 ONNX Runtime 推断的类型交给转换器。",
    "Install onnxruntime 1.24 or later.": "安装 onnxruntime 1.24 或更高版本。",
    "Keep fewer nodes.": "少保留一些节点。",
    "Keep the operators that read them in float32, or scale the weights.":
        "将读取它们的算子保留为 float32，或缩放权重。",
    "Keep those layers in FP32, or use BF16.": "将这些层保留为 FP32，或使用 BF16。",
    "Leave --fail_fast out.": "去掉 --fail_fast。",
    "Leave --option tf32 out.": "去掉 --option tf32。",
    "Leave --val_range out.": "去掉 --val_range。",
    "Leave it out.": "去掉它。",
    "Leave marks out to compare every tensor.": "去掉标记即可比较全部张量。",
    "Look at dynamic dimensions, layouts and how the model was exported, before the precision.":
        "先检查动态维度、布局与导出方式，再看精度。",
    "Look at its neighbours, or try another TensorRT.": "检查相邻的层，或换一个 TensorRT 版本。",
    "Look at its outputs.": "看它的输出。",
    "Look at the log for why; lower --option min_subgraph_size.": "在日志中找原因；减小 --option min_subgraph_size。",
    "Look at the operator that is named first: what comes after it may only follow from it.":
        "先看最先指出的算子：其后的可能只是由它引起。",
    "Look at the row of that node.": "看该节点所在的行。",
    "Look at the row's error growth: above 1 the operator lost the precision itself.":
        "看该行的误差放大倍数：大于 1 说明该算子自身损失了精度。",
    "Look at the tensors around it.": "看它周围的张量。",
    "Look at the tensors that are made of it.": "看由它得出的张量。",
    "Look at what the loop or branch gives.": "看循环或分支的输出。",
    "Look for overflow, and at division, square root, logarithm and exponential.":
        "查找溢出，并检查除法、开方、对数与指数。",
    "Give --option marked_builds=N: each further build shows one more tensor of every part.":
        "给出 --option marked_builds=N：每多构建一次，每个部分多显示一个张量。",
    "Mark few tensors, or use trt_fp16.": "少标记张量，或使用 trt_fp16。",
    "Name fewer tensors (--marks_between, --mark), or keep the engine that ships: --option use_static=True --option"
    " cache_dir=DIR.": "少标记张量（--marks_between、--mark），或保留部署用的引擎：--option use_static=True"
        " --option cache_dir=DIR。",
    "Name what reads them too: a layer writes the type that its readers compute in.":
        "把读取它们的层也写上：层按读取者的计算类型输出。",
    "Nothing where it was fused; else: Pair it with --rename where it has another name on the other side.":
        "若已被融合则无需处理；否则若另一侧名字不同，用 --rename 配对。",
    "Nothing: compare with a run of the same engine to see them.":
        "无需处理：与同一引擎的另一次运行比较即可看到它们。",
    "Nothing: its numbers are compared in another row, or there is nothing to compare.":
        "无需处理：其数值在另一行比较，或没有可比较的内容。",
    "Nothing: there is nothing to compare.": "无需处理：没有可比较的内容。",
    "Nothing: they were asked for by keep_modules.": "无需处理：由 keep_modules 要求。",
    "Pair it with --rename where it has another name on the other side.": "若另一侧名字不同，用 --rename 配对。",
    "Go by the final outputs.": "以最终输出为准。",
    "Pair names with --rename.": "用 --rename 配对名字。",
    "Pair tensors with --rename where values cannot tell them apart.": "数值无法区分时，用 --rename 配对张量。",
    "Pair them with --rename.": "用 --rename 配对。",
    "Raise --memory_budget for speed.": "增大 --memory_budget 以加快速度。",
    "Raise --option mark_builds to look for more.": "增大 --option mark_builds 以查找更多。",
    "Raise --option mark_builds.": "增大 --option mark_builds。",
    "Read the message of the engine.": "阅读引擎给出的信息。",
    "Read the reasons of the rows; pair names with --rename.": "阅读各行的原因；用 --rename 配对名字。",
    "Record another one with --sample NUMBER.": "用 --sample 编号 录制另一个。",
    "Record the run again without marks.": "去掉标记后重新录制。",
    "Remove the cache.": "删除缓存。",
    "Remove the search's folder to compare anew.": "删除搜索的文件夹后重新比较。",
    "Remove the table to calibrate anew.": "删除校准表后重新校准。",
    "Report this as a bug.": "请作为缺陷报告。",
    "Run another one alone with --sample NUMBER.": "用 --sample 编号 单独运行另一个。",
    "Scale the input down.": "缩小输入。",
    "See how the run ended.": "查看运行是怎样结束的。",
    "See how the run ended; what was finished before is in the report.":
        "查看运行是怎样结束的；此前完成的部分在报告里。",
    "See the notes of the run and the column of real precision; another mode or device may really do it.":
        "查看运行说明与实际精度一列；换一个模式或设备也许真正以该精度运行。",
    "Make the file again with a tool that does not do so, or mend the constant.":
        "用不会如此的工具重新生成文件，或修正该常量。",
    "Keep its readers in FP32 or BF16, or use a smaller constant (a mask of -65504, say).":
        "将其读取者保留为 FP32 或 BF16，或用更小的常量（例如掩码用 -65504）。",
    "Quantise the model again, with a larger range where it clips.": "重新量化模型，在截断处用更大的范围。",
    "Quantise the model again, with per-tensor weights or a larger scale there.":
        "重新量化模型，该处用逐张量权重或更大的 scale。",
    "Report it to the developers of the tool that wrote the second file, and use the first.":
        "向写出第二个文件的工具的开发者报告，并使用第一个文件。",
    "Use --option observe=marks.": "使用 --option observe=marks。",
    "Use ov_opt_fp32 to see it in float32, or set INFERENCE_PRECISION_HINT where the model is deployed.":
        "用 ov_opt_fp32 查看 float32 的结果，或在部署处设置 INFERENCE_PRECISION_HINT。",
    "Use precision_debug.watch(config).": "使用 precision_debug.watch(config)。",
    "Use precision_debug.watch, or the command line.": "使用 precision_debug.watch 或命令行。",
    "Use run modes whose tensors can be replaced (ONNX Runtime on the CPU, eager PyTorch).": _REPLACE,
    "Use the mode ort_fp16_sim, or a GPU.": "使用 ort_fp16_sim 模式，或使用 GPU。",
    "Use trt_fp32 to forbid TF32.": "使用 trt_fp32 以禁用 TF32。",
    "Nothing, where it is deployed so. To judge module.to(), write a factory FILE.py:FUNCTION.":
        "若即如此部署，无需处理。要评估 module.to()，请编写工厂函数 FILE.py:FUNCTION。",
    "Where it is deployed by from_pretrained, give the folder that save_pretrained writes.":
        "若由 from_pretrained 部署，请给出 save_pretrained 所写的文件夹。",
    "Give --run_mode torch_compile to judge what is compiled.":
        "给出 --run_mode torch_compile 以评估编译后的模型。",
    "Look at the condition before these lines: it reads a value that rounding changes.":
        "查看这些行之前的条件：它读取了会因舍入而改变的值。",
    "Write the report into a folder of its own.": "把报告写到单独的文件夹。",
}  # fmt: skip
