"""A Llama of 0.85 B parameters as a command: where its seconds go beside what building the model and two forwards take.

    OUT=${OUT:-output} python tests/gpu/torch_command.py

Prints one JSON object: seconds of one build of the model, of the two bare forwards, of the command in a fresh process
(twice: the second time kernels are compiled already), and of the same inside this process with the calls of the factory
counted and the lines of our own code that most samples stood in. Aims: both runs under 10 times the bare forwards, the
whole command under twice the build plus 5 s.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
import torch

OUT = Path(os.environ.get("OUT", "output"))
BUILT: list[float] = []


def build():
    """``tests/gpu/torch_command.py:build``: as people write factories, on the host, moved by nobody."""
    from transformers import LlamaConfig, LlamaForCausalLM

    begun = time.perf_counter()
    config = LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=5504, num_hidden_layers=16, num_attention_heads=16,
        num_key_value_heads=16, max_position_embeddings=4096, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    BUILT.append(round(time.perf_counter() - begun, 2))
    return model, {"input_ids": torch.randint(0, 32000, (1, 2048))}


def forwards() -> dict[str, float]:
    from torch_llama import seconds_of

    model, inputs = build()
    one, ids = model.to("cuda"), inputs["input_ids"].to("cuda")
    two = copy.deepcopy(one).to(torch.bfloat16)
    with torch.no_grad():
        return {"build": BUILT[0], "forwards": seconds_of(lambda: one(ids)) + seconds_of(lambda: two(ids)),
                "parameters": sum(p.numel() for p in one.parameters())}  # fmt: skip


def command(explain: str) -> float:
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "precision_debug", "--model_file", f"{Path(__file__).resolve()}:build", "--run_mode",
         "torch_bf16", "--device", "cuda", "--lockstep", "--explain", explain, "--output", str(OUT / f"{explain}.json"),
         "--quiet"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        print(done.stdout[-1500:], done.stderr[-1500:])
        raise SystemExit(f"FAIL  the command ended with {done.returncode}")
    return round(time.perf_counter() - begun, 2)


def stages(explain: str) -> list[tuple[float, str]]:
    """When the command's child told its supervisor of what, seconds after the start."""
    from precision_debug.records import ModelFiles, RunSpec
    from precision_debug.run.supervisor import supervise

    begun = time.perf_counter()
    told: list[tuple[float, str]] = []

    def on_event(event: Any) -> None:
        if event["event"] not in ("saved", "row") and not (told and told[-1][1].startswith(event["event"])):
            told.append((round(time.perf_counter() - begun, 2), f"{event['event']} {event.get('text', '')}".strip()))

    spec = RunSpec(
        model=ModelFiles(model_file=f"{Path(__file__).resolve()}:build"), run_mode="torch_bf16", explain=explain,
        lockstep=True, options={"device": "cuda" if torch.cuda.is_available() else "cpu"},
    )  # fmt: skip
    supervise(spec, [OUT / "stages.json"], on_event=on_event)
    return [*told, (round(time.perf_counter() - begun, 2), "report written")]


def inside(explain: str) -> dict[str, object]:
    from phases import phases
    from torch_llama import Sampler

    import precision_debug

    BUILT.clear()
    begun = time.perf_counter()
    with phases() as timed, Sampler() as sampler:
        report = precision_debug.compare(
            f"{Path(__file__).resolve()}:build", run_mode="torch_bf16", device="cuda", lockstep=True, explain=explain
        )
    told = sampler.summary()
    return {
        "seconds": round(time.perf_counter() - begun, 2),
        "runs": [report.baseline.seconds, report.target.seconds], "rows": len(report.rows),
        "explaining": None if report.explanation is None else report.explanation.seconds,
        "verdict": str(report.verdict), "notes": [str(note) for note in report.notes], "phases": timed,
        "lines": told["lines"][:45], "functions": told["functions"][:70],
        "peak_GiB": round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }  # fmt: skip


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    told: dict[str, object] = {"card": torch.cuda.get_device_name(), **forwards()}
    print(json.dumps(told), flush=True)
    for explain in ("off", "off", "fast"):
        print(json.dumps({"command": explain, "seconds": command(explain)}), flush=True)
    print(json.dumps({"stages": stages("off")}), flush=True)
    for explain in ("off", "off", "fast"):
        print(json.dumps({"inside": explain, **inside(explain)}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
