"""A fifth batch in PyTorch: buffers that a cast rounds, sums written out, modules that hide a square; written and
labelled before any of it was run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from planted.torch_faults import Net, image, linear, tokens
from planted.unseen import Unseen
from planted.unseen_torch import changed
from planted.unseen_torch import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, **more)


NARROW = "torch_bf16 torch_fp16"


class Rope(nn.Module):
    """Angles of late positions, of a buffer that .to() rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 1 / 2000 ** (torch.arange(0, 32, 2) / 32))

    def forward(self, x: Any, start: int = 700) -> Any:
        at = torch.arange(start, start + x.shape[1], dtype=torch.float32)
        angle = at[:, None] * self.inv_freq.float()
        turn = torch.cat([angle.cos(), angle.sin()], -1).to(x.dtype)
        return x * turn


@unseen("amplified", NARROW, "rope/mul", "amplified")
def rope_of_late_positions() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.head(m.rope(m.inside(x)))

    return Net(body, inside=linear(32, 32), rope=Rope(), head=linear(32, 8)), tokens(32, 64)


for place in (-2, -1):
    CASES[place] = replace(CASES[place], says="inv_freq")


@unseen("drift", NARROW, "add", "drift")
def euler_steps_that_are_lost() -> Any:
    """400 steps of which each is less than half a unit of the state."""

    def body(m: Any, x: Any) -> Any:
        force = torch.sigmoid(m.force(x))
        state = 1 + torch.zeros_like(force)
        for _ in range(400):
            state = state + force * 4e-4
        return m.head(state)

    return Net(body, force=linear(32, 16), head=linear(16, 4)), tokens(32, 4)


CASES = [replace(one, who=("add", *(f"add#{n}" for n in range(1, 402)))) if one.kind == "drift" else one
         for one in CASES]  # fmt: skip


class SquareMean(nn.Module):
    def forward(self, x: Any) -> Any:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


@unseen("overflow", "torch_fp16", "norm", "range_inside", level="module")
def squares_inside_a_norm() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.head(m.norm(m.inside(x) * 600))

    return Net(body, inside=linear(32, 32), norm=SquareMean(), head=linear(32, 4)), tokens(32, 4)


@unseen("overflow", "torch_fp16", "norm/square norm/pow", "overflow")
def squares_inside_a_norm_by_operator() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.head(m.norm(m.inside(x) * 600))

    return Net(body, inside=linear(32, 32), norm=SquareMean(), head=linear(32, 4)), tokens(32, 4)


def perceptron() -> Any:
    torch.manual_seed(4)

    def body(m: Any, x: Any) -> Any:
        for part in (m.a, m.b, m.c):
            x = x + 0.4 * torch.relu(part(x))
        return m.head(x)

    return Net(body, a=linear(32, 32), b=linear(32, 32), c=linear(32, 32), head=linear(32, 5)), tokens()


@unseen("files", "torch_fp32 torch_bf16", "b/addmm b/linear b/mm b/matmul b/view b/t b", "files_differ",
        base="perceptron")  # fmt: skip
def middle_weight_transposed() -> Any:
    return changed(perceptron, "b.weight", lambda w: nn.Parameter(w.data.T.clone()))


for place in (-2, -1):
    CASES[place] = replace(CASES[place], says="transposed", fix=False, extra=("b/addmm", "b/view", "output"))


@unseen("weight_underflow", "torch_fp16", "norm/batch_norm", "weight_underflow")
def running_variance_of_a_dead_channel() -> Any:
    conv, norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, eps=1e-11)
    with torch.no_grad():
        conv.weight[5] *= 2e-5
        conv.bias[5] = 0  # type: ignore[index]
        norm.running_var[5] = 2e-9  # type: ignore[index]

    def body(m: Any, x: Any) -> Any:
        return m.head(torch.tanh(m.norm(m.conv(x))))

    return Net(body, conv=conv, norm=norm, head=nn.Conv2d(8, 4, 1)).eval(), image()


@unseen("cancellation", NARROW, "add", "cancellation amplified coarse")
def distance_of_far_points() -> Any:
    """|a|^2 - 2ab + |b|^2 of points that lie close together, far out."""

    def body(m: Any, x: Any) -> Any:
        a = m.inside(x) + 30
        b = a.roll(1, 1) * 0.999 + 0.02
        return a.square().sum(-1) - 2 * (a * b).sum(-1) + b.square().sum(-1)

    return Net(body, inside=linear(32, 32)), tokens(32, 6)


CASES = [replace(one, who=("add", "sum", "sum#1", "sum#2", "sub", "mul", "mul#1", "mul#2", "add#1", "square",
                           "square#1", "pow", "pow#1", "roll"),
                 extra=("add", "sum", "sum#1", "sum#2", "sum#3", "sub", "mul", "mul#1", "mul#2", "mul#3", "add#1",
                        "add#2", "square", "square#1", "pow", "pow#1", "pow#2", "inside/addmm", "inside/view"))
         if one.name == "distance_of_far_points" else one for one in CASES]  # fmt: skip


# --- healthy


@unseen("healthy", "torch_bf16 torch_fp16 torch_autocast_bf16")
def deep_residual_stream() -> Any:
    """48 sums onto one stream: each is rounded, to either side."""

    def body(m: Any, x: Any) -> Any:
        for n in range(48):
            x = x + 0.2 * torch.tanh(m.layers[n % 6](x))
        return m.head(x)

    return Net(body, layers=nn.ModuleList(linear(32, 32) for _ in range(6)), head=linear(32, 6)), tokens()


@unseen("healthy", "torch_bf16 torch_autocast_bf16")
def gated_recurrence_written_out() -> Any:
    def body(m: Any, x: Any) -> Any:
        state = torch.zeros_like(x[:, 0])
        for n in range(x.shape[1]):
            gate = torch.sigmoid(m.gate(torch.cat([x[:, n], state], -1)))
            state = gate * state + (1 - gate) * torch.tanh(m.new(x[:, n]))
        return m.head(state)

    return Net(body, gate=linear(64, 32), new=linear(32, 32), head=linear(32, 4)), tokens(32, 20)


@unseen("healthy", "torch_bf16 torch_fp16 torch_compile")
def convolutions_with_norms() -> Any:
    torch.manual_seed(3)
    parts: list[nn.Module] = [nn.Conv2d(3, 12, 3, padding=1)]
    for _ in range(5):
        parts += [nn.GroupNorm(3, 12), nn.SiLU(), nn.Conv2d(12, 12, 3, padding=1)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5)).eval(), (image(),)


@unseen("healthy", "torch_bf16 torch_autocast_bf16")
def attention_with_rope_of_early_positions() -> Any:
    class Early(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turn", torch.cat([torch.ones(8, 16), torch.zeros(8, 16)], -1), persistent=False)
            self.qkv, self.out = linear(32, 96), linear(32, 32)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).chunk(3, -1)
            return x + self.out(F.scaled_dot_product_attention(q * self.turn, k, v))

    torch.manual_seed(9)
    return nn.Sequential(Early(), nn.LayerNorm(32), Early(), nn.LayerNorm(32), Early(), nn.Linear(32, 6)), (tokens(),)
