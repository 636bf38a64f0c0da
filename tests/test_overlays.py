"""Overlays are what the viewers' own packages take: Model Explorer's node data, and an ONNX copy with metadata."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import sys
from pathlib import Path

import pytest
from approval import raises_approved
from report_factory import make_report, make_row

from precision_debug.cli import main
from precision_debug.errors import OutputError, UsageError
from precision_debug.numbers.told import Bins, Portrait
from precision_debug.products.tools.overlays.explorer import BROKEN
from precision_debug.products.tools.overlays.marks import choose_colour, iterate_marks
from precision_debug.records import Culprit, Explanation, ModelFiles, Status
from precision_debug.report import Report, outputs
from precision_debug.report.lead import lead_sentences

ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one command wrote a report and both overlays of the digits classifier in INT8."""
    folder = tmp_path_factory.mktemp("overlays")
    status = main(
        ["--model_file", str(DIGITS / "digits.onnx"), "--run_mode", "ort_int8",
         "--inputs", str(DIGITS / "test_images.npz"), "--explain", "off", "--quiet",
         "--output", str(folder / "r.json"), "--output", f"explorer:{folder}/e.json",
         "--output", f"netron:{folder}/n.onnx"]
    )  # fmt: skip
    assert status in (0, 1)
    return folder


def test_an_output_names_a_viewer_before_its_colon(tmp_path: Path) -> None:
    assert outputs.overlay_names() == ("explorer", "netron", "tensorboard")
    assert outputs.split("explorer:a/b.json") == ("explorer", "a/b.json")
    assert outputs.split("a/b.json") == ("", "a/b.json")
    assert outputs.split("./netron:y.json") == ("", "./netron:y.json")
    with raises_approved(UsageError) as raised:
        outputs.split("exploder:x.json")
    assert "explorer netron tensorboard" in str(raised.value)
    for wrong in ("netron:", "netron:.onnx", "explorer:x.txt", "tensorboard:folder/"):
        with pytest.raises(UsageError, match=r"expects a \.\w+ file"):
            outputs.split(wrong)


def test_colours_run_from_green_to_red_by_the_logarithm() -> None:
    found = [choose_colour(error) for error in (0.0, 1e-9, 1e-7, 1e-4, 1e-1, 1.0, float("inf"))]
    assert found[0] == found[1] == found[2] != found[3] != found[4] != found[5] == found[6]
    green, red = found[0], found[-1]
    assert int(green[3:5], 16) > int(green[1:3], 16)
    assert int(red[1:3], 16) > int(red[3:5], 16)


def test_every_compared_tensor_is_a_result_of_model_explorer(digits: Path) -> None:
    report = Report.load(digits / "r.json")
    results = json.loads((digits / "e.json").read_text())["results"]
    compared = [row for row in report.rows if row.comparison is not None]
    assert len(compared) > 5
    for row in compared:
        assert results[row.name]["value"] == pytest.approx(row.relative_l2)
        assert results[row.name]["bgColor"] == choose_colour(row.relative_l2 or 0.0)
    assert set(results) == {name for row in compared for name in (row.name, row.node) if name}


def test_model_explorers_own_classes_take_the_file_and_its_nodes_find_their_values(digits: Path) -> None:
    builder = pytest.importorskip("model_explorer.node_data_builder", reason="ai-edge-model-explorer is not installed")
    plain = json.loads((digits / "e.json").read_text())
    results = {key: builder.NodeDataResult(**value) for key, value in plain.pop("results").items()}
    data = builder.GraphNodeData(results=results, **plain)  # refuses a field that it does not know
    assert json.loads(data.to_json_string())["results"] == json.loads((digits / "e.json").read_text())["results"]
    adapter = pytest.importorskip("model_explorer_onnx.main", reason="model-explorer-onnx is not installed")
    graphs = adapter.ONNXAdapter().convert(str(digits / "n.onnx"), {})["graphs"]
    nodes = {node.id for graph in graphs for node in graph.nodes}
    report = Report.load(digits / "r.json")
    made = {row.node for row in report.rows if row.comparison is not None and row.node}
    assert made & nodes, "no node of the graph gets a colour"


def test_what_is_not_a_number_is_the_worst_and_still_json(tmp_path: Path) -> None:
    good, bad = make_row(0, 1e-5), make_row(1, 0.5)
    assert bad.comparison is not None
    target = dataclasses.replace(bad.comparison.target, nan=3)
    bad = dataclasses.replace(bad, comparison=dataclasses.replace(bad.comparison, target=target, apart=3))
    report = dataclasses.replace(make_report(2), rows=(good, bad))
    path = outputs.write(report, "explorer", tmp_path / "e.json")
    results = json.loads(path.read_text(), parse_constant=pytest.fail)["results"]
    assert results[bad.name]["value"] == BROKEN
    assert results[bad.name]["bgColor"] == choose_colour(float("inf"))
    assert [mark.figures.get("target_nan") for mark in iterate_marks(report)] == [None, "3"]


def test_the_copy_is_the_model_with_errors_as_metadata(digits: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    report = Report.load(digits / "r.json")
    before, after = onnx.load(DIGITS / "digits.onnx"), onnx.load(digits / "n.onnx")
    onnx.checker.check_model(after)
    rows = {row.name: row for row in report.rows if row.comparison is not None}
    told = 0
    for node in after.graph.node:
        row = rows.get(node.output[0])
        said = {one.key: one.value for one in node.metadata_props}
        assert bool(said) == (row is not None)
        if row is not None:
            told += 1
            assert float(said["pd.rel_l2"]) == pytest.approx(row.relative_l2, rel=1e-3)
            assert said["pd.status"] == str(row.status)
            assert f"precision_debug: {row.name}: {row.status}" in node.doc_string
        del node.metadata_props[:]
        node.ClearField("doc_string")
    assert told > 5
    assert {one.key for one in after.metadata_props} >= {"pd.target", "pd.verdict"}
    del after.metadata_props[:]
    assert after.graph.SerializeToString(deterministic=True) == before.graph.SerializeToString(deterministic=True)


def test_a_culprit_is_in_words_and_a_second_copy_says_nothing_twice(digits: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    report = Report.load(digits / "r.json")
    row = next(row for row in report.rows if row.comparison is not None and row.inputs)
    culprit = Culprit(
        name=row.name, node=row.node, op_types=(row.op_type,), cause="overflow",
        evidence={"largest": 1e6, "limit": 65504.0, "count": 12}, confidence="isolated", keep=(row.name,),
    )  # fmt: skip
    made = Explanation(state="culprits", method="isolated", culprits=(culprit,))
    again = dataclasses.replace(report, explanation=made, spec=dataclasses.replace(
        report.spec, model=ModelFiles(model_file=str(digits / "n.onnx"))))  # fmt: skip
    proto = onnx.load(outputs.write(again, "netron", tmp_path / "twice.onnx"))
    for node in proto.graph.node:
        keys = [one.key for one in node.metadata_props]
        assert len(keys) == len(set(keys))
    its = next(node for node in proto.graph.node if row.name in node.output)
    assert {one.key: one.value for one in its.metadata_props}["pd.culprit"] == "overflow"
    assert "overflow" in its.doc_string
    assert its.doc_string.count("precision_debug: ") == 1


@pytest.mark.parametrize(
    ("model", "said"), [("gone.onnx", "not there any more"), ("m.pdmodel", "an .onnx file"), ("", "an .onnx file")]
)
def test_without_a_model_netron_gets_one_line_and_no_file(model: str, said: str, tmp_path: Path) -> None:
    report = make_report(3)
    files = ModelFiles(model_file=str(tmp_path / model)) if model else ModelFiles(model_dir=str(tmp_path))
    report = dataclasses.replace(report, spec=dataclasses.replace(report.spec, model=files))
    with pytest.raises(OutputError, match=said):
        outputs.write(report, "netron", tmp_path / "n.onnx")
    assert not list(tmp_path.iterdir())


def test_a_report_of_nothing_colours_nothing(tmp_path: Path) -> None:
    report = dataclasses.replace(make_report(2), rows=(make_row(0, None),))
    assert report.rows[0].status is Status.FUSED_AWAY
    with pytest.raises(OutputError, match="nothing to colour"):
        outputs.write(report, "explorer", tmp_path / "e.json")


def test_report_writes_them_again_and_refuses_what_it_reads(digits: Path, tmp_path: Path) -> None:
    source = shutil.copy(digits / "r.json", tmp_path / "r.json")
    main(["report", str(source), "--output", f"explorer:{tmp_path}/again.json"])
    assert (tmp_path / "again.json").read_bytes() == (digits / "e.json").read_bytes()
    assert main(["report", str(source), "--output", f"explorer:{source}"]) == 2
    assert main(["report", str(source), "--output", "explorer:a.json", "--output", "explorer:b.json"]) == 2
    assert Report.load(source).rows


def test_tensorboards_own_reader_takes_the_curves_and_histograms(tmp_path: Path) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    from tensorboard.util.tensor_util import make_ndarray

    good, bad = make_row(0, 1e-5), make_row(1, 0.5)
    bins = Bins(edges=(-1.0, 0.0, 2.0), counts=(3, 5))
    report = dataclasses.replace(make_report(2), rows=(good, bad), portraits=(
        Portrait(name=bad.name, base=bins, target=Bins(edges=(-1.0, 0.0, 2.0), counts=(0, 0))),
    ))  # fmt: skip
    outputs.write(report, "tensorboard", tmp_path / "run.tfevents")
    found = reader.EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    found.Reload()
    curve = [(event.step, float(make_ndarray(event.tensor_proto))) for event in found.Tensors("error/Rel L2")]
    assert curve == [(0, pytest.approx(good.relative_l2)), (1, pytest.approx(bad.relative_l2))]
    (drawn,) = found.Tensors(f"{bad.name}/baseline")
    assert make_ndarray(drawn.tensor_proto).tolist() == [[-1.0, 0.0, 3.0], [0.0, 2.0, 5.0]]
    assert drawn.step == 1
    assert f"{bad.name}/target" not in found.Tags()["tensors"], "a side that is all NaN has no histogram"
    (said,) = found.Tensors("precision_debug")
    assert make_ndarray(said.tensor_proto).item().decode().startswith(str(lead_sentences(report)[0]))
    assert "execution order" in found.SummaryMetadata("error/Rel L2").summary_description


def test_without_tensorboard_its_overlay_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(OutputError, match="pip install tensorboard"):
        outputs.write(make_report(2), "tensorboard", tmp_path / "run.tfevents")
    assert not list(tmp_path.iterdir())


def test_netron_shows_a_nodes_errors(digits: Path) -> None:
    netron = pytest.importorskip("netron", reason="netron is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed, so no page is opened")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed, so no page is opened")
    row = next(row for row in Report.load(digits / "r.json").rows if row.name == "relu1_out")
    host, port = netron.start(str(digits / "n.onnx"), browse=False)
    try:
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"http://{host}:{port}/")
            page.get_by_text("Accept", exact=True).click()
            node = page.locator(".node-item-type").filter(has_text="Relu").first
            said = page.get_by_text("precision_debug: relu1_out")
            for _ in range(20):  # it takes clicks only once its graph lies still
                node.click(force=True)
                with contextlib.suppress(playwright.TimeoutError):
                    said.wait_for(timeout=1000)
                    break
            shown, page_text = page.locator("body").inner_text(), page.content()
            browser.close()
    finally:
        netron.stop((host, port))
    assert f"precision_debug: relu1_out: {row.status}, Rel L2 {row.relative_l2:.3g}." in shown
    assert f"{row.relative_l2:.4g}" in page_text
    assert "pd.rel_l2" in page_text
