"""Outputs that are off because decisions turned: rounding's are as expected, and a fault before them is a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import precision_debug
from precision_debug.claims import Verdict
from precision_debug.errors import BackendError
from precision_debug.explain import decisions
from precision_debug.explain.choices import read_order
from precision_debug.reasons import as_reason
from precision_debug.records import Row, Status
from precision_debug.report.decisions import decision_sentence
from precision_debug.report.lead import lead_sentences
from precision_debug.report.model import Report

F = np.float32
Parts = tuple[list[Any], dict[str, Any], str]
ROWS, WIDE = 1024, 24


def equal(scores: str) -> Parts:
    """Maxima among neighbours are kept, the others are 0."""
    nodes = [
        helper.make_node("Unsqueeze", [scores, "axes"], ["image"], name="image"),
        helper.make_node("MaxPool", ["image"], ["highest"], name="highest", kernel_shape=[5, 5], pads=[2] * 4),
        helper.make_node("Equal", ["image", "highest"], ["decided"], name="decided"),
        helper.make_node("Where", ["decided", "image", "zero"], ["y"], name="y"),
    ]
    return nodes, {"axes": np.array([0, 1]), "zero": np.array(0, F)}, "y"


def argmax(scores: str) -> Parts:
    nodes = [
        helper.make_node("ArgMax", [scores], ["decided"], name="decided", axis=-1, keepdims=0),
        helper.make_node("Gather", ["table", "decided"], ["y"], name="y"),
    ]
    return nodes, {"table": np.random.default_rng(7).normal(size=(WIDE, 8)).astype(F)}, "y"


def labels(scores: str) -> Parts:
    """The classes themselves are the output."""
    return [helper.make_node("ArgMax", [scores], ["decided"], name="decided", axis=-1, keepdims=0)], {}, "decided"


def topk(scores: str) -> Parts:
    nodes = [
        helper.make_node("TopK", [scores, "k"], ["best", "decided"], name="decided", axis=-1),
        helper.make_node("Gather", ["table", "decided"], ["y"], name="y"),
    ]
    return nodes, {"k": np.array([3]), "table": np.random.default_rng(7).normal(size=(WIDE, 8)).astype(F)}, "y"


def threshold(scores: str) -> Parts:
    nodes = [
        helper.make_node("Greater", [scores, "limit"], ["decided"], name="decided"),
        helper.make_node("Where", ["decided", "one", "zero"], ["y"], name="y"),
    ]
    return nodes, {"limit": np.array(0.1, F), "one": np.array(1, F), "zero": np.array(0, F)}, "y"


def rounding(scores: str) -> Parts:
    nodes = [
        helper.make_node("Floor", [scores], ["decided"], name="decided"),
        helper.make_node("Mul", ["decided", "far"], ["y"], name="y"),
    ]
    return nodes, {"far": np.array(7, F)}, "y"


def boxes(scores: str) -> Parts:
    """Boxes are kept from a score on, as many as there are: the two sides have another number of them."""
    place = np.arange(ROWS)
    corner = np.stack([place // 32 * 20.0, place % 32 // 2 * 40.0 + place % 2 * 10], -1)  # each overlaps with one other
    nodes = [
        helper.make_node("Transpose", [scores], ["classes"], name="classes"),
        helper.make_node("Unsqueeze", ["classes", "first"], ["batch"], name="batch"),
        helper.make_node("Slice", ["batch", "first", "some", "ones"], ["few"], name="few"),
        helper.make_node("Add", ["corners", "nothing"], ["boxes"], name="boxes"),
        helper.make_node("NonMaxSuppression", ["boxes", "few", "most", "overlap", "least"], ["decided"]),
        helper.make_node("Gather", ["decided", "two"], ["kept"], name="kept", axis=1),
        helper.make_node("Gather", ["corners", "kept"], ["y"], name="y", axis=1),
    ]
    constants: dict[str, Any] = {
        "first": np.array([0]), "some": np.array([4]), "ones": np.array([1]), "nothing": np.array(0, F),
        "corners": np.concatenate([corner, corner + 12], -1)[None].astype(F), "most": np.array([2000]),
        "overlap": np.array([0.05], F), "least": np.array([0.1], F), "two": np.array(2),
    }  # fmt: skip
    return nodes, constants, "y"


KINDS: dict[str, Callable[[str], Parts]] = {
    one.__name__: one for one in (equal, argmax, labels, topk, threshold, rounding, boxes)
}


def model(folder: Path, kind: str, fault: float = 0.0) -> tuple[str, dict[str, Any]]:
    """Two layers give scores, by which something is decided. fault: what is added on the way and taken away again, so
    that a narrow type loses the digits of what it is added to."""
    random = np.random.default_rng(4)
    weights: dict[str, Any] = {
        "w1": random.normal(size=(32, 32)).astype(F) / 5, "w2": random.normal(size=(32, WIDE)).astype(F) / 5,
        "far_off": np.array(fault, F),
    }  # fmt: skip
    weights["w2"][:, 1::2] = weights["w2"][:, ::2] + 4e-3 * random.normal(size=(32, WIDE // 2)).astype(F)  # near ties
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="h"),
        helper.make_node("Tanh", ["h"], ["bent"], name="bent"),
        helper.make_node("MatMul", ["bent", "w2"], ["scores"], name="scores"),
    ]
    scores = "scores"
    if fault:
        nodes += [
            helper.make_node("Add", ["scores", "far_off"], ["lifted"], name="lifted"),
            helper.make_node("Sub", ["lifted", "far_off"], ["back"], name="back"),
        ]
        scores = "back"
    more, constants, output = KINDS[kind](scores)
    value = helper.make_tensor_value_info
    held = TensorProto.INT64 if kind == "labels" else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes + more, kind, [value("x", TensorProto.FLOAT, [ROWS, 32])], [value(output, held, None)],
        [numpy_helper.from_array(array, name) for name, array in (weights | constants).items()],
    )  # fmt: skip
    path = folder / f"{kind}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return str(path), {"x": random.normal(size=(ROWS, 32)).astype(F)}


def compared(folder: Path, kind: str, fault: float = 0.0, **more: Any) -> Report:
    pytest.importorskip("onnxruntime", reason="the engine is not installed")
    path, feeds = model(folder, kind, fault)
    return precision_debug.compare(path, run_mode="ort_fp16_sim", inputs=feeds, **more)


def row_of(report: Report, name: str) -> Row:
    return next(row for row in report.rows if row.name == name)


@pytest.mark.parametrize("kind", KINDS)
def test_what_rounding_turns_is_as_expected_and_nobodys(kind: str, tmp_path: Path) -> None:
    report = compared(tmp_path, kind)
    assert report.explanation is not None
    assert [one.name for one in report.explanation.decisions] == ["decided"]
    decision = report.explanation.decisions[0]
    assert decision.expected
    assert 0 < decision.count <= 8 * max(1, decision.predicted)
    assert report.explanation.culprits == ()
    assert report.verdict is Verdict.EXPECTED
    assert report.exit_status == 0
    row = row_of(report, "decided")
    assert (row.status, row.reason.code.partition("_apart")[0]) == (Status.PASS, "decisions_turned")
    assert lead_sentences(report)[0] == decision_sentence(report)
    if decision.margin is not None:
        assert 0 < decision.margin <= decision.reach


@pytest.mark.parametrize(
    ("kind", "fault"), [("equal", 500.0), ("argmax", 60), ("labels", 500), ("threshold", 60), ("boxes", 60)]
)
def test_scores_that_are_wrong_are_blamed(kind: str, fault: float, tmp_path: Path) -> None:
    report = compared(tmp_path, kind, fault)
    assert report.explanation is not None
    assert report.verdict is Verdict.FAIL
    assert {one.name for one in report.explanation.culprits} <= {"lifted", "back", "scores"}
    assert report.explanation.culprits


def test_decisions_that_the_target_does_not_show_are_read_of_its_output(tmp_path: Path) -> None:
    seen, unseen = (compared(tmp_path, "equal", marks=marks) for marks in ((), ("y",)))
    counts = [one.explanation.decisions[0].count for one in (seen, unseen) if one.explanation is not None]
    assert counts[0] == counts[1] > 0
    assert unseen.verdict is Verdict.EXPECTED


def test_a_fault_behind_a_decision_is_no_decisions(tmp_path: Path) -> None:
    """What is added and taken away behind it is not explained by it, and has its author."""
    pytest.importorskip("onnxruntime", reason="the engine is not installed")
    path, feeds = model(tmp_path, "argmax")
    loaded = onnx.load(path)
    loaded.graph.node[-1].output[0] = "chosen"
    loaded.graph.initializer.append(numpy_helper.from_array(np.array(3000, F), "lift"))
    loaded.graph.node.extend(
        [
            helper.make_node("Add", ["chosen", "lift"], ["lifted"], name="lifted"),
            helper.make_node("Sub", ["lifted", "lift"], ["y"], name="y"),
        ]
    )
    onnx.save(loaded, path)
    report = precision_debug.compare(path, run_mode="ort_fp16_sim", inputs=feeds)
    assert report.explanation is not None
    assert report.explanation.decisions == ()
    assert report.verdict is Verdict.FAIL


def test_a_tolerance_of_the_users_decides_and_the_decisions_are_told(tmp_path: Path) -> None:
    report = compared(tmp_path, "threshold", atol=1e-3, rtol=1e-3)
    assert report.explanation is not None
    assert report.explanation.decisions[0].expected
    assert report.explanation.culprits == ()
    assert report.verdict is Verdict.FAIL


EXPERTS = """
import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(16, 6, bias=False)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))

    def forward(self, x):
        weights, chosen = torch.topk(self.router(x).softmax(-1), 2, dim=-1)
        made = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            place, token = torch.where(chosen.T == number)
            made.index_add_(0, token, expert(x[token]) * weights[token, place, None] * SCALE)
        return made


def build():
    torch.manual_seed(0)
    layers = nn.Sequential(Experts(), nn.LayerNorm(16), Experts()).eval()
    generator = torch.Generator().manual_seed(1)
    return layers, (torch.randn(768, 16, generator=generator),)
"""
"""As transformers' Mixtral routes: each expert computes the tokens that chose it, however many these are."""


def routed(folder: Path, scale: str) -> Report:
    pytest.importorskip("torch", reason="torch is not installed")
    module = folder / "experts.py"
    module.write_text(EXPERTS.replace("SCALE", scale), encoding="utf-8")
    return precision_debug.compare(f"{module}:build", run_mode="torch_bf16")


def test_routing_that_rounding_turns_is_told_and_experts_of_other_tokens_are_nobodys(tmp_path: Path) -> None:
    """Another number of tokens goes through an expert: what it computes has another shape, and is no fault."""
    report = routed(tmp_path, "1")
    explanation = report.explanation
    assert explanation is not None
    [one] = explanation.decisions
    assert one.expected
    assert one.margin is not None
    assert one.rest is not None
    assert one.rest < 0.02 < 2 * one.effect
    others = [row for row in report.rows if row.comparison is not None and not row.comparison.shapes_match]
    assert others
    assert {row.status for row in others} == {Status.PASS}
    assert report.verdict is Verdict.EXPECTED


@pytest.mark.parametrize("error", [BackendError("the engine is gone", where="here"), ValueError("not two shapes")])
def test_what_stops_the_look_at_decisions_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The comparison stands, with its numbers, and a note says that decisions were not looked at, and why."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(decisions._Runs, "of_target", fail)
    path, feeds = model(tmp_path, "labels")
    report = precision_debug.compare(path, run_mode="ort_fp16_sim", inputs=feeds)
    told = [one for one in map(as_reason, report.notes) if one.code == "decisions_not_looked_at"]
    assert len(told) == 1
    assert str(error).split(":")[-1].strip() in str(told[0].args["detail"])
    assert report.explanation is not None
    assert report.explanation.decisions == ()
    assert report.outputs[0].comparison is not None


def decoder(path: Path, kind: str, steps: int, factor: float = 1.0) -> tuple[str, dict[str, Any]]:
    """The best of 24 words is chosen in each of so many iterations, and the next state made of its row. factor: of one
    column of the weights that the scores are made with."""
    random = np.random.default_rng(43)
    feeds = {"x": random.normal(size=(32, 16)).astype(F)}
    head, table, last = (random.normal(size=size).astype(F) for size in ((16, 24), (24, 16), (16, 4)))
    head[:, 3] *= F(factor)
    floats, ids = TensorProto.FLOAT, TensorProto.INT64
    nodes = [
        helper.make_node("MatMul", ["state", "head"], ["logits"], name="body_logits"),
        helper.make_node("ArgMax", ["logits"], ["word"], name="body_word", axis=-1, keepdims=0),
        helper.make_node("Gather", ["table", "word"], ["row"], name="body_row"),
        helper.make_node("Mul", ["state", "part"], ["old"], name="body_old"),
        helper.make_node("Add", ["old", "row"], ["sum"], name="body_sum"),
        helper.make_node("Tanh", ["sum"], ["next"], name="body_next"),
    ]
    info = helper.make_tensor_value_info
    state, ends = info("state", floats, [32, 16]), [info("next", floats, [32, 16]), info("word", ids, [32])]
    weights = {"head": head, "table": table, "part": np.array(0.5, F), "last": last, "n": np.array(steps)}
    if kind == "Scan":
        body = helper.make_graph(nodes, "body", [state, info("tick", floats, [1])], ends)
        weights["ticks"] = np.zeros((steps, 1), F)
        loop = helper.make_node("Scan", ["x", "ticks"], ["end", "steps"], name="loop", body=body, num_scan_inputs=1)
    else:
        go = helper.make_node("Identity", ["go"], ["go_on"], name="body_go")
        read = [info("i", ids, []), info("go", TensorProto.BOOL, []), state]
        body = helper.make_graph([go, *nodes], "body", read, [info("go_on", TensorProto.BOOL, []), *ends])
        loop = helper.make_node("Loop", ["n", "", "x"], ["end", "steps"], name="loop", body=body)
    graph = helper.make_graph(
        [loop, helper.make_node("MatMul", ["end", "last"], ["y"], name="y")], "g", [info("x", floats, [32, 16])],
        [info("steps", ids, [steps, 32]), info("y", floats, [32, 4])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return str(path), feeds


@pytest.mark.parametrize(("kind", "steps"), [("Loop", 8), ("Scan", 8), ("Loop", 40)])
def test_what_rounding_turns_in_a_loop_is_one_decision_of_all_iterations(tmp_path: Path, kind: str, steps: int) -> None:
    """Counted are those that turn by themselves, and not what else is chosen after another choice."""
    path, feeds = decoder(tmp_path / "m.onnx", kind, steps)
    report = precision_debug.compare(path, run_mode="ort_bf16_sim", inputs=feeds)
    told = report.explanation
    assert told is not None
    assert (report.verdict, told.culprits) == (Verdict.EXPECTED, ())
    assert [(one.name, one.elements, one.expected) for one in told.decisions] == [("word", 32 * steps, True)]
    one = told.decisions[0]
    steps_row = next(row for row in report.rows if row.name == "steps")
    assert steps_row.comparison is not None
    assert 0 < one.count < (steps_row.comparison.mismatched or 0)
    assert one.margin is not None
    assert 0 < float(one.margin) < 0.02 < float(one.reach)


def test_a_wrong_weight_in_a_loop_is_no_rounding_of_its_decisions(tmp_path: Path) -> None:
    base, feeds = decoder(tmp_path / "base.onnx", "Loop", 8)
    wrong, _ = decoder(tmp_path / "wrong.onnx", "Loop", 8, factor=1.2)
    report = precision_debug.compare(
        wrong, run_mode="ort_bf16_sim", baseline="ort_fp32", baseline_model=base, inputs=feeds
    )
    assert report.verdict is Verdict.FAIL
    assert report.explanation is not None
    assert [(one.name, one.cause) for one in report.explanation.culprits] == [("logits@0", "files_differ")]
    assert not any(one.expected for one in report.explanation.decisions)


def compared_anew(folder: Path, mode: str, ops: tuple[str, str]) -> Report:
    """Quarters that are counted by thresholds of one file's operator and of another's."""
    x = (np.random.default_rng(3).integers(0, 40, size=(3, 12)) / 4).astype(F)
    paths = []
    for name, op in zip(("base", "target"), ops, strict=True):
        nodes = [
            helper.make_node("Unsqueeze", ["x", "last"], ["wide"], name="wide"),
            helper.make_node(op, ["wide", "edges"], ["above"], name="above"),
            helper.make_node("Cast", ["above"], ["ones"], name="ones", to=TensorProto.INT64),
            helper.make_node("ReduceSum", ["ones", "last"], ["bin"], name="bin", keepdims=0),
            helper.make_node("Gather", ["table", "bin"], ["y"], name="y"),
        ]
        held = {"last": np.array([-1]), "edges": np.arange(1, 9).astype(F),
                "table": np.random.default_rng(7).normal(size=(9, 8)).astype(F)}  # fmt: skip
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 12, 8])],
            [numpy_helper.from_array(value, name) for name, value in held.items()],
        )  # fmt: skip
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
                  folder / f"{name}.onnx")  # fmt: skip
        paths.append(str(folder / f"{name}.onnx"))
    return precision_debug.compare(
        paths[1], run_mode=mode, baseline="ort_fp32", baseline_model=paths[0], inputs={"x": x}
    )


@pytest.mark.parametrize("mode", ["ort_fp32", "ov_opt"])
def test_a_number_that_both_sides_read_and_decide_otherwise_is_no_rounding_s(mode: str, tmp_path: Path) -> None:
    if mode.startswith("ov"):
        pytest.importorskip("openvino", reason="needs OpenVINO")
    report = compared_anew(tmp_path, mode, ("GreaterOrEqual", "Greater"))
    assert report.verdict is Verdict.FAIL
    assert report.explanation is not None
    assert [(one.name, one.cause) for one in report.explanation.culprits] == [("above", "files_differ")]


def compared_in_no_order(
    folder: Path, fault: float = 0.0, outputs: Sequence[str] = ("best", "which", "found")
) -> Report:  # fmt: skip
    """A top-k that asks for no order that OpenVINO keeps otherwise than ONNX Runtime, and boxes gathered by it.
    fault: by what part one class's weights are off in the target's file."""
    pytest.importorskip("onnxruntime", reason="the engine is not installed")
    pytest.importorskip("openvino", reason="needs OpenVINO")
    random = np.random.default_rng(0)
    weight, x = random.normal(size=(16, 40)).astype(F), random.normal(size=(1, 16)).astype(F)
    held = {"k": np.array([5]), "boxes": random.normal(size=(40, 4)).astype(F)}
    paths = []
    for name, off in (("exported", 0.0), ("changed", fault)):
        scaled = weight.copy()
        scaled[:, np.argmax(x @ weight)] *= 1 + off
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["scores"], name="scores"),
            helper.make_node("TopK", ["scores", "k"], ["best", "which"], name="which", sorted=0),
            helper.make_node("Gather", ["boxes", "which"], ["found"], name="found"),
        ]
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info(one, TensorProto.INT64 if one == "which" else TensorProto.FLOAT, None)
             for one in outputs],
            [numpy_helper.from_array(value, key) for key, value in ({"w": scaled} | held).items()],
        )  # fmt: skip
        paths.append(str(folder / f"{name}.onnx"))
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), paths[-1])
    return precision_debug.compare(
        paths[1], run_mode="ov_opt_fp32", baseline="ort_fp32", baseline_model=paths[0], inputs={"x": x}
    )


def test_a_top_k_in_no_order_and_what_reads_it_are_as_expected_in_another_order(tmp_path: Path) -> None:
    report = compared_in_no_order(tmp_path)
    assert report.explanation is not None
    assert [(one.name, one.count, one.expected) for one in report.explanation.decisions] == [("which", 0, True)]
    codes = {one: row_of(report, one).reason.code for one in ("best", "which", "found")}
    assert codes == {"best": "behind_order", "which": "order_undefined", "found": "behind_order"}
    assert report.verdict is Verdict.EXPECTED


@pytest.mark.parametrize("outputs", [("best", "found"), ("found",), ("best",)])
def test_the_order_of_a_top_k_whose_indices_are_no_output_is_read_where_it_shows(
    tmp_path: Path, outputs: Sequence[str]
) -> None:
    """OpenVINO keeps another order where it shows the indices than where it does not."""
    report = compared_in_no_order(tmp_path, outputs=outputs)
    assert report.explanation is not None
    assert [(one.name, one.count, one.expected) for one in report.explanation.decisions] == [("which", 0, True)]
    assert {row_of(report, one).reason.code for one in outputs} == {"behind_order"}
    assert report.verdict is Verdict.EXPECTED
    assert compared_in_no_order(tmp_path, 0.01, outputs).verdict is Verdict.FAIL


def test_an_order_is_read_by_line_of_what_each_choice_makes() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(size=(3, 7))
    chose = np.argsort(-scores, axis=1)[:, :4]
    there = np.stack([random.permutation(line) for line in chose])
    rows = random.normal(size=(7, 5))
    for made in (lambda one: np.take_along_axis(scores, one, 1), lambda one: rows[one]):
        got = read_order(scores, chose, made(chose), made(there) * (1 + 1e-6))
        np.testing.assert_array_equal(got, there)
    assert read_order(scores, chose, rows, rows) is None


def test_a_value_of_a_top_k_in_no_order_that_is_off_is_none_of_its_order(tmp_path: Path) -> None:
    report = compared_in_no_order(tmp_path, 0.01)
    assert report.verdict is Verdict.FAIL
    assert row_of(report, "best").status is Status.FAIL
