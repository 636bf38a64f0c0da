"""What ONNX Runtime's modes are asked for and cannot do: one line that says what is wrong with what was named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_models
import pytest
from approval import holds_approved, raises_approved
from onnx import helper
from onnx_models import value

from precision_debug import compare
from precision_debug.cli import main
from precision_debug.errors import ModelError, NothingToQuantise

pytest.importorskip("onnxruntime", reason="needs onnxruntime")


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


@pytest.mark.parametrize("library", ["nowhere.so", "folder"])
def test_a_library_that_is_none_is_told_by_the_path_that_was_named(
    library: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    named = ["--option", f"ep_library={library}", "--option", "ep_name=X"]
    assert main(["--model_file", model, "--run_mode", "ort_ep", *named]) == 2
    said = capsys.readouterr().err
    assert f"--option ep_library={library}: there is no" in said
    assert "get_library_path()" in said


def test_a_library_is_sought_from_the_current_folder(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ONNX Runtime seeks a relative path beside its own libraries."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake.so").write_text("no library")
    named = ["--option", "ep_library=fake.so", "--option", "ep_name=X"]
    assert main(["--model_file", model, "--run_mode", "ort_ep", *named]) == 2
    assert str(tmp_path / "fake.so") in capsys.readouterr().err


def test_calibration_on_nan_names_the_input(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "x.npz", image=np.full((2, 1, 8, 8), np.nan, np.float32))
    digits = str(root / "examples/digits/digits.onnx")
    assert main(["--model_file", digits, "--run_mode", "ort_int8", "--inputs", str(tmp_path / "x.npz")]) == 2
    assert holds_approved(capsys.readouterr().err)


def test_an_inspector_file_that_names_no_tensor_marks_not_all_of_them(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "engine_info.json"
    command = ["--model_file", model, "--run_mode", "ort_opt", "--marks_from_inspector", str(file)]
    for text, said in (("[]", "has no layer"), ('[{"Name": "a", "Outputs": []}]', "no tensor that could be marked")):
        file.write_text(text)
        assert main(command) == 2
        assert said in capsys.readouterr().err


def test_a_file_that_makes_no_sense_is_refused_with_what_to_do(tmp_path: Path) -> None:
    a, b = (onnx.helper.make_node("Relu", [read], [made]) for read, made in (("b", "a"), ("a", "b")))
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "b"))
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([a, b], "g", [x], [y])), tmp_path / "circle.onnx")
    with raises_approved(ModelError) as raised:
        compare(tmp_path / "circle.onnx", run_mode="ort_opt")
    assert "correct its export" in str(raised.value)


def saved(folder: Path, nodes: list[onnx.NodeProto], **constants: np.ndarray) -> Path:
    """A model whose product of x and w the nodes read as a, and make y of."""
    constants = {"w": np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32), **constants}
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in (("x", (4, 8)), ("y", None))]  # fmt: skip
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["a"], "product"), *nodes], "m", ends[:1], ends[1:],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    path = folder / "m.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_what_the_converter_stumbles_over_is_named_once_it_was_left_in_float32(tmp_path: Path) -> None:
    path = saved(
        tmp_path,
        [onnx.helper.make_node("HannWindow", ["n"], ["window"], "window"),
         onnx.helper.make_node("Mul", ["a", "window"], ["y"], "last")],
        n=np.array(8, np.int64),
    )  # fmt: skip
    with pytest.raises(ModelError, match="--option op_block_list=HannWindow: ") as told:
        compare(path, run_mode="ort_fp16")
    assert told.value.exit_status == 2
    report = compare(path, run_mode="ort_fp16", op_block_list=["HannWindow"])
    assert report.outputs[0].comparison is not None


def test_a_type_that_no_keeping_mends_is_not_named(tmp_path: Path) -> None:
    windows = [onnx.helper.make_node(f"{kind}Window", ["n"], [kind], kind) for kind in ("Hann", "Hamming")]
    rest = [onnx.helper.make_node("Mul", ["a", "Hann"], ["b"], "b"),
            onnx.helper.make_node("Mul", ["b", "Hamming"], ["y"], "y")]  # fmt: skip
    path = saved(tmp_path, [*windows, *rest], n=np.array(8, np.int64))
    with pytest.raises(ModelError) as told:
        compare(path, run_mode="ort_fp16")
    assert "op_block_list=" not in told.value.hint


WAYS = {
    "minmax": {}, "entropy": {"calibration": "entropy"}, "percentile": {"calibration": "percentile"},
    "float8": {"activation_type": "float8", "weight_type": "float8"},
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_model_whose_operators_lie_in_a_branch_is_refused_alike_by_all_ways_of_calibration(
    tmp_path: Path, way: str
) -> None:
    """All but the first were "Histogram has not been collected", which is the quantiser's own exception."""
    rows, weight = [2, 4], {"w": np.eye(4, dtype=np.float32)}
    inner = {
        name: helper.make_graph([helper.make_node("MatMul", ["x", "w"], [name])], name, [], [value(name, rows)])
        for name in ("yes", "no")
    }
    choose = helper.make_node("If", ["c"], ["y"], then_branch=inner["yes"], else_branch=inner["no"])
    inputs = [value("c", [], onnx.TensorProto.BOOL), value("x", rows)]
    onnx.save(onnx_models.model([choose], inputs, [value("y", rows)], weight), tmp_path / "m.onnx")
    feeds = {"c": np.array(True), "x": np.ones(rows, np.float32)}
    with pytest.raises(NothingToQuantise, match="does not look into If"):
        compare(tmp_path / "m.onnx", run_mode="ort_int8", inputs=feeds, **WAYS[way])
    assert compare(tmp_path / "m.onnx", run_mode="ort_fp16", inputs=feeds).rows, "what is hinted at"


@pytest.mark.parametrize(("way", "op", "what"), [
    ("minmax", "Sqrt", "NaN"), ("percentile", "Sqrt", "NaN"), ("float8", "Sqrt", "NaN"),
    ("entropy", "Reciprocal", "Inf"), ("float8", "Reciprocal", "Inf"),
])  # fmt: skip
def test_a_tensor_of_which_no_range_can_be_taken_is_named(tmp_path: Path, way: str, op: str, what: str) -> None:
    """It was "AssertionError in its compute_scale_zp", or "supplied range of [nan, nan] is not finite"."""
    drawn = np.random.default_rng(5)
    weights = {"w": drawn.normal(size=(8, 8)).astype(np.float32), "top": np.float32(1e6), "other": np.float32(0.5),
               "bound": np.float32(-9 if what == "NaN" else 0)}  # fmt: skip
    path = onnx_models.save_operators(tmp_path / "m.onnx", [
        ("MatMul", "x w", "h"), ("Mul", "h h", "h2"), ("Min", "h2 bound", "low"), (op, "low", "broken"),
        ("Abs", "broken", "size"), ("LessOrEqual", "size top", "fits"), ("Where", "fits broken other", "v"),
        ("MatMul", "v w", "y"),
    ], weights, [4, 8])  # fmt: skip
    with pytest.raises(ModelError, match=f"{op} `broken` gives {what} for the inputs that calibrate"):
        compare(path, run_mode="ort_int8", inputs={"x": drawn.normal(size=(4, 8)).astype(np.float32)}, **WAYS[way])
