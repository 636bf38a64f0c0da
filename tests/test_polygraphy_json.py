"""Polygraphy's JSON in both directions, with Polygraphy itself on the other side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import raises_approved
from onnx_models import mlp

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import PrecisionDebugError

polygraphy_json = pytest.importorskip("polygraphy.json", reason="needs polygraphy")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(mlp(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def saved_by_polygraphy(model: Path, count: int = 1, name: str = "out.json") -> list[dict[str, np.ndarray]]:
    """Run ONNX Runtime under Polygraphy and save its inputs and outputs with its own classes."""
    import onnxruntime
    from polygraphy.comparator import RunResults

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(3)
    shape = [side if isinstance(side, int) else 2 for side in session.get_inputs()[0].shape]
    feeds = [{session.get_inputs()[0].name: random.random(shape, dtype=np.float32)} for _ in range(count)]
    names = [output.name for output in session.get_outputs()]
    results = RunResults()
    results.add([dict(zip(names, session.run(None, one), strict=True)) for one in feeds], 0.25, "onnxrt-runner")
    results.save(name)
    polygraphy_json.save_json(feeds, "in.json")
    return feeds


def report_of(*arguments: str) -> tuple[int, precision_debug.Report]:
    status = main([*arguments, "--output", "r.json", "--quiet", "--explain", "off"])
    return status, precision_debug.Report.load("r.json")


def test_its_outputs_are_a_baseline(model: Path) -> None:
    saved_by_polygraphy(model)
    status, report = report_of(
        "--model_file", str(model), "--run_mode", "ort_fp32", "--load_outputs", "out.json", "--inputs", "in.json"
    )
    assert status == 0
    assert {row.name for row in report.rows} == {output.name for output in onnx.load(model).graph.output}
    assert all(row.is_output and row.comparison is not None and row.relative_l2 < 1e-6 for row in report.rows)
    assert "onnxrt-runner" in str(report.baseline.versions)


def compared(model: Path, **given: Any) -> precision_debug.Report:
    return precision_debug.compare(model, inputs="in.json", explain="off", marks=["*"], **given)


def test_all_of_its_iterations_are_compared_each_with_its_own_input(model: Path) -> None:
    saved_by_polygraphy(model, 3)
    whole = compared(model, run_mode="ort_fp16_sim", baseline="out.json", atol=0.1, rtol=0.1)
    assert whole.exit_status == 0, whole.doubts
    single = [compared(model, run_mode="ort_fp16_sim", baseline="out.json", sample=str(n)) for n in range(3)]
    worst = [max(row.comparison.max_abs for row in one.rows if row.comparison is not None) for one in single]
    assert max(row.comparison.max_abs for row in whole.rows if row.comparison is not None) == max(worst) > 0
    assert len(set(worst)) > 1


def test_a_folder_of_a_file_an_iteration(model: Path) -> None:
    """As `--save-inputs FOLDER --save-outputs FOLDER` write it."""
    from polygraphy.comparator import RunResults

    feeds = saved_by_polygraphy(model, 3)
    iterations = RunResults.load("out.json")["onnxrt-runner"]
    for place, (one, outputs) in enumerate(zip(feeds, iterations, strict=True)):
        for name in ("ins", "outs"):
            Path(name).mkdir(exist_ok=True)
        polygraphy_json.save_json([one], f"ins/{place:010d}.json")
        RunResults([("onnxrt-runner", [outputs])]).save(f"outs/{place:010d}.json")
    given = {"run_mode": "ort_fp16_sim", "marks": ["*"], "explain": "off", "atol": 0.1, "rtol": 0.1}
    whole = precision_debug.compare(model, inputs="in.json", baseline="out.json", **given)
    parts = precision_debug.compare(model, inputs="ins", baseline="outs", **given)
    assert parts.exit_status == 0
    assert [row.comparison for row in parts.rows] == [row.comparison for row in whole.rows]


@pytest.mark.parametrize("option", [["--save_outputs", "o.json"], ["--save_inputs", "i.json"], ["--fail_fast"]])
def test_several_workers_refuse_what_is_for_one(
    model: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model_file", str(model), "--run_mode", "ort_fp32", "--jobs", "2", *option]) == 2
    assert option[0] in capsys.readouterr().err


def test_a_run_that_is_only_recorded_refuses_what_compares(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--model_file", str(model), "--run_mode", "ort_fp32", "--record", "kept", "--save_outputs", "o.json"]
    assert main(command) == 2
    assert "--save_outputs" in capsys.readouterr().err


def test_what_does_not_fit_is_said(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feeds = saved_by_polygraphy(model)
    polygraphy_json.save_json(feeds * 2, "many.json")
    with pytest.raises(PrecisionDebugError, match="--inputs FILE"):
        precision_debug.compare(model, run_mode="ort_fp32", baseline="out.json")
    with raises_approved(PrecisionDebugError):
        precision_debug.compare(model, run_mode="ort_fp32", baseline="out.json", inputs="many.json")
    both = ["--load_outputs", "out.json", "--inputs", "in.json", "--baseline", "ort_fp32"]
    assert main(["--model_file", str(model), "--run_mode", "ort_fp32", *both]) == 2
    assert "keep one" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['{"lst": [[1]], "polygraphy_class": "RunResults"}', "[]", "{", '{"lst": [],'
                                  ' "polygraphy_class": "RunResults"}'])  # fmt: skip
def test_a_damaged_file_is_refused(model: Path, text: str) -> None:
    saved_by_polygraphy(model)
    Path("out.json").write_text(text)
    with pytest.raises(PrecisionDebugError, match=r"out\.json") as caught:
        compared(model, run_mode="ort_fp32", baseline="out.json")
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("count", [1, 3])
def test_polygraphy_reads_what_was_saved(model: Path, count: int) -> None:
    from polygraphy.comparator import RunResults

    feeds = saved_by_polygraphy(model, count)
    compared(model, run_mode="ort_opt", save_inputs="their_in.json", save_outputs="their_out.json")
    read: Any = polygraphy_json.load_json("their_in.json")
    assert len(read) == count
    for ours, theirs in zip(feeds, read, strict=True):
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    results, original = RunResults.load("their_out.json"), RunResults.load("out.json")
    assert list(results.keys()) == ["ort_fp32", "ort_opt"]
    for runner in ("ort_fp32", "ort_opt"):
        assert len(results[runner]) == count
        for ours, theirs in zip(results[runner], original["onnxrt-runner"], strict=True):
            assert ours.runtime > 0
            assert all(np.allclose(ours[name], array, atol=1e-5) for name, array in theirs.items())


def test_what_was_saved_is_a_baseline_again(model: Path) -> None:
    saved_by_polygraphy(model)
    compared(model, run_mode="ort_fp32", baseline="ort_fp32", save_outputs="again.json")
    report = compared(model, run_mode="ort_fp32", baseline="again.json")
    assert all(row.comparison is not None and row.comparison.max_abs == 0 for row in report.rows)


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    import ml_dtypes

    from precision_debug.feeds.polygraphy_json import write_iteration_text

    array = np.array([1.5, -2.0], dtype=ml_dtypes.bfloat16)
    read = polygraphy_json.from_json(write_iteration_text("r", {"y": array}, None))
    assert np.array_equal(read["y"], [1.5, -2.0])
