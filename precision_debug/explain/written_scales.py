"""Scales with which the target's file writes what an operator reads in integers, where that reads it with others."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..records import Operator
from .integer_grids import read_integers, write_integers
from .undo import LEFT, Case, measure_left_of

__all__ = ["find_other_writing"]

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]


def find_other_writing(case: Case) -> tuple[str, Evidence] | None:
    """Return that what an operator reads is written with another scale or zero point than it reads it with, and the
    constant of whoever writes it that is another one in the baseline's file, where the baseline's numbers, so written
    and so read, make the error; None elsewhere."""
    subject = case.subject
    baseline, target = subject.operators()
    if target is None:
        return None
    reader = target.operator(subject.row_of[case.name].target_name)
    for source in subject.sources(case.name) if reader is not None else ():
        there = subject.row_of[source].target_name if source in subject.row_of else source
        maker, exact = target.operator(there), case.alone.exact_of(source)
        pairs = [one.scales.get(there) for one in (maker, reader) if one is not None]
        whole = [[np.asarray(part).reshape(-1) for part in pair] for pair in pairs if pair is not None]
        if exact is None or maker is None or len(whole) < 2 or any(part.size != 1 for pair in whole for part in pair):
            continue
        (scale, zero), (other, origin) = whole
        differ = scale != other, zero != origin
        if not any(map(np.any, differ)) or {zero.dtype.kind, origin.dtype.kind} - {*"iu"}:
            continue
        read = case.again({source: read_integers(write_integers(exact, scale, zero), other, origin)})
        left = None if read is None else measure_left_of(case, case.wrong - read + case.exact)
        if left is None or left > LEFT:
            continue
        place = 0 if differ[0] else 1
        told = {"from": source, "written": _word(whole[0][place]), "read": _word(whole[1][place]), "left": left}
        changed = _find_changed(baseline.operator(source), maker, whole[0][place])
        return ("scale" if differ[0] else "zero_point"), {"weight": "", **told, **changed}
    return None


def _word(value: Array) -> str:
    return f"{value.item():.4g}"


def _find_changed(mine: Operator | None, theirs: Operator, value: Array) -> Evidence:
    """Return which constant of an operator that holds a number in the target's file holds another in the baseline's;
    {} of none."""
    for key, held in theirs.parameters.items() if mine is not None else ():
        own = np.asarray(mine.parameters.get(key, held)) if mine is not None else held
        if np.size(held) == np.size(own) == 1 and np.all(held == value) and not np.all(own == value):
            return {"constant": key, "base": _word(own)}
    return {}
