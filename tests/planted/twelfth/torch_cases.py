"""Threads about PyTorch: narrow types, autocast, the compiler, and exports to ONNX beside the module they came from."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from planted.onnx_faults import Array
from planted.torch_faults import Net, linear
from planted.twelfth.case import DIFFER, Thread, labelled

CASES: list[Thread] = []
# After the first run: names are the module's where it is the baseline; "sum#2" is the second sum, which the label
# had as "sum"; of the snake the label had the product, and measured alone it is the rounded exponent.
CANCELS = "cancellation cancels amplified amplifies coarse"


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _source(folder: Path, factory: str) -> str:
    """A user's own file, in which the factory is found."""
    file = folder / f"{factory}_model.py"
    path = f"import sys\n\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    file.write_text(f"{path}from planted.twelfth.torch_cases import *  # noqa\n")
    return f"{file}:{factory}"


def case(*label: Any, **more: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """A factory of (module, inputs) in a mode."""

    def register(build: Callable[[], Any]) -> Callable[[], Any]:
        CASES.append(labelled(build, *label, make=lambda folder: (_source(folder, build.__name__), None, None), **more))
        return build

    return register


def exported(*label: Any, feeds: Callable[[], Mapping[str, Any]], other: Callable[[], Any] | None = None,
             **more: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:  # fmt: skip
    """The module as it is beside its ONNX file. feeds: what both get; the file is traced with the factory's inputs.
    other: what is exported in the module's place, as an older exporter wrote it."""

    def register(build: Callable[[], Any]) -> Callable[[], Any]:
        def make(folder: Path) -> tuple[Path, str, Mapping[str, Array]]:
            module, inputs = (other or build)()
            told = feeds()
            traced = inputs if isinstance(inputs, tuple) else (inputs,)
            axes = {
                name: {at: f"{name}_{at}" for at in range(value.dim()) if value.shape[at] != one.shape[at]}
                for (name, value), one in zip(told.items(), traced, strict=True)
            }
            path = folder / f"{build.__name__}.onnx"
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")  # the tracer warns of what the case is about
                torch.onnx.export(
                    module.eval(), traced, str(path), dynamo=False,
                    input_names=list(told), output_names=["y"], dynamic_axes=axes, opset_version=17,
                )  # fmt: skip
            return path, _source(folder, build.__name__), {name: value.numpy() for name, value in told.items()}

        CASES.append(labelled(build, *label, make=make, baseline="torch_fp32", **more))
        return build

    return register


# --- float16 and bfloat16


@case("huggingface/diffusers#13316", "overflow", "torch_fp16", "normalize div clamp_min expand clamp",
      "underflow weight_underflow born", offered=True, extra="div clamp_min normalize expand linalg_vector_norm mul",
      mends="the norm in float32")  # fmt: skip
def norm_of_a_black_border() -> Any:
    """An autoencoder's RMS norm by F.normalize: channels that are all 0 at the border have no length, the floor of
    1e-12 is 0 in float16, and 0/0 is NaN."""

    def body(m: Any, x: Any) -> Any:
        y = F.normalize(x, dim=1) * 16**0.5 * m.gamma
        return m.last(F.silu(y))

    x = torch.randn(2, 16, 10, 10)
    x[..., :2] = 0
    return Net(body, gamma=nn.Parameter(torch.rand(16, 1, 1) + 0.5), last=nn.Conv2d(16, 4, 3, padding=1)), x


@case("pytorch/pytorch#61523", "overflow", "torch_fp16", "sum#2", "overflow", extra="div", offered=True,
      mends="the sum in float32")  # fmt: skip
def mean_of_many_losses() -> Any:
    """The mean of 6000 losses of about 14, by a sum that is beyond 65504."""

    def body(m: Any, x: Any) -> Any:
        loss = m.b(torch.relu(m.a(x))).square().sum(-1).clamp(max=60)
        return loss.sum() / loss.numel(), torch.tanh(loss * 0.1)

    return Net(body, a=linear(16, 32, 3.0), b=linear(32, 8, 3.0)), torch.randn(6000, 16)


@case("tenstorrent/tt-xla#6009", "cancellation", "torch_bf16", "exp", CANCELS,
      extra="mul exp a/conv1d a/convolution add sin x", mends="all up to the sine in float32")  # fmt: skip
def snake_of_a_steep_vocoder() -> Any:
    """A vocoder's snake, x + sin(a x)^2 / a with a of 60 to 400, held as its logarithm: rounded, that alone makes
    0.181 of 0.190, and what comes in 0.094. To keep the product alone in float32 mends nothing."""

    def body(m: Any, x: Any) -> Any:
        x = m.a(x)
        steep = m.log_alpha.exp()
        return m.b(x + (1.0 / (steep + 1e-9)) * torch.sin(x * steep).pow(2) * 60)

    log_alpha = nn.Parameter(torch.linspace(4.1, 6.0, 8)[:, None])
    return Net(body, a=nn.Conv1d(4, 8, 3, padding=1), b=nn.Conv1d(8, 2, 3, padding=1), log_alpha=log_alpha), (
        torch.randn(2, 4, 64)
    )


@case("pytorch/pytorch#141802", "healthy", "torch_bf16", "", "")
def long_running_sum_in_bfloat16() -> Any:
    """A running sum of 4096 steps and the log of one: kernels add in float32 and round what they give, which is off by
    8 at 3000 and by 0.2 % of its size."""

    def body(m: Any, x: Any) -> Any:
        y = m.a(x)
        return y.abs().cumsum(-1), y.logcumsumexp(-1)

    return Net(body, a=nn.Conv1d(2, 4, 3, padding=1)), torch.randn(2, 2, 4096)


@case("huggingface/diffusers#13920", "cancellation", "torch_autocast_bf16", "bmm matmul", CANCELS + " flips",
      extra="bmm matmul cos sin", offered=True, mends="the product outside autocast")  # fmt: skip
def places_of_an_image_behind_65536() -> Any:
    """Rotary angles by a product under autocast: 65536 and the 255 places behind it are one number in bfloat16."""

    def body(m: Any, x: Any) -> Any:
        place = (65536 + torch.arange(16, dtype=torch.float32)).expand(2, 1, 16)
        angle = torch.matmul(m.inverse.expand(2, 8, 1), place).transpose(1, 2)
        y = m.a(x)
        return m.b(torch.cat([y[..., :8] * angle.cos() - y[..., 8:] * angle.sin(), y[..., 8:] * angle.cos()], -1))

    inverse = 1.0 / (1000 ** (torch.arange(8, dtype=torch.float32) / 8))
    return Net(body, a=linear(16, 16), b=linear(16, 4), inverse=inverse[None, :, None]), torch.randn(2, 16, 16)


# --- the compiler


@case("pytorch/pytorch#175966", "compiler", "torch_compile", "mul arange",
      "kernels_disagree wrong_kernel other_arithmetic wrapped faulty_pass", extra="mul arange",
      mends="the prime in a buffer")  # fmt: skip
def key_of_a_counted_place() -> Any:
    """Places are counted and multiplied by a large prime as keys of a cache: the compiler does it in int32, where it
    wraps from the fourth on. The other output is right."""

    def body(m: Any, x: Any) -> Any:
        return m.b(torch.relu(m.a(x))), torch.arange(0, x.shape[1], dtype=torch.int64) * 1_000_000_007

    return Net(body, a=linear(16, 16), b=linear(16, 4)), torch.randn(2, 12, 16)


# --- exports to ONNX


@exported("pytorch/pytorch#33443", "files", "ort_fp32", "div", DIFFER,
          extra="y /Gemm_output_0 /last/Gemm_output_0 /last/Add_output_0",
          feeds=lambda: {"x": torch.randn(2, 40, 16, generator=_seeded(5))})  # fmt: skip
def mean_over_the_traced_length() -> Any:
    """A mean whose length was made a Python number: the file divides by 16 frames, whatever it is fed. With 40 it is
    two and a half times too large."""

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(16, 24), nn.Linear(24, 4)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.first(x))
            return self.last(y.sum(1) / int(x.shape[1]))

    torch.manual_seed(3)
    return Pooled(), torch.randn(2, 16, 16)


class _Attending(nn.Module):
    def __init__(self, guarded: bool) -> None:
        super().__init__()
        self.guarded = guarded
        self.q, self.k, self.v, self.last = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Any, keep: Any) -> Any:
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.guarded:
            return self.last(F.scaled_dot_product_attention(q, k, v, attn_mask=keep))
        far = torch.where(keep, 0.0, -float("inf"))
        return self.last(torch.softmax(q @ k.transpose(1, 2) * 0.25 + far, -1) @ v)


def _masked() -> Mapping[str, Any]:
    keep = torch.ones(2, 6, 6, dtype=torch.bool).tril()
    keep[0, 0] = False
    return {"x": torch.randn(2, 6, 16, generator=_seeded(6)), "keep": keep}


def _attending(guarded: bool) -> Any:
    torch.manual_seed(4)
    return _Attending(guarded), tuple(_masked().values())


@exported("pytorch/pytorch#159973", "files", "ort_fp32", "scaled_dot_product_attention/_safe_softmax",
          "born other_arithmetic files_differ",
          extra="/MatMul_1_output_0 /last/MatMul_output_0 y /Add_output_0", feeds=_masked,
          other=lambda: _attending(False), facts=["NaN"])  # fmt: skip
def row_that_sees_nobody_as_exported() -> Any:
    """A query that may look at nobody: PyTorch's attention gives 0, the exported softmax of nothing but -Inf NaN."""
    return _attending(True)


@exported("pytorch/pytorch#159973", "healthy", "ort_fp32", "", "", feeds=_masked)
def row_that_sees_nobody_with_its_guard() -> Any:
    """As today's exporter writes it: the softmax's NaN is there inside and is replaced by 0 right behind it."""
    return _attending(True)


@exported("microsoft/onnxruntime#18946", "healthy", "ort_fp32", "", "",
          feeds=lambda: {"x": 255 * torch.rand(1, 3, 40, 40, generator=_seeded(7))})  # fmt: skip
def convolution_of_raw_pixels() -> Any:
    """Pixels of 0 to 255 and sums near 0: single elements differ by most of their size, and by 1e-7 of the tensor's."""
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(3, 24, 7, bias=False), nn.Conv2d(24, 4, 5, bias=False)), torch.rand(1, 3, 40, 40)


@exported("pytorch/pytorch#60582", "healthy", "ort_fp32", "", "",
          feeds=lambda: {"x": 1e-3 * torch.randn(2, 8, 48, 48, generator=_seeded(8))})  # fmt: skip
def instance_norm_without_epsilon() -> Any:
    """eps=0 and inputs of a thousandth: both sides normalise in float32 and agree to 1e-6."""
    torch.manual_seed(6)
    return nn.Sequential(nn.InstanceNorm2d(8, eps=0.0), nn.Conv2d(8, 4, 1)), torch.randn(2, 8, 48, 48)
