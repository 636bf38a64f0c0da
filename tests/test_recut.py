"""The same work cut differently: chunks of a batch, columns of a fused layer, padding. Put together where provable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from warm import command

import precision_debug
from precision_debug.pairing.recut import Joined, Listing, Part, find_recut, may_be_recut
from precision_debug.protocols import PutsKnown
from precision_debug.reasons import as_reason
from precision_debug.records import Operator, Row, Status, TensorMeta
from precision_debug.report.model import Report
from precision_debug.run.recut import RecutSession

RANDOM = np.random.default_rng(0)
WEIGHTS = {
    "w1": RANDOM.normal(size=(16, 32)) / 4, "b1": RANDOM.normal(size=32) * 0.1, "g": np.ones(32), "b": np.zeros(32),
    "w2": RANDOM.normal(size=(32, 8)) / 5, "b2": RANDOM.normal(size=8) * 0.1, "worse": np.full(32, 1.4),
}  # fmt: skip
WHOLE = {
    "pads": np.array([0, 0, 3, 0]), "start": np.array([0]), "end": np.array([8]), "ahead": np.array([3, 0, 0, 0]),
    "three": np.array([3]), "last": np.array([11]),
}  # fmt: skip
Nodes = list[onnx.NodeProto]


def road(x: str, tag: str, y: str, scale: str = "g") -> Nodes:
    """Two layers; no tensor of one has the name of another's."""
    return [
        helper.make_node("Gemm", [x, "w1", "b1"], [f"h{tag}"], f"first{tag}"),
        helper.make_node("Tanh", [f"h{tag}"], [f"r{tag}"], f"tanh{tag}"),
        helper.make_node("LayerNormalization", [f"r{tag}", scale, "b"], [f"n{tag}"], f"norm{tag}"),
        helper.make_node("Gemm", [f"n{tag}", "w2", "b2"], [y], f"last{tag}"),
    ]


def whole(scale: str = "g") -> Nodes:
    return road("x", "", "y", scale)


def in_four(wrong: int = -1) -> Nodes:
    """wrong: the chunk whose norm has another scale."""
    nodes = [helper.make_node("Split", ["x"], ["x0", "x1", "x2", "x3"], axis=0)]
    for number in range(4):
        scale = "worse" if number == wrong else "g"
        nodes += road(f"x{number}", f"_of_{'abcd'[number]}", f"y{number}", scale)
    return [*nodes, helper.make_node("Concat", ["y0", "y1", "y2", "y3"], ["y"], axis=0)]


def padded(scale: str = "g", *, ahead: bool = False) -> Nodes:
    """ahead: what is added comes first."""
    pads, start, end = ("ahead", "three", "last") if ahead else ("pads", "start", "end")
    return [
        helper.make_node("Pad", ["x", pads], ["wide"]),
        *road("wide", "", "long", scale),
        helper.make_node("Slice", ["long", start, end], ["y"]),
    ]


def save(path: Path, nodes: Nodes) -> str:
    kept = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in WEIGHTS.items()]
    kept += [numpy_helper.from_array(value.astype(np.int64), name) for name, value in WHOLE.items()]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (8, size)) for name, size in (("x", 16), ("y", 8)))
    graph = helper.make_graph(nodes, "g", [x], [y], kept)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return str(path)


def compare(folder: Path, target: Nodes, base: Nodes) -> Report:
    files = save(folder / "target.onnx", target), save(folder / "base.onnx", base)
    return precision_debug.compare(files[0], baseline_model=files[1], run_mode="ort_fp32", baseline="ort_fp32")


def put_together(report: Report, word: str) -> list[Row]:
    return [row for row in report.rows if word in row.paired_by and row.comparison is not None]


def culprits(report: Report) -> list[str]:
    assert report.explanation is not None
    return [one.name for one in report.explanation.culprits]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ["chunks", "padding", "padding ahead"])
def test_the_same_work_cut_differently_is_put_together(tmp_path: Path, kind: str, turned: bool) -> None:
    other = {"chunks": in_four, "padding": padded, "padding ahead": lambda: padded(ahead=True)}[kind]()
    report = compare(tmp_path, *((whole(), other) if turned else (other, whole())))
    assert report.exit_status == 0
    rows = put_together(report, kind.partition(' ')[0])
    assert {row.op_type for row in rows} == {"Gemm", "Tanh", "LayerNormalization"}
    for row in rows:
        assert row.comparison is not None
        assert row.status is Status.PASS
        assert row.comparison.base.shape == row.comparison.target.shape == (8, 32)


@pytest.mark.parametrize(
    ("target", "base", "right"),
    [
        (in_four(2), whole(), "n"),  # one chunk alone
        (whole(), in_four(2), "n_of_a"),
        (in_four(), whole("worse"), "n"),  # all of them
        (whole("worse"), in_four(), "n_of_a"),
        (padded("worse"), whole(), "n"),
        (whole(), padded("worse"), "n"),
    ],
)
def test_who_is_wrong_inside_is_named(tmp_path: Path, target: Nodes, base: Nodes, right: str) -> None:
    report = compare(tmp_path, target, base)
    assert report.exit_status == 1
    assert culprits(report) == [right]


def test_a_recording_of_the_whole_is_held_against_chunks(tmp_path: Path) -> None:
    file, kept = save(tmp_path / "whole.onnx", whole()), str(tmp_path / "kept")
    command("--model_file", file, "--run_mode", "ort_fp32", "--record", kept)
    for nodes, failed in ((in_four(), []), (in_four(1), ["n"])):
        report = precision_debug.compare(save(tmp_path / "other.onnx", nodes), run_mode="ort_fp32", baseline=kept)
        assert report.exit_status == bool(failed)
        rows = put_together(report, "chunks")
        assert (len(rows), [row.name for row in rows if row.status is Status.FAIL]) == (3, failed)


def test_another_shape_that_an_operator_gives_itself_is_no_padding(tmp_path: Path) -> None:
    """A pool that rounds up gives a place more, which the mean behind it counts."""

    def pooled(ceil: int) -> Nodes:
        sizes = [helper.make_node("Constant", [], [name], value_ints=ints)
                 for name, ints in (("to_three", [1, 8, 16]), ("to_two", [8, 1]), ("to_all", [8, 8]))]  # fmt: skip
        return [
            *sizes, helper.make_node("Reshape", ["x", "to_three"], ["r"]),
            helper.make_node("MaxPool", ["r"], ["pool"], kernel_shape=[3], strides=[2], ceil_mode=ceil),
            helper.make_node("Tanh", ["pool"], ["t"]), helper.make_node("ReduceMean", ["t"], ["mean"], axes=[2]),
            helper.make_node("Reshape", ["mean", "to_two"], ["flat"]),
            helper.make_node("Expand", ["flat", "to_all"], ["y"]),
        ]  # fmt: skip

    report = compare(tmp_path, pooled(0), pooled(1))
    rows = {row.name: row for row in report.rows}
    assert not put_together(report, "padding")
    assert rows["pool"].status is rows["t"].status is Status.FAIL
    assert report.explanation is not None
    evidence = report.explanation.culprits[0].evidence
    assert (evidence["name"], evidence["base"], evidence["target"]) == ("ceil_mode (MaxPool pool)", "1", "0")


def test_what_reads_another_shape_through_operators_of_one_kind_is_no_padding(tmp_path: Path) -> None:
    """Two pools and two products, of which the second pool rounds up: what is behind it has the place that it gave."""

    def pooled(ceil: int) -> Nodes:
        sizes = [helper.make_node("Constant", [], [name], value_ints=ints)
                 for name, ints in (("to_three", [1, 8, 16]), ("to_two", [8, 1]), ("to_all", [8, 8]))]  # fmt: skip
        return [
            *sizes, helper.make_node("Reshape", ["x", "to_three"], ["r"]),
            helper.make_node("MaxPool", ["r"], ["block_1/pool"], kernel_shape=[2], strides=[1]),
            helper.make_node("Tanh", ["block_1/pool"], ["block_1/tanh"]),
            helper.make_node(
                "MaxPool", ["block_1/tanh"], ["block_2/pool"], kernel_shape=[2], strides=[2], ceil_mode=ceil,
            ),
            helper.make_node("Tanh", ["block_2/pool"], ["block_2/tanh"]),
            helper.make_node("Transpose", ["block_2/tanh"], ["turned"], perm=[0, 2, 1]),
            helper.make_node("ReduceMean", ["turned"], ["mean"], axes=[1]),
            helper.make_node("Reshape", ["mean", "to_two"], ["flat"]),
            helper.make_node("Expand", ["flat", "to_all"], ["y"]),
        ]  # fmt: skip

    report = compare(tmp_path, pooled(0), pooled(1))
    assert not put_together(report, "padding")
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    evidence = first.evidence
    assert first.cause == "files_differ"
    assert (evidence["name"], evidence["base"], evidence["target"]) == ("ceil_mode (MaxPool block_2/pool)", "1", "0")


# --- padding that constants bring to an output


def heads(path: Path, kind: str, *, more: int = 0, fill: float = 0.0, ahead: bool = False, scale: float = 1.0) -> str:
    """A layer, and a head whose rows and bias have more, of one number, or (nan) drawn. kind: head's operator, or
    "inner": the layer's own. scale: of the layer's second unit."""
    random = np.random.default_rng(5)
    w1, w2, b2 = random.normal(size=(16, 12)) / 4, random.normal(size=(12, 10)) / 3, random.normal(size=10)
    w1[:, 1] *= scale

    def widen(value: np.ndarray, axis: int) -> np.ndarray:
        shape = [*value.shape]
        shape[axis] = more
        rest = np.full(shape, fill) if np.isfinite(fill) else np.random.default_rng(6).normal(size=shape)
        return np.concatenate([rest, value] if ahead else [value, rest], axis)

    end, x_shape = [8, 10], [8, 16]
    if kind == "inner":
        w1, w2 = widen(w1, 1), widen(w2, 0)
    else:
        w2, b2, end[1] = widen(w2, 1), widen(b2, 0), 10 + more
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"], "up"), helper.make_node("Tanh", ["h"], ["t"], "tanh")]
    if kind == "Gemm":
        nodes.append(helper.make_node("Gemm", ["t", "w2", "b2"], ["y"], "head"))
    elif kind == "Conv":
        w1, w2, x_shape, end = w1.T[..., None], w2.T[..., None], [2, 16, 5], [2, end[1], 5]
        nodes = [helper.make_node("Conv", ["x", "w1"], ["h"], "up"), helper.make_node("Tanh", ["h"], ["t"], "tanh"),
                 helper.make_node("Conv", ["t", "w2", "b2"], ["y"], "head")]  # fmt: skip
    else:
        nodes += [helper.make_node("MatMul", ["t", "w2"], ["z"], "head"), helper.make_node("Add", ["z", "b2"], ["y"])]
    kept = [numpy_helper.from_array(value.astype(np.float32), name)
            for name, value in (("w1", w1), ("w2", w2), ("b2", b2))]  # fmt: skip
    ends = (("x", x_shape), ("y", end))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends)
    graph = helper.make_graph(nodes, "g", [x], [y], kept)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return str(path)


def compare_heads(folder: Path, kind: str, *, turned: bool = False, scale: float = 1.0, **more: Any) -> Report:
    files = [heads(folder / "narrow.onnx", kind), heads(folder / "wide.onnx", kind, scale=scale, **more)]
    target, base = files if turned else files[::-1]
    return precision_debug.compare(target, baseline_model=base, run_mode="ort_fp32", baseline="ort_fp32")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("Gemm", {"more": 6}), ("MatMul", {"more": 3, "fill": 0.25}), ("Conv", {"more": 1, "ahead": True}),
        ("Gemm", {"more": 54, "fill": -0.5, "ahead": True}), ("inner", {"more": 4}),
    ],
)  # fmt: skip
def test_what_a_constant_pads_is_compared_without(
    tmp_path: Path, kind: str, more: dict[str, Any], turned: bool
) -> None:
    report = compare_heads(tmp_path, kind, turned=turned, **more)
    assert report.exit_status == 0
    assert all(row.status is Status.PASS for row in report.rows if row.comparison is not None)
    told = [dict(as_reason(note).args) for note in report.notes if as_reason(note).code == "output_padding"]
    if kind == "inner":
        assert not told
    else:
        right = {"name": "y", "of_target": not turned, "axis": 1, "count": more["more"]}
        assert told == [right]


def test_padding_that_would_be_chosen_is_told(tmp_path: Path) -> None:
    report = compare_heads(tmp_path, "MatMul", more=2, fill=40.0)
    told = [dict(as_reason(note).args) for note in report.notes if as_reason(note).code == "padding_is_largest"]
    assert [(one["places"], one["axis"]) for one in told] == [(8, 1)]
    assert told[0]["largest"] > 0


def test_who_is_wrong_beside_padding_is_named(tmp_path: Path) -> None:
    for kind, more in (("Gemm", {"more": 6}), ("Conv", {"more": 6, "ahead": True})):
        report = compare_heads(tmp_path, kind, scale=1.5, **more)
        assert report.exit_status == 1
        assert culprits(report) == ["h"]
        assert {row.name for row in report.rows if row.status is Status.FAIL} == {"h", "t", "y"}


def test_what_an_output_has_more_without_proof_is_no_padding(tmp_path: Path) -> None:
    for more in ({"more": 6, "fill": np.nan}, {"more": 1, "fill": 0.5}):
        report = compare_heads(tmp_path, "Gemm", **more)
        assert report.exit_status == 1
        assert next(row for row in report.rows if row.is_output).status is Status.FAIL


# --- what is proved, and what is not


def listing(**values: np.ndarray) -> Listing:
    metas = [
        TensorMeta(name=name, op_type=op_type or "Gemm", inputs=("x",), shape=value.shape)
        for (name, _, op_type), value in ((name.partition("__"), value) for name, value in values.items())
    ]
    return Listing(tensors=metas, values={meta.name: one for meta, one in zip(metas, values.values(), strict=True)})


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def test_columns_in_another_order_are_those_of_the_same_values() -> None:
    q, k, v = draw(10, 32), draw(10, 32) * 2 + 1, draw(9, 32).repeat(2, 0)[:10]
    k, v = np.roll(k, 5, 1) + draw(32), v[::-1].copy()
    order = np.arange(96).reshape(3, 4, 8).transpose(1, 0, 2).ravel()
    fused = np.concatenate([q, k, v], 1)[:, order]
    found = find_recut(listing(qkv=fused), listing(q=q, k=k, v=v), {})
    parts = {one.name: one for one in found.base if isinstance(one, Part)}
    assert parts.keys() == {"q", "k", "v"}
    for name, value in (("q", q), ("k", k), ("v", v)):
        assert np.array_equal(fused[parts[name].where], value)


def test_a_part_that_is_another_one_fills_the_gap() -> None:
    q, k, v = draw(10, 32), draw(11, 32)[:10], draw(12, 32)[:10]
    found = find_recut(listing(qkv=np.concatenate([q, k, v], 1)), listing(q=q, k=draw(13, 32)[:10], v=v), {})
    assert {name: base for name, (base, _) in found.pairs.items()} == {"q": "q", "k": "k", "v": "v"}


@pytest.mark.parametrize(
    "pieces",
    [
        {"a": draw(4, 9), "b": draw(5, 9)[:4]},  # other numbers
        {"a": np.zeros((4, 9), np.float32), "b": np.zeros((4, 9), np.float32)},  # which say nothing
        {"a__Tanh": draw(8, 9)[:4], "b__Tanh": draw(8, 9)[4:]},  # another operator's
        {"a": draw(8, 9)[2:6]},  # from the middle
    ],
)
def test_what_is_not_proved_stays_apart(pieces: dict[str, np.ndarray]) -> None:
    assert not find_recut(listing(whole=draw(8, 9)), listing(**pieces), {})


def test_runs_whose_shapes_allow_for_nothing_are_not_run_once_more() -> None:
    one, two = listing(a=draw(8, 9)).tensors, listing(b=draw(8, 9), c=draw(3, 10), d=draw(9, 8)).tensors
    assert not may_be_recut(one, two)
    assert may_be_recut(one, listing(b=draw(2, 9)).tensors)
    assert may_be_recut(one, [TensorMeta(name="b", op_type="Gemm")])


# --- a session shown so


class Doubling:
    """Of two rows each, twice the input, and once more; and of all a sum."""

    notes = doubts = layers = ()
    alone = arithmetic = ""
    replaces = True

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.tensors = [
            TensorMeta(name=f"{name}{number}", op_type="Mul", inputs=(source,), shape=(2, 3))
            for number in range(2) for name, source in (("a", "x"), ("b", f"a{number}"))
        ]  # fmt: skip
        self.replacer = self

    def run(self, feeds, hook=None, names=None):  # type: ignore[no-untyped-def]
        return self.run_replacing(feeds, lambda *one: hook(*one) if hook else None, names)

    def run_replacing(self, feeds, replace, names=None):  # type: ignore[no-untyped-def]
        made = []
        for number in range(2):
            value = feeds["x"][2 * number : 2 * number + 2]
            for name in ("a", "b"):
                value = value * 2
                if names is None or f"{name}{number}" in names:
                    new = replace("Mul", f"{name}{number}", value)
                    value = value if new is None else new
            made.append(value)
        return {"y": np.concatenate(made)}

    def held(self, name: str, value: np.ndarray) -> np.ndarray:
        assert value.shape == (2, 3), name
        return value.astype(np.float16).astype(np.float32)

    def operator(self, name: str) -> Operator:
        return Operator(op_type="Mul", parameters={"w": np.zeros((4, 6))})

    def close(self) -> None:
        pass


def joined() -> RecutSession:
    cuts = [Joined(sources=(f"{one}0", f"{one}1"), axis=0, sizes=(2, 2), shape=(4, 3)) for one in "ab"]
    return RecutSession(Doubling(), cuts)


FEEDS = {"x": draw(4, 3)}


def test_chunks_are_shown_as_one() -> None:
    seen: dict[str, np.ndarray] = {}
    session = joined()
    session.run(FEEDS, lambda _op, name, value, /: seen.update({name: value}), ["b0"])
    assert [(name, value.shape) for name, value in seen.items()] == [("b0", (4, 3))]
    assert np.array_equal(seen["b0"], FEEDS["x"] * 4)
    assert [(meta.name, meta.inputs, meta.shape) for meta in session.tensors] == [
        ("a0", ("x",), (4, 3)), ("b0", ("a0",), (4, 3)),
    ]  # fmt: skip
    held = session.held("b0", FEEDS["x"] / 3)
    assert np.array_equal(held, (FEEDS["x"] / 3).astype(np.float16))


def test_an_error_is_put_into_every_chunk_and_goes_on() -> None:
    error = draw(4, 3) * 0.1
    outputs = joined().run_replacing(
        FEEDS, lambda _op, name, value: value + (error if name == "a0" else 1.0), ["a0", "b0"]
    )
    assert np.allclose(outputs["y"], (FEEDS["x"] * 2 + error) * 2 + 1, atol=1e-6)


def test_what_is_known_before_the_run_is_put_and_the_operator_sees_it() -> None:
    given, seen = {"a0": draw(4, 3) + 5, "b0": draw(4, 3) - 7}, {}

    def replace(_op: str, name: str, value: np.ndarray, /) -> np.ndarray:
        seen[name] = value
        return given[name]

    outputs = joined().run_replacing(FEEDS, PutsKnown(replace, given.get), ["a0", "b0"])
    assert np.array_equal(seen["b0"], given["a0"] * 2)
    assert np.array_equal(outputs["y"], given["b0"])


def test_parts_are_put_back_into_the_whole() -> None:
    parts = [
        Part(name=name, source="b0", where=(slice(None), place), shape=(2, len(place)), whole=(2, 3))
        for name, place in (("p", np.array([2, 0])), ("q", np.array([1])))
    ]
    session = RecutSession(Doubling(), parts)
    seen: dict[str, np.ndarray] = {}

    def replace(_op: str, name: str, value: np.ndarray) -> np.ndarray | None:
        seen[name] = value
        return value + 1 if name == "p" else None

    outputs = session.run_replacing(FEEDS, replace, ["p", "q"])
    plain = FEEDS["x"] * 4
    assert np.array_equal(seen["p"], plain[:2, [2, 0]])
    plain[:2, [0, 2]] += 1
    assert np.array_equal(outputs["y"], plain)
    assert [meta.name for meta in session.tensors] == ["a0", "p", "q", "a1", "b1"]
    held = session.held("p", np.full((2, 2), 1 / 3, np.float32))
    assert np.array_equal(held, np.full((2, 2), np.float16(1 / 3)))
