"""Folders of small language models as transformers saves them, written by numpy alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["VOCABULARY", "ids", "write"]

VOCABULARY = 96
WIDE, HEAD, HEADS, KEYS, INSIDE, LAYERS, EXPERTS = 64, 32, 4, 2, 96, 2, 4

Change = Callable[[dict[str, Any], dict[str, np.ndarray[Any, Any]]], None]
"""(config, weights by name): what is done to them before they are written."""


def ids(rows: int = 2, tokens: int = 12, seed: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, (rows, tokens))


def write(folder: Path, kind: str = "llama", change: Change = lambda config, weights: None) -> Path:
    """kind: "llama", "qwen3", "mistral" (each token sees four), "mixtral"."""
    config, weights = _config(kind), _weights(kind)
    change(config, weights)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, value in weights.items():
        plain = np.ascontiguousarray(value, np.float32)
        head[name] = {"dtype": "F32", "shape": plain.shape, "data_offsets": [len(data), len(data) + plain.nbytes]}
        data += plain.tobytes()
    text = json.dumps(head).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


def _config(kind: str) -> dict[str, Any]:
    name = {"llama": "Llama", "qwen3": "Qwen3", "mistral": "Mistral", "mixtral": "Mixtral"}[kind]
    more: dict[str, Any] = {"num_local_experts": EXPERTS, "num_experts_per_tok": 2} if kind == "mixtral" else {}
    more |= {"sliding_window": 4} if kind == "mistral" else {}
    return more | {
        "architectures": [f"{name}ForCausalLM"], "model_type": kind, "vocab_size": VOCABULARY, "hidden_size": WIDE,
        "intermediate_size": INSIDE, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS, "head_dim": HEAD, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
        "bos_token_id": 1, "eos_token_id": 2, "attention_bias": False,
    }  # fmt: skip


def _weights(kind: str) -> dict[str, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(0)

    def product(*shape: int) -> np.ndarray[Any, Any]:
        return draw.normal(0, 1.5 / shape[-1] ** 0.5, shape)

    def norm(size: int) -> np.ndarray[Any, Any]:
        return 1 + 0.3 * draw.normal(size=size)

    weights = {"model.embed_tokens.weight": draw.normal(size=(VOCABULARY, WIDE))}
    for layer in range(LAYERS):
        front = f"model.layers.{layer}."
        weights[f"{front}input_layernorm.weight"] = norm(WIDE)
        for letter, heads in (("q", HEADS), ("k", KEYS), ("v", KEYS)):
            weights[f"{front}self_attn.{letter}_proj.weight"] = product(heads * HEAD, WIDE)
        weights[f"{front}self_attn.o_proj.weight"] = product(WIDE, HEADS * HEAD)
        if kind == "qwen3":
            weights |= {f"{front}self_attn.{letter}_norm.weight": norm(HEAD) for letter in "qk"}
        weights[f"{front}post_attention_layernorm.weight"] = norm(WIDE)
        if kind == "mixtral":
            block = f"{front}block_sparse_moe."
            weights[f"{block}gate.weight"] = product(EXPERTS, WIDE)
            for one in (f"{block}experts.{number}." for number in range(EXPERTS)):
                weights |= {f"{one}{name}.weight": product(INSIDE, WIDE) for name in ("w1", "w3")}
                weights[f"{one}w2.weight"] = product(WIDE, INSIDE)
            continue
        weights |= {f"{front}mlp.{one}_proj.weight": product(INSIDE, WIDE) for one in ("gate", "up")}
        weights[f"{front}mlp.down_proj.weight"] = product(WIDE, INSIDE)
    return {**weights, "model.norm.weight": norm(WIDE), "lm_head.weight": product(VOCABULARY, WIDE)}
