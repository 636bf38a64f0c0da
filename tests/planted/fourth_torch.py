"""A fourth batch in PyTorch; written and labelled before any of it was run."""

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


NARROW = "torch_bf16 torch_autocast_bf16"

# --- healthy, 10 to 60 layers


def transformer(layers: int = 3) -> Any:
    torch.manual_seed(11)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
    net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    for n, part in enumerate(net.layers):
        torch.manual_seed(20 + n)
        for value in part.parameters():
            if value.dim() > 1:
                nn.init.xavier_uniform_(value)

    def body(m: Any, x: Any) -> Any:
        return m.head(m.norm(m.net(x)))

    return Net(body, net=net, norm=nn.LayerNorm(32), head=linear(32, 10)), tokens()


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)
        self.n = nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        return torch.relu(x + 0.5 * self.b(torch.relu(self.n(self.a(x)))))


def residual(blocks: int = 6) -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.head(m.blocks(torch.relu(m.stem(x))).mean((2, 3)))

    stem = nn.Conv2d(3, 12, 3, padding=1)
    parts = nn.Sequential(*(Residual(12) for _ in range(blocks)))
    return Net(body, stem=stem, blocks=parts, head=linear(12, 8)), image()


def perceptron(layers: int = 12) -> Any:
    def body(m: Any, x: Any) -> Any:
        for part in m.parts:
            x = x + part(x)
        return m.head(m.norm(x))

    parts = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(layers))
    return Net(body, parts=parts, norm=nn.LayerNorm(32), head=linear(32, 8)), tokens()


def recurrent() -> Any:
    def body(m: Any, x: Any) -> Any:
        h, _ = m.rnn(x)
        return m.head(torch.tanh(m.mid(h)))

    return Net(body, rnn=nn.GRU(32, 16, 2, batch_first=True), mid=linear(16, 16), head=linear(16, 4)), tokens(length=12)


def unet() -> Any:
    def body(m: Any, x: Any) -> Any:
        a = F.silu(m.n1(m.c1(x)))
        b = F.silu(m.n2(m.c2(F.max_pool2d(a, 2))))
        c = F.silu(m.c3(b))
        up = F.interpolate(c, scale_factor=2, mode="nearest")
        return m.last(F.silu(m.c4(torch.cat([a, up], 1))))

    return Net(body, c1=nn.Conv2d(3, 8, 3, padding=1), n1=nn.GroupNorm(2, 8), c2=nn.Conv2d(8, 16, 3, padding=1),
               n2=nn.GroupNorm(4, 16), c3=nn.Conv2d(16, 16, 3, padding=1), c4=nn.Conv2d(24, 8, 3, padding=1),
               last=nn.Conv2d(8, 3, 1)), image()  # fmt: skip


@unseen("healthy", f"{NARROW} torch_fp16 torch_compile")
def healthy_transformer() -> Any:
    return transformer()


@unseen("healthy", f"{NARROW} torch_fp16")
def healthy_residual_net() -> Any:
    return residual()


@unseen("healthy", f"{NARROW}")
def healthy_perceptron() -> Any:
    return perceptron()


@unseen("healthy", f"{NARROW}")
def healthy_recurrent_net() -> Any:
    return recurrent()


@unseen("healthy", f"{NARROW} torch_fp16")
def healthy_unet() -> Any:
    return unet()


@unseen("healthy", "torch_compile", baseline="torch_fp32")
def model_of_bfloat16() -> Any:
    """Both sides compute in the type that the model holds."""
    net, x = perceptron(4)
    return net.to(torch.bfloat16), x.to(torch.bfloat16)


@unseen("healthy", "torch_compile", baseline="torch_fp32")
def model_of_float16() -> Any:
    net, x = transformer(2)
    return net.to(torch.float16), x.to(torch.float16)


@unseen("healthy", "torch_compile", baseline="torch_fp32")
def convolutions_of_bfloat16() -> Any:
    net, x = residual(3)
    return net.to(torch.bfloat16), x.to(torch.bfloat16)


# --- two models of which one weight is not the same, in a narrow type


def transposed() -> Any:
    return changed(perceptron, "parts.7.2.weight", lambda w: nn.Parameter(w.t().reshape(w.shape).clone()))


PART = "parts.7/2/addmm parts.7.2/addmm"


@unseen("files", "torch_bf16 torch_autocast_bf16 torch_fp16 torch_fp32", PART, "files_differ transposed",
        base="perceptron")  # fmt: skip
def one_weight_of_twelve_layers_is_turned() -> Any:
    return transposed()


def square(turn: bool = False) -> Any:
    """Square weights, of which one is transposed."""

    def body(m: Any, x: Any) -> Any:
        for one in m.steps:
            x = x + 0.3 * torch.tanh(one(x))
        return m.head(x)

    net = Net(body, steps=nn.ModuleList(linear(32, 32) for _ in range(10)), head=linear(32, 8))
    if turn:
        with torch.no_grad():
            net.steps[6].weight.copy_(net.steps[6].weight.t().clone())
    return net, tokens()


@unseen("files", "torch_bf16 torch_fp32", "steps.6/addmm", "files_differ transposed", base="square")
def transposed_weight_of_ten() -> Any:
    return square(turn=True)


@unseen("files", "torch_bf16", "blocks.3.a/convolution blocks.3/a/convolution", "files_differ", base="residual")
def one_kernel_of_a_residual_net() -> Any:
    return changed(residual, "blocks.3.a.weight", lambda w: nn.Parameter(w.flip(-1)))


# --- small faults in one file


@unseen("cancellation", NARROW, "add", "cancellation amplified coarse")
def large_mean_before_a_norm() -> Any:
    def body(m: Any, x: Any) -> Any:
        for part in m.parts:
            x = x + part(x)
        return m.head(x + m.norm(m.side(x) + 60.0))

    parts = nn.ModuleList(linear(32, 32, 0.5) for _ in range(5))
    return Net(body, parts=parts, side=linear(32, 32), norm=nn.LayerNorm(32), head=linear(32, 8)), tokens()


for place in (-2, -1):
    CASES[place] = replace(
        CASES[place], who=("add#6", "side/addmm", "add#5"), extra=("side/addmm", "add#6", "norm/native_layer_norm")
    )


@unseen("amplified", "torch_bf16", "mul", "amplified cancellation coarse")
def positions_of_a_long_text() -> Any:
    """Rotary angles of positions around 900 in bfloat16."""

    def body(m: Any, x: Any) -> Any:
        angle = m.place * m.freq
        turned = x * torch.cos(angle) + x.roll(16, -1) * torch.sin(angle)
        for part in m.parts:
            turned = turned + part(turned)
        return m.head(turned)

    parts = nn.ModuleList(linear(32, 32, 0.5) for _ in range(3))
    return Net(body, place=torch.arange(901.0, 909.0)[:, None], freq=torch.logspace(0, -3, 32), parts=parts,
               head=linear(32, 8)), tokens()  # fmt: skip


@unseen("drift", "torch_bf16", "add", "drift long_reduction coarse")
def small_steps_that_are_lost() -> Any:
    """A state that is moved by 0.003 of what is given, 200 times."""

    def body(m: Any, x: Any) -> Any:
        state = m.a(x).abs() + 1
        step = torch.sigmoid(m.b(x))
        for _ in range(200):
            state = state + 0.003 * step
        return m.c(state)

    return Net(body, a=linear(16, 16), b=linear(16, 16), c=linear(16, 4)), torch.randn(4, 16)


CASES[-1] = replace(CASES[-1], who=("add", *(f"add#{n}" for n in range(2, 203))))


@unseen("overflow", "torch_fp16", "pow", "overflow range_inside")
def square_of_four_hundred_in_a_module() -> Any:
    def body(m: Any, x: Any) -> Any:
        h = m.b(m.a(x)) * 400.0
        return m.c(h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))

    return Net(body, a=linear(32, 32), b=linear(32, 32), c=linear(32, 8)), tokens()


CASES[-1] = replace(CASES[-1], who=("pow",))


@unseen("weight_underflow", "torch_fp16", "norm/native_batch_norm bn/native_batch_norm", "weight_underflow")
def variances_that_became_zero() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.last(torch.relu(m.bn(m.first(x) * 1e-4)))

    net = Net(body, first=nn.Conv2d(3, 8, 3, padding=1), bn=nn.BatchNorm2d(8, eps=1e-12), last=nn.Conv2d(8, 3, 1))
    net.bn.running_var.fill_(4e-9)
    return net, image()


CASES[-1] = replace(CASES[-1], who=("bn/native_batch_norm", "bn/_native_batch_norm_legit_no_training", "bn/batch_norm"))


@unseen("benign", "torch_bf16 torch_autocast_bf16")
def branch_that_is_not_read() -> Any:
    def body(m: Any, x: Any) -> Any:
        for part in m.parts:
            x = x + part(x)
        torch.sin((m.side(x) + 500.0) * 40)
        return m.head(x)

    parts = nn.ModuleList(linear(32, 32, 0.5) for _ in range(5))
    return Net(body, parts=parts, side=linear(32, 32), head=linear(32, 8)), tokens()
