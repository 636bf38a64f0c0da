"""When a report proves nothing although nothing is out of tolerance, and in which words every format says so."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
import string
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest
from approval import holds_approved, is_approved
from report_factory import make_comparison, make_report, make_row, make_stats

from precision_debug import AssertClose, Report, SaveBaseline
from precision_debug.cli.summary import format_summary
from precision_debug.inspector import EngineLayer
from precision_debug.reasons import say
from precision_debug.reasons.doubts import DOUBTS
from precision_debug.records import Doubt, Explanation, Row, Side, Status
from precision_debug.report import words
from precision_debug.report.doubts import decides, describe_doubt
from precision_debug.report.lead import lead_sentences
from precision_debug.report.model import Verdict, count_coverage
from precision_debug.report.words import explain_reason

FP32 = Side(mode="ort_fp32", backend="", model="m", precision="float32")
OPT = Side(mode="ort_opt", backend="", model="m", precision="model")
INT8 = dataclasses.replace(OPT, mode="ort_int8", precision="int8")
FP16 = dataclasses.replace(OPT, mode="trt_fp16", precision="float16")


def report_of(*rows: Row, target: Side = OPT, baseline: Side = FP32, **changes: Any) -> Report:
    return dataclasses.replace(make_report(0), rows=rows, target=target, baseline=baseline, scores={}, **changes)


def codes(report: Report) -> list[str]:
    return [doubt.code for doubt in report.doubts]


def fp32_row(index: int, error: float = 1e-7, **changes: Any) -> Row:
    numbers = make_comparison(error, target=make_stats(), mismatched=0)
    return make_row(index, error, comparison=numbers, inputs=("x",), **changes)


def undecided(index: int, **changes: Any) -> Row:
    reason = say("hidden", atol=0.1, rms=0.01, error=0.25)
    numbers = make_comparison(0.25, base=make_stats(rms=0.01), target=make_stats(), mismatched=0)
    return make_row(index, comparison=numbers, status=Status.INCONCLUSIVE, reason=reason, **changes)


def test_a_hidden_output_is_inconclusive_and_a_hidden_tensor_inside_is_not() -> None:
    inside = report_of(fp32_row(0), undecided(1), fp32_row(2, is_output=True))
    assert (inside.verdict, codes(inside)) == (Verdict.PASS, [])
    output = report_of(fp32_row(0), undecided(1, name="probs", is_output=True))
    assert (output.verdict, codes(output), output.exit_status) == (Verdict.INCONCLUSIVE, ["output_hidden"], 1)
    text = describe_doubt(output.doubts[0])
    assert holds_approved(text.en)
    assert "--atol 0.0001" in text.en
    assert "仅因 atol 0.1 而通过" in text.zh
    assert codes(report_of(undecided(0), undecided(1))) == ["nothing_decided"]


def test_a_mismatch_stands_whatever_is_in_doubt() -> None:
    report = report_of(make_row(0, 0.1), undecided(1, is_output=True))
    assert report.verdict is Verdict.FAIL
    assert "output_hidden" in codes(report)


def test_an_output_without_an_element_was_not_compared() -> None:
    nothing = make_stats(shape=(0, 6), elements=0, min=None, max=None, mean=None, rms=None)
    numbers = make_comparison(0.0, base=nothing, target=nothing, identical=False, sqnr_db=None)
    empty = make_row(1, 0.0, comparison=numbers, status=Status.INCONCLUSIVE, is_output=True, name="boxes")
    report = report_of(fp32_row(0), empty)
    assert (report.verdict, codes(report)) == (Verdict.INCONCLUSIVE, ["output_empty"])
    assert (report.coverage.compared, report.coverage.unseen) == (1, 1)


def test_hooks_that_see_empty_tensors_only_are_not_identical() -> None:
    base = SaveBaseline()
    check = AssertClose(base)
    base("Op", "a", np.zeros((0, 3), np.float32))
    check("Op", "a", np.zeros((0, 3), np.float32))
    report = check.report()
    assert (report.verdict, report.rows[0].status) == (Verdict.INCONCLUSIVE, Status.INCONCLUSIVE)
    assert report.rows[0].comparison is not None
    assert not report.rows[0].comparison.identical
    assert "identical" not in " ".join(f"{line.label.en} {line.text.en}" for line in format_summary(report))


def fused(count: int, reason: str = "the target's graph has no such tensor") -> list[Row]:
    return [make_row(n, None, name=f"b{n}", reason=reason) for n in range(count)]


def unmatched(count: int, op_type: str = "Conv", reason: str = "the baseline has no tensor of this name") -> list[Row]:
    return [
        make_row(n, None, name=f"t{n}", target_name=f"t{n}", op_type=op_type, status=Status.UNMATCHED, reason=reason,
                 base=None, target=make_stats())
        for n in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("others", "share"),
    [
        (fused(97), 1.0),  # the target is one fused operator
        (unmatched(97), 1.0),  # the target only has more
        (fused(97) + unmatched(97), 1 / 98),  # every name differs
        (fused(97) + unmatched(97, "QuantizeLinear"), 1.0),
        (fused(97) + unmatched(97, reason="holds the same values as a"), 1.0),
        (fused(97, "the target computes aten.linear with other operators") + unmatched(97), 1.0),
        (fused(2) + unmatched(97), 1 / 3),
        ([dataclasses.replace(row, status=Status.NOT_COMPARED, reason="a mystery") for row in fused(3)], 1 / 4),
        (
            [
                dataclasses.replace(
                    row, status=Status.NOT_COMPARED,
                    reason="target: it cannot be fetched without changing the fusion around it",
                )
                for row in fused(3)
            ],
            1.0,
        ),
    ],
)  # fmt: skip
def test_a_lost_pairing_is_not_fusion(others: list[Row], share: float) -> None:
    """Where every output was compared it is a doubt about who made an error; else nothing is proven."""
    report = report_of(fp32_row(0, is_output=True), *others)
    assert report.coverage.share == pytest.approx(share)
    assert report.verdict is Verdict.PASS
    unseen = any(row.status is Status.NOT_COMPARED for row in others)
    code = "few_seen" if unseen else "few_compared"
    assert codes(report) == ([] if share > 0.5 else [f"{code}_inside"])
    no_output = report_of(fp32_row(0), *others)
    assert no_output.verdict is (Verdict.PASS if share > 0.5 else Verdict.INCONCLUSIVE)
    assert codes(no_output) == ([] if share > 0.5 else [code])


def test_coverage_counts_every_row_once() -> None:
    report = make_report(400)
    assert count_coverage(report.rows).total == 400
    assert count_coverage(()).share == 0


def test_rows_without_a_reason_are_counted_without_the_catalogues(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read those of every backend takes longer than a small comparison does."""
    monkeypatch.setattr(words, "_list_sentences", lambda: pytest.fail("catalogues were read"))
    words._recognise_sentence.cache_clear()
    assert count_coverage([make_row(), make_row(1, reason=""), make_row(2, reason=say("default_left_out"))]).total == 3


@pytest.mark.parametrize(
    ("precision", "errors", "unseen"),
    [
        ("bfloat16", (1e-7, 3e-7), True),
        ("bfloat16", (1e-7, 9e-4), False),
        ("bfloat16", (0.0, 0.0), True),
        ("float16", (6e-8, 0.0), True),
        ("float16", (2e-4, 1e-4), False),
        ("int8", (1e-7, 1e-7), True),
        ("model", (1e-7, 1e-7), False),
        ("mixed", (1e-7, 1e-7), False),
        ("float32", (1e-7, 1e-7), False),
    ],
)
def test_a_precision_that_left_no_trace_proves_nothing(
    precision: str, errors: tuple[float, ...], unseen: bool
) -> None:
    target = dataclasses.replace(OPT, precision=precision)
    rows = [fp32_row(n, error) for n, error in enumerate(errors)]
    report = report_of(*rows, fp32_row(9, 1e-8, is_output=True), target=target)
    assert codes(report) == (["precision_unseen"] if unseen else [])
    assert report.verdict is (Verdict.INCONCLUSIVE if unseen else Verdict.PASS)


def test_a_precision_is_seen_by_the_engines_own_type_too() -> None:
    exact = make_row(0, 0.0, comparison=make_comparison(0.0, target=make_stats(dtype="float16")))
    assert codes(report_of(exact, target=FP16)) == []
    assert codes(report_of(fp32_row(0, 0.0), target=FP16, baseline=FP16)) == []
    quantised = fp32_row(0, 1e-7, target_op_type="QLinearConv")
    assert codes(report_of(quantised, target=INT8)) == []


def conv(tactic: str, **changes: Any) -> EngineLayer:
    return EngineLayer(**{"name": "c", "layer_type": "CaskConvolution", "tactic_name": tactic, **changes})


TF32 = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw"
HALF = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc"


@pytest.mark.parametrize(
    ("layers", "error", "expected"),
    [
        ((conv(TF32), conv(TF32)), 3e-4, ["precision_not_run"]),  # as large an error as FP16 has
        ((conv(TF32), conv(HALF)), 1e-7, []),
        ((conv(TF32), conv("unreadable")), 3e-4, []),
        ((conv(TF32), conv("unreadable")), 1e-7, ["precision_unseen"]),
        ((conv(TF32), conv("", layer_type="Myelin")), 3e-4, []),
        ((conv("generated", layer_type="PointWise"),), 3e-4, []),
    ],
)
def test_an_engine_that_chose_other_kernels_proves_nothing_of_the_precision(
    layers: tuple[EngineLayer, ...], error: float, expected: list[str]
) -> None:
    report = report_of(fp32_row(0, error), fp32_row(1, error, is_output=True), target=FP16, layers=layers)
    assert codes(report) == expected


def test_outputs_alone_may_be_all_but_equal() -> None:
    """A softmax rounds away what happened inside; float32 noise alone is another matter."""
    assert codes(report_of(fp32_row(0, 3e-6, is_output=True), target=FP16)) == []
    assert codes(report_of(fp32_row(0, 6e-8, is_output=True), target=FP16)) == ["precision_unseen"]


def test_an_fp32_mode_of_a_model_that_is_not_says_so_and_the_verdict_stands() -> None:
    half = make_comparison(1e-4, base=make_stats(dtype="float16"))
    rows = (make_row(0, comparison=half), fp32_row(1, op_type="QLinearConv"), fp32_row(2, op_type="aten.quantile"))
    report = report_of(*rows)
    assert (codes(report), report.verdict) == (["not_fp32"], Verdict.PASS)
    assert is_approved(describe_doubt(report.doubts[0]).en)
    assert codes(report_of(fp32_row(0))) == []


def test_what_a_session_says_of_itself_counts_on_either_side() -> None:
    said = Doubt(code="precision_not_run", values={"precision": "BF16", "detail": "no operator of a loop can"})
    target, baseline = (dataclasses.replace(side, doubts=(said,)) for side in (OPT, FP32))
    for report in (report_of(fp32_row(0), target=target), report_of(fp32_row(0), baseline=baseline)):
        assert report.verdict is Verdict.INCONCLUSIVE
        assert is_approved(describe_doubt(report.doubts[0]).en)
    other = Doubt(code="unicorn_left", values={"why": "rain"})
    assert (describe_doubt(other).en, decides(other)) == ("unicorn_left: why rain", True)
    assert describe_doubt(Doubt(code="precision_not_run")).en == "Nothing ran in ?: ?."


def test_every_format_says_why_and_how_much_was_compared(tmp_path: Path) -> None:
    report = report_of(fp32_row(0), undecided(1, name="probs", is_output=True), *fused(3), *unmatched(1, "Cast"))
    why = "The final output probs passes only because atol 0.1"
    share = "Of 5 tensors: 2 compared (40%), 3 fused away (60%); 1 tensor of the target alone"
    for suffix in ("xlsx", "html", "csv", "md", "json"):
        report.save(tmp_path / f"report.{suffix}")
    sheet = openpyxl.load_workbook(tmp_path / "report.xlsx")["Summary"]
    cells = " ".join(str(cell.value) for row in sheet.iter_rows() for cell in row if cell.value)
    page, table = (tmp_path / "report.html").read_text("utf-8"), (tmp_path / "report.md").read_text("utf-8")
    with (tmp_path / "report.csv").open(encoding="utf-8-sig", newline="") as file:
        last = " ".join(list(csv.reader(file))[-1])
    shown = " ".join(f"{line.label.en} {line.text.en}" for line in format_summary(report))
    for text in (cells, page, table, last, shown):
        assert why in text
        assert share in text
    for text in (cells, page, table):
        assert "最终输出 probs" in text
        assert "共 5 个张量" in text
    assert "verdict: inconclusive" in last
    head = json.loads((tmp_path / "report.json").read_text("utf-8"))["summary"]
    assert head["doubts"][0]["code"] == "output_hidden"
    assert head["coverage"] == {"compared": 2, "fused": 3, "unmatched": 1, "unseen": 0, "lost": 0, "hidden": 0}
    assert Report.load(tmp_path / "report.json") == report
    assert explain_reason(report.rows[1].reason).zh.startswith("仅因")


def test_a_run_that_ended_early_lacks_tensors_for_no_other_reason() -> None:
    """Its first sentence says so; names that do not pair are not part of it."""
    lost = tuple(
        dataclasses.replace(fp32_row(n), status=Status.NOT_COMPARED, comparison=None) for n in range(1, 9)
    )  # fmt: skip
    whole = report_of(fp32_row(0), *lost)
    assert codes(whole) == ["few_seen"]
    assert codes(dataclasses.replace(whole, failure="killed")) == []


def test_what_could_not_be_seen_has_no_name_to_pair() -> None:
    unseen = tuple(
        dataclasses.replace(fp32_row(n), status=Status.NOT_COMPARED, comparison=None, reason="inside a branch")
        for n in range(1, 9)
    )
    report = report_of(fp32_row(0), *unseen)
    assert report.verdict is Verdict.INCONCLUSIVE
    said = describe_doubt(report.doubts[0])
    assert "--rename" not in said.en
    assert "8 could not be seen" in said.en
    assert "8 个无法取得" in said.zh


@pytest.mark.parametrize("number", [0.123456, 2, math.inf, "a name"])
def test_every_doubt_is_told_in_words_whatever_fills_them(number: float | str) -> None:
    """Numbers come as the texts of reports: a width in a wording left the code and its values, and no sentence."""
    for code, wording in DOUBTS.items():
        names = {re.split(r"[.\[]", name)[0] for _, name, _, _ in string.Formatter().parse(wording.en) if name}
        said = describe_doubt(Doubt(code=code, values=dict.fromkeys(names, number)))
        assert not said.en.startswith(code), said.en
        assert not said.zh.startswith(code), said.zh


def test_what_is_not_proven_comes_before_a_tensor_inside_that_was_seen_not_to_matter() -> None:
    """Such a report began with "No culprit was found" and that tensor, as if somebody were to blame for it."""
    values: dict[str, Any] = {"here": 0.07, "there": 0.25, "count": 2}
    target = dataclasses.replace(INT8, doubts=(Doubt(code="off_on_others", values=values),))
    inner = dataclasses.replace(fp32_row(0), status=Status.FAIL, name="logs")
    report = report_of(
        inner, fp32_row(1, is_output=True), target=target, explanation=Explanation(state="healthy", allowed=0.1)
    )
    unasked = dataclasses.replace(report.spec.tolerance, given=False)
    report = dataclasses.replace(report, spec=dataclasses.replace(report.spec, tolerance=unasked))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert lead_sentences(report)[0] == describe_doubt(report.doubts[0])
