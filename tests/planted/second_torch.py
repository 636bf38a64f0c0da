"""A second batch in PyTorch, written after the rules were mended for the first."""

from __future__ import annotations

from collections.abc import Callable
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


def encoder() -> Any:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
    return nn.Sequential(
        nn.Linear(16, 32), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 5)
    ), tokens(16)


def wave() -> Any:
    """Gated, dilated convolutions over time."""

    def body(m: Any, x: Any) -> Any:
        x = m.first(x)
        for gate, value in zip(m.gates, m.values, strict=True):
            x = x + torch.tanh(value(x)) * torch.sigmoid(gate(x))
        return m.last(F.gelu(x))

    def convs() -> Any:
        return nn.ModuleList(nn.Conv1d(8, 8, 3, padding=2**n, dilation=2**n) for n in range(3))

    return Net(body, first=nn.Conv1d(4, 8, 1), gates=convs(), values=convs(), last=nn.Conv1d(8, 2, 1)), torch.randn(
        2, 4, 64
    )


@unseen("cancellation", "torch_autocast_bf16", "a/addmm", "cancellation amplified")
def bias_that_is_taken_away() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(m.a(x).float() - 800.0)

    net = Net(body, a=linear(32, 32), b=linear(32, 8))
    with torch.no_grad():
        net.a.bias.add_(800)
    return net, torch.randn(8, 32)


@unseen("overflow", "torch_fp16", "a/addmm mul", "overflow")
def squared_relu() -> Any:
    def body(m: Any, x: Any) -> Any:
        h = torch.relu(m.a(x))
        return m.b(h * h * 1e-5)

    return Net(body, a=linear(32, 64, 900.0), b=linear(64, 8)), torch.randn(8, 32)


@unseen("underflow", "torch_fp16", "pow mean mul", "underflow")
def norm_of_tiny_activations() -> Any:
    def body(m: Any, x: Any) -> Any:
        x = m.a(x) * 5e-5
        return m.b(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-12))

    return Net(body, a=linear(32, 32), b=linear(32, 8)), torch.randn(8, 32)


CASES[-1] = CASES[-1].__class__(
    **{**CASES[-1].__dict__, "who": ("pow", "mean", "add"), "why": ("underflow", "weight_underflow"), "extra": ("mul",)}
)


@unseen("amplified", "torch_bf16", "mul", "amplified cancellation")
def fourier_features() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(torch.sin(m.a(x) * 400.0))

    return Net(body, a=linear(4, 32), b=linear(32, 3)), torch.randn(16, 4)


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "who": ("mul", "a/addmm"), "extra": ("args_0",)})


@unseen("cancellation", "torch_fp16", "add", "cancellation amplified")
def pressure_differences() -> Any:
    def body(m: Any, x: Any) -> Any:
        p = m.a(x) + 1013.0
        return m.b(p[:, 1:] - p[:, :-1])

    return Net(body, a=linear(8, 8), b=linear(8, 2)), torch.randn(2, 20, 8)


@unseen("files", "torch_fp32", "1.layers.1/_transformer_encoder_layer_fwd", "files_differ", base="encoder")
def one_row_of_a_layer() -> Any:
    return changed(encoder, "1.layers.1.linear1.weight", lambda w: (w[5].mul_(4), None)[1])


@unseen("files", "torch_fp32", "gates.1/convolution", "files_differ", base="wave")
def dilation_of_a_gate() -> Any:
    def edit(conv: Any) -> Any:
        conv.dilation, conv.padding = (1,), (1,)

    return changed(wave, "gates.1", edit)


@unseen("files", "torch_fp32", "gelu", "files_differ", base="gelu_erf")
def gelu_tanh() -> Any:
    module, inputs = gelu_erf()
    module.kind = "tanh"
    return module, inputs


def gelu_erf() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(F.gelu(m.a(x), approximate=m.kind))

    net = Net(body, a=linear(32, 32, 4.0), b=linear(32, 8))
    net.kind = "none"
    return net, torch.randn(8, 32)


@unseen("clean", "torch_bf16 torch_fp16 torch_autocast_fp16 torch_autocast_bf16")  # torchao has no such layer
def clean_encoder() -> Any:
    return encoder()


@unseen("clean", "torch_bf16 torch_compile")
def clean_wave() -> Any:
    return wave()


@unseen("clean", "torch_fp16", level="module")
def clean_residual_net() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    ), image()


@unseen("benign", "torch_fp16")
def overflow_into_a_tanh() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(torch.tanh(m.a(x) * 3e4))

    return Net(body, a=linear(32, 32), b=linear(32, 8)), torch.randn(8, 32)
