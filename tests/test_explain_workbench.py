"""Tensors of an explanation in the host's memory: what an operator is off by, and what rounding is, in narrow types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from precision_debug.explain.workbench import _BLOCK, HostWorkbench

NARROW = [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.float16]


@pytest.mark.parametrize("dtype", NARROW)
def test_an_error_is_added_in_narrow_types_too(dtype: Any) -> None:
    numbers = [1.0, -2.0, 4.0], [1.0, -2.0, 3.0], [1.5, -2.0, 2.0]
    value, exact, wrong = (np.array(row, dtype) for row in numbers)
    made = HostWorkbench().with_error(value, exact, wrong)
    assert made.dtype == np.dtype(dtype)
    assert made.astype(np.float32).tolist() == [1.5, -2.0, 3.0]


def test_no_number_of_a_large_tensor_lies_beyond_all_of_it_wherever_the_largest_is() -> None:
    """It is handled in blocks: a limit of each would cut off more. In Fortran's order as well."""
    value = np.ones((2, _BLOCK), np.float32)
    value[1, -1] = 5.0
    exact, wrong = np.zeros_like(value), np.full_like(value, 3.0)
    for one in (value, np.asfortranarray(value)):
        made = HostWorkbench().with_error(one, exact, wrong)
        assert made.flags.c_contiguous
        assert made[0].tolist() == [4.0] * _BLOCK
        assert made[1, -1] == 5.0
    assert HostWorkbench().with_error(value, exact, wrong[0]) is None, "they do not fit together"


def test_what_overflowed_and_what_vanished_is_so_afterwards() -> None:
    dtype = ml_dtypes.bfloat16
    value, exact, wrong = (np.array(numbers, dtype) for numbers in ([8.0, 0.5], [8.0, 0.5], [np.inf, 0.0]))
    assert HostWorkbench().with_error(value, exact, wrong).astype(np.float32).tolist() == [np.inf, 0.0]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_rounding_shakes_narrow_types_too(dtype: Any) -> None:
    random = np.random.default_rng(0)
    value = random.normal(size=4096).astype(dtype)
    unit = float(2.0**-8)
    made = HostWorkbench().shaken(value, random.uniform(-1, 1, 512).astype(np.float32), unit, 3, None)
    assert made.dtype == np.dtype(dtype)
    exact, off = value.astype(np.float64), made.astype(np.float64)
    error = np.linalg.norm(off - exact) / np.linalg.norm(exact)
    assert unit / 4 < error < unit


def test_integers_are_not_shaken() -> None:
    assert HostWorkbench().shaken(np.arange(4), np.ones(4, np.float32), 0.1, 0, None) is None
