"""Two files of one graph whose tensors have other names, as another exporter gives them: paired by what computes them.

A tensor's partner is the only one that the same operator computes from the partners of the same inputs, or that the
partner of its reader reads in the same place. All of it holds or nothing does: where one tensor finds no partner so,
the graphs differ in more than names, and a convolution into which a norm was folded would be taken for the plain one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..records import TensorMeta

__all__ = ["isomorphic"]


def isomorphic(
    baseline: Sequence[TensorMeta], target: Sequence[TensorMeta], known: Mapping[str, str]
) -> Mapping[str, str]:
    """Target name to baseline name of all that is not known yet; {} where that is not one and the same graph.

    known: target name to baseline name, of pairs that names decided.
    """
    walk = _Walk(baseline, target, known)
    if not walk.free or len(walk.free) != len(walk.free_bases):
        return {}
    while walk.forwards() + walk.backwards():
        pass
    return {} if walk.free else {name: base for name, base in walk.partner.items() if name not in known}


class _Walk:
    """free, free_bases: what has no partner yet, of each side."""

    def __init__(self, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta], known: Mapping[str, str]) -> None:
        self.base_of = {meta.name: meta for meta in baseline}
        self.target_of = {meta.name: meta for meta in target}
        self.partner = dict(known)
        taken = set(known.values())
        self.free = {name: meta for name, meta in self.target_of.items() if name not in known}
        self.free_bases = {name: meta for name, meta in self.base_of.items() if name not in taken}

    def forwards(self) -> int:
        """Pair what the same operator computes from partners, where it is the only one on both sides; how many."""
        theirs: dict[object, list[str]] = {}
        for name, meta in self.free.items():
            if meta.inputs and all(source in self.partner for source in meta.inputs):
                inputs = [self.partner[source] for source in meta.inputs]
                theirs.setdefault(_made(meta, inputs), []).append(name)
        ours: dict[object, list[str]] = {}
        for name, meta in self.free_bases.items():
            ours.setdefault(_made(meta, meta.inputs), []).append(name)
        alone = [
            (names[0], ours[key][0]) for key, names in theirs.items() if len(names) == 1 and len(ours.get(key, ())) == 1
        ]
        return self._pair(alone)

    def backwards(self) -> int:
        """Pair what partners read in the same place; how many."""
        found: dict[str, str] = {}
        for name, base in self.partner.items():
            reader, other = self.target_of.get(name), self.base_of.get(base)
            if reader is None or other is None or _made(reader, ()) != _made(other, ()):
                continue
            if len(reader.inputs) == len(other.inputs):
                found.update(zip(reader.inputs, other.inputs, strict=True))
        return self._pair(
            (name, base) for name, base in found.items()
            if name in self.free and base in self.free_bases
            and _made(self.free[name], ()) == _made(self.free_bases[base], ())
        )  # fmt: skip

    def _pair(self, pairs: Iterable[tuple[str, str]]) -> int:
        count = 0
        for name, base in pairs:
            if name in self.free and base in self.free_bases:
                self.partner[name] = base
                del self.free[name], self.free_bases[base]
                count += 1
        return count


def _made(meta: TensorMeta, inputs: Sequence[str]) -> object:
    return meta.op_type, meta.shape, tuple(inputs)
