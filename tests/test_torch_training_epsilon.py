"""Adam on parameters that the model holds in float16: its epsilon of 1e-8 is 0 there, in the baseline too."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest
from approval import begins_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch.live import compare_module
from torch import nn
from torch.nn import functional as F

from precision_debug.records import Tolerance
from precision_debug.report import Report
from precision_debug.report.lead import lead_sentences


def step(eps: float, *, dead: bool) -> Report:
    """dead: half of the inputs are 0, whose weights have no gradient: 0 divided by 0 is NaN, and not Inf."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).half()
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1)).half()
    if dead:
        x[:, 8:] = 0

    def loss(y: Any) -> Any:
        return F.mse_loss(y.float(), torch.zeros_like(y).float())

    return compare_module(
        module, (x,), run_mode="torch_autocast_bf16", device="cpu", settings={"step": "optimiser"}, loss=loss,
        optimiser=lambda parameters: torch.optim.Adam(parameters, lr=1e-3, eps=eps), explain="fast",
        tolerance=Tolerance(given=False),
    )  # fmt: skip


@pytest.mark.parametrize("dead", [False, True])
def test_an_update_that_is_divided_by_0_on_both_sides_is_told_as_that(dead: bool) -> None:
    report = step(1e-8, dead=dead)
    row = next(row for row in report.rows if row.name == "update/0.weight")
    assert row.comparison is not None
    assert row.comparison.base.inf > 0
    assert bool(row.comparison.base.nan) is dead
    assert report.explanation is not None
    assert [one.cause for one in report.explanation.culprits] == ["epsilon_lost"], report.explanation.culprits
    first = report.explanation.culprits[0]
    assert first.name.startswith("optimiser/")
    assert (first.evidence["epsilon"], first.evidence["dtype"]) == (1e-8, "float16")
    assert begins_approved([said.en for said in lead_sentences(report)])
    assert any(said.zh.startswith("优化器更新 `") for said in lead_sentences(report))


def test_an_epsilon_that_float16_holds_divides_nothing_by_0() -> None:
    report = step(1e-4, dead=True)
    assert report.explanation is not None
    assert not [one for one in report.explanation.culprits if one.cause == "epsilon_lost"]
    assert all(row.comparison is None or not row.comparison.base.nan + row.comparison.base.inf for row in report.rows)
