"""A nineteenth batch of PyTorch: two modules of which one was rewritten, formulas in narrow types, autocast, the
compiler,
8 bits, training steps; written and labelled before any of it was compared.

    python tests/planted/nineteenth_torch.py [WORD …]

measures each label without the tool: the output's error (Rel L2) beside float64, and what is left of it where the
operator that is to be named is computed as it should be.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from planted import fifteenth_torch, fourteenth_torch
from planted.eleventh_torch import layer, names
from planted.fifteenth_torch import _UPDATE, BACK, LOST, MOVE, PORT
from planted.fourteenth_torch import _dense
from planted.onnx_faults import Array, Graph
from planted.shared import print_measured, two_modules
from planted.tenth_torch import of_classes, step
from planted.torch_faults import Net, image, linear, tokens
from planted.twelfth.case import COARSE, DIFFER, Thread

# After the first run: rows that a label cannot know (where a stretch ends, the loss's own gradient); and scores of -20
# have steps of 1/64 in float16, so that scores_masked_by_the_lowest_half is no healthy case.
CASES: list[Thread] = []
case = functools.partial(fifteenth_torch.case, cases=CASES, module="nineteenth_torch")
converted = functools.partial(fourteenth_torch.converted, cases=CASES, module_of="nineteenth_torch")
OTHER = f"{DIFFER} unfound"

two = functools.partial(two_modules, globals(), 1901, PORT, OTHER)


def _ring(mode: str) -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(torch.relu(m.a(x)))

    return Net(body, a=nn.Conv2d(3, 8, 3, padding=1, padding_mode=mode), b=nn.Conv2d(8, 4, 1)), image()


_A = "a a/convolution a/conv2d a/pad a/constant_pad_nd a/_pad_circular a/cat a/copy a/copy_ a/slice"
two("globe_whose_edges_do_not_meet", "A padding of zeros in place of circular: east and west do not meet.", _ring,
    "circular", "zeros", _A)  # fmt: skip


def _larger(mode: str) -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(F.interpolate(torch.relu(m.a(x)), size=25, mode=mode))

    return Net(body, a=nn.Conv2d(3, 8, 3, padding=1), b=nn.Conv2d(8, 4, 1)), image()


_UP = names("upsample_nearest2d", "_upsample_nearest_exact2d", "interpolate", "index", "_unsafe_index")
two("nearest_pixels_by_their_corners", "'nearest' in place of 'nearest-exact' from 16 to 25 pixels.", _larger,
    "nearest-exact", "nearest", _UP)  # fmt: skip


def _moved(by: int) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        return m.b(torch.tanh(y + torch.roll(y, by, 1) * 0.5))

    return Net(body, a=linear(32, 16), b=linear(16, 4)), tokens()


_ROLL = names("roll", "mul", "add")
two("words_shifted_the_other_way", "roll by -1 in place of 1: each word sees the next, not the one before.", _moved, 1,
    -1,
    _ROLL)  # fmt: skip


def _paired(turned: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        a, b = m.a(x), m.c(x)
        return m.d(m.pair(b, a) if turned else m.pair(a, b))

    return Net(body, a=linear(32, 8), c=linear(32, 8), pair=nn.Bilinear(8, 8, 6), d=linear(6, 4)), tokens()


_PAIR = "pair " + " ".join(f"pair/{one}{n}" for one in ("bilinear", "_trilinear", "add", "einsum", "mul", "sum")
                           for n in ("", "#1"))  # fmt: skip
two("bilinear_layer_fed_the_other_way", "A bilinear layer of two inputs of one width is given them exchanged.", _paired,
    False, True, _PAIR, kind="port")  # fmt: skip


def _waves(woven: bool) -> Any:
    at = torch.arange(10)[:, None] * torch.exp(-torch.arange(8) * np.log(10000) / 8)

    def body(m: Any, x: Any) -> Any:
        both = torch.stack([m.at.sin(), m.at.cos()], -1).flatten(-2) if woven else torch.cat([m.at.sin(), m.at.cos()],
            -1)
        return m.b(torch.tanh(m.a(x) + both))

    return Net(body, a=linear(32, 16), b=linear(16, 4), at=at), tokens(32, 10)


_WAVES = names("stack", "flatten", "cat", "view", "_unsafe_view", "add", "reshape")
two("waves_woven_and_not_joined", "Sines and cosines of places alternate in one model and follow each other in the "
                                  "other.",
    _waves, False, True, _WAVES)  # fmt: skip


def _experts(shared: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        share, at = m.router(x).softmax(-1).topk(2, -1)
        share = share / share.sum(-1, keepdim=True) if shared else share
        every = torch.stack([one(x) for one in m.experts], -2)
        return m.o((every.gather(-2, at[..., None].expand(*at.shape, 16)) * share[..., None]).sum(-2))

    return Net(body, router=linear(32, 6, 2), experts=nn.ModuleList(linear(32, 16) for _ in range(6)), o=linear(16,
        4)), \
        tokens()  # fmt: skip


_SHARE = names("div", "topk", "topk.values", "sum", "mul", "softmax", "_softmax", "unsqueeze", "getitem")
two("shares_of_two_experts_that_do_not_add_up",
    "norm_topk_prob was lost: the two experts' shares are not divided by their sum.", _experts, True, False, _SHARE)


def _later(way: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = F.softplus(m.a(x))
        total = y.flip(1).cumsum(1).flip(1) if way else y.cumsum(1)
        return m.b(torch.log1p(total))

    return Net(body, a=linear(32, 12), b=linear(12, 4)), tokens()


_SUM = names("cumsum", "flip", "log1p")
two("survivors_counted_from_the_front", "A sum over all later places (at risk) became one over all earlier ones.",
    _later,
    True, False, _SUM)  # fmt: skip


def _steps(clipped: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(m.n(F.relu6(m.a(x)) if clipped else F.relu(m.a(x))))

    return Net(body, a=linear(32, 24, 8), n=nn.LayerNorm(24), b=linear(24, 4)), tokens()


_SIX = names("relu", "hardtanh", "relu6", "clamp") + " n n/layer_norm"
two("relu_that_lost_its_six", "relu in place of relu6, of numbers up to 12.", _steps, True, False, _SIX)


def _gains(both: bool) -> Any:
    net = Net(lambda m, x: m.c(torch.relu(m.b(torch.relu(m.a(x))))), a=linear(32, 24), b=linear(24, 24), c=linear(24,
        4))
    if both:
        with torch.no_grad():
            net.a.weight.mul_(8), net.a.bias.mul_(8), net.b.weight.mul_(1 / 8)
    return net, tokens()


two("layers_rescaled_by_eight", "A layer times 8 and its reader by an eighth, through a relu: exact.", _gains, False,
    True)


def _scores(way: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        q, key, v = (one(x).view(2, 8, 4, 8).transpose(1, 2) for one in (m.q, m.k, m.v))
        if way:
            y = F.scaled_dot_product_attention(q, key, v, is_causal=True)
        else:
            score = torch.einsum("bhqd,bhkd->bhqk", q, key) / 8**0.5
            score = score + torch.full((8, 8), float("-inf")).triu(1)
            y = torch.einsum("bhqk,bhkd->bhqd", score.softmax(-1), v)
        return m.o(y.transpose(1, 2).reshape(2, 8, 32))

    return Net(body, **{one: linear(32, 32) for one in "qkvo"}), tokens()


two("causal_heads_by_einsum", "Causal attention by einsum and a mask of -inf beside torch's own.", _scores, True, False)


def _seeded(way: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        noise = torch.randn(y.shape, generator=torch.Generator().manual_seed(5))
        return m.b((y + 0.1 * noise).relu() if way else torch.relu(torch.add(y, noise, alpha=0.1)))

    return Net(body, a=linear(32, 16), b=linear(16, 4)), tokens()


two("noise_of_one_seed", "Noise that each pass draws from a generator of its own seed.", _seeded, True, False)

# --- narrow types


@case("formula", "formula", "torch_fp16", names("softplus", "sub", "exp"), f"{LOST} stepped found_by_repair underflow",
      extra=names("softplus", "sub", "exp", "log1p", "add", "mul") + " " + layer("a"))  # fmt: skip
def softplus_less_what_it_is_of(mended: bool = False) -> Any:
    """softplus(x) - x of 7 to 9, which is 1e-4 to 9e-4: float16, whose step is 0.004 to 0.008 there, leaves 0."""
    torch.manual_seed(1902)

    def body(m: Any, x: Any) -> Any:
        y = 7 + torch.sigmoid(m.a(x)) * 2
        return (F.softplus(-y) if mended else F.softplus(y) - y) * 1000

    return Net(body, a=linear(32, 6)), tokens()


@case("overflow", "overflow", "torch_fp16", names("prod", "mul", "cumprod"), "overflow",
      extra=names("prod", "mul", "cumprod", "pow"))  # fmt: skip
def product_of_twelve_gains(mended: bool = False) -> Any:
    """Twelve gains of 2.5 to 3.5 multiplied one after the other: 3^12 is 531441, before a root of the twelfth."""
    torch.manual_seed(1903)

    def body(m: Any, x: Any) -> Any:
        y = 2.5 + torch.sigmoid(m.a(x))
        whole = y.float().prod(-1, keepdim=True) if mended else y.prod(-1, keepdim=True)
        return m.b(whole.pow(1 / 12).to(x.dtype))

    return Net(body, a=linear(32, 12), b=linear(1, 4)), tokens()


@case("formula", "formula", "torch_bf16", names("add", "sub", "mul"), f"{LOST} stepped found_by_repair",
      extra=names("add", "sub", "mul", "sin", "remainder") + " b b/linear b/addmm " + layer("a", "b"))  # fmt: skip
def angle_that_grows_by_the_turn(mended: bool = False) -> Any:
    """Angles of 0 to 1 plus 100 turns of 2 pi: bfloat16 knows every fourth radian at 628, and the sine is another."""
    torch.manual_seed(1904)

    def body(m: Any, x: Any) -> Any:
        y = torch.sigmoid(m.a(x))
        return m.b(torch.sin(y if mended else y + 628.3185307))

    return Net(body, a=linear(32, 8), b=linear(8, 4)), tokens()


@case("overflow", "overflow", "torch_autocast_fp16", layer("up") + " up/convolution up/conv2d up/_convolution",
    "overflow",
      extra=layer("up") + " up/convolution up/conv2d n n/batch_norm")  # fmt: skip
def filters_of_a_loud_layer_under_autocast(mended: bool = False) -> Any:
    """Filters that make 2e5 of pictures of 255, before a norm that brings it back: beyond float16 under autocast."""
    torch.manual_seed(1905)

    def body(m: Any, x: Any) -> Any:
        with torch.autocast("cpu", enabled=not mended and torch.is_autocast_enabled("cpu")):
            y = m.up(x * 255)
        return m.b(torch.relu(m.n(y.to(m.n.weight.dtype))))

    up = nn.Conv2d(3, 8, 3, bias=False)
    with torch.no_grad():
        up.weight.mul_(2500)
    return Net(body, up=up, n=nn.GroupNorm(2, 8), b=nn.Conv2d(8, 4, 1)), image()


@case("int8", "int8", "torch_int8", layer("up"), f"{COARSE} mask_range packed reads_rounded outlier_channel",
      extra=layer("up", "down") + " tanh relu gelu mul", offered=None)  # fmt: skip
def one_channel_of_five_hundred_in_int8(mended: bool = False) -> Any:
    """One of 64 channels is 500 times the others, and the layer's weights undo it: a row's step is 4 beside ones."""
    torch.manual_seed(1906)
    loud = torch.ones(64)
    loud[7] = 500

    def body(m: Any, x: Any) -> Any:
        return m.down(torch.tanh(m.up(x * m.loud)))

    up = linear(64, 64)
    with torch.no_grad():
        up.weight.div_(loud)
    return Net(body, up=up, down=linear(64, 16), loud=loud), torch.randn(2, 8, 64)


@case("healthy", "healthy", "torch_bf16")
def two_layers_with_a_gate_and_a_mean() -> Any:
    """Rounding as expected."""
    torch.manual_seed(1907)

    def body(m: Any, x: Any) -> Any:
        y = m.n(x + m.down(F.silu(m.gate(x)) * m.up(x)))
        return m.o(y.mean(1))

    parts = {"gate": linear(32, 64), "up": linear(32, 64), "down": linear(64, 32)}
    return Net(body, **parts, n=nn.LayerNorm(32), o=linear(32, 6)), tokens()


@case("healthy", "healthy", "torch_autocast_fp16")
def pictures_of_levels_under_autocast() -> Any:
    """Pictures of 0 to 255 by their mean and deviation, two convolutions, a pool."""
    torch.manual_seed(1908)

    def body(m: Any, x: Any) -> Any:
        y = torch.relu(m.a((x - 127.5) / 64))
        return m.c(F.adaptive_avg_pool2d(torch.relu(m.b(y)), 2).flatten(1))

    return Net(body, a=nn.Conv2d(3, 8, 3), b=nn.Conv2d(8, 8, 3), c=linear(32, 5)), torch.randint(0, 256, (2, 3, 16,
        16)).float()


@case("healthy", "healthy", "torch_compile")
def running_sums_and_a_softmax_compiled() -> Any:
    """Sums along a text, a softmax over it, and what the compiler makes of both."""
    torch.manual_seed(1909)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x).cumsum(1) / torch.arange(1, 9)[:, None]
        return m.b((y.softmax(-1) * F.gelu(y)).amax(1))

    return Net(body, a=linear(32, 16), b=linear(16, 4)), tokens()


@case("formula", "formula", "torch_fp16", names("sub"), LOST, extra=names("sub"), fix=False)
def scores_masked_by_the_lowest_half() -> Any:
    """A mask of float16's lowest number, -65504, is added to scores: -Inf where both are, and the softmax takes it; 20
    is taken off first."""
    torch.manual_seed(1910)
    seen = torch.zeros(8, 8).masked_fill(~torch.ones(8, 8).tril().bool(), -65504.0)

    def body(m: Any, x: Any) -> Any:
        score = m.q(x) @ m.k(x).transpose(-1, -2) / 32**0.5 - 20
        return m.o((score + m.seen).softmax(-1) @ m.v(x))

    return Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), o=linear(32, 8), seen=seen), tokens()


# --- files in ONNX


@converted("convert", names("elu", "mul", "where", "expm1"), OTHER, extra=names("elu", "mul", "where", "expm1"),
           facts=[r"alpha|1\.67|Elu|[Ss]elu"])  # fmt: skip
def selu_written_as_an_elu() -> Any:
    """A SELU (1.0507 and 1.6733) was written as an Elu of the standard's own 1.0."""
    torch.manual_seed(1911)
    net = Net(lambda m, x: m.b(F.selu(m.a(x))), a=linear(8, 16, 2.0), b=linear(16, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        return _dense(g, g.op("Elu", [_dense(g, x, w, "a", "a")], "act"), w, "b", "y")

    return (net.eval(), torch.randn(12, 8)), write


@converted("healthy")
def logsigmoid_as_exported() -> Any:
    """log sigmoid(x) as -softplus(-x), and a linear layer as a Gemm."""
    torch.manual_seed(1912)
    net = Net(lambda m, x: m.b(F.logsigmoid(m.a(x))), a=linear(8, 16), b=linear(16, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("Gemm", [x, g.weight("aw", w["a.weight"]), g.weight("ab", w["a.bias"])], "a", transB=1)
        y = g.op("Neg", [g.op("Softplus", [g.op("Neg", [y], "less")], "soft")], "log")
        return g.op("Gemm", [y, g.weight("bw", w["b.weight"]), g.weight("bb", w["b.bias"])], "y", transB=1)

    return (net.eval(), torch.randn(12, 8)), write


# --- training steps


def _stepped(loss: Any, optimiser: Any = None) -> Any:
    return step(lambda m, x: m.b(torch.tanh(m.a(x))), loss, optimiser, a=lambda: linear(16, 32), b=lambda: linear(32,
        6))


_LOSS = names("loss", "mean", "div", "sum", "mul", "sub", "loss/mean", "loss/sum", "loss/mul", "loss/div",
    "nll_loss_forward",
              "loss/nll_loss_forward", "loss/nll_loss", "cross_entropy_loss", "binary_cross_entropy_with_logits",
              "loss/binary_cross_entropy_with_logits", "loss/cross_entropy_loss", "log_sigmoid_forward", "loss/sub",
              "loss/log_sigmoid_forward", "loss/add", "add") + (
    " backward/binary_cross_entropy_with_logits/div backward/nll_loss_forward/nll_loss_backward")  # fmt: skip


def _rare(weight: Any) -> Any:
    return _stepped(lambda out: F.binary_cross_entropy_with_logits(
        out, (torch.arange(out.numel()).view_as(out) % 5 == 0).float(),
        pos_weight=torch.tensor(weight) if weight else None))  # fmt: skip


two("rare_classes_without_their_weight", "pos_weight of 4 was lost: the loss of rare classes counts once.", _rare, 4.0,
    None,
    _LOSS, kind="training", options=BACK)  # fmt: skip


def _weighed(classes: bool) -> Any:
    by = torch.linspace(0.2, 3, 6)
    return _stepped(lambda out: F.cross_entropy(out, torch.arange(12) % 6,
        weight=by.to(out.dtype) if classes else None))


two("classes_of_one_weight", "The classes' weights of 0.2 to 3 were lost.", _weighed, True, False, _LOSS,
    kind="training",
    options=BACK)  # fmt: skip


def _decayed(decay: float) -> Any:
    return _stepped(of_classes, lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=decay))


two("step_without_its_decay", "SGD's weight_decay of 0.5 was lost in the step.", _decayed, 0.5, 0.0, _UPDATE,
    kind="training",
    options=MOVE)  # fmt: skip


def measure(one: Thread) -> tuple[float, float]:
    return fifteenth_torch.measure(one, globals())


if __name__ == "__main__":
    print_measured(CASES, measure)
