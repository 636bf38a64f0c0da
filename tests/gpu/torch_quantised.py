"""Quantised weights and compiled kernels on a GPU: a small Llama in every mode of torchao's, and torch_compile.

Start from the repository's root on the GPU machine, with torchao installed (about a minute)::

    python tests/gpu/torch_quantised.py

Of each mode: rows, those compared and those not (with their reasons), the outputs' error, and whether the outputs are
bit for bit those of a run without hooks. Exit status 1 where they are not, or an output was not compared.
"""

from __future__ import annotations

import collections
import json
import sys
import time
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
import numpy as np
import torch

MODES = ("torch_bf16", "torch_int8", "torch_fp8", "torch_fp8_weights", "torch_int4_weights", "torch_compile")


def build() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=4096, hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=16,
        num_key_value_heads=16, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = LlamaForCausalLM(config).eval()
    return model, {"input_ids": torch.randint(0, 4096, (1, 256), device=device)}


def one(mode: str) -> bool:
    from precision_debug_torch import TorchBackend

    import precision_debug
    from precision_debug.records import ModelFiles, SessionSpec

    backend, begun = TorchBackend(), time.perf_counter()
    available = backend.availability(mode)
    if not available.ok:
        print(json.dumps({"mode": mode, "needs": available.needs}), flush=True)
        return mode == "torch_fp8" and not torch.cuda.is_available()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    spec = SessionSpec(
        model=ModelFiles(model_file=f"{Path(__file__).resolve()}:build"), mode=mode, options={"device": device}
    )
    feeds = backend.examples(spec)
    session = backend.open(spec, [feeds])
    plain = session.run(feeds)
    shown = session.run(feeds, lambda _kind, _name, _tensor: None)
    same = all(np.asarray(plain[name]).tobytes() == np.asarray(shown[name]).tobytes() for name in plain)
    layers = len(session.layers)
    session.close()
    report = precision_debug.compare(f"{Path(__file__).resolve()}:build", run_mode=mode, device=device)
    alone = collections.Counter(f"{row.status}: {row.reason}" for row in report.rows if row.comparison is None)
    told = {
        "mode": mode, "seconds": round(time.perf_counter() - begun, 1), "same_outputs": same, "rows": len(report.rows),
        "compared": sum(row.comparison is not None for row in report.rows), "alone": alone.most_common(6),
        "layers": layers, "outputs": {row.name: row.relative_l2 for row in report.outputs},
        "explained": None if report.explanation is None else [
            report.explanation.state, str(report.explanation.reason),
            [(found.name, found.cause) for found in report.explanation.culprits[:3]],
        ],
        "notes": [str(note) for note in report.target.notes],
    }  # fmt: skip
    print(json.dumps(told), flush=True)
    return same and all(row.comparison is not None for row in report.outputs)


def main() -> int:
    print(json.dumps({"card": torch.cuda.get_device_name() if torch.cuda.is_available() else "none"}), flush=True)
    fine = True
    for mode in sys.argv[1:] or MODES:
        try:
            fine &= one(mode)
        except Exception as error:
            print(json.dumps({"mode": mode, "error": f"{type(error).__name__}: {error}"[:600]}), flush=True)
            fine = False
    print("ok" if fine else "FAIL", flush=True)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
