"""An operator's error, put into the baseline's run, makes no number that neither side has: no square is negative."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import precision_debug
from precision_debug.explain.workbench import HostWorkbench

SQUARE = np.array([1e-14, 4.0, 0.25], np.float32)
EXACT = np.array([8.9e-8, 4.0, 0.2501], np.float32)
WRONG = np.array([5.96e-8, 4.002, 0.2498], np.float32)


def injected(value: Any, exact: Any, wrong: Any) -> Any:
    return HostWorkbench().with_error(value, exact, wrong)


def test_a_square_that_is_less_than_its_error_does_not_become_negative() -> None:
    assert injected(SQUARE, EXACT, WRONG)[0] >= 0
    assert injected(SQUARE, EXACT, WRONG)[1:].tolist() == pytest.approx([4.002, 0.2497], abs=1e-6)


def test_numbers_of_both_signs_cross_zero_as_their_errors_do() -> None:
    value, exact, wrong = np.array([[0.01, -1.0, 1.0], [0.05, -1.0, 1.0], [0.02, -1.1, 1.0]], np.float32)
    assert injected(value, exact, wrong)[0] == pytest.approx(-0.02, abs=1e-6)


def test_what_is_not_finite_cuts_nothing_off() -> None:
    value = np.array([np.nan, 2.0, 1.0], np.float32)
    got = injected(value, value + 0, np.array([np.nan, 3.0, -np.inf], np.float32))
    assert np.isnan(got[0])
    assert got[1:].tolist() == [3.0, -np.inf]
    assert injected(np.zeros((0, 2), np.float32), np.zeros((0, 2)), np.zeros((0, 2))).shape == (0, 2)


def test_steps_of_integers_end_where_the_numbers_do() -> None:
    value, noise = np.array([0.0, 1e-9, 5.0, 0.3], np.float32), np.full(64, -1.0, np.float32)
    assert HostWorkbench().shaken(value, noise, 0.01, 0, 3.0).min() == 0.0
    assert HostWorkbench().shaken(-value, -noise, 0.01, 0, 3.0).max() == 0.0


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_device_does_the_same() -> None:
    import torch
    from precision_debug_torch.workbench import TorchWorkbench

    bench = TorchWorkbench()
    three = [torch.from_numpy(one) for one in (SQUARE, EXACT, WRONG)]
    assert np.array_equal(bench.with_error(*three).numpy(), injected(SQUARE, EXACT, WRONG))
    value, noise = torch.tensor([0.0, 1e-9, 5.0, 0.3]), np.full(64, -1.0, np.float32)
    assert float(bench.shaken(value, noise, 0.01, 0, 3.0).min()) == 0.0
    mixed = [torch.tensor(one) for one in ([float("nan"), 2.0], [1.0, 2.0], [1.0, 3.0])]
    assert bench.with_error(*mixed)[1] == 3.0
    assert bench.with_error(*(torch.zeros(0, 2) for _ in range(3))).shape == (0, 2)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_each_draw_is_one_of_its_own_on_a_device() -> None:
    """What was drawn is kept there, and was used for later draws too: four of them were one."""
    import torch
    from precision_debug_torch.workbench import TorchWorkbench

    bench, value = TorchWorkbench(), torch.linspace(1, 2, 64)
    for draw in (0, 1, 0):
        noise = np.random.default_rng(draw).uniform(-1, 1, 64).astype(np.float32)
        there = bench.shaken(value, noise, 0.01, 5, None).numpy()
        assert np.allclose(there, HostWorkbench().shaken(value.numpy(), noise, 0.01, 5, None), rtol=1e-6, atol=0)


def test_a_root_of_squares_gets_no_nan_of_the_squares_rounding(tmp_path: Path) -> None:
    """A spectrum's magnitude has bins of next to nothing (silero's VAD): before, an error beyond the square made the
    root NaN, and the square was named at 100 % in place of everybody's rounding."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from planted.onnx_faults import Graph

    graph = Graph(seed=3)
    random = graph.random
    plain = random.uniform(-1, 1, size=(64, 64))
    near = random.uniform(0.25, 0.5, size=(64, 64))
    small = random.uniform(size=(64, 64)) < 0.5  # differences of 1e-6 among ordinary ones
    x = graph.input("x", np.where(small, near, plain).astype(np.float32))
    w = graph.input("w", np.where(small, near + 1e-6, -plain).astype(np.float32))
    apart = graph.op("Mul", [graph.op("Sub", [x, w], "apart"), graph.weight("by", np.float32(1.2))], "scaled")
    square = graph.op("Pow", [apart, graph.weight("two", np.float32(2))], "square")
    root = graph.op("Sqrt", [square], "root")
    mean = graph.op("MatMul", [root, graph.weight("mix", random.normal(size=(64, 8)).astype(np.float32))], "mean")
    path = str(graph.save(tmp_path / "root.onnx", [mean]))
    report = precision_debug.compare(path, run_mode="ort_fp16_sim", inputs=graph.feeds, atol=1e-6, rtol=1e-6)
    explanation = report.explanation
    assert explanation is not None
    assert "square" not in {one.name for one in explanation.culprits}
    assert explanation.budget.get("square", 0.0) < 0.5
