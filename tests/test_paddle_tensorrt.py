"""Paddle-TRT without a GPU: recorded inspector files, and builds that replay them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle_models
import pytest
from precision_debug_paddle import capability, engine, modes, tensorrt
from precision_debug_paddle.model import read_model

from precision_debug.errors import BackendUnavailable, UsageError
from precision_debug.inspector import read_inspector
from precision_debug.records import ModelFiles, SessionSpec

RECORDED = Path(__file__).parent / "data" / "inspector"
FUSED = RECORDED / "paddle26_trt853_resnet18_fp16.json"
MARKED = RECORDED / "paddle26_trt853_resnet18_fp16_marked.json"
FEEDS = [paddle_models.feeds("resnet18")]


def test_fused_layers_outputs_are_tensors_of_the_program(tmp_path: Path) -> None:
    names = tensorrt.fused_names(read_inspector(FUSED))
    values = {value.name for value in read_model(_files(tmp_path)).program.values}
    assert names[0] == "relu_0.tmp_0"
    assert len(names) == 23
    known = [name for name in names if name in values]
    assert len(known) == 23
    assert "batch_norm_0.tmp_2" not in names, "it was fused away"


def test_all_marked_shows_the_fifty_tensors_of_the_recorded_run() -> None:
    names = tensorrt.fused_names(read_inspector(MARKED))
    assert len([name for name in names if "conv2d" in name]) == 0, "convolutions fold into batch norms"
    assert len(names) == 50


def test_columns_say_layer_precision_and_tactic() -> None:
    found = engine.columns(read_inspector(FUSED))["relu_0.tmp_0"]
    assert found["Real Precision"] == "FP16"
    assert found["Fused Layer"] == "conv2d (Output: batch_norm_0.tmp_2) + relu (Output: relu_0.tmp_0)"
    assert found["Tactic"]


@pytest.mark.parametrize(
    ("options", "calibrates", "how"),
    [
        ({}, False, "feeds"),
        ({}, True, "static"),
        ({"use_dynamic_shape": False}, False, "static"),
        ({"use_dynamic_shape": True}, False, "feeds"),
        ({"collect_shape_range": True}, False, "collected"),
        ({"shape_range_file": "f"}, False, "file"),
        ({key: {"x": (1, 3, 8, 8)} for key in ("min_shapes", "opt_shapes", "max_shapes")}, False, "given"),
    ],
)
def test_where_shapes_come_from(options: Mapping[str, Any], calibrates: bool, how: str) -> None:
    assert tensorrt.shape_range(options, calibrates=calibrates, feeds=FEEDS) == how


@pytest.mark.parametrize(
    ("options", "calibrates", "words"),
    [
        ({"use_dynamic_shape": True}, True, "ends the process"),
        ({"collect_shape_range": True}, True, "ends the process"),
        ({"use_dynamic_shape": False, "collect_shape_range": True}, False, "contradicts"),
        ({"min_shapes": {"x": (1,)}}, False, "--opt_shapes and --max_shapes"),
        ({key: {"y": (1,)} for key in ("min_shapes", "opt_shapes", "max_shapes")}, False, "nothing of input x"),
    ],
)
def test_settings_on_which_paddle_aborts_are_refused(options: Mapping[str, Any], calibrates: bool, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        tensorrt.shape_range(options, calibrates=calibrates, feeds=FEEDS)
    assert "\n" not in str(caught.value)


class Engine:
    """In place of a predictor: writes the inspector file of a recorded build and shows its tensors."""

    log: list[list[str]]

    def __init__(self, config: dict[str, Any], *, where: str, mode: str) -> None:
        self.marks = config["marks"]
        folder = config["program"].parent / "_opt_cache"
        folder.mkdir(exist_ok=True)
        self.log.append(self.marks)
        self.all = len(self.marks) > 40
        if config["inspector"]:
            shutil.copyfile(MARKED if self.all else FUSED, folder / "engine_info_123.json")

    def run(self, feeds: Any, receiver: Any = None) -> dict[str, Any]:
        layers = read_inspector(MARKED if self.all else FUSED)
        names = [name for name in tensorrt.fused_names(layers) if name in self.marks]
        for name in names:
            if receiver is not None:
                receiver("tensorrt_engine", name, np.ones(3, np.float32))
        if receiver is not None and not names:
            receiver("tensorrt_engine", "save_infer_model/scale_0.tmp_0", np.ones(3, np.float32))
        if receiver is not None and self.extra:
            receiver("pool2d", "pool2d_1.tmp_0", np.ones(3, np.float32))
        return {}

    extra = False

    def close(self) -> None:
        pass


class Config(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return lambda *values, **named: self.setdefault("calls", []).append((name, values, named))

    def enable_tensorrt_inspector(self, serialize: bool) -> None:
        self["inspector"] = serialize

    def mark_trt_engine_outputs(self, names: list[str]) -> None:
        self["marks"] = names


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The marks of each build."""
    pytest.importorskip("paddle", reason="paddlepaddle is not installed")
    Engine.log = []
    monkeypatch.setattr(Engine, "extra", False)
    monkeypatch.setattr(tensorrt, "Runner", Engine)
    monkeypatch.setattr(
        tensorrt, "make_config", lambda recipe, program, *_, **__: Config(program=program, marks=[], inspector=False)
    )
    monkeypatch.setattr(capability, "tensorrt_version", lambda: (8, 5, 3))
    monkeypatch.setattr(capability, "gpu", lambda: None)
    return Engine.log


def _files(folder: Path) -> ModelFiles:
    return ModelFiles(model_file=str(paddle_models.legacy("resnet18", folder)))


def _open(folder: Path, mode: str = "trt_fp16", feeds: Sequence[Mapping[str, Any]] = FEEDS, **options: Any) -> Any:
    spec = SessionSpec(model=_files(folder), mode=mode, options=options, work_dir=str(folder))
    return tensorrt.open_tensorrt(spec, read_model(spec.model), modes.recipe(mode), feeds, folder, {"paddle": "x"})


def _shown(session: Any, names: Any = None) -> list[str]:
    seen: list[str] = []
    session.run(FEEDS[0], lambda op_type, name, tensor: seen.append(name), names)
    return seen


def test_all_marks_are_the_default_and_the_layers_they_add_are_said(
    tmp_path: Path, engines: list[list[str]]
) -> None:
    session = _open(tmp_path)
    values = [value.name for value in read_model(_files(tmp_path)).program.values]
    assert [meta.name for meta in session.tensors] == values, "until it is built, any tensor may be seen"
    assert len(_shown(session)) == 50
    assert engines == [[], values]
    assert any("from 26 layers to 87" in note for note in session.notes)
    assert len(session.tensors) == 50
    norm = next(meta for meta in session.tensors if meta.name == "batch_norm_0.tmp_2")
    assert norm.op_type == "tensorrt_engine"
    assert norm.extra["Real Precision"] == "FP16"


def test_fused_only_marks_what_the_first_build_still_computed(tmp_path: Path, engines: list[list[str]]) -> None:
    session = _open(tmp_path, fused_only=True)
    assert "relu_0.tmp_0" in [meta.name for meta in session.tensors]
    assert "batch_norm_0.tmp_2" not in [meta.name for meta in session.tensors]
    shown = _shown(session)
    assert len(shown) == 23
    assert engines == [[], shown]
    assert any("fusion kept" in note for note in session.notes)


def test_only_the_wanted_tensors_are_marked_and_the_engine_is_built_once(
    tmp_path: Path, engines: list[list[str]]
) -> None:
    session = _open(tmp_path)
    wanted = {"relu_3.tmp_0", "relu_4.tmp_0"}
    assert set(_shown(session, wanted)) == wanted
    assert set(_shown(session, wanted)) == wanted
    assert engines == [[], ["relu_3.tmp_0", "relu_4.tmp_0"]]
    assert any("2 tensors were marked; fusion kept" in note for note in session.notes)


def test_without_marks_the_engine_that_ships_shows_its_outputs(tmp_path: Path, engines: list[list[str]]) -> None:
    session = _open(tmp_path, mark_all=False)
    assert _shown(session) == ["save_infer_model/scale_0.tmp_0"]
    assert engines == [[]]


def test_a_stale_inspector_file_is_not_read(tmp_path: Path, engines: list[list[str]]) -> None:
    beside = tmp_path / "_opt_cache"
    beside.mkdir()
    (beside / "engine_info_9.json").write_text("stale")
    assert _shown(_open(tmp_path))


def test_operators_outside_the_engine_are_refused_on_a_card_without_code(
    tmp_path: Path, engines: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capability, "gpu", lambda: capability.Gpu("NVIDIA H200", "9.0", works=False))
    (tmp_path / "whole").mkdir()
    session = _open(tmp_path / "whole")
    _shown(session)
    assert any("TensorRT ran every operator" in note for note in session.notes)
    monkeypatch.setattr(Engine, "extra", True)
    (tmp_path / "parts").mkdir()
    with pytest.raises(BackendUnavailable) as caught:
        _open(tmp_path / "parts", mark_all=False)
    assert "pool2d" in str(caught.value)
    assert "compute capability 9.0" in str(caught.value)


def test_calibration_builds_twice_from_the_same_folder(tmp_path: Path, engines: list[list[str]]) -> None:
    session = _open(tmp_path, "trt_int8", [*FEEDS, *FEEDS], mark_all=False)
    assert len(engines) == 2
    assert any("calibrated int8 on 2 sample set(s)" in note for note in session.notes)
    with pytest.raises(UsageError, match="ends the process"):
        _open(tmp_path, "trt_int8", use_dynamic_shape=True)


def test_pir_goes_another_way_and_says_what_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("paddle", reason="exporting a PIR model takes Paddle 3")
    path = paddle_models.pir("cnn")
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode="trt_fp16", work_dir=str(tmp_path))
    for options, error, words in (
        ({}, BackendUnavailable, "paddle.tensorrt"),
        ({"fused_only": True}, UsageError, "no inspector"),
    ):
        chosen = SessionSpec(model=spec.model, mode=spec.mode, options=options, work_dir=str(tmp_path))
        with pytest.raises(error, match=words):
            tensorrt.open_tensorrt(
                chosen, read_model(spec.model), modes.recipe("trt_fp16"), [paddle_models.feeds("cnn")], tmp_path, {}
            )
