"""What this backend says of tensors and runs, in English and Chinese."""

from __future__ import annotations

from precision_debug.reasons import Catalogue, Wording

__all__ = ["REASONS", "say"]

_HOME = "Nothing to do: its values are compared in another row, or there is nothing to compare."

REASONS = Catalogue("vllm", {
    # notes of a run
    "head_of_all": Wording(
        "vLLM computes lm_head of the tokens that it samples after; here its own head was asked for every token.",
        "vLLM 只对要采样的词元计算 lm_head；此处用其自身的 head 计算了每个词元。", _HOME,
    ),
    "elsewhere": Wording(
        "vLLM ran in {python}, with a torch and a transformers of its own.",
        "vLLM 在 {python} 中运行，使用其自己的 torch 与 transformers。", _HOME,
    ),
    "keeps_its_head": Wording(
        "config.json says tie_word_embeddings, and the folder has an lm_head.weight of its own: vLLM multiplies with"
        " that one, whatever the key says.",
        "config.json 设有 tie_word_embeddings，而目录中另有 lm_head.weight：无论该键为何，vLLM 都使用后者。",
        "Where the trainer ties them, take lm_head.weight out of what is served.",
    ),
    # why a tensor is paired with none
    "inside_kernel": Wording(
        "transformers computes it in a form of its own, which no module of it gives",
        "transformers 以另一种形式计算它，没有模块给出这个张量",
        "See the tensors around it.",
    ),
    # what a search gives away
    "handed_head": Wording("vLLM's own option for a head in float32", "vLLM 自身的选项：head 以 float32 计算"),
    "handed_not_run": Wording(
        "an option of `vllm serve`; the setting above is the same and was run",
        "用于 `vllm serve`；上面的设置与之相同，且已运行",
    ),
})  # fmt: skip
"""Every reason that the backend gives."""

say = REASONS
