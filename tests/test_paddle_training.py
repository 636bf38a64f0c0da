"""A training loop in Paddle's dynamic graph that is followed: its numbers, and the first step that leaves its band.

On a CPU paddle's auto_cast and GradScaler have no effect, so the faults are planted in FP32.
"""

# ruff: noqa: E402

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import raises_approved

paddle: Any = pytest.importorskip("paddle", reason="paddle is not installed")

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import UsageError
from precision_debug.products.training.training_faults import find_first_departure
from precision_debug.recording.training_log import read_log

FAULTS = {"none": -1, "inf": 8, "scaled": 8, "zeros": 8}


def trained(folder: Path | None, fault: str = "none", *, sparse: bool = False, way: str = "step") -> Any:
    paddle.seed(3)
    words = paddle.nn.Embedding(20, 6, sparse=sparse)
    net = paddle.nn.Sequential(words, paddle.nn.Linear(6, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
    optimiser: Any = paddle.optimizer.SGD(0.01, parameters=net.parameters())
    drawn = np.random.default_rng(0)
    scaler = paddle.amp.GradScaler(enable=False)

    def loop() -> None:
        for step in range(12):
            x = paddle.to_tensor(drawn.integers(0, 20, (16, 3)))
            loss = net(x).square().mean()
            if step == FAULTS[fault]:
                loss = {"inf": loss * float("inf"), "scaled": loss * 1e4, "zeros": loss * 0}[fault]
            loss.backward()
            if way == "scaler":
                scaler.step(optimiser)
                scaler.update()
            elif way == "minimize":
                optimiser.minimize(loss)
            else:
                optimiser.step()
            optimiser.clear_grad()

    if folder is None:
        loop()
    else:
        with precision_debug.training(net, optimiser, record=folder, every=1, scaler=scaler):
            loop()
    assert "step" not in vars(optimiser)
    return [np.array(one.numpy()) for one in net.parameters()]


@pytest.mark.parametrize("way", ["step", "minimize", "scaler"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_followed_loop_trains_the_same_bits(tmp_path: Path, way: str, sparse: bool) -> None:
    followed, alone = trained(tmp_path, way=way, sparse=sparse), trained(None, way=way, sparse=sparse)
    assert [one.tobytes() for one in followed] == [one.tobytes() for one in alone]
    steps = read_log(tmp_path)
    assert [one.step for one in steps] == list(range(12))
    table = steps[0].parameters["0.weight"]
    assert 0 < table.zeros < 1  # words that the batch has not
    assert table.norm > 0
    assert table.moved is not None
    assert table.moved * table.size == pytest.approx(0.01 * table.norm, rel=1e-3)


def test_a_step_within_another_is_one_step(tmp_path: Path) -> None:
    """An optimiser of somebody's own whose minimize() calls step(), also at steps that are not kept."""

    class Own(paddle.optimizer.SGD):  # type: ignore[misc]
        def minimize(self, loss: Any) -> None:
            loss.backward()
            self.step()
            self.clear_grad()

    net = paddle.nn.Linear(3, 1)
    optimiser = Own(0.01, parameters=net.parameters())
    with precision_debug.training(net, optimiser, record=tmp_path, every=3):
        for _ in range(7):
            optimiser.minimize(net(paddle.ones([2, 3])).mean())
    assert [one.step for one in read_log(tmp_path)] == [0, 3, 6]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_step_that_leaves_its_band_is_told(
    tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, fault)
    found = find_first_departure(read_log(tmp_path))
    assert (found.step if found is not None else -1) == FAULTS[fault]
    assert main(["training", str(tmp_path), "--lang", "en"]) == (0 if fault == "none" else 1)
    assert ("Step 8 is the first" in capsys.readouterr().out) == (fault != "none")


def test_whole_steps_are_refused_in_a_line(tmp_path: Path) -> None:
    net = paddle.nn.Linear(2, 1)
    optimiser = paddle.optimizer.SGD(0.1, parameters=net.parameters())
    with raises_approved(UsageError):
        precision_debug.training(net, optimiser, record=tmp_path, steps=[1])


@pytest.mark.parametrize("kept", [5, 12])
def test_gradients_that_are_no_longer_cleared_are_told(tmp_path: Path, kept: int) -> None:
    """kept: from this step on; of 12."""
    paddle.seed(3)
    net = paddle.nn.Sequential(paddle.nn.Linear(6, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1))
    optimiser: Any = paddle.optimizer.SGD(0.01, parameters=net.parameters())
    drawn = np.random.default_rng(0)
    with precision_debug.training(net, optimiser, record=tmp_path, every=1):
        for step in range(12):
            net(paddle.to_tensor(drawn.normal(size=(16, 6)).astype(np.float32))).square().mean().backward()
            optimiser.step()
            if step < kept:
                optimiser.clear_grad()
    found = find_first_departure(read_log(tmp_path))
    assert (found is None) if kept == 12 else (found is not None and (found.what, found.step) == ("kept", kept + 1))


@pytest.mark.parametrize(("what", "at"), [("changed", 12), ("state", 9), ("", 12)])
def test_what_is_changed_between_two_steps_is_told(tmp_path: Path, what: str, at: int) -> None:
    """A weight that is rounded, Adam's moments that are gone, and a state that is saved and set again."""
    paddle.seed(3)
    net = paddle.nn.Linear(8, 4)
    optimiser: Any = paddle.optimizer.Adam(0.01, parameters=net.parameters())
    drawn = np.random.default_rng(8)
    with precision_debug.training(net, optimiser, record=tmp_path, every=1):
        for step in range(20):
            x = paddle.to_tensor(drawn.normal(size=(32, 8)).astype(np.float32))
            paddle.nn.functional.mse_loss(net(x), x[:, :4]).backward()
            if step == at and what == "changed":
                net.weight.set_value(net.weight.astype("float16").astype("float32"))
            elif step == at and what == "state":
                for name, value in optimiser.state_dict().items():
                    if "moment" in name and "pow" not in name:
                        value.set_value(paddle.zeros_like(value))
            elif step == at:
                optimiser.set_state_dict(optimiser.state_dict())
            optimiser.step()
            optimiser.clear_grad()
    found = find_first_departure(read_log(tmp_path))
    assert (found and (found.what, found.step)) == ((what, at) if what else None)
