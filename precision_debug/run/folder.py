"""The private folder that a run works in, beside its report: ``deliver`` makes the report of what lies there."""

from __future__ import annotations

__all__ = ["JOB", "JOURNAL", "LOG", "PREFIX"]

PREFIX = ".precision_debug-"
"""How the names of runs' folders begin."""

JOB, JOURNAL, LOG = "job.json", "journal.jsonl", "log.txt"
