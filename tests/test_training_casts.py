"""A gradient that is cast to another type on its way: flushed to 0 there, cut off, infinite, or only rounded."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.live import compare_module
from torch import nn
from torch.nn import functional as F

from precision_debug.records import Tolerance
from precision_debug.report.lead import lead_sentences

BF16, FP16 = "torch_autocast_bf16", "torch_autocast_fp16"
TYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "fp16": torch.float16}


class Passing(torch.autograd.Function):
    """GELU whose gradient goes through another type under autocast."""

    @staticmethod
    def forward(ctx: Any, x: Any, dtype: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.dtype = dtype if torch.is_autocast_enabled("cpu") else None
        return F.gelu(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        given = gradient if ctx.dtype is None else gradient.to(ctx.dtype).to(gradient.dtype)
        return torch.ops.aten.gelu_backward(given, ctx.saved_tensors[0]), None


class Net(nn.Module):
    def __init__(self, dtype: Any, ahead: float | None = None) -> None:
        super().__init__()
        self.a, self.b, self.dtype, self.ahead = nn.Linear(16, 24), nn.Linear(24, 5), dtype, ahead

    def forward(self, x: Any) -> Any:
        x = self.a(x)
        if self.ahead is None:
            return self.b(Passing.apply(x, self.dtype))
        scaled = x * self.ahead
        scaled = scaled.to(self.dtype).to(x.dtype) if torch.is_autocast_enabled("cpu") else scaled
        return self.b(F.gelu(scaled / self.ahead))


def compared(mode: str, kind: str, times: float, *, ahead: float | None = None, **settings: Any) -> Any:
    torch.manual_seed(0)
    return compare_module(
        Net(TYPES[kind], ahead), (torch.randn(12, 16, generator=torch.Generator().manual_seed(3)),), run_mode=mode,
        device="cpu", explain="fast", tolerance=Tolerance(given=False), settings={"step": "backward", **settings},
        loss=lambda out: F.cross_entropy(out.float(), torch.arange(12) % 5) * times,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "kind", "times", "share", "settings"),
    [
        (BF16, "e4m3", 1e-2, 1.0, {}),
        (BF16, "e4m3", 0.3, 0.288, {}),
        (BF16, "e5m2", 1e-4, 1.0, {}),
        (BF16, "e5m2", 2e-3, 0.340, {}),
        (BF16, "fp16", 1e-6, 1.0, {}),
        (FP16, "e4m3", 1e-2, 1.0, {"loss_scale": 1}),
        (FP16, "e5m2", 1e-4, 1.0, {"loss_scale": 1}),
    ],
)  # fmt: skip
def test_what_becomes_0_is_an_underflow(mode: str, kind: str, times: float, share: float, settings: Any) -> None:
    """Some of it read "overflow inside the operator", or that a type is too coarse that computes nothing there."""
    report = compared(mode, kind, times, **settings)
    first, dtype = report.explanation.culprits[0], str(TYPES[kind]).removeprefix("torch.")
    assert (first.cause, first.name) == ("gradient_underflow", "backward/gelu/gelu_backward")
    assert first.evidence["dtype"] == dtype
    assert first.evidence["where"] == "backward/b/addmm/mm"
    assert first.evidence["share"] == pytest.approx(share, abs=0.005)
    said = lead_sentences(report)
    assert f"is cast to {dtype}: " in said[0].en
    assert "变为 0" in said[0].zh
    tried = report.to_keep
    assert tried.after < tried.before / 2  # the scale that the sentence asks for was run
    assert any(f"loss scale of {first.evidence['scale']} reduces" in one.en for one in said)


@pytest.mark.parametrize(
    ("kind", "times", "count", "cut"), [("e4m3", 1e5, 182, True), ("e5m2", 1e7, 168, False), ("fp16", 1e7, 146, False)]
)
def test_what_is_too_large_stays_an_overflow(kind: str, times: float, count: int, cut: bool) -> None:
    report = compared(BF16, kind, times)
    first = report.explanation.culprits[0]
    assert (first.cause, first.evidence["count"], first.evidence["cut"]) == ("overflow", count, cut)
    assert first.evidence["source"] == "backward/b/addmm/mm"
    assert ("cut off" if cut else "overflow where") in lead_sentences(report)[0].en


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_what_is_only_rounded_names_the_type(kind: str) -> None:
    report = compared(BF16, kind, 30.0)
    first, dtype = report.explanation.culprits[0], str(TYPES[kind]).removeprefix("torch.")
    assert (first.cause, first.evidence["cast"]) == ("coarse", dtype)
    assert 2.0**-7 < first.evidence["error"] < 2.0**-3
    assert f"is cast to {dtype}, which is too coarse" in lead_sentences(report)[0].en


@pytest.mark.parametrize(("ahead", "cause"), [(1e-3, "underflow"), (1e4, "overflow")])
def test_in_the_forward_pass_too(ahead: float, cause: str) -> None:
    first = compared(BF16, "e4m3", 1.0, ahead=ahead).explanation.culprits[0]
    assert (first.cause, first.evidence["cast"], first.evidence["source"]) == (cause, "float8_e4m3fn", "mul")
