"""A twenty-first batch of PyTorch: two modules of which one was rewritten, formulas in narrow types, autocast, 8 bits,
the compiler, files in ONNX, training steps; written and labelled before any of it was compared.

    python tests/planted/twentyfirst_torch.py [WORD …]

measures the labels without the tool, in float64: how far the output is off, the first operators (of ATen) whose results
differ, and which parameter or buffer differs, with what is left where it is put back. Of a narrow type: the output's
error, and what is left where the operator that is to be named computes in float32.
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

from planted import fifteenth_torch, fourteenth_torch
from planted.eleventh_torch import layer
from planted.eleventh_torch import names as _names
from planted.fifteenth_torch import BACK, LOST, PORT
from planted.fourteenth_torch import rel
from planted.nineteenth_torch import _stepped
from planted.onnx_faults import Array, Graph
from planted.shared import two_modules
from planted.torch_faults import Net, image, linear, tokens
from planted.twelfth.case import DIFFER, Thread

CASES: list[Thread] = []
BUILDS: dict[str, tuple[Any, Any]] = {}
"""The factories of target and baseline."""
case = functools.partial(fifteenth_torch.case, cases=CASES, module="twentyfirst_torch")
converted = functools.partial(fourteenth_torch.converted, cases=CASES, module_of="twentyfirst_torch")
names = functools.partial(_names, most=8)
OTHER = f"{DIFFER} unfound"


def two(*case: Any, of: Any = None, **more: Any) -> None:
    """See ``shared.two_modules``. of: the globals of another batch's module, with its ``case`` and ``BUILDS``."""
    two_modules(globals() if of is None else of, 2101, PORT, OTHER, *case, **more)


def _bag(how: str) -> Any:
    ids = torch.randint(0, 50, (6, 7), generator=torch.Generator().manual_seed(5))
    return Net(lambda m, x: m.o(torch.tanh(m.bag(x))), bag=nn.EmbeddingBag(50, 16, mode=how), o=linear(16, 4)), ids


two("bag_of_words_summed_in_place_of_its_mean", "EmbeddingBag's mode is sum in place of mean.", _bag, "mean", "sum",
    names("embedding_bag", "_embedding_bag") + " bag bag/embedding_bag bag/_embedding_bag", facts=[r"\bmode\b"])


def _reduced(own: bool) -> Any:
    at = torch.randint(0, 6, (12,), generator=torch.Generator().manual_seed(6))

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        met = m.start.expand(6, 16).scatter_reduce(0, m.at[:, None].expand(12, 16), y, "mean", include_self=own)
        return m.b(met)

    return Net(body, a=linear(8, 16), b=linear(16, 4), at=at, start=torch.ones(1, 16)), torch.randn(12, 8)


two("mean_of_messages_that_counts_its_start", "scatter_reduce's mean counts the row it began with (include_self).",
    _reduced, False, True, names("scatter_reduce"), facts=["include_self"])  # fmt: skip


def _distance(p: float) -> Any:
    def body(m: Any, x: Any) -> Any:
        return m.b(torch.exp(-0.3 * torch.cdist(m.a(x), m.points, p=p)))

    return Net(body, a=linear(32, 8), b=linear(10, 4), points=torch.randn(10, 8)), tokens()


two("distance_by_streets_in_place_of_the_straight_line", "cdist's p is 1 in place of 2.", _distance, 2.0, 1.0,
    names("cdist", "_cdist_forward", "_euclidean_dist"), facts=[r"\bp\b"])  # fmt: skip


def _sink(on: bool) -> Any:
    att = nn.MultiheadAttention(32, 4, batch_first=True, add_zero_attn=on)
    return Net(lambda m, x: m.o(m.att(x, x, x, need_weights=False)[0]), att=att, o=linear(32, 4)), tokens(scale=2.0)


_ATT = names("scaled_dot_product_attention", "cat", "zeros", "bmm", "baddbmm", "softmax", "pad", "view", "transpose",
             "multi_head_attention_forward", "_scaled_dot_product_flash_attention_for_cpu",
             "_native_multi_head_attention")  # fmt: skip
two("place_of_zeros_that_an_attention_lost", "MultiheadAttention lost add_zero_attn: no place of zeros to look at.",
    _sink, True, False, f"{_ATT} att " + " ".join(f"att/{one}" for one in _ATT.split()) + " " + layer("att.out_proj"))


def _cached(how: str) -> Any:
    def body(m: Any, x: Any) -> Any:
        q, key, v = m.q(x), m.k(x), m.v(x)
        kept = [torch.round(one / size).clamp(-127, 127) for one, size in ((key, m.k_scale), (v, m.v_scale))]
        sizes = (m.k_scale, m.v_scale) if how == "own" else (m.v_scale, m.k_scale)
        key, v = kept[0] * sizes[0], kept[1] * sizes[1]
        return m.o((q @ key.transpose(-1, -2) / 32**0.5).softmax(-1) @ v)

    parts = {"q": linear(32, 32, 2.0), "k": linear(32, 32, 3.0), "v": linear(32, 32), "o": linear(32, 8)}
    return Net(body, **parts, k_scale=torch.tensor(0.06), v_scale=torch.tensor(0.02)), tokens()


two("scales_of_keys_and_values_exchanged", "The 8-bit cache's keys are multiplied by the values' scale, values by "
    "the keys'.", _cached, "own", "other", names("mul") + " o/view transpose", facts=[])  # fmt: skip


def _normed(how: str) -> Any:
    torch.manual_seed(2105)
    net = Net(lambda m, x: m.o(torch.relu(m.n(m.c(x)))), c=nn.Conv2d(3, 8, 3), n=nn.BatchNorm2d(8),
              o=nn.Conv2d(8, 4, 1))
    with torch.no_grad():
        net.n.weight.uniform_(0.5, 1.5), net.n.bias.normal_(), net.n.running_mean.normal_(0, 0.3)
        net.n.running_var.uniform_(0.1, 0.5)
        if how == "twice":
            gain = net.n.weight / torch.sqrt(net.n.running_var + net.n.eps)
            net.c.bias.copy_((net.c.bias - net.n.running_mean) * gain + net.n.bias)
            net.c.weight.mul_(gain[:, None, None, None])
    return net.eval(), image()


two("norm_folded_in_and_left_there", "A batch norm was folded into its convolution, and is still applied.", _normed, "",
    "twice", "c " + " ".join(f"c/{one}" for one in ("conv2d", "convolution")), facts=[r"c\.(weight|bias)"])  # fmt: skip


def _counted(kind: Any) -> Any:
    def body(m: Any, x: Any) -> Any:
        hot = (m.a(x) > -2.0).to(kind)
        return m.b(hot.cumsum(1, dtype=kind).to(x.dtype) * 0.01)

    return Net(body, a=linear(8, 12), b=linear(12, 4)), torch.randn(2, 300, 8)


two("running_count_that_wraps_in_a_byte", "A running count of 300 words is held in uint8: it wraps at 256.", _counted,
    torch.int64, torch.uint8, names("cumsum") + " " + names("to", "_to_copy", "mul", "type_as"),
    why="wrapped")  # fmt: skip


def _looked_up(how: str) -> Any:
    table = F.silu((torch.arange(65) - 32) / 8.0)

    def body(m: Any, x: Any) -> Any:
        place = m.a(x).clamp(-4, 4) * 8 + 32
        return m.b(m.table[(place.round() if how == "near" else place.floor()).long()])

    return Net(body, a=linear(32, 24, 2.0), b=linear(24, 4), table=table), tokens()


two("table_of_an_activation_read_half_a_step_aside", "A table of silu is read at the floor of its place, not the "
    "nearest.", _looked_up, "near", "below", names("round", "floor", "index", "to", "_to_copy", "long")
    + " round:to[int64]")  # fmt: skip


def _fake(axis: int) -> Any:
    def body(m: Any, x: Any) -> Any:
        w = torch.fake_quantize_per_channel_affine(m.w, m.size, m.zero, axis, -127, 127)
        return m.o(torch.relu(x @ w.t()))

    size = torch.logspace(-2.5, -1.5, 32)
    return Net(body, w=nn.Parameter(torch.randn(32, 32) * size[:, None] * 40), size=size,
               zero=torch.zeros(32, dtype=torch.int32), o=linear(32, 4)), tokens()  # fmt: skip


two("scales_of_rows_laid_along_the_columns", "fake_quantize_per_channel_affine's axis is 1, not 0, both 32 long.",
    _fake, 0, 1, names("fake_quantize_per_channel_affine", "fake_quantize_per_channel_affine_cachemask"),
    facts=["axis"])  # fmt: skip


def _own_scale(folded: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        q, key, v = m.q(x), m.k(x), m.v(x)
        return m.o(F.scaled_dot_product_attention(q, key, v, scale=1.0 if folded else 32**-0.5))

    net = Net(body, **{one: linear(32, 32) for one in "qkvo"})
    if folded:
        with torch.no_grad():
            net.q.weight.mul_(32**-0.5), net.q.bias.mul_(32**-0.5)
    return net, tokens()


two("scale_of_scores_folded_into_the_queries", "The scale of an attention is in the queries' weight and bias.",
    _own_scale, False, True)  # fmt: skip


def _gru(written: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        if not written:
            return m.o(m.rnn(x)[0])
        h, told = torch.zeros(x.shape[0], 16, dtype=x.dtype), []
        for t in range(x.shape[1]):
            a = F.linear(x[:, t], m.rnn.weight_ih_l0, m.rnn.bias_ih_l0).chunk(3, -1)
            b = F.linear(h, m.rnn.weight_hh_l0, m.rnn.bias_hh_l0).chunk(3, -1)
            r, z = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
            h = (1 - z) * torch.tanh(a[2] + r * b[2]) + z * h
            told.append(h)
        return m.o(torch.stack(told, 1))

    return Net(body, rnn=nn.GRU(8, 16, batch_first=True), o=linear(16, 4)), torch.randn(2, 6, 8)


two("gru_written_out_step_by_step", "torch's GRU, and its steps in a loop.", _gru, False, True)


def _met(how: str) -> Any:
    at = torch.randint(0, 6, (12,), generator=torch.Generator().manual_seed(6))

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        none = torch.zeros(6, 16, dtype=y.dtype)
        met = none.index_add(0, m.at, y) if how == "add" else (F.one_hot(m.at, 6).to(y.dtype).t() @ y)
        return m.b(torch.tanh(met))

    return Net(body, a=linear(8, 16), b=linear(16, 4), at=at), torch.randn(12, 8)


two("messages_added_or_multiplied_by_ones", "index_add, and a product with one-hot rows.", _met, "add", "product")

# --- narrow types


@case("formula", "formula", "torch_bf16", names("exp", "add"), f"{LOST} stepped found_by_repair",
      extra=names("mul", "pow", "exp", "add", "sub", "sum"))  # fmt: skip
def divergence_of_a_latent_near_its_prior() -> Any:
    """(s^2 + m^2 - 1 - log s^2) / 2 of s about 1 and m about 0.02 (a VAE's KL): 0.0008, where bfloat16 steps by 0.008.
    With the exponential and the first sum in FP32 0.03 of 2.5 is left, with either alone 2.7."""
    torch.manual_seed(2110)

    def body(m: Any, x: Any) -> Any:
        mean, log = (m.a(x) * 0.02).chunk(2, -1)
        return 0.5 * (log.exp() + mean * mean - 1 - log).sum(-1)

    return Net(body, a=linear(32, 16)), tokens()


_SIXTEEN = "a " + " ".join(f"a/{one}" for one in ("conv2d", "convolution", "_convolution", "_to_copy", "to")) + (
    " conv2d args_0 x _to_copy to a/input")


@case("overflow", "overflow", "torch_autocast_fp16", _SIXTEEN, "overflow range_inside reads_rounded born",
      extra=f"{_SIXTEEN} " + names("mul"))  # fmt: skip
def picture_of_sixteen_bits_under_autocast() -> Any:
    """Pixels of up to 65535 (a 16-bit TIFF) are cast to half: 65520 and more become Inf; a filter of 1e-4 follows."""
    torch.manual_seed(2111)
    x = torch.randint(0, 60000, (1, 1, 12, 12), generator=torch.Generator().manual_seed(7)).float()
    x[0, 0, 3, 4] = x[0, 0, 8, 2] = 65535.0

    net = Net(lambda m, x: m.b(torch.relu(m.a(x)).mean((2, 3))), a=nn.Conv2d(1, 8, 3, bias=False), b=linear(8, 4))
    with torch.no_grad():
        net.a.weight.mul_(1e-4)
    return net, x


@case("healthy", "healthy", "torch_autocast_bf16")
def dilated_filters_of_a_voice_under_autocast() -> Any:
    """Three gated dilated filters of one dimension with skips."""
    torch.manual_seed(2112)

    def body(m: Any, x: Any) -> Any:
        x, told = m.first(x), 0
        for one in m.each:
            a, b = one(x).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            x, told = x + y, told + y
        return m.last(told)

    each = nn.ModuleList(nn.Conv1d(12, 24, 3, padding=n, dilation=n) for n in (1, 2, 4))
    return Net(body, first=nn.Conv1d(2, 12, 1), each=each, last=nn.Conv1d(12, 4, 1)), torch.randn(2, 2, 24)


@case("healthy", "healthy", "torch_autocast_fp16")
def masked_words_under_autocast() -> Any:
    """Attention with a mask of -inf over padding, a norm, a layer."""
    torch.manual_seed(2113)
    seen = torch.arange(8) < torch.tensor([[8], [5]])

    def body(m: Any, x: Any) -> Any:
        score = m.q(x) @ m.k(x).transpose(-1, -2) / 32**0.5
        share = score.masked_fill(~m.seen[:, None], float("-inf")).softmax(-1)
        return m.out(m.n(x + share @ m.v(x)))

    parts = {one: linear(32, 32) for one in "qkv"}
    return Net(body, **parts, n=nn.LayerNorm(32), out=linear(32, 5), seen=seen), tokens()


@case("healthy", "healthy", "torch_fp16")
def words_by_filters_of_three_widths() -> Any:
    """Filters of 2, 3 and 4 words, their largest, a classifier (TextCNN)."""
    torch.manual_seed(2114)

    def body(m: Any, x: Any) -> Any:
        y = x.transpose(1, 2)
        return m.o(torch.cat([torch.relu(one(y)).amax(-1) for one in m.each], 1))

    return Net(body, each=nn.ModuleList(nn.Conv1d(32, 8, n) for n in (2, 3, 4)), o=linear(24, 5)), tokens()


@case("int8", "int8", "torch_int8", layer("a"), f"{LOST} outlier_channel outlier_token stepped found_by_repair "
      "reads_rounded amplified", extra=layer("a", "b"), offered=None)  # fmt: skip
def kelvins_in_eight_bits() -> Any:
    """Temperatures of 290 +- 3 are multiplied in 8 bits: a token's step is 2.3; weights of each row add up to 0."""
    torch.manual_seed(2115)
    net = Net(lambda m, x: m.b(torch.tanh(m.a(x))), a=linear(32, 32), b=linear(32, 8))
    with torch.no_grad():
        net.a.weight.sub_(net.a.weight.mean(1, keepdim=True))
    return net, 290 + 3 * torch.randn(8, 32)


@case("healthy", "healthy", "torch_int8")
def skips_and_norms_in_eight_bits() -> Any:
    """Two blocks of a norm, two layers and a skip."""
    torch.manual_seed(2116)

    def body(m: Any, x: Any) -> Any:
        for norm, up, down in ((m.n1, m.u1, m.d1), (m.n2, m.u2, m.d2)):
            x = x + down(F.gelu(up(norm(x))))
        return m.o(x)

    parts = {f"{one}{n}": linear(*size) for n in (1, 2) for one, size in (("u", (32, 64)), ("d", (64, 32)))}
    return Net(body, **parts, n1=nn.LayerNorm(32), n2=nn.LayerNorm(32), o=linear(32, 8)), tokens()


@case("healthy", "healthy", "torch_compile")
def rolled_windows_compiled() -> Any:
    """A roll, windows, an attention in each, and back; a group norm before it."""
    torch.manual_seed(2117)

    def body(m: Any, x: Any) -> Any:
        y = torch.roll(m.n(m.c(x)), (2, 2), (2, 3))
        y = y.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 4, 5, 1).reshape(-1, 16, 8)
        y = (y @ y.transpose(1, 2) / 8**0.5).softmax(-1) @ m.v(y)
        return m.o(y.mean(1))

    return Net(body, c=nn.Conv2d(3, 8, 3, padding=1), n=nn.GroupNorm(2, 8), v=linear(8, 8), o=linear(8, 5)), image()


# --- files in ONNX


@converted("convert", names("adaptive_avg_pool2d", "_adaptive_avg_pool2d", "mean") + " p p/adaptive_avg_pool2d "
           "p/_adaptive_avg_pool2d pool", OTHER, extra=names("adaptive_avg_pool2d", "_adaptive_avg_pool2d", "flatten",
                                                              "view", "tanh") + " p pool flat act p/adaptive_avg_pool2d"
           " p/_adaptive_avg_pool2d")  # fmt: skip
def adaptive_pool_as_windows_of_two() -> Any:
    """Seven places to three: adaptive windows are 3 wide and overlap, the file pools by 2 and leaves the last out."""
    torch.manual_seed(2118)
    net = Net(lambda m, x: m.b(torch.tanh(m.p(x)).flatten(1)), p=nn.AdaptiveAvgPool2d(3), b=linear(18, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("AveragePool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
        y = g.op("Flatten", [g.op("Tanh", [y], "act")], "flat")
        return fourteenth_torch._dense(g, y, w, "b", "y")

    return (net.eval(), torch.randn(4, 2, 7, 7)), write


@converted("healthy")
def adaptive_pool_as_windows_of_four() -> Any:
    """Eight places to two, as windows of four: the same."""
    torch.manual_seed(2119)
    net = Net(lambda m, x: m.b(torch.tanh(m.p(x)).flatten(1)), p=nn.AdaptiveAvgPool2d(2), b=linear(8, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("AveragePool", [x], "pool", kernel_shape=[4, 4], strides=[4, 4])
        y = g.op("Flatten", [g.op("Tanh", [y], "act")], "flat")
        return fourteenth_torch._dense(g, y, w, "b", "y")

    return (net.eval(), torch.randn(4, 2, 8, 8)), write


# --- training steps


_STEMS = ("smooth_l1_loss", "huber_loss")
_BEHIND = "backward/tanh/tanh_backward backward/b/addmm/mm#2 backward/b/addmm/sum"
"""Where the stretches end that hold the loss' gradient."""

_LOSS = names(*_STEMS, *(f"loss/{one}" for one in (*_STEMS, "mean")), "mean", "loss")


def _robust(how: str) -> Any:
    def loss(out: Any) -> Any:
        wanted = torch.linspace(-2, 2, out.numel()).view_as(out)
        return F.huber_loss(out, wanted, delta=0.1) if how == "huber" else F.smooth_l1_loss(out, wanted, beta=0.1)

    return _stepped(loss)


two("huber_in_place_of_a_smooth_l1", "smooth_l1 with beta 0.1 became huber with delta 0.1: a tenth of the loss.",
    _robust, "smooth", "huber", f"{_LOSS} {_BEHIND}", kind="training", options=BACK)  # fmt: skip


def _binary(how: str) -> Any:
    def loss(out: Any) -> Any:
        wanted = (torch.arange(out.numel()).view_as(out) % 3 == 0).to(out.dtype)
        if how == "logits":
            return F.binary_cross_entropy_with_logits(out, wanted)
        return F.binary_cross_entropy(torch.sigmoid(out), wanted)

    return _stepped(loss)


two("chances_by_logits_or_by_a_sigmoid", "binary_cross_entropy_with_logits, and of a sigmoid.", _binary, "logits",
    "sigmoid", kind="healthy", options=BACK)  # fmt: skip


def _traced(build: Any, dtype: Any) -> tuple[Any, list[tuple[str, Any]], Any]:
    """The output, what each operator of ATen makes, and the module."""
    from torch.utils._python_dispatch import TorchDispatchMode

    told: list[tuple[str, Any]] = []

    class Told(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            one = out[0] if isinstance(out, (tuple, list)) else out
            if isinstance(one, torch.Tensor):
                told.append((func.__name__, one.detach().clone()))
            return out

    found = build()
    module, x = found[0].to(dtype).eval(), found[1][0] if isinstance(found[1], tuple) else found[1]
    x = x.to(dtype) if x.is_floating_point() else x
    with torch.no_grad(), Told():
        out = module(x)
        if len(found) > 2:
            out = found[2](out)
    return out, told, module


def measure(name: str) -> list[str]:
    target, base = BUILDS[name]
    kind = torch.float32 if name.startswith("scales_of_rows") else torch.float64
    (got, ours, module), (want, theirs, first) = (_traced(one, kind) for one in (target, base))
    told = [f"off by {rel(want, got):.4g}"]
    differ = [f"{n}: {a[0]} beside {b[0]}" for n, (a, b) in enumerate(zip(ours, theirs, strict=False))
              if a[1].shape != b[1].shape or a[1].dtype != b[1].dtype
              or rel(b[1].double() + 1e-30, a[1].double() + 1e-30) > 1e-9]  # fmt: skip
    told.append("first differing: " + "; ".join(differ[:3]))
    told.append("target runs " + " ".join(one for one, _ in ours)[:400])
    known, own = first.state_dict(), {name: one.clone() for name, one in module.state_dict().items()}
    for part in [one for one in own if one in known and not torch.equal(own[one], known[one])]:
        module.load_state_dict({**own, part: known[part]})
        found = base()[1]
        x = found[0] if isinstance(found, tuple) else found
        left = rel(want, module(x.to(kind) if x.is_floating_point() else x))
        told.append(f"{part} differs; put back {left:.3g} left")
        module.load_state_dict(own)
    return told


def main() -> int:
    for one in CASES:
        if len(sys.argv) > 1 and not any(word in one.name for word in sys.argv[1:]):
            continue
        if one.name in BUILDS:
            told = measure(one.name)
        elif one.mode == "ort_fp32":
            import tempfile

            from planted.twelfth.measure import stock

            with tempfile.TemporaryDirectory() as folder:
                path, _, feeds = one.make(Path(folder))
                module, x = globals()[one.name]()[0]
                with torch.no_grad():
                    told = [f"off by {rel(module(x), stock(Path(path), feeds)[0]):.4g}"]
        else:
            told = [_narrow(one)]
        print(f"{one.name} ({one.mode}) who {' '.join(one.who)[:80] or '-'}", *told, sep="\n    ", flush=True)
    return 0


def _narrow(one: Thread) -> str:
    build = globals()[one.name]
    want, _, _ = _traced(build, torch.float64)
    kind = torch.float16 if "fp16" in one.mode else torch.bfloat16
    module, x = build()[0].eval(), build()[1]
    with torch.no_grad():
        if "autocast" in one.mode:
            with torch.autocast("cpu", kind):
                return f"off by {rel(want, module(x).double()):.4g}"
        if one.mode == "torch_int8":
            both = [fourteenth_torch._eight((build()[0], x), left)[0](x) for left in ((), ("a",), ("b",))]
            return ", ".join(f"{rel(want, y):.4g}" for y in both) + " (all in 8 bits; without a; without b)"
        if one.mode == "torch_compile":
            return f"off by {rel(want, torch.compile(module)(x)):.4g}"
        return f"off by {rel(want, module.to(kind)(x.to(kind)).double()):.4g}"


if __name__ == "__main__":
    raise SystemExit(main())
