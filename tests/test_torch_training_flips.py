"""A gradient that bf16 makes 12 % wrong by nobody's fault: held against a float64 step that rounds as bf16 does."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from planted.training_third import healthy_instance_norm
from precision_debug_torch.live import compare_module
from torch import nn
from torch.nn import functional as F

from precision_debug.records import Tolerance
from precision_debug.report import Verdict
from precision_debug.report.lead import lead_sentences


class Rounded(torch.autograd.Function):
    """To bfloat16 and back; so is the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.to(torch.bfloat16).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient.to(torch.bfloat16).to(gradient.dtype)


def gradient(*, rounds: bool) -> Any:
    """Of the first convolution's weight, in float64; what autocast computes in bfloat16 is rounded, or nothing is."""
    net, (x,), loss, _ = healthy_instance_norm()
    net, x = net.double(), x.double()

    def narrow(value: Any) -> Any:
        return Rounded.apply(value) if rounds else value

    for layer in net:
        if isinstance(layer, nn.Conv2d):
            x = narrow(F.conv2d(narrow(x), narrow(layer.weight), narrow(layer.bias)))
        elif isinstance(layer, nn.Linear):
            x = narrow(F.linear(narrow(x), narrow(layer.weight), narrow(layer.bias)))
        else:
            x = layer(x)
    loss(x).backward()
    return net[0].weight.grad


def test_what_bf16_costs_a_gradient_through_an_instance_norm_is_as_expected() -> None:
    exact = gradient(rounds=False)
    cost = float((gradient(rounds=True) - exact).norm() / exact.norm())
    assert cost > 0.05, "rounding flips no sign here any more: choose another batch"
    net, batch, loss, _ = healthy_instance_norm()
    report = compare_module(
        net, batch, run_mode="torch_autocast_bf16", device="cpu", explain="fast", loss=loss,
        settings={"step": "backward"}, tolerance=Tolerance(given=False),
    )  # fmt: skip
    error = next(row.relative_l2 for row in report.outputs if row.name == "gradient/0.weight")
    assert error is not None
    assert cost / 2 < error < cost * 2, (cost, error)
    assert report.verdict is Verdict.EXPECTED
    bound = report.explanation.allowed_at["gradient/0.weight"] if report.explanation is not None else 0.0
    said = lead_sentences(report)[0]
    assert f"within its bound of {bound:.4g}" in said.en
    assert "若干倍" in said.zh
