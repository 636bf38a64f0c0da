"""What a hook is shown: the right tensor, in the model's layout, with the numbers that the engine really had."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_models
import onnxruntime as ort
import pytest
from approval import holds_approved, raises_approved
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static
from onnxruntime.transformers.float16 import convert_float_to_float16
from precision_debug_onnxruntime import OnnxRuntimeBackend
from precision_debug_onnxruntime.engine import tapped_graph

import precision_debug
from precision_debug.errors import InputError, ModelError, UsageError
from precision_debug.numbers.arrays import HostComparer
from precision_debug.pairing.align import align
from precision_debug.records import ModelFiles, SessionSpec, TensorMeta
from precision_debug.testing.backend_contract import CopyingHook, have_same_bits

X = np.random.default_rng(7).standard_normal((2, 3, 16, 16)).astype(np.float32)
LEVELS = ort.GraphOptimizationLevel


def opened(model: onnx.ModelProto, mode: str, folder: Path, feeds: dict[str, Any], **options: Any) -> Any:
    path = folder / "model.onnx"
    onnx.save(model, path)
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, options=options, work_dir=str(folder))
    return OnnxRuntimeBackend().open(spec, [feeds])


def recorded(session: Any, feeds: dict[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, TensorMeta]]:
    hook = CopyingHook()
    session.run(feeds, hook)
    return hook.arrays, {meta.name: meta for meta in session.tensors}


def plain_run(model: bytes | str, feeds: dict[str, Any], level: Any = LEVELS.ORT_ENABLE_ALL) -> list[Any]:
    """What somebody gets who runs the model in a session of their own."""
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    return list(ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds))


def relative(first: np.ndarray, second: np.ndarray) -> float:
    one, two = first.astype(np.float64), second.astype(np.float64)
    assert one.shape == two.shape
    return float(np.linalg.norm(two - one) / max(float(np.linalg.norm(one)), 1e-30))


# mode: largest relative L2 error that rounding can explain here; a wrong partner is far beyond it
LIMITS = {
    "ort_fp32": 0.0, "ort_opt": 2e-6, "onnx_ref": 2e-6, "ort_fp16": 3e-3, "ort_fp16_sim": 3e-3, "ort_bf16_sim": 2e-2,
    "ort_int8": 6e-2, "ort_int8_dynamic": 6e-2,
}  # fmt: skip


@pytest.mark.parametrize("channels", [16, 20])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("mode", LIMITS)
def test_every_pair_holds_the_same_tensor(tmp_path: Path, mode: str, named: bool, channels: int) -> None:
    model, feeds = onnx_models.convnet(channels, named=named), {"x": X}
    base_session = opened(model, "ort_fp32", tmp_path, feeds)
    base, base_metas = recorded(base_session, feeds)
    session = opened(model, mode, tmp_path, feeds)
    target, metas = recorded(session, feeds)
    alignment = align(list(base_metas.values()), list(metas.values()))
    compared = 0
    for pair in alignment.pairs.values():
        if pair.target.unseen or pair.base.unseen:
            continue
        error = relative(base[pair.base.name], target[pair.target.name])
        assert error <= LIMITS[mode], f"{pair.base.name} with {pair.target.name}: {error}"
        compared += 1
    assert compared >= {"ort_opt": 10, "ort_fp16": 10, "ort_int8": 12}.get(mode, 15)
    assert {"prob", "r3"} <= {p.base.name for p in alignment.pairs.values() if not p.target.unseen}


@pytest.mark.parametrize("name", ["attention", "mobile"])
@pytest.mark.parametrize("mode", LIMITS)
def test_every_pair_holds_the_same_tensor_where_layouts_are_moved_about(tmp_path: Path, mode: str, name: str) -> None:
    """Transpositions that the optimiser pushes through a graph leave values that look like the source's."""
    model = getattr(onnx_models, name)()
    x = np.random.default_rng(3).standard_normal((2, 10, 32) if name == "attention" else (2, 3, 16, 16))
    feeds = {"x": x.astype(np.float32)}
    base, base_metas = recorded(opened(model, "ort_fp32", tmp_path, feeds), feeds)
    target, metas = recorded(opened(model, mode, tmp_path, feeds), feeds)
    alignment = align(list(base_metas.values()), list(metas.values()))
    pairs = [pair for pair in alignment.pairs.values() if not pair.target.unseen and not pair.base.unseen]
    assert len(pairs) >= 14
    for pair in pairs:
        error = relative(base[pair.base.name], target[pair.target.name])
        assert error <= 3 * LIMITS[mode], f"{pair.base.name} with {pair.target.name}: {error}"


def test_the_wrong_partner_would_be_noticed(tmp_path: Path) -> None:
    base, _ = recorded(opened(onnx_models.convnet(), "ort_fp32", tmp_path, {"x": X}), {"x": X})
    like = {name: array for name, array in base.items() if array.shape == base["r3"].shape and name != "r3"}
    assert len(like) >= 4
    assert min(relative(array, base["r3"]) for array in like.values()) > max(LIMITS.values())


def test_mlp_pairs_through_the_transformer_fusions(tmp_path: Path) -> None:
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)}
    base, _ = recorded(opened(onnx_models.mlp(), "ort_fp32", tmp_path, feeds), feeds)
    target, metas = recorded(opened(onnx_models.mlp(), "ort_opt", tmp_path, feeds), feeds)
    assert len(metas) < len(base)
    for name, meta in metas.items():
        if not meta.unseen:
            assert relative(base[meta.origin or name], target[name]) < 1e-5, name


# ---- blocked and channels-last layouts


@pytest.mark.parametrize(("channels", "expected"), [(16, {"r1", "p1", "r2"}), (20, {"r2"})])
def test_blocked_tensors_are_shown_unblocked_and_without_their_padding(
    tmp_path: Path, channels: int, expected: set[str]
) -> None:
    model, feeds = onnx_models.convnet(channels), {"x": X}
    target, metas = recorded(opened(model, "ort_opt", tmp_path, feeds), feeds)
    blocked = {name: meta for name, meta in metas.items() if meta.view == "unblocked"}
    if not any("nchwc" in meta.node for meta in metas.values()):
        pytest.skip("this processor's ONNX Runtime does not block channels")
    assert {meta.origin for meta in blocked.values()} >= expected
    assert all(target[name].shape[1] == channels for name in blocked)
    assert all(meta.shape is not None and meta.shape[1] == channels for meta in blocked.values())


def test_a_blocked_tensor_that_cannot_be_unblocked_is_not_shown() -> None:
    from precision_debug_onnxruntime.engine.model_layout import make_view
    from precision_debug_onnxruntime.engine.same_tensor import Form
    from precision_debug_onnxruntime.engine.types import TypeInfo

    view = make_view(TypeInfo(kind="tensor", elem=1, shape=(1, 16, 4, 4)), Form(bits=32, blocked=True), None, None)
    assert "blocks" in view.unseen


def test_channels_last_tensors_are_turned_back(tmp_path: Path) -> None:
    feeds = {"x": X}
    session = opened(onnx_models.convnet(), "ort_int8", tmp_path, feeds)
    target, metas = recorded(session, feeds)
    for name, meta in metas.items():
        if not meta.unseen and target[name].ndim == 4:
            assert target[name].shape[0] == 2
            assert target[name].shape[1] in {3, 16, 19}, name


# ---- bit-identity with a session of one's own


class _Reader(CalibrationDataReader):
    def __init__(self) -> None:
        self.left = iter([{"x": X}])

    def get_next(self) -> Any:
        return next(self.left, None)


def _quantised_by_hand(folder: Path, dynamic: bool) -> str:
    """The one call, on the file as it is."""
    source, result = (str(folder / f"{name}.onnx") for name in ("source", "result"))
    onnx.save(onnx_models.convnet(), source)
    if dynamic:
        quantize_dynamic(source, result)
    else:
        quantize_static(source, result, _Reader())
    return result


@pytest.mark.parametrize("mode", ["ort_fp32", "ort_opt", "ort_fp16", "ort_int8", "ort_int8_dynamic"])
def test_outputs_are_those_of_a_session_of_ones_own(tmp_path: Path, mode: str) -> None:
    model, feeds = onnx_models.convnet(), {"x": X}
    mine: bytes | str = model.SerializeToString()
    if mode == "ort_fp16":
        mine = convert_float_to_float16(onnx_models.convnet(), keep_io_types=True).SerializeToString()
    elif "int8" in mode:
        mine = _quantised_by_hand(tmp_path, "dynamic" in mode)
    expected = plain_run(mine, feeds, LEVELS.ORT_DISABLE_ALL if mode == "ort_fp32" else LEVELS.ORT_ENABLE_ALL)
    session = opened(model, mode, tmp_path, feeds)
    for outputs in (session.run(feeds, CopyingHook()), session.run(feeds), session.run(feeds, CopyingHook(), ["r3"])):
        assert all(have_same_bits(first, second) for first, second in zip(expected, outputs.values(), strict=True))


def test_the_guides_two_steps_are_an_option(tmp_path: Path) -> None:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, prepared, result = (str(tmp_path / f"{name}.onnx") for name in ("source", "prepared", "result"))
    onnx.save(onnx_models.convnet(), source)
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    quantize_static(prepared, result, _Reader(), per_channel=True)
    session = opened(onnx_models.convnet(), "ort_int8", tmp_path, {"x": X}, pre_process=True, per_channel=True)
    expected = plain_run(result, {"x": X}, LEVELS.ORT_ENABLE_ALL)
    assert all(have_same_bits(mine, ours) for mine, ours in zip(expected, session.run({"x": X}).values(), strict=True))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_can_be_set(tmp_path: Path, threads: int) -> None:
    session = opened(onnx_models.convnet(), "ort_fp32", tmp_path, {"x": X}, intra_op_num_threads=threads)
    assert list(session.run({"x": X})) == ["prob", "r3"]


@pytest.mark.parametrize("lockstep", [True, False])
def test_side_by_side_each_run_has_half_of_the_cores(
    lockstep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime as ort

    import precision_debug
    from precision_debug.numbers import cores

    path = tmp_path / "m.onnx"
    onnx.save(onnx_models.convnet(), path)
    monkeypatch.setattr(cores, "count_available_cores", lambda: 6)
    threads = []
    run = ort.InferenceSession.run
    monkeypatch.setattr(
        ort.InferenceSession, "run",
        lambda self, *given: threads.append(self.get_session_options().intra_op_num_threads) or run(self, *given),
    )  # fmt: skip
    for given, expected in (({}, 3 if lockstep else 0), ({"intra_op_num_threads": 2}, 2)):
        threads.clear()
        report = precision_debug.compare(
            path, run_mode="ort_opt", inputs={"x": X}, lockstep=lockstep, explain="off", run_once=True, **given
        )
        assert report.compared
        assert threads == [expected, expected]


@pytest.mark.parametrize("elements", [0, 1 << 12, 1 << 22])
@pytest.mark.parametrize("mode", ["ort_opt", "ort_int8", "ort_fp16_sim"])
def test_rows_do_not_depend_on_who_is_slower(
    mode: str, elements: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """elements: how far the baseline may be ahead of the comparison, whose steps take a random time."""
    import precision_debug

    path = tmp_path / "m.onnx"
    onnx.save(onnx_models.convnet(), path)

    def rows(lockstep: bool) -> list[tuple[Any, ...]]:
        report = precision_debug.compare(
            path, run_mode=mode, inputs={"x": X}, lockstep=lockstep, explain="off"
        )
        return [(row.name, row.status, row.reason, row.comparison, row.base, row.target) for row in report.rows]

    expected, random_ = rows(False), random.Random(elements)
    monkeypatch.setattr(tapped_graph, "_LENT", elements)
    for name in ("compare", "describe"):
        whole = getattr(HostComparer, name)

        def slow(self: HostComparer, *given: Any, whole: Any = whole) -> None:
            time.sleep(random_.choice([0, 0, 0.003]))
            whole(self, *given)

        monkeypatch.setattr(HostComparer, name, slow)
    for _ in range(3):
        assert rows(True) == expected


# ---- quantisation


def test_a_dequantised_value_lies_on_the_grid_of_its_own_scale(tmp_path: Path) -> None:
    feeds = {"x": X}
    target, metas = recorded(opened(onnx_models.convnet(), "ort_int8", tmp_path, feeds), feeds)
    seen = [name for name, meta in metas.items() if meta.view == "dequantised" and not meta.unseen]
    assert len(seen) >= 5
    for name in seen:
        assert target[name].dtype == np.float32
        levels = np.unique(target[name])
        assert len(levels) <= 256
        step = np.diff(levels).min() if len(levels) > 1 else 1.0  # of few levels, two or three steps of the grid
        apart = [np.abs(levels / step * k - np.round(levels / step * k)).max() for k in (1, 2, 3)]
        assert min(apart) < 1e-2


def test_a_value_before_quantisation_does_not_take_the_place_of_the_one_after(tmp_path: Path) -> None:
    feeds = {"x": X}
    base, base_metas = recorded(opened(onnx_models.convnet(), "ort_fp32", tmp_path, feeds), feeds)
    target, metas = recorded(opened(onnx_models.convnet(), "ort_int8", tmp_path, feeds), feeds)
    alignment = align(list(base_metas.values()), list(metas.values()))
    for name, meta in metas.items():
        if meta.view == "before quantisation" and not meta.unseen:
            assert name not in alignment.pairs
    by_origin = {meta.origin: name for name, meta in metas.items() if meta.origin}
    # the quantiser dropped this Relu and called its input r2: the clipping of the zero point stands for it
    assert target[by_origin["r2"]].min() >= 0
    if "c2" in by_origin:
        assert relative(base["c2"], target[by_origin["c2"]]) < LIMITS["ort_int8"]


@pytest.mark.parametrize("options", [
    {"calibration": "percentile"}, {"per_channel": True}, {"pre_process": True},
    {"weight_type": "uint8", "activation_type": "uint8"},
    {"nodes_to_exclude": ["n_c2"]}, {"op_types": "Conv,Gemm"}, {"reduce_range": "yes"},
])  # fmt: skip
def test_quantisation_options_are_obeyed(tmp_path: Path, options: dict[str, Any]) -> None:
    feeds = {"x": X}
    usual, _ = recorded(opened(onnx_models.convnet(), "ort_int8", tmp_path, feeds), feeds)
    other = opened(onnx_models.convnet(), "ort_int8", tmp_path, feeds, **options)
    changed, _ = recorded(other, feeds)
    assert usual.keys() != changed.keys() or not all(have_same_bits(usual[name], changed[name]) for name in usual)
    base = opened(onnx_models.convnet(), "ort_fp32", tmp_path, feeds).run(feeds)
    assert relative(base["r3"], other.run(feeds)["r3"]) < 0.3


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
def test_the_notes_say_how_it_was_quantised(tmp_path: Path, method: str) -> None:
    session = opened(onnx_models.convnet(), "ort_int8", tmp_path, {"x": X}, calibration=method, activation_type="UINT8")
    assert any(method in note and "activations uint8" in note and "1 sample set" in note for note in session.notes)


@pytest.mark.parametrize("options", [
    {"calibration": "guess"}, {"activation_type": "float7"}, {"nodes_to_exclude": ["no_such_node"]},
    {"per_channel": "perhaps"},
])  # fmt: skip
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        opened(onnx_models.convnet(), "ort_int8", tmp_path, {"x": X}, **options)
    assert str(next(iter(options.values()))).strip("[]'") in str(caught.value)


def test_static_quantisation_wants_inputs(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx_models.convnet(), path)
    with pytest.raises(InputError):
        OnnxRuntimeBackend().open(SessionSpec(model=ModelFiles(model_file=str(path)), mode="ort_int8"), [])


def test_a_model_with_nothing_to_quantise_says_so(tmp_path: Path) -> None:
    feeds = {"x": np.float32([1, -2]), "k": np.array(3)}
    with raises_approved(ModelError) as caught:
        opened(onnx_models.loop_model(), "ort_int8", tmp_path, feeds)
    assert "Loop" in str(caught.value), "what it does not look into"


def test_a_flat_model_with_nothing_to_quantise_is_told_of_no_loops(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    with raises_approved(ModelError) as caught:
        opened(model, "ort_int8", tmp_path, {"x": np.float32([1, -2])})
    assert caught.value.exit_status == 2
    assert "Loop" not in str(caught.value)


def _qdq_source() -> onnx.ModelProto:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantise"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="dequantise"),
        helper.make_node("Relu", ["d"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="matmul"),
    ]
    weights = {"s": np.float32(0.1).reshape(()), "z": np.int8(3).reshape(()), "w": np.eye(4, dtype=np.float32) * 2}
    return onnx_models.model(nodes, [onnx_models.value("x", [2, 4])], [onnx_models.value("y", [2, 4])], weights)


@pytest.mark.parametrize("mode", ["ort_fp32", "ort_opt", "ort_fp16_sim"])
def test_a_source_that_is_quantised_already_keeps_its_tensors_apart(tmp_path: Path, mode: str) -> None:
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)}
    base, _ = recorded(opened(_qdq_source(), "ort_fp32", tmp_path, feeds), feeds)
    expected = np.float32(0.1) * np.clip(np.rint(feeds["x"] / np.float32(0.1)), -131, 124)
    np.testing.assert_allclose(base["q"], expected, rtol=1e-6)
    np.testing.assert_array_equal(base["q"], base["d"])
    np.testing.assert_array_equal(base["x"], feeds["x"])
    target, metas = recorded(opened(_qdq_source(), mode, tmp_path, feeds), feeds)
    paired = {name: array for name, array in target.items() if (metas[name].origin or name) in base}
    assert len(paired) >= 3
    for name, array in paired.items():
        assert relative(base[metas[name].origin or name], array) < 1e-3, name


# ---- simulation


@pytest.mark.parametrize(("mode", "dtype"), [("ort_fp16_sim", np.float16), ("ort_bf16_sim", ml_dtypes.bfloat16)])
def test_simulated_values_are_values_of_the_type(tmp_path: Path, mode: str, dtype: Any) -> None:
    target, metas = recorded(opened(onnx_models.convnet(), mode, tmp_path, {"x": X}), {"x": X})
    assert len([m for m in metas.values() if m.view.startswith("rounded")]) >= 15
    for name, array in target.items():
        np.testing.assert_array_equal(array, array.astype(dtype).astype(np.float32), err_msg=name)
    by_origin = {meta.origin or name: name for name, meta in metas.items() if not meta.unseen}
    np.testing.assert_array_equal(target[by_origin["x"]], X.astype(dtype).astype(np.float32))


def test_simulated_float16_rounds_each_output_as_numpy_does(tmp_path: Path) -> None:
    weight = np.float32([[0.1, 70000.0], [1e-8, -0.3]])
    nodes = [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "m"], ["y"])]
    model = onnx_models.model(nodes, [onnx_models.value("x", [2, 2])], [onnx_models.value("y", [2, 2])], {"w": weight})
    feeds = {"x": np.float32([[1 / 3, 2], [5, 1e5]])}
    with np.errstate(over="ignore", invalid="ignore"):
        half = np.float16(np.float32(np.float16(feeds["x"])) * np.float32(np.float16(weight)))
        expected = np.float32(np.float16(np.float32(half) * 2))
    session = opened(model, "ort_fp16_sim", tmp_path, feeds)
    target, _ = recorded(session, feeds)
    np.testing.assert_array_equal(target["y"], expected)
    assert np.isinf(target["y"]).any()
    assert any("infinite" in note and "w" in note for note in session.notes)


# ---- float16


def test_float16_notes_say_what_the_cpu_really_does_and_which_weights_do_not_fit(tmp_path: Path) -> None:
    model = onnx_models.convnet()
    for tensor in model.graph.initializer:
        if tensor.name == "w2":
            array = onnx.numpy_helper.to_array(tensor).copy()
            array.reshape(-1)[:3] = [1e6, -7e4, 1e-9]
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, "w2"))
    session = opened(model, "ort_fp16", tmp_path, {"x": X})
    text = "\n".join(session.notes)
    assert holds_approved(text)
    assert "ort_fp16_sim" in text
    assert holds_approved(text, 2)
    assert holds_approved(text, 3)


def test_float16_nodes_can_be_kept_in_float32(tmp_path: Path) -> None:
    feeds = {"x": X}
    usual = opened(onnx_models.convnet(), "ort_fp16", tmp_path, feeds).run(feeds)
    kept = opened(onnx_models.convnet(), "ort_fp16", tmp_path, feeds, op_block_list="Conv,Gemm").run(feeds)
    base = opened(onnx_models.convnet(), "ort_opt", tmp_path, feeds).run(feeds)
    assert relative(base["r3"], kept["r3"]) < relative(base["r3"], usual["r3"])


# ---- onnx.reference


def test_the_reference_is_float64(tmp_path: Path) -> None:
    session = opened(onnx_models.convnet(), "onnx_ref", tmp_path, {"x": X})
    target, _ = recorded(session, {"x": X})
    assert {array.dtype.name for array in target.values()} == {"float64"}
    assert [note.code for note in session.notes] == ["onnxruntime.by_reference"]
    weights = {
        t.name: onnx.numpy_helper.to_array(t).astype(np.float64) for t in onnx_models.convnet().graph.initializer
    }
    np.testing.assert_allclose(target["logits"], target["f"] @ weights["w5"] + weights["bias5"], rtol=1e-13)


def test_the_reference_counts_what_it_could_not_do_in_float64(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT), helper.make_node("NonZero", ["h"], ["n"])]
    nodes.append(helper.make_node("LRN", ["x"], ["y"], name="lrn", size=3))
    model = onnx_models.model(
        nodes, [onnx_models.value("x", [1, 3, 2, 2])],
        [onnx_models.value("y", [1, 3, 2, 2]), onnx_models.value("n", [4, "m"], TensorProto.INT64)],
    )  # fmt: skip
    feeds = {"x": np.ones((1, 3, 2, 2), np.float32)}
    session = opened(model, "onnx_ref", tmp_path, feeds)
    target, _ = recorded(session, feeds)
    narrow = "lrn (LRN)" in " ".join(session.notes)
    assert target["y"].dtype == np.float64
    assert narrow == (target["y"].astype(np.float32).astype(np.float64).tolist() == target["y"].tolist())


@pytest.mark.parametrize("per_channel", [False, True])
def test_the_rows_of_a_dynamically_quantised_table_are_compared_as_numbers(per_channel: bool, tmp_path: Path) -> None:
    """They go into integer products as they are, and ONNX Runtime folds their scale into the product's."""
    random = np.random.default_rng(2)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="look_up"),
        helper.make_node("Transpose", ["rows"], ["turned"], name="turn", perm=[0, 2, 1]),
        helper.make_node("Conv", ["turned", "w"], ["y"], name="conv"),
    ]
    weights = {
        "table": random.standard_normal((50, 8)).astype(np.float32),
        "w": random.standard_normal((4, 8, 3)).astype(np.float32),
    }
    ends = [onnx_models.value("ids", [1, 12], TensorProto.INT64)], [onnx_models.value("y")]
    path = tmp_path / "m.onnx"
    onnx.save(onnx_models.model(nodes, *ends, weights), path)
    ids = random.integers(0, 50, (1, 12))
    report = precision_debug.compare(path, run_mode="ort_int8_dynamic", inputs={"ids": ids}, per_channel=per_channel)
    rows = {row.name: row for row in report.rows}
    for name in ("rows", "turned"):
        row = rows[name]
        if row.comparison is None:
            continue
        assert row.view == "dequantised"
        step = float(np.ptp(weights["table"])) / 255
        assert 0 < (row.comparison.max_abs or 0.0) <= 0.51 * step
    assert rows["rows"].comparison is not None
    assert report.exit_status == 0
