"""Two files of one model: what a tool changed between them is what the report says."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_models
import pytest
from approval import holds_approved
from onnx import TensorProto, helper, numpy_helper
from planted.fifteenth_onnx import CASES as SMOOTHED
from planted.fourteenth_onnx import CASES
from planted.nineteenth_onnx import CASES as CONVERTED
from planted.onnx_faults import Graph
from planted.sixteenth_onnx import CASES as LOST

import precision_debug
from precision_debug.report.lead import lead_sentences


def quarters(read: list[str]) -> onnx.ModelProto:
    """Four quarters of x side by side, as a Focus layer has them; read: which of them the Concat reads."""
    names = {name for name in read if name.startswith("p")}
    nodes = []
    for place in range(4):
        if f"p{place}" in names:
            begin, end = [place // 2 * 4, place % 2 * 4], [place // 2 * 4 + 4, place % 2 * 4 + 4]
            given = [("begin", begin), ("end", end), ("axes", [2, 3])]
            nodes += [
                helper.make_node("Constant", [], [f"{kind}{place}"], value_ints=numbers) for kind, numbers in given
            ]
            bounds = [f"{kind}{place}" for kind, _ in given]
            nodes.append(helper.make_node("Slice", ["x", *bounds], [f"p{place}"], name=f"slice{place}"))
    nodes.append(helper.make_node("Concat", read, ["c"], axis=1, name="concat"))
    nodes.append(helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3], keepdims=0, name="mean"))
    return onnx_models.model(nodes, [onnx_models.value("x", [1, 3, 8, 8])], [onnx_models.value("y")], {})


def test_an_operator_that_reads_some_of_its_inputs_twice_is_named_with_them(tmp_path: Path) -> None:
    """As OnnxSlim 0.1.82 leaves it (inisis/OnnxSlim#277)."""
    onnx.save(quarters(["p0", "p1", "p2", "p3"]), tmp_path / "first.onnx")
    onnx.save(quarters(["p0", "p1", "p0", "p1"]), tmp_path / "second.onnx")
    x = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)
    report = precision_debug.compare(
        tmp_path / "second.onnx", baseline_model=str(tmp_path / "first.onnx"), run_mode="ort_fp32", baseline="ort_fp32",
        inputs={"x": x},
    )  # fmt: skip
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause) == ("c", "files_differ")
    assert first.evidence["base"] == "p0, p1, p2, p3"
    assert first.evidence["target"] == "p0, p1"


def net(**changed: Any) -> onnx.ModelProto:
    """Operators that OpenVINO splits or calls otherwise: a norm, a Gemm, a Clip, a Softmax, a square product."""
    random = np.random.default_rng(3)
    weights = {name: (random.normal(size=8 if name in "bgh" else (8, 8)) * 0.5).astype(np.float32) for name in "wvubgh"}
    weights |= {"low": np.float32(-0.6), "high": np.float32(1.5), "p": np.float32(2.0)}
    weights |= {name: change(weights[name]) for name, change in changed.items() if name in weights}
    norm, gemm = {"epsilon": 1e-5, "axis": -1}, {"alpha": 1.0, "transB": 0}
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "h"], ["n"], **norm | changed.get("norm", {})),
        helper.make_node("MatMul", ["n", "w"], ["m"]),
        helper.make_node("Clip", ["m", "low", "high"], ["c"]),
        helper.make_node("Gemm", ["c", "v", "b"], ["f"], **gemm | changed.get("gemm", {})),
        helper.make_node("Softmax", ["f"], ["s"], axis=changed.get("axis", -1)),
        helper.make_node("Mul", ["s", "p"], ["d"]),
        helper.make_node("Sub", changed.get("order", ["d", "c"]), ["e"]),
        helper.make_node("MatMul", ["e", "u"], ["y"]),
    ]
    return onnx_models.model(nodes, [onnx_models.value("x", [6, 8])], [onnx_models.value("y")], weights, opset=17)


FAULTS = {
    "transposed product": ("m", {"w": np.transpose}), "transposed last product": ("y", {"u": np.transpose}),
    "transposed Gemm": ("f", {"v": np.transpose}), "Gemm's flag": ("f", {"gemm": {"transB": 1}}),
    "Gemm's factor": ("f", {"gemm": {"alpha": 0.5}}), "epsilon": ("n", {"norm": {"epsilon": 0.1}}),
    "gain": ("n", {"g": lambda a: a + np.eye(8, dtype=np.float32)[2]}), "bias": ("f", {"b": lambda a: a[::-1].copy()}),
    "bound": ("c", {"high": lambda a: a / 2}), "axis": ("s", {"axis": 0}), "factor": ("d", {"p": lambda a: a * 3}),
    "order": ("e", {"order": ["c", "d"]}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_two_files_do_not_share_is_told_whoever_runs_them(fault: str, tmp_path: Path) -> None:
    """The engines have other words for an operator than the file, and each other."""
    pytest.importorskip("openvino")
    who, changed = FAULTS[fault]
    onnx.save(net(), tmp_path / "first.onnx")
    onnx.save(net(**changed), tmp_path / "second.onnx")
    report = precision_debug.compare(
        tmp_path / "second.onnx", baseline_model=str(tmp_path / "first.onnx"), run_mode="ov_fp32", baseline="ort_fp32",
        inputs={"x": np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)},
    )  # fmt: skip
    assert report.explanation is not None
    assert [(one.name, one.cause) for one in report.explanation.culprits] == [(who, "files_differ")]


@pytest.mark.parametrize(
    ("op", "reads"), [("Sub", ["one", "x"]), ("Div", ["one", "x"]), ("Where", ["keep", "one", "x"])]
)
def test_a_constant_on_the_other_side_of_an_operator_is_told(op: str, reads: list[str], tmp_path: Path) -> None:
    weights = {"one": np.full(8, 1.5, np.float32), "keep": np.arange(8) % 3 == 0, "w": np.eye(8, dtype=np.float32)}
    weights = {name: one for name, one in weights.items() if name in {*reads, "w"}}
    for name, read in (("first", reads), ("second", [*reads[:-2], *reads[-2:][::-1]])):
        nodes = [helper.make_node(op, read, ["e"]), helper.make_node("MatMul", ["e", "w"], ["y"])]
        values = [onnx_models.value("x", [6, 8])], [onnx_models.value("y")]
        onnx.save(onnx_models.model(nodes, *values, weights), tmp_path / f"{name}.onnx")
    report = precision_debug.compare(
        tmp_path / "second.onnx", baseline_model=str(tmp_path / "first.onnx"), run_mode="ort_fp32", baseline="ort_fp32",
        inputs={"x": np.random.default_rng(0).uniform(1, 2, size=(6, 8)).astype(np.float32)},
    )  # fmt: skip
    assert report.explanation is not None
    found = report.explanation.culprits[0]
    assert (found.name, found.cause) == ("e", "files_differ")
    assert (found.evidence["base"].split(", ")[-2:], found.evidence["target"].split(", ")[-2:]) == (
        reads[-2:], reads[-2:][::-1])  # fmt: skip


def test_a_constant_inside_a_region_that_an_engine_fused_is_told_of_its_own_file(tmp_path: Path) -> None:
    """OpenVINO takes convolution and Relu as one, and calls neither as ONNX does."""
    pytest.importorskip("openvino")
    case = next(one for one in CONVERTED if one.name == "ir_of_an_earlier_body")
    target, base, feeds = case.make(tmp_path)
    report = precision_debug.compare(
        target, baseline_model=str(base), run_mode="ov_opt", baseline="ort_fp32", inputs=feeds
    )
    assert report.explanation is not None
    found = report.explanation.culprits[0]
    assert (found.name, found.cause) == ("r2", "files_differ")
    assert "body" in str(found.evidence["name"])


def two_convolutions(pads: list[int], *, bias: bool = True) -> onnx.ModelProto:
    """Two convolutions that are added, which ONNX Runtime makes one operator of with the activation behind it."""
    random = np.random.default_rng(4)
    weights = {"v": (random.normal(size=(8, 3, 5, 5)) / 9).astype(np.float32), "c": np.full(8, 0.3, np.float32),
               "w": (random.normal(size=(8, 3, 3, 3)) / 5).astype(np.float32)}  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "v", "c"] if bias else ["x", "v"], ["first"], name="first", pads=pads),
        helper.make_node("Conv", ["x", "w"], ["second"], name="second", pads=[1] * 4),
        helper.make_node("Add", ["first", "second"], ["sum"], name="sum"),
        helper.make_node("Relu", ["sum"], ["y"], name="y"),
    ]
    if not bias:
        del weights["c"]
    return onnx_models.model(nodes, [onnx_models.value("x", [1, 3, 8, 8])], [onnx_models.value("y")], weights)


def test_another_operator_in_a_tensors_place_is_told_whoever_runs_it(tmp_path: Path) -> None:
    """A softplus that an exporter made a relu of: OpenVINO has no word of ONNX's for either."""
    pytest.importorskip("openvino")
    from planted.onnx_faults import Graph, tokens

    graphs = Graph(seed=1), Graph(seed=1)
    for g, op in zip(graphs, ("Softplus", "Relu"), strict=True):
        g.dense(g.op(op, [g.dense(tokens(g, 16), 16, 16, "a")], "step"), 16, 4, "y")
    first, second = (g.save(tmp_path / f"{n}.onnx", ["y"]) for n, g in enumerate(graphs))
    report = precision_debug.compare(
        second, baseline_model=first, run_mode="ov_fp32", baseline="ort_fp32", inputs=graphs[0].feeds
    )
    assert holds_approved(lead_sentences(report)[0].en)


@pytest.mark.parametrize("mode", ["ort_opt", "ort_fp32"])
@pytest.mark.parametrize("fault", ["pads", "bias"])
def test_which_operator_of_a_fused_region_differs_is_said(fault: str, mode: str, tmp_path: Path) -> None:
    """And a constant that one file lacks is missing there, not "2 in the baseline's and 1 in the target's"."""
    pads = [3, 3, 1, 1] if fault == "pads" else [2] * 4
    onnx.save(two_convolutions([2] * 4), tmp_path / "base.onnx")
    onnx.save(two_convolutions(pads, bias=fault != "bias"), tmp_path / "target.onnx")
    report = precision_debug.compare(
        tmp_path / "target.onnx", baseline_model=str(tmp_path / "base.onnx"), run_mode=mode, baseline="ort_fp32",
        inputs={"x": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)},
    )  # fmt: skip
    sentence = lead_sentences(report)[0]
    what = "pads" if fault == "pads" else "c"
    whose = " (Conv first)" if mode == "ort_opt" else ""
    assert f"{what}{whose} is " in sentence.en
    assert "Conv" in sentence.en
    if fault == "bias":
        assert holds_approved(sentence.en)
        assert "在基线中为 有，在目标中为 无" in sentence.zh


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [(np.int64(49_000), np.int64(49_003), (49_000, 49_003)), (np.int64(2**53 + 1), np.int64(2**53), (2**53 + 1, 2**53)),
     (np.bool_(True), np.bool_(False), (True, False)), (np.float32(0.5), np.float32(0.25), (0.5, 0.25))],
)  # fmt: skip
def test_an_element_that_differs_between_two_files_is_told_as_it_is(first: Any, second: Any, found: Any) -> None:
    from precision_debug.explain.moved import find_first_difference

    told = find_first_difference("ids", np.array([first, first]), np.array([first, second]))
    assert (told["base"], told["target"], told["at"]) == (*found, [1])


def test_a_tensor_of_another_shape_on_both_sides_is_not_asked_for_its_numbers() -> None:
    """Where the work was cut otherwise it is a candidate without a row: that ended all explaining."""
    from types import SimpleNamespace

    from precision_debug.explain.subject import Subject

    assert not Subject.broken(SimpleNamespace(row_of={}), "add")  # type: ignore[arg-type]


def _store_in_half(model: Any) -> Any:
    """Every weight in float16, and a cast in front of who reads it."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.initializer[:]
    for one in model.graph.initializer:
        half = onnx.numpy_helper.to_array(one).astype(np.float16)
        made.graph.initializer.append(onnx.numpy_helper.from_array(half, f"{one.name}_half"))
        made.graph.node.insert(0, onnx.helper.make_node("Cast", [f"{one.name}_half"], [one.name], to=1))
    return made


@pytest.mark.parametrize(("grown", "many"), [(lambda w: None, 0), (lambda w: w.put(3, w.flat[3] + 0.5), 1),
                                             (lambda w: w[2].__imul__(np.float16(1.004)), 75)])  # fmt: skip
def test_weights_that_are_stored_in_half_cost_what_that_costs(grown: Any, many: int, tmp_path: Path) -> None:
    """They are not missing, and their rounding is expected; numbers of them that are others are told, whatever it comes
    to beside that rounding."""
    plain = two_convolutions([2] * 4)
    onnx.save(plain, tmp_path / "first.onnx")
    half = _store_in_half(plain)
    weight = next(one for one in half.graph.initializer if len(one.dims) == 4)
    values = onnx.numpy_helper.to_array(weight).copy()
    grown(values)
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(half, tmp_path / "second.onnx")
    feeds = {"x": np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    report = precision_debug.compare(
        tmp_path / "second.onnx", run_mode="ort_opt", baseline_model=str(tmp_path / "first.onnx"), baseline="ort_fp32",
        inputs=feeds,
    )  # fmt: skip
    assert report.explanation is not None
    told = [(one.cause, one.evidence["beyond"]) for one in report.explanation.culprits]
    assert (report.exit_status, told) == ((1, [("files_differ", many)]) if many else (0, []))


@pytest.mark.parametrize(("kind", "dropped"), [("float16", 13), ("bfloat16", 16)])
def test_a_number_that_is_cut_off_where_others_round_is_no_other_number(kind: str, dropped: int) -> None:
    from precision_debug.explain.subject import _is_between_none

    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    cut = (values.view(np.uint32) >> dropped << dropped).view(np.float32)
    assert not _is_between_none(values, cut, kind)
    assert _is_between_none(values, cut * np.float32(1.01), kind)


def test_what_passes_through_float8_is_held_in_float8(tmp_path: Path) -> None:
    """What a type of 8 bits cuts off is that type's overflow, not another operator in the baseline's place."""
    from planted.onnx_faults import Graph, tokens

    files = []
    for quantised in (False, True):
        g = Graph(seed=3, opset=19)
        h = g.op("Mul", [g.dense(tokens(g, 16), 16, 16, "a"), g.weight("loud", np.float32(300))], "h")
        if quantised:
            one = g.weight("one", np.float32(1))
            zero = onnx.helper.make_tensor("zero", onnx.TensorProto.FLOAT8E4M3FN, [], [0])
            held = g.op("QuantizeLinear", [h, one, g.op("Constant", [], "zero", value=zero)], "h_q")
            h = g.op("DequantizeLinear", [held, one, "zero"], "h_dq")
        g.dense(h, 16, 4, "y")
        files.append(g.save(tmp_path / f"{quantised}.onnx", ["y"]))
    report = precision_debug.compare(
        files[1], baseline_model=str(files[0]), run_mode="ort_opt", baseline="ort_fp32", inputs=g.feeds
    )
    assert report.explanation is not None
    (first,) = report.explanation.culprits  # and not the product: ONNX Runtime quantises what it reads once more
    assert (report.exit_status, first.name, first.cause, first.evidence["limit"]) == (1, "h", "overflow", 448)


def test_two_large_weights_are_held_against_each_other_without_a_copy_of_either() -> None:
    from precision_debug.explain.files import _find_rounded
    from precision_debug.explain.moved import find_first_difference
    from precision_debug.numbers.blocks import measure_norm

    first = np.random.default_rng(0).normal(size=(2048, 1024)).astype(np.float32)
    second = first.astype(np.float16).astype(np.float32)
    third = np.array(first)
    third[1500, 7] += 1
    tracemalloc.start()
    norms = measure_norm(second, first), measure_norm(first.T)
    told, rounded = find_first_difference("w", first, third), _find_rounded("w", first, second)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < first.nbytes / 2
    wanted = [np.linalg.norm(one.astype(np.float64)) for one in (second - first, first)]
    assert norms == pytest.approx(tuple(wanted), rel=1e-12)
    assert (told["count"], told["at"]) == (1, [1500, 7])
    apart = np.abs(first.astype(np.float64) - second)
    assert rounded["count"] == np.count_nonzero(apart)
    assert rounded["at"] == [int(one) for one in np.unravel_index(np.argmax(apart), first.shape)]
    assert not _find_rounded("w", first, third)


@pytest.mark.parametrize("mode", ["ort_fp32", "ort_opt"])
@pytest.mark.parametrize("kept", ["", "second"])
def test_a_converted_file_holds_rounded_constants_and_is_no_other_model(
    kept: str, mode: str, tmp_path: Path
) -> None:
    """Whole, or mixed as a fix writes it: what it loses is told as its rounding, with what is left without it."""
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    plain = two_convolutions([2] * 4)
    onnx.save(plain, tmp_path / "first.onnx")
    half = float16.convert_float_to_float16(plain, keep_io_types=True, node_block_list=[kept])
    onnx.save(half, tmp_path / "second.onnx")
    given = plain.graph.input[0]
    shape = [axis.dim_value for axis in given.type.tensor_type.shape.dim]
    feeds = {given.name: np.random.default_rng(1).normal(size=shape).astype(np.float32)}
    options: dict[str, Any] = {"baseline_model": str(tmp_path / "first.onnx"), "baseline": "ort_fp32", "inputs": feeds}
    report = precision_debug.compare(tmp_path / "second.onnx", run_mode=mode, atol=1e-6, **options)
    assert report.explanation is not None
    for one in report.explanation.culprits:
        if one.cause == "held_narrower":
            assert one.evidence["held"] == "float16"
            assert 0 < one.evidence["off"] < 2.0**-11
        else:  # it rounds an input, too: who is cast is told
            assert kept
            assert (one.cause, one.evidence["cast"], one.evidence["source"]) == ("coarse", "float16", "x")
    assert kept or len(report.explanation.culprits) > (mode == "ort_fp32")
    # one number of one constant is another one: then it is another model
    weight = next(one for one in half.graph.initializer if len(one.dims) == 4)
    values = onnx.numpy_helper.to_array(weight).copy()
    values.flat[3] += 0.5
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(half, tmp_path / "third.onnx")
    report = precision_debug.compare(tmp_path / "third.onnx", run_mode=mode, **options)
    assert report.explanation is not None
    assert "files_differ" in {one.cause for one in report.explanation.culprits}


def _near(value: float) -> Any:
    return pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("activation_that_was_lost", ("b_mm", "r", "Relu", "missing")),  # nothing is left of the operator but its input
        ("one_scale_for_filters_of_unlike_size", ("c.w", "c.s", *map(_near, (0.002125, 0.856)))),  # with c.q
        ("zero_point_that_was_lost", ("c.w", "c.z", 128, 0)),
    ],
)
def test_what_was_left_out_or_stored_anew_is_told_with_what_is_left(
    case: str, told: tuple[Any, ...], tmp_path: Path
) -> None:
    one = next(one for one in CASES if one.name == case)
    made, base, feeds = one.make(tmp_path)
    report = precision_debug.compare(
        made, baseline_model=str(base), run_mode="ort_fp32", baseline="ort_fp32", inputs=feeds
    )
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.cause, first.evidence["left"]) == ("files_differ", pytest.approx(0, abs=1e-6))
    assert (first.name, *(first.evidence[key] for key in ("name", "base", "target"))) == told


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("gains_smoothed_and_one_reader_missed", ("n", "n.g", 1.0)),  # two of its readers agree, whatever they read
        ("weight_norm_folded_over_the_other_axis", ("c", "c", "ReduceL2+Div+Mul+Conv")),  # no attribute: none is said
        ("shift_folded_into_a_padded_filter", ("c", "c", "Mul+Add+Conv")),  # no bias: without padding it is right
        ("chance_of_a_chance", ("y", "y", "logits")),  # one operator more, of the kind that reads it
    ],
)
def test_what_was_folded_smoothed_or_put_between_is_told_by_what_is_so(
    case: str, told: tuple[Any, ...], tmp_path: Path
) -> None:
    one = next(one for one in SMOOTHED if one.name == case)
    made, base, feeds = one.make(tmp_path)
    report = precision_debug.compare(
        made, baseline_model=str(base), run_mode="ort_fp32", baseline="ort_fp32", inputs=feeds
    )
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.cause, only.name, only.evidence["name"], only.evidence["base"]) == ("files_differ", *told)
    undone = {"undone": "`q_mm`, `k_mm`", "kept": "`v_mm`"}
    assert {key: only.evidence.get(key) for key in undone} == (undone if only.name == "n" else dict.fromkeys(undone))


def test_signs_that_the_next_layer_takes_back_are_nobodys_error(tmp_path: Path) -> None:
    """Nor are they put into the baseline when it is measured what is left: all together is what the output is off."""
    one = next(one for one in LOST if one.name.startswith("signs_that_undo"))
    made, base, feeds = one.make(tmp_path)
    report = precision_debug.compare(
        made, baseline_model=str(base), run_mode="ort_fp32", baseline="ort_fp32", inputs=feeds
    )
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.name, only.evidence["name"]) == ("d_mm", "d.w")
    assert only.repaired == pytest.approx(0, abs=1e-5)
    row = next(row for row in report.rows if row.is_output)
    assert only.with_all == pytest.approx(row.relative_l2, rel=1e-3)


@pytest.mark.parametrize("mask", [np.finfo(np.float32).min, -1e30])
@pytest.mark.parametrize("shown_again", [False, True], ids=["scores", "their_view"])
@pytest.mark.parametrize("stale", ["q.w", "k.w"])
def test_an_error_beside_the_numbers_of_a_mask_is_not_taken_back(
    stale: str, shown_again: bool, mask: float, tmp_path: Path
) -> None:
    """MiniLM with another query's weights: scores of which some are masked by -3.4e38 agree to 2e-40, and nobody was
    named."""

    def build(times: float) -> Graph:
        g = Graph(seed=5, opset=17)
        x = g.input("x", g.random.normal(size=(6, 16)).astype(np.float32))
        weights = {name: g.random.normal(size=(16, 16)).astype(np.float32) / 4 for name in ("q.w", "k.w", "v.w", "o.w")}
        weights[stale][:, :3] *= times
        out = weights.pop("o.w")
        made = {name: g.op("MatMul", [x, g.weight(name, one)], name[0]) for name, one in weights.items()}
        hidden = np.triu(np.full((6, 6), mask, np.float32), 1)
        scores = g.op("Add", [g.op("MatMul", [made["q.w"], g.op("Transpose", [made["k.w"]], "kt")], "qk"),
                              g.weight("mask", hidden)], "scores")  # fmt: skip
        if shown_again:
            scores = g.op("Identity", [g.op("Unsqueeze", [scores, g.weight("ax", np.array([0]))], "view")], "again")
            scores = g.op("Squeeze", [scores, g.weight("ax2", np.array([0]))], "flat")
        mixed = g.op("MatMul", [g.op("Softmax", [scores], "shares"), made["v.w"]], "mixed")
        g.op("MatMul", [mixed, g.weight("o.w", out)], "y")
        return g

    base, other = build(1.0), build(1.3)
    report = precision_debug.compare(
        other.save(tmp_path / "other.onnx", ["y"]), baseline_model=str(base.save(tmp_path / "base.onnx", ["y"])),
        run_mode="ort_fp32", baseline="ort_fp32", inputs=base.feeds,
    )  # fmt: skip
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.name, only.cause, only.evidence["name"]) == (stale[0], "files_differ", stale)


@pytest.mark.parametrize(
    ("scale", "why"), [(1.0, "coarse_scale"), (5e-5, "coarse"), (4e-6, "weight_clipped")]
)  # of numbers up to 0.007: 1.6e-5 would hold them in 448
def test_weights_in_float8_are_told_by_their_scale(scale: float, why: str, tmp_path: Path) -> None:
    def build(quantised: bool) -> Graph:
        g = Graph(seed=3, opset=19)
        g.dense(g.input("x", g.random.normal(size=(6, 16)).astype(np.float32)), 16, 32, "a")
        w = (g.random.normal(size=(32, 16)) * 2e-3).astype(np.float32)
        if quantised:
            kind = ml_dtypes.float8_e4m3fn
            stored = g.weight("w.q", np.clip(w / np.float32(scale), -448, 448).astype(kind))
            g.op("DequantizeLinear", [stored, g.weight("w.s", np.float32(scale))], "w")
        else:
            g.weight("w", w)
        g.op("Tanh", [g.op("Mul", [g.op("MatMul", ["a", "w"], "h"), g.weight("level", np.float32(200))], "up")], "y")
        return g

    base, made = (build(one).save(tmp_path / f"{one}.onnx", ["y"]) for one in (False, True))
    report = precision_debug.compare(
        made, baseline_model=str(base), run_mode="ort_fp32", baseline="ort_fp32", inputs=build(False).feeds
    )
    found = report.explanation
    assert found is not None
    assert not found.reason  # it ran
    if why == "coarse":  # three or four digits of two, as is right
        assert all(one.cause not in ("coarse_scale", "weight_clipped", "files_differ") for one in found.culprits)
        return
    (only,) = found.culprits
    assert (only.name, only.cause) == ("h", why)
    if why == "coarse_scale":
        told = only.evidence
        assert (told["from"], told["type"], told["scale"]) == ("w", "float8_e4m3fn", 1.0)
        w = build(False).weights["w"]
        step = 2.0**-9  # below 2 ** -6
        assert told["used"] == np.rint(w.max() / step) - np.rint(w.min() / step)
        assert told["fits"] == pytest.approx(abs(w).max() / 448, rel=1e-3)  # as it is printed, and not below


@pytest.mark.parametrize("types", [("float8_e4m3fn", "float8_e5m2"), ("float8_e5m2", "float8_e4m3fn")])
@pytest.mark.parametrize("mode", ["ort_fp32", "ort_opt"])
def test_a_constant_in_another_narrow_type_is_told_with_both(types: tuple[str, str], mode: str, tmp_path: Path) -> None:
    """Exchanged as the other file holds it: of what e4m3 has, e5m2 has no number. An engine that folds the cast reads
    what the file reads."""

    def build(kind: str) -> Graph:
        g = Graph(seed=3, opset=19)
        w = (g.random.normal(size=(32, 24)) / 6).astype(np.float32).astype(getattr(ml_dtypes, kind))
        x = g.input("x", g.random.normal(size=(8, 32)).astype(np.float32))
        w = g.op("Cast", [g.weight("w8", w)], "w", to=TensorProto.FLOAT)
        g.op("Relu", [g.op("MatMul", [x, w], "h")], "y")
        return g

    base, other = (build(kind).save(tmp_path / f"{kind}.onnx", ["y"]) for kind in types)
    report = precision_debug.compare(
        other, baseline_model=str(base), run_mode=mode, baseline="ort_fp32", inputs=build(types[0]).feeds
    )
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.cause, only.evidence["name"].partition(" ")[0]) == ("files_differ", "w8")
    assert (only.evidence["held"], only.evidence["held_there"]) == types
    assert only.evidence["left"] < 1e-4


@pytest.mark.parametrize(
    ("case", "told"),
    [("response_norm_divided_once_more", ("0.1", "0.02")), ("means_in_the_order_of_bgr", (0.485, "0.406"))],
)
def test_floats_are_told_as_their_author_wrote_them(case: str, told: tuple[Any, str], tmp_path: Path) -> None:
    """And not as 0.10000000149011612, which is what float32 makes of 0.1."""
    made, base, feeds = next(one for one in LOST if one.name == case).make(tmp_path)
    report = precision_debug.compare(
        made, baseline_model=str(base), run_mode="ort_fp32", baseline="ort_fp32", inputs=feeds
    )
    assert report.explanation is not None
    evidence = report.explanation.culprits[0].evidence
    assert evidence["base"] == (told[0] if isinstance(told[0], str) else pytest.approx(told[0]))
    assert str(evidence["target"]).split(",")[0] == told[1]


def test_a_constant_of_an_operator_that_the_engine_writes_otherwise_is_told(tmp_path: Path) -> None:
    """OpenVINO has a Transpose in the place of the LSTM's result; both files have the LSTM, reading the same."""
    pytest.importorskip("openvino", reason="the target runs in OpenVINO")
    made, base, feeds = next(one for one in LOST if one.name == "bias_of_keras_in_both_halves").make(tmp_path)
    report = precision_debug.compare(
        made, baseline_model=str(base), run_mode="ov_opt_fp32", baseline="ort_fp32", inputs=feeds
    )
    assert report.explanation is not None
    (only,) = report.explanation.culprits
    assert (only.cause, only.evidence["name"], only.evidence["base"]) == ("files_differ", "b (LSTM h)", 0.0)
    assert only.evidence["left"] < 1e-5


@pytest.mark.parametrize("least", [1e-4, 1e-6])
def test_a_floor_that_only_a_logarithm_shows_is_named(tmp_path: Path, least: float) -> None:
    """Beside powers of up to 100 either floor is nothing, and the tensor agrees; its logarithm does not."""

    def floored(value: float) -> onnx.ModelProto:
        random = np.random.default_rng(0)
        constants = {
            "least": np.array(value, np.float32), "w1": random.normal(size=(32, 16)).astype(np.float32) / 4,
            "w2": random.normal(size=(16, 4)).astype(np.float32) / 4,
        }  # fmt: skip
        nodes = [
            helper.make_node("Mul", ["x", "x"], ["power"]), helper.make_node("Max", ["least", "power"], ["floored"]),
            helper.make_node("Log", ["floored"], ["log"]), helper.make_node("MatMul", ["log", "w1"], ["h"]),
            helper.make_node("Relu", ["h"], ["a"]), helper.make_node("MatMul", ["a", "w2"], ["y"]),
        ]  # fmt: skip
        return onnx_models.model(nodes, [onnx_models.value("x", [8, 32])], [onnx_models.value("y")], constants)

    onnx.save(floored(1e-12), tmp_path / "first.onnx")
    onnx.save(floored(least), tmp_path / "second.onnx")
    x = np.random.default_rng(1).normal(size=(8, 32)).astype(np.float32) * 3
    x[:, ::5] *= 1e-5
    report = precision_debug.compare(
        tmp_path / "second.onnx", baseline_model=str(tmp_path / "first.onnx"), run_mode="ort_fp32", baseline="ort_fp32",
        inputs={"x": x},
    )  # fmt: skip
    assert report.exit_status == 1
    assert report.explanation is not None
    assert [(one.name, one.cause) for one in report.explanation.culprits] == [("floored", "files_differ")]


def test_a_mask_that_is_no_longer_inverted_lacks_an_operator(tmp_path: Path) -> None:
    """Where truth values differ, what the other file lacks is told, as where numbers do."""

    def masked(*, inverted: bool) -> onnx.ModelProto:
        random = np.random.default_rng(0)
        constants = {
            "w": random.normal(size=(8, 4)).astype(np.float32), "last": np.array([-1]), "one": np.array([1]),
        }  # fmt: skip
        nodes = [
            *([helper.make_node("Not", ["mask"], ["kept"])] if inverted else []),
            helper.make_node("Unsqueeze", ["kept" if inverted else "mask", "last"], ["wide"]),
            helper.make_node("Cast", ["wide"], ["f"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Mul", ["x", "f"], ["m"]), helper.make_node("ReduceSum", ["m", "one"], ["s"], keepdims=0),
            helper.make_node("MatMul", ["s", "w"], ["y"]),
        ]  # fmt: skip
        mask = helper.make_tensor_value_info("mask", onnx.TensorProto.BOOL, [2, 6])
        return onnx_models.model(
            nodes, [onnx_models.value("x", [2, 6, 8]), mask], [onnx_models.value("y")], constants
        )

    onnx.save(masked(inverted=True), tmp_path / "first.onnx")
    onnx.save(masked(inverted=False), tmp_path / "second.onnx")
    inputs = {
        "x": np.random.default_rng(1).normal(size=(2, 6, 8)).astype(np.float32),
        "mask": np.arange(12).reshape(2, 6) % 6 > 3,
    }  # fmt: skip
    report = precision_debug.compare(
        tmp_path / "second.onnx", baseline_model=str(tmp_path / "first.onnx"), run_mode="ort_fp32", baseline="ort_fp32",
        inputs=inputs,
    )  # fmt: skip
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause) == ("wide", "files_differ")
    assert {key: str(first.evidence[key]) for key in ("owner", "owner_type", "sole", "seen")} == {
        "owner": "kept", "owner_type": "Not", "sole": "baseline", "seen": "wide",
    }  # fmt: skip


def quantised_softmax(scale: float) -> onnx.ModelProto:
    """scale: of its output, which is copied where there is none."""
    random = np.random.default_rng(0)
    constants = {"w": random.normal(size=(32, 40)).astype(np.float32) / 2}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["p"], axis=-1),
    ]  # fmt: skip
    if scale:
        constants |= {"scale": np.float32(scale).reshape(()), "zero": np.array(127, np.uint8)}  # type: ignore[dict-item]
        nodes += [
            helper.make_node("QuantizeLinear", ["p", "scale", "zero"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["p"], ["y"]))
    return onnx_models.model(nodes, [onnx_models.value("x", [16, 32])], [onnx_models.value("y")], constants)


def test_a_copy_is_no_other_operator_than_what_it_is_a_copy_of(tmp_path: Path) -> None:
    """A Softmax whose output has a scale of 0.5 sums up to anything but 1 (PINTO0309/onnx2tf#942)."""
    onnx.save(quantised_softmax(0), tmp_path / "first.onnx")
    onnx.save(quantised_softmax(0.5), tmp_path / "second.onnx")
    report = precision_debug.compare(
        tmp_path / "second.onnx", baseline_model=str(tmp_path / "first.onnx"), run_mode="ort_fp32", baseline="ort_fp32",
        inputs={"x": np.random.default_rng(1).normal(size=(16, 32)).astype(np.float32)},
    )  # fmt: skip
    assert report.exit_status == 1
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause) != ("y", "files_differ")


def rms_norm(*, rescaled: bool) -> onnx.ModelProto:
    """rescaled: divided by the largest number before it is squared, and multiplied by it behind the root, but not the
    epsilon (apple/coremltools#2822)."""
    random = np.random.default_rng(0)
    constants = {
        "w": random.normal(size=(64, 64)).astype(np.float32) / 8, "epsilon": np.array(1e-5, np.float32),
        "two": np.array(2, np.float32), "last": random.normal(size=(64, 16)).astype(np.float32) / 8,
    }  # fmt: skip
    down = [
        helper.make_node("Abs", ["h"], ["abs"]), helper.make_node("ReduceMax", ["abs"], ["most"], axes=[-1]),
        helper.make_node("Div", ["h", "most"], ["down"]),
    ]  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]), *(down if rescaled else []),
        helper.make_node("Pow", ["down" if rescaled else "h", "two"], ["p"]),
        helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1]), helper.make_node("Add", ["v", "epsilon"], ["ve"]),
        helper.make_node("Sqrt", ["ve"], ["s"]),
        *([helper.make_node("Mul", ["s", "most"], ["up"])] if rescaled else []),
        helper.make_node("Div", ["h", "up" if rescaled else "s"], ["n"]),
        helper.make_node("MatMul", ["n", "last"], ["y"]),
    ]  # fmt: skip
    return onnx_models.model(nodes, [onnx_models.value("x", [4, 8, 64])], [onnx_models.value("y")], constants)


def test_what_is_taken_back_makes_no_share_of_outputs_that_agree(tmp_path: Path) -> None:
    """It was "one operator makes 3.891e+12 % of the error"."""
    onnx.save(rms_norm(rescaled=False), tmp_path / "first.onnx")
    onnx.save(rms_norm(rescaled=True), tmp_path / "second.onnx")
    x = np.random.default_rng(1).normal(size=(4, 8, 64)).astype(np.float32) / 100
    x[:, :, 0] += 25
    report = precision_debug.compare(
        tmp_path / "second.onnx", baseline_model=str(tmp_path / "first.onnx"), run_mode="ort_fp32", baseline="ort_fp32",
        inputs={"x": x},
    )  # fmt: skip
    assert report.exit_status == 0
    assert report.explanation is not None
    assert not report.explanation.culprits


def _saved_attention(path: Path, ids: int = TensorProto.INT64) -> None:
    """One layer with a cache of keys and values."""
    random = np.random.default_rng(1)
    held = {name: random.normal(size=(32, 32)) / 32**0.5 for name in ("wq", "wk", "wv", "wo")}
    held |= {"table": random.normal(size=(64, 32)), "head": random.normal(size=(32, 64)) / 32**0.5}
    node = helper.make_node
    nodes = [node("Gather", ["table", "ids"], ["x"], "look_up")]
    for one in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{one}"], [one], f"make_{one}"),
            node("Reshape", [one, "heads"], [f"{one}_apart"], f"apart_{one}"),
            node("Transpose", [f"{one}_apart"], [f"{one}_turned"], f"turn_{one}", perm=[0, 2, 1, 3]),
        ]
    nodes += [
        node("Concat", ["past_k", "k_turned"], ["k_all"], "join_k", axis=2),
        node("Concat", ["past_v", "v_turned"], ["v_all"], "join_v", axis=2),
        node("Transpose", ["k_all"], ["k_back"], "back", perm=[0, 1, 3, 2]),
        node("MatMul", ["q_turned", "k_back"], ["raw"], "scores"), node("Mul", ["raw", "root"], ["scaled"], "scale"),
        node("Softmax", ["scaled"], ["share"], "share", axis=-1),
        node("MatMul", ["share", "v_all"], ["mixed"], "mix"),
        node("Transpose", ["mixed"], ["rows"], "rows", perm=[0, 2, 1, 3]),
        node("Reshape", ["rows", "whole"], ["flat"], "flat"), node("MatMul", ["flat", "wo"], ["made"], "out"),
        node("Add", ["x", "made"], ["sum"], "sum"), node("MatMul", ["sum", "head"], ["y"], "last"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "cached",
        [value("ids", ids, [1, 1]), *(value(f"past_{one}", 1, [1, 4, "n", 8]) for one in "kv")],
        [value("y", 1, None), *(value(f"{one}_all", 1, None) for one in "kv")],
        [
            *(numpy_helper.from_array(each.astype(np.float32), key) for key, each in held.items()),
            numpy_helper.from_array(np.array([0, 0, 4, 8]), "heads"),
            numpy_helper.from_array(np.array([0, 0, 32]), "whole"),
            numpy_helper.from_array(np.float32(8**-0.5), "root"),
        ],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _cached(kind: Any, given: str) -> dict[str, Any]:
    random = np.random.default_rng(1)
    past = {f"past_{one}": random.normal(size=(1, 4, 12, 8)).astype(given) for one in "kv"}
    return {"ids": np.array([[5]], kind), **past}


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("given", ["float32", "float16"])
def test_a_file_in_float16_beside_the_one_that_it_was_made_of(
    given: str, keeps: bool, tmp_path: Path
) -> None:
    """Its casts are that conversion's, and whoever reads what they give reads nothing else. Each side is fed in its own
    type, whichever the inputs have."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    _saved_attention(tmp_path / "wide.onnx")
    half = convert_float_to_float16(onnx.load(str(tmp_path / "wide.onnx")), keep_io_types=keeps)
    onnx.save(half, str(tmp_path / "half.onnx"))
    report = precision_debug.compare(
        str(tmp_path / "half.onnx"), baseline_model=str(tmp_path / "wide.onnx"), run_mode="ort_opt",
        inputs=_cached(np.int64, given),
    )  # fmt: skip
    assert report.exit_status == 0
    assert report.explanation is not None
    assert not [one.name for one in report.explanation.culprits if one.cause == "files_differ"]


def _small(kind: str) -> Any:
    from planted.onnx_faults import Graph, image, tokens

    g = Graph(seed=5)
    if kind == "convolutions":
        x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
        g.conv(g.op("Relu", [g.conv(x, 8, 8, "c2")], "r2"), 8, 4, "y")
    elif kind == "products":
        g.op("Softmax", [g.dense(g.op("Tanh", [g.dense(tokens(g), 32, 32, "a")], "t"), 32, 32, "b")], "y", axis=-1)
    else:  # a number that float16 has in steps of 6e-8, beside squares of 1e-8
        x = g.op("Mul", [tokens(g), g.weight("small", np.float32(1e-4))], "s")
        x = g.op("ReduceMean", [g.op("Mul", [x, x], "squares")], "mean", axes=[-1], keepdims=1)
        size = g.op("Sqrt", [g.op("Add", [x, g.weight("eps", np.float32(3e-8))], "sum")], "size")
        g.dense(g.op("Div", ["s", size], "n"), 32, 8, "y")
    return g


@pytest.mark.parametrize("mode", ["ort_opt", "ort_fp32"])
@pytest.mark.parametrize(("kind", "told"), [("convolutions", ()), ("products", ()), ("epsilon", ("sum",))])
@pytest.mark.parametrize("how", ["keeps its inputs' types", "keeps its convolutions", "all", "stored alone"])
def test_what_a_file_of_float16_rounds_is_expected_where_the_engine_computes_in_float32(
    how: str, kind: str, told: tuple[str, ...], mode: str, tmp_path: Path
) -> None:
    """Then no tensor is of float16, and its constants are all the same."""
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    g = _small(kind)
    wide = onnx.shape_inference.infer_shapes(onnx.load(str(g.save(tmp_path / "wide.onnx", ["y"]))))
    if how == "stored alone":
        half = _store_in_half(wide)
    else:
        kept = ["Conv"] if how == "keeps its convolutions" else None
        half = float16.convert_float_to_float16(wide, keep_io_types=how != "all", op_block_list=kept)
    onnx.save(half, str(tmp_path / "half.onnx"))
    report = precision_debug.compare(
        str(tmp_path / "half.onnx"), baseline_model=str(tmp_path / "wide.onnx"), run_mode=mode, baseline="ort_fp32",
        inputs=g.feeds,
    )  # fmt: skip
    assert report.exit_status == bool(told)
    assert report.explanation is not None
    assert tuple(one.name for one in report.explanation.culprits) == told


@pytest.mark.parametrize("mode", ["ort_opt", "ort_fp32"])
def test_a_result_beyond_what_it_is_cast_to_is_told(mode: str, tmp_path: Path) -> None:
    """Its convolution stays in float32, and so does the output: the cast between them is of float16."""
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    g = _small("convolutions")
    g.weights["y.w"] = g.weights["y.w"] * 1e5
    wide = onnx.shape_inference.infer_shapes(onnx.load(str(g.save(tmp_path / "wide.onnx", ["y"]))))
    half = float16.convert_float_to_float16(wide, keep_io_types=True, op_block_list=["Conv"])
    onnx.save(half, tmp_path / "half.onnx")
    report = precision_debug.compare(
        tmp_path / "half.onnx", baseline_model=str(tmp_path / "wide.onnx"), run_mode=mode, baseline="ort_fp32",
        inputs=g.feeds,
    )  # fmt: skip
    assert report.exit_status == 1
    assert report.explanation is not None
    assert [(one.name, one.cause) for one in report.explanation.culprits] == [("y", "overflow")]


def test_ids_that_one_file_takes_in_32_bits(tmp_path: Path) -> None:
    _saved_attention(tmp_path / "wide.onnx")
    _saved_attention(tmp_path / "narrow.onnx", TensorProto.INT32)
    for kind in (np.int64, np.int32):
        report = precision_debug.compare(
            str(tmp_path / "narrow.onnx"), baseline_model=str(tmp_path / "wide.onnx"), run_mode="ort_opt",
            inputs=_cached(kind, "float32"),
        )  # fmt: skip
        assert report.exit_status == 0
