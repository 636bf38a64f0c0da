"""What a pass says, claim by claim: each with its evidence, or why it is open. A verdict folds over them."""

from __future__ import annotations

from .claim import ENDED, Claim, State, Verdict, held, opened, refuted, status_of, verdict_of
from .judged import Judged
from .of_report import ENOUGH, NEEDED, claims_of

__all__ = [
    "ENDED",
    "ENOUGH",
    "NEEDED",
    "Claim",
    "Judged",
    "State",
    "Verdict",
    "claims_of",
    "held",
    "opened",
    "refuted",
    "status_of",
    "verdict_of",
]
