"""What a caller passes that cannot be meant: one of our errors that names the argument, before anything runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import raises_approved

from precision_debug import AssertClose, SaveBaseline, compare
from precision_debug.errors import BackendError, PrecisionDebugError, UsageError
from precision_debug.records import Tolerance

DIGITS = str(Path(__file__).resolve().parent.parent / "examples" / "digits" / "digits.onnx")


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, "x", True])
@pytest.mark.parametrize("name", ["atol", "rtol"])
def test_a_tolerance_that_fails_everything_or_nothing_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(UsageError, match=f"{name}: .*from 0 up"):
        AssertClose(SaveBaseline(), **{name: wrong})
    with pytest.raises(UsageError, match=f"{name}: .*from 0 up"):
        AssertClose(SaveBaseline(), tolerance=Tolerance(**{name: wrong}))
    with pytest.raises(UsageError, match=f"{name}: .*from 0 up"):
        compare(DIGITS, run_mode="ort_opt", tolerance=Tolerance(**{name: wrong}))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Tolerance(rule="close"), "tolerance_rule: 'close' is not one of isclose, either"),
        (Tolerance(check_error_stat="most"), "check_error_stat: 'most' is not one of"),
        (Tolerance(check_error_stat="quantile", quantile=2), "error_quantile: 2 is not from 0 to 1"),
        (1e-3, "tolerance: expects a Tolerance, got float"),
    ],
)
def test_a_tolerance_of_another_kind_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        AssertClose(SaveBaseline(), tolerance=wrong)
    with pytest.raises(UsageError, match=said):
        compare(DIGITS, run_mode="ort_opt", tolerance=wrong)


def test_a_target_needs_the_baselines_hook() -> None:
    with raises_approved(UsageError):
        AssertClose(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        (None, {}, "model: expects a path, got NoneType; name a file"), (5, {}, "model: expects a path, got int"),
        (b"m.onnx", {}, "model: expects a path, got bytes"),
        (DIGITS, {"baseline_model": 5}, "baseline_model: expects a path, got int"),
        (DIGITS, {"output": 5}, "output: expects a path, got int"),
        (DIGITS, {"output": ["r.json", None]}, "output: expects a path, got NoneType"),
        (DIGITS, {"output": ["r.json", "./r.json"]}, "is given as --output twice; keep one of them"),
        (DIGITS, {"inputs": 5}, "inputs: expects a path, or arrays by input name, got int"),
        (DIGITS, {"run_mode": None}, "--run_mode is missing"),
        (DIGITS, {"val_range": {"x": ("a", "b")}}, "val_range: 'a, b' is not a range of two finite numbers"),
        (DIGITS, {"val_range": (0, math.nan)}, "val_range: '0, nan' is not a range of two finite numbers"),
    ],
)  # fmt: skip
def test_compare_names_the_argument(model: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(PrecisionDebugError, match=said):
        compare(model, **{"run_mode": "ort_opt", **options})
    assert not list(Path().iterdir())


def test_an_object_whose_attributes_raise_is_no_array() -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"no {name}")

    base = SaveBaseline()
    with raises_approved(BackendError):
        base("op", "t", Broken())
    base("op", "u", np.ones(2))
    check = AssertClose(base, atol=0)
    check("op", "u", np.ones(2))
    assert check.report().exit_status == 0
