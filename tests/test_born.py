"""NaN and Inf that one side alone has are an infinite error: in every format, threshold, sentence and chart."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import TensorProto, helper, numpy_helper
from report_factory import find_complaint

from precision_debug import compare
from precision_debug.cli import main
from precision_debug.products.search.sweep.plot import draw_svg
from precision_debug.products.search.sweep.result import Mode, Speed, Sweep
from precision_debug.products.tools.difference_reports import list_sentences
from precision_debug.report.difference import Change, compare_reports
from precision_debug.report.formats.json import load
from precision_debug.report.formats.xlsx.chart import make_curve
from precision_debug.report.model import Report
from precision_debug.testing.thresholds import Thresholds

pytest.importorskip("onnxruntime")

ERRORS = ("max_abs", "max_rel", "mean_abs", "mean_rel", "rmse", "relative_l2", "cosine_distance", "introduced_rel_l2",
          "rounding_units")  # fmt: skip


def times(factor: float) -> onnx.ModelProto:
    """y = x * factor, and z = y + y, both outputs: in FP16 the elements of y beyond 65504 are Inf."""
    nodes = [
        helper.make_node("Mul", ["x", "c"], ["y"], name="big"),
        helper.make_node("Tanh", ["x"], ["t"], name="calm"),
    ]
    graph = helper.make_graph(
        nodes, "born", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in ("y", "t")],
        [numpy_helper.from_array(np.float32(factor), "c")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


X = np.float32([1, 2, 4, 8, 16, 32, 80, 96])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("born")
    onnx.save(times(1024.0), made / "m.onnx")
    np.savez(made / "x.npz", x=X)
    return made


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return compare(folder / "m.onnx", run_mode="ort_fp16_sim", inputs={"x": X})


def test_every_error_of_the_row_is_infinite_in_every_format(report: Report, tmp_path: Path) -> None:
    row = next(row for row in report.rows if row.name == "y")
    assert row.comparison is not None
    assert row.comparison.target.inf == 2
    assert row.relative_l2 == math.inf
    assert row.comparison.sqnr_db == -math.inf
    assert row.introduced is not None
    assert row.introduced.rel_l2 == row.introduced.units == math.inf
    assert row.comparison.share_rel_over_1pct == 0.25
    assert row.comparison.abs_p50 is not None
    assert row.comparison.abs_p50 < math.inf == row.comparison.abs_p90
    frame = pytest.importorskip("pandas") and report.to_pandas()
    assert next(iter(frame.sort_values("relative_l2", ascending=False)["name"])) == "y"
    assert next(iter(frame.sort_values("sqnr_db")["name"])) == "y"
    for key in ERRORS:
        assert frame[key][list(frame["name"]).index("y")] == math.inf, key
    for ending in ("csv", "json", "md", "html", "xlsx"):
        report.save(tmp_path / f"r.{ending}")
    lines = list(csv.DictReader((tmp_path / "r.csv").read_text(encoding="utf-8-sig").splitlines()))
    told = next(line for line in lines if line["Tensor Name"] == "y")
    assert told["Rel L2"] == told["Introduced Rel L2"] == told["Rounding Units"] == told["RMSE"] == "inf"
    assert told["SQNR (dB)"] == "-inf"
    plain = next(one for one in json.loads((tmp_path / "r.json").read_text())["rows"] if one["name"] == "y")
    assert plain["comparison"]["sqnr_db"] == {"$float": "-inf"}
    assert plain["introduced"]["rel_l2"] == plain["comparison"]["rmse"] == {"$float": "inf"}
    assert load(tmp_path / "r.json").rows == report.rows
    told = (tmp_path / "r.md").read_text().splitlines()
    assert "| inf |" in next(line for line in told if "`y`" in line and line.startswith("| 2"))


def test_a_report_of_before_is_read_with_infinite_errors(report: Report, tmp_path: Path) -> None:
    path = report.save(tmp_path / "r.json")
    plain = json.loads(path.read_text())
    one = next(one for one in plain["rows"] if one["name"] == "y")["comparison"]
    one |= {"sqnr_db": {"$float": "inf"}, "rmse": 0.0, "mean_abs": 0.0}
    one.pop("left", None)
    path.write_text(json.dumps(plain))
    assert next(row for row in load(path).rows if row.name == "y").relative_l2 == math.inf


@pytest.mark.parametrize(
    "table", [{"outputs": 1e-2}, {"outputs": 1e9}, {"tensors": {"y": 1e9}}, {"operators": {"Mul": 1e9}},
              {"operators": {"Softmax": 1e-2}}],
)  # fmt: skip
def test_no_threshold_lets_it_pass(report: Report, table: dict[str, object]) -> None:
    said = find_complaint(report, Thresholds.of(table))
    assert holds_approved(said)


def test_an_operators_threshold_does_not_loosen_that_of_outputs(folder: Path) -> None:
    report = compare(folder / "m.onnx", run_mode="ort_fp16_sim", inputs={"x": X / 1024})
    loose = Thresholds.of({"outputs": 1e-12, "operators": {"Tanh": 1.0}, "tensors": {"t": 1.0}})
    assert "Tanh t: Rel L2" in find_complaint(report, loose)
    assert "Tanh t: Rel L2" in find_complaint(report, Thresholds.of({"outputs": 1.0, "operators": {"Tanh": 1e-12}}))
    assert not find_complaint(report, Thresholds.of({"outputs": 1.0, "operators": {"Tanh": 1.0}}))


def test_the_difference_of_two_reports_names_what_became_infinite(
    folder: Path, report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calm = compare(folder / "m.onnx", run_mode="ort_fp16_sim", inputs={"x": X / 1024})
    found = compare_reports(calm, report)
    one = next(tensor for tensor in found.of(Change.WORSE) if tensor.name == "y")
    assert one.ratio == math.inf
    text = " ".join(said.en for said in list_sentences(found))
    assert "Mul `y` the most: " in text
    assert " to inf" in text
    assert "(1 x)" not in text
    assert holds_approved(text)
    back = compare_reports(report, calm)
    assert next(tensor for tensor in back.tensors if tensor.name == "y").change is Change.BETTER
    calm.save(tmp_path / "a.json")
    report.save(tmp_path / "b.json")
    assert main(["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--output", str(tmp_path / "d.json")]) == 1
    assert "inf" in capsys.readouterr().out
    plain = json.loads((tmp_path / "d.json").read_text())
    assert next(one for one in plain["tensors"] if one["name"] == "y")["after"] == {"$float": "inf"}


def test_it_is_drawn_above_every_gridline(report: Report) -> None:
    drawn = make_curve(report)
    assert [point.name for point in drawn.points if point.broken] == ["y"]
    power = math.log10(drawn.edge)
    assert drawn.high < drawn.edge < drawn.top
    assert abs(power - round(power)) > 0.3


def test_a_sweep_tells_and_draws_it_apart(folder: Path, tmp_path: Path) -> None:
    arguments = ["sweep", "--model_file", str(folder / "m.onnx"), "--run_modes", "ort_fp16_sim", "--inputs",
                 str(folder / "x.npz"), "--output", str(tmp_path / "s.json")]  # fmt: skip
    assert main(arguments) in (0, 1)
    modes = {one["name"]: one for one in json.loads((tmp_path / "s.json").read_text())["modes"]}
    assert modes["ort_fp16_sim"]["rel_l2"] == modes["ort_fp16_sim"]["mean_rel"] == {"$float": "inf"}


def test_the_plot_of_a_sweep_has_infinite_errors_on_top() -> None:
    def mode(name: str, error: float) -> Mode:
        return Mode(name=name, rel_l2=error, speeds=(Speed(batch=1, runs=3, median=1e-3, p99=1e-3, build=0.1, size=1),))

    drawn = draw_svg(Sweep(modes=(mode("good", 1e-3), mode("lost", math.inf))))
    marks = [float(part.split('cy="')[1].split('"')[0]) for part in drawn.split("<circle ")[1:]]
    lines = [float(part.split('y1="')[1].split('"')[0]) for part in drawn.split("<line ")[1:] if 'x1="80"' in part]
    assert "lost" in drawn
    assert marks[1] < min(lines) - 10 < marks[0]
    assert draw_svg(Sweep(modes=(mode("lost", math.inf),)))
