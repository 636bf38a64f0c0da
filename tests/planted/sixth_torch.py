"""A sixth batch in PyTorch: half, autocast, INT8 and compiled modules with what people report of them, and healthy ones
that look dangerous; written and labelled before any of it was run."""

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


HALVES = "torch_bf16 torch_fp16"


def _named(who: str, extra: str = "", **more: Any) -> None:
    """Other names of the case that was registered last, in each of its modes."""
    name = CASES[-1].name
    CASES[:] = [
        replace(one, who=tuple(who.split()), extra=tuple(f"{who} {extra}".split()), **more) if one.name == name else one
        for one in CASES
    ]


@unseen("overflow", "torch_fp16", "baddbmm", "overflow", fix=True)
def heads_that_are_not_scaled() -> Any:
    """Attention by hand in heads: the product overflows before it is scaled and masked."""

    def body(m: Any, x: Any) -> Any:
        q, k, v = (part(x).reshape(2, 8, 4, 8).transpose(1, 2) for part in (m.q, m.k, m.v))
        score = q @ k.transpose(-1, -2)
        score = score * 1e-5 + m.mask
        return m.out((score.softmax(-1) @ v).transpose(1, 2).reshape(2, 8, 32))

    return Net(body, q=linear(32, 32, 400.0), k=linear(32, 32, 400.0), v=linear(32, 32), out=linear(32, 8),
               mask=torch.full((8, 8), -1e4).triu(1)), tokens()  # fmt: skip


_named("bmm matmul bmm#0")


@unseen("nan", "torch_fp16", "mul", "overflow weight_overflow infinite_constant")
def padding_row_of_a_billion() -> Any:
    """(1 - seen) * -1e9 is minus infinity in half; a row in which nothing is seen becomes NaN."""

    def body(m: Any, x: Any) -> Any:
        x = m.inside(x)
        bias = (1.0 - m.seen.to(x.dtype)) * -1e9
        score = x @ x.transpose(1, 2) * 0.1 + bias
        return m.head(score.softmax(-1) @ x)

    seen = torch.ones(2, 8, 8)
    seen[1, :, :] = 0
    return Net(body, inside=linear(32, 32), head=linear(32, 8), seen=seen), tokens()


_named("mul", "add mul#1 softmax _softmax")


@unseen("overflow", "torch_fp16", "exp", "overflow")
def softplus_written_out() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.head(torch.log(1 + torch.exp(m.inside(x))))

    return Net(body, inside=linear(32, 32, 16.0), head=linear(32, 4)), tokens()


_named("exp", "add log")


@unseen("underflow", "torch_fp16", "clamp_min div norm", "weight_underflow born underflow")
def normalised_rows_of_padding() -> Any:
    """F.normalize of rows that are 0: its epsilon of 1e-12 is 0 in half."""

    def body(m: Any, x: Any) -> Any:
        x = m.inside(x) * m.seen
        return m.head(x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12))

    seen = torch.ones(2, 8, 1)
    seen[:, 6:] = 0
    return Net(body, inside=linear(32, 32), head=linear(32, 8), seen=seen), tokens()


_named("clamp_min clamp div")


@unseen("cancellation", HALVES, "mean", "cancellation cancels amplified")
def variance_by_two_means() -> Any:
    def body(m: Any, x: Any) -> Any:
        x = m.inside(x) + 12
        mean = x.mean(-1, keepdim=True)
        var = (x * x).mean(-1, keepdim=True) - mean * mean
        return m.head((x - mean) / (var.abs() + 1e-3).sqrt())

    return Net(body, inside=linear(32, 32), head=linear(32, 8)), tokens()


_named("mean mean#1 mean#2 mul mul#1 mul#2 add sub", "abs sub#1")


@unseen("decision", "torch_bf16", "mul add _to_copy", "flips amplified coarse cancellation")
def positions_counted_in_floats() -> Any:
    """Positions up to 600, computed in the model's type and looked up: beyond 256 bfloat16 has every second alone."""

    def body(m: Any, x: Any) -> Any:
        place = m.first.to(x.dtype) + 300
        e = m.table(place.round().long())
        return m.head(torch.tanh(m.inside(x)) + e)

    return Net(body, first=torch.arange(300.0), table=nn.Embedding(700, 32), inside=linear(32, 32),
               head=linear(32, 8)), torch.randn(2, 300, 32)  # fmt: skip


_named("add round _to_copy _to_copy#1", "lift_fresh table/embedding embedding", fix=False)


@unseen("cancellation", HALVES, "cumsum", "cancellation amplified")
def window_of_a_running_sum() -> Any:
    def body(m: Any, x: Any) -> Any:
        run = torch.sigmoid(m.inside(x)).cumsum(1)
        return m.head((run[:, 8:] - run[:, :-8]) / 8)

    return Net(body, inside=linear(8, 8), head=linear(8, 4)), torch.randn(2, 600, 8)


_named("cumsum", "slice slice#1 slice#2 slice#3 sub")


# labelled status 0 at first: two runs of it in float64 differ by 49 %, so that no pass is proven
@unseen("random", "torch_bf16 torch_compile", baseline="torch_fp32", says="drops values at random", status=1)
def dropout_in_a_trained_module() -> Any:
    """Its author called F.dropout without training=self.training; both runs draw the same, so nobody is accused."""

    def body(m: Any, x: Any) -> Any:
        return m.b(F.dropout(torch.relu(m.a(x)), 0.2))

    return Net(body, a=linear(32, 32), b=linear(32, 4)), tokens()


@unseen("int8", "torch_int8", "up/linear up up/addmm", "outlier_channel coarse")
def channel_that_takes_the_range() -> Any:
    """One feature is 3000 times the others, and a small weight reads it."""

    def body(m: Any, x: Any) -> Any:
        x = m.norm(x) * m.gain
        return m.head(torch.relu(m.up(x)))

    gain = torch.ones(64)
    gain[9] = 3000.0
    up = linear(64, 64)
    with torch.no_grad():
        up.weight[:, 9] /= 3000.0
    return Net(body, norm=nn.LayerNorm(64), gain=gain, up=up, head=linear(64, 64)), tokens(64)


# the last view of `up` is the product's result as torchao 0.18 computes it
_named("up/linear up up/addmm up/_int_mm up/mm mul up/view up/view#2 up/add", "mul norm/native_layer_norm")


def tagger(order: tuple[int, ...] = (0, 1, 2, 3)) -> Any:
    torch.manual_seed(5)
    rnn = nn.LSTM(16, 16, batch_first=True)
    with torch.no_grad():
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            value = getattr(rnn, name)
            value.copy_(value.reshape(4, 16, -1)[list(order)].reshape(value.shape).clone())

    def body(m: Any, x: Any) -> Any:
        return m.head(m.rnn(x)[0])

    return Net(body, rnn=rnn, head=linear(16, 5)), tokens(16)


@unseen("files", "torch_fp32 torch_bf16", "rnn", "files_differ", base="tagger")
def gates_as_another_library_has_them() -> Any:
    return tagger((0, 2, 1, 3))


CASES[:] = [
    replace(one, who=("rnn/lstm/mkldnn_rnn_layer", "rnn/lstm", "rnn/lstm/mm"), fix=False)
    if one.name == "gates_as_another_library_has_them" else one for one in CASES
]  # fmt: skip


def pooled(count: bool = True) -> Any:
    torch.manual_seed(6)

    def body(m: Any, x: Any) -> Any:
        return m.head(m.pool(torch.relu(m.conv(x))).mean((2, 3)))

    return Net(body, conv=nn.Conv2d(3, 8, 3, padding=1), pool=nn.AvgPool2d(3, 2, 1, count_include_pad=count),
               head=linear(8, 4)), image()  # fmt: skip


@unseen("files", "torch_fp32 torch_compile", "pool/avg_pool2d", "files_differ other_arithmetic", base="pooled",
        fix=False)  # fmt: skip
def padding_that_is_not_counted() -> Any:
    return pooled(False)


def activated(how: str = "none") -> Any:
    torch.manual_seed(7)

    def body(m: Any, x: Any) -> Any:
        return m.down(m.act(m.up(x)))

    return Net(body, up=linear(32, 64, 2.0), act=nn.GELU(approximate=how), down=linear(64, 8)), tokens()


@unseen("files", "torch_fp32", "act/gelu", "files_differ other_arithmetic", base="activated", fix=False)
def gelu_by_tanh() -> Any:
    return activated("tanh")


def normed() -> Any:
    torch.manual_seed(8)
    bn = nn.BatchNorm2d(8, eps=1e-3)
    with torch.no_grad():
        bn.running_var.uniform_(2e-3, 2e-2)  # type: ignore[union-attr]
        bn.running_mean.normal_(0, 0.05)  # type: ignore[union-attr]

    def body(m: Any, x: Any) -> Any:
        return m.head(torch.relu(m.bn(m.conv(x) * 0.1)).mean((2, 3)))

    return Net(body, conv=nn.Conv2d(3, 8, 3, padding=1), bn=bn, head=linear(8, 4)).eval(), image()


BN = "bn/native_batch_norm bn/batch_norm bn/_native_batch_norm_legit_no_training"


@unseen("files", "torch_fp32 torch_autocast_bf16", BN, "files_differ other_arithmetic", base="normed", fix=False)
def epsilon_of_another_framework() -> Any:
    def smaller(_: Any) -> Any:
        return 1e-5

    return changed(normed, "bn.eps", smaller)


# --- healthy, and dangerous to look at


@unseen("healthy", f"{HALVES} torch_autocast_bf16 torch_compile")
def minus_infinity_before_a_softmax() -> Any:
    def body(m: Any, x: Any) -> Any:
        score = (m.q(x) @ m.k(x).transpose(1, 2) * 0.17).masked_fill(m.ahead, float("-inf"))
        return m.head(score.softmax(-1) @ m.v(x))

    return Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), head=linear(32, 8),
               ahead=torch.ones(8, 8).triu(1).bool()), tokens()  # fmt: skip


@unseen("healthy", f"{HALVES} torch_autocast_bf16")
def mean_of_many_positions() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.head(torch.tanh(m.inside(x)).mean(1))

    return Net(body, inside=linear(8, 32), head=linear(32, 4)), torch.randn(2, 4000, 8)


@unseen("healthy", f"{HALVES} torch_compile")
def gru_of_two_layers() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.head(m.rnn(x)[0])

    return Net(body, rnn=nn.GRU(16, 16, 2, batch_first=True), head=linear(16, 4)), tokens(16, 12)


@unseen("healthy", "torch_int8 torch_bf16")
def perceptron_with_dropout_that_is_off() -> Any:
    torch.manual_seed(2)
    parts: list[nn.Module] = []
    for _ in range(4):
        parts += [nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.5)]
    return nn.Sequential(*parts, nn.Linear(64, 8)).eval(), (tokens(64),)


@unseen("healthy", "torch_fp16 torch_autocast_bf16")
def exponentials_of_scores() -> Any:
    """A softmax by hand, from which the largest is taken first."""

    def body(m: Any, x: Any) -> Any:
        score = m.inside(x)
        e = (score - score.amax(-1, keepdim=True)).exp()
        return m.head(e / e.sum(-1, keepdim=True))

    return Net(body, inside=linear(32, 32, 4.0), head=linear(32, 4)), tokens()
