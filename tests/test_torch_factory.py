"""Factories of random weights: what they draw does not depend on which thread builds when."""

# ruff: noqa: E402

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug_torch import TorchBackend

import precision_debug
from precision_debug.records import ModelFiles, Status

TWO = """
import random, time
import numpy as np, torch

OUTSIDE = torch.randn(4, 4)  # drawn while the file is imported

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList()
        for _ in range(4):
            self.layers.append(torch.nn.Linear(4, 4))
            time.sleep(0.01)  # the other thread's turn
        self.scale = torch.nn.Parameter(torch.from_numpy(np.random.rand(4).astype("float32")))
        time.sleep(0.01)
        self.shift = random.random()

    def forward(self, x):
        x = x @ OUTSIDE
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x * self.scale + self.shift

def one(): return Net(), torch.ones(2, 4)
def other(): return Net(), torch.ones(2, 4)
def counted():
    with open(__file__ + ".built", "a") as file:
        file.write("x")
    return Net(), torch.ones(2, 4)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.py"
    path.write_text(TWO)
    return path


@pytest.mark.parametrize("lockstep", [True, False])
def test_two_factories_of_one_body_have_the_same_weights(file: Path, lockstep: bool) -> None:
    for _ in range(3):
        report = precision_debug.compare(
            f"{file}:one", baseline_model=f"{file}:other", run_mode="torch_fp32", baseline="torch_fp32",
            lockstep=lockstep, atol=0, rtol=0,
        )  # fmt: skip
        assert {row.status for row in report.rows if row.comparison is not None} == {Status.PASS}
        assert all(row.comparison.identical for row in report.compared if row.comparison is not None)


def test_both_sides_share_what_one_factory_builds(file: Path) -> None:
    report = precision_debug.compare(f"{file}:counted", run_mode="torch_fp32", baseline="torch_fp32", lockstep=True)
    assert {row.status for row in report.rows} == {Status.PASS}
    assert (file.parent / "m.py.built").read_text() == "x"


def test_the_processs_own_random_numbers_go_on_as_they_were(file: Path) -> None:
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]
    spec = precision_debug.records.SessionSpec(model=ModelFiles(model_file=f"{file}:one"), mode="torch_fp32")
    TorchBackend().examples(spec)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states  # type: ignore[index]
