"""Two files of one graph whose tensors have other names, as another exporter gives them: paired by what computes them.

A tensor's partner is the only one that the same operator computes from the partners of the same inputs, or that the
partner of its reader reads in the same place. All of it holds or nothing does: where one tensor finds no partner so,
the graphs differ in more than names, and a convolution into which a norm was folded would be taken for the plain one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..records import TensorMeta

__all__ = ["pair_isomorphic"]


def pair_isomorphic(
    baseline: Sequence[TensorMeta], target: Sequence[TensorMeta], known: Mapping[str, str]
) -> Mapping[str, str]:
    """Map target names to baseline names, of all that is not known yet; {} where that is not one and the same graph.

    known: target name to baseline name, of pairs that names decided.
    """
    walk = _Walk(baseline, target, known)
    if not walk.free or len(walk.free) != len(walk.free_bases):
        return {}
    while walk.forwards() + walk.backwards():
        pass
    return {} if walk.free else {name: base for name, base in walk.partner.items() if name not in known}


class _Walk:
    """free, free_bases: what has no partner yet, of each side. partner: in the order in which they were paired.

    Each round looks only at what the round before has changed: a chain takes as many rounds as it has operators.
    """

    def __init__(self, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta], known: Mapping[str, str]) -> None:
        self.base_of = {meta.name: meta for meta in baseline}
        self.target_of = {meta.name: meta for meta in target}
        self.partner = dict(known)
        taken = set(known.values())
        self.free = {name: meta for name, meta in self.target_of.items() if name not in known}
        self.free_bases = {name: meta for name, meta in self.base_of.items() if name not in taken}
        self._place = {name: place for place, name in enumerate(self.target_of)}
        self._ours: dict[object, dict[str, None]] = {}
        """Free tensors of the baseline, by what computes them."""
        for name, meta in self.free_bases.items():
            self._ours.setdefault(_signature_of(meta, meta.inputs), {})[name] = None
        self._theirs: dict[object, dict[str, None]] = {}
        """Free tensors of the target whose inputs all have partners, by what would compute them in the baseline."""
        self._lacks: dict[str, set[str]] = {}
        self._readers: dict[str, list[str]] = {}
        self._changed: dict[object, None] = {}
        for name, meta in self.free.items():
            self._lacks[name] = {source for source in meta.inputs if source not in self.partner}
            for source in self._lacks[name]:
                self._readers.setdefault(source, []).append(name)
            if not self._lacks[name]:
                self._ready(name)
        self._new = list(self.partner.items())
        self._read: dict[str, str] = {}

    def forwards(self) -> int:
        """Pair what the same operator computes from partners, where it is the only one on both sides; how many."""
        changed, self._changed = self._changed, {}
        alone = [
            (next(iter(names)), next(iter(ours))) for key in changed
            if len(names := self._theirs.get(key, {})) == 1 and len(ours := self._ours.get(key, {})) == 1
        ]  # fmt: skip
        return self._pair(sorted(alone, key=lambda pair: self._place[pair[0]]))

    def backwards(self) -> int:
        """Pair what partners read in the same place; how many."""
        new, self._new = self._new, []
        found: dict[str, None] = {}
        for name, base in new:
            reader, other = self.target_of.get(name), self.base_of.get(base)
            if reader is None or other is None or _signature_of(reader, ()) != _signature_of(other, ()):
                continue
            if len(reader.inputs) == len(other.inputs):
                for source, there in zip(reader.inputs, other.inputs, strict=True):
                    self._read[source] = there
                    found[source] = None
        return self._pair(
            (name, base) for name in found
            if name in self.free and (base := self._read[name]) in self.free_bases
            and _signature_of(self.free[name], ()) == _signature_of(self.free_bases[base], ())
        )  # fmt: skip

    def _pair(self, pairs: Iterable[tuple[str, str]]) -> int:
        count = 0
        for name, base in pairs:
            if name in self.free and base in self.free_bases:
                self._settle(name, base)
                count += 1
        return count

    def _settle(self, name: str, base: str) -> None:
        meta, other = self.free.pop(name), self.free_bases.pop(base)
        if meta.inputs and not self._lacks[name]:
            key = self._key(meta)
            del self._theirs[key][name]
            self._changed[key] = None
        key = _signature_of(other, other.inputs)
        del self._ours[key][base]
        self._changed[key] = None
        self.partner[name] = base
        self._new.append((name, base))
        for reader in self._readers.pop(name, ()):
            self._lacks[reader].discard(name)
            if reader in self.free and not self._lacks[reader]:
                self._ready(reader)

    def _ready(self, name: str) -> None:
        meta = self.free[name]
        if meta.inputs:
            key = self._key(meta)
            self._theirs.setdefault(key, {})[name] = None
            self._changed[key] = None

    def _key(self, meta: TensorMeta) -> object:
        return _signature_of(meta, [self.partner[source] for source in meta.inputs])


def _signature_of(meta: TensorMeta, inputs: Sequence[str]) -> object:
    return meta.op_type, meta.shape, tuple(inputs)
