"""What mends the culprits, as it was tried on the engine: one sentence, and the lines under the culprits."""

from __future__ import annotations

import math

from ..explain import bound_of_many
from ..explain.criteria import HALF
from ..protocols import BETWEEN, TF32_OFF, WHOLE, Executed, is_line
from ..reasons import Text, as_reason, same
from ..search.fix import ENGINE_OPTION, UNCOMPILED, ToKeep, TradePoint
from ..search.offer import gives_up_most
from .model import Report
from .words import count, explain_reason, format_count, format_figure, were

__all__ = [
    "OF_THE_ENGINE",
    "UNITS",
    "describe_giving_up",
    "describe_low_before",
    "describe_option",
    "describe_other_fix",
    "describe_still_low",
    "describe_tried",
    "format_error",
]  # fmt: skip

UNITS = {
    "operator": Text("operators", "个算子"), "operator type": Text("operator types", "种算子类型"),
    "module": Text("modules", "个模块"),
}  # fmt: skip
"""What a mode keeps, in the plural."""

OF_THE_ENGINE = (ENGINE_OPTION, UNCOMPILED)
"""What stands there where nothing is kept in a higher precision."""

_NAMED = 4

_SCALE, _MODE = "loss scale", "run mode"
"""What stands in ``ToKeep.unit`` where it is no set of units that are kept."""


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
        return Text(f"No fix was tried: {why.en}.", f"未尝试修复：{why.zh}。")
    return describe_other_fix(report, kept)


def describe_other_fix(report: Report, kept: ToKeep) -> Text:
    """Return what one fix that was run brings."""
    found = describe_option(
        kept, report.target.mode, strict=report.spec.tolerance.given, of_many=bound_of_many(report.explanation)
    )
    return Text(f"Tried: {found.en}.", f"已验证：{found.zh}。")


def describe_option(kept: ToKeep, mode: str, *, strict: bool = False, of_many: float | None = None) -> Text:
    """Return what the option to paste keeps, and what came of running it. strict, of_many: see
    ``_describe_whether_passing``."""
    en, zh = _describe_kept(kept)
    given_up = describe_giving_up(kept.was, kept.still, len(kept.keys), kept.of)
    en, zh = f"{given_up.en}{en}", f"{given_up.zh}{zh}"
    other = kept.unit == _MODE  # then it is not in the target's mode
    of, de = (" of that update", "该更新的") if other and kept.allowed is None else ("", "")
    there, zai = ("", de) if other else (f" in {mode}", f"{mode} 的")
    what = _describe_error(kept)
    en += f" reduces {what.en}{of} from {format_error(kept.before)} to {format_error(kept.after)}{there}"
    zh += f"{'' if other else ' '}后，{zai}{what.zh}从 {_format_error_zh(kept.before)}"
    zh += f" 降到 {_format_error_zh(kept.after)}"
    whether = _describe_whether_passing(kept, strict=strict, of_many=of_many)
    en, zh = f"{en}{whether.en}", f"{zh}{whether.zh}"
    low = describe_still_low(kept.was, kept.still)
    en, zh = f"{en}{low.en}", f"{zh}{low.zh}"
    if kept.trade:
        units = UNITS.get(kept.unit, UNITS["operator"])  # other than those that still run in low precision
        fewer = ", ".join(
            f"{count(point.kept)} leave{'s' if point.kept == 1 else ''} {format_error(point.error)}"
            for point in kept.trade
        )
        shao = "，".join(
            f"{count(point.kept)} {units.zh}时误差为 {_format_error_zh(point.error)}" for point in kept.trade
        )
        en += f"; of smaller sets of {units.en}, {fewer}"
        zh += f"；只保留 {shao}"
    if kept.others:
        en += (
            f"; on {count(kept.others)} other input{'s' if kept.others > 1 else ''} from"
            f" {format_error(kept.others_before)} to {format_error(kept.others_after)}"
        )
        zh += f"；在另外 {count(kept.others)} 组输入上从 {_format_error_zh(kept.others_before)}"
        zh += f" 降到 {_format_error_zh(kept.others_after)}"
    if kept.exact:
        _, was, then = kept.exact
        en += f"; against the same model in float64 the error goes from {format_figure(was)} to {format_figure(then)}"
        zh += f"；与同一模型的 float64 相比，误差从 {format_figure(was)} 变为 {format_figure(then)}"
        if then > _LESS_TRUE * was:
            en += ", so that it agrees with the baseline and is less accurate"
            zh += "，即与基线一致，但精度更低"
    if kept.slower is not None:
        en += f"; a run takes {kept.slower:.2f} times as long as with nothing kept"
        zh += f"；单次运行耗时为不保留时的 {kept.slower:.2f} 倍"
        if kept.whole_slower is not None:
            en += f" (with everything kept: {kept.whole_slower:.2f} times)"
            zh += f"（全部保留时为 {kept.whole_slower:.2f} 倍）"
    if kept.stopped is not None:
        en += f"; no smaller set was looked for after {format_figure(kept.stopped)} s"
        zh += f"；{format_figure(kept.stopped)} 秒后不再查找更小的集合"
    if kept.replaced:
        en += f"; it replaces this command's {', '.join(kept.replaced)}"
        zh += f"；替换此命令已有的 {'、'.join(kept.replaced)}"
    return Text(en, zh)


def _describe_error(kept: ToKeep) -> Text:
    """Return what a set takes off: the error, or what the user's metric loses."""
    if kept.metric:
        return Text(f"what `{kept.metric}` loses", f"指标 `{kept.metric}` 的损失")
    return name_error(slices=kept.slices)


def name_error(*, slices: bool) -> Text:
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
        limit = format_figure(kept.allowed)
        return Text(f", within the {limit} allowed", f"，在允许的 {limit} 以内") if mended else Text(
            f", still more than the {limit} allowed", f"，仍超过允许的 {limit}"
        )
    if strict:
        if mended and kept.pasted is False:
            return Text(
                f", with every output within the tolerance but not `{kept.blamed}` inside, so that the command still"
                " ends out of tolerance",
                f"，各输出均在容差内，但内部的 `{kept.blamed}` 不在，因此该命令仍以超差结束",
            )
        return Text(", within the tolerance", "，在容差内") if mended else Text(
            ", still out of tolerance", "，仍超出容差"
        )
    whole = same("")
    if kept.slices and kept.outputs is not None:
        whole = Text(
            f"; the worst output as a whole is off by {format_figure(kept.outputs)} then",
            f"；此时整个输出的最大误差为 {format_figure(kept.outputs)}",
        )
    if kept.allowed is None:
        return whole
    found = _describe_expected(kept, of_many)
    return Text(f"{whole.en}{found.en}", f"{whole.zh}{found.zh}")


def _describe_expected(kept: ToKeep, of_many: float | None) -> Text:
    """Say whether what is left is as expected. of_many: see ``_describe_whether_passing``."""
    if kept.pasted is not None and kept.bound is not None:
        return _as_pasted(kept, kept.bound)
    mended, allowed = kept.state == "mended", kept.allowed or 0.0
    bound = allowed if mended else max(allowed, of_many or 0.0)
    more = Text("as expected", "符合预期") if mended else Text("still more than expected", "仍高于预期")
    if not mended and kept.judged is not None and kept.judged <= bound:
        more = Text(
            "as expected unless one operator makes most of that", "除非其大部分来自单个算子，否则符合预期"
        )
    return Text(f", {more.en} (up to {format_figure(bound)})", f"，{more.zh}（不超过 {format_figure(bound)}）")


def _as_pasted(kept: ToKeep, bound: float) -> Text:
    """Return what the command with the option says of what is left; whoever it names has a bound of its own."""
    limit = format_figure(bound)
    if kept.pasted:
        return Text(f", as expected (up to {limit})", f"，符合预期（不超过 {limit}）")
    if not kept.blamed:
        return Text(f", still more than expected (up to {limit})", f"，仍高于预期（不超过 {limit}）")
    return Text(
        f", still more than expected of what one operator makes, here `{kept.blamed}` (up to {limit})",
        f"，仍高于单个算子（此处为 `{kept.blamed}`）造成误差时的预期（不超过 {limit}）",
    )


def _format_power_of_two(scale: str) -> str:
    """Write "65536" as "2^16", as the sentence before it has it; a scale that is no such power as it is."""
    exponent = math.log2(float(scale))
    return f"2^{int(exponent)}" if exponent == int(exponent) and exponent >= 4 else scale


_LESS_TRUE = 1.5
"""Times the error against float64 from which on what agrees with the baseline is called less accurate."""


def _describe_kept(kept: ToKeep) -> Text:
    if kept.unit == _SCALE:
        return Text(
            f"a loss scale of {_format_power_of_two(kept.keys[0])}", f"损失缩放取 {_format_power_of_two(kept.keys[0])}"
        )
    if kept.unit == _MODE:
        return Text(f"{kept.keys[0]}, whose parameters are float32,", f"改用 {kept.keys[0]}（其参数为 float32）")
    if kept.unit in OF_THE_ENGINE:
        listed = ", ".join(f"`{key}`" for key in kept.keys)
        left_out = Text(f"leaving {listed} out of the compilation", f"不编译 {listed}")
        return left_out if kept.unit == UNCOMPILED else same(listed)
    units = UNITS.get(kept.unit, UNITS["operator"])
    if WHOLE in kept.keys:
        return Text("keeping the whole model in FP32", "将整个模型保留为 FP32")
    lines = [key for key in kept.keys if is_line(key)]
    keys = [key for key in kept.keys if key != BETWEEN and key not in lines]
    named = [f"`{key}`" for key in keys[:_NAMED]] + ["…"] * (len(keys) > _NAMED)
    between = Text("the operations between modules", "模块之间的运算")
    if lines:
        places = [f"`{line}`" for line in lines[:_NAMED]] + ["…"] * (len(lines) > _NAMED)
        calls = "calls" if len(lines) == 1 else "call"
        between = Text(f"what {', '.join(places)} {calls}", f"{'、'.join(places)} 所调用的运算")
    if not keys:
        return Text(f"keeping {between.en} in FP32", f"将{between.zh}保留为 FP32")
    of = units.en if kept.of > 1 else units.en.removesuffix("s")
    en = f"keeping {count(len(keys))} of {count(kept.of)} {of} ({', '.join(named)})"
    zh = f"将 {count(kept.of)} {units.zh}中的 {count(len(keys))} 个（{'、'.join(named)}）"
    if BETWEEN in kept.keys or lines:
        en += f" and {between.en}"
        zh += f"以及{between.zh}"
    words = [Text("with TF32 off", "并关闭 TF32") if key == TF32_OFF else same(key) for key in kept.switched]
    en, zh = " ".join([f"{en} in FP32", *(one.en for one in words)]), f"{zh}保留为 FP32"
    return Text(en, "".join([zh, *(one.zh for one in words)]))


def _describe_nothing_found(kept: ToKeep) -> Text:
    own = _describe_kept(kept)
    if kept.unit in OF_THE_ENGINE and kept.runs > 1:
        runs = count(kept.runs)
        return Text(
            f"No fix was found: of {runs} settings that were run, the best ({own.en}) leaves the error at"
            f" {format_error(kept.after)}.",
            f"未找到修复：试运行了 {runs} 种设置，其中最好的（{own.zh}）误差仍为 {_format_error_zh(kept.after)}。",
        )
    if kept.unit in (_SCALE, _MODE, *OF_THE_ENGINE):
        return Text(
            f"No fix was found: {own.en} leaves the error at {format_error(kept.after)}.",
            f"未找到修复：{own.zh}时误差仍为 {_format_error_zh(kept.after)}。",
        )
    units, what = UNITS.get(kept.unit, UNITS["operator"]), _describe_error(kept)
    if kept.metric and kept.others:
        every = count(kept.others + 1)
        what = Text(f"on each of {every} inputs {what.en}", f" {every} 组输入上{what.zh}")
    en = (
        f"No fix was found: {format_count(kept.runs, 'set')} {were(kept.runs)} kept in FP32 and run, and none"
        f" halves"
        f" {what.en} of {format_error(kept.before)} while the rest stays in low precision"
    )
    zh = (
        f"未找到修复：试运行了 {count(kept.runs)} 个保留 FP32 的集合，没有一个能把{what.zh}"
        f" {_format_error_zh(kept.before)}"
        " 降到一半以下且其余部分仍为低精度"
    )
    if kept.trade:
        lefts = [(point, _expected_point(kept, point)) for point in kept.trade]
        en += "; the best of them left " + ", ".join(
            f"{format_error(point.error)} with {count(point.kept)} of {count(kept.of)} kept{so.en}"
            for point, so in lefts
        )
        best = (f"保留 {count(point.kept)} 个时为 {_format_error_zh(point.error)}{so.zh}" for point, so in lefts)
        zh += f"；其中最好的：{'、'.join(best)}"
    if kept.whole_ran:
        all_en = f"all {count(kept.of)} {units.en}" if kept.of > 1 else f"the only {units.en.removesuffix('s')}"
        all_zh = f"全部 {count(kept.of)} {units.zh}都" if kept.of > 1 else f"唯一的一{units.zh}"
        en += f"; with {all_en} kept it is {format_error(kept.whole)}"
        zh += f"；{all_zh}保留时误差为 {_format_error_zh(kept.whole)}"
        if kept.whole_still is not None and kept.whole_still.low:
            low = _describe_low(kept.whole_still)
            en += f", although {low.en} still {_run(kept.whole_still)} in {kept.whole_still.precision}"
            zh += f"，但仍有 {low.zh} 个算子以 {kept.whole_still.precision} 运行"
    half = HALF * (math.inf if kept.before is None else kept.before)
    if any(point.error is not None and point.error <= half for point in kept.trade):
        ran = describe_low_before(kept.was)
        en, zh = f"{en}{ran.en}", f"{zh}{ran.zh}"
    elif kept.each and kept.whole is not None and kept.whole <= half and not any(
        _expected_point(kept, point).en for point in kept.trade
    ):
        en += "; none of them can be left in low precision on its own, so only keeping all of them helps"
        zh += "；其中任何一个单独留在低精度时也都不行，因此只有全部保留才有效"
    if kept.stopped is not None:
        en += f"; no further set was run after {format_figure(kept.stopped)} s (--explain full goes on)"
        zh += f"；{format_figure(kept.stopped)} 秒后未再试运行（--explain full 会继续）"
    return Text(f"{en}.", f"{zh}。")


def _expected_point(kept: ToKeep, point: TradePoint) -> Text:
    """That what a set left is as expected, though no half of what was; "" where it is more."""
    if kept.allowed is None or point.error is None or point.error > kept.allowed or kept.metric:
        return same("")
    limit = format_figure(kept.allowed)
    return Text(f", as expected (up to {limit})", f"（符合预期，不超过 {limit}）")


def describe_giving_up(was: Executed | None, still: Executed | None, kept: int, of: int) -> Text:
    """Begin the sentence of a fix that gives up most of the low precision; "" of another."""
    if still is None or not gives_up_most(was, still, kept, of):
        return same("")
    if was is not None and was.low and not still.low:
        return Text(f"only by giving up all of {still.precision}: ", f"须放弃全部 {still.precision}：")
    return Text(f"only by giving up most of {still.precision}: ", f"须放弃大部分 {still.precision}：")


def describe_still_low(was: Executed | None, still: Executed | None) -> Text:
    """Say how many operators still run in the low precision, and did before; "" where nobody sees what runs in it."""
    if still is None or (was is not None and not was.low):
        return same("")
    low = _describe_low(still)
    en, zh = f"; {low.en} still {_run(still)} in {still.precision}", f"；仍有 {low.zh} 个算子以 {still.precision} 运行"
    if not still.low:
        en, zh = f"; nothing is left in {still.precision} then", f"；此时没有算子再以 {still.precision} 运行"
    if was is not None:
        en, zh = f"{en} ({count(was.low)} of {count(was.of)} before)", f"{zh}（此前为 {_describe_low(was).zh}）"
    return Text(en, zh)


def describe_low_before(was: Executed | None) -> Text:
    """Say in brackets how many operators run in the low precision with nothing kept; "" where nobody sees that."""
    if was is None:
        return same("")
    low = _describe_low(was)
    return Text(
        f" (with nothing kept, {low.en} {_run(was)} in {was.precision})",
        f"（未保留时有 {low.zh} 个算子以 {was.precision} 运行）",
    )


def _run(executed: Executed) -> str:
    return "runs" if executed.low == 1 else "run"


def _describe_low(executed: Executed) -> Text:
    return Text(
        f"{count(executed.low)} of {format_count(executed.of, 'operator')}",
        f"{count(executed.low)}/{count(executed.of)}",
    )


def format_error(error: float | None) -> str:
    """Write an error as people read it."""
    return "NaN or Inf" if error is None else format_figure(error)


def _format_error_zh(error: float | None) -> str:
    """Return the same in Chinese."""
    return "NaN 或 Inf" if error is None else format_figure(error)
