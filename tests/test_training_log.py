"""A training loop that is followed: its numbers, the first step that leaves its band, and a step that is run again."""

# ruff: noqa: E402

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from approval import holds_approved, raises_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import InputError, UsageError
from precision_debug.products.training.training_faults import find_first_departure
from precision_debug.recording.training_log import read_log

FACTORY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(6, 16), nn.Dropout(0.1), nn.Linear(16, 1)

    def forward(self, x, y):
        return (self.b(self.drop(torch.tanh(self.a(x)))) - y).square().mean()

def make():
    torch.manual_seed(0)
    return Net(), (torch.zeros(1, 6), torch.zeros(1, 1)), None, lambda p: torch.optim.AdamW(p, lr=1e-2)
"""


def trained(folder: Path, *, count: int = 12, spoilt: int = -1, every: int = 1, steps: tuple[int, ...] = ()) -> Any:
    """The factory's model, trained in a plain loop; the batch of one step is far larger than the others."""
    space: dict[str, Any] = {}
    exec(FACTORY, space)
    net, _, _, make = space["make"]()
    optimiser, drawn = make(net.parameters()), torch.Generator().manual_seed(1)
    with precision_debug.training(net, optimiser, record=folder, every=every, steps=steps):
        for step in range(count):
            x, y = torch.randn(8, 6, generator=drawn), torch.randn(8, 1, generator=drawn)
            optimiser.zero_grad()
            net(x, y * (1e4 if step == spoilt else 1)).backward()
            optimiser.step()
    return net


def test_a_followed_loop_trains_the_same_bits(tmp_path: Path) -> None:
    torch.manual_seed(5)
    followed = trained(tmp_path / "a", steps=(3,))
    torch.manual_seed(5)
    alone = trained(tmp_path / "b", every=10**6)
    assert all(torch.equal(one, other) for one, other in zip(followed.parameters(), alone.parameters(), strict=True))
    assert not followed._forward_pre_hooks


def test_the_numbers_are_those_of_the_gradients(tmp_path: Path) -> None:
    net, optimiser = nn.Linear(2, 1, bias=False), None
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[3.0, 4.0]]))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    with precision_debug.training(net, optimiser, record=tmp_path, every=1):
        net(torch.tensor([[2.0, 0.0]])).sum().backward()
        optimiser.step()
    (step,) = read_log(tmp_path)
    one = step.parameters["weight"]
    assert (step.step, one.norm, one.zeros, one.below, one.broken, one.size) == (0, 2.0, 0.5, 0.0, 0, 5.0)
    assert one.moved == pytest.approx(1 / 5)


def test_only_every_nth_step_is_kept(tmp_path: Path) -> None:
    trained(tmp_path, count=9, every=4)
    assert [step.step for step in read_log(tmp_path)] == [0, 4, 8]


@pytest.mark.parametrize(("spoilt", "status"), [(-1, 0), (9, 1)])
def test_the_first_step_that_leaves_its_band_is_told(
    tmp_path: Path, spoilt: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, spoilt=spoilt)
    found = find_first_departure(read_log(tmp_path))
    assert (found.step if found is not None else -1) == spoilt
    assert main(["training", str(tmp_path), "--output", str(tmp_path / "page.html"), "--lang", "en"]) == status
    said = capsys.readouterr().out
    assert ("Step 9 is the first" in said) == bool(status)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<polyline") == 8  # four parameters, two curves each: nothing is 0
    assert holds_approved(page)
    assert (page.count("<line"), page.count("<circle")) == ((8, 2) if status else (0, 0))
    assert "虚线为第 9 步" in page if status else "虚线" not in page  # the reader may switch


def test_nan_leaves_the_band_at_once(tmp_path: Path) -> None:
    net = nn.Linear(2, 1)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    with precision_debug.training(net, optimiser, record=tmp_path, every=1):
        for value in (1.0, math.nan):
            optimiser.zero_grad()
            net(torch.full((1, 2), value)).sum().backward()
            optimiser.step()
    found = find_first_departure(read_log(tmp_path))
    assert found is not None
    assert (found.step, found.what, found.parameter) == (1, "broken", "weight")
    assert main(["training", str(tmp_path), "--output", str(tmp_path / "page.html"), "--lang", "en"]) == 1
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count('cy="4" r="2"') == 2  # where there is no number, of the weight's norm and update
    assert "1 × NaN, Inf" in page


@pytest.mark.parametrize(
    ("count", "said", "status"),
    [
        (0, "No step was logged, so nothing is known", 1), (1, "1 step was logged, which is too few for a band", 1),
        (5, "5 steps were logged, which is too few", 1), (6, "No gradient leaves its band in the 6 logged steps", 0),
    ],
)  # fmt: skip
def test_few_steps_or_none_are_no_pass(
    count: int, said: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path / "run", count=count)
    page = tmp_path / "page.html"
    assert main(["training", str(tmp_path / "run"), "--output", str(page), "--lang", "en"]) == status
    assert said in capsys.readouterr().out
    assert said in page.read_text(encoding="utf-8")
    assert ('class="verdict good"' in page.read_text(encoding="utf-8")) == (status == 0)


def test_a_step_that_was_kept_is_run_again(tmp_path: Path) -> None:
    trained(tmp_path / "run", steps=(7,))
    (tmp_path / "m.py").write_text(FACTORY)
    told = read_log(tmp_path / "run")[7].parameters["a.weight"]
    report = precision_debug.compare(
        f"{tmp_path / 'm.py'}:make", run_mode="torch_autocast_bf16", device="cpu", step="optimiser", explain="off",
        from_step=str(tmp_path / "run" / "step_000007.pt"),
    )  # fmt: skip
    row = next(row for row in report.outputs if row.name == "gradient/a.weight")
    norm = math.sqrt(96) * row.comparison.base.rms
    assert norm == pytest.approx(told.norm, rel=0.3)  # dropout draws other numbers
    state = next(row for row in report.outputs if row.name == "state/a.weight/exp_avg_sq")
    assert state.comparison.base.max > 0
    assert any(row.name == "x" and row.comparison.base.shape == (8, 6) for row in report.rows)


def test_what_cannot_be_followed_or_read_is_said(tmp_path: Path) -> None:
    net = nn.Linear(2, 1)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(UsageError, match="no backend follows"):
        precision_debug.training(object(), object(), record=tmp_path)
    with raises_approved(UsageError):
        precision_debug.training(net, optimiser, record=tmp_path, every=0)
    with pytest.raises(InputError, match="holds no statistics"):
        read_log(tmp_path / "nothing")
    (tmp_path / "statistics.jsonl").write_text('{"step": "x"}\n')
    with pytest.raises(InputError, match="is damaged"):
        read_log(tmp_path)
    (tmp_path / "m.py").write_text(FACTORY)
    (tmp_path / "wrong.pt").write_bytes(b"no")
    with raises_approved(InputError, 2):
        precision_debug.compare(
            f"{tmp_path / 'm.py'}:make", run_mode="torch_fp32", device="cpu", from_step=str(tmp_path / "wrong.pt")
        )  # fmt: skip
