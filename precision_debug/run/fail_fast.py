"""--fail_fast: a run that has shown its first failure need not go on."""

from __future__ import annotations

from ..errors import PrecisionDebugError
from ..explain import allowed_by
from ..numbers import judge
from ..records import Row, RunSpec, Status

__all__ = ["Enough", "enough"]


class Enough(PrecisionDebugError):
    """Raised inside the hook of a target to end both runs; no error. row: the one that failed."""

    def __init__(self, row: Row) -> None:
        super().__init__(f"{row.name} failed")
        self.row = row


def enough(spec: RunSpec, row: Row, precision: str) -> bool:
    """Return whether the run may end with this row.

    Not with an input, which no operator made, as the target rounds it. Where no tolerance was given, by the error that
    the promised precision usually has."""
    if not spec.fail_fast or row.op_type == "Input":
        return False
    judged = judge.judged(row, spec.tolerance, allowed=allowed_by(None, precision), validate=spec.validate)
    return judged.status is Status.FAIL
