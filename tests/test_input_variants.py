"""One sample alone, inside a batch and with padding behind it: who depends on the neighbours, and who does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import precision_debug
from precision_debug.errors import InputError, UsageError
from precision_debug.reasons import as_reason
from precision_debug.records import Status
from precision_debug.report.model import Report, Verdict

WIDE, LONG = 16, 6


def attention(path: Path, *, masked: bool, centred: bool) -> str:
    """One head over tokens. masked: padding is masked out. centred: the mean of the batch is taken away before."""
    onnx = pytest.importorskip("onnx", reason="the models are ONNX's")
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    random = np.random.default_rng(0)
    held = {f"w{one}": (random.normal(size=(WIDE, WIDE)) / 4).astype(np.float32) for one in "qkvo"}
    held |= {"one": np.float32(1), "far": np.float32(-1e9), "axes": np.array([1]), "lines": np.array([-1, WIDE])}
    read, nodes = "x", []
    if centred:
        nodes += [
            node("ReduceMean", ["x"], ["mean"], "mean", axes=[0], keepdims=1), node("Sub", ["x", "mean"], ["c"], "c"),
        ]  # fmt: skip
        read = "c"
    nodes += [node("MatMul", [read, f"w{one}"], [one], one) for one in "qkv"]
    nodes += [node("Transpose", ["k"], ["kt"], "kt", perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["scores"], "scores")]
    scores = "scores"
    if masked:
        nodes += [
            node("Sub", ["one", "mask"], ["gone"], "gone"), node("Mul", ["gone", "far"], ["bias"], "bias"),
            node("Unsqueeze", ["bias", "axes"], ["wide"], "wide"), node("Add", ["scores", "wide"], ["s"], "s"),
        ]  # fmt: skip
        scores = "s"
    nodes += [
        node("Softmax", [scores], ["p"], "p", axis=-1), node("MatMul", ["p", "v"], ["mixed"], "mixed"),
        node("MatMul", ["mixed", "wo"], ["y"], "y"),
    ]  # fmt: skip
    inputs = [value("x", onnx.TensorProto.FLOAT, ["batch", "tokens", WIDE])]
    inputs += [value("mask", onnx.TensorProto.FLOAT, ["batch", "tokens"])] if masked else []
    weights = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()]
    graph = onnx.helper.make_graph(
        nodes, "g", inputs, [value("y", onnx.TensorProto.FLOAT, ["batch", "tokens", WIDE])], weights
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def compared(path: str, variants: str, *, masked: bool, mode: str = "ort_opt") -> Report:
    pytest.importorskip("onnxruntime", reason="they run in ONNX Runtime")
    x = np.random.default_rng(1).normal(size=(3, LONG, WIDE)).astype(np.float32)
    feeds: dict[str, Any] = {"x": x} | ({"mask": np.ones((3, LONG), np.float32)} if masked else {})
    return precision_debug.compare(path, run_mode=mode, inputs=feeds, input_variants=variants)


def first(report: Report) -> tuple[str, str]:
    assert report.explanation is not None
    one = report.explanation.culprits[0]
    return one.name, one.cause


def test_what_is_computed_over_the_sample_alone_is_the_same_everywhere(tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx", masked=True, centred=False)
    report = compared(path, "alone,batch,padded", masked=True)
    assert report.verdict is Verdict.EXPECTED
    assert report.baseline.mode == report.target.mode == "ort_opt"
    assert {as_reason(note).code for note in report.notes} >= {"variant_batch", "variant_padded"}
    assert all(row.comparison is None or row.comparison.shapes_match for row in report.rows)


def test_statistics_of_the_batch_are_named(tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx", masked=False, centred=True)
    report = compared(path, "alone,batch", masked=False)
    assert report.verdict is Verdict.FAIL
    name, cause = first(report)
    assert name in {"mean", "c"}
    assert cause == "neighbours"


def test_padding_that_nobody_masks_is_named(tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx", masked=False, centred=False)
    assert compared(path, "batch", masked=False).verdict is Verdict.EXPECTED
    report = compared(path, "padded", masked=False)
    assert report.verdict is Verdict.FAIL
    assert first(report) == ("p", "neighbours")


MODULE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        x = torch.relu(self.first(x))
        SPREAD
        x = x.transpose(0, 1).reshape(-1, 32)
        return self.last(x).reshape(6, -1, 4).transpose(0, 1)


def infer():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(4, 6, 16),)
"""


@pytest.mark.parametrize("spread", ["x = x / x.std(dim=0, unbiased=False).add(1)", "pass"])
def test_a_module_whose_inner_tensors_are_cut_differently(tmp_path: Path, spread: str) -> None:
    """Tokens of all samples in one axis, token by token: no part of that is one sample's, and it fails nothing."""
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "net.py").write_text(MODULE.replace("SPREAD", spread))
    report = precision_debug.compare(f"{tmp_path / 'net.py'}:infer", run_mode="torch_fp32", input_variants="batch")
    if spread == "pass":
        assert report.verdict is Verdict.EXPECTED
        assert not [row for row in report.rows if row.status is Status.FAIL and row.is_output]
    else:
        assert report.verdict is Verdict.FAIL
        assert first(report)[1] == "neighbours"


def test_a_mode_that_calibrates_is_refused(tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx", masked=False, centred=False)
    with pytest.raises(UsageError):
        compared(path, "batch", masked=False, mode="ort_int8")


def test_a_model_of_one_sample_at_a_time_is_refused(tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx", masked=False, centred=False)
    onnx = pytest.importorskip("onnx", reason="the models are ONNX's")
    model = onnx.load(path)
    for item in (*model.graph.input, *model.graph.output):
        item.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, path)
    pytest.importorskip("onnxruntime", reason="it runs in ONNX Runtime")
    with pytest.raises(InputError):
        precision_debug.compare(path, run_mode="ort_opt", input_shapes={"x": (1, 6, WIDE)}, input_variants="batch")
