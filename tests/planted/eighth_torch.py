"""An eighth batch in PyTorch: products over an axis, polygons, weights with a parametrisation, complex rotations, fast
paths, and modules of two kinds, with healthy ones that look dangerous; written and labelled before it was run."""

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


def _named(who: str, extra: str = "", **more: Any) -> None:
    """Other names of the case that was registered last, in each of its modes."""
    name = CASES[-1].name
    CASES[:] = [
        replace(one, who=tuple(who.split()), extra=tuple(f"{who} {extra}".split()), **more) if one.name == name else one
        for one in CASES
    ]


@unseen("underflow", "torch_fp16", "prod", "underflow")
def geometric_mean_by_its_product() -> Any:
    """The sixteenth root of a product of sixteen shares of about a third."""

    def body(m: Any, x: Any) -> Any:
        p = torch.sigmoid(m.a(x) - 1.2).reshape(2, 8, 2, 16)
        return m.head(p.prod(-1) ** (1 / 16) * 4)

    return Net(body, a=linear(32, 32), head=linear(2, 4)), tokens()


_named("prod", "pow")


@unseen("two", "torch_fp16", "pow prod", "overflow underflow", also=("pow", "prod"))
def one_output_too_large_and_one_too_small() -> Any:
    """Two faults: a fifth power beyond the type, and a product below it."""

    def body(m: Any, x: Any) -> Any:
        large = (m.a(x).abs() * 10).pow(5) * 1e-6
        small = torch.sigmoid(m.b(x) - 2).prod(-1) * 1e12
        return {"large": m.head(torch.tanh(large)), "small": torch.log1p(small)}

    return Net(body, a=linear(32, 16), b=linear(32, 16), head=linear(16, 4)), tokens()


_named("pow prod", "mul#1 mul#2 mul")


@unseen("cancellation", "torch_bf16", "mul mul#1", "cancellation cancels amplified")
def area_of_a_far_polygon() -> Any:
    """The shoelace formula of corners around 300: products of 90000, an area of about 10."""

    def body(m: Any, x: Any) -> Any:
        corner = torch.tanh(m.a(x)).reshape(2, 8, 2, 8) * 2 + m.far
        px, py = corner[:, :, 0], corner[:, :, 1]
        cross = px * py.roll(-1, -1) - px.roll(-1, -1) * py
        return cross.sum(-1) / 2

    return Net(body, a=linear(32, 16), far=torch.tensor([310.0, 270.0])[:, None]), tokens()


_named("mul mul#1 mul#2 mul#3 add add#0", "sub tanh roll roll#1")


@unseen("int8", "torch_int8", "first/linear first first/addmm", "outlier_channel coarse")
def identifier_beside_measurements() -> Any:
    """A column of identifiers of 50000, which the first layer all but ignores, takes every row's range."""

    def body(m: Any, x: Any) -> Any:
        return m.head(F.relu(m.second(F.relu(m.first(x)))))

    x = torch.rand(16, 48)
    x[:, 3] = 50000 + torch.arange(16)
    first = linear(48, 64)
    with torch.no_grad():
        first.weight[:, 3] = 1e-6
    return Net(body, first=first, second=linear(64, 64), head=linear(64, 4)), x


_named("first/linear first first/addmm first/_int_mm first/mm first/view first/add x input arg0")


# --- two modules that should be one


def sharing(neighbours: bool = False, unbiased: bool = False, pad: bool = False) -> Any:
    """Positions turned by halves, a standardisation, and a convolution over time."""
    torch.manual_seed(21)

    def body(m: Any, x: Any) -> Any:
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=unbiased) + 1e-6)
        h = m.q(x)
        if neighbours:
            swapped = torch.stack([-h[..., 1::2], h[..., ::2]], -1).flatten(-2)
        else:
            swapped = torch.cat([-h[..., 4:], h[..., :4]], -1)
        h = h * m.cos + swapped * m.sin
        y = F.conv1d(F.pad(h.transpose(1, 2), (0, 2) if pad else (2, 0)), m.w).transpose(1, 2)
        return m.head(F.gelu(y))

    angle = torch.outer(torch.arange(12.0), 100.0 ** -(torch.arange(4) / 4))
    return Net(body, q=linear(8, 8), cos=torch.cat([angle, angle], -1).cos(), sin=torch.cat([angle, angle], -1).sin(),
               w=torch.randn(16, 8, 3) / 4, head=linear(16, 4)), tokens(8, 12)  # fmt: skip


@unseen("files", "torch_fp32", "std", "files_differ other_arithmetic", base="sharing", fix=False)
def deviation_of_one_less() -> Any:
    return sharing(unbiased=True)


_named("std std/var std/sqrt var")


@unseen("files", "torch_fp32", "pad constant_pad_nd", "files_differ other_arithmetic", base="sharing", fix=False)
def border_behind_in_place_of_before() -> Any:
    return sharing(pad=True)


_named("pad constant_pad_nd", "conv1d convolution transpose")


# --- healthy, and dangerous to look at


@unseen("healthy", "torch_bf16")
def rotation_by_complex_numbers() -> Any:
    """Llama's own rotation: in float32 as complex numbers, and back."""

    def body(m: Any, x: Any) -> Any:
        q = torch.view_as_complex(m.q(x).float().reshape(2, 8, 16, 2))
        turned = torch.view_as_real(q * torch.polar(torch.ones_like(m.angle), m.angle).to(q.dtype)).flatten(-2)
        return m.head(turned.type_as(x))

    angle = torch.outer(torch.arange(8.0), 10000.0 ** -(torch.arange(16) / 16))
    net = Net(body, q=linear(32, 32), head=linear(32, 4))
    net.angle = angle  # a plain attribute: it stays in float32
    return net, tokens()


@unseen("healthy", "torch_bf16 torch_autocast_bf16")
def encoder_of_the_library() -> Any:
    """nn.TransformerEncoder in eval(), which has a fast path."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=False)
    return nn.Sequential(nn.TransformerEncoder(layer, 2), linear(32, 4)).eval(), tokens()


@unseen("healthy", "torch_fp16")
def weight_by_its_norm() -> Any:
    """weight_norm's directions are of 300: their squares lie beyond half, and PyTorch adds them up in float32."""
    from torch.nn.utils.parametrizations import weight_norm

    first = weight_norm(linear(32, 32))
    with torch.no_grad():
        first.parametrizations.weight.original1.mul_(1800)
    return nn.Sequential(first, nn.Tanh(), linear(32, 4)), tokens()


@unseen("healthy", "torch_int8")
def one_loud_token_of_its_own_range() -> Any:
    """Ranges are found for each token: one that is 500 times the others costs these nothing."""
    x = tokens(64)
    x[1, 3] *= 500
    return nn.Sequential(linear(64, 64), nn.Tanh(), linear(64, 8)), x


@unseen("healthy", "torch_fp16 torch_bf16")
def dead_channel_of_a_batch_norm() -> Any:
    """A running variance of 1e-9 and a gain of a ten-thousandth."""
    bn = nn.BatchNorm2d(8)
    with torch.no_grad():
        bn.running_var[2] = 1e-9
        bn.weight[2] = 1e-4
    conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
    with torch.no_grad():
        conv.weight[2] *= 1e-5
    return nn.Sequential(conv, bn, nn.ReLU(), nn.Conv2d(8, 4, 1)).eval(), image()


def sharing_as_it_is() -> Any:
    return changed(sharing, "w", lambda w: w.clone())


unseen("healthy", "torch_fp32", base="sharing", fix=False)(sharing_as_it_is)
