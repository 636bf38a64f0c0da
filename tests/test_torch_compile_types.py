"""torch_compile of a model that is not in float32: what is compiled is the model as it is deployed."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_debug import compare

pytest.importorskip("torch", reason="torch is not installed")

MODEL = """
import torch

class Difference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(32, 32), torch.nn.Linear(32, 8)

    def forward(self, x):
        h = self.first(x) * 64
        return self.last((h + 0.3) - h)

def make(dtype):
    torch.manual_seed(0)
    return Difference().eval().to(dtype), torch.randn(16, 32).to(dtype)

def low():
    return make(torch.bfloat16)

def exact():
    return make(torch.float64)
"""


@pytest.mark.parametrize(("factory", "dtype"), [("low", "bfloat16"), ("exact", "float64")])
def test_the_model_keeps_its_type(factory: str, dtype: str, tmp_path: Path) -> None:
    """Handed to eager, the captured graph computes what the module does: to the bit, if nothing was cast."""
    (tmp_path / "types.py").write_text(MODEL)
    report = compare(
        f"{tmp_path / 'types.py'}:{factory}", run_mode="torch_compile", compile_backend="eager", device="cpu",
        explain="off",
    )  # fmt: skip
    assert {row.comparison.target.dtype for row in report.compared if row.comparison} == {dtype}
    assert all(row.comparison is not None and row.comparison.max_abs == 0 for row in report.compared)
