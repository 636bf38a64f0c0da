"""Which tensor of the baseline a tensor of the target is compared with, and how we know.

In this order, each baseline tensor at most once: the user's rename map; the source tensor that the backend names
(``TensorMeta.origin``); the same name, where its producer can have made it (``producers``); the name without what a
quantiser appends; where it dropped a clamp, what the clamp read; of two files that are one graph but for names, what
computes it (``isomorphic``). Across frameworks equal names
mean nothing: there the values decide, before the comparison and in equal arithmetic (``run.across_frameworks``).
Nothing is paired by position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import MarkError
from ..protocols import Matches
from ..reasons import Reason, say
from ..records import TensorMeta
from .isomorphic import isomorphic
from .producers import fits, is_clamp, plain_name

__all__ = ["Alignment", "Pair", "align", "stem"]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A target tensor's partner. how: "exact", "rename map", "graph metadata", "fingerprint, confidence …",
    "graph neighbours …" or "outputs of the model …"."""

    base: TensorMeta
    target: TensorMeta
    how: str


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
    refused: Mapping[str, Reason] = field(default_factory=dict)
    missing: Mapping[str, Reason] = field(default_factory=dict)

    @classmethod
    def of(
        cls, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta], pairs: Mapping[str, tuple[str, str]],
        **rest: Any,
    ) -> Alignment:  # fmt: skip
        """What was decided before, by name: target name to (baseline name, how); of tensors that both lists have."""
        here, there = ({meta.name: meta for meta in side} for side in (target, baseline))
        found = {
            name: Pair(base=there[base], target=here[name], how=how)
            for name, (base, how) in pairs.items()
            if name in here and base in there
        }
        return cls(baseline=tuple(baseline), target=tuple(target), pairs=found, **rest)

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
    *,
    two_files: bool = False,
) -> Alignment:
    """Pair two sessions' tensors by name.

    renames: target name to baseline name; a name that neither side has raises MarkError.
    matches: what their values said, where the two graphs come from different frameworks, or what a backend knows of
    two runs of its own; equal names mean nothing then. two_files: another exporter may have named what they share.
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
    strangers: list[tuple[TensorMeta, TensorMeta]] = []
    for meta in target:
        base = None if meta.origin else by_source.get(meta.name)
        if base is not None and not meta.unseen and not fits(base.op_type, meta.op_type):
            strangers.append((meta, base))
        else:
            how = "exact" if base is not None and base.name == meta.name else "graph metadata"
            claim(meta, base, how)
    for meta, name in _quantised(baseline, target):
        if meta.name not in pairs and not _raw(meta, by_name.get(name)):
            claim(meta, by_name.get(name), "graph metadata")
    if two_files and not strangers:
        known = {name: pair.base.name for name, pair in pairs.items()}
        here_of = {meta.name: meta for meta in reversed(target)}  # of several of one name the first
        for name, there in isomorphic(baseline, target, known).items():
            claim(here_of[name], by_name[there], "graph neighbours")
    refused, missing = {}, {}
    for meta, base in strangers:
        before = by_name.get(base.inputs[0]) if is_clamp(base.op_type) and len(base.inputs) == 1 else None
        if before is not None and fits(before.op_type, meta.op_type):  # the quantiser dropped the clamp
            claim(meta, before, "graph metadata")
        refused[meta.name] = say("baseline_made_by", there=base.op_type, here=meta.op_type)
        missing[base.name] = say("target_made_by", there=meta.op_type, here=base.op_type)
    return Alignment(
        baseline=tuple(baseline), target=tuple(target), pairs=pairs, rivals=rivals,
        refused={name: text for name, text in refused.items() if name not in pairs},
        missing={name: text for name, text in missing.items() if name not in taken},
    )  # fmt: skip


def _raw(meta: TensorMeta, base: TensorMeta | None) -> bool:
    """Whether a quantised form is shown as its integers, whose scale is not known: they are no partner of floats."""
    return base is not None and "float" in base.dtype and meta.dtype.startswith(("int", "uint")) and not meta.view


def _quantised(baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]) -> list[tuple[TensorMeta, str]]:
    """The target's quantised forms, and the tensors that they hold; first what is shown, then what readers get.

    A clamp of the baseline that the target lacks is done by the zero point of what it read.
    """
    forms = [(meta, *plain_name(meta.origin or meta.name)) for meta in target]
    there = {name for _, name, _ in forms}
    clamped = {
        meta.inputs[0]: meta.name for meta in baseline
        if is_clamp(meta.op_type) and len(meta.inputs) == 1 and meta.name not in there
    }  # fmt: skip
    ranked = [(bool(meta.unseen), rank, meta, clamped.get(name, name)) for meta, name, rank in forms if rank >= 0]
    ranked.sort(key=lambda item: item[:2])
    return [(meta, name) for _, _, meta, name in ranked]
