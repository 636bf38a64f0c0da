"""Who introduced the error, and why: each operator alone, the effect of its error, and the cause with evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import make_lazy_exports

__all__ = [
    "LEAST",
    "LEFT",
    "MOST",
    "NOT_LOOKED_AT",
    "Subject",
    "bound_hidden_share",
    "bound_of",
    "bound_of_many",
    "error_worth_failing",
    "explain",
    "find_changed_decisions",
    "is_mended",
    "is_of_many",
    "with_choices",
    "with_decisions",
    "with_moved_constants",
]  # fmt: skip

if TYPE_CHECKING:
    from .decisions import NOT_LOOKED_AT, find_changed_decisions, with_choices, with_decisions
    from .explain_run import bound_hidden_share, explain, is_of_many
    from .moved import with_moved_constants
    from .subject import Subject
    from .undo import LEFT
    from .units import LEAST, MOST, bound_of, bound_of_many, error_worth_failing, is_mended

__getattr__ = make_lazy_exports(
    __name__,
    {
        "decisions": "NOT_LOOKED_AT find_changed_decisions with_choices with_decisions",
        "explain_run": "explain bound_hidden_share is_of_many",
        "moved": "with_moved_constants",
        "subject": "Subject",
        "undo": "LEFT",
        "units": "LEAST MOST bound_of bound_of_many is_mended error_worth_failing",
    },
)  # fmt: skip
