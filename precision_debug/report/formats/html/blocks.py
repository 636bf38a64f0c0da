"""The parts of the page that need no script: the answer, the error budget, and the sections of the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from ....reasons import Text
from ...fix import describe_tried
from ...lead import LEFT_OVER, MORE
from ...model import Report
from ...next_step import FIX, NEXT, PASTE, PROGRAM
from ...sections import Cell, Section
from ...summary import Summary
from ...values import are_shares_of_broken
from ...words import format_percent
from .text import both_languages, escape_html, format_sentence

__all__ = [
    "ABOVE",
    "FOUND",
    "IN_ANSWER",
    "UNEXPLAINED",
    "make_answer",
    "make_block",
    "make_budget",
    "make_folded_block",
]

FOUND = ("fix", "fix_kept", "fix_trade", "fix_artefacts")
"""What a search found, right below its answer."""

ABOVE = ("outputs", "slices", "scores", "tokens", "token_effects", "precision")
"""Sections that stand open below the table; the others follow them, folded."""

UNEXPLAINED = ("first", "worst")
"""Sections that stand open too where no culprit is named."""

IN_ANSWER = ("culprits",)
"""Sections that the answer holds already."""

_SHOWN = 2
"""Sentences of the details that stand open."""

_BARS = 10

Places = Mapping[int, int]

_COPY = f' <button type="button" class="copy" hidden>{both_languages(Text("Copy", "复制"))}</button>'
"""Beside what is to be copied; shown where scripts run."""


def make_answer(report: Report, content: Summary, places: Places) -> str:
    """Return the verdict as a chip, and the sentence that everything else explains."""
    model, target, baseline = report.spec.model.path or report.target.model, report.target.mode, report.baseline.mode
    names = Text(f"{model}    {target} vs. {baseline}".strip(), f"{model}    {target} 对比 {baseline}".strip())
    first, *more = content.lead
    blamed = next((section.lines[1:] for section in content.sections if section.key == "culprits"), ())
    sentences = [*more, *content.details]
    proof = ""
    if blamed and not blamed[0][0].text.en:
        proof, blamed = f"<p>{format_sentence(_capitalise(blamed[0][-1].text))}</p>", blamed[1:]
    if more and (report.fix is not None or more[0].en.startswith(LEFT_OVER)):  # what the evidence is of comes before it
        proof, sentences = f"<p>{format_sentence(more[0])}</p>{proof}", [*more[1:], *content.details]
    to_do = (FIX, NEXT, PASTE, PROGRAM)
    first_other = next((n for n, line in enumerate(blamed) if line[0].text not in to_do), len(blamed))
    mended = describe_tried(report)
    if mended is not None and mended in sentences:  # what to do stands above what proves it
        sentences = [text for text in sentences if text != mended]
        proof = f"<p>{format_sentence(mended)}</p>{_make_lines(blamed[:first_other], places)}{proof}"
        blamed = blamed[first_other:]
    for text in [text for text in sentences if text.en.endswith(MORE)]:  # stands above those that it is of
        proof, sentences = f"{proof}<p>{format_sentence(text)}</p>", [one for one in sentences if one is not text]
    shown = "".join(f"<p>{format_sentence(text)}</p>" for text in sentences[:_SHOWN])
    rest = "".join(f"<p>{format_sentence(text)}</p>" for text in sentences[_SHOWN:])
    if rest:
        number = len(sentences) - _SHOWN
        title = Text(f"{number} more remark{'s' * (number > 1)}", f"另有 {number} 条说明")
        rest = f"<details><summary>{both_languages(title)}</summary>{rest}</details>"
    leads = "".join(
        f'<a class="button" href="#row={places[index]}" data-row="{places[index]}">{both_languages(text)}</a>'
        for text, index in content.links
        if index in places
    )
    chip = f"<strong>{both_languages(content.headline)}</strong>"
    header = f'<p class="about">{chip} {both_languages(names)}</p><h1>{format_sentence(first)}</h1>{leads}'
    below = f"{proof}{_make_lines(blamed, places)}{shown}{rest}"
    below = f'<div class="details" id="culprits">{below}</div>' if below else ""
    return f'<header class="verdict {content.tone}" id="answer">{header}</header>{below}'


def make_budget(report: Report, places: Places) -> str:
    """Return which operators explain the squared error where it is judged, as bars; "" where that was not measured."""
    explanation = report.explanation
    if explanation is None or not explanation.budget:
        return ""
    numbers = {row.name: places[row.index] for row in report.rows}
    named = {culprit.name for culprit in explanation.culprits}
    shares = sorted(explanation.budget.items(), key=lambda pair: -pair[1])
    lines = []
    for name, share in shares[:_BARS]:
        link = f"<bdi>{escape_html(name)}</bdi>"
        if name in numbers:
            link = f'<a href="#row={numbers[name]}" data-row="{numbers[name]}">{link}</a>'
        who = ' class="who"' if name in named else ""
        meter = f'<meter min="0" max="1" value="{min(1.0, max(0.0, share)):.4f}"></meter>'
        lines.append(
            f'<tr{who}><td>{link}</td><td>{meter}</td><td class="right">{escape_html(format_percent(share))}</td></tr>'
        )
    rest = shares[_BARS:]
    if rest:
        text = Text(f"{len(rest)} more", f"另有 {len(rest)} 个")
        share = sum(share for _, share in rest)
        lines.append(
            f'<tr><td>{both_languages(text)}</td><td></td><td'
            f' class="right">{escape_html(format_percent(share))}</td></tr>'
        )
    title = Text("Error budget", "误差来源占比")
    what = Text("squared error", "平方误差")
    if are_shares_of_broken(explanation):
        what = Text("NaN and Inf (of who makes none: of the squared error)", " NaN 和 Inf（不产生者则为平方误差）")
    about = Text(
        f"Share of the {what.en} at {explanation.at} that each operator's own error explains alone in a replay, or, of"
        " who was kept alone, that went with it on the engine; they need not add up to 100 %.",
        f"各算子自身误差在重放中单独所能解释的 {explanation.at} 处{what.zh}的比例；单独保留过的算子则为引擎上随之消失的"
        "比例；合计不必为 100%。",
    )
    return (
        f'<section class="card" id="budget"><h2>{both_languages(title)}</h2><p class="soft">{both_languages(about)}</p>'
        f'<div class="wide"><table class="list">{"".join(lines)}</table></div></section>'
    )


def make_block(section: Section, places: Places) -> str:
    """Return a section that stands open."""
    title = f"<h2>{both_languages(section.title)}</h2>"
    return f'<section class="card" id="{section.key}">{title}{_make_content(section, places)}</section>'


def make_folded_block(section: Section, places: Places) -> str:
    """Return a section that opens when it is asked to."""
    title = f"<summary>{both_languages(section.title)}</summary>"
    return f'<details class="card" id="{section.key}">{title}{_make_content(section, places)}</details>'


def _make_content(section: Section, places: Places) -> str:
    kind = "list" if section.head else "pairs"
    head = "".join(
        f"<th{_right_cell(any(line[number].right for line in section.lines))}>{both_languages(title)}</th>"
        for number, title in enumerate(section.head)
    )
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f'<div class="wide"><table class="{kind}">{head}{_make_body(section.lines, places)}</table></div>'


def _make_lines(lines: Sequence[tuple[Cell, ...]], places: Places) -> str:
    return f'<table class="pairs">{_make_body(lines, places)}</table>' if lines else ""


def _make_body(lines: Sequence[tuple[Cell, ...]], places: Places) -> str:
    return "".join(f"<tr>{''.join(_make_cell(cell, places) for cell in line)}</tr>" for line in lines)


def _capitalise(text: Text) -> Text:
    """As a sentence begins."""
    return Text(text.en[:1].upper() + text.en[1:], text.zh)


def _right_cell(right: bool) -> str:
    return ' class="right"' if right else ""


def _make_cell(cell: Cell, places: Places) -> str:
    text = format_sentence(cell.text)
    if cell.row is not None and cell.row in places:
        place = places[cell.row]
        text = f'<a href="#row={place}" data-row="{place}">{text}</a>'
    elif cell.file:
        text = f'<a href="{quote(cell.file)}" download>{text}</a>'
    elif cell.tone == "paste":
        text = f'<code class="paste">{escape_html(cell.text.en)}</code>{_COPY}' if cell.text.en else ""
    elif cell.tone == "code":
        text = f"<code>{text}</code>"
    elif cell.tone:
        text = f'<span class="chip {cell.tone}">{text}</span>'
    return f"<td{_right_cell(cell.right)}>{text}</td>"
