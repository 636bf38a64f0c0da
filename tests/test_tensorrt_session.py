"""The backend's session from model to rows, on a stand-in for TensorRT (see tensorrt_fake)."""

from __future__ import annotations

import gc
import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import tensorrt_models as models
from approval import holds_approved, raises_approved
from cuda_emulated import EmulatedDevice
from precision_debug_tensorrt import TensorRTBackend, on_device, opening
from precision_debug_tensorrt.engine import device_memory, timing_cache, versions
from precision_debug_tensorrt.engine.constraints import apply
from precision_debug_tensorrt.engine.device_memory import Device
from precision_debug_tensorrt.engine.kept import find_precisions
from precision_debug_tensorrt.engine.network import LayerFacts, OutputFacts
from precision_debug_tensorrt.engine.options import read_options
from precision_debug_tensorrt.make import engine
from tensorrt_fake import HostGpu, fake_tensorrt

from precision_debug.api import compare
from precision_debug.errors import MarkError, UsageError
from precision_debug.inspector import EngineLayer, EngineTensor, read_inspector
from precision_debug.numbers.cuda import DeviceArray
from precision_debug.observe.hooks import SaveBaseline
from precision_debug.records import ModelFiles, SessionSpec, Tolerance
from precision_debug.run.script_hooks import AssertClose

pytest.importorskip("onnxruntime", reason="the stand-in computes with it")

IMAGE = {"image": np.random.default_rng(3).uniform(-1, 1, (2, 3, 32, 32)).astype(np.float32)}
NAMES = ["image", *(node.output[0] for node in models.residual().graph.node)]

SPEC = SessionSpec(model=ModelFiles(model_file="m.onnx"), mode="trt_fp16")

Install = Callable[..., Any]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Put a stand-in where TensorRT is looked for; returns its module."""

    def put(memory: Any = None, **settings: Any) -> Any:
        module = fake_tensorrt(**settings)
        api = versions.Api(module)
        memory = memory or Device(HostGpu(limit=10**9, free=10**9))
        for place in (versions, opening):
            monkeypatch.setattr(place, "load_api", lambda *_: api)
        for place in (device_memory, opening, on_device):
            monkeypatch.setattr(place, "find_device", lambda: memory)
        monkeypatch.setattr(timing_cache, "_of_this_process", [])
        onnx.save(models.residual(), tmp_path / "m.onnx")
        return module

    return put


def opened(mode: str = "trt_fp16", comparer: Any = None, **options: Any) -> Any:
    spec = SessionSpec(model=ModelFiles(model_file="m.onnx"), mode=mode, options=options)
    backend = TensorRTBackend()
    return backend.open(spec, [IMAGE]) if comparer is None else backend.open_for(comparer, spec, [IMAGE])


def shown(session: Any, names: Any = None) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    session.run(IMAGE, lambda kind, name, value: seen.update({name: value}), names)
    return seen


def test_every_tensor_in_order_and_the_outputs_of_the_real_engine(install: Install) -> None:
    trt = install()
    session = opened()
    assert list(shown(session)) == NAMES
    assert trt.builds[0] == ["probabilities"]
    assert set(trt.builds[1]) == set(NAMES[1:])
    tensors = {meta.name: meta for meta in session.tensors}
    assert tensors["probabilities"].extra["Seen In"] == "the real engine"
    inside = tensors["conv1_out"].extra
    assert inside["Fused Layer"] == "conv1 + conv1_bn + relu1"
    assert inside["Fused Layer There"] == "conv1"
    assert "Fused Layer There" not in tensors["logits"].extra
    assert holds_approved(list(session.notes))


def test_the_budget_bounds_what_one_engine_shows(install: Install) -> None:
    """Outputs of one build, the model's own aside, never add up to more than the budget, unless one is larger."""
    trt = install()
    sizes = {name: 4 * value.size for name, value in shown(opened()).items()}
    largest = max(sizes.values())
    for budget in (largest, 3 * largest, sum(sizes.values())):
        trt.builds.clear()
        seen = shown(opened(memory_budget=budget))
        marked = [[name for name in names if name != "probabilities"] for names in trt.builds[1:]]
        assert all(sum(sizes[name] for name in names) <= budget for names in marked)
        assert [name for names in marked for name in names] == NAMES[1:-1]
        assert list(seen) == NAMES
        assert (len(marked) == 1) == (budget >= sum(sizes[name] for name in NAMES[1:-1]))
    trt.builds.clear()
    shown(opened(memory_budget=1))
    assert all(len(names) == 2 for names in trt.builds[1:])


def test_without_a_budget_half_of_the_free_memory_is_one(install: Install) -> None:
    trt = install(memory=Device(HostGpu(limit=10**9, free=200_000)))
    shown(opened())
    assert len(trt.builds) > 2


def test_memory_is_given_back(install: Install) -> None:
    cuda = HostGpu(limit=10**9, free=10**9)
    install(memory=Device(cuda))
    session = opened(memory_budget=300_000)
    most = [0]

    def hook(kind: str, name: str, value: Any, /) -> None:
        most[0] = max(most[0], sum(cuda.held.values()))

    session.run(IMAGE, hook)
    session.close()
    assert not cuda.held
    inputs, outputs = IMAGE["image"].nbytes, 2 * 10 * 4
    assert most[0] <= 300_000 + inputs + outputs


def test_one_builder_makes_all_engines_and_goes_after_the_last(install: Install) -> None:
    install()
    opened().close()  # the process's first builder is never destroyed, whichever test has it
    trt = install()
    session = opened(memory_budget=300_000)
    assert trt.builders[0]() is not None
    shown(session)
    assert len(trt.builds) > 2
    assert len(trt.builders) == 1
    gc.collect()
    assert trt.builders[0]() is None
    session.close()


def test_what_cannot_be_built_at_once_is_halved(install: Install) -> None:
    trt = install(too_large=300_000)
    session = opened()
    assert sorted(shown(session)) == sorted(NAMES)
    assert len(trt.builds) > 3


def test_a_refused_tensor_is_left_out_and_said(install: Install) -> None:
    install(refuse=["relu2_out"])
    session = opened()
    seen = shown(session)
    assert set(NAMES) - set(seen) == {"relu2_out"}
    refused = next(meta for meta in session.tensors if meta.name == "relu2_out")
    assert holds_approved(refused.unseen)


def test_fused_only_marks_the_fused_layers_outputs(install: Install) -> None:
    trt = install()
    session = opened(fused_only=True)
    seen = shown(session)
    assert "conv1_out" not in seen
    assert "relu1_out" in seen
    assert "conv1_out" not in trt.builds[-1]
    assert not any("another fusion" in note for note in session.notes)


def test_fused_only_takes_the_real_engines_tactics_again(install: Install) -> None:
    trt = install()
    shown(opened(fused_only=True))
    assert trt.taken[0] == []
    assert {"relu1_out", "relu2_out", "logits", "probabilities"} <= set(trt.taken[1])
    trt = install()
    shown(opened())
    assert trt.taken == [[], []]


def test_a_rebuilt_engine_prefers_the_real_ones_precisions(install: Install) -> None:
    """Left alone, TensorRT 8.6 rebuilt a small FP16 engine in FP32, and its table showed no error."""
    trt = install()
    session = opened()
    shown(session)
    real, rebuilt = trt.asked
    assert real == {"TF32": "on", "FP16": "on"}
    layers = {node.name for node in models.residual().graph.node}
    assert {name for name, kind in rebuilt.items() if kind == "HALF"} == layers
    assert rebuilt["PREFER_PRECISION_CONSTRAINTS"] == "on"
    assert any(f"precision was preferred for {len(layers)} of its layers" in note for note in session.notes)
    assert not any("in another precision" in note for note in session.notes)


def test_what_the_user_asks_of_layers_stays(install: Install) -> None:
    trt = install()
    shown(opened(layer_precisions="fc:float32", precision_constraints="obey"))
    real, rebuilt = trt.asked
    assert {name: kind for name, kind in real.items() if kind != "on"} == {"fc": "FLOAT"}
    assert (rebuilt["fc"], rebuilt["conv1"]) == ("FLOAT", "HALF")
    assert "PREFER_PRECISION_CONSTRAINTS" not in rebuilt
    assert rebuilt["OBEY_PRECISION_CONSTRAINTS"] == "on"


def test_the_seconds_of_the_build_are_the_engines_own(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder loads TensorRT's kernels first, which no second engine waits for."""
    trt, clock = install(), [0.0]
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def slow(plain: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        return lambda *given: (clock.__setitem__(0, clock[0] + seconds), plain(*given))[1]

    for name, seconds in (("create_network", 9.0), ("build_serialized_network", 31.0)):
        monkeypatch.setattr(trt.Builder, name, slow(getattr(trt.Builder, name), seconds))
    session = opened()
    assert session.build_seconds == 31.0
    shown(session)
    assert session.build_seconds == 31.0


@pytest.mark.parametrize(("constraints", "binding"), [("none", False), ("prefer", False), ("obey", True)])
def test_what_is_obeyed_is_no_guess(
    install: Install, monkeypatch: pytest.MonkeyPatch, constraints: str, binding: bool
) -> None:
    """A region's type is one at its edges: under obey it would bind each layer inside, where the real one was free."""
    install()
    asked: list[bool] = []
    monkeypatch.setattr(opening, "find_precisions", lambda *_, binding: (asked.append(binding), {})[1])
    opened(precision_constraints=constraints)
    assert asked == [binding]


@pytest.mark.parametrize(("asked", "levels"), [(None, [None, 1]), (5, [5, 1]), (0, [0, 0])])
def test_an_engine_that_is_only_looked_at_is_optimised_less(
    install: Install, monkeypatch: pytest.MonkeyPatch, asked: int | None, levels: list[int | None]
) -> None:
    trt = install()
    found, plain = [], trt.Builder.build_serialized_network
    monkeypatch.setattr(trt.Builder, "build_serialized_network", lambda self, network, config: (
        found.append(vars(config).get("builder_optimization_level")), plain(self, network, config))[1])  # fmt: skip
    session = opened(**({} if asked is None else {"optimization_level": asked}))
    assert list(shown(session)) == NAMES
    assert found == levels  # the engine to deploy is built as the user says
    told = [note.args for note in session.notes if note.code == "tensorrt.looked_at_level"]
    assert told == ([{"level": 1, "asked": 5}] if asked == 5 else [])


@pytest.mark.parametrize("mode", ["trt_fp32", "trt_tf32"])
def test_without_a_choice_of_precisions_none_is_asked(install: Install, mode: str) -> None:
    trt = install()
    shown(opened(mode))
    assert all(set(asked.values()) <= {"on"} for asked in trt.asked)
    assert not any("PREFER_PRECISION_CONSTRAINTS" in asked for asked in trt.asked)


def test_precisions_of_a_recorded_engine() -> None:
    """TensorRT 8.6 on an H200: TF32 cannot be asked for, and INT8 only where values are multiplied."""
    data = Path(__file__).parent / "data" / "tensorrt"
    network = [LayerFacts(name=node.name, type="CONVOLUTION" if node.op_type == "Conv" else "OTHER", inputs=(),
                          outputs=(OutputFacts(name=node.output[0], dtype="float32", shape=(), is_shape=False),))
               for node in models.residual().graph.node]  # fmt: skip
    output = OutputFacts(name="added", dtype="float32", shape=(), is_shape=False)
    add = LayerFacts(name="Add", type="ELEMENTWISE", inputs=(), outputs=(output,))
    half = find_precisions([add], read_inspector(data / "needs_constraints_8.6_obey.json"))
    assert half == {"Add": "FP16"}
    single = find_precisions(network, read_inspector(data / "residual_8.6_tf32.json"))
    assert set(single.values()) == {"FP32"}
    eight = EngineLayer(name="conv1 + relu1", layer_type="CaskConvolution", weights_type="INT8",
                        onnx_nodes=("conv1", "relu1"))  # fmt: skip
    assert find_precisions(network, [eight]) == {"conv1": "INT8"}
    qdq = LayerFacts(name="q", type="QUANTIZE", inputs=(), outputs=())
    assert find_precisions([*network, qdq], [eight]) == {}
    region = EngineLayer(name="{ForeignNode[conv1...relu1]}", layer_type="Myelin")
    assert find_precisions(network, [region]) == {}


def test_a_region_is_rebuilt_in_the_type_at_its_edges() -> None:
    """TensorRT 8.6 on an H200 deployed this encoder as one region in FP32, and rebuilt it as one that reads FP16."""
    data = Path(__file__).parent / "data" / "tensorrt"
    real, marked = (read_inspector(data / f"encoder_8.6_fp16{end}.json") for end in ("", "_marked"))
    layers = [LayerFacts(name=name, type="SOFTMAX", inputs=(), outputs=()) for name in ("layer1_softmax", "unnamed")]
    assert find_precisions(layers, real) == {"layer1_softmax": "FP32", "unnamed": "FP32"}
    assert find_precisions(layers, marked) == {}  # reads FP16 and writes FP32
    ends = {"inputs": (EngineTensor(name="x", dtype="FP16"), EngineTensor(name="ids", dtype="INT32")),
            "outputs": (EngineTensor(name="y", dtype="FP16"),)}  # fmt: skip
    region = EngineLayer(name="{ForeignNode[a...b]}", layer_type="Myelin", onnx_nodes=("a",), **ends)
    other = EngineLayer(name="c", layer_type="CaskConvolution", tactic_name="sm80_xmma_f32f32_f32f32_f32", **ends)
    few = [LayerFacts(name=name, type="SOFTMAX", inputs=(), outputs=()) for name in ("a", "inside", "c")]
    assert find_precisions(few, [region]) == dict.fromkeys(("a", "inside", "c"), "FP16")
    assert find_precisions(few, [region, other]) == {"a": "FP16", "c": "FP32"}  # of what is inside it is not known
    assert find_precisions(few, [region], binding=True) == {}
    assert find_precisions(few, [region, other], binding=True) == {"c": "FP32"}


def test_the_other_ways_that_a_card_measures(install: Install, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tests/gpu/tensorrt_marked.py: a level for engines with marks alone."""
    monkeypatch.syspath_prepend(str(root / "tests" / "gpu"))
    script = importlib.import_module("tensorrt_marked")
    install()
    levels: list[int | None] = []
    plain = engine.set_resources
    monkeypatch.setattr(engine, "set_resources", lambda api, config, options, **more: (
        levels.append(options.optimization_level), plain(api, config, options, **more)))  # fmt: skip
    for name in ("plan", "_build"):
        monkeypatch.setattr(engine.Maker, name, getattr(engine.Maker, name))  # put back behind the script's own
    script.build_at(1)
    builds = script.time_builds()
    assert list(shown(opened(optimization_level=3))) == NAMES
    assert levels == [3, 1]
    assert [(marks > 0, why) for marks, _, why in builds] == [(False, ""), (True, "")]


@pytest.mark.parametrize("names", [None, {"relu1_out", "probabilities"}])
def test_the_listener_of_later_versions(install: Install, names: Any) -> None:
    trt = install(version="10.3.0")
    session = opened("trt_fp32")
    seen = shown(session, names)
    assert list(seen) == [name for name in NAMES if names is None or name in names]
    assert all(outputs == ["probabilities"] for outputs in trt.builds)
    assert holds_approved(list(session.notes))


def test_the_listener_for_what_fusion_leaves(install: Install) -> None:
    """10.12 and later: nothing is marked, so the engine is the real one, and what it swallowed is not in the list."""
    trt = install(version="10.16.1")
    session = opened("trt_fp32")
    seen = shown(session)
    inside = {"conv1_out", "conv1_bn_out", "conv2_out", "conv2_bn_out", "conv3_out", "conv4_out", "conv4_bn_out"}
    assert list(seen) == [name for name in NAMES if name not in inside]
    assert not inside & {meta.name for meta in session.tensors}
    assert all(outputs == ["probabilities"] for outputs in trt.builds)
    assert holds_approved(list(session.notes))


def test_the_same_run_without_a_hook_is_one_build(install: Install) -> None:
    trt = install()
    session = opened()
    first = session.run(IMAGE)["probabilities"]
    assert len(trt.builds) == 1
    outputs: dict[str, Any] = session.run(IMAGE, lambda *_: None)
    np.testing.assert_array_equal(outputs["probabilities"], first)


def test_patterns_leave_alone_what_computes_no_floats(install: Install) -> None:
    trt = install()
    api, network = versions.Api(trt), trt.Builder(None).create_network()
    trt.OnnxParser(network, None).parse(models.residual().SerializeToString(), "m.onnx")
    layers = {layer.name: layer for layer in network.layers}
    layers["pool"].get_output(0).dtype = trt.DataType.INT32
    layers["flatten"].type = trt.LayerType.SHAPE
    apply(api, network, read_options({"layer_precisions": "*:float16 fc:float32", "layer_output_types": "conv?:half"}))
    assert {name for name, layer in layers.items() if not layer.precision_is_set} == {"pool", "flatten"}
    assert layers["fc"].precision == trt.DataType.FLOAT
    assert layers["conv1"].get_output_type(0) == trt.DataType.HALF
    with raises_approved(MarkError):
        apply(api, network, read_options({"layer_precisions": "po*:float16"}))


def test_asked_layers_are_rows_with_what_became_of_them(install: Install) -> None:
    install()
    session = opened(layer_precisions="fc:float32 conv1:float16", precision_constraints="prefer")
    shown(session)
    told = {meta.node: (meta.extra["Asked Precision"], meta.extra["Obeyed"])
            for meta in session.tensors if "Obeyed" in meta.extra}  # fmt: skip
    assert told == {"fc": ("FP32", "no"), "conv1": ("FP16", "yes")}
    assert holds_approved(session.notes)


def test_repeats_are_built_anew_and_what_is_kept_is_the_compared_engine(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    trt = install()
    written: list[str] = []
    told: list[bool] = []
    usual = timing_cache.TimingCache

    def cache(path: str = "", *, anew: bool = False) -> Any:
        told.append(anew)
        return usual(path, anew=anew)

    monkeypatch.setattr(opening, "TimingCache", cache)
    write = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda path, data: written.append(path.name) or write(path, data))
    report = compare("m.onnx", run_mode="trt_fp16", inputs=IMAGE, explain="off", save_engine="kept.engine", repeat=3)
    assert report.repeats is not None
    assert report.repeats.count == 3
    assert report.repeats.tactics_changed == 0
    assert told == [False, True, True]
    assert written.count("kept.engine") == 1
    assert sum(build == ["probabilities"] for build in trt.builds) == 3, "the real engine, three times"
    assert all(row.repeated is not None for row in report.compared)


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "11.0.0"])
def test_sizes_of_one_name_may_be_several_numbers(version: str, install: Install, tmp_path: Path) -> None:
    """Paddle2ONNX calls every size that is open "?"; cls of Paddle's OCR built no engine for it on a card."""
    install(version=version)
    proto = models.residual()
    for place in (0, 2, 3):
        proto.graph.input[0].type.tensor_type.shape.dim[place].dim_param = "?"
    onnx.save(proto, tmp_path / "m.onnx")
    assert "size_names_dropped" in {note.code.rpartition(".")[2] for note in opened().notes}
    onnx.save(models.residual("N"), tmp_path / "m.onnx")
    assert "size_names_dropped" not in {note.code.rpartition(".")[2] for note in opened().notes}


@pytest.mark.parametrize("mode", ["trt_engine", "trt_fp16"])
def test_a_saved_engine_against_its_model(install: Install, mode: str) -> None:
    install()
    opened(save_engine="saved.engine").close()
    report = compare("saved.engine", run_mode=mode, baseline_model="m.onnx", inputs=IMAGE, atol=1e-2, rtol=1e-2,
                     output="r.xlsx")  # fmt: skip
    rows = {row.name: row for row in report.rows}
    assert {row.name for row in report.compared} == {"image", "probabilities"}
    assert "shows its outputs only" in rows["relu1_out"].reason
    assert rows["conv1_out"].status == "fused away"
    assert report.layers
    with pytest.raises(UsageError, match="--baseline_model FILE"):
        compare("saved.engine", run_mode=mode, inputs=IMAGE)


# --- on the device


@pytest.fixture(scope="module")
def with_kernels() -> Device:
    """A device on which the kernels run: their own text, compiled for this processor."""
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    gpu: Any = EmulatedDevice()
    return Device(gpu, shows_tensors=True)


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0"])
def test_tensors_stay_on_the_device(install: Install, with_kernels: Device, version: str) -> None:
    install(memory=with_kernels, version=version)
    wanted = shown(opened())
    seen: dict[str, Any] = {}
    session = opened(comparer=object())

    def hook(kind: str, name: str, value: Any, /) -> None:
        assert isinstance(value, np.ndarray if name == "image" else DeviceArray)
        seen[name] = np.asarray(value).copy()

    outputs = session.run(IMAGE, hook)
    assert list(seen) == list(wanted)
    for name, value in seen.items():
        np.testing.assert_array_equal(value, wanted[name])
    assert isinstance(outputs["probabilities"], np.ndarray)


def test_without_kernels_a_comparer_gets_arrays(install: Install) -> None:
    install()
    assert all(isinstance(value, np.ndarray) for value in shown(opened(comparer=object())).values())
    assert TensorRTBackend().on_device_alone(SPEC, SPEC) is None


def test_the_comparers_rows_are_the_hosts(install: Install, with_kernels: Device) -> None:
    """Of a baseline in the host's memory, as ONNX Runtime's is, and of another engine's."""
    install(memory=with_kernels)
    plain = report_of(None, shown(opened("trt_fp32")))
    comparer = TensorRTBackend().on_device_alone(SPEC, SPEC)
    assert comparer is not None
    rows = report_of(comparer, shown(opened("trt_fp32")))
    assert comparer.on_device == len(NAMES) - 1
    assert [(row.name, row.status) for row in rows] == [(row.name, row.status) for row in plain]
    assert any(row.status == "fail" for row in rows)
    for row, other in zip(rows, plain, strict=True):
        ours, theirs = row.comparison, other.comparison
        assert ours.mismatched == theirs.mismatched
        assert ours.max_abs == pytest.approx(theirs.max_abs, rel=1e-6)
        assert ours.base.mean == pytest.approx(theirs.base.mean, rel=1e-5, abs=1e-7)


def report_of(comparer: Any, baseline: dict[str, Any]) -> Any:
    """Rows of trt_fp16 against a baseline's tensors, through the core's hooks."""
    save = SaveBaseline(comparer=comparer)
    for name, value in baseline.items():
        save("", name, value)
    check = AssertClose(save, atol=1e-4, rtol=1e-4, consume=True)
    opened(comparer=comparer).run(IMAGE, check)
    save.close()
    return check.rows


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2)])
def test_the_comparer_takes_every_type(
    install: Install, with_kernels: Device, dtype: str, shape: tuple[int, ...]
) -> None:
    import ml_dtypes

    install(memory=with_kernels)
    comparer: Any = TensorRTBackend().on_device_alone(SPEC, SPEC)
    values = np.arange(int(np.prod(shape))).reshape(shape)
    array = values.astype(getattr(ml_dtypes, dtype, None) or dtype)
    buffer = with_kernels.upload(array)
    target = with_kernels.tensor(buffer.pointer, shape, array.dtype, buffer)
    taken = comparer.take(target, "x")
    assert comparer.dtype(taken) == comparer.dtype(array) == dtype
    told: list[Any] = []
    for base in (array, taken):
        comparer.compare(base, taken, Tolerance(), told.append)
    comparer.describe(taken, told.append)
    comparer.settle()
    assert [numbers.mismatched for numbers in told[:2]] == [0, 0]
    assert told[2].dtype == dtype
    assert told[2].shape == shape


def test_a_whole_comparison_on_the_device(install: Install, with_kernels: Device) -> None:
    """Against ONNX Runtime, through the pipeline: the same table as in the host's memory."""
    reports = []
    for memory in (Device(HostGpu(limit=10**9, free=10**9)), with_kernels):
        install(memory=memory)
        reports.append(compare("m.onnx", run_mode="trt_fp16", inputs=IMAGE, atol=1e-3, rtol=1e-3))
    plain, there = reports
    assert holds_approved(list(there.target.notes))
    assert not any("in the GPU's memory" in note for note in plain.target.notes)
    assert [(row.name, row.status, row.paired_by) for row in there.rows] == [
        (row.name, row.status, row.paired_by) for row in plain.rows
    ]
    assert len(there.compared) == len(NAMES)
    assert there.layers
