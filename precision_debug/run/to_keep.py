"""What can stay in higher precision for the culprits, and what a user types for that: the setting of the run mode."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import explain, registry
from ..errors import PrecisionDebugError
from ..numbers.number_types import find_promise
from ..protocols import BETWEEN, WHOLE, Cautions, Feeds, InRegions, Keep, is_switch
from ..reasons import NOTHING, as_reason, say
from ..records import Culprit, Row, TensorMeta
from ..search.fix import ENGINE_OPTION, ToKeep
from ..search.units import Units
from ..settings import Setting
from .plan import Opening

__all__ = ["Keepable", "find_keepable", "format_settings"]

@dataclass(frozen=True, kw_only=True)
class Keepable:
    """What a target can keep in higher precision.

    tensors: of the model whose names its setting takes. known: where that is another model than the baseline's, the
    baseline's names to those."""

    target: Opening
    keep: Keep
    tensors: Sequence[TensorMeta]
    units: Units
    known: Mapping[str, str] | None = None

    def makers(self, names: Iterable[str]) -> frozenset[int]:
        """Return the units that make these of the baseline's tensors; nothing for names that it does not have."""
        return frozenset(unit for name in self._own(names) if (unit := self.units.of(name)) is not None)

    def around(self, names: Iterable[str]) -> frozenset[int]:
        """Return the same with what reads these tensors."""
        own = self._own(names)
        return self.units.silent(own).union(*(self.units.around(name) for name in own))

    def likely(self, names: Sequence[str]) -> Iterator[frozenset[int]]:
        """Yield the sets that mend it if these tensors' operators are what is wrong, the likeliest first.

        Them with what reads them; in INT8 with what makes what they read. Where whole types or modules are kept, fewer
        of them come first."""
        first, authors = self.around(names), self.makers(names)
        coarse, module = self.keep.unit != "operator", self.keep.unit == "module"
        if coarse:
            yield from self._inside(authors) if module else ()
            yield authors
            yield from self._inside(first) if module else ()
        yield first
        if not coarse and find_promise(self.target.precision).computes == "int8":
            yield from self.before(names)
        else:
            yield authors

    def before(self, names: Iterable[str]) -> Iterator[frozenset[int]]:
        """Yield what is kept for the inputs of the operators that make these of the baseline's tensors.

        They do no more than make matter what was rounded on its way in. The makers with one operator before them, then
        two, four, up to all of them."""
        makers = self.makers(names)
        chain = [makers, self.units.above(makers)]
        while chain[-1] != chain[-2]:
            chain.append(self.units.above(chain[-1]))
        away = [1 << step for step in range(len(chain).bit_length()) if 1 << step < len(chain) - 2]
        for found in dict.fromkeys(chain[steps] for steps in (*away, -1)):
            if makers != found and len(found) < len(self.units):
                yield found

    def _inside(self, units: frozenset[int]) -> Iterator[frozenset[int]]:
        """Yield modules with what is computed between modules in place of those around others: less is kept so."""
        keys = {self.units.units[unit].key: unit for unit in units if unit < len(self.units)}
        around = {key for key in keys if key == WHOLE or any(other.startswith(f"{key}.") for other in keys)}
        if keys.keys() - around - {BETWEEN}:
            inside = units - {keys[key] for key in around}
            yield inside
            between = frozenset(number for number, unit in enumerate(self.units.units) if unit.key == BETWEEN)
            if not between <= inside:
                yield inside | between

    def _own(self, names: Iterable[str]) -> list[str]:
        return [self.known.get(name, "") for name in names] if self.known is not None else list(names)

    def typed(self, keys: Sequence[str]) -> ToKeep:
        """As a user types it; it is not run yet."""
        settings = dict(self.keep.options(keys))
        operators = self.named(keys)
        option = format_settings(self.target.settings, settings)
        return ToKeep(
            option=option, settings=settings,
            replaced=tuple(name for name in settings if name in self.target.spec.options),
            unit=self.keep.unit if operators else ENGINE_OPTION, keys=operators or (option,),
            switched=tuple(key for key in keys if is_switch(key)) if operators else (),
            caution=self.keep.caution(keys, self.tensors) if isinstance(self.keep, Cautions) else NOTHING,
            of=len({*self.every, *operators}),
        )  # fmt: skip

    @property
    def every(self) -> tuple[str, ...]:
        """All that can be kept, as ``named`` has it."""
        return self.named([unit.key for unit in self.units.units[: self.units.operators]])

    def named(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the operators that stay in higher precision with these units: what the setting lists for them where
        that is more, as of a quantiser that has to be told of those that hand on a kept one's grid as well."""
        operators = tuple(dict.fromkeys(key for key in keys if not is_switch(key)))
        own = {one for value in self.keep.options(()).values() if isinstance(value, tuple) for one in value}
        listed = [value for value in self.keep.options(keys).values() if isinstance(value, tuple)]
        more = tuple(one for value in listed for one in value if one not in own or one in operators)
        return more if len(listed) == 1 and {*operators} <= {*more} else operators


def format_settings(table: Sequence[Setting], settings: Mapping[str, Any]) -> str:
    """Settings as a user types them."""
    by_name = {setting.name: setting for setting in table}
    return " ".join(by_name[name].typed(value) for name, value in settings.items())


def find_keepable(
    target: Opening, tensors: Sequence[TensorMeta], targets: Mapping[str, TensorMeta], rows: Sequence[Row],
    culprits: Sequence[Culprit], calibrating: Sequence[Feeds], *, precision: str, foreign: bool, of_many: bool = False,
) -> Keepable | ToKeep | None:  # fmt: skip
    """Return how the target keeps what higher precision mends; a ToKeep that says why it cannot, and which modes can.

    tensors: the baseline's. targets: the target's, by name. precision: the target's, of a recording the one that it was
    made in. foreign: the baseline is another model, so that its graph says nothing of the target's names. of_many: the
    error is that of many operators. None where there is nothing of the kind.
    """
    if not of_many and not any(explain.is_mended(one.cause, precision) for one in culprits):
        return None
    if target.backend is None:
        return ToKeep(why=say("recorded_tensors"))
    try:
        keep = target.keep()
        if keep is None:
            return ToKeep(modes=_list_other_modes(target))
        known = None
        if foreign:
            there = {row.name: targets[row.target_name] for row in rows if row.target_name in targets}
            known = {name: meta.origin or meta.name for name, meta in there.items()}
            tensors = _list_unfused(target, calibrating)
        units = Units(tensors, keep.key_of, keep.switches if isinstance(keep, InRegions) else ())
    except PrecisionDebugError as error:
        return ToKeep(modes=_list_other_modes(target), why=as_reason(error.what))
    return Keepable(target=target, keep=keep, tensors=tensors, units=units, known=known)


def _list_unfused(target: Opening, calibrating: Sequence[Feeds]) -> Sequence[TensorMeta]:
    """Return the tensors of the target's own model as it is, with the names that its settings take."""
    session = target.in_mode().open(calibrating)
    try:
        return tuple(session.tensors)
    finally:
        session.close()


def _list_other_modes(target: Opening) -> tuple[str, ...]:
    """Modes of the same backend and precision that run here and can keep something of this model."""
    wanted, found = find_promise(target.precision).computes, []
    for backend, mode in registry.modes_for(target.spec.model) if target.capabilities.keeper is not None else ():
        same = backend is target.backend and find_promise(mode.precision).computes == wanted
        if same and backend.availability(mode.name).ok:
            with contextlib.suppress(PrecisionDebugError):
                spec = dataclasses.replace(target.spec, mode=mode.name)
                if dataclasses.replace(target, spec=spec).keep() is not None:
                    found.append(mode.name)
    return tuple(found)
