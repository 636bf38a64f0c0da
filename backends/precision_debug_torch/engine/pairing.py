"""Which tensors of two runs of one program belong together, by what they are: never by a place or a count.

A *unit* is a call of one of torch's functions, or an operator outside of such a call. Two units are the same where
the module call, the source line and the function are, and what they read is paired already; only among units that
agree in all of it does the order decide. Of a pair of units the operators are paired one by one where they are the same
ones, and otherwise the results only. The result of a module call is paired too where what the module was given is.
Casts and copies, which a run mode adds and leaves out, are looked through, and so is what only one of the runs does.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from precision_debug.callsite import CallSite
from precision_debug.protocols import Matches
from precision_debug.reasons import Reason, say
from precision_debug.reasons.ways import way
from precision_debug.records import TensorMeta

from ..naming import QUANTISED, canonical_name
from ..reasons import say as own

__all__ = ["pair"]

_NEAR = 32
"""Units of one call site that are tried in turn before those that read the same tensors are looked up."""

_SAME_NUMBERS = {"alias", "clone", "contiguous", "detach", "lift_fresh", "lift_fresh_copy", "to", "_to_copy"}
_SAME_ORDER = {"expand", "squeeze", "unsqueeze", "view"}
"""Of an argument's numbers in another shape. Where only one of the runs does it, it is looked through."""

_FLAT = {"_unsafe_view", "reshape", "flatten", "unflatten"}
_TURNS = {"permute", "t", "transpose"}

_PRODUCTS = {"addbmm", "addmm", "addmv", "baddbmm", "bmm", "dot", "einsum", "linear", "matmul", "mm", "mv"}

_AGREE, _UNKNOWN, _DIFFER = range(3)

_Site = tuple[str, str, str]


def pair(baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]) -> Matches | None:
    """See ``protocols.Pairer``; both lists in execution order."""
    if not any(meta.call for meta in baseline) or not any(meta.call for meta in target):
        return None
    alone = _scopes_of_other_lines(baseline, target)
    base, other = _Graph(baseline, alone), _Graph(target, alone)
    # a quantised layer's result is paired by its name, whatever made it
    layers = frozenset(meta.name for meta in (*baseline, *target) if meta.op_type.startswith(QUANTISED))
    base.look_through(other.sites, layers)
    other.look_through(base.sites, layers)
    found = _Pairing(base, other).matches()
    ways = () if layers else _note_other_ways(baseline, target, alone)
    return replace(found, notes=(*ways, *_note_padding(baseline, target)))


def _note_padding(*sides: Sequence[TensorMeta]) -> tuple[Reason, ...]:
    """Where one run alone packs what is not padding: the other's numbers at the padding are nobody's error."""
    packs = [any(meta.op_type == "aten._nested_tensor_from_mask" for meta in metas) for metas in sides]
    if packs[0] == packs[1]:
        return ()
    return (own("padding_left_out", side=say("baseline") if packs[0] else say("target")),)


def _note_other_ways(
    baseline: Sequence[TensorMeta], target: Sequence[TensorMeta], alone: Container[str]
) -> tuple[Reason, ...]:
    """Return lines of the model's Python that only one of the runs computed anything in."""
    ran = []
    for metas in (baseline, target):
        known = dict.fromkeys(
            meta.extra["Source"] for meta in metas
            if meta.call is not None and meta.call.scope not in alone and meta.extra.get("Source")
            and _operator(meta.op_type) not in _SAME_NUMBERS | _SAME_ORDER
        )  # fmt: skip
        ran.append(known)
    first, second = ([line.rstrip(", ") for line in ran[one] if line not in ran[1 - one]][:2] for one in (0, 1))
    if first and second:
        return (own("other_way", base=first, target=second),)
    if not first and not second:
        return ()
    return (own("other_way_alone", side=say("baseline") if first else say("target"), lines=first or second),)


@functools.lru_cache(maxsize=4096)
def _operator(op_type: str) -> str:
    """Return an ATen operator's family: kernels of one operator, and all matrix products, are one."""
    name = canonical_name(op_type.partition(".")[2] or op_type)
    return "product" if name in _PRODUCTS else name


@functools.lru_cache(maxsize=4096)
def _function(part: str) -> str:
    name = part.rpartition("~")[0].strip("_")
    return "product" if name in _PRODUCTS else name


def _scopes_of_other_lines(*sides: Sequence[TensorMeta]) -> frozenset[str]:
    """Module calls whose source is another one in the two runs: two models, and not two runs of one."""
    first, second = ({}, {})  # type: tuple[dict[str, set[str]], dict[str, set[str]]]
    for lines, metas in zip((first, second), sides, strict=True):
        for meta in metas:
            if meta.call is not None:
                lines.setdefault(meta.call.scope, set()).add(meta.extra.get("Source", ""))
    return frozenset(scope for scope, lines in first.items() if not lines & second.get(scope, set()))


@dataclass(eq=False)
class _Unit:
    """rows: its tensors without casts and copies, in order."""

    site: _Site
    rows: list[TensorMeta] = field(default_factory=list)
    casts: list[TensorMeta] = field(default_factory=list)
    read: list[str] = field(default_factory=list)  # names, and "=parameter"
    taken: bool = False

    @functools.cached_property
    def settings(self) -> str:
        return "|".join(meta.call.settings if meta.call else "" for meta in self.rows)

    @functools.cached_property
    def operators(self) -> tuple[str, ...]:
        return tuple(f"{_operator(meta.op_type)}{_place(meta)}" for meta in self.rows)

    def results(self) -> dict[str, TensorMeta]:
        """By their place in what the call returned."""
        if len(self.rows) == 1:
            return {"()": self.rows[0]}
        made = [*self.rows, *self.casts] if self.narrows else self.rows
        return {call: meta for meta in made if meta.call for call in meta.call.results if call.startswith("()")}

    @functools.cached_property
    def narrows(self) -> bool:
        """Return whether the call casts both what it reads and what it gives to one type, as attention does under
        autocast where its inside is float32: its inside is no operator of that type, and the call is one."""
        own = {meta.name for meta in (*self.rows, *self.casts)}
        read = {meta.dtype for meta in self.casts if own.isdisjoint(meta.inputs)}
        return len(self.rows) > 1 and any(
            meta.dtype in read and "()" in meta.call.results for meta in self.casts if meta.call is not None
        )


def _place(meta: TensorMeta) -> str:
    return meta.name[meta.name.rindex("[") :] if meta.name.endswith("]") and meta.name != meta.node else ""


class _Graph:
    """One run's tensors, its units in order, and what each tensor stems from."""

    def __init__(self, metas: Sequence[TensorMeta], without_lines: Collection[str]) -> None:
        self.metas = {meta.name: meta for meta in metas}
        self.units: list[_Unit] = []
        self.unit_of: dict[str, _Unit] = {}
        self.of_call: dict[str, TensorMeta] = {}  # the results of module calls
        self._through: set[str] = set()
        self._stems: dict[str, tuple[str, ...]] = {}
        units: dict[str, _Unit] = {}
        for meta in metas:
            call = meta.call
            if call is None:
                continue
            for name in call.results:
                if not name.startswith("()"):
                    self.of_call[name] = meta
            key = call.part or meta.node
            unit = units.get(key)
            if unit is None:
                line = "" if call.scope in without_lines else meta.extra.get("Source", "")
                what = _function(call.part) if call.part else _operator(meta.op_type)
                unit = units[key] = _Unit(site=(call.scope, line, what))
                self.units.append(unit)
            self.unit_of[meta.name] = unit
            if _is_copy(meta):
                unit.casts.append(meta)
                self._through.add(meta.name)
            else:
                unit.rows.append(meta)
            unit.read += [*meta.inputs, *(f"={name}" for name in call.reads)]
        for unit in self.units:
            if unit.narrows:  # its result is no copy of what it has inside
                self._through.difference_update(meta.name for meta in unit.results().values())
        self.sites = collections.Counter(unit.site for unit in self.units)
        self.lines = {unit.site[1] for unit in self.units} - {""}
        self._readers: dict[tuple[str, _Site], list[_Unit]] = {}
        self.at: dict[_Site, list[_Unit]] = {}

    def look_through(self, theirs: Mapping[_Site, int], paired: Container[str]) -> None:
        """Look through the tensors of units that the other run does not have: each then stands for what it was made
        from, unless it is paired. theirs: the other run's sites."""
        for unit in self.units:
            if unit.site not in theirs:
                self._through.update(meta.name for meta in unit.rows if meta.name not in paired and not _counts(meta))
        for unit in self.units:
            self.at.setdefault(unit.site, []).append(unit)
            for name in self.stems_of(unit):
                self._readers.setdefault((name, unit.site), []).append(unit)

    def readers(self, name: str, site: _Site) -> Sequence[_Unit]:
        return self._readers.get((name, site), ())

    def stems_of(self, unit: _Unit) -> tuple[str, ...]:
        """Return what a unit reads from outside of it, each once."""
        own = {meta.name for meta in (*unit.rows, *unit.casts)}
        return self.stems(name for name in unit.read if name not in own)

    def stems(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the tensors that these stand for: casts, copies, and what only this run does, are looked through."""
        found: dict[str, None] = {}
        for name in names:
            found.update(dict.fromkeys(self._stem(name) if name in self._through else (name,)))
        return tuple(found)

    def _stem(self, name: str) -> tuple[str, ...]:
        """In execution order each tensor is asked for before what reads it, so that this goes one step deep."""
        known = self._stems.get(name)
        if known is None:
            meta = self.metas[name]
            reads = meta.call.reads if meta.call is not None else ()
            known = self.stems((*(n for n in meta.inputs if n != name), *(f"={n}" for n in reads)))
            if not _is_copy(meta) and not _keeps_order(meta):
                known = tuple(n for n in known if n[0] != "=" and self.metas[n].shape == meta.shape)
                known = known if len(known) < 2 else (name,)
            self._stems[name] = known
        return known


def _is_copy(meta: TensorMeta) -> bool:
    """Return the same numbers once more, whatever their type. A cast to whole numbers is not a copy."""
    operator = meta.op_type.partition(".")[2]
    if operator not in _SAME_NUMBERS:
        return False
    return operator != "_to_copy" or "float" in meta.dtype or "complex" in meta.dtype


def _keeps_order(meta: TensorMeta) -> bool:
    return _operator(meta.op_type) in _SAME_ORDER and len(meta.inputs) < 2


def _counts(meta: TensorMeta) -> bool:
    """Return whether whole numbers are computed, as positions are of a mask: they are no form of what was read, and
    what reads them is the first that may differ by them."""
    return "int" in meta.dtype and not _keeps_order(meta) and not _is_copy(meta)


def _is_reshaped(base: _Unit, target: _Unit) -> bool:
    """Return whether shapes differ because other ones were asked for. Those of nonzero and its like differ as values
    do."""
    for one, other in zip(base.rows, target.rows, strict=False):
        ranks = [len(meta.shape or ()) for meta in (one, other)]
        alike = one.op_type == other.op_type and ranks[0] == ranks[1] and base.settings == target.settings
        if one.shape != other.shape and not alike:
            return True
    return False


class _Pairing:
    """Walks the target in execution order; of each tensor, what it stems from was walked before."""

    def __init__(self, base: _Graph, target: _Graph) -> None:
        self._base, self._target = base, target
        self._partner: dict[str, str] = {}  # target name to baseline name
        self._same: dict[str, str] = {}  # the same, and what holds the same numbers in another shape
        self._claimed: set[str] = set()  # baseline names among them
        self._others: dict[str, str] = {}  # of either side: the call that the runs do by other operators
        self._casts: dict[tuple[object, ...], list[TensorMeta]] = {}
        self._first: dict[_Site, int] = {}

    def matches(self) -> Matches:
        base, target = self._base, self._target
        for meta in target.metas.values():
            if meta.call is None or meta.op_type.startswith(QUANTISED):  # inputs and outputs, and a quantised layer's
                other = base.metas.get(meta.name)
                if other is not None and (other.call is None) == (meta.call is None):
                    self._join(other, meta)
        for one, other in _iterate_inputs(base, target, self._claimed, self._same):
            self._join(one, other, only_numbers=True)
        done: set[int] = set()
        for meta in target.metas.values():
            unit = target.unit_of.get(meta.name)
            if unit is None:
                continue
            if id(unit) not in done:
                done.add(id(unit))
                self._place(unit)
            self._as_result(meta)
        self._pair_casts()
        if not base.lines & target.lines:  # what ran the same lines of Python belongs together by these
            inputs = {name: one for name, one in self._same.items() if target.metas[name].call is None}
            self._partner.update(_iterate_alike(base, target, self._partner | inputs))
        found = {
            meta.origin or meta.name: (
                self._partner[name],
                way("exact") if self._partner[name] == name else way("graph metadata"),
            )
            for name, meta in target.metas.items()
            if name in self._partner
        }
        refused: dict[str, Reason] = {}
        for name, meta in target.metas.items():
            if name not in self._partner:
                if name in self._others:
                    refused[meta.origin or name] = say("baseline_does", part=self._others[name])
                elif name in base.metas:
                    refused[meta.origin or name] = say("baseline_stems")
        missing: dict[str, Reason] = {}
        paired = set(self._partner.values())
        for name in base.metas:
            if name not in paired:
                if name in self._others:
                    missing[name] = say("target_does", part=self._others[name])
                elif name in target.metas:
                    missing[name] = say("target_stems")
        return Matches(found=found, refused=refused, missing=missing)

    def _join(self, base: TensorMeta, target: TensorMeta, *, only_numbers: bool = False) -> None:
        if target.name not in self._same and base.name not in self._claimed:
            self._same[target.name] = base.name
            self._claimed.add(base.name)
            if not only_numbers:
                self._partner[target.name] = base.name

    def _place(self, unit: _Unit) -> None:
        other = self._twin(unit)
        if other is None:
            return
        other.taken = unit.taken = True
        if unit.operators == other.operators and unit.narrows == other.narrows and not _is_reshaped(other, unit):
            for base, target in zip(other.rows, unit.rows, strict=True):
                if self._judged((base.inputs, base.call), (target.inputs, target.call)) is not _DIFFER:
                    self._join(base, target)
            return
        theirs = other.results()
        for call, target in unit.results().items():
            if call in theirs:
                self._join(theirs[call], target, only_numbers=theirs[call].shape != target.shape)
        label = f"{unit.site[0]}/{unit.site[2]}".lstrip("/")
        self._others.update(dict.fromkeys((meta.name for meta in (*unit.rows, *other.rows)), label))

    def _twin(self, unit: _Unit) -> _Unit | None:
        """Return the baseline's unit that is the same call; None where none is, or several may be."""
        if not unit.rows:
            return None
        stems = self._target.stems_of(unit)
        agree: list[_Unit] = []
        unknown: list[_Unit] = []
        for other in self._candidates(unit, stems):
            if _is_reshaped(other, unit) and len(unit.rows) == 1 and _keeps_order(unit.rows[0]):
                continue
            verdict = self._agree(self._base.stems_of(other), stems)
            if verdict is _AGREE:
                if other.settings == unit.settings:
                    return other
                agree.append(other)
            elif verdict is _UNKNOWN:
                unknown.append(other)
        if len(agree) == 1 or (agree and unit.operators != agree[0].operators):
            return agree[0]
        alone = self._base.sites[unit.site] == self._target.sites[unit.site] == 1
        if not agree and alone and unknown and unknown[0].operators == unit.operators:
            return unknown[0]
        return None

    def _candidates(self, unit: _Unit, stems: tuple[str, ...]) -> list[_Unit]:
        """Return units of the same site that are free: the next ones, and those that read what this one reads."""
        at = self._base.at.get(unit.site, [])
        first = self._first.get(unit.site, 0)
        while first < len(at) and at[first].taken:
            first += 1
        self._first[unit.site] = first
        found = {id(other): other for other in at[first : first + _NEAR] if not other.taken}
        for name in stems:
            partner = name if name[0] == "=" else self._same.get(name, "")
            for other in self._base.readers(partner, unit.site)[: _NEAR * 4]:
                if not other.taken:
                    found.setdefault(id(other), other)
        return [*found.values()]

    def _judged(
        self, base: tuple[tuple[str, ...], CallSite | None], target: tuple[tuple[str, ...], CallSite | None]
    ) -> int:
        """Return whether two operators' inputs are the same tensors."""
        sides = []
        for graph, (inputs, call) in ((self._base, base), (self._target, target)):
            sides.append(graph.stems((*inputs, *(f"={name}" for name in (call.reads if call else ())))))
        return self._agree(*sides)

    def _agree(self, base: tuple[str, ...], target: tuple[str, ...]) -> int:
        """Return whether these are the same tensors, as far as is known."""
        verdict = self._agree_as_they_are(base, target)
        if verdict is _AGREE:
            return verdict
        grounded = self._grounded(self._base, base, self._claimed), self._grounded(self._target, target, self._same)
        return verdict if grounded == (base, target) else self._agree_as_they_are(*grounded)

    def _grounded(self, graph: _Graph, names: tuple[str, ...], joined: Container[str]) -> tuple[str, ...]:
        """Through what only this run does to a tensor's shape."""
        found: dict[str, None] = {}
        waiting = [*reversed(names)]
        while waiting:
            name = waiting.pop()
            meta = graph.metas.get(name)
            if meta is None or name in joined or not _keeps_order(meta):
                found[name] = None
            else:
                waiting += reversed(graph.stems((*meta.inputs, *(f"={n}" for n in (meta.call or CallSite()).reads))))
        return tuple(found)

    def _agree_as_they_are(self, base: tuple[str, ...], target: tuple[str, ...]) -> int:
        theirs, unknown = set(base), 0
        for name in target:
            partner = name if name[0] == "=" else self._same.get(name)
            if partner is None:
                unknown += 1
            elif partner in theirs:
                theirs.discard(partner)
            else:
                return _DIFFER
        if any(name[0] == "=" or name in self._claimed for name in theirs):
            return _DIFFER
        return _UNKNOWN if unknown or theirs else _AGREE

    def _as_result(self, meta: TensorMeta) -> None:
        """Pair a tensor as the result of a module call whose arguments are paired, whatever the module is made of."""
        if meta.name in self._same or meta.call is None:
            return
        for call, results in meta.call.results.items():
            base = self._base.of_call.get(call)
            if base is None or base.name in self._claimed or base.shape != meta.shape or call.startswith("()"):
                continue
            theirs = base.call.results[call] if base.call is not None else ()
            if self._agree(self._base.stems(theirs), self._target.stems(results)) is _AGREE:
                self._join(base, meta)
                return

    def _pair_casts(self) -> None:
        """Casts and copies of one tensor by one call."""
        waiting: dict[tuple[object, ...], collections.deque[TensorMeta]] = {}
        for unit in self._base.units:
            for meta in unit.casts:
                key = (unit.site, _operator(meta.op_type), self._base.stems((meta.name,)))
                waiting.setdefault(key, collections.deque()).append(meta)
        for unit in self._target.units:
            for meta in unit.casts:
                stems = self._target.stems((meta.name,))
                partners = tuple(name if name[0] == "=" else self._same.get(name, "") for name in stems)
                left = waiting.get((unit.site, _operator(meta.op_type), partners))
                if left and "" not in partners:
                    self._join(left.popleft(), meta)


def _iterate_inputs(
    base: _Graph, target: _Graph, claimed: Container[str], joined: Container[str]
) -> Iterator[tuple[TensorMeta, TensorMeta]]:
    """Yield inputs of other names that belong together: only one of each run has that shape and type."""
    sides = [collections.defaultdict[object, list[TensorMeta]](list) for _ in range(2)]
    for found, graph, known in zip(sides, (base, target), (claimed, joined), strict=True):
        for meta in graph.metas.values():
            if meta.op_type == "Input" and meta.name not in known:
                found[meta.shape, meta.dtype].append(meta)
    for kind, targets in sides[1].items():
        if len(targets) == len(sides[0][kind]) == 1:
            yield sides[0][kind][0], targets[0]


def _iterate_alike(base: _Graph, target: _Graph, joined: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield names of what is left that belongs together by what it is computed of: a kept program may know no module
    calls, and have a function of torch's taken apart. These are tensors that the same operators make of the same ones,
    and as many on either side. joined: what is paired, the target's name to the baseline's."""
    known: dict[object, int] = {}
    bases = _list_alike(base, {name: name for name in joined.values()}, target.at, known)
    for key, metas in _list_alike(target, joined, base.at, known).items():
        there = bases.get(key, [])
        told = [[one.call.settings if one.call else "" for one in side] for side in (there, metas)]
        if len(there) == len(metas) == 1 or told[0] == told[1]:  # of several, those that are told the same
            yield from zip((one.name for one in metas), (one.name for one in there), strict=True)


def _list_alike(
    graph: _Graph, joined: Mapping[str, str], theirs: Mapping[_Site, Sequence[_Unit]],
    known: dict[object, int],
) -> dict[object, list[TensorMeta]]:  # fmt: skip
    """Return a run's tensors that are not paired, by what they are computed of. theirs: the other's units. known:
    numbers of what something is computed of, which the runs share."""
    numbers: dict[str, int] = {}
    found: dict[object, list[TensorMeta]] = {}
    for name, meta in graph.metas.items():
        reads = meta.call.reads if meta.call is not None else ()
        read = [numbers[one] for one in meta.inputs if one != name and one in numbers]
        kind = "turn" if (operator := _operator(meta.op_type)) in _TURNS else operator
        made: object = (kind, _place(meta), *read, *sorted(reads))
        if name in joined:
            made = joined[name]
        elif (_is_copy(meta) or _keeps_order(meta) or operator in _FLAT) and len(read) + len(reads) == 1:
            numbers[name] = read[0] if read else known.setdefault(reads, len(known))
            found.setdefault((kind, meta.shape, meta.dtype, numbers[name]), []).append(meta)
            continue
        elif reads and not read and any(
            one.operators == graph.unit_of[name].operators for one in theirs.get(graph.unit_of[name].site, ())
        ):
            made = (id(graph), name)  # a call of both runs, which did not agree in what else it reads
        elif meta.call is None or not (read or reads):
            made = (id(graph), name)  # nothing is known of it
        else:
            found.setdefault((meta.shape, meta.dtype, made), []).append(meta)
        numbers[name] = known.setdefault(made, len(known))
    inside = {meta.name for unit in graph.units if unit.narrows for meta in unit.rows}
    left = {key: [meta for meta in metas if meta.name not in inside] for key, metas in found.items()}
    return {key: metas for key, metas in left.items() if metas}
