"""Makes a model ready for one run mode: the device, the type of its parameters, and what a run feeds it."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import itertools
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from precision_debug.errors import BackendUnavailable, InputError, ModelError, UsageError
from precision_debug.feeds.training_step import list_changed_by_evaluation
from precision_debug.protocols import WHOLE
from precision_debug.reasons import Reason
from precision_debug.records import Doubt
from precision_debug.settings import get_passed

from .engine.call_values import make_like
from .engine.input_types import find_types
from .engine.keep_float32 import BETWEEN, is_line, keep_in_float32, keep_outermost, list_between_tensors
from .engine.nested_tensors import iterate_leaves, replace_tensors
from .engine.program import cast_program
from .engine.quantised_folder import load_weight
from .engine.quantised_linear import quantise, type_of
from .engine.training.float8 import convert
from .engine.training.step import TrainingStep
from .model import Model
from .modes import Recipe
from .reasons import say
from .settings import setting

__all__ = [
    "AS_BUILT",
    "Built",
    "arguments_of",
    "build",
    "choose_placement",
    "chosen_device",
    "make_twin",
    "tensors_of",
    "use_device",
]

AS_BUILT = "as_built"


_COPYING = threading.Lock()
_EMPTY = frozenset({dict, list, set, collections.OrderedDict})


@dataclass(frozen=True, kw_only=True)
class Built:
    """A module on its device in its types. It is never run itself: each run works on a ``make_twin``.

    device: of its inputs too; of a module that lies on several devices, that of its first parameter.
    quantised: paths of its quantised layers; plain: then, the module as it was before.
    held: paths of those whose weights a quantiser's file holds in few bits; they multiply in the module's own type.
    """

    module: Any
    model: Model
    device: torch.device
    dtype: torch.dtype | None
    notes: tuple[Reason, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    plain: Any = None
    quantised: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()


def chosen_device(options: Mapping[str, Any]) -> torch.device:
    """Return the option "device" ("cpu", "cuda", "cuda:1"); the first GPU where there is one, otherwise the CPU.

    "as_built" says nothing of where a factory puts a model: that is the first GPU, too.
    """
    name = setting(options, "device")
    if name in ("", AS_BUILT):
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"no device '{name}'", where="--device", hint="use cpu, cuda or cuda:1") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BackendUnavailable("this torch sees no GPU", where="--device", hint="use --device cpu")
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)  # "cuda" and "cuda:0" are one
        if device.index >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise UsageError(f"no device '{name}'", where="--device", hint=f"this torch sees {count} GPUs, from cuda:0")
    return device


def choose_placement(model: Model, options: Mapping[str, Any]) -> torch.device | None:
    """Where all of a model goes; None: each parameter stays where it is."""
    asked = setting(options, "device")
    if asked == AS_BUILT or (not asked and len(_devices(model.module)) > 1):
        return None
    return chosen_device(options)


def _devices(module: Any) -> dict[torch.device, None]:
    """Where a module's parameters and buffers lie, in its order."""
    return dict.fromkeys(tensor.device for tensor in (*module.parameters(), *module.buffers()))


@contextlib.contextmanager
def use_device(device: torch.device) -> Iterator[None]:
    """What says "cuda" inside means this GPU."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        yield


def build(model: Model, recipe: Recipe, options: Mapping[str, Any]) -> Built:
    """Return a copy of the model as the mode wants it; parameters that need no change are shared with the original."""
    where = choose_placement(model, options)
    device = where if where is not None else next(iter(_devices(model.module)), chosen_device(options))
    dtype = getattr(torch, recipe.dtype) if recipe.dtype and model.kind == "eager" else None
    if recipe.dtype == "float32":  # as it is given
        dtype = None
    notes: list[Reason] = []
    asked: Sequence[str] = setting(options, "keep_modules")
    between = [BETWEEN] * (BETWEEN in asked)
    lines = sorted({name for name in asked if is_line(name)})
    if lines and not recipe.autocast:
        what = "lines of source are kept under autocast alone, where the weights stay in float32"
        raise UsageError(what, where="--option keep_modules", hint="name modules, or use torch_autocast_*")
    if between and recipe.autocast:
        what = f"{BETWEEN} is kept where a model is cast; autocast casts call by call, and would not see it"
        hint = 'name lines of its source, as "model.py:57", or modules'
        raise UsageError(what, where="--option keep_modules", hint=hint)
    kept = keep_outermost("" if name == WHOLE else name for name in asked if name not in (BETWEEN, *lines))
    trains_low = recipe.change == "fp8" and isinstance(model.module, TrainingStep)
    if model.kind == "exported" and recipe.dtype not in ("", "float32"):
        dtype = getattr(torch, recipe.dtype)
        with _quiet_copying():
            module = _copy_module(model.module, where, dtype)
        if kept:
            raise UsageError(
                "an exported program has no modules to keep", where="keep_modules", hint="give the factory"
            )
        changed = cast_program(module, dtype)
        if changed:
            notes.append(say("names_float32", count=changed, dtype=recipe.dtype))
    elif model.loaded is not None and dtype is not None and dtype.itemsize < 4:
        module, said = _as_deployed(model, model.loaded(dtype), where, [*kept, *between], dtype)
        notes += said
    elif model.kind == "eager":
        exact = _tensors_in(model, [*kept, *between])
        module = _copy_module(model.module, where, dtype, frozenset() if trains_low else exact)
        computed = _computed_buffers(model.module) if dtype is not None and dtype.itemsize < 4 else []
        if computed:
            notes.append(say("rounds_buffers", count=len(computed), names=computed[:6], type=recipe.dtype))
    else:
        module = model.module if where is None else model.module.to(where)
    doubts: tuple[Doubt, ...] = ()
    if model.kind != "exported" and getattr(module, "training", False) and not setting(options, "training"):
        otherwise = list_changed_by_evaluation(module.named_modules())
        if otherwise:
            doubts = (Doubt(code="put_in_evaluation", values={"names": ", ".join(otherwise[:6])}),)
        module.eval()
        notes.append(say("evaluation"))
    if model.compiled:
        notes.append(say("was_compiled", count=model.compiled))
    plain, paths = None, frozenset[str]()
    if trains_low:
        plain, module = module, make_twin(module)
        paths, note = convert(module, model.path, kept)
        notes.append(note)
        if kept:
            names = ", ".join(name or WHOLE for name in kept[:6])
            notes.append(say("kept_unconverted", count=len(kept), names=names, type=recipe.dtype))
    elif type_of(recipe.change):
        plain, module = module, copy.deepcopy(module)
        paths, note = quantise(module, model.path, kept, recipe.change)
        notes.append(note)
    if (kept or between or lines) and recipe.change != "int8" and not trains_low:
        for one in (module, plain) if plain is not None else (module,):
            keep_in_float32(one, [*kept, *between, *lines], dtype if recipe.dtype else None)
        names = ", ".join([*(name or WHOLE for name in kept[:6]), *between])
        if kept or between:
            notes.append(say("kept_float32", count=len(kept), names=names))
        if lines:
            notes.append(say("kept_lines", count=len(lines), lines=lines))
    held = frozenset[str]()
    if model.packed is not None:
        held, told = _put_originals_back(model, module, options)
        notes += told
    if (between or "" in kept) and not trains_low:  # what is kept reads the inputs as they are
        dtype = None
    return Built(
        module=module, model=model, device=device, dtype=dtype, notes=tuple(notes), plain=plain, quantised=paths,
        doubts=doubts, held=held,
    )  # fmt: skip


@contextlib.contextmanager
def _quiet_copying() -> Iterator[None]:
    """Copies of torch's own tree specifications warn of themselves."""
    with _COPYING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def make_twin(module: Any, own: frozenset[str] | None = None) -> Any:
    """Return a module with the same parameters and a copy of everything else, so that a run leaves no trace in it.

    own: names of parameters whose memory is copied, too; the others are then new Parameters over the same memory, so
    that gradients are this twin's alone. None: the Parameters themselves.

    The module itself where it cannot be copied (modules that hold other tensors or handles). TorchScript is copied
    whole, and only where it keeps something from one run for the next.
    """
    if isinstance(module, torch.jit.ScriptModule):
        return copy.deepcopy(module) if _keeps_state(module) else module
    try:
        with _quiet_copying():
            return _copy_module(module, None, None, own=own)
    except Exception:
        return module


def _keeps_state(module: Any) -> bool:
    """Return whether TorchScript sets an attribute in its methods, a state say, or writes into some tensor."""
    with contextlib.suppress(RuntimeError, AttributeError):
        return _WRITES.search(str(module.forward.inlined_graph)) is not None
    return True


_WRITES = re.compile(r"prim::SetAttr|aten::[a-z]\w*_\(")


def tensors_of(built: Built, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the feeds as new tensors on the device, by input name. Floating ones are of the type that the module
    takes, then of the mode's. Raises InputError."""
    model = built.model
    examples: dict[str, Any] = {}
    if model.arguments:
        examples = {
            name: one for argument, value in model.arguments.items() for name, one in iterate_leaves(value, argument)
        }
        required = known = [*examples]
    else:
        known = [*model.order, *(meta.name for meta in model.guessed if meta.name not in model.order)]
        required = list(model.required)
    missing = [name for name in required if name not in feeds]
    strange = [name for name in feeds if name not in known]
    if missing or (strange and not model.open_ended):
        what = f"no value for '{missing[0]}'" if missing else f"the model has no input '{strange[0]}'"
        raise InputError(what, where=model.path, hint=f"it takes {', '.join(known) or 'nothing'}")
    tensors = {name: _as_tensor(value, name, model) for name, value in feeds.items()}
    module = model.module.inner if isinstance(model.module, TrainingStep) else model.module
    taken = find_types(model, module, tensors, functools.partial(_call, model), built.device)
    return {
        name: _as_given(tensor.to(taken.get(name, tensor.dtype)), name, built, examples.get(name))
        for name, tensor in tensors.items()
    }


def _call(model: Model, module: Any, tensors: Mapping[str, Any]) -> Any:
    args, kwargs = arguments_of(model, tensors)
    return module(*args, **kwargs)


def arguments_of(model: Model, tensors: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments: the example's, with its tensors exchanged."""
    if not model.arguments:
        order = list(itertools.takewhile(tensors.__contains__, model.order))  # behind a gap by their names
        return tuple(tensors[n] for n in order), {n: v for n, v in tensors.items() if n not in order}
    changed = {
        argument: replace_tensors(value, argument, lambda name, _: tensors[name])
        for argument, value in model.arguments.items()
    }
    extra = {name: value for name, value in changed.items() if name not in model.order}
    return tuple(changed[name] for name in model.order), extra


def _as_tensor(value: Any, name: str, model: Model) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    array = np.array(value, order="C")
    try:
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
        return torch.from_numpy(array)
    except TypeError as error:
        raise InputError(f"torch has no type for {array.dtype} ('{name}')", where=model.path) from error


def _as_given(tensor: Any, name: str, built: Built, example: Any) -> Any:
    dtype = built.dtype if built.dtype is not None and tensor.is_floating_point() else tensor.dtype
    if example is None or not example.is_nested or tensor.is_nested:
        return tensor.to(device=built.device, dtype=dtype, copy=True)
    if tensor.numel() != example.numel():
        parts = ", ".join(str(tuple(part.shape)) for part in example.unbind())
        raise InputError(
            f"'{name}' has {tensor.numel()} elements, and the example {example.numel()}", where=built.model.path,
            hint=f"it is a nested tensor: give the parts {parts} in a row",
        )  # fmt: skip
    return make_like(example, tensor.to(device=built.device, dtype=dtype))


def _put_originals_back(
    model: Model, module: Any, options: Mapping[str, Any]
) -> tuple[frozenset[str], list[Reason]]:  # fmt: skip
    """Give modules of a quantised folder the weights of the one that it was made of; which are still of few bits.

    Raises UsageError or ModelError."""
    packed = model.packed
    names: tuple[str, ...] = setting(options, "keep_original") if get_passed(options, "side") == "target" else ()
    source = setting(options, "keep_from") if names else ""
    if names and not source:
        raise UsageError("says no folder to take weights from", where="--option keep_original",
                         hint="add --option keep_from=FOLDER, the one that was quantised")  # fmt: skip
    for name in names:
        if name not in packed.modules:
            raise UsageError(f"no quantised module is called {name}", where="--option keep_original",
                             hint=f"one is {min(packed.modules, default='')}")  # fmt: skip
        child = module.get_submodule(name)
        exact = load_weight(Path(source), f"{name}.weight")
        if exact.shape != child.weight.shape:
            raise ModelError(f"its {name}.weight has another shape", where=source)
        child.weight = torch.nn.Parameter(exact.to(child.weight), requires_grad=False)
    notes = [say("unpacked", count=len(packed.modules), method=packed.method)]
    notes += [say("activations_wide", method=packed.method)] * packed.activations
    notes += [say("kept_original", count=len(names), names=list(names[:6]), source=source)] if names else []
    return packed.modules - set(names), notes


def _tensors_in(model: Model, kept: Sequence[str]) -> frozenset[int]:
    """Ids of the parameters and buffers inside modules, and between them. Raises UsageError where the model has no such
    module."""
    found: set[int] = set()
    for name in kept:
        if name == BETWEEN:
            found.update(map(id, list_between_tensors(model.module).values()))
            continue
        try:
            part = model.module.get_submodule(name)
        except AttributeError as error:
            raise UsageError(
                f"the model has no module '{name}'",
                where="--option keep_modules",
                hint="`precision_debug marks` lists them",
            ) from error
        found.update(id(tensor) for tensor in (*part.parameters(), *part.buffers()))
    return frozenset(found)


def _as_deployed(
    model: Model, loaded: Any, where: torch.device | None, kept: Sequence[str], dtype: torch.dtype
) -> tuple[Any, list[Reason]]:
    """Return a copy of what ``from_pretrained(dtype=...)`` gives, the kept modules with their float32 tensors, and a
    note where ``module.to(dtype)`` is something else."""
    _tensors_in(model, kept)  # which raises
    module = _copy_module(loaded, where, None, own=frozenset())
    for name in kept:
        exact, low = (
            list_between_tensors(one) if name == BETWEEN else dict(_tensors(one.get_submodule(name)))
            for one in (model.module, module)
        )
        for own, tensor in low.items():
            tensor.data = exact[own].data.to(tensor.device) if own in exact else tensor.data
    rounded = dict(_tensors(model.module))
    others = [
        name for name, tensor in _tensors(loaded)
        if tensor.is_floating_point() and name in rounded
        and not (tensor.dtype == dtype and torch.equal(rounded[name].detach().to(dtype), tensor.detach()))
    ]  # fmt: skip
    if not others:
        return module, []
    return module, [say("as_deployed", count=len(others), names=others[:6], type=str(dtype).removeprefix("torch."))]


def _computed_buffers(module: Any) -> list[str]:
    """Return names of a transformers model's floating buffers that no checkpoint holds: a loader computes them anew."""
    if not any(one.__module__ == "transformers.modeling_utils" for one in type(module).__mro__):
        return []
    return [
        f"{path}.{name}" if path else name for path, part in module.named_modules()
        for name, tensor in part.named_buffers(recurse=False)
        if name in part._non_persistent_buffers_set and tensor.dtype == torch.float32
    ]  # fmt: skip


def _tensors(module: Any) -> tuple[tuple[str, Any], ...]:
    return (*module.named_parameters(), *module.named_buffers())


def _copy_module(
    module: Any, device: torch.device | None, dtype: torch.dtype | None, exact: frozenset[int] = frozenset(),
    own: frozenset[str] | None = None,
) -> Any:  # fmt: skip
    """Return a deep copy whose parameters are shared where they need no change, and converted one by one where they do.

    exact: ids of tensors that keep their type. own: see ``make_twin``.
    """
    memo: dict[int, Any] = {}

    def wanted(tensor: Any) -> Any:
        narrows = dtype is not None and tensor.is_floating_point() and id(tensor) not in exact
        return dtype if narrows else tensor.dtype

    def changes(tensor: Any) -> bool:
        return tensor.dtype != wanted(tensor) or (device is not None and tensor.device != device)

    def converted(tensor: Any) -> Any:
        kind, there = wanted(tensor), tensor.detach()
        if kind.itemsize < tensor.dtype.itemsize:  # then half as much goes from card to card
            there = there.to(dtype=kind)
        return there.to(device=device or tensor.device, dtype=kind)

    for name, parameter in module.named_parameters():
        if type(parameter) is not torch.nn.Parameter:  # a library's own (torchao's quantised weights)
            memo[id(parameter)] = parameter
        elif changes(parameter):
            memo[id(parameter)] = torch.nn.Parameter(converted(parameter), parameter.requires_grad)
        else:
            memo[id(parameter)] = parameter if own is None else _make_fresh_parameter(parameter, name in own)
    for child in module.modules():
        for value in child.__dict__.values():  # mostly registries of hooks: deepcopy takes most of its time for them
            if type(value) in _EMPTY and not value:
                memo[id(value)] = type(value)()
    for buffer in module.buffers():
        memo[id(buffer)] = converted(buffer) if changes(buffer) else buffer.detach().clone()
    with _NonLeaves():
        return copy.deepcopy(module, memo)


def _make_fresh_parameter(parameter: Any, copied: bool) -> Any:
    """Return a Parameter with the same values and attributes, and a gradient of its own."""
    fresh = torch.nn.Parameter(parameter.data.clone() if copied else parameter.data, parameter.requires_grad)
    fresh.__dict__.update(parameter.__dict__)
    if parameter.grad is not None:
        fresh.grad = parameter.grad.detach().clone()
    return fresh


class _NonLeaves(TorchFunctionMode):
    """Copies tensors that were computed from parameters, which torch itself refuses to: ``weight_norm`` leaves one in
    the module, to be computed anew by each call."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            memo[id(tensor)] = fresh = tensor.detach().clone()
            return fresh
        return func(*args, **(kwargs or {}))
