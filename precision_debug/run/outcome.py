"""Tell what came of a run in a child process: its report, the error that it ended with, and whose crash it was."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..codec import decode
from ..errors import BackendCrash, BackendError, OutputError, PrecisionDebugError
from ..events import Failure, SideDone, Stage, Tensors
from ..reasons import NOTHING, Reason, say
from ..records import RunSpec
from ..report.doubts import error_sentence
from ..report.model import Report
from ..safety import import_path
from . import child as children
from .child import Stopping, read_last_line, was_stopped
from .child import make_error as error_in
from .companion_files import keep_log
from .deliver import deliver, has_rows, rescue_command
from .journal import UNTOLD, read_events
from .locked_folder import JOB, JOURNAL, LOG

if TYPE_CHECKING:
    from ..protocols import Feeds
    from .plan import Opening

__all__ = ["Outcome", "describe_crash", "find_error", "find_last_stage", "finish_run", "runs_with", "start"]


# What a run was at when it ended, by its journal.

_OPENING, _RUNNING = "stage_opening", "stage_running"


def find_last_stage(journal: Path) -> str:
    """Return the last stage that had not ended; both sides' where they were at it side by side: nobody knows which it
    was.

    "" where there is none. Raises RecordingError.
    """
    last = NOTHING
    going: dict[str, Reason] = {}
    for event in read_events(journal, Stage, Tensors, SideDone):
        match event:
            case Stage(text=text):
                last, side = text, text.args.get("side")
                if text.code in (_OPENING, _RUNNING) and isinstance(side, Reason):
                    going[side.code] = text
            case Tensors(side=side) if side in going and going[side].code == _OPENING:
                del going[side]
            case SideDone(side=side) if side in going and going[side].code == _RUNNING:
                del going[side]
    if last.code not in (_OPENING, _RUNNING) or not going:
        return last
    if len(going) == 1:
        return next(iter(going.values()))
    return say("stages_together", first=going["baseline"], second=going["target"])


# Whose crash it was: after one, the engine runs the same model on the same inputs once more, alone, in a child.
#
# Alone means without anything of this tool in its way: each backend says how (protocols.BareRunner).

_PATIENCE = 120.0
"""Seconds that the engine may take alone; after that nothing is said."""

_RAN, _UNABLE = 0, 10
"""Exit statuses of the child."""

_MOST = 4
"""Cautious settings that are tried of each side."""

_TYPED = "cautious.txt"
"""Where in its folder the child writes what stands for the settings with which it ran."""


def describe_crash(folder: Path) -> Reason:
    """Return who brought about that the run of a folder was ended by a signal, in a sentence; "" where that is not
    known.

    It takes as long as the engine alone, once or twice.
    """
    found: dict[str, int] = {}
    for side in _list_sides_at_work(folder):
        alone = _run_engine_alone(folder, side)
        if alone is None:
            return NOTHING
        found[side] = alone
        if alone < 0:
            break
    shared = next((side for side, alone in found.items() if alone < 0), "")
    if shared:
        how = signal.Signals(-found[shared]).name
        return say("crashed_alone_too", mode=_modes_by_side(folder)[shared], signal=how)
    if found and all(alone == _RAN for alone in found.values()):
        return say("runs_alone", modes=" and ".join(dict.fromkeys(_modes_by_side(folder)[side] for side in found)))
    return NOTHING


def runs_with(folder: Path) -> str:
    """Return what to type so that the side that a signal ended runs, tried on its model and inputs; "" where that is
    unknown.

    It takes as long as that side alone, once for each of the settings that its engine has for this.
    """
    for side in _list_sides_at_work(folder):
        for place in range(_MOST):
            (folder / _TYPED).unlink(missing_ok=True)
            ended = _run_engine_alone(folder, side, str(place))
            if ended == _RAN:
                return (folder / _TYPED).read_text(encoding="utf-8")
            if ended is None:  # there are no more
                break
    return ""


def _list_sides_at_work(folder: Path) -> list[str]:
    """Return the sides that were being opened, or run, and had not ended that."""
    going: dict[str, str] = {}
    for event in read_events(folder / JOURNAL, Stage, Tensors, SideDone):
        match event:
            case Stage(text=text) if text.code in ("stage_opening", "stage_running"):
                side = text.args.get("side")
                if isinstance(side, Reason):
                    going[side.code] = text.code
            case Tensors(side=side) if going.get(side) == "stage_opening":
                del going[side]
            case SideDone(side=side):
                going.pop(side, None)
    return sorted(going, reverse=True)  # the target first: it is the one that is more often to blame


def _modes_by_side(folder: Path) -> dict[str, str]:
    """Return what each side ran, by the stages."""
    found = {"baseline": "", "target": ""}
    for event in read_events(folder / JOURNAL, Stage):
        side = event.text.args.get("side") if isinstance(event, Stage) else None
        if isinstance(side, Reason) and isinstance(event, Stage):
            found[side.code] = str(event.text.args.get("mode", "")) or found[side.code]
    return found


def _run_engine_alone(folder: Path, side: str, *cautious: str) -> int | None:
    """Return the exit status of the engine alone; None where it could not be tried, or took too long.

    cautious: the place of the settings with which the side itself is tried, in place of its engine alone."""
    with tempfile.TemporaryFile(dir=folder) as said:
        code = "from precision_debug.run.outcome import start; start()"
        child = children.start(code, str(folder), side, *cautious, said=said)
        until = time.monotonic() + _PATIENCE
        try:
            while child.poll() is None and time.monotonic() < until and not was_stopped():
                time.sleep(0.05)
            ended = child.poll()
        finally:
            children.end(child)
    return ended if ended is not None and (ended < 0 or ended == _RAN) else None


def start() -> NoReturn:
    """What the child runs: one side of a folder's job, by its engine alone."""
    import_path.remove_front_folder()
    try:
        sys.exit(_run(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])))
    except PrecisionDebugError:
        sys.exit(_UNABLE)


def _run(folder: Path, side: str, cautious: int | None = None) -> int:
    from .inputs import load_feeds
    from .plan import make_plan

    spec = decode(RunSpec, json.loads((folder / JOB).read_text(encoding="utf-8"))["spec"])
    with tempfile.TemporaryDirectory(dir=folder) as work:
        plan = make_plan(spec, work_dir=work)
        opening = plan.baseline if side == "baseline" else plan.target
        runner = None if opening is None else opening.capabilities.bare_runner
        if opening is None or (runner is None and cautious is None):
            return _UNABLE
        given = load_feeds(spec, plan, ())
        feeds = (given if side == "baseline" else given.for_target()).feeds[0]
        if cautious is not None:
            return _run_cautiously(opening, given.feeds if side == "baseline" else given.for_target().feeds, cautious)
        return _RAN if runner is not None and runner.run_bare(opening.spec, feeds) else _UNABLE


def _run_cautiously(opening: Opening, feeds: Sequence[Feeds], place: int) -> int:
    engine = opening.capabilities.cautious
    known = list(engine.cautiously(opening.spec).items()) if engine is not None else []
    if place >= len(known):
        return _UNABLE
    typed, settings = known[place]
    spec = dataclasses.replace(opening.spec, options={**opening.spec.options, **settings})
    session = dataclasses.replace(opening, spec=spec, comparer=None).open(feeds)
    try:
        session.run(feeds[0], lambda _op, _name, _tensor: None)
    finally:
        session.close()
    Path(sys.argv[1], _TYPED).write_text(typed, encoding="utf-8")
    return _RAN


# What came of a run in a child process: its report, and the error that it ended with.

class Outcome:
    """What came of a supervised run. report: None where nothing had been started. error: why it ended early."""

    def __init__(self, report: Report | None, error: PrecisionDebugError | None) -> None:
        self.report, self.error = report, error

    @property
    def exit_status(self) -> int:
        """The error's, else the report's."""
        if self.error is not None:
            return self.error.exit_status
        return self.report.exit_status if self.report is not None else 0


def finish_run(
    folder: Path, outputs: Sequence[Path], failed: PrecisionDebugError | None, stopping: Stopping, language: str,
    on_writing: Callable[[], object],
) -> Outcome:  # fmt: skip
    """on_writing: called before a report is made, which takes seconds where there are many tensors."""
    if failed is not None and not has_rows(folder):
        if isinstance(failed, BackendError) and outputs:
            with contextlib.suppress(OutputError):
                keep_log(folder / LOG, outputs)
        shutil.rmtree(folder, ignore_errors=True)
        return Outcome(None, failed)
    if outputs:
        on_writing()
    try:
        with stopping.finishing("the report is being written"):
            failure = error_sentence(failed) if failed else NOTHING
            return Outcome(deliver(folder, outputs, failure=failure, language=language), failed)
    except OutputError as error:
        return Outcome(None, error)
    except KeyboardInterrupt:
        return Outcome(None, BackendError("interrupted while the report was written", hint=rescue_command(folder)))


def find_error(folder: Path, status: int, interrupted: bool) -> PrecisionDebugError | None:
    """Return the error that a run ended with, by its exit status, journal and log; None where there is none."""
    if not (folder / JOURNAL).exists():
        return OutputError(say("folder_gone"), where=str(folder), hint=say("leave_it"))
    if interrupted and status != 0:
        hint = say("rows_in_report") if has_rows(folder) else say("nothing_yet")
        return BackendError(say("interrupted"), hint=hint)
    failure = next(read_events(folder / JOURNAL, Failure), None)
    if isinstance(failure, Failure):
        return error_in(failure)
    if status == 0:
        return None
    if status == UNTOLD:
        return OutputError(say("disk_full"), where=str(folder.parent), hint=say("free_space"))
    stage = find_last_stage(folder / JOURNAL)
    last = read_last_line(folder / LOG, headed=True)

    def crash(what: Reason, hint: Reason) -> BackendCrash:
        return BackendCrash(say("last_words", what=what, words=last) if last else what, where=stage, hint=hint)

    if status < 0:
        name = signal.Signals(-status).name
        if -status == signal.SIGKILL:
            return crash(say("killed", signal=name), say("smaller"))
        crashed = say("crashed", signal=name)
        whose = describe_crash(folder)
        typed = runs_with(folder)
        hint = say("runs_with", option=typed) if typed else say("verbose_shows")
        return crash(say("crashed_whose", what=crashed, whose=whose) if whose else crashed, hint)
    return crash(say("ended_with", status=status), say("verbose_shows"))
