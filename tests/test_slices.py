"""Slices of an output: sums that C and numpy agree on, what is lost and what is only small, merged over any split."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from precision_debug.numbers import compare, measure, slices
from precision_debug.numbers.judge import judge_row
from precision_debug.numbers.merged import Merged, from_plain, to_plain
from precision_debug.numbers.slices import MOST, WHOLE, judge_slices, sum_slices, with_slices
from precision_debug.pairing.packed import find_packed_parts
from precision_debug.records import Comparison, Row, Status, TensorMeta, Tolerance

Array = np.ndarray


def rounded(values: Array, step: float) -> Array:
    return (np.round(values / step) * step).astype(values.dtype)


def by_hand(base: Array, target: Array, axis: int) -> Array:
    b, t = (np.moveaxis(one.astype(np.float64), axis, 0).reshape(one.shape[axis], -1) for one in (base, target))
    found = []
    for left, right in zip(b, t, strict=True):
        both = np.isfinite(left) & np.isfinite(right)
        here, there = left[both], right[both]
        peak = np.abs(here).max(initial=0.0)
        found.append([here.size, here.sum(), (here**2).sum(), ((there - here) ** 2).sum(), peak])
    return np.array(found).T


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(7,), (1, 9, 4), (3, 2, 5, 33), (2, MOST + 1), (130, 700)])
def test_sums(compiled: bool, dtype: type, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    library = slices._load_library()
    if compiled and library is None:
        pytest.skip("nothing is compiled here")
    monkeypatch.setattr(slices, "_load_library", lambda: library if compiled else None)
    random = np.random.default_rng(1)
    base = (random.normal(size=shape) * 10).astype(dtype)
    target = (base.astype(np.float64) + random.normal(size=shape)).astype(dtype)
    base.flat[0], target.flat[-1] = np.nan, np.inf
    found = sum_slices(base, target)
    assert found is not None
    assert sorted(found.axes) == [WHOLE, *(axis for axis, size in enumerate(shape) if 1 < size <= MOST)]
    flat = base.reshape(1, -1), target.reshape(1, -1)
    np.testing.assert_allclose(found.axes[WHOLE][:5], by_hand(*flat, 0), rtol=1e-6, atol=1e-3)
    for axis, sums in found.axes.items():
        if axis == WHOLE:
            continue
        wanted = by_hand(base, target, axis)
        np.testing.assert_array_equal(sums[[0, 4]], wanted[[0, 4]])
        off = 1e-12 if dtype is np.float64 or not compiled else 2e-6  # float32 is summed in float32
        np.testing.assert_allclose(sums[2:4], wanted[2:4], rtol=off)
        assert (np.abs(sums[1] - wanted[1]) <= 1e-9 + off * np.sqrt(wanted[0] * wanted[2])).all()


@pytest.mark.parametrize("columns", [1, 5, 4096])
def test_rows_with_numbers_whose_squares_overflow_are_summed_all_the_same(columns: int) -> None:
    random = np.random.default_rng(3)
    base = random.normal(size=(150, columns)).astype(np.float32)
    target = base + random.normal(size=base.shape).astype(np.float32)
    base[70, 0], target[80, -1], base[90] = 1e30, -1e25, 0
    found = sum_slices(base, target)
    assert found is not None
    for axis, sums in found.axes.items():
        if axis == WHOLE:
            continue
        np.testing.assert_allclose(sums[[0, 2, 3, 4]], by_hand(base, target, axis)[[0, 2, 3, 4]], rtol=2e-6)


def test_layouts_are_read_as_they_are() -> None:
    base = np.asfortranarray(np.random.default_rng(0).normal(size=(4, 6, 5)))
    found = sum_slices(base, base[::-1][::-1] + 1)
    assert found is not None
    np.testing.assert_allclose(found.axes[1][:5], by_hand(base, base + 1, 1))
    assert not found.axes[1][5].any(), "off by no more than they vary"


def boxes_and_scores(random: np.random.Generator, count: int = 64) -> Array:
    return np.concatenate([random.uniform(0, 640, (1, count, 4)), random.uniform(0, 0.8, (1, count, 5))], -1)


def stretches(base: Array, target: Array, parts: dict[int, tuple[int, ...]] | None = None) -> list[tuple[int, ...]]:
    return [(one.axis, one.first, one.last) for one in judge_slices(sum_slices(base, target, parts)) if one.lost]


@pytest.mark.parametrize(("size", "step"), [(1.0, 1e17), (1e-160, 1e149)])
def test_what_hardly_varies_and_is_far_off_has_a_finite_ratio(size: float, step: float) -> None:
    """One slice is constant, one varies by next to nothing, and the errors are as large as can be."""
    base = np.full((16, 2), size)
    base[:, 1] *= np.arange(16) / 16
    for one in judge_slices(sum_slices(base, base + step)):
        assert np.isfinite([float(one.error), float(one.size), float(one.spread)]).all()


@pytest.mark.parametrize("parts", [{}, {9: (4, 5)}])
def test_scores_that_share_the_scale_of_boxes_are_lost(parts: dict[int, tuple[int, ...]]) -> None:
    base = boxes_and_scores(np.random.default_rng(0))
    assert stretches(base, rounded(base, 2.5), parts) == [(2, 4, 8)]
    moved = np.moveaxis(base, -1, 1)
    assert stretches(moved, rounded(moved, 2.5), parts) == [(1, 4, 8)]
    assert not stretches(base, rounded(base, 0.003), parts)


def test_a_part_that_is_stuck_at_another_value_is_lost() -> None:
    random = np.random.default_rng(0)
    base = np.concatenate([random.uniform(0, 640, (100, 4)), 37 + 2 * random.normal(size=(100, 1))], 1)
    target = base.copy()
    target[:, 4] = 40.0
    assert stretches(base, target, {5: (4, 1)}) == [(1, 4, 4)]
    target[:, 4] = base[:, 4] + 0.5 * random.normal(size=100)
    assert not stretches(base, target, {5: (4, 1)})


def test_one_value_beside_logits() -> None:
    base = np.append(np.random.default_rng(0).normal(size=18) * 10, 0.04)[None]
    assert stretches(base, rounded(base, 0.2), {19: (18, 1)}) == [(1, 18, 18)]


def test_interleaved_confidences_need_no_graph() -> None:
    random = np.random.default_rng(0)
    one = np.concatenate([random.uniform(0, 512, (40, 17, 2)), random.uniform(0, 1, (40, 17, 1))], -1).reshape(40, 51)
    assert stretches(one, rounded(one, 2.0)) == [(1, place, place) for place in range(2, 51, 3)]


@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "features", "ramp", "silence"])
def test_what_is_small_among_its_like_is_not_lost(kind: str) -> None:
    """One tensor of one kind, with the scale that is its own: the smallest slices are below its step."""
    random = np.random.default_rng(0)
    scores = random.normal(size=(1, 200, 20)) * 3 + np.linspace(6, -14, 20)
    if kind == "softmax":
        base = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    elif kind == "sigmoid":
        base = 1 / (1 + np.exp(-scores))
    elif kind == "features":
        base = np.abs(random.normal(size=(1, 200, 20))) * np.logspace(1, -3, 20)
    elif kind == "ramp":
        base = np.log1p(np.exp(random.normal(size=(1, 200, 20)) + np.linspace(-30, 30, 20))) * 30
    else:
        base = (
            random.normal(size=(1, 200, 20)) * (0.5 * np.exp(-np.maximum(0, 100 - np.arange(200)) / 3))[None, :, None]
        )
    assert not stretches(base, rounded(base, float(np.ptp(base)) / 255)), kind


WEATHER = ((1013, 1), (4, 2), (0.3, 0.1))
"""Mean and spread of each column."""


def columns(of: tuple[tuple[float, float], ...], count: int = 400) -> Array:
    random = np.random.default_rng(8)
    return np.stack([random.normal(mean, spread, count) for mean, spread in of], -1).astype(np.float32)


@pytest.mark.parametrize(
    ("of", "kind", "gone"),
    [
        (WEATHER, ml_dtypes.bfloat16, [0]),
        (WEATHER, np.float16, []),
        (((101325, 30), (280, 15), (4, 2)), ml_dtypes.bfloat16, [0]),
        (((0.3, 0.1), (1013, 0.2), (4, 2), (8000, 0.5)), np.float16, [3]),
        (((0.3, 0.1), (1013, 0.1), (4, 2), (8000, 0.5)), np.float16, [1, 3]),
        (((300, 8), (1013, 10)), ml_dtypes.bfloat16, []),
        (((-9, 0.01), (2, 3), (1, 3)), ml_dtypes.bfloat16, []),  # a class that nobody trained
        (((1013, 0.001), (4, 2)), np.float32, []),
        (((1013, 0.0), (4, 2)), ml_dtypes.bfloat16, []),
        (tuple((0.2 * at, 0.005) for at in range(16)), ml_dtypes.bfloat16, []),  # logits of noise: a ramp
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_what_varies_little_about_a_large_mean_is_lost_where_the_type_knows_nothing_between(
    of: tuple[tuple[float, float], ...], kind: type, gone: list[int], known: bool
) -> None:
    base = columns(of)
    target = base.astype(kind).astype(np.float32)
    if kind is np.float32:
        target += np.float32(0.002)  # off by more than it varies, and on no steps
    for left, right, axis in ((base, target, 1), (base.T.reshape(len(of), 20, 20), target.T.reshape(-1, 20, 20), 0)):
        found = with_slices(measure(left, right), left, right, {len(of): (1,) * len(of)} if known else {})
        assert [(one.axis, one.first) for one in found.lost] == [(axis, at) for at in gone]
        assert (slices.largest_lost_error(found) >= 0.9) == bool(gone), "beside its spread"
        plain = with_slices(compare(left, right), left, right, {})
        assert [one.first for one in plain.lost] == gone, "whatever sums are kept"


@pytest.mark.parametrize(
    ("of", "gone"),
    [
        (((37, 0.02), (0, 1), (0, 0.3)), [0]),
        (((37, 0.08), (0, 1.5), (70, 10)), [0]),  # a scale of 0.4
        (((7.4, 0.03), (80, 8), (0, 0.5)), [0]),
        (((37, 0.1), (0, 1), (0, 0.4)), []),  # two or three of its steps tell something
        (((37, 0.001), (0, 1), (0, 0.4)), []),  # next to nothing
        (((37, 0.0), (0, 1), (0, 0.4)), []),
        (((3, 0.004), (0, 1), (0, 0.4), (2, 0.1), (1, 0.5)), []),  # that others have a mean of 20 times their spread
        (tuple((0.2 * at, 0.005) for at in range(16)), []),  # a ramp
        (tuple((0.5 * at, 0.5) for at in range(8)), []),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_in_8_bits_what_varies_by_less_than_a_step_is_lost(
    of: tuple[tuple[float, float], ...], gone: list[int], known: bool
) -> None:
    base = columns(of)
    target = in_8_bits(base)
    found = with_slices(measure(base, target), base, target, {len(of): (1,) * len(of)} if known else {})
    assert [one.first for one in found.lost] == gone
    step = (max(0.0, base.max()) - min(0.0, base.min())) / 255
    assert all(one.step == pytest.approx(step, rel=1e-3) for one in found.lost), "the scale is told"
    moved = target + np.float32(0.01 * step)
    off = with_slices(measure(base, moved), base, moved, {len(of): (1,) * len(of)} if known else {})
    assert [one.first for one in off.lost] == gone, "an offset behind it changes nothing"


@pytest.mark.parametrize(
    ("of", "kind", "gone"),
    [
        ((1013, 1), ml_dtypes.bfloat16, True),
        ((300, 0.02), np.float16, True),
        ((300, 8), ml_dtypes.bfloat16, False),
        ((1013, 1), np.float16, False),
        ((1013, 0.0), ml_dtypes.bfloat16, False),
        ((0.998, 0.0005), ml_dtypes.bfloat16, False),  # within [0, 1]: told to hundredths
        ((1013, 0.001), np.float32, False),
    ],
)
@pytest.mark.parametrize("shape", [(400,), (400, 1), (1, 20, 20), (4, 100, 1), (1, 8400)])
def test_an_output_of_one_quantity_is_judged_as_a_slice_is(
    of: tuple[float, float], kind: type, gone: bool, shape: tuple[int, ...]
) -> None:
    """Kelvin of each of many places, and nothing beside it."""
    base = np.random.default_rng(8).normal(*of, int(np.prod(shape))).reshape(shape).astype(np.float32)
    target = base.astype(kind).astype(np.float32)
    if kind is np.float32:
        target += np.float32(0.002)
    for numbers in (compare(base, target), measure(base, target)):
        found = with_slices(numbers, base, target, {})
        assert [(one.axis, one.first, one.of) for one in found.lost] == ([(WHOLE, 0, 1)] if gone else [])
        assert (slices.largest_lost_error(found) >= 0.9) == gone
        row = judge_row(row_of(found), Tolerance(given=False), allowed=0.1)
        assert row.reason.code == ("whole_on_steps" if gone else "")
    one = [Merged.of(with_slices(measure(b, t), b, t, {}), at) for at, (b, t) in enumerate(
        zip(base.reshape(-1, 1)[:64], target.reshape(-1, 1)[:64], strict=True))]  # fmt: skip
    assert bool(functools.reduce(Merged.merge, one).comparison().lost) == gone, "one number a sample"


@pytest.mark.parametrize("mode", ["ort_bf16_sim", "ort_fp16_sim"])
def test_who_adds_the_mean_of_the_only_quantity_is_named(tmp_path: Path, mode: str) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("onnx", reason="builds a model")
    from planted.onnx_faults import Graph

    import precision_debug
    from precision_debug.report.lead import lead_sentences

    g = Graph(seed=3)
    x = g.input("x", g.random.normal(size=(64, 16)).astype(np.float32))
    mean = np.float32(1013 if mode == "ort_bf16_sim" else 20000)
    path = g.save(tmp_path / "m.onnx", [g.op("Add", [g.dense(x, 16, 1, "p"), g.weight("mean", mean)], "pressure")])
    report = precision_debug.compare(path, run_mode=mode, inputs=g.feeds)
    assert [row.reason.code for row in report.rows if row.is_output] == ["whole_on_steps"]
    assert report.explanation is not None
    assert [(one.name, one.cause) for one in report.explanation.culprits] == [("pressure", "stepped")]
    first = lead_sentences(report)[0]
    assert "64" in first.en
    assert "64" in first.zh


def test_shares_are_told_to_hundredths() -> None:
    yes = np.random.default_rng(0).normal(0.998, 0.0005, (400, 1)).astype(np.float32)
    base = np.concatenate([yes, 1 - yes], 1)
    assert not stretches(base, base.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_one_number_a_sample_has_a_spread_over_many() -> None:
    base = columns(WEATHER, 40)
    target = base.astype(ml_dtypes.bfloat16).astype(np.float32)
    found = [
        Merged.of(with_slices(measure(b[None], t[None]), b[None], t[None], {3: (1, 1, 1)}), at)
        for at, (b, t) in enumerate(zip(base, target, strict=True))
    ]
    whole = functools.reduce(Merged.merge, found)
    assert whole == functools.reduce(Merged.merge, found[::-1]) == from_plain(json.loads(json.dumps(to_plain(whole))))
    assert [(one.axis, one.first) for one in whole.comparison().lost] == [(1, 0)]


@pytest.mark.parametrize("mode", ["ort_bf16_sim", "ort_fp16_sim"])
def test_who_adds_the_mean_is_named_and_not_who_joins_it(tmp_path: Path, mode: str) -> None:
    """Pressures get their mean before they are put beside the wind."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("onnx", reason="builds a model")
    from planted.onnx_faults import Graph

    import precision_debug

    g = Graph(seed=3)
    x = g.input("x", g.random.normal(size=(64, 16)).astype(np.float32))
    mean = np.float32(1013 if mode == "ort_bf16_sim" else 20000)
    pressure = g.op("Add", [g.dense(x, 16, 1, "p"), g.weight("mean", mean)], "pressure")
    path = g.save(tmp_path / "m.onnx", [g.op("Concat", [pressure, g.dense(x, 16, 2, "wind")], "y", axis=1)])
    report = precision_debug.compare(path, run_mode=mode, inputs=g.feeds)
    assert [row.reason.code for row in report.rows if row.is_output] == ["slices_on_steps"]
    assert report.explanation is not None
    assert [one.name for one in report.explanation.culprits] == ["pressure"]
    assert report.to_keep is not None
    assert report.to_keep.state == "mended"


@pytest.mark.parametrize(
    ("sizes", "gone"),
    [
        ((30, 30, 2, 2, 2, 2, 1, 0.05, 0.05), [(7, 8)]),
        ((0.05, 30, 2, 2, 0.06, 1.5, 40, 35), [(0, 0), (4, 4)]),
        ((30, 10, 3, 1, 0.3, 0.1, 0.05), []),
        ((30, 6, 1, 0.2, 0.03), []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("axis", [1, 2])
def test_quantities_of_one_layer_stand_on_levels(
    sizes: tuple[float, ...], gone: list[tuple[int, int]], axis: int
) -> None:
    """No Concat says what is packed: several sizes, each of two columns or so. Where they fall step by step, nobody
    can tell a small quantity from a small feature."""
    base = np.random.default_rng(5).normal(size=(1, 100, len(sizes))) * np.array(sizes)
    base = np.moveaxis(base, 2, axis)
    assert stretches(base, in_8_bits(base)) == [(axis, *one) for one in gone]


def test_few_columns_of_a_layer_are_quantities_whatever_their_sizes() -> None:
    sizes = np.array((30, 6, 1, 0.2, 0.03))
    random = np.random.default_rng(5)
    base = random.normal(size=(64, 5)) * sizes
    assert stretches(base, in_8_bits(base)) == []
    assert stretches(base, in_8_bits(base), {5: (1,) * 5}) == [(1, 4, 4)]
    logits = random.normal(size=(2, 5)) * 8
    logits[:, 3] = 0.001
    assert stretches(logits, in_8_bits(logits), {5: (1,) * 5}) == [], "two numbers that are nearly 0 by chance"


@pytest.mark.parametrize(("layer", "shape", "parts"), [
    ("Gemm", (40, 9), {9: (1,) * 9}),
    ("aten.linear.default", (2, 40, 9), {9: (1,) * 9}),
    ("Conv", (1, 5, 40, 40), {5: (1,) * 5}),
    ("Gemm", (40, 200), {}),
    ("Softmax", (40, 9), {}),
])  # fmt: skip
def test_columns_of_a_layer_are_read_from_the_graph(layer: str, shape: tuple[int, ...], parts: object) -> None:
    metas = {
        "mm": TensorMeta(name="mm", op_type=layer, inputs=("x",)),
        "y": TensorMeta(name="y", op_type="Add", inputs=("mm",)),
    }
    assert find_packed_parts("y", metas, {"mm": shape, "y": shape}.get) == parts
    two = {**metas, "mm": TensorMeta(name="mm", op_type=layer, inputs=("x", "z"))}
    assert find_packed_parts("y", two, {"mm": shape, "y": shape}.get) == {}, "no weights of its own"


def heads() -> dict[str, tuple[list[Array], set[int]]]:
    """What outputs pack along their last axis, by what makes them; and which parts one 8-bit scale for all ends."""
    random, count = np.random.default_rng(11), 400

    def sigmoid(mean: float, spread: float, wide: int) -> Array:
        return 1 / (1 + np.exp(-random.normal(mean, spread, (1, count, wide))))

    def normal(mean: float, spread: float, wide: int) -> Array:
        return random.normal(mean, spread, (1, count, wide))

    boxes = np.concatenate([random.uniform(40, 600, (1, count, 2)), random.gamma(2, 40, (1, count, 2))], -1)
    raised = np.exp(normal(0, 2, 21) + np.eye(1, 21) * 5)
    voiced = random.uniform(size=(1, count, 1)) > 0.3
    return {
        "yolo 5": ([boxes, sigmoid(-5, 3, 1), sigmoid(-6, 2.5, 20)], {1, 2}),
        "yolo 8": ([boxes, sigmoid(-6, 2.5, 20)], {1}),
        "yolo 10": ([boxes, sigmoid(-5, 3, 1), random.integers(0, 20, (1, count, 1))], {1}),
        "boxes, scores": ([boxes, sigmoid(-5, 3, 1)], {1}),
        "keypoints, confidence": ([random.uniform(0, 640, (1, count, 34)), sigmoid(-5, 3, 1)], {1}),
        "mask, boxes, score": ([normal(0, 0.6, 32), boxes, sigmoid(-5, 3, 1)], {0, 2}),
        "ssd": ([normal(0, 1.2, 4), raised / raised.sum(-1, keepdims=True)], set()),
        "age, gender, logits": ([normal(37, 12, 1), sigmoid(0, 3, 1), normal(0, 3, 7)], set()),
        "logits, value": ([normal(0, 4, 18), np.tanh(normal(0, 0.6, 1))], set()),
        "mel, pitch": ([normal(-5, 2, 80), random.uniform(80, 400, (1, count, 1)) * voiced], set()),
    }


def in_8_bits(values: Array) -> Array:
    low, high = min(0.0, values.min()), max(0.0, values.max())
    step = (high - low) / 255
    zero = round(-low / step)
    return (np.clip(np.rint(values / step) + zero, 0, 255) - zero) * step


@pytest.mark.parametrize("name", heads())
def test_of_ten_heads_only_what_one_scale_ends_is_lost(name: str) -> None:
    packed, ended = heads()[name]
    parts = [np.asarray(one, np.float64) for one in packed]
    base = np.concatenate(parts, -1).astype(np.float32)
    sizes = tuple(one.shape[-1] for one in parts)
    known: list[dict[int, tuple[int, ...]]] = [{sum(sizes): sizes}, {}]
    own_scales = np.concatenate([in_8_bits(one) for one in parts], -1)
    for target in (base.astype(np.float16), base.astype(ml_dtypes.bfloat16), own_scales):
        assert [stretches(base, target.astype(np.float32), one) for one in known] == [[], []]
    first = np.cumsum((0, *sizes))
    found = stretches(base, in_8_bits(base.astype(np.float64)).astype(np.float32), known[0])
    inside = {at for _, low, high in found for at in range(len(sizes)) if low <= first[at] < first[at + 1] <= high + 1}
    assert inside == ended


def test_half_of_a_tensor_of_probabilities_is_no_part_of_its_own() -> None:
    base = np.concatenate([np.random.default_rng(0).uniform(0, 1, (50, 4)), np.full((50, 2), 1e-4)], 1)
    assert not stretches(base, rounded(base, 1 / 255), {6: (4, 2)})


def test_any_split_of_the_samples_merges_to_the_whole() -> None:
    random = np.random.default_rng(3)
    found = []
    for number in range(5):
        base = boxes_and_scores(random).astype(np.float32)
        target = rounded(base, 2.5)
        one = with_slices(measure(base, target), base, target, {9: (4, 5)})
        found.append(Merged.of(one, number))
    whole = functools.reduce(Merged.merge, found)
    for order in itertools.permutations(found):
        assert functools.reduce(Merged.merge, order) == whole
    split = Merged.merge(functools.reduce(Merged.merge, found[:2]), functools.reduce(Merged.merge, found[2:]))
    assert split == whole == from_plain(json.loads(json.dumps(to_plain(whole))))
    assert [(one.axis, one.first, one.last) for one in whole.comparison().lost] == [(2, 4, 8)]


def test_an_axis_of_another_length_in_each_sample_is_no_quantity() -> None:
    random = np.random.default_rng(3)
    one, other = (boxes_and_scores(random, count) for count in (20, 30))
    pairs = [with_slices(measure(one, one + 1), one, one + 1, {}), with_slices(measure(other, other), other, other, {})]
    merged = Merged.merge(Merged.of(pairs[0], 0), Merged.of(pairs[1], 1))
    assert merged.slices is not None
    assert sorted(merged.slices.axes) == [WHOLE, 2]


def row_of(found: Comparison) -> Row:
    return Row(index=0, op_type="Concat", name="y", status=Status.PASS, comparison=found, is_output=True)


@pytest.mark.parametrize("tolerance", [Tolerance(given=False), Tolerance(atol=3.0, rtol=1.0, given=True)])
def test_what_is_lost_fails_whatever_was_allowed(tolerance: Tolerance) -> None:
    base = boxes_and_scores(np.random.default_rng(0))
    found = with_slices(measure(base, rounded(base, 2.5), tolerance), base, rounded(base, 2.5), {9: (4, 5)})
    row = judge_row(row_of(found), tolerance, allowed=0.1)
    assert (row.status, row.reason.code) == (Status.FAIL, "slices_lost")
    assert (row.reason.args["count"], row.reason.args["all"], row.reason.args["axis"]) == (5, 9, 2)
    assert judge_row(row, tolerance, allowed=0.1) == row


def test_parts_are_read_from_the_graph() -> None:
    shapes = {"b": (1, 4, 6), "c": (1, 5, 6), "cat": (1, 9, 6), "q": (1, 9, 6), "y": (1, 6, 9)}
    metas = {
        "b": TensorMeta(name="b", op_type="Mul"),
        "c": TensorMeta(name="c", op_type="Sigmoid"),
        "cat": TensorMeta(name="cat", op_type="aten.cat.default", inputs=("b", "c")),
        "q": TensorMeta(name="q", op_type="DequantizeLinear", inputs=("cat",)),
        "y": TensorMeta(name="y", op_type="Transpose", inputs=("q",)),
        "z": TensorMeta(name="z", op_type="MatMul", inputs=("q",)),
    }
    assert find_packed_parts("y", metas, shapes.get) == {9: (4, 5)}
    assert find_packed_parts("z", metas, shapes.get) == {}, "a MatMul mixes what was packed"
    assert find_packed_parts("y", metas, {}.get) == {}, "shapes that nobody saw"


def test_a_quantised_head_ends_with_status_1(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("onnx", reason="builds a model")
    from planted.onnx_faults import Graph

    import precision_debug

    for packed in (True, False):
        g = Graph(seed=3)
        x = g.input("x", g.random.normal(size=(64, 8)).astype(np.float32))
        boxes = g.op(
            "Mul", [g.op("Sigmoid", [g.dense(x, 8, 4, "box", 2.0)], "sb"), g.weight("size", np.float32(640))], "boxes"
        )
        scores = g.op("Sigmoid", [g.dense(x, 8, 5, "cls", 2.0)], "scores")
        ends = [g.op("Concat", [boxes, scores], "y", axis=1)] if packed else [boxes, scores]
        path = g.save(tmp_path / f"{packed}.onnx", ends)
        report = precision_debug.compare(path, run_mode="ort_int8", inputs=g.feeds)
        failed = [row for row in report.rows if row.is_output and row.status is Status.FAIL]
        assert [row.reason.code for row in failed] == (["slices_lost"] if packed else [])
        told = report.explanation
        assert told is not None
        assert [(one.cause, one.name) for one in told.culprits] == ([("packed", "y")] if packed else [])
        if packed:
            assert report.to_keep is not None
            assert report.to_keep.state == "mended"


def test_slices_that_came_in_ruined_have_an_author(tmp_path: Path) -> None:
    """Levels of 700, where bfloat16 knows every fourth number, and their differences of one in one output: whoever
    packs them adds nothing, and beside the levels nobody sees what is lost."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("onnx", reason="builds a model")
    from planted.onnx_faults import Graph

    import precision_debug

    g = Graph(seed=5)
    x = g.input("x", g.random.normal(size=(8, 32)).astype(np.float32))
    late = g.op("Add", [g.dense(x, 32, 16, "d", 0.3), g.weight("level", np.full(16, 700, np.float32))], "late")
    steps = g.weight("step", (np.eye(16)[:, :8] - np.eye(16)[:, 8:]).astype(np.float32))
    path = g.save(tmp_path / "m.onnx", [g.op("Concat", [late, g.op("MatMul", [late, steps], "change")], "y", axis=1)])
    report = precision_debug.compare(path, run_mode="ort_bf16_sim", inputs=g.feeds)
    assert [row.reason.code for row in report.rows if row.is_output] == ["slices_lost"]
    assert report.explanation is not None
    assert [one.name for one in report.explanation.culprits] == ["late"]
    assert report.to_keep is not None
    assert report.to_keep.state == "mended"


def test_ids_through_float32_have_an_author(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("onnx", reason="builds a model")
    from planted.eleventh_onnx import CASES

    import precision_debug

    made = next(one for one in CASES if one.name == "ids_of_forty_million_through_float32").make(tmp_path)
    report = precision_debug.compare(made[0], run_mode="ort_fp32", baseline_model=made[1], inputs=made[2])
    assert report.explanation is not None
    assert [(one.name, one.cause) for one in report.explanation.culprits] == [("id", "files_differ")]


@pytest.mark.slow
def test_who_only_passes_on_what_is_lost_is_not_the_one_that_packs_it(tmp_path: Path) -> None:
    """A softmax of 50,000 whose small shares one scale cannot hold; one column of what is made of them is small."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("onnx", reason="builds a model")
    from planted.tenth_onnx import CASES

    import precision_debug

    path, _, feeds = next(one for one in CASES if one.name == "shares_of_fifty_thousand_in_steps").make(tmp_path)
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=feeds)
    assert [row.reason.code for row in report.rows if row.is_output] == ["slices_lost"]
    assert report.explanation is not None
    assert [one.name for one in report.explanation.culprits] == ["p"]


def test_what_an_output_lost_is_said_before_the_tensor_that_is_out_of_tolerance_first(tmp_path: Path) -> None:
    """A difference of two large numbers is coarse first, and hardly matters; the scores behind it share a type."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("onnx", reason="builds a model")
    from planted.onnx_faults import Graph

    import precision_debug
    from precision_debug.report.lead import lead_sentences

    g = Graph(seed=3)
    x = g.input("x", g.random.normal(size=(64, 8)).astype(np.float32))
    away = g.op("Add", [x, g.weight("far", np.float32(1000))], "away")
    inner = g.op("Sub", [away, g.weight("as_far", np.float32(1000))], "inner")
    seen = g.op("Add", [x, g.op("Mul", [inner, g.weight("hardly", np.float32(0.01))], "small")], "seen")
    size = g.weight("size", np.float32(640))
    boxes = g.op("Mul", [g.op("Sigmoid", [g.dense(seen, 8, 4, "box", 2.0)], "sb"), size], "boxes")
    ends = [boxes, g.op("Sigmoid", [g.dense(seen, 8, 5, "cls", 2.0)], "scores")]
    path = g.save(tmp_path / "m.onnx", [g.op("Concat", ends, "packed", axis=1)])
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=g.feeds, explain="off")
    assert report.first_mismatch is not None
    assert report.first_mismatch.name == "inner"
    first = lead_sentences(report)[0]
    for text in (first.en, first.zh):
        assert "packed" in text
        assert "4-8" in text
        assert "inner" not in text


@pytest.mark.parametrize(
    "shape", [(8, 48, 16, 16), (1, 900, 84), (1, 6, 4620), (3, 40, 56, 14), (2, 9, 4099), (2, 7, 70, 70)]
)
@pytest.mark.parametrize("seed", range(6))
def test_what_a_few_rows_prove_holds_of_all(shape: tuple[int, ...], seed: int) -> None:
    """Whatever is not read is told: no slice of it is lost, nor off by half of its own spread."""
    random = np.random.default_rng(seed)
    base = random.normal(size=shape).astype(np.float32)
    axis = int(random.choice([at for at, size in enumerate(shape) if 1 < size <= MOST]))
    one = tuple(slice(0, 1) if at == axis else slice(None) for at in range(len(shape)))
    base[one] *= 10.0 ** -random.integers(0, 4)
    target = rounded(base, float(np.ptp(base)) / 255)
    found = with_slices(compare(base, target), base, target, {})
    full = sum_slices(base, target)
    assert full is not None
    assert found.lost == tuple(one for one in judge_slices(full) if one.lost)
    for sums in full.axes.values() if not found.slices else ():
        spread = sums[2] - sums[1] ** 2 / sums[0]
        assert (sums[3] < 0.25 * spread).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(9, 40), (1, 17, 3), (3, 2, 5, 33), (130, 70), (2, MOST + 1), (12, 1, 9)])
def test_one_call_says_of_small_tensors_what_their_sums_say(dtype: type, shape: tuple[int, ...]) -> None:
    if slices._load_library() is None:
        pytest.skip("nothing is compiled here")
    random, answers = np.random.default_rng(2), []
    base = (random.normal(size=shape) * np.linspace(0.2, 1, shape[-1]) + 1).astype(dtype)
    for off in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0):
        target = (base + off * random.normal(size=shape)).astype(dtype)
        for broken in (False, True):
            if broken:
                target.flat[5] = np.nan
            found = sum_slices(base, target)
            assert found is not None
            told = all(slices._is_told(sums, sums[slices.ERRORS]) for sums in found.axes.values())
            assert slices._are_all_told(base, target) == told
            answers.append(told)
    assert {*answers} == {True, False} or shape == (1, 17, 3)  # whose slices of 3 tell nothing
    if shape == (9, 40):
        constant = np.ones_like(base)
        assert not slices._are_all_told(constant, constant)
        assert not slices._are_all_told(base, base[:1])
