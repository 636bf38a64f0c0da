"""The sweep: one table, a row a mode, ratios to the baseline, the Pareto front, refused modes with their reason."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx_models
import pytest
from approval import begins_approved, holds_approved, is_approved

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import BackendError, UsageError
from precision_debug.products.search.sweep import Mode, Speed, Sweep, find_pareto_front, run
from precision_debug.products.search.sweep.plot import draw_svg
from precision_debug.products.search.sweep.run import parse_modes, report_file_name
from precision_debug.products.search.sweep.sentences import list_sentences, tone_of
from precision_debug.products.search.sweep.speed import _runs, measure_speed
from precision_debug.products.search.sweep.table import format_cell, list_heads, list_lines
from precision_debug.products.search.sweep.write import as_table, as_text, write
from precision_debug.records import Doubt, ModelFiles, RunSpec


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
    assert "apart" not in {head.key for head in list_heads(made)}
    modes = tuple(dataclasses.replace(one, apart=2e-3) if one.name == "fast" else one for one in made.modes)
    repeated = dataclasses.replace(made, modes=modes)
    head = next(head for head in list_heads(repeated) if head.key == "apart")
    assert [format_cell(head, line.get("apart")) for line in list_lines(repeated) if line["mode"] == "fast"] == [
        "0.002"
    ]


def test_the_front_has_what_nothing_beats(made: Sweep) -> None:
    assert [one.name for one in find_pareto_front(made.modes)] == ["fast", "exact", "base"]
    same = (mode("a", 1e-3, 1), mode("b", 1e-3, 2), mode("c", None, 0.1))
    assert [one.name for one in find_pareto_front(same)] == ["a"]


def test_every_number_has_its_ratio_to_the_baseline(made: Sweep) -> None:
    found = {line["mode"]: line for line in list_lines(made)}
    assert found["fast"]["median ratio"] == pytest.approx(1 / 8)
    assert found["fast"]["throughput ratio"] == pytest.approx(8)
    assert found["fast"]["score accuracy"] == 0.6
    assert found["fast"]["score accuracy ratio"] == pytest.approx(0.75)
    assert found["base"]["score accuracy"] == 0.8
    assert is_approved(found["gone"]["reason"])
    assert found["beaten"]["culprit"] == "conv (overflow)"
    columns = {head.key: head for head in list_heads(made)}
    assert format_cell(columns["median"], found["fast"]["median"]) == "1"
    assert format_cell(columns["size"], 2048.0) == "2 KiB"
    assert format_cell(columns["median ratio"], 0.125) == "0.125x"


def test_every_format_tells_it(made: Sweep, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    for suffix in (".json", ".md", ".html", ".xlsx"):
        write(made, tmp_path / f"all{suffix}")
    plain = json.loads((tmp_path / "all.json").read_text())
    assert plain["front"] == ["fast", "exact", "base"]
    assert len(plain["table"]) == 5
    text = (tmp_path / "all.md").read_text()
    assert holds_approved(text, 2)
    assert "(all.svg)" in text
    assert (tmp_path / "all.svg").read_text() == draw_svg(made)
    page = (tmp_path / "all.html").read_text()
    assert holds_approved(page, 3)
    assert "<polyline" in page
    book = openpyxl.load_workbook(tmp_path / "all.xlsx")
    assert book.worksheets[0].title == "Sweep", "programs read the table"
    assert begins_approved(str(book["Summary"]["B2"].value))
    sheet = book["Sweep"]
    names = [str(cell.value).splitlines()[0] for cell in sheet[1]]
    assert sheet.cell(3, names.index("Median (ms)") + 1).value == pytest.approx(1.0)
    assert is_approved(sheet.cell(6, names.index("Why Not") + 1).value, 4)
    assert openpyxl.load_workbook(tmp_path / "all.xlsx").active.title == "Summary", "it opens on the sentence"
    with pytest.raises(UsageError, match="no sweep format"):
        write(made, tmp_path / "all.txt")


def test_the_sentence_comes_first_in_both_languages(made: Sweep) -> None:
    first, failed, refused, best = list_sentences(made)
    assert is_approved(first.en)
    assert first.zh.startswith("成立的模式中最快：`fast`，速度为 `base` 的 8 倍（1 ms，基线 8 ms）")
    assert is_approved(failed.en, 2)
    assert failed.zh == "超出容差：`beaten`，conv（上溢）。"
    assert begins_approved(refused.en, 3)
    assert is_approved(best.en, 4)
    assert tone_of(made) == "warn"
    assert as_text(made, "zh")[0].startswith("成立的模式中最快：fast")


def rounds(name: str, error: float, *milliseconds: float, **more: object) -> Mode:
    one = mode(name, error, 1, **more)
    found = [dataclasses.replace(one.speeds[0], median=m / 1e3) for m in milliseconds]
    return dataclasses.replace(one, speeds=(Speed.of_rounds(found),))


def test_modes_whose_times_overlap_are_not_ranked(made: Sweep) -> None:
    base = rounds("base", 0.0, 8, 9, 7.5, verdict="baseline")

    def first(*modes: Mode) -> str:
        return list_sentences(dataclasses.replace(made, modes=(base, *modes)))[0].en

    fast = rounds("fast", 1e-2, 1, 1.2, 4, verdict="as expected")
    exact = rounds("exact", 1e-3, 1.5, 2, 2.2, verdict="as expected")
    said = first(fast, exact)
    assert begins_approved(said)
    assert "not ranked" in said
    clear = rounds("clear", 1e-2, 1, 1.2, 1.4, verdict="as expected")
    assert begins_approved(first(clear, exact), 2)
    barely = rounds("barely", 1e-2, 6, 7.8, 7, verdict="as expected")
    assert begins_approved(first(barely), 3)
    line = next(line for line in list_lines(dataclasses.replace(made, modes=(base, fast))) if line["mode"] == "fast")
    assert line["spread"] == "1 to 4"


def test_the_front_ranks_no_times_that_overlap() -> None:
    """A faster median is nothing where the rounds overlap: the more exact mode is then as fast."""
    lucky, exact = rounds("lucky", 1e-2, 1, 1.2, 4), rounds("exact", 1e-3, 1.5, 2, 2.2)
    slow, clear = rounds("slow", 0.0, 5, 6, 5.5), rounds("clear", 1e-1, 0.5, 0.6, 0.4)
    assert [one.name for one in find_pareto_front((lucky, exact, slow))] == ["exact", "slow"]
    assert [one.name for one in find_pareto_front((lucky, exact, slow, clear))] == ["clear", "exact", "slow"]
    assert [one.name for one in find_pareto_front((lucky, rounds("twin", 1e-2, 1.1, 1.3, 3)))] == ["lucky", "twin"]
    assert find_pareto_front((rounds("lost", math.inf, 1, 1, 1), rounds("odd", math.nan, 1, 1, 1))) == []


def test_one_round_is_as_uncertain_as_its_runs(made: Sweep) -> None:
    """What is dear to build is timed once: nobody knows whether the machine was busy then."""

    def once(name: str, error: float, low: float, median: float, high: float, **more: object) -> Mode:
        one = mode(name, error, 1, **more)
        speed = dataclasses.replace(one.speeds[0], p01=low / 1e3, median=median / 1e3, p99=high / 1e3)
        return dataclasses.replace(one, speeds=(Speed.of_rounds([speed]),))

    base = rounds("base", 0.0, 8, 9, 7.5, verdict="baseline")
    wide, narrow = (once(name, 1e-2, 2, 3, high, verdict="as expected") for name, high in (("wide", 8), ("narrow", 4)))
    assert not wide.speeds[0].faster_than(base.speeds[0])
    assert narrow.speeds[0].faster_than(base.speeds[0])
    said = "No mode within tolerance is measurably faster", "Fastest that holds: `narrow`, 2.67 x"
    for one, begins in zip((wide, narrow), said, strict=True):
        found = dataclasses.replace(made, modes=(base, one))
        assert list_sentences(found)[0].en.startswith(begins)
        assert next(line for line in list_lines(found) if line["mode"] == one.name)["spread"].startswith("2 to ")


def test_the_modes_take_turns(tmp_path: Path, root: Path) -> None:
    """What is dear to build is built and timed once; a mode that fails in a later round keeps what it has."""
    timed: list[str] = []

    def time_it(spec: RunSpec, _batch: int) -> Speed:
        timed.append(spec.run_mode)
        if spec.run_mode == "ort_opt" and len(timed) > 5:
            raise BackendError("no more")
        build = 60.0 if spec.run_mode == "ort_bf16_sim" else 0.1
        return Speed(batch=1, runs=10, median=1e-3 * len(timed), p99=1e-2, build=build, size=1)

    spec = RunSpec(model=ModelFiles(model_file=str(root / "examples/digits/digits.onnx")), run_mode="")
    rows = [Mode(name=name) for name in ("ort_fp32", "ort_opt", "ort_bf16_sim")]
    specs = {row.name: dataclasses.replace(spec, run_mode=row.name) for row in rows}
    found = run._time_modes(rows, specs, (), time_it, lambda _text: None, lambda: False)
    assert timed == ["ort_fp32", "ort_opt", "ort_bf16_sim", "ort_fp32", "ort_opt", "ort_fp32", "ort_opt"]
    assert [len(one.speeds[0].rounds) for one in found] == [3, 2, 1]
    assert [dict(one.failed) for one in found] == [{}, {}, {}]
    assert found[0].speeds[0].median == pytest.approx(4e-3)
    assert found[0].speeds[0].runs == 30


def test_what_is_said_where_nothing_is_faster_or_nothing_holds(made: Sweep) -> None:
    slow = mode("slow", 1e-3, 12, verdict="as expected")
    wrong = mode("wrong", 0.5, 1, verdict="out of tolerance")

    def first(*modes: Mode) -> str:
        return list_sentences(dataclasses.replace(made, modes=(made.modes[0], *modes)))[0].en

    none = "No mode within tolerance is measurably faster than `base` (8 ms). The fastest, `slow`, takes 12 ms."
    assert first(slow, wrong) == none
    assert is_approved(first(wrong))
    assert first(dataclasses.replace(slow, speeds=())) == "These hold: `slow`."
    assert first(dataclasses.replace(slow, verdict="", refused="no disk")).startswith("No mode ran: ")


def test_modes_stand_side_by_side_or_between_commas(root: Path, tmp_path: Path) -> None:
    modes = ["ort_opt", "ort_fp16_sim,ort_bf16_sim"]
    command = ["sweep", "--model_file", str(root / "examples/digits/digits.onnx"), "--run_modes", *modes]
    command += ["--speed_seconds", "0.01", "--explain", "off", "--output", str(tmp_path / "sweep.json")]
    assert main(command) == 0
    table = json.loads((tmp_path / "sweep.json").read_text())["table"]
    assert {"ort_opt", "ort_fp16_sim", "ort_bf16_sim"} <= {line["mode"] for line in table}


def test_an_unknown_mode_is_refused_before_any_runs(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", "--model_file", str(root / "examples/digits/digits.onnx"), "--run_modes", "ort_opt,no_such"]
    assert main([*command, "--output", str(tmp_path / "sweep.json")]) == 2
    assert not (tmp_path / "sweep.json").exists()
    assert "no_such" in capsys.readouterr().err


def test_a_metric_that_got_worse_is_why_a_mode_is_out_of_tolerance(made: Sweep) -> None:
    values = {"name": "score", "baseline": 0.5, "target": 0.0, "samples": 6, "low": 0.4, "high": 0.6}
    fell = mode("fell", 1e-3, 1, verdict="out of tolerance", culprit="conv", cause="overflow",
                metric=Doubt(code="metric_fell", values=values))  # fmt: skip
    told = list_sentences(dataclasses.replace(made, modes=(made.modes[0], fell)))
    said = next(text for text in told if "`fell`" in text.en)
    assert "`score`" in said.en
    assert "`score`" in said.zh
    assert "conv" not in said.en


def test_a_narrow_terminal_has_the_columns_that_decide(made: Sweep) -> None:
    whole, narrow = as_table(made), as_table(made, width=80)
    assert "Build (s)" in whole[0]
    assert all(len(line) <= 80 for line in narrow)
    assert all(title in narrow[0] for title in ("Run Mode", "Verdict", "Rel L2", "Median (ms)", "accuracy"))
    assert len(narrow) == len(whole) == 6
    chinese = as_table(made, "zh")
    assert chinese[0].startswith("运行模式")
    assert "超出容差" in chinese[3]


def test_the_page_is_read_in_the_dark_on_a_phone_and_in_chinese(made: Sweep, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed, so no page can be opened")
    write(made, tmp_path / "s.html")
    said: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        phone = {"width": 390, "height": 844}
        page = browser.new_context(viewport=phone, locale="zh-CN", color_scheme="dark").new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("request", lambda request: said.append(request.url))
        page.goto(f"file://{tmp_path}/s.html")
        page.wait_for_selector("html[data-ready=yes]")
        assert page.locator("h1").inner_text().startswith("成立的模式中最快：fast")
        assert page.locator("h1").bounding_box()["y"] < 200
        assert page.evaluate("document.documentElement.scrollWidth") <= phone["width"], "nothing sticks out"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 21, 26)"
        assert "中位延迟，ms（左侧更快）" in page.locator("#plotted").inner_text()
        assert "overflow" not in page.locator("#sweep").inner_text()
        page.locator("#language").click()
        assert page.locator("h1").inner_text().startswith("Fastest that holds")
        assert "conv (overflow)" in page.locator("#sweep").inner_text()
        page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        browser.close()
    assert said == [f"file://{tmp_path}/s.html"], "no request, no word on the console"


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
    command += ["ort_fp16_sim,trt_fp16", "--inputs", str(root / "examples/digits/test_images.npz")]
    command += ["--labels", str(root / "examples/digits/test_labels.npy"), "--speed_seconds", "0.01"]
    command += ["--batch_sizes", "1,360", "--output", str(tmp_path / "sweep.json"), "--explain", "off"]
    assert main(command) == 2, "a mode does not run here"
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
    assert rows["trt_fp16", None]["reason"]
    assert json.loads((tmp_path / "sweep.modes" / "ort_fp16_sim.json").read_text())["rows"]
    assert main(["sweep", "--model_file", "x.onnx", "--run_mode", "ort_int8"]) == 2


@pytest.mark.parametrize("error", [math.inf, math.nan])
def test_a_mode_whose_error_has_no_number_stands_at_the_end_of_the_axis(
    error: float, made: Sweep, tmp_path: Path
) -> None:
    """Another shape, or NaN in the target alone: the worst of all in the picture, and no reason to write nothing."""
    broken = dataclasses.replace(made, modes=(*made.modes, mode("broken", error, 3, verdict="out of tolerance")))
    for ending in (".json", ".md", ".html", ".xlsx"):
        write(broken, tmp_path / f"s{ending}")
    assert "broken" in draw_svg(broken)
    assert any(line["mode"] == "broken" for line in json.loads((tmp_path / "s.json").read_text())["table"])


def test_each_mode_has_a_file_of_its_own() -> None:
    """Settings that differ in what no file name can hold, or are longer than one."""
    names = ["ort_int8", "a+k=x/y", "a+k=x_y", "a+k=x:y", "a+k=" + "n" * 400, "a+k=" + "n" * 400 + "m", "a+k=\udcff"]
    made = [report_file_name(name) for name in names]
    assert made[0] == "ort_int8"
    assert len({name.lower() for name in made}) == len(names)
    assert all(len(os.fsencode(name)) < 200 and "/" not in name for name in made)


def test_the_users_files_stay_in_the_folder_of_the_modes(tmp_path: Path) -> None:
    """Inputs of a sweep are kept once; what lies beside them is somebody else's."""
    onnx.save(onnx_models.mlp(), "m.onnx")
    folder = tmp_path / "s.modes"
    folder.mkdir()
    for name in ("a.inputs.npz", "z.inputs.npz"):
        (folder / name).write_text("of the user")
    words = ["--model_file", "m.onnx", "--run_modes", "ort_opt,ort_fp16_sim", "--speed_seconds", "0.01", "--quiet"]
    assert main(["sweep", *words, "--explain", "off", "--output", "s.json"]) in (0, 1)
    left = sorted(path.name for path in folder.glob("*.npz"))
    assert left == ["a.inputs.npz", "ort_opt.json.inputs.npz", "z.inputs.npz"]


def test_a_file_where_the_folder_of_the_modes_goes_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(onnx_models.mlp(), "m.onnx")
    (tmp_path / "s.modes").write_text("of the user")
    assert main(["sweep", "--model_file", "m.onnx", "--run_modes", "ort_opt", "--output", "s.json"]) == 2
    assert "s.modes" in capsys.readouterr().err
    assert (tmp_path / "s.modes").read_text() == "of the user"


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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # zipfile closes once more
def test_a_book_leaves_nothing_in_tmpdir_where_it_cannot_be_written(
    made: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XlsxWriter would keep its parts there until it has put them together."""
    pytest.importorskip("xlsxwriter")
    from precision_debug.products.search.sweep.book import write_book

    place = tmp_path / "tmpdir"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    (tmp_path / "s.xlsx").symlink_to("/dev/full")
    with pytest.raises(Exception, match="No space left"):
        write_book(made, tmp_path / "s.xlsx")
    assert os.listdir(place) == []


@pytest.mark.parametrize("location", ["weights.bin", "sub/m.data", "m.onnx.data"])
def test_the_size_of_a_model_is_that_of_its_external_weights_too(location: str, tmp_path: Path) -> None:
    weights = np.ones((64, 64), np.float32)
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [value("x", 1, [1, 64])], [value("y", 1, [1, 64])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    (tmp_path / "sub").mkdir()
    path = tmp_path / "m.onnx"
    onnx.save_model(
        onnx.helper.make_model(graph), str(path), save_as_external_data=True, location=location, size_threshold=0
    )
    (tmp_path / "empty").mkdir()
    name, size = _runs(tmp_path / "empty", ModelFiles(model_file=str(path)))
    assert name == "m.onnx"
    assert size == path.stat().st_size + weights.nbytes


def test_what_a_child_is_told_is_no_model(tmp_path: Path) -> None:
    """An engine that writes no model runs the user's own; the child's job lies in a file beside it."""
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    report = precision_debug.compare(tmp_path / "m.onnx", run_mode="onnx_ref")
    speed = measure_speed(report.spec, seconds=0.01)
    assert (speed.file, speed.size) == ("m.onnx", (tmp_path / "m.onnx").stat().st_size)
