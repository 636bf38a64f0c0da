"""What mends an error of OpenVINO's as a whole: each remedy is run before it is offered, and the cause is proven."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("openvino", reason="openvino is not installed")

import openvino
from planted.onnx_faults import Graph

import precision_debug
from precision_debug import registry
from precision_debug.report.model import Report
from precision_debug.search.fix import ENGINE_OPTION


def layers(folder: Path, seed: int, scale: float = 1.0) -> tuple[str, dict[str, np.ndarray]]:
    """Two products with a shift between them; scale: of the second weight."""
    graph = Graph(seed=seed)
    value = graph.input("x", graph.random.normal(size=(4, 32)).astype(np.float32))
    value = graph.op("MatMul", [value, graph.weight("w1", graph.random.normal(size=(32, 64)) / 6)], "first")
    value = graph.op("Add", [value, graph.weight("b", graph.random.normal(size=64))], "shifted")
    weight = scale * graph.random.normal(size=(64, 8)) / 8
    value = graph.op("MatMul", [graph.op("Tanh", [value], "bent"), graph.weight("w2", weight)], "y")
    return str(graph.save(folder / f"m{scale}.onnx", [value])), graph.feeds


def saved(model: str, *, compress: bool) -> str:
    path = str(Path(model).with_suffix(f".{compress}.xml"))
    openvino.save_model(openvino.convert_model(model), path, compress_to_fp16=compress)
    return path


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_weights_that_an_ir_rounds_are_the_cause_and_as_they_were_the_remedy(tmp_path: Path, seed: int) -> None:
    """Before, "attribute transpose_b is False in the baseline's and True in the target's" was said of each product."""
    model, feeds = layers(tmp_path, seed)
    ir = saved(model, compress=True)
    report = precision_debug.compare(ir, baseline_model=model, run_mode="ov_opt_fp32", inputs=feeds)
    assert report.exit_status == 1
    for culprit in report.explanation.culprits:
        told = (culprit.cause, culprit.evidence["name"], culprit.evidence["base"], culprit.evidence["target"])
        assert told == ("files_differ", "compress_to_fp16", "false", "true")
        assert culprit.evidence["left"] < 0.1
    kept = report.to_keep
    assert kept is not None
    assert (kept.unit, kept.settings, kept.state) == (ENGINE_OPTION, {"uncompressed_from": model}, "mended")
    assert kept.after is not None
    assert kept.after < 1e-6
    assert "compress_to_fp16=False" in kept.text
    pasted = precision_debug.compare(
        ir, baseline_model=model, run_mode="ov_opt_fp32", inputs=feeds, uncompressed_from=model
    )
    assert pasted.exit_status == 0


def test_another_weight_is_not_told_as_one_that_was_rounded(tmp_path: Path) -> None:
    """The second product's weight is 1 % larger in the IR, which is rounded too: exchanging roundings mends nothing."""
    model, feeds = layers(tmp_path, 0)
    other, _ = layers(tmp_path, 0, 1.01)
    report = precision_debug.compare(
        saved(other, compress=True), baseline_model=model, run_mode="ov_opt_fp32", inputs=feeds
    )  # fmt: skip
    first = report.explanation.culprits[0]
    assert first.name == "y"
    assert first.evidence.get("name") != "compress_to_fp16"
    assert report.to_keep is None or not report.to_keep.option


def test_an_ir_as_it_was_has_nothing_to_restore(tmp_path: Path) -> None:
    model, feeds = layers(tmp_path, 0)
    ir = saved(model, compress=False)
    assert precision_debug.compare(ir, baseline_model=model, run_mode="ov_opt_fp32", inputs=feeds).exit_status == 0
    with pytest.raises(precision_debug.errors.UsageError, match="no weight in FP16"):
        precision_debug.compare(
            ir, baseline_model=model, run_mode="ov_opt_fp32", inputs=feeds, uncompressed_from=model
        )  # fmt: skip


def sums(folder: Path, *, all_of_them: bool) -> tuple[str, dict[str, np.ndarray]]:
    """Products that are summed, and nearly cancelled by a constant: the rounding of each product, or of one."""
    graph = Graph(seed=3)
    given = graph.random.uniform(0.5, 1.5, size=(4, 32))
    given = (given / given.mean(axis=1, keepdims=True)).astype(np.float32)
    value, total, away = graph.input("x", given), "", 0.0
    for number in range(6):
        large = all_of_them or number == 0
        weight = (graph.random.uniform(0.9, 1.1, size=(32, 32)) if large else graph.random.normal(size=(32, 32)) / 400)
        away += float((given @ weight).mean()) if large else 0.0
        product = graph.op("MatMul", [value, graph.weight(f"w{number}", weight)], f"product{number}")
        bent = graph.op("Sigmoid", [product], f"bent{number}") if not large else product
        total = graph.op("Add", [total, bent], f"sum{number}") if total else bent
    off = graph.op("Sub", [total, graph.weight("away", np.full((1, 32), away))], "off")
    return str(graph.save(folder / "sums.onnx", [off])), graph.feeds


def in_opt(folder: Path, *, all_of_them: bool) -> Report:
    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this CPU has no BF16, so that OpenVINO takes float32 by itself")
    model, feeds = sums(folder, all_of_them=all_of_them)
    return precision_debug.compare(model, run_mode="ov_opt", inputs=feeds)


def test_the_precision_hint_is_offered_where_no_kept_set_mends_it(tmp_path: Path) -> None:
    report = in_opt(tmp_path, all_of_them=True)
    kept = report.to_keep
    assert kept is not None
    assert (kept.unit, kept.state) == (ENGINE_OPTION, "mended")
    assert kept.settings == {"config": {"INFERENCE_PRECISION_HINT": "f32"}}
    assert "core.compile_model" in kept.text


def test_where_a_kept_set_mends_it_no_hint_is_run(tmp_path: Path) -> None:
    kept = in_opt(tmp_path, all_of_them=False).to_keep
    assert kept is not None
    assert (kept.unit, kept.state) == ("operator", "mended")
    assert not any(one.unit == ENGINE_OPTION for one in kept.beside)


def test_openvinos_remedies_are_asked_for_by_its_capability() -> None:
    assert next(one for one in registry.backends() if one.name == "openvino").capabilities.remedies is not None
