"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_HOME = "Nothing to do: its values are compared in another row, or there is nothing to compare."
_ASK = "Request it alone with --mark, or compare in the mode ort_fp32, which keeps the model's layouts."
_KEEP = "Keep the operators that read them in float32, or scale the weights."
_REFERENCE = "Compare with ort_fp32 instead of onnx_ref."

REASONS = Catalogue("onnxruntime", {
    "no_plugin_named": Wording(
        "ort_ep runs any plugin provider and none is named", "ort_ep 可运行任意插件，但未指定是哪一个"
    ),
    # what a run mode needs
    "needs_wheel_with_tap": Wording(
        "the pure-Python wheel needs onnxruntime-extensions, which has no wheel for Python 3.14: install"
        " precision_debug's wheel for this platform, or install from source with a C compiler",
        "纯 Python 安装包依赖 onnxruntime-extensions，而它没有 Python 3.14 版：请安装本平台的 precision_debug 安装包，"
        "或在有 C 编译器处从源码安装",
    ),
    "python_taps": Wording(
        "without a C compiler, tensors are shown and exchanged through onnxruntime-extensions, in Python: the same"
        " numbers and findings, slower; install the wheel of this platform, or reinstall where a C compiler is on PATH",
        "没有 C 编译器，张量经 onnxruntime-extensions 以 Python 显示和替换：数值与结论相同，但较慢；请安装本平台的"
        "安装包，或在有 C 编译器处重新安装",
    ),
    "sums_saturate": Wording(
        "on this processor ONNX Runtime adds two products of 8-bit numbers in 16 bits, where they saturate: in"
        " ort_int8, ort_int8_dynamic, and what is quantised already in ort_opt; `{switch}` makes these sums exact",
        "在此处理器上，ONNX Runtime 以 16 位累加两个 8 位乘积，会饱和：影响 ort_int8、ort_int8_dynamic 以及 ort_opt"
        " 中已量化的模型；`{switch}` 使这些求和精确",
    ),
    "needs_onnxruntime": Wording(
        "a newer onnxruntime than {version} (1.16 or later)", "需要比 {version} 更新的 onnxruntime（1.16 及以上）"
    ),
    "needs_cuda": Wording("needs onnxruntime-gpu and an NVIDIA GPU", "需要 onnxruntime-gpu 和 NVIDIA GPU"),
    "needs_tensorrt": Wording(
        "needs onnxruntime-gpu with TensorRT's libraries installed and an NVIDIA GPU",
        "需要 onnxruntime-gpu、TensorRT 的库和 NVIDIA GPU",
    ),
    "needs_plugins": Wording(
        "needs ONNX Runtime 1.23 or later, but this is {version}", "需要 ONNX Runtime 1.23 或更新版本，当前为 {version}"
    ),
    "needs_package": Wording("pip install {package} ({error})", "请运行 pip install {package}（{error}）"),
    "no_ep_device": Wording(
        "{provider} is loaded but offers no device on this machine", "{provider} 已加载，但在本机没有可用设备"
    ),
    "inside_body": Wording(
        "inside a loop or branch, which the provider compiles as a whole", "位于循环或分支内，提供程序将其作为整体编译"
    ),
    "shapes_fixed": Wording(
        "The provider requires fixed shapes: those of the inputs were written into the model ({names}).",
        "该提供程序要求固定形状：已将输入的形状写入模型（{names}）。",
    ),
    "marked_beside": Wording(
        "{count} intermediate {count:tensor comes|tensors come} from a second session that has them all as"
        " outputs; its final outputs"
        " differ from those of the unmarked session by at most {gap:.3g}.",
        "{count} 个中间张量来自把它们全部标记为输出的第二个会话；其最终输出与未标记会话最多相差 {gap:.3g}。",
    ),
    "marked_shares": Wording("With the marks: {shares}", "标记后：{shares}"),
    "no_plugin_file": Wording("there is no such library", "没有这个库"),
    "name_plugin_file": Wording(
        "name the provider's library by its path (the Python package that brings it knows it: get_library_path())",
        "请用路径指定提供程序的库（其 Python 包的 get_library_path() 会给出）",
    ),
    "provider_fails": Wording("{provider} does not start: {error}", "{provider} 无法启动：{error}"),
    "provider_libraries": Wording(
        "{provider} cannot load its libraries ({error}); install them, or name their folder in {variable}",
        "{provider} 无法加载其库（{error}）；请安装，或在 {variable} 中给出其目录",
    ),
    "provider_stays_away": Wording(
        "{provider} does not start, so ONNX Runtime continues without it (are its libraries and a device available?)",
        "{provider} 未启动，ONNX Runtime 在没有它的情况下继续（其库和设备是否都在？）",
    ),
    # why a tensor is not seen
    "not_entered": Wording(
        "in a branch or loop body that this run did not enter", "位于本次运行未进入的分支或循环体内",
        "Use an input that takes the branch.", whole=True,
    ),
    "repeats": Wording("inside a branch or loop, a copy of {name}", "在分支或循环内重复 {name}", _HOME, whole=True),
    "same_as": Wording("holds the same values as {name}", "与 {name} 数值相同", _HOME, whole=True),
    "constant": Wording("a constant of the model in another form", "模型常量的另一种形式", _HOME, whole=True),
    "feed": Wording(
        "the input itself; it is compared after it has been rounded", "即输入本身；舍入之后再比较", _HOME, whole=True
    ),
    "dropped": Wording(
        "ONNX Runtime removes it when loading the model: it changes nothing, or nothing reads it",
        "ONNX Runtime 加载模型时将其省去：它不改变数值，或没有算子读取它", _HOME, whole=True,
    ),
    "strings": Wording(
        "a string tensor: only the model's outputs of this type are shown", "字符串张量：仅显示模型输出", _HOME,
        whole=True,
    ),
    "no_tensor": Wording("not a tensor", "不是张量", _HOME, whole=True),
    "kind": Wording("a {kind}, not a tensor", "类型为 {kind}，不是张量", _HOME, whole=True),
    "no_type": Wording("ONNX Runtime did not report its type", "ONNX Runtime 未给出其类型", _ASK),
    "layout": Wording(
        "the optimiser changed its layout in an unknown way", "优化器以未知方式改变了其布局", _ASK
    ),
    "no_cast": Wording("{dtype} has no cast in ONNX Runtime", "ONNX Runtime 不能转换 {dtype}", _ASK),
    "blocks": Wording(
        "in NCHWc blocks, with an unknown number of real channels",
        "为 NCHWc 分块布局，实际通道数未知", _ASK,
    ),
    "no_opinion": Wording(
        "no second opinion for this operator: {why}", "该算子没有第二意见：{why}", _REFERENCE
    ),
    "reference_lacks": Wording("onnx.reference does not implement it", "onnx.reference 没有实现它", _REFERENCE),
    "reference_fails": Wording("onnx.reference fails on it", "onnx.reference 在其中失败", _REFERENCE),
    "reference_wrong": Wording(
        "onnx.reference's implementation is wrong in this case", "onnx.reference 在此情形下的实现有误", _REFERENCE
    ),
    "reference_ignores": Wording(
        "onnx.reference ignores its {names}", "onnx.reference 忽略了它的 {names}", _REFERENCE
    ),
    "reference_shape": Wording(
        "its shape in onnx.reference differs from the one onnx infers", "onnx.reference 给出的形状与 onnx 推断的不符",
        _REFERENCE,
    ),
    "random": Wording("its values are random", "其数值是随机的", _REFERENCE),
    # of a run
    "by_reference": Wording("computed by onnx.reference in float64", "由 onnx.reference 以 float64 计算"),
    "by_reference_but": Wording(
        "computed by onnx.reference in float64, except for {count} {count:node|nodes} that only take float32: {nodes}",
        "由 onnx.reference 以 float64 计算，仅接受 float32 的 {count} 个节点除外：{nodes}",
    ),
    "without_opinion": Wording(
        "no second opinion on {count} {count:node|nodes}, which ONNX Runtime computed from their inputs: {nodes}",
        "{count} 个节点没有第二意见，由 ONNX Runtime 根据其输入计算：{nodes}", _REFERENCE,
    ),
    "nodes_in_float16": Wording(
        "{half} of {all} floating-point {all:node|nodes} {half:computes|compute} in float16 and {single} in"
        " float32 ({casts} {casts:Cast|Casts})",
        "{all} 个浮点节点中有 {half} 个以 float16 计算，{single} 个以 float32 计算（{casts} 个 Cast）",
    ),
    "float16_on_cpu": Wording(
        "float16 on the CPU is not real float16: {nodes}; weights are rounded but most activations are not, so an"
        " activation that would overflow float16 on a GPU goes unnoticed; ort_fp16_sim shows it",
        "CPU 上的 float16 并非 float16：{nodes}；权重被舍入，多数激活没有，GPU 上溢出 float16 的激活也看不出来；"
        "ort_fp16_sim 可以看出", "Use the mode ort_fp16_sim, or a GPU.", wider=True,
    ),
    "file_in_float32_on_cpu": Wording(
        "the file asks for float16, but {single} of its {all} float16 {all:operator runs|operators run} in float32"
        " here: ONNX Runtime has few float16 kernels on a CPU. Nothing is rounded between them, and an activation that"
        " would overflow float16 on a GPU goes unnoticed; ort_fp16_sim shows it",
        "文件要求 float16，但其 {all} 个 float16 算子中有 {single} 个在此以 float32 运行：ONNX Runtime 在 CPU 上的"
        " float16 内核很少。其间不做舍入，GPU 上会溢出 float16 的激活也看不出来；ort_fp16_sim 可以看出",
        "Use the mode ort_fp16_sim, or a GPU.", wider=True,
    ),
    "multiplied_in_float32": Wording(
        "{count} MatMulNBits {count:multiplies|multiply} in float32 in this run: the file's accuracy_level 4, which"
        " multiplies in int8, is what is compared with it",
        "本次运行中 {count} 个 MatMulNBits 以 float32 相乘：文件中的 accuracy_level 4（以 int8 相乘）是与之对比的对象",
    ),
    "sums_made_exact": Wording(
        "{count} {count:product|products} of 8-bit numbers {count:has|have} exact sums in this run, by unsigned"
        " weights: on this processor ONNX Runtime's kernel of signed ones saturates",
        "本次运行中 {count} 个 8 位乘积以无符号权重精确求和：在此处理器上，ONNX Runtime 对有符号权重的内核会饱和",
    ),
    "sums_not_exact": Wording(
        "products of 8-bit numbers have inexact sums in this run: on this processor ONNX Runtime's kernel of signed"
        " weights saturates, and they are too large to be made unsigned here (over {gigabytes:.2g} GB); what saturates"
        " in the target alike does not show",
        "本次运行中 8 位乘积的求和不精确：在此处理器上，ONNX Runtime 对有符号权重的内核会饱和，而这些权重过大（超过"
        " {gigabytes:.2g} GB），无法在此改为无符号；目标中同样的饱和不会显现",
    ),
    "kept_runs": Wording(
        "--option {option}: tried, the model is made and loads with it", "--option {option}：已试，这样可以生成并加载"
    ),
    "own_types_told": Wording(
        "the model from the stock converter does not load; it was given the types that ONNX Runtime infers, and your"
        " converter needs them too ({detail})",
        "标准转换器生成的模型无法加载；已为其提供 ONNX Runtime 推断的类型，您的转换也需要这些类型（{detail}）",
        "Pass the types that ONNX Runtime infers to your converter.", departs=True,
    ),
    "all_kept": Wording(
        "everything that could be float16 is kept in float32: the model is unchanged",
        "可转为 float16 的部分全部保留为 float32：模型未变", "Keep fewer nodes.",
    ),
    "round_trips_cut": Wording(
        "{count} {count:value|values} between nodes kept in float32 {count:stays|stay} float32 too: the stock"
        " converter's node_block_list would"
        " cast them to float16 and back (--save_model keeps the model that was compared)",
        "保留为 float32 的节点之间的 {count} 个值也是 float32：标准转换器自身的 node_block_list 会将其转为 float16 再"
        "转回（--save_model 可保存参与对比的模型）", "Deploy the model that --save_model writes.",
    ),
    "round_trips_stock": Wording(
        "this was run with {count} {count:value|values} between these nodes in float32 too; onnxruntime's own"
        " convert_float_to_float16, given the same node_block_list, casts {count:it|them} to float16 and back, which"
        " can undo that: deploy the model that this command writes with the option, `--run_mode ort_fp16` and"
        " `--save_model FILE`",
        "运行时这些节点之间的 {count} 个值也是 float32；onnxruntime 自身的 convert_float_to_float16 用同一"
        " node_block_list 会将其转为 float16 再转回，可能使之失效：请部署此命令加上该选项、`--run_mode ort_fp16` 和"
        " `--save_model 文件` 写出的模型", "Deploy the model that --save_model writes.",
    ),
    "weights_beyond_clamped": Wording(
        "{count} {count:weight exceeds|weights exceed} float16's maximum of 65504 and {count:is|are} clamped to"
        " it by the converter: {names}",
        "{count} 个权重超过 float16 的 65504，转换器将其截断：{names}", _KEEP,
    ),
    "weights_below_raised": Wording(
        "{count} {count:weight is|weights are} below float16's smallest value and {count:is|are} raised to"
        " 5.96e-08 by the converter: {names}",
        "{count} 个权重小于 float16 的最小数，转换器将其提升到 5.96e-08：{names}", _KEEP,
    ),
    "weights_subnormal": Wording(
        "{count} {count:weight lies|weights lie} in {type}'s subnormal range and {count:loses|lose} digits: {names}",
        "{count} 个权重位于 {type} 的次正规范围，会丢失有效位：{names}", _KEEP,
    ),
    "weights_overflow": Wording(
        "{count} {count:weight exceeds|weights exceed} {type}'s maximum of {limit} and {count:becomes|become}"
        " infinite: {names}",
        "{count} 个权重超过 {type} 的 {limit}，溢出为无穷：{names}", _KEEP,
    ),
    "weights_below": Wording(
        "{count} {count:weight is|weights are} below {type}'s smallest value and {count:becomes|become} 0"
        " or that value: {names}",
        "{count} 个权重小于 {type} 的最小数，变为 0 或该数：{names}", _KEEP,
    ),
    "opset_raised": Wording(
        "converted from opset {have} to {opset} by onnx.version_converter, because {why} needs it",
        "由 onnx.version_converter 从 opset {have} 转换到 {opset}，因为 {why} 需要",
        "Export it with that opset.",
    ),
    "quantised_dynamic": Wording(
        "dynamic quantisation: weights {weight} {how}, activations uint8 with the range of each run",
        "动态量化：权重 {weight} {how}，激活按每次运行自身的范围量化为 uint8",
    ),
    "quantised_4_bits": Wording(
        "weights of 4 bits by ONNX Runtime's quantiser (MatMulNBits), {block} {block:element|elements} to a scale",
        "由 ONNX Runtime 的量化器生成 4 位权重（MatMulNBits），每 {block} 个元素共用一个缩放因子",
    ),
    "quantised": Wording(
        "quantised by onnxruntime.quantization (QDQ): activations {activation}, weights {weight} {how}, ranges by"
        " {method} over {count} {count:sample set|sample sets}",
        "由 onnxruntime.quantization 量化（QDQ）：激活 {activation}，权重 {weight} {how}，范围以 {method} 取自"
        " {count}"
        " 组样本",
    ),
    "per_channel": Wording("per channel", "逐通道"),
    "per_tensor": Wording("per tensor", "逐张量"),
    "per_channel_in_vain": Wording(
        "per tensor (per channel was asked for, and the quantiser made no scale of a channel)",
        "逐张量（要求逐通道，但量化器未生成任何逐通道的缩放）",
        "onnxruntime's quantiser takes only initializers for weights: --option pre_process=true makes initializers of"
        " Constant nodes.",
    ),
    "per_tensor_opset": Wording(
        "per tensor (per channel needs opset {needs}, but the model has {opset})",
        "逐张量（逐通道需要 opset {needs}，模型为 {opset}）", "Export it with a later opset.",
    ),
    "broken_calibration": Wording(
        "inputs that calibrate the quantisation hold NaN or Inf: {names}",
        "校准量化所用的输入含有 NaN 或 Inf：{names}", "Use inputs of numbers: no range can be taken of these.",
    ),
    "calibration_born": Wording(
        "{op} `{name}` gives {what} for the inputs that calibrate the quantisation, and no range can be taken of that",
        "以校准量化所用的输入，{op} `{name}` 产生 {what}，无法由此取得范围",
    ),
    "all_excluded": Wording(
        "everything that could be quantised is excluded: the model is unchanged",
        "可量化的部分全部被排除：模型未变", "Exclude fewer nodes.",
    ),
    "not_folded": Wording(
        "the model was quantised as it is, without folding its constants", "模型按原样量化，未折叠其常量"
    ),
    "folded_first": Wording(
        "constants were folded before quantisation, which {called} does not do by itself; on the file as it is"
        " it does not get through: {detail}",
        "量化前已折叠常量，{called} 自身不会这样做；直接处理原文件无法完成：{detail}",
        "Run onnxruntime.quantization.shape_inference.quant_pre_process on the file first, or deploy the model that"
        " --save_model writes.", departs=True,
    ),
    "per_channel_off": Wording("per-channel quantisation was turned off", "已关闭逐通道"),
    "otherwise": Wording("{done}, because otherwise: {detail}", "{done}，否则：{detail}"),
    "left_in_float": Wording(
        "{names} stays in float: onnxruntime.quantization would remove it, and the model would compute something else"
        " ({why})",
        "{names} 保持浮点：onnxruntime.quantization 会将其删除，模型的计算结果会因此改变（{why}）",
        "Exclude it from quantisation (nodes_to_exclude), or deploy the model that --save_model writes.", departs=True,
    ),
    "left_in_float_measured": Wording(
        "{names} stays in float: onnxruntime.quantization would remove it, and the model would compute something else"
        " ({why}); its own file is off by {stock:.3g} (Rel L2 of the worst output, on the first sample) where the one"
        " that was compared is off by {ours:.3g}: exclude it (nodes_to_exclude), or deploy what --save_model writes",
        "{names} 保持浮点：onnxruntime.quantization 会将其删除，模型的计算结果会因此改变（{why}）；其自身生成的文件"
        "误差为 {stock:.3g}（首个样本上误差最大的输出的相对 L2），参与对比的模型为 {ours:.3g}：请将其排除"
        "（nodes_to_exclude），或部署 --save_model 写出的模型",
        "Exclude it from quantisation (nodes_to_exclude), or deploy the model that --save_model writes.", departs=True,
    ),
    "opset_twice": Wording(
        "the file asks for opset {opset} twice, which onnxruntime.quantization refuses; it was asked once",
        "文件两次要求 opset {opset}，onnxruntime.quantization 会拒绝；已改为只要求一次",
        "Write the file with each opset once, or deploy the model that --save_model writes.",
        departs=True,
    ),
    "names_twice": Wording(
        "onnxruntime.quantization would have given what it adds names that the file has already ({names}), and the"
        " model would not load or read the wrong ones; these had other names while it ran",
        "onnxruntime.quantization 会给其添加的内容取文件中已有的名称（{names}），模型将无法加载或读错；"
        "量化期间这些名称已另取",
        "Give them other names before you quantise, or deploy the model that --save_model writes.",
        departs=True,
    ),
    "biases_named": Wording(
        "biases that several operators read were given names of their own ({names}): onnxruntime.quantization would"
        " name its copy as another tensor is named, and the model would read that one",
        "为多个算子共用的偏置另取了名称（{names}）：onnxruntime.quantization 会给其副本取与其他张量相同的名称，"
        "模型会读到那个张量",
        "Give each of them a bias of its own before you quantise, or deploy the model that --save_model writes.",
        departs=True,
    ),
    "simulated": Wording(
        "a simulation: a float32 graph in which weights, inputs and every operator's output are rounded to {type}; a"
        " real engine's sums and fusions differ",
        "模拟：在 float32 图中把权重、输入和每个算子的输出舍入到 {type}；引擎自身的累加和融合与之不同",
    ),
    "doubles_left": Wording("{count} float64 tensors are left unchanged", "{count} 个 float64 张量保持不变"),
    "model_saved": Wording("the model that was compared is {path}", "参与对比的模型为 {path}"),
    "tf32_off": Wording(
        "TF32 was switched off: CUDA's float32 matrix products are float32 (use_tf32=0)",
        "TF32 已关闭：CUDA 的 float32 矩阵乘法以 float32 计算（use_tf32=0）",
    ),
    "tf32_on": Wording(
        "CUDA's float32 matrix products use TF32 on recent GPUs; --option use_tf32=0 switches it off",
        "较新的 GPU 上 CUDA 的 float32 矩阵乘法使用 TF32；可用 --option use_tf32=0 关闭", "Use --option use_tf32=0.",
    ),
    "shown_ends_subgraph": Wording(
        "each observed tensor ends a TensorRT subgraph, so fewer layers are fused and the outputs may differ from an"
        " unobserved run; mark few tensors, or use the run mode trt_fp16",
        "每个被观测的张量都会截断 TensorRT 子图，融合变少，输出可能与不观测时不同；请少标记张量，或使用运行模式"
        " trt_fp16",
        "Mark few tensors, or use trt_fp16.",
    ),
    "shares": Wording("{parts:;}", "{parts:;}"),
    "took": Wording(
        "{provider} took {count} of {all} {all:node|nodes} ({share:.2f} %)",
        "{provider} 接管了 {all} 个节点中的 {count} 个"
        "（{share:.2f} %）"
    ),
    "took_too": Wording("{provider} {count} ({kinds})", "{provider} {count} 个（{kinds}）"),
    "does_not_tell": Wording(
        "onnxruntime {version} does not report it; 1.24 and later do", "onnxruntime {version} 不提供，1.24 及以后才有",
        "Install onnxruntime 1.24 or later.",
    ),
    # what a search gives away
    "handed_judged": Wording(
        "the model that was compared: precisions written into it; run in ONNX Runtime, and in no other engine",
        "参与对比的模型：精度已写入其中；仅在 ONNX Runtime 中运行过",
    ),
    "handed_genuine": Wording(
        "the same set in genuine float16, every result rounded, as an engine that computes in it (a simulation)",
        "同一集合在真正的 float16 中（每个结果都舍入），如实际以其计算的引擎（模拟）",
    ),
    "handed_bfloat16": Wording(
        "a model in bfloat16",
        "bfloat16 模型",
    ),
    "handed_no_bfloat16": Wording(
        "no stock converter writes bfloat16 for ONNX Runtime",
        "没有现成的转换器能为 ONNX Runtime 写出 bfloat16",
    ),
    "handed_mixed": Wording(
        "a mixed float16 model, explicit casts, none inside a kept chain; the file was run in ONNX Runtime, and in no"
        " other engine, the set in genuine float16 (a simulation)",
        "混合 float16 模型：显式 Cast，保留的链内部没有 Cast；该文件仅在 ONNX Runtime 中运行过，"
        "该集合在真正的 float16（模拟）中运行过",
    ),
    "handed_library": Wording(
        "to paste: from the original file, with the same set; the setting above is what was run",
        "可直接粘贴：从原文件出发，同一集合；被判定的是上面的设置",
    ),
    "handed_for": Wording(
        "for {library}",
        "用于 {library}",
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
