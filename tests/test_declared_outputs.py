"""Final outputs as a model of any format declares them: one that only one side has is no pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import litert_files
import numpy as np
import pytest

from precision_debug import compare
from precision_debug.claims import State, Verdict

pytestmark = pytest.mark.usefixtures("forked")

X = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)


def saved_litert(path: Path, more: bool) -> Path:
    pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert")

    def declare(flat: Any) -> None:
        if more:
            inner = int(flat.main.operators[-2].outputs[0])
            flat.main.outputs = np.array([*flat.main.outputs, inner], np.int32)

    return litert_files.changed(path.with_suffix(".tflite"), declare, "digits_float32.tflite")


def saved_openvino(path: Path, more: bool) -> Path:
    openvino = pytest.importorskip("openvino", reason="needs openvino")
    ops = openvino.opset13
    x = ops.parameter([-1, 16], np.float32, name="x")
    x.output(0).set_names({"x"})
    weight = np.random.default_rng(1).standard_normal((16, 4)).astype(np.float32)
    inner = ops.matmul(x, weight, False, False)
    y = ops.relu(inner)
    inner.output(0).set_names({"inner"})
    y.output(0).set_names({"y"})
    openvino.save_model(openvino.Model([y, inner] if more else [y], [x], "m"), path.with_suffix(".xml"), False)
    return path.with_suffix(".xml")


def saved_paddle(path: Path, more: bool) -> Path:
    paddle = pytest.importorskip("paddle", reason="needs paddle")

    class Net(paddle.nn.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.relu = paddle.nn.Linear(16, 4), paddle.nn.ReLU()

        def forward(self, x: Any) -> Any:
            inner = self.fc(x)
            return (self.relu(inner), inner) if more else self.relu(inner)

    paddle.seed(0)
    with paddle.utils.unique_name.guard(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = paddle.static.InputSpec([None, 16], "float32", name="x")
        net = Net()
        net.eval()
        paddle.jit.save(paddle.jit.to_static(net, input_spec=[spec], full_graph=True), str(path))
    return next(one for one in (path.with_suffix(".json"), path.with_suffix(".pdmodel")) if one.exists())


@pytest.mark.parametrize(
    ("save", "mode", "both"),
    [(saved_litert, "tflite_fp32", False), (saved_litert, "tflite_fp32", True), (saved_openvino, "ov_fp32", False),
     (saved_paddle, "paddle_fp32", False)],
)  # fmt: skip
def test_an_output_that_the_target_alone_declares_is_no_pass(
    save: Callable[[Path, bool], Path], mode: str, both: bool, tmp_path: Path
) -> None:
    base, target = save(tmp_path / "base", both), save(tmp_path / "target", True)
    fed = {"image": litert_files.images(2)} if save is saved_litert else {"x": X}
    report = compare(target, baseline_model=base, run_mode=mode, baseline=mode, inputs=fed, explain="off")
    found = next(claim for claim in report.claims if claim.code == "outputs_compared")
    assert len(report.target.outputs) == 2
    if both:
        assert found.state is State.HELD
        assert found.evidence["outputs"] == 2
        assert report.verdict is Verdict.EXPECTED
    else:
        assert found.state is State.OPEN
        assert found.evidence["outputs"] == report.target.outputs[1:]
        assert report.verdict is Verdict.INCONCLUSIVE
