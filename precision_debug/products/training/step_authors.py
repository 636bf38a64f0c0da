"""Whom an error of a training step is put down to, where the tensor that shows it was only moved there."""

from __future__ import annotations

from ...explain.operators import MOVE, plain_type
from ...explain.subject import Subject
from ...records import TensorMeta

__all__ = ["author_of"]


def author_of(subject: Subject, name: str, *, far: bool) -> TensorMeta:
    """Return the operator that computed a tensor's numbers.

    Of what only moves numbers about, the operator of the target alone that wrote into them before, else the last one of
    the baseline's region that computes; otherwise the tensor's own.

    far: its own error is far above rounding; then it may be that of one that the target alone wrote over what it
    reads."""
    own = subject.meta_of[name]
    if plain_type(own.op_type) not in MOVE:
        return (_written_over(subject, name) if far else None) or own
    writer = _written_between(subject, name)
    if writer is not None:
        return writer
    computing = [meta for meta in subject.region_of.get(name, ()) if plain_type(meta.op_type) not in MOVE]
    return computing[-1] if computing else own


def _written_over(subject: Subject, name: str) -> TensorMeta | None:
    """The last operator of the target alone that wrote into a tensor, or a view of one, that is read after it."""
    read = {subject.row_of[one].target_name for one in subject.sources(name)}
    found = None
    for meta in subject.targets.values():
        if meta.name == subject.row_of[name].target_name:
            break
        if meta.name in subject.partner:
            continue
        if plain_type(meta.op_type) in MOVE and not meta.op_type.endswith("_") and ":to[" not in meta.name:
            read |= {meta.name} if read & {*meta.inputs} else set()
        elif meta.op_type.endswith("_") and meta.inputs[:1] and meta.inputs[0] in read:
            found = meta
    return found


def _written_between(subject: Subject, name: str) -> TensorMeta | None:
    """The last operator in place that the target alone runs between what a tensor is made of and the tensor itself."""
    metas = list(subject.targets.values())
    place = {meta.name: number for number, meta in enumerate(metas)}
    row = subject.row_of[name]
    places = [place[subject.row_of[one].target_name] for one in subject.sources(name)
             if subject.row_of[one].target_name in place]  # fmt: skip
    if row.target_name not in place or not places:
        return None
    between = metas[max(places) + 1 : place[row.target_name]]
    writes = [meta for meta in between if meta.op_type.endswith("_") and meta.name not in subject.partner]
    return writes[-1] if writes else None
