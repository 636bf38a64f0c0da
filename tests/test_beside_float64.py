"""torch_compile beside eager: how far they are from each other, and each from the same model in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from precision_debug import compare
from precision_debug.reasons import as_reason

torch = pytest.importorskip("torch", reason="torch is not installed")

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self, cancels):
        super().__init__()
        self.first, self.last, self.cancels = torch.nn.Linear(32, 32), torch.nn.Linear(32, 8), cancels

    def forward(self, x):
        h = self.first(x) * 64
        return self.last((h + 0.3) - h) if self.cancels else self.last(torch.tanh(h / 64) * 1.1)

def made(cancels, dtype):
    torch.manual_seed(0)
    return Net(cancels).eval().to(dtype), torch.randn(16, 32).to(dtype)

def passes(): return made(False, torch.bfloat16)
def fails(): return made(True, torch.bfloat16)
def single(): return made(False, torch.float32)
"""


def off(one: Any, other: Any) -> float:
    return float(torch.linalg.norm(one.double() - other.double()) / torch.linalg.norm(other.double()))


@pytest.mark.parametrize("factory", ["passes", "single", "fails"])
def test_three_numbers_whatever_comes_out(factory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "net.py"
    file.write_text(MODEL)
    report = compare(f"{file}:{factory}", run_mode="torch_compile", device="cpu", output=tmp_path / "o.json")
    held: dict[str, Any] = {}
    exec(MODEL, held)
    net, x = held[factory]()
    with torch.no_grad():
        eager, compiled, exact = net(x), torch.compile(net)(x), net.double()(x.double())
    told: Any = next((note.args for note in map(as_reason, report.notes) if note.code == "beside_float64"), None)
    if told is None:  # it is part of the cause
        (one,) = report.explanation.culprits
        told = {**one.evidence, "apart": one.evidence["before"]}
    wanted = {"apart": off(compiled, eager), "exact_base": off(eager, exact), "exact_target": off(compiled, exact)}
    assert {key: told[key] for key in wanted} == pytest.approx(wanted, rel=0.02, abs=1e-9)
    assert report.exit_status == (factory == "fails")


@pytest.mark.parametrize(("mode", "baseline"), [("torch_bf16", "torch_fp32"), ("torch_compile", "torch_fp64")])
def test_nothing_of_what_is_told_anyway(mode: str, baseline: str, tmp_path: Path) -> None:
    """A target in another type has a baseline that is truer; a baseline in float64 is float64."""
    file = tmp_path / "net.py"
    file.write_text(MODEL)
    report = compare(f"{file}:single", run_mode=mode, baseline=baseline, device="cpu")
    assert "beside_float64" not in {as_reason(note).code for note in report.notes}
