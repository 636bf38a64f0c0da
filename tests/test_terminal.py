"""What a terminal shows: at any width, in both languages, and while it still runs."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from approval import begins_approved, holds_approved, is_approved
from report_factory import make_report, make_row

from precision_debug.cli import progress, summary
from precision_debug.cli.parser import choose_language
from precision_debug.events import Stage, to_plain_event
from precision_debug.numbers.told import Token, Tokens, TokenSequence
from precision_debug.reasons import as_reason, say
from precision_debug.records import Culprit, Doubt, Explanation, MetricChange, Status, Tolerance
from precision_debug.report import Report
from precision_debug.report.words import measure_text_width, wrap_text


def explained() -> Report:
    report = make_report(60)
    culprit = Culprit(
        name=report.rows[2].name, node="", op_types=("MatMul",), cause="overflow", confidence="isolated",
        evidence={"largest": 1e6, "limit": 65504.0, "count": 12}, share=0.9, at="logits", keep=(report.rows[2].name,),
    )  # fmt: skip
    return dataclasses.replace(report, explanation=Explanation(state="culprits", culprits=(culprit,), at="logits"))


def printed(report: Report, monkeypatch: pytest.MonkeyPatch, width: int, language: str, *, terminal: bool) -> str:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    summary.show(report, [Path("o.html")], language=language)
    monkeypatch.undo()
    return re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())


def test_the_sentence_is_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    report = explained()
    first = printed(report, monkeypatch, 80, "en", terminal=False).splitlines()[0]
    assert first.startswith(f"MatMul `{report.rows[2].name}` lost the precision: overflow")
    assert f"Keep `{report.rows[2].name}`" in first
    assert "上溢" in printed(report, monkeypatch, 80, "zh", terminal=False).splitlines()[0]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_eighty_columns_break_no_word(monkeypatch: pytest.MonkeyPatch, language: str) -> None:
    report = explained()
    whole = set(printed(report, monkeypatch, 100_000, language, terminal=True).split())
    lines = printed(report, monkeypatch, 80, language, terminal=True).splitlines()
    assert all(measure_text_width(line.rstrip()) <= 80 for line in lines)
    if language == "en":
        room = 80 - 2 - 16 - 2
        broken = {word for line in lines for word in line.split()} - whole
        assert not {
            word for word in broken if len(word) < room and not any(word in long for long in whole if len(long) > room)
        }


def test_where_it_is_no_terminal_each_line_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    said = printed(explained(), monkeypatch, 40, "en", terminal=False)
    assert "  final outputs     " in said
    assert max(map(len, said.splitlines())) > 80


def test_everything_has_chinese() -> None:
    for report in (make_report(60), make_report(60, failure="killed"), explained(), make_report(0)):
        for line in summary.format_summary(report, [Path("o.html")]):
            assert line.label.en == line.label.zh or not line.label.zh.isascii()
            if line.label.en in ("report", "inputs", "note", "on the answer"):
                continue  # paths, names, and what a backend of the factory says
            assert not line.text.zh.isascii(), line


def test_the_advice_of_the_page_is_given_too() -> None:
    rows = (make_row(0, 1e-5), make_row(1, 0.4, error_growth=400.0))
    report = dataclasses.replace(make_report(0), rows=rows)
    labels = {line.label.en: line.text.en for line in summary.format_summary(report)}
    assert "Every element" in labels["what to look at"] or "Error growth" in labels["what to look at"]


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LC_MESSAGES": "zh_TW"}, "zh"),
        ({}, "en"),
    ],
)
def test_the_locale_chooses(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], language: str) -> None:
    for name in ("LANG", "LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert choose_language() == language
    assert choose_language("en") == "en"


def test_progress_tells_stage_tensors_and_what_is_left() -> None:
    now = [100.0]
    run = progress.Progress("en", clock=lambda: now[0])
    run.take(to_plain_event(Stage(text=say("stage_running", side=say("target"), mode="ort_int8"))))
    run.take({"event": "plan", "baseline": 10, "target": 11})
    assert run.left is None
    for _ in range(11):
        run.take({"event": "row"})
        now[0] += 2.0
    assert run.left == pytest.approx(22.0)
    assert is_approved(run.line())
    chinese = progress.Progress("zh", clock=lambda: now[0])
    chinese.take(to_plain_event(Stage(text=say("stage_running", side=say("target"), mode="ort_int8"))))
    assert chinese.line().startswith("运行目标：ort_int8")


@pytest.mark.parametrize("stage", ["explaining", "second_opinion", "trying_fixes", "writing"])
def test_a_stage_without_rows_does_not_stand_at_all_of_the_tensors(stage: str) -> None:
    now = [0.0]
    run = progress.Progress("en", clock=lambda: now[0])
    run.take({"event": "plan", "baseline": 1, "target": 1})
    for _ in range(2):
        run.take({"event": "row"})
    assert run.line() == "starting, 2 of 2 tensors, 0 s"
    text = say(f"stage_{stage}")
    run.take(to_plain_event(Stage(text=text)))
    assert run.line() == f"{text}, 0 s"
    assert run.left is None


def test_a_line_now_and_then_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(progress.VARIABLE)
    said: Any = ""
    with progress.show_progress(language="en", every=0.05) as on_event:
        on_event(to_plain_event(Stage(text=say("stage_opening", side=say("baseline"), mode="ort_fp32"))))
        for _ in range(600):
            said += capsys.readouterr().err
            if said:
                break
            time.sleep(0.05)
    assert begins_approved(said)
    capsys.readouterr()  # another line may have come before the bar ended
    with progress.show_progress(language="en") as on_event:
        on_event({"event": "row"})
    assert capsys.readouterr().err == "", "a short run says nothing"
    monkeypatch.setenv(progress.VARIABLE, "off")
    monkeypatch.setattr(progress, "NEWS", 0.0)
    with progress.show_progress(language="en", every=0.05) as on_event:
        on_event(to_plain_event(Stage(text=say("stage_opening", side=say("baseline"), mode="ort_fp32"))))
        time.sleep(0.2)
    assert capsys.readouterr().err == "", "it was switched off"


def test_lines_end_at_spaces_and_between_chinese_characters() -> None:
    said = "最终输出 probabilities：3600 个元素中有 3598 个（99.94%），信噪比 -0.1 dB，为输入误差的 1.04 倍。"
    lines = wrap_text(said, 30)
    assert "".join(lines).replace(" ", "") == said.replace(" ", "")
    assert all(measure_text_width(line) <= 30 for line in lines)
    assert all(measure_text_width(line) > 20 for line in lines[:-1]), "Chinese fills its lines"
    assert not any(line[0] in "，。；：、）" or line[-1] == "（" for line in lines)
    assert wrap_text("a " + "b" * 50, 20) == ["a", "b" * 20, "b" * 20, "b" * 10]
    assert wrap_text("", 20) == [""]
    for width in (1, 2, 3):
        assert "".join(wrap_text("中文 ab", width)).replace(" ", "") == "中文ab"


def test_where_nothing_is_wrong_the_first_screen_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(make_row(number, 1e-5, is_output=number > 16) for number in range(20))
    calm = dataclasses.replace(make_report(0), rows=rows, notes=tuple(f"note number {n} says this" for n in range(6)))
    calm = dataclasses.replace(calm, scores={}, scored=0)
    assert calm.first_mismatch is None
    for language in ("en", "zh"):
        lines = printed(calm, monkeypatch, 400, language, terminal=False).splitlines()
        assert len(lines) <= 6
        assert sum(len(line.split()) for line in lines) <= 110
        assert not any("note number" in line for line in lines)
    assert sum("note number" in line.text.en for line in summary.format_summary(calm)) == 6, (
        "without a report all is said"
    )
    assert "note number 0" in printed(explained(), monkeypatch, 400, "en", terminal=False) or not explained().notes


@pytest.mark.parametrize("shape", ["many outputs", "three reasons", "padded", "one of either"])
def test_what_is_healthy_takes_six_lines_whatever_was_left_out(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """Its outputs, why tensors were not compared, and notes are told by the report; what has to be minded is not."""
    many = 30 if shape == "many outputs" else 2
    rows = [make_row(number, 1e-5, is_output=number >= 40 - many) for number in range(40)]
    for number, reason in enumerate(("fused", "hidden", "of another kind")[: 3 if shape != "many outputs" else 0]):
        left = dataclasses.replace(rows[number], status=Status.NOT_COMPARED, reason=as_reason(reason), comparison=None)
        rows[number] = left
    padded = say("output_padding", name="y", axis=1, count=8, of_target=True)
    notes = ("a note", *([padded] if shape in ("padded", "one of either") else []))
    calm = dataclasses.replace(make_report(0), rows=tuple(rows), notes=notes, scores={}, scored=0)
    for language in ("en", "zh"):
        said = printed(calm, monkeypatch, 400, language, terminal=False)
        assert len(said.splitlines()) <= 6
        assert ("y has 8 more" in said or "多出 8 个" in said) == (padded in notes)
        assert "hidden" not in said


@pytest.mark.parametrize("count", [1, 2])
def test_what_has_to_be_minded_of_a_pass_takes_one_line_of_six(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A weight in blocks, and experts of their own tokens, took 11 and 9 lines although nothing was wrong."""
    rows = tuple(make_row(number, 1e-5, is_output=number == 7) for number in range(8))
    calm = dataclasses.replace(make_report(0), rows=rows, scores={}, scored=0, notes=("a note",))
    doubts = (Doubt(code="not_fp32", values={"mode": "ort_fp32", "detail": "DequantizeLinear (1)"}),
              Doubt(code="run_once", values={}))[:count]  # fmt: skip
    calm = dataclasses.replace(calm, target=dataclasses.replace(calm.target, doubts=doubts))
    assert calm.exit_status == 0
    for language, words in (("en", ("is not FP32 here", "--run_once")), ("zh", ("并非 FP32", "--run_once"))):
        said = printed(calm, monkeypatch, 400, language, terminal=False)
        assert len(said.splitlines()) <= 6
        assert all(word in said for word in words[:count])


@pytest.mark.parametrize("more", ["of both sides", "three numbers"])
def test_whatever_is_minded_of_a_pass_takes_one_line(monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    """A float16 file that both sides compute in float32, and a compiled module in BF16, took seven lines."""
    rows = tuple(make_row(number, 1e-5, is_output=number == 7) for number in range(8))
    values: dict[str, Any] = {"exact_base": 4e-8, "exact_target": 4e-8, "apart": 0.0}
    notes = (say("beside_float64", baseline="one", target="other", **values),) if more == "three numbers" else tuple(
        say("output_padding", name=name, axis=1, count=8, of_target=True) for name in ("y", "z")
    )  # fmt: skip
    calm = dataclasses.replace(make_report(0), rows=rows, scores={}, scored=0, notes=notes)
    doubts = (Doubt(code="not_fp32", values={"mode": "ort_fp32", "detail": "bfloat16 (1)"}),)
    calm = dataclasses.replace(calm, target=dataclasses.replace(calm.target, doubts=doubts if len(notes) == 1 else ()))
    for language, words in (("en", ("float64", "z has 8 more")), ("zh", ("float64", "多出 8 个"))):
        said = printed(calm, monkeypatch, 400, language, terminal=False)
        assert len(said.splitlines()) <= 6
        assert words[more != "three numbers"] in said


@pytest.mark.parametrize("more", ["an infinity inside", "tokens that flip", "three numbers"])
def test_what_a_pass_has_to_tell_takes_the_place_of_its_counts(monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    """A mask of the target alone, a language model in BF16 and a compiled module took seven lines although nothing was
    wrong."""
    rows = [make_row(number, 1e-5, is_output=number == 7) for number in range(8)]
    plain = calm = dataclasses.replace(make_report(0), rows=tuple(rows), scores={}, scored=0, notes=())
    if more == "tokens that flip":
        token = Token(row=0, place=1, id=7, base=-2.0, target=-2.1, rank=1, target_rank=2, chosen=3, target_chosen=4,
                      kl=0.01, margin=0.5, error=0.01)  # fmt: skip
        flipped = TokenSequence(row=0, tokens=1, predictions=1, flips=1)
        told = Tokens(ids="x", logits="y", vocabulary=9, predictions=1, tokens=(token,), sequences=(flipped,))
        calm = dataclasses.replace(calm, tokens=told)
    elif more == "three numbers":
        values: dict[str, Any] = {"exact_base": 4e-8, "exact_target": 4e-8, "apart": 0.0}
        calm = dataclasses.replace(calm, notes=(say("beside_float64", baseline="one", target="other", **values),))
    else:
        assert rows[2].comparison is not None
        broken = dataclasses.replace(rows[2].comparison.target, nan=4)
        rows[2] = dataclasses.replace(rows[2], status=Status.UNMATCHED, comparison=None, target=broken)
    calm = dataclasses.replace(calm, rows=tuple(rows))
    assert calm.exit_status == 0
    words = {"three numbers": ("float64", "float64"), "tokens that flip": ("flip", "贪心")}.get(more, ("NaN", "NaN"))
    for language, word in zip(("en", "zh"), words, strict=True):
        said = printed(calm, monkeypatch, 400, language, terminal=False)
        assert len(said.splitlines()) == len(printed(plain, monkeypatch, 400, language, terminal=False).splitlines())
        assert word in said


def test_where_the_users_metric_holds_whoever_makes_the_error_is_in_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator "lost the precision", in twenty lines, below a metric that is as good as the baseline's."""
    found = explained()
    spec = dataclasses.replace(
        found.spec, tolerance=Tolerance(given=False), metric="metric.py:recall", metric_drop="0.1"
    )
    same = MetricChange(name="recall", baseline=1.0, target=1.0, samples=4)
    held = dataclasses.replace(found, spec=spec, metric=same, scores={"recall, baseline": 1.0}, scored=4)
    assert held.exit_status == 0
    said = printed(held, monkeypatch, 400, "en", terminal=False)
    assert "lost the precision" not in said
    assert len(said.splitlines()) <= 6


def test_a_single_tensor_and_identical_outputs_are_said_as_they_are() -> None:
    same_bits = make_row(0, 0.0, is_output=True)
    report = make_report(0)
    report = dataclasses.replace(
        report, rows=(same_bits,), target=dataclasses.replace(report.target, mode="ort_opt", precision="")
    )
    said = next(summary.format_summary(report)).text.en
    assert holds_approved(said)
    assert "is identical" in said
    assert "1.7e" not in said
    two = dataclasses.replace(report, rows=(same_bits, make_row(1, 0.0, is_output=True)))
    assert "every output is identical" in next(summary.format_summary(two)).text.en


def test_a_notebook_shows_the_sentence_and_the_worst_rows() -> None:
    report = explained()
    shown = report._repr_html_()
    assert report.rows[2].name in shown
    assert "lost the precision" in shown
    assert 1 < shown.count("<tr>") <= 11
    name = "<script>alert(1)</script>"
    bad = dataclasses.replace(report, rows=(make_row(0, 0.5, name=name),), explanation=None)
    assert name not in bad._repr_html_()
    assert "&lt;script&gt;" in bad._repr_html_()
