"""Say how alike the values, or the names, of two tensors are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....protocols import Layer

__all__ = [
    "SLACK",
    "SURE",
    "Names",
    "agree",
    "is_float",
    "is_informative",
    "map_modules",
    "match_names",
    "measure_distance",
]


# Whether two tensors are equal but for the rounding of one operator in float32.

Array = np.ndarray[Any, Any]

SLACK = 1e-4
"""Of the element and of the tensor's root mean square together: far above float32's rounding in one operator (about
1e-6), far below what another weight or a missing bias does."""

_DISTINCT = 8
"""Different values below which a float tensor (a mask, a flag, a padding) may equal another by chance."""


def agree(one: Array, other: Array, slack: float = SLACK) -> bool:
    """Return every element within ``slack`` of its own size and of the tensor's; text, integers and truth values
    equal."""
    if one.shape != other.shape:
        return False
    if not (is_float(one) and is_float(other)):
        return bool(np.array_equal(one, other))
    with np.errstate(all="ignore"):
        a, b = one.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(b)
        if not finite.all():
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            if not same[~finite].all():
                return False
            a, b = a[finite], b[finite]
        scale = float(np.sqrt(np.mean(np.square(b)))) if b.size else 0.0
        return bool((np.abs(a - b) <= slack * (np.abs(b) + scale)).all())


def measure_distance(one: Array, other: Array) -> float:
    """Return relative L2 distance of ``one`` from ``other``; inf where the shapes differ or a number is not finite."""
    if one.shape != other.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        a, b = one.astype(np.float64), other.astype(np.float64)
        norm = float(np.linalg.norm(b))
        apart = float(np.linalg.norm(a - b))
    return apart / norm if norm else (0.0 if apart == 0 else float("inf"))


def is_informative(array: Array) -> bool:
    """Return whether equal values mean something: a float tensor with at least 8 different values among the first
    4096."""
    return is_float(array) and np.unique(array.ravel()[:4096]).size >= _DISTINCT


def is_float(array: Array) -> bool:
    """Floats, bfloat16 and the like included."""
    return bool(array.dtype.kind == "f") or array.dtype.name.startswith(("bfloat", "float"))


# What an exporter wrote into a file about where its tensors come from, beside the layers of the model.

def _mask_known_words(name: str) -> str:  # noqa: ARG001
    return ""


@dataclass(frozen=True, kw_only=True)
class Names:
    """modules: target name to the layer that it comes from. layer_of: the same of a baseline name. layers: by these.

    shapes: of the model's weights.
    """

    modules: Mapping[str, str] = field(default_factory=dict)
    layer_of: Callable[[str], str] = _mask_known_words
    layers: Mapping[str, Layer] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def may_be(self, target: str, baseline: str) -> bool:
        """Not where both come from layers with weights of one shape, and from different ones: a swap, or a copy."""
        one, other = self.modules.get(target), self.layer_of(baseline)
        return one is None or one == other or not self._sizes(one) or self._sizes(one) != self._sizes(other)

    def _sizes(self, layer: str) -> tuple[int, ...]:
        found = self.layers.get(layer)
        return self.shapes.get(found.parameters.get("weight", ""), ()) if found is not None else ()


# Names as other tools write them: slashes as underscores, a number or a prefix in front, ":0" behind.

SURE = 3
"""Levels below this say that two names are one; from it on values must not speak against it."""


def match_names(found: Sequence[str], wanted: Sequence[str]) -> Mapping[str, tuple[str, int]]:
    """Found name to the wanted one that it is, and at which level that was seen; each at most once.

    Levels: 0 equal, 1 but for signs and case, 2 but for a number in front and an index behind, 3 one is a part of the
    other, between signs. A level decides only where one name alone has one counterpart alone.
    """
    pairs: dict[str, tuple[str, int]] = {}
    levels: Sequence[Callable[[str], str]] = (str, _plain_name, _bare_name)
    for level, form in enumerate(levels):
        ours, theirs = _list_unmatched(found, wanted, pairs)
        there = _group_by_form(theirs, form)
        for key, names in _group_by_form(ours, form).items():
            if key and len(names) == 1 and len(there.get(key, ())) == 1:
                pairs[names[0]] = there[key][0], level
    ours, theirs = _list_unmatched(found, wanted, pairs)
    inside = {name: [one for one in theirs if _holds(_bare_name(name), _bare_name(one))] for name in ours}
    longest = {name: [one for one in ones if len(_bare_name(one)) == max(map(len, map(_bare_name, ones)))]
               for name, ones in inside.items() if ones}  # fmt: skip
    for name, ones in longest.items():
        if len(ones) == 1 and sum(ones[0] in others for others in longest.values()) == 1:
            pairs[name] = ones[0], SURE
    return pairs


def map_modules(names: Sequence[str]) -> Mapping[str, str]:
    """Return the path of each module that names of tensors tell (a.b/mul is of a.b and of a), to the last one made in
    it."""
    found: dict[str, str] = {}
    for name in names:
        path = name.rpartition("/")[0]
        for end in [place for place, letter in enumerate(path) if letter in "./"] + [len(path)]:
            if path[:end].strip("./"):
                found[path[:end]] = name
    return {path: name for path, name in found.items() if path not in set(names)}


def _list_unmatched(
    found: Sequence[str], wanted: Sequence[str], pairs: Mapping[str, tuple[str, int]]
) -> tuple[list[str], list[str]]:
    taken = {name for name, _ in pairs.values()}
    return [name for name in found if name not in pairs], [name for name in wanted if name not in taken]


def _group_by_form(names: Sequence[str], form: Callable[[str], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(form(name), []).append(name)
    return found


def _plain_name(name: str) -> str:
    return re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")


def _bare_name(name: str) -> str:
    """Without ":0" behind, "tensor"/"output" around and a running number in front."""
    plain = _plain_name(re.sub(r"[:.]\d+$", "", name))
    return re.sub(r"^\d+_", "", plain)


def _holds(long: str, short: str) -> bool:
    return len(short) > 1 and long != short and f"_{short}_" in f"_{long}_"
