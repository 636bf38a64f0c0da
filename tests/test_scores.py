"""Labels that cannot be right are found before a model runs, and agreement says of how many samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from approval import is_approved

from precision_debug import compare
from precision_debug.errors import InputError, UsageError
from precision_debug.numbers.scores import check_labels, load_labels, score_classes
from precision_debug.records import ModelFiles, RunSpec, TensorMeta
from precision_debug.run.plan import make_plan

SCORES = np.float32([[1, 2, 3], [3, 2, 1], [1, 3, 2], [0, 1, 2]])


def output(*shape: int | str) -> TensorMeta:
    return TensorMeta(name="y", op_type="Softmax", is_output=True, shape=shape)


def test_shares_are_of_samples() -> None:
    found = score_classes({"y": SCORES}, {"y": SCORES[:, ::-1]}, np.array([2, 0, 1, 0]))
    assert found is not None
    assert (found.samples, found.shares["top-1 agreement"]) == (4, 0.25)
    assert found.shares["top-1 accuracy, baseline"] == 0.75
    assert score_classes({"y": SCORES[:, :1]}, {"y": SCORES[:, :1]}) is None


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((4, 1), np.int64), np.zeros(4), np.array([], np.int64), np.array([0, -1, 2, 1]), b"no array",
        b"PK\x05\x06 no archive",
    ],
)  # fmt: skip
def test_what_is_no_label_file_is_refused(tmp_path: Path, wrong: Any) -> None:
    path = tmp_path / "labels.npy"
    path.write_bytes(wrong) if isinstance(wrong, bytes) else np.save(path, wrong)
    with pytest.raises(InputError):
        load_labels(str(path))


@pytest.mark.parametrize(
    ("labels", "outputs", "what"),
    [
        ([0, 1, 2], (), "3 labels for inputs of 4 samples"),
        ([0, 1, 2, 3], (output(4, 3),), "class 3 among the labels, and the model has 3"),
        ([0, 1, 2, 1], (output(4, 3, 8, 8), output(4, 1)), "no output of shape"),
        ([0, 1, 2, 2], (output("N", 3),), ""),
        ([0, 1, 2, 9], (output("N", "C"),), ""),
        ([0, 1, 2, 9], (TensorMeta(name="y", op_type="If", is_output=True),), ""),
    ],
)
def test_labels_that_cannot_belong_to_the_run(labels: list[int], outputs: Any, what: str) -> None:
    feeds = {"x": np.zeros((4, 8), np.float32), "scale": np.float32(2)}
    if not what:
        check_labels(np.array(labels), feeds, outputs)
        return
    with pytest.raises(InputError, match=what):
        check_labels(np.array(labels), feeds, outputs)


def test_wrong_labels_stop_a_command_before_a_tensor_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from precision_debug.observe import hooks

    def never(*_: Any) -> None:
        raise AssertionError("a tensor was shown")

    monkeypatch.setattr(hooks.SaveBaseline, "_seen", never)
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    feeds = {"x": np.zeros((2, 8), np.float32)}
    for labels in ([0], [0, 10**6]):
        np.save(tmp_path / "labels.npy", np.array(labels))
        with pytest.raises(InputError):
            compare(tmp_path / "m.onnx", run_mode="ort_opt", inputs=feeds, labels=tmp_path / "labels.npy")


def test_agreement_is_shown_where_it_is_asked_for(tmp_path: Path) -> None:
    from precision_debug.cli.summary import format_summary

    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)}
    assert compare(tmp_path / "m.onnx", run_mode="ort_opt", inputs=feeds).scores == {}
    asked = compare(tmp_path / "m.onnx", run_mode="ort_opt", inputs=feeds, top1=True)
    assert (asked.scores, asked.scored) == ({"top-1 agreement": 1.0}, 3)
    assert "top-1 agreement 100.00% (n = 3)" in " ".join(
        f"{line.label.en} {line.text.en}" for line in format_summary(asked)
    )


@pytest.mark.parametrize("wanted", [{"validate": True}, {"labels": "l.npy"}, {"top1": True}])
def test_what_judges_rows_is_refused_where_a_run_is_only_recorded(tmp_path: Path, wanted: dict[str, Any]) -> None:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    model = ModelFiles(model_file=str(tmp_path / "m.onnx"))
    with pytest.raises(UsageError, match="--record without --baseline"):
        make_plan(RunSpec(model=model, run_mode="ort_fp32", record="rec", **wanted), check_machine=False)
    with_baseline = RunSpec(model=model, run_mode="ort_fp32", record="rec", baseline="ort_fp32", **wanted)
    make_plan(with_baseline, check_machine=False)


@pytest.mark.parametrize("equal_nan", [False, True])
def test_validating_decides_row_by_row(tmp_path: Path, equal_nan: bool) -> None:
    from precision_debug.records import Tolerance

    x = onnx_models.value("x", (8,))
    nodes = [onnx.helper.make_node("Div", ["x", "zero"], ["inf"]), onnx.helper.make_node("Abs", ["x"], ["fine"])]
    zero = onnx.numpy_helper.from_array(np.float32([0]), "zero")
    outputs = [onnx_models.value(name, (8,)) for name in ("inf", "fine")]
    graph = onnx.helper.make_graph(nodes, "g", [x], outputs, [zero])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, tmp_path / "m.onnx")
    settings: dict[str, Any] = {
        "run_mode": "ort_opt", "inputs": {"x": np.arange(1, 9, dtype=np.float32)},
        "tolerance": Tolerance(equal_nan=equal_nan),
    }  # fmt: skip
    plain = compare(tmp_path / "m.onnx", **settings)
    assert {row.name: str(row.status) for row in plain.outputs} == {"inf": "pass", "fine": "pass"}
    checked = compare(tmp_path / "m.onnx", validate=True, **settings)
    assert {row.name: str(row.status) for row in checked.outputs} == {"inf": "fail", "fine": "pass"}
    row = checked.first_mismatch
    assert row is not None
    assert is_approved(row.reason)
    assert str(checked.verdict) == "out of tolerance"
