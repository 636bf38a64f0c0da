"""From a run's folder to the files that people asked for.

A run works in a private folder beside its report: job.json, journal.jsonl, log.txt, inputs.npz, worst-N.npz and what
the backends write. Delivering makes the report from the journal, puts the inputs and the worst tensors beside it, and
removes the folder.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import shlex
import shutil
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ..errors import OutputError, RecordingError
from ..events import RowDone, Saved
from ..reasons import say
from ..report import write
from ..report.from_journal import report_of_events
from ..report.model import Report
from .companion_files import forget_log, forget_tensors, has_usual_name, keep_inputs, keep_log, keep_tensors
from .journal import read_events
from .locked_folder import JOURNAL, LOG

__all__ = ["deliver", "has_rows", "rescue_command"]


def deliver(folder: Path, outputs: Sequence[Path], *, failure: str = "", language: str = "") -> Report:
    """Make the report of a run's folder, write it to every output, and remove the folder.

    language: see ``report.write``. failure: why the run ended early, where its journal does not say; the log is then
    kept beside the first output.
    Raises OutputError, which says where the finished rows are; the folder then stays, so that nothing is lost.
    """
    with ThreadPoolExecutor(1) as beside:
        # what backends wrote is large, and in nobody's way; the list is made before a report draws anything there
        clearing = beside.submit(_clear, [path for path in folder.iterdir() if path.is_dir()])
        try:
            report = _deliver(folder, outputs, failure, language, clearing)
        except OutputError as error:
            raise OutputError(error.what, where=error.where, hint=f"{error.hint}; {rescue_command(folder)}") from error
        except Exception as error:
            raise OutputError(_describe_unmade(error), where=str(folder), hint=rescue_command(folder)) from error
    shutil.rmtree(folder, ignore_errors=True)
    return report


def has_rows(folder: Path) -> bool:
    """Return whether a run came as far as to see a tensor."""
    try:
        return any(True for _ in read_events(folder / JOURNAL, Saved, RowDone))
    except RecordingError:  # a damaged one may hold rows all the same
        return (folder / JOURNAL).exists()


def rescue_command(folder: Path) -> str:
    """Return what to type for the rows of a run whose report could not be written."""
    if not (folder / JOURNAL).exists():
        return f"the run's folder {folder} was removed while it ran"
    journal = shlex.quote(str(folder / JOURNAL))
    return f"the finished rows are kept: `precision_debug report {journal} --output FILE` makes a report of them"


def _clear(folders: Sequence[Path]) -> None:
    """Remove the folders that the backends worked in."""
    for path in folders:
        shutil.rmtree(path, ignore_errors=True)


def _deliver(folder: Path, outputs: Sequence[Path], failure: str, language: str, clearing: Future[None]) -> Report:
    report = report_of_events(read_events(folder / JOURNAL), failure=failure)
    if not outputs:
        return report
    inputs = keep_inputs(folder / "inputs.npz", outputs, report.spec) if (folder / "inputs.npz").exists() else None
    log = keep_log(folder / LOG, outputs) if report.failure else None
    saved: tuple[str, ...] = ()
    if report.spec.save_tensors:
        from .saved import gather

        saved = gather(folder, report.rows, folder / "tensors.npz")
    tensors = keep_tensors(folder / "tensors.npz", outputs, report.spec) if saved else None
    report = dataclasses.replace(report, saved_tensors=saved)
    elsewhere = [
        kept.name for kept in (inputs, tensors, log) if kept is not None and not has_usual_name(outputs[0], kept)
    ]
    taken = [say("other_name", name=name) for name in elsewhere]
    report = dataclasses.replace(report, notes=(*report.notes, *taken))
    problems: list[OutputError] = []
    written = [_relate_to_output(report, output, inputs, tensors) for output in outputs]
    for each, output in zip(written, outputs, strict=True):
        try:
            _write(each, output, folder, language, clearing)
        except OutputError as error:  # the other outputs may still be written
            problems.append(error)
    if problems:
        raise problems[0]
    if not report.failure:
        forget_log(outputs)
    if tensors is None:
        forget_tensors(outputs)
    return written[0]


def _relate_to_output(report: Report, output: Path, inputs: Path | None, tensors: Path | None) -> Report:
    """Return the report as it stands at one place: it names its inputs and its tensors from there."""
    return dataclasses.replace(
        report,
        inputs_file=os.path.relpath(inputs, output.parent) if inputs else "",
        tensors_file=os.path.relpath(tensors, output.parent) if tensors else "",
    )


def _write(report: Report, output: Path, folder: Path, language: str, clearing: Future[None]) -> None:
    try:
        write(report, output, scratch=folder, language=language)
    except OutputError as error:
        if getattr(error.__cause__, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
            raise
        clearing.result()  # which may make room
        write(report, output, scratch=folder, language=language)
    except Exception as error:
        raise OutputError(_describe_unmade(error), where=str(output), hint="choose another format") from error


def _describe_unmade(error: Exception) -> str:
    return f"the report cannot be made: {type(error).__name__}: {error}"
