"""What a pass says, claim by claim: each with its evidence, or why it is open. A verdict folds over them."""

from __future__ import annotations

from .claim import (
    ENDED,
    Claim,
    JudgedReport,
    State,
    Verdict,
    claims_of_files,
    exit_status_of,
    fold_claims,
    hold_claim,
    leave_claim_open,
    refute_claim,
    verdict_of_files,
)
from .of_report import ENOUGH, NEEDED, claims_of
from .of_search import Judge, claim_stage, claims_of_search, fold_stage_verdicts, verdict_of_search

__all__ = [
    "ENDED",
    "ENOUGH",
    "NEEDED",
    "Claim",
    "Judge",
    "JudgedReport",
    "State",
    "Verdict",
    "claim_stage",
    "claims_of",
    "claims_of_files",
    "claims_of_search",
    "exit_status_of",
    "fold_claims",
    "fold_stage_verdicts",
    "hold_claim",
    "leave_claim_open",
    "refute_claim",
    "verdict_of_files",
    "verdict_of_search",
]
