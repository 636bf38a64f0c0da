"""A twenty-second batch of PyTorch: two modules of which one was rewritten, narrow types, autocast, the compiler, files
in ONNX, training steps; written and labelled before any of it was compared.

    python tests/planted/twentysecond_torch.py [WORD …]

measures the labels without the tool, in float64, as the twenty-first's does.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.nn.functional as F
from torch import nn

from planted import fifteenth_torch, fourteenth_torch, twentyfirst_torch
from planted.eleventh_torch import layer
from planted.eleventh_torch import names as _names
from planted.fifteenth_torch import BACK, LOST
from planted.onnx_faults import Array, Graph
from planted.tenth_torch import step
from planted.torch_faults import Net, image, linear, tokens
from planted.twelfth.case import DIFFER, Thread

CASES: list[Thread] = []
BUILDS: dict[str, tuple[Any, Any]] = {}
case = functools.partial(fifteenth_torch.case, cases=CASES, module="twentysecond_torch")
converted = functools.partial(fourteenth_torch.converted, cases=CASES, module_of="twentysecond_torch")
names = functools.partial(_names, most=8)
two = functools.partial(twentyfirst_torch.two, of=globals())


def _bins(right: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.o(m.table[torch.bucketize(x, m.edges, right=right)])

    x = torch.randint(0, 9, (4, 6), generator=torch.Generator().manual_seed(5)).float()
    return Net(body, table=torch.randn(10, 16), edges=torch.arange(9.0), o=linear(16, 4)), x


_BINS = names("bucketize", "index")
two("ages_on_an_edge_put_into_the_next_bin",
    "bucketize's right is true: whole numbers on an edge fall one bin further.",
    _bins, False, True, _BINS, facts=["right"])  # fmt: skip


def _written(add: bool) -> Any:
    at = torch.randint(0, 6, (12,), generator=torch.Generator().manual_seed(6))

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        return m.b(torch.tanh(y.new_zeros(6, 16).index_put((m.at,), y, accumulate=add)))

    return Net(body, a=linear(8, 16), b=linear(16, 4), at=at), torch.randn(12, 8)


two("messages_of_which_the_last_stays", "index_put lost accumulate: of messages to one place the last stays.", _written,
    True, False, names("index_put", "index_put_", "_unsafe_index_put"), facts=["accumulate"])  # fmt: skip


def _recurrent(kind: str) -> Any:
    torch.manual_seed(2201)
    rnn = nn.RNN(8, 16, batch_first=True, nonlinearity=kind)
    return Net(lambda m, x: m.o(m.rnn(x)[0]), rnn=rnn, o=linear(16, 4)), torch.randn(2, 6, 8)


_RNN = names(*(f"rnn{part}" for part in ("", "/rnn", "/rnn_tanh", "/rnn_relu", "/tanh", "/relu", "/transpose", "/add",
                                        "/stack", "/cat")), "rnn_tanh", "rnn_relu",
             "rnn/rnn_tanh/transpose")  # fmt: skip
two("recurrence_by_relu_in_place_of_tanh", "An RNN's nonlinearity is relu.", _recurrent, "tanh", "relu", _RNN,
    facts=["relu"])  # fmt: skip


def _smaller(again: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = F.interpolate(m.c(x), scale_factor=0.6, mode="bilinear", align_corners=False, recompute_scale_factor=again)
        return m.o(torch.relu(y))

    return Net(body, c=nn.Conv2d(3, 8, 3, padding=1), o=nn.Conv2d(8, 4, 1)), torch.randn(1, 3, 13, 13)


_SMALL = names("upsample_bilinear2d", "_upsample_bilinear2d_aa", "interpolate")
two("scale_that_is_computed_again", "recompute_scale_factor: 13 pixels times 0.6 are 7, read by 13 / 7 in place of "
    "1 / 0.6.", _smaller, False, True, _SMALL, facts=[r"scale"])  # fmt: skip


def _halves(axis: int) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.a(x).transpose(1, 2) if axis == 1 else m.a(x)
        return m.o(F.glu(y, axis).sum((1, 2))[:, None] * m.gain)

    return Net(body, a=linear(16, 8), o=linear(8, 4), gain=torch.rand(8) + 0.5), torch.randn(2, 8, 16)


two("gate_along_the_axis_that_was_turned", "A gated unit along axis 1 of what was turned: the same as along the last.",
    _halves, 2, 1)  # fmt: skip


def _unit(axis: int) -> Any:
    def body(m: Any, x: Any) -> Any:
        a, b = F.normalize(m.a(x), dim=axis), F.normalize(m.b(x), dim=axis)
        return m.o(a @ b.transpose(1, 2))

    return Net(body, a=linear(16, 12, 2.0), b=linear(16, 12), o=linear(8, 4)), torch.randn(2, 8, 16)


_UNIT = names("linalg_vector_norm", "norm", "div", "clamp_min", "expand")
two("similarity_normed_along_the_words", "normalize's dim is 1, the words, in place of the features.", _unit, -1, 1,
    _UNIT, facts=["dim"])  # fmt: skip


def _mixed(swapped: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        a, b, share = m.a(x), m.b(x), torch.sigmoid(m.gate(x))
        return m.o(torch.lerp(b, a, share) if swapped else torch.lerp(a, b, share))

    parts = {one: linear(32, 16) for one in ("a", "b", "gate")}
    return Net(body, **parts, o=linear(16, 4)), tokens()


two("two_ends_of_a_mixture_exchanged", "lerp's first two arguments are exchanged.", _mixed, False, True, names("lerp"))


def _looks(swapped: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        key, v = m.kv(m.seen).chunk(2, -1)
        key, v = (v, key) if swapped else (key, v)
        return m.o((m.q(x) @ key.transpose(-1, -2) / 32**0.5).softmax(-1) @ v)

    parts = {"q": linear(32, 32, 2.0), "kv": linear(32, 64, 2.0), "o": linear(32, 8)}
    return Net(body, **parts, seen=torch.randn(2, 6, 32)), tokens()


_LOOKS = names("transpose", "expand", "view", "bmm", "matmul", "chunk", "split", "clone", "div") + " kv/view o/view"
two("keys_taken_from_the_half_of_the_values", "A packed projection's halves are values and keys in place of keys and "
    "values.", _looks, False, True, _LOOKS)  # fmt: skip


def _columns(first: str) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = F.unfold(m.c(x), 2, stride=2)
        if first == "places":
            y = y.view(2, 6, 4, -1).transpose(1, 2).reshape(2, 24, -1)
        return m.o(y.transpose(1, 2))

    return Net(body, c=nn.Conv2d(3, 6, 3, padding=1), o=linear(24, 4)), torch.randn(2, 3, 8, 8)


two("patches_with_places_before_channels", "An unfolded patch is laid out places first in place of channels first.",
    _columns, "channels", "places", names("view", "transpose", "reshape", "clone", "_unsafe_view", "unfold", "im2col")
    + " o/view o/transpose")  # fmt: skip


def _several(seventh: float) -> Any:
    """Twelve blocks; the seventh's dropout or its skip."""
    def body(m: Any, x: Any) -> Any:
        for n, one in enumerate(m.blocks):
            x = x + (seventh if n == 6 else 1.0) * one(x)
        return m.o(x)

    each = (nn.Sequential(nn.LayerNorm(32), linear(32, 64), nn.GELU(), linear(64, 32)) for _ in range(12))
    return Net(body, blocks=nn.ModuleList(each), o=linear(32, 4)), tokens()


two("seventh_of_twelve_blocks_at_a_half", "Of twelve blocks the seventh's branch is multiplied by 0.5.", _several, 1.0,
    0.5, names("mul", "add"), facts=[r"0\.5"])  # fmt: skip
two("seventh_of_twelve_blocks_at_one", "Of twelve blocks the seventh's branch is multiplied by 1.", _several, 1, 1.0)


def _convolved(how: str) -> Any:
    def body(m: Any, x: Any) -> Any:
        if how == "conv":
            y = F.conv1d(x, m.w, m.shift, padding=1)
        else:
            y = F.pad(x, (1, 1)).unfold(2, 3, 1).permute(0, 2, 1, 3).flatten(2) @ m.w.flatten(1).t() + m.shift
            y = y.transpose(1, 2)
        return m.o(torch.relu(y).transpose(1, 2))

    return Net(body, w=nn.Parameter(torch.randn(12, 6, 3) / 4), shift=nn.Parameter(torch.randn(12)),
               o=linear(12, 4)), torch.randn(2, 6, 10)  # fmt: skip


two("filters_of_one_dimension_by_windows", "conv1d, and its windows times a matrix.", _convolved, "conv", "windows")


def _groups(how: str) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.c(x)
        if how == "norm":
            y = m.n(y)
        else:
            y = F.layer_norm(y.view(2, 2, -1), [4 * 16 * 16]).view_as(y)
            y = y * m.n.weight[:, None, None] + m.n.bias[:, None, None]
        return m.o(torch.relu(y))

    net = Net(body, c=nn.Conv2d(3, 8, 3, padding=1), n=nn.GroupNorm(2, 8), o=nn.Conv2d(8, 4, 1))
    with torch.no_grad():
        net.n.weight.uniform_(0.5, 1.5), net.n.bias.normal_()
    return net, image()


two("group_norm_by_a_layer_norm_of_its_groups", "GroupNorm, and a layer norm of each group with gain and shift behind.",
    _groups, "norm", "layer")  # fmt: skip

# --- narrow types


@case("formula", "formula", "torch_bf16", names("sub", "mul", "add"), f"{LOST} stepped found_by_repair reads_rounded",
      extra=names("mul", "add", "sub") + " a/view " + layer("a"))  # fmt: skip
def place_on_a_clock_of_minutes() -> Any:
    """Minutes of a week, 10,080, less the start of the hour: bfloat16 steps by 32 and 64 there."""
    torch.manual_seed(2210)

    def body(m: Any, x: Any) -> Any:
        minute = torch.sigmoid(m.a(x)) * 8 + 9900
        return m.o((minute - 9900) * 0.25)

    return Net(body, a=linear(32, 16), o=linear(16, 4)), tokens()


@case("overflow", "overflow", "torch_fp16", names("prod", "cumprod", "mul"), "overflow born", extra=names(
    "prod", "cumprod", "mul", "reciprocal", "pow", "div", "log"))  # fmt: skip
def product_of_twelve_odds() -> Any:
    """A product of twelve odds of 1 to 8, up to 1e8, and its logarithm."""
    torch.manual_seed(2211)

    def body(m: Any, x: Any) -> Any:
        return m.o(torch.log((torch.sigmoid(m.a(x)) * 7 + 1).prod(1)))

    return Net(body, a=linear(32, 16), o=linear(16, 4)), torch.randn(2, 12, 32)


@case("healthy", "healthy", "torch_autocast_bf16")
def twelve_blocks_under_autocast() -> Any:
    """Twelve blocks of a norm, two layers and a skip."""
    torch.manual_seed(2212)
    return _several(1.0)


@case("healthy", "healthy", "torch_fp16")
def squares_that_stay_below_the_end() -> Any:
    """Squares of up to 4e4 under a root."""
    torch.manual_seed(2213)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x).clamp(-200, 200)
        return m.o(torch.sqrt(y * y + 1) * 0.05)

    return Net(body, a=linear(32, 16, 60.0), o=linear(16, 4)), tokens()


@case("overflow", "overflow", "torch_autocast_fp16", names("matmul", "bmm", "baddbmm"), "overflow range_inside",
      extra=names("matmul", "bmm", "mul", "div", "softmax", "expand", "view", "_unsafe_view"))  # fmt: skip
def scores_divided_behind_their_product_under_autocast() -> Any:
    """Queries and keys of 60 are multiplied in half, 64 of them: 2e5, and then divided by 64 in place of before."""
    torch.manual_seed(2214)

    def body(m: Any, x: Any) -> Any:
        score = (m.q(x) @ m.k(x).transpose(-1, -2)) / 6400
        return m.o(score.softmax(-1) @ x)

    return Net(body, q=linear(32, 64, 60.0), k=linear(32, 64, 60.0), o=linear(32, 4)), tokens(scale=2.0)


@case("healthy", "healthy", "torch_compile")
def grouped_heads_compiled() -> Any:
    """Six heads of queries and two of keys by repeat_interleave, a root mean square, a gated unit."""
    torch.manual_seed(2215)

    def body(m: Any, x: Any) -> Any:
        h = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        q, key, v = (one(h).view(2, 8, -1, 4).transpose(1, 2) for one in (m.q, m.k, m.v))
        key, v = key.repeat_interleave(3, 1), v.repeat_interleave(3, 1)
        y = F.scaled_dot_product_attention(q, key, v, is_causal=True).transpose(1, 2).reshape(2, 8, 24)
        return m.o(F.silu(m.up(y)) * m.gate(y))

    return Net(body, q=linear(32, 24), k=linear(32, 8), v=linear(32, 8), up=linear(24, 32), gate=linear(24, 32),
               o=linear(32, 4)), tokens()  # fmt: skip


@case("healthy", "healthy", "torch_compile")
def running_extremes_compiled() -> Any:
    """A running largest, a running sum, a sort and a pick along time."""
    torch.manual_seed(2216)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        y = y.cummax(1).values + 0.1 * y.cumsum(1) + y.sort(1).values
        return m.o(y.gather(1, m.at.expand(2, 4, 16)))

    return Net(body, a=linear(32, 16), o=linear(16, 4), at=torch.tensor([6, 1, 3, 3])[None, :, None]), tokens()


# --- files in ONNX


@converted("convert", names("mish", "tanh", "softplus", "log1p", "mul") + " act", f"{DIFFER} unfound",
           extra=names("mish", "tanh", "softplus", "mul", "view") + " act sp t b/view")  # fmt: skip
def mish_whose_softplus_became_a_relu() -> Any:
    """x tanh(softplus x) was written with a Relu in place of the softplus."""
    torch.manual_seed(2218)
    net = Net(lambda m, x: m.b(F.mish(m.a(x))), a=linear(16, 16), b=linear(16, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = fourteenth_torch._dense(g, x, w, "a", "h")
        y = g.op("Mul", [y, g.op("Tanh", [g.op("Relu", [y], "sp")], "t")], "act")
        return fourteenth_torch._dense(g, y, w, "b", "y")

    return (net.eval(), torch.randn(6, 16)), write


@converted("healthy")
def mish_taken_apart() -> Any:
    """x tanh(softplus x) by its three operators."""
    torch.manual_seed(2218)
    net = Net(lambda m, x: m.b(F.mish(m.a(x))), a=linear(16, 16), b=linear(16, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = fourteenth_torch._dense(g, x, w, "a", "h")
        y = g.op("Mul", [y, g.op("Tanh", [g.op("Softplus", [y], "sp")], "t")], "act")
        return fourteenth_torch._dense(g, y, w, "b", "y")

    return (net.eval(), torch.randn(6, 16)), write


# --- training steps


def _stepped(body: Any, loss: Any, **parts: Any) -> Any:
    return step(body, loss, None, a=lambda: linear(16, 32), b=lambda: linear(32, 6), **parts)


_BEHIND = names("detach", "sub", "mul", "pow", "loss/sub", "loss/pow", "loss/mean", "backward/add", "mse_loss") + (
    " backward/tanh/tanh_backward backward/b/addmm/mm backward/b/addmm/mm#2 backward/b/addmm/sum backward/a/addmm/mm"
    " backward/a/addmm/mm#2 backward/a/addmm/sum backward/loss/tanh/tanh_backward backward/loss/add"
    " backward/b/addmm/mm#1 backward/loss/mse_loss backward/loss/pow backward/loss/sub"
    " backward/mse_loss backward/neg backward/loss/neg"
    " backward/mul backward/loss/mul")  # fmt: skip


def _taught(stopped: bool) -> Any:
    def loss(out: Any) -> Any:
        wanted = torch.tanh(out * 2)
        return F.mse_loss(out, wanted.detach() if stopped else wanted)

    return _stepped(lambda m, x: m.b(torch.tanh(m.a(x))), loss)


two("target_through_which_gradients_flow",
    "A target made of the output lost its detach: the loss is the same, gradients "
    "are not.", _taught, True, False, _BEHIND, kind="training", options=BACK)  # fmt: skip


def _classes(how: str) -> Any:
    def loss(out: Any) -> Any:
        wanted = torch.arange(len(out)) % 6
        if how == "one":
            return F.cross_entropy(out, wanted)
        return -(out.log_softmax(1) * F.one_hot(wanted, 6)).sum(1).mean()

    return _stepped(lambda m, x: m.b(torch.tanh(m.a(x))), loss)


two("cross_entropy_by_hand", "cross_entropy, and -log_softmax times one-hot rows.", _classes, "one", "hand",
    kind="healthy", options=BACK)  # fmt: skip


def main() -> int:
    twentyfirst_torch.CASES[:], twentyfirst_torch.BUILDS = CASES, BUILDS
    vars(twentyfirst_torch).update({one.name: globals()[one.name] for one in CASES})
    return twentyfirst_torch.main()


if __name__ == "__main__":
    raise SystemExit(main())
