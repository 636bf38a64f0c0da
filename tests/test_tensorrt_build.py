"""The TensorRT backend's builds: batches, refused marks, messages, tactics, device memory, typed models; no GPU."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import tensorrt_models as models
from approval import begins_approved, holds_approved, is_approved, raises_approved
from hypothesis import given
from hypothesis import strategies as st
from precision_debug_tensorrt.engine import marked_outputs, tactics, timing_cache
from precision_debug_tensorrt.engine.casts import find_carriers, write_casts
from precision_debug_tensorrt.engine.device_memory import Device
from precision_debug_tensorrt.engine.fp16_weights import builder_lines, count_weights
from precision_debug_tensorrt.engine.marked_outputs import Marking, largest_difference
from precision_debug_tensorrt.engine.messages import Messages
from precision_debug_tensorrt.engine.network import LayerFacts, OutputFacts
from precision_debug_tensorrt.engine.options import read_options
from precision_debug_tensorrt.engine.strongly_typed import make_typed_model
from precision_debug_tensorrt.engine.tensor_sizes import Sizes
from precision_debug_tensorrt.failures import add_suspect, build_error, engine_error, parser_error, run_error
from precision_debug_tensorrt.model import OnnxModel, read_source
from precision_debug_tensorrt.modes import recipe
from precision_debug_tensorrt.naming import onnx_tensors
from tensorrt_fake import HostGpu

from precision_debug.errors import BackendError, BackendUnavailable, MarkError, ModelError, OutputError
from precision_debug.records import ModelFiles

DATA = Path(__file__).parent / "data" / "tensorrt"


# --- batches and sizes


@given(st.lists(st.integers(0, 100)), st.one_of(st.none(), st.integers(1, 150)))
def test_batches_keep_the_order_and_the_budget(sizes: list[int], budget: int | None) -> None:
    names = [str(place) for place in range(len(sizes))]
    parts = marked_outputs.group(names, lambda name: sizes[int(name)], budget)
    assert [name for part in parts for name in part] == names
    assert all(part for part in parts)
    if budget is None:
        assert len(parts) <= 1
    for part in parts if budget is not None else ():
        assert len(part) == 1 or sum(sizes[int(name)] for name in part) <= budget


def test_dynamic_sizes_come_from_the_feeds() -> None:
    proto = models.residual("N")
    layers = [
        LayerFacts(name="conv1", type="CONVOLUTION", inputs=("image",),
                   outputs=(OutputFacts(name="conv1_out", dtype="float32", shape=(-1, 32, 16, 16), is_shape=False),)),
        LayerFacts(name="c", type="CONSTANT", inputs=(),
                   outputs=(OutputFacts(name="c", dtype="int64", shape=(3,), is_shape=False),)),
    ]  # fmt: skip
    feeds = {"image": np.zeros((5, 3, 32, 32), np.float32)}
    sizes = Sizes(layers, proto, feeds)
    assert sizes("conv1_out") == 5 * 32 * 16 * 16 * 4
    assert sizes("c") == 24
    assert sizes("unknown") == 0
    assert Sizes(layers, None, feeds)("conv1_out") >= 5 * 32 * 16 * 16 * 4


# --- marks that TensorRT refuses at the build


class Refusing:
    """A maker of a chain of blocks, in which residual sums bypass two tensors each, whose builds fail with some marks.

    bad: marks with which nothing is built. most: marks at once. names_it: whether the error says which.
    """

    def __init__(
        self, bad: Collection[str] = (), *, most: int = 10**6, names_it: bool = False, blocks: int = 4
    ) -> None:
        self.bad, self.most, self.names_it, self.blocks = set(bad), most, names_it, blocks
        self.builds: list[tuple[str, ...]] = []

    def build(self, marks: tuple[str, ...]) -> Any:
        self.builds.append(tuple(marks))
        wrong = sorted(self.bad & set(marks))
        if wrong or len(marks) > self.most:
            which = f"tensor {wrong[0]} is bad" if wrong and self.names_it else "no"
            raise BackendError(which, where="m")
        return Plan()

    def network(self) -> Any:
        layers, before = [], "x"
        for number in range(self.blocks):
            soft, dense, total = (f"{kind}{number}" for kind in ("softmax", "dense", "sum"))
            layers += [
                layer_of("SOFTMAX", [before], soft), layer_of("MATRIX_MULTIPLY", [soft], dense),
                layer_of("ELEMENTWISE", [dense, before], total),
            ]  # fmt: skip
            before = total
        layers.append(layer_of("ACTIVATION", [before], "y"))
        return SimpleNamespace(network=SimpleNamespace(num_layers=len(layers), get_layer=lambda place: layers[place]))


def layer_of(kind: str, reads: list[str], writes: str) -> Any:
    def tensor(name: str) -> Any:
        return SimpleNamespace(name=name, dtype="DataType.FLOAT", shape=(2,), is_shape_tensor=False)

    return SimpleNamespace(
        name=f"layer of {writes}", type=f"LayerType.{kind}", num_inputs=len(reads), num_outputs=1,
        get_input=lambda place: tensor(reads[place]), get_output=lambda place: tensor(writes),
    )  # fmt: skip


class Plan:
    """Stands for a built engine that took a second."""

    seconds = 1.0


ALL = tuple(f"{kind}{number}" for number in range(4) for kind in ("softmax", "dense", "sum"))
ALL_OF_400 = tuple(f"{kind}{number}" for number in range(400) for kind in ("softmax", "dense", "sum"))


def marking_of(maker: Refusing, monkeypatch: pytest.MonkeyPatch, **more: int) -> Marking:
    import precision_debug_tensorrt.engine.marked_outputs as module

    monkeypatch.setattr(module.dataclasses, "replace", lambda plan, **_: plan)
    runner = SimpleNamespace(inspect=lambda: ("", ()), run=lambda: None, close=lambda: None)
    return Marking(maker=maker, real=(), open_runner=lambda built, feeds: runner, **more)  # type: ignore[arg-type]


def shown_by(maker: Refusing, monkeypatch: pytest.MonkeyPatch, **more: int) -> tuple[list[tuple[str, ...]], Marking]:
    marking = marking_of(maker, monkeypatch, **more)
    return [batch.names for batch, _ in marking.batches(ALL, {})], marking


def test_what_is_taken_whole_takes_one_build(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Refusing()
    shown, marking = shown_by(maker, monkeypatch)
    assert (shown, marking.refused, len(maker.builds)) == ([ALL], {}, 1)


def test_marks_refused_by_name_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Refusing({"dense1", "softmax3"}, names_it=True)
    shown, marking = shown_by(maker, monkeypatch)
    assert shown == [tuple(name for name in ALL if name not in maker.bad)]
    assert set(marking.refused) == maker.bad
    assert all("refuses it" in reason for reason in marking.refused.values())


def test_a_refused_region_is_cut_between_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The residual sums first, which are rows at once; then one tensor of each part, the most telling first."""
    maker = Refusing(most=5)
    shown, marking = shown_by(maker, monkeypatch, more=2)
    assert shown == [("sum0", "sum1", "sum2", "sum3"), ("softmax0", "softmax1", "softmax2", "softmax3")]
    assert len(maker.builds) == 3
    assert set(marking.refused) == {f"dense{number}" for number in range(4)}
    assert all("compared instead (marked_builds=2)" in reason for reason in marking.refused.values())


def test_cuts_that_are_refused_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Refusing(most=2)
    shown, marking = shown_by(maker, monkeypatch, more=2)
    assert shown == [("sum0", "sum2"), ("sum1", "sum3")]
    assert len(marking.refused) == len(ALL) - 4


def test_one_bad_mark_is_found_in_a_small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Refusing({"sum2"})
    shown, marking = shown_by(maker, monkeypatch)
    assert set(marking.refused) == {"sum2"}
    assert {name for names in shown for name in names} == set(ALL) - {"sum2"}


def test_a_large_network_is_built_thrice_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, builds, shown in ((0, 13, 0), (3, 6, 3)):  # what is refused ends at once, and is counted by itself
        maker = Refusing(most=most, blocks=400)
        assert len(shown_by(maker, monkeypatch)[0]) == shown
        assert len(maker.builds) == builds


def test_an_engine_without_the_fault_is_not_looked_into_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the real engine overflows and one that is rebuilt does not, its inside says nothing of the fault."""
    counts = {}
    for finite in (False, True):
        maker = Refusing(most=400, blocks=400)
        marking = marking_of(maker, monkeypatch)
        counts[finite] = 0
        for _ in marking.batches(ALL_OF_400, {}):
            counts[finite] += 1
            marking.finite = finite
    assert counts == {False: 3, True: 2}
    one, nan = np.array([1.0]), np.array([np.nan])
    assert marked_outputs.are_finite({"y": one, "i": np.array([1])})
    assert not marked_outputs.are_finite({"y": one, "z": nan})


@pytest.mark.parametrize(
    ("longest", "most", "shown"),
    [(0.5, 400, 1), (1.5, 400, 1), (2.5, 400, 2), (9.0, 400, 3), (0.5, 200, 1), (1.5, 200, 2)],
)
def test_marked_engines_take_about_as_long_as_the_real_one(
    longest: float, most: int, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes 1 s. What is between blocks is shown until then, in halves too; of what is inside them none is begun
    that would end later, but where the user says how many. What is not shown says why."""
    for more, expected in ((None, shown), (3, 3)):
        maker = Refusing(most=most, blocks=400)
        marking = marking_of(maker, monkeypatch)
        marking.longest, marking.more = longest, more
        names = [batch.names for batch, _ in marking.batches(ALL_OF_400, {})]
        assert len(names) == expected
        assert len(marking.refused) == len(ALL_OF_400) - sum(map(len, names))
        assert all(f"(marked_builds={expected})" in reason for reason in marking.refused.values())
        assert bool(marking.refused) == (expected < 3 or most < 400)


@pytest.mark.parametrize("more", [0, 1, 2, 3, 9])
def test_builds_are_counted(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for maker in (Refusing(most=0), Refusing(most=4)):
        shown, marking = shown_by(maker, monkeypatch, more=more)
        assert len(shown) <= more
        assert len([name for names in shown for name in names]) + len(marking.refused) == len(ALL)
    assert bool(shown) == (more > 0)
    assert more < 3 or not marking.refused


def test_the_largest_difference_of_outputs() -> None:
    one, inf = np.array([1.0, 2.0]), np.array([np.inf, 2.0])
    assert largest_difference({"y": one}, {"y": one + 0.5, "z": one}) == 0.5
    assert largest_difference({"y": inf}, {"y": inf}) == 0
    assert largest_difference({"y": one}, {"y": inf}) == np.inf
    assert np.isnan(largest_difference({"y": one}, {"y": np.array([np.nan, 2.0])}))


# --- what TensorRT says


def test_the_builders_words_on_weights() -> None:
    messages = Messages()
    for severity, text in [
        ("WARNING", " - 3 weights are affected by this issue: Detected subnormal FP16 values."),
        ("VERBOSE", "   List of affected weights: conv1.weight, conv2.weight + bias, fc.weight"),
        ("WARNING", " - 1 weights are affected by this issue: Detected values less than smallest positive FP16 "
                    "subnormal value and converted them to the FP16 minimum subnormalized value."),
        ("WARNING", " - 2 weights are affected by this issue: Detected subnormal FP16 values."),
        ("ERROR", "4: [network.cpp::validate::1] Error Code 4: Internal Error (no)"),
    ]:  # fmt: skip
        messages.take(severity, text)
    first, second = messages.weight_issues
    assert (first.count, first.weights) == (3, ("conv1.weight", "conv2.weight + bias", "fc.weight"))
    assert second.count == 1
    lines = builder_lines(messages.weight_issues, {})
    assert begins_approved(lines[0])
    assert "conv2.weight + bias" in lines[0]
    assert messages.fresh_errors()
    assert not messages.fresh_errors()


def test_the_recorded_words_of_a_builder() -> None:
    """Of TensorRT 8.6, in two builds; the second one was given a timing cache that had been read from bytes."""
    messages = Messages()
    for line in (DATA / "messages_8.6.txt").read_text().splitlines():
        severity, _, text = line.partition(": ")
        messages.take(severity, text)
    (issue,) = messages.weight_issues
    assert issue.what == "Detected subnormal FP16 values."
    assert issue.weights[0] == "conv2 + conv2_bn + relu2.weight"
    assert issue.count == len(issue.weights) == 3
    assert messages.cache_refused


def test_weights_that_fp16_cannot_hold_are_counted_by_node(tmp_path: Path) -> None:
    proto = models.residual()
    weight = next(item for item in proto.graph.initializer if item.name == "conv2_w")
    array = onnx.numpy_helper.to_array(weight).copy()
    array[np.abs(array) < 2.0**-14] = 0.5
    array.ravel()[:6] = [1e-9, -1e-9, 2.0**-20, 1e5, 0.0, -0.0]
    weight.CopyFrom(onnx.numpy_helper.from_array(array, "conv2_w"))
    count = count_weights(proto.graph, tmp_path)["conv2"]
    assert (count.lost, count.subnormal, count.over, count.elements) == (2, 1, 1, array.size)
    assert count.text == f"1 above 65504, 2 below 2^-24, 1 subnormal of {array.size}"


def test_weights_beside_the_model_are_counted_too(tmp_path: Path) -> None:
    proto = models.residual()
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    inside, outside = count_weights(proto.graph, tmp_path), onnx.load(tmp_path / "m.onnx", load_external_data=False)
    assert inside
    assert count_weights(outside.graph, tmp_path) == inside


def onnx_source(proto: onnx.ModelProto, folder: Path) -> OnnxModel:
    onnx.save(proto, folder / "source.onnx")
    source = read_source(ModelFiles(model_file=str(folder / "source.onnx")))
    assert isinstance(source, OnnxModel)
    return source


@pytest.mark.parametrize(
    ("make", "problem", "said", "hint"),
    [
        (models.custom_operator, (1, "", "", "No importer registered for op: Sparkle"),
         "node 'sparkle' (com.example.Sparkle)", "--plugins"),
        (models.non_zero, (1, "", "", "UNSUPPORTED_NODE"), "node 'where' (NonZero)", "size depends on the data"),
        (models.residual, (0, "relu2", "Relu", "Assertion failed"), "node 'relu2' (Relu)", "simplify the model"),
        (models.residual, (-1, "", "", "odd"), "node '' ()", "simplify the model"),
    ],
)  # fmt: skip
def test_an_operator_that_the_parser_refuses(make: Any, problem: Any, said: str, hint: str, tmp_path: Path) -> None:
    error = parser_error(onnx_source(make(), tmp_path), [problem], [])
    assert isinstance(error, ModelError)
    assert said in error.what
    assert hint in error.hint


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("10: [optimizer.cpp::computeCosts::3869] Error Code 10: Internal Error (Could not find any implementation for "
         "node {ForeignNode[a...b]}.)", "raise --workspace"),
        ("4: no conforming implementation", "--precision_constraints prefer"),
        ("Cuda Runtime (out of memory)", "mark fewer tensors"),
        ("optimization profile is missing values for input x", "--min_shapes"),
        ("something else", "--verbose"),
    ],
)  # fmt: skip
def test_a_failed_build_says_what_to_do(said: str, hint: str) -> None:
    error = build_error("m.onnx", ["earlier", said])
    assert hint in error.hint
    assert "optimizer.cpp" not in str(error)
    assert "\n" not in str(error)


def test_an_engine_that_does_not_load() -> None:
    text = "1: [stdArchiveReader.cpp::StdArchiveReader::32] Error Code 1: Serialization (Version tag does not match)"
    assert isinstance(engine_error("e", [text], "8.6"), BackendUnavailable)
    assert isinstance(engine_error("e", ["Cannot find plugin Foo"], "8.6"), ModelError)
    assert isinstance(engine_error("e", [], "8.6"), ModelError)
    assert "memory" in run_error("e", ["out of memory"]).hint


# --- tactics and timing caches


def algorithm(tactic: int, dtype: str = "HALF") -> Any:
    info = SimpleNamespace(dtype=f"DataType.{dtype}", strides=(3, 1), vectorized_dim=-1, components_per_element=1)
    return SimpleNamespace(
        algorithm_variant=SimpleNamespace(implementation=1, tactic=tactic), get_algorithm_io_info=lambda place: info
    )


def test_tactics_are_recorded_saved_and_chosen_again(tmp_path: Path) -> None:
    trt = SimpleNamespace(IAlgorithmSelector=type("IAlgorithmSelector", (), {}))
    context = SimpleNamespace(name="conv", num_inputs=1, num_outputs=1)
    other = SimpleNamespace(name="other", num_inputs=1, num_outputs=1)
    choices = [algorithm(5), algorithm(7), algorithm(7, "FLOAT")]
    recorded: dict[str, Any] = {}
    recorder = tactics.make_recorder(trt, recorded)
    assert recorder.select_algorithms(context, choices) == [0, 1, 2]
    recorder.report_algorithms([context], [choices[1]])
    path = str(tmp_path / "deep" / "t.json")
    tactics.save_tactics(path, recorded, "8.6.1")
    missing: list[str] = []
    replayer = tactics.make_replayer(trt, tactics.load_tactics(path), missing)
    assert replayer.select_algorithms(context, choices) == [1]
    assert replayer.select_algorithms(other, choices) == [0, 1, 2]
    assert replayer.select_algorithms(context, choices[:1]) == [0]
    assert missing == ["other", "conv"]
    with pytest.raises(BackendError, match="cannot be read"):
        tactics.load_tactics(str(tmp_path / "none.json"))
    (tmp_path / "x.json").write_text("[]")
    with raises_approved(BackendError):
        tactics.load_tactics(str(tmp_path / "x.json"))


class Config:
    """A builder configuration with a timing cache."""

    def __init__(self, takes: bool = True) -> None:
        self.takes = takes

    def create_timing_cache(self, data: bytes) -> Any:
        return SimpleNamespace(serialize=lambda: data + b"more")

    def set_timing_cache(self, cache: Any, ignore: bool) -> bool:
        assert ignore is False
        self.cache = cache
        return self.takes

    def get_timing_cache(self) -> Any:
        return self.cache


def test_a_timing_cache_grows_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "t.cache"
    for round_ in (1, 2):
        cache, config = timing_cache.TimingCache(str(path)), Config()
        assert cache.loaded == 4 * (round_ - 1)
        cache.attach(config)
        cache.collect(config)
        assert path.read_bytes() == b"more" * round_
    assert [item.name for item in path.parent.iterdir()] == ["t.cache"]
    with raises_approved(BackendError) as raised:
        timing_cache.TimingCache(str(path)).attach(Config(takes=False))
    assert "delete it" in str(raised.value)
    (tmp_path / "file").write_bytes(b"")
    blocked = timing_cache.TimingCache(str(tmp_path / "file" / "t.cache"))
    blocked.attach(config)
    with pytest.raises(OutputError, match="cannot be written"):
        blocked.collect(config)


def test_builds_of_one_process_share_a_timing_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_cache, "_of_this_process", [])
    caches, configs = [timing_cache.TimingCache(), timing_cache.TimingCache()], [Config(), Config()]
    for cache, config in zip(caches, configs, strict=True):
        cache.attach(config)
        cache.collect(config)
    assert configs[0].cache is configs[1].cache


def test_a_build_that_is_anew_measures_for_itself_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(timing_cache, "_of_this_process", [])
    usual, config = timing_cache.TimingCache(), Config()
    usual.attach(config)
    usual.collect(config)
    (tmp_path / "t.cache").write_bytes(b"measured")
    anew, other, again = timing_cache.TimingCache(str(tmp_path / "t.cache"), anew=True), Config(), Config()
    assert not anew.loaded
    for one in (other, again):
        anew.attach(one)
        anew.collect(one)
    assert other.cache is not config.cache
    assert again.cache is other.cache, "its own engines with marks take the same tactics"
    assert timing_cache._of_this_process == [config.cache]
    assert (tmp_path / "t.cache").read_bytes() == b"measured"


# --- device memory


@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "int64", "bfloat16"])
def test_what_is_uploaded_comes_back(dtype: str) -> None:
    import ml_dtypes

    device = Device(HostGpu())
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    array = np.arange(12).reshape(3, 4)[:, ::2].astype(kind)
    buffer = device.upload(array)
    back = device.download(buffer.pointer, array.shape, kind)
    assert back.dtype == kind
    np.testing.assert_array_equal(back, array)
    empty = device.upload(np.empty((0, 2), kind))
    assert device.download(empty.pointer, (0, 2), kind).shape == (0, 2)
    scalar = device.upload(np.array(1, kind))
    assert device.download(scalar.pointer, (), kind).shape == ()


def test_memory_goes_with_its_buffer_and_shortage_is_told() -> None:
    cuda = HostGpu(limit=1000)
    device: Any = Device(cuda)
    buffer = device.allocate(100)
    assert len(cuda.held) == 1
    del buffer
    assert not cuda.held
    with raises_approved(BackendError) as raised:
        device.allocate(2000)
    assert "mark fewer tensors" in str(raised.value)
    assert device.name == "GPU"
    assert device.free_bytes() == 5


# --- the strongly typed road


def ort_run(proto: onnx.ModelProto, feeds: dict[str, Any]) -> np.ndarray[Any, Any]:
    ort = pytest.importorskip("onnxruntime", reason="runs the written model")
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


CASES = {
    "residual": (models.residual, {"image": (2, 3, 32, 32)}),
    "encoder": (models.encoder, {"embeddings": (1, 32, 64)}),
    "encoder17": (lambda: models.encoder(decomposed=False), {"embeddings": (1, 32, 64)}),
    "loop": (models.loop, {"x": (4, 8)}),
    "quantised": (models.quantised, {"image": (2, 3, 16, 16)}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_written_precision_keeps_names_and_types_of_the_ends(name: str, tmp_path: Path) -> None:
    make, shapes = CASES[name]
    proto = make()
    rng = np.random.default_rng(0)
    feeds = {key: rng.uniform(-1, 1, shape).astype(np.float32) for key, shape in shapes.items()}
    typed = write_casts(proto, "FP16", {}, folder=tmp_path).proto
    onnx.checker.check_model(typed, full_check=True)
    assert [(i.name, i.type) for i in typed.graph.input] == [(i.name, i.type) for i in proto.graph.input]
    assert [(o.name, o.type.tensor_type.elem_type) for o in typed.graph.output] == [
        (o.name, o.type.tensor_type.elem_type) for o in proto.graph.output
    ]
    everything = {name: "" for node in typed.graph.node for name in node.output}
    assert [m.name for m in onnx_tensors(typed.graph, everything, {})] == [
        m.name for m in onnx_tensors(proto.graph, everything, {})
    ]
    wanted, got = ort_run(proto, feeds), ort_run(typed, feeds)
    assert got.dtype == wanted.dtype
    gap = np.abs(got - wanted).max()
    assert gap < 0.01 * np.abs(wanted).max()
    if name.startswith(("residual", "encoder")):
        assert gap > 0


def types_of(proto: onnx.ModelProto) -> dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    return {i.name: i.type.tensor_type.elem_type for i in (*inferred.value_info, *inferred.output)}


def test_single_layers_in_their_own_precision(tmp_path: Path) -> None:
    written = write_casts(models.residual(), "FP16", {"conv2": "FP32", "fc": "BF16"}, folder=tmp_path)
    typed, types = written.proto, types_of(written.proto)
    assert types["conv1_out"] == types["conv2_bn_out"] == onnx.TensorProto.FLOAT16
    assert types["conv2_out"] == onnx.TensorProto.FLOAT
    assert types["logits"] == onnx.TensorProto.BFLOAT16
    assert types["probabilities"] == onnx.TensorProto.FLOAT
    assert not written.regardless
    assert (written.types["conv1"], written.types["conv2"], written.types["fc"]) == ("FP16", "FP32", "BF16")
    weights = {item.name: item.data_type for item in typed.graph.initializer}
    assert weights["conv2_w"] == onnx.TensorProto.FLOAT
    assert weights["fc_w_bf16"] == onnx.TensorProto.BFLOAT16
    assert "conv1_w" not in weights


def test_a_cast_is_written_once_for_all_its_readers(tmp_path: Path) -> None:
    typed = write_casts(models.encoder(), "FP16", {}, folder=tmp_path).proto
    assert list(find_carriers(typed.graph).values()).count("embeddings") == 1


def test_bodies_are_typed_and_take_and_give_fp32(tmp_path: Path) -> None:
    written = write_casts(models.loop(), "FP16", {}, folder=tmp_path)
    typed = written.proto
    assert written.regardless == ()
    assert written.types == dict.fromkeys(["before", "body_mul", "body_add", "after"], "FP16")
    body = next(node for node in typed.graph.node if node.name == "loop").attribute[0].g
    assert [node.op_type for node in body.node] == ["Identity", "Cast", "Mul", "Add", "Cast"]
    held = {item.name: item.data_type for item in typed.graph.initializer}
    assert held["two_fp16"] == held["one_fp16"] == onnx.TensorProto.FLOAT16, "constants of the graph around it too"
    assert [item.type.tensor_type.elem_type for item in body.output] == [onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT]
    branches = write_casts(models.branch(), "BF16", {}, folder=tmp_path).proto
    onnx.checker.check_model(branches, full_check=True)
    both = next(node for node in branches.graph.node if node.name == "if").attribute
    assert [[node.op_type for node in one.g.node] for one in both] == [["Cast", "Neg", "Cast"], ["Cast", "Exp", "Cast"]]
    kept = write_casts(models.loop(), "FP16", {"loop": "FP32"}, folder=tmp_path)
    body = next(node for node in kept.proto.graph.node if node.name == "loop").attribute[0].g
    assert [node.op_type for node in body.node] == ["Identity", "Mul", "Add"]


def test_a_body_with_a_tensor_of_unknown_type_stays(tmp_path: Path) -> None:
    proto = models.loop()
    body = next(node for node in proto.graph.node if node.name == "loop").attribute[0].g
    body.node[1].op_type, body.node[1].domain = "Doubling", "somebody"
    proto.opset_import.append(onnx.helper.make_opsetid("somebody", 1))
    written = write_casts(proto, "FP16", {}, folder=tmp_path)
    assert written.regardless == ("loop",)
    found = next(node for node in written.proto.graph.node if node.name == "loop").attribute[0].g
    assert [node.op_type for node in found.node] == ["Identity", "Doubling", "Add"]


def test_int8_without_qdq_is_calibrated_into_the_model(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="it calibrates")
    feeds = [{"image": np.random.default_rng(n).uniform(-1, 1, (2, 3, 32, 32)).astype(np.float32)} for n in range(3)]
    source = onnx_source(models.residual(), tmp_path)
    typed, notes, asked = make_typed_model(source, recipe("trt_int8"), read_options({}), feeds, tmp_path)
    assert "QuantizeLinear" in typed.op_types
    assert "3 sample sets" in notes[0]
    assert asked == ()
    assert typed.types["conv1"] == typed.types["fc"] == "INT8"
    assert is_approved(typed.types["relu1"])
    zero = [onnx.numpy_helper.to_array(i) for i in typed.model.proto.graph.initializer if "zero_point" in i.name]
    assert all(z.dtype == np.int8 and not z.any() for z in zero)  # TensorRT takes symmetric INT8 only
    wanted, got = ort_run(models.residual(), feeds[0]), ort_run(typed.model.proto, feeds[0])
    assert 0 < np.abs(wanted - got).max() < 0.1


def test_what_is_asked_of_single_layers_on_the_strong_road(tmp_path: Path) -> None:
    source = onnx_source(models.residual(), tmp_path)
    options = read_options({"layer_precisions": "conv*:float32"})
    typed, notes, asked = make_typed_model(source, recipe("trt_fp16"), options, [], tmp_path)
    assert {item.layer for item in asked} >= {"conv1", "conv2_bn"}
    assert asked[0].output
    assert holds_approved(notes[0])
    assert types_of(typed.model.proto)["conv1_out"] == onnx.TensorProto.FLOAT
    with pytest.raises(MarkError, match="no layer 'cnv1'"):
        make_typed_model(source, recipe("trt_fp16"), read_options({"layer_precisions": "cnv1:float32"}), [], tmp_path)


def test_an_engine_without_a_context_names_the_node_whose_size_depends_on_the_data(tmp_path: Path) -> None:
    """What TensorRT 8.6 says of one names nothing."""
    said = run_error("m.onnx", ["1: Unexpected exception vector<bool>::_M_range_check: __n (which is 0)"])
    for name, proto in (("non_zero", models.non_zero()), ("plain", models.residual())):
        onnx.save(proto, tmp_path / f"{name}.onnx")
        error = add_suspect(said, read_source(ModelFiles(model_file=str(tmp_path / f"{name}.onnx"))))
        named = "the reason may be node 'where' (NonZero)" in str(error) and "cut the model before it" in str(error)
        assert named is (name == "non_zero")


def test_weights_in_constant_nodes_are_converted_too() -> None:
    """Paddle's exporter writes them so: casts of them would run with the model, one for each."""
    g = models.Graph()
    weight = onnx.numpy_helper.from_array(np.full((4, 4), 0.1, np.float32))
    g.nodes.append(onnx.helper.make_node("Constant", [], ["w"], name="w_node", value=weight))
    g.node("MatMul", "dense", ["x", "w"], "y")
    typed = write_casts(g.model({"x": [2, 4]}, {"y": [2, 4]}), "FP16", {}, folder=Path(".")).proto
    assert [node.op_type for node in typed.graph.node] == ["Cast", "MatMul", "Cast"]
    (held,) = typed.graph.initializer
    assert held.data_type == onnx.TensorProto.FLOAT16
    onnx.checker.check_model(typed, full_check=True)


LOWEST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize("value", [{"value_float": 0.1}, {"value_floats": [0.1, 0.2, 0.3, 0.4]}])
def test_numbers_in_constant_nodes_are_weights_too(value: dict[str, Any], tmp_path: Path) -> None:
    g = models.Graph()
    g.nodes.append(onnx.helper.make_node("Constant", [], ["c"], name="c_node", **value))
    g.node("Mul", "scaled", ["x", "c"], "y")
    typed = write_casts(g.model({"x": [2, 4]}, {"y": [2, 4]}), "FP16", {}, folder=tmp_path).proto
    assert [node.op_type for node in typed.graph.node] == ["Cast", "Mul", "Cast"]
    (held,) = typed.graph.initializer
    assert np.array_equal(onnx.numpy_helper.to_array(held), np.float16(next(iter(value.values()))))
    onnx.checker.check_model(typed, full_check=True)


@pytest.mark.parametrize(
    ("op_type", "constant", "kept", "held"),
    [
        ("Add", [LOWEST, 0], False, [-65504, 0]),
        ("Mul", LOWEST, False, -65504),
        ("Where", LOWEST, False, -65504),
        ("Max", 1e-12, False, 2.0**-24),
        ("Add", 1e-12, False, 2.0**-24),
        ("Add", [1e-12, 1], False, [0, 1]),
        ("Add", np.inf, False, np.inf),
        ("Add", 1e6, True, None),
        ("Mul", 1e-12, True, None),
        ("Div", [1, 1e8], True, None),
        ("Pow", 3, False, 3),
    ],
)
def test_a_constant_that_the_type_does_not_hold(
    op_type: str, constant: Any, kept: bool, held: Any, tmp_path: Path
) -> None:
    """As TensorRT's own builder narrows weights, finite numbers stay finite; where another number would compute another
    thing, the operator stays in FP32, unless the user says otherwise."""
    g = models.Graph()
    value = np.asarray(constant, np.float32)
    g.weight("c", value)
    g.node(op_type, "node", ["m", "c", "x"] if op_type == "Where" else ["x", "c"], "y")
    proto = g.model({"x": [2, 2], **({"m": [2, 2]} if op_type == "Where" else {})}, {"y": [2, 2]})
    if op_type == "Where":
        proto.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.BOOL
    written = write_casts(proto, "FP16", {}, folder=tmp_path)
    assert written.unfit == (("node",) if kept else ())
    assert written.types == {"node": "FP32" if kept else "FP16"}
    onnx.checker.check_model(written.proto, full_check=True)
    if not kept:
        (found,) = (onnx.numpy_helper.to_array(item) for item in written.proto.graph.initializer)
        assert found.dtype == np.float16
        assert np.array_equal(found, np.asarray(held, np.float16))
    forced = write_casts(proto, "FP16", {"node": "FP16"}, folder=tmp_path)
    assert (forced.unfit, forced.types) == ((), {"node": "FP16"})


def test_a_variance_beyond_fp16_is_told_and_kept(tmp_path: Path) -> None:
    """PP-OCRv4's detector has one of 9.8e7: as infinity it makes every output 0."""
    proto = models.residual()
    variance = next(item for item in proto.graph.initializer if item.name == "conv1_var")
    variance.CopyFrom(onnx.numpy_helper.from_array(np.full(32, 9.8e7, np.float32), variance.name))
    source = onnx_source(proto, tmp_path)
    typed, notes, _ = make_typed_model(source, recipe("trt_fp16"), read_options({}), [], tmp_path)
    assert holds_approved(list(notes))
    assert typed.types["conv1_bn"] == "FP32"
    assert set(typed.types.values()) == {"FP16", "FP32"}
    counted = [note for note in notes if "Operators by the type" in note]
    assert counted
    assert "1 FP32" in counted[0]
    feeds = {"image": np.random.default_rng(0).uniform(-1, 1, (2, 3, 32, 32)).astype(np.float32)}
    wanted, got = ort_run(proto, feeds), ort_run(typed.model.proto, feeds)
    assert 0 < np.abs(got - wanted).max() < 0.01 * np.abs(wanted).max()


def test_operators_between_qdq_run_in_what_they_were_quantised_to(tmp_path: Path) -> None:
    source = onnx_source(models.quantised(), tmp_path)
    for mode, rest in (("trt_int8", "FP32"), ("trt_fp16", "FP16")):
        typed, _, _ = make_typed_model(source, recipe(mode), read_options({}), [], tmp_path)
        kinds = {node.op_type: typed.types.get(node.name, "") for node in typed.model.proto.graph.node}
        assert kinds["Conv"] == "INT8"
        assert kinds["Relu"] == "INT8", "alone between a convolution and a QuantizeLinear"
        assert {kind for kind in kinds.values() if kind} <= {"INT8", rest}
        assert kinds["QuantizeLinear"] == kinds["DequantizeLinear"] == ""
