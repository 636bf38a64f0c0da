"""What a report gives to paste, so that the operators that it names stay in higher precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..reasons import NOTHING, Reason

__all__ = ["ToKeep"]


@dataclass(frozen=True, kw_only=True)
class ToKeep:
    """What keeps the culprits in higher precision in the run mode at hand, as a user types it; nobody has run it yet.

    option: the words to add to the command; "" where the mode has no such setting. settings: the same as values, by
    name. replaced: names of settings that the command has already, and that it takes the place of. unit: "operator",
    "operator type" or "module". keys: those that it keeps, ``of`` how many there are. modes: where there is no option,
    run modes of the same backend and precision that have one; why: what the backend says.
    """

    option: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    unit: str = "operator"
    keys: tuple[str, ...] = ()
    of: int = 0
    modes: tuple[str, ...] = ()
    why: Reason = NOTHING
