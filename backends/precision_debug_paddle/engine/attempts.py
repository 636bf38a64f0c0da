"""Builds of edited programs, each of which is asked whether fetching changes what the mode computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from precision_debug.errors import BackendError
from precision_debug.protocols import tell

from ..reasons import say
from .fetchable import Trace
from .hook_check import Witness
from .predictor import Runner

__all__ = ["Attempts"]


class Attempts:
    """edited: makes a runner of the program with fetches. traced: runs one. keys: of its outputs to our names.
    plain: of the program as it ships. most: how many may be built.

    seen, widened: what the hook saw of the last one that changed nothing, and the kernels that gave it FP32 where the
    mode computes in something narrower. That one's predictor is kept open, to be the session's.
    """

    def __init__(
        self, *, edited: Callable[[Sequence[str]], Runner], traced: Callable[[Runner, Witness], Trace],
        keys: Callable[[Sequence[str]], Mapping[str, str]], plain: Trace, most: int,
    ) -> None:  # fmt: skip
        self._most, self._built = most, 0
        self._edited, self._traced, self._keys, self._plain = edited, traced, keys, plain
        self._kept: tuple[tuple[str, ...], Runner] | None = None
        self.seen = Witness()
        self.widened: frozenset[str] = frozenset()

    def changes(self, names: Sequence[str]) -> Counter[str]:
        """Return what is otherwise where these are fetched, by kernel; "": how many did not come, all where it cannot
        run."""
        self._built += 1
        tell(say("building_predictor", build=self._built, most=max(self._most, self._built), marks=len(names)))
        runner, witness = self._edited(names), Witness()
        try:
            trace = self._traced(runner, witness)
        except BackendError:  # the program as it ships ran: oneDNN may have no kernel for what these leave between them
            runner.close()
            return Counter({"": len(names)})
        changed = self._plain.changed(trace)
        # a pass may put another value in the place of one that is fetched, under that one's name
        changed[""] += len(set(names) - set(self._keys(runner.output_names).values()))
        changed = +changed
        if changed:
            runner.close()
        else:
            self.close()
            self._kept = tuple(names), runner
            self.seen, self.widened = witness, self._plain.widened(trace)
        return changed

    def runner_of(self, names: Sequence[str]) -> Runner | None:
        """Return the predictor that is open, where it fetches just these."""
        return self._kept[1] if self._kept is not None and self._kept[0] == tuple(names) else None

    def close(self) -> None:
        if self._kept is not None:
            self._kept[1].close()
        self._kept = None
