"""Known remedies of a cause: each is run like a set of kept operators, and offered by the same rule."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from planted.onnx_faults import Graph

import precision_debug
from precision_debug.codec import decode, encode
from precision_debug.errors import PrecisionDebugError
from precision_debug.events import KeepFound
from precision_debug.protocols import Executed
from precision_debug.reasons import as_reason
from precision_debug.report.blame import blame
from precision_debug.report.next_step import OR, PASTE
from precision_debug.report.sections import make_slice_section
from precision_debug.run.fixes import with_remedy
from precision_debug.search.fix import ENGINE_OPTION, ToKeep, TradePoint


def normalised(folder: Path, epsilon: float) -> Graph:
    """Rows divided by the root of their mean square, some of which are 0 throughout."""
    graph = Graph(seed=3)
    rows = graph.random.normal(size=(8, 64)).astype(np.float32)
    rows[:3] = 0
    x = graph.input("x", rows)
    mean = graph.op("ReduceMean", [graph.op("Mul", [x, x], "square")], "mean", axes=[1], keepdims=1)
    root = graph.op("Sqrt", [graph.op("Add", [mean, graph.weight("eps", np.float32(epsilon))], "added")], "root")
    graph.save(folder / "norm.onnx", [graph.op("Div", [x, root], "y")])
    return graph


@pytest.mark.parametrize("mode", ["ort_fp16_sim"])
def test_an_epsilon_that_the_type_can_hold_is_offered_before_operators_that_are_kept(tmp_path: Path, mode: str) -> None:
    """Before, operators were kept in FP32, and the epsilon that mends it was a piece of advice."""
    feeds = normalised(tmp_path, 1e-12).feeds
    report = precision_debug.compare(tmp_path / "norm.onnx", run_mode=mode, inputs=feeds)
    kept = report.to_keep
    assert kept is not None
    assert kept.state == "mended"
    assert set(kept.settings) == {"raise_constants"}
    assert kept.still == kept.was
    assert [one.unit for one in kept.beside] == ["operator"]
    again = precision_debug.compare(tmp_path / "norm.onnx", run_mode=mode, inputs=feeds, **kept.settings)
    assert again.explanation is not None
    assert again.explanation.actual is not None
    assert again.explanation.actual <= kept.allowed
    told = [line[0].text.en for line in blame(report).lines]
    assert told.count(PASTE.en) == 2
    assert OR.en in told
    assert decode(KeepFound, encode(KeepFound(to_keep=kept))).to_keep == kept


def test_the_lines_of_a_remedy_make_the_model_that_was_run(tmp_path: Path) -> None:
    import onnxruntime

    graph = normalised(tmp_path, 1e-12)
    kept = precision_debug.compare(tmp_path / "norm.onnx", run_mode="ort_fp16_sim", inputs=graph.feeds).to_keep
    assert kept is not None
    exec(kept.text)
    session = onnxruntime.InferenceSession(str(tmp_path / "norm.raised.onnx"))
    before = onnxruntime.InferenceSession(str(tmp_path / "norm.onnx")).run(None, graph.feeds)[0]
    assert np.isfinite(got := session.run(None, graph.feeds)[0]).all()
    assert np.allclose(got, before, atol=1e-4)


def test_a_scale_for_each_channel_is_offered_where_it_mends_and_nothing_can_be_kept(tmp_path: Path) -> None:
    """One product with columns of two sizes: kept, nothing is left in INT8."""
    graph = Graph(seed=3)
    x = graph.input("x", graph.random.normal(size=(8, 64)).astype(np.float32))
    weight = graph.random.normal(size=(64, 16)).astype(np.float32) / 8
    weight[:, 8:] *= 1e-3
    product = graph.op("MatMul", [x, graph.weight("w", weight)], "product")
    back = graph.weight("back", np.where(np.arange(16) < 8, 1, 1000).astype(np.float32))
    path = graph.save(tmp_path / "columns.onnx", [graph.op("Mul", [product, back], "y")])
    report = precision_debug.compare(path, run_mode="ort_int8_dynamic", inputs=graph.feeds)
    kept = report.to_keep
    assert kept is not None
    assert (kept.state, dict(kept.settings)) == ("mended", {"per_channel": True})
    assert kept.before > 10 * kept.after


def test_a_constant_that_the_model_lacks_is_an_error(tmp_path: Path) -> None:
    feeds = normalised(tmp_path, 1e-12).feeds
    for value, says in (("epz=1e-5", "epz"), ("eps=small", "small")):
        with pytest.raises(PrecisionDebugError, match=says):
            precision_debug.compare(
                tmp_path / "norm.onnx", run_mode="ort_fp16_sim", inputs=feeds, raise_constants=value
            )


def kept(state: str, after: float, low: int = 4, **more: Any) -> ToKeep:
    still = Executed(low=low, of=8, precision="INT8")
    return ToKeep(
        option="--option a=b", keys=("a",), of=8, state=state, before=1.0, after=after, still=still, **more
    )  # fmt: skip


def test_what_holds_comes_first_and_what_keeps_nothing_before_what_keeps_some() -> None:
    remedy = dataclasses.replace(kept("mended", 0.01, 6), unit=ENGINE_OPTION)
    lessens = dataclasses.replace(kept("lessened", 0.3, 6), unit=ENGINE_OPTION)
    first = with_remedy(kept("mended", 0.01), (remedy, False))
    assert first is not None
    assert (first.unit, [one.unit for one in first.beside]) == (ENGINE_OPTION, ["operator"])
    nearly = dataclasses.replace(lessens, after=0.22)
    for own, other, keeps in ((kept("mended", 0.01), remedy, True), (kept("lessened", 0.2), nearly, False)):
        found = with_remedy(own, (other, keeps))
        assert found is not None
        assert (found.unit, found.beside) == ("operator", (other,))
    most = dataclasses.replace(kept("mended", 0.02), keys=tuple("abcdefghi"), of=10)
    assert with_remedy(most, (remedy, True)).unit == ENGINE_OPTION  # one setting that gives up no more, and leaves less
    assert with_remedy(dataclasses.replace(most, after=0.005), (remedy, True)).unit == "operator"
    assert with_remedy(kept("lessened", 0.4), (lessens, False)).unit == ENGINE_OPTION
    assert with_remedy(kept("none", 0.9), (remedy, True)) == remedy
    assert with_remedy(None, (remedy, False)) == remedy
    assert with_remedy(kept("none", 0.9), None).state == "none"
    refuted = kept("lessened", 0.4, in_vain=TradePoint(what="curve", kept=1, error=1.0, passes=False))
    assert with_remedy(refuted, (remedy, False)).unit == "operator"


def test_what_leaves_much_more_or_gives_up_most_is_not_told_beside_what_mends() -> None:
    """As seen of float8: beside an option that leaves 0.026, seventeen operators to keep that leave 1.024."""
    remedy = dataclasses.replace(kept("mended", 0.026, 6), unit=ENGINE_OPTION)
    several = dataclasses.replace(kept("lessened", 0.4), keys=tuple("abc"))
    most = dataclasses.replace(kept("mended", 0.02), keys=tuple("abcdefg"))
    worse, cheaper = (dataclasses.replace(remedy, state="lessened", after=left) for left in (0.3, 0.03))
    for own, other, told in (
        (several, remedy, ()), (most, remedy, ()), (kept("mended", 0.01), worse, ()), (most, cheaper, (most,)),
    ):  # fmt: skip
        found = with_remedy(own, (other, False))
        assert found is not None
        assert found.beside == told
    point = TradePoint(what="curve", kept=1, error=1.0, passes=False)
    found = with_remedy(kept("none", 0.9, in_vain=point), (remedy, False))
    assert found == dataclasses.replace(remedy, in_vain=point), "it refutes who is named, and the other mends"


@pytest.mark.parametrize(("mode", "times", "better"), [
    ("ort_int8", 6, True), ("ort_int8", 1 / 6, False), ("ov_int8", 6, True), ("ov_int8", 1 / 6, False),
])  # fmt: skip
def test_calibrating_on_the_whole_batch_is_tried(tmp_path: Path, mode: str, times: float, better: bool) -> None:
    """As seen of pulses of lights in OpenVINO's INT8: the first half of the batch calibrates, and leaves 0.1542; all of
    it leaves 0.0541. times: the second half's numbers are so large."""
    pytest.importorskip({"ort": "onnxruntime", "ov": "nncf"}[mode.partition("_")[0]], reason="the quantiser")
    graph = Graph(seed=4)
    rows = graph.random.normal(size=(8, 32)).astype(np.float32)
    rows[4:] *= times
    value = graph.input("x", rows)
    for layer in "ab":
        weight = graph.weight(f"w{layer}", graph.random.normal(size=(32, 32)).astype(np.float32) / 5)
        value = graph.op("Relu", [graph.op("MatMul", [value, weight], f"m{layer}")], f"r{layer}")
    path = graph.save(tmp_path / "batch.onnx", [value])
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(model, path)
    report = precision_debug.compare(path, run_mode=mode, inputs=graph.feeds)
    kept = report.to_keep
    assert (kept is not None and kept.settings == {"calibration_samples": 1}) == better
    if better:
        assert (kept.state, as_reason(kept.caution).code) == ("mended", "calibrated_on_all")
        again = precision_debug.compare(path, run_mode=mode, inputs=graph.feeds, explain="off", **kept.settings)
        assert kept.after == pytest.approx(again.outputs[0].relative_l2, rel=1e-6)


def packing(folder: Path) -> list[dict[str, Any]]:
    """Boxes of hundreds and scores of at most 1, joined: one scale makes every score 0."""
    graph = Graph(seed=5)
    x = graph.input("x", graph.random.normal(size=(1, 64, 16)).astype(np.float32))
    stem = graph.op("MatMul", [x, graph.weight("w", graph.random.normal(size=(16, 16)) / 4)], "stem")
    features = graph.op("Relu", [stem], "features")
    parts = []
    for name, width, size in (("boxes", 4, 640.0), ("scores", 5, 1.0)):
        weight = graph.weight(f"w_{name}", graph.random.normal(size=(16, width)) / 3)
        told = graph.op("Sigmoid", [graph.op("MatMul", [features, weight], f"m_{name}")], f"k_{name}")
        parts.append(graph.op("Mul", [told, graph.weight(f"s_{name}", np.float32(size))], name))
    graph.save(folder / "head.onnx", [graph.op("Concat", parts, "y", axis=-1)])
    return [{"x": graph.random.normal(size=(1, 64, 16)).astype(np.float32)} for _ in range(4)]


def test_what_packs_unlike_quantities_is_left_out_and_its_slices_are_shown(tmp_path: Path) -> None:
    feeds = packing(tmp_path)
    report = precision_debug.compare(tmp_path / "head.onnx", run_mode="ort_int8", inputs=feeds)
    assert [one.cause for one in report.explanation.culprits][:1] == ["packed"] if report.explanation else False
    kept = report.to_keep
    assert kept is not None
    assert (kept.state, set(kept.settings)) == ("mended", {"nodes_to_exclude"})
    assert len(kept.settings["nodes_to_exclude"]) == 1
    again = precision_debug.compare(tmp_path / "head.onnx", run_mode="ort_int8", inputs=feeds, **kept.settings)
    assert not any(row.comparison.lost for row in again.outputs if row.comparison is not None)
    shown = make_slice_section(report).lines
    assert next((line[1].text.en, line[2].text.en, line[3].tone) for line in shown) == ("2", "4 - 8 of 9", "bad")
    assert all(line[2].text.en != "6 of 9" for line in shown)
    assert make_slice_section(again).lines == ()


def test_a_later_opset_is_offered_where_its_scale_for_each_channel_mends(tmp_path: Path) -> None:
    """A depthwise convolution, of which one channel's weights are 100 times the others', and what it reads a 100th."""
    random = np.random.default_rng(3)
    weight, x = random.normal(size=(64, 1, 3, 3)).astype(np.float32), random.normal(size=(2, 64, 10, 10))
    weight[5] *= 100
    x[:, 5] /= 100
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in
            (("x", (2, 64, 10, 10)), ("y", None))]  # fmt: skip
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", group=64)
    graph = helper.make_graph([node], "old", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    path = tmp_path / "old.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=7), path)
    kept = precision_debug.compare(path, run_mode="ort_int8", inputs={"x": x.astype(np.float32)}).to_keep
    assert kept is not None
    assert dict(kept.settings) == {"raise_opset": 13, "per_channel": True}
    assert kept.before > 3 * kept.after
    exec(kept.text)
    assert onnx.load(tmp_path / "old.opset13.onnx").opset_import[0].version == 13
