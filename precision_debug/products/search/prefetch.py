"""Sets of a search that several workers run before they are asked for: the same answer and journal, sooner.

The strategy stays as it is, one set after the other; it tells which it will ask for next if those before fail. What was
run and is never asked for is forgotten, so that a search finds what it finds with one worker.
"""

from __future__ import annotations

import base64
import pickle
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import events
from ...errors import BackendCrash, BackendError, UsageError
from ...protocols import Feeds
from ...reasons import say
from ...records import RunSpec, Slices
from ...run.child import as_ours, make_failure_event
from ...run.criterion import Criterion, Sample
from ...run.locked_folder import LOG
from ...run.part_runner import Plain, check_answer
from ...run.plan import make_plan, make_stage_spec
from ...run.pools import Pool, Processes, RayPool, Worker, WorkerLost
from ...run.trials import Trials
from ...search.fix import Evaluation, SearchRequest
from ...settings.options import Workers

__all__ = ["Prefetcher", "SetRunner", "Setup", "make_pool"]

_TRIES = 3
"""Workers that may be lost one after the other while they get ready."""

Keys = tuple[str, ...]
_Asked = tuple[int, Keys]


def make_pool(asked: Workers, folder: Path) -> Pool:
    """Workers that run sets. Raises UsageError where Ray is missing."""
    if asked.engine == "ray":
        return RayPool({}, asked.jobs, address=asked.address, gpus=asked.gpus, run=folder.name, runner=SetRunner)
    return Processes({}, max(1, asked.jobs), folder / LOG, SetRunner)


class Prefetcher:
    """Use as a context manager, in one thread; each worker has a thread of its own."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._setups: list[Setup] = []
        self._futures: dict[_Asked, Future[Evaluation]] = {}
        self._threads = ThreadPoolExecutor(pool.size)
        self._own = threading.local()
        self._closed = False

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.pool.close()

    def prepared(self, setup: Setup) -> int:
        """Return the number by which sets of it are asked for."""
        self._setups.append(setup)
        return len(self._setups) - 1

    def expect(self, setup: int, sets: Sequence[Keys]) -> None:
        """These may be asked for next, the first ones sooner. What waited before is forgotten, not what is running."""
        self._forget()
        self._begin((setup, keys) for keys in sets[: self.pool.size])

    def take(self, setup: int, keys: Keys) -> Evaluation:
        """Return what comes of a set. One that took its worker with it fails. Raises PrecisionDebugError."""
        self._begin([(setup, keys), *self._forget()])
        return self._futures[setup, keys].result()

    def _forget(self) -> list[_Asked]:
        """Forget and return what waits for a worker."""
        waiting = [asked for asked, future in self._futures.items() if future.cancel()]
        for asked in waiting:
            del self._futures[asked]
        return waiting

    def _begin(self, several: Iterable[_Asked]) -> None:
        for asked in several:
            if asked not in self._futures:
                self._futures[asked] = self._threads.submit(self._run, *asked)

    def _run(self, number: int, keys: Keys) -> Evaluation:
        worker = self._ready(number)
        try:
            event = events.read(check_answer(worker.ask(["run", number, list(keys)]))[-1])
        except WorkerLost as error:
            self._own.worker, mode = None, self._setups[number].mode
            return Evaluation(kept=keys, mode=mode, passes=False, text=str(error))
        if not isinstance(event, events.Evaluated):
            raise BackendError("a worker returned nothing", where="search")
        return event.evaluation

    def _ready(self, number: int) -> Worker:
        """Return this thread's worker, which knows the setup. One that is lost until then says nothing of a set."""
        own, lost = self._own, 0
        while True:
            try:
                if getattr(own, "worker", None) is None:
                    own.worker, own.known = self.pool.start(), set[int]()
                    check_answer(own.worker.ask([]))
                if number not in own.known:
                    check_answer(own.worker.ask(["setup", number, self._setups[number].text()]))
                    own.known.add(number)
                found: Worker = own.worker
                return found
            except WorkerLost as error:
                own.worker, lost = None, lost + 1
                if lost >= _TRIES or self._closed:
                    what = say("workers_lost_opening", count=lost, why=str(error))
                    raise BackendCrash(what, where=self._setups[number].mode, hint=say("fewer_workers")) from error


# What runs a set wherever it is asked to: in a child of this process, or an actor of a Ray cluster.

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
    lost: Mapping[str, Sequence[Slices]]
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
        keep = opening.keep()
        if keep is None:
            raise UsageError(say("nothing_to_keep", mode=setup.mode), where="search")
        criterion = Criterion.of(setup.asked, setup.spec.tolerance, setup.pairs, setup.allowed, lost=setup.lost)
        return Trials(opening, keep.options, criterion, setup.feeds, folder)
