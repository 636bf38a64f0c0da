"""The page of a training run: what left its band first, and each gradient's numbers over the steps, as curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...reasons import Text
from ...recording.training_log import ParameterNumbers, StepNumbers
from ...report.formats.html.text import both_languages, escape_html, make_small_page
from ...report.words import format_figure, format_percent
from .training_faults import Departure, Restart, Untrained, count_steps_with_band

__all__ = [
    "describe_changes_by_plan", "describe_departure", "describe_not_given", "describe_restart", "describe_untrained",
    "make_training_page",
]  # fmt: skip

_DRAWN = 24
"""Parameters whose curves are drawn: those whose gradients change most."""

_WIDTH, _HEIGHT = 220, 48

_ENDS = 100
"""Steps with NaN or Inf that are marked in a curve."""


@dataclass(frozen=True, kw_only=True)
class _Curve:
    """A curve of one number of each parameter over the steps.

    title: of the column. says: what it shows. number: of a parameter at a step. logarithmic: its axis. shares: it is
    shown in percent."""

    title: Text
    says: Text
    number: Callable[[ParameterNumbers], float | None]
    logarithmic: bool = False
    shares: bool = False


_CURVES = (
    _Curve(
        title=Text("gradient norm", "梯度范数"), logarithmic=True,
        number=lambda one: math.inf if one.broken else one.norm,
        says=Text("L2 of the gradient, unscaled; logarithmic", "梯度的 L2 范数（还原损失缩放之后），对数轴"),
    ),
    _Curve(
        title=Text("update / weight", "更新 / 权重"), number=lambda one: one.moved, logarithmic=True,
        says=Text("L2 of the step over L2 of the parameter; logarithmic", "更新量与参数的 L2 之比，对数轴"),
    ),
    _Curve(
        title=Text("zeros", "零"), number=lambda one: one.zeros, shares=True,
        says=Text("share of the gradient's elements that are 0", "梯度中为 0 的元素占比"),
    ),
    _Curve(
        title=Text("below float16", "低于 float16"), number=lambda one: one.below, shares=True,
        says=Text(
            "share of the others that float16 would make 0 at the step's loss scale",
            "其余元素中，在该步的损失缩放下会被 float16 变为 0 的占比",
        ),
    ),
)  # fmt: skip

_STYLE = """
.run { display: grid; grid-template-columns: minmax(150px, 1.1fr) repeat(4, minmax(0, 1fr)); gap: 4px 18px; }
.run > * { min-width: 0; } .run code { overflow-wrap: anywhere; align-self: center; }
.run svg { width: 100%; height: 48px; display: block; overflow: visible; }
.run small { color: var(--soft); } .run .head { font-weight: 600; } .run .narrow { display: none; }
.run polyline { fill: none; stroke: var(--blue); stroke-width: 1.5; stroke-linecap: round; }
.run polyline, .run line { vector-effect: non-scaling-stroke; }
.run line { stroke: var(--red); stroke-width: 1; stroke-dasharray: 3 3; }
.run circle { fill: var(--red); } td.bad { color: var(--red); font-weight: 600; }
@media (max-width: 760px) {
  .run { grid-template-columns: 1fr 1fr; } .run .head { display: none; } .run .narrow { display: inline; }
  .run code { grid-column: 1 / -1; margin-top: 8px; }
}
"""


def describe_departure(steps: Sequence[StepNumbers], found: Departure | None) -> Text:
    """One sentence: the first step that left its band, or that none did."""
    if found is None and not steps:
        return Text("No step was logged, so nothing is known of this run.", "没有保存任何步，因此无法判断这次训练。")
    if found is None and not count_steps_with_band(steps):
        many = "1 step was" if len(steps) == 1 else f"{len(steps)} steps were"
        return Text(
            f"{many} logged, which is too few for a band: no gradient has NaN or Inf, and nothing else is known. Log"
            " more of them (training(every=N)).",
            f"只保存了 {len(steps)} 个步，不足以得出范围：梯度中没有 NaN 或 Inf，其余未知。请保存更多的步"
            "（training(every=N)）。",
        )
    if found is None:
        return Text(
            f"No gradient leaves its band in the {len(steps)} logged steps.",
            f"在保存的 {len(steps)} 个步中，没有梯度超出其范围。",
        )
    return _describe_run_departure(found) or _describe_gradient_departure(found)


def describe_untrained(found: Untrained) -> Text:
    """Return which parameters never had a gradient: for the reader to judge."""
    names = ", ".join(f"`{name}`" for name in found.names[:3])
    more = f" and {len(found.names) - 3} more" if len(found.names) > 3 else ""
    more_zh = f" 等 {len(found.names)} 个" if len(found.names) > 3 else ""
    return Text(
        f"Never a gradient: {names}{more}. Unless that is meant, the loss does not depend on them.",
        f"从无梯度：{names}{more_zh}。若非有意，则损失不依赖于它们。",
    )


def describe_not_given(found: Untrained) -> Text:
    """Return which parameters nobody moves: for the reader to judge."""
    names = ", ".join(f"`{name}`" for name in found.names[:3])
    more = f" and {len(found.names) - 3} more" if len(found.names) > 3 else ""
    more_zh = f" 等 {len(found.names)} 个" if len(found.names) > 3 else ""
    return Text(
        f"Never moved: {names}{more}. They have gradients, and the optimiser was not given them. Unless that is meant,"
        " add them to its parameters.",
        f"从未改变：{names}{more_zh}。它们有梯度，但未交给优化器。若非有意，请加入优化器的参数。",
    )


def describe_restart(found: Restart) -> Text:
    """Return where the learning rate begins anew: for the reader to judge."""
    value, before = (f"{one:.4g}" for one in (found.value, found.before))
    times = f", {found.value / found.before:.3g} times" if found.before > 0 else ""
    times_zh = f"，{found.value / found.before:.3g} 倍" if found.before > 0 else ""
    again = f", the first of {found.count} such steps" if found.count > 1 else ""
    again_zh = f"，共 {found.count} 个这样的步" if found.count > 1 else ""
    return Text(
        f"At step {found.step} the learning rate goes from {before} back to {value}{times} ({found.parameters}"
        f" parameters{again}). Unless the schedule is meant to restart there, it has lost its state"
        " (scheduler.load_state_dict after a resume).",
        f"第 {found.step} 步学习率从 {before} 回到 {value}{times_zh}（{found.parameters} 个参数{again_zh}）。"
        "若非有意重启，则学习率计划丢失了状态（恢复训练后应调用 scheduler.load_state_dict）。",
    )


def describe_changes_by_plan(found: Departure) -> Text:
    """Return what changes parameters between steps again and again: for the reader to judge."""
    value, every = format_percent(found.value), format_figure(found.usual)
    return Text(
        f"Every {every} logged steps, from step {found.step} on, something else than the optimiser changes"
        f" `{found.parameter}` (by {value} of its size; parameters affected: {found.parameters}). Unless that is meant,"
        " weights are not put back.",
        f"自第 {found.step} 步起，每 {every} 个保存的步，优化器之外的操作改变 `{found.parameter}`"
        f"（幅度为其大小的 {value}；受影响的参数：{found.parameters} 个）。若非有意，则权重未被换回。",
    )


def _describe_run_departure(found: Departure) -> Text | None:
    """Return a sentence about updates, rates and what is no more; None for what is told by a gradient's band."""
    name, value, usual, many = (
        f"`{found.parameter}`",
        format_figure(found.value),
        format_figure(found.usual),
        found.parameters,
    )
    affected, affected_zh = f"(parameters affected: {many})", f"（受影响的参数：{many} 个）"
    if found.what == "gone":
        return Text(
            f"From step {found.step} on, {name} has no gradient any more, where a norm of {usual} was usual {affected}:"
            " the loss no longer depends on it (detach(), no_grad(), a branch that is not taken).",
            f"自第 {found.step} 步起，{name} 不再有梯度（此前范数通常为 {usual}）{affected_zh}："
            "损失不再依赖于它（detach()、no_grad()、未执行的分支）。",
        )
    if found.what == "still":
        return Text(
            f"From step {found.step} on, {format_percent(found.value)} of {name} stand still although they have a"
            f" gradient"
            f" {affected}: each update is less than half a rounding step of the parameter's type. Keep the parameters"
            " in float32, or raise the learning rate.",
            f"自第 {found.step} 步起，{name} 有 {format_percent(found.value)} 的元素虽有梯度却不变{affected_zh}："
            "每次更新都小于参数类型舍入步长的一半。请用 float32 保存参数，或提高学习率。",
        )
    if found.what == "stopped":
        why, why_zh = (
            f"at a learning rate of {value} each update is less than half a rounding step of its type. Keep the"
            " parameters in float32, or raise the learning rate.",
            f"学习率为 {value}，每次更新都小于其类型舍入步长的一半。请用 float32 保存参数，或提高学习率。",
        ) if found.value else (
            "the learning rate is 0: the schedule has ended before the run. Give it the steps of the run.",
            "学习率为 0：学习率计划先于训练结束。请按训练的步数设定计划。",
        )  # fmt: skip
        return Text(
            f"From step {found.step} on, {name} does not change any more although it has a gradient {affected}: {why}",
            f"自第 {found.step} 步起，{name} 虽有梯度却不再改变{affected_zh}：{why_zh}",
        )
    if found.what == "tiny":
        return Text(
            f"From step {found.step} on, an update is {value} of the parameters: nothing is learnt at that pace. Check"
            " the learning rate, and that gradients are unscaled before they are clipped.",
            f"自第 {found.step} 步起，更新量只有参数的 {value}：以此速度学不到任何东西。请检查学习率，"
            "以及是否先还原损失缩放再裁剪梯度。",
        )
    if found.what == "clipped":
        return Text(
            f"From step {found.step} on, the gradients are clipped while they are scaled: their total norm times the"
            f" loss scale of {usual} is always {value}. Call scaler.unscale_(optimizer) before the clipping.",
            f"自第 {found.step} 步起，梯度在还原损失缩放之前被裁剪：总范数乘以损失缩放 {usual} 恒为 {value}。"
            "请在裁剪之前调用 scaler.unscale_(optimizer)。",
        )
    if found.what == "kept":
        return Text(
            f"From step {found.step} on, gradients are added to those of the step before: nobody sets them back, and"
            f" their total norm is {value} at the last step, where it was {usual}. Call optimizer.zero_grad() after"
            " each step (in Paddle, clear_grad()).",
            f"自第 {found.step} 步起，梯度累加在上一步的梯度之上：没有清零，最后一步的总范数为 {value}，"
            f"此前为 {usual}。"
            "请在每一步之后调用 optimizer.zero_grad()（Paddle 为 clear_grad()）。",
        )
    if found.what == "changed":
        return Text(
            f"Before step {found.step} something else than the optimiser changed {name}, by"
            f" {format_percent(found.value)} of its size {affected}: weights that were loaded, averaged or"
            " merged and not put back.",
            f"第 {found.step} 步之前，优化器之外的操作改变了 {name}，幅度为其大小的 {format_percent(found.value)}"
            f"{affected_zh}：加载、平均或合并的权重未被换回。",
        )
    if found.what == "state":
        lost, lost_zh = ("is gone", "丢失") if found.value == 1 else (
            f"changed by {format_percent(found.value)}", f"改变了 {format_percent(found.value)}"
        )  # fmt: skip
        return Text(
            f"Before step {found.step} what the optimiser keeps of {name} {lost} {affected}: a resume that does not"
            " load its state (optimizer.load_state_dict), or something that clears it.",
            f"第 {found.step} 步之前，优化器为 {name} 保存的状态{lost_zh}{affected_zh}："
            "恢复训练时未加载其状态（optimizer.load_state_dict），或被清除。",
        )
    if found.what == "rate":
        return Text(
            f"At step {found.step} the learning rate jumps to {value}, where {usual} was the highest before"
            f" {affected}.",
            f"第 {found.step} 步学习率跳到 {value}，此前最高为 {usual}{affected_zh}。",
        )
    if found.what == "uphill":
        return Text(
            f"From step {found.step} on the learning rate is {value}: each update goes up the gradient {affected}."
            " Keep the schedule from going below 0.",
            f"自第 {found.step} 步起学习率为 {value}：每次更新都沿梯度上升{affected_zh}。请使学习率计划不低于 0。",
        )
    if found.what == "setting":
        low, high = found.meaning
        bound, bound_zh = (f" and below {high:g}", f" 且小于 {high:g}") if math.isfinite(high) else ("", "")
        was, was_zh = ("", "") if math.isnan(found.usual) else (f", where it was {usual}", f"，此前为 {usual}")
        return Text(
            f"From step {found.step} on {found.setting} of the optimiser is {value}{was} (the group of {name}): it has"
            f" to be at least {low:g}{bound}.",
            f"自第 {found.step} 步起，优化器的 {found.setting} 为 {value}{was_zh}（{name} 所在的组）：应不小于"
            f" {low:g}{bound_zh}。",
        )
    if found.what == "update":
        return Text(
            f"At step {found.step} the update jumps to {value} of the parameters, where {usual} was the most before,"
            f" and the gradients do not say why; {name} moves furthest.",
            f"第 {found.step} 步更新量跳到参数的 {value}，此前最大为 {usual}，而梯度不能解释；{name} 变化最大。",
        )
    if found.what == "slowed":
        was, became = format_figure(found.was), format_figure(found.became)
        why, why_zh = (
            f"{found.setting} of the optimiser is {became} from there on, where it was {was}.",
            f"优化器的 {found.setting} 自此为 {became}，此前为 {was}。",
        ) if found.setting else (
            "look at what was set otherwise there, as by a resume.", "请检查该处改变了哪些设置，例如恢复训练时。",
        )  # fmt: skip
        return Text(
            f"From step {found.step} on the update is {value} of the parameters, where it was {usual}, with such"
            f" learning rates and gradients as before {affected}: {why}",
            f"自第 {found.step} 步起更新量为参数的 {value}，此前为 {usual}，而学习率与梯度一如既往{affected_zh}："
            f"{why_zh}",
        )
    if found.what == "undecayed":
        return Text(
            f"Weight decay never moves {format_percent(found.usual)} of {name}: {value} of an element a step is less"
            f" than half"
            f" a rounding step of its type {affected}. Keep the parameters in float32.",
            f"权重衰减从未改变 {name} 中 {format_percent(found.usual)} 的元素：每步 {value} 小于其类型舍入步长的一半"
            f"{affected_zh}。请用 float32 保存参数。",
        )
    if found.what == "zeros" and found.usual >= 1:
        return Text(
            f"The gradient of {name} is 0 at (nearly) every logged step {affected}: it underflows, or nothing depends"
            " on it.",
            f"{name} 的梯度在保存的（几乎）每一步都为 0{affected_zh}：下溢，或没有任何结果依赖于它。",
        )
    return None


def _describe_gradient_departure(found: Departure) -> Text:
    value, usual = format_figure(found.value), format_figure(found.usual)
    said = {
        "broken": Text(f"has {value} elements that are NaN or Inf", f"有 {value} 个元素为 NaN 或 Inf"),
        "zeros": Text(
            f"is 0 in {format_percent(found.value)} of its elements, where {format_percent(found.usual)} was usual",
            f"有 {format_percent(found.value)} 的元素为 0，此前通常为 {format_percent(found.usual)}",
        ),
        "larger": Text(f"has norm {value}, where {usual} was usual", f"的范数为 {value}，此前通常为 {usual}"),
        "smaller": Text(f"has norm {value}, where {usual} was usual", f"的范数为 {value}，此前通常为 {usual}"),
    }[found.what]
    return Text(
        f"Step {found.step} is the first out of the band of the steps before it: the gradient of `{found.parameter}`"
        f" {said.en}.",
        f"第 {found.step} 步首先超出此前各步的范围：`{found.parameter}` 的梯度{said.zh}。",
    )


def make_training_page(
    steps: Sequence[StepNumbers], found: Departure | None, *, about: str = "", said: Sequence[Text] = (),
    bad: bool = False, below: str = "", language: str = "",
) -> str:  # fmt: skip
    """Return the page of a training log: one HTML file that needs no network.

    about: the folder. said: its first sentences, in place of the departure's. bad: whether they are of something wrong.
    below: HTML for its end. language: "en" or "zh", which it opens in; "": what the reader's browser prefers."""
    names = list(dict.fromkeys(name for step in steps for name in step.parameters))
    spread = {name: _spread_of([step.parameters[name] for step in steps if name in step.parameters]) for name in names}
    first = found.parameter if found is not None else ""
    drawn = sorted(names, key=lambda name: (name != first, -spread[name]))[:_DRAWN]
    at = [step.step for step in steps]
    mark = at.index(found.step) if found is not None else None
    # what is 0 everywhere is said once, in place of a column of flat lines
    curves = [
        one for one in _CURVES if not one.shares or any(_list_numbers(steps, name, one.number, 0.0) for name in names)
    ]
    legend = "".join(
        f"<li><strong>{both_languages(one.title)}</strong>: {both_languages(one.says)}</li>" for one in _CURVES
    )
    heads = f'<span class="head">{both_languages(Text("parameter", "参数"))}</span>' + "".join(
        f'<span class="head">{both_languages(one.title)}</span>' for one in curves
    )
    rows = "".join(_draw_row(steps, name, curves, mark, marked=name == first) for name in drawn)
    columns = f"minmax(150px, 1.1fr) repeat({len(curves)}, minmax(0, 1fr))"
    style = _STYLE.replace("minmax(150px, 1.1fr) repeat(4, minmax(0, 1fr))", columns)
    body = (
        f'<section class="card"><h2>{both_languages(Text("Gradients over the steps", "梯度随训练步的变化"))}</h2>'
        f"<p>{both_languages(_describe_curves(steps, len(drawn), len(names), found))}</p>"
        + "".join(f"<p>{both_languages(text)}</p>" for text in _list_flat_curves(curves))
        + f'<div class="run">{heads}{rows}</div><details><summary>'
        f"{both_languages(Text('How to read it', '如何阅读'))}</summary>"
        f"<ul>{legend}</ul></details></section>{below}"
    )
    sentences = said or [describe_departure(steps, found)]
    tone = "bad" if bad or found is not None else "good"
    return make_small_page(Text("Training", "训练"), about, sentences, tone, body, style=style, language=language)


def _list_numbers(
    steps: Sequence[StepNumbers], name: str, number: Callable[[ParameterNumbers], float | None], without: float
) -> list[float]:
    """Return those that are not ``without``."""
    found = [number(step.parameters[name]) for step in steps if name in step.parameters]
    return [one for one in found if one is not None and one != without]


def _list_flat_curves(curves: Sequence[_Curve]) -> Iterator[Text]:
    for one in _CURVES:
        if one not in curves:
            yield Text(f"{one.title.en.capitalize()}: none at any step.", f"{one.title.zh}：各步均无。")


def _describe_curves(steps: Sequence[StepNumbers], drawn: int, names: int, found: Departure | None) -> Text:
    """Return what is drawn, over which steps, and with which scales of the loss."""
    if not steps:
        return Text("No step was logged.", "没有保存任何步。")
    span_en, span_zh = f"steps {steps[0].step} to {steps[-1].step}", f"第 {steps[0].step} 至 {steps[-1].step} 步"
    which = Text("the parameter that changes most comes first.", "变化最大的参数排在最前。")
    if drawn < names:
        which = Text(
            f"the {drawn} of {names} parameters whose gradients change most.",
            f"只画出 {names} 个参数中变化最大的 {drawn} 个。",
        )
    said = Text(
        f"Each curve runs over {span_en} ({len(steps)} logged); {which.en}",
        f"每条曲线为{span_zh}（保存 {len(steps)} 步）；{which.zh}",
    )
    if found is not None:
        said = Text(
            f"{said.en} The dashed line is step {found.step}.", f"{said.zh}虚线为第 {found.step} 步。"
        )
    low, high = (format_figure(choose(step.scale for step in steps)) for choose in (min, max))
    if (low, high) == (format_figure(1.0), format_figure(1.0)):
        return said
    scale = low if low == high else f"{low} – {high}"
    return Text(f"{said.en} Loss scale: {scale}.", f"{said.zh}损失缩放：{scale}。")


def _draw_row(
    steps: Sequence[StepNumbers], name: str, curves: Sequence[_Curve], mark: int | None, *, marked: bool
) -> str:
    cells = []
    for one in curves:
        values = [one.number(step.parameters[name]) if name in step.parameters else None for step in steps]
        cells.append(f"<div>{_draw_curve(values, one, mark, marked)}</div>")
    return f"<code>{escape_html(name)}</code>{''.join(cells)}"


def _draw_curve(values: Sequence[float | None], curve: _Curve, mark: int | None, marked: bool) -> str:
    heights = [_height_of(value, curve.logarithmic) for value in values]
    known = [one for one in heights if one is not None]
    numbers = [value for value in values if value is not None and math.isfinite(value)]
    shown = format_percent if curve.shares else format_figure
    low, high = min(known, default=0.0), max(known, default=0.0)
    span = shown(min(numbers)) if numbers else ""
    span += f" – {shown(max(numbers))}" if numbers and min(numbers) != max(numbers) else ""
    ends = [number for number, value in enumerate(values) if value is not None and not math.isfinite(value)]
    span += f"{', ' if span else ''}{len(ends)} × NaN, Inf" if ends else ""

    def place(number: int) -> float:
        return _WIDTH * number / max(1, len(values) - 1)

    def y(one: float) -> float:
        return _HEIGHT - 4 - (_HEIGHT - 8) * ((one - low) / (high - low) if high > low else 0.0)

    lines = []
    for part in _split_at_gaps(heights):
        points = " ".join(f"{place(number):.1f},{y(one):.1f}" for number, one in part)
        lines.append(f'<polyline points="{points if len(part) > 1 else f"{points} {points}"}"/>')
    if mark is not None:
        x, at = place(mark), heights[mark]
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT}"/>')
        if marked and at is not None and curve.logarithmic:
            lines.append(f'<circle cx="{x:.1f}" cy="{y(at):.1f}" r="3"/>')
    lines += [f'<circle cx="{place(number):.1f}" cy="4" r="2"/>' for number in ends[:_ENDS]]
    return (
        f'<small class="narrow">{both_languages(curve.title)}</small>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{escape_html(span)}">'
        f"{''.join(lines)}</svg><small>{escape_html(span)}</small>"
    )


def _split_at_gaps(heights: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    """Runs of steps that have a height: where there is NaN, Inf or nothing, a curve has a gap."""
    part: list[tuple[int, float]] = []
    for number, one in enumerate(heights):
        if one is not None:
            part.append((number, one))
        elif part:
            yield part
            part = []
    if part:
        yield part


def _height_of(value: float | None, logarithmic: bool) -> float | None:
    if value is None or not math.isfinite(value) or (logarithmic and value <= 0):
        return None
    return math.log10(value) if logarithmic else value


def _spread_of(numbers: Sequence[ParameterNumbers]) -> float:
    logs = [math.log10(one.norm) for one in numbers if one.norm > 0]
    broken = any(one.broken for one in numbers)
    return math.inf if broken else max(logs, default=0.0) - min(logs, default=0.0)
