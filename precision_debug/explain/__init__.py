"""Who introduced the error, and why: each operator alone, the effect of its error, and the cause with evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import lazy_exports

__all__ = [
    "LEAST", "LEFT", "MOST", "NOT_LOOKED_AT", "Subject", "allowed_by", "allowed_to_many", "decided_otherwise",
    "explain", "hidden_share", "is_mended", "is_of_many", "with_choices", "with_decisions", "worth",
]  # fmt: skip

if TYPE_CHECKING:
    from .decisions import NOT_LOOKED_AT, decided_otherwise, with_choices, with_decisions
    from .explain_run import explain, hidden_share, is_of_many
    from .subject import Subject
    from .undo import LEFT
    from .units import LEAST, MOST, allowed_by, allowed_to_many, is_mended, worth

__getattr__ = lazy_exports(
    __name__,
    {
        "decisions": "NOT_LOOKED_AT decided_otherwise with_choices with_decisions",
        "explain_run": "explain hidden_share is_of_many",
        "subject": "Subject",
        "undo": "LEFT",
        "units": "LEAST MOST allowed_by allowed_to_many is_mended worth",
    },
)  # fmt: skip
