"""Walks a file's operators in order, and gives each the model's own values as soon as they are known.

So a fault stays where it is: what follows it is computed from the model's values again, is equal again, and is paired
by that. A tensor that equals nothing is put to the test: with the value of a tensor of the model in its place, does
what follows agree? Then it is that one's partner, and the operators before it are wrong: their inputs agree and their
output does not. Where that cannot tell, the neighbours do: one operator of the same family, layer and shape that reads
the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....reasons import Reason
from ....reasons.ways import NO_WAY, Way, way
from .graph import BaseGraph, TargetGraph
from .likeness import SLACK, Names, agree, is_float, is_informative, measure_distance
from .same_layer import family_of_type

__all__ = ["Fault", "FoundPairs", "walk"]

Array = np.ndarray[Any, Any]

_AHEAD = 16
"""Operators that are run after a tensor to see whether the model's value fits there."""

_RIVALS = 16
"""Tensors of the model that are tried in one place."""

_MOST = 0.3
"""Share of elements that must be equal where only some of a weight are wrong."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A pair whose inputs agree and whose output does not. operators: names of those between, in order."""

    target: str
    baseline: str
    distance: float
    operators: tuple[str, ...]


@dataclass(kw_only=True)
class FoundPairs:
    """pairs: target name to (baseline name, how). faults: in order. refused: target name to why it was left alone."""

    pairs: dict[str, tuple[str, Way]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    refused: dict[str, Reason] = field(default_factory=dict)


def walk(
    base: BaseGraph, target: TargetGraph, anchors: Mapping[str, tuple[str, Way]], *,
    names: Names | None = None, outputs: Mapping[str, tuple[str, Way]] | None = None,
    refused: Mapping[str, Reason] | None = None,
) -> FoundPairs:  # fmt: skip
    """anchors: pairs that values decided already. outputs: pairs of the models' outputs.

    names: what the exporter wrote. refused: why values alone could not tell.
    """
    state = _Walk(base, target, names or Names())
    state.found.refused.update(refused or {})
    for name, (partner, how) in {**anchors, **(outputs or {})}.items():
        if partner not in state.taken:
            state.pair(name, partner, how)
    state.wrong = any(
        name not in target.own or not agree(target.own[name], base.values[partner], 10 * SLACK)
        for name, (partner, _) in state.found.pairs.items()
        if base.metas[partner].is_output
    )
    state.run()
    return state.found


class _Walk:
    def __init__(self, base: BaseGraph, target: TargetGraph, names: Names) -> None:
        self.base, self.target, self.names = base, target, names
        self.modules, self.layer_of = names.modules, names.layer_of
        self.wrong = True  # the models' outputs differ
        self.found = FoundPairs()
        self.taken: dict[str, str] = {}
        self.value: dict[str, Array] = {}  # what follows is computed from: the model's value where there is a partner
        self.moved: set[str] = set()  # names whose value is not the file's own

    def pair(self, name: str, partner: str, how: Way) -> None:
        self.found.pairs[name] = partner, how
        self.found.refused.pop(name, None)
        self.taken[partner] = name

    def run(self) -> None:
        for name in self.target.own:
            if name not in self.target.producer:
                self._pair_input(name)
        for one in self.target.operators:
            stale = any(name in self.moved for name in self.target.reads(one))
            lacking = any(name and name not in self.target.own for name in one.outputs)
            made = self.target.compute([one], self._now) if stale or lacking else {}
            for name in one.outputs:
                value = made.get(name, None if stale else self.target.own.get(name))
                if name and value is not None:
                    if stale:
                        self.moved.add(name)
                    self._settle(name, value)

    def _now(self, name: str) -> Array | None:
        value = self.value.get(name)
        return value if value is not None else self.target.own.get(name)

    def _pair_input(self, name: str) -> None:
        value = self.target.own[name]
        self.value[name] = value
        if name not in self.found.pairs:
            rivals = self._told_apart(name, self.base.equal_to(value, self.taken))
            if len(rivals) == 1 and is_informative(value):
                self.pair(name, rivals[0], way("the same values"))

    def _settle(self, name: str, value: Array) -> None:
        """Find a tensor's partner by what it is once its operator got the model's own values."""
        self.value[name] = value
        if name in self.found.pairs:
            self._check(name, value)
            return
        rivals = [rival for rival in self.base.equal_to(value, self.taken) if self.names.may_be(name, rival)]
        if rivals:
            self._by_value(name, value, rivals)
            return
        if not is_float(value) or value.size < 2 or not is_informative(value):
            return
        copied = bool(self.base.equal_to(value, ()))  # of a tensor that has its partner
        partner, how = ("", NO_WAY) if copied else self._mostly(name, value)
        if not partner:
            partner, how = ("", NO_WAY) if self._leads_on(name, value) else self._fitting(name, value)
        if partner:
            self.pair(name, partner, how)
            self._check(name, value)

    def _check(self, name: str, value: Array) -> None:
        """From here on the model's own value goes on; a difference that rounding does not explain is a fault."""
        partner = self.found.pairs[name][0]
        known = self.base.values[partner]
        if value.shape != known.shape:
            self._fault(name, partner, float("inf"))
            return
        if agree(value, known):
            if not np.array_equal(value, known) and name in self.moved:
                self.value[name] = known.astype(value.dtype, copy=False)
            return
        region = self.target.region(name, self.found.pairs)
        exact = self.target.compute(region, self._exactly).get(name)
        self.value[name] = known.astype(value.dtype, copy=False)
        self.moved.add(name)
        if exact is None:
            exact = value
        if not agree(exact, known) and not self._rounding(region, name, exact, known):
            self._fault(name, partner, measure_distance(exact, known))

    def _exactly(self, name: str) -> Array | None:
        """The model's own value of a tensor that has a partner, to the bit."""
        partner = self.found.pairs.get(name)
        own = self._now(name)
        if partner is None or own is None or self.base.values[partner[0]].shape != own.shape:
            return own
        return self.base.values[partner[0]].astype(own.dtype, copy=False)

    def _rounding(self, region: Any, name: str, value: Array, known: Array) -> bool:
        """Whether inputs that differ in the last bit move the output as far: then it says nothing."""
        random = np.random.default_rng(0)

        def shaken(one: str) -> Array | None:
            own = self._exactly(one)
            if own is None or own.dtype.kind != "f":
                return own
            noise = random.choice(np.array([-1.0, 1.0]), own.shape) * np.finfo(own.dtype).eps
            return np.asarray((own * (1 + noise)).astype(own.dtype))

        moved = self.target.compute(region, shaken).get(name)
        if moved is None or moved.dtype.kind != "f":
            return False
        with np.errstate(all="ignore"):
            noise, apart = float(np.nanmax(np.abs(moved - value))), float(np.nanmax(np.abs(value - known)))
        return apart <= 8 * noise

    def _fault(self, name: str, partner: str, apart: float) -> None:
        region = self.target.region(name, self.found.pairs)
        how = self.found.pairs[name][1]
        self.found.pairs[name] = partner, way("{how}; inputs agree, the output does not", how=how)
        self.found.faults.append(
            Fault(target=name, baseline=partner, distance=apart, operators=tuple(one.name for one in region))
        )

    def _by_value(self, name: str, value: Array, rivals: list[str]) -> None:
        here = self._sources(name)
        telling = is_informative(value)
        near = [rival for rival in rivals if self.base.sources(rival, self.taken) & here]
        chosen = near or (rivals if telling else [])
        if not telling:
            kind = self._kind(name)
            chosen = [rival for rival in chosen if family_of_type(self.base.metas[rival].op_type) == kind]
        chosen = self._told_apart(name, chosen)
        if len(chosen) > 1 and self._one_chain(chosen):
            chosen = chosen[:1]
        if len(chosen) == 1:
            self.pair(name, chosen[0], way("graph neighbours, and the same values"))
            if name in self.moved:
                self.value[name] = self.base.values[chosen[0]].astype(value.dtype, copy=False)

    def _told_apart(self, name: str, rivals: list[str]) -> list[str]:
        """Those that the layer, the tensors read and the family of the operator single out, in this order."""
        tests: list[Callable[[str], bool]] = []
        layer, here, kind = self.modules.get(name), self._sources(name), self._kind(name)
        if layer is not None:
            tests.append(lambda rival: self.layer_of(rival) == layer)
        tests.append(lambda rival: bool(here) and here <= frozenset(self.base.inputs_of.get(rival, ())))
        tests.append(lambda rival: bool(here & frozenset(self.base.inputs_of.get(rival, ()))))
        tests.append(lambda rival: family_of_type(self.base.metas[rival].op_type) == kind)
        for test in tests:
            if len(rivals) > 1:
                rivals = [rival for rival in rivals if test(rival)] or rivals
        return rivals

    def _one_chain(self, rivals: list[str]) -> bool:
        """Each computed from the one before, and all equal to the bit: any of them is as good as the first."""
        values = self.base.values
        return all(
            np.array_equal(values[rivals[0]], values[rival], equal_nan=is_float(values[rival])) for rival in rivals[1:]
        ) and all(self.base.computed_from(late, early) for early, late in itertools.pairwise(rivals))

    def _sources(self, name: str) -> frozenset[str]:
        return frozenset(self.found.pairs[one][0] for one in self.target.sources(name, self.found.pairs))

    def _kind(self, name: str) -> str:
        one = self.target.producer.get(name)
        return family_of_type(one.op_type) if one is not None else ""

    def _leads_on(self, name: str, value: Array) -> bool:
        """Whether what follows from a tensor agrees with the model: it has no partner, but it is right."""
        return bool(self._agreeing(name, value, but=""))

    def _agreeing(self, name: str, value: Array, *, but: str) -> str:
        """The first tensor after ``name`` that, computed from this value, equals one of the model's; "" where none.

        but: the tensor of the model whose value it is. A copy of that proves nothing; a tensor that becomes it again
        is its right place.
        """
        changed = {name: value}
        unknown: set[str] = set()
        for one in self.target.after(name, _AHEAD):
            reads = self.target.reads(one)
            if any(read in unknown or (read not in changed and self._now(read) is None) for read in reads):
                unknown.update(one.outputs)
                continue
            if not but and name not in self.moved and all(out in self.target.own for out in one.outputs):
                made = {out: self.target.own[out] for out in one.outputs}
            else:
                made = self.target.compute([one], lambda read: changed.get(read, self._now(read)))
            changed.update(made)
            unknown.update(out for out in one.outputs if out not in made)
            for out, result in made.items():
                if not is_informative(result) or self._insensitive(one, changed):
                    continue
                if but and agree(result, self.base.values[but]):
                    return ""
                for rival in self.base.equal_to(result, ()):
                    partner = self.taken.get(rival)
                    if (
                        partner is not None
                        and partner != out
                        and self.target.place.get(
                            self.target.producer[partner].name if partner in self.target.producer else "", -1
                        )
                        < self.target.place[one.name]
                    ):
                        continue
                    if not but or (rival != but and self.base.computed_from(rival, but)):
                        return out
        return ""

    def _insensitive(self, one: Any, changed: Mapping[str, Array]) -> bool:
        """Whether an operator reads nothing that was changed but as a shape."""
        return not any(read in changed and changed[read].size > 1 for read in self.target.reads(one))

    def _rivals(self, name: str, value: Array, here: Collection[str]) -> list[str]:
        """Tensors of the same shape that are computed from the same neighbours."""
        return [
            rival for rival in self.base.of_shape(value.shape, self.taken)
            if self.names.may_be(name, rival) and is_informative(self.base.values[rival])
            and self._beside(rival, here)
        ][:_RIVALS]  # fmt: skip

    def _beside(self, rival: str, here: Collection[str]) -> bool:
        """Whether it is computed from one of these; where there is none yet, from the model's inputs alone."""
        sources = self.base.sources(rival, self.taken)
        return bool(sources.intersection(here)) or (not here and not sources)

    def _mostly(self, name: str, value: Array) -> tuple[str, Way]:
        """The baseline tensor that this one equals but for some of its elements; "" where there is not one."""
        shares = sorted(
            (share, rival) for rival in self._rivals(name, value, self._sources(name))
            if (share := _share_of_equal(value, self.base.values[rival])) > _MOST
        )  # fmt: skip
        best = [rival for share, rival in shares if share > 0.9 * shares[-1][0]]
        best = self._told_apart(name, best)
        found = best[0] if len(best) == 1 else ""
        return found, way("graph neighbours, and the same values in most places") if found else NO_WAY

    def _fitting(self, name: str, value: Array) -> tuple[str, Way]:
        """The baseline tensor whose value belongs in this place, and how that is known; "" where nothing tells."""
        here = self._sources(name)
        rivals = self._rivals(name, value, here)
        if not rivals:
            return "", NO_WAY
        proven = [
            rival for rival in rivals
            if self._agreeing(name, self.base.values[rival].astype(value.dtype, copy=False), but=rival)
        ]  # fmt: skip
        proven = self._told_apart(name, proven)
        if len(proven) > 1:
            proven = self._closest(value, proven)
        if len(proven) == 1:
            return proven[0], way("graph neighbours: with the baseline's value in its place what follows agrees")
        return self._by_structure(name, rivals, here) if not proven else ("", NO_WAY)

    def _closest(self, value: Array, rivals: list[str]) -> list[str]:
        """The one that is much nearer than the others."""
        apart = sorted((measure_distance(value, self.base.values[rival]), place) for place, rival in enumerate(rivals))
        return [rivals[apart[0][1]]] if apart[0][0] * 2 < apart[1][0] else rivals

    def _by_structure(self, name: str, rivals: list[str], here: Collection[str]) -> tuple[str, Way]:
        """One operator of the same family that reads the same, in the same layer where the file says the layer."""
        if not self.wrong or not self._ends_its_layer(name):
            return "", NO_WAY
        kinds = {family_of_type(one.op_type) for one in self.target.region(name, self.found.pairs)}
        same = [
            rival for rival in rivals
            if family_of_type(self.base.metas[rival].op_type) in kinds
            and self.base.sources(rival, self.taken) == here
            and frozenset(self.base.inputs_of[rival]) <= frozenset(self.taken)
        ]  # fmt: skip
        layer = self.modules.get(name)
        if layer is not None:
            same = [rival for rival in same if self.layer_of(rival) == layer]
        if len(same) == 1:
            return same[0], way("graph neighbours: the same family of operator, inputs and shape")
        return "", NO_WAY

    def _ends_its_layer(self, name: str) -> bool:
        """Not where one reader goes on with the same layer: a product whose bias is added by an operator of its own."""
        readers = self.target.readers.get(name, [])
        if len(readers) != 1 or len(self.target.reads(readers[0])) != 1:
            return True
        after = readers[0].outputs[0]
        if name in self.modules and after in self.modules:
            return self.modules[name] != self.modules[after]
        return family_of_type(readers[0].op_type) != "add" and readers[0].op_type != "Identity"


def _share_of_equal(value: Array, known: Array) -> float:
    """Share of equal elements among those that are not about zero."""
    with np.errstate(all="ignore"):
        a, b = value.astype(np.float64), known.astype(np.float64)
        scale = float(np.sqrt(np.mean(np.square(b))))
        telling = np.abs(b) > 1e-2 * scale
        equal = np.abs(a - b) <= SLACK * (np.abs(b) + scale)
    return float(equal[telling].mean()) if telling.any() else 0.0
