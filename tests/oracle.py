"""A slow second opinion on ``numbers.compare``: one element at a time, exact rational sums, nothing shared with it."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction
from typing import Any

import numpy as np

from precision_debug.records import Tolerance

REL_EPSILON = 1e-7


def elements(array: np.ndarray) -> list[Any]:
    """Python numbers in C order: int for integers and bool, float for real types, complex for complex ones."""
    if array.dtype.kind in "biufc" and array.dtype.type.__module__ == "numpy":
        return [int(x) if isinstance(x, bool) else x for x in array.ravel(order="C").tolist()]
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return [float(x) for x in array.astype(np.float64).ravel(order="C").tolist()]


def is_nan(x: Any) -> bool:
    return math.isnan(x.real) or math.isnan(x.imag)


def is_inf(x: Any) -> bool:
    """Infinite, or a complex number whose magnitude float64 does not hold."""
    return not is_nan(x) and math.isinf(value(x))


def value(x: Any) -> float:
    """What stands for an element by itself: float64, the magnitude of a complex one."""
    return magnitude(x) if isinstance(x, complex) else float(x)


def magnitude(x: complex) -> float:
    try:
        return abs(x)
    except OverflowError:
        return math.inf


def difference(b: Any, t: Any) -> Any:
    """|t - b|: an int where both are; otherwise rounded once to float64."""
    if isinstance(b, int) and isinstance(t, int):
        return abs(t - b)
    if isinstance(b, complex) or isinstance(t, complex):
        return magnitude(complex(t) - complex(b))
    try:
        return float(abs(Fraction(t) - Fraction(b)))
    except OverflowError:
        return math.inf


def passes(b: Any, t: Any, tolerance: Tolerance) -> bool:
    if is_nan(b) or is_nan(t):
        return tolerance.equal_nan and is_nan(b) and is_nan(t)
    if is_inf(b) or is_inf(t):
        return b == t
    d, size = difference(b, t), abs(value(b))
    if tolerance.rule == "either":
        return d <= tolerance.atol or d <= tolerance.rtol * size
    return d <= tolerance.atol + tolerance.rtol * size


def side(array: np.ndarray) -> dict[str, Any]:
    """Expected TensorStats, without dtype; ``scale`` is the mean magnitude, which a rounded mean is judged by."""
    xs = elements(array)
    finite = [value(x) for x in xs if not is_nan(x) and not is_inf(x)]
    stats: dict[str, Any] = {
        "shape": array.shape,
        "elements": len(xs),
        "nan": sum(is_nan(x) for x in xs),
        "inf": sum(is_inf(x) for x in xs),
        "min": None,
        "max": None,
        "mean": None,
        "rms": None,
        "scale": 0.0,
    }
    if finite:
        stats |= {
            "min": min(finite),
            "max": max(finite),
            "mean": float(sum(map(Fraction, finite)) / len(finite)),
            "rms": root(squares(finite) / len(finite)),
            "scale": float(sum(abs(Fraction(x)) for x in finite) / len(finite)),
        }
    return stats


def compare(base: np.ndarray, target: np.ndarray, tolerance: Tolerance) -> dict[str, Any]:
    """Expected fields of a Comparison of two numeric arrays of one shape; ``overflow``: an error left float64."""
    bs, ts = elements(base), elements(target)
    ok = [passes(b, t, tolerance) for b, t in zip(bs, ts, strict=True)]
    finite = [
        (i, value(b), value(t), float(difference(b, t)), b, t)
        for i, (b, t) in enumerate(zip(bs, ts, strict=True))
        if not (is_nan(b) or is_nan(t) or is_inf(b) or is_inf(t))
    ]
    infinite = [
        i
        for i, (b, t) in enumerate(zip(bs, ts, strict=True))
        if not (is_nan(b) or is_nan(t)) and (is_inf(b) or is_inf(t)) and b != t
    ]
    special = bool(infinite) or any(not o and (is_nan(b) or is_nan(t)) for o, b, t in zip(ok, bs, ts, strict=True))
    expected: dict[str, Any] = {
        "mismatched": ok.count(False),
        "first_mismatch": index(ok.index(False), base.shape) if False in ok else None,
        "fp16_overflow": sum(abs(value(b)) > 65504 for b in bs if not is_nan(b)),
        "fp16_subnormal": sum(0 < abs(value(b)) < 2.0**-14 for b in bs),
        "overflow": any(math.isinf(d) for _, _, _, d, _, _ in finite),
        "finite": len(finite),
        "special": len(finite) < len(bs),
    }
    relative = [(i, d / (abs(b) + REL_EPSILON)) for i, b, _, d, _, _ in finite]
    errors = [(i, d) for i, _, _, d, _, _ in finite]
    for name, pairs in (("max_abs", errors), ("max_rel", relative)):
        candidates = sorted(pairs + [(i, math.inf) for i in infinite])
        if any(i in infinite for i, _ in candidates):
            expected |= {name: math.inf, f"{name}_index": None}
            if not any(math.isinf(v) for _, v in pairs):
                expected[f"{name}_index"] = index(infinite[0], base.shape)
        elif candidates:
            worst = max(v for _, v in candidates)
            at = next(i for i, v in candidates if v == worst)
            expected |= {name: worst, f"{name}_index": index(at, base.shape)}
        else:
            expected |= {name: None, f"{name}_index": None}
    ds = [d for _, d in errors]
    if ds and not expected["overflow"]:
        expected |= {
            "mean_abs": float(sum(map(Fraction, ds)) / len(ds)),
            "mean_rel": mean([r for _, r in relative]),
            "share_rel_over_1pct": sum(d > 0.01 * abs(b) for _, b, _, d, _, _ in finite) / len(ds),
            "rmse": root(squares(ds) / len(ds)),
            "sqnr_db": decibels(squares(b for _, b, _, _, _, _ in finite), squares(ds)),
            "cosine_distance": cosine_distance([(b, t) for *_, b, t in finite]),
            **{f"abs_p{name}": quantile(ds, q) for name, q in (("50", 0.5), ("90", 0.9), ("99", 0.99), ("999", 0.999))},
        }
    expected |= required(finite, special, len(bs), tolerance)
    expected |= statistic(finite, bool(infinite), tolerance)
    return expected


def required(finite: list[Any], special: bool, count: int, tolerance: Tolerance) -> dict[str, Any]:
    if not count:
        return {"required_atol": None, "required_rtol": None}
    if special:
        return {"required_atol": math.inf, "required_rtol": math.inf}
    atol, rtol, either = tolerance.atol, tolerance.rtol, tolerance.rule == "either"
    absolute, relative = 0.0, 0.0
    for _, b, _, d, _, _ in finite:
        if d > rtol * abs(b):
            absolute = max(absolute, d if either else d - rtol * abs(b))
        if d > atol:
            rest = d if either else d - atol
            relative = max(relative, rest / abs(b) if b else math.inf)
    return {"required_atol": absolute, "required_rtol": relative}


def statistic(finite: list[Any], infinite: bool, tolerance: Tolerance) -> dict[str, Any]:
    kind = tolerance.check_error_stat
    if kind == "elemwise" or not (finite or (infinite and kind == "max")):
        return {"stat_abs": None, "stat_rel": None}
    ds = [d for _, _, _, d, _, _ in finite]
    rs = [0.0 if d == 0 else d / abs(b) if b else math.inf for _, b, _, d, _, _ in finite]
    results = []
    for xs in (ds, rs):
        if kind == "max":
            results.append(math.inf if infinite else max(xs))
        elif kind == "mean":
            results.append(mean(xs))
        else:
            results.append(quantile(xs, 0.5 if kind == "median" else tolerance.quantile))
    return {"stat_abs": results[0], "stat_rel": results[1]}


def quantile(xs: list[float], q: float) -> float:
    xs = sorted(xs)
    place = q * (len(xs) - 1)
    low = min(int(place), len(xs) - 1)
    high = min(low + 1, len(xs) - 1)
    if xs[low] == xs[high] or place == low:
        return xs[low]
    if math.isinf(xs[high]):
        return math.inf
    return float(Fraction(xs[low]) + (Fraction(xs[high]) - Fraction(xs[low])) * Fraction(place - low))


def index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    result: list[int] = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        result.insert(0, rest)
    return tuple(result)


def mean(xs: list[float]) -> float:
    if any(map(math.isinf, xs)):
        return math.inf
    try:
        return float(sum(map(Fraction, xs)) / len(xs))
    except OverflowError:
        return math.inf


def squares(xs: Any) -> Fraction:
    return sum((Fraction(x) ** 2 for x in xs), Fraction(0))


def precise(x: Fraction) -> decimal.Decimal:
    return decimal.Decimal(x.numerator) / decimal.Decimal(x.denominator)


def root(x: Fraction) -> float:
    with decimal.localcontext() as context:
        context.prec = 60
        return float(precise(x).sqrt())


def decibels(signal: Fraction, noise: Fraction) -> float:
    if not noise:
        return math.inf
    if not signal:
        return -math.inf
    with decimal.localcontext() as context:
        context.prec = 60
        return float(10 * precise(signal / noise).log10())


def cosine_distance(pairs: list[tuple[Any, Any]]) -> float | None:
    def parts(x: Any) -> tuple[Fraction, Fraction]:
        return (Fraction(x.real), Fraction(x.imag)) if isinstance(x, complex) else (Fraction(x), Fraction(0))

    dot = bb = tt = Fraction(0)
    for b, t in pairs:
        (br, bi), (tr, ti) = parts(b), parts(t)
        dot += br * tr + bi * ti
        bb += br * br + bi * bi
        tt += tr * tr + ti * ti
    if not bb or not tt:
        return None
    with decimal.localcontext() as context:
        context.prec = 60
        return float(1 - precise(dot) / (precise(bb) * precise(tt)).sqrt())
