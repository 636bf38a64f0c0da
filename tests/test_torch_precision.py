"""torch modes that changed no operator prove nothing, and an FP32 mode of a half-precision module says what it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

from precision_debug import Report, compare
from precision_debug.errors import BackendError
from precision_debug.report.model import Verdict

SOURCE = """
import torch


class Scaled(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 3 - 1) + x


def plain():
    return Scaled()


def linear():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))


class Masked(torch.nn.Module):
    def forward(self, x):
        score = (x @ x.transpose(0, 1)).masked_fill(torch.eye(x.shape[0]).bool(), -1e9)
        return score.softmax(-1) @ x


def masked():
    return Masked(), torch.randn(4, 8)


class Half(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = linear().half()

    def forward(self, x):
        return self.inner(x.half())


def half():
    return Half()
"""


def run(tmp_path: Path, factory: str, mode: str) -> Report:
    (tmp_path / "model.py").write_text(SOURCE)
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    return compare(
        f"{tmp_path}/model.py:{factory}", run_mode=mode, inputs={"input" if factory == "linear" else "x": x},
        atol=0.2, rtol=0.2, explain="off",
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["torch_autocast_bf16", "torch_autocast_fp16"])
def test_autocast_that_casts_nothing_is_inconclusive(mode: str, tmp_path: Path) -> None:
    report = run(tmp_path, "plain", mode)
    assert [doubt.code for doubt in report.doubts] == ["precision_unseen"]
    assert report.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("mode", ["torch_autocast_bf16", "torch_fp16", "torch_bf16"])
def test_a_mode_that_runs_in_its_precision_is_not_in_doubt(mode: str, tmp_path: Path) -> None:
    report = run(tmp_path, "linear", mode)
    assert (report.doubts, report.verdict) == ((), Verdict.PASS)


def test_an_fp32_baseline_of_a_half_precision_module_says_so(tmp_path: Path) -> None:
    report = run(tmp_path, "half", "torch_fp16")
    assert [doubt.code for doubt in report.doubts] == ["not_fp32"]
    assert "torch_fp32" in report.doubts[0].values["mode"]


def test_a_number_that_the_type_cannot_take_is_told_with_what_to_write(tmp_path: Path) -> None:
    """masked_fill(-1e9) of a half tensor: PyTorch refuses it, and so it does where the model is deployed."""
    (tmp_path / "scaled.py").write_text(SOURCE)
    with pytest.raises(BackendError, match=r"in forward is beyond .*torch\.finfo\(x\.dtype\)\.min"):
        compare(f"{tmp_path}/scaled.py:masked", run_mode="torch_fp16")
