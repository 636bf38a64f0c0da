from __future__ import annotations

import csv
import dataclasses
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from approval import is_approved, raises_approved
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_factory import make_comparison, make_report, make_row

from precision_debug.report import Report, write
from precision_debug.report.layout import COLUMNS, list_columns, to_pandas
from precision_debug.safety.untrusted import make_visible


def lines_of(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def test_every_cell_in_full_precision(tmp_path: Path) -> None:
    report = make_report(300, extra=True)
    head, *lines = lines_of(write(report, tmp_path / "r.csv"))
    layout = list_columns(report)
    assert head == [column.title for column in layout]
    assert len(lines) == len(report.rows)
    for row, line in zip(report.rows, lines, strict=True):
        for column, text in zip(layout, line, strict=True):
            value = column.get(row)
            if value is None:
                assert text == ""
            elif column.kind in ("float", "share"):
                assert float(text) == pytest.approx(value, rel=0, nan_ok=True)
            elif column.kind == "flag":
                assert text == ("yes" if value else "no")
            elif column.kind == "index":
                assert text == str(list(value))
            else:
                assert text == str(value)


def test_excel_opens_chinese_right(tmp_path: Path) -> None:
    report = dataclasses.replace(make_report(0), rows=(make_row(name='卷积层/输出,"1"\n2'),))
    path = write(report, tmp_path / "r.csv")
    assert path.read_bytes()[:3] == b"\xef\xbb\xbf"
    assert lines_of(path)[1][1] == '卷积层/输出,"1"\n2'


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    numbers = make_comparison(0.1, max_abs=math.inf, mean_abs=math.nan, sqnr_db=-math.inf)
    report = dataclasses.replace(make_report(0), rows=(make_row(comparison=numbers),))
    line = dict(zip((c.key for c in COLUMNS), lines_of(write(report, tmp_path / "r.csv"))[1], strict=True))
    assert (line["max_abs"], line["mean_abs"], line["sqnr_db"]) == ("inf", "nan", "-inf")


def test_a_partial_report_says_so_on_its_last_line(tmp_path: Path) -> None:
    head, *lines = lines_of(write(make_report(3, failure="killed"), tmp_path / "r.csv"))
    assert len(lines) == 4
    last = dict(zip(head, lines[-1], strict=True))
    assert last["Status"] == "partial"
    assert is_approved(last["Reason"])
    assert last["Tensor Name"] == ""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(st.characters(exclude_characters="\r\n\x00"), max_size=30), number=st.floats(allow_nan=False))
def test_pandas_reads_it_back(tmp_path: Path, name: str, number: float) -> None:
    row = make_row(0, comparison=make_comparison(0.1, max_abs=number), name=name)
    path = write(dataclasses.replace(make_report(0), rows=(row,)), tmp_path / "r.csv")
    # a name may be "NA"; a number that is missing is empty, as in the last line of a report that proves nothing
    frame = pd.read_csv(path, keep_default_na=False, na_values={"Max Atol": [""]}, dtype={"Tensor Name": str})
    shown = make_visible(name, keep="\t")
    live = name.startswith(("=", "+", "-", "@", "\t", "＝", "＋", "－", "＠"))
    assert frame["Tensor Name"][0] == ("'" + shown if live else shown)
    assert frame["Max Atol"][0] == number


@pytest.mark.parametrize("count", [0, 60])
def test_the_frame_is_typed(count: int) -> None:
    report = make_report(count, extra=True)
    frame = report.to_pandas()
    kinds = {"int": "Int64", "float": "float64", "share": "float64", "flag": "boolean"}
    for column in list_columns(report):
        assert str(frame[column.key].dtype) == kinds.get(column.kind, "object")
    assert len(frame) == count
    assert frame.attrs["titles"]["max_atol"] == "Max Atol"
    assert frame.attrs["verdict"] == str(report.verdict)


def test_the_frame_holds_every_value() -> None:
    report = make_report(300, extra=True)
    frame = to_pandas(report)
    for column in list_columns(report):
        for row, value in zip(report.rows, frame[column.key], strict=True):
            expected: Any = column.get(row)
            assert (
                (expected is None and pd.isna(value)) or value == expected or (value != value and expected != expected)
            )
    assert frame.query("status == 'fail'")["max_abs"].max() == math.inf


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with raises_approved(Exception):
        Report.to_pandas(make_report(1))
