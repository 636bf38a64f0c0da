"""Linear layers whose weights torchao holds in float8 or int4: what ran, and that every other row is compared."""

# ruff: noqa: E402

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
from approval import holds_approved, raises_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_models
from precision_debug_torch import TorchBackend
from precision_debug_torch.live import compare_module
from precision_debug_torch.modes import availability

import precision_debug
from precision_debug.errors import BackendUnavailable, ModelError
from precision_debug.records import Status
from precision_debug.report.sections import make_precision_section

MODELS = Path(torch_models.__file__)
WIDE = """
import torch


def make():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 128), torch.nn.Tanh())
    return net.eval(), {"input": torch.randn(16, 128)}


class Stack(torch.nn.Module):
    # without a bias, with what only moves a layer's result

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(128, 128, bias=False), torch.nn.Linear(128, 128, bias=False)

    def forward(self, x):
        y = self.first(x).view(2, 4, 8, 16).transpose(1, 2)
        return self.second((y * 2).transpose(1, 2).reshape(2, 4, 128))


def stack():
    torch.manual_seed(0)
    return Stack().eval(), {"x": torch.randn(2, 4, 128)}


def narrow():
    return torch.nn.Linear(12, 4), {"input": torch.randn(2, 12)}
"""


@pytest.fixture
def wide(tmp_path: Path) -> str:
    (tmp_path / "wide.py").write_text(WIDE)
    return str(tmp_path / "wide.py")


@pytest.mark.parametrize(
    ("mode", "kind", "least", "most"),
    [("torch_fp8_weights", "float8", 0.005, 0.06), ("torch_int4_weights", "int4", 0.02, 0.25)],
)
def test_weights_alone(mode: str, kind: str, least: float, most: float, wide: str) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    report = precision_debug.compare(f"{wide}:make", run_mode=mode, device="cpu")
    assert any("2 of 2" in note and f"weights in {kind}" in note for note in map(str, report.target.notes))
    rows = {row.name: row for row in report.rows}
    for name in ("0/addmm", "1/gelu", "2/addmm", "3/tanh", "output"):
        assert rows[name].comparison is not None, name
        error = rows[name].relative_l2
        assert error is not None
        assert least < error < most, name
    inside = [row for row in report.rows if row.status is Status.UNMATCHED]
    assert all(row.name.startswith(("0/", "2/")) for row in inside), "only inside of the quantised layers"
    assert report.explanation is not None
    kept = precision_debug.compare(f"{wide}:make", run_mode=mode, device="cpu", keep_modules="0,2", explain="off")
    assert {row.name: row.relative_l2 for row in kept.rows}["2/addmm"] < 0.01  # type: ignore[operator]


@pytest.mark.parametrize("mode", ["torch_int8", "torch_fp8_weights", "torch_int4_weights"])
def test_what_follows_a_quantised_layer_is_paired(mode: str, wide: str) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    report = precision_debug.compare(f"{wide}:stack", run_mode=mode, device="cpu", explain="off")
    compared = {row.name for row in report.rows if row.comparison is not None}
    assert compared >= {"first/view#2", "view", "transpose", "mul", "transpose#2", "second/view#2", "output"}, compared
    alone = [row.name for row in report.rows if row.comparison is None]
    assert all(name.startswith(("first/", "second/")) for name in alone), alone


def test_a_quantised_layer_is_int8_and_its_own_steps_are_no_rows(wide: str) -> None:
    """Of a BERT 546 of 659 rows were the steps of torchao, as unmatched; and nothing was said to have run in INT8."""
    pytest.importorskip("torchao", reason="torchao is not installed")
    report = precision_debug.compare(f"{wide}:make", run_mode="torch_int8", device="cpu", explain="off")
    assert not [row.name for row in report.rows if row.status is Status.UNMATCHED]
    assert holds_approved([str(note) for note in report.notes])
    lines = [[cell.text.en for cell in line] for line in make_precision_section(report).lines]
    assert [line[1] for line in lines if line[0] == "INT8"] == ["2"]


def test_int4_needs_whole_groups(wide: str) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    with raises_approved(ModelError):
        precision_debug.compare(f"{wide}:narrow", run_mode="torch_int4_weights", device="cpu")


def test_what_float8_products_need_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = TorchBackend()
    if "torchao" in sys.modules or backend.availability("torch_fp8_weights").ok:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert "compute capability 8.9" in availability("torch_fp8", step=False).needs  # a step is emulated
    with pytest.raises(BackendUnavailable, match="torch_fp8 cannot run here"):
        precision_debug.compare(f"{MODELS}:encoder", run_mode="torch_fp8", device="cpu")


class Attends(torch.nn.Module):
    """nn.MultiheadAttention, whose out_proj is an nn.Linear that nobody calls, between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(32, 32), torch.nn.Linear(32, 4)
        self.attention = torch.nn.MultiheadAttention(32, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        return self.last(self.attention(x, x, x)[0])


def test_what_torchaos_own_filter_leaves_out_stays_as_it_is() -> None:
    """The error is that of a model that ``quantize_`` itself has changed."""
    torchao = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    torch.manual_seed(0)
    module, x = Attends().eval(), torch.randn(2, 5, 32)
    report = compare_module(module, x, run_mode="torch_int8", device="cpu")
    assert holds_approved(" ".join(map(str, report.target.notes)))
    own = copy.deepcopy(module)
    torchao.quantize_(own, torchao.Int8DynamicActivationInt8WeightConfig())
    with torch.no_grad():
        exact, quantised = module(x), own(x)
    error = float((quantised - exact).norm() / exact.norm())
    assert report.outputs[0].relative_l2 == pytest.approx(error, rel=1e-4)
    with raises_approved(ModelError, 2):
        compare_module(module.attention, (x, x, x), run_mode="torch_int8", device="cpu")
