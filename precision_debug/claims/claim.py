"""One claim, and the only way from claims to a verdict and to an exit status."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ..reasons import ReasonOrText
from ..records import Doubt, Number

__all__ = ["Claim", "State", "Verdict", "held", "opened", "refuted", "status_of", "verdict_of"]


class State(str, enum.Enum):
    """What became of a claim."""

    HELD = "held"
    OPEN = "open"  # not known, for the reason that stands beside it
    REFUTED = "refuted"

    def __str__(self) -> str:
        return self.value


class Verdict(str, enum.Enum):
    """The answer of the whole run."""

    PASS = "within tolerance"
    EXPECTED = "as expected"  # no tolerance was given, and nothing is beyond what the target's arithmetic must lose
    FAIL = "out of tolerance"
    INCONCLUSIVE = "inconclusive"  # nothing is out of tolerance, but too much is not known: see Report.claims
    PARTIAL = "partial"  # the run ended before its time

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One thing that a pass says.

    code: which; several claims may have one. evidence: what it rests on, or what speaks against it, by name. why: of an
    open or refuted one the reason; of one that holds all the same what the reader must bear in mind.
    """

    code: str
    state: State
    evidence: Mapping[str, ReasonOrText | Number | tuple[str, ...]] = field(default_factory=dict)
    why: Doubt | None = None


def held(code: str, why: Doubt | None = None, **evidence: ReasonOrText | Number | tuple[str, ...]) -> Claim:
    """Make a claim that is proved by its evidence."""
    return Claim(code=code, state=State.HELD, evidence=evidence, why=why)


def opened(code: str, why: Doubt, **evidence: ReasonOrText | Number | tuple[str, ...]) -> Claim:
    """Make a claim that nobody knows to be true."""
    return Claim(code=code, state=State.OPEN, evidence=evidence, why=why)


def refuted(code: str, why: Doubt | None = None, **evidence: ReasonOrText | Number | tuple[str, ...]) -> Claim:
    """Make a claim that is wrong."""
    return Claim(code=code, state=State.REFUTED, evidence=evidence, why=why)


ENDED = "ended"
"""The code of the claim that a run came to its end: where it is open, what was found is a part."""


def verdict_of(claims: Iterable[Claim], needed: Collection[str], *, asked: bool) -> Verdict:
    """Fold claims to the answer of a run.

    needed: codes that a pass must have; one that no claim is about is open. asked: by a criterion of the user's.
    """
    found = list(claims)
    states = {claim.state for claim in found}
    if any(claim.code == ENDED and claim.state is not State.HELD for claim in found):
        return Verdict.PARTIAL
    if State.REFUTED in states:
        return Verdict.FAIL
    if State.OPEN in states or not set(needed) <= {claim.code for claim in found}:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS if asked else Verdict.EXPECTED


_STATUS: Mapping[str, int] = {Verdict.PASS: 0, Verdict.EXPECTED: 0, Verdict.PARTIAL: 3}


def status_of(verdicts: Iterable[str]) -> int:
    """Return the exit status of one verdict or of several.

    0 where each is a pass, 3 where one is of a part only, else 1. None at all prove nothing: 1."""
    found = [_STATUS.get(verdict, 1) for verdict in verdicts]
    return max(found, default=1)
