"""One rank of a small training run on gloo, with a planted fault each: tests/test_training_ranks.py starts two of them.

python tests/training_ranks.py RANK FOLDER CASE [CASE …]
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import precision_debug

STEPS = 3
"""Of which the second has the fault."""


class Net(nn.Module):
    """Two layers, a norm, and a second head that a batch may leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm = nn.Linear(12, 24), nn.LayerNorm(24)
        self.head, self.other = nn.Linear(24, 7), nn.Linear(24, 7)

    def forward(self, x: Any, both: bool = True) -> Any:
        x = self.norm(torch.tanh(self.body(x)))
        return self.head(x) + (self.other(x) if both else 0)


class Case:
    """What one rank does. way: "ddp", "fsdp" or "hand", where the loop reduces by itself."""

    def __init__(self, name: str, rank: int) -> None:
        self.rank, (self.way, _, self.fault) = rank, name.partition("_")
        torch.manual_seed(5 if self.fault == "weights" and rank else 0)
        self.net: Any = Net()
        scaled = self.fault in ("inf_scaled", "scaled")
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
        if self.way == "ddp":
            self.net = DistributedDataParallel(self.net, find_unused_parameters=self.fault == "unused")
            hook = {
                "sum": _summed, "left_out": _without_last, "bf16": _in_bfloat16,
                "overflow": default_hooks.fp16_compress_hook,
            }.get(self.fault)  # fmt: skip
            if hook is not None:
                self.net.register_comm_hook(None, hook)
        elif self.way == "fsdp":
            for part in (self.net.body, self.net.head):
                fully_shard(part)
            fully_shard(self.net)
            if self.fault == "sum":
                for part in (self.net.body, self.net.head, self.net):
                    part.set_gradient_divide_factor(1.0)
                    part.set_force_sum_reduction_for_comms(True)
        self.step = 0

    def batch(self) -> Any:
        drawn = torch.Generator().manual_seed(10 * self.step + self.rank)
        x = torch.randn(16, 12, generator=drawn)
        if self.fault.startswith("inf") and self.step == 1 and self.rank == 1:
            x[3, 4] = torch.inf
        return x

    def loss(self) -> Any:
        low = self.fault == "autocast" and self.rank == 1
        both = not (self.fault == "unused" and self.rank == 1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            returned = self.net(self.batch(), both)
        loss = nn.functional.cross_entropy(returned.float(), torch.arange(16) % 7)
        return loss * (1e8 if self.fault == "overflow" and self.step == 1 else 1)

    def backward(self) -> None:
        times = 2 if self.fault == "accumulated" else 1
        for turn in range(times):
            last = turn == times - 1
            if self.way == "fsdp":
                self.net.set_requires_gradient_sync(last)
            apart = self.way == "ddp" and not last
            with self.net.no_sync() if apart else contextlib.nullcontext():
                self.scaler.scale(self.loss()).backward()
        if self.way == "hand" and self.fault != "nothing":
            for one in self.net.parameters():
                dist.all_reduce(one.grad)
                one.grad /= 1 if self.fault == "sum" else 2

    def run(self, folder: Path) -> None:
        optimiser = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        with precision_debug.training(self.net, optimiser, record=folder, every=1, steps=(1,), scaler=self.scaler):
            if self.fault == "rounded" and self.rank == 1:
                self.net.module.body.weight.register_hook(lambda gradient: gradient.half().float())
            for self.step in range(STEPS):
                optimiser.zero_grad()
                self.backward()
                self.scaler.unscale_(optimiser)
                if self.fault == "clipped":
                    nn.utils.clip_grad_norm_(self.net.parameters(), 0.01)
                self.scaler.step(optimiser)
                self.scaler.update()


def _summed(_state, bucket):  # type: ignore[no-untyped-def]  # DDP looks at annotations
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def _without_last(_state, bucket):  # type: ignore[no-untyped-def]
    if dist.get_rank():
        bucket.buffer().zero_()
    return _summed(None, bucket)


def _in_bfloat16(_state, bucket):  # type: ignore[no-untyped-def]
    """What DDP's own bf16_compress_hook does, which asks for NCCL."""
    half = (bucket.buffer() / 2).to(torch.bfloat16)
    future = dist.all_reduce(half, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))


def _trains_the_same_bits(followed: Case, alone: Case) -> None:
    optimiser = torch.optim.AdamW(alone.net.parameters(), lr=1e-3)
    for alone.step in range(STEPS):
        optimiser.zero_grad()
        alone.backward()
        optimiser.step()
    for one, other in zip(followed.net.parameters(), alone.net.parameters(), strict=True):
        assert bytes(_own(one)) == bytes(_own(other))


def _own(parameter: Any) -> Any:
    part = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return part.detach().numpy().tobytes()


def main(rank: int, folder: Path, names: list[str]) -> None:
    """Every case in its own folder."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=2)
    for name in names:
        case = Case(name, rank)
        case.run(folder / name)
        if name.endswith("clean"):
            _trains_the_same_bits(case, Case(name, rank))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
