"""numbers.compare and describe against the oracle, over types, layouts, special values and tolerances."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import oracle
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from precision_debug.errors import UsageError
from precision_debug.numbers import compare, describe
from precision_debug.records import Tolerance

Arrays = tuple[np.ndarray, np.ndarray]

FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_]
FLOAT8 = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]
TYPES = [*FLOATS, *FLOAT8, *INTEGERS, ml_dtypes.int4, ml_dtypes.uint4, np.complex64, np.complex128]
DTYPES = [np.dtype(kind) for kind in TYPES]

tolerances = st.builds(
    Tolerance,
    atol=st.sampled_from([0.0, 1e-4, 0.5, 1.0, 300.0, 1e30]) | st.floats(0, 1e6),
    rtol=st.sampled_from([0.0, 1e-4, 0.5, 1.0]) | st.floats(0, 10),
    rule=st.sampled_from(["isclose", "either"]),
    check_error_stat=st.sampled_from(["elemwise", "max", "mean", "median", "quantile"]),
    quantile=st.floats(0, 1),
    equal_nan=st.booleans(),
)


def is_foreign(dtype: np.dtype[Any]) -> bool:
    return dtype.type.__module__ != "numpy"


def values(dtype: np.dtype[Any], shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    """Any bits for the types of ml_dtypes, hypothesis' own choice (NaN, inf, subnormals) for numpy's."""
    if is_foreign(dtype):
        if dtype.name.endswith("int4"):
            low = -8 if dtype.name == "int4" else 0
            return hnp.arrays(np.int8, shape, elements=st.integers(low, low + 15)).map(lambda a: a.astype(dtype))
        bits = np.dtype(f"uint{8 * dtype.itemsize}")
        return hnp.arrays(bits, shape).map(lambda a: a.view(dtype))
    return hnp.arrays(dtype, shape).map(with_a_magnitude) if dtype == np.complex128 else hnp.arrays(dtype, shape)


def with_a_magnitude(array: np.ndarray) -> np.ndarray:
    """Where a magnitude is the largest float64 or infinite depends on one rounding of hypot: none lies there."""
    for part in (array.real, array.imag):
        part[np.isfinite(part) & (np.abs(part) > 1e307)] = 1e307
    return array


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """The same values in another layout."""
    if layout == "fortran" and array.ndim:
        return np.asfortranarray(array)
    if layout == "strided" and array.ndim:
        wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2), dtype=array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if layout == "reversed" and array.ndim:
        return array[::-1].copy()[::-1]
    if layout == "swapped" and array.dtype.kind in "iufc" and not is_foreign(array.dtype):
        return array.astype(array.dtype.newbyteorder())
    return array


@st.composite
def pairs(draw: st.DrawFn, dtypes: list[np.dtype[Any]] = DTYPES) -> Arrays:
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
    base_dtype = draw(st.sampled_from(dtypes))
    target_dtype = draw(st.just(base_dtype) | st.sampled_from(dtypes))
    base = draw(values(base_dtype, shape))
    if draw(st.booleans()):
        target = draw(values(target_dtype, shape))
    else:
        with np.errstate(all="ignore"):
            target = _cast(base, target_dtype)
        if target.size and draw(st.booleans()):
            other = draw(values(target_dtype, (1,)))
            target = target.copy()
            target.reshape(-1)[draw(st.integers(0, target.size - 1))] = other[0]
    layouts = st.sampled_from(["plain", "fortran", "strided", "reversed", "swapped"])
    return laid_out(base, draw(layouts)), laid_out(target, draw(layouts))


def _cast(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    if array.dtype == dtype:
        return array.copy()
    if array.dtype.kind == "c" and dtype.kind != "c":
        array = array.real
    if is_foreign(array.dtype) or is_foreign(dtype):
        array = array.astype(np.float32)
    return array.astype(dtype)


def close(got: float | None, expected: float | None, *, rel: float = 1e-12, absolute: float = 0.0) -> bool:
    if got is None or expected is None:
        return got is expected
    if got == math.inf and expected > 1.797e308:  # the last rounding of a sum
        return True
    return got == expected or math.isclose(got, expected, rel_tol=rel, abs_tol=absolute)


def check_side(stats: Any, array: np.ndarray) -> None:
    expected = oracle.side(array)
    for name in ("shape", "elements", "nan", "inf"):
        assert getattr(stats, name) == expected[name], name
    for name in ("min", "max"):
        assert close(getattr(stats, name), expected[name], rel=1e-15 if array.dtype.kind == "c" else 0.0), name
    # 1e-320: the grid of subnormal numbers, which no relative bound holds on
    assert close(stats.mean, expected["mean"], absolute=1e-12 * expected["scale"] + 1e-320)
    assert close(stats.rms, expected["rms"], absolute=1e-320)


def extreme(*arrays: np.ndarray) -> bool:
    """Whether squares need scaling, by a peak that is not known to be the finite pairs' where others are special."""
    sizes = [abs(x) for array in arrays for x in oracle.elements(array) if x and not oracle.is_nan(x)]
    return any(not 1e-130 < size < 1e130 for size in sizes if size != math.inf)


def check(base: np.ndarray, target: np.ndarray, tolerance: Tolerance) -> None:
    got, expected = compare(base, target, tolerance), oracle.compare(base, target, tolerance)
    kinds = base.dtype.kind + target.dtype.kind
    wide = any(dtype in (np.int64, np.uint64) for dtype in (base.dtype, target.dtype))
    rounded = "c" in kinds or (wide and not set(kinds) <= set("biu"))
    assert got.shapes_match
    check_side(got.base, base)
    check_side(got.target, target)
    for name in ("mismatched", "first_mismatch", "fp16_overflow", "fp16_subnormal"):
        assert getattr(got, name) == expected[name], name
    for name in ("max_abs", "max_rel"):
        assert close(getattr(got, name), expected[name], rel=1e-15 if rounded else 0.0), name
        if expected[f"{name}_index"] is not None and not rounded:
            assert getattr(got, f"{name}_index") == expected[f"{name}_index"], name
    for name, largest in (("required_atol", expected["max_abs"]), ("required_rtol", expected["max_rel"])):
        # what is left of a difference has the rounding of what it was taken from
        slack = 4e-15 * largest if rounded and largest is not None and math.isfinite(largest) else 0.0
        assert close(getattr(got, name), expected[name], absolute=slack + 1e-320), name
    for name in ("stat_abs", "stat_rel"):
        assert close(getattr(got, name), expected[name], absolute=1e-320), name
    if not expected["finite"]:
        assert got.mean_abs is got.mean_rel is got.rmse is got.cosine_distance is got.sqnr_db is got.abs_p50 is None
    elif not expected["overflow"] and not (expected["special"] and extreme(base, target)):
        for name in ("mean_abs", "mean_rel", "rmse", "abs_p50", "abs_p90", "abs_p99", "abs_p999"):
            assert close(getattr(got, name), expected[name], absolute=1e-320), name
        assert got.share_rel_over_1pct == expected["share_rel_over_1pct"]
        assert close(got.sqnr_db, expected["sqnr_db"], absolute=1e-9)
        if got.cosine_distance is not None:  # None also where a norm leaves float64
            assert close(got.cosine_distance, expected["cosine_distance"], absolute=4e-16 + 1e-6 * got.cosine_distance)


@given(pairs(), tolerances)
@example(
    (np.array([0, -28 + 1j], np.complex64), np.array([0, 2**-9], np.float32)), Tolerance(atol=0.0, rtol=1.0)
)  # fmt: skip
@example(
    # |t - b| = 448945943928528.5314, and float64 has .5 and .5625 there: the nearer one is above |b| = ….5
    (np.array([-8.892218e12 + 4.4885787e14j], np.complex64), np.array([1.5], ml_dtypes.float8_e4m3fn)),
    Tolerance(atol=0.0, rtol=1.0),
)
@example((np.array(14506776029855013), np.array(-1, ml_dtypes.int4)), Tolerance(atol=0.0, rtol=1.0))
@example((np.array([-14506776029854425, 0], ">i8"), np.array([1, 1], ml_dtypes.uint4)), Tolerance(atol=0.0, rtol=0.0))
@settings(max_examples=600, deadline=None)
def test_every_type_and_layout_agrees_with_the_oracle(pair: Arrays, tolerance: Tolerance) -> None:
    check(*pair, tolerance)


@given(pairs([np.dtype(np.float32)]), tolerances)
@settings(max_examples=300, deadline=None)
def test_float32_agrees_with_the_oracle(pair: Arrays, tolerance: Tolerance) -> None:
    check(*pair, tolerance)


@given(pairs(DTYPES[:4]), tolerances)
@settings(max_examples=300, deadline=None)
def test_required_tolerances_pass_and_are_the_smallest(pair: Arrays, tolerance: Tolerance) -> None:
    found = compare(*pair, tolerance)
    for option, other in (("atol", tolerance.rtol), ("rtol", tolerance.atol)):
        value = getattr(found, f"required_{option}")
        if value is None or math.isinf(value):
            continue
        assert compare(*pair, replace(tolerance, **{option: value})).mismatched == 0
        if value > 1e-290 and not extreme(*pair) and (tolerance.rule == "either" or other == 0):
            assert compare(*pair, replace(tolerance, **{option: value * (1 - 1e-12)})).mismatched


@given(hnp.arrays(np.float64, st.integers(0, 40)) | values(np.dtype(ml_dtypes.bfloat16), (30,)))
def test_describe_agrees_with_the_oracle(array: np.ndarray) -> None:
    check_side(describe(array), array)


@pytest.mark.parametrize("base", [2**53, 2**62, 2**63 - 2])
@pytest.mark.parametrize("types", [("int64", "int64"), ("int64", "uint64"), ("uint64", "int64"), ("uint64", "uint64")])
def test_wide_integers_are_told_apart_beyond_float64(base: int, types: tuple[str, str]) -> None:
    b, t = np.array([base, 5], dtype=types[0]), np.array([base + 1, 5], dtype=types[1])
    got = compare(b, t, Tolerance(atol=0, rtol=0))
    assert (got.mismatched, got.max_abs, got.max_abs_index) == (1, 1.0, (0,))
    assert compare(b, t, Tolerance(atol=1, rtol=0)).mismatched == 0


@pytest.mark.parametrize("quantiles", [True, False])
@pytest.mark.parametrize("start", [40_000_000, 1 << 60])
def test_ids_are_equal_or_wrong_where_nobody_gave_a_tolerance(start: int, quantiles: bool) -> None:
    """The tolerance of floats calls them equal: an operator that makes other ids then adds nothing."""
    base = np.arange(start, start + 64, dtype=np.int64)
    target = base + (np.arange(64) % 3 == 0)
    assert compare(base, target, quantiles=quantiles).mismatched == 22
    assert compare(base, target, Tolerance(), quantiles=quantiles).mismatched == 0


def test_the_widest_integer_difference_does_not_wrap() -> None:
    b, t = np.array([-(2**63)]), np.array([2**64 - 1], dtype=np.uint64)
    assert compare(b, t, Tolerance()).max_abs == float(2**64 + 2**63)
    assert compare(b, t, Tolerance(atol=2.0**64, rtol=0)).mismatched == 1
    assert compare(b, t, Tolerance(atol=2.0**65, rtol=0)).mismatched == 0


def test_shapes_that_differ_keep_both_sides() -> None:
    got = compare(np.ones((2, 3), np.float16), np.zeros((3, 2), np.int64), Tolerance())
    assert not got.shapes_match
    assert got.mismatched is got.max_abs is got.required_atol is None
    assert (got.base.dtype, got.base.mean, got.target.dtype, got.target.max) == ("float16", 1.0, "int64", 0.0)


def test_empty_tensors_have_no_errors() -> None:
    got = compare(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), Tolerance(check_error_stat="median"))
    assert (got.mismatched, got.max_abs, got.abs_p50, got.stat_abs, got.base.min) == (0, None, None, None, None)


def test_text_is_compared_by_equality() -> None:
    base = np.array([["a", "b"], ["ü", ""]])
    same, other = np.array([["a", b"b"], ["ü", ""]], dtype=object), np.array([["a", "c"], ["ü", "x"]], dtype=object)
    assert compare(base, same, Tolerance()).mismatched == 0
    got = compare(base, other, Tolerance())
    assert (got.mismatched, got.first_mismatch, got.base.dtype, got.target.dtype) == (2, (0, 1), "str", "str")
    assert got.max_abs is None
    assert compare(base, np.zeros((2, 2)), Tolerance()).mismatched is None


def test_identical_tensors_keep_their_statistics_and_their_nans() -> None:
    base = np.array([np.nan, 1.0, -2.0, np.inf, 1e-40], np.float32)
    got = compare(base, base.copy(), Tolerance())
    assert (got.identical, got.mismatched, got.first_mismatch) == (True, 1, (0,))
    assert (got.max_abs, got.max_abs_index) == (0.0, (1,))
    assert (got.base.min, got.base.nan, got.base.inf, got.fp16_subnormal, got.required_atol) == (-2.0, 1, 1, 1, np.inf)
    got = compare(base, base.copy(), Tolerance(equal_nan=True))
    assert (got.mismatched, got.required_atol) == (0, 0.0)
    assert not compare(np.zeros(3), -np.zeros(3), Tolerance()).identical
    assert not compare(np.zeros(3, np.float32), np.zeros(3, np.float64), Tolerance()).identical


def large_pair(size: int, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    base = rng.standard_normal(size, dtype=np.float32)
    target = base + np.float32(1e-3) * rng.standard_normal(size, dtype=np.float32) ** 3
    base[rng.integers(0, size, 50)] = np.nan
    target[rng.integers(0, size, 50)] = np.inf
    return base, target


@pytest.mark.parametrize("size", [65535, 65536, 300_007])
def test_quantiles_of_large_tensors_lie_within_a_bucket(size: int) -> None:
    base, target = large_pair(size, seed=size)
    got = compare(base, target, Tolerance())
    diff = np.abs(target.astype(np.float64) - base)
    diff = diff[np.isfinite(diff)]
    assert got.quantiles_exact == (size < 65536)
    for name, q in (("abs_p50", 0.5), ("abs_p90", 0.9), ("abs_p99", 0.99)):
        assert getattr(got, name) == pytest.approx(np.quantile(diff, q), rel=1e-12 if got.quantiles_exact else 0.125)


def test_quantiles_are_exact_where_nans_leave_few_samples() -> None:
    base = np.full(100_000, np.nan, np.float32)
    base[::1000] = np.arange(100)
    got = compare(base, np.where(np.isnan(base), base, 2 * base), Tolerance())
    assert (got.quantiles_exact, got.abs_p50) == (True, 49.5)


@pytest.mark.parametrize("kind", ["max", "mean", "median", "quantile"])
def test_statistics_of_large_tensors_are_exact(kind: str) -> None:
    base, target = large_pair(3_000_000, seed=1)
    target[:1_500_000] = base[:1_500_000]
    got = compare(base, target, Tolerance(check_error_stat=kind, quantile=0.75))
    with np.errstate(all="ignore"):
        diff = np.abs(target.astype(np.float64) - base)
        relative = diff / np.abs(base)
    finite = np.isfinite(diff)
    reduce = {"max": lambda _: np.inf, "mean": np.mean, "median": np.median, "quantile": lambda x: np.quantile(x, 0.75)}
    assert got.stat_abs == pytest.approx(reduce[kind](diff[finite]), rel=1e-12)
    assert got.stat_rel == pytest.approx(reduce[kind](relative[finite]), rel=1e-12)


@pytest.mark.parametrize("stat", ["elemwise", "median"])
def test_memory_stays_far_below_a_wide_copy(stat: str) -> None:
    base = np.random.default_rng(2).standard_normal((4000, 1000)).astype(np.float16).T
    target = base + np.float16(0.01)
    tracemalloc.start()
    try:
        compare(base, target, Tolerance(check_error_stat=stat))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (10 if stat == "elemwise" else 20) * 2**20  # a float64 copy of one side is 32 MB


@pytest.mark.parametrize(
    "wrong",
    [
        {"atol": -1.0},
        {"rtol": math.nan},
        {"atol": math.inf},
        {"rule": "x"},
        {"check_error_stat": "x"},
        {"quantile": 2.0},
    ],
)
def test_a_tolerance_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        compare(np.zeros(1), np.zeros(1), Tolerance(**wrong))
