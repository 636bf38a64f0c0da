"""Names as other tools write them: slashes as underscores, a number or a prefix in front, ":0" behind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

__all__ = ["SURE", "by_module", "same_names"]

SURE = 3
"""Levels below this say that two names are one; from it on values must not speak against it."""


def same_names(found: Sequence[str], wanted: Sequence[str]) -> Mapping[str, tuple[str, int]]:
    """Found name to the wanted one that it is, and at which level that was seen; each at most once.

    Levels: 0 equal, 1 but for signs and case, 2 but for a number in front and an index behind, 3 one is a part of the
    other, between signs. A level decides only where one name alone has one counterpart alone.
    """
    pairs: dict[str, tuple[str, int]] = {}
    levels: Sequence[Callable[[str], str]] = (str, _plain, _bare)
    for level, form in enumerate(levels):
        ours, theirs = _left(found, wanted, pairs)
        there = _by_form(theirs, form)
        for key, names in _by_form(ours, form).items():
            if key and len(names) == 1 and len(there.get(key, ())) == 1:
                pairs[names[0]] = there[key][0], level
    ours, theirs = _left(found, wanted, pairs)
    inside = {name: [one for one in theirs if _holds(_bare(name), _bare(one))] for name in ours}
    longest = {name: [one for one in ones if len(_bare(one)) == max(map(len, map(_bare, ones)))]
               for name, ones in inside.items() if ones}  # fmt: skip
    for name, ones in longest.items():
        if len(ones) == 1 and sum(ones[0] in others for others in longest.values()) == 1:
            pairs[name] = ones[0], SURE
    return pairs


def by_module(names: Sequence[str]) -> Mapping[str, str]:
    """Path of each module that names of tensors tell (a.b/mul is of a.b and of a), to the last one made in it."""
    found: dict[str, str] = {}
    for name in names:
        path = name.rpartition("/")[0]
        for end in [place for place, letter in enumerate(path) if letter in "./"] + [len(path)]:
            if path[:end].strip("./"):
                found[path[:end]] = name
    return {path: name for path, name in found.items() if path not in set(names)}


def _left(
    found: Sequence[str], wanted: Sequence[str], pairs: Mapping[str, tuple[str, int]]
) -> tuple[list[str], list[str]]:
    taken = {name for name, _ in pairs.values()}
    return [name for name in found if name not in pairs], [name for name in wanted if name not in taken]


def _by_form(names: Sequence[str], form: Callable[[str], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(form(name), []).append(name)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")


def _bare(name: str) -> str:
    """Without ":0" behind, "tensor"/"output" around and a running number in front."""
    plain = _plain(re.sub(r"[:.]\d+$", "", name))
    return re.sub(r"^\d+_", "", plain)


def _holds(long: str, short: str) -> bool:
    return len(short) > 1 and long != short and f"_{short}_" in f"_{long}_"
