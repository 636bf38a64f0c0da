"""An nn.Layer in dynamic graph: what is shown, under which names, and that watching changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import CopyingHook, Subject

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

from precision_debug_paddle import PaddleBackend

import precision_debug
from precision_debug import registry
from precision_debug.errors import BackendUnavailable, ModelError
from precision_debug.records import ModelFiles, SessionSpec, Status

SOURCE = """
import paddle
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2D(3, 4, 3), nn.BatchNorm2D(4), nn.Linear(4, 5)
        self.same, self.drop = nn.Identity(), nn.Dropout(0.5)

    def forward(self, x, scale=None):
        y = nn.functional.relu(self.bn(self.conv(x)))
        y = self.same(y) + 1.0
        return {"scores": self.drop(self.fc(y.mean(axis=[2, 3]))), "map": self.low(y) if scale else y}


def net():
    return Net(), paddle.randn([2, 3, 8, 8])


def chain():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), paddle.randn([2, 4])


def nothing():
    return 3
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    return path


FEEDS = {"x": np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)}


@pytest.fixture(params=["dygraph_fp32", "dygraph_fp64"])
def subject(request: pytest.FixtureRequest, source: Path, tmp_path: Path) -> Subject:
    return Subject(
        backend=PaddleBackend(), mode=request.param, model=ModelFiles(model_file=f"{source}:net"), feeds=[FEEDS],
        work_dir=str(tmp_path), import_name="precision_debug_paddle",
    )  # fmt: skip


def test_operators_and_sublayers_have_names_that_say_where_they_are(source: Path) -> None:
    spec = SessionSpec(model=ModelFiles(model_file=f"{source}:net"), mode="dygraph_fp32")
    session = PaddleBackend().open(spec, [FEEDS])
    metas = {meta.name: meta for meta in session.tensors}
    assert {"conv/conv2d", "bn/batch_norm", "relu", "fc/linear"} <= set(metas)
    assert not [name for name in metas if name.startswith("bn/batch_norm[")], "statistics are not activations"
    assert metas["relu"].inputs == ("bn/batch_norm",)
    recorder = CopyingHook()
    outputs = session.run(FEEDS, recorder)
    assert set(outputs) == {"output.scores", "output.map"}
    np.testing.assert_array_equal(recorder.arrays["relu"], np.maximum(recorder.arrays["bn/batch_norm"], 0))
    assert {name for name, meta in metas.items() if meta.is_output} == set(outputs)
    assert metas["output.scores"].inputs[0] == "drop/dropout"


def test_a_layer_is_compared_with_its_float64_self(source: Path) -> None:
    report = precision_debug.compare(f"{source}:net", run_mode="dygraph_fp64", inputs=FEEDS)
    assert len(report.compared) >= 8
    assert all(row.status is Status.PASS for row in report.compared)
    assert all(row.relative_l2 is not None and row.relative_l2 < 1e-5 for row in report.compared)
    assert any(row.relative_l2 for row in report.compared), "both sides computed the same"
    assert [row.name for row in report.rows if row.comparison is None] == []
    mean = next(row for row in report.rows if row.name == "mean")
    assert mean.inputs == ("add",), "arithmetic of tensors is seen, too"
    assert report.baseline.mode == "dygraph_fp32"


def test_what_a_tensor_computes_unseen_is_said(tmp_path: Path) -> None:
    file = tmp_path / "turned.py"
    file.write_text(
        "import paddle\n\nclass Doubled(paddle.nn.Layer):\n    def forward(self, x):\n"
        "        return paddle.exp(paddle.to_tensor(x.numpy() * 2))\n\n"
        "def make():\n    return Doubled(), paddle.randn([2, 3])\n"
    )
    report = precision_debug.compare(f"{file}:make", run_mode="dygraph_fp64")
    hidden = [row for row in report.rows if row.comparison is None]
    assert [row.status for row in hidden] == [Status.NOT_COMPARED]
    exp = next(row for row in report.rows if row.name == "exp")
    assert exp.inputs == (hidden[0].name,)
    assert exp.error_growth is None


def test_the_mode_chooses_the_backend_of_a_python_file(source: Path) -> None:
    model = ModelFiles(model_file=f"{source}:net")
    assert registry.find(model, "dygraph_fp64")[0].name == "paddle"
    assert registry.find(model, "torch_fp32")[0].name == "torch"


def test_amp_on_the_cpu_says_what_it_needs(source: Path) -> None:
    """paddle.amp has no effect on the CPU: a run there would be FP32 without a word."""
    mode = "dygraph_amp_o1_bf16"
    found = PaddleBackend().availability(mode)
    if found.ok:
        pytest.skip("this machine has a GPU that Paddle can use")
    with pytest.raises(BackendUnavailable, match="paddlepaddle-gpu"):
        PaddleBackend().open(SessionSpec(model=ModelFiles(model_file=f"{source}:net"), mode=mode), [FEEDS])


@pytest.mark.parametrize(("name", "said"), [("nothing", "int, not a paddle.nn.Layer"), ("none", "no function 'none'")])
def test_a_factory_that_gives_no_layer_is_one_line(source: Path, name: str, said: str) -> None:
    spec = SessionSpec(model=ModelFiles(model_file=f"{source}:{name}"), mode="dygraph_fp32")
    with pytest.raises(ModelError, match=said):
        PaddleBackend().inputs(spec)


def test_a_layer_that_returns_one_tensor(source: Path, tmp_path: Path) -> None:
    feeds = {"input": np.ones((2, 4), np.float32)}
    report = precision_debug.compare(f"{source}:chain", run_mode="dygraph_fp64", inputs=feeds)
    assert [row.name for row in report.outputs] == ["output"]
    assert [row.op_type for row in report.rows] == ["linear", "gelu", "linear", "Sequential"]


def test_what_is_put_in_place_of_a_tensor_reaches_what_follows(source: Path) -> None:
    spec = SessionSpec(model=ModelFiles(model_file=f"{source}:chain"), mode="dygraph_fp32")
    feeds = {"input": np.ones((2, 4), np.float32)}
    session = PaddleBackend().open(spec, [feeds])
    assert session.replacer is not None
    assert session.replaces
    rng = np.random.default_rng(2)
    put = rng.standard_normal((2, 8)).astype(np.float32)
    seen: dict[str, np.ndarray] = {}

    def replace(_op: str, name: str, value: object) -> object:
        seen[name] = np.array(value)
        return put if name == "1/gelu" else None

    plain = session.run(feeds)
    outputs = session.run_replacing(feeds, replace)
    linear = session.operator("2/linear")
    assert linear is not None
    weight, bias = linear.parameters.values()
    np.testing.assert_allclose(outputs["output"], put @ weight + bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(session.run(feeds)["output"], plain["output"])
    assert not np.array_equal(seen["1/gelu"], put)
    session.close()


def test_two_layers_that_differ_in_a_weight_are_told_apart(source: Path) -> None:
    other = "    net, x = chain()\n    with paddle.no_grad():\n        net[2].weight[3, 1] = 4.0\n    return net, x\n"
    source.write_text(f"{SOURCE}\n\ndef other():\n{other}")
    feeds = {"input": np.ones((2, 4), np.float32)}
    report = precision_debug.compare(
        f"{source}:other", run_mode="dygraph_fp32", baseline="dygraph_fp32", baseline_model=f"{source}:chain",
        inputs=feeds,
    )  # fmt: skip
    assert report.explanation is not None
    culprit = report.explanation.culprits[0]
    assert (culprit.name, culprit.cause, report.explanation.method) == ("2/linear", "files_differ", "isolated")
    assert tuple(culprit.evidence["at"]) == (3, 1)


def test_a_layer_without_examples_takes_what_is_given(tmp_path: Path) -> None:
    file = tmp_path / "tokens.py"
    file.write_text(
        "import paddle\n\nclass Tokens(paddle.nn.Layer):\n    def __init__(self):\n        super().__init__()\n"
        "        self.table, self.last = paddle.nn.Embedding(50, 8), paddle.nn.Linear(8, 3)\n\n"
        "    def forward(self, tokens, past=None, mask=None):\n        x = self.table(tokens)\n"
        "        return self.last(x if mask is None else x * mask.unsqueeze(-1))\n\n"
        "def make():\n    return Tokens()\n"
    )
    np.savez(tmp_path / "in.npz", tokens=np.arange(6).reshape(2, 3), mask=np.ones((2, 3), np.float32))
    given = precision_debug.compare(f"{file}:make", run_mode="dygraph_fp32", inputs=str(tmp_path / "in.npz"))
    made = precision_debug.compare(f"{file}:make", run_mode="dygraph_fp32", input_shapes={"tokens": (2, 5)})
    assert {info.name: info.dtype for info in given.inputs} == {"tokens": "int64", "mask": "float32"}
    assert {info.name: info.shape for info in made.inputs} == {"tokens": (2, 5)}
    assert given.compared
    assert made.compared
