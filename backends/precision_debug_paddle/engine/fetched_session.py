"""A session whose tensors are fetched: each one that is shown is an output of an edited program.

A fetched value comes back in the model's own layout and, where it was quantised or in bfloat16, as FP32, under a name
that is the same in every run. That is what PIR programs need in every mode, and legacy ones under oneDNN.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import BackendError
from precision_debug.inspector import EngineLayer
from precision_debug.protocols import Feeds, Hook, Replace, Replacer
from precision_debug.reasons import Reason
from precision_debug.reasons.ways import Way
from precision_debug.records import Doubt, Operator, TensorMeta

from .. import naming
from ..model import Model
from ..reasons import say
from ..session import NOT_ENTERED, add_absorbed, doubt_not_run, list_metas, make_meta
from . import framework
from .attempts import Attempts
from .copied import Copies
from .fetchable import Changed, Found, Groups, Print, Trace, group_by_value, search, split_in_batches
from .hook_check import Witness
from .legacy_program import LegacyProgram
from .operators import Operators
from .pir_bodies import PirBodies
from .predictor import Runner
from .program import NESTED
from .recorded import Bodies, Delivery

__all__ = ["FetchSession", "Start", "most_builds"]

Start = Callable[[Path, str], Runner]
"""Makes a runner for a program file. The text: "" for the mode, "float32" for its graph in FP32, or "unfused"."""

_BUILDS, _FEWEST, _VALUES = 60, 12, 36_000
"""Builds at most and at least, and values that all of them together may have: counted in work, since what can be seen
must not depend on how busy the machine is."""

_CAP = 1800.0
"""Seconds after which no further build is tried; what was not tried says so in its row."""

_PLANNING = threading.Lock()
"""Held while predictors are made one after the other: two sessions may be asked for the first time in two threads."""

_SILENT = frozenset({"split", "unbind", "split_with_num"})  # Paddle's hook passes over them


def most_builds(values: int, asked: int = 0) -> int:
    """Predictors that are built at most to find out which of so many values can be fetched. asked: 0 where nobody did
    ask for a number."""
    return asked or int(min(_BUILDS, max(_FEWEST, _VALUES / max(1, values))))


class FetchSession:
    """start: makes predictors. unfused: every value can be fetched. view: how the mode's values are taken.

    folder: where the edited programs are written. builds: how many predictors the search may make; 0: from 12 to 60,
    the fewer the more values there are. limit: bytes of fetched tensors that one predictor holds. check: raises where
    the mode did not do what it is for. quantised: the mode fuses more of a quantised model than the same mode in FP32
    does.
    wants: the type that the mode's tensors are to have, see ``session.not_run``. plain: the engine's own tensors, which
    the hook is given, lie in this machine's memory, in the model's layout. bodies: what records the values inside loops
    and branches.
    """

    layers: Sequence[EngineLayer] = ()
    alone = arithmetic = ""

    def __init__(
        self, model: Model, start: Start, *, unfused: bool, view: Way, folder: Path, versions: Mapping[str, str],
        notes: Sequence[Reason] = (), builds: int = 0, limit: int = 1 << 30,
        check: Callable[[Trace], None] | None = None, quantised: bool = False, wants: str = "", plain: bool = False,
        bodies: Bodies | PirBodies | None = None, placed: Sequence[tuple[int, int] | None] = (),
    ) -> None:  # fmt: skip
        self._bodies, self._placed = bodies, placed
        self.versions = versions
        self._model, self._start, self._unfused, self._view = model, start, unfused, view
        self._folder, self._builds, self._limit, self._check = folder, builds, limit, check
        self._quantised, self._wants, self._plain = quantised, wants, plain
        self._operators = Operators(model)
        self._instructions: dict[str, str] = {}
        self.doubts: Sequence[Doubt] = ()
        self._executed: tuple[int, int] | None = None
        self._awaited: Feeds | None = None
        self._looked: tuple[Trace, Witness] | None = None
        self._shipped: Runner | None = None
        self._values = {value.name: value for value in model.program.values}
        self._notes = list(notes)
        self._runners: list[tuple[tuple[str, ...], Runner | None]] = []
        self._planned = self._closed = False
        self._rounded: frozenset[str] = frozenset()
        self._edits = 0
        self._ranks: dict[str, int] = {}
        self._copies: Copies | None = None
        if isinstance(model.program, LegacyProgram) and not unfused:
            self._copies = Copies(model.program, lambda program: start(program, ""), folder)
        self._tensors: Sequence[TensorMeta] = list_metas(make_meta(v, unseen=v.hidden) for v in self._values.values())

    @property
    def notes(self) -> Sequence[Reason]:
        return tuple(self._notes)

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        self._plan_awaited()
        return self._tensors

    def _plan_awaited(self) -> None:
        if self._awaited is not None and not self._planned:
            self.plan(self._awaited)

    @property
    def executed(self) -> tuple[int, int] | None:
        """How many operators ran in the low precision, and of how many; None where nobody can tell."""
        return next((found for found in self._placed if found is not None), self._executed)

    def plan_when_asked(self, feeds: Feeds) -> None:
        """As ``plan``, when somebody wants to know what can be shown: that takes many predictors, and a session that
        only gives outputs (of a set that is tried) needs two."""
        self._awaited = feeds
        if self._unfused:  # one predictor a batch, and its runs may be in two threads, where none should be made
            self.plan(feeds)
        else:
            self._look(feeds)

    def _look(self, feeds: Feeds) -> tuple[Trace, Witness]:
        """One run of the program that ships. Raises where the mode does not do what it is for."""
        if self._looked is None:
            witness, runner = Witness(), self._start(self._model.file, "")
            plain = self.trace(runner, feeds, witness)
            if self._check is not None:
                self._check(plain)
            self.doubts = doubt_not_run(self._wants, plain.types)
            self._executed = plain.executed(self._wants or "int8")
            self._looked = plain, witness
            runner.close()  # a hook stays with its predictor, and takes time in every run
        return self._looked

    def plan(self, feeds: Feeds) -> None:
        """Find out which values can be fetched; ``tensors`` lists them from then on."""
        self._planned = True
        try:
            with _PLANNING:
                self._plan(feeds)
        except BaseException:  # feeds that do not fit, say: the next run begins anew
            self._planned = False
            raise

    def _plan(self, feeds: Feeds) -> None:
        if self._unfused:
            self._plan_unfused(feeds)
            return
        plain, witness = self._look(feeds)
        builds = most_builds(len(self._values), self._builds)
        if self._bodies is not None:
            self._bodies.probe(feeds, plain.outputs)
        groups, changed = self._groups(feeds)
        outputs = [value.name for value in self._values.values() if value.output]
        copies = self._copied(groups, witness, feeds)
        everything, groups = groups, [group for group in groups if group[1][0] not in copies]
        loose: Groups = [("", [name]) for item in changed for name in item.names]
        attempts = Attempts(
            edited=self.edited, traced=lambda one, seen: self.trace(one, feeds, seen), keys=self.keys, plain=plain,
            most=builds,
        )  # fmt: skip
        searching = time.monotonic()

        def late() -> bool:
            return not self._builds and time.monotonic() - searching > _CAP

        found = search([*groups, *loose], attempts.changes, list(self._values), builds, late)
        shown = {*found.kept, *outputs}
        self._rounded = frozenset(
            name for op_type, group in groups
            for name in group if name in shown and naming.kernel(op_type) in attempts.widened
        )  # fmt: skip
        runner = attempts.runner_of(found.kept)
        wrong = self._overwritten(attempts.seen, runner)
        batches = split_in_batches(
            self._values, self._limit, [name for name in self._values if name in shown - wrong], feeds
        )
        if len(batches) == 1 and runner is not None and not wrong and not copies:
            self._runners = [(batches[0], runner)]
        else:
            attempts.close()
            copied = self._copies.batches if self._copies is not None and copies else ()
            self._runners = [(batch, None) for batch in (*batches, *copied)]
        self._list(everything, changed, found, shown | copies, wrong)

    def _copied(self, groups: Groups, witness: Witness, feeds: Feeds) -> frozenset[str]:
        """Find the values of a legacy program that can only be fetched through copies, and return their names."""
        if self._copies is None:
            return frozenset()
        outputs = {name for name, value in self._values.items() if value.output}
        names = [names[0] for _, names in groups if names[0] in self._ranks and names[0] not in outputs]
        self._copies.find(split_in_batches(self._values, self._limit, names, feeds), self._ranks, witness, feeds)
        return self._copies.names

    def _overwritten(self, seen: Witness, runner: Runner | None) -> frozenset[str]:
        """Of what the predictor that was kept fetched in its last run, what is not what the hook saw."""
        if runner is None:
            return frozenset()
        keys = self.keys(runner.output_names)
        wrong, unknown = seen.overwritten({key: runner.output(key) for key in keys})
        if unknown:
            self._notes.append(say("as_hook_saw", count=len(keys) - unknown, all=len(keys), unknown=unknown))
        return frozenset(keys[key] for key in wrong if not self._values[keys[key]].output)

    def _plan_unfused(self, feeds: Feeds) -> None:
        """Leave out what no operator writes, such as the outputs of a recurrent layer that only training fills."""
        names = [name for name, value in self._values.items() if not value.hidden]
        written: set[str] = set()
        made: dict[str, list[str]] = {}
        for batch in split_in_batches(self._values, self._limit, names, feeds):
            runner = self._start(self._edited(batch), "")
            keys = self.keys(runner.output_names)
            calls: Counter[str] = Counter()

            def note(op_type: str, variable: str, _: Any, keys: Any = keys, calls: Any = calls) -> None:
                calls[naming.instruction(op_type)] += 1
                if variable in keys:
                    made.setdefault(naming.instruction(op_type), []).append(keys[variable])

            runner.execute(feeds, note)
            for several in [instruction for instruction, count in calls.items() if count > 1]:
                made.setdefault(several, []).extend(("", ""))
            written |= {name for key, name in keys.items() if runner.peek(key) is not None}
            runner.close()
        # an instruction of several outputs, which come in any order, does not tell which of them is shown
        self._instructions = {key: found[0] for key, found in made.items() if len(set(found)) == 1}
        batches = split_in_batches(self._values, self._limit, [name for name in names if name in written], feeds)
        self._runners = [(batch, None) for batch in batches]
        empty = len(names) - len(written)
        if empty:
            self._notes.append(say("not_written", count=empty))
        if self._bodies is not None:
            self._bodies.probe(feeds, {})
        metas: list[TensorMeta] = []
        for value in self._values.values():
            if value.hidden == NESTED and self._bodies is not None:
                metas += self._bodies.listed(value, make_meta(value, unseen=NOT_ENTERED))
            elif value.hidden or value.name in written:
                metas.append(make_meta(value, unseen=value.hidden))
        self._tensors = list_metas(self._bodies.in_order(metas) if self._bodies is not None else metas)

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if self._closed:
            raise BackendError("the session is closed", where=self._model.path, hint="open it again")
        if hook is None and not self._planned and not self._unfused:
            return self._outputs(feeds)
        self._plan_awaited()
        if not self._planned:
            self.plan(feeds)
        types = {meta.name: meta.op_type for meta in self.tensors}
        outputs: dict[str, Any] = {}
        inside = list(self._bodies.run(feeds)) if hook is not None and self._bodies is not None else []
        bodies = Delivery(inside, self.tensors, names)
        mixed = self._copies is not None and bool(self._copies.batches)  # which program has a value is not by order
        waiting: dict[str, np.ndarray[Any, Any]] = {}
        for number, (batch, runner) in enumerate(self._runners):
            wanted = [name for name in batch if names is None or name in names]
            if number and (hook is None or not wanted):
                continue
            active = runner or self._start(self._program(batch), "")
            active.execute(feeds)
            keys = self.keys(active.output_names)
            if not number:
                outputs = {name: active.output(key) for key, name in keys.items() if self._values[name].output}
            by_name = {name: key for key, name in keys.items()}
            self._runners[number] = (batch, active if len(self._runners) == 1 else None)
            if hook is not None:
                for name in wanted:
                    value = self._value(active, name, by_name[name])
                    if mixed:
                        waiting[name] = value
                        continue
                    bodies.before(name, hook)
                    hook(types[name], name, value)
            if len(self._runners) > 1:
                active.close()
        if hook is not None:
            for name in [name for name in types if name in waiting]:
                bodies.before(name, hook)
                hook(types[name], name, waiting.pop(name))
            bodies.rest(hook)
        return outputs

    def _outputs(self, feeds: Feeds) -> Mapping[str, Any]:
        """Return those of the program that ships, before anybody asked what else it can show."""
        self._look(feeds)
        self._shipped = self._shipped or self._start(self._model.file, "")
        self._shipped.execute(feeds)
        keys = self.keys(self._shipped.output_names)
        return {name: self._shipped.output(key) for key, name in keys.items() if self._values[name].output}

    @property
    def replacer(self) -> Replacer:
        return self

    @property
    def replaces(self) -> bool:
        """See protocols.Replacer: where the hook has the engine's own memory, and one run shows every tensor."""
        self._plan_awaited()
        if not self._plain or not self._planned or not framework.can_write():
            return False
        nested = any(value.hidden.code == NESTED.code for value in self._values.values())
        return len(self._runners) == 1 or (self._unfused and not nested)

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer. What would not fit into memory at once is not fetched: the unedited program runs, and
        an instruction's number tells which tensor the hook shows.
        """
        if not self._planned:
            self.plan(feeds)
        if self._closed:
            raise BackendError("the session is closed", where=self._model.path, hint="open it again")
        whole = len(self._runners) == 1
        batch, kept = self._runners[0] if whole else ((), None)
        runner = kept or self._start(self._edited(batch) if whole else self._model.file, "")
        keys = self.keys(runner.output_names)
        types = {meta.name: meta.op_type for meta in self.tensors if not meta.unseen}
        left = dict.fromkeys(name for name in types if names is None or name in names)

        def show(op_type: str, variable: str, array: Any) -> Any:
            name = keys.get(variable) or ("" if whole else self._instructions.get(naming.instruction(op_type), ""))
            if name not in left:
                return None
            del left[name]
            return replace(types[name], name, array)

        try:
            runner.execute(feeds, show, writes=True)
            outputs = {name: runner.output(key) for key, name in keys.items() if self._values[name].output}
            fetched = {name: key for key, name in keys.items()}
            for name in [name for name in left if name in fetched]:
                replace(types[name], name, runner.output(fetched[name]))  # the hook passes over its operator
        finally:
            if whole:
                self._runners[0] = (batch, runner)
            else:
                runner.close()
        return outputs

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        return self._operators.held(name, value)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        return self._operators.get(name)

    def _value(self, runner: Runner, name: str, key: str) -> np.ndarray[Any, Any]:
        """Return a fetched value as the program that ships has it."""
        array = runner.output(key)
        if self._copies is not None and key == naming.fetch_name(name):
            return self._copies.shaped(name, array)
        if name not in self._rounded or array.dtype != np.float32:
            return array
        import ml_dtypes

        return array.astype(ml_dtypes.bfloat16).astype(np.float32)

    def close(self) -> None:
        for _, runner in self._runners:
            if runner is not None:
                runner.close()
        self._runners = []
        if self._shipped is not None:
            self._shipped.close()
        if self._bodies is not None:
            self._bodies.close()
        self._closed = True

    def _groups(self, feeds: Feeds) -> tuple[Groups, list[Changed]]:
        """Return what the fused program computes in FP32, each with the values that it may be; see
        ``group_by_value``."""
        runner = self._start(self._model.file, "float32")
        if not self._model.program.pir:
            named: dict[str, str] = {}

            raw = {value.variable or name: name for name, value in self._values.items() if not value.hidden}

            def note(op_type: str, name: str, array: Any) -> None:
                named[raw.get(name, name)] = op_type  # the last operator that writes it is the one that is fetched
                self._ranks[raw.get(name, name)] = array.ndim

            runner.run(feeds, note)
            runner.close()
            if self._quantised:
                runner = self._start(self._model.file, "")
                runner.run(feeds, note)
                runner.close()
            fetchable = {name for name, value in self._values.items() if not value.hidden}
            return [(op_type, [name]) for name, op_type in named.items() if name in fetchable], []
        seen: list[tuple[str, tuple[int, ...], Print]] = []

        def look(op_type: str, _: str, array: Any) -> None:
            if array.size and not naming.carries(op_type):
                seen.append((op_type, array.shape, Print.of(array)))

        runner.run(feeds, look)
        runner.close()
        base: dict[str, tuple[str, tuple[int, ...], Print]] = {}
        names = [name for name, value in self._values.items() if not value.hidden]
        for batch in split_in_batches(self._values, self._limit, names, feeds):
            unfused = self._start(self._edited(batch), "unfused")
            unfused.execute(feeds)
            for key, name in self.keys(unfused.output_names).items():
                array = unfused.peek(key)
                if array is not None and array.size:
                    base[name] = (self._values[name].op_type, array.shape, Print.of(array))
            unfused.close()
        groups, rest = group_by_value(seen, {name: base[name] for name in names if name in base})
        silent: Groups = [("", [name]) for name in base if self._values[name].op_type in _SILENT]
        return [*groups, *silent], rest

    def _list(
        self, groups: Groups, changed: Sequence[Changed], found: Found, fetched: Collection[str], wrong: Collection[str]
    ) -> None:
        """Announce what is seen, and what the fused program has but cannot show. wrong: overwritten when fetched."""
        shown = set(fetched) - set(wrong)
        types: dict[str, str] = {}
        unseen: dict[str, Reason] = dict.fromkeys(wrong, say("overwritten"))
        for op_type, names in groups:
            taken = [name for name in names if name in fetched]
            for name in taken:
                types.setdefault(name, op_type or self._values[name].op_type)
            if not taken and op_type:
                reason = say("untried") if names[0] in found.untried else say("fused")
                unseen.setdefault(names[0], reason)
                types.setdefault(names[0], op_type)
        for item in changed:
            if sum(name in fetched for name in item.names) >= item.tensors:
                continue  # all tensors of that size are accounted for: the other values were fused away
            for name in item.names:
                if name not in fetched:
                    unseen[name] = say("untried") if name in found.untried else say("changed")
        metas = []
        for name, value in self._values.items():
            kind = naming.plain_type(types[name]) if name in types else value.op_type
            if name in shown:
                metas.append(make_meta(value, op_type=kind, view=self._view))
            elif name in unseen:
                metas.append(make_meta(value, op_type=kind, unseen=unseen[name]))
            elif value.hidden == NESTED and self._bodies is not None:
                metas += self._bodies.listed(value, make_meta(value, unseen=NOT_ENTERED))
            elif value.hidden:
                metas.append(make_meta(value, unseen=value.hidden))
        metas = list(add_absorbed(metas, self._values))
        self._tensors = list_metas(self._bodies.in_order(metas) if self._bodies is not None else metas)
        self._notes.append(
            say("fetchable", count=len(shown), all=len(self._values), more=len(unseen), builds=found.builds)
        )
        if self._rounded:
            self._notes.append(say("shown_rounded", count=len(self._rounded)))

    def edited(self, names: Sequence[str]) -> Runner:
        """Return a predictor of the program with these fetched."""
        return self._start(self._edited(names), "")

    def trace(self, runner: Runner, feeds: Feeds, witness: Witness | None = None) -> Trace:
        """Return what the hook was shown in one run, and the outputs."""
        trace = Trace()

        def look(op_type: str, name: str, array: Any) -> None:
            trace.saw(op_type, array)
            if witness is not None:
                witness.saw(op_type, name, array)

        outputs = runner.run(feeds, look)
        known = {value.output for value in self._values.values() if value.output}
        return dataclasses.replace(trace, outputs={name: array for name, array in outputs.items() if name in known})

    def _program(self, batch: tuple[str, ...]) -> Path:
        copied = self._copies.batches.get(batch) if self._copies is not None else None
        return copied or self._edited(batch)

    def _edited(self, names: Sequence[str]) -> Path:
        self._edits += 1
        path = self._folder / f"marked_{self._edits}{self._model.file.suffix or '.pdmodel'}"
        return self._model.program.with_fetches(names, path)

    def keys(self, outputs: Sequence[str]) -> dict[str, str]:
        """Return the predictor's names of its outputs to ours, in the predictor's order."""
        pir = self._model.program.pir
        values = self._values.items()
        known = {naming.fetch_name(name) if pir else value.variable or name: name for name, value in values}
        if not pir:
            known.update((naming.fetch_name(name), name) for name in self._values)
        known.update((value.output, name) for name, value in self._values.items() if value.output)
        return {key: known[key] for key in outputs if key in known}
