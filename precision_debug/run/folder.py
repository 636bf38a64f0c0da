"""The private folder that a run works in, beside its report: ``deliver`` makes the report of what lies there."""

from __future__ import annotations

__all__ = ["HELD", "JOB", "JOURNAL", "LOG", "PREFIX", "SCRATCH"]

PREFIX = ".precision_debug-"
"""How the names of runs' folders begin."""

SCRATCH = "precision_debug-"
"""How the names of folders in TMPDIR begin."""

JOB, JOURNAL, LOG = "job.json", "journal.jsonl", "log.txt"

HELD = ".held"
"""In a folder of TMPDIR: the file whose lock says that somebody works there."""
