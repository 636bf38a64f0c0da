"""From a run's folder to the files that people asked for.

A run works in a private folder beside its report: job.json, journal.jsonl, log.txt, inputs.npz and what the backends
write. Delivering makes the report from the journal, puts the inputs beside it, and removes the folder.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .assemble import report_of_events
from .journal import read_events
from .report import write
from .report.model import Report

__all__ = ["JOB", "JOURNAL", "LOG", "deliver", "inputs_path"]

JOB, JOURNAL, LOG = "job.json", "journal.jsonl", "log.txt"


def inputs_path(output: Path) -> Path:
    """Where the inputs of a report are kept: output.xlsx -> output.inputs.npz."""
    return output.with_name(output.stem + ".inputs.npz")


def deliver(folder: Path, outputs: Sequence[Path], *, failure: str = "") -> Report:
    """Make the report of a run's folder, write it to every output, and remove the folder.

    failure: why the run ended early, where its journal does not say; the log is then kept beside the first output.
    Raises OutputError; the folder then stays, so that nothing is lost.
    """
    with ThreadPoolExecutor(1) as beside:
        beside.submit(_clear, folder)  # what backends wrote is large, and in nobody's way
        return _deliver(folder, outputs, failure)


def _clear(folder: Path) -> None:
    """Remove the folders that the backends worked in."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def _deliver(folder: Path, outputs: Sequence[Path], failure: str) -> Report:
    report = report_of_events(read_events(folder / JOURNAL), failure=failure)
    if outputs:
        stored = _keep_inputs(folder / "inputs.npz", outputs[0])
        report = dataclasses.replace(report, inputs_file=stored)
        for output in outputs:
            write(report, output)
        log = folder / LOG
        kept = outputs[0].with_suffix(".log")
        if report.failure and log.exists() and log.stat().st_size:
            os.replace(log, kept)
        elif not report.failure:
            kept.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    return report


def _keep_inputs(made: Path, output: Path) -> str:
    if not made.exists():
        return ""
    output.parent.mkdir(parents=True, exist_ok=True)
    kept = inputs_path(output)
    os.replace(made, kept)
    return kept.name
