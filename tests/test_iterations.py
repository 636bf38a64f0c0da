"""A loop of many iterations is one row a tensor, and the worst iteration one more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import precision_debug
from precision_debug import cli, numbers
from precision_debug.events import Explained
from precision_debug.numbers.iterations import Iterations
from precision_debug.observe import loops
from precision_debug.pairing.align import strip_iteration
from precision_debug.records import ModelFiles, RunSpec, Tolerance
from precision_debug.run import pipeline
from precision_debug.run.journal import Journal, read_events


def pairs(count: int, shape: tuple[int, ...], worst: int, dtype: type = np.float32) -> list[tuple[np.ndarray, ...]]:
    random = np.random.default_rng(0)
    found = []
    for turn in range(count):
        base = random.normal(size=shape).astype(dtype)
        off = random.normal(size=shape) * (1e-2 if turn == worst else 1e-4)
        found.append((base, (base + off).astype(dtype)))
    return found


@pytest.mark.parametrize("shape", [(3, 40), (300, 300)], ids=["small", "large"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_the_totals_are_those_of_all_iterations_laid_side_by_side(shape: tuple[int, ...], dtype: type) -> None:
    given = pairs(20, shape, worst=7, dtype=dtype)
    found = Iterations(Tolerance())
    for turn, (base, target) in enumerate(given):
        found.add(str(turn), base, target)
    whole = found.whole()
    expected = numbers.compare(*(np.stack(side) for side in zip(*given, strict=True)))
    for name in ("mismatched", "max_abs", "max_rel", "required_atol", "required_rtol", "apart", "identical"):
        assert getattr(whole, name) == getattr(expected, name), name
    for name in ("mean_abs", "mean_rel", "rmse", "cosine_distance", "sqnr_db", "share_rel_over_1pct"):
        assert getattr(whole, name) == pytest.approx(getattr(expected, name), rel=1e-9), name
    assert whole.base.elements == expected.base.elements
    assert whole.base.shape == shape
    assert whole.max_abs_index == expected.max_abs_index[1:]
    assert whole.abs_p50 == pytest.approx(expected.abs_p50, rel=0.13)
    turn, error, worst = found.worst()
    assert turn == "7"
    assert worst == numbers.compare(*given[7])
    assert error == pytest.approx(worst.relative_l2)


def test_what_the_kernel_does_not_take_is_added_up_too() -> None:
    """Integers of 64 bits, shapes that grow from turn to turn, values that only scales hold, a NaN, other shapes."""
    found = Iterations(Tolerance())
    given = [
        (np.arange(4.0, dtype=np.float32), np.arange(4.0, dtype=np.float32)),
        (np.arange(6.0, dtype=np.float32), np.arange(6.0, dtype=np.float32) + np.float32(0.5)),
        (np.full(3, 1e300), np.full(3, 1.5e300)),
        (np.arange(5), np.arange(5)),
    ]
    for turn, pair in enumerate(given):
        found.add(str(turn), *pair)
    whole = found.whole()
    assert whole.base.elements == 18
    assert whole.mismatched == 9
    assert whole.max_abs == pytest.approx(0.5e300)
    found.add("4", np.zeros(3, np.float32), np.array([0, np.nan, 0], np.float32))
    assert found.worst()[:2] == ("4", np.inf)
    assert found.whole().target.nan == 1
    found.add("5", np.zeros(3, np.float32), np.zeros(4, np.float32))
    assert not found.whole().shapes_match
    assert found.worst()[0] == "4", "the first of equal ones"


@pytest.mark.parametrize(("name", "expected"), [("x@3.0", "x"), ("x@1.2.3", "x"), ("x@1.", "x@1."), ("x@.1", "x@.1")])
def test_the_stem_of_a_loop_in_a_loop(name: str, expected: str) -> None:
    assert strip_iteration(name) == expected


def loop_of(count: int, *, nested: bool = False, scale: float = 1.0) -> Any:
    """y = f(f(… x)), f of three operators; the state is divided by ``scale`` and multiplied again."""
    onnx = pytest.importorskip("onnx")
    h, t = onnx.helper, onnx.TensorProto
    random = np.random.default_rng(0)
    arrays = {
        "w": (random.normal(size=(8, 8)) / np.sqrt(8)).astype(np.float32), "n": np.array(count), "true": np.array(True),
        "scale": np.array(scale, np.float32), "three": np.array(3),
    }  # fmt: skip
    nodes = [
        h.make_node("MatMul", ["state", "w"], ["product"], "product"),
        h.make_node("Div", ["product", "scale"], ["small"], "small"),
        h.make_node("Mul", ["small", "scale"], ["large"], "large"),
        h.make_node("Tanh", ["large"], ["state_out"], "tanh"),
        h.make_node("Identity", ["cond"], ["cond_out"], "go_on"),
    ]
    value = h.make_tensor_value_info
    state = [value("state", t.FLOAT, [4, 8]), value("state_out", t.FLOAT, [4, 8])]
    ends = [value("cond", t.BOOL, []), value("cond_out", t.BOOL, [])]
    body = h.make_graph(nodes, "body", [value("turn", t.INT64, []), ends[0], state[0]], [ends[1], state[1]])
    if nested:
        inner = h.make_node("Loop", ["three", "true", "outer"], ["outer_out"], "inner", body=body)
        outside = h.make_node("Identity", ["go"], ["go_out"], "go_outside")
        names = [("go", t.BOOL, []), ("outer", t.FLOAT, [4, 8]), ("go_out", t.BOOL, []), ("outer_out", t.FLOAT, [4, 8])]
        ins = [value("round", t.INT64, []), *(value(*one) for one in names[:2])]
        body = h.make_graph([outside, inner], "outside", ins, [value(*one) for one in names[2:]])
    loop = h.make_node("Loop", ["n", "true", "x"], ["y"], "loop", body=body)
    graph = h.make_graph(
        [loop], "loops", [value("x", t.FLOAT, [4, 8])], [value("y", t.FLOAT, [4, 8])],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def compared(tmp_path: Path, model: Any, mode: str, **options: Any) -> Any:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    onnx.save(model, tmp_path / "loop.onnx")
    return precision_debug.compare(tmp_path / "loop.onnx", run_mode=mode, val_range={"": (-1, 1)}, **options)


@pytest.mark.parametrize("options", [{}, {"lockstep": "off"}], ids=["together", "apart"])
def test_many_iterations_are_one_row_and_the_worst(tmp_path: Path, options: dict[str, Any]) -> None:
    model = loop_of(40)
    options = {**options, "atol": 1e-3, "rtol": 1e-3}
    report = compared(tmp_path, model, "ort_fp16_sim", **options)
    every = compared(tmp_path, model, "ort_fp16_sim", every_iteration=True, **options)
    names = [row.name for row in report.rows]
    assert [row.index for row in report.rows] == list(range(len(names)))
    singles = {row.name: row for row in every.rows}
    for name in ("product", "small", "large", "state_out"):
        turns = [singles[f"{name}@{turn}"] for turn in range(40)]
        whole = next(row for row in report.rows if row.name == name)
        assert whole.extra["Iterations"] == "40"
        assert whole.comparison.base.elements == 40 * 32
        assert whole.comparison.mismatched == sum(row.comparison.mismatched for row in turns)
        assert whole.comparison.max_abs == max(row.comparison.max_abs for row in turns)
        assert whole.comparison.rmse == pytest.approx(np.sqrt(np.mean([row.comparison.rmse**2 for row in turns])))
        worst = max(turns, key=lambda row: row.relative_l2)
        found = [row for row in report.rows if row.name.startswith(f"{name}@")]
        assert [row.name for row in found] == [worst.name]
        assert found[0].comparison == worst.comparison
        assert found[0].extra["Iterations"] == f"{worst.name.partition('@')[2]} of 40"
        assert whole.extra["Worst Iteration"].startswith(worst.name.partition("@")[2] + " (")
        assert found[0].status is worst.status
    assert report.verdict == every.verdict
    few = compared(tmp_path, loop_of(16), "ort_fp16_sim")
    assert {f"product@{turn}" for turn in range(16)} <= {row.name for row in few.rows}


def test_loops_in_loops_are_merged_over_both(tmp_path: Path) -> None:
    report = compared(tmp_path, loop_of(7, nested=True), "ort_fp16_sim")
    rows = {row.name: row for row in report.rows}
    assert rows["product"].extra["Iterations"] == "21"
    assert rows["product"].comparison.base.elements == 21 * 32
    assert "outer_out@6" in rows
    assert "Iterations" not in rows["outer_out@6"].extra
    every = compared(tmp_path, loop_of(7, nested=True), "ort_fp16_sim", every_iteration=True)
    assert sum(row.comparison is not None and row.name.startswith("product@") for row in every.rows) == 21


def test_an_operator_of_a_long_loop_is_still_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A division whose results are below what FP16 holds, in each of 30 iterations, of which 18 are looked at."""
    every = compared(tmp_path, loop_of(30, scale=3e4), "ort_fp16_sim", every_iteration=True)
    monkeypatch.setattr(loops, "_EXPLAINED", 40)
    files = ModelFiles(model_file=str(tmp_path / "loop.onnx"))
    spec = RunSpec(model=files, run_mode="ort_fp16_sim", val_range={"": (-1, 1)}, tolerance=Tolerance(given=False))
    with Journal(tmp_path / "journal.jsonl") as journal:
        pipeline.execute(spec, journal, folder=tmp_path)
    (told,) = (one for one in read_events(tmp_path / "journal.jsonl", Explained) if isinstance(one, Explained))
    first, expected = told.explanation.culprits[0], every.explanation.culprits[0]
    assert strip_iteration(first.name) == strip_iteration(expected.name) == "small"
    assert 0.05 < first.share < expected.share, "as measured: of the iterations that were looked at"


def test_what_one_side_alone_shows_is_merged_too(tmp_path: Path) -> None:
    report = compared(tmp_path, loop_of(40), "ort_opt")
    rows = {row.name: row for row in report.rows}
    assert not [name for name in rows if "@" in name and "Iterations" not in rows[name].extra]
    fused = [row for row in report.rows if row.status.value == "fused away"]
    assert all(row.base is None or row.base.elements == 40 * max(1, np.prod(row.base.shape)) for row in fused)


def test_samples_of_loops_are_merged(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    inputs = [{"x": random.uniform(-1, 1, size=(4, 8)).astype(np.float32)} for _ in range(3)]
    report = compared(tmp_path, loop_of(20), "ort_fp16_sim", inputs=inputs)
    row = next(row for row in report.rows if row.name == "product")
    assert row.extra["Samples"] == "3"
    assert row.comparison.base.elements == 3 * 20 * 32
    singles = [compared(tmp_path, loop_of(20), "ort_fp16_sim", inputs=[one]) for one in inputs]
    alone = [next(row for row in one.rows if row.name == "product").comparison for one in singles]
    assert row.comparison.mismatched == sum(one.mismatched for one in alone)
    assert row.comparison.rmse == pytest.approx(np.sqrt(np.mean([one.rmse**2 for one in alone])))


def test_a_recorded_loop_is_merged(tmp_path: Path) -> None:
    compared(tmp_path, loop_of(40), "ort_opt")
    kept, file = str(tmp_path / "kept"), str(tmp_path / "loop.onnx")
    assert cli.main(["--model_file", file, "--run_mode", "ort_fp32", "--record", kept]) == 0
    report = precision_debug.compare(file, run_mode="ort_fp16_sim", baseline=kept)
    rows = {row.name: row for row in report.rows}
    assert rows["product"].extra["Iterations"] == "40"
    assert not [name for name in rows if "@" in name and "Iterations" not in rows[name].extra]
