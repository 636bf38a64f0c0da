"""Why a run ended early, in one line that is known in both languages as far as its parts are."""

from __future__ import annotations

from typing import Protocol

from ..reasons import Reason, say

__all__ = ["Failed", "sentence_of"]


class Failed(Protocol):
    """An error of ours, or the event that tells of one."""

    @property
    def what(self) -> str: ...

    @property
    def where(self) -> str: ...

    @property
    def hint(self) -> str: ...


def sentence_of(error: Failed) -> Reason:
    """The line that ``str`` of an error gives: where, what, and what to do next."""
    where, what, hint = (_known(part) for part in (error.where, error.what, error.hint))
    if where and hint:
        return say("error_where_hint", where=where, what=what, hint=hint)
    if where:
        return say("error_where", where=where, what=what)
    return say("error_hint", what=what, hint=hint) if hint else what


def _known(text: str) -> Reason:
    """A part as a Reason; one that lost its code on the way (from a child process, from a file) is recognised."""
    from .words import recognised

    return recognised(text)
