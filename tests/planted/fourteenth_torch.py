"""A fourteenth batch: PyTorch in narrow types and ported from one module to another, its files for ONNX, and training
steps; written and labelled before any of it was compared.

    python tests/planted/fourteenth_torch.py [WORD …]

measures each label without the tool: the output's error (Rel L2) beside float64, and what is left of it where the
operator that is to be named is computed as it should be.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from planted.eleventh_torch import layer, names
from planted.onnx_faults import Array, Graph
from planted.shared import run_saved
from planted.tenth_torch import of_classes, step
from planted.torch_faults import Net, image, linear, tokens
from planted.twelfth.case import COARSE, DIFFER, Thread, labelled

CASES: list[Thread] = []
BASES: dict[str, str] = {}
LOST = "coarse cancellation cancels amplified drift long_reduction flips rounded_constant"
PORT, BACK = "torch_fp32", ["--step", "backward"]


def case(kind: str, mode: str, who: str = "", why: str = "", base: str = "", **more: Any) -> Callable[..., Any]:
    """A factory in a mode; base: the factory of the baseline, where there are two. Of a narrow type a paste is due."""

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        def make(folder: Path) -> tuple[str, str | None, None]:
            file = folder / f"{build.__name__}_model.py"
            path = f"import sys\n\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
            file.write_text(f"{path}from planted.fourteenth_torch import *  # noqa\n")
            return f"{file}:{build.__name__}", f"{file}:{base}" if base else None, None

        BASES[build.__name__] = base
        narrow = bool(who) and not base and kind != "training"
        more.setdefault("fix", narrow)
        CASES.append(
            labelled(build, "", kind, mode, who, why, make=make, baseline="torch_fp32" if base else "", **more)
        )
        return build

    return register


# --- one module ported to another: the second is wrong


def _attended(m: Any, x: Any, swapped: bool) -> Any:
    b, t, _ = x.shape

    def split(y: Any) -> Any:
        return y.view(b, t, 8, 4).permute(0, 3, 1, 2) if swapped else y.view(b, t, 4, 8).transpose(1, 2)

    q, k, v = split(m.q(x)), split(m.k(x)), split(m.v(x))
    y = ((q @ k.transpose(2, 3)) / 8**0.5).softmax(-1) @ v
    return m.o(y.transpose(1, 2).reshape(b, t, 32))


def _attending(swapped: bool) -> Any:
    torch.manual_seed(1401)
    return Net(lambda m, x: _attended(m, x, swapped), q=linear(32, 32, 2.0), k=linear(32, 32, 2.0), v=linear(32, 32),
               o=linear(32, 8)), tokens()  # fmt: skip


def heads_before_their_width() -> Any:
    return _attending(False)


_SPLIT = names("view", "permute", "transpose", "expand", "clone", "_unsafe_view", "bmm", "matmul", "div", "softmax",
               most=8)  # fmt: skip


@case("port", PORT, _SPLIT, f"{DIFFER} unfound", "heads_before_their_width", extra=_SPLIT)
def heads_behind_their_width() -> Any:
    """Queries, keys and values are cut into width by heads in place of heads by width."""
    return _attending(True)


def _embedded(scaled: bool) -> Any:
    torch.manual_seed(1402)

    def body(m: Any, ids: Any) -> Any:
        x = m.table(ids)
        x = (x * 32**0.5 if scaled else x) + m.places
        return m.head(m.norm(torch.tanh(m.a(x))))

    return Net(body, table=nn.Embedding(50, 32), places=torch.randn(8, 32), a=linear(32, 32), norm=nn.LayerNorm(32),
               head=linear(32, 4)), torch.randint(0, 50, (2, 8))  # fmt: skip


def words_times_the_root_of_their_width() -> Any:
    return _embedded(True)


@case("port", PORT, names("mul", "add"), f"{DIFFER} unfound", "words_times_the_root_of_their_width",
      extra=names("mul", "add"))  # fmt: skip
def words_without_their_scale() -> Any:
    """The embedding is not multiplied by the root of its width before positions are added."""
    return _embedded(False)


def _lstm(twice: bool) -> Any:
    torch.manual_seed(1403)
    rnn = nn.LSTM(8, 16, batch_first=True)
    with torch.no_grad():
        rnn.bias_ih_l0.mul_(4)
        if twice:
            rnn.bias_hh_l0.add_(rnn.bias_ih_l0)
    return Net(lambda m, x: m.head(m.rnn(x)[0]), rnn=rnn, head=linear(16, 4)), torch.randn(2, 12, 8)


def biases_of_both_kinds() -> Any:
    return _lstm(False)


_RNN = names(*(f"rnn{part}" for part in ("", "/lstm", "/lstm/mkldnn_rnn_layer", "/rnn", "/transpose", "/gru",
                                        "/linear", "/addmm", "/add")))  # fmt: skip


@case("port", PORT, _RNN, "files_differ", "biases_of_both_kinds", extra=_RNN)
def input_bias_that_is_in_the_other_too() -> Any:
    """A converter put the sum of both biases of an LSTM into one of them, and left the other as it was."""
    return _lstm(True)


def _normed(training: bool) -> Any:
    torch.manual_seed(1404)

    def body(m: Any, x: Any) -> Any:
        y = F.batch_norm(m.a(x), m.mean.clone(), m.variance.clone(), m.gain, m.shift, training, 0.1, 1e-5)
        return m.b(torch.relu(y))

    return Net(body, a=nn.Conv2d(3, 8, 3), b=nn.Conv2d(8, 4, 1), mean=torch.randn(8) * 0.3, gain=torch.rand(8) + 0.5,
               variance=torch.rand(8) + 0.3, shift=torch.randn(8) * 0.2), image()  # fmt: skip


def norm_by_its_running_statistics() -> Any:
    return _normed(False)


_BATCH = names("batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
               "cudnn_batch_norm", "native_batch_norm[0]")  # fmt: skip


@case("port", PORT, _BATCH, DIFFER, "norm_by_its_running_statistics", extra=_BATCH)
def norm_by_the_batch_s_own_statistics() -> Any:
    """A batch norm that was left in training: it uses the batch's mean and variance."""
    return _normed(True)


def _pooled(last: bool) -> Any:
    torch.manual_seed(1405)

    def body(m: Any, x: Any, lengths: Any) -> Any:
        y = torch.tanh(m.a(x))
        y = y[:, -1] if last else y[torch.arange(4), lengths - 1]
        return m.head(y)

    return Net(body, a=linear(16, 32), head=linear(32, 4)), (torch.randn(4, 10, 16), torch.tensor([10, 4, 7, 2]))


def last_word_that_is_one() -> Any:
    return _pooled(False)


@case("port", PORT, names("index", "select", "slice", "gather") + " " + layer("head"), f"{DIFFER} unfound",
      "last_word_that_is_one", extra=names("index", "select", "slice"))  # fmt: skip
def last_place_that_is_padding() -> Any:
    """Padded behind, of each sequence the last place is read and not its last word: three of four are padding."""
    return _pooled(True)


def _routed(axis: int) -> Any:
    torch.manual_seed(1406)

    def body(m: Any, x: Any) -> Any:
        share = m.router(x).softmax(axis)
        return (torch.stack([one(x) for one in m.experts], -1) * share[..., None, :]).sum(-1)

    return Net(body, router=linear(16, 6), experts=nn.ModuleList(linear(16, 8) for _ in range(6))), tokens(16)


def shares_over_the_experts() -> Any:
    return _routed(-1)


@case("port", PORT, names("softmax", "_softmax"), f"{DIFFER}", "shares_over_the_experts", extra=names("softmax"))
def shares_over_the_tokens() -> Any:
    """The router's softmax is over the tokens and not over the experts."""
    return _routed(1)


def _layers(scaled: bool) -> Any:
    torch.manual_seed(1407)

    def body(m: Any, x: Any) -> Any:
        for n, one in enumerate(m.blocks):
            y = torch.tanh(one(x))
            x = x + (y * m.gamma[n] if scaled or n != 1 else y)
        return m.head(x)

    return Net(body, blocks=nn.ModuleList(linear(16, 16, 2.0) for _ in range(3)), gamma=torch.full((3, 16), 0.1),
               head=linear(16, 4)), tokens(16)  # fmt: skip


def each_layer_scaled() -> Any:
    return _layers(True)


@case("port", PORT, "mul#1 add#1 blocks.2/view", f"{DIFFER} unfound", "each_layer_scaled",
      extra="mul#1 add#1")  # fmt: skip
def second_layer_without_its_scale() -> Any:
    """Of three layers whose outputs are scaled by a tenth the second is not."""
    return _layers(False)


def _windowed(most: int) -> Any:
    torch.manual_seed(1408)

    def body(m: Any, x: Any) -> Any:
        at = torch.arange(x.shape[1])
        far = at[:, None] - at[None]
        hidden = (far < 0) | (far > most)
        score = (m.q(x) @ m.k(x).transpose(1, 2) / 32**0.5).masked_fill(hidden, -1e9)
        return m.o(score.softmax(-1) @ m.v(x))

    return Net(body, q=linear(32, 32, 2.0), k=linear(32, 32, 2.0), v=linear(32, 32), o=linear(32, 8)), tokens(length=12)


def window_of_four() -> Any:
    return _windowed(3)


_WINDOW = names("gt", "bitwise_or", "__or__", "masked_fill", "where", "or", "logical_or")


@case("port", PORT, _WINDOW, f"{DIFFER} unfound", "window_of_four", extra=_WINDOW)
def window_of_five() -> Any:
    """A sliding window that holds one place more: who counts itself, and who does not."""
    return _windowed(4)


def _timed(sine_first: bool) -> Any:
    torch.manual_seed(1409)

    def body(m: Any, t: Any) -> Any:
        angle = t[:, None] * m.rates
        parts = [angle.sin(), angle.cos()]
        return m.b(F.silu(m.a(torch.cat(parts if sine_first else parts[::-1], -1))))

    return Net(body, rates=torch.logspace(0, -3, 16), a=linear(32, 64), b=linear(64, 8)), torch.rand(6) * 900


def sine_before_cosine() -> Any:
    return _timed(True)


@case("port", PORT, names("cat"), f"{DIFFER}", "sine_before_cosine", extra=names("cat", "sin", "cos"))
def cosine_before_sine() -> Any:
    """The time's embedding has its cosines in front: flip_sin_to_cos of another library."""
    return _timed(False)


def _contrast(exponential: bool) -> Any:
    torch.manual_seed(1410)

    def body(m: Any, a: Any, b: Any) -> Any:
        logits = F.normalize(m.a(a), dim=-1) @ F.normalize(m.b(b), dim=-1).t()
        return logits * (m.scale.exp() if exponential else m.scale)

    return Net(body, a=linear(16, 32), b=linear(24, 32), scale=torch.tensor(2.66)), (torch.randn(5, 16),
                                                                                     torch.randn(5, 24))  # fmt: skip


def scale_whose_logarithm_is_stored() -> Any:
    return _contrast(True)


@case("port", PORT, names("mul", "exp"), f"{DIFFER} unfound", "scale_whose_logarithm_is_stored",
      extra=names("mul", "exp"))  # fmt: skip
def logarithm_taken_for_the_scale() -> Any:
    """A contrast's stored logarithm multiplies the likenesses as it is: 2.66 in place of 14.3."""
    return _contrast(False)


def _reversed(back: bool) -> Any:
    torch.manual_seed(1411)

    def body(m: Any, x: Any) -> Any:
        y = m.behind(x.flip(1))[0]
        return m.head(torch.cat([m.ahead(x)[0], y.flip(1) if back else y], -1))

    return Net(body, ahead=nn.GRU(8, 8, batch_first=True), behind=nn.GRU(8, 8, batch_first=True), head=linear(16, 4)), (
        torch.randn(2, 10, 8))  # fmt: skip


def other_direction_turned_back() -> Any:
    return _reversed(True)


@case("port", PORT, names("flip", "cat"), f"{DIFFER} unfound", "other_direction_turned_back",
      extra=names("flip", "cat"))  # fmt: skip
def other_direction_as_it_was_read() -> Any:
    """The second direction's states are joined in the order in which they were read: last word first."""
    return _reversed(False)


# --- ported rightly, in another form


def _folded(fold: bool) -> Any:
    torch.manual_seed(1420)
    conv, norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
    norm.running_mean.normal_().mul_(0.4)
    norm.running_var.uniform_(0.2, 2.0)
    head = nn.Conv2d(8, 4, 1)
    if not fold:
        return Net(lambda m, x: m.head(torch.relu(m.norm(m.conv(x)))), conv=conv, norm=norm, head=head).eval(), image()
    whole = nn.utils.fusion.fuse_conv_bn_eval(conv.eval(), norm.eval())
    return Net(lambda m, x: m.head(torch.relu(m.conv(x))), conv=whole, head=head).eval(), image()


def norm_beside_its_convolution() -> Any:
    return _folded(False)


@case("healthy", PORT, base="norm_beside_its_convolution")
def norm_folded_into_its_convolution() -> Any:
    """The deployed module has a batch norm folded into the convolution: all weights differ, and nothing is wrong."""
    return _folded(True)


def _adapted(merged: bool) -> Any:
    torch.manual_seed(1421)
    a, down, up = linear(32, 32), linear(32, 4), linear(4, 32)
    head = linear(32, 8)
    if merged:
        with torch.no_grad():
            a.weight.add_(2.0 * up.weight @ down.weight)
        return Net(lambda m, x: m.head(torch.tanh(m.a(x))), a=a, head=head), tokens()
    return Net(lambda m, x: m.head(torch.tanh(m.a(x) + 2.0 * F.linear(F.linear(x, m.down), m.up))), a=a,
               down=down.weight, up=up.weight, head=head), tokens()  # fmt: skip


def adapter_beside_its_weight() -> Any:
    return _adapted(False)


@case("healthy", PORT, base="adapter_beside_its_weight")
def adapter_merged_into_its_weight() -> Any:
    """A low-rank adapter is added to the weight that it adapts: another weight and fewer operators, one function."""
    return _adapted(True)


def _grouped(repeat: bool) -> Any:
    torch.manual_seed(1422)

    def body(m: Any, x: Any) -> Any:
        q, k, v = (one(x).view(2, 8, -1, 8).transpose(1, 2) for one in (m.q, m.k, m.v))
        if repeat:
            k, v = (one.repeat_interleave(2, 1) for one in (k, v))
            y = ((q @ k.transpose(2, 3)) / 8**0.5).softmax(-1) @ v
        else:
            q = q.reshape(2, 2, 2, 8, 8)
            y = ((q @ k[:, :, None].transpose(3, 4)) / 8**0.5).softmax(-1) @ v[:, :, None]
            y = y.reshape(2, 4, 8, 8)
        return m.o(y.transpose(1, 2).reshape(2, 8, 32))

    return Net(body, q=linear(32, 32, 2.0), k=linear(32, 16, 2.0), v=linear(32, 16), o=linear(32, 8)), tokens()


def keys_repeated_for_their_group() -> Any:
    return _grouped(True)


@case("healthy", PORT, base="keys_repeated_for_their_group")
def keys_broadcast_over_their_group() -> Any:
    """Keys of grouped queries are broadcast and not repeated: other shapes within, the same result."""
    return _grouped(False)


# --- narrow types


@case("cancellation", "torch_bf16", names("rsub", "sub", "cumprod"), LOST, offered=True,
      extra=names("rsub", "sub", "cumprod", "index", "sqrt"))  # fmt: skip
def share_of_signal_in_a_schedule(mended: bool = False) -> Any:
    """Of noise 1e-4 to 0.02 a step bfloat16 leaves 1 - noise as 1, 0.996 or 0.992 …: the product of 1000 is another
    schedule."""

    def body(m: Any, x: Any, at: Any) -> Any:
        kept = (1 - (m.noise.float() if mended else m.noise)).cumprod(0)[at][:, None]
        return m.head(torch.tanh(m.a(x)) / kept.sqrt().to(x.dtype))

    torch.manual_seed(1430)
    return Net(body, noise=torch.linspace(1e-4, 0.02, 1000), a=linear(32, 32), head=linear(32, 8)), (
        torch.randn(8, 32) * 2, torch.arange(1, 9) * 110)  # fmt: skip


@case("overflow", "torch_fp16", names("mul", "cat", "sub"), "weight_overflow overflow born infinite_constant",
      extra=names("mul", "cat", "sub", "exp", "neg", "cumprod", "rsub")  )  # fmt: skip
def ray_whose_last_step_is_endless(mended: bool = False) -> Any:
    """The last step of a ray is 1e10 long: infinite in float16, and times a density of 0 not a number."""

    def body(m: Any, x: Any) -> Any:
        density = torch.relu(m.a(x)).squeeze(-1)
        far = m.far.clamp(max=6e4) if mended else m.far
        long = torch.cat([torch.full_like(density[:, 1:], 0.1), far.expand(len(x), 1)], 1)
        seen = 1 - torch.exp(-(density * long))
        through = torch.cumprod(1 - seen + 1e-3, 1)
        return ((seen * through)[..., None] * torch.sigmoid(m.colour(x))).sum(1)

    torch.manual_seed(1431)
    return Net(body, a=linear(16, 1, 3.0), colour=linear(16, 3), far=torch.tensor([1e10])), torch.randn(16, 8, 16)


@case("underflow", "torch_fp16", names("var", "add", "sqrt", "rsqrt", "div", "pow", "mul", "mean"),
      "underflow weight_underflow born epsilon_lost coarse", offered=None,
      extra=names("var", "sub", "add", "sqrt", "div", "mul"))  # fmt: skip
def weights_standardised_in_the_model_s_type(mended: bool = False) -> Any:
    """Weight standardisation of weights of 1e-4: their variance of 1e-8 and the epsilon of 1e-10 are 0 in float16."""

    def body(m: Any, x: Any) -> Any:
        w = m.w.float() if mended else m.w
        w = (w - w.mean(1, keepdim=True)) / (w.var(1, keepdim=True) + 1e-10).sqrt()
        return m.head(torch.tanh(F.linear(x, w.to(x.dtype)) * 0.2))

    torch.manual_seed(1433)
    return Net(body, w=nn.Parameter(torch.randn(32, 32) * 1e-4), head=linear(32, 8)), tokens()


_PLACES = names("arange", "div", "floor", "floor_divide", "index", "_to_copy", "mul")


@case("integers", "torch_bf16", _PLACES, LOST, extra=_PLACES)
def patch_of_a_pixel_that_bfloat16_counts(mended: bool = False) -> Any:
    """Pixels are counted in the model's type up to 1000 and divided by 7: bfloat16 knows every second or fourth."""

    def body(m: Any, x: Any) -> Any:
        at = torch.arange(1000, dtype=torch.float32 if mended else x.dtype)
        return m.head(x * m.table[(at / 7).floor().long()].to(x.dtype))

    torch.manual_seed(1434)
    return Net(body, table=torch.randn(160, 16), head=linear(16, 4)), torch.randn(1000, 16)


@case("overflow", "torch_autocast_fp16", layer("a") + " a/_to_copy a/to " + names("_to_copy") + " args_0",
      "overflow range_inside", extra=layer("a") + " a/_to_copy")  # fmt: skip
def price_of_a_hundred_thousand(mended: bool = False) -> Any:
    """A column of prices of 1e5 goes into the first layer, whose weights of it are small: autocast makes it
    infinite."""

    def body(m: Any, x: Any) -> Any:
        if mended:
            with torch.autocast("cpu", enabled=False):
                return m.b(torch.tanh(F.linear(x, m.a.weight, m.a.bias)))
        return m.b(torch.tanh(m.a(x)))

    torch.manual_seed(1435)
    a = linear(8, 32)
    with torch.no_grad():
        a.weight[:, 3] *= 1e-5
    x = torch.randn(16, 8)
    x[:, 3] = torch.rand(16) * 2e5 + 7e4
    return Net(body, a=a, b=linear(32, 4)), x


@case("cancellation", "torch_autocast_bf16", layer("a") + " " + names("sub"), LOST,
      extra=layer("a") + " " + names("sub"), offered=True)  # fmt: skip
def steps_between_places_that_a_layer_moved(mended: bool = False) -> Any:
    """Places of 1000 to 2000 go through a linear layer, and of what it gives neighbours are taken from one another."""

    def body(m: Any, x: Any) -> Any:
        y = F.linear(x.double(), m.a.weight.double(), m.a.bias.double()).to(x.dtype) if mended else m.a(x)
        return m.b(torch.tanh(y[1:] - y[:-1]))

    torch.manual_seed(1436)
    return Net(body, a=linear(2, 32), b=linear(32, 4)), torch.rand(24, 2).cumsum(0) * 2 + 1500


@case("int8", "torch_int8", layer("b") + " b/view#2", f"{COARSE} packed", extra=layer("b"),
      offered=True)  # fmt: skip
def feature_of_a_thousand_among_small_ones(mended: bool = False) -> Any:
    """Each token's range is made by one feature of 1000, whose weight is small: all others become 0."""

    def body(m: Any, x: Any) -> Any:
        y = torch.tanh(m.a(x)) * m.size
        return m.c(torch.tanh(m.b(y)))

    torch.manual_seed(1437)
    size = torch.ones(64)
    size[9] = 1000.0
    b = linear(64, 64)
    with torch.no_grad():
        b.weight[:, 9] *= 1e-4
    return Net(body, a=linear(32, 64), b=b, c=linear(64, 8), size=size), tokens(length=16)


@case("healthy", "torch_int8")
def three_layers_in_eight_bits() -> Any:
    """Three layers with a norm in between: as far off as eight bits are."""
    torch.manual_seed(1438)
    return Net(lambda m, x: m.c(m.norm(F.gelu(m.b(F.gelu(m.a(x)))))), a=linear(32, 64), b=linear(64, 64),
               norm=nn.LayerNorm(64), c=linear(64, 8)), tokens(length=16)  # fmt: skip


@case("overflow", "torch_fp16", names("pow"), "overflow weight_overflow", offered=True,
      extra=names("pow", "mul", "reciprocal", "div"))  # fmt: skip
def base_of_a_rotation_beyond_the_type(mended: bool = False) -> Any:
    """500000 to the power of a share is computed in float16, whose scalar is infinite: all rates but one are 0."""

    def body(m: Any, x: Any) -> Any:
        rate = (1.0 / torch.pow(5e5, m.exponent.float() if mended else m.exponent)).to(x.dtype)
        angle = torch.arange(16, dtype=x.dtype)[:, None] * rate
        return m.head(torch.cat([x[..., :16] * angle.cos() - x[..., 16:] * angle.sin(),
                                 x[..., 16:] * angle.cos() + x[..., :16] * angle.sin()], -1))  # fmt: skip

    torch.manual_seed(1439)
    return Net(body, exponent=torch.arange(16) / 16, head=linear(32, 8)), tokens(length=16)


@case("healthy", "torch_fp16")
def shares_gathered_in_blocks() -> Any:
    """A softmax in three blocks whose first largest is minus infinity, as attention kernels have it."""

    def body(m: Any, x: Any) -> Any:
        score, value = m.q(x) @ m.keys.t(), m.values
        top = torch.full_like(score[..., :1], float("-inf"))
        total, held = torch.zeros_like(top), torch.zeros(*score.shape[:-1], 8, dtype=score.dtype)
        for part, of in zip(score.chunk(3, -1), value.chunk(3, 0), strict=True):
            new = torch.maximum(top, part.amax(-1, keepdim=True))
            weight, less = (part - new).exp(), (top - new).exp()
            total, held, top = total * less + weight.sum(-1, keepdim=True), held * less + weight @ of, new
        return m.o(held / total)

    torch.manual_seed(1440)
    return Net(body, q=linear(32, 16), keys=torch.randn(24, 16), values=torch.randn(24, 8), o=linear(8, 8)), tokens()


@case("healthy", "torch_bf16")
def turn_made_of_two_vectors() -> Any:
    """A rotation's first two columns are predicted, made orthogonal, and the third is their cross product."""

    def body(m: Any, x: Any) -> Any:
        a, b = m.a(x).chunk(2, -1)
        a = F.normalize(a, dim=-1)
        b = F.normalize(b - (a * b).sum(-1, keepdim=True) * a, dim=-1)
        return torch.stack([a, b, torch.linalg.cross(a, b)], -1) @ m.points

    torch.manual_seed(1441)
    return Net(body, a=linear(16, 6), points=torch.randn(3, 5)), torch.randn(24, 16)


@case("healthy", "torch_compile")
def whole_numbers_divided_below_nought() -> Any:
    """Floors and remainders of negative whole numbers, and a table that they index: compiled they are the same."""

    def body(m: Any, x: Any, at: Any) -> Any:
        return m.head(torch.tanh(m.a(x)) + m.table[at // 3 + 8] * m.table[at % 7])

    torch.manual_seed(1442)
    return Net(body, a=linear(16, 16), table=torch.randn(16, 16), head=linear(16, 4)), (
        torch.randn(20, 16), torch.arange(-20, 0))  # fmt: skip


@case("healthy", "torch_autocast_bf16")
def reader_of_two_layers_with_a_mask() -> Any:
    """An encoder of torch with a padding mask, under autocast."""
    torch.manual_seed(1443)
    one = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(one, 2, enable_nested_tensor=False)
    hidden = torch.zeros(2, 8, dtype=torch.bool)
    hidden[1, 5:] = True
    return Net(lambda m, x: m.head(m.body_(x, src_key_padding_mask=m.hidden)), body_=body, hidden=hidden,
               head=linear(32, 8)).eval(), tokens()  # fmt: skip


# --- converted to ONNX: the baseline is the module

Into = Callable[[Graph, Any, Mapping[str, Array]], str]


def converted(
    kind: str, who: str = "", why: str = "", cases: list[Thread] = CASES, module_of: str = "fourteenth_torch",
    **more: Any,
) -> Callable[[Callable[[], tuple[Any, Into]]], Any]:  # fmt: skip
    """A function that gives the factory's parts and writes the file; the module as its second name is the baseline."""

    def register(build: Callable[[], tuple[Any, Into]]) -> Any:
        def make(folder: Path) -> tuple[Path, str, dict[str, Array]]:
            file = folder / f"{build.__name__}_model.py"
            path = f"import sys\n\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
            file.write_text(f"{path}from planted import {module_of}\n\n\ndef base():\n"
                            f"    return {module_of}.{build.__name__}()[0]\n")  # fmt: skip
            (module, x), write = build()
            g = Graph(seed=14, opset=18)
            weights = {name: one.detach().numpy() for name, one in module.state_dict().items()}
            y = write(g, g.input("args_0", x.numpy()), weights)
            return g.save(folder / f"{build.__name__}.onnx", [y]), f"{file}:base", g.feeds

        cases.append(labelled(build, "", kind, "ort_fp32", who, why, make=make, baseline="torch_fp32", **more))
        return build

    return register


def _dense(g: Graph, x: str, w: Mapping[str, Array], name: str, out: str) -> str:
    product = g.op("MatMul", [x, g.weight(f"{name}.w", w[f"{name}.weight"].T)], f"{out}_mm")
    return g.op("Add", [product, g.weight(f"{name}.b", w[f"{name}.bias"])], out)


# After the first run: what torch takes apart has no partners, so that the stretch of the GRU ends at the output.
@converted("convert", _RNN + " output", f"{DIFFER} unfound", extra=_RNN + " head/addmm")
def gate_before_the_product() -> Any:
    """A GRU of the file multiplies the state by its gate before the matrix (linear_before_reset 0), torch's after."""
    torch.manual_seed(1450)
    net = Net(lambda m, x: m.head(m.rnn(x)[0]), rnn=nn.GRU(8, 16, batch_first=True), head=linear(16, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        def gates(one: Array) -> Array:
            r, z, n = np.split(one, 3)
            return np.concatenate([z, r, n])[None]

        bias = np.concatenate([gates(w["rnn.bias_ih_l0"])[0], gates(w["rnn.bias_hh_l0"])[0]])[None]
        parts = [g.weight("W", gates(w["rnn.weight_ih_l0"])), g.weight("R", gates(w["rnn.weight_hh_l0"])),
                 g.weight("B", bias)]  # fmt: skip
        y = g.op("GRU", [g.op("Transpose", [x], "t", perm=[1, 0, 2]), *parts], "rnn", hidden_size=16)
        y = g.op("Transpose", [g.op("Squeeze", [y, g.weight("ax", np.array([1]))], "s")], "back", perm=[1, 0, 2])
        return _dense(g, y, w, "head", "y")

    return (net.eval(), torch.randn(2, 10, 8)), write


@converted("convert", names("scatter_add", "index_add", "scatter"), f"{DIFFER} unfound",
           extra=names("scatter_add"))  # fmt: skip
def messages_of_which_the_last_one_counts() -> Any:
    """Messages of edges are added at their nodes; the file's ScatterElements has no reduction and keeps the last."""
    torch.manual_seed(1451)
    at = torch.randint(0, 6, (20,))
    where = at[:, None].expand(20, 16)
    net = Net(lambda m, x: m.head(torch.zeros(6, 16).to(x).scatter_add(0, where, torch.tanh(m.a(x)))),
              a=linear(8, 16), head=linear(16, 4))  # fmt: skip

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("Tanh", [_dense(g, x, w, "a", "a")], "t")
        where = g.weight("where", np.repeat(at.numpy()[:, None], 16, 1))
        y = g.op("ScatterElements", [g.weight("zero", np.zeros((6, 16), np.float32)), where, y], "sum", axis=0)
        return _dense(g, y, w, "head", "y")

    return (net.eval(), torch.randn(20, 8)), write


@converted("convert", names("remainder", "fmod"), DIFFER, extra=names("remainder"))
def remainder_with_the_sign_of_the_other() -> Any:
    """Angles are taken modulo 2 pi; the file's Mod has C's sign (fmod 1), so that those below nought differ."""
    torch.manual_seed(1452)
    net = Net(lambda m, x: m.head(torch.remainder(m.a(x) * 6, 6.2832) - 3.1416), a=linear(8, 16), head=linear(16, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("Mul", [_dense(g, x, w, "a", "a"), g.weight("six", np.float32(6))], "m")
        y = g.op("Mod", [y, g.weight("turn", np.float32(6.2832))], "r", fmod=1)
        return _dense(g, g.op("Sub", [y, g.weight("pi", np.float32(3.1416))], "c"), w, "head", "y")

    return (net.eval(), torch.randn(12, 8)), write


@converted("convert", names("upsample_bilinear2d", "interpolate", "_upsample_bilinear2d_aa"), f"{DIFFER} unfound",
           extra=names("upsample_bilinear2d"))  # fmt: skip
def picture_enlarged_from_its_corner() -> Any:
    """torch enlarges by half pixels, the file's Resize is asymmetric."""
    torch.manual_seed(1453)
    net = Net(lambda m, x: m.b(F.interpolate(torch.relu(m.a(x)), scale_factor=2.0, mode="bilinear")),
              a=nn.Conv2d(3, 8, 3, padding=1), b=nn.Conv2d(8, 4, 1))  # fmt: skip

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("Conv", [x, g.weight("aw", w["a.weight"]), g.weight("ab", w["a.bias"])], "a", pads=[1, 1, 1, 1])
        y = g.op("Resize", [g.op("Relu", [y], "r"), "", g.weight("sc", np.array([1, 1, 2, 2], np.float32))], "up",
                 mode="linear", coordinate_transformation_mode="asymmetric")  # fmt: skip
        return g.op("Conv", [y, g.weight("bw", w["b.weight"]), g.weight("bb", w["b.bias"])], "y")

    return (net.eval(), torch.randn(2, 3, 8, 8)), write


@converted("healthy")
def gelu_and_norm_taken_apart() -> Any:
    """A layer norm and an erf GELU as a converter of an old op set writes them: thirteen operators for two."""
    torch.manual_seed(1454)
    net = Net(lambda m, x: m.head(F.gelu(m.norm(m.a(x)))), a=linear(16, 32), norm=nn.LayerNorm(32), head=linear(32, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        def k(name: str, value: float) -> str:
            return g.weight(name, np.float32(value))

        x, axes = _dense(g, x, w, "a", "a"), g.weight("axes", np.array([-1]))
        x = g.op("Sub", [x, g.op("ReduceMean", [x, axes], "m")], "d")
        var = g.op("ReduceMean", [g.op("Pow", [x, k("two", 2)], "p"), axes], "v")
        x = g.op("Div", [x, g.op("Sqrt", [g.op("Add", [var, k("eps", 1e-5)], "e")], "s")], "n")
        x = g.op("Mul", [x, g.weight("gain", w["norm.weight"])], "g")
        x = g.op("Add", [x, g.weight("shift", w["norm.bias"])], "b")
        erf = g.op("Erf", [g.op("Div", [x, k("root", 2**0.5)], "q")], "erf")
        x = g.op("Mul", [g.op("Mul", [x, g.op("Add", [erf, k("one", 1)], "o")], "h"), k("half", 0.5)], "gelu")
        return _dense(g, x, w, "head", "y")

    return (net.eval(), tokens(16)), write


# --- training steps


def _losing(ignored: int) -> Any:
    wanted = torch.arange(12) % 4
    wanted[5:] = 0

    def loss(out: Any) -> Any:
        return F.cross_entropy(out.float(), wanted, ignore_index=ignored)

    return step(lambda m, x: m.b(torch.tanh(m.a(x))), loss, a=lambda: linear(16, 16), b=lambda: linear(16, 4))


def padding_that_the_loss_leaves_out() -> Any:
    return _losing(0)


_LOSS = names("nll_loss", "nll_loss_forward", "nll_loss_nd", "cross_entropy", "cross_entropy_loss") + " loss"


@case("training", PORT, _LOSS, f"{DIFFER} unfound", "padding_that_the_loss_leaves_out", options=BACK,
      extra=_LOSS + " backward/nll_loss_forward/nll_loss_backward")  # fmt: skip
def padding_that_the_loss_counts() -> Any:
    """ignore_index was forgotten: nine of twelve targets are padding, and are trained."""
    return _losing(-100)


def _rounded(through: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = torch.tanh(m.a(x)) * 8
        y = y + (y.round() - y).detach() if through else y.round()
        return m.b(y / 8)

    return step(body, of_classes, a=lambda: linear(16, 16), b=lambda: linear(16, 4))


def rounding_that_lets_its_gradient_through() -> Any:
    return _rounded(True)


_BACK = names("round", "detach", "mul", "div", "backward/round", "backward/round/round", "backward/mul/mul",
              "backward/round/mul", "backward/div/div", "backward/round/zeros_like")  # fmt: skip


@case("training", PORT, _BACK, f"{DIFFER} unfound zero_gradient detached", "rounding_that_lets_its_gradient_through",
      options=BACK, extra=_BACK)  # fmt: skip
def rounding_that_stops_its_gradient() -> Any:
    """A quantiser in training without its straight-through gradient: the loss is equal, one gradient 0."""
    return _rounded(False)


def _decayed(groups: Callable[[list[Any]], Any]) -> Any:
    return step(lambda m, x: m.b(m.norm(torch.tanh(m.a(x)))), of_classes, groups, a=lambda: linear(16, 16),
                norm=lambda: nn.LayerNorm(16), b=lambda: linear(16, 4))  # fmt: skip


def norm_that_does_not_decay() -> Any:
    return _decayed(lambda p: torch.optim.SGD([{"params": [one for one in p if one.ndim > 1], "weight_decay": 0.5},
                                               {"params": [one for one in p if one.ndim == 1]}], lr=0.1))  # fmt: skip


_NORM = names(*(f"{front}/{of}{part}" for front in ("update", "optimiser") for of in
                ("norm.weight", "a.bias", "b.bias", "norm.bias") for part in ("", "/add", "/add_", "/_foreach_add_",
                                                                             "/mul", "/sub")))  # fmt: skip


@case("training", PORT, _NORM, f"{DIFFER} unfound", "norm_that_does_not_decay", options=["--step", "optimiser"],
      extra=_NORM)  # fmt: skip
def norm_that_decays_too() -> Any:
    """One group for all parameters: a norm's gains of 1 and the biases decay as the matrices do."""
    return _decayed(lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.5))


def _kept(checkpoint: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        from torch.utils.checkpoint import checkpoint as again

        run = lambda y: F.gelu(m.norm(m.a(y)))  # noqa: E731
        return m.b(again(run, x, use_reentrant=False) if checkpoint else run(x))

    return step(body, of_classes, a=lambda: linear(16, 32), norm=lambda: nn.LayerNorm(32), b=lambda: linear(32, 4))


def activations_that_are_kept() -> Any:
    return _kept(False)


@case("healthy", PORT, base="activations_that_are_kept", options=BACK)
def activations_that_are_computed_again() -> Any:
    """Activation checkpointing: the same step, with one block computed twice."""
    return _kept(True)


# --- what is so, without the tool


def rel(base: Any, other: Any) -> float:
    base, other = (torch.as_tensor(np.asarray(one.detach() if hasattr(one, "detach") else one, np.float64)).flatten()
                   for one in (base, other))  # fmt: skip
    return float((other - base).norm() / base.norm())


def _made(build: Callable[..., Any], **more: Any) -> tuple[Any, list[Any], Any]:
    found = build(**more)
    inputs = found[1] if isinstance(found[1], tuple) else (found[1],)
    return found[0], list(inputs), found[2] if len(found) > 2 else None


def _ran(made: tuple[Any, list[Any], Any], dtype: Any, autocast: bool = False, step_of: Any = None) -> Any:
    """The output; of a training step the gradients in a row, or what its optimiser does to the parameters."""
    module, inputs, loss = made
    if not autocast:
        module, inputs = module.to(dtype), [one.to(dtype) if one.is_floating_point() else one for one in inputs]
    with torch.autocast("cpu", dtype, enabled=autocast), torch.set_grad_enabled(loss is not None):
        y = module(*inputs)
    if loss is None:
        return y.double()
    loss(y).backward()
    if step_of is not None:
        before = [one.detach().clone() for one in module.parameters()]
        step_of(list(module.parameters())).step()
        return torch.cat([(one - old).flatten().double() for one, old in zip(module.parameters(), before, strict=True)])
    return torch.cat([torch.zeros(one.numel(), dtype=torch.float64) if one.grad is None else one.grad.flatten().double()
                      for one in module.parameters()])  # fmt: skip


def _eight(made: Any, left: tuple[str, ...]) -> Any:
    """Linear layers in eight bits: weights by row, activations by token, as torchao has them."""

    def rounded(y: Any) -> Any:
        size = y.abs().amax(-1, keepdim=True).clamp(min=1e-9) / 127
        return (y / size).round().clamp(-128, 127) * size

    for name, one in made[0].named_modules():
        if isinstance(one, nn.Linear) and name not in left:
            one.forward = lambda x, one=one: F.linear(rounded(x), rounded(one.weight), one.bias)
    return made


def measure(one: Thread) -> tuple[float, float]:
    """The error of what is planted, and what mending it leaves; of two modules both in float64, where 0 is left."""
    build = globals()[one.name]
    if one.mode == "ort_fp32":
        module, inputs, _ = _made(lambda: build()[0])
        return rel(_ran((module, inputs, None), torch.float64), run_saved(one)), 0.0
    if one.baseline:
        pair = (globals()[BASES[one.name]], build)
        moves = "optimiser" in one.options
        return rel(*(_ran(_made(of), torch.float64, False, of()[3] if moves else None) for of in pair)), 0.0
    if one.mode == "torch_int8":
        left = ("b",) if "mended" in inspect.signature(build).parameters else ()
        true = _ran(_made(build), torch.float64)
        return rel(true, _ran(_eight(_made(build), ()), torch.float32)), rel(
            true, _ran(_eight(_made(build), left), torch.float32))  # fmt: skip
    dtype = torch.float16 if "fp16" in one.mode else torch.bfloat16 if "bf16" in one.mode else torch.float32
    true = _ran(_made(build), torch.float64)
    autocast = "autocast" in one.mode
    mended = {"mended": True} if "mended" in inspect.signature(build).parameters else {}
    return rel(true, _ran(_made(build), dtype, autocast)), rel(true, _ran(_made(build, **mended), dtype, autocast))


if __name__ == "__main__":
    for found in CASES:
        if not sys.argv[1:] or any(word in found.name for word in sys.argv[1:]):
            print("{} ({}): {:.3g}, mended {:.3g}".format(found.name, found.mode, *measure(found)), flush=True)
