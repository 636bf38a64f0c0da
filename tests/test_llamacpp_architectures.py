"""llama.cpp's graphs of other architectures: q and k norms, biases, softcaps with a sliding window, experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import pytest

import precision_debug
from precision_debug.records import ModelFiles, SessionSpec

pytest.importorskip("xllamacpp", reason="needs xllamacpp")
gguf = pytest.importorskip("gguf", reason="needs gguf, which writes the models")

from precision_debug_llamacpp import LlamaCppBackend  # noqa: E402

SIZE = gguf_files.HIDDEN // gguf_files.HEADS


def weights(architecture: str) -> dict[str, Any]:
    found, made = dict(gguf_files.weights()), np.random.default_rng(1)

    def vector(size: int) -> Any:
        return (1 + 0.1 * made.normal(size=size)).astype(np.float32)

    for front in ("blk.0.", "blk.1."):
        if architecture == "qwen3":
            found |= {f"{front}attn_{one}_norm.weight": vector(SIZE) for one in "qk"}
        elif architecture == "qwen2":
            found |= {f"{front}attn_{one}.bias": vector(len(found[f"{front}attn_{one}.weight"])) for one in "qkv"}
        elif architecture == "gemma2":
            names = ("post_attention_norm", "post_ffw_norm")
            found |= {f"{front}{name}.weight": vector(gguf_files.HIDDEN) for name in names}
        else:
            for kind in ("gate", "up", "down"):
                one = found.pop(f"{front}ffn_{kind}.weight")
                found[f"{front}ffn_{kind}_exps.weight"] = np.stack([one, 0.9 * one, one[::-1], -one])
            found[f"{front}ffn_gate_inp.weight"] = made.normal(size=(4, gguf_files.HIDDEN)).astype(np.float32) / 8
    if architecture == "gemma2":
        del found["output.weight"]
    return found


def write(path: Path, architecture: str, kind: str) -> Path:
    out = gguf.GGUFWriter(str(path), architecture)
    out.add_context_length(512)
    out.add_embedding_length(gguf_files.HIDDEN)
    out.add_block_count(2)
    out.add_feed_forward_length(128)
    out.add_head_count(gguf_files.HEADS)
    out.add_head_count_kv(gguf_files.KEYS)
    out.add_vocab_size(gguf_files.TOKENS)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_rope_freq_base(10000.0)
    for add in (out.add_rope_dimension_count, out.add_key_length, out.add_value_length):
        add(SIZE)
    out.add_tokenizer_model("none")
    if architecture == "llama":
        out.add_expert_count(4)
        out.add_expert_used_count(2)
    if architecture == "gemma2":
        out.add_attn_logit_softcapping(50.0)
        out.add_final_logit_softcapping(30.0)
        out.add_sliding_window(8)
    for name, one in weights(architecture).items():
        if one.ndim == 1 or kind == "F32" or "gate_inp" in name:
            out.add_tensor(name, np.ascontiguousarray(one, np.float32))
        else:
            to = gguf.GGMLQuantizationType[kind]
            out.add_tensor(name, gguf.quants.quantize(one, to), raw_dtype=to)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


@pytest.mark.parametrize(
    ("architecture", "names"),
    [
        ("qwen3", {"Qcur_normed-0", "Qcur-0 (ROPE)", "blk.0.attn_output"}),
        ("qwen2", {"Qcur-0", "Qcur-0 (ADD)", "Qcur-0 (ROPE)"}),
        ("gemma2", {"kq_tanh-0", "attn_post_norm-0", "ffn_geglu-1", "token_embd"}),
        ("llama", {"ffn_moe_logits-0", "ffn_moe_gate-1", "ffn_moe_down-1"}),
    ],
)
def test_every_node_is_a_row_and_a_healthy_file_blames_nobody(
    architecture: str, names: set[str], tmp_path: Path
) -> None:  # fmt: skip
    good, path = (write(tmp_path / f"{kind}.gguf", architecture, kind) for kind in ("F32", "Q8_0"))
    spec = SessionSpec(model=ModelFiles(model_file=str(good)), mode="gguf_fp32", options={})
    session = LlamaCppBackend().open(spec, [])
    shown: list[str] = []
    session.run({"input_ids": gguf_files.ids(9)}, lambda _op, name, _value: shown.append(name))
    assert shown == [meta.name for meta in session.tensors]
    assert names <= {*shown}
    session.close()
    feeds = {"input_ids": gguf_files.ids()}
    report = precision_debug.compare(path, run_mode="gguf_cpu", baseline_model=good, inputs=feeds)
    assert str(report.verdict) == "as expected"
    assert not report.explanation.culprits
    assert {str(row.status) for row in report.rows} <= {"pass", "fused away"}
