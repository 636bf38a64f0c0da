"""A third batch of training steps, faulty and healthy, written after the second was mended and before any was run.

Afterwards two were changed: sum_of_squares_in_half did not overflow, and gelu_by_tanh is told of its backward operator.

python -m tests.planted.training_third [CASE …]      see training_further, whose cases these are like
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import nn
from torch.nn import functional as F

from planted.training_further import (
    ALL,
    BF16,
    BRAIN,
    CANCELS,
    FP16,
    HALF,
    PLAIN,
    Case,
    adamw,
    case,
    classes,
    drawn,
    ids,
    loss_own,
    low,
    own,
    run,
)

CASES: list[Case] = []
of_these = functools.partial(case, into=CASES)


# faults


@of_these(FP16, r"mul|pow", ("overflow",))
def root_mean_square_by_hand() -> Any:
    return own(lambda x: (y := x * 600) * ((y * y).mean(-1, keepdim=True) + 1e-6).rsqrt())


@of_these(FP16, r"(backward/)?(div|sum|sqrt|add|mul|norm|pow)", ())
def cosine_of_padding() -> Any:
    """Rows of zeros: 0 over a floor of 1e-8, which float16 holds as 0."""

    def unit(x: Any) -> Any:
        padded = torch.cat([x[:6], x[6:] * 0])
        return padded / ((padded * padded).sum(-1, keepdim=True) + 1e-8)

    return own(unit)


@of_these(FP16, r"log|mul|.*:to|softmax|xlogy", ())
def divergence_by_hand() -> Any:
    """p log p of a probability that is 0 in float16 is NaN."""

    def loss(out: Any) -> Any:
        p = (out.float() * 60).softmax(-1).to(out.dtype)
        return (p * p.log()).sum(-1).float().mean()

    return loss_own(loss)


@of_these(FP16, r"mul|pow|sub", ("overflow",))
def squares_of_large_targets() -> Any:
    """Regression to targets of 1000, squared in float16."""

    def loss(out: Any) -> Any:
        off = out - (drawn(len(out), out.shape[-1]).abs() * 100 + 900).to(out.dtype)
        return (off * off).mean().float()

    return loss_own(loss)


@of_these(BF16, r"add|sub|mul|sum|mm|pow|sqrt|clamp|matmul", (*CANCELS, "amplifies", "rounding"))
def distances_by_products() -> Any:
    """|a|^2 + |b|^2 - 2ab of points that are near to one another and far from 0."""

    def loss(out: Any) -> Any:
        far = out + 20
        square = (far * far).sum(-1)
        apart = square[:, None] + square[None] - 2 * (far @ far.t()).to(square.dtype)
        return (apart.clamp(min=1e-2).sqrt()).float().mean()

    return loss_own(loss)


@of_these(FP16, r"exp", ("overflow",))
def softplus_by_hand() -> Any:
    return own(lambda x: torch.log1p((x * 8).to(torch.float16 if low() else x.dtype).exp()).to(x.dtype), times=3.0)


@of_these(FP16, r"div|mul", ("overflow",))
def cold_softmax() -> Any:
    """Logits over a temperature of 1e-6."""
    return own(lambda x: (x / 1e-6).softmax(-1).to(x.dtype) + x)


class HandAdam(torch.optim.Optimizer):
    """Adam whose bias correction, 1 - 0.999, is computed in the parameter's type."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-2})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            kept = torch.full_like(p, 0.999)
            second = p.grad * p.grad * 0.001
            p.add_(p.grad / ((second / (1 - kept)).sqrt() + 1e-6) * -1e-2)


@of_these(BRAIN, r"optimiser/", (), settings=ALL)
def correction_is_zero() -> Any:
    return loss_own(classes, optimiser=HandAdam)


@of_these(FP16, r"sum", ("overflow",))
def mask_counted_in_half() -> Any:
    """70000 ones are counted in float16."""

    def mean(x: Any) -> Any:
        ones = torch.ones(70000, dtype=torch.float16 if low() else torch.float32)
        return x * (70000 / ones.sum()).to(x.dtype)

    return own(mean)


@of_these(BRAIN, r"mul|cos|sin|outer|arange|add|.*to", ())
def rotary_in_bfloat16() -> Any:
    """Positions to 2000, of which bfloat16 knows every eighth."""
    torch.manual_seed(0)

    class Rotary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 5)
            self.register_buffer("at", torch.arange(1500.0, 1900.0)[:, None])
            self.register_buffer("speed", torch.tensor([1.0, 0.5, 0.25, 0.125]))

        def forward(self, x: Any) -> Any:
            y, z = self.a(x).chunk(2, -1)
            angle = self.at * self.speed
            return self.b(torch.cat([y * angle.cos() - z * angle.sin(), z * angle.cos() + y * angle.sin()], -1).mean(1))

    return Rotary(), (drawn(3, 400, 4),), classes, adamw


@of_these(FP16, r"backward/", ("gradient_overflow",))
def steep_power() -> Any:
    return own(lambda x: (x * 4) ** 4 * 0.5, times=2.0)


def by_error_function() -> Any:
    return own(F.gelu)


@of_these(PLAIN, r"(backward/)?gelu", ("other_arithmetic", "files_differ"), base="by_error_function")
def gelu_by_tanh() -> Any:
    return own(lambda x: F.gelu(x, approximate="tanh"))


def mean_of_all() -> Any:
    return loss_own(lambda out: F.mse_loss(out, drawn(*out.shape)))


@of_these(PLAIN, r"(backward/)?(mse_loss|sum|div|mul)", (), base="mean_of_all")
def sum_over_batch() -> Any:
    return loss_own(lambda out: F.mse_loss(out, drawn(*out.shape), reduction="sum") / len(out))


@of_these(HALF, r"mse_loss|(backward/)?.*", ("overflow",))
def sum_of_squares_in_half() -> Any:
    return loss_own(lambda out: (out * 400).square().sum() / 1000)


# healthy


@of_these(FP16)
def healthy_root_mean_square() -> Any:
    return own(lambda x: (x.float() * (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype))


@of_these(FP16)
def healthy_focal() -> Any:
    def loss(out: Any) -> Any:
        kept = out.float().log_softmax(-1).gather(-1, ids(5, len(out), 1)).squeeze(-1)
        return -((1 - kept.exp()) ** 2 * kept).mean()

    return loss_own(loss)


@of_these(BF16)
def healthy_instance_norm() -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.LeakyReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3),
        nn.PReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    return net, (drawn(4, 3, 12, 12),), classes, adamw


@of_these(BRAIN)
def healthy_decoder() -> Any:
    torch.manual_seed(0)

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
            self.head = nn.Linear(16, 5)

        def forward(self, x: Any) -> Any:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
            return self.head(self.layer(x, src_mask=mask, is_causal=True).mean(1))

    return Decoder(), (drawn(4, 7, 16),), classes, adamw


@of_these(BF16, settings=ALL)
def healthy_adagrad() -> Any:
    return loss_own(classes, optimiser=lambda p: torch.optim.Adagrad(p, lr=1e-2))


@of_these(FP16, settings={"step": "optimiser", "clip_norm": 0.5})
def healthy_clip() -> Any:
    return loss_own(classes)


@of_these(PLAIN, settings=ALL)
def healthy_momentum_float32() -> Any:
    return loss_own(classes, optimiser=lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9))


@of_these(BF16)
def healthy_rotary() -> Any:
    torch.manual_seed(0)
    at = torch.arange(1500.0, 1540.0)[:, None] * torch.tensor([1.0, 0.5, 0.25, 0.125])

    class Rotary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            y, z = self.a(x).float().chunk(2, -1)
            return self.b(torch.cat([y * at.cos() - z * at.sin(), z * at.cos() + y * at.sin()], -1).relu().mean(1))

    return Rotary(), (drawn(3, 40, 4),), classes, adamw


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in run(CASES, sys.argv[1:]):
        print(line, flush=True)
