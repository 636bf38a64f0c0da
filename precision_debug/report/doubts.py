"""Say why a claim is open or wrong, what a pass rests on, and why a run ended early, in two languages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from ..claims import Claim, State
from ..reasons import Plain, Reason, Text, same, say
from ..reasons.claims import CLAIMS
from ..records import Doubt
from ..registry import find_wording
from .model import Report
from .words import code_text, count, format_figure, format_percent, format_sufficient, wording_text

__all__ = ["WEIGHTIEST", "Failed", "claim_text", "decides", "describe_doubt", "describe_held_claims", "error_sentence"]


# Why a run ended early, in one line that is known in both languages as far as its parts are.

class Failed(Protocol):
    """An error of ours, or the event that tells of one."""

    @property
    def what(self) -> str: ...

    @property
    def where(self) -> str: ...

    @property
    def hint(self) -> str: ...


def error_sentence(error: Failed) -> Reason:
    """Return the line that ``str`` of an error gives: where, what, and what to do next."""
    where, what, hint = (_recognise_part(part) for part in (error.where, error.what, error.hint))
    if where and hint:
        return say("error_where_hint", where=where, what=what, hint=hint)
    if where:
        return say("error_where", where=where, what=what)
    return say("error_hint", what=what, hint=hint) if hint else what


def _recognise_part(text: str) -> Reason:
    """Return a part as a Reason; one that lost its code on the way (from a child process, from a file) is
    recognised."""
    from .words import recognise

    return recognise(text)


# Why a claim is open, or wrong, in two languages; and in one line what a pass rests on.

def decides(doubt: Doubt) -> bool:
    """Return whether nothing is proven where this is so: the verdict is then inconclusive."""
    known = find_wording(doubt.code)
    return known is None or known.decides


def describe_doubt(doubt: Doubt) -> Text:
    """In words; a code that nobody here knows is shown with its values."""
    values = _Values(_format_figures(doubt.values))
    en, zh = code_text(doubt.code, values, "en"), code_text(doubt.code, values, "zh")
    if en is None or zh is None:
        told = ", ".join(f"{key} {value}" for key, value in doubt.values.items())
        return same(f"{doubt.code}: {told}" if told else doubt.code)
    return Text(en, zh)


WEIGHTIEST = frozenset({"metric", "ran_as_asked", "outputs_compared", "tensors_seen", "unseen_inputs"})
"""Claims that the first screen names: what was compared, in which precision, on which inputs. It counts the others."""


def describe_held_claims(report: Report, only: Collection[str] = (), *, further: int = 0) -> Text:
    """Say in one line what each claim that is held rests on, and how many are not.

    only: codes of the claims to name, of those that are held; (): all of them. The others are counted, with so many
    ``further`` lines that the caller leaves to the report.
    """
    parts: list[Text] = []
    for claim in report.claims:
        if claim.state is State.HELD and (text := claim_text(claim)).en and text not in parts:
            if not only or claim.code in only:
                parts.append(text)
            else:
                further += 1
    if further:
        parts.append(Text(f"{further} more in the report", f"另有 {further} 项见报告"))
    left, every = sum(claim.state is not State.HELD for claim in report.claims), len(report.claims)
    if left:
        parts.append(Text(f"{left} of {every} claims not held", f"{every} 项中 {left} 项不成立"))
    return Text("; ".join(part.en for part in parts), "；".join(part.zh for part in parts))


def claim_text(claim: Claim) -> Text:
    """Return what a claim rests on, in a few words; none where its name says it all, or of a code that nobody here
    knows."""
    known = CLAIMS.get(f"{claim.code}_{claim.evidence.get('kind')}") or CLAIMS.get(claim.code)
    values = _Values(_format_figures(claim.evidence))
    en, zh = [wording_text(known, values, lang) for lang in ("en", "zh")] if known is not None else [None, None]
    return Text(en or "", zh or "")


def _format_figures(values: Mapping[str, object]) -> dict[str, Plain]:
    """Return numbers as people read them."""
    shown: dict[str, Plain] = {}
    for key, value in values.items():
        if isinstance(value, float):
            shown[key] = (
                format_percent(value)
                if key == "share"
                else format_sufficient(value)
                if key == "atol"
                else format_figure(value)
            )
        elif isinstance(value, int):
            shown[key] = count(value)
        else:
            shown[key] = value  # type: ignore[assignment]
    return shown


class _Values(dict[str, Plain]):
    """What fills the words; a value that a backend left out does not break the report."""

    def __missing__(self, key: str) -> str:
        return "?"
