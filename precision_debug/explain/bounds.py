"""What an error may be where the user gave no tolerance: what the target's arithmetic must lose, and no more.

Calibrated on clean and planted models (tests/planted, and real ones that PyPI's wheels ship).
"""

from __future__ import annotations

from ..numbers.precisions import promised
from ..records import Explanation
from .units import INT4, INT8, unit_of

__all__ = [
    "BEYOND", "LEAST", "LOOK", "LOOK_LEAST", "MOST", "allowed_by", "allowed_error", "allowed_to_many", "is_suspicious",
    "worth",
]  # fmt: skip

BEYOND = 24.0
"""Units of rounding up to which a tensor's error is what rounding everywhere makes of a healthy model. The healthy
models of tests/planted/fourth_*.py, 10 to 60 layers deep, reach 8.5 (RESULTS.md)."""

LOOK = 3.0
"""Units of rounding from which on somebody is looked for, and from which on what one operator makes fails a run. The
faults of tests/planted begin here, where its healthy models reach 5: the size alone cannot decide."""

LOOK_TIMES = 1.5
"""Times the error that rounding everywhere predicts from which on somebody is looked for. Healthy models of
tests/planted reach 2.5 and faults begin at 0.4, so that this only saves the search where there is nothing to find."""

LOOK_LEAST = 1e-5
"""Relative L2 error up to which nobody is looked for, whatever the type: sums of float32 in another order."""

TIMES = 8.0
"""Times the error that rounding everywhere predicts of this very model: an engine may round more often. Healthy models
of 10 to 60 layers reached 1.8 (RESULTS.md, fourth batch), those of tests/planted 2.5."""

MOST = 0.1
"""Relative L2 error beyond which no answer passes by default, whatever the arithmetic."""

LEAST = 1e-4
"""Relative L2 error that is of no account whatever the type: sums of float32 in another order differ by less."""


def allowed_error(unit: float, expected: float | None) -> float:
    """Relative L2 error up to which a tensor is as expected.

    unit: the model's typical unit of rounding. expected: what rounding everywhere predicts; None: not known.
    """
    return max(LEAST, min(MOST, max(BEYOND * unit, TIMES * (expected or 0.0))))


def is_suspicious(error: float, unit: float, expected: float | None) -> bool:
    """Whether it is to be asked who made an error: far below what is allowed, where the answer may be nobody.

    Healthy models of tests/planted reach 5 units and 2.5 times the prediction, faults begin at 3 units, or at 0.4 times
    the prediction where rounding goes through the same amplifier. So neither number decides: what one operator makes of
    it does, which is measured (see ``culprits``). What is less than one rounding is nobody's.
    """
    if error <= max(LOOK_LEAST, unit):
        return False
    return error > LOOK * unit or (bool(expected) and error > LOOK_TIMES * (expected or 0.0))


def worth(unit: float) -> float:
    """Relative L2 error from which on what a culprit makes fails a run: below it, it is named and the run passes."""
    return max(LEAST, min(MOST, LOOK * unit))


def allowed_by(explanation: Explanation | None, precision: str) -> float:
    """The bound of a run without a tolerance, wherever one is asked for: what its explanation measured, and before
    there is one what the precision that the run mode promises must lose.

    precision: see RunMode.
    """
    known = explanation.allowed if explanation is not None else None
    return float(known) if known is not None else _usual_error(precision)


def allowed_to_many(explanation: Explanation | None) -> float | None:
    """The bound of the same run where no single operator makes most of the error; None where that was not measured, or
    of a training step, each of whose gradients has a bound of its own."""
    if explanation is None or explanation.unit is None or explanation.of_step:
        return None
    return allowed_error(float(explanation.unit), None if explanation.expected is None else float(explanation.expected))


def _usual_error(precision: str) -> float:
    arithmetic = promised(precision).computes
    of_integers = {"int8": INT8, "int4": INT4}
    return allowed_error(of_integers.get(arithmetic) or unit_of(arithmetic, None), None)
