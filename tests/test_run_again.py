"""A side that does not give the same twice on one input proves nothing by one of its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precision_debug import Report, compare
from precision_debug.claims import State
from precision_debug.cli import main

MODULE = """
import itertools
import torch
from torch import nn

RUNS = itertools.count()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, x):
        return self.layer(x) * (1 + {size} * next(RUNS) / 10)

def net():
    torch.manual_seed(0)
    return Net(), torch.randn(4, 8)
"""


def module(folder: Path, size: float) -> str:
    """A module that depends on what no seed decides; 0: on nothing."""
    pytest.importorskip("torch", reason="needs torch")
    (folder / "m.py").write_text(MODULE.format(size=size))
    return f"{folder / 'm.py'}:net"


def codes(report: Report) -> set[str]:
    return {doubt.code for doubt in report.doubts}


@pytest.mark.parametrize(
    ("size", "options", "differs"),
    [
        (0.0, {}, False),
        (0.1, {"atol": 1.0, "rtol": 1.0}, False),  # within what the user allows
        (0.1, {"atol": 1e-3, "rtol": 1e-3}, True),
        (0.1, {}, True),
        (1e-7, {}, False),  # sums in another order
    ],
)
def test_two_runs_of_one_session_that_differ_are_no_pass(
    tmp_path: Path, size: float, options: dict[str, Any], differs: bool
) -> None:
    report = compare(module(tmp_path, size), run_mode="torch_fp32", baseline="torch_fp32", explain="off", **options)
    assert ("differs_from_itself" in codes(report)) is differs
    if differs:
        assert report.exit_status == 1
        doubts = [doubt for doubt in report.doubts if doubt.code == "differs_from_itself"]
        assert len(doubts) == 2, "either side"
        between = doubts[0].values["between"]
        assert isinstance(between, float)
        assert 0.005 < between < 0.1
    elif not size:
        assert report.exit_status == 0


def test_a_side_that_fails_the_second_time_is_no_pass(tmp_path: Path) -> None:
    path, calls = module(tmp_path, 0.0), tmp_path / "calls"
    plain = (tmp_path / "m.py").read_text()
    calls.write_text("")
    guard = (f"count = __import__('pathlib').Path({str(calls)!r})\n"
             "        with count.open('a') as file:\n"  # both sides may write at once
             "            file.write('.')\n"
             "        assert LIMIT is None or len(count.read_text()) <= LIMIT")  # fmt: skip
    plain = plain.replace("        return self.layer", f"        {guard}\n        return self.layer")
    options: dict[str, Any] = {"run_mode": "torch_fp32", "baseline": "torch_fp32", "explain": "off"}
    (tmp_path / "m.py").write_text(plain + "\nLIMIT = None\n")
    assert compare(path, **options, run_once=True).exit_status == 0
    alone = len(calls.read_text())
    again = tmp_path / "limited.py"  # a name of its own, which no cache of modules knows
    again.write_text(plain + f"\nLIMIT = {alone}\n")
    calls.write_text("")
    report = compare(path.replace("m.py", again.name), **options)
    assert "fails_again" in codes(report)
    assert report.exit_status == 1


def test_that_it_was_run_only_once_is_said(tmp_path: Path) -> None:
    path = module(tmp_path, 0.1)
    report = compare(path, run_mode="torch_fp32", baseline="torch_fp32", explain="off", run_once=True, atol=1.0)
    assert "differs_from_itself" not in codes(report)
    assert "run_once" in codes(report)
    assert report.exit_status == 0


def test_of_several_samples_the_first_is_run_again(tmp_path: Path) -> None:
    path = module(tmp_path, 0.1)
    np.savez(tmp_path / "many.npz", x=np.random.default_rng(0).normal(size=(3, 4, 8)).astype(np.float32))
    report = compare(path, run_mode="torch_fp32", baseline="torch_fp32", explain="off",
                     inputs=str(tmp_path / "many.npz"), samples_axis=0)  # fmt: skip
    assert "differs_from_itself" in codes(report)




@pytest.mark.parametrize("seed", [None, 3.0])
def test_a_generator_goes_on_in_a_second_run_of_one_session(tmp_path: Path, seed: float | None) -> None:
    """With a seed the file gives the same in each process; without one that is known, and not said twice."""
    onnx = pytest.importorskip("onnx", reason="builds a model")
    pytest.importorskip("onnxruntime", reason="runs it")
    helper = onnx.helper
    drawn = helper.make_node("RandomUniformLike", ["x"], ["r"], name="draw", **({} if seed is None else {"seed": seed}))
    nodes = [drawn, helper.make_node("Add", ["x", "r"], ["y"], name="add")]
    info = [helper.make_tensor_value_info(name, 1, [4, 4]) for name in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)  # fmt: skip
    onnx.save(model, tmp_path / "m.onnx")
    report = compare(tmp_path / "m.onnx", run_mode="ort_opt", explain="off")
    assert codes(report) & {"draws_numbers", "differs_from_itself"} == ({"draws_numbers"} if seed is None else set())


def test_each_side_runs_once_more_and_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is opened for it: what was shown to the compared run is what a second one would show."""
    pytest.importorskip("onnx", reason="builds a model")
    pytest.importorskip("onnxruntime", reason="runs it")
    import precision_debug_onnxruntime.session as sessions
    from planted.onnx_faults import CASES

    model, _, feeds = next(case for case in CASES if case.name == "outlier_conv_channel").make(tmp_path)
    np.savez(tmp_path / "feeds.npz", **feeds)
    opened: list[int] = []
    make = sessions.taps.connect
    monkeypatch.setattr(sessions.taps, "connect", lambda *one, **two: opened.append(1) or make(*one, **two))
    counts = []
    for run_once in (True, False):
        opened.clear()
        report = compare(model, run_mode="ort_opt", inputs=str(tmp_path / "feeds.npz"), explain="off",
                         run_once=run_once)  # fmt: skip
        assert [one.state for one in report.claims if one.code == "repeatable"] == [State.HELD]
        counts.append(len(opened))
    assert counts[0] == counts[1] > 0


def test_the_option_is_one_of_the_command_line(tmp_path: Path) -> None:
    path = module(tmp_path, 0.1)
    words = ["--model_file", path, "--run_mode", "torch_fp32", "--baseline", "torch_fp32", "--explain", "off",
             "--quiet", "--output", str(tmp_path / "r.json")]  # fmt: skip
    assert main(words) == 1
    assert main([*words, "--run_once", "--atol", "1"]) == 0
