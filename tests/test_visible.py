"""Text from files steers nothing: no terminal, no spreadsheet, no reading direction."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from xml.etree import ElementTree

import openpyxl
import pytest
from report_factory import make_report, make_row

from precision_debug.cli import main
from precision_debug.errors import ModelError
from precision_debug.records import ModelFiles
from precision_debug.report import Report, list_endings, write
from precision_debug.safety.untrusted import make_visible

LIVE = ("=1+1", "+1", "-1+1", "@SUM(A1)", "{=1+1}", '=HYPERLINK("http://x","y")', "http://x", "external:x.xlsx", "\t=1")
HIDDEN = ("\x00", "\x1b]0;owned\x07\x1b[2J", "\x9b2J", "a\u202eb", "\u2066x", "\ufffe", "a\rb", "\u2028", "\udcff")


def crafted(text: str) -> Report:
    """A report with a text wherever a report holds text of others."""
    report = make_report(4)
    rows = tuple(
        make_row(
            n, 0.5, name=text, op_type=text, node=text, reason=text, target_name=text, target_op_type=text,
            extra={text: text}, is_output=True,
        )
        for n in range(3)
    )  # fmt: skip
    side = dataclasses.replace(report.target, model=text, notes=(text,), versions={text: text}, backend=text, mode=text)
    spec = dataclasses.replace(report.spec, model=ModelFiles(model_file=text), command=text, options={text: text})
    return dataclasses.replace(
        report, rows=rows, target=side, baseline=side, spec=spec, failure=text, inputs_source=text, notes=(text,),
        machine={text: text}, inputs_file=text,
    )  # fmt: skip


@pytest.mark.parametrize("text", [*LIVE, *HIDDEN], ids=ascii)
def test_a_workbook_is_whole_and_has_no_formula_and_no_link(text: str, tmp_path: Path) -> None:
    path = write(crafted(text), tmp_path / "r.xlsx")
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            content = archive.read(member).decode()
            if member.endswith((".xml", ".rels", ".vml")):
                ElementTree.fromstring(content)
            assert "<f>" not in content or "chart" in member, member
            assert "External" not in content, member
    for sheet in openpyxl.load_workbook(path):
        for line in sheet.iter_rows():
            for cell in line:
                assert cell.data_type != "f", (sheet.title, cell.coordinate)
                assert cell.hyperlink is None or cell.hyperlink.location, (sheet.title, cell.coordinate)
                if isinstance(cell.value, str):
                    assert make_visible(cell.value, keep="\n\t") == cell.value


@pytest.mark.parametrize("text", [*LIVE, *HIDDEN], ids=ascii)
def test_csv_has_no_live_cell(text: str, tmp_path: Path) -> None:
    path = write(crafted(text), tmp_path / "r.csv")
    for line in csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")):
        for cell in line:
            number = re.fullmatch(r"[+-]?(\d+\.?\d*(e[+-]?\d+)?|inf|nan)( \([-+.\de]+\))?", cell)
            assert number or not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")), cell


@pytest.mark.parametrize("text", HIDDEN, ids=ascii)
@pytest.mark.parametrize("suffix", sorted({*list_endings()} - {".xlsx", ".json"}))
def test_nothing_hidden_is_written(suffix: str, text: str, tmp_path: Path) -> None:
    path = write(crafted(text), tmp_path / f"r{suffix}")
    content = path.read_bytes().decode("utf-8-sig")
    assert make_visible(content, keep="\n\r\t") == content


@pytest.mark.parametrize("text", HIDDEN, ids=ascii)
def test_nothing_hidden_reaches_the_terminal(text: str, tmp_path: Path) -> None:
    report = crafted(text)
    path = write(dataclasses.replace(report, inputs_file=""), tmp_path / "r.json")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        main(["report", str(path)])
        main(["report", f"{text.replace(chr(0), '')}.json"])
        main(["--model_file", f"{text}.onnx", "--run_mode", text, "--option", text])
    for said in (out.getvalue(), err.getvalue()):
        assert make_visible(said, keep="\n") == said
        assert said


def test_errors_are_one_visible_line() -> None:
    assert str(ModelError("no\nsuch \x1b[31mmodel", where="a\u202eb")) == "a\\u202eb: no such \\x1b[31mmodel"


def test_other_text_stays() -> None:
    for text in ("卷积层/输出", "é😀", "a\u00a0b\u3000c", "नमस्\u200dते", "\\x1b"):
        assert make_visible(text) == text
    assert make_visible("a\nb\tc") == "a\\nb\\tc"
    assert make_visible("a\nb\tc", keep="\n\t") == "a\nb\tc"
