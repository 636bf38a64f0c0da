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


CUT = """
import torch
from torch import nn


class Whole(nn.Module):
    scale = 1.0

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 8)

    def forward(self, x):
        return self.last(self.norm(torch.relu(self.first(x))))


class InFour(Whole):
    def forward(self, x):
        return torch.cat([super(InFour, self).forward(part) for part in x.chunk(4)])


class Padded(Whole):
    def forward(self, x):
        return super().forward(nn.functional.pad(x, (0, 0, 0, 3)))[:-3]


class Wrong(Whole):
    def forward(self, x):
        return torch.cat([super(Wrong, self).forward(part) * 1.01 for part in x.chunk(4)])


def made(kind):
    torch.manual_seed(0)
    return kind(), (torch.arange(64.0).reshape(8, 8).sin(),)


def whole():
    return made(Whole)


def in_four():
    return made(InFour)


def padded():
    return made(Padded)


def wrong():
    return made(Wrong)
"""


@pytest.mark.parametrize("other", ["in_four", "padded"])
@pytest.mark.parametrize("turned", [False, True])
def test_who_cuts_the_work_differently_fails_nothing(tmp_path: Path, other: str, turned: bool) -> None:
    (tmp_path / "cut.py").write_text(CUT)
    target, base = ("whole", other) if turned else (other, "whole")
    report = precision_debug.compare(
        f"{tmp_path / 'cut.py'}:{target}", baseline_model=f"{tmp_path / 'cut.py'}:{base}", run_mode="torch_fp32",
        baseline="torch_fp32",
    )  # fmt: skip
    assert report.exit_status == 0
    word = "without the padding" if other == "padded" else "4 chunks along axis 0"
    layers = {row.name: row.status for row in report.rows if word in row.paired_by}
    assert layers.keys() == {"first/addmm", "relu", "norm/layer_norm", "last/addmm"}
    assert {*layers.values()} == {Status.PASS}


def test_who_cuts_the_work_differently_and_computes_something_else_fails(tmp_path: Path) -> None:
    (tmp_path / "cut.py").write_text(CUT)
    report = precision_debug.compare(
        f"{tmp_path / 'cut.py'}:wrong", baseline_model=f"{tmp_path / 'cut.py'}:whole", run_mode="torch_fp32",
        baseline="torch_fp32",
    )  # fmt: skip
    assert report.exit_status == 1
    assert report.explanation is not None
    # and not the cut itself
    assert [(one.name, one.cause) for one in report.explanation.culprits] == [("output", "other_arithmetic")]


PLACES = """
import torch

class Placed(torch.nn.Module):
    def __init__(self, places):
        super().__init__()
        torch.manual_seed(0)
        self.places = places
        self.words, self.wpe, self.out = (
            torch.nn.Embedding(32, 16), torch.nn.Embedding(16, 16), torch.nn.Linear(16, 8)
        )

    def forward(self, ids, mask):
        return self.out(self.words(ids) + self.wpe(self.places(ids, mask)))

def padded():
    return Placed(lambda ids, mask: (mask.cumsum(1) - 1).clamp(min=0))

def counted():
    return Placed(lambda ids, mask: torch.arange(ids.shape[1])[None].expand_as(ids))

def off_by_one():
    return Placed(lambda ids, mask: mask.cumsum(1))

def same():
    return Placed(lambda ids, mask: torch.maximum(mask.cumsum(1) - 1, torch.zeros_like(mask)))
"""


@pytest.mark.parametrize("other", ["counted", "off_by_one", "same"])
@pytest.mark.parametrize("turned", [False, True])
def test_the_lookup_of_other_positions_is_named_and_not_what_adds_them(
    tmp_path: Path, other: str, turned: bool
) -> None:
    """Positions that both sides compute by operators of their own stand for themselves, and not for the mask."""
    file = tmp_path / "places.py"
    file.write_text(PLACES)
    target, base = ("padded", other) if turned else (other, "padded")
    mask = np.concatenate([np.zeros((2, 4), np.int64), np.ones((2, 8), np.int64)], axis=1)
    report = precision_debug.compare(
        f"{file}:{target}", baseline_model=f"{file}:{base}", run_mode="torch_fp32", baseline="torch_fp32",
        inputs={"ids": np.arange(24).reshape(2, 12), "mask": mask},
    )  # fmt: skip
    lookup = next(row for row in report.rows if row.name == "wpe/embedding")
    assert lookup.comparison is not None
    assert report.exit_status == (0 if other == "same" else 1)
    if other != "same":
        assert report.explanation is not None
        assert [one.name for one in report.explanation.culprits] == ["wpe/embedding"]
