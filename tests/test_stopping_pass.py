"""An optimiser of ONNX Runtime that makes what ONNX Runtime cannot run: it is named, with what switches it off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from precision_debug import compare
from precision_debug.errors import BackendError, ModelError, PrecisionDebugError
from precision_debug.records import Status

ort = pytest.importorskip("onnxruntime")

FLOAT = TensorProto.FLOAT


def _saved(folder: Path, nodes: list[onnx.NodeProto], shape: tuple[int, ...], **constants: np.ndarray) -> str:
    graph = helper.make_graph(
        nodes, "stops", [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    np.savez(folder / "x.npz", x=np.random.default_rng(0).normal(size=shape).astype(np.float32))
    return str(path)


def _clipped_doubles(folder: Path) -> str:
    """The session cannot be made (microsoft/onnxruntime#23116)."""
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.DOUBLE), helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Clip", ["r", "low", "high"], ["c"]), helper.make_node("Cast", ["c"], ["y"], to=FLOAT),
    ]  # fmt: skip
    return _saved(folder, nodes, (3, 4), low=np.float64(-1), high=np.float64(1))


def _wide_scale(folder: Path) -> str:
    """The session is made, and its run fails (microsoft/onnxruntime#31980)."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[-1], keepdims=1), helper.make_node("Sub", ["x", "m"], ["d"]),
        helper.make_node("Pow", ["d", "two"], ["p"]),
        helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1], keepdims=1),
        helper.make_node("Add", ["v", "eps"], ["ve"]), helper.make_node("Sqrt", ["ve"], ["s"]),
        helper.make_node("Div", ["d", "s"], ["n"]), helper.make_node("Mul", ["g", "n"], ["y"]),
    ]  # fmt: skip
    scale = np.array([1, 2], np.float32)
    return _saved(folder, nodes, (1, 1), two=np.float32(2), eps=np.float32(1e-5), g=scale)


def _runs_alone(path: str) -> bool:
    try:
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        session.run(None, dict(np.load(Path(path).with_name("x.npz"))))
    except Exception:
        return False
    return True


@pytest.mark.parametrize(
    ("make", "named"), [(_clipped_doubles, "FuseReluClip"), (_wide_scale, "SimplifiedLayerNormFusion")]
)
def test_the_optimiser_is_named_and_what_is_told_mends_it(make, named: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = make(tmp_path)
    if _runs_alone(path):
        pytest.skip("this release of ONNX Runtime has mended it")
    inputs = str(tmp_path / "x.npz")
    with pytest.raises(BackendError) as told:
        compare(path, run_mode="ort_opt", inputs=inputs)
    assert f"own pass {named}:" in str(told.value)
    assert f"disabled_optimizers=['{named}']" in str(told.value)
    assert told.value.exit_status == 3
    report = compare(path, run_mode="ort_opt", inputs=inputs, disabled_optimizers=[named])
    assert not [row.name for row in report.rows if row.status is Status.FAIL]
    assert report.outputs[0].comparison is not None


def test_a_model_that_runs_with_no_optimiser_either_keeps_its_own_error(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "to"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    path = _saved(tmp_path, nodes, (3, 4), to=np.array([5, 5]))
    with pytest.raises(PrecisionDebugError) as told:
        compare(path, run_mode="ort_opt", inputs=str(tmp_path / "x.npz"))
    assert isinstance(told.value, BackendError | ModelError)
    assert "own pass" not in str(told.value)
