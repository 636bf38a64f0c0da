"""Reads a model: a factory in a Python file, an exported program, or TorchScript; and what its inputs are."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import logging
import pickle
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import ModelError, PrecisionDebugError
from precision_debug.feeds.factory import call_factory
from precision_debug.feeds.training_step import read_step_parts
from precision_debug.numbers.arrays import as_array
from precision_debug.records import InputMeta, ModelFiles

from .engine.archive import check_program, check_script, load_data_only
from .engine.nested_tensors import iterate_leaves
from .engine.process_switches import seed_all
from .engine.signature import forward_inputs
from .engine.training.rank_starts import RankStart
from .reasons import say

__all__ = ["Model", "example_feeds", "from_module", "load_program", "load_script", "read_inputs", "read_model"]

_HINT = say("factory_returns")
_SCALARS = {"int": "int64", "float": "float32", "bool": "bool"}
"""Plain numbers that TorchScript's forward may take, which a tensor without axes is handed over for."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model in memory, as its author built it.

    arguments: parameter name of ``forward`` to example value, in the order of the signature; {} where none are known.
    order: names of the parameters that are passed by position. required: those without a default.
    open_ended: forward takes further keyword arguments. dynamic: shapes of inputs whose sizes are left open.
    guessed: what forward takes, where no arguments are known.
    kind: "eager", "exported" or "script". loss, optimiser: of a training step, None where none (see
    engine.training.step).
    packed: what a folder says of its quantisation (engine.quantised_folder.Packed); None where it has none.
    compiled: how many modules torch.compile was around; they are run without.
    loaded: of a folder: loads it anew in a torch type, as it is deployed in.
    ranks: of a recorded step of several ranks, what each starts with; its arguments are named after it, "rank1/x".
    taken: what engine.input_types found, for both sides.
    limits: rows of the table that an input's whole numbers look up, by its name.
    stand_in: the arguments are zeros in place of examples that the file does not hold.
    """

    module: Any
    path: str
    kind: str = "eager"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    open_ended: bool = False
    dynamic: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    guessed: tuple[InputMeta, ...] = ()
    loaded: Callable[[Any], Any] | None = None
    packed: Any = None
    compiled: int = 0
    loss: Any = None
    optimiser: Any = None
    ranks: Mapping[int, RankStart] = field(default_factory=dict)
    taken: dict[Any, Mapping[str, Any]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    stand_in: bool = False


def read_model(files: ModelFiles, *, seed: int = 0) -> Model:
    """Load a model. ``seed``: set before a factory runs, so that random weights are the same in every run.

    Raises ModelError.
    """
    path = files.path
    if Path(path).is_dir():
        from .engine.saved_folder import load_folder, packed_folder

        loaded = functools.lru_cache(maxsize=1)(functools.partial(load_folder, path))
        return replace(from_module(load_folder(path), path=path), loaded=loaded, packed=packed_folder(path))
    if ".py" in path and Path(path.partition(".py:")[0] + (".py" if ".py:" in path else "")).suffix == ".py":
        return _from_factory(path, seed)
    return _from_program(path) if Path(path).suffix.lower() == ".pt2" else _from_script(path)


def from_module(module: Any, inputs: Any = None, *, path: str = "") -> Model:
    """Return a live module. inputs: a tensor, a tuple or list of arguments, a dict of keyword arguments, or None."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"got {type(module).__name__}, not an nn.Module", where=path, hint=_HINT)
    from .engine.whole_module import refuse_parts, strip_compile

    refuse_parts(module, path)
    module, compiled = strip_compile(module)
    args, kwargs = _call(inputs)
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*args, **kwargs) if inputs is not None else None
    except TypeError as error:
        raise ModelError(f"the example inputs do not fit forward: {error}", where=path, hint=_HINT) from error
    arguments, order = _name_arguments(signature, bound) if bound is not None else ({}, ())
    for name in (
        full for argument, value in arguments.items() for full, one in iterate_leaves(value, argument) if one.is_meta
    ):
        raise ModelError(f"the example input '{name}' lies on the meta device, without values", where=path, hint=_HINT)
    required = tuple(
        name
        for name, p in signature.parameters.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    )
    positional = tuple(
        name for name, p in signature.parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    )
    return Model(
        module=module, path=path or type(module).__name__, arguments=arguments, order=order or positional,
        required=required, open_ended=any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()),
        guessed=forward_inputs(module) if inputs is None else (), compiled=compiled,
    )  # fmt: skip


def read_inputs(model: Model) -> tuple[InputMeta, ...]:
    """Return the tensors among the arguments; without examples, what forward takes."""
    if not model.arguments:
        return tuple(replace(meta, rounds=True) for meta in model.guessed)
    from .engine.call_values import pack_parts

    return tuple(
        InputMeta(
            name=name,
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=model.dynamic.get(name) or tuple((pack_parts(tensor) if tensor.is_nested else tensor).shape),
            example=model.kind == "eager" and not tensor.is_nested,
            rounds=True,
            limit=model.limits.get(name),
        )
        for argument, value in model.arguments.items()
        for name, tensor in iterate_leaves(value, argument)
    )


def example_feeds(model: Model) -> dict[str, np.ndarray[Any, Any]]:
    """Return the example inputs as feeds; {} where the model has none."""
    if model.stand_in:
        return {}
    return {
        name: np.array(as_array(tensor, name=name))
        for argument, value in model.arguments.items()
        for name, tensor in iterate_leaves(value, argument)
    }


def _from_factory(text: str, seed: int) -> Model:
    made = call_factory(text, lambda: seed_all(seed), returns=_HINT)
    parts = read_step_parts(made, text, _HINT)
    return replace(from_module(parts.module, parts.inputs, path=text), loss=parts.loss, optimiser=parts.optimiser)


def load_program(path: str) -> Any:
    """Return the ``ExportedProgram`` of a .pt2 file, which was looked through first. Raises ModelError."""
    if not Path(path).is_file():
        raise ModelError("no such file", where=path, hint="check --model_file")
    try:
        check_program(path)
        try:
            return _load_file(path)
        except RuntimeError:
            if not _import_transformers():
                raise
            return _load_file(path)
    except PrecisionDebugError:
        raise
    except pickle.UnpicklingError as error:
        what = "its example inputs or weights are Python objects, which are not read: reading them would run code"
        hint = "export it again with tensors and plain values alone, or write a factory FILE.py:FUNCTION"
        raise ModelError(what, where=path, hint=hint) from error
    except Exception as error:
        what = say("no_program", error=f"{type(error).__name__}: {error}")
        raise ModelError(what, where=path, hint=say("save_again")) from error


def _load_file(path: str) -> Any:
    import torch

    with _silence_torch(), load_data_only():
        return torch.export.load(path)


def _import_transformers() -> bool:
    """Import what gives torch the outputs of the transformers library (a program may return one); False where that
    changes nothing: it is imported already, or not there."""
    name = "transformers.modeling_outputs"
    if name in sys.modules:
        return False
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def _from_program(path: str) -> Model:
    import torch

    from .engine.program import count_rows, make_stand_ins, without_records

    program = load_program(path)
    saved, limits = program.example_inputs, count_rows(program)
    args, kwargs = saved or make_stand_ins(program)
    with _silence_torch():
        try:
            module: Any = torch.export.unflatten(program)
            without_records(module)
            _try_to_copy(module)
        except Exception:
            program = load_program(path)  # anew: unflatten changes what it is given
            module = program.module()
            without_records(module)
    arguments, order = _program_arguments(program, args, kwargs)
    dynamic = _dynamic_shapes(program, arguments)
    return Model(
        module=module, path=path, kind="exported", arguments=arguments, order=order, required=tuple(arguments),
        dynamic=dynamic, limits=limits, stand_in=saved is None,
    )  # fmt: skip


def _try_to_copy(module: Any) -> None:
    """Copy a module over the same tensors, as each session does. torch 2.13 fails at it where a module that the author
    calls several times (Albert's shared layers) has parts of its own."""
    copy.deepcopy(module, {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())})


def _program_arguments(program: Any, args: Any, kwargs: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    user = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    flat = len(user) == len(args) + len(kwargs) and not any(isinstance(one, (tuple, list, dict)) for one in args)
    names = user[: len(args)] if flat else [f"args_{place}" for place in range(len(args))]
    return {**dict(zip(names, args, strict=True)), **kwargs}, tuple(names)


def _dynamic_shapes(program: Any, arguments: Mapping[str, Any]) -> dict[str, tuple[int | str, ...]]:
    """Return shapes with names in place of the sizes that the program leaves open."""
    found: dict[str, tuple[int | str, ...]] = {}
    for node in program.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if node.name in arguments and value is not None and hasattr(value, "shape"):
            found[node.name] = tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape)
    return {name: shape for name, shape in found.items() if any(isinstance(dim, str) for dim in shape)}


def load_script(path: str) -> Any:
    """Return the module of a TorchScript file, which was looked through first. Raises ModelError."""
    import torch

    if not Path(path).is_file():
        raise ModelError("no such file", where=path, hint="check --model_file")
    try:
        check_script(path)
        with _silence_torch():
            return torch.jit.load(  # type: ignore[no-untyped-call]
                path, map_location="cpu"
            )
    except PrecisionDebugError:
        raise
    except Exception as error:
        names = _names_in(path)
        if names and not any("/code/" in name for name in names):
            raise ModelError(
                "holds weights, not a model", where=path,
                hint="write a factory FILE.py:FUNCTION that builds the module and loads them",
            ) from error  # fmt: skip
        raise ModelError(f"is not TorchScript: {str(error) or type(error).__name__}", where=path) from error


def _names_in(path: str) -> list[str]:
    """Of a zip archive's files; none of what is none, or damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return []


def _from_script(path: str) -> Model:
    module = load_script(path)
    taken = [argument for argument in module.forward.schema.arguments if argument.name != "self"]
    required = tuple(argument.name for argument in taken if not argument.has_default_value())
    kinds = {one.name: str(one.type) for one in taken}
    guessed = tuple(
        InputMeta(
            name=name, dtype=_SCALARS.get(kind, "float32"), shape=() if kind in _SCALARS else None,
            optional=name not in required, guessed=True,
        )
        for name, kind in kinds.items() if "Tensor" in kind or kind in _SCALARS
    )  # fmt: skip
    order = tuple(argument.name for argument in taken)
    return Model(module=module, path=path, kind="script", order=order, required=required, guessed=guessed)


def _call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    if isinstance(inputs, Mapping):
        return (), {str(name): _tensor(value) for name, value in inputs.items()}
    if isinstance(inputs, (torch.Tensor, np.ndarray)):
        return (_tensor(inputs),), {}
    return tuple(_tensor(value) for value in inputs or ()), {}


def _tensor(value: Any) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def _name_arguments(
    signature: inspect.Signature, bound: inspect.BoundArguments
) -> tuple[dict[str, Any], tuple[str, ...]]:
    arguments: dict[str, Any] = {}
    order: list[str] = []
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments.update(value)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            for place, item in enumerate(value):
                arguments[f"{name}_{place}"] = item
                order.append(f"{name}_{place}")
        else:
            arguments[name] = value
            if name not in bound.kwargs:
                order.append(name)
    return arguments, tuple(order)


@contextlib.contextmanager
def _silence_torch() -> Iterator[None]:
    """Without torch's warnings, and without the traceback that it logs beside what it raises."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            logger.setLevel(level)
