"""Look for what two files do not share in what an operator reads that is made of constants alone, by others."""

from __future__ import annotations

import dataclasses
from typing import Any

from .files import find_file_difference
from .operator_facts import list_fixed
from .subject import Subject
from .undo import Case

__all__ = ["find_constant_behind"]


def find_constant_behind(case: Case) -> dict[str, Any]:
    """Return the constant, or the attribute, from which other operators make what an operator reads, and that makes
    its error where it is exchanged between the two files; {} where none does.

    An engine goes on with what it made of constants, whatever is put there: the operator that reads it is off by it."""
    subject = _without_what_is_fixed(case.subject, case.name)
    if subject is None:
        return {}
    found = find_file_difference(subject, case.name, dataclasses.replace(case, subject=subject))
    return found if found.get("left") is not None else {}  # None: not measured


def _without_what_is_fixed(subject: Subject, name: str) -> Subject | None:
    """Return the same with rows that no input of the model reaches, but this one, taken as parts of what reads them;
    None where there are none."""
    fixed = list_fixed(subject) - {name}
    inner = frozenset(row.name for row in subject.rows if row.name in fixed)
    return dataclasses.replace(subject, inner=inner) if inner else None
