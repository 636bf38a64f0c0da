"""What an error may be where the user gave no tolerance: what the target's arithmetic must lose, and no more.

Calibrated on clean and planted models (tests/planted, and real ones that PyPI's wheels ship).
"""

from __future__ import annotations

from ..numbers.precisions import promised
from ..records import Explanation
from .units import INT4, INT8, unit_of

__all__ = ["BEYOND", "LEAST", "MOST", "allowed_by", "allowed_error"]

BEYOND = 24.0
"""Units of rounding up to which a tensor's error is what rounding everywhere makes of a healthy model."""

TIMES = 8.0
"""Times the error that rounding everywhere predicts of this very model: an engine may round more often."""

MOST = 0.1
"""Relative L2 error beyond which no answer passes by default, whatever the arithmetic."""

LEAST = 1e-4
"""Relative L2 error that is of no account whatever the type: sums of float32 in another order differ by less."""


def allowed_error(unit: float, expected: float | None) -> float:
    """Relative L2 error up to which a tensor is as expected.

    unit: the model's typical unit of rounding. expected: what rounding everywhere predicts; None: not known.
    """
    return max(LEAST, min(MOST, max(BEYOND * unit, TIMES * (expected or 0.0))))


def allowed_by(explanation: Explanation | None, precision: str) -> float:
    """The bound of a run without a tolerance, wherever one is asked for: what its explanation measured, and before
    there is one what the precision that the run mode promises must lose.

    precision: see RunMode.
    """
    known = explanation.allowed if explanation is not None else None
    return float(known) if known is not None else _usual_error(precision)


def _usual_error(precision: str) -> float:
    arithmetic = promised(precision).computes
    of_integers = {"int8": INT8, "int4": INT4}
    return allowed_error(of_integers.get(arithmetic) or unit_of(arithmetic, None), None)
