"""The comparison by torch's own operators, in float64 and by pieces: where the kernels do not run."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...numbers.metrics import DECLARED, FURTHER, Declared, evaluate_metric
from ...numbers.totals import PairTotals, SideTotals, Totals
from ...records import Tolerance

__all__ = ["PIECE", "SIDE", "compute_further_metrics", "measure_by_torch", "measure_side", "name_side_numbers"]

PIECE = 1 << 24
"""Elements that are widened to float64 at once: 128 MiB of a device's memory for each such copy."""


def _evaluate_declared(
    b: Any, t: Any, d: Any, m: Any, finite: Any, metrics: tuple[Declared, ...] = DECLARED
) -> dict[str, float]:
    """Return the declared metrics of float64 tensors that are 0 where not both are finite."""
    totals: dict[str, float] = {}
    for metric in metrics:
        value = torch.where(finite, evaluate_metric(metric, torch, b, t, d, m), 0)
        totals[metric.name] = (value.count_nonzero() if metric.share else value.sum()).item()
    return totals


def compute_further_metrics(base: Any, target: Any) -> dict[str, float]:
    """Return what no kernel holds (metrics.FURTHER), of two tensors of one size, where they lie."""
    totals = dict.fromkeys((metric.name for metric in FURTHER), 0.0)
    flat = base.contiguous().view(-1), target.contiguous().view(-1)
    for first in range(0, flat[0].numel(), PIECE):
        b, t = (one[first : first + PIECE].double() for one in flat)
        finite = torch.isfinite(b) & torch.isfinite(t)
        b, t = torch.where(finite, b, 0.0), torch.where(finite, t, 0.0)
        for name, value in _evaluate_declared(b, t, (t - b).abs(), b.abs(), finite, FURTHER).items():
            totals[name] += value
    return totals


def measure_by_torch(base: Any, target: Any, tolerance: Tolerance) -> Totals:
    """Return the totals of two flat tensors."""
    totals = Totals()
    for first in range(0, base.numel(), PIECE):
        piece = slice(first, first + PIECE)
        totals.add(_measure_piece(base[piece].double(), target[piece].double(), first, tolerance))
    return totals


def _measure_piece(b: Any, t: Any, first: int, tolerance: Tolerance) -> Totals:
    of_pairs, declared = _measure_pair(b, t, tolerance)
    numbers = torch.stack([*measure_side(b), *measure_side(t), *(one.double() for one in of_pairs.values())]).tolist()
    base_side, target_side = (
        SideTotals(**name_side_numbers(numbers[at : at + len(SIDE)])) for at in (0, len(SIDE))
    )
    got = dict(zip(of_pairs, numbers[2 * len(SIDE) :], strict=True))
    sums = {name: got[name] for name in ("sum_abs", "sum_rel", "squares", "base_squares", "target_squares", "dot",
                                         "required_atol", "required_rtol")}  # fmt: skip
    pairs = PairTotals(
        finite=int(got["finite"]), mismatched=int(got["mismatched"]), special=int(got["special"]),
        first_mismatch=first + int(got["first_mismatch"]) if got["mismatched"] else -1, **sums, declared=declared,
    )  # fmt: skip
    if got["finite"]:
        pairs.max_abs, pairs.max_abs_at = got["max_abs"], first + int(got["max_abs_at"])
        pairs.max_rel, pairs.max_rel_at = got["max_rel"], first + int(got["max_rel_at"])
    if got["infinite"]:
        pairs.max_abs = pairs.max_rel = math.inf
        pairs.max_abs_at = pairs.max_rel_at = first + int(got["infinite_at"])
    return Totals(
        base=base_side, target=target_side, pairs=pairs, fp16_overflow=int(got["fp16_overflow"]),
        fp16_subnormal=int(got["fp16_subnormal"]), identical=False,
    )  # fmt: skip


def _measure_pair(b: Any, t: Any, tolerance: Tolerance) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the numbers of a Pairs as tensors of one element, places within the piece, and the declared metrics."""
    finite = torch.isfinite(b) & torch.isfinite(t)
    diff = torch.where(torch.isinf(b) & (b == t), 0.0, (t - b).abs())
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
    need_a = torch.where(d > part, d if either else d - part, 0.0)
    need_r = torch.where(d > tolerance.atol, (d if either else d - tolerance.atol) / m, 0.0)
    infinite = ~finite & torch.isinf(diff)
    largest, largest_rel = torch.where(finite, d, -1.0), torch.where(finite, relative, -1.0)
    return {
        "finite": finite.sum(), "mismatched": mismatched.sum(), "special": (special & ~finite).sum(),
        "first_mismatch": mismatched.to(torch.int8).argmax(),
        "max_abs": largest.max(), "max_abs_at": largest.argmax(),
        "max_rel": largest_rel.max(), "max_rel_at": largest_rel.argmax(),
        "sum_abs": d.sum(), "sum_rel": relative.sum(), "squares": d.square().sum(), "base_squares": fb.square().sum(),
        "target_squares": ft.square().sum(), "dot": (fb * ft).sum(),
        "required_atol": need_a.max(), "required_rtol": need_r.max(),
        "infinite": infinite.any(), "infinite_at": infinite.to(torch.int8).argmax(),
        "fp16_overflow": (magnitude > 65504).sum(),
        "fp16_subnormal": ((magnitude < 2.0**-14) & (magnitude > 0)).sum(),
    }, _evaluate_declared(fb, ft, d, m, finite)  # fmt: skip


def measure_side(values: Any) -> list[Any]:
    """Return the numbers of a Side, as tensors; see named."""
    finite = torch.isfinite(values)
    kept = torch.where(finite, values, 0.0)
    return [
        torch.isnan(values).sum().double(),
        torch.isinf(values).sum().double(),
        (values == -math.inf).sum().double(),
        torch.where(finite, values, math.inf).min(),
        torch.where(finite, values, -math.inf).max(),
        kept.sum(),
        kept.square().sum(),
    ]


SIDE = ("nan", "inf", "negative_inf", "min", "max", "sum", "squares")


def name_side_numbers(numbers: list[float]) -> dict[str, Any]:
    """Return what ``Side`` takes."""
    found: dict[str, Any] = dict(zip(SIDE, numbers, strict=True))
    return {**found, **{name: int(found[name]) for name in SIDE[:3]}}
