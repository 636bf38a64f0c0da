"""A sixteenth batch of PyTorch: two checkpoints or programs of which one was converted, files in ONNX, narrow types,
the compiler, and training steps; written and labelled before any of it was compared.

    python tests/planted/sixteenth_torch.py [WORD …]

measures each label without the tool: the output's error (Rel L2) beside float64, and what is left of it where the
operator that is to be named is computed as it should be.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from planted import fifteenth_torch, fourteenth_torch
from planted.eleventh_torch import layer, names
from planted.fifteenth_torch import BACK, LOST, MOVE, PORT
from planted.fourteenth_torch import _ran, rel
from planted.onnx_faults import Array, Graph
from planted.shared import print_measured, run_saved
from planted.tenth_torch import of_classes, step
from planted.torch_faults import Net, image, linear, tokens
from planted.twelfth.case import COARSE, DIFFER, Thread

# After the first run, of rows' names that a label cannot know: where a stretch ends (an expand, a view, a transpose),
# and what reads a dropout. stream_that_lies_far_from_nought: the weight's rounding makes more of it than the input's.
CASES: list[Thread] = []
case = functools.partial(fifteenth_torch.case, cases=CASES, module="sixteenth_torch")
converted = functools.partial(fourteenth_torch.converted, cases=CASES, module_of="sixteenth_torch")
OTHER = f"{DIFFER} unfound"

# --- two modules that should be one


def _cached(bottom: bool) -> Any:
    """Four new tokens beside eight, of which four come from a cache."""
    torch.manual_seed(1601)

    def body(m: Any, x: Any) -> Any:
        q, k, v = (one(x).view(2, 8, 4, 8).transpose(1, 2) for one in (m.q, m.k, m.v))
        q = q[:, :, 4:]
        if bottom:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=m.seen)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return m.o(y.transpose(1, 2).reshape(2, 4, 32))

    return Net(body, q=linear(32, 32, 2.0), k=linear(32, 32, 2.0), v=linear(32, 32), o=linear(32, 8),
               seen=torch.ones(4, 8, dtype=torch.bool).tril(4)), tokens()  # fmt: skip


def mask_from_the_bottom_right() -> Any:
    return _cached(True)


_SDPA = names("transpose", most=8) + " " + names(
    "scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", "bmm", "softmax")  # fmt: skip


@case("pytorch/pytorch#108108", "port", PORT, _SDPA, OTHER, "mask_from_the_bottom_right", extra=_SDPA)
def mask_from_the_top_left() -> Any:
    """is_causal with four queries and eight keys counts from the first key: the queries no longer see the cache."""
    return _cached(False)


def _keys(low: bool) -> Any:
    torch.manual_seed(1602)

    def body(m: Any, x: Any) -> Any:
        q, k, v = m.q(x), m.k(x), m.v(x)
        if low:
            k = (k.to(torch.float8_e4m3fn)).to(x.dtype)
        return m.o(((q @ k.transpose(1, 2)) * 32**-0.5).softmax(-1) @ v)

    return Net(body, q=linear(32, 32, 4.0), k=linear(32, 32, 4.0), v=linear(32, 32), o=linear(32, 8)), tokens()


def keys_as_they_are() -> Any:
    return _keys(False)


_CAST = names("to", "_to_copy", "matmul", "bmm", "transpose")


@case("kv_cache_dtype=fp8", "port", PORT, _CAST, f"{OTHER} held_narrower {COARSE}", "keys_as_they_are",
      extra=_CAST, facts=[r"float8|e4m3|narrow|_to_copy|`to"])  # fmt: skip
def keys_in_a_cache_of_eight_bits() -> Any:
    """Keys go through float8 (four bits of exponent, three of mantissa) and back, as a cache holds them."""
    return _keys(True)


def _shuffled(depth_first: bool) -> Any:
    torch.manual_seed(1603)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        if depth_first:
            n, _, h, w = y.shape
            y = y.view(n, 2, 2, 6, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, 6, 2 * h, 2 * w)
        else:
            y = F.pixel_shuffle(y, 2)
        return m.b(torch.relu(y))

    return Net(body, a=nn.Conv2d(3, 24, 3, padding=1), b=nn.Conv2d(6, 3, 3, padding=1)), image()


def channels_before_their_blocks() -> Any:
    return _shuffled(False)


_VIEWS = names("view", "permute", "reshape", "pixel_shuffle", "_unsafe_view", "clone", "relu")


@case("tf.nn.depth_to_space", "port", PORT, _VIEWS, OTHER, "channels_before_their_blocks", extra=_VIEWS)
def blocks_before_their_channels() -> Any:
    """Depth to space as TensorFlow orders it (blocks, then channels), beside torch's pixel_shuffle."""
    return _shuffled(True)


def _reduced(smooth: bool) -> Any:
    torch.manual_seed(1604)

    def body(m: Any, x: Any) -> Any:
        return m.b(torch.relu(m.a(F.interpolate(x, size=(7, 7), mode="bilinear", antialias=smooth))))

    return Net(body, a=nn.Conv2d(3, 8, 3), b=nn.Conv2d(8, 4, 1)), image()


def picture_reduced_as_pillow_does() -> Any:
    return _reduced(True)


_RESIZE = names("upsample_bilinear2d", "_upsample_bilinear2d_aa", "interpolate")


@case("pytorch/vision#2950", "port", PORT, _RESIZE, OTHER, "picture_reduced_as_pillow_does", extra=_RESIZE)
def picture_reduced_without_antialias() -> Any:
    """16 pixels to 7 with antialias, as the trainer's pictures were made, and without."""
    return _reduced(False)


def _unit(axis: int) -> Any:
    torch.manual_seed(1605)

    def body(m: Any, x: Any) -> Any:
        y = F.normalize(m.a(x), dim=axis)
        return m.b(y) * 5

    return Net(body, a=linear(32, 32), b=linear(32, 8)), tokens()


def length_of_each_token() -> Any:
    return _unit(-1)


_LENGTH = names("linalg_vector_norm", "norm", "clamp_min", "clamp", "expand", "expand_as", "div", "normalize")


@case("F.normalize's dim is 1", "port", PORT, _LENGTH, OTHER, "length_of_each_token", extra=_LENGTH,
      facts=[r"dim|axis|axes"])  # fmt: skip
def length_over_the_tokens() -> Any:
    """F.normalize without dim on (batch, tokens, width): each feature is of unit length over the tokens."""
    return _unit(1)


def _recurrent(first: bool) -> Any:
    torch.manual_seed(1606)
    net = Net(lambda m, x: m.head(m.rnn(x)[0]), rnn=nn.LSTM(16, 16, batch_first=first), head=linear(16, 4))
    return net, torch.randn(6, 6, 16)


def batch_before_time() -> Any:
    return _recurrent(True)


_RNN = " ".join(f"rnn{part}{n}" for part in ("", "/lstm", "/mkldnn_rnn_layer", "/addmm", "/transpose", "/_unsafe_view",
                                             "/view", "/tanh", "/mul", "/add", "/stack", "/cat", "/unsqueeze",
                                             "/linear", "/split", "/select", "/unbind", "/sigmoid", "/squeeze", "/mm",
                                             "/lstm/transpose", "/lstm/mkldnn_rnn_layer")
                for n in ("", "#1", "#2", "#3"))  # fmt: skip


@case("batch_first", "port", PORT, _RNN, OTHER, "batch_before_time", extra=_RNN + " " + layer("head") + " output",
      facts=[r"batch_first|transpose|axis|lstm|rnn"])  # fmt: skip
def time_before_batch() -> Any:
    """An LSTM without batch_first reads a square batch along the samples; no shape tells."""
    return _recurrent(False)


def _directed(merged: str) -> Any:
    """A layer whose low-rank change is of a magnitude of its own for each row."""
    torch.manual_seed(1607)
    wide, down, up = linear(32, 32), linear(32, 4, 3.0), linear(4, 32, 3.0)
    size = wide.weight.detach().norm(dim=1, keepdim=True) * (0.5 + torch.rand(32, 1))
    whole = wide.weight.detach() + up.weight.detach() @ down.weight.detach()
    if merged:
        with torch.no_grad():
            wide.weight.copy_(size * whole / whole.norm(dim=1, keepdim=True) if merged == "right" else whole)

    return Net(lambda m, x: m.head(torch.tanh(m.wide(torch.tanh(m.a(x))))), a=linear(32, 32), wide=wide,
               head=linear(32, 8)), tokens()  # fmt: skip


def adapter_with_its_magnitude() -> Any:
    return _directed("right")


@case("huggingface/peft#1806", "port", PORT, layer("wide"), "files_differ", "adapter_with_its_magnitude",
      extra=layer("wide") + " tanh#1", facts=[r"wide\.weight"])  # fmt: skip
def adapter_without_its_magnitude() -> Any:
    """A weight-decomposed adapter was merged without its magnitude: each row is of another length, its direction is
    right."""
    return _directed("wrong")


def _table(most: float | None) -> Any:
    torch.manual_seed(1608)
    table = nn.Embedding(40, 16, max_norm=most)
    return Net(lambda m, ids: m.b(torch.tanh(m.a(m.table(ids)))), table=table, a=linear(16, 16), b=linear(16, 4)), (
        torch.randint(0, 40, (2, 8)),)  # fmt: skip


def rows_as_they_are() -> Any:
    return _table(None)


_ROWS = names("table", "table/embedding", "table/embedding_renorm_", "table/embedding_renorm", "embedding",
              "embedding_renorm", "embedding_renorm_")  # fmt: skip


@case("nn.Embedding(max_norm)", "port", PORT, _ROWS, OTHER, "rows_as_they_are", extra=_ROWS,
      facts=[r"max_norm|renorm|table\.weight"])  # fmt: skip
def rows_of_at_most_two() -> Any:
    """max_norm=2 is set in one model alone: rows of about 4 are shortened where they are read."""
    return _table(2.0)


def _quiet(one_more: bool) -> Any:
    torch.manual_seed(1609)

    def body(m: Any, x: Any) -> Any:
        score = m.q(x) @ m.k(x).transpose(1, 2) / 32**0.5
        if one_more:
            e = (score - score.amax(-1, keepdim=True)).exp()
            share = e / (e.sum(-1, keepdim=True) + (-score.amax(-1, keepdim=True)).exp())
        else:
            share = score.softmax(-1)
        return m.o(share @ m.v(x))

    return Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), o=linear(32, 8)), tokens()


def shares_that_add_up_to_one() -> Any:
    return _quiet(False)


_SHARE = names("expand", "div", "softmax", "add", "exp", "sum", "sub", "amax", "neg", "matmul", "bmm")


@case("attention sinks", "port", PORT, _SHARE, OTHER, "shares_that_add_up_to_one", extra=_SHARE)
def shares_beside_a_sink() -> Any:
    """A softmax with one more in its denominator (a sink whose score is 0): shares add up to less than one."""
    return _quiet(True)


def _quick(quick: bool) -> Any:
    torch.manual_seed(1610)

    def body(m: Any, x: Any) -> Any:
        y = m.up(m.norm(x))
        return x + m.down(y * torch.sigmoid(1.702 * y) if quick else F.gelu(y))

    return Net(body, norm=nn.LayerNorm(32), up=linear(32, 64), down=linear(64, 32)), tokens()


def gelu_of_the_trainer() -> Any:
    return _quick(False)


_GELU = names("gelu", "mul", "sigmoid", "down/view")


@case("open_clip's quickgelu", "port", PORT, _GELU, OTHER, "gelu_of_the_trainer", extra=_GELU)
def gelu_by_a_sigmoid() -> Any:
    """x times the sigmoid of 1.702 x in place of GELU, as another checkpoint of the same name wants it."""
    return _quick(True)


def _worded(bits: int) -> Any:
    torch.manual_seed(1611)
    table = nn.Embedding(60, 32)
    with torch.no_grad():
        table.weight[:, 3] *= 8
        if bits:
            size = table.weight.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
            table.weight.copy_((table.weight / size).round() * size)
    return Net(lambda m, ids: m.b(F.gelu(m.a(m.norm(m.table(ids))))), table=table, norm=nn.LayerNorm(32),
               a=linear(32, 32), b=linear(32, 8)), (torch.randint(0, 60, (2, 10)),)  # fmt: skip


def words_of_the_trainer() -> Any:
    return _worded(0)


@case("bitsandbytes' quantised embeddings", "port", PORT, "table table/embedding embedding", "files_differ",
      "words_of_the_trainer", extra="table table/embedding", facts=[r"table\.weight"])  # fmt: skip
def words_in_four_bits() -> Any:
    """The table is in four bits by row, and each row has one number of eight times the others: a row has a few values
    only. Everything else is as it was."""
    return _worded(4)


def _left_in_training(on: bool) -> Any:
    torch.manual_seed(1612)
    net = Net(lambda m, x: m.b(m.drop(torch.relu(m.a(x)))), a=linear(32, 32), drop=nn.Dropout(0.2), b=linear(32, 8))
    return net.train(on), tokens()


def dropout_that_is_off() -> Any:
    return _left_in_training(False)


_DROP = names("drop", "drop/dropout", "dropout", "drop/native_dropout", "native_dropout", "drop/mul", "relu",
              "drop/div", "drop/bernoulli", "mul", "drop/rand_like", "b/linear", "b/view")  # fmt: skip


@case("torch.export before eval()", "port", PORT, _DROP, f"{OTHER} random dropout", "dropout_that_is_off",
      file="exported", extra=_DROP + " output", facts=[r"dropout|random"])  # fmt: skip
def program_exported_in_training() -> Any:
    """The program was exported before eval(): a fifth of the numbers is dropped, and the others are 1.25 times."""
    return _left_in_training(True)


def _levelled(moved: bool) -> Any:
    torch.manual_seed(1613)
    a, b = linear(32, 64), linear(64, 8)
    if moved:
        size = torch.logspace(-2, 2, 64)
        with torch.no_grad():
            a.weight.mul_(size[:, None])
            a.bias.mul_(size)
            b.weight.div_(size)
    return Net(lambda m, x: m.b(torch.relu(m.a(x))), a=a, b=b), tokens()


def ranges_of_the_trainer() -> Any:
    return _levelled(False)


@case("cross-layer equalisation", "healthy", PORT, base="ranges_of_the_trainer")
def ranges_moved_through_a_relu() -> Any:
    """Rows of one layer are scaled by up to 100 and the next one's columns by as little: the output is the same, and
    what lies between is of other sizes. That a weight is another checkpoint's would be misleading."""
    return _levelled(True)


def _pointwise(last: bool) -> Any:
    torch.manual_seed(1614)
    a, b = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 4, 1)

    def body(m: Any, x: Any) -> Any:
        if not last:
            return m.b(F.gelu(m.a(x)))
        y = F.linear(x.permute(0, 2, 3, 1), m.a.weight[:, :, 0, 0], m.a.bias)
        return F.linear(F.gelu(y), m.b.weight[:, :, 0, 0], m.b.bias).permute(0, 3, 1, 2)

    return Net(body, a=a, b=b), image()


def channels_that_come_second() -> Any:
    return _pointwise(False)


@case("NHWC kernels", "healthy", PORT, base="channels_that_come_second")
def channels_that_come_last() -> Any:
    """Two convolutions of one pixel as linear layers over the last axis, and back."""
    return _pointwise(True)


def _long(by_fft: bool) -> Any:
    torch.manual_seed(1615)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x).transpose(1, 2)
        if by_fft:
            size = 2 * y.shape[-1]
            y = torch.fft.irfft(torch.fft.rfft(y, size) * torch.fft.rfft(m.kernel, size), size)[..., : y.shape[-1]]
        else:
            y = F.conv1d(F.pad(y, (m.kernel.shape[-1] - 1, 0)), m.kernel.flip(-1)[:, None], groups=16)
        return m.b(F.silu(y.transpose(1, 2)))

    kernel = torch.randn(16, 256) * torch.linspace(0, -4, 256).exp()
    return Net(body, a=linear(16, 16), kernel=kernel, b=linear(16, 4)), torch.randn(2, 256, 16)


def long_convolution_directly() -> Any:
    return _long(False)


@case("Hyena, S4", "healthy", PORT, base="long_convolution_directly")
def long_convolution_by_its_spectrum() -> Any:
    """A causal convolution as long as the sequence, directly and by Fourier's transform: off by float32's rounding."""
    return _long(True)


def _many(by_hand: bool) -> Any:
    torch.manual_seed(1616)
    heads = nn.MultiheadAttention(32, 4, batch_first=True)

    def body(m: Any, x: Any) -> Any:
        if not by_hand:
            return m.o(m.heads(x, x, x, need_weights=False)[0])
        q, k, v = (one.view(2, 8, 4, 8).transpose(1, 2) for one in
                   F.linear(x, m.heads.in_proj_weight, m.heads.in_proj_bias).chunk(3, -1))  # fmt: skip
        y = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1) @ v
        return m.o(m.heads.out_proj(y.transpose(1, 2).reshape(2, 8, 32)))

    return Net(body, heads=heads, o=linear(32, 8)).eval(), tokens()


def heads_of_the_library() -> Any:
    return _many(False)


@case("nn.MultiheadAttention's fast path", "healthy", PORT, base="heads_of_the_library")
def heads_written_out() -> Any:
    """The library's attention, which runs one fused operator in evaluation, and the same written out."""
    return _many(True)


# --- narrow types, the compiler


@case("ratio of two energies", "underflow", "torch_fp16", names("square", "pow", "mul", "mean", "div"),
      "underflow coarse amplified", extra=names("square", "pow", "mul", "mean", "div", "add", "sum"),
      offered=True)  # fmt: skip
def ratio_of_two_faint_energies(mended: bool = False) -> Any:
    """Two streams of 5e-4 are squared: the squares are a few steps of float16's smallest (6e-8), and their means are
    divided. Both squares lose, and mending one alone leaves the other."""

    def body(m: Any, x: Any) -> Any:
        a, b = m.a(x) * 1.5e-3, m.b(x) * 1.5e-3
        a, b = (a.float(), b.float()) if mended else (a, b)
        y = a.square().mean(1) / b.square().mean(1)
        return m.c(torch.tanh(y.to(x.dtype)))

    torch.manual_seed(1620)
    return Net(body, a=linear(32, 32, 0.5), b=linear(32, 32, 0.5), c=linear(32, 8)), tokens(length=16)


@case("discounts of a trajectory", "cancellation", "torch_bf16", names("pow", "cumprod", "mul"),
      LOST, extra=names("pow", "cumprod", "mul", "sum", "arange"),
      offered=True)  # fmt: skip
def discount_of_a_hundredth(mended: bool = False) -> Any:
    """Rewards are discounted by 0.99 to the power of the step; bfloat16 has 0.98828, which after 200 steps is a third
    off."""

    def body(m: Any, x: Any) -> Any:
        y = m.a(x).squeeze(-1)
        share = (m.discount.double() * 0 + 0.99 if mended else m.discount).to(
            torch.float64 if mended or y.dtype == torch.float64 else y.dtype) ** m.at.to(
            torch.float64 if mended else m.at.dtype)  # fmt: skip
        return y * share.to(y.dtype)

    torch.manual_seed(1621)
    return Net(body, a=linear(16, 1), discount=torch.full((1, 256), 0.99), at=torch.arange(256.0)[None]), (
        torch.randn(8, 256, 16))  # fmt: skip


@case("binary cross entropy by hand", "cancellation", "torch_bf16", names("rsub", "sub", "sigmoid", "log", "neg"),
      f"{LOST} born overflow",
      extra=names("rsub", "sub", "sigmoid", "log", "mul", "add", "neg"), offered=True)  # fmt: skip
def chance_of_the_other_class(mended: bool = False) -> Any:
    """log(1 - p) of a chance of 0.999 and more: p is 1 in bfloat16, what is left 0, and its logarithm infinite."""

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        y = y.float() if mended else y
        return (1 - torch.sigmoid(y)).log()

    torch.manual_seed(1622)
    a = linear(16, 4, 0.3)
    with torch.no_grad():
        a.bias.fill_(7.0)
    return Net(body, a=a), torch.randn(24, 16)


@case("activations that are far from nought", "int8", "torch_int8", layer("b") + " b/view#2",
      f"{COARSE} cancellation cancels packed reads_rounded", extra=layer("b") + " b/view#2", offered=True)  # fmt: skip
def stream_that_lies_far_from_nought(mended: bool = False) -> Any:
    """All of a layer's inputs are 60 and vary by a half; the layer's rows add up to nought, so that only what varies is
    left. Eight bits of 60 are steps of a half. No channel is larger than another."""
    torch.manual_seed(1623)
    b = linear(64, 64)
    with torch.no_grad():
        b.weight.sub_(b.weight.mean(1, keepdim=True))
    return Net(lambda m, x: m.c(torch.tanh(m.b(torch.tanh(m.a(x)) * 0.5 + 60))), a=linear(32, 64), b=b,
               c=linear(64, 8)), tokens(length=16)  # fmt: skip


@case("global pooling in half", "healthy", "torch_fp16")
def mean_of_a_large_picture() -> Any:
    """A mean over 256 by 256 numbers of 10, whose sum would be 655360: torch's kernel adds in float32."""

    def body(m: Any, x: Any) -> Any:
        return m.b(torch.relu(m.a(x) + 10).mean((2, 3)))

    torch.manual_seed(1624)
    return Net(body, a=nn.Conv2d(1, 8, 3), b=linear(8, 4, 0.1)), torch.randn(1, 1, 256, 256)


@case("gains counted from nought", "healthy", "torch_bf16")
def gains_of_a_thousandth() -> Any:
    """Norms multiply by 1 + w, and w is 0.002, which bfloat16's 1 does not know: what is lost is below its rounding."""

    def body(m: Any, x: Any) -> Any:
        for one, w in zip(m.layers, m.gains, strict=True):
            x = x + one(torch.tanh(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + w)))
        return m.o(x)

    torch.manual_seed(1625)
    return Net(body, layers=nn.ModuleList(linear(32, 32) for _ in range(3)), gains=nn.ParameterList(
        nn.Parameter(torch.randn(32) * 0.002) for _ in range(3)), o=linear(32, 8)), tokens()  # fmt: skip


@case("ridge regression under autocast", "cancellation", "torch_autocast_bf16",
      names("matmul", "mm", "bmm", "add", "linalg_solve", "solve", "linalg_inv", "_linalg_solve_ex") + " " + layer("a"),
      f"{LOST} {COARSE} amplifies", extra=names("matmul", "mm", "bmm", "add", "linalg_solve", "_linalg_solve_ex") +
      f" {layer('a')} matmul/to float to", offered=True)  # fmt: skip
def regression_on_features_that_are_alike(mended: bool = False) -> Any:
    """Eight features that share most of what they say; their products are made in bfloat16, and the solver makes a
    hundred times of its rounding."""

    def body(m: Any, x: Any) -> Any:
        y = m.common * 4 + m.a(x).to(x.dtype)
        with torch.autocast("cpu", enabled=False) if mended else torch.no_grad():
            gram, right = y.t() @ y, y.t() @ x
        kind = torch.float64 if x.dtype == torch.float64 else torch.float32
        return torch.linalg.solve(gram.to(kind) / 64 + 1e-2 * m.eye.to(kind), right.to(kind) / 64)

    torch.manual_seed(1626)
    return Net(body, a=linear(16, 8, 0.6), common=torch.randn(64, 1), eye=torch.eye(8)), torch.randn(64, 16)


@case("writes into views under the compiler", "healthy", "torch_compile")
def halves_that_are_written_in_place() -> Any:
    """Slices of a buffer are written, added in place and read again through another view."""

    def body(m: Any, x: Any) -> Any:
        y = x.new_zeros(x.shape[0], 32)
        y[:, :16] = m.a(x)
        y[:, 16:] = torch.tanh(y[:, :16])
        y.view(-1, 2, 16)[:, 1].mul_(2.0)
        y[::2] += 1.0
        return m.b(y), y.argsort(-1)[:, :3]

    torch.manual_seed(1627)
    return Net(body, a=linear(16, 16), b=linear(32, 4)), torch.randn(20, 16)


# --- converted to ONNX: the baseline is the module


@converted("convert", names("pad", "constant_pad_nd", "a", "a/conv2d", "a/convolution"), OTHER,
           extra=names("pad", "constant_pad_nd", "a", "a/conv2d"))  # fmt: skip
def borders_in_the_other_order() -> Any:
    """torch counts borders in pairs from the last axis (left, right, above, below), ONNX all beginnings first: two
    columns that belong on the left were put on the right."""
    torch.manual_seed(1630)
    net = Net(lambda m, x: m.b(torch.relu(m.a(F.pad(x, (2, 0, 2, 0))))), a=nn.Conv2d(3, 8, 3), b=nn.Conv2d(8, 4, 1))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("Pad", [x, g.weight("pads", np.array([0, 0, 2, 0, 0, 0, 0, 2]))], "padded")
        y = g.op("Conv", [y, g.weight("aw", w["a.weight"]), g.weight("ab", w["a.bias"])], "a")
        return g.op("Conv", [g.op("Relu", [y], "r"), g.weight("bw", w["b.weight"]), g.weight("bb", w["b.bias"])], "y")

    return (net.eval(), torch.randn(2, 3, 8, 8)), write


@converted("healthy")
def groups_by_a_norm_of_each_instance() -> Any:
    """A group norm as exporters write it: reshaped to its groups, InstanceNormalization with gains of 1, then gain and
    bias."""
    torch.manual_seed(1631)
    net = Net(lambda m, x: m.b(F.silu(m.norm(m.a(x)))), a=nn.Conv2d(3, 8, 3), norm=nn.GroupNorm(2, 8),
              b=nn.Conv2d(8, 4, 1))  # fmt: skip
    with torch.no_grad():
        net.norm.weight.normal_(1, 0.3)
        net.norm.bias.normal_()

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("Conv", [x, g.weight("aw", w["a.weight"]), g.weight("ab", w["a.bias"])], "a")
        one, none = g.weight("one", np.ones(2, np.float32)), g.weight("none", np.zeros(2, np.float32))
        z = g.op("Reshape", [y, g.weight("groups", np.array([0, 2, -1]))], "by_group")
        z = g.op("InstanceNormalization", [z, one, none], "normed", epsilon=1e-5)
        z = g.op("Reshape", [z, g.op("Shape", [y], "shape")], "back")
        z = g.op("Mul", [z, g.weight("gain", w["norm.weight"][:, None, None])], "times")
        z = g.op("Add", [z, g.weight("shift", w["norm.bias"][:, None, None])], "plus")
        z = g.op("Mul", [z, g.op("Sigmoid", [z], "gate")], "silu")
        return g.op("Conv", [z, g.weight("bw", w["b.weight"]), g.weight("bb", w["b.bias"])], "y")

    return (net.eval(), torch.randn(2, 3, 8, 8)), write


# --- training steps


def _lost(how: str) -> Any:
    def loss(out: Any) -> Any:
        wanted = torch.arange(len(out)) % 4
        if how == "apart":
            return -F.log_softmax(out.float(), -1).gather(1, wanted[:, None]).mean()
        return F.cross_entropy(out.float(), wanted, reduction=how)

    return step(lambda m, x: m.b(torch.tanh(m.a(x))), loss, a=lambda: linear(16, 16), b=lambda: linear(16, 4))


def loss_of_the_mean_sample() -> Any:
    return _lost("mean")


_CE = names("nll_loss", "nll_loss_forward", "cross_entropy", "cross_entropy_loss", "nll_loss_nd") + " loss"
_CE_BACK = names("backward/nll_loss_forward/nll_loss_backward", "backward/nll_loss/nll_loss_backward")


@case("reduction='sum'", "training", PORT, _CE, OTHER, "loss_of_the_mean_sample", options=BACK,
      extra=f"{_CE} {_CE_BACK}", facts=[r"reduction|\b12\b|sum"])  # fmt: skip
def loss_of_the_whole_batch() -> Any:
    """The loss is the batch's sum and not its mean: it and all gradients are 12 times as large."""
    return _lost("sum")


@case("cross entropy taken apart", "healthy", PORT, base="loss_of_the_mean_sample", options=BACK)
def loss_that_is_written_out() -> Any:
    """Cross entropy as log_softmax, gather, mean and a sign."""
    return _lost("apart")


def _grouped(times: float) -> Any:
    def optimiser(p: Any) -> Any:
        return torch.optim.SGD([{"params": p[:2]}, {"params": p[2:], "lr": 0.05 * times}], lr=0.05, momentum=0.9)

    return step(lambda m, x: m.b(torch.tanh(m.a(x))), of_classes, optimiser, a=lambda: linear(16, 16),
                b=lambda: linear(16, 4))  # fmt: skip


def groups_of_one_rate() -> Any:
    return _grouped(1.0)


_HEAD = " ".join(f"{front}/{of}{part}{n}" for front in ("update", "optimiser") for of in ("b.weight", "b.bias")
                 for n in ("", "#1", "#2") for part in ("", "/add", "/add_", "/mul", "/mul_", "/sub", "/_foreach_add_"))


@case("discriminative rates", "training", PORT, _HEAD, OTHER, "groups_of_one_rate", options=MOVE, extra=_HEAD,
      facts=[r"lr|0\.5"])  # fmt: skip
def head_of_ten_times_the_rate() -> Any:
    """The head's group has a rate of 0.5 in place of 0.05; the first layer's is as it was."""
    return _grouped(10.0)


# --- what is so, without the tool


def measure(one: Thread) -> tuple[float, float]:
    """As the fifteenth's; of a file in ONNX, stock ONNX Runtime beside float64."""
    build: Callable[..., Any] = globals()[one.name]
    if one.mode == "ort_fp32":
        module, x = build()[0]
        return rel(_ran((module, [x], None), torch.float64), run_saved(one)), 0.0
    return fifteenth_torch.measure(one, globals())


if __name__ == "__main__":
    print_measured(CASES, measure)
