"""Models whose configuration alone is not the trainer's: which operator differs first, and which key makes it.

    python tests/planted/configured.py [torch|gguf|vllm|NAME ...]

Labels were written before any of them was run. Each case: an architecture, what is changed in the served folder's
config.json (or the file's head), how the name of the first wrong operator may look (a regular expression), and the keys
that are to be told with both values; () where no key may be told. ``torch`` needs transformers, ``gguf`` xllamacpp,
``vllm`` PRECISION_DEBUG_VLLM_PYTHON.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "backends")]

import precision_debug  # noqa: E402

WIDE, VOCABULARY, LAYERS = 64, 96, 2
IDS = {"input_ids": np.random.default_rng(3).integers(0, VOCABULARY, (2, 12))}

COMMON: Mapping[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": WIDE, "intermediate_size": 96, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
_GEMMA = {"head_dim": 16, "attn_logit_softcapping": 20.0, "final_logit_softcapping": 10.0, "sliding_window": 64,
          "query_pre_attn_scalar": 16, "attn_implementation": "eager"}  # fmt: skip
KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("Llama", {"head_dim": 16, "attention_bias": False}),
    "llama3": ("Llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                          "high_freq_factor": 4.0, "original_max_position_embeddings": 8}}),
    "mistral": ("Mistral", {"head_dim": 16, "sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "gemma2": ("Gemma2", _GEMMA),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3Moe", {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
                               "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}),
    "olmoe": ("Olmoe", {"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": False, "clip_qkv": None}),
    "granite": ("Granite", {"attention_multiplier": 0.25, "residual_multiplier": 1.0, "embedding_multiplier": 1.0,
                            "logits_scaling": 1.0}),
    "cohere": ("Cohere", {"logit_scale": 1.0, "use_qk_norm": False}),
    "gpt2": ("GPT2", {"n_embd": WIDE, "n_layer": LAYERS, "n_head": 4, "n_positions": 256}),
    "gpt_neox": ("GPTNeoX", {"rotary_pct": 0.5, "use_parallel_residual": True}),
    "stablelm": ("StableLm", {"partial_rotary_factor": 0.5}),
}  # fmt: skip

Change = Callable[[dict[str, Any]], None]


def put(**values: Any) -> Change:
    return lambda config: config.update(values)


def without(*keys: str) -> Change:
    return lambda config: [config.pop(key, None) for key in keys] and None


def inside(group: str, **values: Any) -> Change:
    return lambda config: config[group].update(values)


@dataclass(frozen=True, kw_only=True)
class Case:
    kind: str
    change: Change
    who: str
    keys: tuple[str, ...]
    engines: tuple[str, ...] = ("torch",)
    mode: str = "torch_fp32"
    stale: str = ""


UNREAD = ""
"""The label was an operator of the attention. transformers' usual one (sdpa) reads neither a softcap nor GPT-2's scale
by layer, so that both folders compute the same; found in the first run."""


IDLE = {"max_position_embeddings": 512, "eos_token_id": 5, "initializer_range": 0.5}
"""What no operator here reads. The first run had use_cache False too, which takes outputs away: inconclusive."""

CASES = {
    "theta": Case(kind="llama", change=put(rope_theta=500.0), who=r"rotary", keys=("rope_theta",)),
    "theta_bf16": Case(kind="llama", change=put(rope_theta=500.0), who=r"rotary", keys=("rope_theta",),
                       mode="torch_bf16"),
    "theta_among_idle": Case(kind="qwen2", change=put(rope_theta=1e6, **IDLE), who=r"rotary", keys=("rope_theta",)),
    "scaling_linear": Case(kind="llama", change=put(rope_scaling={"rope_type": "linear", "factor": 4.0}),
                           who=r"rotary", keys=("rope_scaling",)),
    "scaling_left_out": Case(kind="llama3", change=without("rope_scaling"), who=r"rotary", keys=("rope_scaling",)),
    "scaling_factor": Case(kind="llama3", change=inside("rope_scaling", factor=32.0), who=r"rotary",
                           keys=("rope_scaling.factor",)),
    "epsilon": Case(kind="llama", change=put(rms_norm_eps=0.1), who=r"layers\.0\.input_layernorm",
                    keys=("rms_norm_eps",)),
    "epsilon_gpt2": Case(kind="gpt2", change=put(layer_norm_epsilon=0.1), who=r"h\.0\.ln_1",
                         keys=("layer_norm_epsilon",)),
    "heads": Case(kind="llama", change=put(num_attention_heads=8, num_key_value_heads=4, head_dim=8),
                  who=r"layers\.0\.self_attn|rotary", keys=("num_attention_heads", "head_dim", "num_key_value_heads")),
    "head_dim_forgotten": Case(kind="gpt2", change=put(n_head=8), who=r"h\.0\.attn", keys=("n_head",)),
    "activation": Case(kind="llama", change=put(hidden_act="gelu"), who=r"layers\.0\.mlp", keys=("hidden_act",)),
    "tied": Case(kind="llama", change=put(tie_word_embeddings=True), who=r"lm_head", keys=("tie_word_embeddings",)),
    "final_softcap": Case(kind="gemma2", change=put(final_logit_softcapping=None), who=r"logits|tanh|div|mul|\(model\)",
                          keys=("final_logit_softcapping",)),
    "attention_softcap": Case(kind="gemma2", change=put(attn_logit_softcapping=None), who=UNREAD, keys=()),
    "sliding_window": Case(kind="gemma2", change=put(sliding_window=4), who=r"layers\.0|mask|^model/",
                           keys=("sliding_window",)),
    "window_mistral": Case(kind="mistral", change=put(sliding_window=4), who=r"layers\.0|mask|^model/",
                           keys=("sliding_window",)),
    "attention_scale": Case(kind="gemma2", change=put(query_pre_attn_scalar=64), who=r"layers\.0\.self_attn",
                            keys=("query_pre_attn_scalar",)),
    "scale_granite": Case(kind="granite", change=put(attention_multiplier=1.0), who=r"layers\.0\.self_attn",
                          keys=("attention_multiplier",)),
    "residual_granite": Case(kind="granite", change=put(residual_multiplier=0.5), who=r"layers\.0(/|$)",
                             keys=("residual_multiplier",)),
    "embedding_granite": Case(kind="granite", change=put(embedding_multiplier=2.0), who=r"^model/|embed",
                              keys=("embedding_multiplier",)),
    "logits_granite": Case(kind="granite", change=put(logits_scaling=4.0), who=r"logits|div|\(model\)",
                           keys=("logits_scaling",)),
    "logit_scale_cohere": Case(kind="cohere", change=put(logit_scale=0.0625), who=r"logits|mul|\(model\)",
                               keys=("logit_scale",)),
    "norm_topk": Case(kind="qwen3_moe", change=put(norm_topk_prob=False), who=r"layers\.0\.mlp",
                      keys=("norm_topk_prob",)),
    "norm_topk_olmoe": Case(kind="olmoe", change=put(norm_topk_prob=True), who=r"layers\.0\.mlp",
                            keys=("norm_topk_prob",)),
    "clip_qkv": Case(kind="olmoe", change=put(clip_qkv=0.5), who=r"layers\.0\.self_attn", keys=("clip_qkv",)),
    "experts_each": Case(kind="mixtral", change=put(num_experts_per_tok=1), who=r"layers\.0\.block_sparse_moe",
                         keys=("num_experts_per_tok",)),
    "rotary_part": Case(kind="stablelm", change=put(partial_rotary_factor=1.0), who=r"rotary|layers\.0\.self_attn",
                        keys=("partial_rotary_factor",)),
    "rotary_part_neox": Case(kind="gpt_neox", change=put(rotary_pct=0.25), who=r"rotary|layers\.0\.attention",
                             keys=("rotary_pct",)),
    "parallel_residual": Case(kind="gpt_neox", change=put(use_parallel_residual=False), who=r"layers\.0",
                              keys=("use_parallel_residual",)),
    "scaled_by_layer": Case(kind="gpt2", change=put(scale_attn_by_inverse_layer_idx=True), who=UNREAD, keys=()),
    "epsilon_and_stale": Case(kind="llama", change=put(rms_norm_eps=0.1, **IDLE), who=r"layers\.0\.input_layernorm",
                              keys=("rms_norm_eps",), stale="model.layers.1.mlp.down_proj.weight"),
    "stale_among_idle": Case(kind="llama", change=put(**IDLE), who=r"layers\.1\.mlp\.down_proj", keys=(),
                             stale="model.layers.1.mlp.down_proj.weight"),
    "idle": Case(kind="llama", change=put(**IDLE), who="", keys=()),
    "idle_bf16": Case(kind="qwen2", change=put(**IDLE), who="", keys=(), mode="torch_bf16"),
}  # fmt: skip
# vllm_tied was labelled lm_head and its key: vLLM takes no notice of the key where the folder has an lm_head.weight
VLLM = {
    "vllm_theta": Case(kind="llama", change=put(rope_theta=500.0), who=r"layers\.0\.self_attn|rotary",
                       keys=("rope_theta",)),
    "vllm_scaling": Case(kind="llama", change=put(rope_scaling={"rope_type": "linear", "factor": 4.0}),
                         who=r"layers\.0\.self_attn|rotary", keys=("rope_scaling",)),
    "vllm_epsilon": Case(kind="llama", change=put(rms_norm_eps=0.1, **IDLE), who=r"layers\.0\.input_layernorm",
                         keys=("rms_norm_eps",)),
    "vllm_norm_topk": Case(kind="qwen3_moe", change=put(norm_topk_prob=False), who=r"layers\.0\.mlp",
                           keys=("norm_topk_prob",)),
    "vllm_tied": Case(kind="llama", change=put(tie_word_embeddings=True), who="", keys=()),
    "vllm_window": Case(kind="mistral", change=put(sliding_window=4), who=r"layers\.0\.self_attn",
                        keys=("sliding_window",)),
    "vllm_softcap": Case(kind="gemma2", change=put(final_logit_softcapping=None), who=r"lm_head|logits",
                         keys=("final_logit_softcapping",)),
    "vllm_idle": Case(kind="llama", change=put(**IDLE), who="", keys=()),
}  # fmt: skip
GGUF: Mapping[str, tuple[Mapping[str, Any], str, tuple[str, ...]]] = {
    "gguf_theta": ({"theta": 1e6}, r"Qcur-0|Kcur-0", ("llama.rope.freq_base",)),
    "gguf_theta_q8": ({"theta": 1e6, "kind": "Q8_0"}, r"Qcur-0|Kcur-0", ("llama.rope.freq_base",)),
    "gguf_epsilon": ({"eps": 0.1}, r"norm-0", ("llama.attention.layer_norm_rms_epsilon",)),
    "gguf_scaling": ({"scale": 4.0}, r"Qcur-0|Kcur-0", ("llama.rope.scaling",)),
    "gguf_q8": ({"kind": "Q8_0"}, "", ()),
}
"""What is written otherwise; the operator; the key, or how it begins."""


def build(folder: Path, kind: str, head_dim: int = 0) -> Path:
    """A model whose norms are not 1 and whose weights are large enough to matter."""
    import torch
    import transformers

    named, own = KINDS[kind]
    torch.manual_seed(0)
    given = {**COMMON, **own, **({"head_dim": head_dim} if head_dim else {})}
    if named == "GPT2":
        given = {key: one for key, one in given.items() if not key.startswith(("num_", "hidden_", "intermediate"))}
    attention = given.pop("attn_implementation", None)
    config = getattr(transformers, f"{named}Config")(**given)
    if attention:
        config._attn_implementation = attention
    model = getattr(transformers, f"{named}{'LMHeadModel' if named == 'GPT2' else 'ForCausalLM'}")(config).eval()
    with torch.no_grad():
        for name, one in model.named_parameters():
            one.copy_(torch.randn_like(one) * (1.5 / one.shape[-1] ** 0.5) if one.ndim > 1 else
                      (1.0 if name.endswith("weight") else 0.0) + 0.3 * torch.randn_like(one))  # fmt: skip
    model.save_pretrained(folder, safe_serialization=True)
    return folder


def served(trainer: Path, folder: Path, case: Case) -> Path:
    """The same folder with its configuration changed, and a weight of another checkpoint where the case has one."""
    shutil.copytree(trainer, folder)
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    case.change(config)
    file.write_text(json.dumps(config), encoding="utf-8")
    if case.stale:
        from safetensors.numpy import load_file, save_file

        weights = load_file(folder / "model.safetensors")
        one = weights[case.stale]
        noise = np.random.default_rng(1).normal(size=one.shape).astype(one.dtype)
        weights[case.stale] = one + 0.3 * one.std() * noise
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _judged(report: Any, who: str, keys: tuple[str, ...]) -> tuple[bool, bool, str]:
    """Whether the operator is right, whether the keys are, and what was told."""
    culprits = report.explanation.culprits if report.explanation is not None else ()
    first = culprits[0] if culprits else None
    told = [str(one.evidence.get("name", "")) for one in culprits
            if getattr(one.evidence.get("what"), "code", one.evidence.get("what")) in ("a_setting",)
            or "configuration" in str(one.evidence.get("what", ""))]  # fmt: skip
    right = bool(first is not None and re.search(who, first.name)) if who else first is None
    named = {key for one in told for key in one.split(", ")}
    exact = bool(named) and all(any(one.startswith(key) for one in named) for key in keys) and all(
        any(one.startswith(key) for key in keys) for one in named) if keys else not named  # fmt: skip
    text = f"{first.name}: {first.cause} {dict(first.evidence)}" if first is not None else "nobody"
    return right, exact, f"status {report.exit_status}; {text}"


def run_one(name: str, room: Path) -> tuple[bool, bool, str]:
    """One case, by its name."""
    if name in GGUF:
        import gguf_files

        how, who, keys = GGUF[name]
        one, other = gguf_files.write(room / "F32.gguf"), gguf_files.write(room / "other.gguf", **how)
        report = precision_debug.compare(
            str(other), run_mode="gguf_cpu", baseline="gguf_fp32", baseline_model=str(one),
            inputs={"input_ids": gguf_files.ids()}, kv_cache="f32", flash_attention="off",
        )  # fmt: skip
        return _judged(report, who, keys)
    case = CASES.get(name) or VLLM[name]
    engine = name in VLLM
    trainer = build(room / "trainer", case.kind, 32 if engine else 0)
    report = precision_debug.compare(
        str(served(trainer, room / "served", case)), run_mode="vllm_fp32" if engine else case.mode,
        baseline="torch_fp32", baseline_model=str(trainer), inputs=IDS,
    )  # fmt: skip
    return _judged(report, case.who, case.keys)


def main(asked: list[str]) -> None:
    groups = {"torch": CASES, "gguf": GGUF, "vllm": VLLM}
    names = [name for one in asked or ["torch", "gguf"] for name in groups.get(one, (one,))]
    right = exact = 0
    for name in names:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as room:
            try:
                who, key, told = run_one(name, Path(room))
            except Exception as error:
                who, key, told = False, False, f"{type(error).__name__}: {error}"
        right, exact = right + who, exact + key
        print(f"{name:20} who {'right' if who else 'WRONG'}  key {'right' if key else 'WRONG'}"
              f"  {time.monotonic() - begun:5.1f} s  {told[:260]}", flush=True)  # fmt: skip
    print(f"who {right} of {len(names)}, key {exact} of {len(names)}")


if __name__ == "__main__":
    main(sys.argv[1:])
