"""Which tensor of the baseline a tensor of the target is compared with, and how we know.

In this order, each baseline tensor at most once: the user's rename map; the source tensor that the backend names
(``TensorMeta.origin``); the same name. Across frameworks equal names mean nothing: there the values decide, before the
comparison and in equal arithmetic (``crossing``). Nothing is paired by position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .errors import MarkError
from .records import TensorMeta

__all__ = ["Alignment", "Matches", "Pair", "align", "stem"]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A target tensor's partner. how: "exact", "rename map", "graph metadata", "fingerprint, confidence …",
    "graph neighbours …" or "outputs of the model …"."""

    base: TensorMeta
    target: TensorMeta
    how: str


@dataclass(frozen=True, kw_only=True)
class Matches:
    """What a comparison of values, or a backend that knows both programs, said of two graphs.

    found: source name of a target tensor to (baseline name, how it was decided, with the confidence).
    refused: source name of a target tensor to why it was left alone. missing: the same of baseline names.
    """

    found: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Both lists and the pairs between them, by target name.

    rivals: target name to the name it lost against. refused: target name to why it was left alone. missing: the same
    of baseline names.
    """

    baseline: tuple[TensorMeta, ...]
    target: tuple[TensorMeta, ...]
    pairs: Mapping[str, Pair]
    rivals: Mapping[str, str]
    refused: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    def partner(self, target_name: str) -> Pair | None:
        """The pair of a name that the target's hook was called with, iterations ("name@3") included."""
        pair = self.pairs.get(target_name)
        if pair is not None:
            return pair
        name = stem(target_name)
        pair = self.pairs.get(name)
        if name == target_name or pair is None:
            return None
        base = dataclasses.replace(pair.base, name=pair.base.name + target_name[len(name) :])
        return Pair(base=base, target=pair.target, how=pair.how)


def stem(name: str) -> str:
    """A tensor's name without its iteration: "x@3" to "x"; any other name as it is."""
    before, at, iteration = name.rpartition("@")
    return before if at and iteration.isdigit() else name


def align(
    baseline: Sequence[TensorMeta],
    target: Sequence[TensorMeta],
    renames: Mapping[str, str] | None = None,
    matches: Matches | None = None,
) -> Alignment:
    """Pair two sessions' tensors by name.

    renames: target name to baseline name; a name that neither side has raises MarkError.
    matches: what their values said, where the two graphs come from different frameworks, or what a backend knows of
    two runs of its own; equal names mean nothing then.
    """
    renames = renames or {}
    by_name = {meta.name: meta for meta in baseline}
    by_source: dict[str, TensorMeta] = {}
    for meta in baseline:
        if meta.origin:
            by_source.setdefault(meta.origin, meta)
    by_source.update(by_name)
    target_names = {meta.name for meta in target}
    for new, old in renames.items():
        if new not in target_names or old not in by_name:
            side, name = ("target", new) if new not in target_names else ("baseline", old)
            raise MarkError(f"the rename map names '{name}', which the {side} does not have", where="--rename")

    pairs: dict[str, Pair] = {}
    rivals: dict[str, str] = {}
    taken: dict[str, str] = {}

    def claim(meta: TensorMeta, base: TensorMeta | None, how: str) -> None:
        if base is None or meta.name in pairs:
            return
        if base.name in taken:
            rivals.setdefault(meta.name, taken[base.name])
            return
        taken[base.name] = meta.name
        pairs[meta.name] = Pair(base=base, target=meta, how=how)

    for meta in target:
        if meta.name in renames:
            claim(meta, by_name[renames[meta.name]], "rename map")
    if matches is not None:
        for meta in target:
            base_name, how = matches.found.get(meta.origin or meta.name, ("", ""))
            claim(meta, by_name.get(base_name), how)
        refused = {meta.name: text for meta in target if (text := matches.refused.get(meta.origin or meta.name))}
        return Alignment(
            baseline=tuple(baseline), target=tuple(target), pairs=pairs, rivals=rivals, refused=refused,
            missing=matches.missing,
        )  # fmt: skip
    for meta in target:
        if meta.origin:
            base = by_source.get(meta.origin)
            claim(meta, base, "exact" if base is not None and base.name == meta.name else "graph metadata")
    for meta in target:
        if not meta.origin:
            base = by_source.get(meta.name)
            claim(meta, base, "exact" if base is not None and base.name == meta.name else "graph metadata")
    return Alignment(baseline=tuple(baseline), target=tuple(target), pairs=pairs, rivals=rivals)
