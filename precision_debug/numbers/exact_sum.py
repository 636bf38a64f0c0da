"""Sums of float64 numbers without any rounding, so that their order and their grouping do not matter.

That is what lets the totals of samples and machines merge into those of one process bit for bit, however the samples
were split.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

__all__ = ["ExactSum", "sum_of_squares"]


def sum_of_squares(rms: float, count: int) -> float:
    """Of ``count`` numbers with this root mean square; float64's largest where it does not hold the sum, as of a mask
    at the end of float64 itself, so that the ratio of two such sums is a number."""
    return min(rms * rms * count, sys.float_info.max) if math.isfinite(rms) else rms


@dataclass(frozen=True)
class ExactSum:
    """``mantissa * 2 ** exponent``, the mantissa odd or 0, plus ``special`` (inf or nan where such numbers came in).

    A float64 is such a number, and so is every sum of them; Python's integers hold it whole. A sum of a million numbers
    of like size takes some 80 bits. No range is left: of what float64 cannot hold, ``scaled`` reads a part.
    """

    mantissa: int = 0
    exponent: int = 0
    special: float = 0.0

    @classmethod
    def of(cls, value: float, power: int = 0) -> ExactSum:
        """Return value * 2 ** power."""
        if not math.isfinite(value):
            return cls(special=value)
        if isinstance(value, int):
            return cls._normal(value, power)
        mantissa, exponent = math.frexp(value)
        return cls._normal(int(mantissa * 2.0**53), exponent - 53 + power)

    @classmethod
    def _normal(cls, mantissa: int, exponent: int, special: float = 0.0) -> ExactSum:
        if mantissa == 0:
            return cls(special=special)
        zeros = (mantissa & -mantissa).bit_length() - 1
        return cls(mantissa >> zeros, exponent + zeros, special)

    def __add__(self, other: ExactSum) -> ExactSum:
        special = self.special + other.special
        if not self.mantissa or not other.mantissa:
            some = self if self.mantissa else other
            return ExactSum(some.mantissa, some.exponent, special)
        low = min(self.exponent, other.exponent)
        mantissa = (self.mantissa << self.exponent - low) + (other.mantissa << other.exponent - low)
        return ExactSum._normal(mantissa, low, special)

    def __float__(self) -> float:
        return self.scaled(0)

    def scaled(self, power: int, divisor: int = 1) -> float:
        """Return the sum / divisor / 2 ** power, rounded once; inf where float64 does not hold it."""
        if self.special:  # nan is true
            return self.special
        up = self.exponent - power
        try:
            return (self.mantissa << up) / divisor if up >= 0 else self.mantissa / (divisor << -up)
        except OverflowError:
            return -math.inf if self.mantissa < 0 else math.inf

    @property
    def text(self) -> str:
        """The sum for a file: "-1a3fp-62"."""
        return f"{self.mantissa:x}p{self.exponent}" if not self.special else str(self.special)

    @classmethod
    def from_text(cls, text: str) -> ExactSum:
        """Return the inverse of ``text``. Raises ValueError."""
        mantissa, mark, exponent = text.partition("p")
        return cls._normal(int(mantissa, 16), int(exponent)) if mark else cls(special=float(text))
