"""The worst slices of each output, each beside its own size: what its one error over everything does not show."""

from __future__ import annotations

from collections.abc import Iterator

from ..reasons import Text, same
from ..records import Row, Slices
from .figures import count, figure, percent
from .model import Report
from .section import Cell, Section, linked, plain

__all__ = ["slice_section"]

_WORTH_A_LINE = 0.1
"""Part of a slice's own spread from which on its error is shown, although it still tells something."""

_MOST = 64
"""Lines, at most; the JSON has those of every output."""


def slice_section(report: Report) -> Section:
    """Return what is lost of each output, and its worst slices besides; no line where every slice is told well."""
    head = (
        Text("Output", "输出"), Text("Axis", "轴"), Text("Slices", "切片"), Text("State", "状态"),
        Text("Error of its own size", "误差占自身大小"), Text("RMS of the error", "误差均方根"),
        Text("RMS (base)", "均方根（基线）"), Text("Spread (base)", "离散程度（基线）"),
        Text("Largest (base)", "最大值（基线）"), Text("Largest of the whole (base)", "整个输出的最大值（基线）"),
    )  # fmt: skip
    lines = [line for row in report.outputs for line in _of_output(row)]
    title = Text("Worst slices of the outputs", "各输出中最差的切片")
    return Section(key="slices", title=title, head=head, lines=tuple(lines[:_MOST]))


def _of_output(row: Row) -> Iterator[tuple[Cell, ...]]:
    """Those that are lost, and the worst of the others as far as they are worth a line."""
    numbers = row.comparison
    for one in numbers.slices if numbers is not None else ():
        told_of = numbers is not None and not one.lost and any(
            (gone.axis, gone.first <= one.first, one.last <= gone.last) == (one.axis, True, True)
            for gone in numbers.lost
        )  # fmt: skip
        far = bool(one.spread) and float(one.error) >= _WORTH_A_LINE * float(one.spread)
        if one.lost or (far and not told_of):
            yield _line(row, one)


def _line(row: Row, one: Slices) -> tuple[Cell, ...]:
    ends = str(one.first) if one.first == one.last else f"{one.first} - {one.last}"
    state = Text("lost", "已丢失") if one.lost else Text("told", "尚可分辨")
    share = percent(float(one.error) / float(one.size)) if one.size else "inf"
    figures = (one.error, one.size, one.spread, one.peak, one.largest)
    return (
        linked(row), Cell(text=same(str(one.axis)), right=True),
        plain(Text(f"{ends} of {count(one.of)}", f"{count(one.of)} 个中的 {ends}")),
        Cell(text=state, tone="bad" if one.lost else "muted"), Cell(text=same(share), right=True),
        *(Cell(text=same(figure(float(value))), right=True) for value in figures),
    )  # fmt: skip
