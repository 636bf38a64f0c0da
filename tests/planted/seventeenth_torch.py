"""A seventeenth batch of PyTorch: two modules of which one was rewritten, exported programs and traces, narrow types,
autocast, the compiler, torchao, files in ONNX, and training steps; written and labelled before any of it was compared.

    python tests/planted/seventeenth_torch.py [WORD …]

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

CASES: list[Thread] = []
case = functools.partial(fifteenth_torch.case, cases=CASES, module="seventeenth_torch")
converted = functools.partial(fourteenth_torch.converted, cases=CASES, module_of="seventeenth_torch")
OTHER = f"{DIFFER} unfound"

# --- two modules that should be one


def _states(exact: bool) -> Any:
    """A state-space layer of eight channels of four states each."""
    torch.manual_seed(1701)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        size = F.softplus(m.step(x))[..., None]
        keep = (size * m.rate).exp()
        fed = ((keep - 1) / m.rate if exact else size) * m.b(x)[:, :, None] * y[..., None]
        state, told = torch.zeros_like(fed[:, 0]), []
        for at in range(8):
            state = keep[:, at] * state + fed[:, at]
            told.append((state * m.c(x)[:, at, None]).sum(-1))
        return m.o(torch.stack(told, 1))

    return Net(body, a=linear(32, 8), step=linear(32, 8), b=linear(32, 4), c=linear(32, 4), o=linear(8, 8),
               rate=-torch.arange(1.0, 5.0).repeat(8, 1)), tokens()  # fmt: skip


def state_held_over_a_step() -> Any:
    return _states(True)


_HELD = names("mul", "sub", "div", "exp", "unsqueeze", "stack", most=6)  # a stretch is called by its last row


@case("state-spaces/mamba#19", "port", PORT, _HELD, OTHER, "state_held_over_a_step", extra=_HELD)
def state_by_a_step_of_euler() -> Any:
    """What a state is fed with is (exp(dt A) - 1)/A B x in one model and dt B x in the other, with the same decay."""
    return _states(False)


def _normed(over: str) -> Any:
    torch.manual_seed(1702)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        y = m.n(y) if over == "picture" else F.layer_norm(
            y.permute(0, 2, 3, 1), (16,), m.n.weight, m.n.bias, 1e-5).permute(0, 3, 1, 2)  # fmt: skip
        return m.b(F.gelu(y))

    made = nn.GroupNorm(1, 16)
    with torch.no_grad():
        made.weight.normal_(1, 0.3)
        made.bias.normal_()
    return Net(body, a=nn.Conv2d(3, 16, 3), n=made, b=nn.Conv2d(16, 4, 1)), image()


def norm_of_each_pixel() -> Any:
    return _normed("pixel")


_GROUP = names(
    "n", "n/group_norm", "group_norm", "n/native_group_norm", "layer_norm", "native_layer_norm", "permute",
    "b/convolution",  # the stretch's last row
)  # fmt: skip


@case("GroupNorm(1, C) for ConvNeXt", "port", PORT, _GROUP, OTHER, "norm_of_each_pixel", extra=_GROUP,
      facts=[r"group_norm"])  # fmt: skip
def norm_of_the_whole_picture() -> Any:
    """A group norm of one group in place of a layer norm over the channels of each pixel, same gains."""
    return _normed("picture")


def _sloped(near: bool) -> Any:
    torch.manual_seed(1703)
    eight = 2.0 ** -torch.arange(1.0, 9.0)
    right = torch.cat([2.0 ** (-2 * torch.arange(1.0, 5.0)), eight[::2][:2]])
    slopes = right if near else 2.0 ** (-8 * torch.arange(1.0, 7.0) / 6)

    def body(m: Any, x: Any) -> Any:
        q, k, v = (one(x).view(2, 8, 6, 8).transpose(1, 2) for one in (m.q, m.k, m.v))
        at = torch.arange(8)
        far = (at[None] - at[:, None]).clamp(max=0).to(x.dtype)
        score = q @ k.transpose(-1, -2) / 8**0.5 + m.slopes[:, None, None] * far
        score = score.masked_fill(at[None] > at[:, None], float("-inf"))
        return m.o((score.softmax(-1) @ v).transpose(1, 2).reshape(2, 8, 48))

    return Net(body, q=linear(48, 48), k=linear(48, 48), v=linear(48, 48), o=linear(48, 8), slopes=slopes), tokens(48)


def slopes_of_four_heads_and_two_between() -> Any:
    return _sloped(True)


_SLOPE = names("mul", "unsqueeze", "view", "add", "slice")


@case("ALiBi with six heads", "port", PORT, _SLOPE, "files_differ", "slopes_of_four_heads_and_two_between",
      extra=_SLOPE, facts=[r"slopes"])  # fmt: skip
def slopes_of_six_in_a_row() -> Any:
    """ALiBi's slopes of six heads: a row of powers of 2^(-8/6), where the trainer takes those of four heads and every
    second one of eight."""
    return _sloped(False)


def _spelled(blank_between: bool) -> Any:
    torch.manual_seed(1704)

    def body(m: Any, x: Any) -> Any:
        score = m.a(torch.tanh(x))
        best = score.argmax(-1)
        if blank_between:
            before = F.pad(best, (1, 0), value=0)[:, :-1]
        else:  # the last symbol that was no blank
            at = torch.where(best != 0, torch.arange(best.shape[1]), 0).cummax(1)[0]
            before = F.pad(best.gather(1, at), (1, 0), value=0)[:, :-1]
        kept = (best != 0) & (best != before)
        return torch.where(kept, best, 0), score.log_softmax(-1)

    return Net(body, a=linear(8, 4, 3.0)), torch.randn(2, 60, 8)


def blank_that_parts_two_alike() -> Any:
    return _spelled(True)


_KEPT = names("where", "ne", "bitwise_and", "__and__", "logical_and", "pad", "constant_pad_nd", "slice", "gather",
              "cummax", "arange")  # fmt: skip


@case("CTC's greedy decoder", "port", PORT, _KEPT, OTHER, "blank_that_parts_two_alike", extra=_KEPT + " output[0]")
def blanks_taken_out_before_repeats() -> Any:
    """A greedy CTC decoder that takes blanks out before repeats: of two alike with a blank between one is dropped. The
    scores are equal."""
    return _spelled(False)


def _joined(tanh: bool) -> Any:
    torch.manual_seed(1705)

    def body(m: Any, heard: Any, said: Any) -> Any:
        y = m.a(heard)[:, :, None] + m.b(said)[:, None]
        return m.o(torch.tanh(y) if tanh else torch.relu(y)).log_softmax(-1)

    return Net(body, a=linear(16, 32), b=linear(16, 32), o=linear(32, 12, 3.0)), (
        torch.randn(2, 6, 16), torch.randn(2, 4, 16))  # fmt: skip


def transducer_joined_by_tanh() -> Any:
    return _joined(True)


_JOIN = names("tanh", "relu", "o/view", "o/addmm", "o")


@case("RNN-T's joiner", "port", PORT, _JOIN, OTHER, "transducer_joined_by_tanh", extra=_JOIN, facts=[r"relu"])
def transducer_joined_by_relu() -> Any:
    """The joiner of a transducer has a ReLU where the trainer had a tanh."""
    return _joined(False)


def _local(chunks: bool) -> Any:
    torch.manual_seed(1706)

    def body(m: Any, x: Any) -> Any:
        q, k, v = (one(x).view(2, 16, 4, 8).transpose(1, 2) for one in (m.q, m.k, m.v))
        at = torch.arange(16)
        seen = at[None] <= at[:, None]
        seen = seen & (at[None] // 4 == at[:, None] // 4 if chunks else at[:, None] - at[None] < 4)
        score = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~seen, float("-inf"))
        return m.o((score.softmax(-1) @ v).transpose(1, 2).reshape(2, 16, 32))

    return Net(body, q=linear(32, 32, 2.0), k=linear(32, 32, 2.0), v=linear(32, 32), o=linear(32, 8)), tokens(length=16)


def chunks_that_see_themselves() -> Any:
    return _local(True)


_SEEN = names("masked_fill", "eq", "lt", "sub", "bitwise_and", "__and__", "bitwise_not", "floor_divide", "div",
              "where", "softmax", "__invert__")  # fmt: skip


@case("Llama 4's chunked attention", "port", PORT, _SEEN, OTHER, "chunks_that_see_themselves", extra=_SEEN)
def window_in_place_of_chunks() -> Any:
    """A sliding window of four tokens where the trainer attends within chunks of four."""
    return _local(False)


def _turn(y: Any, first: int = 0) -> Any:
    angle = (torch.arange(y.shape[-2]) + first)[:, None] * 100.0 ** (-torch.arange(0, 8, 2) / 8)
    cos, sin = (torch.cat([one, one], -1).to(y.dtype) for one in (angle.cos(), angle.sin()))
    return y * cos + torch.cat([-y[..., 4:], y[..., :4]], -1) * sin


def _unit_before(norm_first: bool) -> Any:
    torch.manual_seed(1707)

    def length(y: Any, gain: Any) -> Any:
        return F.rms_norm(y, (8,), gain, 1e-6)

    def body(m: Any, x: Any) -> Any:
        q, k, v = (one(x).view(2, 8, 4, 8).transpose(1, 2) for one in (m.q, m.k, m.v))
        if norm_first:
            q, k = _turn(length(q, m.gq)), _turn(length(k, m.gk))
        else:
            q, k = length(_turn(q), m.gq), length(_turn(k), m.gk)
        return m.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 8, 32))

    return Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), o=linear(32, 8),
               gq=torch.linspace(0.3, 3, 8), gk=torch.linspace(2, 0.5, 8)), tokens()  # fmt: skip


def queries_normed_before_they_turn() -> Any:
    return _unit_before(True)


_TURNED = names("rms_norm", "_fused_rms_norm", "mul", "add", "cat", "scaled_dot_product_attention", "neg", "slice",
                "transpose", "rsqrt", "_scaled_dot_product_flash_attention_for_cpu", most=8)  # fmt: skip


@case("QK norm and rope", "port", PORT, _TURNED, OTHER, "queries_normed_before_they_turn", extra=_TURNED)
def queries_normed_after_they_turned() -> Any:
    """Queries and keys are normed after the rotation and not before it: gains differ by channel, so that both do not
    commute."""
    return _unit_before(False)


def _biased(both: bool) -> Any:
    torch.manual_seed(1708)

    def body(m: Any, x: Any) -> Any:
        share = torch.sigmoid(m.router(x))
        moved = share + m.level
        picked = moved.topk(2, -1)[1]
        weight = (moved if both else share).gather(-1, picked)
        weight = weight / weight.sum(-1, keepdim=True)
        every = torch.stack([one(x) for one in m.experts], -2)
        return m.o((every.gather(-2, picked[..., None].expand(*picked.shape, 32)) * weight[..., None]).sum(-2))

    return Net(body, router=linear(32, 6, 2.0), level=torch.randn(6) * 0.4, experts=nn.ModuleList(
        linear(32, 32) for _ in range(6)), o=linear(32, 8)), tokens()  # fmt: skip


def level_that_only_chooses() -> Any:
    return _biased(False)


_GATE = names("gather", "div", "add", "sum", "mul", "topk", "sigmoid")


@case("DeepSeek V3's e_score_correction_bias", "port", PORT, _GATE, OTHER, "level_that_only_chooses", extra=_GATE)
def level_that_weighs_too() -> Any:
    """The level that balances experts is to choose them only; here it is in their weights as well."""
    return _biased(True)


def _continued(again: bool) -> Any:
    torch.manual_seed(1709)

    def body(m: Any, x: Any) -> Any:
        q, k, v = (one(x).view(2, 4, 4, 8).transpose(1, 2) for one in (m.q, m.k, m.v))
        if again:
            keys = _turn(torch.cat([m.keys.expand(2, 4, 6, 8), k], 2))
        else:
            keys = torch.cat([m.keys.expand(2, 4, 6, 8), _turn(k, 6)], 2)
        values = torch.cat([m.values.expand(2, 4, 6, 8), v], 2)
        score = _turn(q, 6) @ keys.transpose(-1, -2) / 8**0.5
        return m.o((score.softmax(-1) @ values).transpose(1, 2).reshape(2, 4, 32))

    return Net(body, q=linear(32, 32, 2.0), k=linear(32, 32, 2.0), v=linear(32, 32), o=linear(32, 8),
               keys=torch.randn(1, 4, 6, 8), values=torch.randn(1, 4, 6, 8)), tokens(length=4)  # fmt: skip


def keys_turned_before_they_are_kept() -> Any:
    return _continued(False)


_KEYS = names("cat", "add", "mul", "neg", "slice", "transpose", "matmul", "bmm", "expand", "view", "div", most=8)


@case("rope on a cache", "port", PORT, _KEYS, OTHER, "keys_turned_before_they_are_kept", extra=_KEYS)
def keys_turned_once_more() -> Any:
    """Keys in the cache are turned already, and the rewritten step turns all of them again with the new one."""
    return _continued(True)


def _short(causal: bool) -> Any:
    torch.manual_seed(1710)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x).transpose(1, 2)
        y = F.conv1d(F.pad(y, (4, 0) if causal else (2, 2)), m.kernel, groups=16)
        return m.b(F.silu(y.transpose(1, 2)))

    return Net(body, a=linear(32, 16), kernel=torch.randn(16, 1, 5), b=linear(16, 8)), tokens()


def convolution_of_the_past() -> Any:
    return _short(True)


_PAD = names("pad", "constant_pad_nd", "conv1d", "convolution")


@case("causal_conv1d", "port", PORT, _PAD, OTHER, "convolution_of_the_past", extra=_PAD, facts=[r"pad"])
def convolution_that_sees_two_ahead() -> Any:
    """A causal convolution of five taps with its border split: two before, two behind."""
    return _short(False)


def _bounded(kept: bool) -> Any:
    torch.manual_seed(1711)
    wide = linear(32, 32, 3.0)
    if kept:
        with torch.no_grad():
            wide.weight.div_(torch.linalg.svdvals(wide.weight)[0])
    return Net(lambda m, x: m.o(torch.tanh(m.wide(torch.tanh(m.a(x))))), a=linear(32, 32), wide=wide,
               o=linear(32, 8)), tokens()  # fmt: skip


def layer_by_its_largest_singular_value() -> Any:
    return _bounded(True)


@case("remove_parametrizations(leave_parametrized=False)", "port", PORT, layer("wide"), "files_differ",
      "layer_by_its_largest_singular_value", extra=layer("wide"), facts=[r"wide\.weight", r"times|scal|factor|larger"])
def layer_before_its_spectral_norm() -> Any:
    """Spectral normalisation was taken off without being applied: the weight is larger by one factor."""
    return _bounded(False)


def _heard(in_steps: bool) -> Any:
    torch.manual_seed(1712)

    def body(m: Any, x: Any) -> Any:
        q, k, v = m.q(x), m.k(x), m.v(x)
        if in_steps:
            state, told = torch.zeros(2, 32, 32).to(x), []
            for at in range(8):
                state = 0.9 * state + k[:, at, :, None] * v[:, at, None]
                told.append((q[:, at, None] @ state)[:, 0])
            y = torch.stack(told, 1)
        else:
            at = torch.arange(8.0).to(x.dtype)
            far = (at[:, None] - at[None])
            y = ((q @ k.transpose(1, 2)) * torch.where(far >= 0, 0.9**far.clamp(min=0), 0.0)) @ v
        return m.o(y)

    return Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), o=linear(32, 8)), tokens()


def retention_at_once() -> Any:
    return _heard(False)


@case("RetNet's two forms", "healthy", PORT, base="retention_at_once")
def retention_step_by_step() -> Any:
    """Retention at once and as a recurrence: the same up to float32's rounding."""
    return _heard(True)


def _sent(one_by_one: bool) -> Any:
    torch.manual_seed(1713)

    def body(m: Any, x: Any) -> Any:
        y = x.reshape(16, 32)
        weight, picked = m.router(y).softmax(-1).topk(2, -1)
        if not one_by_one:
            share = torch.zeros(16, 4).to(y).scatter(1, picked, weight)
            return m.o((torch.stack([one(y) for one in m.experts], 1) * share[..., None]).sum(1))
        out = torch.zeros_like(y)
        for at, expert in enumerate(m.experts):
            row, place = (picked == at).nonzero(as_tuple=True)
            out.index_add_(0, row, expert(y[row]) * weight[row, place, None])
        return m.o(out)

    return Net(body, router=linear(32, 4, 3.0), experts=nn.ModuleList(
        nn.Sequential(linear(32, 64), nn.SiLU(), linear(64, 32)) for _ in range(4)), o=linear(32, 8)), tokens()


def experts_of_all_tokens() -> Any:
    return _sent(False)


@case("grouped dispatch", "healthy", PORT, base="experts_of_all_tokens")
def experts_of_their_own_tokens() -> Any:
    """Each expert reads only the tokens that were sent to it, in place of all of them times a share of 0."""
    return _sent(True)


def _patched(unfolded: bool) -> Any:
    torch.manual_seed(1714)

    def body(m: Any, x: Any) -> Any:
        if not unfolded:
            y = m.a(x)
        else:
            y = m.a.weight.reshape(12, -1) @ F.unfold(x, 3, padding=1) + m.a.bias[:, None]
            y = y.reshape(2, 12, 16, 16)
        return m.b(F.silu(y))

    return Net(body, a=nn.Conv2d(3, 12, 3, padding=1), b=nn.Conv2d(12, 4, 1)), image()


def convolution_of_the_library() -> Any:
    return _patched(False)


@case("im2col", "healthy", PORT, base="convolution_of_the_library")
def convolution_as_a_product_of_patches() -> Any:
    """A convolution as unfold and one matrix product."""
    return _patched(True)


# --- exported programs and traces


class _Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = linear(32, 16), linear(16, 8)
        self.register_buffer("state", torch.zeros(2, 8, 16))

    def forward(self, x: Any) -> Any:
        self.state.mul_(0.5).add_(torch.tanh(self.a(x)))
        return self.b(self.state)


def state_in_a_buffer() -> Any:
    torch.manual_seed(1715)
    return _Remembering(), tokens()


@case("buffers that are changed", "healthy", PORT, base="state_in_a_buffer", file="exported")
def exported_with_its_state() -> Any:
    """A module that writes a buffer in each call, and the program that was exported of it, where the new buffer is an
    output. Both begin with a buffer of 0."""
    return state_in_a_buffer()


def _by_length(length: int) -> Any:
    torch.manual_seed(1716)

    def body(m: Any, x: Any) -> Any:
        q, k, v = m.q(x), m.k(x), m.v(x)
        size = float(np.log(x.shape[1]) / np.log(4))  # more words, sharper
        return m.o((q @ k.transpose(1, 2) * (size / 32**0.5)).softmax(-1) @ v)

    net = Net(body, q=linear(32, 32, 3.0), k=linear(32, 32, 3.0), v=linear(32, 32), o=linear(32, 8))
    return net, tokens(length=16), tokens(length=length)


def scale_by_the_length_at_hand() -> Any:
    return _by_length(16)[:2]


_SCALE = names("mul", "softmax", "matmul", "bmm", "div")


@case("torch.jit.trace and a Python number", "port", PORT, _SCALE, OTHER, "scale_by_the_length_at_hand",
      file="traced", extra=_SCALE, facts=[r"0\.17|0\.35"])  # fmt: skip
def scale_of_the_length_that_was_traced() -> Any:
    """Scores are scaled by the logarithm of the length, which a trace of four words keeps as a constant: 0.1768 where
    16 words want 0.3536."""
    return _by_length(4)


# --- narrow types, autocast, torchao, the compiler


@case("forward algorithm in bfloat16", "long", "torch_bf16", names("logaddexp", "add", "logsumexp", "sub"),
      LOST, extra=names("logaddexp", "add", "sub", "select", "log_softmax", most=400),
      offered=True, anyone=True)  # fmt: skip
def chance_of_two_hundred_frames(mended: bool = False) -> Any:
    """Two states' log chances are carried over 200 frames to about -400, where bfloat16's steps are 2; what is told is
    the chance of one state beside the other's."""

    def body(m: Any, x: Any) -> Any:
        frame = m.a(x).log_softmax(-1)
        frame = frame.double() if mended else frame
        a, b = frame[:, 0, 0], frame[:, 0, 1]
        for at in range(1, x.shape[1]):
            stay, move = torch.logaddexp(a - 0.3, b - 1.3), torch.logaddexp(b - 0.4, a - 1.1)
            a, b = stay + frame[:, at, 0], move + frame[:, at, 1]
        return torch.sigmoid((a - b).to(x.dtype))

    torch.manual_seed(1720)
    return Net(body, a=linear(8, 12, 2.0)), torch.randn(4, 200, 8)


@case("chunked linear attention", "overflow", "torch_fp16", names("exp", "neg", "mul", "div"), "overflow",
      extra=names("exp", "neg", "mul", "div", "matmul", "bmm"), offered=True)  # fmt: skip
def decay_divided_out_of_a_chunk(mended: bool = False) -> Any:
    """Keys are divided by what has decayed since the chunk began: exp of up to 16 is beyond 65504, and times the
    queries' exp(-16) would be right again."""

    def body(m: Any, x: Any) -> Any:
        q, k, v = m.q(x), m.k(x), m.v(x)
        gone = (-F.softplus(m.rate)).cumsum(0)[None, :, None]
        gone = gone.float() if mended else gone
        score = (q * gone.exp()) @ (k * (-gone).exp()).transpose(1, 2)
        return m.o(score.tril().to(x.dtype) @ v)

    torch.manual_seed(1721)
    return Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), o=linear(32, 8),
               rate=torch.full((16,), 0.65)), tokens(length=16)  # fmt: skip


@case("Sinkhorn in half", "underflow", "torch_fp16", names("exp", "div", "mul", "neg"),
      f"underflow {COARSE} born overflow",
      extra=names("exp", "div", "mul", "neg", "matmul", "mv", "sum", "reciprocal", most=12), offered=True)  # fmt: skip
def kernel_of_a_transport_plan(mended: bool = False) -> Any:
    """exp(-cost / 0.02) of costs of a third to 1 is at most 1e-7 and mostly 0 in half; scalings divide by sums of
    these."""

    def body(m: Any, x: Any) -> Any:
        y, z = m.a(x), m.b(x)
        cost = (y[:, :, None] - z[:, None]).square().mean(-1) + 0.33
        cost = cost.float() if mended and cost.dtype == torch.float16 else cost
        kernel = (cost / -0.02).exp()
        u = v = torch.ones_like(kernel[:, 0])
        for _ in range(3):
            u = 1 / (kernel * v[:, None]).sum(-1)
            v = 1 / (kernel * u[:, :, None]).sum(1)
        return m.o((u[:, :, None] * kernel * v[:, None]).to(x.dtype))

    torch.manual_seed(1722)
    return Net(body, a=linear(8, 4, 0.3), b=linear(8, 4, 0.3), o=linear(12, 4)), torch.randn(2, 12, 8)


@case("style loss under autocast", "overflow", "torch_autocast_fp16", names("matmul", "bmm"), "overflow",
      extra=names("matmul", "bmm", "div"), offered=True)  # fmt: skip
def products_of_all_pixels(mended: bool = False) -> Any:
    """A matrix of products over 4096 pixels of size 6 reaches 1e5 before it is divided by their count."""

    def body(m: Any, x: Any) -> Any:
        y = torch.relu(m.a(x)).flatten(2)
        with torch.autocast("cpu", enabled=False) if mended else torch.no_grad():
            y = y.float() if mended else y
            gram = y @ y.transpose(1, 2)
        return m.b((gram / 4096).to(x.dtype))

    torch.manual_seed(1723)
    a = nn.Conv2d(3, 8, 3, padding=1)
    with torch.no_grad():
        a.weight.mul_(8)
        a.bias.fill_(5.0)
    return Net(body, a=a, b=linear(8, 4)), torch.randn(1, 3, 64, 64)


@case("corners of boxes", "cancellation", "torch_autocast_bf16", layer("corner") + " " + names("sub"),
      f"{LOST} {COARSE} amplified", extra=layer("corner", "a", "b") + " " + names("sub", "slice", "tanh", "select"),
      offered=True)  # fmt: skip
def sizes_from_the_corners_of_a_large_picture(mended: bool = False) -> Any:
    """A layer gives both corners of a box at 2000 pixels and more, in steps of 8 or 16; the widths of about 20 are
    their difference."""

    def body(m: Any, x: Any) -> Any:
        y = torch.tanh(m.a(x))
        with torch.autocast("cpu", enabled=False) if mended else torch.no_grad():
            y = m.corner(y.to(x.dtype) if mended else y)
        return torch.tanh((y[..., 2:] - y[..., :2]) * 0.05)

    torch.manual_seed(1724)
    corner = linear(32, 4)
    with torch.no_grad():
        corner.weight.mul_(20)
        corner.weight[2:] = corner.weight[:2] + 3 * torch.randn(2, 32)
        corner.bias.copy_(torch.tensor([2400.0, 2100.0, 2412.0, 2110.0]))
    return Net(body, a=linear(16, 32), corner=corner), tokens(16)


@case("an expert's load", "healthy", "torch_bf16")
def tokens_counted_for_each_expert() -> Any:
    """The 4096 tokens of four experts are counted by adding ones in bfloat16: torch's scatter_add keeps its sums in
    float32, so that counts beyond 256 are right up to one rounding. That it stops at 256 is false."""

    def body(m: Any, x: Any) -> Any:
        share = m.router(x).softmax(-1)
        count = torch.zeros(4, dtype=x.dtype).scatter_add(0, m.which, torch.ones(4096, dtype=x.dtype))
        return count / 4096 * share.mean(0) * 4

    torch.manual_seed(1725)
    which = torch.multinomial(torch.tensor([0.5, 0.3, 0.15, 0.05]), 4096, replacement=True)
    return Net(body, router=linear(16, 4, 2.0), which=which), torch.randn(4096, 16)


@case("massive activations", "int8", "torch_int8", layer("b") + " b/view#2", f"{COARSE} packed reads_rounded",
      extra=layer("b") + " b/view#2 " + names("mul"), offered=True)  # fmt: skip
def unit_of_a_gate_that_is_huge(mended: bool = False) -> Any:
    """One unit of silu(gate) times up is 300 times the others for every token, and down has next to nothing for it:
    eight bits of a token are that unit's."""

    def body(m: Any, x: Any) -> Any:
        return m.o(torch.tanh(m.b(F.silu(m.gate(x)) * m.up(x))))

    torch.manual_seed(1726)
    gate, up, down = linear(32, 64), linear(32, 64), linear(64, 32, 2.0)
    with torch.no_grad():
        gate.bias[5], up.bias[5] = 12.0, 12.0
        down.weight[:, 5] = 1e-3 * torch.randn(32)
    return Net(body, gate=gate, up=up, b=down, o=linear(32, 8)), tokens(length=16)


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(64), linear(64, 192), linear(64, 64)
        self.second, self.up, self.down = nn.LayerNorm(64), linear(64, 128), linear(128, 64)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).view(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(2, 16, 64))
        return x + self.down(F.gelu(self.up(self.second(x))))


@case("torchao on a usual model", "healthy", "torch_int8")
def two_usual_blocks_in_eight_bits() -> Any:
    """Two blocks of a transformer without outliers, in eight bits: as far off as eight bits are."""
    torch.manual_seed(1727)
    return nn.Sequential(_Block(), _Block(), nn.LayerNorm(64), linear(64, 16)), tokens(64, 16)


@case("weight norm under autocast", "healthy", "torch_autocast_bf16")
def convolutions_of_normed_weights() -> Any:
    """Three dilated convolutions whose weights are normed in each call (parametrizations), with skips."""
    torch.manual_seed(1728)

    def body(m: Any, x: Any) -> Any:
        for one, back in zip(m.layers, m.backs, strict=True):
            x = x + back(torch.relu(one(x)))
        return m.o(x)

    norm = torch.nn.utils.parametrizations.weight_norm
    return Net(body, layers=nn.ModuleList(norm(nn.Conv1d(16, 16, 3, padding=2**n, dilation=2**n)) for n in range(3)),
               backs=nn.ModuleList(norm(nn.Conv1d(16, 16, 1)) for _ in range(3)), o=nn.Conv1d(16, 4, 1)), (
        torch.randn(2, 16, 40))  # fmt: skip


@case("a beam's step under the compiler", "healthy", "torch_compile")
def beam_that_is_sorted_and_gathered() -> Any:
    """Scores of four beams are flattened, the best four taken, their beams' states gathered."""
    torch.manual_seed(1729)

    def body(m: Any, state: Any, total: Any) -> Any:
        score = m.o(torch.tanh(m.a(state))).log_softmax(-1) + total[..., None]
        best, at = score.flatten(1).topk(4, -1)
        beam = at // 24
        kept = state.gather(1, beam[..., None].expand(-1, -1, 16))
        return best, at % 24, kept

    return Net(body, a=linear(16, 16), o=linear(16, 24, 3.0)), (torch.randn(3, 4, 16), -torch.rand(3, 4) * 4)


# --- converted to ONNX: the baseline is the module


@converted("convert", names("cumsum", "mul", "exp"), OTHER, extra=names("cumsum", "mul", "exp"),
           facts=[r"exclusive|CumSum|cumsum"])  # fmt: skip
def transmittance_before_its_own_sample() -> Any:
    """What is left of a ray's light, exp(-cumsum): the file's running sum leaves the sample itself out (exclusive)."""
    torch.manual_seed(1730)
    net = Net(lambda m, x: m.o((-F.softplus(m.a(x)).cumsum(1)).exp()), a=linear(8, 16), o=linear(16, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("Softplus", [_dense(g, x, w, "a", "a")], "s")
        y = g.op("CumSum", [y, g.weight("axis", np.array(1))], "run", exclusive=1)
        return _dense(g, g.op("Exp", [g.op("Neg", [y], "n")], "e"), w, "o", "y")

    return (net.eval(), torch.randn(2, 10, 8)), write


_dense = fourteenth_torch._dense


# --- training steps


def _tied(tied: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        ids = x.abs().mul(3).long().clamp(max=11)
        y = torch.tanh(m.a(m.table(ids).mean(1)))
        return F.linear(y, m.table.weight if tied else m.head.weight)

    torch.manual_seed(1740)
    table = nn.Embedding(12, 16)

    def head() -> Any:
        made = nn.Linear(16, 12, bias=False)
        with torch.no_grad():
            made.weight.copy_(table.weight)
        return made

    return step(body, of_classes, table=lambda: table, a=lambda: linear(16, 16), **({} if tied else {"head": head}))


def table_that_is_its_head() -> Any:
    return _tied(True)


_TABLE = " ".join(f"{front}{part}" for front in ("gradient/table.weight", "backward/table.weight", "table.weight",
                                                 "backward/linear", "backward/table", "backward/table/embedding",
                                                 "linear", "backward/linear/mm", "backward/mm", "backward/add",
                                                 "backward/linear/t", "backward/table/embedding_dense_backward",
                                                 "backward/table.weight/add", "backward/linear/transpose",
                                                 "backward/table/embedding/add")
                  for part in ("", "#1", "#2", "#3"))  # fmt: skip


@case("tie_weights() after a load", "training", PORT, _TABLE, f"{OTHER} detached zero_gradient",
      "table_that_is_its_head", options=BACK, extra=_TABLE, facts=[r"table\.weight"])  # fmt: skip
def table_beside_a_head_of_its_own() -> Any:
    """The head is a copy of the table and no longer the table itself: loss and output are equal, and the table's
    gradient misses the head's part."""
    return _tied(False)


class _Root(torch.optim.Optimizer):
    """Adam's first step, with its epsilon within the root or behind it."""

    def __init__(self, parameters: Any, inside: bool) -> None:
        super().__init__(parameters, {"lr": 1e-3, "eps": 1e-3, "inside": inside})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                square = one.grad * one.grad
                low = (square + group["eps"]).sqrt() if group["inside"] else square.sqrt() + group["eps"]
                one.sub_(group["lr"] * one.grad / low)


def _rooted(inside: bool) -> Any:
    return step(lambda m, x: m.b(torch.tanh(m.a(x))), of_classes, lambda p: _Root(p, inside),
                a=lambda: linear(16, 16), b=lambda: linear(16, 4))  # fmt: skip


def epsilon_behind_the_root() -> Any:
    return _rooted(False)


_UPDATE = " ".join(f"{front}/{of}{part}{n}" for front in ("update", "optimiser") for of in (
    "a.weight", "a.bias", "b.weight", "b.bias") for n in ("", "#1", "#2") for part in (
        "", "/add", "/add_", "/mul", "/sub", "/sub_", "/div", "/sqrt"))  # fmt: skip


@case("two Adams", "training", PORT, _UPDATE, OTHER, "epsilon_behind_the_root", options=MOVE, extra=_UPDATE)
def epsilon_inside_the_root() -> Any:
    """sqrt(v + 1e-3) in place of sqrt(v) + 1e-3: gradients of a hundredth move a parameter by other steps. Gradients
    are equal."""
    return _rooted(True)


def _contrast(by_hand: bool) -> Any:
    def loss(out: Any) -> Any:
        a, b = (F.normalize(one.float(), dim=-1) for one in out.chunk(2, -1))
        score, wanted = a @ b.t() / 0.1, torch.arange(12)
        if not by_hand:
            return (F.cross_entropy(score, wanted) + F.cross_entropy(score.t(), wanted)) / 2
        right = score.diagonal()
        return ((score.logsumexp(1) - right).mean() + (score.logsumexp(0) - right).mean()) / 2

    return step(lambda m, x: m.b(torch.tanh(m.a(x))), loss, a=lambda: linear(16, 16), b=lambda: linear(16, 32))


def contrast_of_the_library() -> Any:
    return _contrast(False)


@case("InfoNCE written out", "healthy", PORT, base="contrast_of_the_library", options=BACK)
def contrast_by_logsumexp() -> Any:
    """A symmetric contrastive loss by two cross entropies, and by logsumexp less the diagonal."""
    return _contrast(True)


# --- what is so, without the tool


def measure(one: Thread) -> tuple[float, float]:
    """As the sixteenth's."""
    build: Callable[..., Any] = globals()[one.name]
    if one.mode == "ort_fp32":
        module, x = build()[0]
        return rel(_ran((module, [x], None), torch.float64), run_saved(one)), 0.0
    if one.name == "blanks_taken_out_before_repeats":
        first, last = (of()[0](of()[1])[0] for of in (blank_that_parts_two_alike, build))
        return rel(first, last), 0.0
    if one.name == "scale_of_the_length_that_was_traced":
        net, x, short = build()
        with torch.no_grad():
            return rel(net(x), torch.jit.trace(net, short, check_trace=False)(x)), 0.0
    if one.name == "table_beside_a_head_of_its_own":
        first, last = (fourteenth_torch._made(of) for of in (table_that_is_its_head, build))
        for net, inputs, loss in (first, last):
            loss(net(*inputs)).backward()
        return rel(first[0].table.weight.grad, last[0].table.weight.grad), 0.0
    return fifteenth_torch.measure(one, globals())


if __name__ == "__main__":
    print_measured(CASES, measure)
