"""A choice that rounding flips is told as one, with how far its scores are apart; in each backend that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from planted.unseen import runs_here

import precision_debug
from precision_debug.explain.choices import compare_choices
from precision_debug.protocols import Executed
from precision_debug.report.blame import sentence_of
from precision_debug.report.fix import describe_option
from precision_debug.report.model import Report
from precision_debug.search.fix import ToKeep

F = np.float32


def told(base: Any, target: Any, chose: Any, there: Any) -> dict[str, Any]:
    return compare_choices([np.asarray(one, F) for one in base], [np.asarray(one, F) for one in target],
                          np.asarray(chose), np.asarray(there))  # fmt: skip


def test_of_the_best_two_of_each_line_it_is_those_that_were_given_up_and_taken() -> None:
    scores = [[0.1, 0.5, 0.45, 0.3], [1, 2, 3, 4]]
    off = [[0.1, 0.44, 0.45, 0.46], [1, 2, 3, 4]]
    found = told([scores], [off], [[1, 2], [3, 2]], [[3, 2], [3, 2]])
    assert found == pytest.approx({"count": 1, "elements": 2, "margin": 0.2, "off": 0.16})


def test_the_same_ones_in_another_order_are_one_more_kind_of_choice() -> None:
    found = told([[[0.5, 0.45, 0.1]]], [[[0.44, 0.45, 0.1]]], [[0, 1]], [[1, 0]])
    assert found == pytest.approx({"count": 1, "elements": 1, "margin": 0.05, "off": 0.06})
    found = told([[[0.5, 0.45, 0.1]]], [[[0.44, 0.45, 0.1]]], [[0, 1, 2]], [[1, 0, 2]])
    assert found == pytest.approx({"count": 1, "elements": 1, "margin": 0.05, "off": 0.06})


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("keep", [True, False])
def test_an_argmax_along_any_axis(axis: int, keep: bool) -> None:
    base = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(F)
    target = base + np.random.default_rng(1).normal(size=base.shape).astype(F) / 2
    mine, theirs = (np.argmax(one, axis, keepdims=keep) for one in (base, target))
    found = told([base], [target], mine, theirs)
    assert found["count"] == int((mine != theirs).sum()) > 0
    assert found["elements"] == mine.size
    assert 0 < found["margin"] <= 2 * found["off"]


def test_a_threshold_and_a_rounding() -> None:
    base, target, limit = [[0.5, 0.2, 0.7]], [[0.4, 0.2, 0.7]], [[0.45, 0.45, 0.45]]
    found = told([base, limit], [target, limit], [[True, False, True]], [[False, False, True]])
    assert found == pytest.approx({"count": 1, "elements": 3, "margin": 0.05, "off": 0.1})
    found = told([base], [target], [[True, False, True]], [[False, False, True]])
    assert found == pytest.approx({"count": 1, "elements": 3, "off": 0.1})
    assert told([[1.4, 2.6]], [[1.6, 2.6]], [1, 3], [2, 3]) == pytest.approx({"count": 1, "elements": 2, "off": 0.2})


def test_boxes_that_one_side_alone_has_and_boxes_in_another_order() -> None:
    boxes, scores = np.zeros((1, 4, 4)), np.array([[[0.5, 0.9, 0.8, 0.7]]])
    off, all_four = scores - [0, 0, 0.02, 0], [[0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 0, 0]]
    found = told([boxes, scores], [boxes, off], all_four, all_four[:3])
    assert found == pytest.approx({"count": 1, "elements": 4, "off": 0.0})
    found = told([boxes, scores], [boxes, off], all_four, [all_four[place] for place in (3, 0, 1, 2)])
    assert found == pytest.approx({"count": 1, "elements": 4, "off": 0.02}, rel=1e-5)  # one that was overtaken by three


def test_what_cannot_be_told_is_not() -> None:
    assert told([[[1.0, 2.0]]], [[[1.0, 2.0]]], [1], [1, 1]) == {}
    found = told([[[1.0, np.nan]]], [[[1.0, 2.0]]], [[0]], [[1]])
    assert found == {"count": 1, "elements": 1}


# models in which the best two are apart by less than a rounding

ROWS, WIDE = 24, 8


def chooser(folder: Path, kind: str) -> tuple[str, dict[str, Any]]:
    """A router whose experts are pairs that nearly tie, and are as different as they can be."""
    random = np.random.default_rng(2)
    router = random.normal(size=(16, WIDE)).astype(F)
    router[:, WIDE // 2 :] = router[:, : WIDE // 2]
    bias = np.where(np.arange(WIDE) < WIDE // 2, 0, 2e-5)
    x = random.normal(size=(ROWS, 16)).astype(F)
    weights = {"router": router, "bias": bias.astype(F), "experts": 30 * random.normal(size=(WIDE, 16)).astype(F)}
    nodes = [
        helper.make_node("MatMul", ["x", "router"], ["mm"], name="mm"),
        helper.make_node("Add", ["mm", "bias"], ["logits"], name="logits"),
    ]
    if kind.startswith("argmax"):
        nodes.append(helper.make_node("ArgMax", ["logits"], ["who"], name="who", axis=-1, keepdims=0))
    else:
        weights["k"] = np.array([1], np.int64)
        nodes.append(helper.make_node("TopK", ["logits", "k"], ["best", "which"], name="who", axis=-1))
        nodes.append(helper.make_node("Squeeze", ["which", "last"], ["who"], name="squeeze"))
        weights["last"] = np.array([1], np.int64)
    table = "experts"
    if kind == "argmax, then counted":  # a token's place is how many before it took its expert
        table = "slots"
        router[:, WIDE // 2 :] += 2e-2 * random.normal(size=(16, WIDE // 2)).astype(F)  # some flip, and some do not
        router[:] = router[:, np.arange(WIDE).reshape(2, -1).T.reshape(-1)]  # into the next one, which is little
        weights |= {"slots": 30 * random.normal(size=(231 + ROWS, 16)).astype(F), "depth": np.int64(WIDE),
                    "on": np.array([0, 1], F), "first": np.int64(0), "last": np.array([1], np.int64),
                    "begin": np.float32(230)}  # fmt: skip
        nodes += [
            helper.make_node("OneHot", ["who", "depth", "on"], ["hot"], name="hot"),
            helper.make_node("CumSum", ["hot", "first"], ["counts"], name="counts"),
            helper.make_node("Mul", ["counts", "hot"], ["own"], name="own"),
            helper.make_node("ReduceSum", ["own", "last"], ["place"], name="place", keepdims=0),
            helper.make_node("Add", ["place", "begin"], ["far"], name="far"),
            helper.make_node("Cast", ["far"], ["slot"], name="slot", to=TensorProto.INT64),
        ]
    who = "slot" if table == "slots" else "who"
    nodes.append(helper.make_node("Gather", [table, who], ["chosen"], name="chosen"))
    nodes.append(helper.make_node("Tanh", ["chosen"], ["bent"], name="bent"))
    nodes.append(helper.make_node("Add", ["bent", "x"], ["y"], name="y"))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "chooser", [value("x", TensorProto.FLOAT, x.shape)], [value("y", TensorProto.FLOAT, x.shape)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    path = folder / "chooser.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return str(path), {"x": x}


def sentences(report: Report) -> Sequence[str]:
    assert report.explanation is not None
    return [sentence_of(one, "bfloat16").en for one in report.explanation.culprits]


@pytest.mark.parametrize("kind", ["argmax", "topk"])
@pytest.mark.parametrize("mode", ["ort_bf16_sim", "ov_bf16"])
def test_onnx_models(mode: str, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime" if mode.startswith("ort") else "openvino", reason="the engine is not installed")
    if not runs_here(mode):
        pytest.skip(f"{mode} cannot run on this processor")
    path, feeds = chooser(tmp_path, kind)
    report = precision_debug.compare(path, run_mode=mode, inputs=feeds)
    assert report.explanation is not None
    found = [one for one in report.explanation.culprits if one.cause == "flips"]
    if report.explanation.state == "diffuse":
        said = [str(note) for note in report.notes if "chooses otherwise in" in str(note)]
        assert len(said) == 1
        assert f" of {ROWS} places: " in said[0]
        assert "2e-05 apart" in said[0]
        return
    assert found, sentences(report)
    evidence = found[0].evidence
    assert evidence["count"] >= 1
    assert evidence["elements"] == ROWS
    assert 0 < evidence["margin"] <= 2 * evidence["off"]
    assert "ordinary rounding, behind which" in sentences(report)[0]
    assert "amplified" not in sentences(report)[0]


def test_of_two_choices_in_a_row_it_is_the_first(tmp_path: Path) -> None:
    """What is counted of flipped choices is whole numbers, too, and nobody's rounding flips it."""
    pytest.importorskip("onnxruntime", reason="the engine is not installed")
    path, feeds = chooser(tmp_path, "argmax, then counted")
    report = precision_debug.compare(path, run_mode="ort_bf16_sim", inputs=feeds)
    assert report.explanation is not None
    found = [one for one in report.explanation.culprits if one.cause == "flips"]
    assert found, sentences(report)
    assert {one.evidence["amplifier"] for one in found} == {"who"}


TORCH = """
import torch
from torch import nn

class Router(nn.Module):
    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.router = nn.Linear(16, 8)
        self.experts = nn.Parameter(30 * torch.randn(8, 16))
        self.x = torch.randn(24, 16)
        with torch.no_grad():
            self.router.weight[4:] = self.router.weight[:4]
            self.router.bias[4:] = self.router.bias[:4] + 2e-5
            self.limit = float(self.router(self.x).median()) - 1e-5

    def forward(self, x):
        scores = self.router(x)
        if self.kind == "threshold":
            return torch.where(scores > self.limit, 10.0, -10.0) + scores
        if self.kind == "sort":
            who = scores.sort(-1, descending=True).indices[:, 0]
        else:
            who = scores.topk(1, -1).indices[:, 0] if self.kind == "topk" else scores.argmax(-1)
        return torch.tanh(self.experts[who]) + x

def topk(): return made("topk")
def argmax(): return made("argmax")
def sort(): return made("sort")
def threshold(): return made("threshold")
def made(kind):
    module = Router(kind).eval()
    return module, module.x
"""


@pytest.mark.parametrize("kind", ["topk", "argmax", "sort", "threshold"])
def test_torch_modules(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "models.py").write_text(TORCH)
    report = precision_debug.compare(f"{tmp_path / 'models.py'}:{kind}", run_mode="torch_bf16", device="cpu")
    assert report.explanation is not None
    found = [one.evidence for one in report.explanation.culprits if one.cause == "flips"]
    if kind == "threshold":  # one of 192, and not of 24 experts half
        assert [one.count for one in report.explanation.decisions] == [1]
        return
    assert found, sentences(report)
    assert found[0]["count"] >= 1
    assert found[0]["off"] > 0
    assert "margin" in found[0]


def test_what_nobody_sees_run_in_the_low_precision_is_not_counted() -> None:
    """torchao's operators look like float32 ones: "0 of 9 operators still run in INT8" would say that none does."""
    was, still = (Executed(low=0, of=of, precision="INT8") for of in (12, 9))
    kept = ToKeep(
        option="--option x", keys=("gate",), of=4, unit="module", state="mended", before=0.1, after=0.01, allowed=0.02,
        was=was, still=still,
    )  # fmt: skip
    said = describe_option(kept, "torch_int8")
    assert "still run" not in said.en
    assert "运行" not in said.zh
