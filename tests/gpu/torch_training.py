"""One training step of a Llama-style decoder of about 1.1 B parameters, random weights: float32 against autocast.

Start from the repository's root on the GPU machine (about 4 minutes)::

    PYTHONPATH=.:backends OUT=${OUT:-output} python tests/gpu/torch_training.py [--layers 16] [--tokens 512]

For each mode a line: rows that were compared, the culprit, seconds of the command's comparison beside those of two bare
steps (the same module, once in float32 and once under autocast, with GradScaler in FP16). Writes $OUT/training.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "backends")]
OUT = Path(os.environ.get("OUT", "output"))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def build() -> Any:
    """(module, inputs, loss, optimiser) as the command line takes it; $LAYERS, $WIDTH and $TOKENS say how large."""
    from transformers import LlamaConfig, LlamaForCausalLM

    width, tokens = int(os.environ.get("WIDTH", "2048")), int(os.environ.get("TOKENS", "512"))
    config = LlamaConfig(
        vocab_size=32000, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=int(os.environ["LAYERS"]),
        num_attention_heads=16, num_key_value_heads=8, use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config)
        words = torch.randint(0, config.vocab_size, (1, tokens))
    inputs = {"input_ids": words, "labels": words.clone()}
    return model, inputs, None, lambda parameters: torch.optim.AdamW(parameters, lr=1e-4)


def bare(half: torch.dtype | None) -> float:
    """Seconds of a bare step, the median of five."""
    model, inputs, _, optimiser = build()
    inputs = {name: value.to(DEVICE) for name, value in inputs.items()}
    steps = optimiser(model.parameters())
    scaler = torch.amp.GradScaler(DEVICE, enabled=half is torch.float16)
    found = []
    for _ in range(6):
        begun = time.perf_counter()
        with torch.autocast(DEVICE, dtype=half or torch.bfloat16, enabled=half is not None):
            loss = model(**inputs).loss
        scaler.scale(loss).backward()
        scaler.step(steps)
        scaler.update()
        steps.zero_grad()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - begun)
    return statistics.median(found[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=512)
    given = parser.parse_args()
    os.environ |= {"LAYERS": str(given.layers), "WIDTH": str(given.width), "TOKENS": str(given.tokens)}
    import precision_debug

    model = build()[0]
    table: list[dict[str, Any]] = [{"parameters": sum(one.numel() for one in model.parameters()), **vars(given)}]
    del model
    plain = bare(None)
    for mode, half in (("torch_autocast_bf16", torch.bfloat16), ("torch_autocast_fp16", torch.float16)):
        halved = bare(half)
        for explain in ("off", "fast"):
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            begun = time.perf_counter()
            report = precision_debug.compare(
                f"{Path(__file__).resolve()}:build", run_mode=mode, explain=explain,
                step="optimiser", device=DEVICE,
            )  # fmt: skip
            seconds = time.perf_counter() - begun
            culprits = report.explanation.culprits if report.explanation is not None else ()
            line = {
                "mode": mode, "explain": explain, "verdict": str(report.verdict), "rows": len(report.rows),
                "compared": len(report.compared), "seconds": round(seconds, 2),
                "bare steps": round(plain + halved, 3), "times": round(seconds / (plain + halved), 1),
                "culprit": culprits[0].name if culprits else "", "cause": culprits[0].cause if culprits else "",
                "worst gradient": max(
                    (row.relative_l2 or 0.0 for row in report.outputs if row.comparison is not None), default=None
                ),
            }  # fmt: skip
            table.append(line)
            print(json.dumps(line), flush=True)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "training.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
