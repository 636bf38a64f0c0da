"""What the quantiser refuses in the form that we prepare, and takes by itself; and numbers that are fed as [1]."""

from __future__ import annotations

import inspect
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import holds_approved, raises_approved
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import onnxruntime
from planted.onnx_faults import Graph, tokens

import precision_debug
from precision_debug.errors import BackendUnavailable, ModelError, NothingToQuantise, UsageError
from precision_debug.reasons import as_reason
from precision_debug.records import ModelFiles, SessionSpec

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(4, 8)).astype(np.float32)
IN_4_BITS = pytest.param("ort_int4", marks=pytest.mark.skipif(
    not find_spec("onnx_ir"), reason="ONNX Runtime's own quantiser of 4 bits needs onnx_ir"))  # fmt: skip


@pytest.fixture
def product(tmp_path: Path) -> str:
    """A product and a sum, which ONNX Runtime's basic optimisations make one Gemm of."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["a"]),
            helper.make_node("Mul", ["a", "k"], ["y"]),
        ],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8]),
         helper.make_tensor_value_info("k", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
        [numpy_helper.from_array(RANDOM.normal(size=(8, 8)).astype(np.float32), "w"),
         numpy_helper.from_array(RANDOM.normal(size=8).astype(np.float32), "b")],
    )  # fmt: skip
    path = tmp_path / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return str(path)


def test_a_refusal_is_tried_against_the_quantiser_as_it_is(product: str) -> None:
    report = precision_debug.compare(
        product, run_mode="ort_int8", inputs={"x": X, "k": np.float32(2)}, explain="off", op_types=["MatMul"],
        pre_process=True,
    )  # fmt: skip
    said = [str(note) for note in report.target.notes]
    assert holds_approved(list(said)), "why it is not folded"
    assert report.outputs[0].relative_l2
    with raises_approved(ModelError, 2):
        precision_debug.compare(
            product, run_mode="ort_int8", inputs={"x": X, "k": np.float32(2)}, explain="off",
            op_types=["Conv"], pre_process=True,
        )  # fmt: skip


def test_a_number_may_be_fed_as_one_element(product: str) -> None:
    given = {"x": X, "k": np.full(1, 2, np.float32)}
    report = precision_debug.compare(product, run_mode="ort_opt", inputs=given, explain="off")
    row = {row.name: row for row in report.rows}["k"]
    assert row.comparison is not None
    assert (row.comparison.base.shape, row.comparison.base.max) == ((), 2.0)
    assert holds_approved([str(note) for note in report.notes])


def test_a_shared_bias_whose_copy_would_have_the_name_of_a_tensor(tmp_path: Path) -> None:
    """The quantiser copies a bias that two convolutions read as "b2": here the second one's result has that name."""
    weight = RANDOM.normal(size=(8, 8, 1, 1)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["one"]), helper.make_node("Conv", ["one", "w", "b"], ["b2"]),
            helper.make_node("Relu", ["b2"], ["y"]),
        ],
        "shared",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 4, 4])],
        [numpy_helper.from_array(weight, "w"),
         numpy_helper.from_array(RANDOM.normal(size=8).astype(np.float32), "b"),
         numpy_helper.from_array(np.zeros(1, np.float32), "b1")],
    )  # fmt: skip
    path = tmp_path / "shared.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    feeds = {"x": RANDOM.normal(size=(1, 8, 4, 4)).astype(np.float32)}
    report = precision_debug.compare(str(path), run_mode="ort_int8", inputs=feeds)
    assert report.outputs[0].relative_l2 < 0.05
    assert any("quantised" in str(note) for note in report.target.notes)


@pytest.mark.parametrize("options", [
    {}, {"calibration": "percentile"}, {"calibration": "entropy"}, {"pre_process": True, "per_channel": True},
    {"activation_type": "float8", "weight_type": "float8"},
], ids=str)  # fmt: skip
def test_ranges_are_measured_once_for_many_sets_and_change_nothing(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the float model's, whatever is excluded, so that what one set measured serves the others to the bit;
    those of other inputs are measured anew."""
    from onnxruntime.quantization import calibrate, quantize_static
    from planted.onnx_faults import CASES
    from precision_debug_onnxruntime import OnnxRuntimeBackend
    from precision_debug_onnxruntime.make import quantise

    if "calibration_cache_path" not in inspect.signature(quantize_static).parameters:
        pytest.skip("this onnxruntime keeps no ranges (1.32 does)")
    backend = OnnxRuntimeBackend()
    model, _, feeds = next(case for case in CASES if case.name == "outlier_activation").make(tmp_path)
    nodes = [node.name for node in onnx.load(str(model)).graph.node if node.op_type in ("MatMul", "Gemm")]
    folders = iter(range(100))

    def ran(given: Any, names: tuple[str, ...]) -> Any:
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        spec = SessionSpec(
            model=ModelFiles(model_file=str(model)), mode="ort_int8", work_dir=str(folder),
            options={"side": "target", "nodes_to_exclude": names, **options},
        )  # fmt: skip
        session = backend.open(spec, [given])
        output = next(np.array(value) for value in session.run(feeds).values())
        session.close()
        return output

    less = {name: value / 2 for name, value in feeds.items()}
    sets = ((), (nodes[0],), tuple(nodes[1:4]))
    anew = []
    for given, names in (*((feeds, names) for names in sets), (less, ())):
        monkeypatch.setattr(quantise, "_known", type(quantise._known)())
        anew.append(ran(given, names))
    module = sys.modules["onnxruntime.quantization.quantize"]  # of the same name as one of its functions
    calls, plain = [], calibrate.create_calibrator
    monkeypatch.setattr(quantise, "_known", type(quantise._known)())
    monkeypatch.setattr(module, "create_calibrator", lambda *a, **k: calls.append(0) or plain(*a, **k))
    for names, expected in zip(sets, anew, strict=False):
        np.testing.assert_array_equal(ran(feeds, names), expected)
    assert len(calls) == 1
    assert not any(b'"hist"' in one.ranges for one in quantise._known.values())
    np.testing.assert_array_equal(ran(less, ()), anew[-1])
    assert len(calls) == 2


@pytest.mark.parametrize("mode", ["ort_int8", "ort_int8_dynamic", IN_4_BITS])
@pytest.mark.parametrize("options", [{}, {"pre_process": True}], ids=str)
def test_a_set_that_is_run_again_is_not_quantised_again(
    mode: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made is the same to the bit, also with an option of the session; what makes another file makes it."""
    from planted.onnx_faults import CASES
    from precision_debug_onnxruntime import OnnxRuntimeBackend
    from precision_debug_onnxruntime.make import quantise

    if options and mode != "ort_int8":
        pytest.skip("an option of ort_int8")
    backend = OnnxRuntimeBackend()
    model, _, feeds = next(case for case in CASES if case.name == "outlier_activation").make(tmp_path)
    nodes = [node.name for node in onnx.load(str(model)).graph.node if node.op_type in ("MatMul", "Gemm")]
    names = ("_quantise_statically", "_quantise_dynamically", "_quantise_to_4_bits")
    monkeypatch.setattr(quantise, "_known", type(quantise._known)())
    calls: list[str] = []
    for name in names:
        plain = getattr(quantise, name)
        monkeypatch.setattr(quantise, name, lambda *a, n=name, p=plain: (calls.append(n), p(*a))[1])

    def ran(number: int, **more: Any) -> Any:
        folder = tmp_path / str(number)
        folder.mkdir()
        whole = {"side": "target", **options, **more}
        spec = SessionSpec(model=ModelFiles(model_file=str(model)), mode=mode, work_dir=str(folder), options=whole)
        session = backend.open(spec, [feeds])
        output = next(np.array(value) for value in session.run(feeds).values())
        session.close()
        return output

    first = ran(0)
    made = len(calls)
    np.testing.assert_array_equal(ran(1), first)
    if not options and mode != "ort_int4":
        ran(2, config={"session.x64quantprecision": "1"})
    assert len(calls) == made
    other = ran(3, nodes_to_exclude=tuple(nodes[1:4]))
    assert len(calls) > made
    assert (other != first).any()
    np.testing.assert_array_equal(ran(4), first)


def test_what_products_around_a_concat_are_is_known_behind_the_reshapes_that_the_quantiser_puts_in(
    tmp_path: Path,
) -> None:
    """A product of three dimensions becomes Reshape, Gemm, Reshape: behind it and behind a QLinearConcat no name is
    left, and the one that loses the precision, the Concat of two ranges, was not seen."""
    g = Graph(seed=8)
    x = g.norm(g.mlp(tokens(g), 32, "a"), 32, "n")
    small, raw = g.dense(x, 32, 8, "small"), g.dense(x, 32, 8, "raw")
    wide = g.op("Concat", [small, g.op("Mul", [raw, g.weight("f", np.float32(400))], "loud")], "wide", axis=-1)
    ends = [g.weight(name, np.array([value])) for name, value in (("from", 0), ("to", 8), ("along", -1))]
    path = g.save(tmp_path / "m.onnx", [g.dense(g.op("Slice", [wide, *ends], "first"), 8, 8, "y")])
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=g.feeds)
    compared = {row.name for row in report.compared}
    assert {"small", "raw", "loud", "wide", "first", "y"} <= compared
    assert report.explanation is not None
    culprit = report.explanation.culprits[0]
    assert (culprit.name, culprit.cause) == ("wide", "outlier_channel")


@pytest.fixture(scope="module")
def two_products(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    random = np.random.default_rng(3)
    weights = {name: (random.standard_normal((64, 64)) / 8).astype(np.float32) for name in ("w1", "w2")}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["t"], name="relu"),
        helper.make_node("MatMul", ["t", "w2"], ["y"], name="second"),
    ]
    path = tmp_path_factory.mktemp("products") / "m.onnx"
    value = helper.make_tensor_value_info
    ends = [value("x", TensorProto.FLOAT, [8, 64])], [value("y", TensorProto.FLOAT, [8, 64])]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "products", *ends, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path, {"x": random.standard_normal((8, 64)).astype(np.float32)}


@pytest.mark.parametrize(
    ("activation", "weight", "most"), [("int16", "int8", 0.02), ("int8", "int4", 0.3), ("float8", "float8", 0.2)]
)
def test_each_type_of_the_quantiser_is_its_own_file(
    two_products: tuple[Path, dict[str, Any]], activation: str, weight: str, most: float, tmp_path: Path
) -> None:
    """Run as it is compared: without the pass that ONNX Runtime 1.32 makes float8 wrong with."""
    from onnxruntime import quantization

    path, feeds = two_products

    class Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter([feeds])

        def get_next(self) -> Any:
            return next(self.left, None)

    kinds = {"int16": "QInt16", "int8": "QInt8", "int4": "QInt4", "float8": "QFLOAT8E4M3FN"}
    method = "Distribution" if activation == "float8" else "MinMax"
    quantization.quantize_static(
        str(path), str(tmp_path / "stock.onnx"), Feeds(), nodes_to_exclude=["relu"],
        activation_type=quantization.QuantType[kinds[activation]], weight_type=quantization.QuantType[kinds[weight]],
        calibrate_method=quantization.CalibrationMethod[method],
    )  # fmt: skip
    off = ["ReluQuantRewrite"]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    stock = onnxruntime.InferenceSession(str(tmp_path / "stock.onnx"), options, disabled_optimizers=off)
    exact = onnxruntime.InferenceSession(str(path), options).run(None, feeds)[0].astype(np.float64)
    expected = np.linalg.norm(stock.run(None, feeds)[0] - exact) / np.linalg.norm(exact)
    report = precision_debug.compare(
        str(path), run_mode="ort_int8", inputs=feeds, explain="off", activation_type=activation, weight_type=weight,
        nodes_to_exclude=["relu"], disabled_optimizers=off,
    )  # fmt: skip
    assert report.outputs[0].relative_l2 == pytest.approx(float(expected), rel=0.02)
    assert 1e-4 < expected < most


def test_float8_for_one_of_both_is_refused(two_products: tuple[Path, dict[str, Any]]) -> None:
    path, feeds = two_products
    with pytest.raises(UsageError, match="float8"):
        precision_debug.compare(str(path), run_mode="ort_int8", inputs=feeds, activation_type="float8")


def test_a_pass_that_takes_float8_for_integers_is_named(two_products: tuple[Path, dict[str, Any]]) -> None:
    """And not the type: no rounding of a Relu's result is off by more than all of it."""
    path, feeds = two_products
    report = precision_debug.compare(
        str(path), run_mode="ort_int8", inputs=feeds, activation_type="float8", weight_type="float8"
    )
    if (report.outputs[0].relative_l2 or 0.0) < 0.2:
        pytest.skip("this ONNX Runtime's ReluQuantRewrite leaves float8 alone")
    assert report.explanation is not None
    culprit = report.explanation.culprits[0]
    assert (culprit.name, culprit.cause) == ("t", "faulty_pass")
    assert culprit.evidence["passes"] == "ReluQuantRewrite"
    assert culprit.evidence["after"] < 0.2


def test_weights_in_constant_nodes_are_quantised_as_they_stand(tmp_path: Path) -> None:
    """As Paddle2ONNX writes them. The quantiser puts those outside of the file as well, and such a file did not load:
    constants were folded first, which the bare call does not do."""
    from onnxruntime import quantization

    random = np.random.default_rng(4)
    held = {"w": random.normal(size=(32, 32, 3, 3)), "s": random.normal(size=(32, 1, 1)), "b": np.zeros((32, 1, 1))}
    nodes = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value.astype(np.float32)))
        for name, value in held.items()
    ]
    nodes += [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Mul", ["c", "s"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]), helper.make_node("Relu", ["a"], ["y"]),
    ]  # fmt: skip
    value, size = helper.make_tensor_value_info, [1, 32, 8, 8]
    ends = [value("x", TensorProto.FLOAT, size)], [value("y", TensorProto.FLOAT, size)]
    path, made = tmp_path / "m.onnx", tmp_path / "stock.onnx"
    graph = helper.make_graph(nodes, "constants", *ends)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    feeds = {"x": random.normal(size=size).astype(np.float32)}

    class Feeds(quantization.CalibrationDataReader):  # type: ignore[misc]
        left = iter([feeds])

        def get_next(self) -> Any:
            return next(self.left, None)

    quantization.quantize_static(str(path), str(made), Feeds())
    exact, stock = (onnxruntime.InferenceSession(str(one)).run(None, feeds)[0] for one in (path, made))
    kept = tmp_path / "kept.onnx"
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=feeds, explain="off", save_model=str(kept))
    told = [as_reason(note).code for note in report.target.notes]
    assert told == ["onnxruntime.quantised", "onnxruntime.model_saved"]
    expected = np.linalg.norm(stock - exact) / np.linalg.norm(exact)
    assert report.outputs[0].relative_l2 == pytest.approx(float(expected), rel=1e-3)
    np.testing.assert_array_equal(onnxruntime.InferenceSession(str(kept)).run(None, feeds)[0], stock)


@pytest.mark.parametrize("mode", [IN_4_BITS, "ort_int8_dynamic"])
def test_what_a_refused_mode_could_be_asked_otherwise_it_has(mode: str, tmp_path: Path) -> None:
    """Of 4 bits there are no op_types."""
    from precision_debug_onnxruntime import OnnxRuntimeBackend

    g = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, [2, 4])],
        [helper.make_tensor_value_info("y", 1, [2, 4])],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode=mode, work_dir=str(tmp_path), options={})
    with pytest.raises(NothingToQuantise) as caught:
        OnnxRuntimeBackend().open(spec, [{"x": np.ones((2, 4), np.float32)}])
    assert ("op_types" in str(caught.value)) == (mode != "ort_int4")


def test_the_package_that_the_quantiser_of_4_bits_lacks_is_named(
    product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = "onnxruntime.quantization.matmul_nbits_quantizer"
    found = find_spec(tool)
    if found is None or "onnx_ir" not in Path(str(found.origin)).read_text(encoding="utf-8"):
        pytest.skip("this ONNX Runtime's quantiser of 4 bits does without")
    monkeypatch.delitem(sys.modules, tool, raising=False)
    monkeypatch.setitem(sys.modules, "onnx_ir", None)
    with pytest.raises(BackendUnavailable) as raised:
        precision_debug.compare(product, run_mode="ort_int4", inputs={"x": X, "k": np.float32(2)}, explain="off")
    assert raised.value.hint == "pip install onnx_ir"


def test_what_the_quantiser_lists_of_an_object_is_cut() -> None:
    """In float8 some models end with all of Python's ``dir()`` in the message, 25 lines of a terminal."""
    from precision_debug_onnxruntime.make import quantise

    with pytest.raises(ValueError, match="missing") as caught:
        raise ValueError("Attributes 'avg' missing in [" + "'__class__', " * 90 + "'to_dict'].")
    said = quantise._describe_error(caught.value)
    assert len(said) < 200
    assert said.startswith("Attributes 'avg' missing")


def test_who_reads_a_wrong_tensor_twice_is_judged_on_the_baselines_numbers(tmp_path: Path) -> None:
    """ONNX Runtime dequantises once more for a second reader, to which the target's own numbers went on."""
    g = Graph(seed=3)
    x = g.input("x", RANDOM.normal(size=(24, 32)).astype(np.float32))
    size = np.where(np.arange(32) == 17, 1 / 50, 1).astype(np.float32)
    bad = g.dense(g.op("Mul", [x, g.weight("size", size)], "less"), 32, 32, "bad")
    g.weights["bad.w"] = (g.weights["bad.w"] / size[:, None]).astype(np.float32)
    down = g.dense(g.op("Relu", [g.dense(bad, 32, 32, "up")], "act"), 32, 32, "down")
    y = g.dense(g.op("Add", [bad, down], "joined"), 32, 8, "y")
    path = str(g.save(tmp_path / "twice.onnx", [y]))
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=g.feeds, pre_process=True, per_channel=True)
    own = {row.name: row.introduced.rel_l2 for row in report.rows if row.introduced is not None}
    assert own["bad"] > 0.05
    assert own["joined"] < 0.02
    assert report.explanation is not None
    named = [one.name for one in report.explanation.culprits]
    assert named[0] == "bad"
    assert "joined" not in named


@pytest.mark.parametrize(("folds", "code"), [(False, "per_channel_in_vain"), (True, "per_channel")])
def test_scales_of_channels_are_told_only_where_there_are_some(folds: bool, code: str, tmp_path: Path) -> None:
    """Weights in Constant nodes, as Paddle's exporter writes them, are none to the quantiser unless they are folded."""
    random = np.random.default_rng(0)
    weight = onnx.numpy_helper.from_array(random.standard_normal((4, 3, 3, 3)).astype(np.float32), "value")
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Constant", [], ["w"], value=weight),
            onnx.helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
            onnx.helper.make_node("Div", ["c", "size_scale"], ["y"]),
        ],
        "constants", [onnx.helper.make_tensor_value_info("x", 1, [1, 3, 8, 8])],
        [onnx.helper.make_tensor_value_info("y", 1, [1, 4, 8, 8])],
        [onnx.numpy_helper.from_array(random.uniform(0.5, 1, (4, 1, 1)).astype(np.float32), "size_scale")],
    )  # fmt: skip
    path = tmp_path / "constants.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    feeds = {"x": random.standard_normal((1, 3, 8, 8)).astype(np.float32)}
    report = precision_debug.compare(
        path, run_mode="ort_int8", inputs=feeds, per_channel=True, pre_process=folds, explain="off"
    )
    told = [reason.args["how"].code for reason in report.target.notes if "how" in getattr(reason, "args", {})]
    assert told == [f"onnxruntime.{code}"]
