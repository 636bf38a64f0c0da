"""A third batch in PyTorch, written before any of it was run."""

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


# --- overflow and underflow


@unseen("overflow", "torch_fp16", "linalg_vector_norm norm", "overflow range_inside")
def norm_of_long_vectors() -> Any:
    def body(m: Any, x: Any) -> Any:
        h = m.a(x)
        return m.b(h / h.norm(dim=-1, keepdim=True))

    return Net(body, a=linear(32, 512, 9000.0), b=linear(512, 8)), torch.randn(8, 32)


@unseen("overflow", "torch_fp16 torch_autocast_fp16", "up/convolution", "overflow weight_overflow")
def upsampler_by_a_transposed_convolution() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.last(F.silu(m.norm(m.up(F.silu(m.first(x))))))

    net = Net(body, first=nn.Conv2d(3, 8, 3, padding=1), up=nn.ConvTranspose2d(8, 8, 4, 2, 1),
              norm=nn.GroupNorm(4, 8), last=nn.Conv2d(8, 3, 3, padding=1))  # fmt: skip
    with torch.no_grad():
        net.up.weight.mul_(2e6)
    return net, image()


@unseen("overflow", "torch_fp16", "mul", "overflow")
def overflow_that_comes_back_finite() -> Any:
    def body(m: Any, x: Any) -> Any:
        big = (m.a(x).sigmoid() + 0.2) * 4e5
        return m.b(6e4 / big)

    return Net(body, a=linear(32, 16), b=linear(16, 8)), torch.randn(8, 32)


@unseen("underflow", "torch_fp16", "exp", "underflow")
def gaussian_kernel() -> Any:
    def body(m: Any, x: Any) -> Any:
        d = (m.a(x)[:, None] - m.centres).pow(2).sum(-1)
        density = torch.exp(-0.5 * d - 19).mean(-1)
        return torch.log(density)

    return Net(body, a=linear(8, 4, 0.3), centres=torch.randn(6, 4) * 0.3), torch.randn(8, 8)


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "extra": ("mean",)})


@unseen("overflow", "torch_fp16", "score", "overflow weight_overflow", level="module")
def score_of_a_submodule() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.last(torch.tanh(m.score(m.norm(x)) * 1e-5))

    return Net(body, norm=nn.LayerNorm(32), score=linear(32, 32, 1e6), last=linear(32, 4)), tokens()


# --- cancellation, amplification, decisions

_NEAR = ("sum", "mul", "div", "div#2", "linalg_vector_norm", "linalg_vector_norm#2")


@unseen("cancellation", "torch_bf16", "norm/native_group_norm add", "cancellation amplified")
def offset_before_a_group_norm() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.last(m.norm(m.first(x) + 400.0))

    return Net(body, first=nn.Conv2d(3, 8, 3, padding=1), norm=nn.GroupNorm(2, 8), last=nn.Conv2d(8, 3, 1)), image()


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "who": ("add",)})


@unseen("cancellation", "torch_fp32", "add", "cancellation amplified", baseline="torch_fp64")
def float32_beside_float64() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b((m.a(x) + 2.0**24) - 2.0**24)

    return Net(body, a=linear(32, 16), b=linear(16, 4)), torch.randn(8, 32)


@unseen("amplified", "torch_bf16", "div clamp mul sum linalg_vector_norm", "amplified cancellation")
def angle_between_near_vectors() -> Any:
    def body(m: Any, x: Any) -> Any:
        a = F.normalize(m.a(x), dim=-1)
        b = F.normalize(m.a(x) + 0.08 * x, dim=-1)
        return torch.acos((a * b).sum(-1).clamp(-0.9999, 0.9999))

    return Net(body, a=linear(32, 32)), torch.randn(64, 32)


CASES[-1] = CASES[-1].__class__(
    **{**CASES[-1].__dict__, "who": (*_NEAR, "a/addmm"), "extra": (*_NEAR, "a/addmm", "clamp")}
)  # fmt: skip


@unseen("decision", "torch_bf16", "add", "amplified cancellation coarse flips")
def codebook_by_distances() -> Any:
    def body(m: Any, x: Any) -> Any:
        far = m.norms + -2 * (m.a(x) @ m.codes.t())
        return m.out(m.codes[far.argmin(-1)])

    codes = torch.randn(64, 16)
    return Net(body, a=linear(32, 16), codes=codes, norms=torch.full((64,), 2000.0), out=linear(16, 4)), torch.randn(
        8, 32
    )


@unseen("amplified", "torch_bf16", "matmul bmm mm q", "amplified cancellation coarse")
def softmax_without_a_scale() -> Any:
    def body(m: Any, x: Any) -> Any:
        score = torch.bmm(m.q(x), m.k(x).transpose(1, 2))
        return torch.softmax(score, -1) @ m.v(x)

    net = Net(body, q=linear(32, 32, 60.0), k=linear(32, 32), v=linear(32, 32))
    with torch.no_grad():
        net.k.bias.add_(8)
        net.k.weight.mul_(0.05)
    return net, tokens()


CASES[-1] = CASES[-1].__class__(
    **{**CASES[-1].__dict__, "who": ("bmm", "q/addmm", "k/addmm"), "extra": ("q/addmm", "k/addmm")}
)


@unseen("amplified", "torch_autocast_bf16", "steep/addmm", "amplified cancellation")
def steep_layer_before_a_sine() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.last(torch.sin(m.steep(x).float()))

    return Net(body, steep=linear(8, 32, 500.0), last=linear(32, 4)), torch.randn(16, 8)


# --- two models


def reader() -> Any:
    def body(m: Any, ids: Any) -> Any:
        h, _ = m.rnn(m.table(ids))
        return m.head(m.norm(h + m.skip(h)).mean(1))

    net = Net(body, table=nn.Embedding(30, 16), rnn=nn.LSTM(16, 12, batch_first=True, bidirectional=True),
              skip=linear(24, 24), norm=nn.LayerNorm(24), head=linear(24, 5))  # fmt: skip
    return net, torch.arange(18).reshape(2, 9)


def vision() -> Any:
    def body(m: Any, x: Any) -> Any:
        h = m.act(m.first(m.pad(x)))
        h = F.pixel_shuffle(m.wide(m.depth(h)), 2)
        return m.last(m.up(h))

    return Net(body, pad=nn.ReflectionPad2d(1), first=nn.Conv2d(3, 8, 3), act=nn.PReLU(8),
               depth=nn.Conv2d(8, 8, 3, padding=1, groups=8), wide=nn.Conv2d(8, 16, 1),
               up=nn.ConvTranspose2d(4, 4, 4, 2, 1), last=nn.Conv2d(4, 2, 1)), image()  # fmt: skip


def attending() -> Any:
    def body(m: Any, x: Any) -> Any:
        q, k, v = (part(x).view(2, 8, 4, 8).transpose(1, 2) for part in (m.q, m.k, m.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=m.causal)
        return m.out(mixed.transpose(1, 2).reshape(2, 8, 32))

    net = Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), out=linear(32, 8))
    net.causal = True
    return net, tokens()


RNN = "rnn/lstm/mkldnn_rnn_layer rnn/lstm/mkldnn_rnn_layer#2"
DEPTH, UP = "depth/convolution", "up/convolution"


@unseen("files", "torch_fp32", RNN, "files_differ", base="reader")
def directions_swapped() -> Any:
    module, inputs = reader()
    with torch.no_grad():
        for name, value in list(module.rnn.named_parameters()):
            if not name.endswith("_reverse"):
                other = getattr(module.rnn, f"{name}_reverse")
                kept = value.clone()
                value.copy_(other)
                other.copy_(kept)
    return module, inputs


@unseen("files", "torch_fp32", "table/embedding", "files_differ", base="reader")
def one_row_of_the_table_is_padding() -> Any:
    return changed(reader, "table.weight", lambda w: (w[3].zero_(), None)[1])


@unseen("files", "torch_fp32", "norm/layer_norm", "files_differ", base="reader")
def norm_without_its_bias() -> Any:
    return changed(reader, "norm.weight", lambda w: (w[::3].fill_(0.3), None)[1])


@unseen("files", "torch_fp32", "skip/add", "files_differ", base="reader")
def bias_of_a_skip() -> Any:
    return changed(reader, "skip.bias", lambda b: (b[::2].add_(0.3), None)[1])


@unseen("files", "torch_fp32 torch_bf16", DEPTH, "files_differ", base="vision")
def channels_of_a_depthwise_rolled() -> Any:
    return changed(vision, "depth.weight", lambda w: (w.copy_(w.roll(1, 0).clone()), None)[1])


@unseen("files", "torch_fp32", UP, "files_differ", base="vision")
def transposed_convolution_turned() -> Any:
    return changed(vision, "up.weight", lambda w: (w.copy_(w.transpose(0, 1).clone()), None)[1])


@unseen("files", "torch_fp32", "pad/constant_pad_nd pad/reflection_pad2d", "files_differ other_arithmetic",
        base="vision")  # fmt: skip
def border_of_zeros() -> Any:
    return changed(vision, "pad", lambda _: nn.ZeroPad2d(1))


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "who": (*CASES[-1].who, "first/convolution")})


@unseen("files", "torch_fp32", "act/_prelu_kernel act/prelu", "files_differ", base="vision")
def slope_of_one_channel() -> Any:
    return changed(vision, "act.weight", lambda w: (w[3:].fill_(0.6), None)[1])


@unseen("files", "torch_fp32", "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu",
        "files_differ other_arithmetic", base="attending")  # fmt: skip
def no_longer_causal() -> Any:
    return changed(attending, "causal", lambda _: False)


@unseen("files", "torch_fp32", "q/addmm k/addmm q/view k/view q/t k/t", "files_differ", base="attending",
        also=("q/addmm", "k/addmm"))  # fmt: skip
def queries_and_keys_swapped() -> Any:
    module, inputs = attending()
    module.q, module.k = module.k, module.q
    return module, inputs


def remapped(dtype: Any) -> Any:
    def body(m: Any, rows: Any) -> Any:
        place = (rows.to(m.kind) * 65537 + 12345) // 7 % 53
        return m.out(m.table(place.long().abs() % 53))

    net = Net(body, table=nn.Embedding(53, 16), out=linear(16, 4))
    net.kind = dtype
    return net, torch.randint(30000, 100000, (2, 9))


def hash_of_64_bits() -> Any:
    return remapped(torch.int64)


@unseen("files", "torch_fp32", "_to_copy mul add floor_divide remainder", "files_differ other_arithmetic wrapped",
        base="hash_of_64_bits")  # fmt: skip
def hash_of_32_bits() -> Any:
    return remapped(torch.int32)


@unseen("random", "torch_bf16", "add mul lift_fresh from_numpy _to_copy", "random files_differ other_arithmetic born")
def noise_that_no_seed_reaches() -> Any:
    import numpy as np

    draw = np.random.default_rng()

    def body(m: Any, x: Any) -> Any:
        noise = torch.from_numpy(draw.standard_normal((8, 16)).astype("float32")).to(x.dtype)
        return m.b(m.a(x) + noise)

    return Net(body, a=linear(32, 16), b=linear(16, 4)), torch.randn(8, 32)


# --- clean


@unseen("clean", "torch_bf16 torch_autocast_fp16 torch_compile")
def clean_reader() -> Any:
    return reader()


@unseen("clean", "torch_bf16 torch_fp16 torch_compile")
def clean_vision() -> Any:
    return vision()


@unseen("clean", "torch_bf16 torch_autocast_bf16 torch_int8")
def clean_attending() -> Any:
    return attending()


@unseen("clean", "torch_fp32", baseline="torch_fp64")
def clean_beside_float64() -> Any:
    return vision()


@unseen("clean", "torch_bf16", level="module")
def clean_reader_by_module() -> Any:
    return reader()


@unseen("clean", "torch_fp16 torch_bf16")
def rows_that_attend_to_nothing() -> Any:
    """A whole row is masked: PyTorch's own attention answers with zeros."""

    def body(m: Any, x: Any) -> Any:
        keep = torch.ones(8, 8, dtype=torch.bool).tril()
        keep[0] = False
        mixed = F.scaled_dot_product_attention(m.q(x), m.k(x), m.v(x), attn_mask=keep)
        return m.out(torch.nan_to_num(mixed))

    return Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), out=linear(32, 8)), tokens()


@unseen("clean", "torch_autocast_bf16")
def gate_of_a_spectrum() -> Any:
    """A transform that autocast leaves in float32."""

    def body(m: Any, x: Any) -> Any:
        spectrum = torch.fft.rfft(m.a(x).float(), dim=1)
        return m.b(torch.fft.irfft(spectrum * m.gate[:, None], n=8, dim=1))

    return Net(body, a=linear(32, 16), gate=torch.rand(5), b=linear(16, 4)), tokens()


@unseen("clean", "torch_bf16 torch_fp16")
def bag_of_embeddings() -> Any:
    def body(m: Any, ids: Any) -> Any:
        return m.out(F.gelu(m.bag(ids), approximate="tanh"))

    return Net(body, bag=nn.EmbeddingBag(40, 16, mode="mean"), out=linear(16, 4)), torch.randint(0, 40, (4, 12))


@unseen("benign", "torch_fp16")
def weight_that_nothing_reaches() -> Any:
    """A channel whose weight overflows is multiplied by 0 in a mask that selects."""

    def body(m: Any, x: Any) -> Any:
        h = m.a(x)
        return m.b(torch.where(m.keep > 0, h, torch.zeros_like(h)))

    net = Net(body, a=linear(32, 16), keep=(torch.arange(16) != 5).float(), b=linear(16, 4))
    with torch.no_grad():
        net.a.weight[5] *= 1e7
    return net, torch.randn(8, 32)


@unseen("baseline", "torch_bf16", status=1, says="nan")
def root_of_a_difference() -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(torch.sqrt(m.a(x) - 0.2)).sum(1)

    return Net(body, a=linear(32, 16), b=linear(16, 4)), tokens()
