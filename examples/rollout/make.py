"""Write a small Llama as a trainer has it, and as a rollout engine that missed one layer of a weight sync.

Needs torch and transformers: python examples/rollout/make.py FOLDER
"""

from __future__ import annotations

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


if __name__ == "__main__":
    where = Path(sys.argv[1])
    save(where / "trainer")
    save(where / "stale", stale=True)
    save(where / "trainer32", head_dim=32)
    save(where / "serve", stale=True, head_dim=32)
    np.savez(where / "ids.npz", input_ids=np.random.default_rng(1).integers(0, 128, (2, 16)))
