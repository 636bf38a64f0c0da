"""Pictures of tensors in the terminal: histograms of values and errors, and the error against the magnitude."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from ...cli.parser import choose_language
from ...numbers.told import Bins, Density, Portrait
from ...reasons import Text
from ...report.model import Report
from ...safety.untrusted import make_visible

__all__ = ["plot_lines", "show_plots"]

_BAR = 24
_LINES = 12
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SHADES = " ░▒▓█"

_VALUES = Text("values: baseline, target", "数值分布：基线，目标")
_ERRORS = Text("absolute errors that are not 0", "非零绝对误差分布")
_AGAINST = Text("error (upwards) against magnitude of the baseline", "误差（纵轴）与基线数值大小（横轴）")
_MINE = Text("what the operator itself added", "算子自身引入的误差")
_NOTHING = Text("no tensor was drawn: nothing is beyond bounds", "没有可绘制的张量：没有张量超差")


def show_plots(report: Report, count: int, *, language: str = "") -> None:
    """Print the pictures of the culprits and of the worst tensors, at most ``count`` of them."""
    from rich.console import Console
    from rich.text import Text as Styled

    console = Console(highlight=False, soft_wrap=True)
    for line, style in plot_lines(report, count, language=choose_language(language)):
        console.print(Styled(make_visible(line), style=style), soft_wrap=True)


def plot_lines(report: Report, count: int, *, language: str = "en") -> Iterator[tuple[str, str]]:
    """Yield lines and their styles, in rich's words. Culprits come first, then the largest errors."""
    errors = {row.name: row.relative_l2 or 0.0 for row in report.rows}
    drawn = sorted(report.portraits, key=lambda one: (not one.introduced, -errors.get(one.name, 0.0)))[:count]
    if not drawn:
        yield _NOTHING.of(language), "dim"
    for portrait in drawn:
        yield "", ""
        mine = f" ({_MINE.of(language)})" if portrait.introduced else ""
        yield f"{portrait.name}{mine}, n = {portrait.sampled}", "bold"
        yield from _plot_portrait(portrait, language)


def _plot_portrait(portrait: Portrait, language: str) -> Iterator[tuple[str, str]]:
    if portrait.base is not None and portrait.target is not None:
        yield f"  {_VALUES.of(language)}", "dim"
        yield from _plot_histogram((portrait.base, portrait.target), logarithmic=False)
    if portrait.errors is not None:
        yield f"  {_ERRORS.of(language)}", "dim"
        yield from _plot_histogram((portrait.errors,), logarithmic=True)
    if portrait.against is not None:
        yield f"  {_AGAINST.of(language)}", "dim"
        yield from _plot_density(portrait.against)


def _plot_histogram(series: Sequence[Bins], *, logarithmic: bool) -> Iterator[tuple[str, str]]:
    """Yield a line a few bins, with a bar and a number for each of the series; all have the same edges."""
    edges = series[0].edges
    step = -(-len(series[0].counts) // _LINES)
    grouped = [[sum(one.counts[start : start + step]) for start in range(0, len(one.counts), step)] for one in series]
    most = max(1, *itertools.chain(*grouped))
    wide = max(len(str(most)), 1)
    for line, counts in enumerate(zip(*grouped, strict=True)):
        low, high = edges[line * step], edges[min((line + 1) * step, len(edges) - 1)]
        span = f"{10**low:.1e} … {10**high:.1e}" if logarithmic else f"{low:>10.4g} … {high:<10.4g}"
        bars = "  ".join(f"{_draw_bar(count / most)} {count:>{wide}}" for count in counts)
        yield f"  {span:>23s}  {bars}".rstrip(), "red" if logarithmic else "cyan"


def _draw_bar(share: float) -> str:
    """Return a bar of at most ``_BAR`` places, in eighths of one; what is there is never nothing."""
    eighths = max(round(share * _BAR * 8), 1 if share > 0 else 0)
    full, rest = divmod(eighths, 8)
    return f"{'█' * full}{_EIGHTHS[rest] if rest else ''}".ljust(_BAR)


def _plot_density(density: Density) -> Iterator[tuple[str, str]]:
    """Yield the largest errors first; a darker place has more elements, by decades."""
    most = max(1, *itertools.chain(*density.counts))
    for place in range(len(density.counts) - 1, -1, -1):
        cells = (math.log1p(count) / math.log1p(most) for count in density.counts[place])
        shades = "".join(_SHADES[min(4, math.ceil(share * 4))] for share in cells)
        edge = f"{10 ** density.errors[place + 1]:.0e}" if place % 5 == 4 or place == len(density.counts) - 1 else ""
        yield f"  {edge:>8s} │{shades}│", "red"
    low, high = (f"{10**edge:.0e}" for edge in (density.magnitudes[0], density.magnitudes[-1]))
    yield f"{'':11s}{low}{high:>{max(1, len(density.counts[0]) + 1 - len(low))}}", "dim"
