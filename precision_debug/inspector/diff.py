"""What two builds of one model have in common: which layers, and which tactics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .layers import EngineLayer

__all__ = ["EngineDiff", "diff_engines"]


@dataclass(frozen=True, kw_only=True)
class EngineDiff:
    """Two engines by the names of their layers, copies into another format left aside.

    layers, reformats: how many each engine has; layers includes the copies. lost: only in the first. added: only in
    the second. tactics_changed: (layer, tactic in the first, tactic in the second) of the kept ones.
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
    def summary(self) -> str:
        """One line for the report."""
        copies = (
            ""
            if self.reformats[0] == self.reformats[1]
            else f", format copies {self.reformats[0]} to {self.reformats[1]}"
        )
        tactics = f"{len(self.tactics_changed)} of {len(self.kept)} common layers run another tactic"
        if self.fusion_kept:
            return f"fusion kept: {self.layers[0]} layers to {self.layers[1]}{copies}; {tactics}"
        lost = f" (first: {self.lost[0]})" if self.lost else ""
        return (
            f"fusion changed: {self.layers[0]} layers to {self.layers[1]}{copies}; "
            f"{len(self.kept)} kept, {len(self.lost)} lost{lost}, {len(self.added)} added; {tactics}"
        )


def diff_engines(first: Sequence[EngineLayer], second: Sequence[EngineLayer]) -> EngineDiff:
    """Compare two engines. A name that comes more than once is paired in order."""
    waiting: dict[str, list[int]] = defaultdict(list)
    for place, layer in enumerate(second):
        if not layer.is_reformat:
            waiting[layer.name].append(place)
    kept: list[str] = []
    lost: list[str] = []
    tactics: list[tuple[str, str, str]] = []
    for layer in first:
        if layer.is_reformat:
            continue
        if not waiting[layer.name]:
            lost.append(layer.name)
            continue
        partner = second[waiting[layer.name].pop(0)]
        kept.append(layer.name)
        if partner.tactic_name != layer.tactic_name:
            tactics.append((layer.name, layer.tactic_name, partner.tactic_name))
    return EngineDiff(
        layers=(len(first), len(second)),
        reformats=(sum(layer.is_reformat for layer in first), sum(layer.is_reformat for layer in second)),
        kept=tuple(kept),
        lost=tuple(lost),
        added=tuple(second[place].name for place in sorted(place for left in waiting.values() for place in left)),
        tactics_changed=tuple(tactics),
    )
