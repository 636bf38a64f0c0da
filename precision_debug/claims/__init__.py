"""What a pass says, claim by claim: each with its evidence, or why it is open. A verdict folds over them."""

from __future__ import annotations

from .claim import (
    ENDED,
    Claim,
    Judged,
    State,
    Verdict,
    claims_of_files,
    held,
    opened,
    refuted,
    status_of,
    verdict_of,
    verdict_of_files,
)
from .of_report import ENOUGH, NEEDED, claims_of
from .of_search import Judge, claims_of_search, claims_of_stage, verdict_of_search, verdict_of_stages

__all__ = [
    "ENDED",
    "ENOUGH",
    "NEEDED",
    "Claim",
    "Judge",
    "Judged",
    "State",
    "Verdict",
    "claims_of",
    "claims_of_files",
    "claims_of_search",
    "claims_of_stage",
    "held",
    "opened",
    "refuted",
    "status_of",
    "verdict_of",
    "verdict_of_files",
    "verdict_of_search",
    "verdict_of_stages",
]
