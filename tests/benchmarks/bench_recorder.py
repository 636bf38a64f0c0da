"""What ``precision_debug.training`` adds to a training loop that keeps statistics only, every 100 steps, on a CPU.

    python tests/benchmarks/bench_recorder.py [--layers 12] [--words 20000] [--tokens 256] [--times 7]

Processor seconds of a step on one thread, interleaved: bare, followed but not kept, and kept; the medians, and what 99
of the second and one of the third are over 100 of the first.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from bench_training import Decoder, adamw

import precision_debug


def step(model: Any, optimiser: Any, ids: Any) -> float:
    """Processor seconds of one step under autocast."""
    begun = time.process_time()
    optimiser.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(ids)
    loss.backward()
    optimiser.step()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--words", type=int, default=20000)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--times", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Decoder(given.layers, given.width, given.words, False)
    ids, optimiser = torch.randint(0, given.words, (1, given.tokens)), adamw(model.parameters())
    step(model, optimiser, ids)
    found: dict[str, list[float]] = {"bare": [], "followed": [], "kept": []}
    with tempfile.TemporaryDirectory() as folder:
        ways = [("bare", 0), ("followed", 10**6), ("kept", 1)]
        for _ in range(given.times):
            ways.append(ways.pop(0))  # what runs behind which changes what it costs
            for kind, every in ways:
                follow = (
                    precision_debug.training(model, optimiser, record=Path(folder, kind), every=every)
                    if every else contextlib.nullcontext()
                )  # fmt: skip
                with follow as follower:
                    if kind == "followed":
                        follower.step = 1
                    found[kind].append(step(model, optimiser, ids))
    bare, followed, kept = (statistics.median(one) for one in found.values())
    print(f"{sum(one.numel() for one in model.parameters()) / 1e6:.1f} M parameters, {given}")
    print({kind: [round(one, 3) for one in seconds] for kind, seconds in found.items()})
    print(f"bare {bare:.3f} s, followed {followed / bare - 1:+.2%}, kept {kept / bare:.2f} x bare")
    print(f"every 100 steps: {(99 * followed + kept) / 100 / bare - 1:+.2%}")


if __name__ == "__main__":
    main()
