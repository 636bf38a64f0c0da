"""A model with compiled parts, watched operator by operator."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from precision_debug import compare

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self, compiled):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
        self.between = compiled(lambda x: torch.relu(x) * 2 + 1)

    def forward(self, x):
        return self.second(self.between(self.first(x)))

def made(compiled):
    torch.manual_seed(0)
    return Model(compiled).eval(), torch.rand(2, 8)

def plain():
    return made(lambda f: f)

def beforehand():
    return made(lambda f: torch.compile(f, backend="eager"))

def while_it_runs():
    return made(lambda f: lambda x: torch.compile(f, backend="eager")(x))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "compiled_parts.py").write_text(MODEL)
    return tmp_path / "compiled_parts.py"


@pytest.mark.parametrize("how", ["beforehand", "while_it_runs"])
def test_operators_of_a_compiled_part_are_seen_as_without_it(model: Path, how: str) -> None:
    # one run after the other: both at once would parse source in two threads, which Python 3.11 sometimes fails at
    found = compare(f"{model}:{how}", run_mode="torch_bf16", explain="off", lockstep=False)
    plain = compare(f"{model}:plain", run_mode="torch_bf16", explain="off")
    assert [(row.name, row.status, row.comparison) for row in found.rows] == [
        (row.name, row.status, row.comparison) for row in plain.rows
    ]
    assert len(found.compared) == 9
