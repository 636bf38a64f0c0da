"""Write a small Llama as a trainer has it, as a rollout engine that missed one layer of a weight sync, and in 4 bits.

Needs torch and transformers: python examples/rollout/make.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

STALE = "model.layers.1.mlp.down_proj.weight"
"""What the rollout has from before the last update."""


def save(folder: Path, *, stale: bool = False, head_dim: int = 16) -> Path:
    """As ``save_pretrained`` writes it. head_dim: vLLM's attention on a CPU refuses 16, and takes 32."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False,
        head_dim=head_dim,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight.mul_(6)
            if stale and name == STALE:
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 0.1 * weight.std())
    model.save_pretrained(folder)
    return folder


def pack(folder: Path, original: Path) -> Path:
    """As llm-compressor writes weights of 4 bits (compressed-tensors, pack-quantized), a scale for each 32 of them;
    ``lm_head`` stays as it is."""
    from safetensors.torch import load_file, save_file

    state = load_file(original / "model.safetensors")
    for name in [name for name in state if name.endswith("_proj.weight")]:
        weight = state.pop(name)
        groups = weight.reshape(len(weight), -1, 32)
        scale = groups.abs().amax(-1) / 7
        whole = (groups / scale[..., None]).round().clamp(-8, 7).long().reshape(len(weight), -1, 8) + 8
        words = (whole << (4 * torch.arange(8))).sum(-1)
        state |= {f"{name}_packed": words.to(torch.int32), f"{name}_scale": scale,
                  f"{name}_shape": torch.tensor(weight.shape)}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((original / "config.json").read_text(encoding="utf-8"))
    kind = {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32}}
    said = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": kind}}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": said}), encoding="utf-8")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


if __name__ == "__main__":
    where = Path(sys.argv[1])
    save(where / "trainer")
    save(where / "stale", stale=True)
    save(where / "trainer32", head_dim=32)
    save(where / "serve", stale=True, head_dim=32)
    pack(where / "packed", where / "trainer")
    np.savez(where / "ids.npz", input_ids=np.random.default_rng(1).integers(0, 128, (2, 16)))
    np.savez(where / "other_ids.npz", input_ids=np.random.default_rng(2).integers(0, 128, (2, 16)))
