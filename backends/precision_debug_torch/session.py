"""One model in one run mode: runs it, and shows each tensor to the hook while it lives."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import re
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from precision_debug.errors import BackendError, BackendUnavailable, PrecisionDebugError
from precision_debug.inspector import EngineLayer
from precision_debug.numbers.arrays import as_array
from precision_debug.protocols import Borrower, Comparer, Feeds, Hook, Replace, Replacer
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import Doubt, Operator, TensorMeta
from precision_debug.safety.last_moments import NOT_AT_EXIT

from .engine.arithmetic import DROPOUTS, Arithmetic
from .engine.call_values import WrittenConstants
from .engine.dispatch import Show, Trace, Watch
from .engine.flex_attention import run_uncompiled
from .engine.function_calls import Families, hide_from_families
from .engine.input_types import tell_types
from .engine.loans import Loans
from .engine.nested_tensors import iterate_leaves
from .engine.process_switches import LISTING, Switches
from .engine.quantised_linear import type_of
from .engine.training.float8 import products
from .engine.training.notes import step_notes
from .engine.training.phases import phases_of
from .engine.training.step import TrainingStep, find_optimiser
from .isolate import Made, Replacing, ToldModules, module_operator, round_as_held
from .make import Built, arguments_of, make_twin, tensors_of, use_device
from .model import Model
from .modes import Recipe
from .reasons import say
from .workbench import TorchWorkbench

__all__ = ["TorchSession", "device_versions", "make_unseen_write_error", "translate_error", "wrap"]

# it takes some thousand operators out of torch's tables one by one
NOT_AT_EXIT.update([found] if (found := getattr(torch.library, "_del_library", None)) is not None else [])


Named = list[tuple[str, Any]]


class TorchSession:
    """A torch module in one run mode.

    Every run works on a twin of the module, so that state which a model keeps (caches, counters) is fresh in each.
    feeds: for listing the tensors before the first run, which takes a run of its own. device_tensors: whether the hook
    gets torch tensors on their own device, or numpy arrays (of a CPU tensor without a copy). comparer: what compares
    them; it reads its results before an operator writes into a tensor.
    """

    doubts: Sequence[Doubt]
    layers: Sequence[EngineLayer] = ()
    arithmetic, takes_attributes = "", True

    def __init__(
        self, built: Built, recipe: Recipe, *, level: str, seed: int, feeds: Feeds | None = None,
        device_tensors: bool = False, comparer: Comparer | None = None, on_close: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._built: Built | None = built
        self._recipe = recipe
        self._level = level
        self._feeds = feeds
        self._device_tensors = device_tensors or comparer is not None
        self._comparer = comparer
        self._on_close = on_close
        self._arithmetic = Arithmetic(recipe, device=built.device, seed=seed)
        self._metas: tuple[TensorMeta, ...] | None = None
        self._by_name: Mapping[str, TensorMeta] | None = None
        self._results: Mapping[str, str] | None = None
        self._notes = [*built.notes]
        self.doubts = built.doubts
        self._made: Mapping[str, Made] = {}
        self.fixed = set[str]()  # see protocols.Replacer
        self._switches: Switches | None = None
        self._skipped = False  # GradScaler left the optimiser's step out
        # parameters that runs write into, and their bytes; None: no run yet
        self._own: dict[str, int] | None = getattr(built.module, "written", None)
        self.alone: Reason = NOTHING
        """Why this run cannot be beside another one of the process, known once it was listed or has run."""

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Every tensor in execution order. Before the first run, asking takes a run on the feeds of ``open``."""
        if self._metas is None:
            if self._feeds is None or self._built is None:
                return ()
            with LISTING:
                self._switches = Switches()
                self._execute(self._feeds, _ignore)
                turned, self._switches = self._switches.turned, None
            if turned:
                self.alone = say("turns_switch", switch=turned)
        return self._metas or ()

    @property
    def notes(self) -> Sequence[Reason]:
        found = [*self._notes, *(tell_types(self._built.model) if self._built is not None else ())]
        if self._arithmetic.kept_casts:
            found.append(say("casts_kept", count=self._arithmetic.kept_casts))
        if self._arithmetic.drawn and self._recipe.same_draws:
            found.append(say("drawn", count=self._arithmetic.drawn))
        if dropping := self._dropping():
            found.append(say("drops", count=len(dropping), name=dropping[0]))
        if any(meta.op_type == "higher_order.flex_attention" for meta in self._metas or ()):
            found.append(say("flex_attention"))
        if self._recipe.autocast:
            found.append(say("autocast_cache"))
        if self._built is not None:
            autocast = bool(self._recipe.autocast)
            found += step_notes(self._built.model, self._metas or (), skipped=self._skipped, autocast=autocast)
        if self._own:
            found.append(say("writes_parameters", count=len(self._own), size=f"{sum(self._own.values()) / 1e6:.3g} MB"))
        return tuple(found)

    def _dropping(self) -> list[str]:
        """Return what a dropout draws of a module in evaluation mode, which is to have none that is on."""
        if self._built is None or self._built.model.loss is not None or getattr(self._built.module, "training", True):
            return []
        kinds = ((meta.name, meta.op_type.removeprefix("aten.").rstrip("_")) for meta in self._metas or ())
        return [name for name, kind in kinds if kind in DROPOUTS]

    @property
    def versions(self) -> Mapping[str, str]:
        return device_versions(self._built.device if self._built is not None else None)

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """Outputs are numpy arrays: "output", or "output[0]", "output.key" where the model returns several."""
        if hook is None:
            return _arrays(self._execute(feeds, None))
        wanted = None if names is None else frozenset(names)
        loans = Loans(hook.borrow if self._level == "op" and isinstance(hook, Borrower) else None)

        def show(meta: TensorMeta, value: Any) -> None:
            if wanted is None or meta.name in wanted:
                shown = value if self._device_tensors else as_array(value, name=meta.name)
                if loans.goes_on:
                    loans.lend(meta.op_type, meta.name, value, shown)
                else:
                    hook(meta.op_type, meta.name, shown)

        outputs = self._execute(feeds, show, loans=loans)
        return _Outputs(outputs) if self._comparer is not None else _arrays(outputs)

    @property
    def replacer(self) -> Replacer:
        return self

    @property
    def replaces(self) -> bool:
        """See protocols.Replacer."""
        return True

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer. ``replace`` gets numpy arrays, over the tensor's own memory on a CPU; one that says
        ``on_device`` gets the tensors."""
        wanted = None if names is None else frozenset(names)
        on_device = bool(getattr(replace, "on_device", False))

        def show(meta: TensorMeta, value: Any) -> Any:
            if wanted is None or meta.name in wanted:
                return replace(meta.op_type, meta.name, value if on_device else as_array(value, name=meta.name))
            return None

        outputs = self._execute(feeds, show, replaces=True, names=wanted, told=getattr(replace, "told", {}))
        return _Outputs(outputs) if on_device else _arrays(outputs)

    @property
    def workbench(self) -> TorchWorkbench | None:
        """See protocols.Workbench: where both runs compare on their device, explanations stay there too."""
        return TorchWorkbench() if self._comparer is not None else None

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        meta = self._meta(name)
        return None if meta is None else round_as_held(value, meta.dtype)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer. The constants are the model's own, before the mode cast them."""
        built, meta = self._built, self._meta(name)
        step = built.module if built is not None and isinstance(built.module, TrainingStep) else None
        moves = find_optimiser(step, name) if step is not None else None
        if built is None or (meta is None and moves is not None):
            return moves[1] if moves is not None and moves[0] == name else None
        module, known = built.model.module, dict(built.model.module.named_modules())
        if meta is None:  # a module in place of what it makes
            return module_operator(known[name], name) if name in known else None
        if (made := self._made.get(name)) is not None:
            found = made.operator({**dict(module.named_parameters()), **dict(module.named_buffers())})
            return found if moves is None else dataclasses.replace(found, inside=moves[0])
        if moves is not None:
            return Operator(op_type=meta.op_type, inside=moves[0])
        path = meta.node.partition("@")[0]
        whole = self._level == "module" and meta.op_type not in ("Input", "Output") and path in known
        return module_operator(known[path], path) if whole else None

    def _meta(self, name: str) -> TensorMeta | None:
        return self._listed().get(name)

    def _listed(self) -> Mapping[str, TensorMeta]:
        if self._by_name is None:
            self._by_name = {meta.name: meta for meta in self._metas or ()}
        return self._by_name

    def close(self) -> None:
        held = weakref.ref(self._built.module) if self._built is not None else None
        self._built = None
        self._feeds = None
        if held is not None and held() is not None:
            gc.collect()  # a model that refers to itself would keep its memory until some later time
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def _trace(
        self, built: Built, module: Any, constants: Named, inputs: Mapping[str, Any], show: Show,
        replacing: Replacing | None, names: frozenset[str] | None,
    ) -> Trace:  # fmt: skip
        """Return what one run of the module is to show."""
        return Trace(
            self._level, constants=constants, feeds=inputs, show=show,
            quantised=built.quantised, type=type_of(self._recipe.change), results=self._plain_results(built, inputs),
            replacing=replacing, listed=self._listed(), names=names, phases=phases_of(module),
            held=built.held,
        )  # fmt: skip

    def _execute(
        self, feeds: Feeds, show: Show | None, *, replaces: bool = False, loans: Loans | None = None,
        names: frozenset[str] | None = None, told: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> Mapping[str, Any]:  # fmt: skip
        built = self._built
        if built is None:
            raise BackendError("the session is closed", where=self._recipe.mode.name)
        failed: list[BaseException] = []
        module = make_twin(built.module, frozenset(self._own or ()))
        refuse = self._refuse_write if self._own is not None and module is not built.module else None
        parameters, buffers = [*module.named_parameters()], [*module.named_buffers()]
        shared = WrittenConstants(self._shared(built, module, parameters, buffers), refuse)
        inputs = tensors_of(built, feeds)
        args, kwargs = arguments_of(built.model, inputs)
        trace, undo, replacing = None, None, None
        if show is not None:
            constants = [*parameters, *buffers]
            replacing = Replacing([one for _, one in constants], self._made, self.fixed, told) if replaces else None
            trace = self._trace(built, module, constants, inputs, self._guarded(show, failed), replacing, names)
            undo = wrap(module, trace)
        self._arithmetic.reset()
        modules = ToldModules(module, told, self._made)
        try:
            result = self._forward(module, args, kwargs, trace, loans or Loans(None), shared)
            if trace is not None:
                outputs = trace.outputs(result)
                if loans is not None:
                    loans.end()
                if not (replaces and self._metas):  # a run with other values has the same tensors
                    self._compare_with_list(trace.metas)
                    self._metas, self._by_name = tuple(trace.metas), None
                if replacing is not None and not modules.told:  # else by other operators
                    self._made = replacing.finish()
            else:
                outputs = dict(iterate_leaves(result, "output"))
            self._skipped = self._skipped or getattr(result, "skipped", False)
            if isinstance(module, TrainingStep):
                built.module.optimisers.update(module.optimisers)
        except BaseException as error:
            if failed:
                raise failed[0] from None
            if isinstance(error, PrecisionDebugError) or not isinstance(error, Exception):
                raise
            raise translate_error(error, built.model, trace, inputs) from error
        finally:
            if undo is not None:
                undo()
            modules.restore()
            shared.restore()
        self._note_written(built, module, dict(parameters), shared)
        return outputs

    def _shared(self, built: Built, module: Any, parameters: Named, buffers: Named) -> Named:
        """Return what a run's module shares with the model that its next run starts from."""
        if isinstance(module, torch.jit.ScriptModule):
            return []
        if module is built.module:
            return [*parameters, *buffers]
        own = self._own or {}
        return [(name, tensor) for name, tensor in parameters if name not in own]

    def _refuse_write(self, name: str) -> None:
        assert self._built is not None
        raise make_unseen_write_error(self._built.model, name)

    def _note_written(
        self, built: Built, module: Any, parameters: Mapping[str, Any], shared: WrittenConstants
    ) -> None:  # fmt: skip
        """A run has ended that may have written into what it shares with others. Raises BackendError."""
        if unseen := shared.unseen():
            self._refuse_write(unseen)
        if shared.written and module is built.module:
            self.alone = self.alone or say("writes_own", name=next(iter(shared.written)))
        if self._own is None:
            known = parameters if module is not built.module else {}
            self._own = {name: known[name].nbytes for name in shared.written if name in known}

    def _compare_with_list(self, metas: Sequence[TensorMeta]) -> None:
        """What a run does may change with what the process did before: a switch, a variable that two runs share."""
        for listed, meta in zip(self._metas or (), metas, strict=False):
            if (listed.name, listed.op_type, listed.inputs) != (meta.name, meta.op_type, meta.inputs):
                self.alone = self.alone or say("run_differs", name=meta.name)
                return

    def _plain_results(self, built: Built, inputs: Mapping[str, Any]) -> Mapping[str, str]:
        """Return names of the rows of quantised layers' results in the model before quantisation, from a run of it."""
        if built.plain is None or self._level == "module":
            return {}
        if self._results is None:
            module = make_twin(built.plain, frozenset(self._own or ()))
            own = {name: tensor.clone() for name, tensor in inputs.items()}
            args, kwargs = arguments_of(built.model, own)
            constants = [*module.named_parameters(), *module.named_buffers()]
            trace = Trace("op", constants=constants, feeds=own, show=None, phases=phases_of(module))
            wrap(module, trace)
            self._arithmetic.reset()
            with torch.no_grad(), Families(trace), Watch(self._arithmetic, trace):
                module(*args, **kwargs)
            self._results = {**trace.module_results, **products(trace.metas, built.quantised)}
        return self._results

    def _guarded(self, show: Show, failed: list[BaseException]) -> Show:
        """Return what a hook raises is kept, because an interpreter between it and us may wrap it."""

        def guarded(meta: TensorMeta, value: Any) -> Any:
            try:
                if not self._recipe.autocast:
                    return show(meta, value)
                with torch.autocast(_device_type(self._built), enabled=False):
                    return show(meta, value)
            except BaseException as error:
                failed.append(error)
                raise

        return guarded

    def _forward(
        self, module: Any, args: Any, kwargs: Any, trace: Trace | None, loans: Loans, shared: WrittenConstants
    ) -> Any:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if self._built is not None:
                stack.enter_context(use_device(self._built.device))
            if self._recipe.autocast:
                device = _device_type(self._built)
                dtype = getattr(torch, self._recipe.autocast)
                # while it casts a weight its cache is locked for the whole process, and a hook may block there
                stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=False))
            if trace is None and self._own is not None and not self._arithmetic.needed:
                stack.enter_context(self._arithmetic.globally())
            else:
                if trace is not None and self._level == "op":
                    stack.enter_context(Families(trace, loans))
                stack.enter_context(run_uncompiled())
                stack.enter_context(Watch(self._arithmetic, trace, self._comparer, self._switches, loans, shared))
            return module(*args, **kwargs)


class _Outputs(Mapping[str, Any]):
    """Outputs that stay on their device until they are asked for, as numpy arrays then."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Any:
        return as_array(self._tensors[name], name=name)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def there(self, name: str) -> Any:
        """Return the tensor itself."""
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _arrays(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: as_array(tensor, name=name) for name, tensor in tensors.items()}


def device_versions(device: torch.device | None) -> dict[str, str]:
    """Return torch's version and the device's name."""
    found = {"torch": str(torch.__version__), "device": "cpu"}
    if device is not None and device.type == "cuda":
        found |= {"cuda": str(torch.version.cuda), "device": torch.cuda.get_device_name(device)}
    return found


def _ignore(meta: TensorMeta, value: Any) -> None:
    pass


def _device_type(built: Built | None) -> str:
    """Return the device type that autocast is asked for."""
    return built.device.type if built is not None else "cpu"


def wrap(module: Any, trace: Trace) -> Callable[[], None]:
    """Tell the trace of every module call; returns what undoes it.

    Through each instance's ``_call_impl`` and not through forward hooks: torch's own transformer layers leave their
    fast path when a hook is registered, and would compute something else than without it.
    """
    if isinstance(module, torch.jit.ScriptModule):
        return lambda: None
    wrapped = [(path, child) for path, child in module.named_modules() if not isinstance(child, torch.jit.ScriptModule)]
    for path, child in wrapped:
        child.__dict__["_call_impl"] = _follow_calls(child, path, trace)

    def undo() -> None:
        for _, child in wrapped:
            child.__dict__.pop("_call_impl", None)

    return undo


def _follow_calls(module: Any, path: str, trace: Trace) -> Callable[..., Any]:
    call, kind = module._call_impl, type(module).__name__

    def called(*args: Any, **kwargs: Any) -> Any:
        name = trace.enter(path, (args, kwargs))
        try:
            with hide_from_families(module):
                result = call(*args, **kwargs)
        except BaseException:
            trace.abandon_module()
            raise
        trace.module(name, kind, (args, kwargs), result)
        return result

    return called


def translate_error(
    error: Exception, model: Model, trace: Trace | None, inputs: Mapping[str, Any] = MappingProxyType({})
) -> PrecisionDebugError:
    """Return what a forward raised, as ours. inputs: what it was called with, by name, which is told where it was a
    guess."""
    where = model.path
    if trace is not None and trace.metas:
        where = f"{model.path}, after {trace.metas[-1].name}"
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return BackendError("out of GPU memory", where=where, hint="use a smaller batch or --lockstep")
    text = str(error).partition("\n")[0]
    if isinstance(error, NotImplementedError) or _MISSING.search(text):
        return BackendUnavailable(
            f"torch cannot run this model so: {text}", where=where, hint="try torch_autocast_bf16, or another --device"
        )
    if "does not require grad and does not have a grad_fn" in text:
        return BackendError(
            "forward asks for gradients, and is run without recording them, as inference is", where=where,
            hint="do so inside `with torch.enable_grad():`",
        )
    if _BEYOND.search(text):
        return BackendError(
            f"a number in forward is beyond what this type holds ({text})", where=where,
            hint="a mask of -1e9, or a limit? Write torch.finfo(x.dtype).min for it, or try torch_bf16",
        )  # fmt: skip
    hint = "--verbose shows the traceback"
    if model.guessed:
        fed = ", ".join(f"{name} {list(value.shape)} {value.dtype}" for name, value in inputs.items())
        names = ", ".join(meta.name for meta in model.guessed)
        hint = (
            f"it was fed {fed or 'nothing'}, and forward takes {names}: give --inputs FILE.npz with arrays of such "
            f"names, or return (module, example_inputs) from the factory; {hint}"
        )
    what, _, _ = str(error).partition("\n\nWhile executing")  # torch.fx adds the node, and calls of its own files
    return BackendError(f"{type(error).__name__}: {what}", where=where, hint=hint)


def make_unseen_write_error(model: Model, name: str) -> BackendError:
    """Return why a run that writes into a parameter cannot be repeated."""
    return BackendError(
        f"forward writes into the parameter '{name}', which its first run was not seen to do: the run cannot be "
        "repeated", where=model.path,
        hint="write into a copy of the parameter (torch.func.functional_call takes one)",
    )  # fmt: skip


_BEYOND = re.compile(r"cannot be converted to type \S+ without overflow")
"""How torch says that a Python number, a fill above all, is larger than the tensor's type holds."""

_MISSING = re.compile(r"not implemented for|not supported (for|on)|Could not run '.*' with arguments from")
"""How torch says that it has no kernel for a type, a layout or a device."""
