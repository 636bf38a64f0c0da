"""What a sweep says, in sentences: which mode to take, what fails and why, what did not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....reasons import Text, same
from ....report.doubts import describe_doubt
from ....report.model import Verdict
from ....report.summary import VERDICT_NAME
from ....report.words import code_text, explain_reason, format_figure
from .result import Mode, Speed, Sweep, find_pareto_front
from .table import BASELINE, REFUSED, Head, Line, format_cell, list_scores

__all__ = ["cell_text", "list_sentences", "tone_of"]

_HOLD = (str(Verdict.PASS), str(Verdict.EXPECTED))
_NAMES = {str(verdict): name for verdict, name in VERDICT_NAME.items()} | {
    BASELINE: Text("Baseline", "基线"), REFUSED: Text("Did not run", "未运行"),
}  # fmt: skip
_STATES = {
    "healthy": Text("nobody", "无"), "diffuse": Text("diffuse", "误差分散"), "unknown": Text("not measured", "未测定"),
}  # fmt: skip


def list_sentences(sweep: Sweep) -> list[Text]:
    """The first one stands alone."""
    others = [mode for mode in sweep.modes if mode.verdict != BASELINE]
    found = [_describe_choice(sweep, [mode for mode in others if mode.verdict in _HOLD])]
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PARTIAL):
        found += _list_modes(verdict, [mode for mode in others if mode.verdict == str(verdict)])
    for mode in others:
        if mode.refused:
            why = explain_reason(mode.refused)
            found.append(Text(f"`{mode.name}` did not run: {why.en}", f"`{mode.name}` 未运行：{why.zh}"))
    best = find_pareto_front(sweep.modes)
    if len(best) > 1:
        names = [f"`{mode.name}`" for mode in best]
        found.append(
            Text(
                f"Best trade-offs between error and time: {', '.join(names)}.",
                f"误差与耗时的最佳折中：{'、'.join(names)}。",
            )
        )
    return found


def tone_of(sweep: Sweep) -> str:
    """Return "good" where every mode ran and held, "bad" where none did, else "warn"."""
    others = [mode for mode in sweep.modes if mode.verdict != BASELINE]
    held = sum(mode.verdict in _HOLD and not mode.refused for mode in others)
    return "good" if held == len(others) else "warn" if held else "bad"


def cell_text(head: Head, line: Line, mode: Mode | None) -> Text:
    """Return a cell as people read it. mode: that of the line."""
    if head.key == "verdict":
        return _NAMES.get(line["verdict"], same(line["verdict"]))
    if head.key == "culprit" and mode is not None:
        return _describe_blame(mode)
    if head.key == "reason" and line.get("reason"):
        return explain_reason(line["reason"])
    return same(format_cell(head, line.get(head.key)))


def _describe_blame(mode: Mode) -> Text:
    """Return who lost the precision, and why; or that nobody stands out."""
    if not mode.culprit:
        return _STATES.get(mode.cause, same(mode.cause))
    en, zh = (code_text(f"cause_{mode.cause}", {}, lang) or mode.cause for lang in ("en", "zh"))
    return Text(f"{mode.culprit} ({en})", f"{mode.culprit}（{zh}）")


def _describe_choice(sweep: Sweep, held: Sequence[Mode]) -> Text:
    first, base = sweep.first, f"`{sweep.baseline}`"
    timed = sorted((mode.speed.median, mode.name, mode) for mode in held if mode.speed is not None)
    others = [mode for mode in sweep.modes if mode.verdict != BASELINE]
    if others and not any(mode.verdict for mode in others):
        return Text(
            "No mode ran: the reasons stand below, and nothing is known of any of them.",
            "没有模式运行成功：原因见下文，对各模式均一无所知。",
        )
    if not held:
        return Text("No mode passes: use none of them unchanged.", "没有模式成立：都不能直接使用。")
    if not timed or first is None or first.speed is None:
        names = [f"`{mode.name}`" for mode in held]
        return Text(f"These hold: {', '.join(names)}.", f"成立的模式：{'、'.join(names)}。")
    median, name, mode = timed[0]
    assert mode.speed is not None
    ours, theirs = _format_span(mode.speed), _format_span(first.speed)
    if not mode.speed.faster_than(first.speed):
        return Text(
            f"No mode within tolerance is measurably faster than {base} ({theirs.en}). The fastest, `{name}`, takes"
            f" {ours.en}.",
            f"容差之内的模式都不明显快于 {base}（{theirs.zh}）；其中最快的 `{name}` 需 {ours.zh}。",
        )
    near = [one for _, _, one in timed[1:] if one.speed is not None and not mode.speed.faster_than(one.speed)]
    if near:
        near = sorted([mode, *near], key=lambda one: (one.rel_l2 is None, one.rel_l2))
        spans = [(f"`{one.name}`", _format_span(one.speed)) for one in near if one.speed is not None]
        return Text(
            f"Fastest that hold: {', '.join(f'{who} ({span.en})' for who, span in spans)}, the most exact first; their "
            f"times overlap, so they are not ranked by them. {base} takes {theirs.en}.",
            f"成立的模式中最快：{'、'.join(f'{who}（{span.zh}）' for who, span in spans)}，精度最高者在前；"
            f"它们的耗时有重叠，因此不按耗时排序。{base} 需 {theirs.zh}。",
        )
    times = format_figure(float(f"{first.speed.median / median:.3g}"))
    en, zh = [f"its worst output is off by {mode.rel_l2:.2g} (Rel L2)"] if mode.rel_l2 is not None else [], [
        f"最差输出的相对 L2 误差为 {mode.rel_l2:.2g}"
    ] if mode.rel_l2 is not None else []
    before = list_scores(first)
    for score, value in list(list_scores(mode).items())[:1]:
        named, old = explain_reason(score), before.get(score)
        was, yuan = (f" (baseline {old:.1%})", f"（基线 {old:.1%}）") if old is not None else ("", "")
        en.append(f"{named.en} {value:.1%}{was}")
        zh.append(f"{named.zh} {value:.1%}{yuan}")
    return Text(
        f"Fastest that holds: `{name}`, {times} x as fast as {base} ({ours.en} for {theirs.en})"
        + "".join(f"; {part}" for part in en) + ".",
        f"成立的模式中最快：`{name}`，速度为 {base} 的 {times} 倍（{ours.zh}，基线 {theirs.zh}）"
        + "".join(f"；{part}" for part in zh) + "。",
    )  # fmt: skip


def _format_span(speed: Speed) -> Text:
    """Return a time, with its fastest and slowest round where they differ in what is shown."""
    median, low, high = (f"{1e3 * seconds:.3g}" for seconds in (speed.median, speed.low, speed.high))
    if low == high:
        return same(f"{median} ms")
    return Text(f"{median} ms, {low} to {high}", f"{median} ms，{low} 至 {high}")


def _explain_verdict(mode: Mode) -> Text | None:
    """Return what a mode's verdict rests on: the user's metric before anything, then who made the error."""
    if mode.metric is None:
        return _describe_blame(mode) if mode.culprit else None
    said = describe_doubt(mode.metric)
    return Text(said.en[:1].lower() + said.en[1:].rstrip("."), said.zh.rstrip("。"))


def _list_modes(verdict: Verdict, modes: Sequence[Mode]) -> Iterator[Text]:
    if not modes:
        return
    name = VERDICT_NAME[verdict]
    who = [(f"`{mode.name}`", _explain_verdict(mode)) for mode in modes]
    yield Text(
        f"{name.en}: " + "; ".join(one if why is None else f"{one}, {why.en}" for one, why in who) + ".",
        f"{name.zh}：" + "；".join(one if why is None else f"{one}，{why.zh}" for one, why in who) + "。",
    )
