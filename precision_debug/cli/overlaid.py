"""Outputs of the form NAME:PATH, which other viewers show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..report import Report

__all__ = ["asked", "write"]


def asked(outputs: Sequence[str]) -> tuple[list[Path], dict[str, Path]]:
    """The reports among outputs, and the path of each overlay by its name. Raises UsageError."""
    from ..report import overlays

    reports: list[Path] = []
    shown: dict[str, Path] = {}
    for output in outputs:
        name, path = overlays.split(output)
        if not name:
            reports.append(Path(path))
        elif name in shown:
            raise UsageError(f"{name}: is given twice", where=f"--output {output}", hint="write one of them")
        else:
            shown[name] = Path(path)
    return reports, shown


def write(report: Report, shown: Mapping[str, Path]) -> None:
    """Write each, after the reports: what a viewer cannot take costs no report. Raises OutputError."""
    from ..report import overlays

    for name, path in shown.items():
        overlays.write(report, name, path)
