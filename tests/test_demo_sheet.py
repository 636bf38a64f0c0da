"""--demo_sheet: the sheet that Paddle-Inference-Demo's tool writes, read back as its users read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")

from precision_debug import AssertClose, SaveBaseline  # noqa: E402


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
