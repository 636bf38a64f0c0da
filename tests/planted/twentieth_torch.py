"""A twentieth batch of PyTorch: two modules of which one was rewritten, formulas in narrow types, autocast, the
compiler, training steps; written and labelled before any of it was compared."""

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
from planted.nineteenth_torch import _stepped
from planted.onnx_faults import Array, Graph
from planted.shared import two_modules
from planted.tenth_torch import of_classes
from planted.torch_faults import Net, image, linear, tokens
from planted.twelfth.case import DIFFER, Thread

CASES: list[Thread] = []
case = functools.partial(fifteenth_torch.case, cases=CASES, module="twentieth_torch")
converted = functools.partial(fourteenth_torch.converted, cases=CASES, module_of="twentieth_torch")
OTHER = f"{DIFFER} unfound"
two = functools.partial(two_modules, globals(), 2001, PORT, OTHER)


def _state_space(how: str) -> Any:
    def body(m: Any, x: Any) -> Any:
        dt = m.dt(x)
        dt = F.softplus(dt) if how != "no_softplus" else dt.abs()
        a = -torch.exp(m.a_log) if how != "no_exp" else -m.a_log.abs()
        h, told = torch.zeros(2, 16), []
        for t in range(x.shape[1]):
            h = torch.exp(dt[:, t] * a) * h + dt[:, t] * m.b(x[:, t])
            told.append(h)
        y = torch.stack(told, 1)
        return m.o(y + m.b(x) * m.skip if how != "no_skip" else y)

    return Net(body, dt=linear(32, 16), b=linear(32, 16), o=linear(16, 4), skip=torch.linspace(0.5, 2, 16),
               a_log=torch.linspace(-1, 1.5, 16)), tokens()  # fmt: skip


two("state_space_that_lost_its_skip", "D, the direct way of a state-space layer, was left out.", _state_space, "",
    "no_skip", names("add", "mul", "stack") + " o o/linear " + layer("o", "b"))  # fmt: skip
two("decay_of_a_state_read_without_its_exponential", "A_log is taken for A: -|A_log| in place of -exp(A_log).",
    _state_space, "", "no_exp", names("exp", "neg", "abs", "mul"))  # fmt: skip


def _masked(meaning: str) -> Any:
    seen = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(4)) > 0.4
    seen |= torch.eye(8, dtype=torch.bool)

    def body(m: Any, x: Any) -> Any:
        q, key, v = (one(x).view(2, 8, 4, 8).transpose(1, 2) for one in (m.q, m.k, m.v))
        mask = ~m.seen if meaning == "turned" else m.seen
        return m.o(F.scaled_dot_product_attention(q, key, v, attn_mask=mask).transpose(1, 2).reshape(2, 8, 32))

    return Net(body, **{one: linear(32, 32) for one in "qkvo"}, seen=seen), tokens()


_SDPA = names("scaled_dot_product_attention", "bitwise_not", "_scaled_dot_product_flash_attention_for_cpu", "where",
              "masked_fill", "_safe_softmax", "_softmax", "logical_not") + " transpose#4"  # fmt: skip


two("mask_that_means_what_is_left_out", "True means seen for torch's own attention; it was given what is left out.",
    _masked, "", "turned", _SDPA)  # fmt: skip


def _pre(first: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        for norm, up, down in ((m.n1, m.u1, m.d1), (m.n2, m.u2, m.d2)):
            x = x + down(F.gelu(up(norm(x)))) if first else norm(x + down(F.gelu(up(x))))
        return m.o(x)

    parts = {f"{one}{n}": linear(*size) for n in (1, 2) for one, size in (("u", (32, 64)), ("d", (64, 32)))}
    return Net(body, **parts, n1=nn.LayerNorm(32), n2=nn.LayerNorm(32), o=linear(32, 4)), tokens(scale=2.0)


two("norm_behind_in_place_of_in_front", "Blocks norm behind the sum (post-norm) in place of in front (pre-norm).", _pre,
    True, False, layer("u1", "d1") + " o/view d1/view "
    " n1 n1/layer_norm n1/native_layer_norm u1 u1/linear " + names("add", "gelu"))


def _velocity(kind: str) -> Any:
    def body(m: Any, x: Any) -> Any:
        v = m.b(F.silu(m.a(x)))
        return 0.8 * x - 0.6 * v if kind == "v" else (x - 0.6 * v) / 0.8

    return Net(body, a=linear(32, 48), b=linear(48, 32)), tokens()


two("velocity_taken_for_noise", "A v-prediction is read as noise: (x - s v) / a in place of a x - s v.", _velocity, "v",
    "noise", names("mul", "sub", "div", "rsub"))  # fmt: skip


def _bins(first: int) -> Any:
    def body(m: Any, x: Any) -> Any:
        share = m.a(x).view(2, 8, 4, 16).softmax(-1)
        return m.b((share * m.at).sum(-1) * 0.2)

    return Net(body, a=linear(32, 64, 2.0), b=linear(4, 4), at=torch.arange(16.0) + first), tokens()


two("bins_of_a_box_counted_from_one", "The bins of a distribution focal loss are 1 to 16 in place of 0 to 15.", _bins,
    0,
    1, names("mul", "sum", "matmul"), facts=[r"\bat\b"])  # fmt: skip


def _table(turned: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        at = m.index.t() if turned else m.index
        score = m.q(x) @ m.k(x).transpose(-1, -2) / 32**0.5 + m.table[at]
        return m.o(score.softmax(-1) @ m.v(x))

    place = torch.arange(9)
    rows, columns = place // 3, place % 3
    index = (rows[:, None] - rows + 2) * 5 + columns[:, None] - columns + 2
    return Net(body, **{one: linear(32, 32) for one in "qkvo"}, table=torch.randn(25) * 2, index=index), tokens(32, 9)


two("relative_places_read_the_other_way", "A window's table of relative places is read at (k, q) in place of (q, k).",
    _table, False, True, names("index", "t", "add", "numpy_t", "transpose", "permute"), facts=[])  # fmt: skip


def _patches(turned: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.p(x)
        y = y.transpose(2, 3).flatten(2) if turned else y.flatten(2)
        return m.o(torch.tanh(m.a(y.transpose(1, 2) + m.at)))

    return Net(body, p=nn.Conv2d(3, 16, 4, stride=4), a=linear(16, 24), o=linear(24, 4),
               at=torch.randn(16, 16)), image()  # fmt: skip


two("patches_of_columns_beside_places_of_rows", "Patches are read column by column, their places are row by row.",
    _patches, False, True, names("transpose", "flatten", "view", "add", "permute", "reshape", "_unsafe_view", "clone"))


def _quantile(how: str) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        top = torch.quantile(y.abs(), 0.9, dim=-1, keepdim=True, interpolation=how)
        return m.b(y / top)

    return Net(body, a=linear(32, 16), b=linear(16, 4)), tokens()


two("quantile_without_interpolation", "'lower' in place of 'linear' in a quantile of 0.9 of sixteen.", _quantile,
    "linear", "lower", names("quantile", "sort", "gather", "lerp", "lerp_", "div", "squeeze"))  # fmt: skip


def _deviation(unbiased: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        y = (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True, unbiased=unbiased) + 1e-6)
        return m.b(y)

    return Net(body, a=linear(32, 8), b=linear(8, 4)), tokens()


two("deviation_by_eight_in_place_of_seven", "std lost its correction: 8 in place of 7 samples divide.", _deviation,
    True, False, names("std", "var", "sqrt", "add", "div"))  # fmt: skip


def _cut(view: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        y = y.view(2, 4, 8, 8) if view else y.view(2, 8, 4, 8).transpose(1, 2)
        y = y.softmax(-1) * 4
        return m.b(y.reshape(2, 8, 32) if view else y.transpose(1, 2).reshape(2, 8, 32))

    return Net(body, a=linear(32, 32), b=linear(32, 4)), tokens()


two("heads_cut_by_a_view_and_put_back", "Each head is a softmax over its own 8 numbers: cutting by a view alone and "
    "putting back by it is the same.", _cut, False, True)  # fmt: skip


def _weights(folded: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.n(x) if not folded else F.layer_norm(x, [32])
        return m.o(torch.relu(m.a(y)))

    net = Net(body, n=nn.LayerNorm(32), a=linear(32, 24), o=linear(24, 4))
    with torch.no_grad():
        net.n.weight.copy_(torch.linspace(0.5, 2, 32)), net.n.bias.copy_(torch.linspace(-0.3, 0.3, 32))
        if folded:
            net.a.bias.add_(net.a.weight @ net.n.bias)
            net.a.weight.mul_(net.n.weight)
    return net, tokens()


two("gains_of_a_norm_folded_into_its_reader", "A norm's gain and shift are in the next layer's weight and bias.",
    _weights, False, True)  # fmt: skip


def _gated(packed: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        gate, up = m.both(x).chunk(2, -1) if packed else (m.gate(x), m.up(x))
        return m.down(F.silu(gate) * up)

    gate, up, both = linear(32, 48), linear(32, 48), linear(32, 96)
    with torch.no_grad():
        both.weight.copy_(torch.cat([gate.weight, up.weight])), both.bias.copy_(torch.cat([gate.bias, up.bias]))
    return Net(body, down=linear(48, 16), **({"both": both} if packed else {"gate": gate, "up": up})), tokens()


two("gate_and_up_packed_into_one", "Two products with one input became one that is cut.", _gated, False, True)


def _eye(turned: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        if turned:
            return m.b((y.transpose(0, 1) * 2).transpose(0, 1) * 0.5)
        return m.b(y)

    return Net(body, a=linear(32, 16), b=linear(16, 4)), tokens()


two("turned_and_doubled_and_back", "Two transposes and factors that undo each other.", _eye, False, True)

# --- narrow types


@case("formula", "formula", "torch_fp16", names("mul", "neg", "sum", "add", "softmax", "log", "special_entr"),
      f"{LOST} underflow "
      "overflow born stepped weight_underflow", extra=names("mul", "neg", "sum", "add", "softmax", "log"))  # fmt: skip
def entropy_of_a_certain_answer() -> Any:
    """-p log(p + 1e-9) of scores 25 apart: p of 1e-11 and the 1e-9 are 0 in float16, and 0 times -inf is NaN."""
    torch.manual_seed(2002)

    def body(m: Any, x: Any) -> Any:
        p = (m.a(x) * 20).softmax(-1)
        return -(p * (p + 1e-9).log()).sum(-1)

    return Net(body, a=linear(32, 6)), tokens()


@case("overflow", "overflow", "torch_fp16", "bmm " + names("matmul", "bmm", "mm"), "overflow",
      extra=names("matmul", "bmm", "mm") + " bmm")  # fmt: skip
def covariance_of_loud_channels() -> Any:
    """x^T x over 64 places of numbers about 50: entries reach 160,000, and a division by 64 follows."""
    torch.manual_seed(2003)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        return m.b(torch.tanh(y.transpose(-1, -2) @ y / 64 / 2500))

    return Net(body, a=linear(32, 8, 80.0), b=linear(8, 4)), tokens(32, 64)


@case("formula", "formula", "torch_bf16", names("sub", "mul", "pow", "add", "sum"), f"{LOST} stepped found_by_repair",
      extra=names("sub", "mul", "pow", "add", "sum", "sqrt") + " " + layer("a", "b"))  # fmt: skip
def distance_from_products() -> Any:
    """|a|^2 + |b|^2 - 2ab of vectors of size 30 0.3 apart: 900 + 900 - 1800, where bfloat16 steps by 4 to 8."""
    torch.manual_seed(2004)

    def body(m: Any, x: Any) -> Any:
        a = x + 10
        b = a + m.small(x) * 0.1
        return (a * a).sum(-1) + (b * b).sum(-1) - 2 * (a * b).sum(-1)

    return Net(body, small=linear(9, 9)), torch.randn(2, 8, 9)


@case("healthy", "healthy", "torch_fp16")
def gated_convolutions_in_half() -> Any:
    """Convolutions, a group norm, a gate, a pool: rounding."""
    torch.manual_seed(2005)

    def body(m: Any, x: Any) -> Any:
        a, b = m.c(F.silu(m.n(m.s(x)))).chunk(2, 1)
        return m.o((a * b.sigmoid()).mean((2, 3)))

    return Net(body, s=nn.Conv2d(3, 16, 3), n=nn.GroupNorm(4, 16), c=nn.Conv2d(16, 24, 3), o=linear(12, 5)), image()


@case("healthy", "healthy", "torch_autocast_bf16")
def decoder_layer_under_autocast() -> Any:
    """Causal attention, a norm and a gated layer."""
    torch.manual_seed(2006)

    def body(m: Any, x: Any) -> Any:
        q, key, v = (one(x).view(2, 8, 4, 8).transpose(1, 2) for one in (m.q, m.k, m.v))
        y = F.scaled_dot_product_attention(q, key, v, is_causal=True).transpose(1, 2).reshape(2, 8, 32)
        y = m.n(x + m.o(y))
        return y + m.down(F.silu(m.gate(y)) * m.up(y))

    parts = {one: linear(32, 32) for one in "qkvo"}
    return Net(body, **parts, n=nn.LayerNorm(32), gate=linear(32, 64), up=linear(32, 64), down=linear(64, 32)), tokens()


@case("healthy", "healthy", "torch_compile")
def pooled_pictures_compiled() -> Any:
    """A convolution, an instance norm, two pools and a classifier."""
    torch.manual_seed(2007)

    def body(m: Any, x: Any) -> Any:
        y = F.hardswish(F.instance_norm(m.a(x)))
        return m.b((F.adaptive_avg_pool2d(y, 2) + F.adaptive_max_pool2d(y, 2)).flatten(1))

    return Net(body, a=nn.Conv2d(3, 8, 3), b=linear(32, 5)), image()


# --- files in ONNX


@converted("convert", names("layer_norm", "native_layer_norm") + " n n/layer_norm n/native_layer_norm", OTHER,
           extra="n n/layer_norm n/native_layer_norm " + names("layer_norm", "native_layer_norm"),
           facts=["epsilon|eps"])  # fmt: skip
def norm_written_with_the_epsilon_of_another_framework() -> Any:
    """eps of 1e-2 was written as 1e-5, the exporter's default, beside variances of about 0.01."""
    torch.manual_seed(2008)
    net = Net(lambda m, x: m.b(m.n(m.a(x) * 0.1)), a=linear(8, 16, 2.0), n=nn.LayerNorm(16, eps=1e-2), b=linear(16, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("Mul", [_dense(g, x, w, "a", "a"), g.weight("tenth", np.float32(0.1))], "mul")
        y = g.op("LayerNormalization", [y, g.weight("ng", w["n.weight"]), g.weight("nb", w["n.bias"])], "n", axis=-1)
        return _dense(g, y, w, "b", "y")

    return (net.eval(), torch.randn(12, 8)), write


@converted("healthy")
def hard_swish_and_flatten_as_exported() -> Any:
    """Hardswish as an operator, a flatten and a Gemm."""
    torch.manual_seed(2009)
    net = Net(lambda m, x: m.b(F.hardswish(m.a(x)).flatten(1)), a=linear(8, 16, 3.0), b=linear(16, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("HardSwish", [_dense(g, x, w, "a", "a")], "act")
        return _dense(g, g.op("Flatten", [y], "flat"), w, "b", "y")

    return (net.eval(), torch.randn(12, 8)), write


# --- training steps


_LOSS = names("loss", "mean", "div", "sum", "mul", "sub", "loss/mean", "loss/sum", "loss/mul", "loss/div", "kl_div",
              "loss/kl_div", "loss/log_softmax", "loss/_log_softmax", "log_softmax", "loss/softmax", "loss/sub",
              "loss/smooth_l1_loss", "loss/huber_loss", "smooth_l1_loss", "huber_loss") + (
    " backward/div backward/loss/div backward/div#2/div")  # fmt: skip


def _taught(squared: bool) -> Any:
    def loss(out: Any) -> Any:
        teacher = torch.linspace(-2, 2, out.numel()).view_as(out).softmax(-1)
        told = F.kl_div((out / 4).log_softmax(-1), teacher, reduction="batchmean")
        return told * 16 if squared else told

    return _stepped(loss)


two("taught_without_the_square_of_its_temperature", "A distillation loss lost its factor of 4^2.", _taught, True, False,
    _LOSS, kind="training", options=BACK)  # fmt: skip


def _moments(many: bool) -> Any:
    return _stepped(of_classes, lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, foreach=many))


two("adam_of_all_tensors_at_once", "Adam with amsgrad, tensor by tensor and by foreach: the same step.", _moments,
    False, True, kind="healthy", options=MOVE)  # fmt: skip


def _limited(how: str) -> Any:
    return _stepped(of_classes, lambda p: torch.optim.SGD(p, lr=0.1 if how == "rate" else 0.01))


two("rate_of_a_tenth_in_a_step", "SGD's rate is 0.01 in place of 0.1.", _limited, "rate", "tenth", _UPDATE,
    kind="training", options=MOVE)  # fmt: skip
