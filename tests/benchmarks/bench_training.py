"""What explaining a training step costs beside the step: a decoder of 12 layers and about 100 M parameters, on a CPU.

    python tests/benchmarks/bench_training.py [--mode torch_autocast_bf16] [--step backward] [--layers 12] [--profile]

Prints processor seconds of a bare FP32 step and of the comparison without and with its explanation, on one thread each
and interleaved, the medians' ratios, and the largest resident memory. --fault rounds one layer's gradient to float8, so
that there is somebody to look for.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import statistics
import time
from typing import Any

import torch
from precision_debug_torch.live import compare_module
from torch import nn
from torch.nn import functional as F

from precision_debug.records import Tolerance
from precision_debug.report.lead import lead_sentences


class Coarse(torch.autograd.Function):
    """Nothing, whose gradient is rounded to float8 under autocast."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.low = torch.is_autocast_enabled("cpu")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g.to(torch.float8_e4m3fn).to(g.dtype) if ctx.low else g


class Block(nn.Module):
    """Pre-norm, with fused attention."""

    def __init__(self, width: int, fault: bool) -> None:
        super().__init__()
        self.n1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.n2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.fault = fault

    def forward(self, x: Any) -> Any:
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, d // 64, 64).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, n, d))
        inner = F.gelu(self.up(self.n2(x)))
        return x + self.down(Coarse.apply(inner) if self.fault else inner)


class Decoder(nn.Module):
    """Returns the loss of the next token."""

    def __init__(self, layers: int, width: int, words: int, fault: bool) -> None:
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(words, width), nn.LayerNorm(width), nn.Linear(width, words)
        self.head.weight = self.embed.weight
        self.blocks = nn.ModuleList(Block(width, fault and at == layers // 2) for at in range(layers))
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), ids.roll(-1, 1).flatten())


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-4)


def bare(model: Any, ids: Any, step: str) -> float:
    """Processor seconds of one FP32 step."""
    optimiser = adamw(model.parameters())
    begun = time.process_time()
    model(ids).backward()
    if step == "optimiser":
        optimiser.step()
    seconds = time.process_time() - begun
    optimiser.zero_grad()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", default="torch_autocast_bf16")
    parser.add_argument("--step", default="backward", choices=("backward", "optimiser"))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--words", type=int, default=20000)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--fault", action="store_true")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Decoder(given.layers, given.width, given.words, given.fault)
    ids = torch.randint(0, given.words, (1, given.tokens))
    print(f"{sum(one.numel() for one in model.parameters()) / 1e6:.1f} M parameters, {given}")
    bare(model, ids, "backward")
    seconds: dict[str, list[float]] = {"bare": [], "off": [], "fast": []}
    for turn in range(given.times):
        seconds["bare"].append(statistics.median(bare(model, ids, given.step) for _ in range(3)))
        for explain in ("off", "fast"):
            profile = cProfile.Profile() if given.profile and explain == "fast" and not turn else None
            begun = time.process_time()
            if profile is not None:
                profile.enable()
            report = compare_module(
                model, (ids,), run_mode=given.mode, device="cpu", optimiser=adamw, settings={"step": given.step},
                explain=explain, tolerance=Tolerance(given=False),
            )  # fmt: skip
            if profile is not None:
                profile.disable()
                pstats.Stats(profile).sort_stats("tottime").print_stats(35)
            seconds[explain].append(time.process_time() - begun)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            said = lead_sentences(report)[0].en if explain == "fast" else ""
            figures = f"bare {seconds['bare'][-1]:.2f} s, {explain} {seconds[explain][-1]:.2f} s"
            print(f"{figures}, rows {len(report.rows)}, {peak:.2f} GiB {said[:200]}", flush=True)
    one = statistics.median(seconds["bare"])
    for explain in ("off", "fast"):
        print(f"{explain}: {statistics.median(seconds[explain]) / one:.1f} x a bare step ({one:.2f} s)")


if __name__ == "__main__":
    main()
