"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_HOME = "Nothing to do: its values are compared in another row, or there is nothing to compare."

REASONS = Catalogue("llamacpp", {
    # why a tensor is not seen
    "blocks": Wording(
        "llama.cpp holds it in blocks, which are not dequantised here", "llama.cpp 以分块格式保存它，此处不做反量化",
        "See the tensors around it.",
    ),
    # notes of a run
    "cache": Wording(
        "Keys and values are kept in {type}, which alone moves the logits of a float32 file"
        " (--option kv_cache=f32 keeps them in float32).",
        "K、V 缓存为 {type}：仅此一项就会改变 float32 文件的 logits（--option kv_cache=f32 以 float32 保存）。",
        _HOME,
    ),
    "flash": Wording(
        "Attention is one fused operator (flash attention), which rounds keys and values to F16; its scores are no"
        " tensors (--option flash_attention=off computes them).",
        "注意力由一个融合算子（flash attention）计算，K、V 被舍入到 F16，其中的分数不是张量"
        "（--option flash_attention=off 逐个计算）。",
        _HOME,
    ),
    "widened": Wording(
        "The weights of {count} {count:tensor|tensors} were dequantised to float32 for this side.",
        "为这一侧将 {count} 个张量的权重反量化为 float32。", _HOME,
    ),
    "kept": Wording(
        "keep_fp32: {count} {count:weight is|weights are} held in float32.",
        "keep_fp32：{count} 个权重以 float32 保存。",
        _HOME,
    ),
    "written": Wording("The compared file was written to {path}.", "参与对比的文件已写入 {path}。", _HOME),
    # what a search gives away
    "handed_file": Wording(
        "a .gguf file in which these weights are float32", "一个 .gguf 文件，其中这些权重为 float32",
    ),
    "handed_quantize": Wording(
        "options of llama-quantize, which makes such a file of the F32 one",
        "llama-quantize 的选项，由 F32 文件得到这样的文件",
    ),
    "handed_not_run": Wording(
        "not run here: the wheel has no llama-quantize; make the other weights' types those of the compared file",
        "未在此运行：该 wheel 不含 llama-quantize；其余权重应与参与对比的文件同型",
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
