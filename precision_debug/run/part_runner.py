"""Both sides of a command, held open in a thread, for whoever asks for parts of its samples: engines are built once."""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from .. import events
from ..codec import decode
from ..numbers.cores import take_share
from ..records import RunSpec
from ..safety import import_path
from . import pipeline
from .child import as_ours, make_error, make_failure_event
from .journal import Journal

__all__ = ["PartRunner", "Plain", "check_answer", "start"]


Plain = dict[str, Any]
"""An event as JSON values."""


def check_answer(found: list[Plain]) -> list[Plain]:
    """Return a worker's events; raises what it failed with."""
    event = events.read(found[-1]) if found else None
    if isinstance(event, events.Failure):
        raise make_error(event)
    return found


class _QueueJournal(Journal):
    """A journal that hands its events over instead of writing them."""

    def __init__(self, events_out: queue.Queue[Plain]) -> None:
        self._events = events_out

    def write(self, event: events.Event) -> None:
        self._events.put(events.to_plain_event(event))

    def close(self) -> None:
        pass


class PartRunner:
    """A runner of the parts of a command.

    setup: a command, and as "folder" an existing one to write in. Everything goes in and out as JSON values, so that it
    may be in another process."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._folder = Path(setup["folder"])
        self._spec = decode(RunSpec, {name: one for name, one in setup.items() if name != "folder"})
        self._asked: queue.Queue[list[int] | None] = queue.Queue()
        self._events: queue.Queue[Plain] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask(self, part: list[int]) -> list[Plain]:
        """Return what the journal of this part says: [] opens both sides, [FROM, TO] compares samples, [N] explains
        one.

        Where something failed the last event is "failure".
        """
        if part:
            self._asked.put(part)
        found: list[Plain] = []
        while True:
            event = self._events.get()
            if event["event"] == "answered":
                return found
            found.append(event)
            if event["event"] == "failure":
                return found

    def close(self) -> None:
        """End the thread, close both sides."""
        self._asked.put(None)
        self._thread.join(30)

    def _parts(self) -> Iterator[list[int]]:
        while True:
            self._events.put({"event": "answered"})
            part = self._asked.get()
            if part is None:
                return
            yield part

    def _run(self) -> None:
        try:
            pipeline.execute(self._spec, _QueueJournal(self._events), folder=self._folder, parts=self._parts())
            self._events.put({"event": "answered"})
        except BaseException as error:
            self._events.put(events.to_plain_event(make_failure_event(as_ours(error))))


# A child process that answers questions of a pool: JSON lines in, JSON lines out.
#
# The first line is what its runner is made with; each further one a question (see ``PartRunner.ask``), answered by one
# line of events. When standard input closes, the process ends at once, whatever it is at: nobody waits for that answer.
# Its folder is removed by whoever made it.

def start(module: str, name: str) -> NoReturn:
    """What the pool runs (see ``import_path.make_command``). module, name: of the runner's class."""
    import_path.remove_front_folder()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what frameworks print is not an answer
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    make = getattr(importlib.import_module(module), name)
    runner: Any = None
    while True:
        question = json.loads(asked.get())
        if runner is None:
            take_share(question.pop("cores"))
            runner = make(question)
            question = []
        try:
            answers.write(json.dumps(runner.ask(question), allow_nan=False) + "\n")
            answers.flush()
        except BrokenPipeError:
            os._exit(0)


def _listen(asked: queue.SimpleQueue[str]) -> NoReturn:
    for line in sys.stdin:
        asked.put(line)
    os._exit(0)  # whatever the threads of a framework are at
