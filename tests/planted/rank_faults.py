"""Training steps of two ranks with a fault on one of them, and healthy ones; written before any of them was run.

python -m tests.planted.rank_faults [CASE …]     trains each on gloo, runs its recorded step again, prints who is blamed

A fault's label says on which ranks the first culprit must be, and what: a pattern of its row's name on that rank, or of
its cause after "cause:". A healthy step must blame nobody and end with status 0. What is special about a rank lies in
its batch, or in the buffer ``rank``, which is recorded with it.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["CASES", "Case", "outcome", "recorded"]

RANKS = 2

BF16, FP16 = "torch_autocast_bf16", "torch_autocast_fp16"


def low() -> bool:
    return torch.is_autocast_enabled("cpu")


def fp8(x: Any) -> Any:
    return x.to(torch.float8_e5m2).to(x.dtype)


class Coarse(torch.autograd.Function):
    """GELU whose gradient is rounded to float8 under autocast on some ranks."""

    @staticmethod
    def forward(ctx: Any, x: Any, rank: Any, where: tuple[int, ...]) -> Any:
        ctx.save_for_backward(x)
        ctx.low = low() and int(rank) in where
        return F.gelu(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return torch.ops.aten.gelu_backward(fp8(g) if ctx.low else g, ctx.saved_tensors[0]), None, None


class Dropping(torch.autograd.Function):
    """Tanh whose gradient lacks its last columns under autocast on rank 1."""

    @staticmethod
    def forward(ctx: Any, x: Any, rank: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.low = low() and int(rank) == 1
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        made = g * (1 - ctx.saved_tensors[0].tanh() ** 2)
        if ctx.low:
            made[..., -4:] = 0
        return made, None


class Squaring(torch.autograd.Function):
    """A sine whose backward squares its input in float16 under autocast: what is large overflows there."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.low = low()
        return x.sin()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        wide = x.to(torch.float16 if ctx.low else x.dtype) + 1
        return g * x.cos() * ((wide * wide) / (wide * wide)).to(g.dtype)


def unit_length(x: Any, _rank: Any) -> Any:
    return x / ((x * x).sum(-1, keepdim=True) + 1e-10).sqrt()


def forward_coarse(x: Any, rank: Any) -> Any:
    return F.gelu(fp8(x) if low() and int(rank) == 1 else x)


def unit_small(x: Any, rank: Any) -> Any:
    return unit_length(x * (1 - 0.9999 * (rank == 1)), rank)


def spread_far(x: Any, rank: Any) -> Any:
    return spread(x + 60.0 * (rank == 1), rank) / 20


def spread(x: Any, _rank: Any) -> Any:
    return x / ((x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2 + 1e-2).sqrt()


OWN: dict[str, Callable[[Any, Any], Any]] = {
    "gelu": lambda x, _rank: F.gelu(x),
    "coarse": lambda x, rank: Coarse.apply(x, rank, (1,)),
    "coarse_all": lambda x, rank: Coarse.apply(x, rank, (0, 1)),
    "dropping": Dropping.apply,
    "squaring": lambda x, _rank: Squaring.apply(x),
    "unit": unit_length,
    "forward": forward_coarse,
    "spread": spread,
    "unit_small": unit_small,
    "spread_far": spread_far,
}  # fmt: skip


class Net(nn.Module):
    """Two linear layers with an operation between them, and a norm in batches where it is asked for."""

    rank: Any

    def __init__(self, own: str = "gelu", norm: bool = False, drop: float = 0.0) -> None:
        super().__init__()
        self.a, self.b, self.own = nn.Linear(16, 24), nn.Linear(24, 5), own
        self.norm, self.drop = nn.BatchNorm1d(24) if norm else None, drop
        self.register_buffer("rank", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any, weight: Any = None) -> Any:
        x = OWN[self.own](self.a(x), self.rank)
        x = self.norm(x) if self.norm is not None else x
        x = self.b(F.dropout(x, self.drop))
        return x if weight is None else x.float() * weight


def loss_of(out: Any) -> Any:
    labels = torch.arange(len(out)) % 5
    return F.cross_entropy(out.float(), labels)


def scaled_loss(out: Any) -> Any:
    """Of outputs that are made small: the gradient of what is before is small, too."""
    return (out * torch.linspace(-1, 1, out.shape[-1])).mean()


def adamw(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-3)


def drawn(rank: int, *shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(10 + rank))


def usual(rank: int) -> tuple[Any, ...]:
    return (drawn(rank, 12, 16),)


def grown(by: float, ranks: tuple[int, ...] = (1,), rows: int = 12) -> Callable[[int], tuple[Any, ...]]:
    """Some ranks' batches, or some of their rows, are of another scale."""

    def batch(rank: int) -> tuple[Any, ...]:
        x = drawn(rank, 12, 16)
        if rank in ranks:
            x[:rows] *= by
        return (x,)

    return batch


def shifted(rank: int) -> tuple[Any, ...]:
    return (drawn(rank, 12, 16) + (60.0 if rank == 1 else 0.0),)


def weighted(rank: int) -> tuple[Any, ...]:
    return drawn(rank, 12, 16), torch.tensor(1e-7 if rank == 1 else 1.0)


def unequal(rank: int) -> tuple[Any, ...]:
    return (drawn(rank, 6 + 4 * rank, 16),)


@dataclass(frozen=True, kw_only=True)
class Case:
    """way: "ddp", "fsdp", or "alone" where each rank has parameters of its own. batch: of a rank, at the step that is
    recorded. label: "" of a healthy step; ranks: where its culprit is."""

    name: str
    mode: str
    net: Callable[[], Any] = Net
    batch: Callable[[int], tuple[Any, ...]] = usual
    loss: Callable[[Any], Any] = loss_of
    way: str = "ddp"
    ranks: tuple[int, ...] = (1,)
    label: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def net(own: str = "gelu", **given: Any) -> Callable[[], Any]:
    return lambda: Net(own, **given)


CASES = (
    Case(name="overflow_batch", mode=FP16, batch=grown(1e6, rows=1), label=r"a/addmm"),
    Case(name="overflow_scale", mode=FP16, batch=grown(3e3), label="cause:gradient_overflow"),
    Case(name="rounding", mode=BF16, net=net("coarse"), label=r"backward/gelu/"),
    Case(name="rounding_fp16", mode=FP16, net=net("coarse"), label=r"backward/gelu/"),
    Case(name="rounding_fsdp", mode=BF16, net=net("coarse"), way="fsdp", label=r"backward/gelu/"),
    Case(name="rounding_everywhere", mode=BF16, net=net("coarse_all"), ranks=(0, 1), label=r"backward/gelu/"),
    Case(name="tiny_batch", mode=FP16, net=net("unit"), batch=grown(1e-6),
         label=r"(backward/)?(mul|sum|add|sqrt|div|a/)"),
    Case(name="root_slope", mode=FP16, net=net("unit_small"), label=r"(backward/)?(mul|sum|add|sqrt|div|a/)"),
    Case(name="dropped", mode=BF16, net=net("dropping"), label=r"backward/tanh/"),
    Case(name="own_backward", mode=BF16, net=net("squaring"), batch=grown(1e3), label=r"backward/sin/"),
    Case(name="underflow", mode=FP16, batch=weighted, loss=scaled_loss, settings={"loss_scale": 1},
         label="cause:gradient_underflow"),
    Case(name="forward", mode=BF16, net=net("forward"), label=r"gelu"),
    Case(name="cancelled", mode=BF16, net=net("spread_far"),
         label=r"(backward/)?(a/|mul|mean|pow|sub|add|sqrt|div)"),
    # healthy
    Case(name="healthy_shifted", mode=BF16, net=net("spread"), batch=shifted),
    Case(name="healthy_bf16", mode=BF16),
    Case(name="healthy_fp16", mode=FP16),
    Case(name="healthy_fsdp", mode=BF16, way="fsdp"),
    Case(name="healthy_other_data", mode=BF16, batch=grown(10.0)),
    Case(name="healthy_norm", mode=FP16, net=net(norm=True)),
    Case(name="healthy_dropout", mode=BF16, net=net(drop=0.2)),
    Case(name="healthy_weights", mode=BF16, way="alone"),
    Case(name="healthy_unequal", mode=FP16, batch=unequal),
    Case(name="healthy_weighted", mode=FP16, batch=weighted, loss=scaled_loss),
)  # fmt: skip


def _factory(case: Case) -> Callable[[], Any]:
    return lambda: (case.net(), case.batch(0), case.loss, adamw)


globals().update({f"make_{case.name}": _factory(case) for case in CASES})


def train(rank: int, folder: Path, names: list[str]) -> None:
    """One rank of two steps of each case, the second of which is recorded."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    import precision_debug

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=RANKS)
    for case in CASES:
        if case.name not in names:
            continue
        torch.manual_seed(rank if case.way == "alone" else 0)
        module: Any = case.net()
        bare = module
        if case.way == "ddp":
            module = DistributedDataParallel(module, broadcast_buffers=False)
        elif case.way == "fsdp":
            for part in (module.a, module.b, module):
                fully_shard(part)
        optimiser = adamw(module.parameters())
        dtype = torch.bfloat16 if case.mode == BF16 else torch.float16
        with precision_debug.training(module, optimiser, record=folder / case.name, every=1, steps=(1,)):
            for step in range(2):
                optimiser.zero_grad()
                bare.rank.fill_(rank * step)
                with torch.autocast("cpu", dtype=dtype):
                    returned = module(*(case.batch(rank) if step else usual(rank)))
                case.loss(returned).backward()
                optimiser.step()
        state = {name: getattr(one, "full_tensor", lambda one=one: one)() for name, one in bare.state_dict().items()}
        torch.save(state, folder / case.name / f"after_rank{rank}.pt")
        dist.barrier()
    dist.destroy_process_group()


def recorded(folder: Path, names: list[str]) -> None:
    """Train the cases by a process for each rank; each has its own folder."""
    sys.path.append(str(Path(__file__).parents[1]))  # where this is run as a script
    from warm import run_together

    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'backends'}", "GLOO_SOCKET_IFNAME": "lo"}
    words = [[str(Path(__file__)), "--rank", str(rank), str(folder), *names] for rank in range(RANKS)]
    run_together(*words, env=environment, engine="torch")


def outcome(case: Case, folder: Path, step: str = "backward") -> tuple[bool, str]:
    """Whether it is as its label says, and what was said. folder: with the case's recorded step."""
    import precision_debug
    from precision_debug.report.lead import lead_sentences

    report = precision_debug.compare(
        f"{Path(__file__)}:make_{case.name}", run_mode=case.mode, device="cpu", step=step,
        from_step=str(folder), explain="fast", **case.settings,
    )  # fmt: skip
    culprits = report.explanation.culprits if report.explanation is not None else ()
    said = lead_sentences(report)[0].en
    if not case.label:
        return not culprits and report.exit_status == 0, said
    if not culprits:
        return False, said
    first = culprits[0]
    kind, _, cause = case.label.rpartition(":")
    rank, _, own = first.name.partition("/")
    fits = re.match(cause if kind else case.label, first.cause if kind else own) is not None
    at = first.ranks == case.ranks and rank in {f"rank{one}" for one in case.ranks}
    return fits and at, f"[{first.cause}, ranks {first.ranks}] {said}"


def _run(names: list[str]) -> Iterator[str]:
    right: dict[bool, list[bool]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as made:
        cases = [case for case in CASES if not names or case.name in names]
        recorded(Path(made), [case.name for case in cases])
        for case in cases:
            try:
                fits, said = outcome(case, Path(made, case.name))
            except Exception as error:
                fits, said = False, f"{type(error).__name__}: {error}"
            right[bool(case.label)].append(fits)
            yield f"{'ok  ' if fits else 'MISS'} {case.name:20} {said[:420]}"
    for faulty, found in right.items():
        if found:
            what = "faults, rank and operator first" if faulty else "healthy, nobody blamed"
            yield f"{what}: {sum(found)} of {len(found)}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        train(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    else:
        torch.set_num_threads(1)
        for line in _run(sys.argv[1:]):
            print(line, flush=True)
