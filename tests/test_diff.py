"""Two reports side by side: what got worse is named, and only that makes the status 1."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest
from approval import begins_approved, is_approved
from report_factory import make_report, make_row

import precision_debug
from precision_debug.cli import main
from precision_debug.products.tools.difference_reports import list_sentences
from precision_debug.report.difference import Change, compare_reports


def test_a_report_and_itself_are_the_same() -> None:
    report = make_report(40)
    found = compare_reports(report, report)
    assert not found.regressed
    assert found.counts == {change: len(report.rows) if change is Change.SAME else 0 for change in Change}


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (1e-4, 4e-4, Change.WORSE),
        (4e-4, 1e-4, Change.BETTER),
        (1e-4, 1.9e-4, Change.SAME),
        (1e-4, 2e-3, Change.WORSE),  # the status changes
        (9e-4, 1.1e-3, Change.WORSE),  # although the factor is small
        (1e-9, 9e-7, Change.SAME),  # rounding of FP32 itself
        (0.0, 1e-4, Change.WORSE),
        (math.inf, math.inf, Change.SAME),
        (1e-4, None, Change.LOST),
        (None, 1e-4, Change.NEW),
    ],
)
def test_what_became_of_a_tensor(before: float | None, after: float | None, change: Change) -> None:
    report = make_report(1)
    old = dataclasses.replace(report, rows=(make_row(0, before),))
    new = dataclasses.replace(report, rows=(make_row(0, after),))
    assert compare_reports(old, new).tensors[0].change is change


def test_a_tensor_that_is_gone_counts_as_a_regression() -> None:
    report = make_report(1)
    both = dataclasses.replace(report, rows=(make_row(0, 1e-4), make_row(1, 1e-4)))
    one = dataclasses.replace(report, rows=both.rows[:1])
    found = compare_reports(both, one)
    assert [tensor.change for tensor in found.tensors] == [Change.SAME, Change.GONE]
    assert found.regressed
    assert not compare_reports(one, both).regressed


def test_the_command_before_and_after_a_fix(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """INT8, then FP16: what INT8 spoiled is better, and none is worse."""
    pytest.importorskip("onnxruntime")
    model, images = root / "examples" / "digits" / "digits.onnx", root / "examples" / "digits" / "test_images.npz"
    for name, mode in (("before", "ort_int8"), ("after", "ort_fp16_sim")):
        precision_debug.compare(model, run_mode=mode, inputs=images, output=f"{name}.json")
    assert main(["diff", "before.json", "after.json", "--output", "d.json", "--lang", "en"]) == 0
    said = capsys.readouterr().out
    told = json.loads(Path("d.json").read_text())
    assert told["regressed"] is False
    assert told["counts"]["better"] >= 2
    assert f"{told['counts']['better']} better" in said
    assert said.startswith("Nothing got worse. "), "the sentence comes first"
    assert "- -> -" not in said, "what only one engine has, and nobody compared, is not a change"
    assert main(["diff", "after.json", "before.json", "--output", "d.md", "--output", "d.html", "--lang", "zh"]) == 1
    chinese = capsys.readouterr().out
    assert re.match(r"\d+ 个张量变差，变化最大的是 ", chinese)
    assert "结论：符合预期，与之前相同。" in chinese
    assert not re.search("[a-z]+ [a-z]+ [a-z]+ [a-z]+", chinese), "English is left"
    assert "变差" in Path("d.md").read_text(encoding="utf-8")
    page = Path("d.html").read_text(encoding="utf-8")
    assert page.index("tensors got worse") < page.index("<table")
    assert "http" not in page.replace("Content-Security", "").replace("http-equiv", "")


def test_the_workbook_says_the_sentence_first_and_has_every_tensor(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    report = make_report(3)
    before = dataclasses.replace(report, rows=(make_row(0, 1e-4), make_row(1, 4e-4), make_row(2, 1e-4)))
    worse = [make_row(0, math.inf, name="=1+1"), make_row(1, 1e-4), make_row(2, 1e-4)]
    before = dataclasses.replace(before, rows=(dataclasses.replace(before.rows[0], name="=1+1"), *before.rows[1:]))
    before.save("before.json")
    dataclasses.replace(report, rows=tuple(worse)).save("after.json")
    assert main(["diff", "before.json", "after.json", "--output", "d.xlsx"]) == 1
    book = openpyxl.load_workbook("d.xlsx")
    assert book.sheetnames == ["Difference", "Summary"]
    assert book.active.title == "Summary"
    first = book["Summary"]["B2"].value
    assert begins_approved(first)
    assert "1 个张量变差" in first
    lines = list(book["Difference"].iter_rows(values_only=True))
    assert [title.split("\n")[0] for title in lines[0]] == [
        "Change", "Operator Type", "Tensor Name", "Rel L2 before", "Rel L2 after", "Ratio", "Status before",
        "Status after",
    ]  # fmt: skip
    assert [line[0].split(" / ")[0] for line in lines[1:]] == ["worse", "better", "same"]
    assert lines[1][2] == "=1+1"
    assert lines[2][3:6] == tuple(map(pytest.approx, (4e-4, 1e-4, 0.25)))
    assert book["Difference"].freeze_panes == "D2"


def test_sentences_of_a_difference() -> None:
    report = make_report(1)

    def first(old: tuple[float | None, ...], new: tuple[float | None, ...]) -> str:
        before, after = (
            dataclasses.replace(report, rows=tuple(make_row(n, error) for n, error in enumerate(errors)))
            for errors in (old, new)
        )
        return list_sentences(compare_reports(before, after))[0].en

    assert begins_approved(first((1e-4, 1e-4), (1e-3, 4e-2)))
    assert first((4e-4,), (1e-4,)).endswith("the most: 0.0004 to 0.0001 (0.25 x).")
    assert is_approved(first((1e-4,), (None,)), 2)
    assert is_approved(first((1e-4,), (1e-4,)), 3)


def test_what_is_no_report_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.json").write_text("{}")
    assert main(["diff", "a.json", "a.json"]) in (2, 3)
    assert "a.json" in capsys.readouterr().err
    assert main(["diff", "a.json", "a.json", "--output", "x.pdf"]) == 2
    assert main(["diff", "a.json", "b.json", "--output", "a.json"]) == 2
