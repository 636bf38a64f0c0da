"""What explanations cost on a GPU: a Llama-like decoder, float32 against bfloat16, at op level, with and without them.

Start from the repository's root on the GPU machine::

    python tests/gpu/explain_torch.py --layers 2            # 0.85 B parameters
    python tests/gpu/explain_torch.py --layers 32           # 8 B
    python tests/gpu/explain_torch.py --layers 2 --sick     # one layer's gate overflows float16

Prints the time of the two bare forwards, of the command without explanations and with them, and what was explained.
Target: under 5 times the two bare forwards for what is explained. Writes $OUT/explain.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
import torch

OUT = Path(os.environ.get("OUT", "output"))


def build() -> Any:
    """The model as the command line takes it; $LAYERS, $TOKENS, $WIDTH and $SICK say which."""
    from transformers import LlamaConfig, LlamaForCausalLM

    width = int(os.environ.get("WIDTH", "4096"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = LlamaConfig(
        vocab_size=32 * width - width * 3 // 4 if width == 4096 else 512, hidden_size=width,
        intermediate_size=width * 7 // 2, num_hidden_layers=int(os.environ.get("LAYERS", "2")),
        num_attention_heads=width // 128, num_key_value_heads=max(1, width // 512), max_position_embeddings=8192,
        use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        model = LlamaForCausalLM(config).eval()
    if os.environ.get("SICK"):
        with torch.no_grad():
            model.model.layers[-1].mlp.up_proj.weight.mul_(3e5)
    tokens = int(os.environ.get("TOKENS", "2048"))
    return model, {"input_ids": torch.randint(0, config.vocab_size, (1, tokens), device=device)}


@torch.no_grad()
def seconds_of(model: Any, inputs: Any, repeats: int = 3) -> float:
    """The least of a few runs, after one that warms up."""
    best = float("inf")
    for number in range(repeats + 1):
        _wait()
        begun = time.perf_counter()
        model(**inputs)
        _wait()
        if number:
            best = min(best, time.perf_counter() - begun)
    return best


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def by_command(mode: str, explain: str) -> dict[str, Any]:
    """One whole command in this process, with loading the model, journal and report."""
    from phases import phases

    import precision_debug

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    _wait()
    begun = time.perf_counter()
    with phases() as spent:
        report = precision_debug.compare(
            f"{Path(__file__).resolve()}:build", run_mode=mode, lockstep=True, explain=explain, compare_on="device"
        )
        _wait()
    told = report.explanation
    return {
        "seconds": time.perf_counter() - begun,
        "explaining": None if told is None else told.seconds,
        "stages": spent,
        "state": None if told is None else told.state,
        "reason": None if told is None else str(told.reason),
        "culprits": [] if told is None else [(c.name, c.cause, c.share) for c in told.culprits],
        "actual": None if told is None else told.actual,
        "expected": None if told is None else told.expected,
        "introduced": sum(row.introduced is not None for row in report.rows),
        "rows": len(report.rows),
        "peak_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--mode", default="")
    parser.add_argument("--sick", action="store_true")
    parser.add_argument("--levels", default="off,fast,full")
    chosen = parser.parse_args()
    os.environ |= {"LAYERS": str(chosen.layers), "TOKENS": str(chosen.tokens), "WIDTH": str(chosen.width)}
    os.environ["SICK"] = "1" if chosen.sick else ""
    mode = chosen.mode or ("torch_fp16" if chosen.sick else "torch_bf16")
    model, inputs = build()
    result: dict[str, Any] = {"mode": mode, "parameters": sum(p.numel() for p in model.parameters())}
    result["bare_seconds"] = seconds_of(model, inputs)
    model = model.to(torch.float16 if mode == "torch_fp16" else torch.bfloat16)
    result["bare_seconds"] += seconds_of(model, inputs)
    del model, inputs
    print(json.dumps(result), flush=True)
    for level in chosen.levels.split(","):
        got = result[level] = by_command(mode, level)
        if got["explaining"] is not None:
            got["explaining_times_bare"] = got["explaining"] / result["bare_seconds"]
        print(level, json.dumps(got), flush=True)
        OUT.mkdir(parents=True, exist_ok=True)
        (OUT / "explain.json").write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
