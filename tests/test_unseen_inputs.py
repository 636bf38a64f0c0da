"""A quantised model is judged on inputs that did not calibrate it, too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("onnx", reason="builds a model")

from planted.onnx_faults import Graph

import precision_debug
from precision_debug.cli import main
from precision_debug.observe.sample_columns import SAMPLES
from precision_debug.reasons import as_reason
from precision_debug.report.model import Verdict
from precision_debug.run.unseen_inputs import _vary_value


@pytest.mark.parametrize("behind", ["", "range", "bits"])
def test_a_pass_on_what_calibrated_needs_another_input(tmp_path: Path, behind: str) -> None:
    """Behind a gate that is shut for the input that calibrates, so that its range is nothing, and opens for a smaller
    one: nothing more, or numbers that 8 bits cannot hold beside a large one, whatever calibrates."""
    g = Graph(seed=1)
    values = g.random.uniform(1, 2, size=(4, 16)).astype(np.float32)
    x = g.input("x", values)
    y = g.dense(x, 16, 8, "d")
    if behind:
        mean = g.op("MatMul", [x, g.weight("mean", np.full((16, 8), 1 / 16, np.float32))], "mean_of")
        short = g.op("Sub", [g.weight("usual", np.float32(0.95 * values.mean(1).min())), mean], "short")
        opened = g.op("Mul", [g.op("Relu", [short], "gate"), g.weight("much", np.float32(100))], "opened")
        if behind == "bits":
            large = g.weight("large", np.float32(1000))
            beside = g.op("Sub", [g.op("Add", [y, large], "beside"), large], "again")
            opened = g.op("Mul", [opened, beside], "coarse")
        y = g.op("Add", [y, opened], "sum")
    path = g.save(tmp_path / "m.onnx", [g.op("Identity", [y], "y")])
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=g.feeds)
    notes = [as_reason(note) for note in report.notes if as_reason(note).code == "calibrated_here"]
    assert [note.args["count"] for note in notes] == [2]
    doubts = {doubt.code: doubt.values for doubt in report.target.doubts}
    assert [*doubts] == {"": [], "range": ["off_on_others"], "bits": ["off_on_others_kept"]}[behind]
    assert report.verdict is (Verdict.INCONCLUSIVE if behind else Verdict.EXPECTED)
    if behind == "range":
        assert doubts["off_on_others"]["anew"] < 0.5 * doubts["off_on_others"]["there"]
    if behind == "bits":
        told = doubts["off_on_others_kept"]
        assert told["after"] < 0.5 * told["there"] < told["anew"]
        assert "nodes_to_exclude" in told["option"]
        assert "beside" in told["option"]


@pytest.mark.parametrize(("dtype", "end"), [(np.float16, 6e4), (np.float32, 3.4e38), (np.float64, 1.7e308)])
@pytest.mark.parametrize("noised", [False, True])
def test_an_input_at_the_end_of_its_type_varies_within_its_range(dtype: type, end: float, noised: bool) -> None:
    """A mask added to scores beside measured values, and what is large throughout: no sum or square may overflow."""
    random = np.random.default_rng(0)
    mask = np.where(random.uniform(size=(4, 8)) < 0.5, 0, -end).astype(dtype)
    assert _vary_value(mask, random, noised=noised) is mask
    large = (random.uniform(-1, 1, (4, 8)) * end).astype(dtype)
    varied = _vary_value(large, random, noised=noised)
    assert varied.dtype == large.dtype
    assert (varied != large).any()
    assert large.min() <= varied.min() <= varied.max() <= large.max()


def _opens_for(tmp_path: Path, rows: int, *, batch: str | int = "batch") -> tuple[Path, list[np.ndarray]]:
    """A model with a branch that is shut for what calibrates, and values of which the second half opens it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(3)
    halves = [random.uniform(1, 2, (rows, 16)), random.uniform(0.5, 0.6, (rows, 16))]
    constants = {"w": random.normal(size=(16, 8)), "mean": np.full((16, 8), 1 / 16), "usual": np.float32(1),
                 "much": np.float32(100)}  # fmt: skip
    nodes = [
        helper.make_node(*parts) for parts in (
            ("MatMul", ["x", "w"], ["d"], "d"), ("MatMul", ["x", "mean"], ["m"], "m"),
            ("Sub", ["usual", "m"], ["short"], "short"), ("Relu", ["short"], ["gate"], "gate"),
            ("Mul", ["gate", "much"], ["opened"], "opened"), ("Add", ["d", "opened"], ["s"], "s"),
            ("Identity", ["s"], ["y"], "y"),
        )
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 8])],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path, [half.astype(np.float32) for half in halves]


def _codes(report: precision_debug.Report) -> list[str]:
    return [as_reason(note).code for note in report.notes]


@pytest.mark.parametrize("explain", ["off", "fast"])
def test_half_of_several_samples_calibrates_and_the_others_judge(tmp_path: Path, explain: str) -> None:
    path, (first, second) = _opens_for(tmp_path, 1)
    folder = tmp_path / "inputs"
    folder.mkdir()
    for number, value in enumerate([first, first * np.float32(1.01), second, second * np.float32(1.01)]):
        np.savez(folder / f"{number}.npz", x=value)
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=folder, explain=explain)
    assert "part_calibrates" in _codes(report)
    assert report.verdict is Verdict.FAIL
    assert [row.extra[SAMPLES] for row in report.outputs] == ["2"]
    all_of_them = precision_debug.compare(
        path, run_mode="ort_int8", inputs=folder, explain=explain, calibration_samples=4
    )
    assert "part_calibrates" not in _codes(all_of_them)
    chosen = precision_debug.compare(path, run_mode="ort_int8", inputs=folder, explain=explain, sample="2")
    assert [one.args for note in chosen.notes if (one := as_reason(note)).code == "part_calibrates"] == [
        {"count": 3, "judged": 1}
    ]


def test_half_of_a_batch_calibrates(tmp_path: Path) -> None:
    path, halves = _opens_for(tmp_path, 4)
    for inputs, fails in ((np.concatenate(halves), True), (np.concatenate([halves[0], halves[0] * 0.99]), False)):
        report = precision_debug.compare(path, run_mode="ort_int8", inputs={"x": inputs.astype(np.float32)})
        assert "batch_calibrates" in _codes(report)
        assert (report.verdict is Verdict.FAIL) is fails, report.claims


@pytest.mark.parametrize("explain", ["off", "fast"])
def test_where_nothing_can_be_varied_a_pass_is_inconclusive(tmp_path: Path, explain: str) -> None:
    """Three numbers are too few to vary, and a mask is none."""
    g = Graph(seed=1)
    x = g.input("x", np.array([[0, 1, 1, 0, 1, 0, 0, 1]], np.float32))
    path = g.save(tmp_path / "m.onnx", [g.op("Identity", [g.dense(x, 8, 4, "d")], "y")])
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=g.feeds, explain=explain, atol=0.05)
    assert [doubt.code for doubt in report.target.doubts] == ["only_calibrated"]
    assert report.verdict is Verdict.INCONCLUSIVE
    random = precision_debug.compare(path, run_mode="ort_int8", explain=explain, atol=0.05)
    assert "calibrated_here" in _codes(random)
    assert "only_calibrated" not in {doubt.code for doubt in random.target.doubts}


def test_ids_are_moved_and_pictures_vary_in_their_values() -> None:
    random = np.random.default_rng(0)
    ids = np.array([[101, 7, 9, 33, 102, 0, 0, 0]])
    varied = _vary_value(ids, random, noised=True)
    assert (varied != ids).any()
    assert sorted(varied[0]) == sorted(ids[0])
    assert (varied[0, 5:] == 0).all()
    for kept in (np.arange(8)[None], np.array([[1, 1, 1, 0]])):
        assert _vary_value(kept, random, noised=True) is kept
    picture = random.integers(0, 256, (4, 4), dtype=np.uint8)
    for noised in (False, True):
        changed = _vary_value(picture, random, noised=noised)
        assert changed.dtype == np.uint8
        assert (changed != picture).any()


def test_the_modes_of_a_sweep_are_judged_by_the_same_samples(tmp_path: Path) -> None:
    path, (first, second) = _opens_for(tmp_path, 1)
    folder = tmp_path / "inputs"
    folder.mkdir()
    for number, value in enumerate([first, first * np.float32(1.01), second, second * np.float32(1.01)]):
        np.savez(folder / f"{number}.npz", x=value)
    for modes, judged in (("ort_opt,ort_int8", 2), ("ort_opt,ort_fp16_sim", 4)):
        out = tmp_path / f"sweep{judged}.json"
        command = ["sweep", "--model_file", str(path), "--run_modes", modes, "--inputs", str(folder)]
        main([*command, "--speed_seconds", "0.01", "--explain", "off", "--output", str(out)])
        assert {mode["samples"] for mode in json.loads(out.read_text())["modes"]} == {judged}
