"""Several builds of the target: what each one's error is, and where their differences begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..records import Number

__all__ = ["Repeats"]


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Several builds of the target on one sample.

    count: how many, the compared one among them where its tensors were in the host's memory. seconds: that each took
    to run, and to be opened beyond the first. errors: relative L2 of each build against the baseline, by output.
    first: tensors where the randomness begins. tactics: layers that some build ran with another tactic; of
    ``tactics_changed`` the first few. not_in_all: tensors that not every build has: it was fused in another way.
    """

    count: int
    sample: int | None = None
    seconds: tuple[Number, ...] = ()
    errors: Mapping[str, tuple[Number, ...]] = field(default_factory=dict)
    first: tuple[str, ...] = ()
    tactics: tuple[str, ...] = ()
    tactics_changed: int = 0
    not_in_all: tuple[str, ...] = ()
