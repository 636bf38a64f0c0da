"""What the user asks of a search, beside the comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import UsageError
from ..reasons import say

__all__ = ["TOKENS_KL", "SearchRequest", "limit_of"]

TOKENS_KL = "kl"
"""What is judged of a language model: KL of its predictions, the mean of all places."""


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What a search for operators to keep is to reach, and what it may cost.

    on: "outputs", "all", "kl" (of a language model's predictions), or "FILE.py:function", a metric. limit: largest
    error ("0.02"), or a share of the error with nothing kept ("50%"); "": the comparison's own tolerance decides.

    score: ``on`` is a metric(outputs, labels) of which more is better, with the baseline's outputs for labels; limit is
    then the least that its mean over the samples may be, up to 1.

    drop: how much worse ``on``, a metric(outputs, labels), may get on average, as ``--metric_drop`` has it; then
    neither limit nor score is asked for.

    check: a command whose exit status decides, with {model} for the saved model's path (run.criterion).

    runs, seconds: at most so many sets, and about so long; 0: no end. held_out: inputs that the search does not see.
    folder: for the journal of evaluations. artefacts: the folder of what is handed over. save: of that, settings that
    name where one file goes instead ("save_model" to a path).
    """

    on: str = "outputs"
    limit: str = ""
    score: bool = False
    drop: str = ""
    check: str = ""
    runs: int = 200
    seconds: float = 0.0
    held_out: str = ""
    folder: str = ""
    artefacts: str = ""
    save: Mapping[str, str] = field(default_factory=dict)


def limit_of(text: str) -> tuple[float | None, float | None]:
    """Return an absolute limit and a share, one of them None. Raises UsageError."""
    if not text:
        return None, None
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise UsageError(say("no_limit", value=text), where="--limit", hint=say("limit_form"))
    return (None, number / 100) if text.endswith("%") else (number, None)
