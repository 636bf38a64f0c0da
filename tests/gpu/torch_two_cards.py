"""The baseline on one GPU, the target on another: a pair that does not fit one card; modules that lie on both.

Start from the repository's root on a machine with two GPUs (about 2 minutes for two H200)::

    OUT=${OUT:-output} python tests/gpu/torch_two_cards.py [--layers 56] [--tokens 512]

First small models: rows of a run on two cards, and of a model spread over both, are those of one card. Then a
Llama-like decoder (30.4 B parameters with 56 layers: 122 GB in float32, 61 GB in bfloat16), random weights made on its
card, float32 beside bfloat16 in lockstep. Prints one JSON object a step; exit status 1 where a check failed.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import gc
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
import torch

OUT = Path(os.environ.get("OUT", "output"))
ONE, OTHER = ("cuda:0", "cuda:1") if torch.cuda.is_available() else ("cpu", "cpu")


class Halves(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Layers on two cards, as a device_map leaves them."""

    def __init__(self, spread: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256))
        self.second = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.Softmax(-1))
        self.first.to(ONE)
        self.second.to(OTHER if spread else ONE)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).to(self.second[0].weight.device))


def _inputs() -> Any:
    return {"x": torch.randn(32, 64, generator=torch.Generator().manual_seed(1))}


def spread() -> Any:
    return Halves(True).eval(), _inputs()


def together() -> Any:
    return Halves(False).eval(), _inputs()


def build() -> Any:
    """The large model, on whatever card "cuda" means here; $LAYERS and $TOKENS say how large."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000, hidden_size=int(os.environ.get("WIDTH", "6656")),
        intermediate_size=int(os.environ.get("WIDTH", "6656")) * 35 // 13, num_attention_heads=52,
        num_key_value_heads=52, num_hidden_layers=int(os.environ.get("LAYERS", "56")), max_position_embeddings=4096,
        use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    print(json.dumps({"built on": str(next(model.parameters()).device)}), flush=True)
    return model, {"input_ids": torch.randint(0, 32000, (1, int(os.environ.get("TOKENS", "512"))), device="cuda")}


def rows(file: str, factory: str, **settings: Any) -> Any:
    import precision_debug

    return precision_debug.compare(f"{file}:{factory}", run_mode="torch_bf16", lockstep=True, **settings).rows


def alike(one: Any, other: Any, copies: int = 0) -> list[str]:
    """Names of rows whose numbers differ by more than the order of a sum. copies: rows that only the first has, casts
    that bring a tensor to another card."""
    found, wanted = {row.name: row for row in one}, {row.name: row for row in other}
    wrong = [name for name in wanted if name not in found]
    more = [name for name in found if name not in wanted]
    wrong += more if len(more) > copies or any(found[name].op_type != "aten._to_copy" for name in more) else []
    for name, same in wanted.items():
        row = found.get(name)
        if row is None or (row.comparison is None) != (same.comparison is None) or row.status != same.status:
            wrong.append(name)
        elif row.comparison is not None:
            for field in ("mismatched", "max_abs", "rmse"):
                a, b = getattr(row.comparison, field), getattr(same.comparison, field)
                if a != b and not (isinstance(a, float) and math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-12)):
                    wrong.append(f"{name} {field}: {a} {b}")
    return wrong


def small() -> bool:
    import torch_models

    models, fine = torch_models.__file__, True
    for factory in ("resnet", "encoder", "decoder"):
        for explain in ("off", "fast"):
            apart = rows(models, factory, device=ONE, explain=explain, **{"baseline.device": OTHER})
            wrong = alike(apart, rows(models, factory, device=ONE, explain=explain))
            introduced = sum(row.introduced is not None for row in apart)
            told = {"model": factory, "explain": explain, "rows": len(apart), "introduced": introduced, "wrong": wrong}
            print(json.dumps(told), flush=True)
            fine &= not wrong
    for asked in ({}, {"device": "as_built"}):
        over_both = rows(__file__, "spread", explain="fast", **asked)
        wrong = alike(over_both, rows(__file__, "together", device=ONE, explain="fast"), copies=1)
        compared = sum(row.comparison is not None for row in over_both)
        print(json.dumps({"spread": asked, "rows": len(over_both), "compared": compared, "wrong": wrong}), flush=True)
        fine &= compared > 5 and not wrong
    return fine


def large(chosen: argparse.Namespace, explain: str) -> bool:
    import precision_debug

    os.environ["LAYERS"], os.environ["TOKENS"] = str(chosen.layers), str(chosen.tokens)
    gc.collect()
    for card in (0, 1):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(card)
    begun = time.perf_counter()
    report = precision_debug.compare(
        f"{Path(__file__).resolve()}:build", run_mode="torch_bf16", lockstep=True, explain=explain, device=ONE,
        **{"baseline.device": OTHER},
    )  # fmt: skip
    told = {
        "explain": explain, "seconds": round(time.perf_counter() - begun, 1),
        "runs": [report.baseline.seconds, report.target.seconds], "rows": len(report.rows),
        "compared": sum(row.comparison is not None for row in report.rows),
        "statuses": collections.Counter(str(row.status) for row in report.rows), "verdict": str(report.verdict),
        "peak_GB": [round(torch.cuda.max_memory_allocated(card) / 1e9, 1) for card in (0, 1)],
        "output_relative_l2": [row.relative_l2 for row in report.outputs],
        "explanation": None if report.explanation is None else {
            key: value for key, value in dataclasses.asdict(report.explanation).items()
            if key in ("state", "seconds", "actual", "expected")
        },
        "culprits": [] if report.explanation is None else [
            (one.name, one.cause, one.share) for one in report.explanation.culprits
        ],
    }  # fmt: skip
    print(json.dumps(told), flush=True)
    return bool(report.outputs) and all(row.comparison is not None for row in report.outputs)


def bare(chosen: argparse.Namespace) -> None:
    """The two forwards alone, one card each."""
    os.environ["LAYERS"], os.environ["TOKENS"] = str(chosen.layers), str(chosen.tokens)
    with torch.cuda.device(1), torch.no_grad():
        begun = time.perf_counter()
        model, inputs = build()
        torch.cuda.synchronize()
        told: dict[str, Any] = {"building": time.perf_counter() - begun}
        told["parameters"] = sum(one.numel() for one in model.parameters())
        for name in ("float32", "bfloat16"):
            if name == "bfloat16":
                model.to(torch.bfloat16)
            model(**inputs)
            torch.cuda.synchronize()
            begun = time.perf_counter()
            model(**inputs)
            torch.cuda.synchronize()
            told[name] = time.perf_counter() - begun
    del model, inputs
    gc.collect()
    torch.cuda.empty_cache()
    print(json.dumps(told), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=56)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--explain", default="off,fast")
    chosen = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    told = {"cards": [torch.cuda.get_device_name(card) for card in range(torch.cuda.device_count())],
            "torch": torch.__version__, "peer": torch.cuda.can_device_access_peer(0, 1)}  # fmt: skip
    print(json.dumps(told), flush=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    fine = small()
    bare(chosen)
    for explain in chosen.explain.split(","):
        fine &= large(chosen, explain)
    print("ok" if fine else "failed", flush=True)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
