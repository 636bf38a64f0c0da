"""Training steps with one planted fault: the first sentence names it; a healthy step blames nobody."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest
from approval import begins_approved, holds_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.live import compare_module
from torch import nn
from torch.nn import functional as F

from precision_debug.records import Tolerance
from precision_debug.report.fix import _describe_nothing_found as tried_words
from precision_debug.report.lead import lead_sentences
from precision_debug.search.fix import ToKeep


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
    english = lead_sentences(report)[0].en
    assert english.startswith("The gradient of `")
    assert "becomes 0" in english
    assert "now 1" in english
    assert "变为 0" in lead_sentences(report)[0].zh
    assert len(report.explanation.culprits) == 1  # one switch mends them all
    assert report.to_keep.state == "mended"
    assert report.to_keep.after < 0.01 < report.to_keep.before
    scale = report.to_keep.settings["loss_scale"]
    assert report.to_keep.option == f"--option loss_scale={scale:.0f}"
    mended = compared("torch_autocast_fp16", loss=small_loss, step="backward", loss_scale=scale)
    assert (mended.exit_status, mended.explanation.culprits) == (0, ())


def test_overflow_is_told_with_the_scale_that_holds() -> None:
    report = compared("torch_autocast_fp16", step="backward", loss_scale=2.0**26)
    first = report.explanation.culprits[0]
    assert first.cause == "gradient_overflow"
    assert "Scale the loss by 2^" in lead_sentences(report)[0].en
    assert (report.to_keep.state, report.to_keep.before) == ("mended", None)  # NaN or Inf before


@pytest.mark.parametrize("mode", ["torch_autocast_bf16", "torch_autocast_fp16"])
def test_a_coarse_backward_is_found_though_the_loss_is_equal(mode: str) -> None:
    report = compared(mode, coarse=True, step="backward")
    assert report.explanation.culprits[0].name.startswith("backward/act/gelu/")
    assert (report.to_keep.state, report.to_keep.keys) == ("mended", ("act",))
    assert next(row for row in report.outputs if row.name == "loss").status.value == "pass"
    assert report.exit_status == 1
    forward = compared(mode, coarse=True)
    assert forward.exit_status == 0  # which says that it did not look there


def test_a_parameter_that_stagnates_is_told() -> None:
    report = compared("torch_bf16", lr=1e-5, step="optimiser")
    named = [one for one in report.explanation.culprits if one.cause == "update_lost"]
    assert len(named) == 1
    assert named[0].evidence["share"] > 0.5
    said = lead_sentences(report)
    assert "stagnates" in said[0].en
    assert "float32" not in said[0].en  # what helps is said where it was run
    assert holds_approved(said[1].en)
    assert (report.to_keep.state, report.to_keep.option) == ("mended", "--run_mode torch_autocast_bf16")
    assert report.exit_status == 1


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.b(torch.relu(self.a(x)))


@pytest.mark.parametrize(("whole", "each"), [(None, False), (0.3, False), (0.0, True)])
def test_only_keeping_all_of_them_helps_where_that_was_measured(whole: float | None, each: bool) -> None:
    """It was said where keeping all of them left NaN, and where that was not run."""
    said = tried_words(
        ToKeep(
            unit="module", of=4, state="none", before=0.4, after=0.4, runs=10, whole=whole, whole_ran=True, each=True
        )
    )  # fmt: skip
    assert ("only keeping all" in said.en) is each
    assert ("只有全部保留才有效" in said.zh) is each


def test_no_scale_below_1_is_offered() -> None:
    """It read "Scale the loss by 0.0625", an option that the command refuses, and that was never run."""
    def lost(out: Any) -> Any:
        small = out * 1e-4
        return (small / ((small * small).sum(-1, keepdim=True) + 1e-12).sqrt()).square().mean()

    torch.manual_seed(0)
    report = compare_module(
        Halves(), (torch.randn(12, 8),), run_mode="torch_autocast_fp16", device="cpu", explain="fast", loss=lost,
        tolerance=Tolerance(given=False), settings={"step": "backward", "loss_scale": 16},
    )  # fmt: skip
    for one in report.explanation.culprits:
        assert not str(one.evidence.get("scale", "")).startswith("0")
        assert "loss_scale=0" not in str(one.evidence.get("option", ""))


@pytest.mark.parametrize(
    "loss",
    [lambda out: out.square().mean(), lambda out: out.mean(), lambda out: out.sum() / 4],
    ids=["mean of squares", "mean", "sum"],
)
def test_a_loss_in_float16_overflows_by_its_scale_alone(loss: Any) -> None:
    """65536, which GradScaler begins with, is above float16's largest number: the first thing that backward casts."""
    report = compared("torch_autocast_fp16", loss=loss, step="backward")
    first = lead_sentences(report)[0].en
    assert report.explanation.culprits[0].cause == "gradient_overflow", first
    assert "is NaN or Inf" in first
    assert "Scale the loss by 2^1" in first
    assert begins_approved([said.en for said in lead_sentences(report)])
