"""Sees every ATen operator of a run, in the order of execution, and names what it produces."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from precision_debug.callsite import CallSite
from precision_debug.explain.operators import MOVE, plain_type
from precision_debug.numbers.number_types import QUANTISED_WEIGHT
from precision_debug.protocols import Comparer
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import TensorMeta
from precision_debug.settings.setting import BACKWARD

from ..isolate import Replacing
from ..naming import Namer, is_bookkeeping, op_type
from ..on_device import Elements
from ..reasons import say
from .arithmetic import Arithmetic
from .call_values import (
    ByTensor,
    WrittenConstants,
    find_held,
    held_type,
    leaf_tensors,
    settings_in,
    tensors_in,
    values_of,
    visible_part,
)
from .loans import Loans
from .nested_tensors import iterate_leaves
from .process_switches import Switches
from .training.phases import Phases
from .unwritten import Unwritten

__all__ = ["Trace", "Watch"]


# torch's operators that take functions, run so that the operators inside are seen.

def _cond(chosen: Any, true: Any, false: Any, operands: Any) -> Any:
    with _disable_current_modes():
        taken = bool(chosen)
    return (true if taken else false)(*operands)


def _while_loop(goes_on: Any, body: Any, carried: Any, others: Any) -> Any:
    while True:
        again = goes_on(*carried, *others)
        with _disable_current_modes():
            if not bool(again):
                return tuple(carried)
        carried = body(*carried, *others)


CONTROL = {"cond": _cond, "while_loop": _while_loop}
"""torch's own control flow, done by Python's: the operators inside are the run's own."""


# Where in the user's Python an operator was called.

_RUNS = {"_forward", "_trace"}
"""Methods of the sessions that call the model: who called them made no tensor."""

_OWN = str(Path(__file__).resolve().parent.parent) + os.sep


@functools.cache
def _list_skipped() -> tuple[str, ...]:
    import torch

    return (str(Path(torch.__file__).resolve().parent) + os.sep, _OWN)


@functools.lru_cache(maxsize=65536)
def _is_foreign(file: str) -> bool:
    return (
        file.startswith("<") or file.startswith(_list_skipped()) or os.path.realpath(file).startswith(_list_skipped())
    )


def source_line() -> str:
    """Return "file.py:12 forward: x = self.conv(x)" of the nearest frame outside torch, up to ours; otherwise ""."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_OWN) and code.co_name in _RUNS:
            return ""
        if not _is_foreign(code.co_filename):
            return _text(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return ""


@functools.lru_cache(maxsize=65536)
def _text(file: str, line: int, function: str) -> str:
    return f"{os.path.basename(file)}:{line} {function}: {linecache.getline(file, line).strip()}"


_PRODUCTS = frozenset({"aten.addmm", "aten.mm", "aten.linear"})
"""What an nn.Linear runs, by its inputs' shapes."""

Show = Callable[[TensorMeta, Any], Any]

_CAST = torch.ops.aten._to_copy.default
_UNWRITTEN = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What is known of an ATen operator beforehand. shares: its result may hold its argument's elements, in order.

    moves: it computes nothing. plain: it takes no functions and draws no random numbers.
    """

    kind: str
    unseen: Reason
    writes: bool
    shares: bool
    moves: bool = False
    plain: bool = False


@functools.lru_cache(maxsize=4096)
def _facts(func: Any) -> _Facts:
    kind, schema = op_type(func), getattr(func, "_schema", None)
    if schema is None:
        return _Facts(kind=kind, unseen=NOTHING, writes=True, shares=False)
    shares = any(value.alias_info is not None for value in schema.returns) or kind == "aten._unsafe_view"
    return _Facts(
        kind=kind,
        unseen=say("uninitialised") if kind.removeprefix("aten.") in _UNWRITTEN else NOTHING,
        writes=schema.is_mutable,
        shares=shares and not schema.is_mutable and len(schema.returns) == 1,
        moves=not schema.is_mutable and plain_type(kind) in MOVE,
        plain=torch.Tag.nondeterministic_seeded not in func.tags,
    )


class _Inside:
    """A call of a family that runs now, and what is shown after it (None: everything is shown at once).

    Of each: the row, what is shown, and the tensor itself, None once it holds something else.
    """

    def __init__(self, held: bool) -> None:
        self.held: list[tuple[TensorMeta, Any, Any]] | None = [] if held else None


class Trace:
    """What one run has shown so far.

    constants: parameters and buffers, tensor to name. feeds: the inputs, tensor to name.
    level: "op" shows each operator's results, "module" each module call's.
    show: called with each tensor while it lives. replacing: writes what it returns in the tensor's place.
    listed: what an earlier run found out, by tensor name. names: of what is shown; None: everything. A run that
    replaces, and whose tensors are listed, makes no table of its own of the others.
    phases: of a training step; None: there is a forward alone.
    quantised: paths of quantised layers, of that type. results: name of such a layer's result, or of its product in a
    backward pass, to its row's name without quantisation. held: paths of modules whose weights are of few bits.
    """

    def __init__(
        self, level: str, *, constants: Iterable[tuple[str, Any]], feeds: Mapping[str, Any], show: Show | None,
        quantised: frozenset[str] = frozenset(), type: str = "int8", results: Mapping[str, str] | None = None,
        listed: Mapping[str, TensorMeta] | None = None, replacing: Replacing | None = None,
        names: frozenset[str] | None = None, phases: Phases | None = None, held: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.level, self._phases, self._held = level, phases, held
        self._listed = listed or {}
        self._names_wanted = names if self._listed and replacing is not None and level == "op" else None
        self._replacing = replacing
        self._roots = ByTensor[tuple[str, ...]]()  # what only moves constants about to their names
        self.namer, self._type = Namer(quantised, type), type
        if phases is not None:
            phases.on_rank = self.namer.begin
        self._quantised, self._results = quantised, results or {}
        self._products = frozenset(row for name, row in self._results.items() if name.startswith(BACKWARD))
        self.metas: list[TensorMeta] = []
        self._show = show
        self._module_results: set[str] = set()
        self.calls: list[Any] = []  # the operators in order
        self.places: dict[str, tuple[int, int | None]] = {}  # tensor name to its call and its place among the results
        self.module_results: dict[str, str] = {}  # at level "op": name of a module's result to its row's name
        self._names = ByTensor[tuple[str, ...]]()  # tensor to the names of the rows that it stems from
        self._constants = ByTensor[str]()
        self.unwritten = Unwritten()
        self._inside: _Inside | None = None
        self._elements = ByTensor[Elements]()  # tensor to what stands for its elements
        self._parts = 0  # calls of torch's functions so far
        self._part = ""
        self._module_inputs: list[tuple[str, ...]] = []  # what each module call that runs now was given
        self._calls_of: dict[str, dict[str, tuple[str, ...]]] = {}  # row to the calls whose result it is
        for name, tensor in constants:
            self._constants[tensor] = name
        for name, tensor in feeds.items():
            self._tell(self.namer.plain(name), "Input", tensor, node=name)

    def outputs(self, result: Any) -> dict[str, Any]:
        """Return the run ended: show what it returned; the tensors by name."""
        found: dict[str, Any] = {}
        for name, tensor in iterate_leaves(result, "output"):
            own = self.namer.plain(name)
            found[own] = tensor
            self._tell(own, "Output", tensor, node=name, inputs=self._sources(tensor), is_output=True)
        for place, meta in enumerate(self.metas if self._calls_of else ()):
            calls = self._calls_of.get(meta.name)
            if calls is not None:
                self.metas[place] = replace(meta, call=replace(meta.call or CallSite(), results=calls))
        return found

    def operator(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """An operator was run."""
        inputs = [*tensors_in(args), *tensors_in(kwargs)] if kwargs else tensors_in(args)
        if self._names_wanted is not None and self._replacing is not None:
            self._operator_again(func, args, kwargs, result, inputs, self._names_wanted, self._replacing)
            return
        constants = tuple([found for tensor in inputs if (found := self._constants.get(tensor)) is not None])
        read = self._names_of(inputs)
        facts = _facts(func)
        if facts.writes:
            self._elements.clear()
        if self.level != "module":
            self.unwritten.follow(func, facts.kind, args, kwargs, result, made=bool(facts.unseen), writes=facts.writes)
        moved, read_too = False, constants
        if self._replacing is not None:
            read_too, moved = self._constants_of(inputs, self._replacing), self._only_moves(facts, inputs)
            for tensor in tensors_in(result) if moved else ():
                self._roots[tensor] = read_too
        if self.level == "module":
            for tensor in tensors_in(result):
                self._names[tensor] = read
            return
        name, scope = self._call_name(func, args, kwargs, inputs)
        kind, unseen = self._kind_of(name, facts, kwargs), facts.unseen
        call, extra = self._site(name, scope, args, kwargs, constants)
        self.calls.append(func)
        values, several = values_of(func, args, kwargs, result, facts.writes)
        shown = 0
        for place, (full, value) in enumerate(zip(self._full(func, name, args, inputs, values), values, strict=True)):
            if place and is_bookkeeping(kind.partition(".")[2], place, self._part.rpartition("~")[0]):
                unseen = say("bookkeeping")
            if isinstance(value, torch.Tensor):
                self.places[full] = len(self.calls) - 1, place if several else None
                if facts.shares and not several:
                    _share(self._elements, value, inputs)
                if self._replacing is not None:
                    self._replacing.note(full, func, args, kwargs, read_too, moved=moved)
                self._tell(
                    full, kind, value, node=name, inputs=read, extra=extra, unseen=unseen, call=call,
                    written=facts.writes, replaced=not moved,
                )  # fmt: skip
                shown += 1
            elif isinstance(value, (bool, int, float, complex)) and not shown:
                self._tell(full, kind, torch.tensor(value), node=name, inputs=read, extra=extra, call=call)
                shown += 1
        if not shown:
            self.metas.append(
                TensorMeta(
                    name=name, op_type=kind, node=name, inputs=read, unseen=say("no_tensor"), extra=extra, call=call
                )
            )  # fmt: skip

    def rename(self, tensor: Any, same: Any) -> None:
        """Treat another tensor of the same memory as the tensor itself."""
        self._names.copy(tensor, same)
        self._roots.copy(tensor, same)
        self._elements.copy(tensor, same)

    def _only_moves(self, facts: _Facts, inputs: list[Any]) -> bool:
        """Return whether an operator computes nothing, of nothing but constants."""
        return facts.moves and all(tensor in self._constants or tensor in self._roots for tensor in inputs)

    def _kind_of(self, name: str, facts: _Facts, kwargs: Any) -> str:
        """Return the operator type of a row: of a quantised layer's product in a backward pass, that type's own."""
        kind = facts.kind + QUANTISED_WEIGHT * (facts.kind in _PRODUCTS and _module_of(name) in self._held)
        kind += ".generator" * (bool(kwargs) and kwargs.get("generator") is not None)  # the model's own, as torch says
        return f"{self._type}.{facts.kind.partition('.')[2]}" if name in self._products else kind

    def _site(
        self, name: str, scope: str, args: Any, kwargs: Any, constants: tuple[str, ...]
    ) -> tuple[CallSite, Mapping[str, str]]:
        """Where an operator was called, and its columns: as an earlier run found them out, or anew."""
        known = self._listed.get(name)
        if known is not None and known.call is not None:
            if self._phases is not None:
                self._phases.operator_extra(name, scope, known.extra)
            return known.call, known.extra
        call = CallSite(
            scope=self.namer.prefix + (scope or self.namer.module), part="" if scope else self._part, reads=constants,
            settings=settings_in(args, kwargs),
        )  # fmt: skip
        extra = {"Source": source_line(), **({} if self._inside is None else {"Part of": self.namer.family})}
        return call, extra if self._phases is None else self._phases.operator_extra(name, scope, extra)

    def _operator_again(
        self, func: Any, args: Any, kwargs: Any, result: Any, inputs: list[Any], wanted: frozenset[str],
        replacing: Replacing,
    ) -> None:  # fmt: skip
        """What ``operator`` does, of a run like one before: only what is wanted is shown."""
        facts = _facts(func)
        constants = self._constants_of(inputs, replacing)
        moved = facts.moves and self._only_moves(facts, inputs)
        name, scope = self._call_name(func, args, kwargs, inputs)
        if self._phases is not None:
            self._phases.operator_extra(name, scope, {})
        shown = 0
        values, _ = values_of(func, args, kwargs, result, facts.writes)
        for place, (full, one) in enumerate(zip(self._full(func, name, args, inputs, values), values, strict=True)):
            known = self._listed.get(full)
            if known is not None:
                self.metas.append(known)
            if isinstance(one, torch.Tensor):
                value = one
                replacing.note(full, func, args, kwargs, constants, moved=moved, made=(place, value))
            elif isinstance(one, (bool, int, float, complex)) and not shown:
                value = torch.tensor(one)
            else:
                continue
            shown += 1
            if moved:
                self._roots[value] = constants
            self._names[value] = (full,)
            self._constants.pop(value, None)
            if known is not None and full in wanted and not known.unseen and self._show is not None:
                kind = self._kind_of(name, facts, kwargs)
                meta = known if known.op_type == kind else replace(known, op_type=kind)
                self._shown(meta, value, visible_part(value)[0], facts.writes, not moved)

    def enter(self, path: str, arguments: Any) -> str:
        """A module call begins, of these arguments; returns its name."""
        self._module_inputs.append(() if self._listed else self._sources(arguments))
        return self.namer.enter(path)

    def begin(self, function: str) -> tuple[int, str]:
        """A call of one of torch's own functions begins; returns what ``end`` wants."""
        begun = len(self.metas), self._part
        self._parts += 1
        self._part = f"{function}~{self._parts}"
        return begun

    def end(self, begun: tuple[int, str], result: Any) -> None:
        """It ended: where it was more than one operator, its results are told from what it was made of."""
        first, self._part = begun
        if len(self.metas) > first + 1 and not self._listed:
            self._is_result(result, "()", ())

    def _is_result(self, result: Any, call: str, inputs: tuple[str, ...]) -> None:
        for full, tensor in iterate_leaves(result, call):
            rows = self._names.get(tensor, ())
            if len(rows) == 1:
                self._calls_of.setdefault(rows[0], {}).setdefault(full, inputs)

    def enter_family(self, family: str, *, held: bool = False) -> str:
        """A call begins that torch may do by several operators; returns its name.

        held: nothing is shown until it ends.
        """
        self._inside = _Inside(held)
        return self.namer.enter_family(family)

    def before_writing(self) -> None:
        """An operator is about to write into a tensor: what waits to be shown is copied."""
        if self._inside is not None and self._inside.held:
            self._inside.held[:] = [(meta, value.clone(), None) for meta, value, _ in self._inside.held]

    def leave_family(self) -> None:
        """It ended."""
        self.namer.leave()
        inside, self._inside = self._inside, None
        if inside is not None and inside.held and self._show is not None:
            with _disable_current_modes():  # what a hook computes is not an operator of the model
                for meta, value, tensor in inside.held:
                    new = self._show(meta, value)
                    if new is not None and self._replacing is not None and tensor is not None:
                        self._replacing.put(tensor, new, written=False)

    def module(self, name: str, kind: str, arguments: Any, result: Any) -> None:
        """A module call ended with a result."""
        self.namer.leave()
        entered, own = self._module_inputs.pop(), name.partition("@")[0] in self._quantised
        if own or self.level == "module" or not self._listed:
            with _disable_current_modes():  # what a hook computes is not an operator of the model
                self._tell_module(name, kind, arguments, result, entered)

    def _tell_module(self, name: str, kind: str, arguments: Any, result: Any, entered: tuple[str, ...]) -> None:
        if self.level != "module":
            if name.partition("@")[0] in self._quantised:
                read = self._sources(arguments)
                for full, tensor in iterate_leaves(result, name):
                    own = self.namer.plain(self._results.get(full, f"{full}/{self._type}"))
                    self._tell(own, f"{self._type}.{kind}", tensor, node=name, inputs=read, call=CallSite(scope=name))
            elif not self._listed:
                for full, tensor in iterate_leaves(result, name):
                    sources = self._names.get(tensor, ())
                    if len(sources) == 1:
                        self.module_results[full] = sources[0]
            if not self._listed:
                self._is_result(result, name, entered)
            return
        read = self._sources(arguments)
        found = list(iterate_leaves(result, name))
        for full, tensor in found:
            inner = self._sources(tensor)  # of a module that returns what a module inside it returned
            passed = inner if len(inner) == 1 and inner[0] in self._module_results else ()
            inputs = (*passed, *(n for n in read if n not in passed))
            self._tell(full, kind, tensor, node=name, inputs=inputs, call=CallSite(scope=name))
            self._module_results.add(full)
        if not found:
            self.metas.append(TensorMeta(name=name, op_type=kind, node=name, inputs=read, unseen=say("no_tensor")))

    def abandon(self) -> None:
        """A call of a family ended with an exception."""
        self._inside = None
        self.namer.leave()

    def abandon_module(self) -> None:
        """A module call ended with an exception."""
        self._module_inputs.pop()
        self.abandon()

    def _full(self, func: Any, name: str, args: Any, inputs: list[Any], values: list[Any]) -> list[str]:
        """Return the names of an operator's results."""
        if self._phases is not None:
            if len(values) > 1 and (scopes := self._phases.scopes(args, values)):
                return [name, *(self.namer.operator_in(scope, func) for scope in scopes[1:])]
            self._phases.follow(inputs, [value for value in values if isinstance(value, torch.Tensor)])
        return [name if place == 0 else self.namer.further(func, name, place) for place in range(len(values))]

    def _call_name(self, func: Any, args: Any, kwargs: Any, inputs: list[Any]) -> tuple[str, str]:
        """Return the name of a call, and where it stands beside calls of modules, in a training step."""
        scope = "" if self._phases is None or self.namer.in_module else self._phases.scope(inputs)
        if func is _CAST and kwargs.get("dtype") is not None and kwargs["dtype"] != args[0].dtype:
            sources = self._names.get(args[0], ())
            source = self._constants.get(args[0], "") or (sources[0] if len(sources) == 1 else "")
            if source:
                return self.namer.cast(source, kwargs["dtype"]), scope
        if not scope:
            return self.namer.operator(func), ""
        name = self.namer.operator_in(scope, func)
        return self._results.get(name, name), scope

    def _sources(self, values: Any) -> tuple[str, ...]:
        return self._names_of(leaf_tensors(values))

    def _constants_of(self, inputs: list[Any], replacing: Replacing) -> tuple[str, ...]:
        """Return names of the constants among an operator's arguments, also where they were only moved about before."""
        found: list[str] = []
        for tensor in inputs:
            if (name := self._constants.get(tensor)) is not None:
                found.append(name)
            elif (roots := self._roots.get(tensor)) is not None:
                found += roots
            elif tensor not in self._names:
                replacing.protect(tensor)
        return tuple(found)

    def _names_of(self, tensors: Iterable[Any]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for tensor in tensors:
            if tensor not in self._constants:
                found.update(dict.fromkeys(self._names.get(tensor) or self._names.get(find_held(tensor), ())))
        return tuple(found)

    def _tell(
        self, name: str, kind: str, tensor: Any, *, node: str, inputs: tuple[str, ...] = (), unseen: Reason = NOTHING,
        extra: Mapping[str, str] | None = None, is_output: bool = False, call: CallSite | None = None,
        written: bool = False, replaced: bool = True,
    ) -> None:  # fmt: skip
        dtype, known = _type_name(held_type(tensor)), self._listed.get(name)
        value, view, hidden = visible_part(tensor)
        shape = None if value is None else tuple(value.shape)
        unseen = unseen or hidden or (say("uninitialised") if self.unwritten.holds(tensor) else NOTHING)
        if (
            known is not None and (known.op_type, known.shape, known.inputs) == (kind, shape, inputs)
            and (known.node, known.dtype, known.view, known.unseen) == (node, dtype, view, unseen)
            and known.is_output == is_output and known.extra is (extra or known.extra)
        ):  # fmt: skip
            meta = known
        else:
            meta = TensorMeta(
                name=name, op_type=kind, node=node, dtype=dtype, shape=shape, inputs=inputs, view=view, unseen=unseen,
                is_output=is_output, extra=extra or {}, call=call if known is None else known.call,
                own=self._phases is None and self.namer.is_own(name),
                **({} if self._phases is None else self._phases.facts),
            )  # fmt: skip
        self.metas.append(meta)
        self._names[tensor] = (name,)
        self._constants.pop(tensor, None)
        if self._show is not None and not unseen:
            if value is not tensor and view == "":
                held = self._elements.get(tensor)
                if held is None:
                    held = self._elements[tensor] = Elements()
                value.elements_held = held
            self._shown(meta, tensor, value, written, replaced)

    def _shown(self, meta: TensorMeta, tensor: Any, value: Any, written: bool, replaced: bool) -> None:
        """value: what is visible of the tensor."""
        if self._inside is not None and self._inside.held is not None:
            self._inside.held.append((meta, value, tensor if replaced else None))
            return
        assert self._show is not None
        new = self._show(meta, value)
        if new is not None and self._replacing is not None and replaced:
            self._replacing.put(tensor, new, written=written)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs each operator by the run's arithmetic and tells the trace, if there is one.

    comparer: reads what is under way before an operator writes into a tensor; loans are given back before that.
    switches: looked at before each. constants: told before an operator writes.
    """

    supports_higher_order_operators = True

    def __init__(
        self, arithmetic: Arithmetic, trace: Trace | None = None, comparer: Comparer | None = None,
        switches: Switches | None = None, loans: Loans | None = None, constants: WrittenConstants | None = None,
    ) -> None:  # fmt: skip
        super().__init__()  # type: ignore[no-untyped-call]
        self._switches, self._loans, self._constants = switches, loans, constants
        self._arithmetic = arithmetic
        self._trace = trace
        self._comparer = comparer
        self._made = ByTensor[None]()  # what the last operator made of no tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.detach.default and args[0] in self._made:
            # torch's own call: a factory (arange, zeros) hands over its tensor itself, or, where a hook still holds
            # that one, another of the same memory. A row of it would be there in one run and not in the next.
            result = func(*args, **kwargs)
            self._made[result] = None
            if self._trace is not None:
                self._trace.rename(args[0], result)
            return result
        self._made.clear()
        if self._switches is not None:
            self._switches.look()
        facts = _facts(func)
        if facts.writes:
            if self._loans is not None:
                self._loans.end()
            if self._comparer is not None:
                self._comparer.settle()
            if self._trace is not None:
                self._trace.before_writing()
            if self._constants is not None:
                self._constants.before(func, args, kwargs)
        if not hasattr(func, "_schema") and func.name() in CONTROL:
            with self:
                return CONTROL[func.name()](*args)
        plainly = facts.plain and self._arithmetic.plain
        result = func(*args, **kwargs) if plainly else self._arithmetic.call(func, args, kwargs)
        if self._trace is not None:
            # what a trace and its hooks ask of tensors is not a call of the model
            with torch._C.DisableTorchFunction():
                self._trace.operator(func, args, kwargs, result)
        if not (tensors_in(args) or (kwargs and tensors_in(kwargs))):
            for tensor in tensors_in(result):
                self._made[tensor] = None
        return result


def _share(elements: ByTensor[Elements], value: Any, inputs: list[Any]) -> None:
    """Remember where a result is an argument's elements in the same order."""
    for tensor in inputs:
        if _holds_same_elements(value, tensor):
            elements[value] = elements[tensor] = elements.get(tensor) or Elements()
            return


def _holds_same_elements(value: Any, tensor: Any) -> bool:
    """Return whether two tensors are the same memory, read alike."""
    if value.is_nested or tensor.is_nested or value.layout is not torch.strided:
        return False
    same = tensor.dtype == value.dtype and tensor.numel() == value.numel()
    plain = tensor.is_conj() == value.is_conj() and tensor.is_neg() == value.is_neg()
    dense = value.is_contiguous() and tensor.is_contiguous()
    return bool(same and plain and dense and tensor.data_ptr() == value.data_ptr())


@functools.cache
def _type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _module_of(name: str) -> str:
    return name.rpartition("/")[0].partition("@")[0]
