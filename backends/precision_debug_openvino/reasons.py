"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_HOME = "Nothing to do: its values are compared in another row, or there is nothing to compare."
_ROUND = "See the tensors around it."

REASONS = Catalogue("openvino", {
    # a model or a device that is not there
    "cannot_read": Wording("OpenVINO cannot read it ({error})", "OpenVINO 无法读取它（{error}）"),
    "a_folder": Wording("is a folder, not a model file", "是文件夹，而不是模型文件"),
    "give_a_file": Wording(
        "give a file that OpenVINO reads: .onnx .xml .pdmodel .pb .tflite",
        "请给出 OpenVINO 可读取的文件：.onnx .xml .pdmodel .pb .tflite",
    ),
    "file_inside": Wording("name the file inside it: {names}", "请指定其中的文件：{names}"),
    "reads_these": Wording(
        "OpenVINO reads .onnx, .xml, .pdmodel, .pb and .tflite; another engine's mode may read this one",
        "OpenVINO 可读取 .onnx、.xml、.pdmodel、.pb 与 .tflite；其他引擎的模式或许能读取此文件",
    ),
    "not_rounded_from": Wording(
        "no weight in FP16 is one of {name}, rounded", "没有任何 FP16 权重是由 {name} 的权重舍入而来"
    ),
    "no_device": Wording("there is no device {name}", "没有设备 {name}"),
    "has_devices": Wording("OpenVINO has {names} here", "此处 OpenVINO 可用的设备：{names}"),
    # what a run mode needs
    "lacks_precision": Wording(
        "{device} does not compute in {precision}, and OpenVINO would run it in FP32 there",
        "{device} 不支持以 {precision} 计算，OpenVINO 会在其上以 FP32 运行",
    ),
    "other_device": Wording("use ov_opt, or another --device", "请使用 ov_opt，或换一个 --device"),
    "needs_bf16": Wording(
        "a CPU with BF16 (avx512_bf16 or amx_bf16), or another --device that has it",
        "需要支持 BF16 的 CPU（avx512_bf16 或 amx_bf16），或支持它的其他 --device",
    ),
    "needs_fp16": Wording(
        "a CPU with FP16 (avx512_fp16 or amx_fp16), or another --device that has it",
        "需要支持 FP16 的 CPU（avx512_fp16 或 amx_fp16），或支持它的其他 --device",
    ),
    "without_nncf": Wording(
        "models that are quantised already (QDQ, FakeQuantize) alone: NNCF, which quantises others, is not installed;"
        " pip install nncf",
        "仅限已量化的模型（QDQ、FakeQuantize）：用于量化其他模型的 NNCF 未安装；pip install nncf",
    ),
    # why a tensor is not seen
    "disturbs": Wording(
        "OpenVINO would compute it differently if it were shown", "若显示它，OpenVINO 会以另一种方式计算", _ROUND
    ),
    "inside": Wording(
        "it lies inside {kind} {name}, whose layers OpenVINO does not report",
        "位于 {kind} {name} 内部，OpenVINO 不说明其中的层", _ROUND,
    ),
    "constant": Wording(
        "OpenVINO removes it: there it is a constant, or nothing reads it",
        "OpenVINO 将其省去：在那里它是常量，或没有算子读取它", _HOME, whole=True,
    ),
    "not_entered": Wording(
        "in a branch or loop body that this run did not enter", "位于本次运行未进入的分支或循环体内",
        "Use an input that takes the branch.", whole=True,
    ),
    # notes of a run
    "chose": Wording(
        "OpenVINO itself chose {precision} on this device (INFERENCE_PRECISION_HINT); its layers: {layers}.",
        "OpenVINO 在该设备上自行选择了 {precision}（INFERENCE_PRECISION_HINT）；其各层：{layers}。",
        "Use ov_opt_fp32 to see it in float32, or set INFERENCE_PRECISION_HINT where the model is deployed.",
    ),
    "given": Wording(
        "INFERENCE_PRECISION_HINT is {precision}, as it was given; its layers: {layers}.",
        "INFERENCE_PRECISION_HINT 按给定为 {precision}；其各层：{layers}。",
    ),
    "kept": Wording(
        "keep_fp32: the {all} {all:layer that holds|layers that hold} these operators {all:runs|run} in float32.",
        "keep_fp32：含有这些算子的 {all} 个层以 float32 运行。", _HOME,
    ),
    "kept_not": Wording(
        "keep_fp32: {wide} of the {all} {all:layer|layers} that hold these operators run in float32, but {left}"
        " do not.",
        "keep_fp32：含有这些算子的 {all} 个层中有 {wide} 个以 float32 运行，{left} 没有。",
        "Also name the operators that read them: a layer writes the type that its readers compute in.",
    ),
    "written": Wording(
        "The compared model was written to {path}.", "参与对比的模型已写入 {path}。",
        "Compile it with the same INFERENCE_PRECISION_HINT.",
    ),
    "fixed_shapes": Wording(
        "OpenVINO cannot compile it with dynamic shapes ({why}): it runs with the shapes of the input.",
        "OpenVINO 无法以动态形状编译它（{why}）：按输入的形状运行。",
        "Fix the shapes in deployment too: model.reshape, or ovc --input.",
    ),
    "own_quantisation": Wording("Quantised as specified by the model itself.", "按模型自身的量化运行。", _HOME),
    "no_bias_correction": Wording(
        "NNCF could not correct the biases ({error}), so that they were left as they are",
        "NNCF 无法校正偏置（{error}），因此偏置保持不变",
    ),
    "by_nncf": Wording(
        "Quantised by NNCF {version}, calibrated on {count} of the inputs.",
        "由 NNCF {version} 量化，用 {count} 份输入校准。", "Provide more inputs to calibrate on.",
    ),
    "idle_branch": Wording(
        "No input enters the {branch} branch of {name}: NNCF had nothing to calibrate it with, and it stays in"
        " float32.",
        "没有输入进入 {name} 的 {branch} 分支：NNCF 无从校准，该分支保留为 float32。",
        "Add an input that enters it.",
    ),
    "rows_of_constants": Wording(
        "NNCF {version} fails on lookups of constants by constants; these were left out: {nodes}",
        "NNCF {version} 无法处理以常量索引常量表的算子；已排除：{nodes}",
    ),
    "not_by_nncf": Wording("NNCF {version} could not quantise it ({error})", "NNCF {version} 无法量化它（{error}）"),
    "quantise_it_yourself": Wording(
        "give a file that is quantised already (QDQ, FakeQuantize), or use another engine's INT8 mode, which"
        " `precision_debug doctor` lists; ov_opt and ov_opt_fp32 compare the model as it is",
        "请给出已量化的文件（QDQ、FakeQuantize），或改用其他引擎的 INT8 模式（见 `precision_debug doctor`）；ov_opt 与"
        " ov_opt_fp32 可对比未量化的模型",
    ),
    "alone": Wording(
        "When run alone, {count} {count:operator is|operators are} in different layers from those in the engine"
        " itself ({some}): their"
        " introduced errors may differ.",
        "单独运行时有 {count} 个算子所在的层与引擎本身不同（{some}）：它们自身引入的误差可能有出入。", _ROUND,
    ),
    "taps_of_floats": Wording(
        "OpenVINO cannot compile the model with a tap on every tensor ({why}): integer and boolean tensors are shown"
        " by a side path, and are not replaced when operators run alone.",
        "若每个张量都带观测算子，OpenVINO 无法编译该模型（{why}）：整数与布尔张量改由旁路显示，单独运行算子时不替换它"
        "们。",
    ),
    "results_instead": Wording(
        "OpenVINO cannot compile the model with taps in it ({why}): tensors are shown as additional results, and no"
        " operator is run alone.",
        "加入观测算子后 OpenVINO 无法编译该模型（{why}）：张量作为额外的结果给出，不单独运行算子。",
    ),
    "other_bits": Wording(
        "The run that showed tensors gave slightly different outputs {names}: its tensors are close to those of the"
        " plain run, whose outputs are compared, but not necessarily identical.",
        "显示张量的运行在输出 {names} 中给出了不同的比特：其张量接近但不一定等于普通运行的张量，输出取自普通运行。",
        _ROUND,
    ),
    "other_layers": Wording(
        "Showing tensors changes the layers of {count} {count:operator|operators}, for example {some}.",
        "显示张量会改变 {count} 个算子所在的层，其中有 {some}。", _ROUND,
    ),
    # what a search gives away
    "handed_ir": Wording(
        "OpenVINO IR: what stays in float32 is marked in it",
        "OpenVINO IR：其中标出了保留为 float32 的部分",
    ),
    "handed_api": Wording(
        "OpenVINO's Python API",
        "OpenVINO 的 Python API",
    ),
    "handed_scope": Wording(
        "Python to paste into your own quantisation script; the setting above is what was run",
        "可粘贴到您自己的量化脚本；实际运行的是上述设置",
    ),
    "handed_compiles": Wording(
        "compiles the IR above",
        "编译上面的 IR",
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
