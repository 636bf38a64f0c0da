"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_NOTHING = "Nothing to do: there is nothing to compare."
_CONDITION = "Check the condition before these lines: it reads a type, or a value that rounding changes."
_PLAIN = "Compare the modes of eager PyTorch: torch_fp32, torch_fp16, torch_bf16, …."

REASONS = Catalogue("torch", {
    # a model that cannot be read
    "factory_returns": Wording(
        "a factory returns an nn.Module, (module, example_inputs), or these with a loss, and an optimiser, for a step",
        "工厂函数返回 nn.Module、（module，示例输入），训练步还需损失与优化器",
    ),
    "no_config": Wording(
        "holds no config.json, as a folder of the transformers library does",
        "其中没有 transformers 目录应有的 config.json",
    ),
    "reads_folders": Wording(
        "torch modes read such a folder, FILE.py:FUNCTION, .pt2 and .pt",
        "torch 的模式可读取 transformers 目录、FILE.py:函数、.pt2 与 .pt",
    ),
    "no_program": Wording("is not an exported program: {error}", "不是导出的程序：{error}"),
    "save_again": Wording(
        "save it with torch.export.save of this torch version", "请用此版本 torch 的 torch.export.save 重新保存"
    ),
    # what a run mode needs
    "needs_torch": Wording(
        "a newer torch than {version} (2.4 or later)", "需要比 {version} 更新的 torch（2.4 及以上）"
    ),
    "needs_cuda": Wording("needs torch with CUDA and an NVIDIA GPU", "需要带 CUDA 的 torch 和 NVIDIA GPU"),
    "needs_tf32": Wording(
        "needs a GPU with TensorFloat-32 (compute capability 8.0 or later)",
        "需要支持 TensorFloat-32 的 GPU（计算能力 8.0 及以上）",
    ),
    "needs_fp8": Wording(
        "needs torch with CUDA and an NVIDIA GPU of compute capability 8.9 or later",
        "需要带 CUDA 的 torch 和计算能力 8.9 及以上的 NVIDIA GPU",
    ),
    "torchao_without": Wording(
        "torchao cannot be imported: no module {module}; pip install -U torchao",
        "无法导入 torchao：没有模块 {module}；请运行 pip install -U torchao",
    ),
    "torchao_unfit": Wording(
        "torchao does not fit this torch ({error}); pip install -U torchao",
        "torchao 与此 torch 不匹配（{error}）；请运行 pip install -U torchao",
    ),
    "torchao_older": Wording(
        "a newer torchao, with {names}: pip install -U torchao",
        "需要带有 {names} 的更新的 torchao：请运行 pip install -U torchao",
    ),
    # why a tensor is not seen
    "uninitialised": Wording("holds uninitialised memory", "内容是未初始化的内存", _NOTHING, whole=True),
    "bookkeeping": Wording("is the kernel's own bookkeeping", "内核自用的数据", _NOTHING, whole=True),
    "no_tensor": Wording("returns no tensor", "不返回张量", _NOTHING, whole=True),
    "not_readable": Wording(
        "torch cannot read the values of a {kind} with this layout"
        " ({detail})", "torch 不给出此布局的 {kind} 的数值（{detail}）"
    ),
    "in_pieces": Wording(
        "compiled in pieces, because its Python code reads values ({detail})",
        "因其 Python 代码需要取值而分段编译（{detail}）", _PLAIN,
    ),
    "other_operators": Wording(
        "a traced run has different operators ({traced}) from a plain one ({plain}): {one} instead of {other}",
        "跟踪运行的算子（{traced} 个）与普通运行（{plain} 个）不同：前者的 {one} 处，后者为 {other}", _PLAIN,
    ),
    "other_when_compiled": Wording(
        "the model's Python code asks torch.compiler.is_compiling(), and runs other operators ({traced}) when it is"
        " compiled than in eager ({plain}): {one} instead of {other}",
        "模型的 Python 代码会查询 torch.compiler.is_compiling()，编译时运行的算子（{traced} 个）与 eager（{plain}"
        " 个）不同：前者的 {one} 处，后者为 {other}",
        "Compare what the two branches compute: the compiled model is another one.",
    ),
    "second_graph_fails": Wording(
        "the compiled graph that would return it does not compile ({detail})",
        "会返回它的编译图无法编译（{detail}）", _PLAIN,
    ),
    "written_over": Wording(
        "a later operator writes into it by index, and inductor allows no copy before that",
        "后面的算子会按下标写入，而 inductor 不能在此之前复制", _NOTHING, whole=True,
    ),
    "many_ways": Wording(
        "the model's Python code reads values, and took more than {count} paths on inputs of these shapes",
        "模型的 Python 代码需要取值，在这些形状的输入上走了 {count} 种以上的路径", _PLAIN,
    ),
    "one_graph": Wording(
        "the model's Python code reads values, where torch.compile breaks it into pieces: intermediate tensors come"
        " from a single graph of the operators on the path that these values take",
        "模型的 Python 代码需要取值，torch.compile 会在该处将其分段：中间张量来自按这些值所走路径的算子构成的一个图",
    ),
    "no_operator": Wording(
        "has no operator of its own in the compiled graph", "在编译后的图中没有对应的独立算子", _NOTHING, whole=True
    ),
    # of a run
    "names_float32": Wording(
        "{count} {count:operator|operators} of the exported program {count:names|name} float32 and"
        " {count:was|were} given {dtype} instead: a program does not"
        " distinguish the model's own type from one that it requests explicitly",
        "导出程序中有 {count} 个算子写明 float32，已改为 {dtype}：程序无法区分模型自身的类型与模型所要求的类型",
        "Use the module itself instead of the exported program.",
    ),
    "as_deployed": Wording(
        "the folder is loaded by from_pretrained(dtype=torch.{type}); module.to(torch.{type}) gives a different model:"
        " {count} {count:tensor differs|tensors differ} from the ones it rounds ({names})",
        "文件夹由 from_pretrained(dtype=torch.{type}) 加载；module.to(torch.{type}) 得到的是另一个模型：{count} 个张量"
        "与其舍入结果不同（{names}）",
        "Nothing to do if it is deployed like this. To judge module.to(), write a factory FILE.py:FUNCTION.",
    ),
    "types_taken": Wording(
        "{names}: fed in {dtype}, the type of the model's parameters, for with the values as given it does not run",
        "{names}：以模型参数的类型 {dtype} 喂入，因为直接使用所给的值无法运行",
    ),
    "rounds_buffers": Wording(
        "module.to(torch.{type}) rounds {count} float32 buffers that are not in the checkpoint ({names}), while"
        " from_pretrained(dtype=torch.{type}) recomputes them",
        "module.to(torch.{type}) 会舍入 {count} 个不在检查点中的 float32 缓冲区（{names}），而"
        " from_pretrained(dtype=torch.{type}) 会重新计算它们",
        "If it is deployed with from_pretrained, use the folder that save_pretrained writes.",
    ),
    "was_compiled": Wording(
        "{count} {count:module|modules} of the model {count:was|were} wrapped in torch.compile: {count:its|their} eager"
        " code runs here, and --run_mode torch_compile compiles the whole model",
        "模型中有 {count} 个模块经过 torch.compile：此处运行其 eager 代码，--run_mode torch_compile 会编译整个模型",
        "Use --run_mode torch_compile to judge the compiled model.",
    ),
    "other_way": Wording(
        "the two runs took different paths through the model's Python code: only the baseline ran {base}; only the"
        " target ran {target}",
        "两次运行在模型的 Python 代码中走了不同的路径：仅基线运行了 {base}；仅目标运行了 {target}",
        _CONDITION,
    ),
    "other_way_alone": Wording(
        "the two runs took different paths through the model's Python code: only the {side} ran {lines}",
        "两次运行在模型的 Python 代码中走了不同的路径：仅{side}运行了 {lines}", _CONDITION,
    ),
    "padding_left_out": Wording(
        "only the {side} leaves out what src_key_padding_mask masks (torch's fast path of nn.TransformerEncoder) and"
        " holds 0 there; the other run computes those positions",
        "仅{side}跳过了 src_key_padding_mask 遮盖的位置（torch 的 nn.TransformerEncoder 快速路径），这些位置为 0；"
        "另一次运行会计算它们",
        "Judge what is not masked, or build the encoder with enable_nested_tensor=False.",
    ),
    "evaluation": Wording(
        "the module was put into evaluation mode; the option training=1 leaves it as the factory made it",
        "模块已置于评估模式；选项 training=1 可保持工厂函数所给的状态", "Use --option training=1.",
    ),
    "kept_float32": Wording(
        "{count} {count:module stays|modules stay} in float32: {names}", "{count} 个模块保持 float32：{names}",
        "Nothing to do: keep_modules asks for it.",
    ),
    "unpacked": Wording(
        "{count} {count:weight is|weights are} as {method} packed {count:it|them}, multiplied in the mode's own type",
        "{count} 个权重为 {method} 打包后的数值，并以该模式的类型相乘",
        "Nothing to do: these weights are what the folder stands for.",
    ),
    "activations_wide": Wording(
        "engines that run this {method} folder quantise activations too; here they stay as they are, so that the"
        " weights' part of the error is seen",
        "运行此 {method} 目录的引擎还会量化激活值；此处激活值保持原样，因此看到的是权重部分的误差",
        "Run the engine itself for the rest: vllm_bf16.",
    ),
    "kept_original": Wording(
        "{count} {count:module has its weight|modules have their weights} from {source}: {names}",
        "{count} 个模块使用 {source} 的权重：{names}",
        "Nothing to do: keep_original asks for it.",
    ),
    "pickled_by_torchao": Wording(
        "holds torchao's classes in pytorch_model.bin, which only torchao unpacks",
        "pytorch_model.bin 中是 torchao 的类，只有 torchao 能解包",
        "Install torchao beside this torch, or save the folder with transformers 5, which writes safetensors.",
    ),
    "handed_ignore": Wording("llm-compressor's list of what it leaves as it is", "llm-compressor 中保持原样的列表"),
    "handed_not_convert": Wording(
        "the same for quantisers of transformers (AWQ, bitsandbytes, torchao, FP8)",
        "transformers 的量化器（AWQ、bitsandbytes、torchao、FP8）的同一设置",
    ),
    "handed_dynamic": Wording("the same for GPTQModel", "GPTQModel 的同一设置"),
    "handed_quantiser": Wording(
        "quantise the original folder again with this; the setting above is the same and was run",
        "以此重新量化原目录；上面的设置与之相同，且已运行",
    ),
    "kept_lines": Wording(
        "what {count} source {count:line calls|lines call} of torch runs in float32, without autocast: {lines}",
        "{count} 行源代码所调用的 torch 运算以 float32 运行，不使用 autocast：{lines}",
        "Nothing to do: keep_modules asks for it.",
    ),
    "quantised_linear": Wording(
        "{count} of {all} linear {all:layer|layers} {count:runs|run} in {type} (torchao, dynamic activations)",
        "{all} 个线性层中有 {count} 个以 {type} 运行（torchao，动态激活）",
    ),
    "quantised_linear_but": Wording(
        "{count} of {all} linear {all:layer|layers} {count:runs|run} in {type} (torchao, dynamic activations);"
        " {others} convolutions are"
        " unchanged",
        "{all} 个线性层中有 {count} 个以 {type} 运行（torchao，动态激活）；{others} 个卷积保持原样",
    ),
    "float8_step": Wording(
        "{count} of {all} linear {all:layer|layers} {count:trains|train} in float8 (torchao's"
        " convert_to_float8_training): inputs and weights in"
        " e4m3, gradients in e5m2, one scale a tensor; the card multiplies them",
        "{all} 个线性层中有 {count} 个以 float8 训练（torchao 的 convert_to_float8_training）：输入与权重为 e4m3，"
        "梯度为 e5m2，每个张量一个缩放；由显卡执行 float8 乘法",
    ),
    "float8_step_emulated": Wording(
        "{count} of {all} linear {all:layer|layers} {count:trains|train} in float8 (torchao's"
        " convert_to_float8_training): inputs and weights in"
        " e4m3, gradients in e5m2, one scale a tensor; emulated: they are rounded so, and multiplied in float32",
        "{all} 个线性层中有 {count} 个以 float8 训练（torchao 的 convert_to_float8_training）：输入与权重为 e4m3，"
        "梯度为 e5m2，每个张量一个缩放；模拟运行：按 float8 舍入，以 float32 相乘",
    ),
    "kept_unconverted": Wording(
        "{count} {count:module is|modules are} not made float8 and {count:stays|stay} in {type}: {names}",
        "{count} 个模块不转为 float8，保持 {type}：{names}",
        "Nothing to do: keep_modules asks for it.",
    ),
    "weights_linear": Wording(
        "{count} of {all} linear {all:layer|layers} {count:has|have} weights in {type} (torchao), which are"
        " multiplied in the layer's own type",
        "{all} 个线性层中有 {count} 个的权重为 {type}（torchao），以该层自身的类型相乘",
    ),
    "weights_linear_but": Wording(
        "{count} of {all} linear {all:layer|layers} {count:has|have} weights in {type} (torchao), which are"
        " multiplied in the layer's own"
        " type; {others} convolutions are unchanged",
        "{all} 个线性层中有 {count} 个的权重为 {type}（torchao），以该层自身的类型相乘；{others} 个卷积保持原样",
    ),
    "casts_kept": Wording(
        "{count} casts to a lower precision, or results in one, that the model requests were kept in float64",
        "模型要求的 {count} 个低精度转换或结果保持为 float64",
    ),
    "drawn": Wording(
        "{count} random {count:operator was|operators were} drawn in float32 and cast, so that both runs see the"
        " same numbers",
        "{count} 个随机算子以 float32 抽取后转换，使两次运行看到相同的数",
    ),
    "drops": Wording(
        "`{name}` drops values at random although the module is in evaluation mode ({count} such"
        " {count:operator|operators}): a dropout that is left on, such as F.dropout without training=self.training?"
        " Both runs drew the same numbers here; deployed, each run gives another result",
        "模块处于评估模式，`{name}` 却仍在随机丢弃数值（此类算子共 {count} 个）：是否有未关闭的 dropout，例如未传"
        " training=self.training 的 F.dropout？此处两次运行抽取了相同的数；部署后每次结果都会不同",
    ),
    "flex_attention": Wording(
        "flex_attention ran as one uncompiled operator so that it could be observed; without hooks it is compiled, and"
        " its results may differ by rounding",
        "为便于观测，flex_attention 作为一个未编译的算子运行；没有 hook 时会被编译，结果可能有舍入差异",
    ),
    "autocast_cache": Wording(
        "autocast's weight cache was off: a weight that is used twice is cast twice",
        "autocast 的权重转换缓存已关闭：被使用两次的权重会转换两次",
    ),
    "turns_switch": Wording(
        "the model changes a process-wide switch inside forward: {switch}", "模型在 forward 中改变了整个进"
        "程的开关：{switch}"
    ),
    "writes_parameters": Wording(
        "forward itself changes {count} {count:parameter|parameters}: each run gets its own copies ({size})",
        "forward 会自行修改 {count} 个参数：每次运行使用各自的副本（{size}）",
    ),
    "writes_own": Wording(
        "the model cannot be copied, and its forward changes '{name}'", "模型无法复制，且其 forward 会修改 {name}"
    ),
    "run_differs": Wording(
        "another run of the model did something different from {name} onwards", "模型的另一次运行自 {name} 起做了别的事"
    ),
    "random_eager": Wording(
        "random operators use eager's implementation, so that both runs see the same numbers",
        "随机算子采用 eager 自身的实现，使两次运行看到相同的数",
    ),
    "second_graph_same": Wording(
        "intermediate tensors come from a second compiled graph that also returns them and therefore fuses less; its"
        " outputs are bit-identical to the original graph's",
        "中间张量来自另一个同时返回它们的编译图，因而融合较少；其输出与原图逐位相同",
    ),
    "second_graph_differs": Wording(
        "intermediate tensors come from a second compiled graph that also returns them and therefore fuses less; its"
        " outputs differ from the original graph's",
        "中间张量来自另一个同时返回它们的编译图，因而融合较少；其输出与原图不同",
    ),
    # what a search gives away
    "handed_filter": Wording(
        "torchao's filter",
        "torchao 的 filter",
    ),
    "handed_float8": Wording("torchao's module_filter_fn", "torchao 的 module_filter_fn"),
    "handed_lines": Wording(
        "lines for your own program, after the model is made", "用于您自己程序的几行，放在模型构造之后"
    ),
    "handed_lines_autocast": Wording(
        "torch.autocast(enabled=False) around these modules, for your own program",
        "在这些模块外加 torch.autocast(enabled=False)，用于您自己的程序",
    ),
    "handed_below": Wording(
        "to paste: much as the file below does it, which was run",
        "可直接粘贴：与下面文件的做法大致相同，实际运行的是该文件",
    ),
    "handed_wrapper": Wording(
        "the model with these modules in float32, as a Python file",
        "这些模块保留为 float32 的模型，写成 Python 文件",
    ),
    "handed_autocast": Wording(
        "run under torch.autocast",
        "在 torch.autocast 下运行",
    ),
    "handed_float32": Wording(
        "takes and gives float32",
        "输入输出均为 float32",
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
