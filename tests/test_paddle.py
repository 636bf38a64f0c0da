"""The Paddle backend on the CPU: both formats, every mode, and the traps that Paddle sets."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle_models
import pytest
from approval import holds_approved, raises_approved

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

from precision_debug_paddle import PaddleBackend, modes
from precision_debug_paddle.engine import bfloat16, capability
from precision_debug_paddle.engine.framework import import_inference

from precision_debug.errors import BackendError, BackendUnavailable, ModelError, PrecisionDebugError, UsageError
from precision_debug.observe.hooks import SaveBaseline
from precision_debug.pairing.align import align
from precision_debug.protocols import Session
from precision_debug.records import ModelFiles, Row, SessionSpec, Status, Tolerance
from precision_debug.report.complete_table import make_complete_table
from precision_debug.run.script_hooks import AssertClose

BF16 = pytest.mark.skipif(
    not modes.availability("onednn_bf16").ok, reason=f"onednn_bf16 {modes.availability('onednn_bf16').needs}"
)
OURS = ("resnet18", "mobilenet_v3", "encoder")


@functools.cache
def _legacy(name: str) -> Path:
    folder = paddle_models.pir(name).parent / "legacy"
    folder.mkdir(parents=True, exist_ok=True)
    return paddle_models.legacy(name, folder)


def model_of(kind: str, name: str) -> Path:
    return paddle_models.pir(name) if kind == "pir" else _legacy(name)


def open_in(path: Path, mode: str, folder: Path, feeds: Mapping[str, Any] | None = None, **options: Any) -> Session:
    folder.mkdir(parents=True, exist_ok=True)
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, options=options, work_dir=str(folder))
    return PaddleBackend().open(spec, [dict(feeds or paddle_models.feeds(path.stem))])


def compare(
    path: Path, mode: str, folder: Path, *, atol: float = 1e-4, rtol: float = 1e-4, **options: Any
) -> tuple[tuple[Row, ...], Session]:
    """Rows of the CPU baseline against a mode, and the target's session."""
    feeds = paddle_models.feeds(path.stem)
    base = open_in(path, "cpu_fp32", folder / "base", feeds)
    target = open_in(path, mode, folder / "target", feeds, **options)
    pairs = align(base.tensors, target.tensors)
    save = SaveBaseline()
    base.run(feeds, save)
    check = AssertClose(save, alignment=pairs, tolerance=Tolerance(atol=atol, rtol=rtol))
    target.run(feeds, check)
    return make_complete_table(check.rows, pairs), target


def named(tensors: Sequence[Any], head: str) -> str:
    """The PIR value whose name begins so: layer paths count over all models that a process exports."""
    return next(str(meta.name) for meta in tensors if meta.name.startswith(head))


def errors_of(rows: Sequence[Row]) -> list[float]:
    return [row.relative_l2 for row in rows if row.comparison is not None and row.relative_l2 is not None]


def raw_hooks(path: Path, mode: str) -> list[tuple[str, str, np.ndarray]]:
    """What Paddle's own hook shows, without this backend."""
    inference = import_inference()
    config = inference.Config(str(path), str(path.with_suffix(".pdiparams")))
    config.disable_gpu()
    config.disable_glog_info()
    if mode == "onednn":
        config.enable_onednn()
    elif mode == "bf16":
        config.enable_onednn()
        config.enable_onednn_bfloat16()
    else:
        config.disable_onednn()
        config.switch_ir_optim(False)
    predictor = inference.create_predictor(config)
    seen: list[tuple[str, str, np.ndarray]] = []
    predictor.register_output_hook(lambda op, name, tensor: seen.append((op, name, np.array(tensor))))
    handle = predictor.get_input_handle("x")
    handle.copy_from_cpu(paddle_models.feeds(path.stem)["x"])
    predictor.run()
    return seen


# share of the baseline's tensors that are compared, as measured with paddlepaddle 3.3.1; a fall is a loss of sight
SHARES = {
    ("legacy", "resnet18"): (0.70, 0.29, 0.23), ("legacy", "mobilenet_v3"): (0.82, 0.50, 0.44),
    ("legacy", "encoder"): (0.79, 0.52, 0.44), ("pir", "resnet18"): (1.0, 0.34, 0.34),
    ("pir", "mobilenet_v3"): (1.0, 0.41, 0.41), ("pir", "encoder"): (1.0, 0.44, 0.44),
}  # fmt: skip


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("kind", ["legacy", "pir"])
@pytest.mark.parametrize("mode", ["cpu_opt", "onednn_fp32", pytest.param("onednn_bf16", marks=BF16)])
def test_every_compared_tensor_agrees_as_its_precision_allows(kind: str, name: str, mode: str, tmp_path: Path) -> None:
    try:
        rows, session = compare(model_of(kind, name), mode, tmp_path)
    except BackendError as error:
        own = re.search(r"could not construct a memory descriptor|std::exception", str(error))
        if mode == "onednn_bf16" and own and "avx512_bf16" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
            pytest.skip(f"oneDNN simulates BF16 on this processor, and fails in Paddle's own predictor: {own.group()}")
        raise
    errors = errors_of(rows)
    share = len(errors) / len(rows)
    assert share >= SHARES[kind, name][("cpu_opt", "onednn_fp32", "onednn_bf16").index(mode)]
    if mode == "onednn_bf16":
        assert 1e-4 < float(np.median(errors)) < 3e-2
        assert max(errors) < 6e-2
    else:
        assert max(errors) < 1e-5
    assert not [row.name for row in rows if row.status is Status.UNMATCHED]
    assert all(row.reason for row in rows if row.status in {Status.NOT_COMPARED, Status.FUSED_AWAY})
    outputs = [row for row in rows if row.is_output]
    assert outputs
    assert all(row.comparison is not None for row in outputs)
    assert any(f"{len(errors)} of {len(rows)} tensors" in note for note in session.notes), "the share is said"


@pytest.mark.parametrize("mode", ["cpu_opt", "onednn_fp32"])
@pytest.mark.parametrize("kind", ["legacy", "pir"])
def test_several_outputs_integers_recurrence_and_control_flow(kind: str, mode: str, tmp_path: Path) -> None:
    rows, _ = compare(model_of(kind, "branches"), mode, tmp_path)
    assert max(errors_of(rows)) < 1e-5
    compared = [row for row in rows if row.comparison is not None]
    assert len(compared) > 0.6 * len(rows)
    assert sum(row.op_type == "split" for row in compared) >= 3, "Paddle's PIR hook passes over them"
    outputs = [row for row in rows if row.is_output]
    assert len(outputs) == 2
    assert all(row.status is Status.PASS for row in outputs)
    assert {row.comparison.base.dtype for row in outputs if row.comparison} == {"float32", "int64"}
    for row in rows:
        if row.status in {Status.NOT_COMPARED, Status.UNMATCHED}:
            assert "control-flow block" in row.reason or "baseline" in row.reason, row


@pytest.mark.parametrize("kind", ["legacy", "pir"])
def test_the_baseline_is_not_fused(kind: str, tmp_path: Path) -> None:
    """switch_ir_optim(False) alone does not do it in PIR."""
    session = open_in(model_of(kind, "cnn"), "cpu_fp32", tmp_path)
    types = Counter(meta.op_type for meta in session.tensors)
    assert types["conv2d"] == 2
    assert types["batch_norm"] == 2
    assert types["relu"] == 2
    assert not any("fused" in name or name == "fc" for name in types)


def test_in_place_operators_do_not_overwrite_what_is_saved(tmp_path: Path) -> None:
    """Paddle runs relu_ and add_ in place; a hook's buffer is overwritten by the next operator."""
    path = paddle_models.pir("cnn")
    assert any(op.startswith("pd_op.relu_:") for op, _, _ in raw_hooks(path, "plain")), "relu runs in place no more"
    save = SaveBaseline()
    open_in(path, "cpu_fp32", tmp_path).run(paddle_models.feeds("cnn"), save)
    relu, norm = (save.store.get(named(save.tensors, head)) for head in ("relu_0@", "batch_norm_0@"))
    assert relu is not None
    assert norm is not None
    np.testing.assert_array_equal(relu, np.maximum(norm, 0))


def test_blocked_layouts_are_never_compared_raw(tmp_path: Path) -> None:
    """Paddle's hook shows the right values in another order; the session shows them in the model's."""
    path = model_of("legacy", "cnn")
    raw = {name: array for _, name, array in raw_hooks(path, "onednn")}["relu_0.tmp_0"]
    base, ours = SaveBaseline(), SaveBaseline()
    feeds = paddle_models.feeds("cnn")
    open_in(path, "cpu_fp32", tmp_path / "base").run(feeds, base)
    session = open_in(path, "onednn_fp32", tmp_path / "target")
    session.run(feeds, ours)
    want, got = base.store.get("relu_0.tmp_0"), ours.store.get("relu_0.tmp_0")
    assert want is not None
    assert got is not None
    assert np.abs(raw - want).max() > 0.1, "the hook no longer shows blocked layouts"
    np.testing.assert_allclose(np.sort(raw.ravel()), np.sort(want.ravel()), atol=1e-5)
    np.testing.assert_allclose(got, want, atol=1e-5)
    assert next(meta for meta in session.tensors if meta.name == "relu_0.tmp_0").view == "unblocked"


@BF16
def test_bfloat16_is_decoded(tmp_path: Path) -> None:
    raw = [array for _, _, array in raw_hooks(paddle_models.pir("encoder"), "bf16")]
    assert any(array.dtype == np.uint16 for array in raw), "the hook no longer shows raw bits"
    rows, _ = compare(paddle_models.pir("encoder"), "onednn_bf16", tmp_path)
    assert max(errors_of(rows)) < 0.05
    from precision_debug_paddle.engine.predictor import decode_bfloat16

    bits = (np.array([1.0, -2.5], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(decode_bfloat16(bits, "paddle.bfloat16").astype(np.float32), [1.0, -2.5])
    assert decode_bfloat16(bits, "paddle.uint16").dtype == np.uint16


def test_running_statistics_and_empty_tensors_are_no_activations(tmp_path: Path) -> None:
    path = model_of("legacy", "cnn")
    names = [name for _, name, _ in raw_hooks(path, "plain")]
    assert {"batch_norm_0.tmp_0", "batch_norm2d_0.w_1"} <= set(names)
    session = open_in(path, "cpu_fp32", tmp_path)
    save = SaveBaseline()
    session.run(paddle_models.feeds("cnn"), save)
    assert not [meta.name for meta in save.tensors if ".w_" in meta.name or meta.name == "batch_norm_0.tmp_0"]
    assert any("not activations" in note for note in session.notes)


def test_the_last_operator_of_a_fusion_names_the_tensor_and_the_report_shows_both_types(tmp_path: Path) -> None:
    rows, _ = compare(model_of("legacy", "cnn"), "onednn_fp32", tmp_path)
    row = next(row for row in rows if row.name == "relu_0.tmp_0")
    assert (row.op_type, row.target_op_type, row.paired_by) == ("relu", "batch_norm", "exact")


def test_a_convolution_before_a_folded_batch_norm_is_another_tensor_under_its_old_name(tmp_path: Path) -> None:
    path = model_of("legacy", "resnet18")
    rows, session = compare(path, "cpu_opt", tmp_path)
    folded = [row for row in rows if row.op_type == "conv2d"]
    assert len(folded) == 20
    assert all(row.status is Status.FUSED_AWAY for row in folded)
    assert holds_approved(list(session.notes))


def test_pir_names_are_stable_though_paddles_are_not(tmp_path: Path) -> None:
    path = paddle_models.pir("cnn")
    first, second = raw_hooks(path, "onednn"), raw_hooks(path, "onednn")
    assert first[0][1] != second[0][1], "Paddle's own names have become stable"
    one, two = (open_in(path, "onednn_fp32", tmp_path / str(i)) for i in (1, 2))
    assert [meta.name for meta in one.tensors] == [meta.name for meta in two.tensors]
    assert named(one.tensors, "relu_0@ReLU")


def test_marks_do_not_change_what_the_fused_program_computes(tmp_path: Path) -> None:
    path = paddle_models.pir("resnet18")
    inference = import_inference()
    config = inference.Config(str(path), str(path.with_suffix(".pdiparams")))
    config.disable_gpu()
    config.disable_glog_info()
    config.enable_onednn()
    config.set_cpu_math_library_num_threads(1)
    predictor = inference.create_predictor(config)
    predictor.get_input_handle("x").copy_from_cpu(paddle_models.feeds("resnet18")["x"])
    predictor.run()
    plain = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    outputs = open_in(path, "onednn_fp32", tmp_path).run(paddle_models.feeds("resnet18"))
    np.testing.assert_array_equal(next(iter(outputs.values())), plain)


def test_a_value_that_a_pass_changed_is_shown_and_is_the_first_mismatch(tmp_path: Path) -> None:
    """Its fingerprint fits nothing any more; it must not pass for fused away."""

    def plant(weights: dict[str, Any]) -> None:
        weights["conv1.bias"] += 1e5
        weights["bn1._mean"] += 1e5

    path = paddle_models.export("cnn", tmp_path, change=plant)
    rows, _ = compare(path, "onednn_fp32", tmp_path / "runs", atol=1e-3, rtol=1e-3)
    first = next(row for row in rows if row.status is Status.FAIL)
    assert first.name.startswith("relu_0@")
    shown = {row.name.partition("@")[0] for row in rows if row.comparison is not None}
    assert {"relu_0", "relu_1", "pool2d_0", "flatten_0", "add_3", "softmax_0"} <= shown
    gone = {row.name.partition("@")[0] for row in rows if row.status is Status.FUSED_AWAY}
    assert {"conv2d_0", "batch_norm_0", "conv2d_1", "batch_norm_1"} <= gone


@BF16
def test_a_planted_fault_is_the_first_mismatch(tmp_path: Path) -> None:
    """One weight scaled: an offset of 300 that is added and taken away, which leaves nothing of a bfloat16."""

    def plant(weights: dict[str, Any]) -> None:
        weights["offset_0.w_0"] += 300

    tolerance = {"atol": 0.05, "rtol": 0.05}
    path = paddle_models.legacy("offset", tmp_path, change=plant)
    rows, _ = compare(path, "onednn_bf16", tmp_path / "runs", **tolerance)
    status = {row.name: row.status for row in rows}
    assert status["elementwise_add_0"] is Status.PASS, "the operator before the fault"
    first = next(row for row in rows if row.status is Status.FAIL)
    assert first.name == "elementwise_sub_0"
    rows, _ = compare(paddle_models.legacy("offset", tmp_path), "onednn_bf16", tmp_path / "healthy", **tolerance)
    assert not [row.name for row in rows if row.status is Status.FAIL]


@BF16
def test_paddles_own_bfloat16_failure_is_one_line_with_a_way_on(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable) as caught:
        open_in(model_of("legacy", "cnn"), "onednn_bf16", tmp_path)
    said = str(caught.value)
    assert "elementwise_add" in said
    assert "\n" not in said
    offered = re.search(r"--option 'bfloat16_ops=(\[.*?\])', which was run here: (\d+) of (\d+) kernels", said)
    assert offered is not None, said
    assert 0 < int(offered[2]) < int(offered[3])
    assert re.search(r"opens in \d+ s .*\d+ predictors", said)
    rows, _ = compare(model_of("legacy", "cnn"), "onednn_bf16", tmp_path, bfloat16_ops=json.loads(offered[1]))
    assert 1e-6 < max(errors_of(rows)) < 0.05


@BF16
def test_a_list_that_does_not_run_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfloat16, "_iterate_lists", lambda _kinds, _failing: iter([("elementwise_add",)]))
    with raises_approved(BackendUnavailable):
        open_in(model_of("legacy", "cnn"), "onednn_bf16", tmp_path)


@pytest.mark.parametrize("kind", ["legacy", "pir"])
def test_int8_without_scales_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no quantisation scales"):
        open_in(model_of(kind, "cnn"), "onednn_int8", tmp_path)


def test_a_quantised_model_runs_in_int8_and_is_shown_dequantised(tmp_path: Path) -> None:
    if not modes.availability("onednn_int8").ok:
        pytest.skip(f"onednn_int8 {modes.availability('onednn_int8').needs}")
    path = paddle_models.quantised("conv_norm", tmp_path)
    feeds = paddle_models.feeds("conv_norm")
    base, ours = SaveBaseline(), SaveBaseline()
    open_in(path, "cpu_fp32", tmp_path / "base", feeds).run(feeds, base)
    session = open_in(path, "onednn_int8", tmp_path / "target", feeds)
    session.run(feeds, ours)
    relu, pooled = ours.store.get("relu_0.tmp_0"), ours.store.get("pool2d_0.tmp_0")
    want = base.store.get("relu_0.tmp_0")
    assert relu is not None
    assert pooled is not None
    assert want is not None
    assert relu.dtype == np.float32
    np.testing.assert_allclose(relu.mean((2, 3), keepdims=True), pooled, rtol=1e-5, err_msg="the layout is the model's")
    assert np.abs(relu - want).max() > 1e-3, "nothing was quantised"
    assert next(meta for meta in session.tensors if meta.name == "relu_0.tmp_0").view == "dequantised, unblocked"


@pytest.mark.parametrize("mode", ["gpu_fp32", "gpu_fp16", "trt_fp16", "trt_int8"])
def test_a_gpu_mode_in_the_cpu_wheel_says_what_it_needs(mode: str, tmp_path: Path) -> None:
    if modes.availability(mode).ok:
        pytest.skip("this machine has a GPU that Paddle can use")
    with pytest.raises(BackendUnavailable) as caught:
        open_in(model_of("legacy", "cnn"), mode, tmp_path)
    assert "paddlepaddle-gpu" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_card_that_the_wheel_has_no_code_for_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = capability.Gpu("NVIDIA H200", "9.0", works=False)
    monkeypatch.setattr(capability, "gpu", lambda: card)
    paddle = capability.import_paddle()
    monkeypatch.setattr(paddle, "is_compiled_with_cuda", lambda: True)
    monkeypatch.setattr(capability, "tensorrt_version", lambda: (8, 5, 3))
    assert "compute capability 9.0" in modes.availability("gpu_fp32").needs
    assert "compute capability 9.0" in modes.availability("gpu_fp16").needs
    assert modes.availability("trt_fp16").ok, "TensorRT brings its own kernels"
    assert "TensorRT 9" in modes.availability("trt_bf16").needs
    session = open_in(model_of("legacy", "cnn"), "paddle_fp32", tmp_path)
    note = next(note for note in session.notes if "baseline ran on" in note)
    assert "on the CPU" in note
    assert "H200" in note


def test_a_kernel_that_cannot_run_is_not_taken_for_one_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver's device is there, the trial runs beside this process's own import of Paddle."""
    if capability.import_paddle().is_compiled_with_cuda():
        pytest.skip("for Paddle's CPU wheel")
    capability._probing.cache_clear()
    monkeypatch.setattr(capability, "_CARDS", Path(__file__))
    capability.missing(gpu=True, own_kernels=True, onednn=False, tensorrt=False, precision="float32")
    child = capability._probing()
    assert child is not None
    assert capability._kernels_work() is False
    assert child.returncode is not None
    capability._probing.cache_clear()


def test_big_models_are_shown_in_several_predictors(tmp_path: Path) -> None:
    whole, parts = SaveBaseline(), SaveBaseline()
    feeds = paddle_models.feeds("cnn")
    for mode in ("cpu_fp32", "onednn_fp32"):
        whole, parts = SaveBaseline(), SaveBaseline()
        open_in(paddle_models.pir("cnn"), mode, tmp_path / mode).run(feeds, whole)
        outputs = open_in(paddle_models.pir("cnn"), mode, tmp_path / f"{mode}_2", fetch_bytes=40_000).run(feeds, parts)
        assert [meta.name for meta in parts.tensors] == [meta.name for meta in whole.tensors]
        for meta in whole.tensors:
            np.testing.assert_array_equal(parts.store.get(meta.name), whole.store.get(meta.name))
        assert list(outputs) == [named(whole.tensors, "softmax_0@")]


def test_a_wrong_value_of_a_setting_is_refused(tmp_path: Path) -> None:
    with raises_approved(UsageError):
        open_in(model_of("legacy", "cnn"), "cpu_opt", tmp_path, threads="many")


def test_a_folder_is_a_model(tmp_path: Path) -> None:
    path = paddle_models.legacy("mlp", tmp_path)
    found = PaddleBackend().inputs(SessionSpec(model=ModelFiles(model_dir=str(tmp_path)), mode="cpu_fp32"))
    assert [(meta.name, meta.dtype, meta.shape) for meta in found] == [("x", "float32", ("dim0", 16))]
    path.rename(tmp_path / "inference.pdmodel")
    spec = SessionSpec(model=ModelFiles(model_dir=str(tmp_path)), mode="cpu_fp32", work_dir=str(tmp_path))
    assert PaddleBackend().open(spec, [paddle_models.feeds("mlp")]).tensors


@pytest.mark.parametrize("damage", ["cut", "empty", "json", "other json", "no params", "empty folder", "two"])
def test_a_model_that_is_none_is_one_line(damage: str, tmp_path: Path) -> None:
    path = paddle_models.legacy("mlp", tmp_path)
    files = ModelFiles(model_file=str(path))
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage in {"json", "other json"}:
        (tmp_path / "inference.json").write_text("{" if damage == "json" else '{"a": 1}')
        files = ModelFiles(model_file=str(tmp_path / "inference.json"))
    elif damage == "no params":
        path.with_suffix(".pdiparams").unlink()
    elif damage == "empty folder":
        (tmp_path / "empty").mkdir()
        files = ModelFiles(model_dir=str(tmp_path / "empty"))
    else:
        (tmp_path / "other.pdmodel").write_bytes(path.read_bytes())
        files = ModelFiles(model_dir=str(tmp_path))
    with pytest.raises(ModelError) as caught:
        PaddleBackend().inputs(SessionSpec(model=files, mode="cpu_fp32"))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_feeds_of_another_shape_are_paddles_error_in_one_line(tmp_path: Path) -> None:
    session = open_in(model_of("legacy", "cnn"), "cpu_fp32", tmp_path)
    with pytest.raises(PrecisionDebugError) as caught:
        session.run({"x": np.zeros((2, 4, 16, 16), np.float32)})
    assert "conv2d" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


_IN_PLACE = ("log", "rsqrt", "silu", "square", "floor", "erf", "pow", "exp")


@pytest.fixture(scope="module")
def linears(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PIR program in which linear layers stand before operators that Paddle's passes run in place."""
    import paddle
    from paddle import nn

    class Linears(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LayerList([nn.Linear(16, 16) for _ in range(len(_IN_PLACE))])

        def forward(self, x: Any) -> Any:
            ways = []
            for name, layer in zip(_IN_PLACE, self.layers):  # noqa: B905  Paddle's own zip takes no strict
                value = layer(x) + 9.0 if name in {"log", "rsqrt"} else layer(x)
                function = getattr(nn.functional if name == "silu" else paddle, name)
                ways.append(function(value, 3.0) if name == "pow" else function(value))
            return paddle.concat(ways, axis=1)

    paddle.seed(0)
    net = Linears()
    net.eval()
    spec = paddle.static.InputSpec([None, 16], "float32", name="x")
    path = tmp_path_factory.mktemp("linears") / "mlp"
    paddle.jit.save(paddle.jit.to_static(net, input_spec=[spec], full_graph=True), str(path))
    return path.with_suffix(".json")


@pytest.mark.parametrize("mode", ["cpu_opt", "onednn_fp32", pytest.param("onednn_bf16", marks=BF16)])
def test_what_is_fetched_was_not_overwritten_by_an_operator_in_place(mode: str, linears: Path, tmp_path: Path) -> None:
    """Paddle runs log, rsqrt, … in place over a linear layer's output; fetched, it held the later values."""
    rows, session = compare(linears, mode, tmp_path)
    compared = [row for row in rows if row.comparison is not None]
    assert sum(row.op_type == "add" for row in compared) >= 6
    assert max(errors_of(rows)) < (5e-2 if mode == "onednn_bf16" else 1e-5)
    if mode == "onednn_fp32":
        from precision_debug_paddle.engine.hook_check import digest

        seen = {digest(array) for _, _, array in raw_hooks(linears, "onednn")}
        shown = SaveBaseline()
        session.run(paddle_models.feeds("mlp"), shown)
        arrays = [shown.store.get(meta.name) for meta in shown.tensors]
        assert all(digest(array) in seen for array in arrays if array is not None)
        assert len(arrays) > 10


@pytest.mark.parametrize("mode", ["cpu_opt", "onednn_fp32", pytest.param("onednn_bf16", marks=BF16)])
def test_what_a_loop_carries_is_compared_with_its_last_iteration(mode: str, tmp_path: Path) -> None:
    """The variable is written before the loop and by it; fetched, it holds what the loop left."""
    rows, _ = compare(model_of("legacy", "loop"), mode, tmp_path, atol=0.05, rtol=0.05)
    carried = {row.name: row for row in rows if row.name.startswith("linear_0.tmp_1@")}
    assert list(carried) == ["linear_0.tmp_1@0", "linear_0.tmp_1@1"]
    assert [row.op_type for row in carried.values()] == ["elementwise_add", "while"]
    assert carried["linear_0.tmp_1@1"].status is Status.PASS
    assert not [row.name for row in rows if row.status is Status.FAIL]
    reached = next(row for row in rows if row.name == "sum_0.tmp_0")
    assert reached.inputs == ("linear_0.tmp_1@1",)
    if mode == "cpu_opt":
        assert carried["linear_0.tmp_1@0"].status is Status.PASS
    else:
        assert holds_approved(carried["linear_0.tmp_1@0"].reason)
