"""What a table of a torch model leads with: the model's own masks and a kernel's bookkeeping are no finding."""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F
from precision_debug_torch.live import compare_module
from torch import nn

from precision_debug.records import Status, Tolerance


class Masked(nn.Module):
    def __init__(self, overflows: bool = False) -> None:
        super().__init__()
        self.norm, self.qkv, self.pool = nn.LayerNorm(8), nn.Linear(8, 24), nn.MaxPool1d(2)
        self.overflows = overflows

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x * 1e-3)).chunk(3, -1)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf"), dtype=x.dtype).triu(1)
        y = (q @ k.mT + mask).softmax(-1) @ v
        if self.overflows:
            y = (y.abs() + 1) * 60000 * 2
        return self.pool(y) + F.max_pool1d(y, 2)


def test_a_kernels_bookkeeping_is_not_compared_and_leads_no_ranking() -> None:
    torch.manual_seed(0)
    report = compare_module(Masked().eval(), torch.randn(2, 6, 8), run_mode="torch_bf16", device="cpu")
    kept = {row.name: row for row in report.rows if row.reason.endswith("is the kernel's own bookkeeping")}
    assert {"norm/native_layer_norm[1]", "norm/native_layer_norm[2]"} <= set(kept)
    assert any("max_pool" in name for name in kept)
    assert all(row.status is Status.NOT_COMPARED for row in kept.values())
    assert not {row.name for row in report.worst(100)} & set(kept)


def test_what_is_asked_for_is_compared() -> None:
    class Asks(nn.Module):
        def forward(self, x: Any) -> Any:
            y, mean, _ = torch.native_layer_norm(x, (8,), None, None, 1e-5)
            pooled, where = F.max_pool1d(y, 2, return_indices=True)
            return pooled + mean, where

    report = compare_module(Asks(), torch.randn(2, 6, 8), run_mode="torch_fp64", device="cpu")
    assert all(row.status is Status.PASS for row in report.rows)
    assert sum("[1]" in row.name for row in report.rows) >= 2


def test_a_causal_masks_infinities_are_not_the_first() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6, 8)
    tolerance = Tolerance(atol=0.1, rtol=0.1)
    calm = compare_module(Masked().eval(), x, run_mode="torch_fp16", device="cpu", tolerance=tolerance)
    assert any(row.non_finite for row in calm.rows)
    assert calm.first_non_finite is None
    broken = compare_module(Masked(True).eval(), x, run_mode="torch_fp16", device="cpu", tolerance=tolerance)
    assert broken.first_non_finite is not None
    assert broken.first_non_finite.op_type == "aten.mul"
