"""How much an explanation may try: counted in work that the model alone decides, so that a busy machine says the same.

What one run of the baseline costs is taken from the bytes of the compared tensors and the number of operators, never
from a clock. Only a cap that is far away is in seconds, and an explanation that ends there says so.
"""

from __future__ import annotations

import time

from .subject import Subject

__all__ = ["CAP", "Work", "WorkEnded"]

CAP = 1800.0
"""Seconds after which an explanation is given up, whatever is left to try."""

_PER_OPERATOR = 100e-6
"""Seconds that an operator is taken to cost beside its bytes: what showing a tensor to a hook takes."""

_WORTH = 10.0
"""Nominal seconds (bytes over Workbench.rate, and operators) that the effects of single operators may take unasked."""

_LEAST, _MOST = 8, 512
"""Runs of the baseline that they may take at least, and at most."""

_LARGE = 30.0
"""Nominal seconds of a single run of both sides from which on nothing is run unasked."""


class WorkEnded(Exception):
    """The cap was reached. seconds: which it is."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = CAP


class Work:
    """What one explanation may do. level: see ``explain_run.explain``."""

    def __init__(self, subject: Subject, level: str) -> None:
        self.full = level == "full"
        self._begun = time.monotonic()
        rows = [(row.comparison, subject.times(row.name)) for row in subject.row_of.values() if row.comparison]
        self.size = int(sum(found.base.elements * 4 * times for found, times in rows))
        self.nominal = self.size / subject.bench.rate + sum(times for _, times in rows) * _PER_OPERATOR

    @property
    def too_large(self) -> bool:
        """Whether nothing is to be run unasked."""
        return not self.full and self.nominal > _LARGE

    @property
    def runs(self) -> int:
        """Runs of the baseline, each with some operators' errors put into it."""
        return 1 << 30 if self.full else int(min(_MOST, max(_LEAST, _WORTH / self.nominal))) if self.nominal else _MOST

    @property
    def seconds(self) -> float:
        """Since it began: for the report, and for nothing that it says."""
        return time.monotonic() - self._begun

    def go_on(self) -> None:
        """Raises Ended where the cap is reached, unless everything was asked for."""
        if not self.full and self.seconds > CAP:
            raise WorkEnded
