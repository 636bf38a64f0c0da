"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_INSIDE = "See the outputs of the loop or branch."
_NOTHING = "Nothing to do: there is nothing to compare."
_WEIGHTS = "Keep those layers in FP32, or use BF16."
_MARKED = "If the fusion must not change, use --fused_only or mark fewer tensors."
_MORE_BUILDS = "Use --option marked_builds=N: each further build shows one more tensor of every part."
_REFUSED = "See its neighbours, or try another TensorRT version."

REASONS = Catalogue("tensorrt", {
    # what an engine holds
    "engine_size": Wording(
        "{size:.1f} MiB, {layers} {layers:layer|layers}, {profiles} profiles",
        "{size:.1f} MiB，{layers} 层，{profiles} 个 profile"
    ),
    "engine_memory": Wording("{size:.1f} MiB of device memory for a run", "运行需 {size:.1f} MiB 显存"),
    "engine_without_layers": Wording(
        "layers: not in this engine (build it with profiling_verbosity DETAILED)",
        "层：该引擎中没有（构建时请设 profiling_verbosity DETAILED）",
    ),
    "binding_on_host": Wording("binding {name}: {kind}, host", "绑定 {name}：{kind}，主机内存"),
    "binding_on_device": Wording("binding {name}: {kind}, device", "绑定 {name}：{kind}，显存"),
    "profile_of": Wording(
        "profile {number}, {name}: {low} to {high}, tuned for {best}",
        "profile {number}，{name}：{low} 至 {high}，按 {best} 调优",
    ),
    # why it cannot run here
    "not_importable": Wording("TensorRT cannot be imported ({error})", "无法导入 TensorRT（{error}）"),
    "needs": Wording("{what}; {hint}", "{what}，{hint}"),
    "install_it": Wording(
        "pip install 'precision_debug[tensorrt]'", "请运行 pip install 'precision_debug[tensorrt]'"
    ),
    "rtx_not_importable": Wording(
        "TensorRT for RTX cannot be imported ({error})", "无法导入 TensorRT for RTX（{error}）"
    ),
    "install_rtx": Wording(
        "pip install tensorrt-rtx-cu13-libs tensorrt-rtx-cu13-bindings",
        "请运行 pip install tensorrt-rtx-cu13-libs tensorrt-rtx-cu13-bindings",
    ),
    "other_chip": Wording(
        "{title} {version} runs on GPUs of compute capability {chips}, but this one has {here}",
        "{title} {version} 只支持计算能力为 {chips} 的 GPU，本机为 {here}",
    ),
    "refused_in_type": Wording(
        "this TensorRT has no {kinds} in {type}: every such operator stays in FP32",
        "此版本 TensorRT 没有 {type} 的 {kinds}：这类算子全部保持 FP32",
    ),
    "another_module": Wording(
        "the module 'tensorrt' that Python finds is not NVIDIA's TensorRT", "Python 找到的模块 tensorrt 不是 TensorRT"
    ),
    "rename_own": Wording("rename your file or folder of that name", "请给您自己的同名文件或文件夹改名"),
    "needs_newer": Wording(
        "{precision} needs a newer TensorRT than {version} (9.1 or later)",
        "{precision} 需要比 {version} 更新的 TensorRT（9.1 及以上）",
    ),
    "chooses_none": Wording(
        "TensorRT {version} no longer chooses precisions by itself; name one: trt_fp16, trt_bf16, …",
        "TensorRT {version} 不再自行选择精度；请指明：trt_fp16、trt_bf16 等",
    ),
    "no_gpu": Wording("no GPU can be reached ({error})", "无法使用 GPU（{error}）"),
    "install_gpu": Wording("an NVIDIA GPU with its driver", "需要 NVIDIA GPU 及其驱动"),
    # why a tensor is not seen
    "inside": Wording(
        "inside a loop or branch, where TensorRT allows no outputs to be marked",
        "位于循环或分支内，TensorRT 不允许将其标记为输出", _INSIDE,
    ),
    "inside_loop": Wording(
        "inside a loop, where TensorRT allows no outputs to be"
        " marked", "位于循环内，TensorRT 不允许将其标记为输出", _INSIDE
    ),
    "inside_branch": Wording(
        "inside a branch, where TensorRT allows no outputs to be marked", "位于分支内，TensorRT 不允许将其标记为输出",
        _INSIDE,
    ),
    "not_parsed": Wording(
        "TensorRT's parser left no tensor of this name (a constant, or an operator that does nothing)",
        "TensorRT 解析后没有该名称的张量（常量，或不起作用的算子）", _NOTHING, whole=True,
    ),
    "inside_refused": Wording(
        "TensorRT cannot build an engine with it as an output ({detail}); the tensors before and after it are compared"
        " instead (marked_builds={builds})",
        "将其作为输出时 TensorRT 无法构建引擎（{detail}）；已对比其前后的张量（marked_builds={builds}）",
        _MORE_BUILDS,
    ),
    "refused": Wording(
        "TensorRT refuses it as an output: {detail}", "TensorRT 拒绝将其作为输出：{detail}", _REFUSED
    ),
    "not_listened": Wording(
        "TensorRT did not call its debug listener for it", "TensorRT 没有为它调用调试监听器",
        "Use --option observe=marks.",
    ),
    "built_engine": Wording(
        "inside a built engine, which shows its outputs only", "位于已构建的引擎内部，引擎只显示其输出",
        "Use the ONNX file instead of the engine.", whole=True,
    ),
    "entry": Wording(
        "produced by a {kind} layer at the entry of a loop or branch", "由循环或分支入口处的 {kind} 层产生", _INSIDE,
        whole=True,
    ),
    "not_run": Wording(
        "produced by a {kind} layer, which TensorRT does not run", "由 TensorRT 不执行的 {kind} 层产生", _NOTHING,
        whole=True,
    ),
    "shape_tensor": Wording(
        "a shape tensor: TensorRT computes it on the host", "形状张量：TensorRT 在主机上计算", _NOTHING, whole=True
    ),
    # of a build
    "on_device": Wording(
        "Tensors were compared in the GPU's memory, by {library}.", "张量在 GPU 显存中比较，使用 {library}。"
    ),
    "built_before": Wording(
        "The engine was built earlier; {mode} did not decide its precision.", "引擎此前已构建；其精度并非由"
        " {mode} 决定。",
        "Use the ONNX file instead of the engine.",
    ),
    "building_real": Wording("building the engine to deploy", "TensorRT 正在构建部署用的引擎"),
    "building_marked": Wording(
        "rebuilding the engine with {count} {count:mark|marks}; the engine to deploy took {seconds:.0f} s",
        "TensorRT 正在重新构建引擎，标记 {count} 个张量；真实引擎耗时 {seconds:.0f} 秒",
    ),
    "building_between": Wording(
        "TensorRT refused all marks at once; rebuilding with the {count} {count:mark|marks} between its blocks"
        " ({number} of"
        " {builds})",
        "TensorRT 拒绝同时标记全部张量；正在以各块之间的 {count} 个标记重新构建（第 {number} 次，共 {builds} 次）",
    ),
    "heard_timing": Wording("timing kernels for {layer}", "正在为 {layer} 测试 kernel"),
    "built_in": Wording("The engine was built in {seconds:.1f} s.", "引擎构建用时 {seconds:.1f} 秒。"),
    "size_names_dropped": Wording(
        "The file gives inputs' sizes that differ one name, which TensorRT refuses; it was built without these names.",
        "文件给输入的不同尺寸用了同一个名称，TensorRT 会拒绝；构建时已去掉这些名称。",
        "Give each its own name (onnx.load, dim_param) before you build the engine to ship.",
    ),
    "calibrated": Wording(
        "INT8 scales were calibrated on {count} {count:sample set|sample sets} (entropy).",
        "INT8 缩放系数以 {count} 组样本校准（entropy）。",
    ),
    "tactics_not_taken": Wording(
        "{count} {count:layer|layers} did not use a saved tactic (first: {first}).",
        "{count} 层没有采用保存的 tactic（首个："
        "{first}）。"
    ),
    "no_details": Wording(
        "The engine's inspector gives no details: it was not built with profiling verbosity DETAILED.",
        "引擎的 inspector 没有细节：构建时未使用 DETAILED 级别的 profiling verbosity。",
        "Build it with profiling verbosity DETAILED.",
    ),
    "layers_by_precision": Wording(
        "The engine's {count} {count:layer|layers} by real precision: {kinds}.",
        "引擎共 {count} 层，按实际精度：{kinds}。"
    ),
    "obeyed": Wording("obeyed", "已遵守"),
    "not_obeyed": Wording("NOT obeyed", "未遵守"),
    "not_told": Wording("not reported", "未说明"),
    "of_kind": Wording("{count} {kind}", "{count} 个{kind}"),
    "constraints": Wording(
        "Precision constraints ({how}), {count} {count:layer|layers}: {kinds}.",
        "精度约束（{how}），共 {count} 层：{kinds}。",
        "If layers do not obey, use --precision_constraints obey.",
    ),
    "constraint": Wording(
        "Layer '{layer}', {asked} requested: {obeyed} ({got}).", "层 '{layer}' 要求 {asked}：{obeyed}（{got}）。"
    ),
    "kept_as": Wording(
        "Node '{node}', FP32 requested, became {count} {count:layer|layers} ({layers}): {obeyed} ({got}).",
        "节点 '{node}' 要求 FP32，对应 {count} 层（{layers}）：{obeyed}（{got}）。"
    ),
    "constraints_more": Wording(
        "… and {count} more {count:layer|layers}; the Obeyed column lists them all.",
        "……另有 {count} 层；全部见 Obeyed 列。"
    ),
    "weights_affected": Wording(
        "TensorRT's builder: {count} {count:weight is|weights are} affected: {what}",
        "TensorRT 构建器：{count} 个权重受影响："
        "{what}", _WEIGHTS
    ),
    "weights_affected_named": Wording(
        "TensorRT's builder: {count} {count:weight is|weights are} affected: {what}: {names}",
        "TensorRT 构建器：{count} 个权重受影响：{what}：{names}", _WEIGHTS,
    ),
    "weights_do_not_fit": Wording(
        "Weights of {count} {count:node|nodes} cannot be represented as normal FP16 numbers: {nodes}",
        "{count} 个节点的权重不能以 FP16 正规数表示：{nodes}", _WEIGHTS,
    ),
    "region": Wording(
        "'{name}' is a Myelin region of {count} {count:operator|operators} that {types}; TensorRT names no"
        " kernel of it, so their real"
        " precision is not reported.",
        "'{name}' 是由 {count} 个算子组成的 Myelin 区域（{types}）；TensorRT 不给出其 kernel，因此实际精度未知。",
        "Compare its inputs and outputs.",
    ),
    "milliseconds": Wording("{time:.4g} ms where it {types}", "{time:.4g} 毫秒（{types}）"),
    "region_timed": Wording(
        "TensorRT timed that region before choosing: {times:;}.", "TensorRT 在选择之前测过该区域的耗时：{times:;}。"
    ),
    "regions_more": Wording("… and {count} more Myelin {count:region|regions}.", "……另有 {count} 个 Myelin 区域。"),
    "engine_bytes": Wording(
        "The engine is {plan:,} {plan:byte|bytes} including its kernels; the model's FP32 weights are {weights:,}.",
        "引擎连同 kernel 共 {plan:,} 字节；模型的 FP32 权重为 {weights:,} 字节。",
    ),
    "qdq_written": Wording(
        "INT8: QDQ was written into the model, calibrated on {count} {count:sample set|sample sets} (MinMax).",
        "INT8：已向模型写入 QDQ，以 {count} 组样本校准（MinMax）。",
    ),
    "casts_written": Wording(
        "{type} was written into the model with {count} {count:cast|casts}; inputs and outputs stay FP32.",
        "已以 {count} 个 Cast 将 {type} 写入模型；输入和输出保持 FP32。",
    ),
    "stay_fp32": Wording(
        "These nodes stay in FP32, because they have no lower precision, or a body with tensors of unknown type:"
        " {nodes}.",
        "下列节点保持 FP32，因为没有更低精度，或其子图中有类型未知的张量：{nodes}。",
    ),
    "unfit_constants": Wording(
        "These nodes stay in FP32, because {type} cannot hold a constant that they read: {nodes}.",
        "下列节点保持 FP32，因为 {type} 无法表示其读取的常量：{nodes}。",
        "To run one in {type} all the same, use --layer_precisions NODE:TYPE.",
    ),
    "typed_operators": Wording(
        "Operators by the type that is written into the model: {kinds}.", "按写入模型的类型统计算子：{kinds}。"
    ),
    "may_tf32": Wording(
        "Layers left in FP32 may compute in TF32, TensorRT's default; --tf32 0 forbids it.",
        "保留为 FP32 的层可能以 TF32 计算（TensorRT 默认）；--tf32 0 可禁止。", "Use --tf32 0 to forbid TF32.",
    ),
    "best_without": Wording(
        "trt_best does not use {types}: this TensorRT has no such layers.", "trt_best 不使用 {types}：此"
        " TensorRT 没有这种层。"
    ),
    "script_types": Wording(
        "The types in the script are the precisions: the network is strongly typed.",
        "精度即脚本自身的类型：网络为强类型。",
    ),
    "strongly_typed": Wording(
        "Strongly typed: the precision was written into the model as casts before the build.",
        "强类型：构建之前已将精度以 Cast 写入模型。",
    ),
    "timing_read": Wording(
        "Tactics had been timed before: {bytes:,} {bytes:byte|bytes} of timing cache were read.",
        "tactic 此前已测时：读取了"
        " {bytes:,} 字节的计时缓存。"
    ),
    "looked_at_level": Wording(
        "Engines with marks are built at optimisation level {level}; the engine to deploy and those of a fix at"
        " {asked}, as asked.",
        "带标记的引擎以优化级别 {level} 构建；部署用的引擎和修复后的引擎按要求以级别 {asked} 构建。",
    ),
    "timing_refused": Wording(
        "TensorRT could not read the whole timing cache {path}: tactics that it timed again may differ.",
        "TensorRT 未能完整读取计时缓存 {path}：重新测时的 tactic 可能不同。", "Remove the cache.",
    ),
    # of a run
    "debug_unreadable": Wording(
        "Debug tensor '{name}' could not be read: {detail}", "无法读取调试张量 '{name}'：{detail}"
    ),
    "other_fusion": Wording(
        "The fusion of engine {number} is NOT that of the real engine, although only the outputs of fused layers were"
        " marked: {layers} became other layers.",
        "虽然只标记了融合层的输出，引擎 {number} 的融合与真实引擎不同：{layers} 变成了别的层。", _MARKED,
    ),
    "from_other_fusion": Wording(
        "{count} of these {all} {all:tensor|tensors} {count:comes|come} from a different fusion than the real"
        " engine's: their errors in engine"
        " {number} may differ from the real engine's. See the Fused Layer There column.",
        "这 {all} 个张量中有 {count} 个来自与真实引擎不同的融合：它们在引擎 {number} 中的误差未必是真实引擎的。"
        "见 Fused Layer There 列。", _MARKED,
    ),
    "other_precision": Wording(
        "{count} of these {all} {all:tensor|tensors} {count:was|were} computed in a different precision than in"
        " the real engine (columns Real"
        " Precision and Precision There); --fused_only keeps the real kernels.",
        "这 {all} 个张量中有 {count} 个以与真实引擎不同的精度计算（见 Real Precision 和 Precision There 列）；"
        "--fused_only 可保留真实 kernel。", _MARKED,
    ),
    "not_marked": Wording(
        "{count} {count:tensor|tensors} could not be marked; {count:its row says|their rows say} why.",
        "{count} 个张量无法标记；原因见各行。"
    ),
    "listened_unfused": Wording(
        "Seen by TensorRT's debug listener (unfused tensors): {diff}.", "由 TensorRT 调试监听器观测（未融合张量"
        "）：{diff}。"
    ),
    "listened_marked": Wording(
        "Seen by TensorRT's debug listener (marked tensors): {diff}.", "由 TensorRT 调试监听器观测（标记张量）："
        "{diff}。"
    ),
    "outputs_same": Wording("are bit-identical to the real engine's", "与真实引擎逐位相同"),
    "outputs_apart": Wording("differ from the real engine's by up to {gap:.3g}", "与真实引擎最多相差 {gap:.3g}"),
    "rebuilt": Wording(
        "Engine {number}, rebuilt to show {count} {count:tensor|tensors}: {diff}; its outputs {same}. Built in"
        " {seconds:.1f} s.",
        "引擎 {number}（为观测 {count} 个张量而重建）：{diff}；其输出{same}。构建用时 {seconds:.1f} 秒。", _MARKED,
    ),
    "rebuilt_finite": Wording(
        "Engine {number}, rebuilt with marks, gives finite outputs where the engine to deploy gives NaN or Inf: what it"
        " shows is not what overflows there.",
        "带标记重建的引擎 {number} 输出有限值，而待部署的引擎输出 NaN 或 Inf：它所显示的并不是那里溢出的值。", _MARKED,
    ),
    "rebuilt_alike": Wording(
        "Engine {number}, rebuilt to show {count} {count:tensor|tensors}: {diff}; its outputs {same}. The real engine's"
        " precision was"
        " preferred for {asked} of its layers. Built in {seconds:.1f} s.",
        "引擎 {number}（为观测 {count} 个张量而重建）：{diff}；其输出{same}。其中 {asked} 层优先采用真实引擎的精度。"
        "构建用时 {seconds:.1f} 秒。", _MARKED,
    ),
    # what a search gives away
    "handed_engine": Wording(
        "the engine, built with these layers in FP32",
        "以 FP32 保留这些层而构建的引擎",
    ),
    "handed_builds": Wording(
        "builds the engine below",
        "由它构建下面的引擎",
    ),
    "handed_api": Wording(
        "TensorRT's Python API (8.6 to 10)",
        "TensorRT 的 Python API（8.6 至 10）",
    ),
    "handed_trtexec_words": Wording(
        "the same constraints for trtexec",
        "同样的约束，按 trtexec 的写法",
    ),
    "handed_script": Wording(
        "the same constraints in a script",
        "同样的约束，写成脚本",
    ),
    "handed_typed": Wording(
        "a strongly typed ONNX (TensorRT 10 and 11: --stronglyTyped)",
        "强类型 ONNX（TensorRT 10 与 11：--stronglyTyped）",
    ),
    "handed_typed_only": Wording(
        "the model that the engine is built from: every precision is written into it",
        "构建该引擎所用的模型：所有精度均已写入其中",
    ),
    "handed_typed_here": Wording(
        "run here by ONNX Runtime on the CPU, which sums in FP32", "此处由 ONNX Runtime 在 CPU 上运行，以 FP32 累加"
    ),
    "handed_typed_command": Wording(
        "builds the engine from that model; the types in it need no flag",
        "以该模型构建引擎；精度已在模型中，无需标志",
    ),
    "handed_int8": Wording(
        "for INT8: quantise with nodes_to_exclude, see ort_int8",
        "INT8：请以 nodes_to_exclude 量化，见 ort_int8",
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
