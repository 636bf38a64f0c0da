"""An eighteenth batch of PyTorch: two modules of which one was rewritten, narrow types, autocast, the compiler, files
in ONNX, training steps; written and labelled before any of it was compared.

    python tests/planted/eighteenth_torch.py [WORD …]

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

import torch
import torch.nn.functional as F
from torch import nn

from planted import fifteenth_torch, fourteenth_torch
from planted.eleventh_torch import layer, names
from planted.fifteenth_torch import BACK, LOST, PORT
from planted.fourteenth_torch import _dense, rel
from planted.onnx_faults import Array, Graph
from planted.shared import print_measured, run_saved
from planted.tenth_torch import step
from planted.torch_faults import Net, image, linear, tokens
from planted.twelfth.case import COARSE, DIFFER, Thread

# After the first run: names of rows that a label cannot know (where a GRU takes its state apart, where a stretch ends).
CASES: list[Thread] = []
case = functools.partial(fifteenth_torch.case, cases=CASES, module="eighteenth_torch")
converted = functools.partial(fourteenth_torch.converted, cases=CASES, module_of="eighteenth_torch")
OTHER = f"{DIFFER} unfound"

# --- two modules that should be one


def _kept(again: bool) -> Any:
    torch.manual_seed(1801)

    def body(m: Any, x: Any) -> Any:
        y = torch.relu(m.a(x))
        return m.b(F.interpolate(y, scale_factor=1.57, mode="bilinear", recompute_scale_factor=again))

    return Net(body, a=nn.Conv2d(3, 8, 3, padding=1), b=nn.Conv2d(8, 4, 1)), image()


def picture_by_the_factor_of_its_sizes() -> Any:
    return _kept(True)


_UP = names("upsample_bilinear2d", "interpolate", "_upsample_bilinear2d_aa")


@case("recompute_scale_factor", "port", PORT, _UP, OTHER, "picture_by_the_factor_of_its_sizes", extra=_UP)
def picture_by_the_factor_as_given() -> Any:
    """Enlarged by 1.57 from 16 to 25: by 1.57 in one model, by 25 / 16 = 1.5625 in the other."""
    return _kept(False)


def _overlapped(divided: bool) -> Any:
    torch.manual_seed(1802)
    count = F.fold(torch.ones(1, 9, 100), (12, 12), 3)

    def body(m: Any, x: Any) -> Any:
        parts = F.unfold(torch.tanh(m.a(x)), 3)
        whole = F.fold(m.mix(parts.transpose(1, 2)).transpose(1, 2), (12, 12), 3)
        return m.b(whole / m.count if divided else whole)

    return Net(body, a=nn.Conv2d(3, 2, 1), mix=linear(18, 9), b=nn.Conv2d(1, 4, 3), count=count), \
        torch.randn(2, 3, 12, 12)  # fmt: skip


def patches_divided_by_their_number() -> Any:
    return _overlapped(True)


_FOLD = names("div", "col2im", "fold") + " b b/convolution b/conv2d"


@case("fold without its counts", "port", PORT, _FOLD, OTHER, "patches_divided_by_their_number", extra=_FOLD)
def patches_added_and_not_divided() -> Any:
    """Patches of 3 by 3 are added where they overlap, and not divided by how many there are (up to 9)."""
    return _overlapped(False)


def _alike(dim: int) -> Any:
    torch.manual_seed(1803)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        unit = y / y.norm(dim=dim, keepdim=True)
        return unit @ unit.T

    return Net(body, a=linear(16, 8)), torch.randn(8, 16)


def likeness_of_vectors() -> Any:
    return _alike(-1)


_NORM = names("norm", "linalg_vector_norm", "div")


@case("F.normalize(dim)", "port", PORT, _NORM, OTHER, "likeness_of_vectors", extra=_NORM,
      facts=[r"\bdim\b|axis|axes|\[0\]"])  # fmt: skip
def likeness_of_columns_of_unit_length() -> Any:
    """Each of eight columns is divided by its length over the batch in place of each of eight vectors."""
    return _alike(0)


def _masked(kept: bool) -> Any:
    torch.manual_seed(1804)
    pad = torch.arange(10)[None] >= torch.tensor([7, 5])[:, None]

    def body(m: Any, x: Any) -> Any:
        q, k, v = (one(x).view(2, 10, 4, 8).transpose(1, 2) for one in (m.q, m.k, m.v))
        mask = m.pad if kept else ~m.pad
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
        return m.o(y.transpose(1, 2).reshape(2, 10, 32))

    return Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), o=linear(32, 8), pad=pad), tokens(32, 10)


def words_that_see_the_words() -> Any:
    return _masked(False)


_SDPA = names("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", "bitwise_not",
              "logical_not", "unsqueeze", "_scaled_dot_product_efficient_attention", "where", "add", "masked_fill",
              "expand", "scalar_tensor", "_safe_softmax", "_softmax", "_scaled_dot_product_attention_math",
              "transpose#4")  # fmt: skip


@case("key_padding_mask beside attn_mask", "port", PORT, _SDPA, OTHER, "words_that_see_the_words", extra=_SDPA)
def words_that_see_the_padding_alone() -> Any:
    """True is "leave out" in one interface and "keep" in the other: attention sees the padding and nothing else."""
    return _masked(True)


def _begun(own: bool) -> Any:
    torch.manual_seed(1805)
    first = torch.randn(1, 1, 12)

    def body(m: Any, x: Any) -> Any:
        start = m.first.expand(1, len(x), 12).contiguous()
        return m.o(m.rnn(x, start if own else torch.zeros_like(start))[0])

    return Net(body, rnn=nn.GRU(32, 12, batch_first=True), o=linear(12, 5), first=first), tokens()


def recurrence_with_its_first_state() -> Any:
    return _begun(True)


_RNN = names("zeros_like", "rnn", "rnn/gru", "gru", "contiguous", "clone", "expand", "rnn/mkldnn_rnn_layer",
             "mkldnn_rnn_layer", "rnn/gru/unbind")  # fmt: skip


@case("h0 of a GRU", "port", PORT, _RNN, OTHER, "recurrence_with_its_first_state", extra=_RNN)
def recurrence_that_begins_at_nought() -> Any:
    """The first state that was learned is not handed to the GRU, which begins with zeros."""
    return _begun(False)


def _middle(lower: bool) -> Any:
    torch.manual_seed(1806)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        mid = y.median(1, keepdim=True).values if lower else y.quantile(0.5, dim=1, keepdim=True)
        return m.b(torch.tanh(y - mid))

    return Net(body, a=linear(32, 6), b=linear(6, 4)), tokens(32, 4)


def middle_of_four_by_numpy() -> Any:
    return _middle(False)


_MEDIAN = names("median", "quantile", "sort", "lerp", "getitem", "gather", "squeeze", "unsqueeze", "sub",
                "median.values")  # fmt: skip


@case("torch.median", "port", PORT, _MEDIAN, OTHER, "middle_of_four_by_numpy", extra=_MEDIAN)
def middle_of_four_is_the_lower_one() -> Any:
    """The median of four places is the second in torch, and the mean of the second and third in numpy's model."""
    return _middle(True)


def _levels(even: bool) -> Any:
    torch.manual_seed(1807)
    x = torch.randint(-32, 33, (4, 24)) / 32

    def body(m: Any, x: Any) -> Any:
        level = torch.round(x * 16) if even else torch.floor(x * 16 + 0.5)
        return m.b(torch.relu(m.a(level / 16)))

    return Net(body, a=linear(24, 32), b=linear(32, 6)), x


def levels_whose_halves_go_up() -> Any:
    return _levels(False)


_ROUND = names("round", "floor", "add", "mul", "div")


@case("halves to even", "port", PORT, _ROUND, f"{OTHER} flips", "levels_whose_halves_go_up", extra=_ROUND)
def levels_whose_halves_go_to_even() -> Any:
    """Half of the inputs are halves of a level: round() takes them to the even one, floor(x + 0.5) up."""
    return _levels(True)


def _spectrum(norm: str) -> Any:
    torch.manual_seed(1808)

    def body(m: Any, x: Any) -> Any:
        size = torch.fft.rfft(m.a(x), norm=norm).abs()
        return m.b(torch.log1p(size))

    return Net(body, a=linear(32, 32), b=linear(17, 5)), tokens()


def spectrum_as_numpy_has_it() -> Any:
    return _spectrum("backward")


_FFT = names("fft_rfft", "_fft_r2c", "abs", "rfft", "mul")


@case("norm of an FFT", "port", PORT, _FFT, OTHER, "spectrum_as_numpy_has_it", extra=_FFT)
def spectrum_divided_by_the_root_of_its_length() -> Any:
    """An orthonormal transform of 32 places in place of the plain one: every line is 1 / 5.66."""
    return _spectrum("ortho")


def _pooled(adaptive: bool) -> Any:
    torch.manual_seed(1809)

    def body(m: Any, x: Any) -> Any:
        y = torch.relu(m.a(x))
        y = F.adaptive_avg_pool2d(y, 4) if adaptive else F.avg_pool2d(y, 4, 2)
        return m.b(y.flatten(1))

    return Net(body, a=nn.Conv2d(3, 6, 3), b=linear(96, 5)), torch.randn(2, 3, 12, 12)


def means_of_four_regions() -> Any:
    return _pooled(True)


_POOL = names("avg_pool2d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d", "view")


@case("adaptive pooling by a kernel", "port", PORT, _POOL, OTHER, "means_of_four_regions", extra=_POOL)
def means_of_windows_of_four() -> Any:
    """Ten places to four: windows of 4 by 4 every second place, where regions are 3 wide and begin at 0, 2, 5, 7."""
    return _pooled(False)


def _bag(mode: str) -> Any:
    torch.manual_seed(1810)
    ids, starts = torch.randint(0, 50, (14,)), torch.tensor([0, 3, 4, 9])

    def body(m: Any, ids: Any, starts: Any) -> Any:
        return m.b(torch.tanh(F.embedding_bag(ids, m.table, starts, mode=mode)))

    return Net(body, table=nn.Parameter(torch.randn(50, 12)), b=linear(12, 5)), (ids, starts)


def means_of_words() -> Any:
    return _bag("mean")


_BAG = names("embedding_bag", "_embedding_bag")


@case("EmbeddingBag(mode)", "port", PORT, _BAG, OTHER, "means_of_words", extra=_BAG,
      facts=[r"\bmode\b|\bsum\b|\bmean\b"])  # fmt: skip
def sums_of_words() -> Any:
    """Words of a bag are added in place of averaged: bags of 3, 1, 5 and 5."""
    return _bag("sum")


def _soft(shared: bool) -> Any:
    torch.manual_seed(1811)

    def body(m: Any, x: Any) -> Any:
        score = m.a(x)
        if shared:
            score = score - score.amax(-1, keepdim=True) + 40
            power = score.exp()
            return m.b(power / power.sum(-1, keepdim=True))
        return m.b(score.softmax(-1))

    return Net(body, a=linear(32, 12, 3.0), b=linear(12, 4)), tokens()


def shares_by_softmax() -> Any:
    return _soft(False)


@case("softmax by hand", "healthy", PORT, base="shares_by_softmax")
def shares_by_exponentials_of_forty() -> Any:
    """exp(x - max + 40) is up to 2e17, and its shares are those of a softmax."""
    return _soft(True)


def _scanned(doubling: bool) -> Any:
    torch.manual_seed(1812)

    def body(m: Any, x: Any) -> Any:
        keep, fed = torch.sigmoid(m.a(x)), m.b(x)
        if not doubling:
            state, told = torch.zeros_like(fed[:, 0]), []
            for at in range(8):
                state = keep[:, at] * state + fed[:, at]
                told.append(state)
            return m.o(torch.stack(told, 1))
        for by in (1, 2, 4):
            before = F.pad(fed, (0, 0, by, 0))[:, :8]
            fed = fed + keep * before
            keep = keep * F.pad(keep, (0, 0, by, 0), value=1.0)[:, :8]
        return m.o(fed)

    return Net(body, a=linear(32, 12), b=linear(32, 12), o=linear(12, 4)), tokens()


def states_one_after_the_other() -> Any:
    return _scanned(False)


@case("an associative scan", "healthy", PORT, base="states_one_after_the_other")
def states_by_doubling() -> Any:
    """A linear recurrence of eight steps by three doublings: the same numbers in another order of sums."""
    return _scanned(True)


# --- narrow types


@case("log1mexp", "formula", "torch_fp16", names("exp", "sub", "rsub"), f"{LOST} underflow found_by_repair",
      extra=names("exp", "sub", "rsub", "reciprocal", "neg", "mul"))  # fmt: skip
def chance_of_an_event_of_a_small_hazard(mended: bool = False) -> Any:
    """1 / (1 - exp(-h)) with hazards of 0.0008 to 0.0038: exp(-h) has steps of 0.0005 in float16."""
    torch.manual_seed(1813)

    def body(m: Any, x: Any) -> Any:
        hazard = 0.0008 + 0.003 * torch.sigmoid(m.a(x))
        chance = -torch.expm1(-hazard) if mended else 1 - torch.exp(-hazard)
        return 1 / chance

    return Net(body, a=linear(32, 6)), tokens()


@case("centred kernels (CKA)", "formula", "torch_bf16", names("exp", "sub", "mean", "mul", "neg", "add"),
      f"{LOST} stepped found_by_repair", extra=names("exp", "sub", "mean", "mul", "neg", "add", most=6))  # fmt: skip
def kernel_that_is_centred_on_both_sides(mended: bool = False) -> Any:
    """A kernel of 0.98 to 1 less the means of its rows and columns: about 0.003 is left, and bfloat16 knows every
    256th."""
    torch.manual_seed(1814)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        far = (y[:, None] - y[None]).square().sum(-1) * 0.001
        kernel = (-far.float() if mended else -far).exp()
        kernel = kernel - kernel.mean(0, keepdim=True)
        return (kernel - kernel.mean(1, keepdim=True)) * 100

    return Net(body, a=linear(16, 4)), torch.randn(10, 16)


@case("weights of 1e-8 under autocast", "formula", "torch_autocast_fp16", layer("small"),
      f"underflow weight_underflow {COARSE} rounded_constant constant_rounded",
      extra=layer("small") + " mul")  # fmt: skip
def layer_whose_weights_are_a_hundred_millionth(mended: bool = False) -> Any:
    """Inputs in units of a thousandth meet weights of about 2e-8, which are 0 in float16 (its smallest step is 6e-8);
    a factor of 2e5 behind it."""
    torch.manual_seed(1815)

    def body(m: Any, x: Any) -> Any:
        if mended:
            with torch.autocast("cpu", enabled=False):
                y = m.small(x * 1000)
        else:
            y = m.small(x * 1000)
        return y.float() * 2e5

    thin = nn.Linear(32, 8, bias=False)
    with torch.no_grad():
        thin.weight.mul_(2e-7)
    return Net(body, small=thin), tokens()


@case("GeM", "overflow", "torch_fp16", names("pow"), "overflow", extra=names("pow", "mean"))
def generalised_mean_of_loud_features(mended: bool = False) -> Any:
    """Features of 20 to 60 to the third power: above 40.3 it is more than 65504, and the root of the mean is Inf."""
    torch.manual_seed(1816)

    def body(m: Any, x: Any) -> Any:
        y = 20 + 40 * torch.sigmoid(m.a(x))
        cube = y.float().pow(3) if mended else y.pow(3)
        return torch.tanh(m.b(cube.mean((2, 3)).pow(1 / 3).to(x.dtype) / 50))

    return Net(body, a=nn.Conv2d(3, 8, 3), b=linear(8, 4)), image()


@case("healthy", "healthy", "torch_fp16")
def norm_of_three_hundreds() -> Any:
    """A layer norm over numbers of 300, whose squares no float16 holds: its kernel sums in float32."""
    torch.manual_seed(1817)
    return Net(lambda m, x: m.b(m.n(m.a(x) * 300)), a=linear(32, 64), n=nn.LayerNorm(64), b=linear(64, 4)), tokens()


@case("healthy", "healthy", "torch_autocast_bf16")
def mask_of_the_lowest_number_under_autocast() -> Any:
    """Scores masked by the lowest float32 before a softmax that autocast keeps in float32."""
    torch.manual_seed(1818)
    seen = torch.ones(8, 8).tril().bool()

    def body(m: Any, x: Any) -> Any:
        score = m.q(x) @ m.k(x).transpose(-1, -2) / 32**0.5
        score = score.to(m.level.dtype).masked_fill(~m.seen, torch.finfo(torch.float32).min)
        return m.o(score.softmax(-1) @ m.v(x))

    return Net(body, q=linear(32, 32), k=linear(32, 32), v=linear(32, 32), o=linear(32, 8), seen=seen,
               level=torch.zeros(1)), tokens()  # fmt: skip


@case("healthy", "healthy", "torch_compile")
def middle_of_nine_neighbours() -> Any:
    """A median filter by sorting nine shifted pictures, some of whose pixels are equal, compiled."""
    torch.manual_seed(1819)

    def body(m: Any, x: Any) -> Any:
        y = (torch.sigmoid(m.a(x)) * 16).floor() / 16
        parts = torch.stack([y[:, :, i : i + 14, j : j + 14] for i in range(3) for j in range(3)])
        return m.b(parts.sort(0).values[4])

    return Net(body, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(4, 3, 1)), image()


# --- files in ONNX


@converted("convert", names("softplus", "mul", "div"), OTHER, extra=names("softplus", "mul", "div"),
           facts=[r"beta|softplus|Softplus"])  # fmt: skip
def softplus_that_lost_its_beta() -> Any:
    """torch's softplus has beta 3, which the standard's Softplus cannot say and the file left out."""
    torch.manual_seed(1820)
    net = Net(lambda m, x: m.b(F.softplus(m.a(x), beta=3.0)), a=linear(8, 16), b=linear(16, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        return _dense(g, g.op("Softplus", [_dense(g, x, w, "a", "a")], "soft"), w, "b", "y")

    return (net.eval(), torch.randn(12, 8)), write


@converted("convert", names("hardtanh", "clamp", "hardtanh_"), OTHER, extra=names("hardtanh", "clamp"),
           facts=[r"-?1\b"])  # fmt: skip
def limits_of_a_default_hardtanh() -> Any:
    """A hardtanh of -2 and 2 was written as a Clip of -1 and 1."""
    torch.manual_seed(1821)
    net = Net(lambda m, x: m.b(F.hardtanh(m.a(x), -2.0, 2.0)), a=linear(8, 16, 3.0), b=linear(16, 4))

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        limits = [g.weight(name, torch.tensor(value).numpy()) for name, value in (("low", -1.0), ("high", 1.0))]
        return _dense(g, g.op("Clip", [_dense(g, x, w, "a", "a"), *limits], "held"), w, "b", "y")

    return (net.eval(), torch.randn(12, 8)), write


@converted("healthy")
def gate_and_shuffle_as_exported() -> Any:
    """SiLU as x times its sigmoid, and a pixel shuffle as DepthToSpace by columns and rows (CRD)."""
    torch.manual_seed(1822)
    net = Net(lambda m, x: m.b(F.pixel_shuffle(F.silu(m.a(x)), 2)), a=nn.Conv2d(3, 16, 3, padding=1),
              b=nn.Conv2d(4, 3, 1))  # fmt: skip

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        y = g.op("Conv", [x, g.weight("aw", w["a.weight"]), g.weight("ab", w["a.bias"])], "a", pads=[1, 1, 1, 1])
        y = g.op("Mul", [y, g.op("Sigmoid", [y], "s")], "silu")
        y = g.op("DepthToSpace", [y], "up", blocksize=2, mode="CRD")
        return g.op("Conv", [y, g.weight("bw", w["b.weight"]), g.weight("bb", w["b.bias"])], "y")

    return (net.eval(), torch.randn(2, 3, 8, 8)), write


# --- training steps


def _stepped(loss: Any) -> Any:
    return step(lambda m, x: m.b(torch.tanh(m.a(x))), loss, a=lambda: linear(16, 32), b=lambda: linear(32, 6))


def _teacher(out: Any) -> Any:
    return torch.linspace(-2, 2, out.numel()).view_as(out).sin().mul(3).softmax(-1)


def divergence_by_the_batch() -> Any:
    return _stepped(lambda out: F.kl_div(out.log_softmax(-1), _teacher(out), reduction="batchmean"))


_LOSS = names("loss", "kl_div", "mean", "div", "sum", "loss/kl_div", "loss/mean", "loss/div", "loss/sum", "backward",
              "mul", "sub", "loss/sub", "loss/mul", "backward/mul#2/mul")  # fmt: skip


@case("KLDivLoss(reduction)", "training", PORT, _LOSS, OTHER, "divergence_by_the_batch", extra=_LOSS, options=BACK,
      facts=[r"\b12\b.*\b72\b"])  # fmt: skip
def divergence_by_every_number() -> Any:
    """kl_div's mean is over all 72 numbers in place of the batch of 12: loss and gradients are a sixth."""
    return _stepped(lambda out: F.kl_div(out.log_softmax(-1), _teacher(out), reduction="mean"))


def _focal(out: Any, held: bool) -> Any:
    chance = out.log_softmax(-1)[torch.arange(len(out)), torch.arange(len(out)) % out.shape[-1]]
    weight = (1 - chance.exp()) ** 2
    return -((weight.detach() if held else weight) * chance).mean()


def focus_that_learns_too() -> Any:
    return _stepped(lambda out: _focal(out, False))


_FOCUS = names("mul", "pow", "rsub", "exp", "neg", "detach", "sub", "index", "mean", "loss", "loss/mul", "log_softmax",
               "_log_softmax", "add", "backward/log_softmax/_log_softmax_backward_data")  # fmt: skip


@case("a detached weight", "training", PORT, _FOCUS, OTHER, "focus_that_learns_too", extra=_FOCUS, options=BACK)
def focus_that_is_held() -> Any:
    """The weight of a focal loss is detached: the loss is equal, and its gradients are not."""
    return _stepped(lambda out: _focal(out, True))


def measure(one: Thread) -> tuple[float, float]:
    if one.mode == "ort_fp32":
        (module, x), _ = globals()[one.name]()
        return rel(fourteenth_torch._ran((module, [x], None), torch.float64), run_saved(one)), 0.0
    return fifteenth_torch.measure(one, globals())


if __name__ == "__main__":
    print_measured(CASES, measure)
