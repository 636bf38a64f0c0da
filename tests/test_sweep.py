"""The sweep: one table, a row a mode, ratios to the baseline, the Pareto front, refused modes with their reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_debug.cli import main
from precision_debug.errors import UsageError
from precision_debug.run.sweep import Mode, Speed, Sweep, front
from precision_debug.run.sweep.plot import svg
from precision_debug.run.sweep.run import parse_modes
from precision_debug.run.sweep.table import heads, lines, shown
from precision_debug.run.sweep.write import as_text, write


def mode(name: str, error: float | None, milliseconds: float, **more: object) -> Mode:
    speed = Speed(batch=1, runs=30, median=milliseconds / 1e3, p99=milliseconds / 500, build=2.0, size=2048)
    return Mode(name=name, rel_l2=error, speeds=(speed,), **more)  # type: ignore[arg-type]


@pytest.fixture
def made() -> Sweep:
    return Sweep(
        modes=(
            mode("base", 0.0, 8, verdict="baseline", scores={"accuracy, baseline": 0.8}),
            mode("fast", 1e-2, 1, verdict="as expected", scores={"accuracy, target": 0.6, "accuracy, baseline": 0.8}),
            mode("beaten", 1e-1, 4, verdict="out of tolerance", worst="t|1", culprit="conv", cause="overflow"),
            mode("exact", 1e-4, 2),
            Mode(name="gone", refused="cannot run <here>; get one"),
        ),
        baseline="base", command="precision_debug sweep",
    )  # fmt: skip


def test_builds_that_differ_have_a_column_where_they_were_repeated(made: Sweep) -> None:
    import dataclasses

    assert "apart" not in {head.key for head in heads(made)}
    modes = tuple(dataclasses.replace(one, apart=2e-3) if one.name == "fast" else one for one in made.modes)
    repeated = dataclasses.replace(made, modes=modes)
    head = next(head for head in heads(repeated) if head.key == "apart")
    assert [shown(head, line.get("apart")) for line in lines(repeated) if line["mode"] == "fast"] == ["0.002"]


def test_the_front_has_what_nothing_beats(made: Sweep) -> None:
    assert [one.name for one in front(made.modes)] == ["fast", "exact", "base"]
    same = (mode("a", 1e-3, 1), mode("b", 1e-3, 2), mode("c", None, 0.1))
    assert [one.name for one in front(same)] == ["a"]


def test_every_number_has_its_ratio_to_the_baseline(made: Sweep) -> None:
    found = {line["mode"]: line for line in lines(made)}
    assert found["fast"]["median ratio"] == pytest.approx(1 / 8)
    assert found["fast"]["throughput ratio"] == pytest.approx(8)
    assert found["fast"]["score accuracy"] == 0.6
    assert found["fast"]["score accuracy ratio"] == pytest.approx(0.75)
    assert found["base"]["score accuracy"] == 0.8
    assert found["gone"]["reason"] == "cannot run <here>; get one"
    assert found["beaten"]["culprit"] == "conv (overflow)"
    columns = {head.key: head for head in heads(made)}
    assert shown(columns["median"], found["fast"]["median"]) == "1"
    assert shown(columns["size"], 2048.0) == "2 KiB"
    assert shown(columns["median ratio"], 0.125) == "0.125x"


def test_every_format_tells_it(made: Sweep, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    for suffix in (".json", ".md", ".html", ".xlsx"):
        write(made, tmp_path / f"all{suffix}")
    plain = json.loads((tmp_path / "all.json").read_text())
    assert plain["front"] == ["fast", "exact", "base"]
    assert len(plain["table"]) == 5
    text = (tmp_path / "all.md").read_text()
    assert "cannot run \\<here\\>; get one" in text
    assert "(all.svg)" in text
    assert (tmp_path / "all.svg").read_text() == svg(made)
    page = (tmp_path / "all.html").read_text()
    assert "cannot run &lt;here&gt;; get one" in page
    assert "<polyline" in page
    sheet = openpyxl.load_workbook(tmp_path / "all.xlsx")["Sweep"]
    names = [str(cell.value).splitlines()[0] for cell in sheet[1]]
    assert sheet.cell(3, names.index("Median (ms)") + 1).value == pytest.approx(1.0)
    assert sheet.cell(6, names.index("Why Not") + 1).value == "cannot run <here>; get one"
    assert "no other mode is as exact and as fast as: fast, exact, base" in as_text(made)
    with pytest.raises(UsageError, match="no sweep format"):
        write(made, tmp_path / "all.txt")


def test_modes_may_have_settings_of_their_own() -> None:
    assert parse_modes("ort_opt, trt_fp16+use_dynamic_shape=1") == [
        ("ort_opt", "ort_opt", {}),
        ("trt_fp16+use_dynamic_shape=1", "trt_fp16", {"target.use_dynamic_shape": "1"}),
    ]
    for text in ("", "a+b", "a,a"):
        with pytest.raises(UsageError):
            parse_modes(text)


def test_the_command_sweeps(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", "--model_file", str(root / "examples/digits/digits.onnx"), "--run_modes"]
    command += ["ort_fp16_sim,trt_fp16,nothing", "--inputs", str(root / "examples/digits/test_images.npz")]
    command += ["--labels", str(root / "examples/digits/test_labels.npy"), "--speed_seconds", "0.01"]
    command += ["--batch_sizes", "1,360", "--output", str(tmp_path / "sweep.json"), "--explain", "off"]
    assert main(command) == 2, "two modes do not run here"
    printed = capsys.readouterr().out
    plain = json.loads((tmp_path / "sweep.json").read_text())
    rows = {(line["mode"], line.get("batch")): line for line in plain["table"]}
    assert {("ort_fp32", 1), ("ort_fp32", 360), ("ort_fp16_sim", 1), ("ort_fp16_sim", 360)} <= rows.keys()
    assert rows["ort_fp32", 360]["rel_l2"] == 0
    assert 1e-2 > rows["ort_fp16_sim", 360]["rel_l2"] > 1e-5
    assert 0.9 < rows["ort_fp16_sim", 1]["score top-1 accuracy"] <= 1
    assert rows["ort_fp32", 1]["score top-1 accuracy"] == pytest.approx(354 / 360)
    assert rows["ort_fp16_sim", 1]["size"] > 0
    assert "trt_fp16" in printed
    assert rows["nothing", None]["reason"]
    assert rows["trt_fp16", None]["reason"]
    assert json.loads((tmp_path / "sweep.modes" / "ort_fp16_sim.json").read_text())["rows"]
    assert main(["sweep", "--model_file", "x.onnx", "--run_mode", "ort_int8"]) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_ray_cluster_compares_and_times(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    command = ["sweep", "--model_file", str(root / "examples/digits/digits.onnx"), "--run_modes", "ort_int8"]
    command += ["--inputs", str(root / "examples/digits/test_images.npz"), "--speed_seconds", "0.01", "--quiet"]
    command += ["--explain", "off", "--engine", "ray", "--jobs", "1", "--output", str(tmp_path / "sweep.json")]
    try:
        assert main(command) == 0
    finally:
        import ray

        ray.shutdown()
    rows = {line["mode"]: line for line in json.loads((tmp_path / "sweep.json").read_text())["table"]}
    assert rows["ort_int8"]["rel_l2"] > 0
    assert rows["ort_int8"]["median"] > 0
    assert rows["ort_fp32"]["median"] > 0
