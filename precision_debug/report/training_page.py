"""The page of a training run: what left its band first, and each gradient's numbers over the steps, as curves."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

from ..reasons import Text
from ..recording.training_log import Departure, ParameterNumbers, StepNumbers
from .figures import figure, percent

__all__ = ["departure_text", "training_page"]

_DRAWN = 24
"""Parameters whose curves are drawn: those whose gradients change most."""

_WIDTH, _HEIGHT = 220, 48

_CURVES: tuple[tuple[Text, Callable[[ParameterNumbers], float | None], bool], ...] = (
    (Text("gradient norm", "梯度范数"), lambda one: math.inf if one.broken else one.norm, True),
    (Text("share of zeros", "零的占比"), lambda one: one.zeros, False),
    (Text("share below float16", "低于 float16 的占比"), lambda one: one.below, False),
    (Text("update / weight", "更新 / 权重"), lambda one: one.moved, True),
)
"""Title, number, and whether the axis is logarithmic."""

_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em;color:#222;background:#fff}td,th{padding:4px 10px;text-align:left}"
    "polyline{fill:none;stroke:#2563eb;stroke-width:1.5}circle{fill:#dc2626}.first{font-size:1.2em;margin:1em 0}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}}"
)


def departure_text(steps: Sequence[StepNumbers], found: Departure | None) -> Text:
    """One sentence: the first step that left its band, or that none did."""
    if found is None:
        return Text(
            f"No gradient leaves its band in the {len(steps)} logged steps.",
            f"在保存的 {len(steps)} 个步中，没有梯度超出其范围。",
        )
    value, usual = figure(found.value), figure(found.usual)
    said = {
        "broken": Text(f"has {value} elements that are NaN or Inf", f"有 {value} 个元素为 NaN 或 Inf"),
        "zeros": Text(
            f"is 0 in {percent(found.value)} of its elements, where {percent(found.usual)} was usual",
            f"有 {percent(found.value)} 的元素为 0，此前通常为 {percent(found.usual)}",
        ),
        "larger": Text(f"has norm {value}, where {usual} was usual", f"的范数为 {value}，此前通常为 {usual}"),
        "smaller": Text(f"has norm {value}, where {usual} was usual", f"的范数为 {value}，此前通常为 {usual}"),
    }[found.what]
    return Text(
        f"Step {found.step} is the first out of the band of the steps before it: the gradient of `{found.parameter}`"
        f" {said.en}.",
        f"第 {found.step} 步首先超出此前各步的范围：`{found.parameter}` 的梯度{said.zh}。",
    )


def training_page(
    steps: Sequence[StepNumbers], found: Departure | None, *, said: Sequence[Text] = (), below: str = "",
    language: str = "en",
) -> str:  # fmt: skip
    """One file without a network. said: its first sentences, in place of the departure's. below: HTML for its end.
    language: "en" or "zh"."""
    names = list(dict.fromkeys(name for step in steps for name in step.parameters))
    spread = {name: _spread([step.parameters[name] for step in steps if name in step.parameters]) for name in names}
    first = found.parameter if found is not None else ""
    drawn = sorted(names, key=lambda name: (name != first, -spread[name]))[:_DRAWN]
    heads = "".join(f"<th>{html.escape(title.of(language))}</th>" for title, _, _ in _CURVES)
    rows = "".join(_row(steps, name, found if name == first else None) for name in drawn)
    left = len(names) - len(drawn)
    others = Text(f"{left} more parameters are only in the file.", f"其余 {left} 个参数仅在文件中。")
    more = others if left > 0 else None
    sentences = said or [departure_text(steps, found)]
    first_lines = "".join(f"<p class=first>{html.escape(text.of(language))}</p>" for text in sentences)
    scales = [step.scale for step in steps]
    scale = Text(
        f"Loss scale: {figure(min(scales, default=1.0))} to {figure(max(scales, default=1.0))}.",
        f"损失缩放：{figure(min(scales, default=1.0))} 至 {figure(max(scales, default=1.0))}。",
    )
    return (
        f'<!doctype html><html lang="{language}"><meta charset="utf-8"><title>precision_debug training</title>'
        f"<style>{_STYLE}</style>{first_lines}"
        f"<p>{html.escape(scale.of(language))}</p><table><tr><th></th>{heads}</tr>{rows}</table>"
        f"<p>{html.escape(more.of(language)) if more is not None else ''}</p>{below}</html>\n"
    )


def _row(steps: Sequence[StepNumbers], name: str, found: Departure | None) -> str:
    cells = []
    for _, number, logarithmic in _CURVES:
        values = [number(step.parameters[name]) if name in step.parameters else None for step in steps]
        mark = next((place for place, step in enumerate(steps) if found is not None and step.step == found.step), None)
        cells.append(f"<td>{_curve(values, logarithmic, mark)}</td>")
    return f"<tr><td><code>{html.escape(name)}</code></td>{''.join(cells)}</tr>"


def _curve(values: Sequence[float | None], logarithmic: bool, mark: int | None) -> str:
    heights = [_height(value, logarithmic) for value in values]
    known = [one for one in heights if one is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    points = [
        (_WIDTH * place / max(1, len(values) - 1), _HEIGHT - 4 - (_HEIGHT - 8) * (one - low) / ((high - low) or 1.0))
        for place, one in enumerate(heights) if one is not None
    ]  # fmt: skip
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dot = ""
    if mark is not None:
        x = _WIDTH * mark / max(1, len(values) - 1)
        y = next((y for at, y in points if abs(at - x) < 0.05), 4.0)
        dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    numbers = [value for value in values if value is not None and math.isfinite(value)]
    span = f"{figure(min(numbers))} – {figure(max(numbers))}" if numbers else ""
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img"><title>{html.escape(span)}</title>'
        f'<polyline points="{drawn}"/>{dot}</svg><br><small>{html.escape(span)}</small>'
    )


def _height(value: float | None, logarithmic: bool) -> float | None:
    if value is None or not math.isfinite(value) or (logarithmic and value <= 0):
        return None
    return math.log10(value) if logarithmic else value


def _spread(numbers: Sequence[ParameterNumbers]) -> float:
    logs = [math.log10(one.norm) for one in numbers if one.norm > 0]
    broken = any(one.broken for one in numbers)
    return math.inf if broken else max(logs, default=0.0) - min(logs, default=0.0)
