"""Who did it, in words: one sentence a culprit, in both languages, and the section that stands on top of a report."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..claims import ENOUGH
from ..explain import LEAST, bound_hidden_share, bound_of_many
from ..explain.criteria import HALF, LITTLE
from ..numbers.number_types import MODEL, is_narrow
from ..observe.sample_columns import WORST_SAMPLES
from ..reasons import Text, same, say
from ..reasons.cause import Cause, Kind
from ..reasons.causes import CAUSES
from ..records import Comparison, Culprit, Explanation, FoundBeside, KeptAlone, Overlap, Row, Status
from ..search.fix import ToKeep
from .fix import UNITS
from .model import Report, Verdict, count_coverage
from .next_step import suggest_for_culprits, suggest_for_diffuse
from .sections import Cell, Section, plain_cell
from .values import has_numbers, is_newly_broken
from .words import count, format_count, format_figure, format_percent, reason_text, recognise, wording_text

__all__ = [
    "UNITS",
    "are_culprits_harmless",
    "blame",
    "cancelling_error_sentence",
    "describe_culprit",
    "describe_expectation",
    "diffuse_sentence",
    "group_by_constant",
    "name_ranks",
    "named_culprits",
    "repairs_sentence",
    "sentence_of",
    "shared_error_sentence",
]


# On which ranks of a training run an operator is at fault, in words.

def name_ranks(ranks: Sequence[int]) -> Text:
    """As "rank 1", or "ranks 0, 1"."""
    listed = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    return Text(f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}", f"rank {listed}")


def describe_culprit_ranks(culprit: Culprit) -> Text | None:
    """Say which ranks an operator spoils the gradients of, and how far off the worst of them is on each side.

    None where there is one rank."""
    if not culprit.ranks:
        return None
    who = name_ranks(culprit.ranks)
    there, others = ({}, {})  # type: tuple[dict[int, float], dict[int, float]]
    for rank, error in culprit.errors.items():
        (there if int(rank) in culprit.ranks else others)[int(rank)] = error
    if not others:
        return Text(f"All ranks have it ({', '.join(map(str, culprit.ranks))}).", f"所有 rank 均如此（{who.zh}）。")
    at = f"`{culprit.at.partition('/')[2]}`"
    own, other = _format_rank_errors(there.values()), _format_rank_errors(others.values())
    elsewhere = name_ranks([*others])
    begins = f"{who.en[0].upper()}{who.en[1:]} alone {'has' if len(culprit.ranks) == 1 else 'have'} it"
    return Text(
        f"{begins}: {at} is {own.en} there, and {other.en} on {elsewhere.en}.",
        f"仅 {who.zh} 如此：其 {at} {own.zh}，而 {elsewhere.zh} 上{other.zh}。",
    )


def _format_rank_errors(errors: Collection[float]) -> Text:
    worst = max(errors, default=0.0)
    if worst == math.inf:
        return Text("NaN or Inf", "为 NaN 或 Inf")
    most, most_zh = (" up to", "最多") if len(errors) > 1 else ("", "")
    return Text(f"off by{most} {format_figure(worst)} (Rel L2)", f"相对 L2 误差{most_zh}为 {format_figure(worst)}")


_SHOWN = 5

_TYPES = 4
"""Operator types of a stretch that a sentence names."""

_KEPT = 8
"""Tensors to keep that a sentence names; the JSON has all."""

_MOST_OF_IT = 0.5
"""Share of the squared error from which on it cannot be said that no single operator causes it, even where that error
is too small to accuse anybody."""

_OTHERS = 4
"""Tensors beside a culprit's that a line of evidence names; the JSON has all."""

_TWICE = 2.0
"""Times the whole squared error that what one repair leaves and what all others' leave are apart from it, together,
from which on the operators interact: independent errors add up to it."""

_ALL = 1.005
"""Share of the squared error, as it is rounded, beyond which one operator makes more than there is: others take some of
it away again."""

_SETS = 4
"""Sets of operators that were repaired in vain, of which a sentence tells."""

_CONFIDENCE = {
    "isolated": Text("measured on the engine, alone, on the baseline's inputs", "在引擎上以基线输入单独运行测得"),
    "replayed": Text(
        "measured by replaying the baseline's operator on the target's inputs", "以目标输入重放基线算子测得"
    ),
    "simulated": Text("measured in a simulation", "在模拟中测得"),
    "substituted": Text(
        "measured by putting the target's values into the baseline's run: those of this tensor make NaN or Inf behind"
        " it, those of each tensor that it reads do not",
        "将目标的值代入基线的运行测得：代入该张量的值会使其后出现 NaN 或 Inf，单独代入其任一输入的值则不会",
    ),
    "repaired": Text("by keeping it in FP32 on the engine", "在引擎上将其保留为 FP32 测得"),
    "compared": Text("by comparing the inputs of both sides", "通过比较两侧所得到的输入得出"),
    "ranked": Text("only ranked by its error", "仅按误差排序得出"),
}


def named_culprits(report: Report) -> tuple[Culprit, ...]:
    """Return the culprits that were named, worst first."""
    return report.explanation.culprits if report.explanation is not None else ()


def group_by_constant(culprits: Sequence[Culprit]) -> list[list[Culprit]]:
    """Return them in their order, each with those after it of which the same is told of the same constant, or of
    operators that one side alone has."""
    groups: dict[Any, list[Culprit]] = {}
    for place, one in enumerate(culprits):
        constant = one.evidence.get("weight") or one.evidence.get("what") == say("a_constant")
        told = _cause_text(one).en if constant else one.evidence["owner"] if one.evidence.get("sole") else None
        groups.setdefault(place if told is None else (one.cause, told), []).append(one)
    return [*groups.values()]


def sentence_of(culprit: Culprit, precision: str, to_keep: ToKeep | None = None) -> Text:
    """Say which operator is to blame, why, and what to keep in higher precision.

    The last where the target has a lower one and nothing was tried, of which another sentence tells (see ``tried``). Of
    a step of several ranks, which of them have it."""
    said, ranks = _culprit_sentence(culprit, precision, to_keep), describe_culprit_ranks(culprit)
    return said if ranks is None else Text(f"{said.en} {ranks.en}", f"{said.zh}{ranks.zh}")


def describe_culprit(report: Report, culprit: Culprit) -> Text:
    """Return the same, of a report: where the error that a culprit makes passes, nobody lost what had to be kept."""
    said = sentence_of(culprit, report.target.precision, report.to_keep)
    known = CAUSES.get(culprit.cause)
    if not are_culprits_harmless(report) or known is None or known.sentence is not None:
        return said
    what, why, name = _types(culprit, 4), _cause_text(culprit), _name_of(culprit)
    if culprit.cause == "coarse" and not known.instead.keys() & culprit.evidence.keys():
        why = Text("its own rounding to this type", "其自身舍入到该类型")
    return Text(f"{what} `{name}` ({why.en}).", f"{what} `{name}`（{why.zh}）。")


def _name_of(culprit: Culprit) -> str:
    """Return what the sentence is about: the culprit, or the operator whose error it has (see ``_types``)."""
    return str(culprit.evidence.get("owner", culprit.name))


def _types(culprit: Culprit, most: int) -> str:
    """Return the last of its operators' types, or whose error it is; an Identity computes nothing of what is said."""
    if owner := culprit.evidence.get("owner_type"):
        return str(owner)
    return "+".join(([one for one in culprit.op_types if one != "Identity"] or list(culprit.op_types))[-most:])


def are_culprits_harmless(report: Report) -> bool:
    """Return whether the error that the culprits make is within what is expected, so that they are named and not
    accused."""
    return report.explanation is not None and report.explanation.passes and report.verdict is not Verdict.FAIL


def _culprit_sentence(culprit: Culprit, precision: str, to_keep: ToKeep | None) -> Text:
    what = stretch = _types(culprit, _TYPES)
    why, name = _cause_text(culprit), _name_of(culprit)
    named, more = culprit.keep[:_KEPT], len(culprit.keep) - _KEPT
    *before, last = [*(f"`{one}`" for one in named), *([f"{count(more)} more"] if more > 0 else [])] or [""]
    keep = f"{', '.join(before)} and {last}" if before else last
    kept = "、".join(f"`{one}`" for one in named) + (f" 等 {count(len(culprit.keep))} 个张量" if more > 0 else "")
    known = CAUSES.get(culprit.cause)  # None: of a file that another version wrote
    own = _whole_cause_sentence(known, culprit, what, why) if known is not None else None
    if own is not None:
        return own
    whole = len(culprit.op_types) > _TYPES and len(culprit.inside) == len(culprit.op_types)
    if whole and name == culprit.name and is_narrow(precision):
        # which of them are left out, and where the stretch begins, is not to be guessed from its last operator
        first, last = f"{culprit.op_types[0]} `{culprit.inside[0]}`", culprit.op_types[-1]
        what = f"The stretch of {count(len(culprit.inside))} operators from {first} to {last}"
        stretch = f"由 {first} 至 {last}"
    lost = f"精度在{'' if stretch.startswith('由') else ' '}{stretch} `{name}` 处丢失"
    certain = known is not None and not known.by_a_pass  # why is known: nothing is left to compare
    if precision == MODEL or (certain and not is_narrow(precision)):
        return Text(f"{what} `{name}` lost the precision:"
                    f" {why.en}.", f"{lost}：{why.zh}。")
    wide = "FP64" if precision == "float64" else "FP32"
    if not is_narrow(precision) and known is not None and known.by_a_pass:
        return Text(
            f"{what} `{name}` causes the error: {why.en}. Both sides compute in {wide}, and rounding does not"
            " do that: one of them is wrong here, or they do not compute the same thing.",
            f"{what} `{name}`：{why.zh}。两侧都以 {wide} 计算，舍入不会造成这样的误差：其中一侧算错，或两侧算的"
            "不是同一件事。",
        )
    if not is_narrow(precision):
        return Text(
            f"{what} `{name}` lost the precision: {why.en}. The target computes in {wide} too: compare what"
            " both sides compute here.",
            f"{lost}：{why.zh}。目标同样以 {wide} 计算：请对照两侧在此处的运算。",
        )
    if to_keep is not None and to_keep.state:  # it was run what keeping them brings
        return Text(f"{what} `{name}` lost the precision:"
                    f" {why.en}.", f"{lost}：{why.zh}。")
    return Text(
        f"{what} `{name}` lost the precision: {why.en}. Keep {keep} in FP32, and the operators that read"
        f" {'it' if len(culprit.keep) == 1 else 'them'}.",
        f"{lost}：{why.zh}。请将 {kept} 及其读取者保留为 FP32。",
    )


def describe_expectation(report: Report) -> list[Text]:
    """Where no tolerance was given: how far the worst output is off, beside what rounding everywhere predicts."""
    explained = report.explanation
    if report.spec.tolerance.given or explained is None or explained.actual is None or explained.allowed is None:
        return []
    row = next((row for row in report.rows if row.name == explained.at), None)
    if row is not None and row.comparison is not None and not has_numbers(row):
        return []  # of another shape, empty, or NaN throughout, it is off by no number
    if row is not None and row.comparison is not None and _is_exact(row.comparison, row.name, explained):
        moved, of = count(row.comparison.mismatched or 0), count(row.comparison.base.elements)
        most, by, by_zh = row.comparison.max_abs, "", ""
        if most is not None and "int" in row.comparison.base.dtype:
            by, by_zh = f", by {format_figure(most)} at most", f"，至多相差 {format_figure(most)}"
        return [
            Text(
                f"No tolerance was given, so only equal elements pass: {moved} of {of} elements of {row.name}"
                f" differ{by}.",
                f"未给出容差，元素须完全一致：{row.name} 的 {of} 个元素中有 {moved} 个不同{by_zh}。",
            )
        ]
    at = _worst_sample(report, explained.at)
    english = f"No tolerance was given: {explained.at} is off by {format_figure(explained.actual)} (Rel L2){at.en}"
    chinese = f"未给出容差：{explained.at} 的相对 L2 误差{at.zh}为 {format_figure(explained.actual)}"
    if explained.actual <= LEAST:  # how many times a prediction of next to nothing that is says nothing
        english += f", which is of no account in any type (at most {format_figure(LEAST)})"
        chinese += f"，对任何类型都可忽略（不超过 {format_figure(LEAST)}）"
    elif explained.at in explained.steps:
        step = format_figure(float(explained.steps[explained.at]))
        return [
            Text(
                f"{english}, within half a step of its own scale ({step}): no engine can say more of probabilities in"
                " this file.",
                f"{chinese}，不到其自身量化步长（{step}）的一半：此文件中的概率无法表示得更精细。",
            )
        ]
    elif explained.expected and count_coverage(report.rows).share >= ENOUGH:  # what was not seen was not rounded either
        times = format_figure(float(f"{explained.actual / explained.expected:.3g}"))
        english += f", {times} x the error predicted for rounding everywhere"
        chinese += f"，是处处舍入所预测误差的 {times} 倍"
    of_many, mode = bound_of_many(explained), report.target.mode
    if of_many is not None and explained.allowed < of_many:
        return [
            Text(
                f"{english}; up to {format_figure(of_many)} is expected of {mode}, and up to"
                f" {format_figure(explained.allowed)} where"
                " one operator makes most of it.",
                f"{chinese}；{mode} 在 {format_figure(of_many)} 以内均属预期，若其大部分来自单个算子，则以"
                f" {format_figure(explained.allowed)} 为限。",
            )
        ]
    return [
        Text(
            f"{english}; up to {format_figure(explained.allowed)} is expected of {mode}.",
            f"{chinese}；{mode} 在 {format_figure(explained.allowed)} 以内均属预期。",
        )
    ]


def _is_exact(numbers: Comparison, name: str, explained: Explanation) -> bool:
    """Return whether a tensor's elements are equal or wrong, which no relative error tells."""
    of_floats = "float" in numbers.base.dtype or "complex" in numbers.base.dtype or name in explained.rounded
    return bool(numbers.mismatched) and not of_floats


def _worst_sample(report: Report, name: str) -> Text:
    """Return which of many samples an explanation is of; the table is over all of them."""
    row = next((row for row in report.rows if row.name == name), None)
    worst = row.extra.get(WORST_SAMPLES, "") if row is not None else ""
    number = worst.partition(" ")[0]
    return Text(f" in sample {number}, the worst", f"在误差最大的样本 {number} 中") if number else same("")


def blame(report: Report) -> Section:
    """Return the culprits, or why there are none."""
    title = Text("Culprits and causes", "元凶及原因")
    if are_culprits_harmless(report):
        title = Text("What makes most of the error, which passes", "误差的主要来源（误差在预期之内）")
    explanation = report.explanation
    if explanation is None:
        return Section(key="culprits", title=title)
    lines: list[tuple[Cell, ...]] = []
    rows = {row.name: row for row in report.rows}
    groups = group_by_constant(explanation.culprits)
    for place, (culprit, *others) in enumerate(groups[:_SHOWN], 1):
        row = rows.get(culprit.name)
        label = Cell(text=same(f"{place}. {_shorten_name(culprit.name)}"), row=_index_of(row))
        lines.append((label, plain_cell(describe_culprit(report, culprit))))
        lines.append(
            (plain_cell(same("")), plain_cell(_evidence_sentence(culprit, row, _fails_first(report, culprit))))
        )
        if others:
            names = ", ".join(f"`{one.name}`" for one in others)
            too = Text(f"the same constant makes the error of {names}, too", f"同一常量也造成 {names} 的误差")
            if culprit.evidence.get("sole"):
                too = Text(f"it makes the error of {names}, too", f"它也造成 {names} 的误差")
            lines.append((plain_cell(same("")), plain_cell(too)))
        if place == 1:  # what to do stands with the first: nobody should have to look for it below the others
            lines += suggest_for_culprits(report)
    more = len(groups) - _SHOWN
    if more > 0:
        lines.append((plain_cell(same("")), plain_cell(Text(f"… and {count(more)} more", f"……另有 {count(more)} 个"))))
    if not lines and (text := _no_culprit_sentence(report)) is not None:
        lines.append((plain_cell(text),))
        lines += suggest_for_diffuse(report)
    return Section(key="culprits", title=title, lines=tuple(lines))


def _shorten_name(name: str, most: int = 32) -> str:
    """Return the end of a long name, which tells one layer's tensors apart."""
    return name if len(name) <= most else f"…{name[-most:]}"


def _index_of(row: Row | None) -> int | None:
    return None if row is None else row.index


def _no_culprit_sentence(report: Report) -> Text | None:
    explanation = report.explanation
    assert explanation is not None
    broken = report.first_non_finite
    if explanation.state == "diffuse" and broken is not None and any(map(is_newly_broken, report.outputs)):
        return Text(  # no rounding adds up to that
            f"NaN or Inf first appears in `{broken.name}`, and which operator makes it was not found.",
            f"NaN 或 Inf 首先出现在 `{broken.name}`，未能查明由哪个算子产生。",
        )
    if explanation.state == "diffuse":
        return diffuse_sentence(explanation)
    if explanation.state == "unknown":
        return Text(
            f"Which operator introduced the error was not measured: {explanation.reason}.",
            f"未能测定误差由哪个算子引入：{reason_text(explanation.reason, 'zh')}。",
        )
    if not report.compared:
        return None
    failed, first = {row.name for row in report.rows if row.status is Status.FAIL}, report.first_mismatch
    if explanation.unfelt in failed and first is not None:
        return Text(
            f"`{first.name}` is out of bounds, and no output is.", f"`{first.name}` 超限，而各输出均未超限。"
        )
    if explanation.candidates:
        tried = _tried_operators_text(explanation)
        left = explanation.candidates - explanation.tried
        most = max(*explanation.budget.values(), bound_hidden_share(explanation) or 0.0 if left else 0.0, 0.0)
        if most >= _MOST_OF_IT:
            return Text(
                f"Nobody is accused: the error is within what is expected, and {tried.en}.",
                f"未归咎于任何算子：误差在预期之内，{tried.zh}。",
            )
        return Text(
            f"No single operator causes the error: {tried.en}.", f"没有单个算子造成该误差：{tried.zh}。"
        )
    if not any(map(has_numbers, report.outputs)):
        return Text(
            "No output could be compared in numbers, so no culprit was looked for.",
            "没有输出可作数值比较，因此未归因。",
        )
    # a target in float64 rounds next to nothing: what is lost there, the baseline lost
    side = Text("baseline", "基线") if report.target.precision == "float64" else Text("target", "目标")
    if explanation.actual is None or explanation.unit is None:
        return Text(
            f"No culprit: the outputs are off by no more than rounding to the {side.en}'s type costs.",
            f"无需归因：各输出的误差不超过舍入到{side.zh}类型的损失。",
        )
    off, unit = format_figure(explanation.actual), format_figure(explanation.unit)
    return Text(
        f"No culprit: the outputs are off by {off} (Rel L2), and rounding once to the {side.en}'s type costs {unit}.",
        f"无需归因：各输出的相对 L2 误差最大为 {off}，而舍入到{side.zh}类型一次就损失 {unit}。",
    )


def diffuse_sentence(explanation: Explanation) -> Text:
    """That nobody is to blame: what all add up to, or that one alone does what the others do without it."""
    if explanation.overlap is not None:
        return _overlapping_sentence(explanation, explanation.overlap)
    if not explanation.candidates and explanation.actual is not None and explanation.unit is not None:
        off, unit = format_figure(explanation.actual), format_figure(explanation.unit)
        return Text(
            f"No culprit was looked for: the outputs are off by {off} (Rel L2), and rounding once to this type costs"
            f" {unit}.",
            f"未归因：各输出的相对 L2 误差最大为 {off}，而舍入到该类型一次就损失 {unit}。",
        )
    tried, sets = _tried_operators_text(explanation), _repaired_sets_sentence(explanation)
    return Text(
        f"Diffuse: no single culprit. The rounding of many operators adds up to the error: {tried.en}{sets.en}.",
        f"误差分散，无单一算子可归因：由众多算子的舍入误差累积而成：{tried.zh}{sets.zh}。",
    )


def _repaired_sets_sentence(explanation: Explanation) -> Text:
    """Return what was left without the errors of a few operators together, none of which sets halves it."""
    least = {len(one.names): one for one in sorted(explanation.repaired_sets, key=lambda one: -one.left)}
    told = [least[size] for size in sorted(least)][-_SETS:]
    if not told:
        return same("")
    sizes, lefts = [count(len(one.names)) for one in told], [format_figure(one.left) for one in told]
    whole = format_figure(told[0].whole)
    if len(told) == 1:
        return Text(
            f"; replayed without the errors of {sizes[0]} of them {lefts[0]} of {whole} would be left",
            f"；重放中去掉其中 {sizes[0]} 个的误差后仍剩 {lefts[0]}（原为 {whole}）",
        )
    return Text(
        f"; replayed without the errors of {', '.join(sizes[:-1])} and {sizes[-1]} of them {', '.join(lefts[:-1])} and"
        f" {lefts[-1]} of {whole} would be left",
        f"；重放中去掉其中 {'、'.join(sizes)} 个的误差后分别仍剩 {'、'.join(lefts)}（原为 {whole}）",
    )


def _overlapping_sentence(explanation: Explanation, overlap: Overlap) -> Text:
    whole, name = format_figure(overlap.whole or explanation.actual or 0.0), overlap.name
    if overlap.kept:
        share, left = format_percent(explanation.budget.get(name, 0.0)), format_figure(overlap.without)
        kept = format_count(overlap.kept, "operator")
        return Text(
            f"Diffuse: no single culprit, because the errors of the operators do not add up. That of `{name}` alone"
            f" makes {share} of the squared error at {explanation.at}, but with it and all others that were suspected"
            f" kept in FP32 on the engine ({kept}) {left} of {whole} is left.",
            f"误差分散，无单一算子可归因，因为各算子的误差不是相加的：仅 `{name}` 的误差就占 {explanation.at}"
            f" 平方误差的 {share}，但在引擎上将它与其他可疑算子保留为 FP32（{count(overlap.kept)} 个算子）后，"
            f"误差为 {left}（原为 {whole}）。",
        )
    fewest = Text(
        f"halving it takes leaving out the {count(overlap.fewest or 0)} largest of the {count(overlap.tried)} tried",
        f"要减半须去掉已尝试的 {count(overlap.tried)} 个中最大的 {count(overlap.fewest or 0)} 个",
    ) if overlap.fewest is not None else Text(
        f"leaving out all {count(overlap.tried)} that were tried does not halve it",
        f"去掉尝试过的全部 {count(overlap.tried)} 个也不能减半",
    )
    why = Text(", because the errors of the operators do not add up", "，因为各算子的误差不是相加的")
    alone, all_of = overlap.alone or 0.0, overlap.whole or explanation.actual or 0.0
    if alone**2 + overlap.without**2 <= LITTLE * all_of**2:  # as those of independent roundings do
        why = same("")
    return Text(
        f"Diffuse: no single culprit{why.en}. That of `{name}` alone puts"
        f" {explanation.at} off by {format_figure(alone)} (all together: {whole}), but replayed without it"
        f" {format_figure(overlap.without)} would be left; {fewest.en}.",
        f"误差分散，无单一算子可归因{why.zh}：仅 `{name}` 的误差就使 {explanation.at} 的误差为"
        f" {format_figure(alone)}（全部合计为 {whole}），但重放中去掉它仍剩"
        f" {format_figure(overlap.without)}；{fewest.zh}。",
    )


def _tried_operators_text(explanation: Explanation) -> Text:
    """Return how many operators' errors were carried to the outputs, each alone, and the most that one of them makes
    there."""
    left, most = explanation.candidates - explanation.tried, max(explanation.budget.values(), default=0.0)
    if not explanation.tried and explanation.rest is not None:
        share = format_percent(explanation.rest)
        return Text(
            f"{'all ' * (left > 1)}{format_count(left, 'operator')} together make {share} of it",
            f"全部 {count(left)} 个算子合计占 {share}"
        )
    en = f"of {format_count(explanation.tried, 'operator')} tried alone, the largest makes {format_percent(most)} of it"
    zh = f"已单独尝试 {count(explanation.tried)} 个，单个算子的最大占比为 {format_percent(most)}"
    if left and explanation.rest is not None:
        en += f", and {count(left)} more {'makes' if left == 1 else 'make'} {format_percent(explanation.rest)} together"
        zh += f"，其余 {count(left)} 个合计 {format_percent(explanation.rest)}"
        if explanation.part is not None:
            en += f" (by parts, at most {format_percent(explanation.part)} each)"
            zh += f"（分成几部分时每部分至多 {format_percent(explanation.part)}）"
    return Text(en, zh)


def _fails_first(report: Report, culprit: Culprit) -> str:
    """Return the first tensor out of tolerance at or after a culprit, by the bound that followed from the
    explanation."""
    reached, by_name = {culprit.name}, {row.name: row for row in report.rows}
    found = by_name.get(culprit.fails_first)
    if found is None or culprit.name not in by_name:
        return culprit.fails_first
    for row in report.rows:
        if row.name == culprit.name or reached & {*row.inputs}:
            reached.add(row.name)
            if row.status is Status.FAIL:
                return row.name
    return culprit.fails_first if found.status is Status.FAIL else ""


def _evidence_sentence(culprit: Culprit, row: Row | None, shown: str) -> Text:
    """shown: the first tensor that fails because of it."""
    english, chinese = [], []
    if culprit.beside is not None:
        found = _beside_text(culprit.beside)
        english.append(found.en)
        chinese.append(found.zh)
    # what is left of a tensor in which NaN or Inf are born is no evidence
    known = CAUSES.get(culprit.cause)
    beyond = known is not None and known.out_of_range == "above"
    own = row.introduced if row is not None else None
    if culprit.introduced == math.inf and own is not None and own.max_abs and not (own.born_nan or own.born_inf):
        size = format_figure(own.max_abs)
        english.append(f"the exact result is all 0, so the error it introduces ({size}) is infinite beside it")
        chinese.append(f"精确结果全为 0，因此它引入的误差（{size}）相对而言为无穷大")
    elif culprit.introduced == math.inf:
        english.append("NaN or Inf first appears in it, so the error it introduces is infinite")
        chinese.append("NaN 或 Inf 由它产生，因此它引入的误差为无穷大")
    elif culprit.introduced is not None and not (beyond and (culprit.units or 0.0) < 1.0):
        units = "" if culprit.units is None else f" ({format_figure(culprit.units)} x one rounding)"
        mal = "" if culprit.units is None else f"（单次舍入的 {format_figure(culprit.units)} 倍）"
        english.append(f"introduced error {format_figure(culprit.introduced)}{units}")
        chinese.append(f"自身引入误差 {format_figure(culprit.introduced)}{mal}")
    left = culprit.evidence.get("left")
    if known is not None and known.undone is not None and isinstance(left, (int, float)):
        english.append(f"{known.undone.en}, {format_percent(left)} of that error is left")
        chinese.append(f"{known.undone.zh}，该误差仅剩 {format_percent(left)}")
    elif known is not None and known.undone is not None and "left" in culprit.evidence:
        english.append(f"not measured: what is left of that error {known.undone.en}")
        chinese.append(f"未测量：{known.undone.zh}，该误差还剩多少")
    if culprit.inner and culprit.inner_part is not None:
        part = format_percent(culprit.inner_part)
        english.append(f"inside it, rounding `{culprit.inner}` alone in the baseline's run makes {part} of that error")
        chinese.append(f"其内部仅将 `{culprit.inner}` 舍入（在基线的运行中）即造成该误差的 {part}")
    if culprit.share is not None and culprit.at and culprit.kept_alone is None:  # else the engine told it
        with_others = bool(culprit.evidence.get("too"))  # of one channel: see explain.grid
        who, zhe = ("together they explain", "它们共同解释") if with_others else ("alone it explains", "单独即可解释")
        what, shen = ("NaN and Inf", " NaN 和 Inf 的") if culprit.non_finite else ("squared error", "平方误差的")
        more, duo = ("", "") if culprit.share <= _ALL else (" (more than all errors together)", "（多于全部误差合计）")
        if more:
            who, zhe = ("together they make", "它们共同造成") if with_others else ("alone it makes", "单独即造成")
        english.append(f"{who} {format_percent(culprit.share)} of the {what} at {culprit.at}{more}")
        chinese.append(f"{zhe} {culprit.at} 处{shen} {format_percent(culprit.share)}{duo}")
    if (repairs := repairs_sentence(culprit)) is not None:
        english.append(repairs.en)
        chinese.append(repairs.zh)
    only = culprit.repaired is not None and not {*culprit.left_out} - {culprit.name}  # told by its repair already
    if culprit.without is not None and culprit.at and not only:
        whose = _left_out_text(culprit)
        much = duo = ""
        if culprit.with_all is not None:
            every = format_figure(culprit.with_all)
            where = Text("", "") if repairs is not None else Text(
                ", which all measured errors make in the baseline", "（全部测得误差代入基线所得）"
            )  # fmt: skip
            much, duo = f" instead of {every}{where.en}", f"，而非 {every}{where.zh}"
        english.append(f"replayed without {whose.en} {culprit.at} is off by {format_figure(culprit.without)}{much}")
        chinese.append(f"重放中若无{whose.zh}，{culprit.at} 的误差为 {format_figure(culprit.without)}{duo}")
    if shown not in ("", culprit.name):
        english.append(f"first tensor that fails because of it: {shown}")
        chinese.append(f"因其首先超限的张量：{shown}")
    sure = _CONFIDENCE.get(culprit.confidence, same(culprit.confidence))
    english.append(sure.en)
    chinese.append(sure.zh)
    return Text("; ".join(english), "；".join(chinese))


def repairs_sentence(culprit: Culprit) -> Text | None:
    """Return what is left when it alone is repaired, as the target ran it where it did, and when all others are in a
    replay; that they interact where these do not add up."""
    left, rest, whole, ran = culprit.repaired, culprit.others_repaired, culprit.with_all, culprit.kept_alone
    if left is None or rest is None or not whole:
        return None
    one, others, every = (format_figure(error) for error in (left, rest, whole))
    said = Text("", "") if ran is None else _kept_alone_text(culprit, ran)
    alone, zhe = (f"repaired alone it leaves {one} there, and ", f"仅修复它则剩 {one}，") if ran is None else ("", "")
    en = (
        f"{said.en}in a replay{', not run on the engine' * (ran is None)}, with every measured error put into the"
        f" baseline, {culprit.at} is off by {every}: {alone}all others repaired leave {others}"
    )
    zh = (
        f"{said.zh}重放{'（未在引擎上运行）' * (ran is None)}中，把测得的全部误差代入基线，{culprit.at} 的误差为"
        f" {every}：{zhe}修复其余全部算子则剩 {others}"
    )
    if ran is not None:
        return Text(en, zh)
    together = (left**2 + rest**2) / whole**2
    if left > whole:
        en += " (the operators interact: repairing it alone makes it worse)"
        zh += "（各算子相互影响：仅修复它反而更差）"
    elif not 1 / _TWICE <= together <= _TWICE:
        en += " (the operators interact: their errors do not add up)"
        zh += "（各算子相互影响：误差不是相加的）"
    return Text(en, zh)


def _kept_alone_text(culprit: Culprit, ran: KeptAlone) -> Text:
    """Return what a run of the target with it alone kept is off by, and with what reads it."""
    left, before = format_figure(ran.left), format_figure(ran.before)
    en = f"with it alone kept in FP32 a run of {ran.mode} leaves {left} of {before} at {culprit.at}"
    zh = f"仅将它保留为 FP32 运行 {ran.mode}，{culprit.at} 的误差为 {left}（原为 {before}"
    if ran.is_worse:
        en += " (worse: its error cancels part of the others')"
        zh += "；更差：它的误差抵消了其他算子的一部分误差）"
    else:
        gone = format_percent(ran.gone)
        en += f" ({gone} of the squared error goes)"
        zh += f"；平方误差减少 {gone}）"
    if ran.with_readers is not None:
        more = format_figure(ran.with_readers)
        who = "the operator that reads it" if ran.readers == 1 else f"the {count(ran.readers)} operators that read it"
        gone = format_percent(max(0.0, ran.gone_with_readers))
        en += f", and {more} with {who} kept too ({gone} goes)"
        zh += f"，连同读取它的 {count(ran.readers)} 个算子一起保留则为 {more}（减少 {gone}）"
    return Text(f"{en}; ", f"{zh}；")


def _beside_text(found: FoundBeside) -> Text:
    """Say with which operators kept one was found, and what that leaves; all that follows is of that run."""
    more = len(found.kept) - _OTHERS
    names = [f"`{name}`" for name in found.kept[:_OTHERS]]
    en, zh = ", ".join(names) + f" and {count(more)} more" * (more > 0), "、".join(names) + " 等" * (more > 0)
    left, before, then = (format_figure(error) for error in (found.left, found.before, found.then))
    before, zhiqian = (before, before) if math.isfinite(found.before) else ("NaN or Inf", " NaN 或 Inf")
    return Text(
        f"found with {en} kept in FP32, where a run of {found.mode} leaves {left} of {before}, and with this one kept"
        f" too {then}; what follows is of that run",
        f"在将 {zh} 保留为 FP32 后找到：{found.mode} 的误差此时为 {left}（原为 {zhiqian}），再保留它则为 {then}；"
        "以下均为此次运行的数值",
    )


def cancelling_error_sentence(culprit: Culprit) -> Text | None:
    """Say that mending an operator alone makes the error larger, as a run of the target showed; None elsewhere."""
    ran = culprit.kept_alone
    if ran is None or not ran.is_worse:
        return None
    left, before = format_figure(ran.left), format_figure(ran.before)
    return Text(
        f"It is not to be mended alone: its error cancels part of the others', and with it alone kept in FP32 a run of"
        f" {ran.mode} is off by {left} in place of {before}.",
        f"不应仅修复它：它的误差抵消了其他算子的一部分误差，仅将它保留为 FP32 运行 {ran.mode}，"
        f"误差为 {left}（原为 {before}）。",
    )


def shared_error_sentence(culprit: Culprit) -> Text | None:
    """Say that an error is of several operators: repairing this one alone takes little of it, and all of them more.

    None where that was not measured, or is not so."""
    alone, all_of_them, whole = culprit.repaired, culprit.without, culprit.with_all
    names = [culprit.name, *(name for name in culprit.left_out if name != culprit.name)]
    if alone is None or all_of_them is None or not whole or len(names) == 1:
        return None
    if alone * LITTLE < whole or all_of_them * LITTLE > alone:
        return None
    of = _join_tensors(names)
    left, one, before = format_figure(all_of_them), format_figure(alone), format_figure(whole)
    return Text(
        f"The error at `{culprit.at}` is made by several operators together: put into the baseline, all measured errors"
        f" make {before}, those without {of.en} {left}, and those without `{culprit.name}` alone {one}.",
        f"`{culprit.at}` 处的误差由多个算子共同造成：全部测得误差代入基线得 {before}，去除 {of.zh} 的误差得 {left}，"
        f"仅去除 `{culprit.name}` 的误差得 {one}。",
    )


def _left_out_text(culprit: Culprit) -> Text:
    """Whose errors were left out to see what is left: its own, and those of what belongs to it."""
    others = [name for name in culprit.left_out if name != culprit.name]
    if not others:
        return Text("its error", "其误差")
    of = _join_tensors(others)
    return Text(f"its error and those of {of.en},", f"其误差及 {of.zh} 的误差")


def _join_tensors(tensors: Sequence[str]) -> Text:
    more = len(tensors) - _OTHERS
    names = [f"`{name}`" for name in tensors[:_OTHERS]]
    return Text(
        ", ".join(names) + (f" and {count(more)} more" if more > 0 else ""),
        "、".join(names) + (f" 等 {count(len(tensors))} 个张量" if more > 0 else ""),
    )


def _cause_text(culprit: Culprit) -> Text:
    """Return what the cause says with its evidence; in a few words where that is not whole. Where undoing it leaves
    more than half of the operator's own error, it says how much: something else makes that, which may be told."""
    known = CAUSES.get(culprit.cause)
    if known is None:
        return same(culprit.cause)
    evidence = _format_evidence(known, culprit.evidence)
    wording = known.wording(culprit.evidence)
    en, zh = [wording_text(wording, evidence, lang) for lang in ("en", "zh")] if wording is not None else [None, None]
    for more in (one for key, one in known.behind.items() if culprit.evidence.get(key) and en and zh):
        en, zh = f"{en}{wording_text(more, evidence, 'en')}", f"{zh}{wording_text(more, evidence, 'zh')}"
    said = Text(known.en, known.zh) if en is None or zh is None else Text(en, zh.replace("`, `", "`、`"))
    left = culprit.evidence.get("left")
    if known.undone is None or not isinstance(left, (int, float)) or left <= HALF or culprit.evidence.get("parts"):
        return said
    share = format_percent(left)
    return Text(
        f"{said.en} ({known.undone.en}, {share} of its own error is left, which has another cause)",
        f"{said.zh}（{known.undone.zh}，自身误差仍剩 {share}，另有原因）",
    )


def _whole_cause_sentence(known: Cause, culprit: Culprit, what: str, why: Text) -> Text | None:
    """Return the sentence that a cause has of its own; None where it has the usual one. Of an operator whose body has
    the culprit, where that one differs, it is about that one."""
    if known.sentence is None:
        return None
    evidence = {**_format_evidence(known, culprit.evidence), "what": what, "name": _name_of(culprit)}
    en = wording_text(known.sentence, {**evidence, "why": why.en}, "en")
    zh = wording_text(known.sentence, {**evidence, "why": why.zh}, "zh")
    return None if en is None or zh is None else Text(en, zh)


def _format_evidence(known: Cause, evidence: Mapping[str, Any]) -> dict[str, str]:
    return {name: _format_evidence_value(known.evidence.get(name, Kind.ANY), value) for name, value in evidence.items()}


def _format_evidence_value(kind: Kind, value: Any) -> str:
    if kind is Kind.WORD or (kind is Kind.ANY and isinstance(value, str)):
        return recognise(str(value))
    if isinstance(value, float):
        return format_percent(value) if kind is Kind.SHARE else format_figure(value)
    return count(value) if isinstance(value, int) else str(value)
