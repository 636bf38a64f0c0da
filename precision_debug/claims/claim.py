"""Make single claims: of an output that was compared, and of what the files prove."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..inspector import EngineLayer
from ..reasons import Reason, ReasonOrText
from ..records import Doubt, Explanation, InputInfo, MetricChange, Number, Row, RunSpec, SamplesRead, Side

__all__ = [
    "Claim",
    "JudgedReport",
    "State",
    "Verdict",
    "claims_of_files",
    "exit_status_of",
    "fold_claims",
    "hold_claim",
    "leave_claim_open",
    "refute_claim",
    "verdict_of_files",
]  # fmt: skip


# One claim, and the only way from claims to a verdict and to an exit status.

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


def hold_claim(code: str, why: Doubt | None = None, **evidence: ReasonOrText | Number | tuple[str, ...]) -> Claim:
    """Make a claim that is proved by its evidence."""
    return Claim(code=code, state=State.HELD, evidence=evidence, why=why)


def leave_claim_open(code: str, why: Doubt, **evidence: ReasonOrText | Number | tuple[str, ...]) -> Claim:
    """Make a claim that nobody knows to be true."""
    return Claim(code=code, state=State.OPEN, evidence=evidence, why=why)


def refute_claim(code: str, why: Doubt | None = None, **evidence: ReasonOrText | Number | tuple[str, ...]) -> Claim:
    """Make a claim that is wrong."""
    return Claim(code=code, state=State.REFUTED, evidence=evidence, why=why)


ENDED = "ended"
"""The code of the claim that a run came to its end: where it is open, what was found is a part."""


def fold_claims(claims: Iterable[Claim], needed: Collection[str], *, asked: bool) -> Verdict:
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


def exit_status_of(verdicts: Iterable[str]) -> int:
    """Return the exit status of one verdict or of several.

    0 where each is a pass, 3 where one is of a part only, else 1. None at all prove nothing: 1."""
    found = [_STATUS.get(verdict, 1) for verdict in verdicts]
    return max(found, default=1)


# Protocols of a report and its coverage, for what the report itself asks: its claims, its columns.

class Covered(Protocol):
    """A ``report.model.Coverage``."""

    @property
    def compared(self) -> int: ...

    @property
    def lost(self) -> int: ...

    @property
    def hidden(self) -> int: ...

    @property
    def share(self) -> float: ...


class JudgedReport(Protocol):
    """A ``report.model.Report``, which asks these modules and so is not imported by them."""

    @property
    def rows(self) -> tuple[Row, ...]: ...

    @property
    def spec(self) -> RunSpec: ...

    @property
    def baseline(self) -> Side: ...

    @property
    def target(self) -> Side: ...

    @property
    def inputs(self) -> tuple[InputInfo, ...]: ...

    @property
    def samples(self) -> SamplesRead | None: ...

    @property
    def layers(self) -> tuple[EngineLayer, ...]: ...

    @property
    def notes(self) -> tuple[Reason, ...]: ...

    @property
    def failure(self) -> str: ...

    @property
    def compared(self) -> tuple[Row, ...]: ...

    @property
    def outputs(self) -> tuple[Row, ...]: ...

    @property
    def first_mismatch(self) -> Row | None: ...

    @property
    def first_non_finite(self) -> Row | None: ...

    @property
    def coverage(self) -> Covered: ...

    @property
    def explanation(self) -> Explanation | None: ...

    @property
    def checks(self) -> Mapping[str, float]: ...

    @property
    def metric(self) -> MetricChange | None: ...

    @property
    def asserted(self) -> tuple[Claim, ...]: ...

    @property
    def claims(self) -> tuple[Claim, ...]: ...

    @property
    def verdict(self) -> str: ...


# The claims that files make of themselves without a run: that they are sound, and that two of them say the same.

_UNPROVEN = "unproven_"
"""How codes begin of what of two files has no counterpart, so that nothing is known of it."""

_NEEDED = ("files_sound", "constants_read")
_NEEDED_OF_TWO = (*_NEEDED, "files_agree")


def claims_of_files(
    faults: Sequence[Reason], differing: Sequence[Reason] | None, unread: Sequence[Reason], looked_at: int
) -> tuple[Claim, ...]:
    """Return the claims of a comparison of model files without a run.

    faults: what a file proves of itself. differing: what two files prove of each other, and what of them cannot be
    proven; None: there is one file. unread: what of them was not looked at, and files in which there is nothing to look
    at. looked_at: constants that were."""
    return tuple(_claim_on_files(faults, differing, unread, looked_at))


def verdict_of_files(claims: Sequence[Claim], *, two: bool) -> Verdict:
    """Return the verdict of a comparison of model files without a run."""
    return fold_claims(claims, _NEEDED_OF_TWO if two else _NEEDED, asked=True)


def _claim_on_files(
    faults: Sequence[Reason], differing: Sequence[Reason] | None, unread: Sequence[Reason], looked_at: int
) -> Iterator[Claim]:
    yield from (refute_claim("files_sound", _as_doubt(reason)) for reason in faults)
    if not faults:
        yield hold_claim("files_sound", constants=looked_at)
    yield from (leave_claim_open("constants_read", _as_doubt(reason)) for reason in unread)
    if not unread:
        yield hold_claim("constants_read", constants=looked_at)
    if differing is None:
        return
    for reason in differing:
        known = leave_claim_open if reason.code.startswith(_UNPROVEN) else refute_claim
        yield known("files_agree", _as_doubt(reason))
    if not differing:
        yield hold_claim("files_agree")


def _as_doubt(reason: Reason) -> Doubt:
    values = {name: one if isinstance(one, (int, float)) else str(one) for name, one in reason.args.items()}
    return Doubt(code=reason.code, values=values)
