"""Runs the sets of a search wherever it is asked to: in this process, a child of it, or an actor of a Ray cluster."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import events
from ...errors import UsageError
from ...protocols import Feeds
from ...reasons import say
from ...records import RunSpec
from ...run.child import as_ours, make_failure_event
from ...run.criterion import Criterion, Sample
from ...run.part_runner import Plain
from ...run.plan import make_plan, make_stage_spec
from ...run.trials import Trials
from ...search.fix import Evaluation
from ...search.request import SearchRequest

__all__ = ["SetRunner", "Setup"]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that decides what comes of a set of kept operators; plain values and arrays.

    mode: the simulation's run mode, or the command's own. feeds: all sample sets, which calibrate. samples: those that
    are judged; others: held-out ones that are run in the same session. pairs, allowed: see Criterion. rough: see
    ``Trials.run``.
    """

    spec: RunSpec
    mode: str
    asked: SearchRequest
    pairs: Mapping[str, str]
    parts: Mapping[str, Mapping[int, tuple[int, ...]]]
    allowed: float
    feeds: Sequence[Feeds]
    samples: Sequence[Sample]
    others: Sequence[Sample] = ()
    rough: bool = False

    def text(self) -> str:
        """For another process of ours."""
        return base64.b64encode(pickle.dumps(self)).decode()


class SetRunner:
    """In a worker. setup: "folder" is an existing one to write in.

    Questions: ["setup", NUMBER, Setup.text()], then ["run", NUMBER, keys] as often as is wanted.
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._folder = Path(setup["folder"])
        self._setups: dict[int, tuple[Setup, Trials]] = {}

    def ask(self, asked: Sequence[Any]) -> list[Plain]:
        """Return an "evaluated" event for a set, nothing for a setup; where something failed, "failure"."""
        try:
            match asked:
                case ["setup", number, text]:
                    setup = pickle.loads(base64.b64decode(text))
                    self._setups[number] = (setup, self._trials(setup, number))
                case ["run", number, keys]:
                    setup, trials = self._setups[number]
                    found: Evaluation = trials.run(
                        keys, setup.samples, setup.others, rough=setup.rough, timed=not setup.rough
                    )
                    return [events.to_plain_event(events.Evaluated(key="", evaluation=found))]
        except Exception as error:
            return [events.to_plain_event(make_failure_event(as_ours(error)))]
        return []

    def close(self) -> None:
        """Nothing is held beyond its folder, which belongs to who made it."""

    def _trials(self, setup: Setup, number: int) -> Trials:
        folder = self._folder / str(number)
        folder.mkdir()
        spec = setup.spec if setup.mode == setup.spec.run_mode else make_stage_spec(setup.spec, setup.mode, {})
        opening = make_plan(spec, work_dir=str(folder)).target
        keeper = opening.capabilities.keeper
        keep = keeper.keep(opening.spec) if keeper is not None else None
        if keep is None:
            raise UsageError(say("nothing_to_keep", mode=setup.mode), where="search")
        criterion = Criterion.of(setup.asked, setup.spec.tolerance, setup.pairs, setup.allowed, parts=setup.parts)
        return Trials(opening, keep, criterion, setup.feeds, folder)
