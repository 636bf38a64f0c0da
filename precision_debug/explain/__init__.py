"""Who introduced the error, and why: each operator alone, the effect of its error, and the cause with evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import offered

__all__ = ["LEAST", "MOST", "Subject", "allowed_by", "allowed_to_many", "explain", "is_mended", "with_choices"]

if TYPE_CHECKING:
    from .bounds import LEAST, MOST, allowed_by, allowed_to_many
    from .choices import with_choices
    from .explain_run import explain
    from .subject import Subject
    from .units import is_mended

__getattr__ = offered(
    __name__,
    {
        "bounds": "LEAST MOST allowed_by allowed_to_many", "choices": "with_choices", "explain_run": "explain",
        "subject": "Subject", "units": "is_mended",
    },
)  # fmt: skip
