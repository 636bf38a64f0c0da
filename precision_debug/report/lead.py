"""The first sentence of a report: who did it, why, and what to do; or why nobody did."""

from __future__ import annotations

from ..claims import State
from ..explain import LEAST, MOST, bound_hidden_share, bound_of
from ..explain.criteria import LITTLE
from ..observe.sample_columns import SAMPLES
from ..reasons import NOTHING, Reason, Text, as_reason, same
from ..reasons.causes import CAUSES
from ..records import Culprit, Row, Status
from ..registry import find_wording
from .advice import list_advice
from .blame import (
    are_culprits_harmless,
    blame,
    cancelling_error_sentence,
    describe_culprit,
    diffuse_sentence,
    group_by_constant,
    named_culprits,
    shared_error_sentence,
)
from .decisions import decision_sentence
from .fix import describe_tried, fix_sentences
from .model import Report, Verdict
from .sections import repeat_sentences
from .values import is_newly_broken
from .words import count, explain_reason, format_count, format_figure, format_percent, were

__all__ = ["LEFT_OVER", "MORE", "lead_sentences"]

_WRONG_ON_BOTH_SIDES = frozenset({
    "proven_bias_clipped", "proven_bias_scale", "proven_bias_zero_point", "proven_scale", "proven_scale_apart",
    "proven_weight_clipped", "proven_zero_point",
})  # fmt: skip
"""What a quantised file proves of itself: two runs of it that agree say nothing against that, and so it comes first."""

_A_CULPRITS = 0.5
"""Share of the squared error that one among those that were not tried may make, and be a culprit."""

LEFT_OVER = "Of the error that is left"
"""How the sentence begins that names a culprit where the user's tolerance is met."""

MORE = " more below."
"""How a sentence ends that says how many further culprits there are."""


_LOST = frozenset({"slices_lost", "slices_on_steps", "whole_on_steps"})


def lead_sentences(report: Report) -> tuple[Text, ...]:
    """Sentences, the first of which stands alone. Always at least one."""
    named, decided = named_culprits(report), decision_sentence(report)
    if decided is not None and not named:
        sentences = [_passing_sentence(report)] if report.verdict in (Verdict.INCONCLUSIVE, Verdict.PASS) else []
        sentences.append(decided)
        if (tried := describe_tried(report)) is not None:
            sentences.append(tried)
    elif named:
        who = _minor_culprit_sentence(report, named[0]) or describe_culprit(report, named[0])
        shared = shared_error_sentence(named[0]) if _make_the_error(report, named[0]) else None
        sentences = [_passing_sentence(report), _residual_sentence(named[0], who)] if _is_tolerated(report) else [who]
        if (cancelling := cancelling_error_sentence(named[0])) is not None:
            sentences.append(cancelling)
        if shared is not None and report.verdict is Verdict.FAIL:
            sentences.insert(0, shared)
        if (tried := describe_tried(report)) is not None:
            sentences.append(tried)
        if (others := len(group_by_constant(named)) - 1) > 0:
            more = count(others)
            sentences.append(Text(f"{more}{MORE}", f"另有 {more} 个，见下文。"))
        if decided is not None:  # whoever made the scores wrong comes before what they turned
            sentences.insert(0 if are_culprits_harmless(report) else 1, decided)
    elif (
        report.verdict is Verdict.EXPECTED
        or (report.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE) and not report.first_mismatch)
        or (report.verdict is Verdict.INCONCLUSIVE and _is_absorbed(report))
    ):
        sentences = [_passing_sentence(report)]
    elif report.first_mismatch is not None:
        sentences = _failing_sentences(report)
        if (tried := describe_tried(report)) is not None:
            sentences.append(tried)
    else:  # of no tensor that is beyond bounds: what was tried where the user's metric falls
        sentences = [tried] if (tried := describe_tried(report)) is not None else []
    if named and (missing := _without_gradient(report)) is not None:
        sentences.insert(0, missing)  # whoever is named has to do with that
    if (unmeasured := _unmeasured_bound_sentence(report)) is not None:
        sentences.append(unmeasured)
    found = fix_sentences(report)
    if found:  # who asked what to keep reads that first, then who did it where that is known
        sentences = [*found, *(sentences if named else [])]
    if named and (placed := _file_walk_sentence(report, named[0])) is not None:
        sentences.insert(0, placed)
    proven = [explain_reason(note) for note in report.notes if as_reason(note).code.startswith("proven_")]
    alike = {as_reason(note).code for note in report.notes} & _WRONG_ON_BOTH_SIDES
    calm = report.first_mismatch is None or report.verdict is Verdict.EXPECTED
    place = 1 if named or (calm and not alike) else 0
    sentences[place:place] = proven
    sentences += repeat_sentences(report)
    if named and report.verdict is Verdict.INCONCLUSIVE:
        sentences.insert(0, _passing_sentence(report))  # whoever makes the error, that nothing is proven comes first
    if (wrong := _first_claim_sentence(report, State.REFUTED)) is not None:
        of_metric = report.metric is not None and bool(report.spec.metric)
        sentences.insert(len(found) if of_metric else 0, wrong)
    elif report.spec.without_outputs and report.verdict is Verdict.FAIL:
        sentences.insert(0, _first_claim_sentence(report, State.OPEN) or same(""))
    if report.checks:
        sentences.insert(0, _user_check_sentence(report))
    if (changed := _changed_model_sentence(report)) is not None:
        sentences = [changed, *(text for text in sentences if text != changed)]
    if (kept := _metric_sentence(report)) is not None and not found:
        sentences.insert(0, kept)
    # a pass may hold of that file alone; of one that fails, who did it comes before how it was made
    place = 1 if named and report.verdict is Verdict.FAIL else 0
    sentences[place:place] = _departure_sentences(report)
    if report.failure:
        why = explain_reason(report.failure)
        ended = Text(f"The run ended early: {why.en}.", f"运行提前结束：{why.zh}。")
        done = len(report.compared)
        left = len(report.rows) - done
        far = (
            Text(
                f"{count(done)} of {format_count(len(report.rows), 'tensor')} {were(done)} compared before that,"
                f" {count(left)} {were(left)} not.",
                f"此前已比较 {count(len(report.rows))} 个张量中的 {count(done)} 个，{count(left)} 个未比较。",
            )
            if report.explanation is None
            else Text(
                f"The comparison was finished before that: {count(done)} of"
                f" {format_count(len(report.rows), 'tensor')} {were(done)}"
                " compared, and the rows of the others say why they were not.",
                f"对比在此之前已完成：{count(len(report.rows))} 个张量中比较了 {count(done)} 个，其余各行注明原因。",
            )
        )
        return (*sentences, ended, far) if named else (ended, far, *sentences)
    return tuple(sentences) or (same(str(report.verdict)),)


def _file_walk_sentence(report: Report, culprit: Culprit) -> Text | None:
    """What a walk through the target's own file says of the first culprit: which operator of the file it is, and why.

    It comes first where the culprit's own cause is only that the two do not compute the same, unless no more is known
    of the file than of the culprit."""
    known = CAUSES.get(culprit.cause)  # a report may be of another version
    if known is None or not known.unproven:
        return None
    says_more = known.instead.keys() & culprit.evidence.keys()
    for note in map(as_reason, report.notes):
        if note.code == "wrong_at" and says_more:
            continue
        place = note.args.get("place") if note.code in ("wrong_at", "wrong_at_because") else None
        if isinstance(place, Reason) and place.args.get("name") == culprit.name:
            return explain_reason(note)
    return None


def _is_absorbed(report: Report) -> bool:
    """Return whether what is out of bounds was seen not to matter, so that only what is not proven is in the way."""
    return any(claim.code == "within" and claim.state is State.HELD for claim in report.claims)


def _departure_sentences(report: Report) -> list[Text]:
    """That what ran is not what a tool makes by itself: no number that follows is about that tool's own file."""
    notes = dict.fromkeys(as_reason(note) for side in (report.target, report.baseline) for note in side.notes)
    told = [explain_reason(note) for note in notes if (known := find_wording(note.code)) is not None and known.departs]
    return [Text(f"What ran is not the tool's own file: {text.en}.", f"运行的不是工具自身生成的文件：{text.zh}。")
            for text in told]  # fmt: skip


def _first_claim_sentence(report: Report, state: State) -> Text | None:
    """Return why the first claim of a state is so, in words; None where there is none."""
    from .doubts import describe_doubt

    return next(
        (describe_doubt(claim.why) for claim in report.claims if claim.state is state and claim.why is not None), None
    )


def _changed_model_sentence(report: Report) -> Text | None:
    """That a side is of a model which is another one by now; None where none is."""
    from .doubts import describe_doubt

    return next((describe_doubt(doubt) for doubt in report.doubts if doubt.code == "model_changed"), None)


def _without_gradient(report: Report) -> Text | None:
    """Return which parameters have no gradient in the target, while they have one in the baseline; None where none is
    so."""
    from .doubts import describe_doubt

    return next((describe_doubt(doubt) for doubt in report.doubts if doubt.code == "output_no_gradient"), None)


def _is_tolerated(report: Report) -> bool:
    """Return whether the user's own tolerance is met: then nobody is accused before that is said."""
    return report.verdict is Verdict.PASS and report.spec.tolerance.given and report.first_mismatch is None


def _residual_sentence(culprit: Culprit, who: Text) -> Text:
    """Return who makes most of an error that the user accepts."""
    share = format_percent(culprit.share or 0.0)
    return Text(
        f"{LEFT_OVER}, one operator makes {share}: {who.en}", f"剩余误差的 {share} 来自一个算子：{who.zh}"
    )


def _make_the_error(report: Report, culprit: Culprit) -> bool:
    """Return whether all measured errors, put into the baseline, come to what the output is off by: where one operator
    changes what another reads, as two cuts in a row, they do not, and say nothing of its parts."""
    told, whole = report.explanation, culprit.with_all
    if told is None or whole is None or not told.actual or culprit.at != told.at:
        return True
    return told.actual / LITTLE <= whole <= told.actual * LITTLE


def _minor_culprit_sentence(report: Report, culprit: Culprit) -> Text | None:
    """One operator makes most of an error that fails nothing."""
    explanation = report.explanation
    if explanation is None or not are_culprits_harmless(report):
        return None
    said, share = describe_culprit(report, culprit), culprit.share or 0.0
    who, zhe = ("one channel", "一个通道") if culprit.evidence.get("too") else ("one operator", "一个算子")
    if report.verdict in (Verdict.INCONCLUSIVE, Verdict.PARTIAL):
        return Text(
            f"{who.capitalize()} makes {format_percent(share)} of the error: {said.en}",
            f"误差的 {format_percent(share)} 来自{zhe}：{said.zh}",
        )
    return Text(
        f"As expected; {who} makes {format_percent(share)} of the error: {said.en}",
        f"符合预期，其中 {format_percent(share)} 来自{zhe}：{said.zh}",
    )


def _passing_sentence(report: Report) -> Text:
    """Nothing failed: what that rests on."""
    doubtful = report.verdict is Verdict.INCONCLUSIVE
    if doubtful and (doubt := _first_claim_sentence(report, State.OPEN)) is not None:
        return doubt
    worst, beside = _worst_output_sentence(report)
    if report.verdict is Verdict.EXPECTED and report.first_mismatch is not None:
        row = report.first_mismatch
        counted = as_reason(row.reason).code.startswith("elements")  # beyond a tolerance that nobody asked for
        reason = explain_reason(row.non_finite or (NOTHING if counted else row.reason))
        why = Text(f" ({reason.en})", f"（{reason.zh}）") if reason.en else same("")
        off = Text(
            f"the worst, `{worst.name}`, is off by {worst.relative_l2:.2g} (Rel L2)"
            if worst is not None else "they are identical",
            f"误差最大的输出 `{worst.name}` 相对 L2 误差为 {worst.relative_l2:.2g}"
            if worst is not None else "各输出相同",
        )  # fmt: skip
        return Text(
            f"The outputs are as expected: {off.en}, although `{row.name}` is out of bounds{why.en}.{beside.en}",
            f"各输出符合预期：{off.zh}，尽管 `{row.name}` 超限{why.zh}。{beside.zh}",
        )
    agree = _agreeing_sentence(report)
    if worst is None:
        return Text(f"{agree.en[:1].upper()}{agree.en[1:]}.", f"{agree.zh}。")
    many = int(worst.extra.get(SAMPLES, 1))
    over = Text(f" over {count(many)} samples", f"（{count(many)} 个样本合计）") if many > 1 else same("")
    proven = any(as_reason(note).code in _WRONG_ON_BOTH_SIDES for note in report.notes)
    open_ = proven or _unmeasured_bound_sentence(report) is not None or bool(named_culprits(report))
    bound = report.explanation.allowed_at.get(worst.name, 0.0) if report.explanation is not None else 0.0
    if bound > MOST and (worst.relative_l2 or 0.0) > MOST:  # of a step's gradient: see explain.steps
        over = Text(
            f"{over.en}, within its bound of {format_figure(float(bound))}, which is some times what rounding"
            f" everywhere"
            " predicts of it",
            f"{over.zh}，未超过其界限 {format_figure(float(bound))}（处处舍入对它的预测的若干倍）",
        )
    en = f"{agree.en[:1].upper()}{agree.en[1:]}" if open_ else f"Nothing to do: {agree.en}"
    if all(row.comparison is not None and row.comparison.identical for row in report.outputs):
        every = len(report.outputs) > 1
        return Text(
            f"{en}, and {'every output' if every else f'the output `{worst.name}`'} is identical.{beside.en}",
            f"{'' if open_ else '无需处理：'}{agree.zh}，{'各输出均' if every else f'输出 `{worst.name}` '}逐位相同。"
            f"{beside.zh}",
        )
    return Text(
        f"{en}, and the worst output `{worst.name}` is off by {worst.relative_l2:.2g} (Rel L2){over.en}.{beside.en}",
        f"{'' if open_ else '无需处理：'}{agree.zh}，误差最大的输出 `{worst.name}` 相对 L2 误差为"
        f" {worst.relative_l2:.2g}{over.zh}。{beside.zh}",
    )


def _agreeing_sentence(report: Report) -> Text:
    """Return how many of the tensors with an element, which alone can agree, do."""
    compared, agree = report.coverage.compared, report.counts[Status.PASS]
    if agree < compared:
        return Text(
            f"{count(agree)} of {format_count(compared, 'compared tensor')} {'agrees' if agree == 1 else 'agree'}",
            f"比较的 {count(compared)} 个张量中有 {count(agree)} 个一致",
        )
    if compared == 1:
        return Text("the one compared tensor agrees", "所比较的唯一张量一致")
    return Text(f"all {count(compared)} compared tensors agree", f"比较的 {count(compared)} 个张量全部一致")


def _worst_output_sentence(report: Report) -> tuple[Row | None, Text]:
    """Return the output that is off the most, and what is said of those of which that says nothing."""
    rows = [row for row in report.outputs if row.relative_l2 is not None]
    rows.sort(key=lambda row: -(row.relative_l2 or 0))
    decided = report.explanation.decided_by_rounding if report.explanation is not None else ()
    counted = next((row for row in rows if row.name not in decided), None)
    left = rows[: rows.index(counted)] if counted is not None else []
    if counted is None or not left:
        return rows[0] if rows else None, same("")
    first, more = left[0], len(left) - 1
    size = f"{first.relative_l2:.2g}"
    return counted, Text(
        f" Not counted: `{first.name}` (off by {size})" + (f" and {count(more)} more" if more else "")
        + ", which rounding decides in the baseline too (an exact value of 0, or its sign).",
        f"未计入 `{first.name}`（相差 {size}）" + (f" 等 {count(more + 1)} 个输出" if more else "")
        + "：其精确值为 0 或仅为其符号，在基线中也由舍入决定。",
    )  # fmt: skip


def _unmeasured_bound_sentence(report: Report) -> Text | None:
    """Say that the bound of a verdict without a tolerance was not measured, and so may be another one where it is.

    None where it was, or where no bound would change the answer."""
    explanation, worst = report.explanation, max((row.relative_l2 or 0.0 for row in report.outputs), default=0.0)
    asked = report.verdict in (Verdict.EXPECTED, Verdict.FAIL) and not report.checks
    if report.spec.tolerance.given or not asked or worst <= LEAST or named_culprits(report):
        return None
    usual = format_figure(bound_of(None, report.target.precision))
    if explanation is None and report.spec.explain == "off":
        return Text(
            f"The bound of {usual} is the usual one of {report.target.mode}: --explain off does not measure this"
            " model's own, and without it the verdict may be another.",
            f"界限 {usual} 是 {report.target.mode} 的通常值：--explain off 不测量该模型自身的界限，"
            "去掉它结论可能不同。",
        )
    if explanation is not None and explanation.state == "unknown" and report.verdict is Verdict.EXPECTED:
        return Text(
            f"The bound is the usual one of {report.target.mode}, and this model's own was not measured:"
            f" {explanation.reason}.",
            f"该界限是 {report.target.mode} 的通常值，未测量该模型自身的界"
            f"限：{explain_reason(explanation.reason).zh}。",
        )
    if explanation is None or explanation.state != "healthy" or (bound_hidden_share(explanation) or 1.0) < _A_CULPRITS:
        return None
    if left := explanation.candidates - explanation.tried:
        return Text(
            f"Whether one operator causes most of it was not measured: {count(explanation.tried)} were tried alone,"
            f" {count(left)} were not; --explain full tries them all.",
            f"未测定该误差是否主要来自一个算子：已单独尝试 {count(explanation.tried)} 个，"
            f"其余 {count(left)} 个未尝试；--explain full 会全部尝试。",
        )
    return None


def _user_check_sentence(report: Report) -> Text:
    """Return what the user's own comparison said, which decides."""
    by, times = report.checked_by, report.checked
    bad = {name: share for name, share in report.checks.items() if share < 1}
    if not bad:
        return Text(
            f"`{by}` accepts the outputs ({count(times)} of {count(times)} samples).",
            f"`{by}` 判定输出合格（{count(times)} 个样本全部通过）。",
        )
    some = ", ".join(f"`{name}` " if name else "" for name in bad)
    failed = max(round((1 - share) * times) for share in bad.values())
    return Text(
        f"`{by}` rejects the outputs {some}(in {count(failed)} of {count(times)} samples).",
        f"`{by}` 判定输出 {some}不合格（{count(times)} 个样本中有 {count(failed)} 个）。",
    )


def _metric_sentence(report: Report) -> Text | None:
    """That the user's metric is within its bound, which decides; None where that is not so."""
    change = report.metric
    held_ = any(claim.code == "metric" and claim.state is State.HELD for claim in report.claims)
    if change is None or not (held_ and report.spec.metric_drop) or report.verdict is not Verdict.PASS:
        return None
    before, after, bound = (
        format_figure(float(change.baseline)),
        format_figure(float(change.target)),
        report.spec.metric_drop,
    )
    of = format_count(change.samples, "sample")
    return Text(
        f"Your metric `{change.name}` holds: {before} for the baseline, {after} for the target ({of}), and it may get"
        f" worse by {bound}.",
        f"您的指标 `{change.name}` 成立：基线为 {before}，目标为 {after}（{count(change.samples)} 个样本），"
        f"允许变差 {bound}。",
    )


def _failing_sentences(report: Report) -> list[Text]:
    """No culprit was measured: the first mismatch, and what its numbers say; and why nobody is named."""
    first = report.first_mismatch
    assert first is not None
    if (fed := _broken_input_sentence(report)) is not None:
        return [fed]
    explanation = report.explanation
    is_diffuse = explanation is not None and explanation.state == "diffuse"
    lost = [
        row for row in report.outputs
        if row.status is Status.FAIL and as_reason(row.reason).code in _LOST
    ]  # fmt: skip
    if lost:  # what the user loses, before the tensor between that is out of tolerance first
        row, nobody = lost[0], _not_found_sentence(report)
        reason = explain_reason(row.reason)
        said = Text(f"Of the final output `{row.name}`, {reason.en}.", f"最终输出 `{row.name}`：{reason.zh}。")
        return [
            said,
            diffuse_sentence(explanation) if is_diffuse and explanation else Text(f"{nobody.en}.", f"{nobody.zh}。"),
        ]
    if is_diffuse and explanation is not None and not any(map(is_newly_broken, report.outputs)):
        return [diffuse_sentence(explanation)]
    reason = explain_reason(first.reason)
    failed = report.counts[Status.FAIL]
    place = Text("the only tensor", "唯一的超差张量")
    if failed > 1:
        place = Text(f"the first of {count(failed)} tensors", f" {count(failed)} 个超差张量中的第一个")
    nobody = _not_found_sentence(report)
    sentences = [
        Text(
            f"{nobody.en}. {first.op_type} `{first.name}` is {place.en} out of tolerance"
            + (f": {reason.en}." if reason.en else "."),
            f"{nobody.zh}。{first.op_type} `{first.name}` 是{place.zh}"
            + (f"：{reason.zh}。" if reason.zh else "。"),
        )
    ]
    blamed = blame(report).lines
    sentences += [blamed[0][-1].text] if blamed else list(list_advice(first, report.target.precision)[:1])
    return sentences


def _not_found_sentence(report: Report) -> Text:
    """That nobody was found, or looked for."""
    return (
        Text("No culprit was found", "未找到元凶") if report.explanation is not None else _not_looked_sentence(report)
    )


def _broken_input_sentence(report: Report) -> Text | None:
    """That what both sides were fed holds NaN or Inf, where the baseline's own first tensor out of bounds does."""
    first = report.first_mismatch
    if first is None or first.comparison is None or not first.comparison.base.nan + first.comparison.base.inf:
        return None
    for row in report.rows:
        fed = row.comparison.base if row.op_type == "Input" and row.comparison is not None else None
        if fed is not None and fed.nan + fed.inf:
            broken, of = count(fed.nan + fed.inf), count(fed.elements)
            too = Text(f", and `{first.name}` has NaN or Inf in the baseline, too", f"，基线的 `{first.name}` 也有")
            too = same("") if row.name == first.name else too
            return Text(
                f"Input `{row.name}` itself holds NaN or Inf ({broken} of {of} elements){too.en}: check what is fed"
                " before the precision.",
                f"输入 `{row.name}` 本身含有 NaN 或 Inf（{of} 个元素中有 {broken} 个）{too.zh}："
                "请先检查输入，再看精度。",
            )
    return None


def _not_looked_sentence(report: Report) -> Text:
    """That nobody was looked for, and why: not that nobody was found."""
    nobody = Text("No culprit was looked for", "未归因")
    if report.failure:
        return Text(f"{nobody.en}: the run ended before that", f"{nobody.zh}：运行在此之前已结束")
    if report.spec.explain == "off":
        return Text(f"{nobody.en} (--explain off)", f"{nobody.zh}（--explain off）")
    return nobody
