"""Comparison of two builds of one model: which layers, and which tactics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ..reasons import Reason, say
from .layer import EngineLayer, describe_edge_types, is_opaque

__all__ = ["EngineDiff", "compare_engines"]


@dataclass(frozen=True, kw_only=True)
class EngineDiff:
    """Two engines by the names of their layers, copies into another format left aside.

    layers, reformats: how many each engine has; layers includes the copies. lost: only in the first. added: only in
    the second; a Myelin region with other outputs is another one, since it is compiled as a whole.
    tactics_changed: (layer, tactic in the first, tactic in the second) of the kept ones; where a tactic has no name,
    its number and the types that the layer reads and writes stand for it.
    """

    layers: tuple[int, int]
    reformats: tuple[int, int]
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    added: tuple[str, ...]
    tactics_changed: tuple[tuple[str, str, str], ...]

    @property
    def fusion_kept(self) -> bool:
        """Both have the same layers, copies aside."""
        return not self.lost and not self.added

    @property
    def summary(self) -> Reason:
        """One line for the report."""
        before, after = self.reformats
        layers = say("layers_to", before=self.layers[0], after=self.layers[1])
        if before != after:
            layers = say("layers_to_copies", layers=layers, before=before, after=after)
        changed, common = len(self.tactics_changed), len(self.kept)
        if self.fusion_kept:
            return say("fusion_kept", layers=layers, changed=changed, common=common)
        lost = say("lost", count=0)
        if self.lost:
            lost = say("lost_first", count=len(self.lost), name=self.lost[0])
        return say(
            "fusion_changed", layers=layers, kept=common, lost=lost, added=len(self.added), changed=changed,
            common=common,
        )  # fmt: skip


def compare_engines(first: Sequence[EngineLayer], second: Sequence[EngineLayer]) -> EngineDiff:
    """Compare two engines. A name that comes more than once is paired in order."""
    waiting: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, layer in enumerate(second):
        if not layer.is_reformat:
            waiting[_identity_of(layer)].append(place)
    kept: list[str] = []
    lost: list[str] = []
    tactics: list[tuple[str, str, str]] = []
    for layer in first:
        if layer.is_reformat:
            continue
        same = waiting[_identity_of(layer)]
        if not same:
            lost.append(layer.name)
            continue
        partner = second[same.pop(0)]
        kept.append(layer.name)
        if _tactic_of(partner) != _tactic_of(layer):
            tactics.append((layer.name, _tactic_of(layer), _tactic_of(partner)))
    return EngineDiff(
        layers=(len(first), len(second)),
        reformats=(sum(layer.is_reformat for layer in first), sum(layer.is_reformat for layer in second)),
        kept=tuple(kept),
        lost=tuple(lost),
        added=tuple(second[place].name for place in sorted(place for left in waiting.values() for place in left)),
        tactics_changed=tuple(tactics),
    )


def _identity_of(layer: EngineLayer) -> tuple[str, ...]:
    return (layer.name, *sorted(tensor.name for tensor in layer.outputs)) if is_opaque(layer) else (layer.name,)


def _tactic_of(layer: EngineLayer) -> str:
    if layer.tactic_name:
        return f"{layer.tactic_name} {layer.tactic_value}".rstrip()
    return f"{layer.tactic_value} {describe_edge_types(layer)}".lstrip()
