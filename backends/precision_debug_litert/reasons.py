"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_HOME = "Nothing to do: its values are compared in another row, or there is nothing to compare."
_ROUND = "See the tensors around it."

REASONS = Catalogue("litert", {
    # why a tensor is not seen
    "inside": Wording(
        "it lies inside {kind}, whose subgraph LiteRT runs itself", "位于 {kind} 内部，其子图由 LiteRT 自行运行",
        _ROUND,
    ),
    "no_values": Wording(
        "LiteRT keeps no values of its type ({dtype})", "LiteRT 不保留此类型（{dtype}）的数值", _ROUND,
    ),
    # notes of a run
    "delegated": Wording(
        "XNNPACK took {taken} of {all} {all:operator|operators}; LiteRT's own kernels run the rest ({rest}).",
        "XNNPACK 接管了 {all} 个算子中的 {taken} 个；其余由 LiteRT 自身的内核运行（{rest}）。", _HOME,
    ),
    "delegated_all": Wording(
        "XNNPACK took all {all} {all:operator|operators}.", "XNNPACK 接管了全部 {all} 个算子。", _HOME,
    ),
    "other_bits": Wording(
        "The run that showed tensors gave slightly different outputs {names}: its tensors are close to those of the"
        " plain run, whose outputs are compared, but not necessarily identical.",
        "显示张量的运行在输出 {names} 中给出了不同的比特：其张量接近但不一定等于普通运行的张量，输出取自普通运行。",
        _ROUND,
    ),
    "widened": Wording(
        "The file is quantised; here {count} {count:operator computes|operators compute} in float32, with"
        " dequantised weights.",
        "文件是量化的；此处 {count} 个算子以 float32 计算，权重取反量化后的值。", _HOME,
    ),
    "stays": Wording(
        "{count} {count:operator stays|operators stay} in the file's own types, which cannot be widened: {some}.",
        "{count} 个算子保持文件自身的类型，无法改为 float32：{some}。",
        "Compare with the float model that the file was converted from: --baseline_model.",
    ),
    "kept": Wording(
        "keep_fp32: {count} {count:operator computes|operators compute} in float32, between a DEQUANTIZE and a"
        " QUANTIZE.",
        "keep_fp32：{count} 个算子以 float32 计算，位于 DEQUANTIZE 与 QUANTIZE 之间。", _HOME,
    ),
    "fed_real": Wording(
        "The input {name} is {dtype} in the file: it is fed real numbers, which are rounded by its scale (--option"
        " quantised_inputs=raw feeds the integers).",
        "输入 {name} 在文件中为 {dtype}：以实数给出，按其 scale 取整（--option quantised_inputs=raw 可直接给整数）。",
        _HOME,
    ),
    "no_kernel": Wording(
        "{mode} has no kernel of the custom operator {op_type}", "{mode} 没有自定义算子 {op_type} 的内核",
    ),
    "opt_runs_it": Wording(
        "tflite_opt runs it (XNNPACK has one), so name what it is compared with: --baseline tflite_opt, or"
        " --baseline_model with the model that it was converted from",
        "tflite_opt 可运行它（XNNPACK 有该内核），请指明对比对象：--baseline tflite_opt，"
        "或用 --baseline_model 给出转换前的模型",
    ),
    "nothing_runs_it": Wording(
        "no mode of LiteRT runs it: the application that ships the file brings the kernel; compare the model that it"
        " was converted from, or a recording of that application's run",
        "LiteRT 的任何模式都无法运行它：内核由发布该文件的应用自带；请对比转换前的模型，或该应用运行的记录",
    ),
    "written": Wording("The compared file was written to {path}.", "参与对比的文件已写入 {path}。", _HOME),
    # what a search gives away
    "handed_file": Wording(
        "a .tflite file in which these operators compute in float32",
        "一个 .tflite 文件，其中这些算子以 float32 计算",
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
