"""A language model's tokens in words: what trainers print of a sequence, the first one out of bounds, who moves one."""

from __future__ import annotations

from collections.abc import Iterator

from ..numbers.told import Token, TokenEffect, TokenEffects, Tokens
from ..reasons import Text, same
from .model import Report
from .sections import Cell, Section, plain_cell
from .words import count, format_count, format_figure

__all__ = [
    "TOKEN_COLUMNS",
    "describe_tokens",
    "find_first_beyond",
    "iterate_token_values",
    "make_effect_sections",
    "make_token_section",
]

_MOST = 64
"""Sequences that a summary lists; the JSON has all."""

_OPERATORS = 8
"""Operators that a summary lists of who moves a token."""


def find_first_beyond(report: Report) -> int | None:
    """Return the number of the first prediction that is out of bounds; None where none is, or no bound is known."""
    allowed = None if report.explanation is None else report.explanation.allowed
    return None if report.tokens is None else report.tokens.first_beyond(allowed)


def describe_tokens(report: Report) -> Iterator[tuple[Text, Text]]:
    """Labels and sentences for the terminal; nothing of a model that is no language model."""
    tokens = report.tokens
    if tokens is None:
        return
    yield Text("tokens", "词元"), _overall_text(tokens)
    first = find_first_beyond(report)
    if first is not None:
        one = tokens.tokens[first]
        said = Text(
            f"{_token_text(one).en}: its logits are off by {format_figure(one.error)} (Rel L2)",
            f"{_token_text(one).zh}：其 logits 相对 L2 误差为 {format_figure(one.error)}",
        )
        yield Text("first beyond", "首个超限"), said
    if report.token_effects is not None and (moved := _most_moved_text(tokens, report.token_effects)) is not None:
        yield Text("who moves it", "由谁造成"), moved


def _overall_text(tokens: Tokens) -> Text:
    known = [one for one in tokens.sequences if one.tokens]
    flips = sum(one.flips for one in tokens.sequences)
    every = sum(one.predictions for one in tokens.sequences)
    margin = max((float(one.margin) for one in tokens.tokens if one.flips), default=None)
    led = Text("", "") if margin is None else Text(
        f" (the baseline's lead was {format_figure(margin)} logits at most)",
        f"（基线领先至多 {format_figure(margin)}）"
    )  # fmt: skip
    kl = sum(float(one.mean_kl) * one.predictions for one in tokens.sequences) / max(1, every)
    flip = "flips" if flips == 1 else "flip"
    end = Text(
        f"KL {format_figure(kl)}; {count(flips)} of {format_count(every, 'greedy choice')} {flip}{led.en}",
        f"KL 散度 {format_figure(kl)}；{count(every)} 次贪心选择中有 {count(flips)} 次改变{led.zh}",
    )
    if not known:
        return end
    number = sum(one.tokens for one in known)
    mean = sum(float(one.mean_abs) * one.tokens for one in known) / number
    most = max(float(one.max_abs) for one in known)
    ratios = sorted(float(one.ratio) for one in known)
    ratio = (
        format_figure(ratios[0]) if len(ratios) == 1 else f"{format_figure(ratios[0])} to {format_figure(ratios[-1])}"
    )
    ratio_zh = ratio.replace(" to ", " 至 ")
    worst = tokens.worst
    where = Text("", "") if worst is None else _token_text(tokens.tokens[worst])
    place = Text(f" ({where.en})", f"（{where.zh}）") if worst is not None else where
    return Text(
        f"{format_count(number, 'token')} of {format_count(len(known), 'sequence')}: log-probabilities differ by"
        f" {format_figure(mean)} in the"
        f" mean, {format_figure(most)} at most{place.en}; importance ratio {ratio}; {end.en}",
        f"{count(len(known))} 个序列共 {count(number)} 个词元：对数概率平均相差 {format_figure(mean)}，最大"
        f" {format_figure(most)}"
        f"{place.zh}；重要性比率 {ratio_zh}；{end.zh}",
    )


def _token_text(one: Token) -> Text:
    """Return which token."""
    if one.id is None:
        return Text(f"what follows row {one.row}", f"第 {one.row} 行之后的词元")
    zh = f"第 {one.row} 行第 {one.place} 位的词元 {one.id}"
    return Text(f"token {one.id} at place {one.place} of row {one.row}", zh)


def _most_moved_text(tokens: Tokens, effects: TokenEffects) -> Text | None:
    """Return the operator that moves it most, with what is left where that one is repaired."""
    if not effects.operators:
        return None
    one, most = tokens.tokens[effects.token], effects.operators[0]
    layer = max(effects.layers, key=lambda layer: abs(float(layer.moved)))
    difference = format_figure(one.difference)
    left = Text("", "")
    if most.left is not None:
        left = Text(
            f"; in a replay, repaired alone it leaves {format_figure(most.left)} of {format_figure(effects.whole)},"
            " which all operators' own errors make in the baseline's run",
            f"；重放中仅修复它则剩 {format_figure(most.left)}（全部算子自身误差代入基线运行得到"
            f" {format_figure(effects.whole)}）",
        )
    within = Text(
        f"`{layer.group}` alone {format_figure(layer.moved)}, its largest operator `{most.name}` alone"
        f" {format_figure(most.moved)}",
        f"`{layer.group}` 单独造成 {format_figure(layer.moved)}，其中最大的算子 `{most.name}` 单独造成"
        f" {format_figure(most.moved)}",
    )
    who = _token_text(one)
    return Text(
        f"{who.en} differs by {difference}: {within.en}{left.en}", f"{who.zh}相差 {difference}：{within.zh}{left.zh}"
    )


def make_token_section(report: Report) -> Section:
    """One line a sequence: what trainers print of it."""
    tokens = report.tokens
    lines = () if tokens is None else tuple(
        tuple(
            Cell(text=same(text), right=True)
            for text in (
                str(one.row), count(one.tokens), format_figure(one.mean_abs), format_figure(one.max_abs),
                format_figure(one.mean_probability), format_figure(one.max_probability), format_figure(one.ratio),
                format_figure(one.mean_ratio),
                format_figure(one.mean_kl), f"{one.flips} / {one.predictions}",
            )
        )
        for one in tokens.sequences[:_MOST]
    )  # fmt: skip
    head = (
        Text("Row", "行"), Text("Tokens", "词元数"), Text("Mean |Δ log p|", "|Δ log p| 均值"),
        Text("Max |Δ log p|", "|Δ log p| 最大"), Text("Mean |Δ p|", "|Δ p| 均值"), Text("Max |Δ p|", "|Δ p| 最大"),
        Text("Importance ratio", "重要性比率"), Text("Mean exp|Δ log p|", "exp|Δ log p| 均值"),
        Text("Mean KL", "KL 均值"), Text("Greedy flips", "贪心选择改变"),
    )  # fmt: skip
    return Section(key="tokens", title=Text("Tokens, by sequence", "各序列的词元"), head=head, lines=lines)


def make_effect_sections(report: Report) -> tuple[Section, ...]:
    """Return who moves the token that was looked at: every layer alone, and the operators of the one that moves it
    most."""
    effects, tokens = report.token_effects, report.tokens
    if effects is None or tokens is None:
        return ()
    who = _token_text(tokens.tokens[effects.token])
    head = (
        Text("Errors of", "误差来自"), Text("Operators", "算子数"), Text("Move log p by", "使 log p 变化"),
        Text("Left without them", "去除后剩余"),
    )  # fmt: skip
    lines = (*map(_format_effect, effects.layers), *map(_format_effect, effects.operators[:_OPERATORS]))
    title = Text(f"Who moves {who.en}, by intervention", f"谁造成{who.zh}的偏差（干预测得）")
    return (Section(key="token_effects", title=title, head=head, lines=lines),)


def _format_effect(one: TokenEffect) -> tuple[Cell, ...]:
    return (
        plain_cell(same(one.group or one.name)), Cell(text=same(count(one.operators)), right=True),
        Cell(text=same(format_figure(one.moved)), right=True), Cell(text=same(format_figure(one.left)), right=True),
    )  # fmt: skip


TOKEN_COLUMNS = (
    Text("Row", "行"), Text("Place", "位置"), Text("Token Id", "词元编号"), Text("Log P (base)", "对数概率（基线）"),
    Text("Log P (target)", "对数概率（目标）"), Text("Difference", "差"), Text("KL", "KL 散度"),
    Text("Rank (base)", "名次（基线）"), Text("Rank (target)", "名次（目标）"),
    Text("Greedy (base)", "贪心选择（基线）"), Text("Greedy (target)", "贪心选择（目标）"),
    Text("Flips", "改变"), Text("Lead (base)", "领先（基线）"),
    Text("Logits Rel L2", "logits 相对 L2"), Text("Out of Bounds", "超限"),
)  # fmt: skip
"""What stands in the workbook of each prediction, in the order of ``iterate_token_values``."""


def iterate_token_values(report: Report) -> Iterator[tuple[float | int | None, ...]]:
    """One line a prediction."""
    allowed = None if report.explanation is None else report.explanation.allowed
    for one in () if report.tokens is None else report.tokens.tokens:
        out = None if allowed is None else int(not float(one.error) <= float(allowed))
        yield (
            one.row, one.place, one.id, one.base, one.target, one.difference, one.kl, one.rank, one.target_rank,
            one.chosen, one.target_chosen, int(one.flips), one.margin, one.error, out,
        )  # fmt: skip
