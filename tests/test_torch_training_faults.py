"""Training steps with one planted fault: the first sentence names it; a healthy step blames nobody."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.live import compare_module
from torch import nn
from torch.nn import functional as F

from precision_debug.records import Tolerance
from precision_debug.report.lead import lead


class Coarse(torch.autograd.Function):
    """GELU, whose backward rounds the gradient to float8 under autocast."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.low = torch.is_autocast_enabled("cpu")
        return F.gelu(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        given = gradient.to(torch.float8_e5m2).to(gradient.dtype) if ctx.low else gradient
        return torch.ops.aten.gelu_backward(given, x)


class Act(nn.Module):
    def forward(self, x: Any) -> Any:
        return Coarse.apply(x)


class Net(nn.Module):
    def __init__(self, coarse: bool = False) -> None:
        super().__init__()
        self.embed, self.norm, self.act = nn.Embedding(20, 16), nn.LayerNorm(16), Act() if coarse else nn.GELU()
        self.up, self.down, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 20)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        inside = self.up(self.norm(x))
        return self.head(x + self.down(self.act(inside)))


IDS = torch.randint(0, 20, (4, 8), generator=torch.Generator().manual_seed(1))


def loss_of(returned: Any) -> Any:
    return F.cross_entropy(returned.flatten(0, 1), IDS.roll(1, 1).flatten())


def small_loss(returned: Any) -> Any:
    return loss_of(returned) * 1e-5


def compared(mode: str, *, coarse: bool = False, loss: Any = loss_of, lr: float = 1e-2, **settings: Any) -> Any:
    torch.manual_seed(0)
    return compare_module(
        Net(coarse), (IDS,), run_mode=mode, device="cpu", explain="fast", loss=loss, tolerance=Tolerance(given=False),
        optimiser=lambda parameters: torch.optim.AdamW(parameters, lr=lr), settings=settings,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["torch_autocast_bf16", "torch_autocast_fp16"])
def test_a_healthy_step_blames_nobody(mode: str) -> None:
    report = compared(mode, step="optimiser")
    assert report.explanation is not None
    assert report.explanation.culprits == ()
    assert report.exit_status == 0


def test_underflow_is_told_with_the_scale_that_mends_it() -> None:
    report = compared("torch_autocast_fp16", loss=small_loss, step="backward", loss_scale=1)
    first = report.explanation.culprits[0]
    assert first.cause == "gradient_underflow"
    assert first.evidence["where"] == "backward/log_softmax/_log_softmax_backward_data"
    assert report.exit_status == 1
    english = lead(report)[0].en
    assert english.startswith("The gradient of `")
    assert "becomes 0" in english
    assert "now 1" in english
    assert "变为 0" in lead(report)[0].zh
    assert len(report.explanation.culprits) == 1  # one switch mends them all
    assert report.to_keep.tried.state == "mended"
    assert report.to_keep.tried.after < 0.01 < report.to_keep.tried.before
    scale = report.to_keep.settings["loss_scale"]
    assert report.to_keep.option == f"--option loss_scale={scale:.0f}"
    mended = compared("torch_autocast_fp16", loss=small_loss, step="backward", loss_scale=scale)
    assert (mended.exit_status, mended.explanation.culprits) == (0, ())


def test_overflow_is_told_with_the_scale_that_holds() -> None:
    report = compared("torch_autocast_fp16", step="backward", loss_scale=2.0**26)
    first = report.explanation.culprits[0]
    assert first.cause == "gradient_overflow"
    assert "Scale the loss by 2^" in lead(report)[0].en
    assert (report.to_keep.tried.state, report.to_keep.tried.before) == ("mended", None)  # NaN or Inf before


@pytest.mark.parametrize("mode", ["torch_autocast_bf16", "torch_autocast_fp16"])
def test_a_coarse_backward_is_found_though_the_loss_is_equal(mode: str) -> None:
    report = compared(mode, coarse=True, step="backward")
    assert report.explanation.culprits[0].name.startswith("backward/act/gelu/")
    assert (report.to_keep.tried.state, report.to_keep.keys) == ("mended", ("act",))
    assert next(row for row in report.outputs if row.name == "loss").status.value == "pass"
    assert report.exit_status == 1
    forward = compared(mode, coarse=True)
    assert forward.exit_status == 0  # which says that it did not look there


def test_a_parameter_that_stagnates_is_told() -> None:
    report = compared("torch_bf16", lr=1e-5, step="optimiser")
    named = [one for one in report.explanation.culprits if one.cause == "update_lost"]
    assert len(named) == 1
    assert named[0].evidence["share"] > 0.5
    assert "stagnates" in lead(report)[0].en
    assert report.exit_status == 1
