"""Each sentence that a report can begin with stands in docs/verdict.md, beside what was measured for it."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest
from approval import begins_approved, holds_approved, is_approved
from report_factory import make_comparison, make_report, make_row, make_stats

from precision_debug.protocols import Executed
from precision_debug.reasons import say
from precision_debug.records import Culprit, Doubt, Explanation, Introduced, Overlap, Row, Status, Tolerance
from precision_debug.report.blame import blame, describe_culprit, describe_expectation
from precision_debug.report.fix import describe_tried
from precision_debug.report.lead import lead_sentences
from precision_debug.report.model import Report, Verdict
from precision_debug.search.fix import ToKeep

HEADINGS = {"docs/verdict.md": "### What each sentence rests on", "docs/verdict.zh.md": "### 每句话的依据"}

FINE = (make_row(0, 1e-4), make_row(1, 1e-4, name="logits", is_output=True))
MORE = (FINE[0], dataclasses.replace(make_row(1, 2e-3, name="logits", is_output=True), status=Status.PASS))
INSIDE = (make_row(0, 0.5, name="inside"), make_row(1, 1e-4, name="logits", is_output=True))
WRONG = (make_row(0, 1e-4), make_row(1, 0.5, name="logits", is_output=True))


def culprit(cause: str = "overflow", **evidence: Any) -> Culprit:
    shown = evidence or {"largest": 1e5, "limit": 65504.0, "count": 3}
    return Culprit(name="inside", node="n", op_types=("Mul",), cause=cause, evidence=shown, share=0.95, at="logits",
                   keep=("inside",))  # fmt: skip


def explained(state: str, **more: Any) -> Explanation:
    return Explanation(**{"state": state, "at": "logits", "actual": 0.5, "allowed": 0.1, "unit": 0.01, **more})


def report(rows: Any, explanation: Explanation | None, **more: Any) -> Report:
    plain = make_report(0)
    spec = dataclasses.replace(
        plain.spec, tolerance=Tolerance(given=False), explain="fast" if explanation is not None else "off"
    )
    return dataclasses.replace(plain, spec=spec, rows=rows, explanation=explanation, scores={}, scored=0, **more)


NOT_RUN = Doubt(code="precision_not_run", values={"precision": "BF16", "detail": "FP32 (3)"})
OVERFLOWS = Doubt(code="sum_overflows", values={"op": "Mean", "name": "m", "terms": 4096, "total": 2e5})


def doubted(found: Report, doubt: Doubt = OVERFLOWS) -> Report:
    """The same where one thing is in doubt."""
    return dataclasses.replace(found, target=dataclasses.replace(found.target, doubts=(doubt,)))


def tolerated(found: Report) -> Report:
    """The same where the user's tolerance is met."""
    return dataclasses.replace(found, spec=dataclasses.replace(found.spec, tolerance=Tolerance(atol=1.0, rtol=1.0)))


def all_nan(index: int, **more: Any) -> Row:
    """NaN throughout, on both sides."""
    base = make_stats()
    base = dataclasses.replace(base, nan=base.elements)
    return dataclasses.replace(
        make_row(index, 0.0, **more), status=Status.FAIL, comparison=make_comparison(0.0, base=base, target=base)
    )  # fmt: skip


BROKEN = (make_row(0, 1e-4), all_nan(1, name="logits", is_output=True))
LABELS = dataclasses.replace(
    make_row(1, 0.0, name="labels", is_output=True),
    comparison=make_comparison(0.0, rmse=None, sqnr_db=None, max_abs=None, mean_abs=None),
)  # an output that is no number: it is equal or not
FED = (all_nan(0, name="image", op_type="Input"), *BROKEN[1:])
BORN = (make_row(0, 1e-4), dataclasses.replace(
    make_row(1, 0.5, name="logits", is_output=True),
    comparison=make_comparison(0.5, target=dataclasses.replace(make_stats(), nan=3)),
))  # fmt: skip
TRIED = {"candidates": 40, "tried": 40, "budget": {"inside": 0.2}}
SHARED = dataclasses.replace(culprit(), with_all=0.37, repaired=0.352, without=0.224, left_out=("inside", "b", "c"))
OVERLAP = Overlap(name="inside", alone=0.131, without=0.1457, fewest=18, tried=83)
REPORTS = {
    "… lost the precision: …": report(WRONG, explained("culprits", culprits=(culprit(),))),
    "… differs between the two models: …": report(WRONG, explained("culprits", culprits=(
        culprit("files_differ", what=say("a_constant"), name="w", base=1.0, target=2.0),))),
    "… causes the error: …": report(WRONG, explained("culprits", culprits=(culprit("random", between=0.3),))),
    "The error at … is made by several operators together: …": report(
        WRONG, explained("culprits", culprits=(SHARED,), actual=0.4)),
    "Input … differs between the two sides: …": report(WRONG, explained("culprits", culprits=(
        culprit("inputs_differ", error=0.5, base_dtype="float32", target_dtype="float32", base_range="0 to 1",
                target_range="0 to 2"),))),
    "As expected; one operator makes … of the error: …": report(
        FINE, explained("culprits", culprits=(culprit(),), passes=True)
    ),
    "Nothing to do: …": report(FINE, explained("healthy", actual=1e-4)),
    "The outputs are as expected: …": report(INSIDE, explained("healthy", actual=1e-4, unfelt="inside")),
    "All … compared tensors agree.": report((FINE[0], LABELS), explained("healthy", actual=0.0)),
    "All … compared tensors agree, and …": report(MORE, explained("unknown", reason=say("not_alone"))),
    "The file proves it: …": report(
        FINE, explained("healthy"), notes=(say("proven_bias_clipped", op="Conv", name="c", bias="b", count=3),)
    ),
    "Input … itself holds NaN or Inf…": report(FED, explained("healthy", actual=0.0)),
    "The final output … holds NaN or Inf on both sides …": report(BROKEN, explained("healthy", actual=0.0)),
    "No output was judged: …": report(FINE[:1], explained("healthy", actual=0.0)),
    "Diffuse: no single culprit. …": report(WRONG, explained("diffuse", **TRIED)),
    "Diffuse: no single culprit, because …": report(
        WRONG, explained("diffuse", actual=0.13, at="logits", overlap=OVERLAP, **TRIED)
    ),
    "No culprit was found. …": report(WRONG, explained("unknown", reason=say("not_alone"))),
    "No culprit was looked for…": report(WRONG, None),
    "The run ended early: …": report(WRONG, None, failure="the engine crashed"),
    "… rejects the outputs …": report(
        FINE, explained("healthy"), checks={"logits": 0.5}, checked=4, checked_by="mine.py:near"
    ),
}  # fmt: skip
SECOND = {
    "One operator makes … of the error: …": doubted(
        report(FINE, explained("culprits", culprits=(culprit(),), passes=True))
    ),
    "Nobody is accused: …": report(WRONG, explained("healthy", **{**TRIED, "budget": {"inside": 0.6}})),
    "No single operator causes the error: …": report(WRONG, explained("healthy", **TRIED)),
    "No culprit: the outputs are off by …": report(WRONG, explained("healthy")),
    "NaN or Inf first appears in …": report(BORN, explained("diffuse", **TRIED)),
    "Of the error that is left, one operator makes …: …": tolerated(
        report(FINE, explained("culprits", culprits=(culprit(),)))
    ),
    "The bound of … is the usual one of …: …": report(MORE, None),
    "Whether one operator causes most of it was not measured: …": report(
        MORE, explained("healthy", candidates=40, tried=8)
    ),
    "Which operator introduced the error was not measured: …": report(
        WRONG, explained("unknown", reason=say("not_alone"))
    ),
}
THIRD = {"No output could be compared in numbers…": report(BROKEN, explained("healthy", actual=0.0))}
EVIDENCE = {
    "… is out of bounds, and no output is.": report(INSIDE, explained("healthy", actual=1e-4, unfelt="inside")),
}


def table(root: Path, page: str) -> list[str]:
    """The beginnings in a page's table."""
    text = (root / page).read_text(encoding="utf-8").partition(HEADINGS[page])[2].partition("\n### ")[0]
    return re.findall(r"^\| `(.+?)`", text, re.MULTILINE)


def fits(pattern: str, sentence: str) -> bool:
    return re.match(".*".join(map(re.escape, pattern.split("…"))), sentence) is not None


@pytest.mark.parametrize("pattern", [*REPORTS, *SECOND, *THIRD, *EVIDENCE])
def test_a_report_begins_as_the_documentation_says(pattern: str, root: Path) -> None:
    if pattern in EVIDENCE:
        said = blame(EVIDENCE[pattern]).lines[0][-1].text
    else:
        places = enumerate((REPORTS, SECOND, THIRD))
        place, found = next((place, one[pattern]) for place, one in places if pattern in one)
        said = lead_sentences(found)[place]
    assert fits(pattern, said.en), said.en
    known, chinese = table(root, "docs/verdict.md"), table(root, "docs/verdict.zh.md")
    assert pattern in known
    assert len(known) == len(chinese)
    assert fits(chinese[known.index(pattern)], said.zh), said.zh


def test_the_documentation_has_no_other_sentence(root: Path) -> None:
    assert sorted(table(root, "docs/verdict.md")) == sorted([*REPORTS, *SECOND, *THIRD, *EVIDENCE])


def test_what_a_file_proves_comes_after_the_verdict_of_a_run_that_passes() -> None:
    """An epsilon that float16 cannot hold, in a model whose outputs are as expected: the first sentence is of these."""
    note = say("proven_underflow", name="eps", by="Max floor", value=1e-10, to="float16", least=6e-8)
    found = lead_sentences(dataclasses.replace(REPORTS["The outputs are as expected: …"], notes=(note,)))
    assert found[0] == lead_sentences(REPORTS["The outputs are as expected: …"])[0]
    assert found[1].en.startswith("The file proves it: ")


def test_nothing_that_accuses_stands_beside_as_expected() -> None:
    """AS EXPECTED is never on one screen with "is the first of 62 out of tolerance", nor with a culprit."""
    from precision_debug.cli.summary import format_summary
    from precision_debug.report.summary import summarise

    found = dataclasses.replace(REPORTS["The outputs are as expected: …"])
    page = summarise(found)
    texts = [line.text.en for line in format_summary(found)] + [text.en for text in (*page.lead, *page.details)]
    texts += [cell.text.en for section in page.sections for line in section.lines for cell in line]
    assert any("AS EXPECTED" in text for text in texts)
    for accusing in ("out of tolerance.", "lost the precision itself", "is the first of", "No culprit was"):
        assert [text for text in texts if accusing in text] == []
    assert [text for text in texts if " of 12 elements" in text or "elements (" in text] == []


def test_what_makes_most_of_an_error_is_not_called_without_effect() -> None:
    """As expected, and one operator makes most of it: its tensor may be out of bounds itself."""
    from precision_debug.cli.summary import format_summary
    from precision_debug.report.summary import summarise

    named = explained("culprits", culprits=(culprit(),), passes=True, actual=1e-4)
    found = report(INSIDE, named)
    assert found.verdict is Verdict.EXPECTED
    texts = [line.label.en for line in format_summary(found)] + [text.en for text in summarise(found).details]
    assert "out of bounds" in texts
    assert not [text for text in texts if "no effect" in text or "without affecting" in text]


@pytest.mark.parametrize(("precision", "side"), [("float64", "baseline"), ("float16", "target")])
def test_whose_rounding_costs_it(precision: str, side: str) -> None:
    """A target in float64 rounds nothing that a baseline in float32 does not."""
    made = report(FINE, explained("healthy", actual=1e-7, unit=6e-8))
    made = dataclasses.replace(made, target=dataclasses.replace(made.target, precision=precision))
    (said,) = [cell.text.en for line in blame(made).lines for cell in line if "costs" in cell.text.en]
    assert f"to the {side}'s type costs" in said


def test_what_was_not_looked_for_is_not_called_not_found() -> None:
    ended = report(WRONG, None, failure="interrupted")
    ended = dataclasses.replace(ended, spec=dataclasses.replace(ended.spec, explain="fast"))
    off = report(WRONG, None)
    assert holds_approved(lead_sentences(ended)[2].en)
    assert begins_approved(lead_sentences(off)[0].en, 2)
    assert not [
        text for one in (ended, off) for text in lead_sentences(one) if "was found" in text.en or "未找到" in text.zh
    ]


@pytest.mark.parametrize("born", [0, 3])
def test_an_error_beside_a_result_of_nothing_but_0_is_no_nan(born: int) -> None:
    found = dataclasses.replace(culprit("other_arithmetic", rel_l2=math.inf), introduced=math.inf, units=math.inf)
    own = Introduced(name="inside", method="isolated", elements=6, rel_l2=math.inf, max_abs=47.0, born_inf=born)
    rows = (dataclasses.replace(INSIDE[0], introduced=own), WRONG[1])
    made = report(rows, explained("culprits", culprits=(found,)))
    said = [cell.text.en for line in blame(made).lines for cell in line]
    assert any("NaN or Inf first" in text for text in said) is bool(born)
    assert any("is all 0, so" in text and "(47)" in text for text in said) is (not born)


def test_an_error_within_rounding_is_said_to_be_that_of_the_outputs_with_the_numbers_that_show_it() -> None:
    """Inside, a tensor may be far off: "the error" was all that a reader saw."""
    found = report(INSIDE, explained("healthy", actual=2e-9, unit=0.01))
    text = blame(found).lines[0][0].text
    assert begins_approved(text.en)
    assert text.zh.startswith("无需归因：各输出的")
    assert holds_approved(text.en, 2)
    assert "误差最大为 2e-09，而舍入到目标类型一次就损失 0.01" in text.zh


def test_a_tensor_out_of_bounds_that_affects_no_output_is_told_with_its_own_numbers() -> None:
    """That it "lost more than its type explains" was not measured: its error may be its inputs'."""
    off = dataclasses.replace(INSIDE[0], reason=say("beyond", error=0.5, allowed=0.1))
    said = lead_sentences(report((off, INSIDE[1]), explained("healthy", actual=1e-4)))[0]
    assert holds_approved(said.en)
    assert "`inside` 超限（相对 L2 误差 0.5 超过" in said.zh


def test_what_the_file_proves_is_said_once_on_the_terminal() -> None:
    from precision_debug.cli.summary import format_summary

    note = say("proven_bias_clipped", op="Conv", name="c", bias="b", count=1)
    found = report(FINE, explained("healthy"), notes=(note, say("fail_fast", name="x")))
    texts = [line.text.en for line in format_summary(found)]
    assert len([text for text in texts if text.startswith("The file proves it")]) == 1
    assert len([text for text in texts if "(1 element)" in text]) == 1, "one element is no elements"
    assert len(set(texts)) == len(texts)


ONE = explained("culprits", culprits=(culprit(),), allowed=0.03, expected=0.02, actual=0.09)


def test_what_is_expected_is_no_less_than_what_rounding_everywhere_predicts() -> None:
    """The bound of an error that one operator makes was called the expectation, beside a prediction beyond it."""
    said, = describe_expectation(report(WRONG, ONE))
    assert holds_approved(said.en)
    assert holds_approved(said.en, 2)
    assert "若其大部分来自单个算子，则以 0.03 为限" in said.zh
    healthy, = describe_expectation(report(WRONG, dataclasses.replace(ONE, culprits=(), allowed=0.1)))
    assert "one operator" not in healthy.en


@pytest.mark.parametrize(
    ("after", "state", "strict", "says", "sagt"),
    [
        (0.02, "mended", False, "as expected (up to 0.03)", "符合预期（不超过 0.03）"),
        (0.05, "lessened", False, "as expected unless one operator makes most of that (up to 0.1)", "除非"),
        (0.2, "lessened", False, "still more than expected (up to 0.1)", "仍高于预期（不超过 0.1）"),
        (0.02, "lessened", True, "still out of tolerance", "仍超出容差"),
        (0.02, "mended", True, "within the tolerance", "在容差内"),
    ],
)  # fmt: skip
def test_what_a_fix_leaves_is_judged_as_a_run_with_it_would_be(
    after: float, state: str, strict: bool, says: str, sagt: str
) -> None:
    kept = ToKeep(option="a", keys=("a",), of=8, state=state, before=0.5, after=after, allowed=0.03)
    found = report(WRONG, ONE, to_keep=kept)
    if strict:
        found = dataclasses.replace(found, spec=dataclasses.replace(found.spec, tolerance=Tolerance(given=True)))
    said = describe_tried(found)
    assert said is not None
    assert says in said.en
    assert sagt in said.zh
    assert strict or "tolerance" not in said.en


def test_what_is_inconclusive_is_not_called_as_expected() -> None:
    found = report(FINE, explained("culprits", culprits=(culprit(),), passes=True))
    open_ = doubted(found)
    assert open_.verdict is Verdict.INCONCLUSIVE
    doubt, who, *_ = lead_sentences(open_)  # that nothing is proven comes first, and then who makes it
    assert begins_approved(doubt.en)
    assert begins_approved(who.en, 2)
    assert who.zh.startswith("误差的 95% 来自一个算子：")
    not_run = lead_sentences(doubted(found, NOT_RUN))  # whoever makes it, this is not the run that was asked for
    assert [one.en[:21] for one in not_run[:2]] == ["Nothing ran in BF16: ", "One operator makes 95"]
    assert begins_approved(lead_sentences(found)[0].en, 3)


def test_what_makes_most_of_an_error_that_passes_is_named_and_not_accused() -> None:
    """Neither in the first sentence nor in its section: it lost nothing that anybody has to keep."""
    found = report(FINE, explained("culprits", culprits=(culprit("coarse", units=2.6),), passes=True))
    first, section = lead_sentences(found)[0], blame(found)
    name = culprit().name
    assert f"Mul `{name}` (its own" in first.en
    assert first.zh.endswith(f"`{name}`（其自身舍入到该类型）。")
    assert is_approved(section.title.en)
    for text in (first.en, *(cell.text.en for line in section.lines for cell in line)):
        assert "lost the precision" not in text
        assert "too coarse" not in text
    worse = report(WRONG, explained("culprits", culprits=(culprit("coarse", units=2.6),)))
    assert holds_approved(lead_sentences(worse)[0].en, 2)
    assert blame(worse).title.en == "Culprits and causes"


def test_a_ratio_to_next_to_nothing_is_not_told() -> None:
    """A saturated softmax is off by 1e-9 and predicted to be off by less: 44 times that says nothing."""
    tiny = report(FINE, explained("healthy", actual=1.9e-9, expected=4.4e-11, allowed=0.1, at=FINE[-1].name))
    said = describe_expectation(tiny)[0]
    assert "x the error predicted" not in said.en
    assert holds_approved(said.en)
    assert "可忽略" in said.zh
    seen = report(FINE, explained("healthy", actual=1.9e-3, expected=1e-3, allowed=0.1, at=FINE[-1].name))
    assert "1.9 x the error predicted" in describe_expectation(seen)[0].en


def test_a_prediction_for_rounding_everywhere_is_not_told_where_most_was_not_seen() -> None:
    """As seen of silero-vad in ov_int8, whose products are all in a branch: "1.13e+06 x the error predicted"."""
    whole = report(WRONG, ONE)
    assert "x the error predicted" in describe_expectation(whole)[0].en
    hidden = tuple(
        make_row(100 + number, None, status=Status.NOT_COMPARED, reason="nobody shows it")
        for number in range(2 * len(whole.rows))
    )
    assert "predicted" not in describe_expectation(dataclasses.replace(whole, rows=(*whole.rows, *hidden)))[0].en


def test_the_only_one_is_not_told_as_many() -> None:
    """As seen: "with all 1 operators kept", "1 of 1 operators still run in INT8"."""
    ran = Executed(low=1, of=1, precision="INT8")
    none = ToKeep(of=1, state="none", before=0.4, after=0.4, runs=1, was=ran, whole=0.2)
    none = dataclasses.replace(none, whole_still=ran, whole_ran=True)
    only = dataclasses.replace(report(WRONG, ONE), to_keep=none)
    said = describe_tried(only)
    assert said is not None
    assert "1 set was kept" in said.en
    assert holds_approved(said.en)
    assert "唯一的一个算子保留时" in said.zh
    half = ToKeep(
        option="-", keys=("a",), of=1, state="mended", before=0.4, after=0.01, allowed=0.1, was=ran, still=ran
    )  # fmt: skip
    kept = describe_tried(dataclasses.replace(only, to_keep=half))
    assert kept is not None
    assert "keeping 1 of 1 operator (`a`)" in kept.en


def test_an_identity_is_not_named_with_what_lost_the_precision() -> None:
    """As seen of PP-OCRv5, whose constants pass through one each: "Identity+Conv+Add `Add.103` lost the precision"."""
    first = dataclasses.replace(ONE.culprits[0], op_types=("Identity", "Conv", "Add"))
    said = lead_sentences(report(WRONG, dataclasses.replace(ONE, culprits=(first,))))[0]
    assert "Conv+Add" in said.en
    assert "Identity" not in said.en + said.zh


@pytest.mark.parametrize("more", [{"repaired": 0.2}, {"without": 0.35}, {"left_out": ("inside",)}, {"repaired": None}])
def test_an_operator_whose_own_repair_helps_begins_the_report(more: dict[str, Any]) -> None:
    """Of six that were named in a detector, the first by itself was a twentieth of the error, and all of them two
    fifths: it was told as if it were alone."""
    assert "together" in lead_sentences(report(WRONG, explained("culprits", culprits=(SHARED,), actual=0.4)))[0].en
    alone = dataclasses.replace(SHARED, **more)
    assert "together" not in lead_sentences(report(WRONG, explained("culprits", culprits=(alone,), actual=0.4)))[0].en


@pytest.mark.parametrize(("left", "told"), [(0.3, False), (0.49, False), (0.56, True), (0.7, True), (None, False)])
@pytest.mark.parametrize("cause", ["constant_scale", "outlier_channel", "cancellation", "saturation"])
def test_a_cause_that_leaves_most_of_the_error_says_so_where_it_is_named(
    cause: str, left: float | None, told: bool
) -> None:
    """Up to 70 % was left, half of the squared error, and the first sentence had the cause alone."""
    evidence = {} if left is None else {"left": left}
    named = Culprit(name="y", node="", op_types=("MatMul",), cause=cause, evidence=evidence)
    found = report((make_row(0),), explained("culprits", culprits=(named,)))
    said = describe_culprit(found, named)
    assert ("of its own error is left" in said.en) is told


@pytest.mark.parametrize(("actual", "said"), [(0.4, True), (0.5, False), (0.2, False)])
def test_errors_that_do_not_make_what_the_output_is_off_by_are_not_told_as_its_parts(actual: float, said: bool) -> None:
    first, *_ = lead_sentences(report(WRONG, explained("culprits", culprits=(SHARED,), actual=actual)))
    assert first.en.startswith("The error at") is said
