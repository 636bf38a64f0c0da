"""Totals of many samples: any split, in any order, merges to the whole; sums are exact, quantiles within a bound."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from precision_debug import numbers
from precision_debug.numbers import histogram
from precision_debug.numbers.exact_sum import ExactSum
from precision_debug.numbers.merged import Measured, Merged, rank_badness
from precision_debug.records import Comparison, Tolerance

finite = st.floats(allow_nan=False, allow_infinity=False)
TOLERANCE = Tolerance(atol=1e-3, rtol=1e-3)


def pairs(dtype: Any) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    shapes = st.sampled_from([(1,), (3, 4), (2, 3, 5)])
    wide = np.float32 if dtype == np.float16 else dtype

    def narrow(array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return array.astype(dtype)

    def both(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
        return st.tuples(*[hnp.arrays(wide, shape).map(narrow)] * 2)

    return shapes.flatmap(both)


def whole(found: Sequence[tuple[int, Measured]]) -> Merged:
    return functools.reduce(Merged.merge, (Merged.of(one, sample) for sample, one in found))


@given(st.lists(finite, max_size=12), st.randoms())
def test_a_sum_is_exact_in_any_order(values: list[float], random: Any) -> None:
    total = functools.reduce(ExactSum.__add__, map(ExactSum.of, values), ExactSum())
    random.shuffle(values)
    assert functools.reduce(ExactSum.__add__, map(ExactSum.of, values), ExactSum()) == total
    exact = sum(map(Fraction, values), Fraction())
    assert Fraction(total.mantissa) * Fraction(2) ** total.exponent == exact
    try:
        assert float(total) == float(exact)
    except OverflowError:
        assert math.isinf(float(total))
    assert ExactSum.from_text(total.text) == total


def test_sums_beyond_float64_are_read_in_parts() -> None:
    huge = ExactSum.of(1e308) + ExactSum.of(1e308)
    assert float(huge) == math.inf
    assert huge.scaled(1) == 1e308
    assert huge.scaled(0, 2) == 1e308
    assert float(ExactSum.of(math.inf) + huge) == math.inf
    assert ExactSum.from_text(ExactSum.of(math.inf).text) == ExactSum.of(math.inf)
    assert ExactSum.of(1.5, -1080).scaled(-1080) == 1.5


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int32])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_split_is_the_whole(dtype: Any, data: st.DataObject) -> None:
    samples = data.draw(st.lists(pairs(dtype), min_size=1, max_size=6))
    with np.errstate(all="ignore"):
        found = [(number, numbers.measure(*pair, TOLERANCE)) for number, pair in enumerate(samples)]
    expected = whole(found)
    order = data.draw(st.permutations(found))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(order) - 1), max_size=3))) if len(order) > 1 else []
    shards = [order[low:high] for low, high in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    merged = functools.reduce(Merged.merge, map(whole, shards))
    assert merged == expected, "bit for bit"
    assert merged.comparison() == expected.comparison()


@pytest.mark.parametrize("kind", ["near", "bad", "huge", "tiny"])
def test_the_whole_has_the_numbers_of_all_elements_together(kind: str) -> None:
    random = np.random.default_rng(3)
    base = random.standard_normal((7, 40, 30))
    target = base + 1e-3 * random.standard_normal(base.shape)
    if kind == "bad":
        base[2, 3, 4], target[5, 0, 0], target[1, 1, 1] = math.nan, math.inf, 9.0
    base, target = (one * {"huge": 1e300, "tiny": 1e-300}.get(kind, 1.0) for one in (base, target))
    merged = whole([(i, numbers.measure(b, t, TOLERANCE)) for i, (b, t) in enumerate(zip(base, target, strict=True))])
    got, want = merged.comparison(), numbers.compare(base, target, TOLERANCE)
    for field in dataclasses.fields(Comparison):
        one, other = getattr(got, field.name), getattr(want, field.name)
        if field.name in ("base", "target"):
            assert dataclasses.replace(one, shape=other.shape, mean=None, rms=None) == dataclasses.replace(
                other, mean=None, rms=None
            )
            assert one.rms == pytest.approx(other.rms, rel=1e-12)
            assert one.mean == pytest.approx(other.mean, rel=1e-9)
        elif field.name.startswith("abs_p"):
            assert one == pytest.approx(other, rel=0.125), "8 buckets an octave"
        elif field.name in ("mean_abs", "mean_rel", "rmse", "cosine_distance", "sqnr_db"):
            assert one == pytest.approx(other, rel=1e-9), field.name
        elif field.name in ("max_abs_index", "max_rel_index", "first_mismatch"):
            name = field.name.removesuffix("_index")
            place = getattr(merged, name)
            assert (None if place is None else (place.sample, *place.index)) == other
        elif field.name != "quantiles_exact":
            assert one == other, field.name


def test_large_tensors_enter_the_histogram_by_a_sample() -> None:
    random = np.random.default_rng(0)
    base = random.standard_normal((3, 200_000)).astype(np.float32)
    target = base + 1e-3 * random.standard_normal(base.shape).astype(np.float32)
    merged = whole([(i, numbers.measure(b, t)) for i, (b, t) in enumerate(zip(base, target, strict=True))])
    assert sum(merged.sketch.values()) == base.size
    errors = np.abs(target.astype(np.float64) - base)
    assert merged.comparison().abs_p99 == pytest.approx(np.quantile(errors, 0.99), rel=0.125)


def test_the_worst_samples_come_first() -> None:
    base = np.ones(10, np.float32)
    found = [(i, numbers.measure(base, base * (1 + (i * 7 % 10) * 1e-3), TOLERANCE)) for i in range(10)]
    assert [sample for _, sample in whole(found).worst] == [7, 4, 1, 8, 5]
    nan = base.copy()
    nan[3] = math.nan
    worse = Merged.merge(whole(found), Merged.of(numbers.measure(base, nan, TOLERANCE), 11))
    assert worse.worst[0] == (math.inf, 11)
    assert rank_badness(numbers.measure(base, base[:3])) == math.inf


def test_samples_that_do_not_compare_are_counted() -> None:
    base = np.ones((2, 5), np.float32)
    found = Merged.merge(Merged.of(numbers.measure(base, base[:1]), 0), Merged.of(numbers.measure(base, base), 1))
    assert (found.samples, found.unlike, found.mismatched) == (2, 1, 0)
    assert not found.comparison().shapes_match
    text = np.array(["a", "b"])
    words = Merged.merge(Merged.of(numbers.measure(text, text), 0), Merged.of(numbers.measure(text, text[::-1]), 1))
    assert (words.mismatched, words.comparison().mismatched, words.comparison().mean_abs) == (2, 2, None)


def test_a_devices_histogram_is_read_as_the_hosts() -> None:
    errors = np.abs(np.random.default_rng(1).standard_normal(100_000)).astype(np.float32)
    errors[:50] = 0
    counts = np.bincount(errors.view(np.uint32) >> 18, minlength=1 << 13)
    assert (histogram.from_float32(counts) == histogram.count_buckets(errors.astype(np.float64))).all()
