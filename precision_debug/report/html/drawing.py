"""The error curve as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...records import Row
from ..curve import Curve, Point
from ..figures import figure
from .text import escaped

__all__ = ["drawing"]

_Scale = Callable[[float], float]

_WIDTH, _HEIGHT = 1200, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 18, 34


def drawing(curve: Curve, first: Row | None) -> str:
    """Relative L2, introduced and max absolute error over the order, red where out of tolerance; else a remark."""
    points = curve.points
    if not points:
        return '<p><span class="en">No tensor was compared.</span><span class="zh">没有张量被比较。</span></p>'
    start, end = points[0].index, max(points[-1].index, points[0].index + 1)
    low, decades = math.log10(curve.low), math.log10(curve.high / curve.low)

    def x(index: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (index - start) / (end - start)

    def y(error: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (math.log10(error) - low) / decades)

    radius = 3.5 if sum(point.failed for point in points) < 200 else 2
    parts = [
        *_grid(curve, x, y, start, end),
        f'<path class="max" d="{_path(points, lambda p: p.max_abs, x, y)}"/>',
        f'<path class="own" d="{_path(points, lambda p: p.introduced, x, y)}"/>',
        f'<path class="l2" d="{_path(points, lambda p: p.relative_l2, x, y)}"/>',
        *(_mark(point, curve.high, radius, x, y) for point in points if point.failed or point.broken),
    ]
    if first is not None and start <= first.index <= end:
        at = x(first.index)
        parts.append(f'<line class="first" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
        side = "start" if at < _WIDTH / 2 else "end"
        name = first.name if len(first.name) <= 60 else f"…{first.name[-59:]}"
        shift = 6 if side == "start" else -6
        parts.append(
            f'<text class="first" x="{at + shift:.1f}" y="{_TOP + 12}" text-anchor="{side}">{escaped(name)}</text>'
        )
    return (
        f'<svg id="curve" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="error curve">{"".join(parts)}</svg>'
    )


def _grid(curve: Curve, x: _Scale, y: _Scale, start: int, end: int) -> list[str]:
    parts = []
    powers = range(round(math.log10(curve.low)), round(math.log10(curve.high)) + 1)
    step = -(-len(powers) // 9)
    for power in powers[::step]:
        at = y(10.0**power)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">1e{power}</text>')
    raw = max(1.0, (end - start) / 8)
    scale = 10 ** math.floor(math.log10(raw))
    tick = int(next(scale * factor for factor in (1, 2, 5, 10) if scale * factor >= raw))
    for index in range(-(-start // tick) * tick, end + 1, tick):
        parts.append(f'<text x="{x(index):.1f}" y="{_HEIGHT - 12}" text-anchor="middle">{index}</text>')
    return parts


def _path(points: tuple[Point, ...], value: Callable[[Point], float | None], x: _Scale, y: _Scale) -> str:
    """A line with gaps where there is no number; a lonely point is a short dash."""
    steps, pen = [], "M"
    for point in points:
        error = value(point)
        if error is None:
            pen = "M"
            continue
        steps.append(f"{pen}{x(point.index):.1f} {y(error):.1f}" + ("h1" if pen == "M" else ""))
        pen = "L"
    return "".join(steps)


def _mark(point: Point, high: float, radius: float, x: _Scale, y: _Scale) -> str:
    error = point.relative_l2 if point.relative_l2 is not None else point.max_abs
    errors = f"Rel L2 {figure(point.relative_l2)}, Max Atol {figure(point.max_abs)}"
    title = f"<title>{escaped(f'{point.index}  {point.op_type}  {point.name}: {errors}')}</title>"
    if point.broken or error is None:
        at, top = x(point.index), y(high)
        cross = f"M{at - 5:.1f} {top - 5:.1f}l10 10m0 -10l-10 10"
        return f'<path class="broken" data-row="{point.index}" d="{cross}">{title}</path>'
    place = f'cx="{x(point.index):.1f}" cy="{y(error):.1f}" r="{radius}"'
    return f'<circle class="fail" data-row="{point.index}" {place}>{title}</circle>'
