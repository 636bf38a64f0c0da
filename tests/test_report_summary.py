from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from approval import begins_approved, holds_approved
from report_factory import make_comparison, make_report, make_row, make_stats

from precision_debug.cli.summary import format_summary as terminal_lines
from precision_debug.reasons import same, say
from precision_debug.records import Introduced, Row, Status, Tolerance
from precision_debug.report import Report
from precision_debug.report.advice import list_advice
from precision_debug.report.formats.xlsx.chart import make_curve
from precision_debug.report.layout import describe_tolerance
from precision_debug.report.sections import Cell, Section
from precision_debug.report.summary import Summary, summarise
from precision_debug.report.words import format_duration, format_figure, format_percent, format_sufficient


def with_rows(*rows: Row, **changes: Any) -> Report:
    return dataclasses.replace(make_report(0), rows=rows, **changes)


def section(content: Summary, key: str) -> Section:
    return next(each for each in content.sections if each.key == key)


def cells(found: Section) -> list[list[str]]:
    return [[cell.text.en for cell in line] for line in found.lines]


def test_sections_come_in_the_order_of_their_weight() -> None:
    content = summarise(make_report(200))
    assert [each.key for each in content.sections] == [
        "first", "worst", "outputs", "scores", "precision", "claims", "counts", "uncompared", "run", "tolerance",
        "inputs", "environment",
    ]  # fmt: skip


def test_every_text_is_in_both_languages() -> None:
    for report in (make_report(200), make_report(200, failure="killed"), make_report(0)):
        content = summarise(report)
        for text in (content.headline, *content.lead, *content.details, *(each.title for each in content.sections)):
            assert not text.zh.isascii(), text


@pytest.mark.parametrize(
    ("report", "headline", "tone"),
    [
        (with_rows(make_row(0, 1e-5, is_output=True)), "Within tolerance", "good"),
        (with_rows(make_row(0, 0.1)), "Out of tolerance", "bad"),
        (with_rows(), "Inconclusive", "warn"),
        (with_rows(make_row(0, None)), "Inconclusive", "warn"),
        (with_rows(make_row(0, 1e-5), failure="killed"), "Partial: the run ended early", "warn"),
    ],
)
def test_the_verdict(report: Report, headline: str, tone: str) -> None:
    content = summarise(report)
    assert (content.headline.en, content.tone) == (headline, tone)


def test_details_say_what_was_not_compared() -> None:
    rows = (make_row(0, 1e-5), make_row(1, 0.1), make_row(2, None, name="logits", is_output=True))
    text = " ".join(each.en for each in summarise(with_rows(*rows)).details)
    assert holds_approved(text)
    assert holds_approved(text, 2)


def test_what_was_not_compared_is_grouped_by_reason() -> None:
    fused = [make_row(n, None, name=f"bn{n}", reason="folded") for n in range(5)]
    hidden = [make_row(9, None, name="x", status=Status.NOT_COMPARED, reason="a sequence")]
    found = section(summarise(with_rows(*fused, *hidden)), "uncompared")
    assert cells(found) == [
        ["folded", "fused away", "5", "bn0, bn1, bn2, … (+2)"],
        ["a sequence", "not compared", "1", "x"],
    ]


def test_reasons_that_differ_in_their_names_only_are_one_line() -> None:
    copies = [
        make_row(n, None, name=f"t{n}", status=Status.UNMATCHED, reason=say("taken", rival=f"r{n}")) for n in range(3)
    ]
    found = section(summarise(with_rows(*copies)), "uncompared")
    (line,) = cells(found)
    assert line[0].endswith("is compared with …")
    assert line[1:] == ["unmatched", "3", "t0, t1, t2"]
    assert found.lines[0][0].text.zh == "对应的基线张量已与 … 比较"


def test_counts_add_up() -> None:
    report = make_report(300)
    *lines, total = cells(section(summarise(report), "counts"))
    assert sum(int(line[1]) for line in lines) == int(total[1]) == 300


def test_first_mismatch_and_outputs_lead_to_their_rows() -> None:
    report = make_report(300)
    content = summarise(report)
    first = report.first_mismatch
    assert first is not None
    assert section(content, "first").lines[0][1].row == first.index
    assert [line[0].row for line in section(content, "outputs").lines] == [row.index for row in report.outputs]
    assert [line[0].row for line in section(content, "worst").lines] == [row.index for row in report.worst()]


def test_the_worst_operators_are_those_that_introduced_most_where_that_was_measured() -> None:
    """A Reshape behind the culprit has all of the error, and introduced nothing."""
    def introduced(name: str, error: float | None, **more: Any) -> Introduced:
        return Introduced(name=name, method="isolated", elements=8, rel_l2=error, **more)

    rows = [
        make_row(0, 0.2, name="culprit", introduced=introduced("culprit", 0.2)),
        make_row(1, 0.75, name="moved", op_type="Reshape", introduced=introduced("moved", 0.0)),
        make_row(2, 0.9, name="whole", introduced=introduced("whole", None, flips=0)),
        make_row(3, 0.8, name="later", introduced=introduced("later", 0.01)),
    ]
    report = with_rows(*rows)
    assert [row.name for row in report.worst(2)] == ["culprit", "later"]
    text = "\n".join(line.text.en for line in terminal_lines(report))
    assert holds_approved(text)
    assert "introduced 0.2" in text
    unmeasured = with_rows(*(dataclasses.replace(row, introduced=None) for row in rows))
    text = "\n".join(line.text.en for line in terminal_lines(unmeasured))
    assert holds_approved(text, 2)


def said(row: Row, precision: str = "float16") -> str:
    return " ".join(text.en for text in list_advice(row, precision))


def test_advice_on_shapes() -> None:
    numbers = make_comparison(0.1, target=make_stats(shape=(8, 64)))
    assert said(make_row(comparison=numbers)).startswith("The shapes differ")


def test_advice_on_overflow() -> None:
    target = make_stats(nan=3, inf=17)
    numbers = make_comparison(0.1, target=target, fp16_overflow=20)
    assert holds_approved(said(make_row(comparison=numbers)))
    assert holds_approved(said(make_row(comparison=numbers), "bfloat16"), 2)
    numbers = make_comparison(0.1, target=target, base=make_stats(nan=1))
    assert begins_approved(said(make_row(comparison=numbers)), 3)


@pytest.mark.parametrize(
    ("growth", "precision", "words"),
    [
        (12.5, "float16", "Error growth 12.5: whether it lost that itself or enlarges what it was given was not"
                            " measured. Try it in FP32 first."),
        (12.5, "int8", "not measured. Try it in FP32 first."),  # no calibration is blamed that nobody tried
        (1.1, "float16", "Error growth 1.1: its inputs were off by about as much."),
        (math.inf, "float16", "Its inputs had no error: the loss begins in this operator."),
    ],
)
def test_advice_on_growth(growth: float, precision: str, words: str) -> None:
    assert words in said(make_row(error=0.1, error_growth=growth, inputs=("x",)), precision)


@pytest.mark.parametrize(
    ("base", "target", "words"),
    [
        ("float32", "float32", "The target computes in FP32 too: compare what both sides compute here."),
        ("bfloat16", "bfloat16", "The target computes in BF16 too: compare what both sides compute here."),
        ("bfloat16", "float32", "itself. Compare what both sides compute here."),
    ],
)
def test_advice_on_a_model_of_its_own_types(base: str, target: str, words: str) -> None:
    """A mode that promises the model's own types computes in what these are."""
    numbers = make_comparison(0.1, base=make_stats(dtype=base), target=make_stats(dtype=target))
    introduced = Introduced(name="y", method="replayed", elements=1, rel_l2=0.1)
    row = make_row(error=0.1, comparison=numbers, error_growth=12.5, inputs=("x",), introduced=introduced)
    assert words in said(row, "model")


def test_advice_on_a_model_input() -> None:
    assert said(make_row(op_type="Input", error=0.1, error_growth=math.inf)).startswith("Nothing comes before it")


@pytest.mark.parametrize(
    ("precision", "rtol", "errors", "said_so"),
    [
        ("float16", 1e-4, (0.1, 0.1, 1e-5), True),
        ("float16", 1e-4, (0.1, 1e-5, 1e-5), False),
        ("float16", 1e-2, (0.1, 0.1, 0.1), False),
        ("bfloat16", 1e-3, (0.1,), True),
        ("int8", 1e-4, (0.1,), True),
        ("model", 1e-9, (0.1,), False),
        ("int8", 1e-4, (None,), False),
    ],
)
def test_a_tolerance_finer_than_the_arithmetic_is_named(
    precision: str, rtol: float, errors: tuple[float | None, ...], said_so: bool
) -> None:
    report = with_rows(*(make_row(n, error) for n, error in enumerate(errors)))
    report = dataclasses.replace(
        report,
        target=dataclasses.replace(report.target, precision=precision),
        spec=dataclasses.replace(report.spec, tolerance=Tolerance(rtol=rtol)),
    )
    details = " ".join(each.en for each in summarise(report).details)
    assert (f"than one rounding in {report.target.mode}" in details) == said_so


def test_advice_without_growth() -> None:
    assert "rowth" not in said(make_row(error=0.1, error_growth=None))
    assert "rowth" not in said(make_row(error=0.1, error_growth=math.nan))
    assert said(make_row(error=None)) == ""


def test_advice_on_outliers_and_subnormals() -> None:
    numbers = make_comparison(2e-3, mismatched=7, fp16_subnormal=802816)
    text = said(make_row(comparison=numbers))
    assert holds_approved(text)
    assert holds_approved(text, 2)
    assert "2^-14" not in said(make_row(comparison=numbers), "int8")


def test_advised_tolerances_are_enough() -> None:
    numbers = make_comparison(0.1, required_atol=0.012301, required_rtol=math.inf)
    assert "would pass with --atol 0.013." in said(make_row(comparison=numbers))
    useless = make_comparison(0.1, required_atol=1e6, required_rtol=57000.0)  # a result of nothing but 0 would pass
    assert "would pass" not in said(make_row(comparison=useless))
    for value in (0.012301, 1.0, 9.99e-9, 123456.0, 5e-324, 0.1 + 0.2):
        assert float(format_sufficient(value)) >= value
    assert format_sufficient(math.inf) == "inf"


def test_tolerance_in_words() -> None:
    def text(**values: Any) -> str:
        return " ".join(each.en for each in describe_tolerance(Tolerance(**values)))

    assert "|target - base| <= 0.0001 + 0.0001 * |base|" in text()
    assert "every element does" in text()
    assert holds_approved(text())
    assert holds_approved(text(rule="either", atol=0.1), 2)
    assert holds_approved(text(check_error_stat="median"), 3)
    assert "the 0.95 quantile of its" in text(check_error_stat="quantile", quantile=0.95)
    assert "counts as equal" in text(equal_nan=True)


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0%"), (1e-9, "<0.01%"), (0.5, "50%"), (0.99999, ">99.99%"), (1.0, "100%")]
)
def test_percent_is_never_rounded_to_all_or_nothing(share: float, text: str) -> None:
    assert format_percent(share) == text


def test_figures() -> None:
    assert [format_figure(v) for v in (None, 0.0, 1.23456e-7, math.inf, math.nan)] == [
        "",
        "0",
        "1.235e-07",
        "inf",
        "nan",
    ]
    assert [format_duration(v) for v in (None, 0.5, 61.2, 3725.0)] == ["", "0.5 s", "61.2 s", "62 min 5 s"]


def test_curve_holds_every_compared_row() -> None:
    report = make_report(300)
    drawn = make_curve(report)
    assert [point.index for point in drawn.points] == [row.index for row in report.compared]
    assert drawn.thinned == 1
    for point in drawn.points:
        for value in (point.relative_l2, point.max_abs):
            assert value is None or drawn.low <= value <= drawn.high


def test_thinning_keeps_the_extremes() -> None:
    report = make_report(20000)
    whole, thin = make_curve(report, limit=10**9), make_curve(report, limit=1000)
    assert len(thin.points) <= 1000
    assert thin.thinned > 1
    assert [point.index for point in thin.points] == sorted({point.index for point in thin.points})
    kept = {point.index for point in thin.points}
    for name in ("relative_l2", "max_abs"):
        assert max(whole.points, key=lambda point: getattr(point, name) or 0).index in kept
    for start in range(0, len(whole.points), thin.thinned):
        part = whole.points[start : start + thin.thinned]
        assert max(part, key=lambda point: point.relative_l2 or 0).index in kept
        assert any(point.broken for point in part) == any(point.broken for point in part if point.index in kept)
        assert any(point.failed for point in part) == any(point.failed for point in part if point.index in kept)


def test_curve_of_odd_errors() -> None:
    zero = make_row(0, 0.0)
    tiny = make_row(1, comparison=make_comparison(1e-30))
    wild = make_row(2, comparison=make_comparison(0.1, max_abs=math.inf, sqnr_db=math.nan), status=Status.FAIL)
    other = make_row(3, comparison=make_comparison(0.1, target=make_stats(shape=(2,))), status=Status.FAIL)
    nan_only = make_row(4, comparison=make_comparison(0.0), status=Status.FAIL)
    points = make_curve(with_rows(zero, tiny, wild, other, nan_only)).points
    assert [point.broken for point in points] == [False, False, True, True, True]
    assert points[0].relative_l2 == points[1].relative_l2 == 1e-12
    assert points[2].relative_l2 is None
    assert [point.exact for point in points] == [True, False, False, False, False]
    born = make_row(5, comparison=make_comparison(0.0, target=make_stats(inf=3), max_abs=math.inf), status=Status.FAIL)
    assert make_curve(with_rows(born)).points[0].relative_l2 is None, "of the elements that are left"
    assert make_curve(with_rows()).points == ()


def test_a_section_has_no_column_in_which_nothing_is_said() -> None:
    def cell(text: str) -> Cell:
        return Cell(text=same(text))

    head = tuple(map(same, ("a", "b", "c")))
    section = Section(key="k", title=same("t"), head=head, lines=((cell(""), cell(""), cell("x")),) * 2)
    told = section.without_empty_columns()
    assert told.head == (same("a"), same("c")), "the first one stays"
    assert [[one.text.en for one in line] for line in told.lines] == [["", "x"]] * 2


def test_shares_of_nothing_are_not_told() -> None:
    passed = with_rows(make_row(0, 1e-5), make_row(1, 1e-5))
    assert not any("fused away" in text.en or "0 were" in text.en for text in summarise(passed).details)
    fused = with_rows(make_row(0, 1e-5), make_row(1, None))
    assert any(text.en.endswith("1 compared (50%), 1 fused away (50%).") for text in summarise(fused).details)


def test_an_operator_is_said_to_lose_precision_itself_only_where_that_was_measured() -> None:
    row = make_row(error=0.1, error_growth=12.5, inputs=("x",))
    own = Introduced(name=row.name, method="isolated", elements=6, rel_l2=0.07)
    assert holds_approved(said(dataclasses.replace(row, introduced=own)))
    report = dataclasses.replace(make_report(0), rows=(dataclasses.replace(row, status=Status.FAIL),))
    titles = {section.key: section.title.en for section in summarise(report).sections}
    assert begins_approved(titles["worst"], 2)


def test_who_only_hands_on_an_error_is_not_to_be_tried_first() -> None:
    """Before: "Error growth 4.911: it introduced 0 itself. Try it in higher precision first", and a list of the worst
    operators by what they introduced, each of which introduced 0 (a captcha in dynamic INT8)."""
    lost = make_row(0, error=1e-3, error_growth=1.0, inputs=("x",))
    row = make_row(1, error=0.1, error_growth=4.9, inputs=("x",))
    none = Introduced(name=row.name, method="isolated", elements=6, rel_l2=0.0)
    handed = dataclasses.replace(row, introduced=none, status=Status.FAIL)
    sentence = said(handed)
    assert holds_approved(sentence)
    assert "Try it" not in sentence
    own = dataclasses.replace(none, name=lost.name, rel_l2=1e-3)
    report = dataclasses.replace(
        make_report(0), rows=(dataclasses.replace(lost, introduced=own, status=Status.PASS), handed)
    )
    assert [one.name for one in report.worst()] == [lost.name]
