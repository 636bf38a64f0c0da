"""What stays in float32 does so on the edges between too, and what was judged is what is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_models import attention, convnet, mlp, mobile, model, value
from planted.onnx_faults import Graph, tokens

import precision_debug
from precision_debug.records import Status


def cancelling(opset: int = 13, constants: str = "initializers") -> onnx.ModelProto:
    """x @ turn + 65504 - 65504 @ turn; the constant is shared by both, and by an operator that may be rounded."""
    turn = np.fliplr(np.eye(16, dtype=np.float32))
    large = numpy_helper.from_array(np.array([65504.0 * 2], np.float32), "large")
    nodes = [
        helper.make_node("MatMul", ["x", "turn"], ["turned"], name="first"),
        helper.make_node("Add", ["turned", "large"], ["added"], name="add"),
        helper.make_node("Sub", ["added", "large"], ["subtracted"], name="sub"),
        helper.make_node("MatMul", ["subtracted", "turn"], ["product"], name="last"),
        helper.make_node("Div", ["product", "large"], ["y"], name="div"),
    ]
    weights = [numpy_helper.from_array(np.ascontiguousarray(turn), "turn")]
    if constants == "initializers":
        weights.append(large)
    else:
        nodes.insert(0, helper.make_node("Constant", [], ["large"], name="constant", value=large))
    graph = helper.make_graph(nodes, "g", [value("x", [16, 16])], [value("product", [16, 16])], weights)
    del graph.node[-1]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


FEEDS = {"x": np.random.default_rng(0).uniform(1, 2, (16, 16)).astype(np.float32)}


def error(path: Path, feeds: Any = FEEDS, **options: Any) -> float:
    report = precision_debug.compare(path, inputs=feeds, run_mode="ort_fp16", explain="off", **options)
    found = report.outputs[0].relative_l2
    assert found is not None
    return found


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17, 21])
@pytest.mark.parametrize("constants", ["initializers", "nodes"])
def test_the_edge_between_two_kept_nodes_is_float32(tmp_path: Path, opset: int, constants: str) -> None:
    """The stock converter casts to float16 and back between them, and clamps the constant: every element is lost."""
    path = tmp_path / "m.onnx"
    onnx.save(cancelling(opset, constants), path)
    assert error(path, node_block_list="add,sub") < 2e-2


def test_a_kept_end_is_float32_from_the_input_to_the_output(tmp_path: Path) -> None:
    proto = model([helper.make_node("Add", ["x", "w"], ["y"], name="one"),
                   helper.make_node("Mul", ["x", "w"], ["z"], name="two")],
                  [value("x", [4])], [value("y", [4]), value("z", [4])],
                  {"w": np.full(4, 1e-3, np.float32)})  # fmt: skip
    path, saved = tmp_path / "m.onnx", tmp_path / "saved.onnx"
    onnx.save(proto, path)
    feeds = {"x": np.full(4, 4097.0, np.float32)}
    report = precision_debug.compare(
        path, inputs=feeds, run_mode="ort_fp16", explain="off", node_block_list="one", save_model=saved
    )
    kept, other = report.outputs
    assert kept.relative_l2 == 0.0
    assert other.relative_l2
    again = onnx.load(saved)
    onnx.checker.check_model(again, full_check=True)
    assert [node.op_type for node in again.graph.node].count("Cast") == 2


def test_two_readers_of_one_tensor_may_both_be_kept(tmp_path: Path) -> None:
    """The stock converter then defines one cast twice, and the model does not load."""
    path = tmp_path / "m.onnx"
    onnx.save(convnet(), path)
    proto = onnx.load(path)
    readers: dict[str, list[str]] = {}
    for node in proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.name)
    shared = next(names for names in readers.values() if len(names) > 1)
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype(np.float32)}
    name = proto.graph.input[0].name
    shape = [dim.dim_value or 1 for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    feeds = {name: np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    report = precision_debug.compare(
        path, inputs=feeds, run_mode="ort_fp16", explain="off", node_block_list=",".join(shared)
    )
    assert report.outputs[0].relative_l2 < 1e-2  # type: ignore[operator]


def test_everything_kept_is_the_model_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(cancelling(), path)
    report = precision_debug.compare(
        path, inputs=FEEDS, run_mode="ort_fp16", explain="off", node_block_list="first,add,sub,last"
    )
    assert report.outputs[0].relative_l2 == 0.0
    assert any("kept in float32" in note for note in report.target.notes)


@pytest.mark.parametrize(
    ("mode", "options"),
    [("ort_fp16", {}), ("ort_fp16", {"node_block_list": "c1"}), ("ort_int8", {}), ("ort_int8_dynamic", {})],
)
def test_what_was_judged_is_what_is_saved(tmp_path: Path, mode: str, options: dict[str, str]) -> None:
    path, saved = tmp_path / "m.onnx", tmp_path / "deep" / "saved.onnx"
    proto = convnet()
    if options:
        options = {"node_block_list": proto.graph.node[1].name}
    entry = proto.metadata_props.add()
    entry.key, entry.value = "author", "somebody"
    onnx.save(proto, path)
    shape = [dim.dim_value or 1 for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    feeds = {proto.graph.input[0].name: np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    judged = precision_debug.compare(path, inputs=feeds, run_mode=mode, explain="off", save_model=str(saved), **options)
    assert any(str(saved) in note for note in judged.target.notes)
    again = onnx.load(saved)
    onnx.checker.check_model(again)
    assert {item.key: item.value for item in again.metadata_props}["author"] == "somebody"
    assert not (tmp_path / "deep" / "saved.onnx.data").exists()
    wanted = {item.domain: item.version for item in proto.opset_import}
    given = {item.domain: item.version for item in again.opset_import}
    assert given[""] >= wanted[""]
    assert set(given) <= {*wanted, *(node.domain for node in again.graph.node)}, "as few as it needs"
    report = precision_debug.compare(
        saved, inputs=feeds, run_mode="ort_opt", baseline_model=path, baseline="ort_fp32", explain="off"
    )
    first, second = judged.outputs[0].comparison, report.outputs[0].comparison
    assert first is not None
    assert second is not None
    assert report.outputs[0].status is not Status.UNMATCHED
    assert (first.max_abs, first.sqnr_db) == (second.max_abs, second.sqnr_db)


@pytest.mark.parametrize("build", [convnet, attention, mlp, mobile])
@pytest.mark.parametrize("mode", ["ort_int8", "ort_int8_dynamic"])
def test_everything_excluded_is_float_whatever_was_fused_before(tmp_path: Path, build: Any, mode: str) -> None:
    """A product and a sum become one Gemm of another name before they are quantised."""
    path, proto = tmp_path / "m.onnx", build()
    onnx.save(proto, path)
    dice = np.random.default_rng(0)
    feeds = {
        item.name: dice.normal(size=[dim.dim_value or 2 for dim in item.type.tensor_type.shape.dim]).astype(np.float32)
        for item in proto.graph.input
    }
    names = ",".join(node.name or f"{node.op_type}:{node.output[0]}" for node in proto.graph.node)
    report = precision_debug.compare(path, inputs=feeds, run_mode=mode, explain="off", nodes_to_exclude=names)
    assert report.outputs[0].relative_l2 < 1e-5  # type: ignore[operator]


def test_weights_of_a_model_that_is_too_large_go_to_a_file_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("precision_debug_onnxruntime.make.saving._MOST", 1000)  # in place of 2 GB
    path, saved = tmp_path / "m.onnx", tmp_path / "saved.onnx"
    onnx.save(convnet(), path)
    item = onnx.load(path).graph.input[0]
    shape = [dim.dim_value or 1 for dim in item.type.tensor_type.shape.dim]
    feeds = {item.name: np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    for _ in range(2):  # the second time it is written over, not appended to
        judged = precision_debug.compare(path, inputs=feeds, run_mode="ort_fp16", explain="off", save_model=str(saved))
    beside = tmp_path / "saved.onnx.data"
    assert beside.exists()
    assert beside.stat().st_size < path.stat().st_size
    report = precision_debug.compare(
        saved, inputs=feeds, run_mode="ort_opt", baseline_model=path, baseline="ort_fp32", explain="off"
    )
    first, second = judged.outputs[0].comparison, report.outputs[0].comparison
    assert first is not None
    assert second is not None
    assert first.max_abs == second.max_abs


def test_in_int8_what_hands_on_a_grid_goes_with_what_made_it(tmp_path: Path) -> None:
    """Alone, such a node changes nothing: its results are rounded where its input's were."""
    from precision_debug_onnxruntime.engine.int8_units import Int8Units

    dice = np.random.default_rng(2)
    graph = Graph(seed=2)
    a = graph.dense(tokens(graph, 16, 8), 16, 16, "a")
    scaled = graph.op("Mul", [a, graph.weight("k", np.float32(3.7))], "scaled")
    less = graph.op("Div", [scaled, graph.weight("six", np.float32(6))], "less")
    bent = graph.op("Tanh", [less], "bent")
    last = graph.weight("v", dice.normal(size=(16, 4)).astype(np.float32))
    path = graph.save(tmp_path / "grid.onnx", [graph.op("MatMul", [bent, last], "y")])
    units = Int8Units.of(str(path), "int8")
    assert units.names["node_a"] == ("node_a", "node_scaled"), "the quotient is not quantised itself"
    assert units.home["node_less"] == "node_a"
    assert "node_bent" not in units.home

    def error(*names: str) -> float:
        report = precision_debug.compare(
            path, run_mode="ort_int8", inputs=graph.feeds, explain="off", nodes_to_exclude=",".join(names),
            pre_process=True, per_channel=True,
        )  # fmt: skip
        assert report.outputs[0].relative_l2 is not None
        return report.outputs[0].relative_l2

    nothing = error()
    assert error("node_scaled") == pytest.approx(nothing, rel=1e-3)
    kept = error("node_a", "node_scaled")
    assert kept < 0.7 * nothing
    assert error("node_a_mm", "node_scaled") == kept, "a product and a sum become one Gemm between two Reshapes"


def test_a_dynamic_product_with_a_sum_can_be_kept(tmp_path: Path) -> None:
    """The quantiser's table has no Gemm: it makes a MatMul of one first, unless that is scaled or turned."""
    from precision_debug_onnxruntime.engine.int8_units import Int8Units

    graph = Graph(seed=3)
    x = tokens(graph, 16, 8)
    weight, bias = (graph.weight(name, np.ones(size, np.float32)) for name, size in (("w", (8, 8)), ("b", (8,))))
    flat = graph.op("Reshape", [x, graph.weight("s", np.array([-1, 8]))], "flat")
    a = graph.op("Gemm", [flat, weight, bias], "a", transB=1)
    b = graph.op("Gemm", [a, weight, bias], "b", alpha=0.5)
    path = graph.save(tmp_path / "gemm.onnx", [graph.op("Gemm", [b, weight, bias], "y")])
    assert [*Int8Units.of(str(path), "int8_dynamic").home] == ["node_a", "node_y"]
    assert not Int8Units.of(str(path), "int8_dynamic", ["Conv"]).home


def test_a_set_that_cannot_run_fails_by_itself_once_another_ran(tmp_path: Path) -> None:
    """What the first of all lacks, the machine lacks; what a later one lacks must not take what held with it."""
    from precision_debug.errors import UsageError
    from precision_debug.records import ModelFiles, RunSpec
    from precision_debug.run.criterion import Criterion, Sample
    from precision_debug.run.plan import make_plan
    from precision_debug.run.trials import Trials
    from precision_debug.search.fix import SearchRequest
    from precision_debug.settings.options import Tolerance

    graph = Graph(seed=4)
    path = graph.save(tmp_path / "m.onnx", [graph.dense(tokens(graph, 16, 8), 16, 8, "y")])
    target = make_plan(RunSpec(model=ModelFiles(model_file=str(path)), run_mode="ort_int8_dynamic")).target
    assert target.capabilities.keeper is not None
    keep = target.capabilities.keeper.keep(target.spec)
    assert keep is not None
    y = precision_debug.compare(path, run_mode="ort_opt", inputs=graph.feeds, explain="off").outputs[0].name
    sample = Sample(feeds=graph.feeds, target_feeds=graph.feeds, values={y: np.ones((1, 1), np.float32)})
    criterion = Criterion.of(SearchRequest(), Tolerance(), {y: y}, 1.0)
    trials = Trials(target, keep.options, criterion, [graph.feeds], tmp_path)
    with pytest.raises(UsageError):
        trials.run(["nobody"], [sample])
    assert trials.run([], [sample]).text is not None
    found = trials.run(["nobody"], [sample])
    assert not found.passes
    assert "nobody" in found.text
    assert trials.unseen is None
    right = pytest.importorskip("onnxruntime").InferenceSession(str(path)).run([y], graph.feeds)[0]
    held = [sample, Sample(feeds=graph.feeds, target_feeds=graph.feeds, values={y: right})]
    opened = trials.opened
    assert not trials.run([], [sample], unseen=held).passes
    assert trials.opened == opened + 1  # an engine that takes minutes to build is not built again to be checked
    assert trials.unseen is not None
    assert trials.unseen.errors[0] is None  # of another shape
    assert trials.unseen.errors[1] == pytest.approx(0.0084, rel=0.5)
