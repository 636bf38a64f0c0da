"""Decisions that were taken otherwise, as rows and as the first sentence tell of them."""

from __future__ import annotations

import dataclasses

from ..reasons import NOTHING, Reason, Text, say
from ..records import Decision, Explanation, Row, Status
from .model import Report, Verdict
from .words import count, format_figure, format_percent

__all__ = ["add_decision_reason", "decision_sentence", "explain_turned"]


def explain_turned(explanation: Explanation | None, name: str) -> Reason:
    """Return why a row passes that differs by such decisions alone; NOTHING where it does not."""
    if explanation is None or name not in explanation.turned:
        return NOTHING
    own = next((one for one in explanation.decisions if one.name == name), None)
    if own is not None:
        return _reason_for_decision(own)
    first = explanation.decisions[0]
    return say("behind_decisions", name=first.name) if first.count else say("behind_order", name=first.name)


def add_decision_reason(row: Row, explanation: Explanation | None) -> Row:
    """Return a row of decisions that are not as expected says how many turned, and how many rounding turns."""
    own = [one for one in explanation.decisions if one.name == row.name] if explanation is not None else []
    if not own or row.status is not Status.FAIL:
        return row
    return dataclasses.replace(row, reason=_reason_for_decision(own[0]))


def _reason_for_decision(one: Decision) -> Reason:
    if not one.count:
        return say("order_undefined")
    turned, of, predicted = one.count, one.elements, float(one.predicted)
    if one.margin is None:
        return say("decisions_turned", count=turned, all=of, predicted=predicted)
    return say("decisions_turned_apart", count=turned, all=of, margin=float(one.margin), predicted=predicted)


def decision_sentence(report: Report) -> Text | None:
    """Return which decisions an output is off by, and whether rounding explains it; None where there are none."""
    explanation = report.explanation
    if explanation is None or not explanation.decisions:
        return None
    one = next((one for one in explanation.decisions if not one.expected), explanation.decisions[0])
    more = len(explanation.decisions) - 1
    row = next((row for row in report.rows if row.name == one.at), None)
    floats = row is not None and row.comparison is not None and "float" in row.comparison.base.dtype
    what = f"{one.op_type} `{one.name}`"
    others = Text(f" (and of {count(more)} more)", f"（另有 {count(more)} 处）") if more else Text("", "")
    apart = (
        Text(f", where the scores are {format_figure(float(one.margin))} apart at most",
             f"，这些位置的分数在基线中至多相差 {format_figure(float(one.margin))}")
        if one.margin is not None else Text("", "")
    )  # fmt: skip
    size = format_figure(float(one.effect)) if floats else format_percent(float(one.effect))
    effect = Text(
        f"`{one.at}` is off by {size} (Rel L2) because of them" if floats else
        f"{size} of `{one.at}` differ because of them",
        f"`{one.at}` 的相对 L2 误差 {size} 由此而来" if floats else f"`{one.at}` 有 {size} 的元素因此不同",
    )  # fmt: skip
    if floats and one.rest is not None:
        rest = format_figure(float(one.rest))
        effect = Text(
            f"{effect.en} (with them taken in the baseline too it is off by {rest})",
            f"{effect.zh}（基线也取这些判定时，误差为 {rest}）",
        )
    turned = Text(
        f"{count(one.count)} of {count(one.elements)} decisions of {what}{others.en} turned{apart.en}",
        f"{what}{others.zh} 的 {count(one.elements)} 个判定中有 {count(one.count)} 个翻转{apart.zh}",
    )
    predicted = f"{float(one.predicted):.3g}"
    if not one.count:
        begin = Text("As expected: ", "符合预期：") if report.verdict is Verdict.EXPECTED else Text("", "")
        return Text(
            f"{begin.en}{what}{others.en} is asked for in no order (sorted=0), so its order is undefined; both sides"
            f" choose the same, and {effect.en}.",
            f"{begin.zh}{what}{others.zh} 不要求排序（sorted=0），其次序未定义；两侧选出的元素相同，{effect.zh}。",
        )
    if one.expected:
        begin = Text("As expected: ", "符合预期：") if report.verdict is Verdict.EXPECTED else Text("", "")
        return Text(
            f"{begin.en}{turned.en}; rounding turns about {predicted} of them, and {effect.en}.",
            f"{begin.zh}{turned.zh}；舍入约翻转 {predicted} 个，{effect.zh}。",
        )
    if one.margin is not None and one.reach and one.margin > one.reach:
        why = Text(
            f"it turns only those that are less than {format_figure(float(one.reach))} apart",
            f"舍入只会翻转相差小于 {format_figure(float(one.reach))} 的判定",
        )
    else:
        why = Text(f"it turns about {predicted} of them", f"舍入约翻转 {predicted} 个")
    return Text(
        f"{turned.en}, which rounding does not explain: {why.en}. {effect.en[:1].upper()}{effect.en[1:]}.",
        f"{turned.zh}，舍入不足以解释：{why.zh}。{effect.zh}。",
    )
