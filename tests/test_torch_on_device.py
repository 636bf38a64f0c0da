"""Comparisons where the tensors are: the same table as the host's, nothing lost, nothing read after it was overwritten.

On this machine "the device" is the CPU, with torch tensors going the road that CUDA tensors go.
"""

# ruff: noqa: E402

from __future__ import annotations

import dataclasses
import itertools
import weakref
from pathlib import Path
from typing import Any

import pytest
from approval import raises_approved

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch_models
from precision_debug_torch import make as building
from precision_debug_torch.live import compare_module
from precision_debug_torch.on_device import DeviceComparer, Elements

import precision_debug
from precision_debug import numbers
from precision_debug.cli import main
from precision_debug.errors import UsageError
from precision_debug.products.device import torch_tensors
from precision_debug.records import Comparison, Row, TensorStats, Tolerance

pytestmark = pytest.mark.engine("torch")

MODELS = Path(torch_models.__file__)
EXACT = ("mismatched", "first_mismatch", "max_abs", "max_abs_index", "max_rel_index", "identical", "shapes_match")
NEAR = ("rmse", "mean_abs", "mean_rel", "sqnr_db", "cosine_distance", "abs_p50", "required_atol")


def assert_same(ours: tuple[Row, ...], theirs: tuple[Row, ...]) -> None:
    assert [row.name for row in ours] == [row.name for row in theirs]
    for one, other in zip(ours, theirs, strict=True):
        bare = {"comparison": None, "base": None, "target": None, "error_growth": None, "introduced": None}
        assert dataclasses.replace(one, **bare) == dataclasses.replace(other, **bare)
        assert added(one) == pytest.approx(added(other), rel=1e-6, abs=1e-12), one.name
        assert stats(one.base) == stats(other.base)
        assert stats(one.target) == stats(other.target)
        if one.comparison is None or other.comparison is None:
            assert one.comparison is other.comparison is None
            continue
        for name in EXACT:
            assert getattr(one.comparison, name) == getattr(other.comparison, name), (one.name, name)
        for name in NEAR:
            mine, other_one = getattr(one.comparison, name), getattr(other.comparison, name)
            assert mine == other_one or mine == pytest.approx(other_one, rel=1e-6, abs=1e-12), (one.name, name)
        assert one.comparison.base.shape == other.comparison.base.shape


def added(row: Row) -> dict[str, Any]:
    """What the operator added itself, in numbers: a device's sums have an order of their own."""
    found = {} if row.introduced is None else dataclasses.asdict(row.introduced)
    return {name: value for name, value in found.items() if isinstance(value, (int, float))}


def stats(of: TensorStats | None) -> Any:
    if of is None:
        return None
    return of.dtype, of.shape, of.elements, of.min, of.max, of.nan, of.inf, None if of.rms is None else round(of.rms, 6)


@pytest.mark.parametrize("factory", ["resnet", "encoder", "decoder", "odd"])
@pytest.mark.parametrize("level", ["op", "module"])
def test_lockstep_on_the_device_says_what_the_host_says(factory: str, level: str) -> None:
    tables = []
    for where in ("device", "host"):
        module, inputs = getattr(torch_models, factory)()
        rows: list[Row] = []
        report = compare_module(
            module, inputs, run_mode="torch_bf16", level=level, device="cpu", compare_on=where, on_row=rows.append
        )
        assert len(rows) >= sum(row.comparison is not None for row in report.rows) > 3
        tables.append(report.rows)
    assert_same(*tables)


@pytest.mark.parametrize("together", ["--lockstep", "--lockstep=off"])
def test_the_command_compares_on_the_device(together: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[DeviceComparer] = []
    started = DeviceComparer.compare

    def compare(self: DeviceComparer, *args: Any) -> None:
        used.append(self)
        started(self, *args)

    monkeypatch.setattr(DeviceComparer, "compare", compare)
    given = {"run_mode": "torch_bf16", "device": "cpu"}
    on = {"on": None, "off": False}["off" if together.endswith("off") else "on"]
    report = precision_debug.compare(f"{MODELS}:decoder", **given, compare_on="device", lockstep=on)  # type: ignore[arg-type]
    assert used, "one after the other too: what waited in the host's memory is moved there"
    host = precision_debug.compare(f"{MODELS}:decoder", **given, compare_on="host", lockstep=on)  # type: ignore[arg-type]
    assert_same(report.rows, host.rows)
    command = ["--model_file", f"{MODELS}:decoder", "--run_mode", "torch_bf16", "--device", "cpu", together]
    command += ["--option", "compare_on=device", "--atol", "1", "--quiet", "--output", str(tmp_path / "out.csv")]
    assert main(command) == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == len(report.rows) + 1


def test_a_wrong_place_is_refused() -> None:
    with raises_approved(UsageError):
        compare_module(*torch_models.encoder(), run_mode="torch_bf16", device="cpu", compare_on="gpu")


class Late:
    """A started comparison whose result is never there by itself."""

    def __init__(self, work: Any, ready: bool = False) -> None:
        self.work, self.ready = work, ready

    def finish(self) -> Any:
        return self.work()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are computed from the tensors when they are asked for, like float64's on a GPU."""

    def start(base: Any, target: Any, tolerance: Tolerance, totals: bool = False) -> Late:
        return Late(lambda: numbers.compare(base.float().numpy(), target.float().numpy(), tolerance))

    monkeypatch.setattr(torch_tensors, "start_on_device", start)
    describe = lambda value: Late(lambda: numbers.describe(value.numpy()))  # noqa: E731
    monkeypatch.setattr(torch_tensors, "start_describing", describe)


@pytest.mark.usefixtures("late")
def test_nothing_is_read_after_it_was_overwritten() -> None:
    module, inputs = torch_models.resnet()  # relu_ and += write into what was shown before
    rows = compare_module(module, inputs, run_mode="torch_bf16", device="cpu", compare_on="device").rows
    plain = compare_module(module, inputs, run_mode="torch_bf16", device="cpu", compare_on="host").rows
    assert sum(row.comparison is not None for row in plain) > 40
    for one, other in zip(rows, plain, strict=True):
        assert (one.comparison is None) == (other.comparison is None)
        if one.comparison is None or other.comparison is None:
            continue
        assert one.comparison.max_abs == other.comparison.max_abs, one.name
        assert one.comparison.base.min == other.comparison.base.min, one.name


@pytest.mark.usefixtures("late")
def test_results_come_in_order_and_hold_little() -> None:
    comparer = DeviceComparer(hold=100 * 4 * 2 * 3)
    found: list[Any] = []
    for number in range(5):
        comparer.compare(torch.zeros(100), torch.full((100,), float(number)), Tolerance(), found.append)
    assert [one.max_abs for one in found] == [0.0, 1.0], "three pairs are held"
    comparer.describe(torch.full((3,), 7.0), found.append)
    comparer.settle()
    assert [one.max_abs for one in found if isinstance(one, Comparison)] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert found[-1].max == 7.0


@pytest.fixture
def reused(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was known already of the elements that are compared or described."""
    found: list[Any] = []
    look_up = DeviceComparer._of

    def note(self: DeviceComparer, marks: Any) -> Any:
        known = look_up(self, marks)
        found.extend([known] if known is not None else [])
        return known

    monkeypatch.setattr(DeviceComparer, "_of", note)
    return found


def test_the_same_elements_in_another_shape_are_compared_once(reused: list[Any]) -> None:
    comparer = DeviceComparer()
    first, second = torch.arange(24.0), torch.arange(24.0)
    second[17] += 3
    marks = Elements(), Elements()
    found: list[Any] = []

    def shown(tensor: Any, mark: Elements) -> Any:
        tensor.elements_held = mark
        return tensor

    for shape in ((24,), (4, 6), (2, 3, 4)):
        pair = shown(first.view(shape), marks[0]), shown(second.view(shape), marks[1])
        comparer.compare(*pair, Tolerance(), found.append)
        want = numbers.compare(pair[0].numpy(), pair[1].numpy(), Tolerance())
        assert found[-1] == want
    assert len(reused) == 2
    comparer.compare(shown(first.view(6, 4), marks[0]), shown(second.view(6, 4), Elements()), Tolerance(), found.append)
    assert len(reused) == 2, "other elements"


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "float64", "complex64"])
@pytest.mark.parametrize("size", [0, 5, 70000])
def test_other_types_and_shapes_are_the_hosts(dtype: str, size: int) -> None:
    torch.manual_seed(0)
    base = (torch.randn(size) * 1e5).to(getattr(torch, dtype))
    found: list[Any] = []
    comparer = DeviceComparer()
    frozen = base.numpy().copy()
    frozen.flags.writeable = False  # as of a recording
    for waited, target in itertools.product((base, frozen), (base.clone(), base.view(1, -1), torch.ones(3))):
        comparer.compare(waited, target, Tolerance(), found.append)
        comparer.settle()
        want = numbers.compare(base.numpy(), target.numpy(), Tolerance())
        got = found.pop()
        assert (got.shapes_match, got.mismatched, got.fp16_overflow, got.fp16_subnormal, got.max_abs) == (
            want.shapes_match, want.mismatched, want.fp16_overflow, want.fp16_subnormal, want.max_abs
        )  # fmt: skip
        assert stats(got.base) == stats(want.base)


def test_views_share_and_writes_end_it(reused: list[Any]) -> None:
    class Views(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.view(2, 12).unsqueeze(0)  # both are x's elements in order
            z = y.transpose(1, 2)  # another order
            y += 1  # the same memory, other elements
            return z.reshape(-1) + y.view(-1)

    compare_module(Views(), torch.randn(24), run_mode="torch_bf16", device="cpu", compare_on="device")
    assert len(reused) == 5, "view, unsqueeze; the reshaped copy; the second view; the output"


def test_a_finished_comparison_keeps_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[weakref.ref[Any]] = []
    build = building.build

    def watched(*args: Any) -> Any:
        built = build(*args)
        kept.append(weakref.ref(built.module))
        return built

    monkeypatch.setattr(building, "build", watched)
    module, inputs = torch_models.encoder()
    module.itself = [module]  # a cycle, which reference counts alone do not free
    report = compare_module(module, inputs, run_mode="torch_bf16", device="cpu")
    assert len(kept) == 2
    assert all(one() is None for one in kept)
    assert report.rows
