"""Which tensors of a model are those that somebody else's run left behind, in whatever names and layouts.

Names first, where they are the model's but for how tools write them. Then values: both runs had the same input, so
what belongs together is equal to rounding, in one of the layouts that it may have. What comes after a wrong operator
is equal to nothing: so the model goes on from the tensors that were found, and everything is compared with what it
makes of those. Where that ends, a place in the graph is tried for each tensor that is left, and taken where what
follows then fits: position and value together, never position alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...numbers.arrays import as_array
from ...observe.store import Store
from ...pairing.arrangement import Arrangement, arrange, list_arrangements
from ...protocols import Feeds, Session
from ...reasons import Reason, say
from ...reasons.ways import NO_WAY, Way, way
from ...records import TensorMeta
from .pairing.fingerprint import ALIKE, DISTINCT, Fingerprint, pair_by_value, take
from .pairing.found_tensor import FoundTensor, group_by_stage
from .pairing.fused import Projections, Stack, find_best_stack, find_projections, is_same_module
from .pairing.likeness import SURE, map_modules, match_names

__all__ = ["TensorMatch", "TensorMatches", "match_tensors"]

Array = np.ndarray[Any, Any]

_FAR = 0.5
"""Relative distance from which values speak against a name that is not sure."""

_MADE = way("value, from what comes before it")

_SAME = 1e-4
"""Distance from which on there is nothing to doubt: nothing else is tried then."""

_SCORED = 400
"""Tensors that tell which ranks share a stage."""

_TRIALS = 40
"""Places that are tried for tensors that neither names nor values tell."""


@dataclass(frozen=True, kw_only=True)
class TensorMatch:
    """A match of a found tensor with one of the model's.

    how: "name", "value", "position and value", "name and value", …. distance: relative L2 of the values of both runs at
    fixed places; None where that is no number. arrangement: from the found tensor's layout to the model's. form: which
    of the found tensor's forms it is."""

    base: str
    how: Way
    arrangement: Arrangement
    distance: float | None = None
    form: int = 0


@dataclass(frozen=True, kw_only=True)
class TensorMatches:
    """All matches of a dump's tensors with a model's, and what has none.

    found: by the name of the found tensor. refused: why others were left alone. missing: the model's tensors, in order,
    that none was found for. tensors: all that were looked at, by name: what was fused, or of several stages, is taken
    apart there."""

    found: Mapping[str, TensorMatch] = field(default_factory=dict)
    tensors: Mapping[str, FoundTensor] = field(default_factory=dict)
    refused: Mapping[str, Reason] = field(default_factory=dict)
    missing: Sequence[str] = ()


def match_tensors(session: Session, feeds: Feeds, others: Sequence[FoundTensor], store: Store) -> TensorMatches:
    """session: of the model, in float32; it is run, several times where it can go on with other values.

    store: where its tensors are kept meanwhile. Raises PrecisionDebugError.
    """
    work = _Work(session, feeds, others, store)
    work.by_value(work.prints, way("value"))
    if work.take_apart(work.prints):
        work.by_value(work.prints, way("value"))
    work.take_apart(work.prints, by_name=True)
    work.by_name()
    work.copies(work.prints)
    while work.goes_on():
        pass
    work.ends()
    missing = [name for name in work.metas if name not in work.taken]
    refused = {name: why for name, why in work.refused.items() if name not in work.found}
    return TensorMatches(found=work.found, refused=refused, missing=missing, tensors=work.others)


@dataclass(frozen=True, kw_only=True)
class _View:
    """A found tensor in one form and layout, and its fingerprint there."""

    arrangement: Arrangement
    form: int
    print_: Fingerprint


class _Work:
    def __init__(self, session: Session, feeds: Feeds, others: Sequence[FoundTensor], store: Store) -> None:
        self.session, self.feeds = session, feeds
        self.others: dict[str, FoundTensor] = {}
        self.found: dict[str, TensorMatch] = {}
        self.refused: dict[str, Reason] = {}
        self.taken: dict[str, str] = {}
        self.votes: Counter[tuple[int, ...]] = Counter()
        self.trials = 0
        self.explained: Mapping[str, float] = {}
        self._views: dict[tuple[str, tuple[int, ...]], list[_View]] = {}
        self._tried: set[tuple[str, str, int]] = set()

        def keep(_op_type: str, name: str, tensor: Any, /) -> None:
            array = as_array(tensor, name=name)
            if name not in store and array.dtype.kind not in "OUSTMm":
                store.put(name, array)

        session.run(feeds, keep)
        self.metas = {meta.name: meta for meta in session.tensors if meta.name in store}
        self.shapes = {name: held.shape for name in self.metas if (held := store.get(name)) is not None}
        self.prints = {name: p for name in self.metas if (p := take(store.get(name))) is not None}
        self.projections = find_projections(list(self.metas.values()), self.shapes, self.prints)
        self.stacks: Counter[Stack] = Counter()
        self.others = {one.name: one for one in group_by_stage(others, self.alike)}
        self._views.clear()
        names, modules = list(self.metas), map_modules(list(self.metas))
        self.called = dict(match_names(list(self.others), names))
        for name, (module, level) in match_names(list(self.others), list(modules)).items():
            if name not in self.called or level < SURE <= self.called[name][1]:
                self.called[name] = modules[module], level
        for name, (base, level) in self.called.items():
            if self.others[name].renumbered:
                self.called[name] = base, max(level, SURE)

    def views(self, name: str, shape: tuple[int, ...]) -> list[_View]:
        """Return what a found tensor is in each layout that has this shape."""
        if (name, shape) not in self._views:
            count, listed = int(np.prod(shape, dtype=np.int64)), []
            for place, form in enumerate(self.others[name].forms):
                for how in list_arrangements(form.shape, shape) if form.value.size == count else ():
                    print_ = take(arrange(form.value, how))
                    if print_ is not None:
                        listed.append(_View(arrangement=how, form=place, print_=print_))
            self._views[name, shape] = listed
        return self._views[name, shape]

    def value(self, name: str, view: _View) -> Array:
        """Return a found tensor as the model has it."""
        return arrange(self.others[name].forms[view.form].value, view.arrangement)

    def closest(self, name: str, base: str, prints: Mapping[str, Fingerprint]) -> tuple[_View, float] | None:
        """Return the layout in which a found tensor is nearest to the model's, and how near that is; None: none
        fits."""
        views = self.views(name, self.shapes[base])
        if not views or base not in prints:
            return None
        distances = [_measure_distance(prints[base].own, view.print_.own) for view in views]
        near = min(distances) <= ALIKE  # else values do not tell, and the layout of the others does
        votes = [0 if near else -self.votes[view.arrangement.axes] for view in views]
        best = min(range(len(views)), key=lambda at: (votes[at], distances[at]))
        return views[best], distances[best]

    def take(self, name: str, base: str, how: Way, view: _View, distance: float | None) -> None:
        if joined := self.others[name].forms[view.form].how:
            how = way("{how}, {more}", how=how, more=joined)
        self.found[name] = TensorMatch(
            base=base, how=how, arrangement=view.arrangement, distance=distance, form=view.form
        )  # fmt: skip
        self.taken[base] = name
        if distance is not None and distance <= ALIKE and len(self.views(name, self.shapes[base])) > 1:
            self.votes[view.arrangement.axes] += 1

    def alike(self, others: Sequence[FoundTensor]) -> int:
        """Return how many of the model's tensors these hold, by value; of several ranks, all of them together."""
        self.others = {one.name: one for one in others}
        self._views.clear()
        known: dict[tuple[int, ...], list[str]] = {}
        for base, print_ in self.prints.items():
            if print_.distinct >= DISTINCT:
                known.setdefault(self.shapes[base], []).append(base)
        stacked = {shape: np.stack([self.prints[base].own for base in bases]) for shape, bases in known.items()}
        found: set[str] = set()
        for one in [one for one in others if len(one.ranks) > 1 or one.of][:_SCORED]:
            for shape, bases in known.items():
                for view in self.views(one.name, shape):
                    if one.parts and not one.forms[view.form].how:
                        continue  # of the first rank alone
                    norm = float(np.linalg.norm(view.print_.own))
                    far = np.linalg.norm(stacked[shape] - view.print_.own, axis=1)
                    if norm and far.min() <= ALIKE * norm:
                        found.add(bases[int(far.argmin())])
        return len(found)

    def take_apart(self, prints: Mapping[str, Fingerprint], *, by_name: bool = False) -> int:
        """Split what an engine computed as one into the projections of the model; return how many were.

        by_name: those too whose values tell nothing, by their names, as the others are stacked."""
        count = 0
        for name, one in list(self.others.items()):
            called, level = self.called.get(name, ("", SURE))
            if name in self.found or one.part or (level < SURE and self.views(name, self.shapes[called])):
                continue
            for form in one.forms if not one.parts else one.forms[:-1]:
                ranks = len(one.parts) + 1 if "joined" in form.how else 1
                best: tuple[Projections, float, Stack] | None = None
                for group in self.projections:
                    if form.value.ndim and form.shape is not None and form.shape[-1] * group.rows != form.value.size:
                        continue
                    if any(base in self.taken for base in group.names):
                        continue
                    fit = find_best_stack(form.value, group, prints, ranks=ranks, known=tuple(self.stacks))
                    if fit is not None and (best is None or fit[1] < best[1]):
                        best = group, fit[1], fit[0]
                    modules = [base.rpartition("/")[0] or base for base in group.names]
                    if fit is None and best is None and by_name and is_same_module(name, modules):
                        stack = self.likely(form.value, group, ranks)
                        best = (group, np.inf, stack) if stack is not None else None
                if best is not None:
                    self.replace(one, form.value, form.how, *best)
                    count += 1
                    break
        return count

    def likely(self, value: Array, group: Projections, ranks: int) -> Stack | None:
        """Return how a stacked tensor whose values tell nothing is stacked: as most others, or one after the other."""
        plain = Stack(order=tuple(range(len(group.names))), groups=ranks)
        ways = [*(stack for stack, _ in self.stacks.most_common() if len(stack.order) == len(group.names)), plain]
        return next((stack for stack in ways if stack.taken_apart(value, group) is not None), None)

    def replace(self, one: FoundTensor, value: Array, how: Way, group: Projections, far: float, stack: Stack) -> None:
        """Its parts in its place, each called as the model's projection that it is."""
        parts = stack.taken_apart(value, group) or ()
        del self.others[one.name]
        self.refused.pop(one.name, None)
        if far <= ALIKE:
            self.stacks[stack] += 1
        for number, (base, part) in enumerate(zip(group.names, parts, strict=True), start=1):
            name = f"{one.name} ({number} of {len(group.names)})"
            told = way("part {number} of {count}", number=number, count=len(group.names))
            self.others[name] = FoundTensor(
                name=name, value=part, shape=tuple(part.shape), op_type=one.op_type, of=one.of or one.name,
                part=way("{how}, {more}", how=how, more=told) if how else told,
            )  # fmt: skip
            path = base.rpartition("/")[0]
            same = [other for other in self.metas if path and other.rpartition("/")[0] == path and other in self.prints
                    and np.array_equal(self.prints[other].own, self.prints[base].own)]  # fmt: skip
            self.called[name] = (same or [base])[-1], 0

    def by_name(self) -> None:
        """Of what values do not tell."""
        for name, (base, level) in self.called.items():
            if name in self.found or base in self.taken:
                continue
            near = self.closest(name, base, self.prints)
            if near is None:
                one = self.others[name]
                own = list(one.value.shape if one.shape is None else one.shape)
                self.refused[name] = say("name_shape", name=base, own=str(own), shape=str(list(self.shapes[base])))
            elif level < SURE or near[1] < _FAR:
                self.take(name, base, way("name"), *near)

    def copies(self, prints: Mapping[str, Fingerprint]) -> int:
        """Match the most plainly named of several tensors that all hold one tensor of the model's; return how many.

        They hold what that one does, and no other."""
        before = len(self.found)
        near: dict[str, list[tuple[str, _View, float]]] = {}
        rivals: dict[str, set[str]] = {}
        for base in [base for base in self.metas if base not in self.taken and base in prints]:
            for name in [name for name in self.others if name not in self.found]:
                one = self.closest(name, base, prints)
                if one is not None and one[1] <= ALIKE and prints[base].distinct >= DISTINCT:
                    near.setdefault(base, []).append((name, *one))
                    rivals.setdefault(name, set()).add(base)
        for base, names in near.items():
            if all(rivals[name] == {base} for name, *_ in names):
                name, view, distance = min(names, key=lambda one: (len(one[0]), one[0]))
                self.take(name, base, way("value, as others that are equal"), view, distance)
        return len(self.found) - before

    def by_value(self, prints: Mapping[str, Fingerprint], how: Way) -> int:
        """Pair what is left by these values of the model, of equal ones as they are called; how many."""
        before = len(self.found)
        for name, (base, _) in self.called.items():
            near = None if name in self.found or base in self.taken else self.closest(name, base, prints)
            if near is not None and near[1] <= ALIKE:
                self.take(name, base, way(f"name and {how}"), *near)
        ours = [(meta, prints[name]) for name, meta in self.metas.items() if name in prints and name not in self.taken]
        theirs = []
        for name, one in self.others.items():
            if name not in self.found and (print_ := take(one.forms[0].value)) is not None:
                theirs.append((TensorMeta(name=name, op_type=one.op_type), print_))
        matched = pair_by_value(
            ours, theirs, views=lambda name, shape: [view.print_ for view in self.views(name, shape)]
        )
        for name, match in matched.matches.items():
            near = self.closest(name, match.baseline, prints)
            if near is not None:
                self.take(name, match.baseline, how, *near)
        self.refused.update(matched.refused)
        return len(self.found) - before

    def goes_on(self) -> int:
        """Let the model go on from what is found, and pair what it then makes; how many were found."""
        if self.session.replacer is None or not self.found or len(self.found) == len(self.others):
            return 0
        prints, self.explained = self.replayed({})
        self.take_apart(prints)
        return self.by_value(prints, _MADE) or self.copies(prints) or self.tried_places()

    def replayed(
        self, more: Mapping[str, tuple[str, _View]]
    ) -> tuple[Mapping[str, Fingerprint], Mapping[str, float]]:  # fmt: skip
        """Run the model with the tensors that are found in place of its own.

        Returns what it makes of them, of its tensors that have no partner; and those found ones that it makes itself of
        what comes before them, and how near. more: tried ones."""
        known = {match.base: (name, self.view_of(name, match)) for name, match in self.found.items()} | dict(more)
        prints: dict[str, Fingerprint] = {}
        explained: dict[str, float] = {}

        def replace(_op_type: str, name: str, tensor: Any) -> Any:
            array = as_array(tensor, name=name)
            print_ = take(array)
            if name not in known:
                if print_ is not None:
                    prints[name] = print_
                return None
            value = self.value(*known[name])
            there = take(value)
            if value.shape != array.shape or print_ is None or there is None:
                return None
            near = _measure_distance(print_.own, there.own)
            if near <= ALIKE:
                explained[name] = near
            return value.astype(array.dtype)

        assert self.session.replacer is not None
        self.session.replacer.run_replacing(self.feeds, replace)
        return prints, explained

    def view_of(self, name: str, match: TensorMatch) -> _View:
        wanted = match.form, match.arrangement
        views = self.views(name, self.shapes[match.base])
        return next(view for view in views if (view.form, view.arrangement) == wanted)

    def tried_places(self) -> int:
        """Try a place for each tensor that is left, and keep it where something computed from it proves it.

        That is: then has a partner, or is made as its partner was. Of several tensors that fit there, the one that
        explains what follows best.

        From the end: of a row of operators that an engine fused, the last one makes what it shows."""
        for name in [name for name in self.others if name not in self.found]:
            called, shape = self.called.get(name, ("", 0))[0], self.others[name].shape
            places = [base for base in reversed(self.metas) if base not in self.taken]
            places.sort(key=lambda base: (base != called, self.shapes[base] != shape))
            for base in places:
                near, view = self.trial(name, base)
                if view is not None:
                    self.take_best(base, (near, name, view))
                    return 1
        return 0

    def take_best(self, base: str, best: tuple[float, str, _View]) -> None:
        """best: how near, of which tensor, in which layout; unless another one that is left does better."""
        for other in [other for other in self.others if other not in self.found and other != best[1]]:
            if best[0] > _SAME:
                near, view = self.trial(other, base)
                best = best if view is None or near >= best[0] else (near, other, view)
        _, name, view = best
        twins = self.copies_of(name)
        exact = [other for other in twins if self.others[other].shape == self.shapes[base]]
        if exact and self.others[name].shape != self.shapes[base]:
            name, view = exact[0], self.views(exact[0], self.shapes[base])[0]
        prints, _ = self.replayed({base: (name, view)})
        how = way("one of equal copies") if twins else way("position and value")
        self.take(name, base, how, view, _measure_distance(self.prints[base].own, view.print_.own))
        self.by_value(prints, _MADE)

    def trial(self, name: str, base: str) -> tuple[float, _View | None]:
        """Return how near something computed from a place comes to its partner with this tensor there, and its layout.

        The layout is the one that the tensor then has; None: nothing does. Each is tried once."""
        views = list(enumerate(self.views(name, self.shapes[base])))
        behind = self.computed_from(base)
        for place, view in sorted(views, key=lambda pair: -self.votes[pair[1].arrangement.axes]):
            if (base, name, place) in self._tried or self.trials >= _TRIALS:
                continue
            self._tried.add((base, name, place))
            self.trials += 1
            prints, explained = self.replayed({base: (name, view)})
            before = dict(self.found), dict(self.taken), self.votes.copy()
            self.take(name, base, NO_WAY, view, None)
            self.by_value(prints, _MADE)
            new = [match for other, match in self.found.items() if other not in before[0]]
            self.found, self.taken, self.votes = before
            near = [match.distance for match in new if match.base in behind and match.distance is not None]
            near += [far for other, far in explained.items() if other in behind and other not in self.explained]
            if near:
                return min(near), view
        return np.inf, None

    def computed_from(self, base: str) -> frozenset[str]:
        """Return every tensor of the model that one leads to."""
        behind = {base}
        for name, meta in self.metas.items():  # in execution order
            if not behind.isdisjoint(meta.inputs):
                behind.add(name)
        return frozenset(behind - {base})

    def copies_of(self, name: str) -> list[str]:
        """Others that are left and have the same numbers: then either may be either."""
        own = np.asarray(self.others[name].value).reshape(-1)
        return [
            other for other, one in self.others.items()
            if other != name and other not in self.found and one.value.size == own.size
            and np.array_equal(own, np.asarray(one.value).reshape(-1))
        ]  # fmt: skip

    def ends(self) -> None:
        """The model's output, where it and one tensor alone are left of this size: nothing comes after it."""
        left = [name for name in self.others if name not in self.found]
        for base, meta in self.metas.items():
            if not meta.is_output or base in self.taken:
                continue
            fits = [name for name in left if self.views(name, self.shapes[base])]
            rivals = [one for one in self.metas if one not in self.taken and one != base
                      and len(fits) == 1 and self.views(fits[0], self.shapes[one])]  # fmt: skip
            near = self.closest(fits[0], base, self.prints) if len(fits) == 1 and not rivals else None
            if near is not None:
                self.take(fits[0], base, way("the output, the only one left of its size"), *near)


def _measure_distance(known: Array, other: Array) -> float:
    norm = max(float(np.linalg.norm(known)), float(np.linalg.norm(other)))
    return float(np.linalg.norm(known - other)) / norm if norm else 0.0
