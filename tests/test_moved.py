"""A constant that two files do not share, and that the other has at another place, or in another order."""

from __future__ import annotations

import dataclasses
import re
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from planted.onnx_faults import Graph
from planted.seventeenth_onnx import CASES as NIBBLES

import precision_debug
from precision_debug.pairing.reordered import find_order
from precision_debug.reasons import say
from precision_debug.report.blame import group_by_constant, named_culprits, sentence_of

WEIGHT = np.random.default_rng(0).normal(size=(6, 4, 3)).astype(np.float32)


@pytest.mark.parametrize(("axis", "order"), [(0, [5, 0, 1, 2, 3, 4]), (1, [3, 2, 1, 0]), (2, [0, 2, 1])])
def test_an_order_is_found_along_its_axis(axis: int, order: list[int]) -> None:
    assert find_order(WEIGHT, WEIGHT.take(order, axis)) == (axis, order)


def test_no_order_is_found_of_other_numbers_of_equal_ones_or_of_none() -> None:
    assert find_order(WEIGHT, WEIGHT) is None
    assert find_order(WEIGHT, WEIGHT[[1, 1, 2, 3, 4, 5]] * 2) is None
    assert find_order(np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)) is None
    assert find_order(WEIGHT, WEIGHT[:5]) is None


_LAYERS = """
import torch
from torch import nn


def base():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)), nn.Linear(8, 2)).eval(), torch.randn(4, 8)


def moved():
    net, x = base()
    net[1], net[3] = net[3], net[1]
    return net, x


def turned():
    net, x = base()
    with torch.no_grad():
        net[4].weight.copy_(net[4].weight[:, [7, 6, 5, 4, 3, 2, 1, 0]])
    return net, x
"""


_NORM = """
import torch
from torch import nn

def base(drift=0.0):
    torch.manual_seed(3)
    norm = nn.BatchNorm2d(6, eps={})
    net = nn.Sequential(nn.Conv2d(3, 6, 3), norm, nn.ReLU(), nn.Conv2d(6, 4, 1)).eval()
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5), norm.bias.normal_()
        norm.running_mean.uniform_(-0.3, 0.3).add_(drift), norm.running_var.uniform_(0.2, 0.6).mul_(1 + drift)
    return net, torch.randn(2, 3, 8, 8)

def drifted():
    return base(0.4)
"""


def _culprits(folder: Path, target: str) -> list[precision_debug.records.Culprit]:
    pytest.importorskip("torch", reason="torch is not installed")
    file = folder / "layers.py"
    file.write_text(_LAYERS)
    report = precision_debug.compare(
        f"{file}:{target}", run_mode="torch_fp32", baseline="torch_fp32", baseline_model=f"{file}:base"
    )
    assert report.explanation is not None
    return [*report.explanation.culprits]


def test_exchanged_layers_are_each_others_in_execution_order(tmp_path: Path) -> None:
    found = _culprits(tmp_path, "moved")
    assert [one.name.partition("/")[0] for one in found] == ["1", "3"]
    names = [str(one.evidence["name"]).partition(".")[2] for one in found]
    for one, other, name in zip(found, "31", names, strict=True):
        assert f"{other}.{name}" in one.evidence["target"]


def test_constants_that_only_together_take_an_error_away_are_told_together(tmp_path: Path) -> None:
    """A weight and a bias that both are others: with either alone put back much is left, with both nothing is."""
    first, *_ = _culprits(tmp_path, "moved")
    told = {str(first.evidence["name"]), str(first.evidence["others"]).strip("`")}
    assert told == {"1.weight", "1.bias"}
    assert first.evidence["left"] < 1e-3 < 0.05 < first.evidence["alone"]
    (turned,) = _culprits(tmp_path, "turned")
    assert "others" not in turned.evidence, "one constant that makes it all is told alone"


@pytest.mark.parametrize("epsilon", [1e-5, 0.25])
def test_statistics_that_only_together_take_an_error_away_are_told_together(epsilon: float, tmp_path: Path) -> None:
    """A norm of held statistics is computed again by its form, whose epsilon no file needs to say."""
    pytest.importorskip("torch", reason="torch is not installed")
    file = tmp_path / "norm.py"
    file.write_text(_NORM.format(epsilon))
    report = precision_debug.compare(
        f"{file}:drifted", run_mode="torch_fp32", baseline="torch_fp32", baseline_model=f"{file}:base"
    )
    assert report.explanation is not None
    first, *_ = report.explanation.culprits
    told = {str(first.evidence["name"]), str(first.evidence["others"]).strip("`")}
    assert told == {"1.running_mean", "1.running_var"}
    assert first.evidence["left"] < 1e-3 < 0.05 < first.evidence["alone"]


def test_an_order_is_told_with_its_axis(tmp_path: Path) -> None:
    (one,) = _culprits(tmp_path, "turned")
    assert "axis 1" in one.evidence["target"]
    assert "7, 6, 5, 4, 3, 2, …" in one.evidence["target"]


_STEPS = """
import torch
from torch import nn


def made(optimiser):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    return net, torch.randn(6, 4), lambda out: out.square().mean(), optimiser


def base():
    return made(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


def nesterov():
    return made(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True))


def decayed():
    return made(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.5))
"""


@pytest.mark.parametrize(("target", "name", "base"), [("nesterov", "nesterov", False), ("decayed", "weight_decay", 0)])
def test_a_setting_of_the_optimiser_is_told_before_its_operators(
    tmp_path: Path, target: str, name: str, base: float
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    file = tmp_path / "steps.py"
    file.write_text(_STEPS)
    report = precision_debug.compare(
        f"{file}:{target}", run_mode="torch_fp32", baseline="torch_fp32", baseline_model=f"{file}:base",
        step="optimiser",
    )  # fmt: skip
    assert report.explanation is not None
    found = report.explanation.culprits[0]
    assert found.cause == "files_differ"
    assert (found.evidence["name"], found.evidence["owner_type"]) == (name, "SGD")
    assert str(found.evidence["owner"]).startswith("optimiser/")
    assert str(found.evidence["base"]) == str(base)


def test_a_frozen_script_is_compared(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)  # of weights drawn anew one in sixteen makes nothing but 0, which proves nothing
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript itself
        torch.jit.save(torch.jit.freeze(torch.jit.trace(net, torch.ones(2, 4))), str(tmp_path / "net.ts"))
    report = precision_debug.compare(
        str(tmp_path / "net.ts"), run_mode="torch_fp32", inputs={"input": np.ones((2, 4), np.float32)}
    )
    assert report.exit_status == 0


def test_an_order_is_found_without_a_copy_of_the_array() -> None:
    base = np.arange(1 << 21, dtype=np.float32).reshape(512, 4096)
    order = np.roll(np.arange(512), 1)
    target = base[order]
    tracemalloc.start()
    try:
        found = find_order(base, target)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == (0, list(order))
    assert peak < base.nbytes / 8
    target[500, 1] += 1
    assert find_order(base, target) is None


def test_a_constant_that_a_litert_file_holds_in_four_bits_is_compared(tmp_path: Path) -> None:
    """An operator reads what DEQUANTIZE makes of it: its nibbles had been exchanged, and nothing was told of them."""
    pytest.importorskip("ai_edge_litert", reason="LiteRT runs the files")
    made, base, feeds = next(one for one in NIBBLES if one.name.startswith("nibbles_of_each")).make(tmp_path)
    report = precision_debug.compare(
        made, baseline_model=str(base), run_mode="tflite_ref", baseline="tflite_ref", inputs=feeds
    )
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.name, only.cause) == ("pool_input_nhwc", "files_differ")
    assert only.evidence["name"].startswith("conv2_conv_filter")


@pytest.mark.parametrize("part", [1.0, 0.5], ids=["all", "half"])
def test_a_constant_that_is_the_same_but_for_its_size_is_told_by_its_factor(part: float, tmp_path: Path) -> None:
    def build(factor: float) -> Graph:
        g = Graph(seed=5)
        x = g.op("Relu", [g.dense(g.input("x", g.random.normal(size=(4, 16)).astype(np.float32)), 16, 16, "a")], "r")
        g.dense(x, 16, 4, "y")
        g.weights["a.w"][: int(16 * part)] *= np.float32(factor)
        return g

    base, target = build(1), build(3.6)
    report = precision_debug.compare(
        target.save(tmp_path / "target.onnx", ["y"]), baseline_model=str(base.save(tmp_path / "base.onnx", ["y"])),
        run_mode="ort_fp32", baseline="ort_fp32", inputs=base.feeds,
    )  # fmt: skip
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.name, only.evidence["name"]) == ("a_mm", "a.w")
    told = only.evidence["target"]
    if part == 1:
        assert re.search(r"\b3\.6\b", told)
    else:
        assert isinstance(told, float)


def test_gates_in_another_order_are_told_as_blocks(tmp_path: Path) -> None:
    """Half of the numbers move where two gates of four change places."""
    size = 4

    def build(order: list[int]) -> Graph:
        g = Graph(seed=5)
        x = g.input("x", g.random.normal(size=(6, 2, 3)).astype(np.float32))
        gates = g.random.normal(size=(4, size, 3)).astype(np.float32)
        weight = g.weight("w", gates[order].reshape(1, 4 * size, 3))
        again = g.weight("r", g.random.normal(size=(1, 4 * size, size)).astype(np.float32))
        g.op("LSTM", [x, weight, again], "y", hidden_size=size)
        return g

    base, target = build([0, 1, 2, 3]), build([0, 2, 1, 3])
    report = precision_debug.compare(
        target.save(tmp_path / "target.onnx", ["y"]), baseline_model=str(base.save(tmp_path / "base.onnx", ["y"])),
        run_mode="ort_fp32", baseline="ort_fp32", inputs=base.feeds,
    )  # fmt: skip
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert re.search(rf"\b1\b.*\b{size}: 0, 2, 1, 3\b", only.evidence["target"])


def test_one_number_of_another_shape_is_told_by_its_value(tmp_path: Path) -> None:
    def build(epsilon: object) -> Graph:
        g = Graph(seed=5)
        x = g.op("Abs", [g.input("x", g.random.normal(size=(4, 16)).astype(np.float32))], "a")
        g.op("Log", [g.op("Add", [x, g.weight("epsilon", np.asarray(epsilon, np.float32))], "raised")], "y")
        return g

    base, target = build(1e-3), build([0.1])
    report = precision_debug.compare(
        target.save(tmp_path / "target.onnx", ["y"]), baseline_model=str(base.save(tmp_path / "base.onnx", ["y"])),
        run_mode="ort_fp32", baseline="ort_fp32", inputs=base.feeds,
    )  # fmt: skip
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.evidence["base"], only.evidence["target"]) == (
        pytest.approx(1e-3), pytest.approx(0.1),
    )  # fmt: skip


def test_an_operator_that_one_file_has_more_in_a_stretch_is_told(tmp_path: Path) -> None:
    """The Not before an If: before, "the target computes something else" and no word of what."""
    case = next(one for one in NIBBLES if one.name == "branch_whose_condition_lost_its_not")
    model, base, feeds = case.make(tmp_path)
    report = precision_debug.compare(model, run_mode="ort_fp32", baseline_model=base, inputs=feeds)
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause, first.evidence["ours"]) == ("chosen", "other_arithmetic", "Not")
    assert first.evidence["theirs"] == say("no_operator")
    assert (first.evidence["owner"], first.evidence["seen"]) == (first.evidence["at"], first.name)


_PARTS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, more):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c, self.more = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4), more

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.c(self.b(h) + h if self.more else self.b(h))


class View(Net):
    def forward(self, x):
        h = torch.tanh(self.a(x)).reshape(2, 2, 8)
        return self.c(self.more(h).reshape(4, 8))


def viewed():
    return View(lambda h: h).eval(), torch.randn(4, 8)


def doubled():
    return View(lambda h: h.sin() * 2).eval(), torch.randn(4, 8)


def turned():
    return View(lambda h: h.transpose(0, 1).contiguous()).eval(), torch.randn(4, 8)


def plain():
    return Net(False).eval(), torch.randn(4, 8)


def residual():
    return Net(True).eval(), torch.randn(4, 8)
"""


@pytest.mark.parametrize(("base", "target", "sole"), [
    ("plain", "residual", "the_target"), ("residual", "plain", "the_baseline"),
])  # fmt: skip
def test_an_error_is_told_of_the_operators_that_one_side_alone_has(
    base: str, target: str, sole: str, tmp_path: Path
) -> None:
    """And of where it is compared first only behind that: an addition is missing, and the product behind it is the
    same on both sides."""
    pytest.importorskip("torch", reason="torch is not installed")
    file = tmp_path / "parts.py"
    file.write_text(_PARTS)
    report = precision_debug.compare(
        f"{file}:{target}", run_mode="torch_fp32", baseline="torch_fp32", baseline_model=f"{file}:{base}"
    )
    (only,) = named_culprits(report)
    told = only.evidence
    assert (told["owner"], told["sole"], told["seen"]) == ("add", say(sole), only.name)
    sentence = sentence_of(only, report.target.precision).en
    assert sentence.index(f"`{told['owner']}`") < sentence.index(f"`{only.name}`")
    several = [dataclasses.replace(only, name=name, evidence={**told, "seen": name}) for name in "ab"]
    assert group_by_constant(several) == [several], "one sentence for all that they are seen at"


@pytest.mark.parametrize(("base", "target", "owner", "sole"), [
    ("viewed", "doubled", "sin", "the_target"), ("doubled", "viewed", "sin", "the_baseline"),
    ("viewed", "turned", "transpose", "the_target"),
])  # fmt: skip
def test_operators_of_one_side_are_told_and_not_the_view_that_reads_them(
    base: str, target: str, owner: str, sole: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    file = tmp_path / "parts.py"
    file.write_text(_PARTS)
    report = precision_debug.compare(
        f"{file}:{target}", run_mode="torch_fp32", baseline="torch_fp32", baseline_model=f"{file}:{base}"
    )
    (only,) = named_culprits(report)
    assert (only.cause, only.evidence["owner"], only.evidence["sole"]) == ("files_differ", owner, say(sole))
