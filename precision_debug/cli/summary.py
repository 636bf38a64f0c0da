"""What the terminal says of a finished report: the sentence first, then what it rests on."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..claims.of_report import metric_decides
from ..reasons import Text, as_reason, same
from ..records import Row, Status
from ..registry import find_wording
from ..report.advice import advise_on_fine_tolerance, list_advice
from ..report.blame import blame, describe_expectation, named_culprits
from ..report.doubts import WEIGHTIEST, decides, describe_doubt, describe_held_claims
from ..report.fix import FIX_NAME, fix_lines
from ..report.lead import lead_sentences
from ..report.model import Report, Verdict
from ..report.next_step import FIX, MIND, NEXT, PASTE, PROGRAM
from ..report.summary import STATUS_NAME, VERDICT_NAME, describe_shares, name_worst_order
from ..report.tokens import describe_tokens
from ..report.values import is_newly_broken
from ..report.words import explain_reason, measure_text_width, wrap_text
from ..safety.untrusted import make_visible
from .parser import choose_language

__all__ = ["Line", "describe_row", "format_summary", "show"]

_STYLE = {
    Verdict.PASS: "bold green",
    Verdict.EXPECTED: "bold green",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.PARTIAL: "bold yellow",
}
_FIX_STYLE = {"good": "bold green", "warn": "bold yellow", "bad": "bold red"}
_ROW_STYLE = {Status.FAIL: "red", Status.INCONCLUSIVE: "yellow"}
_NOTHING = same("")
_LABEL = 16


@dataclass(frozen=True, kw_only=True)
class Line:
    """style: in rich's words. label: what stands before it, "" for a sentence that goes over the whole width.

    whole: never broken by us, so that what is copied from a terminal is one line.
    """

    text: Text
    label: Text = _NOTHING
    style: str = ""
    whole: bool = False


def show(report: Report, outputs: Sequence[Path], *, language: str = "") -> None:
    """Print the summary to standard output: on a terminal coloured, and broken between words at its width.

    language: "en" or "zh"; "": that of the locale. Where it is not a terminal, each line stays whole: programs read it.
    """
    from rich.console import Console
    from rich.text import Text as Styled

    language = choose_language(language)
    console = Console(highlight=False, soft_wrap=True)
    for line in format_summary(report, outputs):
        label, text = (make_visible(part.of(language)) for part in (line.label, line.text))
        before = f"  {_pad_label(label)}" if label else ""
        if not console.is_terminal or line.whole:
            console.print(Styled(before + text), soft_wrap=True)
            continue
        for part in wrap_text(text, max(20, console.width - measure_text_width(before))):
            console.print(Styled(before).append(part, style=line.style), soft_wrap=True)
            before = " " * measure_text_width(before)


def _pad_label(label: str) -> str:
    """Chinese characters take two places."""
    return label + " " * max(2, _LABEL + 2 - measure_text_width(label))


def format_summary(report: Report, outputs: Sequence[Path] = ()) -> Iterator[Line]:
    """Yield the sentence, the verdict, what it rests on, what was not proven, outputs, scores, notes, files.

    Where nothing is wrong and a report is written, the rest is there: see ``_passing_lines``.
    """
    if outputs and _is_nothing_wrong(report):
        yield from _passing_lines(report)
    else:
        yield from _answer_lines(report)
        yield from _coverage_lines(report)
        yield from _failure_lines(report)
        yield from _outcome_lines(report)
        yield from _note_lines(report)
    for output in outputs:
        yield Line(label=Text("report", "报告"), text=same(str(output)))
    if outputs and report.inputs_file:
        place, source = outputs[0].parent / report.inputs_file, explain_reason(report.inputs_source)
        yield Line(label=Text("inputs", "输入"), text=Text(f"{place} ({source.en})", f"{place}（{source.zh}）"))
    if outputs and report.tensors_file:
        place, number = outputs[0].parent / report.tensors_file, len(report.saved_tensors)
        said = Text(f"{place} ({number} worst, both sides)", f"{place}（误差最大的 {number} 个，两侧）")
        yield Line(label=Text("tensors", "张量"), text=said)


def _is_nothing_wrong(report: Report) -> bool:
    """Return whether there is nothing to do; a tensor between that no output feels is told by the answer itself. What
    the user's metric does not feel is in the report, whoever makes it."""
    good = report.verdict in (Verdict.PASS, Verdict.EXPECTED) and not report.failure and report.fix is None
    unfelt = report.first_mismatch is None or report.verdict is Verdict.EXPECTED
    heard = not any(decides(doubt) for doubt in report.doubts) and not report.checks
    return good and heard and (_does_metric_hold(report) or (unfelt and not named_culprits(report)))


def _does_metric_hold(report: Report) -> bool:
    """Return whether a metric of the user's decides, and no tolerance, and holds: the first sentence has it."""
    return metric_decides(report) and report.verdict is Verdict.PASS


def _passing_lines(report: Report) -> Iterator[Line]:
    """Yield the sentence, which has the worst output, the verdict, what was compared, what users asked for, and where
    the rest is: six lines with a report and its inputs, where nobody asked for more. What has to be minded, the first
    that the files prove of what no output feels, NaN or Inf inside, tokens that flip, or numbers beside a third run
    take the place of the tensors' counts, whose share stands in what it rests on."""
    answer = list(_answer_lines(report))
    yield from answer[:2]
    by_metric = _does_metric_hold(report)
    # what the sentence alone would hide
    hidden = [] if by_metric else [line for line in answer[2:] if not line.label.en]
    codes = {explain_reason(note).en: as_reason(note).code for note in report.notes}
    proven = [line for line in hidden if codes.get(line.text.en, "").startswith("proven_")]
    proven = proven if answer[0].text.en not in codes else []  # a fault of both sides begins, and none is folded
    yield from (line for line in hidden if line not in proven[1:])
    tensors, *covered = _coverage_lines(report)
    notes, inside = list(_note_lines(report)), list(_failure_lines(report))
    asked, wider = list(_note_lines(report, _TOLD_OF_A_PASS)), [line for line in notes if line.label == _MIND]
    if minded := [*(line for line in covered if line.label == _MIND), *wider]:  # one line of all that is to be minded
        beside = [line for line in _note_lines(report, frozenset({"beside_float64"})) if line in asked]  # nobody asked
        wider = [_join_lines([*minded, *beside])]
    else:
        beside = []
    folded = [*proven[1:], *(inside if proven else [])]
    told = inside if report.first_mismatch is not None else []
    outcome = list(_outcome_lines(report))
    flips = report.tokens is not None and any(one.flips for one in report.tokens.sequences)
    shown = {*([] if by_metric else ["on the answer"]), *(["tokens"] if flips else [])}
    scores = [line for line in outcome if line.label.en in shown]
    further = [line for line in outcome if line.label.en != " " and line not in scores]
    if wider or proven or scores or asked or (inside and not told):
        further.append(tensors)
    else:
        yield tensors
    said = (*answer[2:], *notes, *told, *further)
    left = [line for line in said if (line.label.en or by_metric) and line.label != _MIND and line not in asked]
    left += [line for line in folded if line not in left]
    yield Line(label=Text("rests on", "依据"), text=describe_held_claims(report, WEIGHTIEST, further=len(left)))
    yield from wider
    if not told and not proven:
        yield from inside
    yield from scores
    yield from (line for line in asked if line not in beside)


def _join_lines(lines: Sequence[Line]) -> Line:
    *before, last = (line.text for line in lines)  # a note is no whole sentence
    en = "".join(f"{one.en} " if one.en.endswith(".") else f"{one.en}; " for one in before)
    zh = "".join(one.zh if one.zh.endswith("。") else f"{one.zh}；" for one in before)
    return dataclasses.replace(lines[0], text=Text(f"{en}{last.en}", f"{zh}{last.zh}"))


def _answer_lines(report: Report) -> Iterator[Line]:
    target, baseline = report.target, report.baseline
    first, *more = lead_sentences(report)
    style = _STYLE[report.verdict]
    answered = style if report.fix is None or report.failure else _FIX_STYLE[FIX_NAME[report.fix.state][1]]
    yield Line(text=first, style=answered)
    name = VERDICT_NAME[report.verdict]
    simulated = Text(" (a simulation)", "（模拟）") if target.simulation else _NOTHING
    if report.fix is not None:
        found = FIX_NAME[report.fix.state][0]
        without = f"{name.en[:1].lower()}{name.en[1:]} with nothing kept"
        shown = Text(f"{found.en.upper()} ({without})", f"{found.zh}（未保留时{name.zh}）")
    else:
        shown = Text(name.en.upper(), name.zh)
    yield Line(
        text=Text(
            f"{shown.en}  {target.mode}{simulated.en} against {baseline.mode}, {target.model}",
            f"{shown.zh}  {target.mode}{simulated.zh} 对比 {baseline.mode}，{target.model}",
        ),
        style=style,
    )
    for sentence in more:
        yield Line(text=sentence)
    said = {sentence.en for sentence in (first, *more)}
    label = _NOTHING
    for place, cells in enumerate(blame(report).lines):
        words = [cell.text for cell in cells]
        text = Text(*(" ".join(filter(None, part)) for part in zip(*words, strict=True)))
        if (place == 0 and named_culprits(report)) or words[-1].en in said:
            continue  # the lead says it
        pasted = cells[-1].tone == "paste"
        if words[0] in (FIX, MIND, NEXT, PASTE, PROGRAM):
            label, text = Text(words[0].en.lower(), words[0].zh), words[-1]
        elif label.en == "paste" and not words[0].en:
            label = same(" ")
        else:
            label = Text("evidence", "依据")
        yield Line(label=label, text=text, whole=pasted)
    for sentence in describe_expectation(report):
        yield Line(label=Text("expected", "预期"), text=sentence)
    for fix_style, fix_label, text in fix_lines(report):
        yield Line(label=fix_label, text=text, style=fix_style, whole=not fix_label.en)


def _coverage_lines(report: Report) -> Iterator[Line]:
    counts = report.counts
    total = len(report.rows)
    present = [status for status in Status if counts[status]]
    text = Text(
        f"{total}: " + (", ".join(f"{counts[s]} {STATUS_NAME[s].en}" for s in present) or "none"),
        f"{total}：" + ("，".join(f"{STATUS_NAME[s].zh} {counts[s]}" for s in present) or "无"),
    )
    yield Line(label=Text("tensors", "张量"), text=text)
    if report.coverage.compared != report.coverage.total:
        yield Line(label=Text("covered", "覆盖"), text=describe_shares(report))
    yield Line(label=Text("rests on", "依据"), text=describe_held_claims(report))
    said = {sentence.en for sentence in lead_sentences(report)}
    for doubt in report.doubts:
        if describe_doubt(doubt).en in said:
            continue  # the answer says it
        label = Text("not proven", "未证实") if decides(doubt) else Text("mind", "注意")
        yield Line(label=label, text=describe_doubt(doubt), style="yellow")


def _failure_lines(report: Report) -> Iterator[Line]:
    first = report.first_mismatch
    if first is not None and report.verdict is Verdict.EXPECTED:
        felt = bool(named_culprits(report))  # what makes most of an output's error is no tensor without effect
        label = Text("out of bounds", "超限") if felt else Text("inside only", "仅在内部超限")
        yield Line(label=label, text=describe_row(first, counted=False))
    elif first is not None:
        counted = report.spec.tolerance.given
        yield Line(label=Text("first mismatch", "首个超差"), text=describe_row(first, counted=counted))
        if not named_culprits(report):
            for sentence in list_advice(first, report.target.precision)[:2]:
                yield Line(label=Text("what to look at", "建议检查"), text=sentence)
            worst = report.worst(5)
            if worst:
                yield Line(label=Text("worst operators", "损失最大"), text=name_worst_order(worst))
            for row in worst:
                text, own = describe_row(row, counted=counted), row.introduced
                if own is not None and own.rel_l2 is not None:
                    text = Text(f"{text.en}, introduced {own.rel_l2:.3g}", f"{text.zh}，自身引入 {own.rel_l2:.3g}")
                yield Line(label=same(" "), text=text)
    for sentence in advise_on_fine_tolerance(report) if report.spec.tolerance.given else ():
        yield Line(label=Text("mind", "注意"), text=sentence, style="yellow")
    broken = report.first_non_finite
    if broken is not None:
        what = explain_reason(broken.non_finite)
        name = f"#{broken.index} {broken.op_type} {broken.name}"
        label = Text("first NaN or Inf", "首个 NaN 或 Inf")
        yield Line(label=label, text=Text(f"{name}: {what.en}", f"{name}：{what.zh}"), style="yellow")


def _outcome_lines(report: Report) -> Iterator[Line]:
    label = Text("final outputs", "最终输出")
    for row in report.outputs[:10]:
        name, text = STATUS_NAME[row.status], describe_row(row, counted=report.spec.tolerance.given)
        both = Text(f"{name.en:13s} {text.en}", f"{name.zh} {text.zh}")
        yield Line(label=label, text=both, style=_ROW_STYLE.get(row.status, ""))
        label = same(" ")
    if len(report.outputs) > 10:
        more = len(report.outputs) - 10
        yield Line(label=label, text=Text(f"… and {more} more", f"……另有 {more} 个"))
    if report.scores:
        samples = f" (n = {report.scored})" if report.scored else ""
        named = [(explain_reason(name), f"{value:.2%}") for name, value in report.scores.items()]
        english = ", ".join(f"{name.en} {value}" for name, value in named)
        chinese = "，".join(f"{name.zh} {value}" for name, value in named)
        yield Line(label=Text("on the answer", "对结果的影响"), text=Text(english + samples, chinese + samples))
    for label, text in describe_tokens(report):
        yield Line(label=label, text=text)
    missing = Counter(row.reason for row in report.rows if row.status is Status.NOT_COMPARED)
    for reason, number in missing.most_common(5):
        outcome = explain_reason(reason)
        text = Text(f"{number}: {outcome.en}", f"{number}：{outcome.zh}")
        yield Line(label=Text("not compared", "未比较"), text=text, style="yellow")


_MIND = Text("mind", "注意")

_TOLD_OF_A_PASS = frozenset(
    {"second_opinion", "opinions_differ", "no_second_opinion", "no_other_engine", "beside_float64"}
)
"""Notes that are an answer where nothing is wrong, too: to --second_opinion, and which side is nearer to float64."""


def _note_lines(report: Report, only: frozenset[str] = frozenset()) -> Iterator[Line]:
    """Yield each note once; only: codes of those that are wanted, where not all are."""
    label, said = Text("note", "说明"), {sentence.en for sentence in lead_sentences(report)}
    for note in dict.fromkeys(report.notes):
        if only and as_reason(note).code not in only:
            continue
        known = find_wording(as_reason(note).code)
        first, style = (_MIND, "yellow") if known is not None and known.wider else (label, "dim")
        if (text := explain_reason(note)).en not in said:
            yield Line(label=first, text=text, style=style)
    if only:
        return
    sides = ((Text("baseline", "基线"), report.baseline), (Text("target", "目标"), report.target))
    for note in dict.fromkeys((*report.baseline.notes, *report.target.notes)):
        known = find_wording(as_reason(note).code)
        if known is not None and known.departs:
            continue  # the answer begins with it
        first, style = (_MIND, "yellow") if known is not None and known.wider else (label, "dim")
        whose, text = [name for name, side in sides if note in side.notes], explain_reason(note)
        english, chinese = " and ".join(n.en for n in whose), "与".join(n.zh for n in whose)
        yield Line(label=first, text=Text(f"{english}: {text.en}", f"{chinese}：{text.zh}"), style=style)


def describe_row(row: Row, *, counted: bool = True) -> Text:
    """Describe one row in words: place, operator, tensor, and the numbers that say how bad it is.

    counted: how many elements are beyond the tolerance. Where the user gave none, that many are beyond one that nobody
    asked for, and the relative L2 error that decides is said in its place.
    """
    name = f"#{row.index} {row.op_type} {row.name}"
    comparison = row.comparison
    if comparison is None or row.status is Status.INCONCLUSIVE:
        reason = explain_reason(row.reason)
        return Text(f"{name}: {reason.en}", f"{name}：{reason.zh}")
    if not comparison.shapes_match:
        keys = explain_reason(row.reason) if as_reason(row.reason).code == "map_keys" else same(row.shape_text)
        return Text(f"{name}: {keys.en}", f"{name}：{keys.zh}")
    if comparison.identical and row.status is Status.PASS:
        return Text(f"{name}: identical", f"{name}：逐位相同")
    parts: list[Text] = []
    if comparison.stat_abs is not None and comparison.stat_rel is not None:  # that is what is judged, and no element
        if row.reason.code == "statistic":
            judged = explain_reason(row.reason)
        else:
            absolute, relative = comparison.stat_abs, comparison.stat_rel
            judged = Text(
                f"judged by {absolute:.3g} absolute, {relative:.3g} relative",
                f"判定值：绝对 {absolute:.3g}，相对 {relative:.3g}",
            )
        parts.append(judged)
    elif not counted and row.relative_l2 is not None:
        if not is_newly_broken(row):
            parts.append(Text(f"Rel L2 {row.relative_l2:.3g}", f"相对 L2 误差 {row.relative_l2:.3g}"))
    elif comparison.mismatched is not None and comparison.base.elements:
        share = comparison.mismatched / comparison.base.elements
        some, all_ = comparison.mismatched, comparison.base.elements
        parts.append(Text(f"{some} of {all_} elements ({share:.2%})", f"{all_} 个元素中有 {some} 个（{share:.2%}）"))
    if comparison.max_abs is not None:
        parts.append(Text(f"max abs {comparison.max_abs:.3g}", f"最大绝对误差 {comparison.max_abs:.3g}"))
    if comparison.sqnr_db is not None and math.isfinite(comparison.sqnr_db) and not is_newly_broken(row):
        parts.append(Text(f"SQNR {comparison.sqnr_db:.1f} dB", f"信噪比 {comparison.sqnr_db:.1f} dB"))
    grown = row.error_growth
    if grown is not None and math.isfinite(grown) and grown != 1 and not is_newly_broken(row):
        parts.append(Text(f"{grown:.3g} x its inputs' error", f"为输入误差的 {grown:.3g} 倍"))
    for what, ours, theirs in (
        ("NaN", comparison.target.nan, comparison.base.nan),
        ("Inf", comparison.target.inf, comparison.base.inf),
    ):
        if ours != theirs or (ours and row.status is Status.FAIL):
            parts.append(Text(f"{ours} {what} (baseline {theirs})", f"{ours} 个 {what}（基线 {theirs}）"))
    english, chinese = ", ".join(part.en for part in parts), "，".join(part.zh for part in parts)
    return Text(f"{name}: {english}", f"{name}：{chinese}")
