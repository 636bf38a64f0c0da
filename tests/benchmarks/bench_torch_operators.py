"""What each operator of a PyTorch model costs the host: a Llama of 16 layers so small that nothing else takes time.

    PYTHONPATH=.:backends python tests/benchmarks/bench_torch_operators.py [--repeat 5]

float32 against bfloat16 on the CPU, operator by operator, in lockstep, each in this process. Prints the least of a few:
seconds of the processor and of the clock for two bare forwards, for both runs of a comparison, and for its explanation.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from pathlib import Path
from typing import Any

import torch


def build() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=int(os.environ.get("LAYERS", "16")),
        num_attention_heads=4, num_key_value_heads=4, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval(), {"input_ids": torch.randint(0, 320, (1, 16))}


def least(call: Any, repeat: int) -> dict[str, float]:
    """Seconds of the processor (of all threads) and of the clock."""
    found = []
    for _ in range(repeat):
        begun, cpu = time.perf_counter(), time.process_time()
        call()
        found.append((time.process_time() - cpu, time.perf_counter() - begun))
    return {"cpu": round(min(one for one, _ in found), 3), "clock": round(min(one for _, one in found), 3)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    import precision_debug
    from precision_debug.run import both, pipeline

    model, inputs = build()
    half = copy.deepcopy(model).to(torch.bfloat16)

    def forwards() -> None:
        with torch.no_grad():
            model(**inputs)
            half(**inputs)

    forwards()
    print(json.dumps({"two bare forwards": least(forwards, chosen.repeat)}), flush=True)
    spent: dict[str, list[tuple[float, float]]] = {"runs": [], "explaining": []}

    def timed(owner: Any, name: str, key: str) -> None:
        plain = getattr(owner, name)

        def call(*given: Any, **more: Any) -> Any:
            begun, cpu = time.perf_counter(), time.process_time()
            try:
                return plain(*given, **more)
            finally:
                spent[key].append((time.process_time() - cpu, time.perf_counter() - begun))

        setattr(owner, name, call)

    timed(both.Both, "run", "runs")
    timed(pipeline, "_explain", "explaining")
    for explain in ("off", "fast"):
        spent["runs"].clear()
        for _ in range(chosen.repeat):
            report = precision_debug.compare(
                f"{Path(__file__).resolve()}:build", run_mode="torch_bf16", device="cpu", lockstep=True, explain=explain
            )
        told: dict[str, Any] = {"explain": explain, "rows": len(report.rows)}
        for key in ("runs", "explaining") if explain != "off" else ("runs",):
            told[key] = {
                "cpu": round(min(one for one, _ in spent[key]), 3), "clock": round(min(one for _, one in spent[key]), 3)
            }  # fmt: skip
        print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
