"""Small GGUF language models, written by the ``gguf`` package: Llama's graph, weights in any type that it writes.

    python make.py FOLDER

writes F32.gguf, the same model in Q8_0, the same again with another rope theta, and token ids for --inputs and, others,
for --held_out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

HIDDEN, INNER, HEADS, KEYS, LAYERS, TOKENS = 64, 128, 4, 2, 2, 96

Array = np.ndarray[Any, Any]


def weights(seed: int = 0) -> dict[str, Array]:
    """By llama.cpp's names, float32. The residual stream keeps what it was: layers add little to it."""
    made = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, size: float = 1.0) -> Array:
        return (made.normal(size=(rows, columns)) * size / np.sqrt(columns)).astype(np.float32)

    def norm() -> Array:
        return (1 + 0.1 * made.normal(size=HIDDEN)).astype(np.float32)

    found = {"token_embd.weight": matrix(TOKENS, HIDDEN, 8.0)}
    size = HIDDEN // HEADS
    for number in range(LAYERS):
        front = f"blk.{number}."
        found |= {
            f"{front}attn_norm.weight": norm(), f"{front}attn_q.weight": matrix(HIDDEN, HIDDEN),
            f"{front}attn_k.weight": matrix(size * KEYS, HIDDEN), f"{front}attn_v.weight": matrix(size * KEYS, HIDDEN),
            f"{front}attn_output.weight": matrix(HIDDEN, HIDDEN, 0.5), f"{front}ffn_norm.weight": norm(),
            f"{front}ffn_gate.weight": matrix(INNER, HIDDEN), f"{front}ffn_up.weight": matrix(INNER, HIDDEN),
            f"{front}ffn_down.weight": matrix(HIDDEN, INNER, 0.5),
        }  # fmt: skip
    return found | {"output_norm.weight": norm(), "output.weight": matrix(TOKENS, HIDDEN, 4.0)}


def write(
    path: Path, kind: str = "F32", *, values: Mapping[str, Array] | None = None, eps: float = 1e-5,
    theta: float = 10000.0, scale: float = 0.0, keep: Callable[[str], bool] = lambda _: False,
) -> Path:  # fmt: skip
    """A file whose matrices are of this type, those that ``keep`` names in F32. scale: of linear rope scaling."""
    import gguf

    values = weights() if values is None else values
    out = gguf.GGUFWriter(str(path), "llama")
    out.add_context_length(512)
    out.add_embedding_length(HIDDEN)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KEYS)
    out.add_vocab_size(TOKENS)
    out.add_layer_norm_rms_eps(eps)
    out.add_rope_freq_base(theta)
    out.add_rope_dimension_count(HIDDEN // HEADS)
    if scale:
        out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        out.add_rope_scaling_factor(scale)
    out.add_tokenizer_model("none")
    for name, value in values.items():
        if value.ndim == 1 or kind == "F32" or keep(name):
            out.add_tensor(name, np.ascontiguousarray(value, np.float32))
        elif kind == "F16":
            with np.errstate(over="ignore"):
                out.add_tensor(name, value.astype(np.float16))
        else:
            to = gguf.GGMLQuantizationType[kind]
            out.add_tensor(name, gguf.quants.quantize(value, to), raw_dtype=to)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def permuted(matrix: Array, heads: int) -> Array:
    """Rows of a head's two halves in turn: what a converter does to q and k, or forgets."""
    half = matrix.shape[0] // heads // 2
    return matrix.reshape(heads, 2, half, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)


def ids(count: int = 24, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, TOKENS, (1, count))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "F32.gguf")
    write(folder / "Q8_0.gguf", "Q8_0")
    write(folder / "wrong_theta.gguf", "Q8_0", theta=1e6)
    np.savez(folder / "ids.npz", input_ids=ids())
    np.savez(folder / "other_ids.npz", input_ids=ids(seed=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
