"""Operators that give another shape than the baseline's, of the same inputs: no error can be carried from them."""

from __future__ import annotations

from ..records import Culprit
from .files import files_differ
from .introduced import Alone
from .subject import Subject

__all__ = ["shapes_differ"]


def shapes_differ(subject: Subject, alone: Alone) -> tuple[Culprit, ...]:
    """One for each operator, in order, that is the first on its way to an output of another shape.

    Where the outputs have theirs, a shape on the way to them is a matter of words: numbers tell who did it.
    """
    rows = {row.name: row for row in subject.rows if row.comparison is not None and not row.comparison.shapes_match}
    outputs = [row.name for row in rows.values() if row.is_output]
    lead = {name for output in outputs for name in (output, *_before(subject, output))}
    found: dict[str, Culprit] = {}
    for name in sorted(rows.keys() & lead, key=lambda one: subject.order.get(one, 0)):
        exact, wrong = alone.exact.get(name), alone.wrong.get(name)
        if exact is None or wrong is None or exact.shape == wrong.shape or _before(subject, name) & rows.keys():
            continue
        row, meta = rows[name], subject.meta_of.get(name)
        difference = files_differ(subject, name) if meta is not None else {}
        found[name] = Culprit(
            name=name,
            node=row.node,
            op_types=(row.op_type,),
            cause="files_differ" if difference else "other_arithmetic",
            evidence=difference,
            confidence=alone.method,
            at=name,
            fails_first=name,
            keep=(name,),
        )
    return tuple(found.values())


def _before(subject: Subject, name: str) -> set[str]:
    """Every tensor that one depends on."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        meta = subject.meta_of.get(waiting.pop())
        for source in meta.inputs if meta is not None else ():
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found - {name}
