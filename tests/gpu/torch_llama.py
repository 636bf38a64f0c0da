"""A Llama-style decoder of about 8 B parameters, random weights, 2048 tokens: float32 against bfloat16, operator by
operator, in lockstep on one GPU.

Start from the repository's root on the GPU machine (about 3 minutes)::

    OUT=${OUT:-output} python tests/gpu/torch_llama.py [--layers 32] [--tokens 2048]

``--attention eager`` shows every score, masked with finfo.min. Writes $OUT/llama.json (time against the two bare
forwards, peak device memory against the two models' weights, rows against operators), $OUT/llama.xlsx and
$OUT/llama.csv. Targets: under 5 times, under 1.15 times.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType

import checkout  # noqa: F401
import torch

OUT = Path(os.environ.get("OUT", "output"))


def config(layers: int):
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=layers, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=8192, rope_theta=500000.0, use_cache=False,
        attn_implementation=os.environ.get("ATTENTION", "sdpa"),
    )  # fmt: skip


def build():
    """The model as the command line takes it: ``tests/gpu/torch_llama.py:build``; $LAYERS and $TOKENS say how large."""
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config(int(os.environ.get("LAYERS", "32")))).eval()
    return model, {"input_ids": torch.randint(0, 128256, (1, int(os.environ.get("TOKENS", "2048"))), device="cuda")}


def seconds_of(call, repeats: int = 3) -> float:
    """The least of a few runs, after one that warms up."""
    best = float("inf")
    for number in range(repeats + 1):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if number:
            best = min(best, time.perf_counter() - begun)
    return best


class Sampler:
    """Where the threads of this process are, looked at every few milliseconds: counts by innermost line of our own
    code, and by function anywhere on the stack."""

    def __init__(self, every: float = 0.004) -> None:
        self.every, self.lines, self.functions = every, collections.Counter(), collections.Counter()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Sampler:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.thread.join()

    def _look(self) -> None:
        own = threading.get_ident()
        while not self.done.wait(self.every):
            for ident, top in sys._current_frames().items():
                if ident == own:
                    continue
                frame: FrameType | None = top
                seen: set[str] = set()
                ours = leaf = ""
                while frame is not None:
                    code = frame.f_code
                    name = f"{Path(code.co_filename).name}:{code.co_name}"
                    leaf = leaf or f"{name}:{frame.f_lineno}"
                    if not ours and "precision_debug" in code.co_filename:
                        ours = f"{name}:{frame.f_lineno}"
                    seen.add(name)
                    frame = frame.f_back
                self.lines[f"{ours} <- {leaf}"] += 1
                self.functions.update(seen)

    def summary(self) -> dict[str, object]:
        return {"lines": self.lines.most_common(60), "functions": self.functions.most_common(80)}


class Counting(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the ATen operators of a plain run."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(func._schema.name.replace("::", "."))
        return func(*args, **(kwargs or {}))


def by_command(chosen: argparse.Namespace, weights: int, explain: str) -> dict[str, object]:
    """The same through the pipeline that the command line runs, in this process: with journal and report, and with
    loading the model. The factory's model is the baseline's own."""
    import gc

    from phases import phases

    import precision_debug

    os.environ["LAYERS"], os.environ["TOKENS"] = str(chosen.layers), str(chosen.tokens)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    with phases() as timed:
        report = precision_debug.compare(
            f"{Path(__file__).resolve()}:build", run_mode="torch_bf16", device="cuda", lockstep=True, atol=1e-2,
            rtol=1e-2, explain=explain,
        )  # fmt: skip
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    return {
        "seconds": time.perf_counter() - begun,
        "seconds_of_both_runs": [report.baseline.seconds, report.target.seconds],
        "explaining": None if report.explanation is None else report.explanation.seconds,
        "state": None if report.explanation is None else f"{report.explanation.state} {report.explanation.reason}",
        "peak_bytes": peak,
        "times_two_models": peak / weights,
        "rows": len(report.rows),
        "phases": timed,
        "statuses": collections.Counter(str(row.status) for row in report.rows),
        "paired_by": collections.Counter(row.paired_by for row in report.rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--attention", default="sdpa", help="eager: every score is seen, its mask is finfo.min")
    parser.add_argument("--torch_only", action="store_true", help="by torch's own operators, for comparison")
    chosen = parser.parse_args()
    os.environ["ATTENTION"] = chosen.attention
    if chosen.torch_only:
        from precision_debug.products.device import torch_tensors as device_compare

        device_compare._runs = lambda where: False
    OUT.mkdir(parents=True, exist_ok=True)
    result: dict = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}

    def save() -> None:
        (OUT / "llama.json").write_text(json.dumps(result, indent=1))

    try:
        from transformers import LlamaForCausalLM

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.manual_seed(0)
        begun = time.perf_counter()
        with torch.device("cuda"):
            model = LlamaForCausalLM(config(chosen.layers)).eval()
        torch.cuda.synchronize()
        result["parameters"] = sum(p.numel() for p in model.parameters())
        result["build_seconds"] = time.perf_counter() - begun
        tokens = torch.randint(0, 128256, (1, chosen.tokens), device="cuda")
        print(result, flush=True)

        with torch.no_grad():
            result["bare_fp32_seconds"] = seconds_of(lambda: model(input_ids=tokens, use_cache=False))
            with Counting() as counted:
                model(input_ids=tokens, use_cache=False)
            result["aten_calls"] = len(counted.calls)
            from precision_debug_torch.make import build
            from precision_debug_torch.model import from_module
            from precision_debug_torch.modes import recipe

            half = build(from_module(model, {"input_ids": tokens}), recipe("torch_bf16"), {"device": "cuda"}).module
            result["bare_bf16_seconds"] = seconds_of(lambda: half(input_ids=tokens, use_cache=False))
            half = None
        torch.cuda.empty_cache()
        save()
        print(result, flush=True)

        weights = sum(p.numel() * (p.element_size() + 2) for p in model.parameters())
        result["two_models_bytes"] = weights
        from precision_debug_torch.live import compare_module

        from precision_debug.records import Tolerance

        for attempt in ("first", "second", "sampled"):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            begun = time.perf_counter()
            with Sampler() if attempt == "sampled" else contextlib.nullcontext() as sampler:
                report = compare_module(
                    model, {"input_ids": tokens}, run_mode="torch_bf16", level="op", device="cuda",
                    tolerance=Tolerance(atol=1e-2, rtol=1e-2),
                )  # fmt: skip
            if sampler is not None:
                result["samples"] = sampler.summary()
            torch.cuda.synchronize()
            spent = time.perf_counter() - begun
            bare = result["bare_fp32_seconds"] + result["bare_bf16_seconds"]
            peak = torch.cuda.max_memory_allocated()
            result[attempt] = {
                "seconds": spent,
                "times_two_bare_forwards": spent / bare,
                "peak_bytes": peak,
                "times_two_models": peak / weights,
                "rows": len(report.rows),
                "operators": len({row.node for row in report.rows if row.op_type not in ("Input", "Output")}),
                "compared": sum(row.comparison is not None for row in report.rows),
                "statuses": collections.Counter(str(row.status) for row in report.rows),
                "paired_by": collections.Counter(row.paired_by for row in report.rows),
                "alone": collections.Counter(
                    f"{row.status}: {row.reason}" + (f" (part of {part})" if part else "")
                    for row in report.rows
                    if row.comparison is None
                    for part in [row.extra.get("Part of", "").rpartition("/")[2]]
                ),
            }
            print(attempt, json.dumps(result[attempt], indent=1), flush=True)
            save()
        kinds = [row.op_type for row in report.rows if row.node and row.status.value != "unmatched"]
        result["operator_types"] = collections.Counter(kinds)
        result["not_matched"] = [
            f"{row.status}: {row.name} ({row.op_type})" for row in report.rows if row.comparison is None
        ][:60]
        worst = sorted(
            (row for row in report.rows if row.error_growth and row.comparison and row.comparison.rmse),
            key=lambda row: -(row.relative_l2 or 0),
        )
        result["largest_relative_error"] = [
            {"name": row.name, "op": row.op_type, "relative_l2": row.relative_l2, "growth": row.error_growth}
            for row in worst[:10]
        ]
        save()
        report.to_excel(str(OUT / "llama.xlsx"))
        report.to_csv(str(OUT / "llama.csv"))
        model = report = None
        for explain in ("off", "fast"):
            result[f"whole_command_explain_{explain}"] = by_command(chosen, weights, explain)
            save()
        print({key: value for key, value in result.items() if key.startswith("whole")}, flush=True)
    except Exception:
        result["error"] = traceback.format_exc()
        print(result["error"], flush=True)
        save()
        return 1
    save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
