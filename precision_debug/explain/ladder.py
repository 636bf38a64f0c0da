"""Which stage of an engine brings a mismatch, and the fewest of its parts that must be off for it to go.

Stages are climbed one at a time, from everything off to the target. Of the first one that fails, the parts that can be
switched off (passes, operators) are bisected: the shortest beginning of their list with which the stage passes ends in
a part that must be off; with that one off, the next is looked for before it. So each costs log2(n) + 1 runs, where
delta debugging's ddmin (A. Zeller, R. Hildebrandt, IEEE Trans. Software Eng. 28, 2002) takes up to twice as many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..protocols import Rung, Switch

__all__ = ["Climb", "StageExplanation", "Step", "climb", "explain"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What came of one run. passes: None where it could not run or was not judged. text: the first mismatch, or why;
    chinese: the same, "" where only English is known.

    exit_status: what such a stage means for the command (see ``errors``); 1: it ran, and nothing could be compared, or
    the tolerance could not have told.
    """

    passes: bool | None
    text: str = ""
    chinese: str = ""
    op_types: tuple[str, ...] = ()
    exit_status: int = 2


Run = Callable[[Rung, Mapping[str, Any]], Step]
"""Runs a stage with further settings."""


@dataclass(frozen=True, kw_only=True)
class Climb:
    """The stages that were run, in order. failing: the first one that fails; None where all pass."""

    steps: tuple[tuple[Rung, Step], ...]

    @property
    def failing(self) -> Rung | None:
        return next((rung for rung, step in self.steps if step.passes is False), None)

    @property
    def not_run(self) -> tuple[str, ...]:
        """Names of the stages that could not run."""
        return tuple(rung.name for rung, step in self.steps if step.passes is None)

    @property
    def exit_status(self) -> int:
        """0 where the last stage, the target, passes; 1 where one fails; else why the target could not run."""
        if self.failing is not None:
            return 1
        last = self.steps[-1][1] if self.steps else Step(passes=None)
        return 0 if last.passes else last.exit_status


@dataclass(frozen=True, kw_only=True)
class StageExplanation:
    """off: the smallest set that was found with which the stage passes; empty where ``found`` is False.

    found: False where the stage fails with everything off too, so that none of the items explains it.
    minimal: no item of ``off`` can be left on; False where the runs ended before that was known.
    """

    switch: Switch
    off: tuple[str, ...]
    found: bool
    minimal: bool
    runs: int

    @property
    def snippet(self) -> str:
        return self.switch.snippet(self.off) if self.found else ""


def climb(rungs: Sequence[Rung], run: Run, on_step: Callable[[Rung, Step], None] | None = None) -> Climb:
    """Run the stages up to the first one that fails. A stage that cannot run is passed over, and listed."""
    steps: list[tuple[Rung, Step]] = []
    for rung in rungs:
        step = Step(passes=None, text=rung.needs) if rung.needs else run(rung, {})
        steps.append((rung, step))
        if on_step is not None:
            on_step(rung, step)
        if step.passes is False:
            break
    return Climb(steps=tuple(steps))


def explain(
    switch: Switch, passes: Callable[[Mapping[str, Any]], bool], *, budget: int = 60, all_off_passes: bool = False
) -> StageExplanation:
    """Return the smallest set of items that must be off.

    passes: whether the stage passes with these settings; a run that ends in an error does not. budget: how often it
    may be asked. all_off_passes: known already, so it is not tried. Where switching more off never brings the mismatch
    back, the answer is minimal after at most log2(n) + 3 runs for each item that must be off.
    """
    trials = _Trials(switch, passes, budget, all_off_passes)
    try:
        minimal = _shrink(tuple(switch.items), trials.enough)
    except _Spent:
        minimal = False
    return StageExplanation(switch=switch, off=trials.best, found=bool(trials.best), minimal=minimal, runs=trials.runs)


class _Spent(Exception):
    """The budget does not pay for one more run."""


class _Trials:
    """Runs with some items off, each set once. best: the last one that passed; sets only ever get smaller."""

    def __init__(
        self, switch: Switch, passes: Callable[[Mapping[str, Any]], bool], budget: int, all_off_passes: bool
    ) -> None:
        self._switch, self._passes, self._budget = switch, passes, budget
        self._known = {frozenset(switch.items): True} if all_off_passes else {}
        self.best: tuple[str, ...] = ()
        self.runs = 0

    def enough(self, off: tuple[str, ...]) -> bool:
        """Return whether the stage passes with these off. Raises _Spent."""
        key = frozenset(off)
        if key not in self._known:
            if self.runs >= self._budget:
                raise _Spent
            self._known[key] = self._passes(self._switch.options(off))
            self.runs += 1
        if self._known[key]:
            self.best = off
        return self._known[key]


def _shrink(items: tuple[str, ...], enough: Callable[[tuple[str, ...]], bool]) -> bool:
    """Ask for ever smaller sets, until none of its items can be left out; False where all of them are not enough."""
    if not items or not enough(items):
        return False

    def ordered(*names: str) -> tuple[str, ...]:
        return tuple(item for item in items if item in names)

    found: tuple[str, ...] = ()
    left = items
    while not (found and enough(found)):
        low, high = 0, len(left)  # beside ``found`` the first ``low`` are too few, and ``high`` are enough
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(ordered(*found, *left[:middle])) else (middle, high)
        found, left = ordered(*found, left[high - 1]), left[: high - 1]
    for item in found if len(found) > 1 else ():
        rest = tuple(other for other in found if other != item)
        found = rest if enough(rest) else found
    return True
