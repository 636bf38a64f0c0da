"""Rounding to narrower types: the compiled pass and numpy's give the same bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from precision_debug.numbers import narrowing
from precision_debug.numbers.narrowing import count_low_bits, narrow_values, round_values, shake_values

TYPES = [np.dtype("float16"), np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)]


@pytest.fixture(params=["compiled", "numpy"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(narrowing, "_load_library", lambda: None)
    elif narrowing._load_library() is None:
        pytest.skip("nothing is compiled here")


def values() -> Any:
    rng = np.random.default_rng(0)
    edges = [0, -0.0, 1, 65504, 65519.996, 65520, 1e38, 3.4e38, -3.39e38, np.inf, -np.inf, np.nan]
    tiny = [2.0**-14, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, 6.1e-5, 1e-45]
    any_bits = rng.integers(0, 2**32, 1 << 16, dtype=np.uint64).astype(np.uint32).view(np.float32)
    spread = (rng.normal(size=1 << 16) * np.exp(12 * rng.normal(size=1 << 16))).astype(np.float32)
    return np.concatenate([np.array(edges + tiny, np.float32), any_bits, spread])


@pytest.mark.parametrize("dtype", TYPES, ids=[dtype.name for dtype in TYPES])
@pytest.mark.usefixtures("either")
def test_rounding_is_to_nearest_even_and_finite_stays_finite(dtype: Any) -> None:
    given = values()
    expected = narrow_values(given, dtype).astype(np.float32)
    for got in (
        round_values(given, dtype),
        round_values(given, dtype, np.empty_like(given)),
        round_values(given[::2], dtype),
    ):
        want = expected if got.size == given.size else expected[::2]
        same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
        assert same.all(), given[: got.size][~same][:5]


@pytest.mark.parametrize("step", [None, 0.5])
@pytest.mark.usefixtures("either")
def test_each_element_is_off_by_its_share_of_the_noise(step: float | None) -> None:
    rng = np.random.default_rng(1)
    given = rng.normal(size=(7, 1001)).astype(np.float32)
    noise = rng.uniform(-1, 1, 256).astype(np.float32)
    got = shake_values(given, noise, 2.0**-8, start=300, step=step)
    own = noise[(np.arange(given.size) + 300) % 256].reshape(given.shape) * np.float32(2.0**-8)
    want = given + (given if step is None else np.float32(step)) * own
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
    mask = np.array([-np.inf, 1.0, np.inf], np.float32)
    assert np.array_equal(np.isfinite(shake_values(mask, noise, 2.0**-8, step=step)), [False, True, False])
    assert shake_values(mask, noise, 2.0**-8, step=step)[0] == -np.inf
    assert np.abs(got - given).max() > 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.usefixtures("either")
def test_what_the_narrow_type_holds_exactly_is_not_off(dtype: Any) -> None:
    """Ones, zeros, whole numbers and powers of two of a mask: its noise times -10000 would be nobody's."""
    noise = np.random.default_rng(1).uniform(-1, 1, 256).astype(np.float32)
    exact = np.array([1, 0, -1, 3, 2047, 0.5, -1024, 2.0**-14] * 40, dtype)
    assert np.array_equal(shake_values(exact, noise, 2.0**-11), exact)
    other = np.array([1 / 3, 2049, -10001, 1e-3] * 80, dtype)
    assert np.count_nonzero(shake_values(other, noise, 2.0**-11) == other) < 5
    assert (
        np.count_nonzero(shake_values(exact, noise, 2.0**-11, step=100.0) == exact) < 5
    )  # a step is not the value's own
    assert count_low_bits(2.0**-11, 24) == (1 << 13) - 1
    assert count_low_bits(2.0**-11, 11) == count_low_bits(2.0**-24, 24) == count_low_bits(0.0, 24) == 0
