"""Paddle-TRT without a GPU: recorded inspector files, and builds that replay them."""

from __future__ import annotations

import os
import shutil
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle_models
import pytest
from approval import holds_approved, is_approved
from precision_debug_paddle import modes
from precision_debug_paddle.engine import capability, inspector_files, tensorrt, tensorrt_session, tf32
from precision_debug_paddle.model import read_model

from precision_debug.errors import BackendError, BackendUnavailable, UsageError
from precision_debug.inspector import EngineLayer, read_inspector
from precision_debug.protocols import progress_to
from precision_debug.records import ModelFiles, SessionSpec

RECORDED = Path(__file__).parent / "data" / "inspector"
FUSED = RECORDED / "paddle26_trt853_resnet18_fp16.json"
FP32 = RECORDED / "paddle26_trt853_resnet18_fp32.json"
INT8 = Path(__file__).parent / "data" / "paddle_trt" / "cnn_int8.json"
SMALL = Path(__file__).parent / "data" / "paddle_trt" / "cnn_fp16_in_fp32.json"
MARKED = RECORDED / "paddle26_trt853_resnet18_fp16_marked.json"
FEEDS = [paddle_models.feeds("resnet18")]
GIVEN = {key: {"x": (1, 3, 8, 8)} for key in ("min_shapes", "opt_shapes", "max_shapes")}


def test_fused_layers_outputs_are_tensors_of_the_program(tmp_path: Path) -> None:
    names = tensorrt.list_fused_names(read_inspector(FUSED))
    values = {value.name for value in read_model(_files(tmp_path)).program.values}
    assert names[0] == "relu_0.tmp_0"
    assert len(names) == 23
    known = [name for name in names if name in values]
    assert len(known) == 23
    assert "batch_norm_0.tmp_2" not in names, "it was fused away"


def test_all_marked_shows_the_fifty_tensors_of_the_recorded_run() -> None:
    names = tensorrt.list_fused_names(read_inspector(MARKED))
    assert len([name for name in names if "conv2d" in name]) == 0, "convolutions fold into batch norms"
    assert len(names) == 50


def test_columns_say_layer_precision_and_tactic() -> None:
    found = inspector_files.columns(read_inspector(FUSED))["relu_0.tmp_0"]
    assert found["Real Precision"] == "FP16"
    assert is_approved(found["Fused Layer"])
    assert found["Tactic"]


def test_a_reshaped_matrix_product_has_the_kernel_of_the_product() -> None:
    found = inspector_files.columns(read_inspector(SMALL))["linear_0.tmp_1"]
    assert found["Fused Layer"] == "reshape_after_matrix_multiply_op (Output: linear_0.tmp_0)"
    assert found["Tactic"].startswith("sm50_xmma_cublas")
    assert found["Real Precision"] == "FP32"


def test_what_stays_in_fp32_is_held_against_the_inspector() -> None:
    """On the recorded FP16 engine, in which nothing was kept: what ran in FP16 is told, and what is nobody's is not."""
    layers = read_inspector(FUSED)
    ran = inspector_files.list_kept(layers, ["batch_norm_0.tmp_2", "relu_0.tmp_0", "pool2d_0.tmp_0", "nobody"])
    assert ran["batch_norm_0.tmp_2"] == ran["relu_0.tmp_0"] == "FP16", "one fused layer"
    assert "nobody" not in ran


def test_what_was_asked_and_not_obeyed_is_said(
    tmp_path: Path, engines: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt.Builder, "_keep", lambda *_: None)  # Paddle takes a Config of its own alone
    session = _open(tmp_path, mark_all=False, disable_tensorrt_half_ops=("relu_0.tmp_0", "nobody"))
    (told,) = session.obeyed()
    assert told.startswith("relu_0.tmp_0 (FP32): does NOT run")
    assert told.endswith("FP16")


def test_the_precision_in_the_engine_that_ships_stands_beside() -> None:
    found = inspector_files.columns(read_inspector(MARKED), read_inspector(FUSED))
    relu = found["relu_1.tmp_0"]
    assert relu["Real Precision"] == "not reported", "a pointwise kernel of a dynamic engine tells nothing"
    assert relu["Precision There"] == "FP16", "where it is part of the convolution's kernel"
    there = {extra["Precision There"] for extra in found.values() if "Precision There" in extra}
    assert there == {"FP16", "FP32", "not reported"}
    differ = [name for name, extra in found.items() if {extra["Real Precision"], extra.get("Precision There")} == {
        "FP16", "FP32"
    }]  # fmt: skip
    assert inspector_files.note_other_precisions(found).startswith(f"{len(differ)} tensors were computed")
    assert "Precision There" not in inspector_files.columns(read_inspector(FUSED))["relu_1.tmp_0"]
    assert inspector_files.note_other_precisions(inspector_files.columns(read_inspector(FUSED))) == ""


def test_what_comes_before_a_batch_norm_that_paddle_did_not_fold_is_shown(
    tmp_path: Path, engines: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A convolution with a bias: its batch norm goes to TensorRT as such, so the one before it is kept."""
    files = ModelFiles(model_file=str(paddle_models.legacy("cnn", tmp_path)))
    spec = SessionSpec(model=files, mode="trt_fp16", work_dir=str(tmp_path))
    names = ["conv2d_0.tmp_0", "conv2d_0.tmp_1", "batch_norm_0.tmp_2"]
    monkeypatch.setattr(tensorrt, "list_fused_names", lambda _: names)
    for path, expected in ((SMALL, names), (FUSED, names[2:])):  # in FUSED there is no batch norm but folded ones
        monkeypatch.setitem(globals(), "FUSED", path)
        monkeypatch.setitem(globals(), "MARKED", path)
        folder = tmp_path / path.stem
        folder.mkdir()
        feeds = [paddle_models.feeds("cnn")]
        session = tensorrt_session.open_tensorrt(spec, read_model(files), modes.recipe("trt_fp16"), feeds, folder, {})
        assert _shown(session) == [*expected, OUTPUT]


@pytest.mark.parametrize(
    ("options", "calibrates", "how"),
    [
        ({}, False, "collected"),
        ({"collect_shape_range": False}, False, "feeds"),
        ({}, True, "static"),
        ({"use_dynamic_shape": False}, False, "static"),
        ({"use_dynamic_shape": True}, False, "collected"),
        ({"collect_shape_range": True}, False, "collected"),
        ({"shape_range_file": "f"}, False, "file"),
        (GIVEN, False, "given"),
        ({**GIVEN, "collect_shape_range": True}, False, "collected"),
        ({**GIVEN, "disable_tensorrt_ops": ["pool2d"]}, False, "collected"),
        ({**GIVEN, "disable_tensorrt_ops": ["pool2d"], "collect_shape_range": False}, False, "given"),
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


OUTPUT = "save_infer_model/scale_0.tmp_0"


class Engine:
    """In place of a predictor: writes the inspector file of a recorded build and shows its tensors."""

    log: list[list[str]]

    def __init__(self, config: dict[str, Any], *, where: str, mode: str) -> None:
        self.marks = config["marks"]
        folder = config["program"].parent / "_opt_cache"
        folder.mkdir(exist_ok=True)
        cache = next((values[0] for name, values, _ in config["calls"] if name == "set_optim_cache_dir"), f"{folder}/")
        assert not config["quiet"], "a quiet predictor switches Paddle's log off for the whole process"
        self.log.append(self.marks)
        self.all = len(self.marks) > 40
        if config["inspector"]:  # Paddle puts both together without a separator
            shutil.copyfile(MARKED if self.all else FUSED, f"{cache}engine_info_123.json")

    def run(self, feeds: Any, receiver: Any = None) -> dict[str, Any]:
        layers = read_inspector(MARKED if self.all else FUSED)
        names = [name for name in tensorrt.list_fused_names(layers) if name in self.marks]
        for name in names:
            if receiver is not None:
                receiver("tensorrt_engine", name, np.ones(self.size, np.float32))
        if receiver is not None:  # an output of the program is one of any engine
            receiver("tensorrt_engine", OUTPUT, np.ones(3, np.float32))
        if receiver is not None and self.extra:
            receiver(self.outside[0], "pool2d_1.tmp_0", self.outside[1])
        return {}

    extra = False
    size = 3
    outside: tuple[str, Any] = ("pool2d", np.ones(3, np.float32))

    def close(self) -> None:
        pass


class Config(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return lambda *values, **named: self["calls"].append((name, values, named))

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
        tensorrt, "make_config",
        lambda recipe, program, *_, quiet=True, **__: Config(
            program=program, marks=[], inspector=False, calls=[], quiet=quiet
        ),
    )  # fmt: skip
    monkeypatch.setattr(tensorrt.Builder, "_collected", lambda self: self.folder / "shape_range.pbtxt")
    monkeypatch.setattr(capability, "tensorrt_version", lambda: (8, 5, 3))
    monkeypatch.setattr(capability, "gpu", lambda: None)
    return Engine.log


def _files(folder: Path) -> ModelFiles:
    return ModelFiles(model_file=str(paddle_models.legacy("resnet18", folder)))


def _open(folder: Path, mode: str = "trt_fp16", feeds: Sequence[Mapping[str, Any]] = FEEDS, **options: Any) -> Any:
    spec = SessionSpec(model=_files(folder), mode=mode, options=options, work_dir=str(folder))
    return tensorrt_session.open_tensorrt(
        spec, read_model(spec.model), modes.recipe(mode), feeds, folder, {"paddle": "x"}
    )


def _shown(session: Any, names: Any = None) -> list[str]:
    seen: list[str] = []
    session.run(FEEDS[0], lambda op_type, name, tensor: seen.append(name), names)
    return seen


def test_all_marks_are_the_default_and_the_layers_they_add_are_said(tmp_path: Path, engines: list[list[str]]) -> None:
    session = _open(tmp_path)
    values = [value.name for value in read_model(_files(tmp_path)).program.values]
    assert [meta.name for meta in session.tensors] == values, "until it is built, any tensor may be seen"
    assert engines == [], "nothing is built before it is known what is wanted"
    assert not any("engines in" in note for note in session.notes)
    assert len(_shown(session)) == 50
    assert engines == [[name for name in values if name != OUTPUT], []], "rows first, then the engine that ships"
    assert holds_approved(list(session.notes))
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
    assert engines == [[], shown[:-1]]
    assert shown[-1] == OUTPUT
    assert any("fusion kept" in note for note in session.notes)


def test_only_the_wanted_tensors_are_marked_and_the_engine_is_built_once(
    tmp_path: Path, engines: list[list[str]]
) -> None:
    session = _open(tmp_path)
    wanted = {"relu_3.tmp_0", "relu_4.tmp_0"}
    assert set(_shown(session, wanted)) == wanted
    assert set(_shown(session, wanted)) == wanted
    assert engines == [["relu_3.tmp_0", "relu_4.tmp_0"], []]
    assert holds_approved(list(session.notes))


def test_an_engine_that_shows_more_is_used_again_and_each_build_is_told(
    tmp_path: Path, engines: list[list[str]]
) -> None:
    told: list[str] = []
    with progress_to(told.append):
        session = _open(tmp_path)
        every = _shown(session)
        assert _shown(session, frozenset(every)) == every, "as an explanation asks, of the tensors that were compared"
        assert _shown(session, {"relu_3.tmp_0"}) == ["relu_3.tmp_0"]
    assert len(engines) == 2, "each build of a real model takes a minute"
    assert [text[:17] for text in told] == ["building engine 1", "building engine 2"]
    assert any(note.startswith("TensorRT built 2 engines in ") for note in session.notes)


def test_a_tensor_without_a_dimension_is_shown_as_the_model_has_it(
    tmp_path: Path, engines: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on PP-OCR's cls: a slice of a shape, [] on the CPU and [1] in the engine, was a row that failed."""

    def collected(self: Any) -> Path:
        self.scalars.add("relu_3.tmp_0")
        return Path(self.folder, "shape_range.pbtxt")

    monkeypatch.setattr(tensorrt.Builder, "_collected", collected)
    monkeypatch.setattr(Engine, "size", 1)
    session, seen = _open(tmp_path), dict[str, Any]()
    session.run(FEEDS[0], lambda _, name, tensor: seen.update({name: np.shape(tensor)}))
    assert seen["relu_3.tmp_0"] == ()
    assert seen["relu_4.tmp_0"] == (1,)
    assert next(meta.shape for meta in session.tensors if meta.name == "relu_3.tmp_0") == ()


def test_what_the_marks_did_to_the_outputs_is_said() -> None:
    real = {"y": np.array([1.0, -4.0], np.float32)}
    assert not tensorrt_session.note_outputs_apart(real, {"y": real["y"].copy()})
    apart = tensorrt_session.note_outputs_apart(real, {"y": np.array([1.0, -3.0], np.float32)})
    assert "differ by at most 0.25," in apart
    assert "inf" in tensorrt_session.note_outputs_apart(
        {"y": np.array([np.nan], np.float32)}, {"y": np.ones(1, np.float32)}
    )


def test_rows_come_before_the_engine_that_ships_is_built_and_who_stops_pays_for_one(
    tmp_path: Path, engines: list[list[str]]
) -> None:
    session = _open(tmp_path)
    builds: list[int] = []

    def stop(op_type: str, name: str, tensor: Any) -> None:
        builds.append(len(engines))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.run(FEEDS[0], stop)
    assert builds == [1]
    assert len(engines) == 1
    assert any(meta.extra.get("Real Precision") == "FP16" for meta in session.tensors), "known without the other one"
    assert not session.doubts


def test_the_outputs_alone_cost_one_engine(tmp_path: Path, engines: list[list[str]]) -> None:
    """What a search asks for, of each set that it tries."""
    session = _open(tmp_path)
    assert _shown(session, {OUTPUT}) == [OUTPUT]
    session.run(FEEDS[0])
    assert engines == [[]]


def test_without_marks_the_engine_that_ships_shows_its_outputs(tmp_path: Path, engines: list[list[str]]) -> None:
    session = _open(tmp_path, mark_all=False)
    assert _shown(session) == ["save_infer_model/scale_0.tmp_0"]
    assert engines == [[]]


def test_a_stale_inspector_file_is_not_read(tmp_path: Path, engines: list[list[str]]) -> None:
    beside = tmp_path / "_opt_cache"
    beside.mkdir()
    (beside / "engine_info_9.json").write_text("stale")
    assert _shown(_open(tmp_path))


def test_a_cache_folder_holds_this_builds_inspector_file(tmp_path: Path, engines: list[list[str]]) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "engine_info_123.json").write_text("stale")
    session = _open(tmp_path, mark_all=False, cache_dir=str(cache))
    assert any("20 FP16" in note for note in session.notes)
    assert (cache / "engine_info_123.json").read_text() == FUSED.read_text()


@pytest.mark.parametrize("where", ["build/_opt_cache/", "build/_opt_cache", "build/", "cache", "cache/", "model/"])
def test_the_inspectors_file_is_found_wherever_paddle_puts_it(where: str, tmp_path: Path) -> None:
    for name in ("build/_opt_cache", "cache", "model"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "engine_info_1.json").write_text("stale")
    (tmp_path / "cacheengine_info_1.json").write_text("stale")
    files = inspector_files.InspectorFiles(tmp_path / "build", str(tmp_path / "cache"), [tmp_path / "model"])
    assert files.written() == ()
    (tmp_path / f"{where}engine_info_2.json").write_text("new") if not where.endswith("/") else (
        tmp_path / where / "engine_info_2.json"
    ).write_text("new")
    assert files.written() == (tmp_path / "cache" / "engine_info_2.json",)
    assert files.written()[0].read_text() == "new"


def test_files_of_several_engines_come_in_the_order_of_their_builds(tmp_path: Path) -> None:
    files = inspector_files.InspectorFiles(tmp_path, "", [])
    for stamp, name in enumerate(("engine_info_9.json", "engine_info_1.json")):
        (tmp_path / name).write_text("new")
        os.utime(tmp_path / name, (stamp, stamp))
    assert [path.name for path in files.written()] == ["engine_info_9.json", "engine_info_1.json"]


@pytest.mark.parametrize(
    ("file", "precision", "mode", "words"),
    [
        (FUSED, "float16", "trt_fp16", "unmarked engine's layers ran in: 20 FP16, 2 FP32; for 1 more"),
        (FUSED, "bfloat16", "trt_bf16", "NO LAYER OF THE UNMARKED ENGINE RAN IN BF16, which trt_bf16 asks for"),
        (SMALL, "float16", "trt_fp16", "kernels faster (5 FP32). The differences are not caused by FP16"),
        (INT8, "int8", "trt_int8", "NO LAYER OF THE UNMARKED ENGINE RAN IN INT8, which trt_int8 asks for"),
        (FP32, "float32", "trt_fp32", "19 RAN IN TF32 (10 bits of mantissa), not in FP32: 19 TF32, 4 FP32"),
    ],
)
def test_the_report_says_in_which_precision_the_layers_ran(file: Path, precision: str, mode: str, words: str) -> None:
    assert words in inspector_files.precision_note(read_inspector(file), precision, mode, marked=False)


def test_nothing_is_claimed_of_an_engine_that_is_one_opaque_region() -> None:
    region = EngineLayer(name="{ForeignNode[a...b]}", layer_type="Myelin")
    copy = EngineLayer(name="c", layer_type="PointWise", tactic_name="ffma_fp32")
    said = inspector_files.precision_note([region], "float16", "trt_fp16", marked=False)
    assert holds_approved(said)
    said = inspector_files.precision_note([region, copy], "float16", "trt_fp16", marked=False)
    assert holds_approved(said, 2)


def test_trt_fp32_is_fp32(tmp_path: Path, engines: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded FP32 engine has 19 convolutions in TF32, the default of TensorRT."""
    monkeypatch.setattr(os, "environ", {})
    recipe = modes.recipe("trt_fp32")
    tf32.settle(recipe, {})
    assert os.environ == {tf32.VARIABLE: "0"}
    assert any("TF32 was switched off" in note for note in _open(tmp_path, "trt_fp32", mark_all=False).notes)
    tf32.settle(modes.recipe("gpu_fp32"), {"tf32": True})
    assert os.environ == {tf32.VARIABLE: "0"}, "only TensorRT's modes"
    assert holds_approved(tf32.tensorrt_note(modes.recipe("trt_fp16"), {}))
    tf32.settle(recipe, {"tf32": True})
    assert os.environ == {}
    assert "left on" in tf32.tensorrt_note(recipe, {"tf32": True})
    tf32.settle(modes.recipe("trt_fp16"), {})
    assert os.environ == {}, "an engine in FP16 is compared as it ships"


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
    (tmp_path / "marked").mkdir()
    engines.clear()
    with pytest.raises(BackendUnavailable):
        _shown(_open(tmp_path / "marked"))
    assert len(engines) == 1, "a second engine is not built for nothing"
    (tmp_path / "fused").mkdir()
    engines.clear()
    with pytest.raises(BackendUnavailable):
        _open(tmp_path / "fused", fused_only=True)
    assert engines == [[]]


def test_operators_that_compute_shapes_may_stay_outside(
    tmp_path: Path, engines: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capability, "gpu", lambda: capability.Gpu("NVIDIA H200", "9.0", works=False))
    monkeypatch.setattr(Engine, "extra", True)
    monkeypatch.setattr(Engine, "outside", ("shape", np.array([2, 512], np.int32)))
    session = _open(tmp_path)
    assert _shown(session)
    assert holds_approved(list(session.notes))


def test_calibration_says_why_operators_stay_outside(
    tmp_path: Path, engines: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capability, "gpu", lambda: capability.Gpu("NVIDIA H200", "9.0", works=False))
    monkeypatch.setattr(Engine, "extra", True)
    with pytest.raises(BackendUnavailable, match="1x1 convolutions") as caught:
        _open(tmp_path, "trt_int8", mark_all=False)
    assert "\n" not in str(caught.value)
    assert "matmul_v2" in str(caught.value)
    assert not engines, "nothing is built for what is known from the program"
    monkeypatch.setattr(capability, "gpu", lambda: capability.Gpu("NVIDIA A100", "8.0", works=True))
    (tmp_path / "works").mkdir()
    _open(tmp_path / "works", "trt_int8", mark_all=False)
    assert engines


@pytest.mark.parametrize("given", [False, True])
def test_shapes_of_every_tensor_are_collected_on_the_cpu(given: bool, tmp_path: Path) -> None:
    pytest.importorskip("paddle", reason="paddlepaddle is not installed")
    shapes = {"min": (1, 3, 8, 8), "opt": (3, 3, 16, 16), "max": (4, 3, 24, 24)}
    options = {f"{which}_shapes": {"x": shape} for which, shape in shapes.items()} if given else {}
    spec = SessionSpec(
        model=ModelFiles(model_file=str(paddle_models.legacy("cnn", tmp_path))), mode="trt_fp16",
        options={**options, "collect_shape_range": True},
    )  # fmt: skip
    builder = tensorrt.Builder(
        spec, read_model(spec.model), modes.recipe("trt_fp16"), [paddle_models.feeds("cnn")], tmp_path
    )
    text = builder.ranges.read_text()
    of_tensor = {part.split('"')[1]: part for part in text.split("shape_range_info {")[1:]}
    found = {
        which: [int(line.split(":")[1]) for line in of_tensor["relu_0.tmp_0"].splitlines() if f"{which}_shape:" in line]
        for which in shapes
    }
    plain = [2, 8, 16, 16]
    assert found == ({which: [n, 8, *rest] for which, (n, _, *rest) in shapes.items()} if given else dict.fromkeys(
        shapes, plain
    ))  # fmt: skip
    assert any("collected on the CPU" in note for note in builder.notes)


def test_a_model_that_the_cpu_cannot_run_is_built_for_the_shapes_of_its_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: tensorrt.Builder) -> Path:
        raise BackendError("no such kernel", where="m")

    monkeypatch.setattr(tensorrt.Builder, "_collected", fails)
    spec = SessionSpec(model=_files(tmp_path), mode="trt_fp16")
    model, recipe = read_model(spec.model), modes.recipe("trt_fp16")
    builder = tensorrt.Builder(spec, model, recipe, FEEDS, tmp_path)
    assert (builder.shapes, builder.ranges[0]) == ("feeds", {"x": [2, 3, 64, 64]})
    assert holds_approved(list(builder.notes))
    asked = SessionSpec(model=spec.model, mode="trt_fp16", options={"collect_shape_range": True})
    with pytest.raises(BackendError, match="no such kernel"):
        tensorrt.Builder(asked, model, recipe, FEEDS, tmp_path)


@pytest.mark.parametrize("fewest", [0, 1])
def test_an_engine_that_fails_on_collected_shapes_is_built_for_the_inputs(
    fewest: int, tmp_path: Path, engines: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Picky(Engine):
        def __init__(self, config: Any, **named: Any) -> None:
            called = {name for name, _, _ in config["calls"]}
            if len(config["marks"]) >= fewest and "enable_tuned_tensorrt_dynamic_shape" in called:
                raise BackendError("no range of x", where="m")
            super().__init__(config, **named)

    monkeypatch.setattr(tensorrt, "Runner", Picky)
    session = _open(tmp_path, mark_all=True)
    assert len(_shown(session)) == 50
    assert holds_approved(list(session.notes))
    (tmp_path / "asked").mkdir()
    with pytest.raises(BackendError, match="no range of x"):
        _shown(_open(tmp_path / "asked", collect_shape_range=True))


@pytest.mark.parametrize("given", [False, True])
def test_calibration_tables_are_kept_and_taken(
    given: bool, tmp_path: Path, engines: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    had: list[str] = []

    class Calibrating(Engine):
        """Paddle writes the table beside the program when the predictor goes, and reads it there."""

        def __init__(self, config: Any, **named: Any) -> None:
            super().__init__(config, **named)
            assert not any(name == "set_optim_cache_dir" for name, _, _ in config["calls"])
            self.table = config["program"].parent / "_opt_cache" / "trt_calib_7"
            had.append(self.table.read_text() if self.table.exists() else "")

        def close(self) -> None:
            if not had[-1]:
                self.table.write_text("of the inputs")

    monkeypatch.setattr(tensorrt, "Runner", Calibrating)
    cache = tmp_path / "cache"
    cache.mkdir()
    if given:
        (cache / "trt_calib_7").write_text("of the user")
    session = _open(tmp_path, "trt_int8", [*FEEDS, *FEEDS], mark_all=False, cache_dir=str(cache))
    whose = "of the user" if given else "of the inputs"
    assert had == (["of the user", "of the user"] if given else ["", "of the inputs"])
    assert (cache / "trt_calib_7").read_text() == whose
    words = "come from a table in the cache folder" if given else "calibrated int8 on 2 sample set(s)"
    assert any(words in note for note in session.notes)
    assert (cache / "engine_info_123.json").exists()


def test_calibration_without_a_table_is_said(tmp_path: Path, engines: list[list[str]]) -> None:
    assert any("wrote no calibration table" in note for note in _open(tmp_path, "trt_int8", mark_all=False).notes)


def test_calibration_with_a_dynamic_shape_is_refused(tmp_path: Path, engines: list[list[str]]) -> None:
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
            tensorrt_session.open_tensorrt(
                chosen, read_model(spec.model), modes.recipe("trt_fp16"), [paddle_models.feeds("cnn")], tmp_path, {}
            )


def test_operators_cannot_be_bisected_on_a_card_without_code(
    tmp_path: Path, engines: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from precision_debug_paddle.engine import ladder

    from precision_debug.protocols import Rung

    monkeypatch.setattr(ladder, "passes_of", lambda *_: ("conv_bn_fuse_pass",))
    spec, rung = SessionSpec(model=_files(tmp_path), mode="trt_fp16"), Rung(name="TensorRT", mode="trt_fp16")
    first, second = ladder.switches(spec, rung, ["tensorrt_engine"])
    assert (first.name, getattr(first, "needs", None)) == ("operators that TensorRT takes", "")
    assert first.options(["pool2d"]) == {"disable_tensorrt_ops": ["pool2d"]}
    assert second.items == ("conv_bn_fuse_pass",)
    monkeypatch.setattr(capability, "gpu", lambda: capability.Gpu("NVIDIA H200", "9.0", works=False))
    first, _ = ladder.switches(spec, rung, ["tensorrt_engine"])
    assert "compute capability 9.0" in getattr(first, "needs", "")


@pytest.fixture
def paddle_tensorrt(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """paddle.tensorrt without TensorRT: the program goes through Paddle's own loading and saving, as there.

    Returns the settings of the last conversion.
    """
    paddle = pytest.importorskip("paddle", reason="exporting a PIR model takes Paddle 3")
    if not paddle.__version__.startswith("3"):
        pytest.skip("PIR takes Paddle 3")
    from precision_debug_paddle import make as build
    from precision_debug_paddle.engine import tensorrt_pir

    asked: dict[str, Any] = {}

    def convert(path: str, config: dict[str, Any]) -> None:
        asked.update(config)
        with paddle.pir_utils.IrGuard():
            executor = paddle.static.Executor(paddle.CPUPlace())
            program, _, _ = paddle.static.io.load_inference_model(path, executor=executor)
            ops = program.global_block().ops
            inputs = [value for op in ops if op.name() == "pd_op.data" for value in op.results()]
            outputs = [operand.source() for op in ops if op.name() == "pd_op.fetch" for operand in op.operands()]
            paddle.static.save_inference_model(config["save_model_dir"], inputs, outputs, executor, program=program)

    module = types.ModuleType("paddle.tensorrt")
    precisions = {name: name for name in ("FP32", "FP16", "BF16", "INT8")}
    module.__dict__.update(convert=convert, TensorRTConfig=dict, Input=dict, PrecisionMode=precisions)
    monkeypatch.setitem(sys.modules, "paddle.tensorrt", module)
    monkeypatch.setattr(
        tensorrt_pir, "make_config",
        lambda _, *paths, device: build.make_config(modes.recipe("cpu_fp32"), *paths, device="cpu"),
    )  # fmt: skip
    return asked


def test_a_pir_program_keeps_its_names_through_paddles_converter(
    tmp_path: Path, paddle_tensorrt: dict[str, Any]
) -> None:
    """Seen with Paddle 3.3.1: a program that is saved anew calls its outputs fetch_name_0, fetch_name_1, …"""
    spec = SessionSpec(
        model=ModelFiles(model_file=str(paddle_models.pir("encoder"))), mode="trt_fp16", work_dir=str(tmp_path),
        options={"disable_tensorrt_ops": ["softmax", "pd_op.gelu"], "delete_pass": "some_pass"},
    )  # fmt: skip
    model, feeds = read_model(spec.model), paddle_models.feeds("encoder")
    session = tensorrt_session.open_tensorrt(spec, model, modes.recipe("trt_fp16"), [feeds], tmp_path, {})
    seen: dict[str, Any] = {}
    session.run(feeds, lambda _, name, tensor: seen.update({name: np.array(tensor)}))
    assert list(seen) == [meta.name for meta in session.tensors]
    assert len(seen) == 58
    from precision_debug_paddle.opening import open_session

    (tmp_path / "base").mkdir()
    base = open_session(
        SessionSpec(model=spec.model, mode="cpu_fp32"), model, modes.recipe("cpu_fp32"), [feeds], tmp_path / "base"
    )
    expected: dict[str, Any] = {}
    base.run(feeds, lambda _, name, tensor: expected.update({name: np.array(tensor)}))
    assert seen.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(seen[name], array, err_msg=name)
    assert paddle_tensorrt["disable_ops"] == ["pd_op.softmax", "pd_op.gelu"]
    assert paddle_tensorrt["disable_passes"] == ["some_pass"]
    assert paddle_tensorrt["precision_mode"] == "FP16"
