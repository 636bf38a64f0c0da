"""Whether an exported file holds a model's weights: the first thing to know before an operator is blamed.

A weight is looked for by its name and by its values: as it is, with its axes turned, in a lower precision, as a part of
a larger one (queries, keys and values in one product), and folded with a batch norm of the model, which is computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..protocols import Layer
from ..reasons import NOTHING, Reason, say
from .relation import describe_relation, fold, iterate_forms

__all__ = ["Weight", "compare_weights", "summarise_weights"]

Array = np.ndarray[Any, Any]

EQUAL, TURNED, ROUNDED, FOLDED, JOINED, DIFFERS, ABSENT = (
    "equal", "transposed", "rounded", "folded", "joined", "differs", "absent",
)  # fmt: skip
_SAME = 1e-5
"""Relative distance up to which two float32 weights are the same."""
_FEWEST = 4
"""Channels that are asked for an epsilon."""
_COUNTERS = "num_batches_tracked"


@dataclass(frozen=True, kw_only=True)
class Weight:
    """One parameter or buffer of the model.

    state: one of
        "equal"
        "transposed"  equal with its axes turned, under any name
        "rounded"     equal in the file's lower precision
        "joined"      a part of a larger one
        "folded"      with a batch norm of the model, recomputed
        "differs"     the name is there and holds something else
        "absent"      neither its name nor its values are in the file
    distance: relative L2 from the model's, where both are. said: how it differs.
    """

    name: str
    state: str
    distance: float | None = None
    said: Reason = NOTHING


def compare_weights(
    weights: Mapping[str, Array], file: Mapping[str, Array], layers: Iterable[Layer] = ()
) -> tuple[Weight, ...]:
    """Compare a model's weights with the constants of an exported file.

    file: the constants that the file's operators read, by name. layers: the model's, for its batch norms."""
    own = {name: value for name, value in weights.items() if value.size and not name.endswith(_COUNTERS)}
    search = _Search(own, file)
    found = {name: search.weight(name, value) for name, value in own.items()}
    _find_twins(found, search)
    for norm, layer in itertools.product(*([list(layers)] * 2)):
        if "variance" in norm.parameters and layer is not norm:
            _fold(found, search, norm, layer)
    return tuple(found.values())


def summarise_weights(weights: Sequence[Weight], path: str | Path, *, agrees: bool = False) -> tuple[Reason, ...]:
    """Return one sentence on what is there, and one on what differs. agrees: the outputs do all the same."""
    names: dict[str, list[str]] = {}
    for weight in weights:
        names.setdefault(weight.state, []).append(weight.name)
    file = Path(path).name
    same = sum(len(names.get(state, ())) for state in (EQUAL, TURNED))
    parts = [say("weights_same", count=same, all=len(weights), file=file)]
    if ROUNDED in names:
        parts.append(say("weights_rounded", count=len(names[ROUNDED])))
    if JOINED in names:
        parts.append(say("weights_joined", count=len(names[JOINED])))
    if FOLDED in names:
        parts.append(say("weights_folded", count=len(names[FOLDED])))
    if ABSENT in names:
        parts.append(say("weights_absent", count=len(names[ABSENT])))
    found = [say("weights", parts=parts)]
    if DIFFERS in names:
        worst = max((w for w in weights if w.state == DIFFERS), key=lambda w: w.distance or 0.0)
        count = len(names[DIFFERS])
        if agrees:
            other = [one for one in weights if one.state == DIFFERS]
            which = _few_names(
                [say("named", name=one.name, why=one.said) if _is_of_epsilon(one) else one.name for one in other]
            )
            found.append(say("weights_differ_all_the_same", count=count, file=file, which=which))
        else:
            why = worst.said or say("differs_by", name=worst.name, distance=worst.distance)
            found.append(
                say("weights_differ", count=count, file=file, worst=worst.name, why=why)
                if why.code == "other_checkpoint"
                else say("weights_differ_ask", count=count, file=file, worst=worst.name, why=why)
            )
    return tuple(found)


def _is_of_epsilon(weight: Weight) -> bool:
    return weight.said.code == "folded_with"


def _few_names(names: Sequence[str]) -> list[str]:
    return [*names[:4], *("…" for _ in names[4:5])]


class _Search:
    def __init__(self, own: Mapping[str, Array], file: Mapping[str, Array]) -> None:
        self.own, self.file = own, {name: value for name, value in file.items() if value.size}
        self._by_size: dict[tuple[int, ...], list[Array]] = {}
        for value in self.file.values():
            self._by_size.setdefault(_sizes_of(value), []).append(value)

    def of_size(self, like: Array) -> Sequence[Array]:
        return self._by_size.get(_sizes_of(like), ())

    def weight(self, name: str, own: Array) -> Weight:
        named = self.file.get(name)
        # what has its name is what is read in its place, whatever else in the file holds the same numbers
        candidates = self.of_size(own) if named is None or _sizes_of(named) != _sizes_of(own) else [named]
        for state, test in ((EQUAL, _are_equal), (TURNED, _is_turned), (ROUNDED, _is_rounded)):
            if any(test(own, value) for value in candidates):
                return Weight(name=name, state=state, distance=0.0 if state != ROUNDED else None)
        if self._part(own):
            return Weight(name=name, state=JOINED, distance=0.0)
        if named is not None and named.shape == own.shape:
            wide = own.astype(np.float64)
            norm = float(np.linalg.norm(wide))
            apart = float(np.linalg.norm(wide - named.astype(np.float64)))
            return Weight(
                name=name, state=DIFFERS, distance=apart / norm if norm else float("inf"),
                said=describe_relation(name, own, named, self.own) if own.dtype.kind == "f" else NOTHING,
            )  # fmt: skip
        return Weight(name=name, state=ABSENT)

    def _part(self, own: Array) -> bool:
        """Return whether it is a stretch of a larger one along one axis."""
        if own.ndim not in (1, 2) or own.size < 8 or own.dtype.kind != "f":
            return False
        for value in self.file.values():
            if value.ndim != own.ndim or value.size <= own.size or value.dtype.kind != "f":
                continue
            for form in (own, own.T) if own.ndim == 2 else (own,):
                if any(_is_inside(form, value, axis) for axis in range(own.ndim)):
                    return True
        return False


def _find_twins(found: dict[str, Weight], search: _Search) -> None:
    """Find which of several equal weights, renamed in the file, differs there, and by how much.

    Of such weights, one that the file has fewer times than the model, while it has a constant of that size that is none
    of the model's, is that one. Told by their order, which both keep."""
    renamed = [name for name, one in found.items() if one.state in (EQUAL, TURNED) and name not in search.file]
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name in renamed:
        own = search.own[name]
        if own.ndim > 1:
            groups.setdefault((own.shape, own.dtype.str, own.tobytes()), []).append(name)
    for names in groups.values():
        own = search.own[names[0]]
        others = [
            value for name, value in search.own.items() if name not in names and _sizes_of(value) == _sizes_of(own)
        ]
        alike = [_are_equal(own, value) or _is_turned(own, value) for value in search.of_size(own)]
        free = [
            (value, same) for value, same in zip(search.of_size(own), alike, strict=True)
            if same or not any(_are_equal(other, value) or _is_turned(other, value) for other in others)
        ]  # fmt: skip
        if len(names) < 2 or len(free) != len(names) or all(same for _, same in free):
            continue
        wide = own.astype(np.float64)
        for name, (value, same) in zip(names, free, strict=True):
            if not same:
                apart = min(float(np.linalg.norm(wide - form)) for form in _iterate_turns(wide, value))
                distance = apart / (float(np.linalg.norm(wide)) or 1.0)
                found[name] = Weight(name=name, state=DIFFERS, distance=distance)


def _iterate_turns(own: Array, value: Array) -> Iterator[Array]:
    for order in itertools.permutations(range(value.ndim)):
        if (turned := value.transpose(order)).shape == own.shape:
            yield turned.astype(np.float64)


def _is_inside(part: Array, whole: Array, axis: int) -> bool:
    if part.shape[axis] >= whole.shape[axis] or any(
        one != other for place, (one, other) in enumerate(zip(part.shape, whole.shape, strict=True)) if place != axis
    ):
        return False
    part, whole = np.moveaxis(part, axis, 0), np.moveaxis(whole, axis, 0)
    last = len(whole) - len(part) + 1
    first = (whole[:last].reshape(last, -1) == part[0].reshape(1, -1)).all(1)
    return any(np.array_equal(part, whole[start : start + len(part)]) for start in np.flatnonzero(first)[:8])


def _are_equal(own: Array, value: Array) -> bool:
    if own.shape == value.shape:
        return np.array_equal(own, value)
    return (
        _sizes_of(own) == _sizes_of(value)
        and [n for n in own.shape if n > 1] == [n for n in value.shape if n > 1]
        and (np.array_equal(own.ravel(), value.ravel()))
    )


def _is_turned(own: Array, value: Array) -> bool:
    return (
        own.ndim > 1
        and any(np.array_equal(form, value) for form in iterate_forms(own.astype(value.dtype), value))
        and (own.dtype == value.dtype)
    )


def _is_rounded(own: Array, value: Array) -> bool:
    if own.dtype == value.dtype or value.dtype.itemsize > own.dtype.itemsize:
        return False
    return any(np.array_equal(form, value) for form in iterate_forms(own, value))


def _fold(found: dict[str, Weight], search: _Search, norm: Layer, layer: Layer) -> None:
    """Mark a layer's weight and bias, and the norm's own, where the file has them folded into each other."""
    name, bias = layer.parameters.get("weight", ""), layer.parameters.get("bias", "")
    if name not in found or found[name].state not in (DIFFERS, ABSENT) or search.own[name].ndim < 2:
        return
    values = {role: search.own[full] for role, full in norm.parameters.items() if full in search.own}
    weight = search.own[name]
    if not {"mean", "variance"} <= set(values) or values["variance"].size != len(weight):
        return
    for value in search.of_size(weight):
        if value.shape != weight.shape:
            continue
        for epsilon in _iterate_epsilons(weight, value, values, norm):
            right, moved = fold(weight, search.own.get(bias), values, epsilon)
            if not _close(right, value):
                continue
            wanted = norm.attributes.get("epsilon", epsilon)
            if epsilon == wanted:
                epsilon = _fit_epsilon(weight, value, values, wanted)  # noqa: PLW2901
            state = FOLDED if abs(epsilon - wanted) <= 0.01 * wanted + 1e-9 else DIFFERS
            said = NOTHING if state == FOLDED else say("folded_with", epsilon=epsilon, wanted=wanted)
            found[name] = Weight(name=name, state=state, distance=0.0 if state == FOLDED else 1.0, said=said)
            if any(_close(moved, other) for other in search.of_size(moved)):
                for full in (bias, *norm.parameters.values()):
                    if full in found and found[full].state in (ABSENT, DIFFERS):
                        found[full] = Weight(name=full, state=FOLDED)
            return


def _fit_epsilon(weight: Array, value: Array, norm: Mapping[str, Array], own: float) -> float:
    """Return the epsilon that a folded weight's numbers tell, where they tell surely that it is not ``own``; else
    ``own``.

    From each channel, by least squares; the spread over the channels says how sure the middle of them is.
    """
    flat, other = (array.reshape(len(weight), -1).astype(np.float64) for array in (weight, value))
    with np.errstate(all="ignore"):
        factor = (flat * other).sum(1) / np.square(flat).sum(1)
        scale = norm.get("weight", np.ones(len(flat))).astype(np.float64)
        epsilons = np.square(scale / factor) - norm["variance"].astype(np.float64)
    epsilons = epsilons[np.isfinite(epsilons)]
    if len(epsilons) < _FEWEST:
        return own
    middle = float(np.median(epsilons))
    unsure = 1.5 * float(np.median(np.abs(epsilons - middle))) / float(np.sqrt(len(epsilons)))
    return middle if 0 < middle < 1 and abs(middle - own) > max(10 * unsure, 0.3 * own) else own


def _iterate_epsilons(weight: Array, value: Array, norm: Mapping[str, Array], layer: Layer) -> Iterator[float]:
    """Yield the layer's own epsilon, then the one that the file's numbers tell, where they tell one."""
    own = layer.attributes.get("epsilon")
    if isinstance(own, float):
        yield own
    flat, other = weight.reshape(len(weight), -1).astype(np.float64), value.reshape(len(weight), -1).astype(np.float64)
    place = np.abs(flat).argmax(1)
    rows = np.arange(len(flat))
    with np.errstate(all="ignore"):
        factor = other[rows, place] / flat[rows, place]
        epsilons = np.square(norm.get("weight", np.ones(len(flat))).astype(np.float64) / factor) - norm["variance"]
    epsilons = epsilons[np.isfinite(epsilons)]
    if epsilons.size and 0 < float(np.median(epsilons)) < 1:
        yield float(np.median(epsilons))


def _close(right: Array, value: Array) -> bool:
    if right.shape != value.shape:
        return False
    slack = _SAME if value.dtype.itemsize >= 4 else 2e-2
    norm = float(np.linalg.norm(right))
    return float(np.linalg.norm(right - value.astype(np.float64))) <= slack * norm


def _sizes_of(value: Array) -> tuple[int, ...]:
    return tuple(sorted(size for size in value.shape if size > 1))
