"""Sets of a search that several workers run before they are asked for: the same answer and journal, sooner.

The strategy stays as it is, one set after the other; it tells which it will ask for next if those before fail. What was
run and is never asked for is forgotten, so that a search finds what it finds with one worker.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from ... import events
from ...errors import BackendCrash, BackendError
from ...reasons import say
from ...run.child import make_error
from ...run.locked_folder import LOG
from ...run.pools import Pool, Processes, RayPool, Worker, WorkerLost
from ...search.fix import Evaluation
from ...settings.options import Workers
from .set_runner import SetRunner, Setup

__all__ = ["Prefetcher", "make_pool"]

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
        self._waiting: deque[_Asked] = deque()
        self._futures: dict[_Asked, Future[Evaluation]] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(pool.size)]

    def __enter__(self) -> Prefetcher:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self.pool.close()

    def prepared(self, setup: Setup) -> int:
        """Return the number by which sets of it are asked for."""
        self._setups.append(setup)
        return len(self._setups) - 1

    def expect(self, setup: int, sets: Sequence[Keys]) -> None:
        """These may be asked for next, the first ones sooner. What waited before is forgotten, not what is running."""
        with self._changed:
            for asked in self._waiting:
                self._futures.pop(asked, None)
            self._waiting.clear()
            for keys in sets[: self.pool.size]:
                self._add((setup, keys))
            self._changed.notify_all()

    def take(self, setup: int, keys: Keys) -> Evaluation:
        """Return what comes of a set. One that took its worker with it fails. Raises PrecisionDebugError."""
        asked = (setup, keys)
        with self._changed:
            if asked in self._waiting:
                self._waiting.remove(asked)
                self._waiting.appendleft(asked)
            else:
                self._add(asked, first=True)
            self._changed.notify_all()
            future = self._futures[asked]
        return future.result()

    def _add(self, asked: _Asked, *, first: bool = False) -> None:
        if asked not in self._futures:
            self._futures[asked] = Future()
            (self._waiting.appendleft if first else self._waiting.append)(asked)

    def _next(self) -> _Asked | None:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            return None if self._closed else self._waiting.popleft()

    def _work(self) -> None:
        worker: Worker | None = None
        announced: set[int] = set()
        lost = 0
        while (asked := self._next()) is not None:
            number, keys = asked
            future = self._futures[asked]
            try:
                while number not in announced or worker is None:
                    try:
                        if worker is None:
                            worker, announced = self.pool.start(), set()
                            _check_answer(worker.ask([]))
                        _check_answer(worker.ask(["setup", number, self._setups[number].text()]))
                        announced.add(number)
                        lost = 0
                    except WorkerLost as error:  # while it got ready: that says nothing of the set
                        worker, lost = None, lost + 1
                        if lost >= _TRIES:
                            what = say("workers_lost_opening", count=lost, why=str(error))
                            raise BackendCrash(
                                what, where=self._setups[number].mode, hint=say("fewer_workers")
                            ) from error
                future.set_result(_to_evaluation(worker.ask(["run", number, list(keys)])))
            except WorkerLost as error:
                worker = None
                future.set_result(
                    Evaluation(kept=keys, mode=self._setups[number].mode, passes=False, text=str(error), crashed=True)
                )
            except BaseException as error:
                future.set_exception(error)
        if worker is not None:
            with contextlib.suppress(Exception):
                worker.close()


def _check_answer(found: Sequence[dict[str, object]]) -> events.Event | None:
    """Return the last event; raises what a worker failed with."""
    event = events.read(found[-1]) if found else None
    if isinstance(event, events.Failure):
        raise make_error(event)
    return event


def _to_evaluation(found: Sequence[dict[str, object]]) -> Evaluation:
    event = _check_answer(found)
    if not isinstance(event, events.Evaluated):
        raise BackendError("a worker returned nothing", where="search")
    return event.evaluation
