"""The comparison by torch's own operators, in float64 and by pieces: where the kernels do not run."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...records import Tolerance
from ..metrics import DECLARED, FURTHER, Declared, evaluated
from ..totals import Pairs, Side, Totals

__all__ = ["SIDE", "by_torch", "further_by_torch", "named", "side_numbers"]

_PIECE = 1 << 24


def _evaluated(
    b: Any, t: Any, d: Any, m: Any, finite: Any, metrics: tuple[Declared, ...] = DECLARED
) -> dict[str, float]:
    """The declared metrics of float64 tensors that are 0 where not both are finite."""
    totals: dict[str, float] = {}
    for metric in metrics:
        value = torch.where(finite, evaluated(metric, torch, b, t, d, m), 0)
        totals[metric.name] = (value.count_nonzero() if metric.share else value.sum()).item()
    return totals


def further_by_torch(base: Any, target: Any) -> dict[str, float]:
    """What no kernel holds (metrics.FURTHER), of two tensors of one size, where they lie."""
    totals = dict.fromkeys((metric.name for metric in FURTHER), 0.0)
    flat = base.contiguous().view(-1), target.contiguous().view(-1)
    for first in range(0, flat[0].numel(), _PIECE):
        b, t = (one[first : first + _PIECE].double() for one in flat)
        finite = torch.isfinite(b) & torch.isfinite(t)
        b, t = torch.where(finite, b, 0.0), torch.where(finite, t, 0.0)
        for name, value in _evaluated(b, t, (t - b).abs(), b.abs(), finite, FURTHER).items():
            totals[name] += value
    return totals


def by_torch(base: Any, target: Any, tolerance: Tolerance) -> Totals:
    """The totals of two flat tensors."""
    totals = Totals()
    for first in range(0, base.numel(), _PIECE):
        piece = slice(first, first + _PIECE)
        totals.add(_piece(base[piece].double(), target[piece].double(), first, tolerance))
    return totals


def _piece(b: Any, t: Any, first: int, tolerance: Tolerance) -> Totals:
    finite = torch.isfinite(b) & torch.isfinite(t)
    diff = (t - b).abs()
    same_infinity = torch.isinf(b) & (b == t)
    diff = torch.where(same_infinity, 0.0, diff)
    magnitude = b.abs()
    part = tolerance.rtol * magnitude
    either = tolerance.rule == "either"
    passes = (diff <= tolerance.atol) | (diff <= part) if either else diff <= tolerance.atol + part
    special = ~(diff == 0)
    if tolerance.equal_nan:
        special &= ~(torch.isnan(b) & torch.isnan(t))
    mismatched = torch.where(finite, ~passes, special)
    d, m = torch.where(finite, diff, 0.0), torch.where(finite, magnitude, 0.0)
    relative = torch.where(finite, d / (m + 1e-7), 0.0)
    fb, ft = torch.where(finite, b, 0.0), torch.where(finite, t, 0.0)
    part = tolerance.rtol * m
    if either:
        need_a, over = torch.where(d > part, d, 0.0), d
    else:
        need_a, over = torch.where(d > part, d - part, 0.0), d - tolerance.atol
    need_r = torch.where(d > tolerance.atol, over / m, 0.0)
    infinite = ~finite & torch.isinf(diff)
    outside = torch.where(finite, d, -1.0), torch.where(finite, relative, -1.0)
    numbers = torch.stack(
        [
            *side_numbers(b), *side_numbers(t),
            *(
                value.double()
                for value in (
                    finite.sum(), mismatched.sum(), (special & ~finite).sum(), mismatched.to(torch.int8).argmax(),
                    outside[0].max(), outside[0].argmax(), outside[1].max(), outside[1].argmax(), d.sum(),
                    relative.sum(), d.square().sum(), fb.square().sum(), ft.square().sum(), (fb * ft).sum(),
                    need_a.max(), need_r.max(), infinite.any(),
                    infinite.to(torch.int8).argmax(), (magnitude > 65504).sum(),
                    ((magnitude < 2.0**-14) & (magnitude > 0)).sum(),
                )
            ),
        ]
    ).tolist()  # fmt: skip
    base_side, target_side, rest = Side(**named(numbers[:6])), Side(**named(numbers[6:12])), numbers[12:]
    pairs = Pairs(
        finite=int(rest[0]), mismatched=int(rest[1]), special=int(rest[2]),
        first_mismatch=first + int(rest[3]) if rest[1] else -1, sum_abs=rest[8], sum_rel=rest[9], squares=rest[10],
        base_squares=rest[11], target_squares=rest[12], dot=rest[13], required_atol=rest[14], required_rtol=rest[15],
        declared=_evaluated(fb, ft, d, m, finite),
    )  # fmt: skip
    if rest[0]:
        pairs.max_abs, pairs.max_abs_at = rest[4], first + int(rest[5])
        pairs.max_rel, pairs.max_rel_at = rest[6], first + int(rest[7])
    if rest[16]:
        pairs.max_abs = pairs.max_rel = math.inf
        pairs.max_abs_at = pairs.max_rel_at = first + int(rest[17])
    return Totals(
        base=base_side, target=target_side, pairs=pairs, fp16_overflow=int(rest[18]), fp16_subnormal=int(rest[19]),
        identical=False,
    )  # fmt: skip


def side_numbers(values: Any) -> list[Any]:
    """The numbers of a Side, as tensors; see named."""
    finite = torch.isfinite(values)
    kept = torch.where(finite, values, 0.0)
    return [
        torch.isnan(values).sum().double(),
        torch.isinf(values).sum().double(),
        torch.where(finite, values, math.inf).min(),
        torch.where(finite, values, -math.inf).max(),
        kept.sum(),
        kept.square().sum(),
    ]


SIDE = ("nan", "inf", "min", "max", "sum", "squares")


def named(numbers: list[float]) -> dict[str, Any]:
    """What ``Side`` takes."""
    found: dict[str, Any] = dict(zip(SIDE, numbers, strict=True))
    return {**found, "nan": int(found["nan"]), "inf": int(found["inf"])}
