"""The evaluations of a search on disk: one line each, so that a search that was killed goes on where it was.

A line is keyed by model, inputs, engine, options, criterion and kept set. What was begun and never ended is done again;
what took its process with it is not, where the supervisor said so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ...errors import OutputError, RecordingError
from ...events import Evaluated, Event, Trying, to_plain_event
from ...reasons import Reason, say
from ...records import RunSpec
from ...report.model import Report
from ...run import pipeline
from ...run.content import digest_command, digest_contents, digest_named, digest_value, report_of_journal
from ...run.journal import Journal, read_events
from ...search.fix import Evaluation, SearchRequest

__all__ = [
    "BEGIN_ANEW", "HELD_OUT", "ROUGH", "TRADE", "Evaluations", "compare_once",
    "describe_evaluation", "is_counted", "is_rough", "make_search_key", "note_crash",
]  # fmt: skip

BEGIN_ANEW = "remove it to start over"

HELD_OUT, TRADE, ROUGH = "held out", "for the trade", "from one calibration"
"""What a set is run for: how its name in the journal begins."""


def is_rough(what: str) -> bool:
    """Return whether a set is only chosen among: see ``Trials.run``."""
    return what.startswith(ROUGH)


def is_counted(what: str) -> bool:
    """Return whether it is one of the sets that the search tries, and no check of one."""
    return not what.startswith((HELD_OUT, TRADE))


def describe_evaluation(what: str, samples: int) -> Reason:
    """As people read it."""
    if what.startswith(HELD_OUT):
        return say("set_held_out", count=samples)
    if is_rough(what):
        return say("set_rough")
    return say("set_for_trade") if what == TRADE else say("set_learnt")


class Evaluations:
    """Reads what an earlier search left in a file, and appends to it. key: of all that a search's sets have in common.

    Use as a context manager. Raises OutputError.
    """

    def __init__(self, path: Path, key: str) -> None:
        """Open the file of evaluations, and read those that are there. key: of the search that they belong to."""
        self.path, self.key = path, key
        self.again = 0
        self._known: dict[str, Evaluated] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if not _is_ours(path):
                raise OutputError(
                    say("not_ours"), where=str(path), hint=say("name_another", option="--output")
                )  # fmt: skip
            _mend(path)
            try:
                for event in read_events(path, Evaluated):
                    if isinstance(event, Evaluated) and event.check:  # without it, it is an older version's
                        if event.check != _sum(event):
                            raise self._damaged("a line is not as it was written")
                        self._known[event.key] = event
            except RecordingError as error:
                raise self._damaged(error.what) from error
        self._earlier = set(self._known)
        self._journal = Journal(path)

    def __enter__(self) -> Evaluations:
        return self

    def __exit__(self, *exc: object) -> None:
        self._journal.close()

    def find(self, mode: str, kept: Sequence[str], what: str = "") -> Evaluation | None:
        """Return what is known of a set."""
        event = self._known.get(self._key(mode, kept, what))
        if event is None:
            return None
        self.again += event.key in self._earlier
        self._earlier.discard(event.key)
        return event.evaluation

    def begin(self, mode: str, kept: Sequence[str], what: str = "") -> None:
        """A set is about to be run."""
        self._journal.write(Trying(key=self._key(mode, kept, what), mode=mode, kept=tuple(kept)))

    def end(self, evaluation: Evaluation, what: str = "") -> None:
        """A set was run."""
        key = self._key(evaluation.mode, evaluation.kept, what)
        self._known[key] = _check_event(Evaluated(key=key, evaluation=evaluation))
        self._journal.write(self._known[key])

    def path_of_comparison(self, mode: str, kept: Sequence[str]) -> Path:
        """Return where the comparison with a set kept is remembered."""
        return self.path.with_name(f"comparison-{self._key(mode, kept, 'ranking')}.jsonl")

    def _damaged(self, why: str) -> OutputError:
        what = f"the journal of an earlier search is damaged ({why})"
        return OutputError(what, where=str(self.path), hint=BEGIN_ANEW)

    def _key(self, mode: str, kept: Sequence[str], what: str) -> str:
        return digest_value([self.key, what, mode, sorted(kept)])


def note_crash(path: Path, text: str) -> bool:
    """Note that what was being tried took its process with it; False where nothing was."""
    if not path.exists():
        return False
    _mend(path)
    last: Event | None = None
    for event in read_events(path):
        last = event
    if not isinstance(last, Trying):
        return False
    gone = Evaluation(kept=last.kept, mode=last.mode, passes=False, text=text)
    with Journal(path) as journal:
        journal.write(_check_event(Evaluated(key=last.key, evaluation=gone)))
    return True


def _check_event(event: Evaluated) -> Evaluated:
    return dataclasses.replace(event, check=_sum(event))


def _sum(event: Evaluated) -> str:
    """Of all else that a line says."""
    return digest_value({**to_plain_event(event), "check": ""})


def _is_ours(path: Path) -> bool:
    """Return whether a file begins as a journal of evaluations does, or has nothing in it."""
    with path.open("rb") as file:
        first = file.read(4096)
    known = (Trying, Evaluated)
    return not first or any(first.startswith(f'{{"event": "{kind.event}"'.encode()[: len(first)]) for kind in known)


def _mend(path: Path) -> None:
    """Cut off a last line that was not finished, so that the next one begins on its own."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def make_search_key(spec: RunSpec, asked: SearchRequest, feeds: Sequence[str]) -> str:
    """Of a search: everything that decides what comes of a set. feeds: digests of the inputs."""
    wanted = {"on": asked.on, "limit": asked.limit} | ({"check": asked.check} if asked.check else {})
    wanted |= ({"score": "yes"} if asked.score else {}) | ({"drop": asked.drop} if asked.drop else {})
    without, once = [Path(one) for one in (asked.folder, asked.artefacts) if one], _find_running_command()
    programs = [
        digest_named(asked.on, asked.held_out), digest_command(asked.check, without=without, once=once),
    ]  # fmt: skip
    return digest_value([digest_contents(spec, without=without, once=once), wanted, list(feeds), programs])


def _find_running_command() -> str:
    """Return the process that this one is a child of: begun again after a crash, a search goes on all the same."""
    with contextlib.suppress(OSError, IndexError):
        begun = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        return f"{os.getppid()} {begun}"
    return ""


def compare_once(spec: RunSpec, path: Path, room: Path, *, shown: bool = True) -> Report:
    """Return a comparison; of an earlier search its journal, in ``path``. room: a folder for temporary files.
    shown: see ``pipeline.execute``.

    Raises PrecisionDebugError."""
    if not path.exists():
        room.mkdir(exist_ok=True)
        fresh = room / path.name  # which goes with the run's folder, however that ends
        with Journal(fresh) as journal:
            pipeline.execute(spec, journal, folder=room, fixes=False, shown=shown)
        shutil.move(fresh, path)
    return report_of_journal(path, hint=BEGIN_ANEW)
