"""Final outputs as a model of any format declares them: one that only one side has is no pass."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import litert_files
import numpy as np
import pytest

from precision_debug import compare
from precision_debug.claims import State, Verdict

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
    if importlib.util.find_spec("paddle") is None:
        pytest.skip("needs paddle")
    from precision_debug_paddle.engine.framework import import_paddle

    paddle = import_paddle()

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


FACTORY = """import torch
def net(more, width=4):
    torch.manual_seed(0)
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = torch.nn.Linear(16, 8), torch.nn.Linear(8, 4)
        def forward(self, x):
            inner = self.fc(x)
            y = self.head(inner.relu())
            return {"y": y, "inner": inner} if more else {"y": y}
    return Net().eval()
def one(): return net(False)
def two(): return net(True)
"""


@pytest.mark.parametrize(
    ("base", "target", "passes"), [("one", "two", False), ("two", "one", False), ("two", "two", True)]
)
def test_a_program_returns_what_its_run_returns(base: str, target: str, passes: bool, tmp_path: Path) -> None:
    """It declares nothing; what it returns has names of its own, so that each is a row."""
    pytest.importorskip("torch", reason="needs torch")
    (tmp_path / "net.py").write_text(FACTORY)
    report = compare(
        f"{tmp_path}/net.py:{target}", baseline_model=f"{tmp_path}/net.py:{base}", run_mode="torch_fp32",
        baseline="torch_fp32", inputs={"x": X}, explain="off",
    )  # fmt: skip
    found = next(claim for claim in report.claims if claim.code == "outputs_compared")
    assert (found.state is State.HELD) is (report.exit_status == 0) is passes


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


@pytest.mark.parametrize(
    ("save", "mode"), [(saved_litert, "tflite_fp32"), (saved_openvino, "ov_fp32"), (saved_paddle, "paddle_fp32")]
)
def test_an_output_that_the_target_holds_inside_and_does_not_return_is_no_pass(
    save: Callable[[Path, bool], Path], mode: str, tmp_path: Path
) -> None:
    base, target = save(tmp_path / "base", True), save(tmp_path / "target", False)
    fed = {"image": litert_files.images(2)} if save is saved_litert else {"x": X}
    report = compare(target, baseline_model=base, run_mode=mode, baseline=mode, inputs=fed, explain="off")
    assert report.verdict is Verdict.INCONCLUSIVE
    assert any(claim.code == "outputs_compared" and claim.state is State.OPEN for claim in report.claims)
