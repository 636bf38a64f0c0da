"""--demo_sheet: the sheet that Paddle-Inference-Demo's tool writes, read back as its users read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")

from precision_debug import AssertClose, SaveBaseline  # noqa: E402
from precision_debug.numbers import measure, native  # noqa: E402
from precision_debug.numbers.merged import Merged  # noqa: E402


def test_the_sheet_is_the_demos(tmp_path: Path) -> None:
    x = np.linspace(-1, 3, 8, dtype=np.float32)
    base = SaveBaseline()
    base("scale", "scaled", x * 2)
    base("relu", "out", np.maximum(x, 0))
    check = AssertClose(base, atol=1e-4, rtol=1e-4)
    check("scale", "scaled", x * 2 + np.float32(0.5) * (np.arange(8) == 3))
    check("relu", "out", np.maximum(x, 0)[:4])
    report = check.report()
    without = openpyxl.load_workbook(report.to_excel(tmp_path / "plain.xlsx"))
    assert "Sheet1" not in without.sheetnames
    book = openpyxl.load_workbook(report.to_excel(tmp_path / "demo.xlsx", demo_sheet=True))
    assert book.sheetnames[: len(without.sheetnames)] == without.sheetnames
    lines = [[cell.value for cell in line] for line in book["Sheet1"].iter_rows()]
    assert lines[0] == [0, "Operator Type", "Tensor Name", "Shape", "Mismatched Elements", "Max Atol", "Max Rtol",
                        "Min Val(base)", "Max Val(base)"]  # fmt: skip
    actual, desire = x * 2 + np.float32(0.5) * (np.arange(8) == 3), x * 2
    far = np.abs(actual - desire).astype(float)
    assert lines[1] == [
        1, "scale", "scaled", "match, (8,)", "1/8", f"a:{round(far.max(), 6)}",
        f"r:{round((far / (np.abs(desire.astype(float)) + 1e-7)).max(), 6)}", "-2.0(-2.0)", "6.0(6.0)",
    ]  # fmt: skip
    assert lines[2][:4] == [2, "relu", "out", "expect (8,), but got (4,)"]


def _demo_cells(op_type: str, name: str, base: Any, target: Any) -> list[str | None]:
    """What Paddle's script computes of a pair of one shape: float64, np.max, np.isclose at 1e-4, six decimals."""
    actual, desire = np.asarray(target).astype(float), np.asarray(base).astype(float)
    cells: list[str | None] = [op_type, name, f"match, {desire.shape}"]
    if not actual.size:
        return [*cells, None, None, None, None, None]
    with np.errstate(all="ignore"):
        far = np.abs(actual - desire)
        errors = [far.max(), (far / (np.abs(desire) + 1e-7)).max()]
        close = np.isclose(actual, desire, rtol=1e-4, atol=1e-4, equal_nan=False)
    figures = [round(float(one), 6) for one in (*errors, actual.min(), desire.min(), actual.max(), desire.max())]
    return [
        *cells, f"{close.size - int(close.sum())}/{close.size}", f"a:{figures[0]}", f"r:{figures[1]}",
        f"{figures[2]}({figures[3]})", f"{figures[4]}({figures[5]})",
    ]  # fmt: skip


def _pairs() -> dict[str, tuple[Any, Any]]:
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    plain = np.linspace(-3, 5, 24, dtype=np.float32).reshape(2, 3, 4)
    high = np.float32([1, 262144, -2, 40000])
    whole = np.arange(-6, 6, dtype=np.int64)
    return {
        "finite": (plain, plain * np.float32(1.001)),
        "overflow": (high, np.float16([1, inf, -2, 40000])),
        "underneath": (-high, np.float16([-1, -inf, 2, -40000])),
        "both_ends": (np.float32([1, 2, 3, 4]), np.float32([1, inf, -inf, 4])),
        "base_alone": (np.float32([1, -inf, 3]), np.float32([1, -65504, 3])),
        "one_nan": (np.float32([1, 2, 3]), np.float32([1, nan, 3.5])),
        "nan_of_both": (np.float32([nan, 2, 3]), np.float32([nan, 2, 3])),
        "all_inf": (np.full((2, 2), inf), np.full((2, 2), inf)),
        "all_negative": (np.full(5, -inf), np.full(5, -inf)),
        "other_sign": (np.float32([inf, 1]), np.float32([-inf, 1])),
        "mask": (np.float32([-inf, 0, -inf, 0]), np.float32([-inf, 0, -inf, 1e-3])),
        "all_lost": (np.float32([1e5, 2e5, -3e5]), np.float32([inf, inf, -inf])),
        "nan_and_inf": (np.float32([nan, -inf, 1]), np.float32([0, inf, 1])),
        "empty": (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)),
        "booleans": (np.array([True, False, True]), np.array([True, True, True])),
        "integers": (whole, whole + (whole == 2)),
        "halves": (np.float16([0.1, 65504, 6e-8]), np.float16([0.1001, 65472, 0])),
        "zeros": (np.zeros(3, np.float32), np.float32([0, 1e-9, -1e-3])),
        "scalar": (np.float32(2.5), np.float32(2.25)),
        "large": (np.tile(np.float32([1, -inf, 3]), 40000), np.tile(np.float32([1, -inf, inf]), 40000)),
    }


@pytest.mark.parametrize("kernel", ["if there", "none"])
def test_every_cell_is_the_demos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    if kernel == "none":
        monkeypatch.setattr(native, "load", lambda: None)
    base = SaveBaseline()
    for name, (ours, _) in _pairs().items():
        base("op", name, ours)
    check = AssertClose(base, atol=1e-4, rtol=1e-4)
    for name, (_, theirs) in _pairs().items():
        check("op", name, theirs)
    report = check.report()
    book = openpyxl.load_workbook(report.to_excel(tmp_path / "demo.xlsx", demo_sheet=True))
    lines = {str(line[2]): list(line[1:]) for line in book["Sheet1"].iter_rows(min_row=2, values_only=True)}
    table = book["Precision"].iter_rows(values_only=True)
    heads = next(table)
    own = {str(line[1]): dict(zip(heads, line, strict=True)) for line in table}
    for name, pair in _pairs().items():
        wanted = _demo_cells("op", name, *pair)
        assert lines[name] == wanted, name
        for column, title in enumerate(("Max Atol", "Max Rtol"), 4):
            shown = own[name][title]
            if wanted[column] is None:
                assert shown is None
                continue
            assert float(shown) == pytest.approx(float(wanted[column][2:]), rel=2e-5, abs=6e-7, nan_ok=True), name
        for column, title in enumerate(("Min Val(base)", "Max Val(base)"), 6):
            if wanted[column] is not None:
                numbers = [float(part) for part in own[name][title].rstrip(")").split("(")]
                demo = [float(part) for part in wanted[column].rstrip(")").split("(")]
                assert numbers == pytest.approx(demo, rel=1e-5, abs=6e-7, nan_ok=True), name


def test_negative_infinities_are_counted_and_merged() -> None:
    inf = np.float32(np.inf)
    one, other = (
        Merged.of(measure(np.float32(base), np.float32(target)), sample)
        for sample, (base, target) in enumerate([([-inf, 1, inf], [-inf, 1, 2]), ([inf, -inf], [inf, inf])])
    )
    found = Merged.merge(one, other).comparison()
    assert (found.base.inf, found.base.negative_inf) == (4, 2)
    assert (found.target.inf, found.target.negative_inf) == (3, 1)
    assert found.same_inf == 2
