"""What a PIR program computes inside its loops and branches, as Paddle's own hook shows it: nothing is edited.

In a program that no pass has changed, an operator's place in its block tells which value it makes. Passes leave other
operators: which of them makes which value is found by the numbers, in FP32, over all iterations at once; a mode of
fewer bits runs the same operators in the same order inside a body, or its values are not compared.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, PrecisionDebugError
from precision_debug.protocols import Feeds
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import TensorMeta

from .. import naming
from ..reasons import say
from .fetchable import Print
from .pir_blocks import Block, Call, Item, Reader, copy_call, group_series, mark_of
from .pir_program import PirProgram
from .predictor import Runner
from .program import NESTED, Program, Value, order_bodies

__all__ = ["PirBodies"]

Array = np.ndarray[Any, Any]
Key = tuple[int, int, int]
"""Of an operator's output in a run: which block, in the order of their first call; which operator; which output."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    calls: Sequence[Call]
    outputs: Mapping[str, Array]

    def by_key(self) -> dict[Key, list[Call]]:
        """Return the calls inside bodies, in the order of the run."""
        root = next((mark_of(call.variable) for call in self.calls if mark_of(call.variable)), "")
        blocks: dict[str, int] = {}
        variables: dict[tuple[int, int], list[str]] = {}
        found: dict[Key, list[Call]] = {}
        for call in self.calls:
            mark = mark_of(call.variable)
            if mark in ("", root):
                continue
            block = blocks.setdefault(mark, len(blocks))
            seen = variables.setdefault((block, call.place), [])
            if call.variable not in seen:
                seen.append(call.variable)
            found.setdefault((block, call.place, seen.index(call.variable)), []).append(call)
        return found


class _TooMuch(BackendError):
    """The values of all iterations have more bytes than were allowed."""


class PirBodies:
    """start: makes a runner of the program as it is, for "" (the mode), "float32" (its graph in FP32) or "unfused".

    changed: the mode runs passes. narrow: it computes in fewer bits than FP32. limit: bytes that the values of all
    iterations may have.
    """

    def __init__(
        self, program: PirProgram, start: Callable[[str], Runner], *, changed: bool, narrow: bool, limit: int
    ) -> None:
        self._start, self._changed, self._narrow, self._limit = start, changed, narrow, limit
        self._root: Block = program.blocks()
        self._inputs = _inputs(self._root)
        self._values: dict[str, Value] = {value.name: value for value in program.values if value.hidden == NESTED}
        self._runner: Runner | None = None
        self._named: dict[Key, list[str]] = {}  # the full names of what an operator makes, in order
        self._hidden: dict[str, Reason] = {}  # values that the mode has, and does not show; NOTHING: fused away
        self._full: dict[str, list[str]] = {}  # the names of a value's iterations, without passes
        self._place: dict[str, int] = {}
        self.unseen = NOTHING
        self.metas: dict[str, list[TensorMeta]] = {}

    @classmethod
    def of(
        cls, program: Program, start: Callable[[str], Runner], *, changed: bool, narrow: bool, limit: int
    ) -> PirBodies | None:
        """None where a program has no bodies."""
        if not isinstance(program, PirProgram) or not any(value.hidden == NESTED for value in program.values):
            return None
        return cls(program, start, changed=changed, narrow=narrow, limit=limit)

    def probe(self, feeds: Feeds, outputs: Mapping[str, Array]) -> None:
        """Learn what there is, and that the hook changes nothing. outputs: of the mode without a hook."""
        try:
            run = self._run(feeds)
            if any(run.outputs[name].tobytes() != value.tobytes() for name, value in outputs.items()):
                raise BackendError("the hook changes the outputs")
            if self._changed:
                self._name(feeds, run)
            items = list(self._items(run))
        except PrecisionDebugError as error:
            large = isinstance(error, _TooMuch)
            self.unseen = say("body_too_large", limit=self._limit) if large else say("body_unknown")
            self.metas = {}
            self.close()
            return
        for item in items:
            self.metas.setdefault(item.name, []).append(self._meta(item))
            self._place.setdefault(item.full, len(self._place))

    def run(self, feeds: Feeds) -> Iterator[tuple[str, str, Array]]:
        """(value, its name in the iteration, array), in the order of the run."""
        if not self.unseen:
            for item in self._items(self._run(feeds)):
                yield item.name, item.full, item.call.array

    def listed(self, value: Value, otherwise: TensorMeta) -> list[TensorMeta]:
        """Return the rows of a value of a body. otherwise: where this run did not enter the body."""
        if value.name in self.metas:
            return self.metas[value.name]
        if self.unseen:
            return [replace(otherwise, unseen=self.unseen)]
        if value.name not in self._hidden:
            return [otherwise]
        unseen = self._hidden[value.name]
        return [replace(otherwise, name=full, unseen=unseen) for full in self._full[value.name]] if unseen else []

    def in_order(self, metas: Sequence[TensorMeta]) -> list[TensorMeta]:
        """Return a listing whose values of bodies stand in the order of the run: one iteration after the other."""
        return order_bodies(metas, self._place)

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _run(self, feeds: Feeds, what: str = "") -> _Run:
        if not what and self._runner is None:
            self._runner = self._start("")
        runner = self._start(what) if what else self._runner
        assert runner is not None
        calls: list[Call] = []
        held = 0

        def look(op_type: str, variable: str, array: Any) -> None:
            nonlocal held
            held += array.nbytes
            if held > self._limit:
                raise _TooMuch(
                    f"the values inside its loops and branches take over {self._limit} bytes (fetch_bytes)",
                    hint="raise --option fetch_bytes=4G",
                )
            calls.append(copy_call(op_type, variable, array))

        outputs = runner.run(feeds, look)
        if what:
            runner.close()
        return _Run(calls=calls, outputs=outputs)

    def _read(self, run: _Run) -> list[Item]:
        """Of a run of the program that no pass has changed. Raises BackendError."""
        reader = Reader(self._root)
        items = [item for item in reader.items(run.calls) if item.name in self._values]
        if reader.problem:
            raise BackendError(reader.problem)
        return items

    def _items(self, run: _Run) -> Iterator[Item]:
        if not self._changed:
            yield from self._read(run)
            return
        keys = {id(call): (key, turn) for key, calls in run.by_key().items() for turn, call in enumerate(calls)}
        for call in run.calls:
            key, turn = keys.get(id(call), ((-1, -1, -1), 0))
            full = self._named.get(key, [])
            if turn < len(full):
                yield Item(name=full[turn].rpartition("@")[0] if _has_iteration(full) else full[turn], full=full[turn],
                           call=call)  # fmt: skip
            elif full and _has_iteration(full) and full == [f"{_base(full)}@{place}" for place in range(len(full))]:
                yield Item(name=_base(full), full=f"{_base(full)}@{turn}", call=call)  # it took more turns this time

    def _name(self, feeds: Feeds, run: _Run) -> None:
        """Find out which operator of the mode makes which value."""
        base = group_series(self._read(self._run(feeds, "unfused")))
        wide = self._run(feeds, "float32") if self._narrow else run
        named, layouts = _match_by_numbers(wide.by_key(), base, self._values)
        if self._narrow:
            ours, theirs = _kernels(run), _kernels(wide)
            same = {block for block, kernels in theirs.items() if [k for k, _ in kernels] == [
                k for k, _ in ours.get(block, [])]}  # fmt: skip
            there = {
                old: new for block in same
                for (_, old), (_, new) in zip(theirs[block], ours[block], strict=True)
            }  # fmt: skip
            lost = [key for key in named if key not in there]
            self._hidden.update((named[key], say("body_other_kernels")) for key in lost)
            named = {there[key]: name for key, name in named.items() if key in there}
        self._hidden.update((name, say("body_layout")) for name in layouts)
        self._named = {key: [item.full for item in base[name]] for key, name in named.items() if name not in layouts}
        self._full = {name: [item.full for item in items] for name, items in base.items()}
        left = {
            calls[0].array.size for key, calls in run.by_key().items()
            if key not in named and not naming.carries(calls[0].op_type)
        }  # fmt: skip
        for name, items in base.items():
            if name not in named.values():
                unknown = items[0].call.array.size in left  # a pass may have changed its numbers
                self._hidden.setdefault(name, say("changed") if unknown else NOTHING)

    def _meta(self, item: Item) -> TensorMeta:
        value = self._values[item.name]
        kind = naming.plain_type(item.call.op_type)
        return TensorMeta(
            name=item.full, op_type=kind, dtype=item.call.array.dtype.name, shape=item.call.array.shape,
            inputs=tuple(self._source(one, item) for one in self._inputs.get(item.name, ()) or value.inputs),
        )  # fmt: skip

    def _source(self, name: str | tuple[str, str], item: Item) -> str:
        """Return what it reads in its iteration. name: a value, or what a loop carries: what it starts with, and what
        an iteration carries on."""
        turn = item.full[len(item.name) + 1 :]
        if isinstance(name, tuple):
            first, later = name
            return first if turn in ("", "0") else f"{later}@{int(turn) - 1}"
        return f"{name}@{turn}" if turn and name in self._values else name


def _base(full: Sequence[str]) -> str:
    return full[0].rpartition("@")[0]


def _has_iteration(full: Sequence[str]) -> bool:
    """Return whether names of a value have an iteration; layers stand behind an @ too."""
    return bool(full) and full[0].rpartition("@")[2].isdigit()


def _inputs(root: Block) -> dict[str, list[str | tuple[str, str]]]:
    """By value of a body: the values that it reads, through operators that only bundle others."""
    found: dict[str, list[str | tuple[str, str]]] = {}
    known: dict[int, list[str | tuple[str, str]]] = {}

    def walk(block: Block) -> None:
        for op in block.ops:
            reads = [one for number in op.reads for one in known.get(number, ())]
            for inner in op.blocks:
                made = {number: name for one in inner.ops for number, name in zip(one.outputs, one.names, strict=True)}
                starts, ends = op.reads[1:], inner.yields[1:]
                for argument, start, end in zip(inner.arguments, starts, ends, strict=False):
                    first = next((one for one in known.get(start, ()) if isinstance(one, str)), "")
                    known[argument] = [(first, made.get(end, ""))]
                walk(inner)
            for number, name in zip(op.outputs, op.names, strict=True):
                known[number] = [name] if name else reads
                if name:
                    found[name] = list(dict.fromkeys(reads))

    walk(root)
    return found


def _match_by_numbers(
    keys: Mapping[Key, Sequence[Call]], base: Mapping[str, Sequence[Item]], values: Mapping[str, Value]
) -> tuple[dict[Key, str], frozenset[str]]:
    """Return which operator's output is which value, and the values whose elements come in an order of the engine's
    own.

    One of the same type is taken before one that other operators were fused into, which has the last one's value.
    """
    prints = {name: [Print.of(item.call.array) for item in items] for name, items in base.items()}
    named: dict[Key, str] = {}
    layouts: set[str] = set()
    for same_type in (True, False):
        for key, calls in keys.items():
            if key in named or naming.carries(calls[0].op_type):
                continue
            ours = [Print.of(call.array) for call in calls]
            for name, theirs in prints.items() if same_type else reversed(prints.items()):
                alike = naming.plain_type(calls[0].op_type) == values[name].op_type
                if name in named.values() or alike != same_type or len(ours) != len(theirs):
                    continue
                if all(one.fits(other) for one, other in zip(theirs, ours, strict=True)):
                    named[key] = name
                    if any(_is_permuted(item.call.array, call.array)
                           for item, call in zip(base[name], calls, strict=True)):  # fmt: skip
                        layouts.add(name)
                    break
    return named, frozenset(layouts)


def _is_permuted(base: Array, array: Array) -> bool:
    """Of two arrays with the same numbers: whether they stand in other places."""
    if base.shape != array.shape:
        return True
    one, other = base.astype(np.float64), array.astype(np.float64)
    scale = float(np.max(np.abs(one), initial=0.0, where=np.isfinite(one)))
    return not np.allclose(one, other, rtol=0.0, atol=1e-3 * scale + 1e-12, equal_nan=True)


def _kernels(run: _Run) -> dict[int, list[tuple[str, Key]]]:
    """By block: type and key of each operator, in its order, but for those that only move or cast."""
    found: dict[int, list[tuple[str, Key]]] = collections.defaultdict(list)
    for key, calls in sorted(run.by_key().items()):
        kind = naming.plain_type(calls[0].op_type)
        if not naming.carries(calls[0].op_type) and kind != "cast":
            found[key[0]].append((kind, key))
    return found
