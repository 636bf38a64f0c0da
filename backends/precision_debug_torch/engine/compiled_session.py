"""A module under torch.compile: the tensors of a compiled graph, under the names that they have without it.

The outputs are those of ``torch.compile(module)``. A fused kernel has no intermediate tensors, so these come from a
second compilation of the same operators that also returns them; like a marked tensor in TensorRT, one that must be
written out cannot be fused away. Whether that changed the outputs is said in the notes.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from precision_debug.errors import BackendError
from precision_debug.inspector import EngineLayer
from precision_debug.numbers.arrays import as_array
from precision_debug.protocols import Comparer, Feeds, Hook
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import Doubt, TensorMeta

from ..make import Built, arguments_of, make_twin, tensors_of
from ..modes import Recipe
from ..reasons import say
from ..session import device_versions, make_unseen_write_error, translate_error, wrap
from .arithmetic import Arithmetic
from .call_values import WrittenConstants, put_back
from .compiling import (
    as_compiling,
    call_compiled,
    compile_module,
    first_line,
    leave_out,
    run_eagerly,
    silence_warnings,
    unfuse_attention,
)
from .dispatch import Trace, Watch
from .eager_numerics import is_inside
from .function_calls import Families
from .input_types import tell_types
from .kernels import kernels_of, record_sources
from .layers import layer_of
from .nested_tensors import iterate_leaves

__all__ = ["CompiledSession", "was_touched"]


# Whether a run has left a trace in a module: state that a next run would start from.

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def was_touched(module: Any, original: Any) -> bool:
    """Return whether buffers, numbers, or tensors and numbers in lists, dicts and sets differ between a module and what
    it was copied from. Other objects are taken to be unchanged. """
    pairs = zip(module.modules(), original.modules(), strict=False)
    return any(_differs(own.__dict__, other.__dict__) for own, other in pairs)


def _differs(own: Any, other: Any) -> bool:
    if own is other:
        return False
    if isinstance(own, torch.Tensor) or isinstance(other, torch.Tensor):
        return not _same_tensor(own, other)
    if isinstance(own, _PLAIN) or isinstance(other, _PLAIN):
        return type(own) is not type(other) or not (own == other or (own != own and other != other))  # noqa: PLR0124
    if isinstance(own, dict) and isinstance(other, dict):
        return own.keys() != other.keys() or any(
            _differs(own[key], other[key]) for key in own if key not in ("_modules", "_parameters", "_call_impl")
        )
    if isinstance(own, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(own) != len(other) or any(map(_differs, own, other))
    if isinstance(own, (set, frozenset)) and isinstance(other, (set, frozenset)):
        return len(own) != len(other) or _plain_of(own) != _plain_of(other)
    return False


def _plain_of(items: Any) -> set[Any]:
    return {item for item in items if isinstance(item, _PLAIN)}


def _same_tensor(own: Any, other: Any) -> bool:
    if not (isinstance(own, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    if own.shape != other.shape or own.dtype != other.dtype:
        return False
    return torch.equal(own, other) or bool(own.is_floating_point() and torch.equal(own.isnan(), other.isnan())
                                           and torch.equal(own.nan_to_num(), other.nan_to_num()))  # fmt: skip


_TWINS = 4
"""Compiled twins before torch's caches are reset: beyond its own limit torch silently runs a module uncompiled."""

_PATHS = 8
"""Ways through a model whose Python asks for values that are compiled for the inputs of one set of shapes."""

_SUMS = 64
"""Roundings by which two graphs of the same operators may differ, which fuse and add up in their own ways."""

_SAME = {torch.ops.aten.lift_fresh.default: torch.ops.aten.lift_fresh_copy.default}
"""Operators that tracing writes down as another one: what torch.tensor() makes is copied, so that a graph owns it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Plan:
    """One set of input shapes, and where the model's Python asks for values one way through it: key.

    metas: all rows. values: row name to (call, place). graph: the operators in torch.fx. compiling: those of a model
    that is told that it is being compiled. eager: calls of modules that are not compiled.
    """

    key: Any
    metas: tuple[TensorMeta, ...]
    values: Mapping[str, tuple[int, int | None]]
    graph: Any
    compiling: bool = False
    eager: frozenset[int] = frozenset()


class CompiledSession:
    """A torch module in the mode torch_compile; see TorchSession for the arguments.

    backend, options: torch.compile's; options of inductor alone. uncompiled: paths of modules that run eagerly.
    """

    doubts: Sequence[Doubt]
    alone = arithmetic = ""
    replacer = None

    def __init__(
        self, built: Built, recipe: Recipe, *, level: str, seed: int, feeds: Feeds | None = None,
        device_tensors: bool = False, comparer: Comparer | None = None, on_close: Callable[[], None] | None = None,
        backend: str = "inductor", options: Mapping[str, Any] | None = None, uncompiled: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._compile = functools.partial(compile_module, backend=backend, options=options or {})
        self._built: Built | None = built
        self._recipe = recipe
        self._level = level
        self._uncompiled = tuple(uncompiled)
        self._feeds = feeds
        self._device_tensors = device_tensors or comparer is not None
        self._on_close = on_close
        self._arithmetic = Arithmetic(recipe, device=built.device, seed=seed)
        self.doubts = built.doubts
        self._notes = [*built.notes, say("random_eager")]
        self._plans: dict[Any, _Plan] = {}
        self._asking: dict[Any, int] = {}  # shapes of inputs whose values decide what runs, and how many ways were seen
        self._marked: dict[Any, Any] = {}
        self._twin: Any = None
        self._twins = 0
        self._last: _Plan | None = None
        self._changed: bool | None = None
        self._sources: list[str] = []
        self._own: dict[str, int] | None = None  # parameters that forward writes into, and their bytes; None: not known

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Every tensor in execution order. Before the first run, asking takes a run on the feeds of ``open``."""
        if self._last is None and self._feeds is not None and self._built is not None:
            self._last = self._plan(tensors_of(self._built, self._feeds))
        return self._last.metas if self._last is not None else ()

    @property
    def notes(self) -> Sequence[Reason]:
        found = [*self._notes, *(tell_types(self._built.model) if self._built is not None else ())]
        if self._own:
            found.append(say("writes_parameters", count=len(self._own), size=f"{sum(self._own.values()) / 1e6:.3g} MB"))
        if self._changed is not None:
            found.append(say("second_graph_differs") if self._changed else say("second_graph_same"))
        return tuple(found)

    @property
    def layers(self) -> Sequence[EngineLayer]:
        """The kernels of the graph whose outputs are compared: the one that shows nothing."""
        return kernels_of(self._sources)

    @property
    def versions(self) -> Mapping[str, str]:
        return device_versions(self._built.device if self._built is not None else None)

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        built = self._built
        if built is None:
            raise BackendError("the session is closed", where=self._recipe.mode.name)
        tensors = tensors_of(built, feeds)
        if self._own is None:
            self._trace("op", tensors)
            tensors = tensors_of(built, feeds)
        with record_sources() as sources:
            result = self._call(self._plain(), *arguments_of(built.model, tensors), module=self._twin)
        self._sources = sources or self._sources
        self._forget_if_touched(built)
        outputs = dict(iterate_leaves(result, "output"))
        if hook is not None:
            self._last = plan = self._plan(tensors_of(built, feeds))
            wanted = [meta for meta in plan.metas if not meta.unseen and (names is None or meta.name in names)]
            values = self._values(plan, wanted, feeds, outputs)
            for meta in wanted:
                if meta.name not in values:
                    continue
                value = values[meta.name].detach()
                hook(meta.op_type, meta.name, value if self._device_tensors else as_array(value, name=meta.name))
        return {name: as_array(tensor, name=name) for name, tensor in outputs.items()}

    def close(self) -> None:
        self._built = None
        self._feeds = None
        self._plans.clear()
        self._marked.clear()
        self._twin = None
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def _values(
        self, plan: _Plan, wanted: Sequence[TensorMeta], feeds: Feeds, outputs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        assert self._built is not None
        tensors = tensors_of(self._built, feeds)
        found = {**tensors, **outputs}
        inside = [meta.name for meta in wanted if meta.name in plan.values]
        if inside:
            key = plan.key, plan.compiling, tuple(inside)
            if key not in self._marked:
                self._marked[key] = self._compiled(plan, inside)
            flat = list(tensors_of(self._built, feeds).values())
            try:
                try:
                    returned, shown = self._call(self._marked[key], tuple(flat), {})
                except BackendError:  # as inductor lays out what is shown, it may be no view of it
                    self._marked[key] = self._compiled(plan, inside, views=False)
                    returned, shown = self._call(self._marked[key], tuple(flat), {})
            except BackendError as error:
                self._hide(plan, say("second_graph_fails", detail=first_line(error)))
                return found
            self._changed = not all(
                torch.equal(one, other) or bool((one.isnan() == other.isnan()).all() and one.isnan().any())
                for one, other in zip(outputs.values(), returned, strict=True)
            )
            off = any(_is_off(one, other) for one, other in zip(outputs.values(), returned, strict=True))
            if off and (other := self._as_compiled(plan, tensors_of(self._built, feeds))) is not None:
                self._last = self._plans[plan.key] = other
                return self._values(other, [meta for meta in wanted if meta.name in other.values], feeds, outputs)
            found.update(zip(inside, shown, strict=True))
        return found

    def _hide(self, plan: _Plan, why: Reason) -> None:
        """Nothing of it can be seen but what goes in and comes out."""
        metas = tuple(
            dataclasses.replace(meta, unseen=meta.unseen or why) if meta.name in plan.values else meta
            for meta in plan.metas
        )
        self._last = self._plans[plan.key] = _Plan(key=plan.key, metas=metas, values={}, graph=None)

    def _plain(self) -> Any:
        assert self._built is not None
        if "plain" not in self._marked:
            self._twin = make_twin(self._built.module, frozenset())
            leave_out(self._twin, self._uncompiled, "--option uncompiled")
            self._marked["plain"] = self._compile(self._twin)
        return self._marked["plain"]

    def _forget_if_touched(self, built: Built) -> None:
        """Where the run left state behind, the next one compiles a fresh twin: each run starts from the model's own."""
        if self._twin is not built.module and was_touched(self._twin, built.module):
            del self._marked["plain"]
            self._twin = None
            self._twins += 1
            if self._twins % _TWINS == 0:
                torch.compiler.reset()

    def _plan(self, inputs: Mapping[str, Any]) -> _Plan:
        """Return the operators of an eager run, which the compiled graph is made of."""
        shapes = _shapes(inputs)
        by_op = self._trace("op", inputs) if shapes in self._asking or shapes not in self._plans else None
        key = (shapes, _record_way(by_op)) if by_op is not None and shapes in self._asking else shapes
        if key in self._plans:
            return self._plans[key]
        assert by_op is not None
        metas, values = tuple(by_op.metas), dict(by_op.places)
        if self._level == "module":
            metas = tuple(self._trace("module", inputs).metas)
            values = {
                meta.name: by_op.places[by_op.module_results[meta.name]]
                for meta in metas
                if by_op.module_results.get(meta.name) in by_op.places
            }
        graph, problem, asks = self._graph(inputs, by_op.calls)
        if asks:
            if not self._asking:
                self._notes.append(say("one_graph"))
            key, self._asking[shapes] = (shapes, _record_way(by_op)), self._asking.get(shapes, 0) + 1
            if self._asking[shapes] > _PATHS:
                graph, problem = None, say("many_ways", count=_PATHS)
        over = _find_overwritten(graph) if graph is not None else frozenset()
        lost = {name for name, (call, _) in values.items() if call in over}
        values = {name: place for name, place in values.items() if graph is not None and name not in lost}
        why = problem or say("no_operator")
        metas = tuple(
            meta
            if meta.unseen or meta.name in values or meta.op_type in ("Input", "Output")
            else dataclasses.replace(meta, unseen=say("written_over") if meta.name in lost else why)
            for meta in metas
        )
        eager = frozenset(
            by_op.places[meta.name][0] for meta in by_op.metas
            if meta.name in by_op.places and is_inside(layer_of(meta), self._uncompiled)
        )  # fmt: skip
        self._plans[key] = _Plan(key=key, metas=metas, values=values, graph=graph, eager=eager)
        return self._plans[key]

    def _trace(self, level: str, inputs: Mapping[str, Any]) -> Trace:
        assert self._built is not None
        module = make_twin(self._built.module, frozenset())
        own = {name: tensor.clone() for name, tensor in inputs.items()}
        args, kwargs = arguments_of(self._built.model, own)
        constants = [*module.named_parameters(), *module.named_buffers()]
        trace = Trace(level, constants=constants, feeds=own, show=None)
        undo, shared = wrap(module, trace), WrittenConstants(module.named_parameters())
        self._arithmetic.reset()
        try:
            families = Families(trace) if level == "op" else contextlib.nullcontext()
            watch = Watch(self._arithmetic, trace, constants=shared)
            with put_back(module, module, ()), torch.no_grad(), families, unfuse_attention(), watch:
                result = module(*args, **kwargs)
            trace.outputs(result)
        except Exception as error:
            raise translate_error(error, self._built.model, trace, own) from error
        finally:
            undo()
            shared.restore()
        sizes = {name: parameter.nbytes for name, parameter in self._built.module.named_parameters()}
        self._own = {**(self._own or {}), **{name: sizes[name] for name in shared.written if name in sizes}}
        return trace

    def _graph(self, inputs: Mapping[str, Any], calls: Sequence[Any]) -> tuple[Any, Reason, bool]:
        """Return the operators as one graph of the flat inputs, or None and why there is none; and whether the model's
        Python asked for values, so that the graph is that of these inputs' values alone."""
        problem = NOTHING
        for asks in (False, True):
            try:
                graph = self._traced(inputs, asks=asks)
            except Exception as error:
                problem = problem or say("in_pieces", detail=first_line(error))
                continue
            plain = [_SAME.get(call, call) for call in calls]
            traced = _targets(graph)
            if traced != plain:
                one, other = _find_first_other(plain, traced)
                why = say("other_operators", traced=len(traced), plain=len(plain), one=one, other=other)
                return None, why, asks
            return graph, NOTHING, asks
        return None, problem, False

    def _traced(self, inputs: Mapping[str, Any], *, asks: bool) -> Any:
        """One run as a graph of the flat inputs. asks: the model's Python may ask for values."""
        from torch.fx.experimental.proxy_tensor import make_fx

        assert self._built is not None
        model, order = self._built.model, list(inputs)
        module = make_twin(self._built.module, frozenset())  # which a trace that failed has left anyhow

        def flat(*tensors: Any) -> Any:
            args, kwargs = arguments_of(model, dict(zip(order, tensors, strict=True)))
            return [value for _, value in iterate_leaves(module(*args, **kwargs), "output")]

        self._arithmetic.reset()
        how = {"_error_on_data_dependent_ops": False} if asks else {}
        aside = put_back(module, self._built.module, self._own or ())
        with aside, torch.no_grad(), silence_warnings(), unfuse_attention(), self._arithmetic.globally():
            return make_fx(flat, **how)(*(tensor.clone() for tensor in inputs.values()))

    def _as_compiled(self, plan: _Plan, inputs: Mapping[str, Any]) -> _Plan | None:
        """Return the plan of a model that runs other operators where it asks whether it is being compiled; None where
        it does not. Seen are the operators before the first that differs and behind the last: those that both runs
        have."""
        if plan.compiling:
            return None
        try:
            with as_compiling():
                graph = self._traced(inputs, asks=True)
        except Exception:  # then nothing is known of it
            return None
        plain, traced = (_targets(one) for one in (plan.graph, graph))
        if traced == plain:
            return None
        one, other = _find_first_other(plain, traced)
        why = say("other_when_compiled", traced=len(traced), plain=len(plain), one=one, other=other)
        ends, over = _ends(plain, traced), _find_overwritten(graph)
        values = {
            name: (ends[call], place) for name, (call, place) in plan.values.items()
            if call in ends and ends[call] not in over
        }  # fmt: skip
        metas = tuple(
            dataclasses.replace(meta, unseen=meta.unseen or why)
            if meta.name in plan.values and meta.name not in values else meta
            for meta in plan.metas
        )  # fmt: skip
        if why not in self._notes:
            self._notes.append(why)
        return _Plan(key=plan.key, metas=metas, values=values, graph=graph, compiling=True)

    def _compiled(self, plan: _Plan, names: Sequence[str], *, views: bool = True) -> Any:
        """Return a compiled function of the flat inputs that returns the outputs and a copy of each named tensor.

        views: off, what cannot be seen in another shape where it lies is copied into it.
        """
        graph = copy.deepcopy(plan.graph)
        nodes = _operators(graph)
        for node in nodes if not views else ():
            if node.target is torch.ops.aten.view.default:
                node.target = torch.ops.aten.reshape.default
        for call in plan.eager:
            nodes[call].target = run_eagerly(nodes[call].target)
        copies = [_copy_of(graph.graph, nodes[plan.values[name][0]], plan.values[name][1]) for name in names]
        final = next(node for node in graph.graph.nodes if node.op == "output")
        final.args = ((final.args[0], copies),)
        graph.recompile()
        return self._compile(graph)

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, module: Any = None) -> Any:
        """module: whose gradients ``function`` may leave behind; None: it leaves none."""
        assert self._built is not None
        original, own = self._built.module, self._own or {}
        shared = WrittenConstants([(name, one) for name, one in original.named_parameters() if name not in own])
        self._arithmetic.reset()

        def run() -> Any:
            aside = put_back(original if module is None else module, original, own)
            with aside, torch.no_grad(), silence_warnings(), self._arithmetic.globally():
                return function(*args, **kwargs)

        try:
            result = call_compiled(run)
        except Exception as error:
            raise translate_error(error, self._built.model, None) from error
        if unseen := shared.unseen():
            raise make_unseen_write_error(self._built.model, unseen)
        return result


def _record_way(trace: Trace) -> Any:
    """Return what an eager run did: operators, shapes, and the numbers that they were given. Where two of these are the
    same nothing else of their inputs went into the graph."""
    return tuple((meta.op_type, meta.shape, meta.call.settings if meta.call else "") for meta in trace.metas)


def _find_first_other(plain: Sequence[Any], traced: Sequence[Any]) -> tuple[str, str]:
    """Return the first operator that is another in two runs: of the compiled one, and of the eager one."""
    pairs = itertools.zip_longest(plain, traced, fillvalue="-")
    ours, theirs = next((one, other) for one, other in pairs if one != other)
    return str(theirs), str(ours)


def _ends(plain: Sequence[Any], traced: Sequence[Any]) -> dict[int, int]:
    """Return operators before the first and behind the last that two runs do not share, by their places in both."""
    pairs = list(zip(plain, traced, strict=False))
    before = next((place for place, (one, other) in enumerate(pairs) if one != other), len(pairs))
    most = len(pairs) - before
    pairs = list(zip(reversed(plain), reversed(traced), strict=False))[:most]
    behind = next((place for place, (one, other) in enumerate(pairs) if one != other), most)
    last, there = len(plain), len(traced)
    return {place: place for place in range(before)} | {last - n: there - n for n in range(1, behind + 1)}


def _operators(graph: Any) -> list[Any]:
    return [n for n in graph.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]


def _targets(graph: Any) -> list[Any]:
    """Return what an eager run calls them."""
    return [_SAME.get(node.target, node.target) for node in _operators(graph)]


def _find_overwritten(graph: Any) -> frozenset[int]:
    """Calls whose result a later one adds or puts numbers into, by index: inductor does so where it lies, and a copy of
    it that was made before has them too (torch 2.13, of two index_add_ in a row)."""
    place = {node: number for number, node in enumerate(_operators(graph))}
    return frozenset(
        place[node] for node in place if any(
            user.args and user.args[0] is node and user.target.name().startswith(_INDEXED) for user in node.users
            if user.op == "call_function" and isinstance(user.target, torch._ops.OpOverload)
        )
    )  # fmt: skip


_INDEXED = tuple(f"aten::{name}_" for name in ("index_add", "index_put", "index_copy", "scatter", "scatter_add",
                                               "scatter_reduce"))  # fmt: skip


def _copy_of(graph: Any, node: Any, place: int | None) -> Any:
    """A copy made right after a node, before anything writes into its result."""
    with graph.inserting_after(node):
        value = node if place is None else graph.call_function(operator.getitem, (node, place))
    with graph.inserting_after(value):
        return graph.call_function(torch.ops.aten.clone.default, (value,))


def _is_off(one: Any, other: Any) -> bool:
    """Return whether two graphs of the same operators differ by more than the order of their sums."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    if not one.is_floating_point():
        return not torch.equal(one, other)
    first, second = one.double(), other.double()
    fair = first.isfinite() & second.isfinite()
    error, size = (first - second)[fair].norm(), first[fair].norm()
    return bool(error > _SUMS * torch.finfo(one.dtype).eps * size)


def _shapes(inputs: Mapping[str, Any]) -> Any:
    return tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in inputs.items())
