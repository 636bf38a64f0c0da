"""The compiled pass gives numpy's results, says why where it cannot run, and is built by the hook."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from absent import without
from approval import holds_approved, is_approved
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_debug.errors import UsageError
from precision_debug.numbers import compare, describe, describe_kernel, native
from precision_debug.records import Comparison, TensorStats, Tolerance

needs_kernel = pytest.mark.skipif(native.load() is None, reason=f"no compiled kernel here: {describe_kernel()}")
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler on PATH")

TYPES = {
    np.dtype(kind).name: np.dtype(kind)
    for kind in (
        *(np.float32, np.float64, np.float16, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.bool_),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4),
    )
}
SIZES = [0, 1, 7, 8, 9, 1023, 1024, 1025, 4096 + 5, 65535, 65536, 70_001]


@pytest.fixture
def fresh() -> Iterator[None]:
    """The kernel is looked for again, before and after."""
    native._open.cache_clear()
    yield
    native._open.cache_clear()


def in_numpy(monkeypatch: pytest.MonkeyPatch, call: Any, *arguments: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(native, "load", lambda: None)
        return call(*arguments)


def random(rng: np.random.Generator, dtype: np.dtype[Any], size: int, specials: str) -> np.ndarray:
    """Values over the whole range of a type, with NaN, infinities, zeros and subnormals in the places asked for."""
    if dtype.kind in "iu" and dtype.type.__module__ == "numpy":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, size, dtype=dtype, endpoint=True)
    if dtype == np.bool_:
        return rng.integers(0, 2, size).astype(bool)
    if dtype.name.endswith("int4"):
        return rng.integers(-8 if dtype.name == "int4" else 0, 8, size).astype(np.int8).astype(dtype)
    values = rng.standard_normal(size) * 10.0 ** rng.integers(-6, 6, size)
    values[rng.random(size) < 0.05] = 0
    if specials != "none":
        values[rng.random(size) < 0.05] = 1e-41
        chosen = rng.random(size) < (0.001 if specials == "few" else 0.3)
        values[chosen] = rng.choice([np.nan, np.inf, -np.inf], size)[chosen]
    with np.errstate(all="ignore"):
        return values.astype(np.float32).astype(dtype) if dtype.itemsize < 8 else values.astype(dtype)


def alike(got: Any, expected: Any, scale: float = 0.0) -> bool:
    """Equal, or two sums of the same numbers in another order."""
    if isinstance(got, float) and isinstance(expected, float):
        return got == expected or math.isclose(got, expected, rel_tol=1e-12, abs_tol=1e-12 * scale)
    return bool(got == expected)


SUMS = {"mean_abs", "mean_rel", "rmse"}
ROUNDED = {"cosine_distance": 1e-12, "sqnr_db": 1e-9}


def assert_stats_alike(got: TensorStats, expected: TensorStats) -> None:
    for field in dataclasses.fields(TensorStats):
        mine, other = getattr(got, field.name), getattr(expected, field.name)
        if field.name in ("mean", "rms"):
            assert alike(mine, other, expected.rms or 0.0), field.name
        else:
            assert mine == other, field.name


def assert_alike(got: Comparison, expected: Comparison) -> None:
    assert_stats_alike(got.base, expected.base)
    assert_stats_alike(got.target, expected.target)
    for field in dataclasses.fields(Comparison):
        mine, other = getattr(got, field.name), getattr(expected, field.name)
        if field.name in ("base", "target"):
            continue
        if field.name in SUMS:
            assert alike(mine, other), field.name
        elif field.name in ROUNDED and mine is not None and other is not None and math.isfinite(other):
            assert mine == pytest.approx(other, rel=1e-6, abs=ROUNDED[field.name]), field.name
        else:
            assert mine == other, field.name


@needs_kernel
@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from(SIZES),
    types=st.tuples(st.sampled_from(sorted(TYPES)), st.sampled_from(sorted(TYPES))) | st.just(("float32", "float32")),
    specials=st.sampled_from(["none", "few", "many"]),
    relation=st.sampled_from(["unrelated", "near", "mostly equal", "equal"]),
    tolerance=st.builds(
        Tolerance,
        atol=st.sampled_from([0.0, 1e-4, 1.0]),
        rtol=st.sampled_from([0.0, 1e-4, 1.0]),
        rule=st.sampled_from(["isclose", "either"]),
        equal_nan=st.booleans(),
    ),
)
@settings(max_examples=400, deadline=None)
def test_the_kernel_gives_the_numbers_of_numpy(
    seed: int, size: int, types: tuple[str, str], specials: str, relation: str, tolerance: Tolerance
) -> None:
    rng = np.random.default_rng(seed)
    base_type, target_type = TYPES[types[0]], TYPES[types[1]]
    base = random(rng, base_type, size, specials)
    if relation == "unrelated":
        target = random(rng, target_type, size, specials)
    else:
        with np.errstate(all="ignore"):
            target = base.astype(np.float64).astype(np.float32).astype(target_type)
        target = base.copy() if base_type == target_type else target
        share = {"near": 0.9, "mostly equal": 0.0005, "equal": 0.0}[relation]
        chosen = rng.random(size) < share
        target[chosen] = random(rng, target_type, size, specials)[chosen]
    with pytest.MonkeyPatch.context() as patch:
        expected = in_numpy(patch, compare, base, target, tolerance)
        side = in_numpy(patch, describe, target)
    assert_alike(compare(base, target, tolerance), expected)
    assert_stats_alike(describe(target), side)


@needs_kernel
@pytest.mark.parametrize("rule", ["isclose", "either"])
@pytest.mark.parametrize("rtol", [0.0, 1e-4, 1e-3, 0.1])
def test_decisions_at_the_boundary_are_those_of_float64(rule: str, rtol: float) -> None:
    rng = np.random.default_rng(7)
    base = rng.standard_normal(100_000).astype(np.float32)
    atol = float(np.float32(1e-4))
    bound = atol + rtol * np.abs(base.astype(np.float64)) if rule == "isclose" else np.full(base.shape, atol)
    target = (base + bound).astype(np.float32)
    beside = np.nextafter(target, rng.choice([-9, 9], base.size).astype(np.float32))
    target = np.where(rng.random(base.size) < 0.5, target, beside)
    diff, part = np.abs(target.astype(np.float64) - base), rtol * np.abs(base.astype(np.float64))
    passed = diff <= atol + part if rule == "isclose" else (diff <= atol) | (diff <= part)
    got = compare(base, target, Tolerance(atol=atol, rtol=rtol, rule=rule))
    assert 0 < got.mismatched < base.size
    assert got.mismatched == np.count_nonzero(~passed)
    assert got.first_mismatch == (int(np.argmax(~passed)),)
    # and with the very error of one element as the tolerance, on both sides of equality
    error = float(diff[1234])
    assert compare(base[1234:1235], target[1234:1235], Tolerance(atol=error, rtol=0)).mismatched == 0
    assert compare(base[1234:1235], target[1234:1235], Tolerance(atol=math.nextafter(error, 0), rtol=0)).mismatched == 1


@needs_kernel
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    base = rng.standard_normal((3, 700_003)).astype(np.float32)
    target = base.copy()
    target[1, 5:] += np.float32(1e-3) * rng.standard_normal(700_003 - 5).astype(np.float32)
    target[2, 17], base[2, 18] = np.nan, np.inf
    expected = in_numpy(monkeypatch, compare, base, target, Tolerance())
    monkeypatch.setattr(native, "count_available_cores", lambda: threads)
    assert_alike(compare(base, target, Tolerance()), expected)
    flipped = base[:, ::-1], target[:, ::-1]
    assert_alike(compare(*flipped, Tolerance()), in_numpy(monkeypatch, compare, *flipped, Tolerance()))


@needs_kernel
def test_an_error_in_a_thread_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "count_available_cores", lambda: 3)
    monkeypatch.setattr(native._Call, "span", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        compare(np.zeros(2_000_000, np.float32), np.ones(2_000_000, np.float32), Tolerance())


@needs_kernel
def test_sums_keep_float64s_accuracy() -> None:
    rng = np.random.default_rng(5)
    base = rng.standard_normal(5_000_000).astype(np.float32)
    target = base + (1e-4 * rng.standard_normal(base.size)).astype(np.float32)
    b, t = base.astype(np.longdouble), target.astype(np.longdouble)
    diff = np.abs(t - b)
    got = compare(base, target, Tolerance())
    assert got.mean_abs == pytest.approx(float(diff.mean()), rel=1e-13)
    assert got.rmse == pytest.approx(float(np.sqrt(np.square(diff).mean())), rel=1e-13)
    assert got.cosine_distance == pytest.approx(float(1 - (b @ t) / np.sqrt((b @ b) * (t @ t))), rel=1e-7)
    assert got.base.mean == pytest.approx(float(b.mean()), abs=1e-13)


@needs_kernel
@pytest.mark.parametrize("rule", ["isclose", "either"])
def test_errors_beyond_float64_are_alike(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base, target = np.full(20, 1.7e308), np.full(20, -1.7e308)
    base[3], target[5], base[7], target[7] = np.inf, 0.0, 1e-300, 1e-300
    for rtol in (0.0, 1.0, 2.0):
        tolerance = Tolerance(atol=0, rtol=rtol, rule=rule)
        assert_alike(compare(base, target, tolerance), in_numpy(monkeypatch, compare, base, target, tolerance))


def test_unaligned_and_read_only_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = np.frombuffer(b"x" + np.arange(4000, dtype=np.float32).tobytes(), dtype=np.uint8)
    unaligned = raw[1:].view(np.float32)
    assert not unaligned.flags.aligned
    got = compare(unaligned, unaligned + np.float32(1), Tolerance())
    assert (got.max_abs, got.base.max, got.mismatched) == (1.0, 3999.0, 4000)


def test_the_status_says_which_pass_runs(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECISION_DEBUG_KERNEL", "numpy")
    assert describe_kernel() == "numpy blocks: PRECISION_DEBUG_KERNEL=numpy"
    assert native.load() is None
    assert compare(np.zeros(3, np.float32), np.ones(3, np.float32), Tolerance()).mismatched == 3


def test_an_unknown_kernel_is_refused(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECISION_DEBUG_KERNEL", "cuda")
    with pytest.raises(UsageError, match="PRECISION_DEBUG_KERNEL"):
        describe_kernel()


def test_no_library_is_said(fresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PRECISION_DEBUG_KERNEL", raising=False)
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "_kernel.so")
    assert is_approved(describe_kernel())
    (tmp_path / "_kernel.so").write_bytes(b"no library")
    assert "does not load" in kernel_status_again()


def kernel_status_again() -> str:
    native._open.cache_clear()
    return describe_kernel()


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    """A copy of what the wheel is built from, without a library."""
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        if (root / name).exists():
            shutil.copy2(root / name, tmp_path / name)
    for name in ("precision_debug", "backends"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return tmp_path


def hook(tree: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build_under_test", tree / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_compiler
def test_a_built_library_belongs_to_its_sources_only(
    fresh: None, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled by hand, which needs no hatchling."""
    monkeypatch.delenv("PRECISION_DEBUG_KERNEL", raising=False)
    environment = {**os.environ, "PYTHONPATH": str(without("hatchling", folder=tmp_path / "without"))}
    done = subprocess.run(
        [sys.executable, "hatch_build.py"], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    library = tree / "precision_debug" / "numbers" / "_kernel.so"
    assert library.exists()
    monkeypatch.setattr(native, "LIBRARY", library)
    assert describe_kernel().startswith("C kernel, ")
    source = library.with_name("kernel.c")
    source.write_text(source.read_text() + "\n/* changed */\n")
    assert holds_approved(kernel_status_again())


@needs_compiler
def test_the_plain_version_gives_the_same_numbers(fresh: None, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compiler without several versions of one function makes of the sources."""
    module = hook(tree)
    monkeypatch.setattr(module, "LIBRARIES", [module.LIBRARIES[0]._replace(variants=(("-DPLAIN",),))])
    assert module.build(tree) == ""
    rng = np.random.default_rng(11)
    for dtype in (np.float32, np.float16, np.float64, np.int8):
        base, target = random(rng, np.dtype(dtype), 9000, "few"), random(rng, np.dtype(dtype), 9000, "few")
        expected = in_numpy(monkeypatch, compare, base, target, Tolerance())
        with monkeypatch.context() as patch:
            patch.setattr(native, "LIBRARY", tree / "precision_debug" / "numbers" / "_kernel.so")
            native._open.cache_clear()
            assert native.load() is not None
            assert_alike(compare(base, target, Tolerance()), expected)


def test_without_a_compiler_nothing_fails(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = hook(tree)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tree))
    assert is_approved(module.build(tree))
    monkeypatch.setenv("CC", str(tree / "no-such-compiler"))
    assert "no-such-compiler" in module.build(tree)
    monkeypatch.setenv("CC", sys.executable)
    assert module.build(tree) != ""
    assert not (tree / "precision_debug" / "numbers" / "_kernel.so").exists()


@pytest.mark.parametrize("compiler", [True, False])
def test_wheels(tree: Path, compiler: bool, tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    if compiler and not shutil.which("cc"):
        pytest.skip("no C compiler on PATH")
    if "hooks.custom" not in (tree / "pyproject.toml").read_text():
        pytest.fail("pyproject.toml does not name the build hook: [tool.hatch.build.hooks.custom]")
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "PYTHONPATH")}
    environment |= {} if compiler else {"PATH": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"], cwd=tree, env=environment, check=True
    )
    [wheel] = (tree / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for library in ("precision_debug/numbers/_kernel.so", "precision_debug_onnxruntime/_tap.so"):
        assert (library in names) is compiler
    assert {"precision_debug/numbers/kernel.c", "precision_debug/numbers/kernel_core.h"} <= set(names)
    assert wheel.name.endswith("-py3-none-any.whl") is not compiler
    if compiler and platform.libc_ver()[0] == "glibc" and platform.machine() in {"x86_64", "aarch64"}:
        tag = re.search(r"-py3-none-manylinux_2_(\d+)_(x86_64|aarch64)\.whl$", wheel.name)
        assert tag is not None
        assert int(tag[1]) <= 28, "what the libraries call is in every glibc since"


def test_a_wheel_whose_libraries_need_more_than_glibc_is_for_this_machine_alone(tree: Path, tmp_path: Path) -> None:
    module, own = hook(tree), sysconfig.get_platform().replace("-", "_").replace(".", "_")
    for content in (b"\0libc.so.6\0libgomp.so.1\0GLIBC_2.14\0", b"\0libc.musl-x86_64.so.1\0", b""):
        library = tmp_path / "one.so"
        library.write_bytes(content)
        assert module.platform_of([library]) == own
    library.write_bytes(b"\0libc.so.6\0libm.so.6\0GLIBC_2.2.5\0GLIBC_2.34\0")
    if own in {"linux_x86_64", "linux_aarch64"}:
        assert module.platform_of([library]) == own.replace("linux", "manylinux_2_34")
