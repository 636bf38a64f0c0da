"""A model that a Python file of the user's builds: FILE.py:FUNCTION."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from ..errors import ModelError, PrecisionDebugError
from ..reasons import Reason, say
from ..records import InputMeta
from ..safety.import_path import Neighbours
from .script import find_script_line

__all__ = ["call_factory", "list_inputs"]


# The inputs of a Python function, by what its signature tells: names, and what they are called.

_INDICES = re.compile(r"(^|_)(ids?|tokens?|mask|positions?|types?|index|indices)$|^(src|tgt|text)$", re.IGNORECASE)
_LOOKED_UP = re.compile(r"^((?!type|position|mask).)*(ids?|tokens?)$|^(src|tgt|text)$", re.IGNORECASE)
_FLAGS = re.compile(r"key_padding_mask$", re.IGNORECASE)
"""torch's own name of a mask, which it takes as flags."""
_TENSOR = re.compile(r"tensor|array", re.IGNORECASE)

_NO_SHAPES: Mapping[str, tuple[int | str, ...]] = MappingProxyType({})


def list_inputs(
    signature: inspect.Signature,
    *,
    table: int | None = None,
    needed: Collection[str] = (),
    shapes: Mapping[str, tuple[int | str, ...]] = _NO_SHAPES,
) -> tuple[InputMeta, ...]:
    """Return an input for each parameter that may be a tensor; those with a default are optional, unless they are
    ``needed``.

    table: rows of the table that the function looks token ids up in; None: it looks nothing up, and every input is
    taken for a float. shapes: what is known of shapes besides.

    Types and shapes are guesses: an array that is given keeps its own.
    """
    found = []
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        optional = parameter.default is not parameter.empty and name not in needed
        if optional and not _may_be_a_tensor(parameter):
            continue
        whole = table is not None and _INDICES.search(name) is not None
        kind = "bool" if _FLAGS.search(name) else "int64" if whole else "float32"
        found.append(
            InputMeta(
                name=name, dtype=kind, shape=shapes.get(name), optional=optional,
                limit=table if whole and _LOOKED_UP.search(name) else None, guessed=True,
            )
        )  # fmt: skip
    return tuple(found)


def _may_be_a_tensor(parameter: inspect.Parameter) -> bool:
    """Of one with a default: None, annotated as a tensor or not at all."""
    if parameter.default is not None:
        return False
    return parameter.annotation is parameter.empty or _TENSOR.search(str(parameter.annotation)) is not None


def call_factory(text: str, seeded: Callable[[], AbstractContextManager[Any]], *, returns: Reason) -> Any:
    """Call a factory function of a Python file, and return what it returns.

    seeded: sets the framework's random state, before the file is imported (what it draws then is part of the model too)
    and again before the function is called. returns: what a factory should return.

    Raises ModelError.
    """
    file, _, name = text.partition(".py:")
    path = Path(file if file.endswith(".py") else file + ".py")
    if not name:
        raise ModelError(say("no_factory"), where=text, hint=say("write_factory", source=text, returns=returns))
    with seeded():
        module = _load_module(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        hint = say("it_defines", names=known[:8]) if known else returns
        raise ModelError(say("no_function", name=name), where=str(path), hint=hint)
    try:
        with seeded():
            return factory()
    except PrecisionDebugError:
        raise
    except Exception as error:
        raise ModelError(
            say("factory_failed", error=_name_error(error)), where=find_script_line(path, error)
        ) from error


def _load_module(path: Path) -> ModuleType:
    """Return the module, its folder's other modules importable while it runs.

    It is registered in ``sys.modules``, since pickled classes and dataclasses look themselves up there, under a name
    of its real path: two models.py of two folders are two modules.
    """
    hint = say("check_option", option="--model_file FILE.py:FUNCTION")
    if not path.is_file():
        raise ModelError(say("no_such_file"), where=str(path), hint=hint)
    name = f"_precision_debug_model_{abs(hash(os.path.realpath(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(say("not_importable", error=path.suffix), where=str(path), hint=hint)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with Neighbours(os.path.dirname(os.path.realpath(path))):
            spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name, None)
        raise ModelError(
            say("not_importable", error=_name_error(error)), where=find_script_line(path, error)
        ) from error
    return module


def _name_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
