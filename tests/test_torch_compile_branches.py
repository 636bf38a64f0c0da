"""torch_compile of a model that runs other operators where it asks whether it is being compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_debug import compare
from precision_debug.records import Status

pytest.importorskip("torch", reason="torch is not installed")

MODEL = """
import torch
from torch import nn

class Act(nn.Module):
    def forward(self, x):
        return nn.functional.hardswish(x) if torch.compiler.is_compiling() else nn.functional.gelu(x)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(32, 64), Act(), nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))

def build():
    torch.manual_seed(0)
    return nn.Sequential(Block(), nn.LayerNorm(32), nn.Linear(32, 8)).eval(), torch.randn(8, 32)
"""


def test_what_only_the_compiled_model_runs_is_the_culprit(tmp_path: Path) -> None:
    """What was shown came from a graph of eager's operators, all of it passed, and the output was blamed."""
    (tmp_path / "branches.py").write_text(MODEL)
    model = f"{tmp_path / 'branches.py'}:build"
    report = compare(model, run_mode="torch_compile", compile_backend="eager", device="cpu")
    rows = {row.name: row for row in report.rows}
    assert rows["0.up/addmm"].status is Status.PASS
    assert rows["0.act/gelu"].status is Status.NOT_COMPARED
    assert "is_compiling()" in rows["0.act/gelu"].reason
    assert "aten.hardswish.default instead of aten.gelu.default" in rows["0.act/gelu"].reason
    assert rows["0.down/addmm"].status is Status.FAIL
    assert report.explanation is not None
    assert report.explanation.culprits[0].inside[0] == "0.act/gelu"
    assert any("is_compiling()" in note for note in report.target.notes)


@pytest.mark.parametrize(
    ("plain", "traced", "shared"),
    [
        ("abcd", "abcd", {0: 0, 1: 1, 2: 2, 3: 3}),
        ("abcd", "abxd", {0: 0, 1: 1, 3: 3}),
        ("abcd", "abxyd", {0: 0, 1: 1, 3: 4}),
        ("aba", "ababa", {0: 0, 1: 1, 2: 2}),  # the first of two that look alike
        ("abc", "xyz", {}),
        ("abc", "", {}),
    ],
)
def test_what_two_runs_share(plain: str, traced: str, shared: dict[int, int]) -> None:
    from precision_debug_torch.engine.compiled_session import _ends

    assert _ends(plain, traced) == shared
