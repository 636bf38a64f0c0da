"""What a search found: which operators to keep in higher precision, what that costs, and what is handed over."""

from __future__ import annotations

from ..reasons import Text, as_reason, same
from ..search.fix import Artefact, Fix, KeptUnit, TradePoint
from .model import Report
from .sections import Cell, Section, label_and_value, plain_cell
from .tried import UNITS, describe_giving_up, describe_low_before, describe_still_low, format_error, name_error
from .words import count, explain_reason, format_count, format_duration, format_percent, were

__all__ = ["FIX_NAME", "fix_lines", "fix_sections", "fix_sentences"]

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
    found = _STATES[fix.state](fix)
    if fix.state != "found":
        return [found, *_best_trade_text(fix)]
    checked = _verification_text(fix, report.target.mode)
    return [Text(f"{found.en} {checked.en}", f"{found.zh}{checked.zh}")]


def _best_trade_text(fix: Fix) -> list[Text]:
    """Return the best trade that was seen, where no set was found."""
    if not fix.best:
        return []
    units, what = UNITS.get(fix.unit, UNITS["operator"]), name_error(slices=fix.slices)
    return [
        Text(
            f"The best trade-off found keeps {count(len(fix.best))} of {count(fix.units)} {units.en}: {what.en} goes"
            f" from {format_error(fix.before)} to {format_error(fix.best_error)} ({fix.best_option}).",
            f"已运行的最佳折中保留 {count(fix.units)} {units.zh}中的 {count(len(fix.best))} 个：{what.zh}从"
            f" {format_error(fix.before)} 降到 {format_error(fix.best_error)}（{fix.best_option}）。",
        )
    ]


def _verification_text(fix: Fix, mode: str) -> Text:
    """Return how the answer was verified: on the engine, on other inputs, as what is handed over."""
    parts, zh = [f"run in {mode}"], [f"在 {mode} 中运行通过"]
    if fix.held_out:
        held = f"{count(fix.held)} of {count(fix.held_out)}"
        parts.append(f"on {held} unseen {'input' if fix.held_out == 1 else 'inputs'}")
        zh.append(f"在搜索未见过的 {count(fix.held_out)} 组输入中 {count(fix.held)} 组成立")
    again = [item.verified for item in fix.artefacts if item.verified is not None]
    if again:
        good = f"{count(sum(again))} of {count(len(again))}"
        parts.append(f"{good} {'artefact' if len(again) == 1 else 'artefacts'} (files and settings) reloaded and run")
        zh.append(f"可取用的 {count(len(again))} 项产物重新加载运行，{count(sum(again))} 项通过")
    but = "" if fix.held_out or "`" in fix.limit else " It was not checked on other inputs."
    dan = "" if fix.held_out or "`" in fix.limit else "未在其他输入上验证。"
    return Text(f"Verified: {'; '.join(parts)}.{but}", f"验证：{'；'.join(zh)}。{dan}")


def _not_needed_text(fix: Fix) -> Text:
    limit = explain_reason(fix.limit)
    return Text(
        f"Nothing has to be kept: the requirement is already met ({limit.en}; it is {format_error(fix.before)}).",
        f"无需保留任何算子：原样即满足要求（{limit.zh}；实际为 {format_error(fix.before)}）。",
    )


def _answer_text(fix: Fix) -> Text:
    units, what = UNITS.get(fix.unit, UNITS["operator"]), name_error(slices=fix.slices)
    low = same("") if fix.was is None else describe_still_low(fix.was, fix.still)
    keys = [*(f"`{unit.key}`" for unit in fix.kept[:6]), *(["…"] if len(fix.kept) > 6 else [])]
    given_up = describe_giving_up(fix.was, fix.still, len(fix.kept), fix.units)
    first = f"{given_up.en}keep {count(len(fix.kept))} of {count(fix.units)} {units.en}"
    return Text(
        f"{first[0].upper()}{first[1:]} in higher precision ({', '.join(keys)}): {what.en} goes from"
        f" {format_error(fix.before)} to {format_error(fix.after)}{low.en}.",
        f"{given_up.zh}将 {count(fix.units)} {units.zh}中的 {count(len(fix.kept))} 个保留为高精度（"
        f"{'、'.join(keys)}）：{what.zh}从 {format_error(fix.before)} 降到 {format_error(fix.after)}{low.zh}。",
    )


def _diffuse_text(fix: Fix) -> Text:
    others = f", and on {count(fix.held)} of {count(fix.held_out)} others" if fix.held_out else ""
    qita = f"，在其他 {count(fix.held_out)} 组输入中只有 {count(fix.held)} 组成立" if fix.held_out else ""
    return Text(
        f"Diffuse: {count(len(fix.kept))} of {count(fix.units)} have to be kept to pass on the search's inputs (error"
        f" {format_error(fix.before)} to {format_error(fix.after)}){others}; no small set is the cause. The table"
        f" shows the error"
        " for each number of kept operators.",
        f"误差分散：在搜索所用输入上须保留 {count(fix.units)} 个中的 {count(len(fix.kept))} 个才成立"
        f"（误差从 {format_error(fix.before)} 到 {format_error(fix.after)}）{qita}；没有少数算子是主因。"
        "下表给出保留数量与误差的关系。",
    )


def _not_possible_text(fix: Fix) -> Text:
    units, still = UNITS.get(fix.unit, UNITS["operator"]), fix.whole_still
    if fix.whole_passes:
        ran = describe_low_before(fix.was)
        return Text(
            f"No set that was run passes and leaves the rest in low precision{ran.en}: with all {count(fix.units)}"
            f" {units.en} kept the error goes from {format_error(fix.before)} to {format_error(fix.whole)}, and nothing"
            f" is left in low precision.",
            f"已运行的集合中没有一个既满足要求又使其余部分仍为低精度{ran.zh}：{count(fix.units)} {units.zh}全部保留时"
            f"误差从 {format_error(fix.before)} 降到 {format_error(fix.whole)}，但低精度已无算子运行。",
        )
    if still is not None and still.low:
        return Text(
            f"The engine does not obey: told to keep all {count(fix.units)} {units.en} in higher precision, it still"
            f" ran {count(still.low)} of {count(still.of)} in {still.precision}, with an error of"
            f" {format_error(fix.whole)}"
            f" ({format_error(fix.before)} with nothing kept). So how much of the error is due to precision is"
            f" unknown.",
            f"引擎未遵守：要求全部 {count(fix.units)} {units.zh}保留为高精度，仍有 {count(still.of)} 个中的"
            f" {count(still.low)} 个以 {still.precision} 运行，误差为 {format_error(fix.whole)}（未保留时"
            f" {format_error(fix.before)}）。因此无法判断精度对误差的影响。",
        )
    return Text(
        "It also fails with everything in higher precision, so keeping operators cannot help: compare that mode first.",
        "全部保留为高精度仍不满足要求，保留算子无济于事：请先对比该模式本身。",
    )


def _unfinished_text(fix: Fix) -> Text:
    if fix.kept:
        return Text(
            f"Unfinished: the smallest set known to pass keeps {count(len(fix.kept))} of {count(fix.units)}; the"
            " budget of runs or time is used up. The same command continues from here.",
            f"未完成：已知成立的最小集合保留 {count(fix.units)} 个中的 {count(len(fix.kept))} 个；次数或时间已用完，"
            "再次运行同一命令会从此处继续。",
        )
    if any(as_reason(note).code == "whole_did_not_run" for note in fix.notes):
        return Text(
            "Unfinished: no set passed of those with which the engine runs, and with everything kept it does not run.",
            "未完成：能运行的集合均不成立，而全部保留时引擎无法运行。",
        )
    return Text(
        "Unfinished: no set passed before the budget of runs or time was used up. The same command continues from"
        " here.",
        "未完成：在次数或时间用完前未发现成立的集合；再次运行同一命令会继续。",
    )


_STATES = {
    "not needed": _not_needed_text, "found": _answer_text, "diffuse": _diffuse_text, "not possible": _not_possible_text,
    "unfinished": _unfinished_text,
}  # fmt: skip


def fix_sections(report: Report) -> tuple[Section, ...]:
    """Return the sections "fix", "fix_kept", "fix_trade" and "fix_artefacts"; none where nothing was searched for."""
    fix = report.fix
    if fix is None:
        return ()
    return (_overview_section(fix), _kept_section(fix), _trade_section(fix), _artefacts_section(fix))


def _overview_section(fix: Fix) -> Section:
    lines = [
        (plain_cell(Text("Answer", "结论")), Cell(text=_STATES[fix.state](fix), tone=FIX_NAME[fix.state][1])),
        (plain_cell(Text("Requirement", "要求")), plain_cell(explain_reason(fix.limit))),
        label_and_value(Text("Error with nothing kept", "未保留时的误差"), format_error(fix.before)),
    ]
    if fix.kept:
        lines.append(label_and_value(Text("Error with these kept", "保留后的误差"), format_error(fix.after)))
    if fix.held_out:
        held = f"{count(fix.held)} / {count(fix.held_out)}"
        lines.append(
            label_and_value(
                Text("Passes on other inputs", "在其他输入上成立"), held, "good" if fix.held == fix.held_out else "bad"
            )
        )
    lines.append((plain_cell(Text("Effort", "代价")), plain_cell(_effort_text(fix))))
    if fix.joined:
        names = ", ".join(unit.key for unit in fix.joined)
        lines.append(label_and_value(Text("Also kept, because that saves casts", "为减少转换而一并保留"), names))
    for outcome in fix.obeyed:
        lines.append(label_and_value(Text("The engine says", "引擎的说法"), outcome))
    for note in fix.notes:
        lines.append((plain_cell(Text("Mind", "注意")), plain_cell(explain_reason(note))))
    title = Text("What to keep in higher precision", "应保留为高精度的算子")
    return Section(key="fix", title=title, lines=tuple(lines))


def _kept_section(fix: Fix) -> Section:
    return Section(
        key="fix_kept",
        title=Text("The kept set", "保留集合") if fix.kept else Text("The set of the best trade-off", "最佳折中的集合"),
        head=(
            Text("Operator", "算子"), Text("Type", "类型"), Text("Makes", "输出张量"),
            Text("Share of the error", "误差占比"),
        ),
        lines=tuple(map(_kept_line, fix.kept or fix.best)),
    )  # fmt: skip


def _kept_line(unit: KeptUnit) -> tuple[Cell, ...]:
    share = Text("NaN or Inf", "NaN 或 Inf") if unit.certain else same(format_percent(unit.share) if unit.share else "")
    cells = (same(unit.key), same(", ".join(unit.op_types)), same(", ".join(unit.tensors)), share)
    return tuple(plain_cell(cell) for cell in cells)


def _trade_section(fix: Fix) -> Section:
    return Section(
        key="fix_trade",
        title=Text("Kept operators against error, speed and size", "保留数量与误差、速度、大小"),
        head=(
            Text("Kept", "保留数"), Text("What", "说明"), _name_of_measure(fix), Text("Holds", "是否成立"),
            Text("Holds on others", "其他输入"), Text("ms a run", "毫秒/次"), Text("MB", "MB"),
            Text("Error, as a bar", "误差条"),
        ),
        lines=tuple(_format_point(point, fix) for point in fix.trade),
    )  # fmt: skip


_METRICS = frozenset({"limit_drop", "limit_error", "limit_metric", "limit_metric_share"})


def _name_of_measure(fix: Fix) -> Text:
    """Return what its errors are: Rel L2, or what the user's own metric gives."""
    if fix.limit.code == "limit_score":
        return Text("1 - metric", "1 - 指标")
    if fix.slices and fix.limit.code not in _METRICS:
        return Text("Error, of lost slices by their own size", "误差（丢失的切片以其自身大小计）")
    return Text("Metric", "指标") if fix.limit.code in _METRICS else Text("Rel L2", "相对 L2")


def _format_point(point: TradePoint, fix: Fix) -> tuple[Cell, ...]:
    held = "" if point.held_out is None else f"{count(point.held_out)} / {count(fix.held_out)}"
    speed = "" if point.milliseconds is None else f"{point.milliseconds:.3g}"
    size = "" if point.bytes is None else f"{point.bytes / 1e6:.3g}"
    holds = Text("yes", "是") if point.passes else Text("no", "否")
    return (
        Cell(text=same(count(point.kept)), right=True),
        plain_cell(_WHAT.get(point.what, same(point.what))),
        Cell(text=same(format_error(point.error)), right=True),
        Cell(text=holds, tone="good" if point.passes else "bad"),
        Cell(text=same(held), right=True),
        Cell(text=same(speed), right=True),
        Cell(text=same(size), right=True),
        Cell(text=same(_draw_bar(point, fix)), tone="code"),
    )


def _draw_bar(point: TradePoint, fix: Fix) -> str:
    """Return a bar of at most 24 signs: the error on a scale of decades, so that every point shows."""
    import math

    errors = [item.error for item in fix.trade if item.error]
    if point.error is None:
        return "█" * 24 + " ∞"
    if not point.error or not errors:
        return ""
    low, high = math.log10(min(errors)) - 0.5, math.log10(max(errors))
    return "█" * max(1, round(24 * (math.log10(point.error) - low) / max(high - low, 1e-9)))


def _artefacts_section(fix: Fix) -> Section:
    return Section(
        key="fix_artefacts",
        title=Text("Artefacts, each run again as in use", "可直接使用的产物（已按实际用法重新运行）"),
        head=(
            Text("Kind", "类别"), Text("What", "内容"), Text("File or text", "文件或文本"), Text("Verified", "已验证"),
            _name_of_measure(fix), Text("ms a run", "毫秒/次"), Text("MB", "MB"), Text("Note", "说明"),
        ),
        lines=tuple(map(_format_artefact, fix.artefacts)),
    )  # fmt: skip


def _format_artefact(item: Artefact) -> tuple[Cell, ...]:
    verified = {
        True: Cell(text=Text("yes", "是"), tone="good"), False: Cell(text=Text("no", "否"), tone="bad"),
        None: Cell(text=Text("not run here", "未在此运行"), tone="muted"),
    }[item.verified]  # fmt: skip
    return (
        plain_cell(_KINDS.get(item.kind, same(item.kind))),
        plain_cell(explain_reason(item.title)),
        Cell(text=same(item.path or item.text), tone="code" if item.path else "paste"),
        verified,
        Cell(text=same(format_error(item.error) if item.verified is not None else ""), right=True),
        Cell(text=same("" if item.milliseconds is None else f"{item.milliseconds:.3g}"), right=True),
        Cell(text=same("" if item.bytes is None else f"{item.bytes / 1e6:.3g}"), right=True),
        plain_cell(explain_reason(item.note)),
    )


def fix_lines(report: Report) -> list[tuple[str, Text, Text]]:
    """Style, label and text of each line that the terminal shows; the answer itself stands in the report's lead."""
    fix = report.fix
    if fix is None:
        return []
    effort, limit = _effort_text(fix), explain_reason(fix.limit)
    lines = [("", Text("effort", "代价"), Text(f"{effort.en}; {limit.en}", f"{effort.zh}；{limit.zh}"))]
    kept = fix.kept or fix.best
    for unit in kept[:12]:
        share = format_percent(unit.share) if unit.share else ""
        why = (
            Text("NaN or Inf first appears here", "此处产生 NaN 或 Inf") if unit.certain
            else Text(f"{share} of the error", f"占误差的 {share}") if share else same("")
        )  # fmt: skip
        name = f"{', '.join(unit.op_types)} {unit.key}"
        lines.append(("", Text("keep", "保留"), Text(f"{name}  {why.en}".rstrip(), f"{name}  {why.zh}".rstrip())))
    if len(kept) > 12:
        more = len(kept) - 12
        lines.append(("", same(""), Text(f"… and {more} more", f"……另有 {more} 个")))
    for point in fix.trade:
        speed = f"  {point.milliseconds:.3g} ms" if point.milliseconds is not None else ""
        what = _WHAT.get(point.what, same(point.what))
        error, by = f"{format_error(point.error)}{speed}", _name_of_measure(fix)
        said = Text(f"{by.en} {error}  {what.en}", f"{by.zh} {error}  {what.zh}")
        lines.append(("", Text(f"{point.kept} kept", f"保留 {point.kept}"), said))
    for item in fix.artefacts:
        label = {
            True: Text("verified", "已验证"), False: Text("FAILS", "不成立"), None: Text("not run here", "未在此运行"),
        }[item.verified]  # fmt: skip
        said, made = explain_reason(item.title), item.path or item.text.rstrip("\n")
        first, *code = ["", *made.split("\n")] if "\n" in made else [made]  # a script: each line as it is pasted
        text = Text(f"{said.en}: {first}".rstrip(), f"{said.zh}：{first}")
        lines.append(("red" if item.verified is False else "", label, text))
        lines += [("", same(""), same(line)) for line in code]
    lines += [("", Text("engine", "引擎"), explain_reason(outcome)) for outcome in fix.obeyed[:8]]
    lines += [("yellow", Text("mind", "注意"), explain_reason(note)) for note in fix.notes]
    return lines


def _effort_text(fix: Fix) -> Text:
    """Return what the answer took."""
    again, own = count(fix.again), count(fix.on_engine)
    return Text(
        f"{format_count(fix.evaluations, 'set')} {were(fix.evaluations)} run ({own} on the engine"
        + (f", the others in {fix.simulation}" if fix.simulation else "")
        + (f", {again} known from an earlier search" if fix.again else "")
        + f"), {format_count(1 + fix.rankings, 'ranking')}, {format_count(fix.builds, 'time')} opened or built,"
        f" {format_duration(fix.seconds)}",
        f"运行了 {count(fix.evaluations)} 个集合（其中引擎 {own} 次"
        + (f"，其余在 {fix.simulation} 中" if fix.simulation else "")
        + (f"，{again} 个来自之前的搜索" if fix.again else "")
        + f"），排序 {count(1 + fix.rankings)} 次，打开或构建 {count(fix.builds)} 次，{format_duration(fix.seconds)}",
    )
