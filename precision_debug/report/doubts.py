"""Why a claim is open, or wrong, in two languages; and in one line what a pass rests on."""

from __future__ import annotations

from collections.abc import Mapping

from ..claims import Claim, State
from ..reasons import Plain, Text, same
from ..reasons.claims import CLAIMS
from ..records import Doubt
from ..registry import wording
from .figures import count, figure, percent, sufficient
from .model import Report
from .words import said, sentence

__all__ = ["claim_text", "decides", "rests_on", "worded"]


def decides(doubt: Doubt) -> bool:
    """Whether nothing is proven where this is so: the verdict is then inconclusive."""
    known = wording(doubt.code)
    return known is None or known.decides


def worded(doubt: Doubt) -> Text:
    """In words; a code that nobody here knows is shown with its values."""
    values = _Values(_figures(doubt.values))
    en, zh = sentence(doubt.code, values, "en"), sentence(doubt.code, values, "zh")
    if en is None or zh is None:
        told = ", ".join(f"{key} {value}" for key, value in doubt.values.items())
        return same(f"{doubt.code}: {told}" if told else doubt.code)
    return Text(en, zh)


def rests_on(report: Report) -> Text:
    """In one line what each claim that is held rests on, and how many are not."""
    parts: list[Text] = []
    for claim in report.claims:
        if claim.state is State.HELD and (text := claim_text(claim)).en and text not in parts:
            parts.append(text)
    left, every = sum(claim.state is not State.HELD for claim in report.claims), len(report.claims)
    if left:
        parts.append(Text(f"{left} of {every} claims not held", f"{every} 项中 {left} 项不成立"))
    return Text("; ".join(part.en for part in parts), "；".join(part.zh for part in parts))


def claim_text(claim: Claim) -> Text:
    """What a claim rests on, in a few words; none where its name says it all, or of a code that nobody here knows."""
    known = CLAIMS.get(f"{claim.code}_{claim.evidence.get('kind')}") or CLAIMS.get(claim.code)
    values = _Values(_figures(claim.evidence))
    en, zh = [said(known, values, lang) for lang in ("en", "zh")] if known is not None else [None, None]
    return Text(en or "", zh or "")


def _figures(values: Mapping[str, object]) -> dict[str, Plain]:
    """Numbers as people read them."""
    shown: dict[str, Plain] = {}
    for key, value in values.items():
        if isinstance(value, float):
            shown[key] = percent(value) if key == "share" else sufficient(value) if key == "atol" else figure(value)
        elif isinstance(value, int):
            shown[key] = count(value)
        else:
            shown[key] = value  # type: ignore[assignment]
    return shown


class _Values(dict[str, Plain]):
    """What fills the words; a value that a backend left out does not break the report."""

    def __missing__(self, key: str) -> str:
        return "?"
