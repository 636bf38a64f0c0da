"""Who introduced the error, and why: each operator alone, the effect of its error, and the cause with evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import offered

__all__ = [
    "LEAST", "LEFT", "MOST", "NOT_LOOKED_AT", "Subject", "allowed_by", "allowed_to_many", "decided_otherwise",
    "explain", "hidden_share", "is_mended", "is_of_many", "with_choices", "with_decisions", "worth",
]  # fmt: skip

if TYPE_CHECKING:
    from .bounds import LEAST, MOST, allowed_by, allowed_to_many, worth
    from .choices import with_choices
    from .conclusion import hidden_share, is_of_many
    from .decisions import NOT_LOOKED_AT, decided_otherwise, with_decisions
    from .explain_run import explain
    from .subject import Subject
    from .undo import LEFT
    from .units import is_mended

__getattr__ = offered(
    __name__,
    {
        "bounds": "LEAST MOST allowed_by allowed_to_many worth", "choices": "with_choices",
        "conclusion": "hidden_share is_of_many", "decisions": "NOT_LOOKED_AT decided_otherwise with_decisions",
        "explain_run": "explain", "subject": "Subject", "undo": "LEFT", "units": "is_mended",
    },
)  # fmt: skip
