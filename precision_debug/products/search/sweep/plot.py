"""Error against latency as an SVG picture, with the modes that no other one beats joined by a line."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from ....safety.untrusted import make_visible
from .result import Mode, Sweep, find_pareto_front

__all__ = ["draw_svg"]

_WIDTH, _HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 30, 40, 64
_APART = 34
"""Of the height, for modes that gave NaN or Inf: above the last gridline, as no number is as bad."""


def draw_svg(sweep: Sweep) -> str:
    """Draw the error of each mode over its time, as SVG.

    "" where no mode has both an error and a time. An error of 0 lies on the lower edge, an infinite one above the last
    gridline."""
    modes = [mode for mode in sweep.modes if mode.speed and mode.rel_l2 is not None]
    if not modes:
        return ""
    errors = [mode.rel_l2 for mode in modes if mode.rel_l2 and math.isfinite(mode.rel_l2)]
    top = _TOP + _APART * any(map(_is_outlier, modes))
    low = math.floor(math.log10(min(errors))) if errors else -3
    high = max(math.ceil(math.log10(max(errors))) if errors else 0, low + 1)
    times = [mode.speed.median * 1e3 for mode in modes if mode.speed is not None]
    first, last = min(times) / 1.25, max(times) * 1.25

    def x(mode: Mode) -> float:
        assert mode.speed is not None
        part = math.log(mode.speed.median * 1e3 / first) / math.log(last / first)
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    def y(mode: Mode) -> float:
        edge = _HEIGHT - _BOTTOM
        if not mode.rel_l2 or _is_outlier(mode):
            return edge if not mode.rel_l2 else _TOP + 8
        return top + (high - math.log10(mode.rel_l2)) / (high - low) * (edge - 14 - top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="system-ui, sans-serif"'
        ' font-size="13" role="img"><title>Error against latency</title>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_draw_grid(low, high, first, last, top),
    ]
    best = find_pareto_front(modes)
    points = " ".join(f"{x(mode):.1f},{y(mode):.1f}" for mode in best)
    if len(best) > 1:
        parts.append(f'<polyline points="{points}" fill="none" stroke="#0a7d5a" stroke-width="2" opacity="0.7"/>')
    names = {mode.name for mode in best}
    for mode in modes:
        colour = "#d92d20" if _is_outlier(mode) else "#0a7d5a" if mode.name in names else "#8a93a5"
        parts.append(f'<circle cx="{x(mode):.1f}" cy="{y(mode):.1f}" r="6" fill="{colour}"/>')
    parts += [
        f'<text x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}"'
        f' fill="#1c2430">{html.escape(make_visible(name))}</text>'
        for px, py, anchor, name in _place_labels([(x(mode), y(mode), mode.name) for mode in modes])
    ]
    return "".join(parts) + "</svg>\n"


def _is_outlier(mode: Mode) -> bool:
    return mode.rel_l2 is not None and not math.isfinite(mode.rel_l2)


def _draw_grid(low: int, high: int, first: float, last: float, top: int) -> list[str]:
    right, edge = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for power in range(low, high + 1):
        at = top + (high - power) / (high - low) * (edge - 14 - top)
        parts.append(f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}" stroke="#e3e7ee"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" fill="#5b6576">1e{power}</text>')
    if top > _TOP:
        parts.append(f'<text x="{_LEFT - 8}" y="{_TOP + 12}" text-anchor="end" fill="#d92d20">NaN, Inf</text>')
    for place in range(5):
        value = first * (last / first) ** (place / 4)
        at = _LEFT + place / 4 * (right - _LEFT)
        parts.append(f'<line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{edge}" stroke="#e3e7ee"/>')
        said = f"{value:.3g}" if value < 1000 else f"{value:.0f}"  # an exponent has no room at the right edge
        parts.append(f'<text x="{at:.1f}" y="{edge + 20}" text-anchor="middle" fill="#5b6576">{said}</text>')
    parts.append(f'<line x1="{_LEFT}" y1="{edge}" x2="{right}" y2="{edge}" stroke="#8a93a5"/>')
    parts.append(f'<text x="{_LEFT - 8}" y="{edge + 4}" text-anchor="end" fill="#5b6576">0</text>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 18}" text-anchor="middle" fill="#1c2430">median latency, ms (faster: left)'
        " · 中位延迟，ms（左侧更快）</text>"
    )
    parts.append(
        f'<text x="{_LEFT}" y="{_TOP - 16}" fill="#1c2430">relative L2 error of the worst output (lower is better)'
        " · 最差输出的相对 L2 误差</text>"
    )
    return parts


def _place_labels(points: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str, str]]:
    """Beside each point, on the side with room, and apart from those that were put before."""
    put: list[tuple[float, float, str, str]] = []
    for x, y, name in sorted(points):
        anchor, at = ("end", x - 10) if x > _WIDTH * 0.7 else ("start", x + 10)
        down = y - 6
        while any(abs(down - other[1]) < 15 and abs(at - other[0]) < 130 for other in put):
            down -= 15
        put.append((at, down, anchor, name))
    return put
