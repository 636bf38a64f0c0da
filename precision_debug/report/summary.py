"""What the reader of a report must know beside the table, in order of importance; the writers only lay it out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..claims import State
from ..reasons import Text, same
from ..reasons.claims import CLAIM_NAME
from ..records import Row, Status
from .advice import advise_on_fine_tolerance, list_advice
from .blame import blame, describe_expectation, named_culprits
from .doubts import claim_text, describe_doubt, describe_held_claims
from .fix import FIX_NAME, fix_sections
from .layout import describe_tolerance
from .lead import lead_sentences
from .model import Report, Verdict
from .next_step import FIX
from .sections import (
    Cell,
    Section,
    label_and_value,
    linked_cell,
    make_precision_section,
    make_provenance_sections,
    make_repeat_section,
    make_slice_section,
    plain_cell,
)
from .tokens import make_effect_sections, make_token_section
from .values import compute_growth, is_newly_broken
from .words import are, count, explain_reason, format_count, format_figure, format_percent, generalise, were

__all__ = [
    "STATUS_NAME",
    "STATUS_TEXT",
    "STATUS_TONE",
    "VERDICT_NAME",
    "Summary",
    "describe_shares",
    "describe_status",
    "name_status",
    "name_worst_order",
    "summarise",
]  # fmt: skip

_NAMES_SHOWN = 3
_LINKED = 40

STATUS_TEXT = {
    Status.PASS: Text("within tolerance", "在容差内"),
    Status.FAIL: Text("out of tolerance", "超出容差"),
    Status.INCONCLUSIVE: Text("no elements, or a tolerance that cannot decide", "没有元素，或该容差无法判定"),
    Status.FUSED_AWAY: Text("fused into another operator, or removed", "已被目标图融合，不再存在"),
    Status.UNMATCHED: Text("only the target has it", "仅目标有，基线中无对应张量"),
    Status.NOT_COMPARED: Text("could not be seen or compared", "无法取得或无法比较"),
}

STATUS_NAME = {
    Status.PASS: Text("pass", "通过"),
    Status.FAIL: Text("fail", "超差"),
    Status.INCONCLUSIVE: Text("inconclusive", "无法下结论"),
    Status.FUSED_AWAY: Text("fused away", "被融合"),
    Status.UNMATCHED: Text("unmatched", "未配对"),
    Status.NOT_COMPARED: Text("not compared", "未比较"),
}

STATUS_TONE = {
    Status.PASS: "good", Status.FAIL: "bad", Status.INCONCLUSIVE: "warn", Status.FUSED_AWAY: "muted",
    Status.UNMATCHED: "warn", Status.NOT_COMPARED: "warn",
}  # fmt: skip

VERDICT_NAME = {
    Verdict.PASS: Text("Within tolerance", "在容差内"),
    Verdict.EXPECTED: Text("As expected", "符合预期"),
    Verdict.FAIL: Text("Out of tolerance", "超出容差"),
    Verdict.INCONCLUSIVE: Text("Inconclusive", "无法下结论"),
    Verdict.PARTIAL: Text("Partial: the run ended early", "不完整：运行提前结束"),
}

_TONES = {
    Verdict.PASS: "good", Verdict.EXPECTED: "good", Verdict.FAIL: "bad", Verdict.INCONCLUSIVE: "warn",
    Verdict.PARTIAL: "warn",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Summary:
    """headline: the verdict in two or three words. tone: as in ``Cell``.

    lead: what a reader must see first: who did it, why, and what to do, in one sentence; further ones follow.
    details: sentences under it. links: words to the rows (by ``Row.index``) that the lead is about.
    """

    headline: Text
    lead: tuple[Text, ...]
    details: tuple[Text, ...]
    tone: str
    sections: tuple[Section, ...]
    links: tuple[tuple[Text, int], ...] = ()


def name_status(report: Report, status: Status) -> Text:
    """Return what people call a status in this report.

    Where no tolerance was given, nothing "passes" beside the count of elements beyond 1e-4: it is as expected."""
    return _EXPECTED[0] if _is_expected(report, status) else STATUS_NAME[status]


def describe_status(report: Report, status: Status) -> Text:
    """Return what it means."""
    return _EXPECTED[1] if _is_expected(report, status) else STATUS_TEXT[status]


def _is_expected(report: Report, status: Status) -> bool:
    return status is Status.PASS and not report.spec.tolerance.given and not report.spec.validate


_EXPECTED = (
    Text("as expected", "符合预期"),
    Text("within what the target's arithmetic costs", "误差不超过目标运算的预期"),
)


def summarise(report: Report) -> Summary:
    """Return the summary of a report; sections that have nothing to say are left out."""
    headline, tone = VERDICT_NAME[report.verdict], _TONES[report.verdict]
    if report.fix is not None and not report.failure:  # the question was what to keep; the verdict is the table's
        headline, tone = FIX_NAME[report.fix.state]
    said = lead_sentences(report)
    made = (
        *fix_sections(report),
        _without_told(blame(report), said),
        _make_first_section(report),
        _make_worst_section(report),
        _make_outputs_section(report),
        _make_scores_section(report),
        make_slice_section(report),
        make_token_section(report),
        *make_effect_sections(report),
        make_repeat_section(report),
        make_precision_section(report),
        _make_claims_section(report),
        _make_counts_section(report),
        _make_uncompared_section(report),
        *make_provenance_sections(report, describe_tolerance(report.spec.tolerance)),
    )
    return Summary(
        headline=headline, lead=said, details=tuple(_detail_sentences(report)), tone=tone,
        sections=tuple(section.without_empty_columns() for section in made if section.lines),
        links=tuple(_iterate_links(report)),
    )  # fmt: skip


def _without_told(section: Section, said: Sequence[Text]) -> Section:
    """Without what the lead has told already: the fix, or why nobody is named."""
    lines = tuple(
        line for line in section.lines if not (line[0].text == FIX or len(line) == 1) or line[-1].text not in said
    )  # fmt: skip
    return dataclasses.replace(section, lines=lines)


def _iterate_links(report: Report) -> Iterator[tuple[Text, int]]:
    by_name = {row.name: row for row in report.rows}
    found = [by_name[one.name] for one in named_culprits(report) if one.name in by_name][:_NAMES_SHOWN]
    if not found and report.first_mismatch is not None:
        found = [report.first_mismatch]
    for row in found:
        name = row.name if len(row.name) <= _LINKED else f"…{row.name[-_LINKED:]}"
        yield Text(f"Row of {name}", f"查看 {name}"), row.index


def _detail_sentences(report: Report) -> list[Text]:
    details = [*describe_expectation(report)]
    covered, counts = report.coverage, report.counts
    compared, rest = covered.compared, covered.baselines - covered.compared
    more = Text(f"; {count(rest)} {were(rest)} not compared", f"；另有 {count(rest)} 个未比较") if rest else same("")
    failed = counts[Status.FAIL]
    if compared and failed and report.verdict is Verdict.EXPECTED:
        but = Text(", while no output is", "，而各输出均未超限")
        if named_culprits(report):
            but = Text("; the outputs are as expected", "；输出符合预期")
        details.append(
            Text(
                f"{count(failed)} of {format_count(compared, 'compared tensor')} {are(failed)} out of"
                f" bounds{but.en}{more.en}.",
                f"比较了 {count(compared)} 个张量，其中 {count(failed)} 个超限{but.zh}{more.zh}。",
            )
        )
    elif compared and failed:
        details.append(
            Text(
                f"{count(failed)} of {format_count(compared, 'compared tensor')} {are(failed)} out of"
                f" tolerance{more.en}.",
                f"比较了 {count(compared)} 个张量，其中 {count(failed)} 个超出容差{more.zh}。",
            )
        )
    elif compared:
        passed = counts[Status.PASS]
        all_en, all_zh = ("All " if compared > 1 else "", "全部") if passed >= compared else (
            f"{count(passed)} of ", f"有 {count(passed)} 个"
        )  # fmt: skip
        details.append(
            Text(
                f"{all_en}{format_count(compared, 'compared tensor')} {are(passed)} within tolerance{more.en}.",
                f"比较的 {count(compared)} 个张量{all_zh}在容差内{more.zh}。",
            )
        )
    if compared != covered.total:
        details.append(describe_shares(report))
    rests = describe_held_claims(report)
    details.append(Text(f"Rests on: {rests.en}.", f"依据：{rests.zh}。"))
    details += [describe_doubt(doubt) for doubt in report.doubts]
    details += advise_on_fine_tolerance(report) if report.spec.tolerance.given else []
    for side, en, zh in ((report.baseline, "The baseline", "基线"), (report.target, "The target", "目标")):
        if side.simulation:
            details.append(
                Text(
                    f"{en} ({side.mode}) is a simulation: the arithmetic is imitated, no engine ran it.",
                    f"{zh}（{side.mode}）为模拟：模仿其运算，并非引擎真实执行。",
                )
            )
    return details


def describe_shares(report: Report) -> Text:
    """Return what became of the baseline's tensors, as shares of all of them, and how many the target has beside."""
    covered = report.coverage
    en, zh = [], []
    for number, name in (
        (covered.compared, Text("compared", "已比较")),
        (covered.fused, Text("fused away", "被融合")),
        (covered.unseen, Text("not compared", "未比较")),
    ):
        if not number:
            continue
        share = format_percent(number / covered.baselines)
        en.append(f"{count(number)} {name.en} ({share})")
        zh.append(f"{name.zh} {count(number)}（{share}）")
    more = f"; {format_count(covered.unmatched, 'tensor')} of the target alone" if covered.unmatched else ""
    duo = f"；另有 {count(covered.unmatched)} 个仅目标才有" if covered.unmatched else ""
    return Text(
        f"Of {format_count(covered.baselines, 'tensor')}: {', '.join(en) or 'none compared'}{more}.",
        f"共 {count(covered.baselines)} 个张量：{'，'.join(zh) or '均未比较'}{duo}。",
    )


def _make_claims_section(report: Report) -> Section:
    """Return each claim of a pass: what it rests on, or why it is open or wrong."""
    lines = []
    for claim in report.claims:
        said = describe_doubt(claim.why) if claim.why is not None else claim_text(claim)
        name = CLAIM_NAME.get(claim.code)
        shown = name if name is not None else same(claim.code)
        state = Cell(text=_STATE_NAME[claim.state], tone=_STATE_TONE[claim.state])
        lines.append((plain_cell(shown), state, plain_cell(said)))
    head = (Text("Claim", "断言"), Text("State", "状态"), Text("Evidence, or why not", "依据，或不成立的原因"))
    return Section(key="claims", title=Text("What the verdict rests on", "结论的依据"), head=head, lines=tuple(lines))


_STATE_NAME = {
    State.HELD: Text("held", "成立"), State.OPEN: Text("open", "未知"), State.REFUTED: Text("refuted", "不成立"),
}  # fmt: skip
_STATE_TONE = {State.HELD: "good", State.OPEN: "warn", State.REFUTED: "bad"}


def _make_first_section(report: Report) -> Section:
    row = report.first_mismatch
    expected = report.verdict is Verdict.EXPECTED
    title = Text("First mismatch, in execution order", "首个超差张量（按执行顺序）")
    if expected:
        title = Text("First tensor out of bounds, while no output is", "首个超限的张量（各输出均未超限）")
    if row is None:
        return Section(key="first", title=title)
    lines = [
        (plain_cell(Text("Tensor", "张量")), linked_cell(row, "bad")),
        label_and_value(Text("Operator", "算子"), f"{row.op_type}  {row.node}".strip()),
        label_and_value(Text("Shape", "形状"), row.shape_text),
    ]
    numbers = row.comparison
    if row.non_finite:
        lines.append((plain_cell(Text("NaN and Inf", "NaN 与 Inf")), plain_cell(explain_reason(row.non_finite))))
    if numbers is None:
        return Section(key="first", title=title, lines=tuple(lines))
    if report.spec.tolerance.given and numbers.mismatched is not None and numbers.base.elements:
        share = format_percent(numbers.mismatched / numbers.base.elements)
        text = f"{count(numbers.mismatched)} / {count(numbers.base.elements)} ({share})"
        lines.append(label_and_value(Text("Mismatched elements", "不一致元素"), text))
    for label, value in (
        (Text("Max absolute error", "最大绝对误差"), numbers.max_abs),
        (Text("Max relative error", "最大相对误差"), numbers.max_rel),
        (Text("Relative L2 error", "相对 L2 误差"), row.relative_l2),
        (Text("Error growth", "误差放大倍数"), compute_growth(row)),
    ):
        if value is not None:
            lines.append(label_and_value(label, format_figure(value)))
    label = Text("What to look at", "建议检查")
    for sentence in () if expected else list_advice(row, report.target.precision):
        lines.append((plain_cell(label), plain_cell(sentence)))
        label = same("")
    return Section(key="first", title=title, lines=tuple(lines))


def _make_worst_section(report: Report) -> Section:
    rows = report.worst() if report.verdict is not Verdict.EXPECTED else []
    by = name_worst_order(rows)
    return Section(
        key="worst",
        title=Text(f"Worst operators, {by.en}", f"损失最大的算子，{by.zh}"),
        head=_ROW_HEAD,
        lines=tuple(_format_row(row, report) for row in rows),
    )


def name_worst_order(rows: Sequence[Row]) -> Text:
    """Return what the worst operators are sorted by: a measured error, or the growth of the error, which is none."""
    measured = [row for row in rows if row.introduced is not None]
    if len(measured) == len(rows):
        return Text("by the error that the operator itself introduced", "按算子自身引入的误差")
    if not measured:
        return Text(
            "by how far the error exceeds that of the inputs; the operator's own was not measured",
            "按误差超出输入误差的程度；算子自身引入的误差未测量",
        )
    return Text(
        "by the error that the operator itself introduced; where that was not measured, by how far the error exceeds"
        " that of the inputs",
        "按算子自身引入的误差；未测量者按误差超出输入误差的程度",
    )


def _make_outputs_section(report: Report) -> Section:
    return Section(
        key="outputs",
        title=Text("Final outputs", "最终输出"),
        head=_ROW_HEAD,
        lines=tuple(_format_row(row, report) for row in report.outputs),
    )


_ROW_HEAD = (
    Text("Tensor", "张量"),
    Text("Operator", "算子"),
    Text("Status", "状态"),
    Text("Mismatched", "不一致比例"),
    Text("Max abs error", "最大绝对误差"),
    Text("Rel L2", "相对 L2"),
    Text("Cosine distance", "余弦距离"),
    Text("Error growth", "误差放大"),
)


def _format_row(row: Row, report: Report) -> tuple[Cell, ...]:
    """Elements are counted only by a tolerance that somebody gave."""
    numbers = row.comparison
    status = Cell(text=name_status(report, row.status), tone=STATUS_TONE[row.status])
    if numbers is None:
        return (linked_cell(row), plain_cell(same(row.op_type)), status, *[plain_cell(same(""))] * 5)
    counted = report.spec.tolerance.given and numbers.mismatched is not None
    share = format_percent((numbers.mismatched or 0) / max(1, numbers.base.elements)) if counted else ""
    broken = _describe_broken(row)
    cells = (share, broken or format_figure(numbers.max_abs), broken or format_figure(row.relative_l2),
             "" if broken else format_figure(numbers.cosine_distance))  # fmt: skip
    grown = format_figure(compute_growth(row))
    return (
        linked_cell(row),
        plain_cell(same(row.op_type)),
        status,
        *(Cell(text=same(cell), right=True) for cell in (*cells, grown)),
    )


def _describe_broken(row: Row) -> str:
    """Return what stands on one side alone, in place of errors that are infinite."""
    numbers = row.comparison
    if numbers is None or not is_newly_broken(row):
        return ""
    return "NaN" if numbers.target.nan != numbers.base.nan else "Inf"


def _make_scores_section(report: Report) -> Section:
    samples = f"  (n = {count(report.scored)})" if report.scored else ""
    return Section(
        key="scores",
        title=Text("Effect on the answer", "对最终结果的影响"),
        lines=tuple(
            label_and_value(explain_reason(name), f"{100 * value:.2f}%{samples}")
            for name, value in report.scores.items()
        ),
    )


def _make_counts_section(report: Report) -> Section:
    total = len(report.rows)
    lines = [
        (
            Cell(text=name_status(report, status), tone=STATUS_TONE[status]),
            Cell(text=same(count(number)), right=True),
            Cell(text=same(format_percent(number / total) if total else ""), right=True),
            plain_cell(describe_status(report, status)),
        )
        for status, number in report.counts.items()
    ]
    lines.append(
        (
            plain_cell(Text("all", "合计")),
            Cell(text=same(count(total)), right=True),
            plain_cell(same("")),
            plain_cell(same("")),
        )
    )
    return Section(
        key="counts",
        title=Text("Tensors by status", "各状态张量数"),
        head=(Text("Status", "状态"), Text("Tensors", "张量数"), Text("Share", "占比"), Text("Meaning", "含义")),
        lines=tuple(lines),
    )


def _make_uncompared_section(report: Report) -> Section:
    """Grouped by kind: reasons that differ in their names only are one line."""
    kinds: dict[str, Text] = {}
    groups: dict[tuple[Status, Text], list[Row]] = {}
    for row in report.rows:
        if row.comparison is None:
            kind = kinds.setdefault(row.reason, generalise(row.reason))
            groups.setdefault((row.status, kind), []).append(row)
    return Section(
        key="uncompared",
        title=Text("What was not compared, and why", "未比较的张量及原因"),
        head=(Text("Reason", "原因"), Text("Status", "状态"), Text("Tensors", "张量数"), Text("For example", "例如")),
        lines=tuple(
            (
                plain_cell(_shared_reason(rows, kind, STATUS_TEXT[status])),
                Cell(text=STATUS_NAME[status], tone=STATUS_TONE[status]),
                Cell(text=same(count(len(rows))), right=True),
                plain_cell(same(_some_names([row.name for row in rows]))),
            )
            for (status, kind), rows in sorted(groups.items(), key=lambda group: -len(group[1]))
        ),
    )


def _shared_reason(rows: Sequence[Row], kind: Text, otherwise: Text) -> Text:
    """Return the rows' reason where it is one, names and all; else what their reasons have in common."""
    reasons = {row.reason for row in rows}
    return kind if len(reasons) > 1 else explain_reason(rows[0].reason) if rows[0].reason else otherwise


def _some_names(names: list[str]) -> str:
    more = f", … (+{count(len(names) - _NAMES_SHOWN)})" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
