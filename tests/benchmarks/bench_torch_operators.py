"""What each operator of a PyTorch model costs the host: a Llama of 16 layers so small that nothing else takes time.

    PYTHONPATH=.:backends python tests/benchmarks/bench_torch_operators.py [--repeat 5] [--road device]

float32 against bfloat16 on the CPU, operator by operator, in lockstep, each in this process. Prints the least of a few:
seconds of the processor and of the clock for two bare forwards, for one run with another value, for both runs of a
comparison, and for its explanation.

--road device: as on a card, tensors stay where they are, turns are as long as there, and comparisons go through the
calls of the CUDA driver, which a stand-in has (tests/cuda_driver_emulated.cpp, compiled here). Its kernels do their
work on the processor when they are queued: their seconds are told apart, and are no part of the others.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import json
import os
import sys
import time
import types
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
    tokens = int(os.environ.get("TOKENS", "16"))
    return LlamaForCausalLM(config).eval(), {"input_ids": torch.randint(0, 320, (1, tokens))}


def least(call: Any, repeat: int) -> dict[str, float]:
    """Seconds of the processor (of all threads) and of the clock."""
    found = []
    for _ in range(repeat):
        begun, cpu = time.perf_counter(), time.process_time()
        call()
        found.append((time.process_time() - cpu, time.perf_counter() - begun))
    return {"cpu": round(min(one for one, _ in found), 3), "clock": round(min(one for _, one in found), 3)}


def replaying(model: Any, inputs: Any, repeat: int) -> dict[str, float]:
    """What the effect of one error costs: the baseline once more, asked for one tensor and the output."""
    from precision_debug_torch.backend import open_model
    from precision_debug_torch.model import example_feeds, from_module

    known = from_module(model, inputs)
    feeds = example_feeds(known)
    session = open_model(known, "torch_fp32", {"device": "cpu"}, [feeds])
    names = [session.tensors[600].name, session.tensors[-1].name]
    replacer = session.replacer
    assert replacer is not None
    replacer.run_replacing(feeds, lambda *_: None, names)
    return least(lambda: replacer.run_replacing(feeds, lambda *_: None, names), 4 * repeat)


KERNELS = [0.0]
"""Seconds that the stand-in's kernels have taken."""


def stand_in() -> None:
    """The driver's stand-in in its place, and tensors of the processor for those of a card."""
    sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
    from cuda_emulated import emulated

    from precision_debug.numbers import cuda
    from precision_debug.products.device import torch_tensors

    library, plain, launch = emulated(), ctypes.CDLL, cuda.Device.launch
    ctypes.CDLL = lambda name, *more: plain(str(library) if "libcuda" in str(name) else name, *more)  # type: ignore[misc,assignment]

    def timed(*given: Any) -> None:
        begun = time.perf_counter()
        launch(*given)
        KERNELS[0] += time.perf_counter() - begun

    def array_of(tensor: Any) -> Any:
        dtype = torch_tensors._numpy_dtype_of(tensor.dtype)
        flat = tensor.contiguous()
        where = cuda.open_device(0)
        return dtype and cuda.DeviceArray(where, flat.data_ptr(), tuple(tensor.shape), dtype, flat)

    cuda.Device.lanes, cuda.Device.threads = 1, lambda self, warps: 1  # type: ignore[method-assign]
    cuda.Device.launch = timed  # type: ignore[method-assign]
    torch_tensors.to_device_array = array_of
    stream = types.SimpleNamespace(cuda_stream=0)
    torch.cuda.current_stream = lambda device=None: stream  # type: ignore[assignment,return-value]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--road", choices=("host", "device"), default="host")
    chosen = parser.parse_args()
    if chosen.road == "device":
        stand_in()
    torch.set_num_threads(1)
    import precision_debug
    from precision_debug.run import open_pair_run, pipeline

    model, inputs = build()
    half = copy.deepcopy(model).to(torch.bfloat16)

    def forwards() -> None:
        with torch.no_grad():
            model(**inputs)
            half(**inputs)

    forwards()
    print(json.dumps({"two bare forwards": least(forwards, chosen.repeat)}), flush=True)
    print(json.dumps({"a run with one other value": replaying(model, inputs, chosen.repeat)}), flush=True)
    spent: dict[str, list[tuple[float, float]]] = {"runs": [], "explaining": []}

    def timed(owner: Any, name: str, key: str) -> None:
        plain = getattr(owner, name)

        def call(*given: Any, **more: Any) -> Any:
            begun, cpu, kernels = time.perf_counter(), time.process_time(), KERNELS[0]
            try:
                return plain(*given, **more)
            finally:
                own = KERNELS[0] - kernels
                spent[key].append((time.process_time() - cpu - own, time.perf_counter() - begun - own))

        setattr(owner, name, call)

    timed(open_pair_run.OpenPair, "run", "runs")
    timed(pipeline, "explain_sample", "explaining")
    for explain in ("off", "fast"):
        spent["runs"].clear()
        for _ in range(chosen.repeat):
            report = precision_debug.compare(
                f"{Path(__file__).resolve()}:build", run_mode="torch_bf16", device="cpu", lockstep=True,
                explain=explain, compare_on=chosen.road,
            )  # fmt: skip
        told: dict[str, Any] = {"explain": explain, "rows": len(report.rows)}
        for key in ("runs", "explaining") if explain != "off" else ("runs",):
            told[key] = {
                "cpu": round(min(one for one, _ in spent[key]), 3), "clock": round(min(one for _, one in spent[key]), 3)
            }  # fmt: skip
        print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
