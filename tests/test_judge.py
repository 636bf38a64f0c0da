"""Verdicts and their reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from precision_debug.judge import verdict
from precision_debug.metrics import compare
from precision_debug.records import Tolerance

NAN, INF = np.nan, np.inf


def judged(base: Any, target: Any, **tolerance: Any) -> tuple[bool, str]:
    wanted = Tolerance(**tolerance)
    return verdict(compare(np.asarray(base), np.asarray(target), wanted), wanted)


@pytest.mark.parametrize(
    ("base", "target", "tolerance", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], {}, (True, "")),
        ([1.0, 2.0], [1.0, 2.1], {}, (False, "1 of 2 elements")),
        ([1.0, 2.0], [1.0, 2.00005], {"atol": 1e-4, "rtol": 0}, (True, "")),
        ([1.0, NAN], [1.0, NAN], {}, (False, "1 of 2 elements, NaN on both sides")),
        ([1.0, NAN], [1.0, NAN], {"equal_nan": True}, (True, "")),
        ([1.0, 1.0], [3.0, NAN], {"equal_nan": True}, (False, "2 of 2 elements, NaN in the target")),
        ([1.0, INF], [1.0, 65504.0], {}, (False, "1 of 2 elements, inf in the baseline")),
        ([-INF, INF], [-INF, INF], {}, (True, "")),
        ([-INF, INF], [INF, INF], {}, (False, "1 of 2 elements, inf on both sides")),
        ([1.0], [[1.0]], {}, (False, "shape")),
        ([], [], {"check_error_stat": "max"}, (True, "")),
        (["a"], [1.0], {}, (False, "types: str against float64")),
        (["a", "b"], ["a", "c"], {"check_error_stat": "max"}, (False, "1 of 2 elements")),
        (["a"], ["a"], {"check_error_stat": "max"}, (True, "")),
    ],
)
def test_elements(base: Any, target: Any, tolerance: dict[str, Any], expected: tuple[bool, str]) -> None:
    assert judged(base, target, **tolerance) == expected


@pytest.mark.parametrize(
    ("base", "target", "tolerance", "expected"),
    [
        ([1.0, 1.0, 1.0], [1.0, 1.0, 2.0], {"check_error_stat": "median"}, (True, "")),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 2.0], {"check_error_stat": "mean", "atol": 0.4}, (True, "")),
        (
            [1.0, 1.0],
            [1.0, 1.3],
            {"check_error_stat": "max"},
            (False, "max abs 0.3 > 0.0001 and max rel 0.3 > 0.0001"),
        ),
        (
            [1.0, 1.0],
            [1.0, 2.0],
            {"check_error_stat": "quantile", "quantile": 0.9},
            (False, "quantile 0.9 abs 0.9 > 0.0001 and quantile 0.9 rel 0.9 > 0.0001"),
        ),
        # every element is within atol + rtol * |b|, but the largest error is within neither of the two
        (
            [1.0],
            [1.00015],
            {"check_error_stat": "max"},
            (False, "max abs 0.00015 > 0.0001 and max rel 0.00015 > 0.0001"),
        ),
        ([1e6], [1e6 + 1], {"check_error_stat": "max"}, (True, "")),
        ([1.0, 1.0, 1.0], [1.0, 1.0, NAN], {"check_error_stat": "median"}, (False, "NaN in the target")),
        ([1.0, 1.0, 1.0], [1.0, 1.0, INF], {"check_error_stat": "median"}, (False, "inf in the target")),
        ([NAN, 1.0], [NAN, 1.0], {"check_error_stat": "max", "equal_nan": True}, (True, "")),
        ([INF], [INF], {"check_error_stat": "mean"}, (True, "")),
        ([NAN], [NAN], {"check_error_stat": "mean"}, (False, "1 of 1 elements, NaN on both sides")),
    ],
)
def test_statistics(base: Any, target: Any, tolerance: dict[str, Any], expected: tuple[bool, str]) -> None:
    assert judged(base, target, **tolerance) == expected


def test_a_statistic_that_was_not_computed_does_not_pass() -> None:
    comparison = compare(np.zeros(2), np.zeros(2), Tolerance())
    assert verdict(comparison, Tolerance(check_error_stat="mean")) == (False, "mean was not computed")
