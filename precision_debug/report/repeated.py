"""What several builds of the target say: how far they are apart, beside the error, and where that begins."""

from __future__ import annotations

import math

from ..numbers.repeats import Repeats
from ..reasons import Text, same
from ..records import Row
from .figures import count, duration, figure
from .model import Report
from .section import Cell, Section, linked, pair, plain

__all__ = ["as_large", "repeat_section", "repeat_sentences"]

_AS_LARGE = 0.5
"""Two builds that are apart by this part of the error are as far from each other as from the baseline: of two errors
of one size that have nothing in common the distance is 1.4 times that size."""
_SHOWN = 8


def as_large(row: Row) -> bool:
    """Whether the builds differ as much from each other in this tensor as they do from the baseline."""
    apart = row.repeated
    return apart is not None and apart.times > 0 and float(apart.rel_l2) >= _AS_LARGE * (row.relative_l2 or 0.0)


def repeat_sentences(report: Report) -> tuple[Text, ...]:
    """What the verdict has to say of it; nothing where the target was built once."""
    repeats = report.repeats
    if repeats is None:
        return ()
    builds = count(repeats.count)
    apart = [row for row in report.rows if row.repeated is not None and row.repeated.times]
    if not apart:
        return (
            Text(
                f"{builds} builds of the target give the same tensors, bit for bit.",
                f"目标的 {builds} 次构建得到的张量逐位相同。",
            ),
        )
    outputs = [row for row in apart if row.is_output]
    worst = max(outputs or apart, key=_distance)
    begins = _begins(report, repeats)
    between, error = figure(_distance(worst)), figure(worst.relative_l2) or "0"
    if report.outputs and not outputs:
        return (
            Text(
                f"{builds} builds of the target give the same outputs; inside, {count(len(apart))} tensors differ, by"
                f" up to {between} (Rel L2) at `{worst.name}`{begins.en}.",
                f"目标的 {builds} 次构建输出相同；内部有 {count(len(apart))} 个张量不同，`{worst.name}` 处最多相差"
                f" {between}（相对 L2）{begins.zh}。",
            ),
        )
    if as_large(worst):
        return (
            Text(
                f"{builds} builds of the target are as far from each other as from the baseline: at `{worst.name}` by"
                f" {between} (Rel L2), and the error is {error}, so that much of it is chance{begins.en}.",
                f"目标的 {builds} 次构建彼此之间的差异与其相对基线的误差一样大：`{worst.name}` 处相差 {between}"
                f"（相对 L2），误差为 {error}，因此其中很大一部分是偶然的{begins.zh}。",
            ),
        )
    return (
        Text(
            f"{builds} builds of the target are apart by up to {between} (Rel L2) at `{worst.name}`, where the error is"
            f" {error}{begins.en}.",
            f"目标的 {builds} 次构建在 `{worst.name}` 处最多相差 {between}（相对 L2），该处误差为 {error}{begins.zh}。",
        ),
    )


def _begins(report: Report, repeats: Repeats) -> Text:
    by_name = {row.name: row for row in report.rows}
    first = [by_name[name] for name in repeats.first if name in by_name]
    if not first:
        return same("")
    named = f"{first[0].op_type} `{first[0].name}`"
    return Text(f"; it begins at {named}", f"；始于 {named}")


def repeat_section(report: Report) -> Section:
    """Each build's error by output, where the randomness begins, and where it is largest; no lines without repeats."""
    repeats, title = report.repeats, Text("Builds of the target", "目标的多次构建")
    if repeats is None:
        return Section(key="repeats", title=title)
    rows = [row for row in report.rows if row.repeated is not None]
    apart = [row for row in rows if row.repeated is not None and row.repeated.times]
    lines: list[tuple[Cell, ...]] = [
        pair(Text("builds", "构建次数"), count(repeats.count)),
        pair(Text("seconds each", "每次耗时"), ", ".join(duration(float(one)) for one in repeats.seconds)),
        pair(Text("tensors that differ", "有差异的张量"), f"{count(len(apart))} / {count(len(rows))}"),
    ]
    if repeats.sample is not None:
        lines.append(pair(Text("sample", "样本"), str(repeats.sample)))
    for name, errors in repeats.errors.items():
        label = Text(f"Rel L2 of each, {name}", f"各次相对 L2 误差，{name}")
        lines.append(pair(label, ", ".join(figure(float(error)) for error in errors)))
    by_name = {row.name: row for row in apart}
    label = Text("it begins at", "差异始于")
    for name in repeats.first:
        if name in by_name:
            lines.append((plain(label), linked(by_name[name]), plain(_apart(by_name[name]))))
            label = same("")
    label = Text("it is largest at", "差异最大处")
    for row in sorted(apart, key=_distance, reverse=True)[:_SHOWN]:
        lines.append((plain(label), linked(row), plain(_apart(row))))
        label = same("")
    if repeats.tactics_changed:
        more = f" ({count(repeats.tactics_changed)})" if repeats.tactics_changed > len(repeats.tactics) else ""
        lines.append(pair(Text("layers with other tactics", "所用 tactic 不同的层"), ", ".join(repeats.tactics) + more))
    if repeats.not_in_all:
        lines.append(pair(Text("tensors not in every build", "并非每次都有的张量"), ", ".join(repeats.not_in_all)))
    return Section(key="repeats", title=title, lines=tuple(lines))


def _apart(row: Row) -> Text:
    between, error = figure(_distance(row)), figure(row.relative_l2) or "0"
    return Text(f"{between} apart, error {error}", f"相差 {between}，误差 {error}")


def _distance(row: Row) -> float:
    apart = 0.0 if row.repeated is None else float(row.repeated.rel_l2)
    return math.inf if math.isnan(apart) else apart
