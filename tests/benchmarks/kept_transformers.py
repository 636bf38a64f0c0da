"""Who loses the precision in a Whisper- and a Llama-like transformer, and what keeping exactly those in FP32 brings.

    python tests/benchmarks/kept_transformers.py

Both are built from a local configuration with random weights: nothing is fetched. For each of torch_bf16 and
torch_autocast_bf16: the culprits by explanation, and the worst output's relative L2 error before and after exactly
their results, and what reads them, are kept: the run goes on with the baseline's values there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import torch  # noqa: E402

import precision_debug  # noqa: E402

HERE = Path(__file__).resolve()


def llama() -> Any:
    """4 layers, 1024 tokens, grouped key-value heads, rotary positions."""
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=688, max_position_embeddings=2048, use_cache=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval(), {"input_ids": torch.randint(0, 1000, (1, 1024))}


def whisper() -> Any:
    """4 encoder and 4 decoder layers, 10 s of sound, 32 tokens."""
    import transformers

    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=1000, d_model=256, encoder_layers=4, decoder_layers=4, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, num_mel_bins=80,
        max_source_positions=500, max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    return model, {
        "input_features": torch.randn(1, 80, 1000), "decoder_input_ids": torch.randint(3, 1000, (1, 32))
    }  # fmt: skip


def sharp_llama() -> Any:
    """The same, with attention as sharp as training makes it: queries and keys 12 x larger."""
    model, inputs = llama()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight *= 12
            layer.self_attn.k_proj.weight *= 12
    return model, inputs


def offset_whisper() -> Any:
    """The same, with a layer norm whose input has a mean far from 0: its deviations are what rounding takes."""
    model, inputs = whisper()
    with torch.no_grad():
        model.model.encoder.layers[-1].fc2.bias += 300.0
    return model, inputs


def kept(build: Any, mode: str, names: frozenset[str]) -> float:
    """The worst output's relative L2 error where the target goes on with the baseline's values of these tensors."""
    from precision_debug_torch.backend import open_model
    from precision_debug_torch.model import example_feeds, from_module

    module, inputs = build()
    model = from_module(module, inputs)
    feeds = example_feeds(model)
    options = {"device": "cpu"}
    base, target = (open_model(model, one, options, [feeds]) for one in ("torch_fp32", mode))
    values: dict[str, Any] = {}

    def keep(_op: str, name: str, value: Any) -> None:
        if name in names:
            values.setdefault(name, np.array(value))

    exact = base.run(feeds, keep, names) if names else base.run(feeds)
    got = target.run_replacing(feeds, lambda _op, name, _value: values.get(name), names)
    base.close()
    target.close()
    worst = 0.0
    for name, array in exact.items():
        b, t = np.asarray(array, np.float64), np.asarray(got[name], np.float64)
        worst = max(worst, float(np.linalg.norm(t - b) / np.linalg.norm(b)))
    return worst


def main() -> int:
    chosen_names = sys.argv[1:]
    print("| model | mode | state | culprits | output, Rel L2 | culprits and readers kept | x predicted |")
    print("|---|---|---|---|---|---|---|")
    for build in (llama, whisper, sharp_llama, offset_whisper):
        if chosen_names and build.__name__ not in chosen_names:
            continue
        for mode in ("torch_bf16", "torch_autocast_bf16"):
            report = precision_debug.compare(f"{HERE}:{build.__name__}", run_mode=mode, device="cpu")
            told = report.explanation
            assert told is not None
            chosen = {name for culprit in told.culprits for name in culprit.keep}
            chosen |= {row.name for row in report.rows if chosen & set(row.inputs)}
            said = ", ".join(f"`{c.name}`: {c.cause}" for c in told.culprits[:3]) or "none"
            before = kept(build, mode, frozenset())
            after = f"{kept(build, mode, frozenset(chosen)):.3g}" if chosen else ""
            times = f"{told.actual / told.expected:.2g}" if told.actual and told.expected else ""
            name = build.__name__.replace("_", " ")
            print(f"| {name} | {mode} | {told.state} | {said} | {before:.3g} | {after} | {times} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
