"""The simulated modes round wherever they say so: in bodies of any depth, but not what is to stay in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_models
import pytest
from approval import raises_approved
from onnx import TensorProto, helper
from precision_debug_onnxruntime import OnnxRuntimeBackend

import precision_debug
from precision_debug.errors import UsageError
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.testing.backend_contract import CopyingHook

DTYPES = {"ort_fp16_sim": np.float16, "ort_bf16_sim": ml_dtypes.bfloat16}
X = np.float32([[1 / 3, -0.7, 2.1], [0.123456, 5.4321, -3.3333]])


def opened(model: onnx.ModelProto, mode: str, folder: Path, feeds: dict[str, Any], **options: Any) -> Any:
    path = folder / "model.onnx"
    onnx.save(model, path)
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, options=options, work_dir=str(folder))
    return OnnxRuntimeBackend().open(spec, [feeds])


def shown(session: Any, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    """By the name in the source."""
    hook = CopyingHook()
    session.run(feeds, hook)
    return {meta.origin or meta.name: hook.arrays[meta.name] for meta in session.tensors if meta.name in hook.arrays}


def value(name: str, shape: Any = None, elem: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return onnx_models.value(name, shape, elem)


def constant(name: str, array: Any) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], name=name, value=onnx.numpy_helper.from_array(np.asarray(array)))


def work(prefix: str, source: str, outer: str) -> list[onnx.NodeProto]:
    """Two operators that both have something to round, the second one by a constant of its own."""
    return [
        helper.make_node("Mul", [source, outer], [f"{prefix}m"], name=f"{prefix}Mul"),
        constant(f"{prefix}k", np.float32(0.1)),
        helper.make_node("Add", [f"{prefix}m", f"{prefix}k"], [f"{prefix}a"], name=f"{prefix}Add"),
    ]


def branches(prefix: str, source: str, outer: str, inner: list[onnx.NodeProto] | None = None) -> onnx.NodeProto:
    graphs = {}
    for side in ("then", "else"):
        own = f"{prefix}{side}_"
        nodes = inner if inner is not None and side == "then" else work(own, source, outer)
        graphs[f"{side}_branch"] = helper.make_graph(nodes, side, [], [value(nodes[-1].output[0])])
    return helper.make_node("If", ["go"], [f"{prefix}if"], name=f"{prefix}If", **graphs)


def loop(prefix: str, source: str, outer: str, inner: onnx.NodeProto | None = None) -> onnx.NodeProto:
    nodes = [helper.make_node("Identity", [f"{prefix}c"], [f"{prefix}c_out"]), *work(prefix, f"{prefix}v", outer)]
    if inner is not None:
        nodes.append(inner)
    body = helper.make_graph(
        nodes, "body",
        [value(f"{prefix}i", [], 7), value(f"{prefix}c", [], 9), value(f"{prefix}v", [2, 3])],
        [value(f"{prefix}c_out", [], 9), value(nodes[-1].output[0], None)],
    )  # fmt: skip
    return helper.make_node("Loop", ["times", "", source], [f"{prefix}loop"], name=f"{prefix}Loop", body=body)


def scan(prefix: str, source: str, outer: str) -> onnx.NodeProto:
    nodes = [
        helper.make_node("Add", [f"{prefix}s", f"{prefix}x"], [f"{prefix}t"], name=f"{prefix}Sum"),
        *work(prefix, f"{prefix}t", outer),
    ]
    body = helper.make_graph(
        nodes, "body", [value(f"{prefix}s", [3]), value(f"{prefix}x", [3])],
        [value(f"{prefix}t", [3]), value(nodes[-1].output[0], [3])],
    )  # fmt: skip
    return helper.make_node(
        "Scan", ["start", source], [f"{prefix}end", f"{prefix}rows"], name=f"{prefix}Scan", body=body, num_scan_inputs=1
    )


def everything() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """If, Loop and Scan; a Loop in an If, and an If in a Loop."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["p"], name="first"),
        branches("b_", "p", "w"),
        loop("l_", "p", "w"),
        scan("s_", "p", "w"),
        branches("d_", "p", "w", [loop("dl_", "p", "w")]),
        loop("e_", "p", "w", branches("eb_", "e_a", "w")),
        helper.make_node("Sum", ["b_if", "l_loop", "s_rows", "d_if", "e_loop"], ["y"], name="last"),
    ]
    model = onnx_models.model(
        nodes, [value("x", [2, 3]), value("go", [], TensorProto.BOOL)], [value("y", [2, 3])],
        {"w": np.float32(0.7), "times": np.array(2), "start": np.zeros(3, np.float32)},
    )  # fmt: skip
    return model, {"x": X, "go": np.array(True)}


INSIDE = ["b_then_m", "b_then_a", "l_m@0", "l_a@1", "s_t@1", "s_a@0", "dl_m@1", "dl_a@0", "e_m@1", "eb_then_a@1"]


@pytest.mark.parametrize("mode", DTYPES)
def test_every_value_in_a_body_of_any_depth_is_rounded(mode: str, tmp_path: Path) -> None:
    model, feeds = everything()
    found = shown(opened(model, mode, tmp_path, feeds), feeds)
    assert set(INSIDE) <= set(found)
    for name, array in found.items():
        if array.dtype == np.float32:
            np.testing.assert_array_equal(array, array.astype(DTYPES[mode]).astype(np.float32), err_msg=name)
    unrounded = shown(opened(model, "ort_fp32", tmp_path, feeds), feeds)
    assert sum(not np.array_equal(found[name], unrounded[name]) for name in INSIDE) >= len(INSIDE) - 1


def test_a_loops_values_are_those_of_numpys_own_rounding(tmp_path: Path) -> None:
    model, feeds = everything()
    found = shown(opened(model, "ort_fp16_sim", tmp_path, feeds), feeds)
    half = np.float16
    state = half(np.float32(half(X)) * np.float32(half(0.7)))
    for turn in range(2):
        product = half(np.float32(state) * np.float32(half(0.7)))
        np.testing.assert_array_equal(found[f"l_m@{turn}"], product.astype(np.float32))
        state = half(np.float32(product) + np.float32(half(0.1)))
        np.testing.assert_array_equal(found[f"l_a@{turn}"], state.astype(np.float32))


@pytest.mark.parametrize("mode", DTYPES)
@pytest.mark.parametrize(
    "kept", ["b_then_Mul,b_then_Add", "l_Mul,l_Add", "s_Mul,s_Add", "dl_Mul,dl_Add", "eb_then_Mul,eb_then_Add"]
)
def test_a_blocked_pair_of_nodes_in_a_body_passes_an_unrounded_value(kept: str, mode: str, tmp_path: Path) -> None:
    model, feeds = everything()
    found = shown(opened(model, mode, tmp_path, feeds, node_block_list=kept), feeds)
    name = kept.split("_Mul", maxsplit=1)[0] + "_m"
    values = [array for key, array in found.items() if key.partition("@")[0] == name]
    assert values
    for array in values:
        assert not np.array_equal(array, array.astype(DTYPES[mode]).astype(np.float32))
    exact = {name, f"{name[:-1]}k"}  # the constant is read by a blocked node alone
    others = {key: a for key, a in found.items() if key.partition("@")[0] not in exact and a.dtype == np.float32}
    assert len(others) >= 15
    for key, array in others.items():
        np.testing.assert_array_equal(array, array.astype(DTYPES[mode]).astype(np.float32), err_msg=key)


def test_what_is_in_a_blocked_if_is_blocked_with_it(tmp_path: Path) -> None:
    model, feeds = everything()
    session = opened(model, "ort_fp16_sim", tmp_path, feeds, node_block_list="b_If,first")
    found = shown(session, feeds)
    shared = np.float32(np.float16(0.7))
    np.testing.assert_array_equal(found["p"], X * np.float32(0.7))  # it is read by b_If's body, in float32
    expected = np.float32(X * np.float32(0.7) * shared + np.float32(0.1))
    np.testing.assert_array_equal(found["b_then_a"], expected)
    views = {meta.name: meta.view for meta in session.tensors}
    assert not views["b_then_a"]
    assert views["l_a@1"] == "rounded to float16"


def test_a_blocked_node_keeps_the_weights_that_it_reads_and_an_output_of_the_model(tmp_path: Path) -> None:
    weights = {"w": np.float32([0.1, 70000.0]), "shared": np.float32([0.3, 0.3])}
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"], name="one"),
        helper.make_node("Add", ["a", "shared"], ["y"], name="two"),
        helper.make_node("Mul", ["y", "shared"], ["z"], name="three"),
    ]
    model = onnx_models.model(nodes, [value("x", [2])], [value("y", [2]), value("z", [2])], weights)
    feeds = {"x": np.float32([1 / 3, 1.7])}
    session = opened(model, "ort_fp16_sim", tmp_path, feeds, node_block_list="one,two")
    found = session.run(feeds)
    shared = np.float32(np.float16(0.3))
    np.testing.assert_array_equal(found["y"], feeds["x"] * weights["w"] + weights["shared"])  # as ort_fp16 does
    with np.errstate(over="ignore"):
        expected = np.float32(np.float16(np.float32(np.float16(found["y"])) * shared))
    np.testing.assert_array_equal(found["z"], expected)
    assert not any("infinite" in note for note in session.notes)
    assert any("infinite" in note for note in opened(model, "ort_fp16_sim", tmp_path, feeds).notes)


@pytest.mark.parametrize("mode", ["ort_fp16", "ort_fp16_sim", "ort_bf16_sim"])
def test_a_node_that_is_not_there_cannot_be_blocked(mode: str, tmp_path: Path) -> None:
    model, feeds = everything()
    with raises_approved(UsageError):
        opened(model, mode, tmp_path, feeds, node_block_list="nowhere")


@pytest.mark.parametrize("mode", ["ort_fp16", "ort_fp16_sim", "ort_bf16_sim"])
def test_notes_tell_of_weights_that_do_not_fit_also_in_constant_nodes_and_bodies(mode: str, tmp_path: Path) -> None:
    beyond, below, subnormal = (9.8e7, 1e-9, 1e-6) if "fp16" in mode.replace("bf16", "") else (3.4e38, 1e-44, 1e-39)
    inside = helper.make_graph(
        [constant("inner", np.float32([below, below])), helper.make_node("Mul", ["c", "inner"], ["then_y"]),],
        "then", [], [value("then_y")],
    )  # fmt: skip
    other = helper.make_graph([helper.make_node("Neg", ["c"], ["else_y"])], "else", [], [value("else_y")])
    nodes = [
        constant("k", np.float32([beyond, 1])), helper.make_node("Mul", ["x", "k"], ["b"]),
        helper.make_node("Mul", ["b", "w"], ["c"]),
        helper.make_node("If", ["go"], ["y"], then_branch=inside, else_branch=other),
    ]  # fmt: skip
    model = onnx_models.model(
        nodes, [value("x", [2]), value("go", [], TensorProto.BOOL)], [value("y")], {"w": np.float32([subnormal, 1])}
    )
    text = "\n".join(opened(model, mode, tmp_path, {"x": np.float32([0, 1]), "go": np.array(True)}).notes)
    assert "1 weight exceeds" in text
    assert "k (1)" in text
    assert "2 weights are below" in text
    assert "inner (2)" in text
    assert "1 weight lies in" in text
    assert "w (1)" in text


def test_what_is_put_before_a_cast_to_integers_is_rounded_as_every_other_tensor(tmp_path: Path) -> None:
    """ONNX Runtime leaves out the cast back to float32 there, and its graph names float16: the put number was read as
    it was, so that the decision behind it was said to turn by itself, and repairing its author to mend nothing."""
    nodes = [
        helper.make_node("Add", ["x", "far"], ["place"], name="place"),
        helper.make_node("Cast", ["place"], ["at"], name="at", to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "at"], ["y"], name="y"),
    ]
    far, table = np.float32(3000), np.random.default_rng(0).normal(size=(4000, 4)).astype(np.float32)
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in (("far", far), ("table", table))]
    graph = helper.make_graph(nodes, "g", [value("x", [8])], [value("y", [8, 4])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"x": np.arange(8, dtype=np.float32)}
    session = opened(model, "ort_fp16_sim", tmp_path, feeds)
    exact, seen = feeds["x"] + far, {}

    def put(_op: str, name: str, tensor: Any) -> Any:
        seen[name] = np.array(tensor)
        return exact.copy() if name == "place" else None

    session.run_replacing(feeds, put)
    np.testing.assert_array_equal(session.held("place", exact), exact.astype(np.float16))
    np.testing.assert_array_equal(seen["at"], exact.astype(np.float16))
    report = precision_debug.compare(tmp_path / "model.onnx", run_mode="ort_fp16_sim", inputs=feeds)
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert first.name == "place"
    assert (first.with_all or 0) > 0.9 > 0.01 > (first.repaired or 1)
    session.close()
