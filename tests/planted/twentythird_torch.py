"""A twenty-third batch of PyTorch, of what strangers ask in public: narrow types, autocast, the compiler, modules and
files beside each other, training steps; written and labelled before any of it was compared.

    python tests/planted/twentythird_torch.py [WORD …]

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
from planted.onnx_further import ints
from planted.tenth_torch import step
from planted.torch_faults import Net, image, linear, tokens
from planted.twelfth.case import DIFFER, Thread

CASES: list[Thread] = []
BUILDS: dict[str, tuple[Any, Any]] = {}
case = functools.partial(fifteenth_torch.case, cases=CASES, module="twentythird_torch")
converted = functools.partial(fourteenth_torch.converted, cases=CASES, module_of="twentythird_torch")
names = functools.partial(_names, most=8)
two = functools.partial(twentyfirst_torch.two, of=globals())
GH = "https://github.com/"

# --- narrow types


@case("overflow", "overflow", "torch_fp16", names("mul", "add"), "overflow born infinite_constant", extra=names(
    "mul", "add", "softmax", "matmul", "bmm"))  # fmt: skip
def row_of_padding_alone_under_a_mask_of_a_billion() -> Any:
    """https://github.com/google/flax/issues/982, fairseq 3575: a mask of (1 - m) * -1e9 in half is -Inf, and a row of
    padding alone becomes NaN; in float32 it is uniform."""
    torch.manual_seed(2301)
    seen = torch.ones(2, 8)
    seen[1] = 0
    seen[0, 6:] = 0

    def body(m: Any, x: Any) -> Any:
        score = m.q(x) @ m.k(x).transpose(-1, -2) / 32**0.5
        return m.o((score + ((1 - m.seen) * -1e9)[:, None]).softmax(-1) @ x)

    return Net(body, q=linear(32, 32), k=linear(32, 32), o=linear(32, 4), seen=seen), tokens()


@case("overflow", "overflow", "torch_fp16", names("add"), "overflow born", extra=names("add", "softmax"))
def row_of_the_lowest_half_under_low_scores() -> Any:
    """https://github.com/huggingface/transformers/pull/18057: a row of padding alone is masked by -65504, half's
    lowest; with scores about -40 it becomes -Inf, and its softmax NaN."""
    torch.manual_seed(2302)
    mask = torch.full((8, 8), -65504.0).triu(1).repeat(2, 1, 1)
    mask[1, :, :3] = -65504.0

    def body(m: Any, x: Any) -> Any:
        score = m.q(x) @ m.k(x).transpose(-1, -2) / 32**0.5 + m.low
        return m.o((score + m.mask).softmax(-1) @ x)

    return Net(body, q=linear(32, 32, 2.0), k=linear(32, 32, 2.0), o=linear(32, 4), mask=mask,
               low=torch.tensor(-40.0)), tokens()  # fmt: skip


_TABLE = names("arange", "mul", "outer", "cos", "sin", "einsum", "to", "_to_copy", "type_as")


@case("formula", "formula", "torch_fp16", names("mul", "outer", "einsum"), f"{LOST} stepped found_by_repair "
      "reads_rounded periodic", extra=_TABLE + " " + names("add", "neg", "cat"))  # fmt: skip
def table_of_a_rotation_made_in_half() -> Any:
    """https://github.com/huggingface/transformers/issues/25681: cosines and sines are made of inv_freq, a buffer that
    .half() turned: places of up to 2,047 times frequencies in half."""
    torch.manual_seed(2303)

    def body(m: Any, x: Any) -> Any:
        angle = m.place[:, None] * m.inv_freq
        angle = torch.cat([angle, angle], -1)
        y = m.q(x)
        half = torch.cat([-y[..., 16:], y[..., :16]], -1)
        return m.o(y * angle.cos() + half * angle.sin())

    return Net(body, q=linear(32, 32), o=linear(32, 4), place=torch.arange(1984.0, 2048.0),
               inv_freq=10000 ** (-torch.arange(16) / 16)), torch.randn(1, 64, 32)  # fmt: skip


@case("formula", "formula", "torch_autocast_bf16", names("matmul", "bmm", "mm"), f"{LOST} stepped found_by_repair "
      "reads_rounded periodic", extra=names("matmul", "bmm", "mm", "expand", "view", "_unsafe_view", "transpose", "cat",
                                            "cos", "sin", "mul", "add"))  # fmt: skip
def angles_by_a_matrix_product_under_autocast() -> Any:
    """https://github.com/huggingface/transformers/pull/29285: angles by inv_freq @ places: autocast multiplies in
    bfloat16, whose step at 4,000 is 16."""
    torch.manual_seed(2304)

    def body(m: Any, x: Any) -> Any:
        angle = (m.inv_freq[:, None] @ m.place[None]).transpose(0, 1)
        angle = torch.cat([angle, angle], -1)
        y = m.q(x).float()
        half = torch.cat([-y[..., 8:], y[..., :8]], -1)
        return m.o(y * angle.cos() + half * angle.sin())

    return Net(body, q=linear(32, 16), o=linear(16, 4), place=torch.arange(4001.0, 4033.0),
               inv_freq=10000 ** (-torch.arange(8) / 8)), torch.randn(1, 32, 32)  # fmt: skip


@case("underflow", "underflow", "torch_fp16", names("softmax", "log"), "underflow underflow_inside born",
      extra=names("softmax", "log"))  # fmt: skip
def logarithm_of_a_softmax_in_half() -> Any:
    """https://github.com/NVIDIA/apex/issues/379: log(softmax(x)) in two steps: shares below 6e-8 become 0 and their
    logarithm -Inf."""
    torch.manual_seed(2305)

    def body(m: Any, x: Any) -> Any:
        return m.a(x).softmax(-1).log()

    return Net(body, a=linear(32, 16, 12.0)), tokens()


@case("overflow", "overflow", "torch_fp16", layer("blocks.5.down") + " blocks.5/mul " + names("mul"),
      "overflow range_inside", extra=layer("blocks.5.down") + " blocks.5/mul blocks.5/add " + names("mul", "add"))
def stream_of_a_bfloat16_model_in_half() -> Any:
    """https://github.com/deepseek-ai/DeepSeek-V2/issues/93: a model that was trained in bfloat16: one of eight blocks
    writes 2e5 into the stream, and a norm behind makes it small again."""
    torch.manual_seed(2306)

    class Block(nn.Module):
        def __init__(self, size: float) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(32), linear(32, 64), linear(64, 32, size)

        def forward(self, x: Any) -> Any:
            return x + self.down(F.silu(self.up(self.norm(x))))

    def body(m: Any, x: Any) -> Any:
        for one in m.blocks:
            x = one(x)
        return m.o(m.norm(x))

    return Net(body, blocks=nn.ModuleList(Block(4e5 if n == 5 else 1.0) for n in range(8)), norm=nn.LayerNorm(32),
               o=linear(32, 4)), tokens()  # fmt: skip


# --- the compiler


_INVERSE = names("inverse", "linalg_inv", "linalg_inv_ex")


@case("formula", "compiler", "torch_compile", _INVERSE, f"{LOST} stepped chaotic kernels_disagree wrong_kernel "
      "ill_conditioned", extra=_INVERSE + " " + names("upsample_bilinear2d", "interpolate"), statuses=(0, 3),
      anyone=True, fix=False)  # fmt: skip
def inverse_of_an_enlarged_picture() -> Any:
    """https://github.com/pytorch/pytorch/issues/150165: a picture of 6 by 6 enlarged to 12 by 12 is singular: its
    inverse is noise in either, and no compiler's fault."""
    torch.manual_seed(1)

    def body(m: Any, x: Any) -> Any:
        return torch.inverse(F.interpolate(x, size=(12, 12), mode="bilinear", align_corners=True) + m.dust)

    x = torch.randn(1, 3, 6, 6)
    return Net(body, dust=1e-9 * torch.randn(12, 12)), x


@case("healthy", "healthy", "torch_compile")
def sign_of_a_negative_nought_compiled() -> Any:
    """https://github.com/pytorch/pytorch/issues/174172: copysign with -0.0; right on a CPU."""
    torch.manual_seed(2307)
    return Net(lambda m, x: m.o(torch.copysign(m.a(x), -0.0)), a=linear(32, 16), o=linear(16, 4)), tokens()


@case("healthy", "healthy", "torch_compile")
def slice_that_is_added_to_in_place() -> Any:
    """https://github.com/pytorch/pytorch/issues/136662, 138908: y[:, 0] += |x[:, 2]| and y[i] += y[i] in place."""
    torch.manual_seed(2308)

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        y[:, 0] += y[:, 2].abs()
        y[m.at] += y[m.at]
        return m.o(y)

    return Net(body, a=linear(32, 16), o=linear(16, 4), at=torch.tensor([1, 0])), tokens()


@case("healthy", "healthy", "torch_compile")
def projections_by_einsum_compiled() -> Any:
    """https://github.com/pytorch/pytorch/issues/179575: a layer of attention by einsum; equal but for the order of
    additions, of which bit for bit was asked."""
    torch.manual_seed(2309)

    def body(m: Any, x: Any) -> Any:
        q, key, v = (torch.einsum("btd,dhe->bhte", x, one) for one in (m.q, m.k, m.v))
        share = (torch.einsum("bhte,bhse->bhts", q, key) / 8**0.5).softmax(-1)
        return m.o(torch.einsum("bhts,bhse->bthe", share, v).flatten(2))

    parts = {one: nn.Parameter(torch.randn(32, 4, 8) / 5) for one in "qkv"}
    return Net(body, **parts, o=linear(32, 8)), tokens()


# --- two modules


def _dropped(on: bool) -> Any:
    return Net(lambda m, x: m.o(F.dropout(torch.relu(m.a(x)), 0.25, training=on)), a=linear(32, 64),
               o=linear(64, 4)), tokens()  # fmt: skip


_DROP = names("dropout", "native_dropout", "bernoulli", "bernoulli_", "empty_like", "div_", "mul", "div")
two("dropout_that_is_still_on", f"{GH}pytorch/pytorch/issues/109532: one side was run in training mode: its "
    "dropout of 0.25 is on, and other numbers are left out each time.", _dropped, False, True, _DROP,
    facts=["dropout|train"], why="random nondeterministic not_repeatable", statuses=(0, 3))  # fmt: skip


def _drifted(how: float) -> Any:
    net = Net(lambda m, x: m.o(torch.relu(m.n(m.c(x)))), c=nn.Conv2d(3, 8, 3, padding=1), n=nn.BatchNorm2d(8),
              o=nn.Conv2d(8, 4, 1))  # fmt: skip
    with torch.no_grad():
        net.n.weight.uniform_(0.5, 1.5), net.n.bias.normal_()
        net.n.running_mean.normal_().mul_(0.3), net.n.running_var.uniform_(0.2, 0.6)
        net.n.running_mean.add_(how), net.n.running_var.mul_(1 + how)
    return net, image()


_NORM = names("native_batch_norm", "batch_norm", "_native_batch_norm_legit_no_training") + " n n/batch_norm " + (
    "n/native_batch_norm n/_native_batch_norm_legit_no_training")  # fmt: skip
two("statistics_of_a_frozen_norm_that_drifted", f"{GH}neanes/byzantine-chant-ocr/pull/144: a frozen backbone stayed in "
    "train(): weights are equal, the running mean and variance are not.", _drifted, 0.0, 0.4, _NORM,
    facts=[r"running_(mean|var)"])  # fmt: skip


def _low_rank(merged: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        for w, a, b in zip(m.w, m.a, m.b, strict=True):
            x = x + torch.tanh(x @ (w + 2.0 * (a @ b)) if merged else x @ w + 2.0 * (x @ a @ b))
        return m.o(x)

    made = [nn.ParameterList([nn.Parameter(torch.randn(*size) / 8) for _ in range(4)]) for size in (
        (32, 32), (32, 4), (4, 32))]  # fmt: skip
    return Net(body, w=made[0], a=made[1], b=made[2], o=linear(32, 8)), tokens()


two("adapter_beside_its_matrix_or_merged", f"{GH}meta-pytorch/torchtune/issues/1101: an adapter beside its matrix, and "
    "merged into it: equal but for rounding.", _low_rank, False, True)  # fmt: skip


def _sampled(how: bool) -> Any:
    def body(m: Any, x: Any) -> Any:
        y = m.c(x)
        if how:
            flow = F.affine_grid(m.theta, list(y.shape), align_corners=True)
            y = F.grid_sample(y, flow, align_corners=True)
        return m.o(y)

    return Net(body, c=nn.Conv2d(3, 8, 3, padding=1), o=nn.Conv2d(8, 4, 1),
               theta=torch.tensor([[[1.0, 0, 0], [0, 1, 0]]]).expand(2, 2, 3)), image()  # fmt: skip


two("picture_sampled_where_it_is", f"{GH}pytorch/pytorch/issues/81868: grid_sample at a picture's own places gives the "
    "picture but for rounding.", _sampled, False, True)  # fmt: skip

# --- modules and the files that were made of them


@converted("convert", names("upsample_bilinear2d", "interpolate") + " small", f"{DIFFER} unfound",
           extra=names("upsample_bilinear2d", "interpolate") + " small",
           facts=["coordinate_transformation_mode|half_pixel"])  # fmt: skip
def picture_of_one_pixel_by_pytorch_half_pixel() -> Any:
    """https://github.com/pytorch/pytorch/issues/183523: interpolate to (1, 1) reads the middle; the exporter wrote
    pytorch_half_pixel, which reads the first corner there."""
    torch.manual_seed(2310)
    net = Net(lambda m, x: torch.tanh(F.interpolate(m.c(x), size=(1, 1), mode="bilinear", align_corners=False)),
              c=nn.Conv2d(3, 8, 3, padding=1))  # fmt: skip

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        x = g.op("Conv", [x, g.weight("c.w", w["c.weight"]), g.weight("c.b", w["c.bias"])], "c", pads=[1] * 4)
        x = g.op("Resize", [x, "", "", ints(g, "size", 1, 8, 1, 1)], "small", mode="linear",
                 coordinate_transformation_mode="pytorch_half_pixel")  # fmt: skip
        return g.op("Tanh", [x], "y")

    return (net.eval(), torch.randn(1, 3, 10, 10)), write


@converted("healthy")
def pool_with_a_ceiling_and_its_padding() -> Any:
    """https://github.com/pytorch/pytorch/issues/183528: avg_pool2d with ceil_mode and count_include_pad, and its file,
    which this ONNX Runtime computes as PyTorch does."""
    torch.manual_seed(2311)
    net = Net(lambda m, x: F.avg_pool2d(m.c(x), 3, 2, 1, ceil_mode=True, count_include_pad=True),
              c=nn.Conv2d(3, 6, 3, padding=1))  # fmt: skip

    def write(g: Graph, x: str, w: Mapping[str, Array]) -> str:
        x = g.op("Conv", [x, g.weight("c.w", w["c.weight"]), g.weight("c.b", w["c.bias"])], "c", pads=[1] * 4)
        return g.op("AveragePool", [x], "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1,
                    count_include_pad=1)  # fmt: skip

    return (net.eval(), torch.randn(1, 3, 10, 10)), write


# --- training steps


def _passes(parts: int) -> Any:
    def loss(out: Any) -> Any:
        return F.cross_entropy(out, torch.arange(len(out)) % 6) / parts

    return step(lambda m, x: m.b(torch.tanh(m.a(x))), loss, None, a=lambda: linear(16, 32), b=lambda: linear(32, 6))


_SCALED = names("div", "loss/div", "backward/div", "backward/loss/div", "cross_entropy", "loss/cross_entropy", "mul")
two("loss_that_is_not_divided_by_its_passes", f"{GH}huggingface/trl/issues/2617, transformers 35207: the loss is not "
    "divided by four passes: every gradient is four times as large.", _passes, 4, 1, _SCALED, kind="training",
    options=BACK, facts=[r"\b4\b|four|0\.25"])  # fmt: skip


def main() -> int:
    twentyfirst_torch.CASES[:], twentyfirst_torch.BUILDS = CASES, BUILDS
    vars(twentyfirst_torch).update({one.name: globals()[one.name] for one in CASES})
    return twentyfirst_torch.main()


if __name__ == "__main__":
    raise SystemExit(main())
