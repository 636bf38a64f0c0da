"""Outputs of the form NAME:PATH, which other viewers show, and "github:", the summary of a GitHub Actions step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..run.companion_files import refuse_overwriting

if TYPE_CHECKING:
    from ..report import Report

__all__ = ["STEP", "refuse", "split_outputs", "write"]

STEP = "github"
"""An output that is added to what is there, and has no path of its own."""


def split_outputs(outputs: Sequence[str]) -> tuple[list[Path], dict[str, Path]]:
    """Return the reports among outputs, and the path of each overlay by its name. Raises UsageError."""
    from ..report import outputs as overlays

    reports: list[Path] = []
    shown: dict[str, Path] = {}
    for output in outputs:
        if output == f"{STEP}:":
            from ..report.formats import md

            summary = md.step_summary_file()
            if summary is None:
                hint = "it is for a step of GitHub Actions"
                raise UsageError(f"{md.VARIABLE} is not set", where=f"--output {STEP}:", hint=hint)
            shown[STEP] = summary
            continue
        name, path = overlays.split(output)
        if not name:
            reports.append(Path(path))
        elif name in shown:
            raise UsageError(f"{name}: is given twice", where=f"--output {output}", hint="keep one of them")
        else:
            shown[name] = Path(path)
    return reports, shown


def refuse(outputs: Sequence[Path], shown: Mapping[str, Path], *read: Any) -> None:
    """Raise UsageError where a report or an overlay would overwrite what is read, or what is somebody else's."""
    refuse_overwriting(
        [*outputs, *(path for name, path in shown.items() if name != STEP)], *read,
        added=[path for name, path in shown.items() if name == STEP],
    )  # fmt: skip


def write(report: Report, shown: Mapping[str, Path]) -> None:
    """Write each, after the reports: what a viewer cannot take costs no report. Raises OutputError."""
    from ..report import outputs as overlays

    for name, path in shown.items():
        if name == STEP:
            from ..report.formats import md

            md.append(report, path)
            continue
        overlays.write(report, name, path)
