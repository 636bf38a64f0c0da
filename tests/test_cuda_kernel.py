"""The CUDA kernels' numbers against the core's: their own text, compiled for this processor, and its PTX."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shutil
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_emulated import EmulatedDevice

from precision_debug import numbers
from precision_debug.errors import BackendError, UsageError
from precision_debug.numbers.merged import Merged
from precision_debug.products.device import answer, kernels, ptx
from precision_debug.products.device.kernels import FIELDS, start, start_describing
from precision_debug.records import Comparison, Tolerance

Array = np.ndarray[Any, Any]
FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64}
PAIRS = [tuple(pair.split("_")) for pair in ptx.PAIRS]
PAIRS_OF_WHOLE = [(np.int8, np.int8), (np.uint8, np.int32), (np.int32, np.int32), (np.int64, np.int64)]
KINDS = ("near", "edge", "bad", "nothing", "zero", "equal", "scaled", "huge", "masked", "tiny", "beyond")
SIZES = (1, 7, 1500, 91000)
CLOSE = {"cosine_distance": 1e-4}
SAMPLED = {"abs_p50", "abs_p90", "abs_p99", "abs_p999"}


@pytest.fixture(scope="module")
def gpu() -> EmulatedDevice:
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    return EmulatedDevice()


def pair(kind: str, size: int, first: Any, second: Any) -> tuple[Array, Array, Tolerance]:
    """Two arrays of these types, and a tolerance."""
    random = np.random.default_rng(len(kind) * 1000 + size)
    values = random.standard_normal(size).astype(first).astype(np.float64)
    others = values * (1 + 1e-3 * random.standard_normal(size))
    tolerance = Tolerance(atol=1e-3, rtol=1e-3)
    if kind == "edge":
        values, others, tolerance = np.ones(size), np.full(size, 1 + 2**-7), Tolerance(atol=0, rtol=2**-7)
    elif kind == "bad":
        values[::11], others[::7], others[5:6] = math.nan, math.inf, -math.inf
    elif kind == "nothing":
        values[:] = math.nan
    elif kind == "zero":
        values[:] = 0
    elif kind == "equal":
        others = values
    elif kind == "masked":
        values[::3] = others[::3] = -math.inf
    elif kind == "scaled":
        others = others * 5
    elif kind in ("huge", "tiny"):
        factor = {"huge": 1e25, "tiny": 1e-30}[kind] if np.dtype(first) != np.float16 else 1.0
        values, others = values * factor, others * factor
    elif kind == "beyond":
        values[::50], others[::50] = 65504.0, 65504.0
        values[3::500] = 70000.0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return values.astype(first), others.astype(first).astype(second), tolerance


def differences(got: Any, want: Any, size: int) -> list[str]:
    """What differs beyond the bounds that products.device.kernels states."""
    found = []
    for field in dataclasses.fields(want):
        one, two = getattr(got, field.name), getattr(want, field.name)
        if dataclasses.is_dataclass(two):
            found += differences(one, two, size)
        elif field.name == "quantiles_exact" or (field.name in SAMPLED and size >= 65536):
            continue
        elif isinstance(one, float) and isinstance(two, float):
            slack = 2e-5 if field.name == "sqnr_db" else 0.0
            if field.name == "required_atol":
                slack = 3e-7 * (want.max_abs or 0)
            if field.name == "cosine_distance":
                slack = 4e-7 * abs((want.target.rms or 0) / (want.base.rms or 1) - 1) + 1e-13
            slack = 4e-6 * (want.rms or 0) if field.name == "mean" else slack
            near = abs(one - two) <= CLOSE.get(field.name, 4e-6) * max(abs(one), abs(two)) + slack
            if not (one == two or near or (math.isnan(one) and math.isnan(two))):
                found.append(f"{field.name}: {one} instead of {two}")
        elif one != two:
            found.append(f"{field.name}: {one} instead of {two}")
    return found


def check(gpu: EmulatedDevice, base: Array, target: Array, tolerance: Tolerance, skew: int = 0) -> list[str]:
    got = start(gpu.array(base, skew), gpu.array(target), tolerance).finish()
    return differences(got, numbers.compare(base, target, tolerance), base.size)


@pytest.mark.parametrize("rule", ["isclose", "either"])
@pytest.mark.parametrize("types", PAIRS, ids="-".join)
def test_the_scan_says_what_the_core_says(gpu: EmulatedDevice, types: tuple[str, str], rule: str) -> None:
    first, second = (FLOATS[name] for name in types)
    for kind, size in itertools.product(KINDS, SIZES):
        base, target, tolerance = pair(kind, size, first, second)
        tolerance = dataclasses.replace(tolerance, rule=rule, equal_nan=size % 2 == 0)
        gpu.launched.clear()
        assert check(gpu, base, target, tolerance) == [], (kind, size)
        assert gpu.launched == [f"scan_{'_'.join(types)}_{rule}", "settle", "exact"]


def test_random_pairs(gpu: EmulatedDevice) -> None:
    """Sizes, scales, tolerances and what is planted by chance."""
    random = np.random.default_rng(7)
    for number in range(400):
        first, second = (FLOATS[name] for name in PAIRS[number % len(PAIRS)])
        size = int(10 ** random.uniform(0, 4.2))
        base, target, _ = pair("near", size, first, second)
        scale = 10.0 ** random.uniform(-4, 4)
        with np.errstate(all="ignore"):
            base, target = (
                (base.astype(np.float32) * scale).astype(first),
                (target.astype(np.float32) * scale).astype(second),
            )
        for _ in range(int(random.integers(0, 3))):
            at, value = int(random.integers(size)), random.choice([0.0, math.nan, math.inf, -math.inf, 1.0, 6e-5])
            (base if random.random() < 0.5 else target)[at] = value
        atol, rtol = (float(random.choice([0.0, 10.0 ** random.uniform(-7, 1)])) for _ in range(2))
        tolerance = Tolerance(atol=atol, rtol=rtol, rule=str(random.choice(["isclose", "either"])))
        assert check(gpu, base, target, tolerance) == [], (number, size, scale, tolerance)


@pytest.mark.parametrize("kind", ["near", "bad", "equal"])
def test_other_types_and_odd_places_are_read_in_float64(gpu: EmulatedDevice, kind: str) -> None:
    for size in (1, 700, 70001):
        for first, second in ((np.float64, np.float32), (np.float64, np.float64), (np.float16, np.float32)):
            base, target, tolerance = pair(kind, size, first, second)
            gpu.launched.clear()
            assert check(gpu, base, target, tolerance) == [], (size, first, second)
            assert gpu.launched == ["exact", "settle"]
        base, target, tolerance = pair(kind, size, np.float32, np.float32)
        assert check(gpu, base, target, tolerance, skew=4) == [], size


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"])
def test_whole_numbers(gpu: EmulatedDevice, kind: str) -> None:
    random = np.random.default_rng(1)
    base = random.integers(0, 100, (70, 9)).astype(kind)
    target = base.copy()
    target[3, :4] = base[3, :4] != 1 if kind == "bool" else base[3, :4] + 1
    assert check(gpu, base, target, Tolerance(atol=0.5)) == []
    assert check(gpu, base, base, Tolerance()) == []


def test_what_float64_does_not_hold_is_the_hosts(gpu: EmulatedDevice) -> None:
    base = np.array([2**53, 2**53 + 1, 5], np.int64)
    assert check(gpu, base, base + 1, Tolerance(atol=0.5, rtol=0)) == []
    big = np.full(100, 1e200)
    assert check(gpu, big, big * 1.001, Tolerance()) == []


def test_shapes_that_differ_nothing_and_other_statistics(gpu: EmulatedDevice) -> None:
    base = np.ones((3, 4), np.float32)
    assert check(gpu, base, base[:2], Tolerance()) == []
    assert check(gpu, base[:0], base[:0], Tolerance()) == []
    assert check(gpu, base, base * 2, Tolerance(check_error_stat="median")) == []
    with pytest.raises(UsageError):
        start(gpu.array(base), gpu.array(base), Tolerance(atol=-1.0))


@pytest.mark.parametrize("kind", ["near", "bad", "huge"])
def test_one_array_by_itself(gpu: EmulatedDevice, kind: str) -> None:
    for name, first in FLOATS.items():
        base, _, _ = pair(kind, 5000, first, first)
        got = start_describing(gpu.array(base)).finish().base
        assert differences(got, numbers.describe(base), base.size) == [], name


@pytest.mark.parametrize("size", [1500, 91000])
@pytest.mark.parametrize("kind", ["near", "bad", "zero"])
def test_totals_merge_with_the_hosts(gpu: EmulatedDevice, kind: str, size: int) -> None:
    base, target, tolerance = pair(kind, size, np.float32, np.float32)
    there = start(gpu.array(base), gpu.array(target), tolerance, totals=True).finish()
    here = numbers.measure(base, target, tolerance)
    both = Merged.merge(Merged.of(there, 0), Merged.of(here, 1)).comparison()
    twice = Merged.merge(Merged.of(here, 0), Merged.of(here, 1)).comparison()
    slack = {name: getattr(twice, name) for name in SAMPLED} if size >= 65536 else {}
    assert differences(dataclasses.replace(both, **slack), twice, 1) == []
    for name in SAMPLED:
        one, other = getattr(both, name), getattr(twice, name)
        assert one == other or one == pytest.approx(other, rel=0.125), name


def test_sampled_quantiles(gpu: EmulatedDevice) -> None:
    random = np.random.default_rng(0)
    base = random.standard_normal(1_500_000).astype(np.float32)
    target = base + 1e-3 * random.standard_normal(base.shape).astype(np.float32)
    found = start(gpu.array(base), gpu.array(target)).finish()
    exact = np.quantile(np.abs(target.astype(np.float64) - base), [0.5, 0.9, 0.99])
    assert not found.quantiles_exact
    for got, want in zip((found.abs_p50, found.abs_p90, found.abs_p99), exact, strict=True):
        assert got == pytest.approx(want, rel=0.03)


def test_what_is_left_between_two_calls_does_not_show(gpu: EmulatedDevice) -> None:
    base, target, tolerance = pair("near", 91000, np.float32, np.float32)

    def once() -> Comparison:
        return start(gpu.array(base), gpu.array(target), tolerance).finish()

    first = once()
    bad, worse, _ = pair("bad", 91000, np.float32, np.float32)
    start(gpu.array(bad), gpu.array(worse), tolerance).finish()
    assert once() == first


def test_what_nobody_reads_is_given_back(gpu: EmulatedDevice) -> None:
    base, target, tolerance = pair("near", 700, np.float32, np.float32)
    start(gpu.array(base), gpu.array(target), tolerance).finish()
    free = {key: len(kept) for key, kept in answer._free.items()}
    for _ in range(5):
        start(gpu.array(base), gpu.array(target), tolerance)
    assert {key: len(kept) for key, kept in answer._free.items()} == free


def test_the_archive_is_of_these_sources() -> None:
    """After a change: pip install nvidia-cuda-nvrtc-cu12==12.8.93; python -m precision_debug.products.device.ptx."""
    for name, capability in (("settle", 90), ("exact", 70), ("scan_f16_f16_isclose", 75), ("scan_f32_bf16_either", 86)):
        *code, text = ptx.load_kernel_code(name, capability)[1]
        assert name.encode() in text
        assert text.startswith(b".version 7.0\n"), "drivers of CUDA 11.0 read it"
        assert [one[:4] for one in code] == [b"\x7fELF"] * (capability >= 80)
        assert all(name.encode() in one for one in code)
    with pytest.raises(BackendError, match=r"7\.0"):
        ptx.load_kernel_code("settle", 61)


def test_the_archive_is_what_the_compiler_makes_of_them() -> None:
    pytest.importorskip("nvidia.cuda_nvrtc", reason="nvidia-cuda-nvrtc-cu12 is not installed")
    for member, content in ptx.compile_modules(("common",)).items():
        assert ptx._read_member(member) == content, member


def test_an_archive_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*ptx.SOURCES, ptx.ARCHIVE.name):
        there = tmp_path / "products" / "device" / name
        there.parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "numbers").mkdir(exist_ok=True)
        shutil.copy2(ptx.ARCHIVE.parent / name, there)
    monkeypatch.setattr(ptx, "ARCHIVE", tmp_path / "products" / "device" / ptx.ARCHIVE.name)
    ptx._read_member.cache_clear()
    assert list(ptx.load_kernel_code("settle", 90)[1])
    with (tmp_path / "products" / "device" / "scan.h").open("a", encoding="utf-8") as file:
        file.write("/* touched */\n")
    ptx._read_member.cache_clear()
    with pytest.raises(BackendError, match="other sources"):
        list(ptx.load_kernel_code("settle", 90)[1])
    monkeypatch.undo()
    ptx._read_member.cache_clear()


def test_python_names_the_fields_in_the_kernels_order() -> None:
    text = (ptx.ARCHIVE.parent / "device.h").read_text(encoding="utf-8")
    import re

    from precision_debug.numbers.metrics import DECLARED

    lists = {name: re.findall(r"F\((\w+)\)", text.partition(f"#define {name}(F)")[2].partition("\n#define")[0])
             for name in ("SUMS", "LEAST", "MOST", "PLACES")}  # fmt: skip
    declared = [metric.name for metric in DECLARED]
    assert [*lists["SUMS"], *declared, *lists["LEAST"], *lists["MOST"], *lists["PLACES"], "exact"] == list(FIELDS)
    assert kernels.BUCKETS == 1 << (31 - 18)


def test_without_a_card_it_says_why() -> None:
    if (why := kernels.explain_unavailable()) == "":
        pytest.skip("a card is here")
    assert "libcuda" in why or "CUDA" in why
