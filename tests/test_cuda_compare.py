"""``compare_on_device`` on CPU tensors, by torch's operators, against ``numbers.compare``."""

# ruff: noqa: E402

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from precision_debug import numbers
from precision_debug.errors import UsageError
from precision_debug.numbers.arrays import as_array
from precision_debug.numbers.merged import Merged
from precision_debug.products.device.torch_tensors import compare_on_device, start_on_device
from precision_debug.records import Comparison, Tolerance

CLOSE = {"mean": 2e-5, "cosine_distance": 1e-4}
SAMPLED = {"abs_p50", "abs_p90", "abs_p99", "abs_p999"}
KINDS = ("near", "edge", "bad", "nothing", "zero", "equal", "scaled", "huge", "masked", "opposite")
SHAPES = ((1,), (7,), (3, 5, 100), (130, 700))


def pair(kind: str, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any, Tolerance]:
    generator = torch.Generator().manual_seed(len(kind) * 1000 + shape[0])
    base = torch.randn(shape, generator=generator).to(dtype)
    other = torch.bfloat16 if dtype == torch.float32 else dtype
    target = (base.float() * (1 + 1e-3 * torch.randn(shape, generator=generator))).to(other)
    tolerance = Tolerance(atol=1e-3, rtol=1e-3)
    if kind == "edge":
        base, target, tolerance = torch.ones_like(base), torch.ones_like(target) + 2**-7, Tolerance(atol=0, rtol=2**-7)
    elif kind == "bad":
        base.view(-1)[::11], target.view(-1)[::7] = math.nan, math.inf
    elif kind == "nothing":
        base.fill_(math.nan)
    elif kind == "zero":
        base.zero_()
    elif kind == "equal":
        target = base.clone()
    elif kind == "masked":
        for mask in (base, target):
            mask.view(-1)[::3] = torch.finfo(dtype).min if shape[0] % 2 else -math.inf
    elif kind == "opposite":
        base.view(-1)[::5], target.view(-1)[::5], target.view(-1)[::2] = math.inf, -math.inf, math.nan
        tolerance = dataclasses.replace(tolerance, equal_nan=shape[0] % 2 == 0)
    elif kind == "scaled":
        target *= 5
    elif kind == "huge" and dtype != torch.float16:
        base, target = base * 1e25, target * 1e25
    return base, target, tolerance


def differences(got: Any, want: Any, size: int) -> list[str]:
    found = []
    for field in dataclasses.fields(want):
        one, two = getattr(got, field.name), getattr(want, field.name)
        if dataclasses.is_dataclass(two):
            found += differences(one, two, size)
        elif field.name == "quantiles_exact" or (field.name in SAMPLED and size >= 65536):
            continue
        elif isinstance(one, float) and isinstance(two, float):
            slack = 1e-13 if field.name == "cosine_distance" else 1e-6 if field.name == "sqnr_db" else 0.0
            if not (one == two or abs(one - two) <= CLOSE.get(field.name, 3e-6) * max(abs(one), abs(two)) + slack):
                found.append(f"{field.name}: {one} instead of {two}")
        elif one != two:
            found.append(f"{field.name}: {one} instead of {two}")
    return found


def check(kind: str, shape: tuple[int, ...], dtype: Any, rule: str) -> tuple[Comparison, list[str]]:
    base, target, tolerance = pair(kind, shape, dtype)
    tolerance = dataclasses.replace(tolerance, rule=rule)
    got = compare_on_device(base, target, tolerance)
    return got, differences(got, numbers.compare(as_array(base), as_array(target), tolerance), base.numel())


@pytest.mark.parametrize("rule", ["isclose", "either"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_are_those_of_the_core(kind: str, dtype: str, rule: str) -> None:
    for shape in SHAPES:
        assert check(kind, shape, getattr(torch, dtype), rule)[1] == [], shape


def test_sampled_quantiles_are_near_and_say_that_they_are() -> None:
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(1_500_000, generator=generator)
    target = base + 1e-3 * torch.randn(base.shape, generator=generator)
    found = compare_on_device(base, target)
    exact = torch.quantile((target.double() - base.double()).abs()[:1_000_000], torch.tensor([0.5, 0.9, 0.99]).double())
    assert not found.quantiles_exact
    for got, want in zip((found.abs_p50, found.abs_p90, found.abs_p99), exact.tolist(), strict=True):
        assert got == pytest.approx(want, rel=0.03)


def test_views_other_types_and_other_shapes_are_compared_too() -> None:
    base = torch.randn(40, 30)
    for one, two in (
        (base.t(), base.t() + 1e-3), (base[::2], base[::2] * 1.01), (base > 0, base > 1), (base.int(), base.int() + 1),
        (base, base[:5]), (base[:0], base[:0]), (base.to(torch.complex64), base.to(torch.complex64) * 1.1),
    ):  # fmt: skip
        got, want = compare_on_device(one, two), numbers.compare(as_array(one), as_array(two))
        assert differences(got, want, one.numel()) == []


def test_statistics_that_decide_are_the_cores() -> None:
    base, target, _ = pair("near", (130, 700), torch.float32)
    tolerance = Tolerance(check_error_stat="median")
    assert compare_on_device(base, target, tolerance) == numbers.compare(as_array(base), as_array(target), tolerance)


def test_a_tolerance_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError):
        compare_on_device(torch.ones(3), torch.ones(3), Tolerance(atol=-1.0))


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_complex32_keeps_both_parts() -> None:
    base = torch.tensor([[1 + 2j, 3 - 4j], [0.5 + 0j, -1 - 1j]]).to(torch.complex32)
    target = torch.tensor([[1 + 9j, 3 - 4j], [0.5 + 0j, -1 - 1j]]).to(torch.complex32)
    np.testing.assert_array_equal(as_array(target), np.array([[1 + 9j, 3 - 4j], [0.5, -1 - 1j]], np.complex64))
    np.testing.assert_array_equal(as_array(target.t().conj()), as_array(target).T.conj())
    assert as_array(target[0, 0]).shape == ()
    for one, other in ((base, target), (base.t(), target.t()), (base, target.to(torch.complex64))):
        got = compare_on_device(one, other)
        assert got == numbers.compare(as_array(one), as_array(other))
        assert got.max_abs == 7
        assert got.mismatched == 1
    assert compare_on_device(target, target).base.max == pytest.approx(abs(1 + 9j), rel=1e-6)


@pytest.mark.parametrize("shape", [(3, 5, 100), (130, 700)])
@pytest.mark.parametrize("kind", ["near", "bad", "huge", "zero"])
def test_totals_of_a_device_merge_with_the_hosts(kind: str, shape: tuple[int, ...]) -> None:
    base, target, tolerance = pair(kind, shape, torch.float32)
    there = start_on_device(base, target, tolerance, totals=True).finish()
    here = numbers.measure(as_array(base), as_array(target), tolerance)
    both = Merged.merge(Merged.of(there, 0), Merged.of(here, 1)).comparison()
    twice = Merged.merge(Merged.of(here, 0), Merged.of(here, 1)).comparison()
    slack = {name: getattr(twice, name) for name in SAMPLED} if base.numel() >= 65536 else {}
    assert differences(dataclasses.replace(both, **slack), twice, 1) == []
    for name in SAMPLED:
        one, other = getattr(both, name), getattr(twice, name)
        assert one == other or one == pytest.approx(other, rel=0.125), name
