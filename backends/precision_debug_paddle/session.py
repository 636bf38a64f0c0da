"""One loaded model in one run mode, where every tensor is shown by the predictor's own hook, under Paddle's name.

That is right for legacy programs whose tensors keep the model's layout: on the CPU without oneDNN, and on the GPU.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from precision_debug.inspector import EngineLayer
from precision_debug.protocols import Feeds, Hook, Replace, Replacer
from precision_debug.reasons import Reason
from precision_debug.records import Doubt, Operator, TensorMeta

from . import naming
from .engine import framework
from .engine.operators import Operators
from .engine.predictor import Runner
from .engine.program import NESTED, Value
from .engine.recorded import Bodies, Delivery
from .model import Model
from .reasons import say

__all__ = ["NOT_ENTERED", "HookSession", "add_absorbed", "doubt_not_run", "list_metas", "make_meta"]


_FOLDED = frozenset({"batch_norm", "sync_batch_norm", "affine_channel"})
_LINEAR = frozenset({
    "conv2d", "conv2d_transpose", "conv3d", "depthwise_conv2d", "depthwise_conv2d_transpose", "matmul", "matmul_v2",
    "mul",
})  # fmt: skip


_BRANCHES = frozenset({"conditional_block", "conditional_block_infer"})
NOT_ENTERED = say("not_entered")
_IN_A_BODY = say("in_a_body")


class _Turns:
    """Within one run: which of a variable's values a call of the hook shows, by the operator that wrote it.

    written: variable to its values in the order of the program.
    """

    def __init__(self, written: Mapping[str, Sequence[Value]]) -> None:
        self._written = written
        self._next: collections.Counter[str] = collections.Counter()

    def name(self, op_type: str, variable: str) -> str:
        values = self._written.get(variable, ())
        if len(values) < 2:
            return variable
        kind, at = naming.plain_type(op_type), self._next[variable]
        # fused away, an operator no longer writes its value; its place is then skipped
        turn = next((turn for turn in range(at, len(values)) if values[turn].op_type == kind), at)
        self._next[variable] = turn + 1
        return values[min(turn, len(values) - 1)].name


class HookSession:
    """runner: the predictor. extra: further columns of the report, by tensor name. apart: batch norms that are known to
    be operators of their own still. on_cpu: the tensors lie in this machine's memory, in the model's layout. bodies:
    what records the values inside loops and branches. scalars: tensors without a dimension, which are shown so.

    kinds: how many tensors ``probe`` saw of each operator type, whether they are shown or not; whole: those of them
    that are whole numbers. Until ``probe`` or ``run``, ``tensors`` are those of the unoptimised program.
    """

    layers: Sequence[EngineLayer] = ()
    alone = arithmetic = ""

    def __init__(
        self, model: Model, runner: Runner, *, versions: Mapping[str, str], notes: Sequence[Reason] = (),
        extra: Mapping[str, Mapping[str, str]] | None = None, apart: Collection[str] = (), wants: str = "",
        on_cpu: bool = False, bodies: Bodies | None = None, scalars: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._bodies = bodies
        self._scalars = frozenset(scalars)
        self.doubts: Sequence[Doubt] = ()
        self.executed: tuple[int, int] | None = None
        self._on_cpu = on_cpu
        self._operators = Operators(model)
        self._wants = wants
        self.versions = versions
        self._apart = frozenset(apart)
        self._extra = extra or {}
        self._runner = runner
        self._values = {value.name: value for value in model.program.values}
        self._written: dict[str, list[Value]] = collections.defaultdict(list)
        for value in model.program.values:
            self._written[value.variable or value.name].append(value)
        self._left_out: set[str] = set()
        self.kinds: collections.Counter[str] = collections.Counter()
        self.whole: collections.Counter[str] = collections.Counter()
        self._refused: frozenset[str] = frozenset()
        self._notes = list(notes)
        self.tensors: Sequence[TensorMeta] = list_metas(make_meta(value) for value in model.program.values)
        self._probed = False

    @property
    def notes(self) -> Sequence[Reason]:
        count = len(self._left_out)
        return (*self._notes, say("no_activations", count=count)) if count else tuple(self._notes)

    def add_note(self, text: Reason) -> None:
        """Say something more to the reader of a report."""
        self._notes.append(text)

    def probe(self, feeds: Feeds) -> None:
        """Run once to learn which tensors the program that runs has, in its own order."""
        found: dict[str, TensorMeta] = {}
        turns = _Turns(self._written)
        types: collections.Counter[str] = collections.Counter()

        def look(op_type: str, variable: str, array: Any) -> None:
            types[array.dtype.name] += 1
            self.kinds[naming.plain_type(op_type)] += 1
            self.whole[naming.plain_type(op_type)] += array.dtype.kind in "iub"
            name = turns.name(op_type, variable)
            array = self._as_it_is(name, array)
            if self._shown(name, array):
                found[name] = self._meta(name, op_type, array)

        outputs = self._runner.run(feeds, look)
        if self._bodies is not None:
            self._bodies.probe(feeds, outputs)
        self.doubts = doubt_not_run(self._wants, types)
        if self._wants:
            floats = sum(number for name, number in types.items() if "float" in name)
            self.executed = types[self._wants], floats
        refilled = self._refilled(found)
        if refilled:
            self._notes.append(say("refilled", count=len(refilled)))
        self._refused = refilled
        shown = [meta for meta in found.values() if meta.name not in refilled]
        hidden = [meta for value in self._values.values() if value.name not in found for meta in self._inside(value)]
        self.tensors = self._listed(shown, hidden)
        dark = sum(bool(meta.unseen) for meta in hidden)
        if dark:
            self._notes.append(say("in_bodies", count=dark))
        if len(shown) + len(hidden) < len(self._values):
            self._notes.append(say("still_there", count=len(shown), all=len(self._values)))
        self._probed = True

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if not self._probed:
            self.probe(feeds)
        if hook is None:
            return self._runner.run(feeds)
        if self._bodies is None:
            return self._runner.run(feeds, self._seen(hook, names))
        bodies = Delivery(list(self._bodies.run(feeds)), self.tensors, names)

        def show(op_type: str, name: str, array: Any, /) -> None:
            bodies.before(name, hook)
            hook(op_type, name, array)

        outputs = self._runner.run(feeds, self._seen(show, names))
        bodies.rest(hook)
        return outputs

    @property
    def replacer(self) -> Replacer:
        return self

    @property
    def replaces(self) -> bool:
        """See protocols.Replacer: the hook has the engine's own memory."""
        return self._on_cpu and framework.can_write()

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer."""
        if not self._probed:
            self.probe(feeds)
        self._runner.execute(feeds, self._seen(replace, names), writes=True)
        return {name: self._runner.output(name) for name in self._runner.output_names}

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        return self._operators.held(name, value)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        return self._operators.get(name)

    def _seen(self, hook: Hook | Replace, names: Collection[str] | None) -> Callable[[str, str, Any], Any]:
        """Return what a runner's receiver is to be, so that a hook sees the tensors that are shown, and what it
        returns."""
        turns = _Turns(self._written)

        def show(op_type: str, variable: str, array: Any) -> Any:
            name = turns.name(op_type, variable)
            array = self._as_it_is(name, array)
            if name not in self._refused and self._shown(name, array) and (names is None or name in names):
                return hook(naming.plain_type(op_type), name, array)
            return None

        return show

    def close(self) -> None:
        self._runner.close()
        if self._bodies is not None:
            self._bodies.close()

    def _inside(self, value: Value) -> Sequence[TensorMeta]:
        """Return the rows of a value in a body, or of a branch's result, that the program's own hook did not show."""
        if value.hidden.code == NESTED.code:
            if self._bodies is None:
                return [make_meta(value, unseen=_IN_A_BODY)]
            return self._bodies.listed(value, make_meta(value, unseen=NOT_ENTERED))
        return [make_meta(value, unseen=NOT_ENTERED)] if value.op_type in _BRANCHES else []

    def _in_order(self, shown: Sequence[TensorMeta], hidden: Sequence[TensorMeta]) -> Iterator[TensorMeta]:
        """Yield what is shown in the order of the run, and what lies in a body before what its loop or branch gives."""
        place = {name: number for number, name in enumerate(self._values)}
        waiting = [
            (place[meta.name] if meta.name in place else place[meta.name.rpartition("@")[0]], meta) for meta in hidden
        ]
        for meta in shown:
            for item in [item for item in waiting if item[0] < place[meta.name]]:
                waiting.remove(item)
                yield item[1]
            yield meta
        yield from (meta for _, meta in waiting)

    def _listed(self, shown: Sequence[TensorMeta], hidden: Sequence[TensorMeta]) -> Sequence[TensorMeta]:
        listed = list(self._in_order(shown, hidden))
        listed = list(add_absorbed(listed, self._values))
        return list_metas(self._bodies.in_order(listed) if self._bodies is not None else listed)

    def _as_it_is(self, name: str, array: Any) -> Any:
        """With the dimensions that the model gives it."""
        return array.reshape(()) if name in self._scalars and array.shape == (1,) else array

    def _shown(self, name: str, array: Any) -> bool:
        """Return whether a tensor is an activation; a running statistic has the name of a parameter."""
        value = self._values.get(name)
        if value is not None and (array.size or 0 in (value.shape or ())):
            return True
        self._left_out.add(name)
        return False

    def _refilled(self, found: Mapping[str, TensorMeta]) -> frozenset[str]:
        """Return tensors between a linear operator and the batch norm that was folded into its weights.

        The convolution keeps its output's name, but with other weights it is another tensor.
        """
        readers = collections.Counter(name for value in self._values.values() for name in value.inputs)
        names: set[str] = set()
        for norm in self._values.values():
            now = found.get(norm.name)
            whole = norm.name in self._apart or (now is not None and now.op_type == norm.op_type)
            if norm.op_type not in _FOLDED or whole:
                continue
            before = list(norm.inputs)
            while before:
                value = self._values.get(before.pop())
                if value is None or readers[value.name] != 1:
                    continue
                bias = value.op_type == "elementwise_add" and len(value.inputs) == 1
                if (value.op_type in _LINEAR or bias) and value.name in found:
                    names.add(value.name)
                before += value.inputs if bias else ()
        return frozenset(names)

    def _meta(self, name: str, op_type: str, array: Any) -> TensorMeta:
        value = self._values[name]
        kind = naming.plain_type(op_type)
        return TensorMeta(
            name=name, op_type=kind, dtype=array.dtype.name, shape=array.shape, inputs=value.inputs,
            is_output=bool(value.output), extra=self._extra.get(name, {}),
        )  # fmt: skip


def doubt_not_run(wanted: str, types: Collection[str]) -> tuple[Doubt, ...]:
    """Return what is in doubt where no tensor had the type that a mode is for.

    wanted: "bfloat16" or "float16"; "" asks for nothing. types: of all tensors that Paddle's own hook saw.
    """
    if not wanted or wanted in types:
        return ()
    seen = sorted(types) or ["none"]
    detail = say("passes_did_nothing", types=seen)
    return (Doubt(code="precision_not_run", values={"precision": wanted, "detail": detail}),)


def list_metas(metas: Iterable[TensorMeta]) -> tuple[TensorMeta, ...]:
    """Return the list that a session announces: ``inputs`` name only what is in it."""
    listed = tuple(metas)
    names = {meta.name for meta in listed}
    return tuple(
        dataclasses.replace(meta, inputs=tuple(name for name in meta.inputs if name in names)) for meta in listed
    )


def add_absorbed(metas: Iterable[TensorMeta], values: Mapping[str, Value]) -> tuple[TensorMeta, ...]:
    """Return the metas with the program's values that the engine fused into the operator of each: those between it and
    the nearest values that are listed."""
    listed = tuple(metas)
    there = {meta.name for meta in listed}

    def inside(meta: TensorMeta) -> tuple[str, ...]:
        value = values.get(meta.name)
        waiting, found = list(value.inputs) if value is not None else [], dict[str, None]()
        while waiting:
            name = waiting.pop()
            if name in values and name not in there and name not in found:
                found[name] = None
                waiting.extend(values[name].inputs)
        return tuple(found)

    return tuple(dataclasses.replace(meta, absorbs=inside(meta)) for meta in listed)


def make_meta(value: Value, **changes: Any) -> TensorMeta:
    """Return a value of the unoptimised program as the core wants it."""
    known: dict[str, Any] = {
        "name": value.name, "op_type": value.op_type, "node": value.node, "dtype": value.dtype, "shape": value.shape,
        "inputs": value.inputs, "is_output": bool(value.output),
    }  # fmt: skip
    return TensorMeta(**{**known, **changes})
