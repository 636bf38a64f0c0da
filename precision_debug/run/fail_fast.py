"""--fail_fast: a run that has shown its first failure need not go on."""

from __future__ import annotations

from ..errors import PrecisionDebugError
from ..explain import usual_error
from ..numbers import judge
from ..records import Row, RunSpec, Status

__all__ = ["Enough", "enough"]


class Enough(PrecisionDebugError):
    """Raised inside the hook of a target to end both runs; no error. row: the one that failed."""

    def __init__(self, row: Row) -> None:
        super().__init__(f"{row.name} failed")
        self.row = row


def enough(spec: RunSpec, row: Row, precision: str) -> bool:
    """Whether the run may end with this row. Where no tolerance was given, by the error that the promised precision
    usually has."""
    if not spec.fail_fast:
        return False
    judged = row if spec.tolerance.given else judge.as_expected(row, usual_error(precision) or 0.0)
    return (judge.validated(judged) if spec.validate else judged).status is Status.FAIL
