"""torch's operators that take functions, run so that the operators inside are seen."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["CONTROL"]


def _cond(chosen: Any, true: Any, false: Any, operands: Any) -> Any:
    with _disable_current_modes():
        taken = bool(chosen)
    return (true if taken else false)(*operands)


def _while_loop(goes_on: Any, body: Any, carried: Any, others: Any) -> Any:
    while True:
        again = goes_on(*carried, *others)
        with _disable_current_modes():
            if not bool(again):
                return tuple(carried)
        carried = body(*carried, *others)


CONTROL = {"cond": _cond, "while_loop": _while_loop}
"""torch's own control flow, done by Python's: the operators inside are the run's own."""
