"""Builds of edited programs, each of which is asked whether fetching changes what the mode computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from .fetchable import Trace
from .hook_check import Witness
from .predictor import Runner

__all__ = ["Attempts"]


class Attempts:
    """edited: makes a runner of the program with fetches. traced: runs one. keys: of its outputs to our names.
    plain: of the program as it ships.

    seen, widened: what the hook saw of the last one that changed nothing, and the kernels that gave it FP32 where the
    mode computes in something narrower. That one's predictor is kept open, to be the session's.
    """

    def __init__(
        self, *, edited: Callable[[Sequence[str]], Runner], traced: Callable[[Runner, Witness], Trace],
        keys: Callable[[Sequence[str]], Mapping[str, str]], plain: Trace,
    ) -> None:  # fmt: skip
        self._edited, self._traced, self._keys, self._plain = edited, traced, keys, plain
        self._kept: tuple[tuple[str, ...], Runner] | None = None
        self.seen = Witness()
        self.widened: frozenset[str] = frozenset()

    def changes(self, names: Sequence[str]) -> Counter[str]:
        """What is otherwise where these are fetched, by kernel; "": how many of them did not come."""
        runner, witness = self._edited(names), Witness()
        trace = self._traced(runner, witness)
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
        """The predictor that is open, where it fetches just these."""
        return self._kept[1] if self._kept is not None and self._kept[0] == tuple(names) else None

    def close(self) -> None:
        if self._kept is not None:
            self._kept[1].close()
        self._kept = None
