"""Which input of the target is which of the baseline, where the two models call them differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import InputError
from ..reasons import Reason, say
from ..records import InputMeta
from .dtypes import as_dtype

__all__ = ["find_channel_transpose", "match_inputs"]


def match_inputs(
    baseline: Sequence[InputMeta], target: Sequence[InputMeta], renames: Mapping[str, str]
) -> tuple[dict[str, str], tuple[Reason, ...]]:
    """Map target inputs to baseline inputs, with notes on what was not settled by equal names.

    renames: target name to baseline name. Then equal names; then shape and type where only one fits; then the order,
    where every one of those that are left fits its counterpart. Raises InputError where one finds none.
    """
    ours, theirs = {meta.name: meta for meta in baseline}, {meta.name: meta for meta in target}
    found = {new: old for new, old in renames.items() if new in theirs and old in ours}
    found.update({name: name for name in theirs if name in ours and name not in found and name not in found.values()})
    notes: list[Reason] = []

    def left() -> tuple[list[str], list[str]]:
        return [name for name in ours if name not in found.values()], [name for name in theirs if name not in found]

    def note(new: str, how: Reason) -> None:
        notes.append(say("input_given", name=new, other=found[new], how=how))

    mine, others = left()
    fitting = {new: [old for old in mine if _fits(ours[old], theirs[new])] for new in others}
    for new, old in ((new, fits[0]) for new, fits in fitting.items() if len(fits) == 1):
        if sum(old in fits for fits in fitting.values()) == 1:
            found[new] = old
            note(new, say("only_fit"))
    mine, others = left()
    if len(mine) == len(others) and all(_fits(ours[old], theirs[new]) for old, new in zip(mine, others, strict=True)):
        for old, new in zip(mine, others, strict=True):
            found[new] = old
            note(new, say("by_order"))
    mine, others = left()
    for new in others:  # a converter that turns layouts mostly leaves names alone; where not, one that fits turned
        turned = [old for old in mine if (shape := ours[old].shape) is not None
                  and find_channel_transpose([one if isinstance(one, int) else -1 for one in shape],
                  theirs[new])]  # fmt: skip
        if len(turned) == 1 and turned[0] not in found.values():
            found[new] = turned[0]
            note(new, say("only_fit"))
    mine, others = left()
    wanting = [name for name in others if not theirs[name].optional]
    if wanting:
        raise InputError(
            f"the target's input '{wanting[0]}' has no counterpart among the baseline's ({', '.join(ours) or 'none'})",
            where="inputs", hint=f"name it: --rename {wanting[0]}=BASELINE_INPUT",
        )  # fmt: skip
    if mine:
        notes.append(say("only_baseline", names=mine))
    return {name: found[name] for name in theirs if name in found}, tuple(notes)


def _fits(one: InputMeta, other: InputMeta) -> bool:
    a, b = as_dtype(one.dtype), as_dtype(other.dtype)
    if one.dtype != other.dtype and a is not None and b is not None and _kind(one.dtype) != _kind(other.dtype):
        return False
    if one.shape is None or other.shape is None:
        return True
    if one.example or other.example:
        return len(one.shape) == len(other.shape)
    return _do_sizes_fit(one.shape, other.shape)


def _do_sizes_fit(one: Sequence[int | str], other: Sequence[int | str]) -> bool:
    return len(one) == len(other) and all(
        isinstance(x, str) or isinstance(y, str) or x == y or min(x, y) < 0 for x, y in zip(one, other, strict=True)
    )


def find_channel_transpose(shape: Sequence[int], wanted: InputMeta) -> tuple[int, ...]:
    """Return the axes by which an array becomes a converted model's input: channels first for last, or last for first.

    () where it fits as it is, or does not so either.
    """
    if wanted.shape is None or len(shape) < 3 or len(shape) != len(wanted.shape) or _do_sizes_fit(shape, wanted.shape):
        return ()
    places = tuple(range(len(shape)))
    for axes in ((0, *places[2:], 1), (0, places[-1], *places[1:-1])):
        if _do_sizes_fit([shape[axis] for axis in axes], wanted.shape):
            return axes
    return ()


def _kind(dtype: str) -> str:
    return "float" if "float" in dtype else "int" if "int" in dtype else dtype
