"""Language models on two roads with one thing wrong, or nothing: who is named, why, and with which status.

    python tests/planted/language.py [torch|gguf|vllm|first|second|third|NAME ...]

Three batches of cases, whose labels were written before any of them was run (one of the first was corrected after): how
the name of the first wrong operator may look, the codes that its cause may have, and what the cause has to name (a
weight or a key of the configuration); "" where nothing is asked. ``gguf`` needs xllamacpp and gguf, ``vllm``
PRECISION_DEBUG_VLLM_PYTHON, all of them transformers.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "backends")]

import precision_debug  # noqa: E402
from planted import configured  # noqa: E402

Weights = dict[str, Any]
Edit = Callable[[Weights], None]
configured.KINDS = {
    **configured.KINDS,
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "gemma": ("Gemma", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen2_wide": ("Qwen2", {"num_attention_heads": 2, "num_key_value_heads": 1}),
    "qwen2_moe": ("Qwen2Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
                               "shared_expert_intermediate_size": 96, "norm_topk_prob": True, "decoder_sparse_step": 1,
                               "mlp_only_layers": []}),
}  # fmt: skip
_DIFFER = ("files_differ",)
_NARROW = ("files_differ", "held_narrower", "coarse", "drift", "other_arithmetic")


@dataclass(frozen=True, kw_only=True)
class Case:
    """who: "" where nobody may be named. edit: of the target's weights. factories: source of both sides' modules,
    where a file of weights cannot have the fault; FOLDER stands for the trainer's. both: of both sides' weights.
    keys, served: of the trainer's configuration, and of the served one. architecture: of a GGUF's writer, "" for the
    example's."""

    engine: str
    kind: str
    who: str
    causes: tuple[str, ...] = ()
    names: str = ""
    edit: Edit | None = None
    both: Edit | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    served: Mapping[str, Any] = field(default_factory=dict)
    factories: tuple[str, str] = ("", "")
    mode: str = ""
    status: int = 1
    feeds: Mapping[str, Any] = field(default_factory=dict)
    file: Mapping[str, Any] = field(default_factory=dict)


def bfloat16(weight: Any) -> Any:
    bits = np.ascontiguousarray(weight, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def other(weight: Any) -> Any:
    """Another checkpoint's: as large, and unlike."""
    return (weight.std() * np.random.default_rng(7).normal(size=weight.shape)).astype(np.float32)


def exchange(weights: Weights, one: str, two: str) -> None:
    """All tensors whose name holds one, with those that hold the other."""
    for name in [name for name in weights if one in name]:
        mate = name.replace(one, two)
        weights[name], weights[mate] = weights[mate], weights[name]


def put(pattern: str, change: Callable[[Any], Any]) -> Edit:
    def edit(weights: Weights) -> None:
        found = [name for name in weights if re.search(pattern, name)]
        assert found, pattern
        for name in found:
            weights[name] = change(weights[name])

    return edit


_PLAIN = """
import torch, transformers

def load():
    return transformers.AutoModelForCausalLM.from_pretrained(FOLDER, torch_dtype=torch.float32).eval()
"""
_AS_IT_IS = _PLAIN + """
def build():
    return load()
"""
_LOW_ROUTER = _PLAIN + """
def build():
    model = load()
    for layer in model.model.layers:
        gate = layer.block_sparse_moe.gate
        gate.weight.data = gate.weight.data.bfloat16()
        gate.forward = lambda x, gate=gate: torch.nn.functional.linear(x.bfloat16(), gate.weight).float()
    return model
"""
_POSITIONS = _PLAIN + """
class Padded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = load()

    def forward(self, input_ids, attention_mask):
        places = COUNT
        return self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=places).logits

def build():
    return Padded()
"""
_MASKED = _PLAIN + """
class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = load()

    def forward(self, input_ids):
        size = input_ids.shape[1]
        hidden = torch.full((size, size), torch.finfo(torch.float32).min).triu(DIAGONAL)
        return self.model(input_ids=input_ids, attention_mask=hidden[None, None].expand(len(input_ids), 1, size, size)
                          ).logits

def build():
    return Masked()
"""
_LEFT = np.concatenate([np.zeros((2, 4), np.int64), np.ones((2, 8), np.int64)], axis=1)

CASES: Mapping[str, Case] = {
    "router_rounded": Case(engine="torch", kind="mixtral", who=r"layers\.1\.block_sparse_moe", causes=_NARROW,
                           names=r"layers\.1\.block_sparse_moe\.gate\.weight",
                           edit=put(r"layers\.1\.block_sparse_moe\.gate\.weight", bfloat16)),
    "router_computed_low": Case(engine="torch", kind="mixtral", who=r"layers\.0\.block_sparse_moe", causes=_NARROW,
                                factories=(_AS_IT_IS, _LOW_ROUTER)),
    "experts_exchanged": Case(engine="torch", kind="mixtral", who=r"layers\.1\.block_sparse_moe", causes=_DIFFER,
                              names=r"layers\.1\.block_sparse_moe\.experts\.[12]\.",
                              edit=lambda w: exchange(w, "layers.1.block_sparse_moe.experts.1.",
                                                      "layers.1.block_sparse_moe.experts.2.")),
    "expert_foreign": Case(engine="torch", kind="qwen3_moe", who=r"layers\.0\.mlp", causes=_DIFFER,
                           names=r"layers\.0\.mlp\.experts\.2\.down_proj",
                           edit=put(r"layers\.0\.mlp\.experts\.2\.down_proj", other)),
    "shared_scaled": Case(engine="torch", kind="qwen2_moe", who=r"layers\.1\.mlp", causes=_DIFFER,
                          names=r"layers\.1\.mlp\.shared_expert\.down_proj",
                          edit=put(r"layers\.1\.mlp\.shared_expert\.down_proj", lambda w: 2 * w)),
    "shared_missing": Case(engine="torch", kind="qwen2_moe", who=r"layers\.0\.mlp", causes=_DIFFER,
                           names=r"layers\.0\.mlp\.shared_expert\.down_proj",
                           edit=put(r"layers\.0\.mlp\.shared_expert\.down_proj", np.zeros_like)),
    "left_positions": Case(engine="torch", kind="gpt2", who=r"wpe|position|model/", feeds={"attention_mask": _LEFT},
                           factories=(_POSITIONS.replace("COUNT", "(attention_mask.cumsum(1) - 1).clamp(min=0)"),
                                      _POSITIONS.replace("COUNT", "torch.arange(12)[None].expand_as(input_ids)"))),
    "mask_off_by_one": Case(engine="torch", kind="llama", who=r"layers\.0\.self_attn|triu|mask|^model/",
                            factories=(_MASKED.replace("DIAGONAL", "1"), _MASKED.replace("DIAGONAL", "2"))),
    "gguf_experts_exchanged": Case(engine="gguf", kind="llama", who=r"ffn_moe_(gate|up|down|out)-1|blk\.1",
                                   causes=_DIFFER, names=r"blk\.1\.ffn_(gate|up|down)_exps"),
    "gguf_norm_foreign": Case(engine="gguf", kind="qwen3", who=r"Kcur_normed-1|Kcur-1|blk\.1\.attn_k_norm",
                              causes=_DIFFER, names=r"blk\.1\.attn_k_norm"),
    # labelled status 1 and the key before the first run: llama.cpp takes 30, as the file has, where the key is missing
    "gguf_softcap_left_out": Case(engine="gguf", kind="gemma2", who="", status=0),
    "gguf_healthy": Case(engine="gguf", kind="qwen3", who="", file={"kind": "Q8_0"}, status=0),
    "vllm_experts_exchanged": Case(engine="vllm", kind="mixtral", who=r"layers\.1\.block_sparse_moe", causes=_DIFFER,
                                   names=r"layers\.1\.block_sparse_moe\.experts\.[12]\.",
                                   edit=lambda w: exchange(w, "layers.1.block_sparse_moe.experts.1.",
                                                           "layers.1.block_sparse_moe.experts.2.")),
    "vllm_norm_of_ones": Case(engine="vllm", kind="qwen3", who=r"layers\.0\.self_attn", causes=_DIFFER,
                              names=r"layers\.0\.self_attn\.k_norm\.weight",
                              edit=put(r"layers\.0\.self_attn\.k_norm\.weight", np.ones_like)),
    "vllm_stale_gemma": Case(engine="vllm", kind="gemma", who=r"layers\.1\.mlp\.", causes=_DIFFER,
                             names=r"layers\.1\.mlp\.gate_proj\.weight",
                             edit=put(r"layers\.1\.mlp\.gate_proj\.weight",
                                      lambda w: (w + 0.2 * other(w)).astype(np.float32))),
    "vllm_healthy": Case(engine="vllm", kind="qwen3", who="", mode="vllm_bf16", status=0),
}  # fmt: skip


def _permuted(weight: Any) -> Any:
    """A head's two halves in turn, as llama.cpp wants the rows of q and k; of two heads."""
    import gguf_files

    return gguf_files.permuted(weight, 2)


def _exchange_two(one: str, two: str) -> Edit:
    return lambda weights: exchange(weights, one, two)


def _widen(gate: str, up: str, down: str) -> Edit:
    """Four channels of which the function is as before (nearly), and the product of gate and up beyond float16."""

    def edit(weights: Weights) -> None:
        for channel in (3, 41, 60, 77):
            weights[gate][channel] *= 2.0**6
            weights[up][channel] *= 2.0**14
            weights[down][:, channel] /= 2.0**8

    return edit


_IN_TRANSFORMERS = """
import torch, transformers

def build():
    model = transformers.AutoModelForCausalLM.from_pretrained(
        FOLDER, torch_dtype=torch.float32, attn_implementation=HOW).eval()
    return model
"""
_UNTIED = _PLAIN + """
def build():
    model = load()
    torch.manual_seed(5)
    old = model.lm_head.weight.detach()
    model.lm_head.weight = torch.nn.Parameter(0.9 * old + 0.2 * old.std() * torch.randn_like(old))
    return model
"""
_LAYER = "model.layers.1.mlp."
SECOND: Mapping[str, Case] = {
    "rows_of_k_permuted": Case(engine="torch", kind="qwen2", who=r"layers\.1\.self_attn\.k_proj", causes=_DIFFER,
                               names=r"layers\.1\.self_attn\.k_proj\.weight",
                               edit=put(r"layers\.1\.self_attn\.k_proj\.weight", _permuted)),
    "heads_regrouped": Case(engine="torch", kind="mistral", who=r"layers\.0\.self_attn|rotary", causes=_DIFFER,
                            names=r"num_attention_heads|head_dim|num_key_value_heads",
                            served={"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}),
    "softcap_ignored": Case(engine="torch", kind="gemma2", who=r"layers\.0\.self_attn",
                            keys={"attn_logit_softcapping": 2.0},
                            factories=(_IN_TRANSFORMERS.replace("HOW", "'eager'"),
                                       _IN_TRANSFORMERS.replace("HOW", "'sdpa'"))),
    "tied_forgotten": Case(engine="torch", kind="gemma", who=r"lm_head", causes=_DIFFER, names=r"lm_head\.weight",
                           factories=(_AS_IT_IS, _UNTIED)),
    "overflow_in_down": Case(engine="torch", kind="llama", who=r"layers\.1\.mlp", mode="torch_fp16",
                             causes=("overflow", "range_inside"),
                             both=_widen(*(f"{_LAYER}{one}_proj.weight" for one in ("gate", "up", "down")))),
    "head_rounded": Case(engine="torch", kind="qwen2", who=r"lm_head", causes=_NARROW, names=r"lm_head\.weight",
                         edit=put(r"lm_head\.weight", bfloat16)),
    "moe_healthy": Case(engine="torch", kind="qwen2_moe", who="", mode="torch_bf16", status=0),
    "gemma2_healthy": Case(engine="torch", kind="gemma2", who="", mode="torch_bf16", status=0),
    "gguf_k_unpermuted": Case(engine="gguf", kind="llama_dense", who=r"Kcur-1", causes=_DIFFER,
                              names=r"blk\.1\.attn_k\.weight", edit=put(r"blk\.1\.attn_k", _permuted)),
    "gguf_bias_foreign": Case(engine="gguf", kind="qwen2", who=r"Vcur-1|attn_v", causes=_DIFFER,
                              names=r"blk\.1\.attn_v\.bias", edit=put(r"blk\.1\.attn_v\.bias", lambda w: 1 + other(w))),
    "gguf_router_rounded": Case(engine="gguf", kind="llama", who=r"ffn_moe_logits-0|blk\.0\.ffn_gate_inp",
                                causes=_NARROW, names=r"blk\.0\.ffn_gate_inp",
                                edit=put(r"blk\.0\.ffn_gate_inp", bfloat16)),
    "gguf_gate_up_q8": Case(engine="gguf", kind="qwen2", who=r"ffn_(gate|up)-1", causes=_DIFFER,
                            names=r"blk\.1\.ffn_(gate|up)\.weight", file={"kind": "Q8_0"},
                            edit=_exchange_two("blk.1.ffn_gate.", "blk.1.ffn_up.")),
    "gguf_healthy_moe": Case(engine="gguf", kind="llama", who="", file={"kind": "BF16"}, status=0),
    "vllm_window_ignored": Case(engine="vllm", kind="mistral", who=r"layers\.0\.self_attn", causes=_DIFFER,
                                names=r"sliding_window", keys={"sliding_window": 4}, served={"sliding_window": None}),
    "vllm_router_rounded": Case(engine="vllm", kind="mixtral", who=r"layers\.0\.block_sparse_moe", causes=_NARROW,
                                names=r"layers\.0\.block_sparse_moe\.gate\.weight",
                                edit=put(r"layers\.0\.block_sparse_moe\.gate\.weight", bfloat16)),
    "vllm_expert_foreign": Case(engine="vllm", kind="qwen3_moe", who=r"layers\.1\.mlp", causes=_DIFFER,
                                names=r"layers\.1\.mlp\.experts\.3\.up_proj",
                                edit=put(r"layers\.1\.mlp\.experts\.3\.up_proj", other)),
    "vllm_stale_k": Case(engine="vllm", kind="mistral", who=r"layers\.1\.self_attn\.(k_proj|rotated_k)", causes=_DIFFER,
                         names=r"layers\.1\.self_attn\.k_proj\.weight",
                         edit=put(r"layers\.1\.self_attn\.k_proj\.weight",
                                  lambda w: (w + 0.3 * other(w)).astype(np.float32))),
    "vllm_healthy_moe": Case(engine="vllm", kind="mixtral", who="", mode="vllm_bf16", status=0),
}  # fmt: skip


def _blend(weight: Any) -> Any:
    """From before the last sync: near, and another."""
    return (weight + 0.2 * other(weight)).astype(np.float32)


_TWO_STEPS = _PLAIN + """
class Cached(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = load()

    def forward(self, input_ids):
        half = input_ids.shape[1] // 2
        first = self.model(input_ids=input_ids[:, :half], use_cache=True)
        places = torch.arange(half + OFF, input_ids.shape[1] + OFF)[None]
        second = self.model(input_ids=input_ids[:, half:], past_key_values=first.past_key_values, position_ids=places)
        return torch.cat([first.logits, second.logits], 1)

def build():
    return Cached()
"""
_AT_ONCE = _PLAIN + """
class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = load()

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits

def build():
    return Whole()
"""
_LOW_ROUTER_2 = _PLAIN + """
def build():
    model = load()
    for layer in model.model.layers:
        gate = layer.mlp.gate
        gate.weight.data = gate.weight.data.bfloat16()
        gate.forward = lambda x, gate=gate: torch.nn.functional.linear(x.bfloat16(), gate.weight).float()
    return model
"""
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
_WINDOW = {"use_sliding_window": True, "sliding_window": 4, "layer_types": ["sliding_attention"] * 2}
THIRD: Mapping[str, Case] = {
    "yarn_served_linear": Case(engine="torch", kind="llama", who=r"rotary", causes=_DIFFER, names=r"rope_scaling",
                               keys={"rope_scaling": _YARN},
                               served={"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "window_of_qwen_ignored": Case(engine="torch", kind="qwen2", who=r"layers\.0|mask|^model/", causes=_DIFFER,
                                   names=r"sliding_window|layer_types", keys=_WINDOW,
                                   served={"use_sliding_window": False, "sliding_window": None,
                                           "layer_types": ["full_attention"] * 2}),
    "layer_of_last_sync": Case(engine="torch", kind="qwen3", who=r"layers\.1\.self_attn\.[qkv]_proj", causes=_DIFFER,
                               names=r"layers\.1\.self_attn\.[qkv]_proj\.weight",
                               edit=put(r"layers\.1\.self_attn\.[qkvo]_proj\.weight", _blend)),
    "head_tied_in_serving": Case(engine="torch", kind="qwen3", who=r"lm_head", causes=_DIFFER,
                                 names=r"tie_word_embeddings|lm_head\.weight", served={"tie_word_embeddings": True}),
    "router_of_qwen_low": Case(engine="torch", kind="qwen2_moe", who=r"layers\.0\.mlp", causes=_NARROW,
                               factories=(_AS_IT_IS, _LOW_ROUTER_2)),
    "cache_one_place_on": Case(engine="torch", kind="llama", who=r"arange|rotary|position|add",
                               factories=(_TWO_STEPS.replace("OFF", "0"), _TWO_STEPS.replace("OFF", "1"))),
    "other_token_ids": Case(engine="torch", kind="llama", who=r"^input_ids", causes=("inputs_differ",)),
    "cache_healthy": Case(engine="torch", kind="llama", who="", status=0,
                          factories=(_AT_ONCE, _TWO_STEPS.replace("OFF", "0"))),
    "yarn_healthy": Case(engine="torch", kind="llama", who="", mode="torch_bf16", status=0,
                         keys={"rope_scaling": _YARN}),
    "gguf_epsilon_q8": Case(engine="gguf", kind="llama_dense", who=r"norm-0", causes=_DIFFER,
                            names=r"layer_norm_rms_epsilon", edit=lambda _: None, file={"kind": "Q8_0", "eps": 0.1}),
    "gguf_embedding_q4": Case(engine="gguf", kind="llama_dense", who=r"token_embd|embd", names=r"token_embd",
                              causes=("files_differ", "few_bits", "coarse", "held_narrower"), edit=lambda _: None,
                              file={"kind": "Q4_0", "keep": lambda name: name != "token_embd.weight"}),
    "gguf_window_of_gemma": Case(engine="gguf", kind="gemma2", who=r"kq|SOFT_MAX|soft_max", causes=_DIFFER,
                                 names=r"sliding_window"),
    "gguf_healthy_gemma": Case(engine="gguf", kind="gemma2", who="", file={"kind": "Q8_0"}, status=0),
    "vllm_yarn_left_out": Case(engine="vllm", kind="llama", who=r"layers\.0\.self_attn|rotary", causes=_DIFFER,
                               names=r"rope_scaling", keys={"rope_scaling": _YARN}, served={"rope_scaling": None}),
    # first of kind "qwen2", whose heads of 16 vLLM refuses on a CPU: it asks no head_dim of Qwen2's configuration
    "vllm_stale_bias": Case(engine="vllm", kind="qwen2_wide", who=r"layers\.1\.self_attn\.(v_proj|view)",
                            causes=_DIFFER, names=r"layers\.1\.self_attn\.v_proj\.bias",
                            edit=put(r"layers\.1\.self_attn\.v_proj\.bias", other)),
    "vllm_healthy_gemma": Case(engine="vllm", kind="gemma", who="", mode="vllm_bf16", status=0),
}  # fmt: skip
"""cache_healthy: what the two roads have in common is equal but for the order of sums; rows of other shapes are none's
fault. other_token_ids: the served side is a recording of the same model, of ids with another first token."""
FIRST = CASES
CASES = {**FIRST, **SECOND, **THIRD}


def _folders(case: Case, room: Path) -> tuple[Path, Path]:
    from safetensors.numpy import load_file, save_file

    trainer = configured.build(room / "trainer", case.kind, 32 if case.engine == "vllm" else 0)
    _configure(trainer, case.keys)
    _edit_weights(trainer, case.both, load_file, save_file)
    target = Path(shutil.copytree(trainer, room / "served"))
    _configure(target, case.served)
    _edit_weights(target, case.edit, load_file, save_file)
    return trainer, target


def _configure(folder: Path, values: Mapping[str, Any]) -> None:
    if values:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **values}), encoding="utf-8")


def _edit_weights(folder: Path, edit: Edit | None, load: Callable[..., Any], save: Callable[..., Any]) -> None:
    if edit is not None:
        file = folder / "model.safetensors"
        weights = {name: one.copy() for name, one in load(file).items()}
        edit(weights)
        save({name: np.ascontiguousarray(one) for name, one in weights.items()}, file, metadata={"format": "pt"})


def _gguf(name: str, case: Case, room: Path) -> tuple[Path, Path]:
    import gguf_files
    import test_llamacpp_architectures as made

    if case.kind == "llama_dense":
        assert case.edit is not None
        values = {key: one.copy() for key, one in gguf_files.weights().items()}
        base = gguf_files.write(room / "F32.gguf")
        case.edit(values)
        return base, gguf_files.write(room / "other.gguf", values=values, **case.file)
    base = made.write(room / "F32.gguf", case.kind, "F32")
    plain, writer = made.weights, made.gguf.GGUFWriter
    softcap, window = writer.add_final_logit_softcapping, writer.add_sliding_window

    def changed(architecture: str) -> Weights:
        found = plain(architecture)
        if name == "gguf_experts_exchanged":
            for kind in ("gate", "up", "down"):
                one = found[f"blk.1.ffn_{kind}_exps.weight"]
                found[f"blk.1.ffn_{kind}_exps.weight"] = np.ascontiguousarray(one[[0, 2, 1, 3]])
        if case.edit is not None:
            case.edit(found)
        if name == "gguf_norm_foreign":
            found["blk.1.attn_k_norm.weight"] = (1 + other(found["blk.1.attn_k_norm.weight"])).astype(np.float32)
        return found

    made.weights = changed
    if name == "gguf_softcap_left_out":
        writer.add_final_logit_softcapping = lambda *_: None
    if name == "gguf_window_of_gemma":
        writer.add_sliding_window = lambda self, size: window(self, size // 2)
    try:
        return base, made.write(room / "other.gguf", case.kind, case.file.get("kind", "F32"))
    finally:
        made.weights, writer.add_final_logit_softcapping, writer.add_sliding_window = plain, softcap, window


def _record_other_ids(folder: Path, room: Path) -> Path:
    """What the served side recorded, of ids with another first token."""
    import torch
    import transformers

    from precision_debug.recording.recorder import Recorder

    ids = torch.from_numpy(configured.IDS["input_ids"].copy())
    ids[:, 0] = (ids[:, 0] + 1) % configured.VOCABULARY
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
    record = Recorder(room / "dump")
    record("Input", "input_ids", ids)
    record.watch(model)
    with torch.no_grad():
        model(input_ids=ids)
    return room / "dump"


def run_one(name: str, room: Path) -> tuple[dict[str, bool], str]:
    """What is right of a case, and what was told."""
    case = CASES[name]
    if case.engine == "gguf":
        import gguf_files

        base, target = _gguf(name, case, room)
        report = precision_debug.compare(
            str(target), run_mode="gguf_cpu", baseline="gguf_fp32", baseline_model=str(base),
            inputs={"input_ids": gguf_files.ids()}, kv_cache="f32", flash_attention="off",
        )  # fmt: skip
    else:
        base, target = _folders(case, room)
        sides = [str(base), str(target)]
        if case.factories[0]:
            for place, source in enumerate(case.factories):
                file = room / f"side{place}.py"
                file.write_text(source.replace("FOLDER", repr(str(base))), encoding="utf-8")
                sides[place] = f"{file}:build"
        mode = case.mode or ("vllm_fp32" if case.engine == "vllm" else "torch_fp32")
        mode = str(_record_other_ids(target, room)) if name == "other_token_ids" else mode
        report = precision_debug.compare(
            sides[1], run_mode=mode, baseline="torch_fp32", baseline_model=sides[0],
            inputs={**configured.IDS, **case.feeds},
        )  # fmt: skip
    culprits = report.explanation.culprits if report.explanation is not None else ()
    first = culprits[0] if culprits else None
    told = str(first.evidence.get("name", first.evidence.get("weight", ""))) if first is not None else ""
    right = {
        "status": report.exit_status == case.status,
        "who": bool(first is not None and re.search(case.who, first.name)) if case.who else first is None,
    }
    if case.causes:
        right["cause"] = first is not None and first.cause in case.causes
    if case.names:
        right["named"] = bool(re.search(case.names, told))
    text = f"{first.name}: {first.cause} {dict(first.evidence)}" if first is not None else "nobody"
    return right, f"status {report.exit_status}, {len(culprits)} named; {text}"


def main(asked: list[str]) -> None:
    batches = {"first": FIRST, "second": SECOND, "third": THIRD}
    within = [name for one in asked for name in batches.get(one, ())] or [*CASES]
    engines = [one for one in asked if one not in batches]
    names = [name for name in within if not engines or name in engines or CASES[name].engine in engines]
    whole, counts = 0, dict[str, list[bool]]()
    for name in names:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as room:
            try:
                right, told = run_one(name, Path(room))
            except Exception as error:
                right, told = {"ran": False}, f"{type(error).__name__}: {error}"
        whole += all(right.values())
        for what, value in right.items():
            counts.setdefault(what, []).append(value)
        wrong = [what for what, value in right.items() if not value]
        seconds = time.monotonic() - begun
        said = "right" if not wrong else f"WRONG: {', '.join(wrong)}"
        print(f"{name:24} {said:16} {seconds:5.1f} s  {told[:400]}", flush=True)
    print(f"wholly right {whole} of {len(names)};", "; ".join(f"{w} {sum(v)} of {len(v)}" for w, v in counts.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
