"""What mends an error, as it was tried on the engine: of a comparison's fix the sentence and what is pasted, and of a
search which operators to keep in higher precision, what that costs, and what is handed over."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from ..explain import bound_of_many
from ..explain.criteria import HALF
from ..protocols import BETWEEN, TF32_OFF, WHOLE, Executed, is_line
from ..reasons import Text, as_reason, same
from ..search.fix import ENGINE_OPTION, UNCOMPILED, Artefact, Fix, KeptUnit, ToKeep, TradePoint
from ..search.offer import error_to_halve, gives_up_most
from .model import Report
from .sections import Cell, Section, label_and_value, plain_cell
from .words import count, explain_reason, fill_text, format_duration, format_percent, join_texts

__all__ = [
    "FIX_NAME", "OF_THE_ENGINE", "UNITS", "describe_option", "describe_other_fix", "describe_tried", "fix_lines",
    "fix_sections", "fix_sentences",
]  # fmt: skip

UNITS = {
    "operator": Text("operators", "个算子"), "operator type": Text("operator types", "种算子类型"),
    "module": Text("modules", "个模块"),
}  # fmt: skip
"""What a mode keeps, in the plural."""

OF_THE_ENGINE = (ENGINE_OPTION, UNCOMPILED)
"""What stands there where nothing is kept in a higher precision."""

_NAMED, _NAMED_OF_SEARCH = 4, 6

_SCALE, _MODE = "loss scale", "run mode"
"""What stands in ``ToKeep.unit`` where it is no set of units that are kept."""

_NO_TEXT = same("")

_LESS_TRUE = 1.5
"""Times the error against float64 from which on what agrees with the baseline is called less accurate."""


def describe_tried(report: Report) -> Text | None:
    """Return what a fix that was run brings, or that none was found; None where there was nothing to try."""
    kept = report.to_keep
    if kept is None or not kept.state or report.fix is not None:
        return None
    if kept.state == "none":
        return _describe_nothing_found(kept)
    if kept.state == "not tried":
        why = explain_reason(kept.why)
        if as_reason(kept.why).code == "fix_ended":
            return why
        return fill_text("No fix was tried: {why}.", "未尝试修复：{why}。", why=why)
    return describe_other_fix(report, kept)


def describe_other_fix(report: Report, kept: ToKeep) -> Text:
    """Return what one fix that was run brings."""
    found = describe_option(
        kept, report.target.mode, strict=report.spec.tolerance.given, of_many=bound_of_many(report.explanation)
    )
    return fill_text("Tried: {found}.", "已验证：{found}。", found=found)


def describe_option(kept: ToKeep, mode: str, *, strict: bool = False, of_many: float | None = None) -> Text:
    """Return what the option to paste keeps, and what came of running it. strict, of_many: see
    ``_describe_whether_passing``."""
    beside = Text(f"beside `{kept.off}`, ", f"在 `{kept.off}` 之外，") if kept.off else _NO_TEXT
    parts = [beside, _describe_giving_up(kept.was, kept.still, len(kept.keys), kept.of), _describe_kept(kept)]
    en, zh = " reduces {what} from {before} to {after} in {mode}", " 后，{mode} 的{what}从 {before} 降到 {after}"
    of = Text(" of that update", "该更新的") if kept.allowed is None else _NO_TEXT
    if kept.unit == _MODE:  # then it is not in the target's mode
        en, zh = " reduces {what}{of} from {before} to {after}", "后，{of}{what}从 {before} 降到 {after}"
    parts.append(_word(kept, en, zh, what=_describe_error(kept), of=of, mode=mode))
    parts += [_describe_whether_passing(kept, strict=strict, of_many=of_many), _describe_low(kept.was, kept.still)]
    if kept.trade:
        units = UNITS.get(kept.unit, UNITS["operator"])  # other than those that still run in low precision
        points = [_word(point, "{kept} {kept:leaves|leave} {error}", "{kept} {units}时误差为 {error}", units=units)
                  for point in kept.trade]  # fmt: skip
        fewer = Text(", ".join(one.en for one in points), "，".join(one.zh for one in points))
        parts.append(fill_text("; of smaller sets of {units}, {fewer}", "；只保留 {fewer}", units=units, fewer=fewer))
    if kept.others:
        en = "; on {others} other {others:input|inputs} from {others_before} to {others_after}"
        parts.append(_word(kept, en, "；在另外 {others} 组输入上从 {others_before} 降到 {others_after}"))
    if kept.exact:
        _, was, then = kept.exact
        en = "; against the same model in float64 the error goes from {was} to {then}"
        parts.append(fill_text(en, "；与同一模型的 float64 相比，误差从 {was} 变为 {then}", was=was, then=then))
        if then > _LESS_TRUE * was:
            en = ", so that it agrees with the baseline and is less accurate"
            parts.append(Text(en, "，即与基线一致，但精度更低"))
    if kept.slower is not None:
        times = f"{kept.slower:.2f}"
        en = f"; a run takes {times} times as long as with nothing kept"
        parts.append(Text(en, f"；单次运行耗时为不保留时的 {times} 倍"))
    if kept.stopped is not None:
        en = "; no smaller set was looked for after {stopped} s"
        parts.append(_word(kept, en, "；{stopped} 秒后不再查找更小的集合"))
    if kept.replaced:
        parts.append(_word(kept, "; it replaces this command's {replaced}", "；替换此命令已有的 {replaced}"))
    return join_texts(*parts)


def _word(found: ToKeep | Fix | TradePoint | Executed, en: str, zh: str, **more: Any) -> Text:
    """Return a text with what a record has, by the names of its fields. more: what else the text has."""
    return fill_text(en, zh, **{one.name: getattr(found, one.name) for one in dataclasses.fields(found)} | more)


def _describe_error(kept: ToKeep) -> Text:
    """Return what a set takes off: the error, or what the user's metric loses."""
    if kept.metric:
        return Text(f"what `{kept.metric}` loses", f"指标 `{kept.metric}` 的损失")
    return _name_error(slices=kept.slices)


def _name_error(*, slices: bool) -> Text:
    """Return what two numbers are the error of. slices: see ToKeep."""
    if slices:
        return Text("the largest error (of lost slices by their own size)", "最大误差（丢失的切片以其自身大小计）")
    return Text("the error", "误差")


def _describe_whether_passing(kept: ToKeep, *, strict: bool, of_many: float | None) -> Text:
    """Say whether the error that is left passes.

    strict: by the tolerance that the user gave. of_many: up to which an error is as expected that no single operator
    makes: whether one makes what is left was not asked."""
    mended = kept.state == "mended"
    if kept.metric and kept.allowed is not None:
        en, zh = (", within the {allowed} allowed", "，在允许的 {allowed} 以内") if mended else (
            ", still more than the {allowed} allowed", "，仍超过允许的 {allowed}"
        )
        return _word(kept, en, zh)
    if strict and mended and kept.pasted is False:
        return Text(
            f", with every output within the tolerance but not `{kept.blamed}` inside, so that the command still"
            " ends out of tolerance",
            f"，各输出均在容差内，但内部的 `{kept.blamed}` 不在，因此该命令仍以超差结束",
        )
    if strict:
        return Text(", within the tolerance", "，在容差内") if mended else Text(
            ", still out of tolerance", "，仍超出容差"
        )
    found = _NO_TEXT if kept.allowed is None else _describe_expected(kept, of_many)
    if not kept.slices or kept.outputs is None:
        return found
    en = "; the worst output as a whole is off by {outputs} then"
    return join_texts(_word(kept, en, "；此时整个输出的最大误差为 {outputs}"), found)


def _describe_expected(kept: ToKeep, of_many: float | None) -> Text:
    """Say whether what is left is as expected; of a command that was compared so, as that says of whoever it names,
    who has a bound of its own. of_many: see ``_describe_whether_passing``."""
    asked = kept.pasted is not None and kept.bound is not None
    mended = bool(kept.pasted) if asked else kept.state == "mended"
    bound = (kept.bound if asked else kept.allowed) or 0.0
    if not mended and not asked:
        bound = max(bound, of_many or 0.0)
    if not mended and asked and kept.blamed:
        en = ", still more than expected of what one operator makes, here `{blamed}` (up to {bound})"
        return _word(kept, en, "，仍高于单个算子（此处为 `{blamed}`）造成误差时的预期（不超过 {bound}）")
    more = Text("as expected", "符合预期") if mended else Text("still more than expected", "仍高于预期")
    if not mended and not asked and kept.judged is not None and kept.judged <= bound:
        more = Text(
            "as expected unless one operator makes most of that", "除非其大部分来自单个算子，否则符合预期"
        )
    return fill_text(", {more} (up to {bound})", "，{more}（不超过 {bound}）", more=more, bound=bound)


def _format_power_of_two(scale: str) -> str:
    """Write "65536" as "2^16", as the sentence before it has it; a scale that is no such power as it is."""
    exponent = math.log2(float(scale))
    return f"2^{int(exponent)}" if exponent == int(exponent) and exponent >= 4 else scale


def _quote(names: Sequence[str], most: int) -> list[str]:
    """Return the first of some names in backquotes, and "…" where there are more."""
    return [f"`{name}`" for name in names[:most]] + ["…"] * (len(names) > most)


def _describe_kept(kept: ToKeep) -> Text:
    if kept.unit == _SCALE:
        scale = _format_power_of_two(kept.keys[0])
        return Text(f"a loss scale of {scale}", f"损失缩放取 {scale}")
    if kept.unit == _MODE:
        return Text(f"{kept.keys[0]}, whose parameters are float32,", f"改用 {kept.keys[0]}（其参数为 float32）")
    if "calibration_samples" in kept.settings:
        typed = f"`{kept.option}`"
        return Text(f"calibrating on all of the inputs ({typed})", f"用全部输入校准（{typed}）")
    if kept.unit in OF_THE_ENGINE:
        listed = ", ".join(_quote(kept.keys, len(kept.keys)))
        left_out = Text(f"leaving {listed} out of the compilation", f"不编译 {listed}")
        return left_out if kept.unit == UNCOMPILED else same(listed)
    if WHOLE in kept.keys:
        return Text("keeping the whole model in FP32", "将整个模型保留为 FP32")
    lines = [key for key in kept.keys if is_line(key)]
    keys = [key for key in kept.keys if key != BETWEEN and key not in lines]
    between = Text("the operations between modules", "模块之间的运算")
    if lines:
        verb = "calls" if len(lines) == 1 else "call"
        between = fill_text(f"what {{lines}} {verb}", "{lines} 所调用的运算", lines=_quote(lines, _NAMED))
    if not keys:
        return fill_text("keeping {between} in FP32", "将{between}保留为 FP32", between=between)
    units = UNITS.get(kept.unit, UNITS["operator"])
    units = units if kept.of > 1 else Text(units.en.removesuffix("s"), units.zh)
    parts = [fill_text(
        "keeping {count} of {of} {units} ({names})", "将 {of} {units}中的 {count} 个（{names}）",
        count=len(keys), of=kept.of, units=units, names=_quote(keys, _NAMED),
    )]  # fmt: skip
    if BETWEEN in kept.keys or lines:
        parts.append(fill_text(" and {between}", "以及{between}", between=between))
    parts.append(Text(" in FP32", "保留为 FP32"))
    words = [Text("with TF32 off", "并关闭 TF32") if key == TF32_OFF else same(key) for key in kept.switched]
    return join_texts(*parts, *(Text(f" {one.en}", one.zh) for one in words))


def _describe_nothing_found(kept: ToKeep) -> Text:
    own, what = _describe_kept(kept), _describe_error(kept)
    if kept.off:
        rest = _describe_nothing_found(dataclasses.replace(kept, off=""))
        return join_texts(Text(f"Beside `{kept.off}`: ", f"在 `{kept.off}` 之外："), rest)
    if kept.unit in OF_THE_ENGINE and kept.runs > 1:
        en = "No fix was found: of {runs} settings that were run, the best ({own}) leaves the error at {after}."
        return _word(kept, en, "未找到修复：试运行了 {runs} 种设置，其中最好的（{own}）误差仍为 {after}。", own=own)
    if kept.unit in (_SCALE, _MODE, *OF_THE_ENGINE):
        en = "No fix was found: {own} leaves the error at {after}."
        return _word(kept, en, "未找到修复：{own}时误差仍为 {after}。", own=own)
    if kept.metric and kept.others:
        en, zh = "on each of {every} inputs {what}", " {every} 组输入上{what}"
        what = fill_text(en, zh, every=kept.others + 1, what=what)
    half = HALF * error_to_halve(math.inf if kept.before is None else kept.before, kept.metric)
    goal = Text("halves {what} of {before}", "把{what} {before} 降到一半以下")
    if kept.before is None or half < HALF * kept.before:  # of what is off by more than the output itself
        goal = Text("brings {what} of {before} below {half}", "把{what} {before} 降到 {half} 以下")
    parts = [_word(
        kept, f"No fix was found: {{runs}} {{runs:set|sets}} {{runs:was|were}} kept in FP32 and run, and none {goal.en}"
        " while the rest stays in low precision",
        f"未找到修复：试运行了 {{runs}} 个保留 FP32 的集合，没有一个能{goal.zh}且其余部分仍为低精度",
        what=what, half=half,
    )]  # fmt: skip
    expected = [_expected_point(kept, point) for point in kept.trade]
    if kept.trade:
        en, zh = "{error} with {kept} of {of} kept{so}", "保留 {kept} 个时为 {error}{so}"
        best = [_word(point, en, zh, of=kept.of, so=so) for point, so in zip(kept.trade, expected, strict=True)]
        found = Text(", ".join(one.en for one in best), "、".join(one.zh for one in best))
        parts.append(fill_text("; the best of them left {found}", "；其中最好的：{found}", found=found))
    if kept.whole_ran:
        units = UNITS.get(kept.unit, UNITS["operator"])
        every = _word(kept, "all {of} {units}", "全部 {of} {units}都", units=units)
        every = every if kept.of > 1 else Text(f"the only {units.en.removesuffix('s')}", f"唯一的一{units.zh}")
        parts.append(_word(kept, "; with {every} kept it is {whole}", "；{every}保留时误差为 {whole}", every=every))
        if kept.whole_still is not None and kept.whole_still.low:
            en = ", although {low} still {run} in {precision}"
            parts.append(_word_low(kept.whole_still, en, "，但仍有 {low} 个算子以 {precision} 运行"))
    if any(point.error is not None and point.error <= half for point in kept.trade):
        parts.append(_describe_low_before(kept.was))
    elif kept.each and kept.whole is not None and kept.whole <= half and not any(one.en for one in expected):
        parts.append(Text(
            "; none of them can be left in low precision on its own, so only keeping all of them helps",
            "；其中任何一个单独留在低精度时也都不行，因此只有全部保留才有效",
        ))  # fmt: skip
    if kept.stopped is not None:
        en = "; no further set was run after {stopped} s (--explain full goes on)"
        parts.append(_word(kept, en, "；{stopped} 秒后未再试运行（--explain full 会继续）"))
    return join_texts(*parts, Text(".", "。"))


def _expected_point(kept: ToKeep, point: TradePoint) -> Text:
    """That what a set left is as expected, though no half of what was; "" where it is more."""
    if kept.allowed is None or point.error is None or point.error > kept.allowed or kept.metric:
        return _NO_TEXT
    return _word(kept, ", as expected (up to {allowed})", "（符合预期，不超过 {allowed}）")


# In which precision operators ran.

def _word_low(executed: Executed, en: str, zh: str) -> Text:
    """Return a text of how many operators run in the low precision; {run} is the verb."""
    low = _word(executed, "{low} of {of} {of:operator|operators}", "{low}/{of}")
    return _word(executed, en, zh, low=low, run="runs" if executed.low == 1 else "run")


def _describe_giving_up(was: Executed | None, still: Executed | None, kept: int, of: int) -> Text:
    """Begin the sentence of a fix that gives up most of the low precision; "" of another."""
    if still is None or not gives_up_most(was, still, kept, of):
        return _NO_TEXT
    much = Text("all", "全部") if was is not None and was.low and not still.low else Text("most", "大部分")
    return _word(still, "only by giving up {much} of {precision}: ", "须放弃{much} {precision}：", much=much)


def _describe_low(was: Executed | None, still: Executed | None) -> Text:
    """Say how many operators still run in the low precision, and did before; "" where nobody sees what runs in it."""
    if still is None or (was is not None and not was.low):
        return _NO_TEXT
    said = _word_low(still, "; {low} still {run} in {precision}", "；仍有 {low} 个算子以 {precision} 运行")
    if not still.low:
        said = _word_low(still, "; nothing is left in {precision} then", "；此时没有算子再以 {precision} 运行")
    if was is not None:
        said = join_texts(said, _word_low(was, f" ({count(was.low)} of {count(was.of)} before)", "（此前为 {low}）"))
    return said


def _describe_low_before(was: Executed | None) -> Text:
    """Say in brackets how many operators run in the low precision with nothing kept; "" where nobody sees that."""
    if was is None:
        return _NO_TEXT
    en = " (with nothing kept, {low} {run} in {precision})"
    return _word_low(was, en, "（未保留时有 {low} 个算子以 {precision} 运行）")


# What a search found.

_WHAT = {
    "all low": Text("nothing kept", "全部低精度"), "curve": Text("on the way", "中间点"),
    "answer": Text("the answer", "结果"), "best trade": Text("the best trade", "最佳折中"),
    "all high": Text("everything kept", "全部高精度"),
}  # fmt: skip

_KINDS = {
    "model": Text("model", "模型"), "setting": Text("setting", "设置"), "config": Text("configuration", "配置"),
    "command": Text("command", "命令"), "wrapper": Text("wrapper", "包装代码"),
}  # fmt: skip


FIX_NAME = {
    "not needed": (Text("Nothing has to be kept", "无需保留"), "good"),
    "found": (Text("Found what to keep", "已找到须保留的算子"), "good"),
    "diffuse": (Text("Diffuse: no small set", "误差分散，无小集合"), "warn"),
    "not possible": (Text("Keeping does not help", "保留无济于事"), "bad"),
    "unfinished": (Text("Unfinished", "未完成"), "warn"),
}  # fmt: skip
"""An answer in a few words, and its tone."""


def fix_sentences(report: Report) -> list[Text]:
    """Return the answer in one sentence, and how far it was verified; none where nothing was searched for."""
    fix = report.fix
    if fix is None:
        return []
    found = _describe_answer(fix)
    if fix.state == "found":
        checked = _verification_text(fix, report.target.mode)
        return [Text(f"{found.en} {checked.en}", f"{found.zh}{checked.zh}")]
    best = _word_answer(
        fix, "The best trade-off found keeps {best} of {units} {unit}: {what} goes from {before} to {best_error}"
        " ({best_option}).",
        "已运行的最佳折中保留 {units} {unit}中的 {best} 个：{what}从 {before} 降到 {best_error}（{best_option}）。",
    )  # fmt: skip
    return [found, best] if fix.best else [found]


def _word_answer(fix: Fix, en: str, zh: str, **more: Any) -> Text:
    """Return a text with what an answer has."""
    return _word(
        fix, en, zh, kept=len(fix.kept), best=len(fix.best), unit=UNITS.get(fix.unit, UNITS["operator"]),
        what=_name_error(slices=fix.slices), limit=explain_reason(fix.limit), **more,
    )  # fmt: skip


def _verification_text(fix: Fix, mode: str) -> Text:
    """Return how the answer was verified: on the engine, on other inputs, as what is handed over."""
    parts = [Text(f"run in {mode}", f"在 {mode} 中运行通过")]
    if fix.held_out:
        parts.append(_word_answer(
            fix, "on {held} of {held_out} unseen {held_out:input|inputs}",
            "在搜索未见过的 {held_out} 组输入中 {held} 组成立",
        ))  # fmt: skip
    again = [item.verified for item in fix.artefacts if item.verified is not None]
    if again:
        parts.append(fill_text(
            "{good} of {all} {all:artefact|artefacts} (files and settings) reloaded and run",
            "可取用的 {all} 项产物重新加载运行，{good} 项通过", good=sum(again), all=len(again),
        ))  # fmt: skip
    known = fix.held_out or "`" in fix.limit
    but = _NO_TEXT if known else Text(" It was not checked on other inputs.", "未在其他输入上验证。")
    said = Text("; ".join(part.en for part in parts), "；".join(part.zh for part in parts))
    return fill_text("Verified: {said}.{but}", "验证：{said}。{but}", said=said, but=but)


_ANSWERS = {
    "not needed": (
        "Nothing has to be kept: the requirement is already met ({limit}; it is {before}).",
        "无需保留任何算子：原样即满足要求（{limit}；实际为 {before}）。",
    ),
    "found": (
        "{given_up}keep {kept} of {units} {unit} in higher precision ({keys}): {what} goes from {before} to"
        " {after}{low}.",
        "{given_up}将 {units} {unit}中的 {kept} 个保留为高精度（{keys}）：{what}从 {before} 降到 {after}{low}。",
    ),
    "diffuse": (
        "Diffuse: {kept} of {units} have to be kept to pass on the search's inputs (error {before} to {after}){others};"
        " no small set is the cause. The table shows the error for each number of kept operators.",
        "误差分散：在搜索所用输入上须保留 {units} 个中的 {kept} 个才成立（误差从 {before} 到 {after}）{others}；"
        "没有少数算子是主因。下表给出保留数量与误差的关系。",
    ),
    "not possible": (
        "It also fails with everything in higher precision, so keeping operators cannot help: compare that mode first.",
        "全部保留为高精度仍不满足要求，保留算子无济于事：请先对比该模式本身。",
    ),
    "nothing low": (
        "No set that was run passes and leaves the rest in low precision{ran}: with all {units} {unit} kept the error"
        " goes from {before} to {whole}, and nothing is left in low precision.",
        "已运行的集合中没有一个既满足要求又使其余部分仍为低精度{ran}：{units} {unit}全部保留时误差从 {before} 降到"
        " {whole}，但低精度已无算子运行。",
    ),
    "not obeyed": (
        "The engine does not obey: told to keep all {units} {unit} in higher precision, it still ran {still_low} of"
        " {still_of} in {precision}, with an error of {whole} ({before} with nothing kept). So how much of the error is"
        " due to precision is unknown.",
        "引擎未遵守：要求全部 {units} {unit}保留为高精度，仍有 {still_of} 个中的 {still_low} 个以 {precision} 运行，"
        "误差为 {whole}（未保留时 {before}）。因此无法判断精度对误差的影响。",
    ),
    "unfinished": (
        "Unfinished: no set passed before the budget of runs or time was used up. The same command continues from"
        " here.",
        "未完成：在次数或时间用完前未发现成立的集合；再次运行同一命令会继续。",
    ),
    "larger": (
        "Unfinished: the smallest set known to pass keeps {kept} of {units}; the budget of runs or time is used up. The"
        " same command continues from here.",
        "未完成：已知成立的最小集合保留 {units} 个中的 {kept} 个；次数或时间已用完，再次运行同一命令会从此处继续。",
    ),
    "whole_did_not_run": (
        "Unfinished: no set passed of those with which the engine runs, and with everything kept it does not run.",
        "未完成：能运行的集合均不成立，而全部保留时引擎无法运行。",
    ),
}
"""An answer in one sentence, by its state, or by how that came about."""


def _describe_answer(fix: Fix) -> Text:
    """Return an answer in one sentence."""
    which, still = fix.state, fix.whole_still
    if which == "not possible" and (fix.whole_passes or (still is not None and still.low)):
        which = "nothing low" if fix.whole_passes else "not obeyed"
    if which == "unfinished":
        ran = all(as_reason(note).code != "whole_did_not_run" for note in fix.notes)
        which = "larger" if fix.kept else which if ran else "whole_did_not_run"
    others = _NO_TEXT
    if fix.held_out:
        en, zh = ", and on {held} of {held_out} others", "，在其他 {held_out} 组输入中只有 {held} 组成立"
        others = _word(fix, en, zh)
    said = _word_answer(
        fix, *_ANSWERS[which], given_up=_describe_giving_up(fix.was, fix.still, len(fix.kept), fix.units),
        keys=_quote([unit.key for unit in fix.kept], _NAMED_OF_SEARCH), others=others,
        low=_NO_TEXT if fix.was is None else _describe_low(fix.was, fix.still), ran=_describe_low_before(fix.was),
        still_low=still and still.low, still_of=still and still.of, precision=still and still.precision,
    )  # fmt: skip
    return Text(f"{said.en[0].upper()}{said.en[1:]}", said.zh)


def fix_sections(report: Report) -> tuple[Section, ...]:
    """Return the sections "fix", "fix_kept", "fix_trade" and "fix_artefacts"; none where nothing was searched for."""
    fix = report.fix
    if fix is None:
        return ()
    measure = _name_of_measure(fix)
    kept = Section(
        key="fix_kept",
        title=Text("The kept set", "保留集合") if fix.kept else Text("The set of the best trade-off", "最佳折中的集合"),
        head=(
            Text("Operator", "算子"), Text("Type", "类型"), Text("Makes", "输出张量"),
            Text("Share of the error", "误差占比"),
        ),
        lines=tuple(map(_kept_line, fix.kept or fix.best)),
    )  # fmt: skip
    trade = Section(
        key="fix_trade",
        title=Text("Kept operators against error, speed and size", "保留数量与误差、速度、大小"),
        head=(
            Text("Kept", "保留数"), Text("What", "说明"), measure, Text("Holds", "是否成立"),
            Text("Holds on others", "其他输入"), *_COST,
        ),
        lines=tuple(_format_point(point, fix) for point in fix.trade),
    )  # fmt: skip
    artefacts = Section(
        key="fix_artefacts",
        title=Text("Artefacts, each run again as in use", "可直接使用的产物（已按实际用法重新运行）"),
        head=(
            Text("Kind", "类别"), Text("What", "内容"), Text("File or text", "文件或文本"), Text("Verified", "已验证"),
            measure, *_COST, Text("Note", "说明"),
        ),
        lines=tuple(map(_format_artefact, fix.artefacts)),
    )  # fmt: skip
    return (_overview_section(fix), kept, trade, artefacts)


_COST = (Text("ms a run", "毫秒/次"), Text("MB", "MB"))


def _overview_section(fix: Fix) -> Section:
    lines = [
        (plain_cell(Text("Answer", "结论")), Cell(text=_describe_answer(fix), tone=FIX_NAME[fix.state][1])),
        (plain_cell(Text("Requirement", "要求")), plain_cell(explain_reason(fix.limit))),
        (plain_cell(Text("Error with nothing kept", "未保留时的误差")), _error_cell(fix.before)),
    ]
    if fix.kept:
        lines.append((plain_cell(Text("Error with these kept", "保留后的误差")), _error_cell(fix.after)))
    if fix.held_out:
        held, good = f"{count(fix.held)} / {count(fix.held_out)}", fix.held == fix.held_out
        label = Text("Passes on other inputs", "在其他输入上成立")
        lines.append(label_and_value(label, held, "good" if good else "bad"))
    lines.append((plain_cell(Text("Effort", "代价")), plain_cell(_effort_text(fix))))
    lines += [label_and_value(Text("The engine says", "引擎的说法"), outcome) for outcome in fix.obeyed]
    lines += [(plain_cell(Text("Mind", "注意")), plain_cell(explain_reason(note))) for note in fix.notes]
    title = Text("What to keep in higher precision", "应保留为高精度的算子")
    return Section(key="fix", title=title, lines=tuple(lines))


def _kept_line(unit: KeptUnit) -> tuple[Cell, ...]:
    share = Text("NaN or Inf", "NaN 或 Inf") if unit.certain else same(format_percent(unit.share) if unit.share else "")
    cells = (same(unit.key), same(", ".join(unit.op_types)), same(", ".join(unit.tensors)), share)
    return tuple(plain_cell(cell) for cell in cells)


_METRICS = frozenset({"limit_drop", "limit_error", "limit_metric", "limit_metric_share"})


def _name_of_measure(fix: Fix) -> Text:
    """Return what its errors are: Rel L2, or what the user's own metric gives."""
    if fix.limit.code == "limit_score":
        return Text("1 - metric", "1 - 指标")
    if fix.slices and fix.limit.code not in _METRICS:
        return Text("Error, of lost slices by their own size", "误差（丢失的切片以其自身大小计）")
    return Text("Metric", "指标") if fix.limit.code in _METRICS else Text("Rel L2", "相对 L2")


def _error_cell(error: float | None, *, right: bool = False) -> Cell:
    return Cell(text=fill_text("{error}", "{error}", error=error), right=right)


def _cost_cells(item: TradePoint | Artefact) -> tuple[Cell, ...]:
    """Return the milliseconds of a run and the megabytes of what was run, as far as they are known."""
    costs = (item.milliseconds, None if item.bytes is None else item.bytes / 1e6)
    return tuple(Cell(text=same("" if one is None else f"{one:.3g}"), right=True) for one in costs)


def _format_point(point: TradePoint, fix: Fix) -> tuple[Cell, ...]:
    held = "" if point.held_out is None else f"{count(point.held_out)} / {count(fix.held_out)}"
    holds = Text("yes", "是") if point.passes else Text("no", "否")
    return (
        Cell(text=same(count(point.kept)), right=True),
        plain_cell(_WHAT.get(point.what, same(point.what))),
        _error_cell(point.error, right=True),
        Cell(text=holds, tone="good" if point.passes else "bad"),
        Cell(text=same(held), right=True),
        *_cost_cells(point),
    )


_VERIFIED = {
    True: (Text("yes", "是"), "good"), False: (Text("no", "否"), "bad"),
    None: (Text("not run here", "未在此运行"), "muted"),
}  # fmt: skip


def _format_artefact(item: Artefact) -> tuple[Cell, ...]:
    verified, tone = _VERIFIED[item.verified]
    return (
        plain_cell(_KINDS.get(item.kind, same(item.kind))),
        plain_cell(explain_reason(item.title)),
        Cell(text=same(item.path or item.text), tone="code" if item.path else "paste"),
        Cell(text=verified, tone=tone),
        Cell(text=_NO_TEXT, right=True) if item.verified is None else _error_cell(item.error, right=True),
        *_cost_cells(item),
        plain_cell(explain_reason(item.note)),
    )


def fix_lines(report: Report) -> list[tuple[str, Text, Text]]:
    """Style, label and text of each line that the terminal shows; the answer itself stands in the report's lead."""
    fix = report.fix
    if fix is None:
        return []
    effort = fill_text("{effort}; {limit}", "{effort}；{limit}", effort=_effort_text(fix),
                       limit=explain_reason(fix.limit))  # fmt: skip
    lines = [("", Text("effort", "代价"), effort)]
    kept = fix.kept or fix.best
    for unit in kept[:12]:
        share = format_percent(unit.share) if unit.share else ""
        why = (
            Text("NaN or Inf first appears here", "此处产生 NaN 或 Inf") if unit.certain
            else Text(f"{share} of the error", f"占误差的 {share}") if share else _NO_TEXT
        )  # fmt: skip
        name = f"{', '.join(unit.op_types)} {unit.key}"
        lines.append(("", Text("keep", "保留"), Text(f"{name}  {why.en}".rstrip(), f"{name}  {why.zh}".rstrip())))
    if len(kept) > 12:
        more = len(kept) - 12
        lines.append(("", _NO_TEXT, Text(f"… and {more} more", f"……另有 {more} 个")))
    for point in fix.trade:
        speed = f"  {point.milliseconds:.3g} ms" if point.milliseconds is not None else ""
        what = _WHAT.get(point.what, same(point.what))
        shape = f"{{by}} {{error}}{speed}  {{what}}"
        said = fill_text(shape, shape, by=_name_of_measure(fix), error=point.error, what=what)
        lines.append(("", Text(f"{point.kept} kept", f"保留 {point.kept}"), said))
    for item in fix.artefacts:
        label = {
            True: Text("verified", "已验证"), False: Text("FAILS", "不成立"), None: _VERIFIED[None][0],
        }[item.verified]  # fmt: skip
        said, made = explain_reason(item.title), item.path or item.text.rstrip("\n")
        first, *code = ["", *made.split("\n")] if "\n" in made else [made]  # a script: each line as it is pasted
        text = Text(f"{said.en}: {first}".rstrip(), f"{said.zh}：{first}")
        lines.append(("red" if item.verified is False else "", label, text))
        lines += [("", _NO_TEXT, same(line)) for line in code]
    lines += [("", Text("engine", "引擎"), explain_reason(outcome)) for outcome in fix.obeyed[:8]]
    lines += [("yellow", Text("mind", "注意"), explain_reason(note)) for note in fix.notes]
    return lines


def _effort_text(fix: Fix) -> Text:
    """Return what the answer took."""
    where = Text(f", the others in {fix.simulation}", f"，其余在 {fix.simulation} 中") if fix.simulation else _NO_TEXT
    again = _word(fix, ", {again} known from an earlier search", "，{again} 个来自之前的搜索")
    return _word(
        fix, "{evaluations} {evaluations:set|sets} {evaluations:was|were} run ({on_engine} on the engine{where}{again})"
        ", {rankings} {rankings:ranking|rankings}, {builds} {builds:time|times} opened or built, {time}",
        "运行了 {evaluations} 个集合（其中引擎 {on_engine} 次{where}{again}），排序 {rankings} 次，打开或构建"
        " {builds} 次，{time}", where=where, again=again if fix.again else _NO_TEXT, rankings=1 + fix.rankings,
        time=format_duration(fix.seconds),
    )  # fmt: skip
