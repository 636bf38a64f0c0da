"""The claims that files make of themselves without a run: that they are sound, and that two of them say the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..reasons import Reason
from ..records import Doubt
from .claim import Claim, Verdict, held, opened, refuted, verdict_of

__all__ = ["claims_of_files", "verdict_of_files"]

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
    return tuple(_claims(faults, differing, unread, looked_at))


def verdict_of_files(claims: Sequence[Claim], *, two: bool) -> Verdict:
    """Return the verdict of a comparison of model files without a run."""
    return verdict_of(claims, _NEEDED_OF_TWO if two else _NEEDED, asked=True)


def _claims(
    faults: Sequence[Reason], differing: Sequence[Reason] | None, unread: Sequence[Reason], looked_at: int
) -> Iterator[Claim]:
    yield from (refuted("files_sound", _as_doubt(reason)) for reason in faults)
    if not faults:
        yield held("files_sound", constants=looked_at)
    yield from (opened("constants_read", _as_doubt(reason)) for reason in unread)
    if not unread:
        yield held("constants_read", constants=looked_at)
    if differing is None:
        return
    for reason in differing:
        known = opened if reason.code.startswith(_UNPROVEN) else refuted
        yield known("files_agree", _as_doubt(reason))
    if not differing:
        yield held("files_agree")


def _as_doubt(reason: Reason) -> Doubt:
    values = {name: one if isinstance(one, (int, float)) else str(one) for name, one in reason.args.items()}
    return Doubt(code=reason.code, values=values)
